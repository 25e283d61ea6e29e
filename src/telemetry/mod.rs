//! Traces: what happened to a sampled request, and which batch it rode in, told to an OpenTelemetry collector.
//!
//! A [`Tracer`] is passed to whoever has something to tell, and is off by default. Each sampled request has a server span
//! with a child for each stage; each batch that holds one has a span of its own with a link to every sampled request in it,
//! since a span has one parent and a batch has many. What travels with an item through the batcher is only a [`SpanRef`].
//!
//! There is no global tracer, as there are no global metrics: two servers in one test do not tell each other's story.

mod batch;
mod export;
mod limit;
mod post;
mod request;
mod request_id;
mod sampling;
mod settings;

use std::sync::Arc;

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use opentelemetry_sdk::trace::SdkTracer;

pub use batch::{BatchSpan, BatchTracer, Release};
pub use export::{Counts, Traces};
pub use limit::Limit;
pub use request::{Head, RequestSpan, Ride};
pub use request_id::RequestId;
pub use settings::{Sampling, Settings};

/// Makes spans, or, as by default, nothing. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Tracer(Option<Arc<SdkTracer>>);

impl Tracer {
    /// A tracer that makes nothing.
    pub fn off() -> Tracer {
        Tracer::default()
    }

    /// Whether any span can come of it.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }
}

/// Which span is meant, for links and for log lines: small enough to travel with an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanRef {
    trace: TraceId,
    span: SpanId,
}

impl SpanRef {
    fn of(context: &SpanContext) -> SpanRef {
        SpanRef { trace: context.trace_id(), span: context.span_id() }
    }

    /// The trace's id in W3C's form: 32 lower-case hexadecimal digits.
    pub fn trace_id(&self) -> String {
        self.trace.to_string()
    }

    /// The span's id in W3C's form: 16 lower-case hexadecimal digits.
    pub fn span_id(&self) -> String {
        self.span.to_string()
    }

    /// As a link wants it. Only sampled spans are ever referred to.
    fn context(self) -> SpanContext {
        SpanContext::new(self.trace, self.span, TraceFlags::SAMPLED, false, TraceState::NONE)
    }
}

/// Milliseconds, as attributes give times.
fn ms(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
