//! What a scrape shows, and when.

use super::*;

fn limits(ms: f64, rows: usize) -> Limits {
    let max_latency_seconds = ms / 1000.0;
    Limits { max_latency_seconds, max_batch_rows: rows, max_queue_rows: 64, max_queue_bytes: 1 << 20, runners: 2 }
}

#[test]
fn a_model_s_series_go_with_it_and_those_of_others_stay_below_one_head() {
    let metrics = Metrics::new(&[limits(50.0, 16)]);
    let one = metrics.model("one", "1", limits(50.0, 16));
    let two = metrics.model("two", "1", limits(20.0, 100));
    for model in [&one, &two, &one.clone()] {
        model.count_request(Outcome::OnTime);
    }
    let series = |text: &str, model: &str| text.matches(&format!("model=\"{model}\"")).count();
    let both = metrics.render();
    assert!(series(&both, "one") > 50 && series(&both, "two") > 50);
    assert_eq!(both.matches("# TYPE uncork_requests_total counter").count(), 1);
    assert!(both.contains(r#"uncork_batch_duration_seconds_bucket{model="two",version="1",le="0.02"} 0"#));
    drop(two);
    let left = metrics.render();
    assert_eq!((series(&left, "one"), series(&left, "two")), (series(&both, "one"), 0));
    assert!(left.contains(r#"uncork_requests_total{model="one",version="1",outcome="on_time"} 2"#));
}

#[test]
fn the_caps_are_exact_edges() {
    let metrics = Metrics::new(&[limits(37.0, 100), limits(50.0, 16)]);
    let model = metrics.model("m", "1", limits(37.0, 100));
    model.record_request(Duration::from_millis(37), None);
    model.queue_wait.record(0.0185);
    model.batch_duration.record(0.074);
    model.predicted_batch_duration.record(0.1);
    model.batch_size.record(100.0);
    let text = metrics.render();
    for line in [
        r#"uncork_request_duration_seconds_bucket{model="m",version="1",le="0.037"} 1"#,
        r#"uncork_queue_wait_seconds_bucket{model="m",version="1",le="0.0185"} 1"#,
        r#"uncork_batch_duration_seconds_bucket{model="m",version="1",le="0.074"} 1"#,
        r#"uncork_predicted_batch_duration_seconds_bucket{model="m",version="1",le="0.1"} 1"#,
        r#"uncork_adaptive_batch_size_bucket{model="m",version="1",le="100"} 1"#,
        r#"uncork_adaptive_batch_size_bucket{model="m",version="1",le="64"} 0"#,
        r#"uncork_max_latency_seconds{model="m",version="1"} 0.037"#,
        r#"uncork_requests_total{model="m",version="1",outcome="shed"} 0"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
fn busy_seconds_are_a_counter_to_prometheus() {
    let metrics = Metrics::new(&[limits(50.0, 16)]);
    let model = metrics.model("m", "1", limits(50.0, 16));
    model.runner_busy_seconds.increment(0.25);
    let text = metrics.render();
    assert!(text.contains("# TYPE uncork_runner_busy_seconds_total counter"), "{text}");
    assert!(text.contains(r#"uncork_runner_busy_seconds_total{model="m",version="1"} 0.25"#), "{text}");
}
