//! Matrix products.

use std::collections::hash_map::Entry;

use burn_backend::ops::{FloatTensorOps, IntTensorOps};
use burn_backend::{DType, FloatDType, IntDType, Shape, TensorMetadata};
use burn_dispatch::DispatchDevice;
use rayon::prelude::*;

use super::after::After;
use super::{Build, Kernel, Operator};
use crate::fast::activation::Activation;
use crate::fast::product::{Linear, Matrix, Panels, product};
use crate::fast::share;
use crate::floats::{self, Floats, Strided};
use crate::memory;
use crate::value::{Backend as B, Handle, OpError, Value, broadcast, elements, lift};

pub(super) const OPERATORS: &[Operator] = &[Operator::new("Gemm", gemm), Operator::new("MatMul", matrix_product)];

/// A product of matrices; one that was joined to a bias has it as its third argument.
fn matrix_product(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    if build.has(2) && build.is_plain() {
        return Err(OpError::new("it has more than two factors"));
    }
    if build.peek(1).is_some_and(|w| w.rank() == 2 && matches!(w, Value::Float(_))) {
        return linear(build, false);
    }
    Ok(Kernel::one(|mut args| {
        let (a, b) = match (args.take(0)?, args.take(1)?) {
            (Value::Float(a), Value::Float(b)) => (a, b),
            (a, b) => return of_integers(a, b, args.device),
        };
        if let Some(y) = fast_matmul(&a, &b, args.device)? {
            [a, b].into_iter().for_each(floats::used_up);
            return Ok(y);
        }
        matmul(a, b).map(Value::Float)
    }))
}

/// Small integers less their zero points, in a type that keeps their products' sums exact.
pub(super) fn centered(x: Value, points: Option<Value>, device: &DispatchDevice) -> Result<Handle, OpError> {
    let x = x.cast(DType::F64, device)?.float()?;
    let Some(points) = points else { return Ok(x) };
    let points = points.cast(DType::F64, device)?;
    let rank = x.shape().num_dims();
    if *broadcast(&points.shape(), &x.shape())? != *x.shape() {
        return Err(OpError(format!(
            "zero points of shape {:?} do not fit {:?}",
            points.shape().to_vec(),
            x.shape().to_vec()
        )));
    }
    let dims = lift(&points.shape(), rank);
    Ok(B::float_sub(x, points.reshape(dims)?.float()?))
}

/// A product of integers.
fn of_integers(a: Value, b: Value, device: &DispatchDevice) -> Result<Value, OpError> {
    let (a, b) = (a.int_tensor(device)?, b.int_tensor(device)?);
    let kind = a.dtype();
    if kind != b.dtype() {
        return Err(OpError(format!("cannot multiply {kind:?} with {:?}", b.dtype())));
    }
    let [a, b] = [a, b].map(|t| B::int_cast(t, IntDType::I64));
    let zeros = |like: &Handle, shape| B::int_zeros(shape, &like.device(), IntDType::I64);
    let y = multiplied(a, b, B::int_reshape, B::int_matmul, zeros)?;
    Ok(Value::Int(B::int_cast(y, IntDType::from(kind))))
}

/// alpha · A' · B' + beta · C
fn gemm(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let (alpha, beta) = (build.attributes.float("alpha", 1.0)?, build.attributes.float("beta", 1.0)?);
    let (turn_a, turn_b) = (build.attributes.flag("transA", false)?, build.attributes.flag("transB", false)?);
    build.attributes.int("broadcast", 0)?; // opset 6 and before
    let plain = alpha == 1.0 && !turn_a && (beta == 1.0 || !build.has(2));
    let flat_bias = !build.has(2) || build.peek(2).is_some_and(|c| c.rank() <= 1);
    if plain && flat_bias && build.peek(1).is_some_and(|weight| weight.rank() == 2) {
        return linear(build, turn_b);
    }
    Ok(general(alpha, beta, turn_a, turn_b))
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

/// x · weight + bias over the last dimension of x, and what follows. The weight is a constant matrix, laid out once.
fn linear(build: &mut Build<'_>, transposed: bool) -> Result<Kernel, OpError> {
    let weight = build.constant(1).ok_or_else(|| OpError::new("the weight is not constant"))?.float()?;
    let (bias, after) = (bias(build)?, After::of(build));
    let [mut inputs, mut outputs] = weight.shape().dims::<2>();
    if transposed {
        (inputs, outputs) = (outputs, inputs);
    }
    if let Some(bias) = &bias {
        let [_, found] = bias.shape().dims::<2>();
        if found != outputs && found != 1 {
            return Err(OpError(format!("the bias has {found} elements for {outputs} outputs")));
        }
        if bias.dtype() != weight.dtype() {
            return Err(OpError::new("weight and bias differ in type"));
        }
    }
    if floats::has(&weight) {
        let name = build.node.file.input[1].clone();
        let mut known = build.laid_out.0.borrow_mut();
        let panels = match known.entry((name, transposed)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Panels::new(floats::into_vec(weight)?, transposed, [inputs, outputs])),
        };
        let bias = bias.map(floats::into_vec).transpose()?;
        let bias = bias.map(|bias| if bias.len() == outputs { bias } else { vec![bias[0]; outputs] });
        return Ok(fast(Linear::new(panels.clone(), bias), after));
    }
    let weight = match transposed {
        true => Value::from_data(Value::Float(B::float_transpose(weight)).into_data()?, build.device)?.float()?,
        false => weight,
    };
    Ok(Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let mut dims = linear_dims(&x, inputs)?;
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
        after.finish(Value::Float(y).reshape(dims)?, &mut args)
    }))
}

