//! The `data` of a tensor: a JSON list, flat or nested like the shape, to elements of one type.
//!
//! The text is known to be one well-formed JSON value, so this reader only has to find where each element ends. Each
//! element is parsed straight into its own type. That keeps integers exact over their whole range and rounds floats
//! once; a general JSON number would take a detour through `f64`.

use std::num::IntErrorKind;
use std::str::FromStr;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use fast_float2::{FastFloat, parse_partial};
use half::{bf16, f16};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::text::{text_len, unescaped};
use crate::quote::Dims;
use crate::tensor::{Data, DataType, TensorError, bf16_from_f64, elements, f16_from_f64};

/// Longest piece of a wrong element that an error repeats, in characters.
const QUOTED: usize = 40;

/// Why a list is not the tensor that it should be, in words that follow "input 'x': ".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::server) enum DataError {
    #[error("data must be a list")]
    NotAList,
    #[error("element {at} ({found}) is not {expected}")]
    Element { at: usize, found: String, expected: &'static str },
    #[error("element {at} ({found}) is out of range for {datatype}")]
    Range { at: usize, found: String, datatype: &'static str },
    #[error("data is nested deeper than the {rank} dimensions of shape {}, or unevenly, at element {at}", Dims(shape))]
    Depth { at: usize, rank: usize, shape: Vec<usize> },
    #[error("nested data disagrees with shape {}: a list in dimension {axis} has {found} items", Dims(shape))]
    Nesting { axis: usize, found: usize, shape: Vec<usize> },
    #[error("{0}")]
    Tensor(#[from] TensorError),
}

/// What is wrong with one element.
enum Wrong {
    Kind,
    Range,
}

/// Reads `json`, one well-formed value, as the elements of a tensor of `shape`.
pub(in crate::server) fn read(json: &str, datatype: DataType, shape: &[usize]) -> Result<Data, DataError> {
    match datatype {
        DataType::Bool => list(json, datatype, shape, whole(boolean)).map(Data::from),
        DataType::Uint8 => list(json, datatype, shape, whole(integer::<u8>)).map(Data::from),
        DataType::Uint16 => list(json, datatype, shape, whole(integer::<u16>)).map(Data::from),
        DataType::Uint32 => list(json, datatype, shape, whole(integer::<u32>)).map(Data::from),
        DataType::Uint64 => list(json, datatype, shape, whole(integer::<u64>)).map(Data::from),
        DataType::Int8 => list(json, datatype, shape, whole(integer::<i8>)).map(Data::from),
        DataType::Int16 => list(json, datatype, shape, whole(integer::<i16>)).map(Data::from),
        DataType::Int32 => list(json, datatype, shape, whole(integer::<i32>)).map(Data::from),
        DataType::Int64 => list(json, datatype, shape, whole(integer::<i64>)).map(Data::from),
        DataType::Fp16 => list(json, datatype, shape, |t| float(t, f16_from_f64, f16::is_finite)).map(Data::from),
        DataType::Bf16 => list(json, datatype, shape, |t| float(t, bf16_from_f64, bf16::is_finite)).map(Data::from),
        DataType::Fp32 => list(json, datatype, shape, |t| float(t, |x: f32| x, f32::is_finite)).map(Data::from),
        DataType::Fp64 => list(json, datatype, shape, |t| float(t, |x: f64| x, f64::is_finite)).map(Data::from),
        DataType::Bytes => list(json, datatype, shape, whole(string)).map(Data::from),
    }
}

/// The same for byte strings, each a string or `{"b64": "…"}`.
pub(in crate::server) fn read_strings_or_base64(json: &str, shape: &[usize]) -> Result<Data, DataError> {
    let parse = |token: &str| if token.starts_with('{') { base64(token) } else { string(token) };
    list(json, DataType::Bytes, shape, whole(parse)).map(Data::from)
}

fn boolean(token: &str) -> Result<bool, Wrong> {
    token.parse().map_err(|_| Wrong::Kind)
}

fn integer<T: FromStr<Err = std::num::ParseIntError>>(token: &str) -> Result<T, Wrong> {
    // The standard library has no minus before what has no sign; the number is 0 all the same.
    let number = if token == "-0" { "0" } else { token };
    number.parse().map_err(|error: std::num::ParseIntError| {
        let digits = token.strip_prefix('-').unwrap_or(token);
        let is_integer = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => Wrong::Range,
            // The minus sign of an unsigned integer is an invalid digit to the standard library.
            _ if is_integer => Wrong::Range,
            _ => Wrong::Kind,
        }
    })
}

/// What stands at the begin of a text, and its length.
type Element<T> = (Result<T, Wrong>, usize);

/// Reads elements whose end is to be found first.
fn whole<T>(parse: impl Fn(&str) -> Result<T, Wrong>) -> impl Fn(&str) -> Element<T> {
    move |text| {
        let len = element_len(text.as_bytes());
        (parse(&text[..len]), len)
    }
}

/// A float that is parsed as `P`, rounded to `T`, and finite there; or one that JSON has no number for, by name.
fn float<P: FastFloat + From<f32>, T: Copy>(
    text: &str,
    round: impl Fn(P) -> T,
    is_finite: fn(T) -> bool,
) -> Element<T> {
    // The parser also knows "inf" and "nan"; among JSON's values only a number starts like this, and ends where it says.
    if text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
        return match parse_partial(text) {
            Ok((value, len)) => {
                let value = round(value);
                (if is_finite(value) { Ok(value) } else { Err(Wrong::Range) }, len)
            }
            Err(_) => (Err(Wrong::Kind), element_len(text.as_bytes())),
        };
    }
    whole(|token| match token {
        // `null` is what kserve's client, pandas and browsers make of it.
        "\"NaN\"" | "null" => Ok(round(f32::NAN.into())),
        "\"Infinity\"" => Ok(round(f32::INFINITY.into())),
        "\"-Infinity\"" => Ok(round(f32::NEG_INFINITY.into())),
        _ => Err(Wrong::Kind),
    })(text)
}

