//! Hostile input, made from the files of `corpus` by changing their bytes: whole requests, their bodies alone, configuration.
//!
//! ```sh
//! cargo bench --bench fuzz -- 1e7                # of each kind; minutes
//! cargo bench --bench fuzz -- 1e5 body           # of one: head, body or config
//! cargo bench --bench fuzz -- 1 body 4242        # the one with this seed, shown
//! ```
//!
//! A panic anywhere, an answer that is no HTTP or blames the server, one larger than its bound, a request that is neither
//! answered nor hung up on, and more memory than the bound is a finding: the exit code is 1, and the seed makes the input
//! again. Damaged models are `cargo bench --bench onnx -- fuzz`'s.

mod config;
mod http;
mod mutate;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

/// Address space beyond what is in use when it starts: an allocation that a client's number decides fails here, and ends the process.
const ROOM: u64 = 2 << 30;

/// Panics since the start, on any thread.
static PANICS: AtomicU64 = AtomicU64::new(0);

/// What is wrong, and what was tried.
pub(crate) struct Finding {
    pub(crate) seed: u64,
    pub(crate) what: String,
}

/// How many inputs there are to try.
pub(crate) struct Seeds {
    pub(crate) first: u64,
    pub(crate) count: u64,
}

impl Seeds {
    /// Whether one is looked at, and so printed.
    pub(crate) fn is_one(&self) -> bool {
        self.count == 1
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (count, kinds, first) = match *arguments.as_slice() {
        [] => ("1e5", &["head", "body", "config"][..], "0"),
        [count] => (count, &["head", "body", "config"][..], "0"),
        [count, ref kind] => (count, std::slice::from_ref(kind), "0"),
        [count, ref kind, first] => (count, std::slice::from_ref(kind), first),
        _ => return usage(),
    };
    let (Ok(count), Ok(first)) = (count.parse::<f64>(), first.parse()) else { return usage() };
    let seeds = Seeds { first, count: count as u64 };
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        usual(panic);
    }));
    bound_memory();
    let mut is_sound = true;
    for &kind in kinds {
        let found = match kind {
            "head" => http::run(http::Part::Whole, &seeds),
            "body" => http::run(http::Part::Body, &seeds),
            "config" => config::run(&seeds),
            _ => return usage(),
        };
        for Finding { seed, what } in &found {
            println!("  seed {seed}: {what}\n    again: cargo bench --bench fuzz -- 1 {kind} {seed}");
        }
        is_sound &= found.is_empty();
    }
    let panics = PANICS.load(Ordering::Relaxed);
    println!("{panics} panics");
    if is_sound && panics == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage() -> ExitCode {
    eprintln!("usage: cargo bench --bench fuzz -- [COUNT [head|body|config [FIRST_SEED]]]");
    ExitCode::from(3)
}

/// Lets no allocation succeed that is far beyond what a few small requests need.
fn bound_memory() {
    // Threads and the allocator reserve address space by the gigabyte before they use it, so it is data that is bounded.
    if let Err(error) = rlimit::Resource::DATA.set(ROOM, ROOM) {
        println!("memory is not bounded: {error}");
    }
}
