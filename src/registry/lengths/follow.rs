//! Decides from the shapes of trial runs which output axis has the length of which input dimensions.
//!
//! Pure: `probe` runs the model.

use std::collections::{BTreeMap, BTreeSet};

use super::{AxisLength, LengthRules};
use crate::quote::Quoted;
use crate::runner::{Rows, Signature, TensorSpec};

/// Lengths that must have run in each set of dimensions: with two, an axis could still be long by accident.
pub(super) const LEAST_LENGTHS: usize = 3;

/// The shapes of one trial run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Observation {
    /// Lengths of the inputs' free dimensions, in the signature's order.
    pub(super) lengths: Vec<usize>,
    /// Dimensions of a row of each output.
    pub(super) outputs: Vec<Vec<usize>>,
}

/// Returns each free dimension of the inputs as (input, axis of a row), in the signature's order.
pub(super) fn free_dims(signature: &Signature) -> Vec<(usize, usize)> {
    let axes = signature.inputs.iter().enumerate().flat_map(|(i, spec)| (0..spec.dims.len()).map(move |k| (i, k)));
    axes.filter(|&(i, k)| signature.inputs[i].dims[k].is_none()).collect()
}

/// Decides how long each output axis is. `sets` says for each free input dimension in which set it is, numbered from 0 without
/// gaps; `None` stands for a dimension that ran with its length in `base` alone. The error is a sentence for the operator.
pub(super) fn rules(
    signature: &Signature,
    sets: &[Option<usize>],
    base: &[usize],
    observations: &[Observation],
) -> Result<LengthRules, String> {
    let count = sets.iter().flatten().max().map_or(0, |last| last + 1);
    if count == 0 {
        return Err(
            "rows of no other length than the example's have run, so lengths = \"pad\" has nothing to go by; use \
                    lengths = \"group\""
                .to_owned(),
        );
    }
    // Runs in which a set has no single length say nothing of it.
    let by_set = |seen: &Observation| Some((lengths_of(sets, base, count, &seen.lengths)?, seen.outputs.clone()));
    let observations: Vec<(Vec<usize>, Vec<Vec<usize>>)> = observations.iter().filter_map(by_set).collect();
    let mut shortest = Vec::with_capacity(count);
    for set in 0..count {
        let lengths: BTreeSet<usize> = observations.iter().map(|(lengths, _)| lengths[set]).collect();
        match lengths.first() {
            Some(&least) if lengths.len() >= LEAST_LENGTHS => shortest.push(least),
            _ => return Err(too_few(signature, sets, set, &lengths)),
        }
    }
    let mut free = sets.iter().zip(base);
    let inputs = signature.inputs.iter().map(|spec| {
        let axis = |dim: &Option<usize>| match (dim, dim.is_none().then(|| free.next()).flatten()) {
            (_, Some((&Some(set), _))) => AxisLength::Follows(set),
            (_, Some((None, &length))) => AxisLength::Constant(length),
            (dim, None) => AxisLength::Constant(dim.unwrap_or_default()),
        };
        spec.dims.iter().map(axis).collect()
    });
    let inputs = inputs.collect();
    let outputs = signature.outputs.iter().enumerate().map(|(i, spec)| {
        let axis = |(k, dim): (usize, &Option<usize>)| match *dim {
            Some(length) => Ok(AxisLength::Constant(length)),
            None => {
                let seen: Vec<(&[usize], usize)> =
                    observations.iter().map(|(lengths, outputs)| (lengths.as_slice(), outputs[i][k])).collect();
                axis_length(count, &seen).map_err(|why| {
                    why.in_words(&format!("axis {} of output {}", wire_axis(spec, k), Quoted(&spec.name)))
                })
            }
        };
        spec.dims.iter().enumerate().map(axis).collect::<Result<Vec<_>, String>>()
    });
    let outputs = outputs.collect::<Result<_, _>>()?;
    Ok(LengthRules { inputs, outputs, shortest })
}

/// Returns the length of each set, or `None` if the dimensions of a set disagree, or one without a set is not as in `base`.
fn lengths_of(sets: &[Option<usize>], base: &[usize], count: usize, lengths: &[usize]) -> Option<Vec<usize>> {
    let mut of_sets = vec![None; count];
    for ((set, &base), &length) in sets.iter().zip(base).zip(lengths) {
        let wanted = match *set {
            Some(set) => *of_sets[set].get_or_insert(length),
            None => base,
        };
        if length != wanted {
            return None;
        }
    }
    of_sets.into_iter().collect()
}

