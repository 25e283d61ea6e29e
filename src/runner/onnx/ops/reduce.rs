//! Reductions of float tensors over some of their axes.

use burn_backend::TensorMetadata;
use burn_backend::ops::FloatTensorOps;
use onnx_ir::Node;
use onnx_ir::node::reduce::{ReduceAxes, ReduceConfig};

use super::{Build, Compiled, Kernel, Refusal};
use crate::runner::onnx::value::{Backend as B, Handle, OpError, Value, axis};

pub(super) const OPERATORS: &[&str] =
    &["ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"];

pub(super) fn compile(node: &Node, build: &mut Build<'_>) -> Compiled {
    let same = |x: Handle| x;
    let square = |x: Handle| B::float_mul(x.clone(), x);
    Ok(Some(match node {
        Node::ReduceSum(n) => reduce(&n.config, build, same, B::float_sum_dim, same)?,
        Node::ReduceMean(n) => reduce(&n.config, build, same, B::float_mean_dim, same)?,
        Node::ReduceMax(n) => reduce(&n.config, build, same, B::float_max_dim, same)?,
        Node::ReduceMin(n) => reduce(&n.config, build, same, B::float_min_dim, same)?,
        Node::ReduceProd(n) => reduce(&n.config, build, same, B::float_prod_dim, same)?,
        Node::ReduceSumSquare(n) => reduce(&n.config, build, square, B::float_sum_dim, same)?,
        Node::ReduceL2(n) => reduce(&n.config, build, square, B::float_sum_dim, B::float_sqrt)?,
        _ => return Ok(None),
    }))
}

/// Maps, reduces one axis after the other, maps again.
fn reduce(
    config: &ReduceConfig,
    build: &mut Build<'_>,
    before: fn(Handle) -> Handle,
    along: fn(Handle, usize) -> Handle,
    after: fn(Handle) -> Handle,
) -> Result<Kernel, Refusal> {
    let axes: Vec<i64> = match &config.axes {
        ReduceAxes::Static(axes) => axes.iter().map(|&a| a as i64).collect(),
        ReduceAxes::Runtime(input) => {
            let known = build.constant_ints(input.input_index)?;
            known.ok_or_else(|| Refusal::form("its axes are not constant"))?
        }
    };
    build.constant(1);
    let (keep, nothing) = (config.keepdims, config.noop_with_empty_axes && axes.is_empty());
    Ok(Kernel::one(move |mut args| {
        let mut x = before(args.float(0)?);
        let dims = x.shape().to_vec();
        if nothing {
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
