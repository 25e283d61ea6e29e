//! Entries that wait, the most urgent first.

use std::collections::VecDeque;
use std::ops::Range;

use crate::estimator::Instant;

/// A request in a queue, as a decision sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Tells entries apart and orders those of one deadline: given in order of arrival, never twice.
    pub id: u64,
    /// When its request arrived.
    pub arrival: Instant,
    /// When its answer is due.
    pub deadline: Instant,
    /// Rows that it adds to a batch; at least one.
    pub rows: usize,
}

/// Entries in the order in which they are served: by deadline, then by id. With one common latency cap that is first
/// come, first served.
#[derive(Debug, Clone, Default)]
pub struct Queue {
    entries: VecDeque<Entry>,
    rows: usize,
}

impl Queue {
    /// An empty queue.
    pub fn new() -> Queue {
        Queue::default()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Rows of all entries.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The most urgent entry.
    pub fn first(&self) -> Option<&Entry> {
        self.entries.front()
    }

    /// The least urgent entry.
    pub fn last(&self) -> Option<&Entry> {
        self.entries.back()
    }

    /// The entry at `position`, the most urgent at 0.
    pub fn get(&self, position: usize) -> Option<&Entry> {
        self.entries.get(position)
    }

    /// Entries from the most to the least urgent.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The longest prefix of at most `max_rows` rows, as its number of entries and its rows. Costs a step an entry of it.
    pub fn prefix(&self, max_rows: usize) -> (usize, usize) {
        let mut taken = (0, 0);
        for entry in &self.entries {
            match taken.1 + entry.rows {
                rows if rows <= max_rows => taken = (taken.0 + 1, rows),
                _ => break,
            }
        }
        taken
    }

    /// Adds an entry at its place: at the end, unless its deadline is shorter than others'.
    pub fn insert(&mut self, entry: Entry) {
        self.rows += entry.rows;
        let place = match self.entries.back() {
            Some(last) if order(last) > order(&entry) => self.entries.partition_point(|e| order(e) < order(&entry)),
            _ => self.entries.len(),
        };
        self.entries.insert(place, entry);
    }

    /// Takes out the entries at these positions; positions beyond the end are passed over.
    pub fn remove(&mut self, positions: Range<usize>) -> impl Iterator<Item = Entry> + '_ {
        let end = positions.end.min(self.entries.len());
        let start = positions.start.min(end);
        self.rows -= self.entries.range(start..end).map(|e| e.rows).sum::<usize>();
        self.entries.drain(start..end)
    }

    /// Takes out the entry with this deadline and id, if it still waits.
    pub fn remove_entry(&mut self, deadline: Instant, id: u64) -> Option<Entry> {
        let position = self.entries.binary_search_by_key(&(deadline, id), order).ok()?;
        let entry = self.entries.remove(position)?;
        self.rows -= entry.rows;
        Some(entry)
    }
}

fn order(entry: &Entry) -> (Instant, u64) {
    (entry.deadline, entry.id)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn entry(id: u64, deadline_ms: u64, rows: usize) -> Entry {
        let deadline = Instant::EPOCH + Duration::from_millis(deadline_ms);
        Entry { id, arrival: Instant::EPOCH, deadline, rows }
    }

    #[test]
    fn one_deadline_for_all_is_first_come_first_served_and_a_shorter_one_goes_before() {
        let mut queue = Queue::new();
        for e in [entry(1, 50, 1), entry(2, 50, 1), entry(3, 60, 2), entry(4, 10, 1), entry(5, 50, 1)] {
            queue.insert(e);
        }
        assert_eq!(queue.iter().map(|e| e.id).collect::<Vec<_>>(), [4, 1, 2, 5, 3]);
        assert_eq!(queue.rows(), 6);
    }

    #[test]
    fn a_prefix_never_splits_an_entry() {
        let mut queue = Queue::new();
        for e in [entry(1, 50, 3), entry(2, 50, 3), entry(3, 50, 1)] {
            queue.insert(e);
        }
        assert_eq!((queue.prefix(5), queue.prefix(6), queue.prefix(100)), ((1, 3), (2, 6), (3, 7)));
        assert_eq!(queue.prefix(2), (0, 0));
    }

    #[test]
    fn what_is_taken_out_is_gone_once() {
        let mut queue = Queue::new();
        for e in [entry(1, 50, 3), entry(2, 50, 4), entry(3, 50, 1)] {
            queue.insert(e);
        }
        let deadline = queue.get(1).expect("three wait").deadline;
        assert_eq!(queue.remove_entry(deadline, 2).map(|e| e.rows), Some(4));
        assert_eq!(queue.remove_entry(deadline, 2), None);
        assert_eq!(queue.remove(1..9).map(|e| e.id).collect::<Vec<_>>(), [3]);
        assert_eq!((queue.len(), queue.rows()), (1, 3));
    }
}
