//! One request at a time over HTTP/2, also those of gRPC. `h2` speaks it; it is polled whenever something happens to the socket.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::client::{Connection, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream};
use http::{HeaderMap, Method, Request, Uri, Version};

use super::stream::Shared;
use super::wire::{Answer, IN_THE_MIDDLE, MOST_BODY, TOO_LONG, WITHOUT_AN_ANSWER, rows_of_batch};

/// Bytes that a server may send before it is told that they were read.
const WINDOW: u32 = 16 << 20;
/// Headers of a request.
const MOST_HEADERS: usize = 64;

type Greeted = Result<(SendRequest<Bytes>, Connection<Shared, Bytes>), h2::Error>;

enum Link {
    Greeting(Pin<Box<dyn Future<Output = Greeted>>>),
    Open(SendRequest<Bytes>, Box<Connection<Shared, Bytes>>),
    Gone,
}

/// A connection.
pub(super) struct Http2 {
    link: Link,
    is_secured: bool,
    asked: Option<Asked>,
}

/// A request that was sent, and what has come of its answer.
struct Asked {
    response: Option<ResponseFuture>,
    body: Option<RecvStream>,
    status: u16,
    headers: HeaderMap,
    bytes: Vec<u8>,
}

/// A whole answer.
pub(super) struct Heard {
    status: u16,
    bytes: Vec<u8>,
    batch_rows: Option<u32>,
    keeps_alive: bool,
    location: Option<String>,
}

impl Heard {
    pub(super) fn answer(&self) -> Answer<'_> {
        let Heard { status, ref bytes, batch_rows, keeps_alive, ref location } = *self;
        Answer { status, body: bytes, keeps_alive, batch_rows, location: location.as_deref() }
    }
}

impl Http2 {
    pub(super) fn new(stream: Shared, is_secured: bool) -> Http2 {
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW).enable_push(false);
        let greeting = Box::pin(async move { builder.handshake(stream).await });
        Http2 { link: Link::Greeting(greeting), is_secured, asked: None }
    }

    /// Whether requests can be sent.
    pub(super) fn is_open(&mut self) -> Result<bool, &'static str> {
        if let Link::Greeting(greeting) = &mut self.link {
            match greeting.as_mut().poll(&mut nobody()) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok((send, connection))) => self.link = Link::Open(send, Box::new(connection)),
                Poll::Ready(Err(_)) => return Err("the server does not speak HTTP/2"),
            }
        }
        self.turn();
        if matches!(self.link, Link::Gone) { Err("the server does not speak HTTP/2") } else { Ok(true) }
    }

    /// Sends a request that is written as HTTP/1.1 has it.
    pub(super) fn send(&mut self, message: &[u8]) -> Result<(), &'static str> {
        let (request, body) = taken_apart(message, self.is_secured).ok_or("the request cannot be sent over HTTP/2")?;
        let Link::Open(send, _) = &mut self.link else { return Err("the server closed the connection") };
        if send.poll_ready(&mut nobody()).is_pending() {
            return Err("the server takes no more requests on a connection");
        }
        let sent = send.send_request(request, body.is_empty()).and_then(|(response, mut stream)| {
            if !body.is_empty() {
                stream.send_data(body, true)?;
            }
            Ok(response)
        });
        let response = sent.map_err(|error| word(&error))?;
        let (headers, bytes) = (HeaderMap::new(), Vec::new());
        self.asked = Some(Asked { response: Some(response), body: None, status: 0, headers, bytes });
        self.turn();
        Ok(())
    }

    /// Whether part of an answer is there.
    pub(super) fn has_part(&self) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.response.is_none())
    }

    /// Whether it can be used, as far as is known.
    pub(super) fn is_alive(&mut self) -> bool {
        self.turn();
        !matches!(self.link, Link::Gone)
    }

    /// The answer, when it is whole.
    pub(super) fn hear(&mut self) -> Result<Option<Heard>, &'static str> {
        loop {
            self.turn();
            let is_gone = matches!(self.link, Link::Gone);
            let Some(asked) = &mut self.asked else { return Ok(None) };
            let before = (asked.response.is_none(), asked.bytes.len());
            match asked.go_on() {
                // The server may be told now that there is room for more, and what it sends then is announced by no event.
                Poll::Pending if (asked.response.is_none(), asked.bytes.len()) != before => {}
                Poll::Pending if is_gone => return Err(if before.0 { IN_THE_MIDDLE } else { WITHOUT_AN_ANSWER }),
                Poll::Pending => return Ok(None),
                Poll::Ready(Err(why)) => return Err(why),
                Poll::Ready(Ok(trailers)) => {
                    let heard = self.asked.take().map(|asked| asked.heard(&trailers, !is_gone));
                    self.turn();
                    return Ok(heard);
                }
            }
        }
    }

    /// Reads and writes what there is.
    fn turn(&mut self) {
        if let Link::Open(_, connection) = &mut self.link
            && Pin::new(connection).poll(&mut nobody()).is_ready()
        {
            self.link = Link::Gone;
        }
    }
}

