//! Batch normalisation: a scale and a shift for each channel, merged into the convolution before it where possible.

use std::collections::HashMap;

use burn_backend::ops::FloatTensorOps;
use burn_backend::{DType, Shape, TensorData, TensorMetadata};
use burn_dispatch::DispatchDevice;
use onnx_ir::node::batch_norm::{BatchNormConfig, BatchNormalizationNode};
use onnx_ir::{Node, OnnxGraph};

use super::{Build, Compiled, Kernel, Refusal};
use crate::runner::onnx::value::{Backend as B, OpError, Value};

pub(super) const OPERATORS: &[&str] = &["BatchNormalization"];

/// ONNX's default. onnx-ir 0.22 reads an omitted epsilon as 0, which nobody writes on purpose.
const DEFAULT_EPSILON: f64 = 1e-5;

/// What becomes of nodes that are merged, by onnx-ir's node name.
pub(in crate::runner::onnx) type Folds = HashMap<String, Fold>;

/// The part of a node in a merged pair.
#[derive(Debug, Clone)]
pub(in crate::runner::onnx) enum Fold {
    /// A convolution that takes over scale and shift.
    Into(Affine),
    /// A normalisation that the convolution before it has done.
    Done,
}

/// y = scale · x + shift, for each channel.
#[derive(Debug, Clone)]
pub(in crate::runner::onnx) struct Affine {
    scale: Vec<f64>,
    shift: Vec<f64>,
}

pub(super) fn compile(node: &Node, build: &mut Build<'_>) -> Compiled {
    let Node::BatchNormalization(n) = node else { return Ok(None) };
    if let Some(Fold::Done) = build.fold {
        for i in 1..5 {
            build.constant(i);
        }
        return Ok(Some(Kernel::one(|mut args| args.take(0))));
    }
    let Affine { scale, shift } = affine(n)?;
    for i in 1..5 {
        build.constant(i);
    }
    let channels = scale.len();
    let tensor = |numbers: Vec<f64>| {
        let numbers: Vec<f32> = numbers.into_iter().map(|x| x as f32).collect();
        Value::from_data(TensorData::new(numbers, [channels]), build.device)
    };
    let (scale, shift) = (tensor(scale)?.float()?, tensor(shift)?.float()?);
    Ok(Some(Kernel::one(move |mut args| {
        let x = args.float(0)?;
        let dims = x.shape();
        if dims.num_dims() < 2 || dims[1] != channels || x.dtype() != DType::F32 {
            return Err(OpError(format!(
                "{channels} channels of F32 do not fit the shape {dims:?} of {:?}",
                x.dtype()
            )));
        }
        let mut wide = vec![1; dims.num_dims()];
        wide[1] = channels;
        let [scale, shift] = [&scale, &shift].map(|t| B::float_reshape(t.clone(), Shape::from(wide.clone())));
        Ok(Value::Float(B::float_add(B::float_mul(x, scale), shift)))
    })))
}

/// Scale and shift that a normalisation with constant statistics amounts to. In double precision: the difference of
/// two large numbers would cost digits of the model.
fn affine(n: &BatchNormalizationNode) -> Result<Affine, Refusal> {
    let epsilon = match &n.config {
        BatchNormConfig::Static(config) => config.epsilon,
        BatchNormConfig::Runtime(_) => return Err(Refusal::form("its statistics are not constant")),
    };
    let epsilon = if epsilon == 0.0 { DEFAULT_EPSILON } else { epsilon };
    let column = |i: usize| -> Result<Vec<f64>, Refusal> {
        let data = n.inputs.get(i).and_then(|a| a.value());
        let data = data.ok_or_else(|| Refusal::form("its statistics are not constant"))?;
        data.convert_dtype(DType::F64).try_into_vec().map_err(|e| Refusal::form(e.to_string()))
    };
    let (gamma, beta, mean, variance) = (column(1)?, column(2)?, column(3)?, column(4)?);
    if [&beta, &mean, &variance].iter().any(|c| c.len() != gamma.len()) {
        return Err(Refusal::form("its statistics differ in length"));
    }
    let scale: Vec<f64> = gamma.iter().zip(&variance).map(|(g, v)| g / (v + epsilon).sqrt()).collect();
    let shift = beta.iter().zip(&mean).zip(&scale).map(|((b, m), s)| b - m * s).collect();
    Ok(Affine { scale, shift })
}

/// Finds the pairs that merge: a convolution with constant weights that only a normalisation with constant statistics
/// reads.
pub(in crate::runner::onnx) fn folds(graph: &OnnxGraph) -> Folds {
    let mut readers: HashMap<&str, usize> = HashMap::new();
    let read = graph.nodes.iter().flat_map(|n| n.inputs()).chain(&graph.outputs);
    for argument in read {
        *readers.entry(&argument.name).or_default() += 1;
    }
    let convs: HashMap<&str, &Node> = graph.nodes.iter().filter_map(conv_output).collect();
    let mut folds = Folds::new();
    for node in &graph.nodes {
        let Node::BatchNormalization(n) = node else { continue };
        let Some(conv) = n.inputs.first().and_then(|x| convs.get(x.name.as_str())) else { continue };
        let outputs = conv.inputs()[1].value().and_then(|w| w.shape().first().copied());
        let single = conv.outputs().first().and_then(|o| readers.get(o.name.as_str())) == Some(&1);
        // What does not merge is left to `compile`, which says why it cannot be run.
        if let (true, Ok(affine)) = (single, affine(n))
            && outputs == Some(affine.scale.len())
        {
            folds.insert(conv.name().to_owned(), Fold::Into(affine));
            folds.insert(n.name.clone(), Fold::Done);
        }
    }
    folds
}

/// A convolution that can take a scale over, under the name of its output.
fn conv_output(node: &Node) -> Option<(&str, &Node)> {
    let (Node::Conv1d(_) | Node::Conv2d(_)) = node else { return None };
    let weight = node.inputs().get(1)?.value()?;
    (weight.dtype() == DType::F32).then_some((node.outputs().first()?.name.as_str(), node))
}

impl Fold {
    /// Weight and bias of a convolution that scales and shifts its result as well.
    pub(super) fn fold_conv(
        &self,
        weight: Value,
        bias: Option<Value>,
        device: &DispatchDevice,
    ) -> Result<(Value, Option<Value>), OpError> {
        let Fold::Into(Affine { scale, shift }) = self else { return Ok((weight, bias)) };
        let floats = |v: Value| v.into_data()?.try_into_vec::<f32>().map_err(|e| OpError::new(e.to_string()));
        let shape = weight.shape();
        let mut weights = floats(weight)?;
        let each = weights.len() / scale.len().max(1);
        for (row, scale) in weights.chunks_mut(each.max(1)).zip(scale) {
            row.iter_mut().for_each(|w| *w = (f64::from(*w) * scale) as f32);
        }
        let bias = bias.map(floats).transpose()?.unwrap_or_else(|| vec![0.0; scale.len()]);
        let bias = bias.iter().zip(scale).zip(shift).map(|((b, scale), shift)| (f64::from(*b) * scale + shift) as f32);
        let bias: Vec<f32> = bias.collect();
        let count = bias.len();
        let weight = Value::from_data(TensorData::new(weights, shape), device)?;
        Ok((weight, Some(Value::from_data(TensorData::new(bias, [count]), device)?)))
    }
}
