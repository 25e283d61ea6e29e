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
}

#[cfg(target_os = "linux")]
impl Timer {
    pub(super) fn new(registry: &Registry) -> io::Result<Timer> {
        use rustix::fd::AsRawFd;
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        registry.register(&mut mio::unix::SourceFd(&fd.as_raw_fd()), TIMER, mio::Interest::READABLE)?;
        Ok(Timer { fd })
    }

    /// Waits for events for at most `wait`.
    pub(super) fn poll(&self, poll: &mut Poll, events: &mut Events, wait: Duration) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        if wait < NOT_WORTH_A_TIMER {
            return poll.poll(events, Some(Duration::ZERO));
        }
        let it_value = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: wait.subsec_nanos().into() };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value })?;
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

    /// Waits for events for at most `wait`.
    pub(super) fn poll(&self, poll: &mut Poll, events: &mut Events, wait: Duration) -> io::Result<()> {
        let whole_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        poll.poll(events, Some(Duration::from_millis(whole_ms.saturating_sub(1))))
    }
}
