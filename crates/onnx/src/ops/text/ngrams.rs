//! `TfIdfVectorizer`: counts of n-grams of texts or integers.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use burn_backend::TensorData;

use crate::ops::arrange::integers;
use crate::ops::{Build, Kernel, Operator};
use crate::value::{OpError, Value, elements};
use uncork_model::quote::Quoted;

pub(in crate::ops) const OPERATORS: &[Operator] = &[Operator::of_any("TfIdfVectorizer", vectorizer)];

/// What becomes of a count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Weighing {
    Frequency,
    Presence,
    Weighted,
}

/// Most columns of a result.
const MAX_COLUMNS: i64 = 1 << 26;

/// The n-grams that are counted.
struct Grams {
    /// A number for each different word.
    words: Words,
    /// The n-grams by the numbers of their words, and the column in which each counts.
    columns: HashMap<Box<[u32]>, usize>,
    width: usize,
    lengths: std::ops::RangeInclusive<usize>,
    most_skipped: usize,
    weighing: Weighing,
    /// For each column the weight of its n-gram; empty where all weigh the same.
    weights: Vec<f32>,
}

enum Words {
    Texts(HashMap<Arc<str>, u32>),
    Ints(HashMap<i64, u32>),
}

fn vectorizer(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let attributes = &build.attributes;
    let size = |name: &str| {
        let number = attributes.int(name, 0)?;
        usize::try_from(number).map_err(|_| OpError(format!("{name} is {number}")))
    };
    let weighing = match attributes.text("mode", "")?.as_str() {
        "TF" => Weighing::Frequency,
        "IDF" => Weighing::Presence,
        "TFIDF" => Weighing::Weighted,
        other => return Err(OpError(format!("the mode {}", Quoted(other)))),
    };
    let (shortest, longest) = (size("min_gram_length")?.max(1), size("max_gram_length")?);
    let columns = attributes.ints("ngram_indexes")?.unwrap_or_default();
    let width = columns.iter().copied().max().map_or(0, |most| most + 1);
    if columns.iter().any(|column| *column < 0) || width > MAX_COLUMNS {
        return Err(OpError(format!("n-grams counted in columns beyond 0 to {MAX_COLUMNS}")));
    }
    let weights = attributes.floats("weights")?.filter(|weights| !weights.is_empty());
    if weights.as_ref().is_some_and(|weights| weights.len() != columns.len()) {
        return Err(OpError(format!("{} weights for {} n-grams", weights.map_or(0, |w| w.len()), columns.len())));
    }
    let (words, pool) = match (attributes.texts("pool_strings")?, attributes.ints("pool_int64s")?) {
        (Some(texts), None) => {
            let (words, pool) = numbered(texts.into_iter().map(Arc::from));
            (Words::Texts(words), pool)
        }
        (None, Some(ints)) => {
            let (words, pool) = numbered(ints.into_iter());
            (Words::Ints(words), pool)
        }
        _ => return Err(OpError::new("its n-grams must be either texts or integers")),
    };
    let starts = attributes.ints("ngram_counts")?.unwrap_or_default();
    let mut grams = HashMap::new();
    let mut weight_of = if weights.is_some() { vec![1.0; width as usize] } else { Vec::new() };
    let mut number = 0;
    for (i, &start) in starts.iter().enumerate() {
        let length = i + 1;
        let end = starts.get(length).map_or(Some(pool.len()), |&end| usize::try_from(end).ok());
        let part = end.and_then(|end| pool.get(usize::try_from(start).ok()?..end));
        let part = part.filter(|part| part.len() % length == 0);
        let part = part.ok_or_else(|| OpError(format!("the {length}-grams do not lie within the pool")))?;
        for gram in part.chunks_exact(length) {
            let column = columns.get(number).ok_or_else(|| OpError::new("there are fewer columns than n-grams"))?;
            grams.insert(Box::from(gram), *column as usize);
            if let Some(weights) = &weights {
                weight_of[*column as usize] = weights[number];
            }
            number += 1;
        }
    }
    let grams = Grams {
        words,
        columns: grams,
        width: width as usize,
        lengths: shortest..=longest,
        most_skipped: size("max_skip_count")?,
        weighing,
        weights: weight_of,
    };
    Ok(Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let dims = x.shape();
        let (rows, length, out) = match dims[..] {
            [length] => (1, length, vec![grams.width]),
            [rows, length] => (rows, length, vec![rows, grams.width]),
            _ => return Err(OpError(format!("expects rows of words and gets the shape {dims:?}"))),
        };
        let words = grams.words.numbers(x)?;
        let mut counts = vec![0f32; elements(&out)?];
        for row in 0..rows {
            grams.count(&words[row * length..][..length], &mut counts[row * grams.width..][..grams.width]);
        }
        Value::from_data(TensorData::new(counts, out), args.device)
    }))
}

