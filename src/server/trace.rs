//! Hands a request's span to whoever answers it.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use http::request::Parts;

use crate::telemetry::RequestSpan;

/// The span that `connection` began, or none. It is put on requests that are sampled only.
#[derive(Debug, Clone, Default)]
pub(super) struct Traced(pub(super) RequestSpan);

impl<S: Sync> FromRequestParts<S> for Traced {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Traced, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}

/// Tells the span by which pattern its path was found. Stands between the router and the handlers only where traces are on.
pub(super) async fn note_route(request: Request, next: Next) -> Response {
    if let (Some(Traced(span)), Some(path)) = (request.extensions().get(), request.extensions().get::<MatchedPath>()) {
        span.route(request.method(), path.as_str());
    }
    next.run(request).await
}
