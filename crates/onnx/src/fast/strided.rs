//! Numbers that lie in another order than they are read: transposed tensors, copied in row-major order.

/// Rows and columns that are turned at a time: both sides then stay in the first-level cache.
const TILE: usize = 16;

/// Copies a tensor of these dimensions, whose first element is at `start` of `from` and whose neighbours along an axis are
/// `strides` apart, in row-major order.
pub(crate) fn copy(from: &[f32], start: usize, dims: &[usize], strides: &[usize], to: &mut [f32]) {
    if to.is_empty() {
        return;
    }
    let mut axes = merged(dims, strides);
    let Some((length, stride)) = axes.pop() else {
        to[0] = from[start];
        return;
    };
    if stride == 1 {
        let starts = Starts::new(start, &axes);
        return to.chunks_exact_mut(length).zip(starts).for_each(|(to, at)| to.copy_from_slice(&from[at..at + length]));
    }
    // The axis along which neighbours are neighbours in memory, and how far these are apart in the copy.
    let near = if stride == 0 { None } else { axes.iter().rposition(|&(_, stride)| stride == 1) };
    let Some(near) = near else {
        for (to, at) in to.chunks_exact_mut(length).zip(Starts::new(start, &axes)) {
            match stride {
                0 => to.fill(from[at]),
                _ => to.iter_mut().zip(from[at..].iter().step_by(stride)).for_each(|(to, from)| *to = *from),
            }
        }
        return;
    };
    let pitch = axes[near + 1..].iter().map(|&(length, _)| length).product::<usize>() * length;
    let (high, _) = axes.remove(near);
    let (outer, inner) = axes.split_at(near);
    // Planes of one index for each other axis; those behind the near axis lie within its pitch.
    let plane = high * pitch;
    for (i, first) in Starts::new(start, outer).enumerate() {
        let to = &mut to[i * plane..(i + 1) * plane];
        for (j, first) in Starts::new(first, inner).enumerate() {
            turn(&from[first..], stride, &mut to[j * length..], pitch, [high, length]);
        }
    }
}

/// `to[row · pitch + column] = from[row + column · stride]`
fn turn(from: &[f32], stride: usize, to: &mut [f32], pitch: usize, [rows, columns]: [usize; 2]) {
    for row in (0..rows).step_by(TILE) {
        let high = (rows - row).min(TILE);
        for column in (0..columns).step_by(TILE) {
            let wide = (columns - column).min(TILE);
            for i in row..row + high {
                let to = &mut to[i * pitch + column..][..wide];
                let from = from[i + column * stride..].iter().step_by(stride);
                to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            }
        }
    }
}

/// Length and stride of each axis, without those of length one, neighbours joined where one continues the other.
fn merged(dims: &[usize], strides: &[usize]) -> Vec<(usize, usize)> {
    let mut axes: Vec<(usize, usize)> = Vec::with_capacity(dims.len());
    for (&length, &stride) in dims.iter().zip(strides).filter(|&(&length, _)| length != 1) {
        match axes.last_mut() {
            Some((before, far)) if *far == stride * length => (*before, *far) = (*before * length, stride),
            _ => axes.push((length, stride)),
        }
    }
    axes
}

/// Where the elements are that have each index of some axes, the last one the quickest.
struct Starts<'a> {
    axes: &'a [(usize, usize)],
    index: Vec<usize>,
    next: Option<usize>,
}

impl<'a> Starts<'a> {
    fn new(start: usize, axes: &'a [(usize, usize)]) -> Starts<'a> {
        Starts { axes, index: vec![0; axes.len()], next: Some(start) }
    }
}

impl Iterator for Starts<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let now = self.next?;
        let mut at = now;
        for (index, &(length, stride)) in self.index.iter_mut().zip(self.axes).rev() {
            *index += 1;
            at += stride;
            if *index < length {
                self.next = Some(at);
                return Some(now);
            }
            *index = 0;
            at -= stride * length;
        }
        self.next = None;
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::super::numbers;
    use super::*;

    #[test]
    fn every_order_of_axes_is_copied_as_it_is_read() {
        for dims in [
            vec![1],
            vec![5],
            vec![3, 4],
            vec![20, 37],
            vec![2, 3, 5],
            vec![17, 1, 18],
            vec![3, 2, 19, 4],
            vec![2, 33, 1, 5],
        ] {
            let count: usize = dims.iter().product();
            let from = numbers(count + 3, 1);
            let mut strides = vec![1; dims.len()];
            for axis in (1..dims.len()).rev() {
                strides[axis - 1] = strides[axis] * dims[axis];
            }
            for order in orders(dims.len()) {
                let pick = |of: &[usize]| order.iter().map(|&axis| of[axis]).collect::<Vec<usize>>();
                let (dims, strides) = (pick(&dims), pick(&strides));
                // As it is, and repeated along each axis.
                for repeated in 0..=dims.len() {
                    let mut strides = strides.clone();
                    strides.iter_mut().skip(repeated).take(1).for_each(|stride| *stride = 0);
                    let mut to = vec![f32::NAN; count];
                    copy(&from, 3, &dims, &strides, &mut to);
                    for (i, found) in to.iter().enumerate() {
                        let (mut rest, mut at) = (i, 3);
                        for (&length, &stride) in dims.iter().zip(&strides).rev() {
                            at += rest % length * stride;
                            rest /= length;
                        }
                        assert_eq!(*found, from[at], "{dims:?} {strides:?} {i}");
                    }
                }
            }
        }
    }

    fn orders(rank: usize) -> Vec<Vec<usize>> {
        if rank == 0 {
            return vec![Vec::new()];
        }
        let shorter = orders(rank - 1);
        let with = |order: &Vec<usize>| {
            (0..rank).map(|at| [&order[..at], &[rank - 1], &order[at..]].concat()).collect::<Vec<_>>()
        };
        shorter.iter().flat_map(with).collect()
    }
}
