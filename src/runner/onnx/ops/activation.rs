//! Activations: one float tensor in, one of the same shape out.

use burn_backend::ops::{ActivationOps, FloatTensorOps};
use onnx_ir::Node;
use onnx_ir::node::gelu::GeluApproximate;

use super::{Build, Compiled, Kernel, Refusal};
use crate::runner::onnx::value::{Backend as B, Handle, OpError, Value, elements};

pub(super) const OPERATORS: &[&str] = &[
    "Elu",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "LogSoftmax",
    "Relu",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
];

/// Before this opset `Softmax` treats all dimensions from its axis on as one.
const SOFTMAX_BY_AXIS: u64 = 13;

pub(super) fn compile(node: &Node, build: &mut Build<'_>) -> Compiled {
    Ok(Some(match node {
        Node::Relu(_) => each(B::relu),
        Node::Sigmoid(_) => each(B::sigmoid),
        Node::Tanh(_) => each(B::float_tanh),
        Node::Elu(n) => {
            let alpha = n.config.alpha;
            each(move |x| {
                // exp(x) - 1 below zero, with the positive part kept away from exp so that it cannot overflow.
                let below = B::float_sub_scalar(B::float_exp(B::float_clamp_max(x.clone(), 0.0.into())), 1.0.into());
                B::float_add(B::relu(x), B::float_mul_scalar(below, alpha.into()))
            })
        }
        Node::LeakyRelu(n) => {
            let alpha = n.config.alpha;
            each(move |x| B::leaky_relu(x, alpha.into()))
        }
        Node::HardSigmoid(n) => {
            let (alpha, beta) = (n.config.alpha, n.config.beta);
            each(move |x| B::hard_sigmoid(x, alpha.into(), beta.into()))
        }
        Node::HardSwish(_) => each(|x| B::float_mul(x.clone(), B::hard_sigmoid(x, (1.0 / 6.0).into(), 0.5.into()))),
        Node::Softplus(_) => each(|x| {
            // ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|), which does not overflow.
            let tail = B::float_log1p(B::float_exp(B::float_neg(B::float_abs(x.clone()))));
            B::float_add(B::relu(x), tail)
        }),
        Node::Gelu(n) => match n.config.approximate {
            GeluApproximate::Exact => each(B::gelu),
            GeluApproximate::Tanh => {
                return Err(Refusal::form("approximate='tanh'; export with approximate='none'"));
            }
        },
        Node::Softmax(n) => along(n.config.axis, build.opset, B::softmax),
        Node::LogSoftmax(n) => along(n.config.axis, build.opset, B::log_softmax),
        _ => return Ok(None),
    }))
}

/// A kernel that maps a float tensor, in place where the backend can.
pub(super) fn each(f: impl Fn(Handle) -> Handle + Send + Sync + 'static) -> Kernel {
    Kernel::one(move |mut args| Ok(Value::Float(f(args.float(0)?))))
}

/// A kernel that normalises along an axis.
fn along(axis: usize, opset: u64, f: fn(Handle, usize) -> Handle) -> Kernel {
    Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let dims = x.shape();
        if axis >= dims.len() {
            return Err(OpError(format!("axis {axis} is out of range for rank {}", dims.len())));
        }
        if opset >= SOFTMAX_BY_AXIS || axis + 1 == dims.len() {
            return Ok(Value::Float(f(x.float()?, axis)));
        }
        let flat = vec![elements(&dims[..axis])?, elements(&dims[axis..])?];
        Value::Float(f(x.reshape(flat)?.float()?, 1)).reshape(dims)
    })
}
