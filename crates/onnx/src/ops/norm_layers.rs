//! Normalisation of each row by its own mean, spread or norm.

use burn_backend::ops::{FloatTensorOps, PadMode};
use burn_backend::{DType, FloatDType, Shape, Slice, TensorMetadata};
use burn_dispatch::DispatchDevice;

use super::arithmetic::{added, divided, multiplied, squared};
use super::{Args, Build, Kernel, Operator};
use crate::fast::rows::{layer_norm, standardize};
use crate::floats::{self, Floats};
use crate::tensors::dtype;
use crate::value::{Backend as B, Handle, OpError, Value, axis, broadcast, elements, lift};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("GroupNormalization", |build| {
        let groups = build.attributes.int("num_groups", 0)?;
        let groups = usize::try_from(groups).ok().filter(|&groups| groups > 0);
        let groups = groups.ok_or_else(|| OpError::new("the number of groups is not positive"))?;
        let (epsilon, stash) = (epsilon(build)?, stash(build)?);
        let by_group = build.opset < SCALE_BY_CHANNEL;
        Ok(Kernel::one(move |mut args| {
            let x = args.float(0)?;
            let dims = x.shape().to_vec();
            let channels = channels(&dims)?;
            if !channels.is_multiple_of(groups) {
                return Err(OpError(format!("{channels} channels do not split into {groups} groups")));
            }
            let rows = elements(&[dims[0], groups])?;
            let parts = standardized(x, rows, epsilon, stash, true)?;
            let (count, wide) = match by_group {
                true => (groups, vec![dims[0], groups, elements(&dims[1..])? / groups]),
                false => (channels, dims.clone()),
            };
            by_channel(parts.y, &mut args, count, wide, dims)
        }))
    }),
    Operator::new("InstanceNormalization", |build| {
        let epsilon = epsilon(build)?;
        Ok(Kernel::one(move |mut args| {
            let x = args.float(0)?;
            let (dims, kind) = (x.shape().to_vec(), x.dtype());
            let channels = channels(&dims)?;
            let rows = elements(&dims[..2])?;
            let parts = standardized(x, rows, epsilon, wide(kind), true)?;
            by_channel(parts.y, &mut args, channels, dims.clone(), dims)
        }))
    }),
    Operator::new("LayerNormalization", |build| layer(build, true)),
    Operator::new("LpNormalization", |build| {
        let (given, p) = (build.attributes.int("axis", -1)?, build.attributes.int("p", 2)?);
        if p != 1 && p != 2 {
            return Err(OpError(format!("a norm with p={p}")));
        }
        Ok(Kernel::one(move |mut args| {
            let x = args.float(0)?;
            let axis = axis(given, x.shape().num_dims())?;
            let norm = match p {
                1 => B::float_sum_dim(B::float_abs(x.clone()), axis),
                _ => B::float_sqrt(B::float_sum_dim(squared(x.clone(), args.device)?, axis)),
            };
            // Nothing but zeros stays so: the smallest positive number of any float type instead of the norm.
            let floor = if norm.dtype() == DType::F16 { 6e-8 } else { f32::MIN_POSITIVE };
            divided(Value::Float(x), Value::Float(B::float_clamp_min(norm, floor.into())), args.device)
        }))
    }),
    Operator::new("LRN", local_response),
    Operator::new("MeanVarianceNormalization", |build| {
        let axes = build.attributes.ints("axes")?.unwrap_or_else(|| vec![0, 2, 3]);
        Ok(Kernel::one(move |mut args| {
            let x = args.float(0)?;
            let rank = x.shape().num_dims();
            let over = axes.iter().map(|&a| axis(a, rank)).collect::<Result<Vec<usize>, _>>()?;
            let mean = |x: Handle| over.iter().fold(x, |x, &axis| B::float_mean_dim(x, axis));
            let (x, _) = centred(x, mean);
            let deviation = B::float_sqrt(mean(B::float_mul(x.clone(), x.clone())));
            Ok(Value::Float(B::float_div(x, B::float_add_scalar(deviation, 1e-9.into()))))
        }))
    }),
    Operator::new("RMSNormalization", |build| layer(build, false)),
];

/// From this opset on `GroupNormalization` has a scale for each channel, before for each group.
const SCALE_BY_CHANNEL: i64 = 21;

fn epsilon(build: &Build<'_>) -> Result<f32, OpError> {
    build.attributes.float("epsilon", 1e-5)
}

