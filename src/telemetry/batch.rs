//! The span of one batch, with a link to each sampled request that rides in it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{Link, Span as _, SpanBuilder, Status, Tracer as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::Span;

use super::{SpanRef, Tracer, ms};

/// Makes the spans of one model's batches; by default, none.
#[derive(Debug, Clone)]
pub struct BatchTracer {
    tracer: Tracer,
    name: Arc<str>,
    version: Arc<str>,
}

impl Default for BatchTracer {
    fn default() -> BatchTracer {
        Tracer::off().of_model("", "")
    }
}

impl Tracer {
    /// A tracer for the batches of one model.
    pub fn of_model(&self, name: &str, version: &str) -> BatchTracer {
        BatchTracer { tracer: self.clone(), name: name.into(), version: version.into() }
    }
}

/// What is known of a batch when it is released.
#[derive(Debug)]
pub struct Release {
    /// The sampled requests in it.
    pub sampled: Vec<SpanRef>,
    /// Its requests, sampled or not; each part of a split one counts.
    pub requests: usize,
    /// Its rows.
    pub rows: usize,
    /// Why it was released then.
    pub reason: &'static str,
    /// What the estimator expects, if it expects anything.
    pub predicted: Option<Duration>,
    /// How long it was held although a runner was free.
    pub held: Duration,
}

impl BatchTracer {
    /// Begins the span of a batch that is released now; `None` where no request in it is sampled.
    pub fn released(&self, release: Release) -> Option<BatchSpan> {
        let tracer = self.tracer.0.as_ref().filter(|_| !release.sampled.is_empty())?;
        let began = SystemTime::now();
        let links = release.sampled.iter().map(|request| Link::with_context(request.context())).collect();
        let mut attributes = vec![
            KeyValue::new("uncork.model.name", Arc::clone(&self.name)),
            KeyValue::new("uncork.model.version", Arc::clone(&self.version)),
            KeyValue::new("uncork.batch.requests", release.requests as i64),
            KeyValue::new("uncork.batch.rows", release.rows as i64),
            KeyValue::new("uncork.batch.release_reason", release.reason),
            KeyValue::new("uncork.batch.held_ms", ms(release.held)),
        ];
        attributes.extend(release.predicted.map(|time| KeyValue::new("uncork.batch.predicted_ms", ms(time))));
        let builder = SpanBuilder::from_name("batch").with_start_time(began).with_links(links);
        let builder = builder.with_attributes(attributes);
        Some(BatchSpan { span: tracer.build_with_context(builder, &Context::new()), began })
    }
}

/// The span of a batch that is with a runner.
#[derive(Debug)]
pub struct BatchSpan {
    span: Span,
    began: SystemTime,
}

impl BatchSpan {
    /// Which span it is.
    pub fn span_ref(&self) -> SpanRef {
        SpanRef::of(self.span.span_context())
    }

    /// Ends it: the batch took so long, and failed for that reason if it failed.
    pub fn landed(mut self, took: Duration, failed: Option<String>) {
        self.span.set_attribute(KeyValue::new("uncork.batch.real_ms", ms(took)));
        if let Some(why) = failed {
            self.span.set_attribute(KeyValue::new("error.type", "failed"));
            self.span.set_status(Status::error(why));
        }
        self.span.end_with_timestamp(self.began + took);
    }
}
