//! Branches and loops: bodies are plans of their own, run with what they read of the graph around them.

use burn_backend::{BoolStore, DType};
use burn_dispatch::DispatchDevice;

use super::arrange::{from_bytes, integer, permuted, picked, zeros};
use super::select::part;
use super::{Args, Build, Kernel, Operator, Subgraph};
use crate::runner::onnx::outline::{Declared, Dim, Outline};
use crate::runner::onnx::tensors::dtype;
use crate::runner::onnx::value::{HostInts, OpError, Value, axis, elements};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("If", |build| {
        let (yes, no) = (build.graph("then_branch")?, build.graph("else_branch")?);
        let outputs = build.node.output.len();
        if [&yes, &no].iter().any(|branch| branch.plan.gives() != outputs) {
            return Err(OpError::new("its branches differ in their number of results"));
        }
        Ok(Kernel::many(move |mut args| {
            let chosen = if args.take(0)?.truth()? { &yes } else { &no };
            let captured = args.range(chosen.captures.clone())?;
            Ok(chosen.plan.run_within(captured, args.budget)?)
        }))
    }),
    Operator::new("Loop", |build| {
        // In front of the values that an iteration hands to the next one are trip count and condition.
        let carried = build.node.input.len().saturating_sub(2);
        let body = Body::of(build, 2 + carried, 1 + carried)?;
        let (counted, conditional) = (build.has(0), build.has(1));
        if !counted && !conditional {
            return Err(OpError::new("it has neither a trip count nor a condition, so it would not end"));
        }
        Ok(Kernel::many(move |mut args| {
            let trips = if counted { integer(args.take(0)?, "trip count")? } else { i64::MAX };
            let mut goes_on = if conditional { args.take(1)?.truth()? } else { true };
            let mut state = args.range(2..2 + carried)?;
            let captured = args.range(body.graph.captures.clone())?;
            let mut collected = body.collected(&[], &[]);
            for i in 0..trips {
                if !goes_on {
                    break;
                }
                let count = Value::Host(HostInts { ints: vec![i], scalar: true });
                let mut inputs = vec![count, truth(goes_on, args.device)?];
                inputs.append(&mut state);
                let mut results = body.run(inputs, &captured, &mut collected, &args)?;
                state = results.split_off(1);
                // Without a condition to begin with, the body's is ignored.
                if let Some(condition) = results.pop().filter(|_| conditional) {
                    goes_on = condition.truth()?;
                }
            }
            finish(state, collected, args.device)
        }))
    }),
    Operator::new("Scan", scan).except("lengths of sequences in opset 8"),
];

/// A boolean of rank 0.
fn truth(flag: bool, device: &DispatchDevice) -> Result<Value, OpError> {
    from_bytes(vec![u8::from(flag)], vec![], DType::Bool(BoolStore::Native), device)
}

/// The body of a loop.
struct Body {
    graph: Subgraph,
    /// How many results the next iteration takes; one of each of the others is collected from every iteration.
    carried: usize,
    declared: Vec<Declared>,
}

impl Body {
    /// A body that takes and carries so many values.
    fn of(build: &mut Build<'_>, takes: usize, carried: usize) -> Result<Body, OpError> {
        let graph = build.graph("body")?;
        let file = build.node.attribute.iter().find(|attribute| attribute.name == "body").and_then(|a| a.g.as_ref());
        let declared = file.map(|file| Outline::of(file).outputs).unwrap_or_default();
        // In front of the condition that a loop's body gives, nobody outside sees anything.
        let hidden = usize::from(build.node.op_type == "Loop");
        let seen = build.node.output.len() + hidden;
        if graph.plan.takes() != takes + graph.captures.len() {
            return Err(OpError(format!("its body does not take the {takes} values that it gets")));
        }
        if graph.plan.gives() < carried || graph.plan.gives() < seen {
            return Err(OpError(format!("its body gives {} values where more are needed", graph.plan.gives())));
        }
        Ok(Body { graph, carried, declared: declared.into_iter().skip(carried).collect() })
    }

