//! Runs made-up rows of several lengths when a model is loaded: what `follow` decides from, and whether padding changes answers.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::follow::{self, Observation, free_dims};
use super::{AxisLength, LengthRules, PaddedBatch};
use crate::quote::Quoted;
use crate::registry::fill::filled;
use crate::runner::{Runner, RunnerError, Signature};
use crate::tensor::{Data, Tensor, Tensors};

/// Most rows that are run to learn lengths, and the longest time for it: a text encoder takes about 40.
const MOST_ROWS: usize = 240;
const MOST_TIME: Duration = Duration::from_secs(60);
/// Lengths below and above the example's that are enough for one set of dimensions.
const SHORTER: usize = 4;
const LONGER: usize = 3;
/// Lengths tried to find the dimensions that change together, on each side of the example's: some models take multiples of 32 alone.
const MOST_TRIES: usize = 10;
/// Dimensions that change with another one, of which all choices are tried to find the fewest. More of them count as one set: requests
/// in which they differ then run by themselves.
const MOST_TIED: usize = 5;
/// Lengths tried in the place of a length of 1, which broadcasts and so hides what must be equally long.
const ABOVE_ONE: [usize; 5] = [16, 8, 5, 32, 64];
/// Largest difference, absolute plus relative, that padding may make: sums run over more numbers, some of them zero.
const PADDING_NOISE: f64 = 1e-3;

/// Builds a runner of the model. The error is a sentence for the operator.
pub(in crate::registry) type Fresh<'a> = &'a dyn Fn() -> Result<Box<dyn Runner>, String>;

/// Learns which output axes follow which lengths of the inputs, and checks that rows padded with zeros are answered as they are
/// without. Runs up to a few hundred single rows. `None` for a model whose inputs have no free dimension. The error is a sentence for
/// the operator.
pub(in crate::registry) fn learn(fresh: Fresh<'_>, example: &Tensors) -> Result<Option<Arc<LengthRules>>, String> {
    let runner = fresh()?;
    let signature = runner.signature().clone();
    let dims = free_dims(&signature);
    if dims.is_empty() {
        return Ok(None);
    }
    let example = example.clone().resize_rows(1).map_err(|error| error.to_string())?;
    let shapes: Vec<&[usize]> = example.iter().map(|(_, tensor)| &tensor.shape()[1..]).collect();
    let base = dims.iter().map(|&(i, k)| shapes.get(i)?.get(k).copied()).collect::<Option<Vec<usize>>>();
    let base = base.ok_or_else(|| "its example breaks its signature".to_owned())?;
    let (runs, taken, until) = (BTreeMap::new(), BTreeSet::new(), Instant::now() + MOST_TIME);
    let mut probe = LengthProbe { fresh, runner, signature, example, dims, runs, taken, left: MOST_ROWS, until };
    probe.rules(base).map(Some)
}

/// What the elements of a made-up row are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fill {
    Ones,
    Zeros,
    /// The model's example, cut or filled up with zeros.
    Example,
}

/// The model and what its runs gave so far.
struct LengthProbe<'a> {
    fresh: Fresh<'a>,
    runner: Box<dyn Runner>,
    signature: Signature,
    example: Tensors,
    /// Free dimensions of the inputs: input, axis of a row.
    dims: Vec<(usize, usize)>,
    /// By the lengths of the free dimensions, the shapes of the outputs of each row that ran; none if the model rejected all.
    runs: BTreeMap<Vec<usize>, Vec<Vec<Vec<usize>>>>,
    /// Widths that tensors have in any case: as a length, they could be mistaken for it, or broadcast.
    taken: BTreeSet<usize>,
    left: usize,
    until: Instant,
}

