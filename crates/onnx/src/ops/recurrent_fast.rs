//! Recurrent layers by our own kernel: LSTMs and GRUs of float32 with the usual functions, whose weights are constant.

use burn_backend::TensorMetadata;
use burn_backend::ops::FloatTensorOps;
use rayon::prelude::*;

use super::recurrent::{Cell, Direction, Run, Squash};
use crate::fast::recurrent::{self as fast, Course, Layer, State};
use crate::floats::{self, Floats};
use crate::value::{Backend as B, OpError, Value, elements};

/// The directions of a layer, laid out for the kernel: `None` where it does not compute what they do, or where the elements are
/// not at hand. Weights, those of the state, biases and peepholes are of shapes that have been checked.
pub(super) fn laid_out(directions: &[Direction], given: &[Option<Value>; 4]) -> Option<Vec<Layer>> {
    let [Some(Value::Float(input)), Some(Value::Float(hidden)), bias, None] = given else { return None };
    let bias = match bias {
        None => None,
        Some(Value::Float(bias)) => Some(Floats::of(bias)?),
        Some(_) => return None,
    };
    let (count, [_, _, size], [_, _, inputs]) =
        (directions.len(), hidden.shape().dims::<3>(), input.shape().dims::<3>());
    let (input, hidden) = (Floats::of(input)?, Floats::of(hidden)?);
    let layer = |(i, direction): (usize, &Direction)| {
        let usual = [Squash::Sigmoid, Squash::Tanh, Squash::Tanh];
        let cell = match direction.cell {
            Cell::Lstm { coupled: false } if direction.functions == usual => fast::Cell::Lstm,
            Cell::Gru { linear: true } if direction.functions == usual[..2] => fast::Cell::LinearGru,
            Cell::Gru { linear: false } if direction.functions == usual[..2] => fast::Cell::Gru,
            _ => return None,
        };
        let part = |all: &Floats| {
            let each = all.as_slice().len() / count;
            i * each..(i + 1) * each
        };
        let weights = [&input, &hidden].map(|all| &all.as_slice()[part(all)]);
        let bias = bias.as_ref().map(|all| &all.as_slice()[part(all)]);
        direction.clip.is_none().then(|| Layer::new(cell, size, inputs, weights, bias))
    };
    directions.iter().enumerate().map(layer).collect()
}

impl Run<'_> {
    /// The outputs of all directions: all hidden states, the last ones and those of the cells.
    pub(super) fn by_kernel(
        self,
        directions: &[Direction],
        layers: &[Layer],
        all: bool,
        batch_first: bool,
    ) -> Result<Vec<Value>, OpError> {
        let Run { steps, rows, size, .. } = self;
        let [_, _, inputs] = self.x.shape().dims::<3>();
        let x = Floats::of(&self.x).filter(|_| layers.iter().all(|layer| layer.inputs() == inputs));
        let Some(x) = x else {
            let (expected, kind) = (layers[0].inputs(), self.x.dtype());
            return Err(OpError(format!("weights of {expected} inputs of F32 do not fit {inputs} of {kind:?}")));
        };
        elements(&[steps, rows, 4, size])?;
        let (count, block) = (layers.len(), rows * size);
        let initial = self.initial.each_ref().map(|state| state.as_ref().and_then(Floats::of));
        let run = |i: usize| {
            let first = |state: &Option<Floats>| match state {
                Some(state) => state.as_slice()[i * block..][..block].to_vec(),
                None => vec![0.0; block],
            };
            let mut state = State { hidden: first(&initial[0]), cell: first(&initial[1]) };
            let mut shown = vec![0.0; if all { steps * block } else { 0 }];
            let course = Course { steps, rows, backwards: directions[i].backwards, lengths: self.lengths.as_deref() };
            layers[i].run(x.as_slice(), course, &mut state, |step, hidden| {
                if all {
                    shown[step * block..][..block].copy_from_slice(hidden);
                }
            });
            (shown, state)
        };
        let given: Vec<(Vec<f32>, State)> = match count > 1 && rayon::current_num_threads() > 1 {
            true => (0..count).into_par_iter().map(run).collect(),
            false => (0..count).map(run).collect(),
        };
        let (mut shown, mut hidden, mut cells) = (Vec::with_capacity(count), Vec::new(), Vec::new());
        for (each, state) in given {
            shown.push(each);
            hidden.extend(state.hidden);
            cells.extend(state.cell);
        }
        let value = |numbers: Vec<f32>, dims: Vec<usize>, order: &[usize]| -> Result<Value, OpError> {
            let value = floats::tensor(numbers, dims, self.device)?.float()?;
            Ok(Value::Float(if batch_first { B::float_permute(value, order) } else { value }))
        };
        let states = vec![count, rows, size];
        let hidden = value(hidden, states.clone(), &[1, 0, 2])?;
        let cells = value(cells, states, &[1, 0, 2])?;
        if !all {
            // Nobody reads it; something must stand in its place.
            return Ok(vec![hidden.clone(), hidden, cells]);
        }
        let joined = match shown.len() {
            1 => shown.remove(0),
            _ => {
                let steps = (0..steps).flat_map(|step| shown.iter().map(move |each| &each[step * block..][..block]));
                steps.flatten().copied().collect()
            }
        };
        Ok(vec![value(joined, vec![steps, count, rows, size], &[2, 0, 1, 3])?, hidden, cells])
    }
}
