//! Requests to a server in this process, over its socket: each is answered, or its connection ends, and nobody else notices.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::oneshot;
use uncork::registry::{Caps, ModelSpec, Registry, Source};
use uncork::runner::{Runner, RunnerError, Signature, TensorSpec};
use uncork::server::{Options, Server};
use uncork::tensor::{DataType, Tensors};

use crate::mutate::mutate;
use crate::{Finding, Seeds};

/// Clients at once.
const CLIENTS: u64 = 4;
/// Most bytes of an answer to one request: its bound for tensors, and room for a head and a page of the server.
const LONGEST: usize = ANSWER + (256 << 10);
const ANSWER: usize = 64 << 10;
/// A client that has sent half a request is hung up on after this.
const SLOW: Duration = Duration::from_millis(50);
/// Far longer than any answer takes.
const HANGS: Duration = Duration::from_secs(20);
/// The one failure that a request can bring about alone: bytes that came in binary are asked back in JSON.
const NO_JSON: &[u8] = b"which JSON cannot carry";
/// Findings after which it ends: the rest will be like them.
const ENOUGH: usize = 10;

/// What is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything, the request line included.
    Whole,
    /// The body, under a head that announces its length truly.
    Body,
}

/// Gives back what it gets, in every type that there is.
struct Echo(Signature);

impl Echo {
    fn new() -> Echo {
        let kinds = DataType::ALL.iter();
        let spec = |datatype: &DataType| TensorSpec::new(datatype.name().to_lowercase(), *datatype, vec![None]);
        let inputs: Vec<TensorSpec> = kinds.map(spec).collect();
        Echo(Signature { outputs: inputs.clone(), inputs })
    }
}

impl Runner for Echo {
    fn signature(&self) -> &Signature {
        &self.0
    }

    fn run(&mut self, batch: Tensors) -> Result<Tensors, RunnerError> {
        Ok(batch)
    }
}

/// The files of a part of the corpus, by name.
pub(crate) fn files(part: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/fuzz/corpus").join(part);
    let entries = std::fs::read_dir(folder).expect("the corpus");
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let read = |path: PathBuf| Some((path.file_name()?.to_string_lossy().into_owned(), std::fs::read(path).ok()?));
    let mut files: Vec<_> = paths.filter_map(read).collect();
    files.sort();
    files
}

/// A request of the corpus: lines end with CR LF in its head, the body is what comes behind the empty line.
struct Sample {
    head: Vec<u8>,
    body: Vec<u8>,
}

impl Sample {
    fn of(file: &[u8]) -> Sample {
        let end = file.windows(2).position(|two| two == b"\n\n").map_or(file.len(), |at| at + 1);
        let head = file[..end].split_inclusive(|&byte| byte == b'\n');
        let head = head.flat_map(|line| [line.strip_suffix(b"\n").unwrap_or(line), b"\r\n"].concat()).collect();
        Sample { head, body: file.get(end + 1..).unwrap_or_default().to_vec() }
    }

    /// The request, whose head says how long the body is, or that it comes in chunks.
    fn whole(&self, body: &[u8]) -> Vec<u8> {
        const CHUNKED: &[u8] = b"Transfer-Encoding: chunked";
        if self.head.windows(CHUNKED.len()).any(|piece| piece == CHUNKED) {
            let chunk = if body.is_empty() {
                Vec::new()
            } else {
                [format!("{:x}\r\n", body.len()).as_bytes(), body, b"\r\n"].concat()
            };
            return [&*self.head, b"\r\n", &chunk, b"0\r\n\r\n"].concat();
        }
        [&*self.head, format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
    }
}

pub(crate) fn run(part: Part, seeds: &Seeds) -> Vec<Finding> {
    let path = std::env::temp_dir().join(format!("uncork-fuzz-{}.sock", std::process::id()));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let (stop, stopped) = oneshot::channel::<()>();
    let caps = |rows| Caps::new(Duration::from_secs(10), rows);
    let models = vec![
        ModelSpec::new("digits", Source::Embedded, caps(16)),
        ModelSpec::new("echo", Source::runners("echo", |_| Ok(Echo::new())), caps(64)),
    ];
    let options = Options {
        max_answer_bytes: ANSWER,
        head_timeout: SLOW,
        body_timeout: SLOW,
        idle_timeout: HANGS,
        drain_delay: Duration::ZERO,
        ..Options::default()
    };
    let registry = runtime.block_on(async { tokio::task::spawn_blocking(|| Registry::load(models)).await });
    let registry = registry.expect("loading does not panic").expect("the models load");
    let server = runtime.block_on(Server::bind(&format!("unix:{}", path.display()), options)).expect("a socket");
    let serving = runtime.spawn(server.serve(registry, async { drop(stopped.await) }));
    let corpus: Vec<Sample> = files("http").iter().map(|(_, file)| Sample::of(file)).collect();
    let tried = Tried {
        part,
        path,
        corpus,
        counts: Mutex::default(),
        findings: Mutex::default(),
        next: AtomicU64::new(seeds.first),
    };
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS.min(seeds.count) {
            scope.spawn(|| tried.client(seeds));
        }
    });
    let name = if part == Part::Whole { "head" } else { "body" };
    let counts = tried.counts.into_inner().expect("no client panics");
    let counts: Vec<String> = counts.iter().map(|(what, n)| format!("{what}: {n}")).collect();
    println!("{name}: {} requests in {:.1?}; {}", seeds.count, begin.elapsed(), counts.join(", "));
    let _ = stop.send(());
    let mut findings = tried.findings.into_inner().expect("no client panics");
    if runtime.block_on(async { tokio::time::timeout(HANGS, serving).await }).is_err() {
        findings.push(Finding { seed: seeds.first, what: "the server did not end".into() });
    }
    findings
}

