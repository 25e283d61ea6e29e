//! Loads a model's source and warms it up.

use std::borrow::Cow;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::away::Away;
use super::fill::filled;
use super::lengths::{self, LengthRules, Lengths};
use super::memory::Takes;
use super::spec::{Build, ModelSpec, Remotes, Runners, Source, cores};
use crate::batcher::BatchSizes;
#[cfg(feature = "onnx")]
use crate::onnx::{OnnxError, OnnxModel};
use crate::opaque;
use crate::quote::Quoted;
use crate::runner::synthetic::Synthetic;
use crate::runner::{Device, Runner, Signature, TensorSpec};
use crate::tensor::{DataType, Tensors};
use crate::upstream::{Settings, Upstream};
use crate::worker::{Limits, Program, Workers};

/// The digits model that is part of the program: `examples/digits`.
#[cfg(feature = "onnx")]
const DIGITS: &[u8] = include_bytes!("../../examples/digits/digits.onnx");
/// A batch that another server has not answered after so many latency caps, and no sooner than after the least time, is lost.
const ANSWER_CAPS: u32 = 4;
const LEAST_ANSWER: Duration = Duration::from_secs(1);
/// What a program without ONNX says of a model in a file.
#[cfg(not(feature = "onnx"))]
const WITHOUT_ONNX: &str = "this program was built without ONNX; build it with `cargo build --release --features onnx`";
/// Warm-up stops here, however slow the model: a server that starts is worth more than a perfect first estimate. Two sizes
/// make a line, so they are tried if twice this suffices.
const WARM_UP_TIME: Duration = Duration::from_millis(500);
/// The same on a device that compiles kernels at the first batch of each size: it is better done before there are requests.
const WARM_UP_DEVICE_TIME: Duration = Duration::from_secs(5);
/// A slow model has so many latency caps if that is more, up to this: what it has not tried, callers are refused for until it has.
const WARM_UP_CAPS: u32 = 4;
const WARM_UP_SLOW_TIME: Duration = Duration::from_secs(20);
/// One timed batch of a size is enough when the size has taken this long, its first batch included.
const WARM_UP_SIZE: Duration = Duration::from_millis(60);
/// Timed batches for each size: enough to tell one disturbed by the machine from the others.
const WARM_UP_ROUNDS: usize = 3;
/// Length that a free dimension gets in a warm-up batch of runners that the program builds itself.
const FREE_LENGTH: usize = 8;

/// A model that is loaded: builds as many runners as are wanted, which share its weights.
pub(crate) struct Loaded {
    pub(crate) platform: Cow<'static, str>,
    pub(crate) signature: Signature,
    /// Names of the columns of each output; empty where they have none, and where there are no outputs to name.
    pub(crate) labels: Vec<Vec<String>>,
    /// Why requests to it share no batch, if they do not.
    pub(crate) alone: Option<String>,
    /// Whether a batch is a single row, as far as the pool is concerned: answers to two may not go into one tensor.
    pub(crate) is_single: bool,
    /// A row that it takes.
    pub(crate) example: Tensors,
    /// Whether made-up rows can be run. Nobody can make up the bytes that a model takes which takes any.
    pub(crate) rehearses: bool,
    /// What is known of the memory that it takes.
    pub(super) takes: Takes,
    /// Makes a runner that computes on so many threads.
    pub(crate) build: Build,
    /// Where it runs, if that is not on threads of the pool: all its runners are this one.
    pub(super) away: Option<Away>,
}

/// Whether this program can compute on the device.
pub fn is_built(device: Device) -> bool {
    #[cfg(feature = "onnx")]
    return crate::onnx::device::is_built(device);
    #[cfg(not(feature = "onnx"))]
    return device == Device::Flex;
}

