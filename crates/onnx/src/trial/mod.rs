//! Finds a model's signature by trying the model on a few rows.
//!
//! Files declare shapes loosely or wrongly, so they are not believed. A row goes through the graph, and through it again
//! between two others: every output must have one index for each row along some axis, and what the row is answered must not
//! change, in several draws of random values and in batches of several sizes. What no trial can show, because values decide
//! how long an output is or when a loop ends, is read from the graph ([`influence`](super::influence)). What happens for some
//! values only is found where each node is tried by itself ([`crossing`]).
//!
//! A request is answered as the file answers that very request. If rows change each other's answers, or if nothing proves
//! that they do not, each request is therefore a run of its own, in the file's own shapes. Only a file that takes a single
//! row is given the rows of a request one at a time.

mod bodies;
mod compare;
mod crossing;
mod declared;
mod far;
mod layout;
mod lengths;
mod made;
mod operators;
mod others;
mod reach;
mod sample;
mod seen;
mod step;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

pub(super) use self::crossing::{Crossing, crossings};
use self::declared::{datatype, specs};
use self::lengths::is_batch;
use self::sample::{Company, MANNERS, Manner, Sample};
use super::Cause;
use super::graph::Graph;
use super::influence::Inputs;
use super::outline::{Declared, Dim};
use super::plan::Failure;
use super::shapes::free_dimensions;
use super::tensors;
use super::value::OpError;
use uncork_model::quote::Quoted;
use uncork_model::runner::{BatchAxes, Rows, Shapes, Signature, TensorSpec};
use uncork_model::tensor::{DataType, Tensor};

/// What is tried beyond the least that must be: more rounds, longer inputs.
const TIME: Duration = Duration::from_millis(300);
/// No further length is tried after this.
const PATIENCE: Duration = Duration::from_secs(10);

