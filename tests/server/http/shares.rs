//! Several versions of a model: labels, shares, and a shadow that answers nobody.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use uncork::registry::Routes;

use super::repository::{following, put, try_following};
use super::*;
use crate::folder::Folder;

/// Versions 1, 2 and 3 of the stand-in `m` under these rules.
async fn versions(routes: Routes) -> (Running, Registry) {
    let models = ["1", "2", "3"].map(|version| stand_in("m", version, Duration::ZERO)).to_vec();
    let load = move || Registry::load(models);
    let registry = tokio::task::spawn_blocking(load).await.unwrap().unwrap();
    registry.route(&BTreeMap::from([("m".to_owned(), routes)]));
    let server = Server::bind("127.0.0.1:0", Options::default()).await.unwrap();
    let address = server.address();
    let (stop, stopped) = oneshot::channel();
    let serving = tokio::spawn(server.serve(registry.clone(), async { drop(stopped.await) }));
    (Running { address, stop: Some(stop), serving }, registry)
}

fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

fn weights(pairs: &[(&str, u32)]) -> BTreeMap<String, u32> {
    pairs.iter().map(|(version, weight)| ((*version).to_owned(), *weight)).collect()
}

/// How many requests each version answered.
async fn answered(server: &Running, requests: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for i in 0..requests {
        let answer = server.infer(&request(json!([i as f64]))).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        *counts.entry(answer.json()["model_version"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    counts
}

fn series(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name} in {text}"));
    line.trim().parse().unwrap()
}

#[tokio::test]
async fn versions_answer_their_shares_and_each_is_counted_for_itself() {
    let (server, _) =
        versions(Routes { weights: weights(&[("1", 70), ("2", 30), ("9", 1000)]), ..Routes::default() }).await;
    let (all, counts) = (600, answered(&server, 600).await);
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["1", "2"], "the highest has no share, and 9 is not there");
    let (n, p) = (all as f64, 0.3_f64);
    let most = 5.0 * (n * p * (1.0 - p)).sqrt();
    assert!((counts["2"] as f64 - n * p).abs() < most, "{counts:?}");
    let metrics = server.get("/metrics").await.text;
    for version in ["1", "2"] {
        let name = format!("uncork_requests_total{{model=\"m\",version=\"{version}\",outcome=\"on_time\"}}");
        assert_eq!(series(&metrics, &name), counts[version] as f64);
    }
    // Whoever names a version gets it, and what is told of the model is the same each time.
    let body = || Some(request(json!([1.0])).to_string());
    let third = server.ask(Method::POST, "/v2/models/m/versions/3/infer", body()).await;
    assert_eq!(third.json()["model_version"], "3");
}

#[tokio::test]
async fn a_label_stands_for_a_version_on_every_path_of_tensorflow_serving() {
    let (server, registry) =
        versions(Routes { labels: texts(&[("stable", "1"), ("gone", "7")]), ..Routes::default() }).await;
    let body = || Some(json!({"instances": [[1.0]]}).to_string());
    let answer = server.ask(Method::POST, "/v1/models/m/labels/stable:predict", body()).await;
    assert_eq!((answer.status, answer.json()["predictions"].clone()), (200, json!([[3.0]])));
    let totals = registry.model("m", Some("1")).unwrap().totals();
    assert_eq!(totals.iter().map(|(_, count)| count).sum::<u64>(), 1);
    let metadata = server.get("/v1/models/m/labels/stable/metadata").await.json();
    assert_eq!(metadata["model_spec"]["version"], "1");
    let status = server.get("/v1/models/m/labels/stable").await.json();
    assert_eq!(
        (&status["model_version_status"][0]["version"], status["model_version_status"].as_array().unwrap().len()),
        (&json!("1"), 1)
    );
    for (path, status, words) in [
        ("/v1/models/m/labels/canary:predict", 400, "Unrecognized servable version label: 'canary'"),
        ("/v1/models/nobody/labels/stable:predict", 400, "Unrecognized servable version label: 'stable'"),
        ("/v1/models/m/labels/gone:predict", 404, "Specific(m, 7)"),
    ] {
        let answer = server.ask(Method::POST, path, body()).await;
        assert!(answer.status == status && answer.error().contains(words), "{path}: {} {}", answer.status, answer.text);
    }
}

#[tokio::test]
async fn a_shadow_gets_copies_and_answers_nobody() {
    let (server, registry) = versions(Routes { shadow: Some("3".into()), ..Routes::default() }).await;
    assert_eq!(answered(&server, 50).await, BTreeMap::from([("2".to_owned(), 50)]));
    let body = || Some(request(json!([1.0])).to_string());
    let named = server.ask(Method::POST, "/v2/models/m/versions/3/infer", body()).await;
    assert_eq!(named.status, 404, "{}", named.text);
    let predict = Some(json!({"instances": [[1.0]]}).to_string());
    assert_eq!(server.ask(Method::POST, "/v1/models/m/versions/3:predict", predict).await.status, 404);
    // Nor does anything say that it could be asked.
    assert_eq!(server.get("/v2/models/m").await.json()["versions"], json!(["1", "2"]));
    let of_version = ["/v2/models/m/versions/3", "/v1/models/m/versions/3"];
    let behind = ["", "/ready", "/config", "/stats"].map(|what| format!("{}{what}", of_version[0]));
    for path in behind.into_iter().chain(["", "/metadata"].map(|what| format!("{}{what}", of_version[1]))) {
        let answer = server.get(&path).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.text);
    }
    let status = server.get("/v1/models/m").await.json();
    let told = status["model_version_status"].as_array().unwrap().iter().map(|of| of["version"].as_str().unwrap());
    assert_eq!(told.collect::<Vec<_>>(), ["1", "2"]);
    // Whoever runs the server is told that it is there and what it is.
    let index = server.ask(Method::POST, "/v2/repository/index", None).await.json();
    let shadow = &index.as_array().unwrap()[2];
    assert_eq!((&shadow["version"], &shadow["state"]), (&json!("3"), &json!("UNAVAILABLE")), "{index}");
    assert!(shadow["reason"].as_str().unwrap().contains("answers nobody"), "{index}");
    let status = server.get("/status").await.json();
    let shadows = status["models"].as_array().unwrap().iter().map(|model| model["shadow"].as_bool().unwrap());
    assert_eq!(shadows.collect::<Vec<_>>(), [false, false, true], "the page offers nothing to ask it with");
    let copies = || async {
        let metrics = server.get("/metrics").await.text;
        let of = |outcome| {
            let name = format!("uncork_shadow_copies_total{{model=\"m\",version=\"3\",outcome=\"{outcome}\"}}");
            series(&metrics, &name)
        };
        (["answered", "dropped", "failed", "refused"].map(of), metrics)
    };
    // The last copy may still be under way.
    let all = async {
        loop {
            let (counts, metrics) = copies().await;
            if counts.iter().sum::<f64>() >= 50.0 {
                break (counts, metrics);
            }
        }
    };
    let ([answered, dropped, failed, refused], metrics) =
        tokio::time::timeout(HANGS, all).await.expect("each is counted");
    assert!(answered > 0.0 && failed == 0.0 && refused == 0.0 && answered + dropped == 50.0, "{answered} {dropped}");
    let requests = |line: &&str| line.starts_with("uncork_requests_total{model=\"m\",version=\"3\"");
    assert!(metrics.lines().filter(requests).all(|line| line.ends_with(" 0")), "copies are no requests");
    // It is let go while it is a shadow, and is one no more when that is taken back.
    registry.route(&BTreeMap::new());
    assert_eq!(self::answered(&server, 5).await, BTreeMap::from([("3".to_owned(), 5)]));
}

