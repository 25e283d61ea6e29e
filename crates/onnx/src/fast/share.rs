//! How work is shared by threads: by how many, and a product's result in pieces of its rows and columns.

use std::ops::Range;

/// Multiplications for each thread that takes part: with fewer, waking it takes longer than it saves.
const EACH: usize = 1 << 16;

/// How many of the runner's threads so many multiplications are shared by.
pub(crate) fn threads(multiplications: usize) -> usize {
    rayon::current_num_threads().min((multiplications / EACH).max(1))
}

/// How so many images are shared by threads, each of which takes so many multiplications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    /// A thread takes so many images, and shares none.
    Whole(usize),
    /// So many threads take part in an image, or in all together.
    Split(usize),
}

impl Sharing {
    /// What takes the least time: whole images, or parts of each where threads would be left without any.
    pub(super) fn of(images: usize, multiplications: usize) -> Sharing {
        let (threads, of_one) = (threads(images * multiplications), threads(multiplications));
        let whole = images.div_ceil(threads);
        // Threads that share an image wait for each other after each.
        let waiting = images / 8;
        if threads == 1 || whole * of_one > images + waiting { Sharing::Split(threads) } else { Sharing::Whole(whole) }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_split_where_they_are_large_and_leave_threads_without_any() {
        let on = |threads: usize, images: usize, each: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| Sharing::of(images, each * EACH))
        };
        assert_eq!(on(2, 1, 100), Sharing::Split(2));
        assert_eq!(on(2, 8, 100), Sharing::Whole(4));
        assert_eq!(on(2, 7, 100), Sharing::Split(2), "one would have four and the other three");
        assert_eq!(on(2, 9, 100), Sharing::Whole(5), "to wait for each other nine times takes longer");
        assert_eq!(on(16, 8, 1), Sharing::Whole(1), "a thread more has no work of its own");
        assert_eq!(on(16, 8, 100), Sharing::Split(16));
        assert_eq!(on(1, 8, 100), Sharing::Split(1));
    }
}
