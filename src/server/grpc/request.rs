//! A `ModelInferRequest`: read without its elements first, and with them when the model is known to take them.

use std::sync::Arc;
use std::time::Duration;

use super::contents;
use super::wire::{Fields, Malformed, Value, varint};
use crate::error::Error;
use crate::quote::{Dims, Quoted};
use crate::raw;
use crate::registry::Priority;
use crate::runner::{Announced, Signature};
use crate::server::body::LONG_CONVERSION;
use crate::server::call::{Call, MOST};
use crate::server::v2::COPIED;
use crate::server::v2::request::{Forms, priority, timeout};
use crate::server::v2::response::Form;
use crate::server::v2::text;
use crate::tensor::{DataType, Tensor, Tensors};

/// A request but for the elements of its tensors.
#[derive(Debug, Default)]
pub(super) struct Unread<'a> {
    /// The model that is asked.
    pub(super) model: &'a str,
    /// Its version; empty for the highest.
    pub(super) version: &'a str,
    /// What the client calls its request.
    pub(super) id: &'a str,
    /// Whether the last answer to it in a stream is to say that it is.
    pub(super) wants_final: bool,
    timeout: Option<Duration>,
    priority: Priority,
    inputs: Vec<Input<'a>>,
    outputs: Vec<String>,
    forms: Vec<Form>,
    raw: Vec<&'a [u8]>,
}

/// What is asked for.
pub(super) struct InferRequest {
    /// What is asked of the model.
    pub(super) call: Call,
    /// How outputs are wanted: raw, or as contents where the inputs were.
    pub(super) forms: Forms,
    /// Whether outputs are wanted as contents.
    pub(super) as_contents: bool,
}

#[derive(Debug, Default)]
struct Input<'a> {
    name: &'a str,
    datatype: &'a str,
    shape: Vec<i64>,
    contents: Option<&'a [u8]>,
}

/// A parameter's value: the message `InferParameter`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Parameter<'a> {
    Bool(bool),
    Whole(Option<u64>),
    Text(&'a str),
    None,
}

impl Parameter<'_> {
    /// A whole number, as one or in digits.
    fn whole(self) -> Option<u64> {
        match self {
            Parameter::Whole(n) => n,
            Parameter::Text(text) if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
            _ => None,
        }
    }
}

fn invalid(error: Malformed) -> Error {
    Error::Invalid(error.to_string())
}

fn too_many(what: &str) -> Error {
    Error::Invalid(format!("a request has {MOST} {what} at most"))
}

/// Whether a message takes long to read. To say so takes no long time of any.
pub(super) fn is_long(message: &[u8]) -> bool {
    if message.len() < LONG_CONVERSION {
        return false;
    }
    let (mut raw, mut has_strings, mut fields) = (0, false, Fields(message));
    while let Some(Ok(field)) = fields.next() {
        if let (7, Value::Bytes(elements)) = field {
            raw += elements.len();
        }
        let others = message.len() - fields.0.len() - raw;
        if others + raw / if has_strings { 1 } else { COPIED } >= LONG_CONVERSION {
            return true;
        }
        // It has been counted, so it is short.
        if let (5, Value::Bytes(input)) = field {
            has_strings |= Fields(input).any(|field| field == Ok((2, Value::Bytes(DataType::Bytes.name().as_bytes()))));
        }
    }
    has_strings && raw >= LONG_CONVERSION
}

/// Reads a message but for the elements of its tensors. Unknown fields and parameters are ignored.
pub(super) fn parse(message: &[u8]) -> Result<Unread<'_>, Error> {
    let (mut unread, mut parameters) = (Unread::default(), 0);
    for field in Fields(message) {
        let (number, value) = field.map_err(invalid)?;
        match number {
            1 => unread.model = bounded(value)?,
            2 => unread.version = bounded(value)?,
            3 => {
                unread.id = value.text().map_err(invalid)?;
                text::check(unread.id).map_err(Error::Invalid)?;
            }
            4 => {
                let (name, parameter) = parameter(value, &mut parameters)?;
                match name {
                    "timeout" => unread.timeout = timeout(parameter.whole())?,
                    "priority" => unread.priority = priority(parameter.whole())?,
                    "triton_enable_empty_final_response" => unread.wants_final = parameter == Parameter::Bool(true),
                    _ => {}
                }
            }
            5 if unread.inputs.len() == MOST => return Err(too_many("inputs")),
            5 => unread.inputs.push(input(value.bytes().map_err(invalid)?, &mut parameters)?),
            6 if unread.outputs.len() == MOST => return Err(too_many("outputs")),
            6 => {
                let (name, form) = output(value.bytes().map_err(invalid)?, &mut parameters)?;
                text::check(name).map_err(Error::Invalid)?;
                unread.outputs.push(name.to_owned());
                unread.forms.push(form);
            }
            7 if unread.raw.len() == MOST => return Err(too_many("raw_input_contents")),
            7 => unread.raw.push(value.bytes().map_err(invalid)?),
            _ => {}
        }
    }
    Ok(unread)
}