/// Why an axis cannot be cut.
#[derive(Debug, PartialEq, Eq)]
enum Unclear {
    /// Rows of equal lengths had answers of these two.
    Values(usize, usize),
    /// It was this long for rows of these lengths, and at least once another.
    Otherwise(usize, Vec<usize>),
    /// Two sets had its length in all runs.
    Both,
}

impl Unclear {
    /// Says it of an axis to the operator.
    fn in_words(self, axis: &str) -> String {
        let why = match self {
            Unclear::Values(one, other) => {
                format!(
                    "has length {one} for one row and {other} for another of the same lengths: it depends on the values"
                )
            }
            Unclear::Otherwise(length, lengths) => {
                let lengths: Vec<String> = lengths.iter().map(ToString::to_string).collect();
                format!(
                    "has length {length} for a row of length {}: it changes with the row's length, and is not equal to it",
                    lengths.join(" and ")
                )
            }
            Unclear::Both => "has the length of two inputs in all rows tried".to_owned(),
        };
        format!("{axis} {why}, so lengths = \"pad\" cannot cut it; use lengths = \"group\"")
    }
}

/// Decides how long an axis is, which had these lengths in runs with these lengths of the sets.
fn axis_length(count: usize, seen: &[(&[usize], usize)]) -> Result<AxisLength, Unclear> {
    let mut of_rows = BTreeMap::new();
    for &(lengths, axis) in seen {
        let first = *of_rows.entry(lengths).or_insert(axis);
        if first != axis {
            return Err(Unclear::Values(first, axis));
        }
    }
    if let Some((&(_, first), others)) = seen.split_first()
        && others.iter().all(|&(_, axis)| axis == first)
    {
        return Ok(AxisLength::Constant(first));
    }
    let misses = |set: usize| seen.iter().find(|(lengths, axis)| lengths[set] != *axis);
    let mut followed = (0..count).filter(|&set| misses(set).is_none());
    match (followed.next(), followed.next()) {
        (Some(set), None) => Ok(AxisLength::Follows(set)),
        (Some(_), Some(_)) => Err(Unclear::Both),
        (None, _) => {
            let (lengths, axis) = misses(0).map_or((Vec::new(), 0), |(lengths, axis)| (lengths.to_vec(), *axis));
            Err(Unclear::Otherwise(axis, lengths))
        }
    }
}

/// Says that a set ran with too few lengths.
fn too_few(signature: &Signature, sets: &[Option<usize>], set: usize, lengths: &BTreeSet<usize>) -> String {
    let first = free_dims(signature).into_iter().zip(sets).find(|(_, of)| **of == Some(set));
    let dim = first.map_or(String::new(), |((i, k), _)| {
        let spec = &signature.inputs[i];
        format!("axis {} of input {}", wire_axis(spec, k), Quoted(&spec.name))
    });
    let ran: Vec<String> = lengths.iter().map(ToString::to_string).collect();
    format!(
        "{dim} ran with {} lengths ({}) where lengths = \"pad\" needs {LEAST_LENGTHS} to tell which outputs follow it; use \
         lengths = \"group\"",
        ran.len(),
        ran.join(", ")
    )
}

