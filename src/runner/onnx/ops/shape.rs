//! Shapes and indices: operators that move elements or compute with dimensions, on tensors and on host integers.

use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_backend::{DType, IntDType, Shape, Slice, TensorMetadata};
use onnx_ir::Node;
use onnx_ir::node::reshape::ReshapeInput;
use onnx_ir::node::slice::SliceInput;
use onnx_ir::node::squeeze::SqueezeInput;
use onnx_ir::node::unsqueeze::UnsqueezeConfig;

use super::{Args, Build, Compiled, Kernel, Refusal};
use crate::runner::onnx::value::{Backend as B, Handle, HostInts, OpError, Value, axis, elements};

pub(super) const OPERATORS: &[&str] = &[
    "Cast",
    "Concat",
    "Dropout",
    "Flatten",
    "Gather",
    "Reshape",
    "Shape",
    "Slice",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
];

pub(super) fn compile(node: &Node, build: &mut Build<'_>) -> Compiled {
    Ok(Some(match node {
        Node::Reshape(n) => {
            let known = match &n.config.shape {
                ReshapeInput::Static(dims) => Some(dims.clone()),
                ReshapeInput::Runtime(input) => build.constant_ints(input.input_index)?,
            };
            build.constant(1);
            Kernel::one(move |mut args| {
                let x = args.take(0)?;
                let dims = match &known {
                    Some(wanted) => reshaped(&x.shape(), wanted)?,
                    None => reshaped(&x.shape(), &args.ints(1)?.ints)?,
                };
                x.reshape(dims)
            })
        }
        Node::Flatten(n) => {
            let axis = n.config.axis;
            Kernel::one(move |mut args| {
                let x = args.take(0)?;
                let dims = x.shape();
                let (outer, inner) =
                    dims.split_at_checked(axis).ok_or_else(|| OpError(format!("axis {axis} is out of range")))?;
                x.reshape(vec![elements(outer)?, elements(inner)?])
            })
        }
        Node::Transpose(n) => {
            let order: Option<Vec<usize>> = n.config.perm.iter().map(|&p| usize::try_from(p).ok()).collect();
            let order = order.ok_or_else(|| Refusal::form("a negative axis in perm"))?;
            Kernel::one(move |mut args| transposed(args.take(0)?, &order))
        }
        Node::Squeeze(n) => {
            let axes = match &n.config.axes {
                None => Axes::Ones,
                Some(SqueezeInput::Static(axes)) => Axes::Known(axes.clone()),
                Some(SqueezeInput::Runtime(input)) => Axes::of(build, input.input_index)?,
            };
            build.constant(1);
            Kernel::one(move |mut args| squeezed(args.take(0)?, &axes, &mut args))
        }
        Node::Unsqueeze(n) => {
            let axes = match &n.config {
                UnsqueezeConfig::Static(axes) => Axes::Known(axes.clone()),
                UnsqueezeConfig::Runtime(input) => Axes::of(build, input.input_index)?,
            };
            build.constant(1);
            Kernel::one(move |mut args| unsqueezed(args.take(0)?, &axes, &mut args))
        }
        Node::Concat(n) => {
            let axis = n.config.axis;
            Kernel::one(move |mut args| concatenated(&mut args, axis))
        }
        Node::Shape(n) => {
            let (start, end) = (n.config.start, n.config.end);
            Kernel::one(move |mut args| {
                let dims = args.take(0)?.shape();
                let part = dims
                    .get(start..end)
                    .ok_or_else(|| OpError(format!("the shape {dims:?} has no part {start}..{end}")))?;
                Ok(Value::Host(HostInts::vector(part.iter().map(|&d| d as i64).collect())))
            })
        }
        Node::Gather(n) => {
            let axis = n.config.axis;
            Kernel::one(move |mut args| gathered(args.take(0)?, args.take(1)?, axis, &args))
        }
        Node::Slice(n) => {
            let config = &n.config;
            let part = |input: &SliceInput| match input {
                SliceInput::Static(ints) => Ok(ints.clone()),
                SliceInput::Runtime(_) => Err(Refusal::form("its bounds are not constant")),
            };
            let optional = |input: &Option<SliceInput>| input.as_ref().map(part).transpose();
            let (starts, ends) = (part(&config.starts)?, part(&config.ends)?);
            let axes = optional(&config.axes)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
            let steps = optional(&config.steps)?.unwrap_or_else(|| vec![1; starts.len()]);
            if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
                return Err(Refusal::form("starts, ends, axes and steps differ in length"));
            }
            if steps.iter().any(|&s| s < 1) {
                return Err(Refusal::form("a step that is not positive"));
            }
            for i in 1..5 {
                build.constant(i);
            }
            let cuts = starts.into_iter().zip(ends).zip(axes).zip(steps).map(|(((start, end), axis), step)| Cut {
                start,
                end,
                axis,
                step,
            });
            let cuts: Vec<Cut> = cuts.collect();
            Kernel::one(move |mut args| sliced(args.take(0)?, &cuts))
        }
        Node::Cast(n) => {
            let to = n.config.to;
            Kernel::one(move |mut args| args.take(0)?.cast(to, args.device))
        }
        Node::Dropout(n) => {
            // The mask would be all true; no exported network reads it.
            if n.outputs.get(1).is_some_and(|mask| !mask.name.is_empty()) {
                return Err(Refusal::form("its mask is used, as in training; export with model.eval()"));
            }
            Kernel::one(|mut args| args.take(0))
        }
        _ => return Ok(None),
    }))
}

