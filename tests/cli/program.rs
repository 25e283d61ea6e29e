//! What the program promises on the command line.

use std::fs;
use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use crate::folder::Folder;
use serde_json::{Value, json};

/// Far longer than anything here takes: a wait that reaches it has failed.
pub(crate) const HANGS: Duration = Duration::from_secs(20);

pub(crate) const STAND_IN: &str = "[[model]]\nname = 'dry-run'\nsynthetic = { base_ms = 1.0, per_row_ms = 0.05 }\n";

/// The program in `folder`, without the variables of whoever runs the tests.
pub(crate) fn uncork(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uncork"));
    command.current_dir(folder).args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_read(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command
}

/// Whether a variable changes what the program does.
fn is_read(name: &str) -> bool {
    name.starts_with("UNCORK_") || name.starts_with("OTEL_")
}

pub(crate) fn folder_with(text: &str) -> Folder {
    let folder = Folder::new();
    fs::write(folder.path().join("uncork.toml"), text).unwrap();
    folder
}

pub(crate) fn output(mut command: Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().expect("it ended by itself"), text(stdout), text(stderr))
}

/// A running server; killed when the test ends, however it ends.
pub(crate) struct Serving {
    pub(crate) child: Child,
    stdout: BufReader<ChildStdout>,
    pub(crate) ready_line: String,
    address: SocketAddr,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serving {
    fn start(command: Command) -> Serving {
        Serving::start_logging_to(Stdio::null(), command)
    }

    pub(crate) fn start_logging_to(log: impl Into<Stdio>, mut command: Command) -> Serving {
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut ready_line = String::new();
        stdout.read_line(&mut ready_line).unwrap();
        let behind = ready_line.trim_end().rsplit_once("http://").map(|(_, behind)| behind);
        let address = behind.and_then(|behind| behind.split(' ').next()?.parse().ok());
        let Some(address) = address else {
            let _ = child.kill();
            panic!("not a ready line: {ready_line:?} ({:?})", child.wait());
        };
        Serving { child, stdout, ready_line, address }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(HANGS)).unwrap();
        stream
    }

    pub(crate) fn get(&self, path: &str) -> String {
        let mut stream = self.connect();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// The answer to a POST without a body.
    pub(crate) fn post(&self, path: &str) -> String {
        let mut stream = self.connect();
        write!(stream, "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// The answer of a model, which must be one.
    pub(crate) fn infer(&self, model: &str, body: &str) -> Value {
        let mut stream = self.connect();
        let length = body.len();
        let head = format!("POST /v2/models/{model}/infer HTTP/1.1\r\nHost: a\r\nConnection: close\r\n");
        write!(stream, "{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Signals until it ends, as whoever grows impatient does: one right behind the first counts as the same.
    fn signal_until_it_ends(&mut self, name: &str) {
        let begin = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < HANGS, "it goes on");
            self.signal(name);
        }
    }

    /// Waits until it does not.
    fn accepts_nobody_any_more(&self) {
        let begin = Instant::now();
        while TcpStream::connect(self.address).is_ok() {
            assert!(begin.elapsed() < HANGS, "it goes on accepting");
        }
    }

    /// Waits for the end, and returns it with what was printed since the ready line.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        // The pipe closes when the process ends.
        self.stdout.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }
}

/// Sends the body of what [`begin_infer`] began.
fn assert_is_answered(mut in_flight: TcpStream) {
    in_flight.write_all(INFER.as_bytes()).unwrap();
    let mut answer = String::new();
    in_flight.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\"data\":[7.0]"), "{answer}");
}

/// Begins a request whose body is still to come, and returns when the server is waiting for it.
fn begin_infer(serving: &Serving, body: &str) -> TcpStream {
    let mut stream = serving.connect();
    let head = "POST /v2/models/dry-run/infer HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length";
    write!(stream, "{head}: {}\r\n\r\n", body.len()).unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream
}

pub(crate) const INFER: &str = r#"{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[3]}]}"#;

#[test]
fn validate_prints_every_error_at_once_and_starts_nothing() {
    let folder = folder_with(
        "[server]\nhtp = '127.0.0.1:1'\nmax_body_bytes = 1\n\n[[model]]\nname = 'a'\npath = 'none.onnx'\nrunners = 0\n",
    );
    let (code, out, err) = output(uncork(folder.path(), &["validate", "--config", "uncork.toml"]));
    assert_eq!((code, out.as_str()), (3, ""));
    let lines: Vec<_> = err.lines().collect();
    let expected = [
        "uncork.toml:2: server.htp: unknown key; did you mean 'http'?",
        "uncork.toml:3: server.max_body_bytes = 1: must be a whole number from 1024 to 4294967296",
        "uncork.toml:7: model[0].path (model 'a') = \"none.onnx\": cannot be opened",
        "uncork.toml:8: model[0].runners (model 'a') = 0: must be a whole number from 1 to 1024",
    ];
    assert_eq!(lines.len(), expected.len(), "{err}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line} instead of {expected}");
    }
}

