//! The checked form of `[[model]]`, and of the model files on the command line.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::file::{File, Table};
use super::pool::Pools;
use super::problem::{Place, Report, did_you_mean};
use super::setting::{Setting, Value};
use super::{Flags, Layers, upstream, worker};
use crate::quote::{Quoted, shown};
use crate::registry::{
    self, BatchAxes, BatchSizes, Caps, Device, DeviceError, Lengths, ModelSpec, Rows, Shapes, Source,
};
use crate::runner::malformed_name;

/// The name of the model that is part of the program.
const EMBEDDED: &str = "digits";

const DEFAULT_VERSION: &str = "1";
const DEFAULT_MAX_LATENCY: Duration = Duration::from_millis(100);
const DEFAULT_MAX_BATCH_ROWS: usize = 128;

/// Shorter than a microsecond no batch can be; beyond an hour no caller waits.
const LATENCY: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_secs(3600);
/// A batch that is given up too soon loses its callers their answers, and a runner.
const STUCK_AFTER: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(24 * 3600);
const BATCH_ROWS: RangeInclusive<usize> = 1..=65_536;
pub(super) const THREADS: RangeInclusive<usize> = 1..=1024;
const WEIGHT: RangeInclusive<usize> = 1..=1000;
const QUEUE_ROWS: RangeInclusive<usize> = 1..=100_000_000;
const QUEUE_BYTES: RangeInclusive<usize> = 1024..=1 << 40;
/// Far beyond any sentence, picture or recording that is one row.
const LENGTH: RangeInclusive<usize> = 1..=1 << 24;
const AXIS: RangeInclusive<usize> = 0..=15;
const STAND_IN_TIME: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);

/// All models that are asked for, beside those of a folder; the embedded one where there is none. And the pools.
pub(super) fn check_all(
    file: &File,
    flags: &Flags,
    folder: &Path,
    layers: &Layers<'_>,
    has_folder: bool,
    report: &mut Report,
) -> (Vec<ModelSpec>, Pools) {
    let mut found: Vec<(Place, ModelSpec)> = Vec::new();
    let pools = Pools::check(file, layers, report);
    for table in &file.models {
        let place = table.place.clone().unwrap_or(Place::Argument);
        let mut own = Report::default();
        let spec = of_table(table, &file.folder, &pools, layers, &mut own);
        // A model without a valid name is told apart by its place alone.
        let name = spec.as_ref().map(|spec| spec.name.clone());
        report.adopt(own, name.as_deref());
        found.extend(spec.map(|spec| (place, spec)));
    }
    // Models of the folder may name a pool too, and come later.
    if !has_folder {
        pools.refuse_unused(file, report);
    }
    for path in &flags.models {
        let spec = of_argument(path, folder, layers, report);
        found.extend(spec.map(|spec| (Place::Argument, spec)));
    }
    if file.models.is_empty() && flags.models.is_empty() && !has_folder {
        let spec = caps(EMBEDDED.into(), DEFAULT_VERSION.into(), Source::Embedded, None, layers, report);
        found.push((Place::Argument, spec));
    }
    for (i, (place, spec)) in found.iter().enumerate() {
        let earlier = found[..i].iter().find(|(_, e)| e.name == spec.name && e.version == spec.version);
        if let Some((earlier, _)) = earlier {
            let (name, version) = (Quoted(&spec.name), Quoted(&spec.version));
            report.note(place.clone(), format!("model {name} version {version} is there already, at {earlier}"));
        }
    }
    (found.into_iter().map(|(_, spec)| spec).collect(), pools)
}

/// The model of that name in a folder of models, but for its version and its file.
pub(super) fn of_folder(
    name: &str,
    table: &Table,
    pools: &Pools,
    layers: &Layers<'_>,
    report: &mut Report,
) -> ModelSpec {
    let source = Source::Onnx(Default::default());
    caps(name.into(), DEFAULT_VERSION.into(), source, Some((table, pools)), layers, report)
}

