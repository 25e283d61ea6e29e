//! What `/metrics` says: all that docs/metrics.md promises, nothing that it does not, and sums that come out even.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use uncork::batcher::{RefusalReason, SpanRef};
use uncork::error::Shed;
use uncork::metrics::catalogue::{self, Edges, Kind, Metric};
use uncork::metrics::{Format, Stage, TurnedAway};
use uncork::registry::{BatchSizes, Device, HookFunctions, Lengths, ModelSpec, Registry, Shapes, Source, Terms};
use uncork::tensor::{Tensor, Tensors};

fn spec() -> ModelSpec {
    let n = |n| NonZeroUsize::new(n).unwrap();
    ModelSpec {
        name: "m".into(),
        version: "1".into(),
        source: Source::Synthetic { base: Duration::from_millis(2), per_row: Duration::from_micros(50) },
        shapes: Shapes::default(),
        device: Device::Flex,
        max_latency: Duration::from_secs(20),
        max_batch_rows: n(8),
        allowed_batch_sizes: BatchSizes::rising(vec![4, 8]).unwrap(),
        lengths: Lengths::default(),
        pool: None,
        weight: NonZeroUsize::MIN,
        runners: n(1),
        threads: n(1),
        stuck_after: Duration::from_secs(60),
        hooks: HookFunctions::default(),
        max_queue_rows: n(32),
        max_queue_bytes: n(1 << 20),
    }
}

/// The samples of a text in Prometheus' format, by what stands before the value.
fn samples(text: &str) -> BTreeMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.rsplit_once(' ').unwrap()).map(|(series, value)| (series, value.parse().unwrap())).collect()
}

/// Answers 40 of 41 callers at once or in turn; one does not fit into the queue.
async fn busy() -> String {
    let registry = Registry::load(vec![spec()]).unwrap();
    let model = registry.model("m", None).unwrap();
    let row = || Tensors::one("x", Tensor::new(vec![1, 1], vec![1f32]).unwrap());
    for _ in 0..8 {
        model.infer(row(), Terms::now()).await.unwrap();
    }
    let answers = join_all((0..33).map(|_| model.infer(row(), Terms::now()))).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 1);
    drop(answers);
    registry.metrics().render()
}

#[tokio::test]
async fn every_metric_of_the_catalogue_is_there_with_all_its_labels_and_no_other() {
    let text = busy().await;
    let kinds: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(|line| line.split_once(' ').unwrap())
        .collect();
    let have: BTreeSet<&str> = kinds.keys().filter(|name| name.starts_with("uncork_")).copied().collect();
    assert_eq!(have, catalogue::ALL.iter().map(|metric| metric.name).collect());
    for Metric { name, kind, label, help } in catalogue::ALL {
        assert_eq!(kinds[name], word(kind), "{name}");
        assert!(text.contains(&format!("# HELP {name} {help}\n")), "{name}");
        let (label, values) = label.unwrap_or(("version", &["1"]));
        for value in values.iter().filter(|_| {
            ![
                "uncork_build_info",
                "uncork_http_connections",
                "uncork_repository_broken_versions",
                "uncork_repository_max_models_bytes",
                "uncork_tls_certificate_expires_seconds",
            ]
            .contains(&name)
        }) {
            let labelled = format!("{label}=\"{value}\"");
            assert!(text.lines().any(|line| line.starts_with(name) && line.contains(&labelled)), "{name} {labelled}");
        }
    }
    for name in ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"] {
        assert!(kinds.contains_key(name), "{name}");
    }
    assert_eq!(kinds["process_cpu_seconds_total"], "counter");
}

#[tokio::test]
async fn the_sums_come_out_even() {
    let text = busy().await;
    let samples = samples(&text);
    let of = |series: &str| samples[&*series.replace('{', "{model=\"m\",version=\"1\",").replace(",}", "}")];
    assert_eq!(of("uncork_requests_total{outcome=\"on_time\"}"), 40.0);
    assert_eq!(of("uncork_requests_total{outcome=\"full\"}"), 1.0);
    assert_eq!(of("uncork_request_duration_seconds_count{}"), 40.0);
    assert_eq!(of("uncork_adaptive_batch_size_sum{}"), 40.0);
    let sheds = |reason: RefusalReason| of(&format!("uncork_sheds_total{{reason=\"{}\"}}", reason.label()));
    assert_eq!(RefusalReason::ALL.map(sheds).iter().sum::<f64>(), 1.0);
    assert_eq!(sheds(RefusalReason::RowsBound), 1.0);
    // Stages add up to the duration, to which they are parts.
    let stages =
        Stage::ALL.map(|stage| of(&format!("uncork_stage_duration_seconds_sum{{stage=\"{}\"}}", stage.label())));
    let (sum, whole) = (stages.iter().sum::<f64>(), of("uncork_request_duration_seconds_sum{}"));
    assert!((sum - whole).abs() < 1e-6, "{stages:?} add up to {sum}, not to {whole}");
    assert!(stages[Stage::Execute as usize] >= 40.0 * 0.002, "each request is as long with the model as its batch");
    // Eight alone, padded to four rows each; the other batches are padded to four or to eight.
    assert_eq!(of("uncork_input_elements_total{kind=\"request\"}"), 40.0);
    let padding = of("uncork_input_elements_total{kind=\"padding\"}");
    assert!(padding >= 8.0 * 3.0 && (padding as usize + 40).is_multiple_of(4), "{padding}");
    let batches = of("uncork_batch_duration_seconds_count{}");
    assert_eq!(of("uncork_batch_time_ratio_count{}"), batches, "the warm-up lets the first batch be predicted too");
    assert_eq!(of("uncork_predicted_batch_duration_seconds_count{}"), batches);
    // On a busy machine the line may rise from nothing: what stalls counts to the rows.
    assert!(of("uncork_estimate_base_seconds{}") + of("uncork_estimate_per_row_seconds{}") > 0.0);
    assert_eq!(
        (of("uncork_max_queue_rows{}"), of("uncork_runners{}"), of("uncork_max_batch_rows{}")),
        (32.0, 1.0, 8.0)
    );
}

