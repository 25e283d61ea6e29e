//! Which node carries something from one row to another, or tells how many rows there are.
//!
//! A trial of the whole model sees only what happens for the values that it draws: a token that none of its rows has, or a
//! number of rows that it has not tried, may still join them. So each node is looked at by itself. The model runs on one row and
//! on several, and the shapes of each value say where it has its rows. Then the node gets other values for one of the rows, and
//! what changes must be that row's. What a node does between two rows it so does before all eyes, whatever reaches it in a
//! real run. What is then made of a value that several rows decide is decided by several rows.
//!
//! Nodes of which it is known that they take each row by itself where their shapes say so are not tried. A loop or a branch is one node.

use std::fmt;
use std::time::{Duration, Instant};

use burn_dispatch::DispatchDevice;

use super::layout::Layout;
use super::made::{Distance, differing, made};
use super::sample::mix;
use crate::fence::fenced;
use crate::ops::{Args, Place};
use crate::plan::{Budget, Compiled, Failure, Input, Plan};
use crate::value::{OpError, Value};

/// A node that takes longer than this for a few rows is tried once.
const SLOW: Duration = Duration::from_millis(20);

/// Where rows meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Crossing {
    place: Place,
    /// It is their number that matters, or the place of each among them, and not their values.
    is_number: bool,
}

impl fmt::Display for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { operator, node } = &self.place;
        let does = match &**operator {
            _ if self.is_number => "reads how many rows there are",
            "DynamicQuantizeLinear" => "scales all rows together (quantize_dynamic)",
            _ => "takes several rows together",
        };
        write!(f, "operator '{operator}' (node '{node}') {does}")
    }
}

impl Crossing {
    /// What to do about it.
    pub(crate) fn advice(&self) -> &'static str {
        match &*self.place.operator {
            "DynamicQuantizeLinear" => {
                "; here each row is scaled by itself, and with quantize_static rows can share a batch"
            }
            "BatchNormalization" | "ReduceMean" => {
                "; was the model exported in training mode? Export after model.eval()"
            }
            _ => "",
        }
    }
}

/// What decides a value.
#[derive(Debug, Clone, PartialEq)]
enum Tie {
    /// No row.
    Nothing,
    /// Each part of it one row; and the number of rows, where a step is named.
    Rows(Layout, Option<usize>),
    /// The number of rows, or the place among them: of which elements, and from which step on.
    Number(Vec<bool>, usize),
    /// Several rows, by this step.
    Mixed(usize),
    Unknown,
}

/// A value for one row and for several.
#[derive(Clone)]
struct Pair {
    one: Value,
    many: Value,
    tie: Tie,
}

/// An argument of a step.
enum Argument {
    Absent,
    Constant(Value),
    Pair(Box<Pair>),
}

/// Where rows meet in what becomes of each output, for inputs with one row and the same with `count` rows along `rows`.
pub(crate) fn crossings(
    plan: &Plan,
    rows: &[Option<usize>],
    one: Vec<Value>,
    many: Vec<Value>,
    count: usize,
) -> Result<Vec<Option<Crossing>>, Failure> {
    let mut slots: Vec<Option<Pair>> = Vec::new();
    slots.resize_with(plan.slots, || None);
    let inputs = plan.inputs.iter().zip(one).zip(many).zip(rows);
    for (((&slot, one), many), rows) in inputs {
        let tie = rows.map_or(Tie::Nothing, |axis| Tie::Rows(Layout { axis, inner: 1 }, None));
        slots[slot] = Some(Pair { one, many, tie });
    }
    for (at, step) in plan.steps.iter().enumerate() {
        let arguments = step.inputs.iter().map(|input| fetch(input, &mut slots)).collect();
        let walk = Step { at, step, arguments, count, device: plan.device() };
        let pairs = walk.pairs().map_err(|e| Failure { place: Some(step.place.clone()), reason: e.0 })?;
        for (slot, pair) in step.outputs.iter().zip(pairs) {
            if let Some(slot) = slot {
                slots[*slot] = Some(pair);
            }
        }
    }
    let crossing = |at: usize, is_number| Crossing { place: plan.steps[at].place.clone(), is_number };
    let found = plan.outputs.iter().map(|output| {
        let Argument::Pair(pair) = fetch(output, &mut slots) else { return None };
        match pair.tie {
            Tie::Mixed(at) => Some(crossing(at, false)),
            Tie::Rows(_, Some(at)) => Some(crossing(at, true)),
            Tie::Number(which, at) if which.contains(&true) => Some(crossing(at, true)),
            _ => None,
        }
    });
    Ok(found.collect())
}

