//! The commands of the program `uncork` that need no server of their own, `loadtest` and `simulate`; and how all its commands read flags
//! and write to a terminal.
//!
//! It is a package for the sake of building: whoever changes the server need not compile these anew. Its interface is the
//! program's alone.

mod arrivals;
pub mod layout;
mod loadtest;
pub mod output;
pub mod plot;
pub mod progress;
pub mod signals;
mod simulate;
pub mod values;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

pub use loadtest::Loadtest;
pub use simulate::Simulate;
use uncork_model::quote::printable;

/// Exit code for a wrong command line or configuration, and where a connection or a model file fails.
pub const USAGE: u8 = 3;

/// Whether something that was said found no room.
static IS_LOST: AtomicBool = AtomicBool::new(false);

/// Writes one line to stdout; what is printed there is for programs to read, so it leaves at once.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    hear(writeln!(out, "{line}").and_then(|()| out.flush()));
}

/// The same with its colours where stdout is a terminal, and nobody wants none (`NO_COLOR`).
fn say_in_colour(line: &str) {
    let mut out = anstream::stdout().lock();
    hear(writeln!(out, "{line}").and_then(|()| out.flush()));
}

/// Remembers output that could not be written, as on a full disk. A reader that closed its end has heard enough.
fn hear(said: io::Result<()>) {
    if let Err(error) = said
        && error.kind() != ErrorKind::BrokenPipe
        && !IS_LOST.swap(true, Ordering::Relaxed)
    {
        complain(&format!("the output cannot be written: {error}"));
    }
}

/// The exit code of a command that ends with `code`: it failed if what it said was lost.
pub fn heard(code: ExitCode) -> ExitCode {
    match code == ExitCode::SUCCESS && IS_LOST.load(Ordering::Relaxed) {
        true => ExitCode::from(USAGE),
        false => code,
    }
}

/// Writes one line to stderr, or several. What they repeat of files and arguments does nothing to a terminal.
pub fn complain(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", printable(line));
}
