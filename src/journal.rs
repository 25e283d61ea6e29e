//! What has happened to one model in the last hour, of which two minutes in detail, for the page at `/`.
//!
//! Its batcher's task and its callers' tasks write, whoever asks for a [`Snapshot`] reads. The lock is held for some tens of
//! nanoseconds and never while anything waits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::batcher::{Landed, Learned, Observer, Refused, Released, Rider, SpanRef, Waits};
use crate::error::{Error, Shed};
use crate::estimator::{Fit, Instant};
use crate::policy::ReleaseReason;

/// Columns that are told of: of a second each, or of [`COARSE`].
const COLUMNS: usize = 120;
/// Seconds that a column of the last hour stands for.
const COARSE: u64 = 30;
/// Releases and refusals that are told of.
const LATEST: usize = 20;
/// Timed batches that are told of: enough to see the line they lie on.
const SAMPLES: usize = 128;
/// Refusals for one reason within this time are told as one: a flood would otherwise push out all else.
const TOGETHER: Duration = Duration::from_secs(1);
/// Edges of the latency buckets: so many for each power of ten, from a thousandth of the latency cap to three times of it.
const LATENCY_EDGES_PER_DECADE: i32 = 8;
const LOWEST_EDGE: i32 = -24;
const HIGHEST_EDGE: i32 = 4;

/// One model's journal: an observer of its batcher. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Journal(Arc<Mutex<History>>);

/// How far back is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// In columns of a second.
    TwoMinutes,
    /// In columns of thirty seconds.
    Hour,
}

impl Window {
    /// What a column stands for.
    pub fn step(self) -> Duration {
        Duration::from_secs(match self {
            Window::TwoMinutes => 1,
            Window::Hour => COARSE,
        })
    }
}

/// What is known of a model's last time.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// Seconds since the pool was started.
    pub at: Duration,
    /// What waits, and its bounds.
    pub queue: Waits,
    /// Batches that run.
    pub in_flight: usize,
    /// The estimate of the batch time, as the last batch left it, and since when; `None` before the first batch.
    pub estimate: Option<(Fit, Duration)>,
    /// Rows and time of the latest batches, the newest last.
    pub samples: Vec<(usize, Duration)>,
    /// Upper edges of the buckets of [`Column::batches`], in rows.
    pub batch_edges: Vec<usize>,
    /// Upper edges of the buckets of [`Column::latencies`], behind which there is one more; the latency cap is one of them.
    pub latency_edges: Vec<Duration>,
    /// One for each [step](Window::step), the oldest first; the last one is not over.
    pub columns: Vec<Column>,
    /// The latest releases, the newest first, and how long ago they were.
    pub releases: Vec<(Duration, Release)>,
    /// The latest refusals, the newest first, and how long ago they were.
    pub refusals: Vec<(Duration, Refusal)>,
}

/// What happened in one step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Column {
    /// Steps since the pool was started.
    step: u64,
    /// Batches that came back, by their rows.
    pub batches: Vec<u32>,
    /// Rows in all of them.
    pub rows: u64,
    /// Rows of the largest.
    pub largest: usize,
    /// Answers, by their time since arrival.
    pub latencies: Vec<u32>,
    /// Answers within the latency cap.
    pub on_time: u32,
    /// Answers past it.
    pub late: u32,
    /// Requests refused.
    pub refused: u32,
    /// Requests whose batch failed.
    pub failed: u32,
    /// The most rows that waited.
    pub queue_rows: usize,
    /// Runner time spent.
    pub busy: Duration,
}

/// A batch that went to a runner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Release {
    ticket: u64,
    /// Its requests.
    pub requests: usize,
    /// Their rows.
    pub rows: usize,
    /// Why it was released then.
    pub reason: ReleaseReason,
    /// How long it was held back while a runner was free.
    pub held: Duration,
    /// The time that was expected of it.
    pub predicted: Option<Duration>,
    /// The time that it took; `None` while it runs.
    pub took: Option<Duration>,
}

/// Requests that were refused for one reason.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// Why.
    pub reason: Shed,
    /// How many.
    pub requests: usize,
    /// What the last of them was told, where that had more to say than why.
    pub told: Option<Error>,
}

