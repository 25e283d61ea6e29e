//! Accepts connections, up to a cap, and serves each on a task of its own that is waited for.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::header::{CONNECTION, HOST, HeaderValue};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::Options;
use super::arrival::Arrival;
use super::body::Followed;
use super::closing::{LastWait, wait_until_true};
use super::goodbye::{no_room, say_goodbye};
use super::grpc;
use super::guard::Guard;
use super::http2::{self, Line, Spoken};
use super::idle::Idle;
use super::listener::{Listener, accept_any, is_of_one_connection};
use super::outstanding::{Answered, Begun, Outstanding};
use super::quick::{Quick, timed};
use super::refusals::Refusals;
use super::routes::{For, is_inference};
use super::socket::{Socket, Stream, Wire};
use super::status::Refusal;
use super::threads::{Place, Threads};
use super::tls::{Certificates, Greeted};
use super::trace::Traced;
use super::unread::lent;
use super::untaken::Untaken;
use crate::metrics::{HttpMetrics, TurnedAway};
use crate::registry::Registry;
use crate::telemetry::{Head, RequestId, Tracer};

/// The value of `Connection` behind which the connection ends.
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// How long accepting rests when the system is out of descriptors or memory. The listener stays ready all the while,
/// so without a rest the loop would spin until somebody else closes something.
const ACCEPT_REST: Duration = Duration::from_millis(50);

/// Connections over the cap that are being told so at the same time, and waited for until they have heard it. Beyond these, they are told
/// and closed at once. No more than may be open besides: where few may be, there are few descriptors. Beside them are those that are let in
/// while others [make room](super::idle).
const MAX_TURNED_AWAY: usize = 192;

/// How long a connection over the cap is kept, so that its client can read why.
const TURNING_AWAY: Duration = Duration::from_secs(1);
/// How long a connection on which nothing has come is listened to once the server is going.
const LAST_WORD: Duration = Duration::from_millis(50);

/// What every connection needs.
#[derive(Clone)]
pub(super) struct Counter {
    /// Answers requests.
    pub(super) router: Router,
    /// The bounds.
    pub(super) options: Arc<Options>,
    /// Begins the spans of requests.
    pub(super) tracer: Tracer,
    /// Logs refusals.
    pub(super) refusals: Arc<Refusals>,
    /// Knows when the server is about to go.
    pub(super) registry: Registry,
    /// Answers what needs no hyper; each thread has its own front.
    pub(super) quick: Quick,
    /// What connections over TCP are secured with, if they are.
    pub(super) certificates: Option<Certificates>,
    /// Answers over HTTP/2 that wait for their clients.
    pub(super) untaken: Untaken,
    /// Connections that go where there is no room for others.
    pub(super) idle: Idle,
}

/// All open connections of one server.
pub(super) struct Connections {
    counter: Counter,
    threads: Threads,
    open: JoinSet<()>,
    /// Those on which nothing has come, before it is known where they belong.
    silent: JoinSet<Option<Heard>>,
    turned_away: JoinSet<()>,
    /// Becomes true when connections are to end behind the answer that they are at.
    closing: watch::Sender<bool>,
}

/// Connections that are accepted and served. Dropping it cuts them off.
pub(super) struct Open {
    close: oneshot::Sender<Instant>,
    /// One task, which has all others.
    serving: JoinSet<usize>,
}

impl Open {
    /// Completes when nobody is accepted any more though nobody has closed it: listening has failed, or a bug. The log says which.
    pub(super) async fn broken(&mut self) {
        if let Some(Err(error)) = self.serving.join_next().await {
            tracing::error!(%error, "the task that accepts connections has ended; this is a bug in uncork");
        }
    }

    /// Accepts no more, ends every connection behind the answer that it is at, and cuts off those that have not ended at `until`:
    /// so many.
    pub(super) async fn close(mut self, until: Instant) -> usize {
        // Nobody is there to be told where it has panicked.
        let _ = self.close.send(until);
        match self.serving.join_next().await {
            Some(Ok(cut_off)) => cut_off,
            _ => 0,
        }
    }
}

impl Connections {
    /// No connection yet.
    pub(super) fn new(counter: Counter, threads: Threads) -> Connections {
        let (closing, _) = watch::channel(false);
        // Each server makes room among its own.
        let counter = Counter { idle: Idle::default(), ..counter };
        let (open, silent, turned_away) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
        Connections { counter, threads, open, silent, turned_away, closing }
    }

