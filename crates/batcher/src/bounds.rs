//! How much may wait: a bound in rows and one in bytes, checked by the caller before the actor hears of an item.
//!
//! Callers who are [told apart](crate::Terms::caller) share what there is. So an item of theirs comes in where the bound is reached, as far as
//! a [leeway](LEEWAY) goes, and the actor decides at once who makes room for it.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;

use super::observer::Waits;
use super::{Caller, Weight};
use crate::Error;
use uncork_core::estimator::{Fit, Instant};

/// What may be on its way to the actor beyond a bound, as a part of it. It has no more to do than to read what has come.
const LEEWAY: usize = 2;

/// Stands for no size, but for a meter of which nothing can be taken.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// How often a request goes on that is expected to be late. Were none to, nothing would correct an estimate that a stall has left.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// What waits now, against its bounds. Shared by all callers and the actor.
#[derive(Debug)]
pub(super) struct Bounds {
    rows: Meter,
    bytes: Meter,
    retry_after: Duration,
    /// The most rows that a batch may have now.
    most_rows: AtomicUsize,
    /// What is known of batch times, once it can be relied on.
    fit: std::sync::Mutex<Option<Fit>>,
    /// When a request was let through last that was expected to be late.
    tried: std::sync::Mutex<Instant>,
    /// Whether a batch was given up, and none has come back since.
    is_stuck: AtomicBool,
    /// Held by whoever is the next to get room: first come, first served.
    turn: Mutex<()>,
    /// Told when there may be room.
    room: Notify,
}

#[derive(Debug)]
struct Meter {
    unit: &'static str,
    /// With [`CLOSED`], once nothing more is taken. In one word, so that whoever finds it closed and unused knows that it stays so.
    used: AtomicUsize,
    bound: usize,
}

impl Bounds {
    pub(super) fn new(max_rows: usize, max_bytes: usize, retry_after: Duration) -> Bounds {
        let meter = |unit, bound: usize| Meter { unit, used: AtomicUsize::new(0), bound: bound.min(CLOSED - 1) };
        let (rows, bytes) = (meter("rows", max_rows), meter("bytes", max_bytes));
        Bounds {
            rows,
            bytes,
            retry_after,
            most_rows: AtomicUsize::new(usize::MAX),
            fit: std::sync::Mutex::default(),
            tried: std::sync::Mutex::new(Instant::EPOCH),
            is_stuck: AtomicBool::new(false),
            turn: Mutex::new(()),
            room: Notify::new(),
        }
    }

    /// Makes room for `weight` as soon as there is some, in the order of the calls; says what is full where that is so for longer than
    /// `most`.
    pub(super) async fn admit_within(&self, weight: Weight, most: Duration) -> Result<(), Error> {
        let admitted = async {
            let _turn = self.turn.lock().await;
            loop {
                match self.admit(weight, Caller::default()) {
                    // What is given back between these lines is told of as well: the notice is kept.
                    Err(Error::Full { .. }) => self.room.notified().await,
                    decided => return decided,
                }
            }
        };
        // The last try is for its words.
        timeout(most, admitted).await.unwrap_or_else(|_| self.admit(weight, Caller::default()))
    }

    /// Takes room for an item of `caller`, or says what is full. Where callers are told apart the bound may be [passed](Self::full).
    pub(super) fn admit(&self, weight: Weight, caller: Caller) -> Result<(), Error> {
        let leeway = |meter: &Meter| if caller.id == 0 { 0 } else { meter.bound / LEEWAY };
        let take = |meter: &Meter, size| meter.take(size, leeway(meter), self.retry_after);
        self.rows.may_take(weight.rows)?;
        take(&self.bytes, weight.bytes)?;
        // Last: rows that are taken are those of an item that comes, and are waited for by who drains.
        take(&self.rows, weight.rows).inspect_err(|_| self.bytes.give_back(weight.bytes))
    }

    /// What is said to whom there is no room for, where more is `held` than may wait.
    pub(super) fn full(&self, held: Weight) -> Option<Error> {
        let held = [(&self.rows, held.rows), (&self.bytes, held.bytes)];
        let (passed, _) = held.into_iter().find(|(meter, held)| *held > meter.bound)?;
        Some(passed.full(passed.bound, self.retry_after))
    }

    /// When who is refused for want of room may usefully ask again.
    pub(super) fn retry_after(&self) -> Duration {
        self.retry_after
    }

    /// Gives back the room of an item that waits no longer.
    pub(super) fn leave(&self, weight: Weight) {
        self.rows.give_back(weight.rows);
        self.bytes.give_back(weight.bytes);
        self.room.notify_one();
    }

    /// What waits now, and the most that may.
    ///
    /// Once it is [closed](Self::close) and no rows wait, none will.
    pub(super) fn waits(&self) -> Waits {
        Waits {
            rows: self.rows.used(),
            max_rows: self.rows.bound,
            bytes: self.bytes.used(),
            max_bytes: self.bytes.bound,
        }
    }

