//! How far a queue may reach that stands.
//!
//! Beyond the capacity a queue stands that is as long as the cap allows, and makes every answer come just in time. Most of it is of no
//! use. If every batch of some time has left a full one behind, then what it left beyond that would not have been missed: the standing
//! queue of CoDel (Nichols and Jacobson, *Controlling Queue Delay*, 2012). That much less is let in. As soon as a batch leaves less than a
//! full one, more is let in again.
//!
//! A queue also stands where all callers ask again at once, and nobody is refused. So refusals for lateness have to last. And if more is
//! asked once the queue is shorter, then those who ask are the same ones: they would be refused for nothing, again and again.
//!
//! Where the least urgent ask for too much, the others are still served as they come. So refusals have to last on each level of priority.

use std::time::Duration;

use super::{Entry, Priority, Reach};
use crate::estimator::Instant;

/// Caps for which refusals go on, and a queue stands, before it is made shorter. Where overload comes and goes, what waits when it goes
/// is answered too: a shorter queue costs no more than one cap in so many.
const LASTING: u32 = 200;
/// At least for so long.
const SHORTEST: Duration = Duration::from_secs(1);
/// More is asked since the queue is shorter, if the rate has become so many times what it was.
const MORE: f64 = 1.2;
/// The queue is left as it is then for so many times as long as overload has to last.
const WARY: u32 = 10;

/// What is known of a queue that stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backlog {
    reach: Reach,
    /// The longest that a caller has given it since refusals began: the cap of those for whom it is as long as it is.
    within: Duration,
    /// Of each level of priority and all more urgent ones, the most urgent first.
    refusals: [Option<Refusals>; Priority::LEVELS],
    /// Since when `least` and `came` are counted.
    since: Instant,
    /// The fewest rows that a batch left behind.
    least: usize,
    /// Requests that came.
    came: u32,
    /// Requests a second, before the queue was made shorter.
    usual: Option<f64>,
    wary_until: Instant,
}

/// Refusals that follow each other without a gap of a cap.
#[derive(Debug, Clone, Copy)]
struct Refusals {
    first: Instant,
    last: Instant,
}

/// What a batch left behind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Left {
    /// Rows that wait still.
    pub(super) rows: usize,
    /// Rows of a full batch.
    pub(super) full: usize,
    /// The time between the starts of two full batches.
    pub(super) turn: Duration,
}

impl Backlog {
    pub(super) const NONE: Backlog = Backlog {
        reach: Reach::WHOLE,
        within: Duration::ZERO,
        refusals: [None; Priority::LEVELS],
        since: Instant::EPOCH,
        least: usize::MAX,
        came: 0,
        usual: None,
        wary_until: Instant::EPOCH,
    };

    /// How long the queue may be.
    pub(super) fn reach(&self) -> Reach {
        self.reach
    }

    /// Those of all levels.
    fn all_refusals(&self) -> Option<Refusals> {
        self.refusals[Priority::LEVELS - 1]
    }

    /// The most urgent level that has had refusals for all of the time that is counted.
    fn most_urgent(&self, now: Instant) -> Option<Priority> {
        let lasts = |refusals: &Refusals| refusals.first <= self.since && now.since(refusals.last) <= self.within;
        Priority::all().zip(&self.refusals).find_map(|(level, own)| own.filter(lasts).map(|_| level))
    }

    /// A request has come of a caller who waits for so long.
    pub(super) fn arrived(&mut self, now: Instant, within: Duration) {
        let Some(refusals) = self.all_refusals() else { return };
        self.within = self.within.max(within);
        if now.since(refusals.last) > self.within {
            *self = Backlog { wary_until: self.wary_until, ..Backlog::NONE };
            return;
        }
        self.came = self.came.saturating_add(1);
        let lasting = lasting(self.within);
        // A clump is no higher rate.
        let elapsed = now.since(self.since).max(lasting / 4).as_secs_f64();
        if self.usual.is_some_and(|usual| f64::from(self.came) > usual * MORE * elapsed) {
            *self = Backlog { wary_until: now + lasting * WARY, ..Backlog::NONE };
        }
    }