impl LengthProbe<'_> {
    fn rules(&mut self, base: Vec<usize>) -> Result<Arc<LengthRules>, String> {
        let base = self.above_one(base)?;
        // Some answers are as long as values say.
        let shapes = [Fill::Example, Fill::Zeros].map(|fill| self.shapes(&base, fill));
        if !self.ran(&base)? {
            return Err("no row of the example's lengths runs".to_owned());
        }
        for shapes in shapes {
            self.runs.entry(base.clone()).or_default().extend(shapes?);
        }
        let declared = self.signature.inputs.iter().chain(&self.signature.outputs).flat_map(|spec| &spec.dims);
        let widths = self.runs[&base].iter().flatten().flatten();
        self.taken = declared.flatten().chain(widths).chain(&base).copied().collect();
        let sets = self.sets(&base)?;
        let of_dims: Vec<Option<usize>> =
            (0..base.len()).map(|dim| sets.iter().position(|set| set.contains(&dim))).collect();
        let mut lengths = Vec::with_capacity(sets.len());
        for set in &sets {
            lengths.push(self.lengths_of(set, &base)?);
        }
        // The lesser of two lengths shows where one is short and the other long.
        let ends = |is_long: &dyn Fn(usize) -> bool| {
            let mut at = base.clone();
            for (i, (set, lengths)) in sets.iter().zip(&lengths).enumerate() {
                let end = if is_long(i) { lengths.last() } else { lengths.first() };
                set.iter().for_each(|&dim| at[dim] = end.copied().unwrap_or(base[dim]));
            }
            at
        };
        for at in [ends(&|i| i % 2 == 0), ends(&|i| i % 2 == 1), ends(&|_| true), ends(&|_| false)] {
            self.ran(&at)?;
        }
        let observations: Vec<Observation> = self
            .runs
            .iter()
            .flat_map(|(lengths, runs)| {
                runs.iter().map(|outputs| Observation { lengths: lengths.clone(), outputs: outputs.clone() })
            })
            .collect();
        let rules =
            follow::rules(&self.signature, &of_dims, &base, &observations).map_err(|why| match self.is_over() {
                true => format!("{why} (the time or the rows to try lengths with were used up)"),
                false => why,
            })?;
        let rules = Arc::new(rules);
        self.check_values(&rules, &lengths)?;
        Ok(rules)
    }

    /// Returns the example's lengths with others in the place of 1 where those run.
    fn above_one(&mut self, mut base: Vec<usize>) -> Result<Vec<usize>, String> {
        let ones: BTreeSet<usize> = (0..base.len()).filter(|&dim| base[dim] < 2).collect();
        let each = ones.iter().map(|&dim| BTreeSet::from([dim]));
        for set in std::iter::once(ones.clone()).chain(each) {
            for length in ABOVE_ONE {
                let at = with(&base, &set, length);
                if set.iter().any(|&dim| base[dim] < 2) && self.ran(&at)? {
                    base = at;
                }
            }
        }
        Ok(base)
    }

    /// Finds the free dimensions that must change together: those that run with another length, each in one set.
    fn sets(&mut self, base: &[usize]) -> Result<Vec<BTreeSet<usize>>, String> {
        let mut sets: Vec<BTreeSet<usize>> = Vec::new();
        for dim in 0..base.len() {
            if sets.iter().any(|set| set.contains(&dim)) {
                continue;
            }
            // A model may cut a mask that is too long, and reject one that is too short: both sides count.
            let (shorter, longer) = (self.shorter(base[dim]), self.longer(base[dim]));
            let mut set = self.changing_with(dim, base, &shorter, &BTreeSet::new())?;
            set.extend(self.changing_with(dim, base, &longer, &set)?);
            let (same, others): (Vec<_>, Vec<_>) = sets.into_iter().partition(|other| !other.is_disjoint(&set));
            set.extend(same.into_iter().flatten());
            sets = others;
            sets.extend((!set.is_empty()).then_some(set));
        }
        Ok(sets)
    }

    /// Returns the fewest dimensions, `dim` among them, that run with one of these lengths while the others keep theirs: `likely`
    /// if those do. Empty if none do.
    fn changing_with(
        &mut self,
        dim: usize,
        base: &[usize],
        lengths: &[usize],
        likely: &BTreeSet<usize>,
    ) -> Result<BTreeSet<usize>, String> {
        // Dimensions that must be equal are so in a row that runs.
        let equal: BTreeSet<usize> = (0..base.len()).filter(|&other| base[other] == base[dim]).collect();
        for &length in lengths.iter().filter(|&&length| length > 1).take(MOST_TRIES) {
            for set in [&BTreeSet::from([dim]), likely] {
                if !set.is_empty() && self.ran(&with(base, set, length))? {
                    return Ok(set.clone());
                }
            }
            if self.ran(&with(base, &equal, length))? {
                return self.fewest(dim, base, length, equal);
            }
        }
        Ok(BTreeSet::new())
    }

    /// Returns the fewest dimensions of `set`, which runs with `length`, that run with it and have `dim` among them.
    fn fewest(
        &mut self,
        dim: usize,
        base: &[usize],
        length: usize,
        mut set: BTreeSet<usize>,
    ) -> Result<BTreeSet<usize>, String> {
        for other in set.clone().into_iter().filter(|&other| other != dim) {
            let fewer: BTreeSet<usize> = set.iter().copied().filter(|&kept| kept != other).collect();
            if self.ran(&with(base, &fewer, length))? {
                set = fewer;
            }
        }
        // The remaining dimensions change in pairs or more: leaving out any single one of them fails.
        let others: Vec<usize> = set.iter().copied().filter(|&other| other != dim).collect();
        if others.len() > MOST_TIED {
            return Ok(set);
        }
        let mut choices: Vec<usize> = (1..1_usize << others.len()).collect();
        choices.retain(|choice| (choice.count_ones() as usize) + 1 < others.len());
        choices.sort_by_key(|choice| choice.count_ones());
        for choice in choices {
            let chosen = others.iter().enumerate().filter(|(i, _)| choice >> i & 1 == 1).map(|(_, &other)| other);
            let fewer: BTreeSet<usize> = chosen.chain([dim]).collect();
            if self.ran(&with(base, &fewer, length))? {
                return Ok(fewer);
            }
        }
        Ok(set)
    }

    /// Runs a set of dimensions with several lengths, and returns those that ran, from the shortest to the longest.
    fn lengths_of(&mut self, set: &BTreeSet<usize>, base: &[usize]) -> Result<Vec<usize>, String> {
        let own = set.first().map_or(0, |&dim| base[dim]);
        let mut ran = BTreeSet::from([own]);
        for (lengths, wanted) in [(self.shorter(own), SHORTER), (self.longer(own), LONGER)] {
            let mut found = 0;
            for length in lengths {
                if found < wanted && self.ran(&with(base, set, length))? {
                    ran.insert(length);
                    found += 1;
                }
            }
        }
        Ok(ran.into_iter().collect())
    }

    /// Returns lengths below `base` in the order in which they are tried: small ones, at which a cut at a constant place shows, parts of
    /// `base`, and multiples of 8 and 32.
    fn shorter(&self, base: usize) -> Vec<usize> {
        let parts = [base / 2, base / 4 * 3, base.saturating_sub(1), base / 4];
        let tried = [1, 2, 3, 7].into_iter().chain(parts).chain([8, 24, 32, 40, 64, 96, 160]);
        self.usable(tried.filter(|length| (1..base).contains(length)))
    }

    /// Returns lengths above `base` in the same way.
    fn longer(&self, base: usize) -> Vec<usize> {
        let times = |n: usize| base.saturating_mul(n);
        let plus = |n: usize| base.saturating_add(n);
        let tried = [plus(3), plus(32), times(2).saturating_add(1), plus(8), times(2), plus(64), times(3), plus(96)];
        self.usable(tried.into_iter().chain([times(4), plus(160), times(5)]))
    }

    /// Returns each length once that no tensor has in any case.
    fn usable(&self, lengths: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut seen = self.taken.clone();
        lengths.filter(|&length| seen.insert(length)).collect()
    }

    /// Whether a row of these lengths runs, of ones or cut from the example. The shapes of its outputs are kept.
    fn ran(&mut self, lengths: &[usize]) -> Result<bool, String> {
        if let Some(runs) = self.runs.get(lengths) {
            return Ok(!runs.is_empty());
        }
        let mut runs = Vec::new();
        for fill in [Fill::Ones, Fill::Example] {
            runs.extend(self.shapes(lengths, fill)?);
        }
        let ran = !runs.is_empty();
        self.runs.insert(lengths.to_vec(), runs);
        Ok(ran)
    }

    /// Returns the shapes of the outputs for such a row, or `None` if the model rejects it.
    fn shapes(&mut self, lengths: &[usize], fill: Fill) -> Result<Option<Vec<Vec<usize>>>, String> {
        if self.is_over() {
            return Ok(None);
        }
        self.left -= 1;
        let row = self.row(lengths, fill);
        let outputs = row.map_or(Ok(None), |row| self.run(row))?;
        Ok(outputs.map(|outputs| outputs.iter().map(|(_, tensor)| tensor.shape()[1..].to_vec()).collect()))
    }

    /// Whether no more lengths are tried.
    fn is_over(&self) -> bool {
        self.left == 0 || Instant::now() > self.until
    }

    /// Makes up a row. `None` if it were too large.
    fn row(&self, lengths: &[usize], fill: Fill) -> Option<Tensors> {
        let mut dims: Vec<Vec<usize>> = self
            .signature
            .inputs
            .iter()
            .map(|spec| spec.dims.iter().map(|dim| dim.unwrap_or_default()).collect())
            .collect();
        for (&(i, k), &length) in self.dims.iter().zip(lengths) {
            dims[i][k] = length;
        }
        match fill {
            Fill::Ones => filled(&self.signature, &dims, 1).ok(),
            Fill::Zeros => filled(&self.signature, &dims, 0).ok(),
            Fill::Example => self.example.clone().resize(&dims).ok(),
        }
    }

    /// Runs a row. `None` if the model rejects it, or if its outputs break the signature.
    fn run(&mut self, row: Tensors) -> Result<Option<Tensors>, String> {
        match catch_unwind(AssertUnwindSafe(|| self.runner.rehearse(row))) {
            Ok(Ok(outputs)) => Ok(self.signature.agrees(&outputs, 1).then_some(outputs)),
            // It says nothing of the row's lengths.
            Ok(Err(error @ (RunnerError::Absent(_) | RunnerError::Busy(_)))) => {
                Err(format!("lengths = \"pad\" cannot be tried: {error}"))
            }
            Ok(Err(_)) => Ok(None),
            Err(_) => {
                self.runner = (self.fresh)()?;
                Ok(None)
            }
        }
    }

    /// Checks that rows padded with zeros are answered as they are without, for several pairs of lengths.
    fn check_values(&mut self, rules: &Arc<LengthRules>, lengths: &[Vec<usize>]) -> Result<(), String> {
        let (mut checked, middle) = (0, |lengths: &Vec<usize>| lengths[lengths.len() / 2]);
        let (short, long): (Vec<usize>, Vec<usize>) =
            lengths.iter().map(|lengths| (lengths[0], lengths[lengths.len() - 1])).unzip();
        let mut pairs = vec![(short.clone(), long.clone())];
        for (set, of_set) in lengths.iter().enumerate() {
            let mut shorter = long.clone();
            shorter[set] = middle(of_set);
            pairs.push((shorter, long.clone()));
            let mut longer = short.clone();
            longer[set] = middle(of_set);
            pairs.push((short.clone(), longer));
        }
        for (short, long) in pairs {
            for fill in [Fill::Ones, Fill::Example] {
                if checked > 0 && self.is_over() {
                    return Ok(());
                }
                checked += usize::from(self.check_pair(rules, &short, &long, fill)?);
            }
        }
        self.check_places(rules, lengths)?;
        match checked {
            0 => Err("no row runs both with and without padding, so lengths = \"pad\" cannot be tried; use lengths = \"group\"".to_owned()),
            _ => Ok(()),
        }
    }

    /// Checks that an integer which is sent for a row as a whole is no place in it: of a padded row, the last place and those behind
    /// its own end are padding.
    fn check_places(&mut self, rules: &Arc<LengthRules>, lengths: &[Vec<usize>]) -> Result<(), String> {
        let ends = lengths.iter().map(|lengths| (lengths[lengths.len() / 2], lengths[lengths.len() - 1]));
        let (short, long): (Vec<usize>, Vec<usize>) = ends.unzip();
        let behind = short.iter().copied().max().and_then(|length| i64::try_from(length).ok()).unwrap_or(i64::MAX);
        for (i, axes) in rules.inputs.iter().enumerate() {
            let is_padded = axes.iter().any(|axis| matches!(axis, AxisLength::Follows(_)));
            for place in [-1, behind].into_iter().filter(|_| !is_padded) {
                let rows =
                    (self.row(&self.flat(rules, &short), Fill::Ones), self.row(&self.flat(rules, &long), Fill::Zeros));
                let (Some(row), Some(longer)) = rows else { continue };
                let Some(row) = with_place(row, i, place) else { break };
                let Some(plan) = PaddedBatch::plan(rules, &[row.clone(), longer]) else { continue };
                if self.is_over() {
                    return Ok(());
                }
                self.left = self.left.saturating_sub(2);
                let alone = self.run(row.clone())?;
                let padded = self.run(plan.pad(row).map_err(|error| error.to_string())?)?;
                let padded =
                    padded.map(|outputs| plan.cut(0, outputs)).transpose().map_err(|error| error.to_string())?;
                let is_same = match (&alone, &padded) {
                    (Some(alone), Some(padded)) => alone
                        .iter()
                        .zip(padded.iter())
                        .all(|((_, a), (_, b))| a.shape() == b.shape() && is_close(a.data(), b.data())),
                    (None, None) => true,
                    _ => false,
                };
                if !is_same {
                    return Err(format!(
                        "input {} is a place in a row, which padding moves or makes valid; use lengths = \"group\"",
                        Quoted(&self.signature.inputs[i].name)
                    ));
                }
            }
        }
        Ok(())
    }

    /// Returns the lengths of the free dimensions if the sets have these.
    fn flat(&self, rules: &LengthRules, lengths: &[usize]) -> Vec<usize> {
        let dims = super::dims(&rules.inputs, lengths);
        self.dims.iter().map(|&(i, k)| dims[i][k]).collect()
    }

    /// Checks one row of the lengths `short` that is padded to `long`, by set. `false` if the row itself does not run.
    fn check_pair(
        &mut self,
        rules: &Arc<LengthRules>,
        short: &[usize],
        long: &[usize],
        fill: Fill,
    ) -> Result<bool, String> {
        let words = |error: crate::tensor::TensorError| error.to_string();
        let rows = (self.row(&self.flat(rules, short), fill), self.row(&self.flat(rules, long), Fill::Zeros));
        let (Some(row), Some(longer)) = rows else { return Ok(false) };
        let Some(plan) = PaddedBatch::plan(rules, &[row.clone(), longer]) else { return Ok(false) };
        self.left = self.left.saturating_sub(2);
        let Some(alone) = self.run(row.clone())? else { return Ok(false) };
        let padded = self.run(plan.pad(row).map_err(words)?)?;
        let padded = padded.filter(|outputs| plan.agrees(outputs)).ok_or_else(|| {
            "a row that runs alone does not when it is padded with zeros; use lengths = \"group\"".to_owned()
        })?;
        let padded = plan.cut(0, padded).map_err(words)?;
        for ((name, alone), (_, padded)) in alone.iter().zip(padded.iter()) {
            if alone.shape() != padded.shape() || !is_close(alone.data(), padded.data()) {
                return Err(format!(
                    "output {} changes when rows are padded with zeros, so lengths = \"pad\" would answer wrongly; does the \
                     model take a mask as an input? If not, use lengths = \"group\"",
                    Quoted(name)
                ));
            }
        }
        Ok(true)
    }
}

