//! When a request's head was in: the moment from which its latency counts, decoding included; and when all of it was.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::request::Parts;
use tokio::time::Instant;

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
    /// When its last byte was.
    pub(super) whole: Instant,
    /// Whose it is.
    pub(super) caller: Caller,
}

impl Came {
    /// What is said of it to whom it goes.
    pub(super) fn terms(&self) -> Terms {
        Terms::since(self.arrival.0).caller(self.caller)
    }
}

/// A request of which no more than the head is in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Coming {
    arrival: Arrival,
    caller: Caller,
}

impl Coming {
    /// Its last byte was in at that time.
    pub(super) fn whole(self, whole: Instant) -> Came {
        let Coming { arrival, caller } = self;
        Came { arrival, whole, caller }
    }
}

impl<S: Sync> FromRequestParts<S> for Coming {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Coming, Infallible> {
        // Without a stamp the request did not come through a connection; then it arrives here.
        let arrival = parts.extensions.get().copied().unwrap_or_else(Arrival::now);
        Ok(Coming { arrival, caller: parts.extensions.get().copied().unwrap_or_default() })
    }
}
