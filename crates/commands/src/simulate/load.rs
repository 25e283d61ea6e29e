//! Which requests arrive at one model, the same ones as often as wanted.

use std::sync::Arc;
use std::time::Duration;

use crate::arrivals;
use uncork_core::estimator::Instant;
use uncork_sim::{Arrival, ClosedLoop, OpenLoop, Process, Source, Varied, Variety};

/// What would take an hour or more is taken for a slip.
const MOST_REQUESTS: f64 = 2e9;
/// Requests that may wait at once before a simulation takes gigabytes.
const MOST_WAITING: f64 = 2e7;

/// Requests to simulate.
#[derive(Clone)]
pub(super) enum Load {
    /// Those of a file.
    Trace(Arc<[Arrival]>),
    /// Stretches of time, one after the other.
    Stretches(Vec<Stretch>),
    /// Clients that wait for their answers.
    Clients { clients: usize, think: Duration, jitter: f64, length: Duration, variety: Variety, seed: u64 },
}

/// Requests of one kind for so long.
#[derive(Clone)]
pub(super) struct Stretch {
    pub(super) times: Times,
    pub(super) length: Duration,
    pub(super) variety: Variety,
    pub(super) seed: u64,
}

/// When the requests of a stretch arrive.
#[derive(Clone)]
pub(super) enum Times {
    Process(Process),
    /// These times after its begin, in order.
    List(Vec<Duration>),
}

/// What a message about a load calls things, so that whoever reads it finds them.
pub(super) struct Words<'a> {
    /// The load itself.
    pub(super) load: &'a str,
    /// Its length.
    pub(super) length: &'a str,
    /// The model's cap.
    pub(super) max_latency: &'a str,
}

impl Load {
    /// Whether it can be simulated and has any requests.
    ///
    /// # Errors
    /// What is out of bounds.
    pub(super) fn check(&self, max_latency: Duration, words: &Words<'_>) -> Result<(), String> {
        let Words { load, length: length_key, max_latency: cap_key } = words;
        let (rate, length) = match self {
            Load::Trace(_) => return Ok(()), // it is in memory already
            Load::Clients { clients, think, length, .. } => {
                (*clients as f64 / (*think).max(ClosedLoop::ROUND_TRIP).as_secs_f64(), *length)
            }
            Load::Stretches(stretches) => {
                stretches.iter().try_for_each(|stretch| stretch.check(words))?;
                let fastest = stretches.iter().map(Stretch::highest_rate).fold(0.0, f64::max);
                (fastest, self.length())
            }
        };
        let seconds = length.as_secs_f64();
        let requests = rate * seconds;
        if requests > MOST_REQUESTS {
            return Err(format!(
                "{load}: up to {rate} requests a second for {seconds} s are {requests:.0}; at most {MOST_REQUESTS:.0}: a \
                 shorter {length_key}"
            ));
        }
        let waiting = rate * max_latency.min(length).as_secs_f64() * 1.5;
        if waiting > MOST_WAITING && self.is_open() {
            return Err(format!(
                "{load}: {waiting:.0} requests might wait at once for {cap_key} to pass; at most {MOST_WAITING:.0}"
            ));
        }
        if self.source().peek().is_none() {
            return Err(format!("{load}: nothing arrives within {seconds} s; a longer {length_key}"));
        }
        Ok(())
    }

    /// Whether there are requests at that time, which a message calls so, or later; `length` is what it calls the load's own.
    ///
    /// # Errors
    /// The load is over by then.
    pub(super) fn is_there(&self, at: Duration, name: &str, length: &str) -> Result<(), String> {
        let Load::Trace(all) = self else { return arrivals::is_within(at, self.length(), name, length) };
        let last = all.last().map_or(Duration::ZERO, |last| last.at.since(Instant::EPOCH));
        // The last arrival's batch is yet to run then.
        if at <= last {
            return Ok(());
        }
        Err(format!(
            "{name}: what begins at {} s is after the last arrival, at {} s; begin it earlier, or leave it out",
            at.as_secs_f64(),
            // A time stamp of this century has no more digits.
            (last.as_secs_f64() * 1e6).round() / 1e6
        ))
    }

