//! Batches in the Open Inference Protocol v2, with tensors in binary where the server takes them, or in JSON.
//!
//! Source: <https://github.com/kserve/open-inference-protocol> and its extension for binary tensor data
//! (<https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md>).

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::quote::{Dims, Quoted};
use crate::raw;
use crate::runner::{RunnerError, Signature, TensorSpec};
use crate::tensor::{Data, DataType, Tensor, Tensors, bf16_from_f64, f16_from_f64};

/// The extension by which tensors travel in binary.
pub(super) const BINARY: &str = "binary_tensor_data";

#[derive(Serialize)]
struct Request<'a> {
    inputs: Vec<Input<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<WantsBinary>,
}

#[derive(Serialize)]
struct WantsBinary {
    binary_data_output: bool,
}

#[derive(Serialize)]
struct Input<'a> {
    name: &'a str,
    datatype: &'static str,
    shape: &'a [usize],
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
}

#[derive(Serialize, Deserialize, Default)]
struct Size {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    binary_data_size: Option<usize>,
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    outputs: Vec<Output<'a>>,
}

#[derive(Deserialize)]
struct Output<'a> {
    name: String,
    datatype: String,
    shape: Vec<usize>,
    #[serde(default)]
    parameters: Option<Size>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

/// What a server says of a model: `GET /v2/models/M`.
#[derive(Deserialize)]
pub(super) struct Metadata {
    #[serde(default)]
    inputs: Vec<Described>,
    #[serde(default)]
    outputs: Vec<Described>,
    /// An uncork's own; others have what they like there.
    #[serde(default)]
    parameters: serde_json::Value,
}

impl Metadata {
    /// Whether an uncork there runs each request by itself, so that requests may not be merged on the way to it.
    fn runs_requests_whole(&self) -> bool {
        self.parameters.get("rows").and_then(serde_json::Value::as_str) == Some("whole")
    }

    /// Whether the model reads `instances` of a body itself.
    pub(super) fn takes_whole(&self) -> bool {
        self.parameters.get("whole_bodies").and_then(serde_json::Value::as_bool).unwrap_or_default()
    }
}

#[derive(Deserialize)]
struct Described {
    name: String,
    datatype: String,
    shape: Vec<i64>,
}

/// What a server says of itself: `GET /v2`.
#[derive(Deserialize)]
pub(super) struct About {
    #[serde(default)]
    pub(super) extensions: Vec<String>,
}

/// A batch as a body; where tensors are in binary, with the length of the JSON in front of them.
pub(super) fn encode(batch: &Tensors, is_binary: bool) -> Result<(Vec<u8>, Option<usize>), RunnerError> {
    let inputs = batch.iter().map(|(name, tensor)| {
        let size = is_binary.then(|| Size { binary_data_size: Some(raw::len(tensor.data())) });
        let data = if is_binary { None } else { Some(json(tensor.data())?) };
        let (datatype, shape) = (tensor.data().datatype().name(), tensor.shape());
        Ok(Input { name, datatype, shape, parameters: size, data })
    });
    let inputs = inputs.collect::<Result<_, RunnerError>>()?;
    let request = Request { inputs, parameters: is_binary.then_some(WantsBinary { binary_data_output: true }) };
    let mut body = serde_json::to_vec(&request).map_err(|error| RunnerError::Failed(error.to_string()))?;
    if !is_binary {
        return Ok((body, None));
    }
    let head = body.len();
    body.reserve(batch.iter().map(|(_, tensor)| raw::len(tensor.data())).sum());
    batch.iter().for_each(|(_, tensor)| raw::write(tensor.data(), &mut body));
    Ok((body, Some(head)))
}

