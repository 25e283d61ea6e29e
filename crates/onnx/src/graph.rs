//! A file's graph as it is: tensors in, tensors out, with no notion of rows and batches.

use std::fmt;
use std::path::Path;

use burn::tensor::{Device, TensorData};
use bytes::Bytes;
use prost::Message;

use super::fence::fenced;
use super::files::{self, Files};
use super::fuse::Rule;
use super::influence::Influence;
use super::opened::Opened;
use super::ops::Place;
use super::outline::{Declared, Outline};
use super::plan::{Failure, Plan, Spent};
use super::proto::{GraphProto, NodeProto, TensorProto};
use super::trial::{Crossing, crossings};
use super::value::{OpError, Value};
use super::{Cause, Item, OnnxError, apart, constants, expand, fuse, invariant, small, tensors, weights, widening};
use uncork_model::quote::{Quoted, listed};
use uncork_model::runner::RunnerError;
use uncork_model::tensor::Tensor;

/// A compiled ONNX graph.
///
/// This is ONNX's own view of a file: inputs and outputs by position, of any shapes. Serving it asks for more, a batch
/// axis; see [`OnnxModel`](super::OnnxModel).
pub struct Graph {
    pub(super) outline: Outline,
    pub(super) influence: Influence,
    pub(super) plan: Plan,
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("outline", &self.outline).finish_non_exhaustive()
    }
}

impl Graph {
    /// Reads and compiles a file. Weights in other files are looked for beside it, and nowhere else.
    pub fn open(path: &Path) -> Result<Graph, OnnxError> {
        Graph::open_on(path, &Device::flex())
    }

    /// The same, for another device.
    pub fn open_on(path: &Path, device: &Device) -> Result<Graph, OnnxError> {
        let (bytes, files) = files::open(path)?;
        Ok(Graph::compile(bytes.into(), &files, device, &Rule::ALL, false)?)
    }

    /// Compiles a model from the bytes of its file, which must hold all its weights.
    pub fn load(bytes: &[u8]) -> Result<Graph, OnnxError> {
        Graph::load_on(bytes, &Device::flex())
    }

    /// The same, for another device.
    pub fn load_on(bytes: &[u8], device: &Device) -> Result<Graph, OnnxError> {
        Ok(Graph::compile(Bytes::copy_from_slice(bytes), &Files::None, device, &Rule::ALL, false)?)
    }

    /// Compiles a model from its bytes with only these rules to join nodes by, to hold the rules against each other.
    pub fn load_joined_by(bytes: &[u8], rules: &[Rule]) -> Result<Graph, OnnxError> {
        Ok(Graph::compile(Bytes::copy_from_slice(bytes), &Files::None, &Device::flex(), rules, false)?)
    }

    /// As [`open_on`](Graph::open_on), for whoever answers requests: what no request can carry is taken apart.
    pub(super) fn open_apart(path: &Path, device: &Device) -> Result<Graph, OnnxError> {
        let (bytes, files) = files::open(path)?;
        Ok(Graph::compile(bytes.into(), &files, device, &Rule::ALL, true)?)
    }

    /// The same of a file's bytes.
    pub(super) fn load_apart(bytes: &[u8], device: &Device) -> Result<Graph, OnnxError> {
        Ok(Graph::compile(Bytes::copy_from_slice(bytes), &Files::None, device, &Rule::ALL, true)?)
    }

    fn compile(bytes: Bytes, files: &Files, device: &Device, rules: &[Rule], is_apart: bool) -> Result<Graph, Cause> {
        let Opened { mut graph, opset, .. } = Opened::of(bytes)?;
        refuse_missing_operators(&graph)?;
        if is_apart {
            apart::take_apart(&mut graph);
        }
        small::refuse_readers(&graph)?;
        expand::expand(&mut graph, opset)?;
        let outline = Outline::of(&graph);
        let given: Vec<&str> = outline.inputs.iter().map(|input| input.name.as_str()).collect();
        let influence = Influence::of(&graph, &given);
        invariant::hoist(&mut graph);
        constants::lift(&mut graph);
        widening::widen(&mut graph);
        let nodes = fenced(|| fuse::fuse(&mut graph, rules)).map_err(|e| Cause::Graph(e.0))?;
        let plan = Plan::compile(graph, &nodes, opset, device.as_dispatch().clone(), files, &influence.sizes)?;
        Ok(Graph { outline, influence, plan })
    }

