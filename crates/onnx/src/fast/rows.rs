//! Functions of whole rows: softmax and layer normalisation, each in one visit of a row.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::activation::exp;
use super::vectorized;

/// Sums that are kept side by side, so that adding is vectorised.
const LANES: usize = 16;
/// Floats that a thread takes at a time.
const PIECE: usize = 1 << 15;

/// Turns each row of `width` numbers into probabilities.
pub(crate) fn softmax(numbers: &mut [f32], width: usize) {
    pieces(numbers, width, |piece| vectorized(Softmax { piece, width }));
}

/// Turns each row of `width` numbers into the logarithms of probabilities.
pub(crate) fn log_softmax(numbers: &mut [f32], width: usize) {
    pieces(numbers, width, |piece| vectorized(LogSoftmax { piece, width }));
}

/// Normalises each row to mean 0 and variance 1, then scales and shifts its columns.
pub(crate) fn layer_norm(numbers: &mut [f32], scale: &[f32], shift: Option<&[f32]>, epsilon: f32) {
    let width = scale.len();
    pieces(numbers, width, |piece| vectorized(LayerNorm { piece, scale, shift, epsilon }));
}

/// Standardises each row of `width` numbers: less its mean if `centred`, and divided by its deviation from that, or else from 0. Gives the
/// mean of each row, 0 if not `centred`, and what it was multiplied by.
pub(crate) fn standardize(numbers: &mut [f32], width: usize, epsilon: f32, centred: bool) -> Vec<[f32; 2]> {
    let mut moments = vec![[0.0; 2]; numbers.len().checked_div(width).unwrap_or(0)];
    let work = |(piece, moments)| vectorized(Standardize { piece, width, epsilon, centred, moments });
    if width == 0 {
        return moments;
    }
    if rayon::current_num_threads() == 1 {
        work((numbers, &mut moments[..]));
    } else {
        let some = (PIECE / width).max(1);
        numbers.par_chunks_mut(some * width).zip(moments.par_chunks_mut(some)).for_each(work);
    }
    moments
}

/// Works on pieces of whole rows, on all threads.
fn pieces(numbers: &mut [f32], width: usize, work: impl Fn(&mut [f32]) + Send + Sync) {
    if width == 0 {
        return;
    }
    if rayon::current_num_threads() == 1 {
        return work(numbers);
    }
    numbers.par_chunks_mut((PIECE / width).max(1) * width).for_each(work);
}

/// Combines all numbers of a row, in lanes and then the lanes.
#[inline(always)]
fn fold(row: &[f32], start: f32, f: impl Fn(f32, f32) -> f32, join: impl Fn(f32, f32) -> f32) -> f32 {
    let (chunks, rest) = row.as_chunks::<LANES>();
    let mut lanes = [start; LANES];
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = f(*lane, *x);
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane = f(*lane, *x);
    }
    lanes.into_iter().fold(start, join)
}

/// Mean and variance of a row.
#[derive(Clone, Copy)]
struct Moments {
    /// A float next to the mean.
    near: f32,
    /// The distance from `near` to the mean, which need not be a float.
    rest: f32,
    variance: f32,
}

impl Moments {
    /// Measures a row in two visits. Both sum distances, first to one of the numbers and then to the mean: they are as small as the row
    /// is narrow, so the moments of a row far from zero are as exact as those of one around it.
    #[inline(always)]
    fn of(row: &[f32]) -> Moments {
        let count = row.len() as f32;
        let first = row.first().copied().unwrap_or_default();
        let near = first + fold(row, 0.0, |a, b| a + (b - first), |a, b| a + b) / count;
        let (chunks, last) = row.as_chunks::<LANES>();
        let (mut sums, mut squares) = ([0.0; LANES], [0.0; LANES]);
        let mut visit = |chunk: &[f32]| {
            for ((sum, square), x) in sums.iter_mut().zip(&mut squares).zip(chunk) {
                let distance = x - near;
                *sum += distance;
                *square += distance * distance;
            }
        };
        for chunk in chunks {
            visit(chunk);
        }
        visit(last);
        let [rest, square] = [sums, squares].map(|lanes: [f32; LANES]| lanes.into_iter().sum::<f32>() / count);
        let variance = square - rest * rest;
        // Rounding may leave less than nothing; NaN stays.
        Moments { near, rest, variance: if variance < 0.0 { 0.0 } else { variance } }
    }

