//! What `uncork loadtest` promises, against servers that behave badly in known ways. How fast anything is is nowhere assumed.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::folder::Folder;
use serde_json::{Value, json};

/// What a stand-in does with a request.
enum Reply {
    Answer(u16, String),
    /// It closes the connection.
    Nothing,
    /// It keeps the connection and says nothing for as long as the caller waits.
    Silence,
}

fn good() -> Reply {
    Reply::Answer(200, json!({"outputs": [{"name": "y", "shape": [1], "datatype": "FP32", "data": [1.0]}]}).to_string())
}

/// A server of the model `m` whose requests are answered by a function of their number, from 0, and body.
struct StandIn {
    address: SocketAddr,
    asked: Arc<AtomicU64>,
}

impl StandIn {
    fn start(reply: impl Fn(u64, &str) -> Reply + Send + Sync + 'static) -> StandIn {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, asked, reply) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)), Arc::new(reply));
        let count = Arc::clone(&asked);
        // It ends with the process of the test.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (reply, count) = (Arc::clone(&reply), Arc::clone(&count));
                thread::spawn(move || serve(&stream.unwrap(), &*reply, &count));
            }
        });
        StandIn { address, asked }
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Answers one connection's requests until it ends.
fn serve(stream: &TcpStream, reply: &(dyn Fn(u64, &str) -> Reply + Send + Sync), asked: &AtomicU64) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let reply = if first.starts_with("GET /v2/models/m ") {
            let input = json!({"name": "x", "datatype": "FP32", "shape": [-1, 3]});
            Reply::Answer(200, json!({"name": "m", "inputs": [input], "outputs": []}).to_string())
        } else if first.starts_with("GET /metrics") || first.contains("/repository/") {
            Reply::Answer(404, json!({"error": "there is nothing"}).to_string())
        } else {
            reply(asked.fetch_add(1, Ordering::SeqCst), &String::from_utf8(body).unwrap())
        };
        match reply {
            Reply::Answer(status, body) => {
                let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", body.len());
                // The caller may have had enough of waiting.
                let _ = (&mut &*stream).write_all((head + &body).as_bytes());
            }
            Reply::Nothing => return,
            Reply::Silence => {
                let _ = reader.read(&mut [0]);
                return;
            }
        }
    }
}

fn loadtest(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uncork"));
    command.current_dir(folder).arg("loadtest").args(arguments).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit code, stdout and stderr.
fn output(mut command: Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().expect("it ended by itself"), text(stdout), text(stderr))
}

/// Runs against a stand-in, without a warm-up so that both count the same: exit code and JSON.
fn run(stand_in: &StandIn, arguments: &[&str]) -> (i32, Value) {
    let url = stand_in.url();
    let all = [&[&url, "--model", "m", "--warm-up", "0", "--json", "-"], arguments].concat();
    let (code, stdout, stderr) = output(loadtest(Folder::new().path(), &all));
    (code, serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}")))
}

