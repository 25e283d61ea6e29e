//! Named, typed, row-major tensors; join and split along axis 0.
//!
//! What is joined and split has its *rows* along axis 0 of every tensor. A model may have them elsewhere, or a tensor that has
//! none; [`Signature::check`](crate::runner::Signature::check) brings a request's tensors into this form. All size arithmetic is
//! checked, so a shape taken from the network cannot overflow into a small allocation.

mod halves;

use std::ops::RangeInclusive;
use std::sync::Arc;

use half::{bf16, f16};

pub use self::halves::{bf16_from_f64, f16_from_f64};
use crate::quote::{Dims, Quoted};

/// Why tensors could not be built, joined or split.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The product of the dimensions does not fit in memory's address range.
    #[error("shape {} has more elements than can be addressed", Dims(.0))]
    Overflow(Vec<usize>),
    /// The shape asks for another number of elements than the data has.
    #[error("shape {} has {expected} elements, but the data has {found}", Dims(shape))]
    Length {
        /// The shape as given.
        shape: Vec<usize>,
        /// Product of the shape's dimensions.
        expected: usize,
        /// Elements in the data.
        found: usize,
    },
    /// A set of no tensors has no rows.
    #[error("there is no tensor")]
    Nothing,
    /// Tensors of one set disagree about the number of rows.
    #[error("tensor {} has {found} rows where {expected} are expected", Quoted(name))]
    Rows {
        /// The tensor that disagrees.
        name: String,
        /// Rows of the others.
        expected: usize,
        /// Rows of this one.
        found: usize,
    },
    /// Sets that differ in names, types or trailing dimensions cannot be joined.
    #[error("tensors differ in names, types or trailing dimensions")]
    Mismatch,
}

macro_rules! datatypes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $element:ty;)*) => {
        /// Element types, named as in the Open Inference Protocol v2.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum DataType { $($(#[$doc])* $variant,)* }

        impl DataType {
            /// Every type, in the protocol's order.
            pub const ALL: &'static [DataType] = &[$(DataType::$variant,)*];

            /// The protocol's name, such as `FP32`.
            pub fn name(self) -> &'static str {
                match self { $(DataType::$variant => $name,)* }
            }

            /// The type of that name; names are upper case.
            pub fn from_name(name: &str) -> Option<DataType> {
                match name { $($name => Some(DataType::$variant),)* _ => None }
            }
        }

        /// A tensor's elements in row-major order.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Data { $($(#[$doc])* $variant(Vec<$element>),)* }

        impl Data {
            /// The elements' type.
            pub fn datatype(&self) -> DataType {
                match self { $(Data::$variant(_) => DataType::$variant,)* }
            }

            /// Number of elements.
            pub fn len(&self) -> usize {
                match self { $(Data::$variant(v) => v.len(),)* }
            }

            /// An empty vector of this type with room for `capacity` elements.
            fn empty(datatype: DataType, capacity: usize) -> Data {
                match datatype { $(DataType::$variant => Data::$variant(Vec::with_capacity(capacity)),)* }
            }

            /// Moves `other`'s elements behind these; the types must agree.
            fn append(&mut self, other: &mut Data) -> Result<(), TensorError> {
                match (self, other) {
                    $((Data::$variant(a), Data::$variant(b)) => a.append(b),)*
                    _ => return Err(TensorError::Mismatch),
                }
                Ok(())
            }

            /// Takes the elements `from..to` out as a vector of its own.
            fn slice(&self, from: usize, to: usize) -> Data {
                match self { $(Data::$variant(v) => Data::$variant(v[from..to].to_vec()),)* }
            }

            /// The blocks of `width` elements of a matrix of `n` by `m` blocks, as a matrix of `m` by `n`.
            fn transposed(&self, n: usize, m: usize, width: usize) -> Data {
                match self { $(Data::$variant(v) => Data::$variant(transposed(v, n, m, width)),)* }
            }

            /// The elements of a tensor of shape `from` in one of shape `to`: what does not fit is cut off, what is new
            /// is zero.
            fn reshaped(&self, from: &[usize], to: &[usize]) -> Data {
                match self { $(Data::$variant(v) => Data::$variant(overlap(v, from, to)),)* }
            }
        }

        $(impl From<Vec<$element>> for Data {
            fn from(v: Vec<$element>) -> Data { Data::$variant(v) }
        })*
    };
}

