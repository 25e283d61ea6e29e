//! SIGHUP: a server that reads its configuration again while it is asked.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{ChildStderr, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use serde_json::Value;

use crate::folder::Folder;
use crate::program::{INFER, Serving, folder_with, output, uncork};

/// It refuses nobody, however busy the machine is.
const STAND_IN: &str =
    "[[model]]\nname = 'dry-run'\nsynthetic = { base_ms = 1.0, per_row_ms = 0.05 }\nmax_latency_ms = 20000\n";
const APPLIED: &str = "the settings are applied";
const REFUSED: &str = "nothing is changed";

/// A server, and its log as it is written.
struct Logging {
    serving: Arc<Serving>,
    log: Lines<BufReader<ChildStderr>>,
}

impl Logging {
    fn start(folder: &Folder, arguments: &[&str]) -> Logging {
        let arguments = [&["serve", "--http", "127.0.0.1:0"], arguments].concat();
        let mut serving = Serving::start_logging_to(Stdio::piped(), uncork(folder.path(), &arguments));
        let log = BufReader::new(serving.child.stderr.take().unwrap()).lines();
        Logging { serving: Arc::new(serving), log }
    }

    /// Has the configuration read again, and returns the lines up to the one that says what came of it.
    fn reload(&mut self, outcome: &str) -> String {
        self.serving.signal("HUP");
        let mut told = String::new();
        for line in self.log.by_ref() {
            let line = line.unwrap();
            let is_last = line.contains("SIGHUP") && (line.contains(APPLIED) || line.contains(REFUSED));
            told += &(line + "\n");
            if is_last {
                assert!(told.contains(outcome), "{told}");
                return told;
            }
        }
        panic!("it ended: {told}");
    }

