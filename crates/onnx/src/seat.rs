//! The threads that a runner on the processor computes with.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::sync::mpsc::{self, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use rayon::{ThreadPool, ThreadPoolBuilder};

use uncork_model::runner::RunnerError;

thread_local! {
    /// The pool that this thread is a worker of. It belongs to the thread, not to a runner: a thread joins a pool once
    /// and for ever, and a runner that is built anew after a panic must find its helpers again.
    static SEAT: RefCell<Option<ThreadPool>> = const { RefCell::new(None) };
}

/// How long the caller looks for the others' answers before it sleeps.
const AWAKE: Duration = Duration::from_micros(100);

/// A number of threads, the one that calls among them.
#[derive(Debug)]
pub(crate) struct Seat {
    threads: NonZeroUsize,
    /// Workers for a caller whose thread cannot join a pool of the right size.
    outside: Option<ThreadPool>,
    /// The same, of one thread.
    other: Option<ThreadPool>,
    /// Pools of one thread each.
    helpers: Vec<ThreadPool>,
}

impl Seat {
    pub(crate) fn new(threads: NonZeroUsize) -> Seat {
        Seat { threads, outside: None, other: None, helpers: Vec::new() }
    }

    pub(crate) fn threads(&self) -> NonZeroUsize {
        self.threads
    }

    /// Ends the threads that it has beside the caller's. Those of the next batch have the priority of its caller, who starts them.
    pub(crate) fn let_go(&mut self) {
        *self = Seat::new(self.threads);
    }

    /// Runs `work` where rayon sees exactly these threads.
    ///
    /// The calling thread itself becomes the first worker of its pool. Handing each batch over to another thread would
    /// cost two wake-ups, more than a small model takes; and without a pool of its own, rayon would use the threads of
    /// all processors for every runner.
    pub(crate) fn run<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> Result<T, RunnerError> {
        joined(self.threads.get(), &mut self.outside, work)
    }

    /// Runs `work` where rayon sees one thread: the caller's, if it `stays` with this runner and is in no larger pool.
    pub(crate) fn alone<T: Send>(&mut self, stays: bool, work: impl FnOnce() -> T + Send) -> Result<T, RunnerError> {
        match stays {
            true => joined(1, &mut self.other, work),
            false => Ok(pool(1, &mut self.other)?.install(work)),
        }
    }

    /// Runs `work` where rayon sees these threads, none of which is the caller's.
    pub(crate) fn all<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> Result<T, RunnerError> {
        Ok(pool(self.threads.get(), &mut self.outside)?.install(work))
    }

    /// Does `work` with each of the parts: with the first as [`alone`](Seat::alone) does, and with every other on a thread of its own. Gives
    /// what comes of them in their order.
    pub(crate) fn each<P, T>(
        &mut self,
        stays: bool,
        parts: Vec<P>,
        work: impl Fn(P) -> T + Clone + Send + Sync + 'static,
    ) -> Result<Vec<T>, RunnerError>
    where
        P: Send + 'static,
        T: Send + 'static,
    {
        let mut parts = parts.into_iter();
        let Some(own) = parts.next() else { return Ok(Vec::new()) };
        let (done, dones) = mpsc::channel();
        let mut given: Vec<Option<T>> = vec![None];
        for (i, part) in parts.enumerate() {
            if i == self.helpers.len() {
                self.helpers.push(ThreadPoolBuilder::new().num_threads(1).build().map_err(failed)?);
            }
            let (work, done) = (work.clone(), done.clone());
            self.helpers[i].spawn(move || {
                // Whoever asked waits for all of them.
                let _ = done.send((i + 1, work(part)));
            });
            given.push(None);
        }
        drop(done);
        given[0] = Some(self.alone(stays, || work(own))?);
        // They began together with as much to do: the others are about to be ready, and sleeping takes longer to end than that.
        let begin = Instant::now();
        loop {
            let next = match dones.try_recv() {
                Err(TryRecvError::Empty) if begin.elapsed() < AWAKE => {
                    thread::yield_now();
                    continue;
                }
                Err(TryRecvError::Empty) => dones.recv().ok(),
                next => next.ok(),
            };
            let Some((i, of_part)) = next else { break };
            given[i] = Some(of_part);
        }
        given.into_iter().collect::<Option<_>>().ok_or_else(|| RunnerError::Failed("a thread ended early".into()))
    }
}

fn failed(error: rayon::ThreadPoolBuildError) -> RunnerError {
    RunnerError::Failed(format!("cannot start threads: {error}"))
}

/// The pool in `place`, which is built where there is none.
fn pool(threads: usize, place: &mut Option<ThreadPool>) -> Result<&ThreadPool, RunnerError> {
    let pool = match place.take() {
        Some(pool) => pool,
        None => ThreadPoolBuilder::new().num_threads(threads).build().map_err(failed)?,
    };
    Ok(place.insert(pool))
}

/// Runs `work` in the pool of the calling thread, which it joins if it is in none; in another one if that has another size.
fn joined<T: Send>(
    threads: usize,
    outside: &mut Option<ThreadPool>,
    work: impl FnOnce() -> T + Send,
) -> Result<T, RunnerError> {
    if rayon::current_thread_index().is_none() {
        let pool = ThreadPoolBuilder::new().num_threads(threads).use_current_thread().build().map_err(failed)?;
        SEAT.with(|seat| *seat.borrow_mut() = Some(pool));
    }
    if rayon::current_num_threads() == threads {
        return Ok(work());
    }
    Ok(pool(threads, outside)?.install(work))
}
