//! What is asked for when a model is to be served: the validated form of a `[[model]]` table.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::away::AnyRemote;
use super::hooks::HookFunctions;
use super::lengths::Lengths;
use crate::batcher::{BatchSizes, Caps};
#[cfg(feature = "onnx")]
use crate::onnx::module::ModuleModel;
use crate::runner::{Device, Remote, Runner, RunnerError, Shapes};
use crate::upstream::Settings;
use crate::worker::{Kind, Program};

/// Room for a burst that takes the runners this many full batches; the latency cap refuses most of it earlier.
const QUEUED_BATCHES: usize = 128;
const QUEUE_BYTES: usize = 256 * 1024 * 1024;

/// Where a model comes from.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Source {
    /// The digits model that is part of the program.
    Embedded,
    /// An ONNX file.
    Onnx(PathBuf),
    /// A stand-in whose batch of n rows takes `base + n * per_row`.
    Synthetic {
        /// Time of an empty batch.
        base: Duration,
        /// Time that each row adds.
        per_row: Duration,
    },
    /// Runners that the program builds itself, such as those of a burn module; no configuration file can name them.
    Runners(Runners),
    /// One that is somewhere else, as in another process or on another server; no configuration file can name it.
    Remote(Remotes),
    /// Processes that are started, watched and replaced.
    Worker(Program),
    /// Other servers.
    Upstream(Settings),
}

impl Source {
    /// The file that a model is made of: one that has changed is another model. Of Python and of a worker's command, the first that is
    /// there of those that are named.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        let (named, folder) = match self {
            Source::Onnx(path) | Source::Worker(Program { kind: Kind::Isolated(path), .. }) => {
                return Some(path.clone());
            }
            Source::Worker(Program { kind: Kind::Python, target: Some(target), folder, .. }) => {
                let (module, _) = target.rsplit_once(':')?;
                let path = module.replace('.', "/");
                (vec![module.to_owned(), format!("{path}.py"), format!("{path}/__init__.py")], folder)
            }
            Source::Worker(Program { kind: Kind::Command, command, folder, .. }) => {
                // What is named with its path comes behind what it is given to run.
                let (program, given) = command.split_first()?;
                let program = program.contains('/').then_some(program);
                (given.iter().chain(program).cloned().collect(), folder)
            }
            _ => return None,
        };
        let within = |name: String| folder.as_deref().map_or_else(|| PathBuf::from(&name), |folder| folder.join(&name));
        named.into_iter().map(within).find(|file| file.is_file())
    }

    /// Whether it computes with as many threads as [`ModelSpec::threads`] says. How many a process, another server or a stand-in
    /// takes is its own affair.
    pub(crate) fn heeds_threads(&self) -> bool {
        match self {
            Source::Embedded | Source::Onnx(_) | Source::Runners(_) => true,
            Source::Worker(program) => matches!(program.kind, Kind::Isolated(_)),
            Source::Synthetic { .. } | Source::Remote(_) | Source::Upstream(_) => false,
        }
    }

    /// Runners of any kind. `build` makes one that computes on so many threads; it is called once for each runner while the
    /// model is loaded, and again on the runner's thread after it has panicked. If it fails at first, the model is not
    /// loaded. `platform` is what callers are told of it.
    pub fn runners<R: Runner + 'static>(
        platform: &'static str,
        build: impl Fn(NonZeroUsize) -> Result<R, RunnerError> + Send + Sync + 'static,
    ) -> Source {
        let build = move |threads| build(threads).map(|runner| Box::new(runner) as Box<dyn Runner>);
        Source::Runners(Runners { platform, build: Arc::new(build) })
    }

    /// A runner that is somewhere else and has several batches at once, as many as [`ModelSpec::runners`]. Its futures run in
    /// a tokio runtime of the model's own, which has as many threads at most. `platform` is what callers are told of it.
    pub fn remote(platform: &'static str, remote: impl Remote + 'static) -> Source {
        Source::Remote(Remotes { platform, remote: Arc::new(remote) })
    }
}

#[cfg(feature = "onnx")]
impl From<ModuleModel> for Source {
    fn from(model: ModuleModel) -> Source {
        Source::runners("burn", move |threads| Ok(model.runner(threads)))
    }
}

/// Makes a runner that computes on so many threads.
pub(super) type Build = Arc<dyn Fn(NonZeroUsize) -> Result<Box<dyn Runner>, RunnerError> + Send + Sync>;

/// How to build a runner.
#[derive(Clone)]
pub struct Runners {
    pub(super) platform: &'static str,
    pub(super) build: Build,
}

impl fmt::Debug for Runners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runners").field("platform", &self.platform).finish_non_exhaustive()
    }
}

impl PartialEq for Runners {
    /// Whether both are clones of one.
    fn eq(&self, other: &Runners) -> bool {
        Arc::ptr_eq(&self.build, &other.build)
    }
}

/// A runner that is somewhere else.
#[derive(Clone)]
pub struct Remotes {
    pub(super) platform: &'static str,
    pub(super) remote: Arc<dyn AnyRemote>,
}

impl fmt::Debug for Remotes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remotes").field("platform", &self.platform).finish_non_exhaustive()
    }
}

