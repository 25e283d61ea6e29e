//! Operators that stand for several others: those that optimisers and quantisers write in place of what they have joined.
//!
//! Such a node becomes the nodes that it stands for, on the file's own messages and before `fuse` joins what is faster
//! together here. So nothing but the file's spelling differs from a network that nobody has optimised.

mod attention;
mod conv;
mod layers;
mod quantized;

use std::collections::HashMap;
use std::sync::LazyLock;

use super::Cause;
use super::attributes::Attributes;
use super::names;
use super::ops;
use super::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};
use super::value::OpError;
use uncork_model::quote::Quoted;

/// What the names of operators begin with that only recipes use: no file may.
pub(super) const OWN: &str = "uncork::";

/// An operator, and how it is written in others.
struct Recipe {
    /// Its name in ONNX, with the domain where that is not the standard one.
    name: &'static str,
    /// What of it is not supported, for the table in the documents.
    limits: &'static str,
    write: fn(&mut Sheet<'_>) -> Result<(), OpError>,
}

impl Recipe {
    const fn new(name: &'static str, write: fn(&mut Sheet<'_>) -> Result<(), OpError>) -> Recipe {
        Recipe { name, limits: "", write }
    }

    const fn except(self, limits: &'static str) -> Recipe {
        Recipe { limits, ..self }
    }
}

const FAMILIES: &[&[Recipe]] = &[attention::RECIPES, conv::RECIPES, layers::RECIPES, quantized::RECIPES];

/// Names of the operators that are written in others, and what of each is not supported.
pub(super) fn list() -> impl Iterator<Item = (&'static str, &'static str)> {
    FAMILIES.iter().copied().flatten().map(|recipe| (recipe.name, recipe.limits))
}

/// Whether a file may use an operator: one that can be run, or that is written in others. What only recipes write no file may.
pub(super) fn is_known(name: &str) -> bool {
    !name.starts_with(OWN) && (ops::find(name).is_some() || find(name).is_some())
}

fn find(name: &str) -> Option<&'static Recipe> {
    static ALL: LazyLock<HashMap<&str, &Recipe>> =
        LazyLock::new(|| FAMILIES.iter().copied().flatten().map(|recipe| (recipe.name, recipe)).collect());
    ALL.get(name).copied()
}

/// Writes all such nodes of a graph and of its bodies in others. `opset` is the version of the standard operators.
pub(super) fn expand(graph: &mut GraphProto, opset: i64) -> Result<(), Cause> {
    let weights = graph
        .initializer
        .iter()
        .map(|weight| (weight.name.clone(), Weight { rank: weight.dims.len(), element: weight.data_type }));
    let weights: HashMap<String, Weight> = weights.collect();
    let mut done = Vec::with_capacity(graph.node.len());
    // What is left to do, the next node last: a recipe may use operators that have one themselves.
    let mut left: Vec<NodeProto> = std::mem::take(&mut graph.node);
    left.reverse();
    while let Some(mut node) = left.pop() {
        for body in node.bodies_mut() {
            expand(body, opset)?;
        }
        let name = node.qualified();
        let Some(recipe) = find(&name) else {
            done.push(node);
            continue;
        };
        let mut sheet = Sheet::new(&node, &weights, opset);
        let written = (recipe.write)(&mut sheet).and_then(|()| match sheet.attributes.unread() {
            Some(attribute) => Err(OpError(format!("its attribute {} is not known", Quoted(attribute)))),
            None => Ok(sheet.made),
        });
        let made = written.map_err(|e| Cause::Form { operator: name, node: node.label().to_owned(), reason: e.0 })?;
        left.extend(made.into_iter().rev());
    }
    graph.node = done;
    // A file may use a name that a recipe makes.
    names::refuse_double(graph)
}

/// What is known of a weight.
struct Weight {
    /// How many axes it has.
    rank: usize,
    /// `onnx.TensorProto.DataType`
    element: i32,
}

/// A node, and the nodes that are written for it.
struct Sheet<'a> {
    node: &'a NodeProto,
    /// Attributes by name; all must be read.
    attributes: Attributes<'a>,
    /// The graph's weights.
    weights: &'a HashMap<String, Weight>,
    opset: i64,
    made: Vec<NodeProto>,
}