/// A text of which no other use is made than to look at it.
fn bounded(value: Value<'_>) -> Result<&str, Error> {
    let text = value.text().map_err(invalid)?;
    text::check_elsewhere(text).map(|()| text)
}

/// An entry of a map of parameters, of which there were so many before.
fn parameter<'a>(entry: Value<'a>, before: &mut usize) -> Result<(&'a str, Parameter<'a>), Error> {
    if *before == MOST {
        return Err(too_many("parameters"));
    }
    *before += 1;
    let (mut name, mut found) = ("", Parameter::None);
    for field in Fields(entry.bytes().map_err(invalid)?) {
        match field.map_err(invalid)? {
            (1, value) => name = bounded(value)?,
            (2, value) => {
                for choice in Fields(value.bytes().map_err(invalid)?) {
                    found = match choice.map_err(invalid)? {
                        (1, Value::Varint(n)) => Parameter::Bool(n != 0),
                        (2, Value::Varint(n)) => Parameter::Whole(u64::try_from(n as i64).ok()),
                        (3, value) => Parameter::Text(bounded(value)?),
                        (5, Value::Varint(n)) => Parameter::Whole(Some(n)),
                        _ => Parameter::None,
                    };
                }
            }
            _ => {}
        }
    }
    Ok((name, found))
}

fn refuse_shared_memory(parameter: &str) -> Result<(), &'static str> {
    if parameter == "shared_memory_region" {
        return Err("shared memory is not served: send the data in the request");
    }
    Ok(())
}

fn input<'a>(message: &'a [u8], parameters: &mut usize) -> Result<Input<'a>, Error> {
    let mut found = Input::default();
    let (mut malformed, mut wrong) = (Ok(()), None);
    for field in Fields(message) {
        let (number, value) = field.map_err(invalid)?;
        match (number, value) {
            (1, value) => found.name = bounded(value)?,
            (2, value) => found.datatype = bounded(value)?,
            (3, Value::Varint(n)) => found.shape.push(n as i64),
            (3, Value::Bytes(mut packed)) => {
                while !packed.is_empty() && found.shape.len() <= MOST && malformed.is_ok() {
                    malformed = varint(&mut packed).map(|n| found.shape.push(n as i64));
                }
            }
            (4, value) => {
                let (name, _) = parameter(value, parameters)?;
                wrong = wrong.or(refuse_shared_memory(name).err());
            }
            (5, value) if found.contents.is_none() => found.contents = Some(value.bytes().map_err(invalid)?),
            (5, _) => wrong = Some("it has contents twice"),
            _ => {}
        }
        if found.shape.len() > MOST {
            return Err(too_many("dimensions"));
        }
    }
    malformed.map_err(invalid)?;
    match wrong {
        Some(what) => Err(Error::Invalid(format!("input {}: {what}", Quoted(found.name)))),
        None => Ok(found),
    }
}

fn output<'a>(message: &'a [u8], parameters: &mut usize) -> Result<(&'a str, Form), Error> {
    let (mut output, mut form, mut wrong) = ("", Form::Binary, None);
    for field in Fields(message) {
        match field.map_err(invalid)? {
            (1, value) => output = value.text().map_err(invalid)?,
            (2, value) => {
                let (name, parameter) = parameter(value, parameters)?;
                wrong = wrong.or(refuse_shared_memory(name).err());
                if name == "classification" {
                    match parameter.whole().and_then(|n| usize::try_from(n).ok()) {
                        Some(0) => {}
                        Some(classes) => form = Form::Classes { classes, is_binary: true },
                        None => wrong = Some("parameter 'classification' must be a whole number of classes"),
                    }
                }
            }
            _ => {}
        }
    }
    match wrong {
        Some(what) => Err(Error::Invalid(format!("output {}: {what}", Quoted(output)))),
        None => Ok((output, form)),
    }
}