fn count(report: &Value, pointer: &str) -> u64 {
    report.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {pointer} in {report:#}"))
}

#[test]
fn a_slow_server_misses_by_so_much_and_the_exit_code_says_so() {
    let stand_in = StandIn::start(|_, _| {
        thread::sleep(Duration::from_millis(60));
        good()
    });
    let url = stand_in.url();
    let folder = Folder::new();
    let arguments = [&url, "--model", "m", "--rate", "50", "--for", "1s", "--slo", "p50<=5ms", "--junit", "j.xml"];
    let (code, stdout, stderr) = output(loadtest(folder.path(), &arguments));
    assert_eq!(code, 1, "{stdout}{stderr}");
    let verdict = stdout.lines().last().unwrap();
    assert!(verdict.starts_with("FAIL p50 ") && verdict.contains(" ms <= 5 ms: "), "{verdict}");
    assert!(verdict.contains("ms too slow") && verdict.contains("times the bound"), "{verdict}");
    let junit = fs::read_to_string(folder.path().join("j.xml")).unwrap();
    assert!(junit.contains("failures=\"1\"") && junit.contains("p50&lt;=5ms"), "{junit}");
}

#[test]
fn refusals_are_data_and_not_fast_answers() {
    let refusal = || Reply::Answer(503, json!({"error": "the queue is full: 12 of 12 rows"}).to_string());
    let stand_in = StandIn::start(move |n, _| if n % 10 == 9 { refusal() } else { good() });
    let slos = ["--slo", "refused<=5%", "--slo", "p95<=9s", "--slo", "errors<=0%"];
    let (code, report) = run(&stand_in, &[&["--rate", "200", "--for", "1s"], &slos[..]].concat());
    let (requests, refused) = (count(&report, "/requests"), count(&report, "/refused"));
    assert_eq!((requests, refused), (stand_in.asked(), stand_in.asked() / 10), "{report:#}");
    assert_eq!(count(&report, "/statuses/503"), refused);
    assert_eq!(count(&report, "/reasons/503 the queue is full: N of N rows"), refused);
    assert_eq!(code, 1);
    let met = |i: usize| report["objectives"][i]["met"].as_bool().unwrap();
    // A tenth had no answer, so the 95th percentile never came.
    assert!(!met(0) && !met(1) && met(2), "{report:#}");
    assert_eq!(report["latency_ms"]["p95"], Value::Null);
}

#[test]
fn wrong_answers_are_counted() {
    // The answer to {"x": n} is n and a little noise, but 10 times that for every multiple of 5.
    let stand_in = StandIn::start(|_, body| {
        let x = serde_json::from_str::<Value>(body).unwrap()["x"].as_f64().unwrap();
        let y = if x % 5.0 == 0.0 { 10.0 * x } else { x + 1e-6 };
        Reply::Answer(200, json!({"id": "7", "outputs": [{"data": [y]}]}).to_string())
    });
    let folder = Folder::new();
    let line = |x: u64| json!({"request": {"x": x}, "answer": {"outputs": [{"data": [x]}]}}).to_string() + "\n";
    fs::write(folder.path().join("bodies.jsonl"), (1..=20).map(line).collect::<String>()).unwrap();
    let url = stand_in.url();
    let all = ["--rate", "200", "--for", "1s", "--warm-up", "0", "--json", "-", "--slo", "wrong<=0%"];
    let arguments = [&[&url, "--model", "m", "--body", "bodies.jsonl"], &all[..]].concat();
    let (code, stdout, stderr) = output(loadtest(folder.path(), &arguments));
    let report: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}"));
    let (requests, wrong) = (count(&report, "/requests"), count(&report, "/errors/wrong"));
    assert_eq!((code, wrong), (1, requests / 5), "{report:#}");
}

/// The error that a generator makes which waits for answers, or counts from when it got round to sending: it asks little
/// while the server stalls, and then calls the stall a few slow answers.
#[test]
fn a_stall_is_seen_by_every_request_that_was_due_in_it() {
    let one_at_a_time = Mutex::new(());
    let stand_in = StandIn::start(move |n, _| {
        let _turn = one_at_a_time.lock().unwrap();
        if n == 100 {
            thread::sleep(Duration::from_millis(300));
        }
        good()
    });
    // 200 a second for 2 seconds: 60 are due in the stall, of which 40 have to wait for more than 100 ms, on 4 connections.
    let load = ["--rate", "200", "--arrivals", "uniform", "--for", "2s", "--connections", "4", "--slo", "max<=100ms"];
    let (code, report) = run(&stand_in, &[&load[..], &["--slo", "on-time:100ms>=99.9%"]].concat());
    assert_eq!(code, 1, "{report:#}");
    assert!((399..=400).contains(&count(&report, "/requests")), "{report:#}");
    let on_time = report["objectives"][1]["measured"].as_f64().unwrap();
    assert!(on_time <= 1.0 - 38.0 / 400.0, "only {on_time} were late: {report:#}");
    // Those on the four connections are all that a generator sees that counts from sending: half of the requests saw nothing.
    let p50 = |of: &str| report[of]["p50"].as_f64().unwrap();
    assert!(p50("good_latency_from_sending_ms") <= p50("good_latency_ms"), "{report:#}");
    assert!(report["good_latency_ms"]["max"].as_f64().unwrap() >= 290.0, "{report:#}");
}

