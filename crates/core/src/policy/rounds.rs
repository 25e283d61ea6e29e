//! For how many of a crowd to wait, learned by playing rounds with it.
//!
//! N callers each wait for an answer, think, and ask again. To wait for all of them makes the largest batches, and each of those
//! waits for the slowest. Two halves can think in turns, the one while the other is served. Or nobody is waited for. Which is
//! best depends on how long they think, and on how much that scatters. No replay of arrivals could tell: they follow from what
//! was released. But how long callers thought is known, and so are batch times: what each way would have made of callers who think
//! so is computed. Where a way has been gone for long enough, what came of it counts instead.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::VecDeque;
use std::time::Duration;

use crate::estimator::{Fit, Instant, Turn};

/// Besides all: parts of the callers to wait for, where all that have come then go. The last is nobody but the first.
const PARTS: [(usize, usize); 8] = [(15, 16), (7, 8), (3, 4), (1, 2), (1, 3), (1, 4), (1, 8), (0, 1)];
/// Groups that take turns, at most: so many at one runner, one more for each other, and never more than the last.
const GROUPS: usize = 4;
const MOST_GROUPS: usize = 16;
/// Arrivals between two looks at the crowd.
const BLOCK: usize = 64;
/// Arrivals without a refusal after which the crowd is looked at.
const CALM: usize = 256;
/// Answers played for each way at a time.
const PLAYED: usize = 256;
/// The first looks at a crowd are each followed by a play, afterwards every [`SELDOM`]-th: a play costs some 100 µs.
const YOUNG: usize = 32;
const SELDOM: usize = 64;
/// Share of what is known of a way that is left when more of it becomes known.
const FADE: f64 = 0.99;
/// Of what they lose by another way, callers must be spared this part to have it changed.
const CLEARLY: f64 = 0.99;
/// What a way is forgiven that does not depend on how the callers happen to stand to one another: all, or groups of one size.
const STEADY: f64 = 0.98;
/// Arrivals by which a way is judged that was gone: so many, or so many for each caller if that is less.
const ENOUGH: usize = 3000;
const ENOUGH_ROUNDS: usize = 8;
/// Thinking times remembered, and how many must be known.
const THINKS: usize = 256;
const FEW: usize = 16;
/// Nobody is waited for beyond this many α: callers may have left. They can think for as long as three batches of the others take.
const LONGEST: f64 = 4.0;
/// Somewhat longer than the slowest caller thought lately: a wait for it should end with its coming.
const SPARE: f64 = 1.1;
/// Larger crowds fill their batches anyway, and would cost memory.
const MOST_CALLERS: usize = 2048;

/// Learns how to take turns with a crowd.
#[derive(Debug, Clone, Default)]
pub(super) struct Rounds {
    thinking: Thinking,
    /// The callers that the ways are played with.
    size: usize,
    ways: Vec<Way>,
    /// The size of the latest crowd that was known.
    known: usize,
    /// The place of the one that is gone, and arrivals since it is.
    chosen: usize,
    since: usize,
    wait: Duration,
    /// Arrivals since somebody was refused.
    calm: usize,
    /// Arrivals since the latest look, looks at this crowd, and when the latest was.
    arrivals: usize,
    looks: usize,
    looked: Instant,
    /// Callers present, since when, and caller-seconds of presence since the latest look.
    present: usize,
    changed: Instant,
    presence: f64,
    /// Requests in the latest batches, the newest first.
    latest: [usize; MOST_GROUPS],
    /// Rows of a request, on average.
    rows: f64,
    dice: u64,
}

/// How long callers think.
#[derive(Debug, Clone, Default)]
struct Thinking {
    /// When batches came back, and how many of their callers have not asked again. Who was answered first is taken to be the
    /// first to do so.
    away: VecDeque<(Instant, usize)>,
    /// Seconds, in any order.
    times: Vec<f64>,
    next: usize,
    skipped: usize,
}

/// A way to take turns, and what would have become of the crowd. Times in seconds.
#[derive(Debug, Clone)]
struct Way {
    /// Callers that are waited for, and the most that go at once.
    at_least: usize,
    at_most: usize,
    /// When who is answered asks again.
    due: BinaryHeap<Due>,
    /// When each of those who wait asked.
    waiting: VecDeque<f64>,
    /// When each runner is free.
    free: Vec<f64>,
    played: Tally,
    gone: Tally,
}

