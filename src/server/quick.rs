//! What is answered without hyper: requests that the front refuses from their heads, and plain inference.
//!
//! A request that came whole, in few bytes, with a head that asks for nothing unusual, needs no more of HTTP than its body
//! and a few lines around its answer. That is most requests of a server that is busy, and costs half of the other way.

use std::borrow::Cow;
use std::io::Cursor;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::response::Response;
use bytes::buf::Chain;
use bytes::{Buf, Bytes};
use futures_util::FutureExt;
use http::header::HeaderValue;
use http::{Method, StatusCode};
use tokio::time::Instant;

use super::access::{Door, Right, Said};
use super::app::App;
use super::arrival::{Arrival, Came};
use super::head::{self, Ask, Form, Head, Manner};
use super::opaque as answers;
use super::refusals::Refusals;
use super::routes::For;
use super::status::{JSON, Refusal, push_date};
use super::v2;
use crate::estimator;
use crate::front::{Front, Gate, Verdict, Wait, WayBack, Why};
use crate::metrics::HttpMetrics;
use crate::opaque;
use crate::registry::{Caller, Model};
use crate::telemetry::RequestId;

/// Bytes of a body that is written together with its head.
const SHORT: usize = 16 * 1024;

/// A whole answer on its way to the client.
#[derive(Debug)]
pub(super) struct Reply {
    /// What is still to be written. Its second part is a long body, which keeps its part of the room for as long.
    pub(super) bytes: Chain<Cursor<Vec<u8>>, Bytes>,
    /// Whether the connection ends behind it.
    pub(super) closes: bool,
}

/// An answer that is being made. Dropping it takes the request out of the model's queue.
pub(super) type Ride = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// What becomes of a request.
pub(super) enum Taken {
    /// Hyper gets it.
    Passed,
    /// Hyper gets it, and it was judged here.
    Through(Through),
    /// It is refused, unparsed.
    Refused(Reply),
    /// It is answered here, within the model's cap.
    Riding(Ride, Duration),
}

/// Since when a request has waited.
#[derive(Debug, Clone, Copy)]
pub(super) struct Since {
    /// When its head had come.
    pub(super) arrived: Instant,
    /// When no other of its connection stood before it any more.
    pub(super) free: Instant,
}

/// A request that was let through and is answered by hyper: too long to come in one piece, for one.
#[derive(Debug, Clone)]
pub(super) struct Through {
    quick: Arc<Quick>,
    model: Arc<Model>,
    /// When all of it was in, and until then when its head was.
    since: Arc<Mutex<Instant>>,
}

impl Through {
    /// The version that was judged of this model, in that version if one is named, and that is to answer: to deal once more could fall on another.
    pub(super) fn model(&self, name: &str, version: Option<&str>) -> Option<Arc<Model>> {
        let is_it = self.model.name() == name && version.is_none_or(|version| version == self.model.version());
        is_it.then(|| Arc::clone(&self.model))
    }

    /// Its last byte is in: what the client took is not the model's time.
    pub(super) fn is_whole(&self, took: Duration) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) += took;
    }

    /// Learns what became of it, as of those that are answered here: the model answers both, and `spent` was the thread's time for it.
    pub(super) fn ended(&self, response: &Response, spent: Duration) {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let refusal = response.extensions().get::<Refusal>();
        let mut fronts = self.quick.fronts();
        if refusal.is_some_and(Refusal::is_too_much) {
            fronts.gate(&self.model).refused(spent);
        } else if refusal.is_none() {
            fronts.gate(&self.model).answered(since.elapsed());
        }
    }
}

/// What one thread knows: of its sockets' queue, and of each model.
#[derive(Debug, Default)]
pub(super) struct Fronts {
    sockets: Front,
    way_back: WayBack,
    /// A few. Gates of models that have gone stay until the next new one.
    models: Vec<(Weak<Model>, Gate)>,
}

impl Fronts {
    fn gate(&mut self, model: &Arc<Model>) -> &mut Gate {
        let known = self.models.iter().position(|(known, _)| std::ptr::eq(known.as_ptr(), Arc::as_ptr(model)));
        let at = known.unwrap_or_else(|| {
            self.models.retain(|(known, _)| known.strong_count() > 0);
            self.models.push((Arc::downgrade(model), Gate::default()));
            self.models.len() - 1
        });
        &mut self.models[at].1
    }

