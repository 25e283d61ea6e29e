//! What is printed: JSON for programs; tables, plots and sentences for people.

use std::cmp::Reverse;
use std::time::Duration;

use serde::Serialize;

use super::clairvoyant::Clairvoyant;
use super::load::Load;
use super::mix;
use super::plan::{Plan, Subject};
use crate::layout::{grouped, listed, millis, ms, percent, plural, table, wrap};
use crate::plot;
use uncork_core::policy::kept_for_answering;
use uncork_sim::{Class, Outcome, Service};

/// On-time counts and latencies that differ by less, as a share, are taken as equal.
const EQUAL: f64 = 0.0005;
const EQUAL_LATENCY: f64 = 0.005;
/// What leaves more than this part of what is lost is no remedy, unless it answers as much more.
const NO_HELP: f64 = 0.95;

/// Per cent of the requests by which another rule has to lose less to be named for it.
const NOT_BY_CAPS: f64 = 0.5;

/// All that came of a simulation.
pub(super) struct Report<'a> {
    pub(super) plan: &'a Plan,
    pub(super) clairvoyant: Clairvoyant,
    /// At least one, in the order in which they were asked for.
    pub(super) results: Vec<Trial>,
    /// Sentences about some of them.
    pub(super) notes: Vec<String>,
    /// The one of them that shows what the caps, or the neighbours, cost.
    pub(super) judge: usize,
    /// That one with what may help, in words; or nothing.
    pub(super) remedies: Vec<(String, Outcome)>,
}

/// What came of one policy.
pub(super) struct Trial {
    pub(super) policy: String,
    /// One a model.
    pub(super) outcomes: Vec<Outcome>,
    /// Of each model with the pool to itself, where there are several.
    pub(super) alone: Vec<Outcome>,
}

impl Trial {
    /// Of all models together.
    fn sum(&self, of: impl Fn(&Outcome) -> u64) -> u64 {
        self.outcomes.iter().map(of).sum()
    }

    fn mean_latency(&self) -> Duration {
        let total: f64 = self.outcomes.iter().map(|o| o.mean_latency().as_secs_f64() * o.answers() as f64).sum();
        Duration::from_secs_f64(total / self.sum(Outcome::answers).max(1) as f64)
    }
}

/// The object of one policy and model. Latencies are those of the answers, late ones included; null without any answer.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    model: &'a str,
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
    /// With the pool to itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    on_time_alone: Option<u64>,
    /// Where the requests differ in what they ask for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    classes: Vec<ClassRow>,
}

/// The object of one class of requests.
#[derive(Serialize)]
struct ClassRow {
    priority: u8,
    /// Whether they had a deadline of their own before that of the cap.
    hurried: bool,
    offered: u64,
    on_time: u64,
    late: u64,
    shed: u64,
    mean_ms: Option<f64>,
}