#[test]
fn broken_connections_and_silence_are_counted_and_do_not_end_the_run() {
    let stand_in = StandIn::start(|n, _| match n % 10 {
        3 => Reply::Nothing,
        7 => Reply::Silence,
        _ => good(),
    });
    let (code, report) = run(&stand_in, &["--rate", "100", "--for", "1s", "--timeout", "2s", "--slo", "errors<=1%"]);
    let asked = stand_in.asked();
    let tenth = asked / 10..=asked / 10 + 1;
    assert_eq!((code, count(&report, "/requests")), (1, asked), "{report:#}");
    assert!(tenth.contains(&count(&report, "/errors/connection_broke")), "{report:#}");
    assert!(count(&report, "/errors/timed_out") >= *tenth.start(), "{report:#}");
    assert!(count(&report, "/errors/timed_out") <= count(&report, "/errors/all"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_limit_of_open_files_is_raised_and_where_it_cannot_be_the_miss_is_not_the_servers() {
    let folder = Folder::new();
    for (limit, code, words) in [("-Sn", 1, "FAIL"), ("-n", 2, "INCONCLUSIVE the system allowed no open files")] {
        let stand_in = StandIn::start(|_, _| Reply::Silence);
        let mut command = Command::new("sh");
        let words_of_shell = format!("ulimit {limit} 64 && exec \"$0\" loadtest \"$@\"");
        command.current_dir(folder.path()).args(["-c", &words_of_shell, env!("CARGO_BIN_EXE_uncork"), &stand_in.url()]);
        command.args(["--model", "m", "--closed-loop", "100", "--for", "1s", "--warm-up", "0", "--timeout", "500ms"]);
        let (have, stdout, stderr) = output({
            command.args(["--slo", "errors<=0%"]).stdin(Stdio::null());
            command
        });
        let last = stdout.lines().last().unwrap_or_default();
        assert!(have == code && last.starts_with(words), "{limit}: {stdout}{stderr}");
        assert_eq!(stdout.contains("no open files for more than"), code == 2, "{limit}: {stdout}");
    }
}

#[test]
fn what_cannot_be_sent_in_time_is_counted_and_not_skipped() {
    let stand_in = StandIn::start(|_, _| Reply::Silence);
    let load = ["--rate", "100", "--arrivals", "uniform", "--for", "1s", "--timeout", "300ms", "--connections", "1"];
    let (code, report) = run(&stand_in, &[&load[..], &["--slo", "errors<=0%"]].concat());
    assert_eq!(code, 1, "{report:#}");
    let (never_sent, all) = (count(&report, "/errors/never_sent"), count(&report, "/requests"));
    assert!((99..=100).contains(&all), "{report:#}");
    assert_eq!(count(&report, "/errors/all"), all);
    assert_eq!(never_sent + stand_in.asked(), all, "{report:#}");
}

#[test]
fn a_run_that_is_interrupted_tells_what_it_saw_and_no_verdict() {
    let (tell, asked) = mpsc::channel();
    let tell = Mutex::new(tell);
    let stand_in = StandIn::start(move |n, _| {
        if n == 20 {
            tell.lock().unwrap().send(()).unwrap();
        }
        good()
    });
    let url = stand_in.url();
    let folder = Folder::new();
    let arguments = [&url, "--model", "m", "--rate", "100", "--for", "10m", "--warm-up", "0", "--slo", "p50<=5s"];
    let child = loadtest(folder.path(), &arguments).spawn().unwrap();
    asked.recv_timeout(Duration::from_secs(60)).unwrap();
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let Output { status, stdout, .. } = child.wait_with_output().unwrap();
    let stdout = String::from_utf8(stdout).unwrap();
    assert_eq!(status.code(), Some(2), "{stdout}");
    assert!(stdout.lines().last().unwrap().starts_with("INCONCLUSIVE it was ended early"), "{stdout}");
    assert!(stdout.contains("good answers"), "{stdout}");
}

/// They were left out, so that a server which hangs looked well.
#[test]
fn what_hangs_is_told_of_where_a_run_is_interrupted() {
    let (tell, asked) = mpsc::channel();
    let tell = Mutex::new(tell);
    let stand_in = StandIn::start(move |n, _| {
        if n == 40 {
            tell.lock().unwrap().send(()).unwrap();
        }
        if n < 10 { good() } else { Reply::Silence }
    });
    let url = stand_in.url();
    let folder = Folder::new();
    // At most some 30 requests hang, for 0.3 s the first of them.
    let arguments = [&url, "--model", "m", "--rate", "100", "--for", "10m", "--warm-up", "0", "--json", "-"];
    let child = loadtest(folder.path(), &[&arguments[..], &["--slo", "p90<=50ms"]].concat()).spawn().unwrap();
    asked.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let Output { status, stdout, .. } = child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&stdout).unwrap();
    assert_eq!((status.code(), count(&report, "/good")), (Some(2), 10), "{report:#}");
    let under_way = count(&report, "/still_under_way");
    assert!(under_way >= 30 && count(&report, "/requests") == under_way + 10, "{report:#}");
    assert_eq!(report["objectives"][0]["met"], false, "{report:#}");
    let words = format!("it was ended early, with {under_way} requests under way, the oldest of them due ");
    assert!(report["verdict_line"].as_str().unwrap().contains(&words), "{report:#}");
}

/// A run of `arguments` in a terminal of 80 columns and 24 lines, which is interrupted once `seen` is in it, or not at all; and
/// what the terminal got. Second: whether it showed what was typed, and let Ctrl-Z stop who runs in it, at that moment and in the end.
#[cfg(target_os = "linux")]
fn in_a_terminal(arguments: &[&str], variables: &[(&str, &str)], seen: Option<&str>) -> (String, [[bool; 2]; 2]) {
    use nix::pty::{Winsize, openpty};
    use nix::sys::termios::{LocalFlags, SpecialCharacterIndices, tcgetattr};

    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let terminal = openpty(&size, None).unwrap();
    let folder = Folder::new();
    let mut command = loadtest(folder.path(), arguments);
    for unset in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
        command.env_remove(unset);
    }
    command.env("TERM", "xterm").envs(variables.iter().copied());
    command.stdout(terminal.slave.try_clone().unwrap()).stderr(terminal.slave);
    let mut child = command.spawn().unwrap();
    drop(command);
    let heeds_keys = || {
        let now = tcgetattr(&terminal.master).unwrap();
        [now.local_flags.contains(LocalFlags::ECHO), now.control_chars[SpecialCharacterIndices::VSUSP as usize] != 0]
    };
    let (mut master, mut got, mut heeded) =
        (fs::File::from(terminal.master.try_clone().unwrap()), Vec::new(), [true; 2]);
    let mut buffer = [0; 4096];
    let mut is_told = seen.is_none();
    // When nobody has the other end any more, reading fails.
    while let Ok(bytes @ 1..) = master.read(&mut buffer) {
        got.extend_from_slice(&buffer[..bytes]);
        if !is_told && seen.is_some_and(|seen| String::from_utf8_lossy(&got).contains(seen)) {
            is_told = true;
            heeded = heeds_keys();
            assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        }
    }
    let text = String::from_utf8(got).unwrap();
    assert!(is_told, "no {seen:?} in {text}");
    child.wait().unwrap();
    (text, [heeded, heeds_keys()])
}

#[cfg(target_os = "linux")]
#[test]
fn a_terminal_shows_charts_and_has_the_report_on_its_own_screen_after_ctrl_c() {
    let stand_in = StandIn::start(|_, _| good());
    let url = stand_in.url();
    let arguments = [&url[..], "--model", "m", "--rate", "100", "--for", "30s", "--slo", "p50<=5s"];
    let (text, heeded) = in_a_terminal(&arguments, &[], Some("highest"));
    let (picture, rest) = text.split_once("\x1b[?1049h").unwrap().1.split_once("\x1b[?1049l").unwrap();
    for part in ["answers/s", "p99 ms", "refused/s", "batch rows", "warming", "due/s"] {
        assert!(picture.contains(part), "no {part:?} in {picture:?}");
    }
    assert_eq!(heeded, [[false; 2], [true; 2]], "keys do nothing to the picture, and work as ever after it");
    assert!(rest.contains("\x1b[?25h"), "the cursor is seen again: {rest:?}");
    assert!(rest.contains("good answers") && rest.contains("it was ended early"), "{rest:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_terminal_that_is_to_be_plain_gets_no_codes() {
    let stand_in = StandIn::start(|_, _| good());
    let url = stand_in.url();
    let arguments = [&url[..], "--model", "m", "--rate", "100", "--for", "1s", "--warm-up", "0"];
    for plain in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let (text, _) = in_a_terminal(&arguments, &[plain], None);
        assert!(!text.contains('\x1b') && text.contains("DONE"), "{plain:?}: {text:?}");
    }
    let (log, _) = in_a_terminal(&arguments, &[("CI", "true")], None);
    assert!(!log.contains("\x1b[?1049h") && log.contains("DONE"), "{log:?}");
}

#[test]
fn the_highest_rate_is_searched_for_and_tried_again() {
    let one_at_a_time = Mutex::new(());
    // At most 250 a second can be answered, whatever the machine.
    let stand_in = StandIn::start(move |_, _| {
        let _turn = one_at_a_time.lock().unwrap();
        thread::sleep(Duration::from_millis(4));
        good()
    });
    let search = ["--find-max-rate", "--rate", "20", "--for", "1s", "--resolution", "0.3", "--slo", "p80<=150ms"];
    let (code, report) = run(&stand_in, &search);
    let trials = report["trials"].as_array().unwrap();
    assert_eq!(report["kind"], "search");
    if code == 0 {
        let rate = report["max_rate"].as_f64().unwrap();
        // In a second, a queue that grows by 50 a second is not yet too long.
        assert!((5.0..=400.0).contains(&rate), "{report:#}");
        let of_winner = trials.iter().filter(|trial| trial["rate"].as_f64() == Some(rate)).count();
        assert!(of_winner == 2 || trials.len() > 5, "{report:#}");
    } else {
        assert_ne!(code, 3, "{report:#}");
    }
    assert!(trials.iter().any(|trial| trial["trial_verdict"] != "met"), "{report:#}");
}

#[test]
fn a_sweep_measures_each_of_its_rates() {
    let stand_in = StandIn::start(|_, _| good());
    let (code, report) = run(&stand_in, &["--sweep", "20..60", "--steps", "3", "--for", "1s"]);
    assert_eq!(code, 0, "{report:#}");
    let rates: Vec<f64> =
        report["trials"].as_array().unwrap().iter().map(|trial| trial["rate"].as_f64().unwrap()).collect();
    assert_eq!(rates, [20.0, 40.0, 60.0]);
}

#[test]
fn callers_in_a_closed_loop_have_one_request_each_under_way() {
    let under_way = Arc::new(AtomicU64::new(0));
    let most = Arc::new(AtomicU64::new(0));
    let (now, highest) = (Arc::clone(&under_way), Arc::clone(&most));
    let stand_in = StandIn::start(move |_, _| {
        highest.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(20));
        now.fetch_sub(1, Ordering::SeqCst);
        good()
    });
    let (code, report) = run(&stand_in, &["--closed-loop", "3", "--for", "1s"]);
    assert_eq!((code, count(&report, "/errors/all")), (0, 0), "{report:#}");
    assert_eq!(most.load(Ordering::SeqCst), 3);
    assert_eq!(count(&report, "/requests"), stand_in.asked());
}

