//! What is left of the goodput when more arrives than can be served.

use std::time::Duration;

use crate::stand_in::{Fate, StandIn, ms, submit_at};

/// Capacity 500 items a second: eight of them every 16 ms.
fn five_hundred_a_second() -> StandIn {
    StandIn::new(ms(2), Duration::from_micros(1750))
}

async fn overload(times_capacity: u64, seconds: u64) -> Vec<Fate> {
    let runner = five_hundred_a_second();
    let batcher = runner.builder(ms(50), 8).seen(runner.warm()).start(runner.clone());
    let rate = 500 * times_capacity;
    // A spread of ±80 % around even spacing, the same at every run.
    let jitter = |i: u64| (i * 2_654_435_761 % 1600) as f64 / 1000.0 - 0.8;
    let at = |i| Duration::from_secs_f64((i as f64 + 1.0 + jitter(i)) / rate as f64);
    let times: Vec<_> = (0..rate * seconds).map(at).collect();
    submit_at(&batcher, &times).await
}

#[tokio::test(start_paused = true)]
async fn at_twice_and_five_times_the_capacity_goodput_stays_at_the_capacity() {
    for times in [2, 5] {
        let fates = overload(times, 4).await;
        let on_time = fates.iter().filter(|f| f.answered && f.took <= ms(50)).count();
        assert!(on_time as f64 >= 0.97 * 2000.0, "at {times} times: {on_time} of 2000");
        let late: Vec<_> = fates.iter().filter(|f| f.answered && f.took > ms(50)).collect();
        assert_eq!(late, Vec::<&Fate>::new(), "at {times} times");
    }
}

#[tokio::test(start_paused = true)]
async fn most_refusals_come_at_once() {
    for times in [2, 5] {
        let mut waits: Vec<_> = overload(times, 4).await.iter().filter(|f| !f.answered).map(|f| f.took).collect();
        waits.sort();
        let median = waits[waits.len() / 2];
        assert!(median <= ms(2), "at {times} times: {median:?}");
    }
}
