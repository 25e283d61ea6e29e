//! The checked form of `[server]`.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Layers;
use super::file::Table;
use super::problem::{Place, Report};
use super::setting::{Setting, Value};
use super::traces;
use crate::quote::Quoted;
use crate::registry::cores;
use crate::repository::Budget;
use crate::server::{self, Access, Options, Tls, is_host};
use crate::telemetry;

/// Only this machine can reach it: whoever opens it to others does so knowingly.
const DEFAULT_HTTP: &str = "127.0.0.1:8080";

/// Most threads that make sense for HTTP.
const HTTP_THREADS: RangeInclusive<usize> = 1..=1024;

/// How often the folder of models is looked at. Shorter: a new version is picked up sooner; it is loaded at the second look.
const MODELS_POLL: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(24 * 3600);
const DEFAULT_MODELS_POLL: Duration = Duration::from_secs(2);

/// The least holds one small model.
const MODELS_BYTES: RangeInclusive<usize> = 1_000_000..=1 << 50;

/// The form of the log's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people, in colours.
    Pretty,
    /// A JSON object a line.
    Json,
}

/// What `[server]` comes to.
pub(super) struct Checked {
    /// The addresses to listen on, at least one.
    pub(super) http: Vec<String>,
    /// Those to listen on as well, for clients of gRPC that expect an address of its own.
    pub(super) grpc: Vec<String>,
    /// Those for operators.
    pub(super) admin: Vec<String>,
    /// Threads that read, decode, encode and write.
    pub(super) http_threads: NonZeroUsize,
    /// The bounds.
    pub(super) options: Options,
    /// Whether a model that cannot keep its latency cap is an error.
    pub(super) strict: bool,
    /// The form of the log.
    pub(super) log_format: Option<LogFormat>,
    /// Where traces go, if anywhere.
    pub(super) traces: Option<telemetry::Settings>,
    /// A folder of models, and how often it is looked at.
    pub(super) models: Option<(PathBuf, Duration)>,
    /// A bound on the memory of all models.
    pub(super) budget: Budget,
}

/// Checks all of `[server]`.
pub(super) fn check(table: &Table, folder: &Path, layers: &Layers<'_>, report: &mut Report) -> Checked {
    let strongest = |key: &str| layers.strongest(key, table.get(key));
    let listed =
        |key: &str, report: &mut Report| strongest(key).and_then(|own| Some((own.clone(), addresses(&own, report)?)));
    let (http, grpc, admin) = (listed("http", report), listed("grpc", report), listed("admin", report));
    let defaults = Options::default();
    let millis = |key, default, bounds: RangeInclusive<Duration>, report: &mut Report| {
        strongest(key).and_then(|setting| setting.millis(bounds, report)).unwrap_or(default)
    };
    let whole = |key, default, bounds, report: &mut Report| {
        strongest(key).and_then(|setting| setting.whole(bounds, report)).unwrap_or(default)
    };
    let connections = strongest("max_connections").and_then(|s| s.count(Options::CONNECTIONS, report));
    let options = Options {
        max_connections: connections.unwrap_or(defaults.max_connections),
        max_head_bytes: whole("max_head_bytes", defaults.max_head_bytes, Options::HEAD_BYTES, report),
        max_body_bytes: whole("max_body_bytes", defaults.max_body_bytes, Options::BODY_BYTES, report),
        max_answer_bytes: whole("max_answer_bytes", defaults.max_answer_bytes, Options::ANSWER_BYTES, report),
        max_bodies_bytes: whole("max_bodies_bytes", defaults.max_bodies_bytes, Options::BODIES_BYTES, report),
        head_timeout: millis("head_timeout_ms", defaults.head_timeout, Options::CLIENT_TIME, report),
        body_timeout: millis("body_timeout_ms", defaults.body_timeout, Options::CLIENT_TIME, report),
        idle_timeout: millis("idle_timeout_ms", defaults.idle_timeout, Options::CLIENT_TIME, report),
        write_timeout: millis("write_timeout_ms", defaults.write_timeout, Options::CLIENT_TIME, report),
        drain_delay: millis("drain_delay_ms", defaults.drain_delay, Options::DRAIN_TIME, report),
        drain_timeout: millis("drain_timeout_ms", defaults.drain_timeout, Options::DRAIN_TIME, report),
        access: access(&strongest, folder, report),
        tls: tls(&strongest, folder, report),
    };
    let mut said: Vec<(Setting, Vec<String>)> = [&http, &grpc, &admin].into_iter().flatten().cloned().collect();
    if http.is_none() {
        let default = Setting::word(Place::Flag("--http"), DEFAULT_HTTP.into());
        said.insert(0, (default, vec![DEFAULT_HTTP.into()]));
    }
    refuse_twice(&said, report);
    let all = options.max_bodies_bytes;
    for (key, one) in [("max_body_bytes", options.max_body_bytes), ("max_answer_bytes", options.max_answer_bytes)] {
        if all < one
            && let Some(setting) = strongest("max_bodies_bytes").or_else(|| strongest(key))
        {
            setting.refuse(report, format!("max_bodies_bytes ({all}) must be at least {key} ({one})"));
        }
    }
    let http_threads = strongest("http_threads").and_then(|s| s.count(HTTP_THREADS, report));
    // Reading and writing is most of the work for a fast model, and while a slow one runs they wait.
    let http_threads = http_threads.unwrap_or_else(cores);
    let strict = strongest("strict").and_then(|setting| setting.flag(report)).unwrap_or(false);
    let log_format = strongest("log_format").and_then(|setting| log_format(&setting, report));
    let traces = traces::check(table, layers, report);
    let models = models(&strongest, folder, report);
    let budget = budget(&strongest, report);
    Checked {
        http: http.map_or_else(|| vec![DEFAULT_HTTP.into()], |(_, addresses)| addresses),
        grpc: grpc.map(|(_, addresses)| addresses).unwrap_or_default(),
        admin: admin.map(|(_, addresses)| addresses).unwrap_or_default(),
        http_threads,
        options,
        strict,
        log_format,
        traces,
        models,
        budget,
    }
}