/// The outputs of `signature` for so many rows in `body`, of which so many bytes are JSON where tensors may follow in binary.
pub(super) fn decode(
    body: &[u8],
    json: Option<usize>,
    rows: usize,
    signature: &Signature,
) -> Result<Tensors, RunnerError> {
    let failed =
        |why: String| RunnerError::Failed(format!("the answer is not one of the Open Inference Protocol: {why}"));
    let head = json.unwrap_or(body.len());
    let (head, mut binary) =
        body.split_at_checked(head).ok_or_else(|| failed(format!("it has fewer than {head} bytes")))?;
    let answer: Answer<'_> = serde_json::from_slice(head).map_err(|error| failed(error.to_string()))?;
    let mut found = Vec::new();
    for output in answer.outputs {
        let Output { name, datatype, shape, parameters, data } = output;
        let wrong = |why: String| failed(format!("output {}: {why}", Quoted(&name)));
        let datatype =
            DataType::from_name(&datatype).ok_or_else(|| wrong(format!("type {} is not known", Quoted(&datatype))))?;
        let data = match (parameters.unwrap_or_default().binary_data_size, data) {
            (Some(size), _) => {
                let (own, rest) = binary
                    .split_at_checked(size)
                    .ok_or_else(|| wrong(format!("there are {} bytes where it has {size}", binary.len())))?;
                binary = rest;
                raw::read(own, datatype, &shape).map_err(|error| wrong(error.to_string()))?
            }
            (None, Some(data)) => elements(data, datatype).map_err(wrong)?,
            (None, None) => return Err(wrong("it has no data".into())),
        };
        let tensor = Tensor::new(shape, data).map_err(|error| wrong(error.to_string()))?;
        found.push((name, tensor));
    }
    let pick = |spec: &TensorSpec| {
        let at = found.iter().position(|(name, _)| **name == *spec.name);
        let at = at.ok_or_else(|| failed(format!("output {} is missing", Quoted(&spec.name))))?;
        Ok((spec.name.clone(), described(found.swap_remove(at).1, spec, rows)))
    };
    let outputs = signature.outputs.iter().map(pick).collect::<Result<_, _>>()?;
    Tensors::new(outputs).map_err(|error| failed(error.to_string()))
}

/// The tensor in the shape that the server's description gives it, where they differ by axes of one: MLServer describes `[-1]` and answers
/// `[n, 1]`.
fn described(tensor: Tensor, spec: &TensorSpec, rows: usize) -> Tensor {
    let dims = spec.dims.iter().copied();
    let shape: Option<Vec<usize>> = [Some(rows)].into_iter().chain(dims).collect();
    let long = |shape: &[usize]| shape.iter().copied().filter(|&length| length != 1).collect::<Vec<_>>();
    match shape {
        Some(shape) if shape != tensor.shape() && long(&shape) == long(tensor.shape()) => {
            let (_, data) = tensor.into_parts();
            Tensor::new(shape, data).expect("as many elements")
        }
        _ => tensor,
    }
}

/// What the model takes and gives, by the server's description. Fails with a sentence for the operator.
pub(super) fn signature(metadata: &Metadata) -> Result<Signature, String> {
    if metadata.runs_requests_whole() {
        return Err(
            "its server runs each request by itself, since rows may change each other's answers: requests cannot be \
                    merged for it"
                .into(),
        );
    }
    let of = |what: &str, described: &[Described]| {
        if described.is_empty() {
            return Err(format!("its description names no {what}s; give it some in that server's configuration"));
        }
        described.iter().map(|tensor| spec(what, tensor)).collect::<Result<Vec<_>, _>>()
    };
    Ok(Signature { inputs: of("input", &metadata.inputs)?, outputs: of("output", &metadata.outputs)? })
}

fn spec(what: &str, Described { name, datatype, shape }: &Described) -> Result<TensorSpec, String> {
    let shown = Quoted(name);
    let datatype = DataType::from_name(datatype)
        .ok_or_else(|| format!("{what} {shown} has type {}, which is not known here", Quoted(datatype)))?;
    let Some((-1, dims)) = shape.split_first() else {
        return Err(format!(
            "{what} {shown} has shape {}: only models whose first axis is free (-1), one index a row, can have batches",
            Dims(shape)
        ));
    };
    let dims = dims.iter().map(|&dim| usize::try_from(dim).ok()).collect();
    Ok(TensorSpec::new(name.as_str(), datatype, dims))
}