/// The model of a `[[model]]` table; `None` where its name is wrong.
fn of_table(
    table: &Table,
    folder: &Path,
    pools: &Pools,
    layers: &Layers<'_>,
    report: &mut Report,
) -> Option<ModelSpec> {
    let place = table.place.clone().unwrap_or(Place::Argument);
    let name = match table.get("name") {
        Some(setting) => setting.text(report).map(str::to_owned).filter(|name| match wrong_name(name) {
            Some(message) => {
                setting.refuse(report, message);
                false
            }
            None => true,
        }),
        None => {
            report.note(place.clone(), "a model needs a name");
            None
        }
    };
    let version = table.get("version").and_then(|setting| version(setting, report));
    let source = source(table, &place, folder, report);
    let name_or_none = name.clone().unwrap_or_default();
    let version = version.unwrap_or_else(|| DEFAULT_VERSION.into());
    // The caps are checked even where nothing can come of them: all problems are told at once.
    let spec = caps(name_or_none, version, source.unwrap_or(Source::Embedded), Some((table, pools)), layers, report);
    let spec = worker::isolated(spec, table, folder, report);
    name.map(|_| spec)
}

/// The model of a word on the command line: a file, a class in a Python file or an address, which names it, or `NAME=` and one of them.
fn of_argument(path: &Path, folder: &Path, layers: &Layers<'_>, report: &mut Report) -> Option<ModelSpec> {
    let (name, rest) = named(path, folder);
    let setting = Setting::word(Place::Argument, path.display().to_string());
    let (own, source) = if let Some((file, class)) = worker::as_argument(rest) {
        let target = Setting::word(Place::Argument, format!("{}:{class}", file.display()));
        let program = worker::program(&Table::default(), folder, report)?;
        let program = worker::python(&target, &Table::default(), program, folder, report)?;
        (class.to_ascii_lowercase(), Source::Worker(program))
    } else if let Some(address) = upstream::as_argument(rest) {
        let own = name.or_else(|| upstream::name(address)).unwrap_or_default();
        if own.is_empty() {
            setting.refuse(
                report,
                "must end with the model's name there, as in http://host:8080/v2/models/NAME, or begin with NAME=",
            );
            return None;
        }
        let word = Setting::word(Place::Argument, address.to_owned());
        (own.to_owned(), Source::Upstream(upstream::settings(&word, own, &Table::default(), folder, report)?))
    } else {
        let whole = in_folder(folder.join(rest));
        let shown = shown(rest);
        if let Some(message) = wrong_file(&whole, &format!("{shown}:CLASS"), &format!("--config {shown}")) {
            setting.refuse(report, message);
        }
        (rest.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default(), Source::Onnx(whole))
    };
    let name = name.map_or(own, str::to_owned);
    if let Some(message) = wrong_name(&name) {
        let name = Quoted(&name);
        setting.refuse(report, format!("cannot be called {name}: the name {message}; put NAME= in front"));
        return None;
    }
    Some(caps(name, DEFAULT_VERSION.into(), source, None, layers, report))
}

/// `NAME=WHAT` as both, unless there is a file of that very name.
fn named<'a>(argument: &'a Path, folder: &Path) -> (Option<&'a str>, &'a Path) {
    let parts = argument.to_str().and_then(|text| text.split_once('='));
    match parts.filter(|(name, rest)| malformed_name(name).is_none() && !rest.is_empty()) {
        Some((name, rest)) if !folder.join(argument).exists() => (Some(name), Path::new(rest)),
        _ => (None, argument),
    }
}

/// The file of a model: of a folder its `model.onnx`, as KServe and Triton have it.
fn in_folder(path: PathBuf) -> PathBuf {
    let inner = path.join("model.onnx");
    if path.is_dir() && inner.is_file() { inner } else { path }
}

/// What is wrong with a model's name, if anything. It stands in paths (`/v2/models/NAME/infer`,
/// `/v1/models/NAME:predict`) and in metrics' labels.
fn wrong_name(name: &str) -> Option<String> {
    let is_taken = name == "stats";
    let taken = || "must not be 'stats': /v2/models/stats answers statistics".to_owned();
    malformed_name(name).or_else(|| is_taken.then(taken))
}

/// What is wrong with a model file, if anything can be seen without reading it. `python` and `configuration` say how else it would be
/// named.
fn wrong_file(path: &Path, python: &str, configuration: &str) -> Option<String> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() && ending == "py" => {
            Some(format!("is a Python file, of which a class is served: {python}"))
        }
        Ok(found) if found.is_file() && ending == "toml" => {
            Some(format!("is a configuration, and no model: {configuration}"))
        }
        Ok(found) if found.is_file() => None,
        Ok(_) => Some("is not a file".into()),
        Err(error) => Some(format!("cannot be opened: {error}")),
    }
}

