//! Activations: one float tensor in, one of the same shape out.

use burn_backend::ops::{ActivationOps, FloatTensorOps};

use burn_backend::TensorMetadata;

use super::after::activated;
use super::{Build, Kernel, Operator};
use crate::runner::onnx::fast::activation::Activation;
use crate::runner::onnx::fast::rows::softmax;
use crate::runner::onnx::floats;
use crate::runner::onnx::value::{Backend as B, Handle, OpError, Value, axis, elements};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Elu", |build| {
        let alpha = build.attributes.float("alpha", 1.0)?;
        each(move |x| {
            // exp(x) - 1 below zero, with the positive part kept away from exp so that it cannot overflow.
            let below = B::float_sub_scalar(B::float_exp(B::float_clamp_max(x.clone(), 0.0.into())), 1.0.into());
            B::float_add(B::relu(x), B::float_mul_scalar(below, alpha.into()))
        })
    }),
    Operator::new("uncork::Gelu", |_| known(Activation::Gelu)),
    Operator::new("uncork::Silu", |_| known(Activation::Silu)),
    Operator::new("Gelu", |build| match build.attributes.text("approximate", "none")?.as_str() {
        "none" => known(Activation::Gelu),
        other => Err(OpError(format!("approximate='{other}'; export with approximate='none'"))),
    })
    .except("approximate='tanh'"),
    Operator::new("HardSigmoid", |build| {
        let (alpha, beta) = (build.attributes.float("alpha", 0.2)?, build.attributes.float("beta", 0.5)?);
        each(move |x| B::hard_sigmoid(x, alpha.into(), beta.into()))
    }),
    Operator::new("HardSwish", |_| known(Activation::HardSwish)),
    Operator::new("LeakyRelu", |build| {
        let alpha = build.attributes.float("alpha", 0.01)?;
        known(Activation::LeakyRelu(alpha))
    }),
    Operator::new("LogSoftmax", |build| along(build, B::log_softmax, false)),
    Operator::new("Relu", |_| known(Activation::Relu)),
    Operator::new("Sigmoid", |_| known(Activation::Sigmoid)),
    Operator::new("Softmax", |build| along(build, B::softmax, true)),
    Operator::new("Softplus", |_| {
        each(|x| {
            // ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|), which does not overflow.
            let tail = B::float_log1p(B::float_exp(B::float_neg(B::float_abs(x.clone()))));
            B::float_add(B::relu(x), tail)
        })
    }),
    Operator::new("Tanh", |_| known(Activation::Tanh)),
];

/// Before this opset `Softmax` treats all dimensions from its axis on as one.
const SOFTMAX_BY_AXIS: i64 = 13;

/// A kernel that maps a float tensor, in place where the backend can.
pub(super) fn each(f: impl Fn(Handle) -> Handle + Send + Sync + 'static) -> Result<Kernel, OpError> {
    Ok(Kernel::one(move |mut args| Ok(Value::Float(f(args.float(0)?)))))
}

/// A kernel of one of our own activations, in place where nobody else has the tensor.
fn known(activation: Activation) -> Result<Kernel, OpError> {
    Ok(Kernel::one(move |mut args| {
        let x = args.float(0)?;
        if !floats::has(&x) {
            return Ok(Value::Float(activated(activation, x)));
        }
        let dims = x.shape().to_vec();
        let mut numbers = floats::into_vec(x)?;
        activation.run(&mut numbers);
        floats::tensor(numbers, dims, args.device)
    }))
}

/// A kernel that normalises along an axis; `rows`: it is softmax, for which there is a kernel of our own on whole rows.
fn along(build: &mut Build<'_>, f: fn(Handle, usize) -> Handle, rows: bool) -> Result<Kernel, OpError> {
    let by_axis = build.opset >= SOFTMAX_BY_AXIS;
    let given = build.attributes.int("axis", if by_axis { -1 } else { 1 })?;
    Ok(Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let dims = x.shape();
        let axis = axis(given, dims.len())?;
        let x = match x {
            // The last axis, or all from this one on, as rows.
            Value::Float(x) if rows && (!by_axis || axis + 1 == dims.len()) && floats::has(&x) => {
                let mut numbers = floats::into_vec(x)?;
                softmax(&mut numbers, elements(&dims[axis..])?);
                return floats::tensor(numbers, dims, args.device);
            }
            x => x,
        };
        if by_axis || axis + 1 == dims.len() {
            return Ok(Value::Float(f(x.float()?, axis)));
        }
        let flat = vec![elements(&dims[..axis])?, elements(&dims[axis..])?];
        Value::Float(f(x.reshape(flat)?.float()?, 1)).reshape(dims)
    }))
}
