//! What became of a simulated load.

use std::collections::BTreeMap;
use std::time::Duration;

use uncork_core::estimator::Instant;
use uncork_core::policy::{Entry, Priority};

/// Latencies fall into buckets of 0.4 % width, by the upper 17 bits of their seconds as `f32`.
const DROPPED_BITS: u32 = 15;
const BUCKETS: usize = 1 << (32 - 1 - DROPPED_BITS);

/// Counts and times of a run. Requests are counted, not rows, unless said otherwise.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Requests that arrived.
    pub offered: u64,
    /// Their rows.
    pub offered_rows: u64,
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
    /// Batches of nobody's rows, which count in nothing else here.
    pub rehearsals: u64,
    /// Runner time spent.
    pub busy: Duration,
    /// From the first arrival to the last event.
    pub span: Duration,
    /// What became of them over time.
    pub timeline: Timeline,
    total_latency: f64,
    longest: Duration,
    max_latency: Duration,
    /// By priority, each first without and then with deadlines of their own.
    classes: [Counts; 2 * Priority::LOWEST.level() as usize],
    /// Of callers who are told apart.
    callers: BTreeMap<u64, Slot>,
    latencies: Vec<u64>,
}

impl Outcome {
    /// Of no request yet; `max_latency` is the cap of those without a deadline of their own.
    pub(super) fn new(max_latency: Duration) -> Outcome {
        Outcome {
            offered: 0,
            offered_rows: 0,
            on_time: 0,
            late: 0,
            shed: 0,
            batches: 0,
            rehearsals: 0,
            rows: 0,
            busy: Duration::ZERO,
            span: Duration::ZERO,
            timeline: Timeline::default(),
            total_latency: 0.0,
            longest: Duration::ZERO,
            max_latency,
            classes: [Counts::default(); 2 * Priority::LOWEST.level() as usize],
            callers: BTreeMap::new(),
            latencies: vec![0; BUCKETS],
        }
    }

    pub(super) fn arrived(&mut self, entry: &Entry) {
        self.offered += 1;
        self.offered_rows += entry.rows as u64;
        self.class(entry).offered += 1;
        self.timeline.slot(entry.arrival).offered += 1;
        if let Some(own) = self.caller(entry) {
            own.offered += 1;
        }
    }

    pub(super) fn refused(&mut self, entry: &Entry) {
        self.shed += 1;
        self.class(entry).shed += 1;
    }

    /// A request is answered at `end`.
    pub(super) fn answered(&mut self, entry: &Entry, end: Instant) {
        let arrival = entry.arrival;
        if end <= entry.deadline {
            self.on_time += 1;
            self.class(entry).on_time += 1;
            self.timeline.slot(arrival).on_time += 1;
            if let Some(own) = self.caller(entry) {
                own.on_time += 1;
            }
        } else {
            self.late += 1;
            self.class(entry).late += 1;
        }
        let latency = end.since(arrival);
        self.longest = self.longest.max(latency);
        let seconds = latency.as_secs_f64();
        self.total_latency += seconds;
        self.class(entry).total_latency += seconds;
        self.latencies[((seconds as f32).to_bits() >> DROPPED_BITS) as usize] += 1;
    }

    /// How many of this priority arrived, and how many of those were answered on time.
    #[must_use]
    pub fn of_priority(&self, priority: Priority) -> Slot {
        let own = self.classes().filter(|class| class.priority == priority);
        own.fold(Slot::default(), |sum, class| Slot {
            offered: sum.offered + class.counts.offered,
            on_time: sum.on_time + class.counts.on_time,
        })
    }

    /// How many of this caller arrived, and how many of those were answered on time; none where callers are not told apart.
    #[must_use]
    pub fn of_caller(&self, id: u64) -> Slot {
        self.callers.get(&id).copied().unwrap_or_default()
    }

    fn caller(&mut self, entry: &Entry) -> Option<&mut Slot> {
        (entry.caller.id != 0).then(|| self.callers.entry(entry.caller.id).or_default())
    }

    /// The requests by priority, the most urgent first, and by whether they had a deadline of their own before the cap;
    /// only classes to which any belong.
    pub fn classes(&self) -> impl Iterator<Item = Class> {
        let levels = (1..=u64::from(Priority::LOWEST.level()))
            .filter_map(Priority::new)
            .flat_map(|priority| [(priority, false), (priority, true)]);
        let all = levels.zip(self.classes).map(|((priority, hurried), counts)| Class { priority, hurried, counts });
        all.filter(|class| class.counts.offered > 0)
    }

    fn class(&mut self, entry: &Entry) -> &mut Counts {
        let hurried = entry.deadline < entry.arrival + self.max_latency;
        &mut self.classes[2 * (entry.priority.level() as usize - 1) + usize::from(hurried)]
    }

