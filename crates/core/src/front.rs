//! What becomes of a request of which no more than the head is read: it is read on, or refused unparsed.
//!
//! Reading, parsing and answering are a server with a queue in front of it like any other: the queue lies in the sockets. Its
//! own length is not known before it is read, but how long each request waited in it is. [`Front`] learns from these waits alone.
//!
//! Two things can be full: what reads ([`Front`]), and the model behind it ([`Gate`]).
//!
//! For the first the rule is CoDel's (Nichols and Jacobson, 2012), with waits as shares of the latency cap. A burst makes some requests wait; a queue
//! that stands makes all of them wait. So the least wait within a window tells overload. While it is short, only what would be
//! late is refused; once it is long, what has waited longer than a share of the cap, which is halved window after window until the queue
//! stands no more, and doubled again when it is gone. The share is never so small that the server would run out of work.
//!
//! For the second, requests that the model's batcher refuses are counted. It refuses them after they were parsed, often after they
//! have waited; so as many as it has answered lately are let through, and a few more, from which is seen when it can do more.
//! That helps where reading those who come in vain takes a part of the reader's time that counts. Else the batcher, which knows more, is left
//! to refuse them. Either shares what there is out among callers who are told apart. Where fewer are answered the fewer come, as on a machine
//! that stands still now and then, all are let through again.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::estimator::Instant;
use crate::policy::Caller;

/// The least share of the cap that a request may wait: enough to keep busy what reads, and little of what a refused caller waits.
pub const LEAST_SHARE: f64 = 0.1;
/// A window's length, as a share of the cap: short, since the queue grows meanwhile.
const WINDOW: f64 = 0.5;
/// The queue stands if the least wait is longer than this part of the share, and is gone if it is shorter than that.
const STANDS: f64 = 0.25;
const GONE: f64 = 0.125;

/// Weight of the newest way back in the mean of all.
const NEWEST: f64 = 0.02;
/// How many deviations beyond the mean way back are kept free, and the most, as a share of the cap.
const DEVIATIONS: f64 = 2.0;
const MOST_KEPT: f64 = 0.25;

/// How long it takes from outputs back to the client: threads that wait for a processor, behind others that read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WayBack {
    mean: f64,
    deviation: f64,
}

impl WayBack {
    /// Learns from one.
    pub fn learn(&mut self, took: Duration) {
        let off = took.as_secs_f64() - self.mean;
        self.mean += NEWEST * off;
        self.deviation += NEWEST * (off.abs() - self.deviation);
    }

    /// What of the cap is left for everything before.
    pub fn leaves(&self, cap: Duration) -> Duration {
        let kept = (self.mean + DEVIATIONS * self.deviation).min(MOST_KEPT * cap.as_secs_f64());
        cap.saturating_sub(Duration::from_secs_f64(kept.max(0.0)))
    }
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is read on.
    Read,
    /// It is refused.
    Refuse(Why),
}

/// Why a request is refused unparsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Even if all goes as quickly as it lately went at best, it would be answered late.
    Late,
    /// More comes than can be read, and it has waited longer than others need to.
    Overload,
    /// The model refuses a part of those that were read, and would refuse this one or another in its place.
    Behind,
}

/// Answers take longer than this share of the cap at the mean: the queue behind is deep. It need not be to keep the model busy,
/// and leaves no time for what is not foreseen.
const DEEP: f64 = 0.5;
/// How many of those that the model has answered are let through after a window in which it refused some: more, which are refused
/// behind or show that it can do more; fewer where its queue is deep.
const ANSWERED: [f64; 2] = [1.1, 0.9];
/// The least that is left of the share from one window to the next: one in which everything stood still says little.
const SLOWEST: f64 = 0.7;
/// By how much more is let through after a window in which hardly anything was refused behind, and where the queue is deep.
const FASTER: [f64; 2] = [1.25, 1.1];
/// Share of what ended behind that was refused there, up to which it is the batcher's affair alone.
const FEW: f64 = 0.05;
/// Share of the reader's time that may be spent on those who are refused behind: less is not worth a guess.
const SPENT: f64 = 0.05;
/// Fewer were let through in vain where the mean rate of answers fell below this part of the best one since.
const LOST: f64 = 0.8;
/// Weight of the newest window in that mean, and what is left of the best from one window to the next: a model may become slower.
const NEWEST_RATE: f64 = 0.125;
const REMEMBERED: f64 = 0.99;
/// For how many windows all are let through then: at first, and at most, where it was in vain again and again.
const OPEN_WINDOWS: [u32; 2] = [4, 64];

