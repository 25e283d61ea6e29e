//! `GET /status`: what the server is doing, for the page at `/`. Times are in the unit that the key's ending names.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::StatusCode;
use http::header::{CACHE_CONTROL, HeaderValue};
use serde::Serialize;

use super::app::{App, json_bytes, json_text};
use super::status::Refusal;
use crate::estimator::Fit;
use crate::registry::{Model, Registry, Snapshot, Window};

#[derive(Serialize)]
struct Overview<'a> {
    server: About,
    models: Vec<Service<'a>>,
}

#[derive(Serialize)]
struct About {
    version: &'static str,
    uptime_s: f64,
    ready: bool,
    /// Whether inference is asked for at other addresses.
    for_operators: bool,
}

#[derive(Serialize)]
struct Service<'a> {
    name: &'a str,
    version: &'a str,
    platform: &'a str,
    max_latency_ms: f64,
    max_batch_size: usize,
    runners: usize,
    /// Whether it gets copies of requests, and answers nobody.
    shadow: bool,
    /// Why it does not answer at present.
    stuck: Option<String>,
    /// Why it cannot keep its latency cap.
    warning: Option<&'a str>,
    queue: Waits,
    in_flight: usize,
    /// `null` before the first batch.
    estimate: Option<Estimate>,
    /// Requests since the start, by outcome.
    totals: BTreeMap<&'static str, u64>,
    batch_edges: Vec<usize>,
    latency_edges_ms: Vec<f64>,
    history: History,
    /// The newest first.
    releases: Vec<ReleaseShown>,
    /// The newest first.
    refusals: Vec<RefusalShown>,
}

#[derive(Serialize)]
struct Waits {
    rows: usize,
    max_rows: usize,
    bytes: usize,
    max_bytes: usize,
}

#[derive(Serialize)]
struct Estimate {
    base_ms: f64,
    per_row_ms: f64,
    noise: f64,
    trusted: bool,
    age_s: f64,
    /// Rows of the smallest and the largest batch that it was learned from.
    timed_rows: (usize, usize),
    /// Whether the sizes differed enough to tell what a row adds; else `per_row_ms` is 0, and `base_ms` is the mean.
    is_line: bool,
    /// Rows and milliseconds between which the time is straight, from 1 to `max_batch_size`; `null` where the line holds.
    curve: Option<Vec<(usize, f64)>>,
    /// Rows and milliseconds of the latest batches, the newest last.
    samples: Vec<(usize, f64)>,
}

/// Columns of one length each, the oldest first; the last one is not over.
#[derive(Serialize)]
struct History {
    step_s: f64,
    batches: Vec<Vec<u32>>,
    rows: Vec<u64>,
    largest: Vec<usize>,
    latency: Vec<Vec<u32>>,
    on_time: Vec<u32>,
    late: Vec<u32>,
    refused: Vec<u32>,
    failed: Vec<u32>,
    queue_rows: Vec<usize>,
    busy: Vec<f64>,
}

#[derive(Serialize)]
struct ReleaseShown {
    ago_s: f64,
    rows: usize,
    requests: usize,
    reason: &'static str,
    why: &'static str,
    held_ms: f64,
    predicted_ms: Option<f64>,
    took_ms: Option<f64>,
}

#[derive(Serialize)]
struct RefusalShown {
    ago_s: f64,
    reason: &'static str,
    why: &'static str,
    /// What the last of them was told.
    told: String,
    requests: usize,
}

