//! Operators that the file itself defines: a node that uses one is replaced by the nodes of its definition.
//!
//! PyTorch's exporter writes parts of a network as such functions. What is in a function has names of its own, so each use
//! gets copies under names that nothing else has.

use std::collections::HashMap;

use prost::Message;

use super::proto::{self, AttributeProto, FunctionProto, GraphProto, NodeProto};
use super::{Cause, expand};
use uncork_model::quote::{Quoted, QuotedPlace};

/// Most nodes that functions may unfold to. Far more than any network has; functions that use each other twice would
/// double with each step, and a small file would take all memory.
const MAX_NODES: usize = 1 << 18;
/// Most bytes that functions may unfold to, as protobuf counts them: a function may carry megabytes of constants, and a few
/// lines use it a thousand times.
const MAX_BYTES: usize = 1 << 28;
/// How deep functions may use each other.
const MAX_DEPTH: usize = 64;

/// Domain, name and overload.
type Key = (String, String, String);

/// Standard operators whose nodes mean something else from an opset on. In which opset a function's nodes are read is not agreed upon: the
/// specification says the function's own, and onnxruntime reads them in the file's.
const CHANGED: [(&str, i64); 9] = [
    ("DFT", 20),
    ("Dropout", 10),
    ("GroupNormalization", 21),
    ("Hardmax", 13),
    ("LogSoftmax", 13),
    ("Resize", 11),
    ("RoiAlign", 16),
    ("Scan", 9),
    ("Softmax", 13),
];

/// Replaces all uses of `functions` in a graph. `opset` is the version of the standard operators of the file. A function by the name of an
/// operator that is known here is not asked: it says in other nodes what that operator is, for those who do not know it.
pub(super) fn inline(graph: &mut GraphProto, functions: Vec<FunctionProto>, opset: i64) -> Result<(), Cause> {
    if functions.is_empty() {
        return Ok(());
    }
    let key = |f: &FunctionProto| (standard(&f.domain), f.name.clone(), f.overload.clone());
    let functions = functions.into_iter().map(|function| (key(&function), function)).collect();
    let mut inliner = Inliner { functions: &functions, opset, uses: 0, nodes: 0, bytes: 0 };
    inliner.graph(graph, &mut Vec::new())
}

/// The standard domain has two names.
fn standard(domain: &str) -> String {
    if proto::is_standard(domain) { String::new() } else { domain.to_owned() }
}

struct Inliner<'a> {
    functions: &'a HashMap<Key, FunctionProto>,
    opset: i64,
    /// Functions unfolded so far.
    uses: usize,
    /// Nodes made so far.
    nodes: usize,
    /// Their bytes.
    bytes: usize,
}

impl<'a> Inliner<'a> {
    /// Replaces all uses in a graph; `within` are the functions that it is part of.
    fn graph(&mut self, graph: &mut GraphProto, within: &mut Vec<&'a Key>) -> Result<(), Cause> {
        let nodes = std::mem::take(&mut graph.node);
        graph.node = self.all(nodes, within)?;
        Ok(())
    }

