//! The graph while nodes are joined: who makes and who reads each value, always as the nodes are now.

use std::collections::{HashMap, HashSet};

use super::node::Node;
use crate::files::Files;
use crate::proto::{FLOAT, GraphProto, NodeProto, TensorProto, WIDENED};
use crate::weights;

/// The nodes of a graph, by their places, and its constants.
pub(super) struct Net<'a> {
    /// In an order in which they can be computed. A place is empty once its node has become part of another.
    nodes: Vec<Option<Node>>,
    weights: HashMap<&'a str, &'a TensorProto>,
    makers: HashMap<String, usize>,
    /// Places of the nodes that read a value, one for each time.
    readers: HashMap<String, Vec<usize>>,
    /// Values that the caller gets, or that bodies within nodes may read.
    kept: HashSet<String>,
}

impl<'a> Net<'a> {
    /// The net of a graph with these nodes, in which each name has one meaning.
    pub(super) fn of(graph: &'a GraphProto, nodes: Vec<NodeProto>) -> Net<'a> {
        let weights: HashMap<&str, &TensorProto> = graph.initializer.iter().map(|w| (w.name.as_str(), w)).collect();
        let mut kept: HashSet<String> = graph.output.iter().map(|output| output.name.clone()).collect();
        nodes.iter().for_each(|node| read_by_bodies(node, &mut kept));
        let (makers, readers) = (HashMap::new(), HashMap::new());
        let mut net = Net { nodes: Vec::with_capacity(nodes.len()), weights, makers, readers, kept };
        for node in nodes {
            let at = net.nodes.len();
            net.nodes.push(None);
            net.put(at, Node::plain(node));
        }
        net
    }

    /// The nodes that are left, in order.
    pub(super) fn finish(self) -> Vec<Node> {
        self.nodes.into_iter().flatten().collect()
    }

    /// All places, also empty ones.
    pub(super) fn places(&self) -> std::ops::Range<usize> {
        0..self.nodes.len()
    }

    /// The node at a place, if one is left there.
    pub(super) fn node(&self, at: usize) -> Option<&Node> {
        self.nodes.get(at)?.as_ref()
    }

    /// The node that computes a value.
    pub(super) fn maker(&self, name: &str) -> Option<usize> {
        self.makers.get(name).copied()
    }

    /// The node that alone reads the first output of the node at `at`, once, where no caller and no body reads it.
    pub(super) fn only_reader(&self, at: usize) -> Option<usize> {
        let name = self.node(at)?.file.output.first()?;
        match self.readers.get(name).map(Vec::as_slice) {
            Some(&[reader]) if !self.kept.contains(name) => Some(reader),
            _ => None,
        }
    }

    /// Whether a value is one of the file's weights.
    pub(super) fn is_weight(&self, name: &str) -> bool {
        self.weights.contains_key(name)
    }

    /// One of the file's weights.
    pub(super) fn weight(&self, name: &str) -> Option<&'a TensorProto> {
        self.weights.get(name).copied()
    }

    /// The numbers of a weight that is in the message itself, as all small ones are.
    pub(super) fn numbers(&self, name: &str) -> Option<Vec<f32>> {
        let numbers = weights::data(&mut self.weight(name)?.clone(), &Files::None).ok()?;
        numbers.convert::<f32>().try_into_vec().ok()
    }

    /// The shape of a weight of float32, the only type that joined nodes have their own kernels for.
    pub(super) fn float_dims(&self, name: &str) -> Option<&'a [i64]> {
        let weight = self.weights.get(name)?;
        [FLOAT, WIDENED].contains(&weight.data_type).then_some(weight.dims.as_slice())
    }

    /// A constant that is a single number of float32, with no more than one dimension: more would lift what it meets.
    pub(super) fn scalar(&self, name: &str) -> Option<f32> {
        let made = self.maker(name).and_then(|at| self.node(at)).map(|node| &node.file);
        let tensor = match made.filter(|node| node.op_type == "Constant" && node.is_standard()) {
            Some(node) => node.attribute.iter().find(|a| a.name == "value")?.t.as_ref()?,
            None => self.weights.get(name).copied()?,
        };
        if !matches!(tensor.dims.as_slice(), [] | [1]) || tensor.data_type != FLOAT {
            return None;
        }
        weights::data(&mut tensor.clone(), &Files::None).ok()?.try_into_vec::<f32>().ok()?.pop()
    }

    /// Puts `joined` in the place of the last of these nodes, whose outputs it must have, and clears the others away.
    ///
    /// Does nothing, and says so, unless nobody else reads what the others compute and all that `joined` reads is there by then.
    pub(super) fn join(&mut self, nodes: &[usize], joined: Node) -> bool {
        let Some(&last) = nodes.iter().max() else { return false };
        let inner = |at: &usize| *at != last;
        let private = |name: &String| {
            let readers = self.readers.get(name).map_or(&[][..], Vec::as_slice);
            !self.kept.contains(name) && readers.iter().all(|reader| nodes.contains(reader))
        };
        let removed = || nodes.iter().copied().filter(inner).filter_map(|at| self.node(at));
        let is_private = removed().flat_map(|node| &node.file.output).filter(|name| !name.is_empty()).all(private);
        let is_there = |name: &String| match self.maker(name) {
            Some(maker) => maker < last && !nodes.contains(&maker),
            None => true,
        };
        let same = self.node(last).is_some_and(|node| node.file.output == joined.file.output);
        if !is_private || !same || !joined.file.input.iter().all(is_there) {
            return false;
        }
        nodes.iter().for_each(|&at| self.take(at));
        self.put(last, joined);
        true
    }

    fn take(&mut self, at: usize) {
        let Some(node) = self.nodes[at].take() else { return };
        for name in &node.file.input {
            if let Some(readers) = self.readers.get_mut(name)
                && let Some(i) = readers.iter().position(|&reader| reader == at)
            {
                readers.swap_remove(i);
            }
        }
        for name in &node.file.output {
            self.makers.remove(name);
        }
    }

    fn put(&mut self, at: usize, node: Node) {
        for name in node.file.input.iter().filter(|name| !name.is_empty()) {
            self.readers.entry(name.clone()).or_default().push(at);
        }
        self.makers.extend(node.file.output.iter().filter(|name| !name.is_empty()).map(|name| (name.clone(), at)));
        self.nodes[at] = Some(node);
    }
}

/// All names that the bodies of a node read, also those of values of their own.
fn read_by_bodies(node: &NodeProto, kept: &mut HashSet<String>) {
    for body in node.bodies() {
        kept.extend(body.output.iter().map(|output| output.name.clone()));
        for inner in &body.node {
            kept.extend(inner.input.iter().cloned());
            read_by_bodies(inner, kept);
        }
    }
}
