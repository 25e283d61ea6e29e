//! Every metric's name, help, labels and buckets, in one place.
//!
//! Handles are made once for each model and kept: recording is then a few atomic operations and never a look-up by name.
//! The [`catalogue`] lists the metrics; docs/metrics.md is written from it.

pub mod catalogue;
mod format;
mod histogram;
mod http;
mod native;
mod process;

use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::formatting::sanitize_label_value;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};

pub use catalogue::{Copied, Stage, TurnedAway};
pub use format::Format;
pub use http::HttpMetrics;

use crate::batcher::{Abandoned, Landed, Learned, Observer, Refused, Released, SpanRef, Waits};
use crate::error::{Outcome, Shed};
use crate::estimator::Instant;
use crate::policy::ReleaseReason;
use catalogue::{Edges, Kind, Metric};
use histogram::Buckets;
use native::MetricFamily;
use prost::Message;

/// Edges of every histogram of seconds; each model's `max_latency_ms`, half and twice of it are added.
const SECONDS: [f64; 17] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0];
/// Edges of ratios: close around 1, where an estimate should be, and at 1.3 from which on it counts as off.
const RATIOS: [f64; 13] = [0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 2.0, 4.0];
/// Counters that the facade, whose counters hold whole numbers only, must keep as gauges; [`Metrics::render`] tells Prometheus
/// what they are.
const COUNTERS_OF_SECONDS: [&str; 2] = [catalogue::BUSY.name, "process_cpu_seconds_total"];

/// What is configured for one model: its caps, from which the buckets are made, and its bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// `max_latency_ms`, in seconds.
    pub max_latency_seconds: f64,
    /// `max_batch_size`, in rows.
    pub max_batch_rows: usize,
    /// Rows that may wait.
    pub max_queue_rows: usize,
    /// Bytes that may wait.
    pub max_queue_bytes: usize,
    /// Batches that may run at once.
    pub runners: usize,
}

/// All metrics of one process, or of one server in a test.
pub struct Metrics {
    /// Of what is no model's.
    recorder: PrometheusRecorder,
    process: process::Collector,
    http: HttpMetrics,
    repository: RepositoryMetrics,
    /// Of the models that are known from the start.
    limits: Box<[Limits]>,
    /// Of those that are still there: the exporter forgets no series, so each model has one of its own.
    models: Mutex<Vec<Weak<OfModel>>>,
}

/// What is recorded of one model. It goes with the last handle.
struct OfModel {
    name: String,
    version: String,
    recorder: PrometheusRecorder,
    /// Those that the exporter does not know.
    histograms: Mutex<Vec<Series>>,
}

/// A histogram, and what stands before its values.
struct Series {
    metric: Metric,
    labels: String,
    buckets: Arc<Buckets>,
}

