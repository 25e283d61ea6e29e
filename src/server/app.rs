//! What handlers share: the state they reach, the model that a path names, JSON answers.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::response::Response;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use serde::Serialize;

use super::Options;
use super::body::Room;
use super::shared::Shared;
use super::status::{JSON, Refusal};
use crate::error::Error;
use crate::registry::{Model, Registry};
use crate::repository::Repository;

/// What every handler can reach.
#[derive(Clone)]
pub(super) struct App {
    /// The models.
    pub(super) registry: Registry,
    /// What loads and unloads them by name, if they can change.
    pub(super) repository: Option<Repository>,
    /// The bounds.
    pub(super) options: Arc<Options>,
    /// Memory for bodies.
    pub(super) room: Room,
    /// What `/metrics` says.
    pub(super) metrics: Shared,
    /// The same in OpenMetrics.
    pub(super) open_metrics: Shared,
    /// The same in messages of Protocol Buffers.
    pub(super) metrics_messages: Shared,
    /// What `/status` says of two minutes.
    pub(super) status: Shared,
    /// What it says of an hour.
    pub(super) status_of_hour: Shared,
}

impl App {
    /// What is there to be reached.
    pub(super) fn new(registry: Registry, repository: Option<Repository>, options: Arc<Options>) -> App {
        let room = Room::new(options.max_bodies_bytes);
        let [metrics, open_metrics, metrics_messages, status, status_of_hour] = [(); 5].map(|()| Shared::default());
        App { registry, repository, options, room, metrics, open_metrics, metrics_messages, status, status_of_hour }
    }
}

/// The model that a path names, in the version that it names, or else the highest.
pub(super) struct Named(pub(super) Arc<Model>);

impl FromRequestParts<App> for Named {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Named, Refusal> {
        let found = found(parts, app, |model, version| app.registry.model(model, version)).await?;
        Ok(Named(found?))
    }
}

/// The same for a caller who needs no right to ask.
pub(super) struct Probed(pub(super) Arc<Model>);

impl FromRequestParts<App> for Probed {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Probed, Refusal> {
        let found = found(parts, app, |model, version| app.registry.model(model, version)).await?;
        Ok(Probed(found.map_err(Error::for_strangers)?))
    }
}

/// What `find` finds by the model and the version that a path names.
async fn found<T>(parts: &mut Parts, app: &App, find: impl FnOnce(&str, Option<&str>) -> T) -> Result<T, Refusal> {
    let Ok(params) = RawPathParams::from_request_parts(parts, app).await else {
        return Err(Refusal::bad_request("the path is not UTF-8"));
    };
    let param = |wanted| params.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value);
    Ok(find(param("model").unwrap_or_default(), param("version")))
}

/// The model that answers a request, in the version that its path names, or else in one that its share falls on.
pub(super) struct Asked(pub(super) Arc<Model>);

impl FromRequestParts<App> for Asked {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Asked, Refusal> {
        let found = found(parts, app, |model, version| app.registry.answering(model, version)).await?;
        Ok(Asked(found?))
    }
}

/// An answer with a JSON body.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    json_bytes(status, json_text(body))
}

/// A JSON text.
pub(super) fn json_text(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("names, numbers and lists of them always have a JSON form")
}

/// An answer whose JSON body is written already.
pub(super) fn json_bytes(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}
