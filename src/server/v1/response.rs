//! The body of a `:predict` answer: `predictions`, row by row, or `outputs`, tensor by tensor; nested lists.
//!
//! A model's only output stands without its name. Byte strings are strings where they are UTF-8, and `{"b64": …}` where they are
//! not, or where the output's name ends in `_bytes`. What is no number is written by name in quotes, as in v2: TensorFlow
//! Serving writes bare names, which are no JSON and which kserve's client and browsers refuse.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use half::{bf16, f16};
use serde::Serialize;

use super::request::Form;
use crate::runner::{Rows, Signature};
use crate::server::decimals;
use crate::server::v2::response::{Float, each, json, most_of, most_of_text, separate};
use crate::tensor::{Data, Tensor, Tensors};

/// Outputs whose names end so hold what is no text.
const BINARY_SUFFIX: &str = "_bytes";

/// Most bytes around a byte string in base64, which itself takes less than an escaped text.
const AROUND_BASE64: usize = 16;

/// Most bytes that [`encode`] can write.
pub(super) fn most_bytes(outputs: &Tensors, signature: &Signature, form: Form) -> usize {
    let rows = if let Form::Rows(rows) = form { rows } else { 1 };
    let of = |(name, tensor): (&std::sync::Arc<str>, &Tensor)| {
        let spec = signature.outputs.iter().find(|spec| spec.name == *name);
        let mut shape = tensor.shape().to_vec();
        if let (Some(Rows::Axis(axis)), Form::Rows(_)) = (spec.map(|spec| spec.rows), form) {
            shape[..=axis].rotate_right(1);
        }
        let lists = (0..shape.len()).map(|depth| shape[..depth].iter().product::<usize>());
        let brackets = lists.fold(0, usize::saturating_add).saturating_mul("[],".len());
        let base64 = if let Data::Bytes(strings) = tensor.data() { AROUND_BASE64 * strings.len() } else { 0 };
        let elements = most_of(tensor.data()).saturating_add(base64).saturating_add(brackets);
        // What all rows share is written for each.
        let is_shared = spec.is_some_and(|spec| spec.rows == Rows::Shared) && !signature.is_unbatched();
        let times = if is_shared { rows } else { 1 };
        let names = rows.saturating_mul(most_of_text(name.as_bytes()) + 4);
        elements.saturating_mul(times).saturating_add(names)
    };
    outputs.iter().map(of).fold(64, usize::saturating_add).saturating_add(4 * rows)
}

/// Writes the answer. The error is a sentence for the client.
pub(super) fn encode(outputs: &Tensors, signature: &Signature, form: Form) -> Result<Vec<u8>, String> {
    let mut to = Vec::with_capacity(256);
    match form {
        Form::Columns => {
            to.extend_from_slice(b"{\"outputs\":");
            let whole: Vec<_> = outputs.iter().map(|(name, tensor)| (&**name, Whole(tensor))).collect();
            named(&whole, &mut to, |name, Whole(tensor), to| value(name, tensor.data(), 0, tensor.shape(), to));
        }
        Form::Rows(rows) => {
            let in_front = |(name, tensor): (&std::sync::Arc<str>, &Tensor)| {
                let spec = signature.outputs.iter().find(|spec| spec.name == *name);
                let tensor = match spec.map(|spec| spec.rows) {
                    // TensorFlow Serving, too, takes the first axis of what a model without rows gives as that of the instances.
                    Some(Rows::Shared) if !signature.is_unbatched() => {
                        return Ok((name.to_string(), tensor.clone(), true));
                    }
                    Some(Rows::Axis(axis)) if axis > 0 => tensor.clone().axis_to_front(axis),
                    _ => tensor.clone(),
                };
                if tensor.shape().first() == Some(&rows) {
                    return Ok((name.to_string(), tensor, false));
                }
                Err(format!("output '{name}' has no row for each of the instances; ask with \"inputs\""))
            };
            let found = outputs.iter().map(in_front).collect::<Result<Vec<_>, String>>()?;
            let found: Vec<_> = found.iter().map(|(name, tensor, is_shared)| (&**name, (tensor, *is_shared))).collect();
            to.extend_from_slice(b"{\"predictions\":[");
            for row in 0..rows {
                separate(row, &mut to);
                named(&found, &mut to, |name, (tensor, is_shared), to| {
                    let (data, shape) = (tensor.data(), tensor.shape());
                    if *is_shared {
                        return value(name, data, 0, shape, to);
                    }
                    value(name, data, row * shape[1..].iter().product::<usize>(), &shape[1..], to);
                });
            }
            to.push(b']');
        }
    }
    to.push(b'}');
    Ok(to)
}

