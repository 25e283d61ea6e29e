//! Texts taken apart: each becomes a row of pieces, and shorter rows are filled up.

use std::sync::Arc;

use burn_backend::TensorData;

use super::pattern::Pattern;
use crate::ops::{Build, Kernel, Operator};
use crate::texts::{Made, Texts};
use crate::value::{OpError, Value, elements};

pub(in crate::ops) const OPERATORS: &[Operator] =
    &[Operator::of_any("StringSplit", split), Operator::of_any("com.microsoft::Tokenizer", tokenizer)];

/// Rows of pieces as a tensor with one axis more than the texts had.
fn rows(mut dims: Vec<usize>, rows: Vec<Vec<Arc<str>>>, fill: &Arc<str>) -> Result<Value, OpError> {
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    dims.push(width);
    let mut texts = Vec::with_capacity(elements(&dims)?);
    for mut row in rows {
        row.resize(width, Arc::clone(fill));
        texts.append(&mut row);
    }
    Ok(Value::Texts(Texts::new(dims, texts)?))
}

fn split(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let delimiter = build.attributes.text("delimiter", "")?;
    let most = build.attributes.has("maxsplit").then(|| build.attributes.int("maxsplit", 0)).transpose()?;
    let most = most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    let fill: Arc<str> = Arc::from("");
    Ok(Kernel::many(move |mut args| {
        let (dims, texts) = args.take(0)?.texts()?.into_parts();
        let mut made = Made::default();
        let pieces = texts.iter().map(|text| pieces(text, &delimiter, most, &mut made));
        let pieces: Vec<Vec<Arc<str>>> = pieces.collect::<Result<_, _>>()?;
        let counts: Vec<i64> = pieces.iter().map(|row| row.len() as i64).collect();
        let counts = Value::from_data(TensorData::new(counts, dims.clone()), args.device)?;
        Ok(vec![rows(dims, pieces, &fill)?, counts])
    }))
}

/// The parts of a text between delimiters, of which at most `most` count; without a delimiter, its words.
fn pieces(text: &str, delimiter: &str, most: usize, made: &mut Made) -> Result<Vec<Arc<str>>, OpError> {
    if !delimiter.is_empty() {
        let parts = text.splitn(most.saturating_add(1), delimiter);
        return match text.is_empty() {
            true => Ok(Vec::new()),
            false => parts.map(|part| made.one(part).map(Arc::from)).collect(),
        };
    }
    let (mut rest, mut words) = (text.trim(), Vec::new());
    while !rest.is_empty() {
        let end = if words.len() < most { rest.find(char::is_whitespace) } else { None };
        let (word, behind) = rest.split_at(end.unwrap_or(rest.len()));
        words.push(Arc::from(made.one(word)?));
        rest = behind.trim_start();
    }
    Ok(words)
}

/// How a tokenizer finds tokens.
enum Way {
    /// Each letter is one.
    Letters,
    /// What matches.
    Matches(Box<Pattern>),
    /// What lies between matches of the first, and of that what lies between matches of the second, and so on.
    Between(Vec<Pattern>),
}

/// Before and behind the tokens of a text, where they are to be marked.
const MARKS: [&str; 2] = ["\u{2}", "\u{3}"];

fn tokenizer(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let mark = build.attributes.flag("mark", false)?;
    let fill: Arc<str> = Arc::from(build.attributes.text("pad_value", "")?);
    let least = usize::try_from(build.attributes.int("mincharnum", 1)?).unwrap_or(0).max(1);
    let separators = build.attributes.texts("separators")?;
    let expression = build.attributes.text("tokenexp", "")?;
    let way = match separators {
        Some(separators) if separators.iter().all(String::is_empty) => Way::Letters,
        Some(separators) => Way::Between(separators.iter().map(|s| Pattern::new(s)).collect::<Result<_, _>>()?),
        None if expression == "." => Way::Letters,
        None if !expression.is_empty() => Way::Matches(Box::new(Pattern::new(&expression)?)),
        None => return Err(OpError::new("it has neither separators nor an expression for tokens")),
    };
    let marks = MARKS.map(Arc::<str>::from);
    Ok(Kernel::one(move |mut args| {
        let (dims, texts) = args.take(0)?.texts()?.into_parts();
        let mut made = Made::default();
        let mut found = texts.iter().map(|text| way.tokens(text, least, &mut made)).collect::<Result<Vec<_>, _>>()?;
        // Where nobody has a token there are no marks either.
        if mark && found.iter().any(|tokens| !tokens.is_empty()) {
            for tokens in &mut found {
                tokens.insert(0, Arc::clone(&marks[0]));
                tokens.push(Arc::clone(&marks[1]));
            }
        }
        rows(dims, found, &fill)
    }))
}

