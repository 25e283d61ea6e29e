//! Cutting and joining along axes.

use burn_backend::Slice;
use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_dispatch::DispatchDevice;

use super::arrange::{selected, zeros};
use super::{Build, Kernel, Operator};
use crate::floats::{self as local, Floats};
use crate::memory;
use crate::value::{Backend as B, HostInts, OpError, Value, axis, elements};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::moving("Concat", |build| {
        let given = build.attributes.int("axis", 1)?;
        Ok(Kernel::one(move |mut args| {
            let device = args.device;
            joined(args.all(), given, device)
        }))
    }),
    Operator::moving("Slice", slice),
    Operator::moving("Split", |build| {
        let given = build.attributes.int("axis", 0)?;
        let declared = build.attributes.int("num_outputs", 0)?;
        let sizes = build.ints("split", 1)?;
        let parts = build.node.file.output.len();
        if declared != 0 && declared != parts as i64 {
            return Err(OpError(format!("num_outputs is {declared} and there are {parts} outputs")));
        }
        Ok(Kernel::many(move |mut args| {
            let x = args.take(0)?;
            let sizes = sizes.get(&mut args)?;
            let axis = axis(given, x.rank())?;
            let length = x.shape()[axis];
            if declared == 0 && sizes.is_none() && length % parts.max(1) != 0 {
                return Err(OpError(format!("a length of {length} does not make {parts} equal parts")));
            }
            split(x, axis, sizes, parts, args.device)
        }))
    }),
];

/// `Slice`; before opset 10 with attributes, without steps.
fn slice(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let (starts, ends) = (build.ints("starts", 1)?, build.ints("ends", 2)?);
    let (axes, steps) = (build.ints("axes", 3)?, build.ints("steps", 4)?);
    Ok(Kernel::one(move |mut args| {
        let (starts, ends) = (starts.need("starts", &mut args)?, ends.need("ends", &mut args)?);
        let axes = axes.get(&mut args)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
        let steps = steps.get(&mut args)?.unwrap_or_else(|| vec![1; starts.len()]);
        if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
            return Err(OpError::new("starts, ends, axes and steps differ in length"));
        }
        let x = args.take(0)?;
        let dims = x.shape();
        let mut cuts: Vec<Cut> = dims.iter().map(|&length| Cut { start: 0, step: 1, count: length }).collect();
        for (((start, end), given), step) in starts.into_iter().zip(ends).zip(axes).zip(steps) {
            let axis = axis(given, dims.len())?;
            cuts[axis] = Cut::of(start, end, step, dims[axis])?;
        }
        cut(x, &cuts, args.device)
    }))
}

/// The part of one axis that is kept: `count` elements from `start` on, `step` apart.
pub(super) struct Cut {
    pub(super) start: usize,
    pub(super) step: i64,
    pub(super) count: usize,
}

impl Cut {
    /// From `start` up to, but without, `end`, as ONNX writes it: negative ends count from the end of the axis, and ends
    /// beyond it mean the end.
    fn of(start: i64, end: i64, step: i64, length: usize) -> Result<Cut, OpError> {
        let length = length as i64;
        let from_end = |i: i64| if i < 0 { i.saturating_add(length) } else { i };
        let (start, end) = (from_end(start), from_end(end));
        // Where the first element is, and how far it is to the end in the direction of the step.
        let (start, distance) = match step {
            0 => return Err(OpError::new("a step of 0")),
            1.. => (start.clamp(0, length), end.clamp(0, length) - start.clamp(0, length)),
            _ => {
                // Slice-13: a start before the axis is its first place, also on the way back.
                let start = start.clamp((length - 1).min(0), length - 1);
                (start, start - end.clamp(-1, length - 1))
            }
        };
        let count = u64::try_from(distance).map_or(0, |distance| distance.div_ceil(step.unsigned_abs()));
        // Nothing is kept of an empty axis.
        Ok(Cut { start: usize::try_from(start).unwrap_or(0), step, count: count as usize })
    }
}

