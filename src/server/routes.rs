//! Which path is answered by what.

use axum::Router;
use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, VARY};
use http::{Method, StatusCode, Uri};

use super::access::{Door, Right, admit, count, recognise};
use super::app::App;
use super::body::counted;
use super::status::Refusal;
use super::trace::note_route;
use super::v2::coding::Coding;
use super::{docs, opaque, overview, page, v1, v2};
use crate::metrics::Format;
use crate::quote::Quoted;

/// Whom an address is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// All that is served.
    Everybody,
    /// All but inference.
    Operators,
}

/// All paths, behind a door: each asks for the right that it is listed under.
pub(super) fn router(app: App, door: Door, serves: For) -> Router {
    let app = if serves == For::Operators { app.for_operators() } else { app };
    let is_traced = app.registry.tracer().is_on();
    let guarded =
        |right: Right, routes: Router<App>| routes.route_layer(from_fn_with_state((door.clone(), right), admit));
    let probes = Router::new()
        .route("/v2/health/live", get(v2::metadata::live))
        .route("/v2/health/ready", get(v2::metadata::ready).layer(from_fn_with_state(door.clone(), recognise)))
        .route("/v2/models/{model}/ready", get(v2::metadata::model_ready))
        .route("/v2/models/{model}/versions/{version}/ready", get(v2::metadata::model_ready));
    let front = Router::new().route("/", get(page::page));
    let views = Router::new()
        .route("/page/{file}", get(page::file))
        .route("/status", get(overview::overview))
        .route("/metrics", get(metrics_text));
    let models = Router::new()
        .route("/v2", get(v2::metadata::server))
        .route("/v2/repository/index", post(v2::repository::index))
        .route("/v2/models/stats", get(v2::description::all_statistics))
        .route("/v2/models/{model}", get(v2::metadata::model))
        .route("/v2/models/{model}/config", get(v2::description::config))
        .route("/v2/models/{model}/stats", get(v2::description::statistics))
        .route("/v2/models/{model}/versions/{version}", get(v2::metadata::model))
        .route("/v2/models/{model}/versions/{version}/config", get(v2::description::config))
        .route("/v2/models/{model}/versions/{version}/stats", get(v2::description::statistics));
    let described = Router::new()
        .route("/openapi.json", get(docs::document))
        .route("/docs", get(docs::page))
        .route("/docs/{file}", get(docs::file));
    let changes = Router::new()
        .route("/v2/repository/models/{model}/load", post(v2::repository::load))
        .route("/v2/repository/models/{model}/unload", post(v2::repository::unload));
    let inference = Router::new()
        .route("/v2/models/{model}/infer", post(v2::infer))
        .route("/v2/models/{model}/versions/{version}/infer", post(v2::infer))
        .route("/models/{model}", post(opaque::ask))
        .route("/models/{model}/versions/{version}", post(opaque::ask))
        .route("/v1/models/{model}", post(v1::predict))
        .route("/v1/models/{model}/versions/{version}", post(v1::predict))
        .route("/v1/models/{model}/labels/{label}", post(v1::predict));
    let inference = match serves {
        For::Everybody => inference.route_layer(from_fn_with_state(door.clone(), count)),
        For::Operators => inference.route_layer(from_fn(async |_: Request, _: Next| not_here())),
    };
    let tensorflow = Router::new()
        .route("/v1/models", get(v1::about::list))
        .route("/v1/models/{model}", get(v1::about::status))
        .route("/v1/models/{model}/metadata", get(v1::about::metadata))
        .route("/v1/models/{model}/versions/{version}", get(v1::about::status))
        .route("/v1/models/{model}/versions/{version}/metadata", get(v1::about::metadata))
        .route("/v1/models/{model}/labels/{label}", get(v1::about::status))
        .route("/v1/models/{model}/labels/{label}/metadata", get(v1::about::metadata));
    let models = models.merge(tensorflow).route_layer(from_fn_with_state(app.clone(), keep_counted));
    // Whoever takes no page hears that the server is alive, and needs no right to that.
    let front = guarded(Right::Scrape, front).route_layer(from_fn(v1::about::alive));
    let models = models.merge(inference).merge(described);
    let routes = probes.merge(front).merge(guarded(Right::Scrape, views)).merge(guarded(Right::Inference, models));
    let routes = routes.merge(guarded(Right::Admin, changes));
    let routes = if is_traced { routes.route_layer(from_fn(note_route)) } else { routes };
    routes.fallback(elsewhere).method_not_allowed_fallback(no_such_method).with_state(app)
}

