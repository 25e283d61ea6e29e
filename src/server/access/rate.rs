//! How many requests each holder of a token may send.

use std::collections::HashMap;
use std::time::Duration;

/// A bucket for each holder, which fills at his rate and holds what he may send in a second: one request at least.
#[derive(Debug, Default)]
pub(super) struct Rates(HashMap<u64, Bucket>);

#[derive(Debug, Clone, Copy)]
struct Bucket {
    level: f64,
    at: Duration,
}

impl Rates {
    /// Takes a request of `holder` at `now`, a time since whenever, or says after how long there will be room for one.
    pub(super) fn take(&mut self, holder: u64, rate: f64, now: Duration) -> Result<(), Duration> {
        let most = rate.max(1.0);
        let bucket = self.0.entry(holder).or_insert(Bucket { level: most, at: now });
        let passed = now.saturating_sub(bucket.at).as_secs_f64();
        *bucket = Bucket { level: (bucket.level + rate * passed).min(most), at: now.max(bucket.at) };
        if bucket.level < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - bucket.level) / rate));
        }
        bucket.level -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_may_send_a_second_s_worth_at_once_and_then_his_rate() {
        let mut rates = Rates::default();
        let mut taken = |holder, ms| rates.take(holder, 10.0, Duration::from_millis(ms));
        assert!((0..10).all(|_| taken(1, 5).is_ok()));
        assert_eq!(taken(1, 5), Err(Duration::from_millis(100)));
        assert!(taken(2, 5).is_ok(), "another's bucket is his own");
        assert_eq!((taken(1, 55), taken(1, 106).is_ok()), (Err(Duration::from_millis(50)), true));
        assert!(taken(1, 0).is_err(), "times may come out of order");
        assert!(
            (0..10).all(|_| taken(1, 60_000).is_ok()) && taken(1, 60_000).is_err(),
            "no more than a second's worth"
        );
    }

    #[test]
    fn a_rate_below_one_lets_one_through_now_and_then() {
        let mut rates = Rates::default();
        let mut taken = |s| rates.take(7, 0.1, Duration::from_secs(s));
        assert_eq!(
            (taken(0), taken(4), taken(10), taken(11).is_err()),
            (Ok(()), Err(Duration::from_secs(6)), Ok(()), true)
        );
    }
}
