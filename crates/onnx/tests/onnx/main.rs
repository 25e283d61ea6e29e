//! ONNX files are served as onnxruntime would answer, at every batch size; what cannot be served is refused by name.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside what clippy takes for one")]

/// Shared with `cargo bench --bench onnx -- graphs COUNT`.
#[path = "../../benches/graphs/mod.rs"]
mod graphs;
mod module;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use serde_json::Value as Json;
use uncork_model::runner::{Runner, RunnerError};
use uncork_model::tensor::{Data, DataType, Tensor, Tensors};
use uncork_onnx::{Graph, OnnxError, OnnxErrorKind, OnnxModel, OnnxRunner, Rule};

/// Fixtures with recorded inputs and onnxruntime's outputs: the name of the record, and the model beside or elsewhere.
const RECORDED: [(&str, &str); 5] = [
    ("mlp", "tests/models/mlp.onnx"),
    ("lenet", "tests/models/lenet.onnx"),
    ("two_inputs", "tests/models/two_inputs.onnx"),
    ("free", "tests/models/free.onnx"),
    ("digits", "examples/digits/digits.onnx"),
];

/// Largest difference to onnxruntime, absolute plus relative.
const TOLERANCE: f32 = 1e-4;

fn file(path: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn load(path: &str) -> OnnxModel {
    OnnxModel::load(&file(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn runner(model: &OnnxModel) -> OnnxRunner {
    model.runner(NonZeroUsize::MIN)
}

/// The refusal of a file that must not load.
fn refusal(path: &str) -> OnnxError {
    OnnxModel::load(&file(path)).expect_err(path)
}

/// Inputs and outputs of a record: `tests/models/NAME.json`.
fn record(name: &str) -> (Tensors, Tensors) {
    let json: Json = serde_json::from_slice(&file(&format!("tests/models/{name}.json"))).unwrap();
    let tensors = |key: &str| {
        let tensors = json[key].as_array().unwrap().iter().map(|t| {
            let shape: Vec<usize> = serde_json::from_value(t["shape"].clone()).unwrap();
            let data = t["data"].clone();
            let data: Data = match t["datatype"].as_str().unwrap() {
                "FP32" => {
                    // What is no number is null.
                    let numbers: Vec<Option<f32>> = serde_json::from_value(data).unwrap();
                    numbers.into_iter().map(|x| x.unwrap_or(f32::NAN)).collect::<Vec<_>>().into()
                }
                "FP64" => serde_json::from_value::<Vec<f64>>(data).unwrap().into(),
                "BYTES" => {
                    let texts: Vec<String> = serde_json::from_value(data).unwrap();
                    texts.into_iter().map(String::into_bytes).collect::<Vec<_>>().into()
                }
                "INT64" => serde_json::from_value::<Vec<i64>>(data).unwrap().into(),
                "FP16" => {
                    let numbers: Vec<f32> = serde_json::from_value(data).unwrap();
                    numbers.into_iter().map(half::f16::from_f32).collect::<Vec<_>>().into()
                }
                other => panic!("{name} has {other}"),
            };
            (t["name"].as_str().unwrap().into(), Tensor::new(shape, data).unwrap())
        });
        Tensors::new(tensors.collect()).unwrap()
    };
    (tensors("inputs"), tensors("outputs"))
}

/// `count` rows, taken from the beginning of `tensors` again and again.
fn rows(tensors: &Tensors, count: usize) -> Tensors {
    let single = tensors.clone().split(&vec![1; tensors.rows()]).unwrap();
    Tensors::join(single.iter().cycle().take(count).cloned().collect()).unwrap()
}

fn floats(tensors: &Tensors, name: &str) -> Vec<f32> {
    match tensors.get(name).unwrap_or_else(|| panic!("no output '{name}'")).data() {
        Data::Fp32(v) => v.clone(),
        Data::Fp16(v) => v.iter().map(|x| x.to_f32()).collect(),
        Data::Fp64(v) => v.iter().map(|&x| x as f32).collect(),
        Data::Int64(v) => v.iter().map(|&x| x as f32).collect(),
        other => panic!("'{name}' is {}", other.datatype().name()),
    }
}

fn assert_close(found: &Tensors, expected: &Tensors, tolerance: f32, what: &str) {
    assert_eq!(found.iter().len(), expected.iter().len(), "{what}");
    for (name, tensor) in expected.iter() {
        assert_eq!(found.get(name).unwrap().shape(), tensor.shape(), "{what}: {name}");
        if let Data::Bytes(texts) = tensor.data() {
            assert_eq!(found.get(name).unwrap().data(), &Data::Bytes(texts.clone()), "{what}: {name}");
            continue;
        }
        for (i, (a, b)) in floats(found, name).iter().zip(floats(expected, name)).enumerate() {
            assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{what}: {name}[{i}] is {a}, not {b}");
        }
    }
}

#[test]
fn answers_equal_those_of_onnxruntime_at_every_batch_size() {
    for (name, path) in RECORDED {
        let model = load(path);
        let (inputs, outputs) = record(name);
        for count in [1, 3, inputs.rows(), 7, 128] {
            let batch = model.signature().check(rows(&inputs, count)).unwrap();
            let found = runner(&model).run(batch).unwrap();
            assert!(model.signature().agrees(&found, count), "{name} at {count} rows");
            assert_close(&found, &rows(&outputs, count), TOLERANCE, &format!("{name} at {count} rows"));
        }
    }
}

#[test]
fn a_row_is_answered_in_a_batch_as_it_is_alone() {
    for (name, path) in RECORDED {
        let model = load(path);
        let mut runner = runner(&model);
        let (inputs, _) = record(name);
        let count = inputs.rows();
        let together = runner.run(inputs.clone()).unwrap().split(&vec![1; count]).unwrap();
        for (i, row) in inputs.split(&vec![1; count]).unwrap().into_iter().enumerate() {
            let alone = runner.run(row).unwrap();
            assert_close(&together[i], &alone, 1e-6, &format!("{name}, row {i}"));
        }
    }
}

/// The models of a folder below `tests/models`, with the largest difference to onnxruntime that each may have.
fn zoo(folder: &str) -> Vec<(String, f32)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/models").join(folder);
    let names = std::fs::read_dir(folder).unwrap().filter_map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.strip_suffix(".onnx").map(str::to_owned)
    });
    // float16 has three digits, and onnxruntime rounds at other places.
    let mut zoo: Vec<_> =
        names.map(|name| (name.clone(), if name.ends_with("half") { 2e-2 } else { TOLERANCE })).collect();
    zoo.sort_by(|a, b| a.0.cmp(&b.0));
    zoo
}

#[test]
fn every_architecture_that_people_export_is_answered_as_by_onnxruntime() {
    let zoo = zoo("zoo");
    assert!(zoo.len() > 30, "{} models in the zoo", zoo.len());
    answered_as_recorded("zoo", zoo);
}

#[test]
fn classical_pipelines_with_texts_and_trees_are_answered_as_by_onnxruntime() {
    let pipelines = zoo("pipelines");
    assert!(pipelines.len() > 12, "{} pipelines", pipelines.len());
    answered_as_recorded("pipelines", pipelines);
}

/// Runs each model of a folder at some batch sizes on its recorded rows.
fn answered_as_recorded(folder: &str, models: Vec<(String, f32)>) {
    let mut wrong = Vec::new();
    for (name, tolerance) in models {
        let outcome = std::panic::catch_unwind(|| {
            let model = load(&format!("tests/models/{folder}/{name}.onnx"));
            assert!(model.alone().is_none(), "{name}: {}", model.alone().unwrap());
            let (inputs, outputs) = record(&format!("{folder}/{name}"));
            let mut runner = runner(&model);
            for count in [1, 3, inputs.rows(), 32] {
                let batch = model.signature().check(rows(&inputs, count)).unwrap();
                let found = runner.run(batch).unwrap();
                assert!(model.signature().agrees(&found, count), "{name} at {count} rows");
                assert_close(&found, &rows(&outputs, count), tolerance, &format!("{name} at {count} rows"));
            }
        });
        wrong.extend(outcome.err().map(|_| name));
    }
    assert!(wrong.is_empty(), "wrong: {wrong:?}");
}

/// A request of the pipeline that refuses what it does not know, with one port of another name.
fn strict_request(port: &str) -> Tensors {
    let (inputs, _) = record("pipelines/titanic_strict");
    let entries = inputs.into_entries().into_iter().map(|(name, tensor)| match &*name {
        "port" => {
            let mut ports = vec![b"Cherbourg".to_vec(); tensor.rows()];
            ports[1] = port.as_bytes().to_vec();
            (name, Tensor::new(tensor.shape().to_vec(), ports).unwrap())
        }
        _ => (name, tensor),
    });
    Tensors::new(entries.collect()).unwrap()
}

#[test]
fn a_category_that_a_pipeline_does_not_know_is_refused_to_its_sender_by_name() {
    let model = load("tests/models/pipelines/titanic_strict.onnx");
    let mut runner = runner(&model);
    assert!(runner.may_refuse());
    let ask = |port: &str| model.signature().check(strict_request(port)).unwrap();
    assert!(runner.run(ask("Queenstown")).is_ok());
    let error = runner.run(ask("Rostock")).unwrap_err();
    let RunnerError::Input(reason) = &error else { panic!("{error:?}") };
    assert!(reason.contains("the text 'Rostock' is of no category"), "{reason}");
    assert!(runner.rehearse(ask("Rostock")).is_ok(), "made up rows are not refused");
}

#[test]
fn texts_that_are_not_utf_8_are_refused() {
    let model = load("tests/models/pipelines/ordinal.onnx");
    let bytes = vec![b"male".to_vec(), vec![0xff]];
    let batch = Tensors::one("X", Tensor::new(vec![1, 2], bytes).unwrap());
    let error = runner(&model).run(model.signature().check(batch).unwrap()).unwrap_err();
    assert!(matches!(&error, RunnerError::Input(reason) if reason.contains("is not UTF-8")), "{error:?}");
}

#[test]
fn joined_nodes_answer_as_the_graph_without_them() {
    let outcome = graphs::search(0..2000, 1, |_| ());
    if let Some(finding) = outcome.findings.first() {
        panic!("{finding}");
    }
    // A generator that makes what is refused, or next to nothing, proves nothing.
    assert!(outcome.refused * 20 < outcome.graphs && outcome.nodes > 15 * outcome.graphs, "{outcome:?}");
}

#[test]
fn each_rule_alone_leaves_the_answers_of_every_architecture_as_they_are() {
    let alone = Rule::ALL.map(|rule| vec![rule]);
    for (name, tolerance) in zoo("zoo") {
        let bytes = file(&format!("tests/models/zoo/{name}.onnx"));
        let (inputs, outputs) = record(&format!("zoo/{name}"));
        for rules in [vec![]].iter().chain(&alone) {
            let graph = Graph::load_joined_by(&bytes, rules).unwrap();
            let given = graph.inputs().map(|name| burn_tensor(inputs.get(name).unwrap())).collect();
            let found = graph.run(given).unwrap();
            for (found, name_of) in found.into_iter().zip(graph.outputs()) {
                let expected = floats(&outputs, name_of);
                let found: Vec<f32> = found.iter::<f32>().collect();
                let close = |(a, b): (&f32, &f32)| (a - b).abs() <= tolerance * (1.0 + b.abs());
                assert!(found.len() == expected.len() && found.iter().zip(&expected).all(close), "{name} by {rules:?}");
            }
        }
    }
}

fn burn_tensor(tensor: &Tensor) -> burn::tensor::TensorData {
    let shape = tensor.shape().to_vec();
    match tensor.data() {
        Data::Fp32(v) => burn::tensor::TensorData::new(v.clone(), shape),
        Data::Fp16(v) => burn::tensor::TensorData::new(v.clone(), shape),
        Data::Int64(v) => burn::tensor::TensorData::new(v.clone(), shape),
        other => panic!("rows of {}", other.datatype().name()),
    }
}

#[test]
fn every_number_of_threads_gives_the_same_answers() {
    let model = load("tests/models/lenet.onnx");
    let (inputs, outputs) = record("lenet");
    for threads in [1, 2, 3] {
        // A thread of its own, as in the server: a thread joins a pool once and for ever.
        let (model, inputs) = (model.clone(), inputs.clone());
        let found = std::thread::spawn(move || {
            let mut runner = model.runner(NonZeroUsize::new(threads).unwrap());
            runner.run(inputs.clone()).unwrap();
            runner.run(inputs).unwrap()
        });
        assert_close(&found.join().unwrap(), &outputs, TOLERANCE, &format!("{threads} threads"));
    }
}

#[test]
fn runners_of_different_sizes_share_a_calling_thread() {
    let model = load("tests/models/mlp.onnx");
    let (inputs, outputs) = record("mlp");
    let sizes = [1, 2, 1, 4, 2].map(|n| NonZeroUsize::new(n).unwrap());
    let mut runners = sizes.map(|threads| model.runner(threads));
    for runner in &mut runners {
        assert_close(&runner.run(inputs.clone()).unwrap(), &outputs, TOLERANCE, "mlp");
    }
}

#[test]
fn the_signature_has_the_names_types_and_shapes_of_the_file() {
    let model = load("examples/digits/digits.onnx");
    let signature = model.signature();
    let [input] = &signature.inputs[..] else { panic!("{signature:?}") };
    let [output] = &signature.outputs[..] else { panic!("{signature:?}") };
    assert_eq!((&*input.name, input.datatype, &input.dims[..]), ("pixels", DataType::Fp32, &[Some(64)][..]));
    assert_eq!((&*output.name, output.datatype, &output.dims[..]), ("probabilities", DataType::Fp32, &[Some(10)][..]));

    let model = load("tests/models/two_inputs.onnx");
    let names =
        |specs: &[uncork_model::runner::TensorSpec]| specs.iter().map(|s| s.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&model.signature().inputs), ["a", "b"]);
    assert_eq!(names(&model.signature().outputs), ["sum", "product"]);
}

