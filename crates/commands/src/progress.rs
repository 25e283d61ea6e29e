//! How far a command is, for whoever waits for it at a terminal.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// What takes no longer than this needs no word.
const PATIENCE: Duration = Duration::from_secs(2);
const BETWEEN: Duration = Duration::from_millis(200);

/// How much of a whole is done, in whatever unit.
pub struct Progress {
    /// What is done, as in `simulating`.
    doing: &'static str,
    passed: AtomicU64,
    total: u64,
    /// What so much of it in a second is called.
    speed: Option<fn(f64) -> String>,
}

impl Progress {
    /// Nothing of `total` is done.
    pub fn new(doing: &'static str, total: u64) -> Progress {
        Progress { doing, passed: AtomicU64::new(0), total: total.max(1), speed: None }
    }

    /// The same, which says as well how fast it goes.
    pub(crate) fn with_speed(self, speed: fn(f64) -> String) -> Progress {
        Progress { speed: Some(speed), ..self }
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
        let (began, mut wait) = (Instant::now(), PATIENCE);
        while done.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            wait = BETWEEN;
            // Nothing is lost with a word about progress; to the end of the line, nothing of the last one stays.
            let _ = write!(std::io::stderr().lock(), "\r{}\x1b[K", self.word(began.elapsed()));
        }
        if wait != PATIENCE {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }

    /// `simulating: 40 %, 1,200 times as fast as the clock, 12 s left`
    fn word(&self, elapsed: Duration) -> String {
        let (passed, seconds) = (self.passed.load(Ordering::Relaxed) as f64, elapsed.as_secs_f64());
        let share = (passed / self.total as f64).min(1.0);
        let speed = self.speed.map_or(String::new(), |speed| format!(", {}", speed(passed / seconds.max(1e-9))));
        let left = match seconds * (1.0 - share) / share {
            left if !left.is_finite() => String::new(),
            left if left < 120.0 => format!(", {left:.0} s left"),
            left => format!(", {:.0} min left", left / 60.0),
        };
        format!("{}: {:3.0} %{speed}{left}", self.doing, 100.0 * share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_by_what_was_done_so_far() {
        let progress = Progress::new("counting", 400).with_speed(|speed| format!("{speed:.0} a second"));
        assert_eq!(progress.word(Duration::from_secs(2)), "counting:   0 %, 0 a second");
        progress.advance(100);
        assert_eq!(progress.word(Duration::from_secs(10)), "counting:  25 %, 10 a second, 30 s left");
        progress.advance_to(1000);
        assert_eq!(progress.word(Duration::from_secs(10)), "counting: 100 %, 100 a second, 0 s left");
    }
}
