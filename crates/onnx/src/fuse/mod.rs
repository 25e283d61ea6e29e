//! Joins nodes that are faster together: the file's nodes go in, and nodes that compute the same come out.
//!
//! A rule declares what it looks for ([`pattern`]) and says what it would put in its place ([`node`]); [`net`] proves that
//! nobody else reads what would go, and does it. What a joined node computes is a typed value that only this room makes.

mod gelu;
mod layer_norm;
#[cfg(test)]
mod nan;
mod net;
mod node;
mod normalization;
mod pattern;
mod quantized;
mod swish;
mod tail;

use self::net::Net;
pub(super) use self::node::{Followed, Joined, Node};
use self::pattern::join_activations;
use super::proto::GraphProto;

/// One kind of joining.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A batch normalisation goes into the weights of the convolution before it.
    Normalization,
    /// GELU that is written out becomes one activation.
    Gelu,
    /// A layer normalisation that is written out becomes one node.
    LayerNormalization,
    /// x · sigmoid(x) becomes one activation.
    Silu,
    /// x · clip(x + 3, 0, 6) / 6 becomes one activation.
    HardSwish,
    /// A convolution or product between conversions from and to small integers becomes one of the integers.
    Quantized,
    /// A convolution or product takes in the bias, the sum and the activation that follow it.
    Tail,
}

impl Rule {
    /// All rules, in the order in which they are applied: later ones join what earlier ones have made.
    pub const ALL: [Rule; 7] = [
        Rule::Normalization,
        Rule::Gelu,
        Rule::LayerNormalization,
        Rule::Silu,
        Rule::HardSwish,
        Rule::Quantized,
        Rule::Tail,
    ];
}

/// Takes the nodes out of a graph and joins, by these rules, what can be joined.
pub(super) fn fuse(graph: &mut GraphProto, rules: &[Rule]) -> Vec<Node> {
    let nodes = std::mem::take(&mut graph.node);
    let mut net = Net::of(graph, nodes);
    for rule in Rule::ALL.iter().filter(|rule| rules.contains(rule)) {
        match rule {
            Rule::Normalization => normalization::into_convolutions(&mut net),
            Rule::Gelu => join_activations(&mut net, &gelu::patterns()),
            Rule::LayerNormalization => layer_norm::join(&mut net),
            Rule::Silu => join_activations(&mut net, &swish::silu()),
            Rule::HardSwish => join_activations(&mut net, &swish::hard()),
            Rule::Quantized => quantized::join(&mut net),
            Rule::Tail => tail::join(&mut net),
        }
    }
    net.finish()
}

#[cfg(test)]
mod tests {
    use super::super::author::Attribute::{self, Float, Int, Ints};
    use super::super::author::{Author, FREE};
    use super::*;
    use crate::Graph;
    use crate::fast::activation::Activation;
    use burn_backend::TensorData;

    /// The nodes that `fuse` makes of a graph, in words.
    fn joined(author: Author) -> Vec<String> {
        fuse(&mut author.body(), &Rule::ALL).iter().map(in_words).collect()
    }

    fn in_words(node: &Node) -> String {
        let mut words = vec![node.file.qualified()];
        match node.joined {
            Joined::Nothing => {}
            Joined::Followed(Followed { normalization, added, activation }) => {
                words.extend(normalization.map(|_| "normalised".to_owned()));
                words.extend(added.map(|i| format!("plus {}", node.file.input[i])));
                words.extend((activation != Activation::None).then(|| format!("{activation:?}")));
            }
            Joined::Activation(activation) => words = vec![format!("{activation:?}")],
            Joined::LayerNormalization { .. } => words = vec!["LayerNormalization".to_owned()],
        }
        words.join(", ")
    }

    fn convolution() -> Author {
        let author = Author::new(17).input("x", &[FREE, 2, 4, 4]).floats("w", &[2, 2, 1, 1], &[0.5; 4]);
        author.node("Conv", &["x", "w"], &["c"], &[])
    }

