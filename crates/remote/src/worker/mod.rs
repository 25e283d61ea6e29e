//! A model that is a process of its own, in any language: `docs/workers.md` is the protocol.

mod frame;
mod host;
mod keeper;
mod link;
mod message;
mod process;
mod python;
mod said;
mod segment;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use uncork_model::runner::{Crew, Hooks, Remote, RunnerError, Signature, Watcher};
use uncork_model::tensor::Tensors;

use frame::Order;
pub use host::{Hosted, host};
use link::Link;
use message::Ready;
pub use process::end_all;

/// The version of the protocol.
pub(crate) const PROTOCOL: u32 = 1;

/// How long a model's workers have to end, after which they are killed.
const END: Duration = Duration::from_secs(4);

/// Why a worker cannot be used, or no longer. For the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// There is no process.
    #[error("{0}")]
    Start(String),
    /// It says that it cannot run the model.
    #[error("its worker says: {0}")]
    Refused(String),
    /// It takes too long to be ready.
    #[error(
        "its worker was not ready within start_timeout_ms = {limit_ms}; raise that if its model takes longer to load"
    )]
    Slow {
        /// The limit.
        limit_ms: u128,
    },
    /// It ended.
    #[error("its worker: {0}")]
    Ended(String),
    /// It sent what the protocol does not allow.
    #[error("its worker breaks the protocol: {0}")]
    Protocol(String),
    /// A length beyond its bound.
    #[error("its worker breaks the protocol: a frame with {length} bytes of {what}, more than {most}")]
    Length {
        /// Of what.
        what: &'static str,
        /// As announced.
        length: u64,
        /// The bound.
        most: u64,
    },
    /// The socket failed.
    #[error("the socket of its worker failed: {0}")]
    Socket(String),
    /// A batch did not come back.
    #[error("a batch of its worker has not come back for stuck_after_ms = {limit_ms}, so it was killed")]
    Stuck {
        /// The limit.
        limit_ms: u128,
    },
    /// It does not say that it is alive.
    #[error("its worker has nothing to do and did not answer for stuck_after_ms = {limit_ms}, so it was killed")]
    Silent {
        /// The limit.
        limit_ms: u128,
    },
    /// It takes too much memory.
    #[error("its worker has {resident_mb} MiB of memory, more than max_memory_mb = {most_mb}, so it was killed")]
    Memory {
        /// What it has.
        resident_mb: u64,
        /// What it may have.
        most_mb: u64,
    },
    /// It closed its socket before it was ready.
    #[error("its worker ended before it was ready")]
    Unready,
    /// It closed its socket.
    #[error("its worker ended")]
    Gone,
}

impl WorkerError {
    /// The same for whoever may ask whether a model is ready: without what a worker has written or said, which may be anybody's words,
    /// and a path of this machine.
    pub(crate) fn in_public(&self) -> String {
        match self {
            WorkerError::Start(_) => "its worker cannot be started".into(),
            WorkerError::Refused(_) => "its worker cannot run the model".into(),
            WorkerError::Ended(text) => WorkerError::Ended(said::without_words(text).to_owned()).to_string(),
            WorkerError::Socket(_) => "the socket of its worker failed".into(),
            own => own.to_string(),
        }
    }
}

/// What kind of model a program is, for whoever reads of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A worker in any language.
    Command,
    /// A class or a function in Python, which is the target.
    Python,
    /// A model in this file, which the server could run itself.
    Isolated(PathBuf),
}

/// What is started.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// What it is to its reader.
    pub kind: Kind,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What a worker that can run several models is to run, such as `app:Class`.
    pub target: Option<String>,
    /// What is written to its socket ahead of all frames, for an interpreter that takes its program from there.
    pub preamble: Arc<[u8]>,
    /// Set in its environment, beside what is in ours.
    pub env: Vec<(String, String)>,
    /// Where it starts; `None` for our own working folder.
    pub folder: Option<PathBuf>,
    /// How long it may take until it is ready.
    pub start_timeout: Duration,
    /// Most bytes of memory that it may have resident.
    pub max_memory: Option<u64>,
}

impl Program {
    /// A command with a minute to be ready.
    pub fn new(command: Vec<String>) -> Program {
        Program {
            kind: Kind::Command,
            command,
            target: None,
            preamble: Arc::default(),
            env: Vec::new(),
            folder: None,
            start_timeout: Duration::from_secs(60),
            max_memory: None,
        }
    }
}

/// What the model's owner allows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Processes.
    pub workers: usize,
    /// Rows of a batch.
    pub max_batch_rows: usize,
    /// The cap on the time from arrival to answer.
    pub max_latency: Duration,
    /// A batch that takes so long is given up.
    pub stuck_after: Duration,
}

