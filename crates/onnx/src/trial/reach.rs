//! How far the numbers of a value may go, whatever a caller sends: bounds that follow from operators.
//!
//! A caller's own number may be any. What a node makes of it may not: the place of a largest one is within its axis, a remainder below
//! its divisor, and what is clipped within its bounds. A node that keeps the order of numbers carries bounds on: it runs on the least
//! and on the greatest of all that may reach it. Where nothing is known, every number is possible.

use std::sync::Arc;

use burn_backend::{DType, TensorData};

use super::crossing::{Pair, Tie};
use super::layout::Layout;
use super::operators::{BY_ELEMENT, CHOOSING, MOVING, RISING, TURNING, WRAPPING, bounds, is_place};
use super::step::{Argument, Step};
use crate::value::{OpError, Value};

/// The least and the greatest that each element may be; one of each where they are the same for all.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reach {
    low: Vec<f64>,
    high: Vec<f64>,
}

/// Values of more elements have no bounds for each of them: that takes time.
const MOST: usize = 1 << 21;
/// It is not looked at whether more than these are within their bounds.
const MANY: usize = 1 << 16;
/// So many arguments without a number of their own are tried in all combinations of least and greatest.
const MOST_OPEN: usize = 4;
/// Integers that have no bound are computed with as this.
const ENDLESS: i64 = 1 << 40;
/// No sum of as many integers up to this as a value has comes to the end of 64 bits.
const SMALL: f64 = (ENDLESS / 2) as f64;
/// What 32 bits hold.
const I32: (f64, f64) = (i32::MIN as f64, i32::MAX as f64);

impl Reach {
    fn all(low: f64, high: f64) -> Reach {
        Reach { low: vec![low], high: vec![high] }
    }

    fn is_even(&self) -> bool {
        self.low.len() == 1
    }

    /// The same for all elements: as far as any of them may go.
    pub(super) fn even(&self) -> Reach {
        let low = self.low.iter().copied().fold(f64::INFINITY, f64::min);
        Reach::all(low, self.high.iter().copied().fold(f64::NEG_INFINITY, f64::max))
    }

    fn at(&self, place: usize) -> (f64, f64) {
        let place = if self.is_even() { 0 } else { place };
        (self.low[place], self.high[place])
    }

    /// Within its bounds the nearest to a number.
    pub(super) fn nearest(&self, at: usize, number: f64) -> f64 {
        let (low, high) = self.at(at);
        number.max(low).min(high)
    }

    /// Whether all that it allows is from one number to another.
    fn is_within(&self, (least, most): (f64, f64)) -> bool {
        self.low.iter().all(|x| *x >= least) && self.high.iter().all(|x| *x <= most)
    }

    /// Whether it says nothing of such a value.
    fn is_endless(&self, value: &Value) -> bool {
        let all = if matches!(value, Value::Bool(_)) { (0.0, 1.0) } else { (f64::NEG_INFINITY, f64::INFINITY) };
        self.low.iter().all(|x| *x == all.0) && self.high.iter().all(|x| *x == all.1)
    }

    fn holds(&self, value: &Value) -> Result<bool, OpError> {
        if value.shape().iter().product::<usize>() > MANY {
            return Ok(true);
        }
        let is_within = |(place, x): (usize, f64)| {
            let (low, high) = self.at(place);
            x.is_nan() || (low <= x && x <= high)
        };
        Ok(numbers(value)?.into_iter().enumerate().all(is_within))
    }
}

/// What a node may get for an argument: always the same, or anything between two values.
enum Given {
    Absent,
    Same(Value),
    Between([Value; 2]),
}

