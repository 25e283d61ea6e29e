//! The body of a `:predict` request: `instances`, row by row, or `inputs`, tensor by tensor.
//!
//! Neither says a type or a shape: the model's signature has the types, and how the lists are nested is the shape. Elements are
//! read last, when it is known that the model takes tensors of those shapes and that there is room for them.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::SIGNATURE;
use crate::error::Error;
use crate::quote::{Quoted, of_parser};
use crate::registry::Priority;
use crate::runner::{Announced, Rows, Signature, SignatureError, TensorSpec};
use crate::server::call::Call;
use crate::server::room::UNCOUNTED;
use crate::server::v2::data;
use crate::server::v2::object::Object;
use crate::server::v2::request::RawParameters;
use crate::server::v2::text::{Text, refuse_long};
use crate::tensor::{DataType, Tensor, Tensors};

/// Deepest that lists may be nested: no model has so many dimensions.
const DEEPEST: usize = 32;

/// How a request is written, and then its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Row by row: `instances`, so many of them, answered by `predictions`.
    Rows(usize),
    /// Tensor by tensor: `inputs`, answered by `outputs`.
    Columns,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with \"instances\" or \"inputs\"")]
struct RawRequest<'a> {
    #[serde(borrow, default)]
    signature_name: Option<Text<'a>>,
    #[serde(borrow, default)]
    instances: Option<&'a RawValue>,
    #[serde(borrow, default)]
    inputs: Option<&'a RawValue>,
    /// Not of this protocol, but of v2, and as there.
    #[serde(borrow, default)]
    parameters: Option<Object<RawParameters<'a>>>,
}

/// A request whose elements are not read yet.
#[derive(Debug)]
pub(super) struct Unread<'a> {
    inputs: Vec<Input<'a>>,
    form: Form,
    timeout: Option<Duration>,
    priority: Priority,
}

/// One input: JSON of lists of this shape.
#[derive(Debug)]
struct Input<'a> {
    name: Arc<str>,
    datatype: DataType,
    /// As the lists are nested.
    written: Vec<usize>,
    /// The same with the rows along the model's own axis.
    shape: Vec<usize>,
    /// That axis, where it is not the first.
    rows: Option<usize>,
    text: Cow<'a, str>,
}

fn invalid(message: impl Into<String>) -> Error {
    Error::Invalid(message.into())
}

/// Reads a body but for the elements of its tensors. Members that nobody defines are ignored.
pub(super) fn parse<'a>(body: &'a [u8], signature: &Signature) -> Result<Unread<'a>, Error> {
    let text = std::str::from_utf8(body).map_err(|_| invalid("the body is not UTF-8"))?;
    let wrong = |why: &dyn fmt::Display| invalid(format!("the body is not a predict request: {why}"));
    if text.trim_start().starts_with('[') {
        // Serde would take the members in their order.
        return Err(wrong(&"it must be an object"));
    }
    if text.len() >= UNCOUNTED {
        refuse_long(text, &["instances", "inputs"])?;
    }
    let raw: RawRequest<'_> = serde_json::from_str(text).map_err(|e| wrong(&of_parser(&e)))?;
    let signature_name = raw.signature_name.as_ref().map(|Text(name)| &**name);
    if let Some(name) = signature_name.filter(|name| !name.is_empty() && *name != SIGNATURE) {
        let message =
            format!("Serving signature name: {} not found in signature def; it is \"{SIGNATURE}\"", Quoted(name));
        return Err(invalid(message));
    }
    let (timeout, priority) = raw.parameters.unwrap_or_default().0.terms()?;
    let (inputs, form) = match (raw.instances, raw.inputs) {
        (Some(instances), None) => rows(instances.get(), signature)?,
        (None, Some(inputs)) => (columns(inputs.get(), signature)?, Form::Columns),
        (Some(_), Some(_)) => return Err(invalid("a request has either \"instances\" or \"inputs\", not both")),
        (None, None) => return Err(invalid("a request needs \"instances\" (rows) or \"inputs\" (tensors)")),
    };
    Ok(Unread { inputs, form, timeout, priority })
}