/// Elements as a flat JSON list.
fn json(data: &Data) -> Result<Box<RawValue>, RunnerError> {
    if is_infinite(data) {
        return Err(RunnerError::Input(
            "an infinite number cannot be sent on: the server behind this one takes JSON, which has none".into(),
        ));
    }
    let floats = |numbers: Vec<f32>| serde_json::value::to_raw_value(&numbers);
    let value = match data {
        Data::Bool(v) => serde_json::value::to_raw_value(v),
        Data::Uint8(v) => serde_json::value::to_raw_value(v),
        Data::Uint16(v) => serde_json::value::to_raw_value(v),
        Data::Uint32(v) => serde_json::value::to_raw_value(v),
        Data::Uint64(v) => serde_json::value::to_raw_value(v),
        Data::Int8(v) => serde_json::value::to_raw_value(v),
        Data::Int16(v) => serde_json::value::to_raw_value(v),
        Data::Int32(v) => serde_json::value::to_raw_value(v),
        Data::Int64(v) => serde_json::value::to_raw_value(v),
        Data::Fp16(v) => floats(v.iter().map(|x| x.to_f32()).collect()),
        Data::Bf16(v) => floats(v.iter().map(|x| x.to_f32()).collect()),
        Data::Fp32(v) => serde_json::value::to_raw_value(v),
        Data::Fp64(v) => serde_json::value::to_raw_value(v),
        Data::Bytes(v) => {
            let text = |bytes| {
                std::str::from_utf8(bytes).map_err(|_| {
                    RunnerError::Input(
                        "byte strings must be UTF-8: the server behind this one takes them as JSON".into(),
                    )
                })
            };
            serde_json::value::to_raw_value(&v.iter().map(|bytes| text(bytes)).collect::<Result<Vec<_>, _>>()?)
        }
    };
    value.map_err(|error| RunnerError::Failed(error.to_string()))
}

/// Whether an element is infinite: JSON would make `null` of it, which is read as no number.
fn is_infinite(data: &Data) -> bool {
    match data {
        Data::Fp16(v) => v.iter().any(|x| x.is_infinite()),
        Data::Bf16(v) => v.iter().any(|x| x.is_infinite()),
        Data::Fp32(v) => v.iter().any(|x| x.is_infinite()),
        Data::Fp64(v) => v.iter().any(|x| x.is_infinite()),
        _ => false,
    }
}