#[test]
fn a_request_written_by_hand_reaches_any_path() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&seen);
    let stand_in = StandIn::start(move |_, body| {
        keep.lock().unwrap().push(body.to_owned());
        good()
    });
    let folder = Folder::new();
    fs::write(folder.path().join("r.http"), "PUT /any/{{i}}\nX-A: b\n\nnumber {{i}} {{random:5..5}}\n").unwrap();
    let url = stand_in.url();
    let arguments = [&url, "--request", "r.http", "--rate", "50", "--for", "1s", "--quiet"];
    let (code, stdout, stderr) = output(loadtest(folder.path(), &arguments));
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
    let mut seen = seen.lock().unwrap().clone();
    let all = seen.len();
    assert!(seen.iter().all(|body| body.starts_with("number ") && body.ends_with(" 5")), "{seen:?}");
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), all, "each has its own number");
}

#[test]
fn the_page_stands_alone_and_names_what_it_shows() {
    let stand_in = StandIn::start(|_, _| Reply::Answer(503, json!({"error": "<script>alert(1)</script>"}).to_string()));
    let folder = Folder::new();
    let url = stand_in.url();
    let arguments = [&url, "--model", "m", "--rate", "50", "--for", "1s", "--slo", "p99<=1s", "--html", "page.html"];
    let (code, stdout, stderr) = output(loadtest(folder.path(), &arguments));
    assert_eq!(code, 1, "{stdout}{stderr}");
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    for word in ["<script>alert", "<script ", "src=", "href=", "url(", "@import", "fetch("] {
        assert!(!page.contains(word), "{word} in the page");
    }
    assert_eq!(page.matches("<script").count(), 1, "its own, for the pointer");
    assert!(page.contains("data-values=\""), "what the pointer is told");
    for word in
        ["FAIL", "p99", "prefers-color-scheme: dark", "width=device-width", "Latency over time", "&lt;script&gt;"]
    {
        assert!(page.contains(word), "no {word} in the page");
    }
}

