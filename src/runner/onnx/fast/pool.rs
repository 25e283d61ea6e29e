//! The maximum of a sliding window.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::vectorized;

/// A window's geometry, for one size of images.
#[derive(Debug, Clone, Copy)]
pub(in crate::runner::onnx) struct MaxPool {
    pub(in crate::runner::onnx) kernel: [usize; 2],
    pub(in crate::runner::onnx) stride: [usize; 2],
    pub(in crate::runner::onnx) dilation: [usize; 2],
    pub(in crate::runner::onnx) pads: [(usize, usize); 2],
    pub(in crate::runner::onnx) input: [usize; 2],
    pub(in crate::runner::onnx) output: [usize; 2],
}

impl MaxPool {
    /// Pools each channel of each image of `x` into one of `y`.
    pub(in crate::runner::onnx) fn run(self, x: &[f32], y: &mut [f32]) {
        let (from, to) = (self.input[0] * self.input[1], self.output[0] * self.output[1]);
        if from == 0 || to == 0 {
            return;
        }
        // Whole channels, some thousand pixels at a time.
        let some = ((1 << 14) / from).max(1);
        let work = |(x, y): (&[f32], &mut [f32])| vectorized(Work { pool: self, x, y });
        if rayon::current_num_threads() == 1 {
            work((x, y));
        } else {
            x.par_chunks(some * from).zip(y.par_chunks_mut(some * to)).for_each(work);
        }
    }
}

struct Work<'a> {
    pool: MaxPool,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl WithSimd for Work<'_> {
    type Output = ();

    /// Takes the maxima of columns first, which lie side by side, and of rows then.
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Work { pool, x, y } = self;
        let ([h, w], [out_h, out_w]) = (pool.input, pool.output);
        let (before, behind) = pool.pads[1];
        let reach = (pool.kernel[1] - 1) * pool.dilation[1] + (out_w - 1) * pool.stride[1] + 1;
        // Room behind the last window, so that pixels can be taken in whole steps.
        let mut line = vec![f32::NEG_INFINITY; (before + w + behind).max(reach) + pool.stride[1]];
        for (x, y) in x.chunks_exact(h * w).zip(y.chunks_exact_mut(out_h * out_w)) {
            for (top, y) in y.chunks_exact_mut(out_w).enumerate() {
                let middle = &mut line[before..before + w];
                middle.fill(f32::NEG_INFINITY);
                for ky in 0..pool.kernel[0] {
                    let row = (top * pool.stride[0] + ky * pool.dilation[0]).checked_sub(pool.pads[0].0);
                    if let Some(row) = row.filter(|row| *row < h) {
                        larger(middle, x[row * w..][..w].iter().copied());
                    }
                }
                y.fill(f32::NEG_INFINITY);
                for kx in 0..pool.kernel[1] {
                    let line = &line[kx * pool.dilation[1]..];
                    match pool.stride[1] {
                        1 => larger(y, line.iter().copied()),
                        2 => larger(y, line.as_chunks::<2>().0.iter().map(|pair| pair[0])),
                        stride => larger(y, line.iter().step_by(stride).copied()),
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn larger(to: &mut [f32], from: impl Iterator<Item = f32>) {
    to.iter_mut().zip(from).for_each(|(to, x)| *to = if x > *to { x } else { *to });
}

#[cfg(test)]
mod tests {
    use super::super::numbers;
    use super::*;

    #[test]
    fn a_maximum_is_that_of_the_definition() {
        for (kernel, stride, dilation, pads) in [
            ([2, 2], [2, 2], [1, 1], [(0, 0); 2]),
            ([3, 3], [2, 2], [1, 1], [(1, 1); 2]),
            ([3, 2], [1, 3], [2, 1], [(1, 2), (0, 1)]),
            ([1, 5], [1, 1], [1, 2], [(0, 0), (4, 3)]),
        ] {
            let input = [9, 20];
            let output: [usize; 2] = std::array::from_fn(|i| {
                (input[i] + pads[i].0 + pads[i].1 - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1
            });
            let x = numbers(3 * 180, 1);
            let mut y = vec![0.0; 3 * output[0] * output[1]];
            MaxPool { kernel, stride, dilation, pads, input, output }.run(&x, &mut y);
            for (i, y) in y.iter().enumerate() {
                let (oy, ox) = (i / output[1] % output[0], i % output[1]);
                let channel = &x[i / (output[0] * output[1]) * 180..][..180];
                let mut expected = f32::NEG_INFINITY;
                for ky in 0..kernel[0] {
                    for kx in 0..kernel[1] {
                        let row = (oy * stride[0] + ky * dilation[0]).checked_sub(pads[0].0).filter(|r| *r < 9);
                        let column = (ox * stride[1] + kx * dilation[1]).checked_sub(pads[1].0).filter(|c| *c < 20);
                        if let (Some(row), Some(column)) = (row, column) {
                            expected = expected.max(channel[row * 20 + column]);
                        }
                    }
                }
                assert_eq!(*y, expected);
            }
        }
    }
}
