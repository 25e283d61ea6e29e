//! A file's constant tensors as data: every count and length is checked before memory is asked for.

use burn_backend::{Shape, TensorData};
use burn_dispatch::DispatchDevice;
use half::slice::HalfFloatSliceExt;
use half::vec::HalfBitsVecExt;
use half::{bf16, f16};
use pulp::bytemuck;

use super::files::Files;
use super::proto::{FLOAT16, TensorProto, WIDENED};
use super::small::Small;
use super::tensors::{datatype, dtype};
use super::texts::Texts;
use super::value::{OpError, Value};
use uncork_model::tensor::DataType;

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
    if tensor.data_type == WIDENED {
        tensor.data_type = FLOAT16;
        let narrow = data(tensor, files)?;
        let shape = narrow.shape().clone();
        let narrow = narrow.try_into_vec::<f16>().map_err(|e| OpError(e.to_string()))?;
        let mut wide = vec![0.0; narrow.len()];
        narrow.convert_to_f32_slice(&mut wide);
        return Ok(TensorData::new(wide, shape));
    }
    let dims: Result<Vec<usize>, _> = tensor.dims.iter().map(|&d| usize::try_from(d)).collect();
    let count = dims.as_ref().ok().and_then(|dims| dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)));
    let (Ok(dims), Some(count)) = (dims, count) else { return Err(OpError(format!("a shape of {:?}", tensor.dims))) };
    if let Some(small) = Small::of(tensor.data_type) {
        let bytes = packed(tensor, files, small.bytes(count))?;
        return Ok(small.data(&bytes, count, Shape::from(dims)));
    }
    let element = tensor.data_type;
    let kind = datatype(element).ok_or_else(|| OpError(format!("elements of type {element} are not supported")))?;
    let shape = Shape::from(dims);
    if tensor.data_location != 0 {
        let size = dtype(i64::from(element)).map_or(0, |kind| kind.size());
        let length = count.checked_mul(size).ok_or_else(|| OpError(format!("a shape of {shape:?}")))?;
        let place = files.find(tensor, length)?;
        return elements(length, |bytes| place.read(bytes), kind, count, shape);
    }
    if let Some(raw) = tensor.raw_data.take() {
        let copied = |bytes: &mut [u8]| {
            bytes.copy_from_slice(&raw);
            Ok(())
        };
        return elements(raw.len(), copied, kind, count, shape);
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

/// The bytes of elements that are packed, wherever they are.
fn packed(tensor: &mut TensorProto, files: &Files, length: usize) -> Result<Vec<u8>, OpError> {
    let bytes: Vec<u8> = if tensor.data_location != 0 {
        let place = files.find(tensor, length)?;
        let mut bytes = vec![0; length];
        place.read(&mut bytes)?;
        bytes
    } else if let Some(raw) = tensor.raw_data.take() {
        raw.to_vec()
    } else {
        // Each of the integers holds a byte.
        tensor.int32_data.iter().map(|&byte| byte as u8).collect()
    };
    if bytes.len() != length {
        return Err(OpError(format!("{} bytes for the shape {:?}, which needs {length}", bytes.len(), tensor.dims)));
    }
    Ok(bytes)
}

/// Elements whose `length` little-endian bytes `fill` writes to where they stay.
fn elements(
    length: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<(), OpError>,
    kind: DataType,
    count: usize,
    shape: Shape,
) -> Result<TensorData, OpError> {
    macro_rules! filled {
        ($element:ty) => {{
            const SIZE: usize = std::mem::size_of::<$element>();
            if Some(length) != count.checked_mul(SIZE) {
                return Err(OpError(format!("{length} bytes for {count} elements of {SIZE} bytes")));
            }
            let mut elements = vec![<$element>::default(); count];
            fill(bytemuck::cast_slice_mut(&mut elements))?;
            if cfg!(target_endian = "big") {
                elements.iter_mut().for_each(|x| *x = <$element>::from_le_bytes(x.to_ne_bytes()));
            }
            elements
        }};
    }
    Ok(match kind {
        DataType::Fp32 => TensorData::new(filled!(f32), shape),
        DataType::Fp64 => TensorData::new(filled!(f64), shape),
        DataType::Int64 => TensorData::new(filled!(i64), shape),
        DataType::Uint64 => TensorData::new(filled!(u64), shape),
        DataType::Uint32 => TensorData::new(filled!(u32), shape),
        DataType::Int32 => TensorData::new(filled!(i32), shape),
        DataType::Int16 => TensorData::new(filled!(i16), shape),
        DataType::Int8 => TensorData::new(filled!(i8), shape),
        DataType::Uint16 => TensorData::new(filled!(u16), shape),
        DataType::Uint8 => TensorData::new(filled!(u8), shape),
        DataType::Bool => TensorData::new(filled!(u8).into_iter().map(|x| x != 0).collect::<Vec<bool>>(), shape),
        DataType::Fp16 => TensorData::new(filled!(u16).reinterpret_into::<f16>(), shape),
        DataType::Bf16 => TensorData::new(filled!(u16).reinterpret_into::<bf16>(), shape),
        DataType::Bytes => return Err(OpError::new("expects numbers and gets texts")),
    })
}