datatypes! {
    /// One boolean an element.
    Bool = "BOOL", bool;
    /// Unsigned, 8 bits.
    Uint8 = "UINT8", u8;
    /// Unsigned, 16 bits.
    Uint16 = "UINT16", u16;
    /// Unsigned, 32 bits.
    Uint32 = "UINT32", u32;
    /// Unsigned, 64 bits.
    Uint64 = "UINT64", u64;
    /// Signed, 8 bits.
    Int8 = "INT8", i8;
    /// Signed, 16 bits.
    Int16 = "INT16", i16;
    /// Signed, 32 bits.
    Int32 = "INT32", i32;
    /// Signed, 64 bits.
    Int64 = "INT64", i64;
    /// IEEE 754 binary16.
    Fp16 = "FP16", f16;
    /// The upper half of an IEEE 754 binary32.
    Bf16 = "BF16", bf16;
    /// IEEE 754 binary32.
    Fp32 = "FP32", f32;
    /// IEEE 754 binary64.
    Fp64 = "FP64", f64;
    /// Byte strings of any length.
    Bytes = "BYTES", Vec<u8>;
}

impl DataType {
    /// Bytes of memory that an element takes; of a byte string, without the string itself.
    pub fn byte_len(self) -> usize {
        match self {
            DataType::Bool | DataType::Uint8 | DataType::Int8 => 1,
            DataType::Uint16 | DataType::Int16 | DataType::Fp16 | DataType::Bf16 => 2,
            DataType::Uint32 | DataType::Int32 | DataType::Fp32 => 4,
            DataType::Uint64 | DataType::Int64 | DataType::Fp64 => 8,
            DataType::Bytes => size_of::<Vec<u8>>(),
        }
    }
}

impl Data {
    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first element that is an integer and not in `range`.
    pub fn integer_outside(&self, range: &RangeInclusive<i64>) -> Option<i128> {
        let (lowest, highest) = (i128::from(*range.start()), i128::from(*range.end()));
        macro_rules! first {
            ($elements:expr) => {
                $elements.iter().map(|&element| i128::from(element)).find(|e| !(lowest..=highest).contains(e))
            };
        }
        match self {
            Data::Int64(v) => first!(v),
            Data::Uint8(v) => first!(v),
            Data::Uint16(v) => first!(v),
            Data::Uint32(v) => first!(v),
            Data::Uint64(v) => first!(v),
            Data::Int8(v) => first!(v),
            Data::Int16(v) => first!(v),
            Data::Int32(v) => first!(v),
            _ => None,
        }
    }

    /// Bytes of memory that the elements take.
    pub fn byte_len(&self) -> usize {
        let strings = if let Data::Bytes(v) = self { v.iter().map(Vec::len).sum() } else { 0 };
        self.len() * self.datatype().byte_len() + strings
    }
}

/// One row-major tensor. Invariant: the product of `shape` is the number of elements.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    data: Data,
}

impl Tensor {
    /// A tensor of `shape` over `data` in row-major order. Without axes it is a single number.
    pub fn new(shape: Vec<usize>, data: impl Into<Data>) -> Result<Tensor, TensorError> {
        let data = data.into();
        let expected = elements(&shape)?;
        if expected != data.len() {
            return Err(TensorError::Length { shape, expected, found: data.len() });
        }
        Ok(Tensor { shape, data })
    }

    /// Dimensions; those of a row behind their number where the rows are along axis 0.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Length of axis 0; 1 where there is none.
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// The elements in row-major order.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// Shape and elements, taken apart.
    pub fn into_parts(self) -> (Vec<usize>, Data) {
        (self.shape, self.data)
    }

    /// Dimensions of a row.
    fn row_shape(&self) -> &[usize] {
        self.shape.get(1..).unwrap_or_default()
    }

    /// Elements in one row; 0 when a trailing dimension is 0.
    fn row_len(&self) -> usize {
        self.row_shape().iter().product()
    }

    /// Brings `axis`, which must be there, to the front: rows along it are then along axis 0.
    pub fn axis_to_front(self, axis: usize) -> Tensor {
        let Tensor { mut shape, data } = self;
        let (before, length) = (shape[..axis].iter().product(), shape[axis]);
        let width = shape[axis + 1..].iter().product();
        shape[..=axis].rotate_right(1);
        // A single row is where it was.
        let data = if before > 1 && length > 1 { data.transposed(before, length, width) } else { data };
        Tensor { shape, data }
    }

    /// Brings axis 0 to `axis`: the inverse of [`axis_to_front`](Self::axis_to_front).
    pub fn front_to_axis(self, axis: usize) -> Tensor {
        let Tensor { mut shape, data } = self;
        let (length, before) = (shape[0], shape[1..=axis].iter().product());
        let width = shape[axis + 1..].iter().product();
        shape[..=axis].rotate_left(1);
        let data = if before > 1 && length > 1 { data.transposed(length, before, width) } else { data };
        Tensor { shape, data }
    }

