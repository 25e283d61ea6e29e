//! Nodes that go by places: what they do to a row far behind.
//!
//! `x[:100]` leaves a few rows as they are, and takes the last of very many away. So a node that has places for constants runs on very many
//! rows as well, all of which are the same, and must make the same of each.

use super::crossing::Tie;
use super::layout::Layout;
use super::operators::PLACED;
use super::reach::filled;
use super::step::{Argument, Step};
use crate::value::{OpError, Value};

/// More rows than any batch has.
const ROWS: usize = 1 << 16;
/// So many elements at most, where axes must be as long as they are.
const MOST: usize = 1 << 20;

impl Step<'_> {
    /// Whether it makes something else of a row because of how many come before or behind.
    pub(super) fn tells_far_rows_apart(&self) -> bool {
        let Some(Argument::Pair(pair)) = self.arguments.first() else { return false };
        let Tie::Rows(layout, None) = pair.tie else { return false };
        if !PLACED.contains(&self.operator()) || self.tied().count() > 1 {
            return false;
        }
        let dims = pair.many.shape();
        let others: usize = dims.iter().enumerate().filter(|(axis, _)| *axis != layout.axis).map(|(_, n)| *n).product();
        let thin = |axis: usize| if axis == layout.axis { ROWS * layout.inner } else { 1 };
        let whole = |axis: usize| match axis == layout.axis {
            true => (MOST / others.max(1)).clamp(self.count, ROWS) * layout.inner,
            false => dims[axis],
        };
        // What it cannot do shows nothing.
        let tries = [(0..dims.len()).map(thin).collect::<Vec<_>>(), (0..dims.len()).map(whole).collect()];
        let told = tries.into_iter().map(|dims| self.tells_apart(&pair.many, layout, dims));
        told.filter_map(Result::ok).flatten().any(|tells_apart| tells_apart)
    }

    /// The same for a value of these dimensions; nothing where nothing is left of a row.
    fn tells_apart(&self, like: &Value, layout: Layout, dims: Vec<usize>) -> Result<Option<bool>, OpError> {
        let ones = filled(like, dims.clone(), |_| 1.0, self)?;
        let with = |(i, argument): (usize, &Argument)| match argument {
            _ if i == 0 => Some(ones.clone()),
            Argument::Absent => None,
            Argument::Constant(value) => Some(value.clone()),
            Argument::Pair(pair) => Some(pair.many.clone()),
        };
        let made = self.run_on(self.arguments.iter().enumerate().map(with).collect())?;
        let made = made.into_iter().next().ok_or_else(|| OpError::new("has no result"))?;
        if made.shape().get(layout.axis) != Some(&dims[layout.axis]) {
            return Ok(Some(true));
        }
        let (block, rows) = (layout.block(&made.shape()), dims[layout.axis] / layout.inner);
        let data = made.into_data()?;
        let each: Vec<&[u8]> = data.bytes().chunks((block * data.dtype().size()).max(1)).collect();
        // All rows of one place in the axes before are the same.
        let is_even = each.chunks(rows).all(|rows| rows.iter().all(|row| *row == rows[0]));
        Ok((!each.is_empty()).then_some(!is_even))
    }
}
