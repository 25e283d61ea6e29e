//! The laws of the policy over as many random requests as one likes:
//! `cargo bench --bench laws -- 1e9 [--seed N]`; `--world N` lives through one world again.

mod tally;
mod traffic;
mod trial;
mod world;

use std::io::{IsTerminal, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tally::Tally;
use uncork_core::policy::ReleaseReason;
use world::World;

const USAGE: &str = "usage: cargo bench --bench laws -- [REQUESTS] [--seed N] | --world N
  REQUESTS   how many to simulate, 1e8 for example (default 1e7)
  --seed N   the number of the first world (default 1)
  --world N  one world alone, as a broken law names it; it is printed whole";

/// What is asked for.
#[derive(Debug, Clone, Copy)]
struct Task {
    requests: u64,
    seed: u64,
    only: Option<u64>,
}

fn main() -> ExitCode {
    let task = match parse(std::env::args().skip(1)) {
        Ok(task) => task,
        Err(why) => {
            eprintln!("laws: {why}\n{USAGE}");
            return ExitCode::from(3);
        }
    };
    let begin = Instant::now();
    let Some(tally) = (match task.only {
        Some(number) => {
            println!("{:#?}", World::draw(number));
            one(number)
        }
        None => many(task, begin),
    }) else {
        return ExitCode::FAILURE;
    };
    println!("{}", summary(&tally, begin.elapsed()));
    ExitCode::SUCCESS
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Task, String> {
    let mut task = Task { requests: 10_000_000, seed: 1, only: None };
    while let Some(arg) = args.next() {
        let mut number = || {
            let text = args.next().ok_or_else(|| format!("{arg} needs a number"))?;
            text.parse::<u64>().map_err(|why| format!("{arg} {text}: {why}"))
        };
        match arg.as_str() {
            "--seed" => task.seed = number()?,
            "--world" => task.only = Some(number()?),
            "--bench" => {} // from cargo
            text => match text.parse::<f64>() {
                Ok(requests) if requests >= 1.0 => task.requests = requests as u64,
                _ => return Err(format!("'{text}' is not a number of requests")),
            },
        }
    }
    Ok(task)
}

/// A thread for each core takes one world after the other; `None` when one has found a broken law.
fn many(task: Task, begin: Instant) -> Option<Tally> {
    let (next, total, broken) = (AtomicU64::new(task.seed), Mutex::new(Tally::default()), AtomicU64::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let live = || {
        while broken.load(Ordering::Relaxed) == 0 {
            let tally = one(next.fetch_add(1, Ordering::Relaxed));
            let mut total = total.lock().expect("nothing panics with it");
            match tally {
                Some(tally) => total.add(&tally),
                None => drop(broken.fetch_add(1, Ordering::Relaxed)),
            }
            if total.worlds.is_multiple_of(256) && std::io::stderr().is_terminal() {
                eprint!("\r{}", progress(&total, task.requests, begin.elapsed()));
                let _ = std::io::stderr().flush();
            }
            if total.requests >= task.requests {
                return;
            }
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(live))));
    if std::io::stderr().is_terminal() {
        eprint!("\r{:40}\r", "");
    }
    (broken.into_inner() == 0).then(|| total.into_inner().expect("nothing panics with it"))
}

/// Lives through one world; `None`, and a message with what it takes to see it again, where a law is broken.
fn one(number: u64) -> Option<Tally> {
    let world = World::draw(number);
    let tally = catch_unwind(AssertUnwindSafe(|| trial::try_out(&world)));
    if tally.is_err() {
        eprintln!("A law is broken in this world:\n{world:#?}\nAlone: cargo bench --bench laws -- --world {number}");
    }
    tally.ok()
}

fn progress(tally: &Tally, requests: u64, elapsed: Duration) -> String {
    let share = tally.requests as f64 / requests as f64;
    let left = elapsed.as_secs_f64() * (1.0 / share.max(1e-9) - 1.0);
    format!("{:5.1} %, {left:5.0} s left", share * 100.0)
}

fn summary(tally: &Tally, elapsed: Duration) -> String {
    let rate = tally.requests as f64 / elapsed.as_secs_f64() / 1e6;
    let [expired, front, end, stood, over_share] = tally.refused;
    let released = ReleaseReason::ALL.iter().zip(tally.released).map(|(why, n)| format!("{n} {}", why.label()));
    format!(
        "The laws held for {} requests in {} worlds: {} steps, {} batches ({}), {} of them failed; {} rehearsals; {} given up; refused: {expired} \
         expired, {front} in front, {end} at the end, {stood} of a queue that stood, {over_share} for \
         others; {} callers left, {} lanes were renewed; {} worlds twice, {} in the \
         simulator too; {:.1} s, {rate:.1} million requests a second.",
        tally.requests,
        tally.worlds,
        tally.steps,
        tally.batches,
        released.collect::<Vec<_>>().join(", "),
        tally.failed,
        tally.rehearsed,
        tally.given_up,
        tally.left,
        tally.renewed,
        tally.repeated,
        tally.simulated,
        elapsed.as_secs_f64(),
    )
}
