//! What is printed: JSON for programs; a table, two plots and three sentences for people.

use std::time::Duration;

use serde::Serialize;

use super::clairvoyant::Clairvoyant;
use super::load::Load;
use super::plot;
use super::setup::Setup;
use crate::sim::Outcome;

/// On-time shares that differ by less are taken as equal, and the mean latency decides.
const EQUAL: f64 = 0.0005;

/// All that came of a simulation.
pub(super) struct Report<'a> {
    pub(super) setup: &'a Setup,
    pub(super) load: &'a Load,
    pub(super) clairvoyant: Clairvoyant,
    /// At least one, in the order in which they were asked for.
    pub(super) results: Vec<(String, Outcome)>,
    /// Sentences about some of them.
    pub(super) notes: Vec<String>,
    /// The one of them that shows what the caps cost.
    pub(super) judge: usize,
    /// That one with half as much latency again, and with batches half as large again; or nothing.
    pub(super) raised_caps: Vec<Outcome>,
}

/// The object of one policy. Latencies are those of the answers, late ones included; null without any answer.
#[derive(Serialize)]
struct Row<'a> {
    policy: &'a str,
    offered: u64,
    on_time: u64,
    late: u64,
    shed: u64,
    mean_ms: Option<f64>,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    batches: u64,
    mean_batch_rows: f64,
    busy_fraction: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    optimum: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upper_bound: Option<u64>,
}

