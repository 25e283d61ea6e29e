//! Order and occurrence: the largest elements, the different ones, those that are not zero.

use std::cmp::Ordering;

use burn_backend::{Shape, TensorData};
use burn_dispatch::DispatchDevice;

use super::arrange::{Walk, axis_or_all, integer, permuted, picked, strides};
use super::{Kernel, Operator, host};
use crate::value::{HostInts, OpError, Value, axis, elements};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("NonZero", |_| {
        Ok(Kernel::one(|mut args| {
            let x = args.take(0)?;
            let dims = x.shape();
            let data = x.into_data()?;
            let places: Vec<usize> =
                data.iter::<f64>().enumerate().filter(|(_, x)| *x != 0.0).map(|(place, _)| place).collect();
            let coordinate = |(length, stride): (&usize, usize)| {
                let length = *length;
                places.iter().map(move |place| (place / stride % length) as i64)
            };
            let coordinates: Vec<i64> = dims.iter().zip(strides(&dims)).flat_map(coordinate).collect();
            integer_tensor(coordinates, vec![dims.len(), places.len()], args.device)
        }))
    }),
    Operator::new("TopK", |build| {
        let given = build.attributes.int("axis", -1)?;
        let largest = build.attributes.flag("largest", true)?;
        // Sorted is one of the orders that an unsorted answer may have.
        build.attributes.flag("sorted", true)?;
        let fixed = build.attributes.has("k").then(|| build.attributes.int("k", 0)).transpose()?;
        Ok(Kernel::many(move |mut args| {
            let x = args.take(0)?;
            let wanted = match fixed {
                Some(k) => k,
                None => integer(args.take(1)?, "k")?,
            };
            let mut dims = x.shape();
            let axis = axis(given, dims.len())?;
            let k = usize::try_from(wanted).ok().filter(|&k| k <= dims[axis]);
            let k = k.ok_or_else(|| OpError(format!("{wanted} elements of an axis of length {}", dims[axis])))?;
            let places = match x.clone() {
                x @ Value::Float(_) => top(&host::floats(x)?, &dims, axis, k, largest),
                x => top(&host::ints(x)?, &dims, axis, k, largest),
            }?;
            let (length, inner) = (dims[axis], elements(&dims[axis + 1..])?);
            dims[axis] = k;
            let indices = places.iter().map(|place| (place / inner % length) as i64).collect();
            let indices = integer_tensor(indices, dims.clone(), args.device)?;
            Ok(vec![picked(x, 1, places.into_iter().map(Some), dims, args.device)?, indices])
        }))
    }),
    Operator::ordering("Unique", |build| {
        let sorted = build.attributes.flag("sorted", true)?;
        let given = if build.attributes.has("axis") { Some(build.attributes.int("axis", 0)?) } else { None };
        Ok(Kernel::many(move |mut args| {
            let x = args.take(0)?;
            let (x, axis) = axis_or_all(x, given)?;
            // The axis goes to the front, so that what is compared lies together, and back at the end.
            let rank = x.rank();
            let order: Vec<usize> = std::iter::once(axis).chain((0..rank).filter(|&i| i != axis)).collect();
            let back: Vec<usize> = (0..rank).map(|i| if i == axis { 0 } else { i + usize::from(i < axis) }).collect();
            let x = permuted(x, &order);
            let mut dims = x.shape();
            let (count, block) = (dims[0], elements(&dims[1..])?);
            let found = match x.clone() {
                x @ Value::Float(_) => different(&host::floats(x)?, count, block, sorted),
                x => different(&host::ints(x)?, count, block, sorted),
            };
            dims[0] = found.first.len();
            let values = picked(x, block, found.first.iter().map(|&i| Some(i)), dims, args.device)?;
            let numbers =
                |list: Vec<usize>| Value::Host(HostInts::vector(list.into_iter().map(|i| i as i64).collect()));
            Ok(vec![permuted(values, &back), numbers(found.first), numbers(found.which), numbers(found.counts)])
        }))
    }),
];

/// A tensor of 64-bit integers.
fn integer_tensor(ints: Vec<i64>, dims: Vec<usize>, device: &DispatchDevice) -> Result<Value, OpError> {
    Value::from_data(TensorData::new(ints, Shape::from(dims)), device)
}

/// Ascending, with what is not a number behind everything else.
fn ascending<T: PartialOrd>(a: &T, b: &T) -> Ordering {
    let odd = |x: &T| x.partial_cmp(x).is_none();
    a.partial_cmp(b).unwrap_or_else(|| odd(a).cmp(&odd(b)))
}

/// Places of the `k` largest or smallest elements along an axis, those of the first position of the rest first, in the
/// layout of the result. Of equal elements the first counts as ahead.
fn top<T: PartialOrd>(
    numbers: &[T],
    dims: &[usize],
    axis: usize,
    k: usize,
    largest: bool,
) -> Result<Vec<usize>, OpError> {
    let (length, inner) = (dims[axis], elements(&dims[axis + 1..])?);
    let mut places = vec![0; elements(&dims[..axis])? * k * inner];
    let mut order: Vec<usize> = Vec::with_capacity(length);
    // Rows of the result begin where those of the tensor do.
    let rows = [elements(&dims[..axis])?, inner];
    for (start, row) in Walk::new(&rows, &[length * inner, 1]).zip(Walk::new(&rows, &[k * inner, 1])) {
        let ahead = |a: &usize, b: &usize| {
            let (x, y) = (&numbers[start + a * inner], &numbers[start + b * inner]);
            let order = if largest { ascending(y, x) } else { ascending(x, y) };
            order.then(a.cmp(b))
        };
        order.clear();
        order.extend(0..length);
        if 0 < k && k < length {
            order.select_nth_unstable_by(k - 1, ahead);
        }
        order.truncate(k);
        order.sort_unstable_by(ahead);
        for (i, at) in order.iter().enumerate() {
            places[row + i * inner] = start + at * inner;
        }
    }
    Ok(places)
}

/// The different ones among some blocks of elements.
struct Different {
    /// Where each occurs first.
    first: Vec<usize>,
    /// Which of them each block is.
    which: Vec<usize>,
    /// How often each occurs.
    counts: Vec<usize>,
}

fn different<T: PartialOrd>(numbers: &[T], count: usize, block: usize, sorted: bool) -> Different {
    let at = |i: usize| &numbers[i * block..][..block];
    let compare = |a: usize, b: usize| {
        let unequal = at(a).iter().zip(at(b)).map(|(x, y)| ascending(x, y)).find(|order| order.is_ne());
        unequal.unwrap_or(Ordering::Equal)
    };
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| compare(a, b));
    // Stable sorting: the first of equal ones is the one that occurs first.
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for i in order {
        match groups.last_mut() {
            Some(group) if compare(group[0], i).is_eq() => group.push(i),
            _ => groups.push(vec![i]),
        }
    }
    if !sorted {
        groups.sort_by_key(|group| group[0]);
    }
    let mut which = vec![0; count];
    for (k, group) in groups.iter().enumerate() {
        group.iter().for_each(|&i| which[i] = k);
    }
    let first = groups.iter().map(|group| group[0]).collect();
    Different { first, which, counts: groups.iter().map(Vec::len).collect() }
}
