//! `uncork validate`

use std::path::PathBuf;
use std::process::ExitCode;

use super::layout::plural;
use super::{USAGE, complain, say};
use crate::config::{self, Flags};
use crate::registry::{Device, ModelSpec, Source};
use crate::telemetry::Settings;

/// Check a configuration file, and start nothing.
///
/// Prints every error at once, with its line, key, value and bound; environment variables count, as they do for `serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  uncork validate --config uncork.toml")]
pub(super) struct Validate {
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

impl Validate {
    /// Checks, prints, and says by its exit code whether all is well.
    pub(super) fn run(self) -> ExitCode {
        let flags = Flags { config: Some(self.config.clone()), ..Flags::default() };
        // Without a working folder, relative paths are left as they are.
        let folder = std::env::current_dir().unwrap_or_default();
        match config::resolve(&flags, std::env::vars_os(), &folder) {
            Ok(config) => {
                say(&format!("{}: ok", self.config.display()));
                for model in &config.models {
                    say(&summary(model));
                }
                if let Some(traces) = &config.traces {
                    say(&tracing(traces));
                }
                ExitCode::SUCCESS
            }
            Err(problems) => {
                complain(&problems.to_string());
                ExitCode::from(USAGE)
            }
        }
    }
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
        Source::Runners(_) => "built by the program".to_owned(),
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