/// The elements of a JSON list, nested or flat.
fn elements(json: &RawValue, datatype: DataType) -> Result<Data, String> {
    let value: Value = serde_json::from_str(json.get()).map_err(|error| error.to_string())?;
    let mut leaves = Vec::new();
    flatten(&value, &mut leaves);
    let wrong = |leaf: &Value| format!("{} is no {}", Quoted(&leaf.to_string()), datatype.name());
    macro_rules! all {
        ($variant:ident, $read:expr) => {
            Data::$variant(leaves.iter().map(|leaf| $read(leaf).ok_or_else(|| wrong(leaf))).collect::<Result<_, _>>()?)
        };
    }
    fn unsigned<T: TryFrom<u64>>(leaf: &Value) -> Option<T> {
        T::try_from(leaf.as_u64()?).ok()
    }
    fn signed<T: TryFrom<i64>>(leaf: &Value) -> Option<T> {
        T::try_from(leaf.as_i64()?).ok()
    }
    // JSON has no number for what is not finite: it comes as null, or by name.
    fn float(leaf: &Value) -> Option<f64> {
        match leaf {
            Value::Null => Some(f64::NAN),
            Value::String(name) => name.parse().ok(),
            leaf => leaf.as_f64(),
        }
    }
    Ok(match datatype {
        DataType::Bool => all!(Bool, |leaf: &Value| leaf.as_bool().or_else(|| leaf.as_u64().map(|n| n != 0))),
        DataType::Uint8 => all!(Uint8, unsigned),
        DataType::Uint16 => all!(Uint16, unsigned),
        DataType::Uint32 => all!(Uint32, unsigned),
        DataType::Uint64 => all!(Uint64, unsigned),
        DataType::Int8 => all!(Int8, signed),
        DataType::Int16 => all!(Int16, signed),
        DataType::Int32 => all!(Int32, signed),
        DataType::Int64 => all!(Int64, signed),
        DataType::Fp16 => all!(Fp16, |leaf| float(leaf).map(f16_from_f64)),
        DataType::Bf16 => all!(Bf16, |leaf| float(leaf).map(bf16_from_f64)),
        DataType::Fp32 => all!(Fp32, |leaf| float(leaf).map(|x| x as f32)),
        DataType::Fp64 => all!(Fp64, float),
        DataType::Bytes => all!(Bytes, |leaf: &Value| leaf.as_str().map(|text| text.as_bytes().to_vec())),
    })
}

