//! Matrix products.

use burn_backend::ops::{FloatTensorOps, IntTensorOps};
use burn_backend::{DType, IntDType, Shape, TensorMetadata};
use burn_dispatch::DispatchDevice;

use super::{Build, Kernel, Operator};
use crate::runner::onnx::value::{Backend as B, Handle, OpError, Value, broadcast, elements, lift};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Gemm", gemm),
    Operator::new("MatMul", |build| {
        if build.peek(1).is_some_and(|w| w.rank() == 2 && matches!(w, Value::Float(_))) {
            let weight = weight(build, false)?;
            return linear(weight, None);
        }
        Ok(Kernel::one(|mut args| product(args.take(0)?, args.take(1)?, args.device)))
    }),
];

/// Small integers less their zero points, in a type that keeps their products' sums exact.
pub(super) fn centered(x: Value, points: Option<Value>, device: &DispatchDevice) -> Result<Handle, OpError> {
    let x = x.cast(DType::F64, device)?.float()?;
    let Some(points) = points else { return Ok(x) };
    let points = points.cast(DType::F64, device)?;
    let rank = x.shape().num_dims();
    if *broadcast(&points.shape(), &x.shape())? != *x.shape() {
        return Err(OpError(format!("zero points of shape {:?} do not fit {:?}", points.shape(), x.shape())));
    }
    let dims = lift(&points.shape(), rank);
    Ok(B::float_sub(x, points.reshape(dims)?.float()?))
}

/// A product of floats or integers.
fn product(a: Value, b: Value, device: &DispatchDevice) -> Result<Value, OpError> {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => matmul(a, b).map(Value::Float),
        (a, b) => {
            let (a, b) = (a.int_tensor(device)?, b.int_tensor(device)?);
            let kind = a.dtype();
            if kind != b.dtype() {
                return Err(OpError(format!("cannot multiply {kind:?} with {:?}", b.dtype())));
            }
            let [a, b] = [a, b].map(|t| B::int_cast(t, IntDType::I64));
            let y = multiplied(a, b, B::int_reshape, B::int_matmul)?;
            Ok(Value::Int(B::int_cast(y, IntDType::from(kind))))
        }
    }
}

/// alpha · A' · B' + beta · C
fn gemm(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let (alpha, beta) = (build.attributes.float("alpha", 1.0)?, build.attributes.float("beta", 1.0)?);
    let (turn_a, turn_b) = (build.attributes.flag("transA", false)?, build.attributes.flag("transB", false)?);
    build.attributes.int("broadcast", 0)?; // opset 6 and before
    let plain = alpha == 1.0 && !turn_a && (beta == 1.0 || !build.has(2));
    let flat_bias = !build.has(2) || build.peek(2).is_some_and(|c| c.rank() <= 1);
    if plain && flat_bias && build.peek(1).is_some_and(|weight| weight.rank() == 2) {
        let weight = weight(build, turn_b)?;
        return linear(weight, bias(build)?);
    }
    Ok(general(alpha, beta, turn_a, turn_b))
}

/// Takes the constant weight out, as [inputs, outputs] in memory: laid out once here, not in every product.
fn weight(build: &mut Build<'_>, transposed: bool) -> Result<Handle, OpError> {
    let weight = build.constant(1).ok_or_else(|| OpError::new("the weight is not constant"))?.float()?;
    if !transposed {
        return Ok(weight);
    }
    let turned = Value::Float(B::float_transpose(weight)).into_data()?;
    Value::from_data(turned, build.device)?.float()
}

/// Takes the bias out, as [1, outputs] where it is constant.
fn bias(build: &mut Build<'_>) -> Result<Option<Handle>, OpError> {
    match build.constant(2) {
        Some(bias) => {
            let count = elements(&bias.shape())?;
            Ok(Some(bias.reshape(vec![1, count])?.float()?))
        }
        None if build.has(2) => Err(OpError::new("the bias is not constant")),
        None => Ok(None),
    }
}

