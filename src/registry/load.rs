//! Loads a model's source and warms it up.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::lengths::Padded;
use super::spec::{ModelSpec, Runners, Source};
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
/// Largest difference, absolute plus relative, that padding may make: sums run over more numbers, some of them zero.
const PADDING_NOISE: f32 = 1e-3;

/// A model that is loaded: builds as many runners as are wanted, which share its weights.
pub(crate) struct Loaded {
    pub(crate) platform: &'static str,
    pub(crate) signature: Signature,
    /// Names of the dimensions behind the batch axis, for each input; empty where they have none.
    pub(crate) dimensions: Vec<Vec<String>>,
    /// Why it runs one row at a time, if it does.
    pub(crate) alone: Option<String>,
    /// Makes a runner that computes on so many threads.
    pub(crate) build: Arc<dyn Fn(NonZeroUsize) -> Box<dyn Runner> + Send + Sync>,
}

/// Reads and compiles the source. The error is a sentence for the operator.
pub(crate) fn load(spec: &ModelSpec) -> Result<Loaded, String> {
    match &spec.source {
        Source::Embedded => onnx(OnnxModel::load_on(DIGITS, spec.device)),
        Source::Onnx(path) => {
            onnx(OnnxModel::open_on(path, spec.device)).map_err(|e| format!("{}: {e}", path.display()))
        }
        Source::Runners(Runners { platform, build }) => {
            let (platform, build) = (*platform, Arc::clone(build));
            let signature = build(spec.threads).signature().clone();
            Ok(Loaded { platform, signature, dimensions: Vec::new(), alone: None, build })
        }
        &Source::Synthetic { base, per_row } => Ok(Loaded {
            platform: "synthetic",
            signature: Synthetic::new(base, per_row).signature().clone(),
            dimensions: Vec::new(),
            alone: None,
            build: Arc::new(move |_| Box::new(Synthetic::new(base, per_row))),
        }),
    }
}

fn onnx(model: Result<OnnxModel, OnnxError>) -> Result<Loaded, String> {
    let model = model.map_err(|e| e.to_string())?;
    Ok(Loaded {
        platform: "onnx_burn",
        signature: model.signature().clone(),
        dimensions: model.dimensions().iter().map(|names| names.iter().map(ToString::to_string).collect()).collect(),
        alone: model.alone().map(ToString::to_string),
        build: Arc::new(move |threads| Box::new(model.runner(threads))),
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
            let outputs = runner.rehearse(batch).map_err(|e| format!("a batch of {rows} rows of zeros failed: {e}"))?;
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
        let _ = runner.rehearse(row);
    }
    runner
}

/// Whether rows padded with zeros are answered as they are without. The error is a sentence for the operator.
pub(super) fn bears_padding(runner: &mut dyn Runner) -> Result<(), String> {
    let signature = runner.signature().clone();
    let (short, long) = (filled(&signature, 1, FREE_LENGTH / 2, 1)?, filled(&signature, 1, FREE_LENGTH, 1)?);
    let mut run = |batch: Tensors| runner.rehearse(batch).map_err(|e| format!("a batch of ones failed: {e}"));
    let alone = run(short.clone())?;
    let unclear = || "its free dimensions cannot be told apart".to_owned();
    let padded = Padded::of(&signature, &[short.clone(), long]).ok_or_else(unclear)?;
    let answer = run(padded.pad(&signature, short).map_err(|e| e.to_string())?)?;
    let answer = padded.cut(&signature, 0, answer).map_err(|e| e.to_string())?;
    for ((name, alone), (_, padded)) in alone.iter().zip(answer.iter()) {
        let same = match (alone.data(), padded.data()) {
            (Data::Fp32(a), Data::Fp32(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= PADDING_NOISE * (1.0 + a.abs()))
            }
            (a, b) => a == b,
        };
        if !same {
            return Err(format!(
                "output '{name}' changes when rows are padded with zeros, so lengths = \"pad\" would answer wrongly; does the \
                 model take a mask as an input? If not, use lengths = \"group\""
            ));
        }
    }
    Ok(())
}

fn zeros(signature: &Signature, rows: usize) -> Result<Tensors, String> {
    filled(signature, rows, FREE_LENGTH, 0)
}

/// Rows of one number, with `length` for each free dimension.
fn filled(signature: &Signature, rows: usize, length: usize, number: u8) -> Result<Tensors, String> {
    let tensors = signature.inputs.iter().map(|spec| {
        let dims = spec.dims.iter().map(|d| d.unwrap_or(length));
        let shape: Vec<usize> = std::iter::once(rows).chain(dims).collect();
        let count = crate::tensor::elements(&shape).map_err(|e| e.to_string())?;
        let tensor = Tensor::new(shape, constant(spec.datatype, count, number)).map_err(|e| e.to_string())?;
        Ok((Arc::clone(&spec.name), tensor))
    });
    Tensors::new(tensors.collect::<Result<_, String>>()?).map_err(|e| e.to_string())
}

fn constant(datatype: DataType, count: usize, number: u8) -> Data {
    match datatype {
        DataType::Bool => Data::Bool(vec![number != 0; count]),
        DataType::Uint8 => Data::Uint8(vec![number; count]),
        DataType::Uint16 => Data::Uint16(vec![number.into(); count]),
        DataType::Uint32 => Data::Uint32(vec![number.into(); count]),
        DataType::Uint64 => Data::Uint64(vec![number.into(); count]),
        DataType::Int8 => Data::Int8(vec![number as i8; count]),
        DataType::Int16 => Data::Int16(vec![number.into(); count]),
        DataType::Int32 => Data::Int32(vec![number.into(); count]),
        DataType::Int64 => Data::Int64(vec![number.into(); count]),
        DataType::Fp16 => Data::Fp16(vec![half::f16::from(number); count]),
        DataType::Bf16 => Data::Bf16(vec![half::bf16::from(number); count]),
        DataType::Fp32 => Data::Fp32(vec![number.into(); count]),
        DataType::Fp64 => Data::Fp64(vec![number.into(); count]),
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
