//! Trees with what their leaves vote for, whatever operator they come from.

use std::sync::OnceLock;

use burn_backend::DType;
use rayon::prelude::*;

use super::scores::row_shape;
use crate::fast::forest::{Forest, Node, Number};
use crate::floats::Floats;
use crate::value::{OpError, Value, elements};
use uncork_model::quote::Quoted;

/// Rows that a thread takes at a time.
const PIECE: usize = 64;

/// How the votes of all trees for one target become one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aggregate {
    Sum,
    Average,
    Least,
    Greatest,
}

impl Aggregate {
    pub(super) fn named(name: &str) -> Result<Aggregate, OpError> {
        match name {
            "SUM" => Ok(Aggregate::Sum),
            "AVERAGE" => Ok(Aggregate::Average),
            "MIN" => Ok(Aggregate::Least),
            "MAX" => Ok(Aggregate::Greatest),
            other => Err(OpError(format!("the aggregate function {}", Quoted(other)))),
        }
    }

    pub(super) fn numbered(number: i64) -> Result<Aggregate, OpError> {
        use Aggregate::{Average, Greatest, Least, Sum};
        let at = usize::try_from(number).ok();
        let found = at.and_then(|at| [Average, Sum, Least, Greatest].get(at).copied());
        found.ok_or_else(|| OpError(format!("the aggregate function {number}")))
    }
}

/// What a file says: nodes, roots, and for each leaf the targets that it votes for with their weights.
pub(super) struct Ensemble {
    pub(super) nodes: Vec<Node>,
    pub(super) roots: Vec<usize>,
    pub(super) votes: Vec<Vec<(usize, f64)>>,
    pub(super) targets: usize,
    pub(super) aggregate: Aggregate,
}

/// An ensemble made ready for float32 and, once somebody sends such features, for float64.
pub(super) struct Ready {
    ensemble: Ensemble,
    narrow: Trees<f32>,
    wide: OnceLock<Result<Trees<f64>, OpError>>,
}

/// For each row and target the number that the trees voted, and whether any did.
pub(super) struct Votes {
    pub(super) rows: usize,
    /// Of the type of the features, each as float64, which changes none of them.
    pub(super) scores: Vec<f64>,
    pub(super) voted: Vec<bool>,
}

impl Ready {
    pub(super) fn new(ensemble: Ensemble) -> Result<Ready, OpError> {
        let narrow = Trees::new(&ensemble)?;
        Ok(Ready { ensemble, narrow, wide: OnceLock::new() })
    }

    pub(super) fn targets(&self) -> usize {
        self.ensemble.targets
    }

    /// The votes for rows of features of any type; float64 ones are compared and summed as such, all others as float32.
    pub(super) fn votes(&self, x: Value) -> Result<Votes, OpError> {
        let (rows, width) = row_shape(&x.shape())?;
        let needed = self.narrow.forest.width().max(1);
        if width < needed {
            return Err(OpError(format!("its trees ask for {needed} features and get {width}")));
        }
        let read = |e| OpError(format!("its features cannot be read: {e:?}"));
        if x.dtype() == DType::F64 {
            let features = x.into_data()?.try_into_vec::<f64>().map_err(read)?;
            let trees = self.wide.get_or_init(|| Trees::new(&self.ensemble)).as_ref().map_err(Clone::clone)?;
            return trees.votes(&features, rows, width);
        }
        if let Value::Float(handle) = &x
            && let Some(features) = Floats::of(handle)
        {
            return self.narrow.votes(features.as_slice(), rows, width);
        }
        let features = x.into_data()?.convert_dtype(DType::F32).try_into_vec::<f32>().map_err(read)?;
        self.narrow.votes(&features, rows, width)
    }
}

/// Trees over features of one type.
struct Trees<T: Number> {
    forest: Forest<T>,
    ballots: Ballots<T>,
    targets: usize,
    aggregate: Aggregate,
    count: usize,
}

/// What each leaf votes, by its number.
enum Ballots<T> {
    /// For the only target.
    One(Vec<T>),
    /// For every target, one leaf after the other.
    All(Vec<T>),
    /// For some targets.
    Some(Vec<Vec<(u32, T)>>),
}

