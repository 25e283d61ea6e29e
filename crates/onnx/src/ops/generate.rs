//! Tensors made from a shape or a few numbers, and tensors repeated.

use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_backend::{BoolStore, DType, Shape, TensorData};

use super::arrange::{expanded, integer, integers, picked, zeros};
use super::{Build, Kernel, Operator};
use crate::tensors::dtype;
use crate::value::{Backend as B, OpError, Value, axis, broadcast, elements};
use crate::weights;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("ConstantOfShape", |build| {
        let value = match build.attributes.tensor("value")? {
            Some(mut tensor) => Value::from_data(weights::data(&mut tensor, build.files)?, build.device)?,
            None => zeros(vec![], DType::F32, build.device)?,
        };
        let value = value.reshape(vec![])?;
        let wanted = build.ints("shape", 0)?;
        Ok(Kernel::one(move |mut args| {
            let dims = lengths(&wanted.need("dimensions", &mut args)?)?;
            expanded(value.clone(), dims, args.device)
        }))
    }),
    Operator::new("Dropout", dropout).except("dropping elements, as in training"),
    Operator::moving("Expand", |build| {
        let wanted = build.ints("shape", 1)?;
        Ok(Kernel::one(move |mut args| {
            let wanted = lengths(&wanted.need("dimensions", &mut args)?)?;
            let x = args.take(0)?;
            let dims = broadcast(&x.shape(), &wanted)?;
            expanded(x, dims, args.device)
        }))
    }),
    Operator::new("EyeLike", |build| {
        let to = element_type(build)?;
        let diagonal = build.attributes.int("k", 0)?;
        Ok(Kernel::one(move |mut args| {
            let x = args.take(0)?;
            let dims = x.shape();
            let [_, columns] = dims[..] else {
                return Err(OpError(format!("expects a matrix and gets the shape {dims:?}")));
            };
            let count = elements(&dims)?;
            let on = |i: usize| (i % columns) as i64 - (i / columns) as i64 == diagonal;
            let ones: Vec<i64> = (0..count).map(|i| i64::from(on(i))).collect();
            made(ones, dims, to.unwrap_or(x.dtype()), args.device)
        }))
    }),
    Operator::new("OneHot", |build| {
        let given = build.attributes.int("axis", -1)?;
        Ok(Kernel::one(move |mut args| {
            let (at, depth, values) = (args.take(0)?, integer(args.take(1)?, "depth")?, args.take(2)?);
            if elements(&values.shape())? != 2 {
                return Err(OpError::new("its values are not two, one for off and one for on"));
            }
            let mut dims = at.shape();
            let axis = axis(given, dims.len() + 1)?;
            let inner = elements(&dims[axis..])?;
            let classes = lengths(&[depth])?[0];
            dims.insert(axis, classes);
            let count = elements(&dims)?;
            let at = integers(at)?;
            let places = (0..count).map(|i| {
                let (outer, class, inside) = (i / inner / classes, (i / inner % classes) as i64, i % inner);
                let wanted = at[outer * inner + inside];
                Some(usize::from(wanted == class || wanted.checked_add(depth) == Some(class)))
            });
            picked(values, 1, places, dims, args.device)
        }))
    }),
    Operator::new("Range", |build| {
        // In which precision numbers of 16 bits are added up; here always in the highest.
        build.attributes.int("stash_type", 1)?;
        Ok(Kernel::one(|mut args| {
            let (start, limit, step) = (args.take(0)?, args.take(1)?, args.take(2)?);
            let dtype = start.dtype();
            if limit.dtype() != dtype || step.dtype() != dtype {
                return Err(OpError::new("start, limit and step differ in type"));
            }
            if dtype.is_float() {
                let number = |x: Value| {
                    let data = x.into_data()?.try_cast(DType::F64).and_then(|data| data.try_into_vec::<f64>());
                    data.ok()
                        .filter(|x| x.len() == 1)
                        .map(|x| x[0])
                        .ok_or_else(|| OpError::new("expects single numbers"))
                };
                let (start, limit, step) = (number(start)?, number(limit)?, number(step)?);
                let count = ((limit - start) / step).ceil().max(0.0);
                if step == 0.0 || !count.is_finite() || !start.is_finite() {
                    return Err(OpError(format!("numbers from {start} to {limit} in steps of {step} do not end")));
                }
                // What is too large for an integer is too large for a tensor.
                let count = elements(&[count as usize])?;
                let numbers: Vec<f64> = (0..count).map(|i| start + i as f64 * step).collect();
                return made(numbers, vec![count], dtype, args.device);
            }
            let (start, limit, step) = (integer(start, "start")?, integer(limit, "limit")?, integer(step, "step")?);
            let distance = match step {
                0 => return Err(OpError(format!("numbers from {start} to {limit} in steps of 0 do not end"))),
                1.. => i128::from(limit) - i128::from(start),
                _ => i128::from(start) - i128::from(limit),
            };
            let count = u128::try_from(distance).map_or(0, |distance| distance.div_ceil(step.unsigned_abs().into()));
            let count = elements(&[usize::try_from(count).unwrap_or(usize::MAX)])?;
            let numbers: Vec<i64> = (0..count).map(|i| start + i as i64 * step).collect();
            made(numbers, vec![count], dtype, args.device)
        }))
    }),
    Operator::moving("Tile", |build| {
        let repeats = build.ints("repeats", 1)?;
        Ok(Kernel::one(move |mut args| {
            let repeats = lengths(&repeats.need("repeats", &mut args)?)?;
            let mut x = args.take(0)?;
            let have = x.shape();
            if repeats.len() != have.len() {
                return Err(OpError(format!("the repeats {repeats:?} do not fit the shape {have:?}")));
            }
            let dims: Vec<usize> = have.iter().zip(&repeats).map(|(d, times)| d.saturating_mul(*times)).collect();
            if elements(&dims)? == 0 {
                return zeros(dims, x.dtype(), args.device);
            }
            if let (Value::Host(_), Some(length)) = (&x, have.first()) {
                return picked(x, 1, (0..dims[0]).map(|i| Some(i % length)), dims, args.device);
            }
            for (axis, times) in repeats.into_iter().enumerate().filter(|(_, times)| *times != 1) {
                x = x.apply(
                    args.device,
                    |t| B::float_repeat_dim(t, axis, times),
                    |t| B::int_repeat_dim(t, axis, times),
                    |t| B::bool_repeat_dim(t, axis, times),
                )?;
            }
            Ok(x)
        }))
    }),
    Operator::new("Trilu", |build| {
        let upper = build.attributes.flag("upper", true)?;
        Ok(Kernel::one(move |mut args| {
            let x = args.take(0)?;
            let diagonal = args.optional(1).map_or(Ok(0), |k| integer(k, "diagonal"))?;
            let dims = x.shape();
            let [.., rows, columns] = dims[..] else {
                return Err(OpError(format!("expects matrices and gets the shape {dims:?}")));
            };
            let kept = |i: usize| {
                let right = (i % columns) as i64 - (i / columns % rows) as i64;
                if upper { right >= diagonal } else { right <= diagonal }
            };
            let count = elements(&dims)?;
            picked(x, 1, (0..count).map(|i| kept(i).then_some(i)), dims, args.device)
        }))
    }),
];

