//! Convolutions in the rarer forms: weights that are computed, three dimensions, integers, and bent windows.

use burn_backend::ops::{ConvOptions, DeformConvOptions, FloatTensorOps, ModuleOps, PadMode};
use burn_backend::{DType, Shape, TensorMetadata};

use super::after::After;
use super::window::{Form, Window};
use super::{Args, Build, Kernel, Operator, conv, linear, norm};
use crate::value::{Backend as B, Handle, OpError, Value, elements};

pub(super) const OPERATORS: &[Operator] = &[Operator::new("DeformConv", deformed)];

/// Argument `i`: known when the node is compiled, or computed.
pub(super) struct Weight(Option<Value>, usize);

impl Weight {
    pub(super) fn take(build: &mut Build<'_>, i: usize) -> Weight {
        Weight(build.constant(i), i)
    }

    /// The weight of this run, if the node has one.
    pub(super) fn get(&self, args: &mut Args<'_>) -> Option<Value> {
        self.0.clone().or_else(|| args.optional(self.1))
    }

    /// The weight of this run, which must be there.
    pub(super) fn need(&self, args: &mut Args<'_>) -> Result<Value, OpError> {
        self.get(args).ok_or_else(|| OpError(format!("argument {} is missing", self.1)))
    }
}

/// A convolution whose weight may be computed; that of one that is joined with a normalisation is constant.
pub(super) fn conv(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let form = Form::of(build)?;
    let groups = groups(build)?;
    let (mut weight, mut bias) = (Weight::take(build, 1), Weight::take(build, 2));
    if let Some(after) = build.followed().normalization {
        let known = weight.0.take().ok_or_else(|| OpError::new("the weight is not constant"))?;
        let (merged, shift) =
            norm::Affine::take(build, after.first, after.epsilon)?.merged(known, bias.0.take(), build.device)?;
        (weight.0, bias.0) = (Some(merged), shift);
    }
    let after = After::of(build);
    Ok(Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let (weight, bias) = (weight.need(&mut args)?, bias.get(&mut args));
        let y = convolved(&form, groups, x, weight, bias)?;
        after.finish(y, &mut args)
    }))
}

/// The number of groups that the channels are split into.
pub(super) fn groups(build: &Build<'_>) -> Result<usize, OpError> {
    match usize::try_from(build.attributes.int("group", 1)?) {
        Ok(groups) if groups > 0 => Ok(groups),
        _ => Err(OpError::new("the number of groups is not positive")),
    }
}

/// One bias for each output channel, of the weight's type.
pub(super) fn checked_bias(bias: Option<Value>, outputs: usize, weight: &Handle) -> Result<Option<Handle>, OpError> {
    let Some(bias) = bias else { return Ok(None) };
    if bias.shape() != [outputs] {
        return Err(OpError(format!("the bias has the shape {:?}, not [{outputs}]", bias.shape().to_vec())));
    }
    let bias = bias.float()?;
    if bias.dtype() != weight.dtype() {
        return Err(OpError::new("weight and bias differ in type"));
    }
    Ok(Some(bias))
}

pub(super) fn convolved(
    form: &Form,
    groups: usize,
    x: Value,
    weight: Value,
    bias: Option<Value>,
) -> Result<Value, OpError> {
    let dims = weight.shape();
    let outputs = dims.first().copied().unwrap_or(0);
    if !outputs.is_multiple_of(groups) {
        return Err(OpError(format!("{outputs} channels do not split into {groups} groups")));
    }
    let narrow = || OpError(format!("the weight's shape {dims:?} is not that of the declared kernel"));
    if dims.len() == 5 {
        let window: Window<3> = form.window(Some(&dims))?;
        let weight = weight.float()?;
        if dims[2..] != window.kernel {
            return Err(narrow());
        }
        let bias = checked_bias(bias, outputs, &weight)?;
        return volume(&window, groups, x.float()?, weight, bias);
    }
    let window: Window = form.window(Some(&dims))?;
    let image = window.image(&dims)?;
    if image[2..] != window.kernel {
        return Err(narrow());
    }
    let weight = weight.reshape(image.to_vec())?.float()?;
    let bias = checked_bias(bias, outputs, &weight)?;
    let dims = window.image(&x.shape())?;
    conv::run(&window, groups, x.reshape(dims.to_vec())?.float()?, &weight, bias.as_ref(), dims)
}

