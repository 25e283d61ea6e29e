//! The body of an infer request: JSON, and behind it the elements of binary tensors.
//!
//! Source: the Open Inference Protocol v2, "Inference", and its extension for binary tensor data
//! (<https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md>).
//! Elements are read last, when it is known that the model takes a tensor of that name, type and shape and that there is
//! room for it.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde::de::{Error as _, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::numbers::{self, Apart};
use super::object::{Members, Object};
use super::response::Form;
use super::text::{Text, refuse_long};
use super::{binary, data};
use crate::error::Error;
use crate::quote::{Dims, Quoted, of_parser};
use crate::raw;
use crate::registry::Priority;
use crate::runner::{Announced, Signature};
use crate::server::body::UNCOUNTED;
use crate::server::call::{Call, MOST};
use crate::server::room::{Room, Taken};
use crate::server::status::Refusal;
use crate::tensor::{Data, DataType, Tensor, Tensors, elements as elements_of};

/// What a client asks for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct InferRequest {
    /// To be echoed.
    pub(super) id: Option<String>,
    /// What is asked of the model.
    pub(super) call: Call,
    /// How each output is to be written: those that are asked for by name, in that order, and any other.
    pub(super) forms: Forms,
}

/// How outputs are to be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::server) struct Forms {
    /// Those that are asked for by name, in that order.
    pub(in crate::server) named: Vec<Form>,
    /// All, where none is asked for by name.
    pub(in crate::server) other: Form,
}

impl Forms {
    /// The form of the `i`th output that is written.
    pub(super) fn of(&self, i: usize) -> Form {
        self.named.get(i).copied().unwrap_or(self.other)
    }
}

impl Members for RawRequest<'_> {
    const EXPECTED: &'static str = "an object with \"inputs\"";
}

impl Members for RawInput<'_> {
    const EXPECTED: &'static str = "an input: an object with \"name\", \"shape\", \"datatype\" and \"data\"";
}

impl Members for RawOutput<'_> {
    const EXPECTED: &'static str = "an output: an object with \"name\"";
}

impl Members for RawParameters<'_> {
    const EXPECTED: &'static str = "an object of parameters";
}

impl Members for RawTensorParameters {
    const EXPECTED: &'static str = "an object of parameters";
}

#[derive(Deserialize)]
struct RawRequest<'a> {
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(borrow, default)]
    parameters: Option<Object<RawParameters<'a>>>,
    #[serde(borrow)]
    inputs: Few<Object<RawInput<'a>>>,
    #[serde(borrow, default)]
    outputs: Option<Few<Object<RawOutput<'a>>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(in crate::server) struct RawParameters<'a> {
    #[serde(borrow)]
    timeout: Option<&'a RawValue>,
    #[serde(borrow)]
    priority: Option<&'a RawValue>,
    binary_data_output: Option<bool>,
}

impl RawParameters<'_> {
    /// How long after arrival the answer is of use, where the client says so, and how urgent it is.
    pub(in crate::server) fn terms(&self) -> Result<(Option<Duration>, Priority), Error> {
        let timeout = self.timeout.map(|value| timeout(whole_number(value))).transpose()?.flatten();
        let priority = self.priority.map(|value| priority(whole_number(value))).transpose()?;
        Ok((timeout, priority.unwrap_or_default()))
    }
}

/// A list of at most [`MOST`]: each element takes memory that nobody has set aside.
struct Few<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Few<T>, D::Error> {
        struct Elements<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Elements<T> {
            type Value = Few<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Few<T>, A::Error> {
                let mut few = Vec::new();
                while let Some(element) = list.next_element()? {
                    if few.len() == MOST {
                        let message = format!("a request has {MOST} inputs, outputs and dimensions of a shape at most");
                        return Err(A::Error::custom(message));
                    }
                    few.push(element);
                }
                Ok(Few(few))
            }
        }

        from.deserialize_seq(Elements(PhantomData))
    }
}

/// The elements stay text until the object is complete: `datatype` and `shape` may come after `data`.
#[derive(Deserialize)]
struct RawInput<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    shape: Few<i64>,
    #[serde(borrow)]
    datatype: Text<'a>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
    #[serde(default)]
    parameters: Option<Object<RawTensorParameters>>,
}

#[derive(Deserialize)]
struct RawOutput<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(default)]
    parameters: Option<Object<RawTensorParameters>>,
}

