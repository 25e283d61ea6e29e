//! Convolutions over images, as products: weights times the pixels that each weight meets.
//!
//! No matrix of all windows is made: the pixels of a few columns are gathered from planes (`planes`), and multiplied with
//! the weights of all channels while they are in the nearest caches. Images that are small are taken together, so that
//! their columns fill whole vectors.

use std::sync::OnceLock;

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::activation::{Activation, of_no_terms};
use super::planes::{self, Layout, Run, Window};
use super::share::{self, Piece, Sharing};
use super::tile::{self, Added, Bias, Block, COLUMNS, ROWS};
use super::winograd::{self, Winograd};
use super::woven::{self, Turned};
use super::{depthwise, vectorized};
use crate::memory;

/// Fewest columns of an image that is convolved by itself.
const ALONE: usize = 4 * COLUMNS;
/// Most strips of rows for which the pixels are read where they are: gathering them takes about as long as one strip.
const IN_PLACE: usize = 2;
/// Floats that are gathered at a time, to stay in the second-level cache, and the most panels. The longer the stretches of
/// each row that are written together, the fewer lines of the result are visited twice.
const GATHERED: usize = 1 << 15;
const PANELS: usize = 8;

/// Floats of woven images and of what is made of them, to stay in the second-level cache.
const WOVEN: usize = 1 << 16;

/// A convolution's geometry and weights, prepared once.
pub(crate) struct Conv {
    pub(crate) groups: usize,
    /// Of each group: channels read, and channels written.
    inputs: usize,
    outputs: usize,
    pub(super) kernel: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    /// `[group][strip][term][ROWS]`, or, where each channel is convolved by itself, `[channel][term]`.
    pub(super) weights: Vec<[f32; ROWS]>,
    pub(super) bias: Vec<f32>,
    /// The weights for tiles of two and of four pixels, made when they are first needed.
    tiles: [OnceLock<Vec<[f32; ROWS]>>; 2],
}

impl Conv {
    /// `weights` are `[groups · outputs][inputs][height][width]`, `bias` one for each output channel.
    pub(crate) fn new(
        weights: &[f32],
        bias: Option<&[f32]>,
        groups: usize,
        [outputs, inputs, height, width]: [usize; 4],
        stride: [usize; 2],
        dilation: [usize; 2],
    ) -> Conv {
        let (each, terms) = (outputs / groups, inputs * height * width);
        let mut strips = Vec::new();
        if each == 1 && inputs == 1 {
            let filled = |some: &[f32]| std::array::from_fn(|i| some.get(i).copied().unwrap_or(0.0));
            strips.extend(weights.chunks(ROWS).map(filled));
        } else {
            for group in weights.chunks(each * terms) {
                match groups {
                    1 => strips = tile::strips(group, terms),
                    _ => strips.append(&mut tile::strips(group, terms)),
                }
            }
        }
        let bias = bias.map_or_else(|| vec![0.0; outputs], <[f32]>::to_vec);
        let kernel = [height, width];
        Conv {
            groups,
            inputs,
            outputs: each,
            kernel,
            stride,
            dilation,
            weights: strips,
            bias,
            tiles: Default::default(),
        }
    }

    /// Whether each channel is convolved by itself, into one.
    fn is_depthwise(&self) -> bool {
        self.inputs == 1 && self.outputs == 1
    }

    /// How many pixels the tiles are wide and high with which Winograd's method is the quickest, if it is.
    ///
    /// Costs are in multiplications of a product. Their factors were fitted to the times of 26 convolutions of 7×7 to 224×224 pixels and
    /// 16 to 512 channels, on a processor with vectors of 16 floats.
    fn tile(&self, images: usize, output: [usize; 2]) -> Option<usize> {
        const LANES: usize = 16;
        let fits = self.kernel == [3, 3] && self.stride == [1, 1] && self.dilation == [1, 1] && self.groups == 1;
        if !fits {
            return None;
        }
        let (pairs, pixels) = (self.inputs * self.outputs, images * output[0] * output[1]);
        let product = 11 * pairs * pixels.next_multiple_of(LANES) + 170 * self.inputs * pixels;
        let tiled = |size: usize| {
            let [down, across] = output.map(|len| len.div_ceil(size));
            let vectors = images * down * across.div_ceil(LANES);
            // Weights of this method come from afar, and vectors of pixels are turned as a whole, however few there are in one.
            let products = 3 * pairs * (images * down * across).next_multiple_of(LANES) / 2 + 7 * pairs;
            (size + 2) * (size + 2) * (products + (1050 * self.inputs + 530 * self.outputs) * vectors)
        };
        [2, 4].into_iter().min_by_key(|size| tiled(*size)).filter(|size| tiled(*size) < product)
    }

