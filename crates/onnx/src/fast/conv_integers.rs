//! Convolutions of small integers. Their sums are exact: 32 bits, which wrap around.
//!
//! They are products as those of float32 are (`conv`): weights times pixels that are gathered a few columns at a time. Processors
//! multiply pairs of 16-bit integers, or four bytes (`quads`), so as many terms come in a row, of the weights as of the pixels,
//! which stay in eight bits. Where there are channels enough, four of them lie side by side in the planes already, and gathering
//! is copying.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::gathered::{Channels, Quads, Tiles, gather, weave};
use super::integers::{COLUMNS, HALF, ROWS, pair};
use super::planes::{Layout, STEP, Window};
use super::quads;
use super::quantize::Small;
use super::share::{self, Piece, Sharing};
use super::vectorized;

/// Fewest pixels that threads share laying out.
const FILLED: usize = 1 << 16;
/// Pairs of pixels that are gathered at a time, to stay in the second-level cache, and the most panels.
const GATHERED: usize = 1 << 16;
const PANELS: usize = 8;

/// A convolution's geometry and weights, prepared once.
pub(crate) struct IntegerConv {
    groups: usize,
    /// Of each group: channels read, and channels written.
    inputs: usize,
    outputs: usize,
    kernel: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    /// `[group][strip][pair of terms, or four][ROWS]`, less their zero points.
    weights: Vec<[i32; ROWS]>,
    order: Order,
    /// The sum of each output channel's weights.
    sums: Vec<i32>,
}

/// Which terms of a sum come in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    /// Two that follow each other.
    Pairs,
    /// Four that follow each other.
    Quads,
    /// Those of four channels at one place of the kernel.
    Channels,
}

impl Order {
    /// The quickest on this processor. Channels that are filled up must not take much longer than they save.
    fn of(inputs: usize) -> Order {
        match quads::is_here() {
            true if 3 * inputs.next_multiple_of(4) <= 4 * inputs => Order::Channels,
            true => Order::Quads,
            false => Order::Pairs,
        }
    }
}

impl IntegerConv {
    /// `weights`, of eight bits, are `[groups · outputs][inputs][height][width]`; each output channel, or all, have a zero point,
    /// which is subtracted.
    pub(crate) fn new<E: Small>(
        weights: &[E],
        zeros: &[i32],
        groups: usize,
        [outputs, inputs, height, width]: [usize; 4],
        stride: [usize; 2],
        dilation: [usize; 2],
    ) -> IntegerConv {
        let shape = [outputs, inputs, height, width];
        IntegerConv::laid_out(weights, zeros, groups, shape, stride, dilation, Order::of(inputs))
    }

    /// The same in some order, if all weights fit into eight bits with a sign, or else in pairs.
    fn laid_out<E: Small>(
        weights: &[E],
        zeros: &[i32],
        groups: usize,
        [outputs, inputs, height, width]: [usize; 4],
        stride: [usize; 2],
        dilation: [usize; 2],
        order: Order,
    ) -> IntegerConv {
        let (each, places) = (outputs / groups, height * width);
        let terms = inputs * places;
        let zero = |channel: usize| zeros[if zeros.len() == 1 { 0 } else { channel }];
        let channels = weights.chunks_exact(terms.max(1)).enumerate();
        let fits = |(channel, own): (usize, &[E])| own.iter().all(|w| i8::try_from(w.widen() - zero(channel)).is_ok());
        let order = if channels.clone().all(fits) { order } else { Order::Pairs };
        let steps = match order {
            Order::Pairs => terms.div_ceil(2),
            Order::Quads => terms.div_ceil(4),
            Order::Channels => inputs.div_ceil(4) * places,
        };
        let mut strips = vec![[0; ROWS]; groups * each.div_ceil(ROWS) * steps];
        let mut sums = Vec::with_capacity(outputs);
        for channel in 0..outputs {
            let (group, within) = (channel / each, channel % each);
            let strip = &mut strips[(group * each.div_ceil(ROWS) + within / ROWS) * steps..][..steps];
            let own = &weights[channel * terms..][..terms];
            let term = |k: usize| own.get(k).map_or(0, |weight| weight.widen() - zero(channel));
            for (k, to) in strip.iter_mut().enumerate() {
                let four = |terms: [usize; 4]| i32::from_le_bytes(terms.map(|k| term(k) as u8));
                to[within % ROWS] = match order {
                    Order::Pairs => pair(term(2 * k), term(2 * k + 1)),
                    Order::Quads => four(std::array::from_fn(|t| 4 * k + t)),
                    Order::Channels => four(std::array::from_fn(|t| (k / places * 4 + t) * places + k % places)),
                };
            }
            sums.push((0..terms).map(term).sum());
        }
        let kernel = [height, width];
        IntegerConv { groups, inputs, outputs: each, kernel, stride, dilation, weights: strips, order, sums }
    }

