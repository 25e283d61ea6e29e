//! Where a scenario's requests come from.

use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use uncork_core::estimator::Instant;
use uncork_core::policy::Priority;
use uncork_sim::{Arrival, ClosedLoop, OpenLoop, Source};

/// An open or a closed loop.
pub(crate) enum Load {
    Open(OpenLoop<std::vec::IntoIter<Arrival>>),
    Closed(ClosedLoop),
}

impl Source for Load {
    fn peek(&self) -> Option<Instant> {
        match self {
            Load::Open(open) => open.peek(),
            Load::Closed(closed) => closed.peek(),
        }
    }

    fn pop(&mut self) -> Option<Arrival> {
        match self {
            Load::Open(open) => open.pop(),
            Load::Closed(closed) => closed.pop(),
        }
    }

    fn answered(&mut self, model: usize, at: Instant) {
        match self {
            Load::Open(open) => open.answered(model, at),
            Load::Closed(closed) => closed.answered(model, at),
        }
    }
}

/// Draws rows, latency caps and priorities of requests.
pub(crate) struct Mix<'a> {
    rows: &'a [usize],
    within: &'a [Duration],
    priorities: &'a [Priority],
    rng: Xoshiro256PlusPlus,
}

impl<'a> Mix<'a> {
    pub(crate) fn new(rows: &'a [usize], within: &'a [Duration], priorities: &'a [Priority], seed: u64) -> Mix<'a> {
        Mix { rows, within, priorities, rng: Xoshiro256PlusPlus::seed_from_u64(!seed) }
    }

    pub(crate) fn arrival(&mut self, at: Instant) -> Arrival {
        let rows = self.rows[self.rng.random_range(0..self.rows.len())];
        let own = (!self.within.is_empty()).then(|| self.within[self.rng.random_range(0..self.within.len())]);
        let priority = match self.priorities {
            [one] => *one,
            several => several[self.rng.random_range(0..several.len())],
        };
        Arrival { rows, within: own, priority, ..Arrival::at(at) }
    }
}
