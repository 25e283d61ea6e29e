//! `uncork validate`

mod configuration;
mod from;
#[cfg(feature = "onnx")]
mod model;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use uncork_commands::{USAGE, complain, say, values};

#[cfg(feature = "onnx")]
use self::model::Findings;
use super::profile;
use crate::config::Flags;
use crate::opaque;
use crate::quote::{Quoted, shown};
use crate::registry::{self, Loaded, ModelSpec, Source};
use crate::runner::{Rows, TensorSpec};

/// Check a model or a configuration file, or read another server's, and start nothing.
///
/// Of a model it says everything at once: its operators and which are missing, what it takes and gives, whether its rows share
/// a batch, its weights, and how fast it is about. Of a configuration file it prints every error, with its line, key, value
/// and bound; environment variables count, as they do for `serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Validate {
    /// ONNX file, or a class in a Python file: app.py:Class
    #[arg(value_name = "MODEL.onnx", conflicts_with = "config")]
    model: Option<PathBuf>,

    /// Print what another server's configuration, FILE, comes to: an uncork.toml, with what is left out and why
    #[arg(long, value_name = "SERVER", requires = "model", conflicts_with_all = ["config", "json"])]
    from: Option<from::From>,

    /// Configuration file; without it and without a model that of UNCORK_CONFIG, or ./uncork.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Of a model: the largest batch to time, in rows [default: 128]
    #[arg(long, value_name = "N", requires = "model", conflicts_with = "config", allow_hyphen_values = true)]
    max_batch_size: Option<String>,

    /// Of a model: time that the timing may take
    #[arg(long = "for", value_name = "TIME", default_value = "2s", allow_hyphen_values = true)]
    #[arg(value_parser = values::time(0.001..=86_400.0))]
    budget: Duration,

    /// Of a model: length of every free dimension, such as a sequence's
    #[arg(long, value_name = "N", value_parser = values::count(1..=1_000_000), allow_hyphen_values = true)]
    #[arg(requires = "model", conflicts_with = "config")]
    length: Option<usize>,

    /// Of a model: length of one free dimension by its name in the file; may be given several times
    #[arg(long, value_name = "NAME=N", requires = "model", conflicts_with = "config")]
    dim: Vec<String>,

    /// Of a model: print JSON and nothing else
    #[arg(long, requires = "model", conflicts_with = "config")]
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
            (config, None) | (config @ Some(_), _) => configuration::check(config.as_deref()),
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
            (None, Some(model)) => self.of_model(model),
        }
    }

    fn of_model(&self, path: &Path) -> ExitCode {
        match self.spec(path) {
            Ok(spec) => self.of_spec(path, &spec).unwrap_or_else(|reason| self.refused(path, None, &reason)),
            Err(reason) => self.refused(path, Some(false), &reason),
        }
    }

    /// Says why nothing was tried, and whether it can be served, if that is known.
    fn refused(&self, path: &Path, servable: Option<bool>, reason: &str) -> ExitCode {
        match self.json {
            true => say(&format!("{:#}", json!({ "file": shown(path), "servable": servable, "reason": reason }))),
            false => complain(reason),
        }
        ExitCode::from(USAGE)
    }

    fn spec(&self, path: &Path) -> Result<ModelSpec, String> {
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
        Ok(spec)
    }

    fn of_spec(&self, path: &Path, spec: &ModelSpec) -> Result<ExitCode, String> {
        match &spec.source {
            Source::Worker(_) => {
                profile::check_whose(spec, self.length.is_some(), false)?;
                self.of_worker(path, spec)
            }
            Source::Upstream(_) => {
                let model = shown(path);
                Err(format!("{model}: an upstream is not validated; uncork profile {model} asks it"))
            }
            _ => self.findings(path, spec),
        }
    }

    /// What a class in Python comes to.
    fn of_worker(&self, path: &Path, spec: &ModelSpec) -> Result<ExitCode, String> {
        let tried = tried(spec);
        if self.json {
            let mut all = json!({ "file": shown(path), "servable": tried.is_ok() });
            match &tried {
                Ok((loaded, row)) => {
                    all["warmed_up_with"] = json!(row);
                    all["inputs"] = loaded.signature.inputs.iter().map(tensor_json).collect();
                    all["outputs"] = loaded.signature.outputs.iter().map(tensor_json).collect();
                }
                Err(reason) => all["reason"] = json!(reason),
            }
            say(&format!("{all:#}"));
            return Ok(if tried.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(USAGE) });
        }
        let (loaded, row) = tried.map_err(|reason| format!("model '{}': {reason}", spec.name))?;
        tell(spec, &loaded, row);
        Ok(ExitCode::SUCCESS)
    }

    #[cfg(feature = "onnx")]
    fn findings(&self, path: &Path, spec: &ModelSpec) -> Result<ExitCode, String> {
        let findings = Findings::of(path, spec, self.budget)?;
        say(&if self.json {
            format!("{:#}", findings.json())
        } else {
            crate::quote::printable(&findings.text(uncork_commands::plot::terminal_width()))
        });
        Ok(if findings.good() { ExitCode::SUCCESS } else { ExitCode::from(USAGE) })
    }

    /// The refusal of a program without ONNX.
    #[cfg(not(feature = "onnx"))]
    fn findings(&self, _path: &Path, spec: &ModelSpec) -> Result<ExitCode, String> {
        Err(crate::registry::load(spec).err().unwrap_or_default())
    }
}

/// Starts a model's workers and runs the batches that a server begins with: the model, and of which row they were.
fn tried(spec: &ModelSpec) -> Result<(Loaded, Option<&'static str>), String> {
    let loaded = registry::load(spec)?;
    let row = loaded.try_out(spec)?;
    Ok((loaded, row))
}

/// What a tensor is, for programs: a length that is free, and the rows', is null.
fn tensor_json(spec: &TensorSpec) -> Value {
    let dims: Vec<Option<usize>> = spec.wire_shape().into_iter().map(|n| usize::try_from(n).ok()).collect();
    let axis = if let Rows::Axis(axis) = spec.rows { Some(axis) } else { None };
    json!({ "name": &*spec.name, "datatype": spec.datatype.name(), "shape": dims, "batch_axis": axis })
}

/// Says what a model that was tried takes and gives.
fn tell(spec: &ModelSpec, loaded: &Loaded, row: Option<&str>) {
    say(&format!("{}: can be served", spec.name));
    let tensor = |spec: &TensorSpec| format!("{} {} {:?}", Quoted(&spec.name), spec.datatype.name(), spec.wire_shape());
    let list = |specs: &[TensorSpec]| specs.iter().map(tensor).collect::<Vec<_>>().join(", ");
    if opaque::is_opaque(&loaded.signature) {
        say(&format!("  any body, at /models/{}", spec.name));
    } else {
        say(&format!("  takes {}", list(&loaded.signature.inputs)));
        say(&format!("  gives {}", list(&loaded.signature.outputs)));
    }
    say(&match row {
        Some(row) => format!("  warmed up with {row}"),
        None => "  not warmed up: it has no example of a request".to_owned(),
    });
}
