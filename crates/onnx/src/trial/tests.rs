//! What trials find of small graphs, and that what is then served is what the graphs give.

mod bodies;
mod crossing;
mod others;

use std::num::NonZeroUsize;

use super::super::author::Attribute::{Body, Int, Ints, Text};
use super::super::author::{Author, FREE};
use super::super::proto::GraphProto;
use super::super::{OnnxError, OnnxErrorKind, OnnxModel};
use uncork_model::runner::{BatchAxes, Device, Rows, Runner, RunnerError, Shapes, TensorSpec};
use uncork_model::tensor::{Data, Tensor, Tensors};

fn load(author: Author) -> OnnxModel {
    OnnxModel::load(&author.finish()).unwrap()
}

fn load_as(author: Author, shapes: &Shapes) -> Result<OnnxModel, OnnxError> {
    OnnxModel::load_as(&author.finish(), Device::Flex, shapes)
}

fn floats(shape: &[usize], data: &[f32]) -> Tensor {
    Tensor::new(shape.to_vec(), data.to_vec()).unwrap()
}

/// The answer to a request in the model's own shapes, as a server gives it.
fn ask(model: &OnnxModel, inputs: Vec<(&str, Tensor)>) -> Tensors {
    let inputs = inputs.into_iter().map(|(name, tensor)| (name.into(), tensor)).collect();
    let batch = model.signature().check(Tensors::new(inputs).unwrap()).unwrap();
    let rows = batch.rows();
    let outputs = model.runner(NonZeroUsize::MIN).run(batch).unwrap();
    assert!(model.signature().agrees(&outputs, rows), "{outputs:?} breaks {:?}", model.signature());
    model.signature().own_shapes(outputs)
}

/// What the file gives for a request, whatever was found out about its rows.
fn by_file(model: &OnnxModel, x: Tensor) -> Tensor {
    model.0.graph.compute(vec![x]).unwrap().remove(0)
}

fn answer(model: &OnnxModel, x: Tensor) -> Tensor {
    ask(model, vec![("x", x)]).into_entries().remove(0).1
}

fn shapes(specs: &[TensorSpec]) -> Vec<Vec<i64>> {
    specs.iter().map(TensorSpec::wire_shape).collect()
}

#[test]
fn a_request_whose_rows_influence_each_other_is_answered_whole() {
    let graph = || Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]);
    let centred = graph().node("ReduceMean", &["x"], &["mean"], &[("axes", Ints(&[0]))]);
    let centred = load(centred.node("Sub", &["x", "mean"], &["y"], &[]));
    let told = centred.alone().unwrap().to_string();
    assert!(told.starts_with("output 'y' of one row changes with the other rows"), "{told}");
    let x = || floats(&[2, 2], &[1.0, 2.0, 5.0, 6.0]);
    assert_eq!(answer(&centred, x()), floats(&[2, 2], &[-2.0, -2.0, 2.0, 2.0]));

    // Only what is behind the first row is influenced: its own answer is the same in any batch.
    let author = graph().ints("from", &[1], &[0]).ints("to", &[1], &[1]);
    let first = author.node("Slice", &["x", "from", "to"], &["first"], &[]);
    let first = load(first.node("Add", &["x", "first"], &["y"], &[]));
    assert_eq!(first.alone().map(OnnxError::kind), Some(OnnxErrorKind::MixedRows));
    assert_eq!(answer(&first, x()), floats(&[2, 2], &[2.0, 4.0, 6.0, 8.0]));

    // One answer for all rows is none for each.
    let mean = load(graph().node("ReduceMean", &["x"], &["y"], &[("axes", Ints(&[0]))]));
    assert!(mean.alone().is_some());
    assert_eq!(answer(&mean, x()), floats(&[1, 2], &[3.0, 4.0]));
}

#[test]
fn no_name_of_an_axis_makes_rows_of_what_the_file_takes_together() {
    for name in ["N", "n", "b", "bs", "batch", "my_batch", "points"] {
        // Points, of which the largest numbers are pooled.
        let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[1, 2]);
        let pooled = load(author.node("ReduceMax", &["x"], &["y"], &[("axes", Ints(&[0]))]).calling_free(name));
        let points = floats(&[3, 2], &[1.0, 9.0, 2.0, 8.0, 3.0, 7.0]);
        assert_eq!(answer(&pooled, points.clone()), floats(&[1, 2], &[3.0, 9.0]), "{name}");
        // Each with each.
        let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, FREE]);
        let author = author.node("Transpose", &["x"], &["turned"], &[]).node("MatMul", &["x", "turned"], &["y"], &[]);
        let similar = load(author.calling_free(name));
        assert_eq!(answer(&similar, points.clone()), by_file(&similar, points.clone()), "{name}");
        // Steps, of which each adds to the next.
        let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]).ints("axis", &[], &[0]);
        let sums = load(author.node("CumSum", &["x", "axis"], &["y"], &[]).calling_free(name));
        assert_eq!(answer(&sums, points.clone()), by_file(&sums, points), "{name}");
    }
}

