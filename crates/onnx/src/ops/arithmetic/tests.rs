//! Operators on pairs of numbers, beside what they are by definition.

use burn_backend::TensorData;

use super::super::alone::{alone, scalar};
use crate::author::Attribute::{Float, Text};
use crate::author::{Author, FREE};
use crate::graph::Graph;

#[test]
fn integers_divide_towards_zero_and_a_zero_divisor_is_named() {
    let divided = |operator, by: i32| {
        alone(17, operator, &[], [("a", TensorData::from([-7, 7, i32::MIN])), ("b", TensorData::from([by]))])
    };
    assert_eq!(divided("Div", 2), Ok(TensorData::from([-3, 3, i32::MIN / 2])));
    assert_eq!(divided("Div", -1), Ok(TensorData::from([7, -7, i32::MIN])));
    assert_eq!(divided("Mod", -2), Ok(TensorData::from([-1, -1, 0])));
    for operator in ["Div", "Mod"] {
        let error = divided(operator, 0).unwrap_err();
        assert!(error.contains(operator) && error.contains("-7 is divided by zero"), "{error}");
    }
}

#[test]
fn integers_that_overflow_wrap_around() {
    let pair = || [("a", TensorData::from([i64::MAX])), ("b", TensorData::from([2i64]))];
    assert_eq!(alone(17, "Add", &[], pair()), Ok(TensorData::from([i64::MIN + 1])));
    assert_eq!(alone(17, "Mul", &[], pair()), Ok(TensorData::from([-2i64])));
    assert_eq!(alone(17, "Pow", &[], pair()), Ok(TensorData::from([1i64])));
    let huge = [("a", TensorData::from([u64::MAX])), ("b", TensorData::from([u64::MAX]))];
    assert_eq!(alone(17, "Mul", &[], huge), Ok(TensorData::from([1u64])));
}

#[test]
fn a_power_is_of_its_base_s_type() {
    let powered = |base: TensorData, exponent: TensorData| alone(17, "Pow", &[], [("a", base), ("b", exponent)]);
    assert_eq!(powered([3i32, 2].into(), [2f32, -1.0].into()), Ok(TensorData::from([9i32, 0])));
    assert_eq!(powered([3f64, 2.0].into(), [2i64, -1].into()), Ok(TensorData::from([9f64, 0.5])));
    assert_eq!(powered([-1i64, 1].into(), [i64::MIN, i64::MAX].into()), Ok(TensorData::from([1i64, 1])));
    let error = powered([0i64].into(), [-1i64].into()).unwrap_err();
    assert!(error.contains("0 to the power of -1"), "{error}");
}

#[test]
fn a_constant_exponent_may_be_of_another_type_than_its_base() {
    let author = Author::new(17).input("x", &[FREE]).output("y", &[FREE]).floats("two", &[1], &[2.0]);
    let graph = Graph::load(&author.node("Pow", &["x", "two"], &["y"], &[]).finish()).unwrap();
    let powered = |x: TensorData| graph.run(vec![x]).unwrap().remove(0);
    assert_eq!(powered([3f64, -1.0].into()), TensorData::from([9f64, 1.0]));
    assert_eq!(powered([3i64, -1].into()), TensorData::from([9i64, 1]));
}

#[test]
fn a_constant_exponent_may_be_beyond_all_integers() {
    for (exponent, of_two) in [(1e30, f32::INFINITY), (-1e30, 0.0), (f32::INFINITY, f32::INFINITY)] {
        let author = Author::new(17).input("x", &[FREE]).output("y", &[FREE]).floats("e", &[1], &[exponent]);
        let graph = Graph::load(&author.node("Pow", &["x", "e"], &["y"], &[]).finish()).unwrap();
        let powers = graph.run(vec![TensorData::from([2f32, 1.0])]).unwrap().remove(0);
        assert_eq!(powers, TensorData::from([of_two, 1.0]), "{exponent}");
    }
}

#[test]
fn bits_shifted_out_of_their_type_are_gone() {
    let shifted = |direction, x: TensorData, by: TensorData| {
        alone(17, "BitShift", &[("direction", Text(direction))], [("x", x), ("by", by)])
    };
    let eights = || TensorData::from([1u8, 8, 200]);
    assert_eq!(shifted("LEFT", [255u8, 255, 255].into(), eights()), Ok(TensorData::from([254u8, 0, 0])));
    assert_eq!(shifted("RIGHT", [255u8, 255, 255].into(), eights()), Ok(TensorData::from([127u8, 0, 0])));
}

#[test]
fn not_a_number_is_both_greatest_and_least() {
    let numbers = || [("a", TensorData::from([f32::NAN, 1.0])), ("b", TensorData::from([0f32, f32::NAN]))];
    for operator in ["Max", "Min"] {
        let found = alone(17, operator, &[], numbers()).unwrap();
        assert!(found.iter::<f32>().all(f32::is_nan), "{operator}: {found}");
    }
}