/// The part of `x` that is kept, with a cut for each axis.
pub(super) fn cut(mut x: Value, cuts: &[Cut], device: &DispatchDevice) -> Result<Value, OpError> {
    let kept: Vec<usize> = cuts.iter().map(|cut| cut.count).collect();
    if kept == x.shape() && cuts.iter().all(|cut| cut.step > 0) {
        return Ok(x);
    }
    if elements(&kept)? == 0 {
        return zeros(kept, x.dtype(), device);
    }
    for (axis, cut) in cuts.iter().enumerate().filter(|(_, cut)| cut.step < 0) {
        let step = cut.step.unsigned_abs() as usize;
        x = selected(x, axis, (0..cut.count).map(|i| cut.start - i * step).collect(), device)?;
    }
    let slices: Vec<Slice> = cuts
        .iter()
        .map(|cut| match cut.step {
            // A longer step than the axis makes no difference once the count is known.
            step @ 1.. if cut.count > 1 => {
                let end = cut.start + (cut.count - 1) * step as usize + 1;
                Slice::new(cut.start as isize, Some(end as isize), step as isize)
            }
            1.. => Slice::new(cut.start as isize, Some(cut.start as isize + 1), 1),
            _ => Slice::new(0, Some(cut.count as isize), 1),
        })
        .collect();
    Ok(match x {
        Value::Float(t) => Value::Float(B::float_slice(t, &slices)),
        Value::Int(t) => Value::Int(B::int_slice(t, &slices)),
        Value::Bool(t) => Value::Bool(B::bool_slice(t, &slices)),
        Value::Host(h) => match cuts.first() {
            Some(cut) if cut.step > 0 => {
                let kept = h.ints[cut.start..].iter().copied().step_by(cut.step as usize).take(cut.count);
                Value::Host(HostInts::vector(kept.collect()))
            }
            _ => Value::Host(h),
        },
        other => return Err(OpError(format!("expects a tensor and gets {}", other.kind()))),
    })
}

/// One consecutive part of an axis.
pub(super) fn part(
    x: Value,
    axis: usize,
    start: usize,
    count: usize,
    device: &DispatchDevice,
) -> Result<Value, OpError> {
    let whole = |length| Cut { start: 0, step: 1, count: length };
    let mut cuts: Vec<Cut> = x.shape().into_iter().map(whole).collect();
    cuts[axis] = Cut { start, step: 1, count };
    cut(x, &cuts, device)
}

/// Tensors one behind the other along an axis.
pub(super) fn joined(parts: Vec<Value>, given: i64, device: &DispatchDevice) -> Result<Value, OpError> {
    let Some(first) = parts.first() else { return Err(OpError::new("nothing to join")) };
    let (mut dims, dtype) = (first.shape(), first.dtype());
    let axis = axis(given, dims.len())?;
    dims[axis] = 0;
    for part in &parts {
        let have = part.shape();
        let alike = have.len() == dims.len() && (0..dims.len()).all(|i| i == axis || have[i] == dims[i]);
        if !alike {
            let first = parts[0].shape();
            return Err(OpError(format!("shapes {first:?} and {have:?} do not join along axis {axis}")));
        }
        if part.dtype() != dtype {
            return Err(OpError(format!("parts of type {dtype:?} and {:?} do not join", part.dtype())));
        }
        dims[axis] = dims[axis].saturating_add(have[axis]);
    }
    if elements(&dims)? == 0 {
        return zeros(dims, dtype, device);
    }
    if parts.iter().all(|part| matches!(part, Value::Host(_))) {
        let ints = parts.into_iter().map(|part| part.ints().map(|h| h.ints)).collect::<Result<Vec<_>, _>>()?;
        return Ok(Value::Host(HostInts::vector(ints.concat())));
    }
    let (mut floats, mut ints, mut bools) = (Vec::new(), Vec::new(), Vec::new());
    for part in parts.into_iter().filter(|part| part.shape()[axis] > 0) {
        match part {
            Value::Float(t) => floats.push(t),
            Value::Bool(t) => bools.push(t),
            other => ints.push(other.int_tensor(device)?),
        }
    }
    let near = floats.iter().map(Floats::of).collect::<Option<Vec<_>>>().filter(|near| !near.is_empty());
    if let Some(near) = near {
        drop(floats);
        let inner: usize = dims[axis + 1..].iter().product();
        let mut y = memory::take(elements(&dims)?);
        interleave(&near, dims[..axis].iter().product(), inner * dims[axis], &mut y);
        near.into_iter().for_each(Floats::used_up);
        return local::tensor(y, dims, device);
    }
    // Parts of one type are of one kind.
    Ok(if !floats.is_empty() {
        Value::Float(B::float_cat(floats, axis))
    } else if !bools.is_empty() {
        Value::Bool(B::bool_cat(bools, axis))
    } else {
        Value::Int(B::int_cat(ints, axis))
    })
}