impl Step<'_> {
    /// How far its outputs may go, where that is known: each part of them is tied to a row.
    pub(super) fn reaches(&self, manys: &[Value], ties: &[Tie]) -> Vec<Option<Arc<Reach>>> {
        // Of truths alone nothing follows that is not known of all truths.
        let is_truth =
            |many: &Value| matches!(many, Value::Bool(_)) && self.varied().all(|(_, pair)| pair.reach.is_none());
        let is_asked = ties.iter().zip(manys).any(|(tie, many)| {
            self.is_decided(tie) && !is_truth(many) && !matches!(many, Value::Texts(_) | Value::Sequence(_))
        });
        let found = if is_asked { self.reached(manys).unwrap_or_default() } else { Vec::new() };
        let mut found = found.into_iter();
        let each = ties.iter().zip(manys).map(|(tie, many)| {
            let reach = found.next().flatten().filter(|_| self.is_decided(tie))?;
            // A rule that does not hold for what is seen holds for nothing.
            (!reach.is_endless(many) && reach.holds(many).unwrap_or(false)).then(|| Arc::new(reach))
        });
        each.collect()
    }

    /// The arguments that a caller decides, with their places.
    fn varied(&self) -> impl Iterator<Item = (usize, &Pair)> {
        self.given().filter(|(_, pair)| pair.is_varied())
    }

    /// Whether a caller decides an output of which this is the tie.
    fn is_decided(&self, tie: &Tie) -> bool {
        matches!(tie, Tie::Rows(..)) || self.is_shared() && matches!(tie, Tie::Nothing | Tie::Number(..))
    }

    fn reached(&self, manys: &[Value]) -> Result<Vec<Option<Reach>>, OpError> {
        let operator = self.operator();
        if matches!(operator, "ArgMax" | "ArgMin" | "TopK") {
            let Some((_, pair)) = self.varied().next() else { return Ok(Vec::new()) };
            let (Tie::Rows(layout, _), Some(places)) = (&pair.tie, manys.last()) else { return Ok(Vec::new()) };
            let length = searched(*layout, &pair.many.shape(), &places.shape());
            let places = Some(Reach::all(0.0, length.saturating_sub(1) as f64));
            return Ok(if operator == "TopK" { vec![self.chosen()?, places] } else { vec![places] });
        }
        let is_cast = matches!(operator, "Cast" | "CastLike");
        if let (true, Some((_, pair)), [many]) = (is_cast, self.varied().next(), manys)
            && is_whole(many)
            && is_whole(&pair.many)
        {
            // An integer that is too long loses its front.
            let kept = pair.reach.as_deref().filter(|reach| many.dtype() == DType::I64 || reach.is_within(I32));
            return Ok(vec![kept.cloned()]);
        }
        let is_choice = CHOOSING.contains(&operator);
        let is_open =
            |(i, pair): (usize, &Pair)| pair.is_varied() && !is_bounded(pair) && !(is_choice && is_place(operator, i));
        if self.varied().any(is_open) && !bounds(operator, is_whole(&manys[0])) {
            return Ok(Vec::new());
        }
        if operator == "Mod" {
            return self.rest();
        }
        let is_even = matches!(self.arguments.first(), Some(Argument::Pair(pair)) if pair.reach.as_ref().is_some_and(|reach| reach.is_even()));
        if is_choice && self.varied().any(|(i, pair)| is_place(operator, i) && pair.is_varied())
            || is_even && (is_choice || MOVING.contains(&operator))
        {
            return Ok(vec![self.chosen()?; manys.len()]);
        }
        // What is no number is neither more nor less than another. Of two truths each is tried.
        let has_floats = self.varied().any(|(_, pair)| pair.many.dtype().is_float());
        if matches!(manys, [Value::Bool(_)]) && has_floats {
            return Ok(Vec::new());
        }
        let is_equality = operator == "Equal" && self.varied().all(|(_, pair)| matches!(pair.many, Value::Bool(_)));
        if RISING.contains(&operator) || TURNING.contains(&operator) || is_equality {
            self.ends(manys)
        } else {
            Ok(Vec::new())
        }
    }

    /// Elements of the first argument, whichever they are.
    fn chosen(&self) -> Result<Option<Reach>, OpError> {
        let same = match self.arguments.first() {
            Some(Argument::Constant(value)) => value,
            Some(Argument::Pair(pair)) if !pair.is_varied() => &pair.many,
            Some(Argument::Pair(pair)) => {
                let all = |reach: &Arc<Reach>| range(&reach.low, &reach.high);
                return Ok(pair.reach.as_ref().map(all).map(|(low, high)| Reach::all(low, high)));
            }
            _ => return Ok(None),
        };
        // A table of floats holds no places.
        if !is_whole(same) {
            return Ok(None);
        }
        let all = numbers(same)?;
        let (low, high) = range(&all, &all);
        Ok(Some(Reach::all(low, high)))
    }

    /// A remainder is below its divisor. That of -1 is the greatest, or where it has the sign of what is divided, -1.
    fn rest(&self) -> Result<Vec<Option<Reach>>, OpError> {
        let given = self.ranges(true)?;
        let [Given::Between([low, _]), Given::Same(divisor)] = &given[..] else { return Ok(Vec::new()) };
        if !is_whole(low) || numbers(divisor)?.iter().any(|x| *x <= 0.0) {
            return Ok(Vec::new());
        }
        let before = filled(low, low.shape(), |_| -1.0, self)?;
        let rest = numbers(&self.run_on(vec![Some(before), Some(divisor.clone())])?[0])?;
        let (least, greatest) = range(&rest, &rest);
        Ok(vec![(least >= 0.0).then(|| Reach::all(0.0, greatest))])
    }

    /// What it makes of the least and of the greatest of each argument.
    fn ends(&self, manys: &[Value]) -> Result<Vec<Option<Reach>>, OpError> {
        let operator = self.operator();
        let is_uneven = |(_, pair): (usize, &Pair)| pair.reach.as_ref().is_some_and(|reach| !reach.is_even());
        if BY_ELEMENT.contains(&operator) && !self.varied().any(is_uneven) {
            let found = self.combined(self.ranges(true)?, manys)?;
            if found.iter().flatten().all(Reach::is_even) {
                return Ok(found);
            }
        }
        let is_much = |value: &Value| value.shape().iter().product::<usize>() > MOST;
        if manys.iter().any(is_much) || self.varied().any(|(_, pair)| is_much(&pair.many)) {
            return Ok(Vec::new());
        }
        self.combined(self.ranges(false)?, manys)
    }

    /// The same in all combinations where that matters.
    fn combined(&self, given: Vec<Given>, manys: &[Value]) -> Result<Vec<Option<Reach>>, OpError> {
        let operator = self.operator();
        // Several nodes that were joined have the name of the last. A number that was prepared leaves its place empty.
        if matches!(operator, "Add" | "Div" | "Mul" | "Sub") && given.len() != 2 {
            return Ok(Vec::new());
        }
        let is_open = |(i, given): (usize, &Given)| matches!(given, Given::Between(_)).then_some(i);
        let open: Vec<usize> = given.iter().enumerate().filter_map(is_open).collect();
        let is_rising = RISING.contains(&operator);
        let is_divided = operator == "Div" && open.contains(&1);
        if open.is_empty() || is_divided || open.iter().any(|&i| is_place(operator, i)) {
            return Ok(Vec::new());
        }
        if !is_rising && open.len() > MOST_OPEN || operator == "Mul" && overflows(&given)? {
            return Ok(Vec::new());
        }
        let may_wrap = WRAPPING.contains(&operator) && manys.iter().any(is_whole);
        for given in given.iter().filter(|_| may_wrap) {
            if !is_small(given)? {
                return Ok(Vec::new());
            }
        }
        let chosen = |of: &dyn Fn(usize, &[Value; 2]) -> Value| {
            let mut turn = 0;
            let values = given.iter().map(|given| match given {
                Given::Absent => None,
                Given::Same(value) => Some(value.clone()),
                Given::Between(ends) => {
                    turn += 1;
                    Some(of(turn - 1, ends))
                }
            });
            self.run_on(values.collect())
        };
        let combinations = if is_rising { vec![0, usize::MAX] } else { (0..1 << open.len()).collect() };
        let runs = combinations.into_iter().map(|sides: usize| chosen(&|turn, ends| ends[sides >> turn & 1].clone()));
        let mut runs: Vec<Vec<Value>> = runs.collect::<Result<_, _>>()?;
        // What is no number becomes an integer all the same.
        if matches!(operator, "Cast" | "CastLike") && manys.iter().all(is_whole) {
            let none = |ends: &[Value; 2]| filled(&ends[0], ends[0].shape(), |_| f64::NAN, self);
            if let Some(Given::Between(ends)) =
                given.iter().find(|given| matches!(given, Given::Between([Value::Float(_), _])))
            {
                let none = none(ends)?;
                runs.push(chosen(&|_, _| none.clone())?);
            }
        }
        let outputs = manys.iter().enumerate().map(|(i, many)| {
            let mut reach: Option<Reach> = None;
            for run in &runs {
                let (low, high): (Vec<f64>, Vec<f64>) = numbers(&run[i])?.into_iter().map(|x| widened(x, many)).unzip();
                match &mut reach {
                    Some(reach) => {
                        reach.low.iter_mut().zip(low).for_each(|(own, x)| *own = own.min(x));
                        reach.high.iter_mut().zip(high).for_each(|(own, x)| *own = own.max(x));
                    }
                    None => reach = Some(Reach { low, high }),
                }
            }
            let is_narrow = matches!(many, Value::Int(_)) && !is_whole(many);
            let has_wrapped = |reach: &Reach| may_wrap && many.dtype() == DType::I32 && !reach.is_within(I32);
            Ok(reach.filter(|reach| !is_narrow && !has_wrapped(reach)))
        });
        outputs.collect()
    }

    /// What reaches it for each argument, as one element where that stands for all. Integers are of 64 bits.
    fn ranges(&self, is_one: bool) -> Result<Vec<Given>, OpError> {
        let each = self.arguments.iter().map(|argument| {
            let pair = match argument {
                Argument::Absent => return Ok(Given::Absent),
                Argument::Constant(value) => return Ok(Given::Same(wide(value, self)?)),
                Argument::Pair(pair) if !pair.is_varied() => return Ok(Given::Same(wide(&pair.many, self)?)),
                Argument::Pair(pair) => pair,
            };
            let dims = if is_one { vec![1; pair.many.rank()] } else { pair.many.shape() };
            let endless = Reach::all(f64::NEG_INFINITY, f64::INFINITY);
            let reach = pair.reach.as_deref().unwrap_or(&endless);
            let low = filled(&pair.many, dims.clone(), |place| reach.at(place).0, self)?;
            Ok(Given::Between([low, filled(&pair.many, dims, |place| reach.at(place).1, self)?]))
        });
        each.collect()
    }
}

