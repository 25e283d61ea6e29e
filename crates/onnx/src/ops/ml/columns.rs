//! Operators on columns of numbers: scaling, normalising, filling gaps, picking and putting together.

use burn_backend::{DType, TensorData};

use super::scores::{Rows, matrix};
use crate::ops::arrange::{indices, picked};
use crate::ops::{Args, Build, Kernel, Operator};
use crate::value::{OpError, Value, elements, integers};
use uncork_model::quote::Quoted;

pub(in crate::ops) const OPERATORS: &[Operator] = &[
    Operator::moving("ai.onnx.ml::ArrayFeatureExtractor", |_| Ok(Kernel::one(|mut args| extracted(&mut args)))),
    Operator::new("ai.onnx.ml::Binarizer", |build| {
        let threshold = build.attributes.float("threshold", 0.0)?;
        Ok(Kernel::one(move |mut args| {
            let x = args.take(0)?;
            let dtype = x.dtype();
            // Between numbers that a float32 cannot tell apart lies no threshold of that type.
            mapped(x, &args, dtype, |x, _| f64::from(u8::from(x > f64::from(threshold))))
        }))
    }),
    Operator::new("ai.onnx.ml::FeatureVectorizer", vectorizer),
    Operator::new("ai.onnx.ml::Imputer", imputer),
    Operator::new("ai.onnx.ml::Normalizer", normalizer),
    Operator::new("ai.onnx.ml::Scaler", scaler),
];

/// (x - offset) * scale, each one number or one for each column.
fn scaler(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let offset = build.attributes.floats("offset")?.unwrap_or_else(|| vec![0.0]);
    let scale = build.attributes.floats("scale")?.unwrap_or_else(|| vec![1.0]);
    Ok(Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let columns = x.shape().last().copied().unwrap_or(1);
        if [&offset, &scale].iter().any(|list| list.len() != 1 && list.len() != columns) {
            return Err(OpError(format!("{} offsets and {} scales for {columns} columns", offset.len(), scale.len())));
        }
        let at = |list: &[f32], column: usize| if list.len() == 1 { list[0] } else { list[column] };
        // In float32, as onnxruntime computes it whatever the type of x.
        let scaled = |x: f64, column| f64::from((x as f32 - at(&offset, column)) * at(&scale, column));
        mapped(x, &args, DType::F32, scaled)
    }))
}

/// Every element through a function of it and its column, as elements of a type.
fn mapped(x: Value, args: &Args<'_>, to: DType, f: impl Fn(f64, usize) -> f64) -> Result<Value, OpError> {
    let dims = x.shape();
    let columns = dims.last().copied().unwrap_or(1).max(1);
    let numbers: Vec<f64> =
        x.into_data()?.convert_dtype(DType::F64).try_into_vec().map_err(|e| OpError(e.to_string()))?;
    let mapped: Vec<f64> = numbers.into_iter().enumerate().map(|(i, x)| f(x, i % columns)).collect();
    Value::from_data(TensorData::new(mapped, dims).convert_dtype(to), args.device)
}

/// Picks columns of the last axis; a vector counts as one row.
fn extracted(args: &mut Args<'_>) -> Result<Value, OpError> {
    let (x, at) = (args.take(0)?, args.take(1)?);
    let mut dims = x.shape();
    if dims.len() < 2 {
        dims.insert(0, 1);
    }
    let (rows, columns) = (elements(&dims[..dims.len() - 1])?, dims[dims.len() - 1]);
    let at = indices(at, columns)?;
    let count = at.len();
    let last = dims.len() - 1;
    dims[last] = count;
    elements(&dims)?;
    let places = (0..rows).flat_map(|row| at.iter().map(move |i| Some(row * columns + i)));
    picked(x, 1, places, dims, args.device)
}

/// Puts the columns of several matrices side by side, as float32.
fn vectorizer(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let widths = build.attributes.ints("inputdimensions")?;
    Ok(Kernel::one(move |mut args| {
        let parts = args.all().into_iter().map(Rows::of).collect::<Result<Vec<Rows>, _>>()?;
        let found: Vec<i64> = parts.iter().map(|part| part.width as i64).collect();
        if let Some(widths) = widths.as_ref().filter(|widths| **widths != found) {
            return Err(OpError(format!("expects matrices of {widths:?} columns and gets {found:?}")));
        }
        let rows = parts.first().map_or(0, |part| part.count);
        if parts.iter().any(|part| part.count != rows) {
            return Err(OpError::new("its matrices differ in their number of rows"));
        }
        let mut out = Vec::new();
        for row in 0..rows {
            parts.iter().for_each(|part| out.extend_from_slice(&part.numbers[row * part.width..][..part.width]));
        }
        matrix(out, rows, args.device)
    }))
}

/// Puts a number in the place of one that stands for a gap.
fn imputer(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let attributes = &build.attributes;
    let floats = attributes.floats("imputed_value_floats")?.unwrap_or_default();
    let ints = attributes.ints("imputed_value_int64s")?.unwrap_or_default();
    let gap = attributes.float("replaced_value_float", 0.0)?;
    let int_gap = attributes.int("replaced_value_int64", 0)?;
    if floats.is_empty() == ints.is_empty() {
        return Err(OpError::new("it must have either floats or integers to fill gaps with"));
    }
    Ok(Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let (dims, dtype) = (x.shape(), x.dtype());
        let columns = dims.last().copied().unwrap_or(1).max(1);
        let fills = floats.len().max(ints.len());
        if fills != 1 && fills != columns {
            return Err(OpError(format!("{fills} numbers to fill the gaps of {columns} columns with")));
        }
        if dtype.is_float() != ints.is_empty() {
            return Err(OpError(format!("elements of type {dtype:?} and gaps of another")));
        }
        if ints.is_empty() {
            let fill = |column: usize| f64::from(floats[if fills == 1 { 0 } else { column }]);
            let is_gap = |x: f64| x == f64::from(gap) || (x.is_nan() && gap.is_nan());
            return mapped(x, &args, dtype, |x, column| if is_gap(x) { fill(column) } else { x });
        }
        let mut numbers = integers(x.into_data()?)?;
        for (i, x) in numbers.iter_mut().enumerate().filter(|(_, x)| **x == int_gap) {
            *x = ints[if fills == 1 { 0 } else { i % columns }];
        }
        Value::from_data(TensorData::new(numbers, dims).convert_dtype(dtype), args.device)
    }))
}

/// Divides each row by its greatest number, the sum of their sizes, or its length.
fn normalizer(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let norm: fn(&[f32]) -> f32 = match build.attributes.text("norm", "MAX")?.as_str() {
        "MAX" => |row| row.iter().copied().fold(f32::MIN, f32::max),
        "L1" => |row| row.iter().map(|x| x.abs()).sum(),
        "L2" => |row| row.iter().map(|x| x * x).sum::<f32>().sqrt(),
        other => return Err(OpError(format!("the norm {}", Quoted(other)))),
    };
    Ok(Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let dims = x.shape();
        let rows = Rows::of(x)?;
        let mut out = Vec::with_capacity(rows.numbers.len());
        for row in rows.iter() {
            let norm = norm(row);
            out.extend(row.iter().map(|x| if norm == 0.0 { *x } else { x / norm }));
        }
        Value::from_data(TensorData::new(out, dims), args.device)
    }))
}
