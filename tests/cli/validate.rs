//! What `uncork validate` says of a configuration before a server has to.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::folder::Folder;
use crate::program::{STAND_IN, file, folder_with, output, uncork};

/// Writes a file, and the folders above it.
fn put(folder: &Folder, path: &str, bytes: impl AsRef<[u8]>) {
    let path = folder.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn plus_1() -> Vec<u8> {
    fs::read(file("tests/models/plus_1.onnx")).unwrap()
}

#[test]
fn what_a_server_would_refuse_at_once_is_an_error_and_nothing_is_called_ok() {
    let folder = folder_with("");
    put(&folder, "m.onnx", plus_1());
    put(&folder, "empty.onnx", "");
    put(&folder, "run.py", "");
    let model = |path: &str, keys: &str| format!("[[model]]\nname = 'm'\npath = '{path}'\n{keys}");
    for (text, words) in [
        (format!("[server]\ntokens_file = 'none'\n{STAND_IN}"), "tokens_file cannot be used: "),
        (format!("[server]\ntls_certificate = 'c'\ntls_key = 'k'\n{STAND_IN}"), "TLS cannot be used: "),
        (format!("[server]\nhttp = '0.0.0.0:8080'\n{STAND_IN}"), "callers need tokens"),
        (
            format!("[server]\nhttp = '127.0.0.1:7'\nadmin = '127.0.0.1:7'\n{STAND_IN}"),
            "127.0.0.1:7 is listened on already",
        ),
        (model("empty.onnx", ""), "model 'm': "),
        (model("run.py", ""), "is a Python file, of which a class is served: python = \"run.py:CLASS\""),
        (model("m.onnx", "dims = { height = 640 }\n"), "no free dimension is called 'height'"),
        (
            model(&file("tests/models/unsupported.onnx"), ""),
            "operator 'com.example::Whiten' (node 'odd_whiten') is not supported",
        ),
        (model("empty.onnx", "isolation = 'process'\n"), "model 'm': "),
        (model("m.onnx", "isolation = 'process'\ndims = { height = 640 }\n"), "no free dimension is called 'height'"),
        (model("m.onnx", "batch_axes = { nope = 1 }\n"), "batch_axes: no input is called 'nope'"),
        ("[[model]]\nname = 'm'\ncommand = ['no-such-program']\n".into(), "no program is called 'no-such-program'"),
        ("[[model]]\nname = 'm'\ncommand = ['./nope']\n".into(), "there is no file "),
    ] {
        fs::write(folder.path().join("uncork.toml"), &text).unwrap();
        let (code, out, err) = output(uncork(folder.path(), &["validate", "--config", "uncork.toml"]));
        assert_eq!((code, out.as_str()), (3, ""), "{text}: {err}");
        assert!(err.contains(words) && err.lines().count() == 1, "{text}: {err}");
    }
}

#[test]
fn threads_are_refused_of_a_model_whose_threads_are_its_own_affair() {
    let folder = folder_with("");
    put(&folder, "m.onnx", plus_1());
    put(&folder, "app.py", "class Same: pass\n");
    for (source, is_refused) in [
        ("python = 'app.py:Same'", true),
        ("command = ['worker']", true),
        ("upstream = 'http://127.0.0.1:9'", true),
        ("synthetic = { base_ms = 1.0, per_row_ms = 0.1 }", true),
        ("path = 'm.onnx'", false),
        ("path = 'm.onnx'\nisolation = 'process'", false),
    ] {
        put(&folder, "uncork.toml", format!("[[model]]\nname = 'm'\n{source}\nthreads = 7\n"));
        let (code, out, err) = output(uncork(folder.path(), &["validate", "--config", "uncork.toml"]));
        if is_refused {
            assert_eq!((code, out.as_str()), (3, ""), "{source}");
            assert!(err.contains("is for models that compute in the server or with isolation = "), "{source}: {err}");
        } else {
            assert!(code == 0 && out.contains("1 runner of 7 threads"), "{source}: {out}{err}");
        }
    }
}

#[test]
fn what_files_and_settings_say_forges_no_line_and_does_nothing_to_a_terminal() {
    const HOSTILE: &str = "\u{1b}[31m\u{202e}\nX";
    let folder = folder_with("");
    // A node of another name, which is as long.
    let mut model = fs::read(file("tests/models/unsupported.onnx")).unwrap();
    let at: Vec<usize> = (0..model.len()).filter(|&at| model[at..].starts_with(b"odd_whiten")).collect();
    at.into_iter().for_each(|at| model[at..at + HOSTILE.len()].copy_from_slice(HOSTILE.as_bytes()));
    put(&folder, "m.onnx", model);
    let toml = HOSTILE.escape_unicode().to_string().replace("\\u{", "\\U");
    let toml: String = toml.split("\\U").skip(1).map(|code| format!("\\U{:0>8}", code.trim_end_matches('}'))).collect();
    for (name, text) in [
        ("model.toml", "[[model]]\nname = 'm'\npath = 'm.onnx'\n".to_owned()),
        ("tokens.toml", format!("[server]\ntokens_file = \"{toml}\"\n{STAND_IN}")),
        ("tls.toml", format!("[server]\ntls_certificate = \"{toml}\"\ntls_key = \"{toml}\"\n{STAND_IN}")),
    ] {
        put(&folder, name, text);
    }
    for arguments in [
        &["validate", "m.onnx"][..],
        &["serve", "--http", "127.0.0.1:0", "m.onnx"],
        &["validate", "--config", "model.toml"],
        &["validate", "--config", "tokens.toml"],
        &["validate", "--config", "tls.toml"],
        &["serve", "--http", "127.0.0.1:0", "--config", "tokens.toml"],
        &["serve", "--http", "127.0.0.1:0", "--config", "tls.toml"],
        &["validate", HOSTILE],
    ] {
        let (code, out, err) = output(uncork(folder.path(), arguments));
        let told = format!("{out}{err}");
        let is_bare = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(code == 3 && !told.contains(is_bare) && !told.contains("\nX"), "{arguments:?}: {told:?}");
    }
}

#[test]
fn a_certificate_that_has_expired_is_told_and_so_it_is_in_the_log_of_a_server() {
    let folder = folder_with(&format!("[server]\ntls_certificate = 'cert.pem'\ntls_key = 'key.pem'\n{STAND_IN}"));
    let write = |from: i32, until: i32| {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(from, 1, 1), rcgen::date_time_ymd(until, 1, 1));
        let key = rcgen::KeyPair::generate().unwrap();
        put(&folder, "cert.pem", params.self_signed(&key).unwrap().pem());
        put(&folder, "key.pem", key.serialize_pem());
    };
    let validate = || output(uncork(folder.path(), &["validate", "--config", "uncork.toml"]));
    write(2000, 2020);
    let (code, out, err) = validate();
    assert!(code == 0 && out.contains("cert.pem has expired on Wed, 01 Jan 2020"), "{out} {err}");
    let mut serving = uncork(folder.path(), &["serve", "--http", "127.0.0.1:0"]);
    let mut serving = serving.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let log = BufReader::new(serving.stderr.take().unwrap()).lines();
    let told = log.map(|line| line.unwrap()).find(|line| line.contains("has expired on Wed, 01 Jan 2020"));
    serving.kill().unwrap();
    serving.wait().unwrap();
    assert!(told.is_some_and(|line| line.contains("WARN")));
    write(2000, 2090);
    let (code, out, err) = validate();
    assert!(code == 0 && !out.contains("cert.pem"), "{out} {err}");
    // One behind it counts as much.
    let own = fs::read_to_string(folder.path().join("cert.pem")).unwrap();
    let key = fs::read_to_string(folder.path().join("key.pem")).unwrap();
    write(2000, 2020);
    put(&folder, "cert.pem", own + &fs::read_to_string(folder.path().join("cert.pem")).unwrap());
    put(&folder, "key.pem", key);
    let (code, out, err) = validate();
    assert!(code == 0 && out.contains("the root CN=rcgen self signed cert in "), "{out} {err}");
    assert!(out.contains("cert.pem has expired on Wed, 01 Jan 2020"), "{out}");
}

