//! Which path is answered by what.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{StatusCode, Uri};
use serde::Serialize;

use super::body::Room;
use super::status::{JSON, Refusal};
use super::{Options, v2};
use crate::registry::{Model, Registry};

/// The page at `/`.
const PAGE: &str = include_str!("page.html");

/// The page may run its own inline script and style and talk to this server, and nothing else.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Prometheus' text format.
const METRICS_TYPE: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// What every handler can reach.
#[derive(Clone)]
pub(super) struct App {
    /// The models.
    pub(super) registry: Registry,
    /// The bounds.
    pub(super) options: Arc<Options>,
    /// Memory for bodies.
    pub(super) room: Room,
}

/// All paths.
pub(super) fn router(registry: Registry, options: Arc<Options>) -> Router {
    let room = Room::new(options.max_bodies_bytes);
    Router::new()
        .route("/", get(page))
        .route("/metrics", get(metrics_text))
        .route("/v2", get(v2::metadata::server))
        .route("/v2/health/live", get(v2::metadata::live))
        .route("/v2/health/ready", get(v2::metadata::ready))
        .route("/v2/models/{model}", get(v2::metadata::model))
        .route("/v2/models/{model}/ready", get(v2::metadata::model_ready))
        .route("/v2/models/{model}/infer", post(v2::infer))
        .route("/v2/models/{model}/versions/{version}", get(v2::metadata::model))
        .route("/v2/models/{model}/versions/{version}/ready", get(v2::metadata::model_ready))
        .route("/v2/models/{model}/versions/{version}/infer", post(v2::infer))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .with_state(App { registry, options, room })
}

/// The model that a path names, in the version that it names, or else the highest.
pub(super) struct Named(pub(super) Arc<Model>);

impl FromRequestParts<App> for Named {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Named, Refusal> {
        let Ok(params) = RawPathParams::from_request_parts(parts, app).await else {
            return Err(Refusal::bad_request("the path is not UTF-8"));
        };
        let param = |wanted| params.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value);
        let model = app.registry.model(param("model").unwrap_or_default(), param("version"))?;
        Ok(Named(Arc::clone(model)))
    }
}

/// An answer with a JSON body.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    json_bytes(status, serde_json::to_vec(body).expect("names, numbers and lists of them always have a JSON form"))
}

/// An answer whose JSON body is written already.
pub(super) fn json_bytes(status: StatusCode, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

async fn page() -> Response {
    let headers: [(HeaderName, HeaderValue); 5] = [
        (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (CONTENT_SECURITY_POLICY, PAGE_POLICY),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    (headers, PAGE).into_response()
}

async fn metrics_text(State(app): State<App>) -> Response {
    ([(CONTENT_TYPE, METRICS_TYPE)], app.registry.metrics().render()).into_response()
}

/// Longest part of a path that an error repeats.
const QUOTED_PATH: usize = 100;

async fn no_such_path(uri: Uri) -> Refusal {
    let path: String = uri.path().chars().take(QUOTED_PATH).collect();
    Refusal::new(StatusCode::NOT_FOUND, format!("there is nothing at '{path}'"))
}

/// The router itself adds `Allow`.
async fn no_such_method() -> Refusal {
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not take this method")
}
