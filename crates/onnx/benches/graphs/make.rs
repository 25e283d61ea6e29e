//! Makes a graph from a seed: of the operators that joining touches or could touch, in the ways that exporters write them
//! and in some that nobody does.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::file::{Attribute, Graph, Node, Numbers, Weight};

/// Most numbers that a row of a value has.
const WIDEST: usize = 2048;

/// The graph of a seed.
pub(super) fn graph(seed: u64) -> Graph {
    let mut maker = Maker { dice: StdRng::seed_from_u64(seed), graph: Graph::default(), values: Vec::new(), names: 0 };
    maker.graph.opset = [11, 13, 17, 20][maker.below(4)];
    for _ in 0..1 + maker.below(2) {
        let dims = match maker.below(4) {
            0 => vec![3 + maker.below(6)],
            1 => vec![2 + maker.below(4), 4 + maker.below(9)],
            _ => vec![2 * (1 + maker.below(3)), 4 + maker.below(5), 4 + maker.below(5)],
        };
        let name = maker.value(dims, false);
        maker.graph.inputs.push(name);
    }
    let nodes = 5 + maker.below(36);
    while maker.graph.nodes.len() < nodes {
        maker.grow();
    }
    maker.finish()
}

struct Maker {
    dice: StdRng,
    graph: Graph,
    /// What can be read, oldest first.
    values: Vec<Value>,
    names: usize,
}

#[derive(Clone)]
struct Value {
    name: String,
    dims: Vec<usize>,
    /// Whether its numbers are small, so that a product with it is no larger than the other factor.
    is_small: bool,
}

impl Maker {
    fn below(&mut self, n: usize) -> usize {
        self.dice.random_range(0..n)
    }

    fn is(&mut self, per_cent: usize) -> bool {
        self.below(100) < per_cent
    }

    fn name(&mut self, kind: &str) -> String {
        self.names += 1;
        format!("{kind}{}", self.names)
    }

    /// A new value that rows have.
    fn value(&mut self, dims: Vec<usize>, is_small: bool) -> String {
        let name = self.name("v");
        self.graph.dims.insert(name.clone(), dims.clone());
        self.values.push(Value { name: name.clone(), dims, is_small });
        name
    }

    /// A value to read: mostly a late one, so that chains grow.
    fn pick(&mut self) -> Value {
        let last = self.values.len();
        let late = self.is(75);
        let from = if late { last.saturating_sub(3) } else { 0 };
        let at = self.dice.random_range(from..last);
        self.values[at].clone()
    }

    /// Another value of these dimensions, if there is one.
    fn like(&mut self, dims: &[usize], not: &str) -> Option<Value> {
        let found: Vec<Value> = self.values.iter().filter(|v| v.dims == dims && v.name != not).cloned().collect();
        if found.is_empty() {
            return None;
        }
        let at = self.below(found.len());
        Some(found[at].clone())
    }

    /// A constant: an initializer, or where `odd` and chance want it the output of a node.
    fn floats(&mut self, dims: &[usize], low: f32, high: f32, odd: bool) -> String {
        let data = (0..dims.iter().product()).map(|_| self.dice.random_range(low..high)).collect();
        self.constant(dims, Numbers::Floats(data), odd)
    }

    fn constant(&mut self, dims: &[usize], data: Numbers, odd: bool) -> String {
        let name = self.name("w");
        let weight = Weight { name: name.clone(), dims: dims.to_vec(), data };
        let chance = if odd { 20 } else { 0 };
        if !self.is(chance) {
            self.graph.weights.push(weight);
            return name;
        }
        let value = Attribute::Tensor(weight);
        self.push("Constant", &[], vec![name.clone()], vec![("value", value)]);
        if !self.is(30) {
            return name;
        }
        let copy = self.name("w");
        self.push("Identity", &[&name], vec![copy.clone()], vec![]);
        copy
    }

    fn number(&mut self, x: f32) -> String {
        let dims: &[usize] = if self.is(70) { &[] } else { &[1] };
        self.constant(dims, Numbers::Floats(vec![x]), true)
    }

