//! Models on other servers: good ones, and such that refuse, break off, say nothing, or answer nonsense.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use uncork::error::{Error, Outcome, Shed};
use uncork::opaque;
use uncork::registry::{Caps, Model, ModelSpec, Registry, Source, Terms, Window};
use uncork::tensor::{Data, Tensor, Tensors};
use uncork::upstream::{Address, Settings, Token};

/// Far longer than anything here takes: a wait that reaches it has failed.
const HANGS: Duration = Duration::from_secs(20);

/// What a stand-in does with a request.
enum Reply {
    Answer(u16, Value),
    /// It closes the connection.
    Nothing,
}

type Replies = Arc<dyn Fn(&Asked) -> Reply + Send + Sync>;

/// A request as a stand-in reads it.
struct Asked {
    /// Method and path.
    line: String,
    authorization: String,
    body: Value,
}

/// A server on a free port, until the runtime ends. Requests for a model's health and description are answered as the model
/// `m` with the input x and the output y of one number each; all others by `replies`.
async fn stand_in(replies: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let replies: Replies = Arc::new(replies);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(stream, Arc::clone(&replies)));
        }
    });
    address
}

async fn serve(stream: TcpStream, replies: Replies) {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut line, mut length, mut authorization) = (String::new(), 0, String::new());
        if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).await.unwrap();
            match header.trim().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(("authorization", value)) => authorization = value.to_owned(),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let line = line.trim_end_matches(" HTTP/1.1\r\n").to_owned();
        let tensor = |name: &str| json!([{"name": name, "datatype": "FP32", "shape": [-1]}]);
        let reply = match line.as_str() {
            "GET /v2" => Reply::Answer(200, json!({"name": "stand-in"})),
            "GET /v2/models/m" => Reply::Answer(200, json!({"inputs": tensor("x"), "outputs": tensor("y")})),
            line if line.starts_with("GET ") => Reply::Answer(200, json!({})),
            _ => replies(&Asked { line, authorization, body: serde_json::from_slice(&body).unwrap() }),
        };
        let Reply::Answer(status, body) = reply else { return };
        let body = body.to_string();
        let answer = format!("HTTP/1.1 {status} Status\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

/// Twice each number.
fn doubled(asked: &Asked) -> Reply {
    let numbers = asked.body["inputs"][0]["data"].as_array().unwrap();
    let data: Vec<f64> = numbers.iter().map(|x| 2.0 * x.as_f64().unwrap()).collect();
    Reply::Answer(200, json!({"outputs": [{"name": "y", "datatype": "FP32", "shape": [data.len()], "data": data}]}))
}

/// The model of these servers.
async fn model(settings: Settings, runners: usize) -> Arc<Model> {
    let caps = Caps::new(Duration::from_secs(10), 64);
    let mut spec = ModelSpec::new("m", Source::Upstream(settings), caps);
    spec.runners = runners.try_into().unwrap();
    let loaded = tokio::task::spawn_blocking(|| Registry::load(vec![spec])).await.unwrap();
    loaded.unwrap().model("m", None).unwrap()
}

fn at(servers: &[SocketAddr], path: &str) -> Settings {
    let address = |server| Address::parse(&format!("http://{server}{path}"), "m").unwrap();
    Settings::new(servers.iter().map(address).collect())
}

async fn ask(model: &Model, x: f32) -> Result<f32, Error> {
    let inputs = Tensors::one("x", Tensor::new(vec![1], vec![x]).unwrap());
    let answer = tokio::time::timeout(HANGS, model.infer(inputs, Terms::now())).await.expect("it answers");
    answer.map(|answer| match answer.outputs.get("y").unwrap().data() {
        Data::Fp32(y) => y[0],
        other => panic!("{other:?}"),
    })
}

#[tokio::test]
async fn batches_go_out_as_one_request_with_the_token_and_answers_are_split() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let server = stand_in(move |asked| {
        told.lock().unwrap().push((asked.line.clone(), asked.authorization.clone()));
        doubled(asked)
    })
    .await;
    let model = model(Settings { token: Token::new("key"), ..at(&[server], "") }, 1).await;
    let answers = futures_util::future::join_all((0..200).map(|i| ask(&model, i as f32))).await;
    let expected: Vec<_> = (0..200).map(|i| Ok(2.0 * i as f32)).collect();
    assert_eq!(answers, expected);
    let seen = seen.lock().unwrap();
    assert!(seen.iter().all(|one| *one == ("POST /v2/models/m/infer".to_owned(), "Bearer key".to_owned())), "{seen:?}");
    assert!(seen.len() < 100, "200 requests came in {} batches", seen.len());
}

#[tokio::test]
async fn who_sends_a_bad_row_is_told_the_servers_words_and_nobody_else_is() {
    for (status, told) in [(400, true), (500, false)] {
        let server =
            stand_in(move |asked| match asked.body["inputs"][0]["data"].as_array().unwrap().contains(&json!(13.0)) {
                true => Reply::Answer(status, json!({"error": "thirteen is no number"})),
                false => doubled(asked),
            })
            .await;
        let model = model(at(&[server], "/v2/models/m"), 1).await;
        let answers = futures_util::future::join_all((0..40).map(|i| ask(&model, i as f32))).await;
        for (i, answer) in answers.into_iter().enumerate() {
            match (i, answer) {
                (13, Err(Error::Invalid(why))) => assert!(told && why.ends_with("thirteen is no number"), "{why}"),
                (13, answer) => assert!(!told && answer == Err(Error::ModelFailed), "{answer:?}"),
                (i, answer) => assert_eq!(answer, Ok(2.0 * i as f32)),
            }
        }
    }
}

