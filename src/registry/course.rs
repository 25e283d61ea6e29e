//! What becomes of the requests of a batch, run by run: joined, padded, and run again without those that the model refuses.
//!
//! Pure: whoever runs the model, at once or some time later, asks for the next batch and says what came of it.

use std::sync::Arc;
use std::time::Duration;

use super::lengths::{LengthRules, PaddedBatch};
use crate::batcher::{BatchError, BatchSizes};
use crate::runner::{Rows, RunnerError, Signature};
use crate::tensor::{TensorError, Tensors};

/// How a model is given its batches.
#[derive(Debug)]
pub(super) struct Manner {
    pub(super) signature: Arc<Signature>,
    /// The sizes of its batches.
    pub(super) sizes: BatchSizes,
    /// How rows are padded to one length; `None` if only rows of equal lengths run together.
    pub(super) padding: Option<Arc<LengthRules>>,
    /// Whether it can refuse rows, so that copies of the inputs are needed to run the others again.
    pub(super) may_refuse: bool,
    /// Whether a request may give its outputs another form than the signature has.
    pub(super) may_change_form: bool,
    /// Once it has run for so long, nobody's rows are run again for having shared a batch with refused ones.
    pub(super) most: Duration,
}

/// Why one request of a batch has no outputs.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Unserved {
    /// What is wrong with its inputs, in words for its caller.
    Input(String),
    /// The model refused rows without saying which, and the time to find out was over before this request's turn.
    Untold,
    /// The model failed on it, and on it alone. For the operator.
    Failed(String),
    /// Whoever runs the model is not there, or others have what it needs. For the operator.
    Absent(String),
}

/// What one request of a batch gets.
pub(super) type Outcome = Result<Tensors, Unserved>;

/// What the runs of a batch came to so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The model's time.
    pub(super) execute: Duration,
    /// Elements of the requests' own.
    pub(super) elements: usize,
    /// Elements that were added to those.
    pub(super) padding: usize,
    /// Whether some request's inputs were refused by the model.
    pub(super) has_refused: bool,
}

/// What to do next.
#[derive(Debug)]
pub(super) enum Next {
    /// Run these rows and say what came of it.
    Run(Tensors),
    /// Nothing: this is what each request gets, in order.
    Done(Vec<Outcome>),
}

/// The requests of one batch on their way to their outputs.
pub(super) struct Course {
    manner: Arc<Manner>,
    /// What is still to be run; the last is next.
    groups: Vec<Group>,
    running: Option<Running>,
    outcomes: Vec<Option<Outcome>>,
    /// Whether each request was run whole.
    whole: Vec<bool>,
    tally: Tally,
}

/// Requests that join, and their places among all.
#[derive(Debug, Default)]
struct Group {
    places: Vec<usize>,
    requests: Vec<Tensors>,
}

/// The group that the model has.
struct Running {
    places: Vec<usize>,
    /// Rows of each request.
    rows: Vec<usize>,
    /// Rows of the batch, with those that were added.
    size: usize,
    /// Whether this is one request that was kept whole.
    is_whole: bool,
    /// The requests again, in their own lengths.
    spare: Option<Vec<Tensors>>,
    /// How they were padded to one length, if they were.
    padded: Option<PaddedBatch>,
}

impl Course {
    /// Requests whose free dimensions differ (a sentence of 7 tokens, one of 9) cannot share tensors: they are padded to one
    /// length where that is asked for, and else run one group after the other.
    pub(super) fn new(manner: Arc<Manner>, requests: Vec<Tensors>) -> Result<Course, BatchError> {
        let tally = Tally { elements: requests.iter().map(elements).sum(), ..Tally::default() };
        let outcomes = requests.iter().map(|_| None).collect();
        let whole = requests.iter().map(|request| manner.signature.is_whole(request)).collect();
        let groups = groups(&manner.signature, manner.padding.as_deref(), requests.into_iter().enumerate());
        Ok(Course { manner, groups, running: None, outcomes, whole, tally })
    }