#[test]
fn a_value_may_decide_how_many_axes_an_answer_has() {
    let author = Author::new(13).input("x", &[1, 3, 1, 2]).int_input("a", &[1]).output("y", &[]);
    let model = load(author.node("Squeeze", &["x", "a"], &["y"], &[]));
    let author = Author::new(13).input("x", &[3, 2]).int_input("a", &[2]).output("y", &[]);
    let unsqueeze = load(author.node("Unsqueeze", &["x", "a"], &["y"], &[]));
    let x = |shape: &[usize]| floats(shape, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let axes = |axes: &[i64]| Tensor::new(vec![axes.len()], axes.to_vec()).unwrap();
    for (at, shape) in [(0, [3, 1, 2]), (2, [1, 3, 2])] {
        let outputs = ask(&model, vec![("x", x(&[1, 3, 1, 2])), ("a", axes(&[at]))]);
        assert_eq!(outputs.get("y"), Some(&x(&shape)));
    }
    for (at, shape) in [([0, 1], [1, 1, 3, 2]), ([0, 3], [1, 3, 2, 1])] {
        let outputs = ask(&unsqueeze, vec![("x", x(&[3, 2])), ("a", axes(&at))]);
        assert_eq!(outputs.get("y"), Some(&x(&shape)));
    }
}

#[test]
fn a_small_influence_is_seen_by_the_scale_of_the_output() {
    // A hundredth of the mean of all rows, beside answers of the same size.
    let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]).floats("part", &[1], &[0.01]);
    let author = author.node("ReduceMax", &["x"], &["most"], &[("axes", Ints(&[0]))]);
    let author = author.node("Mul", &["most", "part"], &["little"], &[]).floats("thousandth", &[1], &[0.001]);
    let author = author.node("Add", &["x", "little"], &["h"], &[]).node("Mul", &["h", "thousandth"], &["y"], &[]);
    assert_eq!(load(author).alone().map(OnnxError::kind), Some(OnnxErrorKind::MixedRows));
}

#[test]
fn an_axis_that_is_not_called_a_batch_and_is_none_is_left_to_the_model() {
    let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]).ints("axis", &[], &[0]);
    let model = load(author.node("CumSum", &["x", "axis"], &["y"], &[]).calling_free("time"));
    assert!(model.signature().is_unbatched() && model.alone().is_some());
    assert_eq!(shapes(&model.signature().inputs), [[-1, 2]]);
    let sums = answer(&model, floats(&[3, 2], &[1.0; 6]));
    assert_eq!(sums, floats(&[3, 2], &[1.0, 1.0, 2.0, 2.0, 3.0, 3.0]));
}

#[test]
fn rows_are_found_along_the_second_axis() {
    // Ordered by time, as recurrent recognisers answer.
    let author = Author::new(17).input("x", &[FREE, 5, 2]).output("y", &[5, FREE, 2]);
    let model = load(author.node("Transpose", &["x"], &["y"], &[("perm", Ints(&[1, 0, 2]))]));
    assert!(model.alone().is_none());
    assert_eq!(shapes(&model.signature().outputs), [[5, -1, 2]]);
    let x: Vec<f32> = (0..30u8).map(f32::from).collect();
    let turned = answer(&model, floats(&[3, 5, 2], &x));
    assert_eq!(turned.shape(), [5, 3, 2]);
    assert_eq!(turned.axis_to_front(1), floats(&[3, 5, 2], &x));
}

/// Audio, a state with its rows along axis 1, and a rate that turns the graph, as detectors of speech have them.
fn speech() -> Author {
    let add = |name: &str| Author::new(17).node(name, &["x", "last"], &["sum"], &[]).output("sum", &[FREE, 2]).body();
    let branches = [("then_branch", Body(add("Add"))), ("else_branch", Body(add("Sub")))];
    let author = Author::new(17).input("x", &[FREE, 2]).input("state", &[1, FREE, 2]).int_input("sr", &[]);
    let author = author.ints("front", &[1], &[0]).ints("wide", &[], &[16_000]);
    let author = author.node("Squeeze", &["state", "front"], &["last"], &[]);
    let author = author.node("Equal", &["sr", "wide"], &["is_wide"], &[]);
    let author = author.node("If", &["is_wide"], &["y"], &branches);
    let author = author.node("Unsqueeze", &["y", "front"], &["next"], &[]);
    author.output("y", &[FREE, 2]).output("next", &[1, FREE, 2])
}

