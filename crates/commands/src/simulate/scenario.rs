//! Scenario files: one model, or several that share their runners, each with its speed, its caps and its callers.
//!
//! `docs/simulate.md` lists the keys. The files of `tests/scenarios` are such files; what they expect is for the tests, and
//! passed over here.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::bounded::{
    At, Base, Batch, Callers, Cap, Cv, Factor, Level, Millis, Multiple, Name, PerRow, Policies, Rate, Runners, Seconds,
    Seed, UpToOne, Weight,
};
use super::load::{Load, Stretch, Times, Words};
use super::plan::{Plan, Subject, capacity};
use super::rules::{self, Rule};
use super::{setup, trace, values};
use uncork_core::estimator::Instant;
use uncork_core::policy::Priority;
use uncork_sim::{Process, Service, Variety};

/// A file as it stands there. Without `[[model]]` tables, its one model stands at the top.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// For readers.
    #[serde(rename = "about")]
    _about: Option<String>,
    runners: Option<Runners>,
    seed: Option<Seed>,
    policy: Option<Policies>,
    /// What the server takes around each batch.
    server_ms: Option<Base>,
    #[serde(default)]
    compare: Vec<Compare>,
    #[serde(default)]
    model: Vec<Spanned<RawModel>>,

    max_latency_ms: Option<Cap>,
    max_batch_size: Option<Batch>,
    tried: Option<Batch>,
    service: Option<Spanned<RawService>>,
    #[serde(default)]
    arrivals: Vec<Spanned<Piece>>,
    clients: Option<Spanned<Clients>>,

    /// For the tests.
    #[serde(rename = "seeds")]
    _seeds: Option<IgnoredAny>,
    #[serde(rename = "expect")]
    _expect: Option<IgnoredAny>,
    #[serde(rename = "batcher")]
    _batcher: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawModel {
    name: Name,
    weight: Option<Weight>,
    max_latency_ms: Cap,
    max_batch_size: Batch,
    tried: Option<Batch>,
    service: Spanned<RawService>,
    #[serde(default)]
    arrivals: Vec<Spanned<Piece>>,
    clients: Option<Spanned<Clients>>,
}

