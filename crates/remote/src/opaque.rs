//! Requests and answers that are no tensors to anybody but the model: each is a byte string, an element of a BYTES tensor.
//!
//! An element is the length of a JSON object in four bytes (little-endian), that object, and a body: `docs/workers.md`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::runner::{Signature, TensorSpec};
use crate::tensor::{Data, DataType};

/// The input of a model that takes opaque requests: BYTES, an element a row.
pub const REQUEST: &str = "request";
/// Its output: BYTES, an element a row.
pub const ANSWER: &str = "answer";

/// The type of a body that nobody names.
pub const JSON: &str = "application/json";

/// Bytes of the length in front of the JSON object.
const LENGTH: usize = 4;

/// What a caller sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestHead<'a> {
    /// The value of `Content-Type`; empty where there is none.
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    pub content_type: Cow<'a, str>,
    /// What stands behind `?`, as it came; empty where there is nothing.
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    pub query: Cow<'a, str>,
    /// Headers, names in lower case, sorted by name; those of one name in the order in which they came. The server leaves out those by
    /// which a caller proves who it is.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// What the server calls the request in its log.
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    pub request_id: Cow<'a, str>,
}

/// What a caller gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerHead<'a> {
    /// The status of HTTP: 200 to 299 for an answer, 400 to 499 where the caller is to blame, 500 to 599 for all else.
    #[serde(default = "ok", skip_serializing_if = "is_ok")]
    pub status: u16,
    /// The value of `Content-Type`; [`JSON`] where there is none. With a status of 400 and more it says that the body is the caller's as it
    /// is. Without it the body is a sentence, for the caller up to 499 and for the log from 500 on.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<Cow<'a, str>>,
    /// Whether the body is numbers, each in eight bytes (IEEE 754, little-endian), of which the caller gets a list in JSON:
    /// writing that takes an interpreter longer than us.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub numbers: bool,
}

impl Default for AnswerHead<'_> {
    fn default() -> Self {
        AnswerHead { status: ok(), content_type: None, numbers: false }
    }
}

fn ok() -> u16 {
    200
}

fn is_ok(status: &u16) -> bool {
    *status == ok()
}

/// Why bytes are no element.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an opaque element of {length} bytes is broken: {reason}")]
pub struct OpaqueError {
    length: usize,
    reason: String,
}

/// What a model takes and gives whose requests are opaque: a byte string for each row, and one back.
pub fn signature() -> Signature {
    let tensor = |name: &str| TensorSpec::new(name, DataType::Bytes, Vec::new());
    Signature { inputs: vec![tensor(REQUEST)], outputs: vec![tensor(ANSWER)] }
}

/// Whether it is that of opaque requests.
pub fn is_opaque(signature: &Signature) -> bool {
    let is = |specs: &[TensorSpec], name: &str| matches!(specs, [spec] if *spec.name == *name && spec.datatype == DataType::Bytes && spec.dims.is_empty());
    is(&signature.inputs, REQUEST) && is(&signature.outputs, ANSWER)
}

/// Refuses a model of tensors whose names and types are those of opaque requests: its callers could not send any. The error is a
/// sentence for the operator.
pub fn check_tensors(signature: &Signature) -> Result<(), String> {
    if !is_opaque(signature) {
        return Ok(());
    }
    Err(format!(
        "it takes BYTES '{REQUEST}' and gives BYTES '{ANSWER}', as a model does that takes any body: rename one of them"
    ))
}

/// The element of a head, a [`RequestHead`] or an [`AnswerHead`], and a body.
pub fn encode(head: &impl Serialize, body: &[u8]) -> Vec<u8> {
    [&begin(head), body].concat()
}

/// What elements with this head begin with; their bodies follow.
pub fn begin(head: &impl Serialize) -> Vec<u8> {
    let mut element = vec![0; LENGTH];
    serde_json::to_writer(&mut element, head).expect("strings and numbers, into memory");
    let length = u32::try_from(element.len() - LENGTH).expect("heads are bounded by whoever reads them");
    element[..LENGTH].copy_from_slice(&length.to_le_bytes());
    element
}