    /// Asks without a pause from several threads until it is told to stop; each answer must be one.
    fn keep_asking(&self) -> Asking {
        let (is_over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let ask = |_| {
            let (serving, is_over, count) = (Arc::clone(&self.serving), Arc::clone(&is_over), Arc::clone(&count));
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(serving.infer("dry-run", INFER)["outputs"][0]["data"][0], 7.0);
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        Asking { is_over: Arc::clone(&is_over), count: Arc::clone(&count), threads: (0..3).map(ask).collect() }
    }

    fn max_batch_size(&self, model: &str) -> Value {
        let answer = self.serving.get(&format!("/v2/models/{model}/config"));
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        serde_json::from_str::<Value>(body).expect(body)["max_batch_size"].clone()
    }
}

struct Asking {
    is_over: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Asking {
    /// How many were answered.
    fn stop(self) -> usize {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("each request is answered"));
        self.count.load(Ordering::Relaxed)
    }
}

fn write(folder: &Folder, text: &str) {
    fs::write(folder.path().join("uncork.toml"), text).unwrap();
}

fn model(file: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models").join(file).display().to_string()
}

#[test]
fn models_are_added_changed_and_removed_while_each_request_is_answered() {
    let folder = folder_with(STAND_IN);
    let mut server = Logging::start(&folder, &[]);
    let asking = server.keep_asking();
    let free = format!("[[model]]\nname = 'free'\npath = '{}'\n", model("free.onnx"));
    write(&folder, &format!("{STAND_IN}max_batch_size = 16\n{free}"));
    let told = server.reload(APPLIED);
    assert!(told.contains("free:1") && told.contains("dry-run:1"), "{told}");
    assert!(told.contains("its memory is counted with x ["), "{told}");
    assert_eq!((server.max_batch_size("dry-run"), server.max_batch_size("free")), (16.into(), 128.into()));
    // Nothing has changed, so nothing is loaded.
    let told = server.reload(APPLIED);
    assert!(!told.contains("loading"), "{told}");
    for size in 17..22 {
        write(&folder, &format!("{STAND_IN}max_batch_size = {size}\n"));
        server.reload(APPLIED);
        assert_eq!(server.max_batch_size("dry-run"), size);
    }
    assert!(server.serving.get("/v2/models/free").starts_with("HTTP/1.1 404"));
    assert!(asking.stop() > 0);
    let metrics = server.serving.get("/metrics");
    assert!(metrics.contains("uncork_repository_reloads_total{outcome=\"applied\"} 7"), "{metrics}");
    let batch_rows: Vec<_> = metrics.lines().filter(|line| line.starts_with("uncork_max_batch_rows")).collect();
    assert_eq!(batch_rows, ["uncork_max_batch_rows{model=\"dry-run\",version=\"1\"} 21"]);
}

#[test]
fn a_model_in_a_process_of_its_own_is_loaded_anew_when_its_file_has_changed() {
    let folder = folder_with("[[model]]\nname = 'm'\npath = 'm.onnx'\nisolation = 'process'\n");
    let put = |number: u32| {
        fs::copy(model(&format!("plus_{number}.onnx")), folder.path().join("m.onnx")).unwrap();
    };
    put(1);
    let mut server = Logging::start(&folder, &[]);
    assert!(server.reload(APPLIED).contains("changed=\"\""));
    put(2);
    assert!(server.reload(APPLIED).contains("changed=\"m:1\""));
}

#[test]
fn what_is_wrong_anywhere_changes_nothing() {
    let folder = folder_with(STAND_IN);
    let mut server = Logging::start(&folder, &[]);
    let asking = server.keep_asking();
    write(&folder, &format!("{STAND_IN}max_batch_size = 16\nruners = 2\n"));
    assert!(server.reload(REFUSED).contains("did you mean 'runners'"));
    // The first two could be served.
    let wrong = format!("[[model]]\nname = 'wrong'\npath = '{}'\n", model("unsupported.onnx"));
    let right = format!("[[model]]\nname = 'right'\npath = '{}'\n", model("free.onnx"));
    write(&folder, &format!("{STAND_IN}max_batch_size = 16\n{right}{wrong}"));
    let told = server.reload(REFUSED);
    assert!(told.contains("'wrong'"), "{told}");
    assert_eq!(server.max_batch_size("dry-run"), 128);
    assert!(server.serving.get("/v2/models/right").starts_with("HTTP/1.1 404"));
    let metrics = server.serving.get("/metrics");
    assert!(metrics.contains("uncork_repository_reloads_total{outcome=\"refused\"} 2"), "{metrics}");
    assert!(metrics.contains("uncork_max_batch_rows{model=\"dry-run\",version=\"1\"} 128"), "{metrics}");
    assert!(!metrics.contains("right"), "{metrics}");
    // What cannot change while it runs is said; the rest is applied.
    write(&folder, &format!("[server]\nmax_connections = 77\n{STAND_IN}max_batch_size = 16\n"));
    let told = server.reload(APPLIED);
    assert!(told.contains("max_connections") && !told.contains("http_threads"), "{told}");
    assert_eq!(server.max_batch_size("dry-run"), 16);
    assert!(asking.stop() > 0);
}

#[test]
fn a_folder_of_models_is_looked_at_again_and_the_file_beside_it_is_read() {
    let folder = folder_with("[server]\nmodels_poll_ms = 3600000\nmax_body_bytes = 4096\n");
    let put = |version: &str, number: u32| {
        let path = folder.path().join("models/m").join(version);
        fs::create_dir_all(&path).unwrap();
        fs::copy(model(&format!("plus_{number}.onnx")), path.join("model.onnx")).unwrap();
    };
    put("1", 1);
    let mut server = Logging::start(&folder, &["--models", "models"]);
    let versions = |server: &Logging| {
        let answer = server.serving.get("/v2/models/m");
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        serde_json::from_str::<Value>(body).expect(body)["versions"].clone()
    };
    assert_eq!(versions(&server), serde_json::json!(["1"]));
    put("2", 2);
    // A model of the file beside those of the folder, and a bound that holds at the next start only.
    write(&folder, &format!("[server]\nmodels_poll_ms = 3600000\n{STAND_IN}"));
    let told = server.reload(APPLIED);
    assert!(told.contains("max_body_bytes") && told.contains("dry-run:1"), "{told}");
    assert_eq!(versions(&server), serde_json::json!(["2"]));
    server.serving.infer("dry-run", INFER);
    // A pool that a model of the folder is in has another size.
    let pool =
        |runners| format!("[server]\nmodels_poll_ms = 3600000\n{STAND_IN}[[pool]]\nname = 'p'\nrunners = {runners}\n");
    fs::write(folder.path().join("models/m/model.toml"), "pool = 'p'\n").unwrap();
    for runners in [1, 2] {
        write(&folder, &pool(runners));
        server.reload(APPLIED);
        let metrics = server.serving.get("/metrics");
        assert!(
            metrics.contains(&format!("uncork_runners{{model=\"m\",version=\"2\",pool=\"p\"}} {runners}")),
            "{metrics}"
        );
    }
}

/// A model whose file is so many megabytes longer than it need be: by its `doc_string`, field 6 of a `ModelProto`.
fn padded(number: u32, megabytes: usize) -> Vec<u8> {
    let mut bytes = fs::read(model(&format!("plus_{number}.onnx"))).unwrap();
    bytes.push(6 << 3 | 2);
    let mut length = megabytes << 20;
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.resize(bytes.len() + (megabytes << 20), b'.');
    bytes
}

#[test]
fn models_take_no_more_memory_than_they_may_and_make_room_where_they_may_go() {
    let folder = folder_with("");
    let put = |name: &str, megabytes: usize| {
        let path = folder.path().join("models").join(name).join("1");
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("model.onnx"), padded(1, megabytes)).unwrap();
    };
    put("a", 20);
    put("b", 20);
    let mut server = Logging::start(&folder, &["--models", "models"]);
    let memory = |server: &Logging, name: &str| -> f64 {
        let metrics = server.serving.get("/metrics");
        let series = format!("uncork_model_memory_bytes{{model=\"{name}\",version=\"1\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&series)).expect(&series).parse().unwrap()
    };
    let (a, b) = (memory(&server, "a"), memory(&server, "b"));
    assert!(a >= 20e6 && b >= 20e6, "{a} {b}");
    let state = |server: &Logging, name: &str| {
        let answer = server.serving.get(&format!("/v1/models/{name}"));
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    };
    // More than is served already: refused, whole.
    write(&folder, "[server]\nmodels_poll_ms = 3600000\nmax_models_bytes = 1000000\n");
    let told = server.reload(REFUSED);
    assert!(told.contains("alone more than max_models_bytes, 1.0 MB"), "{told}");
    // What is on already is no advice.
    let bound = (a + b) as u64 - 1;
    let settings =
        format!("[server]\nmodels_poll_ms = 3600000\nmax_models_bytes = {bound}\nunload_least_used = true\n");
    write(&folder, &settings);
    let told = server.reload(REFUSED);
    assert!(told.contains("serve fewer models or versions or raise the bound"), "{told}");
    put("c", 20);
    let bound = (a + b + 10e6) as u64;
    let settings = format!("[server]\nmodels_poll_ms = 3600000\nmax_models_bytes = {bound}\n");
    write(&folder, &settings);
    server.reload(APPLIED);
    let told = state(&server, "c");
    for words in ["it takes ", "a ", "b ", "more than max_models_bytes", "unload_least_used"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    let input = r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}"#;
    server.serving.infer("a", input);
    write(&folder, &format!("{settings}unload_least_used = true\n"));
    let told = server.reload(APPLIED);
    assert!(told.contains("let go for want of memory when 'c' was loaded"), "{told}");
    server.serving.infer("c", input);
    // Whether the other one may stay depends on what the system measured.
    assert!(server.serving.get("/v2/models/b").starts_with("HTTP/1.1 404"));
    // What could not fit whatever goes is not even read, and nothing goes for it.
    put("d", (bound >> 20) as usize + 10);
    server.reload(APPLIED);
    assert!(state(&server, "d").contains("more than max_models_bytes"), "{}", state(&server, "d"));
    server.serving.infer("c", input);
}

#[test]
fn a_server_starts_with_the_models_that_there_is_room_for_where_others_may_go() {
    let settings = "[server]\nmodels_poll_ms = 3600000\nmax_models_bytes = 70000000\n";
    let folder = folder_with(&format!("{settings}unload_least_used = true\n"));
    // Four of 20 MB do not fit, and one of 80 fits in no case.
    for (name, megabytes) in [("a", 20), ("b", 20), ("c", 20), ("d", 20), ("large", 80)] {
        let path = folder.path().join("models").join(name).join("1");
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("model.onnx"), padded(1, megabytes)).unwrap();
    }
    let mut server = Logging::start(&folder, &["--models", "models"]);
    let input = r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}"#;
    let state = |server: &Logging, name: &str| server.serving.get(&format!("/v1/models/{name}"));
    for name in ["a", "b", "c"] {
        server.serving.infer(name, input);
    }
    let d = state(&server, "d");
    assert!(d.starts_with("HTTP/1.1 503") && d.contains("\"END\"") && d.contains("no room for it at the start"), "{d}");
    assert!(state(&server, "large").contains("more than max_models_bytes"), "{}", state(&server, "large"));
    // It is not broken: nothing rings for it.
    let metrics = server.serving.get("/metrics");
    assert!(metrics.contains("uncork_repository_broken_versions 1\n"), "{metrics}");
    let told = server.reload(APPLIED);
    // Nobody is loaded to be let go again, so that a start takes no more memory than there may be.
    let loaded = told.lines().filter(|line| line.contains("loading") && line.contains("model=\"")).count();
    assert!(loaded == 3 && !told.contains("let go"), "{told}");
    // Nothing was served before the first one.
    assert!(told.contains("cannot be loaded: it takes") && !told.contains("served before"), "{told}");
    // By name it is loaded, and the one that was not asked for longest makes room.
    server.serving.infer("c", input);
    let answer = server.serving.post("/v2/repository/models/d/load");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    server.serving.infer("d", input);
    assert!(state(&server, "a").contains("let go for want of memory when 'd' was loaded"), "{}", state(&server, "a"));
    // Where nobody makes room, what finds none is an error.
    write(&folder, settings);
    let (code, _, told) = output(uncork(folder.path(), &["serve", "--http", "127.0.0.1:0", "--models", "models"]));
    assert!(code == 3 && told.contains("max_models_bytes"), "{told}");
}

