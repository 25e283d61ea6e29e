//! The body of an infer answer: JSON, and behind it the elements of outputs that are wanted in binary.
//!
//! JSON has no NaN and no infinities. They are written as protobuf's JSON mapping has them, as the strings `"NaN"`,
//! `"Infinity"` and `"-Infinity"`, which `data` takes as well
//! (<https://protobuf.dev/programming-guides/json/>). Other servers write `NaN`, which most readers refuse, or `null`, which
//! hides what the model said. Byte strings that are not UTF-8 have no form in JSON: such an answer is an error that names
//! the output, and only the request whose rows hold it fails.

use half::{bf16, f16};
use serde::{Serialize, Serializer};

use super::request::Forms;
use crate::raw;
use crate::server::decimals;
use crate::tensor::{Data, Tensor, Tensors};

/// How an output is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::server) enum Form {
    /// In the JSON.
    #[default]
    Json,
    /// Behind it.
    Binary,
    /// As its likeliest classes, in one of these two.
    Classes {
        /// How many of each row.
        classes: usize,
        /// Whether they stand behind the JSON.
        is_binary: bool,
    },
}

impl Form {
    fn is_binary(self) -> bool {
        matches!(self, Form::Binary | Form::Classes { is_binary: true, .. })
    }
}

/// An output that JSON cannot carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "output '{output}' holds bytes that are not UTF-8 at element {at}, which JSON cannot carry; ask for it with \"binary_data\": true"
)]
pub(super) struct Unspeakable {
    output: String,
    at: usize,
}

/// What stands before the outputs.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Head<'a> {
    /// The model's name.
    pub(super) model_name: &'a str,
    /// Its version.
    pub(super) model_version: &'a str,
    /// What the client called its request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<&'a str>,
    /// What uncork adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parameters: Option<Chosen>,
}

/// What uncork had to choose for this request.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Chosen {
    /// How the rows were run.
    pub(super) rows: &'static str,
}

/// A body.
#[derive(Debug)]
pub(super) struct Encoded {
    /// All of it.
    pub(super) bytes: Vec<u8>,
    /// Bytes of JSON at its begin, where elements follow.
    pub(super) json: Option<usize>,
}

/// An output without its elements.
#[derive(Serialize)]
struct Output<'a> {
    name: &'a str,
    shape: &'a [usize],
    datatype: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Parameters>,
}

#[derive(Serialize)]
struct Parameters {
    binary_data_size: usize,
}

/// Most bytes that [`encode`] can write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Most {
    /// Of JSON.
    pub(super) json: usize,
    /// Of JSON and what follows it.
    pub(super) all: usize,
}

/// Most bytes that [`encode`] can write.
pub(super) fn most_bytes(head: Head<'_>, outputs: &Tensors, forms: &Forms) -> Most {
    let names = [head.model_name, head.model_version, head.id.unwrap_or_default()];
    let mut json = names.map(|text| most_of_text(text.as_bytes())).into_iter().fold(128, usize::saturating_add);
    let mut behind = 0usize;
    for (i, (name, tensor)) in outputs.iter().enumerate() {
        let around = 128 + most_of_text(name.as_bytes()) + 21 * tensor.shape().len();
        json = json.saturating_add(around);
        if forms.of(i).is_binary() {
            behind = behind.saturating_add(raw::len(tensor.data()));
        } else {
            json = json.saturating_add(most_of(tensor.data()));
        }
    }
    Most { json, all: json.saturating_add(behind) }
}

/// Most bytes that a text can take: a byte that must be escaped takes six; with quotes and a comma.
pub(in crate::server) fn most_of_text(text: &[u8]) -> usize {
    6 * text.len() + 3
}

