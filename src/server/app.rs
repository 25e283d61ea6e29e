//! What handlers share: the state they reach, the model that a path names, JSON answers.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::response::Response;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use serde::Serialize;
use tokio::sync::Semaphore;

use super::Options;
use super::quick::Through;
use super::room::Room;
use super::shared::Shared;
use super::status::{JSON, Refusal};
use crate::error::Error;
use crate::front::WayBack;
use crate::registry::{Caller, Model, Registry};
use crate::repository::Repository;

/// One in so many connections may be kept by those who watch.
const WATCHERS: usize = 8;

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
    /// Seats of those who watch: whoever does keeps his connection, though he says nothing and has no right.
    pub(super) watchers: Arc<Semaphore>,
    /// The way back from outputs to callers as it was seen last, and when.
    way_back: Arc<Mutex<Option<(Instant, WayBack)>>>,
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
    /// What `/openapi.json` says.
    pub(super) document: Shared,
    /// Whether inference is asked for elsewhere.
    pub(super) is_for_operators: bool,
}

impl App {
    /// What is there to be reached.
    pub(super) fn new(registry: Registry, repository: Option<Repository>, options: Arc<Options>) -> App {
        let room = Room::new(options.max_bodies_bytes);
        let watchers = Arc::new(Semaphore::new(options.max_connections.get().div_ceil(WATCHERS)));
        let [metrics, open_metrics, metrics_messages, status, status_of_hour, document] =
            [(); 6].map(|()| Shared::default());
        App {
            registry,
            repository,
            options,
            room,
            watchers,
            way_back: Arc::default(),
            metrics,
            open_metrics,
            metrics_messages,
            status,
            status_of_hour,
            document,
            is_for_operators: false,
        }
    }

    /// The same at an address for operators.
    pub(super) fn for_operators(self) -> App {
        App { is_for_operators: true, status: Shared::default(), status_of_hour: Shared::default(), ..self }
    }
}

/// What a handler can reach for a request that takes from its caller's part of the room.
pub(super) struct OfCaller(pub(super) App);

impl FromRequestParts<App> for OfCaller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<OfCaller, Infallible> {
        Ok(OfCaller(app.of(parts.extensions.get().copied().unwrap_or_default())))
    }
}

/// For so long a way back is known.
const KNOWN: Duration = Duration::from_secs(1);

impl App {
    /// The same for one request of `caller`, whose part of the room it takes from.
    pub(super) fn of(&self, caller: Caller) -> App {
        App { room: self.room.of(caller), ..self.clone() }
    }

    /// Learns how long it takes from outputs to callers.
    pub(super) fn saw(&self, way_back: WayBack) {
        *self.way_back.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), way_back));
    }

    /// The time within which outputs are wanted of a model with this cap, by a caller who may have set one of his own: the same for all ways
    /// to ask, since those who are due sooner go first.
    pub(super) fn within(&self, cap: Duration, own: Option<Duration>) -> Option<Duration> {
        let seen = *self.way_back.lock().unwrap_or_else(PoisonError::into_inner);
        let left = seen.filter(|(at, _)| at.elapsed() < KNOWN).map(|(_, way_back)| way_back.leaves(cap));
        own.into_iter().chain(left).min()
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

/// The one name in a path. One that is no UTF-8 is refused in words, as everything is.
pub(super) struct InPath(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for InPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<InPath, Refusal> {
        let params = RawPathParams::from_request_parts(parts, state).await;
        let name = params.ok().and_then(|params| params.iter().next().map(|(_, value)| value.to_owned()));
        name.map(InPath).ok_or_else(|| Refusal::bad_request("the path is not UTF-8"))
    }
}

/// The model that answers a request, in the version that its path names, or else in one that its share falls on.
pub(super) struct Asked(pub(super) Arc<Model>);

impl FromRequestParts<App> for Asked {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Asked, Refusal> {
        let through = parts.extensions.get::<Through>().cloned();
        let find = |name: &str, version: Option<&str>| {
            let judged = through.and_then(|through| through.model(name, version));
            judged.map_or_else(|| app.registry.answering(name, version), Ok)
        };
        Ok(Asked(found(parts, app, find).await??))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Tracer;

    #[test]
    fn outputs_are_wanted_before_the_way_back_that_was_seen_of_late_and_never_later_than_their_caller_says() {
        let ms = Duration::from_millis;
        let app = App::new(Registry::open(Vec::new(), Tracer::off()).0, None, Arc::default());
        assert_eq!((app.within(ms(100), None), app.within(ms(100), Some(ms(30)))), (None, Some(ms(30))));
        let mut way_back = WayBack::default();
        (0..100).for_each(|_| way_back.learn(ms(5)));
        app.saw(way_back);
        let left = way_back.leaves(ms(100));
        assert!(left < ms(100));
        assert_eq!((app.within(ms(100), None), app.within(ms(100), Some(ms(30)))), (Some(left), Some(ms(30))));
        assert_eq!(app.within(ms(100), Some(ms(100))), Some(left));
        // What was seen long ago counts no more.
        let seen = Instant::now().checked_sub(KNOWN).unwrap();
        *app.way_back.lock().unwrap() = Some((seen, way_back));
        assert_eq!((app.within(ms(100), None), app.within(ms(100), Some(ms(30)))), (None, Some(ms(30))));
    }
}
