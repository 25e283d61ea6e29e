//! Works along one axis of elements on the host: each new place is made of a few old ones.
//!
//! What pools and resizing have in common, for forms that the device has no operation for.

use std::ops::{AddAssign, Mul};

use burn_backend::{DType, Element, TensorData};
use burn_dispatch::DispatchDevice;
use rayon::prelude::*;

use crate::value::{OpError, Value, elements};

/// For each new place along an axis, the old places that it is made of, with their weights.
#[derive(Debug, Default, Clone)]
pub(super) struct Taps {
    ends: Vec<usize>,
    at: Vec<usize>,
    weights: Vec<f64>,
}

impl Taps {
    /// Adds a place.
    pub(super) fn push(&mut self, taps: impl Iterator<Item = (usize, f64)>) {
        for (at, weight) in taps {
            self.at.push(at);
            self.weights.push(weight);
        }
        self.ends.push(self.at.len());
    }

    /// The number of new places.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The old places of new place `i`, with their weights.
    fn of(&self, i: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let range = i.checked_sub(1).map_or(0, |i| self.ends[i])..self.ends[i];
        self.at[range.clone()].iter().copied().zip(self.weights[range].iter().copied())
    }
}

/// A type that fractions are computed in.
pub(super) trait Real: Element + Default + AddAssign + Mul<Output = Self> {
    fn of(x: f64) -> Self;
}

impl Real for f32 {
    fn of(x: f64) -> f32 {
        x as f32
    }
}

impl Real for f64 {
    fn of(x: f64) -> f64 {
        x
    }
}

/// The elements of a value, converted where they are of another type. Floats only, or what is sure to fit: an element that does not
/// makes burn panic; see [`integers`](crate::value::integers).
pub(super) fn elements_of<T: Element>(x: Value) -> Result<Vec<T>, OpError> {
    x.into_data()?.convert::<T>().try_into_vec().map_err(|e| OpError(e.to_string()))
}

/// Elements as a value of this type.
pub(super) fn value_of<T: Element>(
    data: Vec<T>,
    dims: Vec<usize>,
    dtype: DType,
    device: &DispatchDevice,
) -> Result<Value, OpError> {
    Value::from_data(TensorData::new(data, dims).convert_dtype(dtype), device)
}

/// Weighted sums along an axis. `dims` become those of the result.
pub(super) fn weighted<T: Real>(data: &[T], dims: &mut [usize], axis: usize, taps: &Taps) -> Result<Vec<T>, OpError> {
    let (length, inner) = (dims[axis], dims[axis + 1..].iter().product::<usize>());
    dims[axis] = taps.len();
    let mut sums = vec![T::default(); elements(dims)?];
    if sums.is_empty() || data.is_empty() {
        return Ok(sums);
    }
    if inner == 1 {
        // Rows of single elements, several at a time.
        let weights: Vec<T> = taps.weights.iter().map(|&weight| T::of(weight)).collect();
        let some = ((1 << 14) / length).max(1);
        let rows = data.par_chunks(some * length).zip(sums.par_chunks_mut(some * taps.len()));
        rows.for_each(|(old, new)| {
            for (old, new) in old.chunks_exact(length).zip(new.chunks_exact_mut(taps.len())) {
                let mut begin = 0;
                for (sum, &end) in new.iter_mut().zip(&taps.ends) {
                    for (&at, &weight) in taps.at[begin..end].iter().zip(&weights[begin..end]) {
                        *sum += old[at] * weight;
                    }
                    begin = end;
                }
            }
        });
        return Ok(sums);
    }
    let blocks = data.par_chunks(length * inner).zip(sums.par_chunks_mut(taps.len() * inner));
    blocks.for_each(|(old, new)| {
        for (place, sums) in new.chunks_mut(inner).enumerate() {
            for (at, weight) in taps.of(place) {
                let weight = T::of(weight);
                let row = &old[at * inner..(at + 1) * inner];
                sums.iter_mut().zip(row).for_each(|(sum, &x)| *sum += x * weight);
            }
        }
    });
    Ok(sums)
}

/// Elements, each with the index that it had in the beginning.
pub(super) struct Placed<T> {
    pub(super) elements: Vec<T>,
    pub(super) places: Vec<i64>,
}

/// The largest elements along an axis and where they were; of equal ones the first. `dims` become those of the result.
///
/// A place that is made of nothing gets `lowest`.
pub(super) fn largest<T: Copy + PartialOrd>(
    data: &Placed<T>,
    dims: &mut [usize],
    axis: usize,
    taps: &Taps,
    lowest: T,
) -> Result<Placed<T>, OpError> {
    let (length, inner) = (dims[axis], dims[axis + 1..].iter().product::<usize>());
    let outer: usize = dims[..axis].iter().product();
    dims[axis] = taps.len();
    let count = elements(dims)?;
    let mut best = Placed { elements: vec![lowest; count], places: vec![0; count] };
    for block in 0..outer {
        for place in 0..taps.len() {
            let to = (block * taps.len() + place) * inner;
            for (tap, (at, _)) in taps.of(place).enumerate() {
                let from = (block * length + at) * inner;
                for i in 0..inner {
                    let x = data.elements[from + i];
                    // What is not a number beats all numbers.
                    if tap == 0 || x > best.elements[to + i] || x.partial_cmp(&x).is_none() {
                        best.elements[to + i] = x;
                        best.places[to + i] = data.places[from + i];
                    }
                }
            }
        }
    }
    Ok(best)
}
