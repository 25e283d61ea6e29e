//! Convolutions of quantised networks. Where their sums are asked for they are exact; else they are computed by the kernels of float32:
//! weights are dequantised once, inputs on their way in.

use burn_backend::ops::FloatTensorOps;
use burn_backend::{DType, TensorData, TensorMetadata};
use burn_dispatch::DispatchDevice;

use super::arithmetic::on_tensors;
use super::quantize::{Grain, dequantized, quantized};
use super::window::{Form, Window};
use super::{Build, Kernel, Operator, Source, conv, conv_general, host};
use crate::fast::conv_integers::IntegerConv;
use crate::value::{Backend as B, OpError, Value, elements};

pub(super) const OPERATORS: &[Operator] =
    &[Operator::new("ConvInteger", integer), Operator::new("QLinearConv", linear)];

/// One scale for each output channel of a weight.
const BY_OUTPUT: Grain = Grain { axis: 0, block: 0 };
/// One scale for a whole tensor.
const WHOLE: Grain = Grain { axis: 1, block: 0 };

/// quantised(conv(x, w) + bias), of x, w and the result with scale and zero point each.
fn linear(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    if (1..9).any(|i| build.has(i) && build.peek(i).is_none()) {
        return computed(build);
    }
    let mut known = |i: usize| build.constant(i).ok_or_else(|| OpError(format!("argument {i} is missing")));
    let (scale, zero) = (known(1)?, known(2)?);
    let (weight, weight_scale, weight_zero) = (known(3)?, known(4)?, known(5)?);
    let (y_scale, y_zero) = (known(6)?, known(7)?);
    let bias = build.constant(8).map(|bias| real_bias(bias, &scale, &weight_scale, build.device)).transpose()?;
    let weight = dequantized(weight, weight_scale, Some(weight_zero), None, BY_OUTPUT, build.device)?;
    let inner = convolution(build, weight, bias)?;
    let to = y_zero.dtype();
    Ok(Kernel::one(move |mut args| {
        let device = args.device;
        let x = dequantized(args.take(0)?, scale.clone(), Some(zero.clone()), None, WHOLE, device)?;
        args.put(0, x);
        quantized(inner(args)?, y_scale.clone(), Some(y_zero.clone()), to, WHOLE, device)
    }))
}

/// The same with weights, scales or zero points that are computed.
fn computed(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let (form, groups) = (Form::of(build)?, conv_general::groups(build)?);
    // Arguments that are constant are passed like any other.
    Ok(Kernel::one(move |mut args| {
        let device = args.device;
        let (x, scale, zero) = (args.take(0)?, args.take(1)?, args.take(2)?);
        let (weight, weight_scale, weight_zero) = (args.take(3)?, args.take(4)?, args.take(5)?);
        let (y_scale, y_zero) = (args.take(6)?, args.take(7)?);
        let bias = args.optional(8).map(|bias| real_bias(bias, &scale, &weight_scale, device)).transpose()?;
        let x = dequantized(x, scale, Some(zero), None, WHOLE, device)?;
        let weight = dequantized(weight, weight_scale, Some(weight_zero), None, BY_OUTPUT, device)?;
        let y = conv_general::convolved(&form, groups, x, weight, bias)?;
        let to = y_zero.dtype();
        quantized(y, y_scale, Some(y_zero), to, WHOLE, device)
    }))
}

/// A bias comes in steps of the product of the scales of input and weight.
fn real_bias(bias: Value, scale: &Value, by_output: &Value, device: &DispatchDevice) -> Result<Value, OpError> {
    let bias = bias.cast(DType::F32, device)?.float()?;
    let step = on_tensors(B::float_mul, by_output.clone().float()?, scale.clone().float()?)?;
    let dims = bias.shape().to_vec();
    let bias = on_tensors(B::float_mul, bias, step)?;
    if bias.shape().to_vec() != dims {
        return Err(OpError(format!("scales of shape {:?} do not fit the bias of shape {dims:?}", by_output.shape())));
    }
    Ok(Value::Float(bias))
}

