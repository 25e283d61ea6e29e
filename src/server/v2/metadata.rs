//! What the server and its models are, and whether they are ready.

use axum::extract::{Extension, State};
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;

use crate::registry::{Model, RowExecution};
use crate::runner::TensorSpec;
use crate::server::access::Known;
use crate::server::app::{App, Named, Probed, json};

#[derive(Serialize)]
struct ServerMetadata {
    name: &'static str,
    version: &'static str,
    /// Extensions that are served, and no others: clients call what is listed here.
    extensions: &'static [&'static str],
}

pub(in crate::server) const EXTENSIONS: &[&str] =
    &["binary_tensor_data", "classification", "model_configuration", "model_repository", "statistics"];

pub(in crate::server) async fn server() -> Response {
    let (name, version) = (env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
    json(StatusCode::OK, &ServerMetadata { name, version, extensions: EXTENSIONS })
}

#[derive(Serialize)]
struct Live {
    live: bool,
}

pub(in crate::server) async fn live() -> Response {
    json(StatusCode::OK, &Live { live: true })
}

#[derive(Serialize)]
struct Ready {
    ready: bool,
    live: bool,
    /// Models that are still being loaded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    loading: Vec<String>,
    /// Models that do not answer at present, each with why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stuck: Vec<String>,
    /// Models that cannot keep their latency caps, each with why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl Ready {
    /// The same for whoever asks without a right: it names no model.
    fn for_strangers(self) -> Ready {
        Ready { loading: Vec::new(), stuck: Vec::new(), warnings: Vec::new(), ..self }
    }
}

/// 503 until every model is loaded, while one is stuck, and from the start of a shutdown on, while requests are still answered.
pub(in crate::server) async fn ready(State(app): State<App>, known: Option<Extension<Known>>) -> Response {
    let models = app.registry.models();
    let named = |why: fn(&Model) -> Option<String>| {
        models.iter().filter_map(|model| Some(format!("model '{}': {}", model.name(), why(model)?))).collect()
    };
    let (warnings, stuck) = (named(|model| model.too_slow().map(str::to_owned)), named(Model::stuck));
    let (ready, loading) = (app.registry.is_ready(), app.registry.loading());
    let told = Ready { ready, live: true, loading, stuck, warnings };
    json(ready_status(ready), &if known.is_some() { told } else { told.for_strangers() })
}

fn ready_status(ready: bool) -> StatusCode {
    if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

#[derive(Serialize)]
struct ModelReady<'a> {
    name: &'a str,
    ready: bool,
    /// Why it does not answer at present.
    #[serde(skip_serializing_if = "Option::is_none")]
    stuck: Option<String>,
}

pub(in crate::server) async fn model_ready(State(app): State<App>, Probed(model): Probed) -> Response {
    // A model is there when it is loaded and warm, whether or not others are.
    let stuck = model.stuck();
    let ready = !app.registry.is_draining() && stuck.is_none();
    json(ready_status(ready), &ModelReady { name: model.name(), ready, stuck })
}

#[derive(Serialize)]
struct ModelMetadata<'a> {
    name: &'a str,
    versions: Vec<String>,
    platform: &'a str,
    inputs: Vec<TensorMetadata<'a>>,
    outputs: Vec<TensorMetadata<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<ModelParameters>,
}

/// What the protocol has no field for.
#[derive(Serialize)]
struct ModelParameters {
    /// The model takes any body and reads `instances` itself, as an uncork in front of it has to know.
    #[serde(skip_serializing_if = "is_false")]
    whole_bodies: bool,
    /// How the rows of a request are run, if not together with those of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<&'static str>,
}

impl ModelParameters {
    /// `None` if there is nothing to say.
    fn of(model: &Model) -> Option<ModelParameters> {
        let rows = Some(model.row_execution()).filter(|rows| *rows != RowExecution::Batched).map(RowExecution::label);
        let whole_bodies = model.takes_whole();
        (whole_bodies || rows.is_some()).then_some(ModelParameters { whole_bodies, rows })
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

#[derive(Serialize)]
struct TensorMetadata<'a> {
    name: &'a str,
    datatype: &'static str,
    shape: Vec<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Columns<'a>>,
}

/// What the columns of an output are: classes, or the keys of a map.
#[derive(Serialize)]
struct Columns<'a> {
    labels: &'a [String],
}

impl<'a> From<&'a TensorSpec> for TensorMetadata<'a> {
    fn from(spec: &'a TensorSpec) -> TensorMetadata<'a> {
        TensorMetadata { name: &spec.name, datatype: spec.datatype.name(), shape: spec.wire_shape(), parameters: None }
    }
}

pub(in crate::server) async fn model(State(app): State<App>, Named(model): Named) -> Response {
    let signature = model.signature();
    let outputs = signature.outputs.iter().enumerate().map(|(i, spec)| {
        let labels = Some(model.labels(i)).filter(|labels| !labels.is_empty());
        TensorMetadata { parameters: labels.map(|labels| Columns { labels }), ..TensorMetadata::from(spec) }
    });
    let metadata = ModelMetadata {
        name: model.name(),
        versions: app.registry.versions(model.name()),
        platform: model.platform(),
        inputs: signature.inputs.iter().map(TensorMetadata::from).collect(),
        outputs: outputs.collect(),
        parameters: ModelParameters::of(&model),
    };
    json(StatusCode::OK, &metadata)
}
