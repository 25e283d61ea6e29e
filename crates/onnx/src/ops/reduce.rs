//! Reductions over some axes, and the place of the extremum along one.

use burn_backend::ops::FloatTensorOps;
use burn_backend::{BoolStore, DType, TensorData};
use burn_dispatch::DispatchDevice;

use super::arithmetic::squared;
use super::host::{self, Lines, Narrow, Walk, for_float, for_int};
use super::{Build, Kernel, Operator};
use crate::value::{Backend as B, Handle, OpError, Value, axis, elements};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("ArgMax", |build| extremum(build, true)),
    Operator::new("ArgMin", |build| extremum(build, false)),
    Operator::new("ReduceL1", |build| reduce(build, Reduction::L1)),
    Operator::new("ReduceL2", |build| reduce(build, Reduction::L2)),
    Operator::new("ReduceLogSum", |build| reduce(build, Reduction::LogSum)),
    Operator::new("ReduceLogSumExp", |build| reduce(build, Reduction::LogSumExp)),
    Operator::new("ReduceMax", |build| reduce(build, Reduction::Max)),
    Operator::new("ReduceMean", |build| reduce(build, Reduction::Mean)),
    Operator::new("ReduceMin", |build| reduce(build, Reduction::Min)),
    Operator::new("ReduceProd", |build| reduce(build, Reduction::Prod)),
    Operator::new("ReduceSum", |build| reduce(build, Reduction::Sum)),
    Operator::new("ReduceSumSquare", |build| reduce(build, Reduction::SumSquare)),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reduction {
    L1,
    L2,
    LogSum,
    LogSumExp,
    Max,
    Mean,
    Min,
    Prod,
    Sum,
    SumSquare,
}

fn reduce(build: &mut Build<'_>, reduction: Reduction) -> Result<Kernel, OpError> {
    let axes = build.ints("axes", 1)?;
    let keep = build.attributes.flag("keepdims", true)?;
    let noop = build.attributes.flag("noop_with_empty_axes", false)?;
    Ok(Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let dims = x.shape();
        let axes = axes.get(&mut args)?.unwrap_or_default();
        let mut over = vec![axes.is_empty() && !noop; dims.len()];
        for a in axes {
            over[axis(a, dims.len())?] = true;
        }
        let kept: Vec<usize> = dims.iter().zip(&over).map(|(&d, &over)| if over { 1 } else { d }).collect();
        let y = reduced(reduction, x, &kept, args.device)?;
        if keep {
            return Ok(y);
        }
        y.reshape(dims.iter().zip(&over).filter(|(_, over)| !**over).map(|(&d, _)| d).collect())
    }))
}

/// Reduces to a shape of the same rank, whose dimensions are those of `x` or 1.
fn reduced(reduction: Reduction, x: Value, kept: &[usize], device: &DispatchDevice) -> Result<Value, OpError> {
    use Reduction::{L2, LogSum, LogSumExp, Max, Min};
    let (dims, dtype) = (x.shape(), x.dtype());
    match x {
        Value::Float(x) if !dims.contains(&0) && reduction != LogSumExp => {
            on_tensor(reduction, x, &dims, kept, device).map(Value::Float)
        }
        Value::Float(_) => host::of_floats(floats(reduction, x, kept)?, dtype, kept.to_vec(), device),
        Value::Bool(_) if matches!(reduction, Max | Min) => {
            reduced(reduction, x.cast(DType::U8, device)?, kept, device)?.cast(DType::Bool(BoolStore::Native), device)
        }
        Value::Bool(_) => Err(OpError::new("expects numbers and gets a boolean tensor")),
        x if matches!(reduction, L2 | LogSum | LogSumExp) => {
            reduced(reduction, x.cast(DType::F64, device)?, kept, device)?.cast(dtype, device)
        }
        x => {
            let range = for_int!(dtype, E => Ok((E::LEAST, E::GREATEST)))?;
            host::of_ints(ints(reduction, x, kept, range)?, dtype, kept.to_vec(), device)
        }
    }
}

/// Maps, reduces one axis after the other, maps again.
fn on_tensor(
    reduction: Reduction,
    x: Handle,
    dims: &[usize],
    kept: &[usize],
    device: &DispatchDevice,
) -> Result<Handle, OpError> {
    use Reduction::{L1, L2, LogSum, LogSumExp, Max, Mean, Min, Prod, Sum, SumSquare};
    let along = match reduction {
        L1 | L2 | LogSum | LogSumExp | Sum | SumSquare => B::float_sum_dim,
        Max => B::float_max_dim,
        Mean => B::float_mean_dim,
        Min => B::float_min_dim,
        Prod => B::float_prod_dim,
    };
    let x = match reduction {
        L1 => B::float_abs(x),
        L2 | SumSquare => squared(x, device)?,
        _ => x,
    };
    let axes = (0..dims.len()).filter(|&axis| dims[axis] != kept[axis]);
    let y = axes.fold(x, along);
    Ok(match reduction {
        L2 => B::float_sqrt(y),
        LogSum => B::float_log(y),
        _ => y,
    })
}

