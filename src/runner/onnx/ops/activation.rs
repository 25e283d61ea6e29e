//! Activations: one float tensor in, one of the same shape out.

use burn_backend::ops::{ActivationOps, FloatTensorOps};

use super::{Build, Kernel, Operator};
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
    Operator::new("Gelu", |build| match build.attributes.text("approximate", "none")?.as_str() {
        "none" => each(B::gelu),
        other => Err(OpError(format!("approximate='{other}'; export with approximate='none'"))),
    })
    .except("approximate='tanh'"),
    Operator::new("HardSigmoid", |build| {
        let (alpha, beta) = (build.attributes.float("alpha", 0.2)?, build.attributes.float("beta", 0.5)?);
        each(move |x| B::hard_sigmoid(x, alpha.into(), beta.into()))
    }),
    Operator::new("HardSwish", |_| {
        each(|x| B::float_mul(x.clone(), B::hard_sigmoid(x, (1.0 / 6.0).into(), 0.5.into())))
    }),
    Operator::new("LeakyRelu", |build| {
        let alpha = build.attributes.float("alpha", 0.01)?;
        each(move |x| B::leaky_relu(x, alpha.into()))
    }),
    Operator::new("LogSoftmax", |build| along(build, B::log_softmax)),
    Operator::new("Relu", |_| each(B::relu)),
    Operator::new("Sigmoid", |_| each(B::sigmoid)),
    Operator::new("Softmax", |build| along(build, B::softmax)),
    Operator::new("Softplus", |_| {
        each(|x| {
            // ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|), which does not overflow.
            let tail = B::float_log1p(B::float_exp(B::float_neg(B::float_abs(x.clone()))));
            B::float_add(B::relu(x), tail)
        })
    }),
    Operator::new("Tanh", |_| each(B::float_tanh)),
];

/// Before this opset `Softmax` treats all dimensions from its axis on as one.
const SOFTMAX_BY_AXIS: i64 = 13;

/// A kernel that maps a float tensor, in place where the backend can.
pub(super) fn each(f: impl Fn(Handle) -> Handle + Send + Sync + 'static) -> Result<Kernel, OpError> {
    Ok(Kernel::one(move |mut args| Ok(Value::Float(f(args.float(0)?)))))
}

/// A kernel that normalises along an axis.
fn along(build: &mut Build<'_>, f: fn(Handle, usize) -> Handle) -> Result<Kernel, OpError> {
    let by_axis = build.opset >= SOFTMAX_BY_AXIS;
    let given = build.attributes.int("axis", if by_axis { -1 } else { 1 })?;
    Ok(Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let dims = x.shape();
        let axis = axis(given, dims.len())?;
        if by_axis || axis + 1 == dims.len() {
            return Ok(Value::Float(f(x.float()?, axis)));
        }
        let flat = vec![elements(&dims[..axis])?, elements(&dims[axis..])?];
        Value::Float(f(x.reshape(flat)?.float()?, 1)).reshape(dims)
    }))
}
