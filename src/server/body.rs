//! Reads a request's body within a size and a time.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Body as _;

use super::Options;
use super::status::Refusal;

/// Most bytes that are set aside for a body on the strength of its announced length alone.
const TRUSTED_LENGTH: u64 = 1024 * 1024;

/// The whole body; 413 where it is larger than allowed, 408 where it takes too long, 400 where it breaks off.
pub(super) async fn read(body: Body, options: &Options) -> Result<Bytes, Refusal> {
    let too_large = || {
        let message = format!("the body is larger than the {} bytes that this server takes", options.max_body_bytes);
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message).and_close()
    };
    let announced = body.size_hint().lower();
    if announced > options.max_body_bytes as u64 {
        return Err(too_large());
    }
    tokio::time::timeout(options.body_timeout, collect(body, announced, options.max_body_bytes))
        .await
        .map_err(|_| slow(options.body_timeout))??
        .ok_or_else(too_large)
}

/// The whole body, or `None` where it goes beyond `limit`.
async fn collect(mut body: Body, announced: u64, limit: usize) -> Result<Option<Bytes>, Refusal> {
    let mut first: Option<Bytes> = None;
    let mut joined = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::bad_request("the body broke off").and_close())?;
        // Trailers say nothing that is used here.
        let Ok(data) = frame.into_data() else { continue };
        let so_far = joined.len() + first.as_ref().map_or(0, Bytes::len);
        if data.len() > limit - so_far {
            return Ok(None);
        }
        match first.take() {
            // A body that came in one piece, as nearly all do, is not copied.
            None if joined.is_empty() => first = Some(data),
            None => joined.extend_from_slice(&data),
            Some(earlier) => {
                joined.reserve(announced.min(TRUSTED_LENGTH) as usize);
                joined.extend_from_slice(&earlier);
                joined.extend_from_slice(&data);
            }
        }
    }
    Ok(Some(first.unwrap_or_else(|| joined.freeze())))
}

fn slow(limit: Duration) -> Refusal {
    let message = format!("the request's body took longer than {limit:?}");
    Refusal::new(StatusCode::REQUEST_TIMEOUT, message).and_close()
}
