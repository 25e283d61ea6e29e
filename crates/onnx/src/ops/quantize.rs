//! Between floats and the small integers of quantised networks, and products of such integers.

use burn_backend::ops::FloatTensorOps;
use burn_backend::{DType, TensorData, TensorMetadata};
use burn_dispatch::DispatchDevice;

use super::arithmetic::on_tensors;
use super::cast::target;
use super::host::{self, Narrow, for_int};
use super::linear::matmul;
use super::{Args, Build, Kernel, Operator};
use crate::fast::integers::Integers;
use crate::fast::quantize::{self, Extent, Scales};
use crate::floats::{self, Floats};
use crate::memory;
use crate::value::{Backend as B, Handle, OpError, Value, axis, elements};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("DequantizeLinear", dequantize)
        .except("float8, and integers of 4 bits or fewer, that are no weights"),
    Operator::new("DynamicQuantizeLinear", |_| Ok(Kernel::many(|mut args| dynamic(args.take(0)?, args.device)))),
    Operator::new("MatMulInteger", integer_matmul),
    Operator::new("QLinearMatMul", linear_matmul),
    Operator::new("QuantizeLinear", quantize).except("float8, and integers of 4 bits or fewer"),
];

/// How far one scale reaches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grain {
    pub(super) axis: i64,
    /// The length along the axis that shares a scale; 0 where each place has its own.
    pub(super) block: usize,
}

impl Grain {
    fn of(build: &Build<'_>) -> Result<Grain, OpError> {
        let block = build.attributes.int("block_size", 0)?;
        let block = usize::try_from(block).map_err(|_| OpError(format!("a block_size of {block}")))?;
        Ok(Grain { axis: build.attributes.int("axis", 1)?, block })
    }

    /// How many numbers in a row share a scale, where the scales then take turns; `None` where they belong to blocks.
    fn inner(self, dims: &[usize], scales: &[usize]) -> Result<Option<usize>, OpError> {
        if self.block != 0 {
            return Ok(None);
        }
        if scales.iter().all(|&d| d == 1) {
            return elements(dims).map(Some);
        }
        let axis = axis(self.axis, dims.len())?;
        if scales != [dims[axis]] {
            return Err(OpError(format!("scales of shape {scales:?} do not fit the shape {dims:?}")));
        }
        elements(&dims[axis + 1..]).map(Some)
    }

    /// For each element of the shape the place of its scale.
    fn places(self, dims: &[usize], scales: &[usize]) -> Result<Vec<usize>, OpError> {
        let count = dims.iter().product();
        if self.block == 0 && scales.iter().all(|&d| d == 1) {
            return Ok(vec![0; count]);
        }
        let wrong = || OpError(format!("scales of shape {scales:?} do not fit the shape {dims:?}"));
        let axis = axis(self.axis, dims.len())?;
        let (length, inner) = (dims[axis], dims[axis + 1..].iter().product::<usize>());
        if self.block == 0 {
            if scales != [length] {
                return Err(wrong());
            }
            return Ok((0..count).map(|i| i / inner % length).collect());
        }
        let blocks = length.div_ceil(self.block);
        let mut expected = dims.to_vec();
        expected[axis] = blocks;
        if scales != expected {
            return Err(wrong());
        }
        let place = |i: usize| (i / (inner * length) * blocks + i / inner % length / self.block) * inner + i % inner;
        Ok((0..count).map(place).collect())
    }
}

fn quantize(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let grain = Grain::of(build)?;
    let declared = build.attributes.int("output_dtype", 0)?;
    let declared = if declared == 0 { None } else { Some(target(declared)?) };
    build.attributes.flag("saturate", true)?; // of float8 alone
    build.attributes.int("precision", 0)?; // always float32, or what it is rounded from
    Ok(Kernel::one(move |mut args| {
        let (x, scale, zero) = (args.take(0)?, args.take(1)?, args.optional(2));
        let to = declared.or(zero.as_ref().map(Value::dtype)).unwrap_or(DType::U8);
        quantized(x, scale, zero, to, grain, args.device)
    }))
}

