//! A convolution or product of numbers that stand for small integers, into such numbers, becomes one of the integers: exporters write
//! each layer of a quantised network between `DequantizeLinear` and `QuantizeLinear`.

use super::net::Net;
use super::node::Node;
use crate::proto::{FLOAT, NodeProto, TensorProto};

/// `onnx.TensorProto.DataType`.
const UINT8: i32 = 2;
const INT8: i32 = 3;
const INT32: i32 = 6;

/// Largest difference of a bias's scale to the product of those of pixels and weights, as a part of it: onnxruntime rounds it.
const CLOSE: f32 = 1e-4;

/// Joins each convolution and product with the conversions around it.
pub(super) fn join(net: &mut Net<'_>) {
    for at in net.places() {
        if let Some((nodes, file)) = convolution(net, at).or_else(|| product(net, at)) {
            net.join(&nodes, Node::plain(file));
        }
    }
}

/// The convolution of integers that the node and its neighbours are, and which they are.
fn convolution(net: &Net<'_>, at: usize) -> Option<(Vec<usize>, NodeProto)> {
    let known = ["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"];
    let conv = net.node(at).filter(|node| node.is("Conv", &known))?;
    let [x, weight, bias @ ..] = &conv.file.input[..] else { return None };
    let mut nodes = vec![at];
    let mut reader = net.only_reader(at)?;
    let is_bent = net.node(reader)?.is("Relu", &[]);
    if is_bent {
        nodes.push(reader);
        reader = net.only_reader(reader)?;
    }
    nodes.push(reader);
    let after = net.node(reader).filter(|node| node.is("QuantizeLinear", &["axis"]))?;
    let [_, y_scale, y_zero] = &after.file.input[..] else { return None };
    scale(net, y_scale, 1)?;
    let y_zero_point = zero(net, y_zero, 1)?;
    // Numbers below zero become the least integer where that stands for zero.
    let least = [(UINT8, 0), (INT8, i32::from(i8::MIN))];
    if is_bent && !least.contains(&y_zero_point) {
        return None;
    }
    let mut take = |name: &str| dequantized(net, name, at, &mut nodes);
    let x = take(x)?;
    let [pixels, x_scale, x_zero] = &x.input[..] else { return None };
    let pixel = scale(net, x_scale, 1)?;
    zero(net, x_zero, 1)?;
    let weight = take(weight)?;
    let [integers, weight_scale, weight_zero] = &weight.input[..] else { return None };
    let integer =
        net.weight(integers).filter(|w| [UINT8, INT8].contains(&w.data_type) && [3, 4].contains(&w.dims.len()))?;
    let channels = usize::try_from(*integer.dims.first()?).ok()?;
    let weights = scale(net, weight_scale, channels)?;
    zero(net, weight_zero, channels)?;
    if weights.len() > 1 && weight.attribute.iter().find(|a| a.name == "axis").map_or(1, |a| a.i) != 0 {
        return None;
    }
    let mut input: Vec<String> =
        [pixels, x_scale, x_zero, integers, weight_scale, weight_zero, y_scale, y_zero].map(Clone::clone).into();
    if let Some(bias) = bias.first().filter(|name| !name.is_empty()) {
        let bias = take(bias)?;
        let (whole, by) = (bias.input.first()?, scale(net, bias.input.get(1)?, channels)?);
        net.weight(whole).filter(|bias| bias.data_type == INT32 && bias.dims == [channels as i64])?;
        let is_zero =
            |name: &String| name.is_empty() || net.numbers(name).is_some_and(|zeros| zeros.iter().all(|z| *z == 0.0));
        let of = |scales: &[f32], i: usize| scales[if scales.len() == 1 { 0 } else { i }];
        let fits = |i: usize| {
            let product = pixel[0] * of(&weights, i);
            (of(&by, i) - product).abs() <= CLOSE * product.abs()
        };
        if !bias.input.get(2).is_none_or(is_zero) || !(0..channels).all(fits) {
            return None;
        }
        input.push(whole.clone());
    }
    let (op_type, output) = ("QLinearConv".to_owned(), after.file.output.clone());
    Some((nodes, NodeProto { input, output, op_type, ..conv.file.clone() }))
}

