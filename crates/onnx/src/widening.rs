//! Networks of float16 are computed in float32: a float16 graph goes in, and one of float32 comes out that takes and gives the
//! same types.
//!
//! Processors multiply float32 far faster than float16, and results are closer to the exact ones. Only inputs and outputs are
//! converted; weights are, once, when they are read. onnxruntime does the same on a processor, node by node.
//!
//! Between two nodes a value keeps the digits that float32 has and float16 has not, as in onnxruntime. A conversion to float64 rounds
//! it: the file promises numbers of float16 to readers of a wider type than either.

use std::collections::{HashMap, HashSet};

use super::proto::{AttributeProto, FLOAT, FLOAT16, GraphProto, NodeProto, TensorProto, ValueInfo, WIDENED};
use super::{names, weights};
use crate::files::Files;

mod halves;

use self::halves::Halves;

/// Bytes of a weight below which it is converted here, where other rewritings look at it, and not when it is read.
const SMALL: usize = 1 << 12;
/// `onnx.TensorProto.DataType`.
const DOUBLE: i32 = 11;
/// Attributes that name a type to compute in or to convert to.
const TYPES: [&str; 6] = ["to", "dtype", "output_dtype", "output_datatype", "softmax_precision", "stash_type"];

/// Makes a graph compute in float32 where it computes in float16. One that only moves float16, that depends on how it is laid out,
/// or that does not say what type an output has, stays as it is.
pub(super) fn widen(graph: &mut GraphProto) {
    disown(graph);
    let can_widen = can_widen(&graph.node) && graph.output.iter().all(|output| element(output).is_some());
    if !is_half(graph) || !can_widen || !computes(graph) {
        convert_stored(graph);
        return;
    }
    let halves = Halves::of(graph, None);
    let mut names = names::all(graph);
    let mut fresh = |name: &str| names::fresh(format!("{name} of float16"), &mut names);
    let given: HashSet<String> = graph.initializer.iter().map(|weight| weight.name.clone()).collect();
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    for input in graph.input.iter_mut().filter(|input| element(input) == Some(FLOAT16) && !given.contains(&input.name))
    {
        let name = fresh(&input.name);
        let inner = std::mem::replace(&mut input.name, name.clone());
        before.push(cast(name, inner, FLOAT));
    }
    for output in graph.output.iter_mut().filter(|output| element(output) == Some(FLOAT16)) {
        let name = fresh(&output.name);
        let inner = std::mem::replace(&mut output.name, name.clone());
        behind.push(cast(inner, name, FLOAT16));
    }
    inside(graph, &halves, &mut fresh);
    let nodes = std::mem::take(&mut graph.node);
    graph.node = before.into_iter().chain(nodes).chain(behind).collect();
}

/// Makes float32 of the weights that are read by conversions alone: a device may have room for float16 and no arithmetic, as many
/// graphics processors do.
fn convert_stored(graph: &mut GraphProto) {
    let mut taken: HashSet<String> = graph.output.iter().map(|output| output.name.clone()).collect();
    for node in &graph.node {
        node.bodies().for_each(|body| names::collect(body, &mut taken));
        if node.qualified() != "Cast" {
            taken.extend(node.input.iter().cloned());
        }
    }
    graph.initializer.iter_mut().filter(|stored| !taken.contains(&stored.name)).for_each(weight);
}

/// A file cannot say of a tensor that it was widened: there is no such type, and the tensor is refused when it is read.
fn disown(graph: &mut GraphProto) {
    let attributes = graph.node.iter_mut().flat_map(|node| &mut node.attribute);
    for attribute in attributes {
        attribute.t.iter_mut().filter(|tensor| tensor.data_type == WIDENED).for_each(|tensor| tensor.data_type = 0);
        attribute.g.iter_mut().for_each(disown);
    }
    graph.initializer.iter_mut().filter(|weight| weight.data_type == WIDENED).for_each(|weight| weight.data_type = 0);
}

