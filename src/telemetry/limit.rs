//! How often the same thing is said: once, and then again only after a while, with the number of times it was left out.

use std::time::Duration;

use tokio::time::Instant;

/// Lets one through in each interval and counts the others.
#[derive(Debug, Clone)]
pub struct Limit {
    interval: Duration,
    most: u64,
    /// Since when it counts, and how many it has let through since.
    since: Option<Instant>,
    said: u64,
    left_out: u64,
}

impl Limit {
    /// One in each `interval`.
    pub fn new(interval: Duration) -> Limit {
        Limit::several(1, interval)
    }

    /// So many in each `interval`, of what may differ from one to the next.
    pub fn several(most: u64, interval: Duration) -> Limit {
        Limit { interval, most, since: None, said: 0, left_out: 0 }
    }

    /// Whether it may be said at `now`: with how many were left out since it was said last, or `None` for leaving this one
    /// out too.
    pub fn pass(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= self.interval) {
            (self.since, self.said) = (Some(now), 0);
        }
        if self.said >= self.most {
            self.left_out += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_an_interval_and_each_line_says_how_many_it_stands_for() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut limit = Limit::new(10 * second);
        let said: Vec<u64> = (0..2500).filter_map(|i| limit.pass(start + second / 100 * i)).collect();
        assert_eq!(said, [0, 999, 999], "25 seconds of 100 each");
        assert_eq!(limit.pass(start + 40 * second), Some(499), "those of the last seconds");
        assert_eq!(limit.pass(start + 50 * second), Some(0), "none between");
    }

    #[test]
    fn several_are_said_that_may_differ_and_then_none_until_the_interval_is_over() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut limit = Limit::several(3, 10 * second);
        let said: Vec<_> = (0..5).map(|i| limit.pass(start + second * i)).collect();
        assert_eq!(said, [Some(0), Some(0), Some(0), None, None]);
        assert_eq!((limit.pass(start + 10 * second), limit.pass(start + 11 * second)), (Some(2), Some(0)));
    }

    #[test]
    fn an_earlier_time_than_the_last_is_no_new_interval() {
        let start = Instant::now() + Duration::from_secs(9);
        let mut limit = Limit::new(Duration::from_secs(1));
        assert_eq!((limit.pass(start), limit.pass(start - Duration::from_secs(5))), (Some(0), None));
    }
}
