//! Picking, cutting and joining along an axis, on tensors and on host integers.

use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_backend::{DType, IntDType, Shape, Slice, TensorData, TensorMetadata};

use super::{Args, Build, Kernel, Operator};
use crate::runner::onnx::value::{Backend as B, Handle, HostInts, OpError, Value, axis, elements};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Concat", |build| {
        let given = build.attributes.int("axis", 1)?;
        Ok(Kernel::one(move |mut args| concatenated(&mut args, given)))
    }),
    Operator::new("Gather", |build| {
        let given = build.attributes.int("axis", 0)?;
        Ok(Kernel::one(move |mut args| gathered(args.take(0)?, args.take(1)?, given, &args)))
    }),
    Operator::new("Slice", slice).except("negative steps"),
    Operator::new("Split", |build| {
        let given = build.attributes.int("axis", 0)?;
        let declared = build.attributes.int("num_outputs", 0)?;
        let sizes = build.ints("split", 1)?;
        let parts = build.node.output.len();
        if declared != 0 && declared != parts as i64 {
            return Err(OpError(format!("num_outputs is {declared} and there are {parts} outputs")));
        }
        Ok(Kernel::many(move |mut args| {
            let x = args.take(0)?;
            let sizes = sizes.get(&mut args)?;
            let sizes = sizes.map(|sizes| sizes.iter().map(|&s| usize::try_from(s).unwrap_or(0)).collect::<Vec<_>>());
            let axis = axis(given, x.rank())?;
            split(x, axis, sizes.as_deref(), parts)
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
        if steps.iter().any(|&s| s < 1) {
            return Err(OpError::new("a step that is not positive"));
        }
        let cuts = starts.into_iter().zip(ends).zip(axes).zip(steps);
        let cuts: Vec<Cut> = cuts.map(|(((start, end), axis), step)| Cut { start, end, axis, step }).collect();
        sliced(args.take(0)?, &cuts)
    }))
}

fn concatenated(args: &mut Args<'_>, given: i64) -> Result<Value, OpError> {
    let device = args.device;
    let parts = args.all();
    let first = parts.first().map(Value::shape).unwrap_or_default();
    let axis = axis(given, first.len())?;
    if parts.iter().all(|p| matches!(p, Value::Host(_))) {
        let ints = parts.into_iter().map(|p| p.ints().map(|h| h.ints)).collect::<Result<Vec<_>, _>>()?;
        return Ok(Value::Host(HostInts::vector(ints.concat())));
    }
    let mut total = 0usize;
    for part in &parts {
        let dims = part.shape();
        let alike = dims.len() == first.len() && (0..dims.len()).all(|i| i == axis || dims[i] == first[i]);
        if axis >= dims.len() || !alike {
            return Err(OpError(format!("shapes {first:?} and {dims:?} do not join along axis {axis}")));
        }
        total = total.saturating_add(dims[axis]);
    }
    let mut dims = first;
    dims[axis] = total;
    elements(&dims)?;
    let alike = |handles: &[Handle]| {
        let same = handles.windows(2).all(|pair| pair[0].dtype() == pair[1].dtype());
        if same { Ok(()) } else { Err(OpError::new("the parts differ in type")) }
    };
    match parts.first() {
        Some(Value::Float(_)) => {
            let parts = parts.into_iter().map(Value::float).collect::<Result<Vec<_>, _>>()?;
            alike(&parts)?;
            Ok(Value::Float(B::float_cat(parts, axis)))
        }
        Some(Value::Int(_) | Value::Host(_)) => {
            let parts = parts.into_iter().map(|p| p.int_tensor(device)).collect::<Result<Vec<_>, _>>()?;
            alike(&parts)?;
            Ok(Value::Int(B::int_cat(parts, axis)))
        }
        _ => Err(OpError::new("boolean tensors do not join")),
    }
}

fn gathered(x: Value, indices: Value, given: i64, args: &Args<'_>) -> Result<Value, OpError> {
    let axis = axis(given, x.rank())?;
    if let Value::Host(ints) = &x
        && axis == 0
        && indices.rank() <= 1
    {
        let at = indices.ints()?;
        let count = ints.ints.len();
        let picked = at.ints.iter().map(|&i| {
            let index = crate::runner::onnx::value::axis(i, count);
            index.map(|i| ints.ints[i]).map_err(|_| OpError(format!("index is out of range for {count} integers")))
        });
        return Ok(Value::Host(HostInts { ints: picked.collect::<Result<_, _>>()?, scalar: at.scalar }));
    }
    let mut dims = x.shape();
    let Some(&length) = dims.get(axis) else {
        return Err(OpError(format!("axis {axis} is out of range for the shape {dims:?}")));
    };
    let wanted = indices.shape();
    let count = elements(&wanted)?;
    let indices = in_range(indices, count, length, args)?;
    dims.splice(axis..axis + 1, wanted);
    elements(&dims)?;
    let picked = match x {
        Value::Float(t) => Value::Float(B::float_select(t, axis, indices)),
        other => Value::Int(B::int_select(other.int_tensor(args.device)?, axis, indices)),
    };
    picked.reshape(dims)
}

/// Indices as a flat tensor of numbers below `length`. Callers send indices, so one that is out of range must be an
/// error that says so; negative ones count from the end.
fn in_range(indices: Value, count: usize, length: usize, args: &Args<'_>) -> Result<Handle, OpError> {
    let flat = B::int_reshape(indices.int_tensor(args.device)?, Shape::from(vec![count]));
    let flat = if flat.dtype() == DType::I64 { flat } else { B::int_cast(flat, IntDType::I64) };
    let mut ints = Value::Int(flat).into_data()?.try_into_vec::<i64>().map_err(|e| OpError::new(e.to_string()))?;
    for i in &mut ints {
        let index = axis(*i, length).map_err(|_| OpError(format!("index {i} is out of range for length {length}")))?;
        *i = index as i64;
    }
    let shape = Shape::from(vec![count]);
    Ok(B::int_from_data(TensorData::new(ints, shape), args.device))
}

/// One axis of a `Slice`, as ONNX writes it.
struct Cut {
    start: i64,
    end: i64,
    axis: i64,
    step: i64,
}

fn sliced(x: Value, cuts: &[Cut]) -> Result<Value, OpError> {
    let dims = x.shape();
    let mut slices: Vec<Slice> = dims.iter().map(|&d| Slice::new(0, Some(d as isize), 1)).collect();
    for cut in cuts {
        let axis = axis(cut.axis, dims.len())?;
        let length = dims[axis] as i64;
        let clamp = |i: i64| if i < 0 { i.saturating_add(length) } else { i }.clamp(0, length);
        let (start, end) = (clamp(cut.start), clamp(cut.end));
        if end <= start {
            return Err(OpError(format!("the part {start}..{end} of axis {axis} is empty")));
        }
        slices[axis] = Slice::new(start as isize, Some(end as isize), cut.step.min(length) as isize);
    }
    Ok(match x {
        Value::Float(t) => Value::Float(B::float_slice(t, &slices)),
        Value::Int(t) => Value::Int(B::int_slice(t, &slices)),
        Value::Bool(t) => Value::Bool(B::bool_slice(t, &slices)),
        Value::Host(h) => {
            let ints = match slices.first() {
                Some(s) => {
                    let part = s.start as usize..s.end.map_or(h.ints.len(), |e| e as usize);
                    h.ints[part].iter().copied().step_by(s.step as usize).collect()
                }
                None => h.ints,
            };
            Value::Host(HostInts { ints, scalar: h.scalar })
        }
    })
}

/// Cuts a tensor into `parts` consecutive pieces: of the given sizes, or of equal size with a shorter last one.
fn split(x: Value, axis: usize, sizes: Option<&[usize]>, parts: usize) -> Result<Vec<Value>, OpError> {
    let dims = x.shape();
    let Some(&length) = dims.get(axis) else {
        return Err(OpError(format!("axis {axis} is out of range for the shape {dims:?}")));
    };
    let even = length.div_ceil(parts.max(1));
    let mut from = 0;
    let mut pieces = Vec::with_capacity(parts);
    for part in 0..parts {
        let size = sizes.map_or(even.min(length - from), |sizes| sizes.get(part).copied().unwrap_or(0));
        if size == 0 || size > length - from {
            return Err(OpError(format!("a length of {length} does not split into {parts} parts of {sizes:?}")));
        }
        let cut = Cut { start: from as i64, end: (from + size) as i64, axis: axis as i64, step: 1 };
        pieces.push(sliced(x.clone(), &[cut])?);
        from += size;
    }
    if from != length {
        return Err(OpError(format!("the parts {sizes:?} do not add up to a length of {length}")));
    }
    Ok(pieces)
}
