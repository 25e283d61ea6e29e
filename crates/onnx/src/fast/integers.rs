//! Products of small integers with weights that are laid out once. Their sums are exact: 32 bits, which wrap around.
//!
//! Processors multiply pairs of 16-bit integers and add up the two products at once, so terms come in pairs, of the left factor
//! as of the right one. Weights stay in eight bits, half of what they are multiplied as: a single row takes as long as reading
//! them does.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

#[cfg(target_arch = "x86_64")]
use super::bytes;
use super::bytes::Bytes;
use super::quads;
use super::quantize::Small;
use super::share;
use super::vectorized;

/// Rows of a tile.
pub(super) const ROWS: usize = 8;
/// Columns of a panel.
pub(super) const COLUMNS: usize = 48;
/// Rows that a thread multiplies at a time.
const BLOCK: usize = 64;

/// Two 16-bit integers in one of 32.
#[inline(always)]
pub(super) fn pair(low: i32, high: i32) -> i32 {
    low & 0xffff | high << 16
}

/// A constant right factor.
pub(crate) struct Integers {
    pub(crate) terms: usize,
    pub(crate) width: usize,
    /// `[panel][pair of terms][column]`, filled up with zeros; those that are not negative are moved down by [`HALF`]. Empty where
    /// there are quads.
    pub(super) panels: Vec<[[i8; 2]; COLUMNS]>,
    /// The same with four terms in a row, where the processor multiplies four at a time.
    quads: Option<Quads>,
    /// What each column's weights have too much or too little, all alike: the zero point less how far they were moved. Empty
    /// where all have nothing.
    off: Vec<i32>,
    /// How they are multiplied where most of them are small.
    bytes: Option<Bytes>,
}

/// Weights, four terms in a row.
struct Quads {
    panels: Vec<quads::Panel>,
    /// The sum of each column's weights.
    sums: Vec<i32>,
}

/// How far the middle of the integers without a sign is from zero.
pub(super) const HALF: i32 = 128;

impl Integers {
    /// `weights`, of eight bits, has `terms` rows and `width` columns; each column, or all, have a zero point, which is subtracted.
    pub(crate) fn new<E: Small>(weights: &[E], size: [usize; 2], zeros: &[i32]) -> Integers {
        Integers::laid_out(weights, size, zeros, quads::is_here())
    }

    /// The same, in quads or in pairs.
    fn laid_out<E: Small>(weights: &[E], [terms, width]: [usize; 2], zeros: &[i32], in_quads: bool) -> Integers {
        let moved = if E::LEAST == 0 { HALF } else { 0 };
        let at = |term: usize, column: usize| match term < terms {
            true => (weights[term * width + column].widen() - moved) as i8,
            false => 0,
        };
        let mut off: Vec<i32> =
            (0..width).map(|column| zeros[if zeros.len() == 1 { 0 } else { column }] - moved).collect();
        if off.iter().all(|&off| off == 0) {
            off.clear();
        }
        if in_quads {
            let panels = panels(at, [terms, width]);
            let sum = |column: usize| (0..terms).map(|term| i32::from(at(term, column))).sum();
            let quads = Some(Quads { panels, sums: (0..width).map(sum).collect() });
            return Integers { terms, width, panels: Vec::new(), quads, off, bytes: None };
        }
        let mut panels = panels(at, [terms, width]);
        let bytes = Bytes::of(&mut panels, terms.div_ceil(2), width);
        Integers { terms, width, panels, quads: None, off, bytes }
    }

