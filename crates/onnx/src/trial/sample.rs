//! Rows of made-up values to try a model with.

use super::lengths::holds;
use crate::tensors;
use crate::value::{OpError, elements};
use uncork_model::runner::{Rows, TensorSpec};
use uncork_model::tensor::{DataType, Tensor};

/// How bold made-up values are. Integers are often indices into tables of unknown length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Integers up to a hundred.
    Bold,
    /// Integers that are 0 or 1.
    Tame,
    /// Integers that are 0.
    Still,
    /// Whole numbers from 1 to 9, and integers that are 1: what divides by them has an answer.
    Whole,
    /// Nothing but zeros, which prove nothing about rows.
    Zero,
}

/// The boldest first.
pub(super) const MANNERS: [Manner; 5] = [Manner::Bold, Manner::Tame, Manner::Still, Manner::Whole, Manner::Zero];

/// What the other rows of a batch are like. Rows whose numbers are multiples of 4 are ordinary in any company.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Company {
    /// Like them.
    Alike,
    /// Of numbers a thousand times as large, of nothing but zeros, or the same as another.
    Loud,
    /// That, and of other lengths, rates, kinds and integers.
    Odd,
    /// Of numbers that are none.
    Broken,
}

/// A row's numbers by those of an ordinary one.
fn in_company(company: Company, row: usize, number: f32) -> f32 {
    match (company, row % 8) {
        (Company::Loud | Company::Odd, 1) => 1e3 * number,
        (Company::Loud | Company::Odd, 2) => -1e3 * number.abs(),
        (Company::Loud | Company::Odd, 6) => 0.0,
        (Company::Loud | Company::Odd, 7) => 1e3 * number.abs(),
        (Company::Broken, 1..=3 | 5..) => f32::NAN,
        _ => number,
    }
}

/// What integers of an input stand for, by its name. Found once for an input and not for each number: there may be millions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Mask,
    /// Samples of sound a second.
    Rate,
    Length,
    /// The kind or the segment of a token.
    Kind,
    Unknown,
}

impl Meaning {
    fn of(name: &str) -> Meaning {
        match name {
            _ if holds(name, &["mask"]) => Meaning::Mask,
            _ if name == "sr" || holds(name, &["rate"]) => Meaning::Rate,
            _ if holds(name, &["length", "_len", "lens"]) => Meaning::Length,
            _ if holds(name, &["type", "segment"]) => Meaning::Kind,
            _ => Meaning::Unknown,
        }
    }
}

/// Rows of inputs, the same for the same draw and number.
#[derive(Debug, Clone)]
pub(super) struct Sample<'a> {
    /// What the inputs are; their free dimensions count for nothing here.
    pub(super) inputs: &'a [TensorSpec],
    /// The shape of one row of each input, without a batch axis.
    pub(super) rows: &'a [Vec<usize>],
    pub(super) manner: Manner,
    pub(super) company: Company,
    /// Another draw has other values, of another range.
    pub(super) draw: usize,
}

impl Sample<'_> {
    /// Rows with these numbers as a batch, in the model's own shapes. What rows share is that of the first row of all.
    pub(super) fn batch(&self, rows: &[usize]) -> Result<Vec<Tensor>, OpError> {
        let inputs = self.inputs.iter().zip(self.rows).enumerate();
        inputs.map(|(i, (spec, row))| Ok(spec.own_shape(self.input(i, spec, row, rows)?))).collect()
    }

    /// An input with its rows along axis 0.
    fn input(&self, i: usize, spec: &TensorSpec, row: &[usize], rows: &[usize]) -> Result<Tensor, OpError> {
        let rows = if spec.rows == Rows::Shared { &[0] } else { rows };
        let shape: Vec<usize> = [rows.len()].iter().chain(row).copied().collect();
        let (count, width) = (elements(&shape)?, elements(row)?.max(1));
        let longest = self.rows.iter().flatten().copied().max().unwrap_or(1);
        let (meaning, steps) = (Meaning::of(&spec.name), longest.min(self.steps()));
        let is_wild = matches!(self.company, Company::Loud | Company::Odd);
        let is_float = matches!(spec.datatype, DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64);
        let number = |at: usize| {
            let row = match rows[at / width] {
                row if is_wild && row % 8 == 5 => row - 1,
                // Of the same names, and other numbers.
                row if is_wild && row % 8 == 7 && !is_float => row - 3,
                row => row,
            };
            let seed = [self.draw, i, row, at % width].into_iter().fold(0, mix);
            self.number(spec, meaning, seed, row, at % width, steps)
        };
        tensors::filled(spec.datatype, shape, count, number)
    }

    /// The length of the first input that has one, which lengths among the inputs speak of.
    fn steps(&self) -> usize {
        self.rows.iter().find_map(|row| row.first().copied()).unwrap_or(1)
    }

    fn number(&self, spec: &TensorSpec, meaning: Meaning, seed: u64, row: usize, column: usize, longest: usize) -> f32 {
        let manner = self.manner;
        let below = |n: u64| (seed % n.max(1)) as f32;
        let is_odd = |rows: &[usize]| self.company == Company::Odd && rows.contains(&(row % 8));
        match spec.datatype {
            DataType::Fp32 | DataType::Fp64 | DataType::Fp16 | DataType::Bf16 => {
                let unit = (seed >> 40) as f32 / (1u64 << 24) as f32;
                let number = match (manner, self.draw % 3) {
                    (Manner::Zero, _) => 0.0,
                    (Manner::Whole, _) => 1.0 + below(9),
                    (_, 0) => 2.0 * unit - 1.0,
                    (_, 1) => unit,
                    _ => 6.0 * unit - 3.0,
                };
                in_company(self.company, row, number)
            }
            DataType::Bool if manner == Manner::Bold => below(2),
            DataType::Bool => 1.0,
            // A mask ends somewhere; it is whole where all is to be simple.
            _ if meaning == Meaning::Mask => {
                let end = 1 + mix(self.draw as u64, row) as usize % longest.max(1);
                f32::from(u8::from(manner != Manner::Bold || self.draw == 0 || column < end))
            }
            _ if meaning == Meaning::Rate => {
                if is_odd(&[1, 3]) {
                    8_000.0
                } else {
                    16_000.0
                }
            }
            _ if meaning == Meaning::Length => match row % 8 {
                1 if is_odd(&[1]) => 1.0,
                4 if is_odd(&[4]) => longest.div_ceil(2) as f32,
                _ => longest as f32,
            },
            DataType::Int64 | DataType::Int32 if is_odd(&[1]) => -1.0,
            _ if is_odd(&[3]) && meaning == Meaning::Kind => 2.0,
            _ if is_odd(&[3]) && meaning == Meaning::Unknown && spec.datatype != DataType::Uint8 => 10_000.0,
            _ => match manner {
                Manner::Bold if meaning == Meaning::Kind => below(2),
                Manner::Bold if spec.datatype == DataType::Uint8 => below(256),
                Manner::Bold => below(spec.range.as_ref().map_or(100, |range| (*range.end() as u64 + 1).min(100))),
                Manner::Tame => below(2),
                Manner::Whole => 1.0,
                Manner::Still | Manner::Zero => 0.0,
            },
        }
    }
}

/// The next number of a sequence that `n` steers: a step of SplitMix64.
pub(super) fn mix(state: u64, n: usize) -> u64 {
    let mut z = state.wrapping_add(n as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
