//! Joins nodes that are faster together, on the file's own messages: a graph goes in and an equal graph comes out.
//!
//! Joined nodes are of operators in a domain of our own, [`DOMAIN`], that no file can name.

use std::collections::{HashMap, HashSet};

use super::proto::{GraphProto, NodeProto};

/// The domain of operators that only this file makes.
const DOMAIN: &str = "uncork";
/// What an operator's name begins with if it is of that domain.
pub(super) const PREFIX: &str = "uncork::";

/// Joins what can be joined.
pub(super) fn fuse(graph: &mut GraphProto) {
    conv_and_normalization(graph);
}

/// A convolution and the normalisation that alone reads it: scale and shift go into the weights.
///
/// Weights and statistics must be constant. The joined node has the convolution's inputs, with the bias's place kept,
/// then the normalisation's four.
fn conv_and_normalization(graph: &mut GraphProto) {
    let uses = uses(graph);
    let constants: HashSet<&str> = graph.initializer.iter().map(|weight| weight.name.as_str()).collect();
    let constant = |names: &[String]| names.iter().all(|name| name.is_empty() || constants.contains(name.as_str()));
    let conv = |node: &NodeProto| node.op_type == "Conv" && node.domain.is_empty() && constant(&node.input[1..]);
    let makers: HashMap<&str, usize> = graph
        .node
        .iter()
        .enumerate()
        .filter(|(_, node)| !node.input.is_empty() && conv(node))
        .filter_map(|(at, node)| Some((node.output.first()?.as_str(), at)))
        .collect();
    let pairs: Vec<(usize, usize)> = graph
        .node
        .iter()
        .enumerate()
        .filter_map(|(at, node)| {
            let plain = node.op_type == "BatchNormalization"
                && node.output.len() == 1
                && node.input.len() == 5
                && constant(&node.input[1..]);
            let read = node.input.first().filter(|_| plain)?;
            let maker = *makers.get(read.as_str())?;
            (uses.get(read.as_str()) == Some(&1)).then_some((maker, at))
        })
        .collect();
    let mut gone = HashSet::new();
    for (conv, normalization) in pairs {
        let after = std::mem::take(&mut graph.node[normalization]);
        let node = &mut graph.node[conv];
        node.domain = DOMAIN.to_owned();
        node.input.resize(3, String::new());
        node.input.extend(after.input.into_iter().skip(1));
        node.output = after.output;
        node.attribute.extend(after.attribute);
        gone.insert(normalization);
    }
    let mut at = 0..;
    graph.node.retain(|_| !at.next().is_some_and(|at| gone.contains(&at)));
}

/// How often each value is read, by nodes, by bodies within nodes, and as an output.
fn uses(graph: &GraphProto) -> HashMap<String, usize> {
    fn count(graph: &GraphProto, uses: &mut HashMap<String, usize>) {
        for node in &graph.node {
            for name in &node.input {
                *uses.entry(name.clone()).or_default() += 1;
            }
            node.attribute.iter().filter_map(|attribute| attribute.g.as_ref()).for_each(|body| count(body, uses));
        }
        for output in &graph.output {
            *uses.entry(output.name.clone()).or_default() += 1;
        }
    }
    let mut uses = HashMap::new();
    count(graph, &mut uses);
    uses
}
