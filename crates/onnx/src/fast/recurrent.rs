//! Recurrent layers of float32, or of weights of eight bits: what the inputs contribute to all steps is one product; each step adds what the hidden state
//! contributes, by weights that are laid out once, and visits its gates once.

use pulp::{Simd, WithSimd};

use super::activation::{Activation, sigmoid, tanh};
use super::product::{Linear, Panels};
use super::rounded::Rounded;
use super::vectorized;
use crate::memory;

/// What a step computes, with the usual functions: sigmoid for gates, tanh for what they let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cell {
    /// Gates: input, output, forget, new.
    Lstm,
    /// Gates: update, reset, new. The reset gate multiplies the state.
    Gru,
    /// The same, but the reset gate multiplies what the state contributes.
    LinearGru,
}

impl Cell {
    /// Columns of the weights, in hidden sizes.
    pub(crate) fn gates(self) -> usize {
        match self {
            Cell::Lstm => 4,
            Cell::Gru | Cell::LinearGru => 3,
        }
    }
}

/// Weights, laid out.
enum Weights {
    Floats(Linear),
    /// What they are multiplied with is rounded.
    Integers(Rounded),
}

impl Weights {
    /// Multiplies `x`, `[steps, rows, terms]`.
    fn run(&self, x: &[f32], rows: usize, added: Option<&[f32]>, y: &mut [f32]) {
        match self {
            Weights::Floats(linear) => linear.run(x, added, Activation::None, y),
            Weights::Integers(rounded) => rounded.run(x, rows, added, y),
        }
    }

    fn size(&self) -> [usize; 2] {
        match self {
            Weights::Floats(linear) => linear.size(),
            Weights::Integers(rounded) => rounded.size(),
        }
    }
}

/// One direction of a layer, with its weights laid out.
pub(crate) struct Layer {
    cell: Cell,
    size: usize,
    input: Weights,
    /// All gates; those of a `Gru` but the last.
    hidden: Weights,
    /// The last gate of a `Gru`.
    new: Option<Linear>,
}

/// The hidden state of each row and, of an LSTM, the cell's: `[rows, size]`.
pub(crate) struct State {
    pub(crate) hidden: Vec<f32>,
    pub(crate) cell: Vec<f32>,
}

/// How a layer goes over its steps.
#[derive(Clone, Copy)]
pub(crate) struct Course<'a> {
    pub(crate) steps: usize,
    pub(crate) rows: usize,
    pub(crate) backwards: bool,
    /// How many steps each row has. Behind them it keeps its state and gives zeros.
    pub(crate) lengths: Option<&'a [usize]>,
}

impl Layer {
    /// `input` is `[gates · size, inputs]`, `hidden` `[gates · size, size]`, `bias` that of the inputs and that of the hidden
    /// state in a row, as ONNX has them.
    pub(crate) fn new(
        cell: Cell,
        size: usize,
        inputs: usize,
        [input, hidden]: [&[f32]; 2],
        bias: Option<&[f32]>,
    ) -> Layer {
        let columns = cell.gates() * size;
        let turned =
            |data: &[f32], inner, columns, bias| Linear::new(Panels::new(data.to_vec(), true, [inner, columns]), bias);
        let of_gates = 2 * size;
        let (mut of_input, mut of_hidden) = (None, None);
        if let Some((input, hidden)) = bias.map(|bias| bias.split_at(columns)) {
            let early = if cell == Cell::LinearGru { of_gates } else { columns };
            let sum = input.iter().zip(hidden).enumerate();
            of_input = Some(sum.map(|(i, (a, b))| if i < early { a + b } else { *a }).collect());
            // What the reset gate multiplies must not be added before.
            of_hidden = (cell == Cell::LinearGru).then(|| {
                let late = hidden.iter().enumerate();
                late.map(|(i, b)| if i < early { 0.0 } else { *b }).collect()
            });
        }
        let (gates, new) = match cell {
            Cell::Gru => {
                let (gates, new) = hidden.split_at(of_gates * size);
                (turned(gates, size, of_gates, None), Some(turned(new, size, size, None)))
            }
            Cell::Lstm | Cell::LinearGru => (turned(hidden, size, columns, of_hidden), None),
        };
        let input = Weights::Floats(turned(input, inputs, columns, of_input));
        Layer { cell, size, input, hidden: Weights::Floats(gates), new }
    }

