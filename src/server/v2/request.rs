//! The body of an infer request, from JSON to tensors.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::data;
use crate::error::Error;
use crate::quote::{Dims, Quoted};
use crate::registry::Priority;
use crate::tensor::{DataType, Tensor, Tensors};

/// What a client asks for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct InferRequest {
    /// To be echoed.
    pub(super) id: Option<String>,
    /// The inputs, in the client's order.
    pub(super) inputs: Tensors,
    /// Names of the outputs that are wanted, in this order; empty for all.
    pub(super) outputs: Vec<String>,
    /// How long after arrival the answer is of use, where the client says so.
    pub(super) timeout: Option<Duration>,
    /// How urgent it is beside others.
    pub(super) priority: Priority,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with \"inputs\"")]
struct RawRequest<'a> {
    #[serde(default)]
    id: Option<String>,
    #[serde(borrow, default)]
    parameters: Option<RawParameters<'a>>,
    #[serde(borrow)]
    inputs: Vec<RawInput<'a>>,
    #[serde(default)]
    outputs: Option<Vec<RawOutput>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object of parameters")]
struct RawParameters<'a> {
    #[serde(borrow, default)]
    timeout: Option<&'a RawValue>,
    #[serde(borrow, default)]
    priority: Option<&'a RawValue>,
}

/// The elements stay text until the object is complete: `datatype` and `shape` may come after `data`.
#[derive(Deserialize)]
#[serde(expecting = "an input: an object with \"name\", \"shape\", \"datatype\" and \"data\"")]
struct RawInput<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    shape: Vec<i64>,
    #[serde(borrow)]
    datatype: Cow<'a, str>,
    #[serde(borrow)]
    data: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(expecting = "an output: an object with \"name\"")]
struct RawOutput {
    name: String,
}

/// Reads a whole body. Unknown members and parameters are ignored, as the protocol's clients expect.
pub(super) fn decode(body: &[u8]) -> Result<InferRequest, Error> {
    let text = std::str::from_utf8(body).map_err(|_| Error::Invalid("the body is not UTF-8".into()))?;
    let raw: RawRequest<'_> =
        serde_json::from_str(text).map_err(|e| Error::Invalid(format!("the body is not an infer request: {e}")))?;
    let (timeout, priority) = match raw.parameters {
        Some(raw) => (raw.timeout.map(timeout).transpose()?, raw.priority.map(priority).transpose()?),
        None => (None, None),
    };
    if raw.inputs.is_empty() {
        return Err(Error::Invalid("a request needs at least one input".into()));
    }
    let inputs = raw.inputs.iter().map(|input| Ok((Arc::from(&*input.name), tensor(input)?)));
    let inputs = Tensors::new(inputs.collect::<Result<_, Error>>()?).map_err(|e| Error::Invalid(e.to_string()))?;
    let outputs = raw.outputs.unwrap_or_default().into_iter().map(|output| output.name).collect();
    Ok(InferRequest { id: raw.id, inputs, outputs, timeout: timeout.flatten(), priority: priority.unwrap_or_default() })
}

fn tensor(input: &RawInput<'_>) -> Result<Tensor, Error> {
    let name = &input.name;
    let invalid = |what: &dyn std::fmt::Display| Error::Invalid(format!("input {}: {what}", Quoted(name)));
    let datatype = DataType::from_name(&input.datatype).ok_or_else(|| {
        let known: Vec<_> = DataType::ALL.iter().map(|d| d.name()).collect();
        invalid(&format_args!("unknown datatype {}; the protocol has {}", Quoted(&input.datatype), known.join(", ")))
    })?;
    let shape = input.shape.iter().map(|&n| {
        usize::try_from(n).map_err(|_| invalid(&format_args!("shape {} has a negative dimension", Dims(&input.shape))))
    });
    let shape = shape.collect::<Result<Vec<_>, _>>()?;
    let data = data::read(input.data.get(), datatype, &shape).map_err(|e| invalid(&e))?;
    Tensor::new(shape, data).map_err(|e| invalid(&e))
}

/// Microseconds, as a number or as a string of digits. 0 means none, as for the protocol's other servers.
fn timeout(value: &RawValue) -> Result<Option<Duration>, Error> {
    let Some(micros) = whole_number(value) else {
        let message =
            "parameter 'timeout' must be a whole number of microseconds, as a number or as a string of digits";
        return Err(Error::Invalid(message.into()));
    };
    Ok((micros > 0).then(|| Duration::from_micros(micros)))
}

/// A level, as a number or as a string of digits. 0 means the default one, as for the protocol's other servers.
fn priority(value: &RawValue) -> Result<Priority, Error> {
    let level = whole_number(value);
    let found = if level == Some(0) { Some(Priority::DEFAULT) } else { level.and_then(Priority::new) };
    found.ok_or_else(|| {
        let (highest, lowest) = (Priority::HIGHEST.level(), Priority::LOWEST.level());
        let default = Priority::DEFAULT.level();
        Error::Invalid(format!(
            "parameter 'priority' must be a whole number from {highest}, the most urgent, to {lowest}, \
             or 0 for the default, {default}; as a number or as a string of digits"
        ))
    })
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
    use crate::tensor::Data;

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
        assert_eq!(request.outputs, ["y"]);
        assert_eq!(request.timeout, Some(Duration::from_micros(1500)));
        let x = request.inputs.get("x").unwrap();
        assert_eq!((x.shape(), x.data()), (&[2, 1][..], &Data::Uint8(vec![1, 2])));
    }

    #[test]
    fn null_stands_for_a_member_left_out() {
        let body = r#"{"id":null,"parameters":null,"outputs":null,
            "inputs":[{"name":"x","shape":[1],"datatype":"BOOL","data":[true]}]}"#;
        let request = decode(body.as_bytes()).unwrap();
        assert_eq!((request.id, request.outputs, request.timeout), (None, vec![], None));
    }

    #[test]
    fn a_timeout_is_microseconds_in_digits_and_zero_is_none() {
        let with = |timeout: &str| {
            let input = r#"[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]"#;
            decode(format!(r#"{{"parameters":{{"timeout":{timeout}}},"inputs":{input}}}"#).as_bytes())
                .map(|r| r.timeout)
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
                .map(|r| r.priority)
        };
        assert_eq!((with("1"), with("\"10\"")), (Ok(Priority::HIGHEST), Ok(Priority::LOWEST)));
        assert_eq!((with("0"), with("null")), (Ok(Priority::DEFAULT), Ok(Priority::DEFAULT)));
        for bad in ["-1", "1.5", "\"\"", "\"high\"", "11", "266", "true", "[1]", "99999999999999999999"] {
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
            (input(r#""shape":[1],"datatype":"FP32""#), "missing field `data`"),
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
        assert_eq!(decode(b"\xff").unwrap_err(), Error::Invalid("the body is not UTF-8".into()));
    }
}
