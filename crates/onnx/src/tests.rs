//! Small graphs through the whole way from file to answer; whole models are in the integration tests.

use std::num::NonZeroUsize;
use std::thread;

use super::author::Attribute::{Body, Float, Int, Ints, Text};
use super::author::{Author, FREE};
use super::{OnnxErrorKind, OnnxModel};
use uncork_model::runner::{Runner, RunnerError};
use uncork_model::tensor::{Data, Tensor, Tensors};

fn load(author: Author) -> OnnxModel {
    OnnxModel::load(&author.finish()).unwrap()
}

fn refusal(author: Author) -> String {
    OnnxModel::load(&author.finish()).unwrap_err().to_string()
}

/// The only output for a batch under the name `x`.
fn try_run(model: &OnnxModel, shape: &[usize], x: impl Into<Data>) -> Result<(Vec<usize>, Vec<f32>), RunnerError> {
    let request = Tensors::one("x", Tensor::new(shape.to_vec(), x).unwrap());
    let is_whole = model.signature().is_unbatched();
    let batch = if is_whole { model.signature().check(request).unwrap() } else { request };
    let outputs = model.runner(NonZeroUsize::MIN).run(batch)?;
    let (_, tensor) = model.signature().own_shapes(outputs).into_entries().remove(0);
    let (shape, Data::Fp32(data)) = tensor.into_parts() else { panic!("not FP32") };
    Ok((shape, data))
}

fn run(model: &OnnxModel, shape: &[usize], x: impl Into<Data>) -> (Vec<usize>, Vec<f32>) {
    try_run(model, shape, x).unwrap()
}

fn assert_close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{found:?} {expected:?}");
    let far = found.iter().zip(expected).any(|(a, b)| (a - b).abs() > 1e-5 * (1.0 + b.abs()));
    assert!(!far, "{found:?} is not {expected:?}");
}

/// A graph from `x` to `y` through one node.
fn one(operator: &str, inputs: &[&str], row: &[i64], attributes: &[(&str, super::author::Attribute<'_>)]) -> Author {
    let dims: Vec<i64> = [FREE].iter().chain(row).copied().collect();
    Author::new(17).input("x", &dims).output("y", &[FREE]).node(operator, inputs, &["y"], attributes)
}

#[test]
fn names_stay_as_the_file_has_them() {
    let author = Author::new(17).input("Pixels:0", &[FREE, 2]).output("/head/Out.1", &[FREE, 2]);
    let model = load(author.node("Relu", &["Pixels:0"], &["/head/Out.1"], &[]));
    assert_eq!(&*model.signature().inputs[0].name, "Pixels:0");
    assert_eq!(&*model.signature().outputs[0].name, "/head/Out.1");
}

#[test]
fn names_that_differ_only_in_case_or_punctuation_are_told_apart() {
    let author = Author::new(17).input("X", &[FREE, 2]).input("x", &[FREE, 2]).output("y:0", &[FREE, 2]);
    let author = author.node("Sub", &["X", "x"], &["y_0"], &[]).node("Neg", &["y_0"], &["y:0"], &[]);
    let model = load(author);
    let tensor = |x: f32| Tensor::new(vec![1, 2], vec![x, x]).unwrap();
    let batch = Tensors::new(vec![("X".into(), tensor(5.0)), ("x".into(), tensor(2.0))]).unwrap();
    let outputs = model.runner(NonZeroUsize::MIN).run(batch).unwrap();
    assert_eq!(outputs.get("y:0").unwrap().data(), &Data::from(vec![-3f32, -3.0]));
}

#[test]
fn a_name_that_is_given_twice_is_refused() {
    let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]);
    let author = author.node("Neg", &["x"], &["y"], &[]).node("Abs", &["x"], &["y"], &[]);
    assert!(refusal(author).contains("the name 'y' is used twice"));
}

