//! Models as the server sees them: splitting, checking, counting, versions.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use uncork::batcher;
use uncork::error::{Error, Outcome, Shed};
use uncork::registry::{
    BatchSizes, Caps, Device, HookFunctions, Lengths, ModelSpec, Registry, Shapes, Source, Terms, Window,
};
use uncork::runner::synthetic::Synthetic;
use uncork::runner::{Remote, Runner, RunnerError, Signature, TensorSpec};
use uncork::telemetry::Tracer;
use uncork::tensor::{Data, DataType, Tensor, Tensors};

fn stand_in(version: &str) -> ModelSpec {
    let n = |n| NonZeroUsize::new(n).unwrap();
    ModelSpec {
        name: "m".into(),
        version: version.into(),
        source: Source::Synthetic { base: Duration::ZERO, per_row: Duration::ZERO },
        shapes: Shapes::default(),
        device: Device::Flex,
        max_latency: Duration::from_secs(20),
        max_batch_rows: n(128),
        allowed_batch_sizes: BatchSizes::default(),
        lengths: Lengths::default(),
        pool: None,
        weight: NonZeroUsize::MIN,
        runners: n(2),
        threads: n(1),
        stuck_after: Duration::from_secs(60),
        hooks: HookFunctions::default(),
        max_queue_rows: n(1000),
        max_queue_bytes: n(1 << 20),
    }
}

/// Rows from `first` on, each with its number.
fn rows(first: usize, count: usize) -> Tensors {
    let data: Vec<f32> = (first..first + count).map(|i| i as f32).collect();
    Tensors::one("x", Tensor::new(vec![count, 1], data).unwrap())
}

fn answer_to(first: usize, count: usize) -> Data {
    Data::Fp32((first..first + count).map(|i| 2.0 * i as f32 + 1.0).collect())
}

#[tokio::test]
async fn a_request_of_more_rows_than_a_batch_is_split_and_its_answer_joined_in_order() {
    let registry = Registry::load(vec![stand_in("1")]).unwrap();
    let model = registry.model("m", None).unwrap();
    for count in [127, 128, 129, 300, 512] {
        let answer = model.infer(rows(0, count), Terms::now()).await.unwrap();
        assert_eq!(answer.outputs.get("y").unwrap().data(), &answer_to(0, count));
        assert!(answer.batch_rows <= 128, "{} rows rode in one batch", answer.batch_rows);
    }
    let too_large = model.infer(rows(0, 1001), Terms::now()).await.unwrap_err();
    assert_eq!(too_large, Error::Refused(batcher::Error::TooLarge { size: 1001, bound: 1000, unit: "rows" }));
    let short = ModelSpec { max_queue_bytes: NonZeroUsize::new(100).unwrap(), ..stand_in("1") };
    let registry = Registry::load(vec![short]).unwrap();
    let too_large = registry.model("m", None).unwrap().infer(rows(0, 26), Terms::now()).await.unwrap_err();
    assert_eq!(too_large, Error::Refused(batcher::Error::TooLarge { size: 104, bound: 100, unit: "bytes" }));
}

/// The times told only of the last part: it waited while the others ran.
#[tokio::test]
async fn a_request_that_was_split_tells_what_its_caller_has_waited_for() {
    let source = Source::Synthetic { base: Duration::from_millis(40), per_row: Duration::ZERO };
    let spec = ModelSpec {
        source,
        max_batch_rows: NonZeroUsize::new(4).unwrap(),
        runners: NonZeroUsize::MIN,
        ..stand_in("1")
    };
    let registry = Registry::load(vec![spec]).unwrap();
    let model = registry.model("m", None).unwrap();
    let begin = tokio::time::Instant::now();
    // Three batches of 40 ms on one runner.
    let answer = model.infer(rows(0, 10), Terms::now()).await.unwrap();
    let took = begin.elapsed();
    assert!(answer.batch >= Duration::from_millis(120), "{:?} of {took:?}", answer.batch);
    assert!(answer.queue + answer.batch <= took, "{:?} and {:?} of {took:?}", answer.queue, answer.batch);
    assert_eq!(answer.batch_rows, 4);
    drop(answer);
    // Stages add up as they do for all others, and the model takes most of it.
    let text = registry.metrics().render();
    let of = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name} in {text}"));
        line.trim().parse().unwrap()
    };
    let stage =
        |stage| of(&format!("uncork_stage_duration_seconds_sum{{model=\"m\",version=\"1\",stage=\"{stage}\"}}"));
    let stages = ["receive", "decode", "queue", "assemble", "execute", "handover", "encode"].map(stage);
    let whole = of("uncork_request_duration_seconds_sum{model=\"m\",version=\"1\"}");
    assert!((stages.iter().sum::<f64>() - whole).abs() < 1e-6 && stages[4] >= 0.12, "{stages:?} of {whole}");
}

/// It was what the process grew by: the first of equal models had hundreds of times as much as the next.
#[tokio::test]
async fn equal_models_take_equal_memory_however_and_beside_whomever_they_are_loaded() {
    let spec = |i: usize| ModelSpec { name: format!("m{i}"), ..served("lenet.onnx") };
    let registry = Registry::load((0..5).map(spec).collect()).unwrap();
    let at_once = (5..10).map(|i| {
        let registry = registry.clone();
        tokio::task::spawn_blocking(move || registry.add(spec(i)))
    });
    join_all(at_once).await.into_iter().for_each(|added| added.expect("no panic").unwrap());
    let taken: Vec<u64> = registry.models().iter().map(|model| model.memory()).collect();
    assert!(taken.len() == 10 && taken.iter().all(|bytes| *bytes == taken[0]), "{taken:?}");
    // Its weights are all but the whole of its file, and there are two runners of 128 rows of 28·28 pixels and 6 planes of as many.
    let file = std::fs::metadata(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/lenet.onnx")).unwrap().len();
    let least = file * 9 / 10 + 2 * 128 * 4 * (7 * 28 * 28);
    assert!((least..3 * least).contains(&taken[0]), "{} and {least}", taken[0]);
    let text = registry.metrics().render();
    assert!(
        text.contains(&format!("uncork_model_memory_bytes{{model=\"m3\",version=\"1\"}} {}\n", taken[0])),
        "{text}"
    );
}

#[tokio::test]
async fn a_runner_of_the_program_s_own_that_panics_fails_its_batch_and_answers_the_next() {
    /// Panics at 666.
    struct Touchy(Synthetic);
    impl Runner for Touchy {
        fn signature(&self) -> &Signature {
            self.0.signature()
        }
        fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
            let Some(Data::Fp32(numbers)) = batch.get("x").map(Tensor::data) else { panic!("it was checked") };
            assert!(!numbers.contains(&666.0), "as it was told to");
            self.0.run(batch)
        }
    }
    let source = Source::runners("touchy", |_| Ok(Touchy(Synthetic::new(Duration::ZERO, Duration::ZERO))));
    let registry = Registry::load(vec![ModelSpec { source, runners: NonZeroUsize::MIN, ..stand_in("1") }]).unwrap();
    let model = registry.model("m", None).unwrap();
    for _ in 0..3 {
        assert_eq!(model.infer(rows(666, 1), Terms::now()).await.unwrap_err(), Error::ModelFailed);
        let answer = model.infer(rows(1, 2), Terms::now()).await.unwrap();
        assert_eq!(answer.outputs.get("y").unwrap().data(), &answer_to(1, 2));
    }
    assert_eq!(model.stuck(), None);
}

