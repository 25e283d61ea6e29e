//! `Constant` nodes become weights: some exporters write every weight as a node, and what joins nodes looks for weights.

use super::proto::GraphProto;

/// Turns the nodes of a graph that are no more than a tensor into weights.
pub(super) fn lift(graph: &mut GraphProto) {
    let mut weights = Vec::new();
    graph.node.retain_mut(|node| {
        let standard = node.op_type == "Constant" && node.is_standard();
        let ([output], [value]) = (&node.output[..], &mut node.attribute[..]) else { return true };
        if !standard || value.name != "value" || output.is_empty() {
            return true;
        }
        let Some(mut weight) = value.t.take() else { return true };
        weight.name.clone_from(output);
        weights.push(weight);
        false
    });
    graph.initializer.append(&mut weights);
}
