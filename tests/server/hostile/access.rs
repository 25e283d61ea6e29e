//! Who may do what: every route, with no token, a wrong one and those of each kind, in odd spellings.

use std::fs;
use std::time::Duration;

use futures_util::future::select_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use uncork::registry::Caps;
use uncork::server::{Access, Options};

use super::{start, start_slow};
use crate::folder::Folder;

const MODELS: &str = "inference-0123456789";
const VIEWS: &str = "scraping-0123456789";
const CHANGES: &str = "changing-0123456789";
const INFER: &str = r#"{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[3]}]}"#;
const PREDICT: &str = r#"{"instances":[[3]]}"#;

/// What a path asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Needs {
    Nothing,
    Models,
    Views,
    Changes,
    /// There is no such path.
    NotThere,
}

/// Every route of the server, and spellings that some servers take for one of them.
const PATHS: &[(&str, &str, Needs)] = &[
    ("GET", "/v2/health/live", Needs::Nothing),
    ("GET", "/v2/health/ready", Needs::Nothing),
    ("GET", "/v2/models/m/ready", Needs::Nothing),
    ("GET", "/v2/models/m/versions/1/ready", Needs::Nothing),
    ("GET", "/v2", Needs::Models),
    ("GET", "/v2/models/m", Needs::Models),
    ("GET", "/v2/models/m/versions/1", Needs::Models),
    ("GET", "/v2/models/m/config", Needs::Models),
    ("GET", "/v2/models/m/versions/1/config", Needs::Models),
    ("GET", "/v2/models/m/stats", Needs::Models),
    ("GET", "/v2/models/m/versions/1/stats", Needs::Models),
    ("GET", "/v2/models/stats", Needs::Models),
    ("POST", "/v2/repository/index", Needs::Models),
    ("POST", "/v2/models/m/infer", Needs::Models),
    ("POST", "/v2/models/m/versions/1/infer", Needs::Models),
    // What a program gets there; the page is a view.
    ("GET", "/", Needs::Nothing),
    ("GET", "/v1/models", Needs::Models),
    ("GET", "/v1/models/m", Needs::Models),
    ("GET", "/v1/models/m/metadata", Needs::Models),
    ("GET", "/v1/models/m/versions/1", Needs::Models),
    ("GET", "/v1/models/m/versions/1/metadata", Needs::Models),
    ("POST", "/v1/models/m:predict", Needs::Models),
    ("POST", "/v1/models/m%3Apredict", Needs::Models),
    ("POST", "/v1/models/m/versions/1:predict", Needs::Models),
    ("POST", "/models/m", Needs::Models),
    ("POST", "/models/m/versions/1", Needs::Models),
    ("POST", "/v1//models/m:predict", Needs::NotThere),
    ("POST", "/v1/models/m/predict", Needs::NotThere),
    ("GET", "/openapi.json", Needs::Models),
    ("GET", "/docs", Needs::Models),
    ("GET", "/docs/docs.js", Needs::Models),
    ("POST", "/v2/repository/models/m/load", Needs::Changes),
    ("POST", "/v2/repository/models/%6d/load", Needs::Changes),
    ("POST", "/v2/repository/models/m/unload", Needs::Changes),
    ("POST", "/v2/repository/models/m/unload/", Needs::NotThere),
    ("GET", "/page/page.css", Needs::Views),
    ("GET", "/status", Needs::Views),
    ("GET", "/metrics", Needs::Views),
    ("HEAD", "/metrics", Needs::Views),
    ("HEAD", "/v2/models/m", Needs::Models),
    ("GET", "/metrics?x=/v2/health/live", Needs::Views),
    ("POST", "/v2/models/%6d/infer", Needs::Models),
    ("GET", "//metrics", Needs::NotThere),
    ("GET", "/metrics/", Needs::NotThere),
    ("GET", "/METRICS", Needs::NotThere),
    ("GET", "/%6detrics", Needs::NotThere),
    ("GET", "/v2/health/live/../../metrics", Needs::NotThere),
    ("GET", "/v2/health/live/%2e%2e/%2e%2e/%2e%2e/metrics", Needs::NotThere),
    ("GET", "/v2/health/live%2f..%2f..%2fmetrics", Needs::NotThere),
    ("POST", "/v2//models/m/infer", Needs::NotThere),
    ("POST", "/v2/models/m/infer/", Needs::NotThere),
    ("POST", "/V2/models/m/infer", Needs::NotThere),
];

/// Where the model of this server, which takes tensors, says where to ask it.
const OPAQUE: &str = "/models/";

