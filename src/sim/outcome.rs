//! What became of a simulated load.

use std::time::Duration;

use crate::estimator::Instant;
use crate::policy::{Entry, Priority};

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
    /// From the first arrival to the last event.
    pub span: Duration,
    /// What became of them over time.
    pub timeline: Timeline,
    total_latency: f64,
    longest: Duration,
    /// By priority.
    levels: [Slot; Priority::LOWEST.level() as usize],
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
            timeline: Timeline::default(),
            total_latency: 0.0,
            longest: Duration::ZERO,
            levels: [Slot::default(); Priority::LOWEST.level() as usize],
            latencies: vec![0; BUCKETS],
        }
    }

    pub(super) fn arrived(&mut self, at: Instant, priority: Priority) {
        self.offered += 1;
        self.levels[priority.level() as usize - 1].offered += 1;
        self.timeline.slot(at).offered += 1;
    }

    /// A request is answered at `end`.
    pub(super) fn answered(&mut self, entry: &Entry, end: Instant) {
        let arrival = entry.arrival;
        if end <= entry.deadline {
            self.on_time += 1;
            self.levels[entry.priority.level() as usize - 1].on_time += 1;
            self.timeline.slot(arrival).on_time += 1;
        } else {
            self.late += 1;
        }
        let latency = end.since(arrival);
        self.longest = self.longest.max(latency);
        let seconds = latency.as_secs_f64();
        self.total_latency += seconds;
        self.latencies[((seconds as f32).to_bits() >> DROPPED_BITS) as usize] += 1;
    }

    /// How many of this priority arrived, and how many of those were answered on time.
    pub fn of_priority(&self, priority: Priority) -> Slot {
        self.levels[priority.level() as usize - 1]
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
        let time = bucket.map_or(Duration::ZERO, |b| Duration::try_from_secs_f32(upper(b)).unwrap_or(Duration::MAX));
        time.min(self.longest)
    }

    /// Share of the answers that took no longer than `latency`, to 0.4 % of it; 0 without any.
    pub fn share_within(&self, latency: Duration) -> f64 {
        let bucket = (latency.as_secs_f32().to_bits() >> DROPPED_BITS) as usize;
        let within: u64 = self.latencies.iter().take(bucket + 1).sum();
        within as f64 / self.answers().max(1) as f64
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

/// Requests that arrived, and those of them that were answered on time, in slots of equal length from the first arrival on.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    begin: Option<Instant>,
    /// A slot takes 2 to the power of this nanoseconds.
    width_bits: u32,
    slots: Vec<Slot>,
}

/// Requests of one slot of a [`Timeline`], or of one priority.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slot {
    /// Requests that arrived.
    pub offered: u64,
    /// Those of them that were answered on time, whenever that was.
    pub on_time: u64,
}

impl Timeline {
    /// Where more slots than this were needed, each becomes twice as long.
    const MOST_SLOTS: usize = 1024;
    /// The first slots take about a microsecond.
    const LEAST_BITS: u32 = 10;

    /// The slots, in the order of their time.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// How long each slot is.
    pub fn width(&self) -> Duration {
        Duration::from_nanos(1 << self.width_bits.max(Timeline::LEAST_BITS))
    }

    fn slot(&mut self, at: Instant) -> &mut Slot {
        self.width_bits = self.width_bits.max(Timeline::LEAST_BITS);
        let begin = *self.begin.get_or_insert(at);
        let offset = at.as_nanos().saturating_sub(begin.as_nanos());
        while (offset >> self.width_bits) as usize >= Timeline::MOST_SLOTS {
            self.width_bits += 1;
            let merged = self.slots.chunks(2).map(|pair| Slot {
                offered: pair.iter().map(|slot| slot.offered).sum(),
                on_time: pair.iter().map(|slot| slot.on_time).sum(),
            });
            self.slots = merged.collect();
        }
        let at = (offset >> self.width_bits) as usize;
        if self.slots.len() <= at {
            self.slots.resize(at + 1, Slot::default());
        }
        &mut self.slots[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A request every millisecond from 100 s on; all come back after 1, 2, 3 … ms, and are due after 500 ms.
    fn thousand() -> Outcome {
        let mut outcome = Outcome::new();
        for i in 0..1000 {
            let at = Instant::EPOCH + ms(100_000 + i);
            outcome.arrived(at, Priority::DEFAULT);
            let entry = Entry { id: i, arrival: at, deadline: at + ms(500), rows: 1, priority: Priority::DEFAULT };
            outcome.answered(&entry, at + ms(i + 1));
        }
        outcome
    }

    #[test]
    fn latencies_are_told_to_half_a_per_cent() {
        let outcome = thousand();
        assert_eq!((outcome.on_time, outcome.late, outcome.answers()), (500, 500, 1000));
        assert!((outcome.mean_latency().as_secs_f64() - 0.5005).abs() < 1e-9);
        for quantile in [0.01, 0.5, 0.99] {
            let told = outcome.latency(quantile).as_secs_f64();
            assert!((told / quantile - 1.0).abs() < 0.005, "{quantile}: {told}");
            let share = outcome.share_within(Duration::from_secs_f64(quantile));
            assert!((share - quantile).abs() < 0.005, "{quantile}: {share}");
        }
        assert_eq!(outcome.latency(1.0), ms(1000), "no more than was seen");
        assert_eq!((Outcome::new().latency(0.5), Outcome::new().share_within(ms(9))), (Duration::ZERO, 0.0));
    }

    #[test]
    fn a_timeline_of_any_length_keeps_every_request_at_its_time() {
        let outcome = thousand();
        let slots = outcome.timeline.slots();
        assert!((512..=1024).contains(&slots.len()), "{}", slots.len());
        let sum = |slots: &[Slot]| slots.iter().fold((0, 0), |(n, m), slot| (n + slot.offered, m + slot.on_time));
        assert_eq!(sum(slots), (1000, 500));
        let half = (500.0 / 1000.0 / outcome.timeline.width().as_secs_f64()) as usize;
        let (offered, on_time) = sum(&slots[..half]);
        assert!((490..=500).contains(&offered) && on_time == offered, "{offered} {on_time}");
        assert_eq!(sum(&slots[half + 1..]).1, 0, "what came in the second half is late");
    }
}
