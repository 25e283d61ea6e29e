//! From `uncork.toml`, the environment and the command line to checked settings.
//!
//! A flag outweighs an environment variable, which outweighs the file, which outweighs the default. Nothing is ignored:
//! an unknown key or variable, and one that would have no effect, is an error. All errors are found in one go, each
//! with its place, the value and the bound. (A derived `Deserialize` would stop at the first; hence [`file`] walks the
//! parsed document itself.)
//!
//! | `[server]` | default | |
//! | --- | --- | --- |
//! | `http` | `127.0.0.1:8080` | address to listen on, or `unix:PATH`, or a list of these |
//! | `grpc` | – | the same, for clients of gRPC that expect an address of its own: both speak everything |
//! | `admin` | – | the same, for operators: everything but inference, on a thread of its own |
//! | `tokens_file` | – | who may ask, and what: a line `NAME TOKEN RIGHT …` for each; read again when it changes |
//! | `tls_certificate`, `tls_key` | – | files in PEM with which connections over TCP are secured; read again when they change |
//! | `tls_client_ca` | – | a file in PEM with the roots of the certificates that clients then need |
//! | `insecure` | `false` | whether everybody who reaches an address of this machine may ask, without tokens |
//! | `strict` | `false` | whether a model that cannot keep its latency cap is an error, and not only a warning |
//! | `hosts` | – | names of this server, as `["ml.example.com"]`. On a loopback address: those that a proxy on this machine passes on in `Host`. With tokens: those that browsers know a proxy by that passes on no `Host` |
//! | `http_threads` | one for each core | threads that read, decode, encode and write |
//! | `max_connections` | 4096 | see [`Options`] for these |
//! | `max_head_bytes`, `max_body_bytes` | 16384, 67108864 | |
//! | `max_answer_bytes`, `max_bodies_bytes` | 268435456, 1073741824 | |
//! | `head_timeout_ms`, `body_timeout_ms` | 10000, 30000 | |
//! | `idle_timeout_ms`, `write_timeout_ms` | 75000, 30000 | |
//! | `drain_delay_ms`, `drain_timeout_ms` | 0, 30000 | |
//! | `log_format` | `pretty` on a terminal | `pretty` (in colours) or `json`; without it, and with no terminal, plain lines |
//! | `otlp` | – | a collector's address, for traces: `http://127.0.0.1:4318` |
//! | `trace_ratio` | 1 | share of the requests that are traced where their caller has not decided |
//! | `models` | – | a folder of models that is followed, beside those of this file: `NAME/1/model.onnx`, with `NAME/model.toml` |
//! | `models_poll_ms` | 2000 | how often it is looked at |
//! | `max_models_bytes` | – | a bound on the memory of all models together, by their weights and full batches; one of an ONNX file takes 2.1 MB a runner at least |
//! | `unload_least_used` | `false` | whether those that were not asked for longest make room for one that is loaded |
//!
//! | `[[model]]` | default | |
//! | --- | --- | --- |
//! | `name`, `version` | –, `"1"` | what callers use |
//! | `path` | – | an ONNX file, seen from the configuration file's folder |
//! | `python` | – | instead of `path`: a class or a function in Python, `"app:Class"` or `"app.py:Class"` |
//! | `command` | – | instead of `path`: a program that speaks docs/workers.md, as `["./worker", "--flag"]` |
//! | `synthetic` | – | instead of `path`: `{ base_ms = …, per_row_ms = … }` |
//! | `upstream` | – | instead of `path`: another server, `"http://host:9000/v2/models/churn"`, or several (docs/upstream.md) |
//! | `upstream_token_file` | – | a file with the token that is sent there |
//! | `isolation` | – | `"process"`: the model of `path` in a process of its own, which can fail without the server |
//! | `python_path` | `python3`, or that beside `uncork` | the interpreter of a `python` model |
//! | `env` | – | set for the model's processes beside our environment: `{ OMP_NUM_THREADS = "1" }` |
//! | `working_folder` | the configuration file's | where they start |
//! | `start_timeout_ms` | 60000 | how long they may take to be ready |
//! | `max_memory_mb` | – | one that has more resident memory, its children's included, is killed and replaced |
//! | `dims` | – | lengths of free dimensions by their names in the file: `{ height = 640, width = 640 }` |
//! | `batch_axes` | found by trying | where inputs have their rows: `{ state = 1, sr = "none" }`; `"none"`: requests are run as they are |
//! | `max_latency_ms`, `max_batch_size` | 100, 128 | the two caps |
//! | `allowed_batch_sizes` | all | where the model runs no others: batches are padded to the next one, `[1, 8, 32, 128]` |
//! | `lengths` | `"group"` | rows of different lengths: those that are equal run together, or `"pad"`: all are filled up to the longest (docs/models.md) |
//! | `device` | `"flex"` | where it computes: `flex` (the processor), or `wgpu`, `cuda` in a program built with that feature |
//! | `runners`, `threads` | 1, cores / runners | threads where it computes in the server, or with `isolation` |
//! | `pool`, `weight` | –, 1 | shares the runners of that pool, with its part by weight; then without `runners` |
//! | `labels` | – | names of versions, for `/v1/models/M/labels/L`: `{ stable = 1, canary = 2 }`; in one of a model's tables |
//! | `weights` | the highest version | parts of the requests that name no version: `{ "1" = 90, "2" = 10 }` |
//! | `shadow` | – | a version that gets copies of what the others are asked, and answers nobody: `"2"` |
//! | `stuck_after_ms` | 10 × `max_latency_ms`, 10000 at least | a batch that runs for so long is given up with 500, its runner replaced |
//! | `max_queue_rows`, `max_queue_bytes` | 128 batches, 268435456 | |
//!
//! In `NAME/model.toml` of that folder these keys stand without a table, but for those that say which model it is. There
//! is one more: `versions`, which is `"latest"` (the default), `"all"`, how many of the latest, or a list like `[1, 3]`. Of Triton's
//! `NAME/config.pbtxt` its `max_batch_size`, `version_policy`, counts of `instance_group` and `default_model_filename` are read where
//! `model.toml` does not say it.
//!
//! | `[[pool]]` | default | |
//! | --- | --- | --- |
//! | `name` | – | what models call it |
//! | `runners` | 1 | batches that may run at once, of all its models together |
//!
//! Each key of `[server]` is also the variable `UNCORK_` and its name in capitals. Of `[[model]]` these are: the two caps, `device`,
//! `runners`, `threads`, `stuck_after_ms`, `max_queue_rows` and `max_queue_bytes`; they then hold for every model, and
//! `UNCORK_RUNNERS` for every pool too.
//!
//! Where nothing names a model the embedded one is served. A file that is named and has nothing in it is an error.
//!
//! A server that runs takes over what is read again, but for what [`Config::fixed_keys_changed`] names.