#[tokio::test]
async fn in_openmetrics_counters_are_named_without_their_ending_and_a_traced_request_is_an_exemplar() {
    let registry = Registry::load(vec![ModelSpec { pool: Some("cpu".into()), ..spec() }]).unwrap();
    let model = registry.model("m", None).unwrap();
    let row = Tensors::one("x", Tensor::new(vec![1, 1], vec![1f32]).unwrap());
    let span = SpanRef { trace: 0xfeed, span: 1 };
    drop(model.infer(row, Terms::now().traced(Some(span))).await.unwrap());
    let text = String::from_utf8(registry.metrics().render_as(Format::OpenMetrics)).unwrap();
    assert!(text.ends_with("\n# EOF\n") && !text.contains("\n\n"), "{text}");
    assert!(
        text.contains("# TYPE uncork_requests counter\n# HELP") || text.contains("# TYPE uncork_requests counter\nunc")
    );
    assert!(text.contains("uncork_requests_total{"));
    let exemplars: Vec<&str> = text.lines().filter(|line| line.contains("} 1 # {trace_id=")).collect();
    assert_eq!(exemplars.len(), 1, "{exemplars:?}");
    assert!(exemplars[0].starts_with("uncork_request_duration_seconds_bucket"), "{exemplars:?}");
    assert!(exemplars[0].contains("# {trace_id=\"0000000000000000000000000000feed\"} 0."), "{exemplars:?}");
    for name in catalogue::OF_POOL {
        assert!(text.contains(&format!("{name}{{model=\"m\",version=\"1\",pool=\"cpu\"}}")), "{name}");
    }
    let build = text.lines().find(|line| line.starts_with("uncork_build_info{")).unwrap();
    assert!(
        ["version", "commit", "target", "features"].iter().all(|label| build.contains(&format!("{label}=\""))),
        "{build}"
    );
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram(_) => "histogram",
    }
}

