//! What flows between the steps of a plan: tensors on the device, integers and texts that stay on the host, and sequences.
//!
//! Exporters compute shapes with tensor operators (`Shape`, `Gather`, `Concat`, …). Those few integers are kept in a
//! plain vector ([`Value::Host`]): a shape is then known without reading back from a device.
//!
//! Texts and sequences reach those operators only that say so ([`Foreign`](super::ops::Foreign)): all others deal with
//! tensors of numbers.

use burn::tensor::read_sync;
use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_backend::{
    Backend as _, BoolDType, BoolStore, DType, DeviceOps, FloatDType, IntDType, Shape, TensorData, TensorMetadata,
};
use burn_dispatch::{Dispatch, DispatchDevice, DispatchTensor};

use super::floats;
use super::limits;
use super::texts::Texts;

/// Where the operations come from: burn's rank-free interface, routed to the device's backend at run time.
pub(super) type Backend = Dispatch;
/// A tensor of any rank on any device.
pub(super) type Handle = DispatchTensor;

/// Most elements that one computed tensor may have: 1 GiB of float32. A damaged file must not ask for all memory.
const MAX_ELEMENTS: usize = 1 << 28;

/// Elements of any type as integers. Of floats, fractions are cut off, what is too large is the largest there is, and what is no number
/// the least. burn's own conversion panics where a number does not fit.
pub(super) fn integers(data: TensorData) -> Result<Vec<i64>, OpError> {
    let wrong = |e| OpError(format!("cannot be read: {e:?}"));
    if data.dtype().is_float() {
        let numbers = data.convert_dtype(DType::F64).try_into_vec::<f64>().map_err(wrong)?;
        return Ok(numbers.into_iter().map(|x| if x.is_nan() { i64::MIN } else { x as i64 }).collect());
    }
    if data.dtype() == DType::U64 {
        let numbers = data.try_into_vec::<u64>().map_err(wrong)?;
        let signed = |x| i64::try_from(x).map_err(|_| OpError(format!("{x} is beyond what is computed with here")));
        return numbers.into_iter().map(signed).collect();
    }
    data.convert_dtype(DType::I64).try_into_vec::<i64>().map_err(wrong)
}

/// What is wrong with an operator's arguments, in words; the caller adds node and operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct OpError(pub(super) String);

impl OpError {
    pub(super) fn new(reason: impl Into<String>) -> OpError {
        OpError(reason.into())
    }
}

/// One value of the graph.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Float(Handle),
    Int(Handle),
    Bool(Handle),
    Host(HostInts),
    Texts(Texts),
    /// Tensors one behind the other, of any shapes.
    Sequence(Vec<Value>),
}

/// The type that texts and sequences give as that of their elements: none of burn's is. No tensor here has it, and no
/// operator that asks for it gets such a value.
const NO_NUMBERS: DType = DType::Flex32;

/// What is true or not, as it is read and told apart from other types. [`bool_type`] says how a device keeps it.
const TRUTH: DType = DType::Bool(BoolStore::Native);

/// Integers on the host: a vector, or a single number of rank 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostInts {
    pub(super) ints: Vec<i64>,
    /// Rank 0. Then there is exactly one number.
    pub(super) scalar: bool,
}

impl HostInts {
    pub(super) fn vector(ints: Vec<i64>) -> HostInts {
        HostInts { ints, scalar: false }
    }

    fn shape(&self) -> Vec<usize> {
        if self.scalar { vec![] } else { vec![self.ints.len()] }
    }
}

