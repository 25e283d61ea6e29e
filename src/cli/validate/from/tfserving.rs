//! TensorFlow Serving: a file of batching parameters, or of models, in protobuf's text format.
//!
//! Source: `session_bundle_config.proto` and `model_server_config.proto` of <https://github.com/tensorflow/serving>.

use super::{Model, Moved, NO_QUEUE, NO_WAIT, UNKNOWN, quoted};
use crate::config::pbtxt::{self, Value};

/// Either file.
pub(super) fn read(text: &str) -> Result<Moved, String> {
    let fields = pbtxt::parse(text)?;
    let mut moved = Moved::default();
    let is_of_models = fields.iter().any(|(key, _)| key == "model_config_list");
    if is_of_models {
        for (key, value) in &fields {
            match key.as_str() {
                "model_config_list" => value.fields().iter().for_each(|(_, model)| of_model(model, &mut moved)),
                _ => moved.note(key, UNKNOWN),
            }
        }
        return Ok(moved);
    }
    let mut model = Model { name: "model".into(), keys: Vec::new() };
    let mut sizes = Vec::new();
    for (key, value) in &fields {
        let number = number(value);
        match key.as_str() {
            "max_batch_size" => model.keys.extend(number.map(|n| ("max_batch_size", n))),
            "num_batch_threads" => model.keys.extend(number.map(|n| ("runners", n))),
            "allowed_batch_sizes" => sizes.extend(number),
            "pad_variable_length_inputs" if value.scalar() == Some("true") => {
                model.keys.push(("lengths", quoted("pad")));
            }
            "pad_variable_length_inputs" => {}
            "batch_timeout_micros" => moved.note(key, NO_WAIT),
            "max_enqueued_batches" => moved.note(key, NO_QUEUE),
            "thread_pool_name" | "enable_large_batch_splitting" | "max_execution_batch_size" => {
                moved.note(key, "not needed: requests of more rows than a batch are split");
            }
            _ => moved.note(key, UNKNOWN),
        }
    }
    if !sizes.is_empty() {
        model.keys.push(("allowed_batch_sizes", format!("[{}]", sizes.join(", "))));
    }
    if model.keys.is_empty() {
        return Err("it has neither models (model_config_list) nor batching parameters (max_batch_size)".into());
    }
    moved.note("the model's name", "is not in a file of batching parameters: 'model' stands for it");
    moved.models.push(model);
    Ok(moved)
}

fn of_model(fields: &Value, moved: &mut Moved) {
    let (mut name, mut versions) = (String::new(), Vec::new());
    for (key, value) in fields.fields() {
        match (key.as_str(), value.scalar()) {
            ("name", Some(text)) => name = text.to_owned(),
            ("base_path", _) => {
                moved.note("base_path", "a SavedModel is not read: export it to ONNX (tf2onnx); a folder with numbered versions is served by 'models'");
            }
            ("model_platform" | "model_type", _) => {}
            ("model_version_policy", _) => {
                if value.fields().iter().any(|(key, _)| key == "latest" || key == "all") {
                    moved.note("model_version_policy", "a folder with numbered versions is served by 'models', and model.toml says which: versions = 2, or \"all\"");
                }
                let specific = value.fields().iter().find(|(key, _)| key == "specific");
                let named = specific.iter().flat_map(|(_, specific)| specific.fields());
                versions.extend(named.filter_map(|(_, version)| version.scalar().map(quoted)));
            }
            ("version_labels", _) => moved.note("version_labels", "versions are named by their numbers"),
            (other, _) => moved.note(other, UNKNOWN),
        }
    }
    if name.is_empty() {
        name = "model".into();
        moved.note("name", "is not said: 'model' stands for it");
    }
    if versions.is_empty() {
        moved.models.push(Model { name, keys: Vec::new() });
        return;
    }
    moved
        .models
        .extend(versions.into_iter().map(|version| Model { name: name.clone(), keys: vec![("version", version)] }));
}

/// A number, or one that is wrapped: `{ value: 128 }`.
fn number(value: &Value) -> Option<String> {
    let wrapped = || value.fields().iter().find(|(key, _)| key == "value")?.1.scalar();
    let text = value.scalar().or_else(wrapped)?;
    text.parse::<u64>().ok().filter(|&n| n > 0).map(|n| n.to_string())
}
