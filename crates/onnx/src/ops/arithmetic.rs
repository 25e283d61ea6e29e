//! Arithmetic of two or more tensors, with numpy's broadcasting, and the bounds of `Clip`.

use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_backend::{DType, Element, Scalar, Shape, TensorData, TensorMetadata};
use burn_dispatch::DispatchDevice;

use super::{Args, Build, Kernel, Operator, host};
use crate::fast::activation::{Activation, on_each, on_pairs};
use crate::fast::spread::{Pair, Side, spread};
use crate::floats::{self, Strided};
use crate::memory;
use crate::value::{Backend as B, Handle, OpError, Value, broadcast, elements, lift};
use uncork_model::quote::Quoted;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Add", |build| binary(ADD, build)),
    Operator::new("BitShift", |build| match build.attributes.text("direction", "")?.as_str() {
        "LEFT" => pairs(shifted_left),
        "RIGHT" => pairs(shifted_right),
        other => Err(OpError(format!("direction={}; it is LEFT or RIGHT", Quoted(other)))),
    }),
    Operator::new("BitwiseAnd", |_| pairs(|a, b, device| host::zip_ints(a, b, device, |a, b| Ok(a & b)))),
    Operator::new("BitwiseOr", |_| pairs(|a, b, device| host::zip_ints(a, b, device, |a, b| Ok(a | b)))),
    Operator::new("BitwiseXor", |_| pairs(|a, b, device| host::zip_ints(a, b, device, |a, b| Ok(a ^ b)))),
    Operator::new("Clip", clip),
    Operator::new("Div", |build| binary(DIV, build)),
    Operator::new("Max", |_| all(greater)),
    Operator::new("Mean", |_| {
        Ok(Kernel::one(|mut args| {
            let parts = args.all();
            let count = parts.len() as f32;
            let sum = folded(parts, args.device, added)?.float()?;
            if floats::has(&sum) {
                return floats::changed(sum, args.device, |sum| on_each(sum, |x| x / count));
            }
            Ok(Value::Float(B::float_div_scalar(sum, count.into())))
        }))
    }),
    Operator::new("Min", |_| all(less)),
    Operator::new(
        "Mod",
        |build| if build.attributes.flag("fmod", false)? { pairs(truncated_rest) } else { pairs(rest) },
    ),
    Operator::new("Mul", |build| binary(MUL, build)),
    Operator::new("Pow", pow),
    Operator::new("Sub", |build| binary(SUB, build)),
    Operator::new("Sum", |_| all(added)),
];

/// Below so many numbers burn's operation is quicker than ours: it keeps the tensor as it is.
const SHORT: usize = 1 << 12;