/// Returns `row` with this number in all of input `i`; `None` if that does not hold signed integers of 32 or 64 bits.
fn with_place(row: Tensors, i: usize, place: i64) -> Option<Tensors> {
    let mut entries = row.into_entries();
    let (shape, data) = entries.get(i)?.1.clone().into_parts();
    let data = match data {
        Data::Int64(numbers) => Data::Int64(vec![place; numbers.len()]),
        Data::Int32(numbers) => Data::Int32(vec![i32::try_from(place).ok()?; numbers.len()]),
        _ => return None,
    };
    entries[i].1 = Tensor::new(shape, data).ok()?;
    Tensors::new(entries).ok()
}

/// Returns `base` with another length in some dimensions.
fn with(base: &[usize], dims: &BTreeSet<usize>, length: usize) -> Vec<usize> {
    let mut lengths = base.to_vec();
    dims.iter().for_each(|&dim| lengths[dim] = length);
    lengths
}

/// Whether two answers are the same up to the order of sums.
fn is_close(one: &Data, other: &Data) -> bool {
    let close =
        |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= PADDING_NOISE * (1.0 + a.abs());
    match (one, other) {
        (Data::Fp32(a), Data::Fp32(b)) => a.iter().zip(b).all(|(&a, &b)| close(a.into(), b.into())),
        (Data::Fp64(a), Data::Fp64(b)) => a.iter().zip(b).all(|(&a, &b)| close(a, b)),
        (a, b) => a == b,
    }
}
