//! What follows a convolution or a product: a bias, the sum with another tensor, an activation. Each is done to a number
//! when it is made, instead of in another pass over memory.

use super::{DOMAIN, Index, constant, float, float_dims, int, is, other, scalar, take, text};
use crate::runner::onnx::proto::{AttributeProto, GraphProto, NodeProto};

/// Argument of a joined convolution that is added to its result: behind those of a normalisation.
const CONV_ADDED: usize = 7;
/// Argument of a joined product that is added to its result: behind factors and bias.
const LINEAR_ADDED: usize = 3;

/// Joins convolutions, and products with a constant matrix, with what follows them.
pub(super) fn join(graph: &mut GraphProto) {
    let index = Index::of(graph);
    for at in 0..graph.node.len() {
        let node = &graph.node[at];
        if is_conv(graph, node) {
            follow(graph, &index, at, CONV_ADDED, false);
        } else if is_linear(graph, node) {
            follow(graph, &index, at, LINEAR_ADDED, true);
        }
    }
}

/// Whether the node convolves lines or images with constant weights.
fn is_conv(graph: &GraphProto, node: &NodeProto) -> bool {
    let rank = |i: usize| node.input.get(i).and_then(|name| float_dims(graph, name)).map(<[i64]>::len);
    let bias = node.input.get(2).is_none_or(|name| name.is_empty()) || rank(2) == Some(1);
    let conv = node.op_type == "Conv" && (node.domain == DOMAIN || is(node, "Conv"));
    conv && matches!(rank(1), Some(3 | 4)) && bias
}

/// Whether the node multiplies with a constant matrix, and adds no more than a bias for each column.
fn is_linear(graph: &GraphProto, node: &NodeProto) -> bool {
    let rank = |i: usize| node.input.get(i).and_then(|name| float_dims(graph, name)).map(<[i64]>::len);
    let one = |name: &str| node.attribute.iter().find(|a| a.name == name).is_none_or(|a| a.f == 1.0);
    let turned = node.attribute.iter().any(|a| a.name == "transA" && a.i != 0);
    match node.input.len() {
        2 if is(node, "MatMul") => rank(1) == Some(2),
        2 | 3 if is(node, "Gemm") => {
            let bias = node.input.get(2).is_none_or(|name| name.is_empty()) || rank(2) == Some(1);
            rank(1) == Some(2) && bias && one("alpha") && one("beta") && !turned
        }
        _ => false,
    }
}

/// Takes in one reader after the other, as long as there is only one. The joined node takes the last one's place.
fn follow(graph: &mut GraphProto, index: &Index, first: usize, added: usize, linear: bool) {
    let (mut at, mut joined) = (first, false);
    loop {
        let node = &graph.node[at];
        let Some(reader) = index.only_reader(&node.output[0]) else { break };
        let next = &graph.node[reader];
        let has_added = node.input.len() > added;
        let has_bias = node.input.get(2).is_some_and(|name| !name.is_empty());
        if is(next, "Add") && !has_added {
            let Some(term) = other(next, &node.output[0]).map(str::to_owned) else { break };
            // A bias has a number for each column, or one for all; anything longer would make the result wider.
            let columns = float_dims(graph, &node.input[1]).and_then(<[i64]>::last).copied();
            let bias = float_dims(graph, &term).is_some_and(|dims| dims == [1] || dims == columns.as_slice());
            let place = match constant(graph, &term) {
                Some(_) if bias && linear && !has_bias && node.op_type == "MatMul" => 2,
                Some(_) => break,
                None => added,
            };
            let node = &mut graph.node[at];
            node.input.resize(node.input.len().max(place + 1), String::new());
            node.input[place] = term;
            if place == added {
                node.attribute.push(int("uncork.added", added as i64));
            }
        } else if let Some(attributes) = activation(graph, index, next) {
            graph.node[at].attribute.extend(attributes);
            (at, joined) = (shift(graph, at, reader), true);
            break;
        } else {
            break;
        }
        (at, joined) = (shift(graph, at, reader), true);
    }
    if joined {
        graph.node[at].domain = DOMAIN.to_owned();
    }
}

/// Moves a node to the place of its reader, whose output it computes from now on: all that it reads is there by then.
fn shift(graph: &mut GraphProto, at: usize, reader: usize) -> usize {
    let node = take(graph, at);
    let output = take(graph, reader).output;
    graph.node[reader] = NodeProto { output, ..node };
    reader
}

/// The attributes that stand for an activation.
fn activation(graph: &GraphProto, index: &Index, node: &NodeProto) -> Option<Vec<AttributeProto>> {
    let named = |name: &str| vec![text("uncork.activation", name)];
    let attribute = |name: &str| node.attribute.iter().find(|a| a.name == name);
    if node.domain == DOMAIN && ["Gelu", "Silu"].contains(&node.op_type.as_str()) {
        return Some(named(&node.op_type));
    }
    if !is(node, &node.op_type) {
        return None;
    }
    match node.op_type.as_str() {
        "Relu" | "Tanh" | "Sigmoid" | "HardSwish" => Some(named(&node.op_type)),
        "Gelu" if attribute("approximate").is_none_or(|a| a.s == b"none") => Some(named("Gelu")),
        "LeakyRelu" => {
            let slope = attribute("alpha").map_or(0.01, |a| a.f);
            Some([named("LeakyRelu"), vec![float("uncork.slope", slope)]].concat())
        }
        "Clip" => {
            // A bound is an attribute in old opsets and an argument in newer ones; one that is left out is none.
            let bound = |name: &str, i: usize, none: f32| match node.input.get(i) {
                Some(input) if !input.is_empty() => scalar(graph, index, input),
                _ => Some(attribute(name).map_or(none, |a| a.f)),
            };
            let (low, high) = (bound("min", 1, f32::NEG_INFINITY)?, bound("max", 2, f32::INFINITY)?);
            Some([named("Clip"), vec![float("uncork.low", low), float("uncork.high", high)]].concat())
        }
        _ => None,
    }
}
