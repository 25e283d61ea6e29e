//! What `uncork profile` promises on the command line. How long anything takes is nowhere assumed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::folder::Folder;
use serde_json::{Value, json};

/// The program in `folder`, without the variables of whoever runs the tests: exit code, stdout and stderr.
fn uncork(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uncork"));
    command.current_dir(folder).args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("UNCORK_")) {
        command.env_remove(name);
    }
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().expect("it ended by itself"), text(stdout), text(stderr))
}

fn model(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models").join(file)
}

fn profile(folder: &Path, arguments: &str) -> (i32, String, String) {
    let arguments: Vec<&str> = std::iter::once("profile").chain(arguments.split(' ')).collect();
    uncork(folder, &arguments)
}

/// The JSON of a run that must succeed.
fn measured(arguments: &str) -> Value {
    let (code, out, errors) = profile(Folder::new().path(), &format!("{arguments} --json"));
    assert_eq!((code, errors.as_str()), (0, ""), "{out}");
    serde_json::from_str(&out).unwrap()
}

/// What it says about a run that must fail.
fn complaint(folder: &Path, arguments: &str) -> String {
    let (code, out, errors) = profile(folder, arguments);
    assert_eq!((code, out.as_str()), (3, ""), "{arguments}: {errors}");
    errors
}

fn numbers(curve: &Value, key: &str) -> Vec<f64> {
    curve["sizes"].as_array().unwrap().iter().map(|size| size[key].as_f64().unwrap()).collect()
}

#[test]
fn the_embedded_model_is_measured_over_growing_sizes_with_each_number_of_threads() {
    let found = measured("--for 1s --max-batch-size 16 --threads 2,1");
    assert_eq!((&found["model"], &found["device"]), (&json!("digits"), &json!("flex")));
    assert_eq!(found["inputs"], json!([{"name": "pixels", "datatype": "FP32", "shape": [-1, 64]}]));
    let curves = found["curves"].as_array().unwrap();
    assert_eq!(curves.iter().map(|curve| &curve["threads"]).collect::<Vec<_>>(), [&json!(1), &json!(2)]);
    for curve in curves {
        // A machine that is very slow at this moment ends the sizes early, and says so.
        let rows = numbers(curve, "rows");
        assert!([1., 2., 3., 4., 6., 8., 12., 16.].starts_with(&rows) && !rows.is_empty(), "{rows:?}");
        assert_eq!(found["stopped"].is_null(), rows.len() == 8, "{}", found["stopped"]);
        assert_eq!(rows, numbers(&curves[0], "rows"));
        let (medians, p95s) = (numbers(curve, "median_ms"), numbers(curve, "p95_ms"));
        assert!(medians.iter().zip(&p95s).all(|(median, p95)| *median > 0.0 && p95 >= median));
        let per_row = numbers(curve, "ms_per_row");
        let rates = numbers(curve, "rows_per_s");
        let consistent = |i: usize| {
            let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-6;
            near(per_row[i] * rows[i], medians[i]) && near(rates[i] * medians[i], 1e3 * rows[i])
        };
        assert!((0..rows.len()).all(consistent));
        let residuals = numbers(curve, "residual");
        let predicted = numbers(curve, "predicted_ms");
        let line = |i: usize| medians[i] / predicted[i] - 1.0 - residuals[i];
        assert!((0..rows.len()).all(|i| line(i).abs() < 1e-6));
        assert!(numbers(curve, "batches").iter().all(|&batches| batches >= 1.0));
        assert!(curve["base_ms"].as_f64().unwrap() >= 0.0 && curve["per_row_ms"].as_f64().unwrap() >= 0.0);
    }
    let advice = &found["advice"];
    assert!(numbers(&curves[0], "rows").contains(&advice["max_batch_size"].as_f64().unwrap()));
    assert!(advice["max_latency_ms"].as_f64() >= advice["least_latency_ms"].as_f64(), "{advice}");
    assert!(found["sentences"].as_array().unwrap().len() >= 3);
}

