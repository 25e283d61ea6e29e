//! Holds the house to its plan (docs/architecture.md): who imports whom, what stays pure, how long a file may be.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The packages, by their folders, with the name under which others import each. One that has rooms of its own is a house
/// like the root; each other one is a single room of that name.
const PACKAGES: &[(&str, &str, Package)] = &[
    (".", "uncork", Package::OfRooms),
    ("crates/core", "uncork_core", Package::OfRooms),
    ("crates/model", "uncork_model", Package::OfRooms),
    ("crates/onnx", "uncork_onnx", Package::Room("onnx")),
    ("crates/remote", "uncork_remote", Package::OfRooms),
    ("crates/sim", "uncork_sim", Package::Room("sim")),
    ("crates/batcher", "uncork_batcher", Package::Room("batcher")),
    ("crates/loadtest", "uncork_loadtest", Package::Room("loadtest")),
    ("crates/commands", "uncork_commands", Package::Room("commands")),
];

#[derive(Clone, Copy, PartialEq)]
enum Package {
    /// Its modules are the rooms.
    OfRooms,
    /// It is a room itself, whatever its modules are.
    Room(&'static str),
}

/// Each room and the rooms that it may import. Arrows run one way: there is no cycle.
const ROOMS: &[(&str, &[&str])] = &[
    ("estimator", &[]),
    ("front", &["estimator", "policy"]),
    ("policy", &["estimator"]),
    ("sim", &["estimator", "policy"]),
    ("quote", &[]),
    ("files", &[]),
    ("tensor", &["quote"]),
    ("raw", &["quote", "tensor"]),
    ("batcher", &["estimator", "policy"]),
    ("error", &["batcher", "quote"]),
    ("metrics", &["batcher", "error", "estimator", "policy"]),
    ("telemetry", &["batcher", "estimator", "quote"]),
    ("journal", &["batcher", "error", "estimator", "policy"]),
    ("statistics", &["batcher", "estimator", "metrics"]),
    ("runner", &["quote", "tensor"]),
    ("onnx", &["quote", "runner", "tensor"]),
    ("opaque", &["runner", "tensor"]),
    ("worker", &["opaque", "quote", "raw", "runner", "tensor"]),
    ("upstream", &["opaque", "quote", "raw", "runner", "tensor"]),
    (
        "registry",
        &[
            "batcher",
            "error",
            "journal",
            "metrics",
            "onnx",
            "opaque",
            "quote",
            "runner",
            "statistics",
            "telemetry",
            "tensor",
            "upstream",
            "worker",
        ],
    ),
    ("repository", &["quote", "registry", "runner"]),
    (
        "server",
        &[
            "batcher",
            "error",
            "estimator",
            "files",
            "front",
            "metrics",
            "opaque",
            "quote",
            "raw",
            "registry",
            "repository",
            "runner",
            "telemetry",
            "tensor",
        ],
    ),
    ("config", &["files", "quote", "registry", "repository", "runner", "server", "telemetry", "upstream", "worker"]),
    ("loadtest", &["sim"]),
    ("commands", &["estimator", "loadtest", "policy", "quote", "runner", "sim"]),
    (
        "cli",
        &[
            "commands",
            "config",
            "estimator",
            "onnx",
            "opaque",
            "quote",
            "registry",
            "repository",
            "runner",
            "server",
            "telemetry",
            "tensor",
            "worker",
        ],
    ),
];

/// Rooms that decide: values in, values out.
const PURE: &[&str] = &["estimator", "front", "policy", "sim"];

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

/// A source file: the room that it is in, its path, and its text without unit tests.
struct Source {
    /// `None` for the files that only say what a package is made of.
    room: Option<String>,
    package: Package,
    path: PathBuf,
    text: String,
}

impl Source {
    fn read(package: Package, below: &Path, path: PathBuf) -> Source {
        let text = fs::read_to_string(&path).expect("a readable file");
        // Unit tests are neither long files nor imports of their room.
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_string();
        let first = path.strip_prefix(below).expect("below it").components().next().expect("a file below src");
        let first = Path::new(first.as_os_str()).file_stem().expect("it has a name").to_string_lossy().into_owned();
        let room = match package {
            Package::Room(room) => Some(room.to_string()),
            Package::OfRooms => Some(first).filter(|first| first != "lib" && first != "main"),
        };
        Source { room, package, path, text }
    }

