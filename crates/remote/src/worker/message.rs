//! What frames say: tensors, a worker's introduction, and what went wrong. Pure.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uncork_model::quote::Quoted;
use uncork_model::raw;
use uncork_model::runner::{Hooks, RunnerError, Signature, TensorSpec};
use uncork_model::tensor::{DataType, Tensor, Tensors, elements};

use super::WorkerError;
use super::frame::{self, Order};

/// Most inputs, outputs and rows that are named: more than any model has.
const MOST_TENSORS: usize = 4096;
/// Most axes of a tensor.
const MOST_AXES: usize = 32;

/// The meta of *setup*.
#[derive(Debug, Serialize)]
pub(super) struct Setup<'a> {
    pub(super) version: u32,
    pub(super) model: &'a str,
    pub(super) max_batch_size: usize,
    pub(super) max_latency_ms: f64,
    pub(super) runners: usize,
    pub(super) target: Option<&'a str>,
    pub(super) hooks: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct TensorMeta<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    datatype: Cow<'a, str>,
    shape: Vec<u64>,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct RunMeta<'a> {
    inputs: Vec<TensorMeta<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    rehearsal: bool,
}

#[derive(Debug, Deserialize)]
struct DoneMeta<'a> {
    #[serde(borrow, default)]
    outputs: Vec<TensorMeta<'a>>,
}

#[derive(Debug, Deserialize)]
struct ReadyMeta<'a> {
    protocol: Option<u32>,
    #[serde(default)]
    platform: String,
    #[serde(borrow, default)]
    inputs: Vec<SpecMeta<'a>>,
    #[serde(borrow, default)]
    outputs: Vec<SpecMeta<'a>>,
    #[serde(borrow, default)]
    example: Vec<TensorMeta<'a>>,
    concurrency: Option<usize>,
    #[serde(borrow, default)]
    hooks: Vec<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
struct SpecMeta<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    datatype: Cow<'a, str>,
    shape: Vec<i64>,
}

#[derive(Debug, Deserialize)]
struct FailedMeta {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    rows: Vec<(usize, String)>,
}

/// What a worker says of itself when it is ready.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ready {
    pub(super) platform: String,
    pub(super) signature: Signature,
    pub(super) example: Option<Tensors>,
    pub(super) concurrency: usize,
    pub(super) hooks: Hooks,
}

fn broken(why: impl Into<String>) -> WorkerError {
    WorkerError::Protocol(why.into())
}

fn parsed<'a, T: Deserialize<'a>>(meta: &'a [u8], word: &str) -> Result<T, WorkerError> {
    let meta = if meta.is_empty() { b"{}" } else { meta };
    serde_json::from_slice(meta).map_err(|error| broken(format!("the JSON of '{word}' cannot be read: {error}")))
}

/// The frame that has a batch run, or a hook.
pub(super) fn call(order: Order, id: u64, batch: &Tensors, rehearsal: bool) -> Result<Vec<u8>, WorkerError> {
    let mut data = 0usize;
    let inputs = batch.iter().map(|(name, tensor)| {
        let bytes = raw::len(tensor.data());
        data = data.saturating_add(bytes);
        let shape = tensor.shape().iter().map(|&n| n as u64).collect();
        let datatype = Cow::Borrowed(tensor.data().datatype().name());
        TensorMeta { name: Cow::Borrowed(name), datatype, shape, bytes: bytes as u64 }
    });
    let meta = RunMeta { inputs: inputs.collect(), rehearsal };
    let meta = serde_json::to_vec(&meta).expect("names and numbers have a JSON form");
    frame::written(order, id, &meta, data, |to| batch.iter().for_each(|(_, t)| raw::write(t.data(), to)))
}

/// The frame that begins everything.
pub(super) fn setup(setup: &Setup<'_>) -> Result<Vec<u8>, WorkerError> {
    let meta = serde_json::to_vec(setup).expect("names and numbers have a JSON form");
    frame::written(Order::Setup, 0, &meta, 0, |_| {})
}

/// The tensors of *done*, in the order of `specs`.
pub(super) fn done(meta: &[u8], data: &[u8], specs: &[TensorSpec]) -> Result<Tensors, WorkerError> {
    let DoneMeta { outputs } = parsed(meta, "done")?;
    tensors(&outputs, data, specs)
}

