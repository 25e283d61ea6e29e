//! Matrix products: with weights that are laid out once, and of two matrices that are both computed.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::activation::Activation;
use super::share::{self, Piece};
use super::tile::{Added, Bias, Block, COLUMNS, ROWS};
use super::vectorized;

/// Floats of the left factor that are laid out at a time, to stay in the second-level cache.
const BLOCK: usize = 1 << 16;

/// Fewest multiplications that are shared by threads: with less, waking them takes longer.
const SHARED: usize = 1 << 17;

/// A matrix within a slice: element (i, j) is `data[i · rows + j · columns]`.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// Lays a matrix of `terms` rows and `width` columns out as panels: `[panel][term][COLUMNS]`, filled up with zeros.
fn panels(matrix: View<'_>, terms: usize, width: usize, panels: &mut Vec<[f32; COLUMNS]>) {
    panels.clear();
    panels.resize(width.div_ceil(COLUMNS) * terms, [0.0; COLUMNS]);
    for (first, panel) in (0..width).step_by(COLUMNS).zip(panels.chunks_exact_mut(terms.max(1))) {
        let count = (width - first).min(COLUMNS);
        if matrix.columns == 1 {
            for (k, to) in panel.iter_mut().enumerate() {
                to[..count].copy_from_slice(&matrix.data[k * matrix.rows + first..][..count]);
            }
            continue;
        }
        for j in 0..count {
            let column = &matrix.data[(first + j) * matrix.columns..];
            let column = column.iter().step_by(matrix.rows.max(1));
            panel.iter_mut().zip(column).for_each(|(to, from)| to[j] = *from);
        }
    }
}

/// Lays `count` rows, beginning with `first`, out as strips.
fn strips(matrix: View<'_>, first: usize, count: usize, terms: usize, strips: &mut Vec<[f32; ROWS]>) {
    strips.clear();
    strips.resize(count.div_ceil(ROWS) * terms, [0.0; ROWS]);
    for (at, strip) in (first..first + count).step_by(ROWS).zip(strips.chunks_exact_mut(terms.max(1))) {
        let rows = (first + count - at).min(ROWS);
        if rows == ROWS && matrix.columns == 1 {
            let rows: [&[f32]; ROWS] = std::array::from_fn(|i| &matrix.data[(at + i) * matrix.rows..][..terms]);
            for (k, to) in strip.iter_mut().enumerate() {
                *to = std::array::from_fn(|i| rows[i][k]);
            }
            continue;
        }
        for i in 0..rows {
            let row = &matrix.data[(at + i) * matrix.rows..];
            let row = row.iter().step_by(matrix.columns.max(1));
            strip.iter_mut().zip(row).for_each(|(to, from)| to[i] = *from);
        }
    }
}

/// y = activation(x · weights + bias + added), with the weights laid out for it.
pub(crate) struct Linear {
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    panels: Vec<[f32; COLUMNS]>,
    bias: Option<Vec<f32>>,
}

impl Linear {
    /// `weights` has `inputs` rows and `outputs` columns; `bias` one number for each output.
    pub(crate) fn new(weights: View<'_>, [inputs, outputs]: [usize; 2], bias: Option<Vec<f32>>) -> Linear {
        let mut laid_out = Vec::new();
        panels(weights, inputs, outputs, &mut laid_out);
        Linear { inputs, outputs, panels: laid_out, bias }
    }

    /// Multiplies rows of `inputs` numbers; `added` has the shape of the result.
    pub(crate) fn run(&self, x: &[f32], added: Option<&[f32]>, activation: Activation, y: &mut [f32]) {
        if self.inputs == 0 || self.outputs == 0 || y.is_empty() {
            return y.fill(0.0);
        }
        let left = View { data: x, rows: self.inputs, columns: 1 };
        let bias = self.bias.as_deref();
        multiply(Product { left, terms: self.inputs, panels: &self.panels, bias, added, activation }, self.outputs, y);
    }
}

/// y = left · right, for two matrices of `[rows, terms]` and `[terms, width]`.
pub(crate) fn product(left: View<'_>, right: View<'_>, [terms, width]: [usize; 2], y: &mut [f32]) {
    if terms == 0 || y.is_empty() {
        return y.fill(0.0);
    }
    let mut laid_out = Vec::new();
    panels(right, terms, width, &mut laid_out);
    let activation = Activation::None;
    multiply(Product { left, terms, panels: &laid_out, bias: None, added: None, activation }, width, y);
}

/// The factors of a product, and what becomes of its sums.
#[derive(Clone, Copy)]
struct Product<'a> {
    left: View<'a>,
    terms: usize,
    panels: &'a [[f32; COLUMNS]],
    bias: Option<&'a [f32]>,
    added: Option<&'a [f32]>,
    activation: Activation,
}

