//! Each request is answered as its file answers that very request: whole where rows influence each other, where the file
//! reduces over what could be rows, where values decide the form of an answer, and where inputs have no common rows.

use std::path::{Path, PathBuf};

use super::*;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models").join(name)
}

fn model(name: &str, path: PathBuf) -> ModelSpec {
    ModelSpec { source: Source::Onnx(path), ..stand_in(name, "1", Duration::ZERO) }
}

fn floats(tensor: &Value) -> Vec<f64> {
    tensor["data"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

/// The files of `tests/models/whole.py`, by name, each with its requests and onnxruntime's answers.
fn files() -> Vec<(String, Vec<Value>)> {
    let folder = std::fs::read_dir(file("whole")).unwrap();
    let names =
        folder.filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".onnx").map(str::to_owned));
    let read = |name: String| {
        let cases = std::fs::read(file(&format!("whole/{name}.json"))).unwrap();
        (name, serde_json::from_slice(&cases).unwrap())
    };
    let files: Vec<_> = names.map(read).collect();
    assert!(files.len() >= 10, "{files:?}");
    files
}

#[tokio::test]
async fn each_request_gets_the_file_s_own_answer() {
    let files = files();
    let specs = files.iter().map(|(name, _)| model(name, file(&format!("whole/{name}.onnx")))).collect();
    let server = start(Options::default(), specs).await;
    // In both orders: an answer of another form changes how later requests are run, and not what they are answered.
    for is_backwards in [false, true] {
        for (name, cases) in &files {
            for i in 0..cases.len() {
                let case = &cases[if is_backwards { cases.len() - 1 - i } else { i }];
                let path = format!("/v2/models/{name}/infer");
                let answer = server.ask(Method::POST, &path, Some(json!({"inputs": case["inputs"]}).to_string())).await;
                assert_eq!(answer.status, 200, "{name}: {}", answer.text);
                let (found, expected) = (answer.json(), case["outputs"].as_array().unwrap());
                for (found, expected) in found["outputs"].as_array().unwrap().iter().zip(expected) {
                    assert_eq!(found["shape"], expected["shape"], "{name}: {case}");
                    let far = floats(found).iter().zip(floats(expected)).any(|(a, b)| (a - b).abs() > 1e-5);
                    assert!(!far, "{name}: {found} is not {expected}");
                }
            }
        }
    }
}

#[tokio::test]
async fn requests_of_several_clients_at_once_do_not_meet_in_a_file_that_mixes_rows() {
    let server = start(Options::default(), vec![model("centred", file("whole/centred.onnx"))]).await;
    let server = &server;
    let ask = |rows: usize| async move {
        let x: Vec<f64> = (0..2 * rows).map(|i| (rows * 10 + i) as f64).collect();
        let inputs = json!([{"name": "x", "datatype": "FP32", "shape": [rows, 2], "data": x}]);
        server.ask(Method::POST, "/v2/models/centred/infer", Some(json!({ "inputs": inputs }).to_string())).await
    };
    let answers = futures_util::future::join_all([1, 3, 1, 3, 5, 3].map(ask)).await;
    for (answer, rows) in answers.iter().zip([1usize, 3, 1, 3, 5, 3]) {
        let centred: Vec<f64> = (0..rows).flat_map(|row| [2.0 * row as f64 - (rows - 1) as f64; 2]).collect();
        assert_eq!((answer.status, floats(&answer.json()["outputs"][0])), (200, centred), "{rows} rows");
    }
}

#[tokio::test]
async fn metadata_and_answers_say_how_rows_are_run() {
    let specs = vec![
        model("batched", file("mlp.onnx")),
        model("whole", file("whole/similarity.onnx")),
        model("single", file("whole/single_row.onnx")),
    ];
    let server = start(Options::default(), specs).await;
    for (name, rows) in [("batched", Value::Null), ("whole", json!("whole")), ("single", json!("one by one"))] {
        let metadata = server.ask(Method::GET, &format!("/v2/models/{name}"), None).await.json();
        assert_eq!(metadata["parameters"]["rows"], rows, "{metadata}");
        let config = server.ask(Method::GET, &format!("/v2/models/{name}/config"), None).await.json();
        let told = rows.as_str().unwrap_or("batched");
        assert_eq!(config["parameters"]["rows"]["string_value"], told, "{config}");
    }
    let metadata = server.ask(Method::GET, "/v2/models/single", None).await.json();
    let input = &metadata["inputs"][0];
    let width = input["shape"][1].as_u64().unwrap() as usize;
    for (rows, told) in [(1, Value::Null), (2, json!("one by one"))] {
        let data = vec![0.5; rows * width];
        let given = json!([{"name": input["name"], "datatype": "FP32", "shape": [rows, width], "data": data}]);
        let body = json!({ "inputs": given }).to_string();
        let answer = server.ask(Method::POST, "/v2/models/single/infer", Some(body)).await;
        assert_eq!((answer.status, &answer.json()["parameters"]["rows"]), (200, &told), "{}", answer.text);
        let body = json!({ "instances": vec![vec![0.5; width]; rows] }).to_string();
        let answer = server.ask(Method::POST, "/v1/models/single:predict", Some(body)).await;
        let header = answer.headers.get("x-uncork-rows").map(|value| value.to_str().unwrap().to_owned());
        assert_eq!((answer.status, header.as_deref()), (200, told.as_str()), "{}", answer.text);
    }
}
