//! TensorFlow Serving's REST API, and KServe's protocol v1, which is part of it: the handler that answers `:predict`.
//!
//! Source: <https://www.tensorflow.org/tfx/serving/api_rest> and
//! <https://kserve.github.io/website/docs/concepts/architecture/data-plane/v1-protocol>.

pub(super) mod about;
mod request;
mod response;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, StatusCode};

use super::app::{App, OfCaller};
use super::arrival::Coming;
use super::body::{self, LONG_CONVERSION, long, reading};
use super::call::{self, Call, takes_tensors};
use super::opaque;
use super::quick::Through;
use super::room::{Room, Taken};
use super::status::{JSON, Refusal};
use super::trace::Traced;
use super::v2::request::Named;
use super::v2::{self, coding};
use crate::error::Error;
use crate::quote::Quoted;
use crate::registry::Model;
use crate::tensor::Tensors;
use request::Form;

/// The one signature that a model has here, by the name that exporters give it.
const SIGNATURE: &str = "serving_default";

/// How the rows of the request were run, if uncork had to choose; the protocol's body has no place for it.
const ROWS: HeaderName = HeaderName::from_static("x-uncork-rows");

/// What a path says: a model, which version of it, and what is behind the colon.
pub(super) struct Target {
    model: String,
    which: Which,
    verb: Option<String>,
}

/// Which version of a model a path names.
enum Which {
    Latest,
    Version(String),
    Label(String),
}

impl FromRequestParts<App> for Target {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Target, Refusal> {
        let Ok(params) = RawPathParams::from_request_parts(parts, app).await else {
            return Err(Refusal::bad_request("the path is not UTF-8"));
        };
        Ok(Target::of(params.iter()))
    }
}

impl Target {
    fn of<'a>(params: impl Iterator<Item = (&'a str, &'a str)>) -> Target {
        let mut target = Target { model: String::new(), which: Which::Latest, verb: None };
        let mut params = params.peekable();
        while let Some((key, value)) = params.next() {
            // A verb is the end of a path. What stands before is a name, whatever is in it.
            let verb = value.split_once(':').filter(|_| params.peek().is_none());
            let own = verb.map_or(value, |(own, _)| own);
            target.verb = verb.map(|(_, verb)| verb.to_owned());
            match key {
                "version" => target.which = Which::Version(own.to_owned()),
                "label" => target.which = Which::Label(own.to_owned()),
                _ => target.model = own.to_owned(),
            }
        }
        target
    }

    /// The version that is named, by its number or by a label.
    fn version(&self, app: &App) -> Result<Option<String>, Refusal> {
        match &self.which {
            Which::Latest => Ok(None),
            Which::Version(version) => Ok(Some(version.clone())),
            Which::Label(label) => {
                let message = || format!("Unrecognized servable version label: {}", Quoted(label));
                app.registry.labelled(&self.model, label).map(Some).ok_or_else(|| Refusal::bad_request(message()))
            }
        }
    }

    /// The model that the path names, or what TensorFlow Serving says where there is none.
    fn find(&self, app: &App) -> Result<Arc<Model>, Refusal> {
        let version = self.version(app)?;
        self.found(version.as_deref(), app.registry.model(&self.model, version.as_deref()))
    }

    /// The model that answers the request, in one version of those that the path leaves open: the one that was judged, if one was.
    fn answering(&self, app: &App, through: Option<&Through>) -> Result<Arc<Model>, Refusal> {
        let version = self.version(app)?;
        let judged = through.and_then(|through| through.model(&self.model, version.as_deref()));
        let model = judged.map_or_else(|| app.registry.answering(&self.model, version.as_deref()), Ok);
        self.found(version.as_deref(), model)
    }

    fn found(&self, version: Option<&str>, model: Result<Arc<Model>, Error>) -> Result<Arc<Model>, Refusal> {
        model.map_err(|error| {
            let refusal = Refusal::from(error);
            if refusal.status() != StatusCode::NOT_FOUND {
                return refusal;
            }
            let asked = match version {
                None => format!("Latest({})", bare(&self.model)),
                Some(version) => format!("Specific({}, {})", bare(&self.model), bare(version)),
            };
            let message = format!("Servable not found for request: {asked}; {}", refusal.message());
            Refusal::new(StatusCode::NOT_FOUND, message)
        })
    }
}

