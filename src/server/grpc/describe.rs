//! What the server and its models are, how they are configured and what they have done, as the calls of the protocol ask.

use std::time::{Duration, SystemTime};

use super::proto::inference::model_config::SchedulingChoice;
use super::proto::inference::model_instance_group::Kind;
use super::proto::inference::model_metadata_response::TensorMetadata;
use super::proto::inference::model_version_policy::{PolicyChoice, Specific};
use super::proto::inference::repository_index_response::ModelIndex;
use super::proto::inference::{
    DataType as Type, InferBatchStatistics, InferStatistics, ModelConfig, ModelDynamicBatching, ModelInput,
    ModelInstanceGroup, ModelMetadataResponse, ModelOutput, ModelParameter, ModelStatistics, ModelVersionPolicy,
    RepositoryIndexResponse, ServerMetadataResponse, StatisticDuration,
};
use crate::registry::{Device, Model, Priority, Registry, Timed, Totals};
use crate::runner::{Rows, TensorSpec};
use crate::server::app::App;
use crate::server::v2::metadata::EXTENSIONS;
use crate::server::v2::repository::{Availability, Entry, entries};
use crate::tensor::DataType;

pub(super) fn server() -> ServerMetadataResponse {
    ServerMetadataResponse {
        name: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        extensions: EXTENSIONS.iter().map(|&name| name.to_owned()).collect(),
    }
}

pub(super) fn metadata(registry: &Registry, model: &Model) -> ModelMetadataResponse {
    let tensor = |spec: &TensorSpec| TensorMetadata {
        name: spec.name.to_string(),
        datatype: spec.datatype.name().to_owned(),
        shape: spec.wire_shape(),
    };
    let signature = model.signature();
    ModelMetadataResponse {
        name: model.name().to_owned(),
        versions: registry.versions(model.name()),
        platform: model.platform().to_owned(),
        inputs: signature.inputs.iter().map(tensor).collect(),
        outputs: signature.outputs.iter().map(tensor).collect(),
    }
}

/// As `v2::description` has it in JSON.
pub(super) fn config(registry: &Registry, model: &Model) -> ModelConfig {
    let (spec, signature) = (model.spec(), model.signature());
    let is_plain = signature.inputs.iter().chain(&signature.outputs).all(|spec| spec.rows == Rows::Axis(0));
    let max_batch_size = if is_plain { whole(spec.max_batch_rows.get()) } else { 0 };
    let dims = |spec: &TensorSpec| spec.wire_shape()[usize::from(is_plain)..].to_vec();
    let input = |spec: &TensorSpec| ModelInput {
        name: spec.name.to_string(),
        data_type: data_type(spec.datatype).into(),
        dims: dims(spec),
    };
    let output = |spec: &TensorSpec| ModelOutput {
        name: spec.name.to_string(),
        data_type: data_type(spec.datatype).into(),
        dims: dims(spec),
    };
    let kind = if spec.device == Device::Flex { Kind::Cpu } else { Kind::Gpu };
    let latency = ModelParameter { string_value: format!("{}", spec.max_latency.as_secs_f64() * 1e3) };
    let rows = ModelParameter { string_value: model.row_execution().label().to_owned() };
    let batching = ModelDynamicBatching {
        preferred_batch_size: spec.allowed_batch_sizes.iter().map(whole).collect(),
        max_queue_delay_microseconds: 0,
        preserve_ordering: false,
        priority_levels: Priority::LOWEST.level().into(),
        default_priority_level: Priority::DEFAULT.level().into(),
    };
    let versions = registry.versions(model.name()).iter().map(|version| version.parse().unwrap_or(1)).collect();
    ModelConfig {
        name: model.name().to_owned(),
        platform: model.platform().to_owned(),
        backend: "uncork".to_owned(),
        version_policy: Some(ModelVersionPolicy { policy_choice: Some(PolicyChoice::Specific(Specific { versions })) }),
        max_batch_size,
        input: signature.inputs.iter().map(input).collect(),
        output: signature.outputs.iter().map(output).collect(),
        instance_group: vec![ModelInstanceGroup {
            name: model.name().to_owned(),
            kind: kind.into(),
            count: whole(spec.runners.get()),
        }],
        parameters: [("max_latency_ms".to_owned(), latency), ("rows".to_owned(), rows)].into_iter().collect(),
        scheduling_choice: (max_batch_size > 1).then_some(SchedulingChoice::DynamicBatching(batching)),
    }
}

fn whole(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

fn data_type(datatype: DataType) -> Type {
    match datatype {
        DataType::Bool => Type::TypeBool,
        DataType::Uint8 => Type::TypeUint8,
        DataType::Uint16 => Type::TypeUint16,
        DataType::Uint32 => Type::TypeUint32,
        DataType::Uint64 => Type::TypeUint64,
        DataType::Int8 => Type::TypeInt8,
        DataType::Int16 => Type::TypeInt16,
        DataType::Int32 => Type::TypeInt32,
        DataType::Int64 => Type::TypeInt64,
        DataType::Fp16 => Type::TypeFp16,
        DataType::Bf16 => Type::TypeBf16,
        DataType::Fp32 => Type::TypeFp32,
        DataType::Fp64 => Type::TypeFp64,
        DataType::Bytes => Type::TypeString,
    }
}

pub(super) fn statistics(model: &Model) -> ModelStatistics {
    let Totals { answered, unanswered, queue, input, infer, output, batches, last } = model.statistics();
    let since_1970 = last.and_then(|last| last.duration_since(SystemTime::UNIX_EPOCH).ok());
    let of_size = |(&rows, &timed): (&usize, &Timed)| InferBatchStatistics {
        batch_size: rows as u64,
        // Taking a batch apart and putting it together is part of its time.
        compute_input: spent(Timed { count: timed.count, time: Duration::ZERO }),
        compute_infer: spent(timed),
        compute_output: spent(Timed { count: timed.count, time: Duration::ZERO }),
    };
    ModelStatistics {
        name: model.name().to_owned(),
        version: model.version().to_owned(),
        last_inference: since_1970.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
        inference_count: batches.iter().map(|(&rows, timed)| rows as u64 * timed.count).sum(),
        execution_count: batches.values().map(|timed| timed.count).sum(),
        batch_stats: batches.iter().map(of_size).collect(),
        inference_stats: Some(InferStatistics {
            success: spent(answered),
            fail: spent(unanswered),
            queue: spent(queue),
            compute_input: spent(input),
            compute_infer: spent(infer),
            compute_output: spent(output),
            cache_hit: spent(Timed::default()),
            cache_miss: spent(Timed::default()),
        }),
    }
}

fn spent(timed: Timed) -> Option<StatisticDuration> {
    Some(StatisticDuration { count: timed.count, ns: u64::try_from(timed.time.as_nanos()).unwrap_or(u64::MAX) })
}

/// What is loaded, and, where that is wanted, what is being loaded or cannot be.
pub(super) fn index(app: &App, only_ready: bool) -> RepositoryIndexResponse {
    let entries = entries(app).into_iter().filter(|entry| !only_ready || entry.state == Availability::Ready);
    let entry =
        |Entry { name, version, state, reason }| ModelIndex { name, version, state: state.name().into(), reason };
    let models = entries.map(entry).collect();
    RepositoryIndexResponse { models }
}