/// Returns saturate(round(x / scale) + zero), rounded half to even. A NaN is an error: the integer that took its place would be as
/// good as any other number from there on.
pub(super) fn quantized(
    x: Value,
    scale: Value,
    zero: Option<Value>,
    to: DType,
    grain: Grain,
    device: &DispatchDevice,
) -> Result<Value, OpError> {
    let (dims, scales) = (x.shape(), scale.shape());
    let x = Value::Float(x.cast(DType::F32, device)?.float()?);
    let scale = host::read::<f32>(scale.cast(DType::F32, device)?)?;
    let zeros = zeros(zero, &scales, scale.len())?;
    if let Some(inner) = grain.inner(&dims, &scales)? {
        macro_rules! quick {
            ($element:ty) => {{
                let zeros = small_zeros(&zeros);
                let by = Scales { scales: &scale, zeros: &zeros, inner };
                let mut y = vec![<$element>::default(); elements(&dims)?];
                let has_nan = match &x {
                    Value::Float(handle) if let Some(x) = Floats::of(handle) => {
                        quantize::quantize(x.as_slice(), by, &mut y)
                    }
                    _ => quantize::quantize(&host::read::<f32>(x)?, by, &mut y),
                };
                if has_nan {
                    return Err(no_integer());
                }
                return Value::from_data(TensorData::new(y, dims), device);
            }};
        }
        match to {
            DType::U8 => quick!(u8),
            DType::I8 => quick!(i8),
            DType::U16 => quick!(u16),
            DType::I16 => quick!(i16),
            _ => {}
        }
    }
    let places = grain.places(&dims, &scales)?;
    let x = host::read::<f32>(x)?;
    if x.iter().any(|x| x.is_nan()) {
        return Err(no_integer());
    }
    for_int!(to, E => {
        let numbers = x.iter().zip(places).map(|(x, at)| saturated::<E>(x / scale[at], zeros[at])).collect::<Vec<E>>();
        Value::from_data(TensorData::new(numbers, dims), device)
    })
}

/// The error for a NaN that is to be quantised.
fn no_integer() -> OpError {
    OpError::new("cannot quantise NaN: no integer represents it; send finite inputs")
}

fn saturated<E: Narrow<Wide = i128>>(x: f32, zero: i128) -> E {
    E::narrow((x.round_ties_even() as i128).saturating_add(zero).clamp(E::LEAST, E::GREATEST))
}

/// The zero points of small integers.
fn small_zeros(zeros: &[i128]) -> Vec<i32> {
    zeros.iter().map(|&zero| zero.clamp(i16::MIN.into(), u16::MAX.into()) as i32).collect()
}

/// The zero points, one for each scale.
fn zeros(zero: Option<Value>, scales: &[usize], count: usize) -> Result<Vec<i128>, OpError> {
    let Some(zero) = zero else { return Ok(vec![0; count]) };
    let dims = zero.shape();
    let zeros = host::ints(zero)?;
    if zeros.len() != count {
        return Err(OpError(format!("zero points of shape {dims:?} do not fit scales of shape {scales:?}")));
    }
    Ok(zeros)
}

/// (x - zero) · scale
fn dequantize(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let grain = Grain::of(build)?;
    let declared = build.attributes.int("output_dtype", 0)?;
    let declared = if declared == 0 { None } else { Some(target(declared)?) };
    Ok(Kernel::one(move |mut args| {
        let (x, scale, zero) = (args.take(0)?, args.take(1)?, args.optional(2));
        dequantized(x, scale, zero, declared, grain, args.device)
    }))
}

