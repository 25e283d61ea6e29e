//! Cortex: the APIs of `cortex.yaml`.
//!
//! Source: <https://docs.cortexlabs.com>, realtime APIs and server-side batching.

use serde_json::Value;

use super::{Model, Moved, NO_WAIT, NO_WORKERS, UNKNOWN, count, members};

/// A list of APIs.
pub(super) fn read(file: &Value) -> Result<Moved, String> {
    let apis = file.as_array().ok_or("it is no list of APIs")?;
    let mut moved = Moved::default();
    for api in apis {
        let Some(name) = api["name"].as_str() else { return Err("an API has no name".into()) };
        let mut model = Model { name: name.into(), keys: Vec::new() };
        for (key, value) in members(api) {
            let path = format!("{name}.{key}");
            match key {
                "name" | "kind" => {}
                "handler" | "predictor" => handler(&path, value, &mut model, &mut moved),
                "compute" | "autoscaling" | "update_strategy" | "networking" | "pod" => {
                    moved.note(path, "is Kubernetes' part: requests, limits and an autoscaler of the deployment");
                }
                _ => moved.note(path, UNKNOWN),
            }
        }
        moved.models.push(model);
    }
    let paths: Vec<String> = apis
        .iter()
        .flat_map(|api| {
            members(api)
                .filter(|(key, _)| *key != "name")
                .map(|(key, _)| format!("{}.{key}", api["name"].as_str().unwrap_or_default()))
        })
        .collect();
    moved.unless_strange(paths.iter().map(String::as_str), "Cortex' APIs have 'kind' and 'handler'")
}

fn handler(path: &str, table: &Value, model: &mut Model, moved: &mut Moved) {
    for (key, value) in members(table) {
        let path = format!("{path}.{key}");
        match key {
            "server_side_batching" => {
                model.keys.extend(count(&value["max_batch_size"]).map(|size| ("max_batch_size", size)));
                moved.note(format!("{path}.batch_interval"), NO_WAIT);
            }
            "processes_per_replica" | "threads_per_process" => moved.note(path, NO_WORKERS),
            "type" | "path" | "protobuf_path" | "python_path" => {
                moved.note(
                    path,
                    "export the handler's model to ONNX; what it does around the model stays with the client",
                );
            }
            _ => moved.note(path, UNKNOWN),
        }
    }
}
