//! Tests of the whole way from the three sources to settings.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::folder::Folder;
use uncork::config::{Config, Flags, LogFormat, Problems, resolve};
use uncork::registry::{BatchAxes, Device, Lengths, Rows, Source, is_built};
use uncork::repository::Policy;
use uncork::server::Options;
use uncork::telemetry::{Sampling, Settings};

/// Resolves `text` as ./uncork.toml in a folder that also holds an (empty) model file.
fn resolve_text(text: &str, flags: &Flags, variables: &[(&str, &str)]) -> Result<Config, Problems> {
    let folder = Folder::new();
    fs::write(folder.path().join("uncork.toml"), text).unwrap();
    fs::create_dir(folder.path().join("models")).unwrap();
    fs::write(folder.path().join("models/m.onnx"), "").unwrap();
    resolve(flags, variables.iter().map(|(k, v)| (k.into(), v.into())), folder.path())
}

fn problems(text: &str) -> Vec<String> {
    problems_with(text, &[])
}

fn problems_with(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let problems = resolve_text(text, &Flags::default(), variables).expect_err("there is a problem");
    problems.iter().map(ToString::to_string).collect()
}

/// Sees to it that one thing is wrong with a text, and said in these words.
#[track_caller]
fn assert_one_problem(text: &str, words: &str) {
    let found = problems(text);
    assert!(found.len() == 1 && found[0].contains(words), "{text}: {found:?}");
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const STAND_IN: &str = "[[model]]\nname = 'a'\nsynthetic = { base_ms = 2, per_row_ms = 0.05 }\n";

#[test]
fn the_two_caps_are_all_that_anyone_must_set() {
    let text = "[[model]]\nname = 'digits'\npath = 'models/m.onnx'\nmax_latency_ms = 50\nmax_batch_size = 64\n";
    let config = resolve_text(text, &Flags::default(), &[]).unwrap();
    let model = &config.models[0];
    assert_eq!((model.name.as_str(), model.version.as_str()), ("digits", "1"));
    assert_eq!((model.max_latency, model.max_batch_rows.get(), model.runners.get()), (ms(50), 64, 1));
    assert_eq!(config.http, ["127.0.0.1:8080"]);
    assert_eq!(config.server, Options::default());
    assert_eq!(config.file.as_deref(), Some(Path::new("uncork.toml")));
    let Source::Onnx(path) = &model.source else { panic!("{:?}", model.source) };
    assert!(path.is_absolute() && path.ends_with("models/m.onnx"), "a path starts in the file's folder: {path:?}");
}

#[test]
fn a_stand_in_has_fractional_times_and_the_embedded_model_serves_where_there_is_none() {
    let config = resolve_text(STAND_IN, &Flags::default(), &[]).unwrap();
    let times = Source::Synthetic { base: ms(2), per_row: Duration::from_micros(50) };
    assert_eq!(config.models[0].source, times);
    let config = resolve_text("[server]\nhttp = '[::1]:9'\n", &Flags::default(), &[]).unwrap();
    assert_eq!((config.models[0].name.as_str(), &config.models[0].source), ("digits", &Source::Embedded));
    assert_eq!(config.http, ["[::1]:9"]);
}

#[test]
fn a_flag_outweighs_a_variable_which_outweighs_the_file_which_outweighs_the_default() {
    let with_file = format!("[server]\nhttp = '127.0.0.1:1'\n{STAND_IN}max_latency_ms = 1\n");
    let variables = [("UNCORK_HTTP", "127.0.0.1:2"), ("UNCORK_MAX_LATENCY_MS", "2")];
    let flags = Flags { http: Some("127.0.0.1:3".into()), max_latency_ms: Some("3".into()), ..Flags::default() };
    let found = |text: &str, flags: &Flags, variables: &[(&str, &str)]| {
        let config = resolve_text(text, flags, variables).unwrap();
        (config.http.concat(), config.models[0].max_latency)
    };
    assert_eq!(found(STAND_IN, &Flags::default(), &[]), ("127.0.0.1:8080".into(), ms(100)));
    assert_eq!(found(&with_file, &Flags::default(), &[]), ("127.0.0.1:1".into(), ms(1)));
    assert_eq!(found(&with_file, &Flags::default(), &variables), ("127.0.0.1:2".into(), ms(2)));
    assert_eq!(found(&with_file, &flags, &variables), ("127.0.0.1:3".into(), ms(3)));
}

#[test]
fn addresses_are_one_or_several_of_tcp_or_unix_sockets() {
    let http = |text: &str, flag: Option<&str>| {
        let flags = Flags { http: flag.map(str::to_owned), ..Flags::default() };
        resolve_text(&format!("[server]\nhttp = {text}\n"), &flags, &[]).map(|config| config.http)
    };
    assert_eq!(http("'unix:/run/u.sock'", None).unwrap(), ["unix:/run/u.sock"]);
    assert_eq!(http("['127.0.0.1:1', 'unix:a']", None).unwrap(), ["127.0.0.1:1", "unix:a"]);
    assert_eq!(http("'[::1]:1'", Some("localhost:2, unix:/a")).unwrap(), ["localhost:2", "unix:/a"]);
    for wrong in ["[]", "'unix:'", "['127.0.0.1:1', 'here']"] {
        assert!(http(wrong, None).unwrap_err().to_string().contains("or unix:PATH, or a list"), "{wrong}");
    }
}

#[test]
fn an_address_is_listened_on_once() {
    for (lines, words) in [
        ("http = ['127.0.0.1:80', '127.0.0.1:80']", "server.http = "),
        (
            "http = '127.0.0.1:80'\nadmin = '127.0.0.1:80'",
            "server.admin = \"127.0.0.1:80\": 127.0.0.1:80 is listened on already",
        ),
        ("grpc = '127.0.0.1:8080'", "server.grpc = \"127.0.0.1:8080\": 127.0.0.1:8080 is listened on already"),
        ("insecure = true\nhttp = '127.0.0.1:80'\nadmin = '0.0.0.0:80'", "0.0.0.0:80 is listened on already"),
        ("http = ['unix:/a', 'unix:/a']", "unix:/a is listened on already"),
        ("http = 8080", "server.http = 8080: must be an address and a port, like 127.0.0.1:8080"),
    ] {
        assert_one_problem(&format!("[server]\n{lines}\n{STAND_IN}"), words);
    }
    for lines in [
        "http = ['127.0.0.1:0', '127.0.0.1:0']",
        "http = '0.0.0.0:80'\ninsecure = true",
        "http = ['127.0.0.1:80', '[::1]:80']",
    ] {
        resolve_text(&format!("[server]\n{lines}\n{STAND_IN}"), &Flags::default(), &[]).unwrap();
    }
}

#[test]
fn the_documents_name_the_variables_that_hold_for_every_model() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md")).unwrap();
    let (_, behind) = text.split_once("Of `[[model]]` these are variables too: ").expect("the list");
    let (list, _) = behind.split_once('.').expect("its end");
    let named: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
    assert!(named.len() > 5, "{named:?}");
    // Each is known, though its value may be wrong, and no other key of a model is.
    for key in
        named.iter().copied().chain(["dims", "batch_axes", "isolation", "env", "labels", "weight", "python_path"])
    {
        let variable = format!("UNCORK_{}", key.to_uppercase());
        let found = problems_with(STAND_IN, &[(&variable, "?")]);
        assert_eq!(found[0].contains("unknown variable"), !named.contains(&key), "{found:?}");
    }
}