    /// This one was refused.
    pub(super) fn refused(&mut self, now: Instant, entry: &Entry) {
        if now < self.wary_until {
            return;
        }
        if self.all_refusals().is_none() {
            self.look_anew(now);
        }
        self.within = self.within.max(entry.given());
        let goes_on = |own: &Refusals| now.since(own.last) <= self.within;
        for (_, own) in Priority::all().zip(&mut self.refusals).filter(|(level, _)| *level >= entry.priority) {
            let first = own.filter(goes_on).map_or(now, |own| own.first);
            *own = Some(Refusals { first, last: now });
        }
    }

    /// A batch was released.
    pub(super) fn left(&mut self, now: Instant, left: Left) {
        if self.all_refusals().is_none() || self.within.is_zero() {
            return;
        }
        self.least = self.least.min(left.rows);
        let beyond_a_batch = |rows: usize| rows as f64 / left.full as f64 - 1.0;
        let turn = left.turn.as_secs_f64() / self.within.as_secs_f64();
        if left.rows < left.full {
            self.reach.part = (self.reach.part - beyond_a_batch(left.rows) * turn).min(1.0);
        }
        let elapsed = now.since(self.since);
        if elapsed < lasting(self.within) {
            return;
        }
        if self.least > left.full
            && let Some(urgent) = self.most_urgent(now)
        {
            self.usual = self.usual.or(Some(f64::from(self.came) / elapsed.as_secs_f64()));
            let part = (self.reach.part - beyond_a_batch(self.least) * turn).max(0.0);
            self.reach = Reach { part, since: now, urgent };
        }
        self.look_anew(now);
    }

    fn look_anew(&mut self, now: Instant) {
        (self.since, self.least, self.came) = (now, usize::MAX, 0);
    }
}