/// (x - zero) · scale, of the scale's type where no other is declared.
pub(super) fn dequantized(
    x: Value,
    scale: Value,
    zero: Option<Value>,
    declared: Option<DType>,
    grain: Grain,
    device: &DispatchDevice,
) -> Result<Value, OpError> {
    let (dims, scales) = (x.shape(), scale.shape());
    let to = declared.unwrap_or(scale.dtype());
    let scale = host::read::<f32>(scale.cast(DType::F32, device)?)?;
    if let Value::Float(x) = x {
        // Numbers of a type of eight bits, which has no zero points but 0.
        let places = grain.places(&dims, &scales)?;
        let x = host::read::<f32>(Value::Float(x).cast(DType::F32, device)?)?;
        let numbers: Vec<f32> = x.into_iter().zip(places).map(|(x, at)| x * scale[at]).collect();
        return Value::from_data(TensorData::new(numbers, dims), device)?.cast(to, device);
    }
    let zeros = zeros(zero, &scales, scale.len())?;
    if let Some(inner) = grain.inner(&dims, &scales)? {
        macro_rules! quick {
            ($element:ty) => {{
                let zeros = small_zeros(&zeros);
                let by = Scales { scales: &scale, zeros: &zeros, inner };
                let mut y = memory::take(elements(&dims)?);
                quantize::dequantize(&host::read::<$element>(x)?, by, &mut y);
                return floats::tensor(y, dims, device)?.cast(to, device);
            }};
        }
        match x.dtype() {
            DType::U8 => quick!(u8),
            DType::I8 => quick!(i8),
            DType::U16 => quick!(u16),
            DType::I16 => quick!(i16),
            _ => {}
        }
    }
    let places = grain.places(&dims, &scales)?;
    let numbers: Vec<f32> = for_int!(x.dtype(), E => {
        let real = |(x, at): (E, usize)| (x.widen() - zeros[at]) as f32 * scale[at];
        Ok(host::read::<E>(x)?.into_iter().zip(places).map(real).collect())
    })?;
    Value::from_data(TensorData::new(numbers, dims), device)?.cast(to, device)
}

/// Quantises by a scale that just covers the numbers and zero; gives the scale and the zero point as well. With a NaN among the
/// numbers the scale is NaN, and so is all that is computed with it.
fn dynamic(x: Value, device: &DispatchDevice) -> Result<Vec<Value>, OpError> {
    let dims = x.shape();
    let x = host::read::<f32>(Value::Float(x.float()?).cast(DType::F32, device)?)?;
    let (scale, zero) = Extent::of(&x).scale();
    let mut numbers = vec![0u8; x.len()];
    let by = Scales { scales: &[scale], zeros: &[zero.into()], inner: x.len() };
    quantize::quantize(&x, by, &mut numbers);
    Ok(vec![
        Value::from_data(TensorData::new(numbers, dims), device)?,
        Value::from_data(TensorData::new(vec![scale], [0usize; 0]), device)?,
        Value::from_data(TensorData::new(vec![zero], [0usize; 0]), device)?,
    ])
}

/// What is left of numbers that are quantised and back, each index along `axis` by a scale of its own: rows of a batch know
/// nothing of each other, and a row with a NaN is NaN.
pub(super) fn by_row(x: Handle, axis: usize, device: &DispatchDevice) -> Result<Handle, OpError> {
    let (dims, kind) = (x.shape().to_vec(), x.dtype());
    let (rows, inner) = (dims[axis], dims[axis + 1..].iter().product::<usize>());
    let mut numbers = host::read::<f32>(Value::Float(x).cast(DType::F32, device)?)?;
    let mut extents = vec![Extent::ZERO; rows];
    let row = |i: usize| i / inner % rows;
    for (i, &x) in numbers.iter().enumerate() {
        extents[row(i)] = extents[row(i)].with(x);
    }
    let scales: Vec<(f32, u8)> = extents.into_iter().map(Extent::scale).collect();
    for (i, x) in numbers.iter_mut().enumerate() {
        let (scale, zero) = scales[row(i)];
        let number: u8 = saturated(*x / scale, zero.into());
        *x = (f32::from(number) - f32::from(zero)) * scale;
    }
    Value::from_data(TensorData::new(numbers, dims), device)?.cast(kind, device)?.float()
}

/// The product of integers less their zero points. A constant right factor is prepared once.
fn integer_matmul(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let constant = build.peek(1).is_some() && (build.peek(3).is_some() || !build.has(3));
    if constant && let Some(weights) = laid_out(build, 1, 3)? {
        return Ok(Kernel::one(move |mut args| {
            let (a, zero) = (args.take(0)?, args.optional(2));
            exact_product(&weights, a, zero, args.device)
        }));
    }
    let weight = if constant { build.constant(1).zip(Some(build.constant(3))) } else { None };
    let weight = weight.map(|(b, zero)| shifted(b, zero, Along::Columns, build.device)).transpose()?;
    Ok(Kernel::one(move |mut args| {
        let a = shifted(args.take(0)?, args.optional(2), Along::Rows, args.device)?;
        let b = match &weight {
            Some(weight) => weight.clone(),
            None => shifted(args.take(1)?, args.optional(3), Along::Columns, args.device)?,
        };
        Value::Float(matmul(a, b)?).cast(DType::I32, args.device)
    }))
}