/// The workers of one model: each batch goes to one that has the least to do.
#[derive(Debug)]
pub struct Workers {
    shared: Arc<Shared>,
    signature: Arc<Signature>,
    platform: String,
    example: Option<Tensors>,
    hooks: Hooks,
    takes_whole: bool,
    keepers: Mutex<Vec<JoinHandle<()>>>,
}

/// What all workers of a model share.
#[derive(Debug)]
struct Shared {
    model: String,
    program: Program,
    limits: Limits,
    /// What the first worker said that it takes and gives, its hooks, and whether it takes bodies whole.
    known: OnceLock<(Signature, Hooks, bool)>,
    places: Mutex<Vec<Place>>,
    /// Told when a place has room for a batch.
    room: Notify,
    closing: watch::Sender<bool>,
    watcher: OnceLock<Told>,
}

/// Hears of changes.
struct Told(Watcher);

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Told").finish_non_exhaustive()
    }
}

/// Where a worker is, or is to come.
#[derive(Debug, Default)]
struct Place {
    link: Option<Arc<Link>>,
    /// Batches that it takes at once.
    concurrency: usize,
    /// Batches that it has.
    busy: usize,
    /// How many there have been.
    restarts: u64,
    /// Ends in a row without an answer between them, and why the last one was.
    ends: u32,
    why: String,
}

impl Place {
    /// Whether there is a worker that answers.
    fn is_open(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.is_open())
    }
}

/// A place's room for one batch.
struct Seat<'a> {
    shared: &'a Shared,
    place: usize,
    link: Arc<Link>,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut places = self.shared.places();
        let place = &mut places[self.place];
        // A worker that came after this one begins with none.
        if place.link.as_ref().is_some_and(|link| Arc::ptr_eq(link, &self.link)) {
            place.busy -= 1;
        }
        drop(places);
        self.shared.room.notify_one();
    }
}

impl Shared {
    fn places(&self) -> MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    async fn closing(&self) {
        let mut closing = self.closing.subscribe();
        // The sender is ours.
        let _ = closing.wait_for(|&is_closing| is_closing).await;
    }

    fn open(&self, place: usize, link: &Arc<Link>, concurrency: usize) {
        let mut places = self.places();
        let place = &mut places[place];
        (place.link, place.concurrency, place.busy) = (Some(Arc::clone(link)), concurrency, 0);
        drop(places);
        self.room.notify_waiters();
        self.tell();
    }

    /// Takes the worker out of use, for what it is about to be replaced for.
    fn close(&self, place: usize, why: String) {
        let mut places = self.places();
        (places[place].link, places[place].why) = (None, why);
        drop(places);
        self.tell();
    }

    /// Says how many workers there are.
    fn tell(&self) {
        if let Some(Told(watcher)) = self.watcher.get() {
            let places = self.places();
            let ready = places.iter().filter(|place| place.is_open()).count();
            watcher(Crew { ready, ended: places.iter().map(|place| place.restarts).sum() });
        }
    }

    fn ended(&self, place: usize, why: String, ends: u32) {
        let mut places = self.places();
        let place = &mut places[place];
        (place.ends, place.why) = (ends, why);
        place.restarts += 1;
        drop(places);
        self.tell();
    }

    /// Runs a hook on a worker that has the fewest calls.
    async fn hook(&self, order: Order, tensors: Tensors) -> Result<Tensors, RunnerError> {
        let open = |place: &&Place| place.is_open();
        let idlest = || {
            let links: Vec<_> = self.places().iter().filter(open).filter_map(|place| place.link.clone()).collect();
            links.into_iter().min_by_key(|link| link.calls_out())
        };
        self.patiently(idlest).await?.hook(order, &tensors).await
    }