#[test]
fn a_value_that_nobody_computes_is_refused_with_its_reader() {
    let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]);
    let text = refusal(author.node("Add", &["x", "lost"], &["y"], &[]));
    assert!(text.contains("the value 'lost'") && text.contains("'make_y'"), "{text}");
}

#[test]
fn an_attribute_that_nobody_knows_is_refused() {
    let text = refusal(one("Relu", &["x"], &[2], &[("slope", Float(0.5))]));
    assert!(text.contains("'Relu' (node 'make_y')") && text.contains("attribute 'slope'"), "{text}");
}

#[test]
fn a_value_that_is_read_later_is_not_overwritten() {
    let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]);
    let author = author.node("Exp", &["x"], &["e"], &[]).node("Neg", &["e"], &["n"], &[]);
    let author = author.node("Add", &["n", "e"], &["zero"], &[]).node("Add", &["zero", "x"], &["y"], &[]);
    assert_eq!(run(&load(author), &[1, 2], vec![3f32, -1.0]).1, [3.0, -1.0]);
}

#[test]
fn an_input_that_is_also_an_output_is_answered() {
    let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]);
    let model = load(author.node("Identity", &["x"], &["y"], &[]));
    assert_eq!(run(&model, &[1, 2], vec![3f32, -1.0]), (vec![1, 2], vec![3.0, -1.0]));
}

#[test]
fn a_shape_computed_from_the_batch_follows_the_batch() {
    // What exporters write for `x.view(x.size(0), -1)`.
    let author = Author::new(17).input("x", &[FREE, 2, 3]).output("y", &[FREE, 6]);
    let author = author.ints("first", &[], &[0]).ints("front", &[1], &[0]).ints("rest", &[1], &[-1]);
    let author = author.node("Shape", &["x"], &["dims"], &[]).node("Gather", &["dims", "first"], &["rows"], &[]);
    let author = author.node("Unsqueeze", &["rows", "front"], &["head"], &[]);
    let author = author.node("Concat", &["head", "rest"], &["shape"], &[("axis", Int(0))]);
    let model = load(author.node("Reshape", &["x", "shape"], &["y"], &[]));
    for rows in [1, 3, 7, 128] {
        assert_eq!(run(&model, &[rows, 2, 3], vec![1f32; rows * 6]).0, [rows, 6]);
    }
}

#[test]
fn an_omitted_epsilon_of_batch_normalisation_is_onnx_s_default() {
    let author = one("BatchNormalization", &["x", "g", "b", "m", "v"], &[2], &[]);
    let author = author.floats("g", &[2], &[1.0, 2.0]).floats("b", &[2], &[0.0, 1.0]);
    let author = author.floats("m", &[2], &[0.0, 1.0]).floats("v", &[2], &[0.0, 1e-5]);
    let (_, y) = run(&load(author), &[1, 2], vec![1f32, 2.0]);
    assert_close(&y, &[1.0 / 1e-5f32.sqrt(), 1.0 + 2.0 / 2e-5f32.sqrt()]);
}

#[test]
fn batch_normalisation_behind_a_convolution_is_merged_into_it() {
    let author = Author::new(17).input("x", &[FREE, 1, 2, 2]).output("y", &[FREE, 2, 2, 2]);
    let author = author.floats("w", &[2, 1, 1, 1], &[2.0, -1.0]).floats("c", &[2], &[1.0, 0.5]);
    let author = author.floats("g", &[2], &[1.0, 2.0]).floats("b", &[2], &[0.0, 1.0]);
    let author = author.floats("m", &[2], &[0.0, 1.0]).floats("v", &[2], &[3.0, 8.0]);
    let author = author.node("Conv", &["x", "w", "c"], &["h"], &[]);
    let epsilon = [("epsilon", Float(1.0))];
    let model = load(author.node("BatchNormalization", &["h", "g", "b", "m", "v"], &["y"], &epsilon));
    let (shape, y) = run(&model, &[1, 1, 2, 2], vec![0f32, 1.0, 2.0, -3.0]);
    assert_eq!(shape, [1, 2, 2, 2]);
    // First channel: (2x + 1) / 2. Second: 2 · (-x + 0.5 - 1) / 3 + 1.
    let second = [0f32, 1.0, 2.0, -3.0].map(|x| 2.0 * (-x - 0.5) / 3.0 + 1.0);
    assert_close(&y[..4], &[0.5, 1.5, 2.5, -2.5]);
    assert_close(&y[4..], &second);
}

