//! The maximum or the mean of a sliding window.
//!
//! A window's maximum or sum is that of its columns' maxima or sums: whole lines are joined first, and then the columns of
//! what they make.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::planes::apart;
use super::vectorized;

/// What becomes of the elements of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Max,
    /// The sum, divided by how many elements there are, with those of the padding or without.
    Mean {
        padding: bool,
    },
}

/// A window's geometry, for one size of images.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pool {
    pub(crate) kind: Kind,
    pub(crate) kernel: [usize; 2],
    pub(crate) stride: [usize; 2],
    pub(crate) dilation: [usize; 2],
    pub(crate) pads: [(usize, usize); 2],
    pub(crate) input: [usize; 2],
    /// The last window may reach beyond the padding.
    pub(crate) output: [usize; 2],
}

impl Pool {
    /// Pools each channel of each image of `x` into one of `y`.
    pub(crate) fn run(self, x: &[f32], y: &mut [f32]) {
        let (from, to) = (self.input[0] * self.input[1], self.output[0] * self.output[1]);
        if from == 0 || to == 0 {
            return;
        }
        let parts = [self.parts(0), self.parts(1)];
        let parts = [&parts[0][..], &parts[1][..]];
        // Whole channels, some thousand pixels at a time.
        let some = ((1 << 16) / from).max(1);
        let (is_pairs, width) = (self.is_pairs(), self.input[1]);
        let work = |(x, y): (&[f32], &mut [f32])| match self.kind {
            Kind::Max if is_pairs => vectorized(Pairs::<false> { width, x, y }),
            Kind::Mean { .. } if is_pairs => vectorized(Pairs::<true> { width, x, y }),
            Kind::Max => vectorized(Work::<false> { pool: self, parts, x, y }),
            Kind::Mean { .. } => vectorized(Work::<true> { pool: self, parts, x, y }),
        };
        if rayon::current_num_threads() == 1 || x.len() <= some * from {
            work((x, y));
        } else {
            x.par_chunks(some * from).zip(y.par_chunks_mut(some * to)).for_each(work);
        }
    }

    /// Whether each window has four pixels that are in no other, and none is left over.
    fn is_pairs(&self) -> bool {
        let is_whole = (0..2).all(|i| self.input[i] == 2 * self.output[i]);
        is_whole && [self.kernel, self.stride] == [[2, 2]; 2] && self.dilation == [1, 1] && self.pads == [(0, 0); 2]
    }

    /// For each place along a dimension, what a sum is to be multiplied with.
    fn parts(&self, i: usize) -> Vec<f32> {
        let (before, behind) = self.pads[i];
        let part = |place: usize| {
            let all = (0..self.kernel[i]).map(|k| place * self.stride[i] + k * self.dilation[i]);
            let count = match self.kind {
                Kind::Max => 1,
                Kind::Mean { padding: true } => all.filter(|&at| at < before + self.input[i] + behind).count(),
                Kind::Mean { padding: false } => {
                    all.filter(|&at| (before..before + self.input[i]).contains(&at)).count()
                }
            };
            1.0 / count as f32
        };
        (0..self.output[i]).map(part).collect()
    }
}

struct Work<'a, const MEAN: bool> {
    pool: Pool,
    parts: [&'a [f32]; 2],
    x: &'a [f32],
    y: &'a mut [f32],
}

