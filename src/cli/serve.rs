//! `uncork serve`

use std::convert::Infallible;
use std::io::{self, ErrorKind, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::{error, info, warn};
use uncork_commands::signals::{Hangups, Signals};
use uncork_commands::{USAGE, complain, say};

use super::giving_back::GivingBack;
use super::{descriptors, log};
use crate::config::{self, Config, Flags};
use crate::opaque;
use crate::registry::{self, Registry};
use crate::repository::{Reloaded, Repository, Settings};
use crate::server::{Ended, Options, Server};
use crate::telemetry::{Counts, Tracer, Traces};
use crate::worker;

/// Serve models over HTTP and gRPC until told to stop.
///
/// Speaks the Open Inference Protocol v2 (KServe, Triton) over both on one port, with Prometheus' metrics at /metrics and a page at /. Prints
/// its address when it is ready.
///
/// Without any model it serves the embedded one, `digits`. Where neither a file of settings nor one of a model is named and
/// ./uncork.toml exists, that is read.
/// SIGTERM or SIGINT: not ready at once, requests in flight are answered, exit 0; a second one stops at once.
/// SIGHUP: the configuration is read again, and applied whole or not at all.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Serve {
    /// Models to serve beside those of the configuration file: ONNX files, classes in Python files (app.py:Class), models on other
    /// servers (http://host:8080/v2/models/NAME)
    ///
    /// Each is named after its file, its class or its address; NAME= in front gives it another name.
    #[arg(value_name = "MODEL")]
    models: Vec<PathBuf>,

    /// Folder of models to serve and to follow: NAME/1/model.onnx, NAME/2/model.onnx; the highest version is served
    ///
    /// A new version is loaded beside the old one and takes its place when it is warm. NAME/model.toml may hold what [[model]]
    /// holds, and which versions are served. [env: UNCORK_MODELS]
    #[arg(long = "models", value_name = "DIR")]
    models_folder: Option<String>,

    /// Configuration file [env: UNCORK_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Address to listen on, or unix:PATH, or several between commas; port 0 takes a free one [env: UNCORK_HTTP] [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,

    /// File of tokens, a line for each: NAME TOKEN and rights (inference, scrape, admin); needed where other machines can ask
    ///
    /// Read again when it changes. [env: UNCORK_TOKENS_FILE]
    #[arg(long, value_name = "FILE")]
    tokens_file: Option<String>,

    /// Certificate in PEM: connections over TCP are then secured by TLS [env: UNCORK_TLS_CERTIFICATE]
    ///
    /// Read again when it changes, as is its key. With tls_client_ca of the configuration file clients need one as well.
    #[arg(long, value_name = "FILE")]
    tls_certificate: Option<String>,

    /// The certificate's private key, in PEM [env: UNCORK_TLS_KEY]
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,

    /// Answer everybody who reaches the address: for a network that keeps strangers out [env: UNCORK_INSECURE]
    #[arg(long)]
    insecure: bool,

    /// Do not start where a model cannot keep its latency cap even for a single row [env: UNCORK_STRICT]
    #[arg(long)]
    strict: bool,

    /// Address to listen on as well, for clients of gRPC that expect one of its own: each address speaks gRPC and HTTP [env: UNCORK_GRPC]
    #[arg(long, value_name = "ADDR")]
    grpc: Option<String>,

    /// Address for operators: health, metrics, status, the page and admin, on a thread of its own that no inference holds up [env: UNCORK_ADMIN]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,

    /// Cap on the time from arrival to answer: what would be later is refused with 503
    ///
    /// For every model. [env: UNCORK_MAX_LATENCY_MS] [default: 100]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    max_latency_ms: Option<String>,

    /// Cap on the rows of one batch
    ///
    /// For every model. [env: UNCORK_MAX_BATCH_SIZE] [default: 128]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    max_batch_size: Option<String>,

    /// Length of a free dimension by its name in the file, such as an image's height; may be given several times
    ///
    /// For every ONNX file.
    #[arg(long, value_name = "NAME=N")]
    dim: Vec<String>,

    /// Where models compute: flex (the processor), or wgpu or cuda in a program that was built with that feature
    ///
    /// For every model. [env: UNCORK_DEVICE] [default: flex]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,

    /// Batches that may run at once, each on its share of the cores
    ///
    /// For every model, and for every pool that models share. [env: UNCORK_RUNNERS] [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    runners: Option<String>,
}

/// The exit code where requests that had been taken were not answered.
const CUT_OFF: u8 = 1;

