//! Picking by index: rows of a table, single elements, and what a condition keeps.

use std::iter;

use super::arrange::{Walk, axis_or_all, index, indices, integers, picked, selected, strides};
use super::{Kernel, Operator};
use crate::value::{HostInts, OpError, Value, axis, elements};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::moving("Compress", |build| {
        let given = if build.attributes.has("axis") { Some(build.attributes.int("axis", 0)?) } else { None };
        Ok(Kernel::one(move |mut args| {
            let (x, condition) = (args.take(0)?, args.take(1)?);
            let (x, axis) = axis_or_all(x, given)?;
            let length = x.shape()[axis];
            let kept = integers(condition)?;
            let kept: Vec<usize> = kept.iter().enumerate().filter(|(_, flag)| **flag != 0).map(|(i, _)| i).collect();
            if kept.last().is_some_and(|&last| last >= length) {
                return Err(OpError(format!("the condition is longer than the axis, which has a length of {length}")));
            }
            selected(x, axis, kept, args.device)
        }))
    }),
    Operator::moving("Gather", |build| {
        let given = build.attributes.int("axis", 0)?;
        Ok(Kernel::one(move |mut args| {
            let (x, at) = (args.take(0)?, args.take(1)?);
            let mut dims = x.shape();
            let axis = axis(given, dims.len())?;
            let wanted = at.shape();
            let indices = indices(at, dims[axis])?;
            if let (Value::Host(h), []) = (&x, &wanted[..]) {
                return Ok(Value::Host(HostInts { ints: vec![h.ints[indices[0]]], scalar: true }));
            }
            dims.splice(axis..=axis, wanted);
            elements(&dims)?;
            selected(x, axis, indices, args.device)?.shaped(dims, args.device)
        }))
    }),
    Operator::moving("GatherElements", |build| {
        let given = build.attributes.int("axis", 0)?;
        Ok(Kernel::one(move |mut args| {
            let (x, at) = (args.take(0)?, args.take(1)?);
            let dims = at.shape();
            let places = element_places(&x.shape(), at, given)?;
            picked(x, 1, places.into_iter().map(Some), dims, args.device)
        }))
    }),
    Operator::moving("GatherND", |build| {
        let batch = build.attributes.int("batch_dims", 0)?;
        let batch = usize::try_from(batch).map_err(|_| OpError::new("a negative number of batch dimensions"))?;
        Ok(Kernel::one(move |mut args| {
            let (x, at) = (args.take(0)?, args.take(1)?);
            let blocks = Blocks::of(&x.shape(), at, batch)?;
            let mut dims = blocks.front;
            dims.extend_from_slice(&blocks.inner);
            picked(x, blocks.size, blocks.places.into_iter().map(Some), dims, args.device)
        }))
    }),
    Operator::moving("ReverseSequence", |build| {
        let (time, batch) = (build.attributes.int("time_axis", 0)?, build.attributes.int("batch_axis", 1)?);
        if (time, batch) != (0, 1) && (time, batch) != (1, 0) {
            return Err(OpError::new("time and batch are not the first two axes"));
        }
        Ok(Kernel::one(move |mut args| {
            let (x, lengths) = (args.take(0)?, integers(args.take(1)?)?);
            let dims = x.shape();
            let [outer, inner, ..] = dims[..] else {
                return Err(OpError(format!("sequences of shape {dims:?} have no time and batch axes")));
            };
            let (steps, sequences) = if time == 0 { (outer, inner) } else { (inner, outer) };
            let fit = |&length: &i64| usize::try_from(length).ok().filter(|&length| length <= steps);
            let lengths: Option<Vec<usize>> = lengths.iter().map(fit).collect();
            let lengths = lengths.filter(|lengths| lengths.len() == sequences).ok_or_else(|| {
                OpError(format!("expects {sequences} lengths of at most {steps}, one for each sequence"))
            })?;
            let reversed = |step: usize, length: usize| if step < length { length - 1 - step } else { step };
            let places = (0..outer * inner).map(|i| {
                let (row, column) = (i / inner, i % inner);
                Some(if time == 0 {
                    reversed(row, lengths[column]) * inner + column
                } else {
                    row * inner + reversed(column, lengths[row])
                })
            });
            let block = elements(&dims[2..])?;
            picked(x, block, places, dims, args.device)
        }))
    }),
];

/// For each index, the place of the element that it names: the index's own position, with the index itself along one axis.
pub(super) fn element_places(dims: &[usize], at: Value, given: i64) -> Result<Vec<usize>, OpError> {
    let wanted = at.shape();
    let axis = axis(given, dims.len())?;
    let fits = wanted.len() == dims.len() && (0..dims.len()).all(|i| i == axis || wanted[i] <= dims[i]);
    if !fits {
        return Err(OpError(format!("indices of shape {wanted:?} do not fit elements of shape {dims:?}")));
    }
    let mut strides = strides(dims);
    let stride = std::mem::replace(&mut strides[axis], 0);
    let indices = indices(at, dims[axis])?;
    Ok(iter::zip(Walk::new(&wanted, &strides), indices).map(|(offset, index)| offset + index * stride).collect())
}

