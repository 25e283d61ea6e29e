//! The policy that the server runs: release when releasing beats waiting, and refuse early what would be late.
//!
//! In order: refuse what has expired; refuse from the front of the queue what the next batch would answer late; refuse from
//! its end what the batches before it make late, or what a queue that stands is too long for; with a free runner, hold as long as
//! patience and the crowd say, or while other lanes need that runner, or release.
//!
//! The front is judged before the end: those who leave there make room. docs/policy.md has the reasons and the figures.

use std::ops::Range;
use std::time::Duration;

use super::queue::Ride;
use super::spread::{SOON, Spread, Waiting};
use super::{BatchSizes, Decision, Entry, Policy, Queue, Reach, ReleaseReason, ShedReason, Standing, View};
use crate::estimator::{Fit, Instant, KnownCrowd, Turn};

/// All holds for one batch together last no longer than this many α: an end to arrivals that each renew the hold, and to
/// timers that ring late.
const LONGEST_HOLD: f64 = 1.0;

/// The most patience under which [`LONGEST_HOLD`] is kept.
pub(super) const USUAL_PATIENCE: f64 = 1.5;
/// Seconds that nothing lasts; a batch held for so long is released at its latest start.
const FOREVER: f64 = 1e6;

/// Idle time after which an estimate is put to the test, in batch times of one row. Less: quicker back from a stall. More:
/// a model that is truly too slow for its cap answers fewer requests late.
const PROBE_AFTER: u32 = 4;
/// The longest that an estimate by which everything is late goes untested.
const LONGEST_WITHOUT_PROBE: Duration = Duration::from_secs(1);

/// Full batches that fit into what a caller gives, where a queue can stand: the one that runs, one ahead, and its own.
const STANDING: u32 = 3;

/// Adaptive micro-batching under a latency cap. Has no settings: all it needs is in the [`View`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Cork;

impl Policy for Cork {
    fn decide(&self, now: Instant, view: View<'_>) -> Decision {
        if view.queue.is_empty() {
            return Decision::Park;
        }
        if let Some(entries) = expired(now, view.queue) {
            let retry_at = view.start_after(now, view.queue.rows_of(entries.end) / view.max_batch);
            let rows = view.queue.get(entries.start).map_or(1, |first| first.rows);
            let forecast = view.start_after(now, 0) + view.batch_time(rows);
            return Decision::Shed { entries, reason: ShedReason::Expired, forecast, retry_at };
        }
        let start = view.start_after(now, 0);
        let whole = next_batch(start, &view);
        let uncut = &view;
        let part = part(start, uncut, whole.1);
        let is_part = part < whole.1;
        let cut = if is_part { Some(View { max_batch: part, ..view }) } else { None };
        let view = cut.as_ref().unwrap_or(uncut);
        let next = if is_part { view.queue.prefix(view.max_batch) } else { whole };
        let (entries, rows) = match in_time(start, view, next) {
            Ok(batch) => batch,
            Err(Late { position, end: forecast }) => {
                return match lossless_smaller_batch(now, start, view, position) {
                    Some(entries) if view.has_free_runner() => {
                        Decision::Release { entries, reason: ReleaseReason::Deadline }
                    }
                    // Wait for the runner: what arrives meanwhile does not lengthen the smaller batch.
                    Some(_) => wait_for_runner(view, 1, 1),
                    None if position == 0 && goes_alone(now, uncut) => {
                        Decision::Release { entries: 1, reason: ReleaseReason::Deadline }
                    }
                    None if estimate_may_be_stale(now, view) => {
                        Decision::Release { entries: 1, reason: ReleaseReason::Probe }
                    }
                    None => {
                        let (entries, reason) = (position..position + 1, ShedReason::BatchTooLate);
                        // Once that batch is over, the same can have one without the others.
                        Decision::Shed { entries, reason, forecast, retry_at: forecast }
                    }
                };
            }
        };
        if let Some((Late { position, end: forecast }, retry_at)) = late_behind_others(now, view, uncut) {
            let entries = position..position + 1;
            let in_time = view.queue.get(position).is_some_and(|entry| forecast <= entry.deadline);
            let reason = if in_time { ShedReason::QueueStands } else { ShedReason::QueueTooLong };
            return Decision::Shed { entries, reason, forecast, retry_at };
        }
        if let Some((position, forecast, retry_at)) = crowds_others_out(now, uncut) {
            let entries = position..position + 1;
            return Decision::Shed { entries, reason: ShedReason::OverShare, forecast, retry_at };
        }
        if !view.has_free_runner() {
            return wait_for_runner(view, entries, rows);
        }
        let held = if is_part { hold(now, uncut, whole.0, whole.1) } else { hold(now, view, entries, rows) };
        let Standing { gives_way_until, is_contested, .. } = view.standing;
        match held {
            Hold::Until(_) if is_contested => Decision::Release { entries, reason: ReleaseReason::Ripe },
            Hold::Until(instant) => Decision::WaitUntil(instant),
            Hold::No(ReleaseReason::Ripe) if gives_way_until > now => Decision::WaitUntil(gives_way_until),
            Hold::No(reason) => Decision::Release { entries, reason },
        }
    }
}