/// How long the end waits for a collector to take what is left.
const LAST_SPANS: Duration = Duration::from_secs(3);

/// How long workers may take to end by themselves once nothing is asked of them.
const LAST_WORKERS: Duration = Duration::from_secs(3);

const EXAMPLES: &str = "\
Examples:
  uncork serve
      the embedded digits model on http://127.0.0.1:8080
  uncork serve resnet.onnx --max-latency-ms 50 --max-batch-size 64
      one model with its two caps, as /v2/models/resnet/infer
  uncork serve app.py:Churn --max-latency-ms 50 --max-batch-size 64
      a class in Python with __call__(rows), as /models/churn
  uncork serve http://127.0.0.1:8000/v2/models/churn --max-latency-ms 50
      in front of a server that answers one request at a time
  uncork serve --models /srv/models
      all models of a folder, each in its newest version, which may change while they are served
  uncork serve --config uncork.toml --http 0.0.0.0:8080 --tokens-file tokens
      the models of a file, for other machines whose callers have a token
  uncork serve --http 127.0.0.1:8080,unix:/run/uncork.sock
      for this machine, over TCP and over a Unix socket
  UNCORK_LOG=uncork=debug uncork serve
      with more to read on stderr";

impl Serve {
    /// Serves, and returns when told to.
    pub(super) fn run(self) -> ExitCode {
        let flags = Flags {
            models: self.models,
            models_folder: self.models_folder,
            config: self.config,
            http: self.http,
            tokens_file: self.tokens_file,
            tls_certificate: self.tls_certificate,
            tls_key: self.tls_key,
            insecure: self.insecure,
            strict: self.strict,
            grpc: self.grpc,
            admin: self.admin,
            max_latency_ms: self.max_latency_ms,
            max_batch_size: self.max_batch_size,
            dims: self.dim,
            device: self.device,
            runners: self.runners,
        };
        let folder = match std::env::current_dir() {
            Ok(folder) => folder,
            Err(error) => {
                complain(&format!("the working folder cannot be found: {error}"));
                return ExitCode::from(USAGE);
            }
        };
        let config = match config::resolve(&flags, std::env::vars_os(), &folder) {
            Ok(config) => config,
            Err(problems) => {
                complain(&problems.to_string());
                return ExitCode::from(USAGE);
            }
        };
        let log = match log::start(&config.log, config.log_format) {
            Ok(log) => log,
            Err(error) => {
                complain(&format!("no threads to be had: {error}"));
                return ExitCode::from(USAGE);
            }
        };
        // This thread batches and hears of signals; HTTP has threads of its own, which accept.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => {
                error!(%error, "no threads to be had");
                return ExitCode::from(USAGE);
            }
        };
        let code = runtime.block_on(serve(config, Again { flags, folder })).unwrap_or_else(|message| {
            log.say(&message);
            USAGE
        });
        // A load that was broken off, or a model that hangs, must not hold the process.
        runtime.shutdown_background();
        worker::end_all(LAST_WORKERS);
        ExitCode::from(code)
    }
}

/// Serves, with traces if they are asked for, and returns the exit code, or what is wrong with what it is to serve.
async fn serve(config: Config, again: Again) -> Result<u8, String> {
    let traces = config.traces.clone().map(Traces::start);
    let tracer = traces.as_ref().map_or_else(Tracer::off, Traces::tracer);
    let code = serve_traced(config, again, tracer).await;
    if let Some(traces) = traces {
        let Counts { sent, dropped, failed } = traces.finish(LAST_SPANS).await;
        info!(sent, dropped, failed, "spans");
    }
    code
}