impl<const MEAN: bool> WithSimd for Work<'_, MEAN> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Work { pool, parts, x, y } = self;
        let ([h, w], [out_h, out_w]) = (pool.input, pool.output);
        let ([kernel_h, kernel_w], [down, across], lanes) = (pool.kernel, pool.stride, S::F32_LANES);
        let (before, behind) = pool.pads[1];
        let nothing = if MEAN { 0.0 } else { f32::NEG_INFINITY };
        let reach = (kernel_w - 1) * pool.dilation[1] + (out_w - 1) * across + 1;
        // Room behind the last window for whole vectors.
        let len = (before + w + behind).max(reach) + across * 2 * lanes;
        let mut line = vec![nothing; len];
        // Columns that are `across` apart lie side by side.
        let each = len.div_ceil(across);
        let mut apart_line = vec![nothing; if across > 1 { each * across } else { 0 }];
        for (y, out) in y.chunks_exact_mut(out_w).enumerate() {
            let (channel, top) = (y / out_h, y % out_h);
            let rows = (0..kernel_h).filter_map(|k| (top * down + k * pool.dilation[0]).checked_sub(pool.pads[0].0));
            let first = rows.clone().find(|row| *row < h);
            let count = rows.filter(|row| *row < h).count();
            let lines = first.map_or(&x[..0], |first| &x[(channel * h + first) * w..]);
            let mut at = 0;
            while at < w {
                let some = (w - at).min(lanes);
                let mut best = simd.splat_f32s(nothing);
                for k in 0..count {
                    let from = &lines[k * pool.dilation[0] * w + at..];
                    let pixels = match S::as_simd_f32s(from).0.first() {
                        Some(pixels) => *pixels,
                        None => simd.partial_load_f32s(&from[..some]),
                    };
                    best = join::<S, MEAN>(simd, best, pixels);
                }
                S::as_mut_simd_f32s(&mut line[before + at..]).0[0] = best;
                at += lanes;
            }
            line[before + w..before + at].fill(nothing);
            if across > 1 {
                for phase in 0..across {
                    let to = &mut apart_line[phase * each..][..each];
                    match across {
                        2 => apart::<2>(&line[phase..], to),
                        3 => apart::<3>(&line[phase..], to),
                        _ => to.iter_mut().zip(line[phase..].iter().step_by(across)).for_each(|(to, x)| *to = *x),
                    }
                }
            }
            let line = if across > 1 { &apart_line } else { &line };
            let part = simd.splat_f32s(parts[0][top]);
            let mut at = 0;
            while at < out_w {
                let mut best = simd.splat_f32s(nothing);
                for k in (0..kernel_w).map(|k| k * pool.dilation[1]) {
                    let from = &line[k % across * each + k / across + at..][..lanes];
                    best = join::<S, MEAN>(simd, best, S::as_simd_f32s(from).0[0]);
                }
                let some = (out_w - at).min(lanes);
                if MEAN {
                    let columns = simd.partial_load_f32s(&parts[1][at..at + some]);
                    best = simd.mul_f32s(best, simd.mul_f32s(part, columns));
                }
                match S::as_mut_simd_f32s(&mut out[at..]).0.first_mut() {
                    Some(out) => *out = best,
                    None => simd.partial_store_f32s(&mut out[at..], best),
                }
                at += lanes;
            }
        }
    }
}

/// Windows of two lines and two columns side by side: most networks have no others. Lines are joined by whole blocks, so that short
/// ones cost no more.
struct Pairs<'a, const MEAN: bool> {
    /// Of a line, in pixels.
    width: usize,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl<const MEAN: bool> WithSimd for Pairs<'_, MEAN> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        /// Pixels of joined lines, to stay in the nearest cache.
        const BLOCK: usize = 1 << 11;
        let Pairs { width, x, y } = self;
        let lines = (BLOCK / width).max(1);
        let mut joined = vec![0.0; lines * width];
        for (x, y) in x.chunks(2 * lines * width).zip(y.chunks_mut(lines * width / 2)) {
            for (lines, joined) in x.chunks_exact(2 * width).zip(joined.chunks_exact_mut(width)) {
                let (first, second) = lines.split_at(width);
                for ((to, a), b) in joined.iter_mut().zip(first).zip(second) {
                    *to = larger_or_sum::<MEAN>(*a, *b);
                }
            }
            for (y, [a, b]) in y.iter_mut().zip(joined.as_chunks().0) {
                let both = larger_or_sum::<MEAN>(*a, *b);
                *y = if MEAN { 0.25 * both } else { both };
            }
        }
    }
}

/// What [`join`] makes of two, beginning with nothing.
#[inline(always)]
fn larger_or_sum<const MEAN: bool>(a: f32, b: f32) -> f32 {
    if MEAN {
        return a + b;
    }
    let a = if f32::NEG_INFINITY < a { a } else { f32::NEG_INFINITY };
    if a < b { b } else { a }
}

