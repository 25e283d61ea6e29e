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
const NOT_WORTH_A_TIMER: Duration = Duration::from_micros(30);

#[cfg(target_os = "linux")]
pub(super) struct Timer {
    fd: rustix::fd::OwnedFd,
    /// Until when it was set the last time, since the begin of the run.
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
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let wait = until.saturating_sub(now);
        if wait < NOT_WORTH_A_TIMER {
            return poll.poll(events, Some(Duration::ZERO));
        }
        if self.set == Some(until) {
            // That is still to come, so it will wake: what was heard in between has moved nothing.
            return poll.poll(events, None);
        }
        let it_value = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: wait.subsec_nanos().into() };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value })?;
        self.set = Some(until);
        poll.poll(events, None)
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
