//! Bodies of branches and loops: where rows meet in them.
//!
//! A node with bodies is tried as a whole like any other. That finds neither what happens inside for rare values only, nor what
//! the side of a branch does that none of these rows takes. So their nodes are tried one by one as well.

use std::ops::Range;
use std::sync::Arc;

use super::crossing::{Meeting, Pair, Tie, walk};
use super::layout::Layout;
use super::step::{Argument, Step};
use crate::ops::{Control, Kernel, Loop, Scan, Subgraph, row};
use crate::plan::Failure;
use crate::value::OpError;

/// So many iterations are looked at: one with what a loop begins with, and one with what another has left.
const ITERATIONS: usize = 2;

/// What was found in a node's bodies.
#[derive(Default)]
pub(super) struct Inside {
    /// How rows meet in what becomes of each output of the node.
    pub(super) meetings: Vec<Option<Meeting>>,
    /// Whether a row takes something by an index that it makes of its own values and its place.
    pub(super) is_led: bool,
}

impl Inside {
    /// Takes what a body gives for the node's outputs.
    fn take(&mut self, given: &[Argument], is_led: bool) {
        self.is_led |= is_led;
        self.meetings.resize(given.len().max(self.meetings.len()), None);
        for (meeting, given) in self.meetings.iter_mut().zip(given) {
            let Argument::Pair(pair) = given else { continue };
            *meeting = meeting.or(match pair.tie {
                Tie::Mixed(_, how) => Some(how),
                Tie::Count(_) => Some(Meeting::Values),
                Tie::Rows(_, Some(_)) => Some(Meeting::Number),
                _ => None,
            });
        }
    }
}

impl Step<'_> {
    /// What is found in its bodies. What they cannot do with these values shows nothing.
    pub(super) fn inside(&self) -> Inside {
        let mut inside = Inside::default();
        if let Kernel::Control(control) = &self.step.kernel
            && self.tied().next().is_some()
        {
            let _ = match &**control {
                Control::If(branches) => self.look_at_branches(branches, &mut inside),
                Control::Loop(repeated) => self.look_at_loop(repeated, &mut inside),
                Control::Scan(scan) => self.look_at_scan(scan, &mut inside),
            };
        }
        inside
    }

    /// Both sides where a number that rows share decides, and else the side that is taken. What goes by a shape is often taken always, and the
    /// other side is for models that are built in another way.
    fn look_at_branches(&self, branches: &[Subgraph; 2], inside: &mut Inside) -> Result<(), Failure> {
        let condition = match self.arguments.first() {
            Some(Argument::Pair(pair)) if pair.tie == Tie::Nothing => &pair.many,
            Some(Argument::Constant(value)) => value,
            _ => return Ok(()),
        };
        let taken = usize::from(condition.clone().truth()?);
        let is_open = matches!(self.arguments.first(), Some(Argument::Pair(pair)) if pair.is_shared);
        let sides = if is_open { &branches[..] } else { &branches[taken..=taken] };
        for side in sides {
            if let Ok((given, is_led)) = self.look_into(side, Vec::new()) {
                inside.take(&given, is_led);
            }
        }
        Ok(())
    }

    /// Some iterations, but where one belongs to one row: what such a loop carries goes from row to row.
    fn look_at_loop(&self, repeated: &Loop, inside: &mut Inside) -> Result<(), Failure> {
        let carried = repeated.body.carried;
        if self.tied().any(|(i, _)| i < 2) {
            // In front of what it carries is its condition.
            self.goes_over_rows(carried > 1, inside);
            return Ok(());
        }
        let mut state = self.arguments_at(2..1 + carried);
        for i in 0..ITERATIONS {
            let begin = Loop::begin(i as i64, true, self.device)?.into_iter().map(Argument::Constant);
            let (given, is_led) = self.look_into(&repeated.body.graph, begin.chain(state).collect())?;
            inside.take(&given[1..], is_led);
            state = given[1..carried].to_vec();
        }
        Ok(())
    }

    fn look_at_scan(&self, scan: &Scan, inside: &mut Inside) -> Result<(), Failure> {
        if scan.is_old {
            return Ok(());
        }
        let mut state = self.arguments_at(0..scan.carried);
        for step in 0..ITERATIONS {
            let along = self.arguments_at(scan.carried..scan.carried + scan.along);
            for (i, argument) in along.iter().enumerate() {
                let Some(part) = self.part(argument, scan, i, step)? else {
                    self.goes_over_rows(scan.carried > 0, inside);
                    return Ok(());
                };
                state.push(part);
            }
            let (given, is_led) = self.look_into(&scan.body.graph, state)?;
            inside.take(&given, is_led);
            state = given[..scan.carried].to_vec();
        }
        Ok(())
    }

    /// What it carries, if it carries something, may be of other rows.
    fn goes_over_rows(&self, carries: bool, inside: &mut Inside) {
        inside.meetings = vec![carries.then_some(Meeting::Unseen); self.step.outputs.len()];
    }

    fn arguments_at(&self, range: Range<usize>) -> Vec<Argument> {
        self.arguments.get(range).unwrap_or_default().to_vec()
    }

    /// What a body gives, and whether a row takes something there by an index that it makes.
    fn look_into(&self, body: &Subgraph, mut inputs: Vec<Argument>) -> Result<(Vec<Argument>, bool), Failure> {
        inputs.extend(self.arguments_at(body.captures.clone()));
        walk(&body.plan, inputs, self.count, Some(self.at))
    }

    /// What a scan takes of one of its inputs in one step; nothing where that is a row.
    fn part(&self, argument: &Argument, scan: &Scan, i: usize, step: usize) -> Result<Option<Argument>, OpError> {
        let cut = |value| row(value, scan.axis(i, value.rank())?, step, self.device);
        Ok(match argument {
            Argument::Absent => None,
            Argument::Constant(value) => Some(Argument::Constant(cut(value)?)),
            Argument::Pair(pair) => {
                let axis = scan.axis(i, pair.many.rank())?;
                let tie = match pair.tie {
                    Tie::Nothing => Tie::Nothing,
                    Tie::Rows(Layout { axis: own, inner }, number) if own != axis => {
                        Tie::Rows(Layout { axis: own - usize::from(own > axis), inner }, number)
                    }
                    _ => return Ok(None),
                };
                let reach = pair.reach.as_ref().map(|reach| Arc::new(reach.even()));
                let (one, many) = (cut(&pair.one)?, cut(&pair.many)?);
                Some(Argument::Pair(Box::new(Pair { one, many, far: None, tie, is_shared: pair.is_shared, reach })))
            }
        })
    }
}
