//! What recording its metrics costs a request, in one run beside an empty loop.
//!
//! ```sh
//! cargo bench --bench recording
//! ```
//!
//! Each request is recorded as the server does it, and each batch of so many requests once.

use std::hint::black_box;
use std::time::{Duration, Instant};

use uncork::error::Outcome;
use uncork::metrics::{Limits, Metrics, ModelMetrics, Stage};
use uncork::policy::ReleaseReason;

const REQUESTS: usize = 1_000_000;
fn main() {
    let limits = Limits {
        max_latency_seconds: 0.037,
        max_batch_rows: 128,
        max_queue_rows: 16_384,
        max_queue_bytes: 1 << 28,
        runners: 1,
    };
    let metrics = Metrics::new(&[limits]);
    let model = metrics.model("m", "1", limits);
    println!("{:>20}{:>16}", "requests a batch", "ns a request");
    for batch in [1, 8, 64] {
        let begin = Instant::now();
        for i in 0..REQUESTS {
            let took = black_box(Duration::from_nanos(i as u64 * 37 % 40_000_000));
            record_request(&model, took);
            if i % batch == 0 {
                record_batch(&model, batch, took);
            }
        }
        println!("{batch:>20}{:>16.0}", begin.elapsed().as_nanos() as f64 / REQUESTS as f64);
    }
}

fn record_request(model: &ModelMetrics, took: Duration) {
    model.queue_wait.record(took);
    model.request_duration.record(took);
    model.record_stages([took; Stage::ALL.len()]);
    model.count_request(Outcome::Answered);
}

fn record_batch(model: &ModelMetrics, rows: usize, took: Duration) {
    model.count_release(ReleaseReason::Ripe);
    model.batch_size.record(rows as f64);
    model.batch_duration.record(took);
    model.predicted_batch_duration.record(took);
    model.batch_time_ratio.record(1.0);
    model.in_flight_batches.increment(1.0);
    model.in_flight_batches.decrement(1.0);
    model.runner_busy_seconds.increment(took.as_secs_f64());
    model.queue_rows.set(rows as f64);
    model.queue_bytes.set(rows as f64);
    model.request_elements.increment(rows as u64);
    model.show_estimate(0.001, 0.0001, 1.1, 1.7e9);
}
