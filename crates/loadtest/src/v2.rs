//! The Open Inference Protocol, version 2: which models there are, what they take, and random requests for them, also in
//! binary tensors and as TensorFlow Serving's REST API has them.

use std::collections::BTreeMap;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde::Deserialize;
use serde_json::{Value, json};

use super::bodies::Body;
use super::exposition::Exposition;
use super::grpc;
use super::place::{Place, Url};

/// Bodies of one number of rows that take turns: enough that no cache answers them all.
const BODIES: usize = 64;
/// Bytes of all bodies together.
const MOST_BYTES: usize = 64 << 20;
/// Numbers of one body: more would be a body that no server takes.
const MOST_NUMBERS: usize = 16 << 20;

/// How requests are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// The Open Inference Protocol v2 in JSON.
    #[default]
    Json,
    /// The same with binary tensors, both ways.
    Binary,
    /// TensorFlow Serving's `:predict`, row by row.
    Predict,
    /// The Open Inference Protocol v2 over gRPC, with raw tensors.
    Grpc,
}

/// An input of a model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Input {
    /// Its name.
    pub name: String,
    /// Its type, such as FP32.
    pub datatype: String,
    /// Its dimensions; -1 is any length.
    pub shape: Vec<i64>,
}

/// What a server says about a model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Metadata {
    /// The model's name.
    pub name: String,
    /// What it takes.
    pub inputs: Vec<Input>,
}

/// Asks for a model's metadata over gRPC.
///
/// # Errors
/// The server does not say, in a sentence.
pub fn metadata_by_grpc(place: &Place, headers: &[(String, String)], model: &str) -> Result<Metadata, String> {
    let headers: Vec<_> = headers.iter().cloned().chain(grpc::headers()).collect();
    let (status, answer) = place.ask("POST", grpc::METADATA, &headers, Some(&grpc::metadata_request(model)))?;
    if status != 200 {
        let words = String::from_utf8_lossy(&answer).into_owned();
        return Err(format!(
            "model '{model}': ModelMetadata was refused ({words}); is that its name, and this its address?"
        ));
    }
    grpc::metadata(&answer).ok_or_else(|| "ModelMetadata was not answered as the Open Inference Protocol has it".into())
}

/// Asks for a model's metadata.
///
/// # Errors
/// The server does not say, in a sentence.
pub fn metadata(place: &Place, url: &Url, headers: &[(String, String)], model: &str) -> Result<Metadata, String> {
    let path = url.below(&format!("/v2/models/{model}"));
    let (status, body) = place.ask("GET", &path, headers, None)?;
    if status != 200 {
        let words = refused("GET", &path, status, &body);
        return Err(format!("model '{model}': {words}; is that its name, and this its URL?"));
    }
    let metadata: Result<Metadata, _> = serde_json::from_slice(&body);
    metadata.map_err(|error| {
        format!(
            "GET {path} is not as the Open Inference Protocol has it ({error}); give bodies with --body or --request"
        )
    })
}

/// That a request was not answered with 200, and with which words.
fn refused(method: &str, path: &str, status: u16, body: &[u8]) -> String {
    let error = serde_json::from_slice::<Value>(body).ok();
    let words = error.as_ref().and_then(|error| error["error"].as_str()).unwrap_or("no words");
    format!("{method} {path} was answered {status} ({words})")
}

/// The only model of a server.
///
/// # Errors
/// There are several, or the server does not say.
pub fn only_model(place: &Place, url: &Url, headers: &[(String, String)]) -> Result<String, String> {
    let path = url.below("/v2/repository/index");
    let index = place.ask("POST", &path, headers, Some(b"{}"));
    let silence = match &index {
        Ok((200, _)) => None,
        Ok((status, body)) => Some(refused("POST", &path, *status, body)),
        Err(why) => Some(why.clone()),
    };
    let mut names: Vec<String> = match index {
        Ok((200, body)) => {
            let models: Vec<Value> = serde_json::from_slice(&body).unwrap_or_default();
            let ready = models.iter().filter(|model| model["state"].as_str().is_none_or(|state| state == "READY"));
            ready.filter_map(|model| model["name"].as_str().map(str::to_owned)).collect()
        }
        // uncork's own metrics name every model.
        _ => Exposition::of(place, url, headers).map(|exposition| exposition.models()).unwrap_or_default(),
    };
    names.sort_unstable();
    names.dedup();
    match &names[..] {
        [only] => Ok(only.clone()),
        [] => {
            let why = silence.map_or(String::new(), |why| format!(" ({why})"));
            Err(format!(
                "--model is missing, and the server does not say which models it has{why}; give --model, or say what to send to a \
                 server without any: --get, --request FILE, or --body FILE with a path in the URL"
            ))
        }
        several => Err(format!("--model is missing; the server has {}", several.join(", "))),
    }
}