    #[test]
    fn what_follows_a_convolution_joins_it() {
        let author = convolution().output("y", &[FREE, 2, 4, 4]);
        let author = author.node("Sigmoid", &["x"], &["s"], &[]).node("Add", &["s", "c"], &["a"], &[]);
        assert_eq!(joined(author.node("Relu", &["a"], &["y"], &[])), ["Sigmoid", "Conv, plus s, Relu"]);
    }

    #[test]
    fn a_number_times_its_sigmoid_is_one_activation() {
        let author = convolution().output("y", &[FREE, 2, 4, 4]).node("Sigmoid", &["c"], &["s"], &[]);
        assert_eq!(joined(author.node("Mul", &["c", "s"], &["y"], &[])), ["Conv, Silu"]);
        let author = convolution().output("y", &[FREE, 2, 4, 4]).node("Sigmoid", &["c"], &["s"], &[]);
        assert_eq!(joined(author.node("Mul", &["x", "s"], &["y"], &[])), ["Conv, Sigmoid", "Mul"]);
    }

    #[test]
    fn a_hard_swish_is_found_however_its_sixth_is_written() {
        let begin = || {
            let author = convolution().output("y", &[FREE, 2, 4, 4]).floats("three", &[], &[3.0]);
            let author =
                author.floats("none", &[], &[0.0]).floats("six", &[], &[6.0]).floats("sixth", &[], &[1.0 / 6.0]);
            author.node("Add", &["c", "three"], &["s"], &[])
        };
        let bent = || begin().node("Clip", &["s", "none", "six"], &["b"], &[]);
        let product = || bent().node("Mul", &["c", "b"], &["p"], &[]);
        let line = |author: Author| author.node("Mul", &["l", "c"], &["y"], &[]);
        for author in [
            product().node("Div", &["p", "six"], &["y"], &[]),
            product().node("Mul", &["sixth", "p"], &["y"], &[]),
            line(bent().node("Div", &["b", "six"], &["l"], &[])),
            line(bent().node("Mul", &["b", "sixth"], &["l"], &[])),
        ] {
            assert_eq!(joined(author), ["Conv, HardSwish"]);
        }
        let other = begin().node("Clip", &["s", "none", "three"], &["b"], &[]).node("Mul", &["c", "b"], &["p"], &[]);
        assert_eq!(joined(other.node("Div", &["p", "six"], &["y"], &[])).len(), 5, "another bound");
        assert_eq!(joined(product().node("Div", &["six", "p"], &["y"], &[])).len(), 5, "turned");
    }

    #[test]
    fn what_somebody_else_reads_is_kept() {
        let author = convolution().output("y", &[FREE, 2, 4, 4]).output("c", &[FREE, 2, 4, 4]);
        assert_eq!(joined(author.node("Relu", &["c"], &["y"], &[])), ["Conv", "Relu"]);
        let author = convolution().output("y", &[FREE, 2, 4, 4]);
        assert_eq!(joined(author.node("Mul", &["c", "c"], &["y"], &[])), ["Conv", "Mul"]);
    }

    #[test]
    fn a_weight_that_is_computed_joins_nothing() {
        let author = Author::new(17).input("x", &[FREE, 2, 4, 4]).input("w", &[2, 2, 1, 1]).output("y", &[FREE]);
        let author = author.node("Conv", &["x", "w"], &["c"], &[]).node("Relu", &["c"], &["y"], &[]);
        assert_eq!(joined(author), ["Conv", "Relu"]);
        let author = Author::new(17).int_input("x", &[FREE, 2]).ints("w", &[2, 2], &[1; 4]).output("y", &[FREE]);
        let author = author.node("MatMul", &["x", "w"], &["m"], &[]).node("Relu", &["m"], &["y"], &[]);
        assert_eq!(joined(author), ["MatMul", "Relu"], "integers");
    }

