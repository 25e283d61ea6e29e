//! Element by element on the host, for what burn has no operation for.
//!
//! Floats of every type are computed in float64 and integers of every type in 128 bits. A result that does not fit the
//! type of its arguments is rounded to it or wraps around, as numpy does. Only reading and writing know the types: each function
//! is compiled for these two and not for twelve.

use burn_backend::{DType, Element, TensorData};
use burn_dispatch::DispatchDevice;
use half::{bf16, f16};
use uncork_model::tensor::{bf16_from_f64, f16_from_f64};

use crate::value::{OpError, Value, broadcast, lift};

/// An element type and the type that its elements are computed in.
pub(super) trait Narrow: Element {
    type Wide: Copy;
    /// The least number of the type; of floats minus infinity.
    const LEAST: Self::Wide;
    const GREATEST: Self::Wide;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
}

macro_rules! narrow {
    ($wide:ty: $($element:ty, $least:expr, $greatest:expr, $widen:expr, $narrow:expr;)*) => {$(
        impl Narrow for $element {
            type Wide = $wide;
            const LEAST: $wide = $least;
            const GREATEST: $wide = $greatest;
            fn widen(self) -> $wide {
                $widen(self)
            }
            fn narrow(wide: $wide) -> $element {
                $narrow(wide)
            }
        }
    )*};
}

narrow! { f64:
    f64, f64::NEG_INFINITY, f64::INFINITY, f64::from, |x| x;
    f32, f64::NEG_INFINITY, f64::INFINITY, f64::from, |x| x as f32;
    f16, f64::NEG_INFINITY, f64::INFINITY, f16::to_f64, f16_from_f64;
    bf16, f64::NEG_INFINITY, f64::INFINITY, bf16::to_f64, bf16_from_f64;
}

narrow! { i128:
    i64, i64::MIN as i128, i64::MAX as i128, i128::from, |x| x as i64;
    i32, i32::MIN as i128, i32::MAX as i128, i128::from, |x| x as i32;
    i16, i16::MIN as i128, i16::MAX as i128, i128::from, |x| x as i16;
    i8, i8::MIN as i128, i8::MAX as i128, i128::from, |x| x as i8;
    u64, 0, u64::MAX as i128, i128::from, |x| x as u64;
    u32, 0, u32::MAX as i128, i128::from, |x| x as u32;
    u16, 0, u16::MAX as i128, i128::from, |x| x as u16;
    u8, 0, u8::MAX as i128, i128::from, |x| x as u8;
}

/// Evaluates `$body` with `$E` as the Rust type of an element type, which is one of those named.
macro_rules! for_one_of {
    ($dtype:expr, $what:literal, [$($name:ident $element:ty),*], $E:ident => $body:expr) => {
        match $dtype {
            $(burn_backend::DType::$name => {
                type $E = $element;
                $body
            })*
            other => Err($crate::value::OpError(format!(concat!("expects ", $what, " and gets elements of {:?}"), other))),
        }
    };
}

/// Evaluates `$body` with `$E` as the Rust type of a float type.
macro_rules! for_float {
    ($dtype:expr, $E:ident => $body:expr) => {{
        $crate::ops::host::for_one_of!($dtype, "floats", [F64 f64, F32 f32, F16 half::f16, BF16 half::bf16], $E => $body)
    }};
}

/// Evaluates `$body` with `$E` as the Rust type of an integer type.
macro_rules! for_int {
    ($dtype:expr, $E:ident => $body:expr) => {{
        $crate::ops::host::for_one_of!($dtype, "integers", [I64 i64, I32 i32, I16 i16, I8 i8, U64 u64, U32 u32, U16 u16, U8 u8], $E => $body)
    }};
}

pub(super) use {for_float, for_int, for_one_of};

/// The elements of a tensor of a known type.
pub(super) fn read<E: Element>(value: Value) -> Result<Vec<E>, OpError> {
    value.into_data()?.try_into_vec::<E>().map_err(|e| OpError(e.to_string()))
}

/// The elements of a float tensor, wide.
pub(super) fn floats(value: Value) -> Result<Vec<f64>, OpError> {
    for_float!(value.dtype(), E => Ok(read::<E>(value)?.into_iter().map(E::widen).collect()))
}

/// The elements of an integer tensor, wide.
pub(super) fn ints(value: Value) -> Result<Vec<i128>, OpError> {
    for_int!(value.dtype(), E => Ok(read::<E>(value)?.into_iter().map(E::widen).collect()))
}

/// A tensor of a float type.
pub(super) fn of_floats(
    numbers: Vec<f64>,
    dtype: DType,
    dims: Vec<usize>,
    device: &DispatchDevice,
) -> Result<Value, OpError> {
    for_float!(dtype, E => narrowed::<E>(numbers, dims, device))
}

/// A tensor of an integer type.
pub(super) fn of_ints(
    numbers: Vec<i128>,
    dtype: DType,
    dims: Vec<usize>,
    device: &DispatchDevice,
) -> Result<Value, OpError> {
    for_int!(dtype, E => narrowed::<E>(numbers, dims, device))
}

fn narrowed<E: Narrow>(numbers: Vec<E::Wide>, dims: Vec<usize>, device: &DispatchDevice) -> Result<Value, OpError> {
    let elements: Vec<E> = numbers.into_iter().map(E::narrow).collect();
    Value::from_data(TensorData::new(elements, dims), device)
}