#[tokio::test]
async fn a_shadow_that_is_busy_gets_nothing_and_nobody_waits_for_it() {
    let models = vec![stand_in("m", "1", Duration::ZERO), stand_in("m", "2", Duration::from_millis(400))];
    let registry = tokio::task::spawn_blocking(move || Registry::load(models)).await.unwrap().unwrap();
    registry.route(&BTreeMap::from([("m".to_owned(), Routes { shadow: Some("2".into()), ..Routes::default() })]));
    let server = Server::bind("127.0.0.1:0", Options::default()).await.unwrap();
    let address = server.address();
    let (stop, stopped) = oneshot::channel();
    let serving = tokio::spawn(server.serve(registry.clone(), async { drop(stopped.await) }));
    let server = Running { address, stop: Some(stop), serving };
    let begin = std::time::Instant::now();
    assert_eq!(answered(&server, 40).await, BTreeMap::from([("1".to_owned(), 40)]));
    assert!(begin.elapsed() < Duration::from_millis(400) * 10, "each would wait for the shadow");
    let metrics = server.get("/metrics").await.text;
    let dropped = series(&metrics, "uncork_shadow_copies_total{model=\"m\",version=\"2\",outcome=\"dropped\"}");
    assert!(dropped > 20.0, "{dropped}");
}