impl Value {
    /// Takes data as a graph's constant or input. Short integer vectors stay on the host.
    pub(super) fn from_data(data: TensorData, device: &DispatchDevice) -> Result<Value, OpError> {
        let rank = data.shape().num_dims();
        match data.dtype() {
            DType::BF16 if !has_bfloat(device) => Value::from_data(data.convert_dtype(DType::F32), device),
            DType::F64 | DType::F32 | DType::F16 | DType::BF16 => {
                Ok(Value::Float(put(data, device, Backend::float_from_data, Backend::float_reshape)))
            }
            DType::I64 if rank <= 1 => {
                let ints = data.try_into_vec::<i64>().map_err(|e| OpError::new(e.to_string()))?;
                Ok(Value::Host(HostInts { ints, scalar: rank == 0 }))
            }
            dtype if dtype.is_int() || dtype.is_uint() => {
                Ok(Value::Int(put(data, device, Backend::int_from_data, Backend::int_reshape)))
            }
            DType::Bool(_) => {
                let data = data.convert_dtype(bool_type(device).into());
                Ok(Value::Bool(put(data, device, Backend::bool_from_data, Backend::bool_reshape)))
            }
            other => Err(OpError(format!("elements of type {other:?} are not supported"))),
        }
    }

    /// The elements in row-major order.
    pub(super) fn into_data(self) -> Result<TensorData, OpError> {
        if self.rank() == 0 {
            // As it was put there.
            return Ok(shown(self.reshape(vec![1])?.into_data()?, vec![]));
        }
        let read = match self {
            Value::Float(t) => match floats::reordered(&t) {
                Some(data) => Ok(data),
                None => read_sync(Backend::float_into_data(t)),
            },
            Value::Int(t) => read_sync(Backend::int_into_data(t)),
            Value::Bool(t) => read_sync(Backend::bool_into_data(t)).map(|data| data.convert_dtype(TRUTH)),
            Value::Host(h) => {
                let shape = Shape::from(h.shape());
                Ok(TensorData::new(h.ints, shape))
            }
            other => return Err(OpError(format!("expects a tensor of numbers and gets {}", other.kind()))),
        };
        read.map_err(|e| OpError(format!("the device failed: {e}")))
    }

