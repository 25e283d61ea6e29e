//! The command line: one file for each command that serves or loads models; the others are a package of their own.

mod descriptors;
mod giving_back;
mod lines;
mod log;
mod manuals;
mod profile;
mod serve;
mod validate;
#[cfg(feature = "onnx")]
mod worker;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use uncork_commands::{Loadtest, Simulate, USAGE, heard};

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
     (a second signal ends it at once, as signals do: 130 or 143)
  2  loadtest: it cannot be told
  3  wrong usage, input or configuration; an address, file or model that cannot be had";

#[derive(Debug, Subcommand)]
enum Command {
    Completions(manuals::Completions),
    Loadtest(Box<Loadtest>),
    Man(manuals::Man),
    Profile(Box<profile::Profile>),
    Serve(Box<serve::Serve>),
    Simulate(Box<Simulate>),
    Validate(validate::Validate),
    #[cfg(feature = "onnx")]
    #[command(hide = true)]
    Worker(worker::Worker),
}

/// Runs the program with the arguments of the process.
pub fn run() -> ExitCode {
    let code = match Cli::try_parse() {
        Ok(Cli { command: Command::Completions(completions) }) => completions.run::<Cli>(),
        Ok(Cli { command: Command::Loadtest(loadtest) }) => loadtest.run(),
        Ok(Cli { command: Command::Man(man) }) => man.run::<Cli>(),
        Ok(Cli { command: Command::Profile(profile) }) => profile.run(),
        Ok(Cli { command: Command::Serve(serve) }) => serve.run(),
        Ok(Cli { command: Command::Simulate(simulate) }) => simulate.run(),
        Ok(Cli { command: Command::Validate(validate) }) => validate.run(),
        #[cfg(feature = "onnx")]
        Ok(Cli { command: Command::Worker(worker) }) => worker.run(),
        Err(message) => {
            // Nothing is left to be done about an output that is closed.
            let _ = message.print();
            ExitCode::from(if message.use_stderr() { USAGE } else { 0 })
        }
    };
    heard(code)
}