/// Where the elements of an input are.
enum Elements<'a> {
    Raw(&'a [u8]),
    Contents(&'a [u8]),
}

/// A request for which its model has room, and whose elements are not read yet.
pub(super) struct Admitted<'a> {
    inputs: Vec<(&'a str, DataType, Vec<usize>, Elements<'a>)>,
    outputs: Vec<String>,
    timeout: Option<Duration>,
    priority: Priority,
    forms: Forms,
    as_contents: bool,
    /// Bytes of memory that its tensors take.
    pub(super) takes: usize,
}

impl<'a> Unread<'a> {
    /// Says whether the model takes tensors of these names, types and shapes.
    pub(super) fn admit(self, signature: &Signature) -> Result<Admitted<'a>, Error> {
        let Unread { timeout, priority, inputs, outputs, forms, raw, .. } = self;
        if inputs.is_empty() {
            return Err(Error::Invalid("a request needs at least one input".into()));
        }
        if !raw.is_empty() && raw.len() != inputs.len() {
            let (raw, inputs) = (raw.len(), inputs.len());
            return Err(Error::Invalid(format!("there are {raw} raw_input_contents for {inputs} inputs")));
        }
        let as_contents = raw.is_empty();
        let mut raw = raw.into_iter();
        let inputs = inputs.into_iter().map(|input| input.with(raw.next())).collect::<Result<Vec<_>, _>>()?;
        let announced: Vec<_> =
            inputs.iter().map(|(name, datatype, shape, _)| Announced { name, datatype: *datatype, shape }).collect();
        let takes = signature.admit(&announced).map_err(|e| Error::Invalid(e.to_string()))?;
        let strings = inputs.iter().filter(|(_, datatype, ..)| *datatype == DataType::Bytes);
        let takes = strings.map(|(.., elements)| elements.len()).fold(takes, usize::saturating_add);
        let forms = Forms { named: forms, other: Form::Binary };
        Ok(Admitted { inputs, outputs, timeout, priority, forms, as_contents, takes })
    }
}

impl Elements<'_> {
    fn len(&self) -> usize {
        match self {
            Elements::Raw(bytes) | Elements::Contents(bytes) => bytes.len(),
        }
    }
}

impl<'a> Input<'a> {
    fn with(self, raw: Option<&'a [u8]>) -> Result<(&'a str, DataType, Vec<usize>, Elements<'a>), Error> {
        let Input { name, datatype, shape, contents } = self;
        let invalid = |what: &dyn std::fmt::Display| Error::Invalid(format!("input {}: {what}", Quoted(name)));
        let datatype = DataType::from_name(datatype).ok_or_else(|| {
            let known: Vec<_> = DataType::ALL.iter().map(|d| d.name()).collect();
            invalid(&format_args!("unknown datatype {}; the protocol has {}", Quoted(datatype), known.join(", ")))
        })?;
        let negative = || invalid(&format_args!("shape {} has a negative dimension", Dims(&shape)));
        let shape = shape.iter().map(|&n| usize::try_from(n).map_err(|_| negative())).collect::<Result<_, _>>()?;
        let elements = match (raw, contents) {
            (Some(raw), None) => Elements::Raw(raw),
            (None, contents) => Elements::Contents(contents.unwrap_or_default()),
            (Some(_), Some(_)) => return Err(invalid(&"it has both contents and raw_input_contents")),
        };
        Ok((name, datatype, shape, elements))
    }
}

