//! What a request is answered with, and how its rows were run.

use std::time::Duration;

use crate::batcher::Answered;
use crate::runner::Signature;
use crate::tensor::Tensors;

/// How a model runs the rows of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowExecution {
    /// Together with rows of other requests.
    Batched,
    /// Each by itself, because the file takes a single row only. An answer to several rows is then uncork's, not the file's.
    OneByOne,
    /// Each request is a run of its own, in the model's own shapes: its rows may change each other's answers, or it has none.
    Whole,
}

impl RowExecution {
    /// Returns how a model with this signature runs rows, which `shares_batches` between requests or not.
    pub(crate) fn of(signature: &Signature, shares_batches: bool) -> RowExecution {
        match shares_batches {
            _ if signature.is_unbatched() => RowExecution::Whole,
            true => RowExecution::Batched,
            false => RowExecution::OneByOne,
        }
    }

    /// The name that metadata and answers give it.
    pub fn label(self) -> &'static str {
        match self {
            RowExecution::Batched => "batched",
            RowExecution::OneByOne => "one by one",
            RowExecution::Whole => "whole",
        }
    }
}

/// The outputs of a request, and how its batch came to them.
pub(super) type Inferred = Answered<Outputs>;

/// The outputs of a request, as its batch has them.
#[derive(Debug)]
pub(super) struct Outputs {
    pub(super) tensors: Tensors,
    /// Whether the request was run whole, and not by row.
    pub(super) is_whole: bool,
    /// What assembling and executing the batch took.
    pub(super) stages: [Duration; 2],
}

impl Outputs {
    /// Outputs with rows along axis 0.
    pub(super) fn of_rows(tensors: Tensors, stages: [Duration; 2]) -> Outputs {
        Outputs { tensors, is_whole: false, stages }
    }

    /// The rows, along axis 0; `None` if the request was run whole.
    pub(super) fn by_row(self) -> Option<Tensors> {
        (!self.is_whole).then_some(self.tensors)
    }

    /// The same in the model's own shapes.
    pub(super) fn in_own_shapes(self, signature: &Signature) -> Outputs {
        let shapes = if self.is_whole { Signature::whole_shapes } else { Signature::own_shapes };
        Outputs { tensors: shapes(signature, self.tensors), ..self }
    }
}
