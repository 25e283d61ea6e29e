//! A model's file without its large weights: these stay where they are until somebody needs them.
//!
//! A weight is then in memory once, in the form in which it is used, and the file itself never is. What comes out is the
//! same protobuf message, in which the elements of a large tensor are replaced by their place in the file.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Seek};

use prost::Message;

use super::proto::{HERE, KeyValue, TensorProto};

/// Bytes of elements above which they stay in the file. What is smaller is read faster with its neighbours.
const LARGE: u64 = 1 << 16;

/// The fields that lead to a tensor's elements: a model's graph, the graph's weights, a weight's bytes.
const PATH: [u64; 3] = [7, 5, 9];
/// The fields in which a tensor says that its elements are in another file.
const ELSEWHERE: u64 = 13;
const LOCATION: u64 = 14;

/// Reads a file of `size` bytes. An error of the kind `InvalidData` or `UnexpectedEof` says that the file is damaged.
pub(super) fn read(file: impl Read + Seek, size: u64) -> Result<Vec<u8>> {
    let mut message = Vec::new();
    Walk { reader: BufReader::with_capacity(1 << 16, file), at: 0 }.message(size, &PATH, &mut message)?;
    Ok(message)
}

struct Walk<R> {
    reader: BufReader<R>,
    /// Bytes of the file that are behind.
    at: u64,
}

impl<R: Read + Seek> Walk<R> {
    /// Copies a message that ends at `end`, but for what the path leads to. What a tensor says of its elements' place comes last: a file may
    /// say that they are in no other one, as `onnx.load` does of those that were, and would take back that they were left.
    fn message(&mut self, end: u64, path: &[u64], copy: &mut Vec<u8>) -> Result<()> {
        let (mut left, mut location, mut elsewhere) = (None, 0, Vec::new());
        while self.at < end {
            let key = self.number(end)?;
            let field = key >> 3;
            match key & 7 {
                0 => {
                    let number = self.number(end)?;
                    match path {
                        [_] if field == LOCATION => location = number,
                        _ => write(copy, &[key, number]),
                    }
                }
                kind @ (1 | 5) => {
                    write(copy, &[key]);
                    self.bytes(if kind == 1 { 8 } else { 4 }, end, copy)?;
                }
                2 => {
                    let length = self.number(end)?;
                    if length > end - self.at {
                        return Err(damaged("a length reaches beyond the end"));
                    }
                    match path {
                        [last] if field == *last && length >= LARGE => left = Some(self.leave(length)?),
                        [_] if field == ELSEWHERE => {
                            write(&mut elsewhere, &[key, length]);
                            self.bytes(length, end, &mut elsewhere)?;
                        }
                        [first, rest @ ..] if field == *first && !rest.is_empty() => {
                            let mut inner = Vec::new();
                            self.message(self.at + length, rest, &mut inner)?;
                            write(copy, &[key, inner.len() as u64]);
                            copy.append(&mut inner);
                        }
                        _ => {
                            write(copy, &[key, length]);
                            self.bytes(length, end, copy)?;
                        }
                    }
                }
                kind => return Err(damaged(&format!("a field of kind {kind}"))),
            }
        }
        match left {
            Some(place) if location == 0 => copy.extend(place.encode_to_vec()),
            _ => {
                copy.append(&mut elsewhere);
                if location != 0 {
                    write(copy, &[LOCATION << 3, location]);
                }
            }
        }
        Ok(())
    }

    /// Leaves a tensor's elements in the file and says where they are.
    fn leave(&mut self, length: u64) -> Result<TensorProto> {
        let entry = |key: &str, value: u64| KeyValue { key: key.to_owned(), value: value.to_string() };
        let external_data = vec![entry("offset", self.at), entry("length", length)];
        let place = TensorProto { external_data, data_location: HERE, ..TensorProto::default() };
        self.at += length;
        self.reader.seek_relative(i64::try_from(length).map_err(|_| damaged("a length that no file has"))?)?;
        Ok(place)
    }

    fn bytes(&mut self, count: u64, end: u64, copy: &mut Vec<u8>) -> Result<()> {
        if count > end - self.at || self.reader.by_ref().take(count).read_to_end(copy)? as u64 != count {
            return Err(damaged("it ends too early"));
        }
        self.at += count;
        Ok(())
    }

