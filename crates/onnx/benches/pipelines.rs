//! Exports of classical pipelines beside onnxruntime's answers, as `pipelines.py` writes them: each row alone, all
//! rows in one batch, and batches of several requests.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;

use serde_json::Value as Json;
use uncork_model::runner::{Rows, Runner, TensorSpec};
use uncork_model::tensor::{Data, Tensor, Tensors};
use uncork_onnx::{OnnxModel, OnnxRunner};

/// Largest difference to onnxruntime, absolute plus relative.
const TOLERANCE: f64 = 1e-4;

type Failure = Box<dyn std::error::Error>;

/// Runs every pipeline of a folder whose name contains `filter`. Fails if one is refused or answered wrongly.
pub(crate) fn run(folder: &Path, filter: &str) -> ExitCode {
    let names = fs::read_dir(folder).map(|entries| {
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter_map(|name| name.strip_suffix(".onnx").map(str::to_owned)).collect()
    });
    let mut names: Vec<String> = names.unwrap_or_default();
    names.retain(|name| name.contains(filter));
    names.sort();
    if names.is_empty() {
        eprintln!(
            "no pipelines in {}: write them with python3 crates/onnx/benches/pipelines.py FOLDER",
            folder.display()
        );
        return ExitCode::from(3);
    }
    let failed = names.iter().filter_map(|name| {
        let error = check(folder, name).err()?;
        println!("{name}: {error}");
        Some(())
    });
    let right = names.len() - failed.count();
    println!("of {} pipelines {right} are answered as by onnxruntime", names.len());
    if right == names.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn check(folder: &Path, name: &str) -> Result<(), Failure> {
    let model = OnnxModel::open(&folder.join(format!("{name}.onnx")))?;
    if let Some(why) = model.alone() {
        return Err(format!("its rows are run one at a time: {why}").into());
    }
    let record: Json = serde_json::from_slice(&fs::read(folder.join(format!("{name}.json")))?)?;
    let signature = model.signature();
    let inputs = rows_first(tensors(&record["inputs"])?, &signature.inputs)?;
    let outputs = rows_first(tensors(&record["outputs"])?, &signature.outputs)?;
    let mut runner = model.runner(NonZeroUsize::MIN);
    let rows = inputs.rows();
    compare(&mut runner, vec![inputs.clone()], &outputs, "in a batch")?;
    let alone = vec![1; rows];
    for (i, (input, output)) in
        inputs.clone().split(&alone)?.into_iter().zip(outputs.clone().split(&alone)?).enumerate()
    {
        compare(&mut runner, vec![input], &output, &format!("row {i} alone"))?;
    }
    // A request of three rows, one of one, and what is left.
    let requests = [rows.min(3), usize::from(rows > 3), rows.saturating_sub(4)];
    let parts = inputs.split(&requests.into_iter().filter(|n| *n > 0).collect::<Vec<_>>())?;
    compare(&mut runner, parts, &outputs, "in a batch of several requests")
}

/// Tensors of a file with the axis of the rows in front, as a runner has them.
fn rows_first(tensors: Tensors, specs: &[TensorSpec]) -> Result<Tensors, Failure> {
    let axis = |name: &str| match specs.iter().find(|spec| &*spec.name == name)?.rows {
        Rows::Axis(axis) => Some(axis),
        Rows::Shared => None,
    };
    let moved = tensors.into_entries().into_iter().map(|(name, tensor)| match axis(&name) {
        Some(axis) => (name, tensor.axis_to_front(axis)),
        None => (name, tensor),
    });
    Ok(Tensors::new(moved.collect())?)
}

/// Runs requests in one batch and compares the answer.
fn compare(runner: &mut OnnxRunner, requests: Vec<Tensors>, expected: &Tensors, what: &str) -> Result<(), Failure> {
    let checked =
        requests.into_iter().map(|request| runner.signature().check(request)).collect::<Result<Vec<_>, _>>()?;
    let batch = Tensors::join(checked)?;
    let rows = batch.rows();
    let found = runner.run(batch).map_err(|e| format!("{what}: {e}"))?;
    if !runner.signature().agrees(&found, rows) {
        return Err(format!("{what}: the answer breaks the signature").into());
    }
    for (name, expected) in expected.iter() {
        let found = found.get(name).ok_or_else(|| format!("there is no output '{name}'"))?;
        if found.shape() != expected.shape() {
            return Err(
                format!("{what}: '{name}' has the shape {:?}, not {:?}", found.shape(), expected.shape()).into()
            );
        }
        if let Some(difference) = difference(found.data(), expected.data()) {
            return Err(format!("{what}: '{name}' {difference}").into());
        }
    }
    Ok(())
}

/// How elements differ, if they do.
fn difference(found: &Data, expected: &Data) -> Option<String> {
    if found.datatype() != expected.datatype() {
        return Some(format!("is {}, not {}", found.datatype().name(), expected.datatype().name()));
    }
    let (Some(a), Some(b)) = (floats(found), floats(expected)) else {
        return (found != expected).then(|| format!("is {found:?}, not {expected:?}"));
    };
    let far =
        |(a, b): (&f64, &f64)| !(a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= TOLERANCE * (1.0 + b.abs()));
    let at = a.iter().zip(&b).position(far)?;
    Some(format!("has {}, not {}, at {at}", a[at], b[at]))
}

fn floats(data: &Data) -> Option<Vec<f64>> {
    match data {
        Data::Fp32(numbers) => Some(numbers.iter().map(|x| f64::from(*x)).collect()),
        Data::Fp64(numbers) => Some(numbers.clone()),
        _ => None,
    }
}

/// The tensors of a record; null is not a number.
/// Numbers, of which one that is none is `null`, and an infinite one a text.
fn numbers(list: &Json) -> Result<Vec<f64>, Failure> {
    let number = |value: &Json| match value {
        Json::Null => Ok(f64::NAN),
        Json::String(text) => Ok(text.parse()?),
        value => value.as_f64().ok_or_else(|| format!("{value} is no number").into()),
    };
    list.as_array().ok_or("a tensor without data")?.iter().map(number).collect()
}

fn tensors(list: &Json) -> Result<Tensors, Failure> {
    let list = list.as_array().ok_or("a record without tensors")?;
    let tensors = list.iter().map(|tensor| {
        let shape: Vec<usize> = serde_json::from_value(tensor["shape"].clone())?;
        let data = tensor["data"].clone();
        let data: Data = match tensor["datatype"].as_str() {
            Some("FP32") => numbers(&data)?.into_iter().map(|x| x as f32).collect::<Vec<_>>().into(),
            Some("FP64") => numbers(&data)?.into(),
            Some("INT64") => serde_json::from_value::<Vec<i64>>(data)?.into(),
            Some("INT32") => serde_json::from_value::<Vec<i32>>(data)?.into(),
            Some("BOOL") => serde_json::from_value::<Vec<bool>>(data)?.into(),
            Some("BYTES") => {
                let texts: Vec<String> = serde_json::from_value(data)?;
                texts.into_iter().map(String::into_bytes).collect::<Vec<_>>().into()
            }
            other => return Err(format!("a tensor of {other:?}").into()),
        };
        let name = tensor["name"].as_str().ok_or("a tensor without a name")?;
        Ok((name.into(), Tensor::new(shape, data)?))
    });
    Ok(Tensors::new(tensors.collect::<Result<_, Failure>>()?)?)
}