#[test]
fn a_state_has_its_rows_where_the_batch_s_name_is_and_a_number_is_for_all_rows() {
    let model = load(speech());
    assert!(model.alone().is_none(), "{:?}", model.alone());
    assert_eq!(shapes(&model.signature().inputs), [vec![-1, 2], vec![1, -1, 2], vec![]]);
    assert_eq!(shapes(&model.signature().outputs), [vec![-1, 2], vec![1, -1, 2]]);
    let rates = |rates: &[i64]| match rates {
        [one] => Tensor::new(vec![], vec![*one]).unwrap(),
        each => Tensor::new(vec![each.len()], each.to_vec()).unwrap(),
    };
    let (x, state) = (floats(&[3, 2], &[10.0; 6]), floats(&[1, 3, 2], &[1.0, 1.0, 2.0, 2.0, 3.0, 3.0]));
    let ask = |sr| ask(&model, vec![("sr", sr), ("x", x.clone()), ("state", state.clone())]);
    let next = |outputs: &Tensors| outputs.get("next").unwrap().clone();
    assert_eq!(next(&ask(rates(&[16_000]))), floats(&[1, 3, 2], &[11.0, 11.0, 12.0, 12.0, 13.0, 13.0]));
    // Rows with different rates do not share a run.
    let mixed = ask(rates(&[16_000, 8_000, 8_000]));
    assert_eq!(next(&mixed), floats(&[1, 3, 2], &[11.0, 11.0, 8.0, 8.0, 7.0, 7.0]));
}

#[test]
fn a_branch_that_goes_by_the_values_of_all_rows_is_doubted() {
    let body = |name: &str| Author::new(17).node(name, &["x"], &["h"], &[]).output("h", &[FREE, 2]).body();
    let branches = [("then_branch", Body(body("Neg"))), ("else_branch", Body(body("Identity")))];
    // No made-up number is as large: no trial takes the first branch.
    let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]).floats("bound", &[], &[1e6]);
    let author = author.node("ReduceMax", &["x"], &["most"], &[("keepdims", Int(0))]);
    let author = author.node("Greater", &["most", "bound"], &["is_loud"], &[]);
    let model = load(author.node("If", &["is_loud"], &["y"], &branches));
    let told = model.alone().unwrap().to_string();
    assert!(told.starts_with("operator 'If' (node 'make_y') goes by the values of all rows"), "{told}");
    assert_eq!(answer(&model, floats(&[2, 2], &[1.0, 2e6, 3.0, 4.0])), floats(&[2, 2], &[-1.0, -2e6, -3.0, -4.0]));
}

#[test]
fn a_length_that_values_decide_is_not_fixed_by_what_the_trial_saw() {
    // The places of what is beyond any made-up number, as a detector finds nothing in noise.
    let author = Author::new(17).input("x", &[1, 4]).floats("bound", &[], &[1e6]);
    let author = author.node("Greater", &["x", "bound"], &["is_loud"], &[]);
    let author = author.node("NonZero", &["is_loud"], &["places"], &[]).output_of(7, "places", &[2, FREE]);
    let model = load(author);
    assert!(model.signature().is_unbatched() && model.is_unsteady());
    assert_eq!(shapes(&model.signature().inputs), [[1, 4]]);
    assert_eq!(shapes(&model.signature().outputs), [[2, -1]]);
    let places = |x: &[f32]| answer(&model, floats(&[1, 4], x));
    assert_eq!(places(&[2e6, 0.0, 2e6, 0.0]), Tensor::new(vec![2, 2], vec![0i64, 0, 0, 2]).unwrap());
    assert_eq!(places(&[0.0; 4]), Tensor::new(vec![2, 0], Vec::<i64>::new()).unwrap());
}

