//! Convolutions over images, direct: no matrix of all windows is made.
//!
//! An image is copied once into planes with its padding; at a stride of s, the rows and columns that are s apart lie next
//! to each other, each remainder in a plane of its own. The pixels that one weight meets are then a contiguous run at a
//! fixed offset, and so the convolution is a product: weights times shifted runs. Where rows end, a few columns of padding
//! are computed and dropped. Kernels of 1×1 read the image as it is.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::activation::Activation;
use super::depthwise;
use super::tile::{self, COLUMNS, ROWS, Terms, Tile};
use super::vectorized;
use crate::runner::onnx::memory;

/// A convolution's geometry and weights, prepared once.
pub(in crate::runner::onnx) struct Conv {
    pub(in crate::runner::onnx) groups: usize,
    /// Of each group: channels read, and channels written.
    inputs: usize,
    outputs: usize,
    kernel: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    /// `[group][strip][term][ROWS]`
    pub(super) weights: Vec<[f32; ROWS]>,
    pub(super) bias: Vec<f32>,
}

/// One input size: how an image lies in planes, and where a weight's pixels are.
pub(super) struct Layout {
    pub(super) input: [usize; 2],
    before: [usize; 2],
    pub(super) output: [usize; 2],
    stride: [usize; 2],
    /// Height and width of a plane.
    pub(super) plane: [usize; 2],
    /// Of each weight of a channel, for all channels of a group.
    pub(super) offsets: Vec<usize>,
    /// The planes are the image itself.
    bare: bool,
}

impl Conv {
    /// `weights` are `[groups · outputs][inputs][height][width]`, `bias` one for each output channel.
    pub(in crate::runner::onnx) fn new(
        weights: &[f32],
        bias: Option<&[f32]>,
        groups: usize,
        [outputs, inputs, height, width]: [usize; 4],
        stride: [usize; 2],
        dilation: [usize; 2],
    ) -> Conv {
        let (each, terms) = (outputs / groups, inputs * height * width);
        let mut strips = Vec::new();
        for group in 0..groups {
            strips.extend(tile::strips(each, terms, |row, term| weights[(group * each + row) * terms + term]));
        }
        let bias = bias.map_or_else(|| vec![0.0; outputs], <[f32]>::to_vec);
        let kernel = [height, width];
        Conv { groups, inputs, outputs: each, kernel, stride, dilation, weights: strips, bias }
    }

    /// Whether each channel is convolved by itself, into one.
    fn is_depthwise(&self) -> bool {
        self.inputs == 1 && self.outputs == 1
    }

    fn layout(&self, input: [usize; 2], pads: [(usize, usize); 2], output: [usize; 2]) -> Layout {
        let padded: [usize; 2] = std::array::from_fn(|i| input[i] + pads[i].0 + pads[i].1);
        let plane: [usize; 2] = std::array::from_fn(|i| padded[i].div_ceil(self.stride[i]));
        let [sy, sx] = self.stride;
        let mut offsets = Vec::with_capacity(self.inputs * self.kernel[0] * self.kernel[1]);
        for channel in 0..self.inputs {
            for y in (0..self.kernel[0]).map(|y| y * self.dilation[0]) {
                for x in (0..self.kernel[1]).map(|x| x * self.dilation[1]) {
                    let phase = (channel * sy + y % sy) * sx + x % sx;
                    offsets.push((phase * plane[0] + y / sy) * plane[1] + x / sx);
                }
            }
        }
        let bare = pads == [(0, 0); 2] && self.stride == [1, 1] && !self.is_depthwise();
        let before = pads.map(|(before, _)| before);
        Layout { input, before, output, stride: self.stride, plane, offsets, bare }
    }

