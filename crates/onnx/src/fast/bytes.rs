//! Products of bytes with small weights.
//!
//! Processors multiply pairs of bytes and add up the two products in 16 bits, twice as many at a time as pairs of 16-bit integers.
//! A network's weights are mostly far from the ends of eight bits, so that the products of several pairs can be added up before
//! they have to be widened. The few weights for which that could be too much are cut, and what was cut is multiplied by itself.

#[cfg(target_arch = "x86_64")]
use pulp::{Simd, WithSimd, cast, u32x8, x86::V3};

use super::integers::COLUMNS;
#[cfg(target_arch = "x86_64")]
use super::integers::{Integers, ROWS, Rows};
#[cfg(target_arch = "x86_64")]
use super::quantize::Small;

/// What the weights of some pairs may come to, those above zero and those below: times 255 it stays within 16 bits.
const MOST: i32 = 128;
/// One weight of so many may be cut.
const RARE: usize = 1 << 12;

/// How weights are multiplied with bytes.
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "other processors multiply what was left, and then what was cut")
)]
pub(super) struct Bytes {
    /// So many pairs are added up in 16 bits: 2, 4 or 8.
    group: usize,
    /// The sum of each column's weights as they were left.
    sums: Vec<i32>,
    pub(super) cuts: Vec<Cut>,
}

/// What was taken from a weight.
pub(super) struct Cut {
    pub(super) term: usize,
    pub(super) column: usize,
    pub(super) by: i32,
}

impl Bytes {
    /// Cuts weights, in panels of so many pairs, where that is rare.
    pub(super) fn of(panels: &mut [[[i8; 2]; COLUMNS]], pairs: usize, width: usize) -> Option<Bytes> {
        let pairs = pairs.max(1);
        let few = 2 * pairs * width / RARE;
        let group = [8, 4, 2].into_iter().find(|&group| {
            let over = |panel: &[[[i8; 2]; COLUMNS]]| panel.chunks(group).map(too_much).sum::<usize>();
            panels.chunks_exact(pairs).map(over).sum::<usize>() <= few
        })?;
        let (mut sums, mut cuts) = (Vec::with_capacity(width), Vec::new());
        for (panel, first) in panels.chunks_exact_mut(pairs).zip((0..width).step_by(COLUMNS)) {
            for (i, some) in panel.chunks_mut(group).enumerate().filter(|(_, some)| too_much(some) > 0) {
                (0..COLUMNS).for_each(|j| cut(some, j, [i * group * 2, first], &mut cuts));
            }
            for column in 0..COLUMNS.min(width - first) {
                sums.push(panel.iter().flat_map(|pair| pair[column]).map(i32::from).sum());
            }
        }
        Some(Bytes { group, sums, cuts })
    }
}

/// In how many columns some pairs of weights come to too much.
fn too_much(some: &[[[i8; 2]; COLUMNS]]) -> usize {
    let (mut above, mut below) = ([0; COLUMNS], [0; COLUMNS]);
    for pairs in some {
        for ((above, below), [a, b]) in above.iter_mut().zip(&mut below).zip(pairs) {
            let (a, b) = (i32::from(*a), i32::from(*b));
            *above += a.max(0) + b.max(0);
            *below += a.min(0) + b.min(0);
        }
    }
    above.iter().zip(&below).filter(|&(&above, &below)| above > MOST || below < -MOST).count()
}

/// Cuts the largest weights of a column until it comes to no more than it may.
fn cut(some: &mut [[[i8; 2]; COLUMNS]], column: usize, [term, first]: [usize; 2], cuts: &mut Vec<Cut>) {
    for sign in [1, -1] {
        let weight = |some: &[[[i8; 2]; COLUMNS]], k: usize| sign * i32::from(some[k / 2][column][k % 2]);
        let all = |some: &[[[i8; 2]; COLUMNS]]| (0..2 * some.len()).map(|k| weight(some, k).max(0)).sum::<i32>();
        while all(some) > MOST {
            let largest = (0..2 * some.len()).max_by_key(|&k| weight(some, k)).unwrap_or_default();
            let by = (all(some) - MOST).min(weight(some, largest));
            some[largest / 2][column][largest % 2] -= (sign * by) as i8;
            cuts.push(Cut { term: term + largest, column: first + column, by: sign * by });
        }
    }
}

