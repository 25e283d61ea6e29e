//! The published cork rule: the dispatcher of BentoML's marshal (`bentoml/marshal/dispatcher.py`, 2020), as it was.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Decision, Policy, Queue, ReleaseReason, Running, ShedReason, View};
use crate::estimator::Instant;

/// How often its controller looks at the queue, in nanoseconds.
const TICK: u64 = 1_000_000;
/// Batches that a regression goes through.
const KEPT: usize = 50;
/// Batches after a start that are not learned from: one more than its constant says, for it counts them from zero.
const SKIPPED: usize = 3;
/// Least time between two regressions.
const REFRESH: Duration = Duration::from_secs(5);
/// Share of the average wait that a hold may cost.
const DECAY: f64 = 0.95;

/// BentoML's adaptive batching as it was published: the dispatcher of the 0.x releases. Later ones keep the rule and begin
/// with other guesses or with batches of one, two and three to learn from. A baseline, with its weaknesses:
///
/// - it looks at the queue each millisecond, and at once only when the queue becomes non-empty;
/// - it refuses the first of several entries while `w₀ + a·n + b ≥ max_latency`, where n counts the whole queue, whatever a
///   batch can hold, and what a busy runner still needs counts for nothing;
/// - with a runner free it holds while `n·(wₙ + tick + a) ≤ 0.95 · wait`, where w₀ and wₙ are the waits of the oldest
///   and of the newest, and `wait` is how long the oldest of recent batches had waited;
/// - a, b and `wait` stand still for five seconds; then they come from the last 50 batches by least squares, of minimal
///   norm where these batches had one size. Until the fourth batch, a is two seconds.
///
/// Three things differ from the original. Its ticks are 1 ms apart from wherever the last sleep began, and here they are
/// whole milliseconds: the delay is as long on average. It takes the newest entries into a batch, and a [`Queue`] gives the
/// oldest: where a queue fits into a batch that is the same, and where not, it spares the rule those that starve. It counts
/// requests where here rows are counted: with requests of one row that is the same.
#[derive(Debug, Clone)]
pub struct Cork2020 {
    /// a, in seconds.
    per_row: f64,
    /// b, in seconds.
    base: f64,
    /// In seconds.
    wait: f64,
    told: bool,
    landed: usize,
    samples: VecDeque<Sample>,
    refreshed: Option<Instant>,
}

/// A batch that is learned from; times in seconds.
#[derive(Debug, Clone, Copy)]
struct Sample {
    rows: f64,
    time: f64,
    waited: f64,
}

impl Default for Cork2020 {
    fn default() -> Cork2020 {
        Cork2020::new()
    }
}

impl Cork2020 {
    /// The rule with its own first guesses: two seconds a row, 0.1 s a batch, 10 ms of waiting.
    #[must_use]
    pub fn new() -> Cork2020 {
        Cork2020 {
            per_row: 2.0,
            base: 0.1,
            wait: 0.01,
            told: false,
            landed: 0,
            samples: VecDeque::with_capacity(KEPT),
            refreshed: None,
        }
    }

    /// The same rule told the true times of a batch and of a row, which it never doubts; the average wait it still learns.
    /// What it is worth apart from its estimates.
    #[must_use]
    pub fn told(base: Duration, per_row: Duration) -> Cork2020 {
        Cork2020 { per_row: per_row.as_secs_f64(), base: base.as_secs_f64(), told: true, ..Cork2020::new() }
    }

    fn refresh(&mut self) {
        let count = self.samples.len() as f64;
        let mean = |f: fn(&Sample) -> f64| self.samples.iter().map(f).sum::<f64>() / count;
        self.wait = mean(|s| s.waited);
        if self.told {
            return;
        }
        let (rows, time) = (mean(|s| s.rows), mean(|s| s.time));
        let spread = mean(|s| s.rows * s.rows) - rows * rows;
        let (per_row, base) = if spread > 1e-9 {
            let per_row = (mean(|s| s.rows * s.time) - rows * time) / spread;
            (per_row, time - per_row * rows)
        } else {
            // The shortest of the vectors (a, b) with a·n + b = t: a multiple of (n, 1).
            let share = time / (rows * rows + 1.0);
            (share * rows, share)
        };
        (self.per_row, self.base) = (per_row.max(1e-6), base.max(0.0));
    }
}

