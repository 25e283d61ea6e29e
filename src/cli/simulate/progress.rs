//! How far a simulation is, for whoever waits for it at a terminal.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use crate::estimator::Instant;
use crate::sim::{Arrival, Source};

/// What takes no longer than this needs no word.
const PATIENCE: Duration = Duration::from_secs(2);
const BETWEEN: Duration = Duration::from_millis(200);

/// Virtual time passed in all runs together.
pub(super) struct Progress {
    passed: AtomicU64,
    total: u64,
    /// Told at a time: the counter is shared between threads. Less than a run, whose last step goes untold.
    step: u64,
}

impl Progress {
    /// So many runs of this length are to be done.
    pub(super) fn new(runs: usize, length: Duration) -> Progress {
        let nanos = |nanos: u128| u64::try_from(nanos).unwrap_or(u64::MAX).max(1);
        let total = nanos(length.as_nanos().saturating_mul(runs as u128));
        Progress { passed: AtomicU64::new(0), total, step: nanos(length.as_nanos() / 100).min(total / 100) }
    }

    /// Does `work`; if it takes long, says on stderr how far it is, where that is a terminal.
    pub(super) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        if !std::io::stderr().is_terminal() {
            return work();
        }
        std::thread::scope(|scope| {
            let (working, done) = mpsc::channel::<()>();
            scope.spawn(move || self.tell_until(&done));
            let result = work();
            drop(working);
            result
        })
    }

    fn tell_until(&self, done: &mpsc::Receiver<()>) {
        let mut wait = PATIENCE;
        while done.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            wait = BETWEEN;
            let share = self.passed.load(Ordering::Relaxed) as f64 / self.total as f64;
            // Nothing is lost with a word about progress.
            let _ = write!(std::io::stderr().lock(), "\rsimulating: {:3.0} %", 100.0 * share.min(1.0));
        }
        if wait != PATIENCE {
            let _ = write!(std::io::stderr().lock(), "\r                 \r");
        }
    }
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
            self.progress.passed.fetch_add(passed, Ordering::Relaxed);
            self.told = arrival.at;
        }
        Some(arrival)
    }

    fn answered(&mut self, model: usize, at: Instant) {
        self.source.answered(model, at);
    }
}
