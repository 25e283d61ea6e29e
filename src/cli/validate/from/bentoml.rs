//! BentoML: `batching` of its configuration, or the arguments of `@bentoml.api` in a service.
//!
//! Source: <https://docs.bentoml.com>, configuration and adaptive batching.

use serde_json::Value;

use super::{Model, Moved, NAMELESS, NAMELESS_WHY, NO_QUEUE, NO_WORKERS, UNKNOWN, count, members, quoted};

const LIMITS: &str = "not needed: each request has the model's cap, or less where it says so itself";
const RESOURCES: &str = "set 'device' and 'runners' of the model where they matter";

/// `bentoml_configuration.yaml`
pub(super) fn configuration(file: &Value) -> Result<Moved, String> {
    let mut moved = Moved::default();
    for (key, value) in members(file) {
        match key {
            "version" => {}
            "api_server" => server(value, &mut moved),
            "runners" | "services" => models(key, value, &mut moved),
            _ => moved.note(key, UNKNOWN),
        }
    }
    let keys = members(file).map(|(key, _)| key).filter(|key| *key != "version");
    moved.unless_strange(keys, "BentoML's configuration has 'api_server', 'runners' or 'services'")
}

fn server(table: &Value, moved: &mut Moved) {
    for (key, value) in members(table) {
        let path = format!("api_server.{key}");
        match key {
            "http" => {
                let host = value["host"].as_str().unwrap_or("127.0.0.1");
                let port = value["port"].as_u64().unwrap_or(3000);
                let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
                moved.server.push(("http", quoted(&format!("{host}:{port}"))));
            }
            "ssl" if value["enabled"] == true => {
                for (theirs, ours) in
                    [("certfile", "tls_certificate"), ("keyfile", "tls_key"), ("ca_certs", "tls_client_ca")]
                {
                    moved.server.extend(value[theirs].as_str().map(|file| (ours, quoted(file))));
                }
            }
            "workers" | "backlog" => moved.note(path, NO_WORKERS),
            "timeout" | "traffic" | "max_concurrency" => moved.note(path, LIMITS),
            "metrics" => moved.note(path, "not needed: /metrics is always there"),
            _ => moved.note(path, UNKNOWN),
        }
    }
}

/// What is said of all models stands beside the models' own names.
fn models(under: &str, table: &Value, moved: &mut Moved) {
    const OF_ALL: [&str; 8] =
        ["batching", "resources", "timeout", "workers", "workers_per_resource", "traffic", "logging", "metrics"];
    let (of_all, own): (Vec<_>, Vec<_>) = members(table).partition(|(key, _)| OF_ALL.contains(key));
    for &(key, value) in &of_all {
        note(&format!("{under}.{key}"), key, value, moved);
    }
    let nameless = Value::Object(serde_json::Map::new());
    let own = match own.is_empty() && of_all.iter().any(|(key, _)| *key == "batching") {
        true => {
            moved.note("the model's name", NAMELESS_WHY);
            vec![(NAMELESS, &nameless)]
        }
        false => own,
    };
    for (name, table) in own {
        let mut model = Model { name: name.into(), keys: Vec::new() };
        for key in ["max_latency_ms", "max_batch_size"] {
            let value = count(&table["batching"][key])
                .or_else(|| count(&of_all.iter().find(|(of, _)| *of == "batching")?.1[key]));
            model.keys.extend(value.map(|value| (key, value)));
        }
        members(table).for_each(|(key, value)| note(&format!("{under}.{name}.{key}"), key, value, moved));
        moved.models.push(model);
    }
}

fn note(path: &str, key: &str, value: &Value, moved: &mut Moved) {
    match key {
        "batching" if value["enabled"] == false => {
            moved.note(path, "batching is off there; here max_batch_size = 1 does that, and is rarely faster");
        }
        "batching" => {
            let known = ["enabled", "max_latency_ms", "max_batch_size"];
            for (key, _) in members(value).filter(|(key, _)| !known.contains(key)) {
                moved.note(format!("{path}.{key}"), UNKNOWN);
            }
        }
        "resources" => moved.note(path, RESOURCES),
        "workers" | "workers_per_resource" => moved.note(path, NO_WORKERS),
        "timeout" => moved.note(path, LIMITS),
        "traffic" => moved.note(path, NO_QUEUE),
        _ => moved.note(path, UNKNOWN),
    }
}