    /// Convolves a batch of images `x`, `[images][channels][height][width]`, into `y`.
    ///
    /// `added` has the shape of the result and is added before the activation.
    #[allow(clippy::too_many_arguments, reason = "they are the operation's own, and none goes with another")]
    pub(in crate::runner::onnx) fn run(
        &self,
        x: &[f32],
        input: [usize; 2],
        pads: [(usize, usize); 2],
        output: [usize; 2],
        added: Option<&[f32]>,
        activation: Activation,
        y: &mut [f32],
    ) {
        let layout = self.layout(input, pads, output);
        let size = output[0] * output[1];
        let (in_len, out_len) = (self.groups * self.inputs * input[0] * input[1], self.groups * self.outputs * size);
        if in_len == 0 || out_len == 0 {
            return;
        }
        let added = |from: usize, len: usize| added.map(|added| &added[from..from + len]);
        let work = |planes: &[f32], at: usize, first: usize, y: &mut [f32]| {
            let added = added(at, y.len());
            vectorized(Work { conv: self, layout: &layout, planes, first, added, activation, y });
        };
        let channels = self.groups * self.inputs;
        let (images, threads) = (x.len() / in_len, rayon::current_num_threads());
        if self.is_depthwise() {
            let work = |first: usize, x: &[f32], y: &mut [f32]| {
                let added = added(first * size, y.len());
                vectorized(depthwise::Work { conv: self, layout: &layout, x, first, added, activation, y });
            };
            if threads == 1 {
                return work(0, x, y);
            }
            let (some, pixels) = (channels.div_ceil(threads), input[0] * input[1]);
            let pieces = x.par_chunks(some * pixels).zip(y.par_chunks_mut(some * size)).enumerate();
            return pieces.for_each(|(i, (x, y))| work(i * some, x, y));
        }
        if threads > 1 && images >= threads {
            let each = x.par_chunks_exact(in_len).zip(y.par_chunks_exact_mut(out_len)).enumerate();
            each.for_each_init(
                || vec![0.0; layout.room(channels)],
                |room, (i, (x, y))| work(layout.planes(x, room), i * out_len, 0, y),
            );
            return;
        }
        let mut room = memory::take(layout.room(channels));
        room.fill(0.0);
        for (i, (x, y)) in x.chunks_exact(in_len).zip(y.chunks_exact_mut(out_len)).enumerate() {
            let planes = layout.planes(x, &mut room);
            if threads == 1 {
                work(planes, i * out_len, 0, y);
                continue;
            }
            // Whole strips of a group, or whole groups.
            let few = 4 * ROWS;
            let some = if self.outputs.is_multiple_of(few) { few } else { self.outputs * (few / self.outputs).max(1) };
            y.par_chunks_mut(some * size).enumerate().for_each(|(part, y)| {
                let first = part * some;
                work(planes, i * out_len + first * size, first, y);
            });
        }
        memory::give(room);
    }
}

impl Layout {
    /// Floats that the planes of an image take.
    pub(super) fn room(&self, channels: usize) -> usize {
        if self.bare { 0 } else { channels * (0..2).map(|i| self.stride[i] * self.plane[i]).product::<usize>() }
    }

    /// The planes of one image. `room` is zero at first, and may hold another image's planes then.
    fn planes<'a>(&self, x: &'a [f32], room: &'a mut [f32]) -> &'a [f32] {
        if self.bare {
            return x;
        }
        self.fill(x, room);
        room
    }

    /// Copies the pixels of some channels to their planes.
    pub(super) fn fill(&self, x: &[f32], room: &mut [f32]) {
        let ([h, w], [sy, sx], [ph, pw]) = (self.input, self.stride, self.plane);
        for (image, planes) in x.chunks_exact(h * w).zip(room.chunks_exact_mut(sy * sx * ph * pw)) {
            for (y, row) in image.chunks_exact(w).enumerate() {
                let y = y + self.before[0];
                let first = (y % sy) * sx;
                if sx == 1 {
                    let at = (first * ph + y / sy) * pw + self.before[1];
                    planes[at..at + w].copy_from_slice(row);
                    continue;
                }
                for phase in 0..sx {
                    // The first pixel whose place has this remainder.
                    let skip = (phase + sx - self.before[1] % sx) % sx;
                    let at = ((first + phase) * ph + y / sy) * pw + (skip + self.before[1]) / sx;
                    let (to, row) = (&mut planes[at..], row.get(skip..).unwrap_or_default());
                    if sx == 2 {
                        // In pairs, which are taken apart several at a time.
                        let (pairs, rest) = row.as_chunks::<2>();
                        to.iter_mut().zip(pairs).for_each(|(to, [from, _])| *to = *from);
                        to[pairs.len()..].iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
                    } else {
                        to.iter_mut().zip(row.iter().step_by(sx)).for_each(|(to, from)| *to = *from);
                    }
                }
            }
        }
    }
}

/// A run of output channels of one image, beginning with `first`.
struct Work<'a> {
    conv: &'a Conv,
    layout: &'a Layout,
    planes: &'a [f32],
    first: usize,
    added: Option<&'a [f32]>,
    activation: Activation,
    y: &'a mut [f32],
}

