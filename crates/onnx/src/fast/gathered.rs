//! Pixels that a convolution of small integers multiplies: gathered in panels of columns, some terms in a row.

use super::integers::{COLUMNS, Pairs, ROWS, VECTORS, part};
use super::planes::{Run, STEP};
use super::quads;

/// How tiles are multiplied, with `T` terms in a row, which come from `N` places of the planes.
pub(super) trait Tiles<X, const T: usize, const N: usize>: Copy {
    /// So many rows of a tile, and at least so many columns.
    fn tile(self, strip: &[[i32; ROWS]], panel: &[[[i8; T]; COLUMNS]], size: [usize; 2], tile: &mut quads::Tile);
    /// Lines as columns.
    fn weave(lines: [&[X; STEP]; N]) -> [[i8; T]; STEP];
}

/// Four terms in a row.
#[derive(Clone, Copy)]
pub(super) struct Quads;

impl Tiles<i8, 4, 4> for Quads {
    #[inline(always)]
    fn tile(self, strip: &[[i32; ROWS]], panel: &[quads::Panel], size: [usize; 2], tile: &mut quads::Tile) {
        quads::tile::<true>(strip, panel, size, tile);
    }

    #[inline(always)]
    fn weave(lines: [&[i8; STEP]; 4]) -> [[i8; 4]; STEP] {
        weave(lines, |x| x)
    }
}

/// Four channels in a row.
#[derive(Clone, Copy)]
pub(super) struct Channels;

impl Tiles<[i8; 4], 4, 1> for Channels {
    #[inline(always)]
    fn tile(self, strip: &[[i32; ROWS]], panel: &[quads::Panel], size: [usize; 2], tile: &mut quads::Tile) {
        quads::tile::<true>(strip, panel, size, tile);
    }

    #[inline(always)]
    fn weave([line]: [&[[i8; 4]; STEP]; 1]) -> [[i8; 4]; STEP] {
        *line
    }
}

/// Four lines as columns, in words: the compiler makes more of bytes than there is to it.
#[inline(always)]
pub(super) fn weave<E: Copy>([a, b, c, d]: [&[E; STEP]; 4], byte: impl Fn(E) -> i8) -> [[i8; 4]; STEP] {
    let byte = |x: E| u32::from(byte(x) as u8);
    let mut woven = [0; STEP];
    for (i, word) in woven.iter_mut().enumerate() {
        *word = byte(a[i]) | byte(b[i]) << 8 | byte(c[i]) << 16 | byte(d[i]) << 24;
    }
    pulp::cast(woven)
}

impl<P: Pairs> Tiles<i8, 2, 2> for P {
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

/// Gathers the pixels of columns in panels, some terms in a row. What is written behind a run is overwritten later or never read;
/// there is room for it behind the planes and the panels.
#[inline(always)]
pub(super) fn gather<P: Tiles<X, T, N>, X, const T: usize, const N: usize>(
    planes: &[X],
    offsets: &[usize],
    runs: &[Run],
    room: &mut [[i8; T]],
) {
    let (mut rest, mut first, mut at) = (runs, 0, 0);
    while !rest.is_empty() {
        let count = rest.iter().take_while(|run| run.column < first + COLUMNS).count();
        let (runs, others) = rest.split_at(count);
        for offsets in offsets.chunks(N) {
            // The weight of a term that is not there is zero.
            let lines: [&[X]; N] = std::array::from_fn(|n| &planes[offsets[n.min(offsets.len() - 1)]..]);
            for run in runs {
                let steps = run.len.div_ceil(STEP);
                let to = &mut room[at + run.column - first..].as_chunks_mut::<STEP>().0[..steps];
                let lines = lines.map(|line| &line[run.at..].as_chunks::<STEP>().0[..steps]);
                for (step, to) in to.iter_mut().enumerate() {
                    *to = P::weave(lines.map(|line| &line[step]));
                }
            }
            at += COLUMNS;
        }
        (rest, first) = (others, first + COLUMNS);
    }
}
