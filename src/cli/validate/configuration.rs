//! Everything that is wrong with a configuration, as far as that can be seen without serving it.

use std::path::Path;
use std::process::ExitCode;

use uncork_commands::layout::plural;
use uncork_commands::{USAGE, complain, say};

use crate::config::{self, Config, Flags};
use crate::quote::{Quoted, printable, shown};
use crate::registry::{Device, ModelSpec, Source};
use crate::repository::{Folder, Found, FoundModel};
use crate::telemetry::Settings;
use crate::worker::{Kind, Program};

/// What is said of a configuration that is in order, and what is wrong with one that is not.
#[derive(Debug, Default)]
struct Account {
    lines: Vec<String>,
    problems: Vec<String>,
}

/// Checks `path`, or else the file that `serve` would find.
pub(super) fn check(path: Option<&Path>) -> ExitCode {
    let flags = Flags { config: path.map(Path::to_owned), ..Flags::default() };
    // Without a working folder, relative paths are left as they are.
    let folder = std::env::current_dir().unwrap_or_default();
    let config = match config::resolve(&flags, std::env::vars_os(), &folder) {
        Ok(config) => config,
        Err(problems) => {
            complain(&problems.to_string());
            return ExitCode::from(USAGE);
        }
    };
    let Some(file) = config.file.clone() else {
        complain("name a model's file, or a configuration with --config: there is no ./uncork.toml");
        return ExitCode::from(USAGE);
    };
    let Account { lines, problems } = Account::of(config);
    if !problems.is_empty() {
        problems.iter().for_each(|problem| complain(problem));
        return ExitCode::from(USAGE);
    }
    say(&format!("{}: ok", shown(&file)));
    lines.iter().for_each(|line| say(&printable(line)));
    ExitCode::SUCCESS
}

impl Account {
    fn of(config: Config) -> Account {
        let mut account = Account::default();
        match config.server.check_files() {
            Ok(warning) => account.lines.extend(warning.map(|warning| format!("  {warning}"))),
            Err(problem) => account.problems.push(problem),
        }
        account.problems.extend(config.open_to_strangers().map(|address| {
            format!(
                "other machines can reach {address}, so callers need tokens: name a tokens_file; or, where the network keeps strangers \
                 out, say insecure = true (UNCORK_INSECURE=true)"
            )
        }));
        for model in &config.models {
            account.lines.push(summary(model));
            let problems = model_problems(model).into_iter();
            account.problems.extend(problems.map(|problem| format!("model '{}': {problem}", model.name)));
        }
        if config.has_only_the_embedded_model() {
            let line = "  no model is named, so the embedded one is served; a server that has others does not take this over at SIGHUP";
            account.lines.push(line.to_owned());
        }
        account.lines.extend(config.traces.as_ref().map(tracing));
        if let Some(folder) = config.folder {
            account.folder(folder.followed(config.strict), &config.models);
        }
        account
    }

    /// Reads the settings and the files of each model there, as a server would.
    fn folder(&mut self, folder: Folder, configured: &[ModelSpec]) {
        let (poll, path) = (folder.poll.as_secs_f64(), folder.path.display());
        self.lines.push(format!("  and those of the folder {path}, looked at every {poll} s"));
        let Found { models, others } = match folder.look() {
            Ok(found) => found,
            Err(error) => return self.problems.push(format!("{path}: cannot be read: {error}")),
        };
        for (name, found) in models {
            if configured.iter().any(|spec| spec.name == name) {
                self.lines.push(format!("    {name}: left alone: the configuration has a model of that name"));
                continue;
            }
            let FoundModel { described, files } = match found {
                Ok(found) => found,
                Err(problems) => {
                    self.problems.extend(problems.lines().map(|problem| format!("{path}/{name}: {problem}")));
                    continue;
                }
            };
            self.lines.push(format!("    {name}: ok"));
            self.lines.extend(described.notes.iter().map(|note| format!("      {note}")));
            for (version, file) in files {
                let spec = ModelSpec { source: Source::Onnx(file), ..described.spec.clone() };
                let problems = model_problems(&spec).into_iter();
                self.problems.extend(problems.map(|problem| format!("{path}/{name}: version {version}: {problem}")));
            }
        }
        self.lines.extend(others.iter().map(|other| format!("    {other}")));
    }
}

