//! `SVMClassifier` and `SVMRegressor`: scores from distances to support vectors, and probabilities from scores.

use super::linear::product;
use super::scores::{Class, Labels, Rows, Second, Transform, greatest, logistic, matrix};
use crate::ops::{Build, Kernel, Operator};
use crate::value::OpError;
use uncork_model::quote::Quoted;

pub(in crate::ops) const OPERATORS: &[Operator] = &[
    Operator::new("ai.onnx.ml::SVMClassifier", classifier),
    Operator::new("ai.onnx.ml::SVMRegressor", regressor).except("`post_transform`, which onnxruntime ignores"),
];

/// How alike two vectors are.
enum Likeness {
    Linear,
    Poly,
    Rbf,
    Sigmoid,
}

/// The kernel function of a node.
struct Kind {
    likeness: Likeness,
    gamma: f32,
    offset: f32,
    degree: f32,
}

impl Kind {
    fn of(build: &Build<'_>) -> Result<Kind, OpError> {
        let likeness = match build.attributes.text("kernel_type", "LINEAR")?.as_str() {
            "LINEAR" => Likeness::Linear,
            "POLY" => Likeness::Poly,
            "RBF" => Likeness::Rbf,
            "SIGMOID" => Likeness::Sigmoid,
            other => return Err(OpError(format!("the kernel {}", Quoted(other)))),
        };
        let params = build.attributes.floats("kernel_params")?.unwrap_or_default();
        let at = |i: usize| params.get(i).copied().unwrap_or(0.0);
        Ok(Kind { likeness, gamma: at(0), offset: at(1), degree: at(2) })
    }

    fn apply(&self, a: &[f32], b: &[f32]) -> f32 {
        match self.likeness {
            Likeness::Linear => product(a, b),
            Likeness::Poly => (self.gamma * product(a, b) + self.offset).powf(self.degree),
            Likeness::Sigmoid => (self.gamma * product(a, b) + self.offset).tanh(),
            Likeness::Rbf => {
                let distance: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum();
                (-self.gamma * distance as f32).exp()
            }
        }
    }

    /// The likeness of a row to each of some vectors.
    fn to_all(&self, row: &[f32], vectors: &[f32], count: usize, likenesses: &mut Vec<f32>) -> Result<(), OpError> {
        if row.len() * count != vectors.len() {
            let expected = vectors.len() / count.max(1);
            return Err(OpError(format!("expects rows of {expected} features and gets {}", row.len())));
        }
        likenesses.clear();
        likenesses.extend((0..count).map(|i| self.apply(row, &vectors[i * row.len()..][..row.len()])));
        Ok(())
    }
}

fn list(build: &Build<'_>, name: &str) -> Result<Vec<f32>, OpError> {
    Ok(build.attributes.floats(name)?.unwrap_or_default())
}

fn regressor(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let kind = Kind::of(build)?;
    let (coefficients, vectors) = (list(build, "coefficients")?, list(build, "support_vectors")?);
    let rho = list(build, "rho")?.first().copied().unwrap_or(0.0);
    let count = usize::try_from(build.attributes.int("n_supports", 0)?).unwrap_or(0);
    let one_class = build.attributes.flag("one_class", false)?;
    if Transform::of(build)? != Transform::None {
        return Err(OpError::new("its scores are to be transformed"));
    }
    if count > 0 && coefficients.len() != count {
        return Err(OpError(format!("{} coefficients for {count} support vectors", coefficients.len())));
    }
    Ok(Kernel::one(move |mut args| {
        let rows = Rows::of(args.take(0)?)?;
        let (mut out, mut likenesses) = (Vec::with_capacity(rows.count), Vec::new());
        for row in rows.iter() {
            let score = if count > 0 {
                kind.to_all(row, &vectors, count, &mut likenesses)?;
                product(&coefficients, &likenesses) + rho
            } else {
                // Without support vectors the coefficients are those of a linear function.
                Kind { likeness: Likeness::Linear, ..kind }.to_all(row, &coefficients, 1, &mut likenesses)?;
                likenesses[0] + rho
            };
            let inside = if score > 0.0 { 1.0 } else { -1.0 };
            out.push(if one_class { inside } else { score });
        }
        matrix(out, rows.count, args.device)
    }))
}

