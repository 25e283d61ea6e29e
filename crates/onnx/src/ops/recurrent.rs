//! Recurrent layers: plain, GRU and LSTM, in one or both directions.
//!
//! What the inputs contribute to all steps is one matrix product; each step adds what the hidden state contributes.

use burn_backend::ops::{ActivationOps, FloatTensorOps};
use burn_backend::{BoolStore, DType, FloatDType, Shape, Slice, TensorData, TensorMetadata};
use burn_dispatch::DispatchDevice;
use uncork_model::quote::Quoted;

use super::quantize::by_row;
use super::{Args, Build, Kernel, Operator, recurrent_fast};
use crate::fast::recurrent::Layer;
use crate::value::{Backend as B, Handle, OpError, Value, bool_type_beside, elements};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("GRU", |build| {
        let linear = build.attributes.flag("linear_before_reset", false)?;
        layer(build, Cell::Gru { linear }, false)
    }),
    Operator::new("LSTM", |build| {
        let coupled = build.attributes.flag("input_forget", false)?;
        layer(build, Cell::Lstm { coupled }, false)
    }),
    Operator::new("RNN", |build| layer(build, Cell::Plain, false)),
    Operator::new("uncork::RoundedLstm", |build| {
        let coupled = build.attributes.flag("input_forget", false)?;
        layer(build, Cell::Lstm { coupled }, true)
    }),
];

/// What a step computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cell {
    Plain,
    /// `linear`: the reset gate multiplies what the hidden state contributes, not the state.
    Gru {
        linear: bool,
    },
    /// `coupled`: what is not let in is kept.
    Lstm {
        coupled: bool,
    },
}

impl Cell {
    /// Columns of the weights, in hidden sizes.
    fn gates(self) -> usize {
        match self {
            Cell::Plain => 1,
            Cell::Gru { .. } => 3,
            Cell::Lstm { .. } => 4,
        }
    }

