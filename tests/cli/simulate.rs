//! What `uncork simulate` promises.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::folder::Folder;
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
    let bad: [(&[u8], &str); 17] = [
        (b"1\n3\n2\n", "trace.csv:3: 2 s is before the arrival above it, 3 s; sort the file"),
        (b"0.5\n-1\n", "trace.csv:2: -1 s is negative; count from the first arrival"),
        (b"0.5\nNaN\n", "trace.csv:2: 'NaN' is no finite number of seconds"),
        (b"0.5\ninf\n", "trace.csv:2: 'inf' is no finite number of seconds"),
        (b"1700000000000\n", "trace.csv:1: 1700000000000 s is above 1e10; arrivals are in seconds, not milliseconds"),
        (b"0.5,0\n", "trace.csv:1: 0 rows; a request has at least 1"),
        (
            b"0.5\n0.6,129\n",
            "trace.csv:2: 129 rows do not fit into a batch of at most 128; raise the maximum batch size",
        ),
        (b"seconds\n0.5\nhalf\n", "trace.csv:3: 'half' is no number of seconds"),
        (b"0.5,1,0\n", "trace.csv:1: '0' is no deadline from 0.001 to 3600000 ms after the arrival"),
        (b"0.5,1,20,11\n", "trace.csv:1: '11' is no priority from 1 to 10"),
        (b"0.5\n1,2,3,4,5\n", "trace.csv:2: '1,2,3,4,5' has more fields than there are columns"),
        (b"seconds,user\n0.5,1\n", "trace.csv:1: the column 'user' is none of rows, deadline_ms, priority; rename it"),
        (b"ms,rows\n500,1\n", "trace.csv:1: the first column is called 'ms'; it must be seconds"),
        (b"seconds,rows,rows\n0.5,1\n", "trace.csv:1: the column 'rows' is there twice"),
        (b"0.5\n\xff\n", "trace.csv:2: is not text (UTF-8)"),
        (&[b'1'; 5000], "trace.csv has a line of 4096 bytes or more: it is no file of arrivals"),
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
        assert_refused(simulate_with(folder.path(), &words, b""), &[&format!("{file} cannot be read: "), why]);
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
        ("--poisson 9 --for 3 --hurried 2:15", &["'2' must be a number from 0 to 1"]),
        ("--poisson 9 --for 3 --hurried 0.1:0", &["'0' must be a number from 0.001"]),
        ("--poisson 9 --for 3 --hurried 0.1:50", &["--hurried 0.1:50: must be less than --max-latency-ms 50"]),
        (
            "--poisson 9 --for 3 --hurried 0.6:9 --hurried 0.5:8",
            &["--hurried: the shares make 1.1 together; at most 1"],
        ),
        ("--poisson 9 --for 3 --urgent -0.1", &["'-0.1' for '--urgent <SHARE>'", "from 0 to 1"]),
        ("--arrivals - --urgent 0.1", &["'--arrivals <FILE>' cannot be used with '--urgent <SHARE>'"]),
        ("--poisson 9 --for 3 --policy fixed:1:2:x", &["the timeout 'x' must be a number from 0"]),
        ("--poisson 9 --for 3 --jitter -1", &["'-1' for '--jitter <SIGMA>'", "from 0 to 1"]),
        ("--poisson 9 --for 3 --stragglers 2:5", &["'2' must be a number from 0 to 1"]),
        ("--poisson 9 --for 5 --drift 1s:2 --drift 6s:2", &["--drift: what begins at 6 s is not within --for 5 s"]),
        ("--poisson 9 --for 5 --drift 5s:2", &["--drift: what begins at 5 s is not within --for 5 s"]),
        ("--closed-loop 4 --think-ms 1 --for 2 --drift 3:2", &["--drift: what begins at 3 s is not within --for 2 s"]),
        ("--poisson 9 --for 3 --drift 1:0", &["'0' must be a number from 0.01 to 100"]),
        ("--poisson 9 --for 3 --first-batch 0", &["'0' for '--first-batch <FACTOR>'", "from 0.01 to 100"]),
        ("--poisson 9 --for 3 --first-batch 20", &["--first-batch goes with --cold only"]),
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
        "--poisson 20000 --for 2 --jitter 0.1 --stragglers 0.01:5 --drift 1s:2 --cold --first-batch 20",
        "--poisson 12000 --for 2 --allowed-batch-sizes 1,2,4,8,16,32,64,128",
        "--poisson 60000 --for 1 --runners 4",
        "--poisson 20000 --for 2 --hurried 0.1:15 --hurried 0.2:30 --urgent 0.2",
        "--closed-loop 64 --think-ms 5 --rows 1..4 --hurried 0.5:20 --for 2",
    ];
    for load in loads {
        let results = results(&format!("{load} --policy cork --policy eager,fixed:2.5:64,fixed:2.5:64:40"));
        let policies: Vec<_> = results.iter().map(|result| result["policy"].as_str().unwrap()).collect();
        assert_eq!(policies, ["cork", "eager", "fixed:2.5:64", "fixed:2.5:64:40"]);
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
    for load in [
        "--runners 3 --poisson 60000 --for 1",
        "--poisson 30000 --for 1 --hurried 0.2:10",
        "--poisson 20000 --for 1 --allowed-batch-sizes 32,128",
    ] {
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
    // Times in the flags count from there as well, as those of a scenario do.
    let too_late = [&words[..], &["--drift", "500ms:100"]].concat();
    let refused = "--drift: what begins at 0.5 s is after the last arrival, at 0.499 s";
    assert_refused(simulate_with(Path::new("."), &too_late, trace.as_bytes()), &[refused]);
    let drifts = [&words[..], &["--drift", "250ms:100"]].concat();
    let (code, out, err) = simulate_with(Path::new("."), &drifts, trace.as_bytes());
    assert_eq!((code, err.as_str()), (0, ""));
    let result: Value = serde_json::from_str(&out).unwrap();
    let on_time = number(&result[0], "on_time");
    assert!((100.0..400.0).contains(&on_time), "it is slow from the middle on: {on_time}");
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
        flat.contains("With cork the caps cost ") && flat.contains(" % with batches of 192 instead of 128 rows, "),
        "{out}"
    );
    assert!(flat.contains(" % with 2 runners instead of 1.") && !flat.contains("75 ms"), "{out}");

    let (_, deep, _) = simulate("--poisson 600000 --for 1");
    assert!(
        deep.replace('\n', " ").contains(" % with 2 runners instead of 1."),
        "a second runner answers as many again: {deep}"
    );
    let (_, beaten, _) = simulate("--poisson 30000 --for 2 --policy fixed:5:64,cork");
    assert!(!beaten.contains("Not all of that is the caps' doing"), "{beaten}");
    let (_, beaten, _) = simulate("--poisson 30000 --for 2 --policy fixed:5:64,fixed:0:128");
    assert!(beaten.replace('\n', " ").contains("Not all of that is the caps' doing: fixed:0:128 loses "), "{beaten}");

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
fn what_the_server_takes_around_a_batch_is_counted_and_said() {
    let (_, usual, _) = simulate("--poisson 3000 --for 2");
    assert!(usual.contains("each batch takes 0.2 ms of the server's own as well"), "{usual}");
    assert!(usual.contains("1 ms of the 50 is kept free"), "{usual}");
    assert!(usual.contains("at most 14,884 rows a second in time"), "128 rows in 8.6 ms: {usual}");
    let (_, model_alone, _) = simulate("--poisson 3000 --for 2 --server-ms 0");
    assert!(!model_alone.contains("server's own"), "{model_alone}");
    assert!(model_alone.contains("at most 15,238 rows a second in time"), "128 rows in 8.4 ms: {model_alone}");
    let model = "max_latency_ms = 50\nmax_batch_size = 128\nservice = { base_ms = 2, per_row_ms = 0.05 }";
    let arrivals = "arrivals = [{ process = \"poisson\", rate = 3000, for_s = 2 }]";
    for (server, rows) in [("", "14,884"), ("server_ms = 0", "15,238")] {
        let (code, out, err) = scenario(&format!("{server}\n{model}\n{arrivals}\n"), &[]);
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(out.contains(&format!("at most {rows} rows a second in time")), "{out}");
    }
}

#[test]
fn a_server_that_is_too_slow_for_its_cap_is_told_as_such() {
    let slow = ["--base-ms", "60", "--per-row-ms", "0.5", "--max-latency-ms", "50", "--max-batch-size", "8"];
    let words = [&["--poisson", "100", "--for", "2"][..], &slow].concat();
    let (code, out, err) = simulate_with(Path::new("."), &words, b"");
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("not even a batch of one row is in time"), "{out}");
    let advice = out.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = "A batch of one row takes 60.7 ms on average, which is, with the way back, beyond the cap of 50 ms: no number of runners helps.";
    assert!(advice.contains(expected), "{advice}");
}

