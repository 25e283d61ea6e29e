//! Writing elements or blocks to places that indices name.

use std::ops::{Add, Mul};

use burn_backend::{Element, TensorData};
use burn_dispatch::DispatchDevice;

use super::arrange::{Walk, by_number, integers, placed, strides, zeros};
use super::foreign::{Foreign, guarded};
use super::gather::{Blocks, element_places};
use super::generate::lengths;
use super::select::{Cut, cut};
use super::{Build, Kernel, Operator};
use crate::value::{OpError, Value, axis, elements};
use uncork_model::quote::Quoted;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Col2Im", col2im),
    Operator::of_any("Scatter", scatter_elements),
    Operator::of_any("ScatterElements", scatter_elements),
    Operator::of_any("ScatterND", |build| {
        let reduction = Reduction::of(build)?;
        let kernel = Kernel::one(move |mut args| {
            let (x, at, updates) = (args.take(0)?, args.take(1)?, args.take(2)?);
            let blocks = Blocks::of(&x.shape(), at, 0)?;
            let mut dims = blocks.front;
            dims.extend_from_slice(&blocks.inner);
            scattered(x, updates, &dims, blocks.size, &blocks.places, reduction, args.device)
        });
        Ok(guarded(kernel, reduction.of_texts()))
    }),
    Operator::new("TensorScatter", |build| {
        let given = build.attributes.int("axis", -2)?;
        let circular = match build.attributes.text("mode", "linear")?.as_str() {
            "linear" => false,
            "circular" => true,
            other => return Err(OpError(format!("the mode {}", Quoted(other)))),
        };
        Ok(Kernel::one(move |mut args| {
            let (x, updates) = (args.take(0)?, args.take(1)?);
            let dims = x.shape();
            let axis = axis(given, dims.len())?;
            if axis == 0 {
                return Err(OpError::new("a sequence along the batch axis"));
            }
            let mut written = dims.clone();
            written[axis] = *updates.shape().get(axis).unwrap_or(&0);
            let (length, count) = (dims[axis], written[axis]);
            let starts = match args.optional(2) {
                Some(starts) => integers(starts)?,
                None => vec![0; dims[0]],
            };
            let fits = |&start: &i64| {
                usize::try_from(start)
                    .ok()
                    .filter(|start| start.checked_add(count).is_some_and(|end| circular || end <= length))
            };
            let starts: Option<Vec<usize>> = starts.iter().map(fits).collect();
            let starts = starts.filter(|starts| starts.len() == dims[0] && count <= length).ok_or_else(|| {
                OpError(format!("expects a start for each of {} rows, such that {count} fit into {length}", dims[0]))
            })?;
            let (outer, inner) = (elements(&dims[..axis])?, elements(&dims[axis + 1..])?);
            let a_row = elements(&dims[1..axis])?.max(1);
            let places = (0..outer * count).map(|i| {
                let (row, step) = (i / count, i % count);
                row * length + (starts[row / a_row] + step) % length
            });
            let places: Vec<usize> = places.collect();
            scattered(x, updates, &written, inner, &places, Reduction::None, args.device)
        }))
    }),
];

/// `Col2Im`: columns, each of which is a window of an image, are added up to the image.
fn col2im(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let (image, window) = (build.ints("image_shape", 1)?, build.ints("block_shape", 2)?);
    let list = |name: &str| build.attributes.ints(name)?.map(|list| lengths(&list)).transpose();
    let (dilations, steps, pads) = (list("dilations")?, list("strides")?, list("pads")?);
    Ok(Kernel::one(move |mut args| {
        let image = lengths(&image.need("image's dimensions", &mut args)?)?;
        let window = lengths(&window.need("window's dimensions", &mut args)?)?;
        let x = args.take(0)?;
        let rank = image.len();
        let ones = vec![1; rank];
        let dilations = dilations.as_ref().unwrap_or(&ones);
        let step = steps.as_ref().unwrap_or(&ones);
        let pads = pads.clone().unwrap_or(vec![0; 2 * rank]);
        let have = x.shape();
        let misfit = || OpError(format!("windows {window:?} of the image {image:?} do not fit the columns {have:?}"));
        let [n, rows, columns] = have[..] else { return Err(misfit()) };
        if [window.len(), dilations.len(), step.len(), pads.len()] != [rank, rank, rank, 2 * rank] {
            return Err(misfit());
        }
        // How often the window fits along each axis of the image with its margins.
        let (mut wide, mut counts) = (Vec::new(), Vec::new());
        for i in 0..rank {
            let length = image[i].saturating_add(pads[i]).saturating_add(pads[i + rank]);
            let spread = window[i].checked_sub(1).and_then(|gaps| gaps.checked_mul(dilations[i]));
            let room = spread.and_then(|spread| length.checked_sub(spread)?.checked_sub(1)).ok_or_else(misfit)?;
            counts.push(room.checked_div(step[i]).ok_or_else(misfit)? + 1);
            wide.push(length);
        }
        let channels = rows.checked_div(elements(&window)?).ok_or_else(misfit)?;
        if channels * elements(&window)? != rows || elements(&counts)? != columns {
            return Err(misfit());
        }
        let whole = [&[n, channels], &wide[..]].concat();
        elements(&whole)?;
        let images = n * channels;
        let apart = strides(&wide);
        // A step longer than the axis is never taken.
        let along = |by: &[usize]| (0..rank).map(|i| apart[i] * by[i].min(wide[i])).collect::<Vec<_>>();
        let walk = Walk::new(
            &[&[images], &window[..], &counts].concat(),
            &[&[elements(&wide)?], &along(dilations)[..], &along(step)].concat(),
        );
        let places: Vec<usize> = walk.collect();
        let dtype = x.dtype();
        let empty = zeros(whole, dtype, args.device)?;
        let full = by_number!(dtype, T => reduced::<T>(empty, x, 1, &places, Reduction::Add, args.device))?;
        let inside = pads.iter().zip(&image).map(|(&start, &count)| Cut { start, step: 1, count });
        let cuts =
            [n, channels].map(|count| Cut { start: 0, step: 1, count }).into_iter().chain(inside).collect::<Vec<_>>();
        cut(full, &cuts, args.device)
    }))
}

