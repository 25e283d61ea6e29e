//! Elements of tensors in binary: little-endian, row-major, without padding; BOOL in one byte each, each of BYTES behind its
//! length in four.
//!
//! Source: the extension of the Open Inference Protocol v2 for binary tensor data
//! (<https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md>).

use half::{bf16, f16};

use crate::quote::Dims;
use crate::runner::{Rows, Signature};
use crate::tensor::{Data, DataType, TensorError, elements};

/// Bytes of the length that stands before each byte string.
const LENGTH: usize = 4;

/// Why bytes are not the tensor that they should be, in words that follow "input 'x': ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::server) enum BinaryError {
    #[error("shape {} of {datatype} takes {expected} bytes, but {found} are given", Dims(shape))]
    Length { shape: Vec<usize>, datatype: &'static str, expected: usize, found: usize },
    #[error("shape {} has {expected} elements, but {found} whole ones are given", Dims(shape))]
    Strings { shape: Vec<usize>, expected: usize, found: usize },
    #[error("{0}")]
    Tensor(#[from] TensorError),
}

/// Reads `bytes` as the elements of a tensor of `shape`.
pub(in crate::server) fn read(bytes: &[u8], datatype: DataType, shape: &[usize]) -> Result<Data, BinaryError> {
    let count = elements(shape)?;
    if datatype == DataType::Bytes {
        return strings(bytes, count, shape);
    }
    let (expected, found) = (count * datatype.byte_len(), bytes.len());
    if expected != found {
        return Err(BinaryError::Length { shape: shape.to_vec(), datatype: datatype.name(), expected, found });
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

fn numbers<T, const WIDTH: usize>(bytes: &[u8], from: fn([u8; WIDTH]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().map(|&bytes| from(bytes)).collect()
}

/// `count` byte strings, each behind its length.
fn strings(mut bytes: &[u8], count: usize, shape: &[usize]) -> Result<Data, BinaryError> {
    // Each takes its length at least: a shape alone makes nobody set memory aside.
    let mut found = Vec::with_capacity(count.min(bytes.len() / LENGTH));
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let Some((string, rest)) = rest.split_at_checked(u32::from_le_bytes(*length) as usize) else { break };
        found.push(string.to_vec());
        bytes = rest;
    }
    if found.len() != count || !bytes.is_empty() {
        return Err(BinaryError::Strings { shape: shape.to_vec(), expected: count, found: found.len() });
    }
    Ok(Data::Bytes(found))
}

/// Bytes that [`write()`] writes.
pub(in crate::server) fn len(data: &Data) -> usize {
    match data {
        Data::Bytes(strings) => strings.iter().map(|s| LENGTH + s.len()).fold(0, usize::saturating_add),
        _ => data.byte_len(),
    }
}

/// Writes the elements behind what `to` holds. Of a byte string, its first 2^32 - 1 bytes.
pub(in crate::server) fn write(data: &Data, to: &mut Vec<u8>) {
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

fn write_numbers<T: Copy, const WIDTH: usize>(numbers: &[T], bytes: fn(T) -> [u8; WIDTH], to: &mut Vec<u8>) {
    let at = to.len();
    to.resize(at + numbers.len() * WIDTH, 0);
    for (place, &number) in to[at..].as_chunks_mut().0.iter_mut().zip(numbers) {
        *place = bytes(number);
    }
}

/// Name, type and shape of the tensor that a body without JSON must be: one row of the model's only input. Of its
/// dimensions one may be free: the body's length says what it is. Fails with words for the client.
pub(super) fn only_input<'a>(body: &[u8], signature: &'a Signature) -> Result<(&'a str, DataType, Vec<usize>), String> {
    let [spec] = &signature.inputs[..] else {
        let names: Vec<_> = signature.inputs.iter().map(|spec| format!("'{}'", spec.name)).collect();
        return Err(format!("a body without JSON is for a model with one input; this one takes {}", names.join(", ")));
    };
    let mut shape: Vec<Option<usize>> = spec.dims.clone();
    if let Rows::Axis(axis) = spec.rows {
        shape.insert(axis.min(shape.len()), Some(1));
    }
    let free = shape.iter().filter(|dim| dim.is_none()).count();
    let known = elements(&shape.iter().flatten().copied().collect::<Vec<_>>()).map_err(|e| e.to_string())?;
    // A byte string is the body itself, so there is one.
    let given = if spec.datatype == DataType::Bytes { 1 } else { body.len() / spec.datatype.byte_len() };
    let length = if free == 1 && known > 0 { given / known } else { 1 };
    if free > 1 {
        let wire = spec.wire_shape();
        return Err(format!(
            "input '{}' has shape {wire:?}: a body without JSON cannot say which lengths it has",
            spec.name
        ));
    }
    Ok((&spec.name, spec.datatype, shape.into_iter().map(|dim| dim.unwrap_or(length)).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::TensorSpec;

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
        assert_eq!(error, "shape [1000000000] has 1000000000 elements, but 0 whole ones are given");
        let error = read(&[0; 7], DataType::Fp32, &[1, 2]).unwrap_err().to_string();
        assert_eq!(error, "shape [1, 2] of FP32 takes 8 bytes, but 7 are given");
    }

    #[test]
    fn a_body_without_json_is_one_row_of_the_only_input() {
        let of = |dims: Vec<Option<usize>>, datatype, bytes: usize| {
            let signature = Signature { inputs: vec![TensorSpec::new("x", datatype, dims)], outputs: Vec::new() };
            only_input(&vec![0; bytes], &signature).map(|(_, _, shape)| shape)
        };
        assert_eq!(of(vec![Some(3)], DataType::Fp32, 12), Ok(vec![1, 3]));
        assert_eq!(of(vec![Some(3), None], DataType::Fp32, 24), Ok(vec![1, 3, 2]));
        assert_eq!(of(vec![None], DataType::Bytes, 24), Ok(vec![1, 1]));
        assert!(of(vec![None, None], DataType::Fp32, 24).unwrap_err().contains("[-1, -1, -1]"));
        let two = ["a", "b"].map(|name| TensorSpec::new(name, DataType::Fp32, Vec::new()));
        let two = Signature { inputs: two.to_vec(), outputs: Vec::new() };
        assert!(only_input(&[], &two).unwrap_err().contains("takes 'a', 'b'"));
    }
}
