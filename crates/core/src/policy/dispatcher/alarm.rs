//! When the driver is to ask again, and how late it did so of late.

use std::time::Duration;

use crate::estimator::Instant;
use crate::policy::Decision;

/// The most that it counts as late: a machine that stood still for once is no reason never to hold.
const MOST: Duration = Duration::from_millis(10);
/// Batches within which most of that is forgotten.
const FADES_IN: u32 = 64;

/// Timers ring late, and the later the busier a machine is. A batch that is held until the last moment is late then.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    at: Option<Instant>,
    late_by: Duration,
}

impl Alarm {
    /// Is asked again at `now`.
    pub(super) fn rang(&mut self, now: Instant) {
        let late_by = self.at.take().map_or(Duration::ZERO, |at| now.since(at));
        self.late_by = self.late_by.max(late_by.min(MOST));
    }

    /// Is to be asked again at this instant.
    pub(super) fn set(&mut self, at: Instant) {
        self.at = Some(at);
    }

    /// A batch was launched.
    pub(super) fn fade(&mut self) {
        self.late_by -= self.late_by / FADES_IN;
    }

    /// How late it was of late.
    pub(super) fn late_by(&self) -> Duration {
        self.late_by
    }
}

/// The sooner of what is to be waited for and `at`.
pub(super) fn sooner(rest: Decision, at: Instant) -> Decision {
    let Decision::WaitUntil(other) = rest else { return Decision::WaitUntil(at) };
    Decision::WaitUntil(other.min(at))
}
