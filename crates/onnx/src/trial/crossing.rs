//! Which node carries something from one row to another, or tells how many rows there are.
//!
//! A trial of the whole model sees only what happens for the values that it draws: a token that none of its rows has, or a
//! number of rows that it has not tried, may still join them. So each node is looked at by itself. The model runs on one row and
//! on several, and the shapes of each value say where it has its rows. Then the node gets other values for one of the rows, and
//! what changes must be that row's. What a node does between two rows it so does before all eyes, whatever reaches it in a
//! real run. What is then made of a value that several rows decide is decided by several rows.
//!
//! Nodes of which it is known that they take each row by itself where their shapes say so are not tried. A loop or a branch is one node, and
//! its [bodies](super::bodies) are looked at as well.

use std::fmt;
use std::sync::Arc;

use super::layout::Layout;
use super::reach::Reach;
use super::step::{Argument, Step};
use crate::ops::Place;
use crate::plan::{Failure, Input, Plan};
use crate::value::Value;

/// Where rows meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Crossing {
    place: Place,
    how: Meeting,
}

/// How rows meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meeting {
    /// Values of several are taken together.
    Values,
    /// An index by which a row takes its own values may name those of another.
    Index,
    /// Their number matters, or the place of each among them, and not their values.
    Number,
    /// Whether they do could not be seen.
    Unseen,
}

impl fmt::Display for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Crossing { place, how } = self;
        let does = match (how, &*place.operator) {
            (Meeting::Number, _) => "reads how many rows there are",
            (Meeting::Unseen, _) => "could not be seen to keep rows apart",
            (Meeting::Index, _) => "has an index that may point into another row",
            (_, "DynamicQuantizeLinear") => "scales all rows together (quantize_dynamic)",
            _ => "takes several rows together",
        };
        write!(f, "{place} {does}")
    }
}

impl Crossing {
    /// What to do about it.
    pub(crate) fn advice(&self) -> &'static str {
        match &*self.place.operator {
            _ if self.how == Meeting::Index => {
                "; rows can share a batch where Clip or Mod keeps it within its own row before that row's offset is added"
            }
            "DynamicQuantizeLinear" => "; with quantize_static rows can share a batch",
            "BatchNormalization" | "ReduceMean" => {
                "; was the model exported in training mode? Export after model.eval()"
            }
            _ => "",
        }
    }
}

/// What decides a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Tie {
    /// No row.
    Nothing,
    /// Each part of it one row; and the number of rows, where a step is named.
    Rows(Layout, Option<usize>),
    /// The number of rows, or the place among them: of which elements, and from which step on.
    Number(Vec<bool>, usize),
    /// Several rows, by this step.
    Mixed(usize, Meeting),
    /// How many there are of something in all rows, by this step, as `Shape` tells it of what `NonZero` finds.
    Count(usize),
    /// Unknown, but that values of several rows decide how long it is.
    Loose(usize),
    /// Nothing is known, from this step on.
    Unknown(usize),
}

/// A value for one row and for several.
#[derive(Clone)]
pub(super) struct Pair {
    pub(super) one: Value,
    pub(super) many: Value,
    /// The same for very many rows, where it is no more than a few numbers.
    pub(super) far: Option<Value>,
    pub(super) tie: Tie,
    /// What all rows share of what a caller sends is a part of it.
    pub(super) is_shared: bool,
    /// How far each element may go, where a caller decides it and that is known.
    pub(super) reach: Option<Arc<Reach>>,
}

/// Where rows meet in what becomes of each output, for inputs with one row and the same with `count` rows along `rows`. And whether a row takes
/// something by an index that it makes of its own values and its place.
pub(crate) fn crossings(
    plan: &Plan,
    rows: &[Option<usize>],
    one: Vec<Value>,
    many: Vec<Value>,
    count: usize,
) -> Result<(Vec<Option<Crossing>>, bool), Failure> {
    let inputs = one.into_iter().zip(many).zip(rows).map(|((one, many), rows)| {
        let tie = rows.map_or(Tie::Nothing, |axis| Tie::Rows(Layout { axis, inner: 1 }, None));
        paired(Pair { one, many, far: None, is_shared: tie == Tie::Nothing, tie, reach: None })
    });
    let (outputs, is_led) = walk(plan, inputs.collect(), count, None)?;
    let crossing = |at: usize, how| Crossing { place: plan.steps[at].place.clone(), how };
    let found = outputs.into_iter().map(|output| {
        let Argument::Pair(pair) = output else { return None };
        match pair.tie {
            Tie::Mixed(at, how) => Some(crossing(at, how)),
            Tie::Count(at) => Some(crossing(at, Meeting::Values)),
            Tie::Rows(_, Some(at)) => Some(crossing(at, Meeting::Number)),
            Tie::Number(which, at) if which.contains(&true) => Some(crossing(at, Meeting::Number)),
            Tie::Unknown(at) => Some(crossing(at, Meeting::Unseen)),
            _ => None,
        }
    });
    Ok((found.collect(), is_led))
}

/// Goes from step to step. Gives the outputs, and whether a row takes something by an index that it makes. What happens in a body happens at
/// the step that it belongs to.
pub(super) fn walk(
    plan: &Plan,
    inputs: Vec<Argument>,
    count: usize,
    body_of: Option<usize>,
) -> Result<(Vec<Argument>, bool), Failure> {
    let mut slots = vec![Argument::Absent; plan.slots.len()];
    plan.inputs.iter().zip(inputs).for_each(|(&slot, input)| slots[slot] = input);
    let mut is_led = false;
    for (at, step) in plan.steps.iter().enumerate() {
        let arguments = step.inputs.iter().map(|input| fetch(input, &mut slots)).collect();
        let walk = Step { at: body_of.unwrap_or(at), step, arguments, count, device: plan.device() };
        let inside = walk.inside();
        is_led |= walk.is_led() || inside.is_led;
        let pairs = walk.pairs(&inside);
        let pairs = pairs.map_err(|e| Failure { place: Some(step.place.clone()), reason: e.0 })?;
        for (slot, pair) in step.outputs.iter().zip(pairs) {
            if let Some(slot) = slot {
                slots[*slot] = paired(pair);
            }
        }
    }
    Ok((plan.outputs.iter().map(|output| fetch(output, &mut slots)).collect(), is_led))
}

fn fetch(input: &Input, slots: &mut [Argument]) -> Argument {
    match input {
        Input::Absent => Argument::Absent,
        Input::Constant(value) => Argument::Constant(value.clone()),
        Input::Slot { index, last: true } => std::mem::replace(&mut slots[*index], Argument::Absent),
        Input::Slot { index, last: false } => slots[*index].clone(),
    }
}

fn paired(pair: Pair) -> Argument {
    Argument::Pair(Box::new(pair))
}

impl Pair {
    /// Whether a caller decides it.
    pub(super) fn is_varied(&self) -> bool {
        self.is_shared || !matches!(self.tie, Tie::Nothing | Tie::Number(..))
    }

    /// Where it has its rows, as an index that is made of a row's place and of what a caller decides.
    pub(super) fn led_layout(&self, count: usize) -> Option<Layout> {
        match self.tie {
            Tie::Rows(layout, Some(_)) => Some(layout),
            Tie::Number(..) if self.is_shared => {
                Layout::candidates(&self.one.shape(), &self.many.shape(), count).first().copied()
            }
            _ => None,
        }
    }
}