/// Reads and compiles the source. The error is a sentence for the operator.
pub(crate) fn load(spec: &ModelSpec) -> Result<Loaded, String> {
    match &spec.source {
        #[cfg(feature = "onnx")]
        Source::Embedded => onnx(OnnxModel::load_as(DIGITS, spec.device, &spec.shapes), spec.stuck_after),
        #[cfg(feature = "onnx")]
        Source::Onnx(path) => {
            let model = OnnxModel::open_as(path, spec.device, &spec.shapes);
            onnx(model, spec.stuck_after).map_err(|e| format!("{}: {e}", path.display()))
        }
        #[cfg(not(feature = "onnx"))]
        Source::Embedded | Source::Onnx(_) => Err(WITHOUT_ONNX.into()),
        Source::Runners(Runners { platform, build }) => {
            let (platform, build) = (*platform, Arc::clone(build));
            let signature = build(spec.threads).map_err(|e| e.to_string())?.signature().clone();
            Loaded::plain(platform, signature, build)
        }
        Source::Remote(Remotes { platform, remote }) => {
            let threads = spec.runners.min(cores());
            let away = Away::start(&spec.name, Arc::clone(remote), threads.get());
            Loaded::away(*platform, away.map_err(|error| format!("cannot start a thread: {error}"))?)
        }
        Source::Worker(program) => worker(spec, program.clone()),
        Source::Upstream(settings) => upstream(spec, settings.clone()),
        &Source::Synthetic { base, per_row } => {
            let signature = Synthetic::new(base, per_row).signature().clone();
            Loaded::plain("synthetic", signature, Arc::new(move |_| Ok(Box::new(Synthetic::new(base, per_row)))))
        }
    }
}

impl Loaded {
    /// A model of whose shapes nothing more is known than its signature says.
    fn plain(platform: impl Into<Cow<'static, str>>, signature: Signature, build: Build) -> Result<Loaded, String> {
        let (is_single, example, rehearses) =
            (signature.is_unbatched(), zeros(&signature)?, !opaque::is_opaque(&signature));
        let (platform, labels) = (platform.into(), Vec::new());
        let (alone, away, takes) = (None, None, Takes::default());
        Ok(Loaded { platform, signature, labels, alone, is_single, example, rehearses, takes, build, away })
    }

    /// The same of a model that is run somewhere else.
    fn away(platform: impl Into<Cow<'static, str>>, away: Away) -> Result<Loaded, String> {
        let (signature, runner) = (Runner::signature(&away).clone(), away.clone());
        let build: Build = Arc::new(move |_| Ok(Box::new(runner.clone())));
        Ok(Loaded { away: Some(away), ..Loaded::plain(platform, signature, build)? })
    }
}

impl Loaded {
    /// Whether it runs in other processes or on other machines: this one's memory says nothing of it.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.away.is_some()
    }

    /// Bytes that the values of one row have at most at one time; 0 where that is not known.
    #[cfg(feature = "onnx")]
    pub(crate) fn row_bytes(&self) -> u64 {
        self.takes.of_row
    }
}

/// Starts the model's workers.
fn worker(spec: &ModelSpec, program: Program) -> Result<Loaded, String> {
    let limits = Limits {
        workers: spec.runners.get(),
        max_batch_rows: spec.max_batch_rows.get(),
        max_latency: spec.max_latency,
        stuck_after: spec.stuck_after,
    };
    let (name, threads) = (spec.name.clone(), spec.runners.min(cores()).get());
    let begin = async move { Workers::start(&name, program, limits).await };
    let begun = Away::begin(&spec.name, begin, threads).map_err(|error| format!("cannot start a thread: {error}"))?;
    let (away, workers) = begun.map_err(|error| error.to_string())?;
    let loaded = Loaded::away(workers.platform().to_owned(), away)?;
    Ok(match workers.example() {
        Some(example) => Loaded { example: example.clone(), rehearses: true, ..loaded },
        None => loaded,
    })
}

/// Finds the servers that the model is on.
fn upstream(spec: &ModelSpec, settings: Settings) -> Result<Loaded, String> {
    let most = (spec.max_latency * ANSWER_CAPS).max(LEAST_ANSWER).min(spec.stuck_after);
    let connect = async move { Upstream::connect(settings, most).await };
    let begun = Away::begin(&spec.name, connect, spec.runners.min(cores()).get());
    let (away, _) = begun.map_err(|error| format!("cannot start a thread: {error}"))??;
    Loaded::away("upstream", away)
}

