//! What happened since the last look: what a live view shows.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::tally::{Ending, micros, small_histogram};

/// A short stretch of a run, warm-up included.
#[derive(Debug, Clone)]
pub struct Pulse {
    /// The thread that sends, from 0.
    pub thread: u64,
    /// Requests that became due.
    pub due: u64,
    /// Good answers.
    pub good: u64,
    /// Refusals.
    pub refused: u64,
    /// All other endings.
    pub failed: u64,
    /// Times of good answers, in microseconds.
    pub latency: Histogram<u32>,
    /// Sum of one over the rows of the batch that each answer rode in, and answers of which that is known: their quotient
    /// is the mean batch.
    pub batches: f64,
    /// Answers whose batch is known.
    pub batched: u64,
    /// Requests under way.
    pub busy_connections: usize,
    /// Requests that wait for a connection.
    pub waiting: usize,
}

impl Default for Pulse {
    fn default() -> Pulse {
        Pulse {
            thread: 0,
            due: 0,
            good: 0,
            refused: 0,
            failed: 0,
            latency: small_histogram(),
            batches: 0.0,
            batched: 0,
            busy_connections: 0,
            waiting: 0,
        }
    }
}

impl Pulse {
    pub(super) fn count(&mut self, latency: Duration, ending: &Ending, batch_rows: Option<u32>) {
        match ending {
            Ending::Good => {
                self.good += 1;
                self.latency.saturating_record(micros(latency));
                if let Some(rows) = batch_rows.filter(|rows| *rows > 0) {
                    self.batches += 1.0 / f64::from(rows);
                    self.batched += 1;
                }
            }
            Ending::Refused { .. } => self.refused += 1,
            _ => self.failed += 1,
        }
    }

    /// Adds the same stretch of another thread, or the next of the same one; what is under way and waits stays as it is.
    pub fn add(&mut self, other: &Pulse) {
        self.due += other.due;
        self.good += other.good;
        self.refused += other.refused;
        self.failed += other.failed;
        self.latency.add(&other.latency).expect("they have the same bounds");
        self.batches += other.batches;
        self.batched += other.batched;
    }

    /// Rows of a batch on average, if the server tells.
    pub fn mean_batch_rows(&self) -> Option<f64> {
        (self.batches > 0.0).then(|| self.batched as f64 / self.batches)
    }
}
