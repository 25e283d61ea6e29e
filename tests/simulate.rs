//! What `uncork simulate` promises.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside what clippy takes for one")]

mod folder;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use folder::Folder;
use serde_json::Value;

/// A model that takes 2 + 0.05·n ms, under the caps 50 ms and 128 rows: at most 15,238 rows a second.
const SERVER: [&str; 8] =
    ["--base-ms", "2", "--per-row-ms", "0.05", "--max-latency-ms", "50", "--max-batch-size", "128"];

/// Exit code, stdout and stderr of `uncork simulate` with these words, and `stdin`.
fn simulate_with(folder: &Path, words: &[&str], stdin: &[u8]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uncork"));
    command.current_dir(folder).arg("simulate").args(words);
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    // Who does not read stdin has closed it.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().expect("it ended by itself"), text(output.stdout), text(output.stderr))
}

/// Against the usual server.
fn simulate(words: &str) -> (i32, String, String) {
    let words: Vec<&str> = words.split_whitespace().chain(SERVER).collect();
    simulate_with(Path::new("."), &words, b"")
}

/// The JSON of a run that must succeed.
fn results(words: &str) -> Vec<Value> {
    let (code, out, err) = simulate(&format!("--json {words}"));
    assert_eq!((code, err.as_str()), (0, ""), "{words}");
    serde_json::from_str(&out).unwrap()
}

fn number(result: &Value, key: &str) -> f64 {
    result[key].as_f64().unwrap_or_else(|| panic!("{key} in {result}"))
}

#[track_caller]
fn assert_refused((code, out, err): (i32, String, String), parts: &[&str]) {
    assert_eq!((code, out.as_str()), (3, ""), "{err}");
    for part in parts {
        assert!(err.contains(part), "no '{part}' in: {err}");
    }
}

#[test]
fn a_file_that_is_wrong_is_refused_with_its_line_and_the_reason() {
    let folder = Folder::new();
    let bad: [(&[u8], &str); 10] = [
        (b"1\n3\n2\n", "trace.csv:3: 2 s is before the arrival above it, 3 s; sort the file"),
        (b"0.5\n-1\n", "trace.csv:2: -1 s is negative; count from the first arrival"),
        (b"0.5\nNaN\n", "trace.csv:2: 'NaN' is no finite number of seconds"),
        (b"0.5\ninf\n", "trace.csv:2: 'inf' is no finite number of seconds"),
        (b"1700000000000\n", "trace.csv:1: 1700000000000 s is above 1e10; arrivals are in seconds, not milliseconds"),
        (b"0.5,0\n", "trace.csv:1: 0 rows; a request has at least 1"),
        (b"0.5\n0.6,129\n", "trace.csv:2: 129 rows do not fit into a batch of at most 128; raise --max-batch-size"),
        (b"seconds\n0.5\nhalf\n", "trace.csv:3: 'half' is no number of seconds"),
        (b"0.5\n\xff\n", "trace.csv:2: is not text (UTF-8)"),
        (b"# nothing yet\n", "trace.csv holds no arrivals; it must hold one in seconds a line"),
    ];
    for (text, message) in bad {
        fs::write(folder.path().join("trace.csv"), text).unwrap();
        let words = [&["--arrivals", "trace.csv"][..], &SERVER].concat();
        assert_refused(simulate_with(folder.path(), &words, b""), &[message]);
        let words = [&["--arrivals", "-"][..], &SERVER].concat();
        assert_refused(simulate_with(folder.path(), &words, text), &[&message.replace("trace.csv", "stdin")]);
    }
    for (file, why) in [("none.csv", "No such file"), (".", "directory")] {
        let words = [&["--arrivals", file][..], &SERVER].concat();
        assert_refused(
            simulate_with(folder.path(), &words, b""),
            &[&format!("--arrivals {file} cannot be read: "), why],
        );
    }
}

