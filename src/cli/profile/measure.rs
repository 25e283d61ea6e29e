//! Times batches of growing size, each number of threads on a thread of its own, so that a drift of the machine is not
//! taken for a property of the model.
//!
//! First every size runs twice, smallest first; there the sizes end that would take too long or too much memory. Then all
//! sizes and thread counts are timed in turn, in another order each round, each after a run that is not timed: the caches
//! are warm as under load, and whatever changes during the measurement falls on all sizes alike.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::num::NonZeroUsize;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use uncork_commands::layout::plural;
use uncork_commands::progress::Progress;

use super::inputs::Inputs;
use super::memory::{self, Watch};
use crate::opaque::{self, AnswerHead};
use crate::registry::Loaded;
use crate::runner::{Runner, Signature};
use crate::tensor::Tensors;

/// Rounds for which there must be time before another size is begun.
const FEWEST_ROUNDS: u32 = 2;
/// Rounds after which more would tell nothing new.
const MOST_ROUNDS: usize = 200;
/// A size runs for so long at a stretch, or as often as [`MOST_RUNS`], or once.
const STRETCH: Duration = Duration::from_millis(4);
const MOST_RUNS: usize = 8;
/// A batch that takes longer than this has no caches to warm.
const LONG: Duration = Duration::from_millis(50);
/// From one look whether a worker has been replaced to the next.
const PACE: Duration = Duration::from_millis(10);
/// Part of the memory that is free which the next size may be expected to take.
const MEMORY_SHARE: f64 = 0.8;
/// The lowest status of HTTP that is an error's.
const ERRORS: u16 = 400;

/// The batches of one size and number of threads.
#[derive(Debug)]
pub(in crate::cli) struct Timed {
    pub(in crate::cli) rows: usize,
    /// Sorted; at least one.
    pub(in crate::cli) times: Vec<Duration>,
    /// Bytes that the process had in memory at most while one of them ran, where that is known: not of another's.
    pub(in crate::cli) memory: Option<u64>,
}

/// All sizes with one number of threads.
#[derive(Debug)]
pub(in crate::cli) struct Series {
    pub(in crate::cli) threads: usize,
    /// At least one, growing.
    pub(in crate::cli) sizes: Vec<Timed>,
}

/// What was measured.
#[derive(Debug)]
pub(in crate::cli) struct Measured {
    /// At least one; all have the same sizes.
    pub(in crate::cli) series: Vec<Series>,
    /// Why the sizes end before the largest that was asked for.
    pub(in crate::cli) stopped: Option<String>,
}

/// Measures until `budget` is used up. Every size counts at least once, and those that there is time for many times.
pub(in crate::cli) fn measure(
    loaded: &Loaded,
    inputs: &Inputs,
    sizes: &[usize],
    threads: &[NonZeroUsize],
    budget: Duration,
) -> Result<Measured, String> {
    let clock = Clock { begin: Instant::now(), budget, progress: Progress::new("profiling", nanos(budget)) };
    let work = || {
        thread::scope(|scope| {
            let benches: Vec<Bench<'_>> = threads.iter().map(|&n| Bench::start(scope, loaded, n)).collect();
            let (mut series, mut stopped) = (Vec::with_capacity(benches.len()), None);
            let mut sizes = sizes.to_vec();
            for bench in &benches {
                let watching = series.is_empty().then_some(benches.len());
                let (found, why) = first_pass(bench, inputs, &sizes, watching, &clock)?;
                sizes.truncate(found.sizes.len());
                if why.is_some() {
                    recover(bench, inputs, sizes[0], &clock)?;
                }
                stopped = why.or(stopped);
                series.push(found);
            }
            // What one number of threads could not run is left out for all.
            series.iter_mut().for_each(|series: &mut Series| series.sizes.truncate(sizes.len()));
            let why = rounds(&benches, inputs, &mut series, &clock)?;
            stopped = stopped.or(why);
            series.iter_mut().flat_map(|series| &mut series.sizes).for_each(|size| size.times.sort_unstable());
            Ok(Measured { series, stopped })
        })
    };
    clock.progress.during(work)
}

