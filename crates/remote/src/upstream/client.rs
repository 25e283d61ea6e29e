//! One exchange with a server: kept connections, bounded answers, and what an answer says of the server.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, HttpConnector, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioTimer};

/// Bytes of an answer at most: the largest batch of a model for images has a tenth of that.
const MOST_ANSWER: usize = 1 << 30;
/// A server that is there accepts a connection within that.
const CONNECT: Duration = Duration::from_secs(1);
/// A connection that nobody used for so long is closed: many servers close theirs after a minute or five seconds.
const IDLE: Duration = Duration::from_secs(4);

/// Says where the JSON of an answer ends.
pub(super) const JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");

pub(super) struct Client {
    client: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    authorization: Option<HeaderValue>,
}

/// What a server answered.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Silence {
    /// Nothing was sent: another server may be asked.
    #[error("cannot connect: {0}")]
    Unconnected(String),
    /// The server may have worked on it.
    #[error("{0}")]
    Broken(String),
}

impl Client {
    /// A client that shows `authorization` to every server, where there is one. Fails with a sentence for the operator.
    pub(super) fn new(authorization: Option<HeaderValue>) -> Result<Client, String> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        let tls = HttpsConnectorBuilder::new().with_provider_and_native_roots(rustls::crypto::ring::default_provider());
        let tls = tls.map_err(|error| format!("cannot read this system's certificates: {error}"))?;
        let connector = tls.https_or_http().enable_http1().wrap_connector(tcp);
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(connector);
        Ok(Client { client, authorization })
    }

    pub(super) async fn get(&self, uri: Uri) -> Result<Answer, Silence> {
        self.send(Method::GET, uri, None, Bytes::new()).await
    }

    /// Sends a body; so many bytes of it are JSON where tensors follow in binary.
    pub(super) async fn post(&self, uri: Uri, body: Bytes, json: Option<usize>) -> Result<Answer, Silence> {
        self.send(Method::POST, uri, json, body).await
    }

    async fn send(&self, method: Method, uri: Uri, json: Option<usize>, body: Bytes) -> Result<Answer, Silence> {
        let broken = |error: &dyn std::fmt::Display| Silence::Broken(error.to_string());
        let kind = if json.is_some() { "application/octet-stream" } else { "application/json" };
        let mut request = Request::new(Full::new(body));
        (*request.method_mut(), *request.uri_mut()) = (method, uri);
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if let Some(length) = json {
            request.headers_mut().insert(JSON_LENGTH, HeaderValue::from(length));
        }
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let connection = capture_connection(&mut request);
        let answer = self.client.request(request).await.map_err(|error| {
            let why = root(&error);
            if error.is_connect() { Silence::Unconnected(why) } else { Silence::Broken(why) }
        })?;
        let (parts, body) = answer.into_parts();
        if parts.status.is_server_error() {
            // uvicorn closes the connection behind such an answer, and does not say so.
            connection.connection_metadata().iter().for_each(Connected::poison);
        }
        let body = Limited::new(body, MOST_ANSWER).collect().await.map_err(|error| broken(&error))?.to_bytes();
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }
}

/// The error that the others wrap, which says most.
fn root(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
