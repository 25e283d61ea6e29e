//! Convolutions of each channel by itself: one plane is padded and convolved while it is in the nearest cache.

use pulp::{Simd, WithSimd};

use super::activation::Activation;
use super::conv::Conv;
use super::planes::{Layout, STEP};

/// Floats of planes that are filled at a time, to stay in the first-level cache, and the most planes.
const NEAR: usize = 1 << 12;
const MOST: usize = 16;

/// Some channels of a batch, from the one with this number on.
pub(super) struct Work<'a> {
    pub(super) conv: &'a Conv,
    pub(super) layout: &'a Layout,
    pub(super) x: &'a [f32],
    pub(super) first: usize,
    pub(super) added: Option<&'a [f32]>,
    pub(super) activation: Activation,
    pub(super) y: &'a mut [f32],
}

impl WithSimd for Work<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Work { conv, layout, x, first, added, activation, y } = self;
        let ([h, w], size) = (layout.input, layout.output[0] * layout.output[1]);
        // Where something is added, nothing may be cut off before.
        let bounds = activation.bounds().filter(|_| added.is_none());
        let (low, high) = bounds.unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
        // Some channels at a time: what was just written a line at a time is not yet ready to be read across lines.
        let (terms, each) = (layout.offsets.len(), layout.room(1));
        let some = (NEAR / each).clamp(1, MOST);
        // A vector of a narrow line reaches beyond the plane.
        let mut room = vec![0.0; some * each + STEP];
        let pieces = x.chunks(some * h * w).zip(y.chunks_mut(some * size)).enumerate();
        for (piece, (x, y)) in pieces {
            layout.fill(simd, x, &mut room);
            for (i, y) in y.chunks_exact_mut(size).enumerate() {
                let channel = (first + piece * some + i) % conv.groups;
                let weights = &conv.weights.as_flattened()[channel * terms..][..terms];
                let plane = Plane { layout, plane: &room[i * each..], weights, bias: conv.bias[channel], low, high };
                match (layout.dense() && conv.kernel[0] == conv.kernel[1], conv.kernel[0]) {
                    (true, 3) => plane.convolve::<S, 3>(simd, y),
                    (true, 5) => plane.convolve::<S, 5>(simd, y),
                    (true, 7) => plane.convolve::<S, 7>(simd, y),
                    _ => plane.convolve::<S, 0>(simd, y),
                }
            }
            if let Some(added) = added {
                let added = &added[piece * some * size..][..y.len()];
                y.iter_mut().zip(added).for_each(|(y, a)| *y += a);
            }
            if bounds.is_none() {
                activation.apply(y);
            }
        }
    }
}

/// A channel's pixels and weights.
struct Plane<'a> {
    layout: &'a Layout,
    plane: &'a [f32],
    weights: &'a [f32],
    bias: f32,
    low: f32,
    high: f32,
}

impl Plane<'_> {
    /// Convolves the whole channel, some lines at a time. A kernel without gaps has the height `K`; 0 stands for any other.
    #[inline(always)]
    fn convolve<S: Simd, const K: usize>(&self, simd: S, y: &mut [f32]) {
        let height = self.layout.output[0];
        // Sevens fit the usual images. Some lines are computed twice.
        match height {
            0..4 => (0..height).for_each(|line| self.lines::<S, 1, K>(simd, line, y)),
            _ if height.is_multiple_of(7) => {
                (0..height).step_by(7).for_each(|line| self.lines::<S, 7, K>(simd, line, y));
            }
            _ => (0..height).step_by(4).for_each(|line| self.lines::<S, 4, K>(simd, line.min(height - 4), y)),
        }
    }

    /// Convolves `R` lines.
    #[inline(always)]
    fn lines<S: Simd, const R: usize, const K: usize>(&self, simd: S, line: usize, y: &mut [f32]) {
        let (width, lanes) = (self.layout.output[1], S::F32_LANES);
        let mut at = 0;
        while at < width {
            // The last vector of a line overlaps the one before.
            let from = if at + lanes > width { width.saturating_sub(lanes) } else { at };
            let sums = if K > 0 { self.dense::<S, R, K>(simd, line, from) } else { self.any::<S, R>(simd, line, from) };
            let (low, high) = (simd.splat_f32s(self.low), simd.splat_f32s(self.high));
            for (r, sum) in sums.into_iter().enumerate() {
                let sum = simd.select_f32s(simd.less_than_f32s(sum, low), low, sum);
                let sum = simd.select_f32s(simd.less_than_f32s(high, sum), high, sum);
                let y = &mut y[(line + r) * width + from..];
                // What is behind a narrow line is written again with the next one.
                match S::as_mut_simd_f32s(y).0.first_mut() {
                    Some(y) => *y = sum,
                    None => simd.partial_store_f32s(y, sum),
                }
            }
            at += lanes;
        }
    }

    /// A vector of each of `R` lines; a vector of pixels is read once for all lines that it counts for.
    #[inline(always)]
    fn dense<S: Simd, const R: usize, const K: usize>(&self, simd: S, line: usize, at: usize) -> [S::f32s; R] {
        let pitch = self.layout.plane[1];
        let (rows, _) = self.weights.as_chunks::<K>();
        let rows: &[[f32; K]; K] = rows.first_chunk().expect("a dense kernel is as wide as high");
        let mut sums = [simd.splat_f32s(self.bias); R];
        for x in 0..K {
            let weights: [S::f32s; K] = std::array::from_fn(|y| simd.splat_f32s(rows[y][x]));
            let mut rest = &self.plane[line * pitch + at + x..];
            // Written out, so that the compiler sees which pixels count for which lines.
            macro_rules! lines {
                ($($down:literal)*) => {$(
                    if $down < R + K - 1 {
                        if $down > 0 {
                            rest = &rest[pitch..];
                        }
                        let pixels = S::as_simd_f32s(&rest[..S::F32_LANES]).0[0];
                        for r in 0..R {
                            if $down >= r && $down < r + K {
                                sums[r] = simd.mul_add_e_f32s(weights[$down - r], pixels, sums[r]);
                            }
                        }
                    }
                )*};
            }
            lines!(0 1 2 3 4 5 6 7 8 9 10 11 12);
        }
        sums
    }

    /// The same for any kernel.
    #[inline(always)]
    fn any<S: Simd, const R: usize>(&self, simd: S, line: usize, at: usize) -> [S::f32s; R] {
        let pitch = self.layout.plane[1];
        let mut sums = [simd.splat_f32s(self.bias); R];
        for (weight, offset) in self.weights.iter().zip(&self.layout.offsets) {
            let weight = simd.splat_f32s(*weight);
            for r in 0..R {
                let from = (line + r) * pitch + at + offset;
                let pixels = S::as_simd_f32s(&self.plane[from..from + S::F32_LANES]).0[0];
                sums[r] = simd.mul_add_e_f32s(weight, pixels, sums[r]);
            }
        }
        sums
    }
}