fn fetch(input: &Input, slots: &mut [Option<Pair>]) -> Argument {
    match input {
        Input::Absent => Argument::Absent,
        Input::Constant(value) => Argument::Constant(value.clone()),
        Input::Slot { index, last: true } => slots[*index].take().map_or(Argument::Absent, paired),
        Input::Slot { index, last: false } => slots[*index].clone().map_or(Argument::Absent, paired),
    }
}

fn paired(pair: Pair) -> Argument {
    Argument::Pair(Box::new(pair))
}

/// Operators that compute each element from those at its place.
const BY_ELEMENT: &[&str] = &[
    "Abs",
    "Acos",
    "Acosh",
    "Add",
    "And",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BitShift",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "Cast",
    "CastLike",
    "Ceil",
    "Celu",
    "Clip",
    "Cos",
    "Cosh",
    "Dropout",
    "Div",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "Greater",
    "GreaterOrEqual",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "IsInf",
    "IsNaN",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "Max",
    "Mean",
    "Min",
    "Mish",
    "Mod",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "PRelu",
    "Pow",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Sub",
    "Sum",
    "Swish",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Where",
    "Xor",
    "com.microsoft::FastGelu",
    "com.microsoft::Gelu",
    "com.microsoft::QuickGelu",
];

/// Operators of which the first axis is the batch.
const IN_FRONT: &[&str] = &[
    "AveragePool",
    "Conv",
    "ConvInteger",
    "ConvTranspose",
    "DepthToSpace",
    "GlobalAveragePool",
    "GlobalLpPool",
    "GlobalMaxPool",
    "GroupNormalization",
    "InstanceNormalization",
    "LRN",
    "LpPool",
    "MaxPool",
    "QLinearConv",
    "SpaceToDepth",
];

/// Operators that keep all elements in their order.
const IN_ORDER: &[&str] = &["Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"];

/// Operators whose integers change at most at the places where those of their inputs do.
const BY_PLACE: &[&str] = &[
    "Add",
    "Cast",
    "Concat",
    "Expand",
    "Gather",
    "Identity",
    "Mul",
    "Neg",
    "Reshape",
    "Slice",
    "Split",
    "Squeeze",
    "Sub",
    "Unsqueeze",
];

/// Operators that tell numbers apart, however little these differ, as long as they are floats.
const EXACT: &[&str] = &["Add", "Div", "Mul", "Sub"];

/// Operators that give what one of their arguments holds, as often as another says.
const REPEATING: &[&str] = &["ConstantOfShape", "Expand", "Reshape", "Tile"];

/// Whether an argument says how long something is or where it is taken from, and is no part of the result.
fn is_place(operator: &str, argument: usize) -> bool {
    match operator {
        "ConstantOfShape" | "EyeLike" | "If" => argument == 0,
        "CenterCropPad" | "CumSum" | "Expand" | "Gather" | "GatherElements" | "GatherND" | "OneHot" | "Reshape"
        | "Scatter" | "ScatterElements" | "ScatterND" | "Split" | "Squeeze" | "Tile" | "TopK" | "Trilu"
        | "Unsqueeze" => argument == 1,
        "Loop" => argument <= 1,
        "Pad" => argument == 1 || argument == 3,
        "Resize" | "Slice" | "Upsample" => argument >= 1,
        _ => false,
    }
}

/// A step with its arguments.
struct Step<'a> {
    at: usize,
    step: &'a Compiled,
    arguments: Vec<Argument>,
    count: usize,
    device: &'a DispatchDevice,
}

