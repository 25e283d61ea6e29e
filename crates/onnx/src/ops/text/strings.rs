//! Texts put together, matched and normalised.

use std::collections::HashSet;
use std::sync::Arc;

use burn_backend::TensorData;

use super::pattern::Pattern;
use crate::ops::host::Walk;
use crate::ops::{Build, Kernel, Operator};
use crate::texts::{Texts, bounded};
use crate::value::{OpError, Value, broadcast, elements};
use uncork_model::quote::Quoted;

pub(in crate::ops) const OPERATORS: &[Operator] = &[
    Operator::of_any("RegexFullMatch", |build| {
        let pattern = Pattern::new(&build.attributes.text("pattern", "")?)?;
        Ok(Kernel::one(move |mut args| {
            let (dims, texts) = args.take(0)?.texts()?.into_parts();
            let matches = texts.iter().map(|text| pattern.is_all(text)).collect::<Result<Vec<bool>, _>>()?;
            Value::from_data(TensorData::new(matches, dims), args.device)
        }))
    }),
    Operator::of_any("StringConcat", |_| {
        Ok(Kernel::one(|mut args| {
            let (a, b) = (args.take(0)?.texts()?, args.take(1)?.texts()?);
            let dims = broadcast(a.dims(), b.dims())?;
            let pairs = || Walk::new(a.dims(), &dims).zip(Walk::new(b.dims(), &dims));
            let bytes = |sum: usize, (i, j): (usize, usize)| sum + a.as_slice()[i].len() + b.as_slice()[j].len();
            bounded(elements(&dims)?, pairs().fold(0, bytes))?;
            let joined = pairs().map(|(i, j)| Arc::from(format!("{}{}", a.as_slice()[i], b.as_slice()[j])));
            Ok(Value::Texts(Texts::new(dims.clone(), joined.collect())?))
        }))
    }),
    Operator::of_any("StringNormalizer", normalizer)
        .except("`locale`: letters are turned one by one, as Unicode has them"),
];

/// What happens to letters.
#[derive(Clone, Copy)]
enum Case {
    Kept,
    Lower,
    Upper,
}

impl Case {
    /// The text with each letter turned; one that would become several stays.
    fn of(self, text: &Arc<str>) -> Arc<str> {
        fn single(mut turned: impl Iterator<Item = char>, c: char) -> char {
            match (turned.next(), turned.next()) {
                (Some(one), None) => one,
                _ => c,
            }
        }
        match self {
            Case::Kept => Arc::clone(text),
            Case::Lower => text.chars().map(|c| single(c.to_lowercase(), c)).collect::<String>().into(),
            Case::Upper => text.chars().map(|c| single(c.to_uppercase(), c)).collect::<String>().into(),
        }
    }
}

/// Leaves stop words out and turns letters.
fn normalizer(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let case = match build.attributes.text("case_change_action", "NONE")?.as_str() {
        "NONE" => Case::Kept,
        "LOWER" => Case::Lower,
        "UPPER" => Case::Upper,
        other => return Err(OpError(format!("the change of case {}", Quoted(other)))),
    };
    let exact = build.attributes.flag("is_case_sensitive", false)?;
    build.attributes.text("locale", "en_US")?;
    let compared = move |text: &Arc<str>| if exact { Arc::clone(text) } else { Case::Lower.of(text) };
    let stopped = build.attributes.texts("stopwords")?.unwrap_or_default();
    let stopped: HashSet<Arc<str>> = stopped.into_iter().map(|word| compared(&Arc::from(word))).collect();
    Ok(Kernel::one(move |mut args| {
        let texts = args.take(0)?.texts()?;
        if stopped.is_empty() {
            let (dims, texts) = texts.into_parts();
            return Ok(Value::Texts(Texts::new(dims, texts.iter().map(|text| case.of(text)).collect())?));
        }
        let (mut dims, texts) = texts.into_parts();
        if !matches!(dims[..], [_] | [1, _]) {
            return Err(OpError(format!("words are left out of one row only, and there is the shape {dims:?}")));
        }
        let kept = texts.iter().filter(|text| !stopped.contains(&compared(text)));
        let mut kept: Vec<Arc<str>> = kept.map(|text| case.of(text)).collect();
        if kept.is_empty() {
            kept.push(Arc::from(""));
        }
        let last = dims.len() - 1;
        dims[last] = kept.len();
        Ok(Value::Texts(Texts::new(dims, kept)?))
    }))
}
