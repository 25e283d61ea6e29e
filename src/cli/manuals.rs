//! `uncork completions` and `uncork man`: what shells and manuals are told of the commands.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;
use uncork_commands::{USAGE, complain, say};

/// Print what a shell needs to complete uncork's commands.
#[derive(Debug, clap::Args)]
#[command(after_help = COMPLETIONS)]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

const COMPLETIONS: &str = "\
Examples:
  uncork completions bash >~/.local/share/bash-completion/completions/uncork
  uncork completions zsh >~/.zfunc/_uncork
  uncork completions fish >~/.config/fish/completions/uncork.fish";

/// Write a manual page for each command.
#[derive(Debug, clap::Args)]
#[command(after_help = MAN)]
pub(super) struct Man {
    /// Folder for the pages
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

const MAN: &str = "\
Example:
  uncork man ~/.local/share/man/man1 && man uncork-serve";

impl Completions {
    /// Prints them.
    pub(super) fn run<C: CommandFactory>(self) -> ExitCode {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut C::command(), "uncork", &mut text);
        say(String::from_utf8_lossy(&text).trim_end());
        ExitCode::SUCCESS
    }
}

impl Man {
    /// Writes them.
    pub(super) fn run<C: CommandFactory>(self) -> ExitCode {
        let pages = C::command().disable_help_subcommand(true);
        let written = fs::create_dir_all(&self.folder).and_then(|()| clap_mangen::generate_to(pages, &self.folder));
        match written {
            Ok(()) => {
                say(&format!("the manual is in {}", self.folder.display()));
                ExitCode::SUCCESS
            }
            Err(error) => {
                complain(&format!("cannot write manual pages into {}: {error}", self.folder.display()));
                ExitCode::from(USAGE)
            }
        }
    }
}