#[cfg(target_os = "linux")]
#[test]
fn memory_is_known_where_the_system_lets_it_be() {
    let found = measured("--for 100ms --max-batch-size 2 --threads 1");
    let memory = &found["curves"][0]["sizes"][0]["memory_bytes"];
    let allowed = fs::write("/proc/self/clear_refs", "5").is_ok();
    assert_eq!(memory.as_u64().is_some_and(|bytes| bytes > 1 << 20), allowed, "{memory}");
}

#[test]
fn of_a_model_in_another_process_no_memory_is_told() {
    let folder = Folder::new();
    fs::write(
        folder.path().join("app.py"),
        "class Same:\n    example = 1\n    def __call__(self, rows): return rows\n",
    )
    .unwrap();
    let path = model("mlp.onnx");
    let isolated = format!("[[model]]\nname = 'mlp'\npath = {path:?}\nisolation = 'process'\n");
    fs::write(folder.path().join("isolated.toml"), isolated).unwrap();
    for which in ["app.py:Same", "--config isolated.toml"] {
        let (code, out, errors) = profile(folder.path(), &format!("{which} --for 100ms --max-batch-size 2 --json"));
        assert_eq!((code, errors.as_str()), (0, ""), "{which}");
        let found: Value = serde_json::from_str(&out).unwrap();
        let sizes = found["curves"][0]["sizes"].as_array().unwrap();
        assert!(sizes.iter().all(|size| size["memory_bytes"].is_null()), "{which}: {out}");
        let why = "is not known: the model runs in a process of its own";
        let mut sentences = found["sentences"].as_array().unwrap().iter().filter_map(Value::as_str);
        assert!(sentences.any(|sentence| sentence.contains(why)), "{which}: {out}");
    }
}

#[test]
fn a_class_that_answers_its_own_example_with_an_error_has_no_profile() {
    let folder = Folder::new();
    let class = "class Bad:\n    example = 1\n    def __call__(self, rows): raise ValueError('never')\n";
    fs::write(folder.path().join("app.py"), class).unwrap();
    for flags in ["", " --max-batch-size 1"] {
        let told = complaint(folder.path(), &format!("app.py:Bad --for 100ms{flags}"));
        assert!(told.starts_with("a batch of 1 row fails: ") && told.contains("never"), "{told}");
    }
}

#[test]
fn sizes_that_ran_are_measured_though_a_larger_one_ended_the_process() {
    let folder = Folder::new();
    let class = "import os\nclass Falls:\n    example = 1\n    def __call__(self, rows):\n        \
                 if len(rows) > 2: os._exit(1)\n        return rows\n";
    fs::write(folder.path().join("app.py"), class).unwrap();
    let (code, out, errors) = profile(folder.path(), "app.py:Falls --for 2s --max-batch-size 4 --json");
    assert_eq!((code, errors.as_str()), (0, ""));
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(numbers(&found["curves"][0], "rows"), [1.0, 2.0]);
    let stopped = found["stopped"].as_str().unwrap();
    assert!(stopped.starts_with("The sizes end at 2 rows: a batch of 3 rows fails: "), "{stopped}");
}

