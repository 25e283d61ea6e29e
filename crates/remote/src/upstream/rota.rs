//! Which server gets a batch: the least loaded one of those that are well.
//!
//! Pure: whoever sends batches says what came of each.

use std::time::Duration;

/// Answers in a row that say nothing of a batch, after which a server is left out.
const FAILURES: u32 = 5;

/// The first pause of a server that is left out, and the longest of one that says it is well and answers no batch.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What came of a batch that was sent to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It was answered, or its rows were refused for what they are.
    Fine,
    /// The server answered that it has no room, or that what is behind it does not answer.
    Failed,
    /// There was no answer: no connection, a connection that broke, silence.
    Silent,
}

/// The servers, by their places from 0.
#[derive(Debug)]
pub(super) struct Rota {
    servers: Vec<Server>,
    /// Batches sent so far: between equals, who was asked longest ago is next.
    sent: u64,
}

#[derive(Debug, Clone, Default)]
struct Server {
    /// Batches that it has.
    out: usize,
    /// When it was last asked.
    asked: u64,
    /// Failures in a row.
    failures: u32,
    is_left_out: bool,
    /// How often it was left out since it last answered a batch.
    in_vain: u32,
}

impl Rota {
    pub(super) fn new(servers: usize) -> Rota {
        Rota { servers: vec![Server::default(); servers], sent: 0 }
    }

    /// The server for the next batch, which it has from now on: of those that are not left out nor in `tried`. `None` if there
    /// is none.
    pub(super) fn pick(&mut self, tried: &[usize]) -> Option<usize> {
        let able = self.servers.iter().enumerate().filter(|(i, server)| !server.is_left_out && !tried.contains(i));
        let (place, _) = able.min_by_key(|(_, server)| (server.out, server.asked))?;
        self.sent += 1;
        let server = &mut self.servers[place];
        server.out += 1;
        server.asked = self.sent;
        Some(place)
    }

    /// The batch at `place` is back. If the server is left out from now on, and was not before, returns for how long at least: then somebody is to
    /// [`bring it back`](Self::is_back). That is longer each time until it answers a batch: a server may say that it is well while what is behind it hangs.
    pub(super) fn back(&mut self, place: usize, end: End) -> Option<Duration> {
        let server = &mut self.servers[place];
        server.out -= 1;
        match end {
            End::Fine => (server.failures, server.in_vain) = (0, 0),
            End::Failed => server.failures += 1,
            End::Silent => server.failures = FAILURES,
        }
        if server.is_left_out || server.failures < FAILURES {
            return None;
        }
        let pause = FIRST_PAUSE.saturating_mul(2u32.saturating_pow(server.in_vain)).min(LONGEST_PAUSE);
        server.is_left_out = true;
        server.in_vain += 1;
        Some(pause)
    }

    /// The server at `place` answers again.
    pub(super) fn is_back(&mut self, place: usize) {
        let server = &mut self.servers[place];
        (server.is_left_out, server.failures) = (false, 0);
    }

    /// How many are not left out.
    pub(super) fn well(&self) -> usize {
        self.servers.iter().filter(|server| !server.is_left_out).count()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_least_loaded_is_next_and_equals_take_turns() {
        let mut rota = Rota::new(3);
        let picked: Vec<_> = (0..6).filter_map(|_| rota.pick(&[])).collect();
        assert_eq!(picked, [0, 1, 2, 0, 1, 2]);
        rota.back(1, End::Fine);
        assert_eq!(rota.pick(&[]), Some(1));
        assert_eq!(rota.pick(&[0, 1]), Some(2));
        assert_eq!(rota.pick(&[0, 1, 2]), None);
    }

    #[test]
    fn who_is_silent_is_left_out_at_once_and_who_fails_after_five_times_in_a_row() {
        let mut rota = Rota::new(1);
        assert_eq!(rota.pick(&[]), Some(0));
        assert!(rota.back(0, End::Silent).is_some(), "left out by this");
        assert_eq!((rota.pick(&[]), rota.well()), (None, 0));
        rota.is_back(0);
        for end in [End::Failed, End::Failed, End::Failed, End::Failed, End::Fine] {
            rota.pick(&[]).expect("it is well");
            assert_eq!(rota.back(0, end), None);
        }
        for last in [false, false, false, false, true] {
            rota.pick(&[]).expect("it is well");
            assert_eq!(rota.back(0, End::Failed).is_some(), last);
        }
    }

    #[test]
    fn who_says_that_it_is_well_and_answers_nothing_is_left_out_for_longer_each_time() {
        let mut rota = Rota::new(1);
        let mut left_out = |end| {
            rota.pick(&[]).expect("it is well");
            let pause = rota.back(0, end);
            rota.is_back(0);
            pause.map(|pause| pause.as_millis())
        };
        let pauses: Vec<_> = (0..11).filter_map(|_| left_out(End::Silent)).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        assert_eq!(left_out(End::Fine), None);
        assert_eq!(left_out(End::Silent), Some(100));
    }

    #[test]
    fn two_batches_that_end_in_silence_leave_a_server_out_once() {
        let mut rota = Rota::new(1);
        let both = [rota.pick(&[]), rota.pick(&[])];
        assert_eq!(both, [Some(0), Some(0)]);
        assert!(rota.back(0, End::Silent).is_some());
        assert!(rota.back(0, End::Silent).is_none(), "nobody else is to bring it back");
    }

    proptest! {
        #[test]
        fn nobody_who_is_left_out_gets_a_batch_and_loads_differ_by_one_where_all_are_well(
            steps in prop::collection::vec((0..3_usize, 0..8_usize), 1..200),
        ) {
            let mut rota = Rota::new(3);
            let mut out: Vec<usize> = Vec::new();
            for (what, i) in steps {
                let end = [End::Fine, End::Failed, End::Silent][what];
                if i < 5 {
                    let least = rota.servers.iter().filter(|s| !s.is_left_out).map(|s| s.out).min();
                    let picked = rota.pick(&[]);
                    prop_assert_eq!(picked.map(|place| rota.servers[place].out), least.map(|least| least + 1));
                    prop_assert!(picked.is_none_or(|place| !rota.servers[place].is_left_out));
                    out.extend(picked);
                } else if let Some(place) = out.pop() {
                    rota.back(place, end);
                } else {
                    rota.is_back(i % 3);
                }
            }
            let counted = rota.servers.iter().map(|server| server.out).sum::<usize>();
            prop_assert_eq!(counted, out.len());
        }
    }
}
