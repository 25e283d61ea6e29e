//! Sizes of batches, where a model cannot run any.

use crate::estimator::Fit;

/// The sizes, in rows, that a model runs; a batch of another size is padded to the next one and takes as long as that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BatchSizes {
    /// Rising; empty where any size can run.
    sizes: Vec<usize>,
}

impl BatchSizes {
    /// A model that runs batches of any size.
    pub const ANY: &'static BatchSizes = &BatchSizes { sizes: Vec::new() };

    /// These sizes; `None` unless each is larger than the one before it, and the first at least 1. Without any, all sizes
    /// can run.
    #[must_use]
    pub fn rising(sizes: Vec<usize>) -> Option<BatchSizes> {
        let rise = std::iter::once(&0).chain(&sizes).is_sorted_by(|a, b| a < b);
        rise.then_some(BatchSizes { sizes })
    }

    /// Whether batches of any size can run.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.sizes.is_empty()
    }

    /// The sizes, rising; none where any can run.
    #[must_use]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        self.sizes.iter().copied()
    }

    /// The largest; `None` where any size can run.
    #[must_use]
    pub fn largest(&self) -> Option<usize> {
        self.sizes.last().copied()
    }

    /// Rows that a batch of `rows` has once it is padded. Beyond the largest size nothing is.
    #[inline]
    #[must_use]
    pub fn padded(&self, rows: usize) -> usize {
        if self.sizes.is_empty() {
            return rows; // nearly always, and asked several times for each request
        }
        let next = self.sizes.partition_point(|&size| size < rows);
        self.sizes.get(next).copied().unwrap_or(rows)
    }

    /// Seconds of runner time that one row saves if it joins a batch of `rows` instead of being one of its own: α where any
    /// size can run, more up to the next size, less than nothing where it makes a whole step of padding necessary.
    #[inline]
    pub(super) fn saving(&self, fit: &Fit, rows: usize) -> f64 {
        if self.sizes.is_empty() {
            let curved = || fit.mean_seconds(1) + fit.mean_seconds(rows) - fit.mean_seconds(rows.saturating_add(1));
            return if fit.is_curved() { curved() } else { fit.base_seconds() };
        }
        let alone_and_not = self.padded(1) + self.padded(rows);
        let padding = alone_and_not as f64 - self.padded(rows.saturating_add(1)) as f64;
        fit.base_seconds() + fit.per_row_seconds() * padding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(sizes: &[usize]) -> BatchSizes {
        BatchSizes::rising(sizes.to_vec()).expect("they rise")
    }

    #[test]
    fn sizes_that_do_not_rise_from_one_are_none() {
        for bad in [&[0, 1][..], &[1, 1], &[8, 4], &[0]] {
            assert_eq!(BatchSizes::rising(bad.to_vec()), None, "{bad:?}");
        }
        assert_eq!(BatchSizes::rising(vec![]).as_ref(), Some(BatchSizes::ANY));
    }

    #[test]
    fn a_batch_is_padded_to_the_next_size() {
        let sizes = sizes(&[2, 8, 32]);
        let padded: Vec<_> = [1, 2, 3, 8, 9, 32, 33].iter().map(|&rows| sizes.padded(rows)).collect();
        assert_eq!(padded, [2, 2, 8, 8, 32, 32, 33]);
        assert_eq!(BatchSizes::ANY.padded(7), 7);
    }

    #[test]
    fn a_row_that_fills_padding_saves_its_whole_batch_and_one_that_makes_more_saves_little() {
        let fit = Fit::line(0.010, 0.001, 1.0);
        let ms = |sizes: &BatchSizes, rows| (sizes.saving(&fit, rows) * 1e3).round() as i64;
        assert_eq!((ms(BatchSizes::ANY, 1), ms(BatchSizes::ANY, 7)), (10, 10));
        let sizes = sizes(&[1, 8, 32]);
        assert_eq!((ms(&sizes, 1), ms(&sizes, 2), ms(&sizes, 7), ms(&sizes, 8)), (4, 11, 11, -13));
    }
}
