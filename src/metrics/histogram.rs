//! Histograms that count at once, each value in its bucket.
//!
//! The exporter's own keep every value until somebody drains them: with ten values for each of 15,000 requests a second that is
//! close to a microsecond a request, and a drain that holds its thread for some 20 ms, which is half of many a latency cap.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Histogram, HistogramFn};

/// Counts of values up to each edge, and their sum.
pub(super) struct Buckets {
    edges: Arc<[f64]>,
    /// One more than edges: the last is for what is beyond.
    counts: Box<[AtomicU64]>,
    /// The bits of a float.
    sum: AtomicU64,
}

impl Buckets {
    /// No values yet.
    pub(super) fn new(edges: Arc<[f64]>) -> Arc<Buckets> {
        let counts = (0..=edges.len()).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Buckets { edges, counts, sum: AtomicU64::new(0f64.to_bits()) })
    }

    /// Where to record.
    pub(super) fn handle(self: &Arc<Self>) -> Histogram {
        Histogram::from_arc(Arc::clone(self))
    }

    /// Appends the series of one histogram in Prometheus' text format: `labels` as they stand between the braces.
    pub(super) fn write(&self, text: &mut String, name: &str, labels: &str) {
        let (mut count, infinity) = (0, ["+Inf".to_string()]);
        for (edge, own) in self.edges.iter().map(f64::to_string).chain(infinity).zip(&self.counts) {
            count += own.load(Ordering::Relaxed);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{edge}\"}} {count}");
        }
        let sum = f64::from_bits(self.sum.load(Ordering::Relaxed));
        let _ = writeln!(text, "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {count}");
    }
}

impl HistogramFn for Buckets {
    fn record(&self, value: f64) {
        let bucket = self.edges.partition_point(|&edge| edge < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let add = |sum: u64| Some((f64::from_bits(sum) + value).to_bits());
        // Always some, so it always succeeds.
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_every_bucket_whose_edge_it_does_not_exceed() {
        let buckets = Buckets::new([0.5, 1.0].into());
        for value in [0.25, 0.5, 0.75, 1.0, 4.0] {
            buckets.handle().record(value);
        }
        let mut text = String::new();
        buckets.write(&mut text, "h", "model=\"m\"");
        let lines = [
            "h_bucket{model=\"m\",le=\"0.5\"} 2",
            "h_bucket{model=\"m\",le=\"1\"} 4",
            "h_bucket{model=\"m\",le=\"+Inf\"} 5",
            "h_sum{model=\"m\"} 6.5",
            "h_count{model=\"m\"} 5",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn values_from_many_threads_are_all_counted() {
        let buckets = Buckets::new([1.0].into());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let handle = buckets.handle();
                scope.spawn(move || (0..10_000).for_each(|_| handle.record(0.5)));
            }
        });
        let mut text = String::new();
        buckets.write(&mut text, "h", "model=\"m\"");
        assert!(text.contains("} 40000\n") && text.contains("h_sum{model=\"m\"} 20000\n"), "{text}");
    }
}