/// Binds, loads and serves. Whoever runs this batches: it must not wait for whoever reads stdout or stderr.
async fn serve_traced(config: Config, again: Again, tracer: Tracer) -> Result<u8, String> {
    if let Some(file) = &config.file {
        info!("settings from {}", file.display());
        if config.has_only_the_embedded_model() {
            warn!("no model is named there, so the embedded one is served");
        }
    }
    let (mut signals, hangups) = match Signals::listen().and_then(|signals| Ok((signals, Hangups::listen()?))) {
        Ok(both) => both,
        Err(error) => {
            error!(%error, "signals cannot be listened to");
            return Ok(USAGE);
        }
    };
    let max_connections = descriptors::make_room(config.server.max_connections);
    // Before the models: a port in use is found out at once, not when they are warm.
    let server = bind(&config, Options { max_connections, ..config.server.clone() }).await?;
    let server = match server.threads(config.http_threads) {
        Ok(server) => server,
        Err(error) => {
            error!(%error, "no threads to be had");
            return Ok(USAGE);
        }
    };
    // The threads of HTTP are there, and read on while this one batches.
    registry::wait_for_turns();
    let folder = config.folder.clone().map(|folder| folder.followed(config.strict));
    let (registry, opening) = Registry::open(config.models.clone(), tracer);
    let repository = Repository::new(registry.clone(), config.models.clone(), folder)
        .limited(config.budget)
        .strict(config.strict)
        .routed(config.routes.clone());
    let server = server.repository(repository.clone());
    let _giving_back = GivingBack::start();
    // Not ready before the folder's models are there too.
    let hold = registry.hold();
    let urls = urls(&server, config.http.len());
    let admin: Vec<_> = server.admin_urls().collect();
    let (stop, stopped) = oneshot::channel::<()>();
    // From now on probes are answered: live, and not ready while models are being loaded.
    let mut serving = std::pin::pin!(server.serve(registry.clone(), async {
        // The sender lives until it has sent.
        let _ = stopped.await;
    }));
    let (opened, is_strict) = (repository.clone(), config.strict);
    let loading = tokio::task::spawn_blocking(move || {
        let _hold = hold;
        opening.strict(is_strict).load()?;
        opened.open()
    });
    let told = tokio::select! {
        loaded = loading => match loaded {
            Ok(Ok(())) => {
                let (ready_line, banner) = (ready_line(&registry, &urls, &admin), banner(&registry, &urls));
                tokio::task::spawn_blocking(move || {
                    say(&ready_line);
                    // Programs read the line above; what follows is for people.
                    if io::stdout().is_terminal() {
                        say(&banner);
                    }
                });
                None
            }
            Ok(Err(errors)) => return Err(errors.to_string()),
            Err(_) => {
                error!("loading the models panicked; this is a bug in uncork");
                return Ok(USAGE);
            }
        },
        ended = serving.as_mut() => return Ok(note_end(ended)),
        // Models that are loaded already answer.
        told = signals.next() => Some(told),
    };
    let told = match told {
        Some(told) => told,
        None => tokio::select! {
            ended = serving.as_mut() => return Ok(note_end(ended)),
            told = signals.next() => told,
            never = repository.follow() => match never {},
            never = again.whenever_told(hangups, &config, &repository) => match never {},
        },
    };
    info!("{}: answering what is in flight; once more stops at once", told.by);
    let _ = stop.send(());
    Ok(tokio::select! {
        ended = serving => note_end(ended),
        told = signals.once_more() => {
            warn!("{}: stopping at once", told.by);
            told.exit_code
        }
    })
}

/// Where the settings came from.
struct Again {
    flags: Flags,
    folder: PathBuf,
}

impl Again {
    /// Reads the configuration again at each SIGHUP, and applies it whole or not at all. `config` is that of the start.
    async fn whenever_told(self, mut hangups: Hangups, config: &Config, repository: &Repository) -> Infallible {
        let Again { flags, folder } = self;
        let source = Arc::new((flags, folder));
        let mut is_embedded = config.has_only_the_embedded_model();
        loop {
            hangups.next().await;
            let source = Arc::clone(&source);
            let read = tokio::task::spawn_blocking(move || config::resolve(&source.0, std::env::vars_os(), &source.1));
            let is_applied = match read.await {
                Ok(Ok(new)) if new.has_only_the_embedded_model() && !is_embedded => {
                    error!(
                        "SIGHUP: nothing is changed: the settings name no model and no folder of models, and the embedded model takes no \
                         other's place: name one with [[model]], or with 'models' under [server]"
                    );
                    false
                }
                Ok(Ok(new)) => {
                    let to_embedded = new.has_only_the_embedded_model();
                    let is_applied = apply(new, config, repository).await;
                    is_embedded = if is_applied { to_embedded } else { is_embedded };
                    is_applied
                }
                Ok(Err(problems)) => {
                    let problems = problems.to_string();
                    problems.lines().for_each(|problem| error!("SIGHUP: nothing is changed: {problem}"));
                    false
                }
                Err(_) => {
                    error!("SIGHUP: nothing is changed: reading the settings panicked; this is a bug in uncork");
                    false
                }
            };
            repository.count_reload(is_applied);
        }
    }
}

