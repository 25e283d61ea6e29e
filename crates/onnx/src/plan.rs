//! A graph compiled to a straight list of steps, and its execution.
//!
//! Compiling turns each node into a kernel with its constants prepared, runs at once every node whose inputs are all
//! constant, and marks the last use of every value. Executing is then one pass over the steps: a value is moved, not
//! shared, into its last user, so its buffer is freed or reused in place.
//!
//! Bodies of loops and branches are plans of their own. What they read of the graph around them becomes an argument of
//! their node, behind the node's own.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use burn_dispatch::DispatchDevice;

use super::attributes::Attributes;
use super::fence::fenced;
use super::files::Files;
use super::fuse::Node;
use super::influence::Sizes;
use super::limits::{self, Budget};
use super::ops::{self, Args, Build, Kernel, LaidOut, Place, Setting, Source, Subgraph};
use super::proto::{GraphProto, NodeProto, TensorProto};
use super::small::Small;
use super::tensors::datatype;
use super::value::{OpError, Value};
use super::{Cause, weights};
use uncork_model::quote::{Quoted, QuotedPlace};

/// A compiled graph. Holds the weights; running it changes nothing in it.
pub(super) struct Plan {
    device: DispatchDevice,
    pub(super) steps: Vec<Compiled>,
    /// For each slot, whether values decide the size of what is in it.
    pub(super) slots: Vec<bool>,
    /// Slots of the graph's inputs, in the model's order.
    pub(super) inputs: Vec<usize>,
    pub(super) outputs: Vec<Input>,
    /// Bytes of its constants, those of its bodies included.
    constants: usize,
}

pub(super) struct Compiled {
    pub(super) place: Place,
    pub(super) inputs: Vec<Input>,
    /// `None` for an output that nobody reads.
    pub(super) outputs: Vec<Option<usize>>,
    pub(super) kernel: Kernel,
}

/// Where a step finds an argument.
pub(super) enum Input {
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

/// What one node of a run took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spent {
    /// The operator; what was joined to it counts as its own.
    pub operator: String,
    /// The node's name.
    pub node: String,
    /// In how many bodies of loops or branches it is.
    pub depth: usize,
    /// The time that it took, that of its bodies' nodes included.
    pub time: Duration,
    /// The shapes of its results, as far as somebody reads them.
    pub shapes: Vec<Vec<usize>>,
}

impl Plan {
    /// Compiles a graph for a device. Its nodes come beside it; `opset` is the version of the standard operators that the file
    /// was written for.
    pub(super) fn compile(
        graph: GraphProto,
        nodes: &[Node],
        opset: i64,
        device: DispatchDevice,
        files: &Files,
        sizes: &Sizes,
    ) -> Result<Plan, Cause> {
        let (folded, held) = (Cell::new(0), Cell::new(0));
        let (plan, _) = Compiler::new(device, opset, files, sizes, &folded, &held, None).graph(graph, nodes)?;
        Ok(Plan { constants: held.get(), ..plan })
    }

    /// Bytes of its constants: as the file has them or as they were computed from those, before kernels lay them out as they like.
    pub(super) fn constants(&self) -> usize {
        self.constants
    }

    /// The device that the constants are on.
    pub(super) fn device(&self) -> &DispatchDevice {
        &self.device
    }

    /// How many inputs a run takes; for a body, with those behind its own.
    pub(super) fn takes(&self) -> usize {
        self.inputs.len()
    }

    /// How many results a run gives.
    pub(super) fn gives(&self) -> usize {
        self.outputs.len()
    }

    /// Runs the graph. `inputs` come in the model's order; so do the results.
    pub(super) fn run(&self, inputs: Vec<Value>) -> Result<Vec<Value>, Failure> {
        self.run_within(inputs, &Budget::full())
    }

    /// Runs the graph on inputs that were made up.
    pub(super) fn rehearse(&self, inputs: Vec<Value>) -> Result<Vec<Value>, Failure> {
        self.run_within(inputs, &Budget::rehearsal())
    }

    /// Runs the graph on inputs that were made up, and tells how many bytes its values have had at most at one time; constants are none.
    pub(super) fn most_bytes(&self, inputs: Vec<Value>) -> Result<(Vec<Value>, usize), Failure> {
        let budget = Budget { most: Some(Cell::new(0)), ..Budget::rehearsal() };
        let outputs = self.run_within(inputs, &budget)?;
        Ok((outputs, budget.most.map_or(0, Cell::into_inner)))
    }

