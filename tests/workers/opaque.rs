//! Any body in, any answer out, over HTTP.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use uncork::registry::Registry;
use uncork::server::{Ended, Options, Server};

use super::{model, program};

/// A server, and how to stop it.
pub(crate) struct Served {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Ended>,
}

impl Served {
    pub(crate) async fn start(registry: Registry) -> Served {
        let server = Server::bind("127.0.0.1:0", Options::default()).await.unwrap();
        let url = server.urls().next().unwrap();
        let address = url.strip_prefix("http://").unwrap().parse().unwrap();
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(server.serve(registry, async {
            let _ = stopped.await;
        }));
        Served { address, stop, serving }
    }

    /// Head and body of the answer.
    pub(crate) async fn ask(&self, method: &str, path: &str, head: &str, body: &str) -> (String, String) {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{head}\r\n{body}"
        );
        let answer = self.said(&request).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    /// All that the server says to one that closes.
    async fn said(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> (u16, String) {
        let (head, body) = self.ask("POST", path, "", body).await;
        (head[9..12].parse().unwrap(), body)
    }

    pub(crate) async fn end(self) {
        let _ = self.stop.send(());
        assert_eq!(self.serving.await.unwrap(), Ended::Drained);
    }
}

#[tokio::test]
async fn any_body_goes_to_the_worker_with_its_head_and_any_answer_comes_back() {
    let served = Served::start(Registry::load(vec![model(program(&["opaque"]))]).unwrap()).await;
    for path in ["/models/m", "/models/m/versions/1"] {
        let (head, body) = served.ask("POST", path, "", "\u{fc} & \0").await;
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("content-type: text/plain"), "{head}");
        assert!(head.contains("server-timing: queue;dur="), "{head}");
        assert!(body.ends_with(":\u{fc} & \0"), "{body}");
    }
    let secret = "Content-Type: text/x\r\nX-Name: a \"name\"\r\nAuthorization: Bearer secret\r\nX-Request-Id: abc\r\n";
    let (_, body) = served.ask("POST", "/models/m?a=b%20c&timeout=9000000", secret, "head").await;
    let (_, json) = (0, body);
    for part in ["\"text/x\"", "a=b%20c", "x-name", "a \\\"name\\\"", "\"request_id\": \"abc\""] {
        assert!(json.contains(part), "{part} in {json}");
    }
    assert!(!json.contains("secret"), "{json}");
    served.end().await;
}

/// The head without what belongs to one answer alone, and the body.
fn comparable(answer: &str) -> (Vec<String>, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let own = ["connection:", "date:", "server-timing:", "x-request-id:"];
    let lines = head.lines().filter(|line| !own.iter().any(|own| line.starts_with(own)));
    let mut lines: Vec<_> = lines.map(str::to_owned).collect();
    lines.sort();
    (lines, body.to_owned())
}

#[tokio::test]
async fn a_request_that_is_answered_without_hyper_is_answered_as_the_others_are() {
    let served = Served::start(Registry::load(vec![model(program(&["opaque"]))]).unwrap()).await;
    let mut plain = TcpStream::connect(served.address).await.unwrap();
    let headers = "X-Name: a \"name\"\r\nX-Name: \u{e9}\r\nContent-Type: text/x\r\nCookie: secret\r\nAuthorization: Bearer secret\r\n";
    for (path, headers, body) in [
        ("/models/m", "", "json"),
        ("/models/m/versions/1?a=b%20c&timeout=9000000", headers, "head"),
        ("/models/m?timeout=soon", headers, "head"),
        ("/models/m/versions/2", "", "json"),
        ("/models/none", "", "json"),
        ("/models/m", "", "{\"instances\": [7, [8]]}"),
        ("/models/m", "", "{\"instances\": []}"),
        ("/models/m", "", "\"numbers\""),
        ("/models/m", "", "status 201"),
        ("/models/m", "", "status 204"),
        ("/models/m", "", "status 422"),
        ("/models/m", "", "status 500"),
        ("/models/m", "", "words 422"),
        ("/models/m", "", "words 500"),
    ] {
        let ask = |more: &str| {
            let length = body.len();
            format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{headers}{more}\r\n{body}")
        };
        let by_hyper = served.said(&ask("Connection: close\r\n")).await;
        plain.write_all(ask("").as_bytes()).await.unwrap();
        let (mut bytes, mut end) = (Vec::new(), None);
        // Without a length there is no body.
        while end.is_none_or(|end| bytes.len() < end) {
            assert_ne!(plain.read_buf(&mut bytes).await.unwrap(), 0, "it closes behind {path} {body}");
            let text = String::from_utf8_lossy(&bytes);
            end = text.find("\r\n\r\n").map(|head| {
                let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
                head + 4 + length.map_or(0, |length| length.parse::<usize>().unwrap())
            });
        }
        let (by_hyper, plainly) = (comparable(&by_hyper), comparable(&String::from_utf8(bytes).unwrap()));
        let same = |(head, body): (Vec<String>, String)| {
            // The worker's words name a request, its length and its connection.
            let mut said: serde_json::Value = serde_json::from_str(&body).unwrap_or(body.into());
            if let Some(heads) = said.get_mut("headers").and_then(|headers| headers.as_array_mut()) {
                assert!(!heads.is_empty());
                heads.retain(|pair| pair[0] != "connection");
                heads.sort_by_key(|pair| pair[0].to_string());
                said["request_id"] = "".into();
                return (head.into_iter().filter(|line| !line.starts_with("content-length")).collect(), said);
            }
            (head, said)
        };
        assert_eq!(same(plainly), same(by_hyper), "{path} {body}");
    }
    served.end().await;
}