#[test]
fn a_length_that_a_number_for_all_rows_decides_is_as_the_number_says() {
    let number = |n: i64| Tensor::new(vec![1], vec![n]).unwrap();
    let x = || floats(&[2, 4], &[4.0, 3.0, 2.0, 1.0, 8.0, 7.0, 6.0, 5.0]);
    let graph = || Author::new(17).input("x", &[FREE, 4]).int_input("k", &[1]).output("y", &[FREE, FREE]);
    let cut = graph().ints("front", &[1], &[0]).ints("axis", &[1], &[1]);
    let cut = cut.node("Slice", &["x", "front", "k", "axis"], &["y"], &[]);
    for author in [cut, graph().node("TopK", &["x", "k"], &["y", "places"], &[])] {
        let model = load(author);
        assert!(model.alone().is_none(), "{:?}", model.alone());
        assert_eq!(shapes(&model.signature().outputs), [[-1, -1]]);
        for (k, wanted) in [(1, floats(&[2, 1], &[4.0, 8.0])), (2, floats(&[2, 2], &[4.0, 3.0, 8.0, 7.0]))] {
            let outputs = ask(&model, vec![("x", x()), ("k", number(k))]);
            assert_eq!(outputs.get("y"), Some(&wanted));
        }
        // Answers of different lengths are no tensor, and whoever asks for that is told so.
        let each = Tensor::new(vec![2, 1], vec![1i64, 2]).unwrap();
        let batch = Tensors::new(vec![("x".into(), x()), ("k".into(), each)]).unwrap();
        let error = model.runner(NonZeroUsize::MIN).run(batch).unwrap_err();
        assert!(matches!(&error, RunnerError::Input(why) if why.contains("several requests")), "{error:?}");
    }
}

#[test]
fn what_a_file_fixes_at_one_row_beside_free_ones_may_come_once_or_for_each() {
    let author = Author::new(17).input("mask", &[1, 2]).input("x", &[FREE, 2]).output("y", &[FREE, 2]);
    let model = load(author.node("Mul", &["x", "mask"], &["y"], &[]));
    assert!(model.alone().is_none(), "{:?}", model.alone());
    let x = || floats(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let with = |mask: Tensor| ask(&model, vec![("x", x()), ("mask", mask)]).into_entries().remove(0).1;
    assert_eq!(with(floats(&[1, 2], &[0.0, 1.0])), floats(&[3, 2], &[0.0, 2.0, 0.0, 4.0, 0.0, 6.0]));
    let each = floats(&[3, 2], &[0.0, 1.0, 1.0, 0.0, 1.0, 1.0]);
    assert_eq!(with(each), floats(&[3, 2], &[0.0, 2.0, 3.0, 0.0, 5.0, 6.0]));

    // An output of the mask alone has one row in the file, however many the other input has.
    let author = Author::new(17).input("mask", &[1, 2]).input("x", &[FREE, 2]).output("y", &[FREE, 2]);
    let author = author.output("open", &[1, 2]).node("Mul", &["x", "mask"], &["y"], &[]);
    let model = load(author.node("Neg", &["mask"], &["open"], &[]));
    assert!(model.signature().is_unbatched(), "{:?}", model.alone());
    let outputs = ask(&model, vec![("x", x()), ("mask", floats(&[1, 2], &[0.0, 1.0]))]);
    assert_eq!(outputs.get("open"), Some(&floats(&[1, 2], &[-0.0, -1.0])));

    // Where all are fixed, they have rows together.
    let author = Author::new(17).input("mask", &[1, 2]).input("x", &[1, 2]).output("y", &[1, 2]);
    let model = load(author.node("Mul", &["x", "mask"], &["y"], &[]));
    assert!(model.signature().inputs.iter().all(|spec| spec.rows == Rows::Axis(0) && !spec.repeats));
}

#[test]
fn a_model_that_takes_all_axes_of_length_1_away_answers_each_request_as_the_file_does() {
    let author = Author::new(17).input("x", &[FREE, 4, 1]).output("y", &[FREE, 4]);
    let author = author.node("Squeeze", &["x"], &["h"], &[]);
    let model = load(author.node("Softmax", &["h"], &["y"], &[("axis", Int(-1))]));
    assert!(model.signature().is_unbatched(), "{:?}", model.alone());
    assert_eq!(answer(&model, floats(&[1, 4, 1], &[7.0; 4])), floats(&[4], &[0.25; 4]));
    assert_eq!(answer(&model, floats(&[3, 4, 1], &[7.0; 12])), floats(&[3, 4], &[0.25; 12]));
    // A number for each row.
    let author = Author::new(17).input("x", &[FREE, 1]).output("y", &[FREE]);
    let model = load(author.node("Squeeze", &["x"], &["y"], &[]));
    assert_eq!(answer(&model, floats(&[1, 1], &[5.0])), floats(&[], &[5.0]));
    assert_eq!(answer(&model, floats(&[2, 1], &[5.0, 6.0])), floats(&[2], &[5.0, 6.0]));
}

#[test]
fn a_model_with_a_first_dimension_of_its_own_is_served_as_it_is() {
    for dims in [&[4, 2][..], &[]] {
        let author = Author::new(17).input("x", dims).output("y", dims).node("Neg", &["x"], &["y"], &[]);
        let model = load(author);
        assert_eq!(model.alone().map(OnnxError::kind), Some(OnnxErrorKind::NoBatchAxis), "{dims:?}");
        let shape: Vec<usize> = dims.iter().map(|&d| d as usize).collect();
        let count = shape.iter().product();
        assert_eq!(answer(&model, floats(&shape, &vec![1.0; count])), floats(&shape, &vec![-1.0; count]));
    }
    // No output has a row for the declared one.
    let author = Author::new(17).input("x", &[1, 2]).output("y", &[2]).output("sum", &[]);
    let author = author.ints("shape", &[1], &[2]).node("Reshape", &["x", "shape"], &["y"], &[]);
    let model = load(author.node("ReduceSum", &["y"], &["sum"], &[("keepdims", Int(0))]));
    assert_eq!(shapes(&model.signature().outputs), [vec![2], vec![]]);
    let outputs = ask(&model, vec![("x", floats(&[1, 2], &[1.0, 2.0]))]);
    assert_eq!(outputs.get("sum").unwrap(), &floats(&[], &[3.0]));
}

#[test]
fn what_is_said_of_batch_axes_is_believed() {
    let graph = || Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]).node("Neg", &["x"], &["y"], &[]);
    let said = |batch_axes| load_as(graph(), &Shapes { batch_axes, ..Shapes::default() });
    let model = said(BatchAxes::Unbatched).unwrap();
    assert!(model.signature().is_unbatched() && model.alone().is_none());
    let axis = |name: &str, axis| BatchAxes::Named([(name.to_owned(), Rows::Axis(axis))].into());
    let model = said(axis("x", 1)).unwrap();
    assert_eq!(model.signature().inputs[0].rows, Rows::Axis(1));
    let refusal = |axes| said(axes).unwrap_err().to_string();
    assert_eq!(refusal(axis("z", 0)), "batch_axes: no input is called 'z'; there are 'x'");
    assert_eq!(refusal(axis("x", 2)), "batch_axes: input 'x' has 2 axes, and no axis 2");
}

