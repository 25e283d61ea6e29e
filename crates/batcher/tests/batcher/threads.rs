//! Behaviours on real threads: answers to the right callers, and the fence around a runner.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use uncork_batcher::Error;

use crate::notes::{Note, Notes};
use uncork_batcher::{Batcher, Caps};

const CAPS: Caps = Caps::new(Duration::from_secs(60), 32);

/// Whether the nth batch panics: a tenth of them, the same ones at every run.
fn panics(nth: usize) -> bool {
    nth * 7 % 10 == 3
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_callers_each_get_their_own_answer_while_a_tenth_of_the_batches_panic() {
    let batches = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&batches);
    let batcher = Batcher::builder(CAPS)
        .runners(3)
        .start_function(move |xs: Vec<u64>| {
            assert!(!panics(counted.fetch_add(1, Ordering::Relaxed)), "a runner's private words");
            xs.into_iter().map(|x| x * x).collect::<Vec<_>>()
        })
        .expect("threads");
    let callers: Vec<_> = (0..1000u64)
        .map(|x| {
            let batcher = batcher.clone();
            tokio::spawn(async move {
                let mut failures = 0;
                loop {
                    match batcher.submit(x).await {
                        Ok(answer) => {
                            assert_eq!(answer, x * x);
                            return failures;
                        }
                        Err(error) => {
                            assert_eq!(error, Error::Failed);
                            assert!(!error.to_string().contains("private"), "{error}");
                            failures += 1;
                        }
                    }
                }
            })
        })
        .collect();
    let mut failures = 0;
    for caller in callers {
        failures += caller.await.expect("every caller was answered rightly");
    }
    assert!(failures > 0, "batches did panic: {} ran", batches.load(Ordering::Relaxed));
}

#[tokio::test]
async fn too_few_or_too_many_answers_fail_their_batch_and_no_other() {
    for surplus in [-1i64, 1] {
        let first = AtomicUsize::new(0);
        let batcher = Batcher::new(CAPS, move |xs: Vec<i64>| {
            let wrong = if first.fetch_add(1, Ordering::Relaxed) == 0 { surplus } else { 0 };
            (0..xs.len() as i64 + wrong).collect::<Vec<_>>()
        });
        assert_eq!(batcher.submit(5).await, Err(Error::Failed));
        assert_eq!(batcher.submit(5).await, Ok(0));
    }
}

#[tokio::test]
async fn a_worker_that_panicked_is_built_anew() {
    let built = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&built);
    let batcher = Batcher::<u64, usize>::builder(CAPS)
        .start_threads(move || {
            let generation = count.fetch_add(1, Ordering::SeqCst);
            if generation == 1 {
                return Err(uncork_batcher::BatchError::new("there was no memory for another"));
            }
            let mut broken = false;
            Ok(Box::new(move |xs: Vec<u64>| {
                assert!(!broken, "a worker was used again after its panic");
                broken = xs.contains(&13);
                assert!(!broken, "unlucky");
                Ok(vec![generation; xs.len()].into())
            }))
        })
        .expect("a thread");
    assert_eq!(batcher.submit(1).await, Ok(0));
    assert_eq!(batcher.submit(13).await, Err(Error::Failed));
    assert_eq!(batcher.submit(1).await, Ok(2), "building it is tried again");
}

#[tokio::test]
async fn a_failed_batch_teaches_nothing() {
    let (batches, notes) = (AtomicUsize::new(0), Notes::default());
    let batcher = Batcher::builder(CAPS)
        .observer(notes.clone())
        .start_function(move |xs: Vec<u64>| if batches.fetch_add(1, Ordering::Relaxed) < 5 { Vec::new() } else { xs })
        .expect("a thread");
    for _ in 0..5 {
        assert_eq!(batcher.submit(1).await, Err(Error::Failed));
    }
    assert_eq!(batcher.submit(1).await, Ok(1));
    let notes = notes.read();
    // None of the six was released with a prediction: a model that fails fast would look fast.
    let unforeseen = notes.iter().filter(|note| matches!(note, Note::Released(_, 1, 1, None))).count();
    let failed = notes.iter().filter(|note| matches!(note, Note::Landed(.., false))).count();
    let learned = notes.iter().filter(|note| matches!(note, Note::Learned(_))).count();
    assert_eq!((unforeseen, failed, learned), (6, 5, 1), "{notes:?}");
}

