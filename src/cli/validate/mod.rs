//! `uncork validate`

mod from;
#[cfg(feature = "onnx")]
mod model;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use uncork_commands::layout::plural;
use uncork_commands::{USAGE, complain, plot, say, values};

#[cfg(feature = "onnx")]
use self::model::Findings;
use super::profile;
use crate::config::{self, Flags};
use crate::opaque;
use crate::registry::{self, Device, ModelSpec, Source};
use crate::repository::{Described, Folder, Found};
use crate::runner::TensorSpec;
use crate::telemetry::Settings;
use crate::worker::Kind;

/// Check a model or a configuration file, or read another server's, and start nothing.
///
/// Of a model it says everything at once: its operators and which are missing, what it takes and gives, whether its rows share
/// a batch, its weights, and how fast it is about. Of a configuration file it prints every error, with its line, key, value
/// and bound; environment variables count, as they do for `serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Validate {
    /// ONNX file
    #[arg(value_name = "MODEL.onnx", required_unless_present = "config", conflicts_with = "config")]
    model: Option<PathBuf>,

    /// Print what another server's configuration, FILE, comes to: an uncork.toml, with what is left out and why
    #[arg(long, value_name = "SERVER", requires = "model", conflicts_with_all = ["config", "json"])]
    from: Option<from::From>,

    /// Configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Of a model: the largest batch to time, in rows [default: 128]
    #[arg(long, value_name = "N", conflicts_with = "config", allow_hyphen_values = true)]
    max_batch_size: Option<String>,

    /// Of a model: time that the timing may take
    #[arg(long = "for", value_name = "TIME", default_value = "2s", allow_hyphen_values = true)]
    #[arg(value_parser = values::time(0.001..=86_400.0))]
    budget: Duration,

    /// Of a model: length of every free dimension, such as a sequence's
    #[arg(long, value_name = "N", value_parser = values::count(1..=1_000_000), allow_hyphen_values = true)]
    #[arg(conflicts_with = "config")]
    length: Option<usize>,

    /// Of a model: length of one free dimension by its name in the file; may be given several times
    #[arg(long, value_name = "NAME=N", conflicts_with = "config")]
    dim: Vec<String>,

    /// Of a model: print JSON and nothing else
    #[arg(long, conflicts_with = "config")]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  uncork validate model.onnx
      what is in a model, whether it can be served, and how fast
  uncork validate minilm.onnx --dim sequence=64 --json
      the same of sentences of 64 tokens, for a program
  uncork validate --config uncork.toml
      the errors of a configuration file
  uncork validate --from triton models/resnet/config.pbtxt > uncork.toml
      the configuration of Triton, TorchServe, TensorFlow Serving, BentoML or Cortex as uncork's";

impl Validate {
    /// Checks, prints, and says by its exit code whether all is well.
    pub(super) fn run(self) -> ExitCode {
        match (&self.config, &self.model) {
            (Some(config), _) => of_configuration(config),
            (None, Some(file)) if let Some(from) = self.from => match from::moved(from, file) {
                Ok(text) => {
                    say(text.trim_end());
                    ExitCode::SUCCESS
                }
                Err(message) => {
                    complain(&message);
                    ExitCode::from(USAGE)
                }
            },
            (None, Some(model)) => self.of_model(model).unwrap_or_else(|message| {
                complain(&message);
                ExitCode::from(USAGE)
            }),
            (None, None) => ExitCode::from(USAGE),
        }
    }

    fn of_model(&self, path: &Path) -> Result<ExitCode, String> {
        if path.extension().is_some_and(|extension| extension == "toml") {
            return Err(format!("{0} is a configuration file: uncork validate --config {0}", path.display()));
        }
        let flags = Flags {
            models: vec![path.to_owned()],
            max_batch_size: self.max_batch_size.clone(),
            dims: self.dim.clone(),
            ..Flags::default()
        };
        let mut spec = profile::only_model(&flags, None)?;
        spec.shapes.length = self.length;
        if let Source::Worker(_) = &spec.source {
            return of_worker(&spec);
        }
        self.findings(path, &spec)
    }

    #[cfg(feature = "onnx")]
    fn findings(&self, path: &Path, spec: &ModelSpec) -> Result<ExitCode, String> {
        let findings = Findings::of(path, spec, self.budget);
        say(&if self.json { format!("{:#}", findings.json()) } else { findings.text(plot::terminal_width()) });
        Ok(if findings.good() { ExitCode::SUCCESS } else { ExitCode::from(USAGE) })
    }

    /// The refusal of a program without ONNX.
    #[cfg(not(feature = "onnx"))]
    fn findings(&self, _path: &Path, spec: &ModelSpec) -> Result<ExitCode, String> {
        Err(crate::registry::load(spec).err().unwrap_or_default())
    }
}