/// Rows of a batch by number, the places of those that are run alone as well, and the company that they are in, the wildest first:
/// a model may have no answer to that. The first round sees whether a row depends on those before or behind it, the others whether that holds
/// for other values and sizes. A row among louder ones sees what is compared with the largest of all, or scaled by it.
type Round = (&'static [usize], &'static [usize], &'static [Company]);
const ROUNDS: [Round; 4] = [
    (&[1, 0, 2], &[1], &[Company::Loud, Company::Alike]),
    (&[0, 1], &[0, 1], &[Company::Alike]),
    (
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        &[16, 4, 0],
        &[Company::Odd, Company::Loud, Company::Alike],
    ),
    (&[1, 0], &[1], &[Company::Broken, Company::Alike]),
];

/// How many copies of a row show whether a file computes several rows: two may be broadcast where three are not, and the reverse.
const COPIES: [usize; 2] = [3, 2];

/// The first round of a model of which one row takes longer than [`SLOW`].
const SHORT_ROUND: Round = (&[1, 0], &[1], &[Company::Loud, Company::Alike]);
const SLOW: Duration = Duration::from_millis(60);

/// Shorter lengths are these parts of those that are tried, and one at least.
const SHORTER: [usize; 5] = [1 << 16, 16, 8, 4, 2];

/// What a model takes and gives, and how its batches are run.
pub(super) struct Trial {
    pub(super) signature: Signature,
    /// Why rows, or requests where there are no rows, must be run one at a time; `None` where batches are run as a whole, and
    /// where the model is unbatched because somebody said so.
    pub(super) alone: Option<Cause>,
    /// Whether values decide how long outputs are, so that answers to two rows may not go into one tensor.
    pub(super) is_unsteady: bool,
    /// A row that has run, its tensors in the signature's order with rows along axis 0.
    pub(super) example: Vec<Tensor>,
}

/// Tries a graph, of whose shapes something may have been said.
pub(super) fn trial(graph: &Graph, shapes: &Shapes) -> Result<Trial, Cause> {
    let outline = &graph.outline;
    if outline.inputs.is_empty() || outline.outputs.is_empty() {
        return Err(Cause::Graph("it has no inputs or no outputs".into()));
    }
    let types: Vec<DataType> = outline.inputs.iter().map(datatype).collect::<Result<_, _>>()?;
    let bench = Bench { graph, types, length: shapes.length, begin: Instant::now() };
    let mut why = unbatchable(&outline.inputs, &shapes.batch_axes);
    let mut first = None;
    for rows in bench.plans(&shapes.batch_axes) {
        let attempt = match bench.settle(&rows) {
            Ok(attempt) => attempt,
            Err(error) => {
                why.get_or_insert(error);
                continue;
            }
        };
        let refused = match bench.batches(&attempt) {
            // Where there is a doubt the rows are known, only not whether they can share a run.
            Ok(found) => {
                let doubt = bench.doubt(&attempt, &found).or_else(|| bench.joined(&attempt));
                let doubt = doubt.or_else(|| bench.differing(&attempt, &found)).or_else(|| bench.repeated(&attempt));
                if doubt.is_some() && bench.computes_several(&attempt) {
                    return bench.by_request(doubt);
                }
                return Ok(bench.conclude(attempt, found, doubt));
            }
            Err(refused) => refused,
        };
        // What a file declares for one row it need not do for more.
        let declared = outline.inputs.iter().find(|input| matches!(input.dims.as_deref(), Some([Dim::Fixed(1), ..])));
        why.get_or_insert(declared.map_or(refused, |input| Cause::FixedBatch {
            name: input.name.clone(),
            found: "has a fixed first dimension of 1".into(),
        }));
        first.get_or_insert(attempt);
    }
    let has_run = first.is_some();
    if let Some(attempt) = first
        && !bench.computes_several(&attempt)
        && let Some(found) = bench.one_by_one(&attempt)
    {
        return Ok(bench.conclude(attempt, found, why));
    }
    // If no row runs at all, the failed run is the reason that the operator needs.
    bench.by_request(why.clone()).map_err(|error| if has_run { why.unwrap_or(error) } else { error })
}

/// Why a model without any batch axis has none.
fn unbatchable(inputs: &[Declared], said: &BatchAxes) -> Option<Cause> {
    if *said == BatchAxes::Unbatched {
        return None;
    }
    let timed = inputs.iter().find_map(|input| match input.dims.as_deref() {
        Some([Dim::Free(name), ..]) if lengths::is_time(name) => Some((input, name)),
        _ => None,
    });
    let is_open = |input: &Declared| input.dims.iter().flatten().filter(|dim| matches!(dim, Dim::Free(_))).count() > 1;
    if let Some((input, name)) = timed.filter(|_| !inputs.iter().any(is_open)) {
        let found = format!("has {} as its first dimension, which is no batch by its name", Quoted(name));
        return Some(Cause::FixedBatch { name: input.name.clone(), found });
    }
    let is_fixed = |input: &Declared| input.dims.iter().flatten().all(|dim| matches!(dim, Dim::Fixed(2..)));
    let first = inputs.first().filter(|_| inputs.iter().all(is_fixed))?;
    let found = match first.dims.as_deref() {
        Some([Dim::Fixed(n), ..]) => format!("has a fixed first dimension of {n}"),
        _ => "is a single number".into(),
    };
    Some(Cause::FixedBatch { name: first.name.clone(), found })
}

/// A graph and how long it has been tried.
struct Bench<'a> {
    graph: &'a Graph,
    types: Vec<DataType>,
    length: Option<usize>,
    begin: Instant,
}