    /// The requests from the first one on.
    pub(super) fn source(&self) -> Box<dyn Source + '_> {
        match self {
            Load::Trace(arrivals) => Box::new(OpenLoop::new(arrivals.iter().copied())),
            Load::Stretches(stretches) => match &stretches[..] {
                [only] => only.source(),
                several => {
                    let begins = several.iter().scan(Duration::ZERO, |end, stretch| {
                        let begin = *end;
                        *end += stretch.length;
                        Some(begin)
                    });
                    let arrivals = several.iter().zip(begins).flat_map(|(stretch, begin)| {
                        let mut source = stretch.source();
                        std::iter::from_fn(move || source.pop()).map(move |a| Arrival { at: a.at + begin, ..a })
                    });
                    Box::new(OpenLoop::new(arrivals))
                }
            },
            Load::Clients { clients, think, jitter, length, variety, seed } => {
                let clients = ClosedLoop::new(*clients, *think, *jitter, Instant::EPOCH + *length, *seed);
                Box::new(Varied::new(clients, variety.clone(), !seed))
            }
        }
    }

    /// Whether the arrivals do not depend on the answers.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self, Load::Clients { .. })
    }

    /// The fewest and the most rows of a request.
    fn rows(&self) -> (usize, usize) {
        let ends = |all: &mut dyn Iterator<Item = usize>| {
            all.fold((usize::MAX, 1), |(least, most), rows| (least.min(rows), most.max(rows)))
        };
        let of = |variety: &Variety| if variety.rows.is_empty() { vec![1] } else { variety.rows.clone() };
        match self {
            Load::Trace(arrivals) => ends(&mut arrivals.iter().map(|a| a.rows)),
            _ => ends(&mut self.varieties().flat_map(of)),
        }
    }

    /// The fewest rows of a request.
    pub(super) fn least_rows(&self) -> usize {
        self.rows().0
    }

    /// The most rows of a request.
    pub(super) fn most_rows(&self) -> usize {
        self.rows().1
    }

    /// Deadlines of their own that some requests have.
    fn own_deadlines(&self) -> Box<dyn Iterator<Item = Duration> + '_> {
        match self {
            Load::Trace(arrivals) => Box::new(arrivals.iter().filter_map(|a| a.within)),
            _ => Box::new(self.varieties().flat_map(|variety| &variety.within).map(|(_, own)| *own)),
        }
    }

    /// Whether some request has a deadline before that of the cap.
    pub(super) fn has_own_deadlines(&self, max_latency: Duration) -> bool {
        self.own_deadlines().any(|own| own < max_latency)
    }

    /// The latest of the deadlines that requests have of their own before this one, in time from their arrival.
    pub(super) fn latest_own_deadline(&self, before: Duration) -> Option<Duration> {
        self.own_deadlines().filter(|own| *own < before).max()
    }

    fn varieties(&self) -> impl Iterator<Item = &Variety> {
        let (one, several) = match self {
            Load::Trace(_) => (None, &[][..]),
            Load::Stretches(stretches) => (None, &stretches[..]),
            Load::Clients { variety, .. } => (Some(variety), &[][..]),
        };
        one.into_iter().chain(several.iter().map(|stretch| &stretch.variety))
    }

    /// The time from the first to the last arrival, about.
    pub(super) fn length(&self) -> Duration {
        match self {
            Load::Trace(arrivals) => match (arrivals.first(), arrivals.last()) {
                (Some(first), Some(last)) => last.at.since(first.at),
                _ => Duration::ZERO,
            },
            Load::Stretches(stretches) => stretches.iter().map(|stretch| stretch.length).sum(),
            Load::Clients { length, .. } => *length,
        }
    }
}

impl Stretch {
    fn source(&self) -> Box<dyn Source + '_> {
        let varied: Box<dyn Iterator<Item = Arrival>> = match &self.times {
            // The usual case, of hundreds of millions of requests: nothing to draw.
            Times::Process(process) if self.variety == Variety::default() => {
                return Box::new(OpenLoop::new(process.arrivals(self.length, self.seed)));
            }
            Times::Process(process) => Box::new(process.arrivals(self.length, self.seed)),
            Times::List(times) => Box::new(times.iter().map(|at| Arrival::at(Instant::EPOCH + *at))),
        };
        Box::new(OpenLoop::new(Varied::new(varied, self.variety.clone(), !self.seed)))
    }

    fn check(&self, words: &Words<'_>) -> Result<(), String> {
        let begin = match &self.times {
            Times::Process(process) => arrivals::begin(process),
            Times::List(times) => times.last().copied().unwrap_or_default(),
        };
        if let Times::Process(process) = &self.times {
            process.check().map_err(|wrong| format!("{}: {wrong}", words.load))?;
        }
        arrivals::is_within(begin, self.length, words.load, words.length)
    }

    /// Requests a second at most; what comes at one instant counts as if it took the stretch.
    fn highest_rate(&self) -> f64 {
        match &self.times {
            Times::List(times) => times.len() as f64 / self.length.as_secs_f64(),
            Times::Process(process) => match process {
                Process::Poisson { rate } | Process::Uniform { rate } | Process::Gamma { rate, .. } => *rate,
                Process::Mmpp { low, high, .. } => low.max(*high),
                Process::Flash { rate, factor, .. } => rate * factor.max(1.0),
                Process::Diurnal { rate, swing, .. } => rate * (1.0 + swing),
                Process::QuietThenBurst { quiet, burst, .. } => quiet.max(*burst),
                Process::FanOut { groups, size, .. } => groups * *size as f64,
            },
        }
    }
}