#[test]
fn validate_says_ok_and_sums_up_each_model() {
    let pooled = STAND_IN.replace("dry-run", "other");
    let folder = folder_with(&format!(
        "[[pool]]\nname = 'cpu'\n{STAND_IN}max_latency_ms = 12.5\nrunners = 2\n\
         {pooled}pool = 'cpu'\nweight = 3\n"
    ));
    let (code, out, err) = output(uncork(folder.path(), &["validate", "--config", "uncork.toml"]));
    let summary = "  dry-run 1: stand-in of 1 + 0.05 ms a row, max_latency_ms 12.5, max_batch_size 128, 2 runners\n  \
                   other 1: stand-in of 1 + 0.05 ms a row, max_latency_ms 100, max_batch_size 128, \
                   1 runner in pool 'cpu' with weight 3";
    assert_eq!((code, out, err.as_str()), (0, format!("uncork.toml: ok\n{summary}\n"), ""));
}

#[test]
fn validate_reads_the_settings_of_each_model_in_the_folder_of_models() {
    let folder = folder_with("[server]\nmodels = 'models'\n");
    for model in ["a", "b", "c"] {
        std::fs::create_dir_all(folder.path().join("models").join(model).join("1")).unwrap();
        let to = folder.path().join("models").join(model).join("1/model.onnx");
        std::fs::copy(file("tests/models/plus_1.onnx"), to).unwrap();
    }
    let say = |model: &str, text: &str| std::fs::write(folder.path().join("models").join(model), text).unwrap();
    say("b/config.pbtxt", "max_batch_size: 4 parameters { key: \"a\" }");
    let validate = || output(uncork(folder.path(), &["validate", "--config", "uncork.toml"]));
    let (code, out, _) = validate();
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("\n    a: ok\n    b: ok\n      config.pbtxt: without meaning here: parameters\n"), "{out}");
    say("a/model.toml", "versions = \"latest\"\nshadow = 1\n");
    let (code, _, err) = validate();
    assert!(code == 3 && err.contains("models/a: of its versions only the shadow is served"), "{err}");
    say("a/model.toml", "versions = \"all\"\nlabels = { stable = 7 }\n");
    let (code, _, err) = validate();
    assert!(code == 3 && err.contains("models/a: its settings ask for version 7"), "{err}");
    say("a/model.toml", "");
    say("c/model.toml", "max_batch_size = 0\nshadow = 1\n");
    let (code, out, err) = validate();
    assert_eq!((code, out.as_str()), (3, ""), "nothing is ok where something is wrong");
    for problem in ["models/c: model.toml:1: max_batch_size = 0: ", "models/c: model.toml:2: shadow = 1: "] {
        assert!(err.contains(problem), "{err}");
    }
}

/// A file of the repository.
pub(crate) fn file(path: &str) -> String {
    format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn validate_says_everything_of_a_model_that_can_be_served() {
    let folder = Folder::new();
    let model = file("tests/models/zoo/encoder_extended.onnx");
    let (code, out, err) = output(uncork(folder.path(), &["validate", &model, "--for", "100ms", "--dim", "length=8"]));
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let told = out.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "encoder_extended.onnx: can be served written by pytorch",
        "for opset 17, com.microsoft 1 operators",
        "of 21 kinds: Add 9, MatMul 8,",
        "input input_ids INT64 [n, 8]",
        "output mean FP32 [n, 16]",
        "rows share a batch",
        "in 32 tensors",
        "rows a second",
        "max_batch_size =",
    ] {
        assert!(told.contains(words), "{words}: {out}");
    }
    let (code, out, _) =
        output(uncork(folder.path(), &["validate", &model, "--for", "100ms", "--length", "8", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &json["servable"], &json["opset"]), (0, &true.into(), &17.into()));
    assert_eq!(
        json["inputs"][1],
        serde_json::json!({
            "name": "attention_mask", "datatype": "INT64", "shape": [null, null], "batch_axis": 0
        })
    );
    assert_eq!((&json["rows"], &json["missing"]), (&"batched".into(), &serde_json::json!([])));
    assert!(json["speed"]["best_rows_per_second"].as_f64().unwrap() > 0.0, "{json}");
}

#[test]
fn validate_says_of_a_model_that_cannot_be_served_all_that_is_missing_and_why() {
    let folder = Folder::new();
    let (code, out, err) = output(uncork(folder.path(), &["validate", &file("tests/models/unsupported.onnx")]));
    assert_eq!((code, err.as_str()), (3, ""));
    let told = out.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "unsupported.onnx: cannot be served",
        "2 nodes of 2 kinds: Relu 1, com.example::Whiten 1",
        "missing com.example::Whiten (node 'odd_whiten')",
        "input x FP32 [batch, 4], as declared",
        "reason operator 'com.example::Whiten' (node 'odd_whiten') is not supported",
    ] {
        assert!(told.contains(words), "{words}: {out}");
    }
    let (code, out, _) = output(uncork(folder.path(), &["validate", &file("tests/models/truncated.onnx"), "--json"]));
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &json["servable"]), (3, &false.into()));
    assert!(json["reason"].as_str().unwrap().starts_with("not a readable ONNX file"), "{json}");
    let (code, out, err) = output(uncork(folder.path(), &["validate", "uncork.toml"]));
    assert_eq!((code, out.as_str()), (3, ""));
    assert!(err.contains("uncork validate --config uncork.toml"), "{err}");
}