    fn all(&mut self, nodes: Vec<NodeProto>, within: &mut Vec<&'a Key>) -> Result<Vec<NodeProto>, Cause> {
        let mut unfolded = Vec::with_capacity(nodes.len());
        for mut node in nodes {
            for body in node.bodies_mut() {
                self.graph(body, within)?;
            }
            let key = (standard(&node.domain), node.op_type.clone(), node.overload.clone());
            let is_known = node.overload.is_empty() && expand::is_known(&node.qualified());
            let Some((key, function)) = self.functions.get_key_value(&key).filter(|_| !is_known) else {
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
    fn unfold(&mut self, node: &NodeProto, function: &FunctionProto) -> Result<Vec<NodeProto>, Cause> {
        let opset = self.opset;
        if let Some(version) = proto::standard_version(&function.opset_import)
            && let Some(operator) = changed(&function.node, version, opset)
        {
            return Err(unsupported(
                function,
                &format!(
                    "is written for opset {version}, and the file for opset {opset}, in which {} is something else",
                    Quoted(operator)
                ),
            ));
        }
        if node.input.len() > function.input.len() || node.output.len() > function.output.len() {
            return Err(wrong(
                function,
                &format!("has fewer inputs or outputs than node {} gives it", QuotedPlace(node.label())),
            ));
        }
        self.uses += 1;
        self.nodes += function.node.iter().map(size).sum::<usize>();
        self.bytes = self.bytes.saturating_add(function.node.iter().map(Message::encoded_len).sum());
        if self.bytes > MAX_BYTES {
            return Err(wrong(function, &format!("and others unfold to more than {MAX_BYTES} bytes")));
        }
        if self.nodes > MAX_NODES {
            return Err(unsupported(function, &format!("and others unfold to more than {MAX_NODES} nodes")));
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

fn unsupported(function: &FunctionProto, what: &str) -> Cause {
    Cause::Unsupported(format!("its function {} {what}", Quoted(&function.name)))
}

fn wrong(function: &FunctionProto, what: &str) -> Cause {
    Cause::Graph(format!("its function {} {what}", Quoted(&function.name)))
}

/// An operator among the nodes and their bodies that is not the same in both versions.
fn changed(nodes: &[NodeProto], a: i64, b: i64) -> Option<&'static str> {
    nodes.iter().find_map(|node| {
        let own = CHANGED.iter().filter(|(_, since)| node.is_standard() && (a < *since) != (b < *since));
        let own = own.map(|(operator, _)| *operator).find(|operator| node.op_type == *operator);
        own.or_else(|| node.bodies().find_map(|body| changed(&body.node, a, b)))
    })
}

/// How many nodes a node is, with those of its bodies.
fn size(node: &NodeProto) -> usize {
    let bodies = node.bodies();
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
        node.bodies_mut().for_each(|body| self.graph(body));
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

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use crate::author::Attribute::{Body, Given, Int, Text};
    use crate::author::Author;

    /// The sum along an axis that the user may choose, and what goes in, doubled.
    fn sums() -> Author {
        let body = Author::new(13).input("x", &[]).input("extra", &[]).output("sum", &[]).output("twice", &[]);
        let body = body.node("Add", &["x", "x"], &["twice"], &[]);
        body.node("Flatten", &["twice"], &["sum"], &[("axis", Given("axis"))])
    }

    fn x() -> TensorData {
        TensorData::new((0..8).map(|i| i as f32).collect::<Vec<_>>(), [2, 2, 2])
    }

    fn uses(attributes: &[&[(&str, super::super::author::Attribute<'_>)]]) -> Author {
        let mut author = Author::new(13).input("x", &[2, 2, 2]);
        for (i, attributes) in attributes.iter().enumerate() {
            let output = format!("y{i}");
            author = author.output(&output, &[-1, -1]).node("Sums", &["x"], &[&output], attributes).of("mine");
        }
        author
    }

    #[test]
    fn a_function_is_used_twice_with_attributes_of_each_user_and_a_default() {
        let author = uses(&[&[], &[("axis", Int(2))]]).function("mine", "Sums", sums(), &[("axis", Int(0))]);
        let found = author.answer(vec![x()]).unwrap();
        let doubled: Vec<f32> = (0..8).map(|i| 2.0 * i as f32).collect();
        assert_eq!(found, [TensorData::new(doubled.clone(), [1, 8]), TensorData::new(doubled, [4, 2])]);
    }

    #[test]
    fn without_user_and_default_an_attribute_is_the_operator_s_own_default() {
        let found = uses(&[&[]]).function("mine", "Sums", sums(), &[]).answer(vec![x()]).unwrap();
        assert_eq!(found[0].shape().to_vec(), [2, 4]);
    }

    #[test]
    fn names_in_bodies_within_a_function_are_its_own() {
        // The function's `inner` is not that of the graph, and its body reads the function's `x`.
        let branch = |operator| Author::new(13).output("z", &[]).node(operator, &["inner"], &["z"], &[]).body();
        let branches = [("then_branch", Body(branch("Neg"))), ("else_branch", Body(branch("Exp")))];
        let function = Author::new(13).input("c", &[]).input("x", &[]).output("y", &[]);
        let function = function.node("Add", &["x", "x"], &["inner"], &[]).node("If", &["c"], &["y"], &branches);
        let author = Author::new(13).input_of(9, "c", &[1]).input("inner", &[2]).output("z", &[2]);
        let author = author.node("Choice", &["c", "inner"], &["z"], &[]).of("mine");
        let author = author.function("mine", "Choice", function, &[]);
        let inputs = vec![TensorData::new(vec![true], [1]), TensorData::new(vec![1f32, -2.0], [2])];
        assert_eq!(author.answer(inputs).unwrap()[0], TensorData::new(vec![-2f32, 4.0], [2]));
    }

    #[test]
    fn a_function_that_gives_an_input_back_passes_it_on() {
        let function = Author::new(13).input("x", &[]).output("x", &[]);
        let author = Author::new(13).input("a", &[2]).output("b", &[2]).node("Same", &["a"], &["b"], &[]).of("mine");
        let a = TensorData::new(vec![1f32, 2.0], [2]);
        assert_eq!(author.function("mine", "Same", function, &[]).answer(vec![a.clone()]).unwrap(), [a]);
    }

    fn refusal(author: Author) -> String {
        author.answer(vec![]).unwrap_err()
    }

    #[test]
    fn functions_that_use_themselves_are_refused() {
        let calls = |name| Author::new(13).input("x", &[]).output("y", &[]).node(name, &["x"], &["y"], &[]).of("mine");
        let author = Author::new(13).input("x", &[2]).output("y", &[2]).node("A", &["x"], &["y"], &[]).of("mine");
        let author = author.function("mine", "A", calls("B"), &[]).function("mine", "B", calls("A"), &[]);
        assert!(refusal(author).contains("its function 'A' uses itself"));
    }

    #[test]
    fn functions_that_double_with_each_step_are_refused_before_they_take_all_memory() {
        let mut author = Author::new(13).input("x", &[2]).output("y", &[2]).node("F0", &["x"], &["y"], &[]).of("mine");
        for i in 0..40 {
            let next = format!("F{}", i + 1);
            let body = Author::new(13).input("x", &[]).output("y", &[]);
            let body = body.node(&next, &["x"], &["h"], &[]).of("mine").node(&next, &["h"], &["y"], &[]).of("mine");
            author = author.function("mine", &format!("F{i}"), body, &[]);
        }
        let leaf = Author::new(13).input("x", &[]).output("y", &[]).node("Neg", &["x"], &["y"], &[]);
        let text = refusal(author.function("mine", "F40", leaf, &[]));
        assert!(text.contains("unfold to more than"), "{text}");
    }

    /// A file of 2.5 MB took 5 GB.
    #[test]
    fn functions_that_carry_much_are_refused_before_they_take_all_memory() {
        let body = Author::new(13).input("x", &[]).output("y", &[]);
        let body = body.node("Neg", &["x"], &["y"], &[("note", Text(&"a".repeat(1 << 20)))]);
        let author = Author::new(13).input("x", &[2]).output("y", &[2]);
        let uses = (0..300).fold(author, |a, i| a.node("F", &["x"], &[&format!("y{i}")], &[]).of("mine"));
        let text = refusal(uses.function("mine", "F", body, &[]));
        assert!(text.contains("unfold to more than 268435456 bytes"), "{text}");
    }

    #[test]
    fn a_function_of_another_opset_is_read_where_both_mean_the_same() {
        let used = |file: i64, function: i64, operator: &str| {
            let body = Author::new(function).input("x", &[]).output("y", &[]).node(operator, &["x"], &["y"], &[]);
            let author = Author::new(file).input("x", &[2]).output("y", &[2]).node("F", &["x"], &["y"], &[]);
            author.of("mine").function("mine", "F", body, &[])
        };
        let x = || vec![TensorData::from([1f32, 1.0])];
        assert_eq!(used(13, 12, "Neg").answer(x()).unwrap(), [TensorData::from([-1f32, -1.0])]);
        assert_eq!(used(17, 13, "Softmax").answer(x()).unwrap(), [TensorData::from([0.5f32, 0.5])]);
        for (file, function) in [(13, 12), (12, 13)] {
            let text = refusal(used(file, function, "Softmax"));
            let expected =
                format!("opset {function}, and the file for opset {file}, in which 'Softmax' is something else");
            assert!(text.contains(&expected), "{text}");
        }
    }

    #[test]
    fn an_operator_that_is_known_is_not_what_a_function_of_its_name_says() {
        for domain in ["", "com.microsoft"] {
            let body = Author::new(13).input("x", &[]).output("y", &[]).node("Neg", &["x"], &["y"], &[]);
            let operator = if domain.is_empty() { "Relu" } else { "QuickGelu" };
            let author = Author::new(13).input("x", &[1]).output("y", &[1]).node(operator, &["x"], &["y"], &[]);
            let author = author.of(domain).function(domain, operator, body, &[]);
            assert!(author.answer(vec![TensorData::from([1f32])]).unwrap()[0].iter::<f32>().all(|y| y > 0.0));
        }
    }
}
