//! Sums of products, written with a letter for each axis.

use burn_backend::DType;
use burn_backend::ops::{FloatTensorOps, IntTensorOps};
use burn_dispatch::DispatchDevice;

use super::arrange::{Walk, expanded, permuted, picked, strides, zeros};
use super::{Kernel, Operator};
use crate::value::{Backend as B, OpError, Value, elements};
use uncork_model::quote::Quoted;

pub(super) const OPERATORS: &[Operator] = &[Operator::new("Einsum", |build| {
    let equation = build.attributes.text("equation", "")?;
    let equation = Equation::parse(&equation).ok_or_else(|| OpError(format!("the equation {}", Quoted(&equation))))?;
    Ok(Kernel::one(move |mut args| {
        let device = args.device;
        equation.evaluate(args.all(), device)
    }))
})];

/// An axis: a letter, or one of those that an ellipsis stands for, counted from the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Rest(usize),
    Letter(char),
}

/// The letters of one operand, before and behind the ellipsis, if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    before: Vec<Label>,
    behind: Option<Vec<Label>>,
}

impl Term {
    fn parse(text: &str) -> Option<Term> {
        let letters = |text: &str| {
            let letters = text.chars().map(|c| c.is_ascii_alphabetic().then_some(Label::Letter(c)));
            letters.collect::<Option<Vec<Label>>>()
        };
        Some(match text.split_once("...") {
            Some((before, behind)) => Term { before: letters(before)?, behind: Some(letters(behind)?) },
            None => Term { before: letters(text)?, behind: None },
        })
    }

    /// A label for each axis, where the ellipsis stands for `rest` axes.
    fn labels(&self, rest: usize) -> Vec<Label> {
        let mut labels = self.before.clone();
        if let Some(behind) = &self.behind {
            labels.extend((0..rest).rev().map(Label::Rest));
            labels.extend_from_slice(behind);
        }
        labels
    }
}

struct Equation {
    operands: Vec<Term>,
    /// `None` where the equation does not say: then all letters that occur once, in alphabetical order.
    result: Option<Term>,
}

impl Equation {
    fn parse(text: &str) -> Option<Equation> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (operands, result) = match text.split_once("->") {
            Some((operands, result)) => (operands, Some(Term::parse(result)?)),
            None => (text.as_str(), None),
        };
        let operands = operands.split(',').map(Term::parse).collect::<Option<_>>()?;
        Some(Equation { operands, result })
    }

    fn evaluate(&self, operands: Vec<Value>, device: &DispatchDevice) -> Result<Value, OpError> {
        if operands.len() != self.operands.len() {
            return Err(OpError(format!(
                "its equation is for {} operands, not {}",
                self.operands.len(),
                operands.len()
            )));
        }
        let mut most = 0;
        let mut factors = Vec::new();
        for (x, term) in operands.into_iter().zip(&self.operands) {
            let letters = term.before.len() + term.behind.as_ref().map_or(0, Vec::len);
            let rest = x.rank().checked_sub(letters).filter(|&rest| rest == 0 || term.behind.is_some());
            let rest =
                rest.ok_or_else(|| OpError(format!("its equation does not fit the shape {:?}", x.shape().to_vec())))?;
            most = most.max(rest);
            factors.push(Factor::of(x, term.labels(rest), device)?);
        }
        let wanted = match &self.result {
            Some(term) => term.labels(most),
            None => {
                let all: Vec<Label> = self.operands.iter().flat_map(|term| term.labels(0)).collect();
                let mut once: Vec<Label> = all.clone();
                once.retain(|label| all.iter().filter(|other| *other == label).count() == 1);
                once.sort_unstable();
                (0..most).rev().map(Label::Rest).chain(once).collect()
            }
        };
        let unique = wanted.iter().enumerate().all(|(i, label)| !wanted[..i].contains(label));
        if !unique || wanted.iter().any(|label| !factors.iter().any(|factor| factor.labels.contains(label))) {
            return Err(OpError::new("its result names an axis twice, or one that no operand has"));
        }
        let dtype = factors[0].value.dtype();
        if factors.iter().any(|factor| factor.value.dtype() != dtype) {
            return Err(OpError::new("its operands differ in type"));
        }
        // Matrices of other integers cannot be multiplied.
        if !dtype.is_float() {
            for factor in &mut factors {
                factor.value = factor.value.clone().cast(DType::I64, device)?;
            }
        }
        let mut factors = factors.into_iter();
        let first = factors.next().ok_or_else(|| OpError::new("it has no operands"))?;
        let rest: Vec<Factor> = factors.collect();
        let mut product = first;
        for (i, factor) in rest.iter().enumerate() {
            let later = |label: &Label| rest[i + 1..].iter().any(|factor| factor.labels.contains(label));
            let needed = |label: &Label| wanted.contains(label) || later(label);
            product = product.times(factor.clone(), needed, device)?;
        }
        let product = product.summed(|label| wanted.contains(label), device)?;
        let order = product.positions(&wanted);
        permuted(product.value, &order).cast(dtype, device)
    }
}

/// A tensor with a label for each axis, no label twice.
#[derive(Clone)]
struct Factor {
    value: Value,
    labels: Vec<Label>,
}

