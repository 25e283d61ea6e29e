//! What runs a batch: the seam between the actor and the runners, and the threads behind it.

use std::any::Any;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

/// Why a whole batch got no answers. The text is for the operator's log and never reaches a caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BatchError(String);

impl BatchError {
    /// A batch that failed for this reason.
    pub fn new(why: impl Into<String>) -> BatchError {
        BatchError(why.into())
    }

    fn without_rows() -> BatchError {
        BatchError::new("it has no rows of its own to rehearse with")
    }
}

/// What came of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran<A> {
    /// One answer for each item, in order. Any other number fails the batch.
    pub answers: Vec<A>,
    /// How long the batch ran, by the clock of whoever ran it. `None` leaves it to the batcher, which knows only when it hears
    /// of the answers: later than they are there, where its own thread waits for a processor.
    pub took: Option<Duration>,
    /// Whether such a batch would take that long again. Not where part of it failed or was tried twice: such a batch tells
    /// nothing of the next one's time, and is not learned from.
    pub is_typical: bool,
}

impl<A> From<Vec<A>> for Ran<A> {
    fn from(answers: Vec<A>) -> Ran<A> {
        Ran { answers, took: None, is_typical: true }
    }
}

/// Runs batches. Asked for no more batches at once than the pool has runners.
pub trait Executor<I, A>: Send + 'static {
    /// Starts a batch; the future yields its answers.
    fn execute(&mut self, batch: Vec<I>) -> BoxFuture<'static, Result<Ran<A>, BatchError>>;

    /// Starts a batch of so many rows that are nobody's; the future yields no answers. Asked for only where the batcher
    /// [rehearses](crate::Builder::rehearsing).
    fn rehearse(&mut self, _rows: usize) -> BoxFuture<'static, Result<Ran<A>, BatchError>> {
        Box::pin(async { Err(BatchError::without_rows()) })
    }
}

/// What a thread does with batches. The thread takes the time, unless `took` says it already. A closure of a batch is one.
pub trait Work<I, A> {
    /// Runs a batch.
    fn run(&mut self, batch: Vec<I>) -> Result<Ran<A>, BatchError>;

    /// Runs a batch of so many made-up rows. Asked for only where the batcher [rehearses](crate::Builder::rehearsing).
    fn rehearse(&mut self, _rows: usize) -> Result<(), BatchError> {
        Err(BatchError::without_rows())
    }
}

impl<I, A, F: FnMut(Vec<I>) -> Result<Ran<A>, BatchError>> Work<I, A> for F {
    fn run(&mut self, batch: Vec<I>) -> Result<Ran<A>, BatchError> {
        self(batch)
    }
}

/// Threads that run the batches of any number of queues, whatever the types of their items. Clones share them; they end
/// when the last clone and the last [`Workers`] on them are dropped, each after the batch it is at.
#[derive(Debug, Clone)]
pub struct Threads {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// One for each thread: a thread has workers of its own, so it matters who gets a job.
    jobs: Vec<mpsc::Sender<Job>>,
    /// Threads without a batch, the one that was busy last at the end: its caches are the warmest.
    idle: Arc<Mutex<Vec<usize>>>,
    next_key: AtomicU64,
}

/// Something to do on a thread, with the workers that the thread owns.
type Job = Box<dyn FnOnce(&mut Owned) + Send>;

/// The workers that one thread owns, by key. A worker never leaves its thread, so it needs not be `Send`.
type Owned = HashMap<u64, Box<dyn Any>>;

impl Threads {
    /// Starts `count` threads called `name`.
    pub fn start(name: &str, count: usize) -> std::io::Result<Threads> {
        let mut jobs = Vec::with_capacity(count);
        for i in 0..count {
            let (job, inbox) = mpsc::channel::<Job>();
            thread::Builder::new().name(format!("{name}-{i}")).spawn(move || {
                let mut owned = Owned::new();
                while let Ok(job) = inbox.recv() {
                    // The work in it has a fence of its own; this one is for workers whose `drop` panics.
                    let _ = fenced(|| {
                        job(&mut owned);
                        Ok(())
                    });
                }
            })?;
            jobs.push(job);
        }
        let idle = Arc::new(Mutex::new((0..count).rev().collect()));
        Ok(Threads { shared: Arc::new(Shared { jobs, idle, next_key: AtomicU64::new(0) }) })
    }

    /// A worker on each thread, which the thread builds for itself, now if it is idle and else after its batch. A worker
    /// that panics is thrown away and built anew; its batch fails, and no other.
    pub fn workers<I, A, F>(&self, build: F) -> Workers<I, A>
    where
        I: Send + 'static,
        A: Send + 'static,
        F: Fn() -> Result<Box<dyn Work<I, A>>, BatchError> + Send + Sync + 'static,
    {
        let key = self.shared.next_key.fetch_add(1, Ordering::Relaxed);
        let build: Arc<Build<I, A>> = Arc::new(build);
        for thread in &self.shared.jobs {
            let build = Arc::clone(&build);
            let settle_in: Job = Box::new(move |owned| drop(owned.insert(key, Box::new(Worker::new(build)))));
            // Threads end after this handle, so there is one to hear it; the first batch would say if not.
            let _ = thread.send(settle_in);
        }
        Workers { threads: self.clone(), key, types: PhantomData }
    }
}