    /// Serves those who connect, on threads of its own if it has any.
    pub(super) fn open(self, listeners: Vec<Listener>) -> Open {
        let (close, closing) = oneshot::channel();
        let (reception, mut serving) = (self.threads.reception(), JoinSet::new());
        serving.spawn_on(self.serve(listeners, closing), &reception);
        Open { close, serving }
    }

    /// Serves until it is told to close, and by when. Returns how many connections are cut off.
    async fn serve(mut self, listeners: Vec<Listener>, close: oneshot::Receiver<Instant>) -> usize {
        let listeners = match listeners.into_iter().map(Listener::moved_here).collect::<io::Result<Vec<_>>>() {
            Ok(listeners) => listeners,
            Err(error) => {
                tracing::error!(%error, "cannot listen");
                return 0;
            }
        };
        let until = tokio::select! {
            never = self.accept(&listeners) => match never {},
            until = close => until.unwrap_or_else(|_| Instant::now()),
        };
        drop(listeners);
        let _ = tokio::time::timeout_at(until, self.close()).await;
        self.len()
    }

    /// Accepts for ever. Dropping the future stops accepting and leaves the open connections alone.
    async fn accept(&mut self, listeners: &[Listener]) -> Infallible {
        let mut was_failing = false;
        let mut first = 0;
        loop {
            tokio::select! {
                Some(ended) = self.open.join_next(), if !self.open.is_empty() => note(ended),
                Some(heard) = self.silent.join_next(), if !self.silent.is_empty() => self.seat_heard(heard),
                Some(ended) = self.turned_away.join_next(), if !self.turned_away.is_empty() => note(ended),
                // Each listener in turn comes first: a flood at one does not shut the others.
                accepted = poll_fn(|cx| accept_any(listeners, first, cx)) => match accepted {
                    Ok(stream) => {
                        first = (first + 1) % listeners.len();
                        was_failing = false;
                        self.admit(stream);
                    }
                    Err(error) if is_of_one_connection(&error) => {}
                    Err(error) => {
                        // Once for each time of need: a full disk of logs would not help.
                        if !was_failing {
                            tracing::warn!(%error, "cannot accept connections; trying again every {ACCEPT_REST:?}");
                        }
                        was_failing = true;
                        tokio::time::sleep(ACCEPT_REST).await;
                    }
                },
            }
        }
    }

    /// Ends every connection behind the answer that it is at, and returns when all have ended.
    async fn close(&mut self) {
        self.closing.send_replace(true);
        loop {
            tokio::select! {
                Some(heard) = self.silent.join_next() => self.seat_heard(heard),
                Some(ended) = self.open.join_next() => note(ended),
                else => return,
            }
        }
    }

    /// Connections that are open.
    fn len(&self) -> usize {
        self.open.len() + self.silent.len()
    }

    fn seat_heard(&mut self, heard: Result<Option<Heard>, JoinError>) {
        match heard {
            Ok(Some(heard)) => self.seat(heard),
            Ok(None) => {}
            Err(error) => note(Err(error)),
        }
    }

    /// Gives a connection its place, and serves it there.
    fn seat(&mut self, heard: Heard) {
        let mut counter = self.counter.clone();
        let place = match self.threads.desk().filter(|_| heard.asks) {
            Some(desk) => {
                counter.quick.serves = For::Operators;
                desk
            }
            None => self.threads.place(),
        };
        let handle = place.handle.clone();
        self.open.spawn_on(serve_at(place, heard, counter, self.closing.subscribe()), &handle);
    }

    fn admit(&mut self, stream: Stream) {
        let bound = self.counter.options.max_connections.get();
        if self.counter.idle.lets_in(self.len(), bound) {
            let counted = Counted::one(&self.counter.quick.http);
            let heard = Heard { stream, opened: Instant::now(), asks: false, counted };
            let is_plain_tcp = matches!(heard.stream, Stream::Tcp(_)) && self.counter.certificates.is_none();
            if is_plain_tcp && self.threads.desk().is_some() {
                let Counter { options, idle, .. } = &self.counter;
                self.silent.spawn(heard.listen(options.head_timeout, idle.clone(), self.closing.subscribe()));
            } else {
                self.seat(heard);
            }
            return;
        }
        self.counter.quick.http.count(503);
        self.counter.quick.http.turn_away(TurnedAway::Connections);
        if self.counter.certificates.is_some() && matches!(stream, Stream::Tcp(_)) {
            // To shake hands would take the room that there is not.
            return;
        }
        let refusals = Arc::clone(&self.counter.refusals);
        if self.turned_away.len() >= MAX_TURNED_AWAY.min(bound) {
            let (refusal, id) = (no_room(bound), RequestId::made());
            refusals.note(&refusal, &id, None);
            // Whether the client hears it is the client's affair.
            let _ = stream.leave_with(&refusal.to_message(&id));
            return;
        }
        self.turned_away.spawn(async move {
            // The same.
            let _ = tokio::time::timeout(TURNING_AWAY, say_goodbye(Wire::new(stream), no_room(bound), &refusals)).await;
        });
    }
}