    /// Convolves images of eight-bit integers less their zero point, `[images][channels][height][width]`, into `y`. What is around
    /// an image is as its zero point. `finish` says, of an output channel, what becomes of its sums.
    pub(crate) fn run<E: Small, Y: Send, F: Fn(i32) -> Y>(
        &self,
        (x, zero): (&[E], i32),
        input: [usize; 2],
        pads: [(usize, usize); 2],
        output: [usize; 2],
        finish: impl Fn(usize) -> F + Sync,
        y: &mut [Y],
    ) {
        let size = output[0] * output[1];
        let (channels, outputs) = (self.groups * self.inputs, self.groups * self.outputs);
        if y.is_empty() || channels * input[0] * input[1] == 0 {
            for (y, channel) in y.chunks_mut(size.max(1)).zip((0..outputs).cycle()) {
                let of = finish(channel);
                y.fill_with(|| of(0));
            }
            return;
        }
        let window = Window { kernel: self.kernel, stride: self.stride, dilation: self.dilation, pads };
        let layout = Layout::new(window, self.stacks(), input, output);
        let batch = |x: &[E], threads: usize, y: &mut [Y]| match self.order {
            Order::Channels => self.images::<E, [i8; 4], Y, F>((x, zero), &layout, threads, &finish, y),
            _ => self.images::<E, i8, Y, F>((x, zero), &layout, threads, &finish, y),
        };
        let (from, to) = (channels * input[0] * input[1], outputs * size);
        let images = x.len() / from;
        let multiplications = to * self.inputs * self.kernel[0] * self.kernel[1];
        let each = match Sharing::of(images, multiplications) {
            Sharing::Split(threads) => return batch(x, threads, y),
            Sharing::Whole(each) => each,
        };
        x.par_chunks(each * from).zip(y.par_chunks_mut(each * to)).for_each(|(x, y)| batch(x, 1, y));
    }

