//! How workers end, and what becomes of their batches.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::signal::unix::{SignalKind, signal};
use uncork::batcher::Caps;
use uncork::error::Error;
use uncork::registry::{Model, ModelSpec, Registry, Source, Terms};
use uncork::runner::Remote;
use uncork::tensor::{Data, Tensor, Tensors};
use uncork::worker::{Limits, Program, Workers};

use super::folder::Folder;
use super::{HANGS, model, program, served, until};

/// Workers that are killed under load, one behind the other.
const KILLS: usize = 100;

fn request(body: &str) -> Tensors {
    let element = [&2u32.to_le_bytes()[..], b"{}", body.as_bytes()].concat();
    Tensors::one("request", Tensor::new(vec![1], vec![element]).unwrap())
}

/// The worker that answered, and what it said.
async fn ask(model: &Model, body: &str) -> Result<(u32, String), Error> {
    model.infer(request(body), Terms::now()).await.map(|answer| said(&answer.outputs))
}

fn said(outputs: &Tensors) -> (u32, String) {
    let Data::Bytes(elements) = outputs.get("answer").unwrap().data() else { panic!("no bytes") };
    let text = String::from_utf8(elements[0].clone()).unwrap();
    let (head, said) = text.rsplit_once('}').unwrap();
    assert!(head.contains("text/plain"), "{text:?}");
    let (pid, said) = said.split_once(':').unwrap();
    (pid.parse().unwrap(), said.to_owned())
}

fn kill(process: u32, signal: &str) {
    let told = std::process::Command::new("kill").args(["-s", signal, &process.to_string()]).status().unwrap();
    assert!(told.success());
}

/// Whether a process runs; one that nobody has waited for yet does not.
fn runs(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

/// Descriptors that this process has open.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Those of them that are memory to share: no other test here has any.
fn shared_memory() -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let names = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    names.filter(|name| name.to_string_lossy().contains("memfd")).count()
}

fn opaque(spec: impl FnOnce(ModelSpec) -> ModelSpec) -> (Registry, Arc<Model>) {
    let registry = Registry::load(vec![spec(model(program(&["opaque"])))]).unwrap();
    let model = served(&registry);
    (registry, model)
}

