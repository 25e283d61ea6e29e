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
            layout.fill(x, |x| x, 0.0, &mut room);
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
                for (y, a) in y.iter_mut().zip(added) {
                    *y += a;
                }
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
        let [height, width] = self.layout.output;
        // Sevens fit the usual images.
        match (K, width.div_ceil(S::F32_LANES)) {
            _ if height < 4 => self.blocks::<S, 1, K, 1>(simd, y),
            (0, 2) => self.blocks::<S, 4, 0, 2>(simd, y),
            (0, 3) => self.blocks::<S, 2, 0, 3>(simd, y),
            (0, 4..) => self.blocks::<S, 2, 0, 4>(simd, y),
            _ if height.is_multiple_of(7) => self.blocks::<S, 7, K, 1>(simd, y),
            _ => self.blocks::<S, 4, K, 1>(simd, y),
        }
    }

    /// Convolves `R` lines at a time, and some of them twice.
    #[inline(always)]
    fn blocks<S: Simd, const R: usize, const K: usize, const V: usize>(&self, simd: S, y: &mut [f32]) {
        let height = self.layout.output[0];
        for line in (0..height).step_by(R) {
            self.lines::<S, R, K, V>(simd, line.min(height - R), y);
        }
    }

    /// Convolves `R` lines, `V` vectors of them at a time.
    #[inline(always)]
    fn lines<S: Simd, const R: usize, const K: usize, const V: usize>(&self, simd: S, line: usize, y: &mut [f32]) {
        let (width, wide) = (self.layout.output[1], V * S::F32_LANES);
        let mut at = 0;
        while at < width {
            // The last vectors of a line overlap those before.
            let from = if at + wide > width { width.saturating_sub(wide) } else { at };
            let sums = match K {
                0 => self.any::<S, R, V>(simd, line, from),
                _ => self.dense::<S, R, K>(simd, line, from).map(|sum| [sum; V]),
            };
            let (low, high) = (simd.splat_f32s(self.low), simd.splat_f32s(self.high));
            for (r, sums) in sums.into_iter().enumerate() {
                for (v, sum) in sums.into_iter().enumerate() {
                    let sum = simd.select_f32s(simd.less_than_f32s(sum, low), low, sum);
                    let sum = simd.select_f32s(simd.less_than_f32s(high, sum), high, sum);
                    let y = &mut y[(line + r) * width + from + v * S::F32_LANES..];
                    // What is behind a narrow line is written again with the next one.
                    match S::as_mut_simd_f32s(y).0.first_mut() {
                        Some(y) => *y = sum,
                        None => simd.partial_store_f32s(y, sum),
                    }
                }
            }
            at += wide;
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

    /// The same for any kernel, `V` vectors of each line.
    #[inline(always)]
    fn any<S: Simd, const R: usize, const V: usize>(&self, simd: S, line: usize, at: usize) -> [[S::f32s; V]; R] {
        let (pitch, wide) = (self.layout.plane[1], V * S::F32_LANES);
        let mut sums = [[simd.splat_f32s(self.bias); V]; R];
        for (weight, offset) in self.weights.iter().zip(&self.layout.offsets) {
            let weight = simd.splat_f32s(*weight);
            for (r, sums) in sums.iter_mut().enumerate() {
                let (pixels, _) = S::as_simd_f32s(&self.plane[(line + r) * pitch + at + offset..][..wide]);
                let pixels: &[S::f32s; V] = pixels.first_chunk().expect("as many vectors");
                for v in 0..V {
                    sums[v] = simd.mul_add_e_f32s(weight, pixels[v], sums[v]);
                }
            }
        }
        sums
    }
}
