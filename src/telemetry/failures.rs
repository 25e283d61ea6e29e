//! Failed batches in the log: a model that always fails does not fill the disk.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::Limit;
use crate::batcher::{Abandoned, Landed, Observer, Rehearsed, SpanRef};
use crate::estimator::Instant;
use crate::quote::on_lines;

/// How often failed batches of one model are logged, and failed requests.
pub const LOG_EVERY: Duration = Duration::from_secs(5);

/// Logs the failed batches of one model.
#[derive(Debug)]
pub struct FailureLog {
    /// The model's name in log lines.
    name: String,
    limit: Mutex<Limit>,
}

impl FailureLog {
    /// For the batches of what is called so.
    pub fn new(name: impl Into<String>) -> FailureLog {
        FailureLog { name: name.into(), limit: Mutex::new(Limit::new(LOG_EVERY)) }
    }
}

impl Observer for FailureLog {
    fn landed(&self, _at: Instant, batch: &Landed<'_>) {
        let Some(why) = batch.failed else { return };
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left_out) = limit.pass(tokio::time::Instant::now()) {
            let trace_id = batch.span.as_ref().map(SpanRef::trace_id);
            tracing::error!(queue = self.name, rows = batch.rows, left_out, trace_id, why = %on_lines(&why.to_string()), "a batch failed");
        }
    }

    fn abandoned(&self, _at: Instant, batch: &Abandoned) {
        let Abandoned { rows, ran, is_replaced, left_behind } = *batch;
        let what = match is_replaced {
            true => "a batch does not come back: its runner is replaced",
            false => {
                "a batch does not come back, and too many runners are left behind: there is one less; restart the server"
            }
        };
        tracing::error!(queue = self.name, rows, ?ran, left_behind, "{what}");
    }

    fn rehearsed(&self, _at: Instant, batch: &Rehearsed<'_>) {
        let Rehearsed { rows, took, failed, most_rows } = *batch;
        match failed {
            Some(why) => {
                tracing::error!(queue = self.name, rows, most_rows, why = %on_lines(&why.to_string()), "a rehearsal failed: no batch will be larger than `most_rows`");
            }
            None if rows == most_rows => tracing::info!(queue = self.name, rows, ?took, "rehearsed"),
            None => tracing::debug!(queue = self.name, rows, most_rows, ?took, "rehearsed"),
        }
    }
}
