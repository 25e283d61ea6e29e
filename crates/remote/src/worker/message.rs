//! What frames say: tensors, a worker's introduction, and what went wrong. Pure.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uncork_model::quote::Quoted;
use uncork_model::raw;
use uncork_model::runner::{Hooks, RunnerError, Signature, TensorSpec};
use uncork_model::tensor::{Data, DataType, Tensor, Tensors, elements};

use super::WorkerError;
use super::frame::{self, Order, Word};
use super::segment::Segment;

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
    pub(super) stuck_after_ms: f64,
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
    /// The segment that it lies in, and where there; in the frame where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    segment: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct RunMeta<'a> {
    #[serde(borrow, default)]
    inputs: Vec<TensorMeta<'a>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    rehearsal: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer_segment: Option<u32>,
}

#[derive(Debug, Serialize)]
struct SegmentMeta {
    segment: u32,
    bytes: usize,
}

#[derive(Debug, Serialize, Deserialize)]
struct DoneMeta<'a> {
    #[serde(borrow, default)]
    outputs: Vec<TensorMeta<'a>>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
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
    #[serde(default)]
    shared_memory: bool,
    #[serde(borrow, default)]
    hooks: Vec<Cow<'a, str>>,
    #[serde(default)]
    whole: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct SpecMeta<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    datatype: Cow<'a, str>,
    shape: Vec<i64>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
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
    /// Whether `instances` of a body are the model's to read.
    pub(super) whole: bool,
    pub(super) shared_memory: bool,
}

/// Where the tensors of a call lie, if not in its frames.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The inputs, each from its offset on.
    pub(super) inputs: Option<(Segment, Vec<usize>)>,
    /// Where outputs may be written.
    pub(super) answer: Option<Segment>,
}

fn broken(why: impl Into<String>) -> WorkerError {
    WorkerError::Protocol(why.into())
}

fn parsed<'a, T: Deserialize<'a>>(meta: &'a [u8], word: &str) -> Result<T, WorkerError> {
    let meta = if meta.is_empty() { b"{}" } else { meta };
    serde_json::from_slice(meta).map_err(|error| broken(format!("the JSON of '{word}' cannot be read: {error}")))
}

/// How tensors are announced, and the bytes that they take.
fn announce(tensors: &Tensors) -> (Vec<TensorMeta<'_>>, usize) {
    let mut data = 0usize;
    let announced = tensors.iter().map(|(name, tensor)| {
        let bytes = raw::len(tensor.data());
        data = data.saturating_add(bytes);
        let shape = tensor.shape().iter().map(|&n| n as u64).collect();
        let datatype = Cow::Borrowed(tensor.data().datatype().name());
        TensorMeta { name: Cow::Borrowed(name), datatype, shape, bytes: bytes as u64, segment: None, offset: None }
    });
    (announced.collect(), data)
}

/// A frame with tensors, which take so many bytes.
fn with_tensors(
    kind: u8,
    id: u64,
    meta: &impl Serialize,
    bytes: usize,
    tensors: Option<&Tensors>,
) -> Result<Vec<u8>, WorkerError> {
    let meta = serde_json::to_vec(meta).expect("names and numbers have a JSON form");
    let entries = tensors.into_iter().flat_map(Tensors::iter);
    frame::written(kind, id, &meta, bytes, |to| entries.for_each(|(_, tensor)| raw::write(tensor.data(), to)))
}

/// A frame without any.
fn words(kind: u8, id: u64, meta: &impl Serialize) -> Result<Vec<u8>, WorkerError> {
    with_tensors(kind, id, meta, 0, None)
}

/// The frame that has a batch run, or a hook.
pub(super) fn call(
    order: Order,
    id: u64,
    batch: &Tensors,
    rehearsal: bool,
    places: &Places,
) -> Result<Vec<u8>, WorkerError> {
    let (mut inputs, data) = announce(batch);
    let answer_segment = places.answer.as_ref().map(|segment| segment.id);
    let Some((segment, offsets)) = &places.inputs else {
        return with_tensors(order as u8, id, &RunMeta { inputs, rehearsal, answer_segment }, data, Some(batch));
    };
    for (input, &offset) in inputs.iter_mut().zip(offsets) {
        (input.segment, input.offset) = (Some(segment.id), Some(offset as u64));
    }
    words(order as u8, id, &RunMeta { inputs, rehearsal, answer_segment })
}

/// The frame that a segment's descriptor goes with, [`Order::Segment`], or that says that a worker will not hear of it again,
/// [`Order::Forget`].
pub(super) fn of_segment(order: Order, segment: &Segment) -> Result<Vec<u8>, WorkerError> {
    words(order as u8, 0, &SegmentMeta { segment: segment.id, bytes: segment.bytes })
}

/// The frame that begins everything.
pub(super) fn setup(setup: &Setup<'_>) -> Result<Vec<u8>, WorkerError> {
    words(Order::Setup as u8, 0, setup)
}

