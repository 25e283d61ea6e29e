//! One node by itself: what decides its outputs.

use std::time::{Duration, Instant};

use burn_backend::TensorData;
use burn_dispatch::DispatchDevice;

use super::bodies::Inside;
use super::crossing::{Meeting, Pair, Tie};
use super::layout::Layout;
use super::made::{Distance, differing, made};
use super::operators::{
    BY_ELEMENT, BY_PLACE, EXACT, IN_FRONT, IN_ORDER, LOOSE, REPEATING, STEADY, is_index, is_place, is_shape,
};
use super::sample::mix;
use super::seen::Seen;
use crate::fence::fenced;
use crate::limits::Budget;
use crate::ops::Args;
use crate::plan::Compiled;
use crate::value::{HostInts, OpError, Value};

/// A node that takes longer than this for a few rows is tried once.
const SLOW: Duration = Duration::from_millis(20);
/// Very many rows, more than any batch has. A power of two takes nothing from the precision of floats.
const FAR: i64 = 1 << 20;
/// So many numbers at most are followed for very many rows.
const FEW: usize = 1 << 10;

/// An argument of a step.
#[derive(Clone)]
pub(super) enum Argument {
    Absent,
    Constant(Value),
    Pair(Box<Pair>),
}

/// A step with its arguments.
pub(super) struct Step<'a> {
    pub(super) at: usize,
    pub(super) step: &'a Compiled,
    pub(super) arguments: Vec<Argument>,
    pub(super) count: usize,
    pub(super) device: &'a DispatchDevice,
}

