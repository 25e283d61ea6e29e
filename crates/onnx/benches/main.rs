//! Measures the ONNX interpreter. `cargo bench --bench onnx -- cases FOLDER` runs ONNX's own node tests, as
//! `cases.py` has written them; `operators FOLDER --served FILE` compares `docs/operators.md` with what they and the server's
//! answers (`benches/served.py --write FILE`) show.
//! `graphs COUNT` makes whole graphs and runs them with nodes joined and as they are.
//! `pipelines FOLDER` runs classical pipelines, which `pipelines.py` has written.
//! `fuzz FOLDER COUNT` (or `FIRST LAST`: these seeds) loads damaged copies of the models in a folder; `load MODEL.onnx` says how long reading and compiling
//! a model takes, and how much memory; `speed MODEL.onnx` times a model at the orders of `speed.py`, beside onnxruntime.
//! `profile FOLDER` says what each node of a model of the corpus takes.
//! Folders are named from the repository's root.

mod cases;
mod fuzz;
mod gate;
mod graphs;
mod pipelines;
mod profile;
mod speed;

use std::process::ExitCode;

/// The page of operators, in the repository.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operators.md");

/// The server's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Cargo starts a bench in its crate; folders are named from the repository's root.
    if let Err(error) = std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")) {
        eprintln!("the repository's folder: {error}");
        return ExitCode::from(3);
    }
    // Cargo adds its own flag behind the user's arguments.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["cases", folder] => cases::run(folder.as_ref(), ""),
        ["cases", folder, filter] => cases::run(folder.as_ref(), filter),
        ["operators", folder, "--served", served] => {
            cases::table(folder.as_ref(), served.as_ref(), PAGE.as_ref(), false)
        }
        ["operators", folder, "--served", served, "--write"] => {
            cases::table(folder.as_ref(), served.as_ref(), PAGE.as_ref(), true)
        }
        ["fuzz", folder, count] => match count.parse() {
            Ok(count) => fuzz::run(folder.as_ref(), 0..count),
            Err(_) => usage(),
        },
        ["fuzz", folder, first, last] => match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) => fuzz::run(folder.as_ref(), first..last),
            _ => usage(),
        },
        ["load", model] => speed::load(model),
        ["pipelines", folder] => pipelines::run(folder.as_ref(), ""),
        ["pipelines", folder, filter] => pipelines::run(folder.as_ref(), filter),
        ["profile", folder] => profile::run(folder.as_ref()),
        ["speed", model] => speed::run(model, "1"),
        ["speed", model, threads] => speed::run(model, threads),
        ["speed-case", folder, threads] => speed::case(folder, threads),
        ["graphs", count] => match count.parse() {
            Ok(count) => gate::run(0..count),
            Err(_) => usage(),
        },
        ["graphs", first, last] => match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) => gate::run(first..last),
            _ => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: cargo bench --bench onnx -- cases FOLDER [FILTER] | operators FOLDER --served FILE [--write] | pipelines FOLDER [FILTER] | fuzz FOLDER COUNT | fuzz FOLDER FIRST LAST | graphs COUNT | graphs FIRST LAST | load MODEL | profile FOLDER | speed MODEL [THREADS] | speed-case FOLDER THREADS"
    );
    ExitCode::from(3)
}