#[test]
fn models_that_come_at_one_look_do_not_make_room_for_each_other() {
    let settings = "[server]\nmodels_poll_ms = 3600000\nmax_models_bytes = 70000000\nunload_least_used = true\n";
    let folder = folder_with(settings);
    let put = |name: &str, version: &str, settings: &str| {
        let path = folder.path().join("models").join(name);
        fs::create_dir_all(path.join(version)).unwrap();
        fs::write(path.join(version).join("model.onnx"), padded(1, 20)).unwrap();
        fs::write(path.join("model.toml"), settings).unwrap();
    };
    // There is room for three. What waits to be loaded by name is not broken, whether its model has another version or none that answers.
    put("a", "1", "");
    put("b", "1", "versions = \"all\"\nlabels = { stable = 1 }\n");
    put("b", "2", "versions = \"all\"\nlabels = { stable = 1 }\n");
    put("b", "3", "versions = \"all\"\nlabels = { stable = 1 }\n");
    let mut server = Logging::start(&folder, &["--models", "models"]);
    let ready = |server: &Logging| -> Vec<String> {
        let answer = server.serving.post("/v2/repository/index");
        let index: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let ready = index.as_array().unwrap().iter().filter(|entry| entry["state"] == "READY");
        ready.map(|entry| ["name", "version"].map(|key| entry[key].as_str().unwrap()).join(" ")).collect()
    };
    assert_eq!(ready(&server), ["a 1", "b 2", "b 3"]);
    let states = server.serving.get("/v1/models/b");
    assert!(states.contains("\"END\"") && states.contains("no room for it at the start"), "{states}");
    assert!(server.serving.get("/metrics").contains("uncork_repository_broken_versions 0\n"));
    // Of five that come at once three are loaded, in the place of those before, and stay.
    for name in ["n1", "n2", "n3", "n4", "n5"] {
        put(name, "1", "");
    }
    let told = server.reload(APPLIED);
    assert_eq!(ready(&server), ["n1 1", "n2 1", "n3 1"], "{told}");
    assert_eq!(told.lines().filter(|line| line.contains("let go for want of memory")).count(), 2, "{told}");
    let late = server.serving.get("/v1/models/n5");
    assert!(late.contains("no room for it beside those that came with it"), "{late}");
    let answer = server.serving.post("/v2/repository/models/n5/load");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    // A shadow that is loaded before the version that answers is no reason not to start.
    drop(server);
    let folder = folder_with(settings);
    for (name, version, settings) in [
        ("Z", "1", ""),
        ("Y", "1", ""),
        ("a", "1", "versions = \"all\"\nshadow = \"2\"\n"),
        ("a", "2", "versions = \"all\"\nshadow = \"2\"\n"),
    ] {
        let path = folder.path().join("models").join(name);
        fs::create_dir_all(path.join(version)).unwrap();
        fs::write(path.join(version).join("model.onnx"), padded(1, 20)).unwrap();
        fs::write(path.join("model.toml"), settings).unwrap();
    }
    let server = Logging::start(&folder, &["--models", "models"]);
    let answer = server.serving.post("/v2/repository/models/a/load");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(server.serving.get("/v2/models/a/ready").starts_with("HTTP/1.1 200"));
}

