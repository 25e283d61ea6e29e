//! Puts the nodes of a graph into an order in which they can run.
//!
//! ONNX asks for one, and tools that insert nodes, as those for float16 do, append them at the end. A file that keeps the
//! order is left as it is.

use std::collections::{HashMap, HashSet};

use super::proto::{GraphProto, NodeProto};
use super::{Cause, names};
use uncork_model::quote::QuotedPlace;

/// Sorts the nodes of a graph and of all bodies within, and refuses names that come twice: they would have no order. What
/// nothing computes is left to whoever looks for it.
pub(super) fn order(graph: &mut GraphProto) -> Result<(), Cause> {
    for node in &mut graph.node {
        node.bodies_mut().try_for_each(order)?;
    }
    names::refuse_double(graph)?;
    let needs = needs(&graph.node);
    if needs.iter().enumerate().all(|(at, needs)| needs.iter().all(|&need| need < at)) {
        return Ok(());
    }
    let sorted = sorted(&needs).map_err(|circle| broken(graph, &circle))?;
    let mut nodes: Vec<Option<NodeProto>> = std::mem::take(&mut graph.node).into_iter().map(Some).collect();
    graph.node = sorted.into_iter().filter_map(|at| nodes[at].take()).collect();
    Ok(())
}

/// For each node the nodes that make what it reads, itself and within its bodies.
fn needs(nodes: &[NodeProto]) -> Vec<Vec<usize>> {
    let mut makers: HashMap<&str, usize> = HashMap::new();
    for (at, node) in nodes.iter().enumerate() {
        makers.extend(node.output.iter().filter(|name| !name.is_empty()).map(|name| (name.as_str(), at)));
    }
    let needs = nodes.iter().map(|node| {
        let mut names = HashSet::new();
        reads(node, &mut names);
        let mut needs: Vec<usize> = names.into_iter().filter_map(|name| makers.get(name).copied()).collect();
        needs.sort_unstable();
        needs.dedup();
        needs
    });
    needs.collect()
}

/// What a node reads, and what its bodies read of the graphs around them.
fn reads<'a>(node: &'a NodeProto, names: &mut HashSet<&'a str>) {
    names.extend(node.input.iter().map(String::as_str));
    for body in node.bodies() {
        let mut inside = HashSet::new();
        body.node.iter().for_each(|node| reads(node, &mut inside));
        inside.extend(body.output.iter().map(|output| output.name.as_str()));
        for own in body.node.iter().flat_map(|node| &node.output) {
            inside.remove(own.as_str());
        }
        for own in body.input.iter().map(|input| &input.name).chain(body.initializer.iter().map(|weight| &weight.name))
        {
            inside.remove(own.as_str());
        }
        names.extend(inside);
    }
}

/// The order of the file, but each node behind those that it needs. The error is a circle of nodes that need each other.
fn sorted(needs: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Open,
        Done,
    }
    let mut states = vec![State::New; needs.len()];
    let mut order = Vec::with_capacity(needs.len());
    for start in 0..needs.len() {
        // Nodes on the way down from `start`, each with how many of its needs have been looked at.
        let mut way = if states[start] == State::New { vec![(start, 0)] } else { Vec::new() };
        states[start] = if way.is_empty() { states[start] } else { State::Open };
        while let Some((at, seen)) = way.last_mut() {
            let Some(&need) = needs[*at].get(*seen) else {
                states[*at] = State::Done;
                order.push(*at);
                way.pop();
                continue;
            };
            *seen += 1;
            match states[need] {
                State::Done => {}
                State::New => {
                    states[need] = State::Open;
                    way.push((need, 0));
                }
                State::Open => {
                    let circle = way.iter().map(|&(at, _)| at).skip_while(|&at| at != need);
                    return Err(circle.collect());
                }
            }
        }
    }
    Ok(order)
}

/// Most nodes of a circle that are named.
const NAMED: usize = 4;

