//! How many times as wide as the scatter of batch times the margin has to be, steered by the share of late answers.
//!
//! Of a batch that takes longer than its margin some answers are late: one where the queue is spread out, all where a clump
//! came at once. So no quantile of the batch times promises a share of late answers; that share itself is fed back.

/// Share of late answers that is aimed at: well under one in a hundred, as a server begins by knowing nothing. Higher: more
/// answers in all, more of them late.
const AIM: f64 = 0.003;
/// What a batch adds that is late as a whole; as much is forgotten in 1 / [`AIM`] batches without a late answer. More: quicker
/// to be careful, and a margin that follows chance.
const GAIN: f64 = 0.5;
/// Most that the scatter is multiplied by: covers 999 in 1000 where times scatter log-normally by 10 %. What lies further out
/// is a straggler, and a margin for those would refuse everybody.
pub(super) const MOST: f64 = 2.0;
/// Share of a new batch in the mean number of answers.
const MEAN_GAIN: f64 = 0.1;

/// What became of the requests of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answers {
    /// All of them.
    pub all: usize,
    /// Those that came after their deadlines.
    pub late: usize,
}

/// An integral of late answers: rises with each that is late, and falls as long as none is.
#[derive(Debug, Clone)]
pub(super) struct Caution {
    factor: f64,
    /// Answers of a batch, on average.
    mean: f64,
}

impl Caution {
    pub(super) fn new() -> Caution {
        Caution { factor: 1.0, mean: 0.0 }
    }

    /// What to multiply the scatter by: from 1 to [`MOST`].
    pub(super) fn factor(&self) -> f64 {
        self.factor
    }

    /// Takes in the answers of a batch.
    pub(super) fn observe(&mut self, answers: Answers) {
        if answers.all == 0 {
            return;
        }
        let (all, late) = (answers.all as f64, answers.late.min(answers.all) as f64);
        self.mean += if self.mean == 0.0 { all } else { MEAN_GAIN * (all - self.mean) };
        // By the answer, not by the batch: a small batch counts for as many as it answers. At the bounds nothing adds up that
        // would have to be worked off later.
        let next = self.factor + GAIN * (late - AIM * all) / self.mean;
        self.factor = next.clamp(1.0, MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The factor after so many batches of ten, of each of which so many were late.
    fn after(batches: usize, late: usize, mut caution: Caution) -> Caution {
        (0..batches).for_each(|_| caution.observe(Answers { all: 10, late }));
        caution
    }

    #[test]
    fn it_rises_with_each_late_answer_up_to_a_bound() {
        let factors: Vec<f64> = (0..=10).map(|late| after(1, late, Caution::new()).factor()).collect();
        assert!(factors.is_sorted_by(|a, b| a < b) && factors[0] == 1.0 && factors[10] > 1.4, "{factors:?}");
        assert_eq!(after(1000, 10, Caution::new()).factor(), MOST);
        let absurd = Answers { all: 1, late: usize::MAX };
        let mut caution = Caution::new();
        (0..9).for_each(|_| caution.observe(absurd));
        assert_eq!(caution.factor(), MOST);
    }

    #[test]
    fn it_returns_when_nothing_is_late_however_long_all_was() {
        let careful = after(100_000, 10, Caution::new());
        assert!(after(100, 0, careful.clone()).factor() > 1.5, "slowly");
        assert_eq!(after(667, 0, careful).factor(), 1.0, "three two-thousandths for each batch");
    }

    #[test]
    fn the_share_of_late_answers_that_is_aimed_at_keeps_it_where_it_is() {
        let mut caution = after(1, 10, Caution::new());
        let before = caution.factor();
        // Three late of a thousand, in one batch of a hundred.
        (0..100).for_each(|_| {
            caution.observe(Answers { all: 10, late: 3 });
            (0..99).for_each(|_| caution.observe(Answers { all: 10, late: 0 }));
        });
        assert!((caution.factor() - before).abs() < 0.16, "{before}, then {}", caution.factor());
    }

    #[test]
    fn a_batch_without_requests_says_nothing() {
        let caution = after(1, 10, Caution::new());
        let before = caution.factor();
        let mut after = caution;
        after.observe(Answers::default());
        assert_eq!(after.factor(), before);
    }
}