/// The product of two matrices of integers that stand for numbers, as such integers.
fn linear_matmul(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    if let Some(kernel) = by_integers(build)? {
        return Ok(kernel);
    }
    Ok(Kernel::one(|mut args| {
        let a = real(&mut args, 0, Along::Rows)?;
        let b = real(&mut args, 3, Along::Columns)?;
        let (scale, zero) = (args.take(6)?, args.take(7)?);
        let to = zero.dtype();
        quantized(Value::Float(matmul(a, b)?), scale, Some(zero), to, Grain { axis: 1, block: 0 }, args.device)
    }))
}

/// The same by the sums of the integers; `None` unless all but the left factor is constant, and that has one scale.
fn by_integers(build: &mut Build<'_>) -> Result<Option<Kernel>, OpError> {
    let scales = [1, 4, 6].map(|i| build.peek(i).filter(|scale| matches!(scale, Value::Float(_))));
    let zeros = [2, 5, 7].map(|i| build.peek(i).filter(|zero| matches!(zero.dtype(), DType::U8 | DType::I8)));
    let ([Some(of_a), Some(of_b), Some(of_y)], [Some(a_zero), Some(_), Some(y_zero)]) = (scales, zeros) else {
        return Ok(None);
    };
    let is_one = |value: &Value| elements(&value.shape()) == Ok(1);
    if ![of_a, of_y, a_zero, y_zero].into_iter().all(is_one) {
        return Ok(None);
    }
    let read = |scale: &Value| host::read::<f32>(scale.clone().cast(DType::F32, build.device)?);
    let (of_a, of_b, of_y) = (read(of_a)?[0], read(of_b)?, read(of_y)?[0]);
    let (a_zero, y_zero) = (a_zero.clone(), y_zero.clone());
    let Some(weights) = laid_out(build, 3, 5)?.filter(|weights| [1, weights.width].contains(&of_b.len())) else {
        return Ok(None);
    };
    // None of the others is passed again.
    (1..8).for_each(|i| drop(build.constant(i)));
    let columns = (0..weights.width).map(|i| of_a * of_b[if of_b.len() == 1 { 0 } else { i }] / of_y);
    let (columns, to): (Vec<f32>, _) = (columns.collect(), y_zero.dtype());
    let zero = host::read::<i32>(y_zero.cast(DType::I32, build.device)?)?[0];
    Ok(Some(Kernel::one(move |mut args| {
        let (sums, dims) = exact_sums(&weights, args.take(0)?, Some(a_zero.clone()))?;
        macro_rules! counted {
            ($element:ty) => {{
                let mut y = vec![<$element>::default(); sums.len()];
                quantize::requantize_columns(&sums, &columns, zero, &mut y);
                Value::from_data(TensorData::new(y, dims), args.device)
            }};
        }
        if to == DType::U8 { counted!(u8) } else { counted!(i8) }
    })))
}

/// A constant matrix of 8-bit integers with its zero points, which are these arguments, laid out for our own kernel; `None` for any
/// other.
fn laid_out(build: &Build<'_>, weight: usize, zero: usize) -> Result<Option<Integers>, OpError> {
    let Some(weight) = build.peek(weight) else { return Ok(None) };
    let &[terms, width] = &weight.shape()[..] else { return Ok(None) };
    let zeros = match build.peek(zero) {
        None => vec![0],
        Some(zero) => host::ints(zero.clone())?.into_iter().map(|zero| zero as i32).collect(),
    };
    if zeros.len() != 1 && zeros.len() != width {
        return Ok(None);
    }
    Ok(match weight.dtype() {
        DType::I8 => Some(Integers::new(&host::read::<i8>(weight.clone())?, [terms, width], &zeros)),
        DType::U8 => Some(Integers::new(&host::read::<u8>(weight.clone())?, [terms, width], &zeros)),
        _ => None,
    })
}