impl Step<'_> {
    /// What it gives.
    fn pairs(self) -> Result<Vec<Pair>, OpError> {
        let ones = self.run(|pair| Ok(pair.one.clone()))?;
        let begin = Instant::now();
        let manys = self.run(|pair| Ok(pair.many.clone()))?;
        let ties = self.ties(&ones, &manys, begin.elapsed() > SLOW);
        let pairs = ones.into_iter().zip(manys).zip(ties);
        Ok(pairs.map(|((one, many), tie)| Pair { one, many, tie }).collect())
    }

    /// Runs the node on what `of` makes of each argument that is no constant.
    fn run(&self, mut of: impl FnMut(&Pair) -> Result<Value, OpError>) -> Result<Vec<Value>, OpError> {
        let values = self.arguments.iter().map(|argument| match argument {
            Argument::Absent => Ok(None),
            Argument::Constant(value) => Ok(Some(value.clone())),
            Argument::Pair(pair) => of(pair).map(Some),
        });
        let mut values: Vec<Option<Value>> = values.collect::<Result<_, _>>()?;
        let budget = Budget::rehearsal();
        fenced(|| self.step.kernel.run(Args::new(&mut values, self.device, &budget)))?
    }

    fn operator(&self) -> &str {
        &self.step.place.operator
    }

    /// The arguments that something decides, with their places.
    fn tied(&self) -> impl Iterator<Item = (usize, &Pair)> {
        let pairs = self.arguments.iter().enumerate().filter_map(|(i, argument)| match argument {
            Argument::Pair(pair) => Some((i, &**pair)),
            Argument::Absent | Argument::Constant(_) => None,
        });
        pairs.filter(|(_, pair)| pair.tie != Tie::Nothing)
    }

    /// What decides each output.
    fn ties(&self, ones: &[Value], manys: &[Value], is_slow: bool) -> Vec<Tie> {
        let all = |tie: Tie| vec![tie; manys.len()];
        if self.tied().next().is_none() {
            return all(Tie::Nothing);
        }
        if matches!(self.operator(), "Shape" | "Size") {
            let is_known = self.tied().all(|(_, pair)| pair.tie != Tie::Unknown);
            let number = |(one, many): (&Value, &Value)| match differing(one, many) {
                Ok(places) if is_known && one.shape() == many.shape() => numbered(&places, many, self.at),
                _ => Tie::Unknown,
            };
            return ones.iter().zip(manys).map(number).collect();
        }
        let mixed = self.tied().find_map(|(_, pair)| if let Tie::Mixed(at) = pair.tie { Some(at) } else { None });
        if let Some(at) = mixed {
            return all(Tie::Mixed(at));
        }
        if self.tied().any(|(_, pair)| pair.tie == Tie::Unknown) {
            return all(Tie::Unknown);
        }
        let has_rows = self.tied().any(|(_, pair)| matches!(pair.tie, Tie::Rows(..)));
        if !has_rows {
            return self.numbers(ones, manys);
        }
        // A number of rows that only says where to take something from is no part of the result.
        let by_number = self.tied().find_map(|(i, pair)| match &pair.tie {
            Tie::Number(which, at) if which.contains(&true) => Some((i, *at)),
            Tie::Rows(_, Some(at)) => Some((i, *at)),
            _ => None,
        });
        let by_number = by_number.filter(|(i, _)| !is_place(self.operator(), *i)).map(|(_, at)| at);
        let known: Option<Vec<Layout>> = ones.iter().zip(manys).map(|(one, many)| self.known(one, many)).collect();
        match known {
            Some(layouts) => layouts.into_iter().map(|layout| Tie::Rows(layout, by_number)).collect(),
            None => self.tried(ones, manys, by_number, is_slow),
        }
    }

    /// What decides the outputs of a node that reads how many rows there are, and none of them.
    fn numbers(&self, ones: &[Value], manys: &[Value]) -> Vec<Tie> {
        let operator = self.operator();
        let origin = self.tied().find_map(|(_, pair)| match pair.tie {
            Tie::Number(_, at) => Some(at),
            _ => None,
        });
        let origin = origin.unwrap_or(self.at);
        if REPEATING.contains(&operator) && self.tied().all(|(i, _)| is_place(operator, i)) {
            let repeated = |(one, many): (&Value, &Value)| {
                let (one, many) = (one.shape(), many.shape());
                let rows = Layout::candidates(&one, &many, self.count).first().map(|layout| Tie::Rows(*layout, None));
                if one == many { Tie::Nothing } else { rows.unwrap_or(Tie::Unknown) }
            };
            return ones.iter().zip(manys).map(repeated).collect();
        }
        // `x.numel() / x.shape[0]`: in floats nothing is rounded away, so what is the same for one row and for several has none of their number left.
        let cancels = |one: &Value, many: &Value| {
            EXACT.contains(&operator)
                && many.dtype().is_float()
                && matches!(differing(one, many), Ok(places) if places.is_empty())
        };
        if manys.iter().zip(ones).all(|(many, one)| one.shape() == many.shape() && cancels(one, many)) {
            return manys.iter().map(|_| Tie::Nothing).collect();
        }
        let whole = |many: &Value| Tie::Number(vec![true; many.shape().iter().product()], origin);
        // What another number of rows would change.
        let others = BY_PLACE.contains(&operator).then(|| self.run(|pair| shifted(pair, self.device)));
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
        let mut draw = 0;
        while let Some(far) = distance.filter(|_| draw < draws) {
            match self.draw(draw, far, is_slow.then_some(manys), &mut seen) {
                Ok(()) => draw += 1,
                Err(_) => distance = distances.next(),
            }
        }
        if !is_slow {
            // What not every node takes: that one fails says nothing.
            let extremes = [Distance::Above, Distance::Below];
            let drawn = extremes.map(|distance| self.draw(draw, distance, None, &mut seen).is_ok());
            draw += drawn.into_iter().map(usize::from).sum::<usize>();
        }
        seen.into_iter().map(|seen| seen.tie(self.at, by_number, draw > 0)).collect()
    }

    /// One draw of other values. What the node makes of the first ones is held against it, if it is given.
    fn draw(&self, draw: usize, distance: Distance, first: Option<&[Value]>, seen: &mut [Seen]) -> Result<(), OpError> {
        let with = |row: Option<usize>| {
            let mut i = 0;
            self.run(|pair| {
                i += 1;
                let Tie::Rows(layout, number) = pair.tie else { return Ok(pair.many.clone()) };
                if number.is_some() {
                    return Ok(pair.many.clone());
                }
                let seed = mix(mix(draw as u64, i), 0);
                let all = match first {
                    Some(_) => pair.many.clone(),
                    None => made(&pair.many, None, distance, seed, self.device)?,
                };
                let Some(row) = row else { return Ok(all) };
                made(&all, Some((layout, row, self.count)), distance, mix(seed, 1 + row), self.device)
            })
        };
        let made_first = if first.is_none() { with(None)? } else { Vec::new() };
        let base = first.unwrap_or(&made_first);
        for row in [0, self.count - 1] {
            let other = with(Some(row))?;
            for ((seen, base), other) in seen.iter_mut().zip(base).zip(&other) {
                seen.compare(base, other, row, self.count);
            }
        }
        Ok(())
    }
}

