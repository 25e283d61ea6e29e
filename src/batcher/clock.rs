//! The one place in the batcher that reads a clock.

use crate::estimator::Instant;

/// Translates between tokio's time, which a test can stop, and the core's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    epoch: tokio::time::Instant,
}

impl Clock {
    /// A clock whose epoch is now.
    pub(super) fn start() -> Clock {
        Clock { epoch: tokio::time::Instant::now() }
    }

    pub(super) fn now(self) -> Instant {
        self.instant_of(tokio::time::Instant::now())
    }

    /// Instants before the epoch become the epoch.
    pub(super) fn instant_of(self, instant: tokio::time::Instant) -> Instant {
        Instant::EPOCH + instant.saturating_duration_since(self.epoch)
    }

    pub(super) fn to_tokio(self, instant: Instant) -> tokio::time::Instant {
        self.epoch + instant.since(Instant::EPOCH)
    }
}
