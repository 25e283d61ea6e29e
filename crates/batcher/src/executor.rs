//! What runs a batch: the seam between the actor and the runners, and the threads behind it.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::fence::caught;
use super::{crew, relay};

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
///
/// A panic in [`execute`](Executor::execute), in [`rehearse`](Executor::rehearse) or in the future of either fails that batch with its words, and no
/// other; the executor is asked for the next one all the same, so it has to be as good as before. One in [`give_up`](Executor::give_up) or
/// when the executor is dropped is passed over. The program's panic hook hears of each.
pub trait Executor<I, A>: Send + 'static {
    /// Starts a batch; the future yields its answers. No other batch or rehearsal of the pool has this ticket.
    fn execute(&mut self, ticket: u64, batch: Vec<I>) -> BoxFuture<'static, Result<Ran<A>, BatchError>>;

    /// Starts a batch of so many rows that are nobody's; the future yields no answers. Asked for only where the batcher
    /// [rehearses](crate::Builder::rehearsing).
    fn rehearse(&mut self, _ticket: u64, _rows: usize) -> BoxFuture<'static, Result<Ran<A>, BatchError>> {
        Box::pin(async { Err(BatchError::without_rows()) })
    }

    /// The batch with this ticket has run for too long, and is not waited for: where it can be ended, it is to be. With `is_replaced`
    /// whatever runs it is to be replaced, so that as many batches can run as before. Else too many were already, and a runner is free again
    /// when its future yields. What it yields goes nowhere. Asked for only where the batcher [gives up](crate::Builder::giving_up_after).
    fn give_up(&mut self, _ticket: u64, _is_replaced: bool) {}
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

/// Threads that run the batches of any number of queues, whatever the types of their items. Clones share them; they are let go
/// when the last clone and the last [`Workers`] on them are dropped, each after the batch it is at, and wait for the next pool.
#[derive(Debug, Clone)]
pub struct Threads {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    /// Gets a thread from the system, or one that is free.
    hire: Hire,
    /// One for each thread: a thread has workers of its own, so it matters who gets a job.
    jobs: Vec<mpsc::Sender<Job>>,
    /// Threads without a batch, the one that was busy last at the end: its caches are the warmest.
    idle: Vec<usize>,
    /// Which thread is at which batch, by the key of its workers and its ticket.
    busy: HashMap<(u64, u64), usize>,
    /// Builds each worker on a thread, by key.
    settlers: BTreeMap<u64, Settle>,
    next_key: u64,
}

/// Has a thread do this.
type Hire = fn(crew::Stint) -> std::io::Result<()>;

/// Something to do on a thread, with the workers that the thread owns.
type Job = Box<dyn FnOnce(&mut Owned) + Send>;

/// Makes the job that builds a worker on a thread.
type Settle = Box<dyn Fn() -> Job + Send>;

/// The workers that one thread owns, by key. A worker never leaves its thread, so it needs not be `Send`.
type Owned = HashMap<u64, Box<dyn Any>>;

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shared { jobs, idle, .. } = self;
        f.debug_struct("Shared").field("threads", &jobs.len()).field("idle", idle).finish_non_exhaustive()
    }
}

impl Threads {
    /// Takes `count` threads, new ones where too few are free.
    pub fn start(count: usize) -> std::io::Result<Threads> {
        Threads::hired(count, crew::start)
    }

    fn hired(count: usize, hire: Hire) -> std::io::Result<Threads> {
        let mut shared = Shared {
            hire,
            jobs: Vec::with_capacity(count),
            idle: (0..count).rev().collect(),
            busy: HashMap::new(),
            settlers: BTreeMap::new(),
            next_key: 0,
        };
        for _ in 0..count {
            let jobs = shared.start()?;
            shared.jobs.push(jobs);
        }
        Ok(Threads { shared: Arc::new(Mutex::new(shared)) })
    }

    /// A worker on each thread, which the thread builds for itself, now if it is idle and else after its batch. A worker
    /// that panics is thrown away and built anew; its batch fails, and no other.
    pub fn workers<I, A, F>(&self, build: F) -> Workers<I, A>
    where
        I: Send + 'static,
        A: Send + 'static,
        F: Fn() -> Result<Box<dyn Work<I, A>>, BatchError> + Send + Sync + 'static,
    {
        let mut shared = lock(&self.shared);
        let key = shared.next_key;
        shared.next_key += 1;
        let build: Arc<Build<I, A>> = Arc::new(build);
        let settle: Settle = Box::new(move || {
            let build = Arc::clone(&build);
            Box::new(move |owned| drop(owned.insert(key, Box::new(Worker::new(build)))))
        });
        // Threads end after this handle, so there is one to hear it; the first batch would say if not.
        shared.jobs.iter().for_each(|thread| drop(thread.send(settle())));
        shared.settlers.insert(key, settle);
        Workers { threads: self.clone(), key, types: PhantomData }
    }
}

