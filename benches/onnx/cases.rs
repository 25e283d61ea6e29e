//! ONNX's node tests: each is run, and either passes, fails, or needs an operator that is not implemented.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use burn::tensor::TensorData;
use uncork::runner::onnx::{Graph, OnnxError, read_tensor};

/// What became of one test.
enum Fate {
    Passed,
    /// An operator is missing.
    Missing(String),
    Failed(String),
}

/// Passed and failed tests of one operator.
#[derive(Default)]
struct Count {
    passed: usize,
    failed: usize,
}

/// Runs the tests in `folder` whose name contains `filter`; fails if one of those does whose operators are all there.
pub(crate) fn run(folder: &Path, filter: &str) -> ExitCode {
    let entries = fs::read_dir(folder).map(|entries| entries.filter_map(|e| Some(e.ok()?.path())).collect());
    let mut tests: Vec<_> = entries.unwrap_or_default();
    tests.retain(|test| test.join("model.onnx").exists() && name(test).contains(filter));
    tests.sort();
    if tests.is_empty() {
        eprintln!("no tests in {}: write them with python3 benches/onnx/cases.py FOLDER", folder.display());
        return ExitCode::from(3);
    }
    let (mut passed, mut failed) = (0, 0);
    let mut missing: BTreeMap<String, usize> = BTreeMap::new();
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for test in &tests {
        let fate = fate(test).unwrap_or_else(|e| Fate::Failed(e.to_string()));
        let text = fs::read_to_string(test.join("operators")).unwrap_or_default();
        match fate {
            Fate::Passed => {
                passed += 1;
                text.lines().for_each(|operator| counts.entry(operator.to_owned()).or_default().passed += 1);
            }
            Fate::Missing(operator) => *missing.entry(operator).or_default() += 1,
            Fate::Failed(reason) => {
                failed += 1;
                text.lines().for_each(|operator| counts.entry(operator.to_owned()).or_default().failed += 1);
                println!("failed: {}: {reason}", name(test));
            }
        }
    }
    for (operator, Count { passed, failed }) in &counts {
        println!("{operator}: {passed} of {} tests that use it", passed + failed);
    }
    let mut absent: Vec<(String, usize)> = missing.into_iter().collect();
    absent.sort_by_key(|(_, tests)| std::cmp::Reverse(*tests));
    let list: Vec<String> = absent.iter().map(|(operator, tests)| format!("{operator} {tests}")).collect();
    println!("not implemented, with the tests that wait for it: {}", list.join(", "));
    let waiting: usize = absent.iter().map(|(_, tests)| tests).sum();
    println!(
        "{} tests: {passed} passed, {failed} failed, {waiting} need an operator that is not implemented",
        tests.len()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn name(test: &Path) -> String {
    test.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn fate(test: &Path) -> Result<Fate, Box<dyn std::error::Error>> {
    let graph = match Graph::load(&fs::read(test.join("model.onnx"))?) {
        Ok(graph) => graph,
        Err(OnnxError::Operator { operator, .. }) => return Ok(Fate::Missing(operator)),
        Err(error) => return Err(error.into()),
    };
    let text = fs::read_to_string(test.join("tolerance"))?;
    let numbers = text.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    let [relative, absolute] = numbers[..] else { return Err("a tolerance that cannot be read".into()) };
    for set in 0.. {
        let set = test.join(set.to_string());
        if !set.exists() {
            break;
        }
        let read = |kind: &str, count| {
            let read = |i| Ok(read_tensor(&fs::read(set.join(format!("{kind}_{i}.pb")))?)?);
            (0..count).map(read).collect::<Result<Vec<TensorData>, Box<dyn std::error::Error>>>()
        };
        let found = graph.run(read("input", graph.inputs().count())?)?;
        let expected = read("output", graph.outputs().count())?;
        for (name, (found, expected)) in graph.outputs().zip(found.iter().zip(&expected)) {
            if let Some(difference) = difference(found, expected, relative, absolute) {
                return Ok(Fate::Failed(format!("output '{name}' {difference}")));
            }
        }
    }
    Ok(Fate::Passed)
}

/// How a tensor differs from the expected one, if it does.
fn difference(found: &TensorData, expected: &TensorData, relative: f64, absolute: f64) -> Option<String> {
    if found.dtype() != expected.dtype() {
        return Some(format!("is {:?}, not {:?}", found.dtype(), expected.dtype()));
    }
    if found.shape() != expected.shape() {
        return Some(format!("has the shape {:?}, not {:?}", found.shape(), expected.shape()));
    }
    // numpy's allclose, as ONNX's own runner compares; not a number equals itself.
    let close = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= absolute + relative * b.abs();
    let pairs = found.iter::<f64>().zip(expected.iter::<f64>());
    let (at, (a, b)) = pairs.enumerate().find(|(_, (a, b))| !close(*a, *b))?;
    Some(format!("has {a}, not {b}, at {at}"))
}
