//! `uncork validate --from SERVER FILE`: another server's configuration as an `uncork.toml`.
//!
//! Each reader is pure: text in, [`Moved`] out. What has no meaning here is named with the reason, so that nothing is lost
//! without a word.

mod bentoml;
mod cortex;
mod tfserving;
mod torchserve;
mod triton;

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

/// Whose configuration it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum From {
    /// bentoml_configuration.yaml, or the service in Python
    Bentoml,
    /// config.properties, or a model-config.yaml
    Torchserve,
    /// A file of models, or of batching parameters
    Tfserving,
    /// A model's config.pbtxt
    Triton,
    /// cortex.yaml
    Cortex,
}

/// What a configuration comes to.
#[derive(Debug, Default, PartialEq)]
struct Moved {
    /// Of `[server]`: key and value in TOML.
    server: Vec<(&'static str, String)>,
    models: Vec<Model>,
    notes: Vec<Note>,
}

/// One `[[model]]`.
#[derive(Debug, Default, PartialEq)]
struct Model {
    name: String,
    /// Key and value in TOML.
    keys: Vec<(&'static str, String)>,
}

/// A setting that is left out, or that means something else here.
#[derive(Debug, PartialEq)]
struct Note {
    key: String,
    why: &'static str,
}

/// The name of a model whose file does not say it.
const NAMELESS: &str = "model";
const NAMELESS_WHY: &str = "is not in that file: 'model' stands for it";

/// How long a batch is waited for is nobody's setting here.
const NO_WAIT: &str = "not needed: a batch is released as soon as waiting for more costs more than it gains";
/// Workers share one queue there.
const NO_WORKERS: &str =
    "not needed: a runner computes on all cores; set 'runners' for a device that gains from several batches at once";
/// A queue is bounded by the promise.
const NO_QUEUE: &str = "not needed: what would be answered too late is refused at once; 'max_queue_rows' bounds memory";
const NO_THREADS: &str = "not needed: there is an HTTP thread for each core";
const UNKNOWN: &str = "has no counterpart here";

impl Moved {
    fn note(&mut self, key: impl Into<String>, why: &'static str) {
        self.notes.push(Note { key: key.into(), why });
    }

    /// The same, unless all of these keys are unknown: then it is another file.
    fn unless_strange<'a>(self, mut keys: impl Iterator<Item = &'a str>, known: &str) -> Result<Moved, String> {
        let is_unknown = |key: &str| self.notes.iter().any(|note| note.key == key && note.why == UNKNOWN);
        match keys.all(is_unknown) {
            true => Err(format!("nothing in it is known: {known}")),
            false => Ok(self),
        }
    }

    /// The file, with what was left out as comments.
    fn toml(&self, source: &str) -> String {
        let mut text = format!("# From {source}. Check it: uncork validate --config FILE\n");
        if !self.server.is_empty() {
            text.push_str("\n[server]\n");
            self.server.iter().for_each(|(key, value)| line(&mut text, key, value));
        }
        for Model { name, keys } in &self.models {
            text.push_str("\n[[model]]\n");
            line(&mut text, "name", &quoted(name));
            if !keys.iter().any(|(key, _)| *key == "path") {
                text.push_str("# Export the model to ONNX first: docs/migrating.md\n");
                // Each of several versions is another file.
                let version =
                    keys.iter().find(|(key, _)| *key == "version").map(|(_, version)| version.trim_matches('"'));
                let is_one = self.models.iter().filter(|model| model.name == *name).count() == 1;
                let file = match version.filter(|_| !is_one) {
                    Some(version) => format!("{name}-{version}.onnx"),
                    None => format!("{name}.onnx"),
                };
                line(&mut text, "path", &quoted(&file));
            }
            keys.iter().for_each(|(key, value)| line(&mut text, key, value));
            if !keys.iter().any(|(key, _)| *key == "max_latency_ms") {
                text.push_str("# The time within which an answer is of use, 100 unless said otherwise. It was not part of that file.\n");
                text.push_str("# max_latency_ms = 100\n");
            }
        }
        if !self.notes.is_empty() {
            text.push_str("\n# Left out:\n");
        }
        for Note { key, why } in &self.notes {
            // A comment ends with its line.
            let _ = writeln!(text, "# - {}: {why}", key.replace(char::is_control, " "));
        }
        text
    }
}

fn line(text: &mut String, key: &str, value: &str) {
    let _ = writeln!(text, "{key} = {value}");
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Reads the file and writes what it comes to. The error is a sentence for whoever runs the command.
pub(super) fn moved(from: From, path: &Path) -> Result<String, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{shown}: cannot be read: {error}"))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    read(from, &name, &text).map(|moved| moved.toml(&name)).map_err(|why| format!("{shown}: {why}"))
}

fn read(from: From, name: &str, text: &str) -> Result<Moved, String> {
    match from {
        From::Bentoml if name.ends_with(".py") => bentoml::service(text),
        From::Bentoml => yaml(text).and_then(|file| bentoml::configuration(&file)),
        From::Torchserve if name.ends_with(".yaml") || name.ends_with(".yml") => {
            yaml(text).and_then(|file| torchserve::model(&file))
        }
        From::Torchserve => torchserve::properties(text),
        From::Tfserving => tfserving::read(text),
        From::Triton => triton::read(text),
        From::Cortex => yaml(text).and_then(|file| cortex::read(&file)),
    }
}

fn yaml(text: &str) -> Result<Value, String> {
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}

/// The members of an object; none of anything else.
fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}

