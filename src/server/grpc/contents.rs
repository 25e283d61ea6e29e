//! Elements of tensors in protobuf's own types: the message `InferTensorContents`.
//!
//! Source: `inference.proto` beside this. Its fields are repeated numbers, packed or one by one.

use half::{bf16, f16};

use super::proto::inference::InferTensorContents;
use super::wire::{Fields, Malformed, Value, varint};
use crate::quote::Dims;
use crate::tensor::{Data, DataType, TensorError, elements};

/// Why contents are not the tensor that they should be, in words that follow "input 'x': ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ContentsError {
    #[error("{0}")]
    Malformed(#[from] Malformed),
    #[error("{0} has no contents of its own: send it in raw_input_contents")]
    Raw(&'static str),
    #[error("{datatype} is sent in field {expected} of its contents, and there is something in field {found}")]
    Field { datatype: &'static str, expected: u32, found: u32 },
    #[error("shape {} has {expected} elements, but its contents have {found}", Dims(shape))]
    Count { shape: Vec<usize>, expected: usize, found: usize },
    #[error("element {at} ({found}) is out of range for {datatype}")]
    Range { at: usize, found: i64, datatype: &'static str },
    #[error("{0}")]
    Tensor(#[from] TensorError),
}

/// The field in which elements of a type are; `None` for those that have none.
fn field(datatype: DataType) -> Option<u32> {
    Some(match datatype {
        DataType::Bool => 1,
        DataType::Int8 | DataType::Int16 | DataType::Int32 => 2,
        DataType::Int64 => 3,
        DataType::Uint8 | DataType::Uint16 | DataType::Uint32 => 4,
        DataType::Uint64 => 5,
        DataType::Fp32 => 6,
        DataType::Fp64 => 7,
        DataType::Bytes => 8,
        DataType::Fp16 | DataType::Bf16 => return None,
    })
}

/// Whether elements of this type have contents.
pub(super) fn has(datatype: DataType) -> bool {
    field(datatype).is_some()
}

/// Reads a message as the elements of a tensor of `shape`.
pub(super) fn read(message: &[u8], datatype: DataType, shape: &[usize]) -> Result<Data, ContentsError> {
    let reader = Reader { message, datatype, shape, count: elements(shape)? };
    match datatype {
        DataType::Bool => reader.varints(|n| Ok(n != 0)).map(Data::Bool),
        DataType::Int8 => reader.varints(|n| i8::try_from(n as i32).map_err(|_| n as i64)).map(Data::Int8),
        DataType::Int16 => reader.varints(|n| i16::try_from(n as i32).map_err(|_| n as i64)).map(Data::Int16),
        DataType::Int32 => reader.varints(|n| Ok(n as i32)).map(Data::Int32),
        DataType::Int64 => reader.varints(|n| Ok(n as i64)).map(Data::Int64),
        DataType::Uint8 => reader.varints(|n| u8::try_from(n).map_err(|_| n as i64)).map(Data::Uint8),
        DataType::Uint16 => reader.varints(|n| u16::try_from(n).map_err(|_| n as i64)).map(Data::Uint16),
        DataType::Uint32 => reader.varints(|n| Ok(n as u32)).map(Data::Uint32),
        DataType::Uint64 => reader.varints(Ok).map(Data::Uint64),
        DataType::Fp32 => reader.fixed(f32::from_le_bytes).map(Data::Fp32),
        DataType::Fp64 => reader.fixed(f64::from_le_bytes).map(Data::Fp64),
        DataType::Bytes => reader.strings().map(Data::Bytes),
        DataType::Fp16 | DataType::Bf16 => Err(ContentsError::Raw(datatype.name())),
    }
}

struct Reader<'a> {
    message: &'a [u8],
    datatype: DataType,
    shape: &'a [usize],
    /// Elements that there are to be.
    count: usize,
}

impl<'a> Reader<'a> {
    /// Hands each value of the field to `take`, which says how many elements there are now.
    fn each(&self, mut take: impl FnMut(Value<'a>) -> Result<usize, ContentsError>) -> Result<(), ContentsError> {
        let (expected, mut have) = (field(self.datatype).unwrap_or_default(), 0);
        for found in Fields(self.message) {
            let (number, value) = found?;
            if number != expected {
                let datatype = self.datatype.name();
                return Err(ContentsError::Field { datatype, expected, found: number });
            }
            have = take(value)?;
            if have > self.count {
                break;
            }
        }
        if have == self.count { Ok(()) } else { Err(self.miscounted(have)) }
    }

    fn miscounted(&self, found: usize) -> ContentsError {
        ContentsError::Count { shape: self.shape.to_vec(), expected: self.count, found }
    }

    /// Room for the elements: each takes a byte of the message at least.
    fn room<T>(&self) -> Vec<T> {
        Vec::with_capacity(self.count.min(self.message.len()))
    }

    fn varints<T>(&self, from: impl Fn(u64) -> Result<T, i64>) -> Result<Vec<T>, ContentsError> {
        let mut elements = self.room();
        let datatype = self.datatype.name();
        let push = |elements: &mut Vec<T>, n| {
            let at = elements.len();
            elements.push(from(n).map_err(|found| ContentsError::Range { at, found, datatype })?);
            Ok::<_, ContentsError>(())
        };
        self.each(|value| {
            match value {
                Value::Varint(n) => push(&mut elements, n)?,
                Value::Bytes(mut packed) => {
                    while !packed.is_empty() && elements.len() <= self.count {
                        push(&mut elements, varint(&mut packed)?)?;
                    }
                }
                _ => return Err(Malformed.into()),
            }
            Ok(elements.len())
        })?;
        Ok(elements)
    }

    fn fixed<T, const WIDTH: usize>(&self, from: impl Fn([u8; WIDTH]) -> T) -> Result<Vec<T>, ContentsError> {
        let mut elements = Vec::with_capacity(self.count.min(self.message.len() / WIDTH));
        self.each(|value| {
            let one: &[u8] = match &value {
                Value::Bytes(packed) => packed,
                Value::Fixed32(bytes) => bytes,
                Value::Fixed64(bytes) => bytes,
                Value::Varint(_) => return Err(Malformed.into()),
            };
            let (whole, rest) = one.as_chunks();
            if !rest.is_empty() {
                return Err(Malformed.into());
            }
            if whole.len() > self.count - elements.len() {
                return Err(self.miscounted(elements.len() + whole.len()));
            }
            elements.extend(whole.iter().map(|&bytes| from(bytes)));
            Ok(elements.len())
        })?;
        Ok(elements)
    }

    fn strings(&self) -> Result<Vec<Vec<u8>>, ContentsError> {
        let mut elements = self.room();
        self.each(|value| {
            elements.push(value.bytes()?.to_vec());
            Ok(elements.len())
        })?;
        Ok(elements)
    }
}

/// The elements as contents; those of types that have none are left out.
pub(super) fn of(data: &Data) -> InferTensorContents {
    let mut contents = InferTensorContents::default();
    match data {
        Data::Bool(v) => contents.bool_contents.clone_from(v),
        Data::Int8(v) => contents.int_contents = v.iter().map(|&x| x.into()).collect(),
        Data::Int16(v) => contents.int_contents = v.iter().map(|&x| x.into()).collect(),
        Data::Int32(v) => contents.int_contents.clone_from(v),
        Data::Int64(v) => contents.int64_contents.clone_from(v),
        Data::Uint8(v) => contents.uint_contents = v.iter().map(|&x| x.into()).collect(),
        Data::Uint16(v) => contents.uint_contents = v.iter().map(|&x| x.into()).collect(),
        Data::Uint32(v) => contents.uint_contents.clone_from(v),
        Data::Uint64(v) => contents.uint64_contents.clone_from(v),
        Data::Fp32(v) => contents.fp32_contents.clone_from(v),
        Data::Fp64(v) => contents.fp64_contents.clone_from(v),
        Data::Bytes(v) => contents.bytes_contents = v.iter().map(|s| s.clone().into()).collect(),
        Data::Fp16(_) | Data::Bf16(_) => {}
    }
    contents
}

/// Most bytes that the elements take as contents, while they are written as well.
pub(super) fn most_bytes(data: &Data) -> usize {
    let width = match data {
        Data::Bool(_) => 1,
        Data::Uint8(_) => 2 + 4,
        Data::Uint16(_) => 3 + 4,
        Data::Uint32(_) => 5 + 4,
        // A negative one takes ten, whatever its type.
        Data::Int8(_) | Data::Int16(_) | Data::Int32(_) => 10 + 4,
        Data::Int64(_) | Data::Uint64(_) => 10 + 8,
        Data::Fp16(_) | Data::Bf16(_) => size_of::<f16>().max(size_of::<bf16>()),
        Data::Fp32(_) => 4 + 4,
        Data::Fp64(_) => 8 + 8,
        Data::Bytes(v) => return v.iter().map(|s| 2 * s.len() + 48).fold(16, usize::saturating_add),
    };
    data.len().saturating_mul(width).saturating_add(16)
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    fn of_each_type() -> Vec<Data> {
        vec![
            Data::Bool(vec![true, false]),
            Data::Int8(vec![-128, 127]),
            Data::Int16(vec![-32768, 32767]),
            Data::Int32(vec![i32::MIN, i32::MAX]),
            Data::Int64(vec![i64::MIN, i64::MAX]),
            Data::Uint8(vec![0, 255]),
            Data::Uint16(vec![0, 65535]),
            Data::Uint32(vec![0, u32::MAX]),
            Data::Uint64(vec![0, u64::MAX]),
            Data::Fp32(vec![f32::NEG_INFINITY, 0.5]),
            Data::Fp64(vec![f64::MAX, -0.0]),
            Data::Bytes(vec![vec![], vec![0xff, 0]]),
        ]
    }

    #[test]
    fn elements_of_each_type_are_read_as_they_are_written_and_neither_fewer_nor_more() {
        for data in of_each_type() {
            let message = of(&data).encode_to_vec();
            assert_eq!(read(&message, data.datatype(), &[2]).as_ref(), Ok(&data));
            assert!(message.len() <= most_bytes(&data), "{data:?}");
            for wrong in [1, 3] {
                let error = read(&message, data.datatype(), &[wrong]).unwrap_err();
                assert!(matches!(error, ContentsError::Count { .. }), "{data:?} as {wrong}: {error}");
            }
        }
    }

    #[test]
    fn numbers_may_come_one_by_one() {
        let message = [0x10, 5, 0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(read(&message, DataType::Int32, &[2]), Ok(Data::Int32(vec![5, -1])));
        assert_eq!(read(&[0x35, 0, 0, 0x80, 0x3f], DataType::Fp32, &[1]), Ok(Data::Fp32(vec![1.0])));
    }

    #[test]
    fn what_is_in_another_field_or_out_of_range_is_told() {
        let floats = of(&Data::Fp32(vec![1.0])).encode_to_vec();
        let error = read(&floats, DataType::Fp64, &[1]).unwrap_err().to_string();
        assert_eq!(error, "FP64 is sent in field 7 of its contents, and there is something in field 6");
        let large = of(&Data::Int32(vec![0, 300])).encode_to_vec();
        let error = read(&large, DataType::Int8, &[2]).unwrap_err().to_string();
        assert_eq!(error, "element 1 (300) is out of range for INT8");
        let error = read(&floats, DataType::Fp16, &[1]).unwrap_err().to_string();
        assert!(error.contains("raw_input_contents"), "{error}");
    }

    #[test]
    fn a_shape_alone_takes_no_memory() {
        let error = read(&[], DataType::Int64, &[1_000_000_000_000]).unwrap_err();
        assert!(matches!(error, ContentsError::Count { found: 0, .. }), "{error}");
    }
}