/// The shape of a factor whose last dimension is as long as a weight has inputs.
fn linear_dims(x: &Value, inputs: usize) -> Result<Vec<usize>, OpError> {
    let dims = x.shape();
    match dims.last() {
        Some(&last) if last == inputs => Ok(dims),
        _ => Err(OpError(format!("a weight of {inputs} inputs does not fit the shape {dims:?}"))),
    }
}

/// x · weight + bias by our own kernel.
fn fast(linear: Linear, after: After) -> Kernel {
    let [inputs, outputs] = linear.size();
    Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let mut dims = linear_dims(&x, inputs)?;
        if let Some(last) = dims.last_mut() {
            *last = outputs;
        }
        let x = x.float()?;
        let Some(rows) = Floats::of(&x) else {
            return Err(OpError(format!("cannot multiply {:?} with F32", x.dtype())));
        };
        let term = after.term(&mut args, &dims);
        let waits = after.waits(&mut args);
        let activation = if waits { Activation::None } else { after.activation };
        let mut y = memory::take(elements(&dims)?);
        linear.run(rows.as_slice(), term.as_ref().map(Floats::as_slice), activation, &mut y);
        drop(x);
        rows.used_up();
        term.into_iter().for_each(Floats::used_up);
        let y = floats::tensor(y, dims, args.device)?;
        if waits { after.finish(y, &mut args) } else { Ok(y) }
    })
}

/// The product of two computed matrices, or of two stacks of as many matrices, where they lie in memory.
///
/// `None` for what `matmul` is there for: other types and backends, vectors, stacks that broadcast.
fn fast_matmul(a: &Handle, b: &Handle, device: &DispatchDevice) -> Result<Option<Value>, OpError> {
    let (left, right) = (a.shape().to_vec(), b.shape().to_vec());
    let rank = left.len();
    if rank < 2 || right.len() != rank || left[..rank - 2] != right[..rank - 2] || left[rank - 1] != right[rank - 2] {
        return Ok(None);
    }
    let (Some(a), Some(b)) = (Strided::of(a), Strided::of(b)) else { return Ok(None) };
    let (stack, terms, width) = (&left[..rank - 2], left[rank - 1], right[rank - 1]);
    let mut dims = left.clone();
    dims[rank - 1] = width;
    let mut y = memory::take(elements(&dims)?);
    let each = left[rank - 2] * width;
    let work = |(at, y): (usize, &mut [f32])| product(matrix(&a, stack, at), matrix(&b, stack, at), [terms, width], y);
    if each == 0 || terms == 0 {
        y.fill(0.0); // empty sums
    } else {
        let threads = share::threads(y.len() * terms);
        let together = y.len().div_ceil(each).div_ceil(threads);
        y.par_chunks_mut(each).enumerate().with_min_len(together).for_each(work);
    }
    floats::tensor(y, dims, device).map(Some)
}

/// Matrix `at` of a stack with these leading dimensions.
fn matrix<'a>(matrices: &Strided<'a>, stack: &[usize], at: usize) -> Matrix<'a> {
    let (mut rest, mut offset) = (at, matrices.start);
    for (&count, stride) in stack.iter().zip(&matrices.strides).rev() {
        offset += rest % count * stride;
        rest /= count;
    }
    let rank = stack.len();
    Matrix { data: &matrices.elements[offset..], rows: matrices.strides[rank], columns: matrices.strides[rank + 1] }
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
            return Err(OpError(format!("C of shape {:?} does not broadcast to {out:?}", c.shape().to_vec())));
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
    let zeros = |like: &Handle, shape| B::float_zeros(shape, &like.device(), FloatDType::from(like.dtype()));
    multiplied(a, b, B::float_reshape, B::float_matmul, zeros)
}