fn tokens(folder: &Folder, text: &str) -> Options {
    let file = folder.path().join("tokens");
    fs::write(&file, text).unwrap();
    Options { access: Access::Tokens { file, hosts: Vec::new() }, ..Options::default() }
}

/// What is sent there.
fn body(method: &str, path: &str) -> &'static str {
    match method {
        "POST" if path.starts_with("/v1") => PREDICT,
        "POST" if path.starts_with("/v2/repository") => "",
        "POST" => INFER,
        _ => "",
    }
}

#[tokio::test]
async fn the_page_is_a_view_however_it_is_asked_for() {
    let folder = Folder::new();
    let server = start(tokens(&folder, &format!("ci {MODELS} inference\ngrafana {VIEWS} scrape\n"))).await;
    for accept in ["text/html", "*/*\r\nAccept: text/html", "application/json, text/html;q=0.1"] {
        for (token, status) in [(MODELS, 403), (VIEWS, 200), ("wrong", 401)] {
            let lines = format!("Host: a\r\nAccept: {accept}\r\nAuthorization: Bearer {token}\r\n");
            let (given, answer) = server.ask("GET /", &lines, "").await;
            assert_eq!(given, status, "{accept} with {token}");
            assert_eq!(answer.contains("<html"), status == 200, "{answer}");
        }
    }
}

#[tokio::test]
async fn every_route_asks_for_its_right_in_every_spelling() {
    let folder = Folder::new();
    let server =
        start(tokens(&folder, &format!("ci {MODELS} inference\ngrafana {VIEWS} scrape\nops {CHANGES} admin\n"))).await;
    let basic = "Authorization: Basic bWU6c2NyYXBpbmctMDEyMzQ1Njc4OQ==\r\n".to_owned(); // me:scraping-0123456789
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let callers = [
        ("no token", String::new(), None),
        ("a wrong token", bearer("inference-0123456788"), None),
        ("the beginning of one", bearer("inference-012345678"), None),
        ("an empty one", bearer(""), None),
        ("two headers", format!("{}{}", bearer("wrong-0123456789"), bearer(MODELS)), None),
        ("one for models", bearer(MODELS), Some(Needs::Models)),
        ("one for views", bearer(VIEWS), Some(Needs::Views)),
        ("one for changes", bearer(CHANGES), Some(Needs::Changes)),
        ("one as a password", basic, Some(Needs::Views)),
    ];
    for &(method, path, needs) in PATHS {
        let body = body(method, path);
        for (caller, lines, may) in &callers {
            let (status, answer) = server.ask(&format!("{method} {path}"), &format!("Host: a\r\n{lines}"), body).await;
            let expected = match (needs, may) {
                _ if *caller == "two headers" => 400,
                (Needs::NotThere, _) => 404,
                (Needs::Nothing, _) => 200,
                (needs, Some(may)) if *may == needs && path.starts_with(OPAQUE) => 400,
                // The models of this server do not change, which is told to those alone who might change them.
                (Needs::Changes, Some(Needs::Changes)) => 501,
                (needs, Some(may)) if *may == needs => 200,
                (_, Some(_)) => 403,
                (_, None) => 401,
            };
            assert_eq!(status, expected, "{method} {path} with {caller}: {answer}");
            assert!(!answer.contains("0123456789"), "no token is told: {answer}");
            if status == 401 {
                assert!(answer.contains("www-authenticate: Bearer\r\n"), "{answer}");
            }
        }
    }
}

#[tokio::test]
async fn a_changed_file_of_tokens_is_read_while_the_server_runs() {
    let folder = Folder::new();
    let options = tokens(&folder, &format!("ci {MODELS}\n"));
    let Access::Tokens { file, .. } = options.access.clone() else { unreachable!("tokens") };
    let server = start(options).await;
    let status = async |token: &str| {
        let lines = format!("Host: a\r\nAuthorization: Bearer {token}\r\n");
        server.ask("GET /v2", &lines, "").await.0
    };
    assert_eq!((status(MODELS).await, status(VIEWS).await), (200, 401));
    fs::write(&file, format!("ci {VIEWS}\n")).unwrap();
    let changed = async { while status(VIEWS).await != 200 {} };
    tokio::time::timeout(super::HANGS, changed).await.expect("the file is read again");
    assert_eq!(status(MODELS).await, 401);
}