/// What a model that takes 8.2 + 2·n ms is told in one line, in batches of so many rows under such a cap.
fn advice(words: &str, cap: &str, batch: &str) -> String {
    let server = ["--base-ms", "8", "--per-row-ms", "2", "--max-latency-ms", cap, "--max-batch-size", batch];
    let words: Vec<&str> = words.split_whitespace().chain(server).collect();
    let (code, out, err) = simulate_with(Path::new("."), &words, b"");
    assert_eq!((code, err.as_str()), (0, ""), "{words:?}");
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn what_is_advised_was_tried_and_helps() {
    let told = advice("--poisson 100 --for 10s", "10.5", "16");
    assert!(told.contains("; it would be ") && told.contains(" % with 15.75 ms instead of 10.5, "), "{told}");
    assert!(told.contains(" % with 2 runners instead of 1."), "{told}");
    assert!(!told.contains("batches of 24"), "a batch of one is all that is in time: {told}");
    let told = advice("--poisson 1 --for 400s --stragglers 0.05:50 --runners 8", "100", "16");
    assert!(told.contains("half as much latency again, larger batches or one runner more would not help."), "{told}");
    assert!(!told.contains("more runners"), "{told}");
    let told = advice("--poisson 4000 --for 1s", "3600000", "65536");
    assert!(!told.contains("98304") && !told.contains("5400000"), "no flag takes as much: {told}");
}

#[test]
fn what_nothing_helps_is_told_as_such() {
    let told = advice("--poisson 20 --for 2s --rows 16", "30", "16");
    assert!(told.contains("not even a request of 16 rows is in time"), "{told}");
    assert!(
        told.contains("A request of 16 rows takes 40.2 ms on average") && told.contains("no number of runners"),
        "{told}"
    );
    let told = advice("--poisson 20 --for 2s --rows 1..16", "30", "16");
    assert!(
        told.contains("Requests of more than 10 rows take longer than the cap: no number of runners helps them."),
        "{told}"
    );
    let told = advice("--poisson 20 --for 2s --hurried 0.45:9", "100", "16");
    let expected =
        "No number of runners meets a deadline of 9 ms: a batch of one row takes 10.2 ms, the way back aside.";
    assert!(told.contains(expected), "{told}");
    assert!(!advice("--poisson 90 --for 2s --hurried 0.45:20", "100", "16").contains("No number of runners"));
}

#[test]
fn requests_are_told_by_the_time_in_which_they_came() {
    let told = advice("--uniform 100000 --for 0.5", "1000", "1");
    assert!(told.contains("requests in 0.5 s, 99,998 a second"), "answers take longer: {told}");
    assert!(told.contains("on time over the 0.5 s") && told.contains("caps: 1000 ms, 1 row;"), "{told}");
    let nobody = advice("--poisson 20 --for 2s", "5", "16");
    assert!(!nobody.contains("latency of the answers"), "there are none: {nobody}");
}

#[test]
fn a_rate_without_a_process_is_told_of_those_that_there_are() {
    assert_refused(simulate("--rate 100 --for 3"), &["'100' for '--rate <R>'", "--poisson 100", "--uniform 100"]);
    let (_, help, _) = simulate_with(Path::new("."), &["--help"], b"");
    assert!(!help.contains("--rate") && help.contains("GROUPS a second of SIZE requests"), "{help}");
}

#[test]
fn the_sessions_in_the_documents_run_as_written() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/simulate.md")).unwrap();
    let sessions: Vec<&str> = page.split("\n$ uncork simulate ").skip(1).collect();
    assert_eq!(sessions.len(), 2, "of one model and of several");
    for session in sessions {
        let command = session.split("\n\n").next().unwrap().replace("\\\n", " ");
        let words: Vec<&str> = command.split_whitespace().collect();
        let (code, out, err) = simulate_with(root, &words, b"");
        assert_eq!((code, err.as_str()), (0, ""), "{command}");
        let heads = |text: &str| {
            text.lines()
                .find(|line| line.starts_with("policy ") || line.starts_with("model  policy "))
                .map(str::to_owned)
        };
        let names = |line: String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(heads(session).map(names), heads(&out).map(names), "the session shows what is printed");
    }
}