#[test]
fn bounds_of_clip_are_attributes_in_old_files() {
    let x = || TensorData::from([-2f32, 0.5, 3.0]);
    let clipped = alone(6, "Clip", &[("min", Float(-1.0)), ("max", Float(1.0))], [("x", x())]);
    assert_eq!(clipped, Ok(TensorData::from([-1f32, 0.5, 1.0])));
    let upper = [("x", x()), ("", TensorData::from([0f32])), ("max", scalar(1f32))];
    assert_eq!(alone(11, "Clip", &[], upper), Ok(TensorData::from([-2f32, 0.5, 1.0])));
}

#[test]
fn the_upper_bound_counts_where_bounds_contradict_each_other() {
    let clipped = |x: TensorData, min, max| alone(13, "Clip", &[], [("x", x), ("min", min), ("max", max)]);
    assert_eq!(clipped([0i64, 9].into(), scalar(5i64), scalar(2i64)), Ok(TensorData::from([2i64, 2])));
    assert_eq!(clipped([0f32, 9.0].into(), scalar(5f32), scalar(2f32)), Ok(TensorData::from([2f32, 2.0])));
    let error = clipped([0f32].into(), TensorData::from([1f32, 2.0]), scalar(2f32)).unwrap_err();
    assert!(error.contains("expects one number and gets 2"), "{error}");
}

#[test]
fn tensors_that_do_not_fit_each_other_are_refused() {
    let added = |a: TensorData, b: TensorData| alone(17, "Add", &[], [("a", a), ("b", b)]).unwrap_err();
    assert!(added([1f32].into(), [1f64].into()).contains("cannot combine F32 with F64"));
    assert!(added([1i32].into(), [1i64].into()).contains("cannot combine I32 with I64"));
    assert!(added([1i32].into(), [1f32].into()).contains("cannot combine an integer tensor with a float tensor"));
    for (a, b) in [([1f32, 2.0].into(), [1f32; 3].into()), ([1i32, 2].into(), TensorData::from([1i32; 3]))] {
        assert!(added(a, b).contains("[2] and [3] do not broadcast"));
    }
}

#[test]
fn arithmetic_of_transposed_tensors_is_that_of_their_places() {
    let author = Author::new(17).input("x", &[2, 3]).output("y", &[3, 2]).output("z", &[3, 2]);
    let author = author.floats("b", &[2], &[10.0, 20.0]).floats("m", &[3, 1], &[1.0, -1.0, 2.0]);
    let author = author.node("Transpose", &["x"], &["t"], &[]).node("Add", &["t", "b"], &["s"], &[]);
    let author = author.node("Mul", &["m", "s"], &["p"], &[]).node("Relu", &["p"], &["y"], &[]);
    let author = author.node("Sub", &["y", "t"], &["z"], &[]);
    let found = author.answer(vec![TensorData::from([[1f32, 2.0, 3.0], [4.0, 5.0, 6.0]])]);
    let y = TensorData::from([[11f32, 24.0], [0.0, 0.0], [26.0, 52.0]]);
    let z = TensorData::from([[10f32, 20.0], [-2.0, -5.0], [23.0, 46.0]]);
    assert_eq!(found, Ok(vec![y, z]));
    let inputs = [("a", TensorData::from([[1i32], [i32::MAX]])), ("b", TensorData::from([1i32, 2]))];
    let sums = TensorData::from([[2i32, 3], [i32::MIN, i32::MIN + 1]]);
    assert_eq!(alone(17, "Add", &[], inputs), Ok(sums));
}

#[test]
fn nothing_broadcasts_to_nothing() {
    let none = || TensorData::new(Vec::<f32>::new(), [0, 3]);
    for operator in ["Add", "Max", "Pow", "Mod"] {
        let found = alone(17, operator, &[], [("a", none()), ("b", TensorData::from([1f32, 2.0, 3.0]))]);
        assert_eq!(found, Ok(none()), "{operator}");
    }
}

#[test]
fn tensors_of_one_shape_are_combined_in_place_only_where_nobody_else_has_them() {
    let author = Author::new(17).input("x", &[FREE]);
    let author = author.node("Neg", &["x"], &["n"], &[]).node("Exp", &["x"], &["e"], &[]);
    // The left one is read again, or the right one, or both; it is the same; and nobody reads the last two again.
    let author = author.node("Sub", &["x", "e"], &["a"], &[]).node("Exp", &["n"], &["f"], &[]);
    let author = author.node("Div", &["f", "n"], &["b"], &[]).node("Sub", &["x", "n"], &["c"], &[]);
    let author = author.node("Sub", &["x", "x"], &["d"], &[]).node("Mul", &["x", "n"], &["g"], &[]);
    let author = author.node("Sub", &["c", "g"], &["h"], &[]);
    let author = ["a", "b", "d", "h"].into_iter().fold(author, |author, name| author.output(name, &[FREE]));
    let x: Vec<f32> = (0..5000).map(|i| (i as f32 - 2499.5) / 1000.0).collect();
    let found = author.answer(vec![TensorData::new(x.clone(), [5000])]).unwrap();
    let expected: [fn(f32) -> f32; 4] = [|x| x - x.exp(), |x| (-x).exp() / -x, |_| 0.0, |x| x + x + x * x];
    for (found, expected) in found.iter().zip(expected) {
        for (found, x) in found.iter::<f32>().zip(&x) {
            let expected = expected(*x);
            assert!((found - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{found} and {expected} of {x}");
        }
    }
}