    /// So many copies along a new axis 0.
    pub fn repeated(self, rows: usize) -> Result<Tensor, TensorError> {
        let shape: Vec<usize> = std::iter::once(rows).chain(self.shape.iter().copied()).collect();
        let mut data = Data::empty(self.data.datatype(), elements(&shape)?);
        for _ in 0..rows {
            data.append(&mut self.data.clone())?;
        }
        Tensor::new(shape, data)
    }

    /// The row at `place`, which must be there, with axis 0.
    pub fn row(&self, place: usize) -> Tensor {
        let width = self.row_len();
        let shape = std::iter::once(1).chain(self.row_shape().iter().copied()).collect();
        Tensor { shape, data: self.data.slice(place * width, (place + 1) * width) }
    }

    /// The first row, without axis 0; there must be one.
    pub fn first_row(self) -> Tensor {
        let (shape, width) = (self.row_shape().to_vec(), self.row_len());
        let data = if self.rows() == 1 { self.data } else { self.data.slice(0, width) };
        Tensor { shape, data }
    }
}

fn transposed<T: Clone>(data: &[T], n: usize, m: usize, width: usize) -> Vec<T> {
    let mut out = Vec::with_capacity(data.len());
    for j in 0..m {
        for i in 0..n {
            out.extend_from_slice(&data[(i * m + j) * width..][..width]);
        }
    }
    out
}

/// A row-major block of shape `to`, with the part of `data`, of shape `from`, that lies in both.
fn overlap<T: Clone + Default>(data: &[T], from: &[usize], to: &[usize]) -> Vec<T> {
    let mut block = vec![T::default(); to.iter().product()];
    copy_overlap(data, from, &mut block, to);
    block
}

fn copy_overlap<T: Clone>(data: &[T], from: &[usize], block: &mut [T], to: &[usize]) {
    match (from, to) {
        ([have], [want]) => {
            let common = *have.min(want);
            block[..common].clone_from_slice(&data[..common]);
        }
        ([have, from @ ..], [want, to @ ..]) => {
            let (step, stride): (usize, usize) = (from.iter().product(), to.iter().product());
            for i in 0..*have.min(want) {
                copy_overlap(&data[i * step..][..step], from, &mut block[i * stride..][..stride], to);
            }
        }
        _ => {}
    }
}

/// The number of elements of a tensor of `shape`, or [`TensorError::Overflow`].
pub fn elements(shape: &[usize]) -> Result<usize, TensorError> {
    let product = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    // A vector never holds more than isize::MAX bytes; the widest fixed-size element has eight.
    product.filter(|&n| n <= isize::MAX as usize / 8).ok_or_else(|| TensorError::Overflow(shape.to_vec()))
}

/// An ordered set of named tensors: the inputs, or the outputs, of one request or batch.
///
/// Invariant: at least one tensor. What joins, splits or resizes asks for rows along axis 0 of each, as many of all.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensors {
    entries: Vec<(Arc<str>, Tensor)>,
}

impl Tensors {
    /// A set of named tensors; refuses an empty set.
    pub fn new(entries: Vec<(Arc<str>, Tensor)>) -> Result<Tensors, TensorError> {
        if entries.is_empty() { Err(TensorError::Nothing) } else { Ok(Tensors { entries }) }
    }

    /// A set of one.
    pub fn one(name: impl Into<Arc<str>>, tensor: Tensor) -> Tensors {
        Tensors { entries: vec![(name.into(), tensor)] }
    }

    /// Rows of the first tensor, and so of every one where each has its rows along axis 0.
    pub fn rows(&self) -> usize {
        self.entries[0].1.rows()
    }

    /// The rows that every tensor has along its axis 0; [`TensorError::Rows`] where they differ, or where one has no axis.
    fn common_rows(&self) -> Result<usize, TensorError> {
        let expected = self.rows();
        match self.entries.iter().find(|(_, t)| t.shape.first() != Some(&expected)) {
            Some((name, t)) => Err(TensorError::Rows { name: name.to_string(), expected, found: t.rows() }),
            None => Ok(expected),
        }
    }

    /// Bytes of memory that the elements of all tensors take.
    pub fn byte_len(&self) -> usize {
        self.entries.iter().map(|(_, t)| t.data.byte_len()).sum()
    }

