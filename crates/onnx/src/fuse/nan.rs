//! Tests that joining loses no NaN: each rule's pattern on rows of which some have one, with the rule and without.

use burn_backend::TensorData;

use super::*;
use crate::Graph;
use crate::author::Attribute::{Float, Int, Ints};
use crate::author::{Author, FREE};
use crate::fast::numbers;

const UINT8: i32 = 2;
const INT8: i32 = 3;
const ROWS: usize = 5;
/// An ordinary row, one of nothing but NaN, one with a NaN in front, another ordinary one, and one with a NaN at the end.
const HAS_NAN: [bool; ROWS] = [false, true, true, false, true];

/// The rows of a batch, of `width` numbers each.
fn rows(width: usize) -> Vec<f32> {
    let mut x = numbers(ROWS * width, 1);
    x[width..2 * width].fill(f32::NAN);
    x[2 * width] = f32::NAN;
    x[ROWS * width - 1] = f32::NAN;
    x
}

/// What a graph of images or vectors, `dims` without the batch, makes of the rows by these rules, each row flattened.
fn answered(file: &[u8], rules: &[Rule], dims: &[usize]) -> Result<Vec<Vec<f32>>, String> {
    let graph = Graph::load_joined_by(file, rules).unwrap();
    let x = TensorData::new(rows(dims.iter().product()), [&[ROWS][..], dims].concat());
    let y = graph.run(vec![x]).map_err(|e| e.to_string())?[0].clone().try_into_vec::<f32>().unwrap();
    Ok(y.chunks(y.len() / ROWS).map(<[f32]>::to_vec).collect())
}

const IMAGE: [usize; 3] = [16, 9, 11];
const VECTOR: [usize; 1] = [40];

/// A graph that begins with a convolution of images or a product of vectors, whose result is `c`.
fn begin(image: bool) -> Author {
    if image {
        let author = Author::new(17).input("x", &[FREE, 16, 9, 11]).output("y", &[FREE, 16, 9, 11]);
        let author = author.floats("w", &[16, 16, 3, 3], &numbers(16 * 16 * 9, 2));
        author.node("Conv", &["x", "w"], &["c"], &[("pads", Ints(&[1; 4]))])
    } else {
        let author = Author::new(17).input("x", &[FREE, 40]).output("y", &[FREE, 40]);
        author.floats("w", &[40, 40], &numbers(1600, 2)).node("MatMul", &["x", "w"], &["c"], &[])
    }
}

/// What may follow a convolution or a product: each turns `c` into `y`.
fn tails(image: bool) -> Vec<Box<dyn Fn(Author) -> Author>> {
    let plain = |operator: &'static str| -> Box<dyn Fn(Author) -> Author> {
        Box::new(move |author| author.node(operator, &["c"], &["y"], &[]))
    };
    let mut all: Vec<_> = ["Relu", "Sigmoid", "Tanh", "HardSwish"].map(plain).into();
    all.push(Box::new(|author| author.node("LeakyRelu", &["c"], &["y"], &[("alpha", Float(0.1))])));
    all.push(Box::new(|author| {
        author.floats("low", &[], &[-0.4]).floats("high", &[], &[0.7]).node("Clip", &["c", "low", "high"], &["y"], &[])
    }));
    all.push(Box::new(|author| author.floats("low", &[], &[0.2]).node("Clip", &["c", "low"], &["y"], &[])));
    if !image {
        all.push(Box::new(|author| {
            let author = author.floats("b", &[1], &[0.5]).node("Add", &["c", "b"], &["s"], &[]);
            author.node("Relu", &["s"], &["y"], &[])
        }));
    }
    all.push(Box::new(|author| author.node("Add", &["x", "c"], &["s"], &[]).node("Relu", &["s"], &["y"], &[])));
    all
}