impl Policy for Cork2020 {
    fn decide(&self, now: Instant, view: View<'_>) -> Decision {
        let (Some(first), Some(last)) = (view.queue.first(), view.queue.last()) else { return Decision::Park };
        let next_tick = Decision::WaitUntil(Instant::from_nanos((now.as_nanos() / TICK + 1).saturating_mul(TICK)));
        if !is_awake(now, view.queue) {
            return next_tick;
        }
        let rows = view.queue.rows() as f64;
        let several = view.queue.len() > 1;
        // By deadlines: one cap for all makes it the published rule, and a caller's own shorter one is kept as well.
        let forecast = now + Duration::from_secs_f64(self.per_row * rows + self.base);
        let shed = |reason, forecast| Decision::Shed { entries: 0..1, reason, forecast, retry_at: forecast };
        if several && forecast >= first.deadline {
            return shed(ShedReason::BatchTooLate, forecast);
        }
        if !view.has_free_runner() {
            return match first.deadline <= now && !several {
                true => shed(ShedReason::Expired, now),
                false => next_tick,
            };
        }
        let tick = TICK as f64 / 1e9;
        let cost = rows * (now.since(last.arrival).as_secs_f64() + tick + self.per_row);
        if cost <= self.wait * DECAY {
            return next_tick;
        }
        let (entries, _) = view.queue.prefix(view.max_batch);
        let reason = if entries < view.queue.len() { ReleaseReason::Full } else { ReleaseReason::Ripe };
        Decision::Release { entries, reason }
    }

    fn landed(&mut self, now: Instant, batch: &Running) {
        self.landed += 1;
        if self.landed <= SKIPPED {
            return;
        }
        if self.samples.len() == KEPT {
            self.samples.pop_front();
        }
        let (rows, time) = (batch.rows as f64, now.since(batch.since).as_secs_f64());
        self.samples.push_back(Sample { rows, time, waited: batch.waited.as_secs_f64() });
        if self.refreshed.is_none_or(|at| now.since(at) >= REFRESH) {
            self.refreshed = Some(now);
            self.refresh();
        }
    }
}

