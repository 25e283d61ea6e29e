//! Panics in what users write: each costs what it happened in, and nothing else of the pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use uncork_batcher::{
    Abandoned, BatchError, Batcher, Builder, Caps, Error, Executor, Landed, Learned, Observer, Pool, Ran, Refused,
    Rehearsed, Released, SpanRef, Terms, Waits,
};
use uncork_core::estimator::Instant;

use crate::notes::{Note, Notes};
use crate::stand_in::{StandIn, ms};

/// Answers, but for the items that say where it is to panic.
struct Brittle;

const IN_EXECUTE: u64 = 1000;
const IN_FUTURE: u64 = 1001;
const WHEN_DROPPED: u64 = 1002;

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "on purpose, when dropped");
    }
}

impl Executor<u64, u64> for Brittle {
    fn execute(&mut self, _ticket: u64, batch: Vec<u64>) -> BoxFuture<'static, Result<Ran<u64>, BatchError>> {
        assert!(!batch.contains(&IN_EXECUTE), "on purpose, in execute");
        if batch.contains(&WHEN_DROPPED) {
            let bomb = Bomb;
            let poll = move |_: &mut Context<'_>| {
                let _held = &bomb;
                Poll::Ready(Ok(vec![0].into()))
            };
            return std::future::poll_fn(poll).boxed();
        }
        async move {
            assert!(!batch.contains(&IN_FUTURE), "on purpose, in its future");
            Ok(batch.into())
        }
        .boxed()
    }

    fn rehearse(&mut self, _ticket: u64, _rows: usize) -> BoxFuture<'static, Result<Ran<u64>, BatchError>> {
        panic!("on purpose, in rehearse")
    }
}

impl Drop for Brittle {
    fn drop(&mut self) {
        // A second panic beside one that nobody caught would end the test program.
        assert!(std::thread::panicking(), "on purpose, as it is let go");
    }
}

/// Keeps why the last batch failed.
#[derive(Clone, Default)]
struct Why(Arc<std::sync::Mutex<Option<String>>>);

impl Observer for Why {
    fn landed(&self, _at: Instant, batch: &Landed<'_>) {
        *self.0.lock().expect("nobody panics with it") = batch.failed.map(ToString::to_string);
    }

    fn rehearsed(&self, _at: Instant, batch: &Rehearsed<'_>) {
        *self.0.lock().expect("nobody panics with it") = batch.failed.map(ToString::to_string);
    }
}

#[tokio::test(start_paused = true)]
async fn an_executor_that_panics_fails_that_batch_and_no_other_of_its_pool() {
    let (pool, why) = (Pool::new("shared", 1), Why::default());
    let builder = || Batcher::builder(Caps::new(ms(100), 8)).pool(&pool);
    let brittle = builder().observer(why.clone()).start(Brittle);
    let other = builder().start(StandIn::new(ms(1), ms(0)));
    for (item, told) in [(IN_EXECUTE, "in execute"), (IN_FUTURE, "in its future"), (WHEN_DROPPED, "when dropped")] {
        assert_eq!(brittle.submit(item).await, Err(Error::Failed), "{told}");
        let why = why.0.lock().expect("nobody panics with it").clone();
        assert_eq!(why, Some(format!("the executor panicked: on purpose, {told}")));
        assert_eq!((brittle.submit(1).await, other.submit(1).await), (Ok(1), Ok(2)), "after one {told}");
    }
    drop(brittle);
    assert_eq!(other.submit(1).await, Ok(2), "after the executor has left with a panic");
}

