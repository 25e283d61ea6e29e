//! What is simulated, whoever decides: the models with their loads, and the runners that they share.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::load::Load;
use super::progress::{Progress, Watched};
use super::values;
use crate::layout::{ms, plural};
use uncork_core::estimator::Instant;
use uncork_core::policy::{BatchSizes, Policy, kept_for_answering};
use uncork_sim::{Arrival, Model, Outcome, Scenario, Service, Several};

/// A server without its policies, and its callers.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) runners: usize,
    pub(super) seed: u64,
    /// Whether no batches are timed before the first request.
    pub(super) cold: bool,
    /// What the server itself takes around each batch. It is part of every model's `base`.
    pub(super) server: Duration,
    /// At least one.
    pub(super) models: Vec<Subject>,
}

/// A simulated model and its callers.
#[derive(Clone)]
pub(super) struct Subject {
    /// Empty for one that is alone and needs none.
    pub(super) name: String,
    pub(super) service: Service,
    pub(super) max_latency: Duration,
    pub(super) max_batch: usize,
    /// The most rows that were tried at the start; `None` if all were.
    pub(super) tried: Option<usize>,
    pub(super) weight: NonZeroUsize,
    pub(super) load: Load,
}

impl Plan {
    /// Files count from the first arrival of all of them: time stamps then begin where the processes do.
    pub(super) fn align(&mut self) {
        let first = |subject: &Subject| {
            if let Load::Trace(arrivals) = &subject.load { Some(arrivals.first()?.at) } else { None }
        };
        let Some(first) = self.models.iter().filter_map(first).min() else { return };
        let begin = first.since(Instant::EPOCH);
        for subject in &mut self.models {
            if let Load::Trace(arrivals) = &mut subject.load {
                *arrivals = arrivals.iter().map(|a| Arrival { at: a.at - begin, ..*a }).collect();
            }
        }
    }

    /// Whether batches still run when a model's speed is to change: what is asked for and never happens would be taken for no harm.
    /// Files are aligned by then; a message calls the change and the load's length so.
    ///
    /// # Errors
    /// The number of a model whose load is over by then, and what is to be said of it.
    pub(super) fn check_changes(&self, change: &str, length: &str) -> Result<(), (usize, String)> {
        for (number, model) in self.models.iter().enumerate() {
            for (at, _) in &model.service.changes {
                model.load.is_there(at.since(Instant::EPOCH), change, length).map_err(|why| (number, why))?;
            }
        }
        Ok(())
    }

    /// The model, where there is one only.
    pub(super) fn only(&self) -> Option<&Subject> {
        if let [only] = &self.models[..] { Some(only) } else { None }
    }

    /// Lets all requests arrive, with such a policy for each model. One outcome a model.
    pub(super) fn run(&self, policy: impl Fn(&Subject) -> Box<dyn Policy>, progress: &Progress) -> Vec<Outcome> {
        uncork_sim::run(self.scenario(self.models.iter().map(policy).collect()), &mut self.source(progress))
    }

    /// The pool with a policy for each model, ready to run.
    pub(super) fn scenario(&self, policies: Vec<Box<dyn Policy>>) -> Scenario {
        let model = |(subject, policy): (&Subject, Box<dyn Policy>)| Model {
            service: subject.service.clone(),
            max_latency: subject.max_latency,
            max_batch: subject.max_batch,
            weight: subject.weight,
            policy,
            tried: Some(subject.tried.unwrap_or(subject.max_batch)), // a server has rows of its own
            way_back: kept_for_answering(subject.max_latency),
            warm: !self.cold,
        };
        // The noise must not be drawn from the numbers that made the arrivals.
        let seed = self.seed.rotate_left(32) ^ 1;
        Scenario {
            runners: self.runners,
            models: self.models.iter().zip(policies).map(model).collect(),
            seed,
            timer: Duration::ZERO,
        }
    }