/// How much time is left.
struct Clock {
    begin: Instant,
    budget: Duration,
    progress: Progress,
}

impl Clock {
    fn used(&self) -> Duration {
        let used = self.begin.elapsed();
        self.progress.advance_to(nanos(used));
        used
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Runs every size twice, smallest first: its second time counts. The first of `benches` looks at the memory, and ends
/// where time or memory would not suffice; says why, as it does where a batch fails.
fn first_pass(
    bench: &Bench<'_>,
    inputs: &Inputs,
    sizes: &[usize],
    benches: Option<usize>,
    clock: &Clock,
) -> Result<(Series, Option<String>), String> {
    let mut series = Series { threads: bench.threads, sizes: Vec::new() };
    for &rows in sizes {
        if let Some(benches) = benches
            && let Some(why) = too_much(&series.sizes, rows, benches, clock)
        {
            return Ok((series, Some(why)));
        }
        let watch = benches.filter(|_| !bench.is_elsewhere).map(|_| Watch::begin());
        match (bench.run(inputs.batch(rows)?, 2), series.sizes.last()) {
            (Ok(mut times), _) => {
                let memory = watch.and_then(|watch| watch.peak());
                series.sizes.push(Timed { rows, times: times.split_off(1), memory });
            }
            (Err(error), None) => return Err(error),
            (Err(error), Some(last)) => {
                let why = format!("The sizes end at {}: {error}.", plural(last.rows, "row"));
                return Ok((series, Some(why)));
            }
        }
    }
    Ok((series, None))
}

/// Waits until a batch of `rows`, which ran before, runs again: a worker that ended with the last one is replaced meanwhile.
fn recover(bench: &Bench<'_>, inputs: &Inputs, rows: usize, clock: &Clock) -> Result<(), String> {
    while clock.used() < clock.budget && bench.run(inputs.batch(rows)?, 1).is_err() {
        thread::sleep(PACE);
    }
    Ok(())
}

/// Why `rows` are not tried: a sentence, where time or memory would not suffice.
fn too_much(done: &[Timed], rows: usize, benches: usize, clock: &Clock) -> Option<String> {
    let last = done.last()?;
    let growth = rows as f64 / last.rows as f64;
    let next = last.times[0].mul_f64(growth);
    let all = done.iter().map(|size| size.times[0]).sum::<Duration>() + next;
    // Two first runs here, two of each size on the other thread counts, then rounds of one or two runs for everybody.
    let runs = |time: Duration| if time > LONG { 1 } else { 2 };
    let (benches, others) = (benches as u32, benches as u32 - 1);
    let needed = 2 * next + 2 * others * all + FEWEST_ROUNDS * runs(next) * benches * all;
    if clock.used() + needed > clock.budget {
        return Some(format!(
            "The sizes end at {}, since a batch of that takes {:.2} s and {} s are to suffice for all; --for gives more \
             time.",
            plural(last.rows, "row"),
            last.times[0].as_secs_f64(),
            clock.budget.as_secs_f64()
        ));
    }
    // Weights take what they take; what the batch takes is at most all of it.
    let (peak, available) = (last.memory? as f64, memory::available()? as f64);
    let more = peak * (growth - 1.0);
    let mib = |bytes: f64| (bytes / f64::from(1 << 20)).round();
    (more > MEMORY_SHARE * available).then(|| {
        let (rows, peak, available) = (plural(last.rows, "row"), mib(peak), mib(available));
        format!("The sizes end at {rows}, which take {peak} MiB: no more than {available} MiB are free.")
    })
}

/// Times all sizes in turn, until the time is over or a batch fails, and says why in that case. What was timed counts.
fn rounds(
    benches: &[Bench<'_>],
    inputs: &Inputs,
    series: &mut [Series],
    clock: &Clock,
) -> Result<Option<String>, String> {
    let mut chance = Xoshiro256PlusPlus::seed_from_u64(1);
    let sizes = series[0].sizes.len();
    let mut places: Vec<(usize, usize)> = (0..series.len()).flat_map(|i| (0..sizes).map(move |k| (i, k))).collect();
    for _ in 0..MOST_ROUNDS {
        places.shuffle(&mut chance);
        for &(i, k) in &places {
            if clock.used() >= clock.budget {
                return Ok(None);
            }
            let size = &mut series[i].sizes[k];
            let seen = size.times[size.times.len() / 2].max(Duration::from_nanos(1));
            let runs = (STRETCH.as_nanos() / seen.as_nanos()).clamp(1, MOST_RUNS as u128) as usize;
            let warm_up = usize::from(seen <= LONG);
            match benches[i].run(inputs.batch(size.rows)?, warm_up + runs) {
                Ok(times) => size.times.extend(&times[warm_up..]),
                Err(error) => return Ok(Some(format!("The timing ends early: {error}."))),
            }
        }
    }
    Ok(None)
}

/// A thread that owns a runner, as in a server.
struct Bench<'scope> {
    threads: usize,
    /// Whether what it runs is in another process.
    is_elsewhere: bool,
    orders: mpsc::Sender<(Tensors, usize)>,
    times: mpsc::Receiver<Result<Vec<Duration>, String>>,
    _thread: thread::ScopedJoinHandle<'scope, ()>,
}

impl<'scope> Bench<'scope> {
    fn start<'env>(
        scope: &'scope thread::Scope<'scope, 'env>,
        loaded: &'env Loaded,
        threads: NonZeroUsize,
    ) -> Bench<'scope> {
        let (orders, inbox) = mpsc::channel::<(Tensors, usize)>();
        let (outbox, times) = mpsc::channel();
        let thread = scope.spawn(move || {
            let Ok(mut runner) = (loaded.build)(threads) else { return };
            // One that warms up, as in a server: by it runners learn how threads best share a batch of each size. The other is then timed on
            // the thread that is its own, as soon as it has run something there, whatever came of it.
            let mut scout = None;
            if !loaded.is_elsewhere() {
                let Ok(other) = (loaded.build)(threads) else { return };
                scout = Some(other);
            }
            let mut warm = BTreeSet::new();
            for (batch, count) in inbox {
                if let Some(scout) = &mut scout
                    && warm.insert(batch.rows())
                {
                    let _ = scout.rehearse(batch.clone()).and_then(|_| runner.run(batch.clone()));
                }
                if outbox.send(time(&mut *runner, &batch, count)).is_err() {
                    break;
                }
            }
        });
        let is_elsewhere = loaded.is_elsewhere();
        Bench { threads: threads.get(), is_elsewhere, orders, times, _thread: thread }
    }

