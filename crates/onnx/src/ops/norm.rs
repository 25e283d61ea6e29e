//! Batch normalisation: a scale and a shift for each channel.

use burn_backend::ops::FloatTensorOps;
use burn_backend::{DType, Shape, TensorMetadata};
use burn_dispatch::DispatchDevice;

use super::along::{elements_of, value_of};
use super::norm_layers::{cast, centred, wide};
use super::{Build, Kernel, Operator};
use crate::fast::activation::scaled;
use crate::fast::rows::layer_norm;
use crate::floats::{self, Floats, Strided};
use crate::value::{Backend as B, Handle, OpError, Value, elements};

pub(super) const OPERATORS: &[Operator] =
    &[Operator::new("BatchNormalization", normalization).except("spatial=0; training before opset 14")];

/// Over the last axis, with constant scale and shift: what `fuse` has found written out.
pub(super) fn joined(build: &mut Build<'_>, epsilon: f32) -> Result<Kernel, OpError> {
    let (Some(scale), Some(shift)) = (build.constant(1), build.constant(2)) else {
        return Err(OpError::new("scale or shift are not constant"));
    };
    let (scale, shift) = (scale.float()?, shift.float()?);
    let [width] = scale.shape().dims::<1>();
    let columns = Floats::of(&scale).zip(Floats::of(&shift));
    Ok(Kernel::one(move |mut args| {
        let x = args.float(0)?;
        let dims = x.shape().to_vec();
        let Some((scale, shift)) = columns.as_ref().filter(|_| dims.last() == Some(&width)) else {
            return broadcast(x, [&scale, &shift], epsilon);
        };
        let mut numbers = floats::into_vec(x)?;
        layer_norm(&mut numbers, scale.as_slice(), Some(shift.as_slice()), epsilon);
        floats::tensor(numbers, dims, args.device)
    }))
}

/// The same by operations of the device. If the columns of `x` and those of the scale are not as many, one of them is broadcast, as
/// in the sums and products that were written out.
fn broadcast(x: Handle, columns: [&Handle; 2], epsilon: f32) -> Result<Value, OpError> {
    let Some(last) = x.shape().num_dims().checked_sub(1) else {
        return Err(OpError::new("a single number has no axis to be normalised over"));
    };
    let mut laid = vec![1; last + 1];
    let [scale, shift] = columns.map(|tensor| {
        laid[last] = tensor.shape()[0];
        B::float_reshape(tensor.clone(), Shape::from(laid.clone()))
    });
    let (width, found) = (scale.shape()[last], x.shape()[last]);
    if width != 1 && found != 1 {
        return Err(OpError(format!("{width} columns do not fit {found}")));
    }
    let (centred, _) = centred(x, |x| B::float_mean_dim(x, last));
    let variance = B::float_mean_dim(B::float_mul(centred.clone(), centred.clone()), last);
    let root = B::float_sqrt(B::float_add_scalar(variance, epsilon.into()));
    let scaled = B::float_mul(B::float_div(centred, root), scale);
    Ok(Value::Float(B::float_add(scaled, shift)))
}

/// y = scale · x + shift, for each channel.
pub(super) struct Affine {
    scale: Vec<f64>,
    shift: Vec<f64>,
}