/// Row by row: each is the value of the only input, or an object with a value for each input.
fn rows<'a>(text: &'a str, signature: &Signature) -> Result<(Vec<Input<'a>>, Form), Error> {
    let first = text.strip_prefix('[').ok_or_else(|| invalid("\"instances\" must be a list of rows"))?;
    let texts = if is_named(first.trim_start(), signature) {
        let mut joined = Joined { signature, texts: vec!["[".to_owned(); signature.inputs.len()], rows: 0 };
        let mut reader = serde_json::Deserializer::from_str(text);
        Rowwise(&mut joined).deserialize(&mut reader).map_err(|e| invalid(format!("\"instances\": {e}")))?;
        joined.texts.into_iter().map(|text| Cow::Owned(text + "]")).collect()
    } else {
        only_input(signature, "each row")?;
        vec![Cow::Borrowed(text)]
    };
    let input = |(spec, text): (&TensorSpec, Cow<'a, str>)| {
        let axis = if let Rows::Axis(axis) = spec.rows { axis } else { 0 };
        input(spec, text, axis)
    };
    let inputs = signature.inputs.iter().zip(texts).map(input).collect::<Result<Vec<_>, _>>()?;
    match inputs.first().and_then(|input| input.written.first()) {
        Some(&rows) if rows > 0 => Ok((inputs, Form::Rows(rows))),
        _ => Err(invalid(SignatureError::Empty.to_string())),
    }
}

/// Tensor by tensor: the value of the only input, or an object with one for each.
fn columns<'a>(text: &'a str, signature: &Signature) -> Result<Vec<Input<'a>>, Error> {
    if !is_named(text, signature) {
        let spec = only_input(signature, "\"inputs\"")?;
        return Ok(vec![input(spec, Cow::Borrowed(text), 0)?]);
    }
    let mut found = vec![None; signature.inputs.len()];
    let mut reader = serde_json::Deserializer::from_str(text);
    let take = |at: usize, value: &'a RawValue| found[at] = Some(value.get());
    Named { signature, take }.deserialize(&mut reader).map_err(|e| invalid(format!("\"inputs\": {e}")))?;
    let given = |(spec, text): (&TensorSpec, Option<&'a str>)| {
        let text = text.ok_or_else(|| invalid(SignatureError::Missing(spec.name.to_string()).to_string()))?;
        input(spec, Cow::Borrowed(text), 0)
    };
    signature.inputs.iter().zip(found).map(given).collect()
}

/// Whether a value is an object with inputs by name. `{"b64": …}` is a byte string, unless an input is called so.
fn is_named(value: &str, signature: &Signature) -> bool {
    let Some(inside) = value.strip_prefix('{') else { return false };
    !inside.trim_start().starts_with("\"b64\"") || signature.inputs.iter().any(|spec| *spec.name == *"b64")
}

fn only_input<'s>(signature: &'s Signature, what: &str) -> Result<&'s TensorSpec, Error> {
    match &signature.inputs[..] {
        [only] => Ok(only),
        several => {
            let names: Vec<_> = several.iter().map(|spec| format!("'{}'", spec.name)).collect();
            Err(invalid(format!("{what} must be an object with the inputs by name: {}", names.join(", "))))
        }
    }
}

/// An input of which `text` is the value, with its rows in front; the model has them along `axis`.
fn input<'a>(spec: &TensorSpec, text: Cow<'a, str>, axis: usize) -> Result<Input<'a>, Error> {
    let named = |why: String| invalid(format!("input '{}': {why}", spec.name));
    let written = shape(&text).map_err(named)?;
    let mut shape = written.clone();
    if axis > 0 && axis < shape.len() {
        let rows = shape.remove(0);
        shape.insert(axis, rows);
    }
    let rows = Some(axis).filter(|&axis| axis > 0);
    Ok(Input { name: Arc::clone(&spec.name), datatype: spec.datatype, written, shape, rows, text })
}