impl std::fmt::Debug for OfModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OfModel").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Metrics for models with these limits. Every model's `max_latency_ms` is an exact edge of the histograms of seconds,
    /// and its `max_batch_size` one of the histogram of batch sizes.
    pub fn new(limits: &[Limits]) -> Metrics {
        let recorder = recorder();
        let metrics = Metrics {
            http: HttpMetrics::new(&recorder),
            repository: RepositoryMetrics::new(&recorder),
            recorder,
            process: process::Collector::default(),
            limits: limits.into(),
            models: Mutex::default(),
        };
        metrics::with_local_recorder(&metrics.recorder, || metrics.process.describe());
        let build = catalogue::BUILD.map(|(label, value)| Label::from_static_parts(label, value));
        let build = Key::from_parts(catalogue::BUILD_INFO.name, build.to_vec());
        metrics.recorder.register_gauge(&build, &METADATA).set(1.0);
        metrics
    }

    /// Handles for one model, whose series are there as long as one of them is, or until there are new ones for its like.
    pub fn model(&self, name: &str, version: &str, limits: Limits) -> ModelMetrics {
        let metrics = self.unseen(name, version, None, limits);
        self.show(&metrics);
        metrics
    }

    /// From now on the model's series are there, and no more those of another of its name and version. A model that another takes
    /// the place of may still be at its last requests: no series is there twice.
    pub fn show(&self, model: &ModelMetrics) {
        let own = &model.series;
        let is_other = |other: Arc<OfModel>| (&other.name, &other.version) != (&own.name, &own.version);
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        models.retain(|model| model.upgrade().is_some_and(is_other));
        models.push(Arc::downgrade(own));
    }

    /// The same of a model that perhaps shares a pool. Nothing of it is seen before [`show`](Self::show).
    pub fn unseen(&self, name: &str, version: &str, pool: Option<&str>, limits: Limits) -> ModelMetrics {
        let (of_name, of_version) = (name.to_owned(), version.to_owned());
        let histograms = Mutex::default();
        let of_model = Arc::new(OfModel { name: of_name, version: of_version, recorder: recorder(), histograms });
        let recorder = &of_model.recorder;
        let all = [&self.limits[..], &[limits]].concat();
        let (seconds, rows) = (Arc::<[f64]>::from(second_edges(&all)), Arc::<[f64]>::from(row_edges(&all)));
        let labels = [("model", name), ("version", version)].map(|(k, v)| Label::new(k.to_string(), v.to_string()));
        let key = |metric: Metric, own: Option<&'static str>| {
            let own = metric.label.zip(own).map(|((label, _), value)| Label::from_static_parts(label, value));
            let pool = pool.filter(|_| catalogue::OF_POOL.contains(&metric.name));
            let pool = pool.map(|pool| Label::new("pool", pool.to_owned()));
            Key::from_parts(metric.name, labels.iter().cloned().chain(own).chain(pool).collect::<Vec<_>>())
        };
        let buckets = |metric: Metric, own: Option<&'static str>| {
            let mut text =
                format!("model=\"{}\",version=\"{}\"", sanitize_label_value(name), sanitize_label_value(version));
            if let Some(((label, _), value)) = metric.label.zip(own) {
                // Writing to a string cannot fail.
                let _ = write!(text, ",{label}=\"{value}\"");
            }
            let edges = match metric.kind {
                Kind::Histogram(Edges::Rows) => Arc::clone(&rows),
                Kind::Histogram(Edges::Ratio) => RATIOS.into(),
                _ => Arc::clone(&seconds),
            };
            let buckets = Buckets::new(edges);
            of_model.histograms().push(Series { metric, labels: text, buckets: Arc::clone(&buckets) });
            buckets
        };
        let series = |metric, own| buckets(metric, own).handle();
        let histogram = |metric| series(metric, None);
        let gauge = |metric| recorder.register_gauge(&key(metric, None), &METADATA);
        let counter = |metric, value| recorder.register_counter(&key(metric, Some(value)), &METADATA);
        gauge(catalogue::MAX_LATENCY).set(limits.max_latency_seconds);
        gauge(catalogue::MAX_BATCH).set(limits.max_batch_rows as f64);
        gauge(catalogue::MAX_QUEUE_ROWS).set(limits.max_queue_rows as f64);
        gauge(catalogue::MAX_QUEUE_BYTES).set(limits.max_queue_bytes as f64);
        gauge(catalogue::RUNNERS).set(limits.runners as f64);
        let stage = |stage: Stage| series(catalogue::STAGE_DURATION, Some(stage.label()));
        ModelMetrics {
            batch_size: histogram(catalogue::BATCH_SIZE),
            requests: Outcome::ALL.map(|o| counter(catalogue::REQUESTS, o.label())),
            releases: ReleaseReason::ALL.map(|r| counter(catalogue::RELEASES, r.label())),
            sheds: Shed::ALL.map(|shed| counter(catalogue::SHEDS, shed.label())),
            stuck: recorder.register_counter(&key(catalogue::STUCK, None), &METADATA),
            workers: gauge(catalogue::WORKERS),
            worker_ends: recorder.register_counter(&key(catalogue::WORKER_ENDS, None), &METADATA),
            request_duration: buckets(catalogue::REQUEST_DURATION, None),
            queue_wait: histogram(catalogue::QUEUE_WAIT),
            stages: Stage::ALL.map(stage),
            batch_duration: histogram(catalogue::BATCH_DURATION),
            predicted_batch_duration: histogram(catalogue::PREDICTED),
            batch_time_ratio: histogram(catalogue::BATCH_RATIO),
            hold: histogram(catalogue::HOLD),
            request_elements: counter(catalogue::INPUT_ELEMENTS, "request"),
            padding_elements: counter(catalogue::INPUT_ELEMENTS, "padding"),
            runner_busy_seconds: gauge(catalogue::BUSY),
            queue_rows: gauge(catalogue::QUEUE_ROWS),
            queue_bytes: gauge(catalogue::QUEUE_BYTES),
            in_flight_batches: gauge(catalogue::IN_FLIGHT),
            memory: gauge(catalogue::MEMORY),
            copies: Copied::ALL.map(|copied| counter(catalogue::COPIES, copied.label())),
            estimate_base: gauge(catalogue::ESTIMATE_BASE),
            estimate_per_row: gauge(catalogue::ESTIMATE_PER_ROW),
            estimate_noise: gauge(catalogue::ESTIMATE_NOISE),
            estimate_updated: gauge(catalogue::ESTIMATE_UPDATED),
            series: Arc::clone(&of_model),
        }
    }

    /// Handles for what comes before any model.
    pub fn http(&self) -> HttpMetrics {
        self.http.clone()
    }

    /// Handles for models that come and go.
    pub fn repository(&self) -> &RepositoryMetrics {
        &self.repository
    }

    /// Everything in Prometheus' text format, with the process's own memory, processor time and files as they are now.
    pub fn render(&self) -> String {
        self.text(Format::Prometheus)
    }

    /// The same in this format.
    pub fn render_as(&self, format: Format) -> Vec<u8> {
        if format == Format::Protobuf { self.messages() } else { self.text(format).into_bytes() }
    }

    /// All but the histograms, in Prometheus' text format, and the models whose histograms are to follow.
    fn others(&self) -> (String, Vec<Arc<OfModel>>) {
        metrics::with_local_recorder(&self.recorder, || self.process.collect());
        let mut blocks = Blocks::default();
        blocks.add(&self.recorder.handle().render());
        let models: Vec<_> = {
            let models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
            models.iter().filter_map(Weak::upgrade).collect()
        };
        for model in &models {
            blocks.add(&model.recorder.handle().render());
        }
        let mut text = blocks.text();
        for name in COUNTERS_OF_SECONDS {
            let (gauge, counter) = (format!("# TYPE {name} gauge"), format!("# TYPE {name} counter"));
            text = text.replacen(&gauge, &counter, 1);
        }
        (text, models)
    }

    /// Each metric behind its length.
    fn messages(&self) -> Vec<u8> {
        let (text, models) = self.others();
        let mut families = native::families(&text);
        for metric in catalogue::ALL.iter().filter(|metric| matches!(metric.kind, Kind::Histogram(_))) {
            let mut family = MetricFamily { name: metric.name.into(), help: metric.help.into(), ..Default::default() };
            family.kind = native::HISTOGRAM;
            for model in &models {
                for series in model.histograms().iter().filter(|series| series.metric.name == metric.name) {
                    let (label, histogram) = (native::labels(&series.labels), Some(series.buckets.native()));
                    family.metric.push(native::Series { label, histogram, ..Default::default() });
                }
            }
            families.push(family);
        }
        families.iter().flat_map(MetricFamily::encode_length_delimited_to_vec).collect()
    }

    fn text(&self, format: Format) -> String {
        let (mut text, models) = self.others();
        for Metric { name, help, .. } in catalogue::ALL.iter().filter(|m| matches!(m.kind, Kind::Histogram(_))) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
            for model in &models {
                for series in model.histograms().iter().filter(|series| series.metric.name == *name) {
                    series.buckets.write(&mut text, name, &series.labels, format);
                }
            }
            text.push('\n');
        }
        if format == Format::OpenMetrics { open(&text) } else { text }
    }
}

