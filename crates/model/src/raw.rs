//! Elements of tensors in binary: little-endian, row-major, without padding; BOOL in one byte each, each of BYTES behind its
//! length in four.
//!
//! Source: the extension of the Open Inference Protocol v2 for binary tensor data
//! (<https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md>).

use half::{bf16, f16};

use crate::quote::Dims;
use crate::tensor::{Data, DataType, TensorError, elements};

/// Bytes of the length that stands before each byte string.
const LENGTH: usize = 4;

/// Why bytes are not the tensor that they should be, in words that follow "input 'x': ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RawError {
    /// Too many or too few bytes.
    #[error("shape {} of {datatype} takes {expected} bytes, but {found} are given", Dims(shape))]
    Length {
        /// The tensor's shape.
        shape: Vec<usize>,
        /// Its type.
        datatype: &'static str,
        /// Bytes that it takes.
        expected: usize,
        /// Bytes that are given.
        found: usize,
    },
    /// Too many or too few byte strings.
    #[error("shape {} has {expected} elements, but {found} whole ones are given{}", Dims(shape), beyond(*left))]
    Strings {
        /// The tensor's shape.
        shape: Vec<usize>,
        /// Byte strings that it takes.
        expected: usize,
        /// Whole ones that are given.
        found: usize,
        /// Bytes behind those that are no whole one.
        left: usize,
    },
    /// A shape that no tensor has.
    #[error("{0}")]
    Tensor(#[from] TensorError),
}

fn beyond(left: usize) -> String {
    match left {
        0 => String::new(),
        1 => ", and 1 byte behind them is none".to_owned(),
        left => format!(", and {left} bytes behind them are none"),
    }
}

/// Reads `bytes` as the elements of a tensor of `shape`.
pub fn read(bytes: &[u8], datatype: DataType, shape: &[usize]) -> Result<Data, RawError> {
    let count = elements(shape)?;
    if datatype == DataType::Bytes {
        return strings(bytes, count, shape);
    }
    let (expected, found) = (count * datatype.byte_len(), bytes.len());
    if expected != found {
        return Err(RawError::Length { shape: shape.to_vec(), datatype: datatype.name(), expected, found });
    }
    Ok(match datatype {
        DataType::Bool => Data::Bool(bytes.iter().map(|&b| b != 0).collect()),
        DataType::Uint8 => Data::Uint8(bytes.to_vec()),
        DataType::Uint16 => Data::Uint16(numbers(bytes, u16::from_le_bytes)),
        DataType::Uint32 => Data::Uint32(numbers(bytes, u32::from_le_bytes)),
        DataType::Uint64 => Data::Uint64(numbers(bytes, u64::from_le_bytes)),
        DataType::Int8 => Data::Int8(numbers(bytes, i8::from_le_bytes)),
        DataType::Int16 => Data::Int16(numbers(bytes, i16::from_le_bytes)),
        DataType::Int32 => Data::Int32(numbers(bytes, i32::from_le_bytes)),
        DataType::Int64 => Data::Int64(numbers(bytes, i64::from_le_bytes)),
        DataType::Fp16 => Data::Fp16(numbers(bytes, f16::from_le_bytes)),
        DataType::Bf16 => Data::Bf16(numbers(bytes, bf16::from_le_bytes)),
        DataType::Fp32 => Data::Fp32(numbers(bytes, f32::from_le_bytes)),
        DataType::Fp64 => Data::Fp64(numbers(bytes, f64::from_le_bytes)),
        DataType::Bytes => unreachable!("read above"),
    })
}

// Generic over the function: a call by a pointer for each number takes fifteen times as long as copying them.
fn numbers<T, const WIDTH: usize>(bytes: &[u8], from: impl Fn([u8; WIDTH]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().map(|&bytes| from(bytes)).collect()
}

/// `count` byte strings, each behind its length.
fn strings(mut bytes: &[u8], count: usize, shape: &[usize]) -> Result<Data, RawError> {
    // Each takes its length at least: a shape alone makes nobody set memory aside.
    let mut strings = Vec::with_capacity(count.min(bytes.len() / LENGTH));
    let mut found = 0;
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let Some((string, rest)) = rest.split_at_checked(u32::from_le_bytes(*length) as usize) else { break };
        // What is too many is counted alone: an empty string takes six times the memory of its length.
        if found < count {
            strings.push(string.to_vec());
        }
        (found, bytes) = (found + 1, rest);
    }
    if found != count || !bytes.is_empty() {
        return Err(RawError::Strings { shape: shape.to_vec(), expected: count, found, left: bytes.len() });
    }
    Ok(Data::Bytes(strings))
}

/// Bytes that [`write()`] writes.
pub fn len(data: &Data) -> usize {
    match data {
        Data::Bytes(strings) => strings.iter().map(|s| LENGTH + s.len()).fold(0, usize::saturating_add),
        _ => data.byte_len(),
    }
}

