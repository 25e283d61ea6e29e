//! How long a simulated batch takes.

use std::time::Duration;

use rand::{Rng, RngExt};
use rand_distr::{Distribution, StandardNormal};

use uncork_core::estimator::Instant;
use uncork_core::policy::BatchSizes;

/// How long a server times batches, for how long those of one size, and how many of each.
const WARM_UP_TIME: Duration = Duration::from_millis(500);
const WARM_UP_CAPS: u32 = 4;
const WARM_UP_SLOW_TIME: Duration = Duration::from_secs(20);
const WARM_UP_SIZE: Duration = Duration::from_millis(60);
const WARM_UP_ROUNDS: usize = 3;

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
    /// Where the time is no line: times at some sizes, both rising; straight between them, and from the last on as between the last
    /// two. `base` and `per_row` say nothing then.
    pub curve: Vec<(usize, Duration)>,
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
            curve: Vec::new(),
        }
    }

    /// The undisturbed time of a batch.
    #[must_use]
    pub fn time(&self, rows: usize) -> Duration {
        let rows = u32::try_from(self.sizes.padded(rows)).unwrap_or(u32::MAX);
        if let [first, .., last] = &self.curve[..] {
            let next =
                self.curve.iter().position(|(size, _)| *size as u64 >= u64::from(rows)).unwrap_or(self.curve.len() - 1);
            let (low, high) = if next == 0 { (first, first) } else { (&self.curve[next - 1], &self.curve[next]) };
            let span = (high.0 - low.0).max(1) as f64;
            let slope = (high.1.as_secs_f64() - low.1.as_secs_f64()) / span;
            debug_assert!(last.0 > first.0, "sizes rise");
            return Duration::from_secs_f64((low.1.as_secs_f64() + slope * (f64::from(rows) - low.0 as f64)).max(0.0));
        }
        self.base + self.per_row.saturating_mul(rows)
    }

    /// Whether every batch takes exactly its undisturbed time.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.jitter == 0.0 && self.straggle_share == 0.0 && self.changes.is_empty() && self.first_factor == 1.0
    }

    /// The batches that a server times before its first request, of up to so many rows: three of each power of two and of the
    /// largest, or of each allowed size; one where that takes long, and not for longer than half a second or four of these latency caps.
    pub fn warm_up(&self, max_batch: usize, cap: Duration, rng: &mut impl Rng) -> Vec<(usize, Duration)> {
        let budget = cap.saturating_mul(WARM_UP_CAPS).min(WARM_UP_SLOW_TIME).max(WARM_UP_TIME);
        let powers = (0..usize::BITS).map(|bit| 1 << bit).take_while(|&rows| rows < max_batch).chain([max_batch]);
        let sizes: Vec<usize> = if self.sizes.is_any() { powers.collect() } else { self.sizes.iter().collect() };
        let (mut timed, mut spent) = (Vec::<(usize, Duration)>::new(), Duration::ZERO);
        for &rows in sizes.iter().filter(|&&rows| rows <= max_batch.max(sizes[0])) {
            if let Some(&(before, time)) = timed.last() {
                let few = timed.iter().rev().find(|(few, _)| *few < before);
                let &(few, short) = few.unwrap_or(&(0, Duration::ZERO));
                let more = time.saturating_sub(short).mul_f64((rows - before) as f64 / (before - few) as f64);
                let most = if few == 0 { budget.max(2 * WARM_UP_TIME) } else { budget };
                if spent + time + more > most || (few > 0 && time > cap) {
                    break;
                }
            }
            let begun = spent;
            for round in 0..=WARM_UP_ROUNDS {
                let time = self.draw(Instant::EPOCH, 1, rows, rng);
                spent += time;
                // In the first run of a size, buffers are made.
                if round == 0 {
                    continue;
                }
                timed.push((rows, time));
                if spent - begun > WARM_UP_SIZE {
                    break;
                }
            }
        }
        timed
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
