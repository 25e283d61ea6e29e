//! SiLU, which ONNX has no operator for before opset 24: x · sigmoid(x).

use super::{DOMAIN, Index, is, other, take};
use crate::runner::onnx::proto::{GraphProto, NodeProto};

/// Replaces each by one node of our own `Silu`.
pub(super) fn join(graph: &mut GraphProto) {
    let index = Index::of(graph);
    for at in 0..graph.node.len() {
        let sigmoid = &graph.node[at];
        if !is(sigmoid, "Sigmoid") {
            continue;
        }
        let (x, y) = (sigmoid.input[0].clone(), &sigmoid.output[0]);
        let Some(times) = index.only_reader(y).filter(|&at| is(&graph.node[at], "Mul")) else { continue };
        if other(&graph.node[times], y) == Some(&x) {
            take(graph, at);
            let (op_type, domain) = ("Silu".to_owned(), DOMAIN.to_owned());
            let node = take(graph, times);
            graph.node[times] = NodeProto { op_type, domain, input: vec![x], ..node };
        }
    }
}