#[test]
fn wrong_usage_ends_with_3_and_asking_for_help_with_0() {
    let folder = Folder::new();
    for (arguments, expected) in [
        (&["--help"][..], 0),
        (&["--version"], 0),
        (&["serve", "--help"], 0),
        (&[], 3),
        (&["bottle"], 3),
        (&["validate"], 3),
        (&["serve", "--speed", "9"], 3),
        (&["serve", "--max-batch-size", "0"], 3),
        (&["serve", "--max-latency-ms", "-1"], 3),
        (&["serve", "--grpc", "127.0.0.1"], 3),
        (&["serve", "none.onnx"], 3),
        (&["serve", "--config", "none.toml"], 3),
        (&["validate", "--config", "none.toml"], 3),
    ] {
        let (code, out, err) = output(uncork(folder.path(), arguments));
        assert_eq!(code, expected, "{arguments:?}: {err}");
        assert_eq!((out.is_empty(), err.is_empty()), (expected != 0, expected == 0), "{arguments:?}: {out}{err}");
    }
}

#[test]
fn examples_in_the_help_can_be_pasted_from_a_terminal_of_80_columns() {
    let folder = Folder::new();
    for command in ["serve", "profile", "validate", "simulate", "loadtest", "completions"] {
        let help = |columns: &str| {
            let mut uncork = uncork(folder.path(), &[command, "-h"]);
            uncork.env("COLUMNS", columns);
            output(uncork).1
        };
        let (narrow, wide) = (help("80"), help("300"));
        let (_, examples) = wide.split_once("\nExamples").expect(command);
        let mut commands = 0;
        let mut goes_on = false;
        for line in examples.lines() {
            if goes_on || line.starts_with("  uncork ") {
                assert!(narrow.lines().any(|shown| shown == line), "{command}: broken at 80 columns: {line}");
                commands += 1;
                goes_on = line.ends_with('\\');
            }
        }
        assert!(commands > 0, "{command}");
    }
}

#[test]
fn a_port_in_use_is_told_with_the_address() {
    let folder = folder_with(STAND_IN);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, out, err) = output(uncork(folder.path(), &["serve", "--http", &address]));
    assert_eq!((code, out.as_str()), (3, ""));
    assert!(err.contains(&format!("cannot listen on {address}: ")), "{err}");
}

