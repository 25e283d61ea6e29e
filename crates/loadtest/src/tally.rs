//! What became of the requests: counts, and histograms of times.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::connection::is_own_fault;
use super::quantile::{rank, value_of_rank};
use super::silence::{Gone, Silence};

/// Longest time that a histogram tells apart from longer ones; no request is waited for longer.
const LONGEST: Duration = Duration::from_secs(3600);
/// Three digits: a time is known to 0.1 %.
const DIGITS: u8 = 3;
/// Two digits where there are many histograms.
const SMALL_DIGITS: u8 = 2;
/// Kinds of reasons that are told apart: a server that words each refusal anew must not fill the memory.
const MOST_REASONS: usize = 32;
/// Slots of a timeline: enough for a picture, few enough for a run of days.
const MOST_SLOTS: u32 = 600;
/// Largest batch that the histogram of batches tells apart.
const MOST_BATCH_ROWS: usize = 65_536;

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// A good answer.
    Good,
    /// An answer other than the expected one.
    Wrong,
    /// The server said at once that it will not: 503 or 429.
    Refused {
        /// The status.
        status: u16,
        /// In its own words, numbers aside.
        reason: String,
    },
    /// Any other status that is no success.
    Failed {
        /// The status.
        status: u16,
        /// In its own words, numbers aside.
        reason: String,
    },
    /// No answer in time.
    TimedOut,
    /// It waited for a connection until its time was over, and was never sent.
    Unsent,
    /// The generator itself came to it too late to send it.
    TooLate,
    /// No connection, or one that broke.
    Broken(&'static str),
}

/// The times of one request, since the begin of the run.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// When it was to be sent.
    pub due: Duration,
    /// When the generator came to it.
    pub taken: Duration,
    /// When its first byte left, if it did.
    pub sent: Option<Duration>,
    /// When its end was there, where the kernel says so; else when it was seen.
    pub ended: Duration,
    /// The earliest time at which its end may have been there to be seen: before `ended` if the generator was busy.
    pub ended_earliest: Duration,
}

/// A stretch of the run, by when requests were due.
#[derive(Debug, Clone)]
pub struct Slot {
    /// Requests due in it.
    pub due: u64,
    /// Good answers.
    pub good: u64,
    /// Refusals.
    pub refused: u64,
    /// All others.
    pub failed: u64,
    /// Times of good answers, in microseconds.
    pub latency: Histogram<u32>,
}

/// Times in microseconds.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, micros(LONGEST), DIGITS).expect("the bounds and digits are within the crate's")
}

/// The same in less memory.
pub(super) fn small_histogram() -> Histogram<u32> {
    Histogram::new_with_bounds(1, micros(LONGEST), SMALL_DIGITS).expect("the bounds and digits are within the crate's")
}

fn slot() -> Slot {
    Slot { due: 0, good: 0, refused: 0, failed: 0, latency: small_histogram() }
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1)
}

/// What became of the requests that were due within the measurement.
#[derive(Debug, Clone)]
pub struct Tally {
    /// From due to the end of a good answer: what callers would have seen.
    pub latency: Histogram<u64>,
    /// The same without any time that the generator itself may have added.
    pub latency_unhindered: Histogram<u64>,
    /// From sending to the end of a good answer.
    pub latency_from_sending: Histogram<u64>,
    /// From due to the generator's coming to it, of all requests: its own lateness.
    pub lateness: Histogram<u64>,
    /// From there to its sending, of all that were sent: the wait for a free connection.
    pub connection_wait: Histogram<u64>,
    /// From due to refusal.
    pub refusal: Histogram<u64>,
    /// From sending to refusal.
    pub refusal_from_sending: Histogram<u64>,
    /// Wrong answers.
    pub wrong: u64,
    /// Refusals.
    pub refused: u64,
    /// Answers that are failures.
    pub failed: u64,
    /// Requests without an answer in time.
    pub timed_out: u64,
    /// Requests that were never sent.
    pub unsent: u64,
    /// Those of them to which the generator itself came too late: it was asked for more than it could send.
    pub too_late: u64,
    /// Requests whose connection broke or never was.
    pub broken: u64,
    /// From due on, how long requests had waited that were under way when the run was ended early: they took that long at least.
    pub under_way: Histogram<u64>,
    /// Good answers that were there within the measurement, also to requests that were due before it. What is answered only when no more comes
    /// says nothing of how much a server can do.
    pub answered_within: u64,
    /// Requests sent again, since the server had closed a connection that had long been idle.
    pub resent: u64,
    /// How often each status came.
    pub statuses: BTreeMap<u16, u64>,
    /// Why requests had no good answer.
    pub reasons: BTreeMap<String, u64>,
    /// Rows of good answers.
    pub rows: u64,
    /// By a batch's rows, how many of them there were: each request counts for its part of its batch.
    pub batches: BTreeMap<u32, f64>,
    /// The run in slots.
    pub slots: Vec<Slot>,
    silence: Silence,
    slot_length: Duration,
    begin: Duration,
    end: Duration,
}

