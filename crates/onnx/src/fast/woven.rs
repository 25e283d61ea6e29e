//! Small images, woven into one: pixel after pixel, and in each of them image after image.
//!
//! To convolve images with lines of a few pixels, these would be gathered in pieces that fill no vector. Woven, a line is as many times
//! as long, the pixels that a weight meets lie side by side, and a convolution with a step of one pixel is one with a step of as many as
//! there are images.

use pulp::{Simd, WithSimd};

use super::planes::Window;

/// Images that are woven at most: whole vectors of the widest kind.
pub(super) const MOST: usize = 16;
/// Fewer are not worth it.
pub(super) const FEWEST: usize = 4;
/// Columns that are turned together.
const TOGETHER: usize = 8;

/// The window over `images` that are woven.
pub(super) fn window(of: Window, images: usize) -> Window {
    let Window { kernel, stride, dilation, pads: [lines, (before, behind)] } = of;
    debug_assert_eq!(stride, [1, 1], "windows move by whole pixels");
    Window {
        kernel,
        stride,
        dilation: [dilation[0], dilation[1] * images],
        pads: [lines, (before * images, behind * images)],
    }
}

/// Turns a matrix of so many rows: what was a row becomes a column. Weaves images, and takes woven ones apart.
pub(super) struct Turned<'a> {
    pub(super) rows: usize,
    pub(super) from: &'a [f32],
    pub(super) to: &'a mut [f32],
}

impl WithSimd for Turned<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Turned { rows, from, to } = self;
        let columns = from.len() / rows;
        let mut first = 0;
        while first + TOGETHER <= rows {
            let lines: [&[f32]; TOGETHER] = std::array::from_fn(|i| &from[(first + i) * columns..][..columns]);
            for (column, to) in to.chunks_exact_mut(rows).enumerate() {
                to[first..first + TOGETHER].copy_from_slice(&lines.map(|line| line[column]));
            }
            first += TOGETHER;
        }
        for row in first..rows {
            let line = &from[row * columns..][..columns];
            for (to, from) in to.chunks_exact_mut(rows).zip(line) {
                to[row] = *from;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{numbers, vectorized};
    use super::*;

    #[test]
    fn what_is_woven_and_taken_apart_is_as_it_was() {
        for (images, pixels) in [(1, 5), (4, 9), (8, 8), (11, 30), (16, 3)] {
            let x = numbers(images * pixels, 1);
            let (mut woven, mut apart) = (vec![f32::NAN; x.len()], vec![f32::NAN; x.len()]);
            vectorized(Turned { rows: images, from: &x, to: &mut woven });
            for (i, number) in x.iter().enumerate() {
                assert_eq!(woven[i % pixels * images + i / pixels], *number, "{images} {pixels} {i}");
            }
            vectorized(Turned { rows: pixels, from: &woven, to: &mut apart });
            assert_eq!(apart, x, "{images} {pixels}");
        }
    }
}