#[test]
fn a_length_is_found_that_the_model_takes() {
    // Raw audio in three pieces of 512.
    let author = Author::new(17).input("x", &[FREE, FREE]).output("y", &[FREE, 3, 512]);
    let author = author.ints("pieces", &[3], &[0, 3, 512]);
    let model = load(author.node("Reshape", &["x", "pieces"], &["y"], &[]));
    assert_eq!(model.example().get("x").unwrap().shape(), [1, 1536]);
    assert!(model.alone().is_none(), "{:?}", model.alone());
}

#[test]
fn lengths_may_be_said_by_name_and_a_model_that_takes_none_of_those_tried_says_so() {
    let graph = || {
        let author = Author::new(17).input("x", &[1, FREE]).output("y", &[1, FREE]).calling_free("width");
        author.floats("c", &[77], &[1.0; 77]).node("Add", &["x", "c"], &["y"], &[])
    };
    // A length of one is broadcast to 77, which is right, and what a trial finds.
    assert_eq!(load(graph()).example().get("x").unwrap().shape(), [1, 1]);
    let said = |name: &str, length| {
        load_as(graph(), &Shapes { dims: [(name.to_owned(), length)].into(), ..Shapes::default() })
    };
    for name in ["width", "x.1"] {
        assert_eq!(said(name, 77).unwrap().signature().inputs[0].dims, [Some(77)], "{name}");
    }
    let unknown = said("height", 77).unwrap_err().to_string();
    assert_eq!(unknown, "no free dimension is called 'height'; the model's are 'width'");
    // None of the lengths that are tried goes with 79.
    let author = Author::new(17).input("x", &[1, FREE]).output("y", &[1, FREE]).calling_free("width");
    let author = author.ints("shape", &[2], &[1, 79]).node("Reshape", &["x", "shape"], &["y"], &[]);
    let error = load_as(author, &Shapes::default()).unwrap_err().to_string();
    assert!(error.contains("the model's are 'width': set them by dims = { NAME = N }"), "{error}");
}