impl Tally {
    /// Nothing yet of a measurement of `length` that begins at `begin`.
    pub fn new(begin: Duration, length: Duration) -> Tally {
        let slot_length = Duration::from_secs((length / MOST_SLOTS).as_secs() + 1);
        Tally {
            latency: histogram(),
            latency_unhindered: histogram(),
            latency_from_sending: histogram(),
            lateness: histogram(),
            connection_wait: histogram(),
            refusal: histogram(),
            refusal_from_sending: histogram(),
            under_way: histogram(),
            wrong: 0,
            refused: 0,
            failed: 0,
            timed_out: 0,
            unsent: 0,
            too_late: 0,
            broken: 0,
            answered_within: 0,
            resent: 0,
            statuses: BTreeMap::new(),
            reasons: BTreeMap::new(),
            rows: 0,
            batches: BTreeMap::new(),
            slots: Vec::new(),
            silence: Silence::default(),
            slot_length,
            begin,
            end: begin + length,
        }
    }

    /// Time from one slot to the next.
    pub fn slot_length(&self) -> Duration {
        self.slot_length
    }

    /// Counts one request, unless it belongs to the warm-up.
    pub fn count(&mut self, times: Times, rows: usize, status: Option<u16>, ending: &Ending, batch_rows: Option<u32>) {
        let is_within = (self.begin..self.end).contains(&times.ended);
        self.answered_within += u64::from(is_within && *ending == Ending::Good);
        let asked = times.sent.unwrap_or(times.taken);
        match ending {
            Ending::TimedOut => self.silence.unanswered(asked, times.ended, false),
            Ending::Broken(why) if !is_own_fault(why) => self.silence.unanswered(asked, times.ended, true),
            Ending::Broken(_) | Ending::Unsent | Ending::TooLate => {}
            _ => self.silence.answered(times.ended),
        }
        let Some(since) = times.due.checked_sub(self.begin) else { return };
        let latency = micros(times.ended.saturating_sub(times.due));
        self.lateness.saturating_record(micros(times.taken.saturating_sub(times.due)));
        if let Some(sent) = times.sent {
            self.connection_wait.saturating_record(micros(sent.saturating_sub(times.taken)));
        }
        if let Some(status) = status {
            *self.statuses.entry(status).or_default() += 1;
        }
        let index = (since.as_nanos() / self.slot_length.as_nanos()) as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, slot);
        }
        let slot = &mut self.slots[index];
        slot.due += 1;
        let from_sending = micros(times.ended.saturating_sub(times.sent.unwrap_or(times.taken)));
        match ending {
            Ending::Good => {
                slot.good += 1;
                slot.latency.saturating_record(latency);
                self.latency.saturating_record(latency);
                let unhindered = times.ended_earliest.saturating_sub(times.taken);
                self.latency_unhindered.saturating_record(micros(unhindered).min(latency));
                self.latency_from_sending.saturating_record(from_sending);
                self.rows += rows as u64;
                if let Some(batch) = batch_rows.filter(|&batch| (1..=MOST_BATCH_ROWS).contains(&(batch as usize))) {
                    *self.batches.entry(batch).or_default() += rows as f64 / f64::from(batch);
                }
                return;
            }
            Ending::Refused { .. } => {
                slot.refused += 1;
                self.refused += 1;
                self.refusal.saturating_record(latency);
                self.refusal_from_sending.saturating_record(from_sending);
            }
            other => {
                slot.failed += 1;
                match other {
                    Ending::Wrong => self.wrong += 1,
                    Ending::Failed { .. } => self.failed += 1,
                    Ending::TimedOut => self.timed_out += 1,
                    Ending::Unsent => self.unsent += 1,
                    Ending::TooLate => {
                        self.unsent += 1;
                        self.too_late += 1;
                    }
                    _ => self.broken += 1,
                }
            }
        }
        self.reason(match ending {
            Ending::Refused { status, reason } | Ending::Failed { status, reason } => format!("{status} {reason}"),
            Ending::Wrong => "an answer other than the expected one".into(),
            Ending::TimedOut => "no answer in time".into(),
            Ending::Unsent => "no free connection in time".into(),
            Ending::TooLate => "not sent: the generator came to it too late".into(),
            Ending::Broken(what) => (*what).to_owned(),
            Ending::Good => return,
        });
    }

    /// Counts a request that was due then and still under way when the run was ended early, unless it belongs to the warm-up.
    pub fn count_under_way(&mut self, due: Duration, now: Duration) {
        if due >= self.begin {
            self.under_way.saturating_record(micros(now.saturating_sub(due)));
        }
    }

    /// An answer came when nobody waited for it any more: it is none, but a sign of life.
    pub(super) fn came_too_late(&mut self, at: Duration) {
        self.silence.answered(at);
    }

    fn reason(&mut self, reason: String) {
        if let Some(count) = self.reasons.get_mut(&reason) {
            *count += 1;
            return;
        }
        let reason = if self.reasons.len() < MOST_REASONS { reason } else { "other reasons".into() };
        *self.reasons.entry(reason).or_default() += 1;
    }

    /// Adds what another thread saw of the same measurement.
    pub fn add(&mut self, other: &Tally) {
        for (mine, theirs) in [
            (&mut self.latency, &other.latency),
            (&mut self.latency_unhindered, &other.latency_unhindered),
            (&mut self.latency_from_sending, &other.latency_from_sending),
            (&mut self.lateness, &other.lateness),
            (&mut self.connection_wait, &other.connection_wait),
            (&mut self.refusal, &other.refusal),
            (&mut self.refusal_from_sending, &other.refusal_from_sending),
            (&mut self.under_way, &other.under_way),
        ] {
            mine.add(theirs).expect("they have the same bounds");
        }
        for (mine, theirs) in [
            (&mut self.wrong, other.wrong),
            (&mut self.refused, other.refused),
            (&mut self.failed, other.failed),
            (&mut self.timed_out, other.timed_out),
            (&mut self.unsent, other.unsent),
            (&mut self.too_late, other.too_late),
            (&mut self.broken, other.broken),
            (&mut self.answered_within, other.answered_within),
            (&mut self.resent, other.resent),
            (&mut self.rows, other.rows),
        ] {
            *mine += theirs;
        }
        self.silence.add(&other.silence);
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        for (reason, count) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += count;
        }
        for (batch, count) in &other.batches {
            *self.batches.entry(*batch).or_default() += count;
        }
        if self.slots.len() < other.slots.len() {
            self.slots.resize_with(other.slots.len(), slot);
        }
        for (mine, theirs) in self.slots.iter_mut().zip(&other.slots) {
            mine.due += theirs.due;
            mine.good += theirs.good;
            mine.refused += theirs.refused;
            mine.failed += theirs.failed;
            mine.latency.add(&theirs.latency).expect("they have the same bounds");
        }
    }

    /// The same, but without anything that the generator itself may have spoilt: what it came to too late counts as answered well at once,
    /// and no other answer has the time that the generator may have added.
    pub(super) fn unhindered(&self) -> Tally {
        let mut best = Tally { latency: self.latency_unhindered.clone(), ..self.clone() };
        best.latency.saturating_record_n(1, self.too_late);
        best.answered_within += self.too_late;
        best.unsent -= self.too_late;
        best.too_late = 0;
        best
    }

    /// Good answers.
    pub fn good(&self) -> u64 {
        self.latency.len()
    }

    /// Requests that were neither answered well nor refused.
    pub fn errors(&self) -> u64 {
        self.wrong + self.failed + self.timed_out + self.unsent + self.broken
    }

    /// How the server was gone when the run ended, if it was.
    pub(super) fn gone(&self) -> Option<Gone> {
        self.silence.gone()
    }

    /// All requests.
    pub fn requests(&self) -> u64 {
        self.good() + self.refused + self.errors() + self.under_way.len()
    }

    /// One of the two histograms of latency, and what was under way when the run was ended early, as if it had been answered then: no
    /// answer came sooner.
    pub(super) fn so_far<'a>(&self, latency: &'a Histogram<u64>) -> Cow<'a, Histogram<u64>> {
        if self.under_way.is_empty() {
            return Cow::Borrowed(latency);
        }
        let mut both = latency.clone();
        both.add(&self.under_way).expect("they have the same bounds");
        Cow::Owned(both)
    }

    /// The time within which a share of *all* requests had a good answer, by one of the two histograms of latency. `None` is
    /// never: a request without a good answer is infinitely late. One that was under way at the end is as late as it was then.
    pub fn within(&self, latency: &Histogram<u64>, quantile: f64) -> Option<Duration> {
        let latency = &*self.so_far(latency);
        let (all, good) = (self.requests(), latency.len());
        let rank = rank(all, quantile);
        (rank <= good).then(|| Duration::from_micros(value_of_rank(latency, rank)))
    }

    /// Good answers that took no longer than `limit`.
    pub fn on_time(&self, latency: &Histogram<u64>, limit: Duration) -> u64 {
        latency.count_between(0, micros(limit))
    }
}