#[tokio::test]
async fn instances_are_rows_and_answered_as_predictions() {
    let served = Served::start(Registry::load(vec![model(program(&["opaque"]))]).unwrap()).await;
    // Each of these bodies is the JSON text "json" with its quotes, which the worker answers in plain text.
    let (status, body) = served.post("/models/m", "{\"instances\": [1, {\"a\": 2}]}").await;
    assert_eq!(status, 400, "{body}");
    assert!(body.contains("is not JSON"), "{body}");
    let (status, body) = served.post("/models/m", "{\"instances\": []}").await;
    assert_eq!((status, body.as_str()), (400, r#"{"error":"'instances' is empty"}"#));
    // No list of rows, or not that alone: one row, whatever it says.
    let (status, body) = served.post("/models/m", "{\"instances\": [1, 2], \"e\": 3}").await;
    assert!(status == 200 && body.ends_with(":{\"instances\": [1, 2], \"e\": 3}"), "{body}");
    let (status, body) = served.post("/models/m", "{\"instances\": 5}").await;
    assert!(status == 200 && body.ends_with(":{\"instances\": 5}"), "{body}");
    served.end().await;
}

#[tokio::test]
async fn instances_of_a_worker_that_takes_bodies_whole_are_its_own_and_predict_is_another_path_to_it() {
    let served = Served::start(Registry::load(vec![model(program(&["opaque", "whole"]))]).unwrap()).await;
    let two = "{\"instances\": [7, [8]]}";
    for path in ["/models/m", "/v1/models/m:predict", "/v1/models/m/versions/1:predict"] {
        let (status, body) = served.post(path, two).await;
        assert!(status == 200 && body.ends_with(&format!(":{two}")), "{path}: {body}");
    }
    let (status, body) = served.post("/models/m?instances=rows", two).await;
    assert_eq!((status, body.as_str()), (200, "{\"predictions\":[[7],[[8]]]}"));
    let (_, about) = served.ask("GET", "/v2/models/m", "", "").await;
    assert!(about.contains("\"parameters\":{\"whole_bodies\":true}"), "{about}");
    let (status, body) = served.post("/v1/models/m:classify", two).await;
    assert_eq!(status, 400, "{body}");
    served.end().await;
}

#[tokio::test]
async fn an_answer_of_numbers_is_a_list_in_json() {
    let served = Served::start(Registry::load(vec![model(program(&["opaque"]))]).unwrap()).await;
    let (head, body) = served.ask("POST", "/models/m", "", "\"numbers\"").await;
    assert!(head.contains("content-type: application/json"), "{head}");
    let list = "[0.1,1.0,-1e-7]";
    assert_eq!(body, list);
    let (status, body) = served.post("/models/m", "{\"instances\": [\"numbers\", 7, \"numbers\"]}").await;
    assert_eq!((status, body), (200, format!("{{\"predictions\":[{list},[7],{list}]}}")));
    let (status, body) = served.post("/models/m", "\"no numbers\"").await;
    assert!(status == 500 && !body.contains("NaN"), "{body}");
    served.end().await;
}

#[tokio::test]
async fn statuses_of_the_worker_are_the_caller_s_or_the_log_s() {
    let served = Served::start(Registry::load(vec![model(program(&["opaque"]))]).unwrap()).await;
    assert_eq!(served.post("/models/m", "words 422").await, (422, r#"{"error":"in the worker's words"}"#.into()));
    // With a content type they are the caller's as they are.
    for status in [422, 500, 503] {
        let (head, body) = served.ask("POST", "/models/m", "", &format!("status {status}")).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")) && head.contains("content-type: text/plain"), "{head}");
        assert_eq!(body, "in the worker's words");
    }
    for other in ["words 500", "words 503", "status 101", "status 301", "status 600"] {
        let (status, body) = served.post("/models/m", other).await;
        assert!(status == 500 && !body.contains("words"), "{body}");
    }
    let tensor =
        |name: &str| format!(r#"{{"inputs":[{{"name":"{name}","datatype":"BYTES","shape":[1],"data":["x"]}}]}}"#);
    for (path, asked) in [
        ("/v2/models/m/infer", tensor("request")),
        ("/v2/models/m/infer", tensor("x")),
        ("/v2/models/m/infer", "{".into()),
        ("/v1/models/m:predict", r#"{"instances":[1,2]}"#.into()),
        ("/v1/models/m:predict", r#"{"instances":["1"]}"#.into()),
    ] {
        let (status, body) = served.post(path, &asked).await;
        let told = "this model takes any body, and no tensors: POST /models/m";
        assert!(status == 400 && body.contains(told), "{path} {asked}: {body}");
    }
    let (status, body) = served.post("/models/m?timeout=x", "a").await;
    assert!(status == 400 && body.contains("microseconds"), "{body}");
    served.end().await;
    let served = Served::start(Registry::load(vec![model(program(&[]))]).unwrap()).await;
    let (status, body) = served.post("/models/m", "a").await;
    assert!(status == 400 && body.contains("/v2/models/m/infer"), "{body}");
    let inputs = r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[2,2],"data":[1,2,3,4]}]}"#;
    let (status, body) = served.post("/v2/models/m/infer", inputs).await;
    assert!(status == 200 && body.contains("[3.0,7.0]"), "{body}");
    served.end().await;
}
