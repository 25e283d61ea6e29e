//! What is wrong with the settings, and where.

use std::fmt;
use std::path::PathBuf;

use crate::quote::{Quoted, on_one_line, shown};

/// Most bytes of a key or a value that are repeated: those of a path are seldom more.
const MOST_BYTES: usize = 200;
/// Most bytes of a message: what values it repeats are cut, and this bounds what others say of them.
const MOST_MESSAGE: usize = 4096;

/// Where a setting was made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In a file.
    File {
        /// The file, as it was named.
        file: PathBuf,
        /// The line, from 1, where it is known.
        line: Option<usize>,
        /// The key with its table, such as `model[1].max_batch_size`; empty for the file as a whole.
        key: String,
    },
    /// In the environment.
    Variable(String),
    /// On the command line.
    Flag(&'static str),
    /// On the command line, as a model file.
    Argument,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File { file, line, key } => {
                f.write_str(&shown(file))?;
                if let Some(line) = line {
                    write!(f, ":{line}")?;
                }
                if !key.is_empty() {
                    write!(f, ": {}", on_one_line(key, MOST_BYTES))?;
                }
                Ok(())
            }
            Place::Variable(name) => f.write_str(&on_one_line(name, MOST_BYTES)),
            Place::Flag(name) => f.write_str(name),
            Place::Argument => f.write_str("MODEL"),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// The value as it was given; empty where the setting itself is the problem.
    pub value: String,
    /// What is wrong and what is allowed.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place)?;
        if !self.value.is_empty() {
            write!(f, " = {}", on_one_line(&self.value, MOST_BYTES))?;
        }
        write!(f, ": {}", on_one_line(&self.message, MOST_MESSAGE))
    }
}

/// Everything that is wrong: at least one problem, by place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// The problems, by place.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Problem> {
        self.0.iter()
    }
}

impl fmt::Display for Problems {
    /// One line for each problem.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Problems found so far.
#[derive(Debug, Default)]
pub(super) struct Report(Vec<Problem>);

impl Report {
    /// Notes a problem with a setting as such.
    pub(super) fn note(&mut self, place: Place, message: impl Into<String>) {
        self.note_value(place, String::new(), message);
    }

    /// Notes a problem with the value of a setting.
    pub(super) fn note_value(&mut self, place: Place, value: String, message: impl Into<String>) {
        self.0.push(Problem { place, value, message: message.into() });
    }

    /// Takes over the problems of one model. Its name joins those that a file's place tells only by position.
    pub(super) fn adopt(&mut self, other: Report, model: Option<&str>) {
        self.0.extend(other.0.into_iter().map(|mut problem| {
            if let (Place::File { key, .. }, Some(model)) = (&mut problem.place, model) {
                key.push_str(&format!(" (model {})", Quoted(model)));
            }
            problem
        }));
    }

    /// Fails if anything was noted. A variable that is wrong for each of three models is one problem.
    pub(super) fn finish(mut self) -> Result<(), Problems> {
        self.0.sort();
        self.0.dedup();
        if self.0.is_empty() { Ok(()) } else { Err(Problems(self.0)) }
    }
}

/// Likeness from which on a name is taken for a misspelt other one, on Jaro and Winkler's scale from 0 to 1.
const ALIKE: f64 = 0.8;

/// `; did you mean 'x'?` with the most similar of `known`, or nothing where none is similar.
pub(super) fn did_you_mean<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let meant = most_alike(given, known, ALIKE);
    meant.map(|name| format!("; did you mean {}?", Quoted(name))).unwrap_or_default()
}

/// The most similar of `known`, if it is as similar as that.
pub(super) fn most_alike<'a>(given: &str, known: impl IntoIterator<Item = &'a str>, least: f64) -> Option<&'a str> {
    let given = given.replace('-', "_");
    let scored = known.into_iter().map(|name| (strsim::jaro_winkler(&given, name), name));
    let (likeness, name) = scored.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (likeness >= least).then_some(name)
}
