//! How much may wait: a bound in rows and one in bytes, checked by the caller before the actor hears of an item.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;

use super::Weight;
use super::observer::Waits;
use crate::Error;

/// What waits now, against its bounds. Shared by all callers and the actor.
#[derive(Debug)]
pub(super) struct Bounds {
    rows: Meter,
    bytes: Meter,
    closed: AtomicBool,
    retry_after: Duration,
    /// The most rows that a batch may have now.
    most_rows: AtomicUsize,
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
    used: AtomicUsize,
    bound: usize,
}

impl Bounds {
    pub(super) fn new(max_rows: usize, max_bytes: usize, retry_after: Duration) -> Bounds {
        let meter = |unit, bound| Meter { unit, used: AtomicUsize::new(0), bound };
        let (rows, bytes) = (meter("rows", max_rows), meter("bytes", max_bytes));
        Bounds {
            rows,
            bytes,
            closed: AtomicBool::new(false),
            retry_after,
            most_rows: AtomicUsize::new(usize::MAX),
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
                match self.admit(weight) {
                    // What is given back between these lines is told of as well: the notice is kept.
                    Err(Error::Full { .. }) => self.room.notified().await,
                    decided => return decided,
                }
            }
        };
        // The last try is for its words.
        timeout(most, admitted).await.unwrap_or_else(|_| self.admit(weight))
    }

    /// Makes room for `weight`, or says what is full.
    pub(super) fn admit(&self, weight: Weight) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::ShuttingDown);
        }
        self.rows.take(weight.rows, self.retry_after)?;
        self.bytes.take(weight.bytes, self.retry_after).inspect_err(|_| self.rows.give_back(weight.rows))
    }

    /// Gives back the room of an item that waits no longer.
    pub(super) fn leave(&self, weight: Weight) {
        self.rows.give_back(weight.rows);
        self.bytes.give_back(weight.bytes);
        self.room.notify_one();
    }

    /// What waits now, and the most that may.
    pub(super) fn waits(&self) -> Waits {
        let used = |meter: &Meter| meter.used.load(Ordering::Acquire);
        Waits {
            rows: used(&self.rows),
            max_rows: self.rows.bound,
            bytes: used(&self.bytes),
            max_bytes: self.bytes.bound,
        }
    }

    pub(super) fn most_rows(&self) -> usize {
        self.most_rows.load(Ordering::Relaxed)
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
        self.closed.store(true, Ordering::Release);
        self.room.notify_one();
    }
}

impl Meter {
    fn take(&self, size: usize, retry_after: Duration) -> Result<(), Error> {
        let (bound, unit) = (self.bound, self.unit);
        if size > bound {
            return Err(Error::TooLarge { size, bound, unit });
        }
        let fits = |used: usize| used.checked_add(size).filter(|&sum| sum <= bound);
        match self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits) {
            Ok(_) => Ok(()),
            Err(queued) => Err(Error::Full { queued, bound, unit, retry_after }),
        }
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
            assert_eq!(bounds.admit(weight(6, 60)), Ok(()));
            assert_eq!(bounds.admit(weight(1, 60)), full(60, 100, "bytes"));
            assert_eq!(bounds.admit(weight(4, 40)), Ok(()), "the refused one has left no rows behind");
            assert_eq!(bounds.admit(weight(1, 0)), full(10, 10, "rows"));
            bounds.leave(weight(6, 60));
            bounds.leave(weight(4, 40));
        }
    }

    #[test]
    fn what_could_never_wait_is_too_large_however_empty_the_queue_is() {
        let bounds = Bounds::new(10, 100, Duration::ZERO);
        assert_eq!(bounds.admit(weight(11, 1)), Err(Error::TooLarge { size: 11, bound: 10, unit: "rows" }));
        assert_eq!(bounds.admit(weight(10, 101)), Err(Error::TooLarge { size: 101, bound: 100, unit: "bytes" }));
        assert_eq!(bounds.admit(weight(10, 100)), Ok(()));
        bounds.close();
        assert_eq!(bounds.admit(weight(0, 0)), Err(Error::ShuttingDown));
    }
}