impl Step<'_> {
    /// What it gives. `inside` was found in its bodies.
    pub(super) fn pairs(self, inside: &Inside) -> Result<Vec<Pair>, OpError> {
        let ones = self.run(|_, pair| Ok(pair.one.clone()))?;
        let begin = Instant::now();
        let manys = self.run(|_, pair| Ok(pair.many.clone()))?;
        let is_slow = begin.elapsed() > SLOW;
        let fars = self.fars(&ones, &manys);
        let mut ties = self.ties(&ones, &manys, &fars, is_slow);
        for (tie, how) in ties.iter_mut().zip(&inside.meetings).filter_map(|(tie, how)| Some((tie, (*how)?))) {
            if matches!(tie, Tie::Nothing | Tie::Rows(..) | Tie::Number(..)) {
                *tie = Tie::Mixed(self.at, how);
            }
        }
        let reaches = self.reaches(&manys, &ties);
        let is_shared = self.is_shared();
        let mut fars = fars.into_iter();
        let outputs = ones.into_iter().zip(manys).zip(ties).zip(reaches);
        let pairs = outputs.map(|(((one, many), tie), reach)| {
            let far = fars.next().filter(|far| grows(&tie, &many, far));
            Pair { one, many, far, tie, is_shared, reach }
        });
        Ok(pairs.collect())
    }

    /// Runs the node on what `of` makes of each argument that is no constant.
    fn run(&self, mut of: impl FnMut(usize, &Pair) -> Result<Value, OpError>) -> Result<Vec<Value>, OpError> {
        let values = self.arguments.iter().enumerate().map(|(i, argument)| match argument {
            Argument::Absent => Ok(None),
            Argument::Constant(value) => Ok(Some(value.clone())),
            Argument::Pair(pair) => of(i, pair).map(Some),
        });
        self.run_on(values.collect::<Result<_, _>>()?)
    }

    /// Runs the node on these arguments.
    pub(super) fn run_on(&self, mut values: Vec<Option<Value>>) -> Result<Vec<Value>, OpError> {
        let budget = Budget::rehearsal();
        fenced(|| self.step.kernel.run(Args::new(&mut values, self.device, &budget)))?
    }

    pub(super) fn operator(&self) -> &str {
        &self.step.place.operator
    }

    /// The arguments that are no constants, with their places.
    pub(super) fn given(&self) -> impl Iterator<Item = (usize, &Pair)> {
        self.arguments.iter().enumerate().filter_map(|(i, argument)| match argument {
            Argument::Pair(pair) => Some((i, &**pair)),
            Argument::Absent | Argument::Constant(_) => None,
        })
    }

    /// Those that something decides.
    pub(super) fn tied(&self) -> impl Iterator<Item = (usize, &Pair)> {
        self.given().filter(|(_, pair)| pair.tie != Tie::Nothing)
    }

    /// Whether what all rows share of what a caller sends becomes a part of the outputs.
    pub(super) fn is_shared(&self) -> bool {
        !matches!(self.operator(), "Shape" | "Size") && self.given().any(|(_, pair)| pair.is_shared)
    }

    /// What decides each output.
    fn ties(&self, ones: &[Value], manys: &[Value], fars: &[Value], is_slow: bool) -> Vec<Tie> {
        let all = |tie: Tie| vec![tie; manys.len()];
        if self.tied().next().is_none() {
            return all(Tie::Nothing);
        }
        let loose = self.tied().find_map(|(_, pair)| if let Tie::Loose(at) = pair.tie { Some(at) } else { None });
        let unknown = self.tied().find_map(|(_, pair)| if let Tie::Unknown(at) = pair.tie { Some(at) } else { None });
        if matches!(self.operator(), "Shape" | "Size") {
            if let Some(at) = loose {
                return all(Tie::Count(at));
            }
            let number = |(one, many): (&Value, &Value)| match differing(one, many) {
                Ok(places) if unknown.is_none() && one.shape() == many.shape() => numbered(&places, many, self.at),
                _ => Tie::Unknown(unknown.unwrap_or(self.at)),
            };
            return ones.iter().zip(manys).map(number).collect();
        }
        let mixed = self.tied().find(|(_, pair)| matches!(pair.tie, Tie::Mixed(..)));
        if let Some((_, pair)) = mixed {
            return all(pair.tie.clone());
        }
        if let Some(at) = loose {
            let is_as_long = BY_PLACE.contains(&self.operator()) || self.operator() == "Transpose";
            return all(if is_as_long { Tie::Loose(at) } else { Tie::Unknown(at) });
        }
        if let Some(at) = unknown {
            return all(Tie::Unknown(at));
        }
        let has_rows = self.tied().any(|(_, pair)| matches!(pair.tie, Tie::Rows(..)));
        if let Some((i, at)) =
            self.tied().find_map(|(i, pair)| if let Tie::Count(at) = pair.tie { Some((i, at)) } else { None })
        {
            return all(match (is_place(self.operator(), i) || self.operator() == "Range", has_rows) {
                (true, _) => Tie::Unknown(at),
                (false, true) => Tie::Mixed(at, Meeting::Values),
                (false, false) => Tie::Count(at),
            });
        }
        if !has_rows {
            return self.numbers(ones, manys, fars);
        }
        if self.is_reshaped_at_will() {
            return all(Tie::Unknown(self.at));
        }
        // A list of one word for each row is one text, and no row of a trial need have a word that it knows.
        if self.operator() == "TfIdfVectorizer" && ones.iter().zip(manys).all(|(one, many)| one.shape() == many.shape())
        {
            return all(Tie::Mixed(self.at, Meeting::Values));
        }
        if self.tells_far_rows_apart() {
            return all(Tie::Mixed(self.at, Meeting::Number));
        }
        let by_number = self.tied().find_map(|(i, pair)| match &pair.tie {
            Tie::Number(which, at) if which.contains(&true) => self.is_part(i, pair, ones, manys).then_some(*at),
            // What is taken from a table of no rows is another for another place among them.
            Tie::Rows(_, Some(at)) => {
                let mut others = self.tied().filter(|(other, _)| !is_place(self.operator(), *other));
                let is_table =
                    is_index(self.operator(), i) && !others.any(|(_, pair)| matches!(pair.tie, Tie::Rows(..)));
                (is_table || !is_place(self.operator(), i)).then_some(*at)
            }
            _ => None,
        });
        let known: Option<Vec<Layout>> = ones.iter().zip(manys).map(|(one, many)| self.known(one, many)).collect();
        match known {
            Some(layouts) => layouts.into_iter().map(|layout| Tie::Rows(layout, by_number)).collect(),
            None => self.tried(ones, manys, by_number, is_slow),
        }
    }

    /// Whether a number that a caller sends for all rows says how they are laid out anew, with nothing that keeps them apart: `x.view(-1, w)`.
    fn is_reshaped_at_will(&self) -> bool {
        let ("Reshape", [Argument::Pair(data), Argument::Pair(shape), ..]) = (self.operator(), &*self.arguments) else {
            return false;
        };
        let Tie::Rows(Layout { axis, .. }, _) = data.tie else { return false };
        let is_number = matches!(&shape.tie, Tie::Number(which, _) if which.get(axis) == Some(&true));
        let is_kept = |ints: HostInts| ints.ints.get(axis) == Some(&0);
        shape.is_shared && !is_number && !shape.many.clone().ints().is_ok_and(is_kept)
    }

    /// Whether a number of rows becomes a part of the result. One that only says where rows are taken from, or how many there are, does not: with one
    /// more or less, rows are the same, or there is another number of them.
    fn is_part(&self, i: usize, pair: &Pair, ones: &[Value], manys: &[Value]) -> bool {
        if !is_place(self.operator(), i) || self.is_uneven(pair) {
            return true;
        }
        // There is one for each row, or it is nothing but a shape.
        if pair.one.shape() != pair.many.shape() || is_shape(self.operator()) {
            return false;
        }
        let changes = |by: i64| {
            let others =
                self.run(|own, pair| if own == i { shifted(pair, by, self.device) } else { Ok(pair.many.clone()) });
            let mut each = ones.iter().zip(manys).zip(others.unwrap_or_default());
            each.any(|((one, many), other)| {
                let (own, dims) = (many.shape(), other.shape());
                let rows = Layout::candidates(&one.shape(), &own, self.count).first().map(|layout| layout.axis);
                let is_other = |axis: usize| Some(axis) != rows && own[axis] != dims[axis];
                own.len() != dims.len()
                    || (0..own.len()).any(is_other)
                    || own == dims && !differing(many, &other).is_ok_and(|places| places.is_empty())
            })
        };
        changes(1) || changes(-1)
    }

    /// Whether it grows by another number of rows than a few: what is `min(rows, 30)`, or `max(rows - 50, 1)`.
    fn is_uneven(&self, pair: &Pair) -> bool {
        let even = extended(&pair.one, &pair.many, self.count as i64, self.device);
        let places = pair.far.as_ref().zip(even.ok()).map(|(far, even)| differing(far, &even));
        places.is_some_and(|places| places.is_ok_and(|places| !places.is_empty()))
    }

    /// What it gives for very many rows, where that is a few numbers that follow from how many there are.
    fn fars(&self, ones: &[Value], manys: &[Value]) -> Vec<Value> {
        let is_few = |(one, many): (&Value, &Value)| {
            let dims = many.shape();
            one.shape() == dims && dims.iter().product::<usize>() <= FEW
        };
        if self.tied().next().is_none() || !ones.iter().zip(manys).all(is_few) {
            return Vec::new();
        }
        let is_shape = matches!(self.operator(), "Shape" | "Size");
        if is_shape && let Some((_, pair)) = self.tied().next() {
            let (one, many) = (pair.one.shape(), pair.many.shape());
            let grown = one.iter().zip(&many).filter(|(one, many)| one != many).count();
            let is_known =
                matches!(pair.tie, Tie::Rows(..) | Tie::Number(..)) && (self.operator() == "Shape" || grown <= 1);
            let each = ones.iter().zip(manys).map(|(one, many)| extended(one, many, self.count as i64, self.device));
            return if is_known { each.collect::<Result<_, _>>().unwrap_or_default() } else { Vec::new() };
        }
        if !self.tied().all(|(_, pair)| matches!(pair.tie, Tie::Number(..)) && pair.far.is_some()) {
            return Vec::new();
        }
        let fars = self.run(|_, pair| Ok(pair.far.as_ref().unwrap_or(&pair.many).clone())).unwrap_or_default();
        let is_same = fars.iter().zip(manys).all(|(far, many)| far.shape() == many.shape());
        if is_same { fars } else { Vec::new() }
    }

    /// What decides the outputs of a node that reads how many rows there are, and none of them.
    fn numbers(&self, ones: &[Value], manys: &[Value], fars: &[Value]) -> Vec<Tie> {
        let operator = self.operator();
        let origin = self.tied().find_map(|(_, pair)| match pair.tie {
            Tie::Number(_, at) => Some(at),
            _ => None,
        });
        let origin = origin.unwrap_or(self.at);
        if REPEATING.contains(&operator) && self.tied().all(|(i, _)| is_place(operator, i)) {
            let repeated = |(one, many): (&Value, &Value)| {
                let (one, many) = (one.shape(), many.shape());
                let is_uneven = self.tied().any(|(_, pair)| self.is_uneven(pair));
                let layout = Layout::candidates(&one, &many, self.count).first().copied();
                let rows = layout.map(|layout| Tie::Rows(layout, is_uneven.then_some(origin)));
                match (one == many, is_uneven) {
                    (true, false) => Tie::Nothing,
                    (true, true) => Tie::Mixed(self.at, Meeting::Number),
                    (false, _) => rows.unwrap_or(Tie::Unknown(self.at)),
                }
            };
            return ones.iter().zip(manys).map(repeated).collect();
        }
        // `x.numel() / x.shape[0]`, `x.numel() > 0`: what is the same for one row, for several and for very many has none of their number left.
        if STEADY.contains(&operator) && fars.len() == manys.len() {
            let left = |((one, many), far): ((&Value, &Value), &Value)| {
                let [near, far] = [one, far].map(|other| differing(many, other).unwrap_or_default());
                numbered(&[near, far].concat(), many, origin)
            };
            return ones.iter().zip(manys).zip(fars).map(left).collect();
        }
        // In floats few rows may be rounded away beside a large number, and very many are not.
        let is_same =
            |a: &Value, b: &Value| a.shape() == b.shape() && matches!(differing(a, b), Ok(places) if places.is_empty());
        let cancels =
            |one: &Value, many: &Value| EXACT.contains(&operator) && many.dtype().is_float() && is_same(one, many);
        let stays = fars.iter().zip(manys).all(|(far, many)| is_same(far, many));
        if stays && manys.iter().zip(ones).all(|(many, one)| cancels(one, many)) {
            return manys.iter().map(|_| Tie::Nothing).collect();
        }
        let whole = |many: &Value| Tie::Number(vec![true; many.shape().iter().product()], origin);
        // What another number of rows would change.
        let others = BY_PLACE.contains(&operator).then(|| self.run(|_, pair| shifted(pair, FAR + 1, self.device)));
        let Some(Ok(others)) = others else { return manys.iter().map(whole).collect() };
        let each = manys.iter().zip(ones).zip(&others).map(|((many, one), other)| match differing(many, other) {
            Ok(places) if many.shape() == other.shape() && many.shape() == one.shape() => {
                numbered(&places, many, origin)
            }
            _ => whole(many),
        });
        each.collect()
    }

    /// Where an output has its rows, where that follows from the operator and the shapes.
    fn known(&self, one: &Value, many: &Value) -> Option<Layout> {
        let (operator, one, many) = (self.operator(), one.shape(), many.shape());
        let candidates = Layout::candidates(&one, &many, self.count);
        let axis = candidates.first()?.axis;
        let rows = || {
            self.tied().filter_map(|(i, pair)| match pair.tie {
                Tie::Rows(layout, _) => Some((i, layout, pair.many.shape())),
                _ => None,
            })
        };
        let (first, layout, dims) = rows().next()?;
        let rank = many.len();
        let is_same = |(_, own, dims): (usize, Layout, Vec<usize>)| {
            own.inner == layout.inner
                && own.behind(dims.len()) == rank - axis
                && dims[own.axis] == many[axis]
                && dims.len() <= rank
        };
        let inner = layout.inner;
        let found = Layout { axis, inner };
        let is_known = match operator {
            _ if BY_ELEMENT.contains(&operator) => rows().all(is_same),
            _ if IN_FRONT.contains(&operator) => first == 0 && axis == 0 && rows().all(|(_, own, _)| own == found),
            "Transpose" => dims[layout.axis] == many[axis],
            // Steps, rows and features go in, and steps or not, directions, rows and features come out.
            "GRU" | "LSTM" | "RNN" => first == 0 && layout == (Layout { axis: 1, inner: 1 }) && axis + 2 == rank,
            "Concat" => dims.len() == rank && rows().all(is_same),
            // The matrices are along the last two axes.
            "MatMul" | "Gemm" => {
                let along = if operator == "Gemm" { 1 } else { 2 };
                let one_side =
                    rows().count() == 1 && first == 0 && layout.behind(dims.len()) >= 2 && dims.len() == rank;
                let both = |(_, own, dims): (usize, Layout, Vec<usize>)| own.behind(dims.len()) > along;
                axis == layout.axis
                    && if one_side { true } else { rows().all(both) && rows().all(is_same) && along == 2 }
            }
            _ => false,
        };
        if IN_ORDER.contains(&operator) && first == 0 {
            return layout.reshaped(&dims, &many, self.count);
        }
        is_known.then_some(found)
    }

    /// Gives the node other values for one row, and sees whose part of its outputs changes: several times, if that is not slow.
    fn tried(&self, ones: &[Value], manys: &[Value], by_number: Option<usize>, is_slow: bool) -> Vec<Tie> {
        let outputs = ones.iter().zip(manys);
        let mut seen: Vec<Seen> = outputs.map(|(one, many)| Seen::of(one, many, self.count)).collect();
        let size: usize = self.tied().map(|(_, pair)| pair.many.shape().iter().product::<usize>()).sum();
        let is_slow = is_slow || size > 1 << 18;
        let draws = if is_slow { 1 } else { 2 + usize::from(size <= 1 << 12) * 6 };
        let mut distances = [Distance::Far, Distance::Near, Distance::Own].into_iter();
        let mut distance = distances.next();
        let mut number = 0;
        while let Some(far) = distance.filter(|_| number < draws) {
            match self.draw(Draw { number, distance: far, is_slow, led: None }, manys, &mut seen) {
                Ok(()) => number += 1,
                Err(_) => distance = distances.next(),
            }
        }
        if !is_slow {
            // What not every node takes: that one fails says nothing.
            let extremes = [Distance::Above, Distance::Below];
            let extremes = extremes.map(|distance| Draw { number, distance, is_slow, led: None });
            number += extremes.into_iter().filter(|draw| self.draw(*draw, manys, &mut seen).is_ok()).count();
        }
        if number > 0 && self.is_led() {
            self.led(is_slow, manys, &mut seen);
        }
        let may_be_loose = LOOSE.contains(&self.operator());
        seen.into_iter().map(|seen| seen.tie(self.at, by_number, number > 0, may_be_loose)).collect()
    }

    /// Whether a row takes what it takes by an index that it makes of its own values and its place.
    pub(super) fn is_led(&self) -> bool {
        self.tied().any(|(i, pair)| is_index(self.operator(), i) && pair.led_layout(self.count).is_some())
    }

    /// The same where the index of each row is as near to that of the last or first one as it may come. What is between two that are there is there.
    fn led(&self, is_slow: bool, manys: &[Value], seen: &mut [Seen]) {
        let had_rows: Vec<bool> = seen.iter().map(Seen::has_rows).collect();
        let distances = [Distance::Above, Distance::Far, Distance::Near, Distance::Own];
        for to in [self.count - 1, 0] {
            let mut draws = distances.iter().map(|&distance| Draw { number: 0, distance, is_slow, led: Some(to) });
            if !draws.any(|draw| self.draw(draw, manys, seen).is_ok()) {
                seen.iter_mut().for_each(Seen::doubt);
            }
        }
        seen.iter_mut().zip(had_rows).for_each(|(seen, had_rows)| seen.is_led = had_rows && !seen.has_rows());
    }

    /// Runs the node on one row of a draw. An error where something else than values depends on how many rows there are.
    fn cut(&self, number: usize, distance: Distance, row: usize) -> Result<Vec<Value>, OpError> {
        self.run(|i, pair| match pair.tie {
            Tie::Rows(layout, None) => {
                let all = made(&pair.many, None, distance, mix(mix(number as u64, i + 1), 0), self.device)?;
                layout.row(&all, row, self.count, self.device)
            }
            Tie::Nothing => Ok(pair.one.clone()),
            _ => Err(OpError::new("the number of rows becomes a value")),
        })
    }

    /// One draw of other values, against which that of one row is held, and each row by itself against what it is among them.
    fn draw(&self, draw: Draw, manys: &[Value], seen: &mut [Seen]) -> Result<(), OpError> {
        let Draw { number, distance, is_slow, led: to } = draw;
        let with = |row: Option<usize>| {
            self.run(|i, pair| {
                let Tie::Rows(layout, None) = pair.tie else {
                    let layout = pair.led_layout(self.count).filter(|_| is_index(self.operator(), i));
                    return to.zip(layout).map_or(Ok(pair.many.clone()), |(to, layout)| led(pair, layout, to, self));
                };
                let seed = mix(mix(number as u64, i + 1), 0);
                let all = match is_slow {
                    true => pair.many.clone(),
                    false => made(&pair.many, None, distance, seed, self.device)?,
                };
                let Some(row) = row else { return Ok(all) };
                made(&all, Some((layout, row, self.count)), distance, mix(seed, 1 + row), self.device)
            })
        };
        let own = if is_slow && to.is_none() { None } else { Some(with(None)?) };
        if let Some(base) = own.as_ref().filter(|_| to.is_none()) {
            for row in [0, self.count - 1] {
                // What a node does not take of one row says nothing.
                let Ok(alone) = self.cut(number, distance, row) else { break };
                let each = seen.iter_mut().zip(base).zip(&alone);
                each.for_each(|((seen, base), alone)| seen.hold_alone(base, alone, row, self.count));
            }
        }
        let rows = if to.is_some() { (0..self.count).collect() } else { vec![0, self.count - 1] };
        for row in rows {
            let other = with(Some(row))?;
            for ((seen, base), other) in seen.iter_mut().zip(own.as_deref().unwrap_or(manys)).zip(&other) {
                seen.compare(base, other, row, self.count);
            }
        }
        Ok(())
    }
}