/// One binary operator on floats and on integers.
#[derive(Clone, Copy)]
struct Binary {
    /// By our own kernel.
    spread: fn(Pair<'_, f32>, &mut [f32]),
    /// The same where both have one shape, into the left one or the right one.
    into_left: fn(&mut [f32], &[f32]),
    into_right: fn(&mut [f32], &[f32]),
    /// The same on integers; nothing where a result may not exist.
    spread_ints: Option<(Spread<i32>, Spread<i64>)>,
    floats: fn(Handle, Handle) -> Handle,
    by_number: fn(Handle, Scalar) -> Handle,
    /// The same by our own kernel.
    with_number: fn(&mut [f32], f32),
    /// On integers of any type, widened; fails where the result does not exist.
    ints: fn(i128, i128) -> Result<i128, OpError>,
}

pub(super) type Spread<E> = fn(Pair<'_, E>, &mut [E]);

const ADD: Binary = Binary {
    spread: |pair, y| spread(pair, y, |a, b| a + b),
    into_left: |a, b| on_pairs(a, b, |a, b| a + b),
    into_right: |b, a| on_pairs(b, a, |b, a| a + b),
    spread_ints: Some((|pair, y| spread(pair, y, i32::wrapping_add), |pair, y| spread(pair, y, i64::wrapping_add))),
    floats: B::float_add,
    by_number: B::float_add_scalar,
    with_number: |x, number| on_each(x, |x| x + number),
    ints: |a, b| Ok(a + b),
};
const SUB: Binary = Binary {
    spread: |pair, y| spread(pair, y, |a, b| a - b),
    into_left: |a, b| on_pairs(a, b, |a, b| a - b),
    into_right: |b, a| on_pairs(b, a, |b, a| a - b),
    spread_ints: Some((|pair, y| spread(pair, y, i32::wrapping_sub), |pair, y| spread(pair, y, i64::wrapping_sub))),
    floats: B::float_sub,
    by_number: B::float_sub_scalar,
    with_number: |x, number| on_each(x, |x| x - number),
    ints: |a, b| Ok(a - b),
};
const MUL: Binary = Binary {
    spread: |pair, y| spread(pair, y, |a, b| a * b),
    into_left: |a, b| on_pairs(a, b, |a, b| a * b),
    into_right: |b, a| on_pairs(b, a, |b, a| a * b),
    spread_ints: Some((|pair, y| spread(pair, y, i32::wrapping_mul), |pair, y| spread(pair, y, i64::wrapping_mul))),
    floats: B::float_mul,
    by_number: B::float_mul_scalar,
    with_number: |x, number| on_each(x, |x| x * number),
    ints: |a, b| Ok(a.wrapping_mul(b)),
};
const DIV: Binary = Binary {
    spread: |pair, y| spread(pair, y, |a, b| a / b),
    into_left: |a, b| on_pairs(a, b, |a, b| a / b),
    into_right: |b, a| on_pairs(b, a, |b, a| a / b),
    spread_ints: None,
    floats: B::float_div,
    by_number: B::float_div_scalar,
    with_number: |x, number| on_each(x, |x| x / number),
    ints: quotient,
};

fn quotient(a: i128, b: i128) -> Result<i128, OpError> {
    a.checked_div(b).ok_or_else(|| OpError(format!("{a} is divided by zero")))
}

fn remainder(a: i128, b: i128) -> Result<i128, OpError> {
    a.checked_rem(b).ok_or_else(|| OpError(format!("{a} is divided by zero")))
}

/// A binary operator; one whose right argument is a constant float does not broadcast a tensor.
fn binary(op: Binary, build: &mut Build<'_>) -> Result<Kernel, OpError> {
    if let Some((number, dtype, rank)) = number(build) {
        build.constant(1);
        return Ok(Kernel::one(move |mut args| {
            let x = args.float(0)?;
            if x.dtype() != dtype {
                return Err(OpError(format!("cannot combine {:?} with {dtype:?}", x.dtype())));
            }
            let x = raised(x, rank);
            if floats::has(&x) {
                return floats::changed(x, args.device, |x| (op.with_number)(x, number as f32));
            }
            Value::Float(x).with_axis(|x| Ok(Value::Float((op.by_number)(x.float()?, number.into()))))
        }));
    }
    Ok(Kernel::one(move |mut args| {
        let (a, b) = (args.take(0)?, args.take(1)?);
        apply(op, a, b, args.device)
    }))
}

/// The right argument, if it is a constant float tensor of one element: the number, its type and its rank.
fn number(build: &Build<'_>) -> Option<(f64, DType, usize)> {
    let value = build.peek(1)?;
    let number = host::float(value.clone()).ok()?;
    Some((number, value.dtype(), value.rank()))
}

fn apply(op: Binary, a: Value, b: Value, device: &DispatchDevice) -> Result<Value, OpError> {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) if are_alike(&a, &b) && a.shape().num_elements() < SHORT => {
            Ok(Value::Float((op.floats)(a, b)))
        }
        (Value::Float(a), Value::Float(b)) if are_alike(&a, &b) => {
            match floats::is_shared(&a) && !floats::is_shared(&b) {
                true => floats::combined(b, a, device, op.into_right),
                false => floats::combined(a, b, device, op.into_left),
            }
        }
        (Value::Float(a), Value::Float(b)) => match spread_over(op.spread, &a, &b, device)? {
            Some(y) => {
                [a, b].into_iter().for_each(floats::used_up);
                Ok(y)
            }
            None => Ok(Value::Float(on_tensors(op.floats, a, b)?)),
        },
        (a @ (Value::Int(_) | Value::Host(_)), b @ (Value::Int(_) | Value::Host(_))) => {
            match (op.spread_ints, a.dtype(), b.dtype()) {
                (Some((f, _)), DType::I32, DType::I32) => spread_ints(f, a, b, device),
                (Some((_, f)), DType::I64, DType::I64) => spread_ints(f, a, b, device),
                _ => host::zip_ints(a, b, device, op.ints),
            }
        }
        (a, b) => Err(OpError(format!("cannot combine {} with {}", a.kind(), b.kind()))),
    }
}