#[test]
fn softmax_of_old_files_spans_all_dimensions_from_its_axis() {
    let graph = |opset| {
        let author = Author::new(opset).input("x", &[FREE, 2, 2]).output("y", &[FREE, 2, 2]);
        load(author.node("Softmax", &["x"], &["y"], &[("axis", Int(1))]))
    };
    assert_close(&run(&graph(11), &[1, 2, 2], vec![0f32; 4]).1, &[0.25; 4]);
    assert_close(&run(&graph(13), &[1, 2, 2], vec![0f32; 4]).1, &[0.5; 4]);
}

#[test]
fn a_nan_that_would_be_quantised_is_its_senders_fault() {
    let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]).floats("scale", &[], &[0.5]);
    let author = author.weight_of(3, "zero", &[], &[0]).node("QuantizeLinear", &["x", "scale", "zero"], &["q"], &[]);
    let model = load(author.node("DequantizeLinear", &["q", "scale", "zero"], &["y"], &[]));
    assert_eq!(run(&model, &[1, 2], vec![1.0f32, -2.0]).1, [1.0, -2.0]);
    let error = try_run(&model, &[2, 2], vec![1.0f32, -2.0, 3.0, f32::NAN]).unwrap_err();
    assert_eq!(error, RunnerError::Input("cannot quantise NaN: no integer represents it; send finite inputs".into()));
    // The rows of other requests in the batch are run again without it.
    assert!(model.runner(NonZeroUsize::MIN).may_refuse());
}

#[test]
fn padding_on_one_side_only_is_not_counted_by_pools() {
    let attributes = [("kernel_shape", Ints(&[1, 2])), ("pads", Ints(&[0, 1, 0, 0]))];
    let x = vec![-4f32, -2.0];
    let max = load(one("MaxPool", &["x"], &[1, 1, 2], &attributes));
    assert_eq!(run(&max, &[1, 1, 1, 2], x.clone()), (vec![1, 1, 1, 2], vec![-4.0, -2.0]));
    let mean = load(one("AveragePool", &["x"], &[1, 1, 2], &attributes));
    assert_eq!(run(&mean, &[1, 1, 1, 2], x).1, [-4.0, -3.0]);
}

#[test]
fn free_dimensions_behind_the_batch_stay_free_in_the_signature() {
    let author = Author::new(17).input("x", &[FREE, 3, FREE]).output("y", &[FREE, 3, 1]).output("z", &[FREE, 3, FREE]);
    let author = author.node("Relu", &["x"], &["z"], &[]).node("GlobalAveragePool", &["z"], &["y"], &[]);
    let model = load(author);
    let dims: Vec<_> = model.signature().outputs.iter().map(|o| o.dims.clone()).collect();
    assert_eq!(model.signature().inputs[0].dims, [Some(3), None]);
    assert_eq!(dims, [vec![Some(3), Some(1)], vec![Some(3), None]]);
}