    /// An LSTM whose inputs and hidden states are rounded to eight bits: `input` has the bias of both, `hidden` none.
    pub(crate) fn rounded(size: usize, input: Rounded, hidden: Rounded) -> Layer {
        let [input, hidden] = [input, hidden].map(Weights::Integers);
        Layer { cell: Cell::Lstm, size, input, hidden, new: None }
    }

    /// The numbers of a row's inputs.
    pub(crate) fn inputs(&self) -> usize {
        self.input.size()[0]
    }

    /// The length of a row's state.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Goes over `x`, `[steps, rows, inputs]`, from `state` on, and leaves the last state there; `each` gets each step and the
    /// hidden states behind it.
    pub(crate) fn run(&self, x: &[f32], course: Course<'_>, state: &mut State, mut each: impl FnMut(usize, &[f32])) {
        let Course { steps, rows, backwards, lengths } = course;
        let (size, wide) = (self.size, self.cell.gates() * self.size);
        let mut sums = memory::take(steps * rows * wide);
        self.input.run(x, rows, None, &mut sums);
        let mut gates = vec![0.0; rows * self.hidden.size()[1]];
        let mut last = vec![0.0; if self.new.is_some() { rows * size } else { 0 }];
        let (mut reset, mut shown, mut before) = (last.clone(), Vec::new(), None);
        for i in 0..steps {
            let step = if backwards { steps - 1 - i } else { i };
            let sums = &sums[step * rows * wide..][..rows * wide];
            let over = lengths.filter(|lengths| lengths.iter().any(|&length| step >= length));
            if over.is_some() {
                before = Some((state.hidden.clone(), state.cell.clone()));
            }
            match self.cell {
                Cell::Lstm => {
                    self.hidden.run(&state.hidden, rows, Some(sums), &mut gates);
                    vectorized(Lstm { gates: &gates, size, state });
                }
                Cell::LinearGru => {
                    self.hidden.run(&state.hidden, rows, None, &mut gates);
                    vectorized(LinearGru { sums, gates: &gates, size, hidden: &mut state.hidden });
                }
                Cell::Gru => {
                    self.hidden.run(&state.hidden, rows, None, &mut gates);
                    vectorized(Reset { sums, gates: &mut gates, size, hidden: &state.hidden, reset: &mut reset });
                    if let Some(new) = &self.new {
                        new.run(&reset, None, Activation::None, &mut last);
                    }
                    vectorized(Gru { sums, gates: &gates, last: &last, size, hidden: &mut state.hidden });
                }
            }
            match (over, &before) {
                (Some(lengths), Some((hidden, cell))) => {
                    shown.clone_from(&state.hidden);
                    for (row, _) in lengths.iter().enumerate().filter(|&(_, &length)| step >= length) {
                        let at = row * size..(row + 1) * size;
                        state.hidden[at.clone()].copy_from_slice(&hidden[at.clone()]);
                        if !cell.is_empty() {
                            state.cell[at.clone()].copy_from_slice(&cell[at.clone()]);
                        }
                        shown[at].fill(0.0);
                    }
                    each(step, &shown);
                }
                _ => each(step, &state.hidden),
            }
        }
        memory::give(sums);
    }
}

/// All gates of a step.
struct Lstm<'a> {
    gates: &'a [f32],
    size: usize,
    state: &'a mut State,
}