/// A whole number of at least one.
fn count(value: &Value) -> Option<String> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
    (number > 0).then(|| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toml(from: From, name: &str, text: &str) -> String {
        read(from, name, text).expect("it is read").toml(name)
    }

    /// Whatever comes out is a configuration, as soon as the models are there.
    fn is_valid(text: &str) {
        let folder = std::env::temp_dir().join(format!("uncork-from-{}-{}", std::process::id(), text.len()));
        std::fs::create_dir_all(&folder).expect("a folder");
        for piece in text.split('"').filter(|piece| piece.ends_with(".onnx")) {
            std::fs::write(folder.join(piece), []).expect("a model");
        }
        let file = folder.join("uncork.toml");
        std::fs::write(&file, text).expect("a file");
        let flags = crate::config::Flags { config: Some(file), ..Default::default() };
        let resolved = crate::config::resolve(&flags, [], &folder);
        let _ = std::fs::remove_dir_all(&folder);
        resolved.unwrap_or_else(|problems| panic!("{problems}\n{text}"));
    }

    #[test]
    fn the_caps_of_bentoml_are_the_caps() {
        let yaml = "version: 1\napi_server:\n  workers: 4\n  http:\n    host: 127.0.0.1\n    port: 3000\nrunners:\n  batching:\n    enabled: true\n    \
                    max_batch_size: 100\n    max_latency_ms: 500\n  iris_clf:\n    batching:\n      max_latency_ms: 50\n";
        let text = toml(From::Bentoml, "bentoml_configuration.yaml", yaml);
        assert!(text.contains("http = \"127.0.0.1:3000\""), "{text}");
        assert!(text.contains("name = \"iris_clf\""), "{text}");
        assert!(text.contains("max_latency_ms = 50\n") && text.contains("max_batch_size = 100\n"), "{text}");
        assert!(text.contains("# - api_server.workers: not needed"), "{text}");
        is_valid(&text);
    }

    #[test]
    fn a_service_of_bentoml_is_read_without_running_it() {
        let python = "import bentoml\n\n@bentoml.service(workers=2, traffic={\"timeout\": 30})\nclass Summarizer:\n    \
                      @bentoml.api(batchable=True, max_batch_size=64, max_latency_ms=50)\n    def summarize(self, texts: list[str]) -> list[str]:\n        ...\n";
        let text = toml(From::Bentoml, "service.py", python);
        assert!(text.contains("name = \"Summarizer\""), "{text}");
        assert!(text.contains("max_batch_size = 64\n") && text.contains("max_latency_ms = 50\n"), "{text}");
        assert!(text.contains("# - workers: ") && text.contains("# - traffic: "), "{text}");
        is_valid(&text);
    }

    #[test]
    fn the_models_of_torchserve_are_models() {
        let properties = "inference_address=http://127.0.0.1:8080\nmanagement_address=http://127.0.0.1:8081\nnumber_of_netty_threads=32\n\
                          max_request_size=6553500\njob_queue_size=1000\nmodels={\\\n  \"resnet\": {\\\n    \"2.0\": {\\\n      \"marName\": \"resnet.mar\",\\\n      \
                          \"minWorkers\": 1,\\\n      \"batchSize\": 8,\\\n      \"maxBatchDelay\": 100,\\\n      \"responseTimeout\": 120\\\n    }\\\n  }\\\n}\n";
        let text = toml(From::Torchserve, "config.properties", properties);
        assert!(text.contains("http = \"127.0.0.1:8080\"") && text.contains("max_body_bytes = 6553500"), "{text}");
        assert!(text.contains("name = \"resnet\"") && text.contains("version = \"2\""), "{text}");
        assert!(text.contains("max_batch_size = 8\n"), "{text}");
        assert!(text.contains("# - models.resnet.maxBatchDelay: not needed: a batch is released"), "{text}");
        is_valid(&text);
        let several = "models={\"a\": {\"1.0\": {\"defaultVersion\": true}, \"2.0\": {\"defaultVersion\": false}}}\n";
        let text = toml(From::Torchserve, "config.properties", several);
        assert!(text.contains("\"a-1.onnx\"") && text.contains("\"a-2.onnx\""), "{text}");
        assert_eq!(text.matches("weights = { 1 = 1 }").count(), 1, "the highest would answer: {text}");
        is_valid(&text);
        let text = toml(From::Torchserve, "model-config.yaml", "minWorkers: 1\nbatchSize: 4\nmaxBatchDelay: 50\n");
        assert!(text.contains("max_batch_size = 4\n") && text.contains("# - minWorkers: "), "{text}");
        is_valid(&text);
    }

    #[test]
    fn the_batches_of_tensorflow_serving_keep_their_sizes() {
        let batching = "max_batch_size { value: 128 }\nbatch_timeout_micros { value: 2000 }\nnum_batch_threads { value: 2 }\n\
                        allowed_batch_sizes: 8\nallowed_batch_sizes: 128\npad_variable_length_inputs: true\n";
        let text = toml(From::Tfserving, "batching.txt", batching);
        assert!(text.contains("max_batch_size = 128\n") && text.contains("allowed_batch_sizes = [8, 128]\n"), "{text}");
        assert!(text.contains("runners = 2\n") && text.contains("lengths = \"pad\"\n"), "{text}");
        assert!(text.contains("# - batch_timeout_micros: not needed"), "{text}");
        is_valid(&text);
        let models = "model_config_list {\n  config { name: 'half' base_path: '/models/half' model_platform: 'tensorflow' \
                      model_version_policy { specific { versions: 2 versions: 3 } } }\n  config { name: \"other\" base_path: \"/m\" }\n}\n";
        let text = toml(From::Tfserving, "models.config", models);
        assert_eq!(text.matches("[[model]]").count(), 3, "{text}");
        assert!(text.contains("version = \"3\"") && text.contains("name = \"other\""), "{text}");
        is_valid(&text);
    }

    #[test]
    fn a_model_of_triton_keeps_its_caps_and_its_batch_sizes_are_not_needed() {
        let pbtxt = "name: \"resnet\"\nplatform: \"onnxruntime_onnx\"\nmax_batch_size: 32\ninput [ { name: \"x\" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] } ]\n\
                     instance_group [ { count: 2 kind: KIND_GPU } ]\ndynamic_batching {\n  preferred_batch_size: [ 8, 16 ]\n  max_queue_delay_microseconds: 100\n  \
                     default_queue_policy { default_timeout_microseconds: 50000 }\n}\n";
        let text = toml(From::Triton, "config.pbtxt", pbtxt);
        assert!(text.contains("name = \"resnet\"") && text.contains("max_batch_size = 32\n"), "{text}");
        assert!(text.contains("runners = 2\n") && text.contains("max_latency_ms = 50\n"), "{text}");
        assert!(text.contains("# - dynamic_batching.preferred_batch_size: not needed"), "{text}");
        is_valid(&text);
    }

    #[test]
    fn the_apis_of_cortex_are_models() {
        let yaml = "- name: iris\n  kind: RealtimeAPI\n  handler:\n    type: python\n    path: handler.py\n    server_side_batching:\n      max_batch_size: 16\n      \
                    batch_interval: 0.1s\n  compute:\n    cpu: 1\n";
        let text = toml(From::Cortex, "cortex.yaml", yaml);
        assert!(text.contains("name = \"iris\"") && text.contains("max_batch_size = 16\n"), "{text}");
        assert!(text.contains("# - iris.handler.server_side_batching.batch_interval: not needed"), "{text}");
        assert!(text.contains("# - iris.compute: "), "{text}");
        is_valid(&text);
    }

    #[test]
    fn a_file_that_is_none_is_an_error_and_no_comment_is_left_early() {
        for (from, name, text) in [
            (From::Bentoml, "a.yaml", "a: [b"),
            (From::Bentoml, "a.py", "print(1)"),
            (From::Torchserve, "config.properties", "models={"),
            (From::Tfserving, "a", "max_batch_size {"),
            (From::Tfserving, "a", "max_batchsize: 1"),
            (From::Triton, "config.pbtxt", "name \"x\""),
            (From::Cortex, "cortex.yaml", "name: x"),
            (From::Cortex, "cortex.yaml", "[]"),
            (From::Cortex, "playbook.yaml", "- name: x\n  tasks: []"),
            (From::Bentoml, "a.yaml", ""),
            (From::Bentoml, "a.yaml", "version: 1"),
            (From::Bentoml, "a.yaml", "replicas: 1"),
            (From::Torchserve, "config.properties", ""),
            (From::Torchserve, "config.properties", "name: \"resnet\""),
            (From::Torchserve, "model-config.yaml", "replicas: 1"),
            (From::Tfserving, "a", "model_config_list {}"),
            (From::Triton, "config.pbtxt", ""),
            (From::Triton, "config.pbtxt", "replicas: 1"),
        ] {
            assert!(read(from, name, text).is_err(), "{name}: {text}");
        }
        let text = toml(From::Torchserve, "config.yaml", "\"a\\nmax_latency_ms = 1\": 1\nbatchSize: 2\n");
        assert!(!text.contains("\nmax_latency_ms = 1\n"), "{text}");
    }

    #[test]
    fn caps_of_all_models_labels_and_time_limits_are_kept() {
        let yaml = "runners:\n  batching:\n    enabled: true\n    max_batch_size: 100\n    max_latency_ms: 500\n    strategy: x\n";
        let text = toml(From::Bentoml, "bentoml_configuration.yaml", yaml);
        assert!(text.contains("max_latency_ms = 500\n") && text.contains("max_batch_size = 100\n"), "{text}");
        assert!(text.contains("# - the model's name: ") && text.contains("# - runners.batching.strategy: "), "{text}");
        is_valid(&text);
        let config = |policy: &str| {
            format!(
                "model_config_list {{ config {{ name: 'm' base_path: '/m' {policy} version_labels {{ key: 'stable' value: 1 }} \
                 version_labels {{ key: 'canary 2' value: 2 }} }} }}"
            )
        };
        let specific = config("model_version_policy { specific { versions: 1 versions: 2 } }");
        let text = toml(From::Tfserving, "models.config", &specific);
        assert!(text.matches("labels = { \"canary 2\" = 2, \"stable\" = 1 }\n").count() == 1, "{text}");
        assert!(!text.contains("# - version_labels"), "{text}");
        is_valid(&text);
        let text = toml(From::Tfserving, "models.config", &config(""));
        assert!(text.contains("# - version_labels: say labels = { stable = 1 } in NAME/model.toml"), "{text}");
        is_valid(&text);
        let properties = "default_response_timeout=120\nmodels={\"a\": {\"1.0\": {\"responseTimeout\": 60}}, \"b\": {\"1.0\": {\"batchSize\": 2}}}\n";
        let text = toml(From::Torchserve, "config.properties", properties);
        assert!(text.contains("stuck_after_ms = 60000\n") && text.contains("stuck_after_ms = 120000\n"), "{text}");
        assert!(!text.contains("# - "), "{text}");
        is_valid(&text);
    }

    #[test]
    fn an_ensemble_of_triton_is_no_model() {
        let text = "name: \"e\" platform: \"ensemble\" max_batch_size: 8 ensemble_scheduling { step [ { model_name: \"a\" } ] }";
        let text = toml(From::Triton, "config.pbtxt", text);
        assert!(
            !text.contains("[[model]]") && text.contains("# - ensemble_scheduling: has no counterpart here"),
            "{text}"
        );
    }

    #[test]
    fn nothing_is_lost_where_files_are_as_people_write_them() {
        let groups = "name: \"m\" instance_group [ { count: 2 kind: KIND_CPU }, { kind: KIND_CPU } ]\n\
                      dynamic_batching { default_queue_policy { default_timeout_microseconds: 500 } }";
        let text = toml(From::Triton, "config.pbtxt", groups);
        assert!(text.matches("runners = 3\n").count() == 1 && text.contains("add the time of a batch"), "{text}");
        is_valid(&text);
        let python = "SIZE = 8\n@bentoml.service(traffic={'timeout': 9},  # seconds, don't wait\n)\nclass A:\n    @bentoml.api(\n        \
                      batchable=True,\n        max_batch_size=SIZE,  # rows, don't raise\n        max_latency_ms=200,\n    )\n    def f(self): ...\n";
        let text = toml(From::Bentoml, "service.py", python);
        assert!(text.contains("max_latency_ms = 200\n") && text.contains("# - traffic: "), "{text}");
        assert!(text.contains("# - max_batch_size: is no number in the file"), "{text}");
        is_valid(&text);
        let yaml = "version: 1\napi_server:\n  http:\n    host: '::'\n    port: 3000\nrunners:\n  m:\n    workers: 1\n";
        assert!(toml(From::Bentoml, "bentoml_configuration.yaml", yaml).contains("http = \"[::]:3000\""));
        let latest =
            "model_config_list { config { base_path: '/m' model_version_policy { latest { num_versions: 2 } } } }";
        let text = toml(From::Tfserving, "models.config", latest);
        assert!(text.contains("name = \"model\"") && text.contains("# - model_version_policy: "), "{text}");
        is_valid(&text);
        let twice = "models={\"a\": {\"1.0\": {\"batchSize\": 2}, \"1.1\": {\"batchSize\": 4}}}\n";
        let text = toml(From::Torchserve, "config.properties", twice);
        assert!(text.contains("version = \"1\"") && text.contains("version = \"2\""), "{text}");
        assert!(text.contains("# - models.a.1.1: versions are whole numbers"), "{text}");
    }
}