    /// Nothing collected yet. Axes and directions that are not given are 0.
    fn collected(&self, axes: &[i64], directions: &[i64]) -> Vec<Collected<'_>> {
        let of = |list: &[i64], i: usize| list.get(i).copied().unwrap_or(0);
        let each = self.declared.iter().enumerate();
        each.map(|(i, declared)| Collected::new(declared, of(axes, i), of(directions, i) != 0)).collect()
    }

    /// One iteration: gives what is carried and collects the rest.
    fn run(
        &self,
        mut inputs: Vec<Value>,
        captured: &[Value],
        collected: &mut [Collected<'_>],
        args: &Args<'_>,
    ) -> Result<Vec<Value>, OpError> {
        args.budget.spend()?;
        inputs.extend_from_slice(captured);
        let mut results = self.graph.plan.run_within(inputs, args.budget)?;
        let parts = results.split_off(self.carried);
        collected.iter_mut().zip(parts).try_for_each(|(collected, part)| collected.push(part))?;
        Ok(results)
    }
}

/// What is carried at the end, then what was collected.
fn finish(
    mut state: Vec<Value>,
    collected: Vec<Collected<'_>>,
    device: &DispatchDevice,
) -> Result<Vec<Value>, OpError> {
    for collected in collected {
        state.push(collected.finish(device)?);
    }
    Ok(state)
}

/// One result of each iteration, put together along a new axis.
///
/// The elements are copied as they come: a kept tensor may be a small view of a large one, which would stay in memory with
/// it, once for each iteration.
struct Collected<'a> {
    declared: &'a Declared,
    axis: i64,
    backwards: bool,
    parts: usize,
    /// Of one part.
    dims: Vec<usize>,
    dtype: DType,
    bytes: Vec<u8>,
}

