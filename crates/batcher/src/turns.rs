//! How threads come to a processor when all are busy.
//!
//! Linux lets a thread that is woken interrupt another that has run for a while. To the threads of a batcher that does harm: each item that a reader
//! hands in wakes them, they interrupt the reader, and take what has come so far for a batch. Batches stay small, each has to be
//! paid for, and the reader, which is what is short, comes to nothing. A thread that waits for its turn finds all that
//! came meanwhile. Where a processor is free, nothing changes.

/// Has the calling thread wait for its turn when it is woken while all processors are busy, where it would else interrupt who runs: `SCHED_BATCH` of
/// Linux (sched(7)), which takes no right. Its part of the processor stays the same. Elsewhere this does nothing, nor where the system
/// forbids it.
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
    };
    use thread_priority::{ThreadPriority, ThreadPriorityValue};

    pub(super) const BATCH: ThreadSchedulePolicy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Batch);

    pub(super) fn wait_for_turns() -> io::Result<()> {
        let nice = rustix::process::getpriority_process(None)?;
        set_thread_priority_and_policy(thread_native_id(), same(nice), BATCH)
            .map_err(|error| io::Error::other(format!("{error:?}")))
    }

    /// What the crate calls this niceness: it sets both, and only the policy is to change.
    fn same(nice: i32) -> ThreadPriority {
        let all = (ThreadPriorityValue::MIN.into()..=ThreadPriorityValue::MAX.into()).filter_map(|value: u8| {
            let value = ThreadPriorityValue::try_from(value).ok()?;
            Some(ThreadPriority::Crossplatform(value))
        });
        let is_same = |priority: &ThreadPriority| matches!(priority.to_posix(BATCH), Ok(posix) if posix == nice);
        all.into_iter().find(is_same).unwrap_or(ThreadPriority::Min)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn every_niceness_stays() {
            for nice in -20..=19 {
                assert!(matches!(same(nice).to_posix(BATCH), Ok(posix) if posix == nice), "{nice}");
            }
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::thread;

    use thread_priority::unix::thread_schedule_policy;

    use super::linux::BATCH;
    use super::*;

    #[test]
    fn a_thread_waits_for_its_turns_and_is_as_nice_as_before() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let seen = thread::spawn(move || {
            let before = (nice(), thread_schedule_policy().unwrap());
            wait_for_turns();
            (before, (nice(), thread_schedule_policy().unwrap()))
        });
        let ((nice_before, policy_before), after) = seen.join().unwrap();
        assert_ne!(policy_before, BATCH);
        assert_eq!(after, (nice_before, BATCH));
    }
}
