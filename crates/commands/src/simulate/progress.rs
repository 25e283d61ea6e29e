//! How far a simulation is.

use std::time::Duration;

use crate::layout::grouped;
use crate::progress;
use uncork_core::estimator::Instant;
use uncork_sim::{Arrival, Source};

/// Virtual time passed in all runs together.
pub(super) struct Progress {
    passed: progress::Progress,
    /// Told at a time: the counter is shared between threads. Less than a run, whose last step goes untold.
    step: u64,
}

impl Progress {
    /// So many runs of this length are to be done.
    pub(super) fn new(runs: usize, length: Duration) -> Progress {
        let nanos = |nanos: u128| u64::try_from(nanos).unwrap_or(u64::MAX).max(1);
        let total = nanos(length.as_nanos().saturating_mul(runs as u128));
        let step = nanos(length.as_nanos() / 100).min(total / 100);
        Progress { passed: progress::Progress::new("simulating", total).with_speed(speed), step }
    }

    /// Does `work`; if it takes long, says how far it is.
    pub(super) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.passed.during(work)
    }
}

/// Of nanoseconds in a second.
fn speed(nanos: f64) -> String {
    format!("{} times as fast as the clock", grouped((nanos / 1e9).round() as u64))
}

/// A source that tells how far it is.
pub(super) struct Watched<'a, S> {
    source: S,
    progress: &'a Progress,
    told: Instant,
}

impl<'a, S: Source> Watched<'a, S> {
    pub(super) fn new(source: S, progress: &'a Progress) -> Watched<'a, S> {
        let told = source.peek().unwrap_or_default();
        Watched { source, progress, told }
    }
}

impl<S: Source> Source for Watched<'_, S> {
    fn peek(&self) -> Option<Instant> {
        self.source.peek()
    }

    fn pop(&mut self) -> Option<Arrival> {
        let arrival = self.source.pop()?;
        let passed = arrival.at.since(self.told).as_nanos() as u64;
        if passed > self.progress.step {
            self.progress.passed.advance(passed);
            self.told = arrival.at;
        }
        Some(arrival)
    }

    fn answered(&mut self, model: usize, at: Instant) {
        self.source.answered(model, at);
    }
}
