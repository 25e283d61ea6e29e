//! `TreeEnsembleClassifier` and `TreeEnsembleRegressor`, and `TreeEnsemble`, which replaces both in opset 5.

use std::collections::HashMap;

use burn_backend::{DType, TensorData};
use burn_dispatch::DispatchDevice;

use super::ensemble::{Aggregate, Ensemble, Ready, Votes};
use super::scores::{Class, Labels, Second, Transform, greatest};
use crate::fast::forest::{Mode, Node};
use crate::ops::{Build, Kernel, Operator};
use crate::value::{OpError, Value};
use crate::weights;
use uncork_model::quote::Quoted;

pub(in crate::ops) const OPERATORS: &[Operator] = &[
    Operator::new("ai.onnx.ml::TreeEnsemble", tree_ensemble),
    Operator::new("ai.onnx.ml::TreeEnsembleClassifier", classifier),
    Operator::new("ai.onnx.ml::TreeEnsembleRegressor", |build| {
        let targets = build.attributes.int("n_targets", 1)?;
        let targets = usize::try_from(targets).map_err(|_| OpError(format!("{targets} targets")))?;
        let aggregate = Aggregate::named(&build.attributes.text("aggregate_function", "SUM")?)?;
        let trees = Ready::new(listed(build, "target", targets, aggregate)?)?;
        let (base, transform) = (base_values(build)?, Transform::of(build)?);
        Ok(Kernel::one(move |mut args| {
            let votes = trees.votes(args.take(0)?)?;
            let scores = regression(&votes, trees.targets(), &base, transform)?;
            Value::from_data(TensorData::new(scores, [votes.rows, trees.targets()]), args.device)
        }))
    }),
];

/// What the trees voted for each row and target, with the base values, transformed.
fn regression(votes: &Votes, targets: usize, base: &[f64], transform: Transform) -> Result<Vec<f32>, OpError> {
    if !base.is_empty() && base.len() != targets {
        return Err(OpError(format!("{} base values for {targets} targets", base.len())));
    }
    let mut out = Vec::with_capacity(votes.scores.len());
    let mut row = vec![0.0; targets];
    let targets = targets.max(1);
    for (scores, voted) in votes.scores.chunks_exact(targets).zip(votes.voted.chunks_exact(targets)) {
        for (i, sum) in row.iter_mut().enumerate() {
            // What nobody votes for stays zero, whatever its base value.
            *sum = if voted[i] { (scores[i] + base.get(i).copied().unwrap_or(0.0)) as f32 } else { 0.0 };
        }
        transform.write(&mut row, Second::Absent, &mut out);
    }
    Ok(out)
}

fn classifier(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let labels = Labels::of(build, "classlabels_int64s", "classlabels_strings")?;
    let classes = labels.count();
    let ensemble = listed(build, "class", classes, Aggregate::Sum)?;
    let (base, transform) = (base_values(build)?, Transform::of(build)?);
    if base.len() > classes {
        return Err(OpError(format!("{} base values for {classes} classes", base.len())));
    }
    let mut voted: Vec<usize> = ensemble.votes.iter().flatten().map(|(class, _)| *class).collect();
    voted.sort_unstable();
    voted.dedup();
    let two = Two {
        single: classes == 2 && voted.len() == 1,
        positive: ensemble.votes.iter().flatten().all(|(_, weight)| *weight >= 0.0),
        base: base.clone(),
    };
    let trees = Ready::new(ensemble)?;
    Ok(Kernel::many(move |mut args| {
        let votes = trees.votes(args.take(0)?)?;
        let (mut chosen, mut out) = (Vec::with_capacity(votes.rows), Vec::with_capacity(votes.rows * classes));
        let mut scores = vec![0.0f32; classes];
        for (sums, voted) in votes.scores.chunks_exact(classes).zip(votes.voted.chunks_exact(classes)) {
            if classes <= 2 {
                chosen.push(two.decide(sums, voted, transform, &mut out));
                continue;
            }
            for (i, score) in scores.iter_mut().enumerate() {
                *score = (sums[i] + base.get(i).copied().unwrap_or(0.0)) as f32;
            }
            // A class that nobody voted for is not chosen, though others may have less than nothing.
            let counts = |i: usize| voted[i] || i < base.len();
            let known = (0..classes).map(|i| if counts(i) { f64::from(scores[i]) } else { f64::NEG_INFINITY });
            chosen.push(Class::At(greatest(known)));
            transform.write(&mut scores, Second::Absent, &mut out);
        }
        let width = out.len() / votes.rows.max(1);
        let scores = Value::from_data(TensorData::new(out, [votes.rows, width]), args.device)?;
        Ok(vec![labels.chosen(&chosen, args.device)?, scores])
    }))
}