    #[test]
    fn a_product_takes_its_bias_and_its_activation() {
        let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 3]);
        let author = author.floats("w", &[2, 3], &[1.0; 6]).floats("b", &[3], &[1.0; 3]);
        let author = author.node("MatMul", &["x", "w"], &["m"], &[]).node("Add", &["b", "m"], &["a"], &[]);
        assert_eq!(joined(author.node("Tanh", &["a"], &["y"], &[])), ["MatMul, Tanh"]);
    }

    #[test]
    fn gelu_is_found_in_both_orders_of_its_factors() {
        let begin = || {
            let author = Author::new(13).input("x", &[FREE, 3]).output("y", &[FREE, 3]);
            let author = author.floats("root", &[], &[std::f32::consts::SQRT_2]);
            let author = author.floats("one", &[], &[1.0]).floats("half", &[], &[0.5]);
            let author = author.node("Div", &["x", "root"], &["d"], &[]).node("Erf", &["d"], &["e"], &[]);
            author.node("Add", &["e", "one"], &["p"], &[])
        };
        let last = begin().node("Mul", &["x", "p"], &["m"], &[]).node("Mul", &["m", "half"], &["y"], &[]);
        assert_eq!(joined(last), ["Gelu"]);
        let first = begin().node("Mul", &["x", "half"], &["h"], &[]).node("Mul", &["h", "p"], &["y"], &[]);
        assert_eq!(joined(first), ["Gelu"]);
        let other = begin().node("Mul", &["x", "one"], &["h"], &[]).node("Mul", &["h", "p"], &["y"], &[]);
        assert_eq!(joined(other).len(), 5, "not the half");
    }

    #[test]
    fn gelu_by_the_hyperbolic_tangent_is_found_with_its_cube_as_a_power_or_a_product() {
        let begin = || {
            let author = Author::new(13).input("x", &[FREE, 3]).output("y", &[FREE, 3]).floats("three", &[], &[3.0]);
            let author = author.floats("part", &[], &[0.044715]).floats("root", &[], &[0.797_884_6]);
            author.floats("one", &[], &[1.0]).floats("half", &[], &[0.5])
        };
        let end = |author: Author| {
            let author = author.node("Mul", &["c", "part"], &["p"], &[]).node("Add", &["x", "p"], &["a"], &[]);
            let author = author.node("Mul", &["a", "root"], &["b"], &[]).node("Tanh", &["b"], &["t"], &[]);
            let author = author.node("Add", &["t", "one"], &["s"], &[]).node("Mul", &["x", "half"], &["h"], &[]);
            author.node("Mul", &["h", "s"], &["y"], &[])
        };
        let power = || end(begin().node("Pow", &["x", "three"], &["c"], &[]));
        let product = || end(begin().node("Mul", &["x", "x"], &["q"], &[]).node("Mul", &["q", "x"], &["c"], &[]));
        assert_eq!([joined(power()), joined(product())], [["GeluTanh"], ["GeluTanh"]]);
        let square = end(begin().node("Mul", &["x", "x"], &["c"], &[]));
        assert_eq!(joined(square).len(), 8, "a square, not a cube");
        let found = power().answer(vec![TensorData::from([[-1f32, 0.0, 2.0]])]).unwrap();
        let found = found[0].clone().try_into_vec::<f32>().unwrap();
        let far = found.iter().zip([-0.158_808, 0.0, 1.954_597_7]).any(|(a, b): (&f32, f32)| (a - b).abs() > 1e-6);
        assert!(!far, "{found:?}");
    }

    /// A layer normalisation written out, over `axis`.
    fn normalization(axis: i64) -> Author {
        let author = Author::new(13).input("x", &[FREE, 3]).output("y", &[FREE, 3]);
        let author = author.floats("two", &[], &[2.0]).floats("epsilon", &[], &[1e-5]);
        let author = author.floats("scale", &[3], &[1.0, 2.0, 3.0]).floats("shift", &[3], &[0.5; 3]);
        let mean = [("axes", Ints(&[axis])), ("keepdims", Int(1))];
        let mean = |author: Author, x: &str, y: &str| author.node("ReduceMean", &[x], &[y], &mean);
        let author = mean(author, "x", "m").node("Sub", &["x", "m"], &["d"], &[]);
        let author = mean(author.node("Pow", &["d", "two"], &["s"], &[]), "s", "v");
        let author = author.node("Add", &["v", "epsilon"], &["p"], &[]).node("Sqrt", &["p"], &["r"], &[]);
        let author = author.node("Div", &["d", "r"], &["n"], &[]).node("Mul", &["n", "scale"], &["t"], &[]);
        author.node("Add", &["t", "shift"], &["y"], &[])
    }

    #[test]
    fn layer_normalization_is_found_over_the_last_axis_only() {
        assert_eq!(joined(normalization(-1)), ["LayerNormalization"]);
        assert_eq!(joined(normalization(0)).len(), 9);
    }

    #[test]
    fn bounds_and_slopes_stay_with_the_activation() {
        let author = convolution().output("y", &[FREE, 2, 4, 4]);
        let author = author.node("LeakyRelu", &["c"], &["y"], &[("alpha", Float(0.3))]);
        assert_eq!(joined(author), ["Conv, LeakyRelu(0.3)"]);
    }

    #[test]
    fn nothing_is_joined_behind_an_activation() {
        let begin = || convolution().output("y", &[FREE, 2, 4, 4]).node("Relu", &["c"], &["r"], &[]);
        assert_eq!(joined(begin().node("Add", &["x", "r"], &["y"], &[])), ["Conv, Relu", "Add"], "a residual");
        assert_eq!(joined(begin().node("Sigmoid", &["r"], &["y"], &[])), ["Conv, Relu", "Sigmoid"]);
        let twice = begin().node("Add", &["x", "r"], &["a"], &[]).node("Relu", &["a"], &["y"], &[]);
        assert_eq!(joined(twice), ["Conv, Relu", "Add", "Relu"]);
    }

    /// y = relu(conv(x)) + x is not relu(conv(x) + x): an earlier version took the sum in before the activation.
    #[test]
    fn a_residual_behind_an_activation_is_added_to_it() {
        let author = Author::new(17).input("x", &[FREE, 1, 1, 2]).output("y", &[FREE, 1, 1, 2]);
        let author = author.floats("w", &[1, 1, 1, 1], &[-1.0]).node("Conv", &["x", "w"], &["c"], &[]);
        let author = author.node("Relu", &["c"], &["r"], &[]).node("Add", &["r", "x"], &["y"], &[]);
        let answer = author.answer(vec![TensorData::new(vec![3.0f32, -2.0], [1, 1, 1, 2])]).expect("it runs");
        assert_eq!(answer[0].try_to_vec::<f32>().expect("floats"), [3.0, 0.0]);
    }

    #[test]
    fn an_activation_of_an_activation_is_done_last() {
        let author = Author::new(17).input("x", &[FREE, 1]).output("y", &[FREE, 1]).floats("w", &[1, 1], &[1.0]);
        let author = author.node("MatMul", &["x", "w"], &["m"], &[]).node("Relu", &["m"], &["r"], &[]);
        let author = author.node("Sigmoid", &["r"], &["y"], &[]);
        let answer = author.answer(vec![TensorData::new(vec![-5.0f32], [1, 1])]).expect("it runs");
        assert_eq!(answer[0].try_to_vec::<f32>().expect("floats"), [0.5]);
    }

    #[test]
    fn rules_can_be_left_out() {
        let file = convolution().output("y", &[FREE, 2, 4, 4]).node("Relu", &["c"], &["y"], &[]);
        let mut graph = file.clone().body();
        assert_eq!(fuse(&mut graph, &[Rule::Gelu]).len(), 2);
        Graph::load_joined_by(&file.finish(), &[]).expect("it compiles");
    }

    #[test]
    fn an_attribute_that_is_not_known_joins_nothing() {
        let author = convolution().output("y", &[FREE, 2, 4, 4]);
        assert_eq!(joined(author.node("Relu", &["c"], &["y"], &[("axis", Int(1))])), ["Conv", "Relu"]);
    }

    #[test]
    fn a_file_cannot_name_what_is_joined() {
        let author = convolution().output("y", &[FREE, 2, 4, 4]);
        let text = Attribute::Text("Relu");
        let foreign = author.clone().node("Conv", &["x", "w"], &["y"], &[("uncork.activation", text)]);
        let error = foreign.answer(Vec::new()).expect_err("refused");
        assert!(error.contains("attribute 'uncork.activation' is not known"), "{error}");
        let foreign = author.node("Gelu", &["c"], &["y"], &[]).of("uncork");
        let error = foreign.answer(Vec::new()).expect_err("refused");
        assert!(error.contains("operator 'uncork::Gelu'"), "{error}");
    }
}
