//! What runs a batch: the seam between the actor and the runners.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

/// Why a whole batch got no answers. The text is for the operator's log and never reaches a caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BatchError(pub String);

/// Runs batches. Asked for no more batches at once than the pool has runners.
pub trait Executor<I, A>: Send + 'static {
    /// Starts a batch; the future yields one answer for each item, in order. Any other number of answers fails the batch.
    fn execute(&mut self, batch: Vec<I>) -> BoxFuture<'static, Result<Vec<A>, BatchError>>;
}

/// What a thread does with a batch.
pub type Work<I, A> = Box<dyn FnMut(Vec<I>) -> Result<Vec<A>, BatchError>>;

/// Threads, each owning a worker that it builds for itself. A worker that panics is thrown away and built anew; its batch
/// fails, and no other. The threads end when this value is dropped, each after the batch it is at.
#[derive(Debug)]
pub struct Threads<I, A> {
    jobs: mpsc::Sender<Job<I, A>>,
}

struct Job<I, A> {
    batch: Vec<I>,
    done: oneshot::Sender<Result<Vec<A>, BatchError>>,
}

impl<I: Send + 'static, A: Send + 'static> Threads<I, A> {
    /// Starts `count` threads called `name`, each with a worker from `build`.
    pub fn start<F>(name: &str, count: usize, build: F) -> std::io::Result<Threads<I, A>>
    where
        F: Fn() -> Result<Work<I, A>, BatchError> + Send + Sync + 'static,
    {
        let (jobs, inbox) = mpsc::channel::<Job<I, A>>();
        let (inbox, build) = (Arc::new(Mutex::new(inbox)), Arc::new(build));
        for i in 0..count {
            let (inbox, build) = (Arc::clone(&inbox), Arc::clone(&build));
            thread::Builder::new().name(format!("{name}-{i}")).spawn(move || work(&inbox, &*build))?;
        }
        Ok(Threads { jobs })
    }
}

/// Takes jobs until there is nobody left to send one.
fn work<I, A>(inbox: &Mutex<mpsc::Receiver<Job<I, A>>>, build: &dyn Fn() -> Result<Work<I, A>, BatchError>) {
    let mut worker = fenced(build);
    loop {
        // Idle threads queue for the lock; whoever has it waits for the next job. Nothing in here can panic, but a
        // poisoned lock would be no reason to stop either: the receiver has no state of its own to be broken.
        let job = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { batch, done }) = job else { return };
        if worker.is_err() {
            worker = fenced(build);
        }
        let answers = match &mut worker {
            Ok(run) => fenced(|| run(batch)),
            Err(why) => Err(why.clone()),
        };
        if let Err(Fenced::Panicked(_)) = &answers {
            worker = fenced(build);
        }
        // A dropped receiver means that the batcher is gone, and with it everybody who waits.
        let _ = done.send(answers.map_err(BatchError::from));
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

impl<I: Send + 'static, A: Send + 'static> Executor<I, A> for Threads<I, A> {
    fn execute(&mut self, batch: Vec<I>) -> BoxFuture<'static, Result<Vec<A>, BatchError>> {
        let (done, answers) = oneshot::channel();
        let gone = || BatchError("no runner thread is left".into());
        match self.jobs.send(Job { batch, done }) {
            Ok(()) => answers.map(move |a| a.unwrap_or_else(|_| Err(gone()))).boxed(),
            Err(_) => std::future::ready(Err(gone())).boxed(),
        }
    }
}
