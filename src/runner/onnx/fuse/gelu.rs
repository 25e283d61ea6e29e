//! GELU written out with the error function, as exporters do before opset 20: x · (1 + erf(x / √2)) / 2.

use super::{DOMAIN, Index, is, other, scalar, take};
use crate::runner::onnx::proto::{GraphProto, NodeProto};

/// Largest difference of a constant to its exact value.
const CLOSE: f32 = 1e-4;

/// The nodes of one GELU and its argument. The last node computes the result.
struct Found {
    x: String,
    nodes: Vec<usize>,
}

/// Replaces each by one node of our own `Gelu`.
pub(super) fn join(graph: &mut GraphProto) {
    let index = Index::of(graph);
    let erfs = graph.node.iter().enumerate().filter(|(_, node)| is(node, "Erf")).map(|(at, _)| at);
    let found: Vec<Found> = erfs.filter_map(|at| find(graph, &index, at)).collect();
    for Found { x, mut nodes } in found {
        let Some(last) = nodes.pop() else { continue };
        nodes.into_iter().for_each(|at| drop(take(graph, at)));
        let node = take(graph, last);
        let (op_type, domain) = ("Gelu".to_owned(), DOMAIN.to_owned());
        graph.node[last] = NodeProto { op_type, domain, input: vec![x], attribute: Vec::new(), ..node };
    }
}

fn find(graph: &GraphProto, index: &Index, erf: usize) -> Option<Found> {
    let node = |at: usize| &graph.node[at];
    let close = |name: &str, exact: f32| scalar(graph, index, name).is_some_and(|x| (x - exact).abs() < CLOSE);
    let reader = |at: usize| index.only_reader(&node(at).output[0]);

    let scaled = index.makers.get(&node(erf).input[0]).copied().filter(|&at| reader(at) == Some(erf))?;
    let x = match node(scaled).input.as_slice() {
        [x, c] if is(node(scaled), "Div") && close(c, std::f32::consts::SQRT_2) => x,
        [x, c] if is(node(scaled), "Mul") && close(c, std::f32::consts::FRAC_1_SQRT_2) => x,
        _ => return None,
    };
    let plus = reader(erf).filter(|&at| is(node(at), "Add"))?;
    close(other(node(plus), &node(erf).output[0])?, 1.0).then_some(())?;
    let times = reader(plus).filter(|&at| is(node(at), "Mul"))?;
    let factor = other(node(times), &node(plus).output[0])?;
    if factor == x {
        // x · (1 + erf) first, then its half.
        let half = reader(times).filter(|&at| is(node(at), "Mul"))?;
        close(other(node(half), &node(times).output[0])?, 0.5).then_some(())?;
        return Some(Found { x: x.clone(), nodes: vec![scaled, erf, plus, times, half] });
    }
    // The half of x first.
    let half = index.makers.get(factor).copied().filter(|&at| is(node(at), "Mul") && reader(at) == Some(times))?;
    close(other(node(half), x)?, 0.5).then_some(())?;
    Some(Found { x: x.clone(), nodes: vec![scaled, erf, plus, half, times] })
}
