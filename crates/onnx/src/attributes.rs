//! A node's attributes, read by name and type.
//!
//! Every attribute that a file sets must have been read by whoever compiles its node: one that nobody knows could change
//! what the operator means, and is refused.

use std::cell::Cell;

use super::proto::{AttributeProto, GraphProto, TensorProto};
use super::value::OpError;

/// The attributes of one node.
pub(super) struct Attributes<'a> {
    attributes: Vec<(&'a AttributeProto, Cell<bool>)>,
}

impl<'a> Attributes<'a> {
    pub(super) fn new(attributes: &'a [AttributeProto]) -> Attributes<'a> {
        Attributes { attributes: attributes.iter().map(|a| (a, Cell::new(false))).collect() }
    }

    fn find(&self, name: &str) -> Option<&'a AttributeProto> {
        let (attribute, read) = self.attributes.iter().find(|(a, _)| a.name == name)?;
        read.set(true);
        Some(attribute)
    }

    /// The attribute, if its value is of one of these kinds (`AttributeProto.AttributeType`).
    fn of(&self, name: &str, kind: i32, what: &str) -> Result<Option<&'a AttributeProto>, OpError> {
        match self.find(name) {
            Some(a) if a.kind != kind && a.kind != 0 => Err(OpError(format!("attribute '{name}' is not {what}"))),
            found => Ok(found),
        }
    }

    /// Whether the attribute is set.
    pub(super) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    pub(super) fn float(&self, name: &str, default: f32) -> Result<f32, OpError> {
        Ok(self.of(name, 1, "a number")?.map_or(default, |a| a.f))
    }

    pub(super) fn int(&self, name: &str, default: i64) -> Result<i64, OpError> {
        Ok(self.of(name, 2, "an integer")?.map_or(default, |a| a.i))
    }

    /// An integer that is 0 or 1.
    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool, OpError> {
        Ok(self.int(name, i64::from(default))? != 0)
    }

    pub(super) fn text(&self, name: &str, default: &str) -> Result<String, OpError> {
        let found = self.of(name, 3, "a text")?;
        Ok(found.map_or_else(|| default.to_owned(), |a| String::from_utf8_lossy(&a.s).into_owned()))
    }

    pub(super) fn tensor(&self, name: &str) -> Result<Option<TensorProto>, OpError> {
        Ok(self.of(name, 4, "a tensor")?.and_then(|a| a.t.clone()))
    }

    pub(super) fn floats(&self, name: &str) -> Result<Option<Vec<f32>>, OpError> {
        Ok(self.of(name, 6, "a list of numbers")?.map(|a| a.floats.clone()))
    }

    pub(super) fn ints(&self, name: &str) -> Result<Option<Vec<i64>>, OpError> {
        Ok(self.of(name, 7, "a list of integers")?.map(|a| a.ints.clone()))
    }

    pub(super) fn texts(&self, name: &str) -> Result<Option<Vec<String>>, OpError> {
        let text = |s: &Vec<u8>| String::from_utf8_lossy(s).into_owned();
        Ok(self.of(name, 8, "a list of texts")?.map(|a| a.strings.iter().map(text).collect()))
    }

    /// All attributes that are graphs: bodies of loops and branches.
    pub(super) fn graphs(&self) -> impl Iterator<Item = (&'a str, &'a GraphProto)> + '_ {
        self.attributes.iter().filter_map(|(a, read)| {
            let graph = a.g.as_ref()?;
            read.set(true);
            Some((a.name.as_str(), graph))
        })
    }

    /// An attribute that was set and never read.
    pub(super) fn unread(&self) -> Option<&'a str> {
        self.attributes.iter().find(|(_, read)| !read.get()).map(|(a, _)| a.name.as_str())
    }
}
