//! The body of an infer answer, from tensors to JSON.
//!
//! JSON has no NaN, no infinities and no byte strings that are not text. Other servers write `NaN`, which most readers
//! refuse, or `null`, which hides what the model said; here such an answer is an error that names the output, and only
//! the request whose rows hold it fails.

use half::{bf16, f16};
use serde::{Serialize, Serializer};

use crate::tensor::{Data, Tensor, Tensors};

/// An output that JSON cannot carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("output '{output}' holds {what} at element {at}, which JSON cannot carry")]
pub(super) struct Unspeakable {
    output: String,
    what: &'static str,
    at: usize,
}

#[derive(Serialize)]
struct InferResponse<'a> {
    model_name: &'a str,
    model_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    outputs: Vec<Output<'a>>,
}

#[derive(Serialize)]
struct Output<'a> {
    name: &'a str,
    shape: &'a [usize],
    datatype: &'static str,
    data: Elements<'a>,
}

/// Most bytes that [`encode`] can write.
pub(super) fn most_bytes(
    model_name: &str,
    model_version: &str,
    id: Option<&str>,
    outputs: &Tensors,
    wanted: &[String],
) -> usize {
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    let wanted = outputs.iter().filter(|(name, _)| is_wanted(name));
    let each = wanted.map(|(name, tensor)| {
        let around = 64 + most_of_text(name.as_bytes()) + 21 * tensor.shape().len();
        most_of(tensor.data()).saturating_add(around)
    });
    let names = [model_name, model_version, id.unwrap_or_default()].map(|text| most_of_text(text.as_bytes()));
    each.chain(names).fold(64, usize::saturating_add)
}

/// Most bytes that a text can take: a byte that must be escaped takes six; with quotes and a comma.
fn most_of_text(text: &[u8]) -> usize {
    6 * text.len() + 3
}

/// Most bytes that the elements of a tensor can take, each with its comma.
fn most_of(data: &Data) -> usize {
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

/// Writes the answer. `wanted` names the outputs to write, in order, all known; empty writes all of them.
pub(super) fn encode(
    model_name: &str,
    model_version: &str,
    id: Option<&str>,
    outputs: &Tensors,
    wanted: &[String],
) -> Result<Vec<u8>, Unspeakable> {
    let outputs = if wanted.is_empty() {
        outputs.iter().map(|(name, tensor)| output(name, tensor)).collect::<Result<Vec<_>, _>>()?
    } else {
        let known = wanted.iter().filter_map(|name| Some((name, outputs.get(name)?)));
        known.map(|(name, tensor)| output(name, tensor)).collect::<Result<_, _>>()?
    };
    // A float takes some ten characters; too little is made good by growing.
    let elements: usize = outputs.iter().map(|o| o.data.0.len()).sum();
    let mut body = Vec::with_capacity(256 + 12 * elements);
    serde_json::to_writer(&mut body, &InferResponse { model_name, model_version, id, outputs })
        .expect("memory takes every byte, and all values were looked at");
    Ok(body)
}

fn output<'a>(name: &'a str, tensor: &'a Tensor) -> Result<Output<'a>, Unspeakable> {
    let data = tensor.data();
    if let Some((at, what)) = unspeakable(data) {
        return Err(Unspeakable { output: name.to_owned(), what, at });
    }
    Ok(Output { name, shape: tensor.shape(), datatype: data.datatype().name(), data: Elements(data) })
}

/// The first element that has no JSON form.
fn unspeakable(data: &Data) -> Option<(usize, &'static str)> {
    let kind = |nan: bool| if nan { "NaN" } else { "an infinity" };
    match data {
        Data::Fp16(v) => v.iter().position(|x| !x.is_finite()).map(|at| (at, kind(v[at].is_nan()))),
        Data::Bf16(v) => v.iter().position(|x| !x.is_finite()).map(|at| (at, kind(v[at].is_nan()))),
        Data::Fp32(v) => v.iter().position(|x| !x.is_finite()).map(|at| (at, kind(v[at].is_nan()))),
        Data::Fp64(v) => v.iter().position(|x| !x.is_finite()).map(|at| (at, kind(v[at].is_nan()))),
        Data::Bytes(v) => {
            v.iter().position(|s| std::str::from_utf8(s).is_err()).map(|at| (at, "bytes that are not UTF-8"))
        }
        _ => None,
    }
}

/// A tensor's elements as a flat list, each in the shortest form that reads back as the same value.
struct Elements<'a>(&'a Data);

