//! ONNX's node tests: each is run, and either passes, fails, or needs what is not implemented.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use burn::tensor::TensorData;
use uncork_onnx::{Graph, Item, OnnxErrorKind, operators, read_item};

/// What became of one test.
enum Fate {
    Passed,
    /// An operator is missing, or a type of elements.
    Missing(String),
    Failed(String),
}

/// What became of all tests.
#[derive(Default)]
struct Outcome {
    passed: usize,
    /// Name and reason.
    failed: Vec<(String, String)>,
    /// What is not implemented, with the number of tests that wait for it.
    missing: BTreeMap<String, usize>,
    /// For each operator, the tests that use it and can be run.
    operators: BTreeMap<String, Tests>,
    /// How many tests the server answers correctly; `None` if the server was not asked.
    served: Option<usize>,
    /// Why the server does not answer tests that pass, with the number of tests.
    unserved: BTreeMap<String, usize>,
}

/// The tests of an operator.
#[derive(Clone, Copy, Default)]
struct Tests {
    all: usize,
    passed: usize,
    served: usize,
}

/// What became of each test at the server, by the test's name: `served`, or a reason. `benches/served.py --write` writes it.
type Served = BTreeMap<String, String>;

/// What tests wait for that need types which no request can carry.
const OTHER_TYPES: &str = "other types (float8, int4, complex, optional …)";

/// Runs the tests in `folder` whose name contains `filter`. Fails if one fails that needs nothing that is missing.
pub(crate) fn run(folder: &Path, filter: &str) -> ExitCode {
    let Some(outcome) = all(folder, filter, None) else { return ExitCode::from(3) };
    for (name, reason) in &outcome.failed {
        println!("failed: {name}: {reason}");
    }
    let mut absent: Vec<(&String, &usize)> = outcome.missing.iter().collect();
    absent.sort_by_key(|(_, tests)| std::cmp::Reverse(*tests));
    let list: Vec<String> = absent.iter().map(|(what, tests)| format!("{what} {tests}")).collect();
    println!("not implemented, with the tests that wait for it: {}", list.join(", "));
    println!("{}", outcome.sentence());
    if outcome.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs all tests and writes the table of operators to `page`, or fails if the page says something else. `served` is the file of
/// `benches/served.py --write` for the same tests.
pub(crate) fn table(folder: &Path, served: &Path, page: &Path, write: bool) -> ExitCode {
    let read = fs::read(served).map_err(|e| e.to_string());
    let read = read.and_then(|text| serde_json::from_slice::<Served>(&text).map_err(|e| e.to_string()));
    let answers = match read {
        Ok(answers) => answers,
        Err(error) => {
            eprintln!(
                "{}: {error}; write it with python3 benches/served.py {} --write FILE",
                served.display(),
                folder.display()
            );
            return ExitCode::from(3);
        }
    };
    let Some(outcome) = all(folder, "", Some(&answers)) else { return ExitCode::from(3) };
    let text = outcome.page();
    if write {
        return match fs::write(page, text) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{}: {error}", page.display());
                ExitCode::from(3)
            }
        };
    }
    if fs::read_to_string(page).is_ok_and(|found| found == text) {
        println!("{} is as the code is: {}", page.display(), outcome.sentence());
        return ExitCode::SUCCESS;
    }
    for (name, reason) in &outcome.failed {
        println!("failed: {name}: {reason}");
    }
    let command =
        format!("cargo bench --bench onnx -- operators {} --served {} --write", folder.display(), served.display());
    println!("{} is not as the code is ({}); write it anew: {command}", page.display(), outcome.sentence());
    ExitCode::FAILURE
}

impl Outcome {
    fn sentence(&self) -> String {
        let (passed, failed) = (self.passed, self.failed.len());
        let missing: usize = self.missing.values().sum();
        let all = passed + failed + missing;
        let served = self.served.map(|served| format!("; {served} are served")).unwrap_or_default();
        format!("of {all} tests {passed} pass, {failed} fail, {missing} need what is not implemented{served}")
    }

