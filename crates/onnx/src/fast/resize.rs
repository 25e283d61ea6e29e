//! Images made larger or smaller.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::vectorized;

/// Pixels that a thread makes at a time.
const PIECE: usize = 1 << 15;

/// For each new line and each new column, which of the old ones it is.
#[derive(Clone, Copy)]
pub(crate) struct Picks<'a> {
    pub(crate) lines: &'a [usize],
    pub(crate) columns: &'a [usize],
}

/// Picks the lines and columns of each image of `x`, `[images][height][width]`.
pub(crate) fn pick(x: &[f32], [height, width]: [usize; 2], picks: Picks<'_>, y: &mut [f32]) {
    let (from, to) = (height * width, picks.lines.len() * picks.columns.len());
    if from == 0 || to == 0 {
        return;
    }
    let some = (PIECE / to).max(1);
    let work = |(x, y): (&[f32], &mut [f32])| vectorized(Work { picks, width, from, x, y });
    if rayon::current_num_threads() == 1 || y.len() <= some * to {
        work((x, y));
    } else {
        x.par_chunks(some * from).zip(y.par_chunks_mut(some * to)).for_each(work);
    }
}

struct Work<'a> {
    picks: Picks<'a>,
    width: usize,
    from: usize,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl WithSimd for Work<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Work { picks: Picks { lines, columns }, width, from, x, y } = self;
        let wide = columns.len();
        let repeated = |times: usize| columns.iter().enumerate().all(|(new, old)| *old == new / times);
        let times = (1..=4).find(|&times| repeated(times));
        for (x, y) in x.chunks_exact(from).zip(y.chunks_exact_mut(lines.len() * wide)) {
            for (new, line) in lines.iter().enumerate() {
                let (before, rest) = y.split_at_mut(new * wide);
                let to = &mut rest[..wide];
                if new > 0 && lines[new - 1] == *line {
                    to.copy_from_slice(&before[(new - 1) * wide..]);
                    continue;
                }
                let line = &x[line * width..][..width];
                match times {
                    Some(1) => to.copy_from_slice(&line[..wide]),
                    Some(2) => repeat::<2>(line, to),
                    Some(3) => repeat::<3>(line, to),
                    Some(4) => repeat::<4>(line, to),
                    _ => to.iter_mut().zip(columns).for_each(|(to, column)| *to = line[*column]),
                }
            }
        }
    }
}

/// Each number `N` times, the last one fewer times where there is less room.
#[inline(always)]
fn repeat<const N: usize>(from: &[f32], to: &mut [f32]) {
    let (whole, rest) = to.as_chunks_mut::<N>();
    whole.iter_mut().zip(from).for_each(|(to, x)| *to = [*x; N]);
    if !rest.is_empty() {
        rest.fill(from[whole.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::numbers;
    use super::*;

    #[test]
    fn each_pixel_is_the_one_that_was_picked() {
        let (height, width) = (5, 19);
        let x = numbers(3 * height * width, 1);
        let lines = [0, 0, 1, 1, 1, 4, 3, 3];
        for times in 1..6 {
            let shuffled: Vec<usize> = (0..40).map(|i| i * 7 % width).collect();
            let repeated: Vec<usize> = (0..width * times - times / 2).map(|i| i / times).collect();
            for columns in [shuffled, repeated] {
                let mut y = vec![f32::NAN; 3 * lines.len() * columns.len()];
                pick(&x, [height, width], Picks { lines: &lines, columns: &columns }, &mut y);
                for (i, y) in y.iter().enumerate() {
                    let (line, column) = (i / columns.len(), columns[i % columns.len()]);
                    let (image, line) = (line / lines.len(), lines[line % lines.len()]);
                    assert_eq!(*y, x[(image * height + line) * width + column]);
                }
            }
        }
    }
}