    /// What kind of value this is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Float(_) => "a float tensor",
            Value::Int(_) => "an integer tensor",
            Value::Bool(_) => "a boolean tensor",
            Value::Host(_) => "integers",
            Value::Texts(_) => "texts",
            Value::Sequence(_) => "a sequence",
        }
    }

    /// The dimensions; of a sequence, its length.
    pub(super) fn shape(&self) -> Vec<usize> {
        match self {
            Value::Float(t) | Value::Int(t) | Value::Bool(t) => t.shape().to_vec(),
            Value::Host(h) => h.shape(),
            Value::Texts(texts) => texts.dims().to_vec(),
            Value::Sequence(values) => vec![values.len()],
        }
    }

    /// Bytes that the elements take.
    pub(super) fn byte_len(&self) -> usize {
        match self {
            Value::Texts(texts) => return texts.byte_len(),
            Value::Sequence(values) => return values.iter().fold(0, |sum, v| sum.saturating_add(v.byte_len())),
            _ => {}
        }
        self.shape().iter().fold(self.dtype().size(), |bytes, &d| bytes.saturating_mul(d))
    }

    /// The number of dimensions.
    pub(super) fn rank(&self) -> usize {
        match self {
            Value::Float(t) | Value::Int(t) | Value::Bool(t) => t.shape().num_dims(),
            Value::Host(h) => usize::from(!h.scalar),
            Value::Texts(texts) => texts.dims().len(),
            Value::Sequence(_) => 1,
        }
    }

    /// Has a kernel of one tensor work on one that has a dimension.
    pub(super) fn with_axis(self, work: impl FnOnce(Value) -> Result<Value, OpError>) -> Result<Value, OpError> {
        if !self.is_single() {
            return work(self);
        }
        work(self.reshape(vec![1])?)?.reshape(vec![])
    }

    /// Whether it is a number without a dimension. No kernel of cubecl makes one: it is made with a dimension, which is taken away.
    fn is_single(&self) -> bool {
        !matches!(self, Value::Texts(_) | Value::Sequence(_)) && self.rank() == 0
    }

    /// The type of the elements.
    pub(super) fn dtype(&self) -> DType {
        match self {
            Value::Float(t) | Value::Int(t) => t.dtype(),
            Value::Bool(_) => TRUTH,
            Value::Host(_) => DType::I64,
            Value::Texts(_) | Value::Sequence(_) => NO_NUMBERS,
        }
    }

    /// The only element of a boolean tensor.
    pub(super) fn truth(self) -> Result<bool, OpError> {
        let Value::Bool(_) = self else {
            return Err(OpError(format!("expects a boolean and gets {}", self.kind())));
        };
        let shape = self.shape();
        if elements(&shape)? != 1 {
            return Err(OpError(format!("expects one boolean and gets a tensor of shape {shape:?}")));
        }
        let flags = self.into_data()?.try_into_vec::<bool>().map_err(|e| OpError::new(e.to_string()))?;
        Ok(flags[0])
    }

    /// The same operation in the form that burn has for each kind of tensor. Integers on the host go to the device.
    pub(super) fn apply(
        self,
        device: &DispatchDevice,
        floats: impl FnOnce(Handle) -> Handle,
        ints: impl FnOnce(Handle) -> Handle,
        bools: impl FnOnce(Handle) -> Handle,
    ) -> Result<Value, OpError> {
        Ok(match self {
            Value::Float(t) => Value::Float(floats(t)),
            Value::Bool(t) => Value::Bool(bools(t)),
            other => Value::Int(ints(other.int_tensor(device)?)),
        })
    }

    /// A float tensor, or a complaint.
    pub(super) fn float(self) -> Result<Handle, OpError> {
        match self {
            Value::Float(t) => Ok(t),
            other => Err(OpError(format!("expects a float tensor and gets {}", other.kind()))),
        }
    }

    /// Texts, or a complaint.
    pub(super) fn texts(self) -> Result<Texts, OpError> {
        match self {
            Value::Texts(texts) => Ok(texts),
            other => Err(OpError(format!("expects texts and gets {}", other.kind()))),
        }
    }

    /// A sequence, or a complaint.
    pub(super) fn sequence(self) -> Result<Vec<Value>, OpError> {
        match self {
            Value::Sequence(values) => Ok(values),
            other => Err(OpError(format!("expects a sequence and gets {}", other.kind()))),
        }
    }

    /// A boolean tensor, or a complaint.
    pub(super) fn bool(self) -> Result<Handle, OpError> {
        match self {
            Value::Bool(t) => Ok(t),
            other => Err(OpError(format!("expects a boolean tensor and gets {}", other.kind()))),
        }
    }

    /// Integers on the host, read back from the device where they are there.
    pub(super) fn ints(self) -> Result<HostInts, OpError> {
        match self {
            Value::Host(h) => Ok(h),
            Value::Int(t) if t.shape().num_dims() <= 1 => {
                let scalar = t.shape().num_dims() == 0;
                Ok(HostInts { ints: integers(Value::Int(t).into_data()?)?, scalar })
            }
            other => Err(OpError(format!("expects a vector of integers and gets {}", other.kind()))),
        }
    }

    /// An integer tensor on the device.
    pub(super) fn int_tensor(self, device: &DispatchDevice) -> Result<Handle, OpError> {
        match self {
            Value::Int(t) => Ok(t),
            Value::Host(h) => {
                let data = TensorData::new(h.ints.clone(), Shape::from(h.shape()));
                Ok(put(data, device, Backend::int_from_data, Backend::int_reshape))
            }
            other => Err(OpError(format!("expects an integer tensor and gets {}", other.kind()))),
        }
    }

    /// The same elements in another shape.
    pub(super) fn reshape(self, dims: Vec<usize>) -> Result<Value, OpError> {
        let have = self.shape();
        let count = elements(&dims)?;
        if count != elements(&have)? {
            return Err(OpError(format!("cannot turn the shape {have:?} into {dims:?}")));
        }
        if have == dims {
            return Ok(self);
        }
        Ok(match self {
            Value::Float(t) => Value::Float(Backend::float_reshape(floats::for_shape(t, &dims), Shape::from(dims))),
            Value::Int(t) => Value::Int(Backend::int_reshape(t, Shape::from(dims))),
            Value::Bool(t) => Value::Bool(Backend::bool_reshape(t, Shape::from(dims))),
            Value::Host(h) if dims.len() <= 1 => Value::Host(HostInts { ints: h.ints, scalar: dims.is_empty() }),
            Value::Host(_) => return Err(OpError(format!("cannot turn integers of shape {have:?} into {dims:?}"))),
            Value::Texts(texts) => Value::Texts(texts.reshape(dims)?),
            Value::Sequence(_) => return Err(OpError::new("a sequence has no shape to change")),
        })
    }

    /// The same elements in another shape; integers on the host that get more than one axis go to the device.
    pub(super) fn shaped(self, dims: Vec<usize>, device: &DispatchDevice) -> Result<Value, OpError> {
        match self {
            Value::Host(_) if dims.len() > 1 => Value::Int(self.int_tensor(device)?).reshape(dims),
            other => other.reshape(dims),
        }
    }

    /// The same elements with another type, as ONNX's `Cast` defines it.
    pub(super) fn cast(self, to: DType, device: &DispatchDevice) -> Result<Value, OpError> {
        if let (Value::Host(_), DType::I64) = (&self, to) {
            return Ok(self);
        }
        if self.is_single() {
            return self.with_axis(|x| x.cast(to, device));
        }
        let value = match self {
            Value::Host(_) => Value::Int(self.int_tensor(device)?),
            Value::Texts(_) | Value::Sequence(_) => {
                return Err(OpError(format!("expects numbers and gets {}", self.kind())));
            }
            other => other,
        };
        let unknown = || OpError(format!("a cast to {to:?} is not supported"));
        if to == DType::BF16 && !has_bfloat(device) {
            return Err(OpError::new("the device has no bfloat16"));
        }
        if to.is_float() {
            let to = FloatDType::from(to);
            Ok(Value::Float(match value {
                Value::Float(t) => Backend::float_cast(t, to),
                Value::Bool(t) if to == FloatDType::F32 && floats::is_bytes(&t) => {
                    let bools = Value::Bool(t).into_data()?;
                    let numbers: Vec<f32> = bools.as_bytes().iter().map(|&byte| f32::from(byte)).collect();
                    return Value::from_data(TensorData::new(numbers, bools.shape().clone()), device);
                }
                Value::Bool(t) => Backend::bool_into_float(t, to),
                Value::Int(t) => Backend::int_into_float(t, to),
                _ => return Err(unknown()),
            }))
        } else if to.is_int() || to.is_uint() {
            let to = IntDType::from(to);
            Ok(Value::Int(match value {
                Value::Float(t) => Backend::float_into_int(t, to),
                Value::Bool(t) => Backend::bool_into_int(t, to),
                Value::Int(t) => Backend::int_cast(t, to),
                _ => return Err(unknown()),
            }))
        } else if let DType::Bool(_) = to {
            let to = bool_type(device);
            Ok(Value::Bool(match value {
                Value::Float(t) => match floats::Floats::of(&t) {
                    Some(numbers) => {
                        let bools: Vec<bool> = numbers.as_slice().iter().map(|x| *x != 0.0).collect();
                        return Value::from_data(TensorData::new(bools, t.shape()), device);
                    }
                    None => Backend::float_not_equal_elem(t, 0.0.into(), to),
                },
                Value::Int(t) => Backend::int_not_equal_elem(t, 0.into(), to),
                other => return Ok(other),
            }))
        } else {
            Err(unknown())
        }
    }
}