/// Random bodies for each number of rows. Floats are from -1 to 1; integers are 0, which indexes every table, but 1 where
/// the input's name speaks of a mask; booleans are true.
///
/// `shapes` has the dimensions of a row for inputs that leave them open.
///
/// # Errors
/// An input that cannot be made up, with what to give.
pub fn random_bodies(
    metadata: &Metadata,
    shapes: &[(String, Vec<usize>)],
    sizes: &[usize],
    form: Form,
    seed: u64,
) -> Result<BTreeMap<usize, Vec<Body>>, String> {
    if let Some((unknown, _)) = shapes.iter().find(|(name, _)| metadata.inputs.iter().all(|input| input.name != *name))
    {
        let known: Vec<&str> = metadata.inputs.iter().map(|input| input.name.as_str()).collect();
        return Err(format!("--shape {unknown}: there is no such input; the model's are {}", known.join(", ")));
    }
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x626f_6479);
    let mut by_rows = BTreeMap::new();
    for &rows in sizes {
        let mut bodies: Vec<Body> = Vec::new();
        while bodies.len() < BODIES {
            let body = random_body(metadata, shapes, rows, form, &mut chance)?;
            let room = MOST_BYTES / sizes.len() / body.bytes.len().max(1);
            bodies.push(body);
            if bodies.len() >= room {
                break;
            }
        }
        by_rows.insert(rows, bodies);
    }
    Ok(by_rows)
}

fn random_body(
    metadata: &Metadata,
    shapes: &[(String, Vec<usize>)],
    rows: usize,
    form: Form,
    chance: &mut Xoshiro256PlusPlus,
) -> Result<Body, String> {
    let mut inputs = Vec::new();
    for input in &metadata.inputs {
        let own = shapes.iter().find(|(name, _)| *name == input.name).map(|(_, dims)| dims.as_slice());
        let shape = shape(input, own, rows)?;
        let numbers = shape.iter().try_fold(1usize, |all, dim| all.checked_mul(*dim));
        let numbers = numbers.filter(|numbers| *numbers <= MOST_NUMBERS);
        let Some(numbers) = numbers else {
            return Err(format!(
                "input '{}' of shape {shape:?} is too large to make up; give bodies with --body",
                input.name
            ));
        };
        inputs.push(Made { input, shape, numbers: made_up(input, numbers, chance)? });
    }
    let (bytes, json) = match form {
        Form::Json => (in_json(&inputs), None),
        Form::Binary => {
            let (bytes, json) = in_binary(&inputs);
            (bytes, Some(json))
        }
        Form::Predict => (in_rows(&inputs, rows)?, None),
        Form::Grpc => (in_grpc(&metadata.name, &inputs), None),
    };
    Ok(Body { bytes, json, rows, expected: None })
}

/// An input's tensor.
struct Made<'a> {
    input: &'a Input,
    shape: Vec<usize>,
    numbers: Vec<f64>,
}

impl Made<'_> {
    fn elements(&self) -> Vec<Value> {
        let element = |number: &f64| match self.input.datatype.as_str() {
            "BOOL" => json!(*number != 0.0),
            datatype if datatype.contains("FP") || datatype == "BF16" => json!(number),
            _ => json!(*number as u8),
        };
        self.numbers.iter().map(element).collect()
    }

    /// Little-endian, as the protocol has them.
    fn bytes(&self) -> Vec<u8> {
        let of = |number: &f64| -> Vec<u8> {
            let whole = *number as u8;
            match self.input.datatype.as_str() {
                "FP64" => number.to_le_bytes().to_vec(),
                "FP32" => (*number as f32).to_le_bytes().to_vec(),
                "FP16" => half::f16::from_f64(*number).to_le_bytes().to_vec(),
                "BF16" => half::bf16::from_f64(*number).to_le_bytes().to_vec(),
                "INT64" | "UINT64" => u64::from(whole).to_le_bytes().to_vec(),
                "INT32" | "UINT32" => u32::from(whole).to_le_bytes().to_vec(),
                "INT16" | "UINT16" => u16::from(whole).to_le_bytes().to_vec(),
                _ => vec![whole],
            }
        };
        self.numbers.iter().flat_map(of).collect()
    }
}

fn in_json(inputs: &[Made<'_>]) -> Vec<u8> {
    let input = |made: &Made<'_>| {
        let Input { name, datatype, .. } = made.input;
        json!({"name": name, "shape": made.shape, "datatype": datatype, "data": made.elements()})
    };
    json!({"inputs": inputs.iter().map(input).collect::<Vec<_>>()}).to_string().into_bytes()
}