    /// The functions of each direction, in ONNX's order, where a file does not name them.
    fn functions(self) -> &'static [&'static str] {
        match self {
            Cell::Plain => &["Tanh"],
            Cell::Gru { .. } => &["Sigmoid", "Tanh"],
            Cell::Lstm { .. } => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

/// A function of a gate, with its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Squash {
    Relu,
    Tanh,
    Sigmoid,
    Affine(f32, f32),
    LeakyRelu(f32),
    ThresholdedRelu(f32),
    ScaledTanh(f32, f32),
    HardSigmoid(f32, f32),
    Elu(f32),
    Softsign,
    Softplus,
}

impl Squash {
    /// The function of this name, with the next of the parameters or, where ONNX has one, the default.
    fn named(
        name: &str,
        alphas: &mut impl Iterator<Item = f32>,
        betas: &mut impl Iterator<Item = f32>,
    ) -> Result<Squash, OpError> {
        let missing =
            || OpError(format!("the function {} lacks a parameter (activation_alpha, activation_beta)", Quoted(name)));
        let mut alpha = |default: Option<f32>| alphas.next().or(default).ok_or_else(missing);
        let mut beta = |default: Option<f32>| betas.next().or(default).ok_or_else(missing);
        Ok(match name.to_ascii_lowercase().as_str() {
            "relu" => Squash::Relu,
            "tanh" => Squash::Tanh,
            "sigmoid" => Squash::Sigmoid,
            "affine" => Squash::Affine(alpha(None)?, beta(None)?),
            "leakyrelu" => Squash::LeakyRelu(alpha(Some(0.01))?),
            "thresholdedrelu" => Squash::ThresholdedRelu(alpha(Some(1.0))?),
            "scaledtanh" => Squash::ScaledTanh(alpha(None)?, beta(None)?),
            "hardsigmoid" => Squash::HardSigmoid(alpha(Some(0.2))?, beta(Some(0.5))?),
            "elu" => Squash::Elu(alpha(Some(1.0))?),
            "softsign" => Squash::Softsign,
            "softplus" => Squash::Softplus,
            _ => return Err(OpError(format!("the function {} is not known", Quoted(name)))),
        })
    }

    fn of(self, x: Handle) -> Handle {
        match self {
            Squash::Relu => B::relu(x),
            Squash::Tanh => B::float_tanh(x),
            Squash::Sigmoid => B::sigmoid(x),
            Squash::Affine(a, b) => B::float_add_scalar(B::float_mul_scalar(x, a.into()), b.into()),
            Squash::LeakyRelu(a) => B::leaky_relu(x, a.into()),
            Squash::ThresholdedRelu(a) => {
                let below = B::float_lower_elem(x.clone(), a.into(), bool_type_beside(&x));
                B::float_mask_fill(x, below, 0.0.into())
            }
            Squash::ScaledTanh(a, b) => B::float_mul_scalar(B::float_tanh(B::float_mul_scalar(x, b.into())), a.into()),
            Squash::HardSigmoid(a, b) => B::hard_sigmoid(x, a.into(), b.into()),
            Squash::Elu(a) => {
                let below = B::float_exp(B::float_clamp_max(x.clone(), 0.0.into()));
                let below = B::float_mul_scalar(B::float_sub_scalar(below, 1.0.into()), a.into());
                B::float_add(B::relu(x), below)
            }
            Squash::Softsign => B::float_div(x.clone(), B::float_add_scalar(B::float_abs(x), 1.0.into())),
            Squash::Softplus => {
                let tail = B::float_log1p(B::float_exp(B::float_neg(B::float_abs(x.clone()))));
                B::float_add(B::relu(x), tail)
            }
        }
    }
}

/// One direction: how it runs.
#[derive(Debug)]
pub(super) struct Direction {
    pub(super) cell: Cell,
    pub(super) backwards: bool,
    pub(super) functions: Vec<Squash>,
    /// What a product reads is rounded as dynamic quantisation does it.
    pub(super) rounded: bool,
    pub(super) clip: Option<f32>,
}

/// One direction's weights, laid out for row vectors.
#[derive(Clone)]
struct Weights {
    /// [inputs, gates · hidden]
    input: Handle,
    /// [hidden, gates · hidden]
    hidden: Handle,
    /// Both biases, as far as they can be added up before the steps: [1, gates · hidden].
    bias: Option<Handle>,
    /// Of a linear GRU, what is added to the hidden state's part: [1, hidden].
    inner_bias: Option<Handle>,
    /// Of an LSTM, how the cell's state reaches input, output and forget gate: each [1, hidden].
    peepholes: Option<[Handle; 3]>,
}

fn layer(build: &mut Build<'_>, cell: Cell, rounded: bool) -> Result<Kernel, OpError> {
    let attributes = &build.attributes;
    let declared = attributes.int("hidden_size", 0)?;
    let batch_first = attributes.flag("layout", false)?;
    let directions = directions(build, cell, rounded)?;
    let wants = [build.gives(0), build.gives(1), build.gives(2)];
    // Weights that are all constant are laid out once.
    let constant = [1, 2, 3, 7].iter().all(|&i| !build.has(i) || build.peek(i).is_some());
    let prepared = match constant {
        true => {
            let given = [1, 2, 3, 7].map(|i| build.constant(i));
            let checked = weights(&directions, given.clone(), build.device)?;
            let own = match rounded {
                true => recurrent_fast::in_integers(build, &directions, &given)?,
                false => recurrent_fast::laid_out(&directions, &given),
            };
            if let Some(layers) = own {
                return Ok(by_kernel(directions, layers, declared, wants, batch_first));
            }
            Some(checked)
        }
        false => None,
    };
    Ok(Kernel::many(move |mut args| {
        let (x, weights) = match &prepared {
            Some(weights) => (args.float(0)?, weights.clone()),
            None => {
                let given = [1, 2, 3, 7].map(|i| args.optional(i));
                (args.float(0)?, weights(&directions, given, args.device)?)
            }
        };
        let [_, size] = weights[0].hidden.shape().dims::<2>();
        let size = size / cell.gates();
        check_size(size, declared)?;
        let run = Run::of(x, size, directions.len(), batch_first, &mut args)?;
        run.all(&directions, &weights, wants, batch_first)
    }))
}

/// The layer with its weights laid out for our own kernel.
fn by_kernel(
    directions: Vec<Direction>,
    layers: Vec<Layer>,
    declared: i64,
    wants: [bool; 3],
    batch_first: bool,
) -> Kernel {
    let size = layers[0].size();
    Kernel::many(move |mut args| {
        let x = args.float(0)?;
        check_size(size, declared)?;
        let run = Run::of(x, size, directions.len(), batch_first, &mut args)?;
        run.by_kernel(&directions, &layers, wants[0], batch_first)
    })
}

fn check_size(size: usize, declared: i64) -> Result<(), OpError> {
    if declared != 0 && usize::try_from(declared) != Ok(size) {
        return Err(OpError(format!("weights of {size} hidden numbers, where hidden_size is {declared}")));
    }
    Ok(())
}

fn directions(build: &Build<'_>, cell: Cell, rounded: bool) -> Result<Vec<Direction>, OpError> {
    let attributes = &build.attributes;
    let backwards: &[bool] = match attributes.text("direction", "forward")?.as_str() {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return Err(OpError(format!("direction={}", Quoted(other)))),
    };
    let clip = attributes.float("clip", 0.0)?;
    let clip = (clip > 0.0).then_some(clip);
    let (alphas, betas) = (attributes.floats("activation_alpha")?, attributes.floats("activation_beta")?);
    let mut alphas = alphas.unwrap_or_default().into_iter();
    let mut betas = betas.unwrap_or_default().into_iter();
    let count = cell.functions().len();
    let names = attributes.texts("activations")?.filter(|names| !names.is_empty());
    let names =
        names.unwrap_or_else(|| cell.functions().repeat(backwards.len()).into_iter().map(str::to_owned).collect());
    if names.len() != count * backwards.len() {
        return Err(OpError(format!("{} functions for {} directions of {count}", names.len(), backwards.len())));
    }
    let each = backwards.iter().zip(names.chunks(count)).map(|(&backwards, names)| {
        let functions = names.iter().map(|name| Squash::named(name, &mut alphas, &mut betas));
        let functions = functions.collect::<Result<_, OpError>>()?;
        Ok(Direction { cell, backwards, functions, rounded, clip })
    });
    each.collect()
}

/// Lays out the weights of the inputs, of the hidden state, their biases and the peepholes.
fn weights(
    directions: &[Direction],
    [input, hidden, bias, peepholes]: [Option<Value>; 4],
    device: &DispatchDevice,
) -> Result<Vec<Weights>, OpError> {
    let need = |value: Option<Value>| value.ok_or_else(|| OpError::new("its weights are missing"))?.float();
    let (input, hidden) = (need(input)?, need(hidden)?);
    let (bias, peepholes) = (bias.map(Value::float).transpose()?, peepholes.map(Value::float).transpose()?);
    let cell = directions[0].cell;
    let (count, gates) = (directions.len(), cell.gates());
    let (have, recurrent) = (input.shape().to_vec(), hidden.shape().to_vec());
    let (size, inputs) = match (&recurrent[..], &have[..]) {
        (&[_, _, size], &[_, _, inputs]) => (size, inputs),
        _ => return Err(OpError(format!("weights of the shapes {have:?} and {recurrent:?}"))),
    };
    let columns = elements(&[gates, size])?;
    let fits = have == [count, columns, inputs] && recurrent == [count, columns, size] && size > 0;
    let shaped = |t: &Option<Handle>, n: usize| t.as_ref().is_none_or(|t| *t.shape() == [count, n * size]);
    if !fits || !shaped(&bias, 2 * gates) || !shaped(&peepholes, 3) {
        return Err(OpError(format!(
            "weights of the shapes {have:?} and {recurrent:?} with their biases do not fit {count} directions of {gates} gates"
        )));
    }
    let alike = |t: &Option<Handle>| t.as_ref().is_none_or(|t| t.dtype() == input.dtype());
    if hidden.dtype() != input.dtype() || !alike(&bias) || !alike(&peepholes) {
        return Err(OpError::new("its weights differ in type"));
    }
    let linear = cell == Cell::Gru { linear: true };
    let turned = |t: &Handle, i: usize, inner: usize| -> Result<Handle, OpError> {
        let one = B::float_slice(t.clone(), &[span(i, i + 1), span(0, columns), span(0, inner)]);
        let one = B::float_transpose(B::float_reshape(one, Shape::from(vec![columns, inner])));
        Value::from_data(Value::Float(one).into_data()?, device)?.float()
    };
    let row = |t: &Handle, i: usize, from: usize, to: usize| {
        B::float_slice(t.clone(), &[span(i, i + 1), span(from * size, to * size)])
    };
    let each = (0..count).map(|i| {
        let mut inner_bias = None;
        let bias = bias.as_ref().map(|bias| {
            let of_input = row(bias, i, 0, gates);
            if !linear {
                return B::float_add(of_input, row(bias, i, gates, 2 * gates));
            }
            inner_bias = Some(row(bias, i, 2 * gates - 1, 2 * gates));
            let of_gates = B::float_add(columns_of(&of_input, 0, 2, size), row(bias, i, gates, 2 * gates - 1));
            B::float_cat(vec![of_gates, columns_of(&of_input, 2, 3, size)], 1)
        });
        Ok(Weights {
            input: turned(&input, i, inputs)?,
            hidden: turned(&hidden, i, size)?,
            bias,
            inner_bias,
            peepholes: peepholes.as_ref().map(|p| [0, 1, 2].map(|gate| row(p, i, gate, gate + 1))),
        })
    });
    each.collect()
}

fn span(from: usize, to: usize) -> Slice {
    Slice::new(from as isize, Some(to as isize), 1)
}

/// Columns `from..to` of a matrix, in hidden sizes.
fn columns_of(t: &Handle, from: usize, to: usize, size: usize) -> Handle {
    let [rows, columns] = t.shape().dims::<2>();
    if from == 0 && to * size == columns {
        return t.clone();
    }
    B::float_slice(t.clone(), &[span(0, rows), span(from * size, to * size)])
}

/// The inputs of one run of a layer.
pub(super) struct Run<'a> {
    /// [steps, rows, inputs]
    pub(super) x: Handle,
    pub(super) steps: usize,
    pub(super) rows: usize,
    pub(super) size: usize,
    /// How many steps each row has, where they differ.
    pub(super) lengths: Option<Vec<usize>>,
    /// [directions, rows, hidden], of the hidden state and of an LSTM's cell.
    pub(super) initial: [Option<Handle>; 2],
    pub(super) device: &'a DispatchDevice,
}

