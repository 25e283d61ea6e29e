//! Every metric's name, help, labels and buckets, in one place.
//!
//! Handles are made once for each model and kept: recording is then a few atomic operations and never a look-up by name.

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use crate::error::Outcome;
use crate::policy::ReleaseReason;

const BATCH_SIZE: &str = "uncork_adaptive_batch_size";
const REQUESTS: &str = "uncork_requests_total";
const RELEASES: &str = "uncork_releases_total";
const REQUEST_DURATION: &str = "uncork_request_duration_seconds";
const QUEUE_WAIT: &str = "uncork_queue_wait_seconds";
const BATCH_DURATION: &str = "uncork_batch_duration_seconds";
const PREDICTED: &str = "uncork_predicted_batch_duration_seconds";
const QUEUE_ROWS: &str = "uncork_queue_rows";
const IN_FLIGHT: &str = "uncork_in_flight_batches";
const BUSY: &str = "uncork_runner_busy_seconds_total";
const MAX_LATENCY: &str = "uncork_max_latency_seconds";

/// Edges of every histogram of seconds; each model's `max_latency_ms`, half and twice of it are added.
const SECONDS: [f64; 13] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// The caps of one model, from which the buckets are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Caps {
    /// `max_latency_ms`, in seconds.
    pub max_latency_seconds: f64,
    /// `max_batch_size`, in rows.
    pub max_batch_rows: usize,
}

/// All metrics of one process, or of one server in a test.
pub struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Metrics for models with these caps. Every model's `max_latency_ms` is an exact edge of the histograms of seconds,
    /// and its `max_batch_size` one of the histogram of batch sizes.
    pub fn new(caps: &[Caps]) -> Result<Metrics, BuildError> {
        let (seconds, rows) = (second_edges(caps), row_edges(caps));
        let mut builder =
            PrometheusBuilder::new().set_buckets_for_metric(Matcher::Full(BATCH_SIZE.to_string()), &rows)?;
        for name in [REQUEST_DURATION, QUEUE_WAIT, BATCH_DURATION, PREDICTED] {
            builder = builder.set_buckets_for_metric(Matcher::Full(name.to_string()), &seconds)?;
        }
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        let metrics = Metrics { recorder, handle };
        metrics.describe();
        Ok(metrics)
    }

    fn describe(&self) {
        let counter =
            |name: &str, help: &str| self.recorder.describe_counter(name.to_string().into(), None, text(help));
        let gauge = |name: &str, help: &str| self.recorder.describe_gauge(name.to_string().into(), None, text(help));
        let histogram = |name: &str, unit, help: &str| {
            self.recorder.describe_histogram(name.to_string().into(), Some(unit), text(help));
        };
        histogram(BATCH_SIZE, Unit::Count, "Rows of each executed batch.");
        counter(REQUESTS, "Requests by how they ended.");
        counter(RELEASES, "Released batches by why they were released then.");
        histogram(REQUEST_DURATION, Unit::Seconds, "From a request's arrival to its answer, refusals left out.");
        histogram(QUEUE_WAIT, Unit::Seconds, "From a request's arrival to the release of its batch.");
        histogram(BATCH_DURATION, Unit::Seconds, "From a batch's release to its outputs.");
        histogram(PREDICTED, Unit::Seconds, "What the estimator expected of each batch at its release.");
        gauge(QUEUE_ROWS, "Rows that wait.");
        gauge(IN_FLIGHT, "Batches that run.");
        gauge(BUSY, "Time that runners have spent on batches, summed over runners.");
        gauge(MAX_LATENCY, "The model's latency cap.");
    }

    /// Handles for one model.
    pub fn model(&self, name: &str, version: &str, caps: Caps) -> ModelMetrics {
        let labels = [("model", name), ("version", version)].map(|(k, v)| Label::new(k.to_string(), v.to_string()));
        let key = |metric: &'static str, extra: Option<(&'static str, &'static str)>| {
            let extra = extra.map(|(k, v)| Label::from_static_parts(k, v));
            Key::from_parts(metric, labels.iter().cloned().chain(extra).collect::<Vec<_>>())
        };
        let histogram = |metric| self.recorder.register_histogram(&key(metric, None), &METADATA);
        let gauge = |metric| self.recorder.register_gauge(&key(metric, None), &METADATA);
        let counter =
            |metric, label, value| self.recorder.register_counter(&key(metric, Some((label, value))), &METADATA);
        let max_latency = gauge(MAX_LATENCY);
        max_latency.set(caps.max_latency_seconds);
        ModelMetrics {
            batch_size: histogram(BATCH_SIZE),
            requests: Outcome::ALL.map(|o| counter(REQUESTS, "outcome", o.label())),
            releases: ReleaseReason::ALL.map(|r| counter(RELEASES, "reason", r.label())),
            request_duration: histogram(REQUEST_DURATION),
            queue_wait: histogram(QUEUE_WAIT),
            batch_duration: histogram(BATCH_DURATION),
            predicted_batch_duration: histogram(PREDICTED),
            queue_rows: gauge(QUEUE_ROWS),
            in_flight_batches: gauge(IN_FLIGHT),
            runner_busy_seconds: gauge(BUSY),
        }
    }

    /// Everything in Prometheus's text format.
    pub fn render(&self) -> String {
        // The facade's counters count whole numbers only, so busy seconds are a gauge that never falls: a counter to
        // Prometheus, and said to be one.
        let (gauge, counter) = (format!("# TYPE {BUSY} gauge"), format!("# TYPE {BUSY} counter"));
        self.handle.render().replacen(&gauge, &counter, 1)
    }

    /// Moves recorded samples into their buckets. To be called every few seconds, or memory grows while nobody scrapes.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }
}