mod environment;
mod file;
mod folder;
mod keys;
mod model;
pub(crate) mod pbtxt;
mod pool;
mod problem;
mod reload;
mod routes;
mod server;
mod setting;
mod traces;
mod upstream;
mod worker;

use std::collections::BTreeMap;
#[cfg(feature = "onnx")]
pub(crate) use worker::Isolated;

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

pub use folder::ModelsFolder;
pub use problem::{Place, Problem, Problems};
pub use server::LogFormat;

use crate::registry::{ModelSpec, Routes};
use crate::repository::Budget;
use crate::server::{Access, Options};
use crate::telemetry;
use environment::Environment;
use file::File;
use problem::Report;
use setting::Setting;

/// The file that is used when it lies in the working folder, and neither another nor a model's file is named.
pub const DEFAULT_FILE: &str = "uncork.toml";

/// What the command line says, unchecked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    /// ONNX files to serve, beside those of the configuration file.
    pub models: Vec<PathBuf>,
    /// `--models`, a folder of them
    pub models_folder: Option<String>,
    /// `--config`
    pub config: Option<PathBuf>,
    /// `--http`
    pub http: Option<String>,
    /// `--tokens-file`
    pub tokens_file: Option<String>,
    /// `--tls-certificate`
    pub tls_certificate: Option<String>,
    /// `--tls-key`
    pub tls_key: Option<String>,
    /// `--insecure`
    pub insecure: bool,
    /// `--strict`
    pub strict: bool,
    /// `--grpc`
    pub grpc: Option<String>,
    /// `--admin`
    pub admin: Option<String>,
    /// `--max-latency-ms`
    pub max_latency_ms: Option<String>,
    /// `--max-batch-size`
    pub max_batch_size: Option<String>,
    /// `--dim`, each as `NAME=N`
    pub dims: Vec<String>,
    /// `--device`
    pub device: Option<String>,
    /// `--runners`
    pub runners: Option<String>,
}

impl Flags {
    /// The flag that stands for `key`.
    fn get(&self, key: &str) -> Option<Setting> {
        let (flag, value) = match key {
            "http" => ("--http", &self.http),
            "models" => ("--models", &self.models_folder),
            "insecure" if self.insecure => return Some(Setting::word(Place::Flag("--insecure"), "true".into())),
            "strict" if self.strict => return Some(Setting::word(Place::Flag("--strict"), "true".into())),
            "tokens_file" => ("--tokens-file", &self.tokens_file),
            "tls_certificate" => ("--tls-certificate", &self.tls_certificate),
            "tls_key" => ("--tls-key", &self.tls_key),
            "grpc" => ("--grpc", &self.grpc),
            "admin" => ("--admin", &self.admin),
            "max_latency_ms" => ("--max-latency-ms", &self.max_latency_ms),
            "max_batch_size" => ("--max-batch-size", &self.max_batch_size),
            "device" => ("--device", &self.device),
            "runners" => ("--runners", &self.runners),
            _ => return None,
        };
        value.as_ref().map(|value| Setting::word(Place::Flag(flag), value.clone()))
    }
}