/// `503 a batch takes N ms`: words without their numbers, so that they can be counted.
pub(super) fn without_numbers(text: &str) -> String {
    const LONGEST_REASON: usize = 120;
    let mut words = String::with_capacity(text.len().min(LONGEST_REASON));
    let mut in_number = false;
    for c in text.chars().take(LONGEST_REASON) {
        let continues = c.is_ascii_digit() || (in_number && (c == '.' || c == ','));
        if !continues {
            words.push(if c.is_control() { ' ' } else { c });
        } else if !in_number {
            words.push('N');
        }
        in_number = continues;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn times(due: u64, ended: u64) -> Times {
        Times { due: ms(due), taken: ms(due), sent: Some(ms(due)), ended: ms(ended), ended_earliest: ms(ended) }
    }

    fn refused() -> Ending {
        Ending::Refused { status: 503, reason: "full".into() }
    }

    #[test]
    fn a_refusal_is_no_fast_answer_but_an_infinitely_late_one() {
        let mut tally = Tally::new(Duration::ZERO, ms(1000));
        for i in 0..100 {
            let ending = if i < 3 { refused() } else { Ending::Good };
            tally.count(times(i, i + 10), 1, Some(200), &ending, None);
        }
        let at = |quantile| tally.within(&tally.latency, quantile);
        assert_eq!(at(0.97).map(|time| time.as_millis()), Some(10));
        assert_eq!(at(0.98), None);
        assert_eq!((tally.requests(), tally.refused, tally.good()), (100, 3, 97));
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_times() {
        let mut tally = Tally::new(Duration::ZERO, ms(1000));
        for i in 1..=100 {
            tally.count(times(0, i), 1, Some(200), &Ending::Good, None);
        }
        for (quantile, expected) in [(0.5, 50), (0.99, 99), (0.999, 100), (1.0, 100), (0.01, 1)] {
            let found = tally.within(&tally.latency, quantile).expect("all were answered");
            let off = found.as_secs_f64() / ms(expected).as_secs_f64() - 1.0;
            assert!(off.abs() <= 0.001, "{quantile}: {found:?}, not {expected} ms");
        }
        assert_eq!(tally.on_time(&tally.latency, ms(40)), 40);
    }

    #[test]
    fn what_is_under_way_at_the_end_is_as_late_as_it_is_then() {
        let mut tally = Tally::new(ms(100), ms(1000));
        for _ in 0..90 {
            tally.count(times(100, 101), 1, Some(200), &Ending::Good, None);
        }
        for due in std::iter::repeat_n(200, 10).chain([99]) {
            tally.count_under_way(ms(due), ms(700));
        }
        let at = |tally: &Tally, quantile| {
            let time = tally.within(&tally.latency, quantile).expect("none was refused");
            (time.as_secs_f64() * 1e3).round() as u64
        };
        assert_eq!((tally.requests(), tally.good(), tally.under_way.len()), (100, 90, 10));
        assert_eq!((at(&tally, 0.9), at(&tally, 0.91), at(&tally, 1.0)), (1, 500, 500));
        let mut other = Tally::new(ms(100), ms(1000));
        other.add(&tally);
        assert_eq!((other.requests(), at(&other, 1.0)), (100, 500));
        assert_eq!(tally.on_time(&tally.latency, ms(600)), 90, "nobody knows whether they come in time");
    }

    #[test]
    fn what_was_due_in_the_warm_up_is_left_out() {
        let mut tally = Tally::new(ms(100), ms(1000));
        tally.count(times(99, 300), 1, Some(200), &Ending::Good, None);
        tally.count(times(100, 300), 1, Some(200), &Ending::Good, None);
        assert_eq!(tally.requests(), 1);
    }

    #[test]
    fn what_is_answered_a_second_is_what_was_there_within_the_measurement() {
        let mut tally = Tally::new(ms(100), ms(1000));
        for (due, ended) in [(50, 99), (50, 100), (100, 300), (1000, 1099), (1000, 1100), (1099, 9000)] {
            tally.count(times(due, ended), 1, Some(200), &Ending::Good, None);
        }
        tally.count(times(200, 300), 1, Some(503), &refused(), None);
        assert_eq!(tally.answered_within, 3);
    }

    #[test]
    fn each_request_counts_for_its_part_of_its_batch() {
        let mut tally = Tally::new(Duration::ZERO, ms(1000));
        for rows in [3, 3, 2] {
            tally.count(times(0, 1), rows, Some(200), &Ending::Good, Some(8));
        }
        assert_eq!(tally.batches, BTreeMap::from([(8, 1.0)]));
    }

    #[test]
    fn parts_of_a_run_add_up_to_the_whole() {
        let (mut whole, mut odd) = (Tally::new(Duration::ZERO, ms(5000)), Tally::new(Duration::ZERO, ms(5000)));
        let mut even = odd.clone();
        for i in 0..4000 {
            let ending = if i % 10 == 0 { refused() } else { Ending::Good };
            for tally in [&mut whole, if i % 2 == 0 { &mut even } else { &mut odd }] {
                tally.count(times(i, i + 1 + i % 50), 1, Some(200), &ending, Some(4));
            }
        }
        odd.add(&even);
        assert_eq!(odd.latency, whole.latency);
        assert_eq!((odd.requests(), odd.refused, &odd.reasons), (whole.requests(), whole.refused, &whole.reasons));
        assert_eq!((odd.answered_within, whole.answered_within), (3600, 3600));
        let good = |tally: &Tally| tally.slots.iter().map(|slot| slot.good).collect::<Vec<_>>();
        assert_eq!(good(&odd), good(&whole));
        assert_eq!(good(&whole), [900; 4]);
        assert!(odd.slots.iter().all(|slot| (45_000..=51_000).contains(&slot.latency.max())), "{:?}", odd.slots);
    }

    #[test]
    fn reasons_are_counted_without_their_numbers() {
        assert_eq!(without_numbers("a batch of 12 takes 3.5 ms, too\nlong."), "a batch of N takes N ms, too long.");
    }
}
