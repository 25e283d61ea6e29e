//! Joins nodes that are faster together, on the file's own messages: a graph goes in and an equal graph comes out.
//!
//! Joined nodes are of operators in a domain of our own, [`DOMAIN`], that no file can name.

mod gelu;
mod layer_norm;
mod normalization;
mod silu;
mod tail;

use std::collections::HashMap;

use super::files::Files;
use super::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};
use super::weights;

/// The domain of operators that only this room makes.
const DOMAIN: &str = "uncork";
/// What an operator's name begins with if it is of that domain.
pub(super) const PREFIX: &str = "uncork::";

/// Joins what can be joined.
pub(super) fn fuse(graph: &mut GraphProto) {
    normalization::into_convolutions(graph);
    gelu::join(graph);
    layer_norm::join(graph);
    silu::join(graph);
    tail::join(graph);
    graph.node.retain(|node| !node.op_type.is_empty());
}

/// Who makes and who reads each value. Stale once a node has changed.
struct Index {
    makers: HashMap<String, usize>,
    readers: HashMap<String, Vec<usize>>,
    /// How often each value is read, by nodes, by bodies within nodes, and as an output.
    uses: HashMap<String, usize>,
}

impl Index {
    fn of(graph: &GraphProto) -> Index {
        let (mut makers, mut readers) = (HashMap::new(), HashMap::<String, Vec<usize>>::new());
        for (at, node) in graph.node.iter().enumerate() {
            makers.extend(node.output.iter().map(|name| (name.clone(), at)));
            node.input.iter().for_each(|name| readers.entry(name.clone()).or_default().push(at));
        }
        let mut uses = HashMap::new();
        count_uses(graph, &mut uses);
        Index { makers, readers, uses }
    }

    /// The node that alone reads a value, if there is one.
    fn only_reader(&self, name: &str) -> Option<usize> {
        match (self.uses.get(name), self.readers.get(name)?.as_slice()) {
            (Some(1), &[reader]) => Some(reader),
            _ => None,
        }
    }
}

fn count_uses(graph: &GraphProto, uses: &mut HashMap<String, usize>) {
    for node in &graph.node {
        for name in &node.input {
            *uses.entry(name.clone()).or_default() += 1;
        }
        node.attribute.iter().filter_map(|attribute| attribute.g.as_ref()).for_each(|body| count_uses(body, uses));
    }
    for output in &graph.output {
        *uses.entry(output.name.clone()).or_default() += 1;
    }
}

/// Whether the node is of this standard operator, with one output and, if it takes any, a first input.
fn is(node: &NodeProto, operator: &str) -> bool {
    let standard = ["", "ai.onnx"].contains(&node.domain.as_str());
    let complete = node.output.len() == 1 && (operator == "Constant" || !node.input.is_empty());
    node.op_type == operator && standard && complete
}

/// A constant of the file.
fn constant<'a>(graph: &'a GraphProto, name: &str) -> Option<&'a TensorProto> {
    graph.initializer.iter().find(|weight| weight.name == name)
}

/// The shape of a constant of float32, the only type that joined nodes have their own kernels for.
fn float_dims<'a>(graph: &'a GraphProto, name: &str) -> Option<&'a [i64]> {
    const FLOAT: i32 = 1;
    constant(graph, name).filter(|weight| weight.data_type == FLOAT).map(|weight| weight.dims.as_slice())
}

/// A constant that is a single float.
fn scalar(graph: &GraphProto, index: &Index, name: &str) -> Option<f32> {
    let made = index.makers.get(name).map(|&at| &graph.node[at]).filter(|node| is(node, "Constant"));
    let tensor = match made {
        Some(node) => node.attribute.iter().find(|a| a.name == "value")?.t.as_ref()?,
        None => constant(graph, name)?,
    };
    if tensor.dims.iter().any(|&d| d != 1) {
        return None;
    }
    let data = weights::data(&mut tensor.clone(), &Files::None).ok()?;
    data.try_into_vec::<f32>().ok()?.pop()
}

/// The other one of a node's two arguments.
fn other<'a>(node: &'a NodeProto, name: &str) -> Option<&'a str> {
    match node.input.as_slice() {
        [a, b] if a == name => Some(b),
        [a, b] if b == name => Some(a),
        _ => None,
    }
}

/// An attribute with a text.
fn text(name: &str, text: &str) -> AttributeProto {
    AttributeProto { name: name.to_owned(), s: text.as_bytes().to_vec(), kind: 3, ..AttributeProto::default() }
}

/// An attribute with a number.
fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto { name: name.to_owned(), f, kind: 1, ..AttributeProto::default() }
}

/// An attribute with an integer.
fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.to_owned(), i, kind: 2, ..AttributeProto::default() }
}

/// Takes a node out; [`fuse`] clears its place away at the end.
fn take(graph: &mut GraphProto, at: usize) -> NodeProto {
    std::mem::take(&mut graph.node[at])
}

#[cfg(test)]
mod tests {
    use super::super::author::Attribute::{Float, Int, Ints};
    use super::super::author::{Author, FREE};
    use super::*;

    /// The operators of what `fuse` makes of a graph.
    fn joined(author: Author) -> Vec<String> {
        let mut graph = author.body();
        fuse(&mut graph);
        graph.node.iter().map(NodeProto::qualified).collect()
    }

    fn convolution() -> Author {
        let author = Author::new(17).input("x", &[FREE, 2, 4, 4]).floats("w", &[2, 2, 1, 1], &[0.5; 4]);
        author.node("Conv", &["x", "w"], &["c"], &[])
    }

