//! Lengths that a model is tried with where its file leaves them free.

use std::collections::HashMap;

use crate::outline::{Declared, Dim};
use uncork_model::runner::Rows;
use uncork_model::tensor::DataType;

/// A length of each kind. Sequences are happy with a short one, deep networks need large images, and raw audio comes in pieces
/// of a few lengths that some models insist on.
struct Choice {
    side: usize,
    samples: usize,
    steps: usize,
}

const CHOICES: [Choice; 9] = [
    Choice { side: 64, samples: 512, steps: 16 },
    Choice { side: 224, samples: 16_000, steps: 8 },
    Choice { side: 48, samples: 576, steps: 64 },
    Choice { side: 640, samples: 1_536, steps: 128 },
    Choice { side: 32, samples: 256, steps: 224 },
    Choice { side: 320, samples: 64, steps: 512 },
    Choice { side: 16, samples: 16, steps: 1 },
    Choice { side: 1, samples: 1, steps: 32 },
    Choice { side: 512, samples: 32_000, steps: 4 },
];

/// Channels of an image, in colours or in grey.
const CHANNELS: [usize; 2] = [3, 1];

/// Lengths with which a row of an input has more numbers are not tried, but for up to four times the least: an image of 640 × 640 has 1.2 million, three sides of 128
/// have 2 million.
const MOST_NUMBERS: usize = 1 << 22;

/// What a free dimension is likely to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rows,
    Channels,
    /// Height or width of an image.
    Side,
    /// Raw audio.
    Samples,
    /// Words, frames, or whatever else comes one after the other.
    Steps,
}

/// Shapes of all inputs, of one row each.
pub(super) type Shapes = Vec<Vec<usize>>;

/// Shapes to try, the likeliest first; one where nothing is free. `rows` says where each input has its rows, and `all` gives
/// every other free dimension its length.
pub(super) fn shapes(inputs: &[Declared], types: &[DataType], rows: &[Rows], all: Option<usize>) -> Vec<Shapes> {
    let kinds: Vec<Vec<Option<Kind>>> =
        inputs.iter().zip(types).zip(rows).map(|((input, &datatype), &rows)| kinds(input, datatype, rows)).collect();
    let has = |wanted: Kind| kinds.iter().flatten().any(|kind| *kind == Some(wanted));
    let is_free = [Kind::Side, Kind::Samples, Kind::Steps].into_iter().any(has) && all.is_none();
    let choices = if is_free { &CHOICES[..] } else { &CHOICES[..1] };
    let channels = if has(Kind::Channels) && all.is_none() { &CHANNELS[..] } else { &CHANNELS[..1] };
    let tries = choices.iter().flat_map(|choice| channels.iter().map(move |&channels| (choice, channels)));
    let shapes = tries.map(|(choice, channels)| {
        fill(inputs, &kinds, |kind| match (kind, all) {
            (Kind::Rows, _) => 1,
            (_, Some(length)) => length,
            (Kind::Channels, _) => channels,
            (Kind::Side, _) => choice.side,
            (Kind::Samples, _) => choice.samples,
            (Kind::Steps, _) => choice.steps,
        })
    });
    let mut shapes: Vec<Shapes> = shapes.collect();
    let least = shapes.iter().map(numbers).min().unwrap_or_default();
    shapes.retain(|shapes| numbers(shapes) <= MOST_NUMBERS.max(least.saturating_mul(4)));
    shapes
}

/// How many numbers the largest input of these shapes has.
fn numbers(shapes: &Shapes) -> usize {
    let one = |shape: &Vec<usize>| shape.iter().fold(1_usize, |product, &n| product.saturating_mul(n));
    shapes.iter().map(one).max().unwrap_or_default()
}

/// Shapes whose free dimensions are of other lengths, but for rows and channels; the same where none is.
pub(super) fn changed(
    inputs: &[Declared],
    types: &[DataType],
    rows: &[Rows],
    shapes: &Shapes,
    change: impl Fn(usize) -> usize,
) -> Shapes {
    let inputs = inputs.iter().zip(types).zip(rows).zip(shapes);
    let other = |(((input, &datatype), &rows), shape): (((&Declared, &DataType), &Rows), &Vec<usize>)| {
        let kinds = kinds(input, datatype, rows).into_iter().zip(shape);
        let one = |(kind, &n): (Option<Kind>, &usize)| match kind {
            Some(Kind::Side | Kind::Samples | Kind::Steps) => change(n),
            // No rows, though its name says so.
            Some(Kind::Rows) if rows == Rows::Shared => change(n),
            _ => n,
        };
        kinds.map(one).collect()
    };
    inputs.map(other).collect()
}