#[tokio::test]
async fn a_folder_s_model_toml_shares_requests_out_and_nothing_is_loaded_for_it() {
    let folder = Folder::new();
    put(&folder, "1", 1);
    put(&folder, "2", 2);
    // At once, as whoever cares about it does: a file that is half written asks for other versions.
    let say = |text: &str| {
        let written = folder.path().join("m/model.toml.new");
        fs::write(&written, text).unwrap();
        fs::rename(written, folder.path().join("m/model.toml")).unwrap();
    };
    say("weights = { \"1\" = 1, \"2\" = 0 }\n");
    let following = following(&folder).await;
    assert_eq!(following.answer().await, Ok(("1".into(), 1.0)));
    let loaded = || async {
        let metrics = following.server.get("/metrics").await.text;
        series(&metrics, "uncork_repository_loads_total{outcome=\"loaded\"}")
    };
    assert_eq!(loaded().await, 2.0, "both versions are spoken of, so both are served");
    say("weights = { 1 = 0, 2 = 1 }\n");
    following.until(Ok(("2", 2.0))).await;
    say("versions = [1, 2]\nshadow = 2\nlabels = { stable = 1 }\n");
    following.until(Ok(("1", 1.0))).await;
    assert_eq!(loaded().await, 2.0);
    say("versions = [1, 2]\n");
    following.until(Ok(("2", 2.0))).await;
    assert_eq!(loaded().await, 2.0);
}

#[tokio::test]
async fn a_long_request_is_answered_by_the_version_that_was_judged_for_it() {
    let (server, registry) = versions(Routes { weights: weights(&[("1", 1), ("2", 1)]), ..Routes::default() }).await;
    let body = request(json!([1.0])).to_string() + &" ".repeat(40_000);
    let mut seen = BTreeMap::new();
    for _ in 0..60 {
        let (_, answer) = server.post_bytes("/v2/models/m/infer", "", body.as_bytes()).await;
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        *seen.entry(answer["model_version"].as_str().unwrap().to_owned()).or_insert(0) += 1;
    }
    // Dealt once each, in turns that differ by one at most over many; dealt twice, the second would be anybody's.
    let plain = versions(Routes { weights: weights(&[("1", 1), ("2", 1)]), ..Routes::default() }).await;
    assert_eq!(seen, answered(&plain.0, 60).await);
    drop(registry);
}

#[tokio::test]
async fn a_folder_of_which_nobody_would_answer_is_refused_and_a_version_that_is_missing_is_named() {
    let folder = Folder::new();
    put(&folder, "1", 1);
    let settings = folder.path().join("m/model.toml");
    for (text, words) in [
        ("shadow = 1\n", "model.toml:1: shadow = 1: is the only version that is asked for"),
        ("versions = [1]\nshadow = 1\n", "model.toml:2: shadow = 1: is the only version that is asked for"),
        ("versions = \"all\"\nshadow = 1\n", "of its versions only the shadow is served"),
        ("versions = [9]\n", "version 9: its settings ask for version 9"),
    ] {
        fs::write(&settings, text).unwrap();
        let error = try_following(&folder).await.err().unwrap_or_default();
        assert!(error.contains(words), "{text}: {error}");
    }
    fs::write(&settings, "versions = [1, 9]\n").unwrap();
    let following = following(&folder).await;
    assert_eq!(following.answer().await, Ok(("1".into(), 1.0)));
    let (states, reasons) = following.index().await;
    assert_eq!(states, ["m 1 READY", "m 9 UNAVAILABLE", "s 1 READY"]);
    assert!(reasons.contains("ask for version 9"), "{reasons}");
}

#[tokio::test]
async fn settings_that_are_a_pipe_are_no_settings_and_nobody_waits_for_them() {
    for file in ["model.toml", "config.pbtxt"] {
        let folder = Folder::new();
        put(&folder, "1", 1);
        let made = Command::new("mkfifo").arg(folder.path().join("m").join(file)).status().expect("coreutils");
        assert!(made.success());
        let opened = tokio::time::timeout(HANGS, try_following(&folder)).await.expect("it is not waited for");
        let error = opened.err().unwrap_or_default();
        assert!(error.contains(file) && error.contains("no regular file"), "{error}");
    }
}
