//! Counts and times of one model since the start, by request and by batch size, for those who ask over a protocol.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::batcher::{Landed, Observer};
use crate::estimator::Instant;
use crate::metrics::Stage;

/// One model's statistics: an observer of its batcher. Clones are the same ones.
#[derive(Debug, Clone, Default)]
pub struct Statistics(Arc<Mutex<Totals>>);

/// What is counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests that were answered, from arrival to the answer's last byte.
    pub answered: Timed,
    /// Requests that were not, from arrival to the refusal.
    pub unanswered: Timed,
    /// What answered requests waited before their batch was released.
    pub queue: Timed,
    /// What assembling their batches took.
    pub input: Timed,
    /// What the model took.
    pub infer: Timed,
    /// From there to the answer's last byte.
    pub output: Timed,
    /// Batches that came back with answers, by their rows.
    pub batches: BTreeMap<usize, Timed>,
    /// When the last of them did.
    pub last: Option<SystemTime>,
}

/// How often, and how long in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timed {
    /// How often.
    pub count: u64,
    /// How long in all.
    pub time: Duration,
}

impl Timed {
    fn add(&mut self, time: Duration) {
        self.count += 1;
        self.time += time;
    }
}

impl Statistics {
    /// What was counted until now.
    pub fn totals(&self) -> Totals {
        self.locked().clone()
    }

    /// A request was answered after `took`, with its time in the order of [`Stage::ALL`].
    pub fn answered(&self, took: Duration, stages: [Duration; Stage::ALL.len()]) {
        let [receive, decode, queue, assemble, execute, handover, encode] = stages;
        let mut totals = self.locked();
        totals.answered.add(took);
        totals.queue.add(receive + decode + queue);
        totals.input.add(assemble);
        totals.infer.add(execute);
        totals.output.add(handover + encode);
    }

    /// A request ended after `took` without an answer.
    pub fn unanswered(&self, took: Duration) {
        self.locked().unanswered.add(took);
    }

    /// A lock that a panic poisoned is as good as before.
    fn locked(&self) -> MutexGuard<'_, Totals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Statistics {
    fn landed(&self, _at: Instant, batch: &Landed<'_>) {
        if batch.failed.is_none() {
            let mut totals = self.locked();
            totals.batches.entry(batch.rows).or_default().add(batch.took);
            totals.last = Some(SystemTime::now());
        }
    }
}
