//! Requests that are asked for in parts, and what is foreseen of them.

use std::time::Duration;

use uncork_batcher::{Error, RefusalReason, Terms};
use uncork_core::policy::ShedReason;

use crate::notes::{Note, Notes};
use crate::stand_in::{StandIn, ms};

#[tokio::test(start_paused = true)]
async fn what_takes_longer_than_its_time_in_all_its_parts_is_refused_before_one_of_them_runs() {
    let (runner, notes) = (StandIn::new(ms(10), ms(1)), Notes::default());
    let start = |runners| {
        let builder = runner.builder(ms(50), 8).runners(runners).seen(runner.warm());
        builder.observer(notes.clone()).start(runner.clone())
    };
    // Eight rows take 18 ms: two such batches are in time, and not three.
    let alone = start(1);
    assert_eq!((alone.foresee(8, &Terms::now()), alone.foresee(16, &Terms::now())), (Ok(None), Ok(None)));
    let late = |predicted_ms, deadline_ms| Error::Late { predicted_ms, deadline_ms, retry_after: None };
    assert_eq!(alone.foresee(24, &Terms::now()), Err(late(54.0, 50.0)));
    assert_eq!(alone.foresee(10, &Terms::now().within(ms(20))), Err(late(30.0, 20.0)));
    // One a second goes on, and is told the same where it is late.
    tokio::time::sleep(ms(1000)).await;
    assert_eq!(alone.foresee(24, &Terms::now()), Ok(Some(late(54.0, 50.0))));
    assert_eq!(alone.foresee(24, &Terms::now()), Err(late(54.0, 50.0)));
    let [.., Note::Refused(RefusalReason::Shed(ShedReason::BatchTooLate), 1)] = notes.read()[..] else {
        panic!("{:?}", notes.read())
    };
    let two = start(2);
    assert_eq!(
        (two.foresee(32, &Terms::now()), two.foresee(33, &Terms::now())),
        (Ok(None), Ok(None)),
        "by two runners"
    );
    assert_eq!(two.foresee(41, &Terms::now()), Err(late(54.0, 50.0)));
}

#[tokio::test]
async fn a_request_of_any_number_of_rows_is_foreseen_at_once() {
    let runner = StandIn::new(ms(10), ms(1));
    let batcher = runner.builder(ms(50), 8).seen(runner.warm()).start(runner.clone());
    // By a thread of its own, which this one need not wait for.
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for rows in [8_000_000, usize::MAX] {
            // Nobody hears of it where the first has taken too long.
            let _ = tell.send(batcher.foresee(rows, &Terms::now()));
        }
    });
    let mut predicted = [0.0; 2];
    for predicted in &mut predicted {
        match told.recv_timeout(Duration::from_secs(10)) {
            Ok(Ok(Some(Error::Late { predicted_ms, .. })) | Err(Error::Late { predicted_ms, .. })) => {
                *predicted = predicted_ms;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(predicted[0].round(), 18_000_000.0, "a million batches of 18 ms");
    assert!(predicted[1] > 1e10, "{}", predicted[1]);
}

#[tokio::test(start_paused = true)]
async fn what_is_foreseen_by_an_estimate_that_is_not_true_any_more_is_answered_once_that_is_found_out() {
    let runner = StandIn::new(ms(10), ms(1));
    // As on a busy machine; in truth 18 ms.
    let seen = vec![(1, ms(24)), (8, ms(40)), (1, ms(24)), (8, ms(40)), (1, ms(24)), (8, ms(40))];
    let batcher = runner.builder(ms(50), 8).seen(seen).start(runner.clone());
    assert!(batcher.foresee(16, &Terms::now()).is_err());
    let mut let_through = 0;
    for _ in 0..1000 {
        // Whoever is let through asks for his parts.
        if batcher.foresee(16, &Terms::now()).is_ok() {
            let_through += 1;
            let parts = (0..16).map(|item| batcher.submit(item));
            futures_util::future::join_all(parts).await;
        }
        tokio::time::sleep(ms(20)).await;
    }
    assert!(let_through > 900, "{let_through} of 1000");
}