    /// Multiplies rows of `terms` integers of eight bits, less their zero points: one for all, or one for each row.
    pub(crate) fn run<E: Small>(&self, x: &[E], zeros: &[i32], y: &mut [i32]) {
        if self.terms == 0 || y.is_empty() {
            return y.fill(0);
        }
        let work = |(block, (x, y)): (usize, (&[E], &mut [i32]))| {
            let zeros = if zeros.len() == 1 { zeros } else { &zeros[block * BLOCK..] };
            let rows = Rows { x, zeros, terms: self.terms };
            if let Some(quads) = &self.quads {
                return vectorized(InQuads { weights: self, quads, rows, y });
            }
            #[cfg(target_arch = "x86_64")]
            {
                if let (Some(bytes), Some(simd)) = (&self.bytes, pulp::x86::V3::try_new()) {
                    let work = bytes::Work { simd, weights: self, bytes, rows, y };
                    return match pulp::x86::V4::try_new() {
                        Some(wide) => Simd::vectorize(wide, work),
                        None => Simd::vectorize(simd, work),
                    };
                }
                if let Some(simd) = pulp::x86::V4::try_new() {
                    return Simd::vectorize(simd, Work { simd, weights: self, rows, y });
                }
                if let Some(simd) = pulp::x86::V3::try_new() {
                    return Simd::vectorize(simd, Work { simd, weights: self, rows, y });
                }
            }
            Simd::vectorize(pulp::Scalar::new(), Work { simd: pulp::Scalar::new(), weights: self, rows, y });
        };
        let (x_block, y_block) = (BLOCK * self.terms, BLOCK * self.width);
        let together = y.len().div_ceil(y_block).div_ceil(share::threads(y.len() * self.terms));
        let blocks = x.par_chunks(x_block).zip(y.par_chunks_mut(y_block)).enumerate();
        blocks.with_min_len(together).for_each(work);
    }
}

impl Integers {
    /// Takes from the sums what the weights are off, and adds what was cut from them.
    #[inline(always)]
    pub(super) fn take_off<E: Small>(&self, rows: &Rows<'_, E>, y: &mut [i32]) {
        let cuts = self.bytes.as_ref().map_or(&[][..], |bytes| &bytes.cuts);
        if self.off.is_empty() && cuts.is_empty() {
            return;
        }
        for (i, (x, y)) in rows.x.chunks_exact(self.terms).zip(y.chunks_exact_mut(self.width)).enumerate() {
            let zero = rows.zero(i);
            for cut in cuts {
                y[cut.column] = y[cut.column].wrapping_add((x[cut.term].widen() - zero).wrapping_mul(cut.by));
            }
            if !self.off.is_empty() {
                let sum = x.iter().fold(0i32, |sum, x| sum.wrapping_add(x.widen() - zero));
                for (y, off) in y.iter_mut().zip(&self.off) {
                    *y = y.wrapping_sub(sum.wrapping_mul(*off));
                }
            }
        }
    }
}

/// Weights in panels of `T` terms in a row, filled up with zeros.
fn panels<const T: usize>(at: impl Fn(usize, usize) -> i8, [terms, width]: [usize; 2]) -> Vec<[[i8; T]; COLUMNS]> {
    let steps = terms.div_ceil(T);
    let mut panels = vec![[[0; T]; COLUMNS]; width.div_ceil(COLUMNS) * steps];
    for (i, panel) in panels.iter_mut().enumerate() {
        let (first, term) = (i / steps * COLUMNS, i % steps * T);
        let columns = (first..width).zip(panel);
        columns.for_each(|(column, to)| *to = std::array::from_fn(|t| at(term + t, column)));
    }
    panels
}

/// Some rows of the left factor.
pub(super) struct Rows<'a, E> {
    pub(super) x: &'a [E],
    /// One for all, or one for each row and some behind.
    zeros: &'a [i32],
    terms: usize,
}

impl<E: Small> Rows<'_, E> {
    #[inline(always)]
    pub(super) fn zero(&self, row: usize) -> i32 {
        self.zeros[if self.zeros.len() == 1 { 0 } else { row }]
    }

    /// The pairs of a single row.
    #[inline(always)]
    fn row(&self) -> Vec<i32> {
        let (zero, (whole, rest)) = (self.zero(0), self.x.as_chunks::<2>());
        let pairs = whole.iter().map(|&[low, high]| pair(low.widen() - zero, high.widen() - zero));
        pairs.chain(rest.iter().map(|last| pair(last.widen() - zero, 0))).collect()
    }

    /// `[strip][pair of terms][row]`, filled up with zeros.
    #[inline(always)]
    fn strips(&self) -> Vec<[i32; ROWS]> {
        let pairs = self.terms.div_ceil(2);
        let mut strips = vec![[0; ROWS]; (self.x.len() / self.terms).div_ceil(ROWS) * pairs];
        for (block, (rows, strip)) in self.x.chunks(ROWS * self.terms).zip(strips.chunks_exact_mut(pairs)).enumerate() {
            for (i, row) in rows.chunks_exact(self.terms).enumerate() {
                let (zero, (whole, rest)) = (self.zero(block * ROWS + i), row.as_chunks::<2>());
                for (&[low, high], to) in whole.iter().zip(&mut *strip) {
                    to[i] = pair(low.widen() - zero, high.widen() - zero);
                }
                if let (&[last], Some(to)) = (rest, strip.last_mut()) {
                    to[i] = pair(last.widen() - zero, 0);
                }
            }
        }
        strips
    }
}