impl<'a> Collected<'a> {
    fn new(declared: &'a Declared, axis: i64, backwards: bool) -> Collected<'a> {
        Collected { declared, axis, backwards, parts: 0, dims: Vec::new(), dtype: DType::F32, bytes: Vec::new() }
    }

    fn push(&mut self, part: Value) -> Result<(), OpError> {
        let (dims, dtype) = (part.shape(), part.dtype());
        if self.parts == 0 {
            (self.dims, self.dtype) = (dims, dtype);
        } else if dims != self.dims || dtype != self.dtype {
            let (name, first) = (&self.declared.name, &self.dims);
            return Err(OpError(format!("'{name}' has the shape {first:?} in one iteration and {dims:?} in another")));
        }
        self.parts += 1;
        elements(&[&[self.parts], &self.dims[..]].concat())?;
        self.bytes.extend_from_slice(part.into_data()?.bytes());
        Ok(())
    }

    fn finish(mut self, device: &DispatchDevice) -> Result<Value, OpError> {
        if self.parts == 0 {
            self.dims = self.declared.dims.iter().flatten().map(fixed).collect();
            let element = self.declared.element;
            self.dtype = dtype(element.into()).ok_or_else(|| {
                OpError(format!("no iteration was made, so the type of '{}' is not known", self.declared.name))
            })?;
        }
        let block = elements(&self.dims)?;
        let axis = axis(self.axis, self.dims.len() + 1)?;
        let dims = [&[self.parts], &self.dims[..]].concat();
        if elements(&dims)? == 0 {
            let mut dims = self.dims;
            dims.insert(axis, self.parts);
            return zeros(dims, self.dtype, device);
        }
        let mut all = from_bytes(self.bytes, dims.clone(), self.dtype, device)?;
        if self.backwards {
            all = picked(all, block, (0..self.parts).rev().map(Some), dims, device)?;
        }
        // The new axis is in front.
        let order: Vec<usize> = (1..=axis).chain([0]).chain(axis + 1..=self.dims.len()).collect();
        Ok(permuted(all, &order))
    }
}

/// A declared length, 0 where it is free.
fn fixed(dim: &Dim) -> usize {
    match dim {
        Dim::Fixed(length) => usize::try_from(*length).unwrap_or(usize::MAX),
        Dim::Free(_) => 0,
    }
}

/// What a `Scan` does, by its attributes.
struct Scan {
    body: Body,
    /// How many values it carries.
    carried: usize,
    /// How many inputs it goes along.
    along: usize,
    input_axes: Vec<i64>,
    input_directions: Vec<i64>,
    output_axes: Vec<i64>,
    output_directions: Vec<i64>,
}

/// `Scan`; in opset 8 with a batch axis in front of everything.
fn scan(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let old = build.opset < 9;
    let first = usize::from(old);
    if old && build.has(0) {
        return Err(OpError::new("it is given the lengths of its sequences; export with opset 9 or newer"));
    }
    let inputs = build.node.input.len().saturating_sub(first);
    let along = build.attributes.int("num_scan_inputs", 0)?;
    let along = usize::try_from(along).ok().filter(|along| (1..=inputs).contains(along));
    let along =
        along.ok_or_else(|| OpError(format!("its number of scanned inputs does not fit its {inputs} inputs")))?;
    let list = |name: &str| Ok::<_, OpError>(build.attributes.ints(name)?.unwrap_or_default());
    let (input_axes, mut input_directions) = (list("scan_input_axes")?, list("scan_input_directions")?);
    let (output_axes, output_directions) = (list("scan_output_axes")?, list("scan_output_directions")?);
    if old {
        input_directions = list("directions")?;
    }
    let carried = inputs - along;
    let body = Body::of(build, inputs, carried)?;
    let scan = Scan { body, carried, along, input_axes, input_directions, output_axes, output_directions };
    Ok(Kernel::many(move |mut args| {
        let inputs = args.range(first..first + inputs)?;
        let captured = args.range(scan.body.graph.captures.clone())?;
        if old { scan.run_batch(inputs, &captured, &args) } else { scan.run(inputs, &captured, &args) }
    }))
}

impl Scan {
    fn run(&self, mut inputs: Vec<Value>, captured: &[Value], args: &Args<'_>) -> Result<Vec<Value>, OpError> {
        let mut along = Vec::with_capacity(self.along);
        let mut steps = None;
        for (i, x) in inputs.split_off(self.carried).into_iter().enumerate() {
            let axis = axis(self.input_axes.get(i).copied().unwrap_or(0), x.rank())?;
            let length = x.shape()[axis];
            if *steps.get_or_insert(length) != length {
                return Err(OpError::new("the inputs that it goes along differ in length"));
            }
            let backwards = self.input_directions.get(i).is_some_and(|direction| *direction != 0);
            along.push((x, axis, backwards));
        }
        let steps = steps.unwrap_or(0);
        let mut state = inputs;
        let mut collected = self.body.collected(&self.output_axes, &self.output_directions);
        for step in 0..steps {
            let mut inputs = std::mem::take(&mut state);
            for (x, axis, backwards) in &along {
                let at = if *backwards { steps - 1 - step } else { step };
                inputs.push(row(x, *axis, at, args.device)?);
            }
            state = self.body.run(inputs, captured, &mut collected, args)?;
        }
        finish(state, collected, args.device)
    }

    /// Each entry of the batch for itself.
    fn run_batch(&self, inputs: Vec<Value>, captured: &[Value], args: &Args<'_>) -> Result<Vec<Value>, OpError> {
        let batch = inputs.first().and_then(|x| x.shape().first().copied()).unwrap_or(0);
        if inputs.iter().any(|x| x.shape().first() != Some(&batch)) {
            return Err(OpError::new("its inputs differ in their number of sequences"));
        }
        let nameless = Declared { name: String::new(), element: 0, dims: None };
        let mut collected: Vec<Collected<'_>> = Vec::new();
        for entry in 0..batch {
            let inputs = inputs.iter().map(|x| row(x, 0, entry, args.device)).collect::<Result<Vec<_>, _>>()?;
            let results = self.run(inputs, captured, args)?;
            collected.resize_with(results.len(), || Collected::new(&nameless, 0, false));
            collected.iter_mut().zip(results).try_for_each(|(collected, result)| collected.push(result))?;
        }
        finish(Vec::new(), collected, args.device)
    }
}

/// One position of an axis, without the axis.
fn row(x: &Value, axis: usize, at: usize, device: &DispatchDevice) -> Result<Value, OpError> {
    let mut dims = x.shape();
    dims.remove(axis);
    part(x.clone(), axis, at, 1, device)?.shaped(dims, device)
}
