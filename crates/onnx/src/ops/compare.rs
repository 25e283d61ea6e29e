//! Comparisons, logic, and the choice between two tensors.

use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_backend::{BoolDType, Shape};
use burn_dispatch::DispatchDevice;

use super::arithmetic::{compared, on_tensors};
use super::{Kernel, Operator};
use crate::fast::spread::{Pair, spread as laid};
use crate::value::{Backend as B, Handle, OpError, Value, bool_type, broadcast, lift};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("And", |_| logic(B::bool_and)),
    Operator::comparing("Equal", |_| {
        compare((B::float_equal, |pair, y| laid(pair, y, |a, b| a == b)), B::int_equal, Some(B::bool_equal))
    }),
    Operator::new("Greater", |_| {
        compare((B::float_greater, |pair, y| laid(pair, y, |a, b| a > b)), B::int_greater, None)
    }),
    Operator::new("GreaterOrEqual", |_| {
        compare((B::float_greater_equal, |pair, y| laid(pair, y, |a, b| a >= b)), B::int_greater_equal, None)
    }),
    Operator::new("Less", |_| compare((B::float_lower, |pair, y| laid(pair, y, |a, b| a < b)), B::int_lower, None)),
    Operator::new("LessOrEqual", |_| {
        compare((B::float_lower_equal, |pair, y| laid(pair, y, |a, b| a <= b)), B::int_lower_equal, None)
    }),
    Operator::new("Not", |_| Ok(Kernel::one(|mut args| Ok(Value::Bool(B::bool_not(args.take(0)?.bool()?)))))),
    Operator::new("Or", |_| logic(B::bool_or)),
    Operator::moving("Where", |_| {
        Ok(Kernel::one(|mut args| {
            let (condition, x, y) = (args.take(0)?, args.take(1)?, args.take(2)?);
            chosen(condition, x, y, args.device)
        }))
    }),
    Operator::new("Xor", |_| logic(B::bool_xor)),
];

fn logic(f: fn(Handle, Handle) -> Handle) -> Result<Kernel, OpError> {
    Ok(Kernel::one(move |mut args| {
        let (a, b) = (args.take(0)?.bool()?, args.take(1)?.bool()?);
        Ok(Value::Bool(on_tensors(f, a, b)?))
    }))
}

type Comparison = fn(Handle, Handle, BoolDType) -> Handle;
/// The same by our own kernel.
type Near = fn(Pair<'_, f32>, &mut [bool]);

fn compare(
    (floats, near): (Comparison, Near),
    ints: Comparison,
    bools: Option<fn(Handle, Handle) -> Handle>,
) -> Result<Kernel, OpError> {
    Ok(Kernel::one(move |mut args| {
        let answer = match (args.take(0)?, args.take(1)?) {
            (Value::Float(a), Value::Float(b)) => match compared(near, &a, &b, args.device)? {
                Some(answer) => return Ok(answer),
                None => on_tensors(|a, b| floats(a, b, bool_type(args.device)), a, b),
            },
            (a @ (Value::Int(_) | Value::Host(_)), b @ (Value::Int(_) | Value::Host(_))) => {
                let (a, b) = (a.int_tensor(args.device)?, b.int_tensor(args.device)?);
                on_tensors(|a, b| ints(a, b, bool_type(args.device)), a, b)
            }
            (Value::Bool(a), Value::Bool(b)) => match bools {
                Some(bools) => on_tensors(bools, a, b),
                None => Err(OpError::new("booleans have no order")),
            },
            (a, b) => Err(OpError(format!("cannot compare {} with {}", a.kind(), b.kind()))),
        };
        Ok(Value::Bool(answer?))
    }))
}

/// `x` where the condition holds, else `y`; all three broadcast.
fn chosen(condition: Value, x: Value, y: Value, device: &DispatchDevice) -> Result<Value, OpError> {
    let dims = broadcast(&broadcast(&condition.shape(), &x.shape())?, &y.shape())?;
    if x.dtype() != y.dtype() {
        return Err(OpError(format!("cannot choose between {:?} and {:?}", x.dtype(), y.dtype())));
    }
    let mask = spread(condition, &dims)?.bool()?;
    match (x, y) {
        (x @ Value::Float(_), y) => {
            let (x, y) = (spread(x, &dims)?.float()?, spread(y, &dims)?.float()?);
            Ok(Value::Float(B::float_mask_where(y, mask, x)))
        }
        (x @ Value::Bool(_), y) => {
            let (x, y) = (spread(x, &dims)?.bool()?, spread(y, &dims)?.bool()?);
            Ok(Value::Bool(B::bool_mask_where(y, mask, x)))
        }
        (x, y) => {
            let (x, y) = (Value::Int(x.int_tensor(device)?), Value::Int(y.int_tensor(device)?));
            let (x, y) = (spread(x, &dims)?.int_tensor(device)?, spread(y, &dims)?.int_tensor(device)?);
            Ok(Value::Int(B::int_mask_where(y, mask, x)))
        }
    }
}

/// A tensor broadcast to a shape that it is known to broadcast to.
fn spread(value: Value, dims: &[usize]) -> Result<Value, OpError> {
    if value.shape() == dims {
        return Ok(value);
    }
    let lifted = lift(&value.shape(), dims.len());
    let shape = || Shape::from(dims.to_vec());
    Ok(match value.reshape(lifted)? {
        Value::Float(t) => Value::Float(B::float_expand(t, shape())),
        Value::Int(t) => Value::Int(B::int_expand(t, shape())),
        Value::Bool(t) => Value::Bool(B::bool_expand(t, shape())),
        other @ (Value::Host(_) | Value::Texts(_) | Value::Sequence(_)) => other,
    })
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use super::super::alone::{alone, scalar};

    #[test]
    fn a_choice_broadcasts_all_three() {
        let choice = |x: TensorData, y: TensorData| {
            let condition = TensorData::from([[true], [false]]);
            alone(17, "Where", &[], [("c", condition), ("x", x), ("y", y)])
        };
        assert_eq!(choice([1f32, 2.0].into(), scalar(0f32)), Ok(TensorData::from([[1f32, 2.0], [0.0, 0.0]])));
        assert_eq!(choice([1i64, 2].into(), scalar(0i64)), Ok(TensorData::from([[1i64, 2], [0, 0]])));
        assert_eq!(choice(scalar(true), [false, true].into()), Ok(TensorData::from([[true, true], [false, true]])));
        let error = choice([1f32].into(), [1i64].into()).unwrap_err();
        assert!(error.contains("cannot choose between F32 and I64"), "{error}");
        let error = choice([1f32, 2.0, 3.0].into(), [1f32, 2.0].into()).unwrap_err();
        assert!(error.contains("do not broadcast"), "{error}");
    }

    #[test]
    fn booleans_are_equal_or_not_but_have_no_order() {
        let compared = |operator| {
            alone(
                19,
                operator,
                &[],
                [("a", TensorData::from([[true], [false]])), ("b", TensorData::from([true, false]))],
            )
        };
        assert_eq!(compared("Equal"), Ok(TensorData::from([[true, false], [false, true]])));
        assert_eq!(compared("Xor"), Ok(TensorData::from([[false, true], [true, false]])));
        assert!(compared("Less").unwrap_err().contains("booleans have no order"));
    }

    #[test]
    fn great_unsigned_integers_are_greater_than_small_ones() {
        let found = alone(13, "Greater", &[], [("a", TensorData::from([u64::MAX])), ("b", TensorData::from([1u64]))]);
        assert_eq!(found, Ok(TensorData::from([true])));
    }
}