fn is_bounded(pair: &Pair) -> bool {
    pair.reach.is_some() || matches!(pair.many, Value::Bool(_))
}

/// Whether these are integers that an index may be.
fn is_whole(value: &Value) -> bool {
    matches!(value.dtype(), DType::I32 | DType::I64)
}

/// The length of the axis along which something is looked for, by the shapes of what is looked through and of the places.
fn searched(layout: Layout, from: &[usize], to: &[usize]) -> usize {
    if from.len() != to.len() {
        // Where several axes could be the one that is gone, they are as long.
        let gone = (0..from.len()).find(|&axis| [&from[..axis], &from[axis + 1..]].concat() == to);
        return gone.map_or(usize::MAX, |axis| from[axis]);
    }
    match (0..from.len()).find(|&axis| from[axis] != to[axis]) {
        Some(axis) => from[axis],
        None => (0..from.len())
            .filter(|&axis| axis != layout.axis || layout.inner > 1)
            .map(|axis| from[axis])
            .max()
            .unwrap_or(1),
    }
}

/// Whether integers may be multiplied beyond what holds them.
fn overflows(given: &[Given]) -> Result<bool, OpError> {
    let mut product = 1.0;
    for given in given {
        let most = match given {
            Given::Absent => 1.0,
            Given::Same(value) => greatest(&numbers(value)?),
            Given::Between([low, high]) => greatest(&numbers(low)?).max(greatest(&numbers(high)?)),
        };
        product *= most.max(1.0);
    }
    let is_whole = |given: &Given| matches!(given, Given::Same(x) | Given::Between([x, _]) if is_whole(x));
    Ok(product >= 2f64.powi(62) && given.iter().any(is_whole))
}