    /// How many of these images are woven into one, as their lines are too short.
    fn woven(&self, layout: &Layout, images: usize) -> usize {
        let room =
            layout.room(self.groups * self.inputs) + self.groups * self.outputs * layout.output[0] * layout.output[1];
        let is_short = self.stride == [1, 1] && layout.line() < COLUMNS;
        if is_short { images.min(woven::MOST).min(WOVEN / room) } else { 0 }
    }

    /// The weights for tiles of this size. Threads share making them, and one of them may meanwhile be lent to another batch that
    /// asks for the same: nobody waits here, and what is made twice is right twice.
    fn tiled(&self, tile: usize) -> &[[f32; ROWS]] {
        let made = &self.tiles[usize::from(tile > 2)];
        if let Some(weights) = made.get() {
            return weights;
        }
        let weights = match tile {
            2 => winograd::weights::<2, 4>(&self.weights, self.inputs),
            _ => winograd::weights::<4, 6>(&self.weights, self.inputs),
        };
        made.get_or_init(|| weights)
    }

    /// Convolves a batch of images `x`, `[images][channels][height][width]`, into `y`.
    ///
    /// `added` has the shape of the result and is added before the activation.
    #[allow(clippy::too_many_arguments, reason = "they are the operation's own, and none goes with another")]
    pub(crate) fn run(
        &self,
        x: &[f32],
        input: [usize; 2],
        pads: [(usize, usize); 2],
        output: [usize; 2],
        added: Option<&[f32]>,
        activation: Activation,
        y: &mut [f32],
    ) {
        let size = output[0] * output[1];
        let (in_len, out_len) = (self.groups * self.inputs * input[0] * input[1], self.groups * self.outputs * size);
        if y.is_empty() {
            return;
        }
        // Windows over padding alone.
        if in_len == 0 || out_len == 0 {
            return of_no_terms(Some(&self.bias), size, added, activation, y);
        }
        let window = Window { kernel: self.kernel, stride: self.stride, dilation: self.dilation, pads };
        let layout = Layout::new(window, self.inputs, input, output);
        let images = x.len() / in_len;
        let multiplications = out_len * layout.offsets.len();
        if self.is_depthwise() {
            let work = |first: usize, x: &[f32], y: &mut [f32]| {
                let added = added.map(|added| &added[first * size..][..y.len()]);
                vectorized(depthwise::Work { conv: self, layout: &layout, x, first, added, activation, y });
            };
            let threads = share::threads(images * multiplications);
            if threads == 1 {
                return work(0, x, y);
            }
            let (some, pixels) = ((images * self.groups).div_ceil(threads), input[0] * input[1]);
            let pieces = x.par_chunks(some * pixels).zip(y.par_chunks_mut(some * size)).enumerate();
            return pieces.for_each(|(i, (x, y))| work(i * some, x, y));
        }
        let batch = Batch { conv: self, layout: &layout, activation };
        let woven = |images| Some(self.woven(&layout, images)).filter(|together| *together >= woven::FEWEST);
        let tiled = self.tile(images, output).map(|tile| (tile, self.tiled(tile)));
        let batch = |x: &[f32], added: Option<&[f32]>, threads: usize, y: &mut [f32]| {
            let before = pads.map(|(before, _)| before);
            let Conv { ref bias, inputs, .. } = *self;
            match tiled {
                Some((tile, weights)) => {
                    let winograd = Winograd { weights, bias, inputs, input, before, output, added, activation };
                    match tile {
                        2 => winograd.run::<2, 4>(x, threads, y),
                        _ => winograd.run::<4, 6>(x, threads, y),
                    }
                }
                None => match woven(x.len() / in_len).filter(|_| threads == 1) {
                    Some(together) => batch.run_woven(window, together, x, added, y),
                    None => batch.run(x, added, threads, y),
                },
            }
        };
        let each = match Sharing::of(images, multiplications) {
            Sharing::Split(threads) => return batch(x, added, threads, y),
            Sharing::Whole(each) => each,
        };
        let pieces = x.par_chunks(each * in_len).zip(y.par_chunks_mut(each * out_len)).enumerate();
        pieces.for_each(|(i, (x, y))| {
            batch(x, added.map(|added| &added[i * each * out_len..][..y.len()]), 1, y);
        });
    }
}

/// A convolution of images of one size.
#[derive(Clone, Copy)]
struct Batch<'a> {
    conv: &'a Conv,
    layout: &'a Layout,
    activation: Activation,
}