/// Four integers of eight bits, as bytes that are counted from zero.
#[inline(always)]
fn quad<E: Small>(terms: &[E]) -> i32 {
    let byte = |i: usize| terms.get(i).map_or(0, |x| (x.widen() - E::LEAST) as u8);
    i32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)])
}

/// Some rows of a product by weights in quads.
struct InQuads<'a, E> {
    weights: &'a Integers,
    quads: &'a Quads,
    rows: Rows<'a, E>,
    y: &'a mut [i32],
}

impl<E: Small> WithSimd for InQuads<'_, E> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let InQuads { weights, quads: Quads { panels, sums }, rows, y } = self;
        let Integers { terms, width, .. } = *weights;
        let steps = terms.div_ceil(4);
        if rows.x.len() == terms {
            let (whole, rest) = rows.x.as_chunks::<4>();
            let left: Vec<i32> =
                whole.iter().map(|terms| quad(terms)).chain((!rest.is_empty()).then(|| quad(rest))).collect();
            quads::row(&left, panels, y);
        } else {
            let mut strips = vec![[0; ROWS]; (rows.x.len() / terms).div_ceil(ROWS) * steps];
            for (rows, strip) in rows.x.chunks(ROWS * terms).zip(strips.chunks_exact_mut(steps)) {
                for (i, row) in rows.chunks_exact(terms).enumerate() {
                    let (whole, rest) = row.as_chunks::<4>();
                    whole.iter().zip(&mut *strip).for_each(|(terms, to)| to[i] = quad(terms));
                    if let (false, Some(to)) = (rest.is_empty(), strip.last_mut()) {
                        to[i] = quad(rest);
                    }
                }
            }
            let mut tile = [[0; COLUMNS]; ROWS];
            for (panel, column) in panels.chunks_exact(steps).zip((0..width).step_by(COLUMNS)) {
                let count = (width - column).min(COLUMNS);
                for (strip, y) in strips.chunks_exact(steps).zip(y.chunks_mut(ROWS * width)) {
                    quads::tile::<false>(strip, panel, [y.len() / width, count], &mut tile);
                    for (y, sums) in y.chunks_exact_mut(width).zip(&tile) {
                        y[column..column + count].copy_from_slice(&sums[..count]);
                    }
                }
            }
        }
        // Bytes are counted from zero, and numbers from their zero point.
        for (y, i) in y.chunks_exact_mut(width).zip(0..) {
            let zero = rows.zero(i) - E::LEAST;
            for (y, sum) in y.iter_mut().zip(sums) {
                *y = y.wrapping_sub(sum.wrapping_mul(zero));
            }
        }
        weights.take_off(&rows, y);
    }
}

/// Vectors of 32-bit sums.
pub(super) trait Pairs: Copy {
    type Sums: Copy;
    const LANES: usize;
    /// Rows whose sums fit into registers.
    const HIGH: usize;
    fn zero(self) -> Self::Sums;
    /// The first [`LANES`](Pairs::LANES) pairs, as 16-bit integers.
    fn widen(self, pairs: &[[i8; 2]]) -> Self::Sums;
    /// Adds the two products of a pair with each of some pairs.
    fn add(self, sums: Self::Sums, left: i32, right: Self::Sums) -> Self::Sums;
    fn store(self, sums: Self::Sums, to: &mut [i32]);
}