#[test]
fn a_certificate_needs_its_key() {
    let tls = |text: &str| resolve_text(&format!("[server]\n{text}"), &Flags::default(), &[]);
    let both = tls("tls_certificate = 'c.pem'\ntls_key = '/k.pem'\n").unwrap().server.tls.unwrap();
    assert!(
        both.certificate.is_absolute() && both.certificate.ends_with("c.pem"),
        "a path starts in the file's folder"
    );
    assert_eq!((both.key.as_path(), both.client_ca), (Path::new("/k.pem"), None));
    for lonely in ["tls_certificate = 'c.pem'", "tls_key = 'k.pem'", "tls_client_ca = 'r.pem'"] {
        assert!(tls(lonely).unwrap_err().to_string().contains("needs both"), "{lonely}");
    }
}

#[test]
fn allowed_batch_sizes_rise_to_the_cap_and_say_it_where_nobody_else_does() {
    let sizes = |rest: &str| resolve_text(&format!("{STAND_IN}{rest}\n"), &Flags::default(), &[]);
    let model = sizes("allowed_batch_sizes = [1, 8, 32]").unwrap().models.remove(0);
    assert_eq!(model.allowed_batch_sizes.iter().collect::<Vec<_>>(), [1, 8, 32]);
    assert_eq!(model.max_batch_rows.get(), 32);
    sizes("allowed_batch_sizes = [1, 8, 32]\nmax_batch_size = 32").unwrap();
    assert!(sizes("").unwrap().models[0].allowed_batch_sizes.is_any());
    for (bad, words) in [
        ("[1, 8, 32]\nmax_batch_size = 64", "= [1, 8, 32]: must end with max_batch_size (64)"),
        ("[]", "= []: must be a list of whole numbers from 1 to 65536 that rise, like [1, 8, 32]"),
        ("[8, 8]", "= [8, 8]: must be a list"),
        ("[0, 8]", "= [0, 8]: must be a list"),
        ("[1, '8']", "= [1, \"8\"]: must be a list"),
        ("[1, 70000]", "= [1, 70000]: must be a list"),
        ("8", "= 8: must be a list"),
    ] {
        let problems = problems(&format!("{STAND_IN}allowed_batch_sizes = {bad}\n"));
        assert!(problems.len() == 1 && problems[0].contains("uncork.toml:4"), "{problems:?}");
        assert!(problems[0].contains(words), "{problems:?}");
    }
}

#[test]
fn lengths_are_grouped_unless_padding_is_asked_for() {
    let lengths = |rest: &str| resolve_text(&format!("{STAND_IN}{rest}\n"), &Flags::default(), &[]);
    assert_eq!(lengths("").unwrap().models[0].lengths, Lengths::Group);
    assert_eq!(lengths("lengths = 'pad'").unwrap().models[0].lengths, Lengths::Pad);
    let problems = problems(&format!("{STAND_IN}lengths = 'cut'\n"));
    assert!(
        problems[0].contains("uncork.toml:4") && problems[0].contains("must be \"group\" or \"pad\""),
        "{problems:?}"
    );
}

#[test]
fn every_error_is_told_at_once_with_its_line_key_value_and_bound() {
    let text = "[server]\nhttp = 'here'\nmax_connections = 0\ndrain_delay_ms = -1\n\n[[model]]\nname = 'a'\n\
                synthetic = { base_ms = 1, per_row = 2 }\nmax_latency_ms = 0\n\n[[model]]\nname = 'a b'\n\
                path = 'models/none.onnx'\nmax_batch_size = 70000\nrunners = '2'\n\n[[model]]\nversion = 'v1'\n";
    let found = problems(text).join("\n");
    for expected in [
        "uncork.toml:2: server.http = \"here\": must be an address and a port",
        "uncork.toml:3: server.max_connections = 0: must be a whole number from 1 to 1000000",
        "uncork.toml:4: server.drain_delay_ms = -1: must be a number from 0 to 3600000",
        "uncork.toml:8: model[0].synthetic (model 'a'): 'per_row_ms' is missing",
        "uncork.toml:8: model[0].synthetic.per_row: unknown key; did you mean 'per_row_ms'?",
        "uncork.toml:9: model[0].max_latency_ms (model 'a') = 0: must be a number from 0.001 to 3600000",
        "uncork.toml:12: model[1].name = \"a b\": must be letters, digits",
        "uncork.toml:13: model[1].path = \"models/none.onnx\": cannot be opened",
        "uncork.toml:14: model[1].max_batch_size = 70000: must be a whole number from 1 to 65536",
        "uncork.toml:15: model[1].runners = \"2\": must be a whole number from 1 to 1024",
        "uncork.toml:17: model[2]: a model needs a name",
        "uncork.toml:17: model[2]: a model needs 'path', 'python', 'command', 'upstream' or 'synthetic'",
        "uncork.toml:18: model[2].version = \"v1\": must be a whole number, like \"1\"",
    ] {
        assert!(found.contains(expected), "missing: {expected}\nin:\n{found}");
    }
    assert_eq!(found.lines().count(), 13, "{found}");
}