/// Whether a device computes with bfloat16. Where it does not, its kernels give other numbers without a word; weights are float32 there.
fn has_bfloat(device: &DispatchDevice) -> bool {
    matches!(device, DispatchDevice::Flex(_)) || Backend::supports_dtype(device, DType::BF16)
}

/// How a device keeps what is true or not: in a byte, as a processor does, or in a word.
pub(super) fn bool_type(device: &DispatchDevice) -> BoolDType {
    if matches!(device, DispatchDevice::Flex(_)) { BoolDType::Native } else { device.defaults().bool_dtype }
}

/// The same of the device that a tensor is on.
pub(super) fn bool_type_beside(tensor: &Handle) -> BoolDType {
    bool_type(&tensor.device())
}

/// Puts data on a device. cubecl has no memory for a tensor without a dimension: it goes there with one, and is then seen without it.
fn put(
    data: TensorData,
    device: &DispatchDevice,
    up: fn(TensorData, &DispatchDevice) -> Handle,
    seen: fn(Handle, Shape) -> Handle,
) -> Handle {
    let shape = data.shape().clone();
    if shape.num_dims() > 0 {
        return up(data, device);
    }
    seen(up(shown(data, vec![1]), device), shape)
}

/// The same elements in another shape.
fn shown(data: TensorData, dims: Vec<usize>) -> TensorData {
    let dtype = data.dtype();
    TensorData::from_bytes(data.into_bytes(), Shape::from(dims), dtype)
}