impl Journal {
    /// The journal of a model with these caps.
    pub fn new(max_latency: Duration, max_batch: usize) -> Journal {
        Journal(Arc::new(Mutex::new(History::new(max_latency, max_batch))))
    }

    /// What has happened until `now`, of which `waits` waits still.
    pub fn snapshot(&self, now: Instant, waits: Waits, window: Window) -> Snapshot {
        self.history().snapshot(now, waits, window)
    }

    /// A request was refused, and no batcher tells of it.
    pub fn refused_apart(&self, at: Instant, reason: Shed, told: Option<Error>) {
        self.history().refused(at, Refusal { reason, requests: 1, told });
    }

    /// Of the requests that were refused, one had a time of its own that was too short: it says nothing of the model.
    pub fn set_aside(&self, at: Instant) {
        self.history().set_aside(at);
    }

    /// A request that had waited for so long rode in a batch that came back, and got no answer; whether the model failed on it alone.
    pub fn unserved(&self, at: Instant, waited: Duration, has_failed: bool) {
        self.history().unserved(at, waited, has_failed);
    }

    /// A lock that a panic poisoned is as good as before: at worst one event is told in half.
    fn history(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Journal {
    fn released(&self, at: Instant, batch: &Released<'_>) -> Option<SpanRef> {
        let &Released { ticket, riders, rows, reason, held, predicted, .. } = batch;
        let release = Release { ticket, requests: riders.len(), rows, reason, held, predicted, took: None };
        self.history().released(at, release);
        None
    }

    fn landed(&self, at: Instant, batch: &Landed<'_>) {
        let (answered, failed) = if batch.failed.is_none() { (batch.riders, 0) } else { (&[][..], batch.riders.len()) };
        let mut history = self.history();
        history.landed(at, batch.ticket, batch.rows, batch.took, answered);
        history.advance(at).failed += failed as u32;
    }

    fn refused(&self, at: Instant, items: &Refused<'_>) {
        let &Refused { reason, items: requests, told, .. } = items;
        let told = Some(Error::from(told.clone()));
        self.history().refused(at, Refusal { reason: Shed::Batcher(reason), requests, told });
    }

    fn learned(&self, at: Instant, batch: &Learned) {
        self.history().learned(at, batch.rows, batch.took, batch.fit.clone());
    }

    fn waits(&self, at: Instant, waits: Waits) {
        self.history().waits(at, waits.rows);
    }
}

/// The journal's memory. Pure: told what time it is.
#[derive(Debug, Clone)]
struct History {
    batch_edges: Vec<usize>,
    latency_edges: Vec<Duration>,
    max_latency: Duration,
    /// The newest last.
    columns: VecDeque<Column>,
    /// What was in columns that are older than these, the newest last.
    coarse: VecDeque<Column>,
    in_flight: usize,
    estimate: Option<(Fit, Instant)>,
    samples: VecDeque<(usize, Duration)>,
    releases: VecDeque<(Instant, Release)>,
    refusals: VecDeque<(Instant, Refusal)>,
    /// So many of those that are refused next are none of the count.
    set_aside: u32,
}

impl History {
    fn new(max_latency: Duration, max_batch: usize) -> History {
        let powers = (0..usize::BITS).map(|i| 1usize << i).take_while(|&n| n < max_batch);
        let edge = |i: i32| max_latency.mul_f64(10f64.powf(f64::from(i) / f64::from(LATENCY_EDGES_PER_DECADE)));
        History {
            batch_edges: powers.chain([max_batch]).collect(),
            latency_edges: (LOWEST_EDGE..=HIGHEST_EDGE).map(edge).collect(),
            max_latency,
            columns: VecDeque::with_capacity(COLUMNS),
            coarse: VecDeque::new(),
            in_flight: 0,
            estimate: None,
            samples: VecDeque::with_capacity(SAMPLES),
            releases: VecDeque::with_capacity(LATEST),
            refusals: VecDeque::with_capacity(LATEST),
            set_aside: 0,
        }
    }

    /// Adds columns up to that of `now`, empty ones for seconds in which nothing happened. Tasks on other threads may come with
    /// a stamp of the second before: what they tell counts in this one.
    fn advance(&mut self, now: Instant) -> &mut Column {
        let second = now.since(Instant::EPOCH).as_secs();
        let next = self.columns.back().map_or(second, |newest| newest.step + 1);
        for step in next.max((second + 1).saturating_sub(COLUMNS as u64))..=second {
            let oldest = if self.columns.len() == COLUMNS { self.columns.pop_front() } else { None };
            if let Some(oldest) = oldest {
                fold(&mut self.coarse, &oldest);
            }
            let empty = Column::empty(step, self.batch_edges.len(), self.latency_edges.len() + 1);
            self.columns.push_back(empty);
        }
        self.columns.back_mut().expect("a column was added where there was none")
    }

    fn released(&mut self, now: Instant, release: Release) {
        self.in_flight += 1;
        push(&mut self.releases, (now, release), LATEST);
    }

    fn landed(&mut self, now: Instant, ticket: u64, rows: usize, time: Duration, answered: &[Rider]) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let release = self.releases.iter_mut().map(|(_, release)| release).find(|release| release.ticket == ticket);
        if let Some(release) = release {
            release.took = Some(time);
        }
        let class = self.batch_edges.iter().position(|&edge| rows <= edge).unwrap_or(self.batch_edges.len() - 1);
        let column = self.advance(now);
        column.batches[class] += 1;
        column.rows += rows as u64;
        column.largest = column.largest.max(rows);
        let (edges, column) = (&self.latency_edges, self.columns.back_mut());
        if let Some(column) = column {
            for rider in answered {
                let took = now.since(rider.arrival);
                column.latencies[edges.partition_point(|&edge| edge < took)] += 1;
                let is_late = took > self.max_latency;
                *if is_late { &mut column.late } else { &mut column.on_time } += 1;
            }
        }
        self.spend(now, time);
    }

    /// Books the time of a batch that ends now on the seconds in which it ran.
    fn spend(&mut self, now: Instant, mut time: Duration) {
        let mut in_column = Duration::from_nanos(now.since(Instant::EPOCH).subsec_nanos().into());
        for column in self.columns.iter_mut().rev() {
            let part = time.min(in_column);
            column.busy += part;
            time -= part;
            in_column = Duration::from_secs(1);
            if time.is_zero() {
                return;
            }
        }
    }

    fn learned(&mut self, now: Instant, rows: usize, time: Duration, fit: Fit) {
        self.estimate = Some((fit, now));
        push(&mut self.samples, (rows, time), SAMPLES);
    }

    fn refused(&mut self, now: Instant, refusal: Refusal) {
        let aside = self.set_aside.min(refusal.requests as u32);
        self.set_aside -= aside;
        self.advance(now).refused += refusal.requests as u32 - aside;
        if let Some((at, last)) = self.refusals.back_mut()
            && last.reason == refusal.reason
            && now.since(*at) < TOGETHER
        {
            last.requests += refusal.requests;
            last.told = refusal.told;
            return;
        }
        push(&mut self.refusals, (now, refusal), LATEST);
    }

    /// Takes one of those that were refused last out of their count, or one that is to come: callers may hear it before this does.
    fn set_aside(&mut self, now: Instant) {
        self.advance(now);
        match self.columns.iter_mut().rev().find(|column| column.refused > 0) {
            Some(column) => column.refused -= 1,
            None => self.set_aside += 1,
        }
    }

    /// Takes one of those that were answered last, which had waited for so long, out of their count. It was answered a moment ago.
    fn unserved(&mut self, now: Instant, waited: Duration, has_failed: bool) {
        self.advance(now).failed += u32::from(has_failed);
        let bucket = self.latency_edges.partition_point(|&edge| edge < waited);
        let is_late = waited > self.max_latency;
        let of_it = |column: &&mut Column| column.latencies[..=bucket].iter().any(|&answers| answers > 0);
        let Some(column) = self.columns.iter_mut().rev().find(of_it) else { return };
        if let Some(answers) = column.latencies[..=bucket].iter_mut().rev().find(|answers| **answers > 0) {
            *answers -= 1;
        }
        let (first, other) = match is_late {
            true => (&mut column.late, &mut column.on_time),
            false => (&mut column.on_time, &mut column.late),
        };
        let counted = if *first > 0 { first } else { other };
        *counted = counted.saturating_sub(1);
    }

    fn waits(&mut self, now: Instant, rows: usize) {
        let column = self.advance(now);
        column.queue_rows = column.queue_rows.max(rows);
    }

    fn snapshot(&mut self, now: Instant, queue: Waits, window: Window) -> Snapshot {
        self.advance(now);
        let columns = match window {
            Window::TwoMinutes => self.columns.iter().cloned().collect(),
            Window::Hour => {
                let mut coarse = self.coarse.clone();
                self.columns.iter().for_each(|column| fold(&mut coarse, column));
                coarse.into()
            }
        };
        Snapshot {
            at: now.since(Instant::EPOCH),
            queue,
            in_flight: self.in_flight,
            estimate: self.estimate.clone().map(|(fit, at)| (fit, now.since(at))),
            samples: self.samples.iter().copied().collect(),
            batch_edges: self.batch_edges.clone(),
            latency_edges: self.latency_edges.clone(),
            columns,
            releases: self.releases.iter().rev().map(|&(at, release)| (now.since(at), release)).collect(),
            refusals: self.refusals.iter().rev().map(|(at, refusal)| (now.since(*at), refusal.clone())).collect(),
        }
    }
}

impl Column {
    fn empty(step: u64, sizes: usize, latencies: usize) -> Column {
        Column { step, batches: vec![0; sizes], latencies: vec![0; latencies], ..Column::default() }
    }

