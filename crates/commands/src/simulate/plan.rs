//! What is simulated, whoever decides: the models with their loads, and the runners that they share.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::load::Load;
use super::progress::{Progress, Watched};
use uncork_core::policy::{BatchSizes, Policy, kept_for_answering};
use uncork_sim::{Model, Outcome, Scenario, Service, Several};

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

    /// With half as much latency again for every model.
    pub(super) fn with_more_latency(&self) -> Plan {
        let raised = |subject: &Subject| Subject { max_latency: more_latency(subject), ..subject.clone() };
        Plan { models: self.models.iter().map(raised).collect(), ..*self }
    }

    /// With batches half as large again for every model.
    pub(super) fn with_larger_batches(&self) -> Plan {
        let raised = |subject: &Subject| {
            let mut larger = Subject { max_batch: larger_batch(subject), ..subject.clone() };
            if larger.service.sizes.largest().is_some_and(|size| size < larger.max_batch) {
                let sizes = larger.service.sizes.iter().chain([larger.max_batch]).collect();
                larger.service.sizes = BatchSizes::rising(sizes).unwrap_or_default(); // they rise: the new one is the largest
            }
            larger
        };
        Plan { models: self.models.iter().map(raised).collect(), ..*self }
    }

    /// The most rows a second of this model that can be answered in time if it has every runner.
    pub(super) fn capacity(&self, subject: &Subject) -> f64 {
        capacity(&subject.service, subject.max_latency, subject.max_batch, self.runners)
    }
}

/// The most rows a second that can be answered in time: by the largest batch within both caps, on every runner.
pub(super) fn capacity(service: &Service, max_latency: Duration, max_batch: usize, runners: usize) -> f64 {
    let factor = mean_factor(service);
    let within = max_latency - kept_for_answering(max_latency);
    let in_time = |rows: &usize| service.time(*rows).mul_f64(factor) <= within;
    let speed = |rows: usize| rows as f64 / service.time(rows).as_secs_f64() / factor;
    let rows = (1..=max_batch).rev().find(in_time);
    rows.map_or(0.0, |rows| speed(rows) * runners as f64)
}

/// How much longer than base + rows · per_row batches take on average, changes in mid-run aside.
pub(super) fn mean_factor(service: &Service) -> f64 {
    1.0 + service.straggle_share * (service.straggle_factor - 1.0)
}

/// The latency cap and half of it.
pub(super) fn more_latency(subject: &Subject) -> Duration {
    subject.max_latency * 3 / 2
}

/// The batch cap and half of it.
pub(super) fn larger_batch(subject: &Subject) -> usize {
    (subject.max_batch * 3).div_ceil(2)
}