#[test]
fn people_get_a_table_two_plots_reasons_and_settings_that_are_valid() {
    let folder = Folder::new();
    fs::copy(model("mlp.onnx"), folder.path().join("mlp.onnx")).unwrap();
    let (code, text, errors) = profile(folder.path(), "mlp.onnx --for 1s --max-batch-size 8 --threads 1");
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(text.starts_with("mlp.onnx on "), "{text}");
    for part in
        ["median ms", "ms a batch, by its rows", "rows a second as served", "max_batch_size = ", "max_latency_ms = "]
    {
        assert!(text.contains(part), "no '{part}' in:\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let (_, settings) = text.split_once("In uncork.toml:\n\n").unwrap();
    fs::write(folder.path().join("uncork.toml"), settings).unwrap();
    let (code, out, errors) = uncork(folder.path(), &["validate", "--config", "uncork.toml"]);
    assert_eq!((code, errors.as_str()), (0, ""), "{settings}");
    assert!(out.contains("mlp.onnx, max_latency_ms"), "{out}");
}

/// Whether every tag of the page is closed by its own.
fn is_well_formed(page: &str) -> bool {
    const EMPTY: [&str; 2] = ["!DOCTYPE", "meta"];
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1) {
        let Some((tag, text)) = tag.split_once('>') else { return false };
        let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap_or_default();
        if tag.starts_with('/') {
            if open.pop() != Some(name) {
                return false;
            }
        } else if !tag.ends_with('/') && !EMPTY.contains(&name) {
            open.push(name);
        }
        if text.contains('>') || tag.matches('"').count() % 2 == 1 {
            return false;
        }
    }
    open.is_empty()
}

#[test]
fn the_page_is_one_well_formed_file_that_fetches_nothing() {
    let folder = Folder::new();
    fs::copy(model("mlp.onnx"), folder.path().join("mlp.onnx")).unwrap();
    let arguments = "mlp.onnx --for 1s --max-batch-size 4 --threads 1,2 --html page.html --json numbers.json";
    let (code, text, errors) = profile(folder.path(), arguments);
    assert_eq!((code, errors.as_str()), (0, ""), "{text}");
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(is_well_formed(&page), "{page}");
    assert!(!is_well_formed("<p>a</b>") && !is_well_formed("<p>") && !is_well_formed("<p>1 > 0</p>"));
    for forbidden in ["http:", "https:", "//", "<script", "<link", "<img", "src=", "url(", "@import"] {
        assert!(!page.contains(forbidden), "the page has '{forbidden}'");
    }
    assert_eq!(page.matches("<svg").count(), 3);
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("color-scheme: light dark"));
    let numbers: Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("numbers.json")).unwrap()).unwrap();
    // In each chart a point for each size and number of threads.
    let sizes = numbers["curves"][0]["sizes"].as_array().unwrap().len();
    assert_eq!(page.matches("<circle").count(), 3 * 2 * sizes);
    assert!(text.contains("rows/s"), "the text is printed beside the files");
}

#[test]
fn where_batches_take_long_the_sizes_end_and_it_says_why() {
    let folder = Folder::new();
    let slow = "[[model]]\nname = 'slow'\nsynthetic = { base_ms = 150.0, per_row_ms = 0.0 }\n";
    fs::write(folder.path().join("uncork.toml"), slow).unwrap();
    let (code, out, errors) = profile(folder.path(), "--for 500ms --json");
    assert_eq!((code, errors.as_str()), (0, ""));
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(numbers(&found["curves"][0], "rows"), [1.0]);
    assert!(found["stopped"].as_str().unwrap().starts_with("The sizes end at 1 row, since"), "{}", found["stopped"]);
    assert_eq!(found["advice"]["max_batch_size"], 1);
    assert!(found["sentences"][1].as_str().unwrap().contains("there is no line"), "{}", found["sentences"]);
    let (code, text, _) = profile(folder.path(), "--for 500ms --html page.html");
    assert_eq!(code, 0);
    assert!(!text.contains("by its rows") && text.contains("The sizes end at 1 row"), "{text}");
    assert!(is_well_formed(&fs::read_to_string(folder.path().join("page.html")).unwrap()));
}

#[test]
fn free_dimensions_are_set_by_name_or_all_at_once_or_taken_as_something_that_runs() {
    let path = model("free.onnx").display().to_string();
    let shapes = |arguments: &str| {
        let found = measured(&format!("{path} --for 50ms --threads 1 {arguments}"));
        let shapes = found["inputs"].as_array().unwrap().iter().map(|input| input["shape"][1].as_u64().unwrap());
        let assumed = found["sentences"][0].as_str().unwrap().starts_with("Free dimensions were taken as 16;");
        (shapes.collect::<Vec<_>>(), assumed)
    };
    assert_eq!(shapes("--dim sequence=7"), (vec![7, 7], false));
    assert_eq!(shapes("--length 5"), (vec![5, 5], false));
    assert_eq!(shapes("--length 5 --dim sequence=7"), (vec![7, 7], false));
    assert_eq!(shapes("--max-batch-size 2"), (vec![16, 16], true));
    let nothing = Folder::new();
    let unknown = complaint(nothing.path(), &format!("{path} --dim sequenze=7"));
    assert!(
        unknown.contains("no free dimension is called 'sequenze'; the model's are 'batch', 'sequence'"),
        "{unknown}"
    );
    let none = complaint(nothing.path(), &format!("{} --length 7", model("mlp.onnx").display()));
    assert_eq!(none, "--length: the model has no free dimension beside the batch\n");
}

