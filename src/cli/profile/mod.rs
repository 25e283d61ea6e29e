//! `uncork profile`

mod chart;
pub(super) mod findings;
mod html;
pub(super) mod inputs;
pub(super) mod measure;
mod memory;
pub(super) mod report;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use uncork_commands::{USAGE, complain, output, plot, say, values};

use self::inputs::Inputs;
use self::report::Report;
use crate::config::{self, Flags};
use crate::registry::{self, ModelSpec, Source, cores};
use crate::worker::{Kind, Program};

/// Measure how long a model's batches take, and what caps make sense.
///
/// Times batches of 1, 2, 3, 4, 6, 8 … rows, fits the line that the server would, and says where batches leave it, how many
/// rows a second they come to, how much memory they take, and which max_batch_size and max_latency_ms it suggests and why.
/// Without a model it measures the embedded one; ./uncork.toml counts as it does for `serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Profile {
    /// ONNX file, or a class in a Python file: app.py:Class
    #[arg(value_name = "MODEL")]
    file: Option<PathBuf>,

    /// Configuration file that has the model [env: UNCORK_CONFIG]
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,

    /// Which of its models, if there are several
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    model: Option<String>,

    /// The largest batch, in rows [default: the model's own cap, or 128]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    max_batch_size: Option<String>,

    /// Numbers of threads to compare, as in 1,2,4 [default: 1 and all that a runner has]
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', allow_hyphen_values = true)]
    #[arg(value_parser = values::count(1..=1024))]
    threads: Vec<usize>,

    /// Where to compute: flex (the processor), or wgpu or cuda in a program that was built with that feature
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,

    /// Time that the measurement may take
    #[arg(long = "for", value_name = "TIME", default_value = "20s", allow_hyphen_values = true)]
    #[arg(value_parser = values::time(0.001..=86_400.0))]
    budget: Duration,

    /// Length of every free dimension, such as a sequence's
    #[arg(long, value_name = "N", value_parser = values::count(1..=1_000_000), allow_hyphen_values = true)]
    length: Option<usize>,

    /// Length of one free dimension by its name in the file; may be given several times
    #[arg(long, value_name = "NAME=N")]
    dim: Vec<String>,

    /// Write a page with plots, in one file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write JSON to FILE, or print it and nothing else; without FILE, put it last
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    #[allow(clippy::option_option, reason = "clap's way to say: not there, there, there with a value")]
    json: Option<Option<PathBuf>>,
}

const EXAMPLES: &str = "\
Examples:
  uncork profile
      the embedded digits model
  uncork profile resnet.onnx --html resnet.html
      a model of your own, with a page to show around
  uncork profile app.py:Churn
      a class in Python, with its own example of a request
  uncork profile minilm.onnx --dim sequence=64 --max-batch-size 32 --for 1m
      sentences of 64 tokens
  uncork profile --config uncork.toml --model resnet --threads 1,2,4
      a model of a configuration file, with three numbers of threads";

/// Most numbers of threads that are compared: more would leave too little time for each.
const MOST_THREADS: usize = 6;

impl Profile {
    /// Measures, and prints what came of it.
    pub(super) fn run(self) -> ExitCode {
        match self.report().and_then(|report| self.deliver(&report)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(message) => {
                complain(&message);
                ExitCode::from(USAGE)
            }
        }
    }

    fn report(&self) -> Result<Report, String> {
        if let Some(Some(path)) = &self.json
            && path.extension().is_some_and(|extension| extension == "onnx")
        {
            return Err(format!("--json {}: would write over a model; put --json behind the model", path.display()));
        }
        let files = [self.json.as_ref().and_then(Option::as_ref), self.html.as_ref()];
        files.into_iter().flatten().try_for_each(|file| output::check(file))?;
        let spec = self.spec()?;
        let threads = self.threads(&spec)?;
        let loaded = registry::load(&spec).map_err(|reason| format!("model '{}': {reason}", spec.name))?;
        if !loaded.rehearses {
            let what = "it has no example of a request to measure with; give its class an `example`";
            return Err(format!("model '{}': {what}", spec.name));
        }
        let inputs = Inputs::of(&loaded);
        check_length(&spec, &inputs)?;
        let sizes = match &spec.allowed_batch_sizes {
            _ if loaded.is_single => vec![1],
            allowed if allowed.is_any() => sizes(spec.max_batch_rows.get()),
            allowed => allowed.iter().collect(),
        };
        let measured = measure::measure(&loaded, &inputs, &sizes, &threads, self.budget)?;
        let curves = findings::curves(&measured);
        let advice = findings::advise(&curves);
        Ok(Report {
            inputs: inputs.specs().to_vec(),
            assumed: inputs.assumed.filter(|_| self.length.is_none()),
            alone: loaded.alone,
            cores: cores().get(),
            stopped: measured.stopped,
            spec,
            curves,
            advice,
        })
    }

    /// The one model that is asked for.
    fn spec(&self) -> Result<ModelSpec, String> {
        let flags = Flags {
            models: self.file.iter().cloned().collect(),
            config: self.config.clone(),
            max_batch_size: self.max_batch_size.clone(),
            dims: self.dim.clone(),
            device: self.device.clone(),
            ..Flags::default()
        };
        let mut spec = only_model(&flags, self.model.as_deref())?;
        check_whose(&spec, self.length.is_some(), !self.threads.is_empty())?;
        spec.shapes.length = self.length;
        Ok(spec)
    }

