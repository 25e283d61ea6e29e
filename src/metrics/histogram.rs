//! Histograms that count at once, each value in its bucket.
//!
//! The exporter's own keep every value until somebody drains them: with ten values for each of 15,000 requests a second that is
//! close to a microsecond a request, and a drain that holds its thread for some 20 ms, which is half of many a latency cap.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::{Histogram, HistogramFn};

use super::Format;
use super::native::{self, Exponential};

/// Counts of values up to each edge, and their sum.
#[derive(Debug)]
pub(super) struct Buckets {
    edges: Arc<[f64]>,
    /// One more than edges: the last is for what is beyond.
    counts: Box<[AtomicU64]>,
    /// The same values, for whoever asks for native histograms.
    exponential: Exponential,
    /// The bits of a float.
    sum: AtomicU64,
    /// Of each bucket the latest value that can be looked up in a trace. Only what is traced touches them.
    exemplars: Mutex<Box<[Option<Exemplar>]>>,
}

/// A value, and where more is known of it.
#[derive(Debug, Clone, Copy)]
struct Exemplar {
    value: f64,
    trace: u128,
    /// Unix time.
    at: Duration,
}

impl Buckets {
    /// No values yet.
    pub(super) fn new(edges: Arc<[f64]>) -> Arc<Buckets> {
        let counts = (0..=edges.len()).map(|_| AtomicU64::new(0)).collect();
        let exemplars = Mutex::new(vec![None; edges.len() + 1].into());
        let (exponential, sum) = (Exponential::new(), AtomicU64::new(0f64.to_bits()));
        Arc::new(Buckets { edges, counts, exponential, sum, exemplars })
    }

    /// Remembers where more is known of a value that is recorded as well: in the trace with this id.
    pub(super) fn exemplify(&self, value: f64, trace: u128, at: Duration) {
        let bucket = self.bucket(value);
        self.exemplars()[bucket] = Some(Exemplar { value, trace, at });
    }

    fn exemplars(&self) -> MutexGuard<'_, Box<[Option<Exemplar>]>> {
        self.exemplars.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bucket(&self, value: f64) -> usize {
        self.edges.partition_point(|&edge| edge < value)
    }

    /// Where to record.
    pub(super) fn handle(self: &Arc<Self>) -> Histogram {
        Histogram::from_arc(Arc::clone(self))
    }

    /// Appends the series of one histogram: `labels` as they stand between the braces.
    pub(super) fn write(&self, text: &mut String, name: &str, labels: &str, format: Format) {
        let (mut count, infinity) = (0, ["+Inf".to_string()]);
        let edge = |edge: &f64| if format == Format::OpenMetrics { format!("{edge:?}") } else { edge.to_string() };
        let exemplars = self.exemplars().clone();
        for ((edge, own), exemplar) in self.edges.iter().map(edge).chain(infinity).zip(&self.counts).zip(&exemplars) {
            count += own.load(Ordering::Relaxed);
            // Writing to a string cannot fail.
            let _ = write!(text, "{name}_bucket{{{labels},le=\"{edge}\"}} {count}");
            if let Some(Exemplar { value, trace, at }) = exemplar.filter(|_| format == Format::OpenMetrics) {
                let _ = write!(text, " # {{trace_id=\"{trace:032x}\"}} {value} {:.3}", at.as_secs_f64());
            }
            text.push('\n');
        }
        let sum = self.sum();
        let _ = writeln!(text, "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {count}");
    }
}

impl Buckets {
    fn sum(&self) -> f64 {
        f64::from_bits(self.sum.load(Ordering::Relaxed))
    }

    /// The same as one native histogram, with these buckets beside its own.
    pub(super) fn native(&self) -> native::Histogram {
        let (mut count, exemplars) = (0, self.exemplars().clone());
        let edges = self.edges.iter().copied().chain([f64::INFINITY]);
        let buckets = edges.zip(&self.counts).zip(&exemplars).map(|((upper_bound, own), exemplar)| {
            count += own.load(Ordering::Relaxed);
            let exemplar = exemplar.map(|Exemplar { value, trace, at }| native::Exemplar::of(value, trace, at));
            native::Bucket { cumulative_count: count, upper_bound, exemplar }
        });
        let bucket = buckets.collect();
        let mut histogram = native::Histogram { sample_sum: self.sum(), bucket, ..native::Histogram::default() };
        self.exponential.write(&mut histogram);
        histogram
    }
}

impl HistogramFn for Buckets {
    fn record(&self, value: f64) {
        self.counts[self.bucket(value)].fetch_add(1, Ordering::Relaxed);
        self.exponential.record(value);
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
        buckets.write(&mut text, "h", "model=\"m\"", Format::Prometheus);
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
    fn a_value_of_a_trace_stands_behind_its_bucket_where_the_format_has_room_for_it() {
        let buckets = Buckets::new([0.5, 1.0].into());
        for (value, trace) in [(0.75, 0xabc), (0.8, 0xdef)] {
            buckets.handle().record(value);
            buckets.exemplify(value, trace, Duration::from_millis(1_700_000_000_250));
        }
        let mut text = String::new();
        buckets.write(&mut text, "h", "model=\"m\"", Format::OpenMetrics);
        let lines = [
            "h_bucket{model=\"m\",le=\"0.5\"} 0",
            "h_bucket{model=\"m\",le=\"1.0\"} 2 # {trace_id=\"00000000000000000000000000000def\"} 0.8 1700000000.250",
            "h_bucket{model=\"m\",le=\"+Inf\"} 2",
            "h_sum{model=\"m\"} 1.55",
            "h_count{model=\"m\"} 2",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
        text.clear();
        buckets.write(&mut text, "h", "model=\"m\"", Format::Prometheus);
        assert!(!text.contains('#'), "{text}");
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
        buckets.write(&mut text, "h", "model=\"m\"", Format::Prometheus);
        assert!(text.contains("} 40000\n") && text.contains("h_sum{model=\"m\"} 20000\n"), "{text}");
    }
}