/// The entries and rows of the next batch: all that fit, with care while it is not known how long a large one takes; or
/// fewer, where a smaller batch makes more rows a second: of a size known to be clearly faster, or, where the model runs some sizes
/// only, of an allowed one, if the padding of all that wait makes that faster.
///
/// That size is best at which most rows are in time for each second of the runner, those aside that are late at that size.
/// While more wait than fit, nothing is faster than a full batch.
fn next_batch(start: Instant, view: &View<'_>) -> (usize, usize) {
    let first_rows = view.queue.first().map_or(1, |first| first.rows);
    let whole = view.queue.prefix(view.fit.most_rows().max(first_rows).min(view.max_batch));
    // A group that takes turns with others, if these are there as well. Behind a batch that runs all count: who is late then is so.
    let turn = view.crowd.and_then(|crowd| crowd.turn).filter(|turn| view.has_free_runner() && turn.at_most < whole.0);
    if let Some(Turn { at_most, .. }) = turn {
        let entries = at_most.max(1);
        return (entries, view.queue.rows_of(entries));
    }
    if view.sizes.is_any()
        && view.fit.is_trusted()
        && let Some(smaller) = view.fit.faster_size(whole.1).map(|size| view.queue.prefix(size))
        && smaller.0 > 0
    {
        return smaller;
    }
    if view.sizes.is_any() || !view.fit.is_trusted() || whole.0 < view.queue.len() {
        return whole;
    }
    let speed = |rows| {
        let time = view.batch_time(rows);
        let in_time = view.queue.rows() - view.queue.rows_due_before(start + time);
        in_time.min(rows) as f64 / time.as_secs_f64()
    };
    fastest(view.sizes, whole, |size| view.queue.prefix(size), speed)
}

/// The fastest of a batch of all that wait and those of the smaller allowed sizes, as entries and rows: `prefix` gives the
/// batch of at most so many rows, `speed` how many rows that are in time one of so many rows runs a second.
pub(super) fn fastest(
    sizes: &BatchSizes,
    whole: (usize, usize),
    prefix: impl Fn(usize) -> (usize, usize),
    speed: impl Fn(usize) -> f64,
) -> (usize, usize) {
    let faster =
        |best: (usize, usize), batch: (usize, usize)| if speed(batch.1) > speed(best.1) { batch } else { best };
    let smaller = sizes.iter().rev().filter(|&size| size < whole.1).map(prefix);
    smaller.filter(|(entries, _)| *entries > 0).fold(whole, faster)
}

