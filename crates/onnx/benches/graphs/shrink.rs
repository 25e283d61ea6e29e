//! Makes a graph smaller as long as it still shows what it was kept for.

use super::file::{Attribute, Graph, Weight};

/// The smallest graph that can be had by leaving outputs away and by cutting nodes off: what a node has computed then
/// becomes an input.
pub(super) fn smallest(mut graph: Graph, shows: impl Fn(&Graph) -> bool) -> Graph {
    loop {
        let outputs = (0..graph.outputs.len()).filter(|_| graph.outputs.len() > 1).map(|at| only(&graph, at));
        let cuts = (0..graph.nodes.len()).filter_map(|at| cut(&graph, at));
        match outputs.chain(cuts).find(|smaller| shows(smaller)) {
            Some(smaller) => graph = smaller,
            None => return graph,
        }
    }
}

fn only(graph: &Graph, output: usize) -> Graph {
    let mut graph = Graph { outputs: vec![graph.outputs[output].clone()], ..graph.clone() };
    sweep(&mut graph);
    graph
}

/// The graph without one node; `None` where its outputs are no values with rows.
fn cut(graph: &Graph, at: usize) -> Option<Graph> {
    let mut graph = graph.clone();
    let node = graph.nodes.remove(at);
    match &node.attributes[..] {
        // A constant is a weight as well.
        [(_, Attribute::Tensor(weight))] if node.operator == "Constant" => {
            graph.weights.push(Weight { name: node.outputs[0].clone(), ..weight.clone() });
        }
        _ if node.outputs.iter().all(|name| graph.dims.contains_key(name)) => graph.inputs.extend(node.outputs),
        _ => return None,
    }
    sweep(&mut graph);
    // An output that is an input proves nothing.
    graph.outputs.iter().all(|name| !graph.inputs.contains(name)).then_some(graph)
}

/// Removes nodes and inputs that no output needs.
fn sweep(graph: &mut Graph) {
    let mut needed = graph.outputs.clone();
    let mut kept = Vec::new();
    while let Some(node) = graph.nodes.pop() {
        if node.outputs.iter().any(|name| needed.contains(name)) {
            needed.extend(node.inputs.iter().cloned());
            kept.push(node);
        }
    }
    kept.reverse();
    graph.nodes = kept;
    graph.inputs.retain(|name| needed.contains(name));
}