/// One class or two: the specification leaves open what a single score says.
struct Two {
    /// There are two classes, and all leaves vote for the same one.
    single: bool,
    /// No vote is negative, so that scores are probabilities.
    positive: bool,
    base: Vec<f64>,
}

impl Two {
    /// The class of a row, whose scores are added to `out`.
    fn decide(&self, sums: &[f64], voted: &[bool], transform: Transform, out: &mut Vec<f32>) -> Class {
        let narrow = |x: f64| x as f32;
        let second_voted = voted.get(1).is_some_and(|voted| *voted);
        let (mut first, mut second) = (sums[0], sums.get(1).copied().filter(|_| self.base.len() == 2 || second_voted));
        let mut opposite = false;
        match self.base[..] {
            [_, base] if second_voted => {
                let margin = base + first;
                (first, second, opposite) = (-margin, Some(margin), true);
            }
            // A base value alone is no score.
            [one, _] => first += one,
            [base] => first += base,
            _ => {}
        }
        let decisive = match second {
            Some(second) if second_voted || opposite => second,
            _ if voted[0] => first,
            _ => 0.0,
        };
        let (class, rest) = match (self.single, self.positive) {
            (true, true) => (Class::At(usize::from(decisive > 0.5)), Second::Rest),
            (true, false) => (Class::At(usize::from(decisive > 0.0)), Second::Opposite),
            (false, _) if decisive > 0.0 => (Class::Positive, Second::Opposite),
            (false, _) => (Class::Negative, Second::Opposite),
        };
        match second {
            Some(second) => transform.write(&mut [narrow(first), narrow(second)], Second::Absent, out),
            None if voted.len() < 2 => transform.write(&mut [narrow(first)], Second::Absent, out),
            None => transform.write(&mut [narrow(first)], rest, out),
        }
        class
    }
}

/// Numbers that are a list of float32 or, where float64 is meant, a tensor of another name.
fn numbers(build: &Build<'_>, name: &str) -> Result<Option<Vec<f64>>, OpError> {
    if let Some(list) = build.attributes.floats(name)?.filter(|list| !list.is_empty()) {
        return Ok(Some(list.into_iter().map(f64::from).collect()));
    }
    tensor(build, &format!("{name}_as_tensor"))
}

/// The numbers of a tensor.
fn tensor(build: &Build<'_>, name: &str) -> Result<Option<Vec<f64>>, OpError> {
    let Some(mut tensor) = build.attributes.tensor(name)? else { return Ok(None) };
    let data = weights::data(&mut tensor, build.files)?.convert_dtype(DType::F64);
    data.try_into_vec().map(Some).map_err(|e| OpError(e.to_string()))
}

fn base_values(build: &Build<'_>) -> Result<Vec<f64>, OpError> {
    Ok(numbers(build, "base_values")?.unwrap_or_default())
}

fn ints(build: &Build<'_>, name: &str) -> Result<Vec<i64>, OpError> {
    Ok(build.attributes.ints(name)?.unwrap_or_default())
}

fn index(number: i64, what: &str) -> Result<usize, OpError> {
    usize::try_from(number).map_err(|_| OpError(format!("{what} {number}")))
}

