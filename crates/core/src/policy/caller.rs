//! Who asks, where that is known.

use std::num::NonZeroU32;

use super::Priority;

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

/// What one caller has waiting.
#[derive(Debug, Clone, Copy)]
pub(super) struct Holding {
    pub(super) rows: u64,
    pub(super) weight: NonZeroU32,
}

impl Default for Holding {
    fn default() -> Holding {
        Holding { rows: 0, weight: NonZeroU32::MIN }
    }
}

impl Holding {
    /// How these compare, each by the weight of its caller.
    pub(super) fn compare(&self, other: &Holding) -> std::cmp::Ordering {
        let product = |rows: u64, weight: NonZeroU32| u128::from(rows) * u128::from(weight.get());
        product(self.rows, other.weight).cmp(&product(other.rows, self.weight))
    }
}