/// The only number of an integer tensor.
pub(super) fn int(value: Value) -> Result<i128, OpError> {
    match ints(value)?[..] {
        [number] => Ok(number),
        ref numbers => Err(OpError(format!("expects one integer and gets {}", numbers.len()))),
    }
}

/// The only number of a float tensor.
pub(super) fn float(value: Value) -> Result<f64, OpError> {
    match floats(value)?[..] {
        [number] => Ok(number),
        ref numbers => Err(OpError(format!("expects one number and gets {}", numbers.len()))),
    }
}

/// A function of one float.
pub(super) fn map_floats(x: Value, device: &DispatchDevice, f: impl Fn(f64) -> f64) -> Result<Value, OpError> {
    let (dims, dtype) = (x.shape(), x.dtype());
    of_floats(floats(x)?.into_iter().map(f).collect(), dtype, dims, device)
}

/// A function of one integer.
pub(super) fn map_ints(x: Value, device: &DispatchDevice, f: impl Fn(i128) -> i128) -> Result<Value, OpError> {
    let (dims, dtype) = (x.shape(), x.dtype());
    of_ints(ints(x)?.into_iter().map(f).collect(), dtype, dims, device)
}

/// A function of two floats.
pub(super) fn zip_floats(
    a: Value,
    b: Value,
    device: &DispatchDevice,
    f: impl Fn(f64, f64) -> f64,
) -> Result<Value, OpError> {
    let both = Both::of(&a, &b)?;
    let numbers = both.zip(floats(a)?, floats(b)?, |a, b| Ok(f(a, b)))?;
    of_floats(numbers, both.dtype, both.dims, device)
}

/// A function of two integers, which fails where the result does not exist.
pub(super) fn zip_ints(
    a: Value,
    b: Value,
    device: &DispatchDevice,
    f: impl Fn(i128, i128) -> Result<i128, OpError>,
) -> Result<Value, OpError> {
    let both = Both::of(&a, &b)?;
    let numbers = both.zip(ints(a)?, ints(b)?, f)?;
    of_ints(numbers, both.dtype, both.dims, device)
}

/// Two tensors of one element type, broadcast to each other.
struct Both {
    dtype: DType,
    a: Vec<usize>,
    b: Vec<usize>,
    dims: Vec<usize>,
}

impl Both {
    fn of(a: &Value, b: &Value) -> Result<Both, OpError> {
        if a.dtype() != b.dtype() {
            return Err(OpError(format!("cannot combine {:?} with {:?}", a.dtype(), b.dtype())));
        }
        let (dtype, a, b) = (a.dtype(), a.shape(), b.shape());
        let dims = broadcast(&a, &b)?;
        Ok(Both { dtype, a, b, dims })
    }

    fn zip<W: Copy>(&self, a: Vec<W>, b: Vec<W>, f: impl Fn(W, W) -> Result<W, OpError>) -> Result<Vec<W>, OpError> {
        match (&a[..], &b[..]) {
            _ if self.a == self.b => a.into_iter().zip(b).map(|(a, b)| f(a, b)).collect(),
            (_, &[b]) => a.into_iter().map(|a| f(a, b)).collect(),
            (&[a], _) => b.into_iter().map(|b| f(a, b)).collect(),
            (a, b) => {
                let places = Walk::new(&self.a, &self.dims).zip(Walk::new(&self.b, &self.dims));
                places.map(|(i, j)| f(a[i], b[j])).collect()
            }
        }
    }
}

/// Goes through a shape in row-major order and tells for each element where it is in a smaller shape that broadcasts to
/// it.
pub(super) struct Walk {
    dims: Vec<usize>,
    /// How far one step along each axis moves in the smaller shape; 0 where it broadcasts.
    strides: Vec<usize>,
    at: Vec<usize>,
    index: usize,
    left: usize,
}

impl Walk {
    /// `to` is a shape that `from` broadcasts to.
    pub(super) fn new(from: &[usize], to: &[usize]) -> Walk {
        let from = lift(from, to.len());
        let mut strides = vec![0; to.len()];
        let mut stride = 1;
        for axis in (0..to.len()).rev() {
            if from[axis] != 1 {
                strides[axis] = stride;
            }
            stride *= from[axis];
        }
        Walk { dims: to.to_vec(), strides, at: vec![0; to.len()], index: 0, left: to.iter().product() }
    }
}

impl Iterator for Walk {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let index = self.index;
        for axis in (0..self.dims.len()).rev() {
            self.at[axis] += 1;
            self.index += self.strides[axis];
            if self.at[axis] < self.dims[axis] {
                break;
            }
            self.index -= self.strides[axis] * self.dims[axis];
            self.at[axis] = 0;
        }
        Some(index)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// The lines of a row-major array along one axis.
pub(super) struct Lines {
    outer: usize,
    length: usize,
    inner: usize,
}

impl Lines {
    /// `axis` is one of the shape's.
    pub(super) fn new(dims: &[usize], axis: usize) -> Lines {
        let (outer, inner) = (dims[..axis].iter().product(), dims[axis + 1..].iter().product());
        Lines { outer, length: dims[axis], inner }
    }

    /// For each line the places of its elements, the lines in row-major order.
    pub(super) fn iter(&self) -> impl Iterator<Item = impl DoubleEndedIterator<Item = usize> + Clone> {
        let &Lines { outer, length, inner } = self;
        let starts = (0..outer).flat_map(move |o| (0..inner).map(move |i| o * length * inner + i));
        starts.map(move |start| (0..length).map(move |k| start + k * inner))
    }
}