impl Batch<'_> {
    /// Convolves images, on so many threads.
    fn run(self, x: &[f32], added: Option<&[f32]>, threads: usize, y: &mut [f32]) {
        let Batch { conv, layout, activation } = self;
        let (channels, size) = (conv.groups * conv.outputs, layout.output[0] * layout.output[1]);
        let in_len = conv.groups * conv.inputs * layout.input[0] * layout.input[1];
        let together = if size < ALONE { x.len() / in_len } else { 1 };
        let pieces = x.chunks(together * in_len).zip(y.chunks_mut(together * channels * size)).enumerate();
        for (i, (x, y)) in pieces {
            let added = added.map(|added| &added[i * together * channels * size..][..y.len()]);
            let images = x.len() / in_len;
            let room = (!layout.bare).then(|| layout.planes(x, threads));
            let planes = room.as_ref().map_or(x, |room| &room[..room.len() - planes::STEP]);
            if images == 1 {
                self.product(planes, y.chunks_exact_mut(size), added, activation, threads);
            } else {
                // Channel after channel, and then image after image.
                let mut rows = memory::take(y.len());
                self.product(planes, rows.chunks_exact_mut(images * size), None, Activation::None, threads);
                vectorized(Turn { rows: &rows, size, images, added, activation, y });
                memory::give(rows);
            }
            room.into_iter().for_each(memory::give);
        }
    }

    /// Convolves images, so many of which are woven into one at a time.
    fn run_woven(self, window: Window, together: usize, x: &[f32], added: Option<&[f32]>, y: &mut [f32]) {
        let Batch { conv, layout, activation } = self;
        let ([h, w], [out_h, out_w]) = (layout.input, layout.output);
        let (in_len, out_len) = (conv.groups * conv.inputs * h * w, conv.groups * conv.outputs * out_h * out_w);
        let images = x.len() / in_len;
        let (input, output) = ([h, w * together], [out_h, out_w * together]);
        let wide = Layout::new(woven::window(window, together), conv.inputs, input, output);
        let early = if added.is_none() { activation } else { Activation::None };
        let batch = Batch { conv, layout: &wide, activation: early };
        let (mut from, mut to) = (memory::take(together * in_len), memory::take(together * out_len));
        let whole = images / together * together;
        let (some, rest) = (x.split_at(whole * in_len), y.split_at_mut(whole * out_len));
        let ((x, last), (y, last_y)) = (some, rest);
        for (i, (x, y)) in x.chunks(together * in_len).zip(y.chunks_mut(together * out_len)).enumerate() {
            vectorized(Turned { rows: together, from: x, to: &mut from });
            batch.run(&from, None, 1, &mut to);
            vectorized(Turned { rows: out_len, from: &to, to: y });
            if let Some(added) = added {
                let added = &added[i * together * out_len..][..y.len()];
                vectorized(Add { added, activation, y });
            }
        }
        memory::give(from);
        memory::give(to);
        let added = added.map(|added| &added[whole * out_len..]);
        match images - whole {
            0 => {}
            left if left >= woven::FEWEST => self.run_woven(window, left, last, added, last_y),
            _ => self.run(last, added, 1, last_y),
        }
    }

    /// Computes all rows of the product.
    fn product<'y>(
        self,
        planes: &[f32],
        rows: impl ExactSizeIterator<Item = &'y mut [f32]>,
        added: Option<&[f32]>,
        activation: Activation,
        threads: usize,
    ) {
        let Batch { conv, layout, .. } = self;
        let columns = planes.len() / self.image(planes.len()) * layout.output[0] * layout.output[1];
        let panels = columns.div_ceil(COLUMNS);
        // A few pieces for each thread, of whole panels or else of whole strips; a group is not taken apart.
        let some = |all: usize| all.div_ceil(2 * threads);
        let shape = if threads == 1 {
            [rows.len(), columns]
        } else if panels >= 4 * threads {
            [rows.len(), some(panels) * COLUMNS]
        } else if conv.groups > 1 {
            [some(conv.groups) * conv.outputs, columns]
        } else {
            [some(conv.outputs.div_ceil(ROWS)) * ROWS, columns]
        };
        let mut pieces = share::pieces(rows, columns, shape);
        let work = |piece: &mut Piece<'_>| {
            vectorized(Work { batch: Batch { activation, ..self }, planes, added, columns, piece });
        };
        match &mut pieces[..] {
            [piece] => work(piece),
            pieces => pieces.par_iter_mut().for_each(work),
        }
    }

    /// Floats that an image takes in the planes of all.
    fn image(self, planes: usize) -> usize {
        let Batch { conv, layout, .. } = self;
        let channels = conv.groups * conv.inputs;
        let image = if layout.bare { channels * layout.input[0] * layout.input[1] } else { layout.room(channels) };
        debug_assert!(planes.is_multiple_of(image), "whole images");
        image
    }
}

/// A piece of the product.
struct Work<'a, 'y> {
    batch: Batch<'a>,
    planes: &'a [f32],
    added: Option<&'a [f32]>,
    /// Of the whole product.
    columns: usize,
    piece: &'a mut Piece<'y>,
}

