//! How images lie in memory for convolutions: planes that hold the padding.
//!
//! At a stride of s, the rows and columns that are s apart lie next to each other, each remainder in a plane of its own. The
//! pixels that one weight meets along a line of the result are then a contiguous run at a fixed offset.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::tile::COLUMNS;
use super::vectorized;
use crate::memory;

/// Floats that are copied at a time where what is behind them may be written as well.
pub(super) const STEP: usize = 16;

/// One input size: how an image lies in planes, and where a weight's pixels are.
pub(super) struct Layout {
    pub(super) input: [usize; 2],
    before: [usize; 2],
    pub(super) output: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    /// Height and width of a plane.
    pub(super) plane: [usize; 2],
    /// Of each weight of a channel, for all channels of a group.
    pub(super) offsets: Vec<usize>,
    /// The planes that are read at all.
    used: Vec<bool>,
    /// The planes are the image itself.
    pub(super) bare: bool,
}

/// A window over an image.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) kernel: [usize; 2],
    pub(super) stride: [usize; 2],
    pub(super) dilation: [usize; 2],
    pub(super) pads: [(usize, usize); 2],
}

/// A stretch of columns of one panel whose pixels lie side by side.
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// The first of them, within its panel.
    pub(super) column: usize,
    /// The place of its pixel in the planes, before a weight's offset.
    pub(super) at: usize,
    pub(super) len: usize,
}

impl Layout {
    pub(super) fn new(window: Window, channels: usize, input: [usize; 2], output: [usize; 2]) -> Layout {
        let Window { kernel, stride, dilation, pads } = window;
        let padded: [usize; 2] = std::array::from_fn(|i| input[i] + pads[i].0 + pads[i].1);
        let plane: [usize; 2] = std::array::from_fn(|i| padded[i].div_ceil(stride[i]));
        let [sy, sx] = stride;
        let mut offsets = Vec::with_capacity(channels * kernel[0] * kernel[1]);
        let mut used = vec![false; sy * sx];
        for channel in 0..channels {
            for y in (0..kernel[0]).map(|y| y * dilation[0]) {
                for x in (0..kernel[1]).map(|x| x * dilation[1]) {
                    let phase = y % sy * sx + x % sx;
                    used[phase] = true;
                    offsets.push(((channel * sy * sx + phase) * plane[0] + y / sy) * plane[1] + x / sx);
                }
            }
        }
        let bare = pads == [(0, 0); 2] && stride == [1, 1];
        let before = pads.map(|(before, _)| before);
        Layout { input, before, output, stride, dilation, plane, offsets, used, bare }
    }

    /// Floats that the planes of some channels take.
    pub(super) fn room(&self, channels: usize) -> usize {
        channels * (0..2).map(|i| self.stride[i] * self.plane[i]).product::<usize>()
    }

    /// The planes of images, all channels of all of them, and [`STEP`] floats of any value behind.
    pub(super) fn planes(&self, x: &[f32], threads: usize) -> Vec<f32> {
        let pixels = self.input[0] * self.input[1];
        let channels = x.len() / pixels;
        let mut room = memory::take(self.room(channels) + STEP);
        if threads == 1 {
            vectorized(Fill { layout: self, x, room: &mut room });
        } else {
            let some = channels.div_ceil(threads);
            let pieces = x.par_chunks(some * pixels).zip(room.par_chunks_mut(self.room(some)));
            pieces.for_each(|(x, room)| vectorized(Fill { layout: self, x, room }));
        }
        room
    }

    /// Copies the pixels of all channels of an image to their planes, turned by `of`. What is around them stays.
    #[inline(always)]
    pub(super) fn fill_whole<E: Copy, T>(&self, x: &[E], of: impl Fn(E) -> T, room: &mut [T]) {
        let ([h, w], [sy, sx], [ph, pw]) = (self.input, self.stride, self.plane);
        for (image, planes) in x.chunks_exact(h * w).zip(room.chunks_exact_mut(sy * sx * ph * pw)) {
            for phase in 0..sx {
                // The first pixel whose place has this remainder.
                let skip = (phase + sx - self.before[1] % sx) % sx;
                let first = (skip + self.before[1]) / sx;
                let (mut line, mut remainder) = (self.before[0] / sy, self.before[0] % sy);
                for row in image.chunks_exact(w) {
                    let plane = remainder * sx + phase;
                    if self.used[plane] {
                        let (to, row) =
                            (&mut planes[(plane * ph + line) * pw + first..], row.get(skip..).unwrap_or_default());
                        match sx {
                            1 => to.iter_mut().zip(row).for_each(|(to, from)| *to = of(*from)),
                            2 => {
                                let (pairs, rest) = row.as_chunks::<2>();
                                to.iter_mut().zip(pairs).for_each(|(to, [from, _])| *to = of(*from));
                                to.iter_mut().skip(pairs.len()).zip(rest).for_each(|(to, from)| *to = of(*from));
                            }
                            _ => to.iter_mut().zip(row.iter().step_by(sx)).for_each(|(to, from)| *to = of(*from)),
                        }
                    }
                    remainder += 1;
                    if remainder == sy {
                        (line, remainder) = (line + 1, 0);
                    }
                }
            }
        }
    }

    /// How many pixels of the result lie side by side in the planes: lines without padding behind them are one.
    pub(super) fn line(&self) -> usize {
        let [height, width] = self.output;
        if self.plane[1] == width { height * width } else { width }
    }