#[test]
fn an_index_out_of_range_is_its_senders_fault_who_hears_of_no_node() {
    let author = Author::new(17).int_input("x", &[FREE, 1]).output("y", &[FREE, 1, 2]);
    let author = author.floats("table", &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let model = load(author.node("Gather", &["table", "x"], &["y"], &[]));
    assert_eq!(run(&model, &[2, 1], vec![1i64, -2]).1, [3.0, 4.0, 1.0, 2.0]);
    let error = try_run(&model, &[2, 1], vec![0i64, 2]).unwrap_err();
    assert_eq!(error, RunnerError::Input("index 2 is out of range for length 2".into()));
    // Whoever checks requests knows before.
    assert_eq!(model.signature().inputs[0].range, Some(-2..=1));
    assert!(model.runner(NonZeroUsize::MIN).may_refuse());
}

#[test]
fn a_batch_size_baked_into_the_graph_runs_row_by_row_and_says_how_to_export_it() {
    let model = load(one("Reshape", &["x", "shape"], &[2, 2], &[]).ints("shape", &[2], &[1, 4]));
    let text = model.alone().unwrap().to_string();
    assert!(text.contains("one row only") && text.contains("'Reshape' (node 'make_y')"), "{text}");
    assert!(text.contains("dynamic_axes"), "{text}");
    let x: Vec<f32> = (0..12u8).map(f32::from).collect();
    assert_eq!(run(&model, &[3, 2, 2], x.clone()), (vec![3, 4], x));
}

#[test]
fn a_declared_batch_of_one_takes_any_batch_where_the_graph_does() {
    let graph = || Author::new(17).input("x", &[1, 2]).output("y", &[1, 2]);
    let model = load(graph().node("Relu", &["x"], &["y"], &[]));
    assert!(model.alone().is_none());
    assert_eq!(run(&model, &[3, 2], vec![1f32, -1.0, 2.0, -2.0, 3.0, -3.0]).1, [1.0, 0.0, 2.0, 0.0, 3.0, 0.0]);
    // Softmax over the batch would mix the rows of a batch; of the declared one row it is what the file means.
    let model = load(graph().node("Softmax", &["x"], &["y"], &[("axis", Int(0))]));
    let text = model.alone().unwrap().to_string();
    assert!(text.contains("input 'x' has a fixed first dimension of 1") && text.contains("dynamic_axes"), "{text}");
    assert_eq!(run(&model, &[2, 2], vec![1f32, 2.0, 3.0, 4.0]).1, [1.0; 4]);
}

#[test]
fn all_missing_operators_are_named_at_once() {
    let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]);
    let author = author.node("NoSuch", &["x"], &["a"], &[]).node("Relu", &["a"], &["b"], &[]);
    let text = refusal(author.node("SequenceMap", &["b"], &["c"], &[]).node("NoSuch", &["c"], &["y"], &[]));
    assert!(text.starts_with("operator 'NoSuch' (node 'make_a') is not supported, nor are 'SequenceMap';"), "{text}");
}

#[test]
fn an_unsupported_form_names_operator_node_and_reason() {
    let text = refusal(one("LpPool", &["x"], &[1, 4, 4], &[("kernel_shape", Ints(&[2, 2])), ("p", Int(0))]));
    let expected = "operator 'LpPool' (node 'make_y') is not supported in this form: a norm with p=0";
    assert_eq!(text, expected);
}

#[test]
fn shapes_that_do_not_fit_name_the_node() {
    let author = one("Add", &["x", "c"], &[3], &[]).floats("c", &[2], &[1.0, 2.0]);
    let text = refusal(author);
    assert!(text.contains("'Add' (node 'make_y')") && text.contains("do not broadcast"), "{text}");
}

#[test]
fn an_axis_out_of_range_names_the_node() {
    let text = refusal(one("Split", &["x"], &[2], &[("axis", Int(65))]));
    assert!(text.contains("'Split' (node 'make_y')") && text.contains("axis 65 is out of range"), "{text}");
}

#[test]
fn a_weight_in_another_file_is_refused() {
    let text = refusal(one("Add", &["x", "c"], &[1], &[]).external("c"));
    assert!(text.contains("constant 'c': its data is in another file"), "{text}");
}