fn version(setting: &Setting, report: &mut Report) -> Option<String> {
    let text = match &setting.value {
        Value::Integer(n) => n.to_string(),
        _ => setting.text(report)?.to_owned(),
    };
    // The round trip refuses signs and leading zeros: '1' and '01' would be two versions and one number.
    if text.parse::<u64>().is_ok_and(|n| n.to_string() == text) {
        return Some(text);
    }
    setting.refuse(report, "must be a whole number, like \"1\"");
    None
}

/// The keys of which each model has exactly one.
const SOURCES: [&str; 5] = ["path", "synthetic", "python", "command", "upstream"];

/// Exactly one of [`SOURCES`].
fn source(table: &Table, place: &Place, folder: &Path, report: &mut Report) -> Option<Source> {
    let given: Vec<_> = SOURCES.iter().filter_map(|key| table.get(key).map(|setting| (*key, setting))).collect();
    let (key, setting) = match given[..] {
        [one] => one,
        [] => {
            report.note(place.clone(), "a model needs 'path', 'python', 'command', 'upstream' or 'synthetic'");
            return None;
        }
        [(first, _), (second, other), ..] => {
            other.refuse(report, format!("a model has either '{first}' or '{second}', not both"));
            return None;
        }
    };
    if let Some(other) = table.get("upstream_token_file").filter(|_| key != "upstream") {
        other.refuse(report, "is for a model with 'upstream'; leave it out");
    }
    let program = worker::program(table, folder, report);
    match key {
        "path" => {
            let text = setting.text(report)?;
            let whole = folder.join(text);
            match wrong_file(&whole, &format!("python = \"{text}:CLASS\""), "name an ONNX file") {
                Some(message) => setting.refuse(report, message),
                None => return Some(Source::Onnx(whole)),
            }
        }
        "synthetic" => match &table.synthetic {
            Some(synthetic) => {
                let base = stand_in_time("base_ms", synthetic, report);
                let per_row = stand_in_time("per_row_ms", synthetic, report);
                return Some(Source::Synthetic { base: base?, per_row: per_row? });
            }
            None => setting.refuse(report, "must be like { base_ms = 2.0, per_row_ms = 0.05 }"),
        },
        "upstream" => {
            return upstream::settings(setting, name_there(table), table, folder, report).map(Source::Upstream);
        }
        "python" => return worker::python(setting, table, program?, folder, report).map(Source::Worker),
        _ => return worker::command(setting, program?, report).map(Source::Worker),
    }
    None
}

/// The name that a model has on another server where its address does not say it: its own.
fn name_there(table: &Table) -> &str {
    match table.get("name").map(|name| &name.value) {
        Some(Value::Text(name)) => name,
        _ => "",
    }
}

fn stand_in_time(key: &str, synthetic: &Table, report: &mut Report) -> Option<Duration> {
    match (synthetic.get(key), &synthetic.place) {
        (Some(setting), _) => setting.millis(STAND_IN_TIME, report),
        (None, Some(place)) => {
            report.note(place.clone(), format!("'{key}' is missing"));
            None
        }
        (None, None) => None,
    }
}

/// Whose runners a model uses.
struct Runners {
    pool: Option<String>,
    weight: NonZeroUsize,
    runners: NonZeroUsize,
}

/// The model's own runners, or those of the pool that it names.
fn runners(table: Option<(&Table, &Pools)>, layers: &Layers<'_>, report: &mut Report) -> Runners {
    let get = |key| table.and_then(|(table, _)| table.get(key));
    let (own, weight) = (get("runners"), get("weight"));
    let given = weight.and_then(|setting| setting.count(WEIGHT, report)).unwrap_or(NonZeroUsize::MIN);
    let Some((setting, (_, pools))) = get("pool").zip(table) else {
        if let Some(weight) = weight {
            weight
                .refuse(report, "counts only beside the other models of a pool; name one with 'pool', or leave it out");
        }
        let runners = layers.strongest("runners", own).and_then(|setting| setting.count(THREADS, report));
        return Runners { pool: None, weight: given, runners: runners.unwrap_or(NonZeroUsize::MIN) };
    };
    if let Some(own) = own {
        own.refuse(report, "a model in a pool uses the pool's runners; set them in its [[pool]], or leave 'pool' out");
    }
    let pool = pools.named(setting, report);
    let runners = pool.map_or(NonZeroUsize::MIN, |pool| pool.runners);
    Runners { pool: pool.map(|pool| pool.name().to_owned()), weight: given, runners }
}