#[test]
fn an_unknown_key_comes_with_what_was_probably_meant() {
    for (text, expected) in [
        ("[[models]]\nname = 'a'\n", "uncork.toml:1: models: unknown key; did you mean 'model'?"),
        ("max_latency_ms = 1\n", "uncork.toml:1: max_latency_ms: unknown key; it belongs under [[model]]"),
        ("[server]\nmax_connection = 1\n", "server.max_connection: unknown key; did you mean 'max_connections'?"),
        ("[server]\nmax_batch_size = 1\n", "server.max_batch_size: unknown key; it belongs under [[model]]"),
        ("[server]\nzzz = 1\n", "uncork.toml:2: server.zzz: unknown key"),
        ("[[model]]\nmax-batch-size = 1\n", "model[0].max-batch-size: unknown key; did you mean 'max_batch_size'?"),
        ("[[model]]\nhttp = 1\n", "model[0].http: unknown key; it belongs under [server]"),
        ("[model]\nname = 'a'\n", "uncork.toml:1: model: must be a list of tables, each written as [[model]]"),
        ("server = 1\n", "uncork.toml:1: server: must be a table, written as [server]"),
        ("model = [1]\n", "uncork.toml:1: model[0]: must be a table, written as [[model]]"),
    ] {
        assert!(problems(text).iter().any(|p| p.ends_with(expected)), "{text} gave {:?}", problems(text));
    }
}

#[test]
fn what_is_not_toml_is_told_with_every_line() {
    let found = problems("[server\nhttp = 1\nmax_connections = = 2\n");
    assert!(found.iter().all(|p| p.contains("not TOML")), "{found:?}");
    assert!(
        found[0].starts_with("uncork.toml:1: ") && found.last().unwrap().starts_with("uncork.toml:3: "),
        "{found:?}"
    );
    let twice = problems("[server]\nhttp = '127.0.0.1:1'\nhttp = '127.0.0.1:2'\n");
    assert!(twice.len() == 1 && twice[0].starts_with("uncork.toml:3: not TOML"), "{twice:?}");
}

#[test]
fn a_key_that_would_do_nothing_is_an_error() {
    for host in ["", "https://ml.example", "ml.example:443", "*.example"] {
        assert_one_problem(&format!("[server]\nhosts = ['ok.example', '{host}']\n"), "is no name of a host");
    }
    let found = problems("[server]\nhosts = ['ml.example']\ninsecure = true\n");
    assert!(found[0].contains("server.hosts") && found[0].contains("has no effect"), "{found:?}");
}

#[test]
fn an_address_for_grpc_stands_beside_those_for_http() {
    let config = resolve_text("[server]\ngrpc = '127.0.0.1:8081'\n", &Flags::default(), &[]).unwrap();
    assert_eq!((config.http.len(), &config.grpc[..]), (1, &["127.0.0.1:8081".to_owned()][..]));
    let flags = Flags { grpc: Some("somewhere".into()), ..Flags::default() };
    assert!(resolve_text("", &flags, &[]).unwrap_err().to_string().starts_with("--grpc = "));
}

#[test]
fn an_address_for_operators_stands_in_the_file_the_environment_or_a_flag() {
    let admin = |text, flags: &Flags, variables: &[(&str, &str)]| resolve_text(text, flags, variables).unwrap().admin;
    let (file, none) = ("[server]\nadmin = '127.0.0.1:9001'\n", Flags::default());
    assert!(admin("", &none, &[]).is_empty());
    assert_eq!(admin(file, &none, &[]), ["127.0.0.1:9001"]);
    let variable = [("UNCORK_ADMIN", "127.0.0.1:9002")];
    assert_eq!(admin(file, &none, &variable), ["127.0.0.1:9002"]);
    let flags = Flags { admin: Some("127.0.0.1:9003,unix:/run/uncork.sock".into()), ..Flags::default() };
    assert_eq!(admin(file, &flags, &variable), ["127.0.0.1:9003", "unix:/run/uncork.sock"]);
    let flags = Flags { admin: Some("somewhere".into()), ..Flags::default() };
    assert!(resolve_text("", &flags, &[]).unwrap_err().to_string().starts_with("--admin = "));
}

#[test]
fn a_model_has_one_source_a_usable_name_and_a_version_of_its_own() {
    let both = "[[model]]\nname = 'a'\npath = 'models/m.onnx'\nsynthetic = { base_ms = 1, per_row_ms = 1 }\n";
    assert!(problems(both)[0].contains("either 'path' or 'synthetic', not both"), "{:?}", problems(both));
    for name in ["", "-a", "a/b", "a:b", "a b", "ü", "stats"] {
        let text = STAND_IN.replace("'a'", &format!("'{name}'"));
        assert!(problems(&text)[0].contains("model[0].name"), "{name}: {:?}", problems(&text));
    }
    let twice = format!("{STAND_IN}{STAND_IN}version = 1\n");
    let expected = "uncork.toml:4: model[1]: model 'a' version '1' is there already, at uncork.toml:1: model[0]";
    assert_eq!(problems(&twice), [expected]);
    let versions = format!("{STAND_IN}{STAND_IN}version = '2'\n");
    assert_eq!(resolve_text(&versions, &Flags::default(), &[]).unwrap().models.len(), 2);
    for version in ["'v1'", "'01'", "'+1'", "''", "-1", "1.5"] {
        let text = format!("{STAND_IN}version = {version}\n");
        assert!(problems(&text)[0].contains("model[0].version (model 'a')"), "{version}: {:?}", problems(&text));
    }
}