/// How long overload lasts before the queue is made shorter.
fn lasting(within: Duration) -> Duration {
    SHORTEST.max(within * LASTING)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: Duration = Duration::from_millis(50);
    /// Full batches of 100 rows start every 10 ms.
    const TURN: Duration = Duration::from_millis(10);

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    /// Ten milliseconds in which so many requests come, some are refused, and a batch leaves so many rows behind.
    fn turn(backlog: &mut Backlog, ms: u64, came: usize, left: usize) {
        (0..came).for_each(|_| backlog.arrived(at(ms), CAP));
        refuse(backlog, ms, Priority::DEFAULT);
        backlog.left(at(ms), Left { rows: left, full: 100, turn: TURN });
    }

    fn refuse(backlog: &mut Backlog, ms: u64, priority: Priority) {
        backlog.refused(at(ms), &Entry { priority, ..Entry::new(ms, at(ms), at(ms) + CAP) });
    }

    /// After 10 s of overload that left 300 rows behind each batch: two of these batches stood for nothing.
    fn shortened() -> Backlog {
        let mut backlog = Backlog::NONE;
        (0..=1000).for_each(|i| turn(&mut backlog, 1000 + 10 * i, 150, 300 + (i % 7) as usize));
        backlog
    }

    #[test]
    fn what_stood_for_nothing_is_taken_away_once_overload_has_lasted() {
        let mut backlog = Backlog::NONE;
        (0..1000).for_each(|i| turn(&mut backlog, 1000 + 10 * i, 150, 300));
        assert_eq!(backlog.reach().part, 1.0, "before two hundred caps are over");
        turn(&mut backlog, 11_000, 150, 300);
        assert!((backlog.reach().part - 0.6).abs() < 1e-9, "two turns of 10 ms in 50: {}", backlog.reach().part);
    }

    #[test]
    fn a_batch_that_left_little_lets_more_in_at_once() {
        let mut backlog = shortened();
        turn(&mut backlog, 11_010, 150, 50);
        assert!((backlog.reach().part - 0.7).abs() < 1e-9, "half a turn: {}", backlog.reach().part);
        (0..4).for_each(|i| turn(&mut backlog, 11_020 + 10 * i, 150, 0));
        assert_eq!(backlog.reach().part, 1.0);
    }

    #[test]
    fn a_few_patient_callers_say_how_long_it_is() {
        let mut backlog = Backlog::NONE;
        let patient = |backlog: &mut Backlog, ms| backlog.arrived(at(ms), 10 * CAP);
        for ms in (1000..=101_000).step_by(10) {
            turn(&mut backlog, ms, 150, 300);
            if ms % 1000 == 0 {
                patient(&mut backlog, ms);
            }
            assert!(
                ms >= 101_000 || backlog.reach().part == 1.0,
                "after {ms} ms, less than two hundred times their cap"
            );
        }
        assert!((backlog.reach().part - 0.96).abs() < 1e-9, "two turns of 10 ms in 500: {}", backlog.reach().part);
    }

    #[test]
    fn one_batch_that_left_nothing_keeps_the_queue_as_long_as_it_is() {
        let mut backlog = Backlog::NONE;
        (0..=1000).for_each(|i| turn(&mut backlog, 1000 + 10 * i, 150, if i == 100 { 0 } else { 300 }));
        assert_eq!(backlog.reach().part, 1.0);
    }

    #[test]
    fn a_cap_without_a_refusal_ends_it() {
        let mut backlog = shortened();
        backlog.arrived(at(11_050), CAP);
        assert!(backlog.reach().part < 1.0);
        backlog.arrived(at(11_051), CAP);
        assert_eq!(backlog.reach().part, 1.0);
        // Nor does overload with gaps ever last.
        let mut backlog = Backlog::NONE;
        (0..1000).for_each(|i| turn(&mut backlog, 1000 + 51 * i, 150, 300));
        assert_eq!(backlog.reach().part, 1.0);
    }

    #[test]
    fn who_is_refused_and_asks_again_at_once_makes_the_queue_as_long_as_it_was() {
        let mut backlog = shortened();
        let ends = (1..).find(|i| {
            turn(&mut backlog, 11_000 + 10 * i, 600, 300);
            backlog.reach().part == 1.0
        });
        assert!(ends.is_some_and(|turns| turns < 100), "in less than a second: {ends:?}");
        // And not shorter again for ten times as long as it had stood.
        (0..9900).for_each(|i| turn(&mut backlog, 12_000 + 10 * i, 150, 300));
        assert_eq!(backlog.reach().part, 1.0);
        (0..1200).for_each(|i| turn(&mut backlog, 111_000 + 10 * i, 150, 300));
        assert!(backlog.reach().part < 1.0);
    }

    #[test]
    fn a_clump_is_not_taken_for_callers_who_ask_again() {
        let mut backlog = shortened();
        turn(&mut backlog, 11_010, 30_000, 300); // two seconds' requests at once
        assert!(backlog.reach().part < 1.0);
    }

    #[test]
    fn it_is_shorter_for_the_levels_alone_of_whom_too_many_ask() {
        // Each 10 ms one of the default priority is refused, and one of the highest whenever `urgent` says.
        let urgent = |urgent: fn(u64) -> bool| {
            let mut backlog = Backlog::NONE;
            for i in 0..=2000 {
                if urgent(i) {
                    refuse(&mut backlog, 1000 + 10 * i, Priority::HIGHEST);
                }
                turn(&mut backlog, 1000 + 10 * i, 150, 300 + (i % 7) as usize);
            }
            backlog.reach().urgent
        };
        assert_eq!(urgent(|_| false), Priority::DEFAULT);
        assert_eq!(urgent(|i| i % 5 == 0), Priority::HIGHEST);
        assert_eq!(urgent(|i| i % 5 == 0 && i != 1500), Priority::DEFAULT, "it has not lasted");
        assert_eq!(urgent(|i| i % 5 == 0 && i < 1500), Priority::DEFAULT, "it is over");
    }
}
