//! Who asks, where that is known.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::num::NonZeroU32;

use super::Priority;
use crate::estimator::Instant;

/// One of those who ask, as far as it matters who is who: under overload each has his part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// Tells callers apart. 0 is everybody who is not told apart: these have no part of their own, and nobody takes any from them.
    pub id: u64,
    /// His part beside the others', in a unit that is the same for all.
    pub weight: NonZeroU32,
    /// The most urgent priority that he may give to what he asks for.
    pub most_urgent: Priority,
}

impl Default for Caller {
    /// Everybody, where callers are not told apart.
    fn default() -> Caller {
        Caller { id: 0, weight: NonZeroU32::MIN, most_urgent: Priority::HIGHEST }
    }
}

/// What one caller has waiting, and what he was given of late.
#[derive(Debug, Clone)]
pub(super) struct Holding {
    /// Rows that wait.
    pub(super) rows: u64,
    /// Rows of his in the latest batches.
    pub(super) served: u64,
    pub(super) weight: NonZeroU32,
    /// What waits, by deadline and id.
    pub(super) waiting: BTreeSet<(Instant, u64)>,
}

impl Default for Holding {
    fn default() -> Holding {
        Holding { rows: 0, served: 0, weight: NonZeroU32::MIN, waiting: BTreeSet::new() }
    }
}

impl Holding {
    /// What he takes: what waits, and twice what he was given. Of two who are given as much, more waits of the one who gives his
    /// requests more time, and he is not to lose much by that.
    fn taken(&self) -> u64 {
        self.rows + 2 * self.served
    }

    /// How what these take compares, each by the weight of its caller.
    pub(super) fn compare(&self, other: &Holding) -> Ordering {
        self.times(1, other)
    }

    /// How what this one takes compares with so many times what the other does.
    pub(super) fn times(&self, factor: u64, other: &Holding) -> Ordering {
        self.compare_rows(self.taken(), factor * other.taken(), other)
    }

    /// How it would compare with so many rows less.
    pub(super) fn without(&self, rows: usize, other: &Holding) -> Ordering {
        self.compare_rows(self.taken() - rows as u64, other.taken(), other)
    }

    fn compare_rows(&self, own: u64, others: u64, other: &Holding) -> Ordering {
        let product = |rows: u64, weight: NonZeroU32| u128::from(rows) * u128::from(weight.get());
        product(own, other.weight).cmp(&product(others, self.weight))
    }
}