/// One draw of other values.
#[derive(Clone, Copy)]
struct Draw {
    number: usize,
    distance: Distance,
    /// Rows that do not change are as they were.
    is_slow: bool,
    /// The indices of all rows come near to those of this one.
    led: Option<usize>,
}

/// An index that for each row comes as near to that of one of them as its reach lets it.
fn led(pair: &Pair, layout: Layout, to: usize, step: &Step<'_>) -> Result<Value, OpError> {
    let (data, dims) = (pair.many.clone().into_data()?, pair.many.shape());
    let before: Vec<i64> = data.iter::<i64>().collect();
    let block = layout.block(&dims);
    let change = |at: usize| {
        let wanted = before[at + to * block - layout.owner(at, &dims, step.count) * block];
        pair.reach.as_ref().map_or(wanted, |reach| reach.nearest(at, wanted as f64) as i64)
    };
    let changed: Vec<i64> = (0..before.len()).map(change).collect();
    Value::from_data(TensorData::new(changed, dims.clone()).convert_dtype(data.dtype()), step.device)
}

/// For very many rows, numbers that grow evenly with them: the lengths of axes.
fn extended(one: &Value, many: &Value, count: i64, device: &DispatchDevice) -> Result<Value, OpError> {
    let (one, many) = (one.clone().ints()?, many.clone().ints()?);
    let far = one.ints.iter().zip(&many.ints).map(|(one, many)| one + (many - one) / (count - 1) * (FAR - 1)).collect();
    let far = HostInts { ints: far, scalar: one.scalar };
    Value::from_data(Value::Host(far).into_data()?, device)
}