    /// Runs the graph and tells what each of its nodes took.
    pub(super) fn profile(&self, inputs: Vec<Value>) -> Result<Vec<Spent>, Failure> {
        let budget = Budget { spent: Some(RefCell::default()), ..Budget::full() };
        self.run_within(inputs, &budget)?;
        Ok(budget.spent.map(RefCell::into_inner).unwrap_or_default())
    }

    /// Runs a body as part of the run of a whole graph, whose budget it shares.
    pub(super) fn run_within(&self, inputs: Vec<Value>, budget: &Budget) -> Result<Vec<Value>, Failure> {
        let mut slots: Vec<Option<Value>> = Vec::new();
        slots.resize_with(self.slots.len(), || None);
        let around = limits::held();
        let mut held = around;
        for (&slot, value) in self.inputs.iter().zip(inputs) {
            held += if self.slots[slot] { value.byte_len() } else { 0 };
            slots[slot] = Some(value);
        }
        let mut scratch = Vec::new();
        for step in &self.steps {
            let fail = |e: OpError| {
                limits::blame(&step.place.operator);
                Failure { place: Some(step.place.clone()), reason: e.0 }
            };
            let counts = step.outputs.iter().flatten().any(|&slot| self.slots[slot]);
            let limited = limits::step(counts).map_err(fail)?;
            let freed = byte_len(step.inputs.iter().filter_map(|input| self.counted(input, &slots)));
            scratch.clear();
            let before = budget.most.as_ref().map(|most| (most, byte_len(slots.iter().flatten())));
            scratch.extend(step.inputs.iter().map(|input| fetch(input, &mut slots)));
            let args = Args::new(&mut scratch, &self.device, budget);
            let watch = budget.spent.as_ref().map(|spent| (spent, spent.borrow().len(), Instant::now()));
            let values = step.kernel.run(args).map_err(fail)?;
            for (&slot, value) in step.outputs.iter().zip(values) {
                if let Some(slot) = slot {
                    held += if self.slots[slot] { value.byte_len() } else { 0 };
                    slots[slot] = Some(value);
                }
            }
            drop(limited);
            held -= freed;
            if counts || freed > 0 {
                limits::hold(held).map_err(fail)?;
            }
            if let Some((most, before)) = before {
                let given = step.outputs.iter().flatten().filter_map(|&slot| slots[slot].as_ref());
                most.set(most.get().max(before.saturating_add(byte_len(given))));
            }
            if let Some((spent, at, begin)) = watch {
                let time = begin.elapsed();
                let given = step.outputs.iter().flatten().filter_map(|&slot| slots[slot].as_ref());
                let shapes = given.map(Value::shape).collect();
                let Place { operator, node } = step.place.clone();
                // In front of the nodes of its body, which are part of it.
                spent.borrow_mut()[at..].iter_mut().for_each(|inner| inner.depth += 1);
                spent.borrow_mut().insert(at, Spent { operator, node, depth: 0, time, shapes });
            }
        }
        limits::hold(around)?;
        // Compiling has checked that each output has a value; only a kernel that gives too few leaves one empty.
        let missing = || OpError::new("an output was never computed").into();
        self.outputs.iter().map(|output| fetch(output, &mut slots).ok_or_else(missing)).collect()
    }

    /// The value of an argument that is read for the last time, if values decide its size.
    fn counted<'a>(&self, input: &Input, slots: &'a [Option<Value>]) -> Option<&'a Value> {
        match input {
            Input::Slot { index, last: true } if self.slots[*index] => slots[*index].as_ref(),
            _ => None,
        }
    }
}

impl From<OpError> for Failure {
    fn from(error: OpError) -> Failure {
        Failure { place: None, reason: error.0 }
    }
}