#[test]
fn sizes_beyond_reason_are_refused_before_memory_is_asked_for() {
    let text = refusal(one("Relu", &["x"], &[1 << 40], &[]));
    assert!(text.contains("input 'x' has more than"), "{text}");
    let pads = [("kernel_shape", Ints(&[1, 1])), ("pads", Ints(&[1 << 40, 0, 0, 0]))];
    let text = refusal(one("Conv", &["x", "w"], &[1, 2, 2], &pads).floats("w", &[1, 1, 1, 1], &[1.0]));
    assert!(text.contains("'Conv' (node 'make_y')") && text.contains("at most"), "{text}");
}

#[test]
fn a_weight_that_is_computed_convolves_like_a_constant_one() {
    let attributes = [("pads", Ints(&[1, 0]))];
    let author =
        Author::new(17).input("x", &[FREE, 1, 3]).output("y", &[FREE, 1, 3]).floats("w", &[1, 1, 2], &[1.0, 2.0]);
    let constant = load(author.node("Conv", &["x", "w"], &["y"], &attributes));
    let author =
        Author::new(17).input("x", &[FREE, 1, 3]).output("y", &[FREE, 1, 3]).floats("w", &[1, 1, 2], &[1.0, 2.0]);
    // A weight that depends on the input, though only by a zero.
    let author = author.ints("axes", &[3], &[0, 1, 2]).node("ReduceSum", &["x", "axes"], &["sum"], &[]);
    let author = author.node("Sub", &["sum", "sum"], &["zero"], &[]).node("Add", &["w", "zero"], &["v"], &[]);
    let computed = load(author.node("Conv", &["x", "v"], &["y"], &attributes));
    let x = vec![1f32, 2.0, 3.0];
    assert_eq!(run(&constant, &[1, 1, 3], x.clone()).1, [2.0, 5.0, 8.0]);
    assert_eq!(run(&computed, &[1, 1, 3], x).1, [2.0, 5.0, 8.0]);
}

#[test]
fn old_files_shrink_to_the_neighbour_behind() {
    // Before opset 11, which is when ONNX named the ways to round.
    let author =
        Author::new(10).input("x", &[FREE, 1, 4]).output("y", &[FREE, 1, 2]).floats("s", &[3], &[1.0, 1.0, 0.6]);
    let model = load(author.node("Resize", &["x", "s"], &["y"], &[]));
    assert_eq!(run(&model, &[1, 1, 4], vec![1f32, 2.0, 3.0, 4.0]).1, [1.0, 3.0]);
}

#[test]
fn places_are_those_of_scales_in_floats_of_32_bits() {
    // The nearest float to 0.6 is a little more than that, and 3 / 0.6 is 5 all the same, as in onnxruntime and PyTorch.
    let author = Author::new(13).input("x", &[FREE, 1, 13]).output("y", &[FREE, 1, 7]);
    let author = author.floats("s", &[3], &[1.0, 1.0, 0.6]);
    let attributes = [("coordinate_transformation_mode", Text("asymmetric")), ("nearest_mode", Text("floor"))];
    let model = load(author.node("Resize", &["x", "", "s"], &["y"], &attributes));
    let x: Vec<f32> = (0..13u8).map(f32::from).collect();
    assert_eq!(run(&model, &[1, 1, 13], x).1, [0.0, 1.0, 3.0, 5.0, 6.0, 8.0, 10.0]);
}

#[test]
fn sequences_of_a_batch_have_lengths_of_their_own() {
    let graph = || {
        let author = Author::new(14).input("x", &[2, FREE, 1]).int_input("lengths", &[FREE]).output("y", &[1, FREE, 1]);
        let author = author.floats("w", &[1, 1, 1], &[1.0]).floats("r", &[1, 1, 1], &[1.0]);
        author.node("RNN", &["x", "w", "r", "", "lengths"], &["", "y"], &[("direction", Text("reverse"))])
    };
    let graph = super::Graph::load(&graph().finish()).unwrap();
    let steps = || burn_backend::TensorData::new(vec![0.5f32, 0.5, 0.25, 0.25], [2, 2, 1]);
    let lengths = |l: [i64; 2]| burn_backend::TensorData::new(l.to_vec(), [2]);
    let y = graph.run(vec![steps(), lengths([1, 2])]).unwrap().remove(0).try_into_vec::<f32>().unwrap();
    assert_close(&y, &[0.5f32.tanh(), (0.25f32.tanh() + 0.5).tanh()]);
    let error = graph.run(vec![steps(), lengths([3, -1])]).unwrap_err().to_string();
    assert!(error.contains("sequence lengths of [3, -1] do not fit 2 rows of 2 steps"), "{error}");
}

