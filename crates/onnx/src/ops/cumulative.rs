//! Running sums and products along an axis.

use super::host::{self, Lines};
use super::{Build, Kernel, Operator};
use crate::value::{OpError, Value, axis};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("CumProd", |build| running(build, (1.0, |a, x| a * x), (1, i128::wrapping_mul))),
    Operator::new("CumSum", |build| running(build, (0.0, |a, x| a + x), (0, i128::wrapping_add))),
];

/// Where to start, and how to go on.
type Steps<W> = (W, fn(W, W) -> W);

fn running(build: &mut Build<'_>, floats: Steps<f64>, ints: Steps<i128>) -> Result<Kernel, OpError> {
    let exclusive = build.attributes.flag("exclusive", false)?;
    let reverse = build.attributes.flag("reverse", false)?;
    Ok(Kernel::one(move |mut args| {
        let (x, given) = (args.take(0)?, host::int(args.take(1)?)?);
        let given = i64::try_from(given).map_err(|_| OpError(format!("axis {given} is out of range")))?;
        let way = Way { axis: axis(given, x.rank())?, exclusive, reverse };
        let (dims, dtype) = (x.shape(), x.dtype());
        match x {
            Value::Float(_) => host::of_floats(way.go(host::floats(x)?, &dims, floats), dtype, dims, args.device),
            _ => host::of_ints(way.go(host::ints(x)?, &dims, ints), dtype, dims, args.device),
        }
    }))
}

struct Way {
    axis: usize,
    /// Each element is what came before it, without itself.
    exclusive: bool,
    /// From the end to the front.
    reverse: bool,
}

impl Way {
    fn go<W: Copy>(&self, mut numbers: Vec<W>, dims: &[usize], (start, step): Steps<W>) -> Vec<W> {
        for line in Lines::new(dims, self.axis).iter() {
            let mut so_far = start;
            let mut take = |at: usize| {
                let before = so_far;
                so_far = step(before, numbers[at]);
                numbers[at] = if self.exclusive { before } else { so_far };
            };
            if self.reverse {
                line.rev().for_each(&mut take);
            } else {
                line.for_each(&mut take);
            }
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use super::super::alone::{alone, scalar};
    use crate::author::Attribute::Int;

    #[test]
    fn running_sums_go_both_ways_with_and_without_the_element_itself() {
        let summed = |exclusive, reverse, axis: i64| {
            let attributes = [("exclusive", Int(exclusive)), ("reverse", Int(reverse))];
            let x = TensorData::from([[1i32, 2, 3], [4, 5, 6]]);
            alone(14, "CumSum", &attributes, [("x", x), ("axis", scalar(axis))])
        };
        assert_eq!(summed(0, 0, 1), Ok(TensorData::from([[1i32, 3, 6], [4, 9, 15]])));
        assert_eq!(summed(1, 1, -1), Ok(TensorData::from([[5i32, 3, 0], [11, 6, 0]])));
        assert_eq!(summed(0, 1, 0), Ok(TensorData::from([[5i32, 7, 9], [4, 5, 6]])));
        assert!(summed(0, 0, 2).unwrap_err().contains("axis 2 is out of range"));
    }
}
