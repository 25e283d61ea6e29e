//! What anyone could have answered on time, knowing the future: as far as that can be said.

use super::plan::{Plan, Subject, mean_factor};
use uncork_core::estimator::Instant;

/// Requests times rows of a batch beyond which the optimum takes more than some ten seconds.
const MOST_WORK: usize = 600_000_000;
/// Arrivals that are held in memory for it.
const MOST_ARRIVALS: usize = 20_000_000;

/// How many requests the clairvoyant answers on time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clairvoyant {
    /// So many.
    Exact(u64),
    /// So many if every batch takes its mean time.
    OfMeanTimes(u64),
    /// No more than so many.
    AtMost(u64),
    /// That is not known, for this reason.
    Unknown(&'static str),
}

impl Clairvoyant {
    pub(super) fn new(plan: &Plan) -> Clairvoyant {
        let Some(Subject { service, max_latency, max_batch, load, .. }) = plan.only() else {
            return Clairvoyant::Unknown("of models that share their runners it is not computed");
        };
        let (max_latency, max_batch) = (*max_latency, *max_batch);
        if !load.is_open() {
            return Clairvoyant::Unknown("clients that wait for answers send other requests to each policy");
        }
        if load.most_rows() > 1 {
            return Clairvoyant::Unknown("with requests of several rows it is not computed");
        }
        if !service.changes.is_empty() {
            return Clairvoyant::Unknown("where the speed changes in mid-run it is not computed");
        }
        let one_runner = plan.runners == 1;
        let most = if one_runner { MOST_ARRIVALS.min(MOST_WORK / max_batch) } else { MOST_ARRIVALS };
        let mut source = load.source();
        let instants: Vec<Instant> = std::iter::from_fn(|| source.pop()).map(|a| a.at).take(most + 1).collect();
        if instants.len() > most {
            return Clairvoyant::Unknown("for so many requests it would take too long");
        }
        let factor = mean_factor(service);
        let (base, per_row) = (service.base.mul_f64(factor), service.per_row.mul_f64(factor));
        if !one_runner {
            let bound = uncork_sim::upper_bound(&instants, base, per_row, max_latency, max_batch, plan.runners);
            return Clairvoyant::AtMost(bound as u64);
        }
        let optimum = uncork_sim::optimum(&instants, base, per_row, max_latency, max_batch) as u64;
        if !service.sizes.is_any() || load.has_own_deadlines(max_latency) {
            // Padding only adds to the times of which this is the optimum, and nobody's deadline is later than the cap's.
            Clairvoyant::AtMost(optimum)
        } else if service.is_exact() {
            Clairvoyant::Exact(optimum)
        } else {
            Clairvoyant::OfMeanTimes(optimum)
        }
    }

    /// The number of requests, if any is known.
    pub(super) fn requests(self) -> Option<u64> {
        match self {
            Clairvoyant::Exact(n) | Clairvoyant::OfMeanTimes(n) | Clairvoyant::AtMost(n) => Some(n),
            Clairvoyant::Unknown(_) => None,
        }
    }

    /// What to call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Clairvoyant::AtMost(_) => "bound",
            _ => "optimum",
        }
    }

    /// What a reader must know of it, if anything.
    pub(super) fn caveat(self) -> Option<String> {
        match self {
            Clairvoyant::Exact(_) => None,
            Clairvoyant::OfMeanTimes(_) => Some(
                "The optimum is that of the mean batch times; a lucky run may pass it, an unlucky one cannot reach it."
                    .into(),
            ),
            Clairvoyant::AtMost(_) => {
                Some("The bound is what nobody could exceed; what can be reached is less.".into())
            }
            Clairvoyant::Unknown(why) => Some(format!("No optimum: {why}.")),
        }
    }
}
