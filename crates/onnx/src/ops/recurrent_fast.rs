//! Recurrent layers by our own kernel: LSTMs and GRUs of float32 with the usual functions, whose weights are constant.

use burn_backend::ops::FloatTensorOps;
use burn_backend::{DType, TensorMetadata};
use rayon::prelude::*;

use super::recurrent::{Cell, Direction, Run, Squash};
use super::{Build, host};
use crate::fast::integers::Integers;
use crate::fast::quantize::Small;
use crate::fast::recurrent::{self as fast, Course, Layer, State};
use crate::fast::rounded::Rounded;
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

/// The first argument of a rounded layer that is one of its weights as integers, each with scales and zero points behind it.
const INTEGERS: usize = 8;

/// The same for a layer that rounds what its products read, whose weights come as integers behind the usual arguments.
pub(super) fn in_integers(
    build: &mut Build<'_>,
    directions: &[Direction],
    given: &[Option<Value>; 4],
) -> Result<Option<Vec<Layer>>, OpError> {
    let usual = |direction: &Direction| {
        let functions = direction.functions == [Squash::Sigmoid, Squash::Tanh, Squash::Tanh];
        direction.cell == Cell::Lstm { coupled: false } && functions && direction.clip.is_none()
    };
    let integers: Option<Vec<Value>> = (INTEGERS..INTEGERS + 6).map(|i| build.constant(i)).collect();
    let [_, Some(Value::Float(hidden)), bias, None] = given else { return Ok(None) };
    let (Some(integers), true) = (integers, directions.iter().all(usual)) else { return Ok(None) };
    let [_, columns, size] = hidden.shape().dims::<3>();
    let count = directions.len();
    let bias = match bias {
        Some(Value::Float(bias)) if let Some(bias) = Floats::of(bias) => Some(bias),
        None => None,
        Some(_) => return Ok(None),
    };
    let mut parts = [Vec::new(), Vec::new()];
    for (weights, parts) in integers.chunks_exact(3).zip(&mut parts) {
        let [weight, scale, zero] = weights else { return Ok(None) };
        let scales = host::read::<f32>(scale.clone().cast(DType::F32, build.device)?)?;
        let zeros = host::read::<i32>(zero.clone().cast(DType::I32, build.device)?)?;
        let terms = elements(&weight.shape())? / (count * columns).max(1);
        let fits = scales.len() == zeros.len() && [count, count * columns].contains(&scales.len());
        if !fits {
            return Ok(None);
        }
        for i in 0..count {
            let each = scales.len() / count;
            let (zeros, scales) = (&zeros[i * each..(i + 1) * each], &scales[i * each..(i + 1) * each]);
            let laid_out = match weight.dtype() {
                DType::U8 => layout(&host::read::<u8>(weight.clone())?, i, [terms, columns], zeros),
                DType::I8 => layout(&host::read::<i8>(weight.clone())?, i, [terms, columns], zeros),
                _ => return Ok(None),
            };
            let scales = if each == 1 { vec![scales[0]; columns] } else { scales.to_vec() };
            parts.push((laid_out, scales));
        }
    }
    let [inputs, hiddens] = parts;
    let layers = inputs.into_iter().zip(hiddens).enumerate().map(|(i, (input, hidden))| {
        let bias = bias.as_ref().map(|bias| {
            let (of_input, of_hidden) = bias.as_slice()[i * 2 * columns..][..2 * columns].split_at(columns);
            of_input.iter().zip(of_hidden).map(|(a, b)| a + b).collect()
        });
        Layer::rounded(size, Rounded::new(input.0, input.1, bias), Rounded::new(hidden.0, hidden.1, None))
    });
    Ok(Some(layers.collect()))
}

/// The weights of direction `i`.
fn layout<E: Small>(weights: &[E], i: usize, [terms, columns]: [usize; 2], zeros: &[i32]) -> Integers {
    Integers::new(&weights[i * terms * columns..][..terms * columns], [terms, columns], zeros)
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
                let mut joined = Vec::with_capacity(count * steps * block);
                for step in 0..steps {
                    shown.iter().for_each(|each| joined.extend_from_slice(&each[step * block..][..block]));
                }
                joined
            }
        };
        Ok(vec![value(joined, vec![steps, count, rows, size], &[2, 0, 1, 3])?, hidden, cells])
    }
}