    /// The rooms that it names, its own aside.
    fn imports(&self) -> BTreeSet<String> {
        let mut rooms = BTreeSet::new();
        // Nobody depends on the root, the first.
        for (_, name, package) in &PACKAGES[1..] {
            match package {
                Package::OfRooms => rooms.extend(named_behind(&format!("{name}::"), &self.text)),
                Package::Room(room) => rooms.extend(code(&self.text).contains(name).then(|| room.to_string())),
            }
        }
        if self.package == Package::OfRooms {
            rooms.extend(named_behind("crate::", &self.text));
        }
        rooms.extend(self.room.iter().cloned());
        rooms.retain(|room| Some(room) != self.room.as_ref());
        rooms
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
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
    let files = |(folder, _, package): &(&str, &str, Package)| {
        let below = root().join(folder).join("src");
        let files = rust_files(&below).into_iter();
        files.map(|path| Source::read(*package, &below, path)).collect::<Vec<_>>()
    };
    let found: Vec<Source> = PACKAGES.iter().flat_map(files).collect();
    assert!(found.len() > 20, "the sources were found");
    found
}

/// A text without the lines that are comments.
fn code(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The rooms that a text names in paths that begin so, comments aside.
fn named_behind(start: &str, text: &str) -> BTreeSet<String> {
    let mut rooms = BTreeSet::new();
    for path in code(text).split(start).skip(1) {
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

/// The rooms that this one may import.
fn allowed(room: &str) -> Option<&'static [&'static str]> {
    ROOMS.iter().find(|(name, _)| *name == room).map(|(_, allowed)| *allowed)
}

#[test]
fn every_room_imports_only_what_the_plan_allows() {
    let mut broken = Vec::new();
    for source in sources() {
        let Some(room) = &source.room else { continue };
        let Some(allowed) = allowed(room) else {
            broken.push(format!("{}: the plan has no room '{room}'", source.path.display()));
            continue;
        };
        for import in source.imports() {
            if !allowed.contains(&import.as_str()) {
                broken.push(format!("{}: '{room}' may not import '{import}'", source.path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn no_room_imports_itself_by_way_of_others() {
    // Takes away whoever imports nobody that is left; what stays is in a cycle, or imports one that is.
    let mut left: Vec<_> = ROOMS.to_vec();
    while let Some(at) = left.iter().position(|(_, to)| to.iter().all(|to| left.iter().all(|(room, _)| room != to))) {
        left.remove(at);
    }
    assert_eq!(left, []);
}

/// The packages of this workspace that a manifest's `[dependencies]` name, as they are imported.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let table = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
    let table = table.split("\n[").next().unwrap_or_default();
    let names = table.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter(|name| name.starts_with("uncork")).map(|name| name.replace('-', "_")).collect()
}

#[test]
fn packages_depend_on_those_whose_rooms_they_import_and_on_no_others() {
    for (folder, name, _) in PACKAGES {
        let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).expect("a manifest");
        let below = root().join(folder).join("src");
        let text: String = rust_files(&below).iter().map(|path| fs::read_to_string(path).expect("a file")).collect();
        let text = code(&text);
        let is_named = |other: &&str| {
            [format!("{other}::"), format!("use {other} as ")].iter().any(|use_of| text.contains(use_of))
        };
        // Nobody depends on the root, the first.
        let others = PACKAGES[1..].iter().map(|(_, other, _)| *other).filter(|other| other != name);
        let named: BTreeSet<String> = others.filter(is_named).map(str::to_string).collect();
        assert_eq!(dependencies(&manifest), named, "{folder}/Cargo.toml and what its sources import");
    }
    let folders = fs::read_dir(root().join("crates")).expect("the crates").count();
    assert_eq!(folders, PACKAGES.len() - 1, "each crate is in the plan");
}

#[test]
fn the_plan_names_the_rooms_that_exist() {
    let have: BTreeSet<String> = sources().into_iter().filter_map(|source| source.room).collect();
    let plan: BTreeSet<String> = ROOMS.iter().map(|(room, _)| room.to_string()).collect();
    assert_eq!(have, plan);
    let page = fs::read_to_string(root().join("docs/architecture.md")).expect("the architecture page");
    for (folder, _, _) in &PACKAGES[1..] {
        assert!(page.contains(&format!("`{folder}`")), "the page lacks '{folder}'");
    }
    for room in plan {
        assert!(page.contains(&format!("`{room}`")) || page.contains(&format!("`{room}/`")), "the page lacks '{room}'");
    }
}

#[test]
fn what_decides_is_pure() {
    let is_pure = |source: &Source| source.room.as_ref().is_some_and(|room| PURE.contains(&room.as_str()));
    for source in sources().into_iter().filter(is_pure) {
        let code = code(&source.text);
        for (word, what) in IMPURE {
            let line = code.lines().find(|line| line.contains(word));
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
    let page = fs::read_to_string(root().join("docs/peers.md")).expect("the page on peers");
    let is_test_name = |word: &&str| word.len() > 20 && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    let named: Vec<&str> = page.split('`').filter(is_test_name).collect();
    assert!(named.len() > 15, "the page names its tests");
    let folders = ["src", "tests", "crates"].map(|folder| rust_files(&root().join(folder)));
    let code: String =
        folders.into_iter().flatten().map(|path| fs::read_to_string(path).expect("a readable file")).collect();
    let missing: Vec<_> = named.into_iter().filter(|name| !code.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
    let scenarios = page.split('`').filter(|word| word.starts_with("tests/") && word.ends_with(".toml"));
    let missing: Vec<_> = scenarios.filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "no such scenarios: {missing:?}");
}

#[test]
fn imports_are_read_from_paths_and_groups() {
    let text = "use crate::tensor::Tensors;\nuse crate::{error::Error, policy::Cork};\n// crate::cli is not one\nlet x = crate::batcher::y;";
    assert_eq!(named_behind("crate::", text).into_iter().collect::<Vec<_>>(), ["batcher", "error", "policy", "tensor"]);
    let manifest = "[package]\nname = \"uncork\"\n\n[dependencies]\nuncork-core.workspace = true\nserde = \"1\"\n\n[dev-dependencies]\nuncork-sim = \"1\"\n";
    assert_eq!(dependencies(manifest).into_iter().collect::<Vec<_>>(), ["uncork_core"]);
}