/// Sizes of batches that a model can run.
fn batch_sizes(setting: &Setting, report: &mut Report) -> Option<BatchSizes> {
    let within = |sizes: &Vec<usize>| !sizes.is_empty() && sizes.iter().all(|size| BATCH_ROWS.contains(size));
    let sizes = setting.whole_numbers().filter(within).and_then(BatchSizes::rising);
    if sizes.is_none() {
        let (from, to) = (BATCH_ROWS.start(), BATCH_ROWS.end());
        setting
            .refuse(report, format!("must be a list of whole numbers from {from} to {to} that rise, like [1, 8, 32]"));
    }
    sizes
}

/// What becomes of rows of different lengths.
fn lengths(setting: &Setting, report: &mut Report) -> Option<Lengths> {
    match setting {
        setting if setting.is_text("group") => Some(Lengths::Group),
        setting if setting.is_text("pad") => Some(Lengths::Pad),
        setting => {
            setting.refuse(report, "must be \"group\" or \"pad\"");
            None
        }
    }
}

/// What is said of the shapes of a model's file; of lengths a flag's word outweighs the file's.
fn shapes(source: &Source, table: Option<&Table>, flags: &Flags, report: &mut Report) -> Shapes {
    let mut shapes = Shapes::default();
    let given = |key| table.and_then(|table| table.get(key));
    for key in ["dims", "batch_axes"] {
        let what = match source {
            Source::Synthetic { .. } => "a stand-in has no file",
            Source::Worker(_) => "a worker says itself which shapes it takes",
            Source::Upstream(_) => "the upstream server says which shapes it takes",
            _ => continue,
        };
        if let Some(own) = given(key) {
            own.refuse(report, format!("{what}; leave this setting out"));
            return shapes;
        }
    }
    if let Some(setting) = given("dims") {
        match setting.entries().map(|entries| entries.iter().map(length).collect::<Option<BTreeMap<_, _>>>()) {
            Some(Some(dims)) => shapes.dims = dims,
            _ => {
                let (from, to) = (LENGTH.start(), LENGTH.end());
                let numbers = format!("whole numbers from {from} to {to}");
                setting.refuse(
                    report,
                    format!("must give lengths by name, {numbers}, like {{ height = 640, width = 640 }}"),
                );
            }
        }
    }
    if let Some(setting) = given("batch_axes") {
        shapes.batch_axes = batch_axes(setting, report);
    }
    if matches!(source, Source::Embedded | Source::Onnx(_)) {
        shapes.dims.extend(flags.dims.iter().filter_map(|text| flag_length(text, report)));
    }
    shapes
}

fn length((name, value): &(String, Value)) -> Option<(String, usize)> {
    let Value::Integer(n) = value else { return None };
    let n = usize::try_from(*n).ok().filter(|n| LENGTH.contains(n))?;
    Some((name.clone(), n))
}

/// `NAME=N`
fn flag_length(text: &str, report: &mut Report) -> Option<(String, usize)> {
    let parts = text.rsplit_once('=').filter(|(name, _)| !name.is_empty());
    let found = parts.and_then(|(name, n)| Some((name.to_owned(), n.parse().ok().filter(|n| LENGTH.contains(n))?)));
    if found.is_none() {
        let (from, to) = (LENGTH.start(), LENGTH.end());
        let message = format!("must be a name and a length from {from} to {to}, as in height=640");
        report.note_value(Place::Flag("--dim"), format!("{text:?}"), message);
    }
    found
}

/// Where inputs have their rows.
fn batch_axes(setting: &Setting, report: &mut Report) -> BatchAxes {
    if setting.is_text("none") {
        return BatchAxes::Unbatched;
    }
    let axis = |(name, value): &(String, Value)| match value {
        Value::Text(text) if text == "none" => Some((name.clone(), Rows::Shared)),
        Value::Integer(n) => {
            let axis = usize::try_from(*n).ok().filter(|n| AXIS.contains(n))?;
            Some((name.clone(), Rows::Axis(axis)))
        }
        _ => None,
    };
    match setting.entries().map(|entries| entries.iter().map(axis).collect::<Option<_>>()) {
        Some(Some(axes)) => BatchAxes::Named(axes),
        _ => {
            let message = "must be \"none\", or give an axis or \"none\" by input, like { state = 1, sr = \"none\" }";
            setting.refuse(report, message);
            BatchAxes::Found
        }
    }
}

