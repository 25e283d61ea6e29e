//! Rows of different lengths (sentences, say) in one batch: padded with zeros to the longest, answers cut back.
//!
//! Which axis of an output has which length is learned when the model is loaded (`probe` runs made-up rows, `follow` decides).
//! At run time two lengths are never taken for one another because their numbers are equal.

mod follow;
mod probe;

use std::sync::Arc;

use crate::tensor::{TensorError, Tensors};

pub(super) use probe::learn;

/// What becomes of requests whose free dimensions differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lengths {
    /// They run one group of equal lengths after the other. Right for every model; slow where lengths vary much.
    #[default]
    Group,
    /// They run together, padded with zeros to the longest among them. For models that take a mask (of zeros, where the
    /// padding is) or do not care. A model is rejected when it is loaded if padding changes its answers, or if trial rows
    /// do not show which output axis has the length of which input.
    Pad,
}

/// How long one axis of a tensor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AxisLength {
    /// Always this long.
    Constant(usize),
    /// As long as the input dimensions of this set, which change together.
    Follows(usize),
}

/// Which input dimensions of a model have one length in common, and which output axes follow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LengthRules {
    /// For each input, the axes of a row.
    inputs: Vec<Vec<AxisLength>>,
    /// For each output, the axes of a row.
    outputs: Vec<Vec<AxisLength>>,
    /// For each set of dimensions, the shortest length that the model has run with.
    shortest: Vec<usize>,
}

impl LengthRules {
    /// Returns the request's length in each set, or `None` if the request has to run in its own shape: dimensions of one set
    /// disagree, one is shorter than any that the model has run with, or a length differs that the rules hold to be constant.
    /// Padding could make a valid request of an invalid one.
    fn lengths_of(&self, request: &Tensors) -> Option<Vec<usize>> {
        let mut lengths = vec![None; self.shortest.len()];
        for (axes, (_, tensor)) in self.inputs.iter().zip(request.iter()) {
            for (axis, &have) in axes.iter().zip(tensor.shape().get(1..)?) {
                let wanted = match *axis {
                    AxisLength::Constant(length) => length,
                    AxisLength::Follows(set) => *lengths[set].get_or_insert(have),
                };
                if have != wanted {
                    return None;
                }
            }
        }
        let lengths: Vec<usize> = lengths.into_iter().collect::<Option<_>>()?;
        lengths.iter().zip(&self.shortest).all(|(have, shortest)| have >= shortest).then_some(lengths)
    }

    /// Whether the request can be padded.
    pub(super) fn can_pad(&self, request: &Tensors) -> bool {
        self.lengths_of(request).is_some()
    }
}

/// Returns the dimensions of a row of each tensor if the sets have these lengths.
fn dims(tensors: &[Vec<AxisLength>], lengths: &[usize]) -> Vec<Vec<usize>> {
    let length = |axis: &AxisLength| match *axis {
        AxisLength::Constant(length) => length,
        AxisLength::Follows(set) => lengths[set],
    };
    tensors.iter().map(|axes| axes.iter().map(length).collect()).collect()
}

/// The lengths of requests that share a run, and of the run.
pub(super) struct PaddedBatch {
    rules: Arc<LengthRules>,
    /// For each request, its length in each set.
    own: Vec<Vec<usize>>,
    /// For each set, the longest of those.
    longest: Vec<usize>,
}

impl PaddedBatch {
    /// Plans to pad `requests` to the longest in each set. `None` if they are equally long, or if one cannot be padded.
    pub(super) fn plan(rules: &Arc<LengthRules>, requests: &[Tensors]) -> Option<PaddedBatch> {
        let own: Vec<Vec<usize>> = requests.iter().map(|request| rules.lengths_of(request)).collect::<Option<_>>()?;
        let sets = 0..rules.shortest.len();
        let longest: Vec<usize> = sets.map(|set| own.iter().map(|own| own[set]).max().unwrap_or_default()).collect();
        let differs = own.iter().any(|own| *own != longest);
        differs.then(|| PaddedBatch { rules: Arc::clone(rules), own, longest })
    }

    /// Whether the request at `place` is shorter than the batch.
    pub(super) fn is_padded(&self, place: usize) -> bool {
        self.own[place] != self.longest
    }

    /// Pads a request to the lengths of the batch.
    pub(super) fn pad(&self, request: Tensors) -> Result<Tensors, TensorError> {
        request.resize(&dims(&self.rules.inputs, &self.longest))
    }

    /// Whether the outputs of the padded batch have exactly the lengths that the rules foresee.
    pub(super) fn agrees(&self, outputs: &Tensors) -> bool {
        let foreseen = dims(&self.rules.outputs, &self.longest);
        outputs.iter().len() == foreseen.len()
            && outputs.iter().zip(&foreseen).all(|((_, tensor), dims)| tensor.shape().get(1..) == Some(dims))
    }

    /// Cuts the answer of the request at `place` to the lengths that the request would have alone.
    pub(super) fn cut(&self, place: usize, answer: Tensors) -> Result<Tensors, TensorError> {
        answer.resize(&dims(&self.rules.outputs, &self.own[place]))
    }
}

#[cfg(test)]
mod tests;