impl<T: Number + std::ops::AddAssign> Trees<T> {
    fn new(ensemble: &Ensemble) -> Result<Trees<T>, OpError> {
        let Ensemble { nodes, roots, votes, targets, aggregate } = ensemble;
        let forest = Forest::new(nodes, roots).map_err(OpError)?;
        if *targets == 0 {
            return Err(OpError::new("its leaves vote for no target"));
        }
        let beyond = votes.iter().flatten().find(|(target, _)| target >= targets);
        if let Some((target, _)) = beyond {
            return Err(OpError(format!("a leaf votes for target {target} of {targets}")));
        }
        let in_order =
            |leaf: &Vec<(usize, f64)>| leaf.len() == *targets && leaf.iter().enumerate().all(|(i, v)| v.0 == i);
        let weights = || votes.iter().flatten().map(|(_, weight)| T::of(*weight)).collect();
        let ballots = match votes.iter().all(in_order) {
            true if *targets == 1 => Ballots::One(weights()),
            true => Ballots::All(weights()),
            false => {
                let leaf = |leaf: &Vec<(usize, f64)>| leaf.iter().map(|&(i, w)| (i as u32, T::of(w))).collect();
                Ballots::Some(votes.iter().map(leaf).collect())
            }
        };
        Ok(Trees { forest, ballots, targets: *targets, aggregate: *aggregate, count: roots.len() })
    }

    fn votes(&self, features: &[T], rows: usize, width: usize) -> Result<Votes, OpError> {
        elements(&[rows, self.targets])?;
        let mut scores = vec![T::of(0.0); rows * self.targets];
        let mut voted = vec![false; rows * self.targets];
        if rayon::current_num_threads() == 1 || rows <= PIECE {
            self.count(features, width, &mut scores, &mut voted);
        } else {
            let pieces = features.par_chunks(PIECE * width);
            let counted = scores.par_chunks_mut(PIECE * self.targets).zip(voted.par_chunks_mut(PIECE * self.targets));
            pieces.zip(counted).for_each(|(rows, (scores, voted))| self.count(rows, width, scores, voted));
        }
        let share = if self.aggregate == Aggregate::Average { T::of(self.count as f64).wide() } else { 1.0 };
        // Divided in the type of the features, as they were summed.
        let scores = scores.into_iter().map(|score| T::of(score.wide() / share).wide()).collect();
        Ok(Votes { rows, scores, voted })
    }

    fn count(&self, features: &[T], width: usize, scores: &mut [T], voted: &mut [bool]) {
        let targets = self.targets;
        match (&self.ballots, self.aggregate) {
            (Ballots::One(weights), Aggregate::Sum | Aggregate::Average) => {
                self.forest.visit(features, width, |row, leaf| scores[row] += weights[leaf]);
                voted.fill(true);
            }
            (Ballots::All(weights), Aggregate::Sum | Aggregate::Average) => {
                self.forest.visit(features, width, |row, leaf| {
                    let weights = &weights[leaf * targets..][..targets];
                    scores[row * targets..][..targets].iter_mut().zip(weights).for_each(|(score, w)| *score += *w);
                });
                voted.fill(true);
            }
            (ballots, aggregate) => {
                let mut vote = |row: usize, target: usize, weight: T| {
                    let (score, voted) = (&mut scores[row * targets + target], &mut voted[row * targets + target]);
                    match aggregate {
                        Aggregate::Sum | Aggregate::Average => *score += weight,
                        Aggregate::Least if !*voted || weight < *score => *score = weight,
                        Aggregate::Greatest if !*voted || weight > *score => *score = weight,
                        Aggregate::Least | Aggregate::Greatest => {}
                    }
                    *voted = true;
                };
                self.forest.visit(features, width, |row, leaf| match ballots {
                    Ballots::One(weights) => vote(row, 0, weights[leaf]),
                    Ballots::All(weights) => {
                        (0..targets).for_each(|target| vote(row, target, weights[leaf * targets + target]));
                    }
                    Ballots::Some(votes) => {
                        votes[leaf].iter().for_each(|&(target, weight)| vote(row, target as usize, weight));
                    }
                });
            }
        }
    }
}
