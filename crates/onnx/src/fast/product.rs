//! Matrix products: with weights that are laid out once, and of two matrices that are both computed.

use std::sync::Arc;

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::activation::{Activation, of_no_terms};
use super::share::{self, Piece};
use super::tile::{Added, Bias, Block, COLUMNS, ROWS};
use super::vectorized;

/// Floats of the left factor that are laid out at a time, to stay in the second-level cache.
const BLOCK: usize = 1 << 16;

/// Panels that a single row is multiplied with at once.
const SIDE_BY_SIDE: usize = 4;

/// A matrix within a slice: element (i, j) is `data[i · rows + j · columns]`.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// Lays a matrix of `terms` rows and `width` columns out as panels: `[panel][term][COLUMNS]`, filled up with zeros.
fn panels(matrix: Matrix<'_>, terms: usize, width: usize, panels: &mut Vec<[f32; COLUMNS]>) {
    panels.clear();
    panels.resize(width.div_ceil(COLUMNS) * terms, [0.0; COLUMNS]);
    for (first, panel) in (0..width).step_by(COLUMNS).zip(panels.chunks_exact_mut(terms.max(1))) {
        let count = (width - first).min(COLUMNS);
        let own = &matrix.data[first * matrix.columns..];
        match [matrix.rows, matrix.columns] {
            [rows, 1] => {
                let lines = panel.iter_mut().enumerate();
                lines.for_each(|(k, to)| to[..count].copy_from_slice(&own[k * rows..][..count]));
            }
            [1, columns] => turned(own, columns, count, panel),
            [rows, columns] => {
                for (k, to) in panel.iter_mut().enumerate() {
                    to[..count].iter_mut().enumerate().for_each(|(j, to)| *to = own[k * rows + j * columns]);
                }
            }
        }
    }
}

/// Lays columns out as a panel, `count` of them, each of which is contiguous and begins `pitch` behind the one before.
fn turned(columns: &[f32], pitch: usize, count: usize, panel: &mut [[f32; COLUMNS]]) {
    /// Terms that are visited together, so that they stay in the nearest cache.
    const NEAR: usize = 16;
    for (i, panel) in panel.chunks_mut(NEAR).enumerate() {
        for j in 0..count {
            let column = &columns[j * pitch + i * NEAR..][..panel.len()];
            panel.iter_mut().zip(column).for_each(|(to, from)| to[j] = *from);
        }
    }
}

/// Turns a matrix of `rows` and `columns` into one of `columns` and `rows`, in its place.
fn transpose<T: Copy>(elements: &mut [T], rows: usize, columns: usize) {
    let mut moved = vec![false; elements.len()];
    for first in 0..elements.len() {
        let (mut at, mut element) = (first, elements[first]);
        // Each element goes to the place of another one, until a circle is closed.
        while !std::mem::replace(&mut moved[at], true) {
            let to = at % columns * rows + at / columns;
            element = std::mem::replace(&mut elements[to], element);
            at = to;
        }
    }
}

/// Lays `count` rows, beginning with `first`, out as strips.
fn strips(matrix: Matrix<'_>, first: usize, count: usize, terms: usize, strips: &mut Vec<[f32; ROWS]>) {
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
            strip.iter_mut().enumerate().for_each(|(k, to)| to[i] = row[k * matrix.columns]);
        }
    }
}

/// A right factor, laid out.
#[derive(Clone, Copy)]
struct Right<'a> {
    /// Its panels, or the whole ones alone.
    panels: &'a [[f32; COLUMNS]],
    /// The panel that is not whole, where it is not among them.
    last: &'a [[f32; COLUMNS]],
}

impl<'a> Right<'a> {
    /// A panel, if there are as many.
    #[inline(always)]
    fn panel(self, i: usize, terms: usize) -> Option<&'a [[f32; COLUMNS]]> {
        let at = i * terms;
        if at == self.panels.len() { self.last.get(..terms) } else { self.panels.get(at..at + terms) }
    }
}

/// Weights that are laid out for products; copies share them.
#[derive(Clone)]
pub(crate) struct Panels {
    inputs: usize,
    outputs: usize,
    laid_out: Arc<(Vec<f32>, Vec<[f32; COLUMNS]>)>,
}

