//! Batches that do not come back.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use uncork_batcher::{BatchError, Batcher, Caps, Error, Executor, Pool, Ran, Work};

use crate::notes::{Note, Notes};
use crate::stand_in::{StandIn, ms};

fn abandoned(notes: &Notes) -> Vec<Note> {
    notes.read().into_iter().filter(|note| matches!(note, Note::Abandoned(..))).collect()
}

#[tokio::test(start_paused = true)]
async fn callers_of_a_batch_that_does_not_come_back_are_told_so_and_others_are_answered() {
    let (runner, notes) = (StandIn { hangs: 1, ..StandIn::new(ms(10), ms(0)) }, Notes::default());
    let builder = runner.builder(ms(100), 8).giving_up_after(ms(2000)).observer(notes.clone());
    let batcher = builder.start(runner.clone());
    let begin = tokio::time::Instant::now();
    let (first, second) = tokio::join!(batcher.submit(1), batcher.submit(2));
    let refused = matches!(second, Err(Error::Late { .. })) || second == first;
    let Err(Error::Stuck { ran }) = first else { panic!("{first:?}") };
    assert!(refused && ran == begin.elapsed() && (ms(2000)..ms(2002)).contains(&ran), "{second:?} after {ran:?}");
    assert_eq!((batcher.is_stuck(), abandoned(&notes).len()), (true, 1));
    assert_eq!((batcher.submit(3).await, batcher.is_stuck()), (Ok(4), false));
}

#[tokio::test(start_paused = true)]
async fn a_fresh_runner_is_tested_with_its_own_rows() {
    let runner = StandIn { hangs: 1, ..StandIn::new(ms(10), ms(0)) };
    let builder = runner.builder(ms(100), 8).giving_up_after(ms(2000)).rehearsing(8);
    let batcher = builder.start(runner.clone());
    assert!(matches!(batcher.submit(1).await, Err(Error::Stuck { .. })));
    assert!(batcher.is_stuck());
    tokio::time::sleep(ms(20)).await;
    assert!(!batcher.is_stuck(), "nobody had to ask for it");
}

#[tokio::test(start_paused = true)]
async fn a_pool_leaves_no_more_than_four_runners_behind_and_can_still_be_drained() {
    let (runner, notes) = (StandIn { hangs: 99, ..StandIn::new(ms(10), ms(0)) }, Notes::default());
    let builder = runner.builder(ms(100), 8).giving_up_after(ms(2000)).observer(notes.clone());
    let batcher = builder.start(runner.clone());
    for round in 1..=5 {
        assert!(matches!(batcher.submit(round).await, Err(Error::Stuck { .. })));
    }
    let told = abandoned(&notes);
    assert_eq!(told[3..], [Note::Abandoned(1, true, 4), Note::Abandoned(1, false, 4)]);
    assert!(matches!(batcher.submit(6).await, Err(Error::Late { .. })), "no runner is left");
    batcher.drain().await;
    assert_eq!(runner.batches().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn whoever_runs_batches_is_told_of_each_that_is_given_up_and_whether_it_is_replaced() {
    /// Never comes back. Keeps what it is told.
    struct Deaf(Arc<Mutex<Vec<(u64, bool)>>>);
    impl Executor<u64, u64> for Deaf {
        fn execute(&mut self, _ticket: u64, _batch: Vec<u64>) -> BoxFuture<'static, Result<Ran<u64>, BatchError>> {
            Box::pin(std::future::pending())
        }
        fn give_up(&mut self, ticket: u64, is_replaced: bool) {
            self.0.lock().expect("nobody panics with it").push((ticket, is_replaced));
        }
    }
    let told = Arc::new(Mutex::new(Vec::new()));
    let builder = Batcher::builder(Caps::new(ms(100), 1)).giving_up_after(ms(2000)).runners(6);
    let batcher = builder.start(Deaf(Arc::clone(&told)));
    let answers = join_all((0..6).map(|item| batcher.submit(item))).await;
    assert!(answers.iter().all(|answer| matches!(answer, Err(Error::Stuck { .. }))), "{answers:?}");
    let told = told.lock().expect("nobody panics with it");
    assert_eq!(
        told.iter().map(|(_, is_replaced)| *is_replaced).collect::<Vec<_>>(),
        [true, true, true, true, false, false]
    );
}

#[tokio::test]
async fn a_stuck_thread_is_replaced_and_ends_if_it_comes_back_and_nobody_is_answered_twice() {
    /// Tells when it is dropped.
    struct Worker(mpsc::Sender<usize>, usize);
    impl Drop for Worker {
        fn drop(&mut self) {
            let _ = self.0.send(self.1);
        }
    }
    let (free, latch) = mpsc::channel::<()>();
    let (dropped, drops) = mpsc::channel();
    let (latch, dropped, built) = (Arc::new(Mutex::new(latch)), Mutex::new(dropped), AtomicUsize::new(0));
    let caps = Caps::new(Duration::from_secs(60), 8);
    let batcher = Batcher::builder(caps).giving_up_after(Duration::from_secs(1)).start_threads(move || {
        let generation = built.fetch_add(1, Ordering::SeqCst);
        let worker = Worker(dropped.lock().expect("nobody panics with it").clone(), generation);
        let latch = Arc::clone(&latch);
        Ok(Box::new(move |xs: Vec<u64>| {
            let _ = &worker;
            if xs.contains(&13) {
                let _ = latch.lock().expect("nobody panics with it").recv();
            }
            Ok(vec![generation; xs.len()].into())
        }))
    });
    let batcher = batcher.expect("a thread");
    assert_eq!(batcher.submit(1).await, Ok(0));
    assert!(matches!(batcher.submit(13).await, Err(Error::Stuck { .. })));
    assert_eq!(batcher.submit(1).await, Ok(1), "by a new worker");
    drop(free);
    assert_eq!(drops.recv(), Ok(0), "the old one is let go when its batch is over");
    assert_eq!(batcher.submit(1).await, Ok(1));
}

#[tokio::test]
async fn a_model_that_leaves_while_its_rehearsal_hangs_leaves_a_runner_that_works() {
    /// Never comes back from a rehearsal while there is somebody to free it.
    struct Hangs(Arc<Mutex<mpsc::Receiver<()>>>, tokio::sync::mpsc::UnboundedSender<()>);
    impl Work<u64, u64> for Hangs {
        fn run(&mut self, batch: Vec<u64>) -> Result<Ran<u64>, BatchError> {
            Ok(batch.into())
        }
        fn rehearse(&mut self, _: usize) -> Result<(), BatchError> {
            let _ = self.1.send(());
            let _ = self.0.lock().expect("nobody panics with it").recv();
            Ok(())
        }
    }
    let (_free, latch) = mpsc::channel::<()>();
    let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let latch = Arc::new(Mutex::new(latch));
    let (caps, pool) = (Caps::new(Duration::from_secs(60), 8), Pool::new("device", 1));
    let builder = Batcher::builder(caps).pool(&pool).giving_up_after(ms(500));
    let leaver = builder.seen(vec![(1, ms(1)); 3]).rehearsing(1);
    let leaver =
        leaver.start_threads(move || Ok(Box::new(Hangs(Arc::clone(&latch), begun.clone())))).expect("a thread");
    begins.recv().await.expect("it is rehearsed");
    let stayer = Batcher::builder(caps).pool(&pool).start_function(|xs: Vec<u64>| xs).expect("a thread");
    drop(leaver);
    assert_eq!(stayer.submit(1).await, Ok(1));
}
