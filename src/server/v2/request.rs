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
use crate::server::call::{Call, MOST};
use crate::server::room::UNCOUNTED;
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
        let _taken = room.reserve_much(all)?;
        let mut body = Vec::with_capacity(all);
        quote_names(text, |piece| body.extend_from_slice(piece));
        body.extend_from_slice(rest);
        Ok(Some(Named { body, json: json.map(|_| length), _taken }))
    }
}

impl Unread<'_> {
    /// Whether all names of what is no number are among the elements of floats in what was read of a body with quotes around them, which
    /// was `text` before. Elsewhere they would be texts.
    pub(super) fn has_names_in_floats_only(&self, text: &[u8], quoted: &[u8]) -> bool {
        let floats = |input: &&Input<'_>| {
            matches!(input.datatype, DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64)
        };
        let place = |json: &RawValue| {
            let begin = json.get().as_ptr().addr().wrapping_sub(quoted.as_ptr().addr());
            begin..begin + json.get().len()
        };
        let json = |input: &Input<'_>| if let Elements::Json(json) = input.elements { Some(place(json)) } else { None };
        let data: Vec<_> = self.inputs.iter().filter(floats).filter_map(json).collect();
        let (mut at, mut pieces, mut is_so) = (0, 0, true);
        quote_names(text, |piece| {
            // The first of three is the quote before a name, or nothing.
            let is_name = pieces % 3 == 0 && !piece.is_empty();
            // In the order of their places.
            let next = data.partition_point(|range| range.end <= at);
            is_so &= !is_name || data.get(next).is_some_and(|range| range.contains(&at));
            at += piece.len();
            pieces += 1;
        });
        is_so
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
mod tests;