/// The keys of a JSON object, sorted.
fn keys(object: &Value) -> Vec<&str> {
    object.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// What the contract names, and the optimum.
const KEYS: [&str; 12] = [
    "batches",
    "busy_fraction",
    "late",
    "mean_batch_rows",
    "mean_ms",
    "offered",
    "on_time",
    "optimum",
    "p50_ms",
    "p99_ms",
    "policy",
    "shed",
];

#[test]
fn the_json_of_one_model_has_the_keys_of_the_contract_and_no_others() {
    let plain = results("--poisson 9000 --for 0.5");
    assert_eq!(keys(&plain[0]), KEYS);
    let unknown = results("--closed-loop 4 --think-ms 1 --for 0.5");
    assert_eq!(keys(&unknown[0]), KEYS.iter().copied().filter(|key| *key != "optimum").collect::<Vec<_>>());
}

#[test]
fn hurried_and_urgent_requests_are_told_apart_in_the_table_and_in_the_json() {
    let load = "--poisson 30000 --for 1 --hurried 0.1:15 --urgent 0.2";
    let result = &results(load)[0];
    let classes = result["classes"].as_array().expect("there are four");
    let named: Vec<_> =
        classes.iter().map(|class| (number(class, "priority") as u8, class["hurried"] == true)).collect();
    assert_eq!(named, [(1, false), (1, true), (5, false), (5, true)]);
    for key in ["offered", "on_time", "late", "shed"] {
        assert_eq!(classes.iter().map(|class| number(class, key)).sum::<f64>(), number(result, key), "{key}");
    }
    for (class, share) in classes.iter().zip([0.18, 0.02, 0.72, 0.08]) {
        let found = number(class, "offered") / number(result, "offered");
        assert!((found - share).abs() < 0.01, "{found} and not {share}");
    }
    assert!(number(&classes[0], "on_time") > 0.99 * number(&classes[0], "offered"), "the urgent go first: {result}");
    assert!(number(&classes[3], "mean_ms") < 15.0, "{result}");

    let (_, text, _) = simulate(&format!("{load} --policy cork,eager"));
    for line in ["priority 1, not hurried  cork ", "priority 1, not hurried  eager ", "priority 5, hurried      cork "]
    {
        assert!(text.contains(line), "{text}");
    }
    let (_, plain, _) = simulate("--poisson 3000 --for 1 --policy cork,eager");
    assert!(!plain.contains("class") && !plain.contains("hurried"), "{plain}");
}

#[test]
fn a_trace_says_rows_deadlines_and_priorities_by_the_names_on_its_first_line() {
    let run = |trace: &str| -> Value {
        let words = [&["--arrivals", "-", "--json"][..], &SERVER].concat();
        let (code, out, err) = simulate_with(Path::new("."), &words, trace.as_bytes());
        assert_eq!((code, err.as_str()), (0, ""));
        serde_json::from_str::<Vec<Value>>(&out).unwrap().remove(0)
    };
    let lines = |line: &dyn Fn(u32) -> String| (0..100).map(line).collect::<String>();
    let plain = run(&lines(&|i| format!("{i},{},{},{}\n", 1 + i % 3, if i % 2 == 0 { "20" } else { "" }, 1 + i % 4)));
    let named = lines(&|i| format!("{i},{},{},{}\n", 1 + i % 4, if i % 2 == 0 { "20" } else { "" }, 1 + i % 3));
    assert_eq!(run(&format!("\"seconds\",\"priority\",\"deadline_ms\",\"rows\"\n{named}")), plain);
    let classes: Vec<_> = plain["classes"].as_array().unwrap().iter().map(|c| number(c, "priority")).collect();
    assert_eq!(classes, [1.0, 2.0, 3.0, 4.0], "even ones are hurried: {plain}");
    assert!(run(&lines(&|i| format!("{i},,70,\n"))).get("classes").is_none(), "a deadline after the cap is none");
}

#[test]
fn a_trace_of_six_hundred_thousand_requests_is_answered() {
    // In a second or two; a test of that would fail on a busy machine.
    let at = |i: u32| f64::from(i) / 12_000.0 + f64::from(i % 7) / 84_000.0;
    let mut times: Vec<f64> = (0..600_000).map(at).collect();
    times.sort_by(f64::total_cmp);
    let trace: String = times.iter().enumerate().map(|(i, at)| format!("{at:.6},1,,{}\n", 4 + i % 2)).collect();
    let words = [&["--arrivals", "-", "--json", "--policy", "cork,eager"][..], &SERVER].concat();
    let (code, out, err) = simulate_with(Path::new("."), &words, trace.as_bytes());
    assert_eq!((code, err.as_str()), (0, ""));
    let results: Vec<Value> = serde_json::from_str(&out).unwrap();
    assert!(results.iter().all(|result| number(result, "offered") == 600_000.0), "{out}");
    assert!(number(&results[0], "on_time") > 0.99 * 600_000.0, "{out}");
}

#[test]
fn policies_that_do_equally_well_are_called_level() {
    let (_, out, _) = simulate("--uniform 100 --for 1 --policy cork,eager");
    assert!(out.contains("cork and eager are level: 100.00 % on time"), "{out}");
}

/// Two models, the second of which asks for five times what the pool can do for a while.
const MIX: &str = "
policy = ['cork', 'eager']

[[model]]
name = 'search'
max_latency_ms = 50
max_batch_size = 128
service = { base_ms = 2, per_row_ms = 0.05 }
arrivals = [{ process = 'poisson', rate = 3000, for_s = 3 }]

[[model]]
name = 'bulk'
weight = 3
max_latency_ms = 200
max_batch_size = 64
service = { base_ms = 4, per_row_ms = 0.1, jitter = 0.1 }
arrivals = [
    { process = 'poisson', load = 0.2, for_s = 1 },
    { process = { mmpp = { low = 0.5, high = 1.5, mean_low_s = 0.1, mean_high_s = 0.1 } }, load = 5, for_s = 1, rows = [1, 2] },
    { process = 'uniform', load = 0.2, for_s = 1, priorities = [1, 5] },
]
";

/// `uncork simulate --scenario` of a file with this text.
fn scenario(text: &str, words: &[&str]) -> (i32, String, String) {
    let folder = Folder::new();
    fs::write(folder.path().join("mix.toml"), text).unwrap();
    simulate_with(folder.path(), &[&["--scenario", "mix.toml"], words].concat(), b"")
}

/// The JSON of a scenario that must succeed.
fn scenario_results(text: &str, words: &[&str]) -> Vec<Value> {
    let (code, out, err) = scenario(text, &[words, &["--json"]].concat());
    assert_eq!((code, err.as_str()), (0, ""), "{text}");
    serde_json::from_str(&out).unwrap()
}

#[test]
fn models_that_share_the_runners_have_a_row_for_each_policy_and_what_their_company_costs() {
    let results = scenario_results(MIX, &[]);
    let who: Vec<_> = results.iter().map(|r| (r["model"].as_str().unwrap(), r["policy"].as_str().unwrap())).collect();
    assert_eq!(who, [("search", "cork"), ("search", "eager"), ("bulk", "cork"), ("bulk", "eager")]);
    for result in &results {
        let of = |key| number(result, key);
        assert_eq!(of("offered"), of("on_time") + of("late") + of("shed"), "{result}");
        assert!(of("on_time_alone") >= 0.99 * of("on_time") && result.get("optimum").is_none(), "{result}");
    }
    let bulk = |key| number(&results[2], key);
    assert!(bulk("on_time_alone") > 1.05 * bulk("on_time"), "alone it has more: {}", results[2]);
    let mut expected = KEYS.map(|key| if key == "optimum" { "on_time_alone" } else { key }).to_vec();
    expected.push("model");
    expected.sort_unstable();
    assert_eq!(keys(&results[0]), expected);
    let busy: f64 = [0, 2].iter().map(|i| number(&results[*i], "busy_fraction")).sum();
    assert!(busy <= 1.0, "{busy}");
    assert!(number(&results[0], "on_time") > 0.98 * number(&results[0], "offered"), "it has its share: {}", results[0]);
    assert!(number(&results[2], "shed") > 0.3 * number(&results[2], "offered"), "a flood: {}", results[2]);

    let (code, out, err) = scenario(MIX, &[]);
    assert_eq!((code, err.as_str()), (0, ""));
    let rows = |name: &str| out.lines().filter(|line| line.starts_with(name)).count();
    // In the table, in each plot; of the one with priorities also by class; and each in the heading.
    assert_eq!(
        (rows("search cork "), rows("bulk   eager "), rows("bulk   priority 1 "), rows("search ")),
        (3, 1, 2, 7)
    );
    let flat = out.replace('\n', " ");
    for part in [
        "2 models on one runner, for 3.",
        "batch times of bulk: noise of σ 0.1",
        "cork wins: ",
        " % of all requests on time; ",
        " % of the pool and has a share of 75 %. With cork, sharing costs these parts of what each answers on time alone: search ",
    ] {
        assert!(flat.contains(part), "no '{part}' in: {out}");
    }
    assert!(out.lines().all(|line| line.chars().count() <= 82), "{out}");

    assert_eq!(scenario(MIX, &["--seed", "7"]), scenario(MIX, &["--seed", "7"]));
    assert_ne!(scenario(MIX, &["--seed", "7"]), scenario(MIX, &["--seed", "8"]));
    assert_eq!(scenario(MIX, &["--seed", "1"]), (code, out, err), "1 is what it has without");
    let (_, without, _) = scenario(MIX, &["--policy", "best-fixed,cork"]);
    assert!(without.contains("best-fixed is left out: it is looked for where there is one model."), "{without}");
}

#[test]
fn a_neighbour_of_equal_weight_with_clients_or_a_trace_may_share_the_runners_too() {
    let folder = Folder::new();
    let stamps: String = (0..1000).map(|i| format!("{}.{:03}\n", 1_700_000_000, i)).collect();
    fs::write(folder.path().join("trace.csv"), stamps).unwrap();
    let text = "
        runners = 2
        [[model]]
        name = 'asked'
        max_latency_ms = 50
        max_batch_size = 8
        service = { base_ms = 2, per_row_ms = 0.5 }
        clients = { count = 4, think_ms = 5, jitter = 0.1, for_s = 1 }
        [[model]]
        name = 'logged'
        max_latency_ms = 50
        max_batch_size = 8
        service = { base_ms = 2, per_row_ms = 0.5 }
        arrivals = [{ file = 'trace.csv' }]
    ";
    let with_change = |at: &str| {
        let changes = format!(", changes = [{{ at_s = {at}, factor = 2 }}] }}\n        arrivals");
        let changed = text.replace(" }\n        arrivals", &changes);
        assert_ne!(changed, text);
        fs::write(folder.path().join("late.toml"), changed).unwrap();
        simulate_with(folder.path(), &["--scenario", "late.toml"], b"")
    };
    // The speed of a model changes while its requests come, or not at all.
    assert_eq!(with_change("0.9").0, 0);
    let refused = "late.toml:13: service: changes: what begins at 1.5 s is after the last arrival, at 0.999 s";
    assert_refused(with_change("1.5"), &[refused]);
    // The trace is found beside the scenario, and counts from its first arrival.
    fs::write(folder.path().join("mix.toml"), text).unwrap();
    let file = folder.path().join("mix.toml");
    let words = ["--scenario", file.to_str().unwrap(), "--json"];
    let (code, out, err) = simulate_with(Path::new("."), &words, b"");
    assert_eq!((code, err.as_str()), (0, ""));
    let results: Vec<Value> = serde_json::from_str(&out).unwrap();
    assert!(number(&results[0], "offered") > 400.0 && number(&results[1], "on_time") == 1000.0, "{out}");
    assert!(number(&results[0], "busy_fraction") > 0.2, "both are busy in the same second: {out}");
}

#[test]
fn a_scenario_of_one_model_fares_as_the_flags_that_say_the_same() {
    for (flags, arrivals) in [
        ("--poisson 20000 --for 1", "arrivals = [{ process = 'poisson', rate = 20000, for_s = 1 }]"),
        ("--gamma 9000 --cv 3 --for 1", "arrivals = [{ process = { gamma = { cv = 3 } }, rate = 9000, for_s = 1 }]"),
        (
            "--fan-out 100x90:5ms --for 1",
            "arrivals = [{ process = { fan-out = { size = 90, spread_ms = 5 } }, rate = 9000, for_s = 1 }]",
        ),
        (
            "--mmpp 6000..18000:0.2 --for 1",
            "arrivals = [{ process = { mmpp = { low = 0.5, high = 1.5, mean_low_s = 0.2, mean_high_s = 0.2 } }, rate = 12000, \
             for_s = 1 }]",
        ),
        (
            "--flash 9000..27000:0.2..0.4 --for 1",
            "arrivals = [{ process = { flash = { factor = 3, from_s = 0.2, until_s = 0.4 } }, rate = 9000, for_s = 1 }]",
        ),
        (
            "--diurnal 1000..3000:0.5 --for 1",
            "arrivals = [{ process = { diurnal = { swing = 0.5, day_s = 0.5 } }, rate = 2000, for_s = 1 }]",
        ),
        (
            "--uniform 9000 --for 1 --rows 1..3",
            "arrivals = [{ process = 'uniform', rate = 9000, for_s = 1, rows = [1, 2, 3] }]",
        ),
        (
            "--closed-loop 9 --think-ms 3 --think-jitter 0.1 --for 1",
            "clients = { count = 9, think_ms = 3, jitter = 0.1, for_s = 1 }",
        ),
    ] {
        let disturbed = "--jitter 0.1 --stragglers 0.01:5 --cold --first-batch 3";
        let text = format!(
            "max_latency_ms = 50\nmax_batch_size = 128\n{arrivals}\n[service]\nbase_ms = 2\nper_row_ms = 0.05\njitter = 0.1\n\
             straggle = {{ share = 0.01, factor = 5 }}\nfirst_factor = 3"
        );
        let seed = ["--seed", "5", "--policy", "cork,aimd"];
        let by_file = scenario_results(&text, &[&seed[..], &["--cold"]].concat());
        assert_eq!(by_file, results(&format!("{flags} {disturbed} {}", seed.join(" "))), "{flags}");
    }
}

#[test]
fn every_scenario_of_the_tests_is_one_that_users_can_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    assert!(files.len() > 20, "{files:?}");
    for file in files {
        let words = ["--scenario", file.to_str().unwrap(), "--json", "--policy", "cork"];
        let (code, out, err) = simulate_with(Path::new("."), &words, b"");
        assert_eq!((code, err.as_str()), (0, ""), "{}", file.display());
        let results: Vec<Value> = serde_json::from_str(&out).unwrap();
        assert!(results.len() == 1 && results[0].get("model").is_none(), "{}: {out}", file.display());
    }
    // Without --policy, its own and those that it is compared with stand beside each other.
    let own = "tests/scenarios/fan_out.toml";
    let (code, out, err) = simulate_with(Path::new(env!("CARGO_MANIFEST_DIR")), &["--scenario", own, "--json"], b"");
    assert_eq!((code, err.as_str()), (0, ""));
    let results: Vec<Value> = serde_json::from_str(&out).unwrap();
    let policies: Vec<_> = results.iter().map(|result| result["policy"].as_str().unwrap()).collect();
    assert_eq!(policies, ["cork", "eager", "fixed:2:64"]);
}

