//! How the requests of one model ended, and where the time of those that were answered went.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::Outcome;
use crate::metrics::{ModelMetrics, Stage};
use crate::statistics::Statistics;

/// Where requests are counted.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) metrics: ModelMetrics,
    pub(super) statistics: Statistics,
    pub(super) max_latency: Duration,
    /// By [`Outcome`], since the start: handles to metrics cannot be read.
    pub(super) totals: [AtomicU64; Outcome::ALL.len()],
}

impl Counts {
    /// Counts a request that has ended so.
    pub(super) fn count(&self, outcome: Outcome) {
        self.metrics.count_request(outcome);
        self.totals[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a request once, however it ends; dropped without a word, its caller has left.
///
/// An answered request has taken the time from its arrival until this is dropped, so whoever writes the answer drops it
/// behind that.
#[derive(Debug)]
pub struct Count {
    pub(super) counts: Arc<Counts>,
    pub(super) arrival: tokio::time::Instant,
    pub(super) outcome: Outcome,
    /// Where the time went, if there is an answer.
    pub(super) stages: Option<Stages>,
    /// The trace that it can be looked up in.
    pub(super) trace: Option<u128>,
}

/// Where an answered request's time went up to its outputs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stages {
    pub(super) receive: Duration,
    /// From arrival to tensors.
    pub(super) decoded: Duration,
    /// From arrival to release.
    pub(super) queue: Duration,
    pub(super) assemble: Duration,
    pub(super) execute: Duration,
    /// From arrival to outputs.
    pub(super) outputs: Duration,
}

impl Stages {
    /// In the order of [`Stage::ALL`], of a request that took so long in all.
    fn times(self, took: Duration) -> [Duration; Stage::ALL.len()] {
        let Stages { receive, decoded, queue, assemble, execute, outputs } = self;
        // A part of a request that was split may have been released while another was still waiting.
        let handover = outputs.saturating_sub(queue + assemble + execute);
        let decode = decoded.saturating_sub(receive);
        [receive, decode, queue.saturating_sub(decoded), assemble, execute, handover, took.saturating_sub(outputs)]
    }
}

impl Count {
    /// How the request has ended, if this is dropped now.
    pub fn outcome(&self) -> Outcome {
        let is_late = self.stages.is_some() && self.arrival.elapsed() > self.counts.max_latency;
        if is_late { Outcome::Late } else { self.outcome }
    }

    /// All of the request was in at `at`, before its tensors were. Without this word, its stage `decode` begins with its arrival.
    pub fn received(&mut self, at: tokio::time::Instant) {
        if let Some(stages) = &mut self.stages {
            stages.receive = at.saturating_duration_since(self.arrival).min(stages.decoded);
        }
    }

    /// What the model says of the request is that it is bad: refused, and no answer.
    pub fn invalid(mut self) {
        (self.outcome, self.stages) = (Outcome::Invalid, None);
    }

    /// The caller cannot be told what the model said, as a NaN where only numbers can be written: a failure, no answer.
    pub fn failed(mut self) {
        (self.outcome, self.stages) = (Outcome::Failed, None);
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        if let Some(stages) = self.stages {
            let took = self.arrival.elapsed();
            let times = stages.times(took);
            self.counts.metrics.record_request(took, self.trace);
            self.counts.metrics.record_stages(times);
            self.counts.statistics.answered(took, times);
            if took > self.counts.max_latency {
                self.outcome = Outcome::Late;
            }
        } else {
            self.counts.statistics.unanswered(self.arrival.elapsed());
        }
        self.counts.count(self.outcome);
    }
}
