//! What recording its metrics costs a request, in one run beside an empty loop.
//!
//! ```sh
//! cargo bench --bench recording
//! ```
//!
//! Each request is recorded as the server does it, and each batch of so many requests once.

use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use uncork::batcher::estimator::{Fit, Instant};
use uncork::batcher::policy::ReleaseReason;
use uncork::batcher::{Landed, Learned, Observer, Released, Rider, Waits};
use uncork::error::Outcome;
use uncork::metrics::{Limits, Metrics, ModelMetrics, Stage};

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
        let riders = vec![Rider { arrival: Instant::EPOCH, span: None }; batch];
        let begin = Clock::now();
        for i in 0..REQUESTS {
            let took = black_box(Duration::from_nanos(i as u64 * 37 % 40_000_000));
            record_request(&model, took);
            if i % batch == 0 {
                record_batch(&model, &riders, took);
            }
        }
        println!("{batch:>20}{:>16.0}", begin.elapsed().as_nanos() as f64 / REQUESTS as f64);
    }
}

fn record_request(model: &ModelMetrics, took: Duration) {
    model.record_request(took, None);
    model.record_stages([took; Stage::ALL.len()]);
    model.count_request(Outcome::OnTime);
}

/// What a batcher tells of one batch.
fn record_batch(model: &ModelMetrics, riders: &[Rider], took: Duration) {
    let (at, rows, held, predicted) = (Instant::EPOCH + took, riders.len(), Duration::ZERO, Some(took));
    let reason = ReleaseReason::Ripe;
    model.released(at, &Released { ticket: 0, riders, rows, reason, held, predicted });
    model.landed(at, &Landed { ticket: 0, riders, rows, predicted, took, span: None, failed: None });
    model.learned(at, &Learned { rows, took, fit: Fit::line(0.001, 0.0001, 1.1) });
    model.waits(at, Waits { rows, max_rows: rows, bytes: rows, max_bytes: rows });
    model.request_elements.increment(rows as u64);
}
