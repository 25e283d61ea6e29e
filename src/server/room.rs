//! Memory for the bodies of all requests and answers, and how much of it a caller may have.
//!
//! Whoever comes first would have all of it. So a caller who is told apart by a token, and has several requests in hand, may hold no more
//! than three times what is left free: a dynamic threshold (Choudhury and Hahne, 1998). Whoever comes next finds a quarter of what the one before
//! found; and once what was taken before is given back, n callers who ask without end have three of 3·n + 1 parts each, and leave one. A
//! caller's only request may have all that is free, or one that fits could never be answered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;

use super::Options;
use super::status::Refusal;
use crate::metrics::TurnedAway;
use crate::registry::Caller;

/// Bytes that are counted together: counting each would be of no use.
const UNIT: usize = 1024;

/// Tensors and texts below this many bytes take no part of the room for bodies: the number of connections bounds those.
pub(super) const UNCOUNTED: usize = 64 * 1024;

/// Answers below this many bytes take no part of the room. A connection over HTTP/2 may have hundreds that its client does not take.
const UNCOUNTED_ANSWER: usize = 16 * 1024;

/// How many times what is left free a caller may hold: enough for one who is alone, and a part for whoever comes next.
const TIMES: u64 = 3;

/// The room, as one request sees it.
#[derive(Debug, Clone)]
pub(super) struct Room {
    ledger: Arc<Mutex<Ledger>>,
    bytes: usize,
    /// Whose it is, where callers are told apart.
    request: Option<Arc<OfRequest>>,
}

/// A request, where its caller is told apart.
#[derive(Debug)]
struct OfRequest {
    caller: Caller,
    /// Units that it holds. Changes under the ledger's lock only.
    units: AtomicU64,
}

/// A part of the room, until it is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    room: Room,
    units: u64,
}

impl Room {
    /// Room for `bytes` bytes.
    pub(super) fn new(bytes: usize) -> Room {
        let ledger = Ledger { free: (bytes / UNIT) as u64, callers: HashMap::new() };
        Room { ledger: Arc::new(Mutex::new(ledger)), bytes, request: None }
    }

    /// The same room for a request of `caller`, from whom others are told apart where he has an id.
    pub(super) fn of(&self, caller: Caller) -> Room {
        let request = (caller.id != 0).then(|| Arc::new(OfRequest { caller, units: AtomicU64::new(0) }));
        Room { request, ..self.clone() }
    }

    /// The same room for another request of the same caller.
    pub(super) fn of_the_next(&self) -> Room {
        self.request.as_ref().map_or_else(|| self.clone(), |request| self.of(request.caller))
    }

