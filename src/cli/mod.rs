//! The command line: one file for each command.

mod descriptors;
mod layout;
mod loadtest;
mod log;
mod plot;
mod profile;
mod progress;
mod serve;
mod signals;
mod simulate;
mod validate;
mod values;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Exit code for a wrong command line or configuration, and where a connection or a model file fails.
const USAGE: u8 = 3;

/// Serve models with adaptive micro-batching: give a model two caps, a latency and a batch size, and tune nothing else.
#[derive(Debug, Parser)]
#[command(name = "uncork", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done, or passed
  1  loadtest: an objective was missed; serve: requests in flight were cut off at the end
  2  loadtest: it cannot be told
  3  wrong usage, input or configuration; an address, file or model that cannot be had";

#[derive(Debug, Subcommand)]
enum Command {
    Loadtest(Box<loadtest::Loadtest>),
    Profile(Box<profile::Profile>),
    Serve(serve::Serve),
    Simulate(Box<simulate::Simulate>),
    Validate(validate::Validate),
}

/// Runs the program with the arguments of the process.
pub fn run() -> ExitCode {
    match Cli::try_parse() {
        Ok(Cli { command: Command::Loadtest(loadtest) }) => loadtest.run(),
        Ok(Cli { command: Command::Profile(profile) }) => profile.run(),
        Ok(Cli { command: Command::Serve(serve) }) => serve.run(),
        Ok(Cli { command: Command::Simulate(simulate) }) => simulate.run(),
        Ok(Cli { command: Command::Validate(validate) }) => validate.run(),
        Err(message) => {
            // Nothing is left to be done about an output that is closed.
            let _ = message.print();
            ExitCode::from(if message.use_stderr() { USAGE } else { 0 })
        }
    }
}

/// Writes one line to stdout; what is printed there is for programs to read, so it leaves at once.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // A reader that closed its end has heard enough.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Writes one line to stderr.
fn complain(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
