//! The span of one batch, with a link to each sampled request that rides in it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use opentelemetry::trace::{Link, Span as _, SpanBuilder, Status, Tracer as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::Span;

use super::{SpanRef, Tracer, context, ms, span_ref};
use crate::batcher::{Landed, Observer, Released};
use crate::estimator::Instant;

/// Makes the spans of one model's batches: an observer of its batcher. Where no request in a batch is sampled, it makes none.
#[derive(Debug)]
pub struct BatchTracer {
    tracer: Tracer,
    name: Arc<str>,
    version: Arc<str>,
    /// The spans of batches that are with a runner, by ticket, and when they began.
    open: Mutex<HashMap<u64, (Span, SystemTime)>>,
}

impl Tracer {
    /// A tracer for the batches of one model.
    pub fn of_model(&self, name: &str, version: &str) -> BatchTracer {
        let open = Mutex::new(HashMap::new());
        BatchTracer { tracer: self.clone(), name: name.into(), version: version.into(), open }
    }
}

impl BatchTracer {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, (Span, SystemTime)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for BatchTracer {
    fn released(&self, _at: Instant, batch: &Released<'_>) -> Option<SpanRef> {
        let tracer = self.tracer.0.as_ref()?;
        let links: Vec<Link> =
            batch.riders.iter().filter_map(|rider| rider.span.map(context)).map(Link::with_context).collect();
        if links.is_empty() {
            return None;
        }
        let began = SystemTime::now();
        let mut attributes = vec![
            KeyValue::new("uncork.model.name", Arc::clone(&self.name)),
            KeyValue::new("uncork.model.version", Arc::clone(&self.version)),
            KeyValue::new("uncork.batch.requests", batch.riders.len() as i64),
            KeyValue::new("uncork.batch.rows", batch.rows as i64),
            KeyValue::new("uncork.batch.release_reason", batch.reason.label()),
            KeyValue::new("uncork.batch.held_ms", ms(batch.held)),
        ];
        attributes.extend(batch.predicted.map(|time| KeyValue::new("uncork.batch.predicted_ms", ms(time))));
        let builder = SpanBuilder::from_name("batch").with_start_time(began).with_links(links);
        let span = tracer.build_with_context(builder.with_attributes(attributes), &Context::new());
        let own = span_ref(span.span_context());
        self.open().insert(batch.ticket, (span, began));
        Some(own)
    }

    fn landed(&self, _at: Instant, batch: &Landed<'_>) {
        if batch.span.is_none() {
            return;
        }
        let Some((mut span, began)) = self.open().remove(&batch.ticket) else { return };
        span.set_attribute(KeyValue::new("uncork.batch.real_ms", ms(batch.took)));
        if let Some(why) = batch.failed {
            span.set_attribute(KeyValue::new("error.type", "failed"));
            span.set_status(Status::error(why.to_string()));
        }
        span.end_with_timestamp(began + batch.took);
    }
}
