//! Behaviours in virtual time: each runs in microseconds and the same way every time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;
use uncork_batcher::{Batcher, Caller, Caps, Error, Priority, RefusalReason, SpanRef, Terms};
use uncork_core::estimator;
use uncork_core::policy::{Decision, Policy, ReleaseReason, ShedReason, View};

use crate::notes::{Note, Notes};
use crate::stand_in::{StandIn, answered, ms, submit_at};

#[tokio::test(start_paused = true)]
async fn an_idle_batcher_releases_a_lone_item_at_once() {
    let runner = StandIn::new(ms(2), ms(0));
    let batcher = runner.start(ms(50), 128);
    for i in 0..100 {
        tokio::time::sleep(ms(20)).await;
        let answered = batcher.submit_with(i, Terms::now()).await.expect("answered");
        assert_eq!((answered.queue, answered.batch_rows), (Duration::ZERO, 1), "item {i}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_batch_exceeds_the_cap_and_no_more_run_at_once_than_there_are_runners() {
    for (runners, cap) in [(1, 7), (3, 16)] {
        let runner = StandIn::new(ms(3), Duration::from_micros(500));
        let batcher = runner.builder(ms(500), cap).runners(runners).start(runner.clone());
        let times: Vec<_> = (0..500).map(|i| Duration::from_micros(i * 173 % 40_000)).collect();
        assert_eq!(answered(&submit_at(&batcher, &times).await), 500);
        let batches = runner.batches();
        let largest = batches.iter().map(Vec::len).max();
        assert_eq!(largest, Some(cap), "under this load batches are full, and never more");
        assert_eq!(runner.log.lock().expect("unpoisoned").most_running, runners);
    }
}

#[tokio::test(start_paused = true)]
async fn first_come_is_first_served() {
    let runner = StandIn::new(ms(3), ms(1));
    let batcher = runner.start(ms(500), 8);
    let times: Vec<_> = (0..100).map(Duration::from_millis).collect();
    submit_at(&batcher, &times).await;
    let order: Vec<u64> = runner.batches().into_iter().flatten().collect();
    assert!(order.is_sorted(), "{order:?}");
}

#[tokio::test(start_paused = true)]
async fn a_departed_callers_item_never_runs() {
    let runner = StandIn::new(ms(10), ms(0));
    let batcher = runner.builder(ms(100), 8).max_queue_rows(1).start(runner.clone());
    let first = tokio::spawn({
        let batcher = batcher.clone();
        async move { batcher.submit(1).await }
    });
    tokio::time::sleep(ms(1)).await; // the runner is busy now
    let leaver = tokio::time::timeout(ms(2), batcher.submit(2)).await;
    assert!(leaver.is_err(), "it left before it was answered");
    tokio::time::sleep(ms(1)).await; // the batcher hears of it
    assert_eq!(batcher.submit(3).await, Ok(4));
    assert_eq!(first.await.expect("no panic"), Ok(2));
    assert_eq!(runner.batches(), [vec![1], vec![3]]);
}

#[tokio::test(start_paused = true)]
async fn a_hung_runner_does_not_hold_back_the_refusals_of_those_who_wait() {
    let runner = StandIn { hangs: 1, ..StandIn::new(ms(5), ms(0)) };
    let batcher = runner.builder(ms(50), 8).seen(runner.warm()).start(runner.clone());
    let hung = tokio::spawn({
        let batcher = batcher.clone();
        async move { batcher.submit(0).await }
    });
    tokio::time::sleep(ms(1)).await;
    let fates = submit_at(&batcher, &[ms(0), ms(3), ms(40), ms(200), ms(1000)]).await;
    for fate in &fates {
        assert!(!fate.answered && fate.took <= ms(50), "{fate:?}");
    }
    assert!(fates[4].took <= ms(1), "by then it is clear that the runner promises nothing: {:?}", fates[4]);
    hung.abort();
}

#[tokio::test(start_paused = true)]
async fn a_hung_runner_leaves_the_others_at_work() {
    let runner = StandIn { hangs: 1, ..StandIn::new(ms(5), ms(0)) };
    let batcher = runner.builder(ms(50), 8).runners(2).seen(runner.warm()).start(runner.clone());
    let hung = tokio::spawn({
        let batcher = batcher.clone();
        async move { batcher.submit(0).await }
    });
    tokio::time::sleep(ms(1)).await;
    let times: Vec<_> = (0..200).map(Duration::from_millis).collect();
    assert_eq!(answered(&submit_at(&batcher, &times).await), 200);
    hung.abort();
}

#[tokio::test(start_paused = true)]
async fn a_burst_after_quiet_is_not_refused_although_only_one_size_was_ever_seen() {
    // t(128) = 8.4 ms: two full batches fit into 50 ms with room to spare.
    let runner = StandIn::new(ms(2), Duration::from_micros(50));
    let batcher = runner.start(ms(50), 128);
    let lone = (0..200).map(|i| ms(i * 20));
    let burst = (0..256).map(|_| ms(200 * 20));
    let fates = submit_at(&batcher, &lone.chain(burst).collect::<Vec<_>>()).await;
    assert_eq!(answered(&fates), fates.len());
    assert!(fates.iter().all(|f| f.took <= ms(50)), "{:?}", fates.iter().map(|f| f.took).max());
}

#[tokio::test(start_paused = true)]
async fn a_first_batch_of_twenty_times_its_due_refuses_nobody_who_can_be_served() {
    let runner = StandIn { slow: (ms(0)..ms(1), 20), ..StandIn::new(ms(2), Duration::from_micros(50)) };
    let batcher = runner.start(ms(50), 128);
    // The first batch takes 41 ms; what comes meanwhile rides in the second.
    let times: Vec<_> = (0..100).map(|i| Duration::from_micros(i * 500)).collect();
    let fates = submit_at(&batcher, &times).await;
    let late: Vec<_> = fates.iter().filter(|f| f.answered && f.took > ms(50)).collect();
    assert_eq!((answered(&fates), late.len()), (100, 0), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stall_by_which_everything_would_be_late_is_forgotten_once_it_is_over() {
    // For two seconds, batches take 40 times their due: 82 ms and more against a cap of 50.
    let runner = StandIn { slow: (ms(1000)..ms(3000), 40), ..StandIn::new(ms(2), Duration::from_micros(50)) };
    let batcher = runner.builder(ms(50), 128).seen(runner.warm()).start(runner.clone());
    let times: Vec<_> = (0..10_000).map(Duration::from_millis).collect();
    let fates = submit_at(&batcher, &times).await;
    let lost = |range: std::ops::Range<usize>| fates[range].iter().filter(|f| !f.answered || f.took > ms(50)).count();
    assert_eq!(lost(0..990), 0, "before the stall");
    assert!(lost(1000..3000) > 1900, "the stall is one");
    assert!(lost(3000..4000) < 500, "{} ms until it was forgotten", lost(3000..4000));
    assert_eq!(lost(4000..10_000), 0, "long after it");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_heard_of_late_does_not_look_slow() {
    let runner = StandIn { heard_after: ms(30), ..StandIn::new(ms(10), ms(0)) };
    let notes = Notes::default();
    let batcher = runner.builder(ms(500), 8).observer(notes.clone()).start(runner.clone());
    for item in 0..8 {
        let answered = batcher.submit_with(item, Terms::now()).await.expect("answered");
        assert_eq!(answered.batch, ms(10));
    }
    let notes = notes.read();
    let Some(Note::Learned(fit)) = notes.last() else { panic!("{notes:?}") };
    assert_eq!(fit.predict(1), Some(ms(10)));
}

#[tokio::test(start_paused = true)]
async fn a_more_urgent_priority_goes_first_though_it_came_last_and_is_due_last() {
    let runner = StandIn::new(ms(10), ms(1));
    let batcher = runner.builder(ms(100), 2).seen(runner.warm()).start(runner.clone());
    let submit = |item, priority| {
        let batcher = batcher.clone();
        tokio::spawn(async move { batcher.submit_with(item, Terms::now().priority(priority)).await })
    };
    let running = submit(0, Priority::DEFAULT);
    tokio::time::sleep(ms(1)).await;
    let others = [1, 2, 3].map(|item| submit(item, Priority::DEFAULT));
    tokio::time::sleep(ms(1)).await;
    let urgent = submit(100, Priority::HIGHEST);
    for answer in [running, urgent].into_iter().chain(others) {
        answer.await.expect("no panic").expect("answered");
    }
    assert_eq!(runner.batches()[1..], [vec![100, 1], vec![2, 3]]);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_more_urgent_than_he_may_be() {
    let runner = StandIn::new(ms(10), ms(1));
    let batcher = runner.builder(ms(100), 2).seen(runner.warm()).start(runner.clone());
    let bound = Caller { most_urgent: Priority::DEFAULT, ..Caller::default() };
    let submit = |item, terms: Terms| {
        let batcher = batcher.clone();
        tokio::spawn(async move { batcher.submit_with(item, terms).await })
    };
    let running = submit(0, Terms::now());
    tokio::time::sleep(ms(1)).await;
    let others = [1, 2].map(|item| submit(item, Terms::now()));
    tokio::time::sleep(ms(1)).await;
    let pushing = submit(100, Terms::now().priority(Priority::HIGHEST).caller(bound));
    let standing_back = submit(200, Terms::now().priority(Priority::LOWEST).caller(bound));
    for answer in [running, pushing, standing_back].into_iter().chain(others) {
        answer.await.expect("no panic").expect("answered");
    }
    assert_eq!(runner.batches()[1..], [vec![1, 2], vec![100, 200]]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_little_in_the_queue_is_served_and_whoever_has_most_makes_room() {
    let runner = StandIn::new(ms(10), ms(1));
    let batcher = runner.builder(ms(50), 2).seen(runner.warm()).start(runner.clone());
    let submit = |item, id| {
        let (batcher, caller) = (batcher.clone(), Caller { id, ..Caller::default() });
        tokio::spawn(async move { batcher.submit_with(item, Terms::now().caller(caller)).await })
    };
    let many: Vec<_> = (0..20).map(|item| submit(item, 1)).collect();
    tokio::time::sleep(ms(1)).await;
    let few = submit(100, 2);
    few.await.expect("no panic").expect("answered");
    let mut made_room = Vec::new();
    for outcome in many {
        made_room.extend(outcome.await.expect("no panic").err().filter(|why| matches!(why, Error::OverShare { .. })));
    }
    assert_eq!(made_room.len(), 1, "one for one");
    assert!(made_room[0].to_string().contains("callers who take less go before; retry in"), "{}", made_room[0]);
    assert!(made_room[0].retry_after() > Some(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_caller_in_a_hurry_is_served_first_or_refused_without_shrinking_the_others_batch() {
    let runner = StandIn::new(ms(10), ms(1));
    let batcher = runner.builder(ms(100), 8).seen(runner.warm()).start(runner.clone());
    let running = tokio::spawn({
        let batcher = batcher.clone();
        async move { batcher.submit(0).await }
    });
    tokio::time::sleep(ms(1)).await;
    let patient = tokio::spawn({
        let batcher = batcher.clone();
        async move { submit_at(&batcher, &[ms(0); 6]).await }
    });
    tokio::time::sleep(ms(1)).await;
    // The runner comes free 9 ms from now; a batch of seven then takes 17 ms, one of one 11 ms.
    let soon = batcher.submit_with(100, Terms::now().within(ms(40))).await.expect("there is time");
    assert_eq!(soon.batch_rows, 7);
    assert_eq!(answered(&patient.await.expect("no panic")), 6);
    assert_eq!(runner.batches()[1][0], 100, "the most urgent is first");
    let asked = Instant::now();
    let refusal = batcher
        .submit_with(101, Terms::since(asked).within(ms(5)))
        .await
        .expect_err("not even a batch of one is in time");
    assert!(matches!(refusal, Error::Late { deadline_ms, .. } if deadline_ms == 5.0), "{refusal}");
    assert_eq!(asked.elapsed(), Duration::ZERO, "refused at once");
    running.await.expect("no panic").expect("answered");
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_into_the_queue_is_refused_at_once_and_the_rest_is_served() {
    let runner = StandIn::new(ms(10), ms(0));
    let batcher = runner.builder(ms(10_000), 8).max_queue_rows(20).start(runner.clone());
    let fates = submit_at(&batcher, &[ms(0); 100]).await;
    assert!((20..=28).contains(&answered(&fates)), "{}", answered(&fates));
    assert!(fates.iter().all(|f| f.answered || f.took == Duration::ZERO));
    assert_eq!(batcher.submit(7).await, Ok(8), "room was given back");
}

#[tokio::test(start_paused = true)]
async fn the_room_of_a_queue_is_shared_by_callers_who_are_told_apart() {
    let runner = StandIn::new(ms(10), ms(0));
    let notes = Notes::default();
    let builder = runner.builder(ms(10_000), 8).max_queue_rows(20).observer(notes.clone());
    let batcher = builder.start(runner.clone());
    let submit = |item, id| {
        let (batcher, caller) = (batcher.clone(), Caller { id, ..Caller::default() });
        tokio::spawn(async move { batcher.submit_with(item, Terms::now().caller(caller)).await })
    };
    let running = submit(0, 1);
    tokio::time::sleep(ms(1)).await;
    // There is time for all, but no room.
    let flood: Vec<_> = (1..100).map(|item| submit(item, 1)).collect();
    tokio::time::sleep(ms(1)).await;
    assert_eq!(batcher.waits().rows, 20);
    let few: Vec<_> = (100..110).map(|item| submit(item, 2)).collect();
    tokio::time::sleep(ms(1)).await;
    assert_eq!(batcher.waits().rows, 20);
    for answer in few {
        answer.await.expect("no panic").expect("answered");
    }
    running.await.expect("no panic").expect("answered");
    let (mut made_room, mut full, mut served) = (0, 0, 0);
    for outcome in flood {
        match outcome.await.expect("no panic") {
            Ok(_) => served += 1,
            Err(Error::OverShare { retry_after }) => made_room += usize::from(retry_after == ms(10_000)),
            Err(Error::Full { queued: 20, bound: 20, unit: "rows", .. }) => full += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!((made_room, full, served), (10, 79, 10), "one for one");
    let told = |reason| {
        let of_that = |note: &Note| matches!(note, Note::Refused(other, 1) if *other == reason);
        notes.read().iter().filter(|note| of_that(note)).count()
    };
    let over_share = RefusalReason::Shed(ShedReason::OverShare);
    assert_eq!((told(over_share), told(RefusalReason::RowsBound)), (10, full));
    // Whoever came first keeps his place, whatever is on its way behind him.
    let running = submit(0, 1);
    tokio::time::sleep(ms(1)).await;
    let first = submit(100, 2);
    let flood: Vec<_> = (1..100).map(|item| submit(item, 1)).collect();
    first.await.expect("no panic").expect("answered");
    let mut answered_of_flood = Vec::new();
    for (item, outcome) in flood.into_iter().enumerate() {
        answered_of_flood.extend(outcome.await.expect("no panic").ok().map(|_| item));
    }
    assert_eq!(answered_of_flood, (0..19).collect::<Vec<_>>());
    running.await.expect("no panic").expect("answered");
    // Who is not told apart has no leeway.
    let fates = submit_at(&batcher, &[ms(0); 100]).await;
    assert!((20..=28).contains(&answered(&fates)), "{}", answered(&fates));
}

#[tokio::test(start_paused = true)]
async fn items_wait_for_room_in_their_order_where_that_is_wished_for_until_their_time_is_over() {
    let runner = StandIn::new(ms(10), ms(0));
    let patient = |cap| runner.builder(cap, 8).max_queue_rows(20).waiting_for_room().start(runner.clone());
    let batcher = patient(ms(10_000));
    assert_eq!(answered(&submit_at(&batcher, &[ms(0); 100]).await), 100);
    let order: Vec<u64> = runner.batches().into_iter().flatten().collect();
    assert!(order.len() == 100 && order.is_sorted(), "{order:?}");
    // Who leaves, leaves the room to others; who is there at the end is told so.
    let waiting: Vec<_> = (0..40)
        .map(|i| {
            let batcher = batcher.clone();
            tokio::spawn(async move { batcher.submit(i).await })
        })
        .collect();
    tokio::time::sleep(ms(1)).await;
    waiting[30].abort();
    batcher.drain().await;
    let mut fates = Vec::new();
    for waiting in waiting {
        fates.push(waiting.await.ok());
    }
    let is_told = |fate: &Option<Result<u64, Error>>| matches!(fate, Some(Ok(_) | Err(Error::ShuttingDown)));
    assert!(fates[..20].iter().all(|fate| matches!(fate, Some(Ok(_)))), "{fates:?}");
    assert!(fates[30].is_none() && fates[31..].iter().all(is_told), "{fates:?}");

    let hurried = patient(ms(35));
    let fates = submit_at(&hurried, &[ms(0); 100]).await;
    assert!(answered(&fates) > 20, "{}", answered(&fates));
    assert!(fates.iter().all(|fate| fate.took <= ms(35)), "{:?}", fates.iter().map(|fate| fate.took).max());
}

#[tokio::test(start_paused = true)]
async fn an_item_of_more_rows_than_a_batch_holds_is_refused_with_the_numbers() {
    let runner = StandIn::new(ms(1), ms(0));
    let weigh = |&rows: &u64| uncork_batcher::Weight { rows: rows as usize, bytes: 8 };
    let batcher = runner.builder(ms(50), 8).weigh(weigh).start(runner.clone());
    assert_eq!(batcher.submit(9).await, Err(Error::TooLarge { size: 9, bound: 8, unit: "rows" }));
    assert_eq!(batcher.submit(8).await, Ok(9));
    let nothing = batcher.submit_with(0, Terms::now()).await.expect("answered");
    assert_eq!(nothing.batch_rows, 1, "an item counts one row at least");
}

#[tokio::test(start_paused = true)]
async fn without_a_cap_on_rows_it_batches_as_with_one_that_is_never_reached() {
    let mut batches = Vec::new();
    for cap in [1 << 20, usize::MAX - 1, usize::MAX] {
        let runner = StandIn::new(ms(2), Duration::from_micros(20));
        let batcher = runner.start(ms(500), cap);
        for round in 0..40 {
            let now = vec![ms(0); 1 + round % 7 * 13];
            assert_eq!(answered(&submit_at(&batcher, &now).await), now.len(), "round {round} under {cap}");
        }
        assert!(runner.batches().iter().any(|batch| batch.len() > 50), "under {cap}: {:?}", runner.batches());
        batches.push(runner.batches());
    }
    assert!(batches.iter().all(|others| *others == batches[0]));
    // Where sizes are tried first, they grow as well.
    let runner = StandIn::new(ms(2), Duration::from_micros(20));
    let seen = vec![(1, runner.time(1)), (2, runner.time(2))];
    let batcher = runner.builder(ms(100), usize::MAX).seen(seen).rehearsing(2).start(runner.clone());
    tokio::time::sleep(ms(10_000)).await;
    assert!((100..10_000).contains(&batcher.most_rows()), "{}", batcher.most_rows());
}

#[tokio::test(start_paused = true)]
async fn draining_answers_all_that_wait_and_refuses_what_comes_later() {
    let runner = StandIn::new(ms(10), ms(1));
    let batcher = runner.start(ms(500), 8);
    let waiting = tokio::spawn({
        let batcher = batcher.clone();
        async move { submit_at(&batcher, &[ms(0); 50]).await }
    });
    tokio::time::sleep(ms(1)).await;
    batcher.drain().await;
    assert_eq!(runner.log.lock().expect("unpoisoned").running, 0, "the last batch is waited for");
    assert_eq!(runner.batches().concat().len(), 50);
    assert_eq!(batcher.submit(1).await, Err(Error::ShuttingDown));
    assert_eq!(answered(&waiting.await.expect("no panic")), 50);
}

#[tokio::test(start_paused = true)]
async fn clients_in_lockstep_are_not_split_into_one_and_the_rest_for_ever() {
    // All answers of a batch return at once, so do the next requests. An eager server would send the first one alone.
    let runner = StandIn::new(ms(10), Duration::from_micros(100));
    let batcher = runner.start(ms(500), 128);
    let clients = 16;
    let rounds = 200;
    let start = Instant::now();
    let tasks: Vec<_> = (0..clients)
        .map(|i| {
            let batcher = batcher.clone();
            tokio::spawn(async move {
                for _ in 0..rounds {
                    batcher.submit(i).await.expect("answered");
                    tokio::time::sleep(Duration::from_micros(1000 + i * 10)).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    let ideal = (runner.time(clients as usize) + ms(1)) * rounds;
    let ratio = start.elapsed().as_secs_f64() / ideal.as_secs_f64();
    assert!(ratio < 1.25, "took {ratio:.2} times as long as with full batches");
}

#[tokio::test(start_paused = true)]
async fn a_crowd_that_leaves_at_once_never_runs() {
    let runner = StandIn::new(ms(10), ms(0));
    let batcher = runner.start(ms(100), 8);
    let mut crowd: Vec<_> = (0..1000).map(|i| Box::pin(batcher.submit(i))).collect();
    assert!(crowd.iter_mut().all(|caller| caller.now_or_never().is_none()), "the batcher had no time to answer");
    drop(crowd);
    // It hears first of so many arrivals that the departures are for another time.
    assert_eq!(batcher.submit(7).await, Ok(8));
    assert_eq!(runner.batches(), [vec![7]]);
}

#[tokio::test(start_paused = true)]
async fn the_cap_and_the_number_of_runners_hold_whatever_the_policy_says() {
    /// Releases so many entries whenever something waits, runners or not.
    struct Always(usize);
    impl Policy for Always {
        fn decide(&self, _: estimator::Instant, view: View<'_>) -> Decision {
            let release = Decision::Release { entries: self.0, reason: ReleaseReason::Ripe };
            if view.queue.is_empty() { Decision::Park } else { release }
        }
    }
    for (entries, largest) in [(usize::MAX, 8), (0, 1)] {
        let runner = StandIn::new(ms(10), ms(0));
        let batcher = runner.builder(ms(1000), 8).runners(2).policy(Always(entries)).start(runner.clone());
        assert_eq!(answered(&submit_at(&batcher, &[ms(0); 50]).await), 50);
        assert_eq!(runner.batches().iter().map(Vec::len).max(), Some(largest));
        assert_eq!(runner.log.lock().expect("unpoisoned").most_running, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_batch_is_with_its_runner_before_the_answers_of_the_last_go_out() {
    /// Remembers how many batches had been released when it was woken.
    struct Bell(StandIn, AtomicUsize);
    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.1.store(self.0.batches().len(), Ordering::Relaxed);
        }
    }
    let runner = StandIn::new(ms(10), ms(0));
    let batcher = runner.start(ms(100), 1);
    let bell = Arc::new(Bell(runner.clone(), AtomicUsize::new(0)));
    let mut first = Box::pin(batcher.submit(1));
    let second = batcher.submit(2);
    assert!(first.poll_unpin(&mut Context::from_waker(&Waker::from(Arc::clone(&bell)))).is_pending());
    assert_eq!(second.await, Ok(3));
    assert_eq!(first.await, Ok(2));
    assert_eq!(bell.1.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn the_latency_cap_keeps_a_millisecond_for_the_way_back_and_no_timeout_lengthens_it() {
    for (base, in_time) in [(Duration::from_micros(48_500), true), (Duration::from_micros(49_500), false)] {
        let runner = StandIn::new(base, ms(0));
        let batcher = runner.builder(ms(50), 8).seen(runner.warm()).start(runner.clone());
        match batcher.submit_with(1, Terms::now().within(ms(5000))).await {
            Ok(_) => assert!(in_time, "{base:?}"),
            Err(refusal) => {
                assert!(!in_time, "{base:?}: {refusal}");
                assert!(matches!(refusal, Error::Late { deadline_ms, .. } if deadline_ms == 50.0), "{refusal}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn observers_hear_of_every_batch_and_refusal_and_a_batchs_span_goes_back_to_its_callers() {
    let runner = StandIn::new(ms(10), ms(0));
    let (first, second) = (Notes::default(), Notes::default());
    let builder = runner.builder(ms(100), 2).max_queue_rows(1).observer(first.clone()).observer(second.clone());
    let batcher = builder.start(runner.clone());
    let span = SpanRef { trace: 7, span: 1 };
    let traced = batcher.submit_with(1, Terms::now().traced(Some(span))).await.expect("answered");
    assert_eq!(traced.batch_span, Some(SpanRef { span: 1000, ..span }), "the batch's, not its own");
    let plain = batcher.submit_with(2, Terms::now()).await.expect("answered");
    assert_eq!(plain.batch_span, None);
    let weigh = submit_at(&batcher, &[ms(0); 2]).await;
    assert_eq!(answered(&weigh), 1, "one row may wait");
    let notes: Vec<_> = first.read().into_iter().filter(|note| !matches!(note, Note::Learned(_))).collect();
    let landed = |ticket, span| Note::Landed(ticket, ms(10), span, true);
    assert_eq!(
        notes,
        [
            Note::Released(0, 1, 1, None),
            landed(0, traced.batch_span),
            Note::Released(1, 1, 1, Some(ms(10))),
            landed(1, None),
            Note::Refused(RefusalReason::RowsBound, 1),
            Note::Released(2, 1, 1, Some(ms(10))),
            landed(2, None),
        ]
    );
    assert_eq!(first.read(), second.read());
}

#[tokio::test(start_paused = true)]
async fn the_actor_ends_with_the_last_handle_once_what_runs_has_come_back() {
    let runner = StandIn::new(ms(10), ms(0));
    let batcher = runner.start(ms(100), 1);
    for i in 0..3 {
        let caller = batcher.clone();
        tokio::spawn(async move { tokio::time::timeout(ms(5), caller.submit(i)).await });
    }
    tokio::time::sleep(ms(1)).await;
    drop(batcher);
    tokio::time::sleep(ms(6)).await;
    assert_eq!(runner.batches(), [[0]], "the others left before their turn");
    assert!(Arc::strong_count(&runner.log) > 1, "the batch still runs");
    tokio::time::sleep(ms(10)).await;
    assert_eq!(Arc::strong_count(&runner.log), 1, "the actor and its executor are gone");
}

#[test]
fn a_batcher_in_a_runtime_without_time_or_in_none_is_a_panic_at_once_and_not_one_of_its_task_later() {
    let start = || std::panic::catch_unwind(|| drop(Batcher::new(Caps::new(ms(50), 8), |xs: Vec<u64>| xs)));
    let without_time = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    assert!(without_time.block_on(async { start() }).is_err(), "without time");
    assert!(start().is_err(), "outside of any");
}

#[test]
fn whoever_asks_behind_the_end_of_a_batcher_s_runtime_is_told_of_a_shutdown_and_the_batcher_says_that_it_is_gone() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let first = runtime();
    let runner = StandIn::new(ms(1), ms(0));
    let batcher = first.block_on(async { runner.start(ms(100), 8) });
    assert_eq!((first.block_on(batcher.submit(1)), batcher.is_gone()), (Ok(2), false));
    drop(first);
    assert_eq!((runtime().block_on(batcher.submit(1)), batcher.is_gone()), (Err(Error::ShuttingDown), true));
}