/// Classes by votes of one classifier for each pair of them, as libsvm has them.
struct Pairs {
    kind: Kind,
    classes: usize,
    /// Where the support vectors of each class begin, and how many there are of it.
    parts: Vec<(usize, usize)>,
    count: usize,
    vectors: Vec<f32>,
    /// For each class but one, a row of as many coefficients as there are support vectors.
    coefficients: Vec<f32>,
    rho: Vec<f32>,
    /// Platt's two parameters for each pair; empty where scores stay scores.
    platt: Vec<(f32, f32)>,
}

fn classifier(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let labels = Labels::of(build, "classlabels_ints", "classlabels_strings")?;
    let classes = labels.count();
    let kind = Kind::of(build)?;
    let (coefficients, rho) = (list(build, "coefficients")?, list(build, "rho")?);
    let (vectors, transform) = (list(build, "support_vectors")?, Transform::of(build)?);
    let (a, b) = (list(build, "prob_a")?, list(build, "prob_b")?);
    let sizes = build.attributes.ints("vectors_per_class")?.unwrap_or_default();
    let sizes: Vec<usize> = sizes.iter().map(|&size| usize::try_from(size).unwrap_or(usize::MAX)).collect();
    let count = sizes.iter().fold(0usize, |sum, size| sum.saturating_add(*size));
    let positive = coefficients.iter().all(|c| *c >= 0.0);
    if count == 0 {
        return linear(labels, coefficients, rho.first().copied().unwrap_or(0.0), transform, positive);
    }
    let pairs = classes * (classes - 1) / 2;
    let fits = sizes.len() == classes
        && classes > 1
        && coefficients.len() == count.saturating_mul(classes - 1)
        && vectors.len().is_multiple_of(count)
        && rho.len() == pairs
        && a.len() == b.len()
        && [0, pairs].contains(&a.len());
    if !fits {
        return Err(OpError(format!(
            "{count} support vectors, {} coefficients, {} offsets and {} parameters of probabilities for {classes} classes",
            coefficients.len(),
            rho.len(),
            a.len()
        )));
    }
    let parts = sizes.iter().scan(0, |start, &size| {
        *start += size;
        Some((*start - size, size))
    });
    let (parts, platt) = (parts.collect(), a.into_iter().zip(b).collect());
    let model = Pairs { kind, classes, parts, count, vectors, coefficients, rho, platt };
    // One score of two classes: a margin where nothing is done with it, else onnxruntime takes it for a probability.
    let second = if transform == Transform::None { Second::Opposite } else { Second::Rest };
    Ok(Kernel::many(move |mut args| {
        let rows = Rows::of(args.take(0)?)?;
        let (mut chosen, mut out, mut likenesses) = (Vec::with_capacity(rows.count), Vec::new(), Vec::new());
        for row in rows.iter() {
            model.kind.to_all(row, &model.vectors, model.count, &mut likenesses)?;
            let (mut scores, votes) = model.scores(&likenesses);
            chosen.push(Class::At(greatest(votes.into_iter().map(f64::from))));
            if !model.platt.is_empty() {
                scores = model.probabilities(&scores);
            }
            transform.write(&mut scores, second, &mut out);
        }
        Ok(vec![labels.chosen(&chosen, args.device)?, matrix(out, rows.count, args.device)?])
    }))
}