/// `GET /status`, with `?history=hour` of an hour
pub(super) async fn overview(State(app): State<App>, RawQuery(query): RawQuery) -> Response {
    let registry = app.registry.clone();
    let is_hour = query.is_some_and(|query| query.split('&').any(|part| part == "history=hour"));
    let for_operators = app.is_for_operators;
    let (shared, window) = if is_hour { (app.status_of_hour, Window::Hour) } else { (app.status, Window::TwoMinutes) };
    let Some(page) = shared.get(move || written(&registry, window, for_operators)).await else {
        return Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error").into_response();
    };
    let mut response = json_bytes(StatusCode::OK, page);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn written(registry: &Registry, window: Window, for_operators: bool) -> Bytes {
    let served = registry.models();
    let models: Vec<Service<'_>> = served.iter().map(|model| Service::of(registry, model, window)).collect();
    let uptime_s = registry.uptime().as_secs_f64();
    let server = About { version: env!("CARGO_PKG_VERSION"), uptime_s, ready: registry.is_ready(), for_operators };
    json_text(&Overview { server, models }).into()
}

impl Service<'_> {
    fn of<'a>(registry: &Registry, model: &'a Model, window: Window) -> Service<'a> {
        let (spec, told) = (model.spec(), model.snapshot(window));
        let Snapshot { queue, in_flight, batch_edges, .. } = told.clone();
        let estimate = told.estimate.as_ref().map(|(fit, age)| Estimate {
            base_ms: fit.base_seconds() * 1e3,
            per_row_ms: fit.per_row_seconds() * 1e3,
            noise: fit.noise(),
            trusted: fit.is_trusted(),
            age_s: age.as_secs_f64(),
            timed_rows: fit.timed_rows(),
            is_line: fit.is_line(),
            curve: curve(fit, spec.max_batch_rows.get()),
            samples: told.samples.iter().map(|&(rows, time)| (rows, ms(time))).collect(),
        });
        let release = |(ago, release): &(Duration, crate::registry::Release)| ReleaseShown {
            ago_s: ago.as_secs_f64(),
            rows: release.rows,
            requests: release.requests,
            reason: release.reason.label(),
            why: release.reason.why(),
            held_ms: ms(release.held),
            predicted_ms: release.predicted.map(ms),
            took_ms: release.took.map(ms),
        };
        let refusal = |(ago, refusal): &(Duration, crate::registry::Refusal)| RefusalShown {
            ago_s: ago.as_secs_f64(),
            reason: refusal.reason.label(),
            why: refusal.reason.why(),
            told: refusal.told.as_ref().map(ToString::to_string).unwrap_or_default(),
            requests: refusal.requests,
        };
        Service {
            name: model.name(),
            version: model.version(),
            platform: model.platform(),
            max_latency_ms: ms(spec.max_latency),
            max_batch_size: spec.max_batch_rows.get(),
            runners: spec.runners.get(),
            shadow: registry.is_shadow(model),
            stuck: model.stuck(),
            warning: model.too_slow(),
            queue: Waits { rows: queue.rows, max_rows: queue.max_rows, bytes: queue.bytes, max_bytes: queue.max_bytes },
            in_flight,
            estimate,
            totals: model.totals().into_iter().map(|(outcome, count)| (outcome.label(), count)).collect(),
            batch_edges,
            latency_edges_ms: told.latency_edges.iter().copied().map(ms).collect(),
            history: History::of(&told, spec.runners.get(), window.step()),
            releases: told.releases.iter().map(release).collect(),
            refusals: told.refusals.iter().map(refusal).collect(),
        }
    }
}

impl History {
    fn of(told: &Snapshot, runners: usize, step: Duration) -> History {
        let columns = &told.columns;
        History {
            step_s: step.as_secs_f64(),
            batches: columns.iter().map(|c| c.batches.clone()).collect(),
            rows: columns.iter().map(|c| c.rows).collect(),
            largest: columns.iter().map(|c| c.largest).collect(),
            latency: columns.iter().map(|c| c.latencies.clone()).collect(),
            on_time: columns.iter().map(|c| c.on_time).collect(),
            late: columns.iter().map(|c| c.late).collect(),
            refused: columns.iter().map(|c| c.refused).collect(),
            failed: columns.iter().map(|c| c.failed).collect(),
            queue_rows: columns.iter().map(|c| c.queue_rows).collect(),
            busy: columns.iter().map(|c| c.busy.div_f64(step.as_secs_f64()).as_secs_f64() / runners as f64).collect(),
        }
    }
}

/// To the microsecond: more digits are longer to send and nobody reads them.
fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

/// What batches of up to `most` rows take, where that is no line.
fn curve(fit: &Fit, most: usize) -> Option<Vec<(usize, f64)>> {
    let bends = fit.bends();
    let inside = bends.iter().copied().filter(|rows| (2..most).contains(rows));
    let sizes = [1].into_iter().chain(inside).chain([most].into_iter().filter(|most| *most > 1));
    fit.is_curved().then(|| sizes.filter_map(|rows| Some((rows, ms(fit.predict(rows)?)))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_reaches_from_one_row_to_the_cap_and_a_line_is_none() {
        let batches = [(2, 10), (24, 10), (48, 58)].map(|(rows, ms)| (rows, Duration::from_millis(ms)));
        let fit = Fit::curve(&batches);
        let curve_to = |most| curve(&fit, most).unwrap();
        assert_eq!(curve_to(48)[1..], [(2, 10.0), (24, 10.0), (48, 58.0)]);
        assert_eq!(curve_to(36), [(1, curve_to(48)[0].1), (2, 10.0), (24, 10.0), (36, 34.0)]);
        assert_eq!((curve_to(48)[0].0, curve_to(1).len()), (1, 1));
        assert_eq!(curve(&Fit::line(0.01, 0.001, 1.0), 48), None);
    }
}
