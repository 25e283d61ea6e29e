//! What a client is told when it gets no answer: a status, a sentence, and when to ask again.
//!
//! Holds the one map from [`Error`] to a status. Whatever the cause, the body is `{"error": "…"}`: clients decode it
//! without looking at the status first.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use serde::Serialize;

use crate::batcher;
use crate::error::{Error, Outcome};
use crate::metrics::TurnedAway;
use crate::quote::on_one_line;
use crate::registry::Model;
use crate::telemetry::RequestId;

/// The media type of every body that is JSON.
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Most bytes of a message. Ours are shorter, but for those that list a hundred models.
const MOST_MESSAGE: usize = 2048;

/// Why a request is refused whose body took too long, in the word for logs.
const SLOW_BODY: &str = "slow_body";

/// A request that gets no answer.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    status: StatusCode,
    reason: &'static str,
    model: Option<Arc<Model>>,
    message: Cow<'static, str>,
    retry_after: Option<Duration>,
    closes: bool,
    /// Why no model counts it, where it is a request that none does.
    turned_away: Option<TurnedAway>,
    /// Whether its caller set a time of his own, which may be why.
    is_own: bool,
    /// Whether gRPC has it that this is no client's fault, though it is.
    is_internal: bool,
    /// Whether a token would have helped.
    asks_for_token: bool,
    /// Methods that the path takes, where it does not take that of the request.
    allow: Option<&'static str>,
}

impl Refusal {
    /// A refusal with `message`, which must be fit for any client's eyes.
    pub(super) fn new(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Refusal {
        let reason = reason(status);
        // Parsers repeat what they could not read: a value of megabytes, with line ends in it.
        let message = match message.into() {
            Cow::Owned(message) => Cow::Owned(on_one_line(&message, MOST_MESSAGE)),
            ours => ours,
        };
        Refusal {
            status,
            reason,
            model: None,
            message,
            retry_after: None,
            closes: false,
            turned_away: None,
            is_own: false,
            is_internal: false,
            asks_for_token: false,
            allow: None,
        }
    }

    /// 405, of a path that takes these methods.
    pub(super) fn only(methods: &'static str) -> Refusal {
        let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, format!("this path takes {methods}"));
        Refusal { allow: Some(methods), ..refusal }
    }

    /// 401, of a caller without a token that is known.
    pub(super) fn no_token(message: &'static str) -> Refusal {
        Refusal { asks_for_token: true, ..Refusal::new(StatusCode::UNAUTHORIZED, message) }
    }