/// An ensemble whose nodes are listed with the ids of their trees and their own, and whose votes with the same ids. `kind`
/// is what the attributes of votes begin with.
fn listed(build: &Build<'_>, kind: &str, targets: usize, aggregate: Aggregate) -> Result<Ensemble, OpError> {
    let (trees, ids) = (ints(build, "nodes_treeids")?, ints(build, "nodes_nodeids")?);
    let (features, modes) =
        (ints(build, "nodes_featureids")?, build.attributes.texts("nodes_modes")?.unwrap_or_default());
    let (holds, fails) = (ints(build, "nodes_truenodeids")?, ints(build, "nodes_falsenodeids")?);
    let missing = ints(build, "nodes_missing_value_tracks_true")?;
    let thresholds = numbers(build, "nodes_values")?.unwrap_or_default();
    // How often a node is visited changes nothing.
    numbers(build, "nodes_hitrates")?;
    let count = ids.len();
    let lengths = [trees.len(), features.len(), modes.len(), holds.len(), fails.len(), thresholds.len()];
    if lengths.iter().any(|&length| length != count) || ![0, count].contains(&missing.len()) {
        return Err(OpError::new("the lists that describe its nodes differ in length"));
    }
    let mut places: HashMap<(i64, i64), usize> = HashMap::with_capacity(count);
    for (at, key) in trees.iter().copied().zip(ids.iter().copied()).enumerate() {
        if places.insert(key, at).is_some() {
            return Err(OpError(format!("tree {} has two nodes {}", key.0, key.1)));
        }
    }
    let mut nodes = Vec::with_capacity(count);
    let mut is_child = vec![false; count];
    let mut leaves = 0;
    for at in 0..count {
        if modes[at] == "LEAF" {
            nodes.push(Node::Leaf(leaves));
            leaves += 1;
            continue;
        }
        let mode = match modes[at].as_str() {
            "BRANCH_LEQ" => Mode::AtMost,
            "BRANCH_LT" => Mode::Below,
            "BRANCH_GTE" => Mode::AtLeast,
            "BRANCH_GT" => Mode::Above,
            "BRANCH_EQ" => Mode::Equal,
            "BRANCH_NEQ" => Mode::Differs,
            other => return Err(OpError(format!("nodes of the mode {}", Quoted(other)))),
        };
        let mut child = |id: i64| {
            let place = places.get(&(trees[at], id)).copied();
            let place = place.ok_or_else(|| OpError(format!("tree {} has no node {id}", trees[at])))?;
            is_child[place] = true;
            Ok::<usize, OpError>(place)
        };
        nodes.push(Node::Branch {
            mode,
            feature: index(features[at], "feature")?,
            threshold: thresholds[at],
            set: Vec::new(),
            missing_holds: missing.get(at).is_some_and(|&flag| flag == 1),
            holds: child(holds[at])?,
            fails: child(fails[at])?,
        });
    }
    // Each tree begins with the node that is nobody's child; trees are in the order of the file.
    let roots: Vec<usize> = (0..count).filter(|&at| !is_child[at]).collect();
    let mut known = HashMap::new();
    if roots.iter().any(|&root| known.insert(trees[root], root).is_some()) {
        return Err(OpError::new("one of its trees has two roots"));
    }
    if let Some(tree) = trees.iter().find(|tree| !known.contains_key(tree)) {
        return Err(OpError(format!("tree {tree} has no root: each of its nodes is another's child")));
    }
    let votes = votes(build, kind, &nodes, &places, leaves)?;
    Ok(Ensemble { nodes, roots, votes, targets, aggregate })
}

/// What each leaf votes for.
fn votes(
    build: &Build<'_>,
    kind: &str,
    nodes: &[Node],
    places: &HashMap<(i64, i64), usize>,
    leaves: usize,
) -> Result<Vec<Vec<(usize, f64)>>, OpError> {
    let list = |name: &str| ints(build, &format!("{kind}_{name}"));
    let (trees, ids, targets) = (list("treeids")?, list("nodeids")?, list("ids")?);
    let weights = numbers(build, &format!("{kind}_weights"))?.unwrap_or_default();
    if [ids.len(), targets.len(), weights.len()].iter().any(|&length| length != trees.len()) {
        return Err(OpError::new("the lists that describe its votes differ in length"));
    }
    let mut votes = vec![Vec::new(); leaves];
    for i in 0..trees.len() {
        let at = places.get(&(trees[i], ids[i])).copied();
        let at =
            at.ok_or_else(|| OpError(format!("there is a vote of node {}, which tree {} has not", ids[i], trees[i])))?;
        // A branch has no vote.
        if let Node::Leaf(leaf) = nodes[at] {
            votes[leaf].push((index(targets[i], "a vote for target")?, weights[i]));
        }
    }
    // In the order of their targets, which changes no sum.
    votes.iter_mut().for_each(|votes| votes.sort_by_key(|(target, _)| *target));
    // Numbers of leaves, which skl2onnx writes once for each class of the tree: whoever asks for one target gets one vote, as in onnxruntime.
    if targets.iter().all(|target| *target == 0) {
        votes.iter_mut().for_each(|votes| votes.dedup());
    }
    Ok(votes)
}

