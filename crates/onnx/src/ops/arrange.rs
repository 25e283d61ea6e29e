//! Moves whole elements on the host, whatever their type: what selects, repeats and scatters is built of it.

use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_backend::{DType, Shape, TensorData};
use burn_dispatch::DispatchDevice;

use crate::value::{self, Backend as B, HostInts, OpError, Value, axis, elements};

/// Blocks of `block` consecutive elements of `x`, in the order of `places`, as a tensor of shape `dims`; zeros where there
/// is no place. Places count blocks and must lie within `x`.
pub(super) fn picked(
    x: Value,
    block: usize,
    places: impl Iterator<Item = Option<usize>>,
    dims: Vec<usize>,
    device: &DispatchDevice,
) -> Result<Value, OpError> {
    let count = elements(&dims)?;
    let data = x.into_data()?;
    let dtype = data.dtype();
    let from: &[u8] = data.bytes();
    let mut to = Vec::with_capacity(count * dtype.size());
    match block * dtype.size() {
        1 => pick_fixed::<1>(from, places, &mut to),
        2 => pick_fixed::<2>(from, places, &mut to),
        4 => pick_fixed::<4>(from, places, &mut to),
        8 => pick_fixed::<8>(from, places, &mut to),
        size => places.for_each(|place| match place {
            Some(i) => to.extend_from_slice(&from[i * size..][..size]),
            None => to.resize(to.len() + size, 0),
        }),
    }
    from_bytes(to, dims, dtype, device)
}

/// Blocks of a size that is known when this is compiled: most are single elements.
fn pick_fixed<const SIZE: usize>(from: &[u8], places: impl Iterator<Item = Option<usize>>, to: &mut Vec<u8>) {
    let (from, _) = from.as_chunks::<SIZE>();
    places.for_each(|place| to.extend_from_slice(place.map_or(&[0; SIZE], |i| &from[i])));
}

/// The axis that is asked for; without one all elements count as one line.
pub(super) fn axis_or_all(x: Value, given: Option<i64>) -> Result<(Value, usize), OpError> {
    match given {
        Some(given) => axis(given, x.rank()).map(|axis| (x, axis)),
        None => {
            let count = elements(&x.shape())?;
            x.reshape(vec![count]).map(|line| (line, 0))
        }
    }
}

/// `x` with blocks of `block` consecutive elements overwritten by those of `updates`, the first of which goes to
/// `places[0]` and so on; of several for one place, the last stays.
pub(super) fn placed(
    x: Value,
    updates: Value,
    block: usize,
    places: &[usize],
    device: &DispatchDevice,
) -> Result<Value, OpError> {
    let (dims, dtype) = (x.shape(), x.dtype());
    let mut to = x.into_data()?.bytes().to_vec();
    let size = block * dtype.size();
    if size > 0 {
        let updates = updates.into_data()?;
        for (update, &place) in updates.bytes().chunks_exact(size).zip(places) {
            to[place * size..][..size].copy_from_slice(update);
        }
    }
    from_bytes(to, dims, dtype, device)
}

/// A tensor from the bytes of its elements.
pub(super) fn from_bytes(
    bytes: Vec<u8>,
    dims: Vec<usize>,
    dtype: DType,
    device: &DispatchDevice,
) -> Result<Value, OpError> {
    let data = TensorData::try_from_bytes_vec(bytes, Shape::from(dims), dtype);
    Value::from_data(data.map_err(|e| OpError::new(e.to_string()))?, device)
}

/// A tensor of zeros (false, if boolean). Empty tensors are made by it too: not every device operation makes them.
pub(super) fn zeros(dims: Vec<usize>, dtype: DType, device: &DispatchDevice) -> Result<Value, OpError> {
    let bytes = vec![0; elements(&dims)? * dtype.size()];
    from_bytes(bytes, dims, dtype, device)
}

/// `x` at some indices of an axis. The indices must be below its length.
pub(super) fn selected(x: Value, axis: usize, indices: Vec<usize>, device: &DispatchDevice) -> Result<Value, OpError> {
    let mut dims = x.shape();
    dims[axis] = indices.len();
    if elements(&dims)? == 0 {
        return zeros(dims, x.dtype(), device);
    }
    if let Value::Host(h) = x {
        return Ok(Value::Host(HostInts::vector(indices.into_iter().map(|i| h.ints[i]).collect())));
    }
    if let Value::Bool(_) = x {
        // burn-flex 0.22.1 gives bytes for booleans here.
        let (length, inner) = (x.shape()[axis], elements(&dims[axis + 1..])?);
        let outer = elements(&dims[..axis])?;
        let rows = (0..outer).flat_map(|row| indices.iter().map(move |i| Some(row * length + i)));
        return picked(x, inner, rows, dims, device);
    }
    let count = indices.len();
    let indices = indices.into_iter().map(|i| i as i64).collect();
    let at = B::int_from_data(TensorData::new::<i64, _>(indices, Shape::from(vec![count])), device);
    Ok(match x {
        Value::Float(t) => Value::Float(B::float_select(t, axis, at)),
        other => Value::Int(B::int_select(other.int_tensor(device)?, axis, at)),
    })
}