/// Whether integers are so near to 0 that no sum of them gets to the other end.
fn is_small(given: &Given) -> Result<bool, OpError> {
    let is_small = |value: &Value| Ok(!is_whole(value) || greatest(&numbers(value)?) <= SMALL);
    match given {
        Given::Absent => Ok(true),
        Given::Same(value) => is_small(value),
        Given::Between([low, high]) => Ok(is_small(low)? && is_small(high)?),
    }
}

fn greatest(numbers: &[f64]) -> f64 {
    numbers.iter().fold(0.0, |most, x| most.max(x.abs()))
}

fn range(low: &[f64], high: &[f64]) -> (f64, f64) {
    let least = |least: f64, x: &f64| if x.is_nan() { f64::NEG_INFINITY } else { least.min(*x) };
    let most = |most: f64, x: &f64| if x.is_nan() { f64::INFINITY } else { most.max(*x) };
    (low.iter().fold(f64::INFINITY, least), high.iter().fold(f64::NEG_INFINITY, most))
}

/// The bounds that a number stands for: what is beyond half of what is endless, or beyond its type, has none.
fn widened(x: f64, of: &Value) -> (f64, f64) {
    let most = match of.dtype() {
        DType::I32 => I32.1,
        _ => SMALL,
    };
    match x {
        _ if x.is_nan() => (f64::NEG_INFINITY, f64::INFINITY),
        _ if x > most => (x, f64::INFINITY),
        _ if x < -most => (f64::NEG_INFINITY, x),
        _ => (x, x),
    }
}