    /// Room in the place that has the fewest batches.
    fn seat(&self) -> Option<Seat<'_>> {
        let mut places = self.places();
        let free = |place: &Place| place.is_open() && place.busy < place.concurrency;
        let (at, place) = places.iter_mut().enumerate().filter(|(_, p)| free(p)).min_by_key(|(_, place)| place.busy)?;
        let link = Arc::clone(place.link.as_ref()?);
        place.busy += 1;
        Some(Seat { shared: self, place: at, link })
    }

    /// What `look` finds, now or when a worker is there or has room.
    async fn wait<T>(&self, look: impl Fn() -> Option<T>) -> T {
        loop {
            let mut told = std::pin::pin!(self.room.notified());
            told.as_mut().enable();
            if let Some(found) = look() {
                return found;
            }
            told.await;
        }
    }

    /// The same within [`patience`](Self::patience).
    async fn patiently<T>(&self, look: impl Fn() -> Option<T>) -> Result<T, RunnerError> {
        if let Some(found) = look() {
            return Ok(found);
        }
        let found = tokio::time::timeout(self.patience(), self.wait(look)).await;
        found.map_err(|_| RunnerError::Absent(self.trouble().unwrap_or_default()))
    }

    async fn run(&self, batch: Tensors, rehearsal: bool) -> Result<Tensors, RunnerError> {
        let seat = self.patiently(|| self.seat()).await?;
        let outputs = seat.link.run(&batch, rehearsal);
        if !rehearsal {
            return outputs.await;
        }
        // Whoever loads the model waits for this, and holds up whoever loads another. A worker whose run is given up is killed.
        let limit = self.program.start_timeout;
        tokio::time::timeout(limit, outputs).await.unwrap_or_else(|_| {
            let limit_ms = limit.as_millis();
            let message = format!(
                "its worker has not answered a batch of made-up rows within start_timeout_ms = {limit_ms}; raise that if it takes longer"
            );
            Err(RunnerError::Failed(message))
        })
    }

    /// How long a batch waits for a worker: longer than the cap its callers do not, and a batch that waits is not stuck.
    fn patience(&self) -> Duration {
        self.limits.max_latency.min(self.limits.stuck_after / 4)
    }

    /// Why nothing is answered, if no worker is there.
    fn trouble(&self) -> Option<String> {
        let places = self.places();
        if places.iter().any(Place::is_open) {
            return None;
        }
        let worst = places.iter().max_by_key(|place| place.ends)?;
        Some(if worst.ends >= keeper::LOOP {
            format!("crash loop: its worker has ended {} times in a row: {}", worst.ends, worst.why)
        } else {
            format!("its worker is being replaced: {}", worst.why)
        })
    }
}

impl Workers {
    /// Starts all workers of a model, and returns when each is ready. Must be called within the tokio runtime that is to watch
    /// over them.
    pub async fn start(model: &str, program: Program, limits: Limits) -> Result<Workers, WorkerError> {
        let shared = Arc::new(Shared {
            model: model.to_owned(),
            program,
            limits,
            known: OnceLock::new(),
            places: Mutex::new((0..limits.workers).map(|_| Place::default()).collect()),
            room: Notify::new(),
            closing: watch::Sender::new(false),
            watcher: OnceLock::new(),
        });
        let start = |place| {
            let (first, introduced) = oneshot::channel();
            (tokio::spawn(keeper::keep(Arc::clone(&shared), place, first)), introduced)
        };
        let (keepers, introduced): (Vec<_>, Vec<_>) = (0..limits.workers).map(start).unzip();
        let introduced = join_all(introduced).await.into_iter();
        let introduced = introduced.map(|ready| ready.unwrap_or(Err(WorkerError::Unready)));
        let ready = introduced
            .collect::<Result<Vec<_>, _>>()
            .and_then(|all| all.into_iter().next().ok_or(WorkerError::Unready));
        let keepers = Mutex::new(keepers);
        match ready {
            Ok(ready) => {
                let signature = Arc::new(ready.signature.clone());
                let Ready { platform, example, hooks, whole: takes_whole, .. } = ready;
                Ok(Workers { shared, signature, platform, example, hooks, takes_whole, keepers })
            }
            Err(why) => {
                shared.closing.send_replace(true);
                let keepers = keepers.into_inner().unwrap_or_else(PoisonError::into_inner);
                let _ = tokio::time::timeout(END, join_all(keepers)).await;
                Err(why)
            }
        }
    }

    /// What the workers call themselves.
    pub fn platform(&self) -> &str {
        &self.platform
    }

    /// One request that the model takes, if the workers gave one.
    pub fn example(&self) -> Option<&Tensors> {
        self.example.as_ref()
    }
}

impl Remote for Workers {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    async fn run(&self, batch: Tensors) -> Result<Tensors, RunnerError> {
        self.shared.run(batch, false).await
    }

    async fn rehearse(&self, batch: Tensors) -> Result<Tensors, RunnerError> {
        self.shared.run(batch, true).await
    }

    fn hooks(&self) -> Hooks {
        self.hooks
    }

    fn takes_whole(&self) -> bool {
        self.takes_whole
    }

    async fn prepare(&self, request: Tensors) -> Result<Tensors, RunnerError> {
        self.shared.hook(Order::Prepare, request).await
    }

    async fn finish(&self, outputs: Tensors) -> Result<Tensors, RunnerError> {
        self.shared.hook(Order::Finish, outputs).await
    }

    fn watched(&self, watcher: Watcher) {
        let _ = self.shared.watcher.set(Told(watcher));
        self.shared.tell();
    }

    async fn ready(&self) {
        let shared = &self.shared;
        // Whether it was in time, running the batch tells.
        let _ = shared.patiently(|| shared.trouble().is_none().then_some(())).await;
    }

    fn trouble(&self) -> Option<String> {
        self.shared.trouble()
    }

    async fn end(&self) {
        self.shared.closing.send_replace(true);
        let keepers = std::mem::take(&mut *self.keepers.lock().unwrap_or_else(PoisonError::into_inner));
        let _ = tokio::time::timeout(END, join_all(keepers)).await;
    }
}