#[test]
fn a_model_of_a_configuration_file_is_measured_under_its_own_cap() {
    let folder = Folder::new();
    let path = model("mlp.onnx");
    let two = format!(
        "[[model]]\nname = 'a'\nsynthetic = {{ base_ms = 0.1, per_row_ms = 0.01 }}\n\
         [[model]]\nname = 'b'\npath = {path:?}\nmax_batch_size = 3\nthreads = 1\n"
    );
    fs::write(folder.path().join("two.toml"), two).unwrap();
    let (code, out, errors) = profile(folder.path(), "--config two.toml --model b --for 500ms --json");
    assert_eq!((code, errors.as_str()), (0, ""));
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(found["curves"].as_array().unwrap().len(), 1, "one thread is all that it may use");
    assert!([1.0, 2.0, 3.0].starts_with(&numbers(&found["curves"][0], "rows")));
    assert!(complaint(folder.path(), "--config two.toml").contains("--model says which of these to measure: a, b"));
    let unknown = complaint(folder.path(), "--config two.toml --model c");
    assert_eq!(unknown, "--model c: there is no such model; there are a, b\n");
}

#[test]
fn a_model_that_is_named_outweighs_those_of_the_environments_file() {
    let folder = Folder::new();
    fs::copy(model("mlp.onnx"), folder.path().join("mlp.onnx")).unwrap();
    let dry = "[[model]]\nname = 'dry'\nsynthetic = { base_ms = 0.1, per_row_ms = 0.01 }\n";
    fs::write(folder.path().join("q.toml"), dry).unwrap();
    let with = |arguments: &[&str]| {
        let mut command = crate::program::uncork(folder.path(), arguments);
        command.env("UNCORK_CONFIG", "q.toml");
        crate::program::output(command)
    };
    let (code, out, errors) = with(&["profile", "mlp.onnx", "--for", "50ms", "--threads", "1", "--json"]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["model"], "mlp");
    let (code, out, errors) = with(&["validate", "mlp.onnx", "--for", "50ms"]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(out.starts_with("mlp.onnx: can be served\n"), "{out}");
}

#[test]
fn a_folder_of_models_is_told_to_be_none() {
    let folder = Folder::new();
    fs::create_dir(folder.path().join("models")).unwrap();
    fs::write(folder.path().join("uncork.toml"), "[server]\nmodels = 'models'\n").unwrap();
    for arguments in ["--for 50ms", "--model a"] {
        let told = complaint(folder.path(), arguments);
        assert_eq!(told, "profile does not read a folder of models: name the file\n", "{arguments}");
    }
}

#[test]
fn of_a_model_that_runs_some_sizes_those_are_timed_and_what_is_suggested_is_valid() {
    let folder = Folder::new();
    let few =
        "[[model]]\nname = 'few'\nsynthetic = { base_ms = 0.1, per_row_ms = 0.01 }\nallowed_batch_sizes = [1, 8, 16]\n";
    fs::write(folder.path().join("few.toml"), few).unwrap();
    let (code, out, errors) = profile(folder.path(), "--config few.toml --for 500ms --json");
    assert_eq!((code, errors.as_str()), (0, ""));
    let found: Value = serde_json::from_str(&out).unwrap();
    let rows = numbers(&found["curves"][0], "rows");
    assert!([1.0, 8.0, 16.0].starts_with(&rows), "{rows:?}");
    let toml = found["toml"].as_str().unwrap();
    assert!(toml.contains("\nallowed_batch_sizes = [1"), "{toml}");
    fs::write(folder.path().join("uncork.toml"), toml).unwrap();
    let (code, _, errors) = uncork(folder.path(), &["validate", "--config", "uncork.toml"]);
    assert_eq!((code, errors.as_str()), (0, ""), "{toml}");
}

#[test]
fn shapes_have_their_rows_where_the_model_has_them() {
    let found = measured(&format!("{} --for 50ms --max-batch-size 1 --threads 1", model("stateful.onnx").display()));
    let inputs = found["inputs"].as_array().unwrap();
    let state = inputs.iter().find(|input| input["name"] == "state").unwrap();
    assert_eq!(state["shape"], json!([2, -1, 3]));
}

#[test]
fn threads_and_lengths_are_those_of_whoever_computes() {
    let folder = Folder::new();
    let path = model("mlp.onnx");
    let two = format!(
        "[[model]]\nname = 'dry'\nsynthetic = {{ base_ms = 0.1, per_row_ms = 0.01 }}\n\
         [[model]]\nname = 'own'\npath = {path:?}\nisolation = 'process'\nthreads = 3\n"
    );
    fs::write(folder.path().join("uncork.toml"), two).unwrap();
    for (name, threads) in [("dry", json!(null)), ("own", json!(3))] {
        let few = format!("--model {name} --for 200ms --max-batch-size 2");
        let (code, out, errors) = profile(folder.path(), &format!("{few} --html page.html --json"));
        assert_eq!((code, errors.as_str()), (0, ""));
        let found: Value = serde_json::from_str(&out).unwrap();
        let curves = found["curves"].as_array().unwrap();
        assert_eq!(curves.iter().map(|curve| &curve["threads"]).collect::<Vec<_>>(), [&threads], "{name}");
        assert_eq!(found["advice"]["threads"], threads, "{name}");
        assert!(name == "own" || !found["toml"].as_str().unwrap().contains("threads"), "{}", found["toml"]);
        let (_, text, _) = profile(folder.path(), &few);
        assert_eq!(text.contains("thread"), name == "own", "{text}");
        for flag in ["--threads 1", "--length 8"] {
            let told = complaint(folder.path(), &format!("{few} {flag}"));
            assert!(told.starts_with(flag.split(' ').next().unwrap()), "{told}");
        }
    }
}

#[test]
fn bad_input_ends_with_3_and_a_sentence() {
    let folder = Folder::new();
    fs::write(folder.path().join("m.onnx"), "what is this").unwrap();
    let mlp = model("mlp.onnx").display().to_string();
    let cases = [
        ("none.onnx", "cannot be opened"),
        ("m.onnx", "not a readable ONNX file"),
        ("--threads 0", "must be a whole number from 1 to 1024"),
        ("--threads 1,2,3,4,5,6,7", "at most 6"),
        ("--max-batch-size 0", "must be a whole number from 1 to 65536"),
        ("--for never", "must be a time"),
        ("--dim sequence", "must be a name and a length"),
        ("--device gpu", "must be one of 'flex', 'wgpu', 'cuda'"),
        ("--model b", "there is no such model; there are digits"),
        ("--config none.toml", "cannot be read"),
        ("m.onnx --config none.toml", "cannot be used with"),
    ];
    for (arguments, said) in cases {
        let errors = complaint(folder.path(), arguments);
        assert!(errors.contains(said), "{arguments}: {errors}");
    }
    let over = complaint(folder.path(), "--json m.onnx");
    assert!(over.contains("would write over a model") && folder.path().join("m.onnx").exists(), "{over}");
    // It is said before anything is measured.
    let (code, out, errors) =
        profile(folder.path(), &format!("{mlp} --for 50ms --max-batch-size 1 --html no/page.html"));
    assert_eq!(code, 3);
    assert!(out.is_empty() && errors.contains("page.html cannot be written: there is no folder no"), "{errors}");
}
