//! Shapes and types: operators that keep all elements and change their dimensions, order or type.

use std::sync::Arc;

use burn_backend::{Shape, TensorData};

use super::arrange::permuted;
use super::{Build, Ints, Kernel, Operator};
use crate::texts::Texts;
use crate::value::{HostInts, OpError, Value, axis, elements};
use crate::weights;
use uncork_model::quote::Quoted;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::of_any("Constant", constant),
    Operator::new("DepthToSpace", |build| {
        let block = block(build)?;
        let rows_first = rows_first(build)?;
        Ok(Kernel::one(move |mut args| {
            let x = args.take(0)?;
            let [n, c, h, w] = image(&x)?;
            let deep = c.checked_div(block * block).filter(|deep| deep * block * block == c);
            let deep =
                deep.ok_or_else(|| OpError(format!("{c} channels do not divide into blocks of {block} by {block}")))?;
            let (apart, order) = match rows_first {
                true => (vec![n, block, block, deep, h, w], [0, 3, 4, 1, 5, 2]),
                false => (vec![n, deep, block, block, h, w], [0, 1, 4, 2, 5, 3]),
            };
            permuted(x.reshape(apart)?, &order).reshape(vec![n, deep, h * block, w * block])
        }))
    }),
    Operator::moving("Flatten", |build| {
        let given = build.attributes.int("axis", 1)?;
        Ok(Kernel::one(move |mut args| {
            let x = args.take(0)?;
            let dims = x.shape();
            // One more place than there are axes: all dimensions may go to the left.
            let (outer, inner) = dims.split_at(axis(given, dims.len() + 1 - usize::from(given < 0))?);
            x.shaped(vec![elements(outer)?, elements(inner)?], args.device)
        }))
    }),
    Operator::of_any("Identity", |_| Ok(Kernel::one(|mut args| args.take(0)))),
    Operator::moving("Reshape", |build| {
        let zero_counts = build.attributes.flag("allowzero", false)?;
        let wanted = build.ints("shape", 1)?;
        Ok(Kernel::one(move |mut args| {
            let x = args.take(0)?;
            let dims = reshaped(&x.shape(), &wanted.need("dimensions", &mut args)?, zero_counts)?;
            x.shaped(dims, args.device)
        }))
    }),
    Operator::of_any("Shape", |build| {
        let (start, end) = (build.attributes.int("start", 0)?, build.attributes.int("end", i64::MAX)?);
        Ok(Kernel::one(move |mut args| {
            let dims = args.take(0)?.shape();
            let rank = dims.len() as i64;
            let at = |i: i64| if i < 0 { i.saturating_add(rank) } else { i }.clamp(0, rank) as usize;
            let part = dims.get(at(start)..at(end)).unwrap_or_default();
            Ok(Value::Host(HostInts::vector(part.iter().map(|&d| d as i64).collect())))
        }))
    }),
    Operator::of_any("Size", |_| {
        Ok(Kernel::one(|mut args| {
            let count = elements(&args.take(0)?.shape())? as i64;
            Ok(Value::Host(HostInts { ints: vec![count], scalar: true }))
        }))
    }),
    Operator::new("SpaceToDepth", |build| {
        let block = block(build)?;
        // Opset 28 orders the new channels in one of two ways.
        let rows_first = rows_first(build)?;
        Ok(Kernel::one(move |mut args| {
            let x = args.take(0)?;
            let [n, c, h, w] = image(&x)?;
            if h % block != 0 || w % block != 0 {
                return Err(OpError(format!("{h} by {w} does not divide into blocks of {block} by {block}")));
            }
            let apart = vec![n, c, h / block, block, w / block, block];
            let order = if rows_first { [0, 3, 5, 1, 2, 4] } else { [0, 1, 3, 5, 2, 4] };
            permuted(x.reshape(apart)?, &order).reshape(vec![n, c * block * block, h / block, w / block])
        }))
    }),
    Operator::moving("Squeeze", |build| {
        let axes = build.ints("axes", 1)?;
        Ok(Kernel::one(move |mut args| squeezed(args.take(0)?, axes.get(&mut args)?)))
    }),
    Operator::moving("Transpose", |build| {
        let order = build.attributes.ints("perm")?;
        let order: Option<Vec<usize>> = order.map(|order| order.iter().map(|&p| p as usize).collect());
        Ok(Kernel::one(move |mut args| {
            let x = args.take(0)?;
            match &order {
                Some(order) => transposed(x, order),
                None => {
                    let order: Vec<usize> = (0..x.rank()).rev().collect();
                    transposed(x, &order)
                }
            }
        }))
    }),
    Operator::moving("Unsqueeze", |build| {
        let axes: Ints = build.ints("axes", 1)?;
        Ok(Kernel::one(move |mut args| {
            let axes = axes.need("axes", &mut args)?;
            let x = args.take(0)?;
            let dims = unsqueezed(x.shape(), &axes)?;
            x.shaped(dims, args.device)
        }))
    }),
];

