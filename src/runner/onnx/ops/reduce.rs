//! Reductions of float tensors over some of their axes.

use burn_backend::TensorMetadata;
use burn_backend::ops::FloatTensorOps;

use super::{Build, Kernel, Operator};
use crate::runner::onnx::value::{Backend as B, Handle, OpError, Value, axis};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("ReduceL2", |build| reduce(build, square, B::float_sum_dim, B::float_sqrt)),
    Operator::new("ReduceMax", |build| reduce(build, same, B::float_max_dim, same)),
    Operator::new("ReduceMean", |build| reduce(build, same, B::float_mean_dim, same)),
    Operator::new("ReduceMin", |build| reduce(build, same, B::float_min_dim, same)),
    Operator::new("ReduceProd", |build| reduce(build, same, B::float_prod_dim, same)),
    Operator::new("ReduceSum", |build| reduce(build, same, B::float_sum_dim, same)),
    Operator::new("ReduceSumSquare", |build| reduce(build, square, B::float_sum_dim, same)),
];

fn same(x: Handle) -> Handle {
    x
}

fn square(x: Handle) -> Handle {
    B::float_mul(x.clone(), x)
}

/// Maps, reduces one axis after the other, maps again.
fn reduce(
    build: &mut Build<'_>,
    before: fn(Handle) -> Handle,
    along: fn(Handle, usize) -> Handle,
    after: fn(Handle) -> Handle,
) -> Result<Kernel, OpError> {
    let axes = build.ints("axes", 1)?;
    let keep = build.attributes.flag("keepdims", true)?;
    let noop = build.attributes.flag("noop_with_empty_axes", false)?;
    Ok(Kernel::one(move |mut args| {
        let mut x = before(args.float(0)?);
        let dims = x.shape().to_vec();
        let axes = axes.get(&mut args)?.unwrap_or_default();
        if noop && axes.is_empty() {
            return Ok(Value::Float(after(x)));
        }
        let mut over = axes.iter().map(|&a| axis(a, dims.len())).collect::<Result<Vec<usize>, _>>()?;
        if over.is_empty() {
            over = (0..dims.len()).collect();
        }
        for &axis in &over {
            if dims[axis] == 0 {
                return Err(OpError(format!("nothing to reduce in the shape {dims:?}")));
            }
            x = along(x, axis);
        }
        let x = Value::Float(after(x));
        if keep {
            return Ok(x);
        }
        let left = dims.iter().enumerate().filter(|(i, _)| !over.contains(i)).map(|(_, &d)| d);
        x.reshape(left.collect())
    }))
}
