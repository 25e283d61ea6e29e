//! Sequences of tensors, as loops of exported models build them; and optional values, which are there or left out.

use burn_dispatch::DispatchDevice;

use super::select::{joined, split};
use super::{Kernel, Operator};
use crate::value::{HostInts, OpError, Value, axis};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::of_any("ConcatFromSequence", |build| {
        let given = build.attributes.int("axis", 0)?;
        let new = build.attributes.flag("new_axis", false)?;
        Ok(Kernel::one(move |mut args| {
            let device = args.device;
            let mut values = numbers(args.take(0)?.sequence()?)?;
            if new {
                let raise = |value: Value| {
                    let mut dims = value.shape();
                    dims.insert(axis(given, dims.len() + 1)?, 1);
                    value.shaped(dims, device)
                };
                values = values.into_iter().map(raise).collect::<Result<_, OpError>>()?;
            }
            joined(values, given, device)
        }))
    }),
    Operator::of_any("Optional", |build| {
        if !build.has(0) {
            return Err(OpError::new("an optional value that is never there"));
        }
        build.attributes.has("type");
        Ok(Kernel::one(|mut args| args.take(0)))
    })
    .except("empty ones that are passed on"),
    Operator::of_any("OptionalGetElement", |_| Ok(Kernel::one(|mut args| args.take(0)))),
    Operator::of_any("OptionalHasElement", |build| {
        let has = build.has(0);
        Ok(Kernel::one(move |args| truth(has, args.device)))
    }),
    Operator::of_any("SequenceAt", |_| {
        Ok(Kernel::one(|mut args| {
            let mut values = args.take(0)?.sequence()?;
            let at = place(args.take(1)?, values.len(), values.len())?;
            Ok(values.swap_remove(at))
        }))
    }),
    Operator::of_any("SequenceConstruct", |_| Ok(Kernel::one(|mut args| Ok(Value::Sequence(args.all()))))),
    Operator::of_any("SequenceEmpty", |build| {
        build.attributes.int("dtype", 1)?;
        Ok(Kernel::one(|_| Ok(Value::Sequence(Vec::new()))))
    }),
    Operator::of_any("SequenceErase", |_| {
        Ok(Kernel::one(|mut args| {
            let mut values = args.take(0)?.sequence()?;
            let at = match args.optional(1) {
                Some(at) => place(at, values.len(), values.len())?,
                None => values.len().checked_sub(1).ok_or_else(|| OpError::new("the sequence is empty"))?,
            };
            values.remove(at);
            Ok(Value::Sequence(values))
        }))
    }),
    Operator::of_any("SequenceInsert", |_| {
        Ok(Kernel::one(|mut args| {
            let mut values = args.take(0)?.sequence()?;
            let value = args.take(1)?;
            let at = match args.optional(2) {
                Some(at) => place(at, values.len(), values.len() + 1)?,
                None => values.len(),
            };
            values.insert(at, value);
            Ok(Value::Sequence(values))
        }))
    }),
    Operator::of_any("SequenceLength", |_| {
        Ok(Kernel::one(|mut args| {
            let count = args.take(0)?.sequence()?.len();
            Ok(Value::Host(HostInts { ints: vec![count as i64], scalar: true }))
        }))
    }),
    Operator::of_any("SplitToSequence", |build| {
        let given = build.attributes.int("axis", 0)?;
        let keep = build.attributes.flag("keepdims", true)?;
        Ok(Kernel::one(move |mut args| {
            let (x, parts) = (args.take(0)?, args.optional(1));
            split_up(x, parts, given, keep, args.device)
        }))
    }),
];

/// A boolean of rank 0.
fn truth(truth: bool, device: &DispatchDevice) -> Result<Value, OpError> {
    Value::from_data(burn_backend::TensorData::new(vec![truth], [0usize; 0]), device)
}

/// An index of a sequence, below `end`; from the end of its `length` where negative.
fn place(at: Value, length: usize, end: usize) -> Result<usize, OpError> {
    let at = at.ints()?.ints;
    let &[at] = &at[..] else { return Err(OpError(format!("an index of {} numbers", at.len()))) };
    let found = if at < 0 { at.checked_add(length as i64) } else { Some(at) };
    let found = found.and_then(|at| usize::try_from(at).ok()).filter(|&at| at < end);
    found.ok_or_else(|| OpError(format!("index {at} is out of range for a sequence of {length}")))
}

