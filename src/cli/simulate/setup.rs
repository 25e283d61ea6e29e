//! What is simulated, whatever arrives and whoever decides: the runners' speed and the two caps.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::values;
use crate::estimator::Instant;
use crate::policy::{BatchSizes, Policy};
use crate::sim::{Model, Scenario, Service};

const HOUR_MS: f64 = 3_600_000.0;

/// The flags about the server.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    /// Time that a batch takes however small it is
    #[arg(long, value_name = "A", value_parser = values::millis(0.0..=HOUR_MS), allow_hyphen_values = true)]
    base_ms: Duration,

    /// Time that each of its rows adds
    #[arg(long, value_name = "B", value_parser = values::millis(0.0..=60_000.0), allow_hyphen_values = true)]
    per_row_ms: Duration,

    /// σ of log-normal noise on batch times
    #[arg(long, value_name = "SIGMA", default_value = "0", allow_hyphen_values = true)]
    #[arg(value_parser = values::number(0.0..=1.0))]
    jitter: f64,

    /// A share of the batches takes so many times as long, as in 0.01:5
    #[arg(long, value_name = "SHARE:FACTOR", allow_hyphen_values = true)]
    #[arg(value_parser = values::with_factor(values::number(0.0..=1.0)))]
    stragglers: Option<(f64, f64)>,

    /// From then on batches take so many times as long, as in 30s:2; may be given several times
    #[arg(long, value_name = "AT:FACTOR", allow_hyphen_values = true)]
    #[arg(value_parser = values::with_factor(values::time(0.0..=1e10)))]
    drift: Vec<(Duration, f64)>,

    /// The first batch takes so many times as long
    #[arg(long, value_name = "FACTOR", default_value = "1", allow_hyphen_values = true)]
    #[arg(value_parser = values::number(values::FACTOR))]
    first_batch: f64,

    /// Batches are padded to the next of these sizes, as in 1,2,4,8
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', allow_hyphen_values = true)]
    #[arg(value_parser = values::count(1..=65_536))]
    allowed_batch_sizes: Vec<usize>,

    /// Cap on the time from arrival to answer
    #[arg(long, value_name = "D", value_parser = values::millis(0.001..=HOUR_MS), allow_hyphen_values = true)]
    max_latency_ms: Duration,

    /// Cap on the rows of one batch
    #[arg(long, value_name = "N", value_parser = values::count(1..=65_536), allow_hyphen_values = true)]
    max_batch_size: usize,

    /// Batches that may run at once
    #[arg(long, value_name = "M", default_value = "1", allow_hyphen_values = true)]
    #[arg(value_parser = values::count(1..=1024))]
    runners: usize,

    /// Seeds arrivals and noise: the same seed gives the same output
    #[arg(long, value_name = "S", default_value = "1", value_parser = values::seed, allow_hyphen_values = true)]
    seed: u64,
}

/// A server without its policy.
#[derive(Clone)]
pub(super) struct Setup {
    pub(super) service: Service,
    pub(super) max_latency: Duration,
    pub(super) max_batch: usize,
    pub(super) runners: usize,
    pub(super) seed: u64,
}

impl Setup {
    /// What the flags ask for.
    ///
    /// # Errors
    /// What is wrong with them taken together.
    pub(super) fn new(flags: Flags) -> Result<Setup, String> {
        if (flags.base_ms + flags.per_row_ms).is_zero() {
            return Err("--base-ms 0 --per-row-ms 0: a batch must take some time".into());
        }
        let given = flags.allowed_batch_sizes;
        let Some(sizes) = BatchSizes::rising(given.clone()) else {
            return Err(format!("--allowed-batch-sizes {given:?}: must rise"));
        };
        if let Some(largest) = sizes.largest().filter(|largest| *largest < flags.max_batch_size) {
            let cap = flags.max_batch_size;
            return Err(format!(
                "--allowed-batch-sizes: the largest, {largest}, must not be below --max-batch-size {cap}"
            ));
        }
        let mut changes = flags.drift;
        changes.sort_by_key(|(at, _)| *at);
        let (straggle_share, straggle_factor) = flags.stragglers.unwrap_or((0.0, 1.0));
        let service = Service {
            jitter: flags.jitter,
            straggle_share,
            straggle_factor,
            changes: changes.into_iter().map(|(at, factor)| (Instant::EPOCH + at, factor)).collect(),
            first_factor: flags.first_batch,
            sizes,
            ..Service::affine(flags.base_ms, flags.per_row_ms)
        };
        let (max_latency, max_batch) = (flags.max_latency_ms, flags.max_batch_size);
        Ok(Setup { service, max_latency, max_batch, runners: flags.runners, seed: flags.seed })
    }

    /// With this policy, ready to run.
    pub(super) fn scenario(&self, policy: Box<dyn Policy>) -> Scenario {
        let Setup { service, max_latency, max_batch, runners, seed } = self.clone();
        // The noise must not be drawn from the numbers that made the arrivals.
        Scenario {
            runners,
            models: vec![Model { service, max_latency, max_batch, policy, weight: NonZeroUsize::MIN }],
            seed: seed.rotate_left(32) ^ 1,
            timer: Duration::ZERO,
        }
    }

    /// With half as much latency again.
    pub(super) fn with_more_latency(&self) -> Setup {
        Setup { max_latency: self.max_latency * 3 / 2, ..self.clone() }
    }

    /// With batches half as large again.
    pub(super) fn with_larger_batches(&self) -> Setup {
        let mut larger = Setup { max_batch: (self.max_batch * 3).div_ceil(2), ..self.clone() };
        if larger.service.sizes.largest().is_some_and(|size| size < larger.max_batch) {
            let sizes = larger.service.sizes.iter().chain([larger.max_batch]).collect();
            larger.service.sizes = BatchSizes::rising(sizes).unwrap_or_default(); // they rise: the new one is the largest
        }
        larger
    }

    /// How much longer than base + rows · per_row batches take on average, changes in mid-run aside.
    pub(super) fn mean_factor(&self) -> f64 {
        1.0 + self.service.straggle_share * (self.service.straggle_factor - 1.0)
    }

    /// The most rows a second that can be answered in time: by the largest batch within both caps, on every runner.
    pub(super) fn capacity(&self) -> f64 {
        let in_time = |rows: &usize| self.service.time(*rows).mul_f64(self.mean_factor()) <= self.max_latency;
        let speed = |rows: usize| rows as f64 / self.service.time(rows).as_secs_f64() / self.mean_factor();
        let rows = (1..=self.max_batch).rev().find(in_time);
        rows.map_or(0.0, |rows| speed(rows) * self.runners as f64)
    }
}