#[test]
fn a_queue_too_short_for_one_batch_is_refused() {
    let text = format!("{STAND_IN}max_batch_size = 64\nmax_queue_rows = 63\n");
    assert!(problems(&text)[0].contains("= 63: must be at least max_batch_size (64)"), "{:?}", problems(&text));
}

#[test]
fn room_for_all_bodies_must_hold_the_largest_one() {
    let found = problems("[server]\nmax_body_bytes = 2_000_000_000\n");
    assert!(
        found[0].ends_with("max_bodies_bytes (1073741824) must be at least max_body_bytes (2000000000)"),
        "{found:?}"
    );
}

#[test]
fn an_unknown_or_wrong_variable_is_an_error_but_not_those_that_kubernetes_sets() {
    let found = problems_with(
        STAND_IN,
        &[("UNCORK_MAX_LATENCY", "5"), ("UNCORK_RUNNERS", "many"), ("UNCORK_LOG", "a=b=c"), ("OTHER", "x")],
    );
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with("UNCORK_LOG = \"a=b=c\": is not a filter"), "{found:?}");
    assert_eq!(found[1], "UNCORK_MAX_LATENCY: unknown variable; did you mean 'UNCORK_MAX_LATENCY_MS'?");
    assert_eq!(found[2], "UNCORK_RUNNERS = \"many\": must be a whole number from 1 to 1024");
    let found = problems_with(STAND_IN, &[("UNCORK_LOG", "uncork[request]=debug")]);
    assert!(found[0].ends_with("it cannot choose spans or fields"), "{found:?}");
    for silent in ["uncrok=debug", "hyper=trace,tower=info"] {
        let found = problems_with(STAND_IN, &[("UNCORK_LOG", silent)]);
        assert!(found[0].contains("the log would be empty"), "{found:?}");
    }
    for filter in ["off", "uncork=debug", "hyper=trace,info", "uncork_onnx=debug"] {
        resolve_text(STAND_IN, &Flags::default(), &[("UNCORK_LOG", filter), ("UNCORK_COMMIT", "abc")]).unwrap();
    }
    let found = problems_with(STAND_IN, &[("UNCORK_VERSION", "2"), ("UNCORK_HTPP", "x"), ("UNCORK_INSTALL", "x")]);
    assert_eq!(
        found,
        [
            "UNCORK_HTPP: unknown variable; did you mean 'UNCORK_HTTP'?",
            "UNCORK_INSTALL: unknown variable",
            "UNCORK_VERSION: unknown variable; 'version' is said of one model, in its [[model]]: it has no variable",
        ]
    );
    let links = [
        ("UNCORK_SERVICE_HOST", "10.0.0.1"),
        ("UNCORK_SERVICE_PORT", "80"),
        ("UNCORK_SERVICE_PORT_HTTP", "80"),
        ("UNCORK_PORT", "tcp://10.0.0.1:80"),
        ("UNCORK_PORT_80_TCP", "tcp://10.0.0.1:80"),
        ("UNCORK_PORT_80_TCP_PROTO", "tcp"),
        ("UNCORK_GPU_SERVICE_HOST", "10.0.0.1"),
    ];
    resolve_text(STAND_IN, &Flags::default(), &links).unwrap();
    assert!(problems_with(STAND_IN, &[("UNCORK_PORT", "80")])[0].contains("unknown variable"));
}

#[test]
fn a_model_on_the_command_line_is_named_after_its_file() {
    let folder = Folder::new();
    fs::write(folder.path().join("res-net.v2.onnx"), "").unwrap();
    let flags = Flags { models: vec!["res-net.v2.onnx".into()], max_batch_size: Some("7".into()), ..Flags::default() };
    let config = resolve(&flags, [], folder.path()).unwrap();
    assert_eq!((config.models[0].name.as_str(), config.models[0].max_batch_rows.get()), ("res-net.v2", 7));
    assert_eq!(config.file, None);
    let flags = Flags { models: vec!["none.onnx".into(), "a b.onnx".into()], ..Flags::default() };
    let problems = resolve(&flags, [], folder.path()).unwrap_err().to_string();
    assert!(problems.contains("MODEL = \"none.onnx\": cannot be opened"), "{problems}");
    assert!(problems.contains("MODEL = \"a b.onnx\": cannot be called 'a b'"), "{problems}");
}

#[test]
fn a_file_that_is_named_must_be_there() {
    let folder = Folder::new();
    let flags = Flags { config: Some("none.toml".into()), ..Flags::default() };
    let problems = resolve(&flags, [], folder.path()).unwrap_err().to_string();
    assert!(problems.starts_with("none.toml: cannot be read: "), "{problems}");
    let named = resolve(&Flags::default(), [("UNCORK_CONFIG".into(), "other.toml".into())], folder.path());
    assert!(named.unwrap_err().to_string().starts_with("other.toml: cannot be read: "));
}

#[test]
fn nobody_waits_for_the_writer_of_a_pipe_in_the_place_of_settings() {
    let folder = Folder::new();
    let made = std::process::Command::new("mkfifo").arg(folder.path().join("uncork.toml")).status();
    assert!(made.expect("coreutils").success());
    let (told, problems) = std::sync::mpsc::channel();
    std::thread::spawn(move || told.send(resolve(&Flags::default(), [], folder.path()).unwrap_err().to_string()));
    let problems = problems.recv_timeout(Duration::from_secs(20)).expect("it is not waited for");
    assert_eq!(problems, "uncork.toml: cannot be read: it is no regular file");
}

/// A stand-in called `name` with more keys.
fn stand_in(name: &str, keys: &str) -> String {
    format!("{}{keys}\n", STAND_IN.replace("'a'", &format!("'{name}'")))
}