impl Shared {
    /// Starts a thread that builds all workers.
    fn start(&mut self) -> std::io::Result<mpsc::Sender<Job>> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        (self.hire)(Box::new(move || {
            let mut owned = Owned::new();
            while let Ok(job) = inbox.recv() {
                // The work in it has a fence of its own; this one is for workers whose `drop` panics.
                let _ = fenced(|| {
                    job(&mut owned);
                    Ok(())
                });
            }
        }))?;
        self.settlers.values().for_each(|settle| drop(jobs.send(settle())));
        Ok(jobs)
    }

    /// A thread for a batch. Where none is idle, more batches are sent than there are threads, and one gets a second batch to do after its
    /// first.
    fn thread(&mut self, batch: (u64, u64)) -> Option<&mpsc::Sender<Job>> {
        let thread = self.idle.pop().or_else(|| self.busy.iter().min().map(|(_, thread)| *thread))?;
        self.busy.insert(batch, thread);
        self.jobs.get(thread)
    }

    /// A batch is over: its thread is idle again, unless it was left behind or has another to do.
    fn done(&mut self, batch: (u64, u64)) {
        let thread = self.busy.remove(&batch);
        self.idle.extend(thread.filter(|thread| !self.busy.values().any(|other| other == thread)));
    }

    /// Leaves the thread behind that is at this batch, and starts another in its place. It ends after the batch, if it ever
    /// does: nobody can send to it any more.
    fn replace(&mut self, batch: (u64, u64)) {
        let Some(thread) = self.busy.remove(&batch) else { return };
        match self.start() {
            Ok(jobs) => {
                self.jobs[thread] = jobs;
                self.busy.retain(|_, other| *other != thread);
                self.idle.push(thread);
            }
            // A batch that waits behind this one is given up too; then it is tried again.
            Err(_) => drop(self.busy.insert(batch, thread)),
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
    fn execute(&mut self, ticket: u64, batch: Vec<I>) -> BoxFuture<'static, Result<Ran<A>, BatchError>> {
        self.send(ticket, |worker| worker.run(|work| work.run(batch)))
    }

    fn rehearse(&mut self, ticket: u64, rows: usize) -> BoxFuture<'static, Result<Ran<A>, BatchError>> {
        self.send(ticket, move |worker| worker.run(|work| work.rehearse(rows).map(|()| Vec::new().into())))
    }

    fn give_up(&mut self, ticket: u64, is_replaced: bool) {
        if is_replaced {
            lock(&self.threads.shared).replace((self.key, ticket));
        }
    }
}

impl<I: Send + 'static, A: Send + 'static> Workers<I, A> {
    /// Has the worker of an idle thread run something.
    fn send(
        &self,
        ticket: u64,
        run: impl FnOnce(&mut Worker<I, A>) -> Result<Ran<A>, BatchError> + Send + 'static,
    ) -> BoxFuture<'static, Result<Ran<A>, BatchError>> {
        let gone = || BatchError("no runner thread is left".into());
        let (done, answers) = oneshot::channel();
        let (key, batch) = (self.key, (self.key, ticket));
        let begin = Instant::now();
        let threads = Arc::downgrade(&self.threads.shared);
        let job: Job = Box::new(move |owned| {
            let worker = owned.get_mut(&key).and_then(|worker| worker.downcast_mut::<Worker<I, A>>());
            let answers = worker.map_or_else(|| Err(gone()), run);
            let took = begin.elapsed();
            let answers = answers.map(|ran| Ran { took: ran.took.or(Some(took)), ..ran });
            threads.upgrade().into_iter().for_each(|threads| lock(&threads).done(batch));
            // A dropped receiver means that the batcher is gone, and with it everybody who waits.
            relay::carrying_on(|| drop(done.send(answers)));
        });
        match lock(&self.threads.shared).thread(batch).map(|thread| thread.send(job)) {
            Some(Ok(())) => answers.map(move |a| a.unwrap_or_else(|_| Err(gone()))).boxed(),
            _ => std::future::ready(Err(gone())).boxed(),
        }
    }
}

impl<I, A> Drop for Workers<I, A> {
    fn drop(&mut self) {
        let (key, mut shared) = (self.key, lock(&self.threads.shared));
        let settle = shared.settlers.remove(&key);
        for thread in &shared.jobs {
            // A thread that is gone has no worker to let go.
            let _ = thread.send(Box::new(move |owned| drop(owned.remove(&key))));
        }
        drop(shared);
        drop(settle); // with what builds workers, which is somebody else's code
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
    caught(f).map_err(Fenced::Panicked)?.map_err(Fenced::Failed)
}

/// A lock that a panic poisoned is as good as before: what it guards here is whole between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Whether there are threads to be had.
    static HAS_THREADS: AtomicBool = AtomicBool::new(true);

    fn hire(stint: crew::Stint) -> std::io::Result<()> {
        if HAS_THREADS.load(Ordering::SeqCst) { crew::start(stint) } else { Err(std::io::ErrorKind::WouldBlock.into()) }
    }

    #[tokio::test]
    async fn where_no_thread_is_to_be_had_for_a_stuck_one_it_keeps_its_place_until_there_is() {
        let (free, latch) = mpsc::channel::<()>();
        let latch = Arc::new(Mutex::new(latch));
        let mut workers = Threads::hired(1, hire).expect("a thread").workers(move || {
            let latch = Arc::clone(&latch);
            Ok(Box::new(move |xs: Vec<u64>| {
                if xs.contains(&13) {
                    let _ = lock(&latch).recv();
                }
                Ok(xs.into())
            }))
        });
        let answers = |ran: Result<Ran<u64>, BatchError>| ran.map(|ran| ran.answers);
        let stuck = workers.execute(0, vec![13]);
        HAS_THREADS.store(false, Ordering::SeqCst);
        workers.give_up(0, true);
        let mut behind = workers.execute(1, vec![1]);
        assert_eq!((&mut behind).now_or_never(), None, "it waits behind the other");
        HAS_THREADS.store(true, Ordering::SeqCst);
        workers.give_up(1, true);
        assert_eq!(answers(workers.execute(2, vec![2]).await), Ok(vec![2]), "by another thread");
        drop(free);
        assert_eq!(
            (answers(stuck.await), answers(behind.await)),
            (Ok(vec![13]), Ok(vec![1])),
            "the old one does what it has"
        );
    }
}