impl Admitted<'_> {
    /// Reads the elements.
    pub(super) fn read(self) -> Result<InferRequest, Error> {
        let Admitted { inputs, outputs, timeout, priority, forms, as_contents, .. } = self;
        let inputs = inputs.into_iter().map(|(name, datatype, shape, elements)| {
            let invalid = |what: &dyn std::fmt::Display| Error::Invalid(format!("input {}: {what}", Quoted(name)));
            let data = match elements {
                Elements::Raw(bytes) => raw::read(bytes, datatype, &shape).map_err(|e| invalid(&e))?,
                Elements::Contents(message) => contents::read(message, datatype, &shape).map_err(|e| invalid(&e))?,
            };
            Ok((Arc::from(name), Tensor::new(shape, data).map_err(|e| invalid(&e))?))
        });
        let inputs = inputs.collect::<Result<_, Error>>()?;
        let inputs = Tensors::new(inputs).map_err(|e| Error::Invalid(e.to_string()))?;
        Ok(InferRequest { call: Call { inputs, outputs, timeout, priority }, forms, as_contents })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::super::proto::inference::ModelInferRequest;
    use super::super::proto::inference::infer_parameter::ParameterChoice;
    use super::super::proto::inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
    use super::super::proto::inference::{InferParameter, InferTensorContents};
    use super::*;
    use crate::runner::TensorSpec;
    use crate::tensor::Data;

    fn parameter(choice: ParameterChoice) -> InferParameter {
        InferParameter { parameter_choice: Some(choice) }
    }

    /// A request of rows of two numbers and a text each, raw or as contents.
    fn request(rows: usize, is_raw: bool, numbers: &[f32], texts: &[Vec<u8>]) -> ModelInferRequest {
        let input = |name: &str, datatype: &str, width: i64, contents: InferTensorContents| InferInputTensor {
            name: name.into(),
            datatype: datatype.into(),
            shape: vec![rows as i64, width],
            contents: (!is_raw).then_some(contents),
            ..Default::default()
        };
        let texts_contents = texts.iter().map(|text| text.clone().into()).collect();
        let mut raw = [Vec::new(), Vec::new()];
        raw::write(&Data::Fp32(numbers.to_vec()), &mut raw[0]);
        raw::write(&Data::Bytes(texts.to_vec()), &mut raw[1]);
        let classes = parameter(ParameterChoice::Int64Param(2));
        ModelInferRequest {
            model_name: "m".into(),
            id: "seven".into(),
            parameters: [("timeout".to_owned(), parameter(ParameterChoice::StringParam("1500".into())))].into(),
            inputs: vec![
                input("x", "FP32", 2, InferTensorContents { fp32_contents: numbers.to_vec(), ..Default::default() }),
                input("t", "BYTES", 1, InferTensorContents { bytes_contents: texts_contents, ..Default::default() }),
            ],
            outputs: vec![InferRequestedOutputTensor {
                name: "y".into(),
                parameters: [("classification".to_owned(), classes)].into(),
            }],
            raw_input_contents: if is_raw { raw.map(Into::into).to_vec() } else { Vec::new() },
            ..Default::default()
        }
    }

    fn signature() -> Signature {
        let x = TensorSpec::new("x", DataType::Fp32, vec![Some(2)]);
        let t = TensorSpec::new("t", DataType::Bytes, vec![Some(1)]);
        Signature { inputs: vec![x, t], outputs: Vec::new() }
    }

    prop_compose! {
        fn any_request()(rows in 1usize..5, is_raw in any::<bool>())(
            numbers in proptest::collection::vec(any::<f32>().prop_filter("a number", |x| !x.is_nan()), rows * 2),
            texts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), rows),
            rows in Just(rows),
            is_raw in Just(is_raw),
        ) -> (ModelInferRequest, Vec<f32>, Vec<Vec<u8>>, bool) {
            (request(rows, is_raw, &numbers, &texts), numbers, texts, is_raw)
        }
    }

    proptest! {
        #[test]
        fn what_a_client_writes_is_read((request, numbers, texts, is_raw) in any_request()) {
            let message = request.encode_to_vec();
            let unread = parse(&message).unwrap();
            prop_assert_eq!((unread.model, unread.version, unread.id), ("m", "", "seven"));
            let InferRequest { call, forms, as_contents } = unread.admit(&signature()).unwrap().read().unwrap();
            let inputs: Vec<_> = call.inputs.iter().map(|(name, tensor)| (&**name, tensor.data().clone())).collect();
            prop_assert_eq!(inputs, vec![("x", Data::Fp32(numbers)), ("t", Data::Bytes(texts))]);
            prop_assert_eq!(forms.named, vec![Form::Classes { classes: 2, is_binary: true }]);
            prop_assert_eq!((call.timeout, as_contents), (Some(Duration::from_micros(1500)), !is_raw));
        }

        #[test]
        fn a_damaged_message_is_read_or_refused_and_never_breaks_the_reader(
            (request, ..) in any_request(),
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut message = request.encode_to_vec();
            for (at, byte) in damage {
                let at = at.index(message.len());
                message[at] = byte;
            }
            let read = parse(&message).and_then(|unread| unread.admit(&signature())).and_then(Admitted::read);
            if let Ok(found) = read {
                let rows = found.call.inputs.rows();
                prop_assert!(found.call.inputs.iter().all(|(_, tensor)| tensor.rows() == rows));
            }
        }
    }

    #[test]
    fn a_text_that_is_no_element_is_bounded_wherever_it_stands() {
        let long = "a".repeat(64 * 1024 + 1);
        let with = |name: &str, text: &str| {
            [(name.to_owned(), parameter(ParameterChoice::StringParam(text.to_owned())))].into()
        };
        let of_input = InferInputTensor { parameters: with("a", &long), ..Default::default() };
        let of_output = InferRequestedOutputTensor { parameters: with(&long, "a"), ..Default::default() };
        let named = InferInputTensor { name: long.clone(), ..Default::default() };
        for message in [
            ModelInferRequest { parameters: with("a", &long), ..Default::default() },
            ModelInferRequest { parameters: with(&long, "a"), ..Default::default() },
            ModelInferRequest { model_name: long.clone(), ..Default::default() },
            ModelInferRequest { inputs: vec![of_input], ..Default::default() },
            ModelInferRequest { inputs: vec![named], ..Default::default() },
            ModelInferRequest { outputs: vec![of_output], ..Default::default() },
        ] {
            let error = parse(&message.encode_to_vec()).map(drop).unwrap_err().to_string();
            assert_eq!(
                error,
                "a text of 65537 bytes is not among the elements of a tensor: no other has more than 65536"
            );
        }
        let just = ModelInferRequest { parameters: with("a", &long[1..]), ..Default::default() };
        assert!(parse(&just.encode_to_vec()).is_ok());
    }

    #[test]
    fn what_is_looked_at_byte_by_byte_makes_a_message_long_and_what_is_copied_much_later() {
        let many = LONG_CONVERSION;
        let of = |datatype: &str, bytes: usize| {
            let input = InferInputTensor { datatype: datatype.into(), ..Default::default() };
            let raw = vec![0; bytes].into();
            ModelInferRequest { inputs: vec![input], raw_input_contents: vec![raw], ..Default::default() }
        };
        let contents = InferTensorContents { bool_contents: vec![true; many], ..Default::default() };
        let mut as_contents = of("BOOL", 0);
        as_contents.inputs[0].contents = Some(contents);
        let mut unknown = of("FP32", many).encode_to_vec();
        assert!(!is_long(&unknown) && !is_long(&of("FP32", 15 * many).encode_to_vec()));
        assert!(is_long(&of("FP32", 16 * many).encode_to_vec()) && is_long(&of("BYTES", many).encode_to_vec()));
        assert!(is_long(&as_contents.encode_to_vec()));
        unknown.extend([0xf8, 1, 1].repeat(many / 3 + 1));
        assert!(is_long(&unknown) && is_long(&[0x3a, 0].repeat(many / 2)) && !is_long(&[0x3a, 0].repeat(many / 4)));
    }

    #[test]
    fn no_count_in_a_message_takes_memory() {
        // Two bytes for each input, output or tensor; one for each dimension.
        for (field, words) in [(0x2a, "inputs"), (0x32, "outputs"), (0x3a, "raw_input_contents")] {
            let error = parse(&[field, 0].repeat(1_000_000)).unwrap_err().to_string();
            assert_eq!(error, format!("a request has 1024 {words} at most"));
        }
        let parameters = |count: u32| ModelInferRequest {
            parameters: (0..count).map(|n| (n.to_string(), parameter(ParameterChoice::BoolParam(true)))).collect(),
            inputs: vec![InferInputTensor {
                parameters: [("a".to_owned(), parameter(ParameterChoice::BoolParam(true)))].into(),
                ..Default::default()
            }],
            ..Default::default()
        };
        assert!(parse(&parameters(1023).encode_to_vec()).is_ok());
        let error = parse(&parameters(1024).encode_to_vec()).unwrap_err().to_string();
        assert_eq!(error, "a request has 1024 parameters at most");
        let shape = vec![1; 100_000];
        let input = InferInputTensor { shape, ..Default::default() };
        let message = ModelInferRequest { inputs: vec![input], ..Default::default() }.encode_to_vec();
        assert_eq!(parse(&message).unwrap_err().to_string(), "a request has 1024 dimensions at most");
    }
}
