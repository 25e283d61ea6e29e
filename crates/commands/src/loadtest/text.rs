//! The report for a terminal.

use anstyle::AnsiColor;

use super::report::{Outcome, Purpose, Report, Trial};
use crate::layout::{grouped, percent, table, wrap};
use uncork_loadtest::{Verdict, at_quantile, short};

/// The verdict alone, its first word in colour.
pub(super) fn verdict(report: &Report) -> String {
    let line = report.verdict_line();
    let colour = match report.outcome() {
        Outcome::Passed => AnsiColor::Green,
        Outcome::Missed => AnsiColor::Red,
        Outcome::Inconclusive => AnsiColor::Yellow,
    };
    let style = colour.on_default().bold();
    let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
    format!("{style}{word}{style:#} {rest}")
}

/// Everything.
pub(super) fn report(report: &Report, width: usize) -> String {
    let mut parts = vec![wrap(&heading(report), width)];
    if !matches!(report.purpose, Purpose::One) {
        parts.push(table(&rates(report), 0, width));
        let rate = report.main().rate.map_or(String::new(), |rate| format!("At {}/s:", short(rate)));
        parts.push(rate);
    }
    parts.push(table(&counts(report.main()), 1, width));
    parts.push(table(&times(report.main()), 1, width));
    if !report.main().run.tally.reasons.is_empty() {
        let line = |(reason, count): (&String, &u64)| vec![grouped(*count), reason.clone()];
        let lines: Vec<Vec<String>> = report.main().run.tally.reasons.iter().map(line).collect();
        let widest = lines.iter().map(|line| line[0].len()).max().unwrap_or(0);
        let text = |line: &Vec<String>| format!("{:>widest$}  {}", line[0], line[1]);
        parts.push(format!("without a good answer\n{}", lines.iter().map(text).collect::<Vec<_>>().join("\n")));
    }
    if !report.slos.is_empty() {
        parts.push(table(&objectives(report.main()), 2, width));
    }
    parts.extend(report.notes().iter().map(|note| wrap(note, width)));
    parts.push(report.made.line());
    parts.push(verdict(report));
    parts.join("\n\n")
}

pub(super) fn heading(report: &Report) -> String {
    let seconds = report.main().run.seconds;
    let warm_up = report.warm_up.as_secs_f64();
    let warm_up = if warm_up > 0.0 { format!(" after {} s of warm-up", short(warm_up)) } else { String::new() };
    let asked = match &report.model {
        Some(model) => format!("{model} at {}", report.url),
        None => format!("{} at {}", report.asked, report.url),
    };
    let each = if matches!(report.purpose, Purpose::One) { "" } else { " each" };
    format!("{asked}: {}, {} s{each}{warm_up}", report.arrivals, short(seconds))
}

/// A run's figures beside one another, of all runs by their rate.
pub(super) fn rates(report: &Report) -> Vec<Vec<String>> {
    let headings = ["rate/s", "answers/s", "refused", "errors", "p50 ms", "p99 ms", "max ms", "batch", "verdict"];
    let mut lines = vec![headings.map(str::to_owned).to_vec()];
    let mut trials: Vec<&Trial> = report.trials.iter().collect();
    trials.sort_by(|a, b| a.offered().total_cmp(&b.offered()));
    lines.extend(trials.iter().map(|trial| {
        let tally = &trial.run.tally;
        let verdict = match trial.verdict {
            Verdict::Passed => "met",
            Verdict::Missed => "missed",
            Verdict::Failed(_) => "failed",
            Verdict::Inconclusive(_) => "unclear",
            Verdict::Measured => "–",
        };
        vec![
            short(trial.rate.unwrap_or_else(|| trial.offered())),
            short(trial.answers()),
            percent(tally.refused, tally.requests()),
            percent(tally.errors(), tally.requests()),
            ms(trial.within_ms(0.5)),
            ms(trial.within_ms(0.99)),
            ms(trial.within_ms(1.0)),
            trial.mean_batch_rows.map_or("–".into(), |rows| format!("{rows:.1}")),
            verdict.to_owned(),
        ]
    }));
    lines
}

/// How requests ended.
pub(super) fn counts(trial: &Trial) -> Vec<Vec<String>> {
    let tally = &trial.run.tally;
    let line = |name: &str, count: u64| {
        let rate = format!("{}/s", short(count as f64 / trial.run.seconds));
        vec![name.to_owned(), grouped(count), percent(count, tally.requests()), rate]
    };
    let mut lines = vec![line("requests", tally.requests()), line("good answers", tally.good())];
    lines.push(line("refused", tally.refused));
    for (name, count) in [
        ("failed", tally.failed),
        ("wrong answers", tally.wrong),
        ("timed out", tally.timed_out),
        ("never sent", tally.unsent),
        ("connection broke", tally.broken),
        ("still under way", tally.under_way.len()),
    ] {
        if count > 0 {
            lines.push(line(name, count));
        }
    }
    if tally.errors() == 0 {
        lines.push(line("errors", 0));
    }
    lines
}

/// Latencies, and what the generator adds to them.
pub(super) fn times(trial: &Trial) -> Vec<Vec<String>> {
    const QUANTILES: [f64; 6] = [0.5, 0.9, 0.95, 0.99, 0.999, 1.0];
    let tally = &trial.run.tally;
    let line = |name: &str, of: &dyn Fn(f64) -> String| {
        std::iter::once(name.to_owned()).chain(QUANTILES.map(of)).collect::<Vec<_>>()
    };
    let of = |histogram: &hdrhistogram::Histogram<u64>, quantile| match histogram.is_empty() {
        true => "–".to_owned(),
        false => ms(Some(at_quantile(histogram, quantile) as f64 / 1e3)),
    };
    let headings = ["ms", "p50", "p90", "p95", "p99", "p99.9", "max"];
    let mut lines = vec![headings.map(str::to_owned).to_vec()];
    lines.push(line("latency, from due", &|quantile| ms(trial.within_ms(quantile))));
    lines.push(line("good answers, from sending", &|quantile| of(&tally.latency_from_sending, quantile)));
    if tally.refused > 0 {
        lines.push(line("refusals, from due", &|quantile| of(&tally.refusal, quantile)));
        lines.push(line("refusals, from sending", &|quantile| of(&tally.refusal_from_sending, quantile)));
    }
    lines.push(line("wait for a connection", &|quantile| of(&tally.connection_wait, quantile)));
    lines.push(line("generator late by", &|quantile| of(&tally.lateness, quantile)));
    lines
}

/// How each objective fared.
pub(super) fn objectives(trial: &Trial) -> Vec<Vec<String>> {
    let line = |judged: &uncork_loadtest::Judged| {
        let budget = match judged.budget_used {
            Some(used) if used.is_infinite() => "none allowed".into(),
            Some(used) => format!("{:.0} % of its budget", 100.0 * used),
            None => String::new(),
        };
        let met = if judged.met { "met" } else { "missed" };
        vec![met.to_owned(), judged.sentence.clone(), budget]
    };
    trial.judged.iter().map(line).collect()
}

/// Milliseconds, or never.
pub(super) fn ms(time: Option<f64>) -> String {
    match time {
        None => "never".into(),
        Some(ms) if ms < 10.0 => format!("{ms:.2}"),
        Some(ms) if ms < 100.0 => format!("{ms:.1}"),
        Some(ms) => format!("{ms:.0}"),
    }
}