impl Panels {
    /// Lays weights out in the memory that they have, as large ones should not be in memory twice. They are `[inputs, outputs]`,
    /// or `[outputs, inputs]` where they are transposed.
    pub(crate) fn new(mut weights: Vec<f32>, transposed: bool, [inputs, outputs]: [usize; 2]) -> Panels {
        let (whole, mut last) = (outputs / COLUMNS, Vec::new());
        let (wide, panel) = (whole * COLUMNS, inputs * COLUMNS);
        let rest = &weights[if transposed { wide * inputs } else { wide.min(weights.len()) }..];
        let (rows, columns) = if transposed { (1, inputs) } else { (outputs, 1) };
        panels(Matrix { data: rest, rows, columns }, inputs, outputs - wide, &mut last);
        if transposed {
            weights.truncate(wide * inputs);
            let turn = |copy: &mut Vec<f32>, panel: &mut [f32]| {
                copy.clear();
                copy.extend_from_slice(panel);
                turned(copy, inputs, COLUMNS, panel.as_chunks_mut().0);
            };
            weights.par_chunks_exact_mut(panel.max(1)).for_each_init(Vec::new, turn);
        } else {
            if wide < outputs {
                (1..inputs).for_each(|term| weights.copy_within(term * outputs..term * outputs + wide, term * wide));
            }
            weights.truncate(wide * inputs);
            transpose(weights.as_chunks_mut::<COLUMNS>().0, inputs, whole);
        }
        Panels { inputs, outputs, laid_out: Arc::new((weights, last)) }
    }

    fn right(&self) -> Right<'_> {
        let (whole, last) = &*self.laid_out;
        Right { panels: whole.as_chunks().0, last }
    }
}

/// y = activation(x · weights + bias + added), with the weights laid out for it.
pub(crate) struct Linear {
    weights: Panels,
    bias: Option<Vec<f32>>,
}

impl Linear {
    /// `bias` has one number for each output.
    pub(crate) fn new(weights: Panels, bias: Option<Vec<f32>>) -> Linear {
        Linear { weights, bias }
    }

    /// The numbers of a row, and those of a result's row.
    pub(crate) fn size(&self) -> [usize; 2] {
        [self.weights.inputs, self.weights.outputs]
    }

    /// Multiplies rows of `inputs` numbers; `added` has the shape of the result.
    pub(crate) fn run(&self, x: &[f32], added: Option<&[f32]>, activation: Activation, y: &mut [f32]) {
        let ([inputs, outputs], right) = (self.size(), self.weights.right());
        if inputs == 0 || y.is_empty() {
            return of_no_terms(self.bias.as_deref(), 1, added, activation, y);
        }
        let left = Matrix { data: x, rows: inputs, columns: 1 };
        let bias = self.bias.as_deref();
        multiply(Product { left, terms: inputs, right, bias, added, activation }, outputs, y);
    }
}

/// y = left · right, for two matrices of `[rows, terms]` and `[terms, width]`.
pub(crate) fn product(left: Matrix<'_>, right: Matrix<'_>, [terms, width]: [usize; 2], y: &mut [f32]) {
    if terms == 0 || y.is_empty() {
        return y.fill(0.0);
    }
    let mut laid_out = Vec::new();
    panels(right, terms, width, &mut laid_out);
    let (right, activation) = (Right { panels: &laid_out, last: &[] }, Activation::None);
    multiply(Product { left, terms, right, bias: None, added: None, activation }, width, y);
}

/// The factors of a product, and what becomes of its sums.
#[derive(Clone, Copy)]
struct Product<'a> {
    left: Matrix<'a>,
    terms: usize,
    right: Right<'a>,
    bias: Option<&'a [f32]>,
    added: Option<&'a [f32]>,
    activation: Activation,
}

