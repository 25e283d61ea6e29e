//! One model, asked as callers ask a server.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use uncork::burn::tensor::{DType, TensorData};
use uncork::onnx::{Graph, read_tensor};
use uncork::registry::{Caps, Model as Served, ModelSpec, Registry, Source, Terms};
use uncork::runner::{Rows, Signature};
use uncork::tensor::{Data, Tensor, Tensors};

use super::list::Model;
use super::{Fate, State};

/// Callers that ask at the same time.
const CALLERS: usize = 8;
/// Far above any batch time: what is tried here is not the speed.
const MAX_LATENCY: Duration = Duration::from_secs(300);

type Failure = Box<dyn std::error::Error>;

/// A row as onnxruntime takes it, and its answer; each in the file's order.
struct Case {
    inputs: Vec<TensorData>,
    outputs: Vec<TensorData>,
}

/// What a model comes to.
pub(super) fn fate(folder: &Path, model: &Model) -> Fate {
    let wrong = |reason: String| Fate { state: State::Wrong, reason };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let (cases, runtime) = match (cases(folder), runtime) {
        (Ok(cases), Ok(runtime)) => (cases, runtime),
        (Err(error), _) => return wrong(format!("its rows cannot be read: {error}")),
        (_, Err(error)) => return wrong(error.to_string()),
    };
    runtime.block_on(async {
        let caps = Caps::new(MAX_LATENCY, CALLERS);
        let spec = ModelSpec::new(&model.name, Source::Onnx(folder.join("model.onnx")), caps);
        let registry = match Registry::load(vec![spec]) {
            Ok(registry) => registry,
            Err(errors) => {
                let reason = errors.iter().next().map(|e| e.reason.clone()).unwrap_or_default();
                let path = format!("{}: ", folder.join("model.onnx").display());
                return Fate { state: State::Refused, reason: reason.replace(&path, "") };
            }
        };
        let Ok(served) = registry.model(&model.name, None) else { return wrong("it is not there".into()) };
        if let Err(error) = unjoined(folder, &cases[0], model.tolerance) {
            return wrong(format!("without joined nodes, {error}"));
        }
        let difference = match answers(&served, &cases, model.tolerance).await {
            Ok(difference) => format!("differs by {difference:.0e}"),
            Err(error) => return wrong(error.to_string()),
        };
        match served.alone() {
            None => Fate { state: State::Right, reason: difference },
            Some(why) => Fate { state: State::Alone, reason: format!("{difference}; {why}") },
        }
    })
}

/// The rows that corpus.py has written.
fn cases(folder: &Path) -> Result<Vec<Case>, Failure> {
    let tensors = |row: &Path, kind: &str| {
        let files = (0..).map(|i| row.join(format!("{kind}_{i}.pb"))).take_while(|file| file.exists());
        files.map(|file| Ok(read_tensor(&fs::read(file)?)?)).collect::<Result<Vec<TensorData>, Failure>>()
    };
    let rows = (0..).map(|row| folder.join(row.to_string())).take_while(|row| row.exists());
    rows.map(|row| Ok(Case { inputs: tensors(&row, "input")?, outputs: tensors(&row, "output")? })).collect()
}

/// Asks for every row alone, for all at once, and by several callers; the largest difference, unless one is too large.
async fn answers(served: &Served, cases: &[Case], tolerance: f64) -> Result<f64, Failure> {
    let signature = served.signature();
    let rows = cases.iter().map(|case| request(signature, &[case])).collect::<Result<Vec<Tensors>, Failure>>()?;
    let mut largest = 0.0f64;
    let mut compare = |answer: &Tensors, (row, of): (usize, usize), case: &Case, what: &str| {
        let difference = difference(signature, answer, (row, of), case, tolerance);
        largest = largest.max(difference.map_err(|e| format!("{what} {e}"))?);
        Ok::<(), Failure>(())
    };
    for (i, (row, case)) in rows.iter().zip(cases).enumerate() {
        let answer = served.infer(row.clone(), Terms::now()).await.map_err(|e| format!("row {i} alone: {e}"))?;
        compare(&answer.outputs, (0, 1), case, &format!("row {i} alone"))?;
    }
    // Where a model has no rows, a request is one run, and others cannot be part of it. Answers of different lengths are no
    // tensor, and a request for them is refused with that reason.
    let shapes = |case: &Case| case.outputs.iter().map(|output| output.shape().to_vec()).collect::<Vec<_>>();
    let are_alike = cases.iter().all(|case| shapes(case) == shapes(&cases[0]));
    if !signature.is_unbatched() && are_alike {
        let together = request(signature, &cases.iter().collect::<Vec<_>>())?;
        let answer = served.infer(together, Terms::now()).await;
        let answer = answer.map_err(|e| format!("{} rows together: {e}", cases.len()))?;
        for (i, case) in cases.iter().enumerate() {
            compare(&answer.outputs, (i, cases.len()), case, &format!("row {i} of a batch"))?;
        }
    }
    let callers = (0..CALLERS).map(|i| served.infer(rows[i % rows.len()].clone(), Terms::now()));
    for (i, answer) in join_all(callers).await.into_iter().enumerate() {
        let answer = answer.map_err(|e| format!("caller {i} of {CALLERS}: {e}"))?;
        compare(&answer.outputs, (0, 1), &cases[i % cases.len()], &format!("caller {i} of {CALLERS}"))?;
    }
    Ok(largest)
}

