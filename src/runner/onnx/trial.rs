//! Finds a model's signature by trying the model on a few rows.
//!
//! Files declare shapes loosely or wrongly, so they are not believed. Two and then three rows go through the graph: every
//! output must have as many, and what is behind the batch axis is the signature. Dimensions that the inputs leave free
//! get two different lengths, and output dimensions that follow them are free as well. At last two rows go through alone
//! and together: their answers must not change.
//!
//! A file that takes one row only, by what it declares or by what it does, is run one row at a time.

use std::ops::Range;
use std::sync::Arc;

use super::OnnxError;
use super::graph::Graph;
use super::outline::{Declared, Dim};
use super::plan::Failure;
use super::tensors;
use super::value::{OpError, elements};
use crate::runner::{Signature, TensorSpec};
use crate::tensor::{Data, DataType, Tensor};

/// Lengths that free dimensions are tried with: sequences are happy with a short one, deep networks need large images.
const FREE_LENGTHS: [usize; 4] = [16, 64, 224, 1];

/// Most elements that one input row may have: 256 MiB of float32.
const MAX_ROW: usize = 1 << 26;

/// What a model takes and gives, and how its batches are run.
pub(super) struct Trial {
    pub(super) signature: Signature,
    /// Why rows must be run one at a time; `None` where batches are run as a whole.
    pub(super) alone: Option<OnnxError>,
}

/// Tries a graph.
pub(super) fn trial(graph: &Graph) -> Result<Trial, OnnxError> {
    let outline = &graph.outline;
    let inputs: Vec<TensorSpec> = outline.inputs.iter().map(input).collect::<Result<_, _>>()?;
    if inputs.is_empty() || outline.outputs.is_empty() {
        return Err(OnnxError::Graph("it has no inputs or no outputs".into()));
    }
    // Many files declare a batch of one and take any: the exporter wrote down the shape of its example.
    let declared_one = outline.inputs.iter().find(|input| matches!(input.dims.as_deref(), Some([Dim::Fixed(1), ..])));
    let together = together(graph, &inputs);
    let why = match (together, declared_one) {
        (Ok(outputs), _) => return Ok(Trial { signature: Signature { inputs, outputs }, alone: None }),
        (Err(Refused::OneRow(error)), None) => error,
        (Err(_), Some(input)) => fixed(input, "has a fixed first dimension of 1".into()),
        (Err(Refused::Other(error)), None) => return Err(error),
    };
    match alone(graph, &inputs) {
        Some(outputs) => Ok(Trial { signature: Signature { inputs, outputs }, alone: Some(why) }),
        None => Err(why),
    }
}

/// Why batches cannot be run as a whole.
enum Refused {
    /// One row can be run, and two cannot.
    OneRow(OnnxError),
    Other(OnnxError),
}

/// The outputs of batches that are run as a whole.
fn together(graph: &Graph, inputs: &[TensorSpec]) -> Result<Vec<TensorSpec>, Refused> {
    let outline = &graph.outline;
    let free = inputs.iter().any(|spec| spec.dims.contains(&None));
    let run = |rows, length| run(graph, inputs, 0..rows, length, false, zero);
    let mut first_failure = None;
    let found = lengths(free).iter().find_map(|&length| match run(2, length) {
        Ok(outputs) => Some((length, outputs)),
        Err(failure) => {
            first_failure.get_or_insert(failure);
            None
        }
    });
    let Some((length, two)) = found else {
        let failure = first_failure.unwrap_or_else(|| OpError::new("it was never tried").into());
        // One row passes and two do not: somewhere the file insists on a batch of one.
        if lengths(free).iter().any(|&length| run(1, length).is_ok()) {
            let name = outline.outputs[0].name.clone();
            let found = format!("can be computed for one row only ({failure})");
            return Err(Refused::OneRow(OnnxError::NoBatchAxis { name, found }));
        }
        return Err(Refused::Other(failed(failure)));
    };
    let three = run(3, length).map_err(|failure| Refused::Other(failed(failure)))?;
    let longer = if free { run(2, length * 2).ok() } else { None };

    let mut outputs = Vec::with_capacity(two.len());
    for (i, declared) in outline.outputs.iter().enumerate() {
        let (two, three) = (&two[i], &three[i]);
        let wrong = |found: String| Refused::Other(OnnxError::NoBatchAxis { name: declared.name.clone(), found });
        if two.rows() != 2 || three.rows() != 3 {
            let (two, three) = (two.shape(), three.shape());
            return Err(wrong(format!("has the shape {two:?} for 2 rows and {three:?} for 3")));
        }
        let (two_dims, three_dims) = (&two.shape()[1..], &three.shape()[1..]);
        if two_dims != three_dims {
            return Err(wrong(format!(
                "has rows of shape {two_dims:?} in a batch of 2 and {three_dims:?} in one of 3"
            )));
        }
        outputs.push(output(declared, two, longer.as_ref().map(|outputs| &outputs[i]), free));
    }
    match mixed(graph, inputs, length) {
        Some(name) => Err(Refused::Other(OnnxError::MixedRows { name })),
        None => Ok(outputs),
    }
}

/// The outputs of rows that are run one at a time, if that can be done.
fn alone(graph: &Graph, inputs: &[TensorSpec]) -> Option<Vec<TensorSpec>> {
    let free = inputs.iter().any(|spec| spec.dims.contains(&None));
    let run = |length| run(graph, inputs, 0..1, length, true, zero).ok();
    let (length, one) = lengths(free).iter().find_map(|&length| Some((length, run(length)?)))?;
    let longer = if free { run(length * 2) } else { None };
    let outputs = graph.outline.outputs.iter().zip(&one).enumerate();
    let outputs =
        outputs.map(|(i, (declared, one))| output(declared, one, longer.as_ref().map(|outputs| &outputs[i]), free));
    Some(outputs.collect())
}

