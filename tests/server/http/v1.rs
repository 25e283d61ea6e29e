//! TensorFlow Serving's REST API and KServe's protocol v1: requests as their documents have them.

use super::*;

const PREDICT: &str = "/v1/models/m:predict";

async fn predict(server: &Running, body: &Value) -> Answer {
    server.ask(Method::POST, PREDICT, Some(body.to_string())).await
}

/// The name, type and row of each tensor of a model whose outputs are its inputs.
struct Echo(Signature);

impl Echo {
    fn spec(name: &str, tensors: &[(&str, DataType, Vec<Option<usize>>)]) -> ModelSpec {
        let specs: Vec<TensorSpec> =
            tensors.iter().map(|(name, datatype, dims)| TensorSpec::new(*name, *datatype, dims.clone())).collect();
        let signature = Signature { inputs: specs.clone(), outputs: specs };
        let source = Source::runners("test", move |_| Ok(Echo(signature.clone())));
        ModelSpec { source, ..stand_in(name, "1", Duration::ZERO) }
    }
}

impl Runner for Echo {
    fn signature(&self) -> &Signature {
        &self.0
    }

    fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
        Ok(batch)
    }
}

/// A model `m` that gives back numbers, texts and rows of two integers.
async fn echo() -> Running {
    let two = vec![Some(2)];
    let tensors =
        [("n", DataType::Fp32, vec![]), ("text", DataType::Bytes, vec![]), ("pair_bytes", DataType::Bytes, two)];
    start(Options::default(), vec![Echo::spec("m", &tensors)]).await
}

#[tokio::test]
async fn rows_are_predictions_and_columns_are_outputs() {
    let server = simple().await;
    // The stand-in answers 2 x + 1.
    let rows = predict(&server, &json!({"instances": [[1.0], [2], [-0.5]]})).await;
    assert_eq!((rows.status, rows.json()), (200, json!({"predictions": [[3.0], [5.0], [0.0]]})));
    assert_eq!(rows.headers["content-type"], "application/json");
    assert!(rows.headers["server-timing"].to_str().unwrap().contains("desc=\"3 rows\""));
    let named =
        predict(&server, &json!({"signature_name": "serving_default", "instances": [{"x": [1]}, {"x": [2]}]})).await;
    assert_eq!((named.status, named.json()), (200, json!({"predictions": [[3.0], [5.0]]})));
    for inputs in [json!([[1], [2]]), json!({"x": [[1], [2]]})] {
        let columns = predict(&server, &json!({ "inputs": inputs })).await;
        assert_eq!((columns.status, columns.json()), (200, json!({"outputs": [[3.0], [5.0]]})), "{inputs}");
    }
    for path in ["/v1/models/m/versions/9:predict", "/v1/models/m%3Apredict"] {
        let answer = server.ask(Method::POST, path, Some(json!({"instances": [[1]]}).to_string())).await;
        assert_eq!((answer.status, answer.json()), (200, json!({"predictions": [[3.0]]})), "{path}");
    }
}

#[tokio::test]
async fn several_inputs_and_outputs_go_by_name_and_byte_strings_in_base64() {
    let server = echo().await;
    let rows = json!([
        {"n": 1.5, "text": "a,]\"", "pair_bytes": [{"b64": "/w=="}, {"b64": "YQ"}]},
        {"text": {"b64": "w7w="}, "pair_bytes": ["b", ""], "n": -2},
    ]);
    let answer = predict(&server, &json!({ "instances": rows })).await;
    let expected = json!([
        {"n": 1.5, "text": "a,]\"", "pair_bytes": [{"b64": "/w=="}, {"b64": "YQ=="}]},
        {"n": -2.0, "text": "ü", "pair_bytes": [{"b64": "Yg=="}, {"b64": ""}]},
    ]);
    assert_eq!((answer.status, answer.json()), (200, json!({ "predictions": expected })));
    let columns = json!({"n": [1, 2], "text": ["x", {"b64": "/w=="}], "pair_bytes": [["a", "b"], ["c", "d"]]});
    let answer = predict(&server, &json!({ "inputs": columns })).await;
    let pairs = json!([[{"b64": "YQ=="}, {"b64": "Yg=="}], [{"b64": "Yw=="}, {"b64": "ZA=="}]]);
    let expected = json!({"n": [1.0, 2.0], "text": ["x", {"b64": "/w=="}], "pair_bytes": pairs});
    assert_eq!((answer.status, answer.json()), (200, json!({ "outputs": expected })));
}