#[test]
fn a_place_that_a_caller_invents_is_not_written_to() {
    let author = Author::new(17).input("x", &[FREE, 1, 1]).int_input("at", &[FREE, 1, 1]).output("y", &[FREE, 1, 2]);
    let author = author.node("MaxUnpool", &["x", "at"], &["y"], &[("kernel_shape", Ints(&[2]))]);
    let graph = super::Graph::load(&author.finish()).unwrap();
    let data = |at: i64| {
        let x = burn_backend::TensorData::new(vec![7f32], [1, 1, 1]);
        vec![x, burn_backend::TensorData::new(vec![at], [1, 1, 1])]
    };
    assert_eq!(graph.run(data(1)).unwrap().remove(0).try_into_vec::<f32>().unwrap(), [0.0, 7.0]);
    for at in [2, -1] {
        let error = graph.run(data(at)).unwrap_err().to_string();
        assert!(error.contains("is out of range for the shape"), "{error}");
    }
}

#[test]
fn a_region_of_any_size_costs_no_more_than_it_may() {
    let author = Author::new(16).input("x", &[FREE, 1, 4, 4]).input("places", &[FREE, 4]).int_input("image", &[FREE]);
    let author = author.output("y", &[FREE, 1, 1, 1]).node("RoiAlign", &["x", "places", "image"], &["y"], &[]);
    let graph = super::Graph::load(&author.finish()).unwrap();
    let ask = |size: f32, image: i64| {
        let x = burn_backend::TensorData::new(vec![2f32; 16], [1, 1, 4, 4]);
        let places = burn_backend::TensorData::new(vec![0.0, 0.0, size, size], [1, 4]);
        let given = graph.run(vec![x, places, burn_backend::TensorData::new(vec![image], [1])]);
        given.map(|mut outputs| outputs.remove(0).try_into_vec::<f32>().unwrap()).map_err(|e| e.to_string())
    };
    assert_close(&ask(3.0, 0).unwrap(), &[2.0]);
    assert!(ask(1e30, 0).unwrap_err().contains("too large"));
    assert!(ask(3.0, 1).unwrap_err().contains("an image beyond the 1"));
}

#[test]
fn a_joined_product_adds_terms_that_broadcast() {
    // A bias of one number, and a term that is wider than the product.
    let author = Author::new(17).input("x", &[FREE, 1, 2]).output("y", &[FREE, 2, 2]);
    let author = author.floats("w", &[2, 2], &[1.0, 2.0, 3.0, 4.0]).floats("b", &[1], &[0.5]);
    let author = author.node("MatMul", &["x", "w"], &["m"], &[]).node("Add", &["m", "b"], &["a"], &[]);
    let author = author.node("Concat", &["x", "x"], &["wide"], &[("axis", Int(1))]);
    let author = author.node("Add", &["wide", "a"], &["s"], &[]).node("Relu", &["s"], &["y"], &[]);
    let (shape, y) = run(&load(author), &[1, 1, 2], vec![-1f32, 1.0]);
    assert_eq!(shape, [1, 2, 2]);
    assert_close(&y, &[1.5, 3.5, 1.5, 3.5]);
}

