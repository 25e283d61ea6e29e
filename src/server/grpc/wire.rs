//! The fields of a protobuf message, in the order in which they stand, without any of them being kept.
//!
//! Source: <https://protobuf.dev/programming-guides/encoding/>. prost turns a message into structures before anybody could say that it
//! is not wanted: of two bytes, an input of 150. Requests for inference are read by this instead.

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the message is not protobuf")]
pub(super) struct Malformed;

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// An integer, a truth or an enumeration.
    Varint(u64),
    /// Eight bytes.
    Fixed64([u8; 8]),
    /// A text, bytes, a message or packed numbers.
    Bytes(&'a [u8]),
    /// Four bytes.
    Fixed32([u8; 4]),
}

impl<'a> Value<'a> {
    /// What has a length.
    pub(super) fn bytes(self) -> Result<&'a [u8], Malformed> {
        if let Value::Bytes(bytes) = self { Ok(bytes) } else { Err(Malformed) }
    }

    /// A text.
    pub(super) fn text(self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }
}

/// The fields of a message: numbers and values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn field(&mut self) -> Result<(u32, Value<'a>), Malformed> {
        let key = varint(&mut self.0)?;
        let number = u32::try_from(key >> 3).map_err(|_| Malformed)?;
        let value = match key & 7 {
            0 => Value::Varint(varint(&mut self.0)?),
            1 => Value::Fixed64(fixed(&mut self.0)?),
            2 => {
                let length = usize::try_from(varint(&mut self.0)?).map_err(|_| Malformed)?;
                let (bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
                self.0 = rest;
                Value::Bytes(bytes)
            }
            5 => Value::Fixed32(fixed(&mut self.0)?),
            // Groups, which version 3 of the language has no more.
            _ => return Err(Malformed),
        };
        if number == 0 { Err(Malformed) } else { Ok((number, value)) }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// Takes an integer from the begin of `bytes`.
pub(super) fn varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut found = 0;
    for (i, &byte) in bytes.iter().take(10).enumerate() {
        found |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            *bytes = &bytes[i + 1..];
            return Ok(found);
        }
    }
    Err(Malformed)
}

fn fixed<const WIDTH: usize>(bytes: &mut &[u8]) -> Result<[u8; WIDTH], Malformed> {
    let (found, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
    *bytes = rest;
    Ok(*found)
}

/// Writes an integer.
pub(super) fn write_varint(mut n: u64, to: &mut Vec<u8>) {
    while n >= 0x80 {
        to.push(n as u8 | 0x80);
        n >>= 7;
    }
    to.push(n as u8);
}

/// Bytes that [`write_varint`] writes.
pub(super) fn varint_len(n: u64) -> usize {
    (64 - (n | 1).leading_zeros() as usize).div_ceil(7)
}

/// Writes what stands before `length` bytes of field `number`.
pub(super) fn write_key(number: u32, length: usize, to: &mut Vec<u8>) {
    write_varint(u64::from(number) << 3 | 2, to);
    write_varint(length as u64, to);
}

/// Bytes that a field of `length` bytes takes; its number is below 16.
pub(super) fn field_len(length: usize) -> usize {
    1 + varint_len(length as u64) + length
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_of_each_kind_come_in_their_order() {
        let message = [0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x1d, 1, 2, 3, 4, 0x21, 1, 2, 3, 4, 5, 6, 7, 8];
        let found: Vec<_> = Fields(&message).collect::<Result<_, _>>().unwrap();
        let expected = [
            (1, Value::Varint(150)),
            (2, Value::Bytes(b"hi")),
            (3, Value::Fixed32([1, 2, 3, 4])),
            (4, Value::Fixed64([1, 2, 3, 4, 5, 6, 7, 8])),
        ];
        assert_eq!(found, expected);
        // A length beyond the end, a key without a value, a group, field 0.
        for wrong in [&[0x12, 3, b'h'][..], &[0x08], &[0x0b], &[0x00, 1], &[0x80], &[0xff; 11]] {
            assert_eq!(Fields(wrong).last(), Some(Err(Malformed)), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn integers_are_read_as_they_are_written(n in any::<u64>(), shift in 0u32..64) {
            let (n, mut written) = (n >> shift, Vec::new());
            write_varint(n, &mut written);
            prop_assert_eq!(written.len(), varint_len(n));
            prop_assert_eq!(varint(&mut &written[..]), Ok(n));
        }

        #[test]
        fn any_bytes_come_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Fields(&bytes).count() <= bytes.len());
        }
    }
}