/// What a caller wrote, as in [`Quoted`] but without its marks.
fn bare(text: &str) -> String {
    let quoted = Quoted(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// `POST /v1/models/{model}[/versions/{version}|/labels/{label}]:predict`
pub(super) async fn predict(
    OfCaller(app): OfCaller,
    target: Target,
    coming: Coming,
    traced: Traced,
    request: Request<Body>,
) -> Result<Response, Refusal> {
    match target.verb.as_deref() {
        Some("predict") => {}
        Some("classify" | "regress") => {
            let message = "tf.Example is not served, so there is no :classify and no :regress; ask with :predict, and for \
                           classes with \"classification\" of /v2/models/NAME/infer";
            return Err(Refusal::bad_request(message));
        }
        Some("explain") => return Err(Refusal::bad_request("models here have no explainer; ask with :predict")),
        _ => return Err(Refusal::bad_request("a model is asked with :predict behind its name or version")),
    }
    let model = target.answering(&app, request.extensions().get())?;
    if model.takes_whole() {
        // Its own words for `instances` and `predictions` are those of this protocol, or else its client's.
        let answered = opaque::answer(&app, &model, coming, &traced.0, request).await;
        return answered.map_err(|refusal| refusal.of(&model));
    }
    answer(&app, &model, coming, &traced, request).await.map_err(|refusal| refusal.of(&model))
}

async fn answer(
    app: &App,
    model: &Arc<Model>,
    coming: Coming,
    Traced(span): &Traced,
    request: Request<Body>,
) -> Result<Response, Refusal> {
    span.model(model.name(), model.version());
    let (parts, body) = request.into_parts();
    let read = read(app, model, &coming, &parts.headers, body).await.inspect_err(|refusal| refusal.count(model))?;
    let (Read { call, form, _taken }, took) = read;
    parts.extensions.get::<Through>().inspect(|through| through.is_whole(took));
    let (own, cap) = (call.timeout, model.spec().max_latency);
    let called = call
        .make(model, app.within(cap, own), coming.whole(took), span)
        .await
        .map_err(|error| call::refusal(error, own, cap))?;
    let timing = HeaderValue::try_from(called.timing()).expect("digits and ASCII words are a header's value");
    let chosen_rows = called.chosen_rows();
    let written = match encode(app, model, form, called.outputs()).await {
        Ok(written) => written,
        Err(refusal) => {
            called.unsaid(&refusal);
            return Err(refusal);
        }
    };
    called.written(span);
    let mut response = coding::as_wished(&parts.headers, written, &app.room).await?;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response.headers_mut().insert(v2::SERVER_TIMING, timing);
    if let Some(rows) = chosen_rows {
        response.headers_mut().insert(ROWS, HeaderValue::from_static(rows));
    }
    Ok(response)
}

/// A request, and the part of the room that its tensors take.
struct Read {
    call: Call,
    form: Form,
    _taken: Option<Taken>,
}

/// All that comes before the model is asked, and how long the body took to come.
async fn read(
    app: &App,
    model: &Arc<Model>,
    coming: &Coming,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Read, Duration), Refusal> {
    let body = coding::read(headers, body, coming.until(model.spec().max_latency), &app.options, &app.room).await?;
    let (model, room) = (Arc::clone(model), app.room.clone());
    let read = reading(&body, body.bytes.len() >= LONG_CONVERSION, move |bytes| decode(bytes, &model, &room));
    Ok((read.await??, body.took))
}

/// Reads a body. Its elements are read last: by then it is known that the model takes such tensors, and that there is room.
fn decode(body: &[u8], model: &Model, room: &Room) -> Result<Read, Refusal> {
    takes_tensors(model)?;
    // What is written row by row is put together by inputs, in as many bytes again.
    let _texts = room.reserve_much(body.len())?;
    let signature = model.signature();
    let named;
    let unread = match request::parse(body, signature) {
        Ok(unread) => unread,
        Err(error @ Error::Invalid(_)) => {
            named = Named::of(body, None, room)?.ok_or(error)?;
            request::parse(&named.body, signature)?
        }
        Err(error) => return Err(error.into()),
    };
    let takes = unread.admit(signature)?;
    let _taken = room.admit(takes, body.len())?;
    let (call, form) = unread.read()?;
    Ok(Read { call, form, _taken })
}

/// The body of an answer, held against the bounds before any of it is written.
async fn encode(app: &App, model: &Arc<Model>, form: Form, outputs: &Tensors) -> Result<Bytes, Refusal> {
    let most = response::most_bytes(outputs, model.signature(), form);
    let taken = app.room.reserve_answer(most, &app.options)?;
    let (written, taken) = if most < LONG_CONVERSION {
        (response::encode(outputs, model.signature(), form), taken)
    } else {
        let (model, outputs) = (Arc::clone(model), outputs.clone());
        long(move || (response::encode(&outputs, model.signature(), form), taken)).await?
    };
    let written = written.map_err(Refusal::bad_request)?;
    Ok(body::counted(written, taken))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_model_a_version_or_a_label_and_a_verb() {
        let of = |params: &[(&'static str, &'static str)]| {
            let Target { model, which, verb } = Target::of(params.iter().copied());
            let which = match which {
                Which::Latest => String::new(),
                Which::Version(version) => format!("version {version}"),
                Which::Label(label) => format!("label {label}"),
            };
            (model, which, verb.unwrap_or_default())
        };
        let expect = |model: &str, which: &str, verb: &str| (model.to_owned(), which.to_owned(), verb.to_owned());
        assert_eq!(of(&[("model", "m")]), expect("m", "", ""));
        assert_eq!(of(&[("model", "m:predict")]), expect("m", "", "predict"));
        assert_eq!(of(&[("model", "m"), ("version", "3:predict")]), expect("m", "version 3", "predict"));
        assert_eq!(of(&[("model", "m"), ("label", "stable:classify")]), expect("m", "label stable", "classify"));
    }
}