fn normalization(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let training = build.attributes.flag("training_mode", false)?;
    if training || (1..5).any(|i| build.peek(i).is_none()) {
        return computed(build, training);
    }
    if (1..5).any(|i| build.gives(i)) {
        return Err(OpError::new("its statistics are used, as in training; export with model.eval()"));
    }
    let epsilon = build.attributes.float("epsilon", 1e-5)?;
    build.attributes.float("momentum", 0.9)?;
    if !build.attributes.flag("spatial", true)? {
        return Err(OpError::new("spatial=0; export with model.eval()"));
    }
    let Affine { scale, shift } = Affine::take(build, 1, epsilon)?;
    let channels = scale.len();
    let column = move |numbers: &[f64], kind: DType, device: &DispatchDevice| {
        value_of(numbers.to_vec(), vec![channels], kind, device)?.float()
    };
    let prepared = [&scale, &shift].map(|numbers| column(numbers, DType::F32, build.device));
    let [f32_scale, f32_shift] = prepared;
    let single = (f32_scale?, f32_shift?);
    let narrow = |numbers: &[f64]| numbers.iter().map(|&x| x as f32).collect::<Vec<_>>();
    let near = (narrow(&scale), narrow(&shift));
    Ok(Kernel::one(move |mut args| {
        let x = args.float(0)?;
        let (dims, kind) = (x.shape(), x.dtype());
        if dims.num_dims() < 2 || dims[1] != channels {
            return Err(OpError(format!("{channels} channels do not fit the shape {dims:?}")));
        }
        let dims = dims.to_vec();
        if Strided::of(&x).is_some_and(|x| x.is_in_order(&dims)) {
            let size = elements(&dims[2..])?;
            return floats::changed(x, args.device, |x| scaled(x, size, &near.0, &near.1));
        }
        let mut laid = vec![1; dims.len()];
        laid[1] = channels;
        let (scale, shift) = match kind {
            DType::F64 => (column(&scale, kind, args.device)?, column(&shift, kind, args.device)?),
            _ => single.clone(),
        };
        let [scale, shift] = [scale, shift].map(|t| B::float_reshape(t, Shape::from(laid.clone())));
        // Half types are too coarse for a scale and a shift of large statistics.
        let y = B::float_add(B::float_mul(cast(x, wide(kind)), scale), shift);
        Ok(Value::Float(cast(y, kind)))
    }))
}

/// A normalisation whose statistics are computed: by other nodes or, in training, from the batch itself.
fn computed(build: &mut Build<'_>, training: bool) -> Result<Kernel, OpError> {
    let epsilon = build.attributes.float("epsilon", 1e-5)?;
    let momentum = build.attributes.float("momentum", 0.9)?;
    if !build.attributes.flag("spatial", true)? || (!training && (1..5).any(|i| build.gives(i))) {
        return Err(OpError::new("spatial=0 or used statistics; export with model.eval()"));
    }
    Ok(Kernel::many(move |mut args| {
        let x = args.float(0)?;
        let (dims, kind) = (x.shape().to_vec(), x.dtype());
        let channels = match dims[..] {
            [_, channels, ..] if !dims.contains(&0) => channels,
            _ => return Err(OpError(format!("no channels can be normalised in the shape {dims:?}"))),
        };
        let mut x = cast(x, wide(kind));
        let mut laid = vec![1; dims.len()];
        laid[1] = channels;
        let mut column =
            |i: usize| Ok::<Handle, OpError>(cast(args.take(i)?.reshape(laid.clone())?.float()?, wide(kind)));
        let (scale, shift, mean, mut variance) = (column(1)?, column(2)?, column(3)?, column(4)?);
        let mut running = Vec::new();
        if training {
            let over = |x: Handle| (0..dims.len()).filter(|&i| i != 1).fold(x, B::float_mean_dim);
            let (distance, batch_mean) = centred(x, over);
            let batch_variance = over(B::float_mul(distance.clone(), distance.clone()));
            for (old, new) in [(mean, &batch_mean), (variance, &batch_variance)] {
                let old = B::float_mul_scalar(old, momentum.into());
                let next = B::float_add(old, B::float_mul_scalar(new.clone(), (1.0 - momentum).into()));
                let next = B::float_reshape(next, Shape::from(vec![channels]));
                running.push(Value::Float(cast(next, kind)));
            }
            (x, variance) = (distance, batch_variance);
        } else {
            x = B::float_sub(x, mean);
        }
        let spread = B::float_sqrt(B::float_add_scalar(variance, epsilon.into()));
        let y = B::float_mul(B::float_div(x, spread), scale);
        let y = cast(B::float_add(y, shift), kind);
        Ok([vec![Value::Float(y)], running].concat())
    }))
}

impl Affine {
    /// Takes the constant columns (scale, bias, mean and variance) from argument `first` on: scale and shift that the
    /// normalisation amounts to. In double precision: the difference of two large numbers would cost digits of the model.
    pub(super) fn take(build: &mut Build<'_>, first: usize, epsilon: f32) -> Result<Affine, OpError> {
        let epsilon = f64::from(epsilon);
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
        let floats = elements_of::<f32>;
        let (shape, kind) = (weight.shape(), weight.clone().float()?.dtype());
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
        Ok((value_of(weights, shape, kind, device)?, Some(value_of(bias, vec![count], kind, device)?)))
    }
}
