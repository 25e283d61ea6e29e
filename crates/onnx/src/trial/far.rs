//! Nodes that go by places: what they do to a row far behind.
//!
//! `x[:100]` leaves a few rows as they are, and takes the last of very many away. So a node that has places for constants runs on very many
//! rows as well, all of which are the same, and must make the same of each. A place that a caller sends for all rows, such as the diagonal of
//! `Trilu`, is tried as several numbers.

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
/// Numbers that are tried where a caller sends the place.
const PLACES: [f64; 3] = [0.0, 1.0, -1.0];

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
        let is_open = self.given().any(|(_, pair)| pair.is_shared);
        let places = PLACES.into_iter().map(Some).filter(|_| is_open);
        let places: Vec<Option<f64>> = std::iter::once(None).chain(places).collect();
        let tries = tries.iter().flat_map(|dims| places.iter().map(move |&place| (dims, place)));
        let mut told = tries.filter_map(|(dims, place)| self.tells_apart(&pair.many, layout, dims.clone(), place).ok());
        told.any(|tells_apart| tells_apart == Some(true))
    }

    /// The same for a value of these dimensions, and for this `place` where a caller sends it; nothing where nothing is left of a row.
    fn tells_apart(
        &self,
        like: &Value,
        layout: Layout,
        dims: Vec<usize>,
        place: Option<f64>,
    ) -> Result<Option<bool>, OpError> {
        let ones = filled(like, dims.clone(), |_| 1.0, self)?;
        let with = |(i, argument): (usize, &Argument)| match (argument, place) {
            _ if i == 0 => Ok(Some(ones.clone())),
            (Argument::Absent, _) => Ok(None),
            (Argument::Constant(value), _) => Ok(Some(value.clone())),
            (Argument::Pair(pair), Some(place)) if pair.is_shared => {
                filled(&pair.many, pair.many.shape(), |_| place, self).map(Some)
            }
            (Argument::Pair(pair), _) => Ok(Some(pair.many.clone())),
        };
        let arguments = self.arguments.iter().enumerate().map(with).collect::<Result<_, OpError>>()?;
        let made = self.run_on(arguments)?;
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
