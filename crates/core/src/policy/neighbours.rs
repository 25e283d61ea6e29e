//! What the lanes of a pool owe each other: no batch so long that callers of another lane cannot be in time behind it.
//!
//! Who asks the moment after a batch has taken the last free runner waits for the whole of it, then for the batches of the other
//! lanes that were there before. A batch of ten times another lane's cap would make all of those late, however moderate both are. So a
//! batch is bounded by the slack of the tightest lane beside it; less strictly where its own lane needs larger ones to keep up. A lane
//! that asks for more than its share has those only where it loses clearly more rows without them than others lose by them.
//!
//! Small batches one after the other keep a pool as busy as a flood does. Where callers in more of a hurry are refused, a lane that has time
//! keeps its batches waiting for more rows.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Arbiter, Lane, LaneId, Running};
use crate::estimator::Instant;

/// How much more than is asked of it a lane must be able to run, to count as keeping up.
const HEADROOM: f64 = 1.1;
/// A row of whoever keeps within its share counts for so many of a flood's. More: a flood in longer batches would serve many more, and is
/// refused them. Less: those beside it lose nearly as many rows as it would, who ask for no more than is theirs.
const WITHIN_SHARE: f64 = 1.5;
/// A lane loses answers if more than this part of its rows is refused. More: it is helped late. Less: others wait for one refusal in a
/// thousand.
const LOSES: f64 = 0.005;
/// Others wait for it if at least this part of the rows that they are asked for is refused there. More: fewer are helped. Less: where callers wait for
/// their answers before they ask again, more answers are lost by the waiting than it wins.
const WORTH: f64 = 0.02;
/// What sums of runners may be off by.
const ROUNDING: f64 = 1e-9;

/// What a lane leaves to the others of its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leaves {
    /// The most rows of a batch that leave their callers their time.
    pub(super) bound: usize,
    /// How long its next batch may take where others are refused who need that runner; `None` where nobody is.
    pub(super) room: Option<Duration>,
    /// Whether it leaves them the runners that are free: with as many as its share it keeps on, and has no batch that leaves them their time.
    pub(super) runner: bool,
}

impl Leaves {
    /// As where it has the pool to itself.
    pub(super) const NOTHING: Leaves = Leaves { bound: usize::MAX, room: None, runner: false };
}

/// What one lane asks of the pool at present.
struct Need {
    lane: LaneId,
    /// A batch of as many rows as usual, cautiously.
    batch: Duration,
    /// How long its callers give the pool beyond that, where that is to be kept: its share would be enough for it.
    slack: Option<Duration>,
    /// Rows a second for each runner.
    rate: f64,
    /// Runners that it keeps busy in full batches; none where nobody asks, or it would be more than its share.
    busy: f64,
    /// α and β, in seconds; 0 where nobody asks.
    base: f64,
    per_row: f64,
    /// Whether full batches of it would take more than its share.
    floods: bool,
    /// The part of them that is refused, and had a chance.
    refused: f64,
}

impl Need {
    /// Rows a second that it is refused, where that is too many and shorter waits would help.
    fn loses(&self) -> Option<f64> {
        let can_be_helped = self.refused > LOSES && self.slack.is_some_and(|slack| !slack.is_zero());
        can_be_helped.then_some(self.refused * self.rate)
    }
}