    fn judge(&mut self, now: estimator::Instant, wait: Wait, model: &Arc<Model>, caller: Caller) -> Verdict {
        let cap = model.spec().max_latency;
        let way = self.gate(model).way(now, cap);
        match self.sockets.judge(now, wait, cap, way) {
            Verdict::Read => self.gate(model).judge(now, cap, caller),
            refused => refused,
        }
    }
}

/// Answers without hyper, for all connections of one thread.
#[derive(Clone)]
pub(super) struct Quick {
    pub(super) app: App,
    pub(super) door: Door,
    pub(super) fronts: Arc<Mutex<Fronts>>,
    pub(super) epoch: Instant,
    pub(super) refusals: Arc<Refusals>,
    pub(super) http: HttpMetrics,
    /// Spans are begun where hyper has read the head.
    pub(super) is_traced: bool,
    /// Whom the connections are for. Inference on those for operators goes the long way.
    pub(super) serves: For,
}

impl std::fmt::Debug for Quick {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quick").finish_non_exhaustive()
    }
}

impl Quick {
    /// Whether a request that asks for this can be one to answer here.
    pub(super) fn may_answer(&self, ask: &Ask<'_>) -> bool {
        let Ask::Infer { manner: Manner::Plain, form, .. } = ask else { return false };
        *form != Form::Values && self.serves != For::Operators && !self.is_traced
    }

    /// Within what the model answers that is asked, if one is.
    pub(super) fn cap(&self, ask: &Ask<'_>) -> Option<Duration> {
        let Ask::Infer { model, version, .. } = *ask else { return None };
        self.app.registry.model(model, version).ok().map(|model| model.spec().max_latency)
    }

    /// Decides about a request whose head is in. `body` is there if all of it came with the head.
    pub(super) fn take(self: &Arc<Self>, head: &Head<'_>, bytes: &[u8], body: Option<&[u8]>, since: Since) -> Taken {
        let Ask::Infer { model, version, form, who, id, manner, closes } = head.ask else { return Taken::Passed };
        if self.serves == For::Operators {
            return Taken::Passed;
        }
        // The long way looks at all of the head, and tells who may not come in.
        if manner == Manner::Unusual {
            return Taken::Passed;
        }
        let [host, authorization] = who;
        let said = Said { host, authorization, ..Said::default() };
        let Ok(bearer) = self.door.check(Right::Inference, &Method::POST, said) else { return Taken::Passed };
        let Ok(model) = self.app.registry.answering(model, version) else { return Taken::Passed };
        if opaque::is_opaque(model.signature()) != matches!(form, Form::Any { .. }) {
            return Taken::Passed;
        }
        let (now, id) = (Instant::now(), RequestId::given(id));
        let refused = |refusal: Refusal| {
            let refusal = if closes { refusal.and_close() } else { refusal };
            Taken::Refused(self.refused(refusal.of(&model), &id))
        };
        // What a caller may not send takes no part of what others may.
        let caller = match self.door.pace(bearer) {
            Ok(caller) => caller,
            Err(refusal) => return refused(refusal),
        };
        let Since { arrived, free } = since;
        let waited = |since| now.saturating_duration_since(since);
        let wait = Wait { whole: waited(arrived), queued: waited(arrived.max(free)) };
        let verdict = self.fronts().judge(self.instant(now), wait, &model, caller);
        if let Verdict::Refuse(why) = verdict {
            model.count_unread();
            return refused(refusal(why));
        }
        let wanted = match (body, form) {
            _ if self.is_traced || manner != Manner::Plain => None,
            (None, _) | (_, Form::Values) => None,
            (Some(body), Form::Tensors { json }) => Some(Wanted::Tensors { body: body.to_vec(), json }),
            (Some(body), Form::Any { query }) => {
                let begin = head::with_headers(bytes, |headers| {
                    let pairs = headers.iter().map(|header| (header.name, header.value));
                    answers::begin(pairs, query, id.as_str())
                });
                Some(Wanted::Any(answers::Ask { begin, query: query.to_owned(), body: body.to_vec() }))
            }
        };
        let Some(wanted) = wanted else {
            return Taken::Through(Through { quick: Arc::clone(self), model, since: Arc::new(Mutex::new(now)) });
        };
        let came = Came { arrival: Arrival(arrived), whole: arrived, caller };
        let cap = model.spec().max_latency;
        Taken::Riding(Box::pin(Arc::clone(self).ride(model, wanted, id, came, now)), cap)
    }