/// The product of 8-bit integers less a zero point with a matrix that is laid out.
fn exact_product(weights: &Integers, a: Value, zero: Option<Value>, device: &DispatchDevice) -> Result<Value, OpError> {
    let (y, dims) = exact_sums(weights, a, zero)?;
    Value::from_data(TensorData::new(y, dims), device)
}

/// The elements of such a product, and its shape.
fn exact_sums(weights: &Integers, a: Value, zero: Option<Value>) -> Result<(Vec<i32>, Vec<usize>), OpError> {
    let mut dims = a.shape();
    if dims.last() != Some(&weights.terms) {
        return Err(OpError(format!("a weight of {} inputs does not fit the shape {dims:?}", weights.terms)));
    }
    let last = dims.len() - 1;
    dims[last] = weights.width;
    let mut y = vec![0; elements(&dims)?];
    let zero = zero.map(|zero| {
        let [rows @ .., _] = &dims[..] else { return Err(OpError::new("a factor has no dimensions")) };
        let zeros = host::ints(zero)?;
        match zeros[..] {
            [zero] => Ok(vec![zero as i32]),
            // One for each row, the same in each matrix of a stack.
            _ if rows.last() == Some(&zeros.len()) => {
                let all = zeros.iter().map(|&zero| zero as i32).cycle();
                Ok(all.take(rows.iter().product()).collect())
            }
            _ => Err(OpError(format!("{} zero points do not fit the shape {dims:?}", zeros.len()))),
        }
    });
    let zeros = zero.transpose()?.unwrap_or_else(|| vec![0]);
    macro_rules! multiply {
        ($element:ty) => {{ weights.run(&host::read::<$element>(a)?, &zeros, &mut y) }};
    }
    match a.dtype() {
        DType::U8 => multiply!(u8),
        DType::I8 => multiply!(i8),
        other => return Err(OpError(format!("cannot multiply {other:?} with 8-bit integers"))),
    }
    Ok((y, dims))
}

/// What a vector of zero points or scales belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Along {
    Rows,
    Columns,
}

/// Integers less their zero points, as float64: sums of products of 8-bit integers are exact in it.
fn shifted(x: Value, zero: Option<Value>, along: Along, device: &DispatchDevice) -> Result<Handle, OpError> {
    let x = x.cast(DType::F64, device)?.float()?;
    match zero {
        Some(zero) => by_line(x, zero, along, device, B::float_sub),
        None => Ok(x),
    }
}

/// The numbers that an integer tensor, its scales and its zero points stand for.
fn real(args: &mut Args<'_>, first: usize, along: Along) -> Result<Handle, OpError> {
    let (x, scale, zero) = (args.take(first)?, args.take(first + 1)?, args.take(first + 2)?);
    by_line(shifted(x, Some(zero), along, args.device)?, scale, along, args.device, B::float_mul)
}