/// `x` repeated along axes of length 1, and along new ones in front, up to the shape `dims`.
pub(super) fn expanded(x: Value, dims: Vec<usize>, device: &DispatchDevice) -> Result<Value, OpError> {
    let have = x.shape();
    if have == dims {
        return Ok(x);
    }
    let count = elements(&dims)?;
    if count == 0 {
        return zeros(dims, x.dtype(), device);
    }
    if dims.len() <= 1 && matches!(x, Value::Host(_)) {
        return picked(x, 1, std::iter::repeat_n(Some(0), count), dims, device);
    }
    let mut lifted = vec![1; dims.len() - have.len()];
    lifted.extend(have);
    let shape = Shape::from(dims);
    x.shaped(lifted, device)?.apply(
        device,
        |t| B::float_expand(t, shape.clone()),
        |t| B::int_expand(t, shape.clone()),
        |t| B::bool_expand(t, shape.clone()),
    )
}

/// The axes in the order `order`, which must name each of them once.
pub(super) fn permuted(x: Value, order: &[usize]) -> Value {
    match x {
        Value::Float(t) => Value::Float(B::float_permute(t, order)),
        Value::Int(t) => Value::Int(B::int_permute(t, order)),
        Value::Bool(t) => Value::Bool(B::bool_permute(t, order)),
        // Of rank 0 or 1, or none that operators of numbers get.
        other @ (Value::Host(_) | Value::Texts(_) | Value::Sequence(_)) => other,
    }
}

/// All elements as 64-bit integers; fractions are cut off.
pub(super) fn integers(x: Value) -> Result<Vec<i64>, OpError> {
    value::integers(x.into_data()?)
}

/// The only element of a tensor, as a 64-bit integer.
pub(super) fn integer(x: Value, what: &str) -> Result<i64, OpError> {
    match integers(x)?[..] {
        [number] => Ok(number),
        ref several => Err(OpError(format!("expects one number as {what} and gets {}", several.len()))),
    }
}

/// Indices below `length`, of which negative ones count from the end. Callers send indices, so one that is out of range must
/// be an error that says so.
pub(super) fn indices(x: Value, length: usize) -> Result<Vec<usize>, OpError> {
    integers(x)?.into_iter().map(|i| index(i, length)).collect()
}

/// One index below `length`; a negative one counts from the end.
pub(super) fn index(i: i64, length: usize) -> Result<usize, OpError> {
    axis(i, length).map_err(|_| OpError(format!("index {i} is out of range for length {length}")))
}

/// How far apart neighbours along each axis are, in a tensor in row-major order.
pub(super) fn strides(dims: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; dims.len()];
    for i in (1..dims.len()).rev() {
        strides[i - 1] = strides[i] * dims[i];
    }
    strides
}

/// For each position of a tensor of shape `dims`, in row-major order: the sum of its coordinates times `strides`.
pub(super) struct Walk {
    dims: Vec<usize>,
    strides: Vec<usize>,
    at: Vec<usize>,
    offset: usize,
    left: usize,
}

impl Walk {
    /// `dims` must be a shape that a tensor can have.
    pub(super) fn new(dims: &[usize], strides: &[usize]) -> Walk {
        let left = dims.iter().product();
        Walk { dims: dims.to_vec(), strides: strides.to_vec(), at: vec![0; dims.len()], offset: 0, left }
    }
}

impl Iterator for Walk {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let found = self.offset;
        for i in (0..self.dims.len()).rev() {
            self.at[i] += 1;
            self.offset += self.strides[i];
            if self.at[i] < self.dims[i] {
                break;
            }
            self.at[i] = 0;
            self.offset -= self.strides[i] * self.dims[i];
        }
        Some(found)
    }
}

/// Runs `$body` with `$T` standing for the type of a tensor's elements, which must be numbers.
macro_rules! by_number {
    ($dtype:expr, $T:ident => $body:expr) => {{
        use burn_backend::DType::*;
        macro_rules! with {
            ($element:ty) => {{
                type $T = $element;
                $body
            }};
        }
        match $dtype {
            F64 => with!(f64),
            F32 => with!(f32),
            F16 => with!(half::f16),
            BF16 => with!(half::bf16),
            I64 => with!(i64),
            I32 => with!(i32),
            I16 => with!(i16),
            I8 => with!(i8),
            U64 => with!(u64),
            U32 => with!(u32),
            U16 => with!(u16),
            U8 => with!(u8),
            other => Err($crate::value::OpError(format!("elements of type {other:?} are not numbers"))),
        }
    }};
}
pub(super) use by_number;
