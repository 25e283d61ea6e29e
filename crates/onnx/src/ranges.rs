//! Which integers an input may hold: those that a table of the model has a row for.
//!
//! A token beyond the end of an embedding makes its whole batch fail. Where the graph shows that every element of an input
//! becomes an index into a table of known length, the input is held against it before it meets a batch.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use super::proto::{GraphProto, NodeProto};

/// Operators that hand on the elements of their first input, each of them at least once.
const HANDS_ON: &[&str] = &["Cast", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"];
/// Operators whose output has the shape of their first input.
const KEEPS_SHAPE: &[&str] = &["Cast", "DequantizeLinear", "Identity", "QuantizeLinear"];

/// For each of a graph's inputs that indexes tables, the integers that all of these have a row for; ONNX counts negative ones
/// from the end. Only nodes that every run computes are looked at, not those of branches and loops.
pub(super) fn ranges(graph: &GraphProto) -> HashMap<&str, RangeInclusive<i64>> {
    let walk = Walk::of(graph);
    let mut found: HashMap<&str, RangeInclusive<i64>> = HashMap::new();
    for node in &graph.node {
        let [table, indices, ..] = node.input.as_slice() else { continue };
        if node.qualified() != "Gather" || indices.is_empty() {
            continue;
        }
        let axis = node.attribute.iter().find(|attribute| attribute.name == "axis").map_or(0, |attribute| attribute.i);
        let Some(length) = walk.shape(table).and_then(|dims| length(dims, axis)) else { continue };
        let Some(input) = walk.input(indices) else { continue };
        let own = found.entry(input).or_insert(i64::MIN..=i64::MAX);
        *own = (*own.start()).max(-length)..=(*own.end()).min(length - 1);
    }
    found
}

fn length(dims: &[i64], axis: i64) -> Option<i64> {
    let axis = if axis < 0 { axis + dims.len() as i64 } else { axis };
    dims.get(usize::try_from(axis).ok()?).copied().filter(|&length| length > 0)
}

/// Who makes which value of a graph.
struct Walk<'a> {
    makers: HashMap<&'a str, &'a NodeProto>,
    weights: HashMap<&'a str, &'a [i64]>,
    inputs: HashSet<&'a str>,
}

impl<'a> Walk<'a> {
    fn of(graph: &'a GraphProto) -> Walk<'a> {
        let outputs = |node: &'a NodeProto| node.output.iter().map(move |output| (output.as_str(), node));
        let weights: HashMap<&str, &[i64]> =
            graph.initializer.iter().map(|weight| (weight.name.as_str(), weight.dims.as_slice())).collect();
        let given = graph.input.iter().map(|input| input.name.as_str()).filter(|name| !weights.contains_key(name));
        Walk { makers: graph.node.iter().flat_map(outputs).collect(), inputs: given.collect(), weights }
    }

    /// The shape of a value that is a weight, or one in another form.
    fn shape(&self, mut name: &'a str) -> Option<&'a [i64]> {
        loop {
            if let Some(dims) = self.weights.get(name) {
                return Some(dims);
            }
            let maker = self.makers.get(name)?;
            match maker.op_type.as_str() {
                "Constant" => {
                    let value = maker.attribute.iter().find(|attribute| attribute.name == "value")?;
                    return value.t.as_ref().map(|tensor| tensor.dims.as_slice());
                }
                kind if KEEPS_SHAPE.contains(&kind) => name = maker.input.first()?,
                _ => return None,
            }
        }
    }

    /// The input all of whose elements a value holds.
    fn input(&self, mut name: &'a str) -> Option<&'a str> {
        loop {
            if self.inputs.contains(name) {
                return Some(name);
            }
            let maker = self.makers.get(name)?;
            if !HANDS_ON.contains(&maker.qualified().as_str()) {
                return None;
            }
            name = maker.input.first()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::author::Attribute::{Int, Ints};
    use crate::author::{Author, FREE};

    fn range_of(author: Author) -> Option<RangeInclusive<i64>> {
        ranges(&author.body()).remove("x")
    }

    fn author() -> Author {
        let author = Author::new(17).int_input("x", &[FREE, 3]).output("y", &[FREE, 3, 2]);
        author.floats("five", &[5, 2], &[0.0; 10]).floats("seven", &[2, 7], &[0.0; 14]).ints("all", &[1], &[-1])
    }

    #[test]
    fn an_input_is_held_against_the_shortest_table_that_it_indexes() {
        let gather = |author: Author| author.node("Gather", &["five", "x"], &["y"], &[]);
        assert_eq!(range_of(gather(author())), Some(-5..=4));
        let wider = author().node("Gather", &["seven", "x"], &["z"], &[("axis", Int(-1))]);
        assert_eq!(range_of(wider.clone()), Some(-7..=6));
        assert_eq!(range_of(gather(wider)), Some(-5..=4));
        let handed =
            author().node("Reshape", &["x", "all"], &["flat"], &[]).node("Gather", &["five", "flat"], &["y"], &[]);
        assert_eq!(range_of(handed), Some(-5..=4));
    }

    #[test]
    fn what_is_changed_or_left_out_on_the_way_to_a_table_bounds_nothing() {
        let changed = author().node("Abs", &["x"], &["a"], &[]).node("Gather", &["five", "a"], &["y"], &[]);
        assert_eq!(range_of(changed), None);
        let left_out = author().node("Split", &["x"], &["a", "b"], &[("split", Ints(&[1, 2]))]);
        assert_eq!(range_of(left_out.node("Gather", &["five", "b"], &["y"], &[])), None);
        let not_known = author().node("Gather", &["x", "x"], &["y"], &[]);
        assert_eq!(range_of(not_known), None);
    }
}