/// Another policy to show beside the file's own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Compare {
    policy: Policies,
    #[serde(rename = "expect")]
    _expect: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawService {
    base_ms: Base,
    per_row_ms: PerRow,
    /// σ of log-normal noise.
    jitter: Option<UpToOne>,
    straggle: Option<Straggle>,
    #[serde(default)]
    changes: Vec<Change>,
    first_factor: Option<Factor>,
    /// Batches are padded to these.
    #[serde(default)]
    sizes: Vec<Batch>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Straggle {
    share: UpToOne,
    factor: Factor,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    at_s: At,
    factor: Factor,
}

/// One load for so long, or a file's. The rate is given in requests a second, or as a multiple of what all runners can do.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Piece {
    /// Seen from the scenario's folder.
    file: Option<PathBuf>,
    process: Option<RawProcess>,
    for_s: Option<Seconds>,
    rate: Option<Rate>,
    load: Option<Multiple>,
    /// Rows of a request: each of these is as likely.
    #[serde(default)]
    rows: Vec<Batch>,
    /// Latency caps of their own: each of these is as likely.
    #[serde(default)]
    within_ms: Vec<Cap>,
    /// Priorities: each of these is as likely.
    #[serde(default)]
    priorities: Vec<Level>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
enum RawProcess {
    Poisson,
    Uniform,
    Gamma {
        cv: Cv,
    },
    /// `low` and `high` are multiples of the rate.
    Mmpp {
        low: Multiple,
        high: Multiple,
        mean_low_s: Seconds,
        mean_high_s: Seconds,
    },
    Flash {
        factor: Factor,
        from_s: At,
        until_s: At,
    },
    Diurnal {
        swing: UpToOne,
        day_s: Seconds,
    },
    FanOut {
        size: Callers,
        spread_ms: Millis,
    },
    Burst {
        count: Callers,
    },
    List {
        at_ms: Vec<Millis>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Clients {
    count: Callers,
    think_ms: Millis,
    jitter: Option<UpToOne>,
    for_s: Seconds,
}

/// A scenario file: what is simulated, and which policies it names: at least one.
///
/// # Errors
/// It cannot be read, or the first thing that is wrong with it: its line, the key and value, and the bound.
pub(super) fn read(path: &Path, seed: Option<u64>) -> Result<(Plan, Vec<Rule>), String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    let reader = Reader { path, text: &text };
    let file: File = toml::from_str(&text).map_err(|error| reader.refusal(error.span(), error.message()))?;
    let runners = file.runners.map_or(1, |runners| runners.0);
    let seed = seed.or(file.seed.map(|seed| seed.0)).unwrap_or(1);
    let server = match file.server_ms {
        Some(server) => server.0,
        None => values::base()(values::SERVER_MS)?,
    };
    let mut rules = file.policy.map_or_else(|| rules::parse("cork"), |policies| Ok(policies.0))?;
    rules.extend(file.compare.into_iter().flat_map(|other| other.policy.0));

    let models: Vec<(Option<Range<usize>>, RawModel)> = if file.model.is_empty() {
        let missing = |key: &str| reader.refusal(None, &format!("{key} is missing, or [[model]] tables that have it"));
        let only = RawModel {
            name: Name(String::new()),
            weight: None,
            max_latency_ms: file.max_latency_ms.ok_or_else(|| missing("max_latency_ms"))?,
            max_batch_size: file.max_batch_size.ok_or_else(|| missing("max_batch_size"))?,
            tried: file.tried,
            service: file.service.ok_or_else(|| missing("service"))?,
            arrivals: file.arrivals,
            clients: file.clients,
        };
        vec![(None, only)]
    } else {
        for (is_set, key) in [
            (file.max_latency_ms.is_some(), "max_latency_ms"),
            (file.max_batch_size.is_some(), "max_batch_size"),
            (file.tried.is_some(), "tried"),
            (file.service.is_some(), "service"),
            (!file.arrivals.is_empty(), "arrivals"),
            (file.clients.is_some(), "clients"),
        ] {
            if is_set {
                return Err(reader.refusal(None, &format!("{key} belongs into a [[model]] table where there are some")));
            }
        }
        file.model.into_iter().map(|model| (Some(model.span()), model.into_inner())).collect()
    };
    let (mut subjects, mut services): (Vec<Subject>, Vec<Range<usize>>) = (Vec::new(), Vec::new());
    for (number, (span, model)) in (0..).zip(models) {
        if subjects.iter().any(|other| other.name == model.name.0) {
            return Err(reader.refusal(span, &format!("a model called '{}' is there already", model.name.0)));
        }
        services.push(model.service.span());
        // Two models of one scenario draw different numbers, and so do their stretches.
        subjects.push(reader.subject(model, span, runners, server, seed ^ number << 48)?);
    }
    let mut plan = Plan { runners, seed, cold: false, server, models: subjects };
    plan.align();
    let too_late = |(number, why): (usize, String)| reader.refusal(services.get(number).cloned(), &why);
    plan.check_changes("changes", "for_s").map_err(too_late)?;
    Ok((plan, rules))
}

/// A file and its text, for messages.
struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Reader<'_> {
    fn subject(
        &self,
        model: RawModel,
        span: Option<Range<usize>>,
        runners: usize,
        server: Duration,
        seed: u64,
    ) -> Result<Subject, String> {
        let (max_latency, max_batch) = (model.max_latency_ms.0, model.max_batch_size.0);
        let service_span = model.service.span();
        let service = service(model.service.into_inner(), max_batch, server);
        let service = service.map_err(|why| self.refusal(Some(service_span), &why))?;
        let load = match (model.clients, &model.arrivals[..]) {
            (Some(clients), []) => {
                let span = clients.span();
                let Clients { count, think_ms, jitter, for_s } = clients.into_inner();
                let load = Load::Clients {
                    clients: count.0,
                    think: think_ms.0,
                    jitter: jitter.map_or(0.0, |jitter| jitter.0),
                    length: for_s.0,
                    variety: Variety::default(),
                    seed,
                };
                self.checked(load, span, "clients", max_latency)?
            }
            (None, [one]) if one.get_ref().file.is_some() => self.trace(one, max_batch)?,
            (None, several @ [first, ..]) => {
                let full = capacity(&service, max_latency, max_batch, runners);
                let stretch = |(piece, number): (&Spanned<Piece>, u64)| {
                    let stretch = stretch(piece.get_ref(), max_batch, full, seed ^ number << 32);
                    stretch.map_err(|why| self.refusal(Some(piece.span()), &why))
                };
                let stretches: Result<Vec<Stretch>, String> = several.iter().zip(0..).map(stretch).collect();
                self.checked(Load::Stretches(stretches?), first.span(), "arrivals", max_latency)?
            }
            (None, []) => {
                let problem = "a model needs its callers: either arrivals = [{ … }] or clients = { … }";
                return Err(self.refusal(span, problem));
            }
            (Some(clients), [..]) => {
                return Err(self.refusal(Some(clients.span()), "clients and arrivals exclude each other"));
            }
        };
        let weight = model.weight.map_or(NonZeroUsize::MIN, |weight| weight.0);
        let tried = model.tried.map(|tried| tried.0);
        Ok(Subject { name: model.name.0, service, max_latency, max_batch, tried, weight, load })
    }

    fn checked(&self, load: Load, span: Range<usize>, key: &str, max_latency: Duration) -> Result<Load, String> {
        let words = Words { load: key, length: "for_s", max_latency: "max_latency_ms" };
        load.check(max_latency, &words).map_err(|why| self.refusal(Some(span), &why))?;
        Ok(load)
    }

    fn trace(&self, piece: &Spanned<Piece>, max_batch: usize) -> Result<Load, String> {
        let Piece { file, process, for_s, rate, load, rows, within_ms, priorities } = piece.get_ref();
        for (is_set, key) in [
            (process.is_some(), "process"),
            (for_s.is_some(), "for_s"),
            (rate.is_some(), "rate"),
            (load.is_some(), "load"),
            (!rows.is_empty(), "rows"),
            (!within_ms.is_empty(), "within_ms"),
            (!priorities.is_empty(), "priorities"),
        ] {
            if is_set {
                return Err(
                    self.refusal(Some(piece.span()), &format!("{key}: the file says that itself; leave it out"))
                );
            }
        }
        let file = self.path.parent().unwrap_or(Path::new("")).join(file.as_deref().unwrap_or(Path::new("")));
        let arrivals = trace::read(&file, &file.display().to_string(), max_batch)?;
        Ok(Load::Trace(arrivals.into()))
    }

    /// `FILE:LINE: KEY = VALUE: MESSAGE`, as far as they are known.
    fn refusal(&self, span: Option<Range<usize>>, message: &str) -> String {
        let message = message.lines().collect::<Vec<_>>().join("; ");
        let path = self.path.display();
        let Some(span) = span else { return format!("{path}: {message}") };
        let before = self.text.get(..span.start).unwrap_or_default();
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let value = self.text.get(span).unwrap_or_default();
        let key = before.trim_end().strip_suffix('=').map(str::trim_end);
        let key = key.and_then(|before| before.rsplit(|c: char| !c.is_alphanumeric() && c != '_' && c != '-').next());
        match (key.filter(|key| !key.is_empty()), value.contains('\n') || value.len() > 60) {
            (Some(key), false) => format!("{path}:{line}: {key} = {value}: {message}"),
            (Some(key), true) => format!("{path}:{line}: {key}: {message}"),
            (None, false) if !value.is_empty() => format!("{path}:{line}: {value}: {message}"),
            (None, _) => format!("{path}:{line}: {message}"),
        }
    }
}

fn service(raw: RawService, max_batch: usize, server: Duration) -> Result<Service, String> {
    if (raw.base_ms.0 + raw.per_row_ms.0).is_zero() {
        return Err("a batch must take some time".into());
    }
    let sizes = setup::sizes(raw.sizes.iter().map(|size| size.0).collect(), max_batch, ["sizes", "max_batch_size"])?;
    let changes = raw.changes.iter().map(|change| (Instant::EPOCH + change.at_s.0, change.factor.0));
    let mut changes: Vec<(Instant, f64)> = changes.collect();
    changes.sort_by_key(|(at, _)| *at);
    let straggle = raw.straggle.map_or((0.0, 1.0), |straggle| (straggle.share.0, straggle.factor.0));
    Ok(Service {
        jitter: raw.jitter.map_or(0.0, |jitter| jitter.0),
        straggle_share: straggle.0,
        straggle_factor: straggle.1,
        changes,
        first_factor: raw.first_factor.map_or(1.0, |factor| factor.0),
        sizes,
        ..Service::affine(raw.base_ms.0 + server, raw.per_row_ms.0)
    })
}

/// `full` is the capacity in rows a second.
fn stretch(piece: &Piece, max_batch: usize, full: f64, seed: u64) -> Result<Stretch, String> {
    if piece.file.is_some() {
        return Err("a file stands alone: it cannot follow, or be followed by, other arrivals".into());
    }
    let length = piece.for_s.as_ref().ok_or("for_s is missing, the seconds for which they arrive")?.0;
    if let Some(rows) = piece.rows.iter().find(|rows| rows.0 > max_batch) {
        return Err(format!("rows: {} rows do not fit into a batch of at most {max_batch}", rows.0));
    }
    let each = 1.0 / piece.rows.len().max(1) as f64;
    let mean_rows = if piece.rows.is_empty() { 1.0 } else { piece.rows.iter().map(|rows| rows.0 as f64 * each).sum() };
    let rate = match (&piece.rate, &piece.load) {
        (Some(_), Some(_)) => return Err("rate and load exclude each other".into()),
        (Some(rate), None) => Some(rate.0),
        (None, Some(_)) if full == 0.0 => {
            return Err("load: not even a batch of one row is in time, so there is no capacity to be a part of".into());
        }
        (None, Some(load)) => Some(load.0 * full / mean_rows),
        (None, None) => None,
    };
    let process = piece.process.as_ref().ok_or("process is missing, or file")?;
    let times = times(process, rate)?;
    let each = 1.0 / piece.within_ms.len() as f64;
    let within = piece.within_ms.iter().map(|own| (each, own.0)).collect();
    let each = 1.0 / piece.priorities.len() as f64;
    let priorities: Vec<(f64, Priority)> = piece.priorities.iter().map(|level| (each, level.0)).collect();
    let variety = Variety { rows: piece.rows.iter().map(|rows| rows.0).collect(), within, priorities };
    Ok(Stretch { times, length, variety, seed })
}

fn times(process: &RawProcess, rate: Option<f64>) -> Result<Times, String> {
    let given = match process {
        RawProcess::Burst { count } => Some(vec![Duration::ZERO; count.0]),
        RawProcess::List { at_ms } if at_ms.is_sorted_by_key(|at| at.0) => Some(at_ms.iter().map(|at| at.0).collect()),
        RawProcess::List { .. } => return Err("at_ms: must be in order".into()),
        _ => None,
    };
    let rate = match (given, rate) {
        (Some(_), Some(_)) => return Err("what comes at given times has neither rate nor load".into()),
        (Some(times), None) => return Ok(Times::List(times)),
        (None, Some(rate)) => rate,
        (None, None) => {
            return Err("a process needs a rate, in requests a second, or a load, as a multiple of the capacity".into());
        }
    };
    Ok(Times::Process(match process {
        RawProcess::Poisson => Process::Poisson { rate },
        RawProcess::Gamma { cv } => Process::Gamma { rate, cv: cv.0 },
        RawProcess::Mmpp { low, high, mean_low_s, mean_high_s } => {
            Process::Mmpp { low: low.0 * rate, high: high.0 * rate, mean_low: mean_low_s.0, mean_high: mean_high_s.0 }
        }
        RawProcess::Flash { from_s, until_s, .. } if from_s.0 >= until_s.0 => {
            return Err("flash: from_s must be less than until_s".into());
        }
        RawProcess::Flash { factor, from_s, until_s } => {
            Process::Flash { rate, factor: factor.0, from: from_s.0, until: until_s.0 }
        }
        RawProcess::Diurnal { swing, day_s } => Process::Diurnal { rate, swing: swing.0, day: day_s.0 },
        RawProcess::FanOut { size, spread_ms } => {
            Process::FanOut { groups: rate / size.0 as f64, size: size.0, spread: spread_ms.0 }
        }
        RawProcess::Uniform | RawProcess::Burst { .. } | RawProcess::List { .. } => Process::Uniform { rate },
    }))
}