#[tokio::test]
async fn the_only_input_may_be_a_byte_string_in_base64() {
    let server = start(Options::default(), vec![Echo::spec("m", &[("image", DataType::Bytes, vec![])])]).await;
    let answer = predict(&server, &json!({"instances": [{"b64": "YQ=="}, "b"]})).await;
    assert_eq!((answer.status, answer.json()), (200, json!({"predictions": ["a", "b"]})));
    let answer = predict(&server, &json!({"instances": [{"image": {"b64": "YQ=="}}]})).await;
    assert_eq!((answer.status, answer.json()), (200, json!({"predictions": ["a"]})));
}

#[tokio::test]
async fn what_is_no_number_comes_by_its_name_bare_or_quoted() {
    let server = simple().await;
    let bare = "{\"instances\": [[NaN], [-Infinity], [\"Infinity\"], [null]]}".to_owned();
    let answer = server.ask(Method::POST, PREDICT, Some(bare)).await;
    assert_eq!(answer.json(), json!({"predictions": [["NaN"], ["-Infinity"], ["Infinity"], ["NaN"]]}));
}

#[tokio::test]
async fn what_is_wrong_is_said_in_a_sentence_and_harms_nobody_else() {
    let (server, echo) = (simple().await, echo().await);
    let deep = format!("{{\"instances\":{}1{}}}", "[".repeat(50_000), "]".repeat(50_000));
    for (body, words) in [
        ("", "not a predict request"),
        ("[]", "not a predict request"),
        ("{}", "\"instances\" (rows) or \"inputs\" (tensors)"),
        (r#"{"instances":[[1]],"inputs":[[1]]}"#, "not both"),
        (r#"{"instances":{"x":1}}"#, "must be a list of rows"),
        (r#"{"instances":[]}"#, "at least one row"),
        (r#"{"instances":[1]}"#, "input 'x' has shape [1]; this model takes [-1, 1]"),
        (r#"{"instances":[[1],[2,3]]}"#, "input 'x': nested data disagrees with shape [2, 1]"),
        (r#"{"instances":[[1],2]}"#, "input 'x': "),
        (r#"{"instances":[["a"]]}"#, "element 0 (\"a\") is not a number"),
        (r#"{"instances":[[{"b64":"YQ=="}]]}"#, "is not a number"),
        (r#"{"instances":[{"x":[1]},[2]]}"#, "\"instances\": "),
        (r#"{"instances":[{"x":[1]},{"y":[1]}]}"#, "unknown input 'y'; this model takes 'x'"),
        (r#"{"instances":[{"x":[1]},{}]}"#, "row 1 has no value for 1 of the model's inputs"),
        (r#"{"instances":[{"x":[1],"x":[1]}]}"#, "'x' is given twice"),
        (r#"{"instances":[{"x":[1]},{"x":1}]}"#, "input 'x': "),
        (r#"{"inputs":{"y":1}}"#, "unknown input 'y'"),
        (r#"{"inputs":{}}"#, "input 'x' is missing"),
        (r#"{"inputs":1}"#, "input 'x' has shape []"),
        (r#"{"signature_name":"other","instances":[[1]]}"#, "Serving signature name: 'other' not found"),
        (r#"{"instances":[[1]],"parameters":{"timeout":"soon"}}"#, "'timeout'"),
        (&deep, "nested deeper than 32"),
    ] {
        let answer = server.ask(Method::POST, PREDICT, Some(body.to_owned())).await;
        assert_eq!(answer.status, 400, "{body:.100} gave {}", answer.text);
        assert!(answer.error().contains(words), "{body:.100} gave {}", answer.text);
    }
    let answer = echo.ask(Method::POST, PREDICT, Some(r#"{"instances":[1]}"#.into())).await;
    assert!(answer.error().contains("must be an object with the inputs by name: 'n', 'text', 'pair_bytes'"));
    server.assert_unharmed().await;
}

#[tokio::test]
async fn other_verbs_and_unknown_models_are_refused_in_tensorflow_serving_s_words() {
    let server = simple().await;
    let body = || Some(json!({"instances": [[1]]}).to_string());
    for (path, status, words) in [
        ("/v1/models/m:classify", 400, "tf.Example is not served"),
        ("/v1/models/m/versions/9:regress", 400, "tf.Example is not served"),
        ("/v1/models/m:explain", 400, "no explainer"),
        ("/v1/models/m", 400, "asked with :predict"),
        ("/v1/models/m:predict/versions/9", 400, "asked with :predict"),
        ("/v1/models/m:predict/versions/9:predict", 404, "Servable not found for request: Specific(m:predict, 9)"),
        ("/v1/models/nobody:predict", 404, "Servable not found for request: Latest(nobody)"),
        ("/v1/models/m/versions/3:predict", 404, "Servable not found for request: Specific(m, 3)"),
        ("/v1/models/m/labels/canary:predict", 400, "Unrecognized servable version label: 'canary'"),
    ] {
        let answer = server.ask(Method::POST, path, body()).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
        assert!(answer.error().contains(words), "{path}: {}", answer.text);
    }
    let wrong = server.get("/v1/models/m:predict").await;
    assert_eq!((wrong.status, &wrong.headers["allow"]), (405, &"POST".parse().unwrap()));
}

#[tokio::test]
async fn a_model_s_status_is_that_of_both_protocols() {
    let server = simple().await;
    let ok = json!({"error_code": "OK", "error_message": ""});
    let version = |version| json!({"version": version, "state": "AVAILABLE", "status": ok});
    let all = json!({"name": "m", "ready": true, "model_version_status": [version("9"), version("10")]});
    assert_eq!(server.get("/v1/models/m").await.json(), all);
    let one = json!({"name": "m", "ready": true, "model_version_status": [version("9")]});
    assert_eq!(server.get("/v1/models/m/versions/9").await.json(), one);
    assert_eq!(server.get("/v1/models").await.json(), json!({"models": ["m"]}));
    let unknown = server.get("/v1/models/nobody").await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.error().starts_with("Servable not found for request: Latest(nobody)"));
}

#[tokio::test]
async fn metadata_is_a_signature_definition() {
    let server = simple().await;
    let metadata = server.get("/v1/models/m/metadata").await.json();
    assert_eq!(metadata["model_spec"], json!({"name": "m", "signature_name": "", "version": "10"}));
    let signature = &metadata["metadata"]["signature_def"]["signature_def"]["serving_default"];
    let dims = json!([{"size": "-1", "name": ""}, {"size": "1", "name": ""}]);
    let shape = json!({"dim": dims, "unknown_rank": false});
    assert_eq!(signature["inputs"], json!({"x": {"name": "x:0", "dtype": "DT_FLOAT", "tensor_shape": shape}}));
    assert_eq!(signature["method_name"], "tensorflow/serving/predict");
    assert_eq!(server.get("/v1/models/m/versions/9/metadata").await.json()["model_spec"]["version"], "9");
}

#[tokio::test]
async fn a_program_hears_that_the_server_is_alive_and_a_browser_gets_the_page() {
    let server = simple().await;
    for accept in ["*/*", "application/json"] {
        let answer = server.send(Request::get("/").header("accept", accept), None).await;
        assert_eq!((answer.status, answer.json()), (200, json!({"status": "alive"})), "{accept}");
        assert_eq!(answer.headers["vary"], "accept");
    }
    let accept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    let page = server.send(Request::get("/").header("accept", accept), None).await;
    assert_eq!((page.status, &page.headers["content-type"]), (200, &"text/html; charset=utf-8".parse().unwrap()));
    assert_eq!(page.headers["vary"], "accept");
}

#[tokio::test]
async fn bodies_come_compressed_within_the_bounds_and_deadlines_hold() {
    let options = Options { max_answer_bytes: 2048, max_body_bytes: 4096, ..Options::default() };
    let server = with_room_for_rows(options).await;
    let packed = |body: &str| {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packer, body.as_bytes()).unwrap();
        packer.finish().unwrap()
    };
    let rows = |n: usize| json!({ "instances": vec![[1]; n] }).to_string();
    let (head, body) = server.post_bytes(PREDICT, "Content-Encoding: gzip\r\n", &packed(&rows(2))).await;
    assert!(head.starts_with("HTTP/1.1 200") && body == b"{\"predictions\":[[3.0],[3.0]]}", "{head}");
    let (head, _) = server.post_bytes(PREDICT, "Content-Encoding: gzip\r\n", &packed(&rows(2000))).await;
    assert!(head.starts_with("HTTP/1.1 413"), "{head}");
    let large = server.ask(Method::POST, PREDICT, Some(rows(500))).await;
    assert!(large.status == 413 && large.error().contains("the answer could take"), "{}", large.text);
    let late = start(Options::default(), vec![stand_in("m", "1", Duration::from_millis(50))]).await;
    let answer = predict(&late, &json!({"instances": [[1]], "parameters": {"timeout": 1000}})).await;
    assert!(answer.status == 503 && answer.error().starts_with("refused"), "{}", answer.text);
}