/// Whether two tensors are at hand, of one shape, and both in row-major order.
fn are_alike(a: &Handle, b: &Handle) -> bool {
    let dims = a.shape().to_vec();
    let in_order = |t: &Handle| Strided::of(t).is_some_and(|t| t.is_in_order(&dims));
    dims == b.shape().to_vec() && in_order(a) && in_order(b)
}

/// The result for two tensors by our own kernel; `None` where they are not at hand.
///
/// The result is in the order of the tensor that has its shape, so that what is transposed stays so: a transposition around
/// some arithmetic never copies anything.
pub(super) fn spread_over(
    f: Spread<f32>,
    a: &Handle,
    b: &Handle,
    device: &DispatchDevice,
) -> Result<Option<Value>, OpError> {
    let Some((dims, [left, right])) = broadcasting(a, b)? else { return Ok(None) };
    let leading = if b.shape().to_vec() == dims && a.shape().to_vec() != dims { &right } else { &left };
    let order = floats::memory_order(&dims, &leading.strides);
    let pick = |of: &[usize]| order.iter().map(|&axis| of[axis]).collect::<Vec<usize>>();
    let (of_left, of_right, inner) = (pick(&left.strides), pick(&right.strides), pick(&dims));
    let mut y = memory::take(elements(&dims)?);
    f(Pair { dims: &inner, left: side(&left, &of_left), right: side(&right, &of_right) }, &mut y);
    let y = floats::tensor(y, inner, device)?;
    Ok(Some(Value::Float(floats::turned_back(y.float()?, &order))))
}

/// A comparison of two tensors by our own kernel; `None` where they are not at hand.
pub(super) fn compared(
    f: fn(Pair<'_, f32>, &mut [bool]),
    a: &Handle,
    b: &Handle,
    device: &DispatchDevice,
) -> Result<Option<Value>, OpError> {
    let Some((dims, [left, right])) = broadcasting(a, b)? else { return Ok(None) };
    let mut y = vec![false; elements(&dims)?];
    f(Pair { dims: &dims, left: side(&left, &left.strides), right: side(&right, &right.strides) }, &mut y);
    Value::from_data(TensorData::new(y, dims), device).map(Some)
}

/// The shape that two tensors broadcast to, and both as they repeat in it.
type Broadcast<'a> = (Vec<usize>, [Strided<'a>; 2]);

/// `None` where one of them is not at hand.
fn broadcasting<'a>(a: &'a Handle, b: &'a Handle) -> Result<Option<Broadcast<'a>>, OpError> {
    let (Some(left), Some(right)) = (Strided::of(a), Strided::of(b)) else { return Ok(None) };
    let dims = broadcast(&a.shape(), &b.shape())?;
    let within = |of: Strided<'a>, own: &[usize]| Strided { strides: repeated(own, &of.strides, dims.len()), ..of };
    let sides = [within(left, &a.shape()), within(right, &b.shape())];
    Ok(Some((dims, sides)))
}

fn side<'a>(of: &Strided<'a>, strides: &'a [usize]) -> Side<'a, f32> {
    Side { numbers: &of.elements[of.start..], strides }
}