#[test]
fn models_that_name_a_pool_share_its_runners_by_weight() {
    let pool = "[[pool]]\nname = 'cpu'\nrunners = 2\n";
    let models =
        [stand_in("a", "pool = 'cpu'\nweight = 3"), stand_in("b", "pool = 'cpu'"), stand_in("c", "runners = 4")];
    let found = |flags: &Flags| {
        let config = resolve_text(&format!("{pool}{}", models.concat()), flags, &[]).unwrap();
        let of = |m: &uncork::registry::ModelSpec| (m.pool.clone(), m.weight.get(), m.runners.get());
        config.models.iter().map(of).collect::<Vec<_>>()
    };
    let cpu = || Some("cpu".to_owned());
    assert_eq!(found(&Flags::default()), [(cpu(), 3, 2), (cpu(), 1, 2), (None, 1, 4)]);
    let flags = Flags { runners: Some("5".into()), ..Flags::default() };
    assert_eq!(found(&flags), [(cpu(), 3, 5), (cpu(), 1, 5), (None, 1, 5)], "a flag outweighs the file, for pools too");
    let default = format!("[[pool]]\nname = 'cpu'\n{}", models[1]);
    assert_eq!(resolve_text(&default, &Flags::default(), &[]).unwrap().models[0].runners.get(), 1);
}

#[test]
fn whatever_is_wrong_with_pools_is_told_at_once_with_its_place() {
    let pools = "[[pool]]\nname = 'cpu'\n[[pool]]\nname = 'cpu'\n[[pool]]\nname = 'idle'\n[[pool]]\nrunners = 0\n\
                 [[pool]]\nname = 'a b'\nweight = 2\n";
    let models = [
        stand_in("a", "pool = 'cpu'\nrunners = 2"),
        stand_in("b", "pool = 'cpus'"),
        stand_in("c", "weight = 2"),
        stand_in("d", "pool = 'cpu'\nweight = 0"),
        stand_in("e", "pool = 7"),
    ];
    let found = problems(&format!("{pools}{}", models.concat())).join("\n");
    for expected in [
        "uncork.toml:3: pool[1]: pool 'cpu' is there already, at uncork.toml:1: pool[0]",
        "uncork.toml:5: pool[2]: pool 'idle' serves no model; write pool = \"idle\" in a [[model]], or remove it",
        "uncork.toml:7: pool[3]: a pool needs a name",
        "uncork.toml:8: pool[3].runners = 0: must be a whole number from 1 to 1024",
        "uncork.toml:10: pool[4].name = \"a b\": must be letters, digits",
        "uncork.toml:11: pool[4].weight: unknown key; it belongs under [[model]]",
        "uncork.toml:16: model[0].runners (model 'a') = 2: a model in a pool uses the pool's runners; set them in its \
         [[pool]], or leave 'pool' out",
        "uncork.toml:20: model[1].pool (model 'b') = \"cpus\": there is no such pool; define it with [[pool]] and \
         this name; did you mean 'cpu'?",
        "uncork.toml:24: model[2].weight (model 'c') = 2: counts only beside the other models of a pool",
        "uncork.toml:29: model[3].weight (model 'd') = 0: must be a whole number from 1 to 1000",
        "uncork.toml:33: model[4].pool (model 'e') = 7: must be a string",
    ] {
        assert!(found.contains(expected), "missing: {expected}\nin:\n{found}");
    }
    assert_eq!(found.lines().count(), 11, "{found}");
    let one = problems("[pool]\nname = 'cpu'\n");
    assert_eq!(one, ["uncork.toml:1: pool: must be a list of tables, each written as [[pool]]"]);
}

#[test]
fn what_a_setting_says_is_escaped_and_cut_in_whatever_is_wrong_with_it() {
    for (text, variable) in
        [("Q".repeat(800), "Q".repeat(800)), ("\\u001b[31m\\u202e\\nX".into(), "\u{1b}[31m\u{202e}\nX".into())]
    {
        let model = |key: &str| format!("[[model]]\nname = 'm'\npath = 'models/m.onnx'\n{key}\n");
        for file in [
            format!("[server]\nhttp = \"{text}\"\n"),
            format!("[server]\n\"{text}\" = 1\n"),
            format!("[server]\nmodels = \"{text}\"\n"),
            format!("[server]\nlog_format = \"{text}\"\n"),
            format!("[[pool]]\nname = \"{text}\"\n"),
            format!("[[model]]\nname = \"{text}\"\npath = 'models/m.onnx'\n"),
            format!("[[model]]\nname = 'm'\npath = \"{text}\"\n"),
            format!("[[model]]\nname = 'm'\npython = \"{text}:A\"\n"),
            format!("[[model]]\nname = 'm'\ncommand = [\"./{text}\"]\n"),
            format!("[[model]]\nname = 'm'\nupstream = \"{text}\"\n"),
            model(&format!("pool = \"{text}\"")),
            model(&format!("device = \"{text}\"")),
            model(&format!("labels = {{ \"{text}\" = \"{text}\" }}")),
            model(&format!("shadow = \"{text}\"")),
            model(&format!("dims = {{ \"{text}\" = \"{text}\" }}")),
            format!("[[model]]\nname = 'm'\nsynthetic = {{ \"{text}\" = [\"{text}\"] }}\n"),
        ] {
            for told in problems_with(&file, &[("UNCORK_RUNNERS", &variable), (&format!("UNCORK_{variable}"), "1")]) {
                let is_bare = |c: char| c.is_control() || c == '\u{202e}';
                let longest = told.split(|c| c != 'Q').map(str::len).max();
                assert!(!told.contains(is_bare) && longest <= Some(200), "{file}: {told:?}");
            }
        }
    }
}