/// Most bytes that the elements of a tensor can take, each with its comma.
pub(in crate::server) fn most_of(data: &Data) -> usize {
    let width = match data {
        Data::Bool(_) => "false,".len(),
        Data::Uint8(_) | Data::Int8(_) => "-128,".len(),
        Data::Uint16(_) | Data::Int16(_) => "-32768,".len(),
        Data::Uint32(_) | Data::Int32(_) => "-2147483648,".len(),
        Data::Uint64(_) | Data::Int64(_) => "-9223372036854775808,".len(),
        Data::Fp16(_) | Data::Bf16(_) | Data::Fp32(_) => "-1.17549435e-38,".len(),
        Data::Fp64(_) => "-2.2250738585072014e-308,".len(),
        Data::Bytes(v) => return v.iter().map(|s| most_of_text(s)).fold(0, usize::saturating_add),
    };
    data.len().saturating_mul(width)
}

/// Writes the answer.
pub(super) fn encode(head: Head<'_>, outputs: &Tensors, forms: &Forms) -> Result<Encoded, Unspeakable> {
    let data = || outputs.iter().enumerate().map(|(i, (_, tensor))| (forms.of(i).is_binary(), tensor.data()));
    let behind: usize = data().filter(|(is_binary, _)| *is_binary).map(|(_, data)| raw::len(data)).sum();
    let elements: usize = data().filter(|(is_binary, _)| !is_binary).map(|(_, data)| data.len()).sum();
    // A float takes some ten characters; too little is made good by growing.
    let mut bytes = Vec::with_capacity(256 + 12 * elements + behind);
    object(&head, &mut bytes, |to| {
        to.extend_from_slice(b",\"outputs\":[");
        for (i, (name, tensor)) in outputs.iter().enumerate() {
            separate(i, to);
            output(name, tensor, forms.of(i), to)?;
        }
        to.push(b']');
        Ok(())
    })?;
    let json = data().any(|(is_binary, _)| is_binary).then_some(bytes.len());
    data().filter(|(is_binary, _)| *is_binary).for_each(|(_, data)| raw::write(data, &mut bytes));
    Ok(Encoded { bytes, json })
}

fn output(name: &str, tensor: &Tensor, form: Form, to: &mut Vec<u8>) -> Result<(), Unspeakable> {
    let (shape, data) = (tensor.shape(), tensor.data());
    let parameters = form.is_binary().then(|| Parameters { binary_data_size: raw::len(data) });
    if let Data::Bytes(v) = data
        && parameters.is_none()
        && let Some(at) = v.iter().position(|s| std::str::from_utf8(s).is_err())
    {
        return Err(Unspeakable { output: name.to_owned(), at });
    }
    let is_json = parameters.is_none();
    object(&Output { name, shape, datatype: data.datatype().name(), parameters }, to, |to| {
        if is_json {
            to.extend_from_slice(b",\"data\":[");
            elements(data, to);
            to.push(b']');
        }
        Ok(())
    })
}

/// An object with its members, and behind them what `more` writes.
fn object<E>(
    members: &impl Serialize,
    to: &mut Vec<u8>,
    more: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    json(members, to);
    to.pop();
    more(to)?;
    to.push(b'}');
    Ok(())
}

/// Elements with commas between them, each in the shortest form that reads back as the same value. Bytes must be UTF-8.
fn elements(data: &Data, to: &mut Vec<u8>) {
    match data {
        Data::Bool(v) => each(v, to, json),
        Data::Uint8(v) => each(v, to, json),
        Data::Uint16(v) => each(v, to, json),
        Data::Uint32(v) => each(v, to, json),
        Data::Uint64(v) => each(v, to, json),
        Data::Int8(v) => each(v, to, json),
        Data::Int16(v) => each(v, to, json),
        Data::Int32(v) => each(v, to, json),
        Data::Int64(v) => each(v, to, json),
        Data::Fp16(v) => decimals::write(v.iter().copied().map(f16::to_f32), to),
        Data::Bf16(v) => decimals::write(v.iter().copied().map(bf16::to_f32), to),
        Data::Fp32(v) => decimals::write(v.iter().copied(), to),
        Data::Fp64(v) => each(v, to, |&x, to| json(&Float(x), to)),
        Data::Bytes(v) => each(v, to, |text, to| json(&String::from_utf8_lossy(text), to)),
    }
}