/// Requests, and what they waited for their answers together.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    requests: f64,
    waited: f64,
}

impl Tally {
    fn fade(&mut self) {
        *self = Tally { requests: self.requests * FADE, waited: self.waited * FADE };
    }

    fn add(&mut self, requests: usize, waited: f64) {
        *self = Tally { requests: self.requests + requests as f64, waited: self.waited + waited };
    }

    fn mean(&self) -> f64 {
        self.waited / self.requests
    }
}

/// A time that a heap gives the earliest of first.
#[derive(Debug, Clone, Copy)]
struct Due(f64);

impl Ord for Due {
    fn cmp(&self, other: &Due) -> Ordering {
        other.0.total_cmp(&self.0)
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Due) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Due {}

impl Thinking {
    /// Somebody asks who belongs to so many callers: if anybody is away, it is one of those.
    fn arrived(&mut self, now: Instant, callers: usize) {
        let Some((since, away)) = self.away.front_mut() else { return };
        let time = now.since(*since).as_secs_f64();
        *away -= 1;
        if *away == 0 {
            self.away.pop_front();
        }
        // What is remembered stems from some rounds, not from a part of one.
        self.skipped += 1;
        if self.skipped > callers / 32 {
            self.skipped = 0;
            if self.times.len() < THINKS {
                self.times.push(time);
            } else {
                self.times[self.next] = time;
            }
            self.next = (self.next + 1) % THINKS;
        }
    }

    /// In seconds.
    fn mean(&self) -> f64 {
        self.times.iter().sum::<f64>() / self.times.len().max(1) as f64
    }

    fn landed(&mut self, now: Instant, answered: usize) {
        if answered > 0 {
            self.away.push_back((now, answered));
        }
        if self.away.len() > THINKS {
            self.away.pop_front();
        }
    }
}

impl Rounds {
    /// How to take turns with a crowd of such a size, if that is known.
    pub(super) fn turn(&self, size: usize) -> Option<Turn> {
        let Way { at_least, at_most, .. } = *self.ways.get(self.chosen).filter(|_| self.size == size)?;
        Some(Turn { at_least, at_most, wait: self.wait })
    }

    /// Takes in a request of so many rows, after which so many are `present`.
    pub(super) fn arrived(&mut self, now: Instant, present: usize, rows: usize) {
        self.thinking.arrived(now, self.size);
        self.changed(now, present);
        (self.arrivals, self.calm) = (self.arrivals + 1, self.calm + 1);
        self.rows += if self.rows == 0.0 { rows as f64 } else { (rows as f64 - self.rows) / BLOCK as f64 };
    }

    /// Takes in that somebody was refused. Who is refused comes back when it likes, or never: it takes no turns. And a stream of
    /// which some are refused can look like a crowd, as no more are present than there is room for.
    pub(super) fn refused(&mut self) {
        let Rounds { rows, dice, changed, looked, .. } = *self;
        *self = Rounds { rows, dice, changed, looked, ..Rounds::default() };
    }

    /// Takes in that a batch of so many requests came back. Says whether groups that take turns have all had theirs: nobody of the
    /// crowd is missing then, although all are never there at once.
    pub(super) fn landed(&mut self, now: Instant, answered: usize) -> bool {
        self.thinking.landed(now, answered);
        self.changed(now, self.present.saturating_sub(answered));
        self.latest.rotate_right(1);
        self.latest[0] = answered;
        let Some(way) = self.ways.get(self.chosen).filter(|way| way.at_most < usize::MAX) else { return false };
        let groups = self.size.div_ceil(way.at_most);
        self.latest.iter().take(groups).sum::<usize>() >= self.size - self.size / 16
    }

    fn changed(&mut self, now: Instant, present: usize) {
        let now = now.max(self.changed);
        self.presence += self.present as f64 * now.since(self.changed).as_secs_f64();
        (self.present, self.changed) = (present, now);
    }

    /// Whether it is time to [look](Self::look) at the crowd.
    pub(super) fn is_due(&self) -> bool {
        self.arrivals >= BLOCK && self.calm >= CALM
    }