/// The declared type of an input or output.
fn element(info: &ValueInfo) -> Option<i32> {
    info.kind.as_ref()?.tensor.as_ref().map(|tensor| tensor.elem_type).filter(|&element| element != 0)
}

/// Whether anything in a graph is of float16.
fn is_half(graph: &GraphProto) -> bool {
    graph.initializer.iter().any(|weight| weight.data_type == FLOAT16)
        || graph.input.iter().any(|input| element(input) == Some(FLOAT16))
        || graph.node.iter().any(|node| {
            let tensors = node.attribute.iter().filter_map(|attribute| attribute.t.as_ref());
            tensors.into_iter().any(|tensor| tensor.data_type == FLOAT16)
                || node.attribute.iter().any(is_half_type)
                || node.bodies().any(is_half)
        })
}

fn is_half_type(attribute: &AttributeProto) -> bool {
    TYPES.contains(&attribute.name.as_str()) && attribute.i == i64::from(FLOAT16)
}

/// Whether no node depends on more than the values of its arguments.
fn can_widen(nodes: &[NodeProto]) -> bool {
    let depends = |node: &NodeProto| ["BitCast", "SequenceEmpty", "Optional"].contains(&node.op_type.as_str());
    nodes.iter().all(|node| !depends(node) && node.bodies().all(|body| can_widen(&body.node)))
}

/// What moves numbers and is done with no type in particular.
const MOVES: [&str; 11] = [
    "Concat",
    "Constant",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "Reshape",
    "Slice",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
];

/// Whether anything may compute with float16. Where nothing does, not even the bits of what is no number may change.
fn computes(graph: &GraphProto) -> bool {
    let weights = graph.initializer.iter().filter(|weight| weight.data_type == FLOAT16).map(|weight| &weight.name);
    let inputs = graph.input.iter().filter(|input| element(input) == Some(FLOAT16)).map(|input| &input.name);
    let mut half: HashSet<&String> = weights.chain(inputs).collect();
    for node in &graph.node {
        let is_half_tensor = |attribute: &AttributeProto| attribute.t.as_ref().is_some_and(|t| t.data_type == FLOAT16);
        let makes = node.attribute.iter().any(|attribute| is_half_type(attribute) || is_half_tensor(attribute));
        let reads = node.input.iter().any(|name| half.contains(name));
        match &*node.qualified() {
            _ if node.bodies().next().is_some() => return true,
            _ if !makes && !reads => {}
            "Cast" if !makes => {}
            "Shape" | "Size" => {}
            "Cast" => half.extend(&node.output),
            name if MOVES.contains(&name) => half.extend(&node.output),
            _ => return true,
        }
    }
    false
}

/// What takes numbers as they are, where others compute with them.
const EXACT: [&str; 24] = [
    "Cast",
    "Concat",
    "DepthToSpace",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "IsInf",
    "IsNaN",
    "Pad",
    "Reshape",
    "Shape",
    "Size",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Trilu",
    "Unsqueeze",
    "Where",
];

/// How values that are converted to float16 are read. Whoever takes one as it is wants the rounding, or what is too large to become
/// infinite. Who computes with it gets it as exact as what it computes.
struct Conversions {
    /// Values that a `Cast` makes.
    made: HashSet<String>,
    /// Names that are computed with, or read in bodies.
    computed: HashSet<String>,
    /// Names that are converted to another type. What only moves a value that is also computed with mostly moves it to where it is computed
    /// with: a masked softmax, say.
    taken: HashSet<String>,
}