#[test]
fn a_model_computes_on_the_device_that_is_named_where_the_program_has_it() {
    let device = |value: &str| format!("[[model]]\nname = 'm'\npath = 'models/m.onnx'\ndevice = '{value}'\n");
    let config = resolve_text(&device("flex"), &Flags::default(), &[]).unwrap();
    assert_eq!(config.models[0].device, Device::Flex);
    let flags = Flags { device: Some("flex".into()), ..Flags::default() };
    assert_eq!(resolve_text(&device("cdua"), &flags, &[]).unwrap().models[0].device, Device::Flex);
    assert_eq!(
        problems(&device("cdua")),
        [
            r#"uncork.toml:4: model[0].device (model 'm') = "cdua": must be one of 'flex', 'wgpu', 'cuda'; did you mean 'cuda'?"#
        ]
    );
    for missing in Device::ALL.into_iter().filter(|device| !is_built(*device)) {
        let problem = problems(&device(missing.name())).remove(0);
        assert!(problem.contains(&format!("build it with `cargo build --release --features {missing}`")), "{problem}");
    }
    // What is said for all models leaves a stand-in as it is.
    resolve_text(STAND_IN, &Flags::default(), &[("UNCORK_DEVICE", "flex")]).unwrap();
    let problem = problems(&format!("{STAND_IN}device = 'flex'\n")).remove(0);
    assert!(problem.ends_with("a stand-in computes nothing; leave this setting out"), "{problem}");
}

/// What `text` and the variables come to for traces.
fn traces(text: &str, variables: &[(&str, &str)]) -> Option<Settings> {
    resolve_text(&format!("{text}{STAND_IN}"), &Flags::default(), variables).unwrap().traces
}

#[test]
fn traces_go_where_the_file_or_our_variable_or_opentelemetry_s_say_in_this_order() {
    let endpoint = |text: &str, variables: &[(&str, &str)]| traces(text, variables).map(|t| t.endpoint.to_string());
    let own = "[server]\notlp = 'http://a:4318'\n";
    let standard = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/base/");
    assert_eq!(endpoint("", &[]), None);
    assert_eq!(endpoint(own, &[standard]).unwrap(), "http://a:4318/v1/traces");
    assert_eq!(endpoint(own, &[("UNCORK_OTLP", "http://[::1]:9/v1/traces")]).unwrap(), "http://[::1]:9/v1/traces");
    assert_eq!(endpoint("", &[standard]).unwrap(), "http://c:4318/base/v1/traces");
    let whole = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://d:1/as/it/is");
    assert_eq!(endpoint("", &[standard, whole]).unwrap(), "http://d:1/as/it/is");
    for off in [("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_TRACES_EXPORTER", "none"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "")] {
        let variables = if off.1.is_empty() { vec![off] } else { vec![standard, off] };
        assert_eq!(endpoint("", &variables), None, "{off:?}");
    }
}

#[test]
fn sampling_name_and_headers_of_traces_are_opentelemetry_s() {
    let to = ("UNCORK_OTLP", "http://a:4318");
    let sampling = |follow_caller, ratio| Sampling { follow_caller, ratio };
    assert_eq!(traces("", &[to]).unwrap().sampling, sampling(true, 1.0));
    for (sampler, argument, expected) in [
        ("always_on", "", sampling(false, 1.0)),
        ("always_off", "0.5", sampling(false, 0.0)),
        ("traceidratio", "0.25", sampling(false, 0.25)),
        ("parentbased_always_on", "", sampling(true, 1.0)),
        ("parentbased_always_off", "", sampling(true, 0.0)),
        ("parentbased_traceidratio", "0.01", sampling(true, 0.01)),
        ("parentbased_traceidratio", "", sampling(true, 1.0)),
    ] {
        let variables = [to, ("OTEL_TRACES_SAMPLER", sampler), ("OTEL_TRACES_SAMPLER_ARG", argument)];
        assert_eq!(traces("", &variables).unwrap().sampling, expected, "{sampler} {argument}");
        let own = traces("[server]\ntrace_ratio = 0.1\n", &variables).unwrap().sampling;
        assert_eq!(own, sampling(true, 0.1), "the file's outweighs them");
    }
    let variables = [to, ("OTEL_SERVICE_NAME", "shop"), ("OTEL_EXPORTER_OTLP_HEADERS", "api-key = a%20b, tenant=c=d,")];
    let found = traces("", &variables).unwrap();
    assert_eq!(found.service_name.as_deref(), Some("shop"));
    let headers: Vec<_> = found.headers.iter().map(|(k, v)| (k.as_str(), v.to_str().unwrap())).collect();
    assert_eq!(headers, [("api-key", "a b"), ("tenant", "c=d")]);
}

#[test]
fn what_is_wrong_with_traces_and_the_log_is_said_with_its_place() {
    let found = problems(&format!("[server]\nlog_format = 'xml'\ntrace_ratio = 1.5\notlp = 'a:4318'\n{STAND_IN}"));
    assert_eq!(found[0], "uncork.toml:2: server.log_format = \"xml\": must be \"pretty\" or \"json\"");
    assert_eq!(found[1], "uncork.toml:3: server.trace_ratio = 1.5: must be a number from 0 to 1");
    assert!(found[2].contains("server.otlp = \"a:4318\": must be a collector's address, like"), "{found:?}");
    let of = |otlp| format!("[server]\notlp = '{otlp}'\n{STAND_IN}");
    assert_one_problem(&of("http://me:secret@a:4318"), "must not have a user or a password");
    let found = problems(&format!("[server]\ntrace_ratio = 1.5\notlp = 'http://a'\n{STAND_IN}"));
    assert_eq!(found, ["uncork.toml:2: server.trace_ratio = 1.5: must be a number from 0 to 1"]);
    let found = problems(&format!("[server]\ntrace_ratio = 0.5\n{STAND_IN}"));
    assert_eq!(
        found,
        ["uncork.toml:2: server.trace_ratio = 0.5: has no effect without otlp, the address of a collector"]
    );
    assert_one_problem(&of("https://a:4318"), "TLS is not spoken to collectors");

    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4317");
    let one = |variable| {
        let found = problems_with(STAND_IN, &[endpoint, variable]);
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    };
    let found = one(("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"));
    assert!(
        found.starts_with("OTEL_EXPORTER_OTLP_PROTOCOL = \"grpc\": traces are sent by http/protobuf only"),
        "{found}"
    );
    assert!(one(("OTEL_TRACES_SAMPLER", "xray")).contains("must be always_on, always_off"));
    let found = one(("OTEL_EXPORTER_OTLP_HEADERS", "hush"));
    assert!(found.contains("must be a list of headers") && !found.contains("hush"), "no secret is repeated: {found}");
    // Variables that do nothing here may say what they like to others.
    assert_eq!(traces("", &[("OTEL_TRACES_SAMPLER", "xray"), ("OTEL_LOGS_EXPORTER", "what")]), None);
}

