//! When the bytes of a connection came.

use tokio::time::Instant;

/// Times that are told apart. A client that sends byte by byte would else have the server keep many times what it sends.
const MOST: usize = 32;

/// When bytes came that were read one after another: where each read ends, counted from the first byte, and its time.
#[derive(Debug, Default)]
pub(super) struct Arrivals(Vec<(usize, Instant)>);

impl Arrivals {
    /// Forgets all, and knows `length` bytes that came at `at`.
    pub(super) fn set(&mut self, length: usize, at: Instant) {
        self.0.clear();
        self.0.push((length, at));
    }

    /// `length` more bytes came at `at`; or with those before them, where there are too many times already.
    pub(super) fn push(&mut self, length: usize, at: Instant) {
        if self.0.len() < MOST && length > 0 {
            self.0.push((self.end() + length, at));
        } else if let Some((end, _)) = self.0.last_mut() {
            *end += length;
        }
    }

    /// When all of the first `length` bytes had come.
    pub(super) fn of(&self, length: usize) -> Option<Instant> {
        let read = self.0.iter().find(|&&(end, _)| end >= length).or(self.0.last());
        read.map(|&(_, at)| at)
    }

    /// Forgets the first `length` bytes.
    pub(super) fn drop_first(&mut self, length: usize) {
        if length > 0 {
            self.0.retain(|&(end, _)| end > length);
            self.0.iter_mut().for_each(|(end, _)| *end -= length);
        }
    }

    /// Takes the times of the first `length` bytes off.
    pub(super) fn split_to(&mut self, length: usize) -> Arrivals {
        let first = self.0.iter().map(|&(end, at)| (end.min(length), at));
        let mut known = 0;
        let first = first.take_while(|&(end, _)| end > std::mem::replace(&mut known, end)).collect();
        self.drop_first(length);
        Arrivals(first)
    }

    /// Puts the times of `others`, which came earlier, in front.
    pub(super) fn put_back(&mut self, others: Arrivals) {
        let end = others.end();
        let later = std::mem::replace(&mut self.0, others.0);
        self.0.extend(later.into_iter().map(|(more, at)| (end + more, at)));
    }

    fn end(&self) -> usize {
        self.0.last().map_or(0, |&(end, _)| end)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn who_sends_byte_by_byte_has_few_times_kept_and_none_later_than_it_came() {
        let begin = Instant::now();
        let at = |i: usize| begin + Duration::from_millis(i as u64);
        let mut arrivals = Arrivals::default();
        (0..8192).for_each(|i| arrivals.push(1, at(i)));
        assert!(arrivals.0.len() <= MOST);
        assert!((1..=8192).all(|length| arrivals.of(length).is_some_and(|told| told <= at(length - 1))));
    }

    proptest! {
        /// However bytes are taken off and put back, each keeps its time.
        #[test]
        fn each_byte_keeps_its_time(
            reads in proptest::collection::vec(0usize..9, 0..9),
            cuts in proptest::collection::vec((0usize..40, 0usize..40), 0..9),
        ) {
            let begin = Instant::now();
            let mut times: Vec<Instant> = Vec::new();
            let mut arrivals = Arrivals::default();
            for (i, &length) in reads.iter().enumerate() {
                let at = begin + Duration::from_secs(i as u64);
                arrivals.push(length, at);
                times.extend(std::iter::repeat_n(at, length));
            }
            for (taken, gone) in cuts {
                let taken = taken.min(times.len());
                let gone = gone.min(taken);
                let mut first = arrivals.split_to(taken);
                for length in 1..=taken {
                    prop_assert_eq!(first.of(length), Some(times[length - 1]));
                }
                first.drop_first(gone);
                arrivals.put_back(first);
                times.drain(..gone);
                for length in 1..=times.len() {
                    prop_assert_eq!(arrivals.of(length), Some(times[length - 1]));
                }
            }
        }
    }
}