impl Shared {
    /// A thread without a batch, and whether it was taken from the idle ones. Where there is none, more batches are sent
    /// than the pool has runners, and some thread gets a second one to do after its first.
    fn thread(&self) -> (usize, bool) {
        match lock(&self.idle).pop() {
            Some(thread) => (thread, true),
            None => (0, false),
        }
    }
}

/// One queue's workers, one on each thread of some [`Threads`]. They are let go when this is dropped.
#[derive(Debug)]
pub struct Workers<I, A> {
    threads: Threads,
    key: u64,
    types: PhantomData<fn(I) -> A>,
}

impl<I: Send + 'static, A: Send + 'static> Executor<I, A> for Workers<I, A> {
    fn execute(&mut self, batch: Vec<I>) -> BoxFuture<'static, Result<Ran<A>, BatchError>> {
        self.send(|worker| worker.run(|work| work.run(batch)))
    }

    fn rehearse(&mut self, rows: usize) -> BoxFuture<'static, Result<Ran<A>, BatchError>> {
        self.send(move |worker| worker.run(|work| work.rehearse(rows).map(|()| Vec::new().into())))
    }
}

impl<I: Send + 'static, A: Send + 'static> Workers<I, A> {
    /// Has the worker of an idle thread run something.
    fn send(
        &self,
        run: impl FnOnce(&mut Worker<I, A>) -> Result<Ran<A>, BatchError> + Send + 'static,
    ) -> BoxFuture<'static, Result<Ran<A>, BatchError>> {
        let gone = || BatchError("no runner thread is left".into());
        let (done, answers) = oneshot::channel();
        let (shared, key) = (&self.threads.shared, self.key);
        let (thread, was_idle) = shared.thread();
        let begin = Instant::now();
        let idle = Arc::clone(&shared.idle);
        let job: Job = Box::new(move |owned| {
            let worker = owned.get_mut(&key).and_then(|worker| worker.downcast_mut::<Worker<I, A>>());
            let answers = worker.map_or_else(|| Err(gone()), run);
            let took = begin.elapsed();
            let answers = answers.map(|ran| Ran { took: ran.took.or(Some(took)), ..ran });
            if was_idle {
                lock(&idle).push(thread);
            }
            // A dropped receiver means that the batcher is gone, and with it everybody who waits.
            let _ = done.send(answers);
        });
        match shared.jobs.get(thread).map(|jobs| jobs.send(job)) {
            Some(Ok(())) => answers.map(move |a| a.unwrap_or_else(|_| Err(gone()))).boxed(),
            _ => std::future::ready(Err(gone())).boxed(),
        }
    }
}

impl<I, A> Drop for Workers<I, A> {
    fn drop(&mut self) {
        let key = self.key;
        for thread in &self.threads.shared.jobs {
            // A thread that is gone has no worker to let go.
            let _ = thread.send(Box::new(move |owned| drop(owned.remove(&key))));
        }
    }
}

type Build<I, A> = dyn Fn() -> Result<Box<dyn Work<I, A>>, BatchError> + Send + Sync;

/// A worker and how to build another.
struct Worker<I, A> {
    build: Arc<Build<I, A>>,
    work: Result<Box<dyn Work<I, A>>, Fenced>,
}

impl<I, A> Worker<I, A> {
    fn new(build: Arc<Build<I, A>>) -> Worker<I, A> {
        let work = fenced(&*build);
        Worker { build, work }
    }

    fn run<T>(&mut self, run: impl FnOnce(&mut dyn Work<I, A>) -> Result<T, BatchError>) -> Result<T, BatchError> {
        if self.work.is_err() {
            self.work = fenced(&*self.build);
        }
        let answers = match &mut self.work {
            Ok(work) => fenced(|| run(&mut **work)),
            Err(why) => Err(why.clone()),
        };
        if let Err(Fenced::Panicked(_)) = &answers {
            self.work = fenced(&*self.build);
        }
        answers.map_err(BatchError::from)
    }
}

#[derive(Debug, Clone)]
enum Fenced {
    Failed(BatchError),
    Panicked(String),
}

impl From<Fenced> for BatchError {
    fn from(fenced: Fenced) -> BatchError {
        match fenced {
            Fenced::Failed(error) => error,
            Fenced::Panicked(text) => BatchError(format!("the runner panicked: {text}")),
        }
    }
}

/// Runs `f`; a panic becomes an error. What `f` was changing is not looked at again afterwards.
fn fenced<T>(f: impl FnOnce() -> Result<T, BatchError>) -> Result<T, Fenced> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)) {
        Ok(result) => result.map_err(Fenced::Failed),
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().map(|s| (*s).to_string());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
            Err(Fenced::Panicked(text.unwrap_or_else(|| "no message".into())))
        }
    }
}

/// A lock that a panic poisoned is as good as before: what it guards here is whole between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