#[cfg(target_arch = "x86_64")]
impl Pairs for pulp::x86::V4 {
    type Sums = pulp::i32x16;
    const LANES: usize = 16;
    const HIGH: usize = 8;

    #[inline(always)]
    fn zero(self) -> pulp::i32x16 {
        self.splat_i32x16(0)
    }

    #[inline(always)]
    fn widen(self, pairs: &[[i8; 2]]) -> pulp::i32x16 {
        let pairs: &[[i8; 2]; 16] = pairs.first_chunk().expect("as many as there are lanes");
        pulp::cast(self.convert_i8x32_to_i16x32(pulp::cast(*pairs)))
    }

    #[inline(always)]
    fn add(self, sums: pulp::i32x16, left: i32, right: pulp::i32x16) -> pulp::i32x16 {
        let products =
            self.multiply_wrapping_add_adjacent_i16x32(pulp::cast(self.splat_i32x16(left)), pulp::cast(right));
        self.wrapping_add_i32x16(sums, products)
    }

    #[inline(always)]
    fn store(self, sums: pulp::i32x16, to: &mut [i32]) {
        <Self as Simd>::as_mut_simd_i32s(to).0[0] = sums;
    }
}

#[cfg(target_arch = "x86_64")]
impl Pairs for pulp::x86::V3 {
    type Sums = pulp::i32x8;
    const LANES: usize = 8;
    const HIGH: usize = 4;

    #[inline(always)]
    fn zero(self) -> pulp::i32x8 {
        self.splat_i32x8(0)
    }

    #[inline(always)]
    fn widen(self, pairs: &[[i8; 2]]) -> pulp::i32x8 {
        let pairs: &[[i8; 2]; 8] = pairs.first_chunk().expect("as many as there are lanes");
        pulp::cast(self.convert_i8x16_to_i16x16(pulp::cast(*pairs)))
    }

    #[inline(always)]
    fn add(self, sums: pulp::i32x8, left: i32, right: pulp::i32x8) -> pulp::i32x8 {
        let products =
            self.multiply_wrapping_add_adjacent_i16x16(pulp::cast(self.splat_i32x8(left)), pulp::cast(right));
        self.wrapping_add_i32x8(sums, products)
    }

    #[inline(always)]
    fn store(self, sums: pulp::i32x8, to: &mut [i32]) {
        <Self as Simd>::as_mut_simd_i32s(to).0[0] = sums;
    }
}

/// Other processors: what the compiler makes of it.
impl Pairs for pulp::Scalar {
    type Sums = [i32; 8];
    const LANES: usize = 8;
    const HIGH: usize = 4;

    #[inline(always)]
    fn zero(self) -> [i32; 8] {
        [0; 8]
    }

    #[inline(always)]
    fn widen(self, pairs: &[[i8; 2]]) -> [i32; 8] {
        std::array::from_fn(|i| pair(pairs[i][0].into(), pairs[i][1].into()))
    }

    #[inline(always)]
    fn add(self, mut sums: [i32; 8], left: i32, right: [i32; 8]) -> [i32; 8] {
        let (low, high) = (i32::from(left as i16), left >> 16);
        for (sum, right) in sums.iter_mut().zip(right) {
            *sum = sum.wrapping_add(low * i32::from(right as i16)).wrapping_add(high * (right >> 16));
        }
        sums
    }

    #[inline(always)]
    fn store(self, sums: [i32; 8], to: &mut [i32]) {
        to[..8].copy_from_slice(&sums);
    }
}

/// Some rows of a product.
struct Work<'a, P, E> {
    simd: P,
    weights: &'a Integers,
    rows: Rows<'a, E>,
    y: &'a mut [i32],
}