/// How far neighbours are apart in a tensor that has these dimensions in a shape of this rank; an axis of length one repeats.
fn repeated(own: &[usize], strides: &[usize], rank: usize) -> Vec<usize> {
    let each = own.iter().zip(strides).map(|(&length, &stride)| if length == 1 { 0 } else { stride });
    std::iter::repeat_n(0, rank - own.len()).chain(each).collect()
}

/// The result for two tensors of integers of one type.
fn spread_ints<E: Element>(f: Spread<E>, a: Value, b: Value, device: &DispatchDevice) -> Result<Value, OpError> {
    let (left, right) = (a.shape(), b.shape());
    let dims = broadcast(&left, &right)?;
    let strides = |own: &[usize]| {
        let mut strides = vec![1; own.len()];
        (1..own.len()).rev().for_each(|axis| strides[axis - 1] = strides[axis] * own[axis]);
        repeated(own, &strides, dims.len())
    };
    let (of_left, of_right) = (strides(&left), strides(&right));
    let (a, b) = (host::read::<E>(a)?, host::read::<E>(b)?);
    let mut y = vec![E::default(); elements(&dims)?];
    let (left, right) = (Side { numbers: &a, strides: &of_left }, Side { numbers: &b, strides: &of_right });
    f(Pair { dims: &dims, left, right }, &mut y);
    Value::from_data(TensorData::new(y, dims), device)
}

/// The sum of two values, as `Add` gives it.
pub(super) fn added(a: Value, b: Value, device: &DispatchDevice) -> Result<Value, OpError> {
    apply(ADD, a, b, device)
}

/// The product of two values, as `Mul` gives it.
pub(super) fn multiplied(a: Value, b: Value, device: &DispatchDevice) -> Result<Value, OpError> {
    apply(MUL, a, b, device)
}

/// The quotient of two values, as `Div` gives it.
pub(super) fn divided(a: Value, b: Value, device: &DispatchDevice) -> Result<Value, OpError> {
    apply(DIV, a, b, device)
}

/// The squares of a tensor's numbers.
pub(super) fn squared(x: Handle, device: &DispatchDevice) -> Result<Handle, OpError> {
    if floats::has(&x) {
        return floats::changed(x, device, |x| on_each(x, |x| x * x))?.float();
    }
    Ok(B::float_mul(x.clone(), x))
}

/// Applies an operation of two tensors of one type, whose shapes broadcast.
pub(super) fn on_tensors(f: impl Fn(Handle, Handle) -> Handle, a: Handle, b: Handle) -> Result<Handle, OpError> {
    if a.dtype() != b.dtype() {
        return Err(OpError(format!("cannot combine {:?} with {:?}", a.dtype(), b.dtype())));
    }
    let (a_shape, b_shape) = (a.shape(), b.shape());
    if a_shape.num_dims() + b_shape.num_dims() == 0 {
        return Ok(shaped(f(raised(a, 1), raised(b, 1)), a_shape));
    }
    if a_shape == b_shape {
        return Ok(f(a, b));
    }
    let rank = broadcast(&a_shape, &b_shape)?.len();
    Ok(f(raised(a, rank), raised(b, rank)))
}

/// The tensor with dimensions of 1 in front, up to `rank`.
fn raised(t: Handle, rank: usize) -> Handle {
    let dims = t.shape();
    if dims.num_dims() >= rank {
        return t;
    }
    shaped(t, lift(&dims, rank).into())
}

fn shaped(t: Handle, dims: Shape) -> Handle {
    match t.dtype() {
        DType::Bool(_) => B::bool_reshape(t, dims),
        dtype if dtype.is_float() => B::float_reshape(t, dims),
        _ => B::int_reshape(t, dims),
    }
}

/// A kernel of two arguments.
fn pairs(f: fn(Value, Value, &DispatchDevice) -> Result<Value, OpError>) -> Result<Kernel, OpError> {
    Ok(Kernel::one(move |mut args| {
        let (a, b) = (args.take(0)?, args.take(1)?);
        f(a, b, args.device)
    }))
}

/// A kernel that combines all its arguments, one after the other.
fn all(f: fn(Value, Value, &DispatchDevice) -> Result<Value, OpError>) -> Result<Kernel, OpError> {
    Ok(Kernel::one(move |mut args| folded(args.all(), args.device, f)))
}