#[cfg(feature = "onnx")]
fn onnx(model: Result<OnnxModel, OnnxError>, stuck_after: Duration) -> Result<Loaded, String> {
    let model = model.map_err(|e| e.to_string())?;
    opaque::check_tensors(model.signature())?;
    Ok(Loaded {
        platform: "onnx_burn".into(),
        signature: model.signature().clone(),
        labels: model.labels(),
        alone: model.alone().map(ToString::to_string),
        is_single: (model.signature().is_unbatched() || model.alone().is_some()) && model.is_unsteady(),
        example: model.example().clone(),
        rehearses: true,
        takes: Takes { held: model.constant_bytes(), of_row: model.row_bytes() },
        build: Arc::new(move |threads| Ok(Box::new(model.runner(threads).giving_up_after(stuck_after)))),
        away: None,
    })
}

/// Builds as many runners as are asked for. The error is a sentence for the operator.
pub(super) fn runners(build: &Build, spec: &ModelSpec) -> Result<Vec<Box<dyn Runner>>, String> {
    let one = |_| match catch_unwind(AssertUnwindSafe(|| build(spec.threads))) {
        Ok(built) => built.map_err(|error| format!("a runner cannot be built: {error}")),
        Err(_) => Err("building a runner panicked; the log has the reason".to_owned()),
    };
    (0..spec.runners.get()).map(one).collect()
}

impl Loaded {
    /// Runs the batches that a server would run before it is ready, and says of which row; `None` of a model that has none.
    pub(crate) fn try_out(&self, spec: &ModelSpec) -> Result<Option<&'static str>, String> {
        if !self.rehearses {
            return Ok(None);
        }
        let mut runner = (self.build)(spec.threads).map_err(|error| error.to_string())?;
        let sizes = warm_up_sizes(&spec.allowed_batch_sizes, spec.max_batch_rows.get());
        warm_up(&mut *runner, &self.example, &sizes, spec.device, spec.max_latency)?;
        padding(&self.build, spec, &self.example)?;
        let is_made_up = zeros(&self.signature).is_ok_and(|row| row == self.example);
        Ok(Some(if is_made_up { "a row of zeros" } else { "its example" }))
    }
}

/// The sizes that the model can be asked for, up to its cap: every allowed one, or 1, 2, 4 … where any is.
pub(super) fn warm_up_sizes(sizes: &BatchSizes, max_rows: usize) -> Vec<usize> {
    if !sizes.is_any() {
        return sizes.iter().collect();
    }
    (0..usize::BITS).map(|i| 1usize << i).take_while(|&n| n < max_rows).chain([max_rows]).collect()
}

/// Runs batches of these sizes, made of the same row, and returns their sizes and times. The first run of each size is not timed: in it
/// buffers are made, a graphics processor compiles and tunes its kernels, and a runner of several threads tries how they best share
/// such a batch. The error is a sentence for the operator.
pub(super) fn warm_up(
    runner: &mut dyn Runner,
    example: &Tensors,
    sizes: &[usize],
    device: Device,
    cap: Duration,
) -> Result<Vec<(usize, Duration)>, String> {
    timed(sizes, device, cap, |rows| rehearse(runner, example, rows))
}

/// The same of what runs a batch of so many rows and says how long it took.
fn timed(
    sizes: &[usize],
    device: Device,
    cap: Duration,
    mut run: impl FnMut(usize) -> Result<Duration, String>,
) -> Result<Vec<(usize, Duration)>, String> {
    let compiles = device != Device::Flex;
    let usual = if compiles { WARM_UP_DEVICE_TIME } else { WARM_UP_TIME };
    let budget = cap.saturating_mul(WARM_UP_CAPS).min(WARM_UP_SLOW_TIME).max(usual);
    let mut spent = Duration::ZERO;
    let mut timed: Vec<(usize, Duration)> = Vec::new();
    for &rows in sizes {
        let mut of_size = Duration::ZERO;
        if let Some(&(before, time)) = timed.last() {
            let expected = next_time(&timed, rows);
            let most = if before == sizes[0] { budget.max(2 * usual) } else { budget };
            // What is never in time is not worth the wait, once there is a line.
            if spent + expected > most || (time > cap && before != sizes[0]) {
                break;
            }
        }
        for round in 0..=WARM_UP_ROUNDS {
            let time = run(rows)?;
            if round > 0 || !compiles {
                of_size += time;
            }
            if round > 0 {
                timed.push((rows, time));
            }
            if round > 0 && of_size > WARM_UP_SIZE {
                break;
            }
        }
        spent += of_size;
    }
    Ok(timed)
}

