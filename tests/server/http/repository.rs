//! Models that come and go while the server runs: a folder that is followed, and models that are loaded by name.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use uncork::config::{Flags, resolve};
use uncork::repository::Repository;

use super::*;
use crate::folder::Folder;

const INDEX: &str = "/v2/repository/index";

/// Puts `plus_NUMBER.onnx`, which adds that number, into the folder as a version of `m`.
pub(super) fn put(folder: &Folder, version: &str, number: u32) {
    let from = format!("{}/tests/models/plus_{number}.onnx", env!("CARGO_MANIFEST_DIR"));
    let whole = folder.path().join(format!("m/{version}"));
    // As whoever cares about it does: the file is there at once, under a name that is no version before.
    let partial = folder.path().join("m/partial");
    fs::create_dir_all(&partial).unwrap();
    fs::copy(from, partial.join("model.onnx")).unwrap();
    fs::rename(partial, whole).unwrap();
}

/// A server of that folder, looked at every few milliseconds, and of the stand-in `s`. Both end with the value.
pub(super) struct Following {
    pub(super) server: Running,
    repository: Repository,
    registry: Registry,
    _follower: tokio::task::JoinHandle<()>,
}

pub(super) async fn following(folder: &Folder) -> Following {
    let opened = try_following(folder).await;
    opened.unwrap_or_else(|error| panic!("{error}"))
}

pub(super) async fn try_following(folder: &Folder) -> Result<Following, String> {
    let models = folder.path().display().to_string();
    let flags = Flags { models_folder: Some(models), ..Flags::default() };
    // A machine that is busy with other tests keeps this cap as well.
    let variables = [("UNCORK_MODELS_POLL_MS", "10"), ("UNCORK_MAX_LATENCY_MS", "10000")];
    let variables = variables.map(|(name, value)| (name.into(), value.into()));
    let config = resolve(&flags, variables, Path::new("/")).map_err(|problems| problems.to_string())?;
    let configured = vec![stand_in("s", "1", Duration::ZERO)];
    let (registry, opening) = Registry::open(configured.clone(), Tracer::off());
    let followed = config.folder.map(|folder| folder.followed(false));
    let repository = Repository::new(registry.clone(), configured, followed);
    let opened = repository.clone();
    let loaded = tokio::task::spawn_blocking(move || opening.load().and_then(|()| opened.open())).await.unwrap();
    loaded.map_err(|errors| errors.to_string())?;
    let server = Server::bind("127.0.0.1:0", Options::default()).await.unwrap().repository(repository.clone());
    let address = server.address();
    let (stop, stopped) = oneshot::channel();
    let serving = tokio::spawn(server.serve(registry.clone(), async { drop(stopped.await) }));
    let followed = repository.clone();
    let follower = tokio::spawn(async move { match followed.follow().await {} });
    Ok(Following { server: Running { address, stop: Some(stop), serving }, repository, registry, _follower: follower })
}