#[tokio::test]
async fn a_token_s_rate_holds_for_inference_by_either_way_and_for_nobody_else() {
    let folder = Folder::new();
    let lines = format!("ci {MODELS} rate=0.01\ncd {CHANGES} inference rate=0.01\nops {VIEWS} inference\n");
    let server = start(tokens(&folder, &lines)).await;
    let ask = async |token: &str, line: &str, more: &str| {
        let lines = format!("Host: a\r\nAuthorization: Bearer {token}\r\n{more}");
        server.ask(line, &lines, if line.ends_with("infer") { INFER } else { "" }).await
    };
    let infer = "POST /v2/models/m/infer";
    // The second is judged from its head, and answered by hyper.
    for (token, holder, more) in [(MODELS, "ci", ""), (CHANGES, "cd", "Accept-Encoding: gzip\r\n")] {
        assert_eq!(ask(token, infer, more).await.0, 200);
        let (status, answer) = ask(token, infer, more).await;
        assert_eq!(status, 429, "{answer}");
        assert!(answer.contains(&format!("the token of '{holder}' may send 0.01 requests a second")), "{answer}");
        assert!(answer.contains("retry-after: 100\r\n") || answer.contains("retry-after: 99\r\n"), "{answer}");
        assert_eq!(ask(VIEWS, infer, more).await.0, 200);
    }
    for line in ["GET /v2/models/m", "POST /v2/repository/index"] {
        let (status, answer) = ask(MODELS, line, "").await;
        assert_eq!(status, 200, "to look is free: {line}: {answer}");
    }
}

#[tokio::test]
async fn one_token_s_flood_makes_room_for_another_by_every_way_to_a_model() {
    let folder = Folder::new();
    let options = tokens(&folder, &format!("flood {MODELS}\nfew {VIEWS} inference\n"));
    // Room for thirty, so for some on a busy machine too.
    let server = start_slow(options, Duration::from_millis(10), Caps::new(Duration::from_millis(300), 1)).await;
    let ask = async |token: &str, path: &str, more: &str| {
        let lines = format!("Host: a\r\nAuthorization: Bearer {token}\r\n{more}");
        server.ask(&format!("POST {path}"), &lines, body("POST", path)).await
    };
    let made_room = |(status, answer): &(u16, String)| *status == 503 && answer.contains("callers who take less");
    for (path, more) in [
        ("/v2/models/m/infer", ""),
        // Not plain, so hyper has it.
        ("/v2/models/m/infer", "Accept-Encoding: gzip\r\n"),
        ("/v1/models/m:predict", ""),
    ] {
        // Each asks again at once, so that there is never room.
        let one = |_| Box::pin(async { while !made_room(&ask(MODELS, path, more).await) {} });
        let flood = select_all((0..40).map(one));
        let few = async {
            loop {
                ask(VIEWS, path, more).await;
            }
        };
        tokio::time::timeout(super::HANGS, async {
            tokio::select! { _ = flood => {}, () = few => {} }
        })
        .await
        .unwrap_or_else(|_| panic!("{path} {more:?}: nobody made room"));
    }
}

#[tokio::test]
async fn one_token_s_bodies_leave_room_for_another_s() {
    let folder = Folder::new();
    let options = tokens(&folder, &format!("flood {MODELS}\nfew {VIEWS} inference\n"));
    let (mb, length) = (1 << 20, 950_000);
    let server =
        start(Options { max_body_bytes: mb, max_answer_bytes: mb, max_bodies_bytes: 12 * mb, ..options }).await;
    let head = |token: &str, path: &str| {
        format!("POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n")
    };
    for path in ["/v2/models/m/infer", "/v1/models/m:predict"] {
        // Bodies that do not come to their end, of which some find no room.
        let one = |_| {
            Box::pin(async {
                let mut stream = TcpStream::connect(server.address).await.unwrap();
                stream.write_all(head(MODELS, path).as_bytes()).await.unwrap();
                // Whoever is refused need not take all of it.
                let _ = stream.write_all(&vec![b' '; length - 1]).await;
                let mut answer = vec![0; 13];
                stream.read_exact(&mut answer).await.unwrap();
                answer
            })
        };
        let flood: Vec<_> = (0..13).map(one).collect();
        let (refused, _, flood) = tokio::time::timeout(super::HANGS, select_all(flood)).await.expect("one is refused");
        assert_eq!(refused, b"HTTP/1.1 503 ");
        let text = format!("{}{}", " ".repeat(length - body("POST", path).len()), body("POST", path));
        let lines = format!("Host: a\r\nAuthorization: Bearer {VIEWS}\r\n");
        let (status, answer) = server.ask(&format!("POST {path}"), &lines, &text).await;
        assert_eq!(status, 200, "{path}: {answer}");
        drop(flood);
    }
}