    /// Whether the request at this place was run whole, so that its outputs are those of [`Signature::whole_shapes`].
    pub(super) fn is_whole(&self, place: usize) -> bool {
        self.whole[place]
    }

    /// What the runs came to.
    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What to do next.
    pub(super) fn next(&mut self) -> Result<Next, BatchError> {
        if self.tally.has_refused && self.tally.execute > self.manner.most {
            for place in self.groups.drain(..).flat_map(|group| group.places) {
                self.outcomes[place] = Some(Err(Unserved::Untold));
            }
        }
        let Some(Group { places, requests }) = self.groups.pop() else { return self.done().map(Next::Done) };
        let padded = self.manner.padding.as_ref().and_then(|rules| PaddedBatch::plan(rules, &requests));
        let is_kept = (places.len() > 1 && (self.manner.may_refuse || padded.is_some())) || self.manner.may_change_form;
        let spare = is_kept.then(|| requests.clone());
        let rows = requests.iter().map(Tensors::rows).collect();
        let requests = self.pad(padded.as_ref(), requests)?;
        let mut batch = Tensors::join(requests).map_err(broken)?;
        let is_whole = self.manner.signature.is_whole(&batch);
        let (own, size) = (batch.rows(), if is_whole { 1 } else { self.manner.sizes.padded(batch.rows()) });
        if size > own {
            let before = elements(&batch);
            batch = batch.resize_rows(size).map_err(broken)?;
            self.tally.padding += elements(&batch) - before;
        }
        self.running = Some(Running { places, rows, size, is_whole, spare, padded });
        Ok(Next::Run(batch))
    }

    /// Pads requests as planned.
    fn pad(&mut self, plan: Option<&PaddedBatch>, requests: Vec<Tensors>) -> Result<Vec<Tensors>, BatchError> {
        let Some(plan) = plan else { return Ok(requests) };
        let own: usize = requests.iter().map(elements).sum();
        let padded: Vec<Tensors> =
            requests.into_iter().map(|request| plan.pad(request)).collect::<Result<_, _>>().map_err(broken)?;
        self.tally.padding += padded.iter().map(elements).sum::<usize>() - own;
        Ok(padded)
    }

    /// What came of the run, and how long it took. Where the model names rows that it refuses, the others run again without
    /// them. Where it refuses some row and cannot say which, half of them run without the other half, and so on. Whose rows
    /// are refused is told so, and everybody else is answered.
    pub(super) fn ran(&mut self, outputs: Result<Tensors, RunnerError>, took: Duration) -> Result<(), BatchError> {
        self.tally.execute += took;
        let running = self.running.take().ok_or_else(|| BatchError::new("nothing was to be run"))?;
        match outputs {
            Ok(outputs) => self.answered(running, outputs),
            Err(RunnerError::Rows(named)) => self.refused_by_name(running, named, Unserved::Input),
            Err(RunnerError::FailedRows(named)) => self.refused_by_name(running, named, Unserved::Failed),
            Err(RunnerError::Input(why)) => self.refused(running, Unserved::Input(why)),
            Err(RunnerError::Row(why)) => self.refused(running, Unserved::Failed(why)),
            Err(RunnerError::Busy(why)) => self.refused(running, Unserved::Absent(why)),
            Err(RunnerError::Absent(why)) => {
                self.tally.has_refused = true;
                for place in running.places {
                    self.outcomes[place] = Some(Err(Unserved::Absent(why.clone())));
                }
                Ok(())
            }
            Err(why) => Err(BatchError::new(why.to_string())),
        }
    }