/// The dimensions that `Reshape` asks for: 0 keeps a dimension, -1 takes what is left.
fn reshaped(have: &[usize], wanted: &[i64]) -> Result<Vec<usize>, OpError> {
    let impossible = || OpError(format!("cannot turn the shape {have:?} into {wanted:?}"));
    let mut open = None;
    let mut dims = Vec::with_capacity(wanted.len());
    for (i, &want) in wanted.iter().enumerate() {
        dims.push(match want {
            0 => *have.get(i).ok_or_else(impossible)?,
            -1 if open.is_none() => {
                open = Some(i);
                1
            }
            want => usize::try_from(want).map_err(|_| impossible())?,
        });
    }
    if let Some(open) = open {
        let (all, rest) = (elements(have)?, elements(&dims)?);
        dims[open] = all.checked_div(rest).ok_or_else(impossible)?;
    }
    Ok(dims)
}

/// Axes of `Squeeze` and `Unsqueeze`.
enum Axes {
    /// All dimensions of length 1.
    Ones,
    Known(Vec<i64>),
    /// Computed: the argument's place.
    Argument(usize),
}

impl Axes {
    fn of(build: &mut Build<'_>, i: usize) -> Result<Axes, OpError> {
        Ok(build.constant_ints(i)?.map_or(Axes::Argument(i), Axes::Known))
    }

    /// The axes as indices below `rank`, in ascending order.
    fn resolve(&self, rank: usize, args: &mut Args<'_>) -> Result<Option<Vec<usize>>, OpError> {
        let given = match self {
            Axes::Ones => return Ok(None),
            Axes::Known(axes) => axes.clone(),
            Axes::Argument(i) => args.ints(*i)?.ints,
        };
        let mut axes = given.into_iter().map(|a| axis(a, rank)).collect::<Result<Vec<_>, _>>()?;
        axes.sort_unstable();
        axes.dedup();
        Ok(Some(axes))
    }
}

fn squeezed(x: Value, axes: &Axes, args: &mut Args<'_>) -> Result<Value, OpError> {
    let dims = x.shape();
    let axes = axes.resolve(dims.len(), args)?;
    let goes = |i: usize, d: usize| axes.as_ref().map_or(d == 1, |axes| axes.contains(&i));
    if let Some((_, d)) = dims.iter().enumerate().find(|&(i, &d)| goes(i, d) && d != 1) {
        return Err(OpError(format!("a dimension of length {d} cannot be squeezed out of {dims:?}")));
    }
    let left = dims.iter().enumerate().filter(|&(i, &d)| !goes(i, d)).map(|(_, &d)| d);
    x.reshape(left.collect())
}

fn unsqueezed(x: Value, axes: &Axes, args: &mut Args<'_>) -> Result<Value, OpError> {
    let mut dims = x.shape();
    let count = match axes {
        Axes::Known(axes) => axes.len(),
        Axes::Argument(i) => {
            let axes = Axes::Known(args.ints(*i)?.ints);
            return unsqueezed(x, &axes, args);
        }
        Axes::Ones => 0,
    };
    for axis in axes.resolve(dims.len() + count, args)?.unwrap_or_default() {
        if axis > dims.len() {
            return Err(OpError::new("an axis comes twice"));
        }
        dims.insert(axis, 1);
    }
    x.reshape(dims)
}

fn transposed(x: Value, order: &[usize]) -> Result<Value, OpError> {
    let rank = x.rank();
    let mut seen = vec![false; rank];
    let once = order.iter().all(|&i| i < rank && !std::mem::replace(&mut seen[i], true));
    if order.len() != rank || !once {
        return Err(OpError(format!("the order {order:?} does not fit rank {rank}")));
    }
    Ok(match x {
        Value::Float(t) => Value::Float(B::float_permute(t, order)),
        Value::Int(t) => Value::Int(B::int_permute(t, order)),
        Value::Bool(t) => Value::Bool(B::bool_permute(t, order)),
        host @ Value::Host(_) => host,
    })
}

fn concatenated(args: &mut Args<'_>, axis: usize) -> Result<Value, OpError> {
    let device = args.device;
    let parts = args.all();
    let first = parts.first().map(Value::shape).unwrap_or_default();
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

fn gathered(x: Value, indices: Value, axis: usize, args: &Args<'_>) -> Result<Value, OpError> {
    if let Value::Host(ints) = &x
        && axis == 0
        && indices.rank() <= 1
    {
        let at = indices.ints()?;
        let count = ints.ints.len();
        let picked = at.ints.iter().map(|&i| {
            let i = crate::runner::onnx::value::axis(i, count);
            i.map(|i| ints.ints[i]).map_err(|_| OpError(format!("index is out of range for {count} integers")))
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
    Ok(B::int_from_data(burn_backend::TensorData::new(ints, shape), args.device))
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