/// What has been seen of an output.
struct Seen {
    candidates: Vec<Layout>,
    /// Its shape is the same for one row and for several.
    is_flat: bool,
    /// Rows that changed something.
    has_changed: bool,
    /// Values decide its shape, or it is no tensor.
    is_unclear: bool,
}

impl Seen {
    fn of(one: &Value, many: &Value, count: usize) -> Seen {
        let (one, many) = (one.shape(), many.shape());
        let candidates = Layout::candidates(&one, &many, count);
        Seen { candidates, is_flat: one == many, has_changed: false, is_unclear: false }
    }

    fn compare(&mut self, base: &Value, other: &Value, row: usize, count: usize) {
        let dims = base.shape();
        let places = differing(base, other).ok().filter(|_| dims == other.shape());
        let Some(places) = places else {
            self.is_unclear = true;
            return;
        };
        self.has_changed |= !places.is_empty();
        self.candidates.retain(|layout| {
            dims.get(layout.axis).is_some_and(|length| length % count == 0)
                && places.iter().all(|&at| layout.owner(at, &dims, count) == row)
        });
    }

    /// What decides the output. Where nothing could be tried, rows are where its shape says.
    fn tie(self, at: usize, by_number: Option<usize>, is_tried: bool) -> Tie {
        match self.candidates.first() {
            _ if self.is_unclear => Tie::Unknown,
            Some(layout) => Tie::Rows(*layout, by_number),
            None if !is_tried => Tie::Unknown,
            None if self.has_changed => Tie::Mixed(at),
            None if self.is_flat => Tie::Nothing,
            None => Tie::Unknown,
        }
    }
}

/// Elements at some places follow the number of rows.
fn numbered(places: &[usize], value: &Value, at: usize) -> Tie {
    let mut which = vec![false; value.shape().iter().product()];
    places.iter().for_each(|&place| which[place] = true);
    if places.is_empty() { Tie::Nothing } else { Tie::Number(which, at) }
}

/// A value with others in place of the numbers of rows in it.
fn shifted(pair: &Pair, device: &DispatchDevice) -> Result<Value, OpError> {
    const FAR: i64 = 1_000_003;
    let Tie::Number(which, _) = &pair.tie else { return Ok(pair.many.clone()) };
    let mut ints = pair.many.clone().ints()?;
    ints.ints.iter_mut().zip(which).filter(|(_, is_number)| **is_number).for_each(|(x, _)| *x += FAR);
    let value = Value::Host(ints);
    if matches!(pair.many, Value::Int(_)) { value.int_tensor(device).map(Value::Int) } else { Ok(value) }
}