fn by_line(
    x: Handle,
    by: Value,
    along: Along,
    device: &DispatchDevice,
    f: fn(Handle, Handle) -> Handle,
) -> Result<Handle, OpError> {
    let by = by.cast(DType::F64, device)?;
    let dims = by.shape();
    let by = match (along, &dims[..]) {
        (Along::Rows, &[rows]) if rows != 1 => by.reshape(vec![rows, 1])?,
        _ => by,
    };
    let shape = x.shape();
    let y = on_tensors(f, x, by.float()?)?;
    if y.shape() != shape {
        return Err(OpError(format!("scales or zero points of shape {dims:?} do not fit the shape {shape:?}")));
    }
    Ok(y)
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use super::super::alone::{alone, scalar};
    use crate::author::Attribute::Int;
    use crate::author::Author;

    #[test]
    fn a_scale_of_zero_saturates() {
        let x = TensorData::from([-1f32, 0.0, 1.0]);
        let inputs = [("x", x), ("scale", scalar(0f32)), ("zero", scalar(3i8))];
        assert_eq!(alone(13, "QuantizeLinear", &[], inputs), Ok(TensorData::from([-128i8, 3, 127])));
        assert_eq!(
            alone(11, "DynamicQuantizeLinear", &[], [("x", TensorData::from([0f32, 0.0]))]),
            Ok(TensorData::from([0u8, 0]))
        );
    }

    #[test]
    fn a_product_of_integers_that_stand_for_numbers_is_counted_in_steps_of_the_result() {
        let product = |weight: Author| {
            let author = weight.input_of(2, "a", &[-1, 2]).output_of(2, "y", &[-1, 2]).floats("as", &[], &[0.5]);
            let author = author.weight_of(2, "az", &[], &[2]).weight_of(3, "bz", &[2], &[0, 1]);
            let author = author.floats("ys", &[], &[2.0]).weight_of(2, "yz", &[], &[4]);
            let inputs = ["a", "as", "az", "b", "bs", "bz", "ys", "yz"];
            author.node("QLinearMatMul", &inputs, &["y"], &[]).answer(vec![TensorData::from([[4u8, 0], [2, 250]])])
        };
        let weight = || Author::new(10).weight_of(3, "b", &[2, 2], &[1, 0xff, 3, 4]);
        // [[1, -1], [0, 124]] · [[1, -4], [3, 6]], by 2 and 4 more, with scales of 1 and 2.
        let expected = Ok(vec![TensorData::from([[3u8, 0], [190, 255]])]);
        assert_eq!(product(weight().floats("bs", &[2], &[1.0, 2.0])), expected);
        let computed =
            weight().node("ReduceMax", &["a"], &["most"], &[]).node("Cast", &["most"], &["m"], &[("to", Int(1))]);
        let computed = computed.node("Div", &["m", "m"], &["one"], &[]).node("Reshape", &["one", "flat"], &["o"], &[]);
        let computed = computed.ints("flat", &[1], &[1]).floats("two", &[2], &[1.0, 2.0]);
        assert_eq!(product(computed.node("Mul", &["two", "o"], &["bs"], &[])), expected, "by scales that are computed");
    }

    #[test]
    fn scales_that_do_not_fit_are_refused() {
        let quantised = |block: i64, scale: TensorData| {
            let attributes = [("axis", Int(1)), ("block_size", Int(block))];
            alone(21, "QuantizeLinear", &attributes, [("x", TensorData::from([[4f32, 6.0, 8.0]])), ("s", scale)])
        };
        assert_eq!(quantised(0, [1f32, 2.0, 4.0].into()), Ok(TensorData::from([[4u8, 3, 2]])));
        assert_eq!(quantised(2, [[2f32, 4.0]].into()), Ok(TensorData::from([[2u8, 3, 2]])));
        for (block, scale) in [(0, [1f32, 2.0].into()), (2, [[1f32, 2.0, 3.0]].into()), (2, TensorData::from([1f32]))] {
            let error = quantised(block, scale).unwrap_err();
            assert!(error.contains("do not fit the shape [1, 3]"), "{error}");
        }
        assert!(quantised(-1, scalar(1f32)).unwrap_err().contains("a block_size of -1"));
    }

    #[test]
    fn zero_points_belong_to_rows_on_the_left_and_to_columns_on_the_right() {
        let inputs = [
            ("a", TensorData::from([[1u8, 2], [3, 5]])),
            ("b", TensorData::from([[1i8, 0], [2, 3]])),
            ("rows", TensorData::from([1u8, 3])),
            ("columns", TensorData::from([0i8, 1])),
        ];
        // [[0, 1], [0, 2]] · [[1, -1], [2, 2]]
        assert_eq!(alone(10, "MatMulInteger", &[], inputs), Ok(TensorData::from([[2i32, 2], [4, 4]])));
        for rows in [&[1u8, 3][..], &[2]] {
            let author =
                Author::new(10).input_of(2, "a", &[2, 2]).input_of(2, "rows", &[-1]).output_of(6, "y", &[2, 2]);
            let author = author.weight_of(3, "b", &[2, 2], &[1, 0, 2, 3]).weight_of(3, "columns", &[2], &[0, 1]);
            let author = author.node("MatMulInteger", &["a", "b", "rows", "columns"], &["y"], &[]);
            let given = vec![TensorData::from([[1u8, 2], [3, 5]]), TensorData::new(rows.to_vec(), [rows.len()])];
            // With one zero point, [[-1, 0], [1, 3]] · [[1, -1], [2, 2]].
            let expected = if rows.len() == 2 { [[2i32, 2], [4, 4]] } else { [[-1, 1], [7, 5]] };
            assert_eq!(author.answer(given), Ok(vec![TensorData::from(expected)]));
        }
    }
}
