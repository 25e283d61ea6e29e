//! Which models there are, and loading and unloading them by name.
//!
//! Source: the extension of the Open Inference Protocol v2 for model repositories
//! (<https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_model_repository.md>). A name is looked
//! for among those that the operator has given; nothing that a client sends becomes a path or a setting.

use std::fmt;

use axum::body::Body;
use axum::response::Response;
use http::{Request, StatusCode};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::json;

use super::coding;
use super::text::Text;
use crate::quote::{Quoted, of_parser};
use crate::repository::{ChangeError, Repository, Trouble};
use crate::server::app::{App, InPath, OfCaller, json as answer};
use crate::server::body::SMALL;
use crate::server::status::Refusal;

/// A version and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct Entry {
    /// The model.
    pub(in crate::server) name: String,
    /// Its version; empty where that is not known.
    pub(in crate::server) version: String,
    /// Whether it is served.
    pub(in crate::server) state: Availability,
    /// Why it is not.
    pub(in crate::server) reason: String,
}

/// Whether a version is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::server) enum Availability {
    Ready,
    Loading,
    /// It is loaded and cannot be asked: a shadow.
    Shadow,
    /// It waits to be loaded by name.
    Unloaded,
    /// It cannot be loaded.
    Broken,
}

impl Availability {
    /// Its name in the protocol.
    pub(in crate::server) fn name(self) -> &'static str {
        match self {
            Availability::Ready => "READY",
            Availability::Loading => "LOADING",
            Availability::Shadow | Availability::Unloaded | Availability::Broken => "UNAVAILABLE",
        }
    }
}

/// All versions that are served, on their way, or cannot be loaded; by name.
pub(in crate::server) fn entries(app: &App) -> Vec<Entry> {
    let models = app.registry.models();
    let there = models.iter().map(|model| {
        let (state, reason) = match app.registry.is_shadow(model) {
            true => (Availability::Shadow, "a shadow: it gets copies of requests and answers nobody"),
            false => (Availability::Ready, ""),
        };
        ((model.name().to_owned(), model.version().to_owned()), state, reason.to_owned())
    });
    let coming = app.registry.arriving().into_iter().map(|of| (of, Availability::Loading, String::new()));
    let troubles = app.repository.as_ref().map(Repository::troubles).unwrap_or_default().into_iter();
    let troubles = troubles.map(|Trouble { name, version, reason, is_unloaded }| {
        ((name, version), if is_unloaded { Availability::Unloaded } else { Availability::Broken }, reason)
    });
    let entry = |((name, version), state, reason)| Entry { name, version, state, reason };
    let mut all: Vec<Entry> = there.chain(coming).chain(troubles).map(entry).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// `POST /v2/repository/index`; `{"ready": true}` asks for what is served alone.
pub(in crate::server) async fn index(OfCaller(app): OfCaller, request: Request<Body>) -> Result<Response, Refusal> {
    #[derive(Default, Deserialize)]
    #[serde(default, expecting = "an object")]
    struct Asked {
        ready: bool,
    }
    let asked: Asked = body(&app, request).await?.unwrap_or_default();
    let wanted = |entry: &&Entry| !asked.ready || entry.state == Availability::Ready;
    let entries: Vec<_> = entries(&app)
        .iter()
        .filter(wanted)
        .map(|Entry { name, version, state, reason }| {
            json!({"name": name, "version": version, "state": state.name(), "reason": reason})
        })
        .collect();
    Ok(answer(StatusCode::OK, &entries))
}

#[derive(Default, Deserialize)]
#[serde(default, expecting = "an object")]
struct Change {
    parameters: Option<Parameters>,
}

/// Names of parameters, but for those that nobody looks at: the first that is refused, if there is one.
struct Parameters(Option<String>);

impl<'de> Deserialize<'de> for Parameters {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Parameters, D::Error> {
        struct Names;

        impl<'de> Visitor<'de> for Names {
            type Value = Parameters;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of parameters")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Parameters, A::Error> {
                let mut refused = None;
                while let Some(Text(name)) = members.next_key::<Text<'de>>()? {
                    members.next_value::<IgnoredAny>()?;
                    if refused.is_none() && is_refused(&name) {
                        refused = Some(name.into_owned());
                    }
                }
                Ok(Parameters(refused))
            }
        }

        from.deserialize_map(Names)
    }
}