#[test]
fn a_server_that_dies_has_failed_without_objectives_too() {
    let folder = Folder::new();
    let loose = &["--slo", "p10<=5s"][..];
    for (dies, slo, code, words) in [
        (true, &[][..], 1, "FAIL the server was gone at the end"),
        (true, loose, 1, "FAIL the server was gone at the end"),
        (false, &[], 0, "DONE no objectives"),
    ] {
        // Its last good answer is in the middle of the run; from then on it hangs up.
        let stand_in = StandIn::start(move |asked, _| if dies && asked > 40 { Reply::Nothing } else { good() });
        let url = stand_in.url();
        let arguments = [&[&url, "--model", "m", "--rate", "50", "--for", "3s", "--warm-up", "0s"], slo].concat();
        let (have, stdout, stderr) = output(loadtest(folder.path(), &arguments));
        assert_eq!(have, code, "{stdout}{stderr}");
        assert!(stdout.lines().last().unwrap().starts_with(words), "{stdout}");
        assert!(!stdout.contains('\x1b'), "colours in a pipe");
    }
}

/// It passed where no objective spoke of refusals, and where there was none.
#[test]
fn a_server_that_refuses_everything_has_failed_and_every_report_says_why() {
    let folder = Folder::new();
    let stand_in = StandIn::start(|_, _| Reply::Answer(503, json!({"error": "full"}).to_string()));
    let url = stand_in.url();
    for slo in [&[][..], &["--slo", "errors<=1%"], &["--slo", "p99<=9s"]] {
        let usual = [&url, "--model", "m", "--rate", "50", "--for", "1s", "--warm-up", "0s", "-q"];
        let files = ["--json", "r.json", "--junit", "r.xml"];
        let (code, stdout, stderr) = output(loadtest(folder.path(), &[&usual[..], &files, slo].concat()));
        let why = "not one request was answered well: refused with 503 full (";
        assert!(code == 1 && stdout.starts_with(&format!("FAIL {why}")), "{slo:?}: {code} {stdout}{stderr}");
        let read = |file| fs::read_to_string(folder.path().join(file)).unwrap();
        let report: Value = serde_json::from_str(&read("r.json")).unwrap();
        assert!(report["failed_because"].as_str().is_some_and(|told| told.starts_with(why)), "{slo:?}: {report:#}");
        let junit = read("r.xml");
        assert!(junit.contains(&format!("<failure message=\"{why}")) || slo.is_empty(), "{slo:?}: {junit}");
        assert!(!junit.contains("failures=\"0\""), "{slo:?}: {junit}");
    }
}

