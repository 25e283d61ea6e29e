//! The threads that a runner on the processor computes with.

use std::cell::RefCell;
use std::num::NonZeroUsize;

use rayon::{ThreadPool, ThreadPoolBuilder};

use uncork_model::runner::RunnerError;

thread_local! {
    /// The pool that this thread is a worker of. It belongs to the thread, not to a runner: a thread joins a pool once
    /// and for ever, and a runner that is built anew after a panic must find its helpers again.
    static SEAT: RefCell<Option<ThreadPool>> = const { RefCell::new(None) };
}

/// A number of threads, the one that calls among them.
#[derive(Debug)]
pub(crate) struct Seat {
    threads: NonZeroUsize,
    /// Workers for a caller whose thread cannot join a pool of the right size.
    outside: Option<ThreadPool>,
}

impl Seat {
    pub(crate) fn new(threads: NonZeroUsize) -> Seat {
        Seat { threads, outside: None }
    }

    /// Runs `work` where rayon sees exactly these threads.
    ///
    /// The calling thread itself becomes the first worker of its pool. Handing each batch over to another thread would
    /// cost two wake-ups, more than a small model takes; and without a pool of its own, rayon would use the threads of
    /// all processors for every runner.
    pub(crate) fn run<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> Result<T, RunnerError> {
        let threads = self.threads.get();
        let failed = |e: rayon::ThreadPoolBuildError| RunnerError::Failed(format!("cannot start threads: {e}"));
        if rayon::current_thread_index().is_none() {
            let pool = ThreadPoolBuilder::new().num_threads(threads).use_current_thread().build().map_err(failed)?;
            SEAT.with(|seat| *seat.borrow_mut() = Some(pool));
        }
        if rayon::current_num_threads() == threads {
            return Ok(work());
        }
        let pool = match self.outside.take() {
            Some(pool) => pool,
            None => ThreadPoolBuilder::new().num_threads(threads).build().map_err(failed)?,
        };
        Ok(self.outside.insert(pool).install(work))
    }
}