/// The product of integers that the node and its neighbours are, and which they are.
fn product(net: &Net<'_>, at: usize) -> Option<(Vec<usize>, NodeProto)> {
    let matmul = net.node(at).filter(|node| node.is("MatMul", &[]))?;
    let [a, weight] = &matmul.file.input[..] else { return None };
    let reader = net.only_reader(at)?;
    let after = net.node(reader).filter(|node| node.is("QuantizeLinear", &["axis"]))?;
    let [_, y_scale, y_zero] = &after.file.input[..] else { return None };
    let mut nodes = vec![at, reader];
    let mut take = |name: &str| dequantized(net, name, at, &mut nodes);
    let (a, weight) = (take(a)?, take(weight)?);
    let ([rows, a_scale, a_zero], [integers, by, zeros]) = (&a.input[..], &weight.input[..]) else { return None };
    let matrix = net.weight(integers).filter(|w| [UINT8, INT8].contains(&w.data_type) && w.dims.len() == 2)?;
    let columns = usize::try_from(matrix.dims[1]).ok()?;
    let axis = weight.attribute.iter().find(|a| a.name == "axis").map_or(1, |a| a.i);
    if scale(net, by, columns)?.len() > 1 && ![1, -1].contains(&axis) {
        return None;
    }
    zero(net, zeros, columns)?;
    for (one, points) in [(a_scale, a_zero), (y_scale, y_zero)] {
        scale(net, one, 1)?;
        zero(net, points, 1)?;
    }
    let input = [rows, a_scale, a_zero, integers, by, zeros, y_scale, y_zero].map(Clone::clone).into();
    let (op_type, output) = ("QLinearMatMul".to_owned(), after.file.output.clone());
    Some((nodes, NodeProto { input, output, op_type, ..matmul.file.clone() }))
}

/// The node that makes `name` out of integers. It goes into `nodes` if only the one at `at` reads it.
fn dequantized<'n>(net: &'n Net<'_>, name: &str, at: usize, nodes: &mut Vec<usize>) -> Option<&'n NodeProto> {
    let maker = net.maker(name)?;
    let node = net.node(maker).filter(|node| node.is("DequantizeLinear", &["axis"]))?;
    if net.only_reader(maker) == Some(at) {
        nodes.push(maker);
    }
    Some(&node.file)
}

/// Constant scales: one, or as many as may be.
fn scale(net: &Net<'_>, name: &str, most: usize) -> Option<Vec<f32>> {
    net.weight(name).filter(|tensor| tensor.data_type == FLOAT && holds(tensor, most))?;
    net.numbers(name)
}

/// Constant zero points of eight bits, one or as many as may be: their type and the first.
fn zero(net: &Net<'_>, name: &str, most: usize) -> Option<(i32, i32)> {
    let tensor = net.weight(name).filter(|tensor| [UINT8, INT8].contains(&tensor.data_type) && holds(tensor, most))?;
    Some((tensor.data_type, *net.numbers(name)?.first()? as i32))
}

