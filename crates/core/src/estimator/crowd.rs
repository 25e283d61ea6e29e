//! Tells a fixed crowd of callers, each of whom waits for an answer before asking again, from an open stream.

use std::time::Duration;

use super::Instant;
use super::fit::duration;

/// Arrivals that an open stream would have brought, on average, while the whole crowd was present: none came, and e⁻⁸ is
/// unlikely enough to believe in a crowd.
const EVIDENCE: f64 = 8.0;
/// Batches without the whole crowd present after which its size is measured anew.
const PATIENCE: u32 = 16;
/// Share of a new time in the remembered time to return.
const GAIN: f64 = 0.25;

/// Watches how many requests are present: waiting or running.
///
/// In a closed loop of N callers that number reaches N, never more, and while it is N nobody arrives. An open stream does
/// not care how many are present, and soon exceeds any number.
#[derive(Debug, Clone, Default)]
pub struct Crowd {
    /// Most that were present.
    size: usize,
    /// Requests that arrived since `size` was last raised, and when that was.
    arrivals: u64,
    since: Instant,
    /// How long all have been present since, and since when they are now.
    complete: Duration,
    complete_since: Option<Instant>,
    /// The latest batch to come back, and the most present in the batches since the crowd was last complete.
    landed: Instant,
    batches: u32,
    most: usize,
    /// From a batch's return to the crowd being complete again, in seconds.
    returns: Option<f64>,
}

/// A crowd that is believed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownCrowd {
    /// Requests present when nobody is missing; at least two.
    pub size: usize,
    /// How long after a batch's return all are present again.
    pub returns: Duration,
    /// How to take turns with them, where that has been learned.
    pub turn: Option<Turn>,
}

/// How a crowd is best served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Requests that a batch waits for.
    pub at_least: usize,
    /// The most that go with one, if more have come.
    pub at_most: usize,
    /// How long it waits at most, from when the runner came free on: even a slow caller would be back.
    pub wait: Duration,
}

impl Crowd {
    /// Has seen nobody.
    #[must_use]
    pub fn new() -> Crowd {
        Crowd::default()
    }

    /// Takes in an arrival, after which so many are `present`.
    pub fn arrived(&mut self, now: Instant, present: usize) {
        self.arrivals += 1;
        self.most = self.most.max(present);
        if present > self.size {
            self.restart(now, present);
        }
        if present == self.size {
            if self.batches > 0 {
                let time = now.since(self.landed).as_secs_f64();
                self.returns = Some(self.returns.map_or(time, |known| known + GAIN * (time - known)));
            }
            // If it was complete before, somebody has been refused or has left since: the stream did not keep quiet.
            self.complete_since = Some(now);
            (self.batches, self.most) = (0, 0);
        }
    }

    /// Takes in that a batch came back, its callers gone already.
    pub fn landed(&mut self, now: Instant) {
        if let Some(since) = self.complete_since.take() {
            self.complete += now.since(since);
        }
        self.landed = now;
        self.batches += 1;
        if self.batches > PATIENCE {
            let most = self.most;
            self.restart(now, most);
        }
    }

    /// Takes in that nobody is missing, although all were never present at once: they come in groups that take turns.
    pub(crate) fn confirm(&mut self) {
        (self.batches, self.most) = (0, 0);
    }

    fn restart(&mut self, now: Instant, size: usize) {
        *self = Crowd { size, since: now, landed: self.landed, batches: self.batches.min(1), ..Crowd::default() };
    }

    /// The crowd, if there is one by all that is known at `now`.
    #[must_use]
    pub fn known(&self, now: Instant) -> Option<KnownCrowd> {
        let size = self.callers(now).filter(|size| *size > 1)?;
        Some(KnownCrowd { size, returns: duration(self.returns?), turn: None })
    }

