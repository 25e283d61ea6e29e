//! What a histogram of microseconds says: one way for all figures, so that what are the same requests have the same figures.

use hdrhistogram::{Counter, Histogram};

/// The time within which a share of what was recorded was over; 0 where nothing was.
pub fn at_quantile<C: Counter>(histogram: &Histogram<C>, quantile: f64) -> u64 {
    match histogram.len() {
        0 => 0,
        all => value_of_rank(histogram, rank(all, quantile)),
    }
}

/// The mean of what was recorded; 0 where nothing was.
pub fn mean<C: Counter>(histogram: &Histogram<C>) -> f64 {
    let of = |value: u64, count: u64| histogram.lowest_equivalent(value) as f64 * count as f64;
    let recorded = histogram.iter_recorded();
    let sum: f64 = recorded.map(|step| of(step.value_iterated_to(), step.count_since_last_iteration())).sum();
    sum / histogram.len().max(1) as f64
}

/// Which of `all`, counted from 1, is the last of a share of them.
pub(super) fn rank(all: u64, quantile: f64) -> u64 {
    // Without a little less, 0.99 of 100 would be the 100th for the sake of its last bit.
    ((quantile * all as f64 - 1e-9).ceil() as u64).max(1)
}

/// The `rank`-th smallest value, counted from 1: the least of those that it cannot be told from, so that it is within a
/// limit exactly where `count_between` counts it.
pub(super) fn value_of_rank<C: Counter>(histogram: &Histogram<C>, rank: u64) -> u64 {
    histogram.lowest_equivalent(histogram.value_at_quantile((rank as f64 - 0.5) / histogram.len() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest time was told as the least or as the greatest of those that it cannot be told from, here so and there so.
    #[test]
    fn one_time_alone_is_every_figure() {
        for time in [1, 1999, 5_000, 123_456, 9_999_999, 3_599_999_999] {
            let mut histogram = Histogram::<u64>::new_with_bounds(1, 3_600_000_000, 3).expect("bounds");
            assert_eq!((at_quantile(&histogram, 0.5), mean(&histogram)), (0, 0.0));
            histogram.record_n(time, 7).expect("it is within the bounds");
            let whole = histogram.lowest_equivalent(time);
            for quantile in [0.0, 0.5, 0.999, 1.0] {
                assert_eq!(at_quantile(&histogram, quantile), whole, "{quantile} of {time}");
            }
            assert_eq!(mean(&histogram), whole as f64);
        }
    }
}
