//! Triton: a model's `config.pbtxt`.
//!
//! Source: `model_config.proto` of <https://github.com/triton-inference-server/common>.

use super::{Model, Moved, NAMELESS, NO_QUEUE, NO_WAIT, UNKNOWN};
use crate::config::pbtxt::{self, Value};

const SIZES: &str = "not needed: the size of a batch is found by the times that batches take; 'allowed_batch_sizes' is for a model that cannot run others";

const ENSEMBLE: &str = "has no counterpart here: clients ask its models one by one, or they are exported as one ONNX file; it is no model of its own";

/// `config.pbtxt`
pub(super) fn read(text: &str) -> Result<Moved, String> {
    let mut moved = Moved::default();
    let mut model = Model { name: NAMELESS.into(), keys: Vec::new() };
    let fields = pbtxt::parse(text)?;
    let is_ensemble = fields
        .iter()
        .any(|(key, value)| key == "ensemble_scheduling" || (key == "platform" && value.scalar() == Some("ensemble")));
    if is_ensemble {
        moved.note("ensemble_scheduling", ENSEMBLE);
        return Ok(moved);
    }
    for (key, value) in &fields {
        match (key.as_str(), value.scalar()) {
            ("name", Some(name)) => model.name = name.to_owned(),
            ("max_batch_size", Some("0")) => {
                moved.note(key, "0 there: rows that cannot share a batch are found out when the model is loaded");
            }
            ("max_batch_size", Some(size)) => model.keys.push(("max_batch_size", size.to_owned())),
            ("platform" | "backend", Some(kind)) if kind.contains("onnx") => {}
            ("platform" | "backend", _) => moved.note(key, "export the model to ONNX"),
            ("input" | "output", _) => moved.note(key, "not needed: the ONNX file says it"),
            ("instance_group", _) => group(value, &mut model, &mut moved),
            ("dynamic_batching", _) => batching(value, &mut model, &mut moved),
            ("version_policy", _) => {
                moved.note(key, "each [[model]] is one version, or a folder of versions is served by 'models'");
            }
            ("model_warmup", _) => moved.note(key, "not needed: every model is warmed up, at several sizes of batches"),
            ("sequence_batching", _) => moved.note(key, "state goes out and comes in as tensors: docs/models.md"),
            _ => moved.note(key, UNKNOWN),
        }
    }
    // One runner is what there is without a word.
    model.keys.retain(|(key, value)| (*key, value.as_str()) != ("runners", "1"));
    // A list comes as a field for each of its items.
    moved.notes.dedup();
    moved.models.push(model);
    let keys = fields.iter().map(|(key, _)| key.as_str());
    moved.unless_strange(keys, "Triton's config.pbtxt has 'name', 'platform' or 'max_batch_size'")
}

/// Groups add up, as Triton's own do.
fn group(value: &Value, model: &mut Model, moved: &mut Moved) {
    let mut count = 1;
    for (key, value) in value.fields() {
        match (key.as_str(), value.scalar()) {
            ("kind", Some("KIND_CPU" | "KIND_AUTO")) | ("name", _) => {}
            ("count", Some(said)) => match said.parse::<u64>() {
                Ok(number) => count = number,
                Err(_) => moved.note("instance_group.count", "is no number"),
            },
            ("kind", Some("KIND_GPU")) => {
                moved.note("instance_group.kind", "set 'device' of the model: docs/devices.md");
            }
            _ => moved.note(format!("instance_group.{key}"), UNKNOWN),
        }
    }
    match model.keys.iter_mut().find(|(key, _)| *key == "runners") {
        Some((_, runners)) => *runners = (runners.parse::<u64>().unwrap_or(0) + count).to_string(),
        None => model.keys.push(("runners", count.to_string())),
    }
}

fn batching(value: &Value, model: &mut Model, moved: &mut Moved) {
    for (key, value) in value.fields() {
        let path = format!("dynamic_batching.{key}");
        match key.as_str() {
            "preferred_batch_size" => moved.note(path, SIZES),
            "max_queue_delay_microseconds" => moved.note(path, NO_WAIT),
            "preserve_ordering" => moved.note(path, "not needed: each answer goes to its own caller"),
            "priority_levels" | "default_priority_level" => moved.note(path, "requests say 'priority' 1 to 10"),
            "default_queue_policy" => {
                for (key, value) in value.fields() {
                    match (key.as_str(), value.scalar().and_then(|text| text.parse::<u64>().ok())) {
                        ("default_timeout_microseconds", Some(micros)) if micros > 0 => {
                            model.keys.push(("max_latency_ms", (micros as f64 / 1e3).to_string()));
                            moved.note(
                                format!("{path}.{key}"),
                                "was the time in the queue; max_latency_ms is that of the whole answer: add the time of a batch",
                            );
                        }
                        ("max_queue_size", _) => moved.note(format!("{path}.{key}"), NO_QUEUE),
                        ("timeout_action", _) => {
                            moved.note(format!("{path}.{key}"), "what would be late is refused at once, with 503");
                        }
                        _ => moved.note(format!("{path}.{key}"), UNKNOWN),
                    }
                }
            }
            _ => moved.note(path, UNKNOWN),
        }
    }
}
