//! TensorFlow Serving: a file of batching parameters, or of models, in protobuf's text format.
//!
//! Source: `session_bundle_config.proto` and `model_server_config.proto` of <https://github.com/tensorflow/serving>.

use std::collections::BTreeMap;

use super::{Model, Moved, NAMELESS, NO_QUEUE, NO_WAIT, UNKNOWN, quoted};
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
        return match moved.models.is_empty() {
            true => Err("its list of models (model_config_list) is empty".into()),
            false => Ok(moved),
        };
    }
    let mut model = Model { name: NAMELESS.into(), keys: Vec::new() };
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
    let (mut name, mut versions, mut labels) = (String::new(), Vec::new(), BTreeMap::new());
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
            ("version_labels", _) => {
                let of_entry = |key: &str| value.fields().iter().find(|(own, _)| own == key)?.1.scalar();
                if let (Some(label), Some(version)) = (of_entry("key"), of_entry("value")) {
                    labels.insert(label.to_owned(), version.to_owned());
                }
            }
            (other, _) => moved.note(other, UNKNOWN),
        }
    }
    if name.is_empty() {
        name = NAMELESS.into();
        moved.note("name", "is not said: 'model' stands for it");
    }
    let are_named = labels.values().all(|version| versions.contains(&quoted(version)));
    if !are_named {
        moved.note(
            "version_labels",
            "say labels = { stable = 1 } in NAME/model.toml of a folder that is served by 'models'",
        );
    }
    if versions.is_empty() {
        moved.models.push(Model { name, keys: Vec::new() });
        return;
    }
    let of_version = |version| Model { name: name.clone(), keys: vec![("version", version)] };
    let mut models: Vec<Model> = versions.into_iter().map(of_version).collect();
    if are_named && !labels.is_empty() {
        let labels: Vec<String> =
            labels.iter().map(|(label, version)| format!("{} = {version}", quoted(label))).collect();
        models[0].keys.push(("labels", format!("{{ {} }}", labels.join(", "))));
    }
    moved.models.extend(models);
}

/// A number, or one that is wrapped: `{ value: 128 }`.
fn number(value: &Value) -> Option<String> {
    let wrapped = || value.fields().iter().find(|(key, _)| key == "value")?.1.scalar();
    let text = value.scalar().or_else(wrapped)?;
    text.parse::<u64>().ok().filter(|&n| n > 0).map(|n| n.to_string())
}
