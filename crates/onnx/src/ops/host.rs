//! Element by element on the host, for what burn has no operation for.
//!
//! Floats of every type are computed in float64 and integers of every type in 128 bits. A result that does not fit the
//! type of its arguments is rounded to it or wraps around, as numpy does.

use burn_backend::{Element, TensorData};
use burn_dispatch::DispatchDevice;
use half::{bf16, f16};

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
    f16, f64::NEG_INFINITY, f64::INFINITY, f16::to_f64, f16::from_f64;
    bf16, f64::NEG_INFINITY, f64::INFINITY, bf16::to_f64, bf16::from_f64;
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

/// Evaluates `$body` with `$E` as the Rust type of a float type.
macro_rules! for_float {
    ($dtype:expr, $E:ident => $body:expr) => {{
        use burn_backend::DType;
        macro_rules! with {
            ($element:ty) => {{
                type $E = $element;
                $body
            }};
        }
        match $dtype {
            DType::F64 => with!(f64),
            DType::F32 => with!(f32),
            DType::F16 => with!(half::f16),
            DType::BF16 => with!(half::bf16),
            other => Err($crate::value::OpError(format!("expects floats and gets elements of {other:?}"))),
        }
    }};
}

/// Evaluates `$body` with `$E` as the Rust type of an integer type.
macro_rules! for_int {
    ($dtype:expr, $E:ident => $body:expr) => {{
        use burn_backend::DType;
        macro_rules! with {
            ($element:ty) => {{
                type $E = $element;
                $body
            }};
        }
        match $dtype {
            DType::I64 => with!(i64),
            DType::I32 => with!(i32),
            DType::I16 => with!(i16),
            DType::I8 => with!(i8),
            DType::U64 => with!(u64),
            DType::U32 => with!(u32),
            DType::U16 => with!(u16),
            DType::U8 => with!(u8),
            other => Err($crate::value::OpError(format!("expects integers and gets elements of {other:?}"))),
        }
    }};
}

pub(super) use {for_float, for_int};

/// The elements of a tensor of a known type.
pub(super) fn read<E: Element>(value: Value) -> Result<Vec<E>, OpError> {
    value.into_data()?.try_into_vec::<E>().map_err(|e| OpError(e.to_string()))
}

/// The only number of a float tensor.
pub(super) fn float(value: Value) -> Result<f64, OpError> {
    let numbers = for_float!(value.dtype(), E => Ok(read::<E>(value)?.into_iter().map(E::widen).collect::<Vec<_>>()))?;
    match numbers[..] {
        [number] => Ok(number),
        _ => Err(OpError(format!("expects one number and gets {}", numbers.len()))),
    }
}

/// The only number of an integer tensor.
pub(super) fn int(value: Value) -> Result<i128, OpError> {
    let numbers = for_int!(value.dtype(), E => Ok(read::<E>(value)?.into_iter().map(E::widen).collect::<Vec<_>>()))?;
    match numbers[..] {
        [number] => Ok(number),
        _ => Err(OpError(format!("expects one integer and gets {}", numbers.len()))),
    }
}

fn map<E: Narrow>(x: Value, device: &DispatchDevice, f: impl Fn(E::Wide) -> E::Wide) -> Result<Value, OpError> {
    let dims = x.shape();
    let elements: Vec<E> = read::<E>(x)?.into_iter().map(|x| E::narrow(f(x.widen()))).collect();
    Value::from_data(TensorData::new(elements, dims), device)
}

/// A function of one float.
pub(super) fn map_floats(x: Value, device: &DispatchDevice, f: impl Fn(f64) -> f64) -> Result<Value, OpError> {
    for_float!(x.dtype(), E => map::<E>(x, device, f))
}

/// A function of one integer.
pub(super) fn map_ints(x: Value, device: &DispatchDevice, f: impl Fn(i128) -> i128) -> Result<Value, OpError> {
    for_int!(x.dtype(), E => map::<E>(x, device, f))
}

/// Combines two tensors of one element type, broadcast to each other.
fn zip<E: Narrow>(
    a: Value,
    b: Value,
    device: &DispatchDevice,
    f: impl Fn(E::Wide, E::Wide) -> Result<E::Wide, OpError>,
) -> Result<Value, OpError> {
    if a.dtype() != b.dtype() {
        return Err(OpError(format!("cannot combine {:?} with {:?}", a.dtype(), b.dtype())));
    }
    let (a_dims, b_dims) = (a.shape(), b.shape());
    let dims = broadcast(&a_dims, &b_dims)?;
    let (a, b) = (read::<E>(a)?, read::<E>(b)?);
    let f = |a: E, b: E| f(a.widen(), b.widen()).map(E::narrow);
    let elements: Result<Vec<E>, OpError> = match (&a[..], &b[..]) {
        _ if a_dims == b_dims => a.into_iter().zip(b).map(|(a, b)| f(a, b)).collect(),
        (_, &[b]) => a.into_iter().map(|a| f(a, b)).collect(),
        (&[a], _) => b.into_iter().map(|b| f(a, b)).collect(),
        (a, b) => Walk::new(&a_dims, &dims).zip(Walk::new(&b_dims, &dims)).map(|(i, j)| f(a[i], b[j])).collect(),
    };
    Value::from_data(TensorData::new(elements?, dims), device)
}

/// A function of two floats.
pub(super) fn zip_floats(
    a: Value,
    b: Value,
    device: &DispatchDevice,
    f: impl Fn(f64, f64) -> f64,
) -> Result<Value, OpError> {
    for_float!(a.dtype(), E => zip::<E>(a, b, device, |a, b| Ok(f(a, b))))
}

/// A function of two integers, which fails where the result does not exist.
pub(super) fn zip_ints(
    a: Value,
    b: Value,
    device: &DispatchDevice,
    f: impl Fn(i128, i128) -> Result<i128, OpError>,
) -> Result<Value, OpError> {
    for_int!(a.dtype(), E => zip::<E>(a, b, device, f))
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
