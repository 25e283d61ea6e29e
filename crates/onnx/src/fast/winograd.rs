//! Convolutions of 3×3 pixels at a stride of 1 by Winograd's method: M×M pixels of a result come from N×N of an image, where
//! N = M + 2, with N·N multiplications for each pair of channels instead of 9·M·M.
//!
//! The N×N pixels are turned into N·N other numbers, the points; each point is a product of matrices by itself, as long as
//! there are channels; and each M×M pixels are made of all points. The rows of a tile are at a distance of M: `planes` lays
//! images out so that the same pixel of neighbouring tiles lie side by side, and a vector holds as many tiles.

use std::ops::Range;

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::activation::Activation;
use super::planes::{Layout, Run, STEP, Window};
use super::share;
use super::tile::{Bias, Block, COLUMNS, ROWS};
use super::vectorized;
use crate::memory;

/// Floats that the points of some tiles may take, to stay in the caches while all channels read them.
const NEAR: usize = 5 << 17;

/// Weights of a convolution in points, for tiles of `M`: `[strip][point][channel][ROWS]`. They are several times as long as the
/// convolution's own, so the threads share them, and each has its part of the fresh memory cleared.
pub(super) fn weights<const M: usize, const N: usize>(strips: &[[f32; ROWS]], channels: usize) -> Vec<[f32; ROWS]> {
    let mut all = vec![[0.0; ROWS]; strips.len() / 9 * N * N];
    let pieces = all.par_chunks_exact_mut(channels * N * N).zip(strips.par_chunks_exact(channels * 9));
    pieces.for_each(|(points, strip)| vectorized(Weights::<N> { strip, channels, points }));
    all
}

/// Those of one strip.
struct Weights<'a, const N: usize> {
    strip: &'a [[f32; ROWS]],
    channels: usize,
    points: &'a mut [[f32; ROWS]],
}

impl<const N: usize> WithSimd for Weights<'_, N> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Weights { strip, channels, points } = self;
        let combined = |factors: [f32; 3], three: [&[f32; ROWS]; 3]| -> [f32; ROWS] {
            std::array::from_fn(|i| factors[0] * three[0][i] + factors[1] * three[1][i] + factors[2] * three[2][i])
        };
        for (channel, taps) in strip.as_chunks::<9>().0.iter().enumerate() {
            for i in 0..N {
                let lines: [_; 3] =
                    std::array::from_fn(|x| combined(factors::<N>(i), [&taps[x], &taps[3 + x], &taps[6 + x]]));
                for j in 0..N {
                    points[(i * N + j) * channels + channel] = combined(factors::<N>(j), lines.each_ref());
                }
            }
        }
    }
}

const ROOT: f32 = std::f32::consts::SQRT_2;

/// What the three weights of a line count for a point: the line as a polynomial, at 0, ±1 and infinity for four points; at
/// 0, ±√½, ±√2 and infinity, which loses the fewest digits, for six.
fn factors<const N: usize>(point: usize) -> [f32; 3] {
    match (N, point) {
        (_, 0) => [1.0, 0.0, 0.0],
        (4, 1) => [0.5, 0.5, 0.5],
        (4, 2) => [0.5, -0.5, 0.5],
        (6, 1) => [-2.0 / 3.0, -ROOT / 3.0, -1.0 / 3.0],
        (6, 2) => [-2.0 / 3.0, ROOT / 3.0, -1.0 / 3.0],
        (6, 3) => [1.0 / 6.0, ROOT / 6.0, 1.0 / 3.0],
        (6, 4) => [1.0 / 6.0, -ROOT / 6.0, 1.0 / 3.0],
        _ => [0.0, 0.0, 1.0],
    }
}