/// Computes a product that is `width` wide, on all threads.
fn multiply(product: Product<'_>, width: usize, y: &mut [f32]) {
    let (rows, threads, left) = (y.len() / width, share::threads(y.len() * product.terms), product.left);
    let block = (BLOCK / product.terms).clamp(ROWS, 1 << 10).next_multiple_of(ROWS);
    let mut shape = [block, width];
    if threads > 1 {
        shape[0] = rows.div_ceil(threads).next_multiple_of(ROWS).min(block);
        let across = threads.div_ceil(rows.div_ceil(shape[0]));
        shape[1] = width.div_ceil(COLUMNS).div_ceil(across) * COLUMNS;
    }
    let mut pieces = share::pieces(y.chunks_exact_mut(width), width, shape);
    let work = |piece: &mut Piece<'_>| match &mut piece.y[..] {
        [y] if left.columns == 1 => {
            let (row, from) = (&left.data[piece.rows.start * left.rows..][..product.terms], piece.columns.start);
            let added = product.added.map(|added| &added[piece.rows.start * width + from..]);
            vectorized(Row { product: Product { added, ..product }, row, from, y });
        }
        _ => vectorized(Work { product, width, piece }),
    };
    if threads == 1 || pieces.len() == 1 {
        pieces.iter_mut().for_each(work);
    } else {
        pieces.par_iter_mut().for_each(work);
    }
}

/// One row of a product. Weights are all that it reads, once: some panels are read side by side, so that the memory has more
/// than one stretch to fetch ahead.
struct Row<'a> {
    product: Product<'a>,
    row: &'a [f32],
    /// The first column, of a whole panel.
    from: usize,
    y: &'a mut [f32],
}

impl WithSimd for Row<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Row { product: Product { terms, right, bias, added, activation, .. }, row, from, y } = self;
        let bounds = activation.bounds();
        let (low, high) = bounds.unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
        let mut at = 0;
        while at < y.len() {
            let mut sums = [[0.0; COLUMNS]; SIDE_BY_SIDE];
            // One that is not there is another one again.
            let panel = |i: usize| right.panel((from + at) / COLUMNS + i, terms);
            let first = panel(0).unwrap_or_default();
            let side: [_; SIDE_BY_SIDE] = std::array::from_fn(|i| panel(i).unwrap_or(first));
            match S::F32_LANES {
                16 => several::<S, 3, SIDE_BY_SIDE>(simd, row, &side, &mut sums),
                // As many as there are registers for.
                8 if S::REGISTER_COUNT < 32 => {
                    for (side, sums) in side.iter().zip(&mut sums) {
                        several::<S, 6, 1>(simd, row, &[side], std::array::from_mut(sums));
                    }
                }
                8 => several::<S, 6, SIDE_BY_SIDE>(simd, row, &side, &mut sums),
                _ => {
                    for (side, sums) in side.iter().zip(&mut sums) {
                        for (&factor, right) in row.iter().zip(*side) {
                            for (sum, right) in sums.iter_mut().zip(right) {
                                *sum += factor * right;
                            }
                        }
                    }
                }
            }
            let count = (y.len() - at).min(SIDE_BY_SIDE * COLUMNS);
            let y = &mut y[at..at + count];
            y.copy_from_slice(&sums.as_flattened()[..count]);
            if let Some(bias) = bias {
                for (y, bias) in y.iter_mut().zip(&bias[from + at..]) {
                    *y += bias;
                }
            }
            if let Some(added) = added {
                for (y, added) in y.iter_mut().zip(&added[at..]) {
                    *y += added;
                }
            }
            for y in &mut *y {
                *y = if *y < low { low } else { *y };
                *y = if high < *y { high } else { *y };
            }
            if bounds.is_none() {
                activation.apply(y);
            }
            at += count;
        }
    }
}