/// Blocks of a tensor that tuples of indices name.
pub(super) struct Blocks {
    /// The shape of the tuples: one block for each.
    pub(super) front: Vec<usize>,
    /// The shape of a block.
    pub(super) inner: Vec<usize>,
    /// Elements of a block.
    pub(super) size: usize,
    /// Where the blocks are, counted in blocks.
    pub(super) places: Vec<usize>,
}

impl Blocks {
    /// The last axis of `at` has the tuples, which index the axes of `dims` behind the first `batch`; those are shared.
    pub(super) fn of(dims: &[usize], at: Value, batch: usize) -> Result<Blocks, OpError> {
        let mut front = at.shape();
        let misfit =
            || OpError(format!("indices of shape {:?} do not fit a tensor of shape {dims:?}", at.shape().to_vec()));
        let width = front.pop().ok_or_else(misfit)?;
        let named = batch.checked_add(width).filter(|&named| named <= dims.len()).ok_or_else(misfit)?;
        if front.get(..batch) != Some(&dims[..batch]) {
            return Err(misfit());
        }
        let (outer, inner) = dims.split_at(named);
        let strides = strides(outer);
        let tuples = elements(&front)?;
        // So many tuples share their place in the batch.
        let together = elements(&front[batch..])?.max(1);
        let apart: usize = outer[batch..].iter().product();
        let indices = integers(at)?;
        let mut places = Vec::with_capacity(tuples);
        for i in 0..tuples {
            let tuple = &indices[i * width..][..width];
            let mut place = i / together * apart;
            for (k, &given) in tuple.iter().enumerate() {
                place += index(given, outer[batch + k])? * strides[batch + k];
            }
            places.push(place);
        }
        Ok(Blocks { front, inner: inner.to_vec(), size: elements(inner)?, places })
    }
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use crate::author::Author;

    /// What a node says to a tensor of shape [2, 3] with these integers, and with updates where it takes some.
    fn refusal(operator: &str, numbers: &[i64], dims: &[usize]) -> String {
        let updates = ["ScatterElements", "ScatterND"].contains(&operator);
        let author = Author::new(16).input("x", &[2, 3]).int_input("n", &[]).input("u", &[]).output("y", &[]);
        let inputs: &[&str] = if updates { &["x", "n", "u"] } else { &["x", "n"] };
        let author = author.node(operator, inputs, &["y"], &[]);
        let written = if operator == "ScatterND" { vec![1, 3] } else { dims.to_vec() };
        let zeros = |dims: &[usize]| TensorData::zeros::<f32, _>(dims.to_vec());
        let numbers = TensorData::new(numbers.to_vec(), dims.to_vec());
        let text = author.answer(vec![zeros(&[2, 3]), numbers, zeros(&written)]).unwrap_err();
        assert!(text.contains(&format!("'{operator}' (node 'make_y')")) && !text.contains("panicked"), "{text}");
        text
    }

    #[test]
    fn indices_that_a_caller_sends_are_checked_by_every_operator_that_takes_some() {
        for operator in ["Gather", "GatherElements", "ScatterElements"] {
            for index in [2, -3, i64::MAX, i64::MIN] {
                let text = refusal(operator, &[index], &[1, 1]);
                assert!(text.contains(&format!("index {index} is out of range for length 2")), "{text}");
            }
        }
        for operator in ["GatherND", "ScatterND"] {
            let text = refusal(operator, &[2], &[1, 1]);
            assert!(text.contains("index 2 is out of range for length 2"), "{text}");
            assert!(refusal(operator, &[0, 0, 0], &[1, 3]).contains("do not fit"));
        }
        assert!(refusal("ReverseSequence", &[1, 1, 3], &[3]).contains("3 lengths of at most 2"));
        assert!(refusal("ReverseSequence", &[1, 1], &[2]).contains("3 lengths of at most 2"));
        assert!(refusal("TopK", &[4], &[1]).contains("4 elements of an axis of length 3"));
        assert!(refusal("TopK", &[-1], &[1]).contains("-1 elements"));
        assert!(refusal("GatherElements", &[0, 0, 0], &[3]).contains("do not fit"));
    }

    #[test]
    fn sizes_that_a_caller_sends_are_checked_before_memory_is_asked_for() {
        let huge = i64::MAX / 2;
        for (operator, numbers) in [
            ("Expand", &[huge, 2, 3][..]),
            ("Tile", &[huge, huge]),
            ("Pad", &[huge, huge, huge, huge]),
            ("CenterCropPad", &[huge, huge]),
        ] {
            let text = refusal(operator, numbers, &[numbers.len()]);
            assert!(text.contains("more elements than a tensor may have"), "{text}");
            refusal(operator, &vec![i64::MIN; numbers.len()], &[numbers.len()]);
        }
        refusal("Reshape", &[huge, huge], &[2]);
        refusal("Split", &[huge, huge], &[2]);
        refusal("Trilu", &[1, 2], &[2]);
    }
}