/// Of an input or an output.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RawTensorParameters {
    binary_data_size: Option<usize>,
    binary_data: Option<bool>,
    classification: Option<usize>,
    shared_memory_region: Option<IgnoredAny>,
}

/// A request whose elements are not read yet.
#[derive(Debug)]
pub(super) struct Unread<'a> {
    id: Option<String>,
    inputs: Vec<Input<'a>>,
    outputs: Vec<String>,
    forms: Forms,
    timeout: Option<Duration>,
    priority: Priority,
}

#[derive(Debug)]
struct Input<'a> {
    name: Cow<'a, str>,
    datatype: DataType,
    shape: Vec<usize>,
    elements: Elements<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Elements<'a> {
    Json(&'a RawValue),
    /// A list of which nothing is known yet.
    Apart(&'a [u8]),
    Binary(&'a [u8]),
    /// A single byte string.
    String(&'a [u8]),
}

impl Elements<'_> {
    /// Bytes of the body.
    fn len(self) -> usize {
        match self {
            Elements::Json(json) => json.get().len(),
            Elements::Apart(bytes) | Elements::Binary(bytes) | Elements::String(bytes) => bytes.len(),
        }
    }
}

/// Reads a body but for the elements of its tensors. The first `json` bytes are JSON, or all of them. Unknown members and
/// parameters are ignored, as the protocol's clients expect.
pub(super) fn parse(body: &[u8], json: Option<usize>) -> Result<Unread<'_>, Error> {
    let (text, mut rest) = match json {
        None => (body, &[][..]),
        Some(length) => body.split_at_checked(length).ok_or_else(|| {
            let have = body.len();
            Error::Invalid(format!(
                "Inference-Header-Content-Length says {length} bytes of JSON, but the body has {have}"
            ))
        })?,
    };
    let text = std::str::from_utf8(text).map_err(|_| Error::Invalid("the body is not UTF-8".into()))?;
    if text.len() >= UNCOUNTED {
        refuse_long(text, &["data"])?;
    }
    let unread = parse_text(text, &[], &mut rest)?;
    if !rest.is_empty() {
        let message = format!("{} bytes are left behind those that the inputs' binary_data_size count", rest.len());
        return Err(Error::Invalid(message));
    }
    Ok(unread)
}

/// The same for a body that is all JSON, whose lists are set apart. `None` where they are not what they seem: then [`parse`]
/// has the last word.
pub(super) fn parse_apart<'a>(apart: &'a Apart<'a>) -> Option<Unread<'a>> {
    let unread = parse_text(&apart.text, &apart.lists, &mut &[][..]).ok()?;
    let lists = unread.inputs.iter().filter(|input| matches!(input.elements, Elements::Apart(_)));
    let is_of_floats = |input: &Input<'_>| input.datatype == DataType::Fp32;
    (lists.clone().count() == apart.lists.len() && lists.into_iter().all(is_of_floats)).then_some(unread)
}

/// All of a body's JSON but for the elements, of which those in `lists` stand apart and those in binary in `rest`.
fn parse_text<'a>(text: &'a str, lists: &[(usize, &'a [u8])], rest: &mut &'a [u8]) -> Result<Unread<'a>, Error> {
    let Object(raw): Object<RawRequest<'_>> = serde_json::from_str(text)
        .map_err(|e| Error::Invalid(format!("the body is not an infer request: {}", of_parser(&e))))?;
    let parameters = raw.parameters.unwrap_or_default().0;
    let (timeout, priority) = parameters.terms()?;
    if raw.inputs.0.is_empty() {
        return Err(Error::Invalid("a request needs at least one input".into()));
    }
    let elements = |json: &'a RawValue| {
        let at = numbers::place(text, json.get());
        // They are in the order of their places.
        let found = lists.binary_search_by_key(&at, |(place, _)| *place);
        found.map_or(Elements::Json(json), |i| Elements::Apart(lists[i].1))
    };
    let inputs = raw.inputs.0.into_iter().map(|Object(raw)| input(raw, elements, rest)).collect::<Result<_, _>>()?;
    let other = if parameters.binary_data_output == Some(true) { Form::Binary } else { Form::Json };
    let (mut outputs, mut named) = (Vec::new(), Vec::new());
    for Object(output) in raw.outputs.map_or_else(Vec::new, |outputs| outputs.0) {
        named.push(form(&output, other)?);
        outputs.push(output.name.0.into_owned());
    }
    let id = raw.id.map(|Text(id)| id.into_owned());
    Ok(Unread { id, inputs, outputs, forms: Forms { named, other }, timeout, priority })
}