    pub(super) fn most_rows(&self) -> usize {
        self.most_rows.load(Ordering::Relaxed)
    }

    /// The mean time that so many parts of a request take, each of as many rows, and then one of `last`; zero while that is a guess.
    pub(super) fn time(&self, parts: usize, rows: usize, last: usize) -> Duration {
        let fit = self.fit.lock().unwrap_or_else(PoisonError::into_inner);
        let time = |rows| fit.as_ref().and_then(|fit| fit.predict(rows)).unwrap_or_default();
        // Four thousand million of them are late in any case.
        time(rows).saturating_mul(u32::try_from(parts).unwrap_or(u32::MAX)).saturating_add(time(last))
    }

    /// Whether a request may go on that is expected to be late, because none has for a while.
    pub(super) fn may_try(&self, now: Instant) -> bool {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = now.since(*tried) >= BETWEEN_TRIES;
        if is_due {
            *tried = now;
        }
        is_due
    }

    pub(super) fn set_fit(&self, fit: &Fit) {
        *self.fit.lock().unwrap_or_else(PoisonError::into_inner) = fit.is_trusted().then(|| fit.clone());
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
    }

    pub(super) fn set_stuck(&self, is_stuck: bool) {
        self.is_stuck.store(is_stuck, Ordering::Relaxed);
    }

    pub(super) fn set_most_rows(&self, rows: usize) {
        self.most_rows.store(rows, Ordering::Relaxed);
    }

    /// Admits nothing from now on.
    pub(super) fn close(&self) {
        self.rows.close();
        self.room.notify_one();
    }
}

impl Meter {
    /// Whether there can ever be room for `size`.
    fn may_take(&self, size: usize) -> Result<(), Error> {
        let (bound, unit) = (self.bound, self.unit);
        if self.is_closed() {
            return Err(Error::ShuttingDown);
        }
        if size > bound { Err(Error::TooLarge { size, bound, unit }) } else { Ok(()) }
    }

    /// Takes `size`. Whoever has a `leeway` needs no more than that it is not used up.
    fn take(&self, size: usize, leeway: usize, retry_after: Duration) -> Result<(), Error> {
        self.may_take(size)?;
        let bound = self.bound;
        let most = if leeway == 0 { bound } else { bound.saturating_add(leeway).saturating_add(size) };
        // What is closed has more than there can be.
        let fits = |used: usize| used.checked_add(size).filter(|&sum| sum <= most.min(CLOSED - 1));
        match self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits) {
            Ok(_) => Ok(()),
            Err(used) if used & CLOSED != 0 => Err(Error::ShuttingDown),
            Err(used) => Err(self.full(used, retry_after)),
        }
    }

    fn used(&self) -> usize {
        self.used.load(Ordering::Acquire) & !CLOSED
    }

    fn is_closed(&self) -> bool {
        self.used.load(Ordering::Acquire) & CLOSED != 0
    }

    fn close(&self) {
        self.used.fetch_or(CLOSED, Ordering::AcqRel);
    }

    fn full(&self, queued: usize, retry_after: Duration) -> Error {
        // What is on its way beyond the bound is nothing to tell callers.
        Error::Full { queued: queued.min(self.bound), bound: self.bound, unit: self.unit, retry_after }
    }

    fn give_back(&self, size: usize) {
        self.used.fetch_sub(size, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(rows: usize, bytes: usize) -> Weight {
        Weight { rows, bytes }
    }

    #[test]
    fn room_is_taken_in_rows_and_bytes_or_in_neither_and_given_back_in_both() {
        let retry_after = Duration::from_millis(50);
        let bounds = Bounds::new(10, 100, retry_after);
        let full = |queued, bound, unit| Err(Error::Full { queued, bound, unit, retry_after });
        for _ in 0..3 {
            assert_eq!(bounds.admit(weight(6, 60), Caller::default()), Ok(()));
            assert_eq!(bounds.admit(weight(1, 60), Caller::default()), full(60, 100, "bytes"));
            assert_eq!(
                bounds.admit(weight(4, 40), Caller::default()),
                Ok(()),
                "the refused one has left no rows behind"
            );
            assert_eq!(bounds.admit(weight(1, 0), Caller::default()), full(10, 10, "rows"));
            bounds.leave(weight(6, 60));
            bounds.leave(weight(4, 40));
        }
    }

    #[test]
    fn what_could_never_wait_is_too_large_however_empty_the_queue_is() {
        let bounds = Bounds::new(10, 100, Duration::ZERO);
        assert_eq!(
            bounds.admit(weight(11, 1), Caller::default()),
            Err(Error::TooLarge { size: 11, bound: 10, unit: "rows" })
        );
        assert_eq!(
            bounds.admit(weight(10, 101), Caller::default()),
            Err(Error::TooLarge { size: 101, bound: 100, unit: "bytes" })
        );
        assert_eq!(bounds.admit(weight(10, 100), Caller::default()), Ok(()));
        bounds.close();
        assert_eq!(bounds.admit(weight(0, 0), Caller::default()), Err(Error::ShuttingDown));
    }
}