    /// The numbers of threads, fewest first.
    fn threads(&self, spec: &ModelSpec) -> Result<Vec<NonZeroUsize>, String> {
        let asked = self.threads.iter().filter_map(|&n| NonZeroUsize::new(n));
        let mut threads: Vec<NonZeroUsize> = match spec.device.name() {
            _ if !self.threads.is_empty() => asked.collect(),
            // One number is all that there is: of a process in the file, or its own affair.
            _ if matches!(spec.source, Source::Worker(_)) || !spec.source.heeds_threads() => vec![spec.threads],
            "flex" => vec![NonZeroUsize::MIN, spec.threads],
            _ => vec![NonZeroUsize::MIN],
        };
        threads.sort_unstable();
        threads.dedup();
        if threads.len() > MOST_THREADS {
            return Err(format!("--threads: at most {MOST_THREADS} numbers can be compared"));
        }
        Ok(threads)
    }

    /// Prints, and writes the files that are asked for.
    fn deliver(&self, report: &Report) -> Result<(), String> {
        let json = || format!("{:#}\n", report.json());
        match &self.json {
            Some(None) => say(json().trim_end()),
            other => {
                say(&report.text(plot::terminal_width()));
                if let Some(Some(path)) = other {
                    output::write(path, &json())?;
                }
            }
        }
        match &self.html {
            Some(path) => output::write(path, &html::page(report)),
            None => Ok(()),
        }
    }
}

/// The one model that is asked for: that of a word on the command line, or else by its name where there are several.
pub(super) fn only_model(flags: &Flags, name: Option<&str>) -> Result<ModelSpec, String> {
    let folder = std::env::current_dir().map_err(|e| format!("the working folder cannot be found: {e}"))?;
    let config = config::resolve(flags, std::env::vars_os(), &folder).map_err(|problems| problems.to_string())?;
    let names: Vec<&str> = config.models.iter().map(|spec| spec.name.as_str()).collect();
    let names = names.join(", ");
    match name {
        // What a word names comes behind the models of a file, which UNCORK_CONFIG may name.
        _ if !flags.models.is_empty() => {
            config.models.into_iter().next_back().ok_or_else(|| "there is no model".to_owned())
        }
        _ if config.models.is_empty() && config.folder.is_some() => {
            Err("profile does not read a folder of models: name the file".to_owned())
        }
        Some(name) => {
            let found = config.models.into_iter().find(|spec| spec.name == name);
            found.ok_or_else(|| format!("--model {name}: there is no such model; there are {names}"))
        }
        None if config.models.len() > 1 => Err(format!("--model says which of these to measure: {names}")),
        None => config.models.into_iter().next().ok_or_else(|| "there is no model".to_owned()),
    }
}

/// Refuses flags that nobody would heed, as what they are about is not done in this process.
pub(super) fn check_whose(spec: &ModelSpec, has_length: bool, has_threads: bool) -> Result<(), String> {
    let (length, threads) = match &spec.source {
        Source::Worker(Program { kind: Kind::Isolated(_), .. }) => (
            "a model with isolation = \"process\" has its lengths from 'dims' in its file, or from --dim",
            "a model with isolation = \"process\" has as many as its file says",
        ),
        Source::Worker(_) => ("a worker says itself which shapes it takes", "a worker has as many as its program says"),
        Source::Upstream(_) | Source::Remote(_) => {
            ("the upstream server says which shapes it takes", "the upstream server has as many as it likes")
        }
        Source::Synthetic { .. } => ("a stand-in has no free dimension", "a stand-in computes nothing"),
        Source::Embedded | Source::Onnx(_) | Source::Runners(_) => return Ok(()),
    };
    match (has_length, has_threads) {
        (true, _) => Err(format!("--length: {length}")),
        (_, true) => Err(format!("--threads: {threads}")),
        _ => Ok(()),
    }
}

/// Refuses a length for all free dimensions where none is free.
pub(super) fn check_length(spec: &ModelSpec, inputs: &Inputs) -> Result<(), String> {
    if spec.shapes.length.is_some() && inputs.assumed.is_none() && spec.shapes.dims.is_empty() {
        return Err("--length: the model has no free dimension beside the batch".into());
    }
    Ok(())
}

/// 1, 2, 3, 4, 6, 8, 12, 16 … and the largest: powers of two and the middle between them.
fn sizes(largest: usize) -> Vec<usize> {
    let powers = (0..usize::BITS - 1).map(|i| 1usize << i).take_while(|&power| power < largest);
    let mut sizes: Vec<usize> = powers.flat_map(|n| [n, n + n / 2]).filter(|&n| n < largest).collect();
    sizes.push(largest);
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_and_the_middle_between_them_up_to_the_largest() {
        assert_eq!(sizes(16), [1, 2, 3, 4, 6, 8, 12, 16]);
        assert_eq!(sizes(13), [1, 2, 3, 4, 6, 8, 12, 13]);
        assert_eq!((sizes(1), sizes(2), sizes(3)), (vec![1], vec![1, 2], vec![1, 2, 3]));
    }
}