/// Some rows of a product.
#[cfg(target_arch = "x86_64")]
pub(super) struct Work<'a, E> {
    pub(super) simd: V3,
    pub(super) weights: &'a Integers,
    pub(super) bytes: &'a Bytes,
    pub(super) rows: Rows<'a, E>,
    pub(super) y: &'a mut [i32],
}

#[cfg(target_arch = "x86_64")]
impl<E: Small> WithSimd for Work<'_, E> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Work { simd, weights, bytes, rows, y } = self;
        let all = Product { simd, weights, high: if S::REGISTER_COUNT >= 32 { ROWS } else { ROWS / 2 } };
        match bytes.group {
            2 => all.run::<2, E>(&rows, y),
            4 => all.run::<4, E>(&rows, y),
            _ => all.run::<8, E>(&rows, y),
        }
        // Bytes are counted from zero, and numbers from their zero point.
        for (y, i) in y.chunks_exact_mut(weights.width).zip(0..) {
            let zero = rows.zero(i) - E::LEAST;
            y.iter_mut().zip(&bytes.sums).for_each(|(y, sum)| *y = y.wrapping_sub(sum.wrapping_mul(zero)));
        }
        weights.take_off(&rows, y);
    }
}

/// A pair of bytes, twice.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn twice<E: Small>(pair: &[E]) -> i32 {
    let byte = |i: usize| pair.get(i).map_or(0, |x| (x.widen() - E::LEAST) as u32);
    ((byte(0) | byte(1) << 8) * 0x1_0001) as i32
}

#[cfg(target_arch = "x86_64")]
struct Product<'a> {
    simd: V3,
    weights: &'a Integers,
    /// Rows whose sums fit into registers.
    high: usize,
}

