//! Makes up rows to try a model with.

use std::sync::Arc;

use crate::runner::Signature;
use crate::tensor::{Data, DataType, Tensor, Tensors, elements};

/// Returns a row of one number; `dims` are the dimensions of a row of each input. The error is a sentence for the operator.
pub(super) fn filled(signature: &Signature, dims: &[Vec<usize>], number: u8) -> Result<Tensors, String> {
    let tensors = signature.inputs.iter().zip(dims).map(|(spec, dims)| {
        let shape: Vec<usize> = std::iter::once(1).chain(dims.iter().copied()).collect();
        let count = elements(&shape).map_err(|e| e.to_string())?;
        let tensor = Tensor::new(shape, constant(spec.datatype, count, number)).map_err(|e| e.to_string())?;
        Ok((Arc::clone(&spec.name), tensor))
    });
    Tensors::new(tensors.collect::<Result<_, String>>()?).map_err(|e| e.to_string())
}

/// Returns `count` equal elements; texts are empty.
fn constant(datatype: DataType, count: usize, number: u8) -> Data {
    match datatype {
        DataType::Bool => Data::Bool(vec![number != 0; count]),
        DataType::Uint8 => Data::Uint8(vec![number; count]),
        DataType::Uint16 => Data::Uint16(vec![number.into(); count]),
        DataType::Uint32 => Data::Uint32(vec![number.into(); count]),
        DataType::Uint64 => Data::Uint64(vec![number.into(); count]),
        DataType::Int8 => Data::Int8(vec![number as i8; count]),
        DataType::Int16 => Data::Int16(vec![number.into(); count]),
        DataType::Int32 => Data::Int32(vec![number.into(); count]),
        DataType::Int64 => Data::Int64(vec![number.into(); count]),
        DataType::Fp16 => Data::Fp16(vec![half::f16::from(number); count]),
        DataType::Bf16 => Data::Bf16(vec![half::bf16::from(number); count]),
        DataType::Fp32 => Data::Fp32(vec![number.into(); count]),
        DataType::Fp64 => Data::Fp64(vec![number.into(); count]),
        DataType::Bytes => Data::Bytes(vec![Vec::new(); count]),
    }
}
