//! The report for programs.

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use super::report::{Purpose, Report, Trial};
use uncork_loadtest::{Unit, Verdict, at_quantile, mean};

/// Everything; times are in milliseconds, `null` where they never came.
pub(super) fn text(report: &Report) -> String {
    let main = report.main();
    let mut fields = Map::new();
    let mut add = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    let kind = match report.purpose {
        Purpose::One => "run",
        Purpose::Sweep => "sweep",
        Purpose::Search(_) => "search",
    };
    add("kind", json!(kind));
    add("verdict", json!(report.outcome().name()));
    add("verdict_line", json!(report.verdict_line()));
    add("made", json!(report.made));
    add("url", json!(report.url));
    add("model", json!(report.model));
    add("asked", json!(report.asked));
    add("arrivals", json!(report.arrivals));
    add("warm_up_seconds", json!(report.warm_up.as_secs_f64()));
    add("max_rate", json!(report.max_rate()));
    add("notes", json!(report.notes()));
    if let Value::Object(of_main) = trial(report, main) {
        fields.extend(of_main);
    }
    fields.insert("timeline".into(), timeline(main));
    if !matches!(report.purpose, Purpose::One) {
        fields.insert("trials".into(), report.trials.iter().map(|of| trial(report, of)).collect());
    }
    serde_json::to_string_pretty(&Value::Object(fields)).expect("names are strings")
}

fn trial(report: &Report, trial: &Trial) -> Value {
    let (run, tally) = (&trial.run, &trial.run.tally);
    let objectives: Vec<Value> = report
        .slos
        .iter()
        .zip(&trial.judged)
        .map(|(slo, judged)| {
            json!({
                "objective": slo.text(),
                "met": judged.met,
                "measured": finite(judged.value),
                "bound": judged.bound,
                "unit": match judged.unit { Unit::Ms => "ms", Unit::Share => "share", Unit::PerSecond => "per_second" },
                "sentence": judged.sentence,
                "missed_by": judged.missed_by,
                "budget_used": judged.budget_used.and_then(finite),
            })
        })
        .collect();
    let (verdict, unclear, failed) = match &trial.verdict {
        Verdict::Passed => ("met", None, None),
        Verdict::Missed => ("missed", None, None),
        Verdict::Failed(reason) => ("failed", None, Some(reason)),
        Verdict::Inconclusive(reason) => ("inconclusive", Some(reason), None),
        Verdict::Measured => ("measured", None, None),
    };
    let latency = json!({
        "p50": trial.within_ms(0.5), "p90": trial.within_ms(0.9), "p95": trial.within_ms(0.95),
        "p99": trial.within_ms(0.99), "p99_9": trial.within_ms(0.999), "max": trial.within_ms(1.0),
    });
    let batches: Vec<Value> = trial
        .batches
        .iter()
        .map(|(least, most, count)| json!({"least_rows": least, "most_rows": most, "batches": count}))
        .collect();
    json!({
        "rate": trial.rate,
        "seconds": run.seconds,
        "trial_verdict": verdict,
        "inconclusive_because": unclear,
        "failed_because": failed,
        "objectives": objectives,
        "requests": tally.requests(),
        "good": tally.good(),
        "good_rows": tally.rows,
        "refused": tally.refused,
        "errors": {
            "all": tally.errors(), "failed": tally.failed, "wrong": tally.wrong, "timed_out": tally.timed_out,
            "never_sent": tally.unsent, "connection_broke": tally.broken,
        },
        "still_under_way": tally.under_way.len(),
        "still_under_way_for_ms": milliseconds(&tally.under_way),
        "resent": tally.resent,
        "statuses": tally.statuses,
        "reasons": tally.reasons,
        "offered_per_second": trial.offered(),
        "answers_per_second": trial.answers(),
        "latency_ms": latency,
        "good_latency_ms": milliseconds(&tally.latency),
        "good_latency_from_sending_ms": milliseconds(&tally.latency_from_sending),
        "good_from_sending_per_half_ms": per_half_ms(&tally.latency_from_sending),
        "refusal_latency_ms": milliseconds(&tally.refusal),
        "refusal_latency_from_sending_ms": milliseconds(&tally.refusal_from_sending),
        "generator": {
            "late_ms": milliseconds(&tally.lateness),
            "connection_wait_ms": milliseconds(&tally.connection_wait),
            "busy": run.busy,
            "came_too_late_for": tally.too_late,
            "connections": run.connections,
            "out_of_files": run.out_of_files,
            "threads": report.threads,
        },
        "mean_batch_rows": trial.mean_batch_rows,
        "batches": batches,
    })
}

fn timeline(trial: &Trial) -> Value {
    let slot_seconds = trial.run.tally.slot_length().as_secs_f64();
    // The last one may be cut short.
    let seconds = |i: usize| (trial.run.seconds - i as f64 * slot_seconds).clamp(0.0, slot_seconds);
    let slot = |(i, slot): (usize, &uncork_loadtest::Slot)| {
        let at = |quantile| match slot.latency.is_empty() {
            true => Value::Null,
            false => json!(at_quantile(&slot.latency, quantile) as f64 / 1e3),
        };
        json!({
            "from_second": i as f64 * slot_seconds, "seconds": seconds(i), "due": slot.due, "good": slot.good, "refused": slot.refused,
            "failed": slot.failed, "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1.0),
        })
    };
    trial.run.tally.slots.iter().enumerate().map(slot).collect()
}

/// How many took up to half a millisecond, how many up to one, and so on to 200 ms.
fn per_half_ms(times: &Histogram<u64>) -> Vec<u64> {
    let mut counts = vec![0; 400];
    for value in times.iter_recorded() {
        let half = usize::try_from(value.value_iterated_to().saturating_sub(1) / 500).unwrap_or(usize::MAX);
        if let Some(count) = counts.get_mut(half) {
            *count += value.count_at_value();
        }
    }
    counts
}

fn milliseconds(times: &Histogram<u64>) -> Value {
    if times.is_empty() {
        return Value::Null;
    }
    let at = |quantile| at_quantile(times, quantile) as f64 / 1e3;
    json!({
        "mean": mean(times) / 1e3, "p50": at(0.5), "p90": at(0.9), "p95": at(0.95), "p99": at(0.99),
        "p99_9": at(0.999), "max": at(1.0),
    })
}

/// JSON knows no infinity.
fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}
