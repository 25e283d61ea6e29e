//! Entries that wait, the most urgent first.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use super::caller::Holding;
use super::{Caller, Priority};
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
    /// Who goes first, before any deadline is compared.
    pub priority: Priority,
    /// Whose it is.
    pub caller: Caller,
}

impl Entry {
    /// How long its caller gives from its arrival on.
    pub(super) fn given(&self) -> Duration {
        self.deadline.since(self.arrival)
    }

    /// One row of the default priority, of nobody in particular.
    #[must_use]
    pub fn new(id: u64, arrival: Instant, deadline: Instant) -> Entry {
        Entry { id, arrival, deadline, rows: 1, priority: Priority::DEFAULT, caller: Caller::default() }
    }
}

/// Entries in the order in which they are served: by priority, then by deadline, then by id. With one priority and one
/// common latency cap that is first come, first served.
#[derive(Debug, Clone, Default)]
pub struct Queue {
    entries: VecDeque<Placed>,
    /// Rows of everything that ever stood before the present first entry.
    gone: u64,
    newest: Instant,
    /// What callers who are told apart have here and were given of late, by priority and caller.
    held: BTreeMap<(Priority, u64), Holding>,
    /// Rows that these were given.
    served: u64,
}

/// Batches that are looked at one by one to find out which one an entry will ride in.
const LOOKED_AT: usize = 16;

/// Where an entry will ride.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ride {
    /// Batches that go before its own.
    pub(super) ahead: usize,
    /// Rows of its own batch up to it, its own among them.
    pub(super) rows: usize,
    /// Rows of a batch that is as full as it gets, on average.
    pub(super) full: usize,
}

/// An entry, and the rows up to its end counted from the beginning of time: the rows of any prefix are a subtraction.
#[derive(Debug, Clone, Copy)]
struct Placed {
    entry: Entry,
    end: u64,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Queue {
        Queue::default()
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Rows of all entries.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.entries.back().map_or(0, |last| (last.end - self.gone) as usize)
    }

    /// The most urgent entry.
    #[must_use]
    pub fn first(&self) -> Option<&Entry> {
        self.get(0)
    }

    /// The least urgent entry.
    #[must_use]
    pub fn last(&self) -> Option<&Entry> {
        self.entries.back().map(|placed| &placed.entry)
    }

    /// The entry at `position`, the most urgent at 0.
    #[must_use]
    pub fn get(&self, position: usize) -> Option<&Entry> {
        self.entries.get(position).map(|placed| &placed.entry)
    }

    /// When the latest of all entries arrived, those that have left among them.
    #[must_use]
    pub fn newest_arrival(&self) -> Instant {
        self.newest
    }