#[tokio::test]
async fn a_server_without_room_gets_no_batch_that_another_can_take() {
    let full = stand_in(|_| Reply::Answer(503, json!({"error": "full"}))).await;
    let free = stand_in(doubled).await;
    let model = model(at(&[full, free], ""), 2).await;
    for i in 0..20 {
        assert_eq!(ask(&model, i as f32).await, Ok(2.0 * i as f32));
    }
}

#[tokio::test]
async fn a_server_that_breaks_off_loses_one_batch_and_is_back_when_it_is_well() {
    let broken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&broken);
    // The first batches are the warm-up's.
    let server = stand_in(move |asked| match asked.body["inputs"][0]["data"][0] == json!(7.0) {
        true if count.fetch_add(1, Ordering::SeqCst) == 0 => Reply::Nothing,
        _ => doubled(asked),
    })
    .await;
    let model = model(at(&[server], ""), 1).await;
    assert_eq!(ask(&model, 7.0).await, Err(Error::ModelFailed));
    let well = async {
        loop {
            match ask(&model, 7.0).await {
                Err(Error::Absent) => tokio::task::yield_now().await,
                answer => return answer,
            }
        }
    };
    assert_eq!(tokio::time::timeout(HANGS, well).await.expect("it comes back"), Ok(14.0));
    assert_eq!(broken.load(Ordering::SeqCst), 2);
}

/// Its requests were counted as shed without a reason, and its page had them answered on time.
#[tokio::test]
async fn requests_for_a_server_that_is_not_there_are_refused_for_that_reason_and_answered_by_nobody() {
    let is_gone = Arc::new(AtomicUsize::new(0));
    let gone = Arc::clone(&is_gone);
    let server = stand_in(move |asked| match gone.load(Ordering::SeqCst) {
        0 => doubled(asked),
        _ => Reply::Answer(503, json!({"error": "full"})),
    })
    .await;
    let model = model(at(&[server], ""), 1).await;
    assert_eq!(ask(&model, 1.0).await, Ok(2.0));
    is_gone.store(1, Ordering::SeqCst);
    for _ in 0..4 {
        assert_eq!(ask(&model, 1.0).await, Err(Error::Absent));
    }
    let of = |wanted: Outcome| model.totals().into_iter().find(|(outcome, _)| *outcome == wanted).map(|(_, n)| n);
    assert_eq!((of(Outcome::OnTime), of(Outcome::Shed)), (Some(1), Some(4)));
    let told = model.snapshot(Window::TwoMinutes);
    let reasons: Vec<_> = told.refusals.iter().map(|(_, refusal)| refusal.reason).collect();
    assert!(!reasons.is_empty() && reasons.iter().all(|reason| *reason == Shed::Absent), "{reasons:?}");
    assert_eq!(told.refusals.iter().map(|(_, refusal)| refusal.requests).sum::<usize>(), 4);
    assert_eq!(told.refusals[0].1.told, Some(Error::Absent));
    assert_eq!(told.columns.iter().map(|column| column.refused).sum::<u32>(), 4);
    assert_eq!(told.columns.iter().map(|column| column.on_time + column.late).sum::<u32>(), 1);
}

#[tokio::test]
async fn documents_are_a_list_and_each_gets_its_own_answer() {
    for (path, line) in [("/v1/models/m", "POST /v1/models/m:predict"), ("/score", "POST /score")] {
        let server = stand_in(move |asked| {
            assert_eq!(asked.line, line);
            let (rows, is_list) = match &asked.body["instances"] {
                Value::Array(rows) => (rows.clone(), false),
                _ => (asked.body.as_array().unwrap().clone(), true),
            };
            let answers: Vec<_> = rows.iter().map(|row| json!({"of": row["id"]})).collect();
            Reply::Answer(200, if is_list { json!(answers) } else { json!({"predictions": answers}) })
        })
        .await;
        let model = model(at(&[server], path), 1).await;
        let one = |i: usize| {
            let body = if i == 3 { "{".to_owned() } else { json!({"id": i}).to_string() };
            let element = opaque::encode(&opaque::RequestHead::default(), body.as_bytes());
            let request = Tensor::new(vec![1], Data::Bytes(vec![element])).unwrap();
            model.infer(Tensors::one(opaque::REQUEST, request), Terms::now())
        };
        for (i, answer) in futures_util::future::join_all((0..20).map(one)).await.into_iter().enumerate() {
            if i == 3 {
                let Err(Error::Invalid(why)) = answer else { panic!("{answer:?}") };
                assert!(why.starts_with("the body must be one JSON document: "), "{why}");
                continue;
            }
            let outputs = answer.unwrap().outputs;
            let element = &opaque::elements(outputs.get(opaque::ANSWER).unwrap().data())[0];
            let (_, body) = opaque::decode::<opaque::AnswerHead<'_>>(element).unwrap();
            assert_eq!(serde_json::from_slice::<Value>(body).unwrap(), json!({"of": i}));
        }
    }
}

#[tokio::test]
async fn a_model_whose_servers_are_not_there_is_not_loaded_and_the_reason_says_where() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let settings = Settings { start_timeout: Duration::from_millis(1), ..at(&[gone], "") };
    let spec = ModelSpec::new("m", Source::Upstream(settings), Caps::new(Duration::from_secs(1), 8));
    let error = tokio::task::spawn_blocking(|| Registry::load(vec![spec])).await.unwrap().unwrap_err().to_string();
    assert!(
        error
            .starts_with(&format!("model 'm': no upstream server is ready: http://{gone}/v2/models/m: cannot connect")),
        "{error}"
    );
}
