//! Convolutions of small integers. Their sums are exact: 32 bits, which wrap around.
//!
//! They are products as those of float32 are (`conv`): weights times pixels that are gathered a few columns at a time. Processors
//! multiply pairs of 16-bit integers, or four bytes (`quads`), so as many terms come in a row, of the weights as of the pixels,
//! which stay in eight bits.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::integers::{COLUMNS, HALF, Pairs, ROWS, VECTORS, pair, part};
use super::planes::{Layout, Run, STEP, Window};
use super::quads;
use super::quantize::Small;
use super::share::{self, Piece};
use super::vectorized;

/// Fewest multiplications that are shared by threads: with less, waking them takes longer.
const SHARED: usize = 1 << 17;
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
    /// Whether there are four terms in a row.
    in_quads: bool,
    /// The sum of each output channel's weights.
    sums: Vec<i32>,
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
        IntegerConv::laid_out(weights, zeros, groups, shape, stride, dilation, quads::is_here())
    }

    /// The same, in quads, if all weights fit into eight bits with a sign, or in pairs.
    fn laid_out<E: Small>(
        weights: &[E],
        zeros: &[i32],
        groups: usize,
        [outputs, inputs, height, width]: [usize; 4],
        stride: [usize; 2],
        dilation: [usize; 2],
        in_quads: bool,
    ) -> IntegerConv {
        let (each, terms) = (outputs / groups, inputs * height * width);
        let zero = |channel: usize| zeros[if zeros.len() == 1 { 0 } else { channel }];
        let channels = weights.chunks_exact(terms.max(1)).enumerate();
        let fits = |(channel, own): (usize, &[E])| own.iter().all(|w| i8::try_from(w.widen() - zero(channel)).is_ok());
        let in_quads = in_quads && channels.clone().all(fits);
        let together = if in_quads { 4 } else { 2 };
        let steps = terms.div_ceil(together);
        let mut strips = vec![[0; ROWS]; groups * each.div_ceil(ROWS) * steps];
        let mut sums = Vec::with_capacity(outputs);
        for channel in 0..outputs {
            let (group, within) = (channel / each, channel % each);
            let strip = &mut strips[(group * each.div_ceil(ROWS) + within / ROWS) * steps..][..steps];
            let own = &weights[channel * terms..][..terms];
            let term = |k: usize| own.get(k).map_or(0, |weight| weight.widen() - zero(channel));
            for (k, to) in strip.iter_mut().enumerate() {
                to[within % ROWS] = match in_quads {
                    true => i32::from_le_bytes(std::array::from_fn(|t| term(4 * k + t) as u8)),
                    false => pair(term(2 * k), term(2 * k + 1)),
                };
            }
            sums.push((0..terms).map(term).sum());
        }
        let kernel = [height, width];
        IntegerConv { groups, inputs, outputs: each, kernel, stride, dilation, weights: strips, in_quads, sums }
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
        let layout = Layout::new(window, self.inputs, input, output);
        let mut threads = rayon::current_num_threads();
        if y.len() * layout.offsets.len() < SHARED {
            threads = 1;
        }
        let batch = |x: &[E], threads: usize, y: &mut [Y]| self.images((x, zero), &layout, threads, &finish, y);
        let (from, to) = (channels * input[0] * input[1], outputs * size);
        let images = x.len() / from;
        if threads == 1 || images % threads != 0 && images < 4 * threads {
            return batch(x, threads, y);
        }
        let each = images.div_ceil(threads);
        x.par_chunks(each * from).zip(y.par_chunks_mut(each * to)).for_each(|(x, y)| batch(x, 1, y));
    }

    /// Convolves images, one after the other, each on so many threads.
    fn images<E: Small, Y: Send, F: Fn(i32) -> Y>(
        &self,
        (x, zero): (&[E], i32),
        layout: &Layout,
        threads: usize,
        finish: &(impl Fn(usize) -> F + Sync),
        y: &mut [Y],
    ) {
        let size = layout.output[0] * layout.output[1];
        let (channels, outputs) = (self.groups * self.inputs, self.groups * self.outputs);
        let pixels = layout.input[0] * layout.input[1];
        let moved = self.moved::<E>();
        let mut planes = vec![(zero - moved) as i8; layout.room(channels) + STEP];
        for (x, y) in x.chunks_exact(channels * pixels).zip(y.chunks_exact_mut(outputs * size)) {
            if threads == 1 || x.len() < FILLED {
                vectorized(Fill { layout, x, moved, planes: &mut planes });
            } else {
                let some = channels.div_ceil(threads);
                let pieces = x.par_chunks(some * pixels).zip(planes.par_chunks_mut(layout.room(some)));
                pieces.for_each(|(x, planes)| vectorized(Fill { layout, x, moved, planes }));
            }
            let mut pieces = share::pieces(y.chunks_exact_mut(size), size, self.shape(size, threads));
            let work = |piece: &mut Piece<'_, Y>| {
                let off = zero - moved;
                let image = Image { conv: self, layout, planes: &planes, off, finish, piece };
                if self.in_quads {
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
            };
            match &mut pieces[..] {
                [piece] => work(piece),
                pieces => pieces.par_iter_mut().for_each(work),
            }
        }
    }

    /// How far pixels are moved down: to eight bits with a sign, or to those without, of which four make a quad.
    fn moved<E: Small>(&self) -> i32 {
        match (self.in_quads, E::LEAST) {
            (true, least) => least,
            (false, 0) => HALF,
            (false, _) => 0,
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

/// The pixels of an image as they are multiplied: moved down.
struct Fill<'a, E> {
    layout: &'a Layout,
    x: &'a [E],
    moved: i32,
    planes: &'a mut [i8],
}

impl<E: Small> WithSimd for Fill<'_, E> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let moved = self.moved;
        self.layout.fill_whole(self.x, |x| (x.widen() - moved) as i8, self.planes);
    }
}

