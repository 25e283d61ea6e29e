//! Values that are made up for one node: others than those that reach it, for some rows or for all.

use burn_backend::{DType, TensorData};
use burn_dispatch::DispatchDevice;

use super::layout::Layout;
use super::sample::mix;
use crate::texts::Texts;
use crate::value::{OpError, Value};

/// How far made-up values are from those that they take the place of, which a node may need to be as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Distance {
    /// Floats beyond their range, integers up to one more than the largest, and anything for what is true or not.
    Far,
    /// Integers are some of those that were there.
    Near,
    /// All are some of those that were there.
    Own,
    /// Integers of one row are one more than those of the others, or one less: an extreme of all then follows that row.
    Above,
    Below,
}

/// The range of so many numbers is that of all.
const SOME: usize = 1 << 12;

/// Which elements are made up: all, or those of one row.
pub(super) type Whose = Option<(Layout, usize, usize)>;

/// A value of the same shape and type with other elements, the same for the same seed.
pub(super) fn made(
    value: &Value,
    whose: Whose,
    distance: Distance,
    seed: u64,
    device: &DispatchDevice,
) -> Result<Value, OpError> {
    if let Value::Sequence(values) = value {
        let each = values.iter().enumerate();
        let each = each.map(|(i, value)| made(value, whose, distance, mix(seed, i + 1), device));
        return Ok(Value::Sequence(each.collect::<Result<_, _>>()?));
    }
    let dims = value.shape();
    let blocks = match whose {
        Some((layout, row, count)) => (layout.block(&dims), row, count),
        None => (usize::MAX, 0, 1),
    };
    if let Value::Texts(texts) = value {
        let (dims, before) = texts.clone().into_parts();
        let mut texts = before.clone();
        fill(&mut texts, blocks, |at| before[picked(seed, at, before.len())].clone());
        return Ok(Value::Texts(Texts::new(dims, texts)?));
    }
    let mut data = value.clone().into_data()?;
    let dtype = data.dtype();
    if let Ok(numbers) = data.as_mut_slice::<f32>() {
        let own = numbers[..numbers.len().min(SOME)].to_vec();
        let (low, high) = range(own.iter().map(|x| f64::from(*x)));
        fill(numbers, blocks, |at| match distance {
            Distance::Own => own[picked(seed, at, own.len())],
            _ => beyond(low, high, unit(seed, at)) as f32,
        });
        return Value::from_data(data, device);
    }
    let mut own: Vec<f64> = data.iter::<f64>().collect();
    let (low, high) = range(own.iter().copied());
    let most = match dtype {
        DType::U8 => f64::from(u8::MAX),
        DType::I8 => f64::from(i8::MAX),
        DType::U16 => f64::from(u16::MAX),
        DType::I16 => f64::from(i16::MAX),
        DType::U32 => f64::from(u32::MAX),
        DType::I32 => f64::from(i32::MAX),
        _ => f64::INFINITY,
    };
    let before = own.clone();
    fill(&mut own, blocks, |at| {
        let unit = unit(seed, at);
        match distance {
            Distance::Own => before[picked(seed, at, before.len())],
            Distance::Above | Distance::Below if matches!(dtype, DType::Bool(_)) => {
                f64::from(u8::from((distance == Distance::Above) == whose.is_some()))
            }
            // What one row gets is held against what all have got.
            Distance::Above if !dtype.is_float() && whose.is_some() => (high + 1.0).min(most),
            Distance::Above if !dtype.is_float() => low,
            Distance::Below if !dtype.is_float() && whose.is_some() => low - 1.0,
            Distance::Below if !dtype.is_float() => (high.max(low + 1.0)).min(most),
            _ if matches!(dtype, DType::Bool(_)) => f64::from(u8::from(unit < 0.5)),
            _ if dtype.is_float() => beyond(low, high, unit),
            Distance::Far => (low + (unit * (high - low + 2.0)).floor()).min(most),
            _ => before[picked(seed, at, before.len())],
        }
    });
    let (numbers, shape) = (own.into_iter(), data.shape().clone());
    let data = match dtype {
        DType::Bool(_) => TensorData::new(numbers.map(|x| x != 0.0).collect::<Vec<bool>>(), shape),
        _ if dtype.is_float() => TensorData::new(numbers.collect::<Vec<f64>>(), shape).convert_dtype(dtype),
        _ => TensorData::new(numbers.map(|x| x as i64).collect::<Vec<i64>>(), shape).convert_dtype(dtype),
    };
    Value::from_data(data, device)
}

/// The least and the greatest of some numbers.
fn range(numbers: impl Iterator<Item = f64>) -> (f64, f64) {
    let finite = numbers.filter(|x| x.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
    if low <= high { (low, high) } else { (0.0, 0.0) }
}

/// A number in a range twice as wide.
fn beyond(low: f64, high: f64, unit: f64) -> f64 {
    let wide = if high > low { high - low } else { high.abs().max(1.0) };
    low - wide / 2.0 + 2.0 * wide * unit
}

/// From 0 to 1.
fn unit(seed: u64, at: usize) -> f64 {
    (mix(seed, at) >> 40) as f64 / (1u64 << 24) as f64
}

/// Writes the blocks of one row, which are `block` elements long and come in turns with those of `count` rows.
fn fill<T>(numbers: &mut [T], (block, row, count): (usize, usize, usize), other: impl Fn(usize) -> T) {
    for (i, own) in numbers.chunks_mut(block.max(1)).enumerate().filter(|(i, _)| i % count == row) {
        own.iter_mut().enumerate().for_each(|(at, x)| *x = other((i * block).saturating_add(at)));
    }
}

fn picked(seed: u64, at: usize, of: usize) -> usize {
    (mix(seed, at) % of.max(1) as u64) as usize
}

/// The places where two values of one shape differ. An error where they are no tensors.
pub(super) fn differing(a: &Value, b: &Value) -> Result<Vec<usize>, OpError> {
    if let (Value::Texts(a), Value::Texts(b)) = (a, b) {
        let (a, b) = (a.clone().into_parts().1, b.clone().into_parts().1);
        return Ok((0..a.len().min(b.len())).filter(|&at| a[at] != b[at]).collect());
    }
    const MANY: usize = 1 << 12;
    let size = a.dtype().size().max(1);
    let (a, b) = (a.clone().into_data()?, b.clone().into_data()?);
    let mut places = Vec::new();
    for (i, (a, b)) in a.bytes().chunks(MANY * size).zip(b.bytes().chunks(MANY * size)).enumerate() {
        // Most are the same.
        if a != b {
            let pairs = a.chunks_exact(size).zip(b.chunks_exact(size)).enumerate();
            places.extend(pairs.filter(|(_, (a, b))| a != b).map(|(at, _)| i * MANY + at));
        }
    }
    Ok(places)
}