impl Report<'_> {
    /// A list with an object for each policy.
    pub(super) fn json(&self) -> String {
        let (optimum, upper_bound) = match self.clairvoyant {
            Clairvoyant::AtMost(n) => (None, Some(n)),
            known => (known.requests(), None),
        };
        let row = |(policy, outcome): &(String, Outcome)| {
            let ms = |time: Duration| (outcome.answers() > 0).then(|| round(time.as_secs_f64() * 1e3));
            let row = Row {
                policy,
                offered: outcome.offered,
                on_time: outcome.on_time,
                late: outcome.late,
                shed: outcome.shed,
                mean_ms: ms(outcome.mean_latency()),
                p50_ms: ms(outcome.latency(0.5)),
                p99_ms: ms(outcome.latency(0.99)),
                batches: outcome.batches,
                mean_batch_rows: round(outcome.mean_batch_rows()),
                busy_fraction: round(outcome.busy_fraction(self.setup.runners)),
                optimum,
                upper_bound,
            };
            serde_json::to_string(&row).expect("numbers and names are JSON")
        };
        let rows: Vec<String> = self.results.iter().map(row).collect();
        format!("[{}]", rows.join(",\n "))
    }

    /// For people, in lines of `width` columns where that is possible.
    pub(super) fn text(&self, width: usize) -> String {
        let mut parts = vec![self.heading(), self.table(width), self.plots(width)];
        let mut sentences = vec![self.winner()];
        sentences.extend(self.notes.iter().cloned());
        sentences.extend(self.cost_of_caps());
        sentences.extend(self.clairvoyant.caveat());
        parts.extend(sentences.into_iter().map(|sentence| wrap(&sentence, width)));
        parts.join("\n\n")
    }

    fn heading(&self) -> String {
        let Setup { service, max_latency, max_batch, runners, .. } = self.setup;
        let Outcome { offered, span, .. } = &self.results[0].1;
        let seconds = span.as_secs_f64();
        let ms = |time: &Duration| time.as_secs_f64() * 1e3;
        let load = match self.load {
            Load::Closed { clients, think, .. } => {
                format!("{clients} clients that think for {} ms, for {seconds:.1} s", ms(think))
            }
            _ => {
                let rate = *offered as f64 / seconds;
                format!("{} requests in {seconds:.1} s, {} a second", grouped(*offered), grouped(rate.round() as u64))
            }
        };
        let runners = if *runners == 1 { "one runner".into() } else { format!("{runners} runners") };
        let capacity = match self.setup.capacity() {
            0.0 => "not even a batch of one row is in time".to_owned(),
            rows => format!("at most {} rows a second in time", grouped(rows.round() as u64)),
        };
        let (base, per_row) = (ms(&service.base), ms(&service.per_row));
        let server = format!("{runners}, {base} + {per_row}·n ms for n rows: {capacity}");
        format!("{load}\n{server}\ncaps: {} ms, {max_batch} rows", ms(max_latency))
    }

    fn table(&self, width: usize) -> String {
        let known = self.clairvoyant.requests();
        let mut lines: Vec<Vec<String>> = vec![
            [
                "policy",
                "on time",
                self.clairvoyant.name(),
                "late",
                "shed",
                "mean ms",
                "p50 ms",
                "p99 ms",
                "rows",
                "busy",
            ]
            .map(str::to_owned)
            .to_vec(),
        ];
        for (policy, outcome) in &self.results {
            let share = |part: u64, of: u64| format!("{:.2}%", 100.0 * part as f64 / of.max(1) as f64);
            let ms = |time: Duration| match outcome.answers() {
                0 => "–".to_owned(),
                _ => format!("{:.2}", time.as_secs_f64() * 1e3),
            };
            lines.push(vec![
                policy.clone(),
                share(outcome.on_time, outcome.offered),
                known.map_or("–".into(), |most| share(outcome.on_time, most)),
                share(outcome.late, outcome.offered),
                share(outcome.shed, outcome.offered),
                ms(outcome.mean_latency()),
                ms(outcome.latency(0.5)),
                ms(outcome.latency(0.99)),
                format!("{:.1}", outcome.mean_batch_rows()),
                format!("{:.0}%", 100.0 * outcome.busy_fraction(self.setup.runners)),
            ]);
        }
        if known.is_none() {
            lines.iter_mut().for_each(|line| drop(line.remove(2)));
        }
        let columns = lines[0].len();
        let longest = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(longest).collect();
        let gap = if widths.iter().sum::<usize>() + 2 * (columns - 1) > width { 1 } else { 2 };
        let line = |cells: &Vec<String>| {
            let mut text = format!("{:<1$}", cells[0], widths[0]);
            for (cell, wide) in cells.iter().zip(&widths).skip(1) {
                text += &format!("{:gap$}{cell:>wide$}", "");
            }
            text
        };
        lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn plots(&self, width: usize) -> String {
        let label = self.results.iter().map(|(policy, _)| policy.chars().count()).max().unwrap_or(0);
        let columns = width.saturating_sub(label + 3).max(20);
        let line = |policy: &str, bars: String| format!("{policy:<label$} ▕{bars}▏");
        let seconds = self.results[0].1.span.as_secs_f64();
        let mut lines = vec![format!("on time over the {seconds:.1} s (a full bar: all)")];
        lines.extend(self.results.iter().map(|(policy, outcome)| line(policy, plot::on_time(outcome, columns))));
        let cap = self.setup.max_latency.as_secs_f64();
        let slowest = self.results.iter().map(|(_, outcome)| outcome.latency(0.999).as_secs_f64());
        let longest = slowest.fold(0.0, f64::max).max(1e-6);
        let past = if longest > cap * 1.005 { ", past the cap" } else { "" };
        lines.push(format!("\nlatency of the answers, 0 to {:.1} ms{past}", longest * 1e3));
        lines.extend(
            self.results.iter().map(|(policy, outcome)| line(policy, plot::latencies(outcome, longest, columns))),
        );
        lines.join("\n")
    }

    /// Who answered the most on time, or as many as the next and sooner.
    fn winner(&self) -> String {
        let mut ranking: Vec<&(String, Outcome)> = self.results.iter().collect();
        ranking.sort_by_key(|(_, outcome)| std::cmp::Reverse(outcome.on_time));
        let most = ranking[0].1.on_time as f64;
        let equal = ranking.iter().take_while(|(_, o)| o.on_time as f64 >= most * (1.0 - EQUAL)).count();
        ranking[..equal].sort_by_key(|(_, outcome)| outcome.mean_latency());
        let (name, first) = ranking[0];
        let known = self.clairvoyant.requests().filter(|n| *n > 0);
        let of_known = known.map_or(String::new(), |most| {
            format!(" ({:.2} % of the {})", 100.0 * first.on_time as f64 / most as f64, self.clairvoyant.name())
        });
        let done = match self.load {
            Load::Closed { .. } => {
                format!("{:.1} requests a second on time", first.on_time as f64 / first.span.as_secs_f64())
            }
            _ => format!("{:.2} % on time{of_known}", 100.0 * share(first)),
        };
        let Some((second, other)) = ranking.get(1) else { return format!("{name} answers {done}.") };
        let against = if equal > 1 {
            let (a, b) = (first.mean_latency().as_secs_f64() * 1e3, other.mean_latency().as_secs_f64() * 1e3);
            let all = if equal == ranking.len() { "so do the others" } else { "so do others" };
            format!("{all}, but its mean latency of {a:.2} ms is the lowest; {second} has {b:.2} ms")
        } else {
            match first.on_time as f64 / other.on_time as f64 {
                ratio if ratio < 2.0 => format!("{:.1} % more than {second}", 100.0 * (ratio - 1.0)),
                ratio if ratio.is_finite() => format!("{ratio:.1} times as many as {second}"),
                _ => format!("{second} none"),
            }
        };
        format!("{name} wins: {done}; {against}.")
    }

    /// What the two caps refuse, and what raising each by half would change.
    fn cost_of_caps(&self) -> Option<String> {
        let [longer, larger] = &self.raised_caps[..] else { return None };
        let (policy, now) = &self.results[self.judge];
        let lost = |outcome: &Outcome| 100.0 * (1.0 - share(outcome));
        if lost(now) == 0.0 {
            return Some(format!("The caps cost nothing here: {policy} refuses no request and answers none late."));
        }
        let part = |part: u64| 100.0 * part as f64 / now.offered.max(1) as f64;
        let ms = |setup: &Setup| setup.max_latency.as_secs_f64() * 1e3;
        let mut sentence = format!(
            "With {policy} the caps cost {:.2} % of the requests ({:.2} % refused, {:.2} % late); with {} ms instead of {} \
             it would be {:.2} %, with batches of {} instead of {} rows {:.2} %",
            lost(now),
            part(now.shed),
            part(now.late),
            ms(&self.setup.with_more_latency()),
            ms(self.setup),
            lost(longer),
            self.setup.with_larger_batches().max_batch,
            self.setup.max_batch,
            lost(larger),
        );
        if lost(longer).min(lost(larger)) > 0.8 * lost(now) {
            sentence += ": more runners or a faster model would help more";
        }
        Some(sentence + ".")
    }
}

/// The share of the requests that was answered on time.
fn share(outcome: &Outcome) -> f64 {
    outcome.on_time as f64 / outcome.offered.max(1) as f64
}

/// Six digits behind the point are enough for anyone.
fn round(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

/// `1,234,567`
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Breaks a sentence into lines.
fn wrap(sentence: &str, width: usize) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in sentence.split(' ') {
        let wide = word.chars().count();
        if column > 0 && column + 1 + wide > width {
            text.push('\n');
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text += word;
        column += wide;
    }
    text
}