/// How lists are nested, by the first list of each depth. `text` is one well-formed value.
fn shape(text: &str) -> Result<Vec<usize>, String> {
    let text = text.as_bytes();
    // Items of each open list, and of the first list of each depth that is closed.
    let (mut open, mut closed): (Vec<usize>, Vec<Option<usize>>) = (Vec::new(), Vec::new());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match byte {
            b',' | b' ' | b'\n' | b'\r' | b'\t' => at += 1,
            b'[' => {
                if open.len() == DEEPEST {
                    return Err(format!("lists are nested deeper than {DEEPEST}"));
                }
                open.last_mut().into_iter().for_each(|items| *items += 1);
                open.push(0);
                if open.len() > closed.len() {
                    closed.push(None);
                }
                at += 1;
            }
            b']' => {
                let items = open.pop().unwrap_or(0);
                closed[open.len()].get_or_insert(items);
                at += 1;
            }
            _ => {
                open.last_mut().into_iter().for_each(|items| *items += 1);
                at += data::element_len(&text[at..]);
            }
        }
    }
    Ok(closed.into_iter().map(Option::unwrap_or_default).collect())
}

/// A list of rows, each an object, whose values are joined to a list for each input.
struct Rowwise<'j, 's>(&'j mut Joined<'s>);

struct Joined<'s> {
    signature: &'s Signature,
    texts: Vec<String>,
    rows: usize,
}

impl<'de> DeserializeSeed<'de> for Rowwise<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Rowwise<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of rows")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<(), A::Error> {
        let Joined { signature, texts, rows: count } = self.0;
        loop {
            let is_first = *count == 0;
            let mut left = signature.inputs.len();
            let take = |at: usize, value: &'de RawValue| {
                let text: &mut String = &mut texts[at];
                if !is_first {
                    text.push(',');
                }
                text.push_str(value.get());
                left -= 1;
            };
            if rows.next_element_seed(Named { signature, take })?.is_none() {
                return Ok(());
            }
            if left > 0 {
                let row = *count;
                return Err(A::Error::custom(format!("row {row} has no value for {left} of the model's inputs")));
            }
            *count += 1;
        }
    }
}

/// An object of inputs by name; each value is handed on with its place in the signature, and none comes twice.
struct Named<'s, F> {
    signature: &'s Signature,
    take: F,
}

impl<'de, F: FnMut(usize, &'de RawValue)> DeserializeSeed<'de> for Named<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        // `deserialize_map` would repeat a text that stands here in its error, all of it.
        from.deserialize_any(self)
    }
}

impl<'de, F: FnMut(usize, &'de RawValue)> Visitor<'de> for Named<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the inputs by name")
    }

    /// An element may be a text of any length, so it is not repeated where it stands instead of a row.
    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
        Err(E::custom("invalid type: string, expected an object with the inputs by name"))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        let specs = &self.signature.inputs;
        let mut is_given = vec![false; specs.len()];
        while let Some(Text(name)) = members.next_key::<Text<'de>>()? {
            let Some(at) = specs.iter().position(|spec| *spec.name == *name) else {
                let expected = specs.iter().map(|spec| format!("'{}'", spec.name)).collect::<Vec<_>>().join(", ");
                let name = name.into_owned();
                return Err(A::Error::custom(SignatureError::Unknown { name, expected }));
            };
            if std::mem::replace(&mut is_given[at], true) {
                return Err(A::Error::custom(SignatureError::Twice(name.into_owned())));
            }
            (self.take)(at, members.next_value()?);
        }
        Ok(())
    }
}