    async fn ride(
        self: Arc<Self>,
        model: Arc<Model>,
        wanted: Wanted,
        id: RequestId,
        came: Came,
        begun: Instant,
    ) -> Reply {
        let Arrival(arrived) = came.arrival;
        let within = self.fronts().way_back.leaves(model.spec().max_latency);
        let answering = wanted.of(&self.app, &model, came, within);
        let (answered, spent) = timed(std::panic::AssertUnwindSafe(answering).catch_unwind()).await;
        let refusal = match answered {
            Ok(Ok(answer)) => {
                {
                    let (took, mut fronts) = (begun.elapsed(), self.fronts());
                    fronts.way_back.learn(arrived.elapsed().saturating_sub(answer.outputs));
                    self.app.saw(fronts.way_back);
                    fronts.gate(&model).answered(took);
                }
                self.http.count(answer.status.as_u16());
                let closes = self.app.registry.is_draining();
                return answer.into_reply(&id, closes);
            }
            Ok(Err(refusal)) => {
                if refusal.is_too_much() {
                    self.fronts().gate(&model).refused(spent);
                }
                refusal
            }
            Err(_) => {
                tracing::error!("a request's handler panicked; this is a bug in uncork");
                Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error").and_close()
            }
        };
        self.refused(refusal, &id)
    }

    fn refused(&self, refusal: Refusal, id: &RequestId) -> Reply {
        // A server that is about to go sends its clients elsewhere.
        let refusal = if self.app.registry.is_draining() { refusal.and_close() } else { refusal };
        self.refusals.note(&refusal, id, None);
        self.http.count(refusal.status().as_u16());
        if let Some(why) = refusal.why_turned_away() {
            self.http.turn_away(why);
        }
        Reply { bytes: Cursor::new(refusal.to_message(id)).chain(Bytes::new()), closes: refusal.closes() }
    }

    fn fronts(&self) -> std::sync::MutexGuard<'_, Fronts> {
        // They are whole between any two of their methods.
        self.fronts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn instant(&self, at: Instant) -> estimator::Instant {
        let nanos = at.saturating_duration_since(self.epoch).as_nanos();
        estimator::Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// What comes of a future, and how much of the thread's time it took.
pub(super) async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let (mut future, mut spent) = (std::pin::pin!(future), Duration::ZERO);
    let made = std::future::poll_fn(|context| {
        let since = Instant::now();
        let polled = future.as_mut().poll(context);
        spent += since.elapsed();
        polled
    })
    .await;
    (made, spent)
}

fn refusal(why: Why) -> Refusal {
    let message = match why {
        Why::Late => "refused: it waited too long to be answered in time; retry later",
        Why::Overload => "refused: more requests come than can be read; retry later",
        Why::Behind => "refused: more requests come than the model can answer in time; retry later",
    };
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message).retry_after(Duration::from_secs(1)).because("unread")
}

/// What is asked of a model.
enum Wanted {
    Tensors { body: Vec<u8>, json: Option<usize> },
    Any(answers::Ask),
}

impl Wanted {
    async fn of(self, app: &App, model: &Arc<Model>, came: Came, within: Duration) -> Result<Good, Refusal> {
        let is_anybody = came.caller == Caller::default();
        let app = if is_anybody { Cow::Borrowed(app) } else { Cow::Owned(app.of(came.caller)) };
        Ok(match self {
            Wanted::Tensors { body, json } => {
                let answer = v2::answer_plain(&app, model, came, within, &body, json).await?;
                let v2::Written { body, json, timing, outputs } = answer;
                let content_type = if json.is_some() { HeaderValue::from_static(v2::BINARY) } else { JSON };
                Good { status: StatusCode::OK, content_type, json, body, timing, outputs }
            }
            Wanted::Any(ask) => {
                let answer = answers::answer_plain(&app, model, came, within, ask).await?;
                let answers::Written { status, content_type, body, timing, outputs } = answer;
                Good { status, content_type, json: None, body, timing, outputs }
            }
        })
    }
}