/// Prometheus' text as OpenMetrics has it: heads name a counter without `_total`, no line is empty, and the last says so.
fn open(text: &str) -> String {
    let mut open = String::with_capacity(text.len());
    let is_counter = |name: &str| name.ends_with("_total");
    for line in text.lines().filter(|line| !line.is_empty()) {
        let head = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE "));
        let name = head.and_then(|head| head.split(' ').next()).filter(|name| is_counter(name));
        match name.and_then(|name| name.strip_suffix("_total").map(|short| (name, short))) {
            Some((name, short)) => open.push_str(&line.replacen(name, short, 1)),
            None => open.push_str(line),
        }
        open.push('\n');
    }
    open + "# EOF\n"
}

/// A recorder that knows the catalogue's words.
fn recorder() -> PrometheusRecorder {
    let recorder = PrometheusBuilder::new().build_recorder();
    for Metric { name, kind, help, .. } in catalogue::ALL {
        match kind {
            Kind::Counter => recorder.describe_counter(name.into(), None, help.into()),
            Kind::Gauge => recorder.describe_gauge(name.into(), None, help.into()),
            Kind::Histogram(_) => {}
        }
    }
    recorder
}

impl OfModel {
    fn histograms(&self) -> MutexGuard<'_, Vec<Series>> {
        self.histograms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Several texts in Prometheus's format made one: the format wants all series of a metric together, below one head.
#[derive(Default)]
struct Blocks(Vec<Block>);

#[derive(Default)]
struct Block {
    name: String,
    head: String,
    series: String,
}

impl Blocks {
    fn add(&mut self, text: &str) {
        let mut at = None;
        for line in text.lines().filter(|line| !line.is_empty()) {
            let Some(comment) = line.strip_prefix("# ") else {
                if let Some(block) = at.and_then(|at: usize| self.0.get_mut(at)) {
                    block.series.push_str(line);
                    block.series.push('\n');
                }
                continue;
            };
            let name = comment.split(' ').nth(1).unwrap_or_default();
            let known = self.0.iter().position(|block| block.name == name);
            let place = known.unwrap_or_else(|| {
                self.0.push(Block { name: name.to_owned(), ..Block::default() });
                self.0.len() - 1
            });
            let block = &mut self.0[place];
            if !block.head.lines().any(|own| own == line) {
                block.head.push_str(line);
                block.head.push('\n');
            }
            at = Some(place);
        }
    }