/// `ScatterElements`, which was called `Scatter` before opset 11.
fn scatter_elements(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let given = build.attributes.int("axis", 0)?;
    let reduction = Reduction::of(build)?;
    let kernel = Kernel::one(move |mut args| {
        let (x, at, updates) = (args.take(0)?, args.take(1)?, args.take(2)?);
        let wanted = at.shape();
        let places = element_places(&x.shape(), at, given)?;
        scattered(x, updates, &wanted, 1, &places, reduction, args.device)
    });
    Ok(guarded(kernel, reduction.of_texts()))
}

/// What becomes of an element that is written to.
#[derive(Clone, Copy)]
enum Reduction {
    None,
    Add,
    Mul,
    Max,
    Min,
}

impl Reduction {
    fn of(build: &Build<'_>) -> Result<Reduction, OpError> {
        Ok(match build.attributes.text("reduction", "none")?.as_str() {
            "none" => Reduction::None,
            "add" => Reduction::Add,
            "mul" => Reduction::Mul,
            "max" => Reduction::Max,
            "min" => Reduction::Min,
            other => return Err(OpError(format!("the reduction {}", Quoted(other)))),
        })
    }

    /// Texts can be written to places, but nothing can be computed of two.
    fn of_texts(self) -> Foreign {
        match self {
            Reduction::None => Foreign::Moved,
            _ => Foreign::Refused,
        }
    }

    fn apply<T: Number>(self, old: T, new: T) -> T {
        let odd = |x: &T| x.partial_cmp(x).is_none();
        match self {
            Reduction::None => new,
            Reduction::Add => old.plus(new),
            Reduction::Mul => old.times(new),
            // What is not a number stays so.
            Reduction::Max => {
                if new > old || odd(&new) {
                    new
                } else {
                    old
                }
            }
            Reduction::Min => {
                if new < old || odd(&new) {
                    new
                } else {
                    old
                }
            }
        }
    }
}

/// `x` with blocks of `block` elements changed by those of `updates`, which must have the shape `dims`.
fn scattered(
    x: Value,
    updates: Value,
    dims: &[usize],
    block: usize,
    places: &[usize],
    reduction: Reduction,
    device: &DispatchDevice,
) -> Result<Value, OpError> {
    if updates.shape() != dims {
        return Err(OpError(format!("updates have the shape {:?} where {dims:?} is needed", updates.shape().to_vec())));
    }
    let dtype = x.dtype();
    if updates.dtype() != dtype {
        return Err(OpError(format!("updates of type {:?} do not fit elements of type {dtype:?}", updates.dtype())));
    }
    if let Reduction::None = reduction {
        return placed(x, updates, block, places, device);
    }
    by_number!(dtype, T => reduced::<T>(x, updates, block, places, reduction, device))
}

fn reduced<T: Number>(
    x: Value,
    updates: Value,
    block: usize,
    places: &[usize],
    reduction: Reduction,
    device: &DispatchDevice,
) -> Result<Value, OpError> {
    let damaged = |e: burn_backend::DataError| OpError::new(e.to_string());
    let dims = x.shape();
    let mut numbers = x.into_data()?.try_into_vec::<T>().map_err(damaged)?;
    let updates = updates.into_data()?.try_into_vec::<T>().map_err(damaged)?;
    for (update, &place) in updates.chunks_exact(block.max(1)).zip(places) {
        for (old, &new) in numbers[place * block..][..block].iter_mut().zip(update) {
            *old = reduction.apply(*old, new);
        }
    }
    Value::from_data(TensorData::new(numbers, burn_backend::Shape::from(dims)), device)
}

/// An element that can be added and multiplied; integers wrap around, as they do on every device.
trait Number: Element + Copy + PartialOrd {
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

macro_rules! number {
    ($($element:ty: $plus:path, $times:path;)*) => {
        $(impl Number for $element {
            fn plus(self, other: Self) -> Self {
                $plus(self, other)
            }

            fn times(self, other: Self) -> Self {
                $times(self, other)
            }
        })*
    };
}

number! {
    f64: Add::add, Mul::mul;
    f32: Add::add, Mul::mul;
    half::f16: Add::add, Mul::mul;
    half::bf16: Add::add, Mul::mul;
    i64: i64::wrapping_add, i64::wrapping_mul;
    i32: i32::wrapping_add, i32::wrapping_mul;
    i16: i16::wrapping_add, i16::wrapping_mul;
    i8: i8::wrapping_add, i8::wrapping_mul;
    u64: u64::wrapping_add, u64::wrapping_mul;
    u32: u32::wrapping_add, u32::wrapping_mul;
    u16: u16::wrapping_add, u16::wrapping_mul;
    u8: u8::wrapping_add, u8::wrapping_mul;
}