/// Nothing is dropped when a network is served: `Dropout` is the identity, and its mask keeps everything.
fn dropout(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    build.attributes.float("ratio", 0.5)?;
    build.attributes.int("seed", 0)?;
    let (mask, of_booleans) = (build.gives(1), build.opset >= 10);
    Ok(Kernel::many(move |mut args| {
        let x = args.take(0)?;
        let ratio = args.optional(1).map(|ratio| ratio.cast(DType::F32, args.device)?.into_data()).transpose()?;
        let training = args.optional(2).map_or(Ok(false), Value::truth)?;
        if training && ratio.is_none_or(|ratio| ratio.iter::<f32>().any(|ratio| ratio != 0.0)) {
            return Err(OpError::new("it drops elements, as in training; export with model.eval()"));
        }
        if !mask {
            return Ok(vec![x]);
        }
        let dtype = if of_booleans { DType::Bool(BoolStore::Native) } else { x.dtype() };
        let kept = expanded(made(vec![1i64], vec![], dtype, args.device)?, x.shape(), args.device)?;
        Ok(vec![x, kept])
    }))
}

/// The attribute `dtype`, if it is set.
fn element_type(build: &Build<'_>) -> Result<Option<DType>, OpError> {
    match build.attributes.int("dtype", 0)? {
        0 => Ok(None),
        element => dtype(element).map(Some).ok_or_else(|| OpError(format!("elements of type {element}"))),
    }
}