#[tokio::test]
async fn a_clone_keeps_the_batcher_at_work() {
    let batcher = Batcher::new(CAPS, |xs: Vec<u64>| xs);
    let other = batcher.clone();
    drop(batcher);
    assert_eq!(other.submit(3).await, Ok(3));
}

#[tokio::test]
async fn a_runner_goes_from_batch_to_batch_while_the_runtime_is_held_up() {
    let (ran, runs) = std::sync::mpsc::channel();
    let (begin, begun) = std::sync::mpsc::channel::<()>();
    let begun = std::sync::Mutex::new(begun);
    let caps = Caps::new(Duration::from_secs(60), 1);
    let batcher = Batcher::new(caps, move |xs: Vec<u64>| {
        begun.lock().expect("whole").recv().expect("it is begun");
        ran.send(xs[0]).expect("it is waited for");
        xs
    });
    let callers: Vec<_> = (0..3)
        .map(|x| {
            tokio::spawn({
                let batcher = batcher.clone();
                async move { batcher.submit(x).await }
            })
        })
        .collect();
    for _ in 0..10 {
        tokio::task::yield_now().await; // all wait, and the first batch is with the runner
    }
    // From here on the only thread of the runtime does nothing for the batcher.
    (0..3).for_each(|_| begin.send(()).expect("the runner lives"));
    let order: Vec<_> =
        (0..3).map(|_| runs.recv_timeout(Duration::from_secs(20)).expect("the next batch came")).collect();
    assert_eq!(order, [0, 1, 2]);
    for (x, caller) in (0..).zip(callers) {
        assert_eq!(caller.await.expect("no panic"), Ok(x));
    }
}

/// Whoever wakes this waits for the second batch to begin.
struct Waits {
    second: Mutex<mpsc::Receiver<()>>,
    came: AtomicUsize,
}

impl Wake for Waits {
    fn wake(self: Arc<Self>) {
        let second = self.second.lock().expect("whole");
        if self.came.load(Ordering::SeqCst) == 0 {
            second.recv_timeout(Duration::from_secs(20)).expect("the next batch began");
            self.came.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[tokio::test]
async fn a_runner_begins_its_next_batch_before_the_answers_of_the_last_have_all_been_sent() {
    const ROWS: usize = 32;
    let (release, released) = mpsc::channel::<()>();
    let (begin, second) = mpsc::channel();
    let (released, batches) = (Mutex::new(released), AtomicUsize::new(0));
    let caps = Caps::new(Duration::from_secs(60), ROWS);
    let batcher = Batcher::new(caps, move |xs: Vec<usize>| {
        match batches.fetch_add(1, Ordering::SeqCst) {
            0 => released.lock().expect("whole").recv().expect("it is released"),
            1 => begin.send(()).expect("it is waited for"),
            _ => {}
        }
        xs
    });
    let mut callers: Vec<_> = (0..4 * ROWS).map(|x| Box::pin(batcher.submit(x))).collect();
    let waits = Arc::new(Waits { second: Mutex::new(second), came: AtomicUsize::new(0) });
    let waker = Waker::from(Arc::clone(&waits));
    for caller in &mut callers {
        assert!(caller.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    for _ in 0..10 {
        tokio::task::yield_now().await; // the first batch is with the runner
    }
    release.send(()).expect("the runner lives");
    for (x, caller) in callers.into_iter().enumerate() {
        assert_eq!(caller.await, Ok(x));
    }
}
