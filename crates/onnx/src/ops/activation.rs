//! Activations: one tensor in, one of the same shape out.

use burn_backend::ops::{ActivationOps, BoolTensorOps, FloatTensorOps};
use burn_backend::{DType, FloatDType, TensorData, TensorMetadata};
use burn_dispatch::DispatchDevice;

use super::after::activated;
use super::arithmetic::{on_tensors, spread_over};
use super::host::{self, for_float};
use super::math::{floats, in_place, near, numbers};
use super::{Build, Kernel, Operator};
use crate::fast::activation::{self as fast, Activation, exp};
use crate::fast::rows::{log_softmax, softmax};
use crate::fast::spread::spread;
use crate::floats as local;
use crate::value::{Backend as B, Handle, OpError, Value, axis, bool_type_beside, broadcast, elements};
use uncork_model::quote::Quoted;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Celu", |build| {
        let factor = build.attributes.float("alpha", 1.0)?;
        if factor == 0.0 {
            return Err(OpError::new("an alpha of 0"));
        }
        let alpha = f64::from(factor);
        let general = composed(move |x| B::float_add(B::relu(x.clone()), below(x, alpha, 1.0 / alpha)))?;
        near(general, move |x| {
            let below = factor * (exp(if x < 0.0 { x / factor } else { 0.0 }) - 1.0);
            if x < 0.0 { below } else { x }
        })
    }),
    Operator::new("Elu", |build| {
        let alpha = build.attributes.float("alpha", 1.0)?;
        known(Activation::Elu(alpha))
    }),
    Operator::new("Gelu", |build| match build.attributes.text("approximate", "none")?.as_str() {
        "none" => known(Activation::Gelu),
        "tanh" => known(Activation::GeluTanh),
        other => Err(OpError(format!("approximate={}; it is none or tanh", Quoted(other)))),
    }),
    Operator::new("HardSigmoid", |build| {
        let (alpha, beta) = (build.attributes.float("alpha", 0.2)?, build.attributes.float("beta", 0.5)?);
        let general = floats(move |x| B::hard_sigmoid(x, alpha.into(), beta.into()))?;
        near(general, move |x| {
            let x = alpha * x + beta;
            let x = if x < 0.0 { 0.0 } else { x };
            if x > 1.0 { 1.0 } else { x }
        })
    }),
    Operator::new("HardSwish", |_| known(Activation::HardSwish)),
    Operator::new("Hardmax", |build| along(build, hardmax)),
    Operator::new("LeakyRelu", |build| {
        let alpha = build.attributes.float("alpha", 0.01)?;
        known(Activation::LeakyRelu(alpha))
    }),
    Operator::new("LogSoftmax", |build| {
        along(build, |x, axis, device| by_rows(x, axis, device, log_softmax, B::log_softmax))
    }),
    Operator::new("Mish", |_| near(composed(|x| B::float_mul(x.clone(), B::float_tanh(softplus(x))))?, fast::mish)),
    Operator::new("PRelu", |_| {
        Ok(Kernel::one(|mut args| {
            let (x, slope) = (args.take(0)?, args.take(1)?);
            leaky_by(x, slope, args.device)
        }))
    }),
    Operator::new("Relu", |_| quick(Activation::Relu, numbers(B::relu, |x| x.max(0))?)),
    Operator::new("Selu", |build| {
        // The numbers of Klambauer et al., "Self-Normalizing Neural Networks", 2017, as ONNX writes them.
        let alpha = build.attributes.float("alpha", 1.673_263_2)?;
        let gamma = build.attributes.float("gamma", 1.050_701)?;
        let general = composed(move |x| B::float_mul_scalar(elu(x, alpha.into()), gamma.into()))?;
        near(general, move |x| {
            let below = alpha * (exp(if x < 0.0 { x } else { 0.0 }) - 1.0);
            gamma * if x < 0.0 { below } else { x }
        })
    }),
    Operator::new("Shrink", |build| {
        let bias = f64::from(build.attributes.float("bias", 0.0)?);
        let edge = f64::from(build.attributes.float("lambd", 0.5)?);
        let shrunk = move |x: f64| match x {
            x if x < -edge => x + bias,
            x if x > edge => x - bias,
            _ => 0.0,
        };
        Ok(Kernel::one(move |mut args| match args.take(0)? {
            x @ Value::Float(_) => host::map_floats(x, args.device, shrunk),
            x => host::map_ints(x, args.device, |x| shrunk(x as f64) as i128),
        }))
    }),
    Operator::new("Sigmoid", |_| known(Activation::Sigmoid)),
    Operator::new("Softmax", |build| along(build, |x, axis, device| by_rows(x, axis, device, softmax, B::softmax))),
    Operator::new("Softplus", |_| near(composed(softplus)?, fast::softplus)),
    Operator::new("Softsign", |_| {
        let general = composed(|x| B::float_div(x.clone(), B::float_add_scalar(B::float_abs(x), 1.0.into())))?;
        near(general, |x| x / (1.0 + x.abs()))
    }),
    Operator::new("Swish", |build| {
        let alpha = build.attributes.float("alpha", 1.0)?;
        let general = composed(move |x| B::float_mul(x.clone(), B::sigmoid(B::float_mul_scalar(x, alpha.into()))))?;
        near(general, move |x| x / (1.0 + exp(-alpha * x)))
    }),
    Operator::new("Tanh", |_| known(Activation::Tanh)),
    Operator::new("ThresholdedRelu", |build| {
        let alpha = build.attributes.float("alpha", 1.0)?;
        let general = floats(move |x| {
            let high = B::float_greater_elem(x.clone(), alpha.into(), bool_type_beside(&x));
            B::float_mask_fill(x, B::bool_not(high), 0.0.into())
        })?;
        near(general, move |x| if x > alpha { x } else { 0.0 })
    }),
];