/// x · weight + bias over the last dimension of x.
fn linear(weight: Handle, bias: Option<Handle>) -> Result<Kernel, OpError> {
    let [inputs, outputs] = weight.shape().dims::<2>();
    if let Some(bias) = &bias {
        let [_, found] = bias.shape().dims::<2>();
        if found != outputs && found != 1 {
            return Err(OpError(format!("the bias has {found} elements for {outputs} outputs")));
        }
        if bias.dtype() != weight.dtype() {
            return Err(OpError::new("weight and bias differ in type"));
        }
    }
    Ok(Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let mut dims = x.shape();
        match dims.last() {
            Some(&last) if last == inputs => {}
            _ => return Err(OpError(format!("a weight of {inputs} inputs does not fit the shape {dims:?}"))),
        }
        let rows = elements(&dims[..dims.len() - 1])?;
        let x = x.reshape(vec![rows, inputs])?.float()?;
        if x.dtype() != weight.dtype() {
            return Err(OpError(format!("cannot multiply {:?} with {:?}", x.dtype(), weight.dtype())));
        }
        let mut y = B::float_matmul(x, weight.clone());
        if let Some(bias) = &bias {
            y = B::float_add(y, bias.clone());
        }
        if let Some(last) = dims.last_mut() {
            *last = outputs;
        }
        Value::Float(y).reshape(dims)
    }))
}

/// `Gemm` with factors that are not constant, or scaled.
fn general(alpha: f32, beta: f32, turn_a: bool, turn_b: bool) -> Kernel {
    Kernel::one(move |mut args| {
        let (a, b) = (args.float(0)?, args.float(1)?);
        if a.shape().num_dims() != 2 || b.shape().num_dims() != 2 {
            return Err(OpError::new("the factors are not matrices"));
        }
        let a = if turn_a { B::float_transpose(a) } else { a };
        let b = if turn_b { B::float_transpose(b) } else { b };
        let mut y = matmul(a, b)?;
        if alpha != 1.0 {
            y = B::float_mul_scalar(y, alpha.into());
        }
        let Some(c) = args.optional(2) else { return Ok(Value::Float(y)) };
        let c = c.float()?;
        if c.dtype() != y.dtype() {
            return Err(OpError(format!("cannot add {:?} to {:?}", c.dtype(), y.dtype())));
        }
        let out = y.shape();
        if *broadcast(&c.shape(), &out)? != *out {
            return Err(OpError(format!("C of shape {:?} does not broadcast to {out:?}", c.shape())));
        }
        let dims = lift(&c.shape(), 2);
        let mut c = B::float_reshape(c, Shape::from(dims));
        if beta != 1.0 {
            c = B::float_mul_scalar(c, beta.into());
        }
        Ok(Value::Float(B::float_add(y, c)))
    })
}

/// numpy's `matmul`: vectors gain a dimension for the product, leading dimensions broadcast.
pub(super) fn matmul(a: Handle, b: Handle) -> Result<Handle, OpError> {
    if a.dtype() != b.dtype() {
        return Err(OpError(format!("cannot multiply {:?} with {:?}", a.dtype(), b.dtype())));
    }
    multiplied(a, b, B::float_reshape, B::float_matmul)
}

/// numpy's `matmul`: vectors gain a dimension for the product, leading dimensions broadcast.
fn multiplied(
    a: Handle,
    b: Handle,
    reshape: fn(Handle, Shape) -> Handle,
    multiply: fn(Handle, Handle) -> Handle,
) -> Result<Handle, OpError> {
    let (mut left, mut right) = (a.shape().to_vec(), b.shape().to_vec());
    if left.is_empty() || right.is_empty() {
        return Err(OpError::new("a factor has no dimensions"));
    }
    let (left_vector, right_vector) = (left.len() == 1, right.len() == 1);
    if left_vector {
        left.insert(0, 1);
    }
    if right_vector {
        right.push(1);
    }
    let (n, m) = (left.len(), right.len());
    if left[n - 1] != right[m - 2] {
        return Err(OpError(format!("matrices of shape {left:?} and {right:?} do not multiply")));
    }
    let mut out = broadcast(&left[..n - 2], &right[..m - 2])?;
    out.extend([left[n - 2], right[m - 1]]);
    elements(&out)?;
    let rank = n.max(m);
    let a = reshape(a, Shape::from(lift(&left, rank)));
    let b = reshape(b, Shape::from(lift(&right, rank)));
    let y = multiply(a, b);
    if left_vector {
        out.remove(rank - 2);
    }
    if right_vector {
        out.pop();
    }
    Ok(if left_vector || right_vector { reshape(y, Shape::from(out)) } else { y })
}