struct Whole<'a>(&'a Tensor);

/// The only value, or an object of all by name.
fn named<T>(values: &[(&str, T)], to: &mut Vec<u8>, write: impl Fn(&str, &T, &mut Vec<u8>)) {
    if let [(name, only)] = values {
        return write(name, only, to);
    }
    to.push(b'{');
    for (i, (name, value)) in values.iter().enumerate() {
        separate(i, to);
        json(name, to);
        to.push(b':');
        write(name, value, to);
    }
    to.push(b'}');
}

/// Lists of this shape, or the one element of no shape, from the element `at` on.
fn value(name: &str, data: &Data, at: usize, shape: &[usize], to: &mut Vec<u8>) {
    match data {
        Data::Bool(v) => lists(&v[at..], shape, to, &|v, to| each(v, to, json)),
        Data::Uint8(v) => lists(&v[at..], shape, to, &|v, to| each(v, to, json)),
        Data::Uint16(v) => lists(&v[at..], shape, to, &|v, to| each(v, to, json)),
        Data::Uint32(v) => lists(&v[at..], shape, to, &|v, to| each(v, to, json)),
        Data::Uint64(v) => lists(&v[at..], shape, to, &|v, to| each(v, to, json)),
        Data::Int8(v) => lists(&v[at..], shape, to, &|v, to| each(v, to, json)),
        Data::Int16(v) => lists(&v[at..], shape, to, &|v, to| each(v, to, json)),
        Data::Int32(v) => lists(&v[at..], shape, to, &|v, to| each(v, to, json)),
        Data::Int64(v) => lists(&v[at..], shape, to, &|v, to| each(v, to, json)),
        Data::Fp16(v) => lists(&v[at..], shape, to, &|v, to| decimals::write(v.iter().copied().map(f16::to_f32), to)),
        Data::Bf16(v) => lists(&v[at..], shape, to, &|v, to| decimals::write(v.iter().copied().map(bf16::to_f32), to)),
        Data::Fp32(v) => lists(&v[at..], shape, to, &|v, to| decimals::write(v.iter().copied(), to)),
        Data::Fp64(v) => lists(&v[at..], shape, to, &|v, to| each(v, to, |&x, to| json(&Float(x), to))),
        Data::Bytes(v) => {
            let is_binary = name.ends_with(BINARY_SUFFIX);
            lists(&v[at..], shape, to, &|v, to| each(v, to, |text, to| string(text, is_binary, to)));
        }
    }
}

fn lists<T>(elements: &[T], shape: &[usize], to: &mut Vec<u8>, write: &impl Fn(&[T], &mut Vec<u8>)) {
    let Some((&items, inner)) = shape.split_first() else { return write(&elements[..1], to) };
    to.push(b'[');
    if inner.is_empty() {
        write(&elements[..items], to);
    } else {
        let width: usize = inner.iter().product();
        for item in 0..items {
            separate(item, to);
            lists(&elements[item * width..], inner, to, write);
        }
    }
    to.push(b']');
}