/// A convolution of integers less their zero points, whose sums are exact.
fn integer(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let small = |weight: &&Value| weight.rank() <= 4 && matches!(weight.dtype(), DType::I8 | DType::U8);
    let zeros = match build.peek(3) {
        None if build.has(3) => None,
        None => Some(vec![0]),
        Some(zeros) => Some(host::read::<i32>(zeros.clone().cast(DType::I32, build.device)?)?),
    };
    let (Some(weight), Some(zeros)) = (build.peek(1).filter(small).cloned(), zeros) else {
        return conv_general::integer(build);
    };
    let window = Window::of(build, Some(&weight.shape()))?;
    let groups = conv_general::groups(build)?;
    let shape = window.image(&weight.shape())?;
    let [outputs, _, height, width] = shape;
    if [height, width] != window.kernel {
        return Err(OpError(format!("the weight's kernel is not the declared {:?}", window.kernel)));
    }
    if !outputs.is_multiple_of(groups) {
        return Err(OpError(format!("{outputs} channels do not split into {groups} groups")));
    }
    if ![1, outputs].contains(&zeros.len()) {
        return Err(OpError(format!("{} zero points do not fit {outputs} channels", zeros.len())));
    }
    // Neither is passed again.
    (build.constant(1), build.constant(3));
    let (stride, dilation) = (window.stride, window.dilation);
    let conv = match weight.dtype() {
        DType::I8 => IntegerConv::new(&host::read::<i8>(weight)?, &zeros, groups, shape, stride, dilation),
        _ => IntegerConv::new(&host::read::<u8>(weight)?, &zeros, groups, shape, stride, dilation),
    };
    Ok(Kernel::one(move |mut args| {
        let (x, zero) = (args.take(0)?, args.optional(2));
        let dims = window.image(&x.shape())?;
        let (out, pads) = conv::geometry(&window, groups, shape, dims)?;
        let zero = match zero {
            None => 0,
            Some(zero) if zero.dtype() == x.dtype() && elements(&zero.shape())? == 1 => {
                host::read::<i32>(zero.cast(DType::I32, args.device)?)?[0]
            }
            Some(zero) => {
                let (shape, kind) = (zero.shape(), zero.dtype());
                return Err(OpError(format!("zero points of {kind:?} in the shape {shape:?} for {:?}", x.dtype())));
            }
        };
        let ([_, _, h, w], [_, _, out_h, out_w]) = (dims, out);
        let mut y = vec![0; elements(&out)?];
        match x.dtype() {
            DType::U8 => conv.run((&host::read::<u8>(x)?, zero), [h, w], pads, [out_h, out_w], &mut y),
            DType::I8 => conv.run((&host::read::<i8>(x)?, zero), [h, w], pads, [out_h, out_w], &mut y),
            other => return Err(OpError(format!("cannot convolve {other:?} with integers of eight bits"))),
        }
        Value::from_data(TensorData::new(y, window.result(out)), args.device)
    }))
}