fn flatten<'a>(value: &'a Value, leaves: &mut Vec<&'a Value>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| flatten(item, leaves)),
        leaf => leaves.push(leaf),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Tensors {
        let x = Tensor::new(vec![2, 2], Data::Fp32(vec![1.0, 2.5, -3.0, 0.0])).unwrap();
        let names = Tensor::new(vec![2], Data::Bytes(vec![b"a".to_vec(), b"bc".to_vec()])).unwrap();
        Tensors::new(vec![("x".into(), x), ("names".into(), names)]).unwrap()
    }

    fn signature_of(batch: &Tensors) -> Signature {
        let specs: Vec<_> = batch
            .iter()
            .map(|(name, t)| {
                TensorSpec::new(name.clone(), t.data().datatype(), t.shape()[1..].iter().copied().map(Some).collect())
            })
            .collect();
        Signature { inputs: specs.clone(), outputs: specs }
    }

    #[test]
    fn what_an_echo_would_answer_is_the_batch_again() {
        for is_binary in [true, false] {
            let (body, head) = encode(&batch(), is_binary).unwrap();
            let (json, binary) = body.split_at(head.unwrap_or(body.len()));
            let json = String::from_utf8(json.to_vec()).unwrap().replace("\"inputs\"", "\"outputs\"");
            let answer = [json.as_bytes(), binary].concat();
            assert_eq!(decode(&answer, head.map(|_| json.len()), 2, &signature_of(&batch())), Ok(batch()), "{json}");
        }
    }

    #[test]
    fn nested_lists_are_read_and_what_is_missing_or_wrong_is_told() {
        let signature = signature_of(&Tensors::one("y", Tensor::new(vec![1, 2], Data::Int64(vec![0, 0])).unwrap()));
        let of = |data: &str| {
            let body = format!(r#"{{"outputs":[{{"name":"y","datatype":"INT64","shape":[1,2],"data":{data}}}]}}"#);
            decode(body.as_bytes(), None, 1, &signature).map_err(|error| error.to_string())
        };
        assert_eq!(of("[[4,5]]").unwrap().get("y").unwrap().data(), &Data::Int64(vec![4, 5]));
        assert!(of("[[4,5.5]]").unwrap_err().ends_with("output 'y': '5.5' is no INT64"));
        assert!(of("[4]").is_err());
        assert!(
            decode(br#"{"outputs":[]}"#, None, 1, &signature)
                .unwrap_err()
                .to_string()
                .ends_with("output 'y' is missing")
        );
        assert!(decode(b"{}", Some(3), 1, &signature).unwrap_err().to_string().ends_with("fewer than 3 bytes"));
    }

    #[test]
    fn halves_are_rounded_once() {
        let read = |datatype, json: &str| elements(serde_json::from_str(json).unwrap(), datatype).unwrap();
        // Just beside the middle of two.
        let half = read(DataType::Fp16, "[1.0004882818, 65519.9999]");
        assert_eq!(half, Data::Fp16([1.000_976_6, 65504.0].map(half::f16::from_f32).to_vec()));
        let half = read(DataType::Bf16, "[1.00390625000001]");
        assert_eq!(half, Data::Bf16(vec![half::bf16::from_f32(1.007_812_5)]));
    }

    /// MLServer 1.7 does so.
    #[test]
    fn an_output_with_axes_of_one_that_its_description_lacks_gets_the_described_shape() {
        let signature = signature_of(&Tensors::one("y", Tensor::new(vec![2], Data::Int64(vec![0, 0])).unwrap()));
        let of = |shape: &str| {
            let body = format!(r#"{{"outputs":[{{"name":"y","datatype":"INT64","shape":{shape},"data":[4,4]}}]}}"#);
            decode(body.as_bytes(), None, 2, &signature).unwrap().get("y").unwrap().shape().to_vec()
        };
        assert_eq!((of("[2]"), of("[2,1]"), of("[1,2]")), (vec![2], vec![2], vec![2]));
    }

    #[test]
    fn an_output_whose_axes_are_in_another_order_is_not_taken_for_the_described_one() {
        let y = Tensor::new(vec![2, 3], Data::Int64(vec![0; 6])).unwrap();
        let body = r#"{"outputs":[{"name":"y","datatype":"INT64","shape":[3,2],"data":[0,1,2,3,4,5]}]}"#;
        let outputs = decode(body.as_bytes(), None, 2, &signature_of(&Tensors::one("y", y))).unwrap();
        assert_eq!(outputs.get("y").unwrap().shape(), [3, 2], "whoever checks it against the description refuses it");
    }

    #[test]
    fn a_model_without_rows_or_without_a_description_is_refused_in_words() {
        let of = |json: &str| signature(&serde_json::from_str(json).unwrap()).map_err(|why| why.to_string());
        let y = r#""outputs":[{"name":"y","datatype":"FP32","shape":[-1]}]"#;
        let signature =
            of(&format!(r#"{{"inputs":[{{"name":"x","datatype":"FP32","shape":[-1,-1,3]}}],{y}}}"#)).unwrap();
        assert_eq!(signature.inputs[0].dims, [None, Some(3)]);
        assert!(of(&format!(r#"{{"inputs":[],{y}}}"#)).unwrap_err().contains("names no inputs"));
        let fixed = of(&format!(r#"{{"inputs":[{{"name":"x","datatype":"FP32","shape":[1,3]}}],{y}}}"#));
        assert!(fixed.unwrap_err().contains("input 'x' has shape [1, 3]"));
        let x = r#""inputs":[{"name":"x","datatype":"FP32","shape":[-1,3]}]"#;
        let with_rows = |rows: &str| of(&format!(r#"{{{x},{y},"parameters":{{"rows":"{rows}"}}}}"#));
        assert!(with_rows("whole").unwrap_err().contains("requests cannot be merged"));
        assert!(with_rows("one by one").is_ok(), "each row is answered as if it came alone");
    }

    #[test]
    fn an_infinite_number_is_refused_where_json_would_make_none_of_it() {
        let one = |x: f32| json(&Data::Fp32(vec![0.0, x]));
        assert_eq!(one(1.5).unwrap().get(), "[0.0,1.5]");
        for x in [f32::INFINITY, f32::NEG_INFINITY] {
            assert!(matches!(one(x), Err(RunnerError::Input(_))));
        }
        assert!(matches!(json(&Data::Fp64(vec![f64::INFINITY])), Err(RunnerError::Input(_))));
    }
}