fn string(token: &str) -> Result<Vec<u8>, Wrong> {
    unescaped(token).ok_or(Wrong::Kind)
}

/// `{"b64": "…"}`
fn base64(token: &str) -> Result<Vec<u8>, Wrong> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Encoded<'a> {
        #[serde(borrow)]
        b64: &'a RawValue,
    }
    let Encoded { b64 } = serde_json::from_str(token).map_err(|_| Wrong::Kind)?;
    BASE64.decode(string(b64.get())?).map_err(|_| Wrong::Kind)
}

/// Padded or not, as clients send it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What an element should have been.
fn wanted(datatype: DataType) -> &'static str {
    match datatype {
        DataType::Bool => "true or false, as BOOL asks for",
        DataType::Bytes => "a string, as BYTES asks for",
        DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64 => {
            "a number, \"NaN\", \"Infinity\" or \"-Infinity\""
        }
        _ => "an integer",
    }
}

/// Walks the list and checks its nesting on the way.
fn list<T>(
    json: &str,
    datatype: DataType,
    shape: &[usize],
    read: impl Fn(&str) -> Element<T>,
) -> Result<Vec<T>, DataError> {
    let text = json.as_bytes();
    if text.first() != Some(&b'[') {
        return Err(DataError::NotAList);
    }
    // Every element takes two bytes at least, its comma included: a shape alone makes nobody set memory aside.
    let expected = elements(shape)?;
    let mut found: Vec<T> = Vec::with_capacity(expected.min(text.len() / 2 + 1));
    let mut seen = 0;
    let mut nesting = Nesting::new(shape);
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match byte {
            b',' | b' ' | b'\n' | b'\r' | b'\t' => at += 1,
            b'[' => {
                nesting.open(seen)?;
                at += 1;
            }
            b']' => {
                nesting.close(seen)?;
                at += 1;
            }
            _ => {
                nesting.element(seen)?;
                let (element, len) = read(&json[at..]);
                let element = element.map_err(|wrong| {
                    let (at, found) = (seen, quote(&json[at..at + len]));
                    match wrong {
                        Wrong::Kind => DataError::Element { at, found, expected: wanted(datatype) },
                        Wrong::Range => DataError::Range { at, found, datatype: datatype.name() },
                    }
                })?;
                // What is too many is counted alone: in memory it may take more than its text.
                if seen < expected {
                    found.push(element);
                }
                (seen, at) = (seen + 1, at + len);
            }
        }
    }
    if seen > expected {
        return Err(TensorError::Length { shape: shape.to_vec(), expected, found: seen }.into());
    }
    Ok(found)
}