#[test]
fn an_absurd_parameter_is_refused_with_its_flag_its_value_and_the_bound() {
    for (words, parts) in [
        ("--poisson 0 --for 3", &["'0' for '--poisson <R>'", "from 0.001 to 10000000"][..]),
        ("--poisson -5 --for 3", &["'-5' for '--poisson <R>'", "from 0.001 to 10000000"]),
        ("--poisson NaN --for 3", &["'NaN' for '--poisson <R>'", "from 0.001 to 10000000"]),
        ("--poisson inf --for 3", &["'inf' for '--poisson <R>'"]),
        ("--poisson many --for 3", &["'many' for '--poisson <R>'"]),
        ("--uniform 0 --for 3", &["'0' for '--uniform <R>'"]),
        ("--gamma 100 --cv 0 --for 3", &["'0' for '--cv <C>'", "from 0.1 to 32"]),
        ("--poisson 1e6 --for 1e6", &["--poisson: ", "1000000000000; at most 2000000000: a shorter --for"]),
        ("--fan-out 1e6x1000 --for 1m", &["--fan-out: ", "at most 2000000000"]),
        ("--closed-loop 1000 --think-ms 0 --for 1h", &["--closed-loop: ", "at most 2000000000"]),
        ("--poisson 100 --for 0", &["'0' for '--for <S>'", "from 0.001 to 31536000 s"]),
        ("--poisson 100 --for 3d", &["'3d' for '--for <S>'", "30s, 2m or 250ms"]),
        ("--poisson 100 --for -1s", &["'-1s' for '--for <S>'"]),
        ("--poisson 0.001 --for 1", &["--poisson: nothing arrives within 1 s; a longer --for"]),
        ("--mmpp 5 --for 3", &["'5' for '--mmpp", "two rates"]),
        ("--mmpp 5..4 --for 3", &["the first rate, 5, must be below the second, 4"]),
        ("--mmpp 5..9:soon --for 3", &["'soon' must be a time"]),
        ("--flash 5..900:4..5 --for 3", &["--flash: what begins at 4 s is not within --for 3 s"]),
        ("--flash 5..900:2..1 --for 3", &["'2..1' must begin before it ends"]),
        ("--diurnal 0..9 --for 3", &["'0' must be a number from 0.001"]),
        ("--quiet-then-burst 1..9:9s --for 3", &["--quiet-then-burst: what begins at 9 s"]),
        ("--fan-out 5 --for 3", &["such as 50x16"]),
        ("--fan-out 5x0 --for 3", &["'0' must be a whole number from 1 to 100000"]),
        ("--closed-loop 0 --think-ms 1 --for 3", &["'0' for '--closed-loop <N>'"]),
        ("--closed-loop 4 --for 3", &["--closed-loop needs --think-ms"]),
        ("--poisson 9 --for 3 --think-ms 1", &["--think-ms goes with --closed-loop only"]),
        ("--poisson 9 --for 3 --cv 1", &["--cv goes with --gamma only"]),
        ("--poisson 9 --for 3 --rows 0", &["'0' for '--rows <N>'", "from 1 to 65536"]),
        ("--poisson 9 --for 3 --rows 1..129", &["--rows 129: 129 rows do not fit into a batch of at most 128"]),
        ("--poisson 9 --for 3 --jitter -1", &["'-1' for '--jitter <SIGMA>'", "from 0 to 1"]),
        ("--poisson 9 --for 3 --stragglers 2:5", &["'2' must be a number from 0 to 1"]),
        ("--poisson 9 --for 3 --drift 1:0", &["'0' must be a number from 0.01 to 100"]),
        ("--poisson 9 --for 3 --first-batch 0", &["'0' for '--first-batch <FACTOR>'", "from 0.01 to 100"]),
        ("--poisson 9 --for 3 --allowed-batch-sizes 4,2", &["--allowed-batch-sizes [4, 2]: must rise"]),
        ("--poisson 9 --for 3 --allowed-batch-sizes 1,64", &["64, must not be below --max-batch-size 128"]),
        ("--poisson 9 --for 3 --runners 0", &["'0' for '--runners <M>'", "from 1 to 1024"]),
        ("--poisson 9 --for 3 --seed -1", &["'-1' for '--seed <S>'", "from 0 to 18446744073709551615"]),
        ("--poisson 9 --for 3 --policy magic", &["'magic' for '--policy <P>'", "is none of cork, eager, "]),
        ("--poisson 9 --for 3 --policy fixed:-1:8", &["the wait '-1' must be a number from 0"]),
        ("--poisson 9 --for 3 --policy fixed:1:0", &["the batch '0' must be a whole number from 1"]),
        ("--poisson 9 --uniform 9 --for 3", &["'--poisson <R>' cannot be used with '--uniform <R>'"]),
        ("--poisson 9", &["not provided", "--for <S>"]),
        ("--for 3", &["not provided", "--poisson <R>"]),
    ] {
        assert_refused(simulate(words), parts);
    }
    let load = ["--poisson", "100", "--for", "3"];
    for (flag, value, bound) in [
        ("--base-ms", "-1", "from 0 to 3600000"),
        ("--base-ms", "NaN", "from 0 to 3600000"),
        ("--per-row-ms", "1e9", "from 0 to 60000"),
        ("--max-latency-ms", "0", "from 0.001 to 3600000"),
        ("--max-batch-size", "0", "from 1 to 65536"),
        ("--max-batch-size", "70000", "from 1 to 65536"),
        ("--max-batch-size", "1.5", "from 1 to 65536"),
    ] {
        let mut server = SERVER;
        let at = server.iter().position(|word| *word == flag).unwrap();
        server[at + 1] = value;
        let refusal = simulate_with(Path::new("."), &[&load[..], &server].concat(), b"");
        assert_refused(refusal, &[&format!("'{value}' for '{flag} <"), bound]);
    }
    let mut timeless = SERVER;
    (timeless[1], timeless[3]) = ("0", "0");
    let refusal = simulate_with(Path::new("."), &[&load[..], &timeless].concat(), b"");
    assert_refused(refusal, &["--base-ms 0 --per-row-ms 0: a batch must take some time"]);
    let mut patient = SERVER;
    patient[5] = "3600000";
    let crowd = ["--poisson", "1e6", "--for", "60"];
    let refusal = simulate_with(Path::new("."), &[&crowd[..], &patient].concat(), b"");
    assert_refused(refusal, &["--poisson: 90000000 requests might wait at once", "at most 20000000"]);
}

