//! Padding and cropping.

use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_backend::{Shape, Slice, TensorData};
use burn_dispatch::DispatchDevice;
use uncork_model::quote::Quoted;

use super::arrange::{expanded, selected, zeros};
use super::generate::lengths;
use super::select::{Cut, cut};
use super::{Build, Kernel, Operator, host};
use crate::floats::{self, Floats};
use crate::memory;
use crate::value::{Backend as B, OpError, Value, axis, elements};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("CenterCropPad", |build| {
        let axes = build.attributes.ints("axes")?;
        let wanted = build.ints("shape", 1)?;
        Ok(Kernel::one(move |mut args| {
            let wanted = lengths(&wanted.need("dimensions", &mut args)?)?;
            let x = args.take(0)?;
            let dims = x.shape();
            let axes = axes_of(axes.as_deref(), dims.len(), wanted.len())?;
            let mut margins = vec![(0, 0); dims.len()];
            for (&axis, &wanted) in axes.iter().zip(&wanted) {
                // Half of what is missing in front, or half of what is too much cut off there; both rounded down.
                let missing = wanted as i64 - dims[axis] as i64;
                margins[axis] = (missing / 2, missing - missing / 2);
            }
            padded(x, &margins, Mode::Constant, None, args.device)
        }))
    }),
    Operator::new("Pad", pad),
];

/// What stands in the margins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Constant,
    /// The tensor mirrored at its first and last element.
    Reflect,
    /// The first and last element.
    Edge,
    /// The tensor again.
    Wrap,
}

/// `Pad`; before opset 11 with attributes.
fn pad(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let mode = match build.attributes.text("mode", "constant")?.as_str() {
        "constant" => Mode::Constant,
        "reflect" => Mode::Reflect,
        "edge" => Mode::Edge,
        "wrap" => Mode::Wrap,
        other => return Err(OpError(format!("the mode {}", Quoted(other)))),
    };
    let fixed = build.attributes.float("value", 0.0)?;
    let pads = build.ints("pads", 1)?;
    let axes = build.ints("axes", 3)?;
    Ok(Kernel::one(move |mut args| {
        let pads = pads.need("pads", &mut args)?;
        let axes = axes.get(&mut args)?;
        let (x, given) = (args.take(0)?, args.optional(2));
        let fill = match given {
            Some(value) => Some(value),
            None if fixed == 0.0 => None,
            None => {
                let value = Value::from_data(TensorData::new(vec![fixed], Shape::from(vec![1])), args.device)?;
                Some(value.cast(x.dtype(), args.device)?)
            }
        };
        let axes = axes_of(axes.as_deref(), x.rank(), pads.len() / 2)?;
        if pads.len() != 2 * axes.len() {
            return Err(OpError(format!("the pads {pads:?} do not fit {} axes", axes.len())));
        }
        let mut margins = vec![(0, 0); x.rank()];
        for (i, &axis) in axes.iter().enumerate() {
            margins[axis] = (pads[i], pads[i + axes.len()]);
        }
        padded(x, &margins, mode, fill, args.device)
    }))
}