impl WithSimd for Work<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Work { batch, planes, added, columns, piece } = self;
        let Batch { conv, layout, activation } = batch;
        let (terms, image) = (layout.offsets.len(), batch.image(planes.len()));
        let (strips, group_len) = (conv.outputs.div_ceil(ROWS), image / conv.groups);
        let (first, panel) = (piece.rows.start, terms * COLUMNS);
        let some = (GATHERED / panel).clamp(1, PANELS);
        let mut room = memory::take(some * panel);
        let packed: Vec<usize> = (0..terms).map(|term| term * COLUMNS).collect();
        let reach = layout.offsets.iter().max().copied().unwrap_or(0) + COLUMNS;
        let mut runs = Vec::new();
        let in_place = strips <= IN_PLACE;
        let mut column = piece.columns.start;
        while column < piece.columns.end {
            let mut width = (piece.columns.end - column).min(some * COLUMNS);
            if in_place {
                width = width.min(layout.line() - column % layout.line());
            }
            layout.runs(column, width, image, &mut runs);
            let mut channel = first;
            // Channels in runs that share a group.
            while channel < piece.rows.end {
                let (group, within) = (channel / conv.outputs, channel % conv.outputs);
                let count = (conv.outputs - within).min(piece.rows.end - channel);
                let planes = &planes[group * group_len..];
                let at = runs.first().map_or(0, |run| run.at);
                let (right, next, offsets) = if in_place && at + width + reach <= planes.len() {
                    (&planes[at..], COLUMNS, &layout.offsets)
                } else {
                    gather(planes, &layout.offsets, &runs, &mut room);
                    (&room[..], panel, &packed)
                };
                let at = channel * columns + piece.columns.start;
                let added = added.map(|added| Added { numbers: &added[at..], pitch: columns });
                simd.vectorize(Block {
                    left: &conv.weights[(group * strips + within / ROWS) * terms..][..count.div_ceil(ROWS) * terms],
                    right,
                    next,
                    offsets,
                    columns: width,
                    bias: Bias::Rows(&conv.bias[channel..]),
                    added,
                    activation,
                    y: &mut piece.y[channel - first..][..count],
                    at: column - piece.columns.start,
                });
                channel += count;
            }
            column += width;
        }
        memory::give(room);
    }
}

/// Gathers the pixels of columns in panels, term after term.
#[inline(always)]
fn gather(planes: &[f32], offsets: &[usize], runs: &[Run], room: &mut [f32]) {
    let mut rest = runs;
    let mut first = 0;
    // Runs of one panel after another.
    for panel in room.chunks_exact_mut(offsets.len() * COLUMNS) {
        let count = rest.iter().take_while(|run| run.column < first + COLUMNS).count();
        let (runs, others) = rest.split_at(count);
        rest = others;
        match runs {
            [run] if run.len == COLUMNS => {
                let (panel, _) = panel.as_chunks_mut::<COLUMNS>();
                for (to, offset) in panel.iter_mut().zip(offsets) {
                    to.copy_from_slice(&planes[run.at + offset..][..COLUMNS]);
                }
            }
            // What a run leaves behind its end is overwritten by the next one, or by the next term.
            runs => {
                for (k, offset) in offsets.iter().enumerate() {
                    for run in runs {
                        let to = &mut panel[k * COLUMNS + run.column - first..];
                        planes::spill(to, &planes[run.at + offset..], run.len);
                    }
                }
            }
        }
        first += COLUMNS;
    }
}

/// Adds numbers to a result and finishes it.
struct Add<'a> {
    added: &'a [f32],
    activation: Activation,
    y: &'a mut [f32],
}

impl WithSimd for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Add { added, activation, y } = self;
        for (y, a) in y.iter_mut().zip(added) {
            *y += a;
        }
        activation.apply(y);
    }
}

/// Turns channels of images into images of channels.
struct Turn<'a> {
    /// `[channel][image][size]`
    rows: &'a [f32],
    size: usize,
    images: usize,
    added: Option<&'a [f32]>,
    activation: Activation,
    /// `[image][channel][size]`
    y: &'a mut [f32],
}

impl WithSimd for Turn<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Turn { rows, size, images, added, activation, y } = self;
        let len = y.len() / images;
        for (i, y) in y.chunks_exact_mut(len).enumerate() {
            for (channel, y) in y.chunks_exact_mut(size).enumerate() {
                y.copy_from_slice(&rows[(channel * images + i) * size..][..size]);
            }
            if let Some(added) = added {
                for (y, a) in y.iter_mut().zip(&added[i * len..]) {
                    *y += a;
                }
            }
            activation.apply(y);
        }
    }
}

#[cfg(test)]
mod tests;
