//! Notices that batch times have moved away from their prediction: a two-sided CUSUM of log residuals
//! (Page, "Continuous inspection schemes", Biometrika 41, 1954).

/// A single residual upwards counts at most this much (a factor of 1.65), so that one straggler is not a drift.
const CLIP_UP: f64 = 0.5;
/// Downwards it counts more: much makes a batch slow by accident, nothing makes it three times as fast. After a stall, one
/// batch at its true speed is then enough to forget the stall.
const CLIP_DOWN: f64 = 1.5;
/// Deviations below this (10 %) are taken as noise.
const SLACK: f64 = 0.1;
/// The accumulated deviation that counts as drift: three batches in a row at twice their due.
const THRESHOLD: f64 = 1.0;
/// Share of a new residual in the running scatter.
const SCATTER_GAIN: f64 = 0.05;

/// Accumulates how far residuals lean to one side.
#[derive(Debug, Clone, Default)]
pub(super) struct Drift {
    up: Side,
    down: Side,
    scatter: f64,
}

#[derive(Debug, Clone, Default)]
struct Side {
    sum: f64,
    since: usize,
}

impl Side {
    fn add(&mut self, value: f64) {
        self.sum = (self.sum + value).max(0.0);
        self.since = if self.sum > 0.0 { self.since + 1 } else { 0 };
    }
}

impl Drift {
    /// Takes in a ratio of actual to predicted time. `Some(n)`: times have drifted, and the change began n batches ago
    /// (this one counted); everything older belongs to the past. Starts afresh then.
    pub(super) fn observe(&mut self, ratio: f64) -> Option<usize> {
        let residual = ratio.ln();
        if !residual.is_finite() {
            return None;
        }
        let residual = residual.clamp(-CLIP_DOWN, CLIP_UP);
        // Noisy runners need a wider notion of noise, or every bad patch would wipe the memory.
        let slack = SLACK.max(self.scatter);
        let threshold = THRESHOLD.max(8.0 * self.scatter);
        self.scatter += SCATTER_GAIN * (residual.abs().min(0.3) - self.scatter);
        self.up.add(residual - slack);
        self.down.add(-residual - slack);
        let tripped = [&self.up, &self.down].into_iter().find(|s| s.sum > threshold).map(|s| s.since);
        if tripped.is_some() {
            *self = Drift { scatter: self.scatter, ..Drift::default() };
        }
        tripped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubling_is_noticed_within_four_batches_and_dated_to_its_beginning() {
        let mut drift = Drift::default();
        assert!((0..100).all(|i| drift.observe(if i % 2 == 0 { 1.05 } else { 0.95 }).is_none()));
        let noticed: Vec<_> = (0..4).map(|_| drift.observe(2.0)).collect();
        let at = noticed.iter().position(Option::is_some).expect("noticed");
        assert_eq!(noticed[at], Some(at + 1), "the change is as old as the batches that show it");
    }

    #[test]
    fn a_speed_up_is_noticed_too() {
        let mut drift = Drift::default();
        assert!((0..4).any(|_| drift.observe(0.5).is_some()));
    }

    #[test]
    fn one_batch_far_faster_than_expected_is_enough() {
        assert_eq!(Drift::default().observe(0.1), Some(1));
    }

    #[test]
    fn a_lone_straggler_is_not_a_drift() {
        let mut drift = Drift::default();
        for i in 0..1000 {
            assert_eq!(drift.observe(if i % 100 == 7 { 5.0 } else { 1.0 }), None, "batch {i}");
        }
    }

    #[test]
    fn bad_patches_of_a_runner_that_has_them_all_the_time_are_no_drift() {
        let mut drift = Drift::default();
        // Five batches at their due, eight too slow, eight too fast, over and over.
        let patches = [1.0; 5].into_iter().chain([1.5; 8]).chain([1.0 / 1.5; 8]).cycle();
        let noticed: Vec<_> = patches.take(2100).map(|ratio| drift.observe(ratio)).collect();
        assert_eq!(noticed[300..].iter().flatten().count(), 0, "after some of them they are known");
    }
}
