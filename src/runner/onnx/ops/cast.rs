//! Operators that change the type of elements, and those that do nothing but in training.

use burn_backend::{DType, TensorData};

use super::{Build, Kernel, Operator, host};
use crate::runner::onnx::tensors::dtype;
use crate::runner::onnx::value::{OpError, Value};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Cast", |build| {
        let to = target(build.attributes.int("to", 0)?)?;
        rounding(build)?;
        Ok(Kernel::one(move |mut args| args.take(0)?.cast(to, args.device)))
    })
    .except(FOREIGN),
    Operator::new("CastLike", |build| {
        rounding(build)?;
        Ok(Kernel::one(|mut args| {
            let to = args.take(1)?.dtype();
            args.take(0)?.cast(to, args.device)
        }))
    })
    .except(FOREIGN),
    Operator::new("Dropout", dropout).except("training, unless its ratio is a constant zero"),
];

const FOREIGN: &str = "texts, complex numbers, and floats and integers of 8 bits or fewer that Rust has no type for";

/// The type that ONNX numbers so.
pub(super) fn target(element: i64) -> Result<DType, OpError> {
    dtype(element).ok_or_else(|| OpError(format!("the element type {} is not supported", name(element))))
}

/// ONNX's names of the types that cannot be served.
fn name(element: i64) -> String {
    let name = match element {
        8 => "string",
        14 => "complex64",
        15 => "complex128",
        17 => "float8e4m3fn",
        18 => "float8e4m3fnuz",
        19 => "float8e5m2",
        20 => "float8e5m2fnuz",
        21 => "uint4",
        22 => "int4",
        23 => "float4e2m1",
        24 => "float8e8m0",
        25 => "uint2",
        26 => "int2",
        other => return format!("number {other}"),
    };
    name.to_owned()
}

/// Reads the attributes that say how to round to float8, a type that there is not.
fn rounding(build: &Build<'_>) -> Result<(), OpError> {
    build.attributes.flag("saturate", true)?;
    build.attributes.text("round_mode", "up")?;
    Ok(())
}

/// Nothing is dropped but in training, which only a constant ratio of zero makes predictable.
fn dropout(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let ratio = build.attributes.float("ratio", 0.5)?;
    build.attributes.int("seed", 0)?;
    let ratio = match build.constant(1) {
        Some(ratio) => host::float(ratio)?,
        None => ratio.into(),
    };
    match build.constant(2) {
        Some(training) if ratio != 0.0 && host::read::<bool>(training.clone())? == [true] => {
            return Err(OpError::new("it drops at random, as in training; export with model.eval()"));
        }
        None if build.has(2) => return Err(OpError::new("whether it trains is not constant")),
        _ => {}
    }
    let masked = build.gives(1);
    Ok(Kernel::many(move |mut args| {
        let x = args.take(0)?;
        if !masked {
            return Ok(vec![x]);
        }
        let dims = x.shape();
        let mask = vec![true; dims.iter().product()];
        Ok(vec![x, Value::from_data(TensorData::new(mask, dims), args.device)?])
    }))
}
