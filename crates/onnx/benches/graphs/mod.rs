//! Generated whole graphs, run with nodes joined and as they are: joining must change no answer.
//!
//! A graph of 5 to 40 nodes is made from a seed ([`make`]), with what exporters write and what nobody expects: residuals
//! before and after activations, values read twice, several outputs, constants in odd places. One that is answered in two
//! ways is made smaller as long as it still is ([`shrink`]).

mod file;
mod make;
mod shrink;

use std::fmt;
use std::ops::Range;

use burn::tensor::TensorData;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use uncork_onnx::{Graph as Compiled, Rule};

use file::Graph;

/// Rows of the batch that each graph is run on; it is run on the first one alone as well.
const ROWS: usize = 3;
/// Largest difference, as a part of an output's largest number. Joined nodes add in another order.
const NOISE: f64 = 1e-3;
/// One graph of this many is also run on numbers that are NaN, and one on infinite ones.
const SPOILT: u64 = 4;
/// What an output's largest number counts as at least.
const LEAST: f64 = 0.05;

/// A graph that is answered in two ways.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) seed: u64,
    what: String,
    /// The smallest graph that still shows it.
    graph: Graph,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}\n{}", self.seed, self.what, self.graph)
    }
}

/// What became of many graphs.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) graphs: u64,
    /// Those that both ways refuse.
    pub(crate) refused: u64,
    pub(crate) nodes: u64,
    pub(crate) findings: Vec<Finding>,
}

/// Tries a graph for each seed; stops at so many findings. `seen` is told after each.
pub(crate) fn search(seeds: Range<u64>, most_findings: usize, mut seen: impl FnMut(&Outcome)) -> Outcome {
    let mut outcome = Outcome::default();
    for seed in seeds {
        let graph = make::graph(seed);
        outcome.graphs += 1;
        outcome.nodes += graph.nodes.len() as u64;
        match verdict(&graph, seed) {
            Verdict::Same => {}
            Verdict::Refused => outcome.refused += 1,
            Verdict::Differs(_) => {
                let graph = shrink::smallest(graph, |graph| matches!(verdict(graph, seed), Verdict::Differs(_)));
                let Verdict::Differs(what) = verdict(&graph, seed) else {
                    unreachable!("it differed when it was kept")
                };
                outcome.findings.push(Finding { seed, what, graph });
            }
        }
        seen(&outcome);
        if outcome.findings.len() >= most_findings {
            break;
        }
    }
    outcome
}

enum Verdict {
    Same,
    /// However it is compiled.
    Refused,
    Differs(String),
}

/// Runs a graph as it is, joined by all rules, and joined by one.
fn verdict(graph: &Graph, seed: u64) -> Verdict {
    let file = graph.file();
    let one = Rule::ALL[seed as usize % Rule::ALL.len()];
    let plain = answers(&file, &[], graph, seed);
    for rules in [&Rule::ALL[..], &[one]] {
        let joined = answers(&file, rules, graph, seed);
        let rules = if rules.len() == 1 { format!("{one:?}") } else { "all rules".to_owned() };
        match (&plain, joined) {
            (Ok(plain), Ok(joined)) => {
                if let Some(what) = difference(plain, &joined) {
                    return Verdict::Differs(format!("joined by {rules}, {what}"));
                }
            }
            (Err(_), Err(_)) => {}
            (Ok(_), Err(e)) => return Verdict::Differs(format!("joined by {rules}, it is refused: {e}")),
            (Err(e), Ok(_)) => return Verdict::Differs(format!("only joined by {rules} it is not refused: {e}")),
        }
    }
    if plain.is_ok() { Verdict::Same } else { Verdict::Refused }
}

/// The outputs of a batch, and those of its first row alone.
type Answers = [Vec<Vec<f32>>; 2];

fn answers(file: &[u8], rules: &[Rule], graph: &Graph, seed: u64) -> Result<Answers, String> {
    let compiled = Compiled::load_joined_by(file, rules).map_err(|e| e.to_string())?;
    let run = |rows: usize| {
        let mut dice = StdRng::seed_from_u64(seed ^ 0x5eed);
        let inputs = graph.inputs.iter().map(|name| {
            let dims = &graph.dims[name];
            let width: usize = dims.iter().product();
            // The same first row in a batch as alone.
            let mut numbers: Vec<f32> = (0..ROWS * width).map(|_| dice.random_range(-2.0..2.0)).collect();
            spoil(&mut numbers, width, seed, &mut dice);
            TensorData::new(numbers[..rows * width].to_vec(), [&[rows][..], dims].concat())
        });
        let outputs = compiled.run(inputs.collect()).map_err(|e| e.to_string())?;
        outputs.into_iter().map(|o| o.try_to_vec::<f32>().map_err(|e| format!("{e:?}"))).collect::<Result<Vec<_>, _>>()
    };
    Ok([run(ROWS)?, run(1)?])
}

/// Puts NaN or infinity, if the seed wants one of them, in some rows: in one place or everywhere.
fn spoil(numbers: &mut [f32], width: usize, seed: u64, dice: &mut StdRng) {
    let number = match seed % SPOILT {
        1 => f32::NAN,
        3 => f32::INFINITY,
        _ => return,
    };
    for row in numbers.chunks_mut(width) {
        let at = dice.random_range(0..width);
        match dice.random_range(0..4) {
            0 => row.fill(number),
            1 => row[at] = number,
            2 => row[at] = -number,
            _ => {}
        }
    }
}

fn difference([plain, plain_row]: &Answers, [joined, joined_row]: &Answers) -> Option<String> {
    let far = |a: &[f32], b: &[f32]| {
        let scale = b.iter().filter(|x| x.is_finite()).fold(LEAST, |most, &x| most.max(f64::from(x).abs()));
        // Added in another order, infinities of both signs may or may not meet.
        let same = |a: f32, b: f32| a == b || !(a.is_finite() || b.is_finite());
        let near = |a: f32, b: f32| (f64::from(a) - f64::from(b)).abs() <= NOISE * scale;
        let far = |(a, b): (&f32, &f32)| !same(*a, *b) && !near(*a, *b);
        if a.len() != b.len() {
            return Some(format!("has {} numbers instead of {}", a.len(), b.len()));
        }
        let at = a.iter().zip(b).position(far)?;
        Some(format!("is {} instead of {} at {at}, of at most {scale}", a[at], b[at]))
    };
    for (i, (joined, plain)) in joined.iter().zip(plain).enumerate() {
        if let Some(what) = far(joined, plain) {
            return Some(format!("output {i} {what}"));
        }
    }
    for (i, ((joined, alone), plain)) in joined_row.iter().zip(plain_row).zip(plain).enumerate() {
        // A row by itself is what it is in a batch, either way.
        if let Some(what) = far(joined, alone).or_else(|| far(alone, plain.get(..alone.len())?)) {
            return Some(format!("output {i} of one row {what}"));
        }
    }
    None
}