impl Unread<'_> {
    /// Says whether the model takes tensors of these names and shapes, and how many bytes of memory they will take.
    pub(super) fn admit(&self, signature: &Signature) -> Result<usize, Error> {
        let announced: Vec<_> = self
            .inputs
            .iter()
            .map(|Input { name, datatype, shape, .. }| Announced { name, datatype: *datatype, shape })
            .collect();
        let bytes = signature.admit(&announced).map_err(|e| invalid(e.to_string()))?;
        // What byte strings hold is no more than what they are read from.
        let strings = self.inputs.iter().filter(|input| input.datatype == DataType::Bytes);
        Ok(strings.map(|input| input.text.len()).fold(bytes, usize::saturating_add))
    }

    /// Reads the elements.
    pub(super) fn read(self) -> Result<(Call, Form), Error> {
        let Unread { inputs, form, timeout, priority } = self;
        let entries = inputs.into_iter().map(|input| Ok((Arc::clone(&input.name), input.read()?)));
        let inputs = Tensors::new(entries.collect::<Result<_, Error>>()?).map_err(|e| invalid(e.to_string()))?;
        Ok((Call { inputs, outputs: Vec::new(), timeout, priority }, form))
    }
}

impl Input<'_> {
    fn read(self) -> Result<Tensor, Error> {
        let Input { name, datatype, written, rows, text, .. } = self;
        let invalid = |what: &dyn fmt::Display| invalid(format!("input '{name}': {what}"));
        // A lone value is a list of one to whoever reads lists.
        let text = if written.is_empty() { Cow::Owned(format!("[{text}]")) } else { text };
        let data = match datatype {
            DataType::Bytes => data::read_strings_or_base64(&text, &written),
            _ => data::read(&text, datatype, &written),
        };
        let tensor = Tensor::new(written, data.map_err(|e| invalid(&e))?).map_err(|e| invalid(&e))?;
        Ok(match rows {
            Some(axis) => tensor.front_to_axis(axis),
            None => tensor,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Data;

    #[test]
    fn how_lists_are_nested_is_the_shape() {
        for (text, expected) in [
            ("1", &[][..]),
            ("\"[1,2]\"", &[]),
            ("[]", &[0]),
            ("[1, 2 ,3]", &[3]),
            ("[[1,2],[3,4],[5,6]]", &[3, 2]),
            (" [ [ \"a]\" ] , [ {\"b64\":\"YQ==\", \"x\":[1]} ] ] ", &[2, 1]),
            ("[[],[]]", &[2, 0]),
            ("[[[1],[2]]]", &[1, 2, 1]),
        ] {
            assert_eq!(shape(text).as_deref(), Ok(expected), "{text}");
        }
        assert!(shape(&"[".repeat(DEEPEST + 1)).is_err());
    }

    #[test]
    fn rows_go_along_the_axis_on_which_the_model_has_them() {
        let spec = |name: &str, dims, rows| TensorSpec { rows, ..TensorSpec::new(name, DataType::Int32, dims) };
        let signature = Signature {
            inputs: vec![spec("state", vec![Some(2)], Rows::Axis(1)), spec("rate", vec![], Rows::Shared)],
            outputs: vec![],
        };
        let body = br#"{"instances":[{"rate":8,"state":[1,2]},{"state":[3,4],"rate":8},{"state":[5,6],"rate":8}]}"#;
        let unread = parse(body, &signature).unwrap();
        assert_eq!(unread.admit(&signature), Ok(9 * 4));
        let (call, form) = unread.read().unwrap();
        assert_eq!(form, Form::Rows(3));
        let state = call.inputs.get("state").unwrap();
        assert_eq!((state.shape(), state.data()), (&[2, 3][..], &Data::Int32(vec![1, 3, 5, 2, 4, 6])));
        assert_eq!(call.inputs.get("rate").unwrap().data(), &Data::Int32(vec![8; 3]));
        // Tensor by tensor, they are in the model's own shapes.
        let body = br#"{"inputs":{"state":[[1,3,5],[2,4,6]],"rate":8}}"#;
        let (call, _) = parse(body, &signature).unwrap().read().unwrap();
        assert_eq!(call.inputs.get("state").unwrap(), state);
        assert_eq!(call.inputs.get("rate").unwrap().shape(), &[] as &[usize]);
    }
}