/// Bounds the next batch of each lane by what the others need, as it is at `now`. Costs a few steps for each lane, and for each batch
/// that runs beside it.
pub(super) fn bound(
    lanes: &mut BTreeMap<LaneId, Lane>,
    arbiter: &Arbiter,
    running: &[Running],
    runners: usize,
    now: Instant,
) {
    if lanes.len() < 2 {
        lanes.values_mut().for_each(|lane| set(lane, Leaves::NOTHING));
        return;
    }
    let memory = arbiter.memory();
    let needs: Vec<Need> = lanes.iter().map(|(id, lane)| need(*id, lane, arbiter, runners, now, memory)).collect();
    let batches: Duration = needs.iter().filter(|need| need.base > 0.0).map(|need| need.batch).sum();
    let base: f64 = needs.iter().map(|need| need.base).sum();
    let growing: f64 = needs.iter().map(|need| need.rate * need.per_row).sum();
    let busy: f64 = needs.iter().map(|need| need.busy).sum();
    let protected: f64 = needs.iter().filter(|need| need.slack.is_some()).map(|need| need.rate).sum();
    // Whose slack is least, and whose is least of the others'.
    let mut tightest: [Option<&Need>; 2] = [None; 2];
    for need in needs.iter().filter(|need| need.slack.is_some()) {
        let is_less = |other: &Option<&Need>| other.is_none_or(|other| need.slack < other.slack);
        if is_less(&tightest[0]) {
            tightest = [Some(need), tightest[0]];
        } else if is_less(&tightest[1]) {
            tightest[1] = Some(need);
        }
    }
    let losing = needs.iter().filter(|need| need.loses().is_some()).min_by_key(|need| need.slack);
    for (need, (id, lane)) in needs.iter().zip(lanes) {
        let tight = tightest.into_iter().flatten().find(|tight| tight.lane != *id);
        let Some((tight, given)) = tight.and_then(|tight| Some((tight, tight.slack?))) else {
            set(lane, Leaves::NOTHING);
            continue;
        };
        let own = if need.base > 0.0 { need.batch } else { Duration::ZERO };
        let before = batches.saturating_sub(own);
        let slack = given.saturating_sub(before);
        // Runners that come free within that time are as good as free ones. One is this batch's own; it may have any size if those that
        // are left are as many as the others keep busy, and at least one. Nobody counts on a batch that is overdue by its own time.
        let comes_free =
            |r: &&Running| r.expected.is_some_and(|time| r.since + time <= now + slack && now <= r.since + time * 2);
        let available = runners.saturating_sub(running.len()) + running.iter().filter(comes_free).count();
        let (left, needed) = (available.saturating_sub(1) as f64, (busy - need.busy - ROUNDING).max(1.0));
        let is_held_up = left < needed;
        let others = (base - need.base, growing - need.rate * need.per_row);
        // Before theirs go a batch of each lane, one of their own among them. Where a flood has no batch so short, it need not leave time for that one.
        let without_own = || {
            let before = before.saturating_sub(tight.batch);
            if need.floods { lane.rows_within(given.saturating_sub(before)) } else { None }
        };
        let within = if is_held_up { lane.rows_within(slack).or_else(without_own) } else { None };
        let bound = |few| {
            let many = enough(lane, need.rate * HEADROOM, others, few);
            // A flood yields where more rows of others are in time for it than it loses. Those that find another runner are anyway.
            let gained = protected * late(lane, slack, many) * (1.0 - left / needed);
            if need.floods && lost(lane, need.rate, others, few) < gained * WITHIN_SHARE { few } else { many }
        };
        // Whoever is in the greatest hurry waits for nobody.
        let is_for = |losing: &&Need| {
            let is_worth = losing.loses() >= Some(WORTH * need.rate);
            is_held_up && is_worth && need.slack.is_none_or(|own| Some(own) > losing.slack)
        };
        let room = losing.filter(is_for).and_then(|losing| {
            let others = before.saturating_sub(losing.batch) / runners as u32;
            Some(losing.slack?.saturating_sub(others))
        });
        let bound = within.map_or(usize::MAX, bound);
        // A flood that has its share of the runners, and no batch that leaves others their time, leaves them a runner. But not where it loses more rows by
        // that than they are refused.
        let gained = || needs.iter().filter(|other| other.lane != *id).filter_map(Need::loses).sum::<f64>();
        let has_share = || {
            let own = running.iter().filter(|batch| batch.lane == *id).count() as f64;
            own >= (arbiter.part(*id) * runners as f64 + ROUNDING).floor().max(1.0)
        };
        let runner = need.floods && is_held_up && within.is_none() && has_share() && {
            let idle = (needed - (busy - need.busy) / HEADROOM).max(0.0) / runners as f64;
            idle * full_speed(lane) < gained() * WITHIN_SHARE
        };
        set(lane, Leaves { bound, room, runner });
    }
}

/// What a lane's policy said where it left something else may not be what it says now.
fn set(lane: &mut Lane, leaves: Leaves) {
    if lane.leaves != leaves {
        (lane.leaves, lane.said) = (leaves, None);
    }
}

fn need(id: LaneId, lane: &Lane, arbiter: &Arbiter, runners: usize, now: Instant, memory: Duration) -> Need {
    let (batch, rate) = (lane.usual_batch(), lane.rate(now, memory.as_secs_f64()) / runners as f64);
    let within = lane.patience_of_callers(now, memory);
    let part = rate / lane.most_rows() as f64 * lane.full_batch().as_secs_f64();
    let floods = part > arbiter.part(id);
    // What a flood is late with is nobody else's fault.
    let slack = within.filter(|_| !floods).map(|within| within.saturating_sub(batch));
    let fit = lane.fit();
    let (base, per_row) = within.map_or((0.0, 0.0), |_| (fit.base_seconds(), fit.per_row_seconds()));
    let busy = if slack.is_some() { part * HEADROOM * runners as f64 } else { 0.0 };
    Need { lane: id, batch, slack, rate, busy, base, per_row, floods, refused: lane.refused() }
}

/// Rows a second that a lane is asked for and cannot run in batches of so many rows, if each runner runs one of every lane in turn.
fn lost(lane: &Lane, rate: f64, (base, growing): (f64, f64), rows: usize) -> f64 {
    let own = lane.mean_time(rows).unwrap_or_default().as_secs_f64();
    (rate - rows as f64 * (1.0 - growing) / (own + base)).max(0.0)
}

/// Rows a second that a runner makes in full batches; without end where their time is not known.
fn full_speed(lane: &Lane) -> f64 {
    lane.most_rows() as f64 / lane.full_batch().as_secs_f64()
}

/// The part of the rows of other lanes, whose callers give it so much time, that a batch of so many rows makes late: what comes while more
/// of it is left.
fn late(lane: &Lane, slack: Duration, rows: usize) -> f64 {
    let time = lane.mean_time(rows).unwrap_or_default().as_secs_f64();
    if time > 0.0 { (1.0 - slack.as_secs_f64() / time).max(0.0) } else { 0.0 }
}

/// The least rows from `few` on with which the lane keeps up with so many rows a second if each runner runs a batch of every lane in
/// turn; `few` if it cannot keep up at all: a flood pushes nobody past a cap.
///
/// A turn takes t(n) and, of the other lanes, all α and all β times what came since their last.
fn enough(lane: &Lane, rate: f64, (base, growing): (f64, f64), few: usize) -> usize {
    let keeps_up = |rows: usize| {
        let own = lane.mean_time(rows).unwrap_or_default().as_secs_f64();
        growing < 1.0 && rate * (own + base) / (1.0 - growing) <= rows as f64
    };
    let most = lane.most_rows();
    if few >= most || keeps_up(few) || !keeps_up(most) {
        return few;
    }
    let (mut few, mut many) = (few, most);
    while few + 1 < many {
        let middle = few + (many - few) / 2;
        if keeps_up(middle) { many = middle } else { few = middle }
    }
    many
}