/// Lengths that are tried for free dimensions.
fn lengths(free: bool) -> &'static [usize] {
    if free { &FREE_LENGTHS } else { &FREE_LENGTHS[..1] }
}

/// An output as it came out; where inputs were free and longer, dimensions that followed them are free.
fn output(declared: &Declared, found: &Tensor, longer: Option<&Tensor>, free: bool) -> TensorSpec {
    let dims = found.shape()[1..].iter().enumerate().map(|(k, &d)| match longer {
        Some(longer) => (longer.shape().get(k + 1) == Some(&d)).then_some(d),
        None if free => None,
        None => Some(d),
    });
    TensorSpec { name: Arc::from(&*declared.name), datatype: found.data().datatype(), dims: dims.collect() }
}

fn fixed(input: &Declared, found: String) -> OnnxError {
    OnnxError::FixedBatch { name: input.name.clone(), found }
}

/// A declared input as a specification; the first dimension must be free, or 1.
fn input(declared: &Declared) -> Result<TensorSpec, OnnxError> {
    let name = declared.name.clone();
    let datatype = tensors::datatype(declared.element).ok_or_else(|| {
        OnnxError::Graph(format!("input '{name}' has an element type ({}) that cannot be served", declared.element))
    })?;
    let dims = match declared.dims.as_deref() {
        None => return Err(fixed(declared, "declares no shape".into())),
        Some([]) => return Err(fixed(declared, "is a single number".into())),
        Some([Dim::Fixed(n @ 2..), ..]) => return Err(fixed(declared, format!("has a fixed first dimension of {n}"))),
        Some([_, dims @ ..]) => dims,
    };
    let dims = dims.iter().map(|dim| match dim {
        Dim::Free(_) => Ok(None),
        Dim::Fixed(n) => usize::try_from(*n)
            .map(Some)
            .map_err(|_| OnnxError::Graph(format!("input '{name}' has a dimension of {n}"))),
    });
    let dims: Vec<Option<usize>> = dims.collect::<Result<_, _>>()?;
    let fixed: Vec<usize> = dims.iter().flatten().copied().collect();
    if elements(&fixed).map_or(true, |n| n > MAX_ROW) {
        return Err(OnnxError::Graph(format!("a row of input '{name}' has more than {MAX_ROW} elements")));
    }
    Ok(TensorSpec { name: Arc::from(&*declared.name), datatype, dims })
}

/// Largest difference, absolute plus relative, between a row's answers alone and in a batch. Sums are added in another
/// order for another number of rows, so there is some; answers that mix rows differ by far more.
const NOISE: f32 = 1e-2;

/// An output that is not the same for a row alone and for the same row beside another one.
fn mixed(graph: &Graph, inputs: &[TensorSpec], length: usize) -> Option<String> {
    // The rows differ. Integers are often indices into a short table: 0 and 1 are the safest.
    let number = |datatype, row: usize, column: usize| match datatype {
        DataType::Fp32 | DataType::Fp64 | DataType::Fp16 | DataType::Bf16 => {
            ((row * 5 + column * 7) % 13) as f32 / 6.5 - 1.0
        }
        _ => row as f32,
    };
    let run = |rows| run(graph, inputs, rows, length, false, number).ok();
    // A model that takes zeros and not these numbers has said all that it can say here.
    let (first, second, both) = (run(0..1)?, run(1..2)?, run(0..2)?);
    let outputs = first.iter().zip(&second).zip(&both).zip(&graph.outline.outputs);
    let differing = outputs.filter(|(((first, second), both), _)| {
        let (Data::Fp32(first), Data::Fp32(second), Data::Fp32(both)) = (first.data(), second.data(), both.data())
        else {
            return false;
        };
        let far = |(a, b): (&f32, &f32)| (a - b).abs() > NOISE * (1.0 + b.abs());
        first.iter().chain(second).zip(both).any(far)
    });
    differing.map(|(_, declared)| declared.name.clone()).next()
}

fn zero(_: DataType, _: usize, _: usize) -> f32 {
    0.0
}

/// Runs rows with `length` for each free dimension; `number` gives an element by type, row and column.
fn run(
    graph: &Graph,
    inputs: &[TensorSpec],
    rows: Range<usize>,
    length: usize,
    alone: bool,
    number: impl Fn(DataType, usize, usize) -> f32,
) -> Result<Vec<Tensor>, Failure> {
    let value = |spec: &TensorSpec| {
        let mut shape = vec![rows.len()];
        shape.extend(spec.dims.iter().map(|d| d.unwrap_or(length)));
        let count = elements(&shape)?;
        let width = (count / rows.len()).max(1);
        let number = |i| number(spec.datatype, rows.start + i / width, i % width);
        tensors::filled(spec.datatype, shape, count, number)
    };
    let outputs = graph.rehearse(inputs.iter().map(value).collect::<Result<_, OpError>>()?, alone)?;
    for (tensor, declared) in outputs.iter().zip(&graph.outline.outputs) {
        let (found, name) = (tensor.data().datatype(), &declared.name);
        if let Some(want) = tensors::datatype(declared.element).filter(|want| *want != found) {
            return Err(OpError(format!("output '{name}' is {}, but declared as {}", found.name(), want.name())).into());
        }
    }
    Ok(outputs)
}

fn failed(failure: Failure) -> OnnxError {
    let Failure { place, reason } = failure;
    match place {
        Some(place) => OnnxError::Trial { operator: place.operator, node: place.node, reason },
        None => OnnxError::Graph(reason),
    }
}