/// All elements as floats.
fn numbers(value: &Value) -> Result<Vec<f64>, OpError> {
    let data = value.clone().into_data()?;
    Ok(match data.dtype() {
        DType::Bool(_) => data.iter::<bool>().map(|x| f64::from(u8::from(x))).collect(),
        _ => data.iter::<f64>().collect(),
    })
}

/// Integers with 64 bits.
fn wide(value: &Value, step: &Step<'_>) -> Result<Value, OpError> {
    match value {
        Value::Int(_) if value.dtype() != DType::I64 => value.clone().cast(DType::I64, step.device),
        other => Ok(other.clone()),
    }
}

/// A value of the same kind with other elements, by their places.
pub(super) fn filled(
    like: &Value,
    dims: Vec<usize>,
    of: impl Fn(usize) -> f64,
    step: &Step<'_>,
) -> Result<Value, OpError> {
    let each = (0..dims.iter().product()).map(of);
    let data = match like {
        Value::Bool(_) => TensorData::new(each.map(|x| x > 0.0).collect::<Vec<bool>>(), dims),
        Value::Float(_) => TensorData::new(each.collect::<Vec<f64>>(), dims).convert_dtype(like.dtype()),
        Value::Int(_) | Value::Host(_) => {
            let end = ENDLESS as f64;
            TensorData::new(each.map(|x| x.clamp(-end, end) as i64).collect::<Vec<i64>>(), dims)
        }
        Value::Texts(_) | Value::Sequence(_) => return Err(OpError::new("has no numbers")),
    };
    Value::from_data(data, step.device)
}