/// The model with its caps and bounds.
fn caps(
    name: String,
    version: String,
    source: Source,
    table: Option<(&Table, &Pools)>,
    layers: &Layers<'_>,
    report: &mut Report,
) -> ModelSpec {
    let strongest = |key: &str| layers.strongest(key, table.and_then(|(table, _)| table.get(key)));
    let count = |key: &str, default: usize, bounds: RangeInclusive<usize>, report: &mut Report| {
        let given = strongest(key).and_then(|setting| setting.count(bounds, report));
        given.or(NonZeroUsize::new(default)).unwrap_or(NonZeroUsize::MIN)
    };
    let max_latency = strongest("max_latency_ms").and_then(|setting| setting.millis(LATENCY, report));
    let sizes = table.and_then(|(table, _)| table.get("allowed_batch_sizes"));
    let sizes = sizes.and_then(|setting| Some((setting, batch_sizes(setting, report)?)));
    let largest = sizes.as_ref().and_then(|(_, sizes)| sizes.largest());
    let default_rows = largest.unwrap_or(DEFAULT_MAX_BATCH_ROWS);
    let max_batch_rows = count("max_batch_size", default_rows, BATCH_ROWS, report);
    if let Some((setting, _)) = sizes.as_ref().filter(|_| largest != Some(max_batch_rows.get())) {
        setting.refuse(report, format!("must end with max_batch_size ({max_batch_rows}), or leave that out"));
    }
    let lengths = table.and_then(|(table, _)| table.get("lengths")).and_then(|setting| lengths(setting, report));
    let device = device(&source, table.and_then(|(table, _)| table.get("device")), layers, report);
    let Runners { pool, weight, runners } = runners(table, layers, report);
    let shapes = shapes(&source, table.map(|(table, _)| table), layers.flags, report);
    if let Some(own) = table.and_then(|(table, _)| table.get("threads")).filter(|_| !source.heeds_threads()) {
        own.refuse(report, "is for models that compute in the server or with isolation = \"process\"; leave it out");
    }
    let caps = Caps::new(max_latency.unwrap_or(DEFAULT_MAX_LATENCY), max_batch_rows.get());
    let defaults = ModelSpec::new(name, source, caps);
    let threads = count("threads", (defaults.threads.get() / runners).max(1), THREADS, report);
    let stuck_after = strongest("stuck_after_ms").and_then(|setting| setting.millis(STUCK_AFTER, report));
    let max_queue_rows = count("max_queue_rows", defaults.max_queue_rows.get(), QUEUE_ROWS, report);
    let max_queue_bytes = count("max_queue_bytes", defaults.max_queue_bytes.get(), QUEUE_BYTES, report);
    if let Some(setting) = strongest("max_queue_rows").filter(|_| max_queue_rows < max_batch_rows) {
        let message = format!("must be at least max_batch_size ({max_batch_rows}), or no batch could ever be full");
        setting.refuse(report, message);
    }
    ModelSpec {
        version,
        shapes,
        device,
        allowed_batch_sizes: sizes.map(|(_, sizes)| sizes).unwrap_or_default(),
        lengths: lengths.unwrap_or_default(),
        pool,
        weight,
        runners,
        threads,
        stuck_after: stuck_after.unwrap_or(defaults.stuck_after),
        max_queue_rows,
        max_queue_bytes,
        ..defaults
    }
}

/// Where the model computes. A stand-in does so nowhere: its own key is refused, what is said for all models is not.
fn device(source: &Source, own: Option<&Setting>, layers: &Layers<'_>, report: &mut Report) -> Device {
    match (source, own) {
        (Source::Synthetic { .. }, Some(own)) => {
            own.refuse(report, "a stand-in computes nothing; leave this setting out");
            return Device::default();
        }
        (Source::Worker(_), Some(own)) => {
            own.refuse(report, "a worker computes where its program says; leave this setting out");
            return Device::default();
        }
        (Source::Upstream(_), Some(own)) => {
            own.refuse(report, "the upstream server computes where it likes; leave this setting out");
            return Device::default();
        }
        _ => {}
    }
    let Some(setting) = layers.strongest("device", own) else { return Device::default() };
    let known = Device::ALL.map(Device::name);
    let Some(name) = setting.text(report) else { return Device::default() };
    let Some(device) = Device::from_name(name) else {
        let hint = did_you_mean(name, known);
        setting.refuse(report, format!("must be one of {}{hint}", known.map(|name| format!("'{name}'")).join(", ")));
        return Device::default();
    };
    if !registry::is_built(device) {
        setting.refuse(report, DeviceError::NotBuilt(device).to_string());
    }
    device
}
