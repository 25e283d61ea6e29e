//! The worker for Python, which is part of a program: its sources go to the interpreter over the socket, ahead of all frames.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Kind, Program};

/// What the interpreter runs: reads the modules, makes them importable ahead of any that are installed, and starts the worker.
const BOOT: &str = include_str!("boot.py");

impl Program {
    /// A program that runs `target`, a class or a function in Python, as `app:Class` or `app.py:Class`, by the worker that
    /// `modules` hold: names and sources, with `uncork.worker` among them.
    pub fn python(interpreter: &str, target: String, modules: &[(&str, &str)], rest: Program) -> Program {
        // Unbuffered: what is printed is in the log when it is printed.
        let command = vec![interpreter.to_owned(), "-u".into(), "-c".into(), BOOT.into()];
        Program { kind: Kind::Python, command, target: Some(target), preamble: sources(modules), ..rest }
    }
}

/// The modules, as [`BOOT`] reads them: their length in 4 bytes, then a JSON object.
fn sources(modules: &[(&str, &str)]) -> Arc<[u8]> {
    let modules: BTreeMap<_, _> = modules.iter().copied().collect();
    let json = serde_json::to_vec(&modules).expect("texts have a JSON form");
    let mut bytes = u32::try_from(json.len()).unwrap_or_default().to_le_bytes().to_vec();
    bytes.extend_from_slice(&json);
    bytes.into()
}