/// Elements with commas between them.
pub(in crate::server) fn each<T>(elements: &[T], to: &mut Vec<u8>, write: impl Fn(&T, &mut Vec<u8>)) {
    for (i, element) in elements.iter().enumerate() {
        separate(i, to);
        write(element, to);
    }
}

/// A comma before all but the first.
pub(in crate::server) fn separate(place: usize, to: &mut Vec<u8>) {
    if place > 0 {
        to.push(b',');
    }
}

/// A value that always has a form in JSON.
pub(in crate::server) fn json(value: &(impl Serialize + ?Sized), to: &mut Vec<u8>) {
    serde_json::to_writer(to, value).expect("memory takes every byte, and a value always has a JSON form");
}

/// A number, or the name of what is none.
pub(in crate::server) struct Float<T>(pub(in crate::server) T);

impl<T: Copy + Serialize + Into<f64>> Serialize for Float<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.into() {
            x if x.is_finite() => self.0.serialize(to),
            x if x.is_nan() => to.serialize_str("NaN"),
            x if x > 0.0 => to.serialize_str("Infinity"),
            _ => to.serialize_str("-Infinity"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::request;
    use super::*;

    /// Any tensor of `rows` rows and `width` elements a row that JSON can carry.
    fn tensor(rows: usize, width: usize) -> impl Strategy<Value = Tensor> {
        fn of<T: std::fmt::Debug + 'static>(
            n: usize,
            element: impl Strategy<Value = T> + 'static,
        ) -> BoxedStrategy<Data>
        where
            Data: From<Vec<T>>,
        {
            proptest::collection::vec(element, n).prop_map(Data::from).boxed()
        }
        let n = rows * width;
        let data = prop_oneof![
            of(n, any::<bool>()),
            of(n, any::<u8>()),
            of(n, any::<u16>()),
            of(n, any::<u32>()),
            of(n, any::<u64>()),
            of(n, any::<i8>()),
            of(n, any::<i16>()),
            of(n, any::<i32>()),
            of(n, any::<i64>()),
            of(n, any::<u16>().prop_map(f16::from_bits).prop_filter("a number", |x| !x.is_nan())),
            of(n, any::<u16>().prop_map(bf16::from_bits).prop_filter("a number", |x| !x.is_nan())),
            of(n, any::<u32>().prop_map(f32::from_bits).prop_filter("a number", |x| !x.is_nan())),
            of(n, any::<u64>().prop_map(f64::from_bits).prop_filter("a number", |x| !x.is_nan())),
            of(n, any::<String>().prop_map(String::into_bytes)),
        ];
        data.prop_map(move |data| Tensor::new(vec![rows, width], data).unwrap())
    }

    fn tensors() -> impl Strategy<Value = Tensors> {
        (0usize..4, 0usize..5).prop_flat_map(|(rows, width)| {
            proptest::collection::vec((any::<String>(), tensor(rows, width)), 1..4)
                .prop_map(|entries| entries.into_iter().map(|(name, tensor)| (Arc::from(name), tensor)).collect())
                .prop_map(|entries| Tensors::new(entries).unwrap())
        })
    }

    const HEAD: Head<'_> = Head { model_name: "m\"", model_version: "1", id: Some("\n\u{1}"), parameters: None };

    fn forms(other: Form) -> Forms {
        Forms { named: Vec::new(), other }
    }

    /// The answer as the request that it would be with the same tensors, and how much of that is JSON.
    fn as_request(given: &Tensors, form: Form) -> (Vec<u8>, Option<usize>) {
        let Encoded { mut bytes, json } = encode(HEAD, given, &forms(form)).unwrap();
        let at = bytes.windows(10).position(|w| w == b"\"outputs\":").unwrap();
        bytes.splice(at..at + 10, *b"\"inputs\":");
        (bytes, json.map(|json| json - 1))
    }

