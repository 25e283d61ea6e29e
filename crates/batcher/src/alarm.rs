//! Wakes the actor to the microsecond: tokio's timers ring at whole milliseconds, and most holds are shorter.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use tokio::sync::Notify;

/// One instant to be woken at, which can be moved, and a thread that sleeps until it.
///
/// The thread is started by the first [`set`](Self::set), sleeps for good while nothing is wanted, and has ended when
/// this is dropped. It rings some 30 µs late on Linux. A ring may also be one too many: whoever hears it looks at its clock.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The system had no thread to give, and is not asked again.
    refused: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// The thread is to look at the state.
    changed: Condvar,
    rung: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// When to ring. The thread takes it out when it does.
    wanted: Option<Instant>,
    /// When the thread looks at the state at the latest, unless it is told to.
    looks_at: Option<Instant>,
    ended: bool,
}

impl Alarm {
    /// Rings at `at`, and no longer at what was set before.
    pub(super) fn set(&mut self, at: Instant) {
        if self.thread.is_none() && !self.refused {
            self.start();
        }
        let mut state = self.shared.lock();
        state.wanted = Some(at);
        // A thread that looks sooner than that goes on sleeping by itself, so an alarm that is put off costs no wake.
        let looks_too_late = state.looks_at.is_none_or(|looks_at| at < looks_at);
        drop(state);
        if looks_too_late {
            self.shared.changed.notify_one();
        }
    }

    /// Does not ring.
    pub(super) fn clear(&mut self) {
        if self.thread.is_some() {
            self.shared.lock().wanted = None;
        }
    }

    /// Waits for the next ring; one that nobody waited for is not lost.
    pub(super) async fn rung(&self) {
        self.shared.rung.notified().await;
    }

    fn start(&mut self) {
        let shared = Arc::clone(&self.shared);
        match thread::Builder::new().name("uncork-alarm".into()).spawn(move || {
            sleep_precisely();
            shared.keep();
        }) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => {
                tracing::warn!(%error, "no thread for an alarm: holds may end up to 1 ms late");
                self.refused = true;
            }
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // It does nothing but sleep, so this takes no longer than waking it; and it has nothing that could panic.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// What the thread does.
    fn keep(&self) {
        let mut state = self.lock();
        while !state.ended {
            let now = Instant::now();
            if state.wanted.is_some_and(|at| at <= now) {
                state.wanted = None;
                // Whoever is woken may set the next alarm at once, for which it needs the lock.
                drop(state);
                self.rung.notify_one();
                state = self.lock();
                continue;
            }
            state.looks_at = state.wanted;
            state = match state.wanted {
                Some(at) => {
                    let slept = self.changed.wait_timeout(state, at.saturating_duration_since(now));
                    slept.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Nothing panics while it holds this lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Linux lets a sleeping thread lie for 50 µs longer, so that it can wake several at once; this asks for 1 µs. Elsewhere,
/// and where that is not allowed, the alarm is that much later.
fn sleep_precisely() {
    // proc(5): the link reads `<process>/task/<thread>`, and the file is only in folders right below /proc.
    let thread = std::fs::read_link("/proc/thread-self").ok();
    if let Some(id) = thread.as_deref().and_then(Path::file_name) {
        let _ = std::fs::write(Path::new("/proc").join(id).join("timerslack_ns"), "1000");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    impl Alarm {
        /// Whether it is going to ring.
        pub(crate) fn is_set(&self) -> bool {
            self.shared.lock().wanted.is_some()
        }
    }

    /// Far longer than an alarm is ever late.
    const HANGS: Duration = Duration::from_secs(20);

    async fn rings(alarm: &Alarm) {
        tokio::time::timeout(HANGS, alarm.rung()).await.expect("it rings");
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_micros(100)
    }

    #[tokio::test]
    async fn an_alarm_rings_once_and_not_early() {
        let (mut alarm, at) = (Alarm::default(), soon());
        alarm.set(at);
        rings(&alarm).await;
        assert!(Instant::now() >= at);
        assert!(!alarm.is_set());
        assert_eq!(alarm.rung().now_or_never(), None);
    }

    #[tokio::test]
    async fn an_instant_that_has_passed_rings_at_once() {
        let mut alarm = Alarm::default();
        alarm.set(Instant::now());
        rings(&alarm).await;
    }

    #[tokio::test]
    async fn a_ring_that_nobody_waited_for_is_not_lost() {
        let mut alarm = Alarm::default();
        alarm.set(soon());
        while alarm.is_set() {
            std::thread::yield_now();
        }
        rings(&alarm).await;
    }

    #[tokio::test]
    async fn an_earlier_alarm_wakes_a_thread_that_sleeps_for_longer() {
        let mut alarm = Alarm::default();
        alarm.set(Instant::now() + HOUR);
        while alarm.shared.lock().looks_at.is_none() {
            std::thread::yield_now(); // until it sleeps for an hour
        }
        alarm.set(soon());
        rings(&alarm).await;
    }

    #[tokio::test]
    async fn a_thousand_alarms_set_put_off_and_cleared_ring_once_each() {
        let mut alarm = Alarm::default();
        for i in 0..1000 {
            alarm.set(Instant::now() + HOUR);
            if i % 2 == 0 {
                alarm.clear();
            }
            if i % 3 == 0 {
                alarm.set(Instant::now() + 2 * HOUR);
            }
            alarm.set(Instant::now() + Duration::from_micros(i % 5 * 20));
            rings(&alarm).await;
            assert_eq!(alarm.rung().now_or_never(), None, "round {i}");
        }
    }

    #[test]
    fn a_thread_is_started_for_the_first_alarm_and_has_ended_with_the_last() {
        let mut alarm = Alarm::default();
        alarm.clear();
        assert!(alarm.thread.is_none());
        alarm.set(Instant::now() + HOUR);
        let id = alarm.thread.as_ref().expect("started").thread().id();
        alarm.set(Instant::now() + 2 * HOUR);
        assert_eq!(alarm.thread.as_ref().expect("started").thread().id(), id);
        let shared = Arc::downgrade(&alarm.shared);
        drop(alarm);
        assert!(shared.upgrade().is_none(), "the thread shared it");
    }
}
