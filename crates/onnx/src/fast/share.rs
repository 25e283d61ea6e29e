//! How the result of a product is shared by threads: in pieces of its rows and columns.

use std::ops::Range;

/// A rectangle of a result.
pub(super) struct Piece<'y, T = f32> {
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
    /// These columns of these rows.
    pub(super) y: Vec<&'y mut [T]>,
}

/// Splits a result, given row by row, into pieces of so many rows and columns.
pub(super) fn pieces<'y, T>(
    rows: impl ExactSizeIterator<Item = &'y mut [T]>,
    columns: usize,
    [high, wide]: [usize; 2],
) -> Vec<Piece<'y, T>> {
    let (count, across) = (rows.len(), columns.div_ceil(wide));
    let mut pieces: Vec<Piece<'y, T>> = Vec::with_capacity(count.div_ceil(high) * across);
    for (i, mut row) in rows.enumerate() {
        if i % high == 0 {
            let rows = i..(i + high).min(count);
            let part = |j: usize| Piece {
                rows: rows.clone(),
                columns: j * wide..((j + 1) * wide).min(columns),
                y: Vec::with_capacity(rows.len()),
            };
            pieces.extend((0..across).map(part));
        }
        for piece in &mut pieces[i / high * across..] {
            let (part, rest) = row.split_at_mut(piece.columns.len());
            piece.y.push(part);
            row = rest;
        }
    }
    pieces
}