/// Whether a tensor is a single number, or a vector of this length.
fn holds(tensor: &TensorProto, most: usize) -> bool {
    match tensor.dims[..] {
        [] => true,
        [count] => count == 1 || usize::try_from(count) == Ok(most),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use super::super::{Rule, fuse};
    use super::*;
    use crate::Graph;
    use crate::author::Attribute::Int;
    use crate::author::{Author, FREE};

    /// relu(conv(x)), with the zero point of the result and the scale of the bias.
    fn layer(y_zero: u8, bias_scale: f32) -> Author {
        let author = Author::new(13).input_of(UINT8, "x", &[FREE, 1, 1, 3]).output_of(UINT8, "y", &[FREE, 2, 1, 3]);
        let author = author.floats("xs", &[], &[0.5]).weight_of(UINT8, "xz", &[], &[10]);
        let author = author.weight_of(INT8, "w", &[2, 1, 1, 1], &[5, 0xff]).weight_of(INT8, "wz", &[2], &[0, 0]);
        let author = author.floats("ws", &[2], &[0.25, 2.0]).floats("bs", &[2], &[bias_scale, 1.0]);
        let bias: Vec<u8> = [8i32, -3].iter().flat_map(|b| b.to_le_bytes()).collect();
        let author = author.weight_of(INT32, "b", &[2], &bias).weight_of(INT32, "bz", &[2], &[0; 8]);
        let author = author.floats("ys", &[], &[1.5]).weight_of(UINT8, "yz", &[], &[y_zero]);
        let author = author.node("DequantizeLinear", &["x", "xs", "xz"], &["xf"], &[]);
        let author = author.node("DequantizeLinear", &["w", "ws", "wz"], &["wf"], &[("axis", Int(0))]);
        let author = author.node("DequantizeLinear", &["b", "bs", "bz"], &["bf"], &[("axis", Int(0))]);
        let author = author.node("Conv", &["xf", "wf", "bf"], &["c"], &[]).node("Relu", &["c"], &["r"], &[]);
        author.node("QuantizeLinear", &["r", "ys", "yz"], &["y"], &[])
    }

    fn operators(author: Author) -> Vec<String> {
        fuse(&mut author.body(), &Rule::ALL).iter().map(|node| node.file.op_type.clone()).collect()
    }

    #[test]
    fn a_convolution_between_conversions_is_one_of_integers() {
        assert_eq!(operators(layer(0, 0.125)), ["QLinearConv"]);
        let x = || vec![TensorData::new(vec![10u8, 14, 0], [1, 1, 1, 3])];
        // Reals: x = [0, 2, -5], w = [1.25, -2], b = [1, -3]; sums [1, 3.5, -5.25] and [-3, -7, 7].
        let expected = [TensorData::new(vec![1u8, 2, 0, 0, 0, 5], [1, 2, 1, 3])];
        assert_eq!(layer(0, 0.125).answer(x()).unwrap(), expected);
        let plain = Graph::load_joined_by(&layer(0, 0.125).finish(), &[]).unwrap();
        assert_eq!(plain.run(x()).unwrap(), expected, "as the nodes of the file have it");
    }

    #[test]
    fn a_product_between_conversions_is_one_of_integers() {
        let author = |axis: i64| {
            let author = Author::new(13).input_of(UINT8, "x", &[FREE, 2]).output_of(UINT8, "y", &[FREE, 2]);
            let author = author.floats("xs", &[], &[0.5]).weight_of(UINT8, "xz", &[], &[2]);
            let author = author.weight_of(INT8, "w", &[2, 2], &[1, 0xff, 3, 4]).weight_of(INT8, "wz", &[2], &[0, 1]);
            let author = author.floats("ws", &[2], &[1.0, 2.0]).floats("ys", &[], &[2.0]);
            let author = author.weight_of(UINT8, "yz", &[], &[4]);
            let author = author.node("DequantizeLinear", &["x", "xs", "xz"], &["xf"], &[]);
            let author = author.node("DequantizeLinear", &["w", "ws", "wz"], &["wf"], &[("axis", Int(axis))]);
            let author = author.node("MatMul", &["xf", "wf"], &["m"], &[]);
            author.node("QuantizeLinear", &["m", "ys", "yz"], &["y"], &[])
        };
        assert_eq!(operators(author(1)), ["QLinearMatMul"]);
        assert_eq!(operators(author(0)).len(), 4, "a scale for each row");
        let x = || vec![TensorData::from([[4u8, 0], [2, 250]])];
        let expected = [TensorData::from([[3u8, 0], [190, 255]])];
        assert_eq!(author(1).answer(x()).unwrap(), expected);
        let plain = Graph::load_joined_by(&author(1).finish(), &[]).unwrap();
        assert_eq!(plain.run(x()).unwrap(), expected, "as the nodes of the file have it");
    }

    #[test]
    fn what_would_be_another_answer_stays_as_it_is() {
        assert_eq!(operators(layer(7, 0.125)).len(), 6, "the least integer does not stand for zero");
        assert_eq!(operators(layer(0, 0.25)).len(), 6, "the bias is counted in other steps");
        let shown = layer(0, 0.125).output("r", &[FREE, 2, 1, 3]);
        assert_eq!(operators(shown).len(), 6, "somebody reads the floats");
    }
}