/// One reader's knowledge of one model: how many of the requests for it are worth reading, by what became of those before.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    /// The share of requests that is let through.
    open: f64,
    /// Those who asked in this window or in the last.
    callers: BTreeMap<u64, Asks>,
    since: Option<Instant>,
    answered: u32,
    refused: u32,
    /// What the answers took together, and what it took to read those that were refused.
    took: Duration,
    spent: Duration,
    /// Answers a second: the mean of the last windows, and the best that it was.
    rate: f64,
    best: f64,
    /// The weight that the next window has in the mean: that of all windows at first.
    weight: f64,
    /// Windows in which all are to be let through, and how many it will be next time.
    opens: u32,
    opens_next: u32,
    /// The quickest way of a request from here to its answer, in the window before and in this one.
    ways: [Duration; 2],
}

/// What one caller asks.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Asks {
    weight: f64,
    offered: u32,
    /// The share of his requests that is let through, and what is left of it from those that were not.
    open: f64,
    credit: f64,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate {
            open: 1.0,
            callers: BTreeMap::new(),
            since: None,
            answered: 0,
            refused: 0,
            took: Duration::ZERO,
            spent: Duration::ZERO,
            rate: 0.0,
            best: 0.0,
            weight: 1.0,
            opens: 0,
            opens_next: OPEN_WINDOWS[0],
            ways: [Duration::ZERO, Duration::MAX],
        }
    }
}

impl Gate {
    /// Decides at `now` about a request of `caller` that would be read, for a model with this cap.
    pub fn judge(&mut self, now: Instant, cap: Duration, caller: Caller) -> Verdict {
        self.pass(now, cap);
        let (id, weight) = (caller.id, f64::from(caller.weight.get()));
        let asks = self.callers.entry(id).or_insert(Asks { weight, offered: 0, open: 1.0, credit: 0.0 });
        asks.weight = weight;
        asks.offered += 1;
        asks.credit += asks.open;
        if asks.credit < 1.0 {
            return Verdict::Refuse(Why::Behind);
        }
        asks.credit -= 1.0;
        Verdict::Read
    }

    /// The quickest way lately from here to an answer. Nothing is refused on a guess: where none was seen, none is known.
    pub fn way(&mut self, now: Instant, cap: Duration) -> Duration {
        self.pass(now, cap);
        self.ways[0].min(self.ways[1])
    }

    /// Learns that a request which was let through has been answered, so long after that.
    pub fn answered(&mut self, took: Duration) {
        self.ways[1] = self.ways[1].min(took);
        self.answered += 1;
        self.took = self.took.saturating_add(took);
    }

    /// Learns that a request which was let through was refused for lateness, and how much of the reader's time it had.
    pub fn refused(&mut self, spent: Duration) {
        self.refused += 1;
        self.spent = self.spent.saturating_add(spent);
    }

    /// Ends the window if its time is over.
    fn pass(&mut self, now: Instant, cap: Duration) {
        let (since, length) = (*self.since.get_or_insert(now), cap.mul_f64(WINDOW));
        let passed = now.since(since);
        if passed < length {
            return;
        }
        if passed >= length * 2 {
            // For a window nobody came: whoever comes now is alone, whatever happened before.
            *self = Gate { since: Some(now), ..Gate::default() };
            return;
        }
        let (answered, refused) = (f64::from(self.answered), f64::from(self.refused));
        let offered: f64 = self.callers.values().map(|asks| f64::from(asks.offered)).sum();
        self.rate += self.weight * (answered / passed.as_secs_f64().max(1e-9) - self.rate);
        self.weight = (self.weight / (1.0 + self.weight)).max(NEWEST_RATE);
        self.best = self.rate.max(self.best * REMEMBERED);
        let deep = usize::from(self.took > cap.mul_f64(DEEP * answered));
        let counts = self.spent > passed.mul_f64(SPENT);
        let refuses_many = counts && refused > FEW * (answered + refused);
        if self.opens > 0 {
            self.opens -= 1;
        } else if refuses_many && self.open < 1.0 && answered > 0.0 && self.rate < LOST * self.best {
            // Fewer are answered, and no fewer refused: not because there are too many of them.
            (self.open, self.best) = (1.0, self.rate);
            (self.opens, self.opens_next) = (self.opens_next, (2 * self.opens_next).min(OPEN_WINDOWS[1]));
        } else if refuses_many {
            // At least one: a model that answers nothing is asked again and again whether it does.
            self.open = (ANSWERED[deep] * answered.max(1.0) / offered.max(1.0)).clamp(SLOWEST * self.open, 1.0);
        } else {
            self.open = (self.open * FASTER[deep]).min(1.0);
            if self.open == 1.0 {
                self.opens_next = OPEN_WINDOWS[0];
            }
        }
        self.share_out(self.open * offered);
        let callers = std::mem::take(&mut self.callers);
        *self = Gate {
            callers,
            since: Some(now),
            answered: 0,
            refused: 0,
            took: Duration::ZERO,
            spent: Duration::ZERO,
            ways: [if self.ways[1] == Duration::MAX { Duration::ZERO } else { self.ways[1] }, Duration::MAX],
            ..*self
        };
    }