    fn answered(&mut self, running: Running, outputs: Tensors) -> Result<(), BatchError> {
        if running.padded.as_ref().is_some_and(|padded| !padded.agrees(&outputs)) {
            return self.run_unpadded(running);
        }
        let Running { places, rows, size, is_whole, spare, padded } = running;
        let signature = &self.manner.signature;
        let agrees = if is_whole { signature.has_names_of(&outputs) } else { signature.agrees(&outputs, size) };
        if !agrees {
            if let Some(requests) = spare.filter(|_| self.may_run_whole(&outputs, is_whole)) {
                return self.run_whole(places, requests);
            }
            let shapes: Vec<_> = outputs.iter().map(|(name, t)| format!("{name} {:?}", t.shape())).collect();
            let why = format!("outputs for {size} rows break the signature: {}", shapes.join(", "));
            // Other groups have run for themselves.
            for place in places {
                self.outcomes[place] = Some(Err(Unserved::Failed(why.clone())));
            }
            return Ok(());
        }
        let own = rows.iter().sum();
        let outputs = if size > own { outputs.resize_rows(own).map_err(broken)? } else { outputs };
        let parts = outputs.split(&rows).map_err(broken)?.into_iter().enumerate();
        for (place, (i, outputs)) in places.into_iter().zip(parts) {
            let outputs = match &padded {
                Some(padded) => padded.cut(i, outputs).map_err(broken)?,
                None => outputs,
            };
            self.outcomes[place] = Some(Ok(outputs));
        }
        Ok(())
    }

    /// Whether outputs may break the signature because these requests have given them another form. All requests of a run have
    /// the same lengths, and the same values of inputs without rows, so that the form is that of each of them.
    fn may_run_whole(&self, outputs: &Tensors, is_whole: bool) -> bool {
        let Manner { signature, may_change_form, .. } = &*self.manner;
        *may_change_form && !is_whole && signature.has_names_of(outputs)
    }

    /// Has each of these requests run once more, as a whole.
    fn run_whole(&mut self, places: Vec<usize>, requests: Vec<Tensors>) -> Result<(), BatchError> {
        // Such a batch takes longer than others of its size.
        self.tally.has_refused = true;
        for (place, request) in places.into_iter().zip(requests).rev() {
            let requests = vec![self.manner.signature.keep_whole(request).map_err(broken)?];
            self.whole[place] = true;
            self.groups.push(Group { places: vec![place], requests });
        }
        Ok(())
    }

    /// Runs requests again, one group of equal lengths after the other, because the outputs of a padded batch are not as
    /// long as foreseen: which of their numbers are whose answer is then unknown.
    fn run_unpadded(&mut self, running: Running) -> Result<(), BatchError> {
        // Such a batch takes longer than others of its size.
        self.tally.has_refused = true;
        let requests = running.spare.ok_or_else(|| BatchError::new("the padded requests were not kept"))?;
        let requests = running.places.into_iter().zip(requests);
        self.groups.extend(groups(&self.manner.signature, None, requests));
        Ok(())
    }

    fn refused_by_name(
        &mut self,
        running: Running,
        named: Vec<(usize, String)>,
        kind: fn(String) -> Unserved,
    ) -> Result<(), BatchError> {
        self.tally.has_refused = true;
        let Running { places, rows, size, spare, padded, .. } = running;
        let refused =
            refused(&rows, size, named).ok_or_else(|| BatchError::new("it refused rows that there are not"))?;
        let mut spare = spare.map(Vec::into_iter);
        let (mut others, mut alone) = (Group::default(), Vec::new());
        for (i, (place, why)) in places.into_iter().zip(refused).enumerate() {
            let request = spare.as_mut().and_then(Iterator::next);
            match (why, request) {
                // The model may take it without the padding.
                (Some(_), Some(request)) if padded.as_ref().is_some_and(|padded| padded.is_padded(i)) => {
                    alone.push((place, request));
                }
                (Some(why), _) => self.outcomes[place] = Some(Err(kind(why))),
                (None, Some(request)) => others.push(place, request),
                (None, None) => return Err(BatchError::new("it refused rows, which it said that it never does")),
            }
        }
        self.groups.extend(groups(&self.manner.signature, None, alone.into_iter()));
        self.groups.extend((!others.places.is_empty()).then_some(others));
        Ok(())
    }

