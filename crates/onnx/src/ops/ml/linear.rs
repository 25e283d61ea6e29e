//! `LinearClassifier` and `LinearRegressor`.

use super::scores::{Class, Labels, Rows, Second, Transform, greatest, matrix};
use crate::ops::{Build, Kernel, Operator};
use crate::value::OpError;

pub(in crate::ops) const OPERATORS: &[Operator] = &[
    Operator::new("ai.onnx.ml::LinearClassifier", classifier),
    Operator::new("ai.onnx.ml::LinearRegressor", |build| {
        let targets = build.attributes.int("targets", 1)?;
        let model = Model::of(build, usize::try_from(targets).unwrap_or(0))?;
        let transform = Transform::of(build)?;
        Ok(Kernel::one(move |mut args| {
            let rows = Rows::of(args.take(0)?)?;
            let mut out = Vec::with_capacity(rows.count * model.targets);
            let mut scores = Vec::new();
            for row in rows.iter() {
                model.scores(row, &mut scores)?;
                transform.write(&mut scores, Second::Absent, &mut out);
            }
            matrix(out, rows.count, args.device)
        }))
    }),
];

/// A row of coefficients for each target, and what is added to its score.
struct Model {
    targets: usize,
    coefficients: Vec<f32>,
    intercepts: Vec<f32>,
}

impl Model {
    fn of(build: &Build<'_>, targets: usize) -> Result<Model, OpError> {
        let coefficients = build.attributes.floats("coefficients")?.unwrap_or_default();
        let mut intercepts = build.attributes.floats("intercepts")?.unwrap_or_default();
        let count = if intercepts.is_empty() { targets } else { intercepts.len() };
        // A number of targets that the coefficients bear out can be made room for.
        if targets == 0 || count != targets || coefficients.is_empty() || coefficients.len() % targets != 0 {
            let (numbers, intercepts) = (coefficients.len(), intercepts.len());
            return Err(OpError(format!("{numbers} coefficients and {intercepts} intercepts for {targets} targets")));
        }
        intercepts.resize(targets, 0.0);
        Ok(Model { targets, coefficients, intercepts })
    }

    /// The score of each target for a row.
    fn scores(&self, row: &[f32], scores: &mut Vec<f32>) -> Result<(), OpError> {
        if row.len() * self.targets != self.coefficients.len() {
            let expected = self.coefficients.len() / self.targets;
            return Err(OpError(format!("expects rows of {expected} features and gets {}", row.len())));
        }
        scores.clear();
        for (target, intercept) in self.intercepts.iter().enumerate() {
            scores.push(product(&self.coefficients[target * row.len()..][..row.len()], row) + intercept);
        }
        Ok(())
    }
}

/// The inner product of two vectors. Summed as float64: the order of the sum then does not show.
pub(super) fn product(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() as f32
}

fn classifier(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let labels = Labels::of(build, "classlabels_ints", "classlabels_strings")?;
    let intercepts = build.attributes.floats("intercepts")?.unwrap_or_default().len();
    let model = Model::of(build, if intercepts == 0 { labels.count() } else { intercepts })?;
    let transform = Transform::of(build)?;
    // One against the rest, or all together: that is told by the transformation as well.
    build.attributes.int("multi_class", 0)?;
    let second = if labels.count() == 2 { Second::Rest } else { Second::Absent };
    Ok(Kernel::many(move |mut args| {
        let rows = Rows::of(args.take(0)?)?;
        let (mut chosen, mut out, mut scores) = (Vec::with_capacity(rows.count), Vec::new(), Vec::new());
        for row in rows.iter() {
            model.scores(row, &mut scores)?;
            chosen.push(match (&scores[..], labels.count()) {
                ([score], 2) => Class::At(usize::from(*score > 0.0)),
                ([score], _) if *score > 0.0 => Class::Positive,
                ([_], _) => Class::Negative,
                (scores, _) => Class::At(greatest(scores.iter().map(|score| f64::from(*score)))),
            });
            transform.write(&mut scores, second, &mut out);
        }
        Ok(vec![labels.chosen(&chosen, args.device)?, matrix(out, rows.count, args.device)?])
    }))
}