/// Each different word with a number, and the numbers of all in order.
fn numbered<T: Hash + Eq>(words: impl Iterator<Item = T>) -> (HashMap<T, u32>, Vec<u32>) {
    let mut known = HashMap::new();
    let number = |word| {
        let next = known.len() as u32;
        *known.entry(word).or_insert(next)
    };
    let pool = words.map(number).collect();
    (known, pool)
}

impl Words {
    /// The number of each word; of one that is in no n-gram, none.
    fn numbers(&self, x: Value) -> Result<Vec<Option<u32>>, OpError> {
        match self {
            Words::Texts(known) => Ok(x.texts()?.as_slice().iter().map(|text| known.get(text).copied()).collect()),
            Words::Ints(known) => Ok(integers(x)?.iter().map(|int| known.get(int).copied()).collect()),
        }
    }
}

impl Grams {
    /// Counts the n-grams of a row of words, and weighs the counts.
    fn count(&self, words: &[Option<u32>], counts: &mut [f32]) {
        let mut gram = Vec::new();
        for length in self.lengths.clone().take_while(|&length| length <= words.len()) {
            // Of a single word nothing can be left out.
            let skips = if length == 1 { 0 } else { self.most_skipped };
            for distance in 1..=skips + 1 {
                let span = (length - 1).saturating_mul(distance);
                if span >= words.len() {
                    break;
                }
                for start in 0..words.len() - span {
                    gram.clear();
                    gram.extend(words[start..=start + span].iter().step_by(distance).map_while(|word| *word));
                    if gram.len() == length
                        && let Some(&column) = self.columns.get(&gram[..])
                    {
                        counts[column] += 1.0;
                    }
                }
            }
        }
        if self.weighing == Weighing::Frequency {
            return;
        }
        for (column, count) in counts.iter_mut().enumerate() {
            if self.weighing == Weighing::Presence {
                *count = count.min(1.0);
            }
            *count *= self.weights.get(column).copied().unwrap_or(1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use crate::author::Attribute::{Int, Ints, Text};
    use crate::author::{Author, FREE};

    #[test]
    fn no_n_gram_is_longer_than_the_words_that_there_are() {
        let attributes = [
            ("mode", Text("TF")),
            ("min_gram_length", Int(1)),
            ("max_gram_length", Int(i64::MAX)),
            ("max_skip_count", Int(0)),
            ("ngram_counts", Ints(&[0])),
            ("ngram_indexes", Ints(&[0, 1])),
            ("pool_int64s", Ints(&[7, 9])),
        ];
        let author = Author::new(17).int_input("x", &[FREE, 3]).output("y", &[FREE, 2]);
        let counts = author.node("TfIdfVectorizer", &["x"], &["y"], &attributes);
        let answer = counts.answer(vec![TensorData::from([[9i64, 7, 9]])]);
        assert_eq!(answer, Ok(vec![TensorData::from([[1f32, 2.0]])]));
    }
}