/// The type to compute in, as the file asks for it.
fn stash(build: &Build<'_>) -> Result<DType, OpError> {
    let element = build.attributes.int("stash_type", 1)?;
    dtype(element).filter(DType::is_float).ok_or_else(|| OpError(format!("a computation in the type {element}")))
}

/// The type that the mean of elements of this one is computed in.
pub(super) fn wide(kind: DType) -> DType {
    if kind == DType::F64 { kind } else { DType::F32 }
}

fn channels(dims: &[usize]) -> Result<usize, OpError> {
    match dims {
        [_, channels, ..] if *channels > 0 && dims.len() > 2 && !dims[2..].contains(&0) => Ok(*channels),
        _ => Err(OpError(format!("the shape {dims:?} has no room behind the channels"))),
    }
}

pub(super) fn cast(x: Handle, to: DType) -> Handle {
    if x.dtype() == to { x } else { B::float_cast(x, FloatDType::from(to)) }
}

/// Rows less their mean, divided by their standard deviation.
struct Standardized {
    /// [rows, elements of a row], of the input's type.
    y: Handle,
    /// [rows, 1], of the type that was computed in.
    mean: Option<Handle>,
    inverse: Handle,
}

/// Takes the elements as rows of equal length and standardises each; without `center` by its mean square alone.
fn standardized(x: Handle, rows: usize, epsilon: f32, stash: DType, center: bool) -> Result<Standardized, OpError> {
    let (shape, kind) = (x.shape(), x.dtype());
    if rows == 0 {
        // Of no rows there is nothing to standardise, and that is the answer.
        let none = B::float_zeros(Shape::from(vec![0, 1]), &x.device(), FloatDType::from(stash));
        let y = B::float_reshape(x, Shape::from(vec![0, 1]));
        return Ok(Standardized { y, mean: center.then(|| none.clone()), inverse: none });
    }
    let each = shape.num_elements().checked_div(rows).filter(|&each| each > 0);
    let each = each.ok_or_else(|| OpError(format!("nothing can be normalised in the shape {:?}", shape.to_vec())))?;
    if kind == DType::F32 && stash == kind && floats::has(&x) {
        let device = x.device();
        let mut numbers = floats::into_vec(x)?;
        let moments = standardize(&mut numbers, each, epsilon, center);
        let y = floats::tensor(numbers, vec![rows, each], &device)?.float()?;
        let moment = |i: usize| {
            let column = moments.iter().map(|moments| moments[i]).collect();
            floats::tensor(column, vec![rows, 1], &device)?.float()
        };
        let (mean, inverse) = (center.then(|| moment(0)).transpose()?, moment(1)?);
        return Ok(Standardized { y, mean, inverse });
    }
    let mut x = cast(B::float_reshape(x, Shape::from(vec![rows, each])), stash);
    let mut mean = None;
    if center {
        let found = centred(x, |x| B::float_mean_dim(x, 1));
        (x, mean) = (found.0, Some(found.1));
    }
    let variance = B::float_mean_dim(B::float_mul(x.clone(), x.clone()), 1);
    let inverse = B::float_recip(B::float_sqrt(B::float_add_scalar(variance, epsilon.into())));
    let y = cast(B::float_mul(x, inverse.clone()), kind);
    Ok(Standardized { y, mean, inverse })
}

/// Returns `x` less its mean, and the mean. The mean of what is left, which rounding keeps from zero, is taken off as well: in a row
/// of nearly equal numbers it would be most of the result.
pub(super) fn centred(x: Handle, mean: impl Fn(Handle) -> Handle) -> (Handle, Handle) {
    let near = mean(x.clone());
    let x = B::float_sub(x, near.clone());
    let rest = mean(x.clone());
    (B::float_sub(x, rest.clone()), B::float_add(near, rest))
}

type Combined = fn(Value, Value, &DispatchDevice) -> Result<Value, OpError>;

/// Scale and shift (arguments 1 and 2) of each of `count` channels, over `y` taken in the shape `wide`.
fn by_channel(
    y: Handle,
    args: &mut Args<'_>,
    count: usize,
    wide: Vec<usize>,
    dims: Vec<usize>,
) -> Result<Value, OpError> {
    let mut column = vec![1; wide.len()];
    column[1] = count;
    let kind = y.dtype();
    let mut y = Value::Float(y).reshape(wide)?;
    for (i, f) in [(1, multiplied as Combined), (2, added)] {
        let factor = args.take(i)?;
        if factor.shape() != [count] {
            return Err(OpError(format!(
                "a scale or shift of shape {:?} for {count} channels",
                factor.shape().to_vec()
            )));
        }
        let factor = cast(factor.reshape(column.clone())?.float()?, kind);
        y = f(y, Value::Float(factor), args.device)?;
    }
    y.reshape(dims)
}