/// The number of elements of a shape; an error where that is more than one tensor may have, or the run has no memory for it. What makes a
/// tensor asks here before it does.
pub(super) fn elements(dims: &[usize]) -> Result<usize, OpError> {
    let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    match count {
        Some(n) if n <= MAX_ELEMENTS => limits::ask(n).map(|()| n),
        _ => Err(OpError(format!("the shape {dims:?} has more elements than a tensor may have ({MAX_ELEMENTS})"))),
    }
}

/// The shape that two shapes broadcast to, by numpy's rule.
pub(super) fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>, OpError> {
    let rank = a.len().max(b.len());
    let at = |dims: &[usize], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |k| dims[k]);
    let dims: Result<Vec<usize>, OpError> = (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            _ => Err(OpError(format!("the shapes {a:?} and {b:?} do not broadcast"))),
        })
        .collect();
    let dims = dims?;
    let count = elements(&dims)?;
    // n numbers and n more become n² of them.
    if [a, b].iter().all(|from| from.iter().product::<usize>() < count) {
        limits::ask_grown(count)?;
    }
    Ok(dims)
}

/// `dims` with ones in front, up to `rank`.
pub(super) fn lift(dims: &[usize], rank: usize) -> Vec<usize> {
    let mut lifted = vec![1; rank.saturating_sub(dims.len())];
    lifted.extend_from_slice(dims);
    lifted
}

/// An axis, counted from the end where negative, as an index below `rank`.
pub(super) fn axis(axis: i64, rank: usize) -> Result<usize, OpError> {
    let signed = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    match signed.and_then(|a| usize::try_from(a).ok()) {
        Some(a) if a < rank => Ok(a),
        _ => Err(OpError(format!("axis {axis} is out of range for rank {rank}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_become_the_nearest_integer_and_an_integer_that_does_not_fit_is_named() {
        let floats = TensorData::from([1.9f32, -1.9, 1e30, f32::NEG_INFINITY, f32::NAN]);
        assert_eq!(integers(floats).unwrap(), [1, -1, i64::MAX, i64::MIN, i64::MIN]);
        assert_eq!(integers(TensorData::from([7u64])).unwrap(), [7]);
        assert!(integers(TensorData::from([7u64, u64::MAX])).unwrap_err().to_string().contains("18446744073709551615"));
        assert_eq!(integers(TensorData::from([-3i8, 3])).unwrap(), [-3, 3]);
    }
}