impl Report<'_> {
    /// A list with an object for each model and policy.
    pub(super) fn json(&self) -> String {
        let models = self.plan.models.iter().enumerate();
        let rows = models.flat_map(|(i, model)| self.results.iter().map(move |result| self.json_row(i, model, result)));
        format!("[{}]", rows.collect::<Vec<_>>().join(",\n "))
    }

    fn json_row(&self, i: usize, model: &Subject, result: &Trial) -> String {
        let (optimum, upper_bound) = match self.clairvoyant {
            Clairvoyant::AtMost(n) => (None, Some(n)),
            known => (known.requests(), None),
        };
        let outcome = &result.outcomes[i];
        let average = |time: Duration, of: u64| (of > 0).then(|| round(ms(time)));
        let latency = |time: Duration| average(time, outcome.answers());
        let class = |Class { priority, hurried, counts }: Class| ClassRow {
            priority: priority.level(),
            hurried,
            offered: counts.offered,
            on_time: counts.on_time,
            late: counts.late,
            shed: counts.shed,
            mean_ms: average(counts.mean_latency(), counts.answers()),
        };
        let row = Row {
            model: &model.name,
            policy: &result.policy,
            offered: outcome.offered,
            on_time: outcome.on_time,
            late: outcome.late,
            shed: outcome.shed,
            mean_ms: latency(outcome.mean_latency()),
            p50_ms: latency(outcome.latency(0.5)),
            p99_ms: latency(outcome.latency(0.99)),
            batches: outcome.batches,
            mean_batch_rows: round(outcome.mean_batch_rows()),
            busy_fraction: round(outcome.busy_fraction(self.plan.runners)),
            optimum,
            upper_bound,
            on_time_alone: result.alone.get(i).map(|alone| alone.on_time),
            classes: if has_classes(outcome) { outcome.classes().map(class).collect() } else { Vec::new() },
        };
        serde_json::to_string(&row).expect("numbers and names are JSON")
    }

    /// For people, in lines of `width` columns where that is possible.
    pub(super) fn text(&self, width: usize) -> String {
        let only = self.plan.only();
        let mut parts = match only {
            Some(model) => vec![self.heading(model, width), self.table(width)],
            None => vec![mix::heading(self, width), mix::table(self, width)],
        };
        parts.extend(self.classes(width));
        parts.push(self.plots(width));
        let mut sentences = vec![self.winner()];
        sentences.extend(self.notes.iter().cloned());
        sentences.extend(match only {
            Some(model) => self.cost_of_caps(model),
            None => Some(mix::cost_of_sharing(self)),
        });
        sentences.extend(self.clairvoyant.caveat().filter(|_| only.is_some()));
        parts.extend(sentences.into_iter().map(|sentence| wrap(&sentence, width)));
        parts.join("\n\n")
    }

    fn heading(&self, model: &Subject, width: usize) -> String {
        let offered = self.results[0].outcomes[0].offered;
        let seconds = self.plan.length().as_secs_f64();
        let load = match &model.load {
            Load::Clients { clients, think, .. } => {
                format!("{clients} clients that think for {} ms, for {seconds:.1} s", ms(*think))
            }
            _ => {
                let rate = rate(offered, self.plan.length()).map_or("–".into(), |rate| grouped(rate.round() as u64));
                let requests = if offered == 1 { "request" } else { "requests" };
                format!("{} {requests} in {seconds:.1} s, {rate} a second", grouped(offered))
            }
        };
        let capacity = match (self.plan.capacity(model), model.load.least_rows()) {
            (0.0, 1) => "not even a batch of one row is in time".to_owned(),
            (0.0, least) => format!("not even a request of {least} rows is in time"),
            (rows, _) => format!("at most {} rows a second in time", grouped(rows.round() as u64)),
        };
        let mut lines = vec![
            load,
            format!("{}, {} for n rows: {capacity}", runners(self.plan), batch_time(self.plan, &model.service)),
            format!("caps: {} ms, {}; {}", ms(model.max_latency), plural(model.max_batch, "row"), start(self.plan)),
        ];
        lines.extend(servers_own(self.plan));
        let kept = kept_for_answering(model.max_latency);
        lines.push(format!(
            "{} ms of the {} is kept free for the way back to the caller",
            ms(kept),
            ms(model.max_latency)
        ));
        lines.extend(disturbances(self.plan, &model.service).map(|what| format!("batch times: {what}")));
        lines.iter().map(|line| wrap(line, width)).collect::<Vec<_>>().join("\n")
    }

    fn table(&self, width: usize) -> String {
        let known = self.clairvoyant.requests();
        let best = self.clairvoyant.name();
        let head = ["policy", "on time", best, "late", "shed", "mean ms", "p50 ms", "p99 ms", "rows", "busy"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        for Trial { policy, outcomes, .. } in &self.results {
            let outcome = &outcomes[0];
            lines.push(vec![
                policy.clone(),
                percent(outcome.on_time, outcome.offered),
                percent(outcome.on_time, known.unwrap_or(0)),
                percent(outcome.late, outcome.offered),
                percent(outcome.shed, outcome.offered),
                millis(outcome.mean_latency(), outcome.answers()),
                millis(outcome.latency(0.5), outcome.answers()),
                millis(outcome.latency(0.99), outcome.answers()),
                format!("{:.1}", outcome.mean_batch_rows()),
                format!("{:.0}%", 100.0 * outcome.busy_fraction(self.plan.runners)),
            ]);
        }
        if known.is_none() {
            lines.iter_mut().for_each(|line| drop(line.remove(2)));
        }
        table(&lines, 1, width)
    }

    /// A table of what became of hurried and urgent requests and of the others, where there are such.
    fn classes(&self, width: usize) -> Option<String> {
        let head = ["model", "class", "policy", "requests", "on time", "late", "shed", "mean ms"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        for (i, model) in self.plan.models.iter().enumerate() {
            let outcomes = || self.results.iter().map(|trial| (&trial.policy, &trial.outcomes[i]));
            let Some((_, first)) = outcomes().find(|(_, outcome)| has_classes(outcome)) else { continue };
            let known: Vec<Class> = first.classes().collect();
            for class in &known {
                let is_it = |own: &Class| (own.priority, own.hurried) == (class.priority, class.hurried);
                for (policy, own) in outcomes().filter_map(|(p, outcome)| Some((p, outcome.classes().find(is_it)?))) {
                    let counts = own.counts;
                    lines.push(vec![
                        model.name.clone(),
                        class_name(class, &known),
                        policy.clone(),
                        grouped(counts.offered),
                        percent(counts.on_time, counts.offered),
                        percent(counts.late, counts.offered),
                        percent(counts.shed, counts.offered),
                        millis(counts.mean_latency(), counts.answers()),
                    ]);
                }
            }
        }
        if lines.len() == 1 {
            return None;
        }
        if self.plan.only().is_some() {
            lines.iter_mut().for_each(|line| drop(line.remove(0)));
            return Some(table(&lines, 2, width));
        }
        Some(table(&lines, 3, width))
    }

    fn plots(&self, width: usize) -> String {
        let models = || self.plan.models.iter().enumerate();
        let rows: Vec<(String, &Outcome, f64)> = models()
            .flat_map(|(i, model)| {
                self.results.iter().map(move |result| {
                    let name = format!("{} {}", model.name, result.policy).trim_start().to_owned();
                    (name, &result.outcomes[i], model.max_latency.as_secs_f64())
                })
            })
            .collect();
        let label = rows.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
        let columns = width.saturating_sub(label + 3).max(20);
        let line = |name: &str, bars: String| format!("{name:<label$} ▕{bars}▏");
        let seconds = self.plan.length().as_secs_f64();
        let mut lines = vec![format!("on time over the {seconds:.1} s (a full bar: all)")];
        lines.extend(rows.iter().map(|(name, outcome, _)| line(name, plot::on_time(outcome, columns))));
        if rows.iter().all(|(_, outcome, _)| outcome.answers() == 0) {
            return lines.join("\n");
        }
        // Each model's latencies are told in parts of its own cap.
        let slowest = rows.iter().map(|(_, outcome, cap)| outcome.latency(0.999).as_secs_f64() / cap);
        let longest = slowest.fold(0.0, f64::max).max(1e-6);
        let past = if longest > 1.005 { ", past the cap" } else { "" };
        let end = match self.plan.only() {
            Some(model) => format!("{:.1} ms{past}", longest * ms(model.max_latency)),
            None => format!("{:.0} % of each model's cap", longest * 100.0),
        };
        lines.push(format!("\nlatency of the answers, 0 to {end}"));
        lines.extend(
            rows.iter().map(|(name, outcome, cap)| line(name, plot::latencies(outcome, longest * cap, columns))),
        );
        lines.join("\n")
    }

    /// Who answered the most on time, or as many as the next and sooner.
    fn winner(&self) -> String {
        let mut ranking: Vec<&Trial> = self.results.iter().collect();
        let on_time = |result: &Trial| result.sum(|o| o.on_time);
        let mean = |result: &Trial| result.mean_latency().as_secs_f64();
        ranking.sort_by_key(|result| Reverse(on_time(result)));
        let most = on_time(ranking[0]) as f64;
        let equal = ranking.iter().take_while(|result| on_time(result) as f64 >= most * (1.0 - EQUAL)).count();
        ranking[..equal].sort_by_key(|result| result.mean_latency());
        let first = ranking[0];
        let known = self.clairvoyant.requests().filter(|n| *n > 0);
        let of_known = known.map_or(String::new(), |most| {
            format!(" ({:.2} % of the {})", 100.0 * on_time(first) as f64 / most as f64, self.clairvoyant.name())
        });
        let clients = self.plan.only().filter(|model| !model.load.is_open());
        let done = if clients.is_some() {
            let seconds = first.outcomes[0].span.as_secs_f64();
            format!("{:.1} requests a second on time", on_time(first) as f64 / seconds)
        } else {
            let share = 100.0 * on_time(first) as f64 / first.sum(|o| o.offered).max(1) as f64;
            let whole = if self.plan.only().is_none() { " of all requests" } else { "" };
            format!("{share:.2} %{whole} on time{of_known}")
        };
        let name = &first.policy;
        let Some(second) = ranking.get(1) else { return format!("{name} answers {done}.") };
        let level = ranking[..equal].iter().take_while(|other| mean(other) <= mean(first) * (1.0 + EQUAL_LATENCY));
        let level: Vec<String> = level.map(|result| result.policy.clone()).collect();
        if level.len() > 1 {
            let latency = mean(first) * 1e3;
            return format!("{} are level: {done}, with a mean latency of {latency:.2} ms.", listed(&level));
        }
        let against = if equal > 1 {
            let (a, b) = (mean(first) * 1e3, mean(second) * 1e3);
            let all = if equal == ranking.len() { "so do the others" } else { "so do others" };
            format!("{all}, but its mean latency of {a:.2} ms is the lowest; {} has {b:.2} ms", second.policy)
        } else {
            match on_time(first) as f64 / on_time(second) as f64 {
                ratio if ratio < 2.0 => format!("{:.1} % more than {}", 100.0 * (ratio - 1.0), second.policy),
                ratio if ratio.is_finite() => format!("{ratio:.1} times as many as {}", second.policy),
                _ => format!("{} none", second.policy),
            }
        };
        format!("{name} wins: {done}; {against}.")
    }

    /// What the two caps refuse, and what would help.
    fn cost_of_caps(&self, model: &Subject) -> Option<String> {
        if self.remedies.is_empty() {
            return None;
        }
        let Trial { policy, outcomes, .. } = &self.results[self.judge];
        let now = &outcomes[0];
        let lost = |outcome: &Outcome| 100.0 * (1.0 - outcome.on_time as f64 / outcome.offered.max(1) as f64);
        if lost(now) == 0.0 {
            return Some(format!("The caps cost nothing here: {policy} refuses no request and answers none late."));
        }
        let part = |part: u64| 100.0 * part as f64 / now.offered.max(1) as f64;
        if self.plan.capacity(model) == 0.0 {
            let (rows, cap) = (model.load.least_rows(), ms(model.max_latency));
            let (batch, alone) = (batch_of(rows), ms(model.mean_time(rows)));
            return Some(format!(
                "A {batch} takes {alone} ms on average, which is, with the way back, beyond the cap of {cap} ms: no number of runners helps. \
                 Raise the cap, or make the model faster."
            ));
        }
        let mut sentence = format!(
            "With {policy} the caps cost {:.2} % of the requests ({:.2} % refused, {:.2} % late)",
            lost(now),
            part(now.shed),
            part(now.late),
        );
        let is_better = |other: &Outcome| {
            lost(other) < NO_HELP * lost(now) || (now.on_time as f64) < NO_HELP * other.on_time as f64
        };
        let helps = self.remedies.iter().filter(|(_, outcome)| is_better(outcome));
        let helps: Vec<String> = helps.map(|(words, outcome)| format!("{:.2} % with {words}", lost(outcome))).collect();
        sentence += &match helps.is_empty() {
            true => "; half as much latency again, larger batches or one runner more would not help".to_owned(),
            false => format!("; it would be {}", helps.join(", ")),
        };
        let lost_requests = |class: &Class| class.counts.late + class.counts.shed;
        let hurried: u64 = now.classes().filter(|class| class.hurried).map(|class| lost_requests(&class)).sum();
        let part = 100.0 * hurried as f64 / (now.late + now.shed) as f64;
        if part > 50.0 {
            sentence += &format!("; {part:.0} % of those that are lost had deadlines of their own");
        }
        sentence.push('.');
        let others = self.results.iter().map(|trial| (&trial.policy, lost(&trial.outcomes[0])));
        let best = others.min_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, least)| least + NOT_BY_CAPS < lost(now));
        sentence.extend(
            best.map(|(other, least)| format!(" Not all of that is the caps' doing: {other} loses {least:.2} %.")),
        );
        sentence.extend(self.never_in_time(model));
        Some(sentence)
    }

    /// Which requests nothing helps, however many runners there are.
    fn never_in_time(&self, model: &Subject) -> Vec<String> {
        let (least, kept) = (model.load.least_rows(), kept_for_answering(model.max_latency));
        let time = model.mean_time(least);
        let (most, largest) = (model.most_in_time(model.max_latency), model.load.most_rows());
        let deadline = model.load.latest_own_deadline(time + kept).map(|own| {
            let (own, batch, time) = (ms(own), batch_of(least), ms(time));
            format!(
                " No number of runners meets a deadline of {own} ms: a {batch} takes {time} ms, the way back aside."
            )
        });
        let size = (largest > most).then(|| {
            format!(
                " Requests of more than {} take longer than the cap: no number of runners helps them.",
                plural(most, "row")
            )
        });
        deadline.into_iter().chain(size).collect()
    }
}