/// Length of the element at the start of `text`: of an object, up to its last brace.
pub(in crate::server) fn element_len(text: &[u8]) -> usize {
    match text[0] {
        b'"' => text_len(text),
        b'{' => object_len(text),
        _ => text.iter().position(|b| matches!(b, b',' | b']' | b' ' | b'\n' | b'\r' | b'\t')).unwrap_or(text.len()),
    }
}

fn object_len(text: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0usize);
    while at < text.len() {
        match text[at] {
            b'"' => {
                at += text_len(&text[at..]);
                continue;
            }
            b'{' => depth += 1,
            b'}' if depth == 1 => return at + 1,
            b'}' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    text.len()
}

fn quote(token: &str) -> String {
    match token.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}…", &token[..end]),
        None => token.to_owned(),
    }
}

/// Where in the lists the reader stands. A list without lists inside is flat, whatever the shape; any other must have
/// the shape's dimensions.
pub(super) struct Nesting<'a> {
    shape: &'a [usize],
    /// Items so far in each open list that holds lists, the outermost first.
    counts: Vec<usize>,
    depth: usize,
    /// Elements before the innermost list.
    before: usize,
    /// The depth at which elements stand, once it is known.
    leaf: Option<usize>,
}

impl<'a> Nesting<'a> {
    pub(super) fn new(shape: &'a [usize]) -> Nesting<'a> {
        Nesting { shape, counts: Vec::new(), depth: 0, before: 0, leaf: None }
    }

    fn misplaced(&self, at: usize) -> DataError {
        DataError::Depth { at, rank: self.shape.len(), shape: self.shape.to_vec() }
    }

    pub(super) fn open(&mut self, seen: usize) -> Result<(), DataError> {
        // The first level is there for every shape, as flat data.
        if self.depth >= self.shape.len().max(1) || self.leaf.is_some_and(|leaf| self.depth >= leaf) {
            return Err(self.misplaced(seen));
        }
        if let Some(count) = self.depth.checked_sub(1).and_then(|outer| self.counts.get_mut(outer)) {
            *count += 1;
        }
        if self.depth == self.counts.len() {
            self.counts.push(0);
        }
        self.counts[self.depth] = 0;
        self.depth += 1;
        self.before = seen;
        Ok(())
    }

    pub(super) fn element(&mut self, seen: usize) -> Result<(), DataError> {
        match self.leaf {
            Some(leaf) if leaf == self.depth => Ok(()),
            None if self.depth == 1 && self.counts[0] == 0 || self.depth == self.shape.len() => {
                self.leaf = Some(self.depth);
                Ok(())
            }
            _ => Err(self.misplaced(seen)),
        }
    }

    pub(super) fn close(&mut self, seen: usize) -> Result<(), DataError> {
        let axis = self.depth - 1;
        let is_leaf = self.leaf == Some(self.depth) || (self.leaf.is_none() && self.counts[axis] == 0);
        let found = if is_leaf { seen - self.before } else { self.counts[axis] };
        self.depth -= 1;
        // A flat list is measured against the product of the shape when the tensor is built.
        let is_flat = axis == 0 && is_leaf;
        if !is_flat && self.shape.get(axis) != Some(&found) {
            return Err(DataError::Nesting { axis, found, shape: self.shape.to_vec() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(json: &str, shape: &[usize]) -> Result<Data, DataError> {
        read(json, DataType::Int32, shape)
    }

    #[test]
    fn minus_zero_is_zero_also_where_there_is_no_sign() {
        assert_eq!(read("[-0,0]", DataType::Uint64, &[2]), Ok(Data::Uint64(vec![0, 0])));
        assert_eq!(read("[-0]", DataType::Uint8, &[1]), Ok(Data::Uint8(vec![0])));
        assert!(matches!(read("[-1]", DataType::Uint64, &[1]), Err(DataError::Range { .. })));
    }

    #[test]
    fn more_elements_than_the_shape_has_are_counted_and_not_kept() {
        let many = format!("[{}]", vec!["0"; 1000].join(","));
        let error = ints(&many, &[2]).unwrap_err();
        assert_eq!(error.to_string(), "shape [2] has 2 elements, but the data has 1000");
        let error = read("[[\"a\"],[\"b\",\"c\"]]", DataType::Bytes, &[2, 1]).unwrap_err();
        assert!(error.to_string().contains("a list in dimension 1 has 2 items"), "{error}");
    }

    #[test]
    fn flat_and_nested_lists_of_the_same_shape_are_the_same_elements() {
        let flat = Data::Int32(vec![1, 2, 3, 4, 5, 6]);
        for json in ["[1,2,3,4,5,6]", "[[1,2,3],[4,5,6]]", " [ [ 1 , 2,3 ]\n,[4,5 ,6]\t] ".trim()] {
            assert_eq!(ints(json, &[2, 3]).unwrap(), flat, "{json}");
        }
        assert_eq!(ints("[[[1],[2],[3]],[[4],[5],[6]]]", &[2, 3, 1]).unwrap(), flat);
        assert_eq!(ints("[]", &[0, 3]).unwrap(), Data::Int32(vec![]));
        assert_eq!(ints("[[],[]]", &[2, 0]).unwrap(), Data::Int32(vec![]));
    }

    #[test]
    fn nesting_that_disagrees_with_the_shape_is_refused() {
        for json in [
            "[[1,2],[3,4],[5,6]]",
            "[[1,2,3],[4,5]]",
            "[[1,2,3],[4,5,6],[]]",
            "[[1,2,3]]",
            "[[1,2,3],4,5,6]",
            "[1,2,3,[4,5,6]]",
            "[[[1],[2],[3]],[[4],[5],[6]]]",
            "[[1,2,3],[4,5,[6]]]",
            "[[[1,2,3],[4,5,6]]]",
            "[[],[1,2,3],[4,5,6]]",
            "[[1,2,3,4,5,6]]",
        ] {
            assert!(ints(json, &[2, 3]).is_err(), "{json}");
        }
        assert!(ints(&"[".repeat(1_000_000), &[2, 3]).is_err(), "depth is bounded by the shape");
        assert!(ints("[[]]", &[0, 64]).is_err());
    }

    #[test]
    fn integers_are_exact_to_the_ends_of_their_range_and_refused_beyond() {
        let ends = read("[-9223372036854775808, 9223372036854775807, 9007199254740993]", DataType::Int64, &[3]);
        assert_eq!(ends.unwrap(), Data::Int64(vec![i64::MIN, i64::MAX, 9_007_199_254_740_993]));
        assert_eq!(read("[18446744073709551615]", DataType::Uint64, &[1]).unwrap(), Data::Uint64(vec![u64::MAX]));
        for (json, datatype) in [
            ("[9223372036854775808]", DataType::Int64),
            ("[18446744073709551616]", DataType::Uint64),
            ("[-1]", DataType::Uint8),
            ("[256]", DataType::Uint8),
            ("[-129]", DataType::Int8),
            ("[70000]", DataType::Fp16),
            ("[1e39]", DataType::Fp32),
            ("[-1e400]", DataType::Fp64),
        ] {
            let error = read(json, datatype, &[1]).unwrap_err();
            assert!(matches!(error, DataError::Range { at: 0, .. }), "{json}: {error}");
        }
    }

    #[test]
    fn an_element_of_another_kind_is_named_with_its_place() {
        for (json, datatype) in [
            ("[1, 1.5]", DataType::Int32),
            ("[1, 1e3]", DataType::Int32),
            ("[1, \"2\"]", DataType::Int32),
            ("[1, null]", DataType::Int32),
            ("[1, true]", DataType::Fp32),
            ("[1, \"nan\"]", DataType::Fp32),
            ("[1, \"NaN\"]", DataType::Int32),
            ("[1, {\"a\": [1]}]", DataType::Fp32),
            ("[true, 1]", DataType::Bool),
            ("[\"a\", 1]", DataType::Bytes),
            ("[\"a\", \"\\ud800\"]", DataType::Bytes),
        ] {
            let error = read(json, datatype, &[2]).unwrap_err();
            assert!(matches!(error, DataError::Element { at: 1, .. }), "{json} as {datatype:?}: {error}");
        }
        for json in ["5", "{}", "\"[1]\"", "null"] {
            assert_eq!(ints(json, &[1]), Err(DataError::NotAList));
        }
    }

    #[test]
    fn floats_are_rounded_once() {
        // Just above halfway between 1 and the next f32; through f64 it would first become the halfway point itself.
        let json = "[1.0000000596046448, 1.00000005960464477540, 16777217, -0.0]";
        let Data::Fp32(found) = read(json, DataType::Fp32, &[4]).unwrap() else { panic!() };
        assert_eq!(found, [1.0 + f32::EPSILON, 1.0 + f32::EPSILON, 16_777_216.0, 0.0]);
        assert!(found[3].is_sign_negative());
        // Just above halfway between two halves; through f32 it would become the halfway point, and the last one infinite.
        let Data::Fp16(found) = read("[1.0004882818, 65519.9999]", DataType::Fp16, &[2]).unwrap() else { panic!() };
        assert_eq!(found, [1.000_976_6, 65504.0].map(f16::from_f32));
        let Data::Bf16(found) = read("[1.00390625000001]", DataType::Bf16, &[1]).unwrap() else { panic!() };
        assert_eq!(found, [bf16::from_f32(1.007_812_5)]);
        assert!(matches!(read("[65520]", DataType::Fp16, &[1]), Err(DataError::Range { at: 0, .. })));
    }

    #[test]
    fn what_is_no_number_is_read_by_its_name() {
        let json = r#"["NaN", "Infinity", "-Infinity"]"#;
        let Data::Fp32(missing) = read("[null]", DataType::Fp32, &[1]).unwrap() else { panic!() };
        assert!(missing[0].is_nan());
        let Data::Fp64(found) = read(json, DataType::Fp64, &[3]).unwrap() else { panic!() };
        assert!(found[0].is_nan() && found[1..] == [f64::INFINITY, f64::NEG_INFINITY], "{found:?}");
        let Data::Fp16(found) = read(json, DataType::Fp16, &[3]).unwrap() else { panic!() };
        assert!(found[0].is_nan() && found[1] == f16::INFINITY, "{found:?}");
    }

    #[test]
    fn strings_are_unescaped_and_may_hold_brackets_and_quotes() {
        let json = r#"["a]b,[", "q\"\\", "ü\n\u00fc", ""]"#;
        let strings = ["a]b,[", "q\"\\", "ü\nü", ""].map(|s| s.as_bytes().to_vec());
        assert_eq!(read(json, DataType::Bytes, &[2, 2]).unwrap(), Data::Bytes(strings.to_vec()));
    }
}
