//! The settings of models that are processes: what is started, where, and within which bounds.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::file::Table;
use super::problem::Report;
use super::setting::{Setting, Value};
use crate::quote::shown;
use crate::registry::{BatchAxes, Device, ModelSpec, Shapes, Source};
use crate::worker::{Kind, Program};

/// The package for Python, which is part of the program: nobody needs to install it.
const PYTHON: &[(&str, &str)] = &[
    ("uncork", include_str!("../../python/uncork/__init__.py")),
    ("uncork.model", include_str!("../../python/uncork/model.py")),
    ("uncork.shapes", include_str!("../../python/uncork/shapes.py")),
    ("uncork.tensors", include_str!("../../python/uncork/tensors.py")),
    ("uncork.wire", include_str!("../../python/uncork/wire.py")),
    ("uncork.worker", include_str!("../../python/uncork/worker.py")),
];

/// A model of some gigabytes takes minutes to load.
pub(super) const START: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
/// Less holds no interpreter.
const MEMORY_MB: RangeInclusive<usize> = 16..=1 << 24;

/// What all workers may be told: a program without its command.
pub(super) fn program(table: &Table, folder: &Path, report: &mut Report) -> Option<Program> {
    let start_timeout = table.get("start_timeout_ms").map(|setting| setting.millis(START, report));
    let max_memory = table.get("max_memory_mb").map(|setting| setting.whole(MEMORY_MB, report));
    let env = table.get("env").map(|setting| env(setting, report));
    let place = table.get("working_folder").map(|setting| working_folder(setting, folder, report));
    let is_command =
        table.get("command").or(table.get("upstream")).or(table.get("path")).or(table.get("synthetic")).is_some();
    if let Some(setting) = table.get("python_path").filter(|_| is_command) {
        setting.refuse(report, "is the interpreter of a 'python' model; leave it out");
    }
    let isolation = table.get("isolation");
    let is_isolated = isolation.is_some_and(|setting| setting.is_text("process"));
    if let Some(setting) = isolation.filter(|_| !is_isolated || table.get("path").is_none()) {
        setting.refuse(report, "must be \"process\", beside 'path'; leave it out for a model that runs in the server");
    }
    let is_other = !is_isolated && table.get("path").or(table.get("synthetic")).is_some();
    let is_upstream = table.get("upstream").is_some();
    for key in ["env", "working_folder", "start_timeout_ms", "max_memory_mb"] {
        let is_wrong = is_other || (is_upstream && key != "start_timeout_ms");
        if let Some(setting) = table.get(key).filter(|_| is_wrong) {
            setting.refuse(
                report,
                "is for models that are processes: 'python', 'command' or isolation = \"process\"; leave it out",
            );
        }
    }
    let defaults = Program::new(Vec::new());
    Some(Program {
        env: env.unwrap_or(Some(Vec::new()))?,
        // Relative names in the program are those of the file that starts it.
        folder: Some(place.unwrap_or_else(|| Some(folder.to_owned()))?),
        start_timeout: start_timeout.unwrap_or(Some(defaults.start_timeout))?,
        max_memory: max_memory.map_or(Some(None), |mb| mb.map(|mb| Some((mb as u64) << 20)))?,
        ..defaults
    })
}

/// A model in a file as this program's own worker is told of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Isolated {
    pub(crate) path: PathBuf,
    pub(crate) device: Device,
    pub(crate) shapes: Shapes,
    pub(crate) threads: NonZeroUsize,
}

/// The same in JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Target {
    path: PathBuf,
    device: String,
    dims: BTreeMap<String, usize>,
    length: Option<usize>,
    threads: NonZeroUsize,
}

impl Isolated {
    fn written(&self) -> String {
        let Isolated { path, device, shapes, threads } = self.clone();
        let Shapes { dims, length, .. } = shapes;
        let target = Target { path, device: device.name().to_owned(), dims, length, threads };
        serde_json::to_string(&target).expect("texts and numbers have a JSON form")
    }

    /// What [`isolated`] wrote.
    #[cfg(feature = "onnx")]
    pub(crate) fn read(text: &str) -> Result<Isolated, String> {
        let Target { path, device, dims, length, threads } =
            serde_json::from_str(text).map_err(|_| "this process is started by uncork, and not by hand".to_owned())?;
        let device = Device::from_name(&device).ok_or_else(|| format!("there is no device '{device}'"))?;
        Ok(Isolated { path, device, shapes: Shapes { dims, length, ..Shapes::default() }, threads })
    }
}

