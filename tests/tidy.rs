//! Holds the house to its plan (docs/architecture.md): who imports whom, what stays pure, how long a file may be.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Each room and the rooms that it may import. Arrows run one way: a cycle would need two rows that name each other.
const ROOMS: &[(&str, &[&str])] = &[
    ("estimator", &[]),
    ("policy", &["estimator"]),
    ("sim", &["estimator", "policy"]),
    ("quote", &[]),
    ("tensor", &["quote"]),
    ("error", &["quote"]),
    ("metrics", &["error", "policy"]),
    ("telemetry", &[]),
    ("batcher", &["error", "estimator", "metrics", "policy", "telemetry"]),
    ("runner", &["quote", "tensor"]),
    ("registry", &["batcher", "error", "metrics", "runner", "telemetry", "tensor"]),
    ("server", &["error", "quote", "registry", "runner", "telemetry", "tensor"]),
    ("config", &["registry", "server", "telemetry"]),
    ("loadtest", &["sim"]),
    (
        "cli",
        &["config", "estimator", "loadtest", "policy", "registry", "runner", "server", "sim", "telemetry", "tensor"],
    ),
];

/// Rooms that decide: values in, values out.
const PURE: &[&str] = &["estimator", "policy", "sim"];

/// What a pure room has no use for, and why.
const IMPURE: &[(&str, &str)] = &[
    ("tokio", "an event loop"),
    ("std::time::Instant", "a clock"),
    ("SystemTime", "a clock"),
    ("Instant::now", "a clock"),
    ("metrics::", "metrics"),
    ("tracing", "a log"),
    ("rand::rng()", "chance without a seed"),
    ("std::fs", "files"),
    ("std::net", "the network"),
    ("std::env", "the environment"),
    ("std::thread", "threads"),
];

const MOST_LINES: usize = 600;

/// A source file's path below `src`, and its text without unit tests.
struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    fn room(&self) -> String {
        let first = self.path.components().next().expect("a file below src");
        let name = Path::new(first.as_os_str()).file_stem().expect("it has a name");
        name.to_string_lossy().into_owned()
    }
}

fn rust_files(below: &Path) -> Vec<PathBuf> {
    let mut folders = vec![below.to_path_buf()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    found
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a readable file");
        // Unit tests are neither long files nor imports of their room.
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_string();
        Source { path: path.strip_prefix(&root).expect("below src").into(), text }
    };
    let found: Vec<Source> = rust_files(&root).into_iter().map(read).collect();
    assert!(found.len() > 20, "the sources were found");
    found
}

/// The rooms that a text names in `crate::room` paths, comments aside.
fn imports(text: &str) -> BTreeSet<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: String = code.collect::<Vec<_>>().join("\n");
    let mut rooms = BTreeSet::new();
    for path in code.split("crate::").skip(1) {
        let group = path.strip_prefix('{').and_then(|rest| rest.split_once("};"));
        let names = match group {
            Some((group, _)) => group.split(',').map(str::trim).collect(),
            None => vec![path],
        };
        let first_word = |name: &str| name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
        rooms.extend(names.into_iter().map(first_word).filter(|room| !room.is_empty()));
    }
    rooms
}

#[test]
fn every_room_imports_only_what_the_plan_allows() {
    let mut broken = Vec::new();
    for source in sources() {
        let room = source.room();
        if room == "lib" || room == "main" {
            continue;
        }
        let Some((_, allowed)) = ROOMS.iter().find(|(name, _)| *name == room) else {
            broken.push(format!("{}: the plan has no room '{room}'", source.path.display()));
            continue;
        };
        for import in imports(&source.text) {
            if import != room && !allowed.contains(&import.as_str()) {
                broken.push(format!("{}: '{room}' may not import '{import}'", source.path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_plan_names_the_rooms_that_exist() {
    let have: BTreeSet<String> = sources().iter().map(Source::room).filter(|r| r != "lib" && r != "main").collect();
    let plan: BTreeSet<String> = ROOMS.iter().map(|(room, _)| room.to_string()).collect();
    assert_eq!(have, plan);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/architecture.md");
    let page = fs::read_to_string(page).expect("the architecture page");
    for room in plan {
        assert!(page.contains(&format!("`{room}`")) || page.contains(&format!("`{room}/`")), "the page lacks '{room}'");
    }
}

#[test]
fn what_decides_is_pure() {
    for source in sources().iter().filter(|s| PURE.contains(&s.room().as_str())) {
        let code: Vec<&str> = source.text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        for (word, what) in IMPURE {
            let line = code.iter().find(|line| line.contains(word));
            assert_eq!(line, None, "{} knows {what}", source.path.display());
        }
    }
}

#[test]
fn no_file_is_long() {
    for source in sources() {
        let lines = source.text.lines().count();
        assert!(lines <= MOST_LINES, "{} has {lines} lines; {MOST_LINES} are the most", source.path.display());
    }
}

#[test]
fn every_file_says_its_duty_first() {
    for source in sources() {
        assert!(source.text.starts_with("//! "), "{} does not begin with its duty", source.path.display());
    }
}

#[test]
fn the_tests_that_the_page_on_peers_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/peers.md")).expect("the page on peers");
    let is_test_name = |word: &&str| word.len() > 20 && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    let named: Vec<&str> = page.split('`').filter(is_test_name).collect();
    assert!(named.len() > 15, "the page names its tests");
    let texts = rust_files(&root.join("src")).into_iter().chain(rust_files(&root.join("tests")));
    let code: String = texts.map(|path| fs::read_to_string(path).expect("a readable file")).collect();
    let missing: Vec<_> = named.into_iter().filter(|name| !code.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
    let scenarios = page.split('`').filter(|word| word.starts_with("tests/") && word.ends_with(".toml"));
    let missing: Vec<_> = scenarios.filter(|path| !root.join(path).exists()).collect();
    assert!(missing.is_empty(), "no such scenarios: {missing:?}");
}

#[test]
fn imports_are_read_from_paths_and_groups() {
    let text = "use crate::tensor::Tensors;\nuse crate::{error::Error, policy::Cork};\n// crate::cli is not one\nlet x = crate::batcher::y;";
    assert_eq!(imports(text).into_iter().collect::<Vec<_>>(), ["batcher", "error", "policy", "tensor"]);
}
