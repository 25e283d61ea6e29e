//! When a request's head was in: the moment from which its latency counts, decoding included; and when all of it was.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::FromRequestParts;
use http::request::Parts;
use tokio::time::Instant;

use super::closing::Going;
use super::v2::coding::{SAID_IN, Until};
use crate::batcher;
use crate::error::Error;
use crate::registry::{Caller, Terms};

/// The stamp. `connection` sets it before anything else looks at the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival(pub(super) Instant);

impl Arrival {
    /// A request whose head is in now.
    pub(super) fn now() -> Arrival {
        Arrival(Instant::now())
    }
}

/// When a request came, and whose it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Came {
    /// When its head was in.
    pub(super) arrival: Arrival,
    /// When its last byte was, as far as its client is concerned: what was there before the server looked is not counted against him.
    pub(super) whole: Instant,
    /// Whose it is.
    pub(super) caller: Caller,
}

impl Came {
    /// What is said of it to whom it goes.
    pub(super) fn terms(&self) -> Terms {
        Terms::since(self.arrival.0).caller(self.caller)
    }

    /// What its caller is told in place of this: where most of the time went while the body came, and the answer would have been in
    /// time without, it is that. A retry that is sent as slowly would fare no better.
    pub(super) fn blamed_for(&self, error: Error) -> Error {
        let Error::Refused(batcher::Error::Late { predicted_ms, deadline_ms, .. }) = error else { return error };
        let took_ms = self.whole.saturating_duration_since(self.arrival.0).as_secs_f64() * 1e3;
        let is_to_blame = predicted_ms - took_ms <= deadline_ms && took_ms >= deadline_ms / 2.0;
        if is_to_blame { Error::SlowBody { took_ms, deadline_ms } } else { error }
    }
}

/// A request of which no more than the head is in.
#[derive(Debug, Clone)]
pub(super) struct Coming {
    arrival: Arrival,
    caller: Caller,
    going: Going,
}

impl Coming {
    /// Until when its body is to be unpacked, for an answer `within` so long after its arrival.
    pub(super) fn until(&self, within: Duration) -> Until {
        Until { since: self.arrival.0, within, going: self.going.clone(), said_in: SAID_IN }
    }

    /// Its body was waited for so long.
    pub(super) fn whole(self, took: Duration) -> Came {
        let Coming { arrival, caller, .. } = self;
        Came { arrival, whole: arrival.0 + took, caller }
    }
}

impl<S: Sync> FromRequestParts<S> for Coming {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Coming, Infallible> {
        // Without a stamp the request did not come through a connection; then it arrives here.
        let arrival = parts.extensions.get().copied().unwrap_or_else(Arrival::now);
        let going = parts.extensions.get().cloned().unwrap_or_default();
        Ok(Coming { arrival, caller: parts.extensions.get().copied().unwrap_or_default(), going })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_took_most_of_the_time_is_to_blame_and_no_other() {
        let told = |took_ms: u64, predicted_ms| {
            let arrival = Arrival::now();
            let came = Came { arrival, whole: arrival.0 + Duration::from_millis(took_ms), caller: Caller::default() };
            let retry_after = Some(Duration::from_millis(2));
            came.blamed_for(Error::Refused(batcher::Error::Late { predicted_ms, deadline_ms: 100.0, retry_after }))
        };
        let slow = told(200, 204.8);
        assert_eq!(slow, Error::SlowBody { took_ms: 200.0, deadline_ms: 100.0 });
        assert!(slow.to_string().starts_with("refused: the body took 200.0 ms to arrive"), "{slow}");
        assert_eq!(slow.retry_after(), None);
        assert!(matches!(told(60, 110.0), Error::SlowBody { .. }));
        for (took_ms, predicted_ms) in [(1, 100.5), (40, 110.0), (200, 500.0)] {
            assert!(matches!(told(took_ms, predicted_ms), Error::Refused(_)), "{took_ms} ms, {predicted_ms} ms");
        }
    }
}