fn broken(graph: &GraphProto, circle: &[usize]) -> Cause {
    let mut names: Vec<String> =
        circle.iter().take(NAMED).map(|&at| QuotedPlace(graph.node[at].label()).to_string()).collect();
    if circle.len() > NAMED {
        names.push(format!("{} more", circle.len() - NAMED));
    }
    Cause::Graph(match circle {
        [_] => format!("node {} reads what it computes itself", names[0]),
        _ => format!("nodes {} wait for each other's results in a circle", names.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use crate::author::Attribute::Body;
    use crate::author::Author;

    fn numbers() -> Vec<TensorData> {
        vec![TensorData::new(vec![1f32, -2.0], [2])]
    }

    #[test]
    fn nodes_in_any_order_compute_the_same() {
        let nodes: [(&str, &[&str], &str); 4] =
            [("Neg", &["x"], "a"), ("Exp", &["a"], "b"), ("Mul", &["a", "b"], "c"), ("Sub", &["c", "x"], "y")];
        let written = |order: [usize; 4]| {
            let author = Author::new(17).input("x", &[2]).output("y", &[2]);
            order.iter().fold(author, |author, &i| author.node(nodes[i].0, nodes[i].1, &[nodes[i].2], &[]))
        };
        let expected = written([0, 1, 2, 3]).answer(numbers()).unwrap();
        for order in [[3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]] {
            assert_eq!(written(order).answer(numbers()), Ok(expected.clone()), "{order:?}");
        }
    }

    #[test]
    fn what_a_body_reads_of_the_graph_around_it_comes_first() {
        let branch = |operator| Author::new(17).output("z", &[]).node(operator, &["later"], &["z"], &[]).body();
        let branches = [("then_branch", Body(branch("Neg"))), ("else_branch", Body(branch("Exp")))];
        let author = Author::new(17).input_of(9, "c", &[1]).input("x", &[2]).output("y", &[2]);
        let author = author.node("If", &["c"], &["y"], &branches).node("Add", &["x", "x"], &["later"], &[]);
        let inputs = [vec![TensorData::new(vec![true], [1])], numbers()].concat();
        assert_eq!(author.answer(inputs), Ok(vec![TensorData::new(vec![-2f32, 4.0], [2])]));
    }

    #[test]
    fn a_body_s_own_names_wait_for_nobody() {
        // The body's `y` is its own and not what the node makes.
        let branch = |operator| Author::new(17).output("y", &[]).node(operator, &["x"], &["y"], &[]).body();
        let branches = [("then_branch", Body(branch("Neg"))), ("else_branch", Body(branch("Exp")))];
        let author = Author::new(17).input_of(9, "c", &[1]).input("x", &[2]).output("y", &[2]);
        let author = author.node("If", &["c"], &["y"], &branches);
        let inputs = [vec![TensorData::new(vec![true], [1])], numbers()].concat();
        assert_eq!(author.answer(inputs), Ok(vec![TensorData::new(vec![-1f32, 2.0], [2])]));
    }

    #[test]
    fn a_circle_is_refused_with_its_nodes() {
        let author = Author::new(17).input("x", &[2]).output("y", &[2]);
        let author = author.node("Add", &["x", "b"], &["a"], &[]).node("Neg", &["a"], &["b"], &[]);
        let error = author.node("Neg", &["b"], &["y"], &[]).answer(numbers()).unwrap_err();
        assert!(error.contains("nodes 'make_a', 'make_b' wait for each other's results in a circle"), "{error}");
        let author = Author::new(17).input("x", &[2]).output("y", &[2]).node("Add", &["x", "y"], &["y"], &[]);
        let error = author.answer(numbers()).unwrap_err();
        assert!(error.contains("node 'make_y' reads what it computes itself"), "{error}");
    }

    #[test]
    fn a_name_that_comes_twice_is_refused_before_anybody_follows_it() {
        // Of whom `b` is made is not known: by its second maker it is made of itself.
        let author = || Author::new(17).int_input("x", &[2]).output("y", &[2]).floats("w", &[3], &[0.0; 3]);
        let twice = author().node("Identity", &["x"], &["b"], &[]).node("Identity", &["b"], &["a"], &[]);
        let twice = twice.node("Identity", &["a"], &["b"], &[]).node("Gather", &["w", "a"], &["y"], &[]);
        let weight = author().node("Gather", &["w", "x"], &["y"], &[]).node("Abs", &["y"], &["w"], &[]);
        let input = author().node("Gather", &["w", "x"], &["y"], &[]).node("Identity", &["x"], &["x"], &[]);
        let inputs = author().input("x", &[2]).node("Gather", &["w", "x"], &["y"], &[]);
        for (author, name) in [(twice, "b"), (weight, "w"), (input, "x"), (inputs, "x")] {
            let expected = format!("the name '{name}' is used twice");
            for error in [crate::Survey::of(&author.clone().finish()).err(), crate::Graph::load(&author.finish()).err()]
            {
                let error = error.map(|e| e.to_string()).unwrap_or_default();
                assert!(error.contains(&expected), "{error}");
            }
        }
    }

    #[test]
    fn a_name_that_is_written_out_of_an_operator_does_not_lead_in_a_circle() {
        // The `Cast` that is written for `ExpandDims` has this name, and reads what the file's own value goes into.
        let author = Author::new(17).int_input("x", &[]).output("z", &[]).floats("w", &[3], &[0.0; 3]);
        let author = author.node("Identity", &["x"], &["y/Cast:2"], &[]).node("Identity", &["y/Cast:2"], &["a"], &[]);
        let author = author.node("ExpandDims", &["w", "a"], &["y"], &[]).of("com.microsoft");
        let author = author.node("Gather", &["w", "a"], &["z"], &[]);
        let error = crate::Graph::load(&author.finish()).unwrap_err().to_string();
        assert!(error.contains("the name 'y/Cast:2' is used twice"), "{error}");
    }

    #[test]
    fn an_input_may_have_a_weight_as_its_default() {
        let author = Author::new(17).input("x", &[2]).input("w", &[2]).output("y", &[2]).floats("w", &[2], &[3.0, 4.0]);
        let sum = author.node("Add", &["x", "w"], &["y"], &[]).answer(numbers());
        assert_eq!(sum, Ok(vec![TensorData::new(vec![4f32, 2.0], [2])]));
    }

    #[test]
    fn a_long_chain_backwards_needs_no_deep_stack() {
        let mut author = Author::new(17).input("v0", &[2]).output("v20000", &[2]);
        for i in (0..20_000).rev() {
            author = author.node("Neg", &[&format!("v{i}")], &[&format!("v{}", i + 1)], &[]);
        }
        assert_eq!(author.answer(numbers()), Ok(numbers()));
    }
}