impl Serialize for Elements<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Data::Bool(v) => v.serialize(to),
            Data::Uint8(v) => v.serialize(to),
            Data::Uint16(v) => v.serialize(to),
            Data::Uint32(v) => v.serialize(to),
            Data::Uint64(v) => v.serialize(to),
            Data::Int8(v) => v.serialize(to),
            Data::Int16(v) => v.serialize(to),
            Data::Int32(v) => v.serialize(to),
            Data::Int64(v) => v.serialize(to),
            Data::Fp16(v) => to.collect_seq(v.iter().copied().map(f16::to_f32)),
            Data::Bf16(v) => to.collect_seq(v.iter().copied().map(bf16::to_f32)),
            Data::Fp32(v) => v.serialize(to),
            Data::Fp64(v) => v.serialize(to),
            Data::Bytes(v) => to.collect_seq(v.iter().map(|s| String::from_utf8_lossy(s))),
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
            of(n, any::<u16>().prop_map(f16::from_bits).prop_filter("finite", |x| x.is_finite())),
            of(n, any::<u16>().prop_map(bf16::from_bits).prop_filter("finite", |x| x.is_finite())),
            of(n, any::<u32>().prop_map(f32::from_bits).prop_filter("finite", |x| x.is_finite())),
            of(n, any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |x| x.is_finite())),
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

    /// The answer to a request that would be a request with the same tensors.
    fn as_request(answer: Vec<u8>) -> Vec<u8> {
        String::from_utf8(answer).unwrap().replacen("\"outputs\":", "\"inputs\":", 1).into_bytes()
    }

    proptest! {
        #[test]
        fn decoding_what_was_encoded_gives_the_same_tensors(given in tensors()) {
            let body = as_request(encode("m", "1", None, &given, &[]).unwrap());
            let found = request::decode(&body).unwrap().inputs;
            prop_assert_eq!(found.iter().len(), given.iter().len());
            for ((name, found), (expected_name, expected)) in found.iter().zip(given.iter()) {
                prop_assert_eq!(name, expected_name);
                prop_assert_eq!(found, expected);
            }
        }

        #[test]
        fn an_answer_takes_no_more_than_was_reckoned(given in tensors(), id in any::<String>()) {
            let (id, wanted) = (Some(id.as_str()), [given.iter().next().unwrap().0.to_string()]);
            for wanted in [&[][..], &wanted] {
                let most = most_bytes("m\"", "1", id, &given, wanted);
                let written = encode("m\"", "1", id, &given, wanted).unwrap().len();
                prop_assert!(written <= most, "{} > {}", written, most);
            }
        }

        #[test]
        fn a_damaged_body_is_read_or_refused_and_never_breaks_the_reader(
            given in tensors(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
        ) {
            let mut body = as_request(encode("m", "1", None, &given, &[]).unwrap());
            let at = at.index(body.len());
            body[at] = byte;
            match request::decode(&body) {
                Ok(found) => prop_assert_eq!(found.inputs.rows(), found.inputs.iter().next().unwrap().1.rows()),
                Err(error) => prop_assert!(matches!(error, crate::error::Error::Invalid(_)), "{:?}", error),
            }
        }
    }

    #[test]
    fn only_the_wanted_outputs_are_written_in_the_wanted_order() {
        let tensor = |x: i8| Tensor::new(vec![1, 1], vec![x]).unwrap();
        let outputs = ["a", "b", "c"].into_iter().zip(1..).map(|(n, x)| (Arc::from(n), tensor(x))).collect();
        let body = encode("m", "7", Some("\n"), &Tensors::new(outputs).unwrap(), &["c".into(), "a".into()]).unwrap();
        let expected = r#"{"model_name":"m","model_version":"7","id":"\n","outputs":[{"name":"c","shape":[1,1],"datatype":"INT8","data":[3]},{"name":"a","shape":[1,1],"datatype":"INT8","data":[1]}]}"#;
        assert_eq!(String::from_utf8(body).unwrap(), expected);
    }

    #[test]
    fn what_json_cannot_carry_is_an_error_that_names_the_output() {
        for (data, words) in [
            (Data::Fp32(vec![0.0, f32::NAN]), "output 'y' holds NaN at element 1"),
            (Data::Fp64(vec![0.0, f64::NEG_INFINITY]), "output 'y' holds an infinity at element 1"),
            (Data::Fp16(vec![f16::ZERO, f16::NAN]), "output 'y' holds NaN at element 1"),
            (Data::Bf16(vec![bf16::ZERO, bf16::INFINITY]), "output 'y' holds an infinity at element 1"),
            (Data::Bytes(vec![vec![], vec![0xff]]), "not UTF-8 at element 1"),
        ] {
            let outputs = Tensors::one("y", Tensor::new(vec![2, 1], data).unwrap());
            let error = encode("m", "1", None, &outputs, &[]).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
