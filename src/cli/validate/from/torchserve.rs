//! TorchServe: `config.properties`, whose `models` are JSON, or the `model-config.yaml` of one model.
//!
//! Source: <https://pytorch.org/serve/configuration.html>.

use serde_json::Value;

use super::{Model, Moved, NAMELESS, NO_QUEUE, NO_THREADS, NO_WAIT, NO_WORKERS, UNKNOWN, count, members, quoted};

const STUCK_AFTER: &str = "stuck_after_ms";
const TIMEOUT: &str =
    "a worker that takes so long is restarted there; here that is 'stuck_after_ms' of the model, up to a day";

/// `config.properties`
pub(super) fn properties(text: &str) -> Result<Moved, String> {
    let mut moved = Moved::default();
    let (pairs, mut of_all) = (pairs(text), None);
    for (key, value) in &pairs {
        match &**key {
            "inference_address" => moved.server.push(("http", quoted(address(value)))),
            "max_request_size" => moved.server.extend(number(value).map(|bytes| ("max_body_bytes", bytes))),
            "max_response_size" => moved.server.extend(number(value).map(|bytes| ("max_answer_bytes", bytes))),
            "private_key_file" => moved.server.push(("tls_key", quoted(value))),
            "certificate_file" => moved.server.push(("tls_certificate", quoted(value))),
            "models" => models(value, &mut moved)?,
            "management_address" | "metrics_address" | "enable_metrics_api" | "metrics_mode" => {
                moved.note(key, "not needed: /metrics, /status and the page are at the same address");
            }
            "job_queue_size" => moved.note(key, NO_QUEUE),
            "number_of_netty_threads" | "netty_client_threads" => moved.note(key, NO_THREADS),
            "default_workers_per_model" => moved.note(key, NO_WORKERS),
            "default_response_timeout" => {
                of_all = stuck_after(value.parse().ok());
                if of_all.is_none() {
                    moved.note(key, TIMEOUT);
                }
            }
            "grpc_inference_address" | "grpc_inference_port" => {
                moved.note(key, "set 'grpc' of [server]: docs/protocols.md");
            }
            "model_store" | "load_models" => {
                moved
                    .note(key, "archives are not read: name each model's ONNX file, or a folder of them with 'models'");
            }
            _ => moved.note(key, UNKNOWN),
        }
    }
    if moved.models.is_empty() && of_all.is_some() {
        moved.note("default_response_timeout", TIMEOUT);
    }
    for model in moved.models.iter_mut().filter(|model| !model.keys.iter().any(|(key, _)| *key == STUCK_AFTER)) {
        model.keys.extend(of_all.clone().map(|ms| (STUCK_AFTER, ms)));
    }
    let keys = pairs.iter().map(|(key, _)| key.as_str());
    moved.unless_strange(keys, "TorchServe's config.properties has 'inference_address' or 'models'")
}

/// A model's `model-config.yaml`, which does not say its name.
pub(super) fn model(file: &Value) -> Result<Moved, String> {
    let mut moved = Moved::default();
    let model = of_model(NAMELESS, "", file, &mut moved);
    moved.models.push(model);
    let keys = members(file).map(|(key, _)| key);
    moved.unless_strange(keys, "TorchServe's model-config.yaml has 'batchSize' or 'minWorkers'")
}

/// Milliseconds of TorchServe's seconds, where they are within the bounds of that key.
fn stuck_after(seconds: Option<u64>) -> Option<String> {
    seconds.filter(|seconds| (1..=24 * 3600).contains(seconds)).map(|seconds| (seconds * 1000).to_string())
}

fn models(json: &str, moved: &mut Moved) -> Result<(), String> {
    let models: Value = serde_json::from_str(json).map_err(|error| format!("'models' is not JSON: {error}"))?;
    for (name, versions) in members(&models) {
        let mut taken: Vec<u64> = Vec::new();
        let mut default = None;
        for (version, table) in members(versions) {
            let mut model = of_model(name, &format!("models.{name}."), table, moved);
            // Versions are whole numbers here, and each is there once.
            let whole = version.split('.').next().and_then(|whole| whole.parse::<u64>().ok());
            if let Some(whole) = whole {
                let own =
                    if taken.contains(&whole) { taken.iter().max().map_or(whole, |most| most + 1) } else { whole };
                if own != whole {
                    moved.note(
                        format!("models.{name}.{version}"),
                        "versions are whole numbers here: it has the next one that is free",
                    );
                }
                taken.push(own);
                model.keys.push(("version", quoted(&own.to_string())));
                if table["defaultVersion"] == true {
                    default = Some(own);
                }
            }
            moved.models.push(model);
        }
        // Here the highest answers whoever names none.
        let other = default.filter(|default| taken.iter().any(|version| version > default));
        if let (Some(default), Some(model)) = (other, moved.models.last_mut()) {
            model.keys.push(("weights", format!("{{ {default} = 1 }}")));
        }
    }
    Ok(())
}

fn of_model(name: &str, path: &str, table: &Value, moved: &mut Moved) -> Model {
    let mut model = Model { name: name.into(), keys: Vec::new() };
    for (key, value) in members(table) {
        let path = format!("{path}{key}");
        match key {
            "batchSize" => model.keys.extend(count(value).map(|size| ("max_batch_size", size))),
            "maxBatchDelay" => moved.note(path, NO_WAIT),
            "minWorkers" | "maxWorkers" => moved.note(path, NO_WORKERS),
            "responseTimeout" => match stuck_after(value.as_u64()) {
                Some(ms) => model.keys.push((STUCK_AFTER, ms)),
                None => moved.note(path, TIMEOUT),
            },
            "startupTimeout" => moved.note(path, "not needed: a model that is loaded is waited for"),
            // Of several versions, `models` looks at it.
            "defaultVersion" => {}
            "marName" => moved.note(path, "an archive is not read: export the model to ONNX"),
            "deviceType" | "deviceIds" | "parallelType" => moved.note(path, "set 'device' of the model"),
            _ => moved.note(path, UNKNOWN),
        }
    }
    model
}

/// Keys and values of Java's properties; a line that ends with `\` goes on in the next.
fn pairs(text: &str) -> Vec<(String, String)> {
    let whole = text.replace("\r\n", "\n").replace("\\\n", "");
    let lines = whole.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', '!']));
    lines
        .filter_map(|line| line.split_once(['=', ':']))
        .map(|(key, value)| (key.trim().into(), value.trim().into()))
        .collect()
}

/// `host:port` of a URL.
fn address(url: &str) -> &str {
    let behind = url.split_once("://").map_or(url, |(_, rest)| rest);
    behind.trim_end_matches('/')
}

fn number(text: &str) -> Option<String> {
    text.parse::<u64>().ok().map(|number| number.to_string())
}
