//! What operators make of values that are no tensors of numbers: texts and sequences.
//!
//! Most operators never see them. Those that only move whole elements are given numbers in the place of texts, so that
//! `Concat`, `Gather` or `Where` need not know what a text is.

use std::collections::HashMap;
use std::sync::Arc;

use burn_backend::ops::IntTensorOps;
use burn_backend::{DType, TensorData};
use burn_dispatch::DispatchDevice;

use super::{Args, Kernel, Run};
use crate::texts::Texts;
use crate::value::{Backend, OpError, Value};

/// What an operator does with texts and sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// It takes numbers only.
    Refused,
    /// It moves, repeats or leaves out whole elements, texts too: its integers that were texts become texts again.
    Moved,
    /// It only asks which elements are equal: those of texts are numbered so that equal texts have equal numbers.
    Compared,
    /// It moves them, and asks which are equal and which come first: those of texts are numbered in their order.
    Ordered,
    /// It knows itself what to do with them.
    Taken,
}

/// A kernel that meets texts and sequences only as its operator can take them.
pub(super) fn guarded(kernel: Kernel, foreign: Foreign) -> Kernel {
    if foreign == Foreign::Taken {
        return kernel;
    }
    match kernel {
        Kernel::One(run) => Kernel::one(move |mut args| match numbered(&mut args, foreign)? {
            Some(pool) => texts_again(run(args)?, &pool, foreign),
            None => run(args),
        }),
        Kernel::Many(run) => Kernel::many(move |args| many(&run, args, foreign)),
        // The nodes of its bodies look at them.
        Kernel::Control(control) => Kernel::Control(control),
    }
}

fn many(run: &Run<Vec<Value>>, mut args: Args<'_>, foreign: Foreign) -> Result<Vec<Value>, OpError> {
    match numbered(&mut args, foreign)? {
        Some(pool) => run(args)?.into_iter().map(|value| texts_again(value, &pool, foreign)).collect(),
        None => run(args),
    }
}

/// Puts numbers in the place of texts, if there are any, and gives the texts by number. The empty text is number 0, which
/// also stands where an operator leaves a place open.
fn numbered(args: &mut Args<'_>, foreign: Foreign) -> Result<Option<Vec<Arc<str>>>, OpError> {
    let is_foreign = |value: &Value| matches!(value, Value::Texts(_) | Value::Sequence(_));
    let Some(first) = args.values.iter().flatten().find(|value| is_foreign(value)) else { return Ok(None) };
    if foreign == Foreign::Refused || args.values.iter().flatten().any(|v| matches!(v, Value::Sequence(_))) {
        return Err(OpError(format!("expects numbers and gets {}", first.kind())));
    }
    let mut pool: Vec<Arc<str>> = vec![Arc::from("")];
    let mut known: HashMap<Arc<str>, u32> = HashMap::new();
    if foreign == Foreign::Ordered {
        let texts = args.values.iter().flatten().filter_map(|value| match value {
            Value::Texts(texts) => Some(texts.as_slice()),
            _ => None,
        });
        pool.extend(texts.flatten().cloned());
        pool.sort_unstable();
        pool.dedup();
    }
    for value in args.values.iter_mut().flatten() {
        let Value::Texts(texts) = value else { continue };
        let number = |text: &Arc<str>| {
            if foreign == Foreign::Ordered {
                return pool.partition_point(|own| own < text) as u32;
            }
            let next = pool.len() as u32;
            if foreign == Foreign::Compared {
                return *known.entry(Arc::clone(text)).or_insert_with(|| {
                    pool.push(Arc::clone(text));
                    next
                });
            }
            pool.push(Arc::clone(text));
            next
        };
        let numbers: Vec<u32> = texts.as_slice().iter().map(number).collect();
        *value = integers(numbers, texts.dims().to_vec(), args.device);
    }
    Ok(Some(pool))
}

/// Of a type that no other argument of such an operator has: texts do not mix with its integers.
fn integers(numbers: Vec<u32>, dims: Vec<usize>, device: &DispatchDevice) -> Value {
    Value::Int(Backend::int_from_data(TensorData::new(numbers, dims), device))
}