impl Factor {
    /// Axes of one label become one: the diagonal.
    fn of(x: Value, labels: Vec<Label>, device: &DispatchDevice) -> Result<Factor, OpError> {
        let have = x.shape();
        let (mut unique, mut dims, mut steps): (Vec<Label>, Vec<usize>, Vec<usize>) = Default::default();
        for (i, (&label, stride)) in labels.iter().zip(strides(&have)).enumerate() {
            match unique.iter().position(|other| *other == label) {
                None => {
                    unique.push(label);
                    dims.push(have[i]);
                    steps.push(stride);
                }
                Some(k) if dims[k] == have[i] => steps[k] += stride,
                Some(_) => return Err(OpError(format!("a diagonal of axes that differ in length: {have:?}"))),
            }
        }
        if unique.len() == labels.len() {
            return Ok(Factor { value: x, labels });
        }
        elements(&dims)?;
        let value = picked(x, 1, Walk::new(&dims, &steps).map(Some), dims, device)?;
        Ok(Factor { value, labels: unique })
    }

    fn position(&self, label: &Label) -> Option<usize> {
        self.labels.iter().position(|other| other == label)
    }

    /// Where each of `labels` is, as far as it is here.
    fn positions(&self, labels: &[Label]) -> Vec<usize> {
        labels.iter().filter_map(|label| self.position(label)).collect()
    }

    /// The length of an axis; 1 where there is none.
    fn length(&self, label: &Label) -> usize {
        self.position(label).map_or(1, |i| self.value.shape()[i])
    }

    /// Sums over all axes but those to keep.
    fn summed(mut self, keep: impl Fn(&Label) -> bool, device: &DispatchDevice) -> Result<Factor, OpError> {
        for axis in (0..self.labels.len()).rev().filter(|&axis| !keep(&self.labels[axis])).collect::<Vec<_>>() {
            let mut dims = self.value.shape();
            self.labels.remove(axis);
            dims.remove(axis);
            self.value = self.value.apply(device, |t| B::float_sum_dim(t, axis), |t| B::int_sum_dim(t, axis), |t| t)?;
            self.value = self.value.shaped(dims, device)?;
        }
        Ok(self)
    }

    /// The axes in the order of `groups`, each group joined to one axis. Axes that are not here, or have length 1, get the
    /// lengths given.
    fn arranged(self, groups: [(&[Label], &[usize]); 3], device: &DispatchDevice) -> Result<Value, OpError> {
        let (mut order, mut single, mut full, mut joined) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (labels, lengths) in groups {
            order.extend(self.positions(labels));
            single.extend(labels.iter().map(|label| self.length(label)));
            full.extend_from_slice(lengths);
            joined.push(elements(lengths)?);
        }
        let value = permuted(self.value, &order).shaped(single, device)?;
        expanded(value, full, device)?.shaped(joined, device)
    }

    /// The product, summed over what is not needed any more: a multiplication of batches of matrices.
    fn times(self, other: Factor, needed: impl Fn(&Label) -> bool, device: &DispatchDevice) -> Result<Factor, OpError> {
        let left = self.summed(|label| needed(label) || other.labels.contains(label), device)?;
        let right = other.summed(|label| needed(label) || left.labels.contains(label), device)?;
        let both = |label: &&Label| right.labels.contains(label);
        let batch: Vec<Label> = left.labels.iter().filter(both).filter(|l| needed(l)).copied().collect();
        let inner: Vec<Label> = left.labels.iter().filter(both).filter(|l| !needed(l)).copied().collect();
        let rows: Vec<Label> = left.labels.iter().filter(|l| !both(l)).copied().collect();
        let columns: Vec<Label> = right.labels.iter().filter(|l| !left.labels.contains(l)).copied().collect();
        let lengths = |labels: &[Label]| {
            let length = |label: &Label| match (left.length(label), right.length(label)) {
                (a, b) if a == b || b == 1 => Ok(a),
                (1, b) => Ok(b),
                (a, b) => Err(OpError(format!("its operands have an axis of length {a} and {b} in common"))),
            };
            labels.iter().map(length).collect::<Result<Vec<usize>, OpError>>()
        };
        let [of_batch, of_inner] = [lengths(&batch)?, lengths(&inner)?];
        let [of_rows, of_columns] = [lengths(&rows)?, lengths(&columns)?];
        let labels = [&batch[..], &rows, &columns].concat();
        let dims = [&of_batch[..], &of_rows, &of_columns].concat();
        if elements(&dims)? == 0 || of_inner.contains(&0) {
            return Ok(Factor { value: zeros(dims, left.value.dtype(), device)?, labels });
        }
        let left = left.arranged([(&batch, &of_batch), (&rows, &of_rows), (&inner, &of_inner)], device)?;
        let right = right.arranged([(&batch, &of_batch), (&inner, &of_inner), (&columns, &of_columns)], device)?;
        let value = match (left, right) {
            (Value::Float(a), Value::Float(b)) => Value::Float(B::float_matmul(a, b)),
            (a, b) => Value::Int(B::int_matmul(a.int_tensor(device)?, b.int_tensor(device)?)),
        };
        Ok(Factor { value: value.shaped(dims, device)?, labels })
    }
}
