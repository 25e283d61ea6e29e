//! Where a value has the rows of a batch, by the shapes that it has for one row and for several.

use burn_backend::{DType, TensorData};
use burn_dispatch::DispatchDevice;

use super::compare::{COARSE_NOISE, NOISE, near};
use crate::texts::Texts;
use crate::value::{OpError, Value};

/// Rows along an axis. The axis may hold more than one index of each row, as where heads and rows are one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) axis: usize,
    /// So many neighbours along the axis are of one row, then come as many of the next row.
    pub(super) inner: usize,
}

/// Of an axis that has more indices of each row than this, all of a row are taken to be neighbours, or no more than this.
const MOST_INNER: usize = 1 << 12;

impl Layout {
    /// All layouts that a value may have by its shapes for one row and for `count` rows, the likeliest first: rows in front.
    pub(super) fn candidates(one: &[usize], many: &[usize], count: usize) -> Vec<Layout> {
        let Some(axis) = differing(one, many).filter(|&axis| many[axis] == count * one[axis]) else {
            return Vec::new();
        };
        let length = one[axis];
        let inner = (1..=length.min(MOST_INNER)).rev().filter(|inner| length.is_multiple_of(*inner));
        let whole = (length > MOST_INNER).then_some(length);
        whole.into_iter().chain(inner).map(|inner| Layout { axis, inner }).collect()
    }

    /// The layout of the same elements in another shape, in the same order.
    pub(super) fn reshaped(self, from: &[usize], to: &[usize], count: usize) -> Option<Layout> {
        let behind = |dims: &[usize], axis: usize| dims[axis + 1..].iter().product::<usize>();
        let block = self.block(from);
        let fits = |axis: &usize| {
            let stride = behind(to, *axis).max(1);
            block >= stride && block.is_multiple_of(stride) && to[*axis].is_multiple_of(count * (block / stride))
        };
        let axis = (0..to.len()).find(|axis| to[*axis] > 0 && fits(axis))?;
        Some(Layout { axis, inner: block / behind(to, axis).max(1) })
    }

    /// So many elements of one row stand together in a value of these dimensions; then come those of the next row.
    pub(super) fn block(self, dims: &[usize]) -> usize {
        (self.inner * dims[self.axis + 1..].iter().product::<usize>()).max(1)
    }

    /// The row that an element belongs to, by its place.
    pub(super) fn owner(self, element: usize, dims: &[usize], count: usize) -> usize {
        element / self.block(dims) % count
    }

    /// One row of a tensor.
    pub(super) fn row(
        self,
        value: &Value,
        row: usize,
        count: usize,
        device: &DispatchDevice,
    ) -> Result<Value, OpError> {
        if let Value::Sequence(values) = value {
            let each = values.iter().map(|value| self.row(value, row, count, device));
            return Ok(Value::Sequence(each.collect::<Result<_, _>>()?));
        }
        let (mut dims, block) = (value.shape(), self.block(&value.shape()));
        dims[self.axis] /= count;
        if let Value::Texts(texts) = value {
            let own = texts.clone().into_parts().1.chunks(block).skip(row).step_by(count).flatten().cloned().collect();
            return Ok(Value::Texts(Texts::new(dims, own)?));
        }
        let data = value.clone().into_data()?;
        let (dtype, bytes) = (data.dtype(), block * data.dtype().size());
        let own = data.bytes().chunks(bytes).skip(row).step_by(count).flatten().copied().collect();
        Value::from_data(TensorData::from_bytes_vec(own, dims, dtype), device)
    }

    /// Whether `alone` is what a row is among others, as far as sums allow. An error where they are no tensors, or values decide how long
    /// they are.
    pub(super) fn is_row(self, all: &Value, alone: &Value, row: usize, count: usize) -> Result<bool, OpError> {
        if let (Value::Sequence(all), Value::Sequence(alone)) = (all, alone) {
            let is_row = |(all, alone): (&Value, &Value)| self.is_row(all, alone, row, count);
            let each: Vec<bool> = all.iter().zip(alone).map(is_row).collect::<Result<_, _>>()?;
            return Ok(all.len() == alone.len() && !each.contains(&false));
        }
        let (dims, block) = (all.shape(), self.block(&all.shape()));
        if let (Value::Texts(all), Value::Texts(alone)) = (all, alone) {
            let (all, alone) = (all.clone().into_parts().1, alone.clone().into_parts().1);
            return Ok(all.chunks(block).skip(row).step_by(count).flatten().eq(&alone));
        }
        if dims.iter().product::<usize>() != count * alone.shape().iter().product::<usize>() {
            return Err(OpError::new("values decide the length"));
        }
        let (all, alone) = (all.clone().into_data()?, alone.clone().into_data()?);
        let noise = noise(all.dtype());
        let all: Vec<f64> = all.iter::<f64>().collect();
        let own: Vec<f64> = all.chunks(block).skip(row).step_by(count).flatten().copied().collect();
        Ok(near(&own, &alone.iter::<f64>().collect::<Vec<_>>(), noise, |x| *x))
    }

    /// How many axes there are from this one to the last, which is how shapes that broadcast are laid on each other.
    pub(super) fn behind(self, rank: usize) -> usize {
        rank - self.axis
    }
}

/// Largest difference between numbers of this type that sums in another order make.
fn noise(dtype: DType) -> f64 {
    match dtype {
        DType::F16 | DType::BF16 => COARSE_NOISE,
        _ if dtype.is_float() => NOISE,
        _ => 0.0,
    }
}

/// The only axis along which two shapes of as many axes differ.
fn differing(one: &[usize], many: &[usize]) -> Option<usize> {
    let mut axes = (0..one.len().min(many.len())).filter(|&axis| one[axis] != many[axis]);
    let axis = axes.next().filter(|_| one.len() == many.len())?;
    axes.next().is_none().then_some(axis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_may_share_their_axis_with_heads_or_steps() {
        let all = Layout::candidates(&[4, 5], &[12, 5], 3);
        assert_eq!(all, [4, 2, 1].map(|inner| Layout { axis: 0, inner }));
        let owners = |inner| [0, 1, 4, 11].map(|i| Layout { axis: 0, inner }.owner(i * 5, &[12, 5], 3));
        assert_eq!((owners(4), owners(1)), ([0, 0, 1, 2], [0, 1, 1, 2]));
        assert_eq!(Layout::candidates(&[1, 1], &[3, 3], 3), [], "each row with each");
        assert_eq!(Layout::candidates(&[1, 4], &[2, 4], 3), [], "a row is lost");
        assert_eq!(Layout::candidates(&[2], &[2], 3), []);
    }

    #[test]
    fn rows_stay_where_they_are_when_axes_are_split_and_merged() {
        let of = |axis, inner| Layout { axis, inner };
        assert_eq!(of(0, 1).reshaped(&[3, 16, 12], &[3, 16, 2, 6], 3), Some(of(0, 1)));
        assert_eq!(of(0, 1).reshaped(&[3, 2, 16, 6], &[6, 16, 6], 3), Some(of(0, 2)));
        assert_eq!(of(0, 2).reshaped(&[6, 16, 6], &[3, 2, 16, 6], 3), Some(of(0, 1)));
        assert_eq!(of(1, 1).reshaped(&[16, 3, 8], &[16, 6, 4], 3), Some(of(1, 2)), "time first");
        assert_eq!(of(1, 1).reshaped(&[16, 3, 8], &[48, 8], 3), Some(of(0, 1)));
        assert_eq!(of(0, 1).reshaped(&[3, 4], &[2, 6], 3), None, "a row is torn apart");
    }
}
