//! Rotary embedding: pairs of numbers are turned by an angle that depends on the position.

use burn_backend::ops::{FloatTensorOps, IntTensorOps};
use burn_backend::{Shape, Slice, TensorData, TensorMetadata};
use burn_dispatch::DispatchDevice;

use super::{Kernel, Operator};
use crate::value::{Backend as B, Handle, OpError, Value, elements, integers};

pub(super) const OPERATORS: &[Operator] = &[Operator::new("RotaryEmbedding", |build| {
    let attributes = &build.attributes;
    let number = |name: &str| Ok::<usize, OpError>(usize::try_from(attributes.int(name, 0)?).unwrap_or(0));
    let turn = Turn {
        heads: number("num_heads")?,
        turned: number("rotary_embedding_dim")?,
        interleaved: attributes.flag("interleaved", false)?,
    };
    Ok(Kernel::one(move |mut args| {
        let (x, cos, sin) = (args.take(0)?, args.float(1)?, args.float(2)?);
        let positions = args.optional(3);
        turn.of(x, [cos, sin], positions, args.device)
    }))
})];

pub(super) struct Turn {
    pub(super) heads: usize,
    /// Numbers of each head that are turned; 0 for all.
    pub(super) turned: usize,
    /// Pairs are neighbours, not halves.
    pub(super) interleaved: bool,
}

impl Turn {
    pub(super) fn of(
        &self,
        x: Value,
        tables: [Handle; 2],
        positions: Option<Value>,
        device: &DispatchDevice,
    ) -> Result<Value, OpError> {
        let dims = x.shape();
        // The axis of the steps, and the shape with the heads apart.
        let (steps_axis, wide) = match dims[..] {
            [rows, heads, steps, size] => (2, [rows, heads, steps, size]),
            [rows, steps, all] if self.heads > 0 && all.is_multiple_of(self.heads) => {
                (1, [rows, steps, self.heads, all / self.heads])
            }
            _ => return Err(OpError(format!("the shape {dims:?} does not split into {} heads", self.heads))),
        };
        let (rows, steps, size) = (wide[0], wide[steps_axis], wide[3]);
        let turned = if self.turned == 0 { size } else { self.turned };
        if !turned.is_multiple_of(2) || turned > size || dims.contains(&0) {
            return Err(OpError(format!("{turned} of {size} numbers cannot be turned in the shape {dims:?}")));
        }
        let half = turned / 2;
        let x = x.reshape(wide.to_vec())?.float()?;
        let ids = positions.map(|ids| checked(ids, &tables, [rows, steps], device)).transpose()?;
        let mut angle = [rows, 1, 1, half];
        angle[steps_axis] = steps;
        let [cos, sin] = tables.map(|table| -> Result<Handle, OpError> {
            let table = match &ids {
                Some(ids) => B::float_select(table, 0, ids.clone()),
                None => table,
            };
            if table.dtype() != x.dtype() {
                return Err(OpError::new("the tables differ in type from the numbers"));
            }
            Value::Float(table).reshape(angle.to_vec())?.float()
        });
        let (cos, sin) = (cos?, sin?);
        let part = |from: usize, to: usize, step: isize| {
            let mut cut: Vec<Slice> = wide.iter().map(|&d| Slice::new(0, Some(d as isize), 1)).collect();
            cut[3] = Slice::new(from as isize, Some(to as isize), step);
            B::float_slice(x.clone(), &cut)
        };
        let (a, b) = match self.interleaved {
            true => (part(0, turned, 2), part(1, turned, 2)),
            false => (part(0, half, 1), part(half, turned, 1)),
        };
        let real = B::float_sub(B::float_mul(cos.clone(), a.clone()), B::float_mul(sin.clone(), b.clone()));
        let imaginary = B::float_add(B::float_mul(sin, a), B::float_mul(cos, b));
        let joined = |parts: Vec<Handle>, axis: usize| B::float_cat(parts, axis);
        let mut y = if self.interleaved {
            let shape = || Shape::from([&wide[..3], &[half, 1]].concat());
            let pairs = joined(vec![B::float_reshape(real, shape()), B::float_reshape(imaginary, shape())], 4);
            B::float_reshape(pairs, Shape::from([&wide[..3], &[turned]].concat()))
        } else {
            joined(vec![real, imaginary], 3)
        };
        if turned < size {
            y = joined(vec![y, part(turned, size, 1)], 3);
        }
        Value::Float(y).reshape(dims)
    }
}

/// Positions as a flat tensor. They come with requests: one beyond the tables must be an error that says so.
fn checked(ids: Value, tables: &[Handle; 2], shape: [usize; 2], device: &DispatchDevice) -> Result<Handle, OpError> {
    let [cos, sin] = tables.each_ref().map(|table| table.shape());
    if ids.shape() != shape || cos.num_dims() != 2 || sin != cos {
        return Err(OpError(format!(
            "positions of shape {:?} with tables of {cos:?} for {shape:?}",
            ids.shape().to_vec()
        )));
    }
    let count = elements(&shape)?;
    let ids = integers(ids.into_data()?)?;
    match ids.iter().find(|&&id| !usize::try_from(id).is_ok_and(|id| id < cos[0])) {
        Some(id) => Err(OpError(format!("position {id} is out of range for tables of {} positions", cos[0]))),
        None => Ok(B::int_from_data(TensorData::new(ids, [count]), device)),
    }
}