#[test]
fn a_missing_operator_is_refused_with_its_name_and_node() {
    let error = refusal("tests/models/unsupported.onnx");
    assert_eq!(error.kind(), OnnxErrorKind::Operator);
    let (operator, node) = error.place().unwrap();
    assert_eq!(operator, "com.example::Whiten");
    assert!(!node.is_empty());
    let text = error.to_string();
    assert!(text.starts_with(&format!("operator 'com.example::Whiten' (node '{node}') is not supported")), "{text}");
}

#[test]
fn a_declared_batch_of_one_is_served_at_any_size() {
    let model = load("tests/models/fixed_batch.onnx");
    assert!(model.alone().is_none());
    let (inputs, outputs) = record("fixed_batch");
    for count in [1, 3, 128] {
        let found = runner(&model).run(rows(&inputs, count)).unwrap();
        assert_close(&found, &rows(&outputs, count), TOLERANCE, &format!("{count} rows"));
    }
}

#[test]
fn a_truncated_file_is_refused() {
    let error = refusal("tests/models/truncated.onnx");
    assert_eq!(error.kind(), OnnxErrorKind::Unreadable, "{error:?}");
    for bytes in [&b""[..], b"not a model", b"\x08\x07"] {
        assert_eq!(OnnxModel::load(bytes).unwrap_err().kind(), OnnxErrorKind::Unreadable);
    }
}

