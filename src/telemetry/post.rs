//! One post to a collector: a connection, a request, an answer, all within a time.
//!
//! A connection for each post, of which there is one a second or one for hundreds of spans: nothing has to be kept alive,
//! and a collector that was restarted, or moved behind its name, is found again.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::Settings;

/// From connecting to the last byte of the answer: OpenTelemetry's own default.
const PATIENCE: Duration = Duration::from_secs(10);

/// Most bytes of an answer that are looked at: a collector says in a few words what it did not take.
const LONGEST_ANSWER: usize = 64 * 1024;

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

/// Why a post brought nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum PostError {
    #[error("no connection: {0}")]
    Connect(#[from] std::io::Error),
    #[error("the exchange broke off: {0}")]
    Exchange(#[from] hyper::Error),
    #[error("no answer within {PATIENCE:?}")]
    Slow,
    #[error("it answered {0}")]
    Status(StatusCode),
    #[error("its answer cannot be read: {0}")]
    Answer(Box<dyn std::error::Error + Send + Sync>),
}

/// Posts `body`, and returns what is answered with a status of success.
pub(super) async fn post(settings: &Settings, body: Vec<u8>) -> Result<Bytes, PostError> {
    tokio::time::timeout(PATIENCE, exchange(settings, body)).await.unwrap_or(Err(PostError::Slow))
}

async fn exchange(settings: &Settings, body: Vec<u8>) -> Result<Bytes, PostError> {
    let stream = TcpStream::connect(address(&settings.endpoint)).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = request(settings, body);
    let exchange = async move {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await.map_err(PostError::Answer)?;
        if status.is_success() { Ok(body.to_bytes()) } else { Err(PostError::Status(status)) }
    };
    // The connection ends when the exchange does, which lets go of its sender; how it ends, the exchange says.
    let (answer, _) = tokio::join!(exchange, connection);
    answer
}

/// Host and port; a host in brackets is an IPv6 address, which is connected to without them.
fn address(endpoint: &Uri) -> (&str, u16) {
    let host = endpoint.host().unwrap_or_default();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (bare, endpoint.port_u16().unwrap_or(80))
}

fn request(settings: &Settings, body: Vec<u8>) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(Bytes::from(body)));
    *request.method_mut() = Method::POST;
    let path = settings.endpoint.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().unwrap_or_default();
    let headers = request.headers_mut();
    for (name, value) in &settings.headers {
        headers.insert(name, value.clone());
    }
    let host = settings.endpoint.authority().map_or("", |authority| authority.as_str());
    headers.insert(HOST, HeaderValue::from_str(host).unwrap_or(HeaderValue::from_static("localhost")));
    headers.insert(CONTENT_TYPE, PROTOBUF);
    request
}