/// Before this opset `Softmax` and its kin treat all dimensions from their axis on as one.
const SOFTMAX_BY_AXIS: i64 = 13;

/// A kernel of several operations, whose steps are not rounded to half a float where the tensor is of such.
fn composed(f: impl Fn(Handle) -> Handle + Send + Sync + 'static) -> Result<Kernel, OpError> {
    floats(move |x| match x.dtype() {
        half @ (DType::F16 | DType::BF16) => {
            B::float_cast(f(B::float_cast(x, FloatDType::F32)), FloatDType::from(half))
        }
        _ => f(x),
    })
}

/// alpha · (e^(x · scale) - 1) below zero and 0 above: the positive part is kept away from exp, where it would overflow.
fn below(x: Handle, alpha: f64, scale: f64) -> Handle {
    let x = B::float_mul_scalar(B::float_clamp_max(x, 0.0.into()), scale.into());
    B::float_mul_scalar(B::float_sub_scalar(B::float_exp(x), 1.0.into()), alpha.into())
}

/// x above zero, and below it alpha · (e^x - 1).
pub(super) fn elu(x: Handle, alpha: f64) -> Handle {
    B::float_add(B::relu(x.clone()), below(x, alpha, 1.0))
}

/// ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|), which does not overflow.
fn softplus(x: Handle) -> Handle {
    let tail = B::float_log1p(B::float_exp(B::float_neg(B::float_abs(x.clone()))));
    B::float_add(B::relu(x), tail)
}

/// x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))
pub(super) fn gelu_by_tanh(x: Handle) -> Handle {
    let cube = B::float_mul(B::float_mul(x.clone(), x.clone()), x.clone());
    let inner = B::float_add(x.clone(), B::float_mul_scalar(cube, 0.044_715.into()));
    let inner = B::float_mul_scalar(inner, std::f64::consts::FRAC_2_PI.sqrt().into());
    B::float_mul(B::float_mul_scalar(x, 0.5.into()), B::float_add_scalar(B::float_tanh(inner), 1.0.into()))
}

/// Scales what is below zero by slopes, which broadcast to `x`.
fn leaky_by(x: Value, slope: Value, device: &DispatchDevice) -> Result<Value, OpError> {
    let dims = x.shape();
    if broadcast(&dims, &slope.shape())? != dims {
        return Err(OpError(format!("slopes of shape {:?} do not broadcast to {dims:?}", slope.shape().to_vec())));
    }
    match x {
        Value::Float(x) => {
            let slope = slope.float()?;
            if let Some(y) = spread_over(
                |pair, y| spread(pair, y, |x, slope| if x < 0.0 { x * slope } else { x }),
                &x,
                &slope,
                device,
            )? {
                [x, slope].into_iter().for_each(local::used_up);
                return Ok(y);
            }
            let low = on_tensors(B::float_mul, B::float_clamp_max(x.clone(), 0.0.into()), slope)?;
            Ok(Value::Float(B::float_add(B::relu(x), low)))
        }
        x => host::zip_ints(x, slope, device, |x, slope| Ok(if x < 0 { x.wrapping_mul(slope) } else { x })),
    }
}

/// A kernel of one of our own activations. Steps of burn's operations are not rounded to half a float.
pub(super) fn known(activation: Activation) -> Result<Kernel, OpError> {
    quick(activation, composed(move |x| activated(activation, x))?)
}

