//! A graph compiled to a straight list of steps, and its execution.
//!
//! Compiling turns each node into a kernel with its constants prepared, runs at once every node whose inputs are all
//! constant, and marks the last use of every value. Executing is then one pass over the steps: a value is moved, not
//! shared, into its last user, so its buffer is freed or reused in place.

use std::collections::HashMap;
use std::fmt;

use burn_dispatch::DispatchDevice;
use onnx_ir::{Argument, Node, OnnxGraph, ValueSource};

use super::OnnxError;
use super::fence::fenced;
use super::ops::{self, Args, Build, Kernel, Place, Refusal, Source};
use super::outline::Outline;
use super::value::{OpError, Value};

/// A compiled graph. Holds the weights; running it changes nothing in it.
pub(super) struct Plan {
    device: DispatchDevice,
    steps: Vec<Step>,
    slots: usize,
    /// Slots of the graph's inputs, in the model's order.
    inputs: Vec<usize>,
    outputs: Vec<Input>,
}

struct Step {
    place: Place,
    inputs: Vec<Input>,
    /// `None` for an output that nobody reads.
    outputs: Vec<Option<usize>>,
    kernel: Kernel,
}

/// Where a step finds an argument.
enum Input {
    Absent,
    Constant(Value),
    Slot {
        index: usize,
        /// No later step reads this slot.
        last: bool,
    },
}

/// Why a run failed, and where, if it was in a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) place: Option<Place>,
    pub(super) reason: String,
}

impl Plan {
    /// Compiles a parsed graph for a device.
    pub(super) fn compile(graph: &OnnxGraph, outline: &Outline, device: DispatchDevice) -> Result<Plan, OnnxError> {
        let mut compiler = Compiler { device, opset: outline.opset, ..Compiler::default() };
        for input in &graph.inputs {
            let slot = compiler.define(&input.name)?;
            compiler.inputs.push(slot);
        }
        let folds = ops::norm::folds(graph);
        for (node, place) in graph.nodes.iter().zip(places(&graph.nodes, outline)) {
            compiler.node(node, place, &folds)?;
        }
        let outputs: Result<Vec<Source>, OnnxError> = graph.outputs.iter().map(|o| compiler.source(o)).collect();
        Ok(compiler.finish(outputs?))
    }

    /// The device that the constants are on.
    pub(super) fn device(&self) -> &DispatchDevice {
        &self.device
    }

    /// Runs the graph. `inputs` come in the model's order; so do the results.
    pub(super) fn run(&self, inputs: Vec<Value>) -> Result<Vec<Value>, Failure> {
        let mut slots: Vec<Option<Value>> = Vec::new();
        slots.resize_with(self.slots, || None);
        for (&slot, value) in self.inputs.iter().zip(inputs) {
            slots[slot] = Some(value);
        }
        let mut scratch = Vec::new();
        for step in &self.steps {
            let fail = |e: OpError| Failure { place: Some(step.place.clone()), reason: e.0 };
            scratch.clear();
            scratch.extend(step.inputs.iter().map(|input| fetch(input, &mut slots)));
            let args = Args::new(&mut scratch, &self.device);
            match &step.kernel {
                Kernel::One(run) => {
                    let value = run(args).map_err(fail)?;
                    if let Some(Some(slot)) = step.outputs.first() {
                        slots[*slot] = Some(value);
                    }
                }
                Kernel::Many(run) => {
                    let values = run(args).map_err(fail)?;
                    for (slot, value) in step.outputs.iter().zip(values) {
                        if let Some(slot) = slot {
                            slots[*slot] = Some(value);
                        }
                    }
                }
            }
        }
        // Compiling has checked that each output has a value; only a kernel that gives too few leaves one empty.
        let missing = || OpError::new("an output was never computed").into();
        self.outputs.iter().map(|output| fetch(output, &mut slots).ok_or_else(missing)).collect()
    }
}

