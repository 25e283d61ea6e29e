//! Arithmetic element by element: binary operators with numpy's broadcasting, and functions of one number.

use burn_backend::ops::{FloatTensorOps, IntTensorOps};
use burn_backend::{DType, Scalar, TensorMetadata};
use burn_dispatch::DispatchDevice;

use super::activation::each;
use super::{Args, Build, Kernel, Operator};
use crate::runner::onnx::value::{Backend as B, Handle, HostInts, OpError, Value, broadcast, lift};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Abs", |_| each(B::float_abs)),
    Operator::new("Add", |build| binary(ADD, build)),
    Operator::new("Clip", clip),
    Operator::new("Div", |build| binary(DIV, build)),
    Operator::new("Erf", |_| each(B::float_erf)),
    Operator::new("Exp", |_| each(B::float_exp)),
    Operator::new("Log", |_| each(B::float_log)),
    Operator::new("Mul", |build| binary(MUL, build)),
    Operator::new("Neg", |_| each(B::float_neg)),
    Operator::new("Pow", |build| binary(POW, build)),
    Operator::new("Reciprocal", |_| each(B::float_recip)),
    Operator::new("Sqrt", |_| each(B::float_sqrt)),
    Operator::new("Sub", |build| binary(SUB, build)),
];

/// One binary operator in every form that its arguments can take.
#[derive(Clone, Copy)]
struct Binary {
    floats: fn(Handle, Handle) -> Handle,
    float_scalar: Option<fn(Handle, Scalar) -> Handle>,
    ints: Option<fn(Handle, Handle) -> Handle>,
    /// On host integers; `None` where the result does not exist.
    host: fn(i64, i64) -> Option<i64>,
}

const ADD: Binary = Binary {
    floats: B::float_add,
    float_scalar: Some(B::float_add_scalar),
    ints: Some(B::int_add),
    host: i64::checked_add,
};
const SUB: Binary = Binary {
    floats: B::float_sub,
    float_scalar: Some(B::float_sub_scalar),
    ints: Some(B::int_sub),
    host: i64::checked_sub,
};
const MUL: Binary = Binary {
    floats: B::float_mul,
    float_scalar: Some(B::float_mul_scalar),
    ints: Some(B::int_mul),
    host: i64::checked_mul,
};
// Integer division on tensors stays out: a zero among a caller's numbers would panic, and exporters divide shapes only.
const DIV: Binary =
    Binary { floats: B::float_div, float_scalar: Some(B::float_div_scalar), ints: None, host: i64::checked_div };
const POW: Binary =
    Binary { floats: B::float_powf, float_scalar: Some(B::float_powf_scalar), ints: None, host: host_power };

fn host_power(base: i64, exponent: i64) -> Option<i64> {
    base.checked_pow(u32::try_from(exponent).ok()?)
}

fn binary(op: Binary, build: &mut Build<'_>) -> Result<Kernel, OpError> {
    if let (Some(scalar), Some(on_scalar)) = (constant_scalar(build), op.float_scalar) {
        let (value, rank) = scalar;
        build.constant(1);
        return Ok(Kernel::one(move |mut args| {
            let x = args.float(0)?;
            let x = if x.shape().num_dims() < rank { reshaped(x, rank) } else { x };
            Ok(Value::Float(on_scalar(x, value)))
        }));
    }
    Ok(Kernel::one(move |mut args| {
        let (a, b) = (args.take(0)?, args.take(1)?);
        apply(op, a, b, args.device)
    }))
}

/// The right argument, if it is a single constant float: then no tensor is broadcast.
fn constant_scalar(build: &Build<'_>) -> Option<(Scalar, usize)> {
    let value = build.peek(1)?;
    let Value::Float(handle) = value else { return None };
    if handle.dtype() != DType::F32 || handle.shape().num_elements() != 1 {
        return None;
    }
    let rank = value.rank();
    let number = value.clone().into_data().ok()?.try_into_vec::<f32>().ok()?.pop()?;
    Some((number.into(), rank))
}

