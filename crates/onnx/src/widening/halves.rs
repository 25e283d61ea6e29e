//! Which values of a graph are float16, by what its inputs, weights and conversions say and its operators keep.

use std::collections::HashSet;

use super::{element, is_half_type};
use crate::proto::{FLOAT16, GraphProto, NodeProto};

/// Names of values that are certainly float16.
#[derive(Debug, Default)]
pub(super) struct Halves(HashSet<String>);

impl Halves {
    /// Follows float16 through a graph's nodes, from one to the next. A body also sees the values `around` it.
    pub(super) fn of(graph: &GraphProto, around: Option<&Halves>) -> Halves {
        let mut halves = Halves(around.map(|around| around.0.clone()).unwrap_or_default());
        let weights = graph.initializer.iter().filter(|weight| weight.data_type == FLOAT16);
        halves.0.extend(weights.map(|weight| weight.name.clone()));
        let inputs = graph.input.iter().filter(|input| element(input) == Some(FLOAT16));
        halves.0.extend(inputs.map(|input| input.name.clone()));
        for node in &graph.node {
            let made: Vec<String> = halves.made(node).filter(|name| !name.is_empty()).cloned().collect();
            halves.0.extend(made);
        }
        halves
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// The outputs of a node that are float16.
    fn made<'n>(&self, node: &'n NodeProto) -> Box<dyn Iterator<Item = &'n String> + 'n> {
        let is_half = |i: usize| node.input.get(i).is_some_and(|name| self.contains(name));
        let first = |is_half: bool| Box::new(node.output.iter().take(is_half.into()));
        match &*node.qualified() {
            "If" | "Loop" | "Scan" => {
                // A loop's body says first whether it goes on.
                let skipped = usize::from(node.op_type == "Loop");
                let body = node.bodies().next().into_iter().flat_map(|body| &body.output).skip(skipped);
                let outputs = node.output.iter().zip(body);
                Box::new(outputs.filter(|(_, info)| element(info) == Some(FLOAT16)).map(|(output, _)| output))
            }
            "GRU" | "LSTM" | "RNN" | "Split" if is_half(0) => Box::new(node.output.iter()),
            "Where" => first(is_half(1)),
            name if KEEPS.contains(&name) => first(is_half(0)),
            _ => {
                let named = |name: &str| node.attribute.iter().any(|a| a.name == name && is_half_type(a));
                let tensors = node.attribute.iter().filter_map(|attribute| attribute.t.as_ref());
                let is_constant = tensors.into_iter().any(|tensor| tensor.data_type == FLOAT16);
                first(is_constant || ["to", "dtype", "output_dtype"].into_iter().any(named))
            }
        }
    }
}

/// Operators whose first output has the type of their first input.
const KEEPS: [&str; 101] = [
    "Abs",
    "Acos",
    "Acosh",
    "Add",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Attention",
    "AveragePool",
    "BatchNormalization",
    "Ceil",
    "Celu",
    "Clip",
    "Concat",
    "Conv",
    "ConvTranspose",
    "Cos",
    "Cosh",
    "CumSum",
    "DepthToSpace",
    "Div",
    "Dropout",
    "Einsum",
    "Elu",
    "Erf",
    "Exp",
    "Expand",
    "Flatten",
    "Floor",
    "Gather",
    "GatherElements",
    "GatherND",
    "Gelu",
    "Gemm",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "GridSample",
    "GroupNormalization",
    "HardSigmoid",
    "HardSwish",
    "Hardmax",
    "Identity",
    "InstanceNormalization",
    "LRN",
    "LayerNormalization",
    "LeakyRelu",
    "Log",
    "LogSoftmax",
    "LpNormalization",
    "LpPool",
    "MatMul",
    "Max",
    "MaxPool",
    "Mean",
    "MeanVarianceNormalization",
    "Min",
    "Mish",
    "Mod",
    "Mul",
    "Neg",
    "PRelu",
    "Pad",
    "Pow",
    "RMSNormalization",
    "Reciprocal",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
    "Relu",
    "Reshape",
    "Resize",
    "Round",
    "ScatterElements",
    "ScatterND",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Slice",
    "Softmax",
    "Softplus",
    "Sqrt",
    "Squeeze",
    "Sub",
    "Sum",
    "Tanh",
    "Tile",
    "TopK",
    "Transpose",
    "Trilu",
    "Unsqueeze",
];