/// Copies parts, each of `count` stretches, to lines of which each has a stretch of every part.
fn interleave(parts: &[Floats], count: usize, line: usize, y: &mut [f32]) {
    let mut first = 0;
    for part in parts {
        let part = part.as_slice();
        let stretch = part.len() / count;
        let pieces = part.chunks_exact(stretch).zip(y.chunks_exact_mut(line));
        match stretch {
            1 => pieces.for_each(|(from, to)| to[first] = from[0]),
            _ => pieces.for_each(|(from, to)| to[first..first + stretch].copy_from_slice(from)),
        }
        first += stretch;
    }
}

/// Cuts a tensor into `parts` consecutive pieces: of the given sizes, or of equal size with a shorter last one.
pub(super) fn split(
    x: Value,
    axis: usize,
    sizes: Option<Vec<i64>>,
    parts: usize,
    device: &DispatchDevice,
) -> Result<Vec<Value>, OpError> {
    let length = x.shape()[axis];
    let sizes = match sizes {
        Some(given) => {
            let sizes: Option<Vec<usize>> = given.iter().map(|&size| usize::try_from(size).ok()).collect();
            let total = |sizes: &Vec<usize>| sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size));
            let sizes = sizes.filter(|sizes| sizes.len() == parts && total(sizes) == Some(length));
            sizes.ok_or_else(|| {
                OpError(format!("the parts {given:?} do not add up to a length of {length} in {parts} outputs"))
            })?
        }
        None => {
            let even = length.div_ceil(parts.max(1));
            // All but the last are full.
            if length > 0 && even * parts.saturating_sub(1) >= length {
                return Err(OpError(format!("a length of {length} does not make {parts} parts of {even} and a rest")));
            }
            (0..parts).map(|part| even.min(length.saturating_sub(part * even))).collect()
        }
    };
    let mut from = 0;
    let mut pieces = Vec::with_capacity(parts);
    for size in sizes {
        pieces.push(part(x.clone(), axis, from, size, device)?);
        from += size;
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use crate::author::Attribute::{Float, Int, Ints, Text};
    use crate::author::{Attribute, Author};

    fn counted(dims: &[usize]) -> TensorData {
        let count: usize = dims.iter().product();
        TensorData::new((0..count).map(|i| i as f32).collect::<Vec<_>>(), dims.to_vec())
    }

    /// What a node of an old opset gives for 0, 1, 2 … in the shape `dims`.
    fn old(
        opset: i64,
        operator: &str,
        dims: &[usize],
        outputs: usize,
        attributes: &[(&str, Attribute<'_>)],
    ) -> Vec<(Vec<usize>, Vec<f32>)> {
        let names: Vec<String> = (0..outputs).map(|i| format!("y{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let declared: Vec<i64> = dims.iter().map(|&d| d as i64).collect();
        let author = Author::new(opset).input("x", &declared).node(operator, &["x"], &names, attributes);
        let author = names.iter().fold(author, |author, name| author.output(name, &[]));
        let found = author.answer(vec![counted(dims)]).unwrap();
        found.into_iter().map(|y| (y.shape().to_vec(), y.iter::<f32>().collect())).collect()
    }

    #[test]
    fn operators_of_old_files_take_their_numbers_from_attributes() {
        let cut = [("starts", Ints(&[-2])), ("ends", Ints(&[i64::MAX])), ("axes", Ints(&[1]))];
        assert_eq!(old(9, "Slice", &[1, 3], 1, &cut), [(vec![1, 2], vec![1.0, 2.0])]);
        let parts = [("split", Ints(&[1, 0, 2])), ("axis", Int(1))];
        let expected = [(vec![1, 1], vec![0.0]), (vec![1, 0], vec![]), (vec![1, 2], vec![1.0, 2.0])];
        assert_eq!(old(11, "Split", &[1, 3], 3, &parts), expected);
        let pads = [("pads", Ints(&[0, 1, 0, -1])), ("value", Float(9.0)), ("mode", Text("constant"))];
        assert_eq!(old(10, "Pad", &[1, 3], 1, &pads), [(vec![1, 3], vec![9.0, 0.0, 1.0])]);
        assert_eq!(old(12, "Squeeze", &[1, 1, 2], 1, &[("axes", Ints(&[1]))]), [(vec![1, 2], vec![0.0, 1.0])]);
        assert_eq!(old(12, "Unsqueeze", &[2], 1, &[("axes", Ints(&[0, 2]))]), [(vec![1, 2, 1], vec![0.0, 1.0])]);
        assert_eq!(old(9, "TopK", &[3], 2, &[("k", Int(2))])[0], (vec![2], vec![2.0, 1.0]));
        // Before opset 10 the mask of a dropout has the type of the data.
        assert_eq!(old(7, "Dropout", &[2], 2, &[("ratio", Float(0.5))])[1], (vec![2], vec![1.0, 1.0]));
        assert_eq!(old(10, "DepthToSpace", &[1, 4, 1, 1], 1, &[("blocksize", Int(2))])[0].0, [1, 1, 2, 2]);
    }

    #[test]
    fn booleans_and_numbers_of_all_widths_are_cut_joined_and_repeated() {
        for element in [2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16] {
            let author = Author::new(13).input_of(element, "x", &[2, 2]).output_of(element, "y", &[1, 5, 2]);
            let author = author.ints("starts", &[2], &[-1, -1]).ints("ends", &[2], &[-100, -100]);
            let author = author.ints("axes", &[2], &[0, 1]).ints("steps", &[2], &[-1, -1]);
            let author = author.ints("second", &[1], &[1]).ints("times", &[2], &[1, 2]);
            let author = author.node("Slice", &["x", "starts", "ends", "axes", "steps"], &["turned"], &[]);
            let author = author.node("Gather", &["turned", "second"], &["column"], &[("axis", Int(1))]);
            let author = author.node("Tile", &["column", "times"], &["wide"], &[]);
            let author = author.node("Concat", &["turned", "wide"], &["joined"], &[("axis", Int(-1))]);
            let author = author.ints("pads", &[4], &[0, 1, 0, 0]).node("Pad", &["joined", "pads"], &["padded"], &[]);
            let author = author.node("Transpose", &["padded"], &["upright"], &[]).ints("dims", &[3], &[1, 1, 1]);
            let author = author.node("Expand", &["upright", "dims"], &["y"], &[]);
            let dtype = crate::tensors::dtype(element.into()).unwrap();
            let data =
                |list: &[i64], dims: &[usize]| TensorData::new(list.to_vec(), dims.to_vec()).try_cast(dtype).unwrap();
            let found = author.answer(vec![data(&[0, 1, 1, 0], &[2, 2])]).unwrap();
            assert_eq!(found, [data(&[0, 0, 0, 1, 1, 0, 1, 0, 1, 0], &[1, 5, 2])], "{dtype:?}");
        }
    }

    #[test]
    fn integers_on_the_host_and_on_the_device_join() {
        let author = Author::new(13).int_input("x", &[2, 1]).output_of(7, "y", &[-1]).ints("rest", &[1], &[-1]);
        let author = author.node("Shape", &["x"], &["dims"], &[]).node("Reshape", &["x", "rest"], &["flat"], &[]);
        let author = author.node("Concat", &["dims", "flat"], &["y"], &[("axis", Int(0))]);
        let found = author.answer(vec![TensorData::new(vec![5i64, 6], [2, 1])]).unwrap();
        assert_eq!(found, [TensorData::new(vec![2i64, 1, 5, 6], [4])]);
    }

    #[test]
    fn pads_that_an_exporter_computes_are_followed() {
        // `F.pad(x, (1, 2))`: pads come from the last axis to the first and are turned around by a step of -1.
        let author = Author::new(13).input("x", &[1, 2]).output("y", &[1, 5]);
        let author = author.ints("given", &[4], &[1, 2, 0, 0]).ints("pairs", &[2], &[-1, 2]).ints("flat", &[1], &[-1]);
        let author = author.ints("start", &[1], &[-1]).ints("end", &[1], &[i64::MIN + 1]).ints("axis", &[1], &[0]);
        let author = author.node("Reshape", &["given", "pairs"], &["a"], &[]);
        let author = author.node("Slice", &["a", "start", "end", "axis", "start"], &["b"], &[]);
        let author = author.node("Transpose", &["b"], &["c"], &[("perm", Ints(&[1, 0]))]);
        let author = author.node("Reshape", &["c", "flat"], &["pads"], &[]).node("Pad", &["x", "pads"], &["y"], &[]);
        let found = author.answer(vec![TensorData::new(vec![1f32, 2.0], [1, 2])]).unwrap();
        assert_eq!(found, [TensorData::new(vec![0f32, 1.0, 2.0, 0.0, 0.0], [1, 5])]);
    }
}