    /// Adds what happened in a part of this step.
    fn add(&mut self, part: &Column) {
        let add = |sums: &mut Vec<u32>, parts: &[u32]| sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
        add(&mut self.batches, &part.batches);
        add(&mut self.latencies, &part.latencies);
        self.rows += part.rows;
        self.largest = self.largest.max(part.largest);
        self.on_time += part.on_time;
        self.late += part.late;
        self.refused += part.refused;
        self.failed += part.failed;
        self.queue_rows = self.queue_rows.max(part.queue_rows);
        self.busy += part.busy;
    }
}

/// Adds a second, which is not older than the last, to columns that stand for more of them: an hour's at most.
fn fold(coarse: &mut VecDeque<Column>, second: &Column) {
    let step = second.step / COARSE;
    let next = coarse.back().map_or(step, |newest| newest.step + 1);
    for step in next.max((step + 1).saturating_sub(COLUMNS as u64))..=step {
        push(coarse, Column::empty(step, second.batches.len(), second.latencies.len()), COLUMNS);
    }
    coarse.back_mut().expect("a column was added where there was none").add(second);
}

/// Adds to the end of a list of at most so many, of which the first gives way.
fn push<T>(list: &mut VecDeque<T>, last: T, most: usize) {
    if list.len() == most {
        list.pop_front();
    }
    list.push_back(last);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batcher::{self, BatchError, RefusalReason};
    use crate::policy::ShedReason;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u32) -> Instant {
        Instant::EPOCH + MS * ms
    }