/// The bound on the memory of all models, and whether one makes room for another.
fn budget(strongest: &impl Fn(&str) -> Option<Setting>, report: &mut Report) -> Budget {
    let (most, unload) = (strongest("max_models_bytes"), strongest("unload_least_used"));
    if let (None, Some(unload)) = (&most, &unload) {
        unload.refuse(report, "has no effect without 'max_models_bytes'; leave this setting out");
    }
    let max_bytes = most.and_then(|setting| setting.whole(MODELS_BYTES, report)).map(|bytes| bytes as u64);
    Budget { max_bytes, unload_least_used: unload.and_then(|setting| setting.flag(report)).unwrap_or(false) }
}

/// The folder of models. Relative to `folder` stands what the configuration file names.
fn models(
    strongest: &impl Fn(&str) -> Option<Setting>,
    folder: &Path,
    report: &mut Report,
) -> Option<(PathBuf, Duration)> {
    let poll = strongest("models_poll_ms");
    let Some(setting) = strongest("models") else {
        if let Some(poll) = poll {
            poll.refuse(report, "has no effect without 'models', the folder that is looked at; leave this setting out");
        }
        return None;
    };
    let path = file(&setting, folder, report);
    if !path.is_dir() {
        setting.refuse(report, "is not a folder");
    }
    let poll = poll.and_then(|setting| setting.millis(MODELS_POLL, report)).unwrap_or(DEFAULT_MODELS_POLL);
    Some((path, poll))
}

/// Who may ask. Relative to `folder` stands what the configuration file names.
fn access(strongest: &impl Fn(&str) -> Option<Setting>, folder: &Path, report: &mut Report) -> Access {
    let (tokens, hosts) = (strongest("tokens_file"), strongest("hosts"));
    let is_insecure = strongest("insecure").filter(|setting| setting.flag(report) == Some(true));
    if let (Some(tokens), Some(_)) = (&tokens, &is_insecure) {
        tokens.refuse(report, "has no effect where everybody may ask; leave this setting or 'insecure' out");
    }
    if let (Some(hosts), Some(_)) = (&hosts, &is_insecure) {
        hosts.refuse(report, "has no effect where everybody may ask; leave this setting or 'insecure' out");
    }
    if is_insecure.is_some() {
        return Access::Everybody;
    }
    let named = hosts.as_ref().and_then(|hosts| hosts.texts(report)).unwrap_or_default();
    if let (Some(hosts), Some(wrong)) = (&hosts, named.iter().find(|name| !is_host(name))) {
        hosts.refuse(
            report,
            format!("{} is no name of a host, without scheme and port, as ml.example.com is one", Quoted(wrong)),
        );
    }
    let hosts = named;
    if let Some(setting) = tokens {
        return Access::Tokens { file: file(&setting, folder, report), hosts };
    }
    Access::Local { hosts }
}