/// Writes the elements behind what `to` holds. Of a byte string, its first 2^32 - 1 bytes.
pub fn write(data: &Data, to: &mut Vec<u8>) {
    match data {
        Data::Bool(v) => to.extend(v.iter().map(|&b| u8::from(b))),
        Data::Uint8(v) => to.extend_from_slice(v),
        Data::Uint16(v) => write_numbers(v, u16::to_le_bytes, to),
        Data::Uint32(v) => write_numbers(v, u32::to_le_bytes, to),
        Data::Uint64(v) => write_numbers(v, u64::to_le_bytes, to),
        Data::Int8(v) => write_numbers(v, i8::to_le_bytes, to),
        Data::Int16(v) => write_numbers(v, i16::to_le_bytes, to),
        Data::Int32(v) => write_numbers(v, i32::to_le_bytes, to),
        Data::Int64(v) => write_numbers(v, i64::to_le_bytes, to),
        Data::Fp16(v) => write_numbers(v, f16::to_le_bytes, to),
        Data::Bf16(v) => write_numbers(v, bf16::to_le_bytes, to),
        Data::Fp32(v) => write_numbers(v, f32::to_le_bytes, to),
        Data::Fp64(v) => write_numbers(v, f64::to_le_bytes, to),
        Data::Bytes(strings) => {
            for string in strings {
                let length = u32::try_from(string.len()).unwrap_or(u32::MAX);
                to.extend_from_slice(&length.to_le_bytes());
                to.extend_from_slice(&string[..length as usize]);
            }
        }
    }
}

fn write_numbers<T: Copy, const WIDTH: usize>(numbers: &[T], bytes: impl Fn(T) -> [u8; WIDTH], to: &mut Vec<u8>) {
    let at = to.len();
    to.resize(at + numbers.len() * WIDTH, 0);
    for (place, &number) in to[at..].as_chunks_mut().0.iter_mut().zip(numbers) {
        *place = bytes(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_each_type_are_read_and_written_as_the_protocol_has_them() {
        let cases = [
            (Data::Bool(vec![true, false]), vec![1, 0]),
            (Data::Uint8(vec![255, 0]), vec![255, 0]),
            (Data::Int8(vec![-1, 1]), vec![255, 1]),
            (Data::Uint16(vec![258]), vec![2, 1]),
            (Data::Int16(vec![-2]), vec![254, 255]),
            (Data::Uint32(vec![1]), vec![1, 0, 0, 0]),
            (Data::Int32(vec![-1]), vec![255; 4]),
            (Data::Uint64(vec![1]), vec![1, 0, 0, 0, 0, 0, 0, 0]),
            (Data::Int64(vec![-1]), vec![255; 8]),
            (Data::Fp16(vec![f16::ONE]), vec![0, 0x3c]),
            (Data::Bf16(vec![bf16::ONE]), vec![0x80, 0x3f]),
            (Data::Fp32(vec![f32::NEG_INFINITY]), vec![0, 0, 0x80, 0xff]),
            (Data::Fp64(vec![1.0]), vec![0, 0, 0, 0, 0, 0, 0xf0, 0x3f]),
            (Data::Bytes(vec![b"ab".to_vec(), vec![]]), vec![2, 0, 0, 0, b'a', b'b', 0, 0, 0, 0]),
        ];
        for (data, bytes) in cases {
            let mut written = vec![9];
            write(&data, &mut written);
            assert_eq!((&written[1..], len(&data)), (&bytes[..], bytes.len()), "{data:?}");
            assert_eq!(read(&bytes, data.datatype(), &[data.len()]).as_ref(), Ok(&data));
            let longer = read(&[&bytes[..], &[0]].concat(), data.datatype(), &[data.len()]);
            assert!(longer.is_err(), "a byte too many: {data:?}");
            assert!(read(&bytes[1..], data.datatype(), &[data.len()]).is_err(), "a byte too few: {data:?}");
        }
    }

    #[test]
    fn lengths_that_lie_take_no_memory_and_are_told() {
        let lie = [255, 255, 255, 255, b'a'];
        let error = read(&lie, DataType::Bytes, &[1_000_000_000]).unwrap_err().to_string();
        assert_eq!(
            error,
            "shape [1000000000] has 1000000000 elements, but 0 whole ones are given, and 5 bytes behind them are none"
        );
        let error = read(b"\x02\0\0\0abc", DataType::Bytes, &[1, 1]).unwrap_err().to_string();
        assert_eq!(error, "shape [1, 1] has 1 elements, but 1 whole ones are given, and 1 byte behind them is none");
        let error = read(&[0; 7], DataType::Fp32, &[1, 2]).unwrap_err().to_string();
        assert_eq!(error, "shape [1, 2] of FP32 takes 8 bytes, but 7 are given");
    }
}