    /// Shares `most` requests out among those who asked, by max-min fairness: the least demanding first, each no more than he
    /// asked for and no more than his part by weight of what is left.
    fn share_out(&mut self, mut most: f64) {
        self.callers.retain(|_, asks| asks.offered > 0);
        let mut callers: Vec<&mut Asks> = self.callers.values_mut().collect();
        callers.sort_by(|a, b| (f64::from(a.offered) / a.weight).total_cmp(&(f64::from(b.offered) / b.weight)));
        let mut weights: f64 = callers.iter().map(|asks| asks.weight).sum();
        for asks in callers {
            let offered = f64::from(asks.offered);
            let part = offered.min(most * asks.weight / weights);
            (most, weights) = (most - part, weights - asks.weight);
            asks.open = if self.open < 1.0 { part / offered } else { 1.0 };
            asks.offered = 0;
        }
    }
}

/// How long a request has waited to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// Since it came. This counts against its cap.
    pub whole: Duration,
    /// Of that, what was not behind another request of the same connection. This alone tells of the reader's queue: a client that sends
    /// the next request before it has its answer makes that request wait however idle the reader is.
    pub queued: Duration,
}

/// One reader's knowledge of its own queue, that in the sockets: who has waited there for too long to be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Front {
    /// The share of its cap that a request may wait.
    share: f64,
    window: Option<Window>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Window {
    since: Instant,
    length: Duration,
    /// The least wait in it, as a share of the cap.
    least: f64,
}

impl Default for Front {
    fn default() -> Front {
        Front { share: 1.0, window: None }
    }
}

impl Front {
    /// Decides at `now` about a request that has had this wait and is to be answered within `cap` of its arrival, if its model's
    /// [way](Gate::way) is no longer than `way`. Models differ in that, and one that is slow says nothing of another.
    pub fn judge(&mut self, now: Instant, wait: Wait, cap: Duration, way: Duration) -> Verdict {
        let share = wait.queued.as_secs_f64() / cap.as_secs_f64().max(1e-9);
        self.pass(now, cap);
        if let Some(window) = &mut self.window {
            window.least = window.least.min(share);
        }
        if wait.whole.saturating_add(way) > cap {
            Verdict::Refuse(Why::Late)
        } else if share > self.share {
            Verdict::Refuse(Why::Overload)
        } else {
            Verdict::Read
        }
    }

    /// Ends the window if its time is over, and begins another.
    fn pass(&mut self, now: Instant, cap: Duration) {
        let begun = Window { since: now, length: cap.mul_f64(WINDOW), least: f64::INFINITY };
        let Some(window) = self.window else {
            self.window = Some(begun);
            return;
        };
        let passed = now.since(window.since);
        if passed < window.length {
            return;
        }
        if passed >= window.length * 2 {
            // A window in which nothing came: nothing stands.
            *self = Front { window: Some(begun), ..Front::default() };
            return;
        }
        if window.least > self.share * STANDS {
            self.share = (self.share / 2.0).max(LEAST_SHARE);
        } else if window.least < self.share * GONE {
            self.share = (self.share * 2.0).min(1.0);
        }
        self.window = Some(begun);
    }
}
