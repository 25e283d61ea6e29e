//! What the classifiers and regressors of `ai.onnx.ml` share: class labels, and what happens to scores at last.
//!
//! The specification leaves open what two classes with one score are; these are onnxruntime's answers.

use std::sync::Arc;

use burn_backend::{DType, TensorData};
use burn_dispatch::DispatchDevice;

use crate::ops::Build;
use crate::texts::Texts;
use crate::value::{OpError, Value};
use uncork_model::quote::Quoted;

/// The names of classes, in the order of their scores.
pub(super) enum Labels {
    Ints(Vec<i64>),
    Texts(Vec<Arc<str>>),
}

impl Labels {
    /// The labels of a node, whose attributes have these names.
    pub(super) fn of(build: &Build<'_>, ints: &str, texts: &str) -> Result<Labels, OpError> {
        let texts = build.attributes.texts(texts)?.unwrap_or_default();
        let ints = build.attributes.ints(ints)?.unwrap_or_default();
        match (texts.is_empty(), ints.is_empty()) {
            (false, true) => Ok(Labels::Texts(texts.into_iter().map(Arc::from).collect())),
            (true, false) => Ok(Labels::Ints(ints)),
            (true, true) => Err(OpError::new("it has no class labels")),
            (false, false) => Err(OpError::new("its class labels are both texts and integers")),
        }
    }

    pub(super) fn count(&self) -> usize {
        match self {
            Labels::Ints(labels) => labels.len(),
            Labels::Texts(labels) => labels.len(),
        }
    }

    /// The labels of chosen classes.
    pub(super) fn chosen(&self, classes: &[Class], device: &DispatchDevice) -> Result<Value, OpError> {
        let beyond = |class: Class| OpError(format!("there is no label for {class:?}"));
        match self {
            Labels::Ints(labels) => {
                let label = |&class: &Class| match class {
                    Class::At(at) => labels.get(at).copied().ok_or_else(|| beyond(class)),
                    Class::Positive => Ok(1),
                    Class::Negative => Ok(0),
                };
                let chosen = classes.iter().map(label).collect::<Result<Vec<i64>, _>>()?;
                Value::from_data(TensorData::new(chosen, [classes.len()]), device)
            }
            Labels::Texts(labels) => {
                let label = |&class: &Class| match class {
                    Class::At(at) => labels.get(at).cloned().ok_or_else(|| beyond(class)),
                    Class::Positive => labels.get(1).cloned().ok_or_else(|| beyond(class)),
                    Class::Negative => labels.first().cloned().ok_or_else(|| beyond(class)),
                };
                let chosen = classes.iter().map(label).collect::<Result<Vec<_>, _>>()?;
                Ok(Value::Texts(Texts::new(vec![classes.len()], chosen)?))
            }
        }
    }
}

/// A class that was chosen: one with a label, or one of two that have none of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    At(usize),
    Positive,
    Negative,
}

/// The first of the greatest scores.
pub(super) fn greatest(scores: impl IntoIterator<Item = f64>) -> usize {
    let mut best = (0, f64::NEG_INFINITY);
    for (at, score) in scores.into_iter().enumerate() {
        if at == 0 || score > best.1 {
            best = (at, score);
        }
    }
    best.0
}

/// What scores go through at last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transform {
    None,
    Softmax,
    Logistic,
    SoftmaxZero,
    Probit,
}

/// How a single score becomes one for each of two classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Second {
    /// It does not.
    Absent,
    /// A probability: the rest to 1 is the other's.
    Rest,
    /// A margin: the other's is its opposite.
    Opposite,
}

impl Transform {
    /// The attribute `post_transform` of a node.
    pub(super) fn of(build: &Build<'_>) -> Result<Transform, OpError> {
        Ok(match build.attributes.text("post_transform", "NONE")?.as_str() {
            "NONE" => Transform::None,
            "SOFTMAX" => Transform::Softmax,
            "LOGISTIC" => Transform::Logistic,
            "SOFTMAX_ZERO" => Transform::SoftmaxZero,
            "PROBIT" => Transform::Probit,
            other => return Err(OpError(format!("the transformation {} of its scores", Quoted(other)))),
        })
    }

    /// The same by the number that newer operators have for it.
    pub(super) fn numbered(number: i64) -> Result<Transform, OpError> {
        use Transform::{Logistic, None, Probit, Softmax, SoftmaxZero};
        let at = usize::try_from(number).ok();
        let found = at.and_then(|at| [None, Softmax, Logistic, SoftmaxZero, Probit].get(at).copied());
        found.ok_or_else(|| OpError(format!("the transformation {number} of its scores")))
    }

