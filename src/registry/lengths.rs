//! Rows of different lengths (sentences, say) in one batch: padded with zeros to the longest, answers cut back.

use crate::runner::Signature;
use crate::tensor::{TensorError, Tensors};

/// What becomes of requests whose free dimensions differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lengths {
    /// They run one group of equal lengths after the other. Right for every model; slow where lengths vary much.
    #[default]
    Group,
    /// They run together, padded with zeros to the longest among them. For models that take a mask (of zeros, where the
    /// padding is) or do not care; one whose answers padding changes is refused when it is loaded.
    Pad,
}

/// Lengths of requests that share a batch, and of the batch.
pub(super) struct Padded {
    /// Lengths of the inputs' free dimensions, for each request.
    own: Vec<Vec<usize>>,
    /// The longest of each.
    longest: Vec<usize>,
}

impl Padded {
    /// What padding to the longest in each free dimension means. `None` where answers could not be cut back: two dimensions
    /// become equally long that were not so in some request.
    pub(super) fn of(signature: &Signature, requests: &[Tensors]) -> Option<Padded> {
        let own: Vec<Vec<usize>> = requests.iter().map(|request| free_lengths(signature, request)).collect();
        let dims = own.first().map_or(0, Vec::len);
        let longest: Vec<usize> = (0..dims).map(|d| own.iter().map(|own| own[d]).max().unwrap_or(0)).collect();
        let padded = Padded { own, longest };
        (!padded.own.iter().any(|own| padded.is_ambiguous(own))).then_some(padded)
    }

    /// A request as long as the longest.
    pub(super) fn pad(&self, signature: &Signature, request: Tensors) -> Result<Tensors, TensorError> {
        let mut longest = self.longest.iter();
        let inputs = signature.inputs.iter().zip(request.iter());
        let wanted: Vec<Vec<usize>> = inputs
            .map(|(spec, (_, tensor))| {
                let dims = spec.dims.iter().zip(&tensor.shape()[1..]);
                dims.map(|(dim, &have)| dim.unwrap_or_else(|| *longest.next().unwrap_or(&have))).collect()
            })
            .collect();
        request.resize(&wanted)
    }

    /// Whether two free dimensions are equally long in the batch and were not so in this request.
    fn is_ambiguous(&self, own: &[usize]) -> bool {
        let pairs = self.longest.iter().zip(own).enumerate();
        pairs.clone().any(|(i, (all, own))| pairs.clone().skip(i + 1).any(|(_, (a, o))| a == all && o != own))
    }

    /// The answer of the `i`th request: free dimensions of outputs that are as long as a padded one are cut.
    pub(super) fn cut(&self, signature: &Signature, i: usize, answer: Tensors) -> Result<Tensors, TensorError> {
        let back = |have: usize| {
            let at = self.longest.iter().position(|&longest| longest == have);
            at.map_or(have, |at| self.own[i][at])
        };
        let wanted: Vec<Vec<usize>> = signature
            .outputs
            .iter()
            .zip(answer.iter())
            .map(|(spec, (_, tensor))| {
                let dims = spec.dims.iter().zip(&tensor.shape()[1..]);
                dims.map(|(dim, &have)| dim.unwrap_or_else(|| back(have))).collect()
            })
            .collect();
        answer.resize(&wanted)
    }
}

/// Lengths of the free dimensions of a request's inputs, in the signature's order.
fn free_lengths(signature: &Signature, request: &Tensors) -> Vec<usize> {
    let inputs = signature.inputs.iter().zip(request.iter());
    let dims = inputs.flat_map(|(spec, (_, tensor))| spec.dims.iter().zip(&tensor.shape()[1..]));
    dims.filter(|(dim, _)| dim.is_none()).map(|(_, &length)| length).collect()
}
