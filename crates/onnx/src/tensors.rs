//! Between the crate's tensors, which callers fill and read, and the values of a plan.

use burn_backend::DType;
use burn_backend::ops::{FloatTensorOps, IntTensorOps};
use burn_dispatch::DispatchDevice;

use super::texts::Texts;
use super::value::{Backend, OpError, Value};
use crate::data;
use uncork_model::tensor::{Data, DataType, Tensor};

/// The type that `onnx.TensorProto.DataType` numbers so; `None` for types that cannot be served.
pub(super) fn datatype(element: i32) -> Option<DataType> {
    Some(match element {
        1 => DataType::Fp32,
        2 => DataType::Uint8,
        3 => DataType::Int8,
        4 => DataType::Uint16,
        5 => DataType::Int16,
        6 => DataType::Int32,
        7 => DataType::Int64,
        8 => DataType::Bytes,
        9 => DataType::Bool,
        10 => DataType::Fp16,
        11 => DataType::Fp64,
        12 => DataType::Uint32,
        13 => DataType::Uint64,
        16 => DataType::Bf16,
        _ => return None,
    })
}

/// The same as burn's type.
pub(super) fn dtype(element: i64) -> Option<DType> {
    data::dtype(datatype(i32::try_from(element).ok()?)?)
}

/// A tensor whose element `i` is `number(i)`, which must fit the type; texts are its digits.
pub(super) fn filled(
    datatype: DataType,
    shape: Vec<usize>,
    count: usize,
    number: impl Fn(usize) -> f32,
) -> Result<Tensor, OpError> {
    let numbers = (0..count).map(number);
    let data: Data = match datatype {
        DataType::Bool => numbers.map(|x| x != 0.0).collect::<Vec<bool>>().into(),
        DataType::Uint8 => numbers.map(|x| x as u8).collect::<Vec<u8>>().into(),
        DataType::Uint16 => numbers.map(|x| x as u16).collect::<Vec<u16>>().into(),
        DataType::Uint32 => numbers.map(|x| x as u32).collect::<Vec<u32>>().into(),
        DataType::Uint64 => numbers.map(|x| x as u64).collect::<Vec<u64>>().into(),
        DataType::Int8 => numbers.map(|x| x as i8).collect::<Vec<i8>>().into(),
        DataType::Int16 => numbers.map(|x| x as i16).collect::<Vec<i16>>().into(),
        DataType::Int32 => numbers.map(|x| x as i32).collect::<Vec<i32>>().into(),
        DataType::Int64 => numbers.map(|x| x as i64).collect::<Vec<i64>>().into(),
        DataType::Fp16 => numbers.map(half::f16::from_f32).collect::<Vec<half::f16>>().into(),
        DataType::Bf16 => numbers.map(half::bf16::from_f32).collect::<Vec<half::bf16>>().into(),
        DataType::Fp32 => numbers.collect::<Vec<f32>>().into(),
        DataType::Fp64 => numbers.map(f64::from).collect::<Vec<f64>>().into(),
        DataType::Bytes => numbers.map(|x| x.to_string().into_bytes()).collect::<Vec<Vec<u8>>>().into(),
    };
    Tensor::new(shape, data).map_err(|e| OpError(e.to_string()))
}

/// A caller's tensor as a graph input.
pub(super) fn to_value(tensor: Tensor, device: &DispatchDevice) -> Result<Value, OpError> {
    if tensor.data().datatype() == DataType::Bytes {
        let (dims, data) = tensor.into_parts();
        let Data::Bytes(bytes) = data else { return Err(OpError::new("texts of another type")) };
        return Ok(Value::Texts(Texts::from_bytes(dims, bytes)?));
    }
    let data = data::to_burn(tensor).map_err(|e| OpError(e.to_string()))?;
    Ok(match data.dtype() {
        DType::BF16 => Value::from_data(data, device)?.cast(DType::BF16, device)?,
        DType::Bool(_) => Value::from_data(data, device)?,
        dtype if dtype.is_float() => Value::Float(Backend::float_from_data(data, device)),
        _ => Value::Int(Backend::int_from_data(data, device)),
    })
}

/// A graph output as a tensor for callers.
pub(super) fn to_tensor(value: Value) -> Result<Tensor, OpError> {
    if let Value::Texts(texts) = value {
        let (dims, texts) = texts.into_parts();
        let bytes: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
        return Tensor::new(dims, bytes).map_err(|e| OpError(e.to_string()));
    }
    data::from_burn(value.into_data()?).map_err(|e| OpError(e.to_string()))
}