/// Whether a number for very many rows shows that it grows with them, wherever it depends on them.
fn grows(tie: &Tie, many: &Value, far: &Value) -> bool {
    let Tie::Number(which, _) = tie else { return false };
    let others = differing(many, far).unwrap_or_default();
    which.iter().enumerate().all(|(at, is_number)| !is_number || others.contains(&at))
}

/// Elements at some places follow the number of rows.
fn numbered(places: &[usize], value: &Value, at: usize) -> Tie {
    let mut which = vec![false; value.shape().iter().product()];
    places.iter().for_each(|&place| which[place] = true);
    if places.is_empty() { Tie::Nothing } else { Tie::Number(which, at) }
}

/// A value with others in place of the numbers of rows in it.
fn shifted(pair: &Pair, by: i64, device: &DispatchDevice) -> Result<Value, OpError> {
    let Tie::Number(which, _) = &pair.tie else { return Ok(pair.many.clone()) };
    let mut ints = pair.many.clone().ints()?;
    ints.ints.iter_mut().zip(which).filter(|(_, is_number)| **is_number).for_each(|(x, _)| *x += by);
    let value = Value::Host(ints);
    if matches!(pair.many, Value::Int(_)) { value.int_tensor(device).map(Value::Int) } else { Ok(value) }
}
