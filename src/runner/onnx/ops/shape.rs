//! Shapes and types: operators that keep all elements and change their dimensions, order or type.

use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use onnx_ir::Node;
use onnx_ir::node::reshape::ReshapeInput;
use onnx_ir::node::squeeze::SqueezeInput;
use onnx_ir::node::unsqueeze::UnsqueezeConfig;

use super::{Args, Build, Compiled, Kernel, Refusal};
use crate::runner::onnx::value::{Backend as B, HostInts, OpError, Value, axis, elements};

pub(super) const OPERATORS: &[&str] =
    &["Cast", "Dropout", "Flatten", "Reshape", "Shape", "Squeeze", "Transpose", "Unsqueeze"];

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