#[test]
fn a_broken_file_of_tokens_or_certificates_is_named_and_no_address_is_blamed() {
    let folder = folder_with("");
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("short", b"ci abc\n");
    write("none", b"# nobody\n");
    write("binary", b"ci \xff\xfe0123456789abcdef\n");
    write("no.pem", b"nothing\n");
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    for (name, why) in [
        ("short", "short:1: a token has at least 16 characters"),
        ("none", "there is no token in it"),
        ("binary", "UTF-8"),
        ("folder", "directory"),
        ("missing", "No such file"),
    ] {
        let (code, _, said) = output(uncork(folder.path(), &["serve", "--http", "127.0.0.1:0", "--tokens-file", name]));
        assert_eq!(code, 3, "{said}");
        assert!(
            said.contains("tokens_file cannot be used: ") && said.contains(why) && said.contains("ci TOKEN inference"),
            "{said}"
        );
        assert!(said.contains(name) && !said.contains("cannot listen"), "{said}");
    }
    let arguments = ["serve", "--http", "127.0.0.1:0", "--tls-certificate", "no.pem", "--tls-key", "no.pem"];
    let (code, _, said) = output(uncork(folder.path(), &arguments));
    assert_eq!(code, 3, "{said}");
    assert!(
        said.contains("TLS cannot be used: ") && said.contains("no.pem") && !said.contains("cannot listen"),
        "{said}"
    );
    let made = || rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let (own, other) = (made(), made());
    write("cert.pem", own.cert.pem().as_bytes());
    write("other.pem", other.signing_key.serialize_pem().as_bytes());
    write("locked.pem", b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n");
    for (certificate, key, why) in [
        ("cert.pem", "other.pem", "other.pem: it is not the key of cert.pem"),
        ("cert.pem", "locked.pem", "locked.pem: the key is encrypted"),
        ("cert.pem", "cert.pem", "cert.pem: there is no private key in it"),
        ("other.pem", "other.pem", "other.pem: there is no certificate in it"),
    ] {
        let arguments = ["serve", "--http", "127.0.0.1:0", "--tls-certificate", certificate, "--tls-key", key];
        let (code, _, said) = output(uncork(folder.path(), &arguments));
        assert!(code == 3 && said.contains(why), "{said}");
    }
}

#[test]
fn serve_reads_the_file_of_its_folder_prints_its_real_address_and_answers() {
    let folder = folder_with(STAND_IN);
    let serving = Serving::start(uncork(folder.path(), &["serve", "--http", "127.0.0.1:0"]));
    assert!(serving.ready_line.starts_with("uncork serves dry-run on http://127.0.0.1:"), "{}", serving.ready_line);
    assert_ne!(serving.address.port(), 0);
    assert!(serving.get("/v2/health/ready").ends_with("{\"ready\":true,\"live\":true}"));
}

/// Bytes of memory that a process has of the system.
#[cfg(target_os = "linux")]
fn resident(child: &Child) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let kilobytes =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
    kilobytes.map(|kilobytes: usize| kilobytes * 1024).unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_that_is_idle_gives_its_memory_back() {
    let folder = folder_with(STAND_IN);
    let serving = Serving::start(uncork(folder.path(), &["serve", "--http", "127.0.0.1:0"]));
    let before = resident(&serving.child);
    // Connections of HTTP/2 with closed windows, and requests whose answers wait.
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        [&(payload.len() as u32).to_be_bytes()[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    let health = [&[0x82, 0x86, 0x04, 15][..], b"/v2/health/live", &[0x41, 1, b'a']].concat();
    let mut bytes = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[0, 4, 0, 0, 0, 0])].concat();
    bytes.extend((0..256).flat_map(|i| frame(1, 5, 2 * i + 1, &health)));
    let connections: Vec<TcpStream> = (0..60)
        .map(|_| {
            let mut stream = serving.connect();
            stream.write_all(&bytes).unwrap();
            // Heads of answers to all of them.
            stream.read_exact(&mut [0; 6000]).unwrap();
            stream
        })
        .collect();
    let most = resident(&serving.child);
    assert!(most > before + 20_000_000, "{before} and {most} bytes");
    drop(connections);
    // Asking it anything would have it look by itself, and so would the end of a thread that is idle for ten seconds.
    let until = Instant::now() + Duration::from_secs(9);
    // Some of it is kept for the next.
    while resident(&serving.child) > before + (most - before) * 3 / 4 {
        assert!(Instant::now() < until, "{before}, {most} and still {} bytes", resident(&serving.child));
        std::thread::yield_now();
    }
}

#[cfg(target_os = "linux")] // where a disk that is full can be had
#[test]
fn a_log_that_cannot_be_written_ends_no_server() {
    let folder = folder_with(STAND_IN);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let serving = Serving::start_logging_to(full, uncork(folder.path(), &["serve", "--http", "127.0.0.1:0"]));
    for _ in 0..2 {
        // It writes a line of the log for it.
        assert!(serving.get("/v2/models/dry-run/nothing").starts_with("HTTP/1.1 404"));
    }
}

/// A server that logs each connection into a pipe, after as many connections.
fn with_a_log_of(connections: usize, folder: &Folder) -> (Serving, PipeReader) {
    let (read, write) = std::io::pipe().unwrap();
    let mut command = uncork(folder.path(), &["serve", "--http", "127.0.0.1:0"]);
    command.env("UNCORK_LOG", "trace");
    let serving = Serving::start_logging_to(write, command);
    for _ in 0..connections {
        assert!(serving.get("/v2/health/live").starts_with("HTTP/1.1 200"));
    }
    serving.infer("dry-run", INFER);
    (serving, read)
}

#[test]
fn a_log_that_nobody_reads_holds_up_nobody_and_says_what_it_left_out() {
    let folder = folder_with(STAND_IN);
    // 2 MB: more than the pipe and the queue hold.
    let (serving, read) = with_a_log_of(5000, &folder);
    let mut lines = BufReader::new(read).lines().map(Result::unwrap);
    let gap = lines.find(|line| line.contains(" WARN ")).unwrap();
    assert!(gap.contains("lines of the log are left out: stderr took them too slowly left_out="), "{gap}");
    serving.signal("TERM");
    assert!(lines.last().unwrap().ends_with(" INFO drained"));
    assert_eq!(serving.end().0.code(), Some(0));
}

#[test]
fn a_log_that_nobody_reads_holds_up_no_end() {
    let folder = folder_with(STAND_IN);
    let (serving, _read) = with_a_log_of(400, &folder);
    serving.signal("TERM");
    assert_eq!(serving.end().0.code(), Some(0));
    let folder = folder_with(&format!("[server]\ndrain_delay_ms = 3600000\n{STAND_IN}"));
    let (mut serving, _read) = with_a_log_of(400, &folder);
    serving.signal("TERM");
    let begin = Instant::now();
    while serving.get("/v2/health/ready").starts_with("HTTP/1.1 200") {
        assert!(begin.elapsed() < HANGS, "it stays ready");
    }
    serving.signal_until_it_ends("TERM");
    assert_eq!(serving.end().0.code(), Some(143));
}

#[cfg(target_os = "linux")]
#[test]
fn a_command_whose_output_finds_no_room_says_so_and_fails() {
    let folder = folder_with(STAND_IN);
    let simulate = "simulate --poisson 100 --for 1 --base-ms 1 --per-row-ms 1 --max-latency-ms 50 --max-batch-size 8";
    for arguments in [simulate, "completions bash", "validate --config uncork.toml"] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = uncork(folder.path(), &arguments.split(' ').collect::<Vec<_>>());
        let ended = command.stdout(full).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(3), "{arguments}: {said}");
        assert!(said.contains("the output cannot be written: No space left"), "{arguments}: {said}");
    }
}