/// The very URL is asked as it is written; no report has what is in its query.
#[test]
fn a_url_is_asked_as_it_is_written_and_shown_without_its_secrets() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, asked) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            for line in BufReader::new(&stream).lines().map_while(Result::ok) {
                if line.is_empty() {
                    (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
                } else if line.starts_with("GET ") {
                    let _ = tell.send(line);
                }
            }
        }
    });
    let folder = Folder::new();
    fs::write(folder.path().join("arrivals.csv"), "0\n0.1\n0.2\n").unwrap();
    let url = format!("http://{address}/predict/?key=Sesame&next=/a/");
    for flag in ["--json", "--html", "--junit"] {
        let arguments = [&url, "--get", "--arrivals", "-", "--warm-up", "0s", flag, "-"];
        let mut command = loadtest(folder.path(), &arguments);
        command.stdin(fs::File::open(folder.path().join("arrivals.csv")).unwrap());
        let (code, stdout, stderr) = output(command);
        assert_eq!(
            (code, asked.recv().unwrap().as_str()),
            (0, "GET /predict/?key=Sesame&next=/a/ HTTP/1.1"),
            "{stderr}"
        );
        assert!(stdout.starts_with(['{', '<']) && !stdout.contains("Sesame"), "{flag}: {stdout}");
        assert!(flag != "--json" || stdout.contains("the arrivals of stdin"), "{stdout}");
        while asked.try_recv().is_ok() {}
    }
    assert!(!folder.path().join("-").exists());
}