/// Computes a product that is `width` wide, on all threads.
fn multiply(product: Product<'_>, width: usize, y: &mut [f32]) {
    let (rows, threads) = (y.len() / width, rayon::current_num_threads());
    let block = (BLOCK / product.terms).clamp(ROWS, 1 << 10).next_multiple_of(ROWS);
    let mut shape = [block, width];
    if threads > 1 && y.len() * product.terms >= SHARED {
        shape[0] = rows.div_ceil(threads).next_multiple_of(ROWS).min(block);
        let across = threads.div_ceil(rows.div_ceil(shape[0]));
        shape[1] = width.div_ceil(COLUMNS).div_ceil(across) * COLUMNS;
    }
    let mut pieces = share::pieces(y.chunks_exact_mut(width), width, shape);
    let work = |piece: &mut Piece<'_>| vectorized(Work { product, width, piece });
    if threads == 1 || pieces.len() == 1 {
        pieces.iter_mut().for_each(work);
    } else {
        pieces.par_iter_mut().for_each(work);
    }
}

/// A piece of a product.
struct Work<'a, 'y> {
    product: Product<'a>,
    width: usize,
    piece: &'a mut Piece<'y>,
}

impl WithSimd for Work<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Work { product: Product { left, terms, panels, bias, added, activation }, width, piece } = self;
        let (first, from) = (piece.rows.start, piece.columns.start);
        let mut laid_out = Vec::new();
        strips(left, first, piece.rows.len(), terms, &mut laid_out);
        let offsets: Vec<usize> = (0..terms).map(|term| term * COLUMNS).collect();
        for column in piece.columns.clone().step_by(COLUMNS) {
            simd.vectorize(Block {
                left: &laid_out,
                right: panels[column / COLUMNS * terms..][..terms].as_flattened(),
                next: 0,
                offsets: &offsets,
                columns: (piece.columns.end - column).min(COLUMNS),
                bias: bias.map_or(Bias::None, |bias| Bias::Columns(&bias[from..])),
                added: added.map(|added| Added { numbers: &added[first * width + from..], pitch: width }),
                activation,
                y: &mut piece.y,
                at: column - from,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::numbers;
    use super::*;

    fn naive(left: View<'_>, right: View<'_>, [rows, terms, width]: [usize; 3]) -> Vec<f32> {
        let mut y = Vec::new();
        for i in 0..rows {
            for j in 0..width {
                let term =
                    |k| left.data[i * left.rows + k * left.columns] * right.data[k * right.rows + j * right.columns];
                y.push((0..terms).map(term).sum());
            }
        }
        y
    }

    fn assert_close(found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len());
        let far = found.iter().zip(expected).position(|(a, b)| (a - b).abs() >= 1e-4 || a.is_nan());
        assert_eq!(far, None, "{:?}", far.map(|i| (found[i], expected[i])));
    }

    #[test]
    fn products_are_those_of_the_definition_for_every_layout() {
        for (rows, terms, width) in [(1, 1, 1), (1, 70, 100), (7, 13, 48), (8, 5, 49), (23, 64, 17), (130, 32, 131)] {
            let (a, b) = (numbers(rows * terms, 1), numbers(terms * width, 2));
            let lefts = [View { data: &a, rows: terms, columns: 1 }, View { data: &a, rows: 1, columns: rows }];
            let rights = [View { data: &b, rows: width, columns: 1 }, View { data: &b, rows: 1, columns: terms }];
            for left in lefts {
                for right in rights {
                    let expected = naive(left, right, [rows, terms, width]);
                    let mut y = vec![f32::NAN; rows * width];
                    product(left, right, [terms, width], &mut y);
                    assert_close(&y, &expected);
                }
            }
        }
    }

    #[test]
    fn bias_and_addend_come_before_the_activation() {
        let (rows, inputs, outputs) = (1100, 21, 60); // more than a block
        let (x, w) = (numbers(rows * inputs, 1), numbers(inputs * outputs, 2));
        let (bias, added) = (numbers(outputs, 3), numbers(rows * outputs, 4));
        let (left, right) = (View { data: &x, rows: inputs, columns: 1 }, View { data: &w, rows: outputs, columns: 1 });
        let mut expected = naive(left, right, [rows, inputs, outputs]);
        for (i, y) in expected.iter_mut().enumerate() {
            *y = (*y + bias[i % outputs] + added[i]).max(0.0);
        }
        let linear = Linear::new(right, [inputs, outputs], Some(bias));
        for threads in [1, 2] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut y = vec![f32::NAN; rows * outputs];
            pool.install(|| linear.run(&x, Some(&added), Activation::Relu, &mut y));
            assert_close(&y, &expected);
        }
    }
}
