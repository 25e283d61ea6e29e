//! The callers of several models, as one source.

use super::{Arrival, Source};
use uncork_core::estimator::Instant;

/// Requests of several sources in the order of their arrival; those of the i-th are for the i-th model.
#[derive(Debug, Clone)]
pub struct Several<S> {
    sources: Vec<S>,
}

impl<S: Source> Several<S> {
    /// One source for each model of the scenario, in its order.
    #[must_use]
    pub fn new(sources: Vec<S>) -> Several<S> {
        Several { sources }
    }

    /// The model whose request is the next, and when it comes.
    fn next(&self) -> Option<(Instant, usize)> {
        let next = |(model, source): (usize, &S)| source.peek().map(|at| (at, model));
        self.sources.iter().enumerate().filter_map(next).min()
    }
}

impl<S: Source> Source for Several<S> {
    fn peek(&self) -> Option<Instant> {
        self.next().map(|(at, _)| at)
    }

    fn pop(&mut self) -> Option<Arrival> {
        let (_, model) = self.next()?;
        self.sources[model].pop().map(|arrival| Arrival { model, ..arrival })
    }

    fn answered(&mut self, model: usize, at: Instant) {
        self.sources[model].answered(0, at);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ClosedLoop;

    #[test]
    fn requests_come_in_order_and_an_answer_reaches_the_callers_of_its_model() {
        let ms = Duration::from_millis;
        let end = Instant::EPOCH + ms(1000);
        let clients = |count| ClosedLoop::new(count, ms(10), 0.0, end, 1);
        let mut several = Several::new(vec![clients(2), clients(3)]);
        let first: Vec<Arrival> = std::iter::from_fn(|| several.pop()).collect();
        assert!(first.is_sorted_by_key(|arrival| arrival.at), "{first:?}");
        assert_eq!(first.iter().filter(|arrival| arrival.model == 1).count(), 3);
        several.answered(1, Instant::EPOCH + ms(5));
        let again = several.pop().expect("who was answered asks again");
        assert_eq!((again.model, again.at), (1, Instant::EPOCH + ms(15)));
        assert_eq!(several.peek(), None);
    }
}