/// Runs the graph with no nodes joined: what joining could do wrong shows as a difference between the two.
fn unjoined(folder: &Path, case: &Case, tolerance: f64) -> Result<(), Failure> {
    let bytes = fs::read(folder.join("model.onnx"))?;
    // Weights in other files are beyond a graph's bytes.
    let Ok(graph) = Graph::load_joined_by(&bytes, &[]) else { return Ok(()) };
    for (found, expected) in graph.run(case.inputs.clone())?.iter().zip(&case.outputs) {
        let (found, expected) = (found.iter::<f64>().collect::<Vec<_>>(), expected.iter::<f64>().collect::<Vec<_>>());
        if found.len() != expected.len() {
            return Err(format!("it has {} numbers, not {}", found.len(), expected.len()).into());
        }
        farthest(&found, &expected, tolerance).map_err(|e| format!("it has {e}"))?;
    }
    Ok(())
}

/// Rows as one request, in each tensor where the model has them.
fn request(signature: &Signature, cases: &[&Case]) -> Result<Tensors, Failure> {
    let inputs = signature.inputs.iter().enumerate().map(|(i, spec)| {
        let first = &cases[0].inputs[i];
        let mut shape = first.shape().to_vec();
        let tensor = match spec.rows {
            Rows::Axis(axis) if cases.len() > 1 => {
                let inner = shape[axis..].iter().product::<usize>() * first.dtype().size();
                let outer = shape[..axis].iter().product::<usize>();
                let mut bytes = Vec::with_capacity(outer * inner * cases.len());
                for at in 0..outer {
                    cases.iter().for_each(|case| bytes.extend(&case.inputs[i].as_bytes()[at * inner..][..inner]));
                }
                shape[axis] *= cases.len();
                TensorData::from_bytes_vec(bytes, shape.clone(), first.dtype())
            }
            // What all rows share is given once.
            _ => first.clone(),
        };
        Ok((Arc::clone(&spec.name), Tensor::new(shape, data(&tensor)?)?))
    });
    Ok(Tensors::new(inputs.collect::<Result<_, Failure>>()?)?)
}

fn data(given: &TensorData) -> Result<Data, Failure> {
    Ok(match given.dtype() {
        DType::F32 => given.iter::<f32>().collect::<Vec<_>>().into(),
        DType::F64 => given.iter::<f64>().collect::<Vec<_>>().into(),
        DType::F16 => given.iter::<half::f16>().collect::<Vec<_>>().into(),
        DType::I64 => given.iter::<i64>().collect::<Vec<_>>().into(),
        DType::I32 => given.iter::<i32>().collect::<Vec<_>>().into(),
        DType::Bool(_) => given.iter::<bool>().collect::<Vec<_>>().into(),
        other => return Err(format!("rows of {other:?} are not among the corpus' own").into()),
    })
}

fn numbers(data: &Data) -> Result<Vec<f64>, String> {
    Ok(match data {
        Data::Fp32(v) => v.iter().map(|&x| x.into()).collect(),
        Data::Fp64(v) => v.clone(),
        Data::Fp16(v) => v.iter().map(|&x| x.into()).collect(),
        Data::Int64(v) => v.iter().map(|&x| x as f64).collect(),
        Data::Int32(v) => v.iter().map(|&x| x.into()).collect(),
        Data::Bool(v) => v.iter().map(|&x| f64::from(u8::from(x))).collect(),
        other => return Err(format!("is {}", other.datatype().name())),
    })
}

/// The largest difference between the outputs for a row of so many and the expected ones; or what is wrong, in words
/// behind a subject.
fn difference(
    signature: &Signature,
    outputs: &Tensors,
    (row, of): (usize, usize),
    case: &Case,
    tolerance: f64,
) -> Result<f64, String> {
    if outputs.iter().len() != case.outputs.len() {
        return Err(format!("has {} outputs, not {}", outputs.iter().len(), case.outputs.len()));
    }
    let mut largest = 0.0f64;
    for ((spec, (name, found)), expected) in signature.outputs.iter().zip(outputs.iter()).zip(&case.outputs) {
        let mut shape = found.shape().to_vec();
        let mut numbers = numbers(found.data()).map_err(|e| format!("has '{name}', which {e}"))?;
        if let Rows::Axis(axis) = spec.rows
            && shape.get(axis) == Some(&of)
        {
            let inner: usize = shape[axis + 1..].iter().product();
            numbers = numbers.chunks(inner.max(1)).skip(row).step_by(of).flatten().copied().collect();
            shape[axis] = 1;
        }
        // Axes of 1 come and go with the batch.
        let long = |dims: &[usize]| dims.iter().copied().filter(|&d| d != 1).collect::<Vec<_>>();
        if long(&shape) != long(&expected.shape()[..]) {
            return Err(format!("has '{name}' of shape {shape:?}, not {:?}", &expected.shape()[..]));
        }
        let expected: Vec<f64> = expected.iter().collect();
        largest = largest.max(farthest(&numbers, &expected, tolerance).map_err(|e| format!("has in '{name}' {e}"))?);
    }
    Ok(largest)
}

/// The largest difference of two numbers as a part of the largest number; or, where that is too large, what differs.
fn farthest(found: &[f64], expected: &[f64], tolerance: f64) -> Result<f64, String> {
    let scale = expected.iter().fold(1e-4f64, |most, x| most.max(x.abs()));
    let mut largest = 0.0f64;
    for (at, (a, b)) in found.iter().zip(expected).enumerate() {
        let off = if a == b || (a.is_nan() && b.is_nan()) { 0.0 } else { (a - b).abs() / scale };
        if off.is_nan() || off > tolerance {
            return Err(format!("{a}, not {b}, at {at}; the largest is {scale:.3}"));
        }
        largest = largest.max(off);
    }
    Ok(largest)
}