    proptest! {
        #[test]
        fn decoding_what_was_encoded_gives_the_same_tensors(given in tensors(), is_binary in any::<bool>()) {
            let (body, json) = as_request(&given, if is_binary { Form::Binary } else { Form::Json });
            let found = request::parse(&body, json).unwrap().read().unwrap().call.inputs;
            prop_assert_eq!(found.iter().len(), given.iter().len());
            for ((name, found), (expected_name, expected)) in found.iter().zip(given.iter()) {
                prop_assert_eq!(name, expected_name);
                prop_assert_eq!(found, expected);
            }
        }

        #[test]
        fn an_answer_takes_no_more_than_was_reckoned(given in tensors(), id in any::<String>()) {
            let head = Head { id: Some(&id), ..HEAD };
            for form in [Form::Json, Form::Binary] {
                let most = most_bytes(head, &given, &forms(form)).all;
                let written = encode(head, &given, &forms(form)).unwrap().bytes.len();
                prop_assert!(written <= most, "{} > {}", written, most);
            }
        }

        #[test]
        fn a_damaged_body_is_read_or_refused_and_never_breaks_the_reader(
            given in tensors(), is_binary in any::<bool>(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
        ) {
            let (mut body, json) = as_request(&given, if is_binary { Form::Binary } else { Form::Json });
            let at = at.index(body.len());
            body[at] = byte;
            match request::parse(&body, json).and_then(request::Unread::read) {
                Ok(found) => {
                    let inputs = found.call.inputs;
                    prop_assert_eq!(inputs.rows(), inputs.iter().next().unwrap().1.rows());
                }
                Err(error) => prop_assert!(matches!(error, crate::error::Error::Invalid(_)), "{:?}", error),
            }
        }
    }

    #[test]
    fn each_output_is_written_in_its_form() {
        let tensor = |x: i8| Tensor::new(vec![1, 1], vec![x]).unwrap();
        let outputs = ["a", "b", "c"].into_iter().zip([1, 2, 3]).map(|(n, x)| (Arc::from(n), tensor(x))).collect();
        let outputs = Tensors::new(outputs).unwrap();
        let forms = Forms { named: vec![Form::Binary, Form::Json, Form::Binary], other: Form::Json };
        let head = Head { model_name: "m", model_version: "7", id: Some("\n"), parameters: None };
        let Encoded { bytes, json } = encode(head, &outputs, &forms).unwrap();
        let (json, behind) = bytes.split_at(json.unwrap());
        let expected = r#"{"model_name":"m","model_version":"7","id":"\n","outputs":[{"name":"a","shape":[1,1],"datatype":"INT8","parameters":{"binary_data_size":1}},{"name":"b","shape":[1,1],"datatype":"INT8","data":[2]},{"name":"c","shape":[1,1],"datatype":"INT8","parameters":{"binary_data_size":1}}]}"#;
        assert_eq!((std::str::from_utf8(json), behind), (Ok(expected), &[1, 3][..]));
        assert!(encode(head, &outputs, &Forms::default()).unwrap().json.is_none());
    }

    #[test]
    fn what_is_no_number_is_written_by_name_and_what_is_no_text_only_in_binary() {
        let odd = vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.5];
        let outputs = Tensors::one("y", Tensor::new(vec![1, 4], odd).unwrap());
        let body = encode(HEAD, &outputs, &Forms::default()).unwrap().bytes;
        assert!(String::from_utf8(body).unwrap().contains(r#""data":["NaN","Infinity","-Infinity",0.5]"#));
        let outputs = Tensors::one("y", Tensor::new(vec![2, 1], Data::Bytes(vec![vec![], vec![0xff]])).unwrap());
        let error = encode(HEAD, &outputs, &Forms::default()).unwrap_err().to_string();
        assert!(error.contains("output 'y' holds bytes that are not UTF-8 at element 1"), "{error}");
        let body = encode(HEAD, &outputs, &forms(Form::Binary)).unwrap().bytes;
        assert!(body.ends_with(&[0, 0, 0, 0, 1, 0, 0, 0, 0xff]));
    }
}