impl Following {
    /// What `m` adds to nothing, and the version that says so.
    pub(super) async fn answer(&self) -> Result<(String, f64), u16> {
        let input = json!({"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [0, 0]});
        let answer = self.server.ask(Method::POST, "/v2/models/m/infer", Some(json!({"inputs": [input]}).to_string()));
        let answer = answer.await;
        if answer.status != 200 {
            return Err(answer.status);
        }
        let answer = answer.json();
        let version = answer["model_version"].as_str().unwrap().to_owned();
        Ok((version, answer["outputs"][0]["data"][0].as_f64().unwrap()))
    }

    /// Returns when the answer is this.
    pub(super) async fn until(&self, expected: Result<(&str, f64), u16>) {
        let expected = expected.map(|(version, sum)| (version.to_owned(), sum));
        let come = async { while self.answer().await != expected {} };
        tokio::time::timeout(HANGS, come).await.unwrap_or_else(|_| panic!("{expected:?} never came"));
    }

    /// The index, as name, version and state, and the reasons.
    pub(super) async fn index(&self) -> (Vec<String>, String) {
        let index = self.server.ask(Method::POST, INDEX, None).await.json();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let entries = index.as_array().unwrap().iter();
        let states = entries.clone().map(|e| ["name", "version", "state"].map(|key| text(&e[key])).join(" ")).collect();
        (states, entries.map(|entry| text(&entry["reason"])).collect())
    }

    async fn post(&self, path: &str, body: Option<Value>) -> Answer {
        self.server.ask(Method::POST, path, body.map(|body| body.to_string())).await
    }
}

#[tokio::test]
async fn the_highest_version_is_served_until_a_higher_one_is_there_and_a_removed_folder_ends_it() {
    let folder = Folder::new();
    put(&folder, "9", 1);
    put(&folder, "2", 2);
    let following = following(&folder).await;
    assert_eq!(following.answer().await, Ok(("9".into(), 1.0)), "by number, not by letter");
    put(&folder, "10", 2);
    following.until(Ok(("10", 2.0))).await;
    let old = following.server.get("/v2/models/m/versions/9").await;
    assert!(old.status == 404 && old.error().contains("it has '10'"), "{}", old.text);
    fs::remove_dir_all(folder.path().join("m/10")).unwrap();
    following.until(Ok(("9", 1.0))).await;
    fs::remove_dir_all(folder.path().join("m")).unwrap();
    following.until(Err(404)).await;
    assert_eq!(following.index().await.0, ["s 1 READY"]);
}

#[tokio::test]
async fn no_request_is_lost_and_each_answer_is_that_of_its_version_while_versions_take_turns() {
    let folder = Folder::new();
    put(&folder, "1", 1);
    let following = following(&folder).await;
    let (is_over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let callers = futures_util::future::join_all((0..4).map(|_| async {
        while !is_over.load(Ordering::Relaxed) {
            let (version, sum) = following.answer().await.expect("an answer");
            let odd = version.parse::<u32>().unwrap() % 2 == 1;
            assert_eq!(sum, if odd { 1.0 } else { 2.0 }, "version {version}");
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }));
    let versions = async {
        for version in 2..=8u32 {
            put(&folder, &version.to_string(), 2 - version % 2);
            following.until(Ok((&version.to_string(), f64::from(2 - version % 2)))).await;
        }
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(callers, versions);
    assert!(answered.load(Ordering::Relaxed) > 20);
    let metrics = following.server.get("/metrics").await.text;
    assert!(metrics.contains("uncork_repository_loads_total{outcome=\"loaded\"} 8"), "{metrics}");
}

#[tokio::test]
async fn a_broken_version_leaves_the_old_one_serving_and_says_why_until_it_is_mended() {
    let folder = Folder::new();
    put(&folder, "1", 1);
    let following = following(&folder).await;
    fs::create_dir(folder.path().join("m/2")).unwrap();
    fs::write(folder.path().join("m/2/model.onnx"), "no such file").unwrap();
    let noticed = async {
        while following.repository.troubles().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(HANGS, noticed).await.expect("it is tried");
    assert_eq!(following.answer().await, Ok(("1".into(), 1.0)));
    let (states, reasons) = following.index().await;
    assert_eq!(states, ["m 1 READY", "m 2 UNAVAILABLE", "s 1 READY"]);
    assert!(reasons.starts_with("model.onnx: "), "no path of this machine: {reasons}");
    let only_ready = following.post(INDEX, Some(json!({"ready": true}))).await.json();
    assert_eq!(only_ready.as_array().unwrap().len(), 2);
    let status = following.server.get("/v1/models/m").await.json();
    assert_eq!((&status["ready"], &status["model_version_status"][1]["state"]), (&json!(true), &json!("END")));
    let broken = following.server.get("/v1/models/m/versions/2").await;
    assert_eq!(
        (broken.status, &broken.json()["model_version_status"][0]["status"]["error_code"]),
        (503, &json!("INTERNAL"))
    );
    let metrics = following.server.get("/metrics").await.text;
    assert!(metrics.contains("uncork_repository_broken_versions 1"), "{metrics}");
    assert_eq!(following.server.get("/v2/health/ready").await.status, 200);
    fs::remove_dir_all(folder.path().join("m/2")).unwrap();
    put(&folder, "2", 2);
    following.until(Ok(("2", 2.0))).await;
    assert_eq!(following.index().await.0, ["m 2 READY", "s 1 READY"]);
}

#[tokio::test]
async fn a_version_without_a_clear_file_is_broken_and_nobody_waits_for_it() {
    let folder = Folder::new();
    put(&folder, "1", 1);
    let following = following(&folder).await;
    let partial = folder.path().join("m/partial");
    fs::create_dir_all(&partial).unwrap();
    for file in ["a.onnx", "b.onnx"] {
        fs::write(partial.join(file), "none").unwrap();
    }
    fs::rename(partial, folder.path().join("m/2")).unwrap();
    let expected = ["m 1 READY", "m 2 UNAVAILABLE", "s 1 READY"];
    let told = async { while following.index().await.0 != expected {} };
    tokio::time::timeout(HANGS, told).await.expect("it is told of once, as one that is broken");
    assert!(following.index().await.1.contains("no model.onnx, and 2 other files like that"));
    assert_eq!(following.server.get("/v2/models/m/versions/2").await.status, 404);
    let metrics = following.server.get("/metrics").await.text;
    assert!(metrics.contains("uncork_repository_loads_total{outcome=\"failed\"} 1"), "{metrics}");
    fs::remove_dir_all(folder.path().join("m")).unwrap();
    following.until(Err(404)).await;
}

#[tokio::test]
async fn a_server_starts_with_an_older_version_where_the_newest_is_broken_and_not_without_any() {
    let folder = Folder::new();
    fs::create_dir_all(folder.path().join("m/2")).unwrap();
    fs::write(folder.path().join("m/2/model.onnx"), "no such file").unwrap();
    let error = try_following(&folder).await.err().expect("nothing of it can be served");
    assert!(error.starts_with("model 'm': version 2: model.onnx: "), "{error}");
    put(&folder, "1", 1);
    let following = following(&folder).await;
    assert_eq!(following.answer().await, Ok(("1".into(), 1.0)));
}

#[tokio::test]
async fn settings_and_the_policy_are_the_folder_s_and_changed_ones_are_taken_over() {
    let folder = Folder::new();
    put(&folder, "1", 1);
    put(&folder, "2", 2);
    put(&folder, "3", 1);
    fs::write(
        folder.path().join("m/config.pbtxt"),
        "max_batch_size: 4 version_policy { specific { versions: [1, 2] } }",
    )
    .unwrap();
    let following = following(&folder).await;
    assert_eq!(following.index().await.0, ["m 1 READY", "m 2 READY", "s 1 READY"]);
    assert_eq!(following.answer().await, Ok(("2".into(), 2.0)));
    let size = async || following.server.get("/v2/models/m/config").await.json()["max_batch_size"].clone();
    assert_eq!(size().await, 4);
    fs::write(folder.path().join("m/model.toml"), "max_batch_size = 2\nversions = \"latest\"\n").unwrap();
    following.until(Ok(("3", 1.0))).await;
    assert_eq!(size().await, 2);
    // What is wrong changes nothing, and says so.
    fs::write(folder.path().join("m/model.toml"), "max_batch_size = 0\nversion = 3\n").unwrap();
    let noticed = async {
        while following.repository.troubles().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(HANGS, noticed).await.expect("it is read");
    let reason = following.index().await.1;
    for words in ["model.toml:1: max_batch_size = 0: must be a whole number", "model.toml:2: version: unknown key"] {
        assert!(reason.contains(words), "{reason}");
    }
    assert_eq!(following.answer().await, Ok(("3".into(), 1.0)));
}

#[tokio::test]
async fn models_are_loaded_and_unloaded_by_name_and_no_client_names_a_file() {
    let folder = Folder::new();
    put(&folder, "1", 1);
    let following = following(&folder).await;
    let change = async |model: &str, what: &str, body: Option<Value>| {
        following.post(&format!("/v2/repository/models/{model}/{what}"), body).await
    };
    for model in ["m", "s"] {
        for _ in 0..2 {
            assert_eq!(
                change(model, "unload", Some(json!({"parameters": {"unload_dependents": true}}))).await.status,
                200
            );
        }
        assert!(following.index().await.0.contains(&format!("{model} 1 UNAVAILABLE")));
        assert_eq!(following.server.get(&format!("/v2/models/{model}")).await.status, 404);
        // As TensorFlow Serving tells of a version that it has let go.
        let status = following.server.get(&format!("/v1/models/{model}")).await;
        let told = status.json();
        assert_eq!((status.status, &told["ready"]), (503, &json!(false)), "{told}");
        let condition = json!({"error_code": "OK", "error_message": "unloaded"});
        assert_eq!(told["model_version_status"], json!([{"version": "1", "state": "END", "status": condition}]));
        assert_eq!(following.server.get(&format!("/v1/models/{model}/versions/2")).await.status, 404);
        for _ in 0..2 {
            assert_eq!(change(model, "load", None).await.status, 200);
        }
    }
    assert_eq!(following.index().await.0, ["m 1 READY", "s 1 READY"]);
    following.until(Ok(("1", 1.0))).await;
    for (model, what, body, status, words) in [
        ("nobody", "load", None, 404, "there is no such model"),
        ("nobody", "unload", None, 404, "there is no such model"),
        ("..%2F..%2Fetc", "load", None, 404, "there is no such model"),
        ("%FF", "load", None, 400, "the path is not UTF-8"),
        ("%FF", "unload", None, 400, "the path is not UTF-8"),
        ("m", "load", Some(json!({"parameters": {"config": "{}"}})), 400, "parameter 'config' is not served"),
        (
            "m",
            "load",
            Some(json!({"parameters": {"file:1/model.onnx": "eA=="}})),
            400,
            "'file:1/model.onnx' is not served",
        ),
        ("m", "load", Some(json!([])), 400, "not understood"),
    ] {
        let answer = change(model, what, body).await;
        assert_eq!(answer.status, status, "{model} {what}: {}", answer.text);
        assert!(answer.error().contains(words), "{}", answer.text);
    }
    let fixed = simple().await;
    assert_eq!(fixed.ask(Method::POST, "/v2/repository/models/m/unload", None).await.status, 501);
}

#[tokio::test]
async fn while_the_server_goes_a_load_is_no_fault_of_the_model_s() {
    let folder = Folder::new();
    put(&folder, "1", 1);
    let following = following(&folder).await;
    assert_eq!(following.post("/v2/repository/models/m/unload", None).await.status, 200);
    following.registry.retire();
    for what in ["load", "unload"] {
        let told = following.post(&format!("/v2/repository/models/m/{what}"), None).await;
        assert_eq!((told.status, told.error().contains("the server is shutting down")), (503, true), "{}", told.text);
    }
}

#[tokio::test]
async fn what_was_unloaded_stays_so_though_its_folder_changes_until_it_is_loaded() {
    let folder = Folder::new();
    put(&folder, "1", 1);
    let following = following(&folder).await;
    assert_eq!(following.post("/v2/repository/models/m/unload", None).await.status, 200);
    put(&folder, "2", 2);
    put(&folder, "3", 1);
    // Another model that comes later and is there: the folder was looked at meanwhile.
    fs::create_dir(folder.path().join("n")).unwrap();
    fs::rename(folder.path().join("m/3"), folder.path().join("n/1")).unwrap();
    let come = async { while following.server.get("/v2/models/n").await.status != 200 {} };
    tokio::time::timeout(HANGS, come).await.expect("n is served");
    assert_eq!(following.answer().await, Err(404));
    assert_eq!(following.post("/v2/repository/models/m/load", None).await.status, 200);
    assert_eq!(following.answer().await, Ok(("2".into(), 2.0)));
}

#[tokio::test]
async fn what_names_models_is_bounded_packed_and_unpacked() {
    use flate2::Compression;
    use flate2::read::GzEncoder;
    use std::io::Read;

    let folder = Folder::new();
    let following = following(&folder).await;
    let of = |bytes: usize| [b"{".as_slice(), &vec![b' '; bytes - 2], b"}"].concat();
    let packed = |bytes: Vec<u8>| {
        let mut packed = Vec::new();
        GzEncoder::new(&bytes[..], Compression::fast()).read_to_end(&mut packed).unwrap();
        packed
    };
    let paths = [(INDEX, 200), ("/v2/repository/models/no/load", 404), ("/v2/repository/models/no/unload", 404)];
    for (path, status) in paths {
        for (bytes, expected) in [(64 * 1024, status), (64 * 1024 + 1, 413)] {
            for (body, is_packed) in [(of(bytes), false), (packed(of(bytes)), true)] {
                let lines = if is_packed { "Content-Encoding: gzip\r\n" } else { "" };
                let (head, _) = following.server.post_bytes(path, lines, &body).await;
                assert!(head.starts_with(&format!("HTTP/1.1 {expected} ")), "{path} {bytes} {is_packed}: {head}");
            }
        }
    }
}
