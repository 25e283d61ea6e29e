//! When a request's head was in: the moment from which its latency counts, decoding included; and when all of it was.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::request::Parts;
use tokio::time::Instant;

/// The stamp. `connection` sets it before anything else looks at the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival(pub(super) Instant);

impl Arrival {
    /// A request whose head is in now.
    pub(super) fn now() -> Arrival {
        Arrival(Instant::now())
    }
}

/// When a request came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Came {
    /// When its head was in.
    pub(super) arrival: Arrival,
    /// When its last byte was.
    pub(super) whole: Instant,
}

impl<S: Sync> FromRequestParts<S> for Arrival {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Arrival, Infallible> {
        // Without a stamp the request did not come through a connection; then it arrives here.
        Ok(parts.extensions.get().copied().unwrap_or_else(Arrival::now))
    }
}
