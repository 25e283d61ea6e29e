//! Real models out of public packages, served as a server serves them and held against onnxruntime's answers.
//!
//! `cargo bench --bench corpus -- FOLDER [NAME …] [--write]`. `corpus.py` has written the models with rows and answers. Each is loaded by a registry and asked three times:
//! for each row by itself, for all rows at once, and by eight callers at a time, whose rows ride in batches. Every row must
//! be answered as onnxruntime answers it alone. What a model came to is compared with what corpus.toml expects of it.

mod ask;
mod list;
mod page;

use std::path::Path;
use std::process::ExitCode;

use list::{Listed, Model};

/// The server's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Cargo adds its own flag behind the user's arguments.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let (flags, names): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(|name| name.starts_with("--"));
    match names[..] {
        [folder, ref names @ ..] => run(folder.as_ref(), names, flags == ["--write"]),
        [] => {
            eprintln!("usage: cargo bench --bench corpus -- FOLDER [NAME …] [--write]");
            ExitCode::from(3)
        }
    }
}

/// What a model came to, from bad to good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// An answer is not onnxruntime's, or a row that the model takes is not answered.
    Wrong,
    /// It does not load.
    Refused,
    /// Right, and its rows are run one at a time.
    Alone,
    /// Right, in batches that are run as a whole.
    Right,
}

impl State {
    const ALL: [State; 4] = [State::Wrong, State::Refused, State::Alone, State::Right];

    /// As it stands in corpus.toml.
    fn name(self) -> &'static str {
        match self {
            State::Wrong => "wrong",
            State::Refused => "refused",
            State::Alone => "alone",
            State::Right => "right",
        }
    }

    fn from_name(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// What a model came to, and why.
pub(crate) struct Fate {
    state: State,
    reason: String,
}

/// Tries the models in `folder`, or those named; fails where one is wrong, or worse than expected. `write` notes what they
/// came to in corpus.toml and in the page.
fn run(folder: &Path, names: &[&str], write: bool) -> ExitCode {
    let listed = match Listed::read() {
        Ok(listed) => listed,
        Err(error) => {
            eprintln!("corpus.toml: {error}");
            return ExitCode::from(3);
        }
    };
    let wanted = |model: &&Model| names.is_empty() || names.contains(&&*model.name);
    let there = |model: &&Model| folder.join(&model.name).join("made").exists();
    let models: Vec<&Model> = listed.models.iter().filter(wanted).filter(there).collect();
    if models.is_empty() {
        eprintln!("no models in {}: fetch them with python3 benches/corpus/corpus.py FOLDER", folder.display());
        return ExitCode::from(3);
    }
    let mut tried = Vec::new();
    let (mut worse, mut better) = (Vec::new(), Vec::new());
    for model in models {
        let fate = ask::fate(&folder.join(&model.name), model);
        println!("{:26} {:8} {}", model.name, fate.state.name(), fate.reason);
        let change = format!("{}: {}, expected {}", model.name, fate.state.name(), model.state.name());
        if fate.state == State::Wrong || fate.state < model.state {
            worse.push(change);
        } else if fate.state > model.state {
            better.push(change);
        }
        tried.push((model, fate));
    }
    let count = |state| tried.iter().filter(|(_, fate)| fate.state == state).count();
    let counts: Vec<String> = State::ALL.iter().rev().map(|&s| format!("{} {}", count(s), s.name())).collect();
    println!("of {} models {}", tried.len(), counts.join(", "));
    better.iter().for_each(|change| println!("better: {change}"));
    worse.iter().for_each(|change| println!("WORSE: {change}"));
    if write && let Err(error) = page::write(&listed, &tried) {
        eprintln!("{error}");
        return ExitCode::from(3);
    }
    if worse.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