/// Every reduction of floats, on the host; of nothing it is what leaves a sum, product or extremum as it is.
fn floats(reduction: Reduction, x: Value, kept: &[usize]) -> Result<Vec<f64>, OpError> {
    let dims = x.shape();
    let numbers = host::floats(x)?;
    let fold = |start, step: fn(f64, f64) -> f64| fold(&numbers, &dims, kept, start, step);
    Ok(match reduction {
        Reduction::L1 => fold(0.0, |sum, x| sum + x.abs())?,
        Reduction::L2 => fold(0.0, |sum, x| sum + x * x)?.into_iter().map(f64::sqrt).collect(),
        Reduction::LogSum => fold(0.0, |sum, x| sum + x)?.into_iter().map(f64::ln).collect(),
        Reduction::LogSumExp => {
            // Nothing overflows after the greatest number is taken out; an infinite one would leave no difference.
            let mut greatest = fold(f64::NEG_INFINITY, f64::max)?;
            greatest.iter_mut().filter(|x| !x.is_finite()).for_each(|x| *x = 0.0);
            let mut sums = vec![0.0; greatest.len()];
            for (x, at) in numbers.iter().zip(Walk::new(kept, &dims)) {
                sums[at] += (x - greatest[at]).exp();
            }
            sums.iter().zip(greatest).map(|(sum, greatest)| sum.ln() + greatest).collect()
        }
        Reduction::Max => fold(f64::NEG_INFINITY, |a, x| if a.is_nan() || a > x { a } else { x })?,
        Reduction::Mean => {
            let count = numbers.len() as f64 / elements(kept)? as f64;
            fold(0.0, |sum, x| sum + x)?.into_iter().map(|sum| sum / count).collect()
        }
        Reduction::Min => fold(f64::INFINITY, |a, x| if a.is_nan() || a < x { a } else { x })?,
        Reduction::Prod => fold(1.0, |product, x| product * x)?,
        Reduction::Sum => fold(0.0, |sum, x| sum + x)?,
        Reduction::SumSquare => fold(0.0, |sum, x| sum + x * x)?,
    })
}

/// The reductions that stay within the integers; the range is that of their type.
fn ints(reduction: Reduction, x: Value, kept: &[usize], (least, greatest): (i128, i128)) -> Result<Vec<i128>, OpError> {
    let dims = x.shape();
    let numbers = host::ints(x)?;
    let fold = |start, step: fn(i128, i128) -> i128| fold(&numbers, &dims, kept, start, step);
    match reduction {
        Reduction::L1 => fold(0, |sum, x| sum + x.abs()),
        Reduction::Max => fold(least, i128::max),
        Reduction::Mean => {
            let count = numbers.len() / elements(kept)?.max(1);
            if count == 0 {
                return Err(OpError::new("there is no mean of no integers"));
            }
            Ok(fold(0, |sum, x| sum + x)?.into_iter().map(|sum| sum / count as i128).collect())
        }
        Reduction::Min => fold(greatest, i128::min),
        Reduction::Prod => fold(1, i128::wrapping_mul),
        Reduction::Sum => fold(0, |sum, x| sum + x),
        Reduction::SumSquare => fold(0, |sum, x| sum.wrapping_add(x.wrapping_mul(x))),
        Reduction::L2 | Reduction::LogSum | Reduction::LogSumExp => Err(OpError::new("it is not a whole number")),
    }
}

/// Takes every number into its cell of the smaller shape.
fn fold<W: Copy>(
    numbers: &[W],
    dims: &[usize],
    kept: &[usize],
    start: W,
    step: fn(W, W) -> W,
) -> Result<Vec<W>, OpError> {
    let mut cells = vec![start; elements(kept)?];
    for (&x, at) in numbers.iter().zip(Walk::new(kept, dims)) {
        cells[at] = step(cells[at], x);
    }
    Ok(cells)
}

/// The index of the greatest or least number along an axis; of several equal ones the first, unless the last is asked.
fn extremum(build: &mut Build<'_>, greatest: bool) -> Result<Kernel, OpError> {
    let given = build.attributes.int("axis", 0)?;
    let keep = build.attributes.flag("keepdims", true)?;
    let last = build.attributes.flag("select_last_index", false)?;
    Ok(Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let mut dims = x.shape();
        let axis = axis(given, dims.len())?;
        if dims[axis] == 0 {
            return Err(OpError(format!("there is no extremum along axis {axis} of the shape {dims:?}")));
        }
        let lines = Lines::new(&dims, axis);
        let indices = match &x {
            Value::Float(_) => for_float!(x.dtype(), E => places::<E>(x, &lines, greatest, last)),
            _ => for_int!(x.dtype(), E => places::<E>(x, &lines, greatest, last)),
        }?;
        dims[axis] = 1;
        if !keep {
            dims.remove(axis);
        }
        Value::from_data(TensorData::new(indices, dims), args.device)
    }))
}

