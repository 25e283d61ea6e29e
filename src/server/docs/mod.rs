//! What is served, for programs at `/openapi.json` (OpenAPI 3.1), and for people at `/docs`.
//!
//! The document is a file, `openapi.json`. What changes from server to server is put into it when it is asked for: version,
//! names of models, and a request that each of them takes. That it is true is held by a test of its paths against the
//! router's, and by schemathesis against a running server (`.ci/outside`).

use std::sync::LazyLock;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::HeaderMap;
use http::{StatusCode, Uri};
use serde_json::{Map, Value, json};

use super::app::{App, InPath, json_bytes, json_text};
use super::page::{self, File};
use super::status::Refusal;
use crate::opaque;
use crate::registry::{Model, Registry};
use crate::runner::TensorSpec;
use crate::tensor::DataType;

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("openapi.json")).expect("a test reads it"));

const PAGE: &str = include_str!("docs.html");

/// Below `/docs/`.
const FILES: &[File] =
    &[("docs.css", page::CSS, include_str!("docs.css")), ("docs.js", page::SCRIPT, include_str!("docs.js"))];

/// Most elements of an example: one of an image would be longer than the document.
const MOST_ELEMENTS: usize = 256;

/// Paths of models that take any body.
const OPAQUE: [&str; 2] = ["/models/{model}", "/models/{model}/versions/{version}"];

/// `GET /openapi.json`
pub(super) async fn document(State(app): State<App>) -> Response {
    let registry = app.registry.clone();
    match app.document.get(move || written(&registry)).await {
        Some(document) => json_bytes(StatusCode::OK, document),
        None => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error").into_response(),
    }
}

/// The document of what is served. That takes some milliseconds.
fn written(registry: &Registry) -> Bytes {
    let all = registry.models();
    let models: Vec<_> = all.iter().filter(|model| !registry.is_shadow(model)).collect();
    let mut document = DOCUMENT.clone();
    document["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    let mut names: Vec<&str> = models.iter().map(|model| model.name()).collect();
    let mut versions: Vec<&str> = models.iter().map(|model| model.version()).collect();
    names.dedup();
    versions.sort_unstable();
    versions.dedup();
    if !names.is_empty() {
        document["components"]["parameters"]["Model"]["schema"]["enum"] = json!(names);
        document["components"]["parameters"]["Version"]["schema"]["enum"] = json!(versions);
    }
    let opaque: Vec<&str> =
        models.iter().filter(|model| opaque::is_opaque(model.signature())).map(|model| model.name()).collect();
    for path in OPAQUE {
        match document["paths"].as_object_mut() {
            Some(paths) if opaque.is_empty() => drop(paths.remove(path)),
            _ => {
                let model = json!({"name": "model", "in": "path", "required": true, "schema": {"type": "string", "enum": opaque}});
                document["paths"][path]["post"]["parameters"][0] = model;
            }
        }
    }
    let examples: Map<String, Value> =
        models.iter().filter_map(|model| Some((model.name().to_owned(), json!({"value": example(model)?})))).collect();
    if !examples.is_empty() {
        for path in ["/v2/models/{model}/infer", "/v2/models/{model}/versions/{version}/infer"] {
            document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["examples"] = json!(examples);
        }
    }
    json_text(&document).into()
}

/// A request of one row of zeros, where that is short.
fn example(model: &Model) -> Option<Value> {
    if opaque::is_opaque(model.signature()) {
        return None;
    }
    let inputs = model.signature().inputs.iter().map(|spec| {
        let shape: Vec<usize> = spec.wire_shape().iter().map(|&dim| usize::try_from(dim).unwrap_or(1)).collect();
        let elements = crate::tensor::elements(&shape).ok().filter(|&elements| elements <= MOST_ELEMENTS)?;
        let (name, datatype) = (&*spec.name, spec.datatype.name());
        Some(json!({"name": name, "shape": shape, "datatype": datatype, "data": vec![zero(spec); elements]}))
    });
    Some(json!({"inputs": inputs.collect::<Option<Vec<_>>>()?}))
}

fn zero(spec: &TensorSpec) -> Value {
    match spec.datatype {
        DataType::Bool => json!(false),
        DataType::Bytes => json!(""),
        _ => json!(0),
    }
}

/// `GET /docs`
pub(super) async fn page(headers: HeaderMap) -> Response {
    page::embedded(&headers, page::HTML, PAGE)
}

/// `GET /docs/{file}`
pub(super) async fn file(InPath(name): InPath, uri: Uri, headers: HeaderMap) -> Result<Response, Refusal> {
    page::named(FILES, &name, &uri, &headers).await
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use crate::telemetry::Tracer;

    /// What the page and the document are not about: the pages and their files.
    const PAGES: [&str; 5] = ["get /", "get /page/{file}", "get /docs", "get /docs/{file}", "get /openapi.json"];

    /// Methods and paths of the router, as its source lists them.
    fn routed() -> BTreeSet<String> {
        let source = include_str!("../routes.rs").replace('\n', " ");
        let mut routes = BTreeSet::new();
        for route in source.split(".route(").skip(1) {
            let path = route.split('"').nth(1).expect("a route has a path");
            let handlers = route.split_once(',').expect("and what answers it").1;
            for method in ["get", "post"] {
                let begins = [format!(" {method}("), format!(".{method}(")];
                if begins.iter().any(|begin| handlers.contains(begin)) {
                    let verb = if path.starts_with("/v1/models/{") && method == "post" { ":predict" } else { "" };
                    routes.insert(format!("{method} {path}{verb}"));
                }
            }
        }
        routes
    }

    #[test]
    fn the_document_has_every_path_of_the_router_and_no_other() {
        let paths = DOCUMENT["paths"].as_object().expect("paths").iter();
        let documented: BTreeSet<String> = paths
            .flat_map(|(path, item)| item.as_object().expect("methods").keys().map(move |m| format!("{m} {path}")))
            .collect();
        let mut routed = routed();
        routed.retain(|route| !PAGES.contains(&route.as_str()));
        assert_eq!(documented, routed);
    }

    #[tokio::test]
    async fn who_asks_at_the_same_time_gets_the_same_bytes() {
        let app = App::new(Registry::open(Vec::new(), Tracer::off()).0, None, Arc::default());
        let asking = (0..50).map(|_| async {
            let body = document(State(app.clone())).await.into_body();
            axum::body::to_bytes(body, usize::MAX).await.unwrap()
        });
        let documents = futures_util::future::join_all(asking).await;
        let places: BTreeSet<_> = documents.iter().map(|document| document.as_ptr()).collect();
        assert!(places.len() <= 2, "{} documents for 50 askers", places.len());
    }

    #[test]
    fn what_the_document_refers_to_is_in_it() {
        fn referred<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(members) => {
                    found.extend(members.get("$ref").and_then(Value::as_str));
                    members.values().for_each(|value| referred(value, found));
                }
                Value::Array(items) => items.iter().for_each(|value| referred(value, found)),
                _ => {}
            }
        }
        let mut found = Vec::new();
        referred(&DOCUMENT, &mut found);
        assert!(!found.is_empty());
        for reference in found {
            assert!(DOCUMENT.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
        }
    }

    #[test]
    fn the_files_that_the_page_names_are_served() {
        for (name, ..) in FILES {
            assert!(PAGE.contains(&format!("docs/{name}")), "{name}");
        }
    }
}
