//! What the corpus came to, for readers: `docs/models-tried.md`, and the states in corpus.toml.

use std::fmt::Write;
use std::fs;

use super::list::{Listed, Model, PATH};
use super::{Fate, State};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/models-tried.md");

const HEAD: &str = "\
# Models tried

These ONNX files come from packages that people install. Each is held against onnxruntime: uncork answers every row by itself, rows
in a batch, and rows of eight callers at a time. Each answer must be what onnxruntime says of the row alone. CI fetches the files. It
fails if an answer is wrong, or if a model comes to less than this page says. A command makes the page:

```sh
pip install -r crates/onnx/benches/requirements.txt
python3 benches/corpus/corpus.py target/corpus             # fetches pinned packages, asks onnxruntime
cargo bench --bench corpus -- target/corpus --write
```

- *right*: batches run as a whole.
- *alone*: the answers are right, and requests share no run.
- *refused*: the model does not load, and uncork says why.

Rows are random, so answers are compared as numbers. The difference is the largest of all rows, as a part of the output's largest
number. `light-` models are ONNX's own: real graphs whose weights are all one number, which prove their form only.

";

/// Writes the page and the states. Models that were not tried keep what is said of them.
pub(super) fn write(listed: &Listed, tried: &[(&Model, Fate)]) -> Result<(), String> {
    let fail = |path: &str, error: std::io::Error| format!("{path}: {error}");
    let old = fs::read_to_string(PAGE).unwrap_or_default();
    let mut page = String::from(HEAD);
    let (mut rows, mut counts) = (String::new(), [0; State::ALL.len()]);
    for model in &listed.models {
        let fate = tried.iter().find(|(other, _)| other.name == model.name).map(|(_, fate)| fate);
        let state = fate.map_or(model.state, |fate| fate.state);
        counts[state as usize] += 1;
        let begin = format!("| {} |", model.name);
        match (fate, old.lines().find(|line| line.starts_with(&begin))) {
            (None, Some(line)) => _ = writeln!(rows, "{line}"),
            (fate, _) => _ = writeln!(rows, "{}", row(listed, model, state, fate)),
        }
    }
    let all: usize = counts.iter().sum();
    let served = counts[State::Right as usize] + counts[State::Alone as usize];
    let _ = writeln!(
        page,
        "Of {all} files {served} are served, {} of them in whole batches. Refused: {}. Answered wrongly: {}.\n",
        counts[State::Right as usize],
        counts[State::Refused as usize],
        counts[State::Wrong as usize],
    );
    page.push_str("| model | package | license | state | difference, or reason |\n| --- | --- | --- | --- | --- |\n");
    page.push_str(&rows);
    fs::write(PAGE, page).map_err(|e| fail(PAGE, e))?;
    fs::write(PATH, states(tried).map_err(|e| fail(PATH, e))?).map_err(|e| fail(PATH, e))
}

fn row(listed: &Listed, model: &Model, state: State, fate: Option<&Fate>) -> String {
    let package = listed.packages.iter().find(|package| package.name == model.package);
    let (source, license) = package
        .map_or_else(Default::default, |p| (format!("{} {} ({})", p.name, p.version, p.registry), p.license.clone()));
    let file = model.path.rsplit('/').next().unwrap_or_default();
    // What to do about it is said to whoever meets it; here the cause is enough.
    let cause = |reason: &str| {
        let clauses = if state == State::Alone { 2 } else { 1 };
        reason.split("; ").take(clauses).collect::<Vec<_>>().join("; ").replace('|', "\\|").replace('\n', " ")
    };
    let reason = fate.map_or_else(|| "not tried".to_owned(), |fate| cause(&fate.reason));
    let note = if model.note.is_empty() { String::new() } else { format!(" {}", model.note) };
    format!("| {} | {source}: `{file}` | {license} | {} | {reason}{note} |", model.name, state.name())
}

/// corpus.toml with the states that were found. A wrong answer is nothing to expect.
fn states(tried: &[(&Model, Fate)]) -> Result<String, std::io::Error> {
    let mut found = None;
    let text = fs::read_to_string(PATH)?;
    let lines = text.lines().map(|line| {
        if let Some(name) = line.strip_prefix("name = ") {
            let fate = tried.iter().find(|(model, _)| format!("\"{}\"", model.name) == name);
            found = fate.map(|(_, fate)| fate.state).filter(|state| *state != State::Wrong);
        }
        match found {
            Some(state) if line.starts_with("state = ") => format!("state = \"{}\"\n", state.name()),
            _ => format!("{line}\n"),
        }
    });
    Ok(lines.collect())
}
