//! A convolution and the batch normalisation that alone reads it: scale and shift go into the weights.

use std::collections::HashSet;

use super::{DOMAIN, Index, is, take};
use crate::runner::onnx::proto::{GraphProto, NodeProto};

/// Weights and statistics must be constant. The joined node has the convolution's inputs, with the bias's place kept, then
/// the normalisation's four.
pub(super) fn into_convolutions(graph: &mut GraphProto) {
    let index = Index::of(graph);
    let constants: HashSet<&str> = graph.initializer.iter().map(|weight| weight.name.as_str()).collect();
    let constant = |node: &NodeProto| {
        let mut weights = node.input.iter().skip(1);
        weights.all(|name| name.is_empty() || constants.contains(name.as_str()))
    };
    let convolutions = graph.node.iter().enumerate().filter(|(_, node)| is(node, "Conv") && constant(node));
    let pairs: Vec<(usize, usize)> = convolutions
        .filter_map(|(at, conv)| {
            let reader = index.only_reader(&conv.output[0])?;
            let node = &graph.node[reader];
            let plain = is(node, "BatchNormalization") && node.input.len() == 5 && constant(node);
            (plain && node.input[0] == conv.output[0]).then_some((at, reader))
        })
        .collect();
    for (conv, normalization) in pairs {
        let after = take(graph, normalization);
        let node = &mut graph.node[conv];
        node.domain = DOMAIN.to_owned();
        node.input.resize(3, String::new());
        node.input.extend(after.input.into_iter().skip(1));
        node.output = after.output;
        node.attribute.extend(after.attribute);
    }
}
