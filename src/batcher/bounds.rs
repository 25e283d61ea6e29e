//! How much may wait: a bound in rows and one in bytes, checked by the caller before the actor hears of an item.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::Weight;
use crate::error::Error;

/// What waits now, against its bounds. Shared by all callers and the actor.
#[derive(Debug)]
pub(super) struct Bounds {
    rows: Meter,
    bytes: Meter,
    closed: AtomicBool,
    retry_after: Duration,
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
        Bounds { rows, bytes, closed: AtomicBool::new(false), retry_after }
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
    }

    /// Admits nothing from now on.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
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