    /// The columns from `first` on, pixel after pixel and image after image, which have `image` floats each in the planes.
    pub(super) fn runs(&self, first: usize, count: usize, image: usize, runs: &mut Vec<Run>) {
        let (pitch, width) = (self.plane[1], self.line());
        let height = self.output[0] * self.output[1] / width;
        runs.clear();
        let mut column = 0;
        while column < count {
            let (line, x) = ((first + column) / width, (first + column) % width);
            let len = (width - x).min(count - column).min(COLUMNS - column % COLUMNS);
            runs.push(Run { column, at: line / height * image + line % height * pitch + x, len });
            column += len;
        }
    }

    /// Whether the window has no gaps and moves by single pixels.
    pub(super) fn dense(&self) -> bool {
        self.stride == [1, 1] && self.dilation == [1, 1]
    }

    /// Copies the pixels of some channels to their planes, and writes zeros around them.
    #[inline(always)]
    pub(super) fn fill<S: Simd>(&self, simd: S, x: &[f32], room: &mut [f32]) {
        let ([h, w], [sy, sx], [ph, pw]) = (self.input, self.stride, self.plane);
        let channel = sy * sx * ph * pw;
        if [sy, sx] == [1, 1] {
            for i in 0..x.len() / (h * w) {
                let plane = &mut room[i * channel..];
                let first = self.before[0] * pw + self.before[1];
                plane[..first].fill(0.0);
                for y in 0..h {
                    copy_line(simd, &mut plane[first + y * pw..], &x[(i * h + y) * w..], w, pw - w);
                }
                plane[(first + h * pw).min(channel)..channel].fill(0.0);
            }
            return;
        }
        for (image, planes) in x.chunks_exact(h * w).zip(room.chunks_exact_mut(channel)) {
            for (plane, _) in planes.chunks_exact_mut(ph * pw).zip(&self.used).filter(|(_, used)| **used) {
                plane.fill(0.0);
            }
            for (y, row) in image.chunks_exact(w).enumerate() {
                let y = y + self.before[0];
                let first = (y % sy) * sx;
                if !self.used[first..first + sx].contains(&true) {
                    continue;
                }
                for phase in (0..sx).filter(|phase| self.used[first + phase]) {
                    // The first pixel whose place has this remainder.
                    let skip = (phase + sx - self.before[1] % sx) % sx;
                    let at = ((first + phase) * ph + y / sy) * pw + (skip + self.before[1]) / sx;
                    let (to, row) = (&mut planes[at..], row.get(skip..).unwrap_or_default());
                    match sx {
                        1 => to[..row.len()].copy_from_slice(row),
                        2 => apart::<2>(row, to),
                        4 => apart::<4>(row, to),
                        _ => to.iter_mut().zip(row.iter().step_by(sx)).for_each(|(to, from)| *to = *from),
                    }
                }
            }
        }
    }
}

/// Every `N`th element, from the first on, as far as there is room.
#[inline(always)]
pub(super) fn apart<const N: usize>(from: &[f32], to: &mut [f32]) {
    let (whole, rest) = from.as_chunks::<N>();
    let (some, others) = whole.as_chunks::<STEP>();
    let (first, behind) = to.split_at_mut(some.len() * STEP);
    for (to, from) in first.as_chunks_mut::<STEP>().0.iter_mut().zip(some) {
        *to = std::array::from_fn(|i| from[i][0]);
    }
    behind.iter_mut().zip(others).for_each(|(to, from)| *to = from[0]);
    behind[others.len()..].iter_mut().zip(rest.first()).for_each(|(to, from)| *to = *from);
}

/// Copies a line of `len` floats, and writes so many zeros behind it; more of them where there is room, which whoever calls
/// writes later.
#[inline(always)]
fn copy_line<S: Simd>(simd: S, to: &mut [f32], from: &[f32], len: usize, zeros: usize) {
    let (lanes, rest) = (S::F32_LANES, len % S::F32_LANES);
    let whole = len - rest;
    if zeros > lanes || to.len() < len + lanes || from.len() < whole + lanes {
        to[..len].copy_from_slice(&from[..len]);
        let end = to.len().min(len + zeros);
        return to[len..end].fill(0.0);
    }
    let (vectors, _) = S::as_simd_f32s(&from[..whole + lanes]);
    let (all, _) = S::as_mut_simd_f32s(&mut to[..whole + lanes]);
    match (all, vectors) {
        ([to], [from]) => *to = *from,
        ([to, next], [from, behind]) => {
            *to = *from;
            *next = *behind;
        }
        (all, vectors) => all.copy_from_slice(vectors),
    }
    S::as_mut_simd_f32s(&mut to[len..len + lanes]).0[0] = simd.splat_f32s(0.0);
}

/// Copies `len` floats, and some of those behind them where there is room: whoever calls writes these later, or never reads
/// them.
#[inline(always)]
pub(super) fn spill(to: &mut [f32], from: &[f32], len: usize) {
    let mut done = 0;
    while done < len {
        match (to[done..].first_chunk_mut::<STEP>(), from[done..].first_chunk::<STEP>()) {
            (Some(to), Some(from)) => *to = *from,
            _ => {
                let count = (len - done).min(STEP);
                to[done..done + count].copy_from_slice(&from[done..done + count]);
            }
        }
        done += STEP;
    }
}

/// Fills the planes of some channels.
struct Fill<'a> {
    layout: &'a Layout,
    x: &'a [f32],
    room: &'a mut [f32],
}

impl WithSimd for Fill<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        self.layout.fill(simd, self.x, self.room);
    }
}
