//! How images lie in memory for convolutions: planes that hold the padding.
//!
//! At a stride of s, the rows and columns that are s apart lie next to each other, each remainder in a plane of its own. The
//! pixels that one weight meets along a line of the result are then a contiguous run at a fixed offset.

use pulp::bytemuck::{self, Pod};
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

    /// Lays out the pixels of some channels, turned by `of`, with `around` around them. What is behind the planes may be written.
    #[inline(always)]
    pub(super) fn fill<E: Pod, T: Copy>(&self, x: &[E], of: impl Fn(E) -> T + Copy, around: T, room: &mut [T]) {
        let ([h, w], [sy, sx], [ph, pw]) = (self.input, self.stride, self.plane);
        for image in 0..x.len() / (h * w) {
            let from = &x[image * h * w..];
            // In this order: what is written behind a plane belongs to the next one.
            for phase in (0..sy * sx).filter(|&phase| self.used[phase]) {
                let to = &mut room[(image * sy * sx + phase) * ph * pw..];
                match sx {
                    1 => self.fill_plane::<1, E, T>(phase, from, of, around, to),
                    2 => self.fill_plane::<2, E, T>(phase, from, of, around, to),
                    4 => self.fill_plane::<4, E, T>(phase, from, of, around, to),
                    _ => self.fill_plane::<0, E, T>(phase, from, of, around, to),
                }
            }
        }
    }

    /// Lays out one plane of a channel. Pixels are `N` apart in a row of it; 0 stands for any number.
    #[inline(always)]
    fn fill_plane<const N: usize, E: Pod, T: Copy>(
        &self,
        phase: usize,
        from: &[E],
        of: impl Fn(E) -> T + Copy,
        around: T,
        to: &mut [T],
    ) {
        let ([h, w], [ph, pw], [sy, sx]) = (self.input, self.plane, self.stride);
        let remainder = [phase / sx, phase % sx];
        // The first pixel whose place has this remainder, and its place.
        let skip: [usize; 2] = std::array::from_fn(|i| {
            let stride = self.stride[i];
            (remainder[i] + stride - self.before[i] % stride) % stride
        });
        let place: [usize; 2] = std::array::from_fn(|i| (skip[i] + self.before[i]) / self.stride[i]);
        let [lines, count] = [h.saturating_sub(skip[0]).div_ceil(sy), w.saturating_sub(skip[1]).div_ceil(sx)];
        let lines = if count == 0 { 0 } else { lines };
        let mut at = (place[0] * pw + place[1]).min(ph * pw);
        to[..at].fill(around);
        for line in 0..lines {
            let from = &from[(skip[0] + line * sy) * w + skip[1]..];
            fill_line::<N, E, T>(&mut to[at..], from, sx, of, count);
            fill_some(&mut to[at + count..], around, pw - count);
            at += pw;
        }
        if at < ph * pw {
            to[at..ph * pw].fill(around);
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
    for (to, from) in behind.iter_mut().zip(others) {
        *to = from[0];
    }
    for (to, from) in behind[others.len()..].iter_mut().zip(rest.first()) {
        *to = *from;
    }
}

/// `count` pixels that are `stride` apart, `N` where it is not 0, turned by `of`; and more behind them where there is room.
#[inline(always)]
fn fill_line<const N: usize, E: Pod, T: Copy>(
    to: &mut [T],
    from: &[E],
    stride: usize,
    of: impl Fn(E) -> T,
    count: usize,
) {
    // Whole vectors; a loop whose length the compiler knows would be written out in single numbers.
    let whole = count.next_multiple_of(STEP);
    let given = from.as_chunks::<2>().0.as_chunks::<STEP>().0;
    if N == 1 && whole <= to.len().min(from.len()) {
        for (to, from) in to[..whole].iter_mut().zip(from) {
            *to = of(*from);
        }
    } else if N == 2 && whole <= to.len() && whole <= given.len() * STEP {
        for (to, from) in to[..whole].as_chunks_mut::<STEP>().0.iter_mut().zip(given) {
            for (to, from) in to.iter_mut().zip(firsts(from)) {
                *to = of(from);
            }
        }
    } else {
        for (to, from) in to[..count].iter_mut().zip(from.iter().step_by(stride)) {
            *to = of(*from);
        }
    }
}

/// The first of each two, as halves of a wider number: the compiler would take them one by one.
#[inline(always)]
fn firsts<E: Pod>(pairs: &[[E; 2]; STEP]) -> [E; STEP] {
    let mut firsts = pairs.map(|[first, _]| first);
    if cfg!(target_endian = "little") && size_of::<E>() == 4 {
        let mut halves = [0; STEP];
        let wide: [u64; STEP] = bytemuck::cast(*pairs);
        for (wide, half) in wide.iter().zip(&mut halves) {
            *half = *wide as u32;
        }
        firsts = bytemuck::cast(halves);
    }
    firsts
}

/// Writes at least the first `count`, as far as there is room.
#[inline(always)]
fn fill_some<T: Copy>(to: &mut [T], with: T, count: usize) {
    match to.first_chunk_mut::<STEP>() {
        Some(to) if count <= STEP => *to = [with; STEP],
        _ => {
            let count = count.min(to.len());
            to[..count].fill(with);
        }
    }
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
    fn with_simd<S: Simd>(self, _: S) {
        self.layout.fill(self.x, |x| x, 0.0, self.room);
    }
}