#[test]
fn a_first_batch_that_was_timed_before_the_start_is_not_said_to_be_slow() {
    let text = "max_latency_ms = 50\nmax_batch_size = 8\nservice = { base_ms = 2, per_row_ms = 0.5, first_factor = 20 }\n\
                arrivals = [{ process = 'poisson', rate = 50, for_s = 1 }]";
    for (words, is_cold) in [(&["--cold"][..], true), (&[], false)] {
        let (code, out, err) = scenario(text, words);
        assert_eq!((code, err.as_str()), (0, ""));
        assert_eq!(out.contains("the first × 20"), is_cold, "{out}");
        assert_eq!(out.contains("first_factor says nothing without --cold"), !is_cold, "{out}");
    }
}

#[test]
fn a_scenario_that_is_wrong_is_refused_with_its_line_its_key_and_the_bound() {
    let model =
        "[[model]]\nname = 'a'\nmax_latency_ms = 50\nmax_batch_size = 8\nservice = { base_ms = 2, per_row_ms = 1 }\n";
    let arrivals = "arrivals = [{ process = 'poisson', rate = 100, for_s = 1 }]\n";
    let sound = format!("{model}{arrivals}");
    assert_eq!(scenario(&sound, &[]).0, 0);
    for (from, to, parts) in [
        (
            "[[model]]",
            "runner = 2\n[[model]]",
            &["mix.toml:1: runner: unknown field `runner`, expected one of `about`, `runners`"][..],
        ),
        ("[[model]]", "runners = 0\n[[model]]", &["mix.toml:1: runners = 0: must be a whole number from 1 to 1024"]),
        ("[[model]]", "seed = -1\n[[model]]", &["mix.toml:1: seed = -1: must be a whole number from 0 to"]),
        ("[[model]]", "policy = 'corc'\n[[model]]", &["mix.toml:1: policy = 'corc': 'corc' is none of cork, eager"]),
        ("[[model]]", "max_latency_ms = 9\n[[model]]", &["max_latency_ms belongs into a [[model]] table"]),
        ("[[model]]", "[[model]", &["mix.toml:1: ", "expected `]`"]),
        ("'a'", "'a b'", &["mix.toml:2: name = 'a b': must be letters, digits"]),
        ("name = 'a'", "weight = 0\nname = 'a'", &["mix.toml:2: weight = 0: must be a whole number from 1 to 1000"]),
        ("name = 'a'\n", "", &["mix.toml:1: ", "missing field `name`"]),
        ("= 50", "= 0", &["mix.toml:3: max_latency_ms = 0: must be a number from 0.001 to 3600000"]),
        ("= 50", "= 'fast'", &["mix.toml:3: max_latency_ms = 'fast': must be a number from 0.001"]),
        ("= 8", "= 1.5", &["mix.toml:4: max_batch_size = 1.5: must be a whole number from 1 to 65536"]),
        ("base_ms = 2", "base_ms = -2", &["mix.toml:5: base_ms = -2: must be a number from 0 to 3600000"]),
        ("per_row_ms = 1", "per_row_ms = 1, noise = 1", &["mix.toml:5: noise: ", "noise", "jitter"]),
        ("per_row_ms = 1", "per_row_ms = 1, sizes = [4, 2]", &["mix.toml:5: ", "sizes [4, 2]: must rise"]),
        ("per_row_ms = 1", "per_row_ms = 1, sizes = [4]", &["the largest, 4, must not be below max_batch_size 8"]),
        (
            "base_ms = 2, per_row_ms = 1",
            "base_ms = 0, per_row_ms = 0",
            &["mix.toml:5: ", "a batch must take some time"],
        ),
        (
            "per_row_ms = 1",
            "per_row_ms = 1, changes = [{ at_s = 0.5, factor = 2 }, { at_s = 1, factor = 9 }]",
            &["mix.toml:5: service: changes: what begins at 1 s is not within for_s 1 s"],
        ),
        (arrivals, "", &["mix.toml:1: ", "a model needs its callers: either arrivals"]),
        (arrivals, &format!("{arrivals}{sound}"), &["mix.toml:7: ", "a model called 'a' is there already"]),
        (
            "'poisson'",
            "'poison'",
            &["mix.toml:6: process = 'poison': unknown variant `poison`, expected one of `poisson`"],
        ),
        ("'poisson'", "{ gamma = { cv = 99 } }", &["mix.toml:6: cv = 99: must be a number from 0.1 to 32"]),
        (
            "'poisson'",
            "{ flash = { factor = 2, from_s = 2, until_s = 3 } }",
            &["what begins at 2 s is not within for_s 1 s"],
        ),
        (
            "'poisson', rate = 100, for_s = 1",
            "{ mmpp = { low = 1, high = 1000, mean_low_s = 1, mean_high_s = 1 } }, rate = 1e7, for_s = 0.001",
            &["mix.toml:6: ", "arrivals: high is 10000000000; it must be from 0 to 1000000000"],
        ),
        ("'poisson'", "{ flash = { factor = 2, from_s = 2, until_s = 1 } }", &["from_s must be less than until_s"]),
        ("'poisson', rate = 100", "{ list = { at_ms = [2, 1] } }", &["mix.toml:6: ", "at_ms: must be in order"]),
        ("'poisson'", "{ burst = { count = 3 } }", &["what comes at given times has neither rate nor load"]),
        ("rate = 100", "rate = nan", &["mix.toml:6: rate = nan: must be a number from 0.001 to 10000000"]),
        ("rate = 100, ", "", &["mix.toml:6: ", "a process needs a rate, in requests a second, or a load"]),
        ("rate = 100", "rate = 100, load = 1", &["rate and load exclude each other"]),
        ("rate = 100, for_s = 1", "rate = 1e6, for_s = 1e6", &["1000000000000; at most 2000000000: a shorter for_s"]),
        ("rate = 100", "rate = 0.001", &["arrivals: nothing arrives within 1 s; a longer for_s"]),
        (", for_s = 1", "", &["mix.toml:6: ", "for_s is missing"]),
        ("for_s = 1", "for_s = 1, rows = [9]", &["rows: 9 rows do not fit into a batch of at most 8"]),
        ("for_s = 1", "for_s = 1, priorities = [11]", &["priorities = [11]: must be a whole number from 1 to 10"]),
        ("for_s = 1", "for_s = 1, within_ms = [0]", &["within_ms = [0]: must be a number from 0.001"]),
        ("process = 'poisson'", "file = 'trace.csv'", &["for_s: the file says that itself; leave it out"]),
        ("process = 'poisson', rate = 100, for_s = 1", "file = 'none.csv'", &["none.csv cannot be read: No such file"]),
        (
            arrivals,
            "clients = { count = 0, think_ms = 1, for_s = 1 }",
            &["count = 0: must be a whole number from 1 to 100000"],
        ),
        (
            "arrivals",
            "clients = { count = 1, think_ms = 1, for_s = 1 }\narrivals",
            &["clients and arrivals exclude each other"],
        ),
    ] {
        assert!(sound.contains(from), "{from}");
        assert_refused(scenario(&sound.replacen(from, to, 1), &[]), parts);
    }
    assert_refused(scenario("", &[]), &["mix.toml: max_latency_ms is missing, or [[model]] tables that have it"]);
    assert_refused(scenario(&sound, &["--hurried", "0.1:9"]), &["'--scenario <FILE>' cannot be used with '--hurried"]);
    assert_refused(scenario(&sound, &["--for", "9"]), &["'--scenario <FILE>' cannot be used with '--for"]);
    assert_refused(scenario(&sound, &["--poisson", "9"]), &["'--scenario <FILE>' cannot be used with '--poisson"]);
    assert_refused(
        scenario(&sound, &["--runners", "9"]),
        &["'--scenario <FILE>' cannot be used with", "--runners <M>"],
    );
    assert_refused(scenario(MIX, &["--policy", "best-fixed"]), &["best-fixed is left out"]);
    let absent = simulate_with(Path::new("."), &["--scenario", "none.toml"], b"");
    assert_refused(absent, &["none.toml cannot be read: No such file"]);
}