/// A kernel of one of our own activations where the elements are at hand, in place where nobody else has the tensor.
fn quick(activation: Activation, general: Kernel) -> Result<Kernel, OpError> {
    in_place(general, move |numbers| activation.run(numbers))
}

/// Softmax, or its logarithm: by our own kernel on whole rows where the elements are at hand.
fn by_rows(
    x: Value,
    axis: usize,
    device: &DispatchDevice,
    rows: fn(&mut [f32], usize),
    general: fn(Handle, usize) -> Handle,
) -> Result<Value, OpError> {
    let dims = x.shape();
    let x = x.float()?;
    if axis + 1 < dims.len() || !local::has(&x) {
        return Ok(Value::Float(general(x, axis)));
    }
    let mut numbers = local::into_vec(x)?;
    rows(&mut numbers, dims[axis]);
    local::tensor(numbers, dims, device)
}

/// A kernel that normalises along an axis.
fn along(
    build: &mut Build<'_>,
    f: fn(Value, usize, &DispatchDevice) -> Result<Value, OpError>,
) -> Result<Kernel, OpError> {
    let by_axis = build.opset >= SOFTMAX_BY_AXIS;
    let given = build.attributes.int("axis", if by_axis { -1 } else { 1 })?;
    Ok(Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let dims = x.shape();
        let axis = axis(given, dims.len())?;
        if dims.contains(&0) {
            return Ok(x);
        }
        if by_axis || axis + 1 == dims.len() {
            return f(x, axis, args.device);
        }
        let flat = vec![elements(&dims[..axis])?, elements(&dims[axis..])?];
        f(x.reshape(flat)?, 1, args.device)?.reshape(dims)
    }))
}

/// One at the first maximum along an axis, zero elsewhere.
fn hardmax(x: Value, axis: usize, device: &DispatchDevice) -> Result<Value, OpError> {
    let (dims, dtype) = (x.shape(), x.dtype());
    let mut hard = vec![0f32; elements(&dims)?];
    let lines = host::Lines::new(&dims, axis);
    for_float!(dtype, E => {
        let numbers = host::read::<E>(x)?;
        for line in lines.iter() {
            let first = line.clone().next().unwrap_or(0);
            let at = line.fold(first, |best, i| if numbers[i] > numbers[best] { i } else { best });
            hard[at] = 1.0;
        }
        Ok(())
    })?;
    Value::from_data(TensorData::new(hard, dims), device)?.cast(dtype, device)
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use super::super::alone::alone;
    use crate::author::Attribute::Int;

    #[test]
    fn the_maximum_of_old_files_is_of_all_dimensions_from_the_axis() {
        let x = || TensorData::from([[[1f32, 4.0], [2.0, 3.0]]]);
        let hard = |opset| alone(opset, "Hardmax", &[("axis", Int(1))], [("x", x())]);
        assert_eq!(hard(11), Ok(TensorData::from([[[0f32, 1.0], [0.0, 0.0]]])));
        assert_eq!(hard(13), Ok(TensorData::from([[[0f32, 1.0], [1.0, 0.0]]])));
    }

    #[test]
    fn slopes_must_broadcast_to_what_they_bend() {
        let bent = |slope: TensorData| alone(16, "PRelu", &[], [("x", TensorData::from([-2f32, 3.0])), ("s", slope)]);
        assert_eq!(bent([0.5f32].into()), Ok(TensorData::from([-1f32, 3.0])));
        assert!(bent([[0.5f32], [1.0]].into()).unwrap_err().contains("do not broadcast to [2]"));
    }

    #[test]
    fn activations_of_nothing_are_nothing() {
        let none = || TensorData::new(Vec::<f32>::new(), [2, 0]);
        for operator in ["Elu", "Hardmax", "LogSoftmax", "Mish", "Softmax", "ThresholdedRelu"] {
            assert_eq!(alone(18, operator, &[], [("x", none())]), Ok(none()), "{operator}");
        }
    }

    #[test]
    fn great_numbers_do_not_overflow_on_their_way() {
        let x = || TensorData::from([-1e4f32, 1e4]);
        assert_eq!(alone(18, "Softplus", &[], [("x", x())]), Ok(TensorData::from([0f32, 1e4])));
        assert_eq!(alone(18, "Elu", &[], [("x", x())]), Ok(TensorData::from([-1f32, 1e4])));
        assert_eq!(alone(18, "Celu", &[], [("x", x())]), Ok(TensorData::from([-1f32, 1e4])));
    }
}
