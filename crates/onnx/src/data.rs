//! Between the crate's tensors, which callers fill and read, and burn's data. Elements move; none are copied.

use burn_backend::{BoolStore, DType, TensorData};

use uncork_model::runner::RunnerError;
use uncork_model::tensor::{Data, DataType, Tensor};

/// burn's type of the same elements; `None` for byte strings, which it has none for.
pub(crate) fn dtype(datatype: DataType) -> Option<DType> {
    Some(match datatype {
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

/// A caller's tensor as burn's data.
pub(crate) fn to_burn(tensor: Tensor) -> Result<TensorData, RunnerError> {
    let (shape, data) = tensor.into_parts();
    Ok(match data {
        Data::Bool(v) => TensorData::new(v, shape),
        Data::Uint8(v) => TensorData::new(v, shape),
        Data::Uint16(v) => TensorData::new(v, shape),
        Data::Uint32(v) => TensorData::new(v, shape),
        Data::Uint64(v) => TensorData::new(v, shape),
        Data::Int8(v) => TensorData::new(v, shape),
        Data::Int16(v) => TensorData::new(v, shape),
        Data::Int32(v) => TensorData::new(v, shape),
        Data::Int64(v) => TensorData::new(v, shape),
        Data::Fp16(v) => TensorData::new(v, shape),
        Data::Bf16(v) => TensorData::new(v, shape),
        Data::Fp32(v) => TensorData::new(v, shape),
        Data::Fp64(v) => TensorData::new(v, shape),
        Data::Bytes(_) => return Err(RunnerError::Failed("byte strings are not supported".into())),
    })
}

/// burn's data as a tensor for callers.
pub(crate) fn from_burn(data: TensorData) -> Result<Tensor, RunnerError> {
    let shape = data.shape().to_vec();
    macro_rules! elements {
        ($element:ty) => {
            Data::from(data.try_into_vec::<$element>().map_err(|e| RunnerError::Failed(e.to_string()))?)
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
        other => return Err(RunnerError::Failed(format!("an output of type {other:?} is not supported"))),
    };
    Tensor::new(shape, data).map_err(|e| RunnerError::Failed(e.to_string()))
}
