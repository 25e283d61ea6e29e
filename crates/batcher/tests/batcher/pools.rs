//! Several batchers that share the runners of one pool.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uncork_batcher::{Batcher, Caps, Error, Observer, Pool, Waits};
use uncork_core::estimator::Instant;

use crate::stand_in::{Fate, StandIn, answered, ms, submit_at};

/// 2 + 0.05·n ms: 15,238 items a second in full batches of 128.
fn quick() -> StandIn {
    StandIn::new(ms(2), Duration::from_micros(50))
}

/// A batcher of `pool` over `runner`, with a latency cap of 50 ms.
fn join(pool: &Pool<u64, u64>, runner: &StandIn, weight: usize) -> Batcher<u64, u64> {
    let weight = NonZeroUsize::new(weight).expect("positive");
    runner.builder(ms(50), 128).pool(pool).weight(weight).seen(runner.warm()).start(runner.clone())
}

/// Evenly spread arrivals.
fn every(gap: Duration, count: u32) -> Vec<Duration> {
    (0..count).map(|i| gap * i).collect()
}

/// Submits to both at once.
async fn both(
    first: (&Batcher<u64, u64>, Vec<Duration>),
    second: (&Batcher<u64, u64>, Vec<Duration>),
) -> (Vec<Fate>, Vec<Fate>) {
    tokio::join!(submit_at(first.0, &first.1), submit_at(second.0, &second.1))
}