/// The texts that a result's numbers stand for; a result of another type is none of them.
fn texts_again(value: Value, pool: &[Arc<str>], foreign: Foreign) -> Result<Value, OpError> {
    if foreign == Foreign::Compared || value.dtype() != DType::U32 {
        return Ok(value);
    }
    let dims = value.shape();
    let numbers = value.into_data()?.try_into_vec::<u32>().map_err(|e| OpError(e.to_string()))?;
    let text = |number: u32| pool.get(number as usize).cloned();
    let texts: Option<Vec<Arc<str>>> = numbers.into_iter().map(text).collect();
    let texts = texts.ok_or_else(|| OpError::new("computes with texts, which it cannot"))?;
    Ok(Value::Texts(Texts::new(dims, texts)?))
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use crate::author::{Attribute, Author};
    use crate::{Graph, Item};

    const TEXT: i32 = 8;

    fn texts(shape: &[usize], texts: &[&str]) -> Item {
        Item::Texts { shape: shape.to_vec(), texts: texts.iter().map(|text| (*text).to_owned()).collect() }
    }

    /// The first output of a node over these inputs.
    fn alone(operator: &str, attributes: &[(&str, Attribute<'_>)], inputs: Vec<Item>) -> Result<Item, String> {
        let names: Vec<String> = (0..inputs.len()).map(|i| format!("x{i}")).collect();
        let author = names.iter().fold(Author::new(17), |author, name| author.input_of(TEXT, name, &[]));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let author = author.node(operator, &names, &["y"], attributes).output("y", &[]);
        let graph = Graph::load(&author.finish()).map_err(|e| e.to_string())?;
        graph.run_items(inputs).map(|mut items| items.remove(0)).map_err(|e| e.to_string())
    }

    fn ints(list: &[i64]) -> Item {
        Item::Tensor(TensorData::new(list.to_vec(), [list.len()]))
    }

    #[test]
    fn whatever_moves_elements_moves_texts() {
        let table = || texts(&[2, 2], &["a", "b", "c", "é"]);
        let along = [("axis", Attribute::Int(1))];
        let more = texts(&[2, 1], &["x", "y"]);
        assert_eq!(alone("Concat", &along, vec![table(), more]), Ok(texts(&[2, 3], &["a", "b", "x", "c", "é", "y"])));
        assert_eq!(alone("Gather", &along, vec![table(), ints(&[1])]), Ok(texts(&[2, 1], &["b", "é"])));
        assert_eq!(alone("Reshape", &[], vec![table(), ints(&[-1])]), Ok(texts(&[4], &["a", "b", "c", "é"])));
        assert_eq!(alone("Transpose", &[], vec![table()]), Ok(texts(&[2, 2], &["a", "c", "b", "é"])));
        assert_eq!(alone("Expand", &[], vec![texts(&[1], &["a"]), ints(&[2])]), Ok(texts(&[2], &["a", "a"])));
        let chosen = vec![Item::Tensor(TensorData::from([true, false])), table(), texts(&[1], &["n"])];
        assert_eq!(alone("Where", &[], chosen), Ok(texts(&[2, 2], &["a", "n", "c", "n"])));
        assert_eq!(alone("Shape", &[], vec![table()]), Ok(ints(&[2, 2])));
    }

    #[test]
    fn texts_that_occur_once_or_more_are_found_in_their_order_or_the_given_one() {
        let given = || texts(&[5], &["b", "é", "a", "", "b"]);
        assert_eq!(alone("Unique", &[], vec![given()]), Ok(texts(&[4], &["", "a", "b", "é"])));
        let as_given = [("sorted", Attribute::Int(0))];
        assert_eq!(alone("Unique", &as_given, vec![given()]), Ok(texts(&[4], &["b", "é", "a", ""])));
        let rows = texts(&[3, 2], &["b", "a", "a", "z", "b", "a"]);
        assert_eq!(
            alone("Unique", &[("axis", Attribute::Int(0))], vec![rows]),
            Ok(texts(&[2, 2], &["a", "z", "b", "a"]))
        );
    }

    #[test]
    fn texts_are_written_to_places_but_not_added_up() {
        let places = || Item::Tensor(TensorData::from([[2i64], [0]]));
        let inputs = || vec![texts(&[3], &["a", "b", "c"]), places(), texts(&[2], &["x", "y"])];
        assert_eq!(alone("ScatterND", &[], inputs()), Ok(texts(&[3], &["y", "b", "x"])));
        let error = alone("ScatterND", &[("reduction", Attribute::Text("max"))], inputs()).unwrap_err();
        assert!(error.contains("expects numbers and gets texts"), "{error}");
        let inputs = vec![texts(&[3], &["a", "b", "c"]), ints(&[2, 0]), texts(&[2], &["x", "y"])];
        assert_eq!(alone("ScatterElements", &[], inputs), Ok(texts(&[3], &["y", "b", "x"])));
    }

    #[test]
    fn equal_texts_are_equal_wherever_they_come_from() {
        let compared = alone("Equal", &[], vec![texts(&[3], &["a", "b", ""]), texts(&[1], &["b"])]);
        assert_eq!(compared, Ok(Item::Tensor(TensorData::from([false, true, false]))));
    }

    #[test]
    fn an_operator_of_numbers_says_that_it_was_given_texts() {
        let error = alone("Add", &[], vec![texts(&[1], &["a"]), texts(&[1], &["b"])]).unwrap_err();
        assert!(error.contains("'Add'") && error.contains("expects numbers and gets texts"), "{error}");
        let error = alone("Concat", &[("axis", Attribute::Int(0))], vec![texts(&[1], &["a"]), ints(&[1])]);
        assert!(error.is_err(), "texts and numbers do not join");
    }
}