fn folded(
    parts: Vec<Value>,
    device: &DispatchDevice,
    f: fn(Value, Value, &DispatchDevice) -> Result<Value, OpError>,
) -> Result<Value, OpError> {
    let mut parts = parts.into_iter();
    let first = parts.next().ok_or_else(|| OpError::new("it has no arguments"))?;
    parts.try_fold(first, |a, b| f(a, b, device))
}

/// The greater of each two numbers; not a number wins over all.
fn greater(a: Value, b: Value, device: &DispatchDevice) -> Result<Value, OpError> {
    let near: Spread<f32> = |pair, y| spread(pair, y, |a, b| if a.is_nan() || a > b { a } else { b });
    match near_by(near, &a, &b, device)? {
        Some(y) => Ok(y),
        None if matches!(a, Value::Float(_)) => {
            host::zip_floats(a, b, device, |a, b| if a.is_nan() || a > b { a } else { b })
        }
        None => host::zip_ints(a, b, device, |a, b| Ok(a.max(b))),
    }
}

/// The lesser of each two numbers; not a number wins over all.
fn less(a: Value, b: Value, device: &DispatchDevice) -> Result<Value, OpError> {
    let near: Spread<f32> = |pair, y| spread(pair, y, |a, b| if a.is_nan() || a < b { a } else { b });
    match near_by(near, &a, &b, device)? {
        Some(y) => Ok(y),
        None if matches!(a, Value::Float(_)) => {
            host::zip_floats(a, b, device, |a, b| if a.is_nan() || a < b { a } else { b })
        }
        None => host::zip_ints(a, b, device, |a, b| Ok(a.min(b))),
    }
}

/// The result by our own kernel for tensors of floats that are at hand.
fn near_by(f: Spread<f32>, a: &Value, b: &Value, device: &DispatchDevice) -> Result<Option<Value>, OpError> {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => spread_over(f, a, b, device),
        _ => Ok(None),
    }
}