#[test]
fn wrong_usage_and_dead_servers_are_told_with_what_to_do() {
    let folder = Folder::new();
    let stand_in = StandIn::start(|_, _| good());
    let url = stand_in.url();
    // Bound and dropped: nobody listens there.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let path_of_nobody = format!("{nobody}/a?key=hidden");
    fs::write(folder.path().join("two.http"), "GET /a\n\nGET /b\n").unwrap();
    fs::write(folder.path().join("binary.http"), b"POST /a\n\n\xff\xfe").unwrap();
    for (arguments, words) in [
        (&["--rate", "5"][..], "URL"),
        (&[&nobody, "--rate", "5"], "is the server up?"),
        (&["unix:/no/such.sock", "--rate", "5"], "no connection to the socket (/no/such.sock: "),
        (&[&url, "--as", "grpc", "--rate", "5"], "give --model"),
        // Who means no model of an inference server is told how to ask for anything else.
        (
            &[&url, "--rate", "5"],
            "give --model, or say what to send to a server without any: --get, --request FILE, or --body FILE",
        ),
        // What is wrong with flags and files is told before anybody is asked.
        (&[&nobody, "--model", "m", "--rate", "5", "--body", "no-such"], "no-such cannot be read"),
        (&[&nobody, "--rate", "5", "--request", "no-such"], "no-such cannot be read"),
        (&[&nobody, "--rate", "5", "--request", "two.http"], "'GET /b' would be sent as part of the body"),
        (&[&nobody, "--rate", "5", "--request", "binary.http"], "--body FILE sends a body of any bytes"),
        (&[&path_of_nobody, "--rate", "5"], "/a?key=*** is a path of its own"),
        (&[&nobody, "--rate", "5", "--html", "-", "--json", "-"], "both write to stdout"),
        (&["ftp://127.0.0.1", "--rate", "5"], "neither http nor https"),
        (&[&url, "--model", "m"], "--rate is missing"),
        (&[&url, "--rate", "5"], "--model is missing"),
        (&[&url, "--rate", "5"], "/v2/repository/index was answered 404 (there is nothing)"),
        (&[&url, "--model", "m", "--rate", "5", "--body", "{}"], "give the name of a file that has it"),
        (&[&url, "--model", "other", "--rate", "5"], "answered 200"),
        (&[&url, "--model", "m", "--rate", "5", "--slo", "p99<=5"], "write us, ms or s"),
        (&[&url, "--model", "m", "--rate", "5", "--slo", "on-time>=99%"], "--deadline 50ms"),
        (&[&url, "--model", "m", "--rate", "5", "--slo", "wrong<=0%"], "no answer is compared with anything"),
        (&[&url, "--model", "m", "--rate", "5", "--find-max-rate"], "needs an objective"),
        (
            &[&url, "--model", "m", "--find-max-rate", "--max-rate", "90", "--for", "1s", "--slo", "errors<=0.1%"],
            "run for longer with --for",
        ),
        (&[&url, "--model", "m", "--rate", "5", "--steps", "3"], "--sweep"),
        (&[&url, "--model", "m", "--rate", "5", "--max-rate", "3"], "--find-max-rate"),
        (&[&url, "--model", "m", "--rate", "5", "--timeout", "1s", "--slo", "p90<=2s"], "raise it beyond"),
        (&[&url, "--model", "m", "--sweep", "5..1"], "must rise"),
        (&[&url, "--model", "m", "--rate", "5", "--mmpp", "1..5"], "leave --rate out"),
        (&[&url, "--model", "m", "--quiet-then-burst", "1..5:20s"], "what begins at 20 s is not within --for 10 s"),
        (&[&url, "--model", "m", "--flash", "1..5:3..4", "--for", "2s"], "what begins at 3 s is not within --for 2 s"),
        (&[&url, "--model", "m", "--closed-loop", "5", "--find-max-rate", "--slo", "p9<=1s"], "changes the rate"),
        (&[&url, "--model", "m", "--rate", "5", "--arrivals", "no-such"], "no such file"),
        (&[&url, "--model", "m", "--rate", "5", "--body", "no-such"], "cannot be read"),
        (&[&url, "--model", "m", "--rate", "5", "--shape", "z:3"], "no such input"),
        (&[&url, "--model", "m", "--rate", "5", "--body", "b", "--shape", "x:3"], "cannot be used with"),
        (&[&url, "--model", "m", "--rate", "5", "--body", "b", "--rows", "3"], "cannot be used with"),
        (&[&url, "--model", "m", "--rate", "5", "--html", "no/such/folder.html"], "no folder"),
    ] {
        let (code, stdout, stderr) = output(loadtest(folder.path(), arguments));
        // The stand-in answers everything, so an unknown model fails by what is in the answer.
        let words = if words == "answered 200" { "Open Inference Protocol" } else { words };
        assert_eq!((code, stdout.as_str()), (3, ""), "{arguments:?}: {stderr}");
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
    }
}

