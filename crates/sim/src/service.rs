//! How long a simulated batch takes.

use std::time::Duration;

use rand::{Rng, RngExt};
use rand_distr::{Distribution, StandardNormal};

use uncork_core::estimator::Instant;
use uncork_core::policy::BatchSizes;

/// A runner's speed: base + rows · per_row, and what may disturb it.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// α: the time of a batch however small it is.
    pub base: Duration,
    /// β: the time that each row adds.
    pub per_row: Duration,
    /// σ of log-normal noise with mean 1; 0 for none.
    pub jitter: f64,
    /// Share of batches that take `straggle_factor` times as long.
    pub straggle_share: f64,
    /// How much longer a straggler takes.
    pub straggle_factor: f64,
    /// From each of these instants on, batches take so many times base + rows · per_row.
    pub changes: Vec<(Instant, f64)>,
    /// How much longer the very first batch takes.
    pub first_factor: f64,
    /// Batches are padded to the next of these sizes.
    pub sizes: BatchSizes,
}

impl Service {
    /// Batches of n rows take exactly base + n · per_row.
    #[must_use]
    pub fn affine(base: Duration, per_row: Duration) -> Service {
        Service {
            base,
            per_row,
            jitter: 0.0,
            straggle_share: 0.0,
            straggle_factor: 5.0,
            changes: Vec::new(),
            first_factor: 1.0,
            sizes: BatchSizes::default(),
        }
    }

    /// The undisturbed time of a batch.
    #[must_use]
    pub fn time(&self, rows: usize) -> Duration {
        let rows = u32::try_from(self.sizes.padded(rows)).unwrap_or(u32::MAX);
        self.base + self.per_row.saturating_mul(rows)
    }

    /// Whether every batch takes exactly its undisturbed time.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.jitter == 0.0 && self.straggle_share == 0.0 && self.changes.is_empty() && self.first_factor == 1.0
    }

    /// The time of the batch of `rows` that starts at `now` as the `number`-th, counted from 0.
    pub fn draw(&self, now: Instant, number: u64, rows: usize, rng: &mut impl Rng) -> Duration {
        let time = self.time(rows);
        if self.is_exact() {
            return time;
        }
        let mut factor = self.changes.iter().rev().find(|(at, _)| *at <= now).map_or(1.0, |(_, factor)| *factor);
        if number == 0 {
            factor *= self.first_factor;
        }
        if self.jitter > 0.0 {
            let normal: f64 = StandardNormal.sample(rng);
            factor *= (self.jitter * normal - self.jitter * self.jitter / 2.0).exp();
        }
        if self.straggle_share > 0.0 && rng.random_bool(self.straggle_share.clamp(0.0, 1.0)) {
            factor *= self.straggle_factor;
        }
        time.mul_f64(factor)
    }
}