    /// The page of operators, in Markdown.
    fn page(&self) -> String {
        let mut page = String::from(HEAD);
        let _ = writeln!(page, "In ONNX's own node tests: {}.\n", self.sentence());
        page.push_str("| operator | tests | served | not supported |\n| --- | ---: | ---: | --- |\n");
        for (name, limits) in operators() {
            let Tests { all, passed, served } = self.operators.get(name).copied().unwrap_or_default();
            let (tests, served) = match all {
                0 => (String::new(), String::new()),
                _ => (format!("{passed} of {all}"), format!("{served} of {all}")),
            };
            let _ = writeln!(page, "| {name} | {tests} | {served} | {limits} |");
        }
        if !self.failed.is_empty() {
            page.push_str("\n## Tests that fail\n\n");
            for (name, reason) in &self.failed {
                let _ = writeln!(page, "- `{name}`: {reason}");
            }
        }
        if !self.unserved.is_empty() {
            page.push_str(UNSERVED);
            for (reason, tests) in &self.unserved {
                let _ = writeln!(page, "| `{reason}` | {tests} |");
            }
        }
        page.push_str(NEVER);
        page.push_str("\n## What other tests wait for\n\n| what | tests |\n| --- | ---: |\n");
        for (what, tests) in &self.missing {
            let _ = writeln!(page, "| {what} | {tests} |");
        }
        page
    }
}

const HEAD: &str = "\
# Operators

uncork runs these ONNX operators, in opsets 7 to 22 and as far as the tests go in newer ones. uncork refuses to load a model that needs
another one. The refusal names the operator, the node and what to do. A command makes this page:

```sh
pip install onnx==1.23.2 onnxruntime==1.31.1
cargo build --release
python3 crates/onnx/benches/cases.py target/onnx-cases
python3 benches/served.py target/onnx-cases --write target/served.json
cargo bench --bench onnx -- operators target/onnx-cases --served target/served.json --write
```

ONNX brings tests of single nodes, each with inputs and the expected outputs. A test counts for every operator in its graph.

- *tests* says how many pass when uncork runs the graph by itself.
- *served* says how many the server answers correctly over HTTP, with the test's own inputs. A test that isn't served is rejected in
  words, either when the model is loaded or when the request arrives.

";

const UNSERVED: &str = "
## Tests that pass and are not served

What becomes of them at the server, in its own words without names, shapes and numbers:

| answer | tests |
| --- | ---: |
";

const NEVER: &str = "
## What will not come

- Random numbers (`Bernoulli`, `Multinomial`, `RandomNormal`, `RandomUniform` and their like). Equal requests would get different
  answers, and rows could not share a batch. Feed them as an input.
- Training: `Gradient`, `Adagrad`, `Adam`, `Momentum`, and `Dropout` that drops elements. Export the model for inference.
- `ImageDecoder`. A decoder of anybody's pictures is a door to attackers. Decode before the request.
- Types that no request can carry: float8, integers of 4 bits or fewer, and complex numbers. `DequantizeLinear` and `Cast` do read
  weights of such types.
- `com.microsoft.nchwc`, which onnxruntime's optimiser writes at its highest level for one kind of processor. Write the file at
  `ORT_ENABLE_EXTENDED`.
";

/// Runs the tests; `None`, and a message, where there are none.
fn all(folder: &Path, filter: &str, answers: Option<&Served>) -> Option<Outcome> {
    let entries = fs::read_dir(folder).map(|entries| entries.filter_map(|e| Some(e.ok()?.path())).collect());
    let mut tests: Vec<_> = entries.unwrap_or_default();
    tests.retain(|test| test.join("model.onnx").exists() && name(test).contains(filter));
    tests.sort();
    if tests.is_empty() {
        eprintln!("no tests in {}: write them with python3 crates/onnx/benches/cases.py FOLDER", folder.display());
        return None;
    }
    let mut outcome = Outcome { served: answers.map(|_| 0), ..Outcome::default() };
    for test in &tests {
        let fate = fate(test).unwrap_or_else(|e| failed(&e.to_string()));
        let passed = matches!(fate, Fate::Passed);
        let answer = answers.map(|answers| answers.get(&name(test)).map_or("the server was not asked", String::as_str));
        let is_served = answer == Some("served");
        if let Some(served) = &mut outcome.served {
            *served += usize::from(is_served);
        }
        if let (true, false, Some(reason)) = (passed, is_served, answer) {
            *outcome.unserved.entry(without_details(reason)).or_default() += 1;
        }
        match fate {
            Fate::Passed => outcome.passed += 1,
            Fate::Missing(what) => {
                *outcome.missing.entry(what).or_default() += 1;
                continue;
            }
            Fate::Failed(reason) => outcome.failed.push((name(test), reason)),
        }
        for operator in fs::read_to_string(test.join("operators")).unwrap_or_default().lines() {
            let tests = outcome.operators.entry(operator.to_owned()).or_default();
            tests.all += 1;
            tests.passed += usize::from(passed);
            tests.served += usize::from(is_served);
        }
    }
    Some(outcome)
}