    /// The distance from the mean to a number of the row.
    #[inline(always)]
    fn centred(&self, x: f32) -> f32 {
        (x - self.near) - self.rest
    }
}

/// The largest number of a row.
#[inline(always)]
fn largest(row: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    fold(row, f32::NEG_INFINITY, larger, larger)
}

struct Softmax<'a> {
    piece: &'a mut [f32],
    width: usize,
}

impl WithSimd for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for row in self.piece.chunks_exact_mut(self.width) {
            let largest = largest(row);
            // A row of minus infinities, or one with a NaN, has no probabilities: NaN, as by the definition.
            for x in row.iter_mut() {
                *x = exp(*x - largest);
            }
            let sum = fold(row, 0.0, |a, b| a + b, |a, b| a + b);
            let factor = 1.0 / sum;
            for x in row.iter_mut() {
                *x *= factor;
            }
        }
    }
}

struct LogSoftmax<'a> {
    piece: &'a mut [f32],
    width: usize,
}

impl WithSimd for LogSoftmax<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for row in self.piece.chunks_exact_mut(self.width) {
            let largest = largest(row);
            let sum = fold(row, 0.0, |a, b| a + exp(b - largest), |a, b| a + b);
            let log = sum.ln();
            // One after the other: beside a large number the logarithm would be lost.
            for x in row.iter_mut() {
                *x = (*x - largest) - log;
            }
        }
    }
}

struct LayerNorm<'a> {
    piece: &'a mut [f32],
    scale: &'a [f32],
    shift: Option<&'a [f32]>,
    epsilon: f32,
}

impl WithSimd for LayerNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let LayerNorm { piece, scale, shift, epsilon } = self;
        for row in piece.chunks_exact_mut(scale.len()) {
            let moments = Moments::of(row);
            let factor = 1.0 / (moments.variance + epsilon).sqrt();
            match shift {
                None => {
                    for (x, s) in row.iter_mut().zip(scale) {
                        *x = moments.centred(*x) * factor * s;
                    }
                }
                Some(shift) => {
                    for ((x, s), b) in row.iter_mut().zip(scale).zip(shift) {
                        *x = moments.centred(*x) * factor * s + b;
                    }
                }
            }
        }
    }
}

struct Standardize<'a> {
    piece: &'a mut [f32],
    width: usize,
    epsilon: f32,
    centred: bool,
    moments: &'a mut [[f32; 2]],
}

