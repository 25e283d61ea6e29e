//! Rows of other lengths than those that a model was first tried with.
//!
//! A branch may go by how long a row is, and rows of a length that is no multiple of a window may fill it together. So rows of several
//! lengths, the shortest first, must be answered alone as they are beside another.

use std::time::Instant;

use super::crossing::Crossing;
use super::sample::{Manner, Sample};
use super::{Attempt, Bench, Found, TIME, axis_of, compare, is_within};
use crate::Cause;
use crate::plan::Failure;
use uncork_model::quote::Quoted;
use uncork_model::tensor::Tensor;

/// Shapes of one row of each input.
type RowShapes = Vec<Vec<usize>>;

/// No more rows than these are asked together where one has no answer alone.
const MOST: usize = 1 << 12;
/// Rows by number that are answered together where each has an answer alone.
const PAIR: [usize; 2] = [1, 0];

/// How rows of other lengths are answered beside another.
enum Beside {
    /// As they are alone.
    Same,
    /// This output is another.
    Other(usize),
    AloneOnly,
    TogetherOnly,
    Never,
}

impl Bench<'_> {
    /// Why rows of some other length change each other's answers, or have one only together.
    pub(super) fn differing(&self, attempt: &Attempt, found: &Found) -> Option<Cause> {
        let begin = Instant::now();
        let longer = attempt.longer.iter().filter(|_| !self.is_late(attempt.took * 6));
        for rows in attempt.shorter.iter().chain(attempt.uneven.iter().flatten()).chain(longer) {
            if begin.elapsed() > TIME {
                break;
            }
            let is_asked = |found: &Beside| !matches!(found, Beside::Never);
            let with = |manner| self.beside(attempt, &Sample { rows, manner, ..attempt.sample(0) }, found, begin);
            let beside = [attempt.manner, Manner::Still].into_iter().map(with).find(is_asked).unwrap_or(Beside::Never);
            let name = |output: usize| Quoted(&self.graph.outline.outputs[output].name);
            let what = match beside {
                Beside::Same | Beside::Never => continue,
                Beside::Other(output) => {
                    format!("is answered otherwise beside another for the output {}", name(output))
                }
                Beside::AloneOnly => "has an answer alone and none beside another".into(),
                Beside::TogetherOnly => "has no answer alone and one beside others".into(),
            };
            let inputs = self.graph.outline.inputs.iter().zip(&attempt.inputs).zip(rows);
            let shapes = inputs.filter(|((_, spec), _)| axis_of(spec).is_some());
            let shapes: Vec<String> =
                shapes.take(4).map(|((input, _), dims)| format!("{} {dims:?}", Quoted(&input.name))).collect();
            return Some(Cause::Doubt { found: format!("a row of {} {what}", shapes.join(", ")), advice: "" });
        }
        None
    }

    /// Why what the file declares once for several rows is not the same as a row for each of them.
    pub(super) fn repeated(&self, attempt: &Attempt) -> Option<Cause> {
        const ROWS: usize = 3;
        let names = self.graph.outline.inputs.iter().zip(&attempt.inputs);
        let (once, _) = names.clone().find(|(_, spec)| spec.repeats)?;
        let given = attempt.sample(0).batch(&[0, 1, 2]).ok()?;
        let with = |count: usize| {
            let inputs = attempt.inputs.iter().zip(&given).map(|(spec, tensor)| match axis_of(spec) {
                Some(axis) if spec.repeats => {
                    let row = tensor.clone().axis_to_front(axis).first_row();
                    Some(row.repeated(count).ok()?.front_to_axis(axis))
                }
                _ => Some(tensor.clone()),
            });
            self.graph.rehearse(inputs.collect::<Option<_>>()?).ok()
        };
        let (declared, repeated) = (with(1)?, with(ROWS)?);
        let mut pairs = declared.iter().zip(&repeated);
        let is_other = pairs.any(|(declared, repeated)| !compare::is_same(declared, repeated));
        let what =
            || format!("input {} is one row for several, and not the same as that row for each", Quoted(&once.name));
        is_other.then(|| Cause::Doubt { found: what(), advice: "" })
    }

    fn beside(&self, attempt: &Attempt, sample: &Sample<'_>, found: &Found, begin: Instant) -> Beside {
        let alone: Result<Vec<Vec<Tensor>>, Failure> = PAIR.iter().map(|&row| self.run(sample, &[row])).collect();
        let Ok(alone) = alone else {
            let size = |rows: &[Vec<usize>]| rows.iter().map(|dims| dims.iter().product::<usize>()).sum::<usize>();
            let whole = size(&attempt.rows);
            let most = (whole / size(sample.rows).max(1)).clamp(2, MOST);
            // Windows fit into the row that was tried first. One row many times: what another has for values says nothing of lengths.
            let mut counts = (2..=most).filter(|count| *count == 2 || whole.is_multiple_of(*count));
            let has_answer = self.run(sample, &[0]).is_err()
                && counts.any(|count| begin.elapsed() < TIME && self.run(sample, &vec![0; count]).is_ok());
            return if has_answer { Beside::TogetherOnly } else { Beside::Never };
        };
        let Ok(many) = self.run(sample, &PAIR) else { return Beside::AloneOnly };
        // An answer with fewer axes than were found breaks the signature.
        if attempt.one.iter().zip(&many).any(|(one, many)| one.shape().len() != many.shape().len()) {
            return Beside::AloneOnly;
        }
        let outputs = || found.rows.iter().zip(&many).enumerate();
        let is_same = |place: usize, output: usize| {
            let (rows, many) = (found.rows[output], &many[output]);
            let one = &alone[place][output];
            one.shape().len() == many.shape().len()
                && is_within(rows, place, many)
                && compare::is_same(one, &compare::row(many, rows, place))
        };
        let other = outputs().find(|&(output, _)| !(0..PAIR.len()).all(|place| is_same(place, output)));
        other.map_or(Beside::Same, |(output, _)| Beside::Other(output))
    }

    /// The first output in which rows meet, and where they do.
    pub(super) fn crossing(&self, attempt: &Attempt) -> Option<(&str, Crossing)> {
        // Values of the other rows may point nowhere.
        let with = |manner| self.crossings(attempt, &Sample { manner, ..attempt.sample(0) });
        let (mut crossings, is_led) = [attempt.manner, Manner::Tame, Manner::Still].into_iter().find_map(with)?;
        // What keeps an index within a row need not where rows are shorter, or where they are in one input and not in another.
        if is_led {
            let shorter = |rows: &RowShapes| {
                // What is a place in a long row may be none in a short one.
                let with = |manner| self.crossings(attempt, &Sample { rows, manner, ..attempt.sample(0) });
                [attempt.manner, Manner::Still].into_iter().find_map(with)
            };
            for each in [&attempt.shorter].into_iter().chain(&attempt.uneven) {
                if crossings.iter().any(Option::is_some) {
                    break;
                }
                if let Some((found, _)) = each.iter().find_map(shorter) {
                    crossings = found;
                }
            }
        }
        let mut named = self.graph.outline.outputs.iter().zip(crossings);
        named.find_map(|(output, crossing)| Some((&*output.name, crossing?)))
    }

    fn crossings(&self, attempt: &Attempt, sample: &Sample<'_>) -> Option<(Vec<Option<Crossing>>, bool)> {
        let numbers: &[usize] = if attempt.took > super::SLOW { &[0, 1] } else { &[0, 1, 2] };
        let rows: Vec<Option<usize>> = attempt.inputs.iter().map(axis_of).collect();
        let (one, many) = (sample.batch(&[0]).ok()?, sample.batch(numbers).ok()?);
        self.graph.crossings(&rows, one, many, numbers.len()).ok()
    }
}
