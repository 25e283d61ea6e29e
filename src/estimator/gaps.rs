//! The time between recent arrivals, and when the next one is due.

use std::collections::VecDeque;
use std::time::Duration;

use super::Instant;

/// Gaps remembered. More: steadier; fewer: quicker to see that a crowd has come or gone.
const WINDOW: usize = 64;
/// Gaps below which nothing is said about the next one.
const ENOUGH: usize = 8;

/// The latest gaps between arrivals.
#[derive(Debug, Clone, Default)]
pub struct Gaps {
    gaps: VecDeque<Gap>,
    last: Option<Instant>,
    span: Duration,
    rows: usize,
}

/// The time before an arrival, and the rows it brought.
#[derive(Debug, Clone, Copy)]
struct Gap {
    time: Duration,
    rows: usize,
}

impl Gaps {
    /// Has seen no arrival.
    pub fn new() -> Gaps {
        Gaps::default()
    }

    /// Takes in that `rows` arrived together at `now`.
    pub fn observe(&mut self, now: Instant, rows: usize) {
        if let Some(last) = self.last {
            if self.gaps.len() == WINDOW
                && let Some(oldest) = self.gaps.pop_front()
            {
                self.span -= oldest.time;
                self.rows -= oldest.rows;
            }
            let gap = Gap { time: now.since(last), rows };
            self.span += gap.time;
            self.rows += gap.rows;
            self.gaps.push_back(gap);
        }
        // A stamp that is heard late must not make the next gap look longer than it was.
        self.last = self.last.max(Some(now));
    }

    /// When something last arrived.
    pub fn last_arrival(&self) -> Option<Instant> {
        self.last
    }

    /// The time from `now` to the next arrival, expected from those recent gaps that outlasted the one that is running.
    /// `None` where nothing speaks for an arrival: too few were seen, or the present silence is longer than any of them.
    pub fn expected(&self, now: Instant) -> Option<Duration> {
        let elapsed = now.since(self.last?);
        if self.gaps.len() < ENOUGH {
            return None;
        }
        let longer = self.gaps.iter().filter(|gap| gap.time >= elapsed);
        let (count, sum) = longer.fold((0u32, Duration::ZERO), |(n, sum), gap| (n + 1, sum + (gap.time - elapsed)));
        (count > 0).then(|| sum / count)
    }

    /// Rows a second over the remembered gaps and the running one; `None` while too few were seen.
    pub fn rows_per_second(&self, now: Instant) -> Option<f64> {
        let elapsed = now.since(self.last?);
        let span = (self.span + elapsed).as_secs_f64();
        (self.gaps.len() >= ENOUGH && span > 0.0).then(|| self.rows as f64 / span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Instant {
        Instant::EPOCH + Duration::from_micros(us)
    }

    #[test]
    fn regular_arrivals_are_expected_when_they_are_due_and_not_beyond() {
        let mut gaps = Gaps::new();
        for i in 0..100 {
            gaps.observe(us(i * 1000), 2);
        }
        assert_eq!(gaps.expected(us(99_000)), Some(Duration::from_micros(1000)));
        assert_eq!(gaps.expected(us(99_400)), Some(Duration::from_micros(600)));
        assert_eq!(gaps.expected(us(100_001)), None, "overdue: nothing speaks for it");
        assert_eq!(gaps.rows_per_second(us(99_000)), Some(2000.0));
        assert_eq!(gaps.rows_per_second(us(99_000 + 64_000)), Some(1000.0), "silence counts as well");
        for i in 1..=64 {
            gaps.observe(us(99_000 + i * 4000), 2);
        }
        assert_eq!(gaps.rows_per_second(us(99_000 + 64 * 4000)), Some(500.0), "what left the window is forgotten");
    }

    #[test]
    fn stamps_that_are_heard_out_of_order_do_not_stretch_the_time() {
        let mut gaps = Gaps::new();
        for i in 0..100 {
            gaps.observe(us((i ^ 1) * 1000), 1);
        }
        assert_eq!(gaps.rows_per_second(us(99_000)), Some(1000.0));
    }

    #[test]
    fn within_a_clump_the_next_is_near_and_between_clumps_it_is_far() {
        let mut gaps = Gaps::new();
        for clump in 0..10 {
            for i in 0..10 {
                gaps.observe(us(clump * 50_000 + i * 10), 1);
            }
        }
        let last = 9 * 50_000 + 90;
        let near = gaps.expected(us(last)).expect("clumps seen");
        let far = gaps.expected(us(last + 100)).expect("pauses seen");
        assert!(near < Duration::from_millis(8) && far > Duration::from_millis(40), "{near:?} {far:?}");
    }

    #[test]
    fn a_few_arrivals_say_nothing() {
        let mut gaps = Gaps::new();
        assert_eq!(gaps.expected(us(5)), None);
        for i in 0..8 {
            gaps.observe(us(i), 1);
        }
        assert_eq!((gaps.expected(us(8)), gaps.rows_per_second(us(8))), (None, None));
    }
}