#[tokio::test]
async fn a_worker_that_is_killed_under_load_loses_its_batches_alone_and_leaves_no_descriptor() {
    let (_registry, model) = opaque(|spec| ModelSpec { runners: NonZeroUsize::new(2).unwrap(), ..spec });
    let (first, _) = ask(&model, "who").await.unwrap();
    kill(first, "KILL");
    until("another worker", || !runs(first)).await;
    let before = descriptors();
    let is_over = AtomicBool::new(false);
    let load = async {
        let caller = async |i: usize| {
            let (mut answered, mut lost) = (0, 0);
            while !is_over.load(Ordering::Relaxed) {
                let text = format!("{i} {answered}");
                match ask(&model, &text).await {
                    Ok((_, said)) => {
                        assert_eq!(said, text);
                        answered += 1;
                    }
                    Err(Error::ModelFailed) => lost += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            (answered, lost)
        };
        join_all((0..8).map(caller)).await
    };
    let kills = async {
        for _ in 0..KILLS {
            let (worker, _) = ask(&model, "who").await.unwrap_or_default();
            if worker > 0 {
                kill(worker, "KILL");
                until("its end", || !runs(worker)).await;
            }
        }
        is_over.store(true, Ordering::Relaxed);
    };
    let (counts, ()) = tokio::join!(load, kills);
    let (answered, mut lost) = counts.iter().fold((0, 0), |(a, b), (x, y)| (a + x, b + y));
    // The last kill may take one more: who asks before anybody has heard of it.
    while ask(&model, "after").await.is_err() {
        lost += 1;
        assert!(lost <= KILLS * 8, "it does not come back");
    }
    // Each kill takes what its worker had: eight callers have one request each.
    assert!(answered > 5 * KILLS && lost <= KILLS * 8, "{answered} answered, {lost} lost");
    until("as many descriptors as before", || descriptors() <= before + 8).await;
}

#[tokio::test]
async fn a_worker_that_exits_or_answers_too_few_rows_fails_its_batch_and_no_other() {
    let (_registry, model) = opaque(|spec| spec);
    let (first, _) = ask(&model, "a").await.unwrap();
    assert_eq!(ask(&model, "exit").await, Err(Error::ModelFailed));
    let (second, said) = ask(&model, "b").await.unwrap();
    assert!(second != first && said == "b");
    assert_eq!(ask(&model, "short").await, Err(Error::ModelFailed));
    assert_eq!(ask(&model, "c").await.unwrap().1, "c");
}

#[tokio::test]
async fn a_worker_that_exits_as_soon_as_it_has_answered_has_answered() {
    let limits = Limits { workers: 1, max_batch_rows: 8, max_latency: HANGS, stuck_after: HANGS };
    let workers = Workers::start("m", program(&["opaque"]), limits).await.unwrap();
    // Sockets are their own runtime's; of the end of a process every runtime hears from whichever heard first.
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for _ in 0..3 {
        // The one before may not be known to have ended: what is asked of it then is lost.
        let worker = loop {
            if let Ok(outputs) = workers.run(request("who")).await {
                break said(&outputs).0;
            }
        };
        let (heard, hears) = std::sync::mpsc::channel();
        other.spawn(async move {
            signal(SignalKind::child()).unwrap().recv().await;
            heard.send(()).unwrap();
        });
        let mut answer = std::pin::pin!(workers.run(request("bye")));
        assert!(answer.as_mut().now_or_never().is_none());
        for _ in 0..10 {
            tokio::task::yield_now().await; // the request is written
        }
        // Held up here, this runtime knows of the end and has not looked at the socket.
        let begun = Instant::now();
        while runs(worker) {
            assert!(begun.elapsed() < HANGS, "it does not exit");
            std::thread::yield_now();
        }
        hears.recv_timeout(HANGS).unwrap();
        assert_eq!(answer.await.map(|outputs| said(&outputs)), Ok((worker, "bye".to_owned())));
    }
    workers.end().await;
    other.shutdown_background();
}

#[tokio::test]
async fn a_worker_that_hangs_is_killed_with_all_that_it_started_and_replaced() {
    let how = ["opaque", "forks", "deaf", "lingers"];
    let spec = ModelSpec { stuck_after: Duration::from_millis(300), ..model(program(&how)) };
    let registry = Registry::load(vec![spec]).unwrap();
    let model = served(&registry);
    let (first, _) = ask(&model, "a").await.unwrap();
    let children = || std::fs::read_to_string(format!("/proc/{first}/task/{first}/children")).unwrap_or_default();
    let child: u32 = children().trim().parse().unwrap();
    assert!(runs(child));
    assert!(matches!(ask(&model, "hang").await, Err(Error::ModelStuck { .. })));
    // While it is being replaced, which takes longer here than anybody waits, callers are told so.
    let second = loop {
        match ask(&model, "b").await {
            Ok((second, _)) => break second,
            Err(error) => assert!(matches!(error, Error::Absent | Error::ModelFailed), "{error}"),
        }
    };
    assert_ne!(second, first);
    until("the end of both", || !runs(first) && !runs(child)).await;
}

#[tokio::test]
async fn a_worker_that_takes_too_much_memory_is_killed() {
    let registry =
        Registry::load(vec![model(Program { max_memory: Some(100 << 20), ..program(&["opaque"]) })]).unwrap();
    let model = served(&registry);
    let (first, _) = ask(&model, "a").await.unwrap();
    assert_eq!(ask(&model, "grow").await, Err(Error::ModelFailed));
    let (second, _) = ask(&model, "b").await.unwrap();
    assert_ne!(second, first);
    // By a child of its own: the whole family is.
    assert_eq!(ask(&model, "grow apart").await, Err(Error::ModelFailed));
    assert_ne!(ask(&model, "c").await.unwrap().0, second);
}

#[tokio::test]
async fn a_model_that_goes_takes_its_workers_along_even_those_that_hear_nothing() {
    for how in [&["opaque"][..], &["opaque", "deaf", "lingers", "forks"]] {
        let registry = Registry::load(vec![model(program(how))]).unwrap();
        let (worker, _) = ask(&served(&registry), "a").await.unwrap();
        assert!(runs(worker));
        registry.remove("m", "1").await.unwrap();
        until("its end", || !runs(worker)).await;
    }
}

#[tokio::test]
async fn a_crash_loop_is_named_and_the_model_not_ready_meanwhile() {
    for (how, why) in [
        ("dies-later", "it exited with code 1"),
        ("other-later", "other tensors than the workers before it"),
        ("hooks-later", "or has other hooks"),
    ] {
        let folder = Folder::new();
        let mut program = program(&["opaque", how]);
        program.env.push(("MARKS".into(), folder.path().display().to_string()));
        let spec = ModelSpec::new("m", Source::Worker(program), Caps::new(Duration::from_millis(200), 8));
        let registry = Registry::load(vec![spec]).unwrap();
        let model = served(&registry);
        assert!(registry.is_ready());
        let (worker, _) = ask(&model, "a").await.unwrap();
        kill(worker, "KILL");
        until("its name", || model.stuck().is_some_and(|text| text.contains("crash loop") && text.contains(why))).await;
        // What it wrote last is for the log: anybody may ask whether a model is ready.
        assert!(!model.stuck().is_some_and(|text| text.contains("it does not come back")));
        assert!(!registry.is_ready());
        let begun = Instant::now();
        assert_eq!(ask(&model, "b").await, Err(Error::Absent));
        assert!(begun.elapsed() < HANGS / 2, "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn requests_and_answers_go_through_hooks_and_a_refusal_or_a_slow_one_is_its_caller_s_alone() {
    let spec = ModelSpec { max_latency: Duration::from_millis(500), ..model(program(&["opaque", "hooks"])) };
    let registry = Registry::load(vec![spec]).unwrap();
    let model = served(&registry);
    let texts = ["a", "bad", "b", "slow", "c"];
    let answers = join_all(texts.map(|text| ask(&model, text))).await;
    for (text, answer) in texts.iter().zip(answers) {
        match (*text, answer) {
            ("bad", Err(Error::Invalid(why))) => assert!(why.contains("it is bad"), "{why}"),
            ("slow", Err(Error::Refused(why))) => assert!(why.to_string().contains("deadline"), "{why}"),
            (text, answer) => assert_eq!(answer.map(|(_, said)| said), Ok(format!("{text}{text}!"))),
        }
    }
}

#[tokio::test]
async fn a_hook_waits_for_a_worker_as_a_batch_does() {
    let limits = Limits { workers: 1, max_batch_rows: 8, max_latency: HANGS, stuck_after: 4 * HANGS };
    let workers = Workers::start("m", program(&["opaque", "hooks"]), limits).await.unwrap();
    for order in ["prepare", "finish"] {
        let first = said(&workers.run(request("who")).await.unwrap()).0;
        kill(first, "KILL");
        until("that it is known", || workers.trouble().is_some()).await;
        // Hooks are asked before any batch is, so that nobody else waits for the next worker.
        let hooked = match order {
            "prepare" => workers.prepare(request("a")).await,
            _ => workers.finish(Tensors::one("answer", request("a").get("request").unwrap().clone())).await,
        };
        let (_, made) = hooked.as_ref().unwrap().iter().next().unwrap();
        let Data::Bytes(elements) = made.data() else { panic!("no bytes") };
        assert!(elements[0].ends_with(if order == "prepare" { b"aa" } else { b"a!" }), "{elements:?}");
    }
    workers.end().await;
}

#[tokio::test]
async fn a_request_that_waits_for_a_hook_in_vain_is_told_that_no_worker_is_there() {
    let folder = Folder::new();
    let mut program = program(&["opaque", "hooks", "dies-later"]);
    program.env.push(("MARKS".into(), folder.path().display().to_string()));
    let spec = ModelSpec::new("m", Source::Worker(program), Caps::new(Duration::from_millis(200), 8));
    let registry = Registry::load(vec![spec]).unwrap();
    let model = served(&registry);
    kill(ask(&model, "a").await.unwrap().0, "KILL");
    until("its name", || model.stuck().is_some_and(|text| text.contains("crash loop"))).await;
    assert_eq!(ask(&model, "b").await, Err(Error::Absent));
}

#[tokio::test]
async fn metrics_tell_how_many_workers_there_are_and_how_many_have_ended() {
    let (registry, model) = opaque(|spec| spec);
    let (worker, _) = ask(&model, "a").await.unwrap();
    let line = |name: &str| {
        let text = registry.metrics().render();
        let prefix = format!("{name}{{model=\"m\",version=\"1\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&prefix).map(str::to_owned)).unwrap_or_default()
    };
    assert_eq!((line("uncork_workers"), line("uncork_worker_ends_total")), ("1".into(), "0".into()));
    kill(worker, "KILL");
    until("its end", || line("uncork_worker_ends_total") == "1").await;
    until("another", || line("uncork_workers") == "1").await;
}

#[tokio::test]
async fn large_tensors_go_through_shared_memory_and_come_back_through_it() {
    let rows = 40_000;
    let spec = |how: &[&str]| {
        let caps = Caps::new(HANGS, rows);
        ModelSpec { runners: NonZeroUsize::MIN, ..ModelSpec::new("m", Source::Worker(program(how)), caps) }
    };
    let batch = |rows: usize, add: f32| {
        let x: Vec<f32> = (0..2 * rows).map(|i| i as f32 / 8.0 + add).collect();
        Tensors::one("x", Tensor::new(vec![rows, 2], x).unwrap())
    };
    let sums = |rows: usize, add: f32| -> Vec<f32> {
        let x = |i: usize| i as f32 / 8.0 + add;
        (0..rows).map(|row| x(2 * row) + x(2 * row + 1)).collect()
    };
    let registry = Registry::load(vec![spec(&["shares"])]).unwrap();
    let model = served(&registry);
    for round in 0..12 {
        let (rows, add) = (if round % 3 == 2 { 7 } else { rows - round }, round as f32);
        let answer = model.infer(batch(rows, add), Terms::now()).await.unwrap();
        assert_eq!(answer.outputs.get("y").unwrap().data(), &Data::Fp32(sums(rows, add)), "round {round}");
    }
    let segments = shared_memory();
    assert!((1..=4).contains(&segments), "{segments}: segments are used again");
    // Outputs elsewhere than in the segment that was given for them break the protocol.
    assert!(Registry::load(vec![spec(&["shares", "beyond"])]).map(drop).is_err());
}
