//! Products with weights of eight bits of numbers that are rounded to eight bits on their way in, as dynamic quantisation does.

use pulp::{Simd, WithSimd};

use super::integers::Integers;
use super::quantize::{Extent, Scales, quantize};
use super::vectorized;

/// Lines that are multiplied at a time.
const TOGETHER: usize = 16;

/// x · weights + bias, of weights that stand for numbers by a scale for each column.
pub(crate) struct Rounded {
    weights: Integers,
    scales: Vec<f32>,
    bias: Option<Vec<f32>>,
}

impl Rounded {
    /// `scales` and `bias` have a number for each column.
    pub(crate) fn new(weights: Integers, scales: Vec<f32>, bias: Option<Vec<f32>>) -> Rounded {
        Rounded { weights, scales, bias }
    }

    /// The numbers of a row, and those of a result's row.
    pub(crate) fn size(&self) -> [usize; 2] {
        [self.weights.terms, self.weights.width]
    }

    /// Multiplies `x`, `[steps, rows, terms]`, whose rows are rounded each by a scale of its own for all steps: rows know nothing
    /// of each other, and a row with a NaN becomes NaN in all steps. `added` has the shape of the result.
    pub(crate) fn run(&self, x: &[f32], rows: usize, added: Option<&[f32]>, y: &mut [f32]) {
        let [terms, width] = self.size();
        if terms == 0 || y.is_empty() {
            return y.fill(0.0);
        }
        let (mut bytes, mut by_row) = (vec![0u8; x.len()], Vec::with_capacity(rows));
        let mut zeros = vec![0; x.len() / terms];
        for row in 0..rows {
            let lines = x.chunks_exact(terms).skip(row).step_by(rows);
            let (scale, zero) = lines.fold(Extent::ZERO, |extent, line| extent.and(Extent::of(line))).scale();
            let zero = i32::from(zero);
            let by = Scales { scales: &[scale], zeros: &[zero], inner: terms };
            let steps = x.chunks_exact(terms).zip(bytes.chunks_exact_mut(terms)).skip(row).step_by(rows);
            for (x, bytes) in steps {
                quantize(x, by, bytes);
            }
            zeros.iter_mut().skip(row).step_by(rows).for_each(|to| *to = zero);
            by_row.push(scale);
        }
        // Some lines at a time, so that their sums stay near.
        let mut sums = vec![0; y.len().min(TOGETHER * width)];
        for (block, (y, bytes)) in y.chunks_mut(TOGETHER * width).zip(bytes.chunks(TOGETHER * terms)).enumerate() {
            let sums = &mut sums[..y.len()];
            let zeros = &zeros[block * TOGETHER..][..y.len() / width];
            self.weights.run(bytes, zeros, sums);
            let lines = y.chunks_exact_mut(width).zip(sums.chunks_exact(width)).zip(block * TOGETHER..);
            for ((y, sums), line) in lines {
                let added = added.map(|added| &added[line * width..][..width]);
                let (scales, bias) = (&self.scales, self.bias.as_deref());
                vectorized(Finish { sums, scale: by_row[line % rows], scales, bias, added, y });
            }
        }
    }
}

/// A row of sums as the numbers that they stand for.
struct Finish<'a> {
    sums: &'a [i32],
    scale: f32,
    scales: &'a [f32],
    bias: Option<&'a [f32]>,
    added: Option<&'a [f32]>,
    y: &'a mut [f32],
}

impl WithSimd for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Finish { sums, scale, scales, bias, added, y } = self;
        let columns = y.iter_mut().zip(sums).zip(scales);
        for ((y, &sum), by) in columns {
            *y = sum as f32 * (scale * by);
        }
        if let Some(bias) = bias {
            for (y, bias) in y.iter_mut().zip(bias) {
                *y += bias;
            }
        }
        if let Some(added) = added {
            for (y, added) in y.iter_mut().zip(added) {
                *y += added;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::numbers;
    use super::*;

    #[test]
    fn each_row_is_rounded_by_its_own_scale_over_all_steps() {
        let (steps, rows, terms, width) = (11, 2, 21, 50);
        let mut x = numbers(steps * rows * terms, 1);
        x.iter_mut().enumerate().filter(|(i, _)| i / terms % rows == 1).for_each(|(_, x)| *x *= 50.0);
        let w: Vec<i8> = (0..terms * width).map(|i| (i * 7919 % 251) as u8 as i8).collect();
        let zeros: Vec<i32> = (0..width as i32).map(|i| i % 5 - 2).collect();
        let (scales, bias, added) = (numbers(width, 2), numbers(width, 3), numbers(steps * rows * width, 4));
        let weights = Integers::new(&w, [terms, width], &zeros);
        let rounded = Rounded::new(weights, scales.clone(), Some(bias.clone()));
        let mut y = vec![f32::NAN; steps * rows * width];
        rounded.run(&x, rows, Some(&added), &mut y);
        for (i, found) in y.iter().enumerate() {
            let (line, column) = (i / width, i % width);
            let own: Vec<f32> =
                (0..steps).flat_map(|s| x[(s * rows + line % rows) * terms..][..terms].to_vec()).collect();
            let (least, greatest) = own.iter().fold((0f32, 0f32), |(a, b), &x| (a.min(x), b.max(x)));
            let scale = (greatest - least) / 255.0;
            let zero = (-least / scale).round_ties_even();
            let term = |k: usize| {
                let whole = ((x[line * terms + k] / scale).round_ties_even() + zero).clamp(0.0, 255.0) - zero;
                f64::from(whole * scale) * f64::from(i32::from(w[k * width + column]) - zeros[column])
            };
            let sum = (0..terms).map(term).sum::<f64>() * f64::from(scales[column]);
            let expected = sum + f64::from(bias[column]) + f64::from(added[i]);
            assert!((f64::from(*found) - expected).abs() < 1e-3 * (1.0 + expected.abs()), "{i}: {found} {expected}");
        }
    }

    #[test]
    fn a_row_of_zeros_is_zero_and_a_nan_makes_its_own_row_nan() {
        let rounded = Rounded::new(Integers::new(&[1i8, 2], [2, 1], &[0]), vec![1.0], None);
        let mut y = [f32::NAN; 1];
        rounded.run(&[0.0, 0.0], 1, None, &mut y);
        assert_eq!(y, [0.0]);
        // Two steps of three rows, of which the second has a NaN in the second step.
        let x = [255.0, 0.0, 2.0, 2.0, 510.0, 2.0, 1.0, 3.0, f32::NAN, 2.0, 4.0, 0.0];
        let mut y = [0.0; 6];
        rounded.run(&x, 3, None, &mut y);
        assert_eq!(y.map(f32::is_nan), [false, true, false, false, true, false]);
        assert_eq!([y[0], y[2], y[3], y[5]], [255.0, 514.0, 7.0, 4.0]);
    }
}
