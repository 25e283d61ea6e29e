//! Convolutions over one and two dimensions.

use burn_backend::TensorMetadata;
use burn_backend::ops::{ConvOptions, FloatTensorOps, ModuleOps};

use super::window::Window;
use super::{Build, Kernel, Operator, conv_general, norm};
use crate::runner::onnx::value::{Backend as B, Handle, OpError, Value, elements};

pub(super) const OPERATORS: &[Operator] =
    &[Operator::new("Conv", |build| conv(build, false)), Operator::new("uncork::Conv", |build| conv(build, true))];

/// A convolution; a normalised one has the four columns of a `BatchNormalization` behind its own arguments.
fn conv(build: &mut Build<'_>, normalized: bool) -> Result<Kernel, OpError> {
    // Weights that are computed, and volumes.
    if build.peek(1).is_none_or(|weight| weight.rank() > 4) || build.has(2) && build.peek(2).is_none() {
        return conv_general::conv(build, normalized);
    }
    let Some(weight) = build.constant(1) else { return Err(OpError::new("the weight is not constant")) };
    let window = Window::of(build, Some(&weight.shape()))?;
    let groups = usize::try_from(build.attributes.int("group", 1)?).unwrap_or(0);
    let [outputs, inputs, height, width] = window.image(&weight.shape())?;
    if [height, width] != window.kernel {
        return Err(OpError(format!("the weight's kernel is not the declared {:?}", window.kernel)));
    }
    if groups == 0 || !outputs.is_multiple_of(groups) {
        return Err(OpError(format!("{outputs} channels do not split into {groups} groups")));
    }
    let weight = weight.reshape(vec![outputs, inputs, height, width])?;
    let bias = build.constant(2);
    if bias.as_ref().is_some_and(|b| b.shape() != [outputs]) {
        return Err(OpError(format!("the bias does not have {outputs} elements")));
    }
    let (weight, bias) = match normalized {
        true => norm::Affine::take(build, 3)?.merged(weight, bias, build.device)?,
        false => (weight, bias),
    };
    let (weight, bias) = (weight.float()?, bias.map(Value::float).transpose()?);
    if bias.as_ref().is_some_and(|b| b.dtype() != weight.dtype()) {
        return Err(OpError::new("weight and bias differ in type"));
    }
    Ok(Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let dims = window.image(&x.shape())?;
        run(&window, groups, x.reshape(dims.to_vec())?.float()?, &weight, bias.as_ref(), dims)
    }))
}

pub(super) fn run(
    window: &Window,
    groups: usize,
    x: Handle,
    weight: &Handle,
    bias: Option<&Handle>,
    [n, channels, h, w]: [usize; 4],
) -> Result<Value, OpError> {
    let [outputs, inputs, ..] = weight.shape().dims::<4>();
    if inputs.checked_mul(groups) != Some(channels) {
        return Err(OpError(format!(
            "a weight of {inputs} channels in {groups} groups does not fit {channels} channels"
        )));
    }
    if x.dtype() != weight.dtype() {
        return Err(OpError(format!("cannot convolve {:?} with {:?}", x.dtype(), weight.dtype())));
    }
    let pads = window.pads([h, w]);
    let [out_h, out_w] = window.output([h, w], pads)?;
    let out = [n, outputs, out_h, out_w];
    elements(&out)?;
    let options = ConvOptions::new_with_padding(window.stride, pads, window.dilation, groups);
    let y = B::conv2d(x, weight.clone(), bias.cloned(), options);
    Ok(Value::Float(if window.flat { B::float_reshape(y, window.result(out).into()) } else { y }))
}