#[test]
fn a_load_is_sent_in_every_form_and_over_a_unix_socket() {
    let folder = folder_with(STAND_IN);
    let socket = format!("unix:{}", folder.path().join("u.sock").display());
    let serving = Serving::start(uncork(folder.path(), &["serve", "--http", &format!("{socket},127.0.0.1:0")]));
    let tcp = format!("http://{}", serving.address);
    for (url, form) in [(&tcp, "json"), (&tcp, "binary"), (&tcp, "predict"), (&socket, "binary")] {
        let arguments =
            ["loadtest", url, "--as", form, "--rate", "100", "--for", "300ms", "--rows", "3", "--json", "-"];
        let (code, out, err) = output(uncork(folder.path(), &[&arguments[..], &["--slo", "errors<=0%"]].concat()));
        let report: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out} {err}"));
        assert_eq!(code, 0, "{form} at {url}: {report:#}");
        assert!(report["good"].as_u64().unwrap() > 0, "{form} at {url}: {report:#}");
    }
}

/// The report of a short load without errors.
fn load(folder: &Folder, arguments: &[&str]) -> Value {
    let usual = ["--rate", "100", "--for", "300ms", "--json", "-", "--slo", "errors<=0%"];
    let (code, out, err) = output(uncork(folder.path(), &[&["loadtest"], arguments, &usual].concat()));
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out} {err}"));
    assert_eq!(code, 0, "{arguments:?}: {report:#}");
    report
}