impl<'a> Sheet<'a> {
    fn new(node: &'a NodeProto, weights: &'a HashMap<String, Weight>, opset: i64) -> Sheet<'a> {
        Sheet { node, attributes: Attributes::new(&node.attribute), weights, opset, made: Vec::new() }
    }

    /// Argument `i`, if the node has one.
    fn optional(&self, i: usize) -> Option<&'a str> {
        self.node.input.get(i).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// Argument `i`, which must be there.
    fn need(&self, i: usize) -> Result<&'a str, OpError> {
        self.optional(i).ok_or_else(|| OpError(format!("argument {i} is missing")))
    }

    /// Argument `i`, or what stands for one that is left out.
    fn or_none(&self, i: usize) -> &'a str {
        self.optional(i).unwrap_or("")
    }

    /// How many arguments there are, those left out in between among them.
    fn count(&self) -> usize {
        self.node.input.len()
    }

    /// The name of output `i`, if somebody may read it.
    fn output(&self, i: usize) -> Option<&'a str> {
        self.node.output.get(i).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// The node's attributes but those with these names, to be handed on.
    fn rest(&self, except: &[&str]) -> Vec<AttributeProto> {
        let rest = self.node.attribute.iter().filter(|a| !except.contains(&a.name.as_str()));
        rest.filter(|a| self.attributes.has(&a.name)).cloned().collect()
    }

    /// A name that no other value has: the node's first output has one already.
    fn name(&self, operator: &str) -> String {
        let first = self.node.output.iter().find(|name| !name.is_empty()).map_or("", String::as_str);
        format!("{first}/{operator}:{}", self.made.len())
    }

    fn write(&mut self, operator: &str, inputs: &[&str], outputs: Vec<String>, attributes: Vec<AttributeProto>) {
        let (domain, op_type) = operator.split_once("::").unwrap_or(("", operator));
        self.made.push(NodeProto {
            input: inputs.iter().map(|&name| name.to_owned()).collect(),
            output: outputs,
            // Whoever reads of this node in a message is to find it in the file.
            name: self.node.label().to_owned(),
            op_type: op_type.to_owned(),
            domain: domain.to_owned(),
            attribute: attributes,
            ..NodeProto::default()
        });
    }

    /// The result of a further node.
    fn value(&mut self, operator: &str, inputs: &[&str], attributes: Vec<AttributeProto>) -> String {
        let name = self.name(operator);
        self.write(operator, inputs, vec![name.clone()], attributes);
        name
    }

    /// The results of a further node with several.
    fn values<const N: usize>(
        &mut self,
        operator: &str,
        inputs: &[&str],
        attributes: Vec<AttributeProto>,
    ) -> [String; N] {
        let name = self.name(operator);
        let names: [String; N] = std::array::from_fn(|i| format!("{name}.{i}"));
        self.write(operator, inputs, names.to_vec(), attributes);
        names
    }

    /// Output `i` as the result of a further node. Nothing where nobody reads it.
    fn give(&mut self, i: usize, operator: &str, inputs: &[&str], attributes: Vec<AttributeProto>) {
        if let Some(name) = self.output(i) {
            self.write(operator, inputs, vec![name.to_owned()], attributes);
        }
    }

    /// A number, of rank 0.
    fn float(&mut self, number: f32) -> String {
        let tensor = TensorProto { data_type: 1, float_data: vec![number], ..TensorProto::default() };
        self.constant(tensor)
    }

    /// A list of integers.
    fn ints(&mut self, ints: &[i64]) -> String {
        let dims = vec![ints.len() as i64];
        self.constant(TensorProto { data_type: 7, dims, int64_data: ints.to_vec(), ..TensorProto::default() })
    }

    fn constant(&mut self, tensor: TensorProto) -> String {
        let value = AttributeProto { name: "value".to_owned(), t: Some(tensor), kind: 4, ..AttributeProto::default() };
        self.value("Constant", &[], vec![value])
    }

    /// A number in the type of another value.
    fn number_like(&mut self, number: f32, like: &str) -> String {
        let number = self.float(number);
        self.value("CastLike", &[&number, like], vec![])
    }

    /// Part of a list of integers, as the shape of a tensor.
    fn part(&mut self, list: &str, from: i64, to: i64) -> String {
        let (from, to, axis) = (self.ints(&[from]), self.ints(&[to]), self.ints(&[0]));
        self.value("Slice", &[list, &from, &to, &axis], vec![])
    }
}

fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.to_owned(), i, kind: 2, ..AttributeProto::default() }
}

fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto { name: name.to_owned(), f, kind: 1, ..AttributeProto::default() }
}

fn text(name: &str, text: &str) -> AttributeProto {
    AttributeProto { name: name.to_owned(), s: text.as_bytes().to_vec(), kind: 3, ..AttributeProto::default() }
}

fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { name: name.to_owned(), ints: ints.to_vec(), kind: 7, ..AttributeProto::default() }
}