/// How long a batch of so many rows takes by the last two sizes, or in proportion to the only one.
fn next_time(timed: &[(usize, Duration)], rows: usize) -> Duration {
    let Some(&(many, long)) = timed.last() else { return Duration::ZERO };
    let before = timed.iter().rev().find(|(few, _)| *few < many);
    let &(few, short) = before.unwrap_or(&(0, Duration::ZERO));
    long + long.saturating_sub(short).mul_f64((rows - many) as f64 / (many - few) as f64)
}

/// Says what came of [`warm_up`].
pub(super) fn log_warm_up(spec: &ModelSpec, seen: &[(usize, Duration)]) {
    let ms = |i: Option<&(usize, Duration)>| i.map_or(0.0, |(_, t)| t.as_secs_f64() * 1e3);
    if seen.is_empty() {
        tracing::info!(model = spec.name, version = spec.version, "not warmed up: it has no example of a request");
        return;
    }
    let (smallest, largest) = (ms(seen.first()), ms(seen.last()));
    let rows = seen.last().map_or(0, |(rows, _)| *rows);
    tracing::info!(
        model = spec.name,
        version = spec.version,
        "warmed up: a batch of 1 takes {smallest:.2} ms, one of {rows} {largest:.2} ms"
    );
}

/// Runs a batch of so many equal rows, and returns how long that took. The error is a sentence for the operator.
pub(super) fn rehearse(runner: &mut dyn Runner, example: &Tensors, rows: usize) -> Result<Duration, String> {
    let batch = example.clone().resize_rows(rows).map_err(|e| e.to_string())?;
    let begin = Instant::now();
    let outputs = runner.rehearse(batch).map_err(|e| format!("{} failed: {e}", batch_of(rows)))?;
    let time = begin.elapsed();
    others(runner.signature(), &outputs, rows).map_or(Ok(time), Err)
}

fn batch_of(rows: usize) -> String {
    if rows == 1 { "a batch of one row".to_owned() } else { format!("a batch of {rows} equal rows") }
}

/// What such a batch gave that the model does not declare, in a sentence for the operator.
pub(super) fn others(signature: &Signature, outputs: &Tensors, rows: usize) -> Option<String> {
    if signature.agrees(outputs, rows) {
        return None;
    }
    let shown =
        |name: &str, datatype: DataType, shape: &dyn Debug| format!("{} {} {shape:?}", Quoted(name), datatype.name());
    let given = outputs.iter().map(|(name, tensor)| shown(name, tensor.data().datatype(), &tensor.shape()));
    let told = signature.outputs.iter().map(|spec| shown(&spec.name, spec.datatype, &spec.wire_shape()));
    Some(format!(
        "{} gave {} where the model declares {}: what it gives must be as declared, and have a row for each row that it takes",
        batch_of(rows),
        given.collect::<Vec<_>>().join(", "),
        told.collect::<Vec<_>>().join(", "),
    ))
}

/// Runs one row: what a runner sets up at its first batch is then set up before the first request. Whether the row succeeds
/// was found out by [`warm_up`].
pub(super) fn ready(runner: &mut dyn Runner, example: &Tensors) {
    let _ = runner.rehearse(example.clone());
}

/// Learns how to pad the model's rows to one length, where that is asked for. The error is a sentence for the operator.
pub(super) fn padding(build: &Build, spec: &ModelSpec, example: &Tensors) -> Result<Option<Arc<LengthRules>>, String> {
    // Batches of one row hold a single request.
    if spec.lengths == Lengths::Group || spec.max_batch_rows.get() == 1 {
        return Ok(None);
    }
    let fresh = || build(spec.threads).map_err(|error| format!("a runner cannot be built: {error}"));
    lengths::learn(&fresh, example)
}

