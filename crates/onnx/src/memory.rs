//! Buffers that are used again: results are written to the memory of tensors that nobody needs any more.
//!
//! Fresh memory of some megabytes comes from the system page by page, each of them cleared first, which takes as long as a
//! small convolution. So each thread that runs a model keeps the buffers of the values that its kernels have used up.

use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

/// Fewest floats worth keeping: the allocator itself is quick with less.
const SMALLEST: usize = 1 << 12;
/// Most buffers that are kept: a deep network has some sizes, and few of them at a time.
const MOST: usize = 8;
/// A kept buffer may be this many times as long as what is asked for. With more, a small result would sit on much memory.
const SLACK: usize = 4;

thread_local! {
    static FREE: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of `len` floats of any values: whoever takes it writes all of them. What is left unwritten could be another
/// caller's; unit tests see a NaN in its place.
pub(super) fn take(len: usize) -> Vec<f32> {
    let mut buffer = reused(len);
    if cfg!(test) {
        buffer.fill(f32::NAN);
    }
    buffer
}

fn reused(len: usize) -> Vec<f32> {
    if len < SMALLEST {
        return vec![0.0; len];
    }
    let kept = FREE.with_borrow_mut(|free| {
        let fits = |buffer: &Vec<f32>| buffer.capacity() >= len && buffer.capacity() / SLACK <= len;
        let fitting = free.iter().enumerate().filter(|(_, buffer)| fits(buffer));
        let (at, _) = fitting.min_by_key(|(_, buffer)| buffer.capacity())?;
        Some(free.swap_remove(at))
    });
    match kept {
        Some(mut buffer) => {
            // Clears no more than what the last user had not asked for.
            buffer.resize(len, 0.0);
            buffer
        }
        None => vec![0.0; len],
    }
}

/// Keeps a buffer that is no longer needed. Where there are enough, the shortest one goes.
pub(super) fn give(buffer: Vec<f32>) {
    if buffer.capacity() < SMALLEST {
        return;
    }
    FREE.with_borrow_mut(|free| {
        free.push(buffer);
        if free.len() > MOST {
            let shortest = free.iter().enumerate().min_by_key(|(_, buffer)| buffer.capacity()).map(|(at, _)| at);
            shortest.map(|at| free.swap_remove(at));
        }
    });
}

/// Buffers that a thread leaves to the next one that runs the same model: a model is warmed up by another thread than that
/// which then serves it.
#[derive(Default)]
pub(super) struct Left(Mutex<Vec<Vec<f32>>>);

impl Left {
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Leaves what the calling thread keeps.
    pub(super) fn leave(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = FREE.take();
    }

    /// Keeps for the calling thread what another one has left.
    pub(super) fn keep(&self) {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_iter().for_each(give);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_leaves_another_one_takes() {
        let left = Left::default();
        let buffer = vec![1.0; 10_000];
        let at = buffer.as_ptr() as usize;
        std::thread::scope(|threads| {
            let first = threads.spawn(|| {
                give(buffer);
                left.leave();
                let other = take(10_000);
                other.as_ptr() as usize
            });
            assert_ne!(first.join().expect("it ends"), at, "it has left it");
            let second = threads.spawn(|| {
                left.keep();
                let same = take(10_000);
                same.as_ptr() as usize
            });
            assert_eq!(second.join().expect("it ends"), at);
        });
        assert!(left.0.into_inner().expect("nobody panicked").is_empty());
    }

    #[test]
    fn a_buffer_that_was_given_is_taken_again_if_it_fits() {
        let buffer = vec![1.0; 10_000];
        let at = buffer.as_ptr();
        give(buffer);
        let short = take(2_000);
        assert_ne!(short.as_ptr(), at, "far too long");
        let long = take(10_001);
        assert_ne!(long.as_ptr(), at, "too short");
        let fitting = take(9_000);
        assert_eq!((fitting.as_ptr(), fitting.len()), (at, 9_000));
        give(fitting);
        let whole = take(10_000);
        assert_eq!((whole.as_ptr(), whole.len()), (at, 10_000), "its length counts for nothing");
    }

    #[test]
    fn only_so_many_buffers_are_kept() {
        (0..MOST + 3).for_each(|i| give(vec![0.0; SMALLEST + i]));
        FREE.with_borrow(|free| {
            assert_eq!(free.len(), MOST);
            assert!(free.iter().all(|buffer| buffer.capacity() >= SMALLEST + 3));
        });
    }
}