/// A piece of the result for one image.
struct Image<'a, 'y, Y, G> {
    conv: &'a IntegerConv,
    layout: &'a Layout,
    planes: &'a [i8],
    /// What all pixels have too much.
    off: i32,
    finish: &'a G,
    piece: &'a mut Piece<'y, Y>,
}

/// How tiles are multiplied, with `T` terms in a row.
trait Tiles<const T: usize>: Copy {
    /// So many rows of a tile, and at least so many columns.
    fn tile(self, strip: &[[i32; ROWS]], panel: &[[[i8; T]; COLUMNS]], size: [usize; 2], tile: &mut quads::Tile);
    /// Lines as columns.
    fn weave(lines: [&[i8; STEP]; T]) -> [[i8; T]; STEP];
}

/// Four terms in a row.
#[derive(Clone, Copy)]
struct Quads;

impl Tiles<4> for Quads {
    #[inline(always)]
    fn tile(self, strip: &[[i32; ROWS]], panel: &[quads::Panel], size: [usize; 2], tile: &mut quads::Tile) {
        quads::tile::<true>(strip, panel, size, tile);
    }

    /// In words: the compiler makes more of bytes than there is to it.
    #[inline(always)]
    fn weave([a, b, c, d]: [&[i8; STEP]; 4]) -> [[i8; 4]; STEP] {
        let byte = |x: i8| u32::from(x as u8);
        let word = |i: usize| byte(a[i]) | byte(b[i]) << 8 | byte(c[i]) << 16 | byte(d[i]) << 24;
        std::array::from_fn(|i| word(i).to_le_bytes().map(|x| x as i8))
    }
}

struct Work<'a, 'y, P, Y, G, const T: usize> {
    simd: P,
    image: Image<'a, 'y, Y, G>,
}

impl<P, Y, F, G, const T: usize> WithSimd for Work<'_, '_, P, Y, G, T>
where
    P: Tiles<T>,
    F: Fn(i32) -> Y,
    G: Fn(usize) -> F,
{
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Work { simd, image: Image { conv, layout, planes, off, finish, piece } } = self;
        let steps = layout.offsets.len().div_ceil(T);
        let (strips, all) = (conv.outputs.div_ceil(ROWS), layout.room(conv.groups * conv.inputs));
        let some = (2 * GATHERED / (T * steps * COLUMNS)).clamp(1, PANELS);
        let mut room = vec![[[0; T]; COLUMNS]; some * steps];
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
                gather::<P, T>(&planes[group * (all / conv.groups)..], &layout.offsets, &runs, &mut room);
                for first in (channel..channel + count).step_by(ROWS) {
                    let high = (channel + count - first).min(ROWS);
                    let strip = &conv.weights[(group * strips + (first % conv.outputs) / ROWS) * steps..][..steps];
                    for (panel, from) in room.chunks_exact(steps).zip((0..width).step_by(COLUMNS)) {
                        let wide = (width - from).min(COLUMNS);
                        simd.tile(strip, panel, [high, wide], &mut tile);
                        let at = column - piece.columns.start + from;
                        let lines = piece.y[first - piece.rows.start..].iter_mut().zip(&tile);
                        for ((y, sums), channel) in lines.zip(first..first + high) {
                            let (off, finish) = (conv.sums[channel].wrapping_mul(off), finish(channel));
                            let to = y[at..at + wide].iter_mut().zip(sums);
                            to.for_each(|(y, sum)| *y = finish(sum.wrapping_sub(off)));
                        }
                    }
                }
                channel += count;
            }
        }
    }
}

