//! The inner loop of products and convolutions: a few rows of one factor times a few columns of the other, with all sums
//! in registers from the first term to the last.
//!
//! The left factor comes in strips of [`ROWS`] rows, term after term, so that a term is one short array; the right one
//! term after term too, each a slice of columns. How many sums fit into registers depends on the processor, so a tile is
//! worked off in parts; the layout of the factors does not depend on it.

use pulp::{Simd, WithSimd};

use super::activation::Activation;

/// Rows of a tile.
pub(super) const ROWS: usize = 8;
/// Columns of a tile.
pub(super) const COLUMNS: usize = 48;
/// Most columns that are worked off one by one.
const FEW: usize = 4;

/// Rows of so many terms, one after the other, as strips: `[strip][term][ROWS]`, filled up with zeros.
pub(super) fn strips(rows: &[f32], terms: usize) -> Vec<[f32; ROWS]> {
    let terms = terms.max(1);
    let mut strips = Vec::with_capacity((rows.len() / terms).div_ceil(ROWS) * terms);
    for rows in rows.chunks(ROWS * terms) {
        let first = strips.len();
        if rows.len() == ROWS * terms {
            let rows: [&[f32]; ROWS] = std::array::from_fn(|i| &rows[i * terms..][..terms]);
            strips.extend((0..terms).map(|k| -> [f32; ROWS] { std::array::from_fn(|i| rows[i][k]) }));
            continue;
        }
        strips.resize(first + terms, [0.0; ROWS]);
        for (i, row) in rows.chunks_exact(terms).enumerate() {
            strips[first..].iter_mut().zip(row).for_each(|(to, from)| to[i] = *from);
        }
    }
    strips
}

/// What the sums of each row, or of each column, begin with.
#[derive(Clone, Copy)]
pub(super) enum Bias<'a> {
    None,
    Rows(&'a [f32]),
    Columns(&'a [f32]),
}

/// Numbers to be added to a product: those of a row begin `pitch` behind those of the row before.
#[derive(Clone, Copy)]
pub(super) struct Added<'a> {
    pub(super) numbers: &'a [f32],
    pub(super) pitch: usize,
}

/// Some columns of a product, and all of its rows.
pub(super) struct Block<'a, 'y> {
    /// `[strip][term][ROWS]`
    pub(super) left: &'a [[f32; ROWS]],
    /// Panels of [`COLUMNS`] columns, each of which begins `next` behind the one before. Whole vectors are read.
    pub(super) right: &'a [f32],
    pub(super) next: usize,
    /// Where in its panel each term is.
    pub(super) offsets: &'a [usize],
    pub(super) columns: usize,
    pub(super) bias: Bias<'a>,
    pub(super) added: Option<Added<'a>>,
    pub(super) activation: Activation,
    /// The rows of the result, of which these columns begin at `at`.
    pub(super) y: &'a mut [&'y mut [f32]],
    pub(super) at: usize,
}

impl WithSimd for Block<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Block { left, right, next, offsets, columns, bias, added, activation, y, at } = self;
        let bounds = activation.bounds();
        let (low, high) = bounds.unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
        let widest = if S::REGISTER_COUNT >= 32 { 8 } else { 4 };
        for (strip, left) in left.chunks_exact(offsets.len()).enumerate() {
            let first = strip * ROWS;
            let rows = (y.len() - first).min(ROWS);
            let y = &mut y[first..first + rows];
            let added = added.map(|added| Added { numbers: &added.numbers[first * added.pitch..], ..added });
            let bias = match bias {
                Bias::Rows(bias) => Bias::Rows(&bias[first..first + rows]),
                other => other,
            };
            let finish = Finish { bias, added, low, high };
            for (panel, column) in (0..columns).step_by(COLUMNS).enumerate() {
                let (right, at) = (&right[panel * next..], at + column);
                let columns = (columns - column).min(COLUMNS);
                // A few columns behind whole vectors are cheaper one by one, with the rows as a vector.
                let few = columns % S::F32_LANES;
                let few = if (1..=FEW).contains(&few) && rows > ROWS / 2 { few } else { 0 };
                let mut part = Part { left, right, offsets, finish, y: &mut *y, at, row: 0, column: 0, columns };
                while part.column + few < columns {
                    let vectors = (columns - few - part.column).div_ceil(S::F32_LANES).min(3);
                    part.row = 0;
                    while part.row < rows {
                        let height = (rows - part.row).min(widest);
                        match (height, vectors) {
                            (1, 1) => part.run::<S, 1, 1>(simd),
                            (1, 2) => part.run::<S, 1, 2>(simd),
                            (1, _) => part.run::<S, 1, 3>(simd),
                            (2, 1) => part.run::<S, 2, 1>(simd),
                            (2, 2) => part.run::<S, 2, 2>(simd),
                            (2, _) => part.run::<S, 2, 3>(simd),
                            (3 | 4, 1) => part.run::<S, 4, 1>(simd),
                            (3 | 4, 2) => part.run::<S, 4, 2>(simd),
                            (3 | 4, _) => part.run::<S, 4, 3>(simd),
                            (_, 1) => part.run::<S, 8, 1>(simd),
                            (_, 2) => part.run::<S, 8, 2>(simd),
                            (_, _) => part.run::<S, 8, 3>(simd),
                        }
                        part.row += height;
                    }
                    part.column += vectors * S::F32_LANES;
                }
                match few {
                    0 => {}
                    1 => part.narrow::<1>(),
                    2 => part.narrow::<2>(),
                    _ => part.narrow::<FEW>(),
                }
            }
            if bounds.is_none() {
                y.iter_mut().for_each(|y| activation.apply(&mut y[at..at + columns]));
            }
        }
    }
}