#[test]
fn who_loads_a_model_by_name_is_told_which_of_its_versions_are_served_and_brings_no_other() {
    let folder =
        folder_with("[server]\nmodels_poll_ms = 3600000\nmax_models_bytes = 70000000\nunload_least_used = true\n");
    let put = |name: &str, version: &str, megabytes: usize| {
        let path = folder.path().join("models").join(name);
        fs::create_dir_all(path.join(version)).unwrap();
        fs::write(path.join(version).join("model.onnx"), padded(1, megabytes)).unwrap();
        fs::write(path.join("model.toml"), "versions = \"all\"\n").unwrap();
    };
    ["1", "2", "3", "4"].iter().for_each(|version| put("a", version, 20));
    let server = Logging::start(&folder, &["--models", "models"]);
    let load = |name: &str| server.serving.post(&format!("/v2/repository/models/{name}/load"));
    let state = |name: &str, version: &str| -> [String; 2] {
        let answer = server.serving.post("/v2/repository/index");
        let index: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let entry = index.as_array().unwrap().iter().find(|e| e["name"] == name && e["version"] == version).unwrap();
        ["state", "reason"].map(|key| entry[key].as_str().unwrap().to_owned())
    };
    // There is room for three. As with Triton a load has failed that did not bring all.
    let answer = load("a");
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    let [is_there, reason] = state("a", "1");
    assert_eq!(is_there, "UNAVAILABLE");
    let told = format!("failed to load 'a': versions 2, 3 and 4 are served; version 1 is not: {reason}");
    assert!(answer.contains(&told), "{answer} {reason}");
    for (version, ready, served) in
        [("1", "HTTP/1.1 404", false), ("2", "HTTP/1.1 200", true), ("4", "HTTP/1.1 200", true)]
    {
        assert!(server.serving.get(&format!("/v2/models/a/versions/{version}/ready")).starts_with(ready), "{version}");
        assert_eq!(state("a", version)[0] == "READY", served, "{version}");
    }
    assert!(server.serving.get("/v2/models/a/ready").starts_with("HTTP/1.1 200"));
    fs::remove_dir_all(folder.path().join("models/a/2")).unwrap();
    let answer = load("a");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(state("a", "1")[0], "READY");

    // However often others are asked for, what is copied meanwhile is not looked at.
    put("m", "1", 60);
    put("z", "1", 60);
    load("a");
    let answer = load("z");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(state("z", "1")[0], "READY");
    assert!(!server.serving.post("/v2/repository/index").contains("\"m\""));
}