    /// Names of the inputs that a run takes, in order.
    pub fn inputs(&self) -> impl Iterator<Item = &str> {
        self.outline.inputs.iter().map(|input| input.name.as_str())
    }

    /// Names of the outputs that a run gives, in order.
    pub fn outputs(&self) -> impl Iterator<Item = &str> {
        self.outline.outputs.iter().map(|output| output.name.as_str())
    }

    /// Runs the graph once. Inputs and outputs come in the order of [`inputs`](Graph::inputs) and
    /// [`outputs`](Graph::outputs). A panic of a device operation is an error.
    pub fn run(&self, inputs: Vec<TensorData>) -> Result<Vec<TensorData>, RunnerError> {
        let outputs = self.run_items(inputs.into_iter().map(Item::Tensor).collect())?;
        let numbers = |item| match item {
            Item::Tensor(data) => Ok(data),
            Item::Texts { .. } | Item::Sequence(_) => Err(RunnerError::Failed("it gives more than numbers".into())),
        };
        outputs.into_iter().map(numbers).collect()
    }

    /// Runs the graph as [`run`](Graph::run) does, on values of any kind.
    pub fn run_items(&self, inputs: Vec<Item>) -> Result<Vec<Item>, RunnerError> {
        if inputs.len() != self.outline.inputs.len() {
            return Err(RunnerError::Failed(format!(
                "{} inputs where {} are taken",
                inputs.len(),
                self.outline.inputs.len()
            )));
        }
        let outputs = fenced(|| {
            let values = inputs.into_iter().map(|item| item.into_value(self.plan.device()));
            let outputs = self.plan.run(values.collect::<Result<_, _>>()?)?;
            Ok(outputs.into_iter().map(Item::of).collect::<Result<_, _>>()?)
        });
        outputs
            .unwrap_or_else(|panic| Err(panic.into()))
            .map_err(|failure: Failure| RunnerError::Failed(failure.to_string()))
    }

    /// Runs the graph once and tells what each node took, in the order in which they ran; those of a body are behind its node.
    pub fn profile(&self, inputs: Vec<TensorData>) -> Result<Vec<Spent>, RunnerError> {
        let spent = fenced(|| {
            let values = inputs.into_iter().map(|data| Item::Tensor(data).into_value(self.plan.device()));
            self.plan.profile(values.collect::<Result<_, _>>()?)
        });
        let spent = spent.unwrap_or_else(|panic| Err(panic.into()));
        spent.map_err(|failure: Failure| RunnerError::Failed(failure.to_string()))
    }

    /// Runs the graph on tensors in its own shapes; says where it failed.
    pub(super) fn compute(&self, inputs: Vec<Tensor>) -> Result<Vec<Tensor>, Failure> {
        self.compute_by(Plan::run, inputs)
    }

    /// The same on rows that were made up.
    pub(super) fn rehearse(&self, inputs: Vec<Tensor>) -> Result<Vec<Tensor>, Failure> {
        self.compute_by(Plan::rehearse, inputs)
    }

    /// How many bytes values have at most at one time in a run on these rows, which were made up.
    pub(super) fn most_bytes(&self, inputs: Vec<Tensor>) -> Result<usize, Failure> {
        let mut most = 0;
        let run = |plan: &Plan, values| {
            let (outputs, bytes) = plan.most_bytes(values)?;
            most = bytes;
            Ok(outputs)
        };
        self.compute_by(run, inputs)?;
        Ok(most)
    }