/// docs/metrics.md, as it has to be.
fn page() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         `GET /metrics` answers in Prometheus' text format, or in OpenMetrics where `Accept` names it, as that of Prometheus does.\n\
         `dashboards/` has dashboards and alerts, and [operating.md](operating.md) says how to read them. This page is made of\n\
         `src/metrics/catalogue.rs` by `UNCORK_WRITE=1 cargo test --release --test library metrics`.\n\n\
         All metrics but `uncork_http_…`, `uncork_turned_away_total`, `uncork_repository_…`, `uncork_stale_files`, `uncork_tls_…` and\n\
         `uncork_build_info` have the labels `model` and `version`. Those of a version begin at 0 when it is loaded anew, also because its settings have changed; `rate` knows that of counters.\n\
         `uncork_build_info` has `version`, `commit` (what `UNCORK_COMMIT` was at the build), `target` and `features`. Where models\n\
         share a pool, `uncork_runner_busy_seconds_total`, `uncork_runners` and `uncork_in_flight_batches` have `pool` too. A\n\
         histogram NAME is the series `NAME_bucket`, `NAME_sum` and `NAME_count`.\n\n\
         | metric | kind | its own label | what it says |\n| --- | --- | --- | --- |\n",
    );
    for Metric { name, kind, label, help } in catalogue::ALL {
        let label = label.map_or(String::new(), |(label, values)| {
            let values: Vec<_> = values.iter().map(|value| format!("`{value}`")).collect();
            format!("`{label}`: {}", values.join(", "))
        });
        writeln!(page, "| `{name}` | {} | {label} | {help} |", word(kind)).unwrap();
    }
    page.push_str(
        "\n## Buckets\n\nThe edges of histograms follow from the caps of the models that are served together.\n\n\
         | of | edges |\n| --- | --- |\n",
    );
    let edges = [
        (
            Edges::Seconds,
            "0.1 ms to 10 s (5 and 7.5 s among them), and for each model `max_latency_ms`, half of it and twice it: so the share of answers within the cap is exact",
        ),
        (Edges::Rows, "1, 2, 4, 8 … rows up to the largest `max_batch_size`, and each model's `max_batch_size`"),
        (Edges::Ratio, "0.5 to 4, close around 1"),
    ];
    for (of, edges) in edges {
        let metrics = catalogue::ALL.iter().filter(|metric| metric.kind == Kind::Histogram(of));
        let names: Vec<_> = metrics.map(|metric| format!("`{}`", metric.name)).collect();
        writeln!(page, "| {} | {edges} |", names.join(", ")).unwrap();
    }
    page.push_str("\n## Outcomes\n\nEach request is counted once in `uncork_requests_total`, when it ends.\n\n| outcome | |\n| --- | --- |\n");
    let outcomes = [
        ("on_time", "answered within `max_latency_ms` of its arrival"),
        ("late", "answered after that"),
        (
            "shed",
            "refused with 503, because the answer would have been late or there was nobody to give it; `uncork_sheds_total` says why",
        ),
        ("full", "refused with 503, because the queue was at its bound"),
        (
            "own_deadline",
            "refused with 503, or 504 over gRPC: alone, too, it takes longer than its caller's own `timeout`, and no longer than `max_latency_ms`",
        ),
        ("shutting_down", "refused with 503, because the server was told to stop"),
        ("invalid", "refused with 400, 413 or another status that blames the request"),
        ("failed", "answered with 500: the model failed, or said what JSON cannot carry (bytes that are no text)"),
        ("departed", "the caller left before the answer"),
    ];
    for (outcome, what) in outcomes {
        writeln!(page, "| `{outcome}` | {what} |").unwrap();
    }
    page.push_str(
        "\nAn objective counts `on_time` as good, and `late`, `shed`, `full` and `failed` as bad. The others break no promise.\n\n## Refusals\n\nThese are the reasons of the outcomes `shed`, `full` and `own_deadline`.\n\n| reason | in `uncork_sheds_total` |\n| --- | --- |\n",
    );
    for reason in Shed::ALL {
        writeln!(page, "| `{}` | {} |", reason.label(), reason.why()).unwrap();
    }
    page.push_str(
        "\n## Turned away\n\nNo model counts these. Each reason is there from the start, before any model is. Probes never count, and a connection\n\
         counts whatever it would have asked.\n\n| reason | in `uncork_turned_away_total` |\n| --- | --- |\n",
    );
    for reason in TurnedAway::ALL {
        writeln!(page, "| `{}` | {} |", reason.label(), reason.why()).unwrap();
    }
    page.push_str("\n## Releases\n\n| reason | in `uncork_releases_total` |\n| --- | --- |\n");
    for reason in uncork::batcher::policy::ReleaseReason::ALL {
        writeln!(page, "| `{}` | {} |", reason.label(), reason.why()).unwrap();
    }
    page.push_str(
        "\n## Stages\n\nThe means of `uncork_stage_duration_seconds` stack up to the mean of `uncork_request_duration_seconds`.\n\n\
         | stage | |\n| --- | --- |\n\
         | `receive` | from the request's head to its last byte |\n\
         | `decode` | from bytes to tensors, unpacking included |\n\
         | `queue` | until the release of the batch; of the first one where a request was split |\n\
         | `assemble` | joining the batch's requests, padding, splitting the outputs |\n\
         | `execute` | the model; where a request was split, from its first batch on |\n\
         | `handover` | between threads: to the runner, and back to the caller's task |\n\
         | `encode` | from outputs to the answer |\n\n\
         ## The process\n\n`process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_virtual_memory_bytes`, \
         `process_virtual_memory_max_bytes`,\n`process_open_fds`, `process_max_fds`, `process_threads` and \
         `process_start_time_seconds`, as Prometheus' client libraries name them. They are told on Linux.\n\n\
         ## Traces and native histograms\n\n\
         In OpenMetrics, each bucket of `uncork_request_duration_seconds` has an exemplar: the `trace_id` of the latest traced\n\
         request in it. Prometheus keeps exemplars with `--enable-feature=exemplar-storage`. Grafana draws them over the panel *Latency*,\n\
         and each leads to its trace.\n\n\
         Native histograms have narrower buckets: each is 9 % wider than the one before, from a microsecond on. They exist in Protocol\n\
         Buffers only, which Prometheus asks for with `--enable-feature=native-histograms`. It then leaves out the classic buckets, which\n\
         the dashboards and alerts here ask for. `scrape_classic_histograms: true` in its `scrape_configs` keeps both; Prometheus 3 calls\n\
         it `always_scrape_classic_histograms`. A quantile is `histogram_quantile(0.99, rate(uncork_request_duration_seconds[5m]))`.\n\n\
         ## Cost\n\n`cargo bench --bench recording` measures what recording costs a request. [performance.md](performance.md) has the\n\
         figure.\n",
    );
    page
}

#[test]
fn the_page_on_metrics_is_written_from_the_catalogue() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    if std::env::var_os("UNCORK_WRITE").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let have = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        have == page(),
        "docs/metrics.md is not up to date: UNCORK_WRITE=1 cargo test --release --test library metrics writes it"
    );
}