/// Normalises all dimensions from an axis on, as one; then scales and shifts them.
fn layer(build: &mut Build<'_>, center: bool) -> Result<Kernel, OpError> {
    let (given, epsilon, stash) = (build.attributes.int("axis", -1)?, epsilon(build)?, stash(build)?);
    let moments = build.gives(1) || build.gives(2);
    let run = move |args: &mut Args<'_>| -> Result<(Value, Standardized, Vec<usize>), OpError> {
        let x = args.float(0)?;
        let dims = x.shape().to_vec();
        let axis = axis(given, dims.len())?;
        // Double precision is never given up.
        let stash = if x.dtype() == DType::F64 { DType::F64 } else { stash };
        let mut parts = standardized(x, elements(&dims[..axis])?, epsilon, stash, center)?;
        let mut y = B::float_reshape(parts.y.clone(), Shape::from(dims.clone()));
        for (i, f) in [(1, B::float_mul as fn(Handle, Handle) -> Handle), (2, B::float_add)] {
            let Some(factor) = args.optional(i) else { continue };
            if broadcast(&factor.shape(), &dims)? != dims {
                return Err(OpError(format!("a scale or shift of shape {:?} for {dims:?}", factor.shape().to_vec())));
            }
            let wide = lift(&factor.shape(), dims.len());
            y = f(y, cast(factor.reshape(wide)?.float()?, parts.y.dtype()));
        }
        let mut rows = dims;
        rows[axis..].fill(1);
        parts.inverse = B::float_reshape(parts.inverse, Shape::from(rows.clone()));
        Ok((Value::Float(y), parts, rows))
    };
    if !moments {
        return Ok(Kernel::one(move |mut args| match if center { by_row(&mut args, given, epsilon)? } else { None } {
            Some(y) => Ok(y),
            None => run(&mut args).map(|(y, ..)| y),
        }));
    }
    Ok(Kernel::many(move |mut args| {
        let (y, parts, rows) = run(&mut args)?;
        let mean = parts.mean.ok_or_else(|| OpError::new("it has one output"))?;
        Ok(vec![y, Value::Float(mean).reshape(rows)?, Value::Float(parts.inverse)])
    }))
}

/// Layer normalisation by our own kernel: over the last axis, of elements at hand. Otherwise the arguments stay.
fn by_row(args: &mut Args<'_>, given: i64, epsilon: f32) -> Result<Option<Value>, OpError> {
    let (x, scale, shift) = (args.take(0)?, args.take(1)?, args.optional(2));
    let dims = x.shape();
    let last = dims.last().map(|&width| vec![width]);
    let last = last.filter(|width| axis(given, dims.len()).is_ok_and(|axis| axis + 1 == dims.len()) && *width != [0]);
    let columns_of = |value: &Value| match value {
        Value::Float(handle) if Some(value.shape()) == last => Floats::of(handle),
        _ => None,
    };
    let columns = columns_of(&scale).zip(shift.as_ref().map_or(Some(None), |shift| columns_of(shift).map(Some)));
    match (x, columns) {
        (Value::Float(x), Some((scale, shift))) if floats::has(&x) => {
            let mut numbers = floats::into_vec(x)?;
            layer_norm(&mut numbers, scale.as_slice(), shift.as_ref().map(Floats::as_slice), epsilon);
            floats::tensor(numbers, dims, args.device).map(Some)
        }
        (x, _) => {
            args.put(0, x);
            args.put(1, scale);
            shift.into_iter().for_each(|shift| args.put(2, shift));
            Ok(None)
        }
    }
}

