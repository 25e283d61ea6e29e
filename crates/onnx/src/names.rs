//! The names of values: each has one meaning in a graph, and a new one is one that nobody has.

use std::collections::HashSet;

use super::Cause;
use super::proto::GraphProto;
use uncork_model::quote::QuotedPlace;

/// The names that a graph gives a meaning to.
pub(super) fn own(graph: &GraphProto) -> impl Iterator<Item = &String> {
    let weights = graph.initializer.iter().map(|weight| &weight.name);
    let given = graph.input.iter().map(|input| &input.name);
    weights.chain(given).chain(graph.node.iter().flat_map(|node| &node.output))
}

/// All names of a graph and the bodies in it, also those that it only reads.
pub(super) fn all(graph: &GraphProto) -> HashSet<String> {
    let mut names = HashSet::new();
    collect(graph, &mut names);
    names
}

/// Adds all names of a graph and the bodies in it.
pub(super) fn collect(graph: &GraphProto, names: &mut HashSet<String>) {
    names.extend(own(graph).cloned());
    names.extend(graph.output.iter().map(|output| output.name.clone()));
    for node in &graph.node {
        names.extend(node.input.iter().cloned());
        node.bodies().for_each(|body| collect(body, names));
    }
}

/// A name like this one that nobody has yet; it is then taken.
pub(super) fn fresh(mut name: String, names: &mut HashSet<String>) -> String {
    while !names.insert(name.clone()) {
        name.push('\'');
    }
    name
}

/// Refuses a graph that gives a name two meanings; what is in bodies is not looked at. Whoever follows a value back to its
/// maker could otherwise walk in a circle.
pub(super) fn refuse_double(graph: &GraphProto) -> Result<(), Cause> {
    let mut weights = HashSet::new();
    let mut names = HashSet::new();
    let mut first = |name: &String| match name.is_empty() || names.insert(name.clone()) {
        true => Ok(()),
        false => Err(Cause::Graph(format!("the name {} is used twice", QuotedPlace(name)))),
    };
    for weight in &graph.initializer {
        weights.insert(&weight.name);
        first(&weight.name)?;
    }
    // An input that is a weight as well has a default, and files of the first versions list every weight so.
    graph.input.iter().map(|input| &input.name).filter(|name| !weights.contains(name)).try_for_each(&mut first)?;
    graph.node.iter().flat_map(|node| &node.output).try_for_each(first)
}