    /// Entries from the most to the least urgent.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(|placed| &placed.entry)
    }

    /// The longest prefix of at most `max_rows` rows, as its number of entries and its rows.
    #[must_use]
    pub fn prefix(&self, max_rows: usize) -> (usize, usize) {
        if self.rows() <= max_rows {
            return (self.len(), self.rows());
        }
        let most = self.gone.saturating_add(max_rows as u64);
        // Each has at least one row, and nearly always exactly one: no search then.
        let fits = |placed: &Placed| placed.end <= most;
        let entries = match max_rows.min(self.len()) {
            all if all == 0 || fits(&self.entries[all - 1]) => all,
            _ => self.entries.partition_point(fits),
        };
        (entries, self.rows_of(entries))
    }

    /// How the entry at `position` will ride, if batches have at most `max_rows` rows and no entry is cut. Of many batches the first few are looked at,
    /// and the others are taken to be full: nobody is refused for batches that will not be.
    pub(super) fn ride(&self, position: usize, max_rows: usize) -> Ride {
        let before = self.rows_of(position);
        let own = self.get(position).map_or(0, |entry| entry.rows);
        // Where all have one row, batches are full.
        let looked_at = if self.rows() == self.len() { 0 } else { LOOKED_AT };
        let (mut from, mut ahead, mut rows) = (0, 0, 0);
        while ahead < looked_at {
            let end = self.prefix(rows + max_rows).0.max(from + 1);
            if end > position {
                break;
            }
            (from, ahead, rows) = (end, ahead + 1, self.rows_of(end));
        }
        let full = if ahead == 0 { max_rows } else { rows.div_ceil(ahead) };
        let rest = before - rows;
        Ride { ahead: ahead + rest / max_rows, rows: rest % max_rows + own, full }
    }

    /// Positions of the entries of each priority that waits, the most urgent first. Each level is in order of deadlines.
    pub fn levels(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut start = 0;
        std::iter::from_fn(move || {
            let end = self.level_end(start)?;
            Some(std::mem::replace(&mut start, end)..end)
        })
    }

    /// The position behind the last entry of the priority of the one at `position`, if there is one.
    pub(super) fn level_end(&self, position: usize) -> Option<usize> {
        let (level, last) = (self.get(position)?.priority, self.last()?.priority);
        // Nearly always there is one level: no search then.
        let end = || self.entries.partition_point(|placed| placed.entry.priority <= level);
        Some(if level == last { self.len() } else { end() })
    }

    /// The position of the one that is due first among the first `entries`.
    pub(super) fn due_first(&self, entries: usize) -> Option<usize> {
        if self.first()?.priority == self.last()?.priority {
            return (entries > 0).then_some(0); // nearly always
        }
        let heads = self.levels().map(|level| level.start).take_while(|head| *head < entries);
        heads.min_by_key(|&head| self.get(head).map(|entry| entry.deadline))
    }

    /// Rows of the first `entries`.
    pub(super) fn rows_of(&self, entries: usize) -> usize {
        entries.checked_sub(1).map_or(0, |last| (self.entries[last].end - self.gone) as usize)
    }

    /// Those of this level that are due before `instant`.
    pub(super) fn due_before(&self, level: Range<usize>, instant: Instant) -> Range<usize> {
        let priority = self.get(level.start).map(|entry| entry.priority);
        let place = |entry: &Entry| (Some(entry.priority), entry.deadline);
        level.start..self.entries.partition_point(|placed| place(&placed.entry) < (priority, instant))
    }

    /// Rows of those that are due before `instant`.
    pub(super) fn rows_due_before(&self, instant: Instant) -> usize {
        let due = self.levels().map(|level| self.due_before(level, instant));
        due.map(|due| self.rows_of(due.end) - self.rows_of(due.start)).sum()
    }

    /// What callers take in this priority of whom something waits.
    fn holdings(&self, priority: Priority) -> impl Iterator<Item = &Holding> {
        self.held
            .range((priority, 0)..=(priority, u64::MAX))
            .map(|(_, holding)| holding)
            .filter(|holding| holding.rows > 0)
    }

    /// Whether another caller takes at least three times as much in its priority as the one of the entry at `position`, by weight.
    pub(super) fn has_little(&self, position: usize) -> bool {
        let Some(Entry { priority, caller, .. }) = self.get(position) else { return false };
        let own = self.held.get(&(*priority, caller.id));
        own.is_some_and(|own| self.holdings(*priority).any(|other| other.times(3, own).is_ge()))
    }

    /// The position of the entry that makes room for the one at `position`, where another caller takes more in its priority: the last of
    /// whoever takes most, by weight, of those who have one among the first `before`. `None` where nobody does, or would be left with less than whom he makes room
    /// for.
    pub(super) fn in_place_of(&self, position: usize, before: usize) -> Option<usize> {
        let Entry { priority, caller, .. } = *self.get(position)?;
        let own = self.held.get(&(priority, caller.id))?;
        let end = self.get(before).filter(|end| end.priority == priority).map(|end| (end.deadline, end.id));
        let last = |holding: &Holding| match &end {
            Some(end) => holding.waiting.range(..end).next_back().copied(),
            None => holding.waiting.last().copied(),
        };
        let before = self.holdings(priority).filter_map(|holding| Some((holding, last(holding)?)));
        let (most, (deadline, id)) = before.max_by(|(a, _), (b, _)| a.compare(b))?;
        if most.compare(own).is_le() {
            return None;
        }
        let at = self.place((priority, deadline, id)).ok()?;
        most.without(self.get(at)?.rows, own).is_ge().then_some(at)
    }

    /// The position of each caller's first entry behind the first `entries`, of those who are told apart, in each priority.
    pub(super) fn heads_of_callers(&self, entries: usize) -> impl Iterator<Item = usize> {
        let behind = |(level, deadline, id)| {
            let head = move |(&(priority, _), holding): (&(Priority, u64), &Holding)| {
                let first = match priority.cmp(&level) {
                    Ordering::Less => None,
                    Ordering::Equal => holding.waiting.range((deadline, id)..).next(),
                    Ordering::Greater => holding.waiting.first(),
                };
                first.and_then(|(deadline, id)| self.place((priority, *deadline, *id)).ok())
            };
            self.held.iter().filter_map(head)
        };
        self.get(entries).map(order).map(behind).into_iter().flatten()
    }

    /// Rows that others have waiting in the priority of the entry at `position` beyond what its caller has, by weight.
    pub(super) fn spare_beside(&self, position: usize) -> u64 {
        let Some(Entry { priority, caller, .. }) = self.get(position) else { return 0 };
        let Some(own) = self.held.get(&(*priority, caller.id)) else { return 0 };
        let part = |other: &Holding| own.rows * u64::from(other.weight.get()) / u64::from(own.weight.get());
        let all = self.held.range((*priority, 0)..=(*priority, u64::MAX));
        all.map(|(_, other)| other.rows.saturating_sub(part(other))).sum()
    }

    /// Adds its rows to what its caller has.
    fn take_up(&mut self, entry: &Entry) {
        if entry.caller.id != 0 {
            let holding = self.held.entry((entry.priority, entry.caller.id)).or_default();
            (holding.rows, holding.weight) = (holding.rows + entry.rows as u64, entry.caller.weight);
            holding.waiting.insert((entry.deadline, entry.id));
        }
    }

    /// Takes in that these went into a batch. What callers were given is remembered: where it comes to more than `most` rows, all that was given
    /// counts half from then on.
    pub(super) fn served(&mut self, entries: &[Entry], most: u64) {
        for entry in entries.iter().filter(|entry| entry.caller.id != 0) {
            let holding = self.held.entry((entry.priority, entry.caller.id)).or_default();
            (holding.served, holding.weight) = (holding.served + entry.rows as u64, entry.caller.weight);
            self.served += entry.rows as u64;
        }
        if self.served > most {
            self.held.values_mut().for_each(|holding| holding.served /= 2);
            self.held.retain(|_, holding| holding.rows + holding.served > 0);
            self.served = self.held.values().map(|holding| holding.served).sum();
        }
    }

    /// Adds an entry at its place: at the end, unless its priority is more urgent or its deadline shorter than others'.
    pub fn insert(&mut self, entry: Entry) {
        self.newest = self.newest.max(entry.arrival);
        self.take_up(&entry);
        let place = match self.last() {
            Some(last) if order(last) > order(&entry) => {
                self.entries.partition_point(|placed| order(&placed.entry) < order(&entry))
            }
            _ => self.entries.len(),
        };
        let before = place.checked_sub(1).map_or(self.gone, |i| self.entries[i].end);
        let rows = entry.rows as u64;
        self.entries.insert(place, Placed { entry, end: before + rows });
        self.entries.range_mut(place + 1..).for_each(|placed| placed.end += rows);
    }

    /// Takes out the entries at these positions; positions beyond the end are passed over.
    pub fn remove(&mut self, positions: Range<usize>) -> impl Iterator<Item = Entry> + '_ {
        let end = positions.end.min(self.entries.len());
        let start = positions.start.min(end);
        if start == 0 {
            self.gone = end.checked_sub(1).map_or(self.gone, |last| self.entries[last].end);
        } else {
            let rows: u64 = self.entries.range(start..end).map(|placed| placed.entry.rows as u64).sum();
            self.entries.range_mut(end..).for_each(|placed| placed.end -= rows);
        }
        if !self.held.is_empty() {
            self.entries.range(start..end).for_each(|placed| let_go(&mut self.held, &placed.entry));
        }
        self.entries.drain(start..end).map(|placed| placed.entry)
    }

    /// Takes this entry out, if it still waits.
    pub fn remove_entry(&mut self, entry: &Entry) -> Option<Entry> {
        let position = self.position(entry)?;
        self.remove(position..position + 1).last()
    }

    /// Where this entry waits, if it does.
    pub(super) fn position(&self, entry: &Entry) -> Option<usize> {
        self.place(order(entry)).ok()
    }

    /// Where the entry of this order stands, or would.
    fn place(&self, wanted: (Priority, Instant, u64)) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&wanted, |placed| order(&placed.entry))
    }
}