/// A failure inside of a loop's or branch's body is one of the node that it belongs to.
impl From<Failure> for OpError {
    fn from(failure: Failure) -> OpError {
        OpError(failure.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.reason),
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

fn byte_len<'a>(values: impl Iterator<Item = &'a Value>) -> usize {
    values.map(Value::byte_len).fold(0, usize::saturating_add)
}

/// A step before it is known which of its arguments are read for the last time.
struct Draft {
    place: Place,
    sources: Vec<Source>,
    outputs: Vec<Option<usize>>,
    kernel: Kernel,
}

/// What a name stands for.
enum Meaning {
    /// A constant of the file that nobody has read yet.
    Weight(TensorProto),
    Known(Source),
    /// A constant that has been read for the last time. Who reads it last has it alone and can lay it out anew in its place,
    /// so that it is not in memory twice.
    Spent,
}

struct Compiler<'a> {
    device: DispatchDevice,
    opset: i64,
    /// Where weights are that are not in the model's own file.
    files: &'a Files,
    sizes: &'a Sizes,
    /// The graph whose node this graph is a body of.
    around: Option<&'a Compiler<'a>>,
    names: HashMap<String, Meaning>,
    /// How often each name is still going to be read. Bodies count, and what they read stays.
    reads: HashMap<String, usize>,
    /// Names that this graph reads of those around it, each of which has become an input.
    captures: Vec<String>,
    /// As those of the plan.
    slots: Vec<bool>,
    inputs: Vec<usize>,
    steps: Vec<Draft>,
    /// Bytes of constants that were computed from constants, those of bodies and of the graphs around among them.
    folded: &'a Cell<usize>,
    /// Bytes of all constants that are held, in the same graphs.
    held: &'a Cell<usize>,
    /// Bytes of those of them that the node which is compiled is the last to read.
    last_read: usize,
    laid_out: LaidOut,
}

/// Most bytes that constants computed from constants may have in all: a small file could otherwise ask for all memory.
const MAX_FOLDED: usize = 1 << 30;