#[test]
fn uncorks_own_model_is_found_and_its_batches_are_told() {
    let folder = Folder::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_uncork"));
    command.current_dir(folder.path()).args(["serve", "--http", "127.0.0.1:0"]).stdin(Stdio::null());
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let url = ready.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
    let slos = ["--slo", "p10<=9s", "--slo", "errors<=50%", "--slo", "on-time>=0%"];
    let arguments = [&[&url, "--rate", "100", "--for", "1s", "--json", "-", "--rows", "1..3"], &slos[..]].concat();
    let (code, stdout, stderr) = output(loadtest(folder.path(), &arguments));
    let _ = server.kill();
    let _ = server.wait();
    let report: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}"));
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(report["model"], "digits");
    assert!(count(&report, "/good_rows") > count(&report, "/good"), "{report:#}");
    assert!(report["mean_batch_rows"].as_f64().unwrap() >= 1.0, "{report:#}");
    assert!(!report["batches"].as_array().unwrap().is_empty(), "{report:#}");
}

#[test]
fn reports_say_where_they_come_from_and_two_are_compared() {
    let folder = Folder::new();
    let whole = StandIn::start(|_, _| good());
    let third = StandIn::start(|i, _| if i % 3 == 0 { Reply::Answer(500, "{}".into()) } else { good() });
    for (stand_in, file) in [(&whole, "a.json"), (&third, "b.json")] {
        let url = stand_in.url();
        let flags = [
            "--model",
            "m",
            "--warm-up",
            "0",
            "--rate",
            "40",
            "--for",
            "1s",
            "--seed",
            "7",
            "--header",
            "X-Key: hidden",
        ];
        let (code, _, error) = output(loadtest(folder.path(), &[&[&url, "--json", file][..], &flags].concat()));
        assert_eq!(code, 0, "{error}");
        let text = fs::read_to_string(folder.path().join(file)).unwrap();
        assert!(!text.contains("hidden"), "{text}");
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&report["made"]["seed"], &report["made"]["version"]),
            (&json!(7), &json!(env!("CARGO_PKG_VERSION")))
        );
    }
    let (code, told, error) = output(loadtest(folder.path(), &["--compare", "a.json", "b.json"]));
    assert_eq!((code, error.as_str()), (0, ""));
    let line = told.lines().find(|line| line.starts_with("answered well")).unwrap_or_else(|| panic!("{told}"));
    assert!(line.contains("100.00 %") && line.contains("points"), "{line}");
    let words = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("that takes 8 stretches of a timeline on each side, and one has "), "{told}");
    let (code, _, error) = output(loadtest(folder.path(), &["--compare", "a.json", "no.json"]));
    assert_eq!(code, 3);
    assert!(error.starts_with("no.json cannot be read: "), "{error}");
}