    /// Looks at the crowd, of such a size if there is one. There are so many runners. A batch has at most `max_rows`, and of so
    /// many rows takes so many seconds.
    pub(super) fn look(
        &mut self,
        now: Instant,
        size: Option<usize>,
        fit: &Fit,
        time: impl Fn(usize) -> f64,
        (runners, max_rows): (usize, usize),
    ) {
        let (took, requests) = (now.since(self.looked).as_secs_f64(), std::mem::take(&mut self.arrivals));
        let presence = std::mem::take(&mut self.presence);
        self.looked = now;
        if let Some(size) = size {
            if size < self.known {
                self.thinking = Thinking::default(); // who has left is not away
            }
            self.known = size;
        }
        let size = size.filter(|size| (2..=MOST_CALLERS).contains(size));
        if size != (self.size > 0).then_some(self.size) {
            self.size = size.unwrap_or(0);
            self.ways.clear();
        }
        let is_known = fit.is_line() && fit.is_trusted() && self.thinking.times.len() >= FEW;
        // Who thinks for longer than that saves others nothing by waiting for them; groups of an open stream look like such.
        let Some(size) = size.filter(|_| is_known && self.thinking.mean() <= LONGEST * fit.base_seconds()) else {
            self.ways.clear();
            return;
        };
        if self.ways.is_empty() {
            self.ways = ways(size, runners, (time(1) + self.thinking.mean()) / size as f64);
            (self.looks, self.chosen, self.since) = (0, 0, 0);
        } else {
            self.note(requests, presence, took);
        }
        self.looks += 1;
        if self.looks <= YOUNG || self.looks.is_multiple_of(SELDOM) {
            self.play(fit, time, max_rows);
        }
        let steady = |way: &Way| way.at_most < usize::MAX || way.at_least == size;
        let loss = |way: &Way| way.loss(size) * if steady(way) { STEADY } else { 1.0 };
        let (best, least) = (0..)
            .zip(self.ways.iter().map(loss))
            .fold((0, f64::INFINITY), |best, way| if way.1 < best.1 { way } else { best });
        if self.looks == 1 || least < CLEARLY * loss(&self.ways[self.chosen]) {
            self.since = if best == self.chosen { self.since } else { 0 };
            self.chosen = best;
        }
    }

    /// Books what came of the way that is gone: so many requests that waited for so many seconds together.
    fn note(&mut self, requests: usize, presence: f64, took: f64) {
        let turn = self.thinking.mean() + self.ways[self.chosen].loss(self.size);
        // What came of the one before is over; and a pause of everybody says nothing of the way.
        let is_its = self.since > 2 * self.size + BLOCK;
        let is_pause = took > 3.0 * turn * requests as f64 / self.size as f64;
        self.ways.iter_mut().for_each(|way| way.gone.fade());
        if is_its && !is_pause {
            self.ways[self.chosen].gone.add(requests, presence);
        }
        self.since += requests;
    }

    fn play(&mut self, fit: &Fit, time: impl Fn(usize) -> f64, max_rows: usize) {
        let times = &self.thinking.times;
        let slowest = times.iter().copied().fold(0.0, f64::max) * SPARE;
        let wait = slowest.min(LONGEST * fit.base_seconds());
        self.wait = Duration::from_secs_f64(wait);
        let rows = self.rows.max(1.0);
        let time = |requests: usize| time(((requests as f64 * rows) as usize).clamp(1, max_rows));
        let most = ((max_rows as f64 / rows) as usize).max(1);
        let dice = &mut self.dice;
        let mut think = || {
            *dice = dice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            times[((*dice >> 33) as usize * times.len()) >> 31]
        };
        self.ways.iter_mut().for_each(|way| way.play(&mut think, &time, most, wait));
    }
}

/// All ways for so many callers, who come `step` seconds apart at first: out of step, as to bring them into it is what waiting
/// is for.
fn ways(size: usize, runners: usize, step: f64) -> Vec<Way> {
    let group = |groups: usize| size.div_ceil(groups);
    // If all others are full, as many are left.
    let groups = (2..=(GROUPS + runners - 1).min(MOST_GROUPS)).filter(|groups| (groups - 1) * group(*groups) < size);
    let groups = groups.map(|groups| (size - (groups - 1) * group(groups), group(groups)));
    let parts = PARTS.iter().map(|(part, of)| ((size * part / of).max(1), usize::MAX));
    let mut ways: Vec<(usize, usize)> = [(size, usize::MAX)].into_iter().chain(groups).chain(parts).collect();
    ways.dedup();
    let due: BinaryHeap<Due> = (0..size).map(|caller| Due(caller as f64 * step)).collect();
    let way = |(at_least, at_most)| Way {
        at_least,
        at_most,
        due: due.clone(),
        waiting: VecDeque::new(),
        free: vec![0.0; runners],
        played: Tally::default(),
        gone: Tally::default(),
    };
    ways.into_iter().map(way).collect()
}

impl Way {
    /// Seconds that each of so many callers waits for an answer, on average: as measured, or else as played.
    fn loss(&self, size: usize) -> f64 {
        let is_known = self.gone.requests > ENOUGH.min(ENOUGH_ROUNDS * size).max(4 * BLOCK) as f64;
        if is_known { self.gone.mean() } else { self.played.mean() }
    }