#[test]
fn whole_numbers_that_point_beyond_a_table_are_drawn_again_more_tamely() {
    let author = Author::new(17).int_input("x", &[FREE, 3]).output("y", &[FREE, 3, 1]);
    let model = load(author.floats("table", &[2, 1], &[5.0, 7.0]).node("Gather", &["table", "x"], &["y"], &[]));
    assert!(model.alone().is_none(), "{:?}", model.alone());
    let x = Tensor::new(vec![1, 3], vec![1i64, 0, 1]).unwrap();
    assert_eq!(answer(&model, x).data(), &Data::from(vec![7f32, 5.0, 7.0]));
}

#[test]
fn zeros_of_two_signs_are_not_one_for_all_rows() {
    let model = load(Author::new(17).input("x", &[FREE, 1]).input("w", &[]).output("y", &[FREE, 1]).node(
        "Div",
        &["x", "w"],
        &["y"],
        &[],
    ));
    let answered = ask(&model, vec![("x", floats(&[2, 1], &[1.0, 1.0])), ("w", floats(&[2], &[0.0, -0.0]))]);
    let y = answered.into_entries().remove(0).1;
    assert_eq!(y.data(), &Data::from(vec![f32::INFINITY, f32::NEG_INFINITY]));
}

#[test]
fn what_is_no_number_is_no_place_and_spoils_no_other_row() {
    let author = Author::new(17).input("x", &[FREE]).output("y", &[FREE, 3]).ints("3", &[], &[3]);
    let model = load(author.floats("on", &[2], &[0.0, 1.0]).node("OneHot", &["x", "3", "on"], &["y"], &[]));
    let y = answer(&model, floats(&[3], &[f32::NAN, 1.0, f32::INFINITY]));
    assert_eq!(y.row(1), answer(&model, floats(&[1], &[1.0])));
    assert_eq!(y.row(0).data(), &Data::from(vec![0f32; 3]));
}

#[test]
fn rows_share_a_run_whichever_of_those_that_are_drawn_point_beyond_a_table() {
    for length in [2, 15, 20, 40, 60, 80, 95, 99] {
        let author = Author::new(17).int_input("x", &[FREE, 1]).output("y", &[FREE, 1, 1]).ints("1", &[], &[1]);
        let table: Vec<f32> = (0..length as u8).map(f32::from).collect();
        let author = author.node("Sub", &["x", "1"], &["at"], &[]).floats("table", &[length, 1], &table);
        let model = load(author.node("Gather", &["table", "at"], &["y"], &[]));
        assert!(model.alone().is_none(), "{length}: {:?}", model.alone());
    }
}

#[test]
fn a_row_that_is_changed_by_large_equal_or_many_neighbours_alone_does_not_share_a_run() {
    let graph = || Author::new(17).input("x", &[FREE, 4]).output("y", &[FREE, 4]);
    let all = &[("keepdims", Int(0))];
    let most = |author: Author| author.node("Abs", &["x"], &["size"], &[]).node("ReduceMax", &["size"], &["most"], all);
    // Scaled by the largest of all, if that is large.
    let author = most(graph()).floats("least", &[], &[5.0]).node("Max", &["most", "least"], &["scale"], &[]);
    let peak = author.node("Div", &["x", "scale"], &["y"], &[]);
    // Images of bytes are told from others by their largest number.
    let author = most(graph()).floats("white", &[], &[255.0]).floats("three", &[], &[3.0]);
    let author = author.node("Greater", &["most", "three"], &["is_bytes"], &[]);
    let author = author.node("Div", &["x", "white"], &["small"], &[]);
    let image = author.node("Where", &["is_bytes", "small", "x"], &["y"], &[]);
    // Rows that are there twice.
    let author = graph().ints("front", &[1], &[0]).ints("one", &[1], &[1]);
    let author = author.node("Slice", &["x", "front", "one", "one"], &["first"], &[]);
    let author = author.node("Transpose", &["first"], &["turned"], &[]);
    let author = author.node("Equal", &["first", "turned"], &["same"], &[]);
    let author = author.node("Cast", &["same"], &["as_numbers"], &[("to", Int(1))]);
    let author = author.node("ReduceSum", &["as_numbers", "one"], &["times"], &[]);
    let twice = author.node("Mul", &["x", "times"], &["y"], &[]);
    // More rows than nine.
    let author = graph().ints("front", &[1], &[0]).ints("nine", &[1], &[9]);
    let author = author.node("Shape", &["x"], &["dims"], &[]).node("Gather", &["dims", "front"], &["rows"], &[]);
    let author = author.node("Greater", &["rows", "nine"], &["many"], &[]).node("Neg", &["x"], &["minus"], &[]);
    let many = author.node("Where", &["many", "minus", "x"], &["y"], &[]);
    // A sum that only what is no number spoils.
    let author = graph().floats("none", &[], &[0.0]).node("ReduceSum", &["x"], &["sum"], &[("keepdims", Int(0))]);
    let author = author.node("Mul", &["sum", "none"], &["nothing"], &[]);
    let spoilt = author.node("Add", &["x", "nothing"], &["y"], &[]);
    for (name, author) in [("peak", peak), ("image", image), ("twice", twice), ("many", many), ("spoilt", spoilt)] {
        let model = load(author);
        assert_eq!(model.alone().map(OnnxError::kind), Some(OnnxErrorKind::MixedRows), "{name}");
    }
    let own = load(graph().node("Softmax", &["x"], &["y"], &[("axis", Int(1))]));
    assert!(own.alone().is_none(), "{:?}", own.alone());
}

