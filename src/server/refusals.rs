//! The log's lines about refusals: one for each reason and model every few seconds, so that no flood fills a disk.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::status::Refusal;
use crate::telemetry::{Limit, RequestId, SpanRef};

/// How often the same reason is logged for the same model.
const EVERY: Duration = Duration::from_secs(5);

/// When each reason was logged last for each model, by reason and then by the model's name: as many as there are.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<HashMap<&'static str, HashMap<String, Limit>>>);

impl Refusals {
    /// Logs `refusal`, or counts it for the next line about its like.
    pub(super) fn note(&self, refusal: &Refusal, id: &RequestId, span: Option<SpanRef>) {
        let (name, version) = refusal.model().unzip();
        let Some(left_out) = self.pass(refusal.reason(), name.unwrap_or_default(), Instant::now()) else { return };
        let (trace_id, span_id) = span.map(|span| (span.trace_id(), span.span_id())).unzip();
        let (status, request_id) = (refusal.status().as_u16(), id.as_str());
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    reason = refusal.reason(),
                    model = name,
                    version,
                    status,
                    left_out,
                    request_id,
                    trace_id,
                    span_id,
                    "{}",
                    refusal.message()
                )
            };
        }
        // What a client did wrong is no trouble of this server's.
        if status >= 500 { line!(warn) } else { line!(info) }
    }

    fn pass(&self, reason: &'static str, model: &str, now: Instant) -> Option<u64> {
        let mut limits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let models = limits.entry(reason).or_default();
        if let Some(limit) = models.get_mut(model) {
            return limit.pass(now);
        }
        models.entry(model.to_owned()).or_insert_with(|| Limit::new(EVERY)).pass(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_of_each_model_has_lines_of_its_own() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        for (reason, model) in [("shed", "a"), ("shed", "b"), ("full", "a"), ("shed", "")] {
            assert_eq!(refusals.pass(reason, model, now), Some(0), "{reason} {model}");
        }
        assert_eq!(refusals.pass("shed", "a", now + EVERY / 2), None);
        assert_eq!(refusals.pass("shed", "a", now + EVERY), Some(1));
    }
}
