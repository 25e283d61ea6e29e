//! Operators that the file itself defines: a node that uses one is replaced by the nodes of its definition.
//!
//! PyTorch's exporter writes parts of a network as such functions. What is in a function has names of its own, so each use
//! gets copies under names that nothing else has.

use std::collections::HashMap;

use super::OnnxError;
use super::proto::{self, AttributeProto, FunctionProto, GraphProto, NodeProto};

/// Most nodes that functions may unfold to. Far more than any network has; functions that use each other twice would
/// double with each step, and a small file would take all memory.
const MAX_NODES: usize = 1 << 20;
/// How deep functions may use each other.
const MAX_DEPTH: usize = 64;

/// Domain, name and overload.
type Key = (String, String, String);

/// Replaces all uses of `functions` in a graph. `opset` is the version of the standard operators of the file.
pub(super) fn inline(graph: &mut GraphProto, functions: Vec<FunctionProto>, opset: i64) -> Result<(), OnnxError> {
    if functions.is_empty() {
        return Ok(());
    }
    let key = |f: &FunctionProto| (standard(&f.domain), f.name.clone(), f.overload.clone());
    let functions = functions.into_iter().map(|function| (key(&function), function)).collect();
    let mut inliner = Inliner { functions: &functions, opset, uses: 0, nodes: 0 };
    inliner.graph(graph, &mut Vec::new())
}

/// The standard domain has two names.
fn standard(domain: &str) -> String {
    if domain == "ai.onnx" { String::new() } else { domain.to_owned() }
}

struct Inliner<'a> {
    functions: &'a HashMap<Key, FunctionProto>,
    opset: i64,
    /// Functions unfolded so far.
    uses: usize,
    /// Nodes made so far.
    nodes: usize,
}

impl<'a> Inliner<'a> {
    /// Replaces all uses in a graph; `within` are the functions that it is part of.
    fn graph(&mut self, graph: &mut GraphProto, within: &mut Vec<&'a Key>) -> Result<(), OnnxError> {
        let nodes = std::mem::take(&mut graph.node);
        graph.node = self.all(nodes, within)?;
        Ok(())
    }

    fn all(&mut self, nodes: Vec<NodeProto>, within: &mut Vec<&'a Key>) -> Result<Vec<NodeProto>, OnnxError> {
        let mut unfolded = Vec::with_capacity(nodes.len());
        for mut node in nodes {
            for body in node.attribute.iter_mut().filter_map(|attribute| attribute.g.as_mut()) {
                self.graph(body, within)?;
            }
            let key = (standard(&node.domain), node.op_type.clone(), node.overload.clone());
            let Some((key, function)) = self.functions.get_key_value(&key) else {
                unfolded.push(node);
                continue;
            };
            if within.contains(&key) || within.len() == MAX_DEPTH {
                return Err(wrong(function, "uses itself, or others too deep"));
            }
            let nodes = self.unfold(&node, function)?;
            within.push(key);
            unfolded.extend(self.all(nodes, within)?);
            within.pop();
        }
        Ok(unfolded)
    }

    /// The nodes of a function, as one node uses it.
    fn unfold(&mut self, node: &NodeProto, function: &FunctionProto) -> Result<Vec<NodeProto>, OnnxError> {
        if let Some(version) = proto::standard_version(&function.opset_import).filter(|version| *version != self.opset)
        {
            let opset = self.opset;
            return Err(wrong(function, &format!("is written for opset {version}, and the file for opset {opset}")));
        }
        if node.input.len() > function.input.len() || node.output.len() > function.output.len() {
            return Err(wrong(function, &format!("has fewer inputs or outputs than node '{}' gives it", node.label())));
        }
        self.uses += 1;
        self.nodes += function.node.iter().map(size).sum::<usize>();
        if self.nodes > MAX_NODES {
            return Err(wrong(function, &format!("and others unfold to more than {MAX_NODES} nodes")));
        }
        let mut names = Names { known: HashMap::new(), prefix: format!("{}/{}:", node.label(), self.uses) };
        // An input that is left out has an empty name inside, too.
        for (i, name) in function.input.iter().enumerate() {
            names.known.insert(name.clone(), node.input.get(i).cloned().unwrap_or_default());
        }
        let mut passed = Vec::new();
        for (name, outside) in function.output.iter().zip(&node.output).filter(|(_, outside)| !outside.is_empty()) {
            match names.known.get(name) {
                // An output that is an input, or comes twice.
                Some(inside) => passed.push((inside.clone(), outside.clone())),
                None => {
                    names.known.insert(name.clone(), outside.clone());
                }
            }
        }
        let mut nodes = function.node.clone();
        for inner in &mut nodes {
            names.node(inner);
            attributes(inner, node, function);
        }
        nodes.extend(passed.into_iter().map(|(inside, outside)| NodeProto {
            input: vec![inside],
            output: vec![outside],
            op_type: "Identity".to_owned(),
            ..NodeProto::default()
        }));
        Ok(nodes)
    }
}

fn wrong(function: &FunctionProto, what: &str) -> OnnxError {
    OnnxError::Graph(format!("its function '{}' {what}", function.name))
}

/// How many nodes a node is, with those of its bodies.
fn size(node: &NodeProto) -> usize {
    let bodies = node.attribute.iter().filter_map(|attribute| attribute.g.as_ref());
    1 + bodies.map(|body| body.node.iter().map(size).sum::<usize>()).sum::<usize>()
}

/// What the names of a function are outside of it.
struct Names {
    known: HashMap<String, String>,
    /// What names that are seen inside only begin with.
    prefix: String,
}

impl Names {
    fn name(&self, name: &mut String) {
        if name.is_empty() {
            return;
        }
        let outside = self.known.get(name).cloned().unwrap_or_else(|| format!("{}{name}", self.prefix));
        *name = outside;
    }

    fn node(&self, node: &mut NodeProto) {
        if !node.name.is_empty() {
            node.name = format!("{}{}", self.prefix, node.name);
        }
        node.input.iter_mut().chain(&mut node.output).for_each(|name| self.name(name));
        node.attribute.iter_mut().filter_map(|attribute| attribute.g.as_mut()).for_each(|body| self.graph(body));
    }

    fn graph(&self, graph: &mut GraphProto) {
        graph.node.iter_mut().for_each(|node| self.node(node));
        graph.initializer.iter_mut().for_each(|weight| self.name(&mut weight.name));
        graph.input.iter_mut().chain(&mut graph.output).for_each(|info| self.name(&mut info.name));
    }
}

/// Gives attributes that stand for one of the function's their value: the user's, or else the default, or else none.
fn attributes(inner: &mut NodeProto, user: &NodeProto, function: &FunctionProto) {
    let resolved = std::mem::take(&mut inner.attribute).into_iter().filter_map(|mut attribute| {
        if attribute.ref_attr_name.is_empty() {
            if let Some(body) = &mut attribute.g {
                body.node.iter_mut().for_each(|node| attributes(node, user, function));
            }
            return Some(attribute);
        }
        let given = user.attribute.iter().chain(&function.attribute_proto);
        let value = given.into_iter().find(|given| given.name == attribute.ref_attr_name)?;
        Some(AttributeProto { name: attribute.name, ..value.clone() })
    });
    inner.attribute = resolved.collect();
}
