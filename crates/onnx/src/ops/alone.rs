//! Runs a single node on tensors, for the tests of operators.

use burn_backend::{Element, TensorData};

use crate::author::{Attribute, Author, FREE};
use crate::graph::Graph;

/// The first output of a node whose inputs are all given by the caller; an empty name leaves an input out. The error is
/// what a user reads.
pub(super) fn alone<const N: usize>(
    opset: i64,
    operator: &str,
    attributes: &[(&str, Attribute<'_>)],
    inputs: [(&str, TensorData); N],
) -> Result<TensorData, String> {
    let (names, data): (Vec<&str>, Vec<TensorData>) = inputs.into_iter().unzip();
    let given = names.iter().filter(|name| !name.is_empty());
    let author = given.fold(Author::new(opset), |author, name| author.input(name, &[FREE]));
    let author = author.node(operator, &names, &["out"], attributes).output("out", &[FREE]);
    let graph = Graph::load(&author.finish()).map_err(|e| e.to_string())?;
    let data = names.iter().zip(data).filter(|(name, _)| !name.is_empty()).map(|(_, data)| data).collect();
    let mut outputs = graph.run(data).map_err(|e| e.to_string())?;
    outputs.pop().ok_or_else(|| "no output".into())
}

/// A tensor of rank 0.
pub(super) fn scalar<E: Element>(number: E) -> TensorData {
    TensorData::new(vec![number], [0usize; 0])
}