/// Runs of pixels at the weights' offsets.
#[derive(Clone, Copy)]
struct Runs<'a> {
    planes: &'a [f32],
    offsets: &'a [usize],
}

impl Terms for Runs<'_> {
    #[inline(always)]
    fn term(&self, k: usize, from: usize, count: usize) -> &[f32] {
        let at = self.offsets[k] + from;
        &self.planes[at..at + count]
    }
}

/// Terms that were gathered, `COLUMNS` apart.
#[derive(Clone, Copy)]
struct Gathered<'a>(&'a [f32]);

impl Terms for Gathered<'_> {
    #[inline(always)]
    fn term(&self, k: usize, from: usize, count: usize) -> &[f32] {
        &self.0[k * COLUMNS + from..][..count]
    }
}

/// A stretch of columns that are pixels of one line.
struct Part {
    /// The first of them, within its tile.
    from: usize,
    /// Its place in the channel.
    to: usize,
    len: usize,
}

impl Part {
    /// The parts of `width` columns from `column` on, where lines of `out_w` pixels lie `pitch` apart.
    fn of(column: usize, width: usize, pitch: usize, out_w: usize) -> impl Iterator<Item = Part> {
        (column / pitch..=(column + width - 1) / pitch).filter_map(move |line| {
            let (begin, end) = ((line * pitch).max(column), (line * pitch + out_w).min(column + width));
            let len = end.checked_sub(begin).filter(|&len| len > 0)?;
            Some(Part { from: begin - column, to: line * out_w + begin - line * pitch, len })
        })
    }
}

