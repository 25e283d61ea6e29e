//! What callers see of a graph: names, types and declared shapes of its inputs and outputs.

use std::collections::HashSet;

use super::proto::{GraphProto, ValueInfo};

/// One declared input or output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Declared {
    pub(super) name: String,
    /// `onnx.TensorProto.DataType`; 0 where the file does not say.
    pub(super) element: i32,
    /// `None` where no shape is declared.
    pub(super) dims: Option<Vec<Dim>>,
}

/// One dimension of a declared shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Dim {
    Fixed(u64),
    /// Free, under a name; the name is empty where there is none.
    Free(String),
}

/// Inputs and outputs, in the file's order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Outline {
    /// Graph inputs that callers give: those that no initializer fills.
    pub(super) inputs: Vec<Declared>,
    pub(super) outputs: Vec<Declared>,
    /// Whether some numbers are names of categories, of which the graph refuses those that it does not know.
    pub(super) picky: bool,
}

impl Outline {
    /// The outline of a graph.
    pub(super) fn of(graph: &GraphProto) -> Outline {
        // Files of the first versions list every weight among the inputs.
        let filled: HashSet<&str> = graph.initializer.iter().map(|weight| weight.name.as_str()).collect();
        let given = |input: &&ValueInfo| !filled.contains(input.name.as_str());
        Outline {
            inputs: graph.input.iter().filter(given).map(declared).collect(),
            outputs: graph.output.iter().map(declared).collect(),
            picky: graph.node.iter().any(|node| node.qualified() == "ai.onnx.ml::OneHotEncoder"),
        }
    }
}

fn declared(info: &ValueInfo) -> Declared {
    let tensor = info.kind.as_ref().and_then(|kind| kind.tensor.as_ref());
    let shape = tensor.and_then(|tensor| tensor.shape.as_ref());
    let dims = shape.map(|shape| {
        let dims = shape.dim.iter().map(|dim| match (dim.dim_value, &dim.dim_param) {
            // Some exporters write 0 or -1 for a length that they do not know.
            (Some(length @ 1..), _) => Dim::Fixed(length as u64),
            (_, name) => Dim::Free(name.clone().unwrap_or_default()),
        });
        dims.collect()
    });
    Declared { name: info.name.clone(), element: tensor.map_or(0, |tensor| tensor.elem_type), dims }
}