fn string(bytes: &[u8], is_binary: bool, to: &mut Vec<u8>) {
    #[derive(Serialize)]
    struct Encoded {
        b64: String,
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if !is_binary => json(text, to),
        _ => json(&Encoded { b64: BASE64_STANDARD.encode(bytes) }, to),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::runner::TensorSpec;
    use crate::tensor::DataType;

    fn spec(name: &str, rows: Rows, dims: Vec<Option<usize>>) -> TensorSpec {
        TensorSpec { rows, ..TensorSpec::new(name, DataType::Fp32, dims) }
    }

    fn written(outputs: &Tensors, signature: &Signature, form: Form) -> String {
        let bytes = encode(outputs, signature, form).unwrap();
        let most = most_bytes(outputs, signature, form);
        assert!(bytes.len() <= most, "{} of {most}", bytes.len());
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn one_output_stands_alone_and_several_by_name_in_rows_and_in_columns() {
        let two = Signature {
            inputs: vec![],
            outputs: vec![spec("a", Rows::Axis(0), vec![Some(2)]), spec("b", Rows::Axis(0), vec![])],
        };
        let a = Tensor::new(vec![2, 2], vec![1f32, 2.5, f32::NAN, -1e-7]).unwrap();
        let b = Tensor::new(vec![2], vec![3i64, -4]).unwrap();
        let alone = Tensors::one("a", a.clone());
        assert_eq!(written(&alone, &two, Form::Rows(2)), r#"{"predictions":[[1.0,2.5],["NaN",-1e-7]]}"#);
        assert_eq!(written(&alone, &two, Form::Columns), r#"{"outputs":[[1.0,2.5],["NaN",-1e-7]]}"#);
        let both = Tensors::new(vec![(Arc::from("a"), a), (Arc::from("b"), b)]).unwrap();
        let rows = r#"{"predictions":[{"a":[1.0,2.5],"b":3},{"a":["NaN",-1e-7],"b":-4}]}"#;
        assert_eq!(written(&both, &two, Form::Rows(2)), rows);
        assert_eq!(written(&both, &two, Form::Columns), r#"{"outputs":{"a":[[1.0,2.5],["NaN",-1e-7]],"b":[3,-4]}}"#);
        assert!(encode(&both, &two, Form::Rows(3)).unwrap_err().contains("no row for each"));
    }

    #[test]
    fn rows_come_from_the_model_s_own_axis_and_what_they_share_stands_in_each() {
        let signature = Signature {
            inputs: vec![spec("x", Rows::Axis(0), vec![])],
            outputs: vec![spec("t", Rows::Axis(1), vec![Some(2)]), spec("s", Rows::Shared, vec![])],
        };
        let t = Tensor::new(vec![2, 3], vec![0f32, 1.0, 2.0, 10.0, 11.0, 12.0]).unwrap();
        let s = Tensor::new(vec![], vec![7i64]).unwrap();
        let both = Tensors::new(vec![(Arc::from("t"), t), (Arc::from("s"), s)]).unwrap();
        let rows = r#"{"predictions":[{"t":[0.0,10.0],"s":7},{"t":[1.0,11.0],"s":7},{"t":[2.0,12.0],"s":7}]}"#;
        assert_eq!(written(&both, &signature, Form::Rows(3)), rows);
        // As many as there are rows, and written once for each.
        let shared = Tensor::new(vec![300], vec![-1.5f32; 300]).unwrap();
        written(&Tensors::one("s", shared), &signature, Form::Rows(300));
        // Time in front is no reason to reckon with more.
        let steps = Tensors::one("t", Tensor::new(vec![2, 300], vec![0f32; 600]).unwrap());
        assert!(most_bytes(&steps, &signature, Form::Rows(300)) < 600 * 30 + 300 * 30);
    }

    #[test]
    fn a_model_without_rows_gives_an_instance_its_part_of_the_first_axis() {
        let whole = |name: &str| spec(name, Rows::Shared, vec![None, Some(2)]);
        let signature = Signature { inputs: vec![whole("x")], outputs: vec![whole("y")] };
        let y = |rows: usize| Tensors::one("y", Tensor::new(vec![rows, 2], vec![1f32; 2 * rows]).unwrap());
        assert_eq!(written(&y(3), &signature, Form::Rows(3)), r#"{"predictions":[[1.0,1.0],[1.0,1.0],[1.0,1.0]]}"#);
        // A pooled answer belongs to none of them.
        let error = encode(&y(1), &signature, Form::Rows(3)).unwrap_err();
        assert_eq!(error, "output 'y' has no row for each of the instances; ask with \"inputs\"");
        let number = Tensors::one("y", Tensor::new(vec![], vec![1f32]).unwrap());
        assert!(encode(&number, &signature, Form::Rows(1)).is_err());
    }

    #[test]
    fn byte_strings_are_texts_or_base64() {
        let signature = Signature { inputs: vec![], outputs: vec![] };
        let strings = Tensor::new(vec![2], vec![b"a\"".to_vec(), vec![0xff]]).unwrap();
        let of = |name: &str| written(&Tensors::one(name, strings.clone()), &signature, Form::Columns);
        assert_eq!(of("s"), r#"{"outputs":["a\"",{"b64":"/w=="}]}"#);
        assert_eq!(of("s_bytes"), r#"{"outputs":[{"b64":"YSI="},{"b64":"/w=="}]}"#);
        let long = Tensors::one("s_bytes", Tensor::new(vec![1], vec![vec![b'a'; 4000]]).unwrap());
        assert!(written(&long, &signature, Form::Rows(1)).len() > 5000);
    }
}
