//! How far a command is, for whoever waits for it at a terminal.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// What takes no longer than this needs no word.
const PATIENCE: Duration = Duration::from_secs(2);
const BETWEEN: Duration = Duration::from_millis(200);

/// How much of a whole is done, in whatever unit.
pub struct Progress {
    /// What is done, as in `simulating`.
    doing: &'static str,
    passed: AtomicU64,
    total: u64,
}

impl Progress {
    /// Nothing of `total` is done.
    pub fn new(doing: &'static str, total: u64) -> Progress {
        Progress { doing, passed: AtomicU64::new(0), total: total.max(1) }
    }

    /// More of it is done.
    pub fn advance(&self, by: u64) {
        self.passed.fetch_add(by, Ordering::Relaxed);
    }

    /// So much of it is done, all in all.
    pub fn advance_to(&self, passed: u64) {
        self.passed.store(passed, Ordering::Relaxed);
    }

    /// Does `work`; if it takes long, says on stderr how far it is, where that is a terminal.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> T {
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
            let _ = write!(std::io::stderr().lock(), "\r{}: {:3.0} %", self.doing, 100.0 * share.min(1.0));
        }
        if wait != PATIENCE {
            let _ = write!(std::io::stderr().lock(), "\r{:1$}\r", "", self.doing.len() + 7);
        }
    }
}
