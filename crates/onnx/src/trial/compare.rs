//! Whether a row's answer alone is its answer in a batch.

use uncork_model::runner::Rows;
use uncork_model::tensor::{Data, Tensor};

/// Largest difference between a row's answers alone and in a batch, as a part of the number itself and of the output's
/// mean. Sums are added in another order for another number of rows, so there is some; answers that mix rows differ by more.
pub(super) const NOISE: f64 = 2e-3;
/// The same for numbers of 16 bits.
pub(super) const COARSE_NOISE: f64 = 3e-2;

/// Where an output has its rows: the axis that has one index for one row and `n` for n. Where the shape stays, it has none.
pub(super) fn rows_of(one: &[usize], many: &[usize], n: usize) -> Option<Rows> {
    if one == many {
        return Some(Rows::Shared);
    }
    let differing = |axis: &usize| one[*axis] != many[*axis];
    let mut axes = (0..one.len().min(many.len())).filter(differing);
    let axis = axes.next().filter(|&axis| one[axis] == 1 && many[axis] == n);
    axis.filter(|_| one.len() == many.len() && axes.next().is_none()).map(Rows::Axis)
}

/// The row at `place` of a tensor that has its rows so, with one row.
pub(super) fn row(tensor: &Tensor, rows: Rows, place: usize) -> Tensor {
    match rows {
        Rows::Axis(axis) => tensor.clone().axis_to_front(axis).row(place).front_to_axis(axis),
        Rows::Shared => tensor.clone(),
    }
}

/// Whether two answers of the same row are the same, as far as sums allow.
pub(super) fn is_same(alone: &Tensor, beside: &Tensor) -> bool {
    if alone.shape() != beside.shape() {
        return false;
    }
    match (alone.data(), beside.data()) {
        (Data::Fp32(a), Data::Fp32(b)) => near(a, b, NOISE, |x| f64::from(*x)),
        (Data::Fp64(a), Data::Fp64(b)) => near(a, b, NOISE, |x| *x),
        (Data::Fp16(a), Data::Fp16(b)) => near(a, b, COARSE_NOISE, |x| x.to_f64()),
        (Data::Bf16(a), Data::Bf16(b)) => near(a, b, COARSE_NOISE, |x| x.to_f64()),
        (a, b) => a == b,
    }
}

/// Whether two lists of numbers are the same but for noise.
pub(super) fn near<T>(a: &[T], b: &[T], noise: f64, number: impl Fn(&T) -> f64) -> bool {
    let finite = a.iter().map(&number).filter(|x| x.is_finite());
    let (count, sum) = finite.fold((0usize, 0.0), |(count, sum), x| (count + 1, sum + x.abs()));
    let mean = sum / count.max(1) as f64;
    a.iter().zip(b).all(|(a, b)| {
        let (a, b) = (number(a), number(b));
        // Infinities and what is no number are the same or not.
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= noise * (a.abs() + mean)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_along_the_axis_that_grows_with_them() {
        assert_eq!(rows_of(&[1, 4], &[3, 4], 3), Some(Rows::Axis(0)));
        assert_eq!(rows_of(&[20, 1, 4], &[20, 3, 4], 3), Some(Rows::Axis(1)));
        assert_eq!(rows_of(&[5], &[5], 3), Some(Rows::Shared));
        assert_eq!(rows_of(&[2, 4], &[6, 4], 3), None, "two of each row");
        assert_eq!(rows_of(&[1, 1], &[3, 3], 3), None, "each row with each");
        assert_eq!(rows_of(&[1, 4], &[2, 4], 3), None);
        assert_eq!(rows_of(&[1, 4], &[3, 4, 1], 3), None);
    }

    #[test]
    fn differences_are_measured_by_the_output_s_own_scale() {
        let tensor = |x: [f32; 3]| Tensor::new(vec![1, 3], x.to_vec()).unwrap();
        let same = |a, b| is_same(&tensor(a), &tensor(b));
        assert!(same([100.0, 0.0, -100.0], [100.01, 0.01, -100.0]));
        assert!(!same([0.01, 0.0, -0.01], [0.01, 0.001, -0.01]));
        assert!(same([f32::NAN, f32::INFINITY, 1.0], [f32::NAN, f32::INFINITY, 1.0]));
        assert!(!same([f32::NAN, 1.0, 1.0], [1.0, 1.0, 1.0]));
    }
}
