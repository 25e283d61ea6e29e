//! Batches of nobody's rows: where they are run, and that nobody else sees them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use uncork_batcher::{BatchError, Batcher, Caps, Error, Ran, Work};

use crate::notes::{Note, Notes};
use crate::stand_in::{StandIn, answered, ms, submit_at};

#[tokio::test(start_paused = true)]
async fn a_model_that_is_too_slow_answers_nobody_late_and_is_back_when_it_is_fast_again() {
    let seconds = Duration::from_secs;
    let slow = StandIn { slow: (seconds(0)..seconds(60), 40), ..StandIn::new(ms(10), ms(0)) };
    let (told, notes) = (vec![(1, ms(400)); 4], Notes::default());
    let builder = slow.builder(ms(100), 8).seen(told).observer(notes.clone()).rehearsing(8);
    let batcher = builder.start(slow.clone());
    let times: Vec<_> = (1..40).map(|i| ms(2500) * i).collect();
    let fates = submit_at(&batcher, &times).await;
    let on_time = fates.iter().filter(|fate| fate.answered && fate.took <= ms(100)).count();
    // Those up to 60 s are refused, that one among them.
    assert_eq!((answered(&fates), on_time), (15, 15), "{fates:?}");
    let refusals: Vec<_> = fates.iter().filter(|fate| !fate.answered).map(|fate| fate.took).collect();
    assert!(refusals.iter().all(|took| *took < ms(2)), "{refusals:?}");
    let log = slow.log.lock().expect("no test panics with it");
    assert_eq!((log.batches.len(), &log.rehearsals[..]), (15, &[1; 24][..]), "a test for each refusal");
    let notes = notes.read();
    let learned = notes.iter().filter(|note| matches!(note, Note::Learned(_))).count();
    let told = notes.iter().filter(|note| matches!(note, Note::Released(..) | Note::Landed(..))).count();
    assert_eq!((learned, told), (4 + 24 + 15, 2 * 15), "what is learned is told, and no batch that was nobody's");
}

#[tokio::test(start_paused = true)]
async fn sizes_are_tried_before_callers_meet_them() {
    let runner = StandIn::new(ms(10), ms(1));
    let batcher = runner.builder(ms(100), 8).seen(vec![(1, ms(11)), (2, ms(12))]).rehearsing(2).start(runner.clone());
    assert_eq!(batcher.most_rows(), 2);
    let now = [ms(0); 8];
    assert_eq!(answered(&submit_at(&batcher, &now).await), 8);
    tokio::time::sleep(ms(200)).await;
    assert_eq!(batcher.most_rows(), 8);
    assert_eq!(answered(&submit_at(&batcher, &now).await), 8);
    let rows: Vec<_> = runner.batches().iter().map(Vec::len).collect();
    assert_eq!(rows, [2, 2, 2, 2, 8]);
    assert_eq!(runner.log.lock().expect("no test panics with it").rehearsals, [4, 4, 8, 8]);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_rehearsal_when_it_drains() {
    let runner = StandIn::new(ms(10), ms(1));
    let batcher = runner.builder(ms(100), 8).seen(vec![(1, ms(11)), (2, ms(12))]).rehearsing(2).start(runner.clone());
    tokio::time::sleep(ms(20)).await;
    let begin = tokio::time::Instant::now();
    batcher.drain().await;
    assert_eq!((begin.elapsed(), runner.log.lock().expect("no test panics with it").rehearsals.len()), (ms(0), 1));
    assert_eq!(batcher.submit(1).await, Err(Error::ShuttingDown));
}

#[tokio::test]
async fn a_thread_runs_rehearsals_on_the_worker_that_runs_its_batches() {
    /// Remembers the rows of its batches and rehearsals; eight are too many.
    struct Doubles(Arc<Mutex<Vec<(bool, usize)>>>);
    impl Work<u64, u64> for Doubles {
        fn run(&mut self, batch: Vec<u64>) -> Result<Ran<u64>, BatchError> {
            self.0.lock().expect("nobody panics with it").push((false, batch.len()));
            Ok(batch.into_iter().map(|x| 2 * x).collect::<Vec<_>>().into())
        }
        fn rehearse(&mut self, rows: usize) -> Result<(), BatchError> {
            self.0.lock().expect("nobody panics with it").push((true, rows));
            assert!(rows < 8, "there is no memory for so many");
            Ok(())
        }
    }
    let (log, notes) = (Arc::default(), Notes::default());
    let work = Arc::clone(&log);
    let caps = Caps::new(Duration::from_secs(60), 32);
    let seen = vec![(1, Duration::from_nanos(10)), (2, Duration::from_nanos(20))];
    let builder = Batcher::builder(caps).seen(seen).observer(notes.clone()).rehearsing(2);
    let batcher = builder.start_threads(move || Ok(Box::new(Doubles(Arc::clone(&work))))).expect("a thread");
    notes.until(|notes| notes.iter().any(|note| matches!(note, Note::Rehearsed(8, false)))).await;
    assert_eq!((batcher.submit(21).await, batcher.most_rows()), (Ok(42), 4), "a panic costs nobody anything");
    let log = log.lock().expect("nobody panics with it");
    assert_eq!(*log, [(true, 4), (true, 4), (true, 8), (false, 1)]);
}