fn late(fates: &[Fate]) -> usize {
    fates.iter().filter(|f| f.answered && f.took > ms(50)).count()
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_one_does_not_push_another_past_its_cap_and_is_itself_refused_at_once() {
    let pool = Pool::new("device", 1);
    let (victim, flood) = (join(&pool, &quick(), 1), join(&pool, &quick(), 1));
    // Half of the victim's share, and four times what the pool can do.
    let victims = every(Duration::from_micros(263), 3000);
    let crowd = every(Duration::from_micros(16), 30_000);
    let (victims, crowd) = both((&victim, victims), (&flood, crowd)).await;
    assert!(answered(&victims) >= 2985, "{} of 3000", answered(&victims));
    assert_eq!((late(&victims), late(&crowd)), (0, 0));
    assert!(answered(&crowd) > 3000, "what is left is the crowd's: {}", answered(&crowd));
    let mut refusals: Vec<Duration> = crowd.iter().filter(|f| !f.answered).map(|f| f.took).collect();
    refusals.sort();
    let median = refusals[refusals.len() / 2];
    assert!(median <= ms(2), "half of the refusals took longer than {median:?}");
}

#[tokio::test(start_paused = true)]
async fn two_floods_get_runner_time_by_weight() {
    let pool = Pool::new("device", 1);
    let (heavy, light) = (quick(), quick());
    let (three, one) = (join(&pool, &heavy, 3), join(&pool, &light, 1));
    let crowd = || every(Duration::from_micros(30), 30_000);
    let (first, second) = both((&three, crowd()), (&one, crowd())).await;
    let time = |runner: &StandIn| runner.batches().iter().map(|b| runner.time(b.len()).as_secs_f64()).sum::<f64>();
    let share = time(&heavy) / (time(&heavy) + time(&light));
    assert!((0.73..0.77).contains(&share), "{share:.3}");
    for fates in [first, second] {
        let in_vain = fates.iter().filter(|f| !f.answered && f.took > ms(5)).count();
        // Each counts on its part of the pool only, so few are let in that cannot be served.
        assert!(in_vain < 2 * answered(&fates), "{in_vain} waited in vain, {} were answered", answered(&fates));
    }
}

#[tokio::test(start_paused = true)]
async fn all_batchers_of_a_pool_together_run_no_more_batches_than_it_has_runners() {
    let pool = Pool::new("device", 3);
    let runner = quick();
    let batchers: Vec<_> = (0..5).map(|_| join(&pool, &runner, 1)).collect();
    let tasks: Vec<_> = batchers
        .into_iter()
        .map(|b| tokio::spawn(async move { submit_at(&b, &every(Duration::from_micros(100), 1000)).await }))
        .collect();
    for task in tasks {
        assert_eq!(answered(&task.await.expect("no panic")), 1000);
    }
    assert_eq!(runner.log.lock().expect("unpoisoned").most_running, 3);
}

#[tokio::test(start_paused = true)]
async fn batchers_come_and_go_while_the_others_work() {
    let pool = Pool::new("device", 1);
    let stayer = join(&pool, &quick(), 1);
    let work = tokio::spawn({
        let stayer = stayer.clone();
        async move { submit_at(&stayer, &every(Duration::from_micros(500), 2000)).await }
    });
    for round in 0..20 {
        let runner = quick();
        let guest = join(&pool, &runner, 1);
        let fates = submit_at(&guest, &every(Duration::from_micros(300), 100)).await;
        assert_eq!((answered(&fates), late(&fates)), (100, 0), "guest {round}");
        let last = tokio::spawn({
            let guest = guest.clone();
            async move { guest.submit(1).await }
        });
        tokio::task::yield_now().await;
        guest.drain().await;
        assert_eq!(last.await.expect("no panic"), Ok(2), "what waited is answered");
        assert_eq!(guest.submit(1).await, Err(Error::ShuttingDown));
        drop(guest);
        tokio::time::sleep(ms(1)).await;
        assert_eq!(Arc::strong_count(&runner.log), 1, "guest {round} has left nothing behind");
    }
    assert_eq!(answered(&work.await.expect("no panic")), 2000);
    drop(stayer);
}

#[tokio::test(start_paused = true)]
async fn what_happens_to_one_batcher_of_a_pool_is_told_to_its_own_observers_alone() {
    /// Counts how often it is told what waits, and keeps what it was told last.
    #[derive(Clone, Default)]
    struct Gauge(Arc<Mutex<(usize, usize)>>);
    impl Observer for Gauge {
        fn waits(&self, _at: Instant, waits: Waits) {
            let (told, _) = *self.0.lock().expect("nobody panics with it");
            *self.0.lock().expect("nobody panics with it") = (told + 1, waits.rows);
        }
    }
    let read = |gauge: &Gauge| *gauge.0.lock().expect("nobody panics with it");
    let (pool, runner, idle, busy) = (Pool::new("shared", 1), quick(), Gauge::default(), Gauge::default());
    let start = |gauge: &Gauge| {
        let builder = runner.builder(ms(1000), 8).pool(&pool).observer(gauge.clone());
        builder.start(runner.clone())
    };
    let (one, other) = (start(&idle), start(&busy));
    assert_eq!((one.submit(1).await, other.submit(1).await), (Ok(2), Ok(2)));
    tokio::time::sleep(ms(1)).await;
    let ((before, rows), (of_busy, _)) = (read(&idle), read(&busy));
    assert_eq!(rows, 0);
    assert_eq!(answered(&submit_at(&other, &every(ms(1), 100)).await), 100);
    assert_eq!(read(&idle), (before, 0), "nothing has happened to it");
    let (told, rows) = read(&busy);
    assert!(told > of_busy + 100 && rows == 0, "{told} times, {rows} wait");
    drop(one);
    other.drain().await;
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_of_a_batcher_may_go_while_its_batch_runs() {
    let pool = Pool::new("device", 1);
    let (leaver, stayer) = (quick(), quick());
    let (first, second) = (join(&pool, &leaver, 1), join(&pool, &stayer, 1));
    let gone = tokio::spawn(async move { tokio::time::timeout(ms(1), first.submit(1)).await });
    tokio::task::yield_now().await;
    assert_eq!(second.submit(2).await, Ok(3));
    assert!(gone.await.expect("no panic").is_err());
    assert_eq!(leaver.batches(), [[1]]);
    assert_eq!(Arc::strong_count(&leaver.log), 1);
    drop(pool);
    assert_eq!(second.submit(2).await, Ok(3), "a batcher keeps its pool at work");
}

#[tokio::test(start_paused = true)]
async fn a_failure_or_a_full_queue_of_one_is_none_of_the_others_business() {
    let pool: Pool<u64, u64> = Pool::new("device", 1);
    let runner = StandIn::new(ms(10), ms(0));
    let full = runner.builder(ms(10_000), 1).pool(&pool).max_queue_rows(1).start(runner.clone());
    let other = runner.builder(ms(10_000), 1).pool(&pool).start(runner.clone());
    let fates = submit_at(&full, &[ms(0); 10]).await;
    assert!(answered(&fates) < 10, "it is full");
    assert_eq!(answered(&submit_at(&other, &[ms(0); 10]).await), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_threads_of_a_pool_run_the_batches_of_all_its_batchers() {
    const CAPS: Caps = Caps::new(Duration::from_secs(60), 8);
    let pool: Pool<u64, u64> = Pool::new("device", 2);
    let threads = Arc::new(Mutex::new(HashSet::new()));
    let start = |factor: u64| {
        let threads = Arc::clone(&threads);
        let function = move |xs: Vec<u64>| {
            threads.lock().expect("unpoisoned").insert(std::thread::current().id());
            assert!(factor != 3 || !xs.contains(&13), "unlucky");
            xs.into_iter().map(|x| x * factor).collect::<Vec<_>>()
        };
        Batcher::builder(CAPS).pool(&pool).start_function(function).expect("threads")
    };
    let batchers: Vec<_> = (2..6).map(|factor| (factor, start(factor))).collect();
    let callers: Vec<_> = (0..800u64)
        .map(|x| {
            let (factor, batcher) = batchers[x as usize % 4].clone();
            tokio::spawn(async move {
                loop {
                    match batcher.submit(x).await {
                        Err(Error::Failed) if factor == 3 && x == 13 => return,
                        // It rode with the unlucky one.
                        Err(Error::Failed) if factor == 3 => {}
                        answer => return assert_eq!(answer, Ok(x * factor)),
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("every caller was answered rightly");
    }
    assert!(threads.lock().expect("unpoisoned").len() <= 2, "two runners are two threads");
}

#[tokio::test]
async fn a_batcher_that_leaves_takes_its_workers_off_the_threads() {
    struct Worker(std::sync::mpsc::Sender<()>);
    impl Drop for Worker {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let pool: Pool<u64, u64> = Pool::new("device", 2);
    let (dropped, drops) = std::sync::mpsc::channel();
    let caps = Caps::new(Duration::from_secs(60), 8);
    let batcher = Batcher::builder(caps).pool(&pool).start_threads(move || {
        let worker = Worker(dropped.clone());
        Ok(Box::new(move |xs: Vec<u64>| {
            let _ = &worker;
            Ok(xs.into())
        }))
    });
    let batcher = batcher.expect("threads");
    assert_eq!(batcher.submit(1).await, Ok(1));
    drop(batcher);
    tokio::task::yield_now().await; // the pool hears of it
    for _ in 0..2 {
        drops.recv().expect("each thread lets its worker go");
    }
    assert!(drops.recv().is_err(), "and with the last of them what built them");
    let next = Batcher::builder(caps).pool(&pool).start_function(|xs: Vec<u64>| xs).expect("threads");
    assert_eq!(next.submit(1).await, Ok(1), "the threads go on");
}