    /// Convolves images, one after the other, each on so many threads.
    fn images<E: Small, X: Pixel, Y: Send, F: Fn(i32) -> Y>(
        &self,
        (x, zero): (&[E], i32),
        layout: &Layout,
        threads: usize,
        finish: &(impl Fn(usize) -> F + Sync),
        y: &mut [Y],
    ) {
        let size = layout.output[0] * layout.output[1];
        let image = self.groups * self.inputs * layout.input[0] * layout.input[1];
        let off = zero - self.moved::<E>();
        // The pixels, and some that are never read.
        let mut planes = vec![X::alike(0); layout.room(self.groups * self.stacks()) + STEP];
        for (x, y) in x.chunks_exact(image).zip(y.chunks_exact_mut(self.groups * self.outputs * size)) {
            self.fill((x, zero), layout, threads, &mut planes);
            let mut pieces = share::pieces(y.chunks_exact_mut(size), size, self.shape(size, threads));
            let work = |piece: &mut Piece<'_, Y>| {
                X::multiply(Image { conv: self, layout, planes: &planes, off, finish, piece });
            };
            match &mut pieces[..] {
                [piece] => work(piece),
                pieces => pieces.par_iter_mut().for_each(work),
            }
        }
    }

    /// Of each group: channels of the planes.
    fn stacks(&self) -> usize {
        self.inputs.div_ceil(if self.order == Order::Channels { 4 } else { 1 })
    }

    /// Lays out the pixels of an image.
    fn fill<E: Small, X: Pixel>(&self, (x, zero): (&[E], i32), layout: &Layout, threads: usize, planes: &mut [X]) {
        let (stacks, moved) = (self.groups * self.stacks(), self.moved::<E>());
        let fill =
            |first: usize, planes: &mut [X]| vectorized(Fill { conv: self, layout, x, zero, moved, first, planes });
        if threads == 1 || x.len() < FILLED {
            return fill(0, planes);
        }
        let some = stacks.div_ceil(threads);
        let pieces = planes.par_chunks_mut(layout.room(some)).enumerate();
        pieces.for_each(|(i, planes)| fill(i * some, planes));
    }

    /// How far pixels are moved down: to eight bits with a sign, or to those without, of which four make a quad.
    fn moved<E: Small>(&self) -> i32 {
        match (self.order, E::LEAST) {
            (Order::Quads | Order::Channels, least) => least,
            (Order::Pairs, 0) => HALF,
            (Order::Pairs, _) => 0,
        }
    }

    /// Rows and columns of what a thread computes at a time: whole panels or else whole strips; a group is not taken apart.
    fn shape(&self, columns: usize, threads: usize) -> [usize; 2] {
        let (rows, panels) = (self.groups * self.outputs, columns.div_ceil(COLUMNS));
        let some = |all: usize| all.div_ceil(2 * threads);
        if threads == 1 {
            [rows, columns]
        } else if panels >= 4 * threads {
            // Many pieces, for the last one is seldom as wide as the others.
            [rows, panels.div_ceil(4 * threads) * COLUMNS]
        } else if self.groups > 1 {
            [some(self.groups) * self.outputs, columns]
        } else {
            [some(self.outputs.div_ceil(ROWS)) * ROWS, columns]
        }
    }
}

/// What lies at a place of the planes: the pixel of a channel, or those of four.
trait Pixel: Copy + Send + Sync {
    fn alike(pixel: i8) -> Self;
    /// Lays out the pixels of some channels, turned by `of`, with `around` around them. There is `room` for an image of pixels.
    fn fill<E: Small>(
        layout: &Layout,
        channels: &[E],
        of: impl Fn(E) -> i8 + Copy,
        around: i8,
        room: &mut [Self],
        planes: &mut [Self],
    );
    fn multiply<Y, F: Fn(i32) -> Y>(image: Image<'_, '_, Self, Y, impl Fn(usize) -> F>);
}

impl Pixel for i8 {
    fn alike(pixel: i8) -> i8 {
        pixel
    }

    #[inline(always)]
    fn fill<E: Small>(
        layout: &Layout,
        channel: &[E],
        of: impl Fn(E) -> i8 + Copy,
        around: i8,
        _: &mut [i8],
        planes: &mut [i8],
    ) {
        layout.fill(channel, of, around, planes);
    }

    fn multiply<Y, F: Fn(i32) -> Y>(image: Image<'_, '_, i8, Y, impl Fn(usize) -> F>) {
        if image.conv.order == Order::Quads {
            return vectorized(Work { simd: Quads, image });
        }
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(simd) = pulp::x86::V4::try_new() {
                return Simd::vectorize(simd, Work { simd, image });
            }
            if let Some(simd) = pulp::x86::V3::try_new() {
                return Simd::vectorize(simd, Work { simd, image });
            }
        }
        Simd::vectorize(pulp::Scalar::new(), Work { simd: pulp::Scalar::new(), image });
    }
}

impl Pixel for [i8; 4] {
    fn alike(pixel: i8) -> [i8; 4] {
        [pixel; 4]
    }