/// A module in Python with a class under `@bentoml.service`: what its decorators say, as far as that is written down there.
pub(super) fn service(text: &str) -> Result<Moved, String> {
    let text = &without_comments(text);
    let mut moved = Moved::default();
    for (at, _) in text.match_indices("@bentoml.service") {
        let rest = &text[at + "@bentoml.service".len()..];
        let end = rest.find("@bentoml.service").unwrap_or(rest.len());
        let body = &rest[..end];
        let name = body.split("class ").nth(1).and_then(|class| class.split(|c: char| !is_part(c)).next());
        let Some(name) = name.filter(|name| !name.is_empty()) else { continue };
        let mut model = Model { name: name.into(), keys: Vec::new() };
        for (key, value) in arguments(body) {
            match key {
                "name" => model.name = value.trim_matches(['"', '\'']).to_owned(),
                "workers" => moved.note(key, NO_WORKERS),
                "traffic" => moved.note(key, NO_QUEUE),
                "resources" => moved.note(key, RESOURCES),
                _ => moved.note(key, UNKNOWN),
            }
        }
        for api in body.split("@bentoml.api").skip(1) {
            for (key, value) in arguments(api) {
                match key {
                    "max_latency_ms" => keep(&mut model, "max_latency_ms", value, &mut moved),
                    "max_batch_size" => keep(&mut model, "max_batch_size", value, &mut moved),
                    "batchable" | "batch_dim" => {}
                    "route" => moved.note(key, "requests go to /v2/models/NAME/infer: docs/protocols.md"),
                    _ => moved.note(key, UNKNOWN),
                }
            }
        }
        moved.models.push(model);
    }
    if moved.models.is_empty() {
        return Err("there is no class under @bentoml.service".into());
    }
    moved.note(
        "the class itself",
        "serve it as it is, by python = \"FILE.py:CLASS.METHOD\" in place of path (docs/python.md), or export its model to ONNX",
    );
    Ok(moved)
}

/// The first number counts, should several functions of a class have one.
fn keep(model: &mut Model, key: &'static str, value: &str, moved: &mut Moved) {
    let is_new = !model.keys.iter().any(|(known, _)| *known == key);
    let number = Some(value.replace('_', "")).filter(|digits| digits.parse::<u64>().is_ok_and(|n| n > 0));
    match number {
        Some(number) if is_new => model.keys.push((key, number)),
        Some(_) => {}
        None => {
            moved
                .note(key, "is no number in the file, but something that Python would have to tell: write it yourself");
        }
    }
}

/// The text without what stands behind `#`, but for those within quotes.
fn without_comments(text: &str) -> String {
    let (mut kept, mut quote, mut is_comment) = (String::with_capacity(text.len()), None, false);
    for c in text.chars() {
        is_comment &= c != '\n';
        if is_comment {
            continue;
        }
        match (quote, c) {
            (None, '#') => {
                is_comment = true;
                continue;
            }
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open || c == '\n' => quote = None,
            _ => {}
        }
        kept.push(c);
    }
    kept
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The arguments by name of a call whose brackets are the next thing in `text`.
fn arguments(text: &str) -> Vec<(&str, &str)> {
    let Some(inside) = text.strip_prefix('(') else { return Vec::new() };
    let (mut found, mut depth, mut begin, mut quote) = (Vec::new(), 0usize, 0, None);
    for (at, c) in inside.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') if depth > 0 => depth -= 1,
            (None, ',' | ')') if depth == 0 => {
                let argument = inside[begin..at].split_once('=').map(|(key, value)| (key.trim(), value.trim()));
                found.extend(argument);
                begin = at + 1;
                if c == ')' {
                    return found;
                }
            }
            _ => {}
        }
    }
    found
}