#[test]
fn two_new_versions_in_one_look_take_their_places_where_both_fit_and_else_the_first_one_does() {
    let settings = "[server]\nmodels_poll_ms = 3600000\nmax_models_bytes = 70000000\nunload_least_used = true\n";
    let folder = folder_with(settings);
    let put = |name: &str, version: &str, megabytes: usize| {
        let path = folder.path().join("models").join(name).join(version);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("model.onnx"), padded(1, megabytes)).unwrap();
    };
    put("a", "1", 20);
    put("b", "1", 20);
    let mut server = Logging::start(&folder, &["--models", "models"]);
    let index = |server: &Logging| -> Vec<String> {
        let answer = server.serving.post("/v2/repository/index");
        let index: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let entries = index.as_array().unwrap().iter();
        entries.map(|e| ["name", "version", "state"].map(|key| e[key].as_str().unwrap()).join(" ")).collect()
    };
    // A version counts in the place of the one before it.
    put("a", "2", 40);
    put("b", "2", 20);
    let told = server.reload(APPLIED);
    assert_eq!(index(&server), ["a 2 READY", "b 2 READY"], "{told}");
    assert!(!told.contains("let go"), "{told}");
    // The first one needs the room of the other model, whose own new version is then not loaded, and nobody waits for it.
    put("a", "3", 60);
    put("b", "3", 20);
    let told = server.reload(APPLIED);
    assert_eq!(index(&server), ["a 3 READY", "b 3 UNAVAILABLE"], "{told}");
    assert!(told.contains("let go for want of memory when 'a' was loaded"), "{told}");
    assert!(server.serving.get("/v2/health/ready").starts_with("HTTP/1.1 200"));
    let answer = server.serving.post("/v2/repository/models/b/load");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(index(&server), ["a 3 UNAVAILABLE", "b 3 READY"]);
}