/// Points of a line of pixels.
#[inline(always)]
fn spread<S: Simd, const N: usize>(simd: S, d: [S::f32s; N]) -> [S::f32s; N] {
    let mut t = d;
    let times = |factor: f32, x, sum| simd.mul_add_e_f32s(simd.splat_f32s(factor), x, sum);
    if N == 4 {
        t[0] = simd.sub_f32s(d[0], d[2]);
        t[1] = simd.add_f32s(d[1], d[2]);
        t[2] = simd.sub_f32s(d[2], d[1]);
        t[3] = simd.sub_f32s(d[1], d[3]);
    } else {
        t[0] = times(-2.5, d[2], simd.add_f32s(d[0], d[4]));
        let even = times(-2.0, d[2], d[4]);
        let odd = times(-2.0, d[1], d[3]);
        let half = simd.splat_f32s(0.5 * ROOT);
        t[1] = simd.mul_add_e_f32s(half, odd, even);
        t[2] = simd.sub_f32s(even, simd.mul_f32s(half, odd));
        let even = times(-0.5, d[2], d[4]);
        let odd = times(-0.5, d[1], d[3]);
        t[3] = times(ROOT, odd, even);
        t[4] = times(-ROOT, odd, even);
        t[5] = times(-2.5, d[3], simd.add_f32s(d[1], d[5]));
    }
    t
}

/// A line of `M` pixels of the result, from its points.
#[inline(always)]
fn gather<S: Simd, const M: usize, const N: usize>(simd: S, p: [S::f32s; N]) -> [S::f32s; M] {
    let mut y = [p[0]; M];
    let times = |factor: f32, x, sum| simd.mul_add_e_f32s(simd.splat_f32s(factor), x, sum);
    let (sum, difference) = (simd.add_f32s(p[1], p[2]), simd.sub_f32s(p[1], p[2]));
    if N == 4 {
        y[0] = simd.add_f32s(p[0], sum);
        y[1] = simd.sub_f32s(difference, p[3]);
    } else {
        let (far, other) = (simd.add_f32s(p[3], p[4]), simd.sub_f32s(p[3], p[4]));
        y[0] = simd.add_f32s(p[0], simd.add_f32s(sum, far));
        y[1] = simd.mul_f32s(simd.splat_f32s(ROOT), times(0.5, difference, other));
        y[2] = times(0.5, sum, simd.add_f32s(far, far));
        y[3] = times(0.25 * ROOT, difference, times(2.0 * ROOT, other, p[5]));
    }
    y
}

/// A convolution of images of one size.
#[derive(Clone, Copy)]
pub(super) struct Winograd<'a> {
    /// As [`weights`] makes them.
    pub(super) weights: &'a [[f32; ROWS]],
    pub(super) bias: &'a [f32],
    pub(super) inputs: usize,
    pub(super) input: [usize; 2],
    pub(super) before: [usize; 2],
    pub(super) output: [usize; 2],
    pub(super) added: Option<&'a [f32]>,
    pub(super) activation: Activation,
}

impl Winograd<'_> {
    /// Convolves images, on so many threads.
    pub(super) fn run<const M: usize, const N: usize>(self, x: &[f32], threads: usize, y: &mut [f32]) {
        let [height, width] = self.output;
        let (size, tiles) = (height * width, self.output.map(|len| len.div_ceil(M)));
        let pads = std::array::from_fn(|i| {
            let covered = tiles[i] * M + N - M;
            (self.before[i], covered.saturating_sub(self.before[i] + self.input[i]))
        });
        let window = Window { kernel: [N, N], stride: [M, M], dilation: [1, 1], pads };
        let layout = Layout::new(window, self.inputs, self.input, tiles);
        let in_len = self.inputs * self.input[0] * self.input[1];
        let channels = self.bias.len();
        let alone = threads > 1 || tiles[0] * tiles[1] >= 2 * COLUMNS;
        let together = if alone { 1 } else { (2 * COLUMNS).div_ceil(tiles[0] * tiles[1]) };
        for (i, (x, y)) in x.chunks(together * in_len).zip(y.chunks_mut(together * channels * size)).enumerate() {
            let added = self.added.map(|added| &added[i * together * channels * size..][..y.len()]);
            let winograd = Winograd { added, ..self };
            let planes = layout.planes(x, threads);
            let work = |channels: Range<usize>, lines: Range<usize>, y: &mut [&mut [f32]]| {
                let layout = &layout;
                vectorized(Work::<M, N> { winograd, layout, planes: &planes, channels, lines, y });
            };
            if threads == 1 {
                let mut y: Vec<_> = y.chunks_exact_mut(size).collect();
                work(0..channels, 0..x.len() / in_len * tiles[0], &mut y);
            } else {
                let some = |all: usize| all.div_ceil(2 * threads);
                let shape = if tiles[0] * tiles[1] >= 2 * threads * COLUMNS {
                    [channels, some(tiles[0]) * M * width]
                } else {
                    [some(channels.div_ceil(ROWS)) * ROWS, size]
                };
                let mut pieces = share::pieces(y.chunks_exact_mut(size), size, shape);
                pieces.par_iter_mut().for_each(|piece| {
                    let lines = piece.columns.start / (M * width)..piece.columns.end.div_ceil(M * width);
                    work(piece.rows.clone(), lines, &mut piece.y);
                });
            }
            memory::give(planes);
        }
    }
}

