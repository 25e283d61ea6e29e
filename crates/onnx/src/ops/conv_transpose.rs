//! Transposed convolutions over one, two and three dimensions.

use burn_backend::ops::{ConvTransposeOptions, FloatTensorOps, ModuleOps};
use burn_backend::{Shape, Slice, TensorMetadata};

use super::conv_general::{Weight, checked_bias, groups};
use super::window::{Form, Window};
use super::{Build, Kernel, Operator};
use crate::value::{Backend as B, Handle, OpError, Value, elements};

pub(super) const OPERATORS: &[Operator] = &[Operator::new("ConvTranspose", transposed)];

/// Most that may be added to a length behind the last window.
const MOST_ADDED: usize = 1 << 12;

/// Attributes that only transposed convolutions have.
struct Extra {
    groups: usize,
    /// The lengths of the result, where the padding is to follow from them.
    lengths: Option<Vec<usize>>,
    /// What is added to the lengths, on the side behind.
    added: Option<Vec<usize>>,
}

fn transposed(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let form = Form::of(build)?;
    let list = |name: &str| -> Result<Option<Vec<usize>>, OpError> {
        let ints = build.attributes.ints(name)?;
        let list = ints.map(|ints| ints.into_iter().map(usize::try_from).collect::<Result<Vec<usize>, _>>());
        list.transpose().map_err(|_| OpError(format!("{name} below zero are not supported")))
    };
    let extra = Extra { groups: groups(build)?, lengths: list("output_shape")?, added: list("output_padding")? };
    let (weight, bias) = (Weight::take(build, 1), Weight::take(build, 2));
    Ok(Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let (weight, bias) = (weight.need(&mut args)?, bias.get(&mut args));
        let arguments = (x, weight, bias);
        match arguments.1.rank() {
            3 | 4 => spread::<2>(&form, &extra, arguments, B::conv_transpose2d),
            _ => spread::<3>(&form, &extra, arguments, B::conv_transpose3d),
        }
    }))
}

fn spread<const D: usize>(
    form: &Form,
    extra: &Extra,
    (x, weight, bias): (Value, Value, Option<Value>),
    f: fn(Handle, Handle, Option<Handle>, ConvTransposeOptions<D>) -> Handle,
) -> Result<Value, OpError> {
    let window: Window<D> = form.window(Some(&weight.shape()))?;
    let (inputs, outputs, kernel) = window.split(&weight.shape())?;
    let (n, channels, space) = window.split(&x.shape())?;
    let groups = extra.groups;
    if kernel != window.kernel || inputs != channels || !channels.is_multiple_of(groups) {
        let (x, weight) = (x.shape(), weight.shape());
        return Err(OpError(format!("a weight of {weight:?} in {groups} groups does not fit the shape {x:?}")));
    }
    let outputs = elements(&[outputs, groups])?;
    let flat = [&[inputs, outputs / groups], &kernel[..]].concat();
    let weight = weight.reshape(flat)?.float()?;
    let x = x.reshape([&[n, channels], &space[..]].concat())?.float()?;
    if x.dtype() != weight.dtype() {
        return Err(OpError(format!("cannot convolve {:?} with {:?}", x.dtype(), weight.dtype())));
    }
    let bias = checked_bias(bias, outputs, &weight)?;
    let Extent { from, lengths } = extent(&window, extra, space)?;
    // The device pads both sides alike: it gets what they have in common, and what is more in front is cut off here.
    let full: [usize; D] = std::array::from_fn(|i| (space[i] - 1) * window.stride[i] + window.reach(i));
    let behind = |i: usize| full[i].saturating_sub(from[i] + lengths[i]);
    let padding: [usize; D] = std::array::from_fn(|i| from[i].min(behind(i)));
    let missing = |i: usize| (from[i] + lengths[i]).saturating_sub(full[i] - padding[i]);
    let added: [usize; D] = std::array::from_fn(missing);
    let made: [usize; D] = std::array::from_fn(|i| full[i] + added[i] - 2 * padding[i]);
    elements(&[&[n, outputs], &made[..]].concat())?;
    let options = ConvTransposeOptions::new(window.stride, padding, added, window.dilation, groups);
    let mut y = f(x, weight, bias, options);
    if made != lengths {
        let whole = |d: usize| Slice::new(0, Some(d as isize), 1);
        let mut cut = vec![whole(n), whole(outputs)];
        cut.extend((0..D).map(|i| {
            let start = from[i] - padding[i];
            Slice::new(start as isize, Some((start + lengths[i]) as isize), 1)
        }));
        y = B::float_slice(y, &cut);
    }
    let dims = window.joined(n, outputs, lengths);
    Ok(Value::Float(if window.flat { B::float_reshape(y, Shape::from(dims)) } else { y }))
}

/// The part of the unpadded result that is kept.
struct Extent<const D: usize> {
    from: [usize; D],
    lengths: [usize; D],
}

fn extent<const D: usize>(window: &Window<D>, extra: &Extra, space: [usize; D]) -> Result<Extent<D>, OpError> {
    let first = usize::from(window.flat);
    let each = |list: &Option<Vec<usize>>| -> Result<Option<[usize; D]>, OpError> {
        let Some(list) = list else { return Ok(None) };
        let mut all = [usize::from(first == 1); D];
        match list.len().checked_sub(D - first) {
            // The lengths may have the batch and the channels in front.
            Some(more @ (0 | 2)) => all[first..].copy_from_slice(&list[more..]),
            _ => return Err(OpError(format!("{list:?} does not fit a kernel of {} dimensions", D - first))),
        }
        Ok(Some(all))
    };
    let mut added = each(&extra.added)?.unwrap_or([0; D]);
    if first == 1 {
        added[0] = 0;
    }
    if space.contains(&0) || added.iter().any(|&a| a > MOST_ADDED) {
        return Err(OpError(format!("lengths of {space:?} with {added:?} added are not supported")));
    }
    let full = |i: usize| (space[i] - 1) * window.stride[i] + window.reach(i) + added[i];
    let wanted = match each(&extra.lengths)? {
        None if window.keeps_lengths() => Some(std::array::from_fn(|i| space[i] * window.stride[i])),
        wanted => wanted,
    };
    let Some(lengths) = wanted else {
        let pads = window.pads_to(|_| 0);
        let mut lengths = [0; D];
        for i in 0..D {
            let left = full(i).checked_sub(pads[i].0 + pads[i].1).filter(|&left| left > 0);
            lengths[i] = left.ok_or_else(|| OpError(format!("a padding of {pads:?} leaves nothing")))?;
        }
        return Ok(Extent { from: pads.map(|(before, _)| before), lengths });
    };
    let from = std::array::from_fn(|i| {
        let total = full(i).saturating_sub(lengths[i]);
        if window.pads_behind() { total / 2 } else { total - total / 2 }
    });
    Ok(Extent { from, lengths })
}