    fn text(self) -> String {
        self.0.into_iter().map(|block| block.head + &block.series + "\n").collect()
    }
}

/// Handles to the metrics of models that come and go.
#[derive(Clone, Debug)]
pub struct RepositoryMetrics {
    /// Versions that are served since.
    pub loaded: Counter,
    /// Versions that could not be loaded.
    pub failed: Counter,
    /// Versions that are served no more.
    pub let_go: Counter,
    /// Versions that cannot be loaded as they are.
    pub broken: Gauge,
    /// Times that the configuration was read again and applied.
    pub applied: Counter,
    /// Times that it was read again and left as it was.
    pub refused: Counter,
    /// Most bytes that all models take together; 0 where there is no bound.
    pub most_bytes: Gauge,
}

impl RepositoryMetrics {
    fn new(recorder: &PrometheusRecorder) -> RepositoryMetrics {
        let [loaded, failed, let_go] = catalogue::LOADS.map(|outcome| {
            let labels = vec![Label::from_static_parts("outcome", outcome)];
            recorder.register_counter(&Key::from_parts(catalogue::REPOSITORY_LOADS.name, labels), &METADATA)
        });
        let broken = recorder.register_gauge(&Key::from_name(catalogue::REPOSITORY_BROKEN.name), &METADATA);
        let [applied, refused] = catalogue::RELOAD_OUTCOMES.map(|outcome| {
            let labels = vec![Label::from_static_parts("outcome", outcome)];
            recorder.register_counter(&Key::from_parts(catalogue::RELOADS.name, labels), &METADATA)
        });
        let most_bytes = recorder.register_gauge(&Key::from_name(catalogue::MAX_MODELS.name), &METADATA);
        RepositoryMetrics { loaded, failed, let_go, broken, applied, refused, most_bytes }
    }
}

/// Handles to the metrics of one model.
#[derive(Clone, Debug)]
pub struct ModelMetrics {
    /// Rows of each executed batch.
    pub batch_size: Histogram,
    requests: [Counter; Outcome::ALL.len()],
    releases: [Counter; ReleaseReason::ALL.len()],
    /// By [`Shed::ALL`].
    sheds: [Counter; Shed::ALL.len()],
    stuck: Counter,
    /// Processes that are ready to run it.
    pub workers: Gauge,
    /// Such processes that ended unasked.
    pub worker_ends: Counter,
    request_duration: Arc<Buckets>,
    /// Seconds from arrival to release.
    pub queue_wait: Histogram,
    stages: [Histogram; Stage::ALL.len()],
    /// Seconds from release to outputs.
    pub batch_duration: Histogram,
    /// Seconds that the estimator expected of a batch when it was released.
    pub predicted_batch_duration: Histogram,
    /// Measured over expected batch time.
    pub batch_time_ratio: Histogram,
    /// Seconds for which a batch was held back while a runner was free.
    pub hold: Histogram,
    /// Elements of the requests' own input tensors that ran.
    pub request_elements: Counter,
    /// Elements that were added to fill batches up.
    pub padding_elements: Counter,
    /// Seconds spent on batches, summed over runners.
    pub runner_busy_seconds: Gauge,
    /// Rows that wait.
    pub queue_rows: Gauge,
    /// Bytes that wait.
    pub queue_bytes: Gauge,
    /// Batches that run.
    pub in_flight_batches: Gauge,
    /// Bytes of memory that it took when it was loaded.
    pub memory: Gauge,
    /// By [`Copied`].
    pub copies: [Counter; Copied::ALL.len()],
    estimate_base: Gauge,
    estimate_per_row: Gauge,
    estimate_noise: Gauge,
    estimate_updated: Gauge,
    /// Keeps them where they are read.
    series: Arc<OfModel>,
}

impl ModelMetrics {
    /// Counts one request that ended so.
    pub fn count_request(&self, outcome: Outcome) {
        self.requests[outcome as usize].increment(1);
    }