    /// How many callers there are, if they are a crowd by all that is known at `now`, be it a lone one.
    pub(crate) fn callers(&self, now: Instant) -> Option<usize> {
        let lived = now.since(self.since).as_secs_f64().max(f64::MIN_POSITIVE);
        let complete = self.complete + self.complete_since.map_or(Duration::ZERO, |since| now.since(since));
        let is_evident = self.arrivals as f64 * complete.as_secs_f64() >= EVIDENCE * lived;
        is_evident.then_some(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    /// Rounds of 20 ms: all are back within 4 ms and answered together after 16.
    fn rounds(crowd: &mut Crowd, from: u64, rounds: u64, callers: usize) {
        for round in from..from + rounds {
            for caller in 0..callers {
                crowd.arrived(ms(round * 20 + 4), caller + 1);
            }
            crowd.landed(ms(round * 20 + 20));
        }
    }

    #[test]
    fn callers_who_wait_for_each_answer_are_a_crowd_of_their_number() {
        let mut crowd = Crowd::new();
        rounds(&mut crowd, 0, 1, 16);
        assert_eq!(crowd.known(ms(20)), None, "one round is no evidence of a second");
        rounds(&mut crowd, 1, 3, 16);
        let known = crowd.known(ms(80)).expect("four rounds and nobody else came");
        assert_eq!(known, KnownCrowd { size: 16, returns: Duration::from_millis(4), turn: None });
    }

    #[test]
    fn a_crowd_that_has_become_smaller_is_measured_anew_and_one_that_grows_at_once() {
        let mut crowd = Crowd::new();
        rounds(&mut crowd, 0, 8, 16);
        rounds(&mut crowd, 8, 30, 5);
        assert_eq!(crowd.known(ms(38 * 20)).map(|c| c.size), Some(5));
        crowd.arrived(ms(38 * 20 + 1), 6);
        assert_eq!(crowd.known(ms(38 * 20 + 1)), None, "a sixth: the evidence begins anew");
    }

    #[test]
    fn arrivals_that_do_not_care_who_is_present_are_no_crowd() {
        let mut crowd = Crowd::new();
        let (mut believed, mut present, mut random) = (0, 0, 1u32);
        // One every 3 ms on average, all present answered every 20 ms.
        for at in 0..100_000 {
            if at % 20 == 0 {
                crowd.landed(ms(at));
                present = 0;
            }
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if random < u32::MAX / 3 {
                present += 1;
                crowd.arrived(ms(at), present);
            }
            believed += usize::from(crowd.known(ms(at)).is_some());
        }
        assert!(believed < 100, "believed in for {believed} of 100,000 ms");
    }

    #[test]
    fn who_is_let_in_only_as_others_are_refused_is_no_crowd() {
        // Ten wait at all times; each arrival takes the place of one that was refused just before.
        let mut crowd = Crowd::new();
        for at in 0..2000 {
            crowd.arrived(ms(at), if at < 10 { at as usize + 1 } else { 10 });
            if at % 20 == 19 {
                crowd.landed(ms(at));
                crowd.arrived(ms(at), 10);
            }
            assert_eq!(crowd.known(ms(at)), None, "at {at} ms");
        }
    }

    #[test]
    fn a_lone_caller_is_no_crowd_but_is_told_from_an_open_stream() {
        let mut crowd = Crowd::new();
        rounds(&mut crowd, 0, 100, 1);
        assert_eq!((crowd.known(ms(2000)), crowd.callers(ms(2000))), (None, Some(1)));
    }

    #[test]
    fn the_time_to_return_is_that_of_the_last_to_come_and_follows_slowly() {
        let mut crowd = Crowd::new();
        rounds(&mut crowd, 0, 8, 16);
        // All come at once but for one, 8 ms after the batch's return instead of 4.
        (0..15).for_each(|caller| crowd.arrived(ms(8 * 20 + 1), caller + 1));
        crowd.arrived(ms(8 * 20 + 8), 16);
        assert_eq!(crowd.known(ms(8 * 20 + 8)).map(|c| c.returns), Some(Duration::from_millis(5)));
    }

    #[test]
    fn when_nobody_has_returned_yet_nothing_is_known_however_long_all_wait() {
        let mut crowd = Crowd::new();
        (0..100).for_each(|caller| crowd.arrived(ms(4), caller + 1));
        assert_eq!(crowd.known(ms(100_000)), None);
    }

    #[test]
    fn a_crowd_counts_as_complete_only_while_nobody_is_missing() {
        let mut crowd = Crowd::new();
        // Two callers, one of whom is missing for nine tenths of the time: that nobody came then says nothing.
        for round in 0..15 {
            crowd.arrived(ms(round * 1000), 1);
            crowd.arrived(ms(round * 1000 + 900), 2);
            crowd.landed(ms(round * 1000 + 1000));
        }
        assert_eq!(crowd.known(ms(15_000)), None, "thirty arrivals, a tenth of the time");
        for round in 15..60 {
            crowd.arrived(ms(round * 1000), 1);
            crowd.arrived(ms(round * 1000 + 900), 2);
            crowd.landed(ms(round * 1000 + 1000));
        }
        assert_eq!(crowd.known(ms(60_000)).map(|c| c.size), Some(2), "a hundred and twenty");
    }

    #[test]
    fn a_crowd_that_waits_now_is_evidence_already() {
        let mut crowd = Crowd::new();
        rounds(&mut crowd, 0, 1, 9);
        (0..9).for_each(|caller| crowd.arrived(ms(24), caller + 1));
        assert_eq!(crowd.known(ms(24)), None);
        assert!(crowd.known(ms(200)).is_some(), "nobody else has come for all this time");
    }

    #[test]
    fn sixteen_batches_without_the_whole_crowd_are_forgiven_and_one_more_is_not() {
        let size_after = |batches| {
            let mut crowd = Crowd::new();
            rounds(&mut crowd, 0, 8, 16);
            rounds(&mut crowd, 8, batches, 5);
            crowd.size
        };
        assert_eq!((size_after(15), size_after(16)), (16, 5));
    }
}