/// What clients share.
struct Tried {
    part: Part,
    path: PathBuf,
    corpus: Vec<Sample>,
    /// Answers by status.
    counts: Mutex<BTreeMap<String, u64>>,
    findings: Mutex<Vec<Finding>>,
    next: AtomicU64,
}

impl Tried {
    /// Sends requests until there are no more.
    fn client(&self, seeds: &Seeds) {
        let mut counts = BTreeMap::<String, u64>::new();
        let mut kept = None;
        loop {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.first + seeds.count || self.findings.lock().expect("no client panics").len() >= ENOUGH {
                break;
            }
            let request = self.request(seed);
            let answered = self.ask(&mut kept, &request);
            if seeds.is_one() {
                println!("{}\n--\n{answered:?}", String::from_utf8_lossy(&request));
            }
            match answered {
                Ok(statuses) => statuses.iter().for_each(|status| *counts.entry(status.clone()).or_default() += 1),
                Err(what) => self.findings.lock().expect("no client panics").push(Finding { seed, what }),
            }
        }
        let mut all = self.counts.lock().expect("no client panics");
        counts.into_iter().for_each(|(status, n)| *all.entry(status).or_default() += n);
    }

    fn request(&self, seed: u64) -> Vec<u8> {
        let mut chance = StdRng::seed_from_u64(seed);
        let (one, other) = (chance.random_range(0..self.corpus.len()), chance.random_range(0..self.corpus.len()));
        let (one, other) = (&self.corpus[one], &self.corpus[other]);
        match self.part {
            Part::Whole => mutate(one.whole(&one.body), &other.whole(&other.body), &mut chance),
            Part::Body => one.whole(&mutate(one.body.clone(), &other.body, &mut chance)),
        }
    }

    /// Sends a request and reads what comes, on a connection that is kept where the request's length is beyond doubt.
    /// The statuses of the answers; `hung up` where there is none.
    fn ask(&self, kept: &mut Option<UnixStream>, request: &[u8]) -> Result<Vec<String>, String> {
        let mut stream = match kept.take() {
            Some(stream) => stream,
            None => {
                let stream = UnixStream::connect(&self.path).map_err(|error| format!("nobody listens: {error}"))?;
                stream.set_read_timeout(Some(HANGS)).map_err(|error| error.to_string())?;
                stream
            }
        };
        // Whoever is refused early is hung up on while it still sends.
        let _ = stream.write_all(request);
        if self.part == Part::Whole {
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
        let mut answers = Answers::default();
        let mut buffer = [0; 16 << 10];
        loop {
            if self.part == Part::Body && answers.is_whole()? {
                if !answers.closes {
                    *kept = Some(stream);
                }
                return Ok(answers.statuses);
            }
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => answers.bytes.extend_from_slice(&buffer[..n]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(format!("no answer in {HANGS:?}"));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
            if answers.bytes.len() > LONGEST * (1 + request.len() / 16) {
                return Err(format!("{} bytes of answer", answers.bytes.len()));
            }
        }
        while answers.is_whole()? {}
        match (self.part, answers.statuses.is_empty()) {
            (Part::Body, _) => Err("a request whose length is clear got no answer".into()),
            (Part::Whole, true) => Ok(vec!["hung up".into()]),
            (Part::Whole, false) => Ok(answers.statuses),
        }
    }
}

/// What has come back.
#[derive(Default)]
struct Answers {
    bytes: Vec<u8>,
    statuses: Vec<String>,
    /// The last one says that the connection ends.
    closes: bool,
}

impl Answers {
    /// Takes one whole answer off the bytes, if there is one. An error where that is no sound answer.
    fn is_whole(&mut self) -> Result<bool, String> {
        loop {
            let Some(end) = self.bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(false) };
            let head = String::from_utf8_lossy(&self.bytes[..end]).to_lowercase();
            let status = head.strip_prefix("http/1.1 ").or_else(|| head.strip_prefix("http/1.0 "));
            let status =
                status.and_then(|rest| rest.get(..3)).ok_or_else(|| format!("no HTTP: {head:.80}"))?.to_owned();
            if status == "100" {
                self.bytes.drain(..end + 4);
                continue;
            }
            let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
            let length = match header("content-length: ") {
                Some(length) => length.parse::<usize>().map_err(|_| format!("a length of {length}"))?,
                None => 0,
            };
            // The answer to HEAD announces a length and has no body; nothing behind it is looked at.
            if self.bytes.len() < end + 4 + length {
                return Ok(false);
            }
            let says =
                |words: &[u8]| self.bytes[end..end + 4 + length].windows(words.len()).any(|piece| piece == words);
            if (status == "500" && !says(NO_JSON)) || !matches!(&status[..1], "1" | "2" | "3" | "4" | "5") {
                return Err(format!("answered {}", String::from_utf8_lossy(&self.bytes[..end + 4 + length])));
            }
            self.closes = header("connection: close").is_some();
            self.statuses.push(status);
            self.bytes.drain(..end + 4 + length);
            return Ok(true);
        }
    }
}