#[test]
fn the_json_is_a_list_with_an_object_for_each_policy_whose_numbers_add_up() {
    let loads = [
        "--poisson 30000 --for 2",
        "--uniform 9000 --for 2s",
        "--gamma 15000 --cv 4 --for 2000ms",
        "--mmpp 5000..25000:100ms --for 2",
        "--flash 5000..40000 --for 2",
        "--diurnal 1000..30000:1s --for 2",
        "--quiet-then-burst 2..20000 --for 2",
        "--fan-out 100x200:5ms --for 2",
        "--closed-loop 64 --think-ms 5 --think-jitter 0.1 --for 2",
        "--poisson 5000 --rows 1..8 --for 2",
        "--poisson 20000 --for 2 --jitter 0.1 --stragglers 0.01:5 --drift 1s:2 --first-batch 20",
        "--poisson 12000 --for 2 --allowed-batch-sizes 1,2,4,8,16,32,64,128",
        "--poisson 60000 --for 1 --runners 4",
    ];
    for load in loads {
        let results = results(&format!("{load} --policy cork --policy eager,fixed:2.5:64"));
        let policies: Vec<_> = results.iter().map(|result| result["policy"].as_str().unwrap()).collect();
        assert_eq!(policies, ["cork", "eager", "fixed:2.5:64"]);
        for result in &results {
            let of = |key| number(result, key);
            assert!(of("offered") > 0.0 && of("batches") > 0.0, "{load}: {result}");
            assert_eq!(of("offered"), of("on_time") + of("late") + of("shed"), "{load}: {result}");
            assert!(of("mean_batch_rows") >= 1.0 && of("mean_batch_rows") <= 128.0, "{load}: {result}");
            assert!(of("busy_fraction") > 0.0 && of("busy_fraction") <= 1.0, "{load}: {result}");
            assert!(of("p50_ms") <= of("p99_ms") && of("mean_ms") > 2.0, "{load}: {result}");
            let rows = of("batches") * of("mean_batch_rows");
            let answers = of("on_time") + of("late");
            assert!(rows > answers * 0.999 && (rows < answers * 1.001 || load.contains("--rows")), "{load}: {result}");
        }
    }
}

