//! What became of a scenario's load, and the figures that a file can ask for.

use std::fmt;
use std::ops::Add;

use serde::Deserialize;
use uncork_core::policy::Priority;
use uncork_sim::Outcome;

/// A figure that a file gives a range for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Measure {
    /// Answers on time, as a share of the requests.
    OnTimeShare,
    /// Answers on time to requests of the highest priority, as a share of those.
    UrgentOnTimeShare,
    /// Answers on time, as a share of what was possible.
    OfOptimum,
    /// Answers past the cap, as a share of the requests.
    LateShare,
    /// Refusals, as a share of the requests.
    ShedShare,
    /// Mean latency of the answers.
    MeanMs,
    /// The latency that 99 % of the answers of a run do not exceed, its mean over the runs.
    P99Ms,
    /// Rows a batch.
    MeanBatchRows,
    /// Answers a second, as a share of what clients get that all ride in every batch.
    OfLockstep,
}

impl Measure {
    pub(crate) const ALL: [Measure; 9] = [
        Measure::OnTimeShare,
        Measure::UrgentOnTimeShare,
        Measure::OfOptimum,
        Measure::LateShare,
        Measure::ShedShare,
        Measure::MeanMs,
        Measure::P99Ms,
        Measure::MeanBatchRows,
        Measure::OfLockstep,
    ];
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Measure::OnTimeShare => "on_time_share",
            Measure::UrgentOnTimeShare => "urgent_on_time_share",
            Measure::OfOptimum => "of_optimum",
            Measure::LateShare => "late_share",
            Measure::ShedShare => "shed_share",
            Measure::MeanMs => "mean_ms",
            Measure::P99Ms => "p99_ms",
            Measure::MeanBatchRows => "mean_batch_rows",
            Measure::OfLockstep => "of_lockstep",
        })
    }
}

/// Sums over one run or several.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) offered: u64,
    pub(crate) on_time: u64,
    pub(crate) late: u64,
    /// Of the highest priority.
    pub(crate) urgent: u64,
    pub(crate) urgent_on_time: u64,
    pub(crate) shed: u64,
    pub(crate) batches: u64,
    pub(crate) rows: u64,
    /// Of all answers together, in ms.
    pub(crate) latency_ms: f64,
    /// Of each run, times its answers; where it is not told 0.
    pub(crate) p99_ms: f64,
    pub(crate) span_s: f64,
    /// On time at best.
    pub(crate) optimum: u64,
    /// Answers of clients that all ride in every batch.
    pub(crate) lockstep: f64,
}

impl From<Outcome> for Counts {
    fn from(outcome: Outcome) -> Counts {
        Counts {
            offered: outcome.offered,
            on_time: outcome.on_time,
            late: outcome.late,
            urgent: outcome.of_priority(Priority::HIGHEST).offered,
            urgent_on_time: outcome.of_priority(Priority::HIGHEST).on_time,
            shed: outcome.shed,
            batches: outcome.batches,
            rows: outcome.rows,
            latency_ms: outcome.mean_latency().as_secs_f64() * 1e3 * outcome.answers() as f64,
            p99_ms: outcome.latency(0.99).as_secs_f64() * 1e3 * outcome.answers() as f64,
            span_s: outcome.span.as_secs_f64(),
            optimum: 0,
            lockstep: 0.0,
        }
    }
}

impl Add for Counts {
    type Output = Counts;

    fn add(self, other: Counts) -> Counts {
        Counts {
            offered: self.offered + other.offered,
            on_time: self.on_time + other.on_time,
            late: self.late + other.late,
            urgent: self.urgent + other.urgent,
            urgent_on_time: self.urgent_on_time + other.urgent_on_time,
            shed: self.shed + other.shed,
            batches: self.batches + other.batches,
            rows: self.rows + other.rows,
            latency_ms: self.latency_ms + other.latency_ms,
            p99_ms: self.p99_ms + other.p99_ms,
            span_s: self.span_s + other.span_s,
            optimum: self.optimum + other.optimum,
            lockstep: self.lockstep + other.lockstep,
        }
    }
}

impl Counts {
    pub(crate) fn figure(&self, measure: Measure) -> f64 {
        let answers = (self.on_time + self.late) as f64;
        let share = |count: u64| count as f64 / self.offered as f64;
        match measure {
            Measure::OnTimeShare => share(self.on_time),
            Measure::UrgentOnTimeShare => self.urgent_on_time as f64 / self.urgent as f64,
            Measure::OfOptimum => self.on_time as f64 / self.optimum as f64,
            Measure::LateShare => share(self.late),
            Measure::ShedShare => share(self.shed),
            Measure::MeanMs => self.latency_ms / answers,
            Measure::P99Ms => self.p99_ms / answers,
            Measure::MeanBatchRows => self.rows as f64 / self.batches as f64,
            Measure::OfLockstep => answers / self.lockstep,
        }
    }
}
