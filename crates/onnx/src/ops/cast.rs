//! Operators that change the type of elements, and those that do nothing but in training.

use burn_backend::{DType, TensorData};
use burn_dispatch::DispatchDevice;

use super::text::numbers::{self, written};
use super::{Build, Kernel, Operator};
use crate::tensors::dtype;
use crate::value::{OpError, Value};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("BitCast", |build| {
        let to = target(build.attributes.int("to", 0)?)?;
        Ok(Kernel::one(move |mut args| bit_cast(args.take(0)?, to, args.device)))
    })
    .except(FOREIGN),
    Operator::of_any("Cast", |build| {
        let to = build.attributes.int("to", 0)?;
        rounding(build)?;
        if to == TEXT {
            return Ok(Kernel::one(|mut args| written(args.take(0)?).map(Value::Texts)));
        }
        let to = target(to)?;
        Ok(Kernel::one(move |mut args| cast(args.take(0)?, to, args.device)))
    })
    .except(FOREIGN),
    Operator::of_any("CastLike", |build| {
        rounding(build)?;
        Ok(Kernel::one(|mut args| match args.take(1)? {
            Value::Texts(_) => written(args.take(0)?).map(Value::Texts),
            like => cast(args.take(0)?, like.dtype(), args.device),
        }))
    })
    .except(FOREIGN),
];

const FOREIGN: &str = "complex numbers, and floats and integers of 8 bits or fewer that Rust has no type for";

/// ONNX's number of the type of texts.
const TEXT: i64 = 8;

/// The same elements as numbers of another type; texts are read as numbers.
fn cast(x: Value, to: DType, device: &DispatchDevice) -> Result<Value, OpError> {
    match x {
        Value::Texts(texts) => numbers::read(texts, to, device),
        other => other.cast(to, device),
    }
}

/// The type that ONNX numbers so.
pub(super) fn target(element: i64) -> Result<DType, OpError> {
    dtype(element).ok_or_else(|| OpError(format!("the element type {} is not supported", name(element))))
}

/// ONNX's names of the types that cannot be served.
fn name(element: i64) -> String {
    let name = match element {
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

/// The same elements, whose bits are read as another type of the same size.
fn bit_cast(x: Value, to: DType, device: &DispatchDevice) -> Result<Value, OpError> {
    let from = x.dtype();
    if from == to {
        return Ok(x);
    }
    // Not every byte is a boolean.
    if from.size() != to.size() || matches!(to, DType::Bool(_)) {
        return Err(OpError(format!("the bits of {from:?} are not of type {to:?}")));
    }
    let data = x.into_data()?;
    let shape = data.shape().clone();
    Value::from_data(TensorData::from_bytes(data.into_bytes(), shape, to), device)
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use super::super::alone::alone;
    use crate::author::Attribute::Int;

    #[test]
    fn a_cast_to_a_type_that_is_not_here_names_it() {
        for (element, name) in [(17, "float8e4m3fn"), (22, "int4"), (14, "complex64"), (99, "number 99")] {
            let error = alone(19, "Cast", &[("to", Int(element))], [("x", TensorData::from([1f32]))]).unwrap_err();
            assert!(error.contains("'Cast' (node 'make_out')") && error.contains(name), "{error}");
        }
    }

    #[test]
    fn floats_beyond_an_integer_type_stop_at_its_ends() {
        let cast = alone(13, "Cast", &[("to", Int(6))], [("x", TensorData::from([1e20f32, -1e20, f32::NAN, -1.9]))]);
        assert_eq!(cast, Ok(TensorData::from([i32::MAX, i32::MIN, 0, -1])));
    }

    #[test]
    fn bits_of_another_size_or_of_booleans_are_refused() {
        let cast = |to| alone(26, "BitCast", &[("to", Int(to))], [("x", TensorData::from([2u8]))]);
        assert_eq!(cast(3), Ok(TensorData::from([2i8])));
        assert!(cast(1).unwrap_err().contains("the bits of U8"));
        assert!(cast(9).unwrap_err().contains("the bits of U8"));
    }
}
