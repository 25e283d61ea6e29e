//! Loads a model's source and warms it up.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::spec::{ModelSpec, Source};
use crate::runner::onnx::{OnnxError, OnnxModel};
use crate::runner::synthetic::Synthetic;
use crate::runner::{Runner, Signature};
use crate::tensor::{Data, DataType, Tensor, Tensors};

/// The digits model that is part of the program: `examples/digits`.
const DIGITS: &[u8] = include_bytes!("../../examples/digits/digits.onnx");
/// Warm-up stops here, however slow the model: a server that starts is worth more than a perfect first estimate.
const WARM_UP_TIME: Duration = Duration::from_secs(5);
/// Timed batches for each size: enough to tell one disturbed by the machine from the others.
const WARM_UP_ROUNDS: usize = 3;
/// Length that a free dimension gets in a warm-up batch.
const FREE_LENGTH: usize = 8;

/// A model that is loaded: builds as many runners as are wanted, which share its weights.
pub(super) struct Loaded {
    pub(super) platform: &'static str,
    pub(super) signature: Signature,
    pub(super) build: Arc<dyn Fn() -> Box<dyn Runner> + Send + Sync>,
}

/// Reads and compiles the source. The error is a sentence for the operator.
pub(super) fn load(spec: &ModelSpec) -> Result<Loaded, String> {
    match &spec.source {
        Source::Embedded => onnx(&spec.name, OnnxModel::load(DIGITS), spec.threads),
        Source::Onnx(path) => {
            onnx(&spec.name, OnnxModel::open(path), spec.threads).map_err(|e| format!("{}: {e}", path.display()))
        }
        &Source::Synthetic { base, per_row } => Ok(Loaded {
            platform: "synthetic",
            signature: Synthetic::new(base, per_row).signature().clone(),
            build: Arc::new(move || Box::new(Synthetic::new(base, per_row))),
        }),
    }
}

fn onnx(name: &str, model: Result<OnnxModel, OnnxError>, threads: NonZeroUsize) -> Result<Loaded, String> {
    let model = model.map_err(|e| e.to_string())?;
    if let Some(why) = model.alone() {
        tracing::warn!(model = name, "runs one row at a time, so that batching gains nothing: {why}");
    }
    Ok(Loaded {
        platform: "onnx_burn",
        signature: model.signature().clone(),
        build: Arc::new(move || Box::new(model.runner(threads))),
    })
}

/// Runs batches of zeros of these sizes and returns their sizes and times. The first run of each size, which can be many
/// times slower, is not timed. The error is a sentence for the operator.
pub(super) fn warm_up(runner: &mut dyn Runner, sizes: &[usize]) -> Result<Vec<(usize, Duration)>, String> {
    let start = Instant::now();
    let mut timed = Vec::new();
    for &rows in sizes {
        for round in 0..=WARM_UP_ROUNDS {
            let batch = zeros(runner.signature(), rows)?;
            let begin = Instant::now();
            let outputs = runner.run(batch).map_err(|e| format!("a batch of {rows} rows of zeros failed: {e}"))?;
            let time = begin.elapsed();
            if !runner.signature().agrees(&outputs, rows) {
                return Err(format!("a batch of {rows} rows of zeros gave outputs of another shape"));
            }
            if round > 0 {
                timed.push((rows, time));
            }
            if start.elapsed() > WARM_UP_TIME && !timed.is_empty() {
                return Ok(timed);
            }
        }
    }
    Ok(timed)
}

/// Runs one row on the thread that is to own `runner`: what a runner sets up at its first batch is then set up before the
/// first request. Whether the row succeeds was found out by [`warm_up`].
pub(super) fn ready(mut runner: Box<dyn Runner>) -> Box<dyn Runner> {
    if let Ok(row) = zeros(runner.signature(), 1) {
        let _ = runner.run(row);
    }
    runner
}

fn zeros(signature: &Signature, rows: usize) -> Result<Tensors, String> {
    let tensors = signature.inputs.iter().map(|spec| {
        let dims = spec.dims.iter().map(|d| d.unwrap_or(FREE_LENGTH));
        let shape: Vec<usize> = std::iter::once(rows).chain(dims).collect();
        let count = crate::tensor::elements(&shape).map_err(|e| e.to_string())?;
        let tensor = Tensor::new(shape, zero_data(spec.datatype, count)).map_err(|e| e.to_string())?;
        Ok((Arc::clone(&spec.name), tensor))
    });
    Tensors::new(tensors.collect::<Result<_, String>>()?).map_err(|e| e.to_string())
}

fn zero_data(datatype: DataType, count: usize) -> Data {
    match datatype {
        DataType::Bool => Data::Bool(vec![false; count]),
        DataType::Uint8 => Data::Uint8(vec![0; count]),
        DataType::Uint16 => Data::Uint16(vec![0; count]),
        DataType::Uint32 => Data::Uint32(vec![0; count]),
        DataType::Uint64 => Data::Uint64(vec![0; count]),
        DataType::Int8 => Data::Int8(vec![0; count]),
        DataType::Int16 => Data::Int16(vec![0; count]),
        DataType::Int32 => Data::Int32(vec![0; count]),
        DataType::Int64 => Data::Int64(vec![0; count]),
        DataType::Fp16 => Data::Fp16(vec![half::f16::ZERO; count]),
        DataType::Bf16 => Data::Bf16(vec![half::bf16::ZERO; count]),
        DataType::Fp32 => Data::Fp32(vec![0.0; count]),
        DataType::Fp64 => Data::Fp64(vec![0.0; count]),
        DataType::Bytes => Data::Bytes(vec![Vec::new(); count]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_times_every_size_and_leaves_its_first_run_out() {
        let mut runner = Synthetic::new(Duration::ZERO, Duration::ZERO);
        let timed = warm_up(&mut runner, &[1, 2, 6]).expect("it runs");
        let sizes: Vec<usize> = timed.iter().map(|(rows, _)| *rows).collect();
        assert_eq!(sizes, [1, 2, 6].map(|rows| [rows; WARM_UP_ROUNDS]).concat());
    }
}