/// A request whose tensors come behind its JSON, and the length of that.
fn in_binary(inputs: &[Made<'_>]) -> (Vec<u8>, usize) {
    let mut tensors = Vec::new();
    let input = |made: &Made<'_>| {
        let (Input { name, datatype, .. }, bytes) = (made.input, made.bytes());
        let parameters = json!({"binary_data_size": bytes.len()});
        tensors.extend(bytes);
        json!({"name": name, "shape": made.shape, "datatype": datatype, "parameters": parameters})
    };
    let inputs: Vec<Value> = inputs.iter().map(input).collect();
    let json = json!({"inputs": inputs, "parameters": {"binary_data_output": true}}).to_string().into_bytes();
    let length = json.len();
    ([json, tensors].concat(), length)
}

/// A message of gRPC with raw tensors.
fn in_grpc(model: &str, inputs: &[Made<'_>]) -> Vec<u8> {
    let tensor = |made: &Made<'_>| {
        let Input { name, datatype, .. } = made.input;
        (name.clone(), datatype.clone(), made.shape.iter().map(|&dim| dim as i64).collect(), made.bytes())
    };
    grpc::request(model, inputs.iter().map(tensor).collect())
}

/// `{"instances": […]}`: each row as it is, of a model with one input, else by name. A scalar, which has no rows, is in each.
fn in_rows(inputs: &[Made<'_>], rows: usize) -> Result<Vec<u8>, String> {
    let each: Vec<Vec<Value>> = inputs.iter().map(|made| nested(made.elements(), &made.shape)).collect();
    let empty = inputs.iter().zip(&each).find(|(_, items)| items.is_empty());
    if let Some((Made { input, shape, .. }, _)) = empty {
        return Err(format!(
            "input '{}' of shape {shape:?} is empty: no row can be written; use --as json, or --body",
            input.name
        ));
    }
    let item = |items: &Vec<Value>, row| items.get(row).unwrap_or(&items[0]).clone();
    let row = |row: usize| match (inputs, &each[..]) {
        ([_], [only]) => item(only, row),
        _ => inputs.iter().zip(&each).map(|(made, items)| (made.input.name.clone(), item(items, row))).collect(),
    };
    Ok(json!({"instances": (0..rows).map(row).collect::<Vec<_>>()}).to_string().into_bytes())
}

/// The items of the outermost list of a tensor.
fn nested(elements: Vec<Value>, shape: &[usize]) -> Vec<Value> {
    let mut items = elements;
    for &dim in shape.iter().skip(1).rev() {
        items = items.chunks(dim.max(1)).map(|chunk| Value::from(chunk.to_vec())).collect();
    }
    items
}

fn shape(input: &Input, own: Option<&[usize]>, rows: usize) -> Result<Vec<usize>, String> {
    let name = &input.name;
    let Some((&first, rest)) = input.shape.split_first() else { return Ok(Vec::new()) };
    let first = match usize::try_from(first) {
        Err(_) => rows,
        Ok(fixed) if fixed == rows => rows,
        Ok(fixed) => {
            return Err(format!(
                "input '{name}' has a fixed first dimension, {fixed}, which is not {rows}: give --rows {fixed} if these are rows, \
                 or else bodies with --body"
            ));
        }
    };
    if let Some(own) = own {
        let fits = own.len() == rest.len() && own.iter().zip(rest).all(|(own, dim)| *dim < 0 || *own as i64 == *dim);
        if !fits {
            return Err(format!(
                "--shape {name}: its rows are of shape {rest:?}, in which -1 is any length; not {own:?}"
            ));
        }
        return Ok(std::iter::once(first).chain(own.iter().copied()).collect());
    }
    let rest: Result<Vec<usize>, _> = rest.iter().map(|dim| usize::try_from(*dim)).collect();
    let Ok(rest) = rest else {
        let open = &input.shape[1..];
        return Err(format!(
            "input '{name}' leaves dimensions of a row open, {open:?}; give them, as in --shape {name}:64"
        ));
    };
    Ok(std::iter::once(first).chain(rest).collect())
}

fn made_up(input: &Input, numbers: usize, chance: &mut Xoshiro256PlusPlus) -> Result<Vec<f64>, String> {
    // Four decimals: bodies are then about as long as those of real data.
    let mut float = || f64::from(chance.random_range(-10_000i32..=10_000)) / 1e4;
    match input.datatype.as_str() {
        "FP16" | "FP32" | "FP64" | "BF16" => Ok((0..numbers).map(|_| float()).collect()),
        "BOOL" => Ok(vec![1.0; numbers]),
        "INT8" | "INT16" | "INT32" | "INT64" | "UINT8" | "UINT16" | "UINT32" | "UINT64" => {
            Ok(vec![if input.name.contains("mask") { 1.0 } else { 0.0 }; numbers])
        }
        other => Err(format!(
            "input '{}' is of type {other}, which nobody can make up; give bodies with --body, for a model that takes any body to \
                 URL/models/NAME",
            input.name
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(datatype: &str, shape: &[i64]) -> Metadata {
        let input = Input { name: "x".into(), datatype: datatype.into(), shape: shape.to_vec() };
        Metadata { name: "m".into(), inputs: vec![input] }
    }

    #[test]
    fn random_bodies_have_the_rows_and_shapes_asked_for_and_differ() {
        let open = metadata("FP32", &[-1, -1, 2]);
        let bodies = random_bodies(&open, &[("x".into(), vec![3, 2])], &[1, 4], Form::Json, 7).unwrap();
        assert_eq!(bodies, random_bodies(&open, &[("x".into(), vec![3, 2])], &[1, 4], Form::Json, 7).unwrap());
        for (rows, bodies) in bodies {
            assert_eq!(bodies.len(), BODIES);
            assert_ne!(bodies[0], bodies[1]);
            let body: Value = serde_json::from_slice(&bodies[0].bytes).unwrap();
            assert_eq!(body["inputs"][0]["shape"], json!([rows, 3, 2]));
            assert_eq!(body["inputs"][0]["data"].as_array().unwrap().len(), rows * 6);
        }
    }

    #[test]
    fn what_cannot_be_made_up_is_told_with_what_to_give() {
        let error = |metadata: &Metadata, shapes: &[(String, Vec<usize>)], rows| {
            random_bodies(metadata, shapes, &[rows], Form::Json, 1).unwrap_err()
        };
        for (found, words) in [
            (error(&metadata("FP32", &[-1, -1]), &[], 1), "--shape x:64"),
            (error(&metadata("FP32", &[-1, 3]), &[("x".into(), vec![4])], 1), "not [4]"),
            (error(&metadata("FP32", &[-1, 3]), &[("y".into(), vec![4])], 1), "the model's are x"),
            (error(&metadata("FP32", &[8, 3]), &[], 1), "--rows 8 if these are rows, or else bodies with --body"),
            (error(&metadata("BYTES", &[-1, 3]), &[], 1), "--body"),
            (error(&metadata("FP32", &[-1, i64::MAX]), &[], 2), "too large"),
        ] {
            assert!(found.contains(words), "{found}");
        }
    }

    #[test]
    fn the_same_numbers_are_written_in_every_form() {
        let mut two = metadata("FP32", &[-1, 2]);
        two.inputs.push(Input { name: "mask".into(), datatype: "INT16".into(), shape: vec![-1, 1] });
        let body = |form| random_bodies(&two, &[], &[2], form, 3).unwrap()[&2][0].clone();
        let (json, binary, rows) = (body(Form::Json), body(Form::Binary), body(Form::Predict));
        let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        let wanted = read(&json.bytes)["inputs"].clone();
        let at = binary.json.unwrap();
        let head = read(&binary.bytes[..at]);
        assert_eq!(head["inputs"][0]["parameters"]["binary_data_size"], json!(16));
        let floats = binary.bytes[at..at + 16].chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
        let floats: Vec<f32> = floats.collect();
        assert_eq!(json!(floats), json!(serde_json::from_value::<Vec<f32>>(wanted[0]["data"].clone()).unwrap()));
        assert_eq!(binary.bytes[at + 16..], [1, 0, 1, 0]);
        let rows = read(&rows.bytes);
        let x: Vec<Value> = rows["instances"].as_array().unwrap().iter().map(|row| row["x"].clone()).collect();
        assert_eq!(json!([[x[0][0], x[0][1]], [x[1][0], x[1][1]]]), json!(x));
        assert_eq!(json!([x[0][0], x[0][1], x[1][0], x[1][1]]), wanted[0]["data"]);
        assert_eq!(rows["instances"][1]["mask"], json!([1]));
        let one = random_bodies(&metadata("FP32", &[-1, 2]), &[], &[1], Form::Predict, 3).unwrap()[&1][0].clone();
        assert_eq!(read(&one.bytes)["instances"][0].as_array().unwrap().len(), 2, "the only input has no name");
    }

    #[test]
    fn a_scalar_is_in_each_row_and_what_has_no_rows_is_told() {
        let mut two = metadata("FP32", &[-1, 2]);
        two.inputs.push(Input { name: "rate".into(), datatype: "INT64".into(), shape: vec![] });
        let bodies = random_bodies(&two, &[], &[3], Form::Predict, 3).unwrap();
        let body: Value = serde_json::from_slice(&bodies[&3][0].bytes).unwrap();
        let rates: Vec<&Value> = body["instances"].as_array().unwrap().iter().map(|row| &row["rate"]).collect();
        assert_eq!(rates, [&json!(0); 3]);
        let empty = random_bodies(&metadata("FP32", &[-1, 0]), &[], &[2], Form::Predict, 3).unwrap_err();
        assert!(empty.contains("[2, 0] is empty"), "{empty}");
    }
}