/// One row that runs, and where inputs have their rows.
struct Attempt {
    inputs: Vec<TensorSpec>,
    /// The shape of one row of each input, without a batch axis.
    rows: Vec<Vec<usize>>,
    /// The same for longer free dimensions, if any is free.
    longer: Option<Vec<Vec<usize>>>,
    /// The same for shorter ones, the shortest first.
    shorter: Vec<Vec<Vec<usize>>>,
    /// The same where one free dimension is shorter and the others are as they were: by that dimension, the shortest first.
    uneven: Vec<Vec<Vec<Vec<usize>>>>,
    manner: Manner,
    /// What the model made of row 0 of draw 0.
    one: Vec<Tensor>,
    /// How long that took.
    took: Duration,
}

/// Where outputs have their rows, and all shapes that one row had.
struct Found {
    rows: Vec<Rows>,
    /// By output.
    shapes: Vec<Vec<Vec<usize>>>,
}

impl Bench<'_> {
    /// Where inputs may have their rows, the likeliest first.
    fn plans(&self, said: &BatchAxes) -> Vec<Vec<Rows>> {
        let inputs = &self.graph.outline.inputs;
        let named = match said {
            BatchAxes::Unbatched => return Vec::new(),
            BatchAxes::Named(axes) => Some(axes),
            BatchAxes::Found => None,
        };
        let dims = |input: &Declared| input.dims.clone().unwrap_or_default();
        let fronts = inputs.iter().filter_map(|input| match dims(input).first() {
            Some(Dim::Free(name)) if !lengths::is_time(name) => Some(name.clone()),
            _ => None,
        });
        let fronts: Vec<String> = fronts.collect();
        let telling = fronts.iter().find(|name| name.to_lowercase().contains("batch"));
        let batch = telling.or(fronts.first()).filter(|name| !name.is_empty()).map_or("", String::as_str);
        let is_batch = |dim: &Dim| matches!(dim, Dim::Free(name) if !name.is_empty() && name == batch);
        let declared: Vec<Rows> = inputs
            .iter()
            .map(|input| {
                let dims = dims(input);
                let open = |dim: &Dim| matches!(dim, Dim::Free(_));
                let axis = match dims.first() {
                    None => None,
                    Some(Dim::Free(name)) if lengths::is_time(name) => {
                        dims.iter().skip(1).position(open).map(|behind| behind + 1)
                    }
                    Some(Dim::Fixed(2..)) => {
                        dims.iter().position(open).or_else(|| dims.iter().position(|dim| *dim == Dim::Fixed(1)))
                    }
                    Some(_) => Some(0),
                };
                dims.iter().position(is_batch).or(axis).map_or(Rows::Shared, Rows::Axis)
            })
            .collect();
        // Not every input need have rows: one may be a threshold, or of a length of its own.
        let few = inputs.iter().zip(&declared).map(|(input, &rows)| match dims(input).first() {
            Some(Dim::Fixed(1)) if !fronts.is_empty() => Rows::Shared,
            Some(Dim::Free(name)) if rows == Rows::Axis(0) && name != batch => Rows::Shared,
            _ => rows,
        });
        // Time may come first.
        let second = inputs.iter().zip(&declared).map(|(input, &rows)| match dims(input)[..] {
            [Dim::Free(_), Dim::Free(_), ..] => Rows::Axis(1),
            _ => rows,
        });
        let (few, second) = (few.collect(), second.collect());
        let mut plans = vec![declared, few, second];
        for plan in &mut plans {
            for (rows, input) in plan.iter_mut().zip(inputs) {
                if let Some(said) = named.and_then(|named| named.get(&input.name)) {
                    *rows = *said;
                }
            }
        }
        plans.dedup();
        plans.retain(|plan| plan.iter().any(|rows| *rows != Rows::Shared));
        plans
    }

    /// The first lengths, and the boldest values, with which one row runs.
    fn settle(&self, rows: &[Rows]) -> Result<Attempt, Cause> {
        let declared = &self.graph.outline.inputs;
        let inputs = specs(declared, &self.types, rows)?;
        let choices = lengths::shapes(declared, &self.types, rows, self.length);
        let is_free = choices.len() > 1;
        let mut failure = None;
        for shapes in choices {
            let row_shapes = behind(&shapes, rows);
            for manner in MANNERS {
                let sample = Sample { inputs: &inputs, rows: &row_shapes, manner, company: Company::Alike, draw: 0 };
                let begin = Instant::now();
                match self.run(&sample, &[0]) {
                    Ok(one) => {
                        let took = begin.elapsed();
                        let changed = |change: &dyn Fn(usize) -> usize| {
                            lengths::changed(declared, &self.types, rows, &shapes, change)
                        };
                        let other = |other: lengths::Shapes| (other != shapes).then(|| behind(&other, rows));
                        let longer = other(changed(&|n| n * 2));
                        let short = |part: usize| changed(&|n| (n / part).max(1));
                        let shorter = SHORTER.iter().filter_map(|&part| other(short(part))).collect();
                        let uneven = lengths::single(&shapes, &SHORTER.map(short)).into_iter();
                        let uneven = uneven.map(|each| each.into_iter().filter_map(other).collect()).collect();
                        return Ok(Attempt { inputs, rows: row_shapes, longer, shorter, uneven, manner, one, took });
                    }
                    Err(found) => failure.get_or_insert(found),
                };
            }
            if self.begin.elapsed() > PATIENCE {
                break;
            }
        }
        let failure = failure.unwrap_or_else(|| OpError::new("it was never tried").into());
        if is_free {
            let known = free_dimensions(&self.graph.outline);
            return Err(Cause::Lengths { failure: failure.to_string(), known });
        }
        Err(failed(failure))
    }

    /// Runs rows in batches and alone. Says where outputs have their rows, or why the rows cannot share a batch.
    fn batches(&self, attempt: &Attempt) -> Result<Found, Cause> {
        let names: Vec<&str> = self.graph.outline.outputs.iter().map(|output| output.name.as_str()).collect();
        let first = names[0].to_owned();
        if attempt.manner == Manner::Zero {
            let found = "can be computed for zeros only, as far as was tried".into();
            return Err(Cause::NoBatchAxis { name: first, found });
        }
        let mut rows: Option<Vec<Rows>> = None;
        let mut shapes: Vec<Vec<Vec<usize>>> = vec![Vec::new(); names.len()];
        for (draw, round) in ROUNDS.iter().enumerate() {
            let (numbers, places, companies) = if draw == 0 && attempt.took > SLOW { &SHORT_ROUND } else { round };
            if draw > 0 && self.is_late(attempt.took * (numbers.len() + places.len()) as u32) {
                continue;
            }
            let mut ran = None;
            for &company in *companies {
                match self.round(attempt, draw, numbers, places, company) {
                    Ok(both) => ran = both,
                    Err(failure) if company == Company::Alike => {
                        let found = format!("can be computed for one row only ({failure})");
                        return Err(Cause::NoBatchAxis { name: first, found });
                    }
                    Err(_) => {}
                }
                if ran.is_some() {
                    break;
                }
            }
            // Where nothing has run, it takes other values than these: they show nothing.
            let Some((alone, many)) = ran else { continue };
            let rows = match &mut rows {
                Some(rows) => rows,
                unknown => unknown.insert(self.output_rows(attempt, &alone[0], &many, numbers.len())?),
            };
            for (one, &place) in alone.iter().zip(*places) {
                for (i, (one, many)) in one.iter().zip(&many).enumerate() {
                    if !is_within(rows[i], place, many) || !compare::is_same(one, &compare::row(many, rows[i], place)) {
                        let crossing = self.crossing(attempt).map(|(_, crossing)| crossing);
                        return Err(Cause::MixedRows { name: names[i].to_owned(), crossing });
                    }
                    shapes[i].push(one.shape().to_vec());
                }
            }
        }
        let found = |rows| Found { rows, shapes };
        rows.map(found).ok_or(Cause::NoBatchAxis { name: first, found: "was never computed".into() })
    }

    /// What some rows are answered alone, and what all are together. Nothing where one has no answer alone.
    #[expect(clippy::type_complexity)]
    fn round(
        &self,
        attempt: &Attempt,
        draw: usize,
        numbers: &[usize],
        places: &[usize],
        company: Company,
    ) -> Result<Option<(Vec<Vec<Tensor>>, Vec<Tensor>)>, Failure> {
        let mut failure = None;
        // Values of this draw may point nowhere, those of one row or those of others.
        for manner in [attempt.manner, Manner::Tame, Manner::Still] {
            let sample = Sample { company, manner, ..attempt.sample(draw) };
            let is_first = |place: usize| draw == 0 && numbers[place] == 0 && manner == attempt.manner;
            let one = |&place: &usize| match is_first(place) {
                true => Ok(attempt.one.clone()),
                false => self.run(&sample, &[numbers[place]]),
            };
            let Ok(alone) = places.iter().map(one).collect() else { continue };
            match self.run(&sample, numbers) {
                Ok(many) => return Ok(Some((alone, many))),
                Err(why) => failure.get_or_insert(why),
            };
        }
        failure.map_or(Ok(None), Err)
    }

    /// Where outputs have their rows: one and so many.
    fn output_rows(
        &self,
        attempt: &Attempt,
        one: &[Tensor],
        many: &[Tensor],
        count: usize,
    ) -> Result<Vec<Rows>, Cause> {
        let by = attempt.batched();
        let outputs = self.graph.outline.outputs.iter().zip(one).zip(many).enumerate();
        let found = outputs.map(|(i, ((declared, one), many))| {
            // What all rows share is nothing that they decide.
            let values = self.graph.influence.values.get(i).is_some_and(|values| values.meets(by));
            let rows = compare::rows_of(one.shape(), many.shape(), count);
            rows.filter(|rows| *rows != Rows::Shared || !values).ok_or_else(|| {
                let found = format!("has the shape {:?} for 1 row and {:?} for {count}", one.shape(), many.shape());
                Cause::NoBatchAxis { name: declared.name.clone(), found }
            })
        });
        found.collect()
    }

    /// Why rows may change each other's answers although none was seen to.
    fn doubt(&self, attempt: &Attempt, found: &Found) -> Option<Cause> {
        let (influence, by) = (&self.graph.influence, attempt.batched());
        if let Some(place) = influence.turn(by) {
            let found = format!("{place} goes by the values of all rows at once");
            return Some(Cause::Doubt { found, advice: "" });
        }
        let outputs = self.graph.outline.outputs.iter().zip(&influence.lengths);
        let unsteady = outputs.zip(&found.rows).find(|((_, lengths), _)| lengths.meets(by));
        unsteady.map(|((output, _), _)| Cause::Doubt {
            found: format!("the values of all rows decide how long the output {} is", Quoted(&output.name)),
            advice: "",
        })
    }

    /// Why rows change each other's answers where a node takes several of them together.
    fn joined(&self, attempt: &Attempt) -> Option<Cause> {
        let (output, crossing) = self.crossing(attempt)?;
        let found = format!("{crossing} for the output {}", Quoted(output));
        Some(Cause::Doubt { found, advice: crossing.advice() })
    }

    /// A model that takes each request as it is, for the reason `why`; none if the operator said so.
    fn by_request(&self, why: Option<Cause>) -> Result<Trial, Cause> {
        let attempt = self.settle(&vec![Rows::Shared; self.graph.outline.inputs.len()])?;
        let found = self.unbatched(&attempt);
        Ok(self.conclude(attempt, found, why))
    }

    /// Whether the file answers requests of several rows: it declares that it does, and it computes several copies of the row
    /// that it has computed, so that no value stands in the way.
    fn computes_several(&self, attempt: &Attempt) -> bool {
        let declared = self.graph.outline.inputs.iter().zip(&attempt.inputs);
        let is_open = |(declared, spec): (&Declared, &TensorSpec)| {
            axis_of(spec).is_some_and(|axis| {
                !matches!(declared.dims.as_deref().and_then(|dims| dims.get(axis)), Some(Dim::Fixed(_)))
            })
        };
        declared.into_iter().any(is_open)
            && COPIES.iter().any(|&copies| self.run(&attempt.sample(0), &vec![0; copies]).is_ok())
    }

    /// The outputs of rows that are run one at a time, if the first axis of what has rows is a batch.
    fn one_by_one(&self, attempt: &Attempt) -> Option<Found> {
        let declared = self.graph.outline.inputs.iter().zip(&attempt.inputs);
        let mut batched = declared.filter_map(|(declared, spec)| match spec.rows {
            Rows::Axis(axis) => Some(is_batch(declared, axis)),
            Rows::Shared => None,
        });
        let shapes = self.shapes_alone(attempt);
        let is_front = |shapes: &Vec<Vec<usize>>| shapes.iter().all(|shape| shape.first() == Some(&1));
        let is_clear = batched.all(|is_batch| is_batch) && shapes.iter().all(is_front);
        is_clear.then(|| Found { rows: vec![Rows::Axis(0); shapes.len()], shapes })
    }

    /// The outputs of a model that has no rows.
    fn unbatched(&self, attempt: &Attempt) -> Found {
        let shapes = self.shapes_alone(attempt);
        Found { rows: vec![Rows::Shared; shapes.len()], shapes }
    }

    /// Shapes of the outputs for one row of several draws.
    fn shapes_alone(&self, attempt: &Attempt) -> Vec<Vec<Vec<usize>>> {
        let mut shapes: Vec<Vec<Vec<usize>>> = attempt.one.iter().map(|one| vec![one.shape().to_vec()]).collect();
        for draw in 1..ROUNDS.len() {
            if self.is_late(attempt.took) {
                break;
            }
            let outputs = self.run(&attempt.sample(draw), &[0]).unwrap_or_default();
            shapes.iter_mut().zip(outputs).for_each(|(shapes, output)| shapes.push(output.shape().to_vec()));
        }
        shapes
    }

    /// Puts together what was found.
    fn conclude(&self, attempt: Attempt, found: Found, alone: Option<Cause>) -> Trial {
        // Where lengths are free, what follows them is found by longer ones. Twice as high and wide takes four times as long.
        let longer = attempt.longer.as_ref().filter(|_| !self.is_late(attempt.took * 4));
        let longer = longer.and_then(|rows| self.run(&Sample { rows, ..attempt.sample(0) }, &[0]).ok());
        let is_open = attempt.longer.is_some() && longer.is_none();
        let mut outputs = Vec::new();
        let mut is_unsteady = false;
        for (i, declared) in self.graph.outline.outputs.iter().enumerate() {
            let rows = found.rows[i];
            let mut shapes = found.shapes[i].clone();
            let varies = shapes.windows(2).any(|pair| pair[0] != pair[1]);
            // Whether an input has rows or not, the next request may bring other values.
            let by_values = varies || self.graph.influence.lengths.get(i).is_some_and(|own| *own != Inputs::default());
            is_unsteady |= by_values;
            shapes.extend(longer.iter().map(|outputs| outputs[i].shape().to_vec()));
            let one = &attempt.one[i];
            let is_known = |axis: usize| {
                let length = one.shape()[axis];
                let said =
                    declared.dims.as_ref().filter(|dims| dims.len() == one.shape().len()).map(|dims| &dims[axis]);
                let stays = shapes.iter().all(|shape| shape.get(axis) == Some(&length));
                // None at all may mean that this row had none. And two lengths that agree prove nothing where others are free, and the
                // file says that this one is: `x[:, :8]` has 8 of 16 and of 32.
                let may_follow = attempt.longer.is_some() && !matches!(said, Some(Dim::Fixed(_)));
                let is_sure = !by_values && !is_open && !may_follow && length > 0;
                stays && (is_sure || said == Some(&Dim::Fixed(length as u64)))
            };
            let dims = (0..one.shape().len()).filter(|&axis| rows != Rows::Axis(axis));
            let dims = dims.map(|axis| is_known(axis).then_some(one.shape()[axis])).collect();
            let name = &*declared.name;
            outputs.push(TensorSpec { rows, ..TensorSpec::new(name, one.data().datatype(), dims) });
        }
        let example = attempt.sample(0).batch(&[0]).unwrap_or_default();
        let in_front = |(spec, tensor): (&TensorSpec, Tensor)| match spec.rows {
            Rows::Axis(axis) => Ok(tensor.axis_to_front(axis)),
            Rows::Shared => tensor.repeated(1),
        };
        let example = attempt.inputs.iter().zip(example).map(in_front).collect::<Result<_, _>>().unwrap_or_default();
        Trial { signature: Signature { inputs: attempt.inputs, outputs }, alone, is_unsteady, example }
    }

    /// Whether something that takes so long is beyond what may be tried.
    fn is_late(&self, time: Duration) -> bool {
        self.begin.elapsed() + time > TIME
    }

    /// Runs rows; gives the outputs in the model's own shapes.
    fn run(&self, sample: &Sample<'_>, rows: &[usize]) -> Result<Vec<Tensor>, Failure> {
        let outputs = self.graph.rehearse(sample.batch(rows)?)?;
        for (tensor, declared) in outputs.iter().zip(&self.graph.outline.outputs) {
            let (found, name) = (tensor.data().datatype(), &declared.name);
            if let Some(want) = tensors::datatype(declared.element).filter(|want| *want != found) {
                let (found, want) = (found.name(), want.name());
                return Err(OpError(format!("output {} is {found}, but declared as {want}", Quoted(name))).into());
            }
        }
        Ok(outputs)
    }
}