/// Elements that can be joined and cut.
fn numbers(values: Vec<Value>) -> Result<Vec<Value>, OpError> {
    match values.iter().find(|value| matches!(value, Value::Texts(_) | Value::Sequence(_))) {
        Some(other) => Err(OpError(format!("expects tensors of numbers and gets {}", other.kind()))),
        None => Ok(values),
    }
}

/// Parts of one length, of the lengths given, or of length 1 and then perhaps without the axis.
fn split_up(x: Value, parts: Option<Value>, given: i64, keep: bool, device: &DispatchDevice) -> Result<Value, OpError> {
    let x = numbers(vec![x])?.remove(0);
    let dims = x.shape();
    let axis = axis(given, dims.len())?;
    let length = dims[axis];
    let whole = parts.is_none();
    let sizes: Vec<i64> = match parts {
        None => vec![1; length],
        Some(parts) if parts.rank() == 0 => {
            let size = parts.ints()?.ints[0];
            let size = usize::try_from(size).ok().filter(|&size| size > 0);
            let size = size.ok_or_else(|| OpError::new("parts of no length"))?;
            (0..length).step_by(size).map(|from| size.min(length - from) as i64).collect()
        }
        Some(parts) => parts.ints()?.ints,
    };
    let count = sizes.len();
    let parts = split(x, axis, Some(sizes), count, device)?;
    if keep || !whole {
        return Ok(Value::Sequence(parts));
    }
    let mut dims = dims;
    dims.remove(axis);
    let flat = parts.into_iter().map(|part| part.reshape(dims.clone()));
    Ok(Value::Sequence(flat.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use crate::author::Attribute::Int;
    use crate::author::Author;

    fn x() -> Vec<TensorData> {
        vec![TensorData::from([[1f32, 2.0], [3.0, 4.0], [5.0, 6.0]])]
    }

    #[test]
    fn what_was_split_is_changed_and_put_together_again() {
        let author = Author::new(17).input("x", &[3, 2]).output("y", &[]).output("n", &[]).ints("first", &[], &[0]);
        let author = author.ints("last", &[], &[-1]).node("SplitToSequence", &["x"], &["s"], &[]);
        let author = author.node("SequenceAt", &["s", "last"], &["row"], &[]);
        let author = author.node("SequenceInsert", &["s", "row", "first"], &["longer"], &[]);
        let author = author.node("SequenceErase", &["longer"], &["shorter"], &[]);
        let author = author.node("SequenceLength", &["shorter"], &["n"], &[]);
        let author = author.node("ConcatFromSequence", &["shorter"], &["y"], &[("axis", Int(0))]);
        let found = author.answer(x()).unwrap();
        assert_eq!(found[0], TensorData::from([[5f32, 6.0], [1.0, 2.0], [3.0, 4.0]]));
        assert_eq!(found[1], TensorData::new(vec![3i64], [0usize; 0]));
    }

    #[test]
    fn parts_without_their_axis_stack_to_what_they_were() {
        let author = Author::new(17).input("x", &[3, 2]).output("y", &[]);
        let author = author.node("SplitToSequence", &["x"], &["s"], &[("axis", Int(1)), ("keepdims", Int(0))]);
        let along = [("axis", Int(-1)), ("new_axis", Int(1))];
        assert_eq!(author.node("ConcatFromSequence", &["s"], &["y"], &along).answer(x()), Ok(x()));
    }

    #[test]
    fn an_index_beyond_the_sequence_is_refused() {
        let author = Author::new(17).input("x", &[3, 2]).int_input("i", &[]).output("y", &[]);
        let author = author.node("SplitToSequence", &["x"], &["s"], &[]).node("SequenceAt", &["s", "i"], &["y"], &[]);
        for index in [3i64, -4] {
            let at = TensorData::new(vec![index], [0usize; 0]);
            let error = author.clone().answer([x(), vec![at]].concat()).unwrap_err();
            assert!(error.contains("is out of range for a sequence of 3"), "{error}");
        }
    }
}