impl<P: Pairs, E: Small> WithSimd for Work<'_, P, E> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Work { simd, weights, rows, y } = self;
        let Integers { terms, width, panels, .. } = weights;
        let (pairs, width) = (terms.div_ceil(2), *width);
        if rows.x.len() == *terms {
            let left = rows.row();
            let panels = panels.chunks_exact(pairs);
            match P::LANES {
                16 => row::<P, 3, 2>(simd, &left, panels, y),
                _ => row::<P, 6, 1>(simd, &left, panels, y),
            }
            return weights.take_off(&rows, y);
        }
        let strips = rows.strips();
        let mut tile = [[0; COLUMNS]; ROWS];
        for (panel, column) in panels.chunks_exact(pairs).zip((0..width).step_by(COLUMNS)) {
            let count = (width - column).min(COLUMNS);
            for (strip, y) in strips.chunks_exact(pairs).zip(y.chunks_mut(ROWS * width)) {
                let high = y.len() / width;
                let mut row = 0;
                while row < high {
                    let left = (high - row).min(P::HIGH);
                    let mut from = 0;
                    while from < count {
                        match left {
                            1 => part::<P, 1>(simd, strip, panel, row, from, &mut tile),
                            2 => part::<P, 2>(simd, strip, panel, row, from, &mut tile),
                            3 | 4 => part::<P, 4>(simd, strip, panel, row, from, &mut tile),
                            _ => part::<P, 8>(simd, strip, panel, row, from, &mut tile),
                        }
                        from += VECTORS * P::LANES;
                    }
                    row += left;
                }
                for (y, sums) in y.chunks_exact_mut(width).zip(&tile) {
                    y[column..column + count].copy_from_slice(&sums[..count]);
                }
            }
        }
        weights.take_off(&rows, y);
    }
}

/// A single row: `N` panels of `V` vectors at a time.
#[inline(always)]
fn row<'a, P: Pairs, const V: usize, const N: usize>(
    simd: P,
    left: &[i32],
    mut panels: impl Iterator<Item = &'a [[[i8; 2]; COLUMNS]]>,
    y: &mut [i32],
) {
    for y in y.chunks_mut(N * COLUMNS) {
        // One that is not there is another one again.
        let first = panels.next().unwrap_or_default();
        let side: [_; N] = std::array::from_fn(|n| if n == 0 { first } else { panels.next().unwrap_or(first) });
        let side = side.map(|panel| &panel[..left.len()]);
        let mut sums = [[simd.zero(); V]; N];
        for (k, &left) in left.iter().enumerate() {
            for n in 0..N {
                let right = &side[n][k];
                for v in 0..V {
                    sums[n][v] = simd.add(sums[n][v], left, simd.widen(&right[v * P::LANES..]));
                }
            }
        }
        let mut all = [[0; COLUMNS]; N];
        for (all, sums) in all.iter_mut().zip(sums) {
            for (sums, to) in sums.into_iter().zip(all.chunks_exact_mut(P::LANES)) {
                simd.store(sums, to);
            }
        }
        y.copy_from_slice(&all.as_flattened()[..y.len()]);
    }
}

/// Vectors of a part, in each of its rows; a panel is a multiple of them wide.
pub(super) const VECTORS: usize = 3;