/// The remainder with the divisor's sign, as Python's `%`.
fn rest(a: Value, b: Value, device: &DispatchDevice) -> Result<Value, OpError> {
    match &a {
        Value::Float(_) => host::zip_floats(a, b, device, |a, b| {
            let rest = a % b;
            if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
        }),
        _ => host::zip_ints(a, b, device, |a, b| {
            let rest = remainder(a, b)?;
            Ok(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
        }),
    }
}

/// The remainder with the dividend's sign, as C's `fmod`.
fn truncated_rest(a: Value, b: Value, device: &DispatchDevice) -> Result<Value, OpError> {
    match &a {
        Value::Float(_) => host::zip_floats(a, b, device, |a, b| a % b),
        _ => host::zip_ints(a, b, device, remainder),
    }
}

/// Bits that leave the type on the left are lost. The widest type has 64 bits, and by more all are.
fn shifted_left(a: Value, by: Value, device: &DispatchDevice) -> Result<Value, OpError> {
    host::zip_ints(a, by, device, |a, by| Ok(if (0..64).contains(&by) { a << by } else { 0 }))
}

/// Repeats the sign on the left.
fn shifted_right(a: Value, by: Value, device: &DispatchDevice) -> Result<Value, OpError> {
    host::zip_ints(a, by, device, |a, by| Ok(if (0..64).contains(&by) { a >> by } else { a >> 64 }))
}

/// The largest exponent that is taken as one number for all: burn panics where it is whole and beyond an `i64`.
const LARGEST_EXPONENT: f64 = 1e9;

/// A power, whose type is the base's; the exponent may be of another.
fn pow(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let exponent = build.peek(1).cloned().and_then(|exponent| exponent.cast(DType::F64, build.device).ok());
    let known = exponent.and_then(|e| Some((host::float(e.clone()).ok()?, e.rank())));
    // burn tells whole exponents by an `i64`.
    let Some((exponent, rank)) = known.filter(|(exponent, _)| exponent.is_nan() || exponent.abs() <= LARGEST_EXPONENT)
    else {
        return pairs(power);
    };
    Ok(Kernel::one(move |mut args| match args.take(0)? {
        Value::Float(x) => Ok(Value::Float(B::float_powf_scalar(raised(x, rank), exponent.into()))),
        base => power(base, args.take(1)?, args.device),
    }))
}

fn power(base: Value, exponent: Value, device: &DispatchDevice) -> Result<Value, OpError> {
    let dtype = base.dtype();
    match (base, exponent) {
        (Value::Float(base), exponent) => {
            Ok(Value::Float(on_tensors(B::float_powf, base, exponent.cast(dtype, device)?.float()?)?))
        }
        (base, exponent @ Value::Float(_)) => {
            let (base, exponent) = (base.cast(DType::F64, device)?, exponent.cast(DType::F64, device)?);
            power(base, exponent, device)?.cast(dtype, device)
        }
        (base, exponent) => host::zip_ints(base, exponent.cast(dtype, device)?, device, int_power),
    }
}

/// Rounds towards zero where the exponent is negative.
fn int_power(base: i128, exponent: i128) -> Result<i128, OpError> {
    match (base, exponent) {
        (0, ..0) => Err(OpError(format!("0 to the power of {exponent} does not exist"))),
        (0 | 1, _) => Ok(if exponent == 0 { 1 } else { base }),
        (-1, _) => Ok(if exponent % 2 == 0 { 1 } else { -1 }),
        (_, ..0) => Ok(0),
        _ => {
            let exponent = u32::try_from(exponent).map_err(|_| OpError(format!("an exponent of {exponent}")))?;
            Ok(base.wrapping_pow(exponent))
        }
    }
}

/// A bound of `Clip`: a number known now, or an argument.
enum Bound {
    None,
    Known(f64),
    Argument(usize),
}

fn bound(build: &mut Build<'_>, name: &str, i: usize) -> Result<Bound, OpError> {
    if build.attributes.has(name) {
        return Ok(Bound::Known(build.attributes.float(name, 0.0)?.into()));
    }
    Ok(match build.peek(i) {
        Some(value @ Value::Float(_)) => Bound::Known(host::float(value.clone())?),
        _ if build.has(i) => Bound::Argument(i),
        _ => Bound::None,
    })
}

fn clip(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let (min, max) = (bound(build, "min", 1)?, bound(build, "max", 2)?);
    Ok(Kernel::one(move |mut args| match args.take(0)? {
        Value::Float(mut x) => {
            let mut limit = |bound: &Bound| match bound {
                Bound::None => Ok(None),
                Bound::Known(limit) => Ok(Some(*limit)),
                Bound::Argument(i) => host::float(args.take(*i)?).map(Some),
            };
            let (min, max) = (limit(&min)?, limit(&max)?);
            if floats::has(&x) {
                let (min, max) = (min.unwrap_or(f64::NEG_INFINITY) as f32, max.unwrap_or(f64::INFINITY) as f32);
                return floats::changed(x, args.device, |x| Activation::Clip(min, max).run(x));
            }
            if let Some(min) = min {
                x = B::float_clamp_min(x, min.into());
            }
            if let Some(max) = max {
                x = B::float_clamp_max(x, max.into());
            }
            Ok(Value::Float(x))
        }
        x => {
            let limit = |bound: &Bound, args: &mut Args<'_>| match bound {
                Bound::None => Ok(None),
                Bound::Known(limit) => Err(OpError(format!("cannot bound {:?} by the float {limit}", x.dtype()))),
                Bound::Argument(i) => host::int(args.take(*i)?).map(Some),
            };
            let (min, max) = (limit(&min, &mut args)?, limit(&max, &mut args)?);
            // Where the bounds contradict each other the upper one counts.
            let clipped = move |x: i128| x.max(min.unwrap_or(x)).min(max.unwrap_or(i128::MAX));
            host::map_ints(x, args.device, clipped)
        }
    }))
}

#[cfg(test)]
mod tests;
