//! Name, kind, labels and meaning of every metric: what is registered, what `/metrics` says, what docs/metrics.md lists.

use crate::error::{Outcome, Shed};
use crate::policy::ReleaseReason;

/// What a metric is to Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts values up to each edge.
    Histogram(Edges),
}

/// The edges of a histogram's buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edges {
    /// Seconds; each model's `max_latency_ms`, half and twice of it are edges.
    Seconds,
    /// Rows: powers of two up to the largest `max_batch_size`, and each model's.
    Rows,
    /// A ratio around 1.
    Ratio,
}

/// One metric. All but those of HTTP, of the repository and `uncork_build_info` have the labels `model` and `version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it is to Prometheus.
    pub kind: Kind,
    /// A label of its own, with its values.
    pub label: Option<(&'static str, &'static [&'static str])>,
    /// One sentence.
    pub help: &'static str,
}

const fn metric(name: &'static str, kind: Kind, help: &'static str) -> Metric {
    Metric { name, kind, label: None, help }
}

impl Metric {
    const fn by(self, label: &'static str, values: &'static [&'static str]) -> Metric {
        Metric { label: Some((label, values)), ..self }
    }
}

const SECONDS: Kind = Kind::Histogram(Edges::Seconds);

pub(super) const BATCH_SIZE: Metric =
    metric("uncork_adaptive_batch_size", Kind::Histogram(Edges::Rows), "Rows of each executed batch.");
pub(super) const REQUESTS: Metric =
    metric("uncork_requests_total", Kind::Counter, "Requests by how they ended.").by("outcome", &OUTCOMES);
pub(super) const RELEASES: Metric =
    metric("uncork_releases_total", Kind::Counter, "Released batches by why they were released then.")
        .by("reason", &RELEASE_REASONS);
pub(super) const SHEDS: Metric =
    metric("uncork_sheds_total", Kind::Counter, "Requests refused with 503 or 504 by why, a shutdown left out. Of a request that was split each refused part counts.")
        .by("reason", &REFUSAL_REASONS);
pub(super) const STUCK: Metric =
    metric("uncork_stuck_batches_total", Kind::Counter, "Batches that were given up because they ran for too long.");
pub(super) const WORKERS: Metric =
    metric("uncork_workers", Kind::Gauge, "Worker processes that are ready; 0 for models that have none.");
pub(super) const WORKER_ENDS: Metric = metric(
    "uncork_worker_ends_total",
    Kind::Counter,
    "Worker processes that ended unasked or were killed, each with its batches, and were replaced.",
);
pub(super) const REQUEST_DURATION: Metric = metric(
    "uncork_request_duration_seconds",
    SECONDS,
    "From a request's arrival to its answer, refusals and failures left out.",
);
pub(super) const QUEUE_WAIT: Metric =
    metric("uncork_queue_wait_seconds", SECONDS, "From a request's arrival to the release of its batch.");
pub(super) const STAGE_DURATION: Metric = metric(
    "uncork_stage_duration_seconds",
    SECONDS,
    "Time of an answered request in each stage; the stages add up to its duration.",
)
.by("stage", &Stage::LABELS);
pub(super) const BATCH_DURATION: Metric =
    metric("uncork_batch_duration_seconds", SECONDS, "From a batch's release to its outputs.");
pub(super) const PREDICTED: Metric = metric(
    "uncork_predicted_batch_duration_seconds",
    SECONDS,
    "What the estimator expected of each batch at its release.",
);
pub(super) const BATCH_RATIO: Metric = metric(
    "uncork_batch_time_ratio",
    Kind::Histogram(Edges::Ratio),
    "Measured time of each batch over what the estimator expected of it.",
);
pub(super) const HOLD: Metric = metric(
    "uncork_hold_seconds",
    SECONDS,
    "How long a batch was held back while a runner was free; only batches that were.",
);
pub(super) const INPUT_ELEMENTS: Metric =
    metric("uncork_input_elements_total", Kind::Counter, "Elements of input tensors that ran, by whose they were.")
        .by("kind", &["request", "padding"]);
pub(super) const BUSY: Metric = metric(
    "uncork_runner_busy_seconds_total",
    Kind::Counter,
    "Time that runners have spent on batches, summed over runners.",
);
pub(super) const QUEUE_ROWS: Metric = metric("uncork_queue_rows", Kind::Gauge, "Rows that wait.");
pub(super) const QUEUE_BYTES: Metric = metric("uncork_queue_bytes", Kind::Gauge, "Bytes of input tensors that wait.");
pub(super) const IN_FLIGHT: Metric = metric("uncork_in_flight_batches", Kind::Gauge, "Batches that run.");
pub(super) const ESTIMATE_BASE: Metric =
    metric("uncork_estimate_base_seconds", Kind::Gauge, "Estimated time of a batch however small it is (alpha).");
pub(super) const ESTIMATE_PER_ROW: Metric =
    metric("uncork_estimate_per_row_seconds", Kind::Gauge, "Estimated time that each row adds to a batch (beta).");
pub(super) const ESTIMATE_NOISE: Metric = metric(
    "uncork_estimate_noise_factor",
    Kind::Gauge,
    "What a cautious prediction multiplies the estimated batch time by (z), at least 1.",
);
pub(super) const ESTIMATE_UPDATED: Metric = metric(
    "uncork_estimate_updated_timestamp_seconds",
    Kind::Gauge,
    "Unix time at which the last batch that the estimate learned from came back.",
);
pub(super) const RUNNERS: Metric = metric("uncork_runners", Kind::Gauge, "Batches that may run at once.");
pub(super) const MAX_LATENCY: Metric = metric("uncork_max_latency_seconds", Kind::Gauge, "The model's latency cap.");
pub(super) const MAX_BATCH: Metric = metric("uncork_max_batch_rows", Kind::Gauge, "The model's cap on a batch's rows.");
pub(super) const MAX_QUEUE_ROWS: Metric = metric("uncork_max_queue_rows", Kind::Gauge, "The queue's bound in rows.");
pub(super) const MAX_QUEUE_BYTES: Metric = metric("uncork_max_queue_bytes", Kind::Gauge, "The queue's bound in bytes.");
pub(super) const MEMORY: Metric = metric(
    "uncork_model_memory_bytes",
    Kind::Gauge,
    "What the model takes: its weights, 2 MiB a runner, and the values of a full batch in each. docs/operating.md has the sum.",
);
pub(super) const COPIES: Metric = metric(
    "uncork_shadow_copies_total",
    Kind::Counter,
    "Copies of requests for a version that answers nobody, by what became of them; they are no requests elsewhere.",
)
.by("outcome", &Copied::LABELS);
/// Has no label.
pub(super) const MAX_MODELS: Metric = metric(
    "uncork_repository_max_models_bytes",
    Kind::Gauge,
    "Most that uncork_model_memory_bytes of all models may add up to; 0 where there is no bound.",
);
/// Has the label `code` alone.
pub(super) const HTTP_REQUESTS: Metric = metric(
    "uncork_http_requests_total",
    Kind::Counter,
    "Answers over HTTP and gRPC by HTTP's status, those included that no model saw; a connection for which there was no room counts as one.",
)
.by("code", &CODES);
/// Has the label `reason` alone.
pub(super) const TURNED_AWAY: Metric = metric(
    "uncork_turned_away_total",
    Kind::Counter,
    "Connections, and requests for inference, that got 503 or were hung up on, and that no model counts. Probes are not among them.",
)
.by("reason", &TurnedAway::LABELS);
/// Has no label.
pub(super) const HTTP_CONNECTIONS: Metric =
    metric("uncork_http_connections", Kind::Gauge, "Connections that are open.");
/// Has the label `file` alone.
pub(super) const STALE_FILES: Metric = metric(
    "uncork_stale_files",
    Kind::Gauge,
    "1 while a file that is followed cannot be used as it is now, so that what it said before holds; the log says why.",
)
.by("file", &FOLLOWED);
/// Has no label.
pub(super) const CERTIFICATE_EXPIRES: Metric = metric(
    "uncork_tls_certificate_expires_seconds",
    Kind::Gauge,
    "Unix time at which the server's certificate expires, or one behind it before that; 0 where there is none.",
);
/// Has the label `outcome` alone.
pub(super) const REPOSITORY_LOADS: Metric = metric(
    "uncork_repository_loads_total",
    Kind::Counter,
    "Versions of models that came or went while the server ran, and those of the folder at its start.",
)
.by("outcome", &LOADS);
/// Has no label.
pub(super) const REPOSITORY_BROKEN: Metric = metric(
    "uncork_repository_broken_versions",
    Kind::Gauge,
    "Versions in the folder of models that cannot be loaded; the log and /v2/repository/index say why.",
);
/// Has the label `outcome` alone.
pub(super) const RELOADS: Metric = metric(
    "uncork_repository_reloads_total",
    Kind::Counter,
    "Times that SIGHUP had the configuration read again, by whether it was applied or refused as a whole.",
)
.by("outcome", &RELOAD_OUTCOMES);
/// Has the labels of [`BUILD`] alone.
pub(super) const BUILD_INFO: Metric = metric(
    "uncork_build_info",
    Kind::Gauge,
    "Always 1; its labels tell the program's version, commit, target and features.",
);

/// Metrics that have the label `pool` as well, of models that share one: what runs there adds up to what the pool has.
pub const OF_POOL: [&str; 3] = [BUSY.name, RUNNERS.name, IN_FLIGHT.name];

/// What this program was made of. The commit is what UNCORK_COMMIT was when it was compiled: asking git for it would compile the
/// server anew for each commit.
pub(super) const BUILD: [(&str, &str); 4] = [
    ("version", env!("CARGO_PKG_VERSION")),
    (
        "commit",
        match option_env!("UNCORK_COMMIT") {
            Some(commit) => commit,
            None => "unknown",
        },
    ),
    ("target", TARGET),
    ("features", FEATURES),
];

const TARGET: &str = match (cfg!(target_arch = "x86_64"), cfg!(target_arch = "aarch64"), cfg!(target_os = "linux")) {
    (true, _, true) if cfg!(target_env = "musl") => "x86_64-linux-musl",
    (true, _, true) => "x86_64-linux-gnu",
    (_, true, true) if cfg!(target_env = "musl") => "aarch64-linux-musl",
    (_, true, true) => "aarch64-linux-gnu",
    (true, _, _) if cfg!(target_os = "macos") => "x86_64-macos",
    (_, true, _) if cfg!(target_os = "macos") => "aarch64-macos",
    _ => "other",
};

const FEATURES: &str = match (cfg!(feature = "onnx"), cfg!(feature = "wgpu"), cfg!(feature = "cuda")) {
    (false, ..) => "none",
    (true, false, false) => "onnx",
    (true, true, false) => "onnx,wgpu",
    (true, false, true) => "onnx,cuda",
    (true, true, true) => "onnx,wgpu,cuda",
};

/// Every metric of uncork's own, in the order of docs/metrics.md.
pub const ALL: [Metric; 40] = [
    BATCH_SIZE,
    REQUESTS,
    RELEASES,
    SHEDS,
    STUCK,
    WORKERS,
    WORKER_ENDS,
    REQUEST_DURATION,
    QUEUE_WAIT,
    STAGE_DURATION,
    BATCH_DURATION,
    PREDICTED,
    BATCH_RATIO,
    HOLD,
    INPUT_ELEMENTS,
    BUSY,
    QUEUE_ROWS,
    QUEUE_BYTES,
    IN_FLIGHT,
    ESTIMATE_BASE,
    ESTIMATE_PER_ROW,
    ESTIMATE_NOISE,
    ESTIMATE_UPDATED,
    RUNNERS,
    MAX_LATENCY,
    MAX_BATCH,
    MAX_QUEUE_ROWS,
    MAX_QUEUE_BYTES,
    MEMORY,
    COPIES,
    HTTP_REQUESTS,
    TURNED_AWAY,
    HTTP_CONNECTIONS,
    STALE_FILES,
    CERTIFICATE_EXPIRES,
    REPOSITORY_LOADS,
    REPOSITORY_BROKEN,
    RELOADS,
    MAX_MODELS,
    BUILD_INFO,
];

/// Where an answered request's time goes, as labelled in `uncork_stage_duration_seconds{stage}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// From arrival to the last byte.
    Receive,
    /// From bytes to tensors.
    Decode,
    /// Waiting for the release of the batch.
    Queue,
    /// Joining the batch's requests, padding them, and splitting the outputs.
    Assemble,
    /// The model.
    Execute,
    /// From the last batch's outputs to the caller's task and between threads: whatever the other stages leave.
    Handover,
    /// From outputs to an answer.
    Encode,
}

impl Stage {
    /// Every stage, in the order of a request's way.
    pub const ALL: [Stage; 7] =
        [Stage::Receive, Stage::Decode, Stage::Queue, Stage::Assemble, Stage::Execute, Stage::Handover, Stage::Encode];

    const LABELS: [&'static str; 7] = ["receive", "decode", "queue", "assemble", "execute", "handover", "encode"];

    /// The label's value.
    pub fn label(self) -> &'static str {
        Stage::LABELS[self as usize]
    }
}

/// What becomes of a copy for a shadow, as labelled in `uncork_shadow_copies_total{outcome}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    /// The shadow had an answer.
    Answered,
    /// It had none.
    Failed,
    /// Its batcher refused it.
    Refused,
    /// It was not made, since somebody waited.
    Dropped,
}