    /// Transforms the scores of one row and adds them to `out`. A single score is changed by `PROBIT` only, and where it
    /// stands for two classes.
    pub(super) fn write(self, scores: &mut [f32], second: Second, out: &mut Vec<f32>) {
        if let [score] = *scores {
            match (self, second) {
                (Transform::Probit, _) => out.push(probit(score)),
                (_, Second::Absent) => out.push(score),
                (Transform::Logistic, _) => out.extend([logistic(-score), logistic(score)]),
                (_, Second::Rest) => out.extend([1.0 - score, score]),
                (_, Second::Opposite) => out.extend([-score, score]),
            }
            return;
        }
        match self {
            Transform::None => {}
            Transform::Logistic => scores.iter_mut().for_each(|x| *x = logistic(*x)),
            Transform::Probit => scores.iter_mut().for_each(|x| *x = probit(*x)),
            Transform::Softmax => softmax(scores, |_| true),
            // What is zero stays zero.
            Transform::SoftmaxZero => softmax(scores, |x| x.abs() > 1e-7),
        }
        out.extend_from_slice(scores);
    }
}

pub(super) fn logistic(x: f32) -> f32 {
    let y = 1.0 / (1.0 + (-x.abs()).exp());
    if x < 0.0 { 1.0 - y } else { y }
}

fn softmax(scores: &mut [f32], counts: impl Fn(f32) -> bool) {
    let greatest = scores.iter().copied().fold(f32::MIN, f32::max);
    let mut sum = 0.0;
    for x in scores.iter_mut() {
        if counts(*x) {
            *x = (*x - greatest).exp();
            sum += *x;
        } else {
            *x *= (-greatest).exp();
        }
    }
    scores.iter_mut().for_each(|x| *x /= sum);
}

/// The inverse of the normal distribution function, as closely as onnxruntime has it (Winitzki's approximation).
#[allow(clippy::approx_constant, reason = "onnxruntime's own number of digits")]
fn probit(x: f32) -> f32 {
    if !(0.0..=1.0).contains(&x) {
        return f32::NAN;
    }
    let x = 2.0 * x - 1.0;
    let sign = if x < 0.0 { -1.0 } else { 1.0 };
    let log = ((1.0 - x) * (1.0 + x)).ln();
    let v = 2.0 / (std::f32::consts::PI * 0.147) + 0.5 * log;
    std::f32::consts::SQRT_2 * sign * (-v + (v * v - log / 0.147).sqrt()).sqrt()
}

/// The rows of a matrix of numbers; a vector is one row. Everything that these operators take is turned to float32.
pub(super) struct Rows {
    pub(super) numbers: Vec<f32>,
    pub(super) count: usize,
    pub(super) width: usize,
}

impl Rows {
    pub(super) fn of(x: Value) -> Result<Rows, OpError> {
        let (count, width) = row_shape(&x.shape())?;
        let numbers = x.into_data()?.convert_dtype(DType::F32).try_into_vec().map_err(|e| OpError(e.to_string()))?;
        Ok(Rows { numbers, count, width })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[f32]> {
        // A row may have no columns.
        (0..self.count).map(|row| &self.numbers[row * self.width..][..self.width])
    }
}

/// Rows and columns of a matrix, or of a vector as one row.
pub(super) fn row_shape(dims: &[usize]) -> Result<(usize, usize), OpError> {
    match *dims {
        [width] => Ok((1, width)),
        [count, width] => Ok((count, width)),
        ref other => Err(OpError(format!("expects rows of features and gets the shape {other:?}"))),
    }
}

/// A matrix of these elements.
pub(super) fn matrix(numbers: Vec<f32>, rows: usize, device: &DispatchDevice) -> Result<Value, OpError> {
    let width = numbers.len() / rows.max(1);
    Value::from_data(TensorData::new(numbers, [rows, width]), device)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(transform: Transform, scores: &[f32], second: Second) -> Vec<f32> {
        let mut out = Vec::new();
        transform.write(&mut scores.to_vec(), second, &mut out);
        out
    }

    #[test]
    fn two_classes_with_one_score_are_as_in_onnxruntime() {
        assert_eq!(written(Transform::None, &[0.25], Second::Rest), [0.75, 0.25]);
        assert_eq!(written(Transform::None, &[0.25], Second::Opposite), [-0.25, 0.25]);
        assert_eq!(written(Transform::Softmax, &[0.25], Second::Absent), [0.25]);
        let both = written(Transform::Logistic, &[2.0], Second::Opposite);
        assert!((both[1] - 0.880_797).abs() < 1e-6 && (both[0] + both[1] - 1.0).abs() < 1e-6);
    }

    #[test]
    fn transformations_are_those_of_their_definitions() {
        let sum: f32 = written(Transform::Softmax, &[1000.0, 1001.0, 3.0], Second::Absent).iter().sum();
        assert!((sum - 1.0).abs() < 1e-6);
        assert_eq!(written(Transform::SoftmaxZero, &[0.0, 1.0], Second::Absent), [0.0, 1.0]);
        // The quantile of 97.5 % is 1.96.
        assert!((written(Transform::Probit, &[0.975], Second::Absent)[0] - 1.96).abs() < 1e-2);
    }

    #[test]
    fn the_first_of_equal_scores_wins() {
        assert_eq!(greatest([0.0, 2.0, 2.0]), 1);
        assert_eq!(greatest([-3.0, -4.0]), 0);
    }
}