/// Requests a second, where they take any time to arrive.
pub(super) fn rate(requests: u64, length: Duration) -> Option<f64> {
    (!length.is_zero()).then(|| requests as f64 / length.as_secs_f64())
}

/// `batch of one row`
fn batch_of(rows: usize) -> String {
    if rows == 1 { "batch of one row".into() } else { format!("request of {rows} rows") }
}

fn has_classes(outcome: &Outcome) -> bool {
    outcome.classes().nth(1).is_some()
}

/// What tells a class from the others.
fn class_name(class: &Class, all: &[Class]) -> String {
    let levels = all.iter().any(|other| other.priority != class.priority);
    let hurries = all.iter().any(|other| other.hurried != class.hurried);
    let hurry = if class.hurried { "hurried" } else { "not hurried" };
    match (levels, hurries) {
        (true, true) => format!("priority {}, {hurry}", class.priority.level()),
        (true, false) => format!("priority {}", class.priority.level()),
        (false, _) => hurry.into(),
    }
}

/// What is known at the start.
fn start(plan: &Plan) -> &'static str {
    if plan.cold { "nothing is known of batch times at the start" } else { "batches were timed before the start" }
}

/// `one runner`
pub(super) fn runners(plan: &Plan) -> String {
    if plan.runners == 1 { "one runner".into() } else { format!("{} runners", plan.runners) }
}