    #[test]
    fn what_follows_a_convolution_joins_it() {
        let author = convolution().output("y", &[FREE, 2, 4, 4]);
        let author = author.node("Sigmoid", &["x"], &["s"], &[]).node("Add", &["s", "c"], &["a"], &[]);
        assert_eq!(joined(author.node("Relu", &["a"], &["y"], &[])), ["Sigmoid", "uncork::Conv"]);
    }

    #[test]
    fn a_number_times_its_sigmoid_is_one_activation() {
        let author = convolution().output("y", &[FREE, 2, 4, 4]).node("Sigmoid", &["c"], &["s"], &[]);
        assert_eq!(joined(author.node("Mul", &["c", "s"], &["y"], &[])), ["uncork::Conv"]);
        let author = convolution().output("y", &[FREE, 2, 4, 4]).node("Sigmoid", &["c"], &["s"], &[]);
        assert_eq!(joined(author.node("Mul", &["x", "s"], &["y"], &[])), ["uncork::Conv", "Mul"]);
    }

    #[test]
    fn what_somebody_else_reads_is_kept() {
        let author = convolution().output("y", &[FREE, 2, 4, 4]).output("c", &[FREE, 2, 4, 4]);
        assert_eq!(joined(author.node("Relu", &["c"], &["y"], &[])), ["Conv", "Relu"]);
        let author = convolution().output("y", &[FREE, 2, 4, 4]);
        assert_eq!(joined(author.node("Mul", &["c", "c"], &["y"], &[])), ["Conv", "Mul"]);
    }

    #[test]
    fn a_weight_that_is_computed_joins_nothing() {
        let author = Author::new(17).input("x", &[FREE, 2, 4, 4]).input("w", &[2, 2, 1, 1]).output("y", &[FREE]);
        let author = author.node("Conv", &["x", "w"], &["c"], &[]).node("Relu", &["c"], &["y"], &[]);
        assert_eq!(joined(author), ["Conv", "Relu"]);
        let author = Author::new(17).int_input("x", &[FREE, 2]).ints("w", &[2, 2], &[1; 4]).output("y", &[FREE]);
        let author = author.node("MatMul", &["x", "w"], &["m"], &[]).node("Relu", &["m"], &["y"], &[]);
        assert_eq!(joined(author), ["MatMul", "Relu"], "integers");
    }

    #[test]
    fn a_product_takes_its_bias_and_its_activation() {
        let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 3]);
        let author = author.floats("w", &[2, 3], &[1.0; 6]).floats("b", &[3], &[1.0; 3]);
        let author = author.node("MatMul", &["x", "w"], &["m"], &[]).node("Add", &["b", "m"], &["a"], &[]);
        assert_eq!(joined(author.node("Tanh", &["a"], &["y"], &[])), ["uncork::MatMul"]);
    }

    #[test]
    fn gelu_is_found_in_both_orders_of_its_factors() {
        let begin = || {
            let author = Author::new(13).input("x", &[FREE, 3]).output("y", &[FREE, 3]);
            let author = author.floats("root", &[], &[std::f32::consts::SQRT_2]);
            let author = author.floats("one", &[], &[1.0]).floats("half", &[], &[0.5]);
            let author = author.node("Div", &["x", "root"], &["d"], &[]).node("Erf", &["d"], &["e"], &[]);
            author.node("Add", &["e", "one"], &["p"], &[])
        };
        let last = begin().node("Mul", &["x", "p"], &["m"], &[]).node("Mul", &["m", "half"], &["y"], &[]);
        assert_eq!(joined(last), ["uncork::Gelu"]);
        let first = begin().node("Mul", &["x", "half"], &["h"], &[]).node("Mul", &["h", "p"], &["y"], &[]);
        assert_eq!(joined(first), ["uncork::Gelu"]);
        let other = begin().node("Mul", &["x", "one"], &["h"], &[]).node("Mul", &["h", "p"], &["y"], &[]);
        assert_eq!(joined(other).len(), 5, "not the half");
    }

    /// A layer normalisation written out, over `axis`.
    fn normalization(axis: i64) -> Author {
        let author = Author::new(13).input("x", &[FREE, 3]).output("y", &[FREE, 3]);
        let author = author.floats("two", &[], &[2.0]).floats("epsilon", &[], &[1e-5]);
        let author = author.floats("scale", &[3], &[1.0, 2.0, 3.0]).floats("shift", &[3], &[0.5; 3]);
        let mean = [("axes", Ints(&[axis])), ("keepdims", Int(1))];
        let mean = |author: Author, x: &str, y: &str| author.node("ReduceMean", &[x], &[y], &mean);
        let author = mean(author, "x", "m").node("Sub", &["x", "m"], &["d"], &[]);
        let author = mean(author.node("Pow", &["d", "two"], &["s"], &[]), "s", "v");
        let author = author.node("Add", &["v", "epsilon"], &["p"], &[]).node("Sqrt", &["p"], &["r"], &[]);
        let author = author.node("Div", &["d", "r"], &["n"], &[]).node("Mul", &["n", "scale"], &["t"], &[]);
        author.node("Add", &["t", "shift"], &["y"], &[])
    }

    #[test]
    fn layer_normalization_is_found_over_the_last_axis_only() {
        assert_eq!(joined(normalization(-1)), ["uncork::LayerNormalization"]);
        assert_eq!(joined(normalization(0)).len(), 9);
    }

    #[test]
    fn bounds_and_slopes_stay_with_the_activation() {
        let author = convolution().output("y", &[FREE, 2, 4, 4]);
        let mut graph = author.node("LeakyRelu", &["c"], &["y"], &[("alpha", Float(0.3))]).body();
        fuse(&mut graph);
        let slope = graph.node[0].attribute.iter().find(|a| a.name == "uncork.slope").map(|a| a.f);
        assert_eq!(slope, Some(0.3));
    }
}