    /// Counts requests that were refused for this reason.
    pub fn count_shed(&self, shed: Shed, requests: usize) {
        if let Some(at) = Shed::ALL.iter().position(|known| *known == shed) {
            self.sheds[at].increment(requests as u64);
        }
    }

    /// Records how long one request took from its arrival to its answer, and in which trace it can be looked up.
    pub fn record_request(&self, took: Duration, trace: Option<u128>) {
        self.request_duration.record(took.as_secs_f64());
        if let Some(trace) = trace {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.request_duration.exemplify(took.as_secs_f64(), trace, now);
        }
    }

    /// Records where the time of one answered request went, in the order of [`Stage::ALL`].
    pub fn record_stages(&self, times: [Duration; Stage::ALL.len()]) {
        for (histogram, time) in self.stages.iter().zip(times) {
            histogram.record(time);
        }
    }
}

/// What a batcher tells is recorded, series by series.
impl Observer for ModelMetrics {
    fn released(&self, at: Instant, batch: &Released<'_>) -> Option<SpanRef> {
        self.releases[batch.reason as usize].increment(1);
        self.batch_size.record(batch.rows as f64);
        self.in_flight_batches.increment(1.0);
        batch.riders.iter().for_each(|rider| self.queue_wait.record(at.since(rider.arrival)));
        if let Some(predicted) = batch.predicted {
            self.predicted_batch_duration.record(predicted);
        }
        if !batch.held.is_zero() {
            self.hold.record(batch.held);
        }
        None
    }

    fn landed(&self, _at: Instant, batch: &Landed<'_>) {
        self.in_flight_batches.decrement(1.0);
        self.runner_busy_seconds.increment(batch.took.as_secs_f64());
        if batch.failed.is_some() {
            return;
        }
        self.batch_duration.record(batch.took);
        if let Some(predicted) = batch.predicted.filter(|time| !time.is_zero()) {
            self.batch_time_ratio.record(batch.took.as_secs_f64() / predicted.as_secs_f64());
        }
    }

    fn abandoned(&self, _at: Instant, _batch: &Abandoned) {
        self.stuck.increment(1);
    }

    fn refused(&self, _at: Instant, items: &Refused<'_>) {
        self.count_shed(Shed::Batcher(items.reason), items.items);
    }

    fn learned(&self, _at: Instant, batch: &Learned) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.estimate_base.set(batch.fit.base_seconds());
        self.estimate_per_row.set(batch.fit.per_row_seconds());
        self.estimate_noise.set(batch.fit.noise());
        self.estimate_updated.set(now.as_secs_f64());
    }

    fn waits(&self, _at: Instant, waits: Waits) {
        self.queue_rows.set(waits.rows as f64);
        self.queue_bytes.set(waits.bytes as f64);
    }
}

const METADATA: Metadata<'static> = Metadata::new("uncork", Level::INFO, None);

fn second_edges(limits: &[Limits]) -> Vec<f64> {
    let own = limits.iter().flat_map(|l| [0.5, 1.0, 2.0].map(|share| l.max_latency_seconds * share));
    sorted(SECONDS.into_iter().chain(own).collect())
}

fn row_edges(limits: &[Limits]) -> Vec<f64> {
    let largest = limits.iter().map(|l| l.max_batch_rows).max().unwrap_or(1);
    let powers = (0..usize::BITS).map(|i| 1usize << i).take_while(|&n| n <= largest);
    sorted(powers.chain(limits.iter().map(|l| l.max_batch_rows)).map(|n| n as f64).collect())
}

fn sorted(mut edges: Vec<f64>) -> Vec<f64> {
    edges.sort_by(f64::total_cmp);
    edges.dedup();
    edges
}

#[cfg(test)]
mod tests;