/// A body with quotes around each bare `NaN`, `Infinity` and `-Infinity` of its JSON: no JSON has them, but Python's `json` writes
/// them by default, and so do clients that are built on it.
#[derive(Debug)]
pub(in crate::server) struct Named {
    /// The body.
    pub(in crate::server) body: Vec<u8>,
    /// The JSON's length, where other bytes follow it.
    pub(in crate::server) json: Option<usize>,
    _taken: Option<Taken>,
}

impl Named {
    /// This body, if there are any such names in it. 503 where there is no room for it.
    pub(in crate::server) fn of(body: &[u8], json: Option<usize>, room: &Room) -> Result<Option<Named>, Refusal> {
        let Some((text, rest)) = body.split_at_checked(json.unwrap_or(body.len())) else { return Ok(None) };
        let mut length = 0;
        quote_names(text, |piece| length += piece.len());
        if length == text.len() {
            return Ok(None);
        }
        let all = length + rest.len();
        let _taken = if all < UNCOUNTED { None } else { Some(room.reserve(all)?) };
        let mut body = Vec::with_capacity(all);
        quote_names(text, |piece| body.extend_from_slice(piece));
        body.extend_from_slice(rest);
        Ok(Some(Named { body, json: json.map(|_| length), _taken }))
    }
}

/// Says `text` piece by piece, with quotes around its names of what is no number.
fn quote_names(text: &[u8], mut say: impl FnMut(&[u8])) {
    const NAMES: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];
    let (mut at, mut is_string) = (0, false);
    while let Some(&byte) = text.get(at) {
        let name = NAMES.iter().find(|name| !is_string && text[at..].starts_with(name));
        let length = match name {
            Some(name) => name.len(),
            // What is escaped ends no string.
            None if byte == b'\\' => 2.min(text.len() - at),
            None => 1,
        };
        is_string ^= byte == b'"';
        let quote: &[u8] = if name.is_some() { b"\"" } else { b"" };
        [quote, &text[at..at + length], quote].into_iter().for_each(&mut say);
        at += length;
    }
}

/// The body is the elements of the model's only input, and nothing else (`Inference-Header-Content-Length: 0`): one row.
/// All outputs are wanted, in the same form.
pub(super) fn parse_raw<'a>(body: &'a [u8], signature: &'a Signature) -> Result<Unread<'a>, Error> {
    let (name, datatype, shape) = binary::only_input(body, signature).map_err(Error::Invalid)?;
    let elements = if datatype == DataType::Bytes { Elements::String(body) } else { Elements::Binary(body) };
    let inputs = vec![Input { name: Cow::Borrowed(name), datatype, shape, elements }];
    let forms = Forms { named: Vec::new(), other: Form::Binary };
    let (id, outputs, timeout, priority) = (None, Vec::new(), None, Priority::DEFAULT);
    Ok(Unread { id, inputs, outputs, forms, timeout, priority })
}

impl Unread<'_> {
    /// Says whether the model takes tensors of these names, types and shapes, and how many bytes of memory they will take.
    pub(super) fn admit(&self, signature: &Signature) -> Result<usize, Error> {
        let inputs: Vec<_> = self
            .inputs
            .iter()
            .map(|Input { name, datatype, shape, .. }| Announced { name, datatype: *datatype, shape })
            .collect();
        let bytes = signature.admit(&inputs).map_err(|e| Error::Invalid(e.to_string()))?;
        // What byte strings hold is no more than what they are read from.
        let strings = self.inputs.iter().filter(|input| input.datatype == DataType::Bytes);
        Ok(strings.map(|input| input.elements.len()).fold(bytes, usize::saturating_add))
    }

    /// Reads the elements.
    pub(super) fn read(self) -> Result<InferRequest, Error> {
        let Unread { id, inputs, outputs, forms, timeout, priority } = self;
        let inputs = inputs.into_iter().map(|input| Ok((Arc::from(&*input.name), input.read()?)));
        let inputs = Tensors::new(inputs.collect::<Result<_, Error>>()?).map_err(|e| Error::Invalid(e.to_string()))?;
        Ok(InferRequest { id, call: Call { inputs, outputs, timeout, priority }, forms })
    }
}

