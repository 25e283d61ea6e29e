//! Functions of one number: signs, rounding, roots, exponentials, trigonometry, and tests for special numbers.

use burn_backend::Scalar;
use burn_backend::ops::{BoolTensorOps, FloatTensorOps};

use super::activation::known;
use super::{Kernel, Operator, host};
use crate::fast::activation::{Activation, on_each};
use crate::floats as local;
use crate::value::{Backend as B, Handle, OpError, Value, bool_type_beside};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Abs", |_| near(numbers(B::float_abs, i128::abs)?, f32::abs)),
    Operator::new("Acos", |_| floats(B::float_acos)),
    Operator::new("Acosh", |_| floats(B::float_acosh)),
    Operator::new("Asin", |_| floats(B::float_asin)),
    Operator::new("Asinh", |_| floats(B::float_asinh)),
    Operator::new("Atan", |_| floats(B::float_atan)),
    Operator::new("Atanh", |_| floats(B::float_atanh)),
    Operator::new("BitwiseNot", |_| Ok(Kernel::one(|mut args| host::map_ints(args.take(0)?, args.device, |x| !x)))),
    Operator::new("Ceil", |_| near(floats(B::float_ceil)?, f32::ceil)),
    Operator::new("Cos", |_| floats(B::float_cos)),
    Operator::new("Cosh", |_| floats(B::float_cosh)),
    Operator::new("Erf", |_| known(Activation::Erf)),
    Operator::new("Exp", |_| known(Activation::Exp)),
    Operator::new("Floor", |_| near(floats(B::float_floor)?, f32::floor)),
    Operator::new("IsInf", |build| {
        let negative = build.attributes.flag("detect_negative", true)?;
        let positive = build.attributes.flag("detect_positive", true)?;
        test(move |x| {
            let kept = bool_type_beside(&x);
            match (negative, positive) {
                (true, true) => B::float_is_inf(x, kept),
                (true, false) => B::float_equal_elem(x, Scalar::from(f64::NEG_INFINITY), kept),
                (false, true) => B::float_equal_elem(x, Scalar::from(f64::INFINITY), kept),
                (false, false) => {
                    let infinite = B::float_is_inf(x, kept);
                    B::bool_xor(infinite.clone(), infinite)
                }
            }
        })
    }),
    Operator::new("IsNaN", |_| test(is_nan)),
    Operator::new("Log", |_| floats(B::float_log)),
    Operator::new("Neg", |_| near(numbers(B::float_neg, |x| -x)?, |x| -x)),
    Operator::new("Reciprocal", |_| near(floats(B::float_recip)?, |x| 1.0 / x)),
    Operator::new("Round", |_| near(floats(B::float_round)?, f32::round_ties_even)),
    Operator::new("Sign", |_| numbers(sign, i128::signum)),
    Operator::new("Sin", |_| floats(B::float_sin)),
    Operator::new("Sinh", |_| floats(B::float_sinh)),
    Operator::new("Sqrt", |_| near(floats(B::float_sqrt)?, f32::sqrt)),
    Operator::new("Tan", |_| floats(B::float_tan)),
];

fn is_nan(x: Handle) -> Handle {
    let kept = bool_type_beside(&x);
    B::float_is_nan(x, kept)
}

/// What is no number has none as its sign.
fn sign(x: Handle) -> Handle {
    let none = is_nan(x.clone());
    B::float_mask_fill(B::float_sign(x), none, f32::NAN.into())
}

/// A kernel that maps a float tensor, in place where the backend can.
pub(super) fn floats(f: impl Fn(Handle) -> Handle + Send + Sync + 'static) -> Result<Kernel, OpError> {
    Ok(Kernel::one(move |mut args| args.take(0)?.with_axis(|x| Ok(Value::Float(f(x.float()?))))))
}

/// A kernel that maps a tensor of floats or of integers.
pub(super) fn numbers(
    f: impl Fn(Handle) -> Handle + Send + Sync + 'static,
    ints: impl Fn(i128) -> i128 + Send + Sync + 'static,
) -> Result<Kernel, OpError> {
    Ok(Kernel::one(move |mut args| match args.take(0)? {
        Value::Float(x) => Ok(Value::Float(f(x))),
        x => host::map_ints(x, args.device, &ints),
    }))
}

/// A kernel that changes floats by a function of ours where they are at hand, in place where nobody else has the tensor.
pub(super) fn in_place(general: Kernel, f: impl Fn(&mut [f32]) + Send + Sync + 'static) -> Result<Kernel, OpError> {
    let Kernel::One(general) = general else { return Ok(general) };
    Ok(Kernel::one(move |mut args| match args.take(0)? {
        Value::Float(x) if local::has(&x) => local::changed(x, args.device, &f),
        x => {
            args.put(0, x);
            general(args)
        }
    }))
}

/// The same, number by number.
pub(super) fn near(general: Kernel, f: impl Fn(f32) -> f32 + Copy + Send + Sync + 'static) -> Result<Kernel, OpError> {
    in_place(general, move |numbers| on_each(numbers, f))
}

/// A kernel that tests each float.
fn test(f: impl Fn(Handle) -> Handle + Send + Sync + 'static) -> Result<Kernel, OpError> {
    Ok(Kernel::one(move |mut args| Ok(Value::Bool(f(args.float(0)?)))))
}