#[tokio::test]
async fn a_page_of_another_site_reaches_nothing_but_probes() {
    let server = start(Options::default()).await;
    for &(method, path, needs) in PATHS.iter().filter(|(_, _, needs)| *needs != Needs::NotThere) {
        let body = body(method, path);
        let line = format!("{method} {path}");
        let refused = if needs == Needs::Nothing { 200 } else { 403 };
        let foreign = [
            "Host: evil.example\r\n",
            "Host: evil.example localhost\r\n",
            "Host: evil.example@localhost\r\n",
            "Host: evil.example%00.localhost\r\n",
            "Host: a\r\nOrigin: http://evil.example\r\n",
            "Host: a\r\nSec-Fetch-Site: cross-site\r\n",
        ];
        for lines in foreign {
            let (status, answer) = server.ask(&line, lines, body).await;
            assert_eq!(status, refused, "{line} with {lines:?}: {answer}");
        }
        // What no browser sends: neither header, and no Content-Type.
        let (status, answer) = server.ask(&line, "Host: 127.0.0.1\r\n", body).await;
        let allowed = match needs {
            Needs::Changes => 501,
            _ if path.starts_with(OPAQUE) => 400,
            _ => 200,
        };
        assert_eq!(status, allowed, "{line}: {answer}");
    }
}

/// RFC 9112, section 3.2.2.
#[tokio::test]
async fn the_host_of_a_whole_target_counts_and_not_the_header() {
    let server = start(Options::default()).await;
    for (target, host, expected) in [
        ("http://evil.example/status", "localhost", 403),
        ("http://localhost@evil.example/status", "localhost", 403),
        ("http://evil.example@localhost/status", "localhost", 403),
        ("http://localhost/status", "evil.example", 200),
        ("http://127.0.0.1:8080/status", "localhost", 200),
        ("/status", "evil.example", 403),
    ] {
        let (status, answer) = server.ask(&format!("GET {target}"), &format!("Host: {host}\r\n"), "").await;
        assert_eq!(status, expected, "{target} with {host}: {answer}");
    }
    let (status, answer) = server.ask("POST http://evil.example/v2/models/m/infer", "Host: localhost\r\n", INFER).await;
    assert_eq!(status, 403, "{answer}");
}

#[tokio::test]
async fn a_stranger_who_asks_whether_the_server_is_ready_hears_of_no_model() {
    let folder = Folder::new();
    let slow =
        async |options| start_slow(options, Duration::from_millis(30), Caps::new(Duration::from_millis(10), 8)).await;
    let ready = "GET /v2/health/ready";
    let with_tokens = slow(tokens(&folder, &format!("ml {MODELS}\n"))).await;
    let own = format!("Host: localhost\r\nAuthorization: Bearer {MODELS}\r\n");
    let wrong = "Host: localhost\r\nAuthorization: Bearer nobody-has-this-one\r\n";
    let local = slow(Options::default()).await;
    for (server, lines, hears) in [
        (&with_tokens, own.as_str(), true),
        (&with_tokens, wrong, false),
        (&with_tokens, "Host: localhost\r\n", false),
        (&local, "Host: localhost\r\n", true),
        (&local, "Host: evil.example\r\n", false),
    ] {
        let (status, answer) = server.ask(ready, lines, "").await;
        assert!(status == 200 && answer.contains("\"ready\":true"), "{lines}: {answer}");
        assert_eq!(answer.contains("model 'm'"), hears, "{lines}: {answer}");
    }
}

#[tokio::test]
async fn a_stranger_who_probes_a_model_hears_of_no_other() {
    let folder = Folder::new();
    let running = start(tokens(&folder, &format!("ml {MODELS} inference\n"))).await;
    for path in ["/v2/models/nope/ready", "/v2/models/m/versions/9/ready"] {
        let (status, answer) = running.ask(&format!("GET {path}"), "Host: localhost\r\n", "").await;
        let says_more = answer.contains("served here") || answer.contains("it has");
        assert!(status == 404 && answer.contains("{\"error\":\"") && !says_more, "{path}: {answer}");
    }
    let own = format!("Host: localhost\r\nAuthorization: Bearer {MODELS}\r\n");
    let (_, answer) = running.ask("GET /v2/models/nope", &own, "").await;
    assert!(answer.contains("served here: 'm'"), "who may ask is told: {answer}");
}