/// Of shapes that differ in several dimensions from others, those that differ in one: by the dimension.
pub(super) fn single(shapes: &Shapes, others: &[Shapes]) -> Vec<Vec<Shapes>> {
    let places = shapes.iter().enumerate().flat_map(|(input, shape)| (0..shape.len()).map(move |axis| (input, axis)));
    let is_free =
        |&(input, axis): &(usize, usize)| others.iter().any(|other| other[input][axis] != shapes[input][axis]);
    let at = |(input, axis): (usize, usize)| {
        let alone = |other: &Shapes| {
            let mut changed = shapes.clone();
            changed[input][axis] = other[input][axis];
            changed
        };
        others.iter().map(alone).collect()
    };
    places.filter(is_free).map(at).collect()
}

/// The kinds of an input's dimensions; `None` for those that the file fixes.
fn kinds(input: &Declared, datatype: DataType, rows: Rows) -> Vec<Option<Kind>> {
    let dims = input.dims.as_deref().unwrap_or_default();
    let is_float = matches!(datatype, DataType::Fp16 | DataType::Bf16 | DataType::Fp32 | DataType::Fp64);
    let is_image = dims.len() == 4 && (is_float || datatype == DataType::Uint8);
    let named = |dim: &Dim, words: &[&str]| matches!(dim, Dim::Free(name) if holds(name, words));
    let kind = |(axis, dim): (usize, &Dim)| {
        if rows == Rows::Axis(axis) {
            return Some(Kind::Rows);
        }
        if matches!(dim, Dim::Fixed(_)) {
            return None;
        }
        let is_last = axis + 1 == dims.len();
        let in_front = dims.get(axis.wrapping_sub(1));
        Some(match () {
            () if rows == Rows::Shared && axis == 0 && is_batch(input, axis) => Kind::Rows,
            () if named(dim, &["channel"]) => Kind::Channels,
            () if named(dim, &["seq", "time", "past", "step", "token", "frame"]) => Kind::Steps,
            () if named(dim, &["height", "width"]) => Kind::Side,
            // Colours come first, unless the last dimension is theirs.
            () if is_image && axis == 1 && !matches!(dims[3], Dim::Fixed(1 | 3 | 4)) => Kind::Channels,
            () if is_image => Kind::Side,
            () if is_float && is_last && dims.len() <= 2 => Kind::Samples,
            () if is_float && is_last && in_front == Some(&Dim::Fixed(1)) => Kind::Samples,
            () => Kind::Steps,
        })
    };
    dims.iter().enumerate().map(kind).collect()
}

/// Whether an axis is a batch by what the file says of it: one row, a telling name, or the first axis of images. Where two axes have one
/// name, each row has a place for every other one.
pub(super) fn is_batch(input: &Declared, axis: usize) -> bool {
    let dims = input.dims.as_deref().unwrap_or_default();
    match dims.get(axis) {
        Some(dim @ Dim::Free(name)) if !name.is_empty() && dims.iter().filter(|other| *other == dim).count() > 1 => {
            false
        }
        Some(Dim::Fixed(n)) => *n == 1,
        Some(Dim::Free(name)) => {
            let name = name.to_lowercase();
            name.contains("batch") || ["n", "b", "bs"].contains(&&*name) || (dims.len() == 4 && axis == 0)
        }
        None => false,
    }
}

/// Whether a dimension is no batch by its name: what comes one after the other.
pub(super) fn is_time(name: &str) -> bool {
    const NAMES: [&str; 13] = [
        "t",
        "time",
        "times",
        "time_steps",
        "timesteps",
        "seq",
        "seq_len",
        "sequence_length",
        "frames",
        "num_frames",
        "n_frames",
        "tokens",
        "num_tokens",
    ];
    NAMES.contains(&&*name.to_lowercase())
}

/// Whether a name has one of these words in it.
pub(super) fn holds(name: &str, words: &[&str]) -> bool {
    let name = name.to_lowercase();
    words.iter().any(|word| name.contains(word))
}