    /// Where rows meet in what becomes of each output, for one row and for `count` rows, which were made up.
    pub(super) fn crossings(
        &self,
        rows: &[Option<usize>],
        one: Vec<Tensor>,
        many: Vec<Tensor>,
        count: usize,
    ) -> Result<(Vec<Option<Crossing>>, bool), Failure> {
        let values = |tensors: Vec<Tensor>| {
            tensors
                .into_iter()
                .map(|tensor| tensors::to_value(tensor, self.plan.device()))
                .collect::<Result<Vec<_>, _>>()
        };
        let (one, many) = (values(one)?, values(many)?);
        fenced(|| crossings(&self.plan, rows, one, many, count))?
    }

    fn compute_by(
        &self,
        run: impl FnOnce(&Plan, Vec<Value>) -> Result<Vec<Value>, Failure>,
        inputs: Vec<Tensor>,
    ) -> Result<Vec<Tensor>, Failure> {
        fenced(|| {
            let value = |(tensor, declared): (Tensor, &Declared)| {
                // What a sender can put right is told with its place.
                let place = || Place { operator: "input".into(), node: declared.name.clone() };
                let failure = |e: OpError| Failure {
                    place: Some(place()),
                    reason: format!("input {}: {e}", Quoted(&declared.name)),
                };
                tensors::to_value(tensor, self.plan.device()).map_err(failure)
            };
            let values = inputs.into_iter().zip(&self.outline.inputs).map(value);
            let values = run(&self.plan, values.collect::<Result<_, Failure>>()?)?;
            let tensor = |(value, declared): (Value, &Declared)| {
                tensors::to_tensor(value).map_err(|e| OpError(format!("output {}: {e}", Quoted(&declared.name))))
            };
            Ok(values.into_iter().zip(&self.outline.outputs).map(tensor).collect::<Result<_, _>>()?)
        })?
    }
}

/// A tensor of numbers or texts from the bytes of a `TensorProto`, as ONNX's test data has them.
pub fn read_item(bytes: &[u8]) -> Result<Item, OnnxError> {
    let unreadable = |reason: String| Cause::Unreadable(reason);
    let mut tensor = TensorProto::decode(bytes).map_err(|e| unreadable(e.to_string()))?;
    let device = Device::flex();
    let value = weights::value(&mut tensor, &Files::None, device.as_dispatch());
    Ok(value.and_then(Item::of).map_err(|e| unreadable(e.0))?)
}

/// A tensor of numbers from the bytes of a `TensorProto`.
pub fn read_tensor(bytes: &[u8]) -> Result<TensorData, OnnxError> {
    let unreadable = |reason: String| Cause::Unreadable(reason);
    let mut tensor = TensorProto::decode(bytes).map_err(|e| unreadable(e.to_string()))?;
    Ok(weights::data(&mut tensor, &Files::None).map_err(|e| unreadable(e.0))?)
}

/// Names the first operator that is missing, and its fellows.
fn refuse_missing_operators(graph: &GraphProto) -> Result<(), Cause> {
    let mut missing = Vec::new();
    find_missing(graph, &mut missing);
    let Some(first) = missing.first() else { return Ok(()) };
    let operator = first.qualified();
    let mut others: Vec<String> = missing.iter().map(|n| n.qualified()).collect();
    others.sort_unstable();
    others.dedup();
    others.retain(|other| *other != operator);
    let others = if others.is_empty() { String::new() } else { format!(", nor are {}", listed(&others)) };
    Err(Cause::Operator { operator, node: first.label().to_owned(), others })
}

fn find_missing<'a>(graph: &'a GraphProto, missing: &mut Vec<&'a NodeProto>) {
    for node in &graph.node {
        if !expand::is_known(&node.qualified()) {
            missing.push(node);
        }
        for body in node.bodies() {
            find_missing(body, missing);
        }
    }
}