#[inline(always)]
fn join<S: Simd, const MEAN: bool>(simd: S, best: S::f32s, x: S::f32s) -> S::f32s {
    match MEAN {
        true => simd.add_f32s(best, x),
        false => simd.select_f32s(simd.less_than_f32s(best, x), x, best),
    }
}

#[cfg(test)]
mod tests {
    use super::super::numbers;
    use super::*;

    /// The definition, in double precision.
    fn naive(pool: Pool, channel: &[f32], [oy, ox]: [usize; 2]) -> f64 {
        let [h, w] = pool.input;
        let (mut best, mut sum, mut inside, mut all) = (f64::NEG_INFINITY, 0.0, 0u32, 0u32);
        for ky in 0..pool.kernel[0] {
            for kx in 0..pool.kernel[1] {
                let (y, x) = (oy * pool.stride[0] + ky * pool.dilation[0], ox * pool.stride[1] + kx * pool.dilation[1]);
                let padded: [usize; 2] = std::array::from_fn(|i| pool.pads[i].0 + pool.input[i] + pool.pads[i].1);
                all += u32::from(y < padded[0] && x < padded[1]);
                let row = y.checked_sub(pool.pads[0].0).filter(|row| *row < h);
                let column = x.checked_sub(pool.pads[1].0).filter(|column| *column < w);
                if let (Some(row), Some(column)) = (row, column) {
                    let x = f64::from(channel[row * w + column]);
                    (best, sum, inside) = (best.max(x), sum + x, inside + 1);
                }
            }
        }
        match pool.kind {
            Kind::Max => best,
            Kind::Mean { padding } => sum / f64::from(if padding { all } else { inside }),
        }
    }

    #[test]
    fn pools_are_those_of_the_definition() {
        for kind in [Kind::Max, Kind::Mean { padding: true }, Kind::Mean { padding: false }] {
            for (kernel, stride, dilation, pads, input, further) in [
                ([2, 2], [2, 2], [1, 1], [(0, 0); 2], [9, 20], 0),
                ([2, 2], [2, 2], [1, 1], [(0, 0); 2], [8, 20], 0),
                ([2, 2], [2, 2], [1, 1], [(0, 0); 2], [90, 94], 0),
                ([3, 3], [2, 2], [1, 1], [(1, 1); 2], [9, 20], 0),
                ([3, 3], [2, 2], [1, 1], [(0, 0); 2], [10, 40], 1),
                ([3, 2], [1, 3], [2, 1], [(1, 2), (0, 1)], [9, 20], 0),
                ([1, 5], [1, 1], [1, 2], [(0, 0), (4, 3)], [9, 20], 0),
                ([5, 5], [1, 1], [1, 1], [(2, 2); 2], [3, 70], 0),
                ([4, 4], [5, 4], [1, 1], [(0, 0); 2], [31, 33], 1),
                ([7, 7], [7, 7], [1, 1], [(0, 0); 2], [7, 7], 0),
            ] {
                let output: [usize; 2] = std::array::from_fn(|i| {
                    (input[i] + pads[i].0 + pads[i].1 - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1 + further
                });
                let pool = Pool { kind, kernel, stride, dilation, pads, input, output };
                let (size, all) = (input[0] * input[1], output[0] * output[1]);
                let x = numbers(3 * size, 1);
                for threads in [1, 2] {
                    let mut y = vec![f32::NAN; 3 * all];
                    let threads = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                    threads.install(|| pool.run(&x, &mut y));
                    for (i, y) in y.iter().enumerate() {
                        let place = [i % all / output[1], i % output[1]];
                        let expected = naive(pool, &x[i / all * size..][..size], place);
                        assert!((f64::from(*y) - expected).abs() < 1e-6, "{pool:?} {place:?}: {y}, not {expected}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_number_is_larger_than_none() {
        let pool = Pool {
            kind: Kind::Max,
            kernel: [1, 3],
            stride: [1, 3],
            dilation: [1, 1],
            pads: [(0, 0); 2],
            input: [1, 6],
            output: [1, 2],
        };
        let mut y = [0.0; 2];
        pool.run(&[1.0, f32::NAN, 3.0, f32::NAN, -1.0, f32::NEG_INFINITY], &mut y);
        assert_eq!(y, [3.0, -1.0]);
    }
}