impl WithSimd for Lstm<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Lstm { gates, size, state } = self;
        let rows = state.hidden.chunks_exact_mut(size).zip(state.cell.chunks_exact_mut(size));
        for (gates, (hidden, cell)) in gates.chunks_exact(4 * size).zip(rows) {
            let (input, rest) = gates.split_at(size);
            let (output, rest) = rest.split_at(size);
            let (forget, new) = rest.split_at(size);
            let arguments = input.iter().zip(output).zip(forget.iter().zip(new));
            for (((i, o), (f, n)), (hidden, cell)) in arguments.zip(hidden.iter_mut().zip(cell)) {
                let next = sigmoid(*f) * *cell + sigmoid(*i) * tanh(*n);
                *cell = next;
                *hidden = sigmoid(*o) * tanh(next);
            }
        }
    }
}

/// All gates of a step; `gates` is what the state contributes.
struct LinearGru<'a> {
    sums: &'a [f32],
    gates: &'a [f32],
    size: usize,
    hidden: &'a mut [f32],
}

impl WithSimd for LinearGru<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let LinearGru { sums, gates, size, hidden } = self;
        let rows = sums.chunks_exact(3 * size).zip(gates.chunks_exact(3 * size));
        for ((sums, gates), hidden) in rows.zip(hidden.chunks_exact_mut(size)) {
            let ((z, rest), (own_z, own_rest)) = (sums.split_at(size), gates.split_at(size));
            let ((r, n), (own_r, own_n)) = (rest.split_at(size), own_rest.split_at(size));
            let of_sums = z.iter().zip(r).zip(n);
            let of_state = own_z.iter().zip(own_r).zip(own_n);
            for ((((z, r), n), ((own_z, own_r), own_n)), hidden) in of_sums.zip(of_state).zip(hidden) {
                let new = tanh(n + sigmoid(r + own_r) * own_n);
                *hidden = new + sigmoid(z + own_z) * (*hidden - new);
            }
        }
    }
}

/// The first two gates of a step, of which the update gate stays in `gates`; what the reset gate lets through.
struct Reset<'a> {
    sums: &'a [f32],
    gates: &'a mut [f32],
    size: usize,
    hidden: &'a [f32],
    reset: &'a mut [f32],
}

impl WithSimd for Reset<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Reset { sums, gates, size, hidden, reset } = self;
        let rows = sums.chunks_exact(3 * size).zip(gates.chunks_exact_mut(2 * size));
        let states = hidden.chunks_exact(size).zip(reset.chunks_exact_mut(size));
        for ((sums, gates), (hidden, reset)) in rows.zip(states) {
            let ((z, r), (own_z, own_r)) = (sums.split_at(size), gates.split_at_mut(size));
            for (own, z) in own_z.iter_mut().zip(z) {
                *own = sigmoid(*own + z);
            }
            let resets = own_r.iter().zip(r).zip(hidden).zip(reset);
            for (((own, r), hidden), reset) in resets {
                *reset = sigmoid(*own + r) * hidden;
            }
        }
    }
}

/// The last gate of a step, and the update.
struct Gru<'a> {
    sums: &'a [f32],
    gates: &'a [f32],
    last: &'a [f32],
    size: usize,
    hidden: &'a mut [f32],
}