fn places<E: Narrow + PartialOrd>(x: Value, lines: &Lines, greatest: bool, last: bool) -> Result<Vec<i64>, OpError> {
    let numbers = host::read::<E>(x)?;
    let better = |a: E, b: E| (if greatest { a > b } else { a < b }) || (last && a == b);
    let place = |line: &mut dyn Iterator<Item = usize>| {
        let mut best: Option<(i64, E)> = None;
        for (k, at) in line.enumerate() {
            if best.is_none_or(|(_, best)| better(numbers[at], best)) {
                best = Some((k as i64, numbers[at]));
            }
        }
        best.map_or(0, |(k, _)| k)
    };
    Ok(lines.iter().map(|mut line| place(&mut line)).collect())
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use super::super::alone::{alone, scalar};
    use crate::author::Attribute::{Int, Ints};

    const X: [[f32; 3]; 2] = [[3.0, 1.0, 3.0], [-2.0, 5.0, 0.0]];

    #[test]
    fn axes_are_attributes_in_old_files_and_arguments_in_new_ones() {
        let old = [("axes", Ints(&[-1])), ("keepdims", Int(0))];
        assert_eq!(alone(11, "ReduceSum", &old, [("x", X.into())]), Ok(TensorData::from([7f32, 3.0])));
        let axes = TensorData::from([-1i64]);
        let new = alone(18, "ReduceMax", &[("keepdims", Int(0))], [("x", X.into()), ("axes", axes)]);
        assert_eq!(new, Ok(TensorData::from([3f32, 5.0])));
    }

    #[test]
    fn an_axis_that_is_not_there_is_named() {
        let axes = TensorData::from([2i64]);
        let error = alone(18, "ReduceMean", &[], [("x", X.into()), ("axes", axes)]).unwrap_err();
        assert!(error.contains("axis 2 is out of range for rank 2"), "{error}");
        let error = alone(13, "ArgMax", &[("axis", Int(i64::MIN))], [("x", X.into())]).unwrap_err();
        assert!(error.contains("out of range"), "{error}");
    }

    #[test]
    fn of_equal_extrema_the_first_is_taken_unless_the_last_is_asked() {
        let place = |last| {
            let attributes = [("axis", Int(1)), ("keepdims", Int(0)), ("select_last_index", Int(last))];
            alone(13, "ArgMax", &attributes, [("x", X.into())])
        };
        assert_eq!(place(0), Ok(TensorData::from([0i64, 1])));
        assert_eq!(place(1), Ok(TensorData::from([2i64, 1])));
    }

    #[test]
    fn nothing_has_a_sum_but_neither_an_extremum_s_place_nor_a_whole_mean() {
        let none = || TensorData::new(Vec::<i32>::new(), [0, 2]);
        let axes = || TensorData::from([0i64]);
        let reduced = |operator| alone(18, operator, &[], [("x", none()), ("axes", axes())]);
        assert_eq!(reduced("ReduceSum"), Ok(TensorData::from([[0i32, 0]])));
        assert_eq!(reduced("ReduceMax"), Ok(TensorData::from([[i32::MIN, i32::MIN]])));
        assert!(reduced("ReduceMean").unwrap_err().contains("no mean of no integers"));
        assert!(alone(13, "ArgMin", &[], [("x", none())]).unwrap_err().contains("no extremum along axis 0"));
    }

    #[test]
    fn the_logarithm_of_a_sum_of_exponentials_does_not_overflow() {
        let x = [[1000f32, 1000.0], [f32::NEG_INFINITY, f32::NEG_INFINITY], [f32::INFINITY, 0.0]];
        let attributes = [("axes", Ints(&[1])), ("keepdims", Int(0))];
        let found = alone(13, "ReduceLogSumExp", &attributes, [("x", x.into())]);
        assert_eq!(found, Ok(TensorData::from([1000f32 + 2f32.ln(), f32::NEG_INFINITY, f32::INFINITY])));
    }

    #[test]
    fn integers_are_summed_exactly() {
        let x = TensorData::from([i64::MAX - 1, 1, -1, 1]);
        assert_eq!(alone(13, "ReduceSum", &[("keepdims", Int(0))], [("x", x)]), Ok(scalar(i64::MAX)));
    }
}