impl Input<'_> {
    fn read(self) -> Result<Tensor, Error> {
        let Input { name, datatype, shape, elements } = self;
        let invalid = |what: &dyn std::fmt::Display| Error::Invalid(format!("input {}: {what}", Quoted(&name)));
        let data = match elements {
            Elements::Json(json) => data::read(json.get(), datatype, &shape).map_err(|e| invalid(&e))?,
            Elements::Apart(list) => {
                let floats = numbers::floats(list, &shape, elements_of(&shape).map_err(|e| invalid(&e))?);
                floats.map(Data::Fp32).ok_or_else(|| invalid(&"its list is not one of that many numbers"))?
            }
            Elements::String(bytes) => Data::Bytes(vec![bytes.to_vec()]),
            Elements::Binary(bytes) => raw::read(bytes, datatype, &shape).map_err(|e| invalid(&e))?,
        };
        Tensor::new(shape, data).map_err(|e| invalid(&e))
    }
}

/// All of an input but its elements, of which those in binary are the next of `rest`.
fn input<'a>(
    raw: RawInput<'a>,
    elements: impl Fn(&'a RawValue) -> Elements<'a>,
    rest: &mut &'a [u8],
) -> Result<Input<'a>, Error> {
    let RawInput { name: Text(name), shape, datatype: Text(datatype), data, parameters } = raw;
    let invalid = |what: &dyn std::fmt::Display| Error::Invalid(format!("input {}: {what}", Quoted(&name)));
    let datatype = DataType::from_name(&datatype).ok_or_else(|| {
        let known: Vec<_> = DataType::ALL.iter().map(|d| d.name()).collect();
        invalid(&format_args!("unknown datatype {}; the protocol has {}", Quoted(&datatype), known.join(", ")))
    })?;
    let negative = || invalid(&format_args!("shape {} has a negative dimension", Dims(&shape.0)));
    let shape = shape.0.iter().map(|&n| usize::try_from(n).map_err(|_| negative())).collect::<Result<Vec<_>, _>>()?;
    let Object(parameters) = parameters.unwrap_or_default();
    refuse_shared_memory(&parameters).map_err(|e| invalid(&e))?;
    let elements = match (data, parameters.binary_data_size) {
        (Some(json), None) => elements(json),
        (None, Some(size)) => {
            let (bytes, behind) = rest.split_at_checked(size).ok_or_else(|| {
                let have = rest.len();
                invalid(&format_args!("binary_data_size is {size}, but {have} bytes are left behind the JSON"))
            })?;
            *rest = behind;
            Elements::Binary(bytes)
        }
        (Some(_), Some(_)) => return Err(invalid(&"it has both \"data\" and \"binary_data_size\"")),
        (None, None) => {
            return Err(invalid(&"it has neither \"data\" nor the parameter \"binary_data_size\""));
        }
    };
    Ok(Input { name, datatype, shape, elements })
}

/// How an output is to be written, where others are in form `other`.
fn form(output: &RawOutput<'_>, other: Form) -> Result<Form, Error> {
    let Some(Object(parameters)) = &output.parameters else { return Ok(other) };
    let invalid = |what: &dyn std::fmt::Display| Error::Invalid(format!("output {}: {what}", Quoted(&output.name.0)));
    refuse_shared_memory(parameters).map_err(|e| invalid(&e))?;
    let is_binary = parameters.binary_data.unwrap_or(other == Form::Binary);
    Ok(match parameters.classification {
        Some(classes) if classes > 0 => Form::Classes { classes, is_binary },
        _ if is_binary => Form::Binary,
        _ => Form::Json,
    })
}

fn refuse_shared_memory(parameters: &RawTensorParameters) -> Result<(), &'static str> {
    match parameters.shared_memory_region {
        Some(_) => Err("shared memory is not served: send the data in the request"),
        None => Ok(()),
    }
}

/// Microseconds, as a number or as a string of digits. 0 means none, as for the protocol's other servers.
pub(in crate::server) fn timeout(value: Option<u64>) -> Result<Option<Duration>, Error> {
    let Some(micros) = value else {
        let message =
            "parameter 'timeout' must be a whole number of microseconds, as a number or as a string of digits";
        return Err(Error::Invalid(message.into()));
    };
    Ok((micros > 0).then(|| Duration::from_micros(micros)))
}