/// The node as a convolution of float32 with this weight and bias, which are not passed to it again.
fn convolution(build: &mut Build<'_>, weight: Value, bias: Option<Value>) -> Result<super::Run<Value>, OpError> {
    let given = std::mem::take(&mut build.sources);
    let x = given.first().cloned().unwrap_or(Source::Absent);
    build.sources = vec![x, Source::Constant(weight), bias.map_or(Source::Absent, Source::Constant)];
    let kernel = conv::conv(build)?;
    build.sources = given;
    match kernel {
        Kernel::One(run) => Ok(run),
        Kernel::Many(_) => Err(OpError::new("a convolution of several outputs")),
    }
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use super::super::alone::{alone, scalar};
    use crate::author::Attribute::Int;
    use crate::author::{Author, FREE};

    const UINT8: i32 = 2;
    const INT8: i32 = 3;
    const INT32: i32 = 6;

    /// x = 0.5 (q - 10), w = [0.25 (q - 1), 2 (q + 3)], y = 1.5 (q - 7)
    fn quantised(author: Author) -> Result<Vec<TensorData>, String> {
        let author = author.floats("xs", &[], &[0.5]).weight_of(UINT8, "xz", &[], &[10]);
        let author = author.weight_of(INT8, "w", &[2, 1, 1, 1], &[5, 0xff]).weight_of(INT8, "wz", &[2], &[1, 0xfd]);
        let bias: Vec<u8> = [8i32, -3].iter().flat_map(|b| b.to_le_bytes()).collect();
        let author =
            author.floats("ys", &[], &[1.5]).weight_of(UINT8, "yz", &[], &[7]).weight_of(INT32, "b", &[2], &bias);
        let inputs = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"];
        let author = author.output_of(UINT8, "y", &[FREE, 2, 1, 3]).node("QLinearConv", &inputs, &["y"], &[]);
        author.answer(vec![TensorData::new(vec![10u8, 14, 0], [1, 1, 1, 3])])
    }

    #[test]
    fn a_quantised_convolution_is_that_of_the_numbers_that_its_integers_stand_for() {
        let author = || Author::new(17).input_of(UINT8, "x", &[FREE, 1, 1, 3]);
        let known = quantised(author().floats("ws", &[2], &[0.25, 2.0]));
        // Reals: x = [0, 2, -5], w = [1, 4], b = [1, -3]; sums [1, 3, -4] and [-3, 5, -23], by 1.5 and 7 more.
        assert_eq!(known.unwrap(), [TensorData::new(vec![8u8, 9, 4, 5, 10, 0], [1, 2, 1, 3])]);
    }

    #[test]
    fn scales_of_a_quantised_convolution_may_be_computed() {
        let author = Author::new(17).input_of(UINT8, "x", &[FREE, 1, 1, 3]).floats("n", &[2], &[-0.25, -2.0]);
        let author =
            author.node("ReduceMax", &["x"], &["most"], &[]).node("Cast", &["most"], &["m"], &[("to", Int(1))]);
        // The same scales, times something that the compiler does not know to be one.
        let author = author.node("Div", &["m", "m"], &["one"], &[]).node("Reshape", &["one", "flat"], &["o"], &[]);
        let author =
            author.ints("flat", &[1], &[1]).node("Mul", &["n", "o"], &["p"], &[]).node("Neg", &["p"], &["ws"], &[]);
        assert_eq!(quantised(author).unwrap(), [TensorData::new(vec![8u8, 9, 4, 5, 10, 0], [1, 2, 1, 3])]);
    }

    #[test]
    fn sums_of_integers_are_exact_where_float32_is_not() {
        const CHANNELS: usize = 600;
        let mut pixels = vec![255u8; CHANNELS];
        pixels[0] = 254;
        let author = Author::new(10).input_of(UINT8, "x", &[FREE, CHANNELS as i64, 1, 1]);
        let author = author.weight_of(INT8, "w", &[1, CHANNELS as i64, 1, 1], &[127; CHANNELS]);
        let author = author.output_of(INT32, "y", &[FREE, 1, 1, 1]).node("ConvInteger", &["x", "w"], &["y"], &[]);
        let sum = 127 * (255 * CHANNELS as i32 - 1);
        assert_ne!((sum as f32) as i32, sum, "no float32 is so large and odd");
        let x = TensorData::new(pixels, [1, CHANNELS, 1, 1]);
        assert_eq!(author.answer(vec![x]), Ok(vec![TensorData::new(vec![sum], [1, 1, 1, 1])]));
    }

    #[test]
    fn a_convolution_of_integers_is_exact_with_weights_that_are_constant_or_not() {
        let x = || TensorData::new(vec![2u8, 3, 4, 5], [1, 1, 2, 2]);
        let w = TensorData::new(vec![1u8, 2, 3, 4], [1, 1, 2, 2]);
        let inputs = [("x", x()), ("w", w), ("xz", scalar(1u8)), ("wz", scalar(2u8))];
        let expected = TensorData::new(vec![-1 + 3 + 2 * 4], [1, 1, 1, 1]);
        assert_eq!(alone(10, "ConvInteger", &[], inputs), Ok(expected.clone()));
        let author = Author::new(10).input_of(UINT8, "x", &[1, 1, 2, 2]).input_of(UINT8, "xz", &[]);
        let author = author.weight_of(UINT8, "w", &[1, 1, 2, 2], &[1, 2, 3, 4]).weight_of(UINT8, "wz", &[1], &[2]);
        let author =
            author.output_of(INT32, "y", &[1, 1, 1, 1]).node("ConvInteger", &["x", "w", "xz", "wz"], &["y"], &[]);
        assert_eq!(author.answer(vec![x(), scalar(1u8)]), Ok(vec![expected]));
    }
}