impl Conversions {
    fn of(graph: &GraphProto) -> Conversions {
        let casts = graph.node.iter().filter(|node| is_to_half(node));
        let made = casts.flat_map(|node| node.output.iter().take(1)).cloned().collect();
        let (mut computed, mut taken) = (HashSet::new(), HashSet::new());
        for node in &graph.node {
            node.bodies().for_each(|body| names::collect(body, &mut computed));
            match &*node.qualified() {
                "Cast" => taken.extend(node.input.iter().cloned()),
                name if EXACT.contains(&name) => {}
                _ => computed.extend(node.input.iter().cloned()),
            }
        }
        Conversions { made, computed, taken }
    }

    /// Whether nobody computes with a converted value.
    fn is_only_taken(&self, name: &str) -> bool {
        self.made.contains(name) && !self.computed.contains(name)
    }

    /// Whether a converted value is computed with and also taken as it is.
    fn is_both(&self, name: &str) -> bool {
        self.made.contains(name) && self.computed.contains(name) && self.taken.contains(name)
    }
}

fn is_to_half(node: &NodeProto) -> bool {
    is_to(node, FLOAT16)
}

/// Whether a node converts to this type.
fn is_to(node: &NodeProto, element: i32) -> bool {
    node.qualified() == "Cast" && node.attribute.iter().any(|a| a.name == "to" && a.i == i64::from(element))
}

/// Converts the weights and constants of a graph and its bodies, and what its nodes convert to. `halves` are its values of float16.
fn inside(graph: &mut GraphProto, halves: &Halves, fresh: &mut impl FnMut(&str) -> String) {
    graph.initializer.iter_mut().for_each(weight);
    let conversions = Conversions::of(graph);
    // For what is read in both ways the name of the rounded one.
    let mut rounded: HashMap<String, String> = HashMap::new();
    let mut nodes = Vec::with_capacity(graph.node.len());
    for mut node in std::mem::take(&mut graph.node) {
        if node.qualified() == "Cast"
            && let Some(of) = node.input.first_mut()
            && let Some(rounded) = rounded.get(of)
        {
            of.clone_from(rounded);
        }
        if is_to(&node, DOUBLE)
            && let Some(of) = node.input.first_mut().filter(|of| halves.contains(of))
        {
            let half = fresh(of);
            let wide = std::mem::replace(of, half.clone());
            nodes.extend([cast(wide, half, FLOAT16), node]);
            continue;
        }
        if let Some(output) = node.output.first().filter(|output| conversions.is_only_taken(output)).cloned() {
            nodes.extend(round(node, fresh(&output), output));
            continue;
        }
        if let Some(output) = node.output.first().filter(|output| conversions.is_both(output)) {
            let (half, wide) = (fresh(output), fresh(output));
            rounded.insert(output.clone(), wide.clone());
            nodes.extend(round(node.clone(), half, wide));
        }
        for attribute in &mut node.attribute {
            if is_half_type(attribute) {
                attribute.i = FLOAT.into();
            }
            attribute.t.as_mut().into_iter().for_each(weight);
            if let Some(body) = &mut attribute.g {
                let halves = Halves::of(body, Some(halves));
                body.input.iter_mut().chain(&mut body.output).for_each(declare);
                inside(body, &halves, fresh);
            }
        }
        nodes.push(node);
    }
    graph.node = nodes;
}

/// A conversion to float16 and, behind it, back.
fn round(mut node: NodeProto, half: String, wide: String) -> [NodeProto; 2] {
    node.output[0].clone_from(&half);
    [node, cast(half, wide, FLOAT)]
}

/// What a body says of its inputs and outputs is true of them as they are now.
fn declare(info: &mut ValueInfo) {
    let tensor = info.kind.as_mut().and_then(|kind| kind.tensor.as_mut());
    tensor.into_iter().filter(|tensor| tensor.elem_type == FLOAT16).for_each(|tensor| tensor.elem_type = FLOAT);
}