/// The patterns of a rule that works on `c` and makes `y`.
fn patterns(rule: Rule, image: bool) -> Vec<Author> {
    let author = || begin(image);
    match rule {
        Rule::Normalization if !image => Vec::new(),
        Rule::Normalization => {
            let column = |author: Author, name: &str, seed| author.floats(name, &[16], &numbers(16, seed));
            let author = column(column(column(author(), "scale", 3), "shift", 4), "mean", 5);
            let author = author.floats("variance", &[16], &[0.7; 16]);
            vec![author.node("BatchNormalization", &["c", "scale", "shift", "mean", "variance"], &["y"], &[])]
        }
        Rule::Gelu => {
            let author = author().floats("root", &[], &[std::f32::consts::SQRT_2]);
            let author = author.floats("one", &[], &[1.0]).floats("half", &[], &[0.5]);
            let author = author.node("Div", &["c", "root"], &["d"], &[]).node("Erf", &["d"], &["e"], &[]);
            let author = author.node("Add", &["e", "one"], &["p"], &[]).node("Mul", &["c", "p"], &["m"], &[]);
            vec![author.node("Mul", &["m", "half"], &["y"], &[])]
        }
        Rule::LayerNormalization => {
            let width = if image { 11 } else { 40 };
            let author = author().floats("two", &[], &[2.0]).floats("epsilon", &[], &[1e-5]);
            let author = author.floats("scale", &[width as i64], &numbers(width, 3));
            let author = author.floats("shift", &[width as i64], &numbers(width, 4));
            let mean = [("axes", Ints(&[-1])), ("keepdims", Int(1))];
            let author = author.node("ReduceMean", &["c"], &["m"], &mean).node("Sub", &["c", "m"], &["d"], &[]);
            let author = author.node("Pow", &["d", "two"], &["s"], &[]).node("ReduceMean", &["s"], &["v"], &mean);
            let author = author.node("Add", &["v", "epsilon"], &["p"], &[]).node("Sqrt", &["p"], &["r"], &[]);
            let author = author.node("Div", &["d", "r"], &["n"], &[]).node("Mul", &["n", "scale"], &["t"], &[]);
            vec![author.node("Add", &["t", "shift"], &["y"], &[])]
        }
        Rule::Silu => vec![author().node("Sigmoid", &["c"], &["s"], &[]).node("Mul", &["c", "s"], &["y"], &[])],
        Rule::HardSwish => {
            let author = author().floats("three", &[], &[3.0]).floats("none", &[], &[0.0]).floats("six", &[], &[6.0]);
            let author = author.node("Add", &["c", "three"], &["s"], &[]);
            let author = author.node("Clip", &["s", "none", "six"], &["b"], &[]).node("Mul", &["c", "b"], &["p"], &[]);
            vec![author.node("Div", &["p", "six"], &["y"], &[])]
        }
        Rule::Tail => tails(image).into_iter().map(|tail| tail(author())).collect(),
        Rule::Quantized => Vec::new(),
    }
}

#[test]
fn joining_by_any_rule_keeps_every_nan_and_makes_none() {
    for (rule, image) in Rule::ALL.into_iter().flat_map(|rule| [true, false].map(|image| (rule, image))) {
        for (i, author) in patterns(rule, image).into_iter().enumerate() {
            let (before, after) = (author.clone().body().node.len(), fuse(&mut author.clone().body(), &[rule]).len());
            assert!(after < before, "{rule:?} joins nothing in pattern {i}");
            let (file, dims) = (author.finish(), if image { &IMAGE[..] } else { &VECTOR });
            let plain = answered(&file, &[], dims).unwrap();
            for rules in [&[rule][..], &Rule::ALL] {
                let joined = answered(&file, rules, dims).unwrap();
                for ((joined, plain), has_nan) in joined.iter().zip(&plain).zip(HAS_NAN) {
                    let differs = joined.iter().zip(plain).position(|(a, b)| a.is_nan() != b.is_nan());
                    assert_eq!(differs, None, "{rule:?}, pattern {i}, image {image}");
                    let found = joined.iter().any(|y| y.is_nan());
                    assert_eq!(found, has_nan, "{rule:?}, pattern {i}, image {image}");
                }
            }
        }
    }
}