/// Returns the place of a row's axis in the tensor that callers see.
fn wire_axis(spec: &TensorSpec, k: usize) -> usize {
    match spec.rows {
        Rows::Axis(rows) if k >= rows => k + 1,
        _ => k,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DataType;

    /// Inputs `ids` and `mask` of one free dimension each, and an output of these dimensions.
    fn signature(output: Vec<Option<usize>>) -> Signature {
        let spec = |name: &str, dims| TensorSpec::new(name, DataType::Fp32, dims);
        Signature { inputs: vec![spec("ids", vec![None]), spec("mask", vec![None])], outputs: vec![spec("y", output)] }
    }

    /// Returns the rules for the output if runs with these lengths of `ids` and `mask` gave these dimensions.
    fn decide(sets: [Option<usize>; 2], seen: &[([usize; 2], &[usize])]) -> Result<Vec<AxisLength>, String> {
        let observe = |&(lengths, output): &([usize; 2], &[usize])| Observation {
            lengths: lengths.to_vec(),
            outputs: vec![output.to_vec()],
        };
        let signature = signature(vec![None; seen[0].1.len()]);
        let observations: Vec<Observation> = seen.iter().map(observe).collect();
        rules(&signature, &sets, &[8, 8], &observations).map(|rules| rules.outputs[0].clone())
    }

    const TIED: [Option<usize>; 2] = [Some(0), Some(0)];
    const APART: [Option<usize>; 2] = [Some(0), Some(1)];

    #[test]
    fn an_axis_follows_a_length_or_is_constant() {
        let seen: &[([usize; 2], &[usize])] = &[([8, 8], &[8, 8]), ([3, 3], &[8, 3]), ([24, 24], &[8, 24])];
        assert_eq!(decide(TIED, seen), Ok(vec![AxisLength::Constant(8), AxisLength::Follows(0)]));
        // Height and width, swapped.
        let seen: &[([usize; 2], &[usize])] =
            &[([8, 8], &[8, 8]), ([3, 8], &[8, 3]), ([9, 8], &[8, 9]), ([8, 3], &[3, 8]), ([8, 9], &[9, 8])];
        assert_eq!(decide(APART, seen), Ok(vec![AxisLength::Follows(1), AxisLength::Follows(0)]));
    }

    #[test]
    fn an_axis_that_changes_in_another_way_is_rejected_in_words() {
        let cut = decide(TIED, &[([8, 8], &[8]), ([3, 3], &[3]), ([24, 24], &[20])]).unwrap_err();
        assert_eq!(
            cut,
            "axis 1 of output 'y' has length 20 for a row of length 24: it changes with the row's length, and is not equal \
             to it, so lengths = \"pad\" cannot cut it; use lengths = \"group\""
        );
        // The sum of two lengths, and the lesser one.
        let sums: &[([usize; 2], &[usize])] =
            &[([8, 8], &[16]), ([3, 8], &[11]), ([9, 8], &[17]), ([8, 3], &[11]), ([8, 9], &[17])];
        assert!(decide(APART, sums).is_err_and(|why| why.contains("length 16 for a row of length 8 and 8")));
        let least: &[([usize; 2], &[usize])] =
            &[([8, 8], &[8]), ([3, 8], &[3]), ([9, 8], &[8]), ([8, 3], &[3]), ([8, 9], &[8])];
        assert!(decide(APART, least).is_err_and(|why| why.contains("is not equal to it")));
    }

    #[test]
    fn a_length_that_values_decide_is_rejected_in_words() {
        let seen: &[([usize; 2], &[usize])] = &[([8, 8], &[5]), ([8, 8], &[6]), ([3, 3], &[5]), ([24, 24], &[5])];
        let why = decide(TIED, seen).unwrap_err();
        assert!(why.contains("has length 5 for one row and 6 for another of the same lengths"), "{why}");
    }

    #[test]
    fn two_lengths_are_too_few_to_tell() {
        let why = decide(TIED, &[([8, 8], &[8]), ([16, 16], &[16])]).unwrap_err();
        assert!(why.starts_with("axis 1 of input 'ids' ran with 2 lengths (8, 16)"), "{why}");
        // A run in which tied lengths disagree is none of either.
        let seen: &[([usize; 2], &[usize])] = &[([8, 8], &[8]), ([16, 16], &[16]), ([3, 8], &[8])];
        assert!(decide(TIED, seen).is_err());
        assert!(decide([None, None], seen).is_err_and(|why| why.contains("no other length than the example's")));
    }

    #[test]
    fn a_dimension_without_a_set_keeps_its_length() {
        let sets = [Some(0), None];
        let seen: &[([usize; 2], &[usize])] = &[([8, 8], &[8]), ([3, 8], &[3]), ([9, 8], &[9]), ([9, 5], &[5])];
        assert_eq!(decide(sets, seen), Ok(vec![AxisLength::Follows(0)]));
    }

    #[test]
    fn axes_are_counted_as_callers_see_them() {
        let spec = TensorSpec { rows: Rows::Axis(1), ..TensorSpec::new("h", DataType::Fp32, vec![None, None]) };
        assert_eq!([0, 1].map(|k| wire_axis(&spec, k)), [0, 2]);
    }
}