impl Copied {
    /// Every one.
    pub const ALL: [Copied; 4] = [Copied::Answered, Copied::Failed, Copied::Refused, Copied::Dropped];

    const LABELS: [&'static str; 4] = ["answered", "failed", "refused", "dropped"];

    /// The label's value.
    pub fn label(self) -> &'static str {
        Copied::LABELS[self as usize]
    }
}

/// Why a connection, or a request for inference, is turned away before any model counts it, as labelled in `uncork_turned_away_total{reason}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnedAway {
    /// As many connections are open as may.
    Connections,
    /// Bodies fill the room for them.
    Bodies,
    /// Those of its own caller do.
    OwnBodies,
    /// Too many requests wait for their bodies.
    Waiting,
    /// Too many streams are open.
    Streams,
    /// Its message took too long to be unpacked.
    SlowBody,
    /// Its model is on its way.
    Loading,
    /// The server is going.
    ShuttingDown,
}

impl TurnedAway {
    /// Every reason.
    pub const ALL: [TurnedAway; 8] = [
        TurnedAway::Connections,
        TurnedAway::Bodies,
        TurnedAway::OwnBodies,
        TurnedAway::Waiting,
        TurnedAway::Streams,
        TurnedAway::SlowBody,
        TurnedAway::Loading,
        TurnedAway::ShuttingDown,
    ];

