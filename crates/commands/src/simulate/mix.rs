//! What is printed of models that share their runners.

use super::plan::Subject;
use super::report::{Report, batch_time, disturbances, rate, runners, servers_own};
use crate::layout::{self, grouped, listed, millis, ms, percent};
use uncork_sim::Outcome;

/// Who shares the runners, and who asks for how much of them.
pub(super) fn heading(report: &Report<'_>, width: usize) -> String {
    let plan = report.plan;
    let first = &report.results[0].outcomes;
    let head = ["model", "requests", "a second", "load", "share", "a batch takes", "max ms", "max rows"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for (model, outcome) in plan.models.iter().zip(first) {
        lines.push(vec![
            model.name.clone(),
            grouped(outcome.offered),
            rate(outcome.offered, model.load.length()).map_or("–".into(), |rate| grouped(rate.round() as u64)),
            load(report, model, outcome).map_or("–".into(), |load| format!("{:.0}%", 100.0 * load)),
            format!("{:.0}%", 100.0 * share(report, model)),
            batch_time(plan, &model.service),
            ms(model.max_latency).to_string(),
            model.max_batch.to_string(),
        ]);
    }
    let count = plan.models.len();
    let title = format!("{count} models on {}, for {:.1} s", runners(plan), plan.length().as_secs_f64());
    let mut parts = vec![layout::wrap(&title, width), String::new(), layout::table(&lines, 1, width)];
    parts.extend(servers_own(plan).map(|sentence| layout::wrap(&sentence, width)));
    let disturbed = |model: &Subject| {
        disturbances(plan, &model.service)
            .map(|what| layout::wrap(&format!("batch times of {}: {what}", model.name), width))
    };
    parts.extend(plan.models.iter().filter_map(disturbed));
    parts.join("\n")
}

/// A line for each model and policy.
pub(super) fn table(report: &Report<'_>, width: usize) -> String {
    let head =
        ["model", "policy", "on time", "alone", "late", "shed", "mean ms", "p50", "p99", "batches", "rows", "busy"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for (i, model) in report.plan.models.iter().enumerate() {
        for result in &report.results {
            let outcome = &result.outcomes[i];
            lines.push(vec![
                model.name.clone(),
                result.policy.clone(),
                percent(outcome.on_time, outcome.offered),
                percent(outcome.on_time, result.alone[i].on_time),
                percent(outcome.late, outcome.offered),
                percent(outcome.shed, outcome.offered),
                millis(outcome.mean_latency(), outcome.answers()),
                millis(outcome.latency(0.5), outcome.answers()),
                millis(outcome.latency(0.99), outcome.answers()),
                outcome.batches.to_string(),
                format!("{:.1}", outcome.mean_batch_rows()),
                format!("{:.0}%", 100.0 * outcome.busy_fraction(report.plan.runners)),
            ]);
        }
    }
    layout::table(&lines, 2, width)
}

/// Who asks for more than there is, and what each model loses by its neighbours.
pub(super) fn cost_of_sharing(report: &Report<'_>) -> String {
    let result = &report.results[report.judge];
    let models = || report.plan.models.iter().zip(&result.outcomes).enumerate();
    let loads: Vec<Option<f64>> = models().map(|(_, (model, outcome))| load(report, model, outcome)).collect();
    let total: f64 = loads.iter().flatten().sum();
    let flood = |(i, (model, _)): (usize, (&Subject, &Outcome))| {
        let (load, share) = (loads[i]?, share(report, model));
        let asks = format!(
            "{} asks for {:.0} % of the pool and has a share of {:.0} %",
            model.name,
            100.0 * load,
            100.0 * share
        );
        (total > 1.0 && load > share).then_some(asks)
    };
    let floods: Vec<String> = models().filter_map(flood).collect();
    let cost = |(i, (model, outcome)): (usize, (&Subject, &Outcome))| {
        let lost = 1.0 - outcome.on_time as f64 / result.alone[i].on_time.max(1) as f64;
        // Without luck in the noise of batch times, nobody gains by company.
        format!("{} {:.2} %", model.name, 100.0 * lost.max(0.0))
    };
    let costs: Vec<String> = models().map(cost).collect();
    let policy = &result.policy;
    let begin = if floods.is_empty() { String::new() } else { format!("{}. ", listed(&floods)) };
    format!("{begin}With {policy}, sharing costs these parts of what each answers on time alone: {}.", costs.join(", "))
}

/// The part of the runners' time that a model's requests would take in its best batches; unknown of clients that wait.
fn load(report: &Report<'_>, model: &Subject, outcome: &Outcome) -> Option<f64> {
    let capacity = report.plan.capacity(model);
    let rate = rate(outcome.offered_rows, model.load.length())?;
    (model.load.is_open() && capacity > 0.0).then(|| rate / capacity)
}

/// The part of the runners' time that its weight gives it.
fn share(report: &Report<'_>, model: &Subject) -> f64 {
    let total: usize = report.plan.models.iter().map(|model| model.weight.get()).sum();
    model.weight.get() as f64 / total as f64
}
