//! Waiting for sockets until a moment, to some ten microseconds.
//!
//! `epoll_wait` counts in milliseconds, and requests at 2,000 a second are due every half of one. On Linux a timerfd among
//! the sockets wakes in time; elsewhere the last millisecond is spent asking again and again.

use std::io;
use std::time::Duration;

use mio::{Events, Poll, Registry, Token};

/// The timer's own token; connections count up from 0 and never get there.
pub(super) const TIMER: Token = Token(usize::MAX);
/// A shorter wait is spent asking: setting a timer and being woken by it takes about as long.
const NOT_WORTH_A_TIMER: Duration = Duration::from_micros(10);

#[cfg(target_os = "linux")]
pub(super) struct Timer {
    fd: rustix::fd::OwnedFd,
    /// Until when it is set, since the begin of the run; nothing once it has woken.
    set: Option<Duration>,
}

#[cfg(target_os = "linux")]
impl Timer {
    pub(super) fn new(registry: &Registry) -> io::Result<Timer> {
        use rustix::fd::AsRawFd;
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        registry.register(&mut mio::unix::SourceFd(&fd.as_raw_fd()), TIMER, mio::Interest::READABLE)?;
        Ok(Timer { fd, set: None })
    }

    /// Waits for events from `now` until `until` at most, both since the begin of the run.
    pub(super) fn poll(
        &mut self,
        poll: &mut Poll,
        events: &mut Events,
        now: Duration,
        until: Duration,
    ) -> io::Result<()> {
        let wait = until.saturating_sub(now);
        let worth = wait >= NOT_WORTH_A_TIMER;
        // What was heard in between mostly moves nothing: the timer need not be set again.
        if worth && self.set != Some(until) {
            self.set(wait)?;
            self.set = Some(until);
        }
        poll.poll(events, (!worth).then_some(Duration::ZERO))?;
        if events.iter().any(|event| event.token() == TIMER) {
            self.set = None;
        }
        Ok(())
    }

    fn set(&self, wait: Duration) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let it_value = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: wait.subsec_nanos().into() };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value })?;
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) struct Timer;

#[cfg(not(target_os = "linux"))]
impl Timer {
    pub(super) fn new(_registry: &Registry) -> io::Result<Timer> {
        let _ = NOT_WORTH_A_TIMER;
        Ok(Timer)
    }

    /// Waits for events from `now` until `until` at most, both since the begin of the run.
    pub(super) fn poll(
        &mut self,
        poll: &mut Poll,
        events: &mut Events,
        now: Duration,
        until: Duration,
    ) -> io::Result<()> {
        let wait = until.saturating_sub(now);
        let whole_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        poll.poll(events, Some(Duration::from_millis(whole_ms.saturating_sub(1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The clock of a run shows 0 until it begins. A timer that was taken for set although it had woken waited for ever.
    #[test]
    fn it_wakes_again_for_a_clock_that_stands_still() {
        let (mut poll, mut events) = (Poll::new().unwrap(), Events::with_capacity(8));
        let mut timer = Timer::new(poll.registry()).unwrap();
        for _ in 0..3 {
            timer.poll(&mut poll, &mut events, Duration::ZERO, Duration::from_millis(1)).unwrap();
        }
    }
}