#[test]
fn all_stands_for_every_policy_that_has_a_name_and_none_is_run_twice() {
    let policies = |words: &str| -> Vec<String> {
        let results = results(&format!("--poisson 5000 --for 0.2 {words}"));
        results.iter().map(|result| result["policy"].as_str().unwrap().to_owned()).collect()
    };
    let all = policies("--policy all");
    assert!(all.starts_with(&["cork".into(), "eager".into()]), "{all:?}");
    assert_eq!(policies("--policy all --policy eager,cork,all"), all);
    assert_eq!(policies("--policy eager --policy all")[..2], ["eager", "cork"]);
    assert_eq!(policies(""), ["cork"]);
}

#[test]
fn the_optimum_is_told_where_it_is_known_and_nobody_passes_it() {
    for load in ["--poisson 30000 --for 2", "--gamma 15000 --for 2", "--flash 5000..40000 --for 2"] {
        for result in results(&format!("{load} --policy cork,eager,fixed:5:128")) {
            assert!(number(&result, "optimum") <= number(&result, "offered"), "{result}");
            assert!(number(&result, "on_time") <= number(&result, "optimum"), "{result}");
            assert_eq!(result.get("upper_bound"), None);
        }
    }
    for load in ["--runners 3 --poisson 60000 --for 1", "--poisson 20000 --for 1 --allowed-batch-sizes 32,128"] {
        let result = &results(load)[0];
        assert!(result.get("optimum").is_none(), "{result}");
        assert!(number(result, "on_time") <= number(result, "upper_bound"), "{result}");
    }
    for load in
        ["--closed-loop 4 --think-ms 1 --for 1", "--poisson 900 --rows 1..3 --for 1", "--poisson 9 --for 1 --drift 0:2"]
    {
        let result = &results(load)[0];
        assert!(result.get("optimum").is_none() && result.get("upper_bound").is_none(), "{result}");
    }
}

#[test]
fn the_same_seed_gives_the_same_output_and_another_one_another() {
    let words = "--mmpp 5000..25000:100ms --for 2 --jitter 0.2 --stragglers 0.01:5 --policy cork,eager";
    for form in ["", "--json"] {
        let first = simulate(&format!("{words} {form} --seed 7"));
        assert_eq!(first, simulate(&format!("{words} {form} --seed 7")));
        assert_ne!(first, simulate(&format!("{words} {form} --seed 8")));
    }
}

#[test]
fn the_same_arrivals_from_a_file_from_stdin_or_from_a_process_fare_the_same() {
    let folder = Folder::new();
    // A request every millisecond, from 0.001 s on, as the process has it.
    let trace: String = (1..1000).map(|i| format!("0.{i:03}\n")).collect();
    fs::write(folder.path().join("trace.csv"), format!("seconds\n{trace}")).unwrap();
    let run = |load: &[&str], stdin: &[u8]| {
        let (code, out, err) = simulate_with(folder.path(), &[load, &SERVER, &["--json"]].concat(), stdin);
        assert_eq!((code, err.as_str()), (0, ""));
        out
    };
    let file = run(&["--arrivals", "trace.csv"], b"");
    assert_eq!(file, run(&["--arrivals", "-"], trace.as_bytes()));
    let parsed: Value = serde_json::from_str(&file).unwrap();
    let process: Value = serde_json::from_str(&run(&["--uniform", "1000", "--for", "0.9995"], b"")).unwrap();
    for key in ["offered", "on_time", "batches", "optimum"] {
        assert_eq!(parsed[0][key], process[0][key], "{key}");
    }
    assert_eq!(parsed[0]["offered"], 999);
}