/// Takes its rows from what its caller has.
fn let_go(held: &mut BTreeMap<(Priority, u64), Holding>, entry: &Entry) {
    let key = (entry.priority, entry.caller.id);
    if let Some(holding) = held.get_mut(&key) {
        holding.rows -= entry.rows as u64;
        holding.waiting.remove(&(entry.deadline, entry.id));
        if holding.rows + holding.served == 0 {
            held.remove(&key);
        }
    }
}

fn order(entry: &Entry) -> (Priority, Instant, u64) {
    (entry.priority, entry.deadline, entry.id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn entry(id: u64, deadline_ms: u64, rows: usize) -> Entry {
        let deadline = Instant::EPOCH + Duration::from_millis(deadline_ms);
        Entry { rows, ..Entry::new(id, Instant::EPOCH, deadline) }
    }

    #[test]
    fn more_urgent_levels_stand_before_others_whatever_the_deadlines() {
        let mut queue = Queue::new();
        let of = |priority, entry| Entry { priority, ..entry };
        let (high, low) = (Priority::HIGHEST, Priority::LOWEST);
        for e in [entry(1, 50, 1), of(high, entry(2, 60, 2)), of(low, entry(3, 10, 4)), of(high, entry(4, 40, 8))] {
            queue.insert(e);
        }
        assert_eq!(queue.iter().map(|e| e.id).collect::<Vec<_>>(), [4, 2, 1, 3]);
        assert!(queue.levels().eq([0..2, 2..3, 3..4]));
        assert_eq!((queue.due_first(4), queue.due_first(3), queue.due_first(0)), (Some(3), Some(0), None));
        let at = |ms| Instant::EPOCH + Duration::from_millis(ms);
        assert_eq!((queue.rows_due_before(at(10)), queue.rows_due_before(at(60)), queue.rows_of(3)), (0, 13, 11));
        let low = queue.remove_entry(&of(low, entry(3, 10, 4)));
        assert_eq!((low.map(|e| e.id), queue.rows()), (Some(3), 11));
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
        assert_eq!(queue.remove_entry(&entry(2, 50, 4)).map(|e| e.rows), Some(4));
        assert_eq!(queue.remove_entry(&entry(2, 50, 4)), None);
        assert_eq!(queue.remove(1..9).map(|e| e.id).collect::<Vec<_>>(), [3]);
        assert_eq!((queue.len(), queue.rows()), (1, 3));
    }

    #[test]
    fn the_newest_arrival_is_the_latest_stamp_not_the_latest_heard() {
        let mut queue = Queue::new();
        for (id, arrival_ms) in [(1, 5), (2, 3)] {
            let arrival = Instant::EPOCH + Duration::from_millis(arrival_ms);
            queue.insert(Entry { arrival, ..entry(id, 50, 1) });
        }
        queue.remove(0..2).for_each(drop);
        assert_eq!(queue.newest_arrival(), Instant::EPOCH + Duration::from_millis(5));
    }

    fn of(id: u64, weight: u32) -> Caller {
        Caller { id, weight: weight.try_into().unwrap(), ..Caller::default() }
    }

    /// A queue of one row each of these callers, by id and weight.
    fn queue_of(callers: &[(u64, u32)]) -> Queue {
        let mut queue = Queue::new();
        for (&(id, weight), place) in callers.iter().zip(0..) {
            queue.insert(Entry { caller: of(id, weight), ..entry(place, 50, 1) });
        }
        queue
    }

    #[test]
    fn whoever_has_most_by_weight_makes_room_with_what_came_last() {
        let last = |callers: &[(u64, u32)]| queue_of(callers).in_place_of(callers.len() - 1, callers.len() - 1);
        assert_eq!(last(&[(1, 1), (1, 1), (2, 1), (1, 1), (2, 1), (3, 1)]), Some(3));
        assert_eq!(last(&[(1, 1), (1, 1), (2, 1)]), Some(1));
        assert_eq!(last(&[(1, 1), (2, 1)]), None, "as many each");
        assert_eq!(last(&[(1, 1), (2, 1), (1, 1)]), None, "it is his own who has most");
        assert_eq!(last(&[(1, 3), (1, 3), (1, 3), (2, 1)]), None, "three are his part");
        assert_eq!(last(&[(1, 1), (1, 1), (2, 3), (2, 3), (2, 3)]), Some(1), "and here one");
        assert_eq!(last(&[(0, 1), (0, 1), (0, 1), (2, 1)]), None, "nobody takes any from those who are not told apart");
        assert_eq!(last(&[(1, 1), (1, 1), (1, 1), (0, 1)]), None, "nor do they");
    }

    #[test]
    fn nobody_is_left_with_less_than_whom_he_makes_room_for_nor_does_it_for_another_level() {
        let mut large = Queue::new();
        large.insert(Entry { caller: of(1, 1), ..entry(0, 50, 8) });
        large.insert(Entry { caller: of(2, 1), ..entry(1, 50, 2) });
        assert_eq!(large.in_place_of(1, 1), None, "eight rows would go for two");
        large.insert(Entry { caller: of(1, 1), ..entry(2, 50, 6) });
        large.insert(Entry { caller: of(2, 1), ..entry(3, 50, 2) });
        assert_eq!(large.in_place_of(3, 3), Some(2));
        let mut levels = queue_of(&[(1, 1), (1, 1), (1, 1)]);
        levels.insert(Entry { caller: of(2, 1), priority: Priority::LOWEST, ..entry(9, 50, 1) });
        assert_eq!(levels.in_place_of(3, 3), None);
    }

    #[test]
    fn whoever_was_given_more_of_late_makes_room_though_less_of_his_waits() {
        let mut queue = queue_of(&[(1, 1), (2, 1), (2, 1)]);
        assert_eq!(queue.in_place_of(0, 3), Some(2));
        let batch: Vec<Entry> = (0..4).map(|id| Entry { caller: of(1, 1), ..entry(10 + id, 40, 1) }).collect();
        queue.served(&batch, 100);
        assert_eq!((queue.in_place_of(0, 3), queue.in_place_of(2, 2)), (None, Some(0)));
        assert!(queue.has_little(2) && !queue.has_little(0));
        // Who has nothing before it has no room to make: the next one has.
        assert_eq!(queue.in_place_of(1, 1), Some(0));
        queue.insert(Entry { caller: of(3, 1), ..entry(20, 60, 1) });
        queue.remove(0..1).for_each(drop);
        queue.insert(Entry { caller: of(1, 1), ..entry(21, 70, 1) });
        assert_eq!(queue.in_place_of(2, 2), Some(1), "the first takes most, and stands behind");
        queue.remove(2..3).for_each(drop);
        queue.remove(2..3).for_each(drop);
        queue.insert(Entry { caller: of(1, 1), ..entry(0, 50, 1) });
        // What was given counts half again and again, and is forgotten.
        (0..4).for_each(|_| queue.served(&[], 0));
        assert_eq!(queue.in_place_of(0, 3), Some(2));
        queue.remove(0..3).for_each(drop);
        assert!(queue.held.is_empty());
    }

    #[test]
    fn each_caller_s_first_is_found_behind_those_who_go_next() {
        let mut queue = queue_of(&[(1, 1), (2, 1), (1, 1), (3, 1), (2, 1), (0, 1)]);
        queue.insert(Entry { caller: of(2, 1), priority: Priority::LOWEST, ..entry(9, 50, 1) });
        let heads = |entries| queue.heads_of_callers(entries).collect::<Vec<_>>();
        assert_eq!((heads(0), heads(2), heads(6), heads(7)), (vec![0, 1, 3, 6], vec![2, 4, 3, 6], vec![6], vec![]));
    }

    #[test]
    fn requests_ride_in_batches_that_are_as_full_as_these_fit() {
        let ride = |rows: &[usize], max_rows| {
            let mut queue = Queue::new();
            rows.iter().zip(0..).for_each(|(rows, id)| queue.insert(entry(id, id, *rows)));
            let Ride { ahead, rows, full } = queue.ride(rows.len() - 1, max_rows);
            (ahead, rows, full)
        };
        assert_eq!(ride(&[1; 5], 2), (2, 1, 2));
        assert_eq!(ride(&[16; 3], 31), (2, 16, 16));
        assert_eq!(ride(&[3, 3, 2], 5), (1, 5, 3));
        assert_eq!(ride(&[3, 1], 5), (0, 4, 5));
        // Beyond those that are looked at, batches are full: 4 of 64 rows in place of 8 with 32.
        assert_eq!(ride(&[33; 25], 64), (LOOKED_AT + 4, 33 + 8 * 33 % 64, 33));
    }

    proptest! {
        /// Whatever comes and goes: what callers are taken to have is what stands there.
        #[test]
        fn what_callers_have_is_what_waits_of_them(
            steps in prop::collection::vec((0u64..4, 1u64..=3, 1usize..9, 0u64..60, 0usize..8, 0usize..4), 0..80),
        ) {
            let mut queue = Queue::new();
            for ((caller, level, rows, deadline, from, count), id) in steps.into_iter().zip(0..) {
                let priority = Priority::new(level).unwrap();
                queue.insert(Entry { caller: of(caller, 1 + caller as u32), priority, ..entry(id, deadline, rows) });
                // Not all that is taken out is looked at.
                let gone: Vec<Entry> = queue.remove(from..from + count).take(1).collect();
                queue.served(&gone, 20);
                let mut held: BTreeMap<(Priority, u64), (u64, BTreeSet<_>)> = BTreeMap::new();
                for entry in queue.iter().filter(|entry| entry.caller.id != 0) {
                    let (rows, waiting) = held.entry((entry.priority, entry.caller.id)).or_default();
                    *rows += entry.rows as u64;
                    waiting.insert((entry.deadline, entry.id));
                }
                let has_some = queue.held.iter().filter(|(_, own)| own.rows > 0);
                prop_assert!(has_some.map(|(key, own)| (*key, (own.rows, own.waiting.clone()))).eq(held));
                prop_assert!(queue.served <= 20 && queue.held.values().all(|own| own.rows + own.served > 0));
                prop_assert_eq!(queue.served, queue.held.values().map(|own| own.served).sum::<u64>());
            }
        }
    }
}