/// The tensors that are announced, one for each of `specs` and in their order.
fn tensors(announced: &[TensorMeta<'_>], mut data: &[u8], specs: &[TensorSpec]) -> Result<Tensors, WorkerError> {
    let mut found: Vec<Option<Tensor>> = vec![None; specs.len()];
    for TensorMeta { name, datatype, shape, bytes } in announced {
        let at = specs.iter().position(|spec| *spec.name == **name);
        let name = Quoted(name);
        let at = at.ok_or_else(|| broken(format!("it gave {name}, which it had not announced")))?;
        let own = specs[at].datatype.name();
        if own != datatype {
            return Err(broken(format!("{name} is {} where {own} was announced", Quoted(datatype))));
        }
        if shape.len() > MOST_AXES {
            return Err(broken(format!("{name} has {} axes", shape.len())));
        }
        let shape: Option<Vec<usize>> = shape.iter().map(|&n| usize::try_from(n).ok()).collect();
        let shape = shape.ok_or_else(|| broken(format!("the shape of {name} is beyond all bounds")))?;
        let own = usize::try_from(*bytes).ok().and_then(|bytes| data.split_at_checked(bytes));
        let (own, rest) = own.ok_or_else(|| broken(format!("{name} goes beyond the end of its frame")))?;
        data = rest;
        let elements = raw::read(own, specs[at].datatype, &shape).map_err(|why| broken(format!("{name}: {why}")))?;
        let tensor = Tensor::new(shape, elements).map_err(|why| broken(format!("{name}: {why}")))?;
        if found[at].replace(tensor).is_some() {
            return Err(broken(format!("it gave {name} twice")));
        }
    }
    if !data.is_empty() {
        return Err(broken(format!("{} bytes of a frame belong to no tensor", data.len())));
    }
    let entries = specs.iter().zip(found).map(|(spec, tensor)| {
        let missing = || broken(format!("{} is missing", Quoted(&spec.name)));
        Ok((Arc::clone(&spec.name), tensor.ok_or_else(missing)?))
    });
    Tensors::new(entries.collect::<Result<_, _>>()?).map_err(|error| broken(error.to_string()))
}

/// What *failed* says of a batch.
pub(super) fn failed(meta: &[u8]) -> Result<RunnerError, WorkerError> {
    let FailedMeta { kind, message, rows } = parsed(meta, "failed")?;
    Ok(match (&*kind, rows.is_empty()) {
        ("input", true) => RunnerError::Input(message),
        ("input", false) => RunnerError::Rows(rows),
        ("row", true) => RunnerError::Row(message),
        ("row", false) => RunnerError::FailedRows(rows),
        _ => RunnerError::Failed(message),
    })
}

/// The words of *failed* before *ready*.
pub(super) fn not_ready(meta: &[u8]) -> Result<String, WorkerError> {
    parsed::<FailedMeta>(meta, "failed").map(|failed| failed.message)
}

/// What *ready* says.
pub(super) fn ready(meta: &[u8], data: &[u8]) -> Result<Ready, WorkerError> {
    let ReadyMeta { protocol, platform, inputs, outputs, example, concurrency, hooks } = parsed(meta, "ready")?;
    match protocol {
        Some(super::PROTOCOL) => {}
        Some(other) => {
            return Err(broken(format!("it speaks version {other} of the protocol, we speak {}", super::PROTOCOL)));
        }
        None => return Err(broken("its 'ready' does not say which 'protocol' it speaks")),
    }
    let inputs = specs(&inputs, "inputs")?;
    let signature = Signature { inputs, outputs: specs(&outputs, "outputs")? };
    let example = match example.is_empty() {
        true => None,
        false => Some(tensors(&example, data, &signature.inputs)?),
    };
    let platform = if platform.is_empty() { "worker".to_owned() } else { platform };
    let has = |name: &str| hooks.iter().any(|hook| hook == name);
    let hooks = Hooks { prepare: has("prepare"), finish: has("finish") };
    Ok(Ready { platform, signature, example, concurrency: concurrency.unwrap_or(1).max(1), hooks })
}

fn specs(announced: &[SpecMeta<'_>], which: &str) -> Result<Vec<TensorSpec>, WorkerError> {
    if announced.is_empty() || announced.len() > MOST_TENSORS {
        return Err(broken(format!("its 'ready' has {} {which}; it needs one at least", announced.len())));
    }
    let one = |SpecMeta { name, datatype, shape }: &SpecMeta<'_>| {
        let quoted = Quoted(name);
        let unknown = || broken(format!("{quoted} of its {which} has an unknown type"));
        let datatype = DataType::from_name(datatype).ok_or_else(unknown)?;
        let [-1, dims @ ..] = &shape[..] else {
            return Err(broken(format!("{quoted} of its {which} needs a shape that begins with -1, for rows")));
        };
        let dim = |&dim: &i64| match dim {
            -1 => Ok(None),
            dim => usize::try_from(dim).map(Some).map_err(|_| broken(format!("{quoted} has an axis of length {dim}"))),
        };
        let dims: Vec<Option<usize>> = dims.iter().map(dim).collect::<Result<_, _>>()?;
        let known: Vec<usize> = dims.iter().flatten().copied().collect();
        elements(&known).map_err(|error| broken(format!("{quoted}: {error}")))?;
        if dims.len() > MOST_AXES || name.is_empty() {
            return Err(broken(format!("{quoted} of its {which} has no name, or too many axes")));
        }
        Ok(TensorSpec::new(&**name, datatype, dims))
    };
    let specs: Vec<TensorSpec> = announced.iter().map(one).collect::<Result<_, _>>()?;
    let twice = specs.iter().enumerate().find(|(i, spec)| specs[..*i].iter().any(|other| other.name == spec.name));
    match twice {
        Some((_, spec)) => Err(broken(format!("'{}' is there twice among its {which}", spec.name))),
        None => Ok(specs),
    }
}