#[test]
fn a_version_without_a_clear_or_readable_file_is_named_with_its_model() {
    let folder = folder_with("[server]\nmodels = 'models'\n");
    put(&folder, "models/good/1/model.onnx", plus_1());
    put(&folder, "models/twice/1/a.onnx", plus_1());
    put(&folder, "models/twice/1/b.onnx", plus_1());
    put(&folder, "models/bad/1/model.onnx", "");
    put(&folder, "models/loose.onnx", plus_1());
    let (code, out, err) = output(uncork(folder.path(), &["validate", "--config", "uncork.toml"]));
    assert_eq!((code, out.as_str(), err.lines().count()), (3, "", 2), "{err}");
    assert!(
        err.contains("models/twice: version 1: its folder has no model.onnx, and 2 other files like that"),
        "{err}"
    );
    assert!(err.contains("models/bad: version 1: "), "{err}");
    fs::remove_dir_all(folder.path().join("models/twice")).unwrap();
    fs::remove_dir_all(folder.path().join("models/bad")).unwrap();
    let (code, out, err) = output(uncork(folder.path(), &["validate", "--config", "uncork.toml"]));
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("good: ok") && out.contains(r#""loose.onnx" is left alone: a model is a folder"#), "{out}");
}

#[test]
fn without_arguments_the_file_that_serve_would_read_is_checked() {
    let folder = folder_with(STAND_IN);
    let (code, out, err) = output(uncork(folder.path(), &["validate"]));
    assert!(code == 0 && out.starts_with("uncork.toml: ok\n  dry-run 1: "), "{out}{err}");
    put(&folder, "other.toml", STAND_IN.replace("dry-run", "other"));
    for (variable, name) in [("other.toml", "other.toml: ok"), ("", "uncork.toml: ok")] {
        let mut command = uncork(folder.path(), &["validate"]);
        command.env("UNCORK_CONFIG", variable);
        let (code, out, err) = output(command);
        assert!(code == 0 && out.starts_with(name), "{out}{err}");
    }
    for flags in [&["validate", "--json"][..], &["validate", "--length", "3"]] {
        assert_eq!(output(uncork(folder.path(), flags)).0, 3, "{flags:?} are of a model");
    }
    let (code, _, err) = output(uncork(Folder::new().path(), &["validate"]));
    assert!(code == 3 && err.contains("name a model's file, or a configuration"), "{err}");
}

#[test]
fn a_configuration_without_a_model_is_told_so() {
    let folder = folder_with("[server]\n");
    let (code, out, _) = output(uncork(folder.path(), &["validate", "--config", "uncork.toml"]));
    assert!(code == 0 && out.contains("no model is named, so the embedded one is served"), "{out}");
    fs::write(folder.path().join("uncork.toml"), "# [[model]]\n").unwrap();
    for command in ["validate", "serve"] {
        let (code, out, err) = output(uncork(folder.path(), &[command, "--config", "uncork.toml"]));
        assert!(
            code == 3 && out.is_empty() && err.contains("uncork.toml: holds no settings: name a model"),
            "{out}{err}"
        );
    }
}

#[test]
fn a_word_that_is_no_model_is_told_what_it_is() {
    let folder = folder_with("");
    put(&folder, "app.py", "class Churn: pass\n");
    put(&folder, "st.toml", STAND_IN);
    for (word, words) in [
        ("app.py", "is a Python file, of which a class is served: app.py:CLASS"),
        ("st.toml", "is a configuration, and no model: --config st.toml"),
    ] {
        let (code, _, err) = output(uncork(folder.path(), &["serve", word]));
        assert!(code == 3 && err.contains(words), "{err}");
    }
}

#[test]
fn a_class_is_tried_as_a_server_would_try_it() {
    let folder = folder_with("");
    let class = |most: u32| {
        format!(
            "class Model:\n    example = 1\n    def __call__(self, rows):\n        assert len(rows) <= {most}\n        return rows\n"
        )
    };
    put(&folder, "app.py", class(2));
    for command in ["validate", "serve"] {
        let (code, out, err) = output(uncork(folder.path(), &[command, "app.py:Model"]));
        assert_eq!((code, out.as_str()), (3, ""), "{command}: {err}");
        assert!(err.contains("model 'model': a batch of 4 equal rows failed: "), "{command}: {err}");
    }
    let (code, out, err) = output(uncork(folder.path(), &["validate", "app.py:Model", "--json"]));
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, err.as_str(), &told["file"], &told["servable"]), (3, "", &json!("app.py:Model"), &json!(false)));
    assert!(told["reason"].as_str().unwrap().starts_with("a batch of 4 equal rows failed: "), "{out}");
    put(&folder, "app.py", class(128));
    let (code, out, err) = output(uncork(folder.path(), &["validate", "app.py:Model"]));
    assert!(code == 0 && out.ends_with("warmed up with its example\n"), "{out}{err}");
    let (code, out, err) = output(uncork(folder.path(), &["validate", "app.py:Model", "--json"]));
    assert_eq!((code, err.as_str()), (0, ""));
    let tensor = |name: &str| json!([{"name": name, "datatype": "BYTES", "shape": [null], "batch_axis": 0}]);
    let expected = json!({"file": "app.py:Model", "servable": true, "warmed_up_with": "its example", "inputs": tensor("request"), "outputs": tensor("answer")});
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), expected);
}

