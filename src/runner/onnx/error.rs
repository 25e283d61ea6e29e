//! Why an ONNX file cannot be served, in words that say what to change.

use crate::runner::DeviceError;

/// Why a model could not be loaded. Every text names the place in the graph and is fit for the operator of the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OnnxError {
    /// The device that it is to run on is not there.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The model's file cannot be opened or read.
    #[error("cannot be read: {0}")]
    File(String),
    /// The bytes are not an ONNX model, or are cut short.
    #[error("not a readable ONNX file: {0}")]
    Unreadable(String),
    /// The graph uses an operator that is not implemented.
    #[error(
        "operator '{operator}' (node '{node}') is not supported{others}; write that layer with supported operators, or \
         export with another opset_version, which may decompose it"
    )]
    Operator {
        /// The operator, with its domain where that is not the standard one.
        operator: String,
        /// The first node that uses it.
        node: String,
        /// Empty, or `, nor are 'A', 'B'`: the other operators that are missing.
        others: String,
    },
    /// The operator is implemented, but not with these attributes, types or non-constant inputs.
    #[error("operator '{operator}' (node '{node}') is not supported in this form: {reason}")]
    Form {
        /// The operator.
        operator: String,
        /// The node.
        node: String,
        /// What about it is not supported.
        reason: String,
    },
    /// The file is a model, but its graph contradicts itself.
    #[error("the graph is broken: {0}")]
    Graph(String),
    /// A node failed when the model was tried on a few rows of zeros.
    #[error("operator '{operator}' (node '{node}') fails on a trial batch: {reason}")]
    Trial {
        /// The operator.
        operator: String,
        /// The node.
        node: String,
        /// What it complains about.
        reason: String,
    },
    /// An input has no free leading dimension.
    #[error(
        "input '{name}' {found}, so requests cannot be batched; export the model with a symbolic first dimension: \
         torch.onnx.export(…, dynamic_axes={{'{name}': {{0: 'batch'}}}})"
    )]
    FixedBatch {
        /// The input.
        name: String,
        /// What its first dimension is instead.
        found: String,
    },
    /// An output does not have one row for each input row.
    #[error(
        "output '{name}' {found}, so answers cannot be told apart; the model must keep the batch as first dimension of \
         every output. Does it reshape to a fixed size or reduce over the batch? Export with a symbolic first dimension: \
         torch.onnx.export(…, dynamic_axes={{…, '{name}': {{0: 'batch'}}}})"
    )]
    NoBatchAxis {
        /// The output.
        name: String,
        /// What came out instead.
        found: String,
    },
    /// An answer depends on what else is in the batch.
    #[error(
        "output '{name}' of one row changes with the other rows of its batch, so requests cannot share a batch; does the \
         model normalise or reduce over its first dimension, or was it exported in training mode? Export after model.eval()"
    )]
    MixedRows {
        /// The output.
        name: String,
    },
}