/// Checked settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The address to listen on, as `host:port`.
    pub http: Vec<String>,
    /// Those to listen on as well, for clients of gRPC that expect an address of their own.
    pub grpc: Vec<String>,
    /// Those for operators, which serve everything but inference, on a thread of their own.
    pub admin: Vec<String>,
    /// Threads that read, decode, encode and write.
    pub http_threads: NonZeroUsize,
    /// Bounds towards clients.
    pub server: Options,
    /// Whether a model that cannot keep its latency cap is an error.
    pub strict: bool,
    /// The models, at least one where there is no folder of them.
    pub models: Vec<ModelSpec>,
    /// The folder of models that is followed.
    pub folder: Option<ModelsFolder>,
    /// Which versions of these models answer whom, where that is not simply the highest.
    pub routes: BTreeMap<String, Routes>,
    /// A bound on the memory of all models together.
    pub budget: Budget,
    /// What is logged, in `tracing`'s filter syntax.
    pub log: String,
    /// In which form; `None`: for people, in colours on a terminal.
    pub log_format: Option<LogFormat>,
    /// Where traces go; `None`: there are none.
    pub traces: Option<telemetry::Settings>,
    /// The file that was read.
    pub file: Option<PathBuf>,
}

impl Config {
    /// An address that a server would not open, since other machines reach it and nothing says who may ask there.
    pub(crate) fn open_to_strangers(&self) -> Option<&str> {
        let mut all = self.http.iter().chain(&self.grpc).chain(&self.admin);
        let is_local = matches!(self.server.access, Access::Local { .. });
        all.find(|address| is_local && server::is_public(address)).map(String::as_str)
    }
}

/// Finds, merges and checks all settings. `folder` is the working folder: [`DEFAULT_FILE`] is looked for there, and
/// relative paths start there.
pub fn resolve(
    flags: &Flags,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    folder: &Path,
) -> Result<Config, Problems> {
    let mut report = Report::default();
    let environment = Environment::read(environment, &mut report);
    let path = flags.config.clone().or_else(|| environment.config()).or_else(|| {
        let default = PathBuf::from(DEFAULT_FILE);
        (flags.models.is_empty() && folder.join(&default).exists()).then_some(default)
    });
    let file = path.as_ref().map_or_else(File::default, |path| File::read(path, folder, &mut report));
    let is_named = flags.config.is_some() || environment.config().is_some();
    let layers = Layers { flags, environment: &environment };
    let server::Checked {
        http,
        grpc,
        admin,
        http_threads,
        options,
        strict,
        log_format,
        traces,
        models: of_models,
        budget,
    } = server::check(&file.server, &file.folder, &layers, &mut report);
    let (models, pools) = model::check_all(&file, flags, folder, &layers, of_models.is_some(), &mut report);
    let routes = routes::of_file(&file, &models, &mut report);
    let log = environment.log(&mut report);
    if let Some(path) =
        path.as_ref().filter(|_| is_named && file.is_empty && flags.models.is_empty() && of_models.is_none())
    {
        let place = Place::File { file: path.clone(), line: None, key: String::new() };
        report.note(
            place,
            "holds no settings: name a model with [[model]], or a folder of models with 'models' under [server]; the embedded model is \
             served where no file is named, or where one has [server] alone",
        );
    }
    report.finish()?;
    let folder = of_models.map(|(of_models, poll)| ModelsFolder {
        path: folder.join(of_models),
        poll,
        flags: flags.clone(),
        environment: environment.clone(),
        pools,
    });
    Ok(Config {
        http,
        grpc,
        admin,
        http_threads,
        server: options,
        strict,
        models,
        folder,
        routes,
        budget,
        log,
        log_format,
        traces,
        file: path,
    })
}

/// The layers above the file.
struct Layers<'a> {
    flags: &'a Flags,
    environment: &'a Environment,
}

impl Layers<'_> {
    /// The setting of `key` that outweighs all others. A weaker one is not looked at, nor checked.
    fn strongest(&self, key: &str, file: Option<&Setting>) -> Option<Setting> {
        self.flags.get(key).or_else(|| self.environment.get(key)).or_else(|| file.cloned())
    }
}
