//! A burn module of one's own as a model: the example's trained network, alone and served.

#[path = "../../examples/module/spirals.rs"]
mod spirals;

use std::f64::consts::TAU;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::folder::Folder;
use serde_json::{Value, json};
use spirals::Spirals;
use tokio::sync::oneshot;
use uncork::burn::tensor::{Bool, Device as BurnDevice, Int, Tensor as BurnTensor};
use uncork::burn_store::{BurnpackStore, ModuleSnapshot};
use uncork::onnx::device;
use uncork::onnx::module::{ModuleModel, Outputs};
use uncork::registry::{Caps, ModelSpec, Registry};
use uncork::runner::{Device, Runner, RunnerError, Signature, TensorSpec};
use uncork::server::{Options, Server};
use uncork::tensor::{Data, DataType, Tensor, Tensors};

const ONE: NonZeroUsize = NonZeroUsize::MIN;
const CAPS: Caps = Caps { max_latency: Duration::from_secs(20), max_batch: 64 };

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

#[test]
fn weights_come_from_burnpack_files_too_and_all_must_be_there() {
    let folder = Folder::new();
    let path = folder.path().join("spirals.bpk");
    trained().save_into(&mut BurnpackStore::from_file(&path)).unwrap();
    let mut copy = Spirals::new(&device());
    copy.load_from(&mut BurnpackStore::from_file(&path)).unwrap();
    let points = || tensors("points", 2, points_on(1, 50));
    let answer = |network: Spirals| network.into_model(&device()).runner(ONE).run(points()).unwrap();
    assert_eq!(answer(copy), answer(trained()));

    let nothing = folder.path().join("none.safetensors");
    assert!(Spirals::load(&nothing, &device()).is_err());
    let header = b"{}";
    fs::write(&nothing, [&(header.len() as u64).to_le_bytes()[..], header].concat()).unwrap();
    let error = Spirals::load(&nothing, &device()).map(drop).unwrap_err().to_string();
    assert!(error.contains("first.weight"), "{error}");
}

/// A model with an input `ids` INT64 [-1, 3], and outputs `sum` INT64 [-1, 1] and `positive` BOOL [-1, 3].
fn sums(forward: impl Fn(BurnTensor<2, Int>) -> Outputs + Send + Sync + 'static) -> ModuleModel {
    let spec = |name: &str, datatype, width| TensorSpec::new(name, datatype, vec![Some(width)]);
    let signature = Signature {
        inputs: vec![spec("ids", DataType::Int64, 3)],
        outputs: vec![spec("sum", DataType::Int64, 1), spec("positive", DataType::Bool, 3)],
    };
    ModuleModel::new(signature, &device(), move |mut inputs| {
        assert_eq!(inputs.rows(), 2);
        Ok(forward(inputs.take("ids")?))
    })
}

fn run_sums(model: &ModuleModel) -> Result<Tensors, RunnerError> {
    model.runner(ONE).run(tensors("ids", 3, vec![1i64, 2, 3, -4, 5, 6]))
}

#[test]
fn kinds_of_inputs_and_outputs_may_differ_and_outputs_come_in_the_order_of_the_signature() {
    let model = sums(|ids| {
        let positive: BurnTensor<2, Bool> = ids.clone().greater_elem(0);
        Outputs::one("positive", positive).and("sum", ids.sum_dim(1))
    });
    let outputs = run_sums(&model).unwrap();
    assert!(model.signature().agrees(&outputs, 2), "{outputs:?}");
    assert_eq!(outputs.get("sum").unwrap().data(), &Data::Int64(vec![6, 7]));
    assert_eq!(outputs.get("positive").unwrap().data(), &Data::Bool(vec![true, true, true, false, true, true]));
}

#[test]
fn a_number_that_the_device_cannot_hold_is_an_error_and_not_another_number() {
    let model = sums(|ids| Outputs::one("positive", ids.clone().greater_elem(0)).and("sum", ids.sum_dim(1)));
    let outputs = model.runner(ONE).run(tensors("ids", 3, vec![1i64 << 40, 0, 0, 1, 2, 3]));
    let sum = outputs.map(|found| found.get("sum").unwrap().data().clone());
    assert!(sum.is_err() || sum == Ok(Data::Int64(vec![1 << 40, 6])), "{sum:?}");
}

#[test]
fn what_a_closure_does_wrong_fails_the_batch_and_says_what_it_was() {
    let without = sums(|ids| Outputs::one("sum", ids.sum_dim(1)));
    assert_eq!(run_sums(&without).unwrap_err().to_string(), "the closure gives no output 'positive'");
    let panicking = sums(|ids| Outputs::one("sum", ids.reshape([17, 4])));
    assert!(run_sums(&panicking).unwrap_err().to_string().starts_with("panicked: "));

    let taking = |axes_and_name: fn(&mut uncork::onnx::module::Inputs<'_>) -> Result<(), RunnerError>| {
        let signature = sums(|_| unreachable!()).signature().clone();
        let model = ModuleModel::new(signature, &device(), move |mut inputs| {
            axes_and_name(&mut inputs).map(|()| Outputs::one("sum", BurnTensor::<1>::ones([1], inputs.device())))
        });
        run_sums(&model).unwrap_err().to_string()
    };
    assert_eq!(
        taking(|inputs| inputs.take::<3, Int>("ids").map(drop)),
        "input 'ids' has 2 axes, batch included, and is taken with 3"
    );
    let unknown = "there is no input 'id', or it is taken already";
    assert_eq!(taking(|inputs| inputs.take::<2, Int>("id").map(drop)), unknown);
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
    let model = sums(|_| panic!("no weights"));
    let error = Registry::load(vec![ModelSpec::new("sums", model, CAPS)]).unwrap_err().to_string();
    assert!(error.starts_with("model 'sums': a batch of 1 equal rows failed: panicked"), "{error}");
}