/// Some rows of a strip, beginning with `row`, and some columns of a panel, beginning with `column`.
struct Part<'a, 'y> {
    left: &'a [[f32; ROWS]],
    right: &'a [f32],
    offsets: &'a [usize],
    finish: Finish<'a>,
    y: &'a mut [&'y mut [f32]],
    at: usize,
    row: usize,
    column: usize,
    columns: usize,
}

impl Part<'_, '_> {
    /// `R` rows of `V` vectors. The last vector may be longer than there are columns, and the rows fewer.
    #[inline(always)]
    fn run<S: Simd, const R: usize, const V: usize>(&mut self, simd: S) {
        let &mut Part { left, right, offsets, row, column, .. } = self;
        let mut sums: [[S::f32s; V]; R] = [[simd.splat_f32s(0.0); V]; R];
        if let Bias::Rows(bias) = self.finish.bias {
            for i in 0..R {
                sums[i] = [simd.splat_f32s(bias.get(row + i).copied().unwrap_or(0.0)); V];
            }
        }
        for (left, offset) in left.iter().zip(offsets) {
            fetch(&left[0]);
            // With few rows, each number of the right factor is read for the first time as well.
            if R <= 2 {
                for v in 0..V {
                    fetch(&right[offset + column + v * S::F32_LANES]);
                }
            }
            let (vectors, _) = S::as_simd_f32s(&right[offset + column..][..V * S::F32_LANES]);
            let vectors: &[S::f32s; V] = vectors.first_chunk().expect("as many were asked for");
            let left: &[f32; R] = left[row..].first_chunk().expect("a part lies within its strip");
            for i in 0..R {
                let factor = simd.splat_f32s(left[i]);
                for v in 0..V {
                    sums[i][v] = simd.mul_add_e_f32s(factor, vectors[v], sums[i][v]);
                }
            }
        }
        let (from, count) = (self.at + column, (self.columns - column).min(V * S::F32_LANES));
        let finish = self.finish;
        for (i, (y, sums)) in self.y[row..].iter_mut().zip(sums).enumerate() {
            let y = &mut y[from..from + count];
            if count == V * S::F32_LANES {
                let (y, _) = S::as_mut_simd_f32s(y);
                for v in 0..V {
                    y[v] = finish.vector(simd, sums[v], row + i, from + v * S::F32_LANES, S::F32_LANES);
                }
            } else {
                for (v, y) in y.chunks_mut(S::F32_LANES).enumerate() {
                    let sums = finish.vector(simd, sums[v], row + i, from + v * S::F32_LANES, y.len());
                    simd.partial_store_f32s(y, sums);
                }
            }
        }
    }

    /// All rows of the strip, and `C` columns, of which the last may not be wanted.
    #[inline(always)]
    fn narrow<const C: usize>(&mut self) {
        /// Sums that are kept side by side: an addition takes a few steps.
        const SIDES: usize = 4;
        let &mut Part { left, right, offsets, column, .. } = self;
        let mut sides = [[[0.0f32; ROWS]; C]; SIDES];
        let (left, rest) = left.as_chunks::<SIDES>();
        let (offsets, others) = offsets.as_chunks::<SIDES>();
        for (left, offsets) in left.iter().zip(offsets) {
            for s in 0..SIDES {
                add(&mut sides[s], &left[s], &right[offsets[s] + column..]);
            }
        }
        for (left, offset) in rest.iter().zip(others) {
            add(&mut sides[0], left, &right[offset + column..]);
        }
        for c in 0..C.min(self.columns - column) {
            let at = self.at + column + c;
            for (i, y) in self.y.iter_mut().enumerate() {
                let sum = (sides[0][c][i] + sides[1][c][i]) + (sides[2][c][i] + sides[3][c][i]);
                y[at] = self.finish.number(sum, i, at);
            }
        }
    }
}

/// Asks the memory for what is 128 terms of the left factor behind this number. The processor does so by itself, but not beyond its page.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
fn fetch(number: &f32) {
    if let Some(sse) = pulp::core_arch::x86::Sse::try_new() {
        sse._mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>((&raw const *number).wrapping_add(128 * ROWS).cast());
    }
}