impl Attempt {
    fn sample(&self, draw: usize) -> Sample<'_> {
        Sample { inputs: &self.inputs, rows: &self.rows, manner: self.manner, company: Company::Alike, draw }
    }

    /// The inputs that have rows; all of them where there are none.
    fn batched(&self) -> Inputs {
        let is_unbatched = self.inputs.iter().all(|spec| spec.rows == Rows::Shared);
        let inputs = self.inputs.iter().enumerate();
        let inputs = inputs.filter(|(_, spec)| is_unbatched || spec.rows != Rows::Shared);
        inputs.map(|(i, _)| Inputs::one(i)).fold(Inputs::default(), Inputs::and)
    }
}

/// The axis along which an input has its rows.
fn axis_of(spec: &TensorSpec) -> Option<usize> {
    match spec.rows {
        Rows::Axis(axis) => Some(axis),
        Rows::Shared => None,
    }
}

/// Whether a tensor has a row at `place`.
fn is_within(rows: Rows, place: usize, tensor: &Tensor) -> bool {
    match rows {
        Rows::Axis(axis) => tensor.shape().get(axis).is_some_and(|&length| place < length),
        Rows::Shared => true,
    }
}

/// Shapes of rows without their batch axes.
fn behind(shapes: &[Vec<usize>], rows: &[Rows]) -> Vec<Vec<usize>> {
    let without = |(shape, rows): (&Vec<usize>, &Rows)| {
        let is_kept = |(axis, _): &(usize, &usize)| *rows != Rows::Axis(*axis);
        shape.iter().enumerate().filter(is_kept).map(|(_, &n)| n).collect()
    };
    shapes.iter().zip(rows).map(without).collect()
}

fn failed(failure: Failure) -> Cause {
    let Failure { place, reason } = failure;
    match place {
        Some(place) => Cause::Trial { operator: place.operator, node: place.node, reason },
        None => Cause::Graph(reason),
    }
}
