//! A point in time that no clock was read for.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Nanoseconds since an epoch that the driver chooses: the start of a server, or of a simulation.
///
/// `std::time::Instant` cannot be made from a number, so code that takes it can neither be replayed from a file nor
/// simulated without reading a clock once. Arithmetic saturates: no estimate, however absurd, wraps around into the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The driver's epoch.
    pub const EPOCH: Instant = Instant(0);
    /// Later than anything that happens: 584 years after the epoch.
    pub const FAR_FUTURE: Instant = Instant(u64::MAX);

    /// So many nanoseconds after the epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant(nanos)
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, rhs: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, rhs: Duration) -> Instant {
        Instant(self.0.saturating_sub(u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX)))
    }
}