/// A level, as a number or as a string of digits. 0 means the default one, as for the protocol's other servers; the least
/// urgent level stands for all beyond it.
pub(in crate::server) fn priority(value: Option<u64>) -> Result<Priority, Error> {
    let level = value.ok_or_else(|| {
        let (highest, lowest) = (Priority::HIGHEST.level(), Priority::LOWEST.level());
        let default = Priority::DEFAULT.level();
        Error::Invalid(format!(
            "parameter 'priority' must be a whole number from {highest}, the most urgent, to {lowest}, \
             or 0 for the default, {default}; as a number or as a string of digits"
        ))
    })?;
    Ok(if level == 0 { Priority::DEFAULT } else { Priority::new(level).unwrap_or(Priority::LOWEST) })
}

/// A number in digits, with or without quotes.
fn whole_number(value: &RawValue) -> Option<u64> {
    let text = value.get();
    let digits = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text);
    let is_digits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| is_digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(body: &[u8]) -> Result<InferRequest, Error> {
        parse(body, None)?.read()
    }

    fn message(body: &str) -> String {
        match decode(body.as_bytes()) {
            Err(Error::Invalid(message)) => message,
            other => panic!("{body} gave {other:?}"),
        }
    }

    #[test]
    fn members_may_come_in_any_order_and_unknown_ones_are_ignored() {
        let body = r#"{"model_name":"m","outputs":[{"name":"y","parameters":{"binary_data":false}}],
            "inputs":[{"data":[[1],[2]],"parameters":{"a":[{}]},"datatype":"UINT8","shape":[2,1],"name":"x"}],
            "parameters":{"priority":1,"timeout":"1500","sequence_end":true},"id":"a\"b"}"#;
        let request = decode(body.as_bytes()).unwrap();
        assert_eq!(request.id.as_deref(), Some("a\"b"));
        assert_eq!(request.call.outputs, ["y"]);
        assert_eq!(request.call.timeout, Some(Duration::from_micros(1500)));
        let x = request.call.inputs.get("x").unwrap();
        assert_eq!((x.shape(), x.data()), (&[2, 1][..], &Data::Uint8(vec![1, 2])));
    }

    #[test]
    fn binary_elements_are_the_next_bytes_behind_the_json_in_the_order_of_the_inputs() {
        let json = br#"{"parameters":{"binary_data_output":true},"inputs":[
            {"name":"x","shape":[2],"datatype":"INT16","parameters":{"binary_data_size":4}},
            {"name":"y","shape":[1],"datatype":"INT8","data":[5]},
            {"name":"z","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":5}}],
            "outputs":[{"name":"p"},{"name":"q","parameters":{"binary_data":false,"classification":3}}]}"#;
        let body = [&json[..], &[1, 0, 2, 0], &[1, 0, 0, 0, b'a']].concat();
        let request = parse(&body, Some(json.len())).unwrap().read().unwrap();
        let data = |name| request.call.inputs.get(name).unwrap().data().clone();
        assert_eq!((data("x"), data("y")), (Data::Int16(vec![1, 2]), Data::Int8(vec![5])));
        assert_eq!(data("z"), Data::Bytes(vec![b"a".to_vec()]));
        let classes = Form::Classes { classes: 3, is_binary: false };
        assert_eq!(request.forms, Forms { named: vec![Form::Binary, classes], other: Form::Binary });
        for (cut, words) in [(1, "binary_data_size is 5, but 4 bytes are left"), (9, "binary_data_size is 4, but 0")] {
            let error = parse(&body[..body.len() - cut], Some(json.len())).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let longer = [&body[..], &[0]].concat();
        assert!(parse(&longer, Some(json.len())).unwrap_err().to_string().contains("1 bytes are left behind"));
        assert!(parse(&body, Some(body.len() + 1)).unwrap_err().to_string().contains("but the body has"));
        let both = br#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT8","data":[1],"parameters":{"binary_data_size":1}}]}"#;
        assert!(parse(both, None).unwrap_err().to_string().contains("it has both"));
        let shared =
            br#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT8","parameters":{"shared_memory_region":"a"}}]}"#;
        assert!(parse(shared, None).unwrap_err().to_string().contains("shared memory is not served"));
    }

    #[test]
    fn long_lists_set_apart_make_the_same_request_and_what_is_odd_is_left_to_the_other_way() {
        let of = |list: &str, datatype: &str, more: &str| {
            let input =
                |name: &str| format!(r#"{{"data":{list},"name":"{name}","shape":[3000,1],"datatype":"{datatype}"}}"#);
            format!(r#"{{"id":"ü","inputs":[{},{}]{more}}}"#, input("data"), input("y"))
        };
        let apart = |body: &str| parse_apart(&numbers::set_apart(body.as_bytes())?)?.read().ok();
        let list = |element: &str| format!("[{}]", vec![element; 3000].join(","));
        let more = r#","outputs":[{"name":"y"}],"parameters":{"timeout":7}"#;
        for element in ["0.1234567890123456789", "-7", "[3]"] {
            let body = of(&list(element), "FP32", more);
            assert_eq!(apart(&body).unwrap(), decode(body.as_bytes()).unwrap(), "{element}");
        }
        for (list, datatype, more) in [
            (list("1"), "INT32", ""),                              // read by its type
            (list("\"NaN\""), "FP32", ""),                         // no number
            (list("01"), "FP32", ""),                              // no JSON
            (list("1e99"), "FP32", ""),                            // out of range
            (list("1") + "[]", "FP32", ""),                        // no JSON behind the list
            (list("1"), "FP32", r#","parameters":{"data":[01]}"#), // no JSON in a list that is no input
            (list("1"), "FP32", r#","parameters":{"data":[1],}"#), // no JSON behind the lists
            (list("1,1"), "FP32", ""),                             // too many
        ] {
            let body = of(&list, datatype, more);
            assert_eq!(apart(&body), None, "{datatype} {more} {}", &list[..9]);
        }
    }

    #[test]
    fn python_s_names_for_what_is_no_number_are_read_and_texts_stay_as_they_are() {
        let json = br#"{"id":"NaN \" Infinity","inputs":[{"name":"x","shape":[3],"datatype":"FP32","data":[NaN,-Infinity, Infinity]},
            {"name":"y","shape":[1],"datatype":"INT8","parameters":{"binary_data_size":1}}]}"#;
        let body = [&json[..], b"N"].concat();
        assert!(parse(&body, Some(json.len())).is_err(), "it is no JSON");
        let named = |body: &[u8], json| Named::of(body, json, &Room::new(1 << 20)).unwrap();
        let Named { body, json, .. } = named(&body, Some(json.len())).unwrap();
        let request = parse(&body, json).unwrap().read().unwrap();
        assert_eq!(request.id.as_deref(), Some("NaN \" Infinity"));
        let Data::Fp32(x) = request.call.inputs.get("x").unwrap().data() else { panic!("floats") };
        assert!(x[0].is_nan() && x[1..] == [f32::NEG_INFINITY, f32::INFINITY], "{x:?}");
        assert_eq!(request.call.inputs.get("y").unwrap().data(), &Data::Int8(vec![78]));
        for sound in [&br#"{"a":"NaN"}"#[..], b"{}", b"\"\\", b"[1,2]"] {
            assert!(named(sound, None).is_none());
        }
    }

    #[test]
    fn lists_that_would_take_memory_without_end_are_refused_at_their_1025th_element() {
        let input = |shape: &str| format!(r#"{{"name":"x","shape":{shape},"datatype":"FP32","data":[1]}}"#);
        let list = |element: &str, count| format!("[{}]", vec![element; count].join(","));
        let body = |inputs: &str, outputs: &str| format!(r#"{{"inputs":{inputs},"outputs":{outputs}}}"#);
        let fits = body(&list(&input(&list("1", MOST)), 1), &list(r#"{"name":"y"}"#, MOST));
        assert_eq!(decode(fits.as_bytes()).unwrap().call.outputs.len(), MOST);
        for body in [
            body(&list(&input("[1]"), MOST + 1), "[]"),
            body(&list(&input("[1]"), 1), &list(r#"{"name":"y"}"#, MOST + 1)),
            body(&list(&input(&list("1", MOST + 1)), 1), "[]"),
        ] {
            let message = message(&body);
            assert!(message.contains("1024 inputs, outputs and dimensions of a shape at most"), "{message}");
        }
        // Nor are lists set apart for inputs that there will never be.
        assert!(numbers::set_apart(list(&input("[1]"), MOST + 1).as_bytes()).is_none());
    }

    #[test]
    fn null_stands_for_a_member_left_out() {
        let body = r#"{"id":null,"parameters":null,"outputs":null,
            "inputs":[{"name":"x","shape":[1],"datatype":"BOOL","data":[true]}]}"#;
        let request = decode(body.as_bytes()).unwrap();
        assert_eq!((request.id, request.call.outputs, request.call.timeout), (None, vec![], None));
    }

    #[test]
    fn a_timeout_is_microseconds_in_digits_and_zero_is_none() {
        let with = |timeout: &str| {
            let input = r#"[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]"#;
            decode(format!(r#"{{"parameters":{{"timeout":{timeout}}},"inputs":{input}}}"#).as_bytes())
                .map(|r| r.call.timeout)
        };
        assert_eq!(with("250"), Ok(Some(Duration::from_micros(250))));
        assert_eq!(with("\"250\""), Ok(Some(Duration::from_micros(250))));
        assert_eq!(with("0"), Ok(None));
        assert_eq!(with("null"), Ok(None));
        for bad in ["-1", "1.5", "\"\"", "\"1ms\"", "\"+1\"", "true", "[1]", "1e3", "99999999999999999999"] {
            assert!(with(bad).unwrap_err().to_string().contains("'timeout'"), "{bad}");
        }
    }

    #[test]
    fn a_priority_is_a_level_in_digits_and_zero_is_the_default() {
        let with = |priority: &str| {
            let input = r#"[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]"#;
            decode(format!(r#"{{"parameters":{{"priority":{priority}}},"inputs":{input}}}"#).as_bytes())
                .map(|r| r.call.priority)
        };
        assert_eq!((with("1"), with("\"10\"")), (Ok(Priority::HIGHEST), Ok(Priority::LOWEST)));
        assert_eq!((with("0"), with("null")), (Ok(Priority::DEFAULT), Ok(Priority::DEFAULT)));
        // Other servers have more levels, or any number.
        assert_eq!((with("11"), with("18446744073709551615")), (Ok(Priority::LOWEST), Ok(Priority::LOWEST)));
        for bad in ["-1", "1.5", "\"\"", "\"high\"", "true", "[1]", "99999999999999999999"] {
            let message = with(bad).unwrap_err().to_string();
            assert!(message.contains("'priority' must be a whole number from 1, the most urgent, to 10"), "{bad}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let input = |rest: &str| format!(r#"{{"inputs":[{{"name":"x",{rest}}}]}}"#);
        for (body, words) in [
            (String::new(), "not an infer request"),
            ("[]".into(), "not an infer request"),
            ("{}".into(), "missing field `inputs`"),
            (r#"{"inputs":[]}"#.into(), "at least one input"),
            (input(r#""shape":[1],"datatype":"FP32""#), "neither \"data\" nor the parameter \"binary_data_size\""),
            (input(r#""shape":[1],"datatype":"FP31","data":[1]"#), "input 'x': unknown datatype 'FP31'"),
            (input(r#""shape":[-1],"datatype":"FP32","data":[1]"#), "negative dimension"),
            (input(r#""shape":[2],"datatype":"FP32","data":[1]"#), "has 2 elements, but the data has 1"),
            (input(r#""shape":[],"datatype":"FP32","data":[1,2]"#), "has 1 elements, but the data has 2"),
            (input(r#""shape":[4294967296,4294967296],"datatype":"FP32","data":[1]"#), "can be addressed"),
            (input(r#""shape":[9223372036854775807],"datatype":"FP32","data":[1]"#), "can be addressed"),
            (input(r#""shape":[1],"datatype":"FP32","data":[NaN]"#), "not an infer request"),
            (input(r#""shape":[1],"datatype":"FP32","data":[1],"name":"y""#), "duplicate field"),
        ] {
            let message = message(&body);
            assert!(message.contains(words), "{body} gave {message}");
            assert!(!message.contains("struct"), "{message}");
        }
        let long = "C".repeat(5000);
        let text = message(&format!(
            r#"{{"inputs":[{{"name":"x","shape":[1],"datatype":"FP32","parameters":{{"binary_data":"{long}"}}}}]}}"#
        ));
        assert!(text.contains("CCC…") && text.len() < 200, "{text}");
        assert_eq!(decode(b"\xff").unwrap_err(), Error::Invalid("the body is not UTF-8".into()));
    }
}