/// Some channels of the result, and some lines of tiles: those of whole images, or some of one image.
struct Work<'a, 'y, const M: usize, const N: usize> {
    winograd: Winograd<'a>,
    layout: &'a Layout,
    planes: &'a [f32],
    channels: Range<usize>,
    lines: Range<usize>,
    /// The pixels of these lines: image after image, each channel by itself.
    y: &'a mut [&'y mut [f32]],
}

impl<const M: usize, const N: usize> WithSimd for Work<'_, '_, M, N> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Work { winograd, layout, planes, channels, lines, y } = self;
        let (inputs, across) = (winograd.inputs, layout.output[1]);
        let few = NEAR / (N * N * inputs) / STEP * STEP;
        let pitch = few.clamp(STEP, COLUMNS);
        let offsets: Vec<usize> = (0..inputs).map(|channel| channel * pitch).collect();
        // Vectors that are not full reach beyond the last channel and the last row.
        let (deep, high) = (inputs * pitch + STEP, ROWS * COLUMNS + STEP);
        let mut points = memory::take(N * N * deep);
        let mut sums = memory::take(N * N * high);
        let mut runs = Vec::new();
        let end = lines.end * across;
        for first in (lines.start * across..end).step_by(pitch) {
            let count = (end - first).min(pitch);
            layout.runs(first, count, layout.room(inputs), &mut runs);
            points_of::<S, N>(simd, layout, planes, &runs, pitch, &mut points);
            for strip in channels.start / ROWS..channels.end.div_ceil(ROWS) {
                let rows = (channels.end - strip * ROWS).min(ROWS);
                for point in 0..N * N {
                    let mut parts = sums[point * high..][..high].chunks_exact_mut(COLUMNS);
                    let mut y: [&mut [f32]; ROWS] = std::array::from_fn(|_| parts.next().unwrap_or_default());
                    simd.vectorize(Block {
                        left: &winograd.weights[(strip * N * N + point) * inputs..][..inputs],
                        right: &points[point * deep..],
                        next: 0,
                        offsets: &offsets,
                        columns: count,
                        bias: Bias::None,
                        added: None,
                        activation: Activation::None,
                        y: &mut y[..rows],
                        at: 0,
                    });
                }
                for row in 0..rows {
                    let result = Result { winograd, layout, channel: strip * ROWS + row, lines: &lines };
                    let within = strip * ROWS + row - channels.start;
                    for run in &runs {
                        result.write::<S, M, N>(simd, &sums[row * COLUMNS..], first, run, within, channels.len(), y);
                    }
                }
            }
        }
        memory::give(points);
        memory::give(sums);
    }
}