/// `isolation = "process"`: the model of a file in a process of its own.
pub(super) fn isolated(spec: ModelSpec, table: &Table, folder: &Path, report: &mut Report) -> ModelSpec {
    let (Some(setting), Source::Onnx(path)) = (table.get("isolation"), &spec.source) else { return spec };
    if spec.shapes.batch_axes != BatchAxes::default() {
        setting.refuse(report, "is for models whose rows are along the first axis; leave it or 'batch_axes' out");
    }
    let own = match std::env::current_exe() {
        Ok(own) => own.display().to_string(),
        Err(error) => {
            setting.refuse(report, format!("cannot be: this program's own file is not to be found: {error}"));
            return spec;
        }
    };
    let Some(program) = program(table, folder, &mut Report::default()) else { return spec };
    let target =
        Isolated { path: path.clone(), device: spec.device, shapes: spec.shapes.clone(), threads: spec.threads };
    let (kind, command) = (Kind::Isolated(path.clone()), vec![own, "worker".into()]);
    let source = Source::Worker(Program { kind, command, target: Some(target.written()), ..program });
    // What is said of the file is in the target.
    ModelSpec { source, shapes: Shapes::default(), device: Device::default(), ..spec }
}

/// `command = ["worker", "--flag"]`
pub(super) fn command(setting: &Setting, program: Program, report: &mut Report) -> Option<Program> {
    let command = setting.texts(report)?;
    if command.first().is_none_or(|file| file.trim().is_empty()) {
        setting.refuse(report, "must begin with a program, like [\"./worker\", \"--flag\"]");
        return None;
    }
    // A word without a slash is a program of the `PATH`, which may be another where it is started.
    let file = program.folder.clone().unwrap_or_default().join(&command[0]);
    if command[0].contains('/') && !file.is_file() {
        setting.refuse(report, format!("there is no file {}", shown(&file)));
        return None;
    }
    Some(Program { command, ..program })
}

/// `python = "app:Class"` or `"folder/app.py:Class"`
pub(super) fn python(
    setting: &Setting,
    table: &Table,
    program: Program,
    folder: &Path,
    report: &mut Report,
) -> Option<Program> {
    let target = setting.text(report)?;
    let Some((module, class)) = target.rsplit_once(':').filter(|(module, class)| is_module(module) && is_name(class))
    else {
        setting.refuse(report, "must name a class or a function of a module, like \"app:Class\" or \"app.py:Class\"");
        return None;
    };
    let own = program.folder.clone().unwrap_or_else(|| folder.to_owned());
    let is_file = Path::new(module).extension().is_some_and(|extension| extension == "py");
    if is_file && !folder.join(module).is_file() && !own.join(module).is_file() {
        setting.refuse(report, format!("there is no file {}", shown(&folder.join(module))));
        return None;
    }
    // A file is named from where the setting stands, and a module from where the program starts.
    let target = if is_file && folder.join(module).is_file() {
        format!("{}:{class}", folder.join(module).display())
    } else {
        target.to_owned()
    };
    let interpreter = match table.get("python_path") {
        Some(setting) => interpreter(setting.text(report)?, folder),
        None => default_interpreter(),
    };
    Some(Program::python(&interpreter, target, PYTHON, program))
}

/// A file and a class, where an argument of the command line names those: `app.py:Class`.
pub(super) fn as_argument(argument: &Path) -> Option<(PathBuf, String)> {
    let (file, class) = argument.to_str()?.rsplit_once(':')?;
    let is_python = Path::new(file).extension().is_some_and(|extension| extension == "py");
    (is_python && is_name(class)).then(|| (file.into(), class.to_owned()))
}

fn is_module(module: &str) -> bool {
    !module.is_empty() && !module.contains('\0')
}

/// `Class`, or `Class.part`.
fn is_name(name: &str) -> bool {
    let is_plain = |part: &str| {
        part.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    name.split('.').all(is_plain)
}

/// A word is a program of the `PATH`; anything with a slash is a file.
fn interpreter(text: &str, folder: &Path) -> String {
    if text.contains('/') { folder.join(text).display().to_string() } else { text.to_owned() }
}

/// The Python beside this program, where a virtual environment has both; else the first of the `PATH`.
fn default_interpreter() -> String {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("python3")));
    beside.filter(|python| python.is_file()).map_or_else(|| "python3".into(), |python| python.display().to_string())
}

fn env(setting: &Setting, report: &mut Report) -> Option<Vec<(String, String)>> {
    let pair = |(name, value): &(String, Value)| {
        let text = match value {
            Value::Text(text) => text.clone(),
            Value::Integer(n) => n.to_string(),
            _ => return None,
        };
        let is_fit = !name.is_empty() && !name.contains(['=', '\0']) && !text.contains('\0');
        is_fit.then(|| (name.clone(), text))
    };
    let pairs = setting.entries().and_then(|entries| entries.iter().map(pair).collect());
    if pairs.is_none() {
        setting.refuse(report, "must give texts by name, like { OMP_NUM_THREADS = \"1\" }");
    }
    pairs
}

fn working_folder(setting: &Setting, folder: &Path, report: &mut Report) -> Option<PathBuf> {
    let whole = folder.join(setting.text(report)?);
    if whole.is_dir() {
        return Some(whole);
    }
    setting.refuse(report, "is not a folder");
    None
}