#[test]
fn the_embedded_model_takes_nobody_s_place_and_what_goes_with_a_folder_is_told() {
    let with_folder = format!("[server]\nmodels = 'models'\nmodels_poll_ms = 3600000\n{STAND_IN}");
    let folder = folder_with(&with_folder);
    let path = folder.path().join("models/m/1");
    fs::create_dir_all(&path).unwrap();
    fs::copy(model("plus_1.onnx"), path.join("model.onnx")).unwrap();
    let mut server = Logging::start(&folder, &["--config", "uncork.toml"]);
    for text in ["", "[server]\n", "[server]\n# [[model]]\n# name = 'dry-run'\n"] {
        write(&folder, text);
        let told = server.reload(REFUSED);
        assert!(told.contains("name one with [[model]]") || told.contains("name a model with [[model]]"), "{told}");
        server.serving.infer("dry-run", INFER);
        assert!(server.serving.get("/v2/models/m").starts_with("HTTP/1.1 200"));
        assert!(server.serving.get("/v2/models/digits").starts_with("HTTP/1.1 404"));
    }
    write(&folder, STAND_IN);
    let told = server.reload(APPLIED);
    assert!(told.contains("removed=\"m:1\"") && told.contains("added=\"\""), "{told}");
    write(&folder, &with_folder);
    assert!(server.reload(APPLIED).contains("added=\"m:1\""));
}

#[test]
fn a_server_of_the_embedded_model_goes_on_with_it() {
    let folder = folder_with("[server]\n");
    let mut server = Logging::start(&folder, &["--config", "uncork.toml"]);
    server.reload(APPLIED);
    write(&folder, STAND_IN);
    assert!(server.reload(APPLIED).contains("removed=\"digits:1\""));
    write(&folder, "[server]\n");
    server.reload(REFUSED);
}

