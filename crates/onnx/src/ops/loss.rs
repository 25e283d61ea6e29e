//! Losses, which some models give beside their answers.

use burn_backend::TensorMetadata;
use burn_backend::ops::ActivationOps;
use burn_dispatch::DispatchDevice;

use super::along::{elements_of, value_of};
use super::{Build, Kernel, Operator};
use crate::value::{Backend as B, OpError, Value, integers};
use uncork_model::quote::Quoted;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("NegativeLogLikelihoodLoss", |build| {
        let loss = Loss::of(build)?;
        Ok(Kernel::one(move |mut args| {
            let (logs, labels, weights) = (args.take(0)?, args.take(1)?, args.optional(2));
            loss.run(logs, labels, weights, args.device)
        }))
    }),
    Operator::new("SoftmaxCrossEntropyLoss", |build| {
        let loss = Loss::of(build)?;
        Ok(Kernel::many(move |mut args| {
            let (scores, labels, weights) = (args.float(0)?, args.take(1)?, args.optional(2));
            if scores.shape().num_dims() < 2 {
                return Err(OpError::new("scores without an axis of classes"));
            }
            let logs = Value::Float(B::log_softmax(scores, 1));
            Ok(vec![loss.run(logs.clone(), labels, weights, args.device)?, logs])
        }))
    }),
];

/// The attributes of a node.
struct Loss {
    /// A label that counts for nothing.
    ignored: Option<i64>,
    reduction: Reduction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reduction {
    None,
    Sum,
    Mean,
}

impl Loss {
    fn of(build: &Build<'_>) -> Result<Loss, OpError> {
        let attributes = &build.attributes;
        let ignored = attributes.has("ignore_index").then(|| attributes.int("ignore_index", 0)).transpose()?;
        let reduction = match attributes.text("reduction", "mean")?.as_str() {
            "none" => Reduction::None,
            "sum" => Reduction::Sum,
            "mean" => Reduction::Mean,
            other => return Err(OpError(format!("reduction={}", Quoted(other)))),
        };
        Ok(Loss { ignored, reduction })
    }

    /// Minus the logarithms at the labels; `logs` are [rows, classes, …].
    fn run(
        &self,
        logs: Value,
        labels: Value,
        weights: Option<Value>,
        device: &DispatchDevice,
    ) -> Result<Value, OpError> {
        let (dims, kind, shape) = (logs.shape(), logs.dtype(), labels.shape());
        let wrong = || OpError(format!("labels of shape {shape:?} do not fit {dims:?}"));
        let (&[rows, classes, ref rest @ ..], Some((&first, behind))) = (&dims[..], shape.split_first()) else {
            return Err(wrong());
        };
        if first != rows || behind != rest {
            return Err(wrong());
        }
        let inner: usize = rest.iter().product();
        let (logs, labels) = (elements_of::<f64>(logs)?, integers(labels.into_data()?)?);
        let weights = weights.map(elements_of::<f64>).transpose()?;
        if weights.as_ref().is_some_and(|weights| weights.len() != classes) {
            return Err(OpError(format!("{classes} classes have another number of weights")));
        }
        let (mut losses, mut whole) = (Vec::with_capacity(labels.len()), 0.0);
        for (at, &label) in labels.iter().enumerate() {
            if Some(label) == self.ignored {
                losses.push(0.0);
                continue;
            }
            let class = usize::try_from(label).ok().filter(|&class| class < classes);
            let class = class.ok_or_else(|| OpError(format!("label {label} of {classes} classes")))?;
            let weight = weights.as_ref().map_or(1.0, |weights| weights[class]);
            losses.push(-weight * logs[(at / inner * classes + class) * inner + at % inner]);
            whole += weight;
        }
        let sum: f64 = losses.iter().sum();
        match self.reduction {
            Reduction::None => value_of(losses, shape, kind, device),
            Reduction::Sum => value_of(vec![sum], vec![], kind, device),
            Reduction::Mean => value_of(vec![sum / whole], vec![], kind, device),
        }
    }
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use super::super::alone::{alone, scalar};
    use crate::author::Attribute::Int;

    #[test]
    fn a_label_beyond_the_classes_is_refused_and_an_ignored_one_counts_for_nothing() {
        let loss = |label: i64| {
            let inputs =
                [("x", TensorData::from([[-1f32, -2.0], [-3.0, -5.0]])), ("t", TensorData::from([1i64, label]))];
            alone(13, "NegativeLogLikelihoodLoss", &[("ignore_index", Int(-1))], inputs)
        };
        assert_eq!(loss(0), Ok(scalar(2.5f32)));
        assert_eq!(loss(-1), Ok(scalar(2f32)));
        assert!(loss(2).unwrap_err().contains("label 2 of 2 classes"));
    }
}
