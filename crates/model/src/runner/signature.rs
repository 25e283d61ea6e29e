//! What a model takes and gives, and whether given tensors agree with it.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::quote::{Dims, Quoted, listed};
use crate::tensor::{DataType, Tensor, TensorError, Tensors, elements};

/// Where a tensor's rows are, in the shape that the model and its callers know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// Each is an index along this axis: 0 for most tensors, 1 for what a recurrent network remembers
    /// (`[layers, batch, width]`) or for what is ordered by time first (`[time, batch, classes]`).
    Axis(usize),
    /// It has none: one tensor stands for all rows of a run, as a sampling rate does.
    Shared,
}

/// Name, type and shape of one input or output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// The name that callers use.
    pub name: Arc<str>,
    /// Element type.
    pub datatype: DataType,
    /// Dimensions of a row, which are those of the tensor without the batch axis; `None` where any length is accepted.
    pub dims: Vec<Option<usize>>,
    /// Where the rows are.
    pub rows: Rows,
    /// The integers that an input may hold, where the model has no answer to others (the rows of a table that they index).
    /// A request with another one is refused before it meets a batch.
    pub range: Option<RangeInclusive<i64>>,
    /// Whether one row of an input is taken for all rows of a request: a file that fixes one, and leaves others open, is called so.
    pub repeats: bool,
}

/// A model's inputs and outputs.
///
/// Callers speak the model's own shapes. On the way to a runner every tensor has its rows along axis 0
/// ([`check`](Self::check) brings it there), so that nobody in between needs to know where a model has them;
/// [`own_shapes`](Self::own_shapes) leads back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// Inputs, in the model's order.
    pub inputs: Vec<TensorSpec>,
    /// Outputs, in the model's order.
    pub outputs: Vec<TensorSpec>,
}

/// What a request says of an input ahead of its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announced<'a> {
    /// The input's name.
    pub name: &'a str,
    /// Element type.
    pub datatype: DataType,
    /// The tensor's dimensions.
    pub shape: &'a [usize],
}

/// How tensors disagree with a signature, in words fit for a caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// A tensor that the signature does not know.
    #[error("unknown input {}; this model takes {expected}", Quoted(name))]
    Unknown {
        /// The unknown name.
        name: String,
        /// The known names, quoted and listed.
        expected: String,
    },
    /// A tensor that the signature asks for is not there.
    #[error("input {} is missing", Quoted(.0))]
    Missing(String),
    /// A name that comes twice.
    #[error("input {} is given twice", Quoted(.0))]
    Twice(String),
    /// Another element type.
    #[error("input {} is {found}; this model takes {expected}", Quoted(name))]
    DataType {
        /// The tensor.
        name: String,
        /// Type in the signature.
        expected: &'static str,
        /// Type as given.
        found: &'static str,
    },
    /// Another shape.
    #[error("input {} has shape {}; this model takes {expected}", Quoted(name), Dims(found))]
    Shape {
        /// The tensor.
        name: String,
        /// Shape in the signature, -1 where any length goes.
        expected: String,
        /// Shape as given.
        found: Vec<usize>,
    },
    /// Another number of rows than the inputs before it.
    #[error("input {} has {found} rows where {expected} are expected", Quoted(name))]
    Rows {
        /// The tensor.
        name: String,
        /// Rows of the others.
        expected: usize,
        /// Rows of this one.
        found: usize,
    },
    /// An integer that the model has no answer to.
    #[error("input {} holds {found}, which is out of range: this model takes {lowest} to {highest}", Quoted(name))]
    Value {
        /// The tensor.
        name: String,
        /// The first such element.
        found: i128,
        /// The least that is taken.
        lowest: i64,
        /// The most that is taken.
        highest: i64,
    },
    /// Lengths, beside one of 0, for which nothing would have to be sent and much to be computed.
    #[error(
        "input {} has shape {}, which holds nothing; its other lengths may come to {MOST_HOLLOW} at most",
        Quoted(name),
        Dims(found)
    )]
    Hollow {
        /// The tensor.
        name: String,
        /// Shape as given.
        found: Vec<usize>,
    },
    /// No rows at all.
    #[error("a request needs at least one row")]
    Empty,
    /// A tensor that is the same for all rows, and too large to be kept for each.
    #[error(transparent)]
    Size(#[from] TensorError),
}

