//! What a rule looks for, declared: an expression over values and constants, held against the nodes that compute a value.

use std::collections::HashMap;

use super::net::Net;
use super::node::{Joined, Node};
use crate::fast::activation::Activation;
use crate::proto::NodeProto;

/// Largest difference of a constant to the number that it stands for.
const CLOSE: f32 = 1e-4;

/// A value by how it is computed. The arguments of `Add` and `Mul` may come in either order.
#[derive(Clone)]
pub(super) enum Pattern {
    /// Any value; the same one wherever the name stands.
    Value(&'static str),
    /// Any single number, remembered under this name.
    Number(&'static str),
    /// This number.
    Constant(f32),
    /// The result of a standard operator without attributes.
    Result(&'static str, Vec<Pattern>),
    /// The mean over the last axis, which is kept with a length of one.
    Mean(Box<Pattern>),
}

impl Pattern {
    pub(super) fn unary(operator: &'static str, x: Pattern) -> Pattern {
        Pattern::Result(operator, vec![x])
    }

    pub(super) fn binary(operator: &'static str, a: Pattern, b: Pattern) -> Pattern {
        Pattern::Result(operator, vec![a, b])
    }

    /// Whether the node at `at` computes this; if so, what stands where, and which nodes take part.
    pub(super) fn find(&self, net: &Net<'_>, at: usize) -> Option<Found> {
        let name = net.node(at)?.file.output.first()?;
        self.matched(net, name, Found::default())
    }

    /// What is found if `name` is this, beside what was found before.
    fn matched(&self, net: &Net<'_>, name: &str, mut found: Found) -> Option<Found> {
        match self {
            Pattern::Value(label) => {
                let known = found.values.entry(label).or_insert_with(|| name.to_owned());
                (known == name).then_some(found)
            }
            Pattern::Number(label) => {
                found.numbers.insert(label, net.scalar(name)?);
                Some(found)
            }
            Pattern::Constant(number) => ((net.scalar(name)? - number).abs() < CLOSE).then_some(found),
            Pattern::Result(operator, arguments) => {
                let at = net.maker(name)?;
                let node = net.node(at).filter(|node| node.is(operator, &[]))?;
                found.takes(at);
                match (arguments.as_slice(), node.file.input.as_slice()) {
                    ([a, b], [first, second]) => {
                        let in_order =
                            |first: &str, second: &str| b.matched(net, second, a.matched(net, first, found.clone())?);
                        let turned = || ["Add", "Mul"].contains(operator).then(|| in_order(second, first)).flatten();
                        in_order(first, second).or_else(turned)
                    }
                    (patterns, names) if patterns.len() == names.len() => {
                        let mut pairs = patterns.iter().zip(names);
                        pairs.try_fold(found, |found, (pattern, name)| pattern.matched(net, name, found))
                    }
                    _ => None,
                }
            }
            Pattern::Mean(x) => {
                let at = net.maker(name)?;
                let node = net.node(at).filter(|node| node.is("ReduceMean", &["axes", "keepdims"]))?;
                let attribute = |name: &str| node.file.attribute.iter().find(|a| a.name == name);
                let last = attribute("axes").is_some_and(|a| a.ints == [-1]);
                let kept = attribute("keepdims").is_none_or(|a| a.i == 1);
                found.takes(at);
                match node.file.input.as_slice() {
                    [name] if last && kept => x.matched(net, name, found),
                    _ => None,
                }
            }
        }
    }
}

/// Replaces what computes one of these patterns of "x" by its activation.
pub(super) fn join_activations(net: &mut Net<'_>, patterns: &[(Activation, Pattern)]) {
    for at in net.places() {
        for (activation, pattern) in patterns {
            let Some(found) = pattern.find(net, at) else { continue };
            let Some(node) = net.node(at) else { continue };
            let file = NodeProto { input: vec![found.value("x")], ..node.file.clone() };
            net.join(&found.nodes, Node { file, joined: Joined::Activation(*activation) });
            break;
        }
    }
}

/// What a pattern was found in.
#[derive(Clone, Default)]
pub(super) struct Found {
    values: HashMap<&'static str, String>,
    numbers: HashMap<&'static str, f32>,
    /// Places of all nodes that take part.
    pub(super) nodes: Vec<usize>,
}

impl Found {
    fn takes(&mut self, at: usize) {
        if !self.nodes.contains(&at) {
            self.nodes.push(at);
        }
    }

    /// The value under this name of the pattern.
    pub(super) fn value(&self, label: &str) -> String {
        self.values.get(label).cloned().unwrap_or_default()
    }

    /// The number under this name of the pattern.
    pub(super) fn number(&self, label: &str) -> Option<f32> {
        self.numbers.get(label).copied()
    }
}
