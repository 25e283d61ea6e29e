//! All that a decision may look at.

use std::time::Duration;

use super::Queue;
use crate::estimator::{Fit, Gaps, Instant};

/// The state of one pool at one instant.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// What waits.
    pub queue: &'a Queue,
    /// Batches that are running now, in any order.
    pub running: &'a [Running],
    /// Runners of the pool, free and busy.
    pub runners: usize,
    /// Cap on the rows of a batch.
    pub max_batch: usize,
    /// What is known of batch times.
    pub fit: Fit,
    /// What is known of arrivals.
    pub gaps: &'a Gaps,
    /// When a runner last became free; the epoch if none ever ran.
    pub free_since: Instant,
    /// Whether nothing will arrive any more.
    pub draining: bool,
}

/// A batch that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Running {
    /// When it was released.
    pub since: Instant,
    /// Its rows.
    pub rows: usize,
}

impl View<'_> {
    /// Whether a batch released now would start at once.
    pub fn has_free_runner(&self) -> bool {
        self.running.len() < self.runners
    }

    /// When the batch with `ahead` full batches before it is expected to start: now if a runner is free for it.
    ///
    /// The batches ahead take the runners in the order in which these come free, each for a full batch's time.
    pub fn start_after(&self, now: Instant, ahead: usize) -> Instant {
        let runners = self.runners.max(1);
        let free = runners.saturating_sub(self.running.len());
        let (round, turn) = (ahead / runners, ahead % runners);
        let start = if turn < free { now } else { self.nth_completion(now, turn - free) };
        let full = self.fit.predict(self.max_batch).unwrap_or_default();
        start + full.saturating_mul(u32::try_from(round).unwrap_or(u32::MAX))
    }

    /// The instant when the (n + 1)th of the running batches is expected to be done.
    fn nth_completion(&self, now: Instant, n: usize) -> Instant {
        let done = |r: &Running| self.completion(now, r);
        match self.running {
            [] => now,
            [only] => done(only),
            several => {
                let mut ends: Vec<Instant> = several.iter().map(done).collect();
                let n = n.min(ends.len() - 1);
                *ends.select_nth_unstable(n).1
            }
        }
    }

    /// A batch that has outlasted its prediction is expected to take as long again as it is overdue: a hung runner then
    /// soon stops promising anything, and what waits for it is refused while it hangs.
    fn completion(&self, now: Instant, running: &Running) -> Instant {
        let due = running.since + self.fit.predict(running.rows).unwrap_or_default();
        if due > now || !self.fit.is_trusted() { due.max(now) } else { now + now.since(due) }
    }

    /// The cautious batch time of `rows`, or of as many as fit into one batch; zero while the estimate is a guess, so that
    /// nothing is refused on one.
    pub fn batch_time(&self, rows: usize) -> Duration {
        let trusted = self.fit.is_trusted().then(|| self.fit.predict_cautiously(rows.min(self.max_batch)));
        trusted.flatten().unwrap_or_default()
    }
}