    /// Runs the batch so many times, and says how long each took.
    fn run(&self, batch: Tensors, count: usize) -> Result<Vec<Duration>, String> {
        let gone = || "the thread that measures has ended".to_owned();
        self.orders.send((batch, count)).map_err(|_| gone())?;
        self.times.recv().map_err(|_| gone())?
    }
}

fn time(runner: &mut dyn Runner, batch: &Tensors, count: usize) -> Result<Vec<Duration>, String> {
    let rows = batch.rows();
    let fails = |why: &dyn Display| format!("a batch of {} fails: {why}", plural(rows, "row"));
    let run = |_| {
        let batch = batch.clone();
        let begin = Instant::now();
        let outputs = runner.rehearse(batch).map_err(|error| fails(&error))?;
        let took = begin.elapsed();
        if let Some(why) = error_among(runner.signature(), &outputs) {
            return Err(fails(&why));
        }
        if !runner.signature().agrees(&outputs, rows) {
            return Err(format!("a batch of {} gives outputs of another shape", plural(rows, "row")));
        }
        Ok(took)
    };
    (0..count).map(run).collect()
}

/// What a model that takes any body has told a row in place of an answer. To a server, such an error is the row's own and the
/// batch has not failed; but here each row is one that the model is to take.
fn error_among(signature: &Signature, outputs: &Tensors) -> Option<String> {
    let answers = outputs.get(opaque::ANSWER).filter(|_| opaque::is_opaque(signature))?;
    opaque::elements(answers.data()).iter().find_map(|element| {
        let (AnswerHead { status, .. }, told) = opaque::decode(element).ok()?;
        (status >= ERRORS).then(|| String::from_utf8_lossy(told).trim_end().to_owned())
    })
}