/// What the free lengths of a tensor without elements come to at most, beside those that are 0: a caller names them for nothing, and a model may
/// make outputs of them.
const MOST_HOLLOW: usize = 4096;

impl TensorSpec {
    /// A tensor whose rows are along axis 0.
    pub fn new(name: impl Into<Arc<str>>, datatype: DataType, dims: Vec<Option<usize>>) -> TensorSpec {
        TensorSpec { name: name.into(), datatype, dims, rows: Rows::Axis(0), range: None, repeats: false }
    }

    /// Whether one row may stand for all rows of a request.
    fn is_for_all(&self) -> bool {
        self.repeats || self.rows == Rows::Shared
    }

    /// Whether a row may have this shape.
    fn fits(&self, row: &[usize]) -> bool {
        row.len() == self.dims.len() && row.iter().zip(&self.dims).all(|(&have, want)| want.is_none_or(|w| w == have))
    }

    /// The rows of a caller's tensor of this shape; those that share it have one. `None` where it may not have this shape.
    fn rows_of(&self, shape: &[usize]) -> Option<usize> {
        let (rows, row) = match self.rows {
            Rows::Axis(0) => shape.split_first()?,
            Rows::Axis(axis) => {
                let row = [shape.get(..axis)?, shape.get(axis + 1..)?].concat();
                return self.fits(&row).then(|| shape[axis]);
            }
            Rows::Shared if self.fits(shape) => return Some(1),
            // For each row, or in the list of one that some clients make of a number.
            Rows::Shared => shape.split_first()?,
        };
        self.fits(row).then_some(*rows)
    }

    /// Whether a caller's tensor of this shape has no elements, and costs all the same.
    fn is_hollow(&self, shape: &[usize]) -> bool {
        let free = shape.iter().zip(self.wire_shape()).filter(|(length, own)| **length > 0 && *own < 0);
        shape.contains(&0) && free.map(|(length, _)| *length).fold(1, usize::saturating_mul) > MOST_HOLLOW
    }

    /// A caller's tensor, of a shape that it may have, with its rows along axis 0.
    fn rows_in_front(&self, tensor: Tensor) -> Result<Tensor, TensorError> {
        match self.rows {
            Rows::Axis(axis) => Ok(tensor.axis_to_front(axis)),
            Rows::Shared if self.fits(tensor.shape()) => tensor.repeated(1),
            Rows::Shared => Ok(tensor),
        }
    }

    /// A tensor that has its rows along axis 0 in the model's own shape.
    pub fn own_shape(&self, tensor: Tensor) -> Tensor {
        match self.rows {
            Rows::Axis(axis) => tensor.front_to_axis(axis),
            Rows::Shared => tensor.first_row(),
        }
    }

    /// The shape as the Open Inference Protocol writes it: the batch axis and every free dimension are -1.
    pub fn wire_shape(&self) -> Vec<i64> {
        let mut shape: Vec<i64> = self.dims.iter().map(|d| d.map_or(-1, |n| n as i64)).collect();
        if let Rows::Axis(axis) = self.rows {
            shape.insert(axis.min(shape.len()), -1);
        }
        shape
    }
}

impl Signature {
    /// Whether the model has no notion of rows: each request is a run of its own.
    pub fn is_unbatched(&self) -> bool {
        self.inputs.iter().all(|spec| spec.rows == Rows::Shared)
    }