/// What one direction gives.
struct Given {
    /// [steps, 1, rows, hidden], where it is wanted.
    all: Option<Handle>,
    /// The hidden state and the cell's behind the last step.
    last: [Handle; 2],
}

impl<'a> Run<'a> {
    fn of(
        x: Handle,
        size: usize,
        directions: usize,
        batch_first: bool,
        args: &mut Args<'a>,
    ) -> Result<Run<'a>, OpError> {
        let dims = x.shape();
        if dims.num_dims() != 3 || dims.contains(&0) {
            return Err(OpError(format!("the shape {dims:?} is not that of steps, rows and inputs")));
        }
        let x = if batch_first { B::float_permute(x, &[1, 0, 2]) } else { x };
        let [steps, rows, _] = x.shape().dims::<3>();
        elements(&[directions, steps, rows, size])?;
        let lengths = args.optional(4).map(|lengths| checked_lengths(lengths, steps, rows)).transpose()?;
        let wanted = [directions, rows, size];
        let mut state = |i: usize| -> Result<Option<Handle>, OpError> {
            let Some(state) = args.optional(i) else { return Ok(None) };
            let state = state.float()?;
            let rank = state.shape().num_dims();
            let state = if batch_first && rank == 3 { B::float_permute(state, &[1, 0, 2]) } else { state };
            if *state.shape() != wanted || state.dtype() != x.dtype() {
                return Err(OpError(format!("an initial state of shape {:?}, not {wanted:?}", state.shape().to_vec())));
            }
            Ok(Some(state))
        };
        let initial = [state(5)?, state(6)?];
        Ok(Run { x, steps, rows, size, lengths: lengths.flatten(), initial, device: args.device })
    }

    fn all(
        self,
        directions: &[Direction],
        weights: &[Weights],
        wants: [bool; 3],
        batch_first: bool,
    ) -> Result<Vec<Value>, OpError> {
        let pairs = directions.iter().zip(weights).enumerate();
        let given = pairs.map(|(i, (direction, weights))| self.direction(i, direction, weights, wants[0]));
        let (mut all, mut hidden, mut cells) = (Vec::new(), Vec::new(), Vec::new());
        for given in given.collect::<Result<Vec<Given>, OpError>>()? {
            all.extend(given.all);
            let last = given.last.map(|t| B::float_reshape(t, Shape::from(vec![1, self.rows, self.size])));
            let [state, cell] = last;
            hidden.push(state);
            cells.push(cell);
        }
        let joined = |mut parts: Vec<Handle>, axis: usize, order: &[usize]| {
            let whole = if parts.len() == 1 { parts.remove(0) } else { B::float_cat(parts, axis) };
            Value::Float(if batch_first { B::float_permute(whole, order) } else { whole })
        };
        let states = [hidden, cells].map(|parts| joined(parts, 0, &[1, 0, 2]));
        let [hidden, cells] = states;
        // An output that nobody reads is not put together; something must stand in its place.
        let all = if all.is_empty() { hidden.clone() } else { joined(all, 1, &[2, 0, 1, 3]) };
        Ok(vec![all, hidden, cells])
    }

    fn direction(&self, i: usize, direction: &Direction, weights: &Weights, all: bool) -> Result<Given, OpError> {
        let &Run { steps, rows, size, .. } = self;
        let [_, _, inputs] = self.x.shape().dims::<3>();
        let [expected, columns] = weights.input.shape().dims::<2>();
        let kind = self.x.dtype();
        if inputs != expected || kind != weights.input.dtype() {
            return Err(OpError(format!(
                "weights of {expected} inputs of {:?} do not fit {inputs} of {kind:?}",
                weights.input.dtype()
            )));
        }
        elements(&[steps, rows, columns])?;
        let x = if direction.rounded { by_row(self.x.clone(), 1, self.device)? } else { self.x.clone() };
        let x = B::float_reshape(x, Shape::from(vec![steps * rows, inputs]));
        let mut sums = B::float_matmul(x, weights.input.clone());
        if let Some(bias) = &weights.bias {
            sums = B::float_add(sums, bias.clone());
        }
        let first = |state: &Option<Handle>| match state {
            Some(state) => {
                let one = B::float_slice(state.clone(), &[span(i, i + 1), span(0, rows), span(0, size)]);
                B::float_reshape(one, Shape::from(vec![rows, size]))
            }
            None => B::float_zeros(Shape::from(vec![rows, size]), self.device, FloatDType::from(kind)),
        };
        let [mut hidden, mut cell] = [first(&self.initial[0]), first(&self.initial[1])];
        let mut outputs = Vec::with_capacity(if all { steps } else { 0 });
        for step in 0..steps {
            let step = if direction.backwards { steps - 1 - step } else { step };
            let now = B::float_slice(sums.clone(), &[span(step * rows, (step + 1) * rows), span(0, columns)]);
            let seen = if direction.rounded { by_row(hidden.clone(), 0, self.device)? } else { hidden.clone() };
            let (next, next_cell) = direction.step(now, &seen, cell.clone(), weights, size);
            let mut output = next.clone();
            match self.running(step)? {
                None => (hidden, cell) = (next, next_cell),
                // Rows that are over, or have not begun, keep their state and give zeros.
                Some(running) => {
                    hidden = B::float_mask_where(hidden, running.clone(), next);
                    cell = B::float_mask_where(cell, running.clone(), next_cell);
                    let zeros = B::float_zeros(output.shape(), self.device, FloatDType::from(kind));
                    output = B::float_mask_where(zeros, running, output);
                }
            }
            if all {
                outputs.push(B::float_reshape(output, Shape::from(vec![1, 1, rows, size])));
            }
        }
        if direction.backwards {
            outputs.reverse();
        }
        Ok(Given { all: all.then(|| B::float_cat(outputs, 0)), last: [hidden, cell] })
    }

    /// Which rows have this step, for each hidden number; `None` if all do.
    fn running(&self, step: usize) -> Result<Option<Handle>, OpError> {
        let Some(lengths) = self.lengths.as_ref().filter(|lengths| lengths.iter().any(|&l| step >= l)) else {
            return Ok(None);
        };
        let mask: Vec<bool> = lengths.iter().flat_map(|&l| std::iter::repeat_n(step < l, self.size)).collect();
        let data = TensorData::new(mask, [self.rows, self.size]).convert_dtype(DType::Bool(BoolStore::Native));
        match Value::from_data(data, self.device)? {
            Value::Bool(mask) => Ok(Some(mask)),
            other => Err(OpError(format!("a mask became {}", other.kind()))),
        }
    }
}