    /// Requests that got an answer, on time or late.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.on_time + self.late
    }

    /// Mean latency of the answers; zero without any.
    #[must_use]
    pub fn mean_latency(&self) -> Duration {
        Duration::from_secs_f64(self.total_latency / (self.answers().max(1) as f64))
    }

    /// The latency that a share `quantile` of the answers does not exceed, to 0.4 %.
    #[must_use]
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
    #[must_use]
    pub fn share_within(&self, latency: Duration) -> f64 {
        let bucket = (latency.as_secs_f32().to_bits() >> DROPPED_BITS) as usize;
        let within: u64 = self.latencies.iter().take(bucket + 1).sum();
        within as f64 / self.answers().max(1) as f64
    }

    /// Rows a batch, on average.
    #[must_use]
    pub fn mean_batch_rows(&self) -> f64 {
        self.rows as f64 / self.batches.max(1) as f64
    }

    /// Share of the time that `runners` were busy.
    #[must_use]
    pub fn busy_fraction(&self, runners: usize) -> f64 {
        self.busy.as_secs_f64() / (self.span.as_secs_f64() * runners as f64).max(f64::MIN_POSITIVE)
    }
}

/// The requests that are alike in what they ask for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Class {
    /// Their priority.
    pub priority: Priority,
    /// Whether they had a deadline of their own, before that of the model's cap.
    pub hurried: bool,
    /// What became of them.
    pub counts: Counts,
}

/// What became of the requests of a [`Class`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counts {
    /// Requests that arrived.
    pub offered: u64,
    /// Answered by their deadline.
    pub on_time: u64,
    /// Answered after it.
    pub late: u64,
    /// Refused.
    pub shed: u64,
    total_latency: f64,
}

impl Counts {
    /// Requests that got an answer, on time or late.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.on_time + self.late
    }

    /// Mean latency of the answers; zero without any.
    #[must_use]
    pub fn mean_latency(&self) -> Duration {
        Duration::from_secs_f64(self.total_latency / (self.answers().max(1) as f64))
    }
}

/// Requests of one slot of a [`Timeline`], of one priority, or of one caller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slot {
    /// Requests that arrived.
    pub offered: u64,
    /// Those of them that were answered on time, whenever that was.
    pub on_time: u64,
}

/// Requests that arrived, and those of them that were answered on time, in slots of equal length from the first arrival on.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    begin: Option<Instant>,
    /// A slot takes 2 to the power of this nanoseconds.
    width_bits: u32,
    slots: Vec<Slot>,
}

impl Timeline {
    /// Where more slots than this were needed, each becomes twice as long.
    const MOST_SLOTS: usize = 1024;
    /// The first slots take about a microsecond.
    const LEAST_BITS: u32 = 10;

    /// The slots, in the order of their time.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// How long each slot is.
    #[must_use]
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
        let mut outcome = Outcome::new(ms(500));
        for i in 0..1000 {
            let at = Instant::EPOCH + ms(100_000 + i);
            let entry = Entry::new(i, at, at + ms(500));
            outcome.arrived(&entry);
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
        let none = Outcome::new(ms(500));
        assert_eq!((none.latency(0.5), none.share_within(ms(9))), (Duration::ZERO, 0.0));
    }

    #[test]
    fn each_class_is_counted_for_itself() {
        let mut outcome = Outcome::new(ms(50));
        let mut request = |level, within, latency: Option<u64>| {
            let priority = Priority::new(level).expect("a level");
            let entry = Entry { priority, ..Entry::new(0, Instant::EPOCH, Instant::EPOCH + ms(within)) };
            outcome.arrived(&entry);
            match latency {
                Some(latency) => outcome.answered(&entry, Instant::EPOCH + ms(latency)),
                None => outcome.refused(&entry),
            }
        };
        request(5, 50, Some(50));
        request(5, 50, Some(52));
        request(5, 49, Some(50));
        request(1, 50, None);
        request(10, 1, Some(1));
        let told: Vec<_> = outcome
            .classes()
            .map(|Class { priority, hurried, counts: c }| {
                (priority.level(), hurried, [c.offered, c.on_time, c.late, c.shed], c.mean_latency())
            })
            .collect();
        let expected = [
            (1, false, [1, 0, 0, 1], ms(0)),
            (5, false, [2, 1, 1, 0], ms(51)),
            (5, true, [1, 0, 1, 0], ms(50)),
            (10, true, [1, 1, 0, 0], ms(1)),
        ];
        assert_eq!(told, expected);
        assert_eq!(outcome.of_priority(Priority::DEFAULT), Slot { offered: 3, on_time: 1 });
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
