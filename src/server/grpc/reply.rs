//! What a gRPC call is answered with: messages, and behind them a status.
//!
//! Source: <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>. When to ask again is said twice: as
//! `google.rpc.RetryInfo`, for people and programs, and as `grpc-retry-pushback-ms`, which gRPC's own retries obey
//! (<https://github.com/grpc/proposal/blob/master/A6-client-retries.md>).

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use bytes::Bytes;
use futures_util::stream::{BoxStream, Stream, StreamExt};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::body::Frame;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use prost::Message;

use crate::server::status::Refusal;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// What a message escapes beside what is not ASCII.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// A call that is refused before any message.
pub(in crate::server) fn refused(refusal: Refusal) -> Response {
    let mut response = Response::new(Body::empty());
    *response.headers_mut() = trailers(Some(&refusal));
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    // For the log and the span, which are written where the answer passes last.
    response.extensions_mut().insert(refusal);
    response
}

/// A call that is answered with one message.
pub(super) fn unary(message: Bytes) -> Response {
    of(Body::new(Unary { message: Some(message), is_told: false }))
}

/// A call that is answered with messages as they come, and refused behind them where one is an error.
pub(super) fn streaming(messages: impl Stream<Item = Result<Bytes, Refusal>> + Send + 'static) -> Response {
    of(Body::new(Streaming(Some(messages.boxed()))))
}

fn of(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}

/// The status, with the reason where it is not 0.
fn trailers(refusal: Option<&Refusal>) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(5);
    let Some(refusal) = refusal else {
        trailers.insert(STATUS, HeaderValue::from_static("0"));
        return trailers;
    };
    trailers.insert(STATUS, HeaderValue::from(u16::from(refusal.grpc_status())));
    let ascii = |text: String| HeaderValue::try_from(text).expect("it is visible ASCII");
    trailers.insert(MESSAGE, ascii(utf8_percent_encode(refusal.message(), ESCAPED).to_string()));
    if let Some(wait) = refusal.wait() {
        trailers.insert(DETAILS, ascii(BASE64_STANDARD_NO_PAD.encode(details(refusal, wait))));
        let millis = wait.as_millis().max(1);
        trailers.insert(PUSHBACK, HeaderValue::from(u64::try_from(millis).unwrap_or(u64::MAX)));
    }
    trailers
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes, tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Delay>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

fn details(refusal: &Refusal, wait: Duration) -> Vec<u8> {
    let seconds = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX);
    let delay = Delay { seconds, nanos: wait.subsec_nanos() as i32 };
    let info = RetryInfo { retry_delay: Some(delay) };
    let any = Any { type_url: "type.googleapis.com/google.rpc.RetryInfo".into(), value: info.encode_to_vec() };
    let message = refusal.message().to_owned();
    Status { code: refusal.grpc_status().into(), message, details: vec![any] }.encode_to_vec()
}

/// A message and a good status.
struct Unary {
    message: Option<Bytes>,
    is_told: bool,
}

impl HttpBody for Unary {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(message) = self.message.take() {
            return Poll::Ready(Some(Ok(Frame::data(message))));
        }
        let was_told = std::mem::replace(&mut self.is_told, true);
        Poll::Ready((!was_told).then(|| Ok(Frame::trailers(trailers(None)))))
    }
}

/// Messages and a status.
struct Streaming(Option<BoxStream<'static, Result<Bytes, Refusal>>>);

impl HttpBody for Streaming {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(messages) = &mut self.0 else { return Poll::Ready(None) };
        let refusal = match ready!(messages.poll_next_unpin(cx)) {
            Some(Ok(message)) => return Poll::Ready(Some(Ok(Frame::data(message)))),
            Some(Err(refusal)) => Some(refusal),
            None => None,
        };
        self.0 = None;
        Poll::Ready(Some(Ok(Frame::trailers(trailers(refusal.as_ref())))))
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn a_refusal_says_why_and_when_to_ask_again() {
        let refusal =
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "100 % is ü").retry_after(Duration::from_millis(1500));
        let trailers = trailers(Some(&refusal));
        assert_eq!(trailers["grpc-status"], "14");
        assert_eq!(trailers["grpc-retry-pushback-ms"], "1500");
        assert_eq!(trailers["grpc-message"], "100 %25 is %C3%BC");
        let details = BASE64_STANDARD_NO_PAD.decode(&trailers["grpc-status-details-bin"]).unwrap();
        let status = Status::decode(&details[..]).unwrap();
        assert_eq!((status.code, status.message.as_str()), (14, "100 % is ü"));
        let info = RetryInfo::decode(&status.details[0].value[..]).unwrap();
        assert_eq!(info.retry_delay, Some(Delay { seconds: 1, nanos: 500_000_000 }));
    }
}