fn tree_ensemble(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let targets = index(build.attributes.int("n_targets", 1)?, "a number of targets of")?;
    let aggregate = Aggregate::numbered(build.attributes.int("aggregate_function", 1)?)?;
    let transform = Transform::numbered(build.attributes.int("post_transform", 0)?)?;
    let trees = Ready::new(connected(build, targets, aggregate)?)?;
    Ok(Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let dtype = x.dtype();
        let votes = trees.votes(x)?;
        result(&votes, trees.targets(), transform, dtype, args.device)
    }))
}

/// Scores of the type of the features.
fn result(
    votes: &Votes,
    targets: usize,
    transform: Transform,
    dtype: DType,
    device: &DispatchDevice,
) -> Result<Value, OpError> {
    let dims = [votes.rows, targets];
    if dtype == DType::F64 && transform == Transform::None {
        return Value::from_data(TensorData::new(votes.scores.clone(), dims), device);
    }
    let scores = regression(votes, targets, &[], transform)?;
    Value::from_data(TensorData::new(scores, dims).convert_dtype(dtype), device)
}

/// An ensemble of opset 5, whose branches and leaves are lists of their own.
fn connected(build: &Build<'_>, targets: usize, aggregate: Aggregate) -> Result<Ensemble, OpError> {
    let features = ints(build, "nodes_featureids")?;
    let (holds, fails) = (ints(build, "nodes_truenodeids")?, ints(build, "nodes_falsenodeids")?);
    let (holds_leaf, fails_leaf) = (ints(build, "nodes_trueleafs")?, ints(build, "nodes_falseleafs")?);
    let missing = ints(build, "nodes_missing_value_tracks_true")?;
    let number = |name: &str| Ok::<_, OpError>(tensor(build, name)?.unwrap_or_default());
    let (modes, thresholds) = (number("nodes_modes")?, number("nodes_splits")?);
    number("nodes_hitrates")?;
    let count = features.len();
    let lengths = [holds.len(), fails.len(), holds_leaf.len(), fails_leaf.len(), modes.len(), thresholds.len()];
    if lengths.iter().any(|&length| length != count) || ![0, count].contains(&missing.len()) {
        return Err(OpError::new("the lists that describe its nodes differ in length"));
    }
    let (ids, weights) = (ints(build, "leaf_targetids")?, number("leaf_weights")?);
    if ids.len() != weights.len() {
        return Err(OpError::new("the lists that describe its leaves differ in length"));
    }
    // Sets follow each other in the order of the nodes that ask for one, each ended by what is no number.
    let members = number("membership_values")?;
    let mut sets = members.split(|member| member.is_nan());
    let mut nodes = Vec::with_capacity(count + ids.len());
    let child = |id: i64, leaf: i64| {
        let id = index(id, "node")?;
        let place = if leaf == 0 { id } else { count.saturating_add(id) };
        if place < count + ids.len() { Ok(place) } else { Err(OpError(format!("there is no node {id}"))) }
    };
    for at in 0..count {
        const MODES: [Mode; 7] =
            [Mode::AtMost, Mode::Below, Mode::AtLeast, Mode::Above, Mode::Equal, Mode::Differs, Mode::Member];
        let mode = MODES.get(modes[at] as usize).copied();
        let mode = mode.ok_or_else(|| OpError(format!("nodes of the mode {}", modes[at])))?;
        nodes.push(Node::Branch {
            mode,
            feature: index(features[at], "feature")?,
            threshold: thresholds[at],
            set: if mode == Mode::Member { sets.next().unwrap_or_default().to_vec() } else { Vec::new() },
            missing_holds: missing.get(at).is_some_and(|&flag| flag == 1),
            holds: child(holds[at], holds_leaf[at])?,
            fails: child(fails[at], fails_leaf[at])?,
        });
    }
    nodes.extend((0..ids.len()).map(Node::Leaf));
    let roots = ints(build, "tree_roots")?.into_iter().map(|root| index(root, "root"));
    let roots = roots.collect::<Result<Vec<_>, _>>()?;
    let vote = |(id, weight): (i64, f64)| Ok(vec![(index(id, "a vote for target")?, weight)]);
    let votes = ids.into_iter().zip(weights).map(vote).collect::<Result<_, OpError>>()?;
    Ok(Ensemble { nodes, roots, votes, targets, aggregate })
}