fn fill(inputs: &[Declared], kinds: &[Vec<Option<Kind>>], length: impl Fn(Kind) -> usize) -> Shapes {
    let mut by_name: HashMap<&str, usize> = HashMap::new();
    let mut shapes: Shapes = Vec::new();
    for (input, kinds) in inputs.iter().zip(kinds) {
        let dims = input.dims.as_deref().unwrap_or_default().iter().zip(kinds);
        let fixed = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let shape = dims.map(|(dim, kind)| match (dim, kind) {
            (Dim::Free(name), Some(kind)) if name.is_empty() || *kind == Kind::Rows => length(*kind),
            (Dim::Free(name), Some(kind)) => *by_name.entry(name).or_insert(length(*kind)),
            (Dim::Fixed(n), None) => fixed(*n),
            (_, Some(_)) => 1,
            (Dim::Free(_), None) => 1,
        });
        let shape = shape.collect();
        shapes.push(shape);
    }
    // What is remembered and what is new are as long together as their mask: "past_length + length".
    for (input, shape) in inputs.iter().zip(&mut shapes) {
        for (dim, own) in input.dims.iter().flatten().zip(shape) {
            if let Dim::Free(name) = dim
                && let Some(sum) = sum(name, &by_name)
            {
                *own = sum;
            }
        }
    }
    shapes
}

/// The length of a dimension that is called as the sum of others.
fn sum(name: &str, lengths: &HashMap<&str, usize>) -> Option<usize> {
    let parts: Vec<&str> = name.split('+').map(str::trim).collect();
    if parts.len() < 2 {
        return None;
    }
    let length = |part: &&str| part.parse().ok().or_else(|| lengths.get(part).copied());
    parts.iter().map(length).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(dims: &[&str], datatype: DataType) -> Vec<usize> {
        shapes(&[declared("x", dims)], &[datatype], &[Rows::Axis(0)], None).remove(0).remove(0)
    }

    fn declared(name: &str, dims: &[&str]) -> Declared {
        let dim = |dim: &&str| dim.parse().map_or_else(|_| Dim::Free((*dim).into()), Dim::Fixed);
        Declared { name: name.into(), element: 1, dims: Some(dims.iter().map(dim).collect()), range: None }
    }

    #[test]
    fn images_sounds_and_sequences_get_lengths_of_their_kind() {
        assert_eq!(first(&["N", "3", "h", "w"], DataType::Fp32), [1, 3, 64, 64]);
        assert_eq!(first(&["N", "", "", ""], DataType::Fp32), [1, 3, 64, 64]);
        assert_eq!(first(&["N", "h", "w", "3"], DataType::Uint8), [1, 64, 64, 3]);
        assert_eq!(first(&["N", "samples"], DataType::Fp32), [1, 512]);
        assert_eq!(first(&["N", "1", "t"], DataType::Fp32), [1, 1, 512]);
        assert_eq!(first(&["N", "80", "t"], DataType::Fp32), [1, 80, 16]);
        assert_eq!(first(&["N", "sequence"], DataType::Int64), [1, 16]);
        assert_eq!(first(&["N", "8", "past_length", "64"], DataType::Fp32), [1, 8, 16, 64]);
    }

    #[test]
    fn a_dimension_called_as_a_sum_is_as_long_as_its_parts_together() {
        let inputs = [declared("ids", &["N", "length"]), declared("mask", &["N", "past + length"])];
        let inputs = [inputs, [declared("past", &["N", "past", "4"]), declared("more", &["N", "past + 1"])]].concat();
        let found = shapes(&inputs, &[DataType::Int64; 4], &[Rows::Axis(0); 4], None);
        assert_eq!(found[0], [vec![1, 16], vec![1, 32], vec![1, 16, 4], vec![1, 17]]);
    }

    #[test]
    fn no_huge_row_is_made_up_where_a_smaller_one_may_do() {
        let steps = |dims: &[&str]| {
            let tried = shapes(&[declared("x", dims)], &[DataType::Int64], &[Rows::Axis(0)], None);
            tried.into_iter().map(|mut shapes| shapes.remove(0).pop().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(steps(&["N", "a", "b"]), [16, 8, 64, 128, 224, 512, 1, 32, 4]);
        assert_eq!(steps(&["N", "a", "b", "c"]), [16, 8, 64, 128, 1, 32, 4]);
        assert_eq!(steps(&["N", "a", "20000000"]).len(), 2, "none is small: lengths of 1 and 4");
    }

    #[test]
    fn other_lengths_are_only_where_they_are_free() {
        let inputs = [declared("x", &["N", "", "h", "48"])];
        let (types, rows) = ([DataType::Fp32], [Rows::Axis(0)]);
        let short = shapes(&inputs, &types, &rows, None).remove(0);
        assert_eq!(changed(&inputs, &types, &rows, &short, |n| n * 2), [[1, 3, 128, 48]]);
    }
}