    fn history() -> History {
        History::new(MS * 50, 100)
    }

    fn queue() -> Waits {
        Waits { rows: 0, max_rows: 1, bytes: 0, max_bytes: 1 }
    }

    fn release(ticket: u64, rows: usize) -> Release {
        let (reason, held, predicted) = (ReleaseReason::Ripe, Duration::ZERO, Some(MS * 10));
        Release { ticket, requests: rows, rows, reason, held, predicted, took: None }
    }

    fn late(requests: usize) -> Refusal {
        let told = batcher::Error::Late { predicted_ms: 60.0, deadline_ms: 50.0, retry_after: Some(MS) };
        let reason = Shed::Batcher(RefusalReason::Shed(ShedReason::BatchTooLate));
        Refusal { reason, requests, told: Some(told.into()) }
    }

    #[test]
    fn a_batch_is_told_by_its_rows_its_answers_by_their_latency_and_the_cap_is_an_edge() {
        let mut history = history();
        history.released(at(100), release(7, 65));
        let answered = [60, 59, 100].map(|ms| Rider { arrival: at(ms), span: None });
        history.landed(at(110), 7, 65, MS * 10, &answered);
        let told = history.snapshot(at(200), queue(), Window::TwoMinutes);
        assert_eq!(told.batch_edges, [1, 2, 4, 8, 16, 32, 64, 100]);
        assert_eq!(told.columns.len(), 1);
        let column = &told.columns[0];
        assert_eq!(column.batches, [0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!((column.rows, column.largest), (65, 65), "as they were, and not as their bucket");
        let cap = told.latency_edges.iter().position(|&edge| edge == MS * 50).expect("the cap is an edge");
        assert_eq!((column.latencies[cap], column.latencies[cap + 1]), (1, 1), "exactly at the cap is within it");
        assert_eq!((column.on_time, column.late), (2, 1));
        assert_eq!(told.releases[0].0, MS * 100);
        assert_eq!(told.releases[0].1.took, Some(MS * 10));
    }

    #[test]
    fn a_batch_across_seconds_keeps_its_runner_busy_in_each() {
        let mut history = history();
        history.waits(at(500), 3);
        history.waits(at(1500), 9);
        history.landed(at(2250), 0, 1, MS * 2000, &[]);
        let told = history.snapshot(at(2250), queue(), Window::TwoMinutes);
        assert_eq!(told.columns.iter().map(|c| c.busy).collect::<Vec<_>>(), [MS * 750, MS * 1000, MS * 250]);
        assert_eq!(told.columns.iter().map(|c| c.queue_rows).collect::<Vec<_>>(), [3, 9, 0]);
    }

    #[test]
    fn two_minutes_are_remembered_and_quiet_seconds_are_columns_too() {
        let mut history = history();
        history.refused(at(0), late(5));
        history.refused(at(119_999), late(1));
        assert_eq!(
            history.snapshot(at(119_999), queue(), Window::TwoMinutes).columns.iter().map(|c| c.refused).sum::<u32>(),
            6
        );
        let told = history.snapshot(at(120_000), queue(), Window::TwoMinutes);
        assert_eq!(told.columns.len(), COLUMNS);
        assert_eq!(told.columns.iter().map(|c| c.refused).sum::<u32>(), 1);
        assert_eq!(told.columns[COLUMNS - 2].refused, 1);
        // However long nothing was heard, catching up is bounded.
        let told = history.snapshot(Instant::FAR_FUTURE, queue(), Window::TwoMinutes);
        assert_eq!(told.columns.iter().map(|c| c.refused).sum::<u32>(), 0);
    }

    #[test]
    fn an_hour_is_remembered_in_columns_of_thirty_seconds_and_nothing_counts_twice() {
        let mut history = history();
        for second in 0..4000 {
            history.landed(at(second * 1000 + 999), 0, 1 + second as usize % 100, MS, &[]);
        }
        history.refused(at(3_999_999), late(7));
        let told = history.snapshot(at(3_999_999), queue(), Window::Hour);
        assert_eq!(told.columns.len(), COLUMNS);
        let (last, whole) = told.columns.split_last().expect("there are some");
        let batches = |column: &Column| column.batches.iter().sum::<u32>();
        assert!(whole.iter().all(|column| batches(column) == 30 && column.busy == MS * 30), "{whole:?}");
        assert_eq!((batches(last), last.refused), (10, 7), "seconds 3,990 to 3,999");
        assert_eq!((last.largest, last.rows), (100, (91..=100).sum()));
        // After a long silence, too.
        let told = history.snapshot(at(40_000_000), queue(), Window::Hour);
        assert!(told.columns.len() <= COLUMNS && told.columns.iter().all(|column| batches(column) == 0));
    }

    #[test]
    fn a_batch_that_fails_is_told_as_such() {
        let journal = Journal::new(MS * 50, 100);
        let riders = [60, 59].map(|ms| Rider { arrival: at(ms), span: None });
        let why = BatchError::new("no");
        let failed = Some(&why);
        journal.landed(
            at(70),
            &Landed { ticket: 1, riders: &riders, rows: 2, predicted: None, took: MS, span: None, failed },
        );
        let told = journal.snapshot(at(80), queue(), Window::TwoMinutes);
        assert_eq!((told.columns[0].failed, told.columns[0].on_time), (2, 0));
    }

    #[test]
    fn who_is_refused_unread_counts_among_the_refused() {
        let journal = Journal::new(MS * 50, 100);
        for i in 0..3 {
            journal.refused_apart(at(i), Shed::Unread, None);
        }
        let told = journal.snapshot(at(10), queue(), Window::TwoMinutes);
        assert_eq!(told.columns[0].refused, 3);
        assert_eq!(told.refusals.iter().map(|(_, r)| (r.reason, r.requests)).collect::<Vec<_>>(), [(Shed::Unread, 3)]);
    }

    #[test]
    fn who_got_no_answer_out_of_a_batch_that_came_back_is_not_among_the_answered() {
        let mut history = history();
        let answered = [60, 59, 100].map(|ms| Rider { arrival: at(ms), span: None });
        history.landed(at(999), 0, 3, MS * 10, &answered[..1]);
        history.landed(at(110), 0, 3, MS * 10, &answered[1..]);
        // It hears of it in the next second.
        history.unserved(at(1002), MS * 942, false);
        history.unserved(at(1003), MS * 15, true);
        history.refused(at(1003), late(1));
        let told = history.snapshot(at(1003), queue(), Window::TwoMinutes);
        let all = |of: fn(&Column) -> u32| told.columns.iter().map(of).sum::<u32>();
        assert_eq!((all(|c| c.on_time), all(|c| c.late), all(|c| c.failed), all(|c| c.refused)), (0, 1, 1, 1));
        assert_eq!(all(|c| c.latencies.iter().sum()), 1);
        // And of one whose second is forgotten.
        history.unserved(Instant::FAR_FUTURE, MS, false);
    }

    #[test]
    fn a_time_of_a_caller_s_own_that_was_too_short_is_told_and_is_none_of_the_refused() {
        let mut history = history();
        history.refused(at(999), late(2));
        history.set_aside(at(1000));
        let told = history.snapshot(at(1000), queue(), Window::TwoMinutes);
        assert_eq!(told.columns.iter().map(|c| c.refused).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(told.refusals[0].1.requests, 2);
        // Who is set aside may be so before he is counted.
        (0..3).for_each(|_| history.set_aside(at(1000)));
        history.refused(at(1001), late(3));
        let told = history.snapshot(at(1001), queue(), Window::TwoMinutes);
        assert_eq!(told.columns.iter().map(|c| c.refused).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn a_flood_of_refusals_for_one_reason_is_told_as_one() {
        let mut history = history();
        for i in 0..500 {
            history.refused(at(i), late(2));
        }
        let full = batcher::Error::Full { queued: 4, bound: 4, unit: "rows", retry_after: MS };
        let reason = Shed::Batcher(RefusalReason::RowsBound);
        history.refused(at(500), Refusal { reason, requests: 1, told: Some(full.into()) });
        history.refused(at(501), late(1));
        let told: Vec<_> = history
            .snapshot(at(501), queue(), Window::TwoMinutes)
            .refusals
            .into_iter()
            .map(|(_, r)| r.requests)
            .collect();
        assert_eq!(told, [1, 1, 1000]);
    }

    #[test]
    fn only_the_latest_are_told_of_however_many_there_were() {
        let mut history = history();
        for i in 0..1000u32 {
            history.released(at(i), release(i.into(), 1));
            history.landed(at(i), i.into(), 1, MS, &[]);
            history.learned(at(i), 1, MS, Fit::UNKNOWN);
            history.refused(at(i * 2000), late(1));
        }
        let told = history.snapshot(at(2_000_000), queue(), Window::TwoMinutes);
        assert_eq!((told.releases.len(), told.refusals.len(), told.samples.len()), (LATEST, LATEST, SAMPLES));
        assert_eq!(told.releases[0].1.ticket, 999);
        assert_eq!(told.in_flight, 0);
    }
}