/// numpy's `matmul`: vectors gain a dimension for the product, leading dimensions broadcast.
fn multiplied(
    a: Handle,
    b: Handle,
    reshape: fn(Handle, Shape) -> Handle,
    multiply: fn(Handle, Handle) -> Handle,
    zeros: fn(&Handle, Shape) -> Handle,
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
    let rank = n.max(m);
    // burn takes the longer of two batch axes, 1 of 0 and 1, and reads a matrix that is not there.
    let is_empty = elements(&out)? == 0 || left[n - 1] == 0;
    let y = if is_empty {
        zeros(&a, Shape::from(out.clone()))
    } else {
        let a = reshape(a, Shape::from(lift(&left, rank)));
        multiply(a, reshape(b, Shape::from(lift(&right, rank))))
    };
    if left_vector {
        out.remove(rank - 2);
    }
    if right_vector {
        out.pop();
    }
    Ok(if left_vector || right_vector { reshape(y, Shape::from(out)) } else { y })
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use crate::author::Attribute::Int;
    use crate::author::{Author, FREE};

    #[test]
    fn a_factor_that_was_expanded_is_multiplied_as_what_it_stands_for() {
        let author = Author::new(17).input("x", &[FREE, 2]).input("w", &[1, 1]).output("y", &[FREE, 3]);
        let author = author.ints("shape", &[2], &[2, 3]).node("Expand", &["w", "shape"], &["e"], &[]);
        let author = author.node("MatMul", &["x", "e"], &["y"], &[]);
        let given = vec![TensorData::from([[1f32, 2.0], [3.0, 4.0]]), TensorData::from([[10f32]])];
        let expected = TensorData::from([[30f32, 30.0, 30.0], [70.0, 70.0, 70.0]]);
        assert_eq!(author.answer(given), Ok(vec![expected]));
    }

    #[test]
    fn a_product_without_elements_reads_no_matrix() {
        let product = |a: [usize; 3], b: [usize; 3], out: [usize; 3]| {
            let declared = |dims: [usize; 3]| dims.map(|n| n as i64);
            let author = Author::new(17).input("a", &declared(a)).input("b", &declared(b));
            let author = author.output("y", &declared(out));
            let given = [a, b].map(|dims| TensorData::new(vec![1f32; dims.iter().product()], dims));
            let y = author.node("MatMul", &["a", "b"], &["y"], &[]).answer(given.to_vec());
            assert_eq!(y, Ok(vec![TensorData::new(vec![0f32; out.iter().product()], out)]));
        };
        product([0, 17, 16], [1, 16, 33], [0, 17, 33]);
        product([1, 17, 16], [0, 16, 33], [0, 17, 33]);
        product([2, 3, 0], [1, 0, 4], [2, 3, 4]);
    }

    #[test]
    fn one_weight_is_shared_by_products_and_its_transposition_is_another() {
        let author = Author::new(17).input("x", &[FREE, 2]).floats("w", &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let author = author.output("a", &[FREE, 2]).output("b", &[FREE, 2]).output("c", &[FREE, 2]);
        let author = author.node("MatMul", &["x", "w"], &["a"], &[]);
        let author = author.node("Gemm", &["x", "w"], &["b"], &[("transB", Int(1))]);
        let found = author.node("MatMul", &["x", "w"], &["c"], &[]).answer(vec![TensorData::from([[1f32, 10.0]])]);
        let [plain, turned] = [[[31f32, 42.0]], [[21f32, 43.0]]].map(TensorData::from);
        assert_eq!(found, Ok(vec![plain.clone(), turned, plain]));
    }

    #[test]
    fn a_sum_of_nothing_is_the_bias() {
        let author = Author::new(17).input("x", &[FREE, FREE]).output("y", &[FREE, 2]);
        let author = author.floats("w", &[0, 2], &[]).floats("c", &[2], &[1.0, -2.0]);
        let author = author.node("Gemm", &["x", "w", "c"], &["g"], &[]).node("Relu", &["g"], &["y"], &[]);
        let empty = TensorData::new(Vec::<f32>::new(), [2, 0]);
        assert_eq!(author.answer(vec![empty]), Ok(vec![TensorData::from([[1f32, 0.0], [1.0, 0.0]])]));
    }
}