    #[inline(always)]
    fn fill<E: Small>(
        layout: &Layout,
        channels: &[E],
        of: impl Fn(E) -> i8 + Copy,
        around: i8,
        room: &mut [[i8; 4]],
        planes: &mut [[i8; 4]],
    ) {
        let size = room.len();
        // The weights of a channel that is not there are zero.
        let lines: [&[E]; 4] = std::array::from_fn(|t| channels.chunks_exact(size).nth(t).unwrap_or(&channels[..size]));
        let whole = lines.map(|line| line.as_chunks::<STEP>());
        let woven = if layout.bare { &mut planes[..size] } else { &mut *room };
        let (steps, rest) = woven.as_chunks_mut::<STEP>();
        for (step, to) in steps.iter_mut().enumerate() {
            *to = weave(whole.map(|(steps, _)| &steps[step]), of);
        }
        let rests = rest.iter_mut().enumerate();
        rests.for_each(|(i, to)| *to = whole.map(|(_, rest)| of(rest[i])));
        if !layout.bare {
            layout.fill(room, |pixel| pixel, [around; 4], planes);
        }
    }

    fn multiply<Y, F: Fn(i32) -> Y>(image: Image<'_, '_, [i8; 4], Y, impl Fn(usize) -> F>) {
        vectorized(Work { simd: Channels, image });
    }
}

/// Some planes of an image.
struct Fill<'a, E, X> {
    conv: &'a IntegerConv,
    layout: &'a Layout,
    x: &'a [E],
    zero: i32,
    moved: i32,
    first: usize,
    planes: &'a mut [X],
}

impl<E: Small, X: Pixel> WithSimd for Fill<'_, E, X> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Fill { conv: IntegerConv { groups, inputs, order, .. }, layout, x, zero, moved, first, planes } = self;
        let together = if *order == Order::Channels { 4 } else { 1 };
        let (stacks, size) = (inputs.div_ceil(together), layout.input[0] * layout.input[1]);
        let mut room = vec![X::alike(0); size];
        let of = |x: E| (x.widen() - moved) as i8;
        for stack in first..(groups * stacks).min(first + planes.len() / layout.room(1)) {
            let planes = &mut planes[(stack - first) * layout.room(1)..];
            let (group, within) = (stack / stacks, stack % stacks * together);
            let count = (inputs - within).min(together);
            let channels = &x[(group * inputs + within) * size..][..count * size];
            X::fill(layout, channels, of, (zero - moved) as i8, &mut room, planes);
        }
    }
}

/// A piece of the result for one image.
struct Image<'a, 'y, X, Y, G> {
    conv: &'a IntegerConv,
    layout: &'a Layout,
    planes: &'a [X],
    /// What all pixels have too much.
    off: i32,
    finish: &'a G,
    piece: &'a mut Piece<'y, Y>,
}

struct Work<'a, 'y, P, X, Y, G, const T: usize, const N: usize> {
    simd: P,
    image: Image<'a, 'y, X, Y, G>,
}

