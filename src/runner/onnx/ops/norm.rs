//! Batch normalisation: a scale and a shift for each channel.

use burn_backend::ops::{FloatTensorOps, ModuleOps};
use burn_backend::{DType, Shape, TensorData, TensorMetadata};
use burn_dispatch::DispatchDevice;

use super::{Build, Kernel, Operator};
use crate::runner::onnx::fast::rows::layer_norm;
use crate::runner::onnx::floats::{self, Floats};
use crate::runner::onnx::value::{Backend as B, OpError, Value};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("BatchNormalization", normalization).except("training; statistics that are computed"),
    Operator::new("uncork::LayerNormalization", layer_normalization),
];

/// Over the last axis, with constant scale and shift: what `fuse` has found written out.
fn layer_normalization(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let epsilon = build.attributes.float("epsilon", 1e-5)?;
    let (Some(scale), Some(shift)) = (build.constant(1), build.constant(2)) else {
        return Err(OpError::new("scale or shift are not constant"));
    };
    let (scale, shift) = (scale.float()?, shift.float()?);
    let [width] = scale.shape().dims::<1>();
    let columns = Floats::of(&scale).zip(Floats::of(&shift));
    Ok(Kernel::one(move |mut args| {
        let x = args.float(0)?;
        let dims = x.shape().to_vec();
        if dims.last() != Some(&width) || x.dtype() != scale.dtype() {
            let kind = x.dtype();
            return Err(OpError(format!("{width} columns do not fit the shape {dims:?} of {kind:?}")));
        }
        let Some((scale, shift)) = &columns else {
            return Ok(Value::Float(B::layer_norm(x, scale.clone(), Some(shift.clone()), f64::from(epsilon))));
        };
        let mut numbers = floats::into_vec(x)?;
        layer_norm(&mut numbers, scale.as_slice(), Some(shift.as_slice()), epsilon);
        floats::tensor(numbers, dims, args.device)
    }))
}

/// y = scale · x + shift, for each channel.
pub(super) struct Affine {
    scale: Vec<f64>,
    shift: Vec<f64>,
}

fn normalization(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    if (1..5).any(|i| build.gives(i)) {
        return Err(OpError::new("its statistics are used, as in training; export with model.eval()"));
    }
    let Affine { scale, shift } = Affine::take(build, 1)?;
    let channels = scale.len();
    let tensor = |numbers: Vec<f64>| {
        let numbers: Vec<f32> = numbers.into_iter().map(|x| x as f32).collect();
        Value::from_data(TensorData::new(numbers, [channels]), build.device)
    };
    let (scale, shift) = (tensor(scale)?.float()?, tensor(shift)?.float()?);
    Ok(Kernel::one(move |mut args| {
        let x = args.float(0)?;
        let dims = x.shape();
        if dims.num_dims() < 2 || dims[1] != channels || x.dtype() != DType::F32 {
            let kind = x.dtype();
            return Err(OpError(format!("{channels} channels of F32 do not fit the shape {dims:?} of {kind:?}")));
        }
        let mut wide = vec![1; dims.num_dims()];
        wide[1] = channels;
        let [scale, shift] = [&scale, &shift].map(|t| B::float_reshape(t.clone(), Shape::from(wide.clone())));
        Ok(Value::Float(B::float_add(B::float_mul(x, scale), shift)))
    }))
}

impl Affine {
    /// Takes the constant columns (scale, bias, mean and variance) from argument `first` on: scale and shift that the
    /// normalisation amounts to. In double precision: the difference of two large numbers would cost digits of the model.
    pub(super) fn take(build: &mut Build<'_>, first: usize) -> Result<Affine, OpError> {
        let epsilon = f64::from(build.attributes.float("epsilon", 1e-5)?);
        build.attributes.float("momentum", 0.9)?;
        if build.attributes.flag("training_mode", false)? || !build.attributes.flag("spatial", true)? {
            return Err(OpError::new("training_mode=1 or spatial=0; export with model.eval()"));
        }
        let mut column = |i: usize| -> Result<Vec<f64>, OpError> {
            let value = build.constant(first + i).ok_or_else(|| OpError::new("its statistics are not constant"))?;
            value.into_data()?.convert_dtype(DType::F64).try_into_vec().map_err(|e| OpError(e.to_string()))
        };
        let (gamma, beta, mean, variance) = (column(0)?, column(1)?, column(2)?, column(3)?);
        if [&beta, &mean, &variance].iter().any(|c| c.len() != gamma.len()) {
            return Err(OpError::new("its statistics differ in length"));
        }
        let scale: Vec<f64> = gamma.iter().zip(&variance).map(|(g, v)| g / (v + epsilon).sqrt()).collect();
        let shift = beta.iter().zip(&mean).zip(&scale).map(|((b, m), s)| b - m * s).collect();
        Ok(Affine { scale, shift })
    }

    /// Weight and bias of a convolution that scales and shifts its result as well.
    pub(super) fn merged(
        &self,
        weight: Value,
        bias: Option<Value>,
        device: &DispatchDevice,
    ) -> Result<(Value, Option<Value>), OpError> {
        let Affine { scale, shift } = self;
        let floats = |v: Value| v.into_data()?.try_into_vec::<f32>().map_err(|e| OpError::new(e.to_string()));
        let shape = weight.shape();
        if shape.first() != Some(&scale.len()) {
            return Err(OpError(format!("a normalisation of {} channels behind a weight of {shape:?}", scale.len())));
        }
        let mut weights = floats(weight)?;
        let each = weights.len() / scale.len().max(1);
        for (row, scale) in weights.chunks_mut(each.max(1)).zip(scale) {
            row.iter_mut().for_each(|w| *w = (f64::from(*w) * scale) as f32);
        }
        let bias = bias.map(floats).transpose()?.unwrap_or_else(|| vec![0.0; scale.len()]);
        let bias = bias.iter().zip(scale).zip(shift).map(|((b, scale), shift)| (f64::from(*b) * scale + shift) as f32);
        let bias: Vec<f32> = bias.collect();
        let count = bias.len();
        let weight = Value::from_data(TensorData::new(weights, shape), device)?;
        Ok((weight, Some(Value::from_data(TensorData::new(bias, [count]), device)?)))
    }
}
