//! Whether a server was still there when the run ended.

use std::time::Duration;

/// Fewer requests without an answer are no sign: one connection may break anywhere.
const SEVERAL: usize = 5;
/// Nothing but silence for less than this may be a moment in which the server is busy.
const LONG: Duration = Duration::from_secs(1);

/// The last requests that nobody answered, and the last sign of life. Times are since the begin of the run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Silence {
    /// When the last answer came, of whatever status, and however late.
    last_answer: Option<Duration>,
    /// The last ones, the latest first.
    unanswered: Vec<Unanswered>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Unanswered {
    asked: Duration,
    ended: Duration,
    broke: bool,
}

/// How a server was gone at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    /// Connections broke, and nothing else happened.
    Broke,
    /// It kept silent for so long.
    Silent(Duration),
}

impl Silence {
    pub(super) fn answered(&mut self, at: Duration) {
        self.last_answer = self.last_answer.max(Some(at));
    }

    /// A request that was asked then had no answer until it `ended`: its connection broke, or its time was over.
    pub(super) fn unanswered(&mut self, asked: Duration, ended: Duration, broke: bool) {
        self.keep(Unanswered { asked, ended, broke });
    }

    fn keep(&mut self, one: Unanswered) {
        let place = self.unanswered.partition_point(|kept| *kept > one);
        self.unanswered.insert(place, one);
        self.unanswered.truncate(SEVERAL);
    }

    pub(super) fn add(&mut self, other: &Silence) {
        self.last_answer = self.last_answer.max(other.last_answer);
        other.unanswered.iter().for_each(|one| self.keep(*one));
    }

    /// Whether the server was gone: no answer at all came after the first of several requests that were the last ones.
    pub(super) fn gone(&self) -> Option<Gone> {
        let first = self.unanswered.last().filter(|_| self.unanswered.len() == SEVERAL)?;
        if self.last_answer.is_some_and(|last| last >= first.asked) {
            return None;
        }
        if self.unanswered.iter().all(|one| one.broke) {
            return Some(Gone::Broke);
        }
        let last = self.unanswered.iter().map(|one| one.ended).max()?;
        let silence = last.saturating_sub(self.last_answer.unwrap_or_default());
        (silence >= LONG).then_some(Gone::Silent(silence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// An answer at `last_answer`, and requests that were asked and ended then, and whether they broke.
    fn silence(last_answer: u64, unanswered: &[(u64, u64, bool)]) -> Silence {
        let mut silence = Silence::default();
        silence.answered(ms(last_answer));
        for &(asked, ended, broke) in unanswered {
            silence.unanswered(ms(asked), ms(ended), broke);
        }
        silence
    }

    fn each(from: u64, takes: u64, broke: bool) -> Vec<(u64, u64, bool)> {
        (0..8).map(|i| (from + 10 * i, from + 10 * i + takes, broke)).collect()
    }

    #[test]
    fn a_server_is_gone_where_the_last_requests_all_broke_and_nothing_was_answered() {
        assert_eq!(silence(100, &each(200, 1, true)).gone(), Some(Gone::Broke));
        // One or a few that broke are no sign, nor are any before an answer.
        assert_eq!(silence(100, &each(200, 1, true)[..4]).gone(), None);
        assert_eq!(silence(500, &each(200, 1, true)).gone(), None);
        assert_eq!(silence(240, &each(200, 1, true)).gone(), None, "it answered among them");
        assert_eq!(Silence::default().gone(), None);
    }

    #[test]
    fn silence_is_told_where_it_is_long() {
        assert_eq!(silence(100, &each(200, 5000, false)).gone(), Some(Gone::Silent(ms(5170))));
        // They were late by their own short time.
        assert_eq!(silence(100, &each(200, 5, false)).gone(), None);
        let mut mixed = each(200, 5000, false);
        mixed[7].2 = true;
        assert_eq!(silence(100, &mixed).gone(), Some(Gone::Silent(ms(5170))));
    }

    #[test]
    fn what_several_threads_saw_is_one_end() {
        let mut one = silence(100, &each(200, 1, true)[..3]);
        one.add(&silence(150, &each(205, 1, true)[..2]));
        assert_eq!(one.gone(), Some(Gone::Broke));
        one.add(&silence(300, &[]));
        assert_eq!(one.gone(), None, "another thread was answered");
    }
}