impl From<OpError> for Failure {
    fn from(error: OpError) -> Failure {
        Failure { place: None, reason: error.0 }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "operator '{}' (node '{}'): {}", place.operator, place.node, self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

/// The value of one argument: moved out of its slot at its last use, shared before.
fn fetch(input: &Input, slots: &mut [Option<Value>]) -> Option<Value> {
    match input {
        Input::Absent => None,
        Input::Constant(value) => Some(value.clone()),
        Input::Slot { index, last: true } => slots[*index].take(),
        Input::Slot { index, last: false } => slots[*index].clone(),
    }
}

#[derive(Default)]
struct Compiler {
    device: DispatchDevice,
    opset: u64,
    /// What each name stands for.
    names: HashMap<String, Source>,
    slots: usize,
    inputs: Vec<usize>,
    steps: Vec<(Place, Vec<Source>, Vec<usize>, Kernel)>,
}

impl Compiler {
    /// A slot for a new name. A name that comes twice would silently read the wrong value.
    fn define(&mut self, name: &str) -> Result<usize, OnnxError> {
        let slot = self.slots;
        if self.names.insert(name.to_owned(), Source::Slot(slot)).is_some() {
            return Err(OnnxError::Graph(format!(
                "the name '{name}' is used twice (names that differ only in case or punctuation count as one)"
            )));
        }
        self.slots += 1;
        Ok(slot)
    }

    /// What an argument stands for.
    fn source(&self, argument: &Argument) -> Result<Source, OnnxError> {
        if argument.value_source == ValueSource::Optional {
            return Ok(Source::Absent);
        }
        if let Some(source) = self.names.get(&argument.name).filter(|_| !argument.is_static()) {
            return Ok(source.clone());
        }
        let Some(data) = argument.value() else {
            // onnx-ir merges a MatMul with the Add behind it even where others read the product, which is then gone.
            return Err(OnnxError::Graph(format!(
                "nothing computes the value '{}' (the result of a MatMul with a bias behind it cannot be read by others)",
                argument.name
            )));
        };
        let constant = fenced(|| Value::from_data(data, &self.device)).and_then(|v| v);
        constant.map(Source::Constant).map_err(|e| OnnxError::Graph(format!("constant '{}': {e}", argument.name)))
    }

    fn node(&mut self, node: &Node, place: Place, folds: &ops::norm::Folds) -> Result<(), OnnxError> {
        let sources: Result<Vec<Source>, OnnxError> = node.inputs().iter().map(|a| self.source(a)).collect();
        if let Node::Constant(constant) = node {
            // The value may be on the node's input or on its output, depending on where the constant came from.
            let source = match sources?.pop() {
                Some(source) => source,
                None => constant.outputs.first().map_or(Ok(Source::Absent), |o| self.source(o))?,
            };
            if let (Some(output), Source::Constant(_)) = (node.outputs().first(), &source) {
                self.names.insert(output.name.clone(), source);
                return Ok(());
            }
            return Err(form(&place, "this kind of constant is not supported".into()));
        }
        let mut build = Build::new(sources?, &self.device, self.opset, folds.get(node.name()));
        let compiled = fenced(|| ops::compile(node, &mut build)).unwrap_or_else(|e| Err(Refusal::Form(e.0)));
        let sources = build.into_sources();
        let kernel = match compiled {
            Ok(kernel) => kernel,
            Err(Refusal::Form(reason)) => return Err(form(&place, reason)),
            Err(Refusal::Operator) => {
                let Place { operator, node } = place;
                return Err(OnnxError::Operator { operator, node, others: String::new() });
            }
        };
        if sources.iter().all(|s| !matches!(s, Source::Slot(_))) && !node.inputs().is_empty() {
            let values = fold(&kernel, sources, &self.device);
            let values = values.map_err(|e| form(&place, format!("it fails on its constant inputs: {e}")))?;
            for (output, value) in node.outputs().iter().zip(values) {
                self.names.insert(output.name.clone(), Source::Constant(value));
            }
            return Ok(());
        }
        let mut outputs = Vec::new();
        for output in node.outputs() {
            outputs.push(self.define(&output.name)?);
        }
        self.steps.push((place, sources, outputs, kernel));
        Ok(())
    }

    /// Marks last uses, from the end: the first time that a slot is met going backwards is its last use.
    fn finish(self, outputs: Vec<Source>) -> Plan {
        let mut read = vec![false; self.slots];
        let mut resolve = |source: Source| match source {
            Source::Absent => Input::Absent,
            Source::Constant(value) => Input::Constant(value),
            Source::Slot(index) => Input::Slot { index, last: !std::mem::replace(&mut read[index], true) },
        };
        let mut backwards = |sources: Vec<Source>| {
            let mut inputs: Vec<Input> = sources.into_iter().rev().map(&mut resolve).collect();
            inputs.reverse();
            inputs
        };
        let graph_outputs = backwards(outputs);
        let mut steps: Vec<(Place, Vec<Input>, Vec<usize>, Kernel)> = Vec::with_capacity(self.steps.len());
        for (place, sources, outputs, kernel) in self.steps.into_iter().rev() {
            steps.push((place, backwards(sources), outputs, kernel));
        }
        let steps = steps.into_iter().rev().map(|(place, inputs, outputs, kernel)| {
            let outputs = outputs.into_iter().map(|slot| read[slot].then_some(slot)).collect();
            Step { place, inputs, outputs, kernel }
        });
        let steps = steps.collect();
        Plan { device: self.device, steps, slots: self.slots, inputs: self.inputs, outputs: graph_outputs }
    }
}

/// Runs a kernel whose arguments are all constant.
fn fold(kernel: &Kernel, sources: Vec<Source>, device: &DispatchDevice) -> Result<Vec<Value>, OpError> {
    let constants = sources.into_iter().map(|source| match source {
        Source::Constant(value) => Some(value),
        Source::Absent | Source::Slot(_) => None,
    });
    let mut values: Vec<Option<Value>> = constants.collect();
    fenced(|| match kernel {
        Kernel::One(run) => run(Args::new(&mut values, device)).map(|v| vec![v]),
        Kernel::Many(run) => run(Args::new(&mut values, device)),
    })?
}

fn form(place: &Place, reason: String) -> OnnxError {
    OnnxError::Form { operator: place.operator.clone(), node: place.node.clone(), reason }
}

/// Finds the file's own node for each of onnx-ir's, which has named them anew: `relu3` is the third `Relu`.
///
/// onnx-ir keeps the order, drops identities and initializers, splits some operators by dimension (`Conv2d`) and merges
/// others (`Gemm`, or `MatMul` and the `Add` behind it, become `Linear`). Where it has renamed the operator the number
/// says nothing, and the next node of a fitting operator is taken. The result is used in messages only.
fn places(nodes: &[Node], outline: &Outline) -> Vec<Place> {
    let mut next = 0;
    let mut places = Vec::with_capacity(nodes.len());
    for node in nodes {
        let kind = node.node_type().to_string();
        let split = ["1d", "2d", "3d"].iter().find_map(|d| kind.strip_suffix(d));
        let fits = |operator: &str| match split {
            _ if kind == "Linear" => ["Gemm", "MatMul"].contains(&operator),
            Some(base) => operator.eq_ignore_ascii_case(base),
            None => operator.eq_ignore_ascii_case(&kind),
        };
        let alike = || outline.nodes.iter().enumerate().filter(|(_, n)| fits(&n.operator));
        let number = node.name().strip_prefix(&kind.to_lowercase()).and_then(|n| n.parse::<usize>().ok());
        let found = match number {
            Some(number) if split.is_none() && kind != "Linear" => alike().nth(number.saturating_sub(1)),
            _ => alike().find(|(at, _)| *at >= next),
        };
        places.push(match found {
            Some((at, line)) => {
                next = at + 1;
                Place { operator: line.qualified(), node: line.label().to_owned() }
            }
            None => Place { operator: kind, node: node.name().to_owned() },
        });
    }
    places
}
