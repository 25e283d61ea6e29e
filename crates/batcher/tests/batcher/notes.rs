//! An observer that writes down what it hears.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use uncork_batcher::{Abandoned, Landed, Learned, Observer, RefusalReason, Refused, Rehearsed, Released, SpanRef};
use uncork_core::estimator::{Fit, Instant};

/// What was heard, without what is said about the queue.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Note {
    /// Ticket, items, rows and predicted time.
    Released(u64, usize, usize, Option<Duration>),
    /// Ticket, time, span, and whether there are answers.
    Landed(u64, Duration, Option<SpanRef>, bool),
    /// Why, and how many.
    Refused(RefusalReason, usize),
    Learned(Fit),
    /// Rows, whether its runner was replaced, and how many are left behind.
    Abandoned(usize, bool, usize),
    /// Rows, and whether it succeeded.
    Rehearsed(usize, bool),
}

#[derive(Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<Note>>>, Arc<Notify>);

impl Notes {
    pub(crate) fn read(&self) -> Vec<Note> {
        self.0.lock().expect("no test panics with it").clone()
    }

    fn write(&self, note: Note) {
        self.0.lock().expect("no test panics with it").push(note);
        self.1.notify_one();
    }

    /// Waits until what was heard is as it should be.
    pub(crate) async fn until(&self, is_so: impl Fn(&[Note]) -> bool) {
        while !is_so(&self.read()) {
            self.1.notified().await;
        }
    }
}

impl Observer for Notes {
    fn released(&self, _at: Instant, batch: &Released<'_>) -> Option<SpanRef> {
        self.write(Note::Released(batch.ticket, batch.riders.len(), batch.rows, batch.predicted));
        // A batch with a traced item has a span of its own.
        let traced = batch.riders.iter().find_map(|rider| rider.span)?;
        Some(SpanRef { span: batch.ticket + 1000, ..traced })
    }

    fn landed(&self, _at: Instant, batch: &Landed<'_>) {
        self.write(Note::Landed(batch.ticket, batch.took, batch.span, batch.failed.is_none()));
    }

    fn refused(&self, _at: Instant, items: &Refused<'_>) {
        self.write(Note::Refused(items.reason, items.items));
    }

    fn abandoned(&self, _at: Instant, batch: &Abandoned) {
        self.write(Note::Abandoned(batch.rows, batch.is_replaced, batch.left_behind));
    }

    fn rehearsed(&self, _at: Instant, batch: &Rehearsed<'_>) {
        self.write(Note::Rehearsed(batch.rows, batch.failed.is_none()));
    }

    fn learned(&self, _at: Instant, batch: &Learned) {
        self.write(Note::Learned(batch.fit.clone()));
    }
}
