//! The float32 elements of a tensor that is in this process's memory, for the kernels of `fast`.
//!
//! Tensors of other backends, and of other types, have none: there burn's own operations run.

use burn_backend::ops::FloatTensorOps;
use burn_backend::{BoolStore, DType, Shape, TensorData, TensorMetadata};
use burn_dispatch::{BackendTensor, DispatchDevice, DispatchTensorKind};
use burn_flex::{FlexTensor, Layout};

use super::fast::strided;
use super::memory;
use super::value::{Backend as B, Handle, OpError, Value};

/// The tensor behind the handle, if it is one of float32 in this process's memory.
fn local(handle: &Handle) -> Option<&FlexTensor> {
    match &handle.kind {
        DispatchTensorKind::Flex(BackendTensor::Float(tensor)) if tensor.dtype() == DType::F32 => Some(tensor),
        #[allow(unreachable_patterns, reason = "the other kinds depend on burn's features")]
        _ => None,
    }
}

/// Whether there are such elements.
pub(super) fn has(handle: &Handle) -> bool {
    local(handle).is_some()
}

/// Whether the tensor is one of booleans in this process's memory, a byte each.
pub(super) fn is_bytes(handle: &Handle) -> bool {
    matches!(handle.kind, DispatchTensorKind::Flex(_)) && handle.dtype() == DType::Bool(BoolStore::Native)
}

/// Elements to read, in row-major order.
pub(super) struct Floats(FlexTensor);

impl Floats {
    /// The elements; a tensor that is not in this order is copied, any other is shared.
    pub(super) fn of(handle: &Handle) -> Option<Floats> {
        let tensor = local(handle)?;
        Some(Floats(if tensor.as_slice::<f32>().is_some() { tensor.clone() } else { in_order(tensor) }))
    }

    /// The elements have been read for the last time, unless somebody else has the tensor.
    pub(super) fn used_up(self) {
        keep(self.0);
    }

    pub(super) fn as_slice(&self) -> &[f32] {
        self.0.as_slice().expect("the constructor has made it contiguous")
    }
}

/// The elements copied in row-major order.
fn in_order(tensor: &FlexTensor) -> FlexTensor {
    let layout = tensor.layout();
    let strides: Option<Vec<usize>> = layout.strides().iter().map(|&s| usize::try_from(s).ok()).collect();
    let Some(strides) = strides else { return tensor.to_contiguous() };
    let dims = layout.shape().to_vec();
    let mut elements = memory::take(dims.iter().product());
    strided::copy(tensor.storage(), layout.start_offset(), &dims, &strides, &mut elements);
    FlexTensor::from_data(TensorData::new(elements, dims))
}

/// The elements as data, if they are at hand in another order than row-major.
pub(super) fn reordered(handle: &Handle) -> Option<TensorData> {
    let tensor = local(handle).filter(|tensor| tensor.as_slice::<f32>().is_none())?;
    Some(in_order(tensor).into_data())
}

/// The tensor, of which a copy is in row-major order where the shape could not be changed without one.
pub(super) fn for_shape(handle: Handle, dims: &[usize]) -> Handle {
    match local(&handle).filter(|tensor| tensor.layout().reshape(Shape::from(dims.to_vec())).is_none()) {
        Some(tensor) => B::float_from_data(in_order(tensor).into_data(), &handle.device()),
        None => handle,
    }
}

/// The axes of a tensor from the one whose neighbours are the furthest apart in memory to the one whose are the nearest; as
/// they are where one repeats.
pub(super) fn memory_order(dims: &[usize], strides: &[usize]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..dims.len()).collect();
    if dims.iter().zip(strides).all(|(&length, &stride)| stride != 0 || length == 1) {
        order.sort_by_key(|&axis| std::cmp::Reverse(if dims[axis] == 1 { usize::MAX } else { strides[axis] }));
    }
    order
}

/// The tensor with its axes in their order in memory, and that order.
pub(super) fn turned(handle: Handle) -> (Handle, Vec<usize>) {
    let dims = handle.shape().to_vec();
    let order = Strided::of(&handle).map_or_else(|| (0..dims.len()).collect(), |x| memory_order(&dims, &x.strides));
    (if order.is_sorted() { handle } else { B::float_permute(handle, &order) }, order)
}

