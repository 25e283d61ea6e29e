//! What a refused caller is told.

use uncork_batcher::{Error, Terms};

use crate::stand_in::{StandIn, answered, ms, submit_at};

#[tokio::test(start_paused = true)]
async fn a_refusal_says_when_the_answer_would_have_come_and_when_to_come_back() {
    let runner = StandIn::new(ms(10), ms(1));
    let batcher = runner.builder(ms(100), 8).seen(runner.warm()).start(runner.clone());
    let served = tokio::spawn({
        let batcher = batcher.clone();
        async move { submit_at(&batcher, &[&[ms(0)][..], &[ms(1); 8]].concat()).await }
    });
    tokio::time::sleep(ms(2)).await;
    // The runner comes free 9 ms from now; a full batch then takes 18 ms.
    let refusal = batcher.submit_with(100, Terms::now().within(ms(15))).await.expect_err("there is no time");
    let Error::Late { predicted_ms, deadline_ms, retry_after } = refusal else { panic!("{refusal}") };
    assert!((27.0..28.5).contains(&predicted_ms), "{predicted_ms}");
    assert_eq!(deadline_ms, 15.0);
    assert!(retry_after.is_some_and(|wait| (ms(27)..ms(28)).contains(&wait)), "{retry_after:?}");
    assert_eq!(answered(&served.await.expect("no panic")), 9);
}

#[tokio::test(start_paused = true)]
async fn whoever_can_never_be_in_time_is_told_so() {
    let runner = StandIn::new(ms(10), ms(1));
    let batcher = runner.builder(ms(100), 8).seen(runner.warm()).start(runner.clone());
    let refusal = batcher.submit_with(100, Terms::now().within(ms(5))).await.expect_err("a batch takes 11 ms");
    assert_eq!(refusal.retry_after(), None);
    let text = refusal.to_string();
    assert!(text.contains("12.0 ms") && text.contains("5.0 ms") && !text.contains("retry in"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn each_of_a_crowd_that_is_too_large_is_told_when_its_own_batch_would_have_ended() {
    // Batches of at most 8 take 18 ms: three of them fit into 50 ms, the third with at most two rows.
    let runner = StandIn::new(ms(10), ms(1));
    let batcher = runner.builder(ms(50), 8).seen(runner.warm()).start(runner.clone());
    let callers = (0..40).map(|item| batcher.submit(item));
    let answers = futures_util::future::join_all(callers).await;
    let told = |item: usize| match &answers[item] {
        Err(Error::Late { predicted_ms, retry_after, .. }) => (predicted_ms.round(), *retry_after),
        answer => panic!("item {item}: {answer:?}"),
    };
    assert!(answers[..19].iter().all(Result::is_ok));
    // A millisecond of each is for the way back; what stands before it starts 18 ms a batch later.
    assert_eq!(told(19), (51.0, Some(ms(36))));
    assert_eq!(told(39), (91.0, Some(ms(72))));
}
