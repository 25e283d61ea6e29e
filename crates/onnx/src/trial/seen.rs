//! What becomes of an output where rows get other values.

use super::crossing::{Meeting, Tie};
use super::layout::Layout;
use super::made::differing;
use crate::value::Value;

/// What has been seen of an output.
pub(super) struct Seen {
    candidates: Vec<Layout>,
    /// Its shape is the same for one row and for several.
    is_flat: bool,
    /// Rows that changed something.
    has_changed: bool,
    /// Values decide its shape.
    is_loose: bool,
    /// It is no tensor.
    is_unclear: bool,
    /// It is a sequence that has more elements for more rows.
    is_counted: bool,
    /// Rows met where an index was another one.
    pub(super) is_led: bool,
    /// By these a row alone is another than among others, whatever the others are.
    placed: Vec<Layout>,
}

impl Seen {
    pub(super) fn of(one: &Value, many: &Value, count: usize) -> Seen {
        let is_counted = matches!(many, Value::Sequence(_)) && one.shape() != many.shape();
        let shapes = each(one, many).into_iter().map(|(one, many)| (one.shape(), many.shape()));
        let shapes: Vec<_> = shapes.collect();
        let mut all = shapes.iter().map(|(one, many)| Layout::candidates(one, many, count));
        let mut candidates = all.next().unwrap_or_default();
        all.for_each(|own| candidates.retain(|layout| own.contains(layout)));
        let is_flat = shapes.iter().all(|(one, many)| one == many);
        Seen {
            candidates,
            is_flat,
            has_changed: false,
            is_loose: false,
            is_unclear: false,
            is_counted,
            is_led: false,
            placed: Vec::new(),
        }
    }

    pub(super) fn compare(&mut self, base: &Value, other: &Value, row: usize, count: usize) {
        if let (Value::Sequence(bases), Value::Sequence(others)) = (base, other) {
            self.is_loose |= bases.len() != others.len();
            bases.iter().zip(others).for_each(|(base, other)| self.compare(base, other, row, count));
            return;
        }
        let dims = base.shape();
        let Ok(places) = differing(base, other) else {
            self.is_unclear = true;
            return;
        };
        if dims != other.shape() {
            self.is_loose = true;
            return;
        }
        self.has_changed |= !places.is_empty();
        self.candidates.retain(|layout| {
            dims.get(layout.axis).is_some_and(|length| length % count == 0)
                && places.iter().all(|&at| layout.owner(at, &dims, count) == row)
        });
    }

    /// Takes what one row gave by itself, and `base` where it is among others.
    pub(super) fn hold_alone(&mut self, base: &Value, alone: &Value, row: usize, count: usize) {
        let is_other = |layout: &&Layout| !layout.is_row(base, alone, row, count).unwrap_or(true);
        self.placed.extend(self.candidates.iter().filter(is_other));
    }

    /// Whether nothing speaks against rows in it.
    pub(super) fn has_rows(&self) -> bool {
        !self.candidates.is_empty() && !self.is_unclear && !self.is_loose
    }

    /// Nothing could be seen where it matters.
    pub(super) fn doubt(&mut self) {
        self.candidates.clear();
    }

    /// What decides the output. Where nothing could be tried, rows are where its shape says.
    pub(super) fn tie(self, at: usize, by_number: Option<usize>, is_tried: bool, may_be_loose: bool) -> Tie {
        match self.candidates.iter().find(|layout| !self.placed.contains(layout)) {
            _ if self.is_counted => Tie::Mixed(at, Meeting::Values),
            _ if self.is_unclear => Tie::Unknown(at),
            _ if self.is_led => Tie::Mixed(at, Meeting::Index),
            _ if self.is_loose => Tie::Loose(at),
            Some(layout) => Tie::Rows(*layout, by_number),
            None if !self.candidates.is_empty() => Tie::Mixed(at, Meeting::Number),
            None if !is_tried => Tie::Unknown(at),
            None if self.has_changed => Tie::Mixed(at, Meeting::Values),
            None if self.is_flat && may_be_loose => Tie::Loose(at),
            None if self.is_flat => Tie::Nothing,
            None => Tie::Unknown(at),
        }
    }
}

/// The elements of two sequences, by pairs; other values are their own.
fn each<'a>(one: &'a Value, many: &'a Value) -> Vec<(&'a Value, &'a Value)> {
    match (one, many) {
        (Value::Sequence(ones), Value::Sequence(manys)) => ones.iter().zip(manys).collect(),
        _ => vec![(one, many)],
    }
}