/// A reason without what differs from test to test: quoted names, shapes in brackets, numbers.
fn without_details(reason: &str) -> String {
    let mut text = String::with_capacity(reason.len());
    let (mut end, mut before) = (None, ' ');
    for c in reason.chars() {
        let is_apostrophe = before.is_alphanumeric();
        before = c;
        match end {
            Some(closing) if c == closing => end = None,
            Some(_) => continue,
            None => match c {
                '\'' if !is_apostrophe => end = Some('\''),
                '[' => end = Some(']'),
                ']' if text.ends_with('…') => {}
                _ if c.is_ascii_digit() => {}
                // A bar would end the cell of a table.
                '|' => text.push('/'),
                _ => {
                    text.push(c);
                    continue;
                }
            },
        }
        if !text.ends_with('…') {
            text.push('…');
        }
    }
    text
}

/// A failure; one for a type of elements that no tensor here has is something missing.
fn failed(reason: &str) -> Fate {
    match reason.contains("elements of type") || reason.contains("the element type") {
        true => Fate::Missing(OTHER_TYPES.into()),
        false => Fate::Failed(reason.to_owned()),
    }
}

fn name(test: &Path) -> String {
    test.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn fate(test: &Path) -> Result<Fate, Box<dyn std::error::Error>> {
    let is_refused = test.join("refused").exists();
    let graph = match Graph::load(&fs::read(test.join("model.onnx"))?) {
        Ok(graph) => graph,
        Err(_) if is_refused => return Ok(Fate::Passed),
        Err(error) => match (error.kind(), error.place()) {
            (OnnxErrorKind::Operator, Some((operator, _))) => return Ok(Fate::Missing(operator.to_owned())),
            (OnnxErrorKind::Unsupported, _) => return Ok(Fate::Missing(OTHER_TYPES.into())),
            _ => return Err(error.into()),
        },
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
            (0..count).map(|i| item(&set.join(format!("{kind}_{i}")))).collect::<Result<Vec<Item>, _>>()
        };
        if is_refused {
            let answer = graph.run_items(read("input", graph.inputs().count())?);
            return Ok(answer.map_or(Fate::Passed, |found| Fate::Failed(format!("is answered with {found:?}"))));
        }
        // An output of an unknown type says more than what its graph makes of it.
        let expected = read("output", graph.outputs().count())?;
        let found = graph.run_items(read("input", graph.inputs().count())?)?;
        for (name, (found, expected)) in graph.outputs().zip(found.iter().zip(&expected)) {
            if let Some(difference) = difference(found, expected, [relative, absolute]) {
                return Ok(Fate::Failed(format!("output '{name}' {difference}")));
            }
        }
    }
    Ok(Fate::Passed)
}

/// The value that lies under a name, with the ending of its kind.
fn item(path: &Path) -> Result<Item, Box<dyn std::error::Error>> {
    let (tensor, sequence) = (path.with_extension("pb"), path.with_extension("sequence"));
    if tensor.exists() {
        return Ok(read_item(&fs::read(tensor)?)?);
    }
    if !sequence.exists() {
        return Err("elements of type optional".into());
    }
    let there =
        |i: &usize| sequence.join(format!("{i}.pb")).exists() || sequence.join(format!("{i}.sequence")).exists();
    Ok(Item::Sequence((0..).take_while(there).map(|i| item(&sequence.join(i.to_string()))).collect::<Result<_, _>>()?))
}

/// How a value differs from the expected one, if it does.
fn difference(found: &Item, expected: &Item, tolerance: [f64; 2]) -> Option<String> {
    match (found, expected) {
        (Item::Tensor(found), Item::Tensor(expected)) => of_numbers(found, expected, tolerance),
        (Item::Sequence(found), Item::Sequence(expected)) if found.len() == expected.len() => {
            found.iter().zip(expected).find_map(|(found, expected)| difference(found, expected, tolerance))
        }
        (found, expected) => (found != expected).then(|| format!("is {found:?}, not {expected:?}")),
    }
}

fn of_numbers(found: &TensorData, expected: &TensorData, [relative, absolute]: [f64; 2]) -> Option<String> {
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