#[test]
fn lengths_count_up_to_the_longest_of_all_and_are_not_all_the_same() {
    let author = Author::new(17).input("x", &[FREE, 16]).int_input("lengths", &[FREE]).output("y", &[FREE, 16]);
    let author = author.node("ReduceMax", &["lengths"], &["most"], &[("keepdims", Int(0))]);
    let author = author.node("Cast", &["most"], &["longest"], &[("to", Int(1))]);
    let model = load(author.node("Div", &["x", "longest"], &["y"], &[]));
    assert_eq!(model.alone().map(OnnxError::kind), Some(OnnxErrorKind::MixedRows));
}

#[test]
fn a_length_that_the_file_leaves_free_is_not_what_two_others_agree_on() {
    let author = Author::new(17).input("x", &[FREE, FREE, 4]).output("y", &[FREE, FREE, 4]);
    let author = author.ints("from", &[1], &[0]).ints("to", &[1], &[8]).ints("axis", &[1], &[1]);
    let model = load(author.node("Slice", &["x", "from", "to", "axis"], &["y"], &[]));
    assert_eq!(shapes(&model.signature().outputs), [[-1, -1, 4]]);
    let short = floats(&[1, 3, 4], &[1.0; 12]);
    assert_eq!(answer(&model, short.clone()), short);
}

#[test]
fn points_that_are_called_a_batch_and_are_none_may_be_any_number() {
    let author = Author::new(17).input("x", &[FREE, 3]).output("y", &[3, FREE]).output("most", &[3]);
    let author = author.node("Transpose", &["x"], &["y"], &[]).ints("front", &[1], &[0]);
    let model = load(author.node("ReduceMax", &["x"], &["most"], &[("axes", Ints(&[0])), ("keepdims", Int(0))]));
    let points = floats(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let found = ask(&model, vec![("x", points)]);
    assert_eq!(found.get("y").map(Tensor::shape), Some(&[3, 2][..]), "{:?}", model.signature());
}

#[test]
fn what_comes_one_after_the_other_is_no_batch_however_far_it_reaches() {
    let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]);
    let author = author.ints("from", &[1], &[0]).ints("to", &[1], &[-20]).ints("axis", &[1], &[0]);
    let author = author.ints("pads", &[4], &[20, 0, 0, 0]).floats("zero", &[], &[0.0]);
    let author = author.node("Pad", &["x", "pads", "zero"], &["later"], &[]);
    let author = author.node("Slice", &["later", "from", "to", "axis"], &["before"], &[]);
    let model = load(author.node("Add", &["x", "before"], &["y"], &[]).calling_free("time"));
    assert!(model.signature().is_unbatched(), "{:?}", model.signature());
    let steps = floats(&[30, 2], &[1.0; 60]);
    assert_eq!(answer(&model, steps).row(25), floats(&[1, 2], &[2.0; 2]));
}

#[test]
fn a_number_that_becomes_an_index_may_be_refused_and_a_text_that_becomes_a_number_is_tried_with_one() {
    let author = Author::new(17).input("x", &[FREE]).output("y", &[FREE, 2]).floats("table", &[3, 2], &[0.5; 6]);
    let author = author.node("Cast", &["x"], &["index"], &[("to", Int(7))]);
    let table = load(author.node("Gather", &["table", "index"], &["y"], &[]));
    assert!(table.runner(NonZeroUsize::MIN).may_refuse());
    let author = Author::new(17).input_of(8, "x", &[FREE, 2]).output("y", &[FREE, 2]);
    let texts = load(author.node("Cast", &["x"], &["y"], &[("to", Int(1))]));
    assert!(texts.alone().is_none(), "{:?}", texts.alone());
}