/// A tensor whose axes are in this order, in that of their numbers.
pub(super) fn turned_back(handle: Handle, order: &[usize]) -> Handle {
    if order.is_sorted() {
        return handle;
    }
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(i, &axis)| back[axis] = i);
    B::float_permute(handle, &back)
}

/// Elements to read where they are.
pub(super) struct Strided<'a> {
    /// All that there are in memory.
    pub(super) elements: &'a [f32],
    /// The first one's index.
    pub(super) start: usize,
    /// Along each axis, the distance from one index to the next.
    pub(super) strides: Vec<usize>,
}

impl Strided<'_> {
    pub(super) fn of(handle: &Handle) -> Option<Strided<'_>> {
        let tensor = local(handle)?;
        let layout = tensor.layout();
        let strides = layout.strides().iter().map(|&s| usize::try_from(s).ok()).collect::<Option<_>>()?;
        Some(Strided { elements: tensor.storage(), start: layout.start_offset(), strides })
    }

    /// Whether the elements of this shape are in row-major order, without gaps.
    pub(super) fn is_in_order(&self, dims: &[usize]) -> bool {
        let mut next = 1;
        dims.iter().zip(&self.strides).rev().all(|(&length, &stride)| {
            let fits = length == 1 || stride == next;
            next *= length;
            fits
        })
    }
}

/// The elements to write to, in row-major order: the tensor's own where nobody else has it.
pub(super) fn into_vec(handle: Handle) -> Result<Vec<f32>, OpError> {
    Value::Float(handle).into_data()?.try_into_vec().map_err(|e| OpError(e.to_string()))
}

/// A tensor that is at hand, with its numbers changed: in place where nobody else has it. Its axes stay in the order that they have in
/// memory.
pub(super) fn changed(x: Handle, device: &DispatchDevice, by: impl FnOnce(&mut [f32])) -> Result<Value, OpError> {
    let (x, order) = turned(x);
    let dims = x.shape().to_vec();
    let shared = local(&x).filter(|tensor| !tensor.is_unique()).and_then(|tensor| tensor.as_slice::<f32>());
    // Where somebody else reads it, the result is written to memory that was written before: fresh memory is slow.
    let copied = shared.map(|numbers| {
        let mut copy = memory::take(numbers.len());
        copy.copy_from_slice(numbers);
        copy
    });
    let mut numbers = match copied {
        Some(copied) => copied,
        None => into_vec(x)?,
    };
    by(&mut numbers);
    Ok(Value::Float(turned_back(tensor(numbers, dims, device)?.float()?, &order)))
}

/// Whether somebody else has the tensor, so that it cannot be changed in place.
pub(super) fn is_shared(x: &Handle) -> bool {
    !local(x).is_some_and(FlexTensor::is_unique)
}

/// A tensor that is changed by another one; both are at hand, of one shape and in row-major order.
pub(super) fn combined(
    x: Handle,
    by: Handle,
    device: &DispatchDevice,
    f: impl FnOnce(&mut [f32], &[f32]),
) -> Result<Value, OpError> {
    let others = Floats::of(&by).ok_or_else(|| OpError::new("a tensor that is not at hand"))?;
    drop(by);
    let y = changed(x, device, |numbers| f(numbers, others.as_slice()))?;
    others.used_up();
    Ok(y)
}

/// A tensor of these elements. The caller has checked the shape.
pub(super) fn tensor(elements: Vec<f32>, dims: Vec<usize>, device: &DispatchDevice) -> Result<Value, OpError> {
    Value::from_data(TensorData::new(elements, dims), device)
}

/// The tensor has been read for the last time, unless somebody else has it.
pub(super) fn used_up(handle: Handle) {
    if let Some(tensor) = local(&handle).cloned() {
        drop(handle);
        keep(tensor);
    }
}

/// Keeps the memory of a tensor that nobody else has, whatever its layout.
fn keep(tensor: FlexTensor) {
    let len = tensor.storage::<f32>().len();
    if tensor.is_unique() {
        let all = tensor.with_layout(Layout::contiguous(Shape::from([len])));
        all.into_data().try_into_vec().into_iter().for_each(memory::give);
    }
}