/// Lengths of axes, none of them negative.
pub(super) fn lengths(ints: &[i64]) -> Result<Vec<usize>, OpError> {
    let lengths: Result<Vec<usize>, _> = ints.iter().map(|&length| usize::try_from(length)).collect();
    lengths.map_err(|_| OpError(format!("a negative length among {ints:?}")))
}

/// Numbers as a tensor of some type.
fn made<E: burn_backend::Element>(
    numbers: Vec<E>,
    dims: Vec<usize>,
    dtype: DType,
    device: &burn_dispatch::DispatchDevice,
) -> Result<Value, OpError> {
    let data = TensorData::new(numbers, Shape::from(dims)).try_cast(dtype);
    Value::from_data(data.map_err(|e| OpError::new(e.to_string()))?, device)
}

#[cfg(test)]
mod tests {
    use crate::author::Author;

    use super::*;

    #[test]
    fn numbers_that_do_not_end_are_refused() {
        let range = |numbers: [i64; 3]| {
            let author = Author::new(13).int_input("a", &[]).int_input("b", &[]).int_input("c", &[]);
            let author = author.output_of(7, "y", &[-1]).node("Range", &["a", "b", "c"], &["y"], &[]);
            author.answer(numbers.map(|n| TensorData::new(vec![n], Shape::new([]))).to_vec())
        };
        assert_eq!(range([3, -4, -3]).unwrap(), [TensorData::new(vec![3i64, 0, -3], [3])]);
        assert_eq!(range([0, i64::MIN, 1]).unwrap()[0].shape().to_vec(), [0]);
        assert!(range([0, 5, 0]).unwrap_err().contains("steps of 0 do not end"));
        assert!(range([i64::MIN, i64::MAX, 1]).unwrap_err().contains("more elements than a tensor may have"));
        assert!(range([i64::MIN, i64::MAX, i64::MAX]).is_ok());
        for numbers in [[0.0, 1.0, 0.0], [0.0, f32::INFINITY, 1.0], [f32::NAN, 1.0, 1.0], [0.0, 1e30, 1e-3]] {
            let author = Author::new(13).input("a", &[]).input("b", &[]).input("c", &[]).output("y", &[-1]);
            let author = author.node("Range", &["a", "b", "c"], &["y"], &[]);
            let inputs = numbers.map(|n| TensorData::new(vec![n], Shape::new([]))).to_vec();
            let text = author.answer(inputs).unwrap_err();
            assert!(text.contains("do not end") || text.contains("more elements"), "{text}");
        }
    }

    #[test]
    fn classes_that_a_caller_asks_for_are_bounded() {
        let one_hot = |depth: i64| {
            let author = Author::new(13).int_input("x", &[2]).int_input("depth", &[]).output("y", &[]);
            let author = author.floats("values", &[2], &[0.0, 1.0]);
            let author = author.node("OneHot", &["x", "depth", "values"], &["y"], &[]);
            author.answer(vec![TensorData::new(vec![1i64, -1], [2]), TensorData::new(vec![depth], [1])])
        };
        assert_eq!(one_hot(3).unwrap(), [TensorData::new(vec![0f32, 1.0, 0.0, 0.0, 0.0, 1.0], [2, 3])]);
        assert_eq!(one_hot(0).unwrap()[0].shape().to_vec(), [2, 0]);
        assert!(one_hot(i64::MAX).unwrap_err().contains("more elements than a tensor may have"));
        assert!(one_hot(-1).unwrap_err().contains("a negative length"));
    }
}