/// One row times `P` panels of `V` vectors each.
#[inline(always)]
fn several<S: Simd, const V: usize, const P: usize>(
    simd: S,
    row: &[f32],
    panels: &[&[[f32; COLUMNS]]; P],
    to: &mut [[f32; COLUMNS]; P],
) {
    let panels = panels.map(|panel| &panel[..row.len()]);
    let mut sums = [[simd.splat_f32s(0.0); V]; P];
    for (k, &factor) in row.iter().enumerate() {
        let factor = simd.splat_f32s(factor);
        for p in 0..P {
            let (vectors, _) = S::as_simd_f32s(&panels[p][k]);
            let vectors: &[S::f32s; V] = vectors.first_chunk().expect("a panel has as many");
            for v in 0..V {
                sums[p][v] = simd.mul_add_e_f32s(factor, vectors[v], sums[p][v]);
            }
        }
    }
    for (to, sums) in to.iter_mut().zip(sums) {
        S::as_mut_simd_f32s(to).0.copy_from_slice(&sums);
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
        let Work { product: Product { left, terms, right, bias, added, activation }, width, piece } = self;
        let (first, from) = (piece.rows.start, piece.columns.start);
        let mut laid_out = Vec::new();
        strips(left, first, piece.rows.len(), terms, &mut laid_out);
        let offsets: Vec<usize> = (0..terms).map(|term| term * COLUMNS).collect();
        for column in piece.columns.clone().step_by(COLUMNS) {
            simd.vectorize(Block {
                left: &laid_out,
                right: right.panel(column / COLUMNS, terms).unwrap_or_default().as_flattened(),
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

    fn naive(left: Matrix<'_>, right: Matrix<'_>, [rows, terms, width]: [usize; 3]) -> Vec<f32> {
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
            let lefts = [Matrix { data: &a, rows: terms, columns: 1 }, Matrix { data: &a, rows: 1, columns: rows }];
            let rights = [Matrix { data: &b, rows: width, columns: 1 }, Matrix { data: &b, rows: 1, columns: terms }];
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
    fn a_factor_that_repeats_one_number_is_read_where_it_is() {
        let (x, one) = (numbers(40, 1), [3.0]);
        let (row, number) = (Matrix { data: &x, rows: 20, columns: 1 }, Matrix { data: &one, rows: 0, columns: 0 });
        for (left, right) in [(row, number), (number, row)] {
            let (rows, terms, width) = if left.rows == 0 { (9, 2, 20) } else { (2, 20, 50) };
            let mut y = vec![f32::NAN; rows * width];
            product(left, right, [terms, width], &mut y);
            assert_close(&y, &naive(left, right, [rows, terms, width]));
        }
    }

    #[test]
    fn weights_are_laid_out_in_their_memory_as_a_computed_factor_is() {
        for (inputs, outputs) in [(1, 1), (3, 48), (5, 96), (7, 100), (64, 47), (33, 145), (0, 50), (4, 0)] {
            let w = numbers(inputs * outputs, 2);
            let turned: Vec<f32> = (0..w.len()).map(|i| w[i % inputs * outputs + i / inputs]).collect();
            let mut expected = Vec::new();
            panels(Matrix { data: &w, rows: outputs, columns: 1 }, inputs, outputs, &mut expected);
            for (weights, transposed) in [(w, false), (turned, true)] {
                let laid_out = Panels::new(weights, transposed, [inputs, outputs]);
                let Right { panels, last } = laid_out.right();
                assert_eq!([panels, last].concat(), expected, "{inputs} {outputs} {transposed}");
            }
        }
    }

    #[test]
    fn bias_and_addend_come_before_the_activation() {
        let (rows, inputs, outputs) = (1100, 21, 60); // more than a block
        let (x, w) = (numbers(rows * inputs, 1), numbers(inputs * outputs, 2));
        let turned: Vec<f32> = (0..w.len()).map(|i| w[i % inputs * outputs + i / inputs]).collect();
        let (bias, added) = (numbers(outputs, 3), numbers(rows * outputs, 4));
        let (left, right) =
            (Matrix { data: &x, rows: inputs, columns: 1 }, Matrix { data: &w, rows: outputs, columns: 1 });
        let mut expected = naive(left, right, [rows, inputs, outputs]);
        for (i, y) in expected.iter_mut().enumerate() {
            *y = (*y + bias[i % outputs] + added[i]).max(0.0);
        }
        let linears = [(w.clone(), false), (turned, true)].map(|(weights, transposed)| {
            Linear::new(Panels::new(weights, transposed, [inputs, outputs]), Some(bias.clone()))
        });
        for (threads, linear) in [(1, &linears[0]), (2, &linears[0]), (2, &linears[1])] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut y = vec![f32::NAN; rows * outputs];
            pool.install(|| linear.run(&x, Some(&added), Activation::Relu, &mut y));
            assert_close(&y, &expected);
        }
    }
}
