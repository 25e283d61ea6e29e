//! What a loop computes anew in each iteration though it never changes.
//!
//! Exporters hand weights from one iteration to the next as if they were state. A body that gives such a value back as it got
//! it reads the value outside instead, where it may be a constant; and what only such values go into is computed once, in
//! front of the loop.

use std::collections::{HashMap, HashSet};

use super::names;
use super::proto::{GraphProto, NodeProto};

/// Operators that are taken out of a loop: those that always give the same and fail on no values.
const STEADY: [&str; 4] = ["Constant", "Identity", "MatMul", "Transpose"];

/// Reads what does not change outside of loops, and computes it there.
pub(super) fn hoist(graph: &mut GraphProto) {
    visit(graph, &mut names::all(graph));
}

fn visit(graph: &mut GraphProto, names: &mut HashSet<String>) {
    let mut nodes = Vec::with_capacity(graph.node.len());
    for mut node in std::mem::take(&mut graph.node) {
        for body in node.bodies_mut() {
            visit(body, names);
        }
        if node.op_type == "Loop" && node.is_standard() {
            let given = node.input.clone();
            let body = node.attribute.iter_mut().find(|a| a.name == "body").and_then(|a| a.g.as_mut());
            if let Some(body) = body {
                unchanged(&given, body, names);
                nodes.extend(steady(body, names));
            }
        }
        nodes.push(node);
    }
    graph.node = nodes;
}

/// Lets a body read outside what it hands on as it got it.
fn unchanged(given: &[String], body: &mut GraphProto, names: &mut HashSet<String>) {
    unshadowed(given, body, names);
    let own: HashSet<String> = names::own(body).cloned().collect();
    let same: HashMap<&str, &str> = body
        .node
        .iter()
        .filter(|node| node.op_type == "Identity" && node.input.len() == 1 && node.output.len() == 1)
        .map(|node| (node.output[0].as_str(), node.input[0].as_str()))
        .collect();
    let mut renamed: HashMap<String, String> = HashMap::new();
    // In front of what is carried are count and condition; in front of what is handed on is a condition.
    let carried = given.iter().zip(&body.input).skip(2).zip(body.output.iter().skip(1));
    for ((outside, input), output) in carried {
        let mut last = output.name.as_str();
        while let Some(before) = same.get(last) {
            last = before;
        }
        if last == input.name && !outside.is_empty() && !own.contains(outside) {
            renamed.insert(input.name.clone(), outside.clone());
        }
    }
    rename(&mut body.node, &renamed);
}

/// Where an input that is handed on as it is has the name of what it gets, the input is given another one: who reads the name
/// then reads it outside.
fn unshadowed(given: &[String], body: &mut GraphProto, names: &mut HashSet<String>) {
    let carried = given.iter().zip(&mut body.input).skip(2).zip(1..);
    for ((outside, input), at) in carried {
        if *outside == input.name && body.output.get(at).is_some_and(|output| output.name == input.name) {
            let (old, new) = (input.name.clone(), names::fresh(format!("{}.inside", input.name), names));
            input.name.clone_from(&new);
            body.output.iter_mut().filter(|output| output.name == old).for_each(|output| output.name.clone_from(&new));
        }
    }
}

/// Gives what nodes read other names, also in their bodies, unless a body uses one of the names for something of its own.
fn rename(nodes: &mut [NodeProto], names: &HashMap<String, String>) {
    for node in nodes {
        for input in &mut node.input {
            if let Some(name) = names.get(input) {
                input.clone_from(name);
            }
        }
        for body in node.bodies_mut() {
            let own: HashSet<String> = names::own(body).cloned().collect();
            let free = names.iter().filter(|(from, to)| !own.contains(*from) && !own.contains(*to));
            let free = free.map(|(from, to)| (from.clone(), to.clone())).collect();
            rename(&mut body.node, &free);
            body.output.iter_mut().for_each(|output| {
                if let Some(name) = free.get(&output.name) {
                    output.name.clone_from(name);
                }
            });
        }
    }
}

/// Takes out of a body the nodes that read nothing of it, under names that nobody else has.
fn steady(body: &mut GraphProto, names: &mut HashSet<String>) -> Vec<NodeProto> {
    let mut own: HashSet<String> = names::own(body).cloned().collect();
    let given: HashSet<&str> = body.output.iter().map(|output| output.name.as_str()).collect();
    let mut renamed = HashMap::new();
    let mut taken = Vec::new();
    let mut left = Vec::with_capacity(body.node.len());
    for mut node in std::mem::take(&mut body.node) {
        rename(std::slice::from_mut(&mut node), &renamed);
        let standard = STEADY.contains(&node.op_type.as_str()) && node.is_standard();
        let free = node.input.iter().all(|name| !name.is_empty() && !own.contains(name));
        let inner = node.output.iter().all(|name| !given.contains(name.as_str()));
        if !standard || !free || !inner || node.output.len() != 1 {
            left.push(node);
            continue;
        }
        let old = std::mem::take(&mut node.output[0]);
        let new = names::fresh(format!("{old}.outside"), names);
        own.remove(&old);
        renamed.insert(old, new.clone());
        node.output[0] = new;
        taken.push(node);
    }
    body.node = left;
    taken
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use super::*;
    use crate::author::{Attribute, Author, FREE};

    const INT64: i32 = 7;
    const BOOL: i32 = 9;

    /// state, weight -> state · weight · weight', weight, three times; the weight's name is `outside` outside of the body.
    fn looped(outside: &str) -> Author {
        let body = Author::new(17).input_of(INT64, "i", &[]).input_of(BOOL, "c", &[]);
        let body = body.input("s", &[1, 2]).input("w", &[2, 2]);
        let body = body.node("Transpose", &["w"], &["t"], &[]).node("MatMul", &["w", "t"], &["p"], &[]);
        let body = body.node("MatMul", &["s", "p"], &["n"], &[]);
        let body = body.node("Identity", &["c"], &["d"], &[]);
        let body = body.output_of(BOOL, "d", &[]).output("n", &[1, 2]).output("w", &[2, 2]);
        let author =
            Author::new(17).input("x", &[1, 2]).output("y", &[FREE, 2]).floats(outside, &[2, 2], &[1., 1., 0., 1.]);
        let author = author.weight_of(INT64, "three", &[], &3i64.to_le_bytes());
        author.node("Loop", &["three", "", "x", outside], &["y", "z"], &[("body", Attribute::Body(body.body()))])
    }

    #[test]
    fn what_a_loop_hands_on_unchanged_is_read_and_computed_outside() {
        // Also where the body's own name hides it.
        for outside in ["u", "w"] {
            let mut graph = looped(outside).body();
            hoist(&mut graph);
            let nodes: Vec<&str> = graph.node.iter().map(|node| node.op_type.as_str()).collect();
            assert_eq!(nodes, ["Transpose", "MatMul", "Loop"]);
            let body = graph.node[2].bodies().next().expect("a body");
            let inner: Vec<&str> = body.node.iter().map(|node| node.op_type.as_str()).collect();
            assert_eq!(inner, ["MatMul", "Identity"]);
            let answer = looped(outside).answer(vec![TensorData::from([[1f32, 2.0]])]);
            // [[2, 1], [1, 1]] cubed is [[13, 8], [8, 5]].
            assert_eq!(answer, Ok(vec![TensorData::from([[29f32, 18.0]])]));
        }
    }
}
