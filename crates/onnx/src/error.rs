//! Why an ONNX file cannot be served, in words that say what to change.

use super::trial::Crossing;
use uncork_model::quote::{Quoted, QuotedPlace, on_one_line};
use uncork_model::runner::DeviceError;

/// Why a model could not be loaded. Its text names the place in the graph and is fit for the operator of the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", on_one_line(&.0.to_string(), MOST_BYTES))]
pub struct OnnxError(Cause);

/// Most bytes of a text: with the names in it that are repeated it is seldom longer than a tenth of this.
const MOST_BYTES: usize = 16 * 1024;

impl From<Cause> for OnnxError {
    fn from(cause: Cause) -> OnnxError {
        OnnxError(cause)
    }
}

impl OnnxError {
    /// What kind of error it is: what a program can act on. The text is for people.
    #[must_use]
    pub fn kind(&self) -> OnnxErrorKind {
        match &self.0 {
            Cause::Device(_) => OnnxErrorKind::Device,
            Cause::File(_) => OnnxErrorKind::File,
            Cause::Unreadable(_) => OnnxErrorKind::Unreadable,
            Cause::Operator { .. } => OnnxErrorKind::Operator,
            Cause::Form { .. } => OnnxErrorKind::Form,
            Cause::Unsupported(_) => OnnxErrorKind::Unsupported,
            Cause::Graph(_) => OnnxErrorKind::Broken,
            Cause::Trial { .. } => OnnxErrorKind::Trial,
            Cause::FixedBatch { .. } | Cause::NoBatchAxis { .. } => OnnxErrorKind::NoBatchAxis,
            Cause::Doubt { .. } | Cause::MixedRows { .. } | Cause::Apart(_) => OnnxErrorKind::MixedRows,
            Cause::Lengths { .. } | Cause::Shapes(_) => OnnxErrorKind::Shapes,
        }
    }

    /// The operator and the node that it is about, if it is about one.
    #[must_use]
    pub fn place(&self) -> Option<(&str, &str)> {
        match &self.0 {
            Cause::Operator { operator, node, .. }
            | Cause::Form { operator, node, .. }
            | Cause::Trial { operator, node, .. } => Some((operator, node)),
            _ => None,
        }
    }
}

/// What kind of error an [`OnnxError`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnnxErrorKind {
    /// The device that it is to run on is not there.
    Device,
    /// A file cannot be opened or read.
    File,
    /// The bytes are not an ONNX model, or are cut short.
    Unreadable,
    /// The graph uses an operator that is not implemented.
    Operator,
    /// The operator is implemented, but not with these attributes, types or non-constant inputs.
    Form,
    /// The file is a model, and it uses something that is not implemented.
    Unsupported,
    /// The file is a model, but its graph contradicts itself.
    Broken,
    /// A node failed when the model was tried on a few rows.
    Trial,
    /// An input or an output has no axis along which requests could share a batch.
    NoBatchAxis,
    /// An answer depends on what else is in the batch, or nothing shows that it does not.
    MixedRows,
    /// No length fits a free dimension, or what was said of the shapes does not fit the file.
    Shapes,
}

/// The same with what its text says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Cause {
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
    #[error("{} is not supported{others}; {}", place(operator, node), instead(operator))]
    Operator {
        /// The operator, with its domain where that is not the standard one.
        operator: String,
        /// The first node that uses it.
        node: String,
        /// Empty, or `, nor are 'A', 'B'`: the other operators that are missing.
        others: String,
    },
    /// The operator is implemented, but not with these attributes, types or non-constant inputs.
    #[error("{} is not supported in this form: {reason}", place(operator, node))]
    Form {
        /// The operator.
        operator: String,
        /// The node.
        node: String,
        /// What about it is not supported.
        reason: String,
    },
    /// The file is a model, and it uses something that is not implemented.
    #[error("{0}")]
    Unsupported(String),
    /// The file is a model, but its graph contradicts itself.
    #[error("the graph is broken: {0}")]
    Graph(String),
    /// A node failed when the model was tried on a few rows.
    #[error("{} fails on a trial batch: {reason}", place(operator, node))]
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
        "input {0} {found}, so requests cannot be batched; export the model with a symbolic first dimension: \
         torch.onnx.export(…, dynamic_axes={{{0}: {{0: 'batch'}}}})",
        Quoted(name)
    )]
    FixedBatch {
        /// The input.
        name: String,
        /// What its first dimension is instead.
        found: String,
    },
    /// An output does not have one row for each input row.
    #[error(
        "output {0} {found}, so answers cannot be told apart; the model must keep the batch as first dimension of \
         every output. Does it reshape to a fixed size or reduce over the batch? Export with a symbolic first dimension: \
         torch.onnx.export(…, dynamic_axes={{…, {0}: {{0: 'batch'}}}})",
        Quoted(name)
    )]
    NoBatchAxis {
        /// The output.
        name: String,
        /// What came out instead.
        found: String,
    },
    /// No length that was tried fits the free dimensions.
    #[error(
        "no length that was tried fits its free dimensions ({failure}); {known}: set them by dims = {{ NAME = N }} in its \
         [[model]], or by --dim NAME=N"
    )]
    Lengths {
        /// What the first one led to.
        failure: String,
        /// The free dimensions, in words.
        known: String,
    },
    /// What was said of the shapes does not fit the file.
    #[error("{0}")]
    Shapes(String),
    /// Nothing shows that answers depend on what else is in the batch, and nothing that they do not.
    #[error("{found}, so that one row may change another's answer{advice}")]
    Doubt {
        /// Where in the graph.
        found: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// An answer depends on what else is in the batch.
    #[error(
        "output {} of one row changes with the other rows of its batch, so requests cannot share a batch; {}",
        Quoted(name), mixed(crossing.as_ref())
    )]
    MixedRows {
        /// The output.
        name: String,
        /// Where rows meet, if that was found.
        crossing: Option<Crossing>,
    },
    /// The same of a file that declares a single row: the rows of a request are run one at a time.
    #[error("{0}; the file declares a single row, so a request of several is answered as if each row came alone")]
    Apart(Box<Cause>),
}

