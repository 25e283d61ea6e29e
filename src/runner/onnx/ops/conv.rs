//! Convolutions over one and two dimensions.

use burn_backend::TensorMetadata;
use burn_backend::ops::{ConvOptions, FloatTensorOps, ModuleOps};
use onnx_ir::Node;

use super::window::Window;
use super::{Build, Compiled, Kernel, Refusal};
use crate::runner::onnx::value::{Backend as B, Handle, OpError, Value, elements};

pub(super) const OPERATORS: &[&str] = &["Conv"];

pub(super) fn compile(node: &Node, build: &mut Build<'_>) -> Compiled {
    Ok(Some(match node {
        Node::Conv1d(n) => {
            let k = &n.config;
            let window = Window::one(k.kernel_size, k.stride, k.dilation, &k.padding, &k.auto_pad)?;
            conv(window, k.groups, build)?
        }
        Node::Conv2d(n) => {
            let k = &n.config;
            let window = Window::two(k.kernel_size, k.stride, k.dilation, &k.padding, &k.auto_pad)?;
            conv(window, k.groups, build)?
        }
        _ => return Ok(None),
    }))
}

fn conv(window: Window, groups: usize, build: &mut Build<'_>) -> Result<Kernel, Refusal> {
    let Some(weight) = build.constant(1) else { return Err(Refusal::form("the weight is not constant")) };
    let [outputs, inputs, height, width] = window.image(&weight.shape())?;
    if [height, width] != window.kernel {
        return Err(Refusal::form(format!("the weight's kernel is not the declared {:?}", window.kernel)));
    }
    if groups == 0 || !outputs.is_multiple_of(groups) {
        return Err(Refusal::form(format!("{outputs} channels do not split into {groups} groups")));
    }
    let weight = weight.reshape(vec![outputs, inputs, height, width])?;
    let bias = match build.constant(2) {
        None if build.has(2) => return Err(Refusal::form("the bias is not constant")),
        bias => bias,
    };
    if bias.as_ref().is_some_and(|b| b.shape() != [outputs]) {
        return Err(Refusal::form(format!("the bias does not have {outputs} elements")));
    }
    let (weight, bias) = match build.fold {
        Some(fold) => fold.fold_conv(weight, bias, build.device)?,
        None => (weight, bias),
    };
    let (weight, bias) = (weight.float()?, bias.map(Value::float).transpose()?);
    if bias.as_ref().is_some_and(|b| b.dtype() != weight.dtype()) {
        return Err(Refusal::form("weight and bias differ in type"));
    }
    Ok(Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let dims = window.image(&x.shape())?;
        run(&window, groups, x.reshape(dims.to_vec())?.float()?, &weight, bias.as_ref(), dims)
    }))
}

fn run(
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
