//! What a joined node does to its result: the sum with another tensor, then an activation.

use burn_backend::ops::{ActivationOps, FloatTensorOps};

use super::activation::{elu, gelu_by_tanh};
use super::arithmetic::added;
use super::{Args, Build};
use crate::fast::activation::Activation;
use crate::floats::Floats;
use crate::fuse::Followed;
use crate::value::{Backend as B, Handle, OpError, Value};

/// The tail of a joined node; of any other node, nothing.
pub(super) struct After {
    added: Option<usize>,
    pub(super) activation: Activation,
}

impl After {
    pub(super) fn of(build: &mut Build<'_>) -> After {
        let Followed { added, activation, .. } = build.followed();
        After { added, activation }
    }

    /// The tensor to add, if its elements are at hand and it has the result's shape; else it stays with the arguments.
    pub(super) fn term(&self, args: &mut Args<'_>, shape: &[usize]) -> Option<Floats> {
        let i = self.added?;
        let value = args.optional(i)?;
        if let Value::Float(handle) = &value
            && value.shape() == shape
            && let Some(floats) = Floats::of(handle)
        {
            return Some(floats);
        }
        args.put(i, value);
        None
    }

    /// Whether there still is a tensor to add.
    pub(super) fn waits(&self, args: &mut Args<'_>) -> bool {
        self.added.is_some_and(|i| args.has(i))
    }

    /// Adds and applies what a kernel has not done itself.
    pub(super) fn finish(&self, y: Value, args: &mut Args<'_>) -> Result<Value, OpError> {
        let y = match self.added.and_then(|i| args.optional(i)) {
            Some(term) => added(y, term, args.device)?,
            None => y,
        };
        Ok(Value::Float(activated(self.activation, y.float()?)))
    }
}

/// The activation by burn's operations.
pub(super) fn activated(activation: Activation, x: Handle) -> Handle {
    match activation {
        Activation::None => x,
        Activation::Relu => B::relu(x),
        Activation::Clip(low, high) => {
            let x = if low == f32::NEG_INFINITY { x } else { B::float_clamp_min(x, low.into()) };
            if high == f32::INFINITY { x } else { B::float_clamp_max(x, high.into()) }
        }
        Activation::LeakyRelu(slope) => B::leaky_relu(x, slope.into()),
        Activation::Gelu => B::gelu(x),
        Activation::GeluTanh => gelu_by_tanh(x),
        Activation::Exp => B::float_exp(x),
        Activation::Erf => B::float_erf(x),
        Activation::Elu(factor) => elu(x, factor.into()),
        Activation::Tanh => B::float_tanh(x),
        Activation::Sigmoid => B::sigmoid(x),
        Activation::Silu => B::float_mul(x.clone(), B::sigmoid(x)),
        Activation::HardSwish => B::float_mul(x.clone(), B::hard_sigmoid(x, (1.0 / 6.0).into(), 0.5.into())),
    }
}
