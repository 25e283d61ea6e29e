//! Between the crate's tensors, which callers fill and read, and the values of a plan. Elements move; none are copied.

use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_backend::{BoolStore, DType, TensorData};
use burn_dispatch::DispatchDevice;

use super::value::{Backend, OpError, Value};
use crate::tensor::{Data, DataType, Tensor};

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
    Some(match datatype(i32::try_from(element).ok()?)? {
        DataType::Bool => DType::Bool(BoolStore::Native),
        DataType::Uint8 => DType::U8,
        DataType::Uint16 => DType::U16,
        DataType::Uint32 => DType::U32,
        DataType::Uint64 => DType::U64,
        DataType::Int8 => DType::I8,
        DataType::Int16 => DType::I16,
        DataType::Int32 => DType::I32,
        DataType::Int64 => DType::I64,
        DataType::Fp16 => DType::F16,
        DataType::Bf16 => DType::BF16,
        DataType::Fp32 => DType::F32,
        DataType::Fp64 => DType::F64,
        DataType::Bytes => return None,
    })
}

/// A tensor whose element `i` is `number(i)`, which must fit the type.
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
        DataType::Bytes => return Err(OpError::new("byte strings are not supported")),
    };
    Tensor::new(shape, data).map_err(|e| OpError(e.to_string()))
}

/// A caller's tensor as a graph input.
pub(super) fn to_value(tensor: Tensor, device: &DispatchDevice) -> Result<Value, OpError> {
    let (shape, data) = tensor.into_parts();
    let int = |data| Value::Int(Backend::int_from_data(data, device));
    let float = |data| Value::Float(Backend::float_from_data(data, device));
    Ok(match data {
        Data::Bool(v) => Value::Bool(Backend::bool_from_data(TensorData::new(v, shape), device)),
        Data::Uint8(v) => int(TensorData::new(v, shape)),
        Data::Uint16(v) => int(TensorData::new(v, shape)),
        Data::Uint32(v) => int(TensorData::new(v, shape)),
        Data::Uint64(v) => int(TensorData::new(v, shape)),
        Data::Int8(v) => int(TensorData::new(v, shape)),
        Data::Int16(v) => int(TensorData::new(v, shape)),
        Data::Int32(v) => int(TensorData::new(v, shape)),
        Data::Int64(v) => int(TensorData::new(v, shape)),
        Data::Fp16(v) => float(TensorData::new(v, shape)),
        Data::Bf16(v) => float(TensorData::new(v, shape)),
        Data::Fp32(v) => float(TensorData::new(v, shape)),
        Data::Fp64(v) => float(TensorData::new(v, shape)),
        Data::Bytes(_) => return Err(OpError::new("byte strings are not supported")),
    })
}

/// A graph output as a tensor for callers.
pub(super) fn to_tensor(value: Value) -> Result<Tensor, OpError> {
    let data = value.into_data()?;
    let shape = data.shape().to_vec();
    macro_rules! elements {
        ($element:ty) => {
            Data::from(data.try_into_vec::<$element>().map_err(|e| OpError(e.to_string()))?)
        };
    }
    let data = match data.dtype() {
        DType::F64 => elements!(f64),
        DType::F32 => elements!(f32),
        DType::F16 => elements!(half::f16),
        DType::BF16 => elements!(half::bf16),
        DType::I64 => elements!(i64),
        DType::I32 => elements!(i32),
        DType::I16 => elements!(i16),
        DType::I8 => elements!(i8),
        DType::U64 => elements!(u64),
        DType::U32 => elements!(u32),
        DType::U16 => elements!(u16),
        DType::U8 => elements!(u8),
        DType::Bool(_) => elements!(bool),
        other => return Err(OpError(format!("an output of type {other:?} is not supported"))),
    };
    Tensor::new(shape, data).map_err(|e| OpError(e.to_string()))
}
