//! What the metrics and the journal make of what a batcher tells, in virtual time.

#[path = "../../crates/batcher/tests/batcher/stand_in.rs"]
#[allow(dead_code, reason = "its other parts are for the batcher's own tests")]
mod stand_in;

use std::time::Duration;

use uncork::batcher::policy::Fixed;
use uncork::batcher::{Batcher, Pool, RefusalReason, Terms};
use uncork::error::Shed;
use uncork::journal::{Journal, Release, Window};
use uncork::metrics::{Limits, Metrics};

use stand_in::{StandIn, answered, ms, submit_at};

fn limits(max_latency_seconds: f64, max_batch_rows: usize) -> Limits {
    Limits { max_latency_seconds, max_batch_rows, max_queue_rows: 1024, max_queue_bytes: 1 << 20, runners: 1 }
}

#[tokio::test(start_paused = true)]
async fn what_ran_is_recorded_once() {
    let caps = limits(0.1, 2);
    let metrics = Metrics::new(&[caps]);
    let runner = StandIn::new(ms(10), ms(1));
    let builder = runner.builder(ms(100), 2).seen(runner.warm()).observer(metrics.model("m", "1", caps));
    let batcher = builder.start(runner.clone());
    // One alone takes 11 ms; four that come after 1 ms take 12 ms in pairs, which wait for 10 and for 22 ms.
    let others = tokio::spawn({
        let batcher = batcher.clone();
        async move { submit_at(&batcher, &[ms(1); 3]).await }
    });
    let pressing = tokio::spawn({
        let batcher = batcher.clone();
        async move {
            tokio::time::sleep(ms(1)).await;
            batcher.submit_with(0, Terms::now().within(ms(90))).await.expect("answered")
        }
    });
    let first = batcher.submit_with(0, Terms::now()).await.expect("answered");
    assert_eq!((first.queue, first.batch, first.batch_rows), (ms(0), ms(11), 1));
    let pressing = pressing.await.expect("no panic");
    assert_eq!((pressing.queue, pressing.batch, pressing.batch_rows), (ms(10), ms(12), 2));
    assert_eq!(answered(&others.await.expect("no panic")), 3);
    let text = metrics.render();
    for (metric, label, expected) in [
        ("uncork_adaptive_batch_size_count", "", 3.0),
        ("uncork_adaptive_batch_size_sum", "", 5.0),
        ("uncork_releases_total", ",reason=\"ripe\"", 1.0),
        ("uncork_releases_total", ",reason=\"full\"", 2.0),
        ("uncork_queue_wait_seconds_sum", "", 0.064),
        ("uncork_batch_duration_seconds_sum", "", 0.035),
        ("uncork_predicted_batch_duration_seconds_sum", "", 0.035),
        ("uncork_runner_busy_seconds_total", "", 0.035),
        ("uncork_in_flight_batches", "", 0.0),
        ("uncork_queue_rows", "", 0.0),
        ("uncork_queue_bytes", "", 0.0),
        ("uncork_batch_time_ratio_sum", "", 3.0),
        ("uncork_estimate_base_seconds", "", 0.010),
        ("uncork_estimate_per_row_seconds", "", 0.001),
        ("uncork_sheds_total", ",reason=\"batch_too_late\"", 0.0),
    ] {
        let series = format!("{metric}{{model=\"m\",version=\"1\"{label}}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&series)).and_then(|v| v.parse::<f64>().ok());
        assert!(value.is_some_and(|v| (v - expected).abs() < 1e-6), "{series}is {value:?} instead of {expected}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_happened_to_the_latest_batches_and_refusals_can_be_told() {
    let runner = StandIn::new(ms(10), ms(1));
    // Two rows, or 5 ms after the first.
    let policy = Fixed::new(ms(5), 2);
    let builder = runner.builder(ms(100), 2).seen(runner.warm()).policy(policy).max_queue_rows(3);
    let journal = Journal::new(ms(100), 2);
    let batcher = builder.observer(journal.clone()).start(runner.clone());
    let snapshot = |batcher: &Batcher<u64, u64>| journal.snapshot(batcher.now(), batcher.waits(), Window::TwoMinutes);
    let told = snapshot(&batcher);
    let (fit, _) = told.estimate.expect("the warm-up is known");
    assert!((fit.base_seconds() - 0.010).abs() < 1e-6 && told.samples.len() == runner.warm().len());
    assert!(told.releases.is_empty() && told.refusals.is_empty());
    batcher.submit(1).await.expect("answered");
    let crowd = submit_at(&batcher, &[ms(0); 4]).await;
    assert_eq!(answered(&crowd), 3, "a fourth finds the queue full");
    let told = snapshot(&batcher);
    let of = |release: &Release| (release.rows, release.held, release.predicted, release.took);
    let releases: Vec<_> = told.releases.iter().map(|(_, release)| of(release)).collect();
    let (two, one) = ((2, ms(0), Some(ms(12)), Some(ms(12))), (1, ms(5), Some(ms(11)), Some(ms(11))));
    assert_eq!(releases[1..], [two, one]);
    let [(_, refusal)] = &told.refusals[..] else { panic!("{:?}", told.refusals) };
    assert_eq!((refusal.reason, refusal.requests), (Shed::Batcher(RefusalReason::RowsBound), 1));
    assert_eq!((told.queue.rows, told.in_flight), (0, 0));
    assert_eq!(told.columns.iter().map(|c| c.on_time).sum::<u32>(), 4);
    assert_eq!(told.columns.iter().map(|c| c.refused).sum::<u32>(), 1);
    assert_eq!(told.columns.iter().map(|c| c.busy).sum::<Duration>(), releases.iter().filter_map(|r| r.3).sum());
}

#[tokio::test(start_paused = true)]
async fn each_batcher_of_a_pool_has_metrics_of_its_own() {
    let caps = limits(0.05, 128);
    let metrics = Metrics::new(&[caps]);
    let pool: Pool<u64, u64> = Pool::new("device", 1);
    let runner = StandIn::new(ms(10), ms(0));
    let mut batchers = Vec::new();
    for (name, items) in [("a", 1), ("b", 2)] {
        let builder = runner.builder(ms(50), 1).pool(&pool).observer(metrics.model(name, "1", caps));
        let batcher = builder.start(runner.clone());
        for i in 0..items {
            assert_eq!(batcher.submit(i).await, Ok(i + 1));
        }
        batchers.push(batcher);
    }
    let text = metrics.render();
    for line in [
        "uncork_adaptive_batch_size_count{model=\"a\",version=\"1\"} 1",
        "uncork_adaptive_batch_size_count{model=\"b\",version=\"1\"} 2",
        "uncork_in_flight_batches{model=\"b\",version=\"1\"} 0",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}
