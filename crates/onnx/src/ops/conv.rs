//! Convolutions over one and two dimensions.

use burn_backend::TensorMetadata;
use burn_backend::ops::{ConvOptions, FloatTensorOps, ModuleOps};

use super::after::After;
use super::window::{Pads, Window};
use super::{Build, Kernel, Operator, conv_general, norm};
use crate::fast;
use crate::fast::activation::Activation;
use crate::floats::{self, Floats};
use crate::memory;
use crate::value::{Backend as B, Handle, OpError, Value, elements};

pub(super) const OPERATORS: &[Operator] = &[Operator::new("Conv", conv)];

/// A convolution, and what was joined to it.
pub(super) fn conv(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    // Weights that are computed, and volumes.
    if build.peek(1).is_none_or(|weight| weight.rank() > 4) || build.has(2) && build.peek(2).is_none() {
        return conv_general::conv(build);
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
    let (weight, bias) = match build.followed().normalization {
        Some(after) => norm::Affine::take(build, after.first, after.epsilon)?.merged(weight, bias, build.device)?,
        None => (weight, bias),
    };
    let (weight, bias) = (weight.float()?, bias.map(Value::float).transpose()?);
    if bias.as_ref().is_some_and(|b| b.dtype() != weight.dtype()) {
        return Err(OpError::new("weight and bias differ in type"));
    }
    let after = After::of(build);
    if let Some(weights) = Floats::of(&weight) {
        return Ok(fast(window, groups, &weights, &weight, bias.as_ref(), after));
    }
    Ok(Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let dims = window.image(&x.shape())?;
        let y = run(&window, groups, x.reshape(dims.to_vec())?.float()?, &weight, bias.as_ref(), dims)?;
        after.finish(y, &mut args)
    }))
}

/// A convolution by our own kernel.
fn fast(
    window: Window,
    groups: usize,
    weights: &Floats,
    weight: &Handle,
    bias: Option<&Handle>,
    after: After,
) -> Kernel {
    let shape = weight.shape().dims::<4>();
    let bias = bias.and_then(Floats::of);
    let bias = bias.as_ref().map(Floats::as_slice);
    let conv = fast::conv::Conv::new(weights.as_slice(), bias, groups, shape, window.stride, window.dilation);
    // A column of pixels is also a line of them, and lines are what vectors are filled with.
    let [outputs, inputs, height, width] = shape;
    let lying = (width == 1 && height > 1).then(|| {
        let turned = |[vertical, horizontal]: [usize; 2]| [horizontal, vertical];
        let (stride, dilation) = (turned(window.stride), turned(window.dilation));
        fast::conv::Conv::new(weights.as_slice(), bias, groups, [outputs, inputs, 1, height], stride, dilation)
    });
    Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let dims = window.image(&x.shape())?;
        let x = x.float()?;
        let Some(image) = Floats::of(&x) else {
            return Err(OpError(format!("cannot convolve {:?} with F32", x.dtype())));
        };
        let (out, pads) = geometry(&window, groups, shape, dims)?;
        let result = window.result(out);
        let term = after.term(&mut args, &result);
        let waits = after.waits(&mut args);
        let activation = if waits { Activation::None } else { after.activation };
        let mut y = memory::take(elements(&out)?);
        let ([_, _, mut h, mut w], [_, _, mut out_h, mut out_w], mut pads, mut conv) = (dims, out, pads, &conv);
        if let (Some(lying), 1, 1) = (&lying, w, out_w) {
            conv = lying;
            (h, w, out_h, out_w, pads) = (w, h, out_w, out_h, [pads[1], pads[0]]);
        }
        conv.run(
            image.as_slice(),
            [h, w],
            pads,
            [out_h, out_w],
            term.as_ref().map(Floats::as_slice),
            activation,
            &mut y,
        );
        drop(x);
        image.used_up();
        term.into_iter().for_each(Floats::used_up);
        let y = floats::tensor(y, result, args.device)?;
        if waits { after.finish(y, &mut args) } else { Ok(y) }
    })
}