fn weight(tensor: &mut TensorProto) {
    if tensor.data_type != FLOAT16 {
        return;
    }
    let small = tensor.data_location == 0
        && tensor.raw_data.as_ref().map_or(tensor.int32_data.len() * 2, |raw| raw.len()) <= SMALL;
    let numbers = small.then(|| weights::data(&mut tensor.clone(), &Files::None).ok()).flatten();
    match numbers.and_then(|numbers| numbers.try_into_vec::<half::f16>().ok()) {
        Some(numbers) => {
            let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_f32().to_le_bytes()).collect();
            (tensor.data_type, tensor.raw_data) = (FLOAT, Some(bytes.into()));
            tensor.int32_data.clear();
        }
        None => tensor.data_type = WIDENED,
    }
}

fn cast(from: String, to: String, element: i32) -> NodeProto {
    let kind = AttributeProto { name: "to".to_owned(), i: element.into(), kind: 2, ..AttributeProto::default() };
    let (input, output, name) = (vec![from], vec![to.clone()], to);
    NodeProto { input, output, name, op_type: "Cast".to_owned(), attribute: vec![kind], ..NodeProto::default() }
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;
    use half::f16;

    use super::super::author::Attribute::{Body, Int};
    use super::super::author::Author;
    use super::*;

    const BOOL: i32 = 9;

    fn halves(numbers: &[f32]) -> TensorData {
        let halves: Vec<f16> = numbers.iter().map(|&x| f16::from_f32(x)).collect();
        TensorData::new(halves, [numbers.len()])
    }

    #[test]
    fn a_graph_of_float16_takes_and_gives_it_and_is_exact_between() {
        let author = Author::new(17).input_of(FLOAT16, "x", &[2]).output_of(FLOAT16, "y", &[2]);
        let author = author.floats("large", &[1], &[2048.0]).node("Cast", &["large"], &["c"], &[("to", Int(10))]);
        // 2048 + 1 is no float16, so the sum would lose what is added.
        let author = author.node("Add", &["x", "c"], &["a"], &[]).node("Sub", &["a", "c"], &["y"], &[]);
        assert_eq!(author.answer(vec![halves(&[1.0, 3.0])]).unwrap(), [halves(&[1.0, 3.0])]);
    }

    #[test]
    fn bodies_and_conversions_to_float16_are_widened_too() {
        let branch =
            |by: &str| Author::new(17).output_of(FLOAT16, "z", &[2]).node("Mul", &["x", by], &["z"], &[]).body();
        let branches = [("then_branch", Body(branch("two"))), ("else_branch", Body(branch("x")))];
        let author = Author::new(17).input_of(BOOL, "c", &[]).input("w", &[2]).output_of(FLOAT16, "y", &[2]);
        let author = author.output("wide", &[2]).floats("wide two", &[1], &[2.0]);
        let author = author.node("Cast", &["wide two"], &["two"], &[("to", Int(10))]);
        let author = author.node("Cast", &["w"], &["x"], &[("to", Int(10))]).node("If", &["c"], &["y"], &branches);
        let author = author.node("Cast", &["y"], &["wide"], &[("to", Int(1))]);
        let found = author.answer(vec![TensorData::new(vec![true], [0usize; 0]), TensorData::from([1f32, 3.0])]);
        assert_eq!(found.unwrap(), [halves(&[2.0, 6.0]), TensorData::from([2f32, 6.0])]);
    }

    #[test]
    fn what_is_computed_with_and_also_taken_as_it_is_is_rounded_for_who_takes_it() {
        let author = Author::new(17).input("x", &[2]).output("taken", &[2]).output("y", &[2]);
        let author = author.node("Cast", &["x"], &["h"], &[("to", Int(10))]);
        let author = author.node("Cast", &["h"], &["taken"], &[("to", Int(1))]);
        let author = author.node("Sub", &["h", "h"], &["d"], &[]).node("Cast", &["d"], &["y"], &[("to", Int(1))]);
        let found = author.answer(vec![TensorData::from([1.0001f32, 70000.0])]).unwrap();
        let rounded = TensorData::from([1f32, f32::INFINITY]);
        // The difference is that of the exact numbers: of infinities there is none.
        assert_eq!(found, [rounded, TensorData::from([0f32, 0.0])]);
    }

    #[test]
    fn a_conversion_to_float64_rounds_to_float16_first() {
        let begin = || {
            let author = Author::new(17).input_of(FLOAT16, "x", &[2, 2]).output_of(DOUBLE, "y", &[2, 2]);
            author.floats("wide", &[2, 2], &[1.0, 300.0, 1.0, 300.0]).node(
                "Cast",
                &["wide"],
                &["w"],
                &[("to", Int(10))],
            )
        };
        let double = |author: Author, of: &str| author.node("Cast", &[of], &["y"], &[("to", Int(11))]);
        let x = || {
            let x = [2048.0, 1.0, 200.0, 200.0].map(f16::from_f32);
            vec![TensorData::new(x.to_vec(), [2, 2])]
        };
        // 2049 and 614700 are no float16; 120000 is beyond all of them.
        let expected = [TensorData::from([[2048f64, f64::INFINITY], [400.0, f64::INFINITY]])];
        let product = || begin().node("MatMul", &["x", "w"], &["p"], &[]);
        assert_eq!(double(product(), "p").answer(x()).unwrap(), expected);
        let moved = product().node("Transpose", &["p"], &["t"], &[]).node("Transpose", &["t"], &["u"], &[]);
        assert_eq!(double(moved, "u").answer(x()).unwrap(), expected);
        let branch =
            |of: &str| Author::new(17).output_of(FLOAT16, "z", &[2, 2]).node("Identity", &[of], &["z"], &[]).body();
        let branches = [("then_branch", Body(branch("p"))), ("else_branch", Body(branch("x")))];
        let chosen = product().node("ReduceMax", &["x"], &["m"], &[("keepdims", Int(0))]);
        let chosen = chosen.node("Cast", &["m"], &["c"], &[("to", Int(9))]).node("If", &["c"], &["i"], &branches);
        assert_eq!(double(chosen, "i").answer(x()).unwrap(), expected);
        let inner = |of: &str| {
            let author = Author::new(17).output_of(DOUBLE, "z", &[2, 2]);
            author.node("Cast", &[of], &["z"], &[("to", Int(11))]).body()
        };
        let branches = [("then_branch", Body(inner("p"))), ("else_branch", Body(inner("x")))];
        let chosen = product().node("ReduceMax", &["x"], &["m"], &[("keepdims", Int(0))]);
        let chosen = chosen.node("Cast", &["m"], &["c"], &[("to", Int(9))]).node("If", &["c"], &["y"], &branches);
        assert_eq!(chosen.answer(x()).unwrap(), expected, "in a body");
    }

    #[test]
    fn numbers_of_other_types_are_converted_to_float64_as_they_are() {
        let author = Author::new(17).input_of(FLOAT16, "x", &[1, 2100]).output_of(DOUBLE, "y", &[1, 1]);
        let author = author.ints("one", &[1], &[1]).node("Neg", &["x"], &["n"], &[]);
        let author = author.node("TopK", &["n", "one"], &["most", "at"], &[]);
        let author = author.node("Cast", &["at"], &["y"], &[("to", Int(11))]);
        let mut x = vec![f16::ONE; 2100];
        x[2049] = f16::NEG_ONE;
        assert_eq!(author.answer(vec![TensorData::new(x, [1, 2100])]).unwrap(), [TensorData::from([[2049f64]])]);
        let author = Author::new(17).input_of(FLOAT16, "x", &[1]).output_of(DOUBLE, "y", &[1]);
        let author = author.node("Neg", &["x"], &["n"], &[]).node("Cast", &["n"], &["f"], &[("to", Int(1))]);
        let author = author.floats("third", &[1], &[1.0 / 3.0]).node("Mul", &["f", "third"], &["p"], &[]);
        let author = author.node("Cast", &["p"], &["y"], &[("to", Int(11))]);
        let third = f64::from(-1f32 / 3.0);
        assert_eq!(author.answer(vec![halves(&[1.0])]).unwrap(), [TensorData::from([third])]);
    }

    #[test]
    fn float16_that_is_only_moved_keeps_its_bits() {
        // Conversion would make another of a signalling NaN.
        let bits = [0x7c01u16, 0x3c00, 0xfc02, 0x0001];
        let halves = TensorData::new(bits.map(f16::from_bits).to_vec(), [2, 2]);
        let author =
            Author::new(17).input_of(FLOAT16, "x", &[2, 2]).input("z", &[2]).output_of(FLOAT16, "y", &[1, 2, 2]);
        let author = author.output("w", &[2]).ints("front", &[1], &[0]).ints("all", &[2], &[1, 0]);
        let author = author.node("Identity", &["x"], &["a"], &[]).node("Transpose", &["a"], &["b"], &[]);
        let author = author.node("Gather", &["b", "all"], &["c"], &[]).node("Gather", &["c", "all"], &["d"], &[]);
        let author = author.node("Transpose", &["d"], &["e"], &[]).node("Unsqueeze", &["e", "front"], &["y"], &[]);
        // Who computes with other types changes nothing in that.
        let author = author.node("Abs", &["z"], &["w"], &[]);
        let found = author.answer(vec![halves, TensorData::from([-1f32, 2.0])]).unwrap();
        let found: Vec<u16> = found[0].clone().try_into_vec::<f16>().unwrap().into_iter().map(f16::to_bits).collect();
        assert_eq!(found, bits);
    }

    #[test]
    fn weights_that_are_only_stored_as_float16_are_float32_before_any_device_sees_them() {
        let stored = |name: &str| TensorProto {
            name: name.into(),
            dims: vec![1],
            data_type: FLOAT16,
            int32_data: vec![0x3c00],
            ..TensorProto::default()
        };
        let mut graph = GraphProto {
            initializer: vec![stored("converted"), stored("also moved")],
            node: vec![
                cast("converted".into(), "a".into(), FLOAT),
                cast("also moved".into(), "b".into(), FLOAT),
                NodeProto {
                    input: vec!["also moved".into()],
                    output: vec!["c".into()],
                    op_type: "Identity".into(),
                    ..NodeProto::default()
                },
            ],
            ..GraphProto::default()
        };
        widen(&mut graph);
        assert_eq!(graph.initializer.iter().map(|w| w.data_type).collect::<Vec<_>>(), [FLOAT, FLOAT16]);
        assert_eq!(graph.node.len(), 3);
    }

    #[test]
    fn a_file_cannot_say_that_a_tensor_was_widened() {
        let weight = TensorProto { data_type: WIDENED, ..TensorProto::default() };
        let mut graph = GraphProto { initializer: vec![weight], ..GraphProto::default() };
        widen(&mut graph);
        assert_eq!(graph.initializer[0].data_type, 0);
    }

    #[test]
    fn weights_are_widened_where_they_are() {
        for count in [3, 5000] {
            let weight = |location: i32| TensorProto {
                dims: vec![count as i64],
                data_type: FLOAT16,
                raw_data: Some(
                    (0..count).flat_map(|i| f16::from_f32(i as f32).to_le_bytes()).collect::<Vec<u8>>().into(),
                ),
                data_location: location,
                ..TensorProto::default()
            };
            let mut wide = weight(0);
            super::weight(&mut wide);
            assert_eq!(wide.data_type, if count == 3 { FLOAT } else { WIDENED });
            let expected: Vec<f32> = (0..count).map(|i| f16::from_f32(i as f32).to_f32()).collect();
            assert_eq!(weights::data(&mut wide, &Files::None).unwrap(), TensorData::new(expected, [count]));
        }
    }
}