#[cfg(target_arch = "x86_64")]
impl Product<'_> {
    #[inline(always)]
    fn run<const G: usize, E: Small>(&self, rows: &Rows<'_, E>, y: &mut [i32]) {
        let Integers { terms, width, ref panels, .. } = *self.weights;
        let pairs = terms.div_ceil(2);
        let mut tile = [[0; COLUMNS]; ROWS];
        if rows.x.len() == terms {
            let left: Vec<[i32; 1]> = rows.x.chunks(2).map(|pair| [twice(pair)]).collect();
            for (panel, y) in panels.chunks_exact(pairs).zip(y.chunks_mut(COLUMNS)) {
                self.part::<G, 1, 3, 1>(&left, panel, [0, 0], &mut tile);
                y.copy_from_slice(&tile[0][..y.len()]);
            }
            return;
        }
        let mut strips = vec![[0; ROWS]; (rows.x.len() / terms).div_ceil(ROWS) * pairs];
        for (rows, strip) in rows.x.chunks(ROWS * terms).zip(strips.chunks_exact_mut(pairs)) {
            for (i, row) in rows.chunks_exact(terms).enumerate() {
                row.chunks(2).zip(&mut *strip).for_each(|(pair, to)| to[i] = twice(pair));
            }
        }
        for (panel, column) in panels.chunks_exact(pairs).zip((0..width).step_by(COLUMNS)) {
            let count = (width - column).min(COLUMNS);
            for (strip, y) in strips.chunks_exact(pairs).zip(y.chunks_mut(ROWS * width)) {
                let rows = y.len() / width;
                let mut row = 0;
                while row < rows {
                    let left = (rows - row).min(self.high);
                    for from in (0..count).step_by(16) {
                        match left {
                            1 => self.part::<G, 1, 1, ROWS>(strip, panel, [row, from], &mut tile),
                            2 => self.part::<G, 2, 1, ROWS>(strip, panel, [row, from], &mut tile),
                            3 | 4 => self.part::<G, 4, 1, ROWS>(strip, panel, [row, from], &mut tile),
                            _ => self.part::<G, 8, 1, ROWS>(strip, panel, [row, from], &mut tile),
                        }
                    }
                    row += left;
                }
                for (y, sums) in y.chunks_exact_mut(width).zip(&tile) {
                    y[column..column + count].copy_from_slice(&sums[..count]);
                }
            }
        }
    }

    /// `R` rows of a strip, and `V` vectors of 16 columns.
    #[inline(always)]
    fn part<const G: usize, const R: usize, const V: usize, const H: usize>(
        &self,
        strip: &[[i32; H]],
        panel: &[[[i8; 2]; COLUMNS]],
        [row, from]: [usize; 2],
        tile: &mut [[i32; COLUMNS]; ROWS],
    ) {
        let simd = self.simd;
        let mut sums = Sums { all: [[simd.splat_u32x8(0); V]; R], upper: [[simd.splat_u32x8(0); V]; R], count: 0 };
        let (strips, strip) = strip.as_chunks::<G>();
        let (panels, panel) = panel.as_chunks::<G>();
        for (strip, panel) in strips.iter().zip(panels) {
            sums.add(simd, strip, panel, [row, from]);
        }
        if !strip.is_empty() {
            sums.add(simd, strip, panel, [row, from]);
        }
        let begun = sums.count << 15;
        for i in 0..R {
            for v in 0..V {
                let (all, upper): ([u32; 8], [u32; 8]) = (cast(sums.all[i][v]), cast(sums.upper[i][v]));
                let (to, _) = tile[row + i][from + 16 * v..][..16].as_chunks_mut::<2>();
                for k in 0..8 {
                    let lower = all[k].wrapping_sub(upper[k] << 16);
                    to[k] = [lower.wrapping_sub(begun) as i32, upper[k].wrapping_sub(begun) as i32];
                }
            }
        }
    }
}

/// Sums of `R` rows and `V` vectors of 16 columns, two of which share 32 bits.
#[cfg(target_arch = "x86_64")]
struct Sums<const R: usize, const V: usize> {
    /// The numbers of 32 bits.
    all: [[u32x8; V]; R],
    /// Their upper halves alone.
    upper: [[u32x8; V]; R],
    /// So many numbers of 16 bits have been added, each of them half their range too much.
    count: u32,
}

#[cfg(target_arch = "x86_64")]
impl<const R: usize, const V: usize> Sums<R, V> {
    /// Adds the products of some pairs of terms, which stay within 16 bits.
    #[inline(always)]
    fn add<const H: usize>(
        &mut self,
        simd: V3,
        strip: &[[i32; H]],
        panel: &[[[i8; 2]; COLUMNS]],
        [row, from]: [usize; 2],
    ) {
        // They begin with half their range, so that none is below zero: two side by side are one number of 32 bits.
        let mut sums = [[simd.splat_i16x16(i16::MIN); V]; R];
        for (left, right) in strip.iter().zip(panel) {
            let left: &[i32; R] = left[row..].first_chunk().expect("a part lies within its strip");
            for v in 0..V {
                let right: &[[i8; 2]; 16] = right[from + 16 * v..].first_chunk().expect("a panel has as many");
                for i in 0..R {
                    let left = cast(simd.splat_i32x8(left[i]));
                    let products = simd.multiply_saturating_add_adjacent_i8x32(left, cast(*right));
                    sums[i][v] = simd.wrapping_add_i16x16(sums[i][v], products);
                }
            }
        }
        for i in 0..R {
            for v in 0..V {
                let both = cast(sums[i][v]);
                self.all[i][v] = simd.wrapping_add_u32x8(self.all[i][v], both);
                self.upper[i][v] = simd.wrapping_add_u32x8(self.upper[i][v], simd.shr_const_u32x8::<16>(both));
            }
        }
        self.count += 1;
    }
}