/// A convolution or product between conversions, of floats that are quantised first.
fn quantized(image: bool) -> Author {
    let dims: &[i64] = if image { &[FREE, 16, 9, 11] } else { &[FREE, 40] };
    let kernel: &[i64] = if image { &[16, 16, 3, 3] } else { &[40, 40] };
    let weights: Vec<u8> = (0..kernel.iter().product::<i64>()).map(|i| (i * 7919 % 251) as u8).collect();
    let author = Author::new(13).input("x", dims).output("y", dims).floats("scale", &[], &[0.0625]);
    let author = author.weight_of(UINT8, "zero", &[], &[128]).weight_of(INT8, "w", kernel, &weights);
    let author = author.weight_of(INT8, "w_zero", &[], &[0]).floats("step", &[], &[8.0]);
    let author = author.node("QuantizeLinear", &["x", "scale", "zero"], &["q"], &[]);
    let author = author.node("DequantizeLinear", &["q", "scale", "zero"], &["f"], &[]);
    let author = author.node("DequantizeLinear", &["w", "scale", "w_zero"], &["wf"], &[]);
    let author = match image {
        true => author.node("Conv", &["f", "wf"], &["c"], &[("pads", Ints(&[1; 4]))]),
        false => author.node("MatMul", &["f", "wf"], &["c"], &[]),
    };
    let author = author.node("QuantizeLinear", &["c", "step", "zero"], &["cq"], &[]);
    author.node("DequantizeLinear", &["cq", "step", "zero"], &["y"], &[])
}

#[test]
fn a_nan_is_not_quantised_whether_the_integers_are_joined_or_not() {
    for image in [true, false] {
        let author = quantized(image);
        let joined = fuse(&mut author.clone().body(), &[Rule::Quantized]);
        assert!(joined.iter().any(|node| node.file.op_type.starts_with("QLinear")), "image {image}");
        let (file, dims) = (author.finish(), if image { &IMAGE[..] } else { &VECTOR });
        for rules in [&[][..], &[Rule::Quantized], &Rule::ALL] {
            let error = answered(&file, rules, dims).err();
            assert!(error.is_some_and(|error| error.contains("cannot quantise NaN")), "{rules:?}, image {image}");
        }
    }
}

#[test]
fn dynamic_quantisation_passes_a_nan_on() {
    let begin = || {
        let author = Author::new(13).input("x", &[FREE, 40]).output("y", &[FREE, 40]);
        let weights: Vec<u8> = (0..1600).map(|i| (i * 7919 % 251) as u8).collect();
        let author = author.weight_of(INT8, "w", &[40, 40], &weights).weight_of(INT8, "w_zero", &[], &[0]);
        author.floats("step", &[], &[0.01])
    };
    let written = begin().node("DynamicQuantizeLinear", &["x"], &["q", "scale", "zero"], &[]);
    let written = written.node("MatMulInteger", &["q", "w", "zero", "w_zero"], &["i"], &[]);
    let written = written.node("Cast", &["i"], &["f"], &[("to", Int(1))]);
    let written = written.node("Mul", &["scale", "step"], &["by"], &[]).node("Mul", &["f", "by"], &["y"], &[]);
    let fused = begin().node("DynamicQuantizeMatMul", &["x", "w", "step", "w_zero"], &["y"], &[]).of("com.microsoft");
    for author in [written, fused] {
        let file = author.finish();
        for rules in [&[][..], &Rule::ALL] {
            let graph = Graph::load_joined_by(&file, rules).unwrap();
            for (row, has_nan) in rows(40).chunks(40).zip(HAS_NAN) {
                let y = graph.run(vec![TensorData::new(row.to_vec(), [1, 40])]).unwrap();
                let y = y[0].clone().try_into_vec::<f32>().unwrap();
                assert!(y.iter().all(|y| y.is_nan() == has_nan), "{y:?}");
            }
        }
    }
}