#[test]
fn a_load_is_sent_over_http_2_and_grpc_and_over_tls() {
    let folder = folder_with(STAND_IN);
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    fs::write(folder.path().join("cert.pem"), cert.pem()).unwrap();
    fs::write(folder.path().join("key.pem"), signing_key.serialize_pem()).unwrap();
    let socket = format!("unix:{}", folder.path().join("u.sock").display());
    let plain = Serving::start(uncork(folder.path(), &["serve", "--http", &format!("{socket},127.0.0.1:0")]));
    let tls = ["--tls-certificate", "cert.pem", "--tls-key", "key.pem"];
    let mut command = uncork(folder.path(), &[&["serve", "--http", "127.0.0.1:0"], &tls[..]].concat());
    let mut secured = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(secured.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port = line.trim_end().rsplit_once(':').expect("an address").1.to_owned();
    let (http, https) = (format!("http://{}", plain.address), format!("https://localhost:{port}"));
    for arguments in [
        &[&http, "--http2"][..],
        &[&http, "--http2", "--as", "binary", "--rows", "3"],
        &[&http, "--as", "grpc", "--rows", "3"],
        &[&socket, "--as", "grpc"],
        &[&https, "--ca", "cert.pem"],
        &[&https, "--ca", "cert.pem", "--http2"],
        &[&https, "--ca", "cert.pem", "--as", "grpc"],
        &[&https, "--insecure", "--as", "grpc"],
    ] {
        let report = load(&folder, arguments);
        let good = report["good"].as_u64().unwrap();
        assert!(good > 0, "{arguments:?}: {report:#}");
    }
    // No bytes are spoken with whom nobody vouches for.
    let path = format!("{https}/any/path");
    for asked in [&[&https, "--model", "dry-run"][..], &[&path, "--get"]] {
        let arguments = [&["loadtest"], asked, &["--rate", "10", "--for", "100ms"]].concat();
        let (code, _, err) = output(uncork(folder.path(), &arguments));
        assert!(code == 3 && err.contains("not to be trusted; name its root with --ca"), "{asked:?}: {code}: {err}");
    }
    secured.kill().unwrap();
    secured.wait().unwrap();
}

#[test]
fn what_is_refused_over_grpc_is_a_refusal_and_no_error() {
    let folder = folder_with(&format!("{STAND_IN}max_latency_ms = 0.5\n"));
    let plain = Serving::start(uncork(folder.path(), &["serve", "--http", "127.0.0.1:0"]));
    let http = format!("http://{}", plain.address);
    for form in ["grpc", "json"] {
        let arguments = ["loadtest", &http, "--as", form, "--rate", "100", "--for", "300ms", "--json", "-"];
        let (code, out, err) = output(uncork(folder.path(), &[&arguments[..], &["--slo", "errors<=0%"]].concat()));
        let report: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out} {err}"));
        assert_eq!((code, &report["errors"]["all"]), (1, &Value::from(0)), "nobody was served: {report:#}");
        assert!(report["refused"].as_u64().unwrap() > 0, "{form}: {report:#}");
        assert_eq!(report["good"], 0, "{form}: {report:#}");
    }
    let arguments = ["loadtest", &http, "--as", "grpc", "--model", "nobody", "--rate", "10", "--for", "100ms"];
    let (code, _, err) = output(uncork(folder.path(), &arguments));
    assert!(code == 3 && err.contains("unknown model 'nobody'"), "{code}: {err}");
}

#[test]
fn without_a_model_the_embedded_one_is_served() {
    let folder = Folder::new();
    let mut command = uncork(folder.path(), &["serve"]);
    command.env("UNCORK_HTTP", "127.0.0.1:0");
    let serving = Serving::start(command);
    assert!(serving.ready_line.starts_with("uncork serves digits on "), "{}", serving.ready_line);
    assert!(serving.get("/v2/models/digits").contains("\"name\":\"digits\""));
}

#[test]
fn models_exported_by_pytorch_are_served_with_the_answers_of_onnxruntime() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models");
    let file = |name: &str| models.join(name).display().to_string();
    let folder = Folder::new();
    let arguments = ["serve", &file("mlp.onnx"), &file("lenet.onnx"), "--http", "127.0.0.1:0"];
    let caps = ["--max-latency-ms", "20000", "--max-batch-size", "64"];
    let serving = Serving::start(uncork(folder.path(), &[&arguments[..], &caps].concat()));
    for name in ["mlp", "lenet"] {
        let recorded: Value = serde_json::from_slice(&fs::read(models.join(format!("{name}.json"))).unwrap()).unwrap();
        let answer = serving.infer(name, &json!({"inputs": recorded["inputs"]}).to_string());
        for (have, want) in answer["outputs"].as_array().unwrap().iter().zip(recorded["outputs"].as_array().unwrap()) {
            assert_eq!((&have["name"], &have["shape"]), (&want["name"], &want["shape"]), "{name}");
            let numbers = |tensor: &Value| -> Vec<f64> {
                tensor["data"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
            };
            for (a, b) in numbers(have).into_iter().zip(numbers(want)) {
                assert!((a - b).abs() <= 1e-4 * (1.0 + b.abs()), "{name}: {a} instead of {b}");
            }
        }
    }
}

#[test]
fn a_model_with_a_missing_operator_is_refused_at_load_with_its_name_and_node() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/unsupported.onnx");
    let folder = Folder::new();
    let (code, _, errors) = output(uncork(folder.path(), &["serve", model.to_str().unwrap(), "--http", "127.0.0.1:0"]));
    assert_eq!(code, 3);
    assert!(errors.contains("'com.example::Whiten'") && errors.contains("'odd_whiten'"), "{errors}");
}

