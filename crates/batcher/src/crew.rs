//! Threads that outlive the pools that they run: one that a pool has let go waits here for the next.
//!
//! What a thread keeps for itself is kept with it, and need not be made again: buffers that have grown, and what can never be
//! given back, such as rayon's record of a thread that has become a worker of its own pool (`use_current_thread`, 10 KiB).

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use super::turns::wait_for_turns;

/// What a thread does until its pool lets it go.
pub(super) type Stint = Box<dyn FnOnce() + Send>;

/// Threads without a pool. There are never more than ran at once.
static FREE: Mutex<Vec<mpsc::Sender<Stint>>> = Mutex::new(Vec::new());

/// Has a free thread do this, or a new one where none is.
pub(super) fn start(mut stint: Stint) -> io::Result<()> {
    let waiting = free().pop();
    if let Some(thread) = waiting {
        match thread.send(stint) {
            Ok(()) => return Ok(()),
            // It is gone, for which there is no reason but the end of the process.
            Err(mpsc::SendError(unsent)) => stint = unsent,
        }
    }
    let (own, stints) = mpsc::channel::<Stint>();
    thread::Builder::new().name("uncork-runner".into()).spawn(move || {
        wait_for_turns();
        stint();
        free().push(own.clone());
        for stint in stints {
            stint();
            free().push(own.clone());
        }
    })?;
    Ok(())
}

/// Nothing panics while it holds this lock.
fn free() -> MutexGuard<'static, Vec<mpsc::Sender<Stint>>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::thread::ThreadId;

    use super::*;

    /// The thread on which a stint has run.
    fn ran_on() -> ThreadId {
        let (told, thread) = mpsc::channel();
        start(Box::new(move || told.send(thread::current().id()).expect("it is waited for"))).expect("a thread");
        thread.recv().expect("it runs")
    }

    #[test]
    fn a_thread_that_is_let_go_is_used_again() {
        // Other tests use threads as well, and one is free only a moment after its stint.
        let first = ran_on();
        assert!((0..100_000).any(|_| ran_on() == first));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_that_runs_batches_interrupts_nobody() {
        use thread_priority::unix::{NormalThreadSchedulePolicy, ThreadSchedulePolicy, thread_schedule_policy};
        let (told, policy) = mpsc::channel();
        start(Box::new(move || told.send(thread_schedule_policy()).expect("it is waited for"))).expect("a thread");
        let batch = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Batch);
        assert_eq!(policy.recv().expect("it runs").ok(), Some(batch));
    }
}