#[test]
fn a_trace_with_time_stamps_of_this_century_and_rows_is_simulated_from_its_first_arrival() {
    let trace: String = (0..500).map(|i| format!("{}.{:03},2\n", 1_700_000_000, i)).collect();
    let words = [&["--arrivals", "-", "--json"][..], &SERVER].concat();
    let (code, out, err) = simulate_with(Path::new("."), &words, trace.as_bytes());
    assert_eq!((code, err.as_str()), (0, ""));
    let result: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((number(&result[0], "on_time"), number(&result[0], "offered")), (500.0, 500.0));
    assert!(number(&result[0], "busy_fraction") > 0.5, "{out}");
}

#[test]
fn people_get_a_table_two_plots_who_won_and_what_the_caps_cost() {
    let (code, out, err) = simulate("--poisson 30000 --for 2 --policy cork,eager --policy fixed:5:64");
    assert_eq!((code, err.as_str()), (0, ""));
    let lines: Vec<&str> = out.lines().collect();
    let head = lines.iter().position(|line| line.starts_with("policy ")).expect("a table");
    let columns =
        ["policy", "on", "time", "optimum", "late", "shed", "mean", "ms", "p50", "ms", "p99", "ms", "rows", "busy"];
    assert_eq!(lines[head].split_whitespace().collect::<Vec<_>>(), columns);
    for policy in ["cork", "eager", "fixed:5:64"] {
        let of_policy = lines.iter().filter(|line| line.split_whitespace().next() == Some(policy));
        let bars = of_policy.clone().filter(|line| line.ends_with('▏')).count();
        assert!(bars == 2 && of_policy.count() >= 3, "{policy} has a line of the table and one of each plot: {out}");
    }
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{out}");
    assert!(out.contains(" wins: ") && out.contains(" % of the optimum"), "{out}");
    let flat = out.replace('\n', " ");
    assert!(
        flat.contains("With cork the caps cost ") && flat.contains("with 75 ms instead of 50 it would be"),
        "{out}"
    );
    assert!(flat.contains("with batches of 192 instead of 128 rows"), "{out}");

    let (_, calm, _) = simulate("--poisson 3000 --for 2");
    assert!(calm.contains("The caps cost nothing here: cork refuses no request and answers none late."), "{calm}");
    let (_, noisy, _) = simulate("--poisson 3000 --for 2 --jitter 0.1");
    assert!(noisy.contains("The optimum is that of the mean batch times"), "{noisy}");
    let (_, several, _) = simulate("--poisson 60000 --for 1 --runners 4");
    assert!(several.contains("bound"), "{several}");
    let (_, closed, _) = simulate("--closed-loop 16 --think-ms 5 --for 1");
    assert!(closed.contains("16 clients that think for 5 ms") && closed.contains("No optimum: "), "{closed}");
}

#[test]
fn a_server_that_is_too_slow_for_its_cap_is_told_as_such() {
    let slow = ["--base-ms", "60", "--per-row-ms", "1", "--max-latency-ms", "50", "--max-batch-size", "8"];
    let words = [&["--poisson", "100", "--for", "2"][..], &slow].concat();
    let (code, out, err) = simulate_with(Path::new("."), &words, b"");
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("not even a batch of one row is in time"), "{out}");
}

#[test]
fn the_example_of_the_readme_runs_as_written() {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let session = readme.split("\n$ uncork simulate ").nth(1).expect("a session in the README");
    let command = session.split("\n\n").next().unwrap().replace("\\\n", " ");
    let words: Vec<&str> = command.split_whitespace().collect();
    let (code, out, err) = simulate_with(Path::new("."), &words, b"");
    assert_eq!((code, err.as_str()), (0, ""), "{command}");
    let heads = |text: &str| text.lines().find(|line| line.starts_with("policy ")).map(str::to_owned);
    let names = |line: String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(heads(session).map(names), heads(&out).map(names), "the session shows what is printed");
}