    /// 400.
    pub(super) fn bad_request(message: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, message)
    }

    /// The same refusal, after which the connection is closed because what follows on it cannot be trusted.
    pub(super) fn and_close(mut self) -> Refusal {
        self.closes = true;
        self
    }

    /// The same refusal, of a call whose parts contradict each other in a way for which gRPC has the code INTERNAL.
    pub(super) fn internal(mut self) -> Refusal {
        self.is_internal = true;
        self
    }

    /// Whether nothing that its client sends behind it in the same call could be understood.
    pub(super) fn ends_call(&self) -> bool {
        self.is_internal || self.status == StatusCode::NOT_IMPLEMENTED
    }

    /// The same refusal, worth another try after `wait`.
    pub(super) fn retry_after(mut self, wait: Duration) -> Refusal {
        self.retry_after = Some(wait);
        self
    }

    /// The same refusal, with a word for logs of its own.
    pub(super) fn because(mut self, reason: &'static str) -> Refusal {
        self.reason = reason;
        self
    }

    /// The same refusal, of a request that no model counts.
    pub(super) fn turned_away(mut self, why: TurnedAway) -> Refusal {
        self.turned_away = Some(why);
        self
    }

    /// The same refusal, of a request that a model counts.
    pub(super) fn counted(mut self) -> Refusal {
        self.turned_away = None;
        self
    }

    /// The same refusal, of a request of which it is not known what model it is for.
    pub(super) fn of_no_model(self) -> Refusal {
        if self.reason == SLOW_BODY { self.turned_away(TurnedAway::SlowBody) } else { self }
    }

    /// Why no model counts it, where that is so.
    pub(super) fn why_turned_away(&self) -> Option<TurnedAway> {
        self.turned_away
    }

    /// The same refusal, of a request for `model`.
    pub(super) fn of(mut self, model: &Arc<Model>) -> Refusal {
        self.model = Some(Arc::clone(model));
        self
    }

    /// The status.
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// The status in gRPC (<https://grpc.github.io/grpc/core/md_doc_statuscodes.html>).
    pub(super) fn grpc_status(&self) -> u8 {
        match self.status {
            _ if self.is_internal => 13,
            StatusCode::BAD_REQUEST => 3, // INVALID_ARGUMENT
            StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => 4, // DEADLINE_EXCEEDED
            StatusCode::NOT_FOUND => 5,
            StatusCode::FORBIDDEN => 7, // PERMISSION_DENIED
            // RESOURCE_EXHAUSTED
            StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            | StatusCode::TOO_MANY_REQUESTS => 8,
            // UNIMPLEMENTED
            StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::NOT_IMPLEMENTED
            | StatusCode::MISDIRECTED_REQUEST => 12,
            StatusCode::SERVICE_UNAVAILABLE => 14, // UNAVAILABLE
            StatusCode::UNAUTHORIZED => 16,        // UNAUTHENTICATED
            _ => 13,                               // INTERNAL
        }
    }

    /// How long to wait before another try, where that may help.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The same refusal, where the model's cap could be kept, and not the shorter time that its caller gave.
    pub(super) fn of_own_time(self) -> Refusal {
        Refusal { is_own: true, ..self }
    }

    /// The same with a status of its own, where it is of the caller's own time.
    pub(super) fn or_timeout(self) -> Refusal {
        let status = if self.is_own { StatusCode::GATEWAY_TIMEOUT } else { self.status };
        Refusal { status, ..self }
    }

    /// Whether less to do would have spared it. A worker that is being replaced refuses few and many alike: to let fewer through would only
    /// lose the others.
    pub(super) fn is_too_much(&self) -> bool {
        !self.is_own && [Outcome::Shed, Outcome::Full].iter().any(|outcome| outcome.label() == self.reason)
    }

    /// Why, in a word for logs and spans; of an error of the registry mostly the outcome's name in the metrics.
    pub(super) fn reason(&self) -> &'static str {
        self.reason
    }

    /// Why, in a sentence.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// Counts a request that was refused before `model` could be asked, unless it was turned away: nothing is wrong with it then.
    pub(super) fn count(&self, model: &Model) {
        match self {
            Refusal { turned_away: Some(_), .. } => {}
            Refusal { reason: SLOW_BODY, .. } => model.count_slow_body(),
            _ => model.count_unreadable(),
        }
    }

    /// Name and version of the model that was asked, where that is known.
    pub(super) fn model(&self) -> Option<(&str, &str)> {
        self.model.as_ref().map(|model| (model.name(), model.version()))
    }

    fn body(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct ErrorBody<'a> {
            error: &'a str,
        }
        serde_json::to_vec(&ErrorBody { error: &self.message }).expect("a string always has a JSON form")
    }

    /// `Retry-After` in whole seconds, rounded up and at least 1: the header knows no fractions, and 0 would invite the
    /// retry that was just refused.
    fn retry_seconds(&self) -> Option<u64> {
        self.retry_after.map(|wait| (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1))
    }

    /// How a token may be shown, where one is asked for. Browsers know the second scheme, and ask their user for it.
    fn schemes(&self) -> &'static [&'static str] {
        if self.asks_for_token { &["Bearer", "Basic realm=\"uncork: the password is a token\""] } else { &[] }
    }

    /// Whether the connection is closed behind it.
    pub(super) fn closes(&self) -> bool {
        self.closes
    }

    /// The refusal as a whole HTTP/1.1 message, for where no request reached the router.
    pub(super) fn to_message(&self, id: &RequestId) -> Vec<u8> {
        use std::io::Write;

        const WRITTEN: &str = "a vector takes all that is written to it";
        let body = self.body();
        let mut message = Vec::with_capacity(256 + body.len());
        let (length, id) = (body.len(), id.as_str());
        write!(
            message,
            "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nx-request-id: {id}\r\n",
            self.status
        )
        .expect(WRITTEN);
        if let Some(seconds) = self.retry_seconds() {
            write!(message, "retry-after: {seconds}\r\n").expect(WRITTEN);
        }
        for scheme in self.schemes() {
            write!(message, "www-authenticate: {scheme}\r\n").expect(WRITTEN);
        }
        if self.closes {
            message.extend_from_slice(b"connection: close\r\n");
        }
        message.extend_from_slice(b"date: ");
        push_date(&mut message);
        message.extend_from_slice(b"\r\n\r\n");
        message.extend_from_slice(&body);
        message
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        let status = match &error {
            Error::UnknownModel { .. } | Error::UnknownVersion { .. } => StatusCode::NOT_FOUND,
            Error::Invalid(_) | Error::UnknownOutput { .. } => StatusCode::BAD_REQUEST,
            Error::Refused(batcher::Error::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Error::Refused(_) | Error::Loading { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Error::SlowBody { .. } | Error::Untold | Error::Absent => StatusCode::SERVICE_UNAVAILABLE,
            Error::ModelFailed | Error::ModelStuck { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let reason = match status {
            StatusCode::NOT_FOUND => reason(status),
            _ if matches!(error, Error::Loading { .. }) => "loading",
            _ if matches!(error, Error::SlowBody { .. }) => SLOW_BODY,
            _ if error == Error::Absent => "absent",
            _ if error == Error::Untold => "untold",
            _ => error.outcome().label(),
        };
        let turned_away = matches!(error, Error::Loading { .. }).then_some(TurnedAway::Loading);
        Refusal { reason, turned_away, retry_after: error.retry_after(), ..Refusal::new(status, error.to_string()) }
    }
}

/// Writes the date, of which each thread keeps the text until its second is over.
pub(super) fn push_date(to: &mut Vec<u8>) {
    thread_local! {
        static DATE: std::cell::RefCell<(u64, String)> = const { std::cell::RefCell::new((0, String::new())) };
    }
    let now = SystemTime::now();
    let second = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    DATE.with_borrow_mut(|(of, text)| {
        if *of != second || text.is_empty() {
            (*of, *text) = (second, httpdate::fmt_http_date(now));
        }
        to.extend_from_slice(text.as_bytes());
    });
}

/// The reason of refusals that no error of the registry stands behind.
fn reason(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::UNAUTHORIZED => "no_token",
        StatusCode::FORBIDDEN => "not_allowed",
        StatusCode::METHOD_NOT_ALLOWED => "method",
        StatusCode::TOO_MANY_REQUESTS => "rate",
        StatusCode::REQUEST_TIMEOUT => "slow_sender",
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => "too_large",
        StatusCode::SERVICE_UNAVAILABLE => "no_room",
        status if status.is_server_error() => "failed",
        _ => "invalid",
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body()));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, JSON);
        if let Some(seconds) = self.retry_seconds() {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        for scheme in self.schemes() {
            response.headers_mut().append(WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
        }
        if let Some(methods) = self.allow {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
        }
        if self.closes {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        // For the log and the span, which are written where the answer passes last.
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn late(retry_after: Duration) -> Refusal {
        refused(batcher::Error::Late { predicted_ms: 61.25, deadline_ms: 50.0, retry_after: Some(retry_after) })
    }

    fn refused(error: batcher::Error) -> Refusal {
        Refusal::from(Error::Refused(error))
    }

    #[test]
    fn retry_after_is_rounded_up_to_whole_seconds_and_never_zero() {
        for (wait_ms, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (2500, 3)] {
            assert_eq!(late(Duration::from_millis(wait_ms)).retry_seconds(), Some(seconds), "{wait_ms} ms");
        }
        assert_eq!(Refusal::from(Error::ModelFailed).retry_seconds(), None);
    }

    #[test]
    fn each_error_has_its_status() {
        let unknown = Error::UnknownModel { name: "m".into(), known: "'n'".into() };
        let version = Error::UnknownVersion { model: "m".into(), version: "2".into(), known: "'1'".into() };
        let output = Error::UnknownOutput { name: "z".into(), known: "'y'".into() };
        let full =
            Error::Refused(batcher::Error::Full { queued: 4, bound: 4, unit: "rows", retry_after: Duration::ZERO });
        let large = Error::Refused(batcher::Error::TooLarge { size: 5, bound: 4, unit: "rows" });
        let cases = [
            (unknown, 404),
            (version, 404),
            (Error::Invalid("x".into()), 400),
            (output, 400),
            (full, 503),
            (large, 413),
            (Error::Refused(batcher::Error::ShuttingDown), 503),
            (Error::Untold, 503),
            (Error::ModelFailed, 500),
            (Error::ModelStuck { ran: Duration::from_secs(10) }, 500),
        ];
        for (error, status) in cases {
            assert_eq!(Refusal::from(error.clone()).status().as_u16(), status, "{error:?}");
        }
        assert_eq!(late(Duration::ZERO).status().as_u16(), 503);
    }

    #[test]
    fn a_refusal_without_a_request_is_a_whole_message() {
        let text = String::from_utf8(late(Duration::from_secs(2)).and_close().to_message(&RequestId::made())).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{head}");
        assert!(head.contains("\r\nretry-after: 2\r\nconnection: close\r\ndate: ") && head.ends_with(" GMT"), "{head}");
        assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", body.len())), "{head}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert!(body["error"].as_str().unwrap().contains("61.2"), "{body}");
    }
}
