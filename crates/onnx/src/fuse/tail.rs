//! What follows a convolution or a product: a bias, the sum with another tensor, an activation. Each is done to a number
//! when it is made, instead of in another pass over memory.

use super::net::Net;
use super::node::{Joined, Node};
use crate::fast::activation::Activation;
use crate::proto::NodeProto;

/// Joins convolutions, and products with a constant matrix, with what follows them: one reader after the other, as long as
/// there is only one, and in the order in which a joined node computes.
pub(super) fn join(net: &mut Net<'_>) {
    for first in net.places() {
        let mut at = first;
        while let Some((reader, joined)) = next(net, at) {
            if !net.join(&[at, reader], joined) {
                break;
            }
            at = reader;
        }
    }
}

/// The reader that can be joined to a node, and what they are together.
fn next(net: &Net<'_>, at: usize) -> Option<(usize, Node)> {
    let node = net.node(at)?;
    let followed = node.followed()?;
    let linear = is_linear(net, node);
    // Nothing is joined behind an activation: it would be done before it.
    if followed.activation != Activation::None || !(linear || is_convolution(net, node)) {
        return None;
    }
    let reader = net.only_reader(at)?;
    let after = net.node(reader)?;
    let mut input = node.file.input.clone();
    let mut together = followed;
    if let Some(activation) = activation(net, after) {
        together.activation = activation;
    } else if after.is("Add", &[]) && followed.added.is_none() {
        let term = other(&after.file, &node.file.output[0])?;
        if net.is_weight(term) {
            (linear && is_bias(net, node, term)).then_some(())?;
            input.resize(3, String::new());
            input[2] = term.to_owned();
        } else {
            // Behind the bias, which may be absent, and a normalisation's columns.
            input.resize(input.len().max(3), String::new());
            together.added = Some(input.len());
            input.push(term.to_owned());
        }
    } else {
        return None;
    }
    let file = NodeProto { input, output: after.file.output.clone(), ..node.file.clone() };
    Some((reader, Node { file, joined: Joined::Followed(together) }))
}

/// Whether the node convolves lines or images with constant weights.
fn is_convolution(net: &Net<'_>, node: &Node) -> bool {
    let rank = |i: usize| node.file.input.get(i).and_then(|name| net.float_dims(name)).map(<[i64]>::len);
    let has_bias = node.file.input.get(2).is_some_and(|name| !name.is_empty());
    is_standard(node, "Conv") && matches!(rank(1), Some(3 | 4)) && (!has_bias || rank(2) == Some(1))
}

/// Whether the node multiplies with a constant matrix, and adds no more than a bias for each column.
fn is_linear(net: &Net<'_>, node: &Node) -> bool {
    let file = &node.file;
    let rank = |i: usize| file.input.get(i).and_then(|name| net.float_dims(name)).map(<[i64]>::len);
    let set = |name: &str| file.attribute.iter().find(|a| a.name == name);
    let has_bias = file.input.get(2).is_some_and(|name| !name.is_empty());
    let plain = match file.op_type.as_str() {
        "MatMul" => file.attribute.is_empty(),
        "Gemm" => {
            let one = |name: &str| set(name).is_none_or(|a| a.f == 1.0);
            one("alpha") && one("beta") && set("transA").is_none_or(|a| a.i == 0)
        }
        _ => false,
    };
    plain && is_standard(node, &file.op_type) && rank(1) == Some(2) && (!has_bias || rank(2) == Some(1))
}

fn is_standard(node: &Node, operator: &str) -> bool {
    let file = &node.file;
    file.op_type == operator && file.is_standard() && file.output.len() == 1
}

/// Whether a weight can be the bias of a product without one: a number for each column, or one for all. Anything longer
/// would make the result wider.
fn is_bias(net: &Net<'_>, node: &Node, term: &str) -> bool {
    let columns = node.file.input.get(1).and_then(|name| net.float_dims(name)).and_then(<[i64]>::last);
    let fits = net.float_dims(term).is_some_and(|dims| dims == [1] || dims.len() == 1 && dims.last() == columns);
    let has_bias = node.file.input.get(2).is_some_and(|name| !name.is_empty());
    fits && !has_bias && node.file.op_type == "MatMul"
}

/// The other one of a node's two arguments.
fn other<'a>(node: &'a NodeProto, name: &str) -> Option<&'a str> {
    match node.input.as_slice() {
        [a, b] if a == name => Some(b),
        [a, b] if b == name => Some(a),
        _ => None,
    }
}

/// The activation that a node is.
fn activation(net: &Net<'_>, node: &Node) -> Option<Activation> {
    if let Joined::Activation(activation) = node.joined {
        return Some(activation);
    }
    let attribute = |name: &str| node.file.attribute.iter().find(|a| a.name == name);
    let (activation, attributes): (_, &[&str]) = match node.file.op_type.as_str() {
        "Relu" => (Activation::Relu, &[]),
        "Tanh" => (Activation::Tanh, &[]),
        "Sigmoid" => (Activation::Sigmoid, &[]),
        "HardSwish" => (Activation::HardSwish, &[]),
        "Gelu" if attribute("approximate").is_none_or(|a| a.s == b"none") => (Activation::Gelu, &["approximate"]),
        "LeakyRelu" => (Activation::LeakyRelu(attribute("alpha").map_or(0.01, |a| a.f)), &["alpha"]),
        "Clip" => {
            // A bound is an attribute in old opsets and an argument in newer ones; one that is left out is none.
            let bound = |name: &str, i: usize, none: f32| match node.file.input.get(i) {
                Some(input) if !input.is_empty() => net.scalar(input),
                _ => Some(attribute(name).map_or(none, |a| a.f)),
            };
            let (low, high) = (bound("min", 1, f32::NEG_INFINITY)?, bound("max", 2, f32::INFINITY)?);
            (Activation::Clip(low, high), &["min", "max"])
        }
        _ => return None,
    };
    node.is(&node.file.op_type, attributes).then_some(activation)
}