/// `2 + 0.05·n ms`
pub(super) fn batch_time(plan: &Plan, service: &Service) -> String {
    format!("{} + {}·n ms", ms(service.base - plan.server), ms(service.per_row))
}

/// What the server itself takes, if anything.
pub(super) fn servers_own(plan: &Plan) -> Option<String> {
    (!plan.server.is_zero()).then(|| format!("each batch takes {} ms of the server's own as well", ms(plan.server)))
}

/// How batch times differ from that, if they do.
pub(super) fn disturbances(plan: &Plan, service: &Service) -> Option<String> {
    let mut parts = Vec::new();
    if service.jitter > 0.0 {
        parts.push(format!("noise of σ {}", service.jitter));
    }
    if service.straggle_share > 0.0 {
        parts.push(format!("{} % take {} times as long", 100.0 * service.straggle_share, service.straggle_factor));
    }
    let changes = service.changes.iter();
    parts.extend(changes.map(|(at, factor)| format!("× {factor} from {} s on", at.as_nanos() as f64 / 1e9)));
    if service.first_factor != 1.0 && plan.cold {
        parts.push(format!("the first × {}", service.first_factor));
    }
    if !service.sizes.is_any() {
        let sizes: Vec<String> = service.sizes.iter().map(|size| size.to_string()).collect();
        parts.push(format!("padded to {} rows", sizes.join(", ")));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Six digits behind the point are enough for anyone.
fn round(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}
