//! The one place in the batcher that asks what time it is.

use uncork_core::estimator::Instant;

/// Translates between tokio's time, which a test can stop, and the core's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    epoch: tokio::time::Instant,
    /// Whether tokio's time is the system's; a test can stop it, and advance it at will.
    is_system: bool,
}

impl Clock {
    /// A clock whose epoch is now.
    pub(super) fn start() -> Clock {
        let before = std::time::Instant::now();
        let epoch = tokio::time::Instant::now();
        Clock { epoch, is_system: (before..=std::time::Instant::now()).contains(&epoch.into_std()) }
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

    /// The same instant for those who wait without tokio; `None` if its time was stopped when this clock was started, so
    /// that nothing real can disturb a test in virtual time.
    pub(super) fn to_system(self, instant: Instant) -> Option<std::time::Instant> {
        self.is_system.then(|| self.to_tokio(instant).into_std())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_clock_that_runs_is_the_systems() {
        let (before, clock) = (std::time::Instant::now(), Clock::start());
        let epoch = clock.to_system(Instant::EPOCH).expect("it runs");
        assert!((before..=std::time::Instant::now()).contains(&epoch));
        let second = Duration::from_secs(1);
        assert_eq!(clock.to_system(Instant::EPOCH + second), Some(epoch + second));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopped_clock_is_not_and_nor_is_one_that_was_advanced() {
        assert_eq!(Clock::start().to_system(Instant::EPOCH), None);
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(Clock::start().to_system(Instant::EPOCH), None);
    }
}
