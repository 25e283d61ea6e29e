//! What a model takes and gives, and whether given tensors agree with it.

use std::sync::Arc;

use crate::quote::{Dims, Quoted};
use crate::tensor::{DataType, Tensors};

/// Name, type and shape of one input or output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// The name that callers use.
    pub name: Arc<str>,
    /// Element type.
    pub datatype: DataType,
    /// Dimensions *behind* the batch axis; `None` where any length is accepted.
    pub dims: Vec<Option<usize>>,
}

/// A model's inputs and outputs, each with the batch axis first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// Inputs, in the model's order.
    pub inputs: Vec<TensorSpec>,
    /// Outputs, in the model's order.
    pub outputs: Vec<TensorSpec>,
}

/// How tensors disagree with a signature, in words fit for a caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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
    #[error("input '{0}' is missing")]
    Missing(String),
    /// A name that comes twice.
    #[error("input '{0}' is given twice")]
    Twice(String),
    /// Another element type.
    #[error("input '{name}' is {found}; this model takes {expected}")]
    DataType {
        /// The tensor.
        name: String,
        /// Type in the signature.
        expected: &'static str,
        /// Type as given.
        found: &'static str,
    },
    /// Another shape.
    #[error("input '{name}' has shape {}; this model takes {expected}", Dims(found))]
    Shape {
        /// The tensor.
        name: String,
        /// Shape in the signature, -1 where any length goes.
        expected: String,
        /// Shape as given.
        found: Vec<usize>,
    },
    /// No rows at all.
    #[error("a request needs at least one row")]
    Empty,
}

impl TensorSpec {
    /// Whether a tensor of `shape` (batch axis first, of any length) fits.
    fn fits(&self, shape: &[usize]) -> bool {
        shape.len() == self.dims.len() + 1
            && shape[1..].iter().zip(&self.dims).all(|(&have, want)| want.is_none_or(|w| w == have))
    }

    /// The shape as the Open Inference Protocol writes it: the batch axis and every free dimension are -1.
    pub fn wire_shape(&self) -> Vec<i64> {
        let dims = self.dims.iter().map(|d| d.map_or(-1, |n| n as i64));
        std::iter::once(-1).chain(dims).collect()
    }
}

impl Signature {
    /// Checks a request's inputs and puts them into the model's order, so that all requests of a batch join by
    /// position. Returns them unchanged otherwise.
    pub fn check(&self, inputs: Tensors) -> Result<Tensors, SignatureError> {
        if inputs.rows() == 0 {
            return Err(SignatureError::Empty);
        }
        let mut given = inputs.into_entries();
        for (i, (name, _)) in given.iter().enumerate() {
            if !self.inputs.iter().any(|s| s.name == *name) {
                let expected: Vec<_> = self.inputs.iter().map(|s| format!("'{}'", s.name)).collect();
                return Err(SignatureError::Unknown { name: name.to_string(), expected: expected.join(", ") });
            }
            if given[..i].iter().any(|(earlier, _)| earlier == name) {
                return Err(SignatureError::Twice(name.to_string()));
            }
        }
        let mut ordered = Vec::with_capacity(self.inputs.len());
        for spec in &self.inputs {
            let at = given.iter().position(|(name, _)| *name == spec.name);
            let at = at.ok_or_else(|| SignatureError::Missing(spec.name.to_string()))?;
            let (_, tensor) = given.swap_remove(at);
            let found = tensor.data().datatype();
            if found != spec.datatype {
                let (expected, found) = (spec.datatype.name(), found.name());
                return Err(SignatureError::DataType { name: spec.name.to_string(), expected, found });
            }
            if !spec.fits(tensor.shape()) {
                let expected = format!("{:?}", spec.wire_shape());
                let found = tensor.shape().to_vec();
                return Err(SignatureError::Shape { name: spec.name.to_string(), expected, found });
            }
            // The signature's own name replaces the caller's copy: names are then shared, not owned by each request.
            ordered.push((Arc::clone(&spec.name), tensor));
        }
        Ok(Tensors::new(ordered).expect("row counts agreed when the set was made"))
    }

    /// Whether `outputs` are what this signature promises for `rows` input rows, in its order.
    pub fn agrees(&self, outputs: &Tensors, rows: usize) -> bool {
        outputs.rows() == rows
            && outputs.iter().len() == self.outputs.len()
            && self.outputs.iter().zip(outputs.iter()).all(|(spec, (name, tensor))| {
                spec.name == *name && tensor.data().datatype() == spec.datatype && spec.fits(tensor.shape())
            })
    }
}