#[test]
fn a_joined_convolution_adds_terms_that_broadcast() {
    let author = Author::new(17).input("x", &[FREE, 1, 2, 2]).output("y", &[FREE, 1, 2, 2]);
    let author = author.floats("w", &[1, 1, 1, 1], &[2.0]).node("Conv", &["x", "w"], &["c"], &[]);
    let author = author.node("GlobalAveragePool", &["x"], &["mean"], &[]);
    let author = author.node("Add", &["c", "mean"], &["s"], &[]);
    let author = author.floats("low", &[], &[0.0]).floats("high", &[], &[6.0]);
    let author = author.node("Clip", &["s", "low", "high"], &["y"], &[]);
    let (_, y) = run(&load(author), &[1, 1, 2, 2], vec![-2f32, 0.0, 1.0, 5.0]);
    assert_close(&y, &[0.0, 1.0, 3.0, 6.0]);
}

#[test]
fn a_number_that_two_nodes_read_survives_the_one_that_works_in_place() {
    // Softmax may write to its argument's memory only where nobody else reads it.
    let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]);
    let author = author.node("Softmax", &["x"], &["s"], &[]).node("Tanh", &["x"], &["t"], &[]);
    let author = author.node("Add", &["s", "t"], &["u"], &[]).node("Sub", &["u", "x"], &["y"], &[]);
    let (_, y) = run(&load(author), &[1, 2], vec![0f32, 0.0]);
    assert_close(&y, &[0.5, 0.5]);
}

#[test]
fn a_node_without_its_inputs_is_refused_by_name() {
    for operator in ["Sigmoid", "Conv", "MatMul", "Gemm", "Erf", "Sqrt", "BatchNormalization"] {
        let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]);
        let author = author.node(operator, &[], &["s"], &[]).node("Mul", &["x", "s"], &["y"], &[]);
        let text = refusal(author);
        assert!(text.contains(&format!("'{operator}' (node 'make_s')")) && !text.contains("panicked"), "{text}");
    }
}

#[test]
fn what_a_file_says_is_escaped_and_cut_in_whatever_is_wrong_with_it() {
    let author = || Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]);
    for text in ["Q".repeat(900), "\u{1b}[31m\u{202e}\u{9b}2J\n2026-11-27 INFO forged".to_owned()] {
        let files = [
            author().node(&text, &["x"], &["y"], &[]),
            author().node("Relu", &["x"], &["y"], &[]).of(&text),
            author().node("Whiten", &["x"], &["y"], &[]).of(&text).node("Bottle", &["x"], &[&text], &[]).of(&text),
            author().node("Relu", &[&text], &["y"], &[]),
            author().node("Whiten", &["x"], &[&text], &[]).node("Relu", &[&text], &["y"], &[]),
            author().node("Relu", &["x"], &[&text], &[]).node("Relu", &["x"], &[&text], &[]),
            author().node("Relu", &["x"], &["y"], &[(&text, Int(1))]),
            author().node("Pad", &["x"], &["y"], &[("mode", Text(&text))]),
            author().node("Einsum", &["x"], &["y"], &[("equation", Text(&text))]),
            author().node("Sigmoid", &[], &[&text], &[]).node("Mul", &["x", &text], &["y"], &[]),
            author().external(&text).node("Add", &["x", &text], &["y"], &[]),
            Author::new(17).input("x", &[FREE, 2]).output(&text, &[FREE, 2]),
            Author::new(17).input(&text, &[3, 2]).output("y", &[3, 2]).node("Relu", &[&text], &["y"], &[]),
            author().floats("w", &[5, 7], &[0.0; 35]).node("MatMul", &["x", "w"], &[&text], &[]),
        ];
        let told: Vec<_> = files.into_iter().filter_map(|file| OnnxModel::load(&file.finish()).err()).collect();
        assert!(told.len() > 10, "{told:?}");
        for told in told.iter().map(ToString::to_string) {
            let is_bare = |c: char| c.is_control() || c == '\u{202e}';
            let longest = told.split(|c| c != 'Q').map(str::len).max();
            assert!(!told.contains(is_bare) && longest <= Some(200), "{told:?}");
        }
    }
}

