//! The names of all settings.

/// Keys of `[server]`.
pub(super) const SERVER: &[&str] = &[
    "http",
    "grpc",
    "admin",
    "tokens_file",
    "tls_certificate",
    "tls_key",
    "tls_client_ca",
    "insecure",
    "strict",
    "hosts",
    "http_threads",
    "max_connections",
    "max_head_bytes",
    "max_body_bytes",
    "max_answer_bytes",
    "max_bodies_bytes",
    "head_timeout_ms",
    "body_timeout_ms",
    "idle_timeout_ms",
    "write_timeout_ms",
    "drain_delay_ms",
    "drain_timeout_ms",
    "log_format",
    "otlp",
    "trace_ratio",
    "models",
    "models_poll_ms",
    "max_models_bytes",
    "unload_least_used",
];

/// Keys of `[[model]]` that say which model it is.
pub(super) const MODEL_IDENTITY: &[&str] = &["name", "version", "path", "synthetic", "python", "command", "upstream"];

/// Keys of `[[model]]` about the pool that it shares with others.
pub(super) const MODEL_POOL: &[&str] = &["pool", "weight"];

/// Keys of `[[model]]` about what the model can do.
pub(super) const MODEL_ABILITIES: &[&str] = &["allowed_batch_sizes", "lengths", "dims", "batch_axes"];

/// Keys of `[[model]]` about the processes that run it.
pub(super) const MODEL_WORKER: &[&str] =
    &["isolation", "python_path", "env", "working_folder", "start_timeout_ms", "max_memory_mb", "upstream_token_file"];

/// Keys of `[[model]]` about which of its versions answers whom.
pub(super) const MODEL_ROUTES: &[&str] = &["labels", "weights", "shadow"];

/// All keys of `[[model]]`.
pub(super) const MODEL: &[&[&str]] =
    &[MODEL_IDENTITY, MODEL_ROUTES, MODEL_WORKER, MODEL_ABILITIES, MODEL_POOL, MODEL_COMMON];

/// Keys of a `model.toml` in a folder of models.
pub(super) const MODEL_IN_FOLDER: &[&[&str]] =
    &[&["versions"], MODEL_ROUTES, MODEL_ABILITIES, MODEL_POOL, MODEL_COMMON];

/// Keys of `[[model]]` that may also be said for all models, in the environment.
pub(super) const MODEL_COMMON: &[&str] = &[
    "max_latency_ms",
    "max_batch_size",
    "device",
    "runners",
    "threads",
    "stuck_after_ms",
    "max_queue_rows",
    "max_queue_bytes",
];

/// Keys of `[[pool]]`.
pub(super) const POOL: &[&str] = &["name", "runners"];

/// Keys of `synthetic`.
pub(super) const SYNTHETIC: &[&str] = &["base_ms", "per_row_ms"];

/// The variable of a key.
pub(super) fn variable(key: &str) -> String {
    format!("UNCORK_{}", key.to_ascii_uppercase())
}