/// The most rows of a batch, where those that wait are shared by the runners that are free or soon will be.
fn part(start: Instant, view: &View<'_>, whole: usize) -> usize {
    let most = view.max_batch;
    if view.runners < 2 || view.spread == Spread::Never || !(view.fit.is_line() && view.fit.is_trusted()) {
        return most;
    }
    let queue = view.queue;
    let deadline = |level: &Range<usize>| queue.get(level.start).map_or(Instant::FAR_FUTURE, |first| first.deadline);
    let is_late = |level: &Range<usize>| start + view.batch_time(queue.rows_of(level.end)) > deadline(level);
    // For the most urgent level that one batch would answer late. Those who are less urgent have no say in it.
    let late = queue.levels().find(is_late);
    let Some(level) = late.clone().or_else(|| queue.levels().last()) else { return most };
    let (rows, deadline) = (queue.rows_of(level.end), deadline(&level));
    let soon = start + view.mean_batch_time(whole).mul_f64(SOON);
    let (free, last) = view.free_by(start, soon);
    // Who comes too late to answer even those in time who are due last takes none.
    let due_last = queue.get(level.end - 1).map_or(Instant::FAR_FUTURE, |last| last.deadline);
    let latest = due_last - view.batch_time(rows.div_ceil(free.max(1)));
    let (free, last) = if last > latest { view.free_by(start, latest) } else { (free, last) };
    let is_in_time = |rows| last + view.batch_time(rows) <= deadline;
    let waiting = Waiting { rows, free, most, is_late: late.is_some() };
    let around = |size| {
        let (entries, rows) = queue.prefix(size);
        (rows, queue.rows_of(entries + 1))
    };
    waiting.part(view.spread, is_in_time, |rows| view.mean_batch_time(rows).as_secs_f64(), around)
}

/// How long after the newest arrival a hold with so many rows ready ends, in seconds, if nobody else arrives. However patient: where
/// nobody has come for an α, callers may be waiting for this very batch before they send again.
#[inline]
pub(super) fn hold_after_newest(patience: f64, fit: &Fit, sizes: &BatchSizes, rows: usize) -> f64 {
    (patience * sizes.saving(fit, rows).max(0.0) / rows as f64).min(LONGEST_HOLD * fit.base_seconds())
}

/// How long after it could first be released a batch is held at most, in seconds. Whoever is more patient than that is so
/// because runners come free one by one and a batch released early keeps the others small: an α is not what it is about.
#[inline]
pub(super) fn longest_hold(patience: f64, fit: &Fit) -> f64 {
    let alone = if fit.is_curved() { fit.mean_seconds(1) } else { fit.base_seconds() };
    if patience > USUAL_PATIENCE { FOREVER } else { LONGEST_HOLD * alone }
}

/// Those of the most urgent level with any whose deadlines have passed.
fn expired(now: Instant, queue: &Queue) -> Option<Range<usize>> {
    let has_expired = |level: &Range<usize>| queue.get(level.start).is_some_and(|first| first.deadline <= now);
    queue.levels().find(has_expired).map(|level| queue.due_before(level, after(now)))
}

/// An entry that will be late: where it stands, and when the batch that it would ride in ends.
struct Late {
    position: usize,
    end: Instant,
}

/// This batch, if it is in time for whoever in it is due first. Where that is not so, less urgent entries stay behind, as
/// many as it takes. If it takes more than those, the one that is due first and will be late.
fn in_time(start: Instant, view: &View<'_>, (entries, rows): (usize, usize)) -> Result<(usize, usize), Late> {
    let queue = view.queue;
    let Some((position, due_first)) = queue.due_first(entries).and_then(|at| Some((at, queue.get(at)?))) else {
        return Ok((entries, rows));
    };
    let end = |rows| start + view.batch_time(rows);
    if end(rows) <= due_first.deadline {
        return Ok((entries, rows));
    }
    let own = queue.level_end(position).unwrap_or(entries);
    let end_of_own = if own < entries { end(queue.rows_of(own)) } else { end(rows) };
    if end_of_own > due_first.deadline {
        if position == 0
            && own <= entries
            && let Some(oldest) = oldest_in_time(start, view, own)
        {
            return Ok(oldest);
        }
        // Whoever has little waiting is not refused for those who came after him and have much: they wait for the next batch.
        if queue.has_little(position) {
            let batch = queue.prefix(view.rows_in_time(start, due_first.deadline, rows));
            if batch.0 > position {
                return Ok(batch);
            }
        }
        return Err(Late { position, end: end_of_own });
    }
    Ok(queue.prefix(view.rows_in_time(start, due_first.deadline, rows)))
}

