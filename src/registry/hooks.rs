//! The hooks in front of a model and behind it: each request goes through them on its own, beside running batches.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::away::Away;
use super::course::Unserved;
use super::model::{Inferred, Model};
use crate::batcher::{self, Answered, Terms};
use crate::error::Error;
use crate::metrics::ModelMetrics;
use crate::runner::{Crew, Hooks, RunnerError};
use crate::tensor::Tensors;

/// Has the metrics say how many workers there are.
pub(super) fn tell_of_workers(away: &Away, metrics: &ModelMetrics) {
    let (workers, ends, told) = (metrics.workers.clone(), metrics.worker_ends.clone(), AtomicU64::new(0));
    away.watched(Box::new(move |Crew { ready, ended }| {
        workers.set(ready as f64);
        ends.increment(ended.saturating_sub(told.fetch_max(ended, Ordering::Relaxed)));
    }));
}

impl Model {
    /// Answers a request by way of the model's hooks.
    pub(super) async fn answer_hooked(&self, away: &Away, inputs: Tensors, terms: Terms) -> Result<Inferred, Error> {
        let (Hooks { prepare, finish }, rows) = (away.hooks(), inputs.rows());
        let inputs = if prepare { self.prepare(away, inputs, terms).await? } else { inputs };
        let answered = self.answer_plain(inputs, terms).await?;
        if !finish {
            return Ok(answered);
        }
        let Answered { answer: (outputs, stages), queue, batch, batch_rows, batch_span } = answered;
        let outputs = away.finish(outputs).await.map_err(|why| self.unhooked(why))?;
        if !self.signature().agrees(&outputs, rows) {
            return Err(self.misshapen("the hook behind the model gives outputs of another shape"));
        }
        Ok(Answered { answer: (outputs, stages), queue, batch, batch_rows, batch_span })
    }

    /// Runs the hook in front of the model, as long as there is time for it.
    async fn prepare(&self, away: &Away, inputs: Tensors, terms: Terms) -> Result<Tensors, Error> {
        let (rows, bound) = (inputs.rows(), self.spec().max_queue_rows.get());
        let Some(_place) = Hooked::enter(&self.hooked, rows, bound) else {
            let queued = self.hooked.load(Ordering::Relaxed);
            return Err(
                batcher::Error::Full { queued, bound, unit: "rows", retry_after: self.spec().max_latency }.into()
            );
        };
        let most = self.spec().max_latency;
        let left = most.saturating_sub(terms.arrival().elapsed());
        let late = |_| {
            let (predicted_ms, deadline_ms) = (terms.arrival().elapsed().as_secs_f64() * 1e3, most.as_secs_f64() * 1e3);
            Error::from(batcher::Error::Late { predicted_ms, deadline_ms, retry_after: Some(most) })
        };
        let prepared = tokio::time::timeout(left, away.prepare(inputs)).await.map_err(late)?;
        let prepared = prepared.map_err(|why| self.unhooked(why))?;
        if prepared.rows() == rows {
            return Ok(prepared);
        }
        Err(self.misshapen("the hook in front of the model gives another number of rows"))
    }

    fn misshapen(&self, why: &str) -> Error {
        self.unserved(Unserved::Failed(why.to_owned()))
    }

    /// What a caller is told whose request does not get through a hook.
    fn unhooked(&self, why: RunnerError) -> Error {
        let named = |rows: Vec<(usize, String)>| rows.into_iter().next().map(|(_, why)| why).unwrap_or_default();
        self.unserved(match why {
            RunnerError::Input(why) => Unserved::Input(why),
            RunnerError::Rows(rows) => Unserved::Input(named(rows)),
            RunnerError::FailedRows(rows) => Unserved::Failed(named(rows)),
            RunnerError::Absent(why) => Unserved::Absent(why),
            why => Unserved::Failed(why.to_string()),
        })
    }
}

/// Rows in the hook in front of a model.
struct Hooked<'a> {
    all: &'a AtomicUsize,
    own: usize,
}

impl<'a> Hooked<'a> {
    /// `None` where there is no room.
    fn enter(all: &'a AtomicUsize, own: usize, most: usize) -> Option<Hooked<'a>> {
        let place = Hooked { all, own };
        (all.fetch_add(own, Ordering::Relaxed) + own <= most).then_some(place)
    }
}

impl Drop for Hooked<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}