impl Way {
    /// The tokens of a text that have at least so many letters.
    fn tokens(&self, text: &str, least: usize, made: &mut Made) -> Result<Vec<Arc<str>>, OpError> {
        let long = |token: &str| token.chars().count() >= least;
        let next = |at: usize| at + text[at..].chars().next().map_or(1, char::len_utf8);
        match self {
            Way::Letters => {
                let mut letter = [0; 4];
                text.chars().map(|c| made.one(c.encode_utf8(&mut letter)).map(Arc::from)).collect()
            }
            Way::Matches(pattern) => {
                let (mut tokens, mut at) = (Vec::new(), 0);
                if !long(text) {
                    return Ok(tokens);
                }
                while let Some((start, end)) = pattern.find(text, at)? {
                    // What is too short is looked at again behind its first letter.
                    at = if long(&text[start..end]) {
                        tokens.push(Arc::from(made.one(&text[start..end])?));
                        end
                    } else {
                        next(start)
                    };
                }
                Ok(tokens)
            }
            Way::Between(patterns) => {
                let mut parts = vec![text];
                for pattern in patterns {
                    let (mut finer, mut parted) = (Vec::new(), Made::default());
                    for part in parts {
                        let mut from = 0;
                        while let Some((start, end)) = pattern.find(part, from)? {
                            finer.push(parted.one(&part[from..start])?);
                            let step = part[start..].chars().next().map_or(1, char::len_utf8);
                            from = if end > start { end } else { start + step };
                        }
                        finer.push(parted.one(part.get(from..).unwrap_or_default())?);
                    }
                    finer.retain(|part| long(part));
                    parts = finer;
                }
                parts.into_iter().map(|part| made.one(part).map(Arc::from)).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_split_as_python_splits_them() {
        let pieces = |text: &str, delimiter: &str, most| pieces(text, delimiter, most, &mut Made::default()).unwrap();
        let split = |text: &str, delimiter: &str, most| pieces(text, delimiter, most).join("|");
        assert_eq!(split("a,,b", ",", usize::MAX), "a||b");
        assert_eq!(split("a,b,c", ",", 1), "a|b,c");
        assert_eq!(split("  hello   world \t", "", usize::MAX), "hello|world");
        assert_eq!(split(" a b  c ", "", 1), "a|b  c");
        assert!(pieces("", "", 1).is_empty() && pieces("", ",", 1).is_empty());
    }

    #[test]
    fn a_text_falls_into_no_more_pieces_than_a_tensor_may_have() {
        let (commas, most) = (",".repeat(1 << 24), usize::MAX);
        let refused = |pieces: Result<Vec<Arc<str>>, OpError>| {
            assert!(pieces.unwrap_err().to_string().contains("more than a tensor may have"));
        };
        refused(pieces(&commas, ",", most, &mut Made::default()));
        let mut made = Made::default();
        assert_eq!(pieces(&commas[1..], ",", most, &mut made).unwrap().len(), 1 << 24);
        refused(pieces("a", "", most, &mut made));
        refused(Way::Letters.tokens("a", 1, &mut made));
        refused(Way::Between(vec![Pattern::new(",").unwrap()]).tokens(&commas, 1, &mut Made::default()));
    }

    #[test]
    fn tokens_are_what_matches_or_what_lies_between() {
        let tokens = |way: &Way, text: &str, least| way.tokens(text, least, &mut Made::default()).unwrap().join("|");
        let words = Way::Matches(Box::new(Pattern::new("[a-z]+").unwrap()));
        assert_eq!(tokens(&words, "one, a two", 2), "one|two");
        let between = Way::Between(vec![Pattern::new(" ").unwrap(), Pattern::new(",").unwrap()]);
        assert_eq!(tokens(&between, "a,b c  d", 1), "a|b|c|d");
        assert_eq!(tokens(&Way::Letters, "aé", 1), "a|é");
        assert_eq!(tokens(&Way::Matches(Box::new(Pattern::new("x*").unwrap())), "éxx", 1), "xx");
    }
}