#[test]
fn a_signal_lets_the_request_in_flight_be_answered_and_ends_with_0() {
    // The deadline counts from the head on, so it must outlast all that comes before the body is sent.
    let folder = folder_with(&format!("{STAND_IN}max_latency_ms = 20_000\n"));
    for signal in ["TERM", "INT"] {
        let serving = Serving::start(uncork(folder.path(), &["serve", "--http", "127.0.0.1:0"]));
        let mut idle = serving.connect();
        write!(idle, "GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let in_flight = begin_infer(&serving, INFER);
        serving.signal(signal);
        let mut live = String::new();
        idle.read_to_string(&mut live).expect("a connection that lies idle is closed");
        assert!(live.ends_with("{\"live\":true}"), "{live}");
        // The answer may have ended its connection a moment before the listener went.
        serving.accepts_nobody_any_more();
        assert_is_answered(in_flight);
        let (status, rest) = serving.end();
        assert_eq!((status.code(), rest.as_str()), (Some(0), ""), "SIG{signal}");
    }
}

#[test]
#[cfg(unix)]
fn a_signal_while_a_model_is_being_loaded_lets_others_answer_what_is_in_flight() {
    use std::os::unix::net::UnixStream;

    let slow = "\n[[model]]\nname = 'slow'\ncommand = ['/bin/sleep', '1000']\n";
    let folder = folder_with(&format!("{STAND_IN}max_latency_ms = 20_000\n{slow}"));
    let socket = folder.path().join("http");
    let mut command = uncork(folder.path(), &["serve", "--http", &format!("unix:{}", socket.display())]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let address = (std::net::Ipv4Addr::LOCALHOST, 0).into();
    let serving = Serving { child, stdout, ready_line: String::new(), address };
    let begun = Instant::now();
    let is_ready = || {
        let mut answer = String::new();
        let Ok(mut stream) = UnixStream::connect(&socket) else { return false };
        stream.write_all(b"GET /v2/models/dry-run/ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
    };
    while !is_ready() {
        assert!(begun.elapsed() < HANGS, "one of the models is loaded");
    }
    let mut stream = UnixStream::connect(&socket).unwrap();
    let head = "POST /v2/models/dry-run/infer HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length";
    write!(stream, "{head}: {}\r\n\r\n", INFER.len()).unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    serving.signal("TERM");
    // The drain has begun once nobody is let in any more.
    while UnixStream::connect(&socket).is_ok() {
        assert!(begun.elapsed() < HANGS, "nothing is accepted any more");
    }
    stream.write_all(INFER.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert_eq!(serving.end().0.code(), Some(0));
}

/// Under a limit of 1,024 descriptors, clients beyond it waited 15 s for a word.
#[test]
#[cfg(unix)]
fn connections_beyond_the_limit_of_open_files_are_told_so() {
    let folder = folder_with(STAND_IN);
    let log = folder.path().join("log");
    let limited = |soft: u32, hard: u32, more: &[&str]| {
        let server = uncork(folder.path(), &[&["serve", "--http", "127.0.0.1:0"], more].concat());
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("ulimit -Sn {soft}; ulimit -Hn {hard}; exec \"$0\" \"$@\"")])
            .current_dir(folder.path());
        command.arg(server.get_program()).args(server.get_args());
        for (name, _) in server.get_envs().filter(|(_, value)| value.is_none()) {
            command.env_remove(name);
        }
        Serving::start_logging_to(fs::File::create(&log).unwrap(), command)
    };
    let serving = limited(256, 400, &[]);
    let told = fs::read_to_string(&log).unwrap();
    assert!(told.contains("the limit of open files is 400: no more than 50 connections are taken"), "{told}");
    let open: Vec<TcpStream> = (0..50).map(|_| serving.connect()).collect();
    let mut answer = String::new();
    serving.connect().read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("all 50 connections are taken"), "{answer}");
    drop(open);

    // Those that are told so leave descriptors for what else there is to do, however few there are.
    let socket = folder.path().join("admin");
    let serving = limited(64, 64, &["--admin", &format!("unix:{}", socket.display())]);
    let open: Vec<TcpStream> = (0..8).map(|_| serving.connect()).collect();
    let mut refused: Vec<TcpStream> = (0..100).map(|_| serving.connect()).collect();
    for _ in 0..5 {
        let mut operator = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        operator.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        operator.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("uncork_http_connections"), "{answer}");
    }
    for refused in &mut refused {
        let mut answer = String::new();
        refused.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    }
    let told = fs::read_to_string(&log).unwrap();
    assert!(!told.contains("cannot accept connections"), "{told}");
    drop(open);
}