/// A connection, before it has its place.
struct Heard {
    stream: Stream,
    opened: Instant,
    /// Whether its first request asks for something that is there, as probes and scrapes do: it begins as `GET` does.
    asks: bool,
    counted: Counted,
}

/// An open connection in the count of them.
struct Counted(metrics::Gauge);

impl Counted {
    fn one(http: &HttpMetrics) -> Counted {
        http.connections.increment(1.0);
        Counted(http.connections.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

impl Heard {
    /// Waits for its first byte, for `patience` at most. `None` if it is to make room before.
    async fn listen(mut self, patience: Duration, idle: Idle, mut closing: watch::Receiver<bool>) -> Option<Heard> {
        let byte = tokio::time::timeout_at(self.opened + patience, self.stream.first_byte());
        let byte = tokio::select! {
            byte = idle.unless_asked(self.opened, byte) => byte?,
            () = wait_until_true(&mut closing) => return Some(self),
        };
        self.asks = matches!(byte, Ok(Ok(Some(b'G'))));
        Some(self)
    }
}

fn note(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!("a connection's task panicked; this is a bug in uncork");
    }
}

/// Moves a connection to its thread, and serves it there.
async fn serve_at(place: Place, heard: Heard, counter: Counter, closing: watch::Receiver<bool>) {
    let Heard { stream, opened, counted, .. } = heard;
    match stream.moved_here() {
        Ok(stream) => {
            let quick = Arc::new(Quick { fronts: Arc::clone(&place.fronts), ..counter.quick.clone() });
            if let Some(socket) = secured(stream, opened, &counter, closing.clone()).await {
                // Behind a handshake the time for a head begins anew.
                let opened = if let Socket::Tls(_) = socket { Instant::now() } else { opened };
                serve(socket, opened, counter, quick, closing).await;
            }
        }
        Err(error) => tracing::warn!(%error, "a connection is lost on the way to its thread"),
    }
    drop((counted, place));
}

/// The connection as requests come from it, behind a handshake where there is to be one. `None` where that failed, or the connection is to make
/// room before it is done.
async fn secured(
    stream: Stream,
    opened: Instant,
    counter: &Counter,
    mut closing: watch::Receiver<bool>,
) -> Option<Socket> {
    let is_tcp = matches!(stream, Stream::Tcp(_));
    let Some(certificates) = counter.certificates.as_ref().filter(|_| is_tcp) else {
        return Some(Socket::Plain(Wire::new(stream)));
    };
    let greeted = tokio::time::timeout(counter.options.head_timeout, certificates.greet(Wire::new(stream)));
    let greeted = tokio::select! {
        greeted = counter.idle.unless_asked(opened, greeted) => greeted?,
        () = wait_until_true(&mut closing) => return None,
    };
    match greeted {
        Ok(Ok(Greeted::Secured(socket))) => return Some(socket),
        Ok(Ok(Greeted::Plain(wire))) => {
            let refusal = Refusal::bad_request("this port speaks TLS: ask with https://").and_close();
            counter.quick.http.count(400);
            // Whether the client hears it is the client's affair.
            let _ = tokio::time::timeout(TURNING_AWAY, say_goodbye(wire, refusal, &counter.refusals)).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
    None
}

/// Serves one connection to its end, in the protocol that it begins with.
async fn serve(
    mut socket: Socket,
    opened: Instant,
    counter: Counter,
    quick: Arc<Quick>,
    mut closing: watch::Receiver<bool>,
) {
    // Only spans tell who asked.
    let peer = if counter.tracer.is_on() { socket.peer() } else { None };
    let spoken = http2::listen(&mut socket, opened, counter.options.head_timeout);
    let spoken = tokio::select! {
        biased;
        spoken = counter.idle.unless_asked(opened, spoken) => spoken.flatten(),
        // A request may be in the socket that is not heard of yet.
        () = async {
            wait_until_true(&mut closing).await;
            tokio::time::sleep(LAST_WORD).await;
        } => None,
    };
    match spoken {
        None => {}
        Some(Spoken::One(first)) => serve_http1(socket, first, opened, peer, counter, quick, closing).await,
        Some(Spoken::Two(first)) => {
            let (options, untaken) = (Arc::clone(&counter.options), counter.untaken.clone());
            let rest = counter.idle.rest();
            let answer = move |mut request: Request<Incoming>, line: Line| {
                let (counter, options) = (counter.clone(), Arc::clone(&counter.options));
                if let Err(refusal) = http2::check(&request, &counter.options) {
                    request.extensions_mut().insert(refusal);
                }
                let mut request = of_its_authority(request);
                async move {
                    let (registry, arrival) = (counter.registry.clone(), Arrival(line.heard()));
                    let (request, unread) = if grpc::is_meant(&request) {
                        request.extensions_mut().insert(line.clone());
                        (request.map(Body::new), None)
                    } else {
                        request.extensions_mut().insert(line.going());
                        lent(request.map(|body| line.awaited(body)))
                    };
                    let mut response = answer(counter, request, peer, arrival).await;
                    if let Some(unread) = unread {
                        tokio::spawn(unread.swallow_behind(options));
                    }
                    // HTTP/2 ends a connection by frames.
                    if response.headers_mut().remove(CONNECTION).is_some() && registry.is_draining() {
                        line.end_unless_new();
                    }
                    response
                }
            };
            http2::serve(socket, first, &options, (&untaken, rest), answer, closing).await;
        }
    }
}

/// The request with the host that its target names, `:authority` in HTTP/2: that is the one that counts (RFC 9112, section 3.2.2), and what
/// is decided by `Host` holds for both.
fn of_its_authority(mut request: Request<Incoming>) -> Request<Incoming> {
    let authority = request.uri().authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    if let Some(authority) = authority {
        request.headers_mut().insert(HOST, authority);
    }
    request
}

/// Serves one connection of HTTP/1 to its end, of which `first` was read already.
async fn serve_http1(
    socket: Socket,
    first: Vec<u8>,
    opened: Instant,
    peer: Option<SocketAddr>,
    counter: Counter,
    quick: Arc<Quick>,
    mut closing: watch::Receiver<bool>,
) {
    let mut guard = Guard::new(socket, first, opened, &counter.options, quick, counter.idle.rest());
    let outstanding = guard.outstanding();
    let ended = tokio::select! {
        biased; // what was read is begun with before the end is
        ended = poll_fn(|cx| guard.poll_plain(cx)) => ended,
        () = wait_until_true(&mut closing) => guard.hand_over(),
    };
    let needs_hyper = ended.unwrap_or_else(|error| {
        tracing::debug!(%error, "connection ended");
        false
    });
    if needs_hyper {
        let (awaited, going) = (outstanding.clone(), Arc::new(closing.clone()));
        let service = service_fn(|request| {
            answer_http1(counter.clone(), request, peer, outstanding.clone(), LastWait::new(&going))
        });
        let connection = http1::Builder::new()
            .max_buf_size(Options::READ_BUFFER)
            // The guard keeps time: hyper has one timeout for idle connections and slow heads, and says nothing at its end.
            .header_read_timeout(None)
            .serve_connection(TokioIo::new(&mut guard), service);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            biased; // the same
            ended = poll_fn(|cx| {
                awaited.turns();
                connection.as_mut().poll(cx)
            }) => ended,
            () = wait_until_true(&mut closing) => {
                // A request of which a part has come is answered all the same, if its head comes in time.
                let mut last = LastWait::new(&going);
                let ended = poll_fn(|cx| match connection.as_mut().poll(cx) {
                    Poll::Pending if !awaited.is_begun() => Poll::Ready(None),
                    Poll::Pending if awaited.none() && last.poll(cx).is_ready() => Poll::Ready(Some(Ok(()))),
                    ended => ended.map(Some),
                });
                match ended.await {
                    Some(ended) => ended,
                    None => {
                        connection.as_mut().graceful_shutdown();
                        connection.await
                    }
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "connection ended");
        }
    }
    guard.finish(&counter.refusals).await;
}

/// Answers one request of HTTP/1 whose head is in. hyper drops the future when the client leaves.
async fn answer_http1(
    counter: Counter,
    request: Request<Incoming>,
    peer: Option<SocketAddr>,
    outstanding: Outstanding,
    last: LastWait,
) -> Result<Response, Infallible> {
    outstanding.turn().await;
    let (arrival, chunks_end, through) = match outstanding.begin() {
        Some(Begun { arrived, chunks_end, through }) => (Arrival(arrived), chunks_end, through),
        None => (Arrival::now(), None, None),
    };
    let _answered = Answered(outstanding);
    let end = chunks_end.clone();
    let going = last.going();
    let (mut request, unread) = lent(of_its_authority(request).map(|body| Followed { body, end, last }));
    request.extensions_mut().insert(going);
    if let Some(through) = &through {
        request.extensions_mut().insert(through.clone());
    }
    let (mut response, spent) = timed(answer(counter, request, peer, arrival)).await;
    through.inspect(|through| through.ended(&response, spent));
    if let Some(unread) = unread
        && !response.headers().contains_key(CONNECTION)
        && !unread.swallow().await
    {
        response.headers_mut().insert(CONNECTION, CLOSE);
    }
    // See the guard: behind a body whose end is not in, or is in doubt, no head is looked for.
    if chunks_end.is_some_and(|end| !end.is_in()) {
        response.headers_mut().insert(CONNECTION, CLOSE);
    }
    Ok(response)
}

/// Answers one request whose head is in.
async fn answer(counter: Counter, mut request: Request<Body>, peer: Option<SocketAddr>, arrival: Arrival) -> Response {
    let Counter { router, tracer, refusals, registry, quick, certificates, .. } = counter;
    let id = RequestId::of(request.headers());
    // Only what comes by TCP has a peer, and all of that is secured where anything is.
    let is_secured = peer.is_some() && certificates.is_some();
    let span = tracer.request(&Head { is_secured, ..head(&request, peer, &id) }, arrival.0);
    // Who begins at the desk and goes on to inference does so elsewhere: there it would hold up those who only ask.
    let is_inference = is_inference(request.method(), request.uri().path());
    let is_elsewhere = quick.serves == For::Operators && is_inference;
    request.extensions_mut().insert(arrival);
    request.extensions_mut().insert(id.clone());
    if span.span_ref().is_some() {
        request.extensions_mut().insert(Traced(span.clone()));
    }
    let line = request.extensions_mut().remove::<Line>();
    let is_grpc = line.is_some();
    let refused = request.extensions_mut().remove::<Refusal>();
    let answering: Pin<Box<dyn Future<Output = _> + Send>> = match (refused, line) {
        (Some(refusal), line) => {
            let refused = if line.is_some() { grpc::refused(refusal) } else { refusal.into_response() };
            Box::pin(std::future::ready(Ok(refused)))
        }
        (None, Some(line)) => {
            let desk = grpc::Desk::new(&quick, line, arrival, span.clone());
            Box::pin(async move { Ok(desk.answer(request).await) })
        }
        (None, None) => Box::pin(hyper::service::Service::call(&TowerToHyperService::new(router), request)),
    };
    let mut response = match AssertUnwindSafe(answering).catch_unwind().await {
        Ok(Ok(response)) => response,
        Ok(Err(never)) => match never {},
        Err(_) => {
            tracing::error!(request_id = id.as_str(), "a request's handler panicked; this is a bug in uncork");
            let refusal = Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error").and_close();
            if is_grpc { grpc::refused(refusal) } else { refusal.into_response() }
        }
    };
    // A server that is about to go sends its clients elsewhere: whoever asked again on a connection that then closes would
    // hear nothing.
    if registry.is_draining() || is_elsewhere {
        response.headers_mut().insert(CONNECTION, CLOSE);
    }
    response.headers_mut().insert(RequestId::HEADER, id.value());
    let refusal = response.extensions().get::<Refusal>();
    if let Some(refusal) = refusal {
        refusals.note(refusal, &id, span.span_ref());
    }
    // In gRPC the status is said behind the answer, and that of HTTP is always 200.
    let status = refusal.map_or(response.status(), Refusal::status).as_u16();
    quick.http.count(status);
    if let Some(why) = refusal.and_then(Refusal::why_turned_away).filter(|_| is_inference) {
        quick.http.turn_away(why);
    }
    span.finish(status, refusal.map(Refusal::reason));
    response
}

/// What a span tells of a request's head.
fn head<'a>(request: &'a Request<Body>, peer: Option<SocketAddr>, id: &'a RequestId) -> Head<'a> {
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    Head { method, uri, version: request.version(), headers, peer, is_secured: false, id }
}
