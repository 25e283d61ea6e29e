//! What is said of a model's shapes beside its file.

use std::collections::BTreeMap;

use super::Rows;

/// What is said of a model's shapes, where its file leaves them open or has them wrong. Nothing, by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shapes {
    /// Lengths that free dimensions have from now on, by their names in the file or as `INPUT.AXIS`.
    pub dims: BTreeMap<String, usize>,
    /// The length of every other free dimension behind the batch.
    pub length: Option<usize>,
    /// Where tensors have their rows.
    pub batch_axes: BatchAxes,
}

/// Where tensors have their rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum BatchAxes {
    /// Where they are found by trying.
    #[default]
    Found,
    /// Where these inputs have them, by name; those of the others are found.
    Named(BTreeMap<String, Rows>),
    /// Nowhere: each request is a run of its own, in the model's own shapes.
    Unbatched,
}