fn apply(op: Binary, a: Value, b: Value, device: &DispatchDevice) -> Result<Value, OpError> {
    match (a, b) {
        (Value::Host(a), Value::Host(b)) => on_host(op, &a, &b).map(Value::Host),
        (Value::Float(a), Value::Float(b)) => Ok(Value::Float(on_tensors(op.floats, a, b)?)),
        (a @ (Value::Int(_) | Value::Host(_)), b @ (Value::Int(_) | Value::Host(_))) => {
            let Some(ints) = op.ints else { return Err(OpError::new("integer tensors are not supported here")) };
            Ok(Value::Int(on_tensors(ints, a.int_tensor(device)?, b.int_tensor(device)?)?))
        }
        (a, b) => Err(OpError(format!("cannot combine {} with {}", a.kind(), b.kind()))),
    }
}

/// The sum of two values, as `Add` gives it.
pub(super) fn added(a: Value, b: Value, device: &DispatchDevice) -> Result<Value, OpError> {
    apply(ADD, a, b, device)
}

fn on_tensors(f: fn(Handle, Handle) -> Handle, a: Handle, b: Handle) -> Result<Handle, OpError> {
    if a.dtype() != b.dtype() {
        return Err(OpError(format!("cannot combine {:?} with {:?}", a.dtype(), b.dtype())));
    }
    let (a_shape, b_shape) = (a.shape(), b.shape());
    if a_shape == b_shape {
        return Ok(f(a, b));
    }
    let rank = broadcast(&a_shape, &b_shape)?.len();
    Ok(f(reshaped(a, rank), reshaped(b, rank)))
}

fn on_host(op: Binary, a: &HostInts, b: &HostInts) -> Result<HostInts, OpError> {
    let (n, m) = (a.ints.len(), b.ints.len());
    if n != m && n != 1 && m != 1 {
        return Err(OpError(format!("vectors of {n} and {m} integers do not broadcast")));
    }
    let count = if n == 0 || m == 0 { 0 } else { n.max(m) };
    let ints = (0..count).map(|i| {
        let (x, y) = (a.ints[i % n], b.ints[i % m]);
        (op.host)(x, y).ok_or_else(|| OpError(format!("the result of {x} and {y} does not exist")))
    });
    Ok(HostInts { ints: ints.collect::<Result<_, _>>()?, scalar: a.scalar && b.scalar })
}

/// The tensor with dimensions of 1 in front, up to `rank`.
fn reshaped(t: Handle, rank: usize) -> Handle {
    let dims = t.shape();
    if dims.num_dims() >= rank {
        return t;
    }
    let dims = lift(&dims, rank);
    if t.dtype().is_float() { B::float_reshape(t, dims.into()) } else { B::int_reshape(t, dims.into()) }
}

/// A bound of `Clip`: known now, or an argument.
enum Bound {
    None,
    Known(f32),
    Argument(usize),
}

fn bound(build: &mut Build<'_>, name: &str, i: usize) -> Result<Bound, OpError> {
    if build.attributes.has(name) {
        return Ok(Bound::Known(build.attributes.float(name, 0.0)?));
    }
    Ok(if build.has(i) { Bound::Argument(i) } else { Bound::None })
}

fn clip(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let (min, max) = (bound(build, "min", 1)?, bound(build, "max", 2)?);
    Ok(Kernel::one(move |mut args| {
        let mut x = args.float(0)?;
        if let Some(limit) = limit(&min, &mut args)? {
            x = B::float_clamp_min(x, limit);
        }
        if let Some(limit) = limit(&max, &mut args)? {
            x = B::float_clamp_max(x, limit);
        }
        Ok(Value::Float(x))
    }))
}

fn limit(bound: &Bound, args: &mut Args<'_>) -> Result<Option<Scalar>, OpError> {
    match bound {
        Bound::None => Ok(None),
        Bound::Known(limit) => Ok(Some((*limit).into())),
        Bound::Argument(i) => {
            let data = args.take(*i)?.into_data()?.convert_dtype(DType::F32);
            let limit = data.try_into_vec::<f32>().map_err(|e| OpError::new(e.to_string()))?.pop();
            Ok(limit.map(Scalar::from))
        }
    }
}