impl<P, X, Y, F, G, const T: usize, const N: usize> WithSimd for Work<'_, '_, P, X, Y, G, T, N>
where
    P: Tiles<X, T, N>,
    F: Fn(i32) -> Y,
    G: Fn(usize) -> F,
{
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Work { simd, image: Image { conv, layout, planes, off, finish, piece } } = self;
        let steps = layout.offsets.len().div_ceil(N);
        let (strips, all) = (conv.outputs.div_ceil(ROWS), layout.room(conv.groups * conv.stacks()));
        let some = (2 * GATHERED / (T * steps * COLUMNS)).clamp(1, PANELS);
        let mut room = vec![[0; T]; some * steps * COLUMNS + STEP];
        let mut tile = [[0; COLUMNS]; ROWS];
        let mut runs = Vec::new();
        for column in piece.columns.clone().step_by(some * COLUMNS) {
            let width = (piece.columns.end - column).min(some * COLUMNS);
            layout.runs(column, width, all, &mut runs);
            let mut channel = piece.rows.start;
            // Channels in runs that share a group.
            while channel < piece.rows.end {
                let (group, within) = (channel / conv.outputs, channel % conv.outputs);
                let count = (conv.outputs - within).min(piece.rows.end - channel);
                gather::<P, X, T, N>(&planes[group * (all / conv.groups)..], &layout.offsets, &runs, &mut room);
                for first in (channel..channel + count).step_by(ROWS) {
                    let high = (channel + count - first).min(ROWS);
                    let strip = &conv.weights[(group * strips + (first % conv.outputs) / ROWS) * steps..][..steps];
                    let panels = room.as_chunks::<COLUMNS>().0.chunks_exact(steps);
                    for (panel, from) in panels.zip((0..width).step_by(COLUMNS)) {
                        let wide = (width - from).min(COLUMNS);
                        simd.tile(strip, panel, [high, wide], &mut tile);
                        let at = column - piece.columns.start + from;
                        let lines = piece.y[first - piece.rows.start..].iter_mut().zip(&tile);
                        for ((y, sums), channel) in lines.zip(first..first + high) {
                            let (off, finish) = (conv.sums[channel].wrapping_mul(off), finish(channel));
                            let to = y[at..at + wide].iter_mut().zip(sums);
                            for (y, sum) in to {
                                *y = finish(sum.wrapping_sub(off));
                            }
                        }
                    }
                }
                channel += count;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integers<E: Small>(count: usize, seed: usize) -> Vec<E> {
        let number = |i: usize| (i * 7919 + seed * 104_729) % 2003 * 256 / 2003;
        (0..count).map(|i| E::narrow(number(i) as i32 + E::LEAST)).collect()
    }

    /// Sums as they are.
    type Same = fn(usize) -> fn(i32) -> i32;

    struct Case {
        images: usize,
        groups: usize,
        shape: [usize; 4],
        input: [usize; 2],
        pads: [(usize, usize); 2],
        stride: [usize; 2],
        dilation: [usize; 2],
    }

    fn check<A: Small, B: Small>(case: &Case, x_zero: i32, zeros: &[i32]) {
        let Case { images, groups, shape: [outputs, inputs, kh, kw], input, pads, stride, dilation } = *case;
        let output: [usize; 2] = std::array::from_fn(|i| {
            let reach = dilation[i] * ([kh, kw][i] - 1) + 1;
            (input[i] + pads[i].0 + pads[i].1 - reach) / stride[i] + 1
        });
        let x = integers::<A>(images * groups * inputs * input[0] * input[1], 1);
        let w = integers::<B>(outputs * inputs * kh * kw, 2);
        let zeros: Vec<i32> =
            if zeros.len() == 1 { zeros.to_vec() } else { zeros.iter().copied().cycle().take(outputs).collect() };
        let mut expected = Vec::new();
        for (image, o) in (0..images).flat_map(|image| (0..outputs).map(move |o| (image, o))) {
            let zero = zeros[if zeros.len() == 1 { 0 } else { o }];
            for (oy, ox) in (0..output[0]).flat_map(|oy| (0..output[1]).map(move |ox| (oy, ox))) {
                let mut sum = 0i32;
                for (c, ky, kx) in (0..inputs * kh * kw).map(|k| (k / (kh * kw), k / kw % kh, k % kw)) {
                    let iy = (oy * stride[0] + ky * dilation[0]).checked_sub(pads[0].0).filter(|&y| y < input[0]);
                    let ix = (ox * stride[1] + kx * dilation[1]).checked_sub(pads[1].0).filter(|&x| x < input[1]);
                    if let (Some(iy), Some(ix)) = (iy, ix) {
                        let channel = (image * groups + o / (outputs / groups)) * inputs + c;
                        let pixel = x[(channel * input[0] + iy) * input[1] + ix].widen() - x_zero;
                        sum += pixel * (w[((o * inputs + c) * kh + ky) * kw + kx].widen() - zero);
                    }
                }
                expected.push(sum);
            }
        }
        let conv = IntegerConv::new(&w, &zeros, groups, case.shape, stride, dilation);
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut y = vec![-1; expected.len()];
            pool.install(|| conv.run((&x, x_zero), input, pads, output, |_| |sum| sum, &mut y));
            assert_eq!(y, expected, "{threads} threads");
        }
        for order in [Order::Quads, Order::Channels] {
            let conv = IntegerConv::laid_out(&w, &zeros, groups, case.shape, stride, dilation, order);
            let mut y = vec![-1; expected.len()];
            conv.run((&x, x_zero), input, pads, output, |_| |sum| sum, &mut y);
            assert_eq!(y, expected, "{:?}", conv.order);
        }
        let conv = IntegerConv::laid_out(&w, &zeros, groups, case.shape, stride, dilation, Order::Pairs);
        let window = Window { kernel: [kh, kw], stride, dilation, pads };
        let layout = Layout::new(window, inputs, input, output);
        let off = x_zero - conv.moved::<A>();
        let mut planes = vec![0i8; layout.room(groups * inputs) + STEP];
        conv.fill((&x[..x.len() / images], x_zero), &layout, 1, &mut planes);
        let size = output[0] * output[1];
        let mut y = vec![-1; outputs * size];
        let finish: Same = |_| |sum| sum;
        let mut check = |run: &dyn Fn(Image<'_, '_, i8, i32, Same>)| {
            y.fill(-1);
            let mut pieces = share::pieces(y.chunks_exact_mut(size), size, [outputs, size]);
            run(Image { conv: &conv, layout: &layout, planes: &planes, off, finish: &finish, piece: &mut pieces[0] });
            assert_eq!(y, expected[..outputs * size], "with shorter vectors or none");
        };
        check(&|image| Simd::vectorize(pulp::Scalar::new(), Work { simd: pulp::Scalar::new(), image }));
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = pulp::x86::V3::try_new() {
            check(&|image| Simd::vectorize(simd, Work { simd, image }));
        }
    }

    #[test]
    fn convolutions_are_exact_for_every_geometry_and_type() {
        let plain = |shape, input, pad| Case {
            images: 2,
            groups: 1,
            shape,
            input,
            pads: [(pad, pad); 2],
            stride: [1, 1],
            dilation: [1, 1],
        };
        let cases = [
            plain([9, 5, 3, 3], [13, 17], 1),
            plain([16, 3, 1, 1], [7, 7], 0),
            plain([1, 2, 2, 3], [4, 50], 0),
            plain([20, 30, 1, 1], [21, 20], 0),
            Case { stride: [2, 2], ..plain([20, 3, 7, 7], [31, 30], 3) },
            Case { stride: [2, 3], pads: [(0, 1), (2, 0)], ..plain([3, 3, 3, 2], [15, 16], 1) },
            Case { dilation: [2, 3], ..plain([4, 3, 3, 3], [20, 21], 2) },
            Case { groups: 10, stride: [2, 2], ..plain([10, 1, 3, 3], [15, 14], 1) },
            Case { groups: 3, ..plain([12, 4, 3, 3], [5, 120], 1) },
            Case { groups: 2, ..plain([24, 4, 3, 3], [9, 9], 1) },
            // As many images as threads, and one whose planes several threads fill.
            Case { images: 3, ..plain([20, 30, 1, 1], [21, 20], 0) },
            Case { images: 1, ..plain([2, 64, 1, 1], [32, 33], 1) },
            // Sums far beyond 2^24, which float32 would round.
            Case { images: 1, ..plain([2, 1200, 3, 3], [5, 5], 1) },
        ];
        for case in &cases {
            check::<u8, i8>(case, 128, &[0]);
            check::<i8, u8>(case, 4, &[128]);
            check::<u8, u8>(case, 3, &[255, 0, 7]);
            check::<i8, i8>(case, -128, &[-128, 3, 127]);
        }
    }
}