    /// The tensor called `name`.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.entries.iter().find(|(n, _)| &**n == name).map(|(_, t)| t)
    }

    /// Names and tensors in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Tensor)> {
        self.entries.iter().map(|(name, tensor)| (name, tensor))
    }

    /// The tensors called `names`, in that order. `None` where one is not there, or none is asked for.
    pub fn pick(mut self, names: &[String]) -> Option<Tensors> {
        let take = |name: &String| {
            let at = self.entries.iter().position(|(n, _)| **n == **name)?;
            Some(self.entries.swap_remove(at))
        };
        Tensors::new(names.iter().map(take).collect::<Option<_>>()?).ok()
    }

    /// Names and tensors, taken apart.
    pub fn into_entries(self) -> Vec<(Arc<str>, Tensor)> {
        self.entries
    }

    /// Whether `other` could follow `self` in one batch: same names in the same order, same types, and the same
    /// dimensions behind the batch axis.
    pub fn joins_with(&self, other: &Tensors) -> bool {
        self.entries.len() == other.entries.len()
            && self.entries.iter().zip(&other.entries).all(|((a_name, a), (b_name, b))| {
                a_name == b_name && a.data.datatype() == b.data.datatype() && a.row_shape() == b.row_shape()
            })
    }

    /// Puts the rows of all `parts` behind each other, in order. Fails with [`TensorError::Mismatch`] where two parts
    /// do not [`joins_with`](Self::joins_with) each other.
    pub fn join(parts: Vec<Tensors>) -> Result<Tensors, TensorError> {
        if parts.len() <= 1 {
            return parts.into_iter().next().ok_or(TensorError::Nothing);
        }
        let mut rows = 0usize;
        for part in &parts {
            rows = rows.checked_add(part.common_rows()?).ok_or(TensorError::Mismatch)?;
        }
        let mut parts = parts.into_iter();
        let Some(first) = parts.next() else { return Err(TensorError::Nothing) };
        let mut joined = first;
        for (_, tensor) in &mut joined.entries {
            tensor.shape[0] = rows;
            let mut grown = Data::empty(tensor.data.datatype(), elements(&tensor.shape)?);
            grown.append(&mut tensor.data)?;
            tensor.data = grown;
        }
        for mut part in parts {
            if !joined.joins_with(&part) {
                return Err(TensorError::Mismatch);
            }
            for ((_, whole), (_, piece)) in joined.entries.iter_mut().zip(&mut part.entries) {
                whole.data.append(&mut piece.data)?;
            }
        }
        Ok(joined)
    }

    /// Makes the set `rows` rows long: cuts the last ones off, or puts copies of the last one behind it. Fails with
    /// [`TensorError::Mismatch`] where there is no row to copy.
    pub fn resize_rows(mut self, rows: usize) -> Result<Tensors, TensorError> {
        let have = self.common_rows()?;
        for (_, tensor) in &mut self.entries {
            let width = tensor.row_len();
            if rows <= have {
                tensor.data = tensor.data.slice(0, rows * width);
            } else {
                let last = have.checked_sub(1).ok_or(TensorError::Mismatch)?;
                let last = tensor.data.slice(last * width, have * width);
                for _ in have..rows {
                    tensor.data.append(&mut last.clone())?;
                }
            }
            tensor.shape[0] = rows;
        }
        Ok(self)
    }

    /// Gives each tensor the dimensions `dims[i]` behind its batch axis: elements that do not fit are cut off, new ones are
    /// zero. Fails with [`TensorError::Mismatch`] where the number of dimensions differs.
    pub fn resize(mut self, dims: &[Vec<usize>]) -> Result<Tensors, TensorError> {
        if dims.len() != self.entries.len() {
            return Err(TensorError::Mismatch);
        }
        for ((_, tensor), dims) in self.entries.iter_mut().zip(dims) {
            if tensor.row_shape() == dims {
                continue;
            }
            let shape: Vec<usize> = std::iter::once(tensor.rows()).chain(dims.iter().copied()).collect();
            if shape.len() != tensor.shape.len() {
                return Err(TensorError::Mismatch);
            }
            elements(&shape)?;
            tensor.data = tensor.data.reshaped(&tensor.shape, &shape);
            tensor.shape = shape;
        }
        Ok(self)
    }

    /// Cuts the set into consecutive parts of `rows[i]` rows each: the inverse of [`join`](Self::join). The parts must
    /// add up to all rows.
    pub fn split(self, rows: &[usize]) -> Result<Vec<Tensors>, TensorError> {
        let expected = rows.iter().try_fold(0usize, |n, &r| n.checked_add(r)).ok_or(TensorError::Mismatch)?;
        let found = self.common_rows()?;
        if found != expected {
            return Err(TensorError::Rows { name: self.entries[0].0.to_string(), expected, found });
        }
        if rows.len() == 1 {
            return Ok(vec![self]);
        }
        let mut from = 0;
        let parts = rows.iter().map(|&count| {
            let entries = self.entries.iter().map(|(name, whole)| {
                let width = whole.row_len();
                let mut shape = whole.shape.clone();
                shape[0] = count;
                (Arc::clone(name), Tensor { shape, data: whole.data.slice(from * width, (from + count) * width) })
            });
            let part = Tensors { entries: entries.collect() };
            from += count;
            part
        });
        Ok(parts.collect())
    }
}