impl WithSimd for Gru<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Gru { sums, gates, last, size, hidden } = self;
        let rows = sums.chunks_exact(3 * size).zip(gates.chunks_exact(2 * size));
        let states = last.chunks_exact(size).zip(hidden.chunks_exact_mut(size));
        for ((sums, update), (last, hidden)) in rows.zip(states) {
            let columns = sums[2 * size..].iter().zip(last).zip(&update[..size]).zip(hidden);
            for (((n, own), z), hidden) in columns {
                let new = tanh(n + own);
                *hidden = new + z * (*hidden - new);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::numbers;
    use super::*;

    /// ONNX's equations, number by number; gives the hidden states of all steps.
    fn naive(
        cell: Cell,
        [size, inputs]: [usize; 2],
        x: &[f32],
        [w, r, b]: [&[f32]; 3],
        course: Course<'_>,
        state: &mut State,
    ) -> Vec<f32> {
        let Course { steps, rows, backwards, lengths } = course;
        let columns = cell.gates() * size;
        let squash = |x: f32| 1.0 / (1.0 + (-x).exp());
        let mut all = vec![0.0; steps * rows * size];
        for i in 0..steps {
            let step = if backwards { steps - 1 - i } else { i };
            for row in (0..rows).filter(|&row| lengths.is_none_or(|lengths| step < lengths[row])) {
                let x = &x[(step * rows + row) * inputs..][..inputs];
                let old = state.hidden[row * size..][..size].to_vec();
                let of_input = |g: usize| (0..inputs).map(|k| x[k] * w[g * inputs + k]).sum::<f32>() + b[g];
                let of_state =
                    |g: usize, h: &[f32]| (0..size).map(|k| h[k] * r[g * size + k]).sum::<f32>() + b[columns + g];
                for k in 0..size {
                    let gate = |i: usize| of_input(i * size + k) + of_state(i * size + k, &old);
                    let next = match cell {
                        Cell::Lstm => {
                            let c = &mut state.cell[row * size + k];
                            *c = squash(gate(2)) * *c + squash(gate(0)) * gate(3).tanh();
                            squash(gate(1)) * c.tanh()
                        }
                        Cell::LinearGru => {
                            let new = of_input(2 * size + k) + squash(gate(1)) * of_state(2 * size + k, &old);
                            let z = squash(gate(0));
                            (1.0 - z) * new.tanh() + z * old[k]
                        }
                        Cell::Gru => {
                            let reset = |j: usize| squash(of_input(size + j) + of_state(size + j, &old)) * old[j];
                            let reset: Vec<f32> = (0..size).map(reset).collect();
                            let new = of_input(2 * size + k) + of_state(2 * size + k, &reset);
                            let z = squash(gate(0));
                            (1.0 - z) * new.tanh() + z * old[k]
                        }
                    };
                    state.hidden[row * size + k] = next;
                    all[(step * rows + row) * size + k] = next;
                }
            }
        }
        all
    }

    #[test]
    fn layers_are_those_of_the_definition_in_both_directions_and_for_rows_of_different_lengths() {
        for (size, inputs, steps, rows) in [(1, 1, 1, 1), (5, 3, 4, 2), (16, 9, 3, 1), (33, 20, 2, 5)] {
            let lengths: Vec<usize> = (0..rows).map(|row| (steps + row) % (steps + 1)).collect();
            for cell in [Cell::Lstm, Cell::Gru, Cell::LinearGru] {
                let columns = cell.gates() * size;
                let (w, r, b) = (numbers(columns * inputs, 1), numbers(columns * size, 2), numbers(2 * columns, 3));
                let x = numbers(steps * rows * inputs, 4);
                let layer = Layer::new(cell, size, inputs, [&w, &r], Some(&b));
                for (backwards, lengths) in
                    [(false, None), (true, None), (false, Some(&lengths[..])), (true, Some(&lengths[..]))]
                {
                    let course = Course { steps, rows, backwards, lengths };
                    let begin = || State { hidden: numbers(rows * size, 5), cell: numbers(rows * size, 6) };
                    let (mut state, mut expected) = (begin(), begin());
                    let mut all = vec![f32::NAN; steps * rows * size];
                    layer.run(&x, course, &mut state, |step, hidden| {
                        all[step * rows * size..][..rows * size].copy_from_slice(hidden);
                    });
                    let wanted = naive(cell, [size, inputs], &x, [&w, &r, &b], course, &mut expected);
                    for (found, expected) in
                        [(all, wanted), (state.hidden, expected.hidden), (state.cell, expected.cell)]
                    {
                        let far = found.iter().zip(&expected).any(|(a, b)| a.is_nan() || (a - b).abs() >= 1e-5);
                        assert!(!far, "{cell:?} {size} {backwards} {lengths:?}: {found:?} {expected:?}");
                    }
                }
            }
        }
    }
}