impl PartialEq for Remotes {
    /// Whether both are clones of one.
    fn eq(&self, other: &Remotes) -> bool {
        Arc::ptr_eq(&self.remote, &other.remote)
    }
}

/// One model to be served.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSpec {
    /// The name that callers use.
    pub name: String,
    /// A decimal string.
    pub version: String,
    /// Where it comes from.
    pub source: Source,
    /// What is said of the shapes of an ONNX file, where it leaves them open or has them wrong.
    pub shapes: Shapes,
    /// Where it computes. Without effect on a stand-in and on runners that the program builds itself.
    pub device: Device,
    /// Cap on the time from arrival to answer. Lower: fewer requests are kept under load, all of them sooner.
    pub max_latency: Duration,
    /// Cap on the rows of a batch. Lower: less memory, and less throughput where a batch costs much however small it is.
    pub max_batch_rows: NonZeroUsize,
    /// The sizes of batches that it runs, each batch being padded to the next one; the largest is `max_batch_rows`.
    pub allowed_batch_sizes: BatchSizes,
    /// What becomes of requests of different lengths that share a batch.
    pub lengths: Lengths,
    /// The pool that it shares with the other models that name it; `None` for a pool of its own.
    pub pool: Option<String>,
    /// Its part of the pool's runner time when its models want more than there is, in proportion to the others'.
    pub weight: NonZeroUsize,
    /// Batches that may run at once, each on a thread of its own; of all models together in a shared pool, where it is the
    /// same for each of them.
    pub runners: NonZeroUsize,
    /// Threads that one runner computes with.
    pub threads: NonZeroUsize,
    /// A batch that runs for so long is given up, and its runner replaced.
    pub stuck_after: Duration,
    /// What is done to each request alone, in front of the model and behind it.
    pub hooks: HookFunctions,
    /// Most rows that wait.
    pub max_queue_rows: NonZeroUsize,
    /// Most bytes of tensor data that wait.
    pub max_queue_bytes: NonZeroUsize,
}

/// A batch is stuck after so many latency caps, and no sooner than after the least time: a model that is slow is not stuck.
const STUCK_CAPS: u32 = 10;
const LEAST_STUCK: Duration = Duration::from_secs(10);

impl ModelSpec {
    /// A model under its two caps; the rest has defaults that serve: version 1, on the processor with a runner that
    /// computes on all cores, given up after ten latency caps or ten seconds, and a queue of 128 batches and 256 MiB.
    pub fn new(name: impl Into<String>, source: impl Into<Source>, caps: Caps) -> ModelSpec {
        let max_batch_rows = NonZeroUsize::new(caps.max_batch).unwrap_or(NonZeroUsize::MIN);
        let queued = NonZeroUsize::new(QUEUED_BATCHES).unwrap_or(NonZeroUsize::MIN);
        ModelSpec {
            name: name.into(),
            version: "1".into(),
            source: source.into(),
            shapes: Shapes::default(),
            device: Device::Flex,
            max_latency: caps.max_latency,
            max_batch_rows,
            allowed_batch_sizes: BatchSizes::default(),
            lengths: Lengths::default(),
            pool: None,
            weight: NonZeroUsize::MIN,
            runners: NonZeroUsize::MIN,
            threads: cores(),
            stuck_after: caps.max_latency.saturating_mul(STUCK_CAPS).max(LEAST_STUCK),
            hooks: HookFunctions::default(),
            max_queue_rows: max_batch_rows.saturating_mul(queued),
            max_queue_bytes: NonZeroUsize::new(QUEUE_BYTES).unwrap_or(NonZeroUsize::MIN),
        }
    }
}

/// Cores of this machine that the process may use; one where that cannot be told.
pub(crate) fn cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A folder that goes with the test.
    struct Folder(PathBuf);

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_file_of_a_model_is_found_however_it_is_named() {
        let folder = Folder(std::env::temp_dir().join(format!("uncork-spec-{}", std::process::id())));
        fs::create_dir_all(folder.0.join("pack/age")).expect("a folder");
        for file in ["app.py", "pack/part.py", "pack/age/__init__.py", "worker.py"] {
            fs::write(folder.0.join(file), "").expect("a file");
        }
        let of = |program: Program| Source::Worker(Program { folder: Some(folder.0.clone()), ..program }).file();
        let python = |target: &str| {
            let program = Program::new(vec!["python3".into()]);
            of(Program { kind: Kind::Python, target: Some(target.into()), ..program })
        };
        for (target, file) in [
            ("app.py:Class", "app.py"),
            ("app:Class", "app.py"),
            ("pack.part:Class", "pack/part.py"),
            ("pack.age:Class", "pack/age/__init__.py"),
        ] {
            assert_eq!(python(target), Some(folder.0.join(file)), "{target}");
        }
        assert_eq!(python("installed:Class"), None);
        let command = |words: &[&str]| of(Program::new(words.iter().map(|word| (*word).to_owned()).collect()));
        assert_eq!(command(&["python3", "-u", "worker.py"]), Some(folder.0.join("worker.py")));
        assert_eq!(command(&["./worker.py", "--fast"]), Some(folder.0.join("./worker.py")));
        assert_eq!(command(&["worker.py"]), None, "it is looked for along PATH");
    }
}