/// A good answer.
struct Good {
    status: StatusCode,
    content_type: HeaderValue,
    /// Bytes of JSON at its body's begin, where binary tensors follow.
    json: Option<usize>,
    body: Bytes,
    timing: HeaderValue,
    /// From arrival to outputs.
    outputs: Duration,
}

impl Good {
    fn into_reply(self, id: &RequestId, closes: bool) -> Reply {
        let is_short = self.body.len() <= SHORT;
        let mut bytes = Vec::with_capacity(320 + self.timing.len() + if is_short { self.body.len() } else { 0 });
        let mut digits = [0; 20];
        bytes.extend_from_slice(b"HTTP/1.1 ");
        bytes.extend_from_slice(self.status.as_str().as_bytes());
        bytes.push(b' ');
        bytes.extend_from_slice(self.status.canonical_reason().unwrap_or_default().as_bytes());
        bytes.extend_from_slice(b"\r\ncontent-type: ");
        bytes.extend_from_slice(self.content_type.as_bytes());
        if let Some(length) = self.json {
            bytes.extend_from_slice(b"\r\ninference-header-content-length: ");
            bytes.extend_from_slice(decimal(length, &mut digits));
        }
        bytes.extend_from_slice(b"\r\nserver-timing: ");
        bytes.extend_from_slice(self.timing.as_bytes());
        bytes.extend_from_slice(b"\r\nx-request-id: ");
        bytes.extend_from_slice(id.as_str().as_bytes());
        // A status that has no body has no length of one either (RFC 9110, section 8.6).
        if self.status != StatusCode::NO_CONTENT {
            bytes.extend_from_slice(b"\r\ncontent-length: ");
            bytes.extend_from_slice(decimal(self.body.len(), &mut digits));
        }
        if closes {
            bytes.extend_from_slice(b"\r\nconnection: close");
        }
        bytes.extend_from_slice(b"\r\ndate: ");
        push_date(&mut bytes);
        bytes.extend_from_slice(b"\r\n\r\n");
        if is_short {
            bytes.extend_from_slice(&self.body);
        }
        Reply { bytes: Cursor::new(bytes).chain(if is_short { Bytes::new() } else { self.body }), closes }
    }
}

/// The digits of `n`, at the end of `digits`.
fn decimal(mut n: usize, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_written_in_digits() {
        for n in [0, 7, 10, 999, 123_456_789, usize::MAX] {
            assert_eq!(decimal(n, &mut [0; 20]), n.to_string().as_bytes());
        }
    }

    #[test]
    fn an_answer_is_a_whole_message() {
        let good = |status, body| Good {
            status,
            content_type: JSON,
            json: None,
            body,
            timing: HeaderValue::from_static("batch;dur=1"),
            outputs: Duration::ZERO,
        };
        let message = |status, body: String| {
            let mut reply = good(status, Bytes::from(body)).into_reply(&RequestId::made(), true);
            let length = reply.bytes.remaining();
            String::from_utf8(reply.bytes.copy_to_bytes(length).to_vec()).unwrap()
        };
        let long = "a".repeat(SHORT + 1);
        assert!(message(StatusCode::OK, long.clone()).ends_with(&format!("\r\n\r\n{long}")));
        let text = message(StatusCode::NO_CONTENT, String::new());
        assert!(text.starts_with("HTTP/1.1 204 No Content\r\n") && text.ends_with("\r\n\r\n"), "{text}");
        assert!(!text.contains("content-length"), "{text}");
        let text = message(StatusCode::OK, "{}".into());
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, "{}");
        for line in ["HTTP/1.1 200 OK", "server-timing: batch;dur=1", "content-length: 2", "connection: close"] {
            assert!(head.lines().any(|l| l == line), "{head}");
        }
        let date = head.lines().find_map(|l| l.strip_prefix("date: ")).unwrap();
        assert!(httpdate::parse_http_date(date).is_ok(), "{date}");
    }
}