#[test]
fn what_is_left_alone_what_is_not_there_and_who_answers_whom_is_logged_when_it_changes() {
    let folder = folder_with("[server]\nmodels_poll_ms = 3600000\n");
    let put = |version: &str| {
        let path = folder.path().join("models/m").join(version);
        fs::create_dir_all(&path).unwrap();
        fs::copy(model("plus_1.onnx"), path.join("model.onnx")).unwrap();
    };
    let say = |text: &str| fs::write(folder.path().join("models/m/model.toml"), text).unwrap();
    put("1");
    put("2");
    fs::copy(model("plus_1.onnx"), folder.path().join("models/loose.onnx")).unwrap();
    let mut server = Logging::start(&folder, &["--models", "models"]);
    let told = server.reload(APPLIED);
    assert!(told.contains(r#""loose.onnx" is left alone: a model is a folder, as "loose/1/model.onnx""#), "{told}");
    say("weights = { 1 = 90, 2 = 10 }\n");
    let told = server.reload(APPLIED);
    assert_eq!(
        told.matches("of 100 requests that name none version 1 answers 90, version 2 answers 10").count(),
        1,
        "{told}"
    );
    say("weights = { 1 = 50, 2 = 50 }\nversions = [1, 2, 5]\n");
    let told = server.reload(APPLIED);
    assert_eq!(told.matches("version 1 answers 50, version 2 answers 50").count(), 1, "{told}");
    assert_eq!(told.matches("its settings ask for version 5").count(), 1, "{told}");
    // Nothing is said twice.
    let told = server.reload(APPLIED);
    assert!(!told.contains("answers") && !told.contains("version 5") && !told.contains("loose"), "{told}");
    say("");
    assert!(server.reload(APPLIED).contains("its highest version answers whoever names none"));
    // The same of the configuration's models.
    let two = format!("[server]\nmodels_poll_ms = 3600000\n{STAND_IN}{}version = 2\n", STAND_IN);
    for (weights, words) in [
        ("1 = 1, 2 = 3", "of 4 requests that name none version 1 answers 1, version 2 answers 3"),
        ("2 = 1", "of 1 requests"),
    ] {
        write(&folder, &format!("{two}weights = {{ {weights} }}\n"));
        let told = server.reload(APPLIED);
        assert_eq!(told.matches(words).count(), 1, "{told}");
    }
}

#[test]
fn routes_that_a_reload_drops_lead_nobody_anywhere() {
    let folder = folder_with("[server]\nmodels = 'models'\nmodels_poll_ms = 3600000\n");
    let path = folder.path().join("models/m");
    for version in ["1", "2"] {
        fs::create_dir_all(path.join(version)).unwrap();
        fs::copy(model(&format!("plus_{version}.onnx")), path.join(version).join("model.onnx")).unwrap();
    }
    let say = |text: &str| fs::write(path.join("model.toml"), text).unwrap();
    let routed = "versions = [1, 2]\nlabels = { stable = 1 }\nweights = { 1 = 1 }\n";
    say(routed);
    let mut server = Logging::start(&folder, &["--config", "uncork.toml"]);
    let answers = |server: &Logging, body: &str| {
        let labelled = server.serving.get("/v1/models/m/labels/stable");
        let status = labelled.split(' ').nth(1).unwrap().to_owned();
        (status, server.serving.infer("m", body)["model_version"].clone())
    };
    let two = INFER.replace("[1,1]", "[1,2]").replace("[3]", "[3,3]");
    assert_eq!(answers(&server, &two), ("200".into(), "1".into()));
    say("versions = [1, 2]\n");
    server.reload(APPLIED);
    assert_eq!(answers(&server, &two), ("400".into(), "2".into()));
    say(routed);
    server.reload(APPLIED);
    assert_eq!(answers(&server, &two), ("200".into(), "1".into()));
    // Another model of that name in the place of the folder's.
    let own = STAND_IN.replace("dry-run", "m");
    write(&folder, &format!("{own}{own}version = 2\n"));
    server.reload(APPLIED);
    assert_eq!(answers(&server, INFER), ("400".into(), "2".into()));
}