    /// The requests from the first one on, the same ones each time.
    pub(super) fn source<'a>(&'a self, progress: &'a Progress) -> impl uncork_sim::Source + 'a {
        Watched::new(Several::new(self.models.iter().map(|subject| subject.load.source()).collect()), progress)
    }

    /// From the first to the last arrival, about.
    pub(super) fn length(&self) -> Duration {
        self.models.iter().map(|subject| subject.load.length()).max().unwrap_or_default()
    }

    /// This model with the whole pool to itself.
    pub(super) fn alone(&self, subject: &Subject) -> Plan {
        Plan { models: vec![subject.clone()], ..*self }
    }

    /// What may help a model that is alone, in words, and the plan with that: half as much latency again, batches half as large again,
    /// and one runner more, as far as the flags take them.
    pub(super) fn remedies(&self) -> Vec<(String, Plan)> {
        let Some(model) = self.only() else { return Vec::new() };
        let with = |model: Subject| Plan { models: vec![model], ..*self };
        let (latency, batch, runners) =
            (model.max_latency * 3 / 2, (model.max_batch * 3).div_ceil(2), self.runners + 1);
        let mut remedies = Vec::new();
        if latency <= values::LONGEST_LATENCY {
            let words = format!("{} ms instead of {}", ms(latency), ms(model.max_latency));
            remedies.push((words, with(Subject { max_latency: latency, ..model.clone() })));
        }
        if batch <= *values::BATCH.end() {
            let mut larger = Subject { max_batch: batch, ..model.clone() };
            if larger.service.sizes.largest().is_some_and(|size| size < batch) {
                let sizes = larger.service.sizes.iter().chain([batch]).collect();
                larger.service.sizes = BatchSizes::rising(sizes).unwrap_or_default(); // they rise: the new one is the largest
            }
            remedies.push((format!("batches of {batch} instead of {}", plural(model.max_batch, "row")), with(larger)));
        }
        if runners <= *values::RUNNERS.end() {
            let words = format!("{runners} runners instead of {}", self.runners);
            remedies.push((words, Plan { runners, models: self.models.clone(), ..*self }));
        }
        remedies
    }

    /// The most rows a second of this model that can be answered in time if it has every runner.
    pub(super) fn capacity(&self, subject: &Subject) -> f64 {
        let most = subject.most_in_time(subject.max_latency);
        if most < subject.load.least_rows() { 0.0 } else { speed(&subject.service, most, self.runners) }
    }
}

impl Subject {
    /// The most rows of a batch that is on average in time for a request that is due so soon after its arrival; 0 where none is.
    pub(super) fn most_in_time(&self, due: Duration) -> usize {
        let within = due.saturating_sub(kept_for_answering(self.max_latency));
        most_within(&self.service, within, self.max_batch)
    }

    /// The mean time of a batch of so many rows.
    pub(super) fn mean_time(&self, rows: usize) -> Duration {
        self.service.time(rows).mul_f64(mean_factor(&self.service))
    }
}

/// The most rows a second that can be answered in time: by the largest batch within both caps, on every runner.
pub(super) fn capacity(service: &Service, max_latency: Duration, max_batch: usize, runners: usize) -> f64 {
    let within = max_latency - kept_for_answering(max_latency);
    speed(service, most_within(service, within, max_batch), runners)
}

fn most_within(service: &Service, within: Duration, max_batch: usize) -> usize {
    let factor = mean_factor(service);
    (1..=max_batch).rev().find(|&rows| service.time(rows).mul_f64(factor) <= within).unwrap_or(0)
}

/// Rows a second in batches of so many.
fn speed(service: &Service, rows: usize, runners: usize) -> f64 {
    if rows == 0 { 0.0 } else { rows as f64 / service.time(rows).as_secs_f64() / mean_factor(service) * runners as f64 }
}

/// How much longer than base + rows · per_row batches take on average, changes in mid-run aside.
pub(super) fn mean_factor(service: &Service) -> f64 {
    1.0 + service.straggle_share * (service.straggle_factor - 1.0)
}