/// Divides by a power of the mean square over neighbouring channels.
fn local_response(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let attributes = &build.attributes;
    let (alpha, beta) = (attributes.float("alpha", 1e-4)?, attributes.float("beta", 0.75)?);
    let (bias, size) = (attributes.float("bias", 1.0)?, attributes.int("size", 0)?);
    let size = usize::try_from(size).ok().filter(|size| (1..=MOST_NEIGHBOURS).contains(size));
    let size = size.ok_or_else(|| OpError(format!("attribute 'size' must be 1 to {MOST_NEIGHBOURS}")))?;
    Ok(Kernel::one(move |mut args| {
        let x = args.float(0)?;
        let dims = x.shape().to_vec();
        let channels = channels(&dims)?;
        if elements(&dims)? == 0 {
            return Ok(Value::Float(x));
        }
        let mut pads = vec![(0, 0); dims.len()];
        pads[1] = ((size - 1) / 2, size / 2);
        let mut padded = dims.clone();
        padded[1] += size - 1;
        elements(&padded)?;
        let squares = B::float_pad(B::float_mul(x.clone(), x.clone()), &pads, PadMode::Constant(0.0));
        let mut cut: Vec<Slice> = dims.iter().map(|&d| Slice::new(0, Some(d as isize), 1)).collect();
        let mut sums: Option<Handle> = None;
        for from in 0..size {
            cut[1] = Slice::new(from as isize, Some((from + channels) as isize), 1);
            let neighbours = B::float_slice(squares.clone(), &cut);
            sums = Some(match sums {
                None => neighbours,
                Some(sums) => B::float_add(sums, neighbours),
            });
        }
        let sums = sums.ok_or_else(|| OpError::new("a window of no channels"))?;
        let sums = B::float_mul_scalar(sums, (alpha / size as f32).into());
        let powers = B::float_powf_scalar(B::float_add_scalar(sums, bias.into()), (-beta).into());
        Ok(Value::Float(B::float_mul(x, powers)))
    }))
}

/// Most neighbouring channels that `LRN` may look at; models look at 5.
const MOST_NEIGHBOURS: usize = 1 << 8;

#[cfg(test)]
mod tests {
    use burn_backend::{DType, TensorData};

    use crate::author::Attribute::{self, Int};
    use crate::author::{Author, FREE};

    const DIMS: [usize; 4] = [2, 4, 7, 9];
    const COUNT: usize = DIMS[0] * DIMS[1] * DIMS[2] * DIMS[3];
    const EPSILON: f64 = 1e-5;

    /// Normalises planes by this operator with scales of 1, shifts of 0 and whatever statistics.
    fn normalised(operator: &str, attributes: &[(&str, Attribute<'_>)], x: &[f32], kind: DType) -> Vec<f64> {
        let mut names = vec!["x", "scale", "shift"];
        if operator == "BatchNormalization" {
            names.extend(["mean", "variance"]);
        }
        let column = |name: &&str| {
            let dims = if operator == "LayerNormalization" { DIMS[1..].to_vec() } else { vec![DIMS[1]] };
            let number = if *name == "scale" { 1f32 } else { 0.0 };
            TensorData::new(vec![number; dims.iter().product()], dims)
        };
        let inputs = [TensorData::new(x.to_vec(), DIMS)].into_iter().chain(names[1..].iter().map(column));
        let author = names.iter().fold(Author::new(21), |author, name| author.input(name, &[FREE]));
        let author = author.node(operator, &names, &["y"], attributes).output("y", &[FREE]);
        let y = author.answer(inputs.map(|x| x.convert_dtype(kind)).collect()).unwrap();
        y[0].clone().convert_dtype(DType::F64).try_into_vec().unwrap()
    }

    #[test]
    fn planes_of_equal_numbers_are_normalised_to_zeros() {
        let x = vec![1000.1; COUNT];
        for (operator, attributes) in [
            ("InstanceNormalization", vec![]),
            ("GroupNormalization", vec![("num_groups", Int(2))]),
            ("LayerNormalization", vec![("axis", Int(1))]),
            ("BatchNormalization", vec![("training_mode", Int(1))]),
        ] {
            for kind in [DType::F32, DType::F64] {
                let y = normalised(operator, &attributes, &x, kind);
                let most = y.iter().fold(0f64, |most, y| most.max(y.abs()));
                assert!(most <= 1e-5, "{operator}, {kind:?}: {most}");
            }
        }
    }

    #[test]
    fn planes_of_neighbouring_floats_keep_their_distance_to_the_mean() {
        let x: Vec<f32> = (0..COUNT).map(|i| if i % 2 == 0 { 1000.1 } else { 1000.1f32.next_up() }).collect();
        for (operator, attributes, each) in [
            ("InstanceNormalization", vec![], COUNT / 8),
            ("GroupNormalization", vec![("num_groups", Int(2))], COUNT / 4),
            ("LayerNormalization", vec![("axis", Int(1))], COUNT / 2),
        ] {
            let y = normalised(operator, &attributes, &x, DType::F32);
            for (x, y) in x.chunks(each).zip(y.chunks(each)) {
                let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / each as f64;
                let variance = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / each as f64;
                for (x, y) in x.iter().zip(y) {
                    let expected = (f64::from(*x) - mean) / (variance + EPSILON).sqrt();
                    assert!((y - expected).abs() <= 1e-4 * expected.abs(), "{operator}: {y} for {expected}");
                }
            }
        }
    }
}