impl WithSimd for Standardize<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Standardize { piece, width, epsilon, centred, moments } = self;
        for (row, moments) in piece.chunks_exact_mut(width).zip(moments) {
            let found = if centred {
                Moments::of(row)
            } else {
                let square = fold(row, 0.0, |a, b| a + b * b, |a, b| a + b) / width as f32;
                Moments { near: 0.0, rest: 0.0, variance: square }
            };
            let factor = 1.0 / (found.variance + epsilon).sqrt();
            for x in row.iter_mut() {
                *x = found.centred(*x) * factor;
            }
            *moments = [found.near + found.rest, factor];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::numbers;
    use super::*;

    #[test]
    fn softmax_is_that_of_the_definition_and_does_not_overflow() {
        for width in [1, 2, 15, 16, 17, 128, 131] {
            let x: Vec<f32> = numbers(3 * width, 1).iter().map(|x| x * 300.0).collect();
            let mut y = x.clone();
            softmax(&mut y, width);
            for (x, y) in x.chunks(width).zip(y.chunks(width)) {
                let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let e: Vec<f64> = x.iter().map(|x| f64::from(x - largest).exp()).collect();
                let sum: f64 = e.iter().sum();
                e.iter().zip(y).for_each(|(e, y)| assert!((e / sum - f64::from(*y)).abs() < 1e-6, "{width}"));
            }
            let mut y = x.clone();
            log_softmax(&mut y, width);
            for (x, y) in x.chunks(width).zip(y.chunks(width)) {
                let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let sum: f64 = x.iter().map(|x| f64::from(x - largest).exp()).sum();
                for (x, y) in x.iter().zip(y) {
                    let expected = f64::from(x - largest) - sum.ln();
                    assert!((expected - f64::from(*y)).abs() < 1e-4, "{width}: {expected} {y}");
                }
            }
        }
    }

    #[test]
    fn a_softmax_and_its_logarithm_are_exact_wherever_the_numbers_are() {
        for (offset, spread) in [(0.0, 1.0), (1e5, 1.0), (-1e5, 4.0), (1e7, 8.0), (-3e8, 100.0)] {
            for width in [1, 4, 17, 131] {
                let x: Vec<f32> = numbers(3 * width, 1).iter().map(|x| offset + x * spread).collect();
                let (mut shares, mut logs) = (x.clone(), x.clone());
                softmax(&mut shares, width);
                log_softmax(&mut logs, width);
                for ((x, shares), logs) in x.chunks(width).zip(shares.chunks(width)).zip(logs.chunks(width)) {
                    let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    let less: Vec<f64> = x.iter().map(|x| f64::from(*x) - f64::from(largest)).collect();
                    let sum: f64 = less.iter().map(|x| x.exp()).sum();
                    for ((less, share), log) in less.iter().zip(shares).zip(logs) {
                        let expected = less - sum.ln();
                        let is_near = (expected - f64::from(*log)).abs() <= 1e-6 * (1.0 + expected.abs());
                        assert!(is_near, "{offset}, {width}: {log} for {expected}");
                        assert!((less.exp() / sum - f64::from(*share)).abs() < 1e-6, "{offset}, {width}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_masked_number_has_no_part_in_a_softmax() {
        let mut y = [1.0, f32::NEG_INFINITY, 1.0];
        softmax(&mut y, 3);
        assert_eq!(y, [0.5, 0.0, 0.5]);
        let mut y = [f32::NAN, 1.0];
        softmax(&mut y, 2);
        assert!(y[1].is_nan());
    }

    #[test]
    fn layer_norm_is_that_of_the_definition() {
        for width in [1, 7, 16, 50, 384] {
            let (x, scale, shift) = (numbers(4 * width, 1), numbers(width, 2), numbers(width, 3));
            let mut y = x.clone();
            layer_norm(&mut y, &scale, Some(&shift), 1e-5);
            for (x, y) in x.chunks(width).zip(y.chunks(width)) {
                let mean = x.iter().sum::<f32>() / width as f32;
                let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / width as f32;
                for j in 0..width {
                    let expected = (x[j] - mean) / (variance + 1e-5).sqrt() * scale[j] + shift[j];
                    assert!((y[j] - expected).abs() < 1e-5, "{width}: {} {expected}", y[j]);
                }
            }
        }
    }

    /// Rows far from zero, and narrow: on one number, on neighbouring floats, and spread a little.
    fn narrow_rows(width: usize) -> Vec<Vec<f32>> {
        let mut rows = Vec::new();
        for offset in [1000.1f32, -0.1, 65_504.3, 3e6, 16_777_215.0, 1e-3] {
            rows.push(vec![offset; width]);
            rows.push((0..width).map(|i| if i % 3 == 0 { offset } else { offset.next_up() }).collect());
            for spread in [1e-4, 1e-2, 1.0] {
                rows.push(numbers(width, 1).iter().map(|x| offset + x * spread * offset.abs().sqrt()).collect());
            }
        }
        rows
    }

    /// The mean of a row in double precision, and what its distances are multiplied by.
    fn exact(row: &[f32], epsilon: f32) -> [f64; 2] {
        let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / row.len() as f64;
        let variance = row.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / row.len() as f64;
        [mean, 1.0 / (variance + f64::from(epsilon)).sqrt()]
    }

    #[test]
    fn narrow_rows_far_from_zero_are_as_exact_as_others() {
        for width in [1, 3, 16, 50, 768, 12_544] {
            let ones = vec![1.0; width];
            for (row, epsilon) in narrow_rows(width).iter().flat_map(|row| [1e-5, 1e-12].map(|epsilon| (row, epsilon)))
            {
                let [mean, factor] = exact(row, epsilon);
                let (mut layer, mut standard) = (row.clone(), row.clone());
                layer_norm(&mut layer, &ones, None, epsilon);
                let [found_mean, found_factor] = standardize(&mut standard, width, epsilon, true)[0];
                let largest = row.iter().fold(0f32, |most, x| most.max(x.abs()));
                let off = (f64::from(found_mean) - mean).abs();
                assert!(off <= 1e-7 * f64::from(largest), "{width}: a mean of {found_mean} for {mean}");
                let off = (f64::from(found_factor) / factor - 1.0).abs();
                assert!(off < 1e-3, "{width}, {}: a factor of {found_factor} for {factor}", row[0]);
                for ((x, layer), standard) in row.iter().zip(&layer).zip(&standard) {
                    let expected = (f64::from(*x) - mean) * factor;
                    for found in [layer, standard] {
                        let off = (f64::from(*found) - expected).abs();
                        assert!(off <= 1e-3 * (1.0 + expected.abs()), "{width}, {x}: {found} for {expected}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_row_of_equal_numbers_is_normalised_to_zeros() {
        for (width, x) in [(64, 1000.1f32), (768, -3333.3), (12_544, 0.1)] {
            let mut y = vec![x; width];
            layer_norm(&mut y, &vec![1.0; width], None, 1e-5);
            assert!(y.iter().all(|y| *y == 0.0), "{width} of {x}: {}", y[0]);
        }
    }

    #[test]
    fn a_nan_or_an_infinity_makes_its_own_row_nan() {
        for none in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let (mut x, ones) = (numbers(3 * 50, 1), vec![1.0; 50]);
            x[50 + 33] = none;
            let (mut layer, mut standard) = (x.clone(), x.clone());
            layer_norm(&mut layer, &ones, None, 1e-5);
            standardize(&mut standard, 50, 1e-5, true);
            for y in [layer, standard] {
                y.iter().enumerate().for_each(|(i, y)| assert_eq!(y.is_nan(), i / 50 == 1, "{none} at {i}"));
            }
        }
    }

    #[test]
    fn rows_are_standardised_by_their_own_moments() {
        for (width, centred) in [(1, true), (7, true), (16, false), (50, true), (384, false)] {
            let x = numbers(4 * width, 1);
            let mut y = x.clone();
            let moments = standardize(&mut y, width, 1e-5, centred);
            assert_eq!(moments.len(), 4);
            for ((x, y), [mean, inverse]) in x.chunks(width).zip(y.chunks(width)).zip(moments) {
                let expected = if centred { x.iter().sum::<f32>() / width as f32 } else { 0.0 };
                let variance = x.iter().map(|x| (x - expected).powi(2)).sum::<f32>() / width as f32;
                assert!((mean - expected).abs() < 1e-5 && (inverse * (variance + 1e-5).sqrt() - 1.0).abs() < 1e-4);
                x.iter().zip(y).for_each(|(x, y)| assert!((y - (x - mean) * inverse).abs() < 1e-5, "{width}"));
            }
        }
        assert!(standardize(&mut [], 0, 1e-5, true).is_empty());
    }
}