    /// Plays some rounds.
    fn play(&mut self, think: &mut impl FnMut() -> f64, time: &impl Fn(usize) -> f64, most: usize, wait: f64) {
        self.played.fade();
        let (mut answered, mut waited) = (0, 0.0);
        while answered < PLAYED {
            let Some(runner) = (0..self.free.len()).min_by(|&a, &b| self.free[a].total_cmp(&self.free[b])) else {
                return;
            };
            let mut now = self.free[runner];
            self.arrive(now);
            let give_up = now + wait;
            while self.waiting.len() < self.at_least.min(most) {
                let Some(next) = self.due.peek().map(|due| due.0) else { break };
                // Somebody has to be there.
                if !self.waiting.is_empty() && next > give_up {
                    now = now.max(give_up);
                    break;
                }
                now = next;
                self.arrive(now);
            }
            let batch = self.waiting.len().min(most).min(self.at_most);
            let end = now + time(batch);
            self.free[runner] = end;
            for asked in self.waiting.drain(..batch) {
                waited += end - asked;
                self.due.push(Due(end + think()));
            }
            answered += batch;
        }
        self.played.add(answered, waited);
    }

    fn arrive(&mut self, until: f64) {
        while let Some(due) = self.due.peek().filter(|due| due.0 <= until) {
            self.waiting.push_back(due.0);
            self.due.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// t(n) = 10 ms + n · 0.5 ms.
    const FIT: fn() -> Fit = || Fit::line(0.010, 0.0005, 1.0);

    /// What is learned from so many callers who are answered together and think for so many ms: the first, the second …
    fn learned(rounds: &mut Rounds, callers: usize, times: impl Fn(usize) -> f64) -> Option<(usize, usize)> {
        let fit = FIT();
        let mut landed = rounds.changed;
        for _ in 0..60 {
            let mut round: Vec<f64> = (0..callers).map(&times).collect();
            round.sort_by(f64::total_cmp);
            for (present, ms) in (1..).zip(&round) {
                rounds.arrived(landed + Duration::from_secs_f64(ms / 1e3), present, 1);
            }
            landed = rounds.changed + fit.predict(callers).expect("it is a line");
            rounds.landed(landed, callers);
        }
        turn_of(rounds, callers, 1)
    }

    /// The turn that is taken with them at so many runners.
    fn turn_of(rounds: &mut Rounds, callers: usize, runners: usize) -> Option<(usize, usize)> {
        let (now, fit) = (rounds.changed, FIT());
        (0..16).for_each(|_| rounds.look(now, Some(callers), &fit, |rows| fit.mean_seconds(rows), (runners, 128)));
        rounds.turn(callers).map(|turn| (turn.at_least, turn.at_most))
    }

    /// Some that scatter around a mean by as much as a half, and one in thirty much more.
    fn scattered(mean: f64) -> impl Fn(usize) -> f64 {
        move |caller| {
            mean * if caller % 32 == 31 { 4.0 } else { [0.5, 0.6, 0.75, 0.9, 1.0, 1.15, 1.4, 1.7][caller % 8] }
        }
    }

    #[test]
    fn who_comes_back_at_once_is_waited_for_together() {
        for callers in [2, 5, 16, 64] {
            assert_eq!(learned(&mut Rounds::default(), callers, |_| 0.05), Some((callers, usize::MAX)));
        }
    }

    #[test]
    fn who_thinks_for_as_long_as_a_batch_takes_does_so_in_turns() {
        assert_eq!(learned(&mut Rounds::default(), 16, |_| 14.0), Some((8, 8)));
        assert_eq!(learned(&mut Rounds::default(), 15, |_| 14.0), Some((7, 8)));
        assert_eq!(learned(&mut Rounds::default(), 18, |_| 26.0), Some((6, 6)));
    }

    #[test]
    fn each_of_several_runners_gets_a_group() {
        for (runners, group) in [(2, 9), (3, 6), (6, 3)] {
            let mut rounds = Rounds::default();
            learned(&mut rounds, 18, |_| 0.05);
            rounds.ways.clear();
            assert_eq!(turn_of(&mut rounds, 18, runners), Some((group, group)), "{runners}");
        }
    }

    #[test]
    fn the_slowest_are_not_waited_for_where_times_scatter() {
        let (at_least, _) = learned(&mut Rounds::default(), 64, scattered(3.0)).expect("it is known");
        assert!((48..64).contains(&at_least), "{at_least}");
        let (at_least, _) = learned(&mut Rounds::default(), 16, scattered(9.0)).expect("it is known");
        assert!(at_least <= 8, "{at_least}");
    }

    #[test]
    fn who_thinks_for_minutes_is_not_kept_waiting_for_the_others() {
        for callers in [2, 16] {
            assert_eq!(learned(&mut Rounds::default(), callers, scattered(60_000.0)), None, "of {callers}");
        }
    }

    #[test]
    fn what_came_of_a_way_counts_for_more_than_what_was_thought_of_it() {
        let mut rounds = Rounds::default();
        assert_eq!(learned(&mut rounds, 16, |_| 14.0), Some((8, 8)));
        // They are all there, and still each waits twice as long as it would.
        let chosen = rounds.chosen;
        rounds.ways[chosen].gone = Tally { requests: 5000.0, waited: 5000.0 * 0.1 };
        assert_ne!(learned(&mut rounds, 16, |_| 14.0), Some((8, 8)));
    }

    #[test]
    fn of_another_crowd_nothing_is_known() {
        let mut rounds = Rounds::default();
        assert!(learned(&mut rounds, 16, |_| 0.05).is_some());
        assert_eq!(rounds.turn(15), None);
        let now = rounds.changed;
        rounds.arrivals = BLOCK;
        rounds.look(now, None, &FIT(), |_| 0.01, (1, 128));
        assert_eq!((rounds.turn(16), rounds.turn(0)), (None, None));
        assert_eq!(learned(&mut rounds, 5, |_| 0.05), None, "who has left is taken to think, until it shows");
        assert_eq!(learned(&mut rounds, 5, |_| 0.05), Some((5, usize::MAX)));
        assert_eq!(learned(&mut rounds, MOST_CALLERS + 1, |_| 0.05), None, "too many to play with");
    }

    #[test]
    fn a_refusal_ends_the_turns_until_there_was_none_for_a_while() {
        let mut rounds = Rounds::default();
        assert!(learned(&mut rounds, 16, |_| 14.0).is_some());
        rounds.refused();
        assert_eq!(rounds.turn(16), None);
        (1..CALM).for_each(|_| rounds.arrived(rounds.changed, 1, 1));
        assert!(!rounds.is_due());
        rounds.arrived(rounds.changed, 1, 1);
        assert!(rounds.is_due());
    }

    #[test]
    fn nothing_is_learned_while_batch_times_are_a_guess() {
        let mut rounds = Rounds::default();
        learned(&mut rounds, 16, |_| 0.05);
        let mut fresh = Rounds { thinking: rounds.thinking.clone(), ..Rounds::default() };
        fresh.look(rounds.changed, Some(16), &Fit::UNKNOWN, |_| 0.0, (1, 128));
        assert_eq!(fresh.turn(16), None);
    }
}
