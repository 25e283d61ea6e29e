//! A file's constant tensors as data: every count and length is checked before memory is asked for.

use burn_backend::{Shape, TensorData};
use burn_dispatch::DispatchDevice;
use half::{bf16, f16};

use super::files::Files;
use super::proto::TensorProto;
use super::tensors::{datatype, dtype};
use super::texts::Texts;
use super::value::{OpError, Value};
use crate::tensor::DataType;

/// A constant of any type. Takes its elements out of `tensor`, so that they are not in memory twice.
pub(super) fn value(tensor: &mut TensorProto, files: &Files, device: &DispatchDevice) -> Result<Value, OpError> {
    if datatype(tensor.data_type) == Some(DataType::Bytes) {
        let dims: Result<Vec<usize>, _> = tensor.dims.iter().map(|&d| usize::try_from(d)).collect();
        let dims = dims.map_err(|_| OpError(format!("a shape of {:?}", tensor.dims)))?;
        return Ok(Value::Texts(Texts::from_bytes(dims, std::mem::take(&mut tensor.string_data))?));
    }
    Value::from_data(data(tensor, files)?, device)
}

/// The numbers of a constant, in row-major order. Takes them out of `tensor`, so that they are not in memory twice.
pub(super) fn data(tensor: &mut TensorProto, files: &Files) -> Result<TensorData, OpError> {
    let dims: Result<Vec<usize>, _> = tensor.dims.iter().map(|&d| usize::try_from(d)).collect();
    let count = dims.as_ref().ok().and_then(|dims| dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)));
    let (Ok(dims), Some(count)) = (dims, count) else { return Err(OpError(format!("a shape of {:?}", tensor.dims))) };
    let element = tensor.data_type;
    let kind = datatype(element).ok_or_else(|| OpError(format!("elements of type {element} are not supported")))?;
    let shape = Shape::from(dims);
    if tensor.data_location != 0 {
        let size = dtype(i64::from(element)).map_or(0, |kind| kind.size());
        let length = count.checked_mul(size).ok_or_else(|| OpError(format!("a shape of {shape:?}")))?;
        let bytes = files.read(&tensor.external_data, length)?;
        return from_raw(&bytes, kind, count, shape);
    }
    if let Some(raw) = tensor.raw_data.take() {
        return from_raw(&raw, kind, count, shape);
    }
    // Types without a field of their own are widened into another one's (ONNX, comments of TensorProto).
    macro_rules! narrowed {
        ($field:ident, $element:ty, $narrow:expr) => {{
            let numbers = std::mem::take(&mut tensor.$field);
            if numbers.len() != count {
                return Err(OpError(format!("{} elements for the shape {:?}", numbers.len(), shape)));
            }
            let elements: Vec<$element> = numbers.into_iter().map($narrow).collect();
            TensorData::new(elements, shape)
        }};
    }
    Ok(match kind {
        DataType::Fp32 => narrowed!(float_data, f32, |x| x),
        DataType::Fp64 => narrowed!(double_data, f64, |x| x),
        DataType::Int64 => narrowed!(int64_data, i64, |x| x),
        DataType::Uint64 => narrowed!(uint64_data, u64, |x| x),
        DataType::Uint32 => narrowed!(uint64_data, u32, |x| x as u32),
        DataType::Int32 => narrowed!(int32_data, i32, |x| x),
        DataType::Int16 => narrowed!(int32_data, i16, |x| x as i16),
        DataType::Int8 => narrowed!(int32_data, i8, |x| x as i8),
        DataType::Uint16 => narrowed!(int32_data, u16, |x| x as u16),
        DataType::Uint8 => narrowed!(int32_data, u8, |x| x as u8),
        DataType::Bool => narrowed!(int32_data, bool, |x| x != 0),
        DataType::Fp16 => narrowed!(int32_data, f16, |x| f16::from_bits(x as u16)),
        DataType::Bf16 => narrowed!(int32_data, bf16, |x| bf16::from_bits(x as u16)),
        DataType::Bytes => return Err(OpError::new("expects numbers and gets texts")),
    })
}

/// Elements in little-endian bytes, as `raw_data` has them.
fn from_raw(raw: &[u8], kind: DataType, count: usize, shape: Shape) -> Result<TensorData, OpError> {
    macro_rules! read {
        ($element:ty, $read:expr) => {{
            const SIZE: usize = std::mem::size_of::<$element>();
            if Some(raw.len()) != count.checked_mul(SIZE) {
                return Err(OpError(format!("{} bytes for {count} elements of {SIZE} bytes", raw.len())));
            }
            let (chunks, _) = raw.as_chunks::<SIZE>();
            let elements: Vec<$element> = chunks.iter().map(|&bytes| $read(bytes)).collect();
            TensorData::new(elements, shape)
        }};
    }
    Ok(match kind {
        DataType::Fp32 => read!(f32, f32::from_le_bytes),
        DataType::Fp64 => read!(f64, f64::from_le_bytes),
        DataType::Int64 => read!(i64, i64::from_le_bytes),
        DataType::Uint64 => read!(u64, u64::from_le_bytes),
        DataType::Uint32 => read!(u32, u32::from_le_bytes),
        DataType::Int32 => read!(i32, i32::from_le_bytes),
        DataType::Int16 => read!(i16, i16::from_le_bytes),
        DataType::Int8 => read!(i8, i8::from_le_bytes),
        DataType::Uint16 => read!(u16, u16::from_le_bytes),
        DataType::Uint8 => read!(u8, u8::from_le_bytes),
        DataType::Bool => read!(bool, |[byte]: [u8; 1]| byte != 0),
        DataType::Fp16 => read!(f16, f16::from_le_bytes),
        DataType::Bf16 => read!(bf16, bf16::from_le_bytes),
        DataType::Bytes => return Err(OpError::new("expects numbers and gets texts")),
    })
}