/// What secures connections. A certificate and its key belong together.
fn tls(strongest: &impl Fn(&str) -> Option<Setting>, folder: &Path, report: &mut Report) -> Option<Tls> {
    let found = (strongest("tls_certificate"), strongest("tls_key"), strongest("tls_client_ca"));
    let (certificate, key, client_ca) = match found {
        (Some(certificate), Some(key), client_ca) => (certificate, key, client_ca),
        (None, None, None) => return None,
        (certificate, key, client_ca) => {
            if let Some(lonely) = certificate.or(key).or(client_ca) {
                lonely.refuse(report, "TLS needs both 'tls_certificate' and 'tls_key'");
            }
            return None;
        }
    };
    let mut file = |setting: &Setting| file(setting, folder, report);
    Some(Tls { certificate: file(&certificate), key: file(&key), client_ca: client_ca.as_ref().map(file) })
}

/// A path; relative to `folder` where the configuration file names it.
fn file(setting: &Setting, folder: &Path, report: &mut Report) -> PathBuf {
    let file = setting.text(report).map(PathBuf::from).unwrap_or_default();
    if matches!(setting.place, Place::File { .. }) { folder.join(file) } else { file }
}

fn log_format(setting: &Setting, report: &mut Report) -> Option<LogFormat> {
    match setting.text(report)? {
        "pretty" => Some(LogFormat::Pretty),
        "json" => Some(LogFormat::Json),
        _ => {
            setting.refuse(report, "must be \"pretty\" or \"json\"");
            None
        }
    }
}

/// One address, a list, or words between commas.
fn addresses(setting: &Setting, report: &mut Report) -> Option<Vec<String>> {
    let text = |item: &Value| if let Value::Text(text) = item { Some(text.clone()) } else { None };
    let found: Option<Vec<String>> = match &setting.value {
        Value::Text(text) => Some(vec![text.clone()]),
        Value::List(items) => items.iter().map(text).collect(),
        Value::Word(_) => setting.texts(report),
        _ => None,
    };
    let found = found.unwrap_or_default();
    if found.is_empty() || !found.iter().all(|text| is_address(text)) {
        let message = "must be an address and a port, like 127.0.0.1:8080, 0.0.0.0:8080 or [::]:8080, or unix:PATH, or a list of these";
        setting.refuse(report, message);
        return None;
    }
    Some(found)
}

/// Refuses addresses that are said twice.
fn refuse_twice(all: &[(Setting, Vec<String>)], report: &mut Report) {
    let mut earlier: Vec<&String> = Vec::new();
    for (setting, addresses) in all {
        for address in addresses {
            if earlier.iter().any(|other| is_taken_by(address, other)) {
                setting.refuse(
                    report,
                    format!("{address} is listened on already: name another address, or leave one out"),
                );
            }
            earlier.push(address);
        }
    }
}

/// Whether other machines reach that address, as far as its text tells.
pub(super) fn is_public(address: &str) -> bool {
    address.parse::<SocketAddr>().is_ok_and(|address| !address.ip().to_canonical().is_loopback())
}

/// Whether nobody can listen on the one beside the other. Port 0 is a free one each time.
fn is_taken_by(address: &str, other: &str) -> bool {
    match (address.parse::<SocketAddr>(), other.parse::<SocketAddr>()) {
        (Ok(a), Ok(b)) => {
            let is_same = a.ip() == b.ip()
                || (a.is_ipv4() == b.is_ipv4() && (a.ip().is_unspecified() || b.ip().is_unspecified()));
            a.port() == b.port() && a.port() != 0 && is_same
        }
        _ => address == other && !address.ends_with(":0"),
    }
}

/// `host:port`, where the host is an address or a name, which is looked up when the server binds; or `unix:PATH`.
fn is_address(text: &str) -> bool {
    let is_name = |host: &str| {
        !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
    };
    let is_host_and_port =
        text.rsplit_once(':').is_some_and(|(host, port)| is_name(host) && port.parse::<u16>().is_ok());
    let is_unix = text.strip_prefix(server::UNIX).is_some_and(|path| !path.is_empty());
    is_unix || text.parse::<SocketAddr>().is_ok() || is_host_and_port
}
