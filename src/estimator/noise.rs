//! How far actual batch times scatter above their prediction: an online quantile of the residuals.

use std::collections::VecDeque;

/// Ratios remembered: enough for the quantile to rest on six samples, few enough to follow a change within seconds.
const WINDOW: usize = 128;
/// Ratios below which the quantile is not trusted. So few, because a margin that nothing speaks for costs answers from
/// the start.
const ENOUGH: usize = 3;
/// Which quantile: one batch in twenty may take longer than the cautious prediction, and of such a batch only the first
/// few rows are late. Higher: fewer late answers, more refusals on their account.
const QUANTILE: f64 = 0.95;
/// Used until there are [`ENOUGH`] ratios.
const FIRST_GUESS: f64 = 1.05;

/// The latest ratios of actual to predicted batch time.
#[derive(Debug, Clone)]
pub(super) struct Noise {
    ratios: VecDeque<f64>,
    factor: f64,
}

impl Noise {
    pub(super) fn new() -> Noise {
        Noise { ratios: VecDeque::with_capacity(WINDOW), factor: FIRST_GUESS }
    }

    /// z: what a prediction is to be multiplied by; at least 1. Costs a microsecond.
    pub(super) fn factor(&mut self) -> f64 {
        if self.ratios.len() >= ENOUGH {
            let mut sorted: Vec<f64> = self.ratios.iter().copied().collect();
            let at = ((sorted.len() - 1) as f64 * QUANTILE) as usize;
            let (_, quantile, _) = sorted.select_nth_unstable_by(at, f64::total_cmp);
            self.factor = quantile.max(1.0);
        }
        self.factor
    }

    /// Takes in one ratio of actual to predicted time.
    pub(super) fn observe(&mut self, ratio: f64) {
        if !ratio.is_finite() {
            return;
        }
        if self.ratios.len() == WINDOW {
            self.ratios.pop_front();
        }
        self.ratios.push_back(ratio);
    }

    /// Forgets the ratios, which belong to a line that no longer holds; the factor stays until there are new ones.
    pub(super) fn restart(&mut self) {
        self.ratios.clear();
    }
}