    /// Checks what can be known of a request's inputs before their elements are read: names, types, shapes. Returns the
    /// bytes of memory that the elements will take, without the contents of byte strings.
    pub fn admit(&self, inputs: &[Announced<'_>]) -> Result<usize, SignatureError> {
        for (i, Announced { name, .. }) in inputs.iter().enumerate() {
            if !self.inputs.iter().any(|spec| *spec.name == **name) {
                let names: Vec<_> = self.inputs.iter().map(|spec| &*spec.name).collect();
                return Err(SignatureError::Unknown { name: (*name).to_owned(), expected: listed(&names) });
            }
            if inputs[..i].iter().any(|earlier| earlier.name == *name) {
                return Err(SignatureError::Twice((*name).to_owned()));
            }
        }
        let (mut most_rows, mut bytes, mut shared_bytes) = (1, 0usize, 0usize);
        for spec in &self.inputs {
            let given = inputs.iter().find(|input| *input.name == *spec.name);
            let input = given.ok_or_else(|| SignatureError::Missing(spec.name.to_string()))?;
            if input.datatype != spec.datatype {
                let (expected, found) = (spec.datatype.name(), input.datatype.name());
                return Err(SignatureError::DataType { name: spec.name.to_string(), expected, found });
            }
            let Some(rows) = spec.rows_of(input.shape) else {
                let (expected, found) = (format!("{:?}", spec.wire_shape()), input.shape.to_vec());
                return Err(SignatureError::Shape { name: spec.name.to_string(), expected, found });
            };
            if spec.is_hollow(input.shape) {
                return Err(SignatureError::Hollow { name: spec.name.to_string(), found: input.shape.to_vec() });
            }
            most_rows = most_rows.max(rows);
            let takes = elements(input.shape)?.saturating_mul(spec.datatype.byte_len());
            let sum = if spec.is_for_all() && rows == 1 { &mut shared_bytes } else { &mut bytes };
            *sum = sum.saturating_add(takes);
        }
        Ok(bytes.saturating_add(shared_bytes.saturating_mul(most_rows)))
    }

    /// Checks a request's inputs, puts them into the model's order, so that all requests of a batch join by position, and
    /// brings the rows of each to axis 0. What all rows share is then there for each of them.
    pub fn check(&self, inputs: Tensors) -> Result<Tensors, SignatureError> {
        let ordered = self.ordered(inputs)?;
        let rows = self.common_rows(&ordered)?;
        self.in_front(ordered, rows)
    }

    /// Checks a request's inputs as [`check`](Self::check) does, except that inputs without a common number of rows, or
    /// without any row, are kept whole: each in the model's own shape, behind a new axis 0 of length 1. A file may
    /// broadcast one of them to the others, and only the file knows.
    pub fn check_whole(&self, inputs: Tensors) -> Result<Tensors, SignatureError> {
        let ordered = self.ordered(inputs)?;
        if let Ok(rows) = self.common_rows(&ordered) {
            return self.in_front(ordered, rows);
        }
        let whole = |(spec, (name, tensor)): (&TensorSpec, (Arc<str>, Tensor))| match spec.rows {
            // Given for each row, and not once for all.
            Rows::Shared if !spec.fits(tensor.shape()) => {
                Err(SignatureError::Rows { name: name.to_string(), expected: 1, found: tensor.rows() })
            }
            _ => Ok((name, tensor.repeated(1)?)),
        };
        Ok(Tensors::new(self.inputs.iter().zip(ordered).map(whole).collect::<Result<_, _>>()?)?)
    }

    /// Keeps a checked request whole, as [`check_whole`](Self::check_whole) keeps others.
    pub fn keep_whole(&self, inputs: Tensors) -> Result<Tensors, TensorError> {
        let whole =
            |(spec, (name, tensor)): (&TensorSpec, (Arc<str>, Tensor))| Ok((name, spec.own_shape(tensor).repeated(1)?));
        Tensors::new(self.inputs.iter().zip(inputs.into_entries()).map(whole).collect::<Result<_, TensorError>>()?)
    }

    /// Whether checked inputs are those of a request that was kept whole.
    pub fn is_whole(&self, inputs: &Tensors) -> bool {
        let mut ranks = self.inputs.iter().zip(inputs.iter());
        ranks.any(|(spec, (_, tensor))| spec.rows != Rows::Shared && tensor.shape().len() == spec.dims.len() + 2)
    }

    /// Rows of a request whose inputs are not checked yet, in the model's own shapes; 1 for a model without rows.
    pub fn rows(&self, inputs: &Tensors) -> usize {
        let axes = self.inputs.iter().filter_map(|spec| match spec.rows {
            Rows::Axis(axis) => inputs.get(&spec.name)?.shape().get(axis).copied(),
            Rows::Shared => None,
        });
        axes.max().unwrap_or(1)
    }

    /// Rows of the longest input of a request that was kept whole.
    pub fn longest(&self, inputs: &Tensors) -> usize {
        let rows = self.inputs.iter().zip(inputs.iter()).map(|(spec, (_, tensor))| match spec.rows {
            Rows::Axis(axis) => tensor.shape().get(axis + 1).copied().unwrap_or(1),
            Rows::Shared => 1,
        });
        rows.max().unwrap_or(1)
    }

    /// A request's inputs in the model's order and in its own shapes.
    fn ordered(&self, inputs: Tensors) -> Result<Vec<(Arc<str>, Tensor)>, SignatureError> {
        let given: Vec<_> = inputs
            .iter()
            .map(|(name, tensor)| Announced { name, datatype: tensor.data().datatype(), shape: tensor.shape() })
            .collect();
        self.admit(&given)?;
        let mut given = inputs.into_entries();
        let mut ordered = Vec::with_capacity(self.inputs.len());
        for spec in &self.inputs {
            let at = given.iter().position(|(name, _)| *name == spec.name);
            let at = at.ok_or_else(|| SignatureError::Missing(spec.name.to_string()))?;
            let tensor = given.swap_remove(at).1;
            if let Some(range) = &spec.range
                && let Some(found) = tensor.data().integer_outside(range)
            {
                let (name, lowest, highest) = (spec.name.to_string(), *range.start(), *range.end());
                return Err(SignatureError::Value { name, found, lowest, highest });
            }
            // The signature's own name replaces the caller's copy: names are then shared, not owned by each request.
            ordered.push((Arc::clone(&spec.name), tensor));
        }
        Ok(ordered)
    }

    /// The number of rows that inputs in the model's order have, or which of them has another number.
    fn common_rows(&self, inputs: &[(Arc<str>, Tensor)]) -> Result<usize, SignatureError> {
        let counts = || {
            let specs = self.inputs.iter().zip(inputs);
            specs.map(|(spec, (name, tensor))| (spec, name, spec.rows_of(tensor.shape()).unwrap_or(1)))
        };
        let own = counts().filter(|(spec, ..)| spec.rows != Rows::Shared);
        let first = own.min_by_key(|(spec, _, count)| spec.repeats && *count == 1);
        let rows = first.map_or(1, |(.., count)| count);
        if rows == 0 {
            return Err(SignatureError::Empty);
        }
        let other = counts().find(|&(spec, _, count)| count != rows && (count != 1 || !spec.is_for_all()));
        match other {
            Some((_, name, found)) => Err(SignatureError::Rows { name: name.to_string(), expected: rows, found }),
            None => Ok(rows),
        }
    }

    /// Inputs in the model's order, each with this many rows along axis 0.
    fn in_front(&self, inputs: Vec<(Arc<str>, Tensor)>, rows: usize) -> Result<Tensors, SignatureError> {
        let in_front = |(spec, (name, tensor)): (&TensorSpec, (Arc<str>, Tensor))| {
            let tensor = spec.rows_in_front(tensor)?;
            let tensor = if tensor.rows() == rows { tensor } else { tensor.first_row().repeated(rows)? };
            Ok::<_, SignatureError>((name, tensor))
        };
        Ok(Tensors::new(self.inputs.iter().zip(inputs).map(in_front).collect::<Result<_, _>>()?)?)
    }

    /// Outputs that have their rows along axis 0 in the model's own shapes.
    pub fn own_shapes(&self, outputs: Tensors) -> Tensors {
        if self.outputs.iter().all(|spec| spec.rows == Rows::Axis(0)) {
            return outputs;
        }
        let own = |(spec, (name, tensor)): (&TensorSpec, (Arc<str>, Tensor))| (name, spec.own_shape(tensor));
        let entries = self.outputs.iter().zip(outputs.into_entries()).map(own).collect();
        Tensors::new(entries).expect("there are as many as before")
    }

    /// Outputs of a request that was kept whole, in the model's own shapes.
    pub fn whole_shapes(&self, outputs: Tensors) -> Tensors {
        let entries = outputs.into_entries().into_iter().map(|(name, tensor)| (name, tensor.first_row())).collect();
        Tensors::new(entries).expect("there are as many as before")
    }

    /// Whether `outputs` are what this signature promises for `rows` input rows, in its order and with rows along axis 0.
    ///
    /// A model without rows may give outputs of any shape: values of the request can decide even how many axes they have
    /// (the `axes` of ONNX's `Squeeze`), and each request gets its own outputs whole.
    pub fn agrees(&self, outputs: &Tensors, rows: usize) -> bool {
        let is_whole = self.is_unbatched();
        self.has_names_of(outputs)
            && self.outputs.iter().zip(outputs.iter()).all(
                |(spec, (_, tensor))| matches!(tensor.shape(), [own, row @ ..] if *own == rows && (is_whole || spec.fits(row))),
            )
    }

    /// Whether `outputs` have the names and types of this signature, in its order.
    pub fn has_names_of(&self, outputs: &Tensors) -> bool {
        outputs.iter().len() == self.outputs.len()
            && self
                .outputs
                .iter()
                .zip(outputs.iter())
                .all(|(spec, (name, tensor))| spec.name == *name && tensor.data().datatype() == spec.datatype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Data;

    /// Audio `[-1, 2]`, a state `[2, -1, 1]` and a rate `[]`, as a recurrent detector of speech takes them.
    fn speech() -> Signature {
        let spec = |name: &str, dims, rows| TensorSpec { rows, ..TensorSpec::new(name, DataType::Fp32, dims) };
        Signature {
            inputs: vec![
                spec("audio", vec![Some(2)], Rows::Axis(0)),
                spec("state", vec![Some(2), Some(1)], Rows::Axis(1)),
                spec("rate", vec![], Rows::Shared),
            ],
            outputs: vec![spec("p", vec![], Rows::Axis(0)), spec("next", vec![Some(2), Some(1)], Rows::Axis(1))],
        }
    }

    fn tensor(shape: &[usize], data: &[f32]) -> Tensor {
        Tensor::new(shape.to_vec(), data.to_vec()).unwrap()
    }

    fn request(audio: Tensor, state: Tensor, rate: Tensor) -> Result<Tensors, SignatureError> {
        let named = [("audio", audio), ("rate", rate), ("state", state)];
        let named = named.into_iter().map(|(name, tensor)| (name.into(), tensor)).collect();
        speech().check(Tensors::new(named).unwrap())
    }

    #[test]
    fn one_row_of_what_a_file_fixes_at_one_is_for_all_rows() {
        let spec = |name: &str| TensorSpec::new(name, DataType::Fp32, vec![Some(1)]);
        let inputs = vec![TensorSpec { repeats: true, ..spec("mask") }, spec("x")];
        let signature = Signature { inputs, outputs: vec![spec("y")] };
        let given = |mask: &[f32], x: &[f32]| {
            let column = |data: &[f32]| tensor(&[data.len(), 1], data);
            signature.check(Tensors::new(vec![("x".into(), column(x)), ("mask".into(), column(mask))]).unwrap())
        };
        let mask = |checked: Tensors| checked.get("mask").unwrap().clone();
        assert_eq!(mask(given(&[5.0], &[1.0, 2.0, 3.0]).unwrap()), tensor(&[3, 1], &[5.0; 3]));
        assert_eq!(mask(given(&[5.0, 6.0], &[1.0, 2.0]).unwrap()), tensor(&[2, 1], &[5.0, 6.0]));
        assert!(matches!(given(&[5.0, 6.0], &[1.0]), Err(SignatureError::Rows { .. })));
        assert!(matches!(given(&[5.0, 6.0], &[1.0; 3]), Err(SignatureError::Rows { .. })));
        assert!(matches!(given(&[5.0], &[]), Err(SignatureError::Empty)));
    }

    #[test]
    fn an_integer_that_a_table_has_no_row_for_is_refused_with_the_ones_that_it_has() {
        let tokens = TensorSpec { range: Some(-10..=9), ..TensorSpec::new("ids", DataType::Int64, vec![None]) };
        let signature = Signature { inputs: vec![tokens], outputs: Vec::new() };
        let ids = |ids: Vec<i64>| Tensors::one("ids", Tensor::new(vec![1, ids.len()], ids).expect("a row"));
        assert!(signature.check(ids(vec![-10, 0, 9])).is_ok());
        let error = signature.check(ids(vec![3, 10, 11])).expect_err("10 is beyond the table").to_string();
        assert_eq!(error, "input 'ids' holds 10, which is out of range: this model takes -10 to 9");
        assert!(signature.check(ids(vec![-11])).is_err());
    }

    #[test]
    fn a_shape_without_elements_is_no_way_to_ask_for_much() {
        let spec = TensorSpec::new("x", DataType::Fp32, vec![None, None, Some(100_000)]);
        let signature = Signature { inputs: vec![spec], outputs: Vec::new() };
        let takes = |shape| signature.admit(&[Announced { name: "x", datatype: DataType::Fp32, shape }]);
        assert_eq!(takes(&[1, 0, 640, 100_000]), Ok(0), "as a detector hands on that has found nothing");
        assert_eq!(takes(&[1, 4096, 0, 100_000]), Ok(0));
        let error = takes(&[1, 268_000_000, 0, 100_000]).expect_err("it would be computed").to_string();
        assert!(error.contains("which holds nothing; its other lengths may come to 4096 at most"), "{error}");
        assert!(takes(&[2, 4096, 0, 100_000]).is_err() && takes(&[1, 4097, 1, 100_000]).is_ok());
    }

    #[test]
    fn what_a_request_will_take_is_known_before_its_elements_are_read() {
        let f32s = |name, shape| Announced { name, datatype: DataType::Fp32, shape };
        let takes =
            |audio, state, rate| speech().admit(&[f32s("rate", rate), f32s("audio", audio), f32s("state", state)]);
        // 3 rows of 2, 3 of 2 and a rate for each.
        assert_eq!(takes(&[3, 2], &[2, 3, 1], &[]), Ok(4 * (6 + 6 + 3)));
        assert_eq!(takes(&[3, 2], &[2, 3, 1], &[3]), Ok(4 * (6 + 6 + 3)));
        let words = takes(&[3, 2], &[3, 2, 1], &[]).expect_err("the state has another shape").to_string();
        assert_eq!(words, "input 'state' has shape [3, 2, 1]; this model takes [2, -1, 1]");
        assert!(takes(&[usize::MAX, 2], &[2, 1, 1], &[]).is_err(), "more than can be addressed");
        let texts = TensorSpec::new("s", DataType::Bytes, vec![None]);
        let texts = Signature { inputs: vec![texts], outputs: Vec::new() };
        let named = |datatype| texts.admit(&[Announced { name: "s", datatype, shape: &[10, 100] }]);
        assert_eq!(named(DataType::Bytes), Ok(1000 * size_of::<Vec<u8>>()));
        assert_eq!(
            named(DataType::Fp32).expect_err("no text").to_string(),
            "input 's' is FP32; this model takes BYTES"
        );
    }

    #[test]
    fn rows_come_to_the_front_wherever_the_model_has_them() {
        let state = tensor(&[2, 3, 1], &[1.0, 2.0, 3.0, 10.0, 20.0, 30.0]);
        let checked = request(tensor(&[3, 2], &[0.0; 6]), state.clone(), tensor(&[], &[16.0])).unwrap();
        let state_by_row = checked.get("state").unwrap().clone();
        assert_eq!(state_by_row.shape(), [3, 2, 1]);
        assert_eq!(state_by_row.data(), &Data::from(vec![1.0f32, 10.0, 2.0, 20.0, 3.0, 30.0]));
        assert_eq!(checked.get("rate").unwrap(), &tensor(&[3], &[16.0; 3]));
        let rows = checked.split(&[1, 2]).unwrap();
        assert_eq!(rows[1].get("state").unwrap().data(), &Data::from(vec![2.0f32, 20.0, 3.0, 30.0]));
        let answer = vec![("p".into(), tensor(&[3], &[0.0; 3])), ("next".into(), state_by_row)];
        let own = speech().own_shapes(Tensors::new(answer).unwrap());
        assert_eq!(own.get("next").unwrap(), &state);
    }

    #[test]
    fn what_all_rows_share_may_be_given_for_each_of_them() {
        let with = |rate| request(tensor(&[2, 2], &[0.0; 4]), tensor(&[2, 2, 1], &[0.0; 4]), rate);
        let rates = |rate| with(rate).map(|checked| checked.get("rate").unwrap().data().clone());
        assert_eq!(rates(tensor(&[], &[8.0])), Ok(Data::from(vec![8.0f32; 2])));
        assert_eq!(rates(tensor(&[1], &[8.0])), Ok(Data::from(vec![8.0f32; 2])));
        assert_eq!(rates(tensor(&[2], &[8.0, 16.0])), Ok(Data::from(vec![8.0f32, 16.0])));
        let three = rates(tensor(&[3], &[8.0; 3])).unwrap_err().to_string();
        assert_eq!(three, "input 'rate' has 3 rows where 2 are expected");
        assert!(rates(tensor(&[1, 1], &[8.0])).is_err());
    }

    #[test]
    fn inputs_that_disagree_about_the_rows_are_named() {
        let error = request(tensor(&[2, 2], &[0.0; 4]), tensor(&[2, 1, 1], &[0.0; 2]), tensor(&[], &[8.0]));
        assert_eq!(error.unwrap_err().to_string(), "input 'state' has 1 rows where 2 are expected");
        let error = request(tensor(&[1, 2], &[0.0; 2]), tensor(&[1, 1, 1], &[0.0]), tensor(&[], &[8.0]));
        let words = "input 'state' has shape [1, 1, 1]; this model takes [2, -1, 1]";
        assert_eq!(error.unwrap_err().to_string(), words);
        let error = request(tensor(&[0, 2], &[]), tensor(&[2, 0, 1], &[]), tensor(&[], &[8.0]));
        assert_eq!(error, Err(SignatureError::Empty));
    }

    #[test]
    fn inputs_without_a_common_number_of_rows_can_be_kept_whole() {
        let named = |audio, state| {
            let named = [("audio", audio), ("rate", tensor(&[], &[8.0])), ("state", state)];
            Tensors::new(named.into_iter().map(|(name, tensor)| (name.into(), tensor)).collect()).unwrap()
        };
        let shapes = |checked: &Tensors| checked.iter().map(|(_, t)| t.shape().to_vec()).collect::<Vec<_>>();
        let signature = speech();
        let whole = signature.check_whole(named(tensor(&[2, 2], &[1.0; 4]), tensor(&[2, 1, 1], &[2.0; 2]))).unwrap();
        assert_eq!(shapes(&whole), [vec![1, 2, 2], vec![1, 2, 1, 1], vec![1]]);
        assert!(signature.is_whole(&whole));
        assert_eq!(signature.longest(&whole), 2);
        let none = signature.check_whole(named(tensor(&[0, 2], &[]), tensor(&[2, 0, 1], &[]))).unwrap();
        assert_eq!((shapes(&none), signature.longest(&none)), (vec![vec![1, 0, 2], vec![1, 2, 0, 1], vec![1]], 1));
        let rows = signature.check_whole(named(tensor(&[2, 2], &[1.0; 4]), tensor(&[2, 2, 1], &[2.0; 4]))).unwrap();
        assert!(!signature.is_whole(&rows) && rows.rows() == 2);
        let outputs = vec![("p".into(), tensor(&[1, 7], &[0.0; 7])), ("next".into(), tensor(&[1], &[0.0]))];
        let outputs = signature.whole_shapes(Tensors::new(outputs).unwrap());
        assert_eq!(shapes(&outputs), [vec![7], vec![]]);
    }

    #[test]
    fn a_model_without_rows_takes_its_own_shapes_as_one() {
        let spec = |name: &str, dims| TensorSpec { rows: Rows::Shared, ..TensorSpec::new(name, DataType::Fp32, dims) };
        let image = spec("image", vec![Some(1), None]);
        let signature = Signature { inputs: vec![image], outputs: vec![spec("boxes", vec![None, Some(2)])] };
        assert!(signature.is_unbatched());
        assert_eq!(signature.inputs[0].wire_shape(), [1, -1]);
        let checked = signature.check(Tensors::one("image", tensor(&[1, 3], &[0.0; 3]))).unwrap();
        assert_eq!((checked.rows(), checked.get("image").unwrap().shape()), (1, &[1, 1, 3][..]));
        let boxes = Tensors::one("boxes", tensor(&[1, 4, 2], &[0.0; 8]));
        assert!(signature.agrees(&boxes, 1));
        assert_eq!(signature.own_shapes(boxes).get("boxes").unwrap().shape(), [4, 2]);
    }
}