/// A row of zeros.
fn zeros(signature: &Signature) -> Result<Tensors, String> {
    let dims = |spec: &TensorSpec| spec.dims.iter().map(|dim| dim.unwrap_or(FREE_LENGTH)).collect();
    filled(signature, &signature.inputs.iter().map(dims).collect::<Vec<_>>(), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "onnx")]
    #[test]
    fn a_file_whose_names_are_those_of_any_body_is_refused_in_words() {
        // Identity of the texts `request` [N], which gives `answer`.
        let file = b"\x08\x08:O\x0a\x1b\x0a\x07request\x12\x06answer\"\x08Identity\x12\x01gZ\x16\x0a\x07request\x12\x0b\x0a\x09\x08\x08\
            \x12\x05\x0a\x03\x12\x01Nb\x15\x0a\x06answer\x12\x0b\x0a\x09\x08\x08\x12\x05\x0a\x03\x12\x01NB\x04\x0a\x00\x10\x11";
        let loaded = |file: &[u8]| onnx(OnnxModel::load(file), Duration::from_secs(1)).map(drop);
        assert!(loaded(file).is_err_and(|why| why.contains("takes BYTES 'request' and gives BYTES 'answer'")));
        // Any other name is a model's own.
        let other: Vec<u8> = String::from_utf8_lossy(file).replace("answer", "result").into_bytes();
        assert_eq!(loaded(&other), Ok(()));
    }

    const CAP: Duration = Duration::from_millis(100);

    /// A model of 300 ms was tried with a single row, and callers were refused for most of a minute while it learned on.
    #[test]
    fn a_slow_model_is_tried_with_all_sizes_that_can_be_in_time() {
        let sizes_of = |cap: u64, base: u64, per_row: u64| {
            let run = |rows: usize| Ok(Duration::from_millis(base + per_row * rows as u64));
            let timed =
                timed(&[1, 2, 4, 8, 16, 32, 64], Device::Flex, Duration::from_millis(cap), run).expect("it runs");
            timed.iter().map(|(rows, _)| *rows).collect::<Vec<_>>()
        };
        assert_eq!(sizes_of(2000, 300, 1), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(sizes_of(2000, 100, 100), [1, 2, 4, 8, 16], "one of 16 takes 1.7 s, and one of 32 would take 3.3");
        assert_eq!(sizes_of(600_000, 9000, 0), [1], "nobody waits for minutes");
    }

    #[test]
    fn warm_up_of_a_slow_model_ends_when_two_sizes_make_a_line() {
        let mut runner = Synthetic::new(Duration::from_millis(100), Duration::from_millis(50));
        let example = zeros(runner.signature()).expect("a row");
        let timed = warm_up(&mut runner, &example, &[1, 2, 4, 8, 16], Device::Flex, CAP).expect("it runs");
        assert_eq!(timed.iter().map(|(rows, _)| *rows).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn warm_up_times_every_size_and_leaves_its_first_run_out() {
        let mut runner = Synthetic::new(Duration::ZERO, Duration::ZERO);
        let example = zeros(runner.signature()).expect("a row");
        let timed = warm_up(&mut runner, &example, &[1, 2, 6], Device::Flex, CAP).expect("it runs");
        let sizes: Vec<usize> = timed.iter().map(|(rows, _)| *rows).collect();
        assert_eq!(sizes, [1, 2, 6].map(|rows| [rows; WARM_UP_ROUNDS]).concat());
    }

    #[test]
    fn what_only_the_first_run_of_a_size_takes_is_no_batch_time() {
        let sizes_timed = |device| {
            let mut runs = Vec::new();
            let run = |rows: usize| {
                let is_first = !runs.contains(&rows);
                runs.push(rows);
                Ok(Duration::from_millis(if is_first { 3000 } else { 1 }))
            };
            timed(&[1, 2, 4, 8], device, CAP, run).expect("it runs")
        };
        let on_device = sizes_timed(Device::Wgpu);
        assert_eq!(on_device, [1, 2, 4, 8].map(|rows| [(rows, Duration::from_millis(1)); WARM_UP_ROUNDS]).concat());
        // What a processor takes for it is taken from the time to warm up.
        assert_eq!(sizes_timed(Device::Flex), [(1, Duration::from_millis(1))]);
    }
}