impl Asked {
    /// Reads on; the trailers are the end.
    fn go_on(&mut self) -> Poll<Result<HeaderMap, &'static str>> {
        let context = &mut nobody();
        if let Some(response) = &mut self.response {
            match Pin::new(response).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(word(&error))),
                Poll::Ready(Ok(found)) => {
                    let (parts, body) = found.into_parts();
                    (self.status, self.headers) = (parts.status.as_u16(), parts.headers);
                    (self.response, self.body) = (None, Some(body));
                }
            }
        }
        let Some(body) = &mut self.body else { return Poll::Ready(Err("an answer without a head")) };
        loop {
            match body.poll_data(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(word(&error))),
                Poll::Ready(Some(Ok(bytes))) => {
                    if self.bytes.len() + bytes.len() > MOST_BODY {
                        return Poll::Ready(Err(TOO_LONG));
                    }
                    self.bytes.extend_from_slice(&bytes);
                    // It fails only where the stream is over.
                    let _ = body.flow_control().release_capacity(bytes.len());
                }
                Poll::Ready(None) => break,
            }
        }
        match body.poll_trailers(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(trailers)) => Poll::Ready(Ok(trailers.unwrap_or_default())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(word(&error))),
        }
    }

    fn heard(self, trailers: &HeaderMap, keeps_alive: bool) -> Heard {
        let Asked { status, headers, bytes, .. } = self;
        let of_either = |name: &str| trailers.get(name).or_else(|| headers.get(name));
        let batch_rows = of_either("server-timing").and_then(|value| rows_of_batch(value.as_bytes()));
        let location = headers.get("location").and_then(|place| place.to_str().ok()).map(str::to_owned);
        let is_grpc = headers.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        if !is_grpc || status != 200 {
            return Heard { status, bytes, batch_rows, keeps_alive, location };
        }
        let code = of_either("grpc-status").and_then(|code| code.to_str().ok()).and_then(|code| code.parse().ok());
        let status = status_of(code.unwrap_or(2));
        let bytes = match status {
            200 => bytes,
            _ => of_either("grpc-message").map(|text| decoded(text.as_bytes())).unwrap_or_default(),
        };
        Heard { status, bytes, batch_rows, keeps_alive, location: None }
    }
}

/// HTTP's status for gRPC's: what refuses for want of room is told from what fails.
fn status_of(code: u32) -> u16 {
    match code {
        0 => 200,
        3 | 9 | 11 => 400,
        4 => 504,
        5 => 404,
        7 => 403,
        8 => 429,
        12 => 501,
        14 => 503,
        16 => 401,
        _ => 500,
    }
}

/// A message of gRPC, in which bytes may be written as `%41`.
fn decoded(text: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    bytes
}

/// Head and body of a request that is written as HTTP/1.1 has it.
fn taken_apart(message: &[u8], is_secured: bool) -> Option<(Request<()>, Bytes)> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = parsed.parse(message).ok()? else { return None };
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(parsed.method?.as_bytes()).ok()?;
    *request.version_mut() = Version::HTTP_2;
    let mut authority = "localhost";
    for header in parsed.headers.iter() {
        match header.name.to_ascii_lowercase().as_str() {
            "host" => authority = std::str::from_utf8(header.value).ok()?,
            // What HTTP/2 has no connection to say it of.
            "connection" | "keep-alive" | "transfer-encoding" | "upgrade" | "proxy-connection" => {}
            name => {
                let name = http::HeaderName::from_bytes(name.as_bytes()).ok()?;
                request.headers_mut().append(name, http::HeaderValue::from_bytes(header.value).ok()?);
            }
        }
    }
    let scheme = if is_secured { "https" } else { "http" };
    let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query(parsed.path?);
    *request.uri_mut() = uri.build().ok()?;
    Some((request, Bytes::copy_from_slice(&message[length..])))
}

fn nobody() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// A word about what went wrong, one of a few.
fn word(error: &h2::Error) -> &'static str {
    match error.reason() {
        Some(Reason::REFUSED_STREAM | Reason::ENHANCE_YOUR_CALM) => "the server refused the stream",
        Some(Reason::NO_ERROR) => WITHOUT_AN_ANSWER,
        _ if error.is_io() => "the connection broke",
        _ if error.is_go_away() && !error.is_remote() => "the server does not speak HTTP/2",
        _ if error.is_go_away() => "the server sent the connection away",
        _ => "the server reset the stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_http_1_is_taken_apart() {
        let message =
            b"POST /v2?a=b HTTP/1.1\r\nHost: here:80\r\nX-A: b\r\nConnection: close\r\ncontent-length: 2\r\n\r\n{}";
        let (request, body) = taken_apart(message, false).unwrap();
        assert_eq!((request.uri().to_string().as_str(), &*body), ("http://here:80/v2?a=b", &b"{}"[..]));
        assert_eq!(request.headers().keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["x-a", "content-length"]);
        assert!(taken_apart(b"POST /v2 HTTP/1.1\r\n", true).is_none());
    }

    #[test]
    fn words_of_grpc_are_read_and_its_refusals_are_refusals() {
        assert_eq!(decoded(b"100%25 of it: %e2%86%92 %zz %4"), "100% of it: → %zz %4".as_bytes());
        assert_eq!([0, 14, 8, 3, 13, 99].map(status_of), [200, 503, 429, 400, 500, 500]);
    }
}