/// Whether a parameter would set what is the operator's.
fn is_refused(parameter: &str) -> bool {
    parameter == "config" || parameter.starts_with("file:")
}

/// `POST /v2/repository/models/{model}/load`
pub(in crate::server) async fn load(
    OfCaller(app): OfCaller,
    InPath(name): InPath,
    request: Request<Body>,
) -> Result<Response, Refusal> {
    let Change { parameters } = body(&app, request).await?.unwrap_or_default();
    load_by_name(&app, &name, parameters.and_then(|Parameters(refused)| refused).iter()).await?;
    Ok(answer(StatusCode::OK, &json!({})))
}

/// Loads a model, for a caller who says these parameters beside its name.
pub(in crate::server) async fn load_by_name<'a>(
    app: &App,
    name: &str,
    mut parameters: impl Iterator<Item = &'a String>,
) -> Result<(), Refusal> {
    if let Some(parameter) = parameters.find(|key| is_refused(key)) {
        let message = format!(
            "parameter {} is not served: a model's files and settings are the operator's; put them into the folder of models",
            Quoted(parameter)
        );
        return Err(Refusal::bad_request(message));
    }
    done(name, repository(app)?.load(name).await)
}

/// Unloads a model.
pub(in crate::server) async fn unload_by_name(app: &App, name: &str) -> Result<(), Refusal> {
    done(name, repository(app)?.unload(name).await)
}

/// `POST /v2/repository/models/{model}/unload`
pub(in crate::server) async fn unload(
    OfCaller(app): OfCaller,
    InPath(name): InPath,
    request: Request<Body>,
) -> Result<Response, Refusal> {
    // `unload_dependents` asks for what there is not: no model here is made of others.
    let Change { .. } = body(&app, request).await?.unwrap_or_default();
    unload_by_name(&app, &name).await?;
    Ok(answer(StatusCode::OK, &json!({})))
}

fn repository(app: &App) -> Result<&Repository, Refusal> {
    let none = || Refusal::new(StatusCode::NOT_IMPLEMENTED, "the models of this server do not change");
    app.repository.as_ref().ok_or_else(none)
}

fn done(name: &str, changed: Result<(), ChangeError>) -> Result<(), Refusal> {
    changed.map_err(|error| match error {
        ChangeError::Unknown => Refusal::new(StatusCode::NOT_FOUND, format!("model {}: {error}", Quoted(name))),
        ChangeError::Loading | ChangeError::ShuttingDown => {
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("model {}: {error}", Quoted(name)))
        }
        // As the protocol's other servers have it.
        ChangeError::Failed(_) => Refusal::bad_request(format!("failed to load {}: {error}", Quoted(name))),
    })
}

/// What a body says; nothing, where there is none.
async fn body<T: for<'de> Deserialize<'de>>(app: &App, request: Request<Body>) -> Result<Option<T>, Refusal> {
    let (parts, body) = request.into_parts();
    let most = SMALL.min(app.options.max_body_bytes);
    let body = coding::read_within(most, &parts.headers, body, None, &app.options, &app.room).await?;
    let not_understood = |why: &dyn fmt::Display| Refusal::bad_request(format!("the body is not understood: {why}"));
    let text = std::str::from_utf8(&body.bytes).map_err(|_| not_understood(&"it is not UTF-8"))?;
    match body.bytes.trim_ascii().first() {
        None => return Ok(None),
        // Serde would take the members in their order.
        Some(b'[') => return Err(not_understood(&"it must be an object")),
        Some(_) => {}
    }
    serde_json::from_str(text).map(Some).map_err(|error| not_understood(&of_parser(&error)))
}