/// A value in the file, in one of the forms that an attribute can have.
fn constant(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let attributes = &build.attributes;
    let host = |ints, scalar| Value::Host(HostInts { ints, scalar });
    let floats = |floats: Vec<f32>, dims: &[usize]| {
        Value::from_data(TensorData::new(floats, Shape::from(dims.to_vec())), build.device)
    };
    let value = if let Some(mut tensor) = attributes.tensor("value")? {
        weights::value(&mut tensor, build.files, build.device)?
    } else if attributes.has("value_float") {
        floats(vec![attributes.float("value_float", 0.0)?], &[])?
    } else if let Some(list) = attributes.floats("value_floats")? {
        let count = list.len();
        floats(list, &[count])?
    } else if attributes.has("value_int") {
        host(vec![attributes.int("value_int", 0)?], true)
    } else if let Some(ints) = attributes.ints("value_ints")? {
        host(ints, false)
    } else if attributes.has("value_string") {
        Value::Texts(Texts::new(vec![], vec![Arc::from(attributes.text("value_string", "")?)])?)
    } else if let Some(texts) = attributes.texts("value_strings")? {
        Value::Texts(Texts::new(vec![texts.len()], texts.into_iter().map(Arc::from).collect())?)
    } else {
        return Err(OpError::new("this kind of constant is not supported"));
    };
    Ok(Kernel::one(move |_| Ok(value.clone())))
}

/// The dimensions that `Reshape` asks for: 0 keeps a dimension (unless it counts as a length), -1 takes what is left.
fn reshaped(have: &[usize], wanted: &[i64], zero_counts: bool) -> Result<Vec<usize>, OpError> {
    let impossible = || OpError(format!("cannot turn the shape {have:?} into {wanted:?}"));
    let mut open = None;
    let mut dims = Vec::with_capacity(wanted.len());
    for (i, &want) in wanted.iter().enumerate() {
        dims.push(match want {
            0 if !zero_counts => *have.get(i).ok_or_else(impossible)?,
            -1 if open.is_none() => {
                open = Some(i);
                1
            }
            want => usize::try_from(want).map_err(|_| impossible())?,
        });
    }
    if let Some(open) = open {
        let (all, rest) = (elements(have)?, elements(&dims)?);
        dims[open] = all.checked_div(rest).ok_or_else(impossible)?;
    }
    Ok(dims)
}

fn squeezed(x: Value, axes: Option<Vec<i64>>) -> Result<Value, OpError> {
    let dims = x.shape();
    let axes = axes.map(|axes| resolved(&axes, dims.len())).transpose()?;
    let goes = |i: usize, d: usize| axes.as_ref().map_or(d == 1, |axes| axes.contains(&i));
    if let Some((_, d)) = dims.iter().enumerate().find(|&(i, &d)| goes(i, d) && d != 1) {
        return Err(OpError(format!("a dimension of length {d} cannot be squeezed out of {dims:?}")));
    }
    let left = dims.iter().enumerate().filter(|&(i, &d)| !goes(i, d)).map(|(_, &d)| d);
    x.reshape(left.collect())
}

/// `dims` with an axis of length 1 at each of `axes`, which count in the result.
fn unsqueezed(mut dims: Vec<usize>, axes: &[i64]) -> Result<Vec<usize>, OpError> {
    let wanted = resolved(axes, dims.len() + axes.len())?;
    if wanted.len() != axes.len() {
        return Err(OpError::new("an axis comes twice"));
    }
    for axis in wanted {
        dims.insert(axis, 1);
    }
    Ok(dims)
}

/// Axes as indices below `rank`, in ascending order.
fn resolved(axes: &[i64], rank: usize) -> Result<Vec<usize>, OpError> {
    let mut axes = axes.iter().map(|&a| axis(a, rank)).collect::<Result<Vec<_>, _>>()?;
    axes.sort_unstable();
    axes.dedup();
    Ok(axes)
}

fn transposed(x: Value, order: &[usize]) -> Result<Value, OpError> {
    let rank = x.rank();
    let mut seen = vec![false; rank];
    let once = order.iter().all(|&i| i < rank && !std::mem::replace(&mut seen[i], true));
    if order.len() != rank || !once {
        return Err(OpError(format!("the order {order:?} does not fit rank {rank}")));
    }
    Ok(permuted(x, order))
}

/// Whether the places of a block are the outer part of the channels (`DCR`), or the inner one (`CRD`).
fn rows_first(build: &Build<'_>) -> Result<bool, OpError> {
    match build.attributes.text("mode", "DCR")?.as_str() {
        "DCR" => Ok(true),
        "CRD" => Ok(false),
        other => Err(OpError(format!("the mode {}", Quoted(other)))),
    }
}

/// The side of the blocks that pixels are exchanged for channels in.
fn block(build: &Build<'_>) -> Result<usize, OpError> {
    let block = build.attributes.int("blocksize", 0)?;
    // Its square must not overflow.
    let block = u32::try_from(block).ok().filter(|&block| (1..1 << 16).contains(&block));
    block.map(|block| block as usize).ok_or_else(|| OpError::new("a block size out of range"))
}

/// The dimensions of a batch of images.
fn image(x: &Value) -> Result<[usize; 4], OpError> {
    let dims = x.shape();
    <[usize; 4]>::try_from(dims)
        .map_err(|dims| OpError(format!("expects a batch of images and gets the shape {dims:?}")))
}
