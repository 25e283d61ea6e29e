//! The names of values: each has one meaning in a graph, and a new one is one that nobody has.

use std::collections::HashSet;

use super::Cause;
use super::proto::GraphProto;

/// Refuses a graph that gives a name two meanings; what is in bodies is not looked at. Whoever follows a value back to its
/// maker could otherwise walk in a circle.
pub(super) fn refuse_double(graph: &GraphProto) -> Result<(), Cause> {
    let mut weights = HashSet::new();
    let mut names = HashSet::new();
    let mut first = |name: &String| match name.is_empty() || names.insert(name.clone()) {
        true => Ok(()),
        false => Err(Cause::Graph(format!("the name '{name}' is used twice"))),
    };
    for weight in &graph.initializer {
        weights.insert(&weight.name);
        first(&weight.name)?;
    }
    // An input that is a weight as well has a default, and files of the first versions list every weight so.
    graph.input.iter().map(|input| &input.name).filter(|name| !weights.contains(name)).try_for_each(&mut first)?;
    graph.node.iter().flat_map(|node| &node.output).try_for_each(first)
}
