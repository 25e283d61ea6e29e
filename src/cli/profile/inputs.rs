//! Batches to measure with: valid inputs of any number of rows.

use std::sync::Arc;

use half::{bf16, f16};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::registry::Loaded;
use crate::runner::{Runner, TensorSpec};
use crate::tensor::{self, Data, DataType, Tensor, Tensors};

/// Lengths that are tried, in this order, for dimensions that the model leaves free and nobody sets: a sentence, an image,
/// and what is shorter than either.
const LENGTHS: [usize; 4] = [128, 224, 64, 16];

/// What the flags say of free dimensions.
#[derive(Debug)]
pub(in crate::cli) struct Free {
    pub(in crate::cli) named: Vec<(String, usize)>,
    pub(in crate::cli) length: Option<usize>,
}

/// The inputs of a model, with a length for each dimension.
#[derive(Debug)]
pub(in crate::cli) struct Inputs {
    specs: Vec<TensorSpec>,
    /// What was chosen for free dimensions that nobody has set.
    pub(in crate::cli) assumed: Option<usize>,
}

impl Inputs {
    /// Settles the free dimensions. Without a word about them, the first length is taken with which `runner` runs a row.
    pub(in crate::cli) fn settle(loaded: &Loaded, free: &Free, runner: &mut dyn Runner) -> Result<Inputs, String> {
        let mut specs = loaded.signature.inputs.clone();
        let mut open: Vec<(usize, usize)> = Vec::new();
        let mut names: Vec<&str> = Vec::new();
        for (i, spec) in specs.iter_mut().enumerate() {
            for (axis, dim) in spec.dims.iter_mut().enumerate().filter(|(_, dim)| dim.is_none()) {
                let name = loaded.dimensions.get(i).and_then(|names| names.get(axis)).map_or("", String::as_str);
                names.push(name);
                *dim = free.named.iter().find(|(own, _)| own == name).map(|(_, length)| *length).or(free.length);
                if dim.is_none() {
                    open.push((i, axis));
                }
            }
        }
        if let Some((unknown, _)) = free.named.iter().find(|(name, _)| !names.contains(&name.as_str())) {
            return Err(format!("--dim {unknown}: no free dimension is called so; {}", listed(&names)));
        }
        if free.length.is_some() && names.is_empty() {
            return Err("--length: the model has no free dimension beside the batch".into());
        }
        if open.is_empty() {
            return Ok(Inputs { specs, assumed: None });
        }
        let mut failure = String::new();
        for length in LENGTHS {
            for &(i, axis) in &open {
                specs[i].dims[axis] = Some(length);
            }
            let inputs = Inputs { specs: specs.clone(), assumed: Some(length) };
            match inputs.batch(1).and_then(|row| runner.rehearse(row).map_err(|e| e.to_string())) {
                Ok(_) => return Ok(inputs),
                Err(error) => failure = error,
            }
        }
        let known = listed(&names);
        Err(format!("no length of free dimensions fits ({failure}); set it with --dim NAME=N or --length N; {known}"))
    }

    /// Their names, types and shapes behind the batch axis.
    pub(in crate::cli) fn specs(&self) -> &[TensorSpec] {
        &self.specs
    }

    /// A batch of `rows` rows: floats from -1 to 1, the same ones each time; integers are zero, which indexes every table,
    /// but one where their name speaks of a mask; booleans are true, and texts are empty.
    pub(in crate::cli) fn batch(&self, rows: usize) -> Result<Tensors, String> {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(rows as u64);
        let tensors = self.specs.iter().map(|spec| {
            let dims = spec.dims.iter().map(|dim| dim.unwrap_or(1));
            let shape: Vec<usize> = std::iter::once(rows).chain(dims).collect();
            let count = tensor::elements(&shape).map_err(|e| e.to_string())?;
            let data = data(spec, count, &mut chance);
            Ok((Arc::clone(&spec.name), Tensor::new(shape, data).map_err(|e| e.to_string())?))
        });
        Tensors::new(tensors.collect::<Result<_, String>>()?).map_err(|e| e.to_string())
    }
}

fn data(spec: &TensorSpec, count: usize, chance: &mut Xoshiro256PlusPlus) -> Data {
    let integer = u8::from(spec.name.contains("mask"));
    let mut float = || chance.random_range(-1.0f32..1.0);
    match spec.datatype {
        DataType::Bool => vec![true; count].into(),
        DataType::Uint8 => vec![integer; count].into(),
        DataType::Uint16 => vec![u16::from(integer); count].into(),
        DataType::Uint32 => vec![u32::from(integer); count].into(),
        DataType::Uint64 => vec![u64::from(integer); count].into(),
        DataType::Int8 => vec![i8::from(integer == 1); count].into(),
        DataType::Int16 => vec![i16::from(integer); count].into(),
        DataType::Int32 => vec![i32::from(integer); count].into(),
        DataType::Int64 => vec![i64::from(integer); count].into(),
        DataType::Fp16 => (0..count).map(|_| f16::from_f32(float())).collect::<Vec<_>>().into(),
        DataType::Bf16 => (0..count).map(|_| bf16::from_f32(float())).collect::<Vec<_>>().into(),
        DataType::Fp32 => (0..count).map(|_| float()).collect::<Vec<_>>().into(),
        DataType::Fp64 => (0..count).map(|_| f64::from(float())).collect::<Vec<_>>().into(),
        DataType::Bytes => vec![Vec::<u8>::new(); count].into(),
    }
}

fn listed(names: &[&str]) -> String {
    let mut known: Vec<String> = names.iter().filter(|name| !name.is_empty()).map(|name| format!("'{name}'")).collect();
    known.sort_unstable();
    known.dedup();
    match (&known[..], names.len()) {
        ([], 0) => "the model has none beside the batch".into(),
        ([], _) => "the model's free dimensions have no names: --length sets them all".into(),
        (known, _) => format!("the model's are {}", known.join(", ")),
    }
}