    fn refused(&mut self, running: Running, why: Unserved) -> Result<(), BatchError> {
        self.tally.has_refused = true;
        match (running.places.as_slice(), running.spare) {
            (&[place], _) => self.outcomes[place] = Some(Err(why)),
            (_, None) => return Err(BatchError::new("it refused a row, which it said that it never does")),
            (_, Some(requests)) => {
                let mut members: Vec<(usize, Tensors)> = running.places.into_iter().zip(requests).collect();
                // The long ones apart, each half is padded to a length of its own: one that is too long for the model is found, and a
                // request by itself is not padded.
                if running.padded.is_some() {
                    members.sort_by_key(|(_, request)| elements(request) / request.rows().max(1));
                }
                let (mut places, mut requests): (Vec<_>, Vec<_>) = members.into_iter().unzip();
                let half = places.len() / 2;
                let second = Group { places: places.split_off(half), requests: requests.split_off(half) };
                self.groups.extend([second, Group { places, requests }]);
            }
        }
        Ok(())
    }

    /// What each request gets.
    fn done(&mut self) -> Result<Vec<Outcome>, BatchError> {
        let outcomes = std::mem::take(&mut self.outcomes).into_iter();
        outcomes.map(|outcome| outcome.ok_or_else(|| BatchError::new("a request was left out"))).collect()
    }
}

impl Group {
    fn push(&mut self, place: usize, request: Tensors) {
        self.places.push(place);
        self.requests.push(request);
    }
}

/// For requests of so many rows each, what is wrong with a row of theirs that is named, if one is. A batch of `size` rows has others behind them,
/// which are copies. `None` where no row of theirs is named, or one that there is not.
fn refused(rows: &[usize], size: usize, named: Vec<(usize, String)>) -> Option<Vec<Option<String>>> {
    let owners: Vec<usize> = rows.iter().enumerate().flat_map(|(i, &rows)| std::iter::repeat_n(i, rows)).collect();
    let mut refused = vec![None; rows.len()];
    for (row, why) in named {
        match owners.get(row) {
            Some(&own) => drop(refused[own].get_or_insert(why)),
            None if row < size => {}
            None => return None,
        }
    }
    refused.iter().any(Option::is_some).then_some(refused)
}

/// Requests, with their places, in groups that join, once they are padded by the `padding` rules, and whose answers do; the group of the
/// first request is last. A request that was kept whole joins no other.
fn groups(
    signature: &Signature,
    padding: Option<&LengthRules>,
    requests: impl Iterator<Item = (usize, Tensors)>,
) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (place, request) in requests {
        let can_pad = |request: &Tensors| padding.is_some_and(|rules| rules.can_pad(request));
        let (is_whole, pads) = (signature.is_whole(&request), can_pad(&request));
        let fits = |first: &Tensors| {
            !is_whole
                && !signature.is_whole(first)
                && (first.joins_with(&request) || (pads && can_pad(first)))
                && answers_join(signature, first, &request)
        };
        match groups.iter_mut().find(|group| fits(&group.requests[0])) {
            Some(group) => group.push(place, request),
            None => groups.push(Group { places: vec![place], requests: vec![request] }),
        }
    }
    groups.reverse();
    groups
}

/// Whether answers to two requests have the same lengths, as far as what all rows of a run share decides them: how many are to be found, where to cut. Requests
/// that differ in it share no run of the model anyway.
fn answers_join(signature: &Signature, one: &Tensors, other: &Tensors) -> bool {
    // A model without rows whose values decide lengths is given one request at a time.
    if signature.is_unbatched() || signature.outputs.iter().all(|spec| !spec.dims.contains(&None)) {
        return true;
    }
    let pairs = signature.inputs.iter().zip(one.iter()).zip(other.iter());
    pairs.filter(|((spec, _), _)| spec.rows == Rows::Shared).all(|((_, (_, one)), (_, other))| {
        let first = one.row(0);
        (1..one.rows()).all(|at| one.row(at) == first) && (0..other.rows()).all(|at| other.row(at) == first)
    })
}

fn elements(tensors: &Tensors) -> usize {
    tensors.iter().map(|(_, tensor)| tensor.data().len()).sum()
}

fn broken(error: TensorError) -> BatchError {
    BatchError::new(error.to_string())
}

#[cfg(test)]
mod tests;