/// Why a model cannot be served, as far as that is seen without starting it.
fn model_problems(spec: &ModelSpec) -> Vec<String> {
    match &spec.source {
        Source::Worker(program) if program.kind == Kind::Command => missing_program(program).into_iter().collect(),
        _ => file_problems(spec),
    }
}

/// The same of its file.
#[cfg(feature = "onnx")]
fn file_problems(spec: &ModelSpec) -> Vec<String> {
    use crate::config::Isolated;
    use crate::onnx::Survey;
    use crate::quote::QuotedPlace;
    use crate::registry::BatchAxes;
    let (path, dims) = match &spec.source {
        Source::Onnx(path) => (path, spec.shapes.dims.clone()),
        Source::Worker(program) => match &program.kind {
            Kind::Isolated(path) => {
                let asked = program.target.as_deref().and_then(|target| Isolated::read(target).ok());
                (path, asked.map(|asked| asked.shapes.dims).unwrap_or_default())
            }
            _ => return Vec::new(),
        },
        _ => return Vec::new(),
    };
    let survey = match Survey::open(path) {
        Ok(survey) => survey,
        Err(error) => return vec![error.to_string()],
    };
    let missing = survey
        .missing()
        .map(|used| format!("operator {} (node {}) is not supported", Quoted(&used.name), QuotedPlace(&used.node)));
    let mut free = Vec::new();
    for input in &survey.inputs {
        for (axis, dim) in input.dims.iter().flatten().enumerate() {
            if let Err(name) = dim {
                // One without a name is called by its place, and one with a name may be.
                free.extend([format!("{}.{axis}", input.name), name.clone()]);
            }
        }
    }
    let unknown = dims.keys().filter(|name| !free.contains(name));
    let unknown = unknown.map(|name| {
        format!(
            "no free dimension is called {}: uncork validate {} names those that there are",
            Quoted(name),
            path.display()
        )
    });
    let axes = match &spec.shapes.batch_axes {
        BatchAxes::Named(axes) => axes.keys().collect(),
        _ => Vec::new(),
    };
    let unnamed = axes.into_iter().filter(|name| !survey.inputs.iter().any(|input| *input.name == ***name));
    let unnamed = unnamed.map(|name| format!("batch_axes: no input is called {}", Quoted(name)));
    missing.chain(unknown).chain(unnamed).collect()
}

/// What is wrong with a command whose program is looked for along `PATH`, and not there.
fn missing_program(worker: &Program) -> Option<String> {
    let name = worker.command.first().filter(|name| !name.contains('/'))?;
    let own = worker.env.iter().find(|(key, _)| key == "PATH").map(|(_, path)| path.into());
    let path = own.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    (!is_there).then(|| format!("no program is called {} along PATH", Quoted(name)))
}

/// A program without ONNX says so at the start.
#[cfg(not(feature = "onnx"))]
fn file_problems(_spec: &ModelSpec) -> Vec<String> {
    Vec::new()
}

/// `  digits 1: models/digits.onnx, max_latency_ms 50, max_batch_size 128, 1 runner of 2 threads`; where it shares
/// a pool, `… 1 runner of 2 threads in pool 'cpu' with weight 1`; where it runs some sizes
/// only, `… max_batch_size 32 in sizes of 1, 8, 32, …`; where its threads are its own affair, `… 1 runner`; where it computes elsewhere, `models/digits.onnx on wgpu, …`
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
    let threads = if model.source.heeds_threads() {
        format!(" of {}", plural(model.threads.get(), "thread"))
    } else {
        String::new()
    };
    format!(
        "  {} {}: {source}{device}, max_latency_ms {}, max_batch_size {}{sizes}, {}{threads}{pool}",
        model.name,
        model.version,
        model.max_latency.as_secs_f64() * 1e3,
        model.max_batch_rows,
        plural(model.runners.get(), "runner"),
    )
}

/// `  traces to http://127.0.0.1:4318/v1/traces: 10 % of the requests, or as their caller decides`
fn tracing(traces: &Settings) -> String {
    let followed = if traces.sampling.follow_caller { ", or as their caller decides" } else { "" };
    format!("  traces to {}: {} % of the requests{followed}", traces.endpoint, traces.sampling.ratio * 100.0)
}