impl<P: Pairs> Tiles<2> for P {
    #[inline(always)]
    fn tile(
        self,
        strip: &[[i32; ROWS]],
        panel: &[[[i8; 2]; COLUMNS]],
        [high, wide]: [usize; 2],
        tile: &mut quads::Tile,
    ) {
        let mut row = 0;
        while row < high {
            let left = (high - row).min(P::HIGH);
            for from in (0..wide).step_by(VECTORS * P::LANES) {
                match left {
                    1 => part::<P, 1>(self, strip, panel, row, from, tile),
                    2 => part::<P, 2>(self, strip, panel, row, from, tile),
                    3 | 4 => part::<P, 4>(self, strip, panel, row, from, tile),
                    _ => part::<P, 8>(self, strip, panel, row, from, tile),
                }
            }
            row += left;
        }
    }

    #[inline(always)]
    fn weave([a, b]: [&[i8; STEP]; 2]) -> [[i8; 2]; STEP] {
        std::array::from_fn(|i| [a[i], b[i]])
    }
}

/// Gathers the pixels of columns in panels, some terms in a row.
#[inline(always)]
fn gather<P: Tiles<T>, const T: usize>(
    planes: &[i8],
    offsets: &[usize],
    runs: &[Run],
    room: &mut [[[i8; T]; COLUMNS]],
) {
    let mut rest = runs;
    let mut first = 0;
    for panel in room.chunks_exact_mut(offsets.len().div_ceil(T)) {
        let count = rest.iter().take_while(|run| run.column < first + COLUMNS).count();
        let (runs, others) = rest.split_at(count);
        rest = others;
        for (to, offsets) in panel.iter_mut().zip(offsets.chunks(T)) {
            // The weight of a term that is not there is zero.
            let lines: [&[i8]; T] = std::array::from_fn(|t| &planes[offsets[t.min(offsets.len() - 1)]..]);
            for run in runs {
                woven(P::weave, &mut to[run.column - first..], lines.map(|line| &line[run.at..]), run.len);
            }
        }
        first += COLUMNS;
    }
}

/// `len` numbers of each line and some behind where there is room, which are overwritten later or never read.
#[inline(always)]
fn woven<const T: usize>(
    weave: impl Fn([&[i8; STEP]; T]) -> [[i8; T]; STEP],
    to: &mut [[i8; T]],
    lines: [&[i8]; T],
    len: usize,
) {
    let steps = len.div_ceil(STEP);
    let whole = steps * STEP;
    if to.len() < whole || lines.iter().any(|line| line.len() < whole) {
        let places = to.iter_mut().enumerate().take(len);
        return places.for_each(|(i, to)| *to = lines.map(|line| line[i]));
    }
    let to = &mut to.as_chunks_mut::<STEP>().0[..steps];
    let lines = lines.map(|line| &line.as_chunks::<STEP>().0[..steps]);
    for (step, to) in to.iter_mut().enumerate() {
        *to = weave(lines.map(|line| &line[step]));
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
        let conv = IntegerConv::laid_out(&w, &zeros, groups, case.shape, stride, dilation, true);
        let mut y = vec![-1; expected.len()];
        conv.run((&x, x_zero), input, pads, output, |_| |sum| sum, &mut y);
        assert_eq!(y, expected, "in quads: {}", conv.in_quads);
        let conv = IntegerConv::laid_out(&w, &zeros, groups, case.shape, stride, dilation, false);
        let window = Window { kernel: [kh, kw], stride, dilation, pads };
        let layout = Layout::new(window, inputs, input, output);
        let moved = conv.moved::<A>();
        let mut planes = vec![(x_zero - moved) as i8; layout.room(groups * inputs) + STEP];
        vectorized(Fill { layout: &layout, x: &x[..x.len() / images], moved, planes: &mut planes });
        let size = output[0] * output[1];
        let mut y = vec![-1; outputs * size];
        let finish: Same = |_| |sum| sum;
        let mut check = |run: &dyn Fn(Image<'_, '_, i32, Same>)| {
            y.fill(-1);
            let mut pieces = share::pieces(y.chunks_exact_mut(size), size, [outputs, size]);
            let off = x_zero - moved;
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