    /// A number in protobuf's encoding: seven bits a byte, the lowest first.
    fn number(&mut self, end: u64) -> Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            if self.at == end {
                break;
            }
            let &byte = self.reader.fill_buf()?.first().ok_or_else(|| damaged("it ends too early"))?;
            self.reader.consume(1);
            self.at += 1;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(damaged("a number that does not end"))
    }
}

fn write(copy: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|&number| prost::encoding::encode_varint(number, copy));
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::super::proto::{GraphProto, ModelProto};
    use super::*;

    /// A model with weights of these many bytes.
    fn model(sizes: &[usize]) -> ModelProto {
        let weight = |&size: &usize| TensorProto {
            dims: vec![size as i64],
            data_type: 2,
            name: format!("weight of {size}"),
            raw_data: Some((0..size).map(|i| i as u8).collect::<Vec<u8>>().into()),
            ..TensorProto::default()
        };
        let graph = GraphProto { initializer: sizes.iter().map(weight).collect(), ..GraphProto::default() };
        ModelProto { ir_version: Some(8), graph: Some(graph), ..ModelProto::default() }
    }

    fn read(file: &[u8]) -> Result<Vec<u8>> {
        super::read(Cursor::new(file), file.len() as u64)
    }

    #[test]
    fn large_weights_are_left_at_the_place_that_is_written_down() {
        let large = LARGE as usize;
        let mut whole = model(&[3, large + 5, large - 1, large]);
        let file = whole.encode_to_vec();
        let skeleton = read(&file).unwrap();
        assert!(skeleton.len() < large + 500, "{} bytes", skeleton.len());
        let mut found = ModelProto::decode(&skeleton[..]).unwrap();
        for weight in &mut found.graph.as_mut().unwrap().initializer {
            if weight.data_location == HERE {
                let number = |i: usize| weight.external_data[i].value.parse::<usize>().unwrap();
                let (offset, length) = (number(0), number(1));
                assert!(length >= large);
                weight.raw_data = Some(file[offset..offset + length].to_vec().into());
                (weight.data_location, weight.external_data) = (0, Vec::new());
            }
        }
        assert_eq!(found, whole);
        whole.graph.as_mut().unwrap().initializer.truncate(1);
        let small = whole.encode_to_vec();
        assert_eq!(read(&small).unwrap(), small, "nothing is left out of a small file");
    }

    #[test]
    fn what_a_file_says_of_other_files_does_not_hide_where_its_own_elements_are() {
        let entry = KeyValue { key: "offset".into(), value: "7".into() };
        for (location, expected) in [(0, HERE), (1, 1)] {
            let mut weight = model(&[LARGE as usize]).graph.unwrap().initializer.remove(0);
            weight.external_data = vec![entry.clone()];
            let mut weight = weight.encode_to_vec();
            // prost does not write a 0.
            write(&mut weight, &[LOCATION << 3, location]);
            let (mut graph, mut file) = (Vec::new(), Vec::new());
            prost::encoding::bytes::encode(5, &weight, &mut graph);
            prost::encoding::bytes::encode(7, &graph, &mut file);
            let found = ModelProto::decode(&read(&file).unwrap()[..]).unwrap().graph.unwrap().initializer.remove(0);
            assert_eq!((found.data_location, found.raw_data), (expected, None));
            let keys: Vec<&str> = found.external_data.iter().map(|entry| &*entry.key).collect();
            assert_eq!(keys, if location == 0 { &["offset", "length"][..] } else { &["offset"] });
        }
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let file = model(&[LARGE as usize, 10]).encode_to_vec();
        for end in [1, 5, 20, 40, file.len() - 30, file.len() - 1] {
            assert!(read(&file[..end]).is_err(), "cut at {end}");
        }
        // A length beyond the end, a number without an end, a group.
        for damaged in [&[0x3a, 0xff, 0xff, 0xff, 0xff, 0x0f][..], &[0xff; 12], &[0x0b]] {
            assert_eq!(read(damaged).unwrap_err().kind(), ErrorKind::InvalidData);
        }
    }
}
