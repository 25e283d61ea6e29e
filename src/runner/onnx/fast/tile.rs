//! The inner loop of products and convolutions: a few rows of one factor times a few columns of the other, with all sums
//! in registers from the first term to the last.
//!
//! The left factor comes in strips of [`ROWS`] rows, term after term, so that a term is one short array; the right one
//! term after term too, each a slice of columns. How many sums fit into registers depends on the processor, so a tile is
//! worked off in parts; the layout of the factors does not depend on it.

use pulp::Simd;

/// Rows of a tile.
pub(super) const ROWS: usize = 8;
/// Columns of a tile.
pub(super) const COLUMNS: usize = 48;

/// The terms of one row after another, as strips: `[strip][term][ROWS]`, filled up with zeros.
pub(super) fn strips(rows: usize, terms: usize, at: impl Fn(usize, usize) -> f32) -> Vec<[f32; ROWS]> {
    let mut strips = Vec::with_capacity(rows.div_ceil(ROWS) * terms);
    for first in (0..rows).step_by(ROWS) {
        for term in 0..terms {
            strips.push(std::array::from_fn(|i| if first + i < rows { at(first + i, term) } else { 0.0 }));
        }
    }
    strips
}

/// The sums of one tile, of which the first `rows` rows and the first `columns` columns are computed.
pub(super) type Tile = [[f32; COLUMNS]; ROWS];

/// Where the terms of the right factor are.
pub(super) trait Terms: Copy {
    /// At least `from + count` columns of term `k`, without the first `from`.
    fn term(&self, k: usize, from: usize, count: usize) -> &[f32];
}

/// Computes `tile[i][j]` as `start[i]` plus the sum over k of `left[k][i] · right.term(k)[j]`.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "two factors, their extent and the sums")]
pub(super) fn multiply<S: Simd>(
    simd: S,
    start: &[f32; ROWS],
    left: &[[f32; ROWS]],
    right: impl Terms,
    rows: usize,
    columns: usize,
    tile: &mut Tile,
) {
    let lanes = S::F32_LANES;
    let widest = if S::REGISTER_COUNT >= 32 { 8 } else { 4 };
    let mut column = 0;
    while column < columns {
        let vectors = (columns - column).div_ceil(lanes).min(3);
        let mut row = 0;
        while row < rows {
            let height = (rows - row).min(widest);
            match (height, vectors) {
                (1, 1) => part::<S, 1, 1>(simd, start, left, right, row, column, tile),
                (1, 2) => part::<S, 1, 2>(simd, start, left, right, row, column, tile),
                (1, _) => part::<S, 1, 3>(simd, start, left, right, row, column, tile),
                (2, 1) => part::<S, 2, 1>(simd, start, left, right, row, column, tile),
                (2, 2) => part::<S, 2, 2>(simd, start, left, right, row, column, tile),
                (2, _) => part::<S, 2, 3>(simd, start, left, right, row, column, tile),
                (3 | 4, 1) => part::<S, 4, 1>(simd, start, left, right, row, column, tile),
                (3 | 4, 2) => part::<S, 4, 2>(simd, start, left, right, row, column, tile),
                (3 | 4, _) => part::<S, 4, 3>(simd, start, left, right, row, column, tile),
                (5 | 6, 1) => part::<S, 6, 1>(simd, start, left, right, row, column, tile),
                (5 | 6, 2) => part::<S, 6, 2>(simd, start, left, right, row, column, tile),
                (5 | 6, _) => part::<S, 6, 3>(simd, start, left, right, row, column, tile),
                (_, 1) => part::<S, 8, 1>(simd, start, left, right, row, column, tile),
                (_, 2) => part::<S, 8, 2>(simd, start, left, right, row, column, tile),
                (_, _) => part::<S, 8, 3>(simd, start, left, right, row, column, tile),
            }
            row += height;
        }
        column += vectors * lanes;
    }
}

/// `R` rows of `V` vectors.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "what a tile has, and where the part is")]
fn part<S: Simd, const R: usize, const V: usize>(
    simd: S,
    start: &[f32; ROWS],
    left: &[[f32; ROWS]],
    right: impl Terms,
    row: usize,
    column: usize,
    tile: &mut Tile,
) {
    let start: &[f32; R] = start[row..].first_chunk().expect("a part lies within its tile");
    let mut sums: [[S::f32s; V]; R] = [[simd.splat_f32s(0.0); V]; R];
    for i in 0..R {
        sums[i] = [simd.splat_f32s(start[i]); V];
    }
    for (k, left) in left.iter().enumerate() {
        let (vectors, _) = S::as_simd_f32s(right.term(k, column, V * S::F32_LANES));
        let vectors: &[S::f32s; V] = vectors.first_chunk().expect("a term has the columns that were asked for");
        let left: &[f32; R] = left[row..].first_chunk().expect("a part lies within its tile");
        for i in 0..R {
            let factor = simd.splat_f32s(left[i]);
            for v in 0..V {
                sums[i][v] = simd.mul_add_e_f32s(factor, vectors[v], sums[i][v]);
            }
        }
    }
    for (i, sums) in sums.iter().enumerate() {
        let (vectors, _) = S::as_mut_simd_f32s(&mut tile[row + i][column..column + V * S::F32_LANES]);
        vectors.copy_from_slice(sums);
    }
}

#[cfg(test)]
mod tests {
    use pulp::WithSimd;

    use super::super::numbers;
    use super::*;

    #[derive(Clone, Copy)]
    struct Columns<'a>(&'a [f32]);

    impl Terms for Columns<'_> {
        fn term(&self, k: usize, from: usize, count: usize) -> &[f32] {
            &self.0[k * COLUMNS + from..][..count]
        }
    }

    /// Compares every size of tile with the definition.
    struct Check;

    impl WithSimd for Check {
        type Output = ();

        fn with_simd<S: Simd>(self, simd: S) {
            let terms = 5;
            let (a, b, start) = (numbers(ROWS * terms, 1), numbers(COLUMNS * terms, 2), numbers(ROWS, 3));
            let left = strips(ROWS, terms, |row, term| a[row * terms + term]);
            let start: [f32; ROWS] = start.try_into().unwrap();
            for rows in 1..=ROWS {
                for columns in 1..=COLUMNS {
                    let mut tile: Tile = [[f32::NAN; COLUMNS]; ROWS];
                    multiply(simd, &start, &left, Columns(&b), rows, columns, &mut tile);
                    for i in 0..rows {
                        for j in 0..columns {
                            let term = |k: usize| a[i * terms + k] * b[k * COLUMNS + j];
                            let expected = start[i] + (0..terms).map(term).sum::<f32>();
                            assert!((tile[i][j] - expected).abs() < 1e-5, "{rows} {columns} {i} {j}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn tiles_are_the_same_on_every_kind_of_processor() {
        Simd::vectorize(pulp::Scalar256b, Check);
        Simd::vectorize(pulp::Scalar, Check);
        #[cfg(target_arch = "x86_64")]
        {
            pulp::x86::V3::try_new().into_iter().for_each(|simd| Simd::vectorize(simd, Check));
            pulp::x86::V4::try_new().into_iter().for_each(|simd| Simd::vectorize(simd, Check));
        }
    }
}