/// Of the first `whole` entries, all of the most urgent level, the oldest that a batch can answer which has as many rows as would remain if it
/// were refused who is late, oldest first. As many are answered, by the same instant. But it is the newest that remain, and they may be in time
/// for the next batch. None where the oldest may be late in that batch too, or who remains would be late in the next, though nobody else came to
/// it: to keep them waiting is then good for nobody.
fn oldest_in_time(start: Instant, view: &View<'_>, whole: usize) -> Option<(usize, usize)> {
    let queue = view.queue;
    let end = |rows| start + view.batch_time(rows);
    let rest = |entries: usize| queue.rows_of(whole) - queue.rows_of(entries);
    let in_time = |at: usize, rows: usize| queue.get(at).is_some_and(|entry| end(rows) <= entry.deadline);
    // Who comes later is due no sooner: halve until one entry apart.
    let (mut late, mut fits) = (0, whole);
    while late + 1 < fits {
        let middle = late + (fits - late) / 2;
        if in_time(middle, rest(middle)) { fits = middle } else { late = middle }
    }
    let size = rest(fits);
    // A batch that outlasts its margin makes all late who have waited as long, and here those are more than its first: so twice the margin.
    let margin = view.batch_time(size).saturating_sub(view.mean_batch_time(size));
    queue.first().filter(|first| end(size) + margin <= first.deadline)?;
    let (entries, rows) = Some(queue.prefix(size)).filter(|(entries, _)| *entries > 0)?;
    let next = queue.get(entries).filter(|_| entries < whole)?;
    let is_better = end(rows) + view.batch_time(rest(entries)) <= next.deadline;
    is_better.then_some((entries, rows))
}

/// The most urgent entry that stands first or last of its level and will be late by all that is known now, although the
/// batches before its own run full; and when its own would start. Where the queue can stand, its own is full too by then: a batch
/// that grows while it waits would else be late, and its first would be refused after all that waiting.
///
/// The first of a level is late where more urgent ones take the runners; it would otherwise wait for its deadline. The last of
/// all has less time than until then where a queue stands that is longer than it need be.
///
/// `uncut` is the same with batches that no runners share: who is in time by either is not late.
fn late_behind_others(now: Instant, view: &View<'_>, uncut: &View<'_>) -> Option<(Late, Instant)> {
    let late = |view: &View<'_>, position: usize, reach: Reach| {
        let entry = view.queue.get(position)?;
        let Ride { ahead, rows, full } = view.queue.ride(position, view.max_batch);
        if ahead == 0 {
            return None; // it rides in the next batch, which the rules for the front of the queue judge
        }
        let start = view.start_behind(now, ahead, full);
        let full = view.batch_time(full);
        let stands = full * STANDING <= entry.given();
        let end = start + if stands { full } else { view.batch_time(rows) };
        (end > reach.due(now, entry)).then_some((Late { position, end }, start))
    };
    let whole = view.queue.len();
    // Who has others behind takes their place: a shorter queue is for the least urgent.
    let reach = |level: &Range<usize>| if level.end == whole { view.reach } else { Reach::WHOLE };
    let mut ends = view.queue.levels().flat_map(|level| [(level.start, Reach::WHOLE), (level.end - 1, reach(&level))]);
    ends.find_map(|(position, reach)| {
        let found = late(view, position, reach)?;
        if view.max_batch == uncut.max_batch {
            return Some(found);
        }
        let whole = late(uncut, position, reach)?;
        Some(if whole.0.end < found.0.end { whole } else { found })
    })
}

/// The position of the entry that makes room for one that will be late behind others, because another caller has more of the batches before it;
/// when the late one's would end, and when it would start.
///
/// Whoever gives his requests less time stands before others however late he comes, and a batch grows while it waits. So who is let in between
/// has to be found while there is time: each caller's first behind the next batch is judged as if its own were full.
fn crowds_others_out(now: Instant, view: &View<'_>) -> Option<(usize, Instant, Instant)> {
    let queue = view.queue;
    queue.heads_of_callers(queue.prefix(view.max_batch).0).find_map(|position| {
        let entry = queue.get(position)?;
        let Ride { ahead, full, .. } = queue.ride(position, view.max_batch);
        let start = view.start_behind(now, ahead, full);
        let end = start + view.batch_time(full);
        let is_late = end > entry.deadline;
        let at = is_late.then(|| queue.in_place_of(position, position))??;
        Some((at, end, start))
    })
}