    const LABELS: [&'static str; 8] =
        ["connections", "bodies", "own_bodies", "waiting", "streams", "slow_body", "loading", "shutting_down"];

    /// The label's value.
    pub fn label(self) -> &'static str {
        TurnedAway::LABELS[self as usize]
    }

    /// What it means, as a sentence.
    pub fn why(self) -> &'static str {
        match self {
            TurnedAway::Connections => "`max_connections` connections were open; with TLS it is closed without a word",
            TurnedAway::Bodies => "bodies and tensors of others filled `max_bodies_bytes`",
            TurnedAway::OwnBodies => "other requests of its token had their part of `max_bodies_bytes`",
            TurnedAway::Waiting => "as many requests over HTTP/2 waited for their bodies as may",
            TurnedAway::Streams => "as many streams of gRPC were open as may",
            TurnedAway::SlowBody => "its message in gRPC took too long to be unpacked",
            TurnedAway::Loading => "its model was being loaded",
            TurnedAway::ShuttingDown => "the server was going, and its body was not unpacked yet",
        }
    }
}

const REFUSAL_REASONS: [&str; Shed::ALL.len()] = {
    let mut labels = [""; Shed::ALL.len()];
    let mut i = 0;
    while i < labels.len() {
        labels[i] = Shed::ALL[i].label();
        i += 1;
    }
    labels
};

const OUTCOMES: [&str; Outcome::ALL.len()] = {
    let mut labels = [""; Outcome::ALL.len()];
    let mut i = 0;
    while i < labels.len() {
        labels[i] = Outcome::ALL[i].label();
        i += 1;
    }
    labels
};

const RELEASE_REASONS: [&str; ReleaseReason::ALL.len()] = {
    let mut labels = [""; ReleaseReason::ALL.len()];
    let mut i = 0;
    while i < labels.len() {
        labels[i] = ReleaseReason::ALL[i].label();
        i += 1;
    }
    labels
};

/// What became of a version.
pub(super) const LOADS: [&str; 3] = ["loaded", "failed", "let_go"];

/// Files that are read again when they change.
pub(super) const FOLLOWED: [&str; 2] = ["tokens", "certificate"];

/// What became of a configuration that was read again.
pub(super) const RELOAD_OUTCOMES: [&str; 2] = ["applied", "refused"];

/// The statuses that the server gives, and all others together.
pub(super) const CODES: [&str; 19] = [
    "200", "304", "400", "401", "403", "404", "405", "408", "413", "415", "421", "429", "431", "500", "501", "503",
    "504", "505", "other",
];
