//! Finds a model's signature by trying the model on a few rows of zeros.
//!
//! Files declare the shapes of their outputs loosely or wrongly, so they are not believed. Two and then three rows go
//! through the plan: every output must have as many, and what is behind the batch axis is the signature. Dimensions
//! that the inputs leave free get two different lengths, and output dimensions that follow them are free as well. At
//! last a row goes through alone and beside another one: its answer must not change.

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

/// The signature of a plan, as far as the file declares it and the plan shows it.
pub(super) fn signature(graph: &Graph) -> Result<Signature, OnnxError> {
    let outline = &graph.outline;
    let inputs: Vec<TensorSpec> = outline.inputs.iter().map(input).collect::<Result<_, _>>()?;
    if inputs.is_empty() || outline.outputs.is_empty() {
        return Err(OnnxError::Graph("it has no inputs or no outputs".into()));
    }
    let free = inputs.iter().any(|spec| spec.dims.contains(&None));
    let lengths = if free { &FREE_LENGTHS[..] } else { &FREE_LENGTHS[..1] };
    let run = |rows, length| run(graph, &inputs, rows, length, |_, _, _| 0.0);

    let mut first_failure = None;
    let found = lengths.iter().find_map(|&length| match run(2, length) {
        Ok(outputs) => Some((length, outputs)),
        Err(failure) => {
            first_failure.get_or_insert(failure);
            None
        }
    });
    let Some((length, two)) = found else {
        let failure = first_failure.unwrap_or_else(|| OpError::new("it was never tried").into());
        // One row passes and two do not: somewhere the file insists on a batch of one.
        if lengths.iter().any(|&length| run(1, length).is_ok()) {
            let name = outline.outputs[0].name.clone();
            return Err(OnnxError::NoBatchAxis {
                name,
                found: format!("can be computed for one row only ({failure})"),
            });
        }
        return Err(trial(failure));
    };
    let three = run(3, length).map_err(trial)?;
    let longer = if free { run(2, length * 2).ok() } else { None };

    let mut outputs = Vec::with_capacity(two.len());
    for (i, declared) in outline.outputs.iter().enumerate() {
        let (two, three) = (&two[i], &three[i]);
        let wrong = |found: String| OnnxError::NoBatchAxis { name: declared.name.clone(), found };
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
        let longer = longer.as_ref().map(|outputs| &outputs[i].shape()[1..]);
        let dims = two_dims.iter().enumerate().map(|(k, &d)| match longer {
            Some(longer) => (longer.get(k) == Some(&d)).then_some(d),
            None if free => None,
            None => Some(d),
        });
        let dims = dims.collect();
        outputs.push(TensorSpec { name: Arc::from(&*declared.name), datatype: two.data().datatype(), dims });
    }
    if let Some(name) = mixed(graph, &inputs, length) {
        return Err(OnnxError::MixedRows { name });
    }
    Ok(Signature { inputs, outputs })
}

/// A declared input as a specification; the first dimension must be free.
fn input(declared: &Declared) -> Result<TensorSpec, OnnxError> {
    let name = declared.name.clone();
    let datatype = tensors::datatype(declared.element).ok_or_else(|| {
        OnnxError::Graph(format!("input '{name}' has an element type ({}) that cannot be served", declared.element))
    })?;
    let fixed = |found: String| OnnxError::FixedBatch { name: name.clone(), found };
    let dims = match declared.dims.as_deref() {
        None => return Err(fixed("declares no shape".into())),
        Some([]) => return Err(fixed("is a single number".into())),
        Some([Dim::Fixed(n), ..]) => return Err(fixed(format!("has a fixed first dimension of {n}"))),
        Some([Dim::Free(_), dims @ ..]) => dims,
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
    let run = |rows| run(graph, inputs, rows, length, number).ok();
    // A model that takes zeros and not these numbers has said all that it can say here.
    let (alone, beside) = (run(1)?, run(2)?);
    let outputs = alone.iter().zip(&beside).zip(&graph.outline.outputs);
    let differing = outputs.filter(|((alone, beside), _)| {
        let (Data::Fp32(alone), Data::Fp32(beside)) = (alone.data(), beside.data()) else { return false };
        let far = |(a, b): (&f32, &f32)| (a - b).abs() > NOISE * (1.0 + b.abs());
        alone.iter().zip(beside).any(far)
    });
    differing.map(|(_, declared)| declared.name.clone()).next()
}

/// Runs `rows` rows with `length` for each free dimension; `number` gives an element by type, row and column.
fn run(
    graph: &Graph,
    inputs: &[TensorSpec],
    rows: usize,
    length: usize,
    number: impl Fn(DataType, usize, usize) -> f32,
) -> Result<Vec<Tensor>, Failure> {
    let value = |spec: &TensorSpec| {
        let mut shape = vec![rows];
        shape.extend(spec.dims.iter().map(|d| d.unwrap_or(length)));
        let count = elements(&shape)?;
        let width = (count / rows).max(1);
        let number = |i| number(spec.datatype, i / width, i % width);
        tensors::filled(spec.datatype, shape, count, number)
    };
    let outputs = graph.compute(inputs.iter().map(value).collect::<Result<_, OpError>>()?)?;
    for (tensor, declared) in outputs.iter().zip(&graph.outline.outputs) {
        let (found, name) = (tensor.data().datatype(), &declared.name);
        if let Some(want) = tensors::datatype(declared.element).filter(|want| *want != found) {
            return Err(OpError(format!("output '{name}' is {}, but declared as {}", found.name(), want.name())).into());
        }
    }
    Ok(outputs)
}

fn trial(failure: Failure) -> OnnxError {
    let Failure { place, reason } = failure;
    match place {
        Some(place) => OnnxError::Trial { operator: place.operator, node: place.node, reason },
        None => OnnxError::Graph(reason),
    }
}
