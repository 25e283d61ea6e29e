//! What became of a simulated load.

use std::time::Duration;

/// Latencies fall into buckets of 0.4 % width, by the upper 17 bits of their seconds as `f32`.
const DROPPED_BITS: u32 = 15;
const BUCKETS: usize = 1 << (32 - 1 - DROPPED_BITS);

/// Counts and times of a run. Requests are counted, not rows, unless said otherwise.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Requests that arrived.
    pub offered: u64,
    /// Answered within the latency cap, or within their own shorter one.
    pub on_time: u64,
    /// Accepted, and answered later than that.
    pub late: u64,
    /// Refused.
    pub shed: u64,
    /// Batches run.
    pub batches: u64,
    /// Rows in them.
    pub rows: u64,
    /// Runner time spent.
    pub busy: Duration,
    /// From the start to the last event.
    pub span: Duration,
    total_latency: f64,
    latencies: Vec<u64>,
}

impl Outcome {
    pub(super) fn new() -> Outcome {
        Outcome {
            offered: 0,
            on_time: 0,
            late: 0,
            shed: 0,
            batches: 0,
            rows: 0,
            busy: Duration::ZERO,
            span: Duration::ZERO,
            total_latency: 0.0,
            latencies: vec![0; BUCKETS],
        }
    }

    pub(super) fn over(self, span: Duration) -> Outcome {
        Outcome { span, ..self }
    }

    pub(super) fn answered(&mut self, latency: Duration, on_time: bool) {
        if on_time {
            self.on_time += 1;
        } else {
            self.late += 1;
        }
        let seconds = latency.as_secs_f64();
        self.total_latency += seconds;
        self.latencies[((seconds as f32).to_bits() >> DROPPED_BITS) as usize] += 1;
    }

    /// Requests that got an answer, on time or late.
    pub fn answers(&self) -> u64 {
        self.on_time + self.late
    }

    /// Mean latency of the answers; zero without any.
    pub fn mean_latency(&self) -> Duration {
        Duration::from_secs_f64(self.total_latency / (self.answers().max(1) as f64))
    }

    /// The latency that a share `quantile` of the answers does not exceed, to 0.4 %.
    pub fn latency(&self, quantile: f64) -> Duration {
        let wanted = ((self.answers() as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        let bucket = self.latencies.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        let upper = |bucket: usize| f32::from_bits((bucket as u32 + 1) << DROPPED_BITS);
        bucket.map_or(Duration::ZERO, |b| Duration::try_from_secs_f32(upper(b)).unwrap_or(Duration::MAX))
    }

    /// Rows a batch, on average.
    pub fn mean_batch_rows(&self) -> f64 {
        self.rows as f64 / self.batches.max(1) as f64
    }

    /// Share of the time that `runners` were busy.
    pub fn busy_fraction(&self, runners: usize) -> f64 {
        self.busy.as_secs_f64() / (self.span.as_secs_f64() * runners as f64).max(f64::MIN_POSITIVE)
    }
}
