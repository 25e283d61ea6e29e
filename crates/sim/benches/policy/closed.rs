//! Throughput of closed loops: N clients that each wait for an answer, think and ask again.

use std::time::Duration;

use serde_json::json;
use uncork_core::estimator::Instant;
use uncork_core::policy::{Decision, Policy, ReleaseReason, View};
use uncork_sim::ClosedLoop;

use crate::case::{CORK, EAGER, Make, Setup, ms, only};
use crate::report::{Asked, Report, summary};

/// α ≥ 10 β, with a cap that does not matter.
const SETUPS: [Setup; 4] = [at(5.0, 0.05), at(10.0, 0.5), at(10.0, 1.0), at(20.0, 0.5)];
/// Thinking times, in α.
const THINKS: [f64; 7] = [0.0, 0.1, 0.3, 0.6, 0.9, 1.5, 3.0];
/// σ of the thinking times' log-normal factor.
const JITTERS: [f64; 3] = [0.0, 0.1, 0.5];
/// Length of each run in α, its learning included; and of a rival's, who has nothing to learn.
const LENGTH: f64 = 4000.0;
const LENGTH_TOLD: f64 = 1000.0;

/// A rival that is told how many clients there are. It waits for so many of them, for so long after its runner came free at most,
/// and then releases up to so many.
#[derive(Debug, Clone, Copy)]
struct Told {
    at_least: usize,
    at_most: usize,
    wait: Duration,
}

/// How many the rivals wait for, as shares of the clients, and for how long at most, in α.
const SHARES: [f64; 7] = [1.0, 0.9375, 0.75, 0.5, 0.375, 0.25, 0.125];
const WAITS: [f64; 3] = [0.5, 1.0, 100.0];
/// Groups that take turns.
const GROUPS: [usize; 3] = [2, 3, 4];

impl Policy for Told {
    fn decide(&self, now: Instant, view: View<'_>) -> Decision {
        let Some(first) = view.queue.first() else { return Decision::Park };
        if !view.has_free_runner() {
            return Decision::WaitUntil(now + Duration::from_secs(3600)); // a landing comes sooner
        }
        let until = view.free_since.max(first.arrival) + self.wait;
        let entries = view.queue.len().min(self.at_most).min(view.max_batch);
        if view.queue.len() >= self.at_least || until <= now {
            return Decision::Release { entries, reason: ReleaseReason::Ripe };
        }
        Decision::WaitUntil(until)
    }
}

const fn at(base: f64, per_row: f64) -> Setup {
    Setup { base, per_row, max_batch: 128, max_latency: 100.0 * base }
}

/// All models, or the first only.
pub(crate) fn measure(all: bool, report: &mut Report) {
    let rivals = SHARES.len() * WAITS.len() + GROUPS.len() + 1;
    report.text(&format!(
        "Answers in per cent of N/(t(N) + think): cork, eager, the best of {rivals} rules after the fact. Those are told N, and how long \
         to wait for which part of it; eager is among them. Thinking times in α; {LENGTH} α each. Where thinking times scatter, a batch of all \
         waits for the slowest, and nothing reaches 100. Where callers think for long, groups that take turns exceed it."
    ));
    let (mut rows, mut data) = (Vec::new(), Vec::new());
    let mut shares = [const { Vec::new() }; JITTERS.len()];
    for setup in SETUPS.into_iter().take(if all { SETUPS.len() } else { 1 }) {
        for clients in [16, 64] {
            for (jitter, shares) in JITTERS.into_iter().zip(&mut shares) {
                let mut row =
                    vec![format!("{} + {}·n", setup.base, setup.per_row), clients.to_string(), jitter.to_string()];
                for think in THINKS {
                    report.progress(&format!("{setup}, {clients} clients, jitter {jitter}, think {think}"));
                    let [cork, eager] = [CORK, EAGER].map(|(_, make)| share(&setup, make, clients, think, jitter));
                    let (best, rule) = best(&setup, clients, think, jitter);
                    let best = best.max(eager);
                    row.push(format!("{cork:.0} / {eager:.0} / {best:.0}"));
                    shares.push(cork / best * 100.0);
                    data.push(json!({
                        "base": setup.base, "per_row": setup.per_row, "clients": clients, "think_in_base": think,
                        "jitter": jitter, "cork": cork, "eager": eager, "best": best, "rule": rule,
                    }));
                }
                rows.push(row);
            }
        }
    }
    let thinks: Vec<String> = THINKS.iter().map(|think| format!("think {think}")).collect();
    let header: Vec<&str> = ["batch, ms", "N", "jitter"].into_iter().chain(thinks.iter().map(String::as_str)).collect();
    report.table(&header, &rows);
    report.data("cases", json!(data));
    for (jitter, shares) in JITTERS.into_iter().zip(shares) {
        let (mean, worst, _) = summary(shares);
        let what = |which| format!("closed loop, {which} share of the best known, jitter {jitter}");
        report.figure(&what("mean"), Asked::AtLeast(98.0), mean, "%");
        report.figure(&what("worst"), Asked::AtLeast(95.0), worst, "%");
    }
}

/// The most that a rival gets, in per cent of N/(t(N) + think), and which.
fn best(setup: &Setup, clients: usize, think: f64, jitter: f64) -> (f64, String) {
    let rows = |share: f64| ((clients as f64 * share).round() as usize).max(1);
    let waiting = SHARES.into_iter().flat_map(|share| WAITS.map(|wait| (rows(share), usize::MAX, wait)));
    let groups = GROUPS.map(|groups| clients.div_ceil(groups)).map(|group| (group, group, WAITS[WAITS.len() - 1]));
    let told = waiting.chain(groups).map(|(at_least, at_most, wait)| {
        let rule = Told { at_least, at_most, wait: ms(wait * setup.base) };
        (run(setup, Box::new(rule), clients, think, jitter, LENGTH_TOLD), format!("{at_least} to {at_most}, {wait} α"))
    });
    told.max_by(|a, b| a.0.total_cmp(&b.0)).expect("there are rivals")
}

/// Answers in per cent of what all clients in one batch each time would get.
pub(crate) fn share(setup: &Setup, make: Make, clients: usize, think: f64, jitter: f64) -> f64 {
    run(setup, make(setup), clients, think, jitter, LENGTH)
}

fn run(setup: &Setup, policy: Box<dyn Policy>, clients: usize, think: f64, jitter: f64, length: f64) -> f64 {
    let (think, length) = (think * setup.base, length * setup.base);
    let mut source = ClosedLoop::new(clients, ms(think), jitter, Instant::EPOCH + ms(length), 3);
    let outcome = only(setup.scenario(policy, setup.service(), 1), &mut source);
    let ideal = clients as f64 / (setup.time(clients) + think);
    outcome.on_time as f64 / length / ideal * 100.0
}