/// Elsewhere there is no instruction for it without unsafe code.
#[inline(always)]
#[cfg(not(target_arch = "x86_64"))]
fn fetch(_number: &f32) {}

/// Adds one term to the sums of each column.
#[inline(always)]
fn add<const C: usize>(sums: &mut [[f32; ROWS]; C], left: &[f32; ROWS], right: &[f32]) {
    let right: &[f32; C] = right.first_chunk().expect("a panel has all of its columns");
    for c in 0..C {
        for i in 0..ROWS {
            sums[c][i] += left[i] * right[c];
        }
    }
}

/// What becomes of the sums of a strip.
#[derive(Clone, Copy)]
struct Finish<'a> {
    bias: Bias<'a>,
    added: Option<Added<'a>>,
    low: f32,
    high: f32,
}

impl Finish<'_> {
    /// A vector of sums, of which the first `count` are wanted; it has begun with the bias of its row.
    #[inline(always)]
    fn vector<S: Simd>(&self, simd: S, mut sums: S::f32s, row: usize, column: usize, count: usize) -> S::f32s {
        if let Bias::Columns(bias) = self.bias {
            sums = simd.add_f32s(sums, simd.partial_load_f32s(&bias[column..column + count]));
        }
        if let Some(added) = self.added {
            let at = row * added.pitch + column;
            sums = simd.add_f32s(sums, simd.partial_load_f32s(&added.numbers[at..at + count]));
        }
        let (low, high) = (simd.splat_f32s(self.low), simd.splat_f32s(self.high));
        sums = simd.select_f32s(simd.less_than_f32s(sums, low), low, sums);
        simd.select_f32s(simd.less_than_f32s(high, sums), high, sums)
    }

    /// One sum, which has begun with nothing.
    #[inline(always)]
    fn number(&self, mut sum: f32, row: usize, column: usize) -> f32 {
        sum += match self.bias {
            Bias::None => 0.0,
            Bias::Rows(bias) => bias[row],
            Bias::Columns(bias) => bias[column],
        };
        if let Some(added) = self.added {
            sum += added.numbers[row * added.pitch + column];
        }
        sum = if sum < self.low { self.low } else { sum };
        if sum > self.high { self.high } else { sum }
    }
}

#[cfg(test)]
mod tests {
    use pulp::WithSimd;

    use super::super::numbers;
    use super::*;

    /// Compares every size of block with the definition.
    struct Check;

    impl WithSimd for Check {
        type Output = ();

        fn with_simd<S: Simd>(self, simd: S) {
            let (terms, pitch, at, next) = (5, 130, 3, COLUMNS);
            let offsets: Vec<usize> = (0..terms).map(|k| k * pitch).collect();
            for rows in 1..=2 * ROWS {
                let (a, b) = (numbers(rows * terms, 1), numbers(pitch * (terms + 1), 2));
                let left = strips(&a, terms);
                for columns in 1..=2 * COLUMNS + 5 {
                    let (width, added) = (at + columns, numbers(rows * (at + columns), 3));
                    let of_rows = rows % 2 == 0;
                    let bias = numbers(if of_rows { rows } else { width }, 4);
                    let mut y = vec![f32::NAN; rows * width];
                    simd.vectorize(Block {
                        left: &left,
                        right: &b,
                        next,
                        offsets: &offsets,
                        columns,
                        bias: if of_rows { Bias::Rows(&bias) } else { Bias::Columns(&bias) },
                        added: Some(Added { numbers: &added, pitch: width }),
                        activation: Activation::Clip(-1.5, 1.0),
                        y: &mut y.chunks_mut(width).collect::<Vec<_>>(),
                        at,
                    });
                    for i in 0..rows {
                        assert!(y[i * width..][..at].iter().all(|y| y.is_nan()), "nothing else is written");
                        for j in 0..columns {
                            let sum: f32 = (0..terms).map(|k| a[i * terms + k] * b[k * pitch + j]).sum();
                            let bias = if of_rows { bias[i] } else { bias[at + j] };
                            let expected = (sum + bias + added[i * width + at + j]).clamp(-1.5, 1.0);
                            let found = y[i * width + at + j];
                            assert!((found - expected).abs() < 1e-5, "{rows} {columns} {i} {j}: {found} {expected}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn blocks_are_the_same_on_every_kind_of_processor() {
        Simd::vectorize(pulp::Scalar256b, Check);
        Simd::vectorize(pulp::Scalar, Check);
        #[cfg(target_arch = "x86_64")]
        {
            pulp::x86::V3::try_new().into_iter().for_each(|simd| Simd::vectorize(simd, Check));
            pulp::x86::V4::try_new().into_iter().for_each(|simd| Simd::vectorize(simd, Check));
        }
    }
}