#[test]
fn a_batch_that_breaks_the_signature_is_an_error_and_the_runner_lives_on() {
    let model = load("tests/models/mlp.onnx");
    let mut runner = runner(&model);
    let (inputs, outputs) = record("mlp");
    let wrong: BTreeMap<&str, Tensors> = BTreeMap::from([
        ("another width", Tensors::one("x", Tensor::new(vec![2, 63], vec![0f32; 126]).unwrap())),
        ("another type", Tensors::one("x", Tensor::new(vec![2, 64], vec![0i64; 128]).unwrap())),
        ("another rank", Tensors::one("x", Tensor::new(vec![2, 8, 8], vec![0f32; 128]).unwrap())),
        ("another name", Tensors::one("y", Tensor::new(vec![2, 64], vec![0f32; 128]).unwrap())),
    ]);
    for (what, batch) in wrong {
        assert!(runner.run(batch).is_err(), "{what}");
    }
    assert_close(&runner.run(inputs).unwrap(), &outputs, TOLERANCE, "after the errors");
}

/// A small generator of repeatable numbers (xorshift64*).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n
    }
}

/// The model's bytes without most of its weights' positions: a flip there changes a number and nothing else.
fn damaged(bytes: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    match dice.below(4) {
        0 => damaged.truncate(dice.below(bytes.len())),
        1 => {
            let at = dice.below(bytes.len());
            damaged.drain(at..(at + 1 + dice.below(16)).min(bytes.len()));
        }
        _ => {
            for _ in 0..1 + dice.below(4) {
                let at = dice.below(bytes.len());
                damaged[at] ^= 1 << dice.below(8);
            }
        }
    }
    damaged
}

#[test]
fn a_damaged_file_is_an_error_or_a_model_and_never_a_panic() {
    // The structure of these files is a few hundred bytes among the weights, so small models are damaged most often.
    for (path, rounds) in [
        ("tests/models/two_inputs.onnx", 2000),
        ("tests/models/unsupported.onnx", 500),
        ("tests/models/mlp.onnx", 60),
        ("tests/models/lenet.onnx", 60),
        ("examples/digits/digits.onnx", 60),
        ("tests/models/pipelines/titanic_strict.onnx", 300),
        ("tests/models/pipelines/lightgbm_categories.onnx", 300),
        ("tests/models/pipelines/svc_rbf.onnx", 200),
        ("tests/models/pipelines/words_weighed.onnx", 200),
    ] {
        let bytes = file(path);
        for seed in 1..=rounds {
            let damaged = damaged(&bytes, &mut Dice(seed));
            if let Err(error) = OnnxModel::load(&damaged) {
                assert!(!error.to_string().is_empty(), "{path}, seed {seed}");
            }
        }
    }
}