#[test]
fn the_form_of_the_log_is_a_key_and_a_variable() {
    let format = |text: &str, variables: &[(&str, &str)]| {
        resolve_text(&format!("{text}{STAND_IN}"), &Flags::default(), variables).unwrap().log_format
    };
    assert_eq!(format("", &[]), None);
    assert_eq!(format("[server]\nlog_format = 'json'\n", &[]), Some(LogFormat::Json));
    let pretty = ("UNCORK_LOG_FORMAT", "pretty");
    assert_eq!(format("[server]\nlog_format = 'json'\n", &[pretty]), Some(LogFormat::Pretty));
}

#[test]
fn shapes_are_said_by_name_and_a_flag_outweighs_the_file() {
    let model = "[[model]]\nname = 'a'\npath = 'models/m.onnx'\n";
    let text = format!("{model}dims = {{ height = 640, 'x.3' = 480 }}\nbatch_axes = {{ state = 1, sr = 'none' }}\n");
    let flags = Flags { dims: vec!["height=320".into()], ..Flags::default() };
    let shapes = resolve_text(&text, &flags, &[]).unwrap().models.remove(0).shapes;
    assert_eq!(shapes.dims, [("height".to_owned(), 320), ("x.3".to_owned(), 480)].into());
    let axes = [("state".to_owned(), Rows::Axis(1)), ("sr".to_owned(), Rows::Shared)];
    assert_eq!(shapes.batch_axes, BatchAxes::Named(axes.into()));
    let none = resolve_text(&format!("{model}batch_axes = 'none'\n"), &Flags::default(), &[]).unwrap();
    assert_eq!(none.models[0].shapes.batch_axes, BatchAxes::Unbatched);
    for (key, words) in [
        ("dims = 640", "must give lengths by name, whole numbers from 1 to 16777216"),
        ("dims = { height = 0 }", "must give lengths by name"),
        ("dims = { height = 'tall' }", "must give lengths by name"),
        ("batch_axes = 1", "must be \"none\", or give an axis or \"none\" by input"),
        ("batch_axes = { state = 99 }", "must be \"none\""),
    ] {
        assert_one_problem(&format!("{model}{key}\n"), words);
    }
    assert_one_problem(&format!("{STAND_IN}dims = {{ height = 640 }}\n"), "a stand-in has no file");
    let flags = Flags { models: vec!["models/m.onnx".into()], dims: vec!["height".into()], ..Flags::default() };
    let found = resolve_text("", &flags, &[]).unwrap_err();
    assert!(found.to_string().contains("must be a name and a length from 1 to 16777216, as in height=640"), "{found}");
}