#[test]
fn constants_that_bodies_compute_are_bounded_together() {
    // Each branch has less than the bound, and all have more.
    let branch = || {
        let body = Author::new(17).output("z", &[]).node("Expand", &["one", "many"], &["all"], &[]);
        body.node("Gather", &["all", "third"], &["z"], &[]).body()
    };
    let author = Author::new(17).input_of(9, "c", &[1]).input("x", &[FREE]).output("y", &[FREE]);
    let author = author.floats("one", &[1], &[1.0]).ints("many", &[1], &[100 << 20]).ints("third", &[], &[3]);
    let branches = [("then_branch", Body(branch())), ("else_branch", Body(branch()))];
    let author = author.node("If", &["c"], &["a"], &branches).node("If", &["c"], &["b"], &branches);
    let text = refusal(author.node("Sum", &["x", "a", "b"], &["y"], &[]));
    assert!(text.contains("computed constants have more than 1073741824 bytes"), "{text}");
}

#[test]
fn a_large_weight_is_read_from_its_place_in_the_file_by_all_who_need_it() {
    let (inputs, outputs) = (200, 300);
    let weight: Vec<f32> = (0..inputs * outputs).map(|i| ((i * 7919) % 1009) as f32 / 504.0 - 1.0).collect();
    let author = Author::new(17).input("x", &[FREE, inputs as i64]).output("y", &[FREE, outputs as i64]);
    let author = author.floats("w", &[inputs as i64, outputs as i64], &weight).floats("one", &[1], &[1.0]);
    let author = author.ints("third", &[], &[3]).node("MatMul", &["x", "w"], &["m"], &[]);
    let author = author.node("Gather", &["w", "third"], &["row"], &[]).node("Add", &["m", "row"], &["a"], &[]);
    let file = author.node("Add", &["a", "one"], &["y"], &[]).finish();
    let path = std::env::temp_dir().join(format!("uncork-large-{}.onnx", std::process::id()));
    std::fs::write(&path, &file).unwrap();
    let x: Vec<f32> = (0..2 * inputs).map(|i| (i % 7) as f32 - 3.0).collect();
    let found = run(&OnnxModel::open(&path).unwrap(), &[2, inputs], x.clone());
    assert_eq!(found, run(&OnnxModel::load(&file).unwrap(), &[2, inputs], x));
    // A file that ends within a weight.
    std::fs::write(&path, &file[..file.len() / 2]).unwrap();
    let error = OnnxModel::open(&path).unwrap_err();
    assert_eq!(error.kind(), OnnxErrorKind::Unreadable, "{error}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn the_thread_that_serves_has_the_buffers_of_the_one_that_warmed_up() {
    let (first, second) = ([0.1; 8 * 9], [0.1; 8 * 8 * 9]);
    let author = Author::new(17).input("x", &[FREE, 1, 64, 64]).output("y", &[FREE, 8, 64, 64]);
    let author = author.floats("v", &[8, 1, 3, 3], &first).floats("w", &[8, 8, 3, 3], &second);
    let pads = [("pads", Ints(&[1, 1, 1, 1]))];
    let model = load(author.node("Conv", &["x", "v"], &["h"], &pads).node("Conv", &["h", "w"], &["y"], &pads));
    let mut runner = model.runner(NonZeroUsize::MIN);
    let row = Tensors::one("x", Tensor::new(vec![1, 1, 64, 64], vec![1f32; 64 * 64]).unwrap());
    thread::scope(|threads| threads.spawn(|| runner.rehearse(row.clone()).map(drop)).join()).unwrap().unwrap();
    assert_ne!(model.0.left.count(), 0, "warm-up leaves them");
    thread::scope(|threads| threads.spawn(|| runner.run(row.clone()).map(drop)).join()).unwrap().unwrap();
    assert_eq!(model.0.left.count(), 0, "who serves has them");
}