impl<'a> Compiler<'a> {
    fn new(
        device: DispatchDevice,
        opset: i64,
        files: &'a Files,
        sizes: &'a Sizes,
        folded: &'a Cell<usize>,
        held: &'a Cell<usize>,
        around: Option<&'a Compiler<'a>>,
    ) -> Compiler<'a> {
        Compiler {
            device,
            opset,
            files,
            sizes,
            around,
            names: HashMap::new(),
            reads: HashMap::new(),
            captures: Vec::new(),
            slots: Vec::new(),
            inputs: Vec::new(),
            steps: Vec::new(),
            folded,
            held,
            last_read: 0,
            laid_out: LaidOut::default(),
        }
    }

    /// Compiles a graph; says also which values around it it reads, as inputs behind its own.
    fn graph(mut self, mut graph: GraphProto, nodes: &[Node]) -> Result<(Plan, Vec<String>), Cause> {
        if !graph.sparse_initializer.is_empty() {
            return Err(Cause::Unsupported("sparse weights are not supported; export dense ones".into()));
        }
        let mut bodies = HashMap::new();
        let files = || nodes.iter().map(|node| &node.file);
        files().flat_map(NodeProto::bodies).for_each(|body| count_reads(body, body.node.iter(), &mut bodies));
        count_reads(&graph, files(), &mut self.reads);
        for mut weight in std::mem::take(&mut graph.initializer) {
            let name = std::mem::take(&mut weight.name);
            self.name(name.clone(), Meaning::Weight(weight))?;
            if bodies.contains_key(&name) {
                self.reads.insert(name.clone(), usize::MAX);
                self.known(&name)?;
            }
        }
        for input in graph.input {
            if !matches!(self.names.get(&input.name), Some(Meaning::Weight(_) | Meaning::Known(Source::Constant(_)))) {
                let slot = self.define(input.name)?;
                self.inputs.push(slot);
            }
        }
        for node in nodes {
            self.node(node)?;
        }
        let outputs = graph.output.into_iter().map(|output| {
            let missing = || Cause::Graph(format!("nothing computes the output {}", Quoted(&output.name)));
            self.lookup(&output.name)?.ok_or_else(missing)
        });
        let outputs = outputs.collect::<Result<Vec<Source>, Cause>>()?;
        let captures = std::mem::take(&mut self.captures);
        Ok((self.finish(outputs), captures))
    }

    /// Gives a new name its meaning. A name that comes twice would silently read the wrong value.
    fn name(&mut self, name: String, meaning: Meaning) -> Result<(), Cause> {
        match self.names.insert(name.clone(), meaning) {
            None => Ok(()),
            Some(_) => Err(Cause::Graph(format!("the name {} is used twice", QuotedPlace(&name)))),
        }
    }

    /// A slot for a new name.
    fn define(&mut self, name: String) -> Result<usize, Cause> {
        let slot = self.slots.len();
        self.slots.push(self.sizes.contains(&name));
        self.name(name, Meaning::Known(Source::Slot(slot)))?;
        Ok(slot)
    }

    /// What a name stands for, here or in the graphs around.
    fn lookup(&mut self, name: &str) -> Result<Option<Source>, Cause> {
        if let Some(source) = self.known(name)? {
            return Ok(Some(source));
        }
        let source = match self.around.and_then(|around| around.visible(name)) {
            None => return Ok(None),
            Some(Source::Slot(_)) => {
                // It counts where it was computed.
                let slot = self.slots.len();
                self.slots.push(false);
                self.inputs.push(slot);
                self.captures.push(name.to_owned());
                Source::Slot(slot)
            }
            Some(constant) => constant.clone(),
        };
        self.names.insert(name.to_owned(), Meaning::Known(source.clone()));
        Ok(Some(source))
    }

    /// What a name of this graph stands for. A constant is given away when it is read for the last time.
    fn known(&mut self, name: &str) -> Result<Option<Source>, Cause> {
        let Some(meaning) = self.names.get_mut(name) else { return Ok(None) };
        if let Meaning::Weight(weight) = meaning {
            let (elsewhere, known) = (weight.data_location != 0, readable(weight.data_type));
            let value = fenced(|| weights::value(weight, self.files, &self.device)).and_then(|v| v);
            let value = value.map_err(|e| unread(format!("constant {}: {e}", QuotedPlace(name)), elsewhere, known))?;
            self.held.set(self.held.get().saturating_add(value.byte_len()));
            *meaning = Meaning::Known(Source::Constant(value));
        }
        let left = self.reads.get_mut(name).map_or(0, |left| {
            *left = left.saturating_sub(1);
            *left
        });
        Ok(match meaning {
            Meaning::Known(Source::Constant(value)) if left == 0 => {
                self.last_read += value.byte_len();
                match std::mem::replace(meaning, Meaning::Spent) {
                    Meaning::Known(source) => Some(source),
                    Meaning::Weight(_) | Meaning::Spent => None,
                }
            }
            Meaning::Known(source) => Some(source.clone()),
            Meaning::Weight(_) | Meaning::Spent => None,
        })
    }

    /// What a name stands for in this graph or one around it.
    fn visible(&self, name: &str) -> Option<&Source> {
        match self.names.get(name) {
            Some(Meaning::Known(source)) => Some(source),
            // What bodies read is read before them and kept.
            Some(Meaning::Weight(_) | Meaning::Spent) => None,
            None => self.around?.visible(name),
        }
    }

    /// A node's argument; an empty name is one left out.
    fn argument(&mut self, name: &str, place: &Place) -> Result<Source, Cause> {
        if name.is_empty() {
            return Ok(Source::Absent);
        }
        self.lookup(name)?.ok_or_else(|| {
            let (value, node) = (QuotedPlace(name), QuotedPlace(&place.node));
            Cause::Graph(format!("nothing computes the value {value}, which node {node} reads"))
        })
    }

    fn node(&mut self, node: &Node) -> Result<(), Cause> {
        let (whole, node) = (node, &node.file);
        self.last_read = 0;
        let place = Place { operator: node.qualified(), node: node.label().to_owned() };
        let Some(operator) = ops::find(&place.operator) else {
            let Place { operator, node } = place;
            return Err(Cause::Operator { operator, node, others: String::new() });
        };
        let attributes = Attributes::new(&node.attribute);
        let mut sources = Vec::with_capacity(node.input.len());
        for name in &node.input {
            sources.push(self.argument(name, &place)?);
        }
        let mut graphs = HashMap::new();
        for (name, body) in attributes.graphs() {
            let (plan, captures) = self.body(body)?;
            let first = sources.len();
            for capture in &captures {
                sources.push(self.argument(capture, &place)?);
            }
            graphs.insert(name, Subgraph { plan, captures: first..sources.len() });
        }
        let Compiler { files, laid_out, device, opset, .. } = &*self;
        let setting = Setting { files, laid_out, device, opset: *opset };
        let mut build = Build::new(whole, attributes, sources, graphs, setting);
        let kernel = fenced(|| ops::compile(&mut build, operator)).and_then(|kernel| kernel);
        let kernel = kernel.and_then(|kernel| match build.attributes.unread() {
            Some(name) => {
                Err(OpError(format!("its attribute {name} is not known in opset {}", self.opset, name = Quoted(name))))
            }
            None => Ok(kernel),
        });
        let kernel = kernel.map_err(|e| form(&place, e.0))?;
        let sources = build.into_sources();
        if sources.iter().all(|s| !matches!(s, Source::Slot(_))) {
            let values = fold(&kernel, sources, &self.device);
            let values = values.map_err(|e| form(&place, format!("it fails on its constant inputs: {e}")))?;
            let bytes = byte_len(values.iter());
            self.folded.set(self.folded.get().saturating_add(bytes));
            // What it was the last to read is gone.
            self.held.set(self.held.get().saturating_add(bytes).saturating_sub(self.last_read));
            if self.folded.get() > MAX_FOLDED {
                return Err(form(&place, format!("the graph's computed constants have more than {MAX_FOLDED} bytes")));
            }
            for (output, value) in node.output.iter().zip(values).filter(|(output, _)| !output.is_empty()) {
                self.name(output.clone(), Meaning::Known(Source::Constant(value)))?;
            }
            return Ok(());
        }
        let outputs = node.output.iter().map(|output| match output.as_str() {
            "" => Ok(None),
            name => self.define(name.to_owned()).map(Some),
        });
        let outputs = outputs.collect::<Result<Vec<_>, Cause>>()?;
        self.steps.push(Draft { place, sources, outputs, kernel });
        Ok(())
    }

    /// Compiles a body of one of this graph's nodes.
    fn body(&self, body: &GraphProto) -> Result<(Plan, Vec<String>), Cause> {
        let Compiler { device, opset, files, sizes, folded, held, .. } = self;
        let compiler = Compiler::new(device.clone(), *opset, files, sizes, folded, held, Some(self));
        let mut body = body.clone();
        let nodes: Vec<Node> = std::mem::take(&mut body.node).into_iter().map(Node::plain).collect();
        compiler.graph(body, &nodes)
    }

    /// Marks last uses, from the end: the first time that a slot is met going backwards is its last use.
    fn finish(self, outputs: Vec<Source>) -> Plan {
        let mut read = vec![false; self.slots.len()];
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
        let mut steps = Vec::with_capacity(self.steps.len());
        for Draft { place, sources, outputs, kernel } in self.steps.into_iter().rev() {
            steps.push((backwards(sources), place, outputs, kernel));
        }
        let steps = steps.into_iter().rev().map(|(inputs, place, outputs, kernel)| {
            let outputs = outputs.into_iter().map(|slot| slot.filter(|&slot| read[slot])).collect();
            Compiled { place, inputs, outputs, kernel }
        });
        let steps = steps.collect();
        Plan {
            device: self.device,
            steps,
            slots: self.slots,
            inputs: self.inputs,
            outputs: graph_outputs,
            constants: 0,
        }
    }
}