/// Whether a request that goes by these asks for inference, in any protocol.
pub(super) fn is_inference(method: &Method, path: &str) -> bool {
    let below = ["/v2/models/", "/v1/models/", "/models/", "/inference.GRPCInferenceService/ModelInfer"];
    method == Method::POST
        && (below.iter().any(|begin| path.starts_with(begin)) || path.ends_with("Service/ModelStreamInfer"))
}

/// Inference at an address for operators, before its body is read.
pub(super) fn not_here() -> Refusal {
    let message = "this address is for operators: inference is asked for at the server's other addresses";
    Refusal::new(StatusCode::MISDIRECTED_REQUEST, message)
}

/// Has what is told of models take its part of the room until it is sent. Of many models, or of one with many labels, it is long.
async fn keep_counted(State(app): State<App>, request: Request, next: Next) -> Result<Response, Refusal> {
    let caller = request.extensions().get().copied().unwrap_or_default();
    let response = next.run(request).await;
    let bytes = response.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or_default();
    let Some(taken) = app.of(caller).room.reserve_answer(bytes, &app.options)? else { return Ok(response) };
    let (parts, body) = response.into_parts();
    // It is there already.
    let written = to_bytes(body, bytes).await.map_err(|_| failed())?;
    Ok(Response::from_parts(parts, Body::from(counted(written, Some(taken)))))
}

fn failed() -> Refusal {
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error")
}

async fn metrics_text(State(app): State<App>, headers: HeaderMap) -> Response {
    let registry = app.registry.clone();
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = Format::wanted(accept);
    let shared = match format {
        Format::Prometheus => app.metrics,
        Format::OpenMetrics => app.open_metrics,
        Format::Protobuf => app.metrics_messages,
    };
    let write = move || Bytes::from(registry.metrics().render_as(format));
    let is_packed = Coding::wished(&headers) == Some(Coding::Gzip);
    let text = if is_packed {
        shared.get_packed(move || Coding::Gzip.pack(&write(), Vec::new()).into()).await
    } else {
        shared.get(write).await
    };
    let Some(text) = text else { return failed().into_response() };
    let headers = [(CONTENT_TYPE, format.media_type()), (VARY, "accept, accept-encoding")];
    let mut response = (headers, text).into_response();
    if is_packed {
        response.headers_mut().insert(CONTENT_ENCODING, Coding::Gzip.name());
    }
    response
}

/// Any other path.
async fn elsewhere(uri: Uri, headers: HeaderMap) -> Refusal {
    if headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc-web")) {
        let message =
            "gRPC-web is not served: use gRPC over HTTP/2 (application/grpc), or the same calls in JSON under /v2";
        return Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
    }
    no_such_path(uri).await
}

pub(super) async fn no_such_path(uri: Uri) -> Refusal {
    let is_below = |begin: &str| uri.path().starts_with(begin);
    if is_below("/v2/systemsharedmemory") || is_below("/v2/cudasharedmemory") {
        return Refusal::new(StatusCode::NOT_FOUND, "shared memory is not served: send tensors within the request");
    }
    if is_below("/v2/trace/setting") || is_below("/v2/logging") {
        let message = "traces and the log are set in the configuration, and not by requests (docs/tracing.md)";
        return Refusal::new(StatusCode::NOT_FOUND, message);
    }
    Refusal::new(StatusCode::NOT_FOUND, format!("there is nothing at {}", Quoted(uri.path())))
}

/// The router itself adds `Allow`.
async fn no_such_method() -> Refusal {
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not take this method")
}