impl WithSimd for Work<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Work { conv, layout, planes, first, added, activation, y } = self;
        let [out_h, out_w] = layout.output;
        let (size, terms) = (out_h * out_w, layout.offsets.len());
        let pitch = layout.plane[1];
        let columns = (out_h - 1) * pitch + out_w;
        let group_len = planes.len() / conv.groups;
        let strips = conv.outputs.div_ceil(ROWS);
        let last = layout.offsets.iter().max().copied().unwrap_or(0);
        let (mut gathered, mut parts) = (Vec::new(), Vec::new());
        let mut tile: Tile = [[0.0; COLUMNS]; ROWS];
        let mut channel = first;
        // Channels of `y` in runs that share a group.
        while (channel - first) * size < y.len() {
            let (group, within) = (channel / conv.outputs, channel % conv.outputs);
            let count = (conv.outputs - within).min(y.len() / size - (channel - first));
            let planes = &planes[group * group_len..][..group_len];
            for column in (0..columns).step_by(COLUMNS) {
                let width = (columns - column).min(COLUMNS);
                parts.clear();
                parts.extend(Part::of(column, width, pitch, out_w));
                // Vectors reach beyond the last column; where that is beyond the planes, the terms are copied.
                let inside = column + last + COLUMNS <= planes.len();
                if !inside {
                    gathered.resize(terms * COLUMNS, 0.0);
                    for (to, &offset) in gathered.chunks_exact_mut(COLUMNS).zip(&layout.offsets) {
                        let from = &planes[offset + column..];
                        let count = from.len().min(COLUMNS);
                        to[..count].copy_from_slice(&from[..count]);
                    }
                }
                for strip in within / ROWS..(within + count).div_ceil(ROWS) {
                    let rows = (conv.outputs - strip * ROWS).min(ROWS);
                    let left = &conv.weights[(group * strips + strip) * terms..][..terms];
                    let bias = &conv.bias[group * conv.outputs + strip * ROWS..];
                    let start = std::array::from_fn(|i| if i < rows { bias[i] } else { 0.0 });
                    if inside {
                        let right = Runs { planes: &planes[column..], offsets: &layout.offsets };
                        tile::multiply(simd, &start, left, right, rows, width, &mut tile);
                    } else {
                        tile::multiply(simd, &start, left, Gathered(&gathered), rows, width, &mut tile);
                    }
                    for (row, sums) in tile.iter_mut().enumerate().take(rows) {
                        let channel = group * conv.outputs + strip * ROWS + row;
                        let at = (channel - first) * size;
                        if let Some(added) = added {
                            for part in &parts {
                                let added = &added[at + part.to..][..part.len];
                                sums[part.from..][..part.len].iter_mut().zip(added).for_each(|(s, a)| *s += a);
                            }
                        }
                        activation.apply(sums);
                        if let [Part { from: 0, to, len: COLUMNS }] = parts[..] {
                            // A length that is known makes a few moves of a copy.
                            y[at + to..][..COLUMNS].copy_from_slice(sums);
                            continue;
                        }
                        for part in &parts {
                            y[at + part.to..][..part.len].copy_from_slice(&sums[part.from..][..part.len]);
                        }
                    }
                }
            }
            channel += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::numbers;
    use super::*;

    struct Case {
        images: usize,
        groups: usize,
        shape: [usize; 4],
        input: [usize; 2],
        pads: [(usize, usize); 2],
        stride: [usize; 2],
        dilation: [usize; 2],
    }

    fn naive(case: &Case, x: &[f32], w: &[f32], bias: &[f32], output: [usize; 2]) -> Vec<f32> {
        let [outputs, inputs, kh, kw] = case.shape;
        let [h, width] = case.input;
        let mut y = Vec::new();
        for image in 0..case.images {
            for o in 0..outputs {
                let group = o / (outputs / case.groups);
                for oy in 0..output[0] {
                    for ox in 0..output[1] {
                        let mut sum = bias[o];
                        for c in 0..inputs {
                            for ky in 0..kh {
                                for kx in 0..kw {
                                    let iy = (oy * case.stride[0] + ky * case.dilation[0]).checked_sub(case.pads[0].0);
                                    let ix = (ox * case.stride[1] + kx * case.dilation[1]).checked_sub(case.pads[1].0);
                                    if let (Some(iy), Some(ix)) = (iy, ix)
                                        && iy < h
                                        && ix < width
                                    {
                                        let channel = image * inputs * case.groups + group * inputs + c;
                                        sum += x[(channel * h + iy) * width + ix]
                                            * w[((o * inputs + c) * kh + ky) * kw + kx];
                                    }
                                }
                            }
                        }
                        y.push(sum);
                    }
                }
            }
        }
        y
    }

    fn check(case: Case) {
        let [outputs, inputs, kh, kw] = case.shape;
        let output: [usize; 2] = std::array::from_fn(|i| {
            let reach = case.dilation[i] * ([kh, kw][i] - 1) + 1;
            (case.input[i] + case.pads[i].0 + case.pads[i].1 - reach) / case.stride[i] + 1
        });
        let x = numbers(case.images * case.groups * inputs * case.input[0] * case.input[1], 1);
        let w = numbers(outputs * inputs * kh * kw, 2);
        let bias = numbers(outputs, 3);
        let expected = naive(&case, &x, &w, &bias, output);
        let conv = Conv::new(&w, Some(&bias), case.groups, case.shape, case.stride, case.dilation);
        // Alone, an image a thread, and more threads than images.
        for threads in 1..=case.images + 1 {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut y = vec![f32::NAN; expected.len()];
            pool.install(|| conv.run(&x, case.input, case.pads, output, None, Activation::None, &mut y));
            let far = y.iter().zip(&expected).position(|(a, b)| (a - b).abs() >= 1e-4 || a.is_nan());
            assert_eq!(far, None, "{:?}, {threads} threads", far.map(|i| (y[i], expected[i])));
        }
    }

    #[test]
    fn convolutions_are_those_of_the_definition() {
        let plain = |shape, input, pad| Case {
            images: 2,
            groups: 1,
            shape,
            input,
            pads: [(pad, pad); 2],
            stride: [1, 1],
            dilation: [1, 1],
        };
        check(plain([9, 5, 3, 3], [13, 17], 1));
        check(plain([16, 3, 1, 1], [7, 7], 0));
        check(plain([6, 1, 5, 5], [28, 28], 2));
        check(plain([1, 2, 2, 3], [4, 50], 0));
        check(Case { stride: [2, 2], ..plain([20, 3, 7, 7], [31, 30], 3) });
        check(Case { stride: [2, 3], pads: [(0, 1), (2, 0)], ..plain([3, 3, 3, 2], [15, 16], 1) });
        check(Case { stride: [2, 2], ..plain([8, 8, 1, 1], [14, 14], 0) });
        check(Case { dilation: [2, 3], ..plain([4, 3, 3, 3], [20, 21], 2) });
        check(Case { groups: 10, stride: [2, 2], ..plain([10, 1, 3, 3], [15, 14], 1) });
        check(Case { groups: 10, ..plain([10, 1, 3, 3], [7, 7], 1) });
        check(Case { groups: 2, ..plain([24, 4, 3, 3], [9, 9], 1) });
    }
}
