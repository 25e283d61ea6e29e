//! Which runs of a random load are made.

use std::fmt;
use std::ops::RangeInclusive;

/// Seeds that follow each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seeds {
    /// At least 1.
    pub(crate) first: u64,
    pub(crate) count: u64,
}

impl Seeds {
    /// Each of them.
    pub(crate) fn all(self) -> RangeInclusive<u64> {
        self.first..=self.first + (self.count - 1)
    }

    /// At most so many.
    pub(crate) fn at_most(self, count: u64) -> Seeds {
        Seeds { count: self.count.min(count), ..self }
    }

    /// So many for each.
    pub(crate) fn times(self, count: u64) -> Seeds {
        Seeds { first: (self.first - 1) * count + 1, count: self.count * count }
    }

    /// Others: so many behind these.
    pub(crate) fn after(self, seeds: u64) -> Seeds {
        Seeds { first: self.first + seeds, ..self }
    }
}

/// How many.
impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.count.fmt(f)
    }
}