fn volume(
    window: &Window<3>,
    groups: usize,
    x: Handle,
    weight: Handle,
    bias: Option<Handle>,
) -> Result<Value, OpError> {
    let (n, channels, space) = window.split(&x.shape())?;
    let [outputs, inputs, ..] = weight.shape().dims::<5>();
    if inputs.checked_mul(groups) != Some(channels) || x.dtype() != weight.dtype() {
        return Err(OpError(format!(
            "a weight of {inputs} channels of {:?} in {groups} groups does not fit {channels} of {:?}",
            weight.dtype(),
            x.dtype()
        )));
    }
    let pads = window.pads(space);
    elements(&window.joined(n, outputs, window.output(space, pads)?))?;
    let options = ConvOptions::new_with_padding(window.stride, pads, window.dilation, groups);
    Ok(Value::Float(B::conv3d(x, weight, bias, options)))
}

/// A convolution of small integers, less their zero points, into 32 bits.
pub(super) fn integer(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let form = Form::of(build)?;
    let groups = groups(build)?;
    Ok(Kernel::one(move |mut args| {
        let (x, weight) = (args.take(0)?, args.take(1)?);
        // A zero point for each output channel stands in front of all that makes the channel.
        let mut wide = vec![1; weight.rank()];
        let points = args.optional(3).map(|points| {
            if let (Some(first), 1) = (wide.first_mut(), points.rank()) {
                *first = elements(&points.shape())?;
            }
            points.reshape(wide)
        });
        let x = linear::centered(x, args.optional(2), args.device)?;
        let weight = linear::centered(weight, points.transpose()?, args.device)?;
        convolved(&form, groups, Value::Float(x), Value::Float(weight), None)?.cast(DType::I32, args.device)
    }))
}

/// A convolution whose window's elements are displaced, each by an offset of its own.
fn deformed(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let form = Form::of(build)?;
    let groups = groups(build)?;
    let offset_groups = usize::try_from(build.attributes.int("offset_group", 1)?).unwrap_or(0);
    let (weight, bias) = (Weight::take(build, 1), Weight::take(build, 3));
    Ok(Kernel::one(move |mut args| {
        let (x, weight) = (args.float(0)?, weight.need(&mut args)?.float()?);
        let (offset, bias, mask) = (args.float(2)?, bias.get(&mut args), args.optional(4));
        let window: Window = form.window(Some(&weight.shape()))?;
        let [n, channels, h, w] = window.image(&x.shape())?;
        if window.flat || weight.shape().num_dims() != 4 {
            return Err(OpError::new("a bent window of one dimension is not supported"));
        }
        let [outputs, inputs, ..] = weight.shape().dims::<4>();
        let fits = inputs.checked_mul(groups) == Some(channels) && outputs.is_multiple_of(groups);
        if !fits || offset_groups == 0 || !channels.is_multiple_of(offset_groups) {
            return Err(OpError(format!(
                "a weight of {inputs} channels in {groups} groups, with {offset_groups} of offsets, does not fit \
                 {channels} channels"
            )));
        }
        let bias = checked_bias(bias, outputs, &weight)?;
        let mask = mask.map(Value::float).transpose()?;
        let pads = window.pads([h, w]);
        let [out_h, out_w] = window.output([h, w], pads)?;
        elements(&[n, outputs, out_h, out_w])?;
        let [kernel_h, kernel_w] = window.kernel;
        let taps = elements(&[offset_groups, kernel_h, kernel_w])?;
        let wanted = Shape::from(vec![n, 2 * taps, out_h, out_w]);
        let masked = Shape::from(vec![n, taps, out_h, out_w]);
        if offset.shape() != wanted || mask.as_ref().is_some_and(|mask| mask.shape() != masked) {
            return Err(OpError(format!("the offsets do not have the shape {wanted:?}, or the mask {masked:?}")));
        }
        let kinds = [Some(&weight), Some(&offset), mask.as_ref()];
        if weight.shape().dims::<4>()[2..] != window.kernel
            || kinds.into_iter().flatten().any(|t| t.dtype() != x.dtype())
        {
            return Err(OpError::new("the weight's kernel is not the declared one, or the types differ"));
        }
        elements(&[n, channels, h + pads[0].0 + pads[0].1, w + pads[1].0 + pads[1].1])?;
        let x = B::float_pad(x, &[(0, 0), (0, 0), pads[0], pads[1]], PadMode::Constant(0.0));
        let options = DeformConvOptions::new(window.stride, [0, 0], window.dilation, groups, offset_groups);
        Ok(Value::Float(B::deform_conv2d(x, offset, weight, mask, bias, options)))
    }))
}