/// An operator and its node, in words.
pub(crate) fn place(operator: &str, node: &str) -> String {
    format!("operator {} (node {})", Quoted(operator), QuotedPlace(node))
}

/// Where rows meet, and what to do about it.
fn mixed(crossing: Option<&Crossing>) -> String {
    match crossing {
        Some(crossing) => format!("{crossing}{}", crossing.advice()),
        None => "does the model normalise or reduce over its first dimension, or was it exported in training mode? Export after \
                 model.eval()"
            .into(),
    }
}

/// What to do about an operator that is missing.
fn instead(operator: &str) -> String {
    let (domain, name) = operator.rsplit_once("::").unwrap_or(("", operator));
    match domain {
        "" if RANDOM.contains(&name) => {
            "its numbers are random, so that equal requests would get different answers; feed them as an input".into()
        }
        "" if name == "ImageDecoder" => "decode images before they are sent, and export the network behind it".into(),
        "" => "write that layer with operators that are: docs/operators.md lists them".into(),
        "com.microsoft.nchwc" => {
            "onnxruntime's optimiser wrote this file for one kind of processor; write it at the level \
             ORT_ENABLE_EXTENDED instead of ORT_ENABLE_ALL, or serve the model as it was before"
                .into()
        }
        "com.microsoft" => {
            "it is onnxruntime's own; where an optimiser has put it there, serve the model as it was before".into()
        }
        "ai.onnx.preview.training" | "ai.onnx.training" => {
            "it belongs to training; export the model for inference (model.eval())".into()
        }
        "org.pytorch.aten" | "aten" | "prim" => {
            "PyTorch's exporter found no ONNX operator for it; a newer opset_version, or dynamo=True, may have one"
                .into()
        }
        "ai.onnx.ml" => "docs/operators.md lists what can be served of classical models".into(),
        other => format!(
            "it belongs to {}, which is no domain of ONNX: whoever exported the model has the library that knows \
             it; write that layer with operators of ONNX",
            Quoted(other)
        ),
    }
}

/// Operators whose results nobody could check or repeat.
const RANDOM: [&str; 6] =
    ["Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_instead_depends_on_whose_operator_it_is() {
        let told = |operator: &str, others: &str| {
            let (operator, node) = (operator.to_owned(), "n".to_owned());
            Cause::Operator { operator, node, others: others.to_owned() }.to_string()
        };
        assert_eq!(
            told("com.microsoft.nchwc::Conv", ", nor are 'com.microsoft.nchwc::ReorderInput'"),
            "operator 'com.microsoft.nchwc::Conv' (node 'n') is not supported, nor are 'com.microsoft.nchwc::ReorderInput'; \
             onnxruntime's optimiser wrote this file for one kind of processor; write it at the level ORT_ENABLE_EXTENDED \
             instead of ORT_ENABLE_ALL, or serve the model as it was before"
        );
        for (operator, word) in [
            ("RandomNormal", "feed them as an input"),
            ("com.microsoft::BeamSearch", "onnxruntime's own"),
            ("ai.onnx.preview.training::Adam", "for inference"),
            ("com.example::Whiten", "'com.example', which is no domain of ONNX"),
            ("Nonsense", "docs/operators.md"),
        ] {
            assert!(told(operator, "").contains(word), "{}", told(operator, ""));
            assert!(!told(operator, "").contains("opset_version"));
        }
    }
}
