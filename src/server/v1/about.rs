//! What the models are and whether they are ready, as TensorFlow Serving's and KServe v1's clients read it.
//!
//! `GET /v1/models/M` is one path of both: its answer has the members of both.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{ACCEPT, HeaderMap, HeaderValue, VARY};
use http::{Method, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{SIGNATURE, Target};
use crate::runner::TensorSpec;
use crate::server::app::{App, json as answer};
use crate::server::status::Refusal;
use crate::server::v2::repository::{Availability, Entry, entries};
use crate::tensor::DataType;

/// `GET /v1/models`
pub(in crate::server) async fn list(State(app): State<App>) -> Response {
    #[derive(Serialize)]
    struct List<'a> {
        models: Vec<&'a str>,
    }
    let all = app.registry.models();
    let answering = all.iter().filter(|model| !app.registry.is_shadow(model));
    let mut models: Vec<&str> = answering.map(|model| model.name()).collect();
    models.dedup();
    answer(StatusCode::OK, &List { models })
}

#[derive(Serialize)]
struct Status<'a> {
    name: &'a str,
    ready: bool,
    model_version_status: Vec<OfVersion<'a>>,
}

#[derive(Serialize)]
struct OfVersion<'a> {
    version: &'a str,
    state: &'static str,
    status: Condition,
}

#[derive(Serialize)]
struct Condition {
    error_code: &'static str,
    error_message: String,
}

/// `GET /v1/models/{model}[/versions/{version}|/labels/{label}]`; 503 where it does not answer at present.
pub(in crate::server) async fn status(State(app): State<App>, target: Target) -> Result<Response, Refusal> {
    let asked = asked(&target)?;
    let version = asked.version(&app)?;
    let is_asked = |entry: &Entry| version.as_ref().is_none_or(|version| entry.version == *version);
    let mut entries = entries(&app);
    entries.retain(|entry| entry.name == asked.model && entry.state != Availability::Shadow && is_asked(entry));
    let found = asked.find(&app);
    if let (Err(refusal), true) = (&found, entries.is_empty()) {
        return Err(refusal.clone());
    }
    let stuck = found.as_ref().ok().and_then(|model| model.stuck()).unwrap_or_default();
    let ready = found.is_ok() && stuck.is_empty() && !app.registry.is_draining();
    let why_stuck = |entry: &Entry| {
        let model = app.registry.model(&entry.name, Some(&entry.version)).ok();
        model.and_then(|model| model.stuck()).unwrap_or_default()
    };
    let of_version = |entry: &Entry, stuck: &str| match entry.state {
        Availability::Ready if stuck.is_empty() => ("AVAILABLE", "OK"),
        Availability::Ready => ("AVAILABLE", "UNAVAILABLE"),
        Availability::Loading => ("LOADING", "OK"),
        Availability::Unloaded | Availability::Shadow => ("END", "OK"),
        Availability::Broken => ("END", "INTERNAL"),
    };
    // What is said of a model as a whole has no version, and here no place.
    let versions = entries.iter().filter(|entry| !entry.version.is_empty()).map(|entry| {
        let stuck = why_stuck(entry);
        let (state, error_code) = of_version(entry, &stuck);
        let error_message = if entry.state == Availability::Ready { stuck } else { entry.reason.clone() };
        OfVersion { version: &entry.version, state, status: Condition { error_code, error_message } }
    });
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok(answer(status, &Status { name: &asked.model, ready, model_version_status: versions.collect() }))
}

/// `GET /v1/models/{model}[/versions/{version}|/labels/{label}]/metadata`
pub(in crate::server) async fn metadata(State(app): State<App>, target: Target) -> Result<Response, Refusal> {
    let model = asked(&target)?.find(&app)?;
    let signature = model.signature();
    let tensors = |specs: &[TensorSpec]| -> Map<String, Value> {
        specs.iter().map(|spec| (spec.name.to_string(), tensor_info(spec))).collect()
    };
    let signature = json!({
        "inputs": tensors(&signature.inputs),
        "outputs": tensors(&signature.outputs),
        "method_name": "tensorflow/serving/predict",
    });
    let metadata = json!({
        "model_spec": {"name": model.name(), "signature_name": "", "version": model.version()},
        "metadata": {"signature_def": {"signature_def": {SIGNATURE: signature}}},
    });
    Ok(answer(StatusCode::OK, &metadata))
}

/// What is looked at has no verb behind it.
fn asked(target: &Target) -> Result<&Target, Refusal> {
    match target.verb {
        None => Ok(target),
        Some(_) => Err(Refusal::only("POST")),
    }
}

fn tensor_info(spec: &TensorSpec) -> Value {
    let dim = |size: &i64| json!({"size": size.to_string(), "name": ""});
    let dims: Vec<Value> = spec.wire_shape().iter().map(dim).collect();
    json!({
        "name": format!("{}:0", spec.name),
        "dtype": data_type(spec.datatype),
        "tensor_shape": {"dim": dims, "unknown_rank": false},
    })
}

/// The type's name in TensorFlow.
fn data_type(datatype: DataType) -> &'static str {
    match datatype {
        DataType::Bool => "DT_BOOL",
        DataType::Uint8 => "DT_UINT8",
        DataType::Uint16 => "DT_UINT16",
        DataType::Uint32 => "DT_UINT32",
        DataType::Uint64 => "DT_UINT64",
        DataType::Int8 => "DT_INT8",
        DataType::Int16 => "DT_INT16",
        DataType::Int32 => "DT_INT32",
        DataType::Int64 => "DT_INT64",
        DataType::Fp16 => "DT_HALF",
        DataType::Bf16 => "DT_BFLOAT16",
        DataType::Fp32 => "DT_FLOAT",
        DataType::Fp64 => "DT_DOUBLE",
        DataType::Bytes => "DT_STRING",
    }
}

/// `GET /` of whoever takes no HTML: `{"status": "alive"}`, to everybody, as KServe's clients ask for it. A browser goes on to
/// the page.
pub(in crate::server) async fn alive(request: Request, next: Next) -> Response {
    let is_asked = [Method::GET, Method::HEAD].contains(request.method()) && !takes_html(request.headers());
    let mut response = match is_asked {
        true => answer(StatusCode::OK, &json!({"status": "alive"})).into_response(),
        false => next.run(request).await,
    };
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    response
}

/// Every browser names HTML where it asks for a page; `*/*` alone is a program.
fn takes_html(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).iter().any(|value| value.to_str().is_ok_and(|value| value.contains("text/html")))
}