/// The axes that `count` numbers are for: those that are given, or all.
fn axes_of(given: Option<&[i64]>, rank: usize, count: usize) -> Result<Vec<usize>, OpError> {
    let axes = match given {
        Some(given) => given.iter().map(|&given| axis(given, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..rank).collect(),
    };
    if axes.len() != count {
        return Err(OpError(format!("{count} lengths for {} axes", axes.len())));
    }
    Ok(axes)
}

/// `x` with margins before and behind each axis; negative ones are cut off. `fill` is one element, zero if there is none.
fn padded(
    x: Value,
    margins: &[(i64, i64)],
    mode: Mode,
    fill: Option<Value>,
    device: &DispatchDevice,
) -> Result<Value, OpError> {
    let (mut cuts, mut dims) = (Vec::new(), Vec::new());
    for (&(before, behind), &length) in margins.iter().zip(&x.shape()) {
        let whole = length as i64;
        let start = before.min(0).saturating_neg();
        let count = whole.saturating_sub(start).saturating_add(behind.min(0));
        if count < 0 {
            return Err(OpError(format!("more than a length of {length} is cut off")));
        }
        let (before, behind) = (before.max(0), behind.max(0));
        let padded = count.saturating_add(before).saturating_add(behind);
        // A length of zero has nothing to repeat.
        if mode != Mode::Constant && count == 0 && padded > 0 {
            return Err(OpError::new("an empty axis can be padded with a constant only"));
        }
        cuts.push(Cut { start: start as usize, step: 1, count: count as usize });
        dims.push(padded as usize);
    }
    elements(&dims)?;
    let mut x = cut(x, &cuts, device)?;
    let kept = x.shape();
    if kept == dims {
        return Ok(x);
    }
    if mode == Mode::Constant {
        let first = margins.iter().map(|&(before, _)| before.max(0) as usize);
        let slices =
            first.zip(&kept).map(|(first, &length)| Slice::new(first as isize, Some((first + length) as isize), 1));
        let slices: Vec<Slice> = slices.collect();
        let fill = match fill {
            Some(fill) if fill.dtype() == x.dtype() => fill.reshape(vec![])?,
            Some(fill) => return Err(OpError(format!("a filling of type {:?} for {:?}", fill.dtype(), x.dtype()))),
            None => zeros(vec![], x.dtype(), device)?,
        };
        if let Value::Float(handle) = &x
            && let Some(inner) = Floats::of(handle)
        {
            let mut y = memory::take(elements(&dims)?);
            y.fill(host::float(fill)? as f32);
            let before: Vec<usize> = margins.iter().map(|&(before, _)| before.max(0) as usize).collect();
            place(inner.as_slice(), &kept, &before, &dims, &mut y);
            drop(x);
            inner.used_up();
            return floats::tensor(y, dims, device);
        }
        let around = expanded(fill, dims, device)?;
        if elements(&kept)? == 0 {
            return Ok(around);
        }
        return Ok(match (around, x) {
            (Value::Float(around), Value::Float(x)) => Value::Float(B::float_slice_assign(around, &slices, x)),
            (Value::Bool(around), Value::Bool(x)) => Value::Bool(B::bool_slice_assign(around, &slices, x)),
            (around, x) => Value::Int(B::int_slice_assign(around.int_tensor(device)?, &slices, x.int_tensor(device)?)),
        });
    }
    let sources = |axis: usize| -> Vec<usize> {
        let (last, before) = (kept[axis] as i64 - 1, margins[axis].0.max(0));
        let source = |i: usize| {
            let i = i as i64 - before;
            let i = match mode {
                Mode::Edge => i.clamp(0, last),
                Mode::Wrap => i.rem_euclid(last + 1),
                Mode::Reflect | Mode::Constant => {
                    let around = i.rem_euclid((2 * last).max(1));
                    around.min(2 * last - around).max(0)
                }
            };
            i as usize
        };
        (0..dims[axis]).map(source).collect()
    };
    if let Value::Float(handle) = &x
        && let Some(inner) = Floats::of(handle)
    {
        let mut y = memory::take(elements(&dims)?);
        let before = margins.last().map_or(0, |&(before, _)| before.max(0) as usize);
        repeat(inner.as_slice(), &kept, &(0..dims.len()).map(sources).collect::<Vec<_>>(), before, &mut y);
        drop(x);
        inner.used_up();
        return floats::tensor(y, dims, device);
    }
    for axis in (0..dims.len()).filter(|&axis| kept[axis] != dims[axis]) {
        x = selected(x, axis, sources(axis), device)?;
    }
    Ok(x)
}

/// Writes a tensor of the shape `kept` and its margins; `sources` tells for each place of each axis which one it repeats, and
/// `before` how far the last axis' own places are behind its beginning.
fn repeat(x: &[f32], kept: &[usize], sources: &[Vec<usize>], before: usize, y: &mut [f32]) {
    let (Some((own, outer)), Some((&length, lines))) = (sources.split_last(), kept.split_last()) else { return };
    if y.is_empty() {
        return;
    }
    let mut index = vec![0; outer.len()];
    for y in y.chunks_exact_mut(own.len()) {
        let line = index.iter().zip(outer).zip(lines).fold(0, |at, ((&i, source), length)| at * length + source[i]);
        let x = &x[line * length..][..length];
        y[before..before + length].copy_from_slice(x);
        for i in (0..before).chain(before + length..own.len()) {
            y[i] = x[own[i]];
        }
        for (index, source) in index.iter_mut().zip(outer).rev() {
            *index += 1;
            if *index < source.len() {
                break;
            }
            *index = 0;
        }
    }
}

/// Writes a tensor of the shape `kept` into one of the shape `dims`, so far behind the beginning of each axis.
fn place(x: &[f32], kept: &[usize], before: &[usize], dims: &[usize], y: &mut [f32]) {
    if x.is_empty() {
        return;
    }
    // Axes without margins are part of the lines of the one in front of them.
    let whole = kept.iter().zip(dims).rev().take_while(|(kept, length)| kept == length).count();
    let line = dims.len().saturating_sub(whole + 1);
    let inner: usize = dims[line..].iter().skip(1).product();
    let (length, first) = (kept[line..].iter().product(), before[line] * inner);
    let mut index = vec![0; line];
    for x in x.chunks_exact(length) {
        let lines = index.iter().zip(before).zip(dims).fold(0, |at, ((i, before), length)| at * length + i + before);
        y[lines * dims[line] * inner + first..][..length].copy_from_slice(x);
        for (index, &length) in index.iter_mut().zip(kept).rev() {
            *index += 1;
            if *index < length {
                break;
            }
            *index = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use super::super::alone::{alone, scalar};
    use crate::author::Attribute::Text;

    #[test]
    fn margins_repeat_what_they_are_beside() {
        let x = TensorData::new((1..=6).map(|i| i as f32).collect::<Vec<f32>>(), [2, 3]);
        let padded = |mode| {
            let inputs = [("x", x.clone()), ("pads", TensorData::from([1i64, 2, 0, 1]))];
            alone(19, "Pad", &[("mode", Text(mode))], inputs)
        };
        let expected = |numbers: [f32; 18]| Ok(TensorData::new(numbers.to_vec(), [3, 6]));
        let [edge, first, second] = [[1., 1., 1., 2., 3., 3.], [3., 2., 1., 2., 3., 2.], [6., 5., 4., 5., 6., 5.]];
        let below = [4., 4., 4., 5., 6., 6.];
        let whole = |lines: [[f32; 6]; 3]| expected(std::array::from_fn(|i| lines[i / 6][i % 6]));
        assert_eq!(padded("edge"), whole([edge, edge, below]));
        assert_eq!(padded("reflect"), whole([second, first, second]));
        let (first, second) = ([2., 3., 1., 2., 3., 1.], [5., 6., 4., 5., 6., 4.]);
        assert_eq!(padded("wrap"), whole([second, first, second]));
    }

    #[test]
    fn margins_of_a_number_are_around_every_axis() {
        let x = TensorData::new((1..=4).map(|i| i as f32).collect::<Vec<f32>>(), [2, 2, 1]);
        let padded = |pads: &[i64]| {
            let inputs = [("x", x.clone()), ("pads", TensorData::from(pads)), ("value", scalar(9f32))];
            alone(13, "Pad", &[], inputs)
        };
        let expected = |numbers: &[f32], dims: [usize; 3]| Ok(TensorData::new(numbers.to_vec(), dims));
        assert_eq!(padded(&[0, 0, 1, 0, 0, 0]), expected(&[9., 1., 9., 2., 9., 3., 9., 4.], [2, 2, 2]));
        assert_eq!(padded(&[1, 0, 0, 0, 0, 0]), expected(&[9., 9., 1., 2., 3., 4.], [3, 2, 1]));
        let around = [1., 2., 9., 3., 4., 9., 9., 9., 9.];
        assert_eq!(padded(&[0, 0, 0, 1, 1, 0]), expected(&around, [3, 3, 1]));
        assert_eq!(padded(&[0, -1, 1, 1, 0, 0]), expected(&[9., 2., 9., 4., 9., 9.], [3, 1, 2]));
    }
}