    fn push(
        &mut self,
        operator: &'static str,
        inputs: &[&str],
        outputs: Vec<String>,
        attributes: Vec<(&'static str, Attribute)>,
    ) {
        let inputs = inputs.iter().map(|name| (*name).to_owned()).collect();
        self.graph.nodes.push(Node { operator, domain: "", inputs, outputs, attributes });
    }

    /// A node with one output of these dimensions.
    fn node(
        &mut self,
        operator: &'static str,
        inputs: &[&str],
        dims: &[usize],
        attributes: Vec<(&'static str, Attribute)>,
    ) -> String {
        let is_small = matches!(operator, "Tanh" | "Sigmoid" | "Softmax" | "Clip" | "HardSigmoid");
        let output = self.value(dims.to_vec(), is_small);
        self.push(operator, inputs, vec![output.clone()], attributes);
        output
    }

    /// Two arguments in either order: adding and multiplying do not care.
    fn either(&mut self, operator: &'static str, a: &str, b: &str, dims: &[usize]) -> String {
        let inputs = if self.is(50) { [a, b] } else { [b, a] };
        self.node(operator, &inputs, dims, vec![])
    }

    /// Adds one or several nodes.
    fn grow(&mut self) {
        let x = self.pick();
        match (self.below(20), x.dims.len()) {
            (0..4, 3) => _ = self.convolution(&x),
            (0..3, 2) => _ = self.convolution(&x),
            (0..4, 1) | (3, 2) => _ = self.product(&x),
            (4, 2 | 3) | (5, 1) => _ = self.normalization(&x),
            (4..6, _) => self.block(&x),
            (6..10, _) => _ = self.activation(&x),
            (10..13, _) => self.sum(&x),
            (13, _) => self.times(&x),
            (14, _) => self.layer_normalization(&x),
            (15, 3) => self.pool(&x),
            (15 | 16, _) => self.form(&x),
            (17, _) => self.join(&x),
            (18, 2) => _ = self.product(&x),
            (18, _) => self.constant_term(&x),
            _ => self.oddity(&x),
        }
    }

    /// What networks are built of: a convolution or product, perhaps normalised, an activation, and the sum with what came
    /// in, before or behind the activation.
    fn block(&mut self, x: &Value) {
        let (mut y, dims) = if x.dims.len() == 1 || (x.dims.len() == 2 && self.is(40)) {
            let Some(made) = self.product_of(x, *x.dims.last().unwrap_or(&1)) else { return };
            made
        } else {
            let Some(made) = self.convolution_of(x, x.dims[0], true) else { return };
            made
        };
        if dims.len() > 1 && self.is(40) {
            y = self.normalized(&y, &dims);
        }
        let order = self.below(5);
        if order != 0 {
            y = self.activated(&y, &dims);
        }
        if dims == x.dims {
            y = self.either("Add", &x.name, &y, &dims);
        }
        if order.is_multiple_of(2) {
            y = self.activated(&y, &dims);
        }
        if order == 4 {
            self.activated(&y, &dims);
        }
    }

    fn convolution(&mut self, x: &Value) -> Option<String> {
        let channels = [x.dims[0], 1, 2, 3, 4, 6][self.below(6)];
        let same = self.is(60);
        self.convolution_of(x, channels, same).map(|(name, _)| name)
    }

    /// A convolution of lines or images to so many channels; of the `same` size or of another.
    fn convolution_of(&mut self, x: &Value, channels: usize, same: bool) -> Option<(String, Vec<usize>)> {
        let (inputs, space) = x.dims.split_first()?;
        let groups = match self.below(4) {
            0 if channels.is_multiple_of(*inputs) => *inputs,
            1 if inputs % 2 == 0 && channels.is_multiple_of(2) => 2,
            _ => 1,
        };
        let kernel: Vec<usize> = space.iter().map(|_| [1, 3, 3, 5, 2][self.below(if same { 4 } else { 5 })]).collect();
        let dilation = if self.is(15) { 2 } else { 1 };
        let stride = if same || self.is(60) { 1 } else { 2 };
        let reach: Vec<usize> = kernel.iter().map(|k| (k - 1) * dilation).collect();
        let pads: Vec<usize> = reach.iter().map(|r| if same { r / 2 } else { self.below(r / 2 + 1) }).collect();
        let mut dims = vec![channels];
        for ((d, r), p) in space.iter().zip(&reach).zip(&pads) {
            dims.push((d + 2 * p).checked_sub(*r).filter(|n| *n > 0)?.div_ceil(stride));
        }
        let shape = [&[channels, inputs / groups][..], &kernel].concat();
        let spread = 1.5 / ((shape[1..].iter().product::<usize>()) as f32).sqrt();
        let weights = self.floats(&shape, -spread, spread, true);
        let mut arguments = vec![x.name.clone(), weights];
        if self.is(60) {
            arguments.push(self.floats(&[channels], -1.0, 1.0, true));
        }
        let ints = |v: &[usize]| Attribute::Ints(v.iter().map(|&n| n as i64).collect());
        let mut attributes = vec![("pads", ints(&[&pads[..], &pads].concat()))];
        if groups > 1 || self.is(30) {
            attributes.push(("group", Attribute::Int(groups as i64)));
        }
        if stride > 1 || self.is(30) {
            attributes.push(("strides", ints(&vec![stride; space.len()])));
        }
        if dilation > 1 {
            attributes.push(("dilations", ints(&vec![dilation; space.len()])));
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Some((self.node("Conv", &arguments, &dims, attributes), dims))
    }

    fn normalization(&mut self, x: &Value) -> Option<String> {
        (x.dims.len() > 1).then(|| self.normalized(&x.name, &x.dims))
    }

    fn normalized(&mut self, x: &str, dims: &[usize]) -> String {
        let channels = [dims[0]];
        let scale = self.floats(&channels, 0.5, 1.5, true);
        let shift = self.floats(&channels, -0.5, 0.5, true);
        let mean = self.floats(&channels, -0.5, 0.5, true);
        let variance = self.floats(&channels, 0.3, 2.0, true);
        let epsilon = if self.is(50) { vec![("epsilon", Attribute::Float(1e-2))] } else { vec![] };
        self.node("BatchNormalization", &[x, &scale, &shift, &mean, &variance], dims, epsilon)
    }

    fn product(&mut self, x: &Value) -> Option<String> {
        let columns = 1 + self.below(12);
        self.product_of(x, columns).map(|(name, _)| name)
    }

    /// A product with a matrix, with or without a bias.
    fn product_of(&mut self, x: &Value, columns: usize) -> Option<(String, Vec<usize>)> {
        let (width, front) = x.dims.split_last()?;
        let dims = [front, &[columns]].concat();
        let spread = 1.5 / (*width as f32).sqrt();
        if front.is_empty() && self.is(50) {
            let turned = self.is(50);
            let shape = if turned { [columns, *width] } else { [*width, columns] };
            let weights = self.floats(&shape, -spread, spread, true);
            let mut arguments = vec![x.name.clone(), weights];
            let bias = [vec![columns], vec![1, columns], vec![1], vec![]][self.below(4)].clone();
            if self.is(70) {
                arguments.push(self.floats(&bias, -1.0, 1.0, true));
            }
            let mut attributes = vec![("transB", Attribute::Int(turned.into()))];
            if self.is(15) {
                attributes.push(("alpha", Attribute::Float(0.5)));
            }
            if self.is(15) {
                attributes.push(("beta", Attribute::Float(2.0)));
            }
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            return Some((self.node("Gemm", &arguments, &dims, attributes), dims));
        }
        let weights = self.floats(&[*width, columns], -spread, spread, true);
        let mut y = self.node("MatMul", &[&x.name, &weights], &dims, vec![]);
        if self.is(60) {
            let bias = [vec![columns], vec![columns], vec![1], vec![1, columns], vec![]][self.below(5)].clone();
            let bias = self.floats(&bias, -1.0, 1.0, true);
            y = self.either("Add", &y, &bias, &dims);
        }
        Some((y, dims))
    }

    fn activation(&mut self, x: &Value) -> String {
        let (name, dims) = (x.name.clone(), x.dims.clone());
        self.activated(&name, &dims)
    }

    fn activated(&mut self, x: &str, dims: &[usize]) -> String {
        let opset = self.graph.opset;
        match self.below(14) {
            0 | 1 => self.node("Relu", &[x], dims, vec![]),
            2 => {
                let (low, high) = (self.number(-0.4), self.number(0.7));
                // A bound that is left out is none.
                let (low, high) = (if self.is(30) { "" } else { &*low }, if self.is(30) { "" } else { &*high });
                let inputs: &[&str] = if high.is_empty() && self.is(50) { &[x, low] } else { &[x, low, high] };
                let bounded = !low.is_empty() && !high.is_empty();
                let y = self.node("Clip", inputs, dims, vec![]);
                if let Some(value) = self.values.last_mut() {
                    value.is_small = bounded;
                }
                y
            }
            3 => {
                let slope = if self.is(70) { vec![("alpha", Attribute::Float(0.2))] } else { vec![] };
                self.node("LeakyRelu", &[x], dims, slope)
            }
            4 | 5 => self.gelu(x, dims),
            6 if opset >= 20 => {
                let kind = [Attribute::Text("none"), Attribute::Text("tanh")][self.below(2)].clone();
                let kind = if self.is(50) { vec![("approximate", kind)] } else { vec![] };
                self.node("Gelu", &[x], dims, kind)
            }
            7 | 8 => {
                let sigmoid = self.node("Sigmoid", &[x], dims, vec![]);
                self.either("Mul", x, &sigmoid, dims)
            }
            9 => self.node("Tanh", &[x], dims, vec![]),
            10 => self.node("Sigmoid", &[x], dims, vec![]),
            11 if opset >= 14 => self.node("HardSwish", &[x], dims, vec![]),
            13 => self.hard_swish(x, dims),
            12 => {
                let operator = ["Elu", "Softplus", "HardSigmoid", "Selu", "Abs", "Neg"][self.below(6)];
                self.node(operator, &[x], dims, vec![])
            }
            _ => self.node("Relu", &[x], dims, vec![]),
        }
    }

    /// GELU written out, or nearly: with the half and the root where exporters put them.
    fn gelu(&mut self, x: &str, dims: &[usize]) -> String {
        let scaled = if self.is(50) {
            let root = self.number(std::f32::consts::SQRT_2);
            self.node("Div", &[x, &root], dims, vec![])
        } else {
            let root = self.number(std::f32::consts::FRAC_1_SQRT_2);
            self.either("Mul", x, &root, dims)
        };
        let erf = self.node("Erf", &[&scaled], dims, vec![]);
        let half = if self.is(90) { 0.5 } else { 0.4 };
        let (one, half) = (self.number(1.0), self.number(half));
        let sum = self.either("Add", &erf, &one, dims);
        match self.below(3) {
            0 => {
                let product = self.either("Mul", x, &sum, dims);
                self.either("Mul", &product, &half, dims)
            }
            1 => {
                let halved = self.either("Mul", x, &half, dims);
                self.either("Mul", &halved, &sum, dims)
            }
            _ => {
                let halved = self.either("Mul", &sum, &half, dims);
                self.either("Mul", x, &halved, dims)
            }
        }
    }

    /// A hard swish written out, or nearly.
    fn hard_swish(&mut self, x: &str, dims: &[usize]) -> String {
        let six = if self.is(90) { 6.0 } else { 5.0 };
        let (three, none, most, six) = (self.number(3.0), self.number(0.0), self.number(six), self.number(6.0));
        let sum = self.either("Add", x, &three, dims);
        let bent = self.node("Clip", &[&sum, &none, &most], dims, vec![]);
        if self.is(50) {
            let product = self.either("Mul", x, &bent, dims);
            return self.node("Div", &[&product, &six], dims, vec![]);
        }
        let sixth = self.number(1.0 / 6.0);
        let line = self.either("Mul", &bent, &sixth, dims);
        self.either("Mul", x, &line, dims)
    }

    /// The sum or difference of two values: of the same dimensions, or of some that broadcast.
    fn sum(&mut self, x: &Value) {
        let wide = |v: &&Value| {
            v.dims.len() == x.dims.len()
                && v.dims.iter().zip(&x.dims).all(|(a, b)| a == b || *a == 1 || *b == 1)
                && v.dims.iter().zip(&x.dims).map(|(a, b)| a.max(b)).product::<usize>() <= WIDEST
        };
        let others: Vec<Value> = self.values.iter().filter(wide).cloned().collect();
        let at = self.below(others.len());
        let other = others[at].clone();
        let dims: Vec<usize> = x.dims.iter().zip(&other.dims).map(|(a, b)| *a.max(b)).collect();
        let y = if self.is(80) {
            self.either("Add", &x.name, &other.name, &dims)
        } else {
            self.node("Sub", &[&x.name, &other.name], &dims, vec![])
        };
        if self.is(40) {
            self.activated(&y, &dims);
        }
    }

    /// A product of two values, one of them small, so that forty nodes do not end in infinity.
    fn times(&mut self, x: &Value) {
        let other = self.like(&x.dims, "").filter(|other| other.is_small || x.is_small);
        match other {
            Some(other) => _ = self.either("Mul", &x.name, &other.name, &x.dims),
            None => {
                let gate = self.node("Sigmoid", &[&x.name], &x.dims, vec![]);
                self.either("Mul", &x.name, &gate, &x.dims);
            }
        }
    }

    /// A layer normalisation, mostly written out, over the last axis or, to be told apart, over another.
    fn layer_normalization(&mut self, x: &Value) {
        let Some((&width, front)) = x.dims.split_last() else { return };
        let wide = if self.is(85) { vec![width] } else { vec![1] };
        let (scale, shift) = (self.floats(&wide, 0.5, 1.5, true), self.floats(&wide, -0.5, 0.5, true));
        if self.graph.opset >= 17 && self.is(30) && wide == [width] {
            self.node("LayerNormalization", &[&x.name, &scale, &shift], &x.dims, vec![("axis", Attribute::Int(-1))]);
            return;
        }
        let last = x.dims.len() as i64;
        let axis = if front.is_empty() || self.is(85) { [-1, last][self.below(2)] } else { 1 };
        let mut one = x.dims.clone();
        one[if axis == 1 && last > 1 { 0 } else { front.len() }] = 1;
        let keep = || vec![("keepdims", Attribute::Int(1))];
        let name = x.name.clone();
        let mean = |maker: &mut Maker, x: &str| {
            if maker.graph.opset >= 18 {
                let axes = maker.constant(&[1], Numbers::Ints(vec![axis]), false);
                maker.node("ReduceMean", &[x, &axes], &one, keep())
            } else {
                maker.node("ReduceMean", &[x], &one, [vec![("axes", Attribute::Ints(vec![axis]))], keep()].concat())
            }
        };
        let middle = mean(self, &name);
        let centred = self.node("Sub", &[&name, &middle], &x.dims, vec![]);
        let square = if self.is(70) {
            let two = self.number(2.0);
            self.node("Pow", &[&centred, &two], &x.dims, vec![])
        } else {
            self.node("Mul", &[&centred, &centred], &x.dims, vec![])
        };
        let variance = mean(self, &square);
        let epsilon = self.number(1e-2);
        let raised = self.either("Add", &variance, &epsilon, &one);
        let root = self.node("Sqrt", &[&raised], &one, vec![]);
        let normal = self.node("Div", &[&centred, &root], &x.dims, vec![]);
        let scaled = self.either("Mul", &normal, &scale, &x.dims);
        self.either("Add", &scaled, &shift, &x.dims);
    }

    fn pool(&mut self, x: &Value) {
        let (channels, space) = (x.dims[0], &x.dims[1..]);
        if space.iter().any(|&d| d < 2) || self.is(30) {
            self.node("GlobalAveragePool", &[&x.name], &[channels, 1, 1], vec![]);
            return;
        }
        let operator = ["MaxPool", "AveragePool"][self.below(2)];
        let stride = 1 + self.below(2);
        let dims: Vec<usize> = std::iter::once(channels).chain(space.iter().map(|d| (d - 2) / stride + 1)).collect();
        let ints = |n: usize| Attribute::Ints(vec![n as i64; 2]);
        self.node(operator, &[&x.name], &dims, vec![("kernel_shape", ints(2)), ("strides", ints(stride))]);
    }

    /// The same numbers in another form.
    fn form(&mut self, x: &Value) {
        let all: usize = x.dims.iter().product();
        let ints = |v: &[usize]| Attribute::Ints(v.iter().map(|&n| n as i64).collect());
        match (x.dims.len(), self.below(4)) {
            (3, 0) => {
                _ = self.node(
                    "Transpose",
                    &[&x.name],
                    &[x.dims[1], x.dims[2], x.dims[0]],
                    vec![("perm", ints(&[0, 2, 3, 1]))],
                );
            }
            (2, 0) => _ = self.node("Transpose", &[&x.name], &[x.dims[1], x.dims[0]], vec![("perm", ints(&[0, 2, 1]))]),
            (3, 1) => self.reshape(x, &[x.dims[0], x.dims[1] * x.dims[2]]),
            (1, 1) => self.reshape(x, &[1, all]),
            (2, 1) => self.reshape(x, &[x.dims[0], 1, x.dims[1]]),
            (_, 2) if all <= 256 => self.reshape(x, &[all]),
            (2 | 3, 3) if all <= 256 => _ = self.node("Flatten", &[&x.name], &[all], vec![]),
            _ => {
                let axis = [1, -1][self.below(2)];
                // Over one axis in new opsets, over all behind it in old ones: the last one is both.
                let axis = if self.graph.opset < 13 { -1 } else { axis };
                self.node("Softmax", &[&x.name], &x.dims, vec![("axis", Attribute::Int(axis))]);
            }
        }
    }

    fn reshape(&mut self, x: &Value, dims: &[usize]) {
        let shape = std::iter::once(0).chain(dims.iter().map(|&d| d as i64)).collect();
        let shape = self.constant(&[dims.len() + 1], Numbers::Ints(shape), true);
        self.node("Reshape", &[&x.name, &shape], dims, vec![]);
    }

    /// Values put together or taken apart.
    fn join(&mut self, x: &Value) {
        let all: usize = x.dims.iter().product();
        if x.dims[0].is_multiple_of(2) && self.is(50) {
            let half = [&[x.dims[0] / 2][..], &x.dims[1..]].concat();
            let outputs = vec![self.value(half.clone(), x.is_small), self.value(half, x.is_small)];
            let mut inputs = vec![x.name.clone()];
            let mut attributes = vec![("axis", Attribute::Int(1))];
            if self.graph.opset < 13 {
                attributes.push(("split", Attribute::Ints(vec![x.dims[0] as i64 / 2; 2])));
            } else {
                inputs.push(self.constant(&[2], Numbers::Ints(vec![x.dims[0] as i64 / 2; 2]), false));
            }
            let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
            self.push("Split", &inputs, outputs, attributes);
        } else if all * 2 <= WIDEST {
            let other = self.like(&x.dims, "").unwrap_or_else(|| x.clone());
            let dims = [&[x.dims[0] * 2][..], &x.dims[1..]].concat();
            self.node("Concat", &[&x.name, &other.name], &dims, vec![("axis", Attribute::Int(1))]);
        }
    }

    /// The sum or product with a constant: one number, one for each channel or column, or one for each.
    fn constant_term(&mut self, x: &Value) {
        let channels: Vec<usize> = x.dims.iter().enumerate().map(|(i, &d)| if i == 0 { d } else { 1 }).collect();
        let columns = [x.dims[x.dims.len() - 1]];
        let dims = [&[][..], &[1], &columns, &channels, &x.dims][self.below(5)].to_vec();
        let term = self.floats(&dims, -1.0, 1.0, true);
        let operator = ["Add", "Mul", "Sub"][self.below(3)];
        match operator {
            "Sub" => _ = self.node("Sub", &[&x.name, &term], &x.dims, vec![]),
            _ => _ = self.either(operator, &x.name, &term, &x.dims),
        }
    }

    /// What changes nothing, and what only a foreign file has: it must be refused, or mean nothing.
    fn oddity(&mut self, x: &Value) {
        match self.below(10) {
            0..5 => _ = self.node("Identity", &[&x.name], &x.dims, vec![]),
            5..7 => _ = self.node("Dropout", &[&x.name], &x.dims, vec![]),
            7 => {
                // No weights: the second argument is computed from the rows.
                let Some(other) = self.like(&x.dims, "") else { return };
                let Some((&width, front)) = x.dims.split_last().filter(|(_, front)| front.len() == 1) else { return };
                let turned = self.node(
                    "Transpose",
                    &[&other.name],
                    &[width, front[0]],
                    vec![("perm", Attribute::Ints(vec![0, 2, 1]))],
                );
                let small = self.node("Tanh", &[&turned], &[width, front[0]], vec![]);
                let y = self.node("MatMul", &[&x.name, &small], &[front[0], front[0]], vec![]);
                self.activated(&y, &[front[0], front[0]]);
            }
            _ if self.is(90) => {}
            8 => {
                let name = ["uncork.activation", "uncork.added", "activation", "uncork.slope"][self.below(4)];
                let value = [Attribute::Text("Relu"), Attribute::Int(1), Attribute::Float(0.5)][self.below(3)].clone();
                let at = self.below(self.graph.nodes.len().max(1));
                if let Some(node) = self.graph.nodes.get_mut(at) {
                    node.attributes.push((name, value));
                }
            }
            _ => {
                let at = self.below(self.graph.nodes.len().max(1));
                if let Some(node) = self.graph.nodes.get_mut(at) {
                    node.domain = "uncork";
                }
            }
        }
    }

    /// Outputs are what nobody reads, and some of what somebody does.
    fn finish(mut self) -> Graph {
        let mut readers: BTreeMap<&str, usize> = BTreeMap::new();
        for node in &self.graph.nodes {
            node.inputs.iter().for_each(|name| *readers.entry(name).or_default() += 1);
        }
        let made: Vec<&Value> = self.values.iter().filter(|v| !self.graph.inputs.contains(&v.name)).collect();
        let chances: Vec<bool> = made.iter().map(|_| self.dice.random_range(0..100) < 5).collect();
        let outputs = made.iter().zip(chances).filter(|(v, chance)| *chance || !readers.contains_key(&*v.name));
        self.graph.outputs = outputs.map(|(v, _)| v.name.clone()).collect();
        self.graph
    }
}