/// Handles to the metrics of one model.
#[derive(Clone, Debug)]
pub struct ModelMetrics {
    /// Rows of each executed batch.
    pub batch_size: Histogram,
    requests: [Counter; Outcome::ALL.len()],
    releases: [Counter; ReleaseReason::ALL.len()],
    /// Seconds from arrival to answer.
    pub request_duration: Histogram,
    /// Seconds from arrival to release.
    pub queue_wait: Histogram,
    /// Seconds from release to outputs.
    pub batch_duration: Histogram,
    /// Seconds that the estimator expected of a batch when it was released.
    pub predicted_batch_duration: Histogram,
    /// Rows that wait.
    pub queue_rows: Gauge,
    /// Batches that run.
    pub in_flight_batches: Gauge,
    /// Seconds spent on batches, summed over runners.
    pub runner_busy_seconds: Gauge,
}

impl ModelMetrics {
    /// Handles that record nothing, for a batcher that nobody watches.
    pub fn none() -> ModelMetrics {
        ModelMetrics {
            batch_size: Histogram::noop(),
            requests: std::array::from_fn(|_| Counter::noop()),
            releases: std::array::from_fn(|_| Counter::noop()),
            request_duration: Histogram::noop(),
            queue_wait: Histogram::noop(),
            batch_duration: Histogram::noop(),
            predicted_batch_duration: Histogram::noop(),
            queue_rows: Gauge::noop(),
            in_flight_batches: Gauge::noop(),
            runner_busy_seconds: Gauge::noop(),
        }
    }

    /// Counts one request that ended so.
    pub fn count_request(&self, outcome: Outcome) {
        self.requests[outcome as usize].increment(1);
    }

    /// Counts one batch released for `reason`.
    pub fn count_release(&self, reason: ReleaseReason) {
        self.releases[reason as usize].increment(1);
    }
}

const METADATA: Metadata<'static> = Metadata::new("uncork", Level::INFO, None);

fn text(help: &str) -> metrics::SharedString {
    help.to_string().into()
}

fn second_edges(caps: &[Caps]) -> Vec<f64> {
    let own = caps.iter().flat_map(|c| [0.5, 1.0, 2.0].map(|share| c.max_latency_seconds * share));
    sorted(SECONDS.into_iter().chain(own).collect())
}

fn row_edges(caps: &[Caps]) -> Vec<f64> {
    let largest = caps.iter().map(|c| c.max_batch_rows).max().unwrap_or(1);
    let powers = (0..usize::BITS).map(|i| 1usize << i).take_while(|&n| n <= largest);
    sorted(powers.chain(caps.iter().map(|c| c.max_batch_rows)).map(|n| n as f64).collect())
}

fn sorted(mut edges: Vec<f64>) -> Vec<f64> {
    edges.sort_by(f64::total_cmp);
    edges.dedup();
    edges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caps(ms: f64, rows: usize) -> Caps {
        Caps { max_latency_seconds: ms / 1000.0, max_batch_rows: rows }
    }

    #[test]
    fn the_caps_are_exact_edges() {
        let metrics = Metrics::new(&[caps(37.0, 100), caps(50.0, 16)]).expect("buckets");
        let model = metrics.model("m", "1", caps(37.0, 100));
        model.request_duration.record(0.037);
        model.queue_wait.record(0.0185);
        model.batch_duration.record(0.074);
        model.predicted_batch_duration.record(0.1);
        model.batch_size.record(100.0);
        let text = metrics.render();
        for line in [
            r#"uncork_request_duration_seconds_bucket{model="m",version="1",le="0.037"} 1"#,
            r#"uncork_queue_wait_seconds_bucket{model="m",version="1",le="0.0185"} 1"#,
            r#"uncork_batch_duration_seconds_bucket{model="m",version="1",le="0.074"} 1"#,
            r#"uncork_predicted_batch_duration_seconds_bucket{model="m",version="1",le="0.1"} 1"#,
            r#"uncork_adaptive_batch_size_bucket{model="m",version="1",le="100"} 1"#,
            r#"uncork_adaptive_batch_size_bucket{model="m",version="1",le="64"} 0"#,
            r#"uncork_max_latency_seconds{model="m",version="1"} 0.037"#,
            r#"uncork_requests_total{model="m",version="1",outcome="shed"} 0"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn busy_seconds_are_a_counter_to_prometheus() {
        let metrics = Metrics::new(&[caps(50.0, 16)]).expect("buckets");
        metrics.model("m", "1", caps(50.0, 16)).runner_busy_seconds.increment(0.25);
        let text = metrics.render();
        assert!(text.contains("# TYPE uncork_runner_busy_seconds_total counter"), "{text}");
        assert!(text.contains(r#"uncork_runner_busy_seconds_total{model="m",version="1"} 0.25"#), "{text}");
    }
}