#[test]
fn a_second_signal_stops_at_once() {
    let folder = folder_with(&format!("[server]\ndrain_delay_ms = 3600000\n{STAND_IN}"));
    let mut serving = Serving::start(uncork(folder.path(), &["serve", "--http", "127.0.0.1:0"]));
    serving.signal("TERM");
    let begin = Instant::now();
    while serving.get("/v2/health/ready").starts_with("HTTP/1.1 200") {
        assert!(begin.elapsed() < HANGS, "it stays ready");
    }
    assert!(
        serving.get("/v2/health/live").starts_with("HTTP/1.1 200"),
        "it goes on for as long as drain_delay_ms says"
    );
    serving.signal_until_it_ends("TERM");
    assert_eq!(serving.end().0.code(), Some(143));
}

#[test]
fn a_signal_to_the_process_and_again_to_its_group_is_one() {
    let folder = folder_with(&format!("{STAND_IN}max_latency_ms = 20_000\n"));
    let serving = Serving::start(uncork(folder.path(), &["serve", "--http", "127.0.0.1:0"]));
    let in_flight = begin_infer(&serving, INFER);
    // As GNU's timeout does, and so often that some come behind the first and are not one with it for the system.
    let ids = vec![serving.child.id().to_string(); 500];
    let sent = Command::new("kill").args(["-s", "TERM"]).args(ids).status().unwrap();
    assert!(sent.success());
    serving.accepts_nobody_any_more();
    assert_is_answered(in_flight);
    assert_eq!(serving.end().0.code(), Some(0));
}

#[test]
fn a_flood_of_refusals_is_one_line_of_json_that_names_a_request_and_its_trace() {
    let folder = folder_with(STAND_IN);
    let log = folder.path().join("log");
    let mut command = uncork(folder.path(), &["serve", "--http", "127.0.0.1:0"]);
    // Nobody listens there any more: what becomes of the traces is no matter for these lines.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    command.env("UNCORK_LOG_FORMAT", "json").env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{gone}"));
    let begin = Instant::now();
    let serving = Serving::start_logging_to(fs::File::create(&log).unwrap(), command);
    let body = json!({"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1.0]}],
                      "parameters": {"timeout": 1}})
    .to_string();
    let length = body.len();
    for i in 0..50 {
        let mut stream = serving.connect();
        let head =
            format!("POST /v2/models/dry-run/infer HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Request-Id: n{i}");
        write!(stream, "{head}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 503") && answer.contains(&format!("\r\nx-request-id: n{i}\r\n")),
            "{answer}"
        );
    }
    let took = begin.elapsed();
    serving.signal("TERM");
    assert!(serving.end().0.success());
    let lines = fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let refusals: Vec<&Value> = lines.iter().filter(|line| line["reason"] == "own_deadline").collect();
    assert!(!refusals.is_empty() && refusals.len() as u64 <= 1 + took.as_secs() / 5, "{refusals:?}");
    let first = refusals[0];
    assert_eq!((&first["level"], &first["model"], &first["status"]), (&json!("WARN"), &json!("dry-run"), &json!(503)));
    assert_eq!(first["request_id"], "n0");
    assert!(first["message"].as_str().unwrap().contains("past the deadline"), "{first}");
    let is_id = |id: &Value, digits| id.as_str().is_some_and(|id| id.len() == digits);
    assert!(is_id(&first["trace_id"], 32) && is_id(&first["span_id"], 16), "{first}");
}

#[test]
fn shells_and_manuals_know_every_command() {
    let folder = Folder::new();
    let (code, pages, _) = output(uncork(folder.path(), &["man", "pages"]));
    assert_eq!((code, pages.as_str()), (0, "the manual is in pages\n"));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, script, _) = output(uncork(folder.path(), &["completions", shell]));
        assert_eq!(code, 0);
        for command in ["completions", "loadtest", "man", "profile", "serve", "simulate", "validate"] {
            assert!(script.contains(command), "{shell} does not know {command}");
            let page = fs::read_to_string(folder.path().join(format!("pages/uncork-{command}.1"))).unwrap();
            assert!(page.contains(&format!("uncork\\-{command} \\- ")), "{page}");
        }
    }
    let (code, _, error) = output(uncork(folder.path(), &["man", "uncork.toml/x"]));
    assert_eq!((code, error.is_empty()), (0, true), "a folder that is not there is made");
    fs::write(folder.path().join("file"), "").unwrap();
    let (code, _, error) = output(uncork(folder.path(), &["man", "file"]));
    assert_eq!(code, 3);
    assert!(error.starts_with("cannot write manual pages into file: "), "{error}");
}