/// Starts a model's workers, and says what they take and give.
fn of_worker(spec: &ModelSpec) -> Result<ExitCode, String> {
    let loaded = registry::load(spec).map_err(|reason| format!("model '{}': {reason}", spec.name))?;
    say(&format!("{}: can be served", spec.name));
    let tensor = |spec: &TensorSpec| format!("'{}' {} {:?}", spec.name, spec.datatype.name(), spec.wire_shape());
    let list = |specs: &[TensorSpec]| specs.iter().map(tensor).collect::<Vec<_>>().join(", ");
    if opaque::is_opaque(&loaded.signature) {
        say(&format!("  any body, at /models/{}", spec.name));
    } else {
        say(&format!("  takes {}", list(&loaded.signature.inputs)));
        say(&format!("  gives {}", list(&loaded.signature.outputs)));
    }
    say(if loaded.rehearses {
        "  warmed up with its example"
    } else {
        "  not warmed up: it has no example of a request"
    });
    Ok(ExitCode::SUCCESS)
}

fn of_configuration(path: &Path) -> ExitCode {
    let flags = Flags { config: Some(path.to_owned()), ..Flags::default() };
    // Without a working folder, relative paths are left as they are.
    let folder = std::env::current_dir().unwrap_or_default();
    match config::resolve(&flags, std::env::vars_os(), &folder) {
        Ok(config) => {
            say(&format!("{}: ok", path.display()));
            for model in &config.models {
                say(&summary(model));
            }
            if let Some(traces) = &config.traces {
                say(&tracing(traces));
            }
            config.folder.map_or(ExitCode::SUCCESS, |folder| of_folder(folder.followed(config.strict), &config.models))
        }
        Err(problems) => {
            complain(&problems.to_string());
            ExitCode::from(USAGE)
        }
    }
}

/// Reads the settings of each model there, as a server would.
fn of_folder(folder: Folder, configured: &[ModelSpec]) -> ExitCode {
    let (poll, path) = (folder.poll.as_secs_f64(), folder.path.display());
    say(&format!("  and those of the folder {path}, looked at every {poll} s"));
    let Found { models, others } = match folder.look() {
        Ok(found) => found,
        Err(error) => {
            complain(&format!("{path}: cannot be read: {error}"));
            return ExitCode::from(USAGE);
        }
    };
    let mut is_good = true;
    for (name, described) in models {
        if configured.iter().any(|spec| spec.name == name) {
            say(&format!("    {name}: left alone: the configuration has a model of that name"));
            continue;
        }
        match described {
            Ok(Described { notes, .. }) => {
                say(&format!("    {name}: ok"));
                notes.iter().for_each(|note| say(&format!("      {note}")));
            }
            Err(problems) => {
                is_good = false;
                problems.lines().for_each(|problem| complain(&format!("{path}/{name}: {problem}")));
            }
        }
    }
    others.iter().for_each(|other| say(&format!("    {other}")));
    if is_good { ExitCode::SUCCESS } else { ExitCode::from(USAGE) }
}

/// `  digits 1: models/digits.onnx, max_latency_ms 50, max_batch_size 128, 1 runner of 2 threads`; where it shares
/// a pool, `… 1 runner of 2 threads in pool 'cpu' with weight 1`; where it runs some sizes
/// only, `… max_batch_size 32 in sizes of 1, 8, 32, …`; where it computes elsewhere, `models/digits.onnx on wgpu, …`
fn summary(model: &ModelSpec) -> String {
    let source = match &model.source {
        Source::Embedded => "embedded".to_owned(),
        Source::Onnx(path) => path.display().to_string(),
        Source::Synthetic { base, per_row } => {
            let ms = |time: &std::time::Duration| time.as_secs_f64() * 1e3;
            format!("stand-in of {} + {} ms a row", ms(base), ms(per_row))
        }
        Source::Runners(_) | Source::Remote(_) => "built by the program".to_owned(),
        Source::Upstream(settings) => {
            let servers: Vec<_> = settings.servers.iter().map(ToString::to_string).collect();
            format!("on {}", servers.join(", "))
        }
        Source::Worker(program) => match (&program.kind, &program.target) {
            (Kind::Python, Some(target)) => format!("{target} in Python ({})", program.command[0]),
            (Kind::Isolated(path), _) => format!("{} in a process of its own", path.display()),
            _ => format!("the worker {}", program.command.join(" ")),
        },
    };
    let pool = model.pool.as_ref().map(|name| format!(" in pool '{name}' with weight {}", model.weight));
    let pool = pool.unwrap_or_default();
    let sizes: Vec<String> = model.allowed_batch_sizes.iter().map(|size| size.to_string()).collect();
    let sizes = if sizes.is_empty() { String::new() } else { format!(" in sizes of {}", sizes.join(", ")) };
    let device = if model.device == Device::default() { String::new() } else { format!(" on {}", model.device) };
    format!(
        "  {} {}: {source}{device}, max_latency_ms {}, max_batch_size {}{sizes}, {} of {}{pool}",
        model.name,
        model.version,
        model.max_latency.as_secs_f64() * 1e3,
        model.max_batch_rows,
        plural(model.runners.get(), "runner"),
        plural(model.threads.get(), "thread"),
    )
}

/// `  traces to http://127.0.0.1:4318/v1/traces: 10 % of the requests, or as their caller decides`
fn tracing(traces: &Settings) -> String {
    let followed = if traces.sampling.follow_caller { ", or as their caller decides" } else { "" };
    format!("  traces to {}: {} % of the requests{followed}", traces.endpoint, traces.sampling.ratio * 100.0)
}