/// The points of some tiles, in all channels: `[point][channel][tile]`.
#[inline(always)]
fn points_of<S: Simd, const N: usize>(
    simd: S,
    layout: &Layout,
    planes: &[f32],
    runs: &[Run],
    pitch: usize,
    points: &mut [f32],
) {
    let deep = points.len() / (N * N);
    for (channel, offsets) in layout.offsets.chunks_exact(N * N).enumerate() {
        for run in runs {
            for done in (0..run.len).step_by(S::F32_LANES) {
                let planes = &planes[run.at + done..];
                let mut lines = [[simd.splat_f32s(0.0); N]; N];
                for j in 0..N {
                    let mut pixels = [simd.splat_f32s(0.0); N];
                    for i in 0..N {
                        pixels[i] = S::as_simd_f32s(&planes[offsets[i * N + j]..][..S::F32_LANES]).0[0];
                    }
                    let down = spread::<S, N>(simd, pixels);
                    for i in 0..N {
                        lines[i][j] = down[i];
                    }
                }
                let at = channel * pitch + run.column + done;
                for i in 0..N {
                    let line = spread::<S, N>(simd, lines[i]);
                    for j in 0..N {
                        let to = &mut points[(i * N + j) * deep + at..][..S::F32_LANES];
                        S::as_mut_simd_f32s(to).0[0] = line[j];
                    }
                }
            }
        }
    }
}

/// Where the pixels of one channel go.
struct Result<'a> {
    winograd: Winograd<'a>,
    layout: &'a Layout,
    channel: usize,
    lines: &'a Range<usize>,
}

impl Result<'_> {
    /// Makes the pixels of a run of tiles of their points' sums.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "what is read, and where it goes")]
    fn write<S: Simd, const M: usize, const N: usize>(
        &self,
        simd: S,
        sums: &[f32],
        first: usize,
        run: &Run,
        within: usize,
        channels: usize,
        y: &mut [&mut [f32]],
    ) {
        let Result { winograd, layout, channel, lines } = self;
        let ([height, width], [down, across]) = (winograd.output, layout.output);
        let high = ROWS * COLUMNS + STEP;
        let bias = simd.splat_f32s(winograd.bias[*channel]);
        let bounds = winograd.activation.bounds();
        let (low, most) = bounds.unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
        // The image, the line of tiles within it, and the tile within the line.
        let (line, tile) = ((first + run.column) / across, (first + run.column) % across);
        let (image, line) = (line / down, line % down);
        // Lines from another one than the first on are those of one image.
        let y = &mut *y[image * channels + within];
        for done in (0..run.len).step_by(S::F32_LANES) {
            let mut columns = [[simd.splat_f32s(0.0); N]; M];
            for j in 0..N {
                let mut points = [simd.splat_f32s(0.0); N];
                for i in 0..N {
                    let from = &sums[(i * N + j) * high + run.column + done..][..S::F32_LANES];
                    points[i] = S::as_simd_f32s(from).0[0];
                }
                let down = gather::<S, M, N>(simd, points);
                for a in 0..M {
                    columns[a][j] = down[a];
                }
            }
            let from = (tile + done) * M;
            let len = ((run.len - done).min(S::F32_LANES) * M).min(width - from);
            for a in 0..M.min(height - line * M) {
                let pixels = gather::<S, M, N>(simd, columns[a]);
                // Pixel by pixel of a tile becomes tile by tile.
                let mut apart = [[0.0f32; 16]; M];
                for b in 0..M {
                    S::as_mut_simd_f32s(&mut apart[b]).0[0] = simd.add_f32s(pixels[b], bias);
                }
                let mut together = [[0.0f32; M]; 16];
                for t in 0..16 {
                    for b in 0..M {
                        together[t][b] = apart[b][t];
                    }
                }
                let at = ((line - lines.start) * M + a) * width + from;
                let y = &mut y[at..at + len];
                let together = &mut together.as_flattened_mut()[..len];
                if let Some(added) = winograd.added {
                    let at = ((image * winograd.bias.len() + channel) * height + line * M + a) * width + from;
                    together.iter_mut().zip(&added[at..]).for_each(|(y, added)| *y += added);
                }
                for (y, &x) in y.iter_mut().zip(&*together) {
                    let x = if x < low { low } else { x };
                    *y = if x > most { most } else { x };
                }
                if bounds.is_none() {
                    winograd.activation.apply(y);
                }
            }
        }
    }
}