/// Serves what `new` says, as far as that can change while the server runs, or says why not.
async fn apply(new: Config, config: &Config, repository: &Repository) -> bool {
    for key in config.fixed_keys_changed(&new) {
        warn!("SIGHUP: [server] {key} is another now, which takes effect at the next start");
    }
    let folder = new.folder.map(|folder| folder.followed(new.strict));
    let Config { models, routes, strict, budget, .. } = new;
    match repository.reload(Settings { models, routes, folder, strict, budget }).await {
        Ok(Reloaded { added, changed, removed }) => {
            let [added, changed, removed] = [added, changed, removed].map(|names| names.join(" "));
            info!(added, changed, removed, "SIGHUP: the settings are applied");
            true
        }
        Err(errors) => {
            errors.iter().for_each(|error| error!("SIGHUP: nothing is changed: {error}"));
            false
        }
    }
}

/// Listens at all addresses: those for HTTP, of which there is at least one, those for gRPC, and those for operators.
async fn bind(config: &Config, options: Options) -> Result<Server, String> {
    let wrong = |address: &String, flag: &str, error: io::Error| {
        // What is said of who may ask is not cured by another address.
        let is_ours = error.kind() == ErrorKind::InvalidInput;
        let hint = if is_ours { String::new() } else { format!("; {flag} names another address") };
        format!("cannot listen on {address}: {error}{hint}")
    };
    // Not an address's fault, so it is found out before any.
    options.check_files()?;
    let (first, others) = config.http.split_first().expect("there is an address");
    let mut server = Server::bind(first, options).await.map_err(|error| wrong(first, "--http", error))?;
    let others = others.iter().map(|address| (address, "--http"));
    for (address, flag) in others.chain(config.grpc.iter().map(|address| (address, "--grpc"))) {
        server = server.and(address).await.map_err(|error| wrong(address, flag, error))?;
    }
    for address in &config.admin {
        server = server.admin(address).await.map_err(|error| wrong(address, "--admin", error))?;
    }
    Ok(server)
}

/// How clients reach it, as text: behind the first `http` addresses come those for gRPC.
fn urls(server: &Server, http: usize) -> Vec<String> {
    let grpc = |url: String| url.split_once("://").map(|(_, address)| format!("grpc://{address}")).unwrap_or(url);
    server.urls().enumerate().map(|(i, url)| if i < http { url } else { grpc(url) }).collect()
}

/// `uncork serves digits on http://127.0.0.1:8080`
fn ready_line(registry: &Registry, urls: &[String], admin: &[String]) -> String {
    let models = registry.models();
    let mut names: Vec<_> = models.iter().map(|model| model.name()).collect();
    names.dedup();
    let names = if names.is_empty() { "nothing yet".to_owned() } else { names.join(", ") };
    let mut line = format!("uncork serves {names} on {}", urls.join(" and "));
    if !admin.is_empty() {
        line += &format!(" and operators on {}", admin.join(" and "));
    }
    line
}

/// Each model with its caps, where the page is, and what to try next.
fn banner(registry: &Registry, urls: &[String]) -> String {
    let models = registry.models();
    let widest = models.iter().map(|model| model.name().chars().count()).max().unwrap_or(0);
    let mut lines: Vec<String> = models
        .iter()
        .map(|model| {
            let (name, version, spec) = (model.name(), model.version(), model.spec());
            let (ms, rows) = (spec.max_latency.as_secs_f64() * 1e3, spec.max_batch_rows);
            let slow = if model.too_slow().is_some() { ": too slow for that" } else { "" };
            format!("  {name:widest$}  version {version}, within {ms} ms, {rows} rows a batch at most{slow}")
        })
        .collect();
    if let Some(url) = urls.iter().find(|url| url.starts_with("http")) {
        lines.push(format!("Page: {url}/ (metrics at /metrics, the API at /docs)"));
        if let Some(model) = models.first() {
            let name = model.name();
            lines.push(if opaque::is_opaque(model.signature()) {
                format!("Try:  curl {url}/models/{name} -d BODY, with a BODY that it takes; a load: uncork loadtest {url}/models/{name} --body FILE")
            } else {
                format!("Try:  uncork loadtest {url} --model {name} --rate 200 --for 10s")
            });
        }
    }
    lines.join("\n")
}

fn note_end(ended: Ended) -> u8 {
    match ended {
        Ended::Drained => {
            info!("drained");
            0
        }
        Ended::CutOff { connections } => {
            warn!("drain_timeout_ms passed; {connections} connections cut off");
            CUT_OFF
        }
        Ended::Broken => {
            error!("connections could no longer be accepted");
            CUT_OFF
        }
    }
}