/// How often a graph of these nodes reads each name, their bodies included.
fn count_reads<'a>(graph: &GraphProto, nodes: impl Iterator<Item = &'a NodeProto>, reads: &mut HashMap<String, usize>) {
    let mut read = |name: &String| *reads.entry(name.clone()).or_default() += 1;
    graph.output.iter().for_each(|output| read(&output.name));
    let mut bodies = Vec::new();
    for node in nodes {
        node.input.iter().for_each(&mut read);
        bodies.extend(node.bodies());
    }
    bodies.into_iter().for_each(|body| count_reads(body, body.node.iter(), reads));
}

/// Runs a kernel whose arguments are all constant.
fn fold(kernel: &Kernel, sources: Vec<Source>, device: &DispatchDevice) -> Result<Vec<Value>, OpError> {
    let constants = sources.into_iter().map(|source| match source {
        Source::Constant(value) => Some(value),
        Source::Absent | Source::Slot(_) => None,
    });
    let mut values: Vec<Option<Value>> = constants.collect();
    let budget = Budget::full();
    fenced(|| kernel.run(Args::new(&mut values, device, &budget)))?
}

/// Whether constants can be of this type.
fn readable(element: i32) -> bool {
    datatype(element).is_some() || Small::of(element).is_some()
}

/// Why a constant cannot be read: its file, its type, or what is in it.
fn unread(reason: String, elsewhere: bool, known: bool) -> Cause {
    match (known, elsewhere) {
        (false, _) => Cause::Unsupported(reason),
        (true, true) => Cause::File(reason),
        (true, false) => Cause::Graph(reason),
    }
}

fn form(place: &Place, reason: String) -> Cause {
    Cause::Form { operator: place.operator.clone(), node: place.node.clone(), reason }
}
