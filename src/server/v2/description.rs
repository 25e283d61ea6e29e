//! How a model is configured, and what it has done, in the form that Triton's clients read.
//!
//! Source: the extensions of the Open Inference Protocol v2 for model configuration and statistics
//! (<https://github.com/triton-inference-server/server/tree/main/docs/protocol>). Batch sizes and counts of inferences are rows.

use std::time::SystemTime;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

use crate::registry::{Device, Model, Priority, Timed, Totals};
use crate::runner::{Rows, TensorSpec};
use crate::server::app::{App, Named, json as answer};
use crate::tensor::DataType;

/// `GET /v2/models/{model}[/versions/{version}]/config`
pub(in crate::server) async fn config(State(app): State<App>, Named(model): Named) -> Response {
    answer(StatusCode::OK, &config_of(&model, &app.registry.versions(model.name())))
}

fn config_of(model: &Model, versions: &[String]) -> Value {
    let (spec, signature) = (model.spec(), model.signature());
    // A client adds the batch axis in front where there is a batch size, so that is 0 where rows are anywhere else.
    let is_plain = signature.inputs.iter().chain(&signature.outputs).all(|spec| spec.rows == Rows::Axis(0));
    let max_batch_size = if is_plain { spec.max_batch_rows.get() } else { 0 };
    let tensor = |spec: &TensorSpec| {
        let dims = &spec.wire_shape()[usize::from(is_plain)..];
        json!({"name": &*spec.name, "data_type": data_type(spec.datatype), "dims": dims})
    };
    let mut config = json!({
        "name": model.name(),
        "platform": model.platform(),
        "backend": "uncork",
        "version_policy": {"specific": {"versions": versions.iter().map(|version| version.parse().unwrap_or(1u64)).collect::<Vec<_>>()}},
        "max_batch_size": max_batch_size,
        "input": signature.inputs.iter().map(tensor).collect::<Vec<_>>(),
        "output": signature.outputs.iter().map(tensor).collect::<Vec<_>>(),
        "instance_group": [{"name": model.name(), "kind": kind(spec.device), "count": spec.runners.get()}],
        "parameters": {
            "max_latency_ms": {"string_value": format!("{}", spec.max_latency.as_secs_f64() * 1e3)},
            "rows": {"string_value": model.row_execution().label()},
        },
    });
    if max_batch_size > 1 {
        config["dynamic_batching"] = json!({
            "preferred_batch_size": spec.allowed_batch_sizes.iter().collect::<Vec<_>>(),
            // How long a batch is held is found out anew for each, and set nowhere.
            "max_queue_delay_microseconds": 0,
            "preserve_ordering": false,
            "priority_levels": Priority::LOWEST.level(),
            "default_priority_level": Priority::DEFAULT.level(),
        });
    }
    config
}

fn kind(device: Device) -> &'static str {
    if device == Device::Flex { "KIND_CPU" } else { "KIND_GPU" }
}

/// The type's name in configurations.
fn data_type(datatype: DataType) -> String {
    if datatype == DataType::Bytes { "TYPE_STRING".to_owned() } else { format!("TYPE_{}", datatype.name()) }
}

#[derive(Serialize)]
struct Statistics<'a> {
    model_stats: Vec<OfModel<'a>>,
}

#[derive(Serialize)]
struct OfModel<'a> {
    name: &'a str,
    version: &'a str,
    /// Milliseconds since 1970; 0 before the first.
    last_inference: u64,
    /// Rows.
    inference_count: u64,
    /// Batches.
    execution_count: u64,
    inference_stats: OfRequests,
    batch_stats: Vec<OfBatches>,
}

#[derive(Serialize)]
struct OfRequests {
    success: Spent,
    fail: Spent,
    queue: Spent,
    compute_input: Spent,
    compute_infer: Spent,
    compute_output: Spent,
    cache_hit: Spent,
    cache_miss: Spent,
}

#[derive(Serialize)]
struct OfBatches {
    batch_size: usize,
    compute_input: Spent,
    compute_infer: Spent,
    compute_output: Spent,
}

#[derive(Default, Serialize)]
struct Spent {
    count: u64,
    ns: u64,
}

impl From<Timed> for Spent {
    fn from(timed: Timed) -> Spent {
        Spent { count: timed.count, ns: u64::try_from(timed.time.as_nanos()).unwrap_or(u64::MAX) }
    }
}

/// `GET /v2/models/{model}[/versions/{version}]/stats`
pub(in crate::server) async fn statistics(Named(model): Named) -> Response {
    answer(StatusCode::OK, &Statistics { model_stats: vec![statistics_of(&model)] })
}

/// `GET /v2/models/stats`
pub(in crate::server) async fn all_statistics(State(app): State<App>) -> Response {
    let models = app.registry.models();
    let model_stats = models.iter().map(|model| statistics_of(model)).collect();
    answer(StatusCode::OK, &Statistics { model_stats })
}

fn statistics_of(model: &Model) -> OfModel<'_> {
    let Totals { answered, unanswered, queue, input, infer, output, batches, last } = model.statistics();
    let since_1970 = last.and_then(|last| last.duration_since(SystemTime::UNIX_EPOCH).ok());
    let of_size = |(&batch_size, &timed): (&usize, &Timed)| OfBatches {
        batch_size,
        // Taking a batch apart and putting it together is part of its time.
        compute_input: Spent { count: timed.count, ns: 0 },
        compute_infer: timed.into(),
        compute_output: Spent { count: timed.count, ns: 0 },
    };
    OfModel {
        name: model.name(),
        version: model.version(),
        last_inference: since_1970.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
        inference_count: batches.iter().map(|(&rows, timed)| rows as u64 * timed.count).sum(),
        execution_count: batches.values().map(|timed| timed.count).sum(),
        batch_stats: batches.iter().map(of_size).collect(),
        inference_stats: OfRequests {
            success: answered.into(),
            fail: unanswered.into(),
            queue: queue.into(),
            compute_input: input.into(),
            compute_infer: infer.into(),
            compute_output: output.into(),
            cache_hit: Spent::default(),
            cache_miss: Spent::default(),
        },
    }
}