#[tokio::test(start_paused = true)]
async fn a_rehearsal_that_panics_is_one_that_failed() {
    let (why, notes) = (Why::default(), Notes::default());
    let builder = Batcher::builder(Caps::new(ms(100), 8)).seen(vec![(1, ms(11)), (2, ms(12))]).rehearsing(2);
    let brittle = builder.observer(why.clone()).observer(notes.clone()).start(Brittle);
    assert_eq!(brittle.submit(1).await, Ok(1));
    let failed = |notes: &[Note]| notes.iter().any(|note| matches!(note, Note::Rehearsed(_, false)));
    tokio::time::timeout(ms(10_000), notes.until(failed)).await.expect("larger batches are rehearsed");
    let why = why.0.lock().expect("nobody panics with it").clone();
    assert_eq!(why.as_deref(), Some("the executor panicked: on purpose, in rehearse"));
    assert_eq!(brittle.submit(2).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn an_executor_that_panics_when_it_is_told_to_give_up_leaves_the_others_at_work() {
    struct Deaf;
    impl Executor<u64, u64> for Deaf {
        fn execute(&mut self, _ticket: u64, _batch: Vec<u64>) -> BoxFuture<'static, Result<Ran<u64>, BatchError>> {
            std::future::pending().boxed()
        }
        fn give_up(&mut self, _ticket: u64, _is_replaced: bool) {
            panic!("on purpose, in give_up");
        }
    }
    let pool = Pool::new("shared", 1);
    let builder = || Batcher::builder(Caps::new(ms(100), 8)).pool(&pool);
    let deaf = builder().giving_up_after(ms(500)).start(Deaf);
    let other = builder().start(StandIn::new(ms(1), ms(0)));
    assert!(matches!(deaf.submit(1).await, Err(Error::Stuck { .. })));
    assert_eq!(other.submit(1).await, Ok(2));
}

/// Panics in whatever it is told first, and counts what it is told.
#[derive(Clone, Default)]
struct Touchy {
    /// In which of the methods.
    at: &'static str,
    told: Arc<AtomicUsize>,
}

impl Touchy {
    fn hear(&self, what: &str) {
        if what == self.at {
            self.told.fetch_add(1, Ordering::SeqCst);
            panic!("on purpose, in {what}");
        }
    }
}

impl Observer for Touchy {
    fn released(&self, _at: Instant, _batch: &Released<'_>) -> Option<SpanRef> {
        self.hear("released");
        None
    }
    fn landed(&self, _at: Instant, _batch: &Landed<'_>) {
        self.hear("landed");
    }
    fn refused(&self, _at: Instant, _items: &Refused<'_>) {
        self.hear("refused");
    }
    fn abandoned(&self, _at: Instant, _batch: &Abandoned) {
        self.hear("abandoned");
    }
    fn rehearsed(&self, _at: Instant, _batch: &Rehearsed<'_>) {
        self.hear("rehearsed");
    }
    fn learned(&self, _at: Instant, _batch: &Learned) {
        self.hear("learned");
    }
    fn waits(&self, _at: Instant, _waits: Waits) {
        self.hear("waits");
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_is_told_nothing_more_and_batches_and_other_observers_go_on() {
    for at in ["released", "landed", "refused", "abandoned", "rehearsed", "learned", "waits"] {
        let (touchy, notes) = (Touchy { at, ..Touchy::default() }, Notes::default());
        let runner = StandIn { hangs: usize::from(at == "abandoned"), ..StandIn::new(ms(10), ms(0)) };
        let mut builder: Builder<u64, u64> = runner.builder(ms(100), 8).giving_up_after(ms(500));
        if at == "rehearsed" {
            builder = builder.rehearsing(1);
        }
        let batcher = builder.observer(touchy.clone()).observer(notes.clone()).start(runner.clone());
        if at == "abandoned" {
            assert!(matches!(batcher.submit(1).await, Err(Error::Stuck { .. })));
        }
        for item in 0..8 {
            assert_eq!(batcher.submit(item).await, Ok(item + 1), "{at}");
            let late = batcher.submit_with(item, Terms::now().within(ms(1))).await;
            assert!(matches!(late, Err(Error::Late { .. })), "{at}: {late:?}");
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(batcher.submit(1).await, Ok(2), "{at}");
        assert_eq!(touchy.told.load(Ordering::SeqCst), 1, "{at}");
        let released = notes.read().iter().filter(|note| matches!(note, Note::Released(..))).count();
        assert!(released >= 9, "the other observer hears of all: {released} after a panic in {at}");
    }
}
