//! Layer normalisation written out, as exporters do before opset 17:
//! (x − mean) / √(mean of (x − mean)² + ε) · scale + shift, over the last axis.

use super::{DOMAIN, Index, float, float_dims, is, other, scalar, take};
use crate::runner::onnx::proto::{GraphProto, NodeProto};

struct Found {
    x: String,
    scale: String,
    shift: String,
    epsilon: f32,
    /// The last one computes the result.
    nodes: Vec<usize>,
}

/// Replaces each by one node of our own `LayerNormalization`.
pub(super) fn join(graph: &mut GraphProto) {
    let index = Index::of(graph);
    let roots = graph.node.iter().enumerate().filter(|(_, node)| is(node, "Sqrt")).map(|(at, _)| at);
    let found: Vec<Found> = roots.filter_map(|at| find(graph, &index, at)).collect();
    for Found { x, scale, shift, epsilon, mut nodes } in found {
        let Some(last) = nodes.pop() else { continue };
        nodes.into_iter().for_each(|at| drop(take(graph, at)));
        let node = take(graph, last);
        graph.node[last] = NodeProto {
            op_type: "LayerNormalization".to_owned(),
            domain: DOMAIN.to_owned(),
            input: vec![x, scale, shift],
            attribute: vec![float("epsilon", epsilon)],
            ..node
        };
    }
}

/// Goes from the root back to x, and on to the result.
fn find(graph: &GraphProto, index: &Index, root: usize) -> Option<Found> {
    let node = |at: usize| &graph.node[at];
    let maker = |name: &str| index.makers.get(name).copied();
    let reader = |at: usize| index.only_reader(&node(at).output[0]);
    // A mean over the last axis, that is kept.
    let is_mean = |at: usize| {
        let node = node(at);
        let axes = |name: &str| node.attribute.iter().find(|a| a.name == name);
        let last = axes("axes").is_some_and(|a| a.ints == [-1]);
        let kept = axes("keepdims").is_none_or(|a| a.i == 1);
        is(node, "ReduceMean") && node.input.len() == 1 && last && kept
    };

    let plus = maker(&node(root).input[0]).filter(|&at| is(node(at), "Add") && reader(at) == Some(root))?;
    let variance = node(plus).input.iter().find_map(|name| maker(name).filter(|&at| is_mean(at)))?;
    let epsilon = scalar(graph, index, other(node(plus), &node(variance).output[0])?)?;
    let square = maker(&node(variance).input[0])?;
    let centred = match node(square).input.as_slice() {
        [d, two] if is(node(square), "Pow") && scalar(graph, index, two) == Some(2.0) => d,
        [d, e] if is(node(square), "Mul") && d == e => d,
        _ => return None,
    };
    let minus = maker(centred).filter(|&at| is(node(at), "Sub"))?;
    let [x, mean] = node(minus).input.as_slice() else { return None };
    let mean = maker(mean).filter(|&at| is_mean(at) && node(at).input[0] == *x)?;
    let over = reader(root).filter(|&at| is(node(at), "Div") && node(at).input[0] == *centred)?;
    let times = reader(over).filter(|&at| is(node(at), "Mul"))?;
    let scale = other(node(times), &node(over).output[0])?;
    let last = reader(times).filter(|&at| is(node(at), "Add"))?;
    let shift = other(node(last), &node(times).output[0])?;

    let alone = reader(mean) == Some(minus) && reader(square) == Some(variance) && reader(variance) == Some(plus);
    let squared_twice = usize::from(is(node(square), "Mul"));
    let centred_alone = index.uses.get(centred.as_str()) == Some(&(2 + squared_twice));
    let columns = [scale, shift].map(|name| float_dims(graph, name));
    let vectors = matches!(columns, [Some([a]), Some([b])] if a == b);
    (alone && centred_alone && vectors).then_some(())?;
    let nodes = vec![mean, minus, square, variance, plus, root, over, times, last];
    Some(Found { x: x.clone(), scale: scale.to_owned(), shift: shift.to_owned(), epsilon, nodes })
}