#[test]
fn a_whole_number_that_divides_another_is_tried_with_numbers_that_divide() {
    let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]).ints("hundred", &[1], &[100]);
    let author = author.node("Cast", &["x"], &["whole"], &[("to", Int(7))]);
    let author = author.node("Div", &["hundred", "whole"], &["parts"], &[]);
    let model = load(author.node("Cast", &["parts"], &["y"], &[("to", Int(1))]));
    assert!(model.alone().is_none(), "{:?}", model.alone());
    assert_eq!(answer(&model, floats(&[2, 2], &[7.5, 3.0, -3.0, 100.0])), floats(&[2, 2], &[14.0, 33.0, -33.0, 1.0]));
}

#[test]
fn what_scales_all_rows_together_is_called_by_its_name() {
    let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]);
    let author = author.node("DynamicQuantizeLinear", &["x"], &["q", "scale", "zero"], &[]);
    let model = load(author.node("DequantizeLinear", &["q", "scale", "zero"], &["y"], &[]));
    let told = model.alone().map(ToString::to_string).unwrap_or_default();
    assert!(told.contains("quantize_dynamic") && !told.contains("model.eval()"), "{told}");
}

#[test]
fn a_graph_with_a_place_for_each_pair_of_rows_is_no_batch() {
    let author = Author::new(17).input("x", &[FREE, FREE]).input("h", &[FREE, 3]).output("y", &[FREE, 3]);
    let model = load(author.node("MatMul", &["x", "h"], &["y"], &[]).calling_free("n"));
    assert!(model.signature().is_unbatched(), "{:?}", model.signature());
    let (x, h) = (floats(&[2, 2], &[0.0, 1.0, 1.0, 0.0]), floats(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    assert_eq!(ask(&model, vec![("x", x), ("h", h)]).get("y").map(Tensor::shape), Some(&[2, 3][..]));
}

#[test]
fn a_row_whose_place_among_others_matters_for_rare_values_alone_does_not_share_a_run() {
    // The trial's rows have no number above 3, and of zeros a triangle is zeros.
    let author = Author::new(17).input("x", &[FREE, 4]).output("y", &[FREE, 4]).floats("three", &[], &[3.0]);
    let rare = author.node("Sub", &["x", "three"], &["less"], &[]).node("Relu", &["less"], &["rare"], &[]);
    let model = load(rare.node("Trilu", &["rare"], &["upper"], &[]).node("Add", &["x", "upper"], &["y"], &[]));
    let row = [4.0, 5.0, 6.0, 7.0];
    for rows in [1, 3] {
        let x = floats(&[rows, 4], &row.repeat(rows));
        assert_eq!(answer(&model, x.clone()), by_file(&model, x), "{:?}", model.alone());
    }
    assert!(model.signature().is_unbatched(), "{:?}", model.alone());
}

#[test]
fn a_diagonal_that_a_caller_sends_keeps_requests_apart() {
    // Rows are along the second axis, of which a diagonal far away leaves all as they are.
    let author = Author::new(17).input("x", &[3, 1, 5]).int_input("k", &[]).output("y", &[3, 1, 5]);
    let model = load(author.node("Trilu", &["x", "k"], &["y"], &[]));
    let told = model.alone().map(ToString::to_string).unwrap_or_default();
    assert!(told.contains("'Trilu'") && told.contains("the file declares a single row"), "{told}");
    // A length of another axis may be any number.
    let author = Author::new(17).input("x", &[FREE, 4]).int_input("k", &[1]).output("y", &[FREE, FREE]);
    let author = author.ints("front", &[1], &[0]).ints("axis", &[1], &[1]);
    let model = load(author.node("Slice", &["x", "front", "k", "axis"], &["y"], &[]));
    assert!(model.alone().is_none(), "{:?}", model.alone());
}

#[test]
fn axes_that_a_caller_sends_decide_the_form_of_an_answer() {
    let author = Author::new(17).input("x", &[FREE, 3, 1, 5]).int_input("axes", &[1]).output("y", &[FREE, 3, 1, 1, 5]);
    let model = load(author.node("Unsqueeze", &["x", "axes"], &["y"], &[]));
    assert!(model.is_unsteady());
    let runner = model.runner(NonZeroUsize::MIN);
    assert!(runner.takes_whole_requests() && runner.may_change_form());
}