/// A batch that is small enough to be in time for the first entry, where that is the one that is late, if the rest can
/// follow it without being late.
///
/// This serves a caller with a tight deadline of its own under light load. Where the rest would be late, the first entry
/// is the one to go: a batch shrunk for its sake would cost more answers than it saves. So it would in lasting overload, though the
/// rest, of which fewer are let in then, may be in time.
fn lossless_smaller_batch(now: Instant, start: Instant, view: &View<'_>, late: usize) -> Option<usize> {
    let first = view.queue.first().filter(|_| late == 0 && view.reach.is_whole())?;
    let (mut entries, mut rows) = (0, 0);
    // Ends within the next batch: the whole of that is late.
    for entry in view.queue.iter() {
        if start + view.batch_time(rows + entry.rows) > first.deadline {
            break;
        }
        (entries, rows) = (entries + 1, rows + entry.rows);
    }
    // Those who are less urgent have no say in it.
    let end_of_level = view.queue.level_end(0)?;
    let (next, last) = (view.queue.get(entries)?, view.queue.get(end_of_level - 1)?);
    if next.given() <= first.given() {
        return None; // the first is in no greater hurry than the others, it has waited longer
    }
    let own = view.mean_batch_time(rows);
    let rest = view.queue.rows_of(end_of_level).checked_sub(rows).filter(|rest| *rest > 0)?;
    let ahead = (rest - 1) / view.max_batch;
    let end = |ahead, rows| view.start_after(now, ahead) + own + view.batch_time(rows);
    // With an α to spare for those who will come: the runner has time for a batch more than it would have needed.
    let spare = Duration::from_secs_f64(view.fit.base_seconds());
    let in_time = end(0, rest) + spare <= next.deadline && end(ahead, rest - ahead * view.max_batch) <= last.deadline;
    (entries > 0 && in_time).then_some(entries)
}

/// Whether the first entry, whom the next batch would answer late, goes alone: if it is in time by a margin of its own, and nobody waits behind it, or
/// all who do are in time in a batch of another free runner. A large request among small ones has hardly more time than it takes: by a margin
/// for the small ones all of its size would be refused for ever, beside runners with nothing to do.
fn goes_alone(now: Instant, view: &View<'_>) -> bool {
    let queue = view.queue;
    let in_time =
        |at, time: &dyn Fn(&Entry) -> Duration| queue.get(at).is_none_or(|entry| now + time(entry) <= entry.deadline);
    let rest = queue.rows() - queue.rows_of(1);
    let free = view.free_runners();
    let rest_is_served = match queue.len() {
        1 => true,
        2 => free > 1 && in_time(1, &|second| view.time_alone(second)),
        _ => free > 1 && rest <= view.max_batch && in_time(1, &|_| view.batch_time(rest)),
    };
    free > 0 && in_time(0, &|first| view.time_alone(first)) && rest_is_served
}

/// Whether not even a batch of the first entry alone would be in time, and none of this lane has run for so long that a free
/// runner is worth finding out with. A burst after quiet, of more than one batch can answer in time, is no sign of a stale
/// estimate. What other lanes run does not matter: beside a busy one, the pool is never idle. A lane with rows of its own tests
/// its estimate with those.
///
/// A stall of the machine can leave an estimate by which nothing is ever in time. Were everything refused on it, no batch
/// would run, nothing would be learned, and the server would refuse for ever.
fn estimate_may_be_stale(now: Instant, view: &View<'_>) -> bool {
    let batch = view.fit.predict(view.sizes.padded(1)).unwrap_or_default();
    let wait = batch.saturating_mul(PROBE_AFTER).min(LONGEST_WITHOUT_PROBE);
    let hopeless = view.queue.first().is_some_and(|first| now + view.batch_time(first.rows) > first.deadline);
    let has_one_running = view.running.iter().any(|batch| batch.lane == view.lane);
    let by_caller = !view.rehearses && hopeless;
    by_caller && view.has_free_runner() && !has_one_running && now.since(view.free_since) >= wait
}