/// A classifier without support vectors: a linear function for each class.
fn linear(
    labels: Labels,
    coefficients: Vec<f32>,
    rho: f32,
    transform: Transform,
    positive: bool,
) -> Result<Kernel, OpError> {
    let classes = labels.count();
    if coefficients.is_empty() || !coefficients.len().is_multiple_of(classes) {
        return Err(OpError(format!("{} coefficients for {classes} classes", coefficients.len())));
    }
    let kind = Kind { likeness: Likeness::Linear, gamma: 0.0, offset: 0.0, degree: 0.0 };
    Ok(Kernel::many(move |mut args| {
        let rows = Rows::of(args.take(0)?)?;
        let (mut chosen, mut out, mut scores) = (Vec::with_capacity(rows.count), Vec::new(), Vec::new());
        for row in rows.iter() {
            kind.to_all(row, &coefficients, classes, &mut scores)?;
            scores.iter_mut().for_each(|score| *score += rho);
            let best = greatest(scores.iter().map(|score| f64::from(*score)));
            let score = scores[best];
            // With two classes the second one is chosen by the size of the greatest score.
            let enough = if positive { score >= 0.5 } else { score > 0.0 };
            chosen.push(if classes == 2 && enough { Class::At(1) } else { Class::At(best) });
            transform.write(&mut scores, Second::Absent, &mut out);
        }
        Ok(vec![labels.chosen(&chosen, args.device)?, matrix(out, rows.count, args.device)?])
    }))
}

impl Pairs {
    /// The score of each pair of classes, and the votes of all pairs for each class.
    fn scores(&self, likenesses: &[f32]) -> (Vec<f32>, Vec<u32>) {
        let mut scores = Vec::with_capacity(self.rho.len());
        let mut votes = vec![0; self.classes];
        // The part of a score that the support vectors of one class add, weighed against another one.
        let part = |(start, size): (usize, usize), against: usize| -> f64 {
            let weights = &self.coefficients[against * self.count + start..][..size];
            weights.iter().zip(&likenesses[start..]).map(|(w, k)| f64::from(*w) * f64::from(*k)).sum()
        };
        for i in 0..self.classes {
            for j in i + 1..self.classes {
                let sum = part(self.parts[i], j - 1) + part(self.parts[j], i) + f64::from(self.rho[scores.len()]);
                votes[if sum > 0.0 { i } else { j }] += 1;
                scores.push(sum as f32);
            }
        }
        (scores, votes)
    }

    /// The probabilities of the classes that agree best with those of the pairs (Wu, Lin and Weng, 2004, second method, as
    /// libsvm computes it).
    fn probabilities(&self, scores: &[f32]) -> Vec<f32> {
        const LEAST: f32 = 1e-7;
        const ROUNDS: usize = 100;
        let k = self.classes;
        let mut pair = vec![0.0f32; k * k];
        let mut n = 0;
        for i in 0..k {
            for j in i + 1..k {
                let (a, b) = self.platt[n];
                let p = (1.0 - logistic(scores[n] * a + b)).clamp(LEAST, 1.0 - LEAST);
                (pair[i * k + j], pair[j * k + i]) = (p, 1.0 - p);
                n += 1;
            }
        }
        let mut q = vec![0.0f32; k * k];
        for i in 0..k {
            for j in (0..k).filter(|&j| j != i) {
                q[i * k + i] += pair[j * k + i] * pair[j * k + i];
                q[i * k + j] = -pair[j * k + i] * pair[i * k + j];
            }
        }
        let mut p = vec![1.0 / k as f32; k];
        for _ in 0..ROUNDS {
            let mut qp: Vec<f32> = (0..k).map(|i| (0..k).map(|j| q[i * k + j] * p[j]).sum()).collect();
            let mut pqp: f32 = p.iter().zip(&qp).map(|(p, qp)| p * qp).sum();
            if qp.iter().all(|qp| (qp - pqp).abs() < 0.005 / k as f32) {
                break;
            }
            for i in 0..k {
                let change = (pqp - qp[i]) / q[i * k + i];
                p[i] += change;
                pqp = (pqp + change * (change * q[i * k + i] + 2.0 * qp[i])) / (1.0 + change) / (1.0 + change);
                for j in 0..k {
                    qp[j] = (qp[j] + change * q[i * k + j]) / (1.0 + change);
                    p[j] /= 1.0 + change;
                }
            }
        }
        p
    }
}
