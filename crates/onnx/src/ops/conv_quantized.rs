//! Convolutions of quantised networks, by sums of products of their integers, which are exact. Weights that are computed, and
//! devices other than the processor, take the kernels of floats: weights are dequantised once, inputs on their way in.

use burn_backend::ops::FloatTensorOps;
use burn_backend::{DType, TensorData, TensorMetadata};
use burn_dispatch::DispatchDevice;

use super::arithmetic::on_tensors;
use super::quantize::{Grain, dequantized, quantized};
use super::window::{Form, Window};
use super::{Build, Kernel, Operator, Source, conv, conv_general, host};
use crate::fast::conv_integers::IntegerConv;
use crate::fast::quantize::Counter;
use crate::floats;
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
    if let Some(kernel) = linear_in_integers(build)? {
        return Ok(kernel);
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
        return Err(OpError(format!(
            "scales of shape {:?} do not fit the bias of shape {dims:?}",
            by_output.shape().to_vec()
        )));
    }
    Ok(Value::Float(bias))
}

/// A convolution of integers less their zero points, whose sums are exact.
fn integer(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let Some(whole) = Whole::of(build, 1, 3)? else { return conv_general::integer(build) };
    // Neither is passed again.
    [1, 3].into_iter().for_each(|i| drop(build.constant(i)));
    Ok(Kernel::one(move |mut args| {
        let (x, zero) = (args.take(0)?, args.optional(2));
        let (y, dims) = whole.run(x, zero, args.device, |_| |sum: i32| sum)?;
        Value::from_data(TensorData::new(y, whole.window.result(dims)), args.device)
    }))
}

/// A convolution of integers of eight bits with constant weights.
struct Whole {
    window: Window,
    groups: usize,
    shape: [usize; 4],
    conv: IntegerConv,
}

impl Whole {
    /// The weights are argument `weight`, their zero points argument `zero`. `None` where they are computed, of another type, or of
    /// a volume.
    fn of(build: &Build<'_>, weight: usize, zero: usize) -> Result<Option<Whole>, OpError> {
        let small = |weight: &&Value| weight.rank() <= 4 && matches!(weight.dtype(), DType::I8 | DType::U8);
        let Some(weight) = build.peek(weight).filter(small).cloned() else { return Ok(None) };
        let zeros = match build.peek(zero) {
            None if build.has(zero) => return Ok(None),
            None => vec![0],
            Some(zeros) => host::read::<i32>(zeros.clone().cast(DType::I32, build.device)?)?,
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
        let (stride, dilation) = (window.stride, window.dilation);
        let conv = match weight.dtype() {
            DType::I8 => IntegerConv::new(&host::read::<i8>(weight)?, &zeros, groups, shape, stride, dilation),
            _ => IntegerConv::new(&host::read::<u8>(weight)?, &zeros, groups, shape, stride, dilation),
        };
        Ok(Some(Whole { window, groups, shape, conv }))
    }

    /// What `finish` makes of the sums of each channel for images whose integers have one zero point, and the shape.
    fn run<Y: Default + Clone + Send, F: Fn(i32) -> Y>(
        &self,
        x: Value,
        zero: Option<Value>,
        device: &DispatchDevice,
        finish: impl Fn(usize) -> F + Sync,
    ) -> Result<(Vec<Y>, [usize; 4]), OpError> {
        let dims = self.window.image(&x.shape())?;
        let (out, pads) = conv::geometry(&self.window, self.groups, self.shape, dims)?;
        let zero = match zero {
            None => 0,
            Some(zero) if zero.dtype() == x.dtype() && elements(&zero.shape())? == 1 => {
                host::read::<i32>(zero.cast(DType::I32, device)?)?[0]
            }
            Some(zero) => {
                let (shape, kind) = (zero.shape(), zero.dtype());
                return Err(OpError(format!("zero points of {kind:?} in the shape {shape:?} for {:?}", x.dtype())));
            }
        };
        let ([_, _, h, w], [_, _, out_h, out_w]) = (dims, out);
        let (output, mut y) = ([out_h, out_w], vec![Y::default(); elements(&out)?]);
        match x.dtype() {
            DType::U8 => self.conv.run((&host::read::<u8>(x)?, zero), [h, w], pads, output, finish, &mut y),
            DType::I8 => self.conv.run((&host::read::<i8>(x)?, zero), [h, w], pads, output, finish, &mut y),
            other => return Err(OpError(format!("cannot convolve {other:?} with integers of eight bits"))),
        }
        Ok((y, out))
    }
}

/// A quantised convolution by the sums of its integers; `None` where these are not at hand, or where more is asked of it.
fn linear_in_integers(build: &mut Build<'_>) -> Result<Option<Kernel>, OpError> {
    let is_one = |i: usize| build.peek(i).is_some_and(|value| elements(&value.shape()) == Ok(1));
    let is_here = |i: usize| matches!(build.peek(i), Some(Value::Float(scale)) if floats::has(scale));
    let small = |i: usize| build.peek(i).is_some_and(|value| matches!(value.dtype(), DType::U8 | DType::I8));
    let fits = [1, 2, 6, 7].into_iter().all(is_one) && [1, 4, 6].into_iter().all(is_here);
    if !(fits && small(2) && small(7) && build.is_plain()) {
        return Ok(None);
    }
    let Some(whole) = Whole::of(build, 3, 5)? else { return Ok(None) };
    let [outputs, ..] = whole.shape;
    let read = |i: usize| match build.peek(i) {
        Some(value) => host::read::<f32>(value.clone()),
        None => Err(OpError(format!("argument {i} is missing"))),
    };
    let (x, weights, y) = (read(1)?[0], read(4)?, read(6)?[0]);
    if ![1, outputs].contains(&weights.len()) {
        return Err(OpError(format!("{} scales do not fit {outputs} channels", weights.len())));
    }
    let bias = match build.peek(8) {
        None => vec![0; outputs],
        Some(bias) if bias.dtype() == DType::I32 && bias.shape() == [outputs] => host::read::<i32>(bias.clone())?,
        Some(bias) => {
            return Err(OpError(format!("a bias of {:?} in the shape {:?}", bias.dtype(), bias.shape().to_vec())));
        }
    };
    let of = |i: usize| x * weights[if weights.len() == 1 { 0 } else { i }] / y;
    let by: Vec<(f32, i32)> = bias.into_iter().enumerate().map(|(i, bias)| (of(i), bias)).collect();
    let (x_zero, y_zero) = (build.constant(2), build.constant(7));
    // None of the others is passed again.
    [1, 3, 4, 5, 6, 8].into_iter().for_each(|i| drop(build.constant(i)));
    let Some(y_zero) = y_zero else { return Err(OpError::new("argument 7 is missing")) };
    let to = y_zero.dtype();
    let zero = host::read::<i32>(y_zero.cast(DType::I32, build.device)?)?[0];
    Ok(Some(Kernel::one(move |mut args| {
        macro_rules! counted {
            ($element:ty) => {{
                let counter = Counter::of::<$element>(zero);
                let finish = |channel: usize| {
                    let (scale, bias): (f32, i32) = by[channel];
                    move |sum: i32| counter.count::<$element>(sum.wrapping_add(bias) as f32 * scale)
                };
                let (y, dims) = whole.run(args.take(0)?, x_zero.clone(), args.device, finish)?;
                Value::from_data(TensorData::new(y, whole.window.result(dims)), args.device)
            }};
        }
        if to == DType::U8 { counted!(u8) } else { counted!(i8) }
    })))
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
        Kernel::Many(_) | Kernel::Control(_) => Err(OpError::new("a convolution of several outputs")),
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
