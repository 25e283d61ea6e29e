//! Clipper's rule (Crankshaw et al., NSDI 2017): a batch size that grows by addition and shrinks by multiplication.

use std::time::Duration;

use super::{Decision, Fixed, Policy, Running, View};
use crate::estimator::Instant;

/// Rows that the limit grows by when a batch of its order met the objective. More: quicker up; less: fewer late answers.
const STEP: f64 = 4.0;
/// What is left of the limit when a batch missed it.
const BACK_OFF: f64 = 0.9;
/// The objective, as a share of the latency cap.
const OBJECTIVE: f64 = 0.6;

/// Releases whatever waits, up to a limit, as soon as a runner is free. The limit is raised by a constant while batches
/// of its order keep to the objective, and cut by a tenth when a batch exceeds it.
///
/// The objective is a share of the latency cap and the rest of the cap is the queue timeout: who arrives just after a batch
/// was released waits for all of it before its own begins. The paper's objective, the whole cap without a timeout, makes
/// less than half as many answers timely. Share and step are those with the most timely answers over five service models,
/// five arrival processes and three loads.
#[derive(Debug, Clone)]
pub struct Aimd {
    objective: Duration,
    timeout: Duration,
    limit: f64,
}

impl Aimd {
    /// For answers due within `max_latency` of their arrival. Begins with batches of one row.
    #[must_use]
    pub fn new(max_latency: Duration) -> Aimd {
        let objective = max_latency.mul_f64(OBJECTIVE);
        Aimd { objective, timeout: max_latency - objective, limit: 1.0 }
    }

    /// Most rows of a batch at present.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit as usize
    }
}

impl Policy for Aimd {
    fn decide(&self, now: Instant, view: View<'_>) -> Decision {
        Fixed { wait: Duration::ZERO, size: self.limit(), timeout: self.timeout }.decide(now, view)
    }

    fn landed(&mut self, now: Instant, batch: &Running) {
        if now.since(batch.since) > self.objective {
            self.limit = (self.limit * BACK_OFF).max(1.0);
        } else if batch.rows as f64 > self.limit / 2.0 {
            // A much smaller batch says nothing about the limit: without this, it would grow for as long as the load is
            // light. It need not be full either, for the next request may have too many rows.
            self.limit += STEP;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rule for answers within 100 ms after batches of so many rows and milliseconds.
    fn after(batches: &[(usize, u64)]) -> Aimd {
        let mut aimd = Aimd::new(Duration::from_millis(100));
        for &(rows, ms) in batches {
            let waited = Duration::ZERO;
            let batch = Running { ticket: 0, lane: 0, since: Instant::EPOCH, entries: 1, rows, waited, expected: None };
            aimd.landed(Instant::EPOCH + Duration::from_millis(ms), &batch);
        }
        aimd
    }

    #[test]
    fn the_limit_grows_by_a_constant_and_shrinks_by_a_tenth() {
        assert_eq!(after(&[]).limit(), 1);
        assert_eq!(after(&[(1, 60), (5, 60), (9, 60)]).limit(), 13);
        assert_eq!(after(&[(1, 60), (5, 60), (9, 61)]).limit(), 8);
        assert_eq!(after(&[(1, 61); 9]).limit(), 1, "never below a row");
    }

    #[test]
    fn batches_far_below_the_limit_do_not_raise_it() {
        assert_eq!(after(&[(1, 1), (5, 1), (4, 1), (1, 1), (1, 1)]).limit(), 9);
    }
}