/// The result's shape, and the padding.
pub(super) fn geometry(
    window: &Window,
    groups: usize,
    [outputs, inputs, ..]: [usize; 4],
    [n, channels, h, w]: [usize; 4],
) -> Result<([usize; 4], Pads), OpError> {
    if inputs.checked_mul(groups) != Some(channels) {
        return Err(OpError(format!(
            "a weight of {inputs} channels in {groups} groups does not fit {channels} channels"
        )));
    }
    let pads = window.pads([h, w]);
    let [out_h, out_w] = window.output([h, w], pads)?;
    let out = [n, outputs, out_h, out_w];
    elements(&out)?;
    Ok((out, pads))
}

pub(super) fn run(
    window: &Window,
    groups: usize,
    x: Handle,
    weight: &Handle,
    bias: Option<&Handle>,
    dims: [usize; 4],
) -> Result<Value, OpError> {
    let (out, pads) = geometry(window, groups, weight.shape().dims::<4>(), dims)?;
    if x.dtype() != weight.dtype() {
        return Err(OpError(format!("cannot convolve {:?} with {:?}", x.dtype(), weight.dtype())));
    }
    let options = ConvOptions::new_with_padding(window.stride, pads, window.dilation, groups);
    let y = B::conv2d(x, weight.clone(), bias.cloned(), options);
    Ok(Value::Float(if window.flat { B::float_reshape(y, window.result(out).into()) } else { y }))
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use crate::author::Attribute::{Int, Ints};
    use crate::author::{Author, FREE};

    #[test]
    fn an_image_of_one_column_is_convolved_like_each_column_of_a_wider_one() {
        let convolved = |width: usize| {
            let author = Author::new(17).input("x", &[FREE, 2, 6, FREE]).output("y", &[FREE, 2, FREE, FREE]);
            let author = author.floats("w", &[2, 1, 3, 1], &[1.0, -2.0, 3.0, 0.5, 4.0, -1.0]);
            let author = author.floats("b", &[2], &[0.25, -3.0]);
            let attributes = [
                ("group", Int(2)),
                ("pads", Ints(&[2, 0, 1, 0])),
                ("strides", Ints(&[2, 1])),
                ("dilations", Ints(&[2, 1])),
            ];
            let x: Vec<f32> = (0..12 * width).map(|i| ((i / width) * 7 % 12) as f32).collect();
            let answer = author.node("Conv", &["x", "w", "b"], &["y"], &attributes);
            let answer = answer.answer(vec![TensorData::new(x, [1, 2, 6, width])]).expect("it runs").remove(0);
            answer.try_into_vec::<f32>().expect("floats")
        };
        let (narrow, wide) = (convolved(1), convolved(3));
        assert_eq!(wide.len(), 3 * narrow.len());
        assert!(wide.chunks(3).zip(&narrow).all(|(wide, narrow)| wide == [*narrow; 3]), "{narrow:?} {wide:?}");
    }

    #[test]
    fn windows_over_padding_alone_give_the_bias_and_nothing_that_lay_in_memory() {
        let author = Author::new(17).input("x", &[FREE, 1, FREE]).output("y", &[FREE, 2, FREE]);
        let author = author.floats("w", &[2, 1, 2], &[1.0; 4]).floats("b", &[2], &[0.5, -3.0]);
        let author = author.node("Conv", &["x", "w", "b"], &["c"], &[("pads", Ints(&[1, 1]))]);
        let author = author.node("Relu", &["c"], &["y"], &[]);
        let empty = TensorData::new(Vec::<f32>::new(), [2, 1, 0]);
        assert_eq!(author.answer(vec![empty]), Ok(vec![TensorData::from([[[0.5f32], [0.0]], [[0.5], [0.0]]])]));
    }
}