/// The number of steps of each row; `None` if all have all.
fn checked_lengths(lengths: Value, steps: usize, rows: usize) -> Result<Option<Vec<usize>>, OpError> {
    let lengths = lengths.ints()?.ints;
    let fit = |&l: &i64| usize::try_from(l).ok().filter(|&l| l <= steps);
    let known: Option<Vec<usize>> = lengths.iter().map(fit).collect();
    match known {
        Some(known) if known.len() == rows => Ok(Some(known).filter(|known| known.iter().any(|&l| l != steps))),
        _ => Err(OpError(format!("sequence lengths of {lengths:?} do not fit {rows} rows of {steps} steps"))),
    }
}

impl Direction {
    /// The hidden state and the cell's after a step; `sums` is what the inputs contribute: [rows, gates · hidden].
    fn step(&self, sums: Handle, hidden: &Handle, cell: Handle, weights: &Weights, size: usize) -> (Handle, Handle) {
        let gate = |t: &Handle, i: usize| columns_of(t, i, i + 1, size);
        let product = |columns: &Handle| B::float_matmul(hidden.clone(), columns.clone());
        match self.cell {
            Cell::Plain => (self.squash(0, B::float_add(sums, product(&weights.hidden))), cell),
            Cell::Gru { linear: true } => {
                let recurrent = product(&weights.hidden);
                let gates = B::float_add(columns_of(&sums, 0, 2, size), columns_of(&recurrent, 0, 2, size));
                let (update, reset) = (self.squash(0, gate(&gates, 0)), self.squash(0, gate(&gates, 1)));
                let mut inner = gate(&recurrent, 2);
                if let Some(bias) = &weights.inner_bias {
                    inner = B::float_add(inner, bias.clone());
                }
                let new = self.squash(1, B::float_add(gate(&sums, 2), B::float_mul(reset, inner)));
                (blended(update, hidden.clone(), new), cell)
            }
            Cell::Gru { linear: false } => {
                let recurrent = product(&columns_of(&weights.hidden, 0, 2, size));
                let gates = B::float_add(columns_of(&sums, 0, 2, size), recurrent);
                let (update, reset) = (self.squash(0, gate(&gates, 0)), self.squash(0, gate(&gates, 1)));
                let inner = B::float_matmul(B::float_mul(reset, hidden.clone()), gate(&weights.hidden, 2));
                let new = self.squash(1, B::float_add(gate(&sums, 2), inner));
                (blended(update, hidden.clone(), new), cell)
            }
            Cell::Lstm { coupled } => {
                let sums = B::float_add(sums, product(&weights.hidden));
                // Gates come as input, output, forget and new; so do the peepholes of the first three.
                let seen = |i: usize, cell: &Handle| match &weights.peepholes {
                    None => gate(&sums, i),
                    Some(peepholes) => B::float_add(gate(&sums, i), B::float_mul(cell.clone(), peepholes[i].clone())),
                };
                let input = self.squash(0, seen(0, &cell));
                let forget = match coupled {
                    true => B::float_add_scalar(B::float_neg(input.clone()), 1.0.into()),
                    false => self.squash(0, seen(2, &cell)),
                };
                let new = self.squash(1, gate(&sums, 3));
                let cell = B::float_add(B::float_mul(forget, cell), B::float_mul(input, new));
                let output = self.squash(0, seen(1, &cell));
                // Only what goes into a gate is clipped, not the cell's state.
                (B::float_mul(output, self.functions[2].of(cell.clone())), cell)
            }
        }
    }

    /// Function `i` of a gate's sum, which is clipped before.
    fn squash(&self, i: usize, x: Handle) -> Handle {
        let x = match self.clip {
            Some(clip) => B::float_clamp(x, (-clip).into(), clip.into()),
            None => x,
        };
        self.functions[i].of(x)
    }
}

/// update · old + (1 - update) · new
fn blended(update: Handle, old: Handle, new: Handle) -> Handle {
    B::float_add(new.clone(), B::float_mul(update, B::float_sub(old, new)))
}
