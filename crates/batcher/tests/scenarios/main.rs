//! Behaviours as files: each `*.toml` in `tests/scenarios`, in the root of the workspace, is a load, a service and the
//! ranges in which the outcome must lie. A new case is a new file. Each is run in the simulator over many seeds, and once
//! through the real batcher in virtual time.
//!
//! `SHOW=1 cargo test --release --test scenarios -- --nocapture` prints every figure, and how far the batcher is from it.
//! A range holds today; where the figure that is wanted lies outside of it, a comment names it.

mod counts;
mod file;
mod in_batcher;
mod in_simulator;
mod load;

use std::path::Path;

use file::Scenario;

fn scenarios() -> Vec<Scenario> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios");
    let entries = std::fs::read_dir(folder).expect("the folder of the scenarios");
    let paths = entries.map(|entry| entry.expect("a readable entry").path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let name = path.file_name().expect("a file").to_string_lossy();
        let text = std::fs::read_to_string(path).expect("a readable file");
        Scenario::parse(&name, &text).unwrap_or_else(|why| panic!("{why}"))
    };
    paths.iter().map(read).collect()
}

#[test]
fn every_scenario_keeps_within_its_ranges_in_the_simulator() {
    let broken: Vec<String> = scenarios().iter().flat_map(in_simulator::check).collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn the_batcher_in_virtual_time_does_what_the_simulator_does() {
    let broken: Vec<String> = scenarios().iter().flat_map(in_batcher::check).collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn a_scenario_that_names_an_unknown_thing_is_an_error_with_its_file_and_the_thing() {
    let sound = "
        about = 'One request'
        max_latency_ms = 50
        max_batch_size = 8
        service = { base_ms = 2, per_row_ms = 1 }
        arrivals = [{ process = { list = { at_ms = [0] } }, for_s = 1 }]
        expect = { on_time_share = [1, 1] }
    ";
    Scenario::parse("sound.toml", sound).expect("it is sound");
    let cases = [
        ("max_batch_size = 8", "max_batch_size = 8\n max_batch = 8", "max_batch"),
        ("per_row_ms = 1", "per_row_ms = 1, noise = 1", "noise"),
        ("{ list = { at_ms = [0] } }", "'poison'", "poison"),
        ("on_time_share = [1, 1]", "goodput = [1, 1]", "goodput"),
        ("on_time_share = [1, 1]", "mean_ms = [2, 1]", "mean_ms"),
        ("max_batch_size = 8", "max_batch_size = 8\n policy = 'corc'", "corc"),
        ("max_batch_size = 8", "max_batch_size = 8\n policy = 'fixed:2'", "fixed:2"),
        ("for_s = 1", "for_s = 1, load = 0.5", "load"),
        ("list = { at_ms = [0] }", "gamma = { cv = 4 }", "rate"),
        ("list = { at_ms = [0] }", "list = { at_ms = [2, 1] }", "at_ms"),
        ("for_s = 1", "for_s = 1, rows = [9]", "rows"),
        ("per_row_ms = 1", "per_row_ms = 1, sizes = [4, 2]", "sizes"),
        ("on_time_share = [1, 1]", "of_lockstep = [1, 1]", "of_lockstep"),
    ];
    for (from, to, named) in cases {
        assert!(sound.contains(from), "{from}");
        let why = Scenario::parse("odd.toml", &sound.replace(from, to)).expect_err(to);
        assert!(why.contains("odd.toml") && why.contains(named), "{to}: {why}");
    }
}