#[tokio::test]
async fn a_token_that_the_model_does_not_know_fails_its_own_request_and_no_neighbour() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/zoo/textcnn_20_new.onnx");
    let one = NonZeroUsize::MIN;
    let spec = ModelSpec { source: Source::Onnx(path.into()), runners: one, ..stand_in("1") };
    let registry = Registry::load(vec![spec]).unwrap();
    let model = registry.model("m", None).unwrap();
    let (name, length) = (&model.signature().inputs[0].name, model.signature().inputs[0].dims[0].unwrap_or(12));
    let sentence = |token: i64| {
        let tokens: Vec<i64> = (0..length as i64).map(|i| if i == 3 { token } else { i }).collect();
        Tensors::one(name.clone(), Tensor::new(vec![1, length], tokens).unwrap())
    };
    let mut alone = Vec::new();
    for i in 0..8 {
        alone.push(model.infer(sentence(i), Terms::now()).await.unwrap().outputs);
    }
    let tokens = (0..32).map(|i| if i == 13 { 1_000_000 } else { i % 8 });
    let answers = join_all(tokens.clone().map(|token| model.infer(sentence(token), Terms::now()))).await;
    let mut most_rows = 0;
    for (answer, token) in answers.into_iter().zip(tokens) {
        if token == 1_000_000 {
            let Err(Error::Invalid(why)) = answer else { panic!("{answer:?}") };
            assert!(why.contains("holds 1000000, which is out of range"), "{why}");
            continue;
        }
        let answer = answer.unwrap();
        most_rows = most_rows.max(answer.batch_rows);
        let pairs = answer.outputs.iter().zip(alone[token as usize].iter());
        for ((_, have), (_, want)) in pairs {
            let (Data::Fp32(have), Data::Fp32(want)) = (have.data(), want.data()) else { panic!("floats") };
            let is_close = have.iter().zip(want).all(|(a, b)| (a - b).abs() <= 1e-5 * (1.0 + b.abs()));
            assert!(is_close, "{have:?} instead of {want:?}");
        }
    }
    assert!(most_rows > 16, "they shared batches");
    // It never met a batch: 8 rows went alone, and 31 together.
    let rows: usize = model.snapshot(Window::TwoMinutes).releases.iter().map(|(_, release)| release.rows).sum();
    assert_eq!(rows, 8 + 31);
    let text = registry.metrics().render();
    assert!(text.contains(r#"uncork_requests_total{model="m",version="1",outcome="invalid"} 1"#), "{text}");
    assert!(text.contains(r#"uncork_requests_total{model="m",version="1",outcome="failed"} 0"#), "{text}");
}

#[tokio::test]
async fn a_thousand_requests_of_different_sizes_each_get_their_own_rows_back() {
    let registry = Registry::load(vec![stand_in("1")]).unwrap();
    let model = &registry.model("m", None).unwrap();
    let requests = (0..1000).map(|i| {
        let (first, count) = (i * 1000, 1 + i * 7 % 5);
        async move {
            // The queue holds 1,000 rows: what is refused for that asks again.
            loop {
                match model.infer(rows(first, count), Terms::now()).await {
                    Ok(answer) => return assert_eq!(answer.outputs.get("y").unwrap().data(), &answer_to(first, count)),
                    Err(Error::Refused(batcher::Error::Full { .. })) => tokio::task::yield_now().await,
                    Err(other) => panic!("request {i}: {other}"),
                }
            }
        }
    });
    join_all(requests).await;
}

#[tokio::test]
async fn every_request_is_counted_once_however_it_ends() {
    let registry = Registry::load(vec![stand_in("1")]).unwrap();
    let model = registry.model("m", None).unwrap();
    for _ in 0..3 {
        model.infer(rows(0, 300), Terms::now()).await.unwrap();
    }
    let wrong = Tensors::one("z", Tensor::new(vec![1, 1], vec![0.0f32]).unwrap());
    assert!(matches!(model.infer(wrong, Terms::now()).await, Err(Error::Invalid(_))));
    let hopeless = model.infer(rows(0, 1), Terms::now().within(Duration::ZERO)).await;
    assert!(matches!(hopeless, Err(Error::Refused(batcher::Error::Late { .. }))), "{hopeless:?}");
    drop(model.infer(rows(0, 1), Terms::now())); // never begun, so never there
    registry.drain().await;
    assert!(!registry.is_ready());
    assert_eq!(model.infer(rows(0, 1), Terms::now()).await.unwrap_err(), Error::Refused(batcher::Error::ShuttingDown));
    let text = registry.metrics().render();
    for (outcome, count) in [
        ("on_time", 3),
        ("invalid", 1),
        ("own_deadline", 1),
        ("shutting_down", 1),
        ("shed", 0),
        ("departed", 0),
        ("late", 0),
    ] {
        let line = format!(r#"uncork_requests_total{{model="m",version="1",outcome="{outcome}"}} {count}"#);
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
    let answered = r#"uncork_request_duration_seconds_count{model="m",version="1"} 3"#;
    assert!(text.contains(answered), "{answered} is not in\n{text}");
    let rows_run = r#"uncork_adaptive_batch_size_sum{model="m",version="1"} 900"#;
    assert!(text.contains(rows_run), "{rows_run} is not in\n{text}");
}

#[tokio::test]
async fn a_request_that_is_late_in_all_its_parts_is_never_told_when_to_ask_again() {
    let source = Source::Synthetic { base: Duration::from_millis(30), per_row: Duration::ZERO };
    let spec = ModelSpec::new("m", source, Caps::new(Duration::from_millis(100), 8));
    let registry = Registry::load(vec![spec]).unwrap();
    let model = registry.model("m", None).unwrap();
    // One a second goes on though it is expected to be late.
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_millis(1200) {
        let refused = model.infer(rows(0, 64), Terms::now()).await.unwrap_err();
        let is_told = matches!(refused, Error::Refused(batcher::Error::Late { retry_after: None, .. }));
        assert!(is_told, "{refused:?}");
        tokio::task::yield_now().await;
    }
    let text = registry.metrics().render();
    let releases = text.lines().filter(|line| line.starts_with("uncork_releases_total{"));
    assert!(releases.clone().any(|line| !line.ends_with(" 0")), "one went on: {text}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_the_cap_is_counted_as_late() {
    let registry = Registry::load(vec![stand_in("1")]).unwrap();
    let model = registry.model("m", None).unwrap();
    let mut answer = Box::pin(model.infer(rows(0, 1), Terms::now()));
    assert!(answer.as_mut().now_or_never().is_none());
    tokio::task::yield_now().await; // its batch is released
    tokio::time::advance(Duration::from_secs(21)).await;
    tokio::time::resume(); // a stopped clock would go on to when the batch is given up
    answer.await.unwrap();
    let text = registry.metrics().render();
    let line = r#"uncork_requests_total{model="m",version="1",outcome="late"} 1"#;
    assert!(text.contains(line), "{line} is not in\n{text}");
}

#[tokio::test]
async fn versions_are_numbers_and_the_highest_answers_where_none_is_named() {
    let registry = Registry::load(vec![stand_in("10"), stand_in("009"), stand_in("100")]).unwrap();
    assert_eq!(registry.versions("m"), ["009", "10", "100"]);
    assert_eq!(registry.model("m", None).unwrap().version(), "100");
    assert_eq!(registry.model("m", Some("009")).unwrap().version(), "009");
    let unknown = registry.model("m", Some("11")).unwrap_err().to_string();
    assert_eq!(unknown, "model 'm' has no version '11'; it has '009', '10', '100'");
    assert_eq!(registry.model("n", None).unwrap_err().to_string(), "unknown model 'n'; served here: 'm'");
}

/// Far longer than anything here takes: a wait that reaches it has failed.
const HANGS: Duration = Duration::from_secs(20);

async fn add(registry: &Registry, spec: ModelSpec) {
    let registry = registry.clone();
    tokio::task::spawn_blocking(move || registry.add(spec)).await.unwrap().unwrap();
}

/// Returns when `version` of `m` has no series left.
async fn forgotten(registry: &Registry, version: &str) {
    let series = format!("model=\"m\",version=\"{version}\"");
    let gone = async {
        while registry.metrics().render().contains(&series) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(HANGS, gone).await.expect("the series go with the model");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_comes_and_another_goes_while_requests_are_answered_and_none_is_lost() {
    let registry = tokio::task::spawn_blocking(|| Registry::load(vec![stand_in("1")])).await.unwrap().unwrap();
    let callers = (0..16).map(|caller| {
        let registry = registry.clone();
        tokio::spawn(async move {
            let mut answered = 0;
            loop {
                let model = registry.model("m", None).unwrap();
                // Whoever has found a model is answered by it, though it be removed meanwhile.
                tokio::task::yield_now().await;
                let answer = model.infer(rows(caller, 3), Terms::now()).await.unwrap();
                assert_eq!(answer.outputs.get("y").unwrap().data(), &answer_to(caller, 3));
                answered += 1;
                if model.version() == "9" && answered > 20 {
                    return answered;
                }
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    for version in 2..=9 {
        add(&registry, stand_in(&version.to_string())).await;
        let old = (version - 1).to_string();
        tokio::time::timeout(HANGS, registry.remove("m", &old)).await.expect("it ends").unwrap();
        let asked = registry.model("m", Some(&old)).unwrap_err();
        assert!(matches!(asked, Error::UnknownVersion { .. }), "{asked}");
        forgotten(&registry, &old).await;
    }
    for caller in callers {
        assert!(tokio::time::timeout(HANGS, caller).await.expect("answers").unwrap() > 20);
    }
    assert_eq!(registry.versions("m"), ["9"]);
}

#[tokio::test]
async fn a_model_is_added_once_and_a_pool_takes_it_in() {
    let of_pool = |version| ModelSpec { pool: Some("p".into()), ..stand_in(version) };
    let registry = Registry::load(vec![of_pool("1")]).unwrap();
    registry.add(of_pool("2")).unwrap();
    let twice = registry.add(of_pool("2")).unwrap_err().to_string();
    assert_eq!(twice, "model 'm': version 2 is there already");
    assert!(registry.is_ready());
    for version in ["1", "2"] {
        let model = registry.model("m", Some(version)).unwrap();
        assert_eq!(
            model.infer(rows(0, 2), Terms::now()).await.unwrap().outputs.get("y").unwrap().data(),
            &answer_to(0, 2)
        );
    }
    registry.remove("m", "1").await.unwrap();
    let model = registry.model("m", None).unwrap();
    assert_eq!(model.infer(rows(0, 2), Terms::now()).await.unwrap().outputs.get("y").unwrap().data(), &answer_to(0, 2));
    assert!(matches!(registry.remove("m", "1").await, Err(Error::UnknownVersion { .. })));
}

/// Who failed was "being loaded" for ever: the registry was never ready, and another one of that name could not come.
#[tokio::test]
async fn what_could_not_be_loaded_is_not_waited_for_and_may_come_again() {
    let panics = || Source::runners("own", |_| -> Result<Synthetic, RunnerError> { panic!("not today") });
    let (registry, opening) = Registry::open(vec![ModelSpec { source: panics(), ..stand_in("1") }], Tracer::off());
    let errors = opening.load().unwrap_err().to_string();
    assert!(errors.contains("its code panicked"), "{errors}");
    assert!(matches!(registry.model("m", None), Err(Error::UnknownModel { .. })), "{:?}", registry.model("m", None));
    assert!(registry.add(ModelSpec { source: panics(), ..stand_in("1") }).is_err());
    assert_eq!(registry.arriving(), []);
    registry.add(stand_in("1")).unwrap();
    assert!(registry.is_ready());
    let (registry, opening) = Registry::open(vec![stand_in("1")], Tracer::off());
    drop(opening);
    assert_eq!(registry.arriving(), []);
}

/// Each was a line of the log: whoever can have a row fail could fill the disk.
#[tokio::test]
async fn requests_that_fail_fill_no_log() {
    #[derive(Debug)]
    struct Failing(Synthetic);
    impl Runner for Failing {
        fn signature(&self) -> &Signature {
            self.0.signature()
        }
        fn run(&mut self, _batch: Tensors) -> Result<Tensors, RunnerError> {
            Err(RunnerError::Row("not today".into()))
        }
        fn rehearse(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
            self.0.run(batch)
        }
    }
    let build = |_| Ok(Failing(Synthetic::new(Duration::ZERO, Duration::ZERO)));
    let registry = Registry::load(vec![ModelSpec { source: Source::runners("own", build), ..stand_in("1") }]).unwrap();
    let model = registry.model("m", None).unwrap();
    /// The lines of the log.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let lines = Lines::default();
    let to = lines.clone();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || to.clone()).finish();
    let _here = tracing::subscriber::set_default(log);
    for row in 0..300 {
        assert!(matches!(model.infer(rows(row, 1), Terms::now()).await, Err(Error::ModelFailed)));
    }
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let told = text.matches("a request failed: not today").count();
    assert!((1..100).contains(&told), "{told} of 300: {text}");
}

#[test]
#[should_panic(expected = "Tokio")]
fn outside_a_runtime_it_is_the_runtime_that_is_missing() {
    let _ = Registry::load(vec![stand_in("1")]);
}

/// They stand in paths and in labels; two of a name and a version silently became one.
#[tokio::test]
async fn names_are_those_that_a_configuration_may_have_versions_are_digits_and_each_is_there_once() {
    for (name, version, words) in [
        ("", "1", "a model's name must be letters"),
        ("a/b", "1", "model 'a/b': a model's name"),
        ("..", "1", "a model's name"),
        ("\n", "1", "a model's name"),
        ("m", "", "must be a whole number"),
        ("m", "v1", "version 'v1' must be a whole number"),
        ("m", "a/b", "must be a whole number"),
    ] {
        let spec = || ModelSpec { name: name.into(), ..stand_in(version) };
        let (registry, opening) = Registry::open(vec![spec()], Tracer::off());
        for refused in [opening.load().unwrap_err().to_string(), registry.add(spec()).unwrap_err().to_string()] {
            assert!(refused.contains(words), "{refused}");
        }
        assert_eq!(registry.models().len(), 0);
    }
    let twice = Registry::load(vec![stand_in("1"), stand_in("1")]).unwrap_err().to_string();
    assert!(twice.contains("version 1 is there twice"), "{twice}");
}

#[tokio::test]
async fn what_a_hook_has_no_room_for_at_any_time_is_not_asked_for_again() {
    let hooks = HookFunctions::default().prepare(vec![TensorSpec::new("x", DataType::Fp32, vec![Some(1)])], Ok);
    let small = ModelSpec { hooks, max_queue_rows: NonZeroUsize::new(4).unwrap(), ..stand_in("1") };
    let registry = Registry::load(vec![small]).unwrap();
    let refused = registry.model("m", None).unwrap().infer(rows(0, 9), Terms::now()).await.unwrap_err();
    assert!(refused.to_string().contains("9 rows"), "{refused}");
    assert_eq!(refused.retry_after(), None, "{refused}");
}

#[tokio::test]
async fn every_model_that_cannot_be_loaded_is_named() {
    let missing = |name: &str| ModelSpec {
        name: name.into(),
        source: Source::Onnx(format!("{name}.onnx").into()),
        ..stand_in("1")
    };
    let errors = Registry::load(vec![missing("a"), stand_in("1"), missing("b")]).unwrap_err();
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].starts_with("model 'a': a.onnx: cannot be read: "), "{texts:?}");
}

/// Numbers as texts, in front of the stand-in and behind it.
fn texts() -> HookFunctions {
    let texts = |tensors: &Tensors, name: &str| match tensors.get(name).map(Tensor::data) {
        Some(Data::Bytes(texts)) => texts.clone(),
        other => panic!("{other:?}"),
    };
    let spec = |name: &str| vec![TensorSpec::new(name, DataType::Bytes, vec![])];
    let read = move |request: Tensors| {
        if texts(&request, "text") == [b"wide"] {
            return Ok(Tensors::one("x", Tensor::new(vec![1, 2], vec![0f32; 2]).unwrap()));
        }
        let parse = |text: Vec<u8>| match &*text {
            b"panic" => panic!("as it was told to"),
            b"none" => Ok(None),
            digits => String::from_utf8_lossy(digits).parse::<f32>().map(Some),
        };
        let numbers: Result<Vec<_>, _> = texts(&request, "text").into_iter().map(parse).collect();
        let numbers = numbers.map_err(|error| RunnerError::Input(format!("it is no number: {error}")))?;
        let numbers: Vec<f32> = numbers.into_iter().flatten().collect();
        Ok(Tensors::one("x", Tensor::new(vec![numbers.len(), 1], numbers).unwrap()))
    };
    let write = |outputs: Tensors| {
        let Some(Data::Fp32(numbers)) = outputs.get("y").map(Tensor::data) else { panic!("it was checked") };
        let texts: Vec<Vec<u8>> = numbers.iter().map(|number| number.to_string().into_bytes()).collect();
        // One that says more rows than it was given breaks its promise.
        let rows = if numbers[0] == 15.0 { [texts.clone(), texts].concat() } else { texts };
        Ok(Tensors::one("said", Tensor::new(vec![rows.len()], rows).unwrap()))
    };
    HookFunctions::default().prepare(spec("text"), read).finish(spec("said"), write)
}

#[tokio::test]
async fn functions_in_front_of_a_model_and_behind_it_are_a_caller_s_alone() {
    let registry = Registry::load(vec![ModelSpec { hooks: texts(), ..stand_in("1") }]).unwrap();
    let model = registry.model("m", None).unwrap();
    let names = |specs: &[TensorSpec]| specs.iter().map(|spec| spec.name.to_string()).collect::<Vec<_>>();
    assert_eq!(
        (names(&model.signature().inputs), names(&model.signature().outputs)),
        (vec!["text".into()], vec!["said".into()])
    );
    let ask = async |texts: &[&str]| {
        let texts: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
        let request = Tensors::one("text", Tensor::new(vec![texts.len()], texts).unwrap());
        let answer = model.infer(request, Terms::now()).await?;
        match answer.outputs.get("said").unwrap().data() {
            Data::Bytes(said) => {
                Ok(said.iter().map(|said| String::from_utf8(said.clone()).unwrap()).collect::<Vec<_>>())
            }
            other => panic!("{other:?}"),
        }
    };
    let invalid = |why: &str| Err(Error::Invalid(format!("the model does not take these inputs: {why}")));
    // The stand-in would take a row of two numbers for one.
    let (good, bad, panics, short, long, wide) = tokio::join!(
        ask(&["1", "2.5"]),
        ask(&["3", "x"]),
        ask(&["panic"]),
        ask(&["1", "none"]),
        ask(&["7"]),
        ask(&["wide"])
    );
    assert_eq!(good, Ok(vec!["3".into(), "6".into()]));
    assert_eq!(bad, invalid("it is no number: invalid float literal"));
    assert!([panics, short, long, wide].iter().all(|told| *told == Err(Error::ModelFailed)));
    // A tensor that the model takes, and the function in front of it does not.
    assert!(matches!(model.infer(rows(0, 1), Terms::now()).await, Err(Error::Invalid(_))));
}

#[tokio::test]
async fn functions_in_front_of_a_model_run_while_others_do() {
    // Neither returns before both are in it.
    let both = Arc::new(Barrier::new(2));
    let inputs = vec![TensorSpec::new("x", DataType::Fp32, vec![Some(1)])];
    let meet = move |request: Tensors| {
        both.wait();
        Ok(request)
    };
    let hooks = HookFunctions::default().prepare(inputs, meet);
    let registry = Registry::load(vec![ModelSpec { hooks, ..stand_in("1") }]).unwrap();
    let model = registry.model("m", None).unwrap();
    let (one, other) = tokio::join!(model.infer(rows(0, 1), Terms::now()), model.infer(rows(1, 1), Terms::now()));
    assert_eq!(one.unwrap().outputs.get("y").unwrap().data(), &answer_to(0, 1));
    assert_eq!(other.unwrap().outputs.get("y").unwrap().data(), &answer_to(1, 1));
}

#[tokio::test]
async fn a_function_that_hangs_keeps_its_place_and_no_more_than_may_wait_are_in_it() {
    let (gate, begun) = (Arc::new(Barrier::new(2)), Arc::new(AtomicUsize::new(0)));
    let inputs = vec![TensorSpec::new("x", DataType::Fp32, vec![Some(1)])];
    let (hangs, count) = (Arc::clone(&gate), Arc::clone(&begun));
    let hooks = HookFunctions::default().prepare(inputs, move |request| {
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            hangs.wait();
        }
        Ok(request)
    });
    let (rows_most, short) = (NonZeroUsize::MIN, Duration::from_millis(50));
    let bounds =
        ModelSpec { max_batch_rows: rows_most, max_queue_rows: rows_most, max_latency: short, ..stand_in("1") };
    let registry = Registry::load(vec![ModelSpec { hooks, ..bounds }]).unwrap();
    let model = registry.model("m", None).unwrap();
    let ask = || model.infer(rows(0, 1), Terms::now());
    // A busy machine may begin it too late for the first.
    while begun.load(Ordering::SeqCst) == 0 {
        assert!(matches!(ask().await, Err(Error::Refused(_))));
    }
    // Nobody waits for it any more, and it still runs.
    assert!(matches!(ask().await, Err(Error::Refused(batcher::Error::Full { .. }))));
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    tokio::task::spawn_blocking(move || gate.wait()).await.unwrap();
    while matches!(ask().await, Err(Error::Refused(batcher::Error::Full { .. }))) {
        tokio::task::yield_now().await;
    }
    assert!(begun.load(Ordering::SeqCst) >= 2, "there is room again");
}

/// Sums over the outcomes that are refusals, and over all reasons.
fn refusals(registry: &Registry) -> (f64, f64) {
    let text = registry.metrics().render();
    let sum = |metric: &str, label: &str, values: &[&str]| -> f64 {
        let line = |value: &&str| format!("{metric}{{model=\"m\",version=\"1\",{label}=\"{value}\"}} ");
        let counts = values.iter().map(|value| text.lines().find_map(|l| l.strip_prefix(&*line(value))).expect(value));
        counts.map(|count| count.parse::<f64>().unwrap()).sum()
    };
    let outcomes = ["shed", "full", "own_deadline"];
    let reasons = Shed::ALL.map(Shed::label);
    (sum("uncork_requests_total", "outcome", &outcomes), sum("uncork_sheds_total", "reason", &reasons))
}

#[tokio::test]
async fn what_hooks_refuse_has_a_reason_too_and_the_journal_tells_it() {
    let (gate, inputs) = (Arc::new(Barrier::new(2)), vec![TensorSpec::new("x", DataType::Fp32, vec![Some(1)])]);
    let hangs = Arc::clone(&gate);
    let hooks = HookFunctions::default().prepare(inputs, move |request| {
        hangs.wait();
        Ok(request)
    });
    let one = NonZeroUsize::MIN;
    let bounds =
        ModelSpec { max_batch_rows: one, max_queue_rows: one, max_latency: Duration::from_secs(2), ..stand_in("1") };
    let registry = Registry::load(vec![ModelSpec { hooks, ..bounds }]).unwrap();
    let model = registry.model("m", None).unwrap();
    let ask = |within: u64| model.infer(rows(0, 1), Terms::now().within(Duration::from_millis(within)));
    let (late, full) = tokio::join!(ask(300), ask(300));
    assert!(matches!(late, Err(Error::Refused(batcher::Error::Late { .. }))), "{late:?}");
    assert!(matches!(full, Err(Error::Refused(batcher::Error::Full { .. }))), "{full:?}");
    assert_eq!(refusals(&registry), (2.0, 2.0));
    let told = model.snapshot(Window::TwoMinutes);
    assert!(told.refusals.iter().all(|(_, refusal)| refusal.reason == Shed::Hook), "{:?}", told.refusals);
    assert_eq!(told.columns.iter().map(|column| column.refused).sum::<u32>(), 1, "a caller's own time says nothing");
    tokio::task::spawn_blocking(move || gate.wait()).await.unwrap();
}

#[tokio::test]
async fn a_time_of_a_caller_s_own_that_is_too_short_is_no_refusal_of_the_load_s() {
    let registry = Registry::load(vec![stand_in("1")]).unwrap();
    let model = registry.model("m", None).unwrap();
    for _ in 0..3 {
        let hopeless = model.infer(rows(0, 1), Terms::now().within(Duration::from_micros(1))).await;
        assert!(matches!(hopeless, Err(Error::Refused(batcher::Error::Late { .. }))), "{hopeless:?}");
    }
    let of = |wanted: Outcome| model.totals().into_iter().find(|(outcome, _)| *outcome == wanted).map(|(_, n)| n);
    assert_eq!((of(Outcome::OwnDeadline), of(Outcome::Shed)), (Some(3), Some(0)));
    assert_eq!(refusals(&registry), (3.0, 3.0));
    let told = model.snapshot(Window::TwoMinutes);
    assert_eq!(told.columns.iter().map(|column| column.refused).sum::<u32>(), 0, "they do not count against it");
    assert_eq!(told.refusals.iter().map(|(_, refusal)| refusal.requests).sum::<usize>(), 3, "and are told");
}

/// With a cap of 100 ms, callers who wanted answers in 90 were refused by half, and no objective saw it.
#[tokio::test]
async fn who_has_a_time_of_his_own_that_an_idle_server_keeps_is_refused_by_the_load() {
    let source = Source::Synthetic { base: Duration::from_millis(40), per_row: Duration::ZERO };
    let one = NonZeroUsize::MIN;
    let slow =
        ModelSpec { source, max_batch_rows: one, runners: one, max_latency: Duration::from_secs(5), ..stand_in("1") };
    let registry = Registry::load(vec![slow]).unwrap();
    let model = registry.model("m", None).unwrap();
    let ask = |_| model.infer(rows(0, 1), Terms::now().within(Duration::from_millis(400)));
    let refused = join_all((0..40).map(ask)).await.into_iter().filter(Result::is_err).count() as u64;
    let of = |wanted: Outcome| model.totals().into_iter().find(|(outcome, _)| *outcome == wanted).map(|(_, n)| n);
    assert!(refused > 10, "{refused}");
    assert_eq!((of(Outcome::Shed), of(Outcome::OwnDeadline)), (Some(refused), Some(0)));
}

#[tokio::test]
async fn a_model_is_loaded_when_each_of_its_runners_is_built() {
    let built = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&built);
    let source = Source::runners("counted", move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(Synthetic::new(Duration::ZERO, Duration::ZERO))
    });
    let _registry = Registry::load(vec![ModelSpec { source, ..stand_in("1") }]).unwrap();
    assert_eq!(built.load(Ordering::Relaxed), 1 + 2, "one for its signature, and two that serve");
}

#[tokio::test]
async fn a_runner_that_cannot_be_built_is_told_when_its_model_is_loaded() {
    let fails_at = |fatal: usize, panics: bool| {
        let built = AtomicUsize::new(0);
        let source = Source::runners("failing", move |_| match built.fetch_add(1, Ordering::Relaxed) {
            i if i == fatal && panics => panic!("no memory left"),
            i if i == fatal => Err(RunnerError::Failed("the device is taken".into())),
            _ => Ok(Synthetic::new(Duration::ZERO, Duration::ZERO)),
        });
        Registry::load(vec![ModelSpec { source, ..stand_in("1") }]).unwrap_err().to_string()
    };
    assert_eq!(fails_at(0, false), "model 'm': the device is taken");
    assert_eq!(fails_at(2, false), "model 'm': a runner cannot be built: the device is taken");
    assert_eq!(fails_at(2, true), "model 'm': building a runner panicked; the log has the reason");
}

#[tokio::test]
async fn a_model_that_cannot_keep_its_cap_is_named_with_both_numbers_and_refused_where_that_is_asked_for() {
    let slow = Source::Synthetic { base: Duration::from_millis(30), per_row: Duration::ZERO };
    let slow = ModelSpec { source: slow, max_latency: Duration::from_millis(5), ..stand_in("1") };
    let (registry, opening) = Registry::open(vec![slow.clone(), stand_in("2")], Tracer::off());
    opening.load().unwrap();
    let why = registry.model("m", Some("1")).unwrap().too_slow().unwrap().to_owned();
    assert!(why.starts_with("its smallest batch takes ") && why.contains("max_latency_ms = 5:"), "{why}");
    assert_eq!(registry.model("m", Some("2")).unwrap().too_slow(), None);
    let (_, opening) = Registry::open(vec![slow], Tracer::off());
    assert_eq!(
        opening.strict(true).load().unwrap_err().to_string().split(" takes").next(),
        Some("model 'm': its smallest batch")
    );
}

#[tokio::test]
async fn an_estimate_is_tested_with_the_models_own_rows_and_with_no_caller() {
    /// Tells of what it runs, and whether that is a rehearsal.
    struct Told(Synthetic, std::sync::mpsc::Sender<bool>);
    impl Runner for Told {
        fn signature(&self) -> &Signature {
            self.0.signature()
        }
        fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
            self.1.send(false).unwrap();
            self.0.run(batch)
        }
        fn rehearse(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
            let _ = self.1.send(true);
            self.0.run(batch)
        }
    }
    let (told, runs) = std::sync::mpsc::channel();
    let source = Source::runners("told", move |_| {
        Ok(Told(Synthetic::new(Duration::from_millis(30), Duration::ZERO), told.clone()))
    });
    let slow = ModelSpec { source, max_latency: Duration::from_millis(5), runners: NonZeroUsize::MIN, ..stand_in("1") };
    let registry = Registry::load(vec![slow]).unwrap();
    let model = registry.model("m", None).unwrap();
    while runs.try_recv().is_ok() {} // the warm-up
    let mut tests = 0;
    while tests < 3 {
        let refused = model.infer(rows(0, 1), Terms::now()).await.unwrap_err();
        assert!(refused.to_string().contains("a retry would be no better"), "{refused}");
        for is_rehearsal in runs.try_iter() {
            assert!(is_rehearsal, "a caller was let through");
            tests += 1;
        }
    }
    let exposition = registry.metrics().render();
    assert!(exposition.contains("uncork_batch_duration_seconds_count{model=\"m\",version=\"1\"} 0"), "{exposition}");
}

#[tokio::test]
async fn models_of_one_pool_answer_each_for_itself_and_drain_together() {
    let of_pool = |name: &str, weight| ModelSpec {
        name: name.into(),
        pool: Some("cpu".into()),
        weight: NonZeroUsize::new(weight).unwrap(),
        ..stand_in("1")
    };
    let registry = Registry::load(vec![of_pool("a", 1), of_pool("b", 3), stand_in("1")]).unwrap();
    let requests = (0..300).map(|i| {
        let model = registry.model(["a", "b", "m"][i % 3], None).unwrap();
        async move {
            let answer = model.infer(rows(i, 1 + i % 3), Terms::now()).await.unwrap();
            assert_eq!(answer.outputs.get("y").unwrap().data(), &answer_to(i, 1 + i % 3));
        }
    });
    join_all(requests).await;
    registry.drain().await;
    for name in ["a", "b", "m"] {
        let refused = registry.model(name, None).unwrap().infer(rows(0, 1), Terms::now()).await;
        assert_eq!(refused.unwrap_err(), Error::Refused(batcher::Error::ShuttingDown));
    }
    let text = registry.metrics().render();
    for name in ["a", "b", "m"] {
        let line = format!(r#"uncork_requests_total{{model="{name}",version="1",outcome="on_time"}} 100"#);
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
}

fn served(file: &str) -> ModelSpec {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/").to_owned() + file;
    ModelSpec { source: Source::Onnx(path.into()), ..stand_in("1") }
}

fn named<const N: usize>(tensors: [(&str, Vec<usize>, Data); N]) -> Tensors {
    let tensor = |(name, shape, data): (&str, Vec<usize>, Data)| (name.into(), Tensor::new(shape, data).unwrap());
    Tensors::new(tensors.into_iter().map(tensor).collect()).unwrap()
}

#[tokio::test]
async fn an_embedding_as_wide_as_a_row_is_long_keeps_all_its_numbers() {
    for width in [24, 16] {
        let spec =
            ModelSpec { lengths: Lengths::Pad, runners: NonZeroUsize::MIN, ..served(&format!("wide_{width}.onnx")) };
        let registry = Registry::load(vec![spec]).unwrap();
        let model = registry.model("m", None).unwrap();
        assert_eq!(model.signature().outputs[0].dims, [None], "the file leaves it open");
        let answered = (0..96).map(|i| {
            let (model, length) = (model.clone(), [5, width, 24, 1, 40][i % 5]);
            async move {
                let row = |value: f32| Data::Fp32(vec![value; length]);
                let inputs = named([("x", vec![1, length], row(i as f32)), ("mask", vec![1, length], row(1.0))]);
                let answer = model.infer(inputs, Terms::now()).await.unwrap();
                let sum = (i * length) as f32;
                let wanted: Vec<f32> = (1..=width).map(|weight| sum * weight as f32).collect();
                assert_eq!(answer.outputs.get("embedding").unwrap().data(), &Data::Fp32(wanted), "of length {length}");
            }
        });
        join_all(answered).await;
        let text = registry.metrics().render();
        let is_padding =
            |line: &&str| line.starts_with("uncork_input_elements_total{") && line.contains("kind=\"padding\"");
        let padding = text.lines().find(is_padding).unwrap();
        assert!(!padding.ends_with(" 0"), "rows of different lengths shared a batch: {padding}");
        // Lengths that disagree are an error, however long the rest of a batch is.
        let inputs =
            named([("x", vec![1, 5], Data::Fp32(vec![1.0; 5])), ("mask", vec![1, 7], Data::Fp32(vec![1.0; 7]))]);
        assert!(model.infer(inputs, Terms::now()).await.is_err());
    }
}

/// Its embedding is 16 wide, under a name of its own in one file, and its table of places has 32 rows.
#[tokio::test]
async fn a_text_encoder_answers_padded_texts_as_it_does_each_alone() {
    for file in ["zoo/encoder_17_old.onnx", "zoo/encoder_20_new.onnx", "zoo/encoder_extended.onnx"] {
        let load = |lengths| {
            let registry =
                Registry::load(vec![ModelSpec { lengths, runners: NonZeroUsize::MIN, ..served(file) }]).unwrap();
            registry.model("m", None).unwrap()
        };
        let (alone, padded) = (load(Lengths::Group), load(Lengths::Pad));
        let text = |i: usize| {
            let length = [5, 16, 24, 40, 1, 32][i % 6];
            let ids = (0..length as i64).map(|at| (at * 7 + i as i64) % 50).collect();
            named([
                ("input_ids", vec![1, length], Data::Int64(ids)),
                ("attention_mask", vec![1, length], Data::Int64(vec![1; length])),
            ])
        };
        let answers = join_all((0..60).map(|i| padded.infer(text(i), Terms::now()))).await;
        for (i, answer) in answers.into_iter().enumerate() {
            let wanted = alone.infer(text(i), Terms::now()).await;
            let (answer, wanted) = match (answer, wanted) {
                (Ok(answer), Ok(wanted)) => (answer.outputs, wanted.outputs),
                (answer, wanted) => {
                    assert!(i % 6 == 3 && answer.is_err() && wanted.is_err(), "text {i}: {answer:?}, {wanted:?}");
                    continue;
                }
            };
            for ((name, answer), (_, wanted)) in answer.iter().zip(wanted.iter()) {
                assert_eq!(answer.shape(), wanted.shape(), "{name} of text {i}");
                let (Data::Fp32(answer), Data::Fp32(wanted)) = (answer.data(), wanted.data()) else { panic!("FP32") };
                assert!(answer.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-4), "{name} of text {i}");
            }
        }
    }
}

#[tokio::test]
async fn a_model_whose_answers_cannot_be_cut_is_rejected_with_lengths_pad() {
    /// Its answer is one longer than the row.
    struct OneMore(Signature);
    impl Runner for OneMore {
        fn signature(&self) -> &Signature {
            &self.0
        }
        fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
            let shape = batch.get("x").unwrap().shape();
            let dims = vec![shape[0], shape[1] + 1];
            let numbers = vec![0.0_f32; dims.iter().product()];
            Ok(Tensors::one("y", Tensor::new(dims, numbers).unwrap()))
        }
    }
    let source = Source::runners("one_more", |_| {
        let spec = |name: &str| TensorSpec::new(name, DataType::Fp32, vec![None]);
        Ok(OneMore(Signature { inputs: vec![spec("x")], outputs: vec![spec("y")] }))
    });
    let spec = ModelSpec { source, lengths: Lengths::Pad, ..stand_in("1") };
    let why = Registry::load(vec![spec.clone()]).unwrap_err().to_string();
    assert!(why.contains("axis 1 of output 'y' has length") && why.contains("use lengths = \"group\""), "{why}");
    assert!(Registry::load(vec![ModelSpec { lengths: Lengths::Group, ..spec }]).is_ok());
}

#[tokio::test]
async fn sequences_carry_their_state_along_and_share_batches_with_others() {
    let registry = Registry::load(vec![served("stateful.onnx")]).unwrap();
    let model = registry.model("m", None).unwrap();
    let shapes = |specs: &[TensorSpec]| specs.iter().map(TensorSpec::wire_shape).collect::<Vec<_>>();
    assert_eq!(shapes(&model.signature().inputs), [vec![-1, 3], vec![2, -1, 3], vec![]]);
    assert_eq!(shapes(&model.signature().outputs), [vec![-1], vec![2, -1, 3]]);
    // Each caller hears another thing, at one of two rates; the state halves at each step and what is heard is added.
    let sequence = |caller: usize| {
        let model = model.clone();
        async move {
            let rate: i64 = if caller.is_multiple_of(2) { 16_000 } else { 8_000 };
            let mut state = (vec![2, 1, 3], Data::Fp32(vec![caller as f32; 6]));
            let mut expected = caller as f32;
            for step in 0..5 {
                let heard = (caller * 10 + step) as f32;
                let x = ("x", vec![1, 3], vec![heard; 3].into());
                let sr = ("sr", vec![1], vec![rate].into());
                let request = named([sr, ("state", state.0, state.1), x]);
                let answer = model.infer(request, Terms::now()).await.unwrap().outputs;
                expected = expected * 0.5 + heard * rate as f32 / 16_000.0;
                assert_eq!(
                    answer.get("y").unwrap().data(),
                    &Data::Fp32(vec![expected]),
                    "caller {caller}, step {step}"
                );
                state = answer.get("next").unwrap().clone().into_parts();
                assert_eq!(state, (vec![2, 1, 3], Data::Fp32(vec![expected; 6])));
            }
        }
    };
    join_all((0..8).map(sequence)).await;
    // Three rows in one request, the third at another rate.
    let state = ("state", vec![2, 3, 3], vec![0f32; 18].into());
    let x = ("x", vec![3, 3], vec![1f32; 9].into());
    let request = named([x, state, ("sr", vec![3], vec![16_000i64, 16_000, 8_000].into())]);
    let answer = model.infer(request, Terms::now()).await.unwrap().outputs;
    assert_eq!(answer.get("y").unwrap().data(), &Data::Fp32(vec![1.0, 1.0, 0.5]));
    assert_eq!(answer.get("next").unwrap().shape(), [2, 3, 3]);
}

#[tokio::test]
async fn a_model_without_rows_answers_each_request_in_its_own_shapes() {
    let registry = Registry::load(vec![served("found.onnx")]).unwrap();
    let model = registry.model("m", None).unwrap();
    assert_eq!(model.signature().inputs[0].wire_shape(), [1, 6]);
    assert_eq!(model.signature().outputs[0].wire_shape(), [-1, 2]);
    assert_eq!(model.spec().max_batch_rows, NonZeroUsize::MIN);
    let find = |loud: usize| {
        let model = model.clone();
        async move {
            let x: Vec<f32> = (0..6).map(|i| if i < loud { 200.0 } else { 0.0 }).collect();
            let answer = model.infer(named([("x", vec![1, 6], x.into())]), Terms::now()).await.unwrap();
            let places: Vec<i64> = (0..loud as i64).flat_map(|i| [0, i]).collect();
            let found = answer.outputs.get("places").unwrap().clone().into_parts();
            assert_eq!((found, answer.batch_rows), ((vec![loud, 2], places.into()), 1));
        }
    };
    join_all((0..8).map(|caller| find(caller % 7))).await;
    let two = model.infer(named([("x", vec![2, 6], vec![0f32; 12].into())]), Terms::now()).await.unwrap_err();
    assert_eq!(two, Error::Invalid("input 'x' has shape [2, 6]; this model takes [1, 6]".into()));
}

/// A table somewhere else: looks indices up, refuses those beyond ten without saying which, panics at 666 and hangs at 777.
struct Elsewhere {
    signature: Signature,
    /// Batches that have begun, and those that have ended, however.
    begun: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

impl Elsewhere {
    fn new() -> Elsewhere {
        let spec = |name: &str| TensorSpec::new(name, DataType::Int64, vec![Some(1)]);
        let signature = Signature { inputs: vec![spec("i")], outputs: vec![spec("found")] };
        Elsewhere { signature, begun: Arc::default(), ended: Arc::default() }
    }
}

impl Remote for Elsewhere {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    async fn run(&self, batch: Tensors) -> Result<Tensors, RunnerError> {
        struct Counts(Arc<AtomicUsize>);
        impl Drop for Counts {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Release);
            }
        }
        self.begun.fetch_add(1, Ordering::Release);
        let _counts = Counts(Arc::clone(&self.ended));
        let (_, tensor) = batch.into_entries().remove(0);
        let (shape, Data::Int64(indices)) = tensor.into_parts() else { panic!("i is INT64") };
        assert!(!indices.contains(&666), "the other side is gone");
        if indices.contains(&777) {
            std::future::pending::<()>().await;
        }
        tokio::task::yield_now().await; // the answer comes later
        if let Some(i) = indices.iter().find(|i| !(0..10).contains(*i)) {
            return Err(RunnerError::Input(format!("there is no {i}")));
        }
        let found: Vec<i64> = indices.iter().map(|i| i * 100).collect();
        Ok(Tensors::one("found", Tensor::new(shape, found).unwrap()))
    }
}

fn index(i: i64) -> Tensors {
    Tensors::one("i", Tensor::new(vec![1, 1], vec![i]).unwrap())
}

#[tokio::test]
async fn a_model_that_is_somewhere_else_answers_like_any_other_and_refuses_single_requests() {
    let spec = ModelSpec { source: Source::remote("elsewhere", Elsewhere::new()), ..stand_in("1") };
    let registry = Registry::load(vec![spec]).unwrap();
    let model = registry.model("m", None).unwrap();
    assert_eq!(model.platform(), "elsewhere");
    let answers = join_all((0..40).map(|i| model.infer(index(if i == 17 { 12 } else { i % 10 }), Terms::now()))).await;
    for (i, answer) in answers.into_iter().enumerate() {
        match answer {
            Ok(answer) => {
                let found = answer.outputs.get("found").unwrap().data().clone();
                assert_eq!(found, Data::Int64(vec![i as i64 % 10 * 100]));
            }
            Err(Error::Invalid(why)) => {
                assert_eq!((i, &*why), (17, "the model does not take these inputs: there is no 12"));
            }
            Err(other) => panic!("{other}"),
        }
    }
    let lost = model.infer(index(666), Terms::now()).await.unwrap_err();
    assert_eq!(lost, Error::ModelFailed);
    assert!(model.infer(index(1), Terms::now()).await.is_ok(), "the next batch is another");
}

#[tokio::test]
async fn a_batch_somewhere_else_that_hangs_is_broken_off() {
    let elsewhere = Elsewhere::new();
    let (begun, ended) = (Arc::clone(&elsewhere.begun), Arc::clone(&elsewhere.ended));
    let stuck_after = Duration::from_millis(20);
    let source = Source::remote("elsewhere", elsewhere);
    let spec = ModelSpec { source, stuck_after, runners: NonZeroUsize::MIN, ..stand_in("1") };
    let registry = Registry::load(vec![spec]).unwrap();
    let model = registry.model("m", None).unwrap();
    let stuck = model.infer(index(777), Terms::now()).await.unwrap_err();
    assert!(matches!(stuck, Error::ModelStuck { .. }), "{stuck}");
    // The one runner is free for it, and nothing of the other is left.
    assert!(model.infer(index(1), Terms::now()).await.is_ok());
    while ended.load(Ordering::Acquire) < begun.load(Ordering::Acquire) {
        tokio::task::yield_now().await;
    }
}