    /// Refuses what would never have room, however long it waits.
    fn could_hold(&self, bytes: usize) -> Result<(), Refusal> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let message = format!("the request takes {bytes} bytes, more than the {} kept for all requests", self.bytes);
        Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message))
    }

    /// Takes room for what a body of `read` bytes is made into, which takes so many.
    pub(super) fn admit(&self, takes: usize, read: usize) -> Result<Option<Taken>, Refusal> {
        self.could_hold(takes.saturating_add(read))?;
        self.reserve_much(takes)
    }

    /// Takes room for `bytes` bytes where those are many.
    pub(super) fn reserve_much(&self, bytes: usize) -> Result<Option<Taken>, Refusal> {
        if bytes < UNCOUNTED { Ok(None) } else { self.reserve(bytes).map(Some) }
    }

    /// Takes room for `bytes` bytes, until what comes back is dropped.
    pub(super) fn reserve(&self, bytes: usize) -> Result<Taken, Refusal> {
        self.reserve_within(bytes, TIMES)
    }

    /// The same for a caller who may hold so many times what is left free.
    fn reserve_within(&self, bytes: usize, times: u64) -> Result<Taken, Refusal> {
        let units = bytes.div_ceil(UNIT) as u64;
        let mut ledger = self.ledger();
        let taken = match &self.request {
            None => ledger.take_for_all(units),
            Some(request) => {
                let taken = ledger.take(request.caller, request.units.load(Ordering::Relaxed), units, times);
                taken.inspect(|()| {
                    request.units.fetch_add(units, Ordering::Relaxed);
                })
            }
        };
        drop(ledger);
        taken.map(|()| Taken { room: self.clone(), units }).map_err(|full| {
            let (why, message) = match full {
                Full::Room => {
                    let message =
                        format!("refused: the bodies of other requests fill the {} bytes kept for them", self.bytes);
                    (TurnedAway::Bodies, message)
                }
                Full::Part => {
                    let message = "refused: the other requests of this token take their part of the room for bodies; \
                                   wait for their answers";
                    (TurnedAway::OwnBodies, message.to_owned())
                }
            };
            let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message).turned_away(why);
            refusal.retry_after(Duration::from_secs(1))
        })
    }

    /// Takes room for an answer of `bytes` bytes at most; 413 where that is beyond what the server writes.
    pub(super) fn reserve_answer(&self, bytes: usize, options: &Options) -> Result<Option<Taken>, Refusal> {
        let bound = options.max_answer_bytes;
        if bytes > bound {
            let message = format!(
                "the answer could take {bytes} bytes, more than the {bound} that this server writes; ask for fewer rows or outputs"
            );
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        // It has been computed: what else its caller has in hand is no reason to throw it away.
        if bytes < UNCOUNTED_ANSWER {
            return Ok(None);
        }
        self.reserve_within(bytes, u64::MAX).map(Some).map_err(Refusal::counted)
    }

    /// Takes room for `bytes` more bytes into `taken`.
    pub(super) fn take(&self, bytes: usize, taken: &mut Option<Taken>) -> Result<(), Refusal> {
        // Behind a body of which the rest is still to come, the connection is of no more use.
        let mut more = self.reserve(bytes).map_err(Refusal::and_close)?;
        match taken {
            Some(taken) => taken.units += std::mem::take(&mut more.units),
            None => *taken = Some(more),
        }
        Ok(())
    }

    fn give(&self, units: u64) {
        let mut ledger = self.ledger();
        ledger.free += units;
        if let Some(request) = &self.request {
            request.units.fetch_sub(units, Ordering::Relaxed);
            ledger.give(request.caller, units);
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // It is whole between any two of its methods.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// What is needed of it for `bytes` of the bytes that it is for, without the others.
    pub(super) fn split(&mut self, bytes: usize) -> Taken {
        let units = self.units.min((bytes / UNIT) as u64);
        self.units -= units;
        Taken { room: self.room.clone(), units }
    }

    /// The same part, of another request of its caller.
    pub(super) fn of(mut self, room: &Room) -> Taken {
        let ledger = self.room.ledger();
        if let (Some(one), Some(other)) = (&self.room.request, &room.request) {
            one.units.fetch_sub(self.units, Ordering::Relaxed);
            other.units.fetch_add(self.units, Ordering::Relaxed);
        }
        drop(ledger);
        self.room = room.clone();
        self
    }

    /// Gives back what is not needed for `bytes` bytes.
    pub(super) fn keep(mut self, bytes: usize) -> Taken {
        let kept = self.units.min(bytes.div_ceil(UNIT) as u64);
        self.room.give(self.units - kept);
        self.units = kept;
        self
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.give(self.units);
    }
}

/// What is free, and what each caller holds who is told apart and holds anything.
#[derive(Debug)]
struct Ledger {
    free: u64,
    callers: HashMap<u64, Held>,
}

#[derive(Debug)]
struct Held {
    units: u64,
    weight: u32,
}

/// Why there is no room.
#[derive(Debug, PartialEq)]
enum Full {
    /// It is not free.
    Room,
    /// The caller has his part.
    Part,
}

impl Ledger {
    /// Takes `units` for whoever is not told apart.
    fn take_for_all(&mut self, units: u64) -> Result<(), Full> {
        self.free = self.free.checked_sub(units).ok_or(Full::Room)?;
        Ok(())
    }

    /// Takes `units` for a request of `caller` that holds `own` already, where he may hold so many times what is left free.
    fn take(&mut self, caller: Caller, own: u64, units: u64, times: u64) -> Result<(), Full> {
        let free = self.free;
        let left = free.checked_sub(units).ok_or(Full::Room)?;
        let (held, weight) = (self.callers.get(&caller.id).map_or(0, |held| held.units), caller.weight.get());
        let heaviest = self.callers.values().map(|held| held.weight).fold(weight, u32::max);
        let is_within = |part: u64| {
            u128::from(part) * u128::from(heaviest)
                <= u128::from(times).saturating_mul(u128::from(free) * u128::from(weight))
        };
        if held > own && !is_within(held + units) {
            return Err(Full::Part);
        }
        self.free = left;
        if units > 0 {
            self.callers.insert(caller.id, Held { units: held + units, weight });
        }
        Ok(())
    }

    /// Notes that `caller` has given `units` back.
    fn give(&mut self, caller: Caller, units: u64) {
        if let Some(held) = self.callers.get_mut(&caller.id) {
            held.units -= units;
            if held.units == 0 {
                self.callers.remove(&caller.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;

    const MB: usize = 1 << 20;

    fn caller(id: u64, weight: u32) -> Caller {
        Caller { id, weight: NonZeroU32::new(weight).unwrap(), ..Caller::default() }
    }

    /// Has each caller in turn take a piece for one request after the other, as often as he gets one, while the oldest are answered.
    fn flooded(room: &Room, callers: &[Caller], piece: usize) -> VecDeque<Taken> {
        let mut taken = VecDeque::new();
        let ask = |taken: &mut VecDeque<Taken>| {
            let before = taken.len();
            taken.extend(callers.iter().filter_map(|&caller| room.of(caller).reserve(piece).ok()));
            taken.len() > before
        };
        while ask(&mut taken) {}
        for _ in 0..5000 {
            taken.pop_front();
            ask(&mut taken);
        }
        taken
    }

    #[test]
    fn callers_who_ask_without_end_leave_a_third_of_what_each_of_them_holds_by_their_shares() {
        for (weights, parts) in [
            (&[1000][..], &[75][..]),
            (&[1000, 1000], &[43, 43]),
            (&[3000, 1000], &[60, 20]),
            (&[1, 1, 1, 1], &[23, 23, 23, 23]),
        ] {
            let room = Room::new(100 * MB);
            let callers: Vec<_> = weights.iter().zip(1..).map(|(&weight, id)| caller(id, weight)).collect();
            let taken = flooded(&room, &callers, MB / 4);
            let held = |caller: &Caller| room.ledger().callers[&caller.id].units as usize * UNIT / MB;
            let found: Vec<_> = callers.iter().map(held).collect();
            assert!(found.iter().zip(parts).all(|(a, b)| a.abs_diff(*b) <= 1), "{weights:?}: {found:?}");
            let newcomer = room.of(caller(99, 1));
            assert!(newcomer.reserve((parts.iter().max().unwrap() / 3 - 1) * MB).is_ok(), "{weights:?}");
            drop(taken);
            assert!(newcomer.reserve(100 * MB).is_ok(), "all is given back, and an only request may have it");
        }
    }

    #[test]
    fn whoever_is_not_told_apart_may_have_all_of_it() {
        let room = Room::new(8 * MB);
        let taken = flooded(&room, &[Caller::default()], MB);
        assert_eq!(taken.len(), 8);
        assert_eq!(room.reserve(1).unwrap_err().status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn what_comes_behind_a_request_on_its_stream_is_of_the_next_and_that_may_have_all() {
        let first = Room::new(64 * UNIT).of(caller(1, 1));
        let second = first.of_the_next();
        let ahead = first.reserve(48 * UNIT).unwrap().of(&second);
        assert!(first.of_the_next().reserve(16 * UNIT).is_err(), "another beside it has its part alone");
        let rest = second.reserve(16 * UNIT).unwrap();
        drop((ahead, rest));
        assert_eq!(second.request.as_ref().unwrap().units.load(Ordering::Relaxed), 0);
        drop(first.reserve(64 * UNIT).unwrap());
    }

    #[test]
    fn a_request_that_grows_is_one_and_what_it_does_not_need_is_free_again() {
        let room = Room::new(8 * MB).of(caller(1, 1));
        let mut taken = None;
        (0..6).for_each(|_| room.take(MB, &mut taken).unwrap());
        assert!(room.of_the_next().reserve(2 * MB).is_err(), "its caller has another in hand");
        let kept = taken.unwrap().keep(2 * MB);
        assert!(room.of_the_next().reserve(2 * MB).is_ok());
        drop(kept);
        assert!(room.ledger().callers.is_empty());
    }

    proptest! {
        #[test]
        fn an_only_request_is_refused_what_is_not_free_and_of_several_none_takes_more_than_is_left(
            weights in prop::collection::vec(1u32..5000, 4),
            steps in prop::collection::vec((0usize..4, 0usize..3, prop::option::of(0u64..60)), 1..200),
        ) {
            const ALL: u64 = 100;
            let mut ledger = Ledger { free: ALL, callers: HashMap::new() };
            let mut held = [[0u64; 3]; 4];
            for (who, request, units) in steps {
                let caller = caller(who as u64 + 1, weights[who]);
                let (free, own) = (ledger.free, held[who][request]);
                match units {
                    None => {
                        ledger.free += own;
                        ledger.give(caller, own);
                        held[who][request] = 0;
                    }
                    Some(units) => {
                        let all: u64 = held[who].iter().sum();
                        let holds = |i: &usize| *i == who || held[*i].iter().sum::<u64>() > 0;
                        let heaviest = (0..4).filter(holds).map(|i| weights[i]).max().unwrap();
                        let part = (TIMES * free) as f64 * f64::from(weights[who]) / f64::from(heaviest);
                        let taken = ledger.take(caller, own, units, TIMES);
                        if units > free {
                            prop_assert_eq!(taken, Err(Full::Room));
                        } else if all == own {
                            prop_assert_eq!(taken, Ok(()));
                            held[who][request] += units;
                        } else if taken.is_ok() {
                            prop_assert!((all + units) as f64 <= part + 1e-6);
                            held[who][request] += units;
                        } else {
                            prop_assert!((all + units) as f64 > part - 1e-6);
                        }
                    }
                }
                prop_assert_eq!(ledger.free + held.iter().flatten().sum::<u64>(), ALL);
                let holders = held.iter().filter(|requests| requests.iter().sum::<u64>() > 0).count();
                prop_assert_eq!(ledger.callers.len(), holders);
            }
        }
    }
}
