//! The trained network, alone and served.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside what clippy takes for one")]

use std::f64::consts::TAU;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::oneshot;
use uncork::burn::tensor::Device as BurnDevice;
use uncork::onnx::device;
use uncork::onnx::module::ModuleModel;
use uncork::registry::{Caps, ModelSpec, Registry};
use uncork::runner::{Device, Runner};
use uncork::server::{Options, Server};
use uncork::tensor::{Data, Tensor, Tensors};

use super::spirals::Spirals;

const ONE: NonZeroUsize = NonZeroUsize::MIN;
const CAPS: Caps = Caps::new(Duration::from_secs(20), 64);

fn example(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/module").join(file)
}

fn device() -> BurnDevice {
    device::open(Device::Flex).unwrap()
}

fn trained() -> Spirals {
    Spirals::load(&example("spirals.safetensors"), &device()).unwrap()
}

fn tensors(name: &str, width: usize, data: impl Into<Data>) -> Tensors {
    let data = data.into();
    Tensors::one(name, Tensor::new(vec![data.len() / width, width], data).unwrap())
}

fn floats(outputs: &Tensors, name: &str) -> Vec<f32> {
    let Data::Fp32(floats) = outputs.get(name).unwrap().data() else { panic!("{name} is FP32") };
    floats.clone()
}

/// `count` points on spiral `k`, which turns once on its way out to radius 1, and their spiral.
fn points_on(k: usize, count: usize) -> Vec<f32> {
    let radius = |i: usize| 0.1 + 0.9 * i as f64 / (count - 1) as f64;
    let point = |radius: f64| {
        let angle = TAU * (radius + k as f64 / 3.0);
        [(radius * angle.cos()) as f32, (radius * angle.sin()) as f32]
    };
    (0..count).flat_map(|i| point(radius(i))).collect()
}

fn most_probable(probabilities: &[f32]) -> usize {
    (0..probabilities.len()).max_by(|&a, &b| probabilities[a].total_cmp(&probabilities[b])).unwrap()
}

#[test]
fn the_example_knows_on_which_spiral_a_point_lies() {
    let mut runner = trained().into_model(&device()).runner(ONE);
    for spiral in 0..3 {
        let outputs = runner.run(tensors("points", 2, points_on(spiral, 200))).unwrap();
        let answers = floats(&outputs, "probabilities");
        let right = answers.chunks(3).filter(|p| most_probable(p) == spiral).count();
        assert_eq!((answers.len(), right), (600, 200), "spiral {spiral}");
    }
}

#[test]
fn the_example_answers_as_pytorch_does() {
    let answers: Value = serde_json::from_str(&fs::read_to_string(example("answers.json")).unwrap()).unwrap();
    let numbers = |key: &str| -> Vec<f32> {
        let rows = answers[key].as_array().unwrap().iter();
        rows.flat_map(|row| row.as_array().unwrap()).map(|x| x.as_f64().unwrap() as f32).collect()
    };
    let mut runner = trained().into_model(&device()).runner(ONE);
    let outputs = runner.run(tensors("points", 2, numbers("points"))).unwrap();
    let (ours, theirs) = (floats(&outputs, "probabilities"), numbers("probabilities"));
    let far = |(a, b): &(&f32, &f32)| (*a - *b).abs() > 1e-5;
    assert_eq!(ours.iter().zip(&theirs).find(far), None);
    assert_eq!(ours.len(), theirs.len());
}

async fn ask(address: SocketAddr, request: String) -> String {
    let talk = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    tokio::task::spawn_blocking(talk).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_module_is_served_over_http_under_its_caps() {
    let spec = ModelSpec::new("spirals", trained().into_model(&device()), CAPS);
    let registry = tokio::task::spawn_blocking(|| Registry::load(vec![spec])).await.unwrap().unwrap();
    let server = Server::bind("127.0.0.1:0", Options::default()).await.unwrap();
    let address = server.address();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.serve(registry, async { drop(stopped.await) }));

    let metadata = ask(address, "GET /v2/models/spirals HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".into()).await;
    assert!(metadata.contains(r#""platform":"burn""#), "{metadata}");

    // More rows than a batch may have: split, and answered in order.
    let points: Vec<f32> = (0..3).flat_map(|spiral| points_on(spiral, 50)).collect();
    let input = json!({"name": "points", "shape": [150, 2], "datatype": "FP32", "data": points});
    let body = json!({ "inputs": [input] }).to_string();
    let head = "POST /v2/models/spirals/infer HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";
    let answer = ask(address, format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).await;
    let answer: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let answers = answer["outputs"][0]["data"].as_array().unwrap();
    let answers: Vec<f32> = answers.iter().map(|p| p.as_f64().unwrap() as f32).collect();
    let spirals: Vec<usize> = answers.chunks(3).map(most_probable).collect();
    assert_eq!(spirals, [[0; 50], [1; 50], [2; 50]].concat());

    stop.send(()).unwrap();
    serving.await.unwrap();
}

#[tokio::test]
async fn a_module_that_fails_on_its_first_rows_is_refused_when_it_is_loaded() {
    let signature = trained().into_model(&device()).signature().clone();
    let model = ModuleModel::new(signature, &device(), |_| panic!("no weights"));
    let error = Registry::load(vec![ModelSpec::new("spirals", model, CAPS)]).unwrap_err().to_string();
    assert!(error.starts_with("model 'spirals': a batch of one row failed: panicked"), "{error}");
}
