//! The operators of `ai.onnx.ml` that surround a network exported from scikit-learn.

use burn_backend::{DType, Shape, TensorData};

use super::{Args, Build, Kernel, Operator};
use crate::runner::onnx::value::{OpError, Value, axis, elements};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::moving("ai.onnx.ml::ArrayFeatureExtractor", |_| Ok(Kernel::one(|mut args| picked(&mut args)))),
    Operator::new("ai.onnx.ml::Binarizer", |build| {
        let threshold = build.attributes.float("threshold", 0.0)?;
        Ok(Kernel::one(move |mut args| mapped(&mut args, |x, _| f32::from(u8::from(x > threshold)))))
    }),
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
        mapped_value(x, &args, |x, column| (x - at(&offset, column)) * at(&scale, column))
    }))
}

fn mapped(args: &mut Args<'_>, f: impl Fn(f32, usize) -> f32) -> Result<Value, OpError> {
    let x = args.take(0)?;
    mapped_value(x, args, f)
}

/// Every element as float32, through a function of it and its column.
fn mapped_value(x: Value, args: &Args<'_>, f: impl Fn(f32, usize) -> f32) -> Result<Value, OpError> {
    let shape = Shape::from(x.shape());
    let columns = x.shape().last().copied().unwrap_or(1).max(1);
    let numbers: Vec<f32> =
        x.into_data()?.convert_dtype(DType::F32).try_into_vec().map_err(|e| OpError(e.to_string()))?;
    let mapped: Vec<f32> = numbers.into_iter().enumerate().map(|(i, x)| f(x, i % columns)).collect();
    Value::from_data(TensorData::new(mapped, shape), args.device)
}

/// Picks columns of the last axis; a vector counts as one row.
fn picked(args: &mut Args<'_>) -> Result<Value, OpError> {
    let (x, at) = (args.take(0)?, args.take(1)?);
    let mut shape = x.shape();
    if shape.len() < 2 {
        shape.insert(0, 1);
    }
    let columns = shape.last().copied().unwrap_or(0);
    let at: Vec<i64> = at.into_data()?.convert_dtype(DType::I64).try_into_vec().map_err(|e| OpError(e.to_string()))?;
    let at = at.into_iter().map(|i| axis(i, columns)).collect::<Result<Vec<usize>, _>>()?;
    let data = x.into_data()?;
    let dtype = data.dtype();
    let numbers: Vec<f64> = data.convert_dtype(DType::F64).try_into_vec().map_err(|e| OpError(e.to_string()))?;
    let picked: Vec<f64> = numbers.chunks(columns.max(1)).flat_map(|row| at.iter().map(|&i| row[i])).collect();
    if let Some(last) = shape.last_mut() {
        *last = at.len();
    }
    elements(&shape)?;
    Value::from_data(TensorData::new(picked, Shape::from(shape)).convert_dtype(dtype), args.device)
}