/// `R` rows of a tile and three vectors of columns.
#[inline(always)]
pub(super) fn part<P: Pairs, const R: usize>(
    simd: P,
    strip: &[[i32; ROWS]],
    panel: &[[[i8; 2]; COLUMNS]],
    row: usize,
    from: usize,
    tile: &mut [[i32; COLUMNS]; ROWS],
) {
    let mut sums = [[simd.zero(); VECTORS]; R];
    for (left, right) in strip.iter().zip(panel) {
        let left: &[i32; R] = left[row..].first_chunk().expect("a part lies within its tile");
        let right = &right[from..from + VECTORS * P::LANES];
        let right: [P::Sums; VECTORS] = std::array::from_fn(|v| simd.widen(&right[v * P::LANES..]));
        for i in 0..R {
            for v in 0..VECTORS {
                sums[i][v] = simd.add(sums[i][v], left[i], right[v]);
            }
        }
    }
    for (i, sums) in sums.into_iter().enumerate() {
        for (v, sums) in sums.into_iter().enumerate() {
            simd.store(sums, &mut tile[row + i][from + v * P::LANES..][..P::LANES]);
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

    /// Weights up to `most`, but some that are as large as can be.
    fn check<A: Small, B: Small>(x_zeros: &[i32], zeros: &[i32], most: i32) {
        for (rows, terms, width) in
            [(1, 1, 1), (1, 7, 50), (2, 64, 48), (3, 33, 97), (8, 2, 5), (13, 30, 100), (130, 9, 49), (5, 201, 130)]
        {
            let (x, mut w) = (integers::<A>(rows * terms, 1), integers::<B>(terms * width, 2));
            let middle = if B::LEAST == 0 { HALF } else { 0 };
            for (i, w) in w.iter_mut().enumerate().filter(|(i, _)| i % 5003 != 17) {
                *w = B::narrow((w.widen() - middle) * most / 128 + middle + (i % 3) as i32 - 1);
            }
            let some = |zeros: &[i32], count| -> Vec<i32> {
                if zeros.len() == 1 { zeros.to_vec() } else { zeros.iter().copied().cycle().take(count).collect() }
            };
            let (x_zeros, zeros) = (some(x_zeros, rows), some(zeros, width));
            let of = |zeros: &[i32], i: usize| zeros[if zeros.len() == 1 { 0 } else { i }];
            let weights = Integers::new(&w, [terms, width], &zeros);
            let term = |i: usize, j: usize, k: usize| {
                (x[i * terms + k].widen() - of(&x_zeros, i)) * (w[k * width + j].widen() - of(&zeros, j))
            };
            let places = (0..rows).flat_map(|i| (0..width).map(move |j| (i, j)));
            let expected: Vec<i32> = places.map(|(i, j)| (0..terms).map(|k| term(i, j, k)).sum()).collect();
            for threads in [1, 2] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let mut y = vec![-1; rows * width];
                pool.install(|| weights.run(&x, &x_zeros, &mut y));
                assert_eq!(y, expected, "{rows} {terms} {width}");
            }
            let rows = || Rows { x: &x[..], zeros: &x_zeros, terms };
            let weights = Integers::laid_out(&w, [terms, width], &zeros, true);
            let mut y = vec![-1; expected.len()];
            weights.run(&x, &x_zeros, &mut y);
            assert_eq!(y, expected, "in quads");
            let weights = Integers::laid_out(&w, [terms, width], &zeros, false);
            weights.run(&x, &x_zeros, &mut y);
            assert_eq!(y, expected, "in pairs");
            let mut y = vec![-1; expected.len()];
            let simd = pulp::Scalar::new();
            Simd::vectorize(simd, Work { simd, weights: &weights, rows: rows(), y: &mut y });
            assert_eq!(y, expected, "without vectors");
            #[cfg(target_arch = "x86_64")]
            if let Some(simd) = pulp::x86::V3::try_new() {
                y.fill(-1);
                Simd::vectorize(simd, Work { simd, weights: &weights, rows: rows(), y: &mut y });
                assert_eq!(y, expected, "with shorter vectors");
                if let Some(bytes) = &weights.bytes {
                    y.fill(-1);
                    let work = bytes::Work { simd, weights: &weights, bytes, rows: rows(), y: &mut y };
                    Simd::vectorize(simd, work);
                    assert_eq!(y, expected, "in 16 bits, with shorter vectors");
                }
            }
        }
    }

    #[test]
    fn products_are_exact_for_every_size_and_type() {
        for most in [128, 60, 20, 8] {
            check::<u8, i8>(&[128], &[0], most);
            check::<i8, i8>(&[-128, 5], &[-128, 3, 127], most);
            check::<u8, u8>(&[255], &[255, 0], most);
            check::<u8, i8>(&[0], &[0], most);
        }
    }

    #[test]
    fn weights_that_are_small_but_for_a_few_are_multiplied_in_16_bits() {
        let of = |weight: &dyn Fn(usize) -> i8| {
            let weights: Vec<i8> = (0..64 * 512).map(weight).collect();
            Integers::laid_out(&weights, [64, 512], &[0], false).bytes.map(|bytes| bytes.cuts.len())
        };
        assert_eq!(of(&|i| (i % 17) as i8 - 8), Some(0));
        assert_eq!(of(&|i| if i == 5000 { -128 } else { (i % 17) as i8 - 8 }), Some(1));
        assert_eq!(of(&|i| (i % 255) as i8), None, "they would be cut everywhere");
    }
}