/// The head and the body of an element.
pub fn decode<'a, H: Deserialize<'a>>(element: &'a [u8]) -> Result<(H, &'a [u8]), OpaqueError> {
    let broken = |reason: String| OpaqueError { length: element.len(), reason };
    let (length, rest) = element.split_first_chunk::<LENGTH>().ok_or_else(|| broken("it has no length".into()))?;
    let length = u32::from_le_bytes(*length) as usize;
    let (head, body) = rest
        .split_at_checked(length)
        .ok_or_else(|| broken(format!("it ends before its head of {length} bytes does")))?;
    let head = serde_json::from_slice(head)
        .map_err(|error| broken(format!("its head is no JSON object as it should be: {error}")))?;
    Ok((head, body))
}

/// Most bytes of a number in a list, with what stands between it and the next.
const MOST_IN_LIST: usize = 25;

/// Most bytes of the [list] that a body of numbers makes.
pub fn most_in_list(body: &[u8]) -> usize {
    2 + MOST_IN_LIST * (body.len() / size_of::<f64>())
}

/// A list in JSON of a body that is [numbers](AnswerHead::numbers); `None` where it is not, or where JSON has no word for one.
pub fn list(body: &[u8]) -> Option<Vec<u8>> {
    let (numbers, []) = body.as_chunks() else { return None };
    let mut list = Vec::with_capacity(most_in_list(body));
    list.push(b'[');
    for (i, &number) in numbers.iter().enumerate() {
        let number = Some(f64::from_le_bytes(number)).filter(|number| number.is_finite())?;
        list.extend_from_slice(if i > 0 { b"," } else { b"" });
        serde_json::to_writer(&mut list, &number).expect("numbers, into memory");
    }
    list.push(b']');
    Some(list)
}

/// The elements of a tensor of byte strings; none of any other.
pub fn elements(data: &Data) -> &[Vec<u8>] {
    match data {
        Data::Bytes(elements) => elements,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(of: &[f64]) -> Vec<u8> {
        of.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn a_list_has_each_number_to_the_last_bit_within_the_bytes_that_were_reserved() {
        let each =
            [0.0, -0.0, 1.0, 0.1, -1e300, 1e16, f64::MIN_POSITIVE, f64::MIN, 5e-324, -2.225_073_858_507_201_4e-308];
        for of in [&each[..], &each[..1], &[]] {
            let list = list(&numbers(of)).expect("numbers");
            let read: Vec<f64> = serde_json::from_slice(&list).expect("JSON");
            assert_eq!(numbers(&read), numbers(of));
            assert!(list.len() <= most_in_list(&numbers(of)), "{} bytes", list.len());
        }
        assert_eq!(list(&numbers(&[1.0, -0.5])).expect("numbers"), b"[1.0,-0.5]");
    }

    #[test]
    fn what_json_cannot_say_is_no_list() {
        for bad in [&numbers(&[1.0, f64::NAN])[..], &numbers(&[f64::NEG_INFINITY]), &[0; 9]] {
            assert_eq!(list(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let head = RequestHead {
            content_type: "text/plain".into(),
            query: "a=b".into(),
            headers: vec![("x-name".into(), "ü\"".into())],
            request_id: "7".into(),
        };
        let element = encode(&head, b"body");
        assert_eq!(decode::<RequestHead<'_>>(&element), Ok((head, &b"body"[..])));
    }

    #[test]
    fn what_is_not_said_is_left_out_and_has_its_default() {
        assert_eq!(encode(&RequestHead::default(), b"{}"), b"\x02\0\0\0{}{}");
        assert_eq!(encode(&AnswerHead::default(), b"1"), b"\x02\0\0\0{}1");
        assert_eq!(decode::<AnswerHead<'_>>(b"\x02\0\0\0{}1"), Ok((AnswerHead::default(), &b"1"[..])));
    }

    #[test]
    fn broken_elements_are_told() {
        for (element, why) in [
            (&b"\x01\0"[..], "it has no length"),
            (b"\x09\0\0\0{}", "it ends before its head of 9 bytes does"),
            (b"\x01\0\0\x003", "its head is no JSON object as it should be"),
        ] {
            let error = decode::<AnswerHead<'_>>(element).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_signature_is_opaque_by_its_names_and_types() {
        assert!(is_opaque(&signature()));
        let mut other = signature();
        other.inputs[0].datatype = DataType::Fp32;
        assert!(!is_opaque(&other));
        assert_eq!(check_tensors(&other), Ok(()));
        assert!(check_tensors(&signature()).is_err_and(|why| why.contains("rename one of them")));
    }
}
