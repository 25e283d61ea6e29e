//! Arithmetic of two tensors that are spread over each other: one of them, or both, repeat along some axes.

use pulp::{Simd, WithSimd};

use super::vectorized;

/// Numbers, and how far neighbours along each axis are apart: 0 where the tensor repeats.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a, E> {
    pub(crate) numbers: &'a [E],
    pub(crate) strides: &'a [usize],
}

/// Two sides that are read where they are, and the shape of the result.
#[derive(Clone, Copy)]
pub(crate) struct Pair<'a, E> {
    pub(crate) dims: &'a [usize],
    pub(crate) left: Side<'a, E>,
    pub(crate) right: Side<'a, E>,
}

/// One axis of both sides.
#[derive(Clone, Copy)]
struct Axis {
    length: usize,
    left: usize,
    right: usize,
}

/// Each two numbers' result, in row-major order.
pub(crate) fn spread<E: Copy, O>(pair: Pair<'_, E>, y: &mut [O], f: impl Fn(E, E) -> O + Copy) {
    if y.is_empty() {
        return;
    }
    let Pair { dims, left, right } = pair;
    let mut axes = merged(dims, left.strides, right.strides);
    let inner = axes.pop().unwrap_or(Axis { length: 1, left: 0, right: 0 });
    vectorized(Work { f, axes: &axes, inner, left: left.numbers, right: right.numbers, y });
}

/// The axes without those of length one, neighbours joined where one continues the other on both sides.
fn merged(dims: &[usize], left: &[usize], right: &[usize]) -> Vec<Axis> {
    let mut axes: Vec<Axis> = Vec::with_capacity(dims.len());
    for ((&length, &left), &right) in dims.iter().zip(left).zip(right).filter(|&((&length, _), _)| length != 1) {
        match axes.last_mut() {
            Some(before) if before.left == left * length && before.right == right * length => {
                *before = Axis { length: before.length * length, left, right };
            }
            _ => axes.push(Axis { length, left, right }),
        }
    }
    axes
}

struct Work<'a, E, O, F> {
    f: F,
    /// All but the last.
    axes: &'a [Axis],
    inner: Axis,
    left: &'a [E],
    right: &'a [E],
    y: &'a mut [O],
}

impl<E: Copy, O, F: Fn(E, E) -> O + Copy> WithSimd for Work<'_, E, O, F> {
    type Output = ();

    /// One line of the last axis after another.
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Work { f, axes, inner, left: whole_left, right: whole_right, y } = self;
        let (mut index, mut at, mut other) = (vec![0; axes.len()], 0, 0);
        for y in y.chunks_exact_mut(inner.length) {
            let (left, right) = (&whole_left[at..], &whole_right[other..]);
            match (inner.left, inner.right) {
                (1, 1) => {
                    for ((y, &a), &b) in y.iter_mut().zip(left).zip(right) {
                        *y = f(a, b);
                    }
                }
                (1, 0) => {
                    let b = right[0];
                    for (y, &a) in y.iter_mut().zip(left) {
                        *y = f(a, b);
                    }
                }
                (0, 1) => {
                    let a = left[0];
                    for (y, &b) in y.iter_mut().zip(right) {
                        *y = f(a, b);
                    }
                }
                (by, step) => {
                    for (i, y) in y.iter_mut().enumerate() {
                        *y = f(left[i * by], right[i * step]);
                    }
                }
            }
            for (index, axis) in index.iter_mut().zip(axes).rev() {
                *index += 1;
                (at, other) = (at + axis.left, other + axis.right);
                if *index < axis.length {
                    break;
                }
                *index = 0;
                (at, other) = (at - axis.left * axis.length, other - axis.right * axis.length);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::numbers;
    use super::*;

    #[test]
    fn every_pair_of_shapes_that_fit_is_that_of_the_definition() {
        let shapes: [[usize; 3]; 8] =
            [[4, 5, 40], [1, 5, 1], [4, 1, 40], [1, 1, 40], [4, 5, 1], [1, 1, 1], [4, 1, 1], [1, 5, 40]];
        for (left, right) in shapes.iter().flat_map(|left| shapes.iter().map(move |right| (left, right))) {
            let dims: [usize; 3] = std::array::from_fn(|i| left[i].max(right[i]));
            let strides = |own: &[usize; 3]| {
                let each = [own[1] * own[2], own[2], 1];
                std::array::from_fn::<usize, 3, _>(|i| if own[i] == 1 { 0 } else { each[i] })
            };
            let (a, b) = (numbers(left.iter().product(), 1), numbers(right.iter().product(), 2));
            let (by_left, by_right) = (strides(left), strides(right));
            let functions: [fn(f32, f32) -> f32; 3] = [|a, b| a + b, |a, b| a - b, |a, b| a * b];
            for f in functions {
                let mut y = vec![f32::NAN; dims.iter().product()];
                let (left, right) = (Side { numbers: &a, strides: &by_left }, Side { numbers: &b, strides: &by_right });
                spread(Pair { dims: &dims, left, right }, &mut y, f);
                for (i, found) in y.iter().enumerate() {
                    let index = [i / dims[2] / dims[1], i / dims[2] % dims[1], i % dims[2]];
                    let at = |by: &[usize; 3]| index.iter().zip(by).map(|(i, by)| i * by).sum::<usize>();
                    let expected = f(a[at(&by_left)], b[at(&by_right)]);
                    assert_eq!(*found, expected, "{by_left:?} {by_right:?} {index:?}");
                }
            }
        }
    }
}