#[test]
fn what_a_file_says_controls_no_terminal() {
    let text = format!("{STAND_IN}pool = \"bo\\u001bth\"\ndims = {{ height =\r\n\t0 }}\n");
    let said = problems(&text).join("\n");
    assert!(said.contains(r#"pool (model 'a') = "bo\u{1b}th""#), "{said}");
    assert!(said.contains("{ height = 0 }"), "{said}");
    assert!(!said.chars().any(|c| c.is_control() && c != '\n'), "{said:?}");
}

#[test]
fn a_folder_of_models_is_followed_and_its_settings_are_checked_as_those_of_a_table() {
    let text = "[server]\nmodels = 'models'\nmodels_poll_ms = 50\n[[pool]]\nname = 'cpu'\n";
    let folder = Folder::new();
    fs::write(folder.path().join("uncork.toml"), text).unwrap();
    let model = folder.path().join("models/net");
    fs::create_dir_all(&model).unwrap();
    let config = resolve(&Flags::default(), [("UNCORK_MAX_LATENCY_MS".into(), "7".into())], folder.path()).unwrap();
    assert!(config.models.is_empty(), "the embedded model serves where there is nothing else");
    let models = config.folder.unwrap();
    assert_eq!((models.path.clone(), models.poll), (folder.path().join("models"), ms(50)));
    let described = models.describe("net", &model).unwrap();
    assert_eq!((described.policy, described.spec.max_latency), (Policy::default(), ms(7)));

    // In a pool its runners are the pool's.
    let triton = "max_batch_size: 16 version_policy { all {} } instance_group [{ count: 3 }] parameters { key: 'a' }";
    fs::write(model.join("config.pbtxt"), triton).unwrap();
    fs::write(model.join("model.toml"), "pool = 'cpu'\nversions = [1, 3]\nmax_queue_rows = 64\n").unwrap();
    let described = models.describe("net", &model).unwrap();
    assert_eq!(described.policy, Policy::Named([1, 3].into()), "model.toml outweighs config.pbtxt");
    assert_eq!((described.spec.max_batch_rows.get(), described.spec.pool.as_deref()), (16, Some("cpu")));
    assert_eq!(described.notes, ["config.pbtxt: without meaning here: parameters"]);
    for (versions, policy) in [("\"all\"", Policy::All), ("2", Policy::Latest(2.try_into().unwrap()))] {
        fs::write(model.join("model.toml"), format!("versions = {versions}\n")).unwrap();
        assert_eq!(models.describe("net", &model).unwrap().policy, policy);
    }

    fs::write(model.join("model.toml"), "name = 'x'\nmax_batch_sise = 2\nversions = \"newest\"\npool = 'gpu'\n")
        .unwrap();
    let error = models.describe("net", &model).unwrap_err();
    for words in [
        "model.toml:1: name: unknown key; the model is named after its folder",
        "model.toml:2: max_batch_sise: unknown key; did you mean 'max_batch_size'?",
        "model.toml:3: versions = \"newest\": must be",
        "model.toml:4: pool = \"gpu\": there is no such pool",
    ] {
        assert!(error.contains(words), "{error}");
    }
    for (text, words) in [
        ("path = 'm.onnx'", "a version's file lies in its folder, as 1/model.onnx"),
        ("version = 1", "a version is named after its folder"),
        ("[[model]]\nmax_batch_size = 2", "without a table: leave the line [[model]] out"),
        ("isolation = 'process'", "others belong under [[model]] of the configuration file"),
        ("http = '127.0.0.1:1'", "belongs under [server] of the configuration file"),
    ] {
        fs::write(model.join("model.toml"), text).unwrap();
        let error = models.describe("net", &model).unwrap_err();
        assert!(error.contains("unknown key; ") && error.contains(words), "{error}");
    }
}

#[test]
fn a_folder_of_models_must_be_one() {
    assert_eq!(
        problems("[server]\nmodels = 'nowhere'\n"),
        ["uncork.toml:2: server.models = \"nowhere\": is not a folder"]
    );
    let [alone] = &problems("[server]\nmodels_poll_ms = 5\n")[..] else { panic!("one problem") };
    assert!(alone.contains("has no effect without 'models'"), "{alone}");
}

#[test]
fn labels_weights_and_a_shadow_name_versions_that_there_are() {
    let two = "[[model]]\nname = 'm'\nsynthetic = { base_ms = 1, per_row_ms = 0 }\n\
               [[model]]\nname = 'm'\nversion = 2\nsynthetic = { base_ms = 1, per_row_ms = 0 }\n";
    let config = resolve_text(
        &format!("{two}labels = {{ stable = 1, canary = '2' }}\nweights = {{ 1 = 90, '2' = 10 }}\n"),
        &Flags::default(),
        &[],
    )
    .unwrap();
    let routes = &config.routes["m"];
    assert_eq!((routes.labels["stable"].as_str(), routes.labels["canary"].as_str()), ("1", "2"));
    assert_eq!((routes.weights["1"], routes.weights["2"], &routes.shadow), (90, 10, &None));
    for (lines, words) in [
        (
            "labels = { a = 3 }",
            "model[1].labels (model 'm') = { a = 3 }: names version 3, which model 'm' does not have",
        ),
        ("weights = { 1 = 0, 2 = 0 }", "must give whole numbers from 0 to 1000000 by version, not all 0"),
        ("weights = { 1 = -1 }", "must give whole numbers"),
        ("weights = { one = 1 }", "must give whole numbers"),
        ("shadow = 'two'", "must be a version, like \"2\""),
        ("shadow = 2\nweights = { 1 = 1, 2 = 1 }", "answers nobody, so it has neither a weight nor a label"),
        ("shadow = 2\nlabels = { b = 2 }", "answers nobody"),
    ] {
        let problems = problems(&format!("{two}{lines}\n"));
        assert!(problems.len() == 1 && problems[0].contains(words), "{lines}: {problems:?}");
    }
    let twice = two.replace("version = 2\n", "version = 2\nshadow = 2\n")
        + "[[model]]\nname = 'm'\nversion = 3\nshadow = 3\n\
                 synthetic = { base_ms = 1, per_row_ms = 0 }\n";
    let alone = "[[model]]\nname = 'm'\nshadow = 1\nsynthetic = { base_ms = 1, per_row_ms = 0 }\n";
    for (text, words) in [
        (twice.as_str(), "is said in another table of model 'm' already"),
        (alone, "model[0].shadow (model 'm') = 1: is the only version that is asked for, and a shadow answers nobody"),
    ] {
        let problems = problems(text);
        assert!(problems.len() == 1 && problems[0].contains(words), "{problems:?}");
    }
}

#[test]
fn a_model_may_be_on_other_servers_of_one_protocol() {
    let of = |upstream: &str| format!("[[model]]\nname = 'churn'\nupstream = {upstream}\n");
    for upstream in [
        "'http://h:8000'",
        "['http://a/v2/models/x', 'https://b:1/p/v2/models/y/versions/2']",
        "'http://h/v1/models/m'",
    ] {
        let config = resolve_text(&of(upstream), &Flags::default(), &[]).unwrap();
        assert!(matches!(config.models[0].source, Source::Upstream(_)), "{upstream}");
    }
    for (upstream, why) in [
        ("'h:8000'", "'h:8000' must begin with http:// or https://"),
        ("[]", "must name a server"),
        ("'http://me:secret@h:8000'", "must not have a user or a password"),
        ("['http://a', 'http://b/v1/models/m']", "must name servers that speak one protocol"),
        ("'http://a'\nmax_memory_mb = 100", "is for models that are processes"),
        ("'http://a'\ndims = { n = 4 }", "the upstream server says which shapes it takes"),
        ("'http://a'\nupstream_token_file = 'none'", "cannot be read"),
    ] {
        assert_one_problem(&of(upstream), why);
    }
    assert_one_problem(&format!("{STAND_IN}upstream_token_file = 'x'\n"), "is for a model with 'upstream'");
}

#[test]
fn a_word_on_the_command_line_is_a_file_a_class_or_an_address_and_may_bring_its_name() {
    let named = |word: &str| {
        let flags = Flags { models: vec![word.into()], ..Flags::default() };
        resolve_text("", &flags, &[])
            .map(|config| config.models[0].name.clone())
            .map_err(|problems| problems.to_string())
    };
    for (word, name) in [
        ("models/m.onnx", "m"),
        ("digits=models/m.onnx", "digits"),
        ("http://h:1/v2/models/churn/versions/3", "churn"),
        ("mine=http://h:1/v2/models/churn", "mine"),
        ("mine=http://h:1", "mine"),
    ] {
        assert_eq!(named(word).as_deref(), Ok(name), "{word}");
    }
    assert!(named("http://h:1").unwrap_err().contains("must end with the model's name there"));
    assert!(named("stats=models/m.onnx").unwrap_err().contains("must not be 'stats'"));
    assert!(named("x=none.onnx").unwrap_err().contains("cannot be opened"));
}