/// Nothing before the batch of these entries could not start in time any more, or anybody's deadline passes. The next
/// arrival or completion asks again; only a runner that does not come back needs the timer.
fn wait_for_runner(view: &View<'_>, entries: usize, rows: usize) -> Decision {
    let too_late = after(latest_start(view, entries, rows));
    Decision::WaitUntil(too_late.min(first_deadline(view.queue, view.queue.len())))
}

/// The last instant at which a batch of the first `entries` can start and be in time for all, if it has `rows`.
fn latest_start(view: &View<'_>, entries: usize, rows: usize) -> Instant {
    first_deadline(view.queue, entries) - view.batch_time(rows)
}

/// When the one of the first `entries` is due that is due first.
fn first_deadline(queue: &Queue, entries: usize) -> Instant {
    queue.due_first(entries).and_then(|at| queue.get(at)).map_or(Instant::FAR_FUTURE, |e| e.deadline)
}

/// The instant after `at`.
fn after(at: Instant) -> Instant {
    at + Duration::from_nanos(1)
}

enum Hold {
    Until(Instant),
    No(ReleaseReason),
}

/// Whether to hold the cork, with a runner free and `entries` of `rows` rows ready.
fn hold(now: Instant, view: &View<'_>, entries: usize, rows: usize) -> Hold {
    if view.draining {
        return Hold::No(ReleaseReason::Draining);
    }
    if rows >= view.max_batch || entries < view.queue.len() {
        return Hold::No(ReleaseReason::Full);
    }
    if !(view.fit.is_line() && view.fit.is_trusted()) {
        return Hold::No(ReleaseReason::Ripe); // what another row would save is not known
    }
    if view.crowd.is_some_and(|crowd| has_runners_for_all(crowd, view)) {
        return Hold::No(ReleaseReason::Ripe);
    }
    let ripe = match view.crowd {
        Some(crowd) if is_worth_waiting_for(crowd, view) => crowd_is_back(crowd, view),
        _ => {
            let wait = hold_after_newest(view.patience, view.fit, view.sizes, rows);
            let heads = view.queue.levels().filter_map(|level| view.queue.get(level.start));
            let held_since = heads.map(|head| head.arrival).min().unwrap_or(now).max(view.free_since);
            let give_up = held_since + Duration::from_secs_f64(longest_hold(view.patience, view.fit));
            (view.queue.newest_arrival() + Duration::from_secs_f64(wait)).min(give_up)
        }
    };
    let latest = latest_start(view, entries, rows + 1) - view.late_by;
    if ripe <= now {
        Hold::No(ReleaseReason::Ripe)
    } else if latest <= now {
        Hold::No(ReleaseReason::Deadline)
    } else {
        Hold::Until(ripe.min(latest))
    }
}

/// Whether a fixed crowd should be waited for.
///
/// All answers of a batch go out at once, and so come the next requests in. Whoever is released before the others are back
/// will not meet them again: N callers split into 1 and N − 1 stay so for ever, and every round costs another α. Waiting
/// for them is worth up to that at one runner; several can have a part of them each. Where it was learned how many to wait for, that counts.
fn is_worth_waiting_for(crowd: KnownCrowd, view: &View<'_>) -> bool {
    let base = Duration::from_secs_f64(view.fit.base_seconds());
    let is_alone = view.runners == 1 && view.running.is_empty();
    crowd.turn.is_some() || (is_alone && crowd.returns < base)
}

/// Whether each of a crowd can have a runner of its own: then nobody gains by waiting for another.
fn has_runners_for_all(crowd: KnownCrowd, view: &View<'_>) -> bool {
    let others = view.running.iter().filter(|batch| batch.lane != view.lane).count();
    view.runners >= crowd.size + others
}

/// When to wait for the crowd no longer: now if as many are here as are waited for, or when even a slow one would be back.
fn crowd_is_back(crowd: KnownCrowd, view: &View<'_>) -> Instant {
    let all = || {
        let wait = (crowd.returns * 2).min(Duration::from_secs_f64(view.fit.base_seconds()));
        Turn { at_least: crowd.size, at_most: usize::MAX, wait }
    };
    let turn = crowd.turn.unwrap_or_else(all);
    if view.queue.len() >= turn.at_least { Instant::EPOCH } else { view.free_since + turn.wait }
}

#[cfg(test)]
mod tests;