/// The tensors of *done*, in the order of `specs`, and the bytes that they take. Some may lie in `segment`.
pub(super) fn done(
    meta: &[u8],
    data: &[u8],
    specs: &[TensorSpec],
    segment: Option<&Segment>,
) -> Result<(Tensors, usize), WorkerError> {
    let DoneMeta { outputs } = parsed(meta, "done")?;
    let bytes = outputs.iter().fold(0usize, |all, tensor| all.saturating_add(tensor.bytes as usize));
    Ok((tensors(&outputs, data, specs, segment)?, bytes))
}

/// The tensors that are announced, one for each of `specs` and in their order.
fn tensors(
    announced: &[TensorMeta<'_>],
    mut data: &[u8],
    specs: &[TensorSpec],
    segment: Option<&Segment>,
) -> Result<Tensors, WorkerError> {
    let mut found: Vec<Option<Tensor>> = vec![None; specs.len()];
    for TensorMeta { name, datatype, shape, bytes, segment: within, offset } in announced {
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
        let elements = if let Some(within) = within {
            let segment = segment.filter(|segment| segment.id == *within);
            let segment = segment.ok_or_else(|| broken(format!("{name} is in a segment that is not this call's")))?;
            shared(segment, offset.unwrap_or_default(), *bytes, specs[at].datatype, &shape)
        } else {
            let own = usize::try_from(*bytes).ok().and_then(|bytes| data.split_at_checked(bytes));
            let (own, rest) = own.ok_or_else(|| broken(format!("{name} goes beyond the end of its frame")))?;
            data = rest;
            raw::read(own, specs[at].datatype, &shape).map_err(|why| why.to_string())
        };
        let elements = elements.map_err(|why| broken(format!("{name}: {why}")))?;
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

/// A tensor's elements from a segment, copied once where they are numbers as most have them.
fn shared(segment: &Segment, offset: u64, bytes: u64, datatype: DataType, shape: &[usize]) -> Result<Data, String> {
    let end = offset.checked_add(bytes).filter(|&end| end <= segment.bytes as u64);
    end.ok_or("it goes beyond the end of its segment")?;
    let (offset, bytes) = (offset as usize, bytes as usize);
    let count = elements(shape).map_err(|error| error.to_string())?;
    if datatype == DataType::Fp32 && count.checked_mul(4) == Some(bytes) && cfg!(target_endian = "little") {
        return segment.read_floats(offset, count).map_err(|error| error.to_string());
    }
    let read = segment.read(offset, bytes).map_err(|error| error.to_string())?;
    raw::read(&read, datatype, shape).map_err(|why| why.to_string())
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
    let ReadyMeta { protocol, platform, inputs, outputs, example, concurrency, hooks, whole, shared_memory } =
        parsed(meta, "ready")?;
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
        false => Some(tensors(&example, data, &signature.inputs, None)?),
    };
    let platform = if platform.is_empty() { "worker".to_owned() } else { platform };
    let has = |name: &str| hooks.iter().any(|hook| hook == name);
    let hooks = Hooks { prepare: has("prepare"), finish: has("finish") };
    Ok(Ready {
        platform,
        signature,
        example,
        concurrency: concurrency.unwrap_or(1).max(1),
        hooks,
        whole,
        shared_memory,
    })
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
        Some((_, spec)) => Err(broken(format!("{} is there twice among its {which}", Quoted(&spec.name)))),
        None => Ok(specs),
    }
}

/// What *setup* names as the model.
pub(super) fn target(meta: &[u8]) -> Result<Option<String>, WorkerError> {
    #[derive(Deserialize)]
    struct Target {
        target: Option<String>,
    }
    parsed::<Target>(meta, "setup").map(|setup| setup.target)
}

/// The batch of *run*, and whether it is a rehearsal.
pub(super) fn batch(meta: &[u8], data: &[u8], signature: &Signature) -> Result<(Tensors, bool), WorkerError> {
    let RunMeta { inputs, rehearsal, .. } = parsed(meta, "run")?;
    Ok((tensors(&inputs, data, &signature.inputs, None)?, rehearsal))
}

/// The frame *done*.
pub(super) fn outputs(id: u64, outputs: &Tensors) -> Result<Vec<u8>, WorkerError> {
    let (announced, data) = announce(outputs);
    with_tensors(Word::Done as u8, id, &DoneMeta { outputs: announced }, data, Some(outputs))
}

/// The frame *ready*.
pub(super) fn introduction(
    signature: &Signature,
    platform: &str,
    example: Option<&Tensors>,
) -> Result<Vec<u8>, WorkerError> {
    let specs = |specs: &'_ [TensorSpec]| -> Vec<SpecMeta<'static>> {
        let one = |spec: &TensorSpec| SpecMeta {
            name: Cow::Owned(spec.name.to_string()),
            datatype: Cow::Borrowed(spec.datatype.name()),
            shape: spec.wire_shape(),
        };
        specs.iter().map(one).collect()
    };
    let (announced, data) = example.map(announce).unwrap_or_default();
    let meta = ReadyMeta {
        protocol: Some(super::PROTOCOL),
        platform: platform.to_owned(),
        inputs: specs(&signature.inputs),
        outputs: specs(&signature.outputs),
        example: announced,
        ..ReadyMeta::default()
    };
    with_tensors(Word::Ready as u8, 0, &meta, data, example)
}

/// The frame *failed*.
pub(super) fn words_of(id: u64, why: &RunnerError) -> Result<Vec<u8>, WorkerError> {
    let (kind, message, rows) = match why {
        RunnerError::Input(why) => ("input", why.clone(), Vec::new()),
        RunnerError::Rows(rows) => ("input", String::new(), rows.clone()),
        RunnerError::Row(why) => ("row", why.clone(), Vec::new()),
        RunnerError::FailedRows(rows) => ("row", String::new(), rows.clone()),
        why => ("failed", why.to_string(), Vec::new()),
    };
    words(Word::Failed as u8, id, &FailedMeta { kind: kind.into(), message, rows })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn signature() -> Signature {
        let tensor = |name: &str, datatype, dims| TensorSpec::new(name, datatype, dims);
        Signature {
            inputs: vec![tensor("x", DataType::Fp32, vec![Some(2)]), tensor("t", DataType::Bytes, vec![])],
            outputs: vec![tensor("y", DataType::Int64, vec![None])],
        }
    }

    fn inputs(rows: usize) -> Tensors {
        let x = Tensor::new(vec![rows, 2], Data::Fp32((0..2 * rows).map(|i| i as f32).collect())).unwrap();
        let t = Tensor::new(vec![rows], Data::Bytes((0..rows).map(|i| vec![b'a'; i]).collect())).unwrap();
        Tensors::new(vec![("x".into(), x), ("t".into(), t)]).unwrap()
    }

    /// A frame taken apart.
    fn parts(frame: &[u8]) -> (&[u8], &[u8]) {
        let (head, rest) = frame.split_first_chunk().unwrap();
        rest.split_at(frame::Head::read(head).unwrap().meta)
    }

    #[test]
    fn what_one_side_writes_the_other_reads() {
        let batch_of_3 = call(Order::Run, 7, &inputs(3), true, &Places::default()).unwrap();
        let (meta, data) = parts(&batch_of_3);
        assert_eq!(batch(meta, data, &signature()), Ok((inputs(3), true)));
        let ready_frame = introduction(&signature(), "rust", Some(&inputs(1))).unwrap();
        let (meta, data) = parts(&ready_frame);
        let Ready { platform, signature: told, example, concurrency, hooks, .. } = ready(meta, data).unwrap();
        assert_eq!((platform.as_str(), told, example), ("rust", signature(), Some(inputs(1))));
        assert_eq!((concurrency, hooks), (1, Hooks::default()));
        for why in [
            RunnerError::Input("a".into()),
            RunnerError::Row("b".into()),
            RunnerError::Failed("c".into()),
            RunnerError::Rows(vec![(1, "d".into())]),
            RunnerError::FailedRows(vec![(2, "e".into())]),
        ] {
            let frame = words_of(1, &why).unwrap();
            assert_eq!(failed(parts(&frame).0), Ok(why));
        }
    }

    #[test]
    fn tensors_that_were_not_announced_so_are_refused_in_words() {
        let cases = [
            (r#"{"outputs":[]}"#, "8 bytes of a frame belong to no tensor"),
            (
                r#"{"outputs":[{"name":"z","datatype":"INT64","shape":[1,1],"bytes":8}]}"#,
                "'z', which it had not announced",
            ),
            (r#"{"outputs":[{"name":"y","datatype":"FP32","shape":[1,2],"bytes":8}]}"#, "'y' is 'FP32' where INT64"),
            (r#"{"outputs":[{"name":"y","datatype":"INT64","shape":[1,1],"bytes":9}]}"#, "beyond the end"),
            (r#"{"outputs":[{"name":"y","datatype":"INT64","shape":[1,1],"bytes":0}]}"#, "takes 8 bytes"),
            (
                r#"{"outputs":[{"name":"y","datatype":"INT64","shape":[9223372036854775807,2],"bytes":8}]}"#,
                "more elements",
            ),
            (r#"{"outputs":7}"#, "cannot be read"),
        ];
        for (meta, why) in cases {
            let error = done(meta.as_bytes(), &[0; 8], &signature().outputs, None).unwrap_err().to_string();
            assert!(error.contains(why), "{meta}: {error}");
        }
        let unnamed = r#"{"protocol":1,"inputs":[{"name":"x","datatype":"FP32","shape":[3]}],"outputs":[]}"#;
        let error = ready(unnamed.as_bytes(), &[]).unwrap_err().to_string();
        assert!(error.contains("begins with -1"), "{error}");
    }

    proptest! {
        #[test]
        fn no_meta_and_no_data_panic(meta in "\\PC*", data in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = done(meta.as_bytes(), &data, &signature().outputs, None);
            let _ = ready(meta.as_bytes(), &data);
            let _ = failed(meta.as_bytes());
        }
    }
}
