//! How threads come to a processor when all are busy.
//!
//! Linux lets a thread that is woken interrupt another that has run for a while. To the threads of a batcher that does harm: each item that a reader
//! hands in wakes them, they interrupt the reader, and take what has come so far for a batch. Batches stay small, each has to be
//! paid for, and the reader, which is what is short, comes to nothing. A thread that waits for its turn finds all that
//! came meanwhile. Where a processor is free, nothing changes.

/// Has the calling thread wait for its turn when it is woken while all processors are busy, where it would else interrupt who runs: `SCHED_BATCH` of
/// Linux (sched(7)), which takes no right. Its part of the processor stays the same. Elsewhere this does nothing, nor where the system
/// forbids it, or where the thread has another policy than the ordinary one already.
///
/// A batcher's own threads, on which batches run, do so of themselves. This is for a thread that has the [`Batcher`](crate::Batcher)'s task to itself,
/// where others hand items in. Threads and programs that it starts afterwards do the same.
pub fn wait_for_turns() {
    #[cfg(target_os = "linux")]
    if let Err(error) = linux::wait_for_turns() {
        tracing::debug!(%error, "this thread interrupts others when it is woken");
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;

    use thread_priority::unix::{
        NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
        thread_schedule_policy,
    };
    use thread_priority::{Error, ThreadPriority, ThreadPriorityValue};

    pub(super) const BATCH: ThreadSchedulePolicy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Batch);
    const ORDINARY: ThreadSchedulePolicy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Other);

    pub(super) fn wait_for_turns() -> io::Result<()> {
        let failed = |error: Error| io::Error::other(format!("{error:?}"));
        // Whoever started the program with another policy meant it.
        if thread_schedule_policy().map_err(failed)? != ORDINARY {
            return Ok(());
        }
        let nice = rustix::process::getpriority_process(None)?;
        let same = same(nice).ok_or_else(|| io::Error::other(format!("a niceness of {nice}")))?;
        set_thread_priority_and_policy(thread_native_id(), same, BATCH).map_err(failed)
    }

    /// What the crate calls this niceness: it sets both, and only the policy is to change.
    fn same(nice: i32) -> Option<ThreadPriority> {
        let all = ThreadPriorityValue::MIN.into()..=ThreadPriorityValue::MAX.into();
        let mut all = all.filter_map(|value: u8| ThreadPriorityValue::try_from(value).ok());
        all.find_map(|value| {
            let priority = ThreadPriority::Crossplatform(value);
            matches!(priority.to_posix(BATCH), Ok(posix) if posix == nice).then_some(priority)
        })
    }

    #[cfg(test)]
    mod tests {
        use std::thread;

        use super::*;

        #[test]
        fn every_niceness_has_a_name() {
            for nice in -20..=19 {
                let named = same(nice).map(|priority| priority.to_posix(BATCH));
                assert!(matches!(named, Some(Ok(posix)) if posix == nice), "{nice}");
            }
        }

        #[test]
        fn a_thread_waits_for_its_turns_and_is_as_nice_as_before() {
            let state = || (rustix::process::getpriority_process(None).unwrap(), thread_schedule_policy().unwrap());
            let seen = thread::spawn(move || {
                let before = state();
                wait_for_turns().unwrap();
                (before, state())
            });
            let ((nice, policy), after) = seen.join().unwrap();
            assert_eq!((policy, after), (ORDINARY, (nice, BATCH)));
        }

        #[test]
        fn a_thread_that_was_given_another_policy_keeps_it() {
            let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
            let seen = thread::spawn(move || {
                // The policy is set first, and the niceness, of which an idle thread has no use, may not be.
                let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
                let before = thread_schedule_policy().unwrap();
                wait_for_turns().unwrap();
                (before, thread_schedule_policy().unwrap())
            });
            assert_eq!(seen.join().unwrap(), (idle, idle));
        }
    }
}