/// Whether its controller looks at the queue now: at a tick, or because the queue was empty until now.
fn is_awake(now: Instant, queue: &Queue) -> bool {
    now.as_nanos().is_multiple_of(TICK) || queue.iter().all(|e| e.arrival >= now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimator::Fit;
    use crate::policy::{Entry, Reach, Spread, Standing};

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    const NOW: Instant = Instant::from_nanos(1_000_000_000);

    /// What the rule does at `now` with entries of one row that came so many µs before [`NOW`] and are due within 50 ms.
    fn decide(rule: &Cork2020, now: Instant, ages_us: &[u64], busy: bool) -> Decision {
        let mut queue = Queue::new();
        for (id, &age) in (0..).zip(ages_us) {
            let arrival = NOW - us(age);
            queue.insert(Entry::new(id, arrival, arrival + us(50_000)));
        }
        let running = Running { ticket: 0, lane: 0, since: NOW, entries: 1, rows: 1, waited: us(0), expected: None };
        let view = View {
            lane: 0,
            queue: &queue,
            running: if busy { &[running] } else { &[] },
            runners: 1,
            max_batch: 8,
            sizes: crate::policy::BatchSizes::ANY,
            fit: &Fit::UNKNOWN,
            patience: 0.0,
            spread: Spread::Never,
            reach: Reach::WHOLE,
            crowd: None,
            standing: Standing::ALONE,
            free_since: Instant::EPOCH,
            rehearses: false,
            draining: false,
            late_by: Duration::ZERO,
        };
        rule.decide(now, view)
    }

    /// Batches of so many rows and µs, the oldest entry of each having waited 30 ms, back one after the other.
    fn land(rule: &mut Cork2020, from: Instant, batches: impl IntoIterator<Item = (usize, u64)>) {
        let mut since = from;
        for (rows, time) in batches {
            let batch = Running { ticket: 0, lane: 0, since, entries: 1, rows, waited: us(30_000), expected: None };
            since = since + us(time);
            rule.landed(since, &batch);
        }
    }

    fn release(entries: usize, reason: ReleaseReason) -> Decision {
        Decision::Release { entries, reason }
    }

    /// Whether the first is refused, and the answer would come so many µs from now.
    fn refuses_first(decision: &Decision, why: ShedReason, end: u64) -> bool {
        matches!(decision, Decision::Shed { entries, reason, forecast, .. }
            if *entries == (0..1) && *reason == why && *forecast == NOW + us(end))
    }

    #[test]
    fn it_looks_at_ticks_and_when_the_queue_becomes_non_empty() {
        let rule = Cork2020::told(us(2_000), us(50));
        let later = NOW + us(300);
        let next = Decision::WaitUntil(NOW + us(1000));
        assert_eq!(decide(&rule, NOW, &[20_000], false), release(1, ReleaseReason::Ripe));
        assert_eq!(decide(&rule, later, &[20_000], false), next, "a free runner between two ticks");
        assert_eq!(decide(&rule, NOW, &[20_000], true), next);
        // A lone newcomer costs 1 × (0 + 1 ms + β), less than 0.95 × 10 ms: it is held.
        assert_eq!(decide(&rule, NOW, &[0], false), next);
        assert_eq!(decide(&Cork2020::new(), NOW - us(300), &[300], false), release(1, ReleaseReason::Ripe));
    }

    #[test]
    fn before_it_knows_better_it_refuses_all_but_the_last() {
        let refusal = decide(&Cork2020::new(), NOW, &[9, 5, 1], false);
        assert!(refuses_first(&refusal, ShedReason::BatchTooLate, 6_100_000), "{refusal:?}");
        assert_eq!(decide(&Cork2020::new(), NOW, &[1], false), release(1, ReleaseReason::Ripe));
    }

    #[test]
    fn lateness_is_predicted_with_the_whole_queue_whatever_a_batch_can_hold() {
        // t(8) = 12 ms, but 20 entries are taken to need 24.
        let rule = Cork2020::told(us(4_000), us(1_000));
        let refusal = decide(&rule, NOW, &[26_000; 20], false);
        assert!(refuses_first(&refusal, ShedReason::BatchTooLate, 24_000), "{refusal:?}");
        assert_eq!(decide(&rule, NOW, &[25_999; 20], false), release(8, ReleaseReason::Full));
        assert_eq!(decide(&rule, NOW, &[49_000], false), release(1, ReleaseReason::Ripe), "one alone is let through");
        let expired = decide(&rule, NOW, &[50_000], true);
        assert!(refuses_first(&expired, ShedReason::Expired, 0), "{expired:?}");
    }

    #[test]
    fn it_learns_from_the_fourth_batch_on_and_then_not_for_five_seconds() {
        let mut rule = Cork2020::new();
        land(&mut rule, NOW, [(1, 3_000), (1, 3_000), (1, 3_000)]);
        assert_eq!((rule.per_row, rule.base, rule.wait), (2.0, 0.1, 0.01));
        // The shortest (a, b) with 3 a + b = 5 ms.
        land(&mut rule, NOW, [(3, 5_000)]);
        assert!((rule.per_row - 0.0015).abs() < 1e-12 && (rule.base - 0.0005).abs() < 1e-12, "{rule:?}");
        assert!((rule.wait - 0.03).abs() < 1e-12, "{rule:?}");
        land(&mut rule, NOW + us(5_000), (0..50).map(|i| (1 + i % 4, 2_000 + 1_000 * (1 + i as u64 % 4))));
        assert!((rule.per_row - 0.0015).abs() < 1e-12, "{rule:?}");
        land(&mut rule, NOW + us(5_010_000), [(2, 4_000)]);
        assert!((rule.per_row - 0.001).abs() < 1e-9 && (rule.base - 0.002).abs() < 1e-9, "{rule:?}");
    }
}