#[test]
fn what_is_asked_of_a_model_and_cannot_be_is_refused_by_name() {
    let folder = folder_with("");
    put(&folder, "m.onnx", fs::read(file("tests/models/mlp.onnx")).unwrap());
    put(&folder, "app.py", "class Model:\n    example = 1\n    def __call__(self, rows): return rows\n");
    for (arguments, words) in [
        (&["m.onnx", "--length", "8"][..], "--length: the model has no free dimension beside the batch\n"),
        (&["app.py:Model", "--length", "8"], "--length: a worker says itself which shapes it takes\n"),
        (&["http://127.0.0.1:9/v2/models/m"], "http://127.0.0.1:9/v2/models/m: an upstream is not validated; "),
    ] {
        let (code, out, err) = output(uncork(folder.path(), &[&["validate"], arguments].concat()));
        assert_eq!((code, out.as_str()), (3, ""), "{arguments:?}: {err}");
        assert!(err.starts_with(words), "{arguments:?}: {err}");
    }
}

#[test]
fn a_model_that_is_not_tried_is_told_in_json_too() {
    let folder = folder_with("");
    put(&folder, "m.onnx", plus_1());
    put(&folder, "a.toml", STAND_IN);
    for (words, servable, reason) in [
        (&["none.onnx"][..], json!(false), "cannot be opened"),
        (&["a.toml"], json!(false), "is a configuration file"),
        (&["none.py:X"], json!(false), "there is no file"),
        (&["m.onnx", "--length", "4"], json!(null), "has no free dimension"),
    ] {
        let (code, out, err) = output(uncork(folder.path(), &[&["validate", "--json"], words].concat()));
        assert_eq!((code, err.as_str()), (3, ""), "{words:?}: {out}");
        let told: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&told["file"], &told["servable"]), (&json!(words[0]), &servable), "{out}");
        assert!(told["reason"].as_str().unwrap().contains(reason), "{out}");
    }
}

#[test]
fn the_memory_of_a_row_is_counted_and_the_same_each_time() {
    let bytes = || {
        let model = file("tests/models/lenet.onnx");
        let (code, out, err) = output(uncork(
            Folder::new().path(),
            &["validate", &model, "--for", "20ms", "--json", "--max-batch-size", "4"],
        ));
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        serde_json::from_str::<Value>(&out).unwrap()["bytes_per_row"].as_u64()
    };
    // The picture alone is 28 times 28 floats.
    let first = bytes();
    assert!(first.is_some_and(|bytes| bytes >= 4 * 28 * 28), "{first:?}");
    assert_eq!(first, bytes());
}
