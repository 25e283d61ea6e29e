//! Traces: what happened to a sampled request, and which batch it rode in, told to an OpenTelemetry collector.
//!
//! A [`Tracer`] is passed to whoever has something to tell, and is off by default. Each sampled request has a server span
//! with a child for each stage; each batch that holds one has a span of its own with a link to every sampled request in it,
//! since a span has one parent and a batch has many. What travels with an item through the batcher is only a [`SpanRef`].
//!
//! There is no global tracer, as there are no global metrics: two servers in one test do not tell each other's story.

mod batch;
mod export;
mod failures;
mod limit;
mod post;
mod request;
mod request_id;
mod sampling;
mod settings;

use std::sync::Arc;

use opentelemetry::trace::{SpanContext, TraceFlags, TraceState};
use opentelemetry_sdk::trace::SdkTracer;

pub use crate::batcher::SpanRef;
pub use batch::BatchTracer;
pub use export::{Counts, Traces};
pub use failures::{FailureLog, LOG_EVERY};
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

/// Which span it is.
fn span_ref(context: &SpanContext) -> SpanRef {
    let trace = u128::from_be_bytes(context.trace_id().to_bytes());
    SpanRef { trace, span: u64::from_be_bytes(context.span_id().to_bytes()) }
}

/// A span as a link wants it. Only sampled spans are ever referred to.
fn context(span: SpanRef) -> SpanContext {
    SpanContext::new(span.trace.into(), span.span.into(), TraceFlags::SAMPLED, false, TraceState::NONE)
}

/// Milliseconds, as attributes give times.
fn ms(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
