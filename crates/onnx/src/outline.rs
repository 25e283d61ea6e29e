//! What callers see of a graph: names, types and declared shapes of its inputs and outputs.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use super::proto::{AttributeProto, GraphProto, NodeProto, ValueInfo};
use super::ranges::ranges;

/// One declared input or output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Declared {
    pub(super) name: String,
    /// `onnx.TensorProto.DataType`; 0 where the file does not say.
    pub(super) element: i32,
    /// `None` where no shape is declared.
    pub(super) dims: Option<Vec<Dim>>,
    /// The integers that the graph has an answer to, where that is known.
    pub(super) range: Option<RangeInclusive<i64>>,
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
    /// For each output the names of its columns, where they are those of classes or of the keys of a map; else none.
    pub(super) labels: Vec<Vec<String>>,
    /// Whether the graph refuses some numbers: as names of categories, or as the indices that it makes of them.
    pub(super) picky: bool,
}

impl Outline {
    /// The outline of a graph.
    pub(super) fn of(graph: &GraphProto) -> Outline {
        // Files of the first versions list every weight among the inputs.
        let filled: HashSet<&str> = graph.initializer.iter().map(|weight| weight.name.as_str()).collect();
        let given = |input: &&ValueInfo| !filled.contains(input.name.as_str());
        let ranges = ranges(graph);
        let input = |input: &ValueInfo| Declared { range: ranges.get(&*input.name).cloned(), ..declared(input) };
        Outline {
            inputs: graph.input.iter().filter(given).map(input).collect(),
            outputs: graph.output.iter().map(declared).collect(),
            labels: graph.output.iter().map(|output| labels(graph, &output.name)).collect(),
            picky: graph.node.iter().any(is_picky),
        }
    }
}

/// Whether a node refuses some numbers, or makes an integer of a number, which others may then refuse as an index or a divisor.
fn is_picky(node: &NodeProto) -> bool {
    const PICKY: [&str; 8] = [
        "ai.onnx.ml::OneHotEncoder",
        "ai.onnx.ml::LabelEncoder",
        "com.microsoft::Inverse",
        "ArgMax",
        "ArgMin",
        "TopK",
        "CastLike",
        "QuantizeLinear", // no integer represents NaN
    ];
    const FLOATS: [i64; 5] = [1, 9, 10, 11, 16]; // and what is true or not
    let is_to_integer = |attribute: &AttributeProto| attribute.name == "to" && !FLOATS.contains(&attribute.i);
    let name = node.qualified();
    let mut bodies = node.bodies();
    PICKY.contains(&&*name)
        || name == "Cast" && node.attribute.iter().any(is_to_integer)
        || name.starts_with("ai.onnx.ml::") && name.ends_with("Classifier")
        || bodies.any(|body| body.node.iter().any(is_picky))
}

/// Most nodes between an output and the one that knows what its columns are.
const MAX_STEPS: usize = 4;

/// The names of an output's columns: the keys of a map, or the classes of a classifier's scores.
fn labels(graph: &GraphProto, output: &str) -> Vec<String> {
    let mut name = output;
    for _ in 0..MAX_STEPS {
        let makes = |node: &&NodeProto| node.output.iter().any(|output| output == name);
        let Some(node) = graph.node.iter().find(makes) else { break };
        let first = node.output.first().is_some_and(|output| output == name);
        let is_classifier = node.domain == "ai.onnx.ml" && node.op_type.ends_with("Classifier");
        if node.op_type == "ZipMap" || (is_classifier && !first) {
            let named = node.attribute.iter().filter(|attribute| attribute.name.starts_with("classlabels"));
            return named
                .flat_map(|attribute| {
                    let texts = attribute.strings.iter().map(|text| String::from_utf8_lossy(text).into_owned());
                    texts.chain(attribute.ints.iter().map(i64::to_string)).collect::<Vec<_>>()
                })
                .collect();
        }
        match (node.op_type.as_str(), node.input.first()) {
            ("Cast" | "Identity" | "Normalizer", Some(input)) => name = input,
            _ => break,
        }
    }
    Vec::new()
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
    Declared { name: info.name.clone(), element: tensor.map_or(0, |tensor| tensor.elem_type), dims, range: None }
}
