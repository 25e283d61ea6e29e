//! Branches and loops: bodies are plans of their own, run with what they read of the graph around them.

use burn_backend::{BoolStore, DType};
use burn_dispatch::DispatchDevice;

use super::arrange::{from_bytes, integer, permuted, picked, zeros};
use super::select::part;
use super::{Args, Build, Kernel, Operator, Subgraph};
use crate::limits;
use crate::outline::{Declared, Dim, Outline};
use crate::tensors::dtype;
use crate::value::{HostInts, OpError, Value, axis, elements};
use uncork_model::quote::QuotedPlace;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::of_any("If", |build| {
        let (yes, no) = (build.graph("then_branch")?, build.graph("else_branch")?);
        let outputs = build.node.file.output.len();
        if [&yes, &no].iter().any(|branch| branch.plan.gives() != outputs) {
            return Err(OpError::new("its branches differ in their number of results"));
        }
        Ok(Kernel::Control(Box::new(Control::If([no, yes]))))
    }),
    Operator::of_any("Loop", |build| {
        // In front of the values that an iteration hands to the next one are trip count and condition.
        let carried = build.node.file.input.len().saturating_sub(2);
        let body = Body::of(build, 2 + carried, 1 + carried)?;
        let (counted, conditional) = (build.has(0), build.has(1));
        if !counted && !conditional {
            return Err(OpError::new("it has neither a trip count nor a condition, so it would not end"));
        }
        Ok(Kernel::Control(Box::new(Control::Loop(Loop { body, counted, conditional }))))
    }),
    Operator::of_any("Scan", scan).except("lengths of sequences in opset 8"),
];

/// A node that has bodies.
pub(crate) enum Control {
    /// What is run if its condition does not hold, and if it does.
    If([Subgraph; 2]),
    Loop(Loop),
    Scan(Scan),
}

impl Control {
    /// The node's outputs.
    pub(super) fn run(&self, args: Args<'_>) -> Result<Vec<Value>, OpError> {
        match self {
            Control::If(branches) => chosen(branches, args),
            Control::Loop(repeated) => repeated.run(args),
            Control::Scan(scan) => scan.run(args),
        }
    }
}

fn chosen(branches: &[Subgraph; 2], mut args: Args<'_>) -> Result<Vec<Value>, OpError> {
    let branch = &branches[usize::from(args.take(0)?.truth()?)];
    let captured = args.range(branch.captures.clone())?;
    Ok(branch.plan.run_within(captured, args.budget)?)
}

/// What a `Loop` does. Behind trip count and condition come the values that it carries.
pub(crate) struct Loop {
    pub(crate) body: Body,
    counted: bool,
    conditional: bool,
}

impl Loop {
    fn run(&self, mut args: Args<'_>) -> Result<Vec<Value>, OpError> {
        let Loop { body, counted, conditional } = self;
        let trips = if *counted { integer(args.take(0)?, "trip count")? } else { i64::MAX };
        let mut goes_on = if *conditional { args.take(1)?.truth()? } else { true };
        // Its body gives a condition as well.
        let mut state = args.range(2..1 + body.carried)?;
        let captured = args.range(body.graph.captures.clone())?;
        let mut collected = body.collected(&[], &[]);
        for i in 0..trips {
            if !goes_on {
                break;
            }
            let mut inputs = Loop::begin(i, goes_on, args.device)?;
            inputs.append(&mut state);
            let mut results = body.run(inputs, &captured, &mut collected, &args)?;
            state = results.split_off(1);
            // Without a condition to begin with, the body's is ignored.
            if let Some(condition) = results.pop().filter(|_| *conditional) {
                goes_on = condition.truth()?;
            }
        }
        finish(state, collected, args.device)
    }

    /// What its body takes in front of what it carries: the number of the iteration, and whether there is to be one.
    pub(crate) fn begin(i: i64, goes_on: bool, device: &DispatchDevice) -> Result<Vec<Value>, OpError> {
        Ok(vec![Value::Host(HostInts { ints: vec![i], scalar: true }), truth(goes_on, device)?])
    }
}

/// A boolean of rank 0.
fn truth(flag: bool, device: &DispatchDevice) -> Result<Value, OpError> {
    from_bytes(vec![u8::from(flag)], vec![], DType::Bool(BoolStore::Native), device)
}

/// The body of a loop.
pub(crate) struct Body {
    pub(crate) graph: Subgraph,
    /// How many results the next iteration takes; one of each of the others is collected from every iteration.
    pub(crate) carried: usize,
    declared: Vec<Declared>,
}

impl Body {
    /// A body that takes and carries so many values.
    fn of(build: &mut Build<'_>, takes: usize, carried: usize) -> Result<Body, OpError> {
        let graph = build.graph("body")?;
        let file =
            build.node.file.attribute.iter().find(|attribute| attribute.name == "body").and_then(|a| a.g.as_ref());
        let declared = file.map(|file| Outline::of(file).outputs).unwrap_or_default();
        // In front of the condition that a loop's body gives, nobody outside sees anything.
        let hidden = usize::from(build.node.file.op_type == "Loop");
        let seen = build.node.file.output.len() + hidden;
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
            return Err(OpError(format!(
                "{} has the shape {first:?} in one iteration and {dims:?} in another",
                QuotedPlace(name)
            )));
        }
        self.parts += 1;
        elements(&[&[self.parts], &self.dims[..]].concat())?;
        let part = part.into_data()?;
        self.bytes.extend_from_slice(part.bytes());
        limits::hold(limits::held() + part.bytes().len())
    }

    fn finish(mut self, device: &DispatchDevice) -> Result<Value, OpError> {
        if self.parts == 0 {
            self.dims = self.declared.dims.iter().flatten().map(fixed).collect();
            let element = self.declared.element;
            self.dtype = dtype(element.into()).ok_or_else(|| {
                OpError(format!(
                    "no iteration was made, so the type of {} is not known",
                    QuotedPlace(&self.declared.name)
                ))
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
pub(crate) struct Scan {
    /// Whether there is a batch axis in front of everything, as in opset 8.
    pub(crate) is_old: bool,
    pub(crate) body: Body,
    /// How many values it carries.
    pub(crate) carried: usize,
    /// How many inputs it goes along.
    pub(crate) along: usize,
    input_axes: Vec<i64>,
    input_directions: Vec<i64>,
    output_axes: Vec<i64>,
    output_directions: Vec<i64>,
}

fn scan(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let old = build.opset < 9;
    let first = usize::from(old);
    if old && build.has(0) {
        return Err(OpError::new("it is given the lengths of its sequences; export with opset 9 or newer"));
    }
    let inputs = build.node.file.input.len().saturating_sub(first);
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
    let scan = Scan { is_old: old, body, carried, along, input_axes, input_directions, output_axes, output_directions };
    Ok(Kernel::Control(Box::new(Control::Scan(scan))))
}

impl Scan {
    fn run(&self, mut args: Args<'_>) -> Result<Vec<Value>, OpError> {
        let first = usize::from(self.is_old);
        let inputs = args.range(first..first + self.carried + self.along)?;
        let captured = args.range(self.body.graph.captures.clone())?;
        if self.is_old { self.run_batch(inputs, &captured, &args) } else { self.run_one(inputs, &captured, &args) }
    }

    fn run_one(&self, mut inputs: Vec<Value>, captured: &[Value], args: &Args<'_>) -> Result<Vec<Value>, OpError> {
        let mut along = Vec::with_capacity(self.along);
        let mut steps = None;
        for (i, x) in inputs.split_off(self.carried).into_iter().enumerate() {
            let axis = self.axis(i, x.rank())?;
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

    /// Along which axis of so many it goes along an input.
    pub(crate) fn axis(&self, i: usize, rank: usize) -> Result<usize, OpError> {
        axis(self.input_axes.get(i).copied().unwrap_or(0), rank)
    }

    /// Each entry of the batch for itself.
    fn run_batch(&self, inputs: Vec<Value>, captured: &[Value], args: &Args<'_>) -> Result<Vec<Value>, OpError> {
        let batch = inputs.first().and_then(|x| x.shape().first().copied()).unwrap_or(0);
        if inputs.iter().any(|x| x.shape().first() != Some(&batch)) {
            return Err(OpError::new("its inputs differ in their number of sequences"));
        }
        let nameless = Declared { name: String::new(), element: 0, dims: None, range: None };
        let mut collected: Vec<Collected<'_>> = Vec::new();
        for entry in 0..batch {
            let inputs = inputs.iter().map(|x| row(x, 0, entry, args.device)).collect::<Result<Vec<_>, _>>()?;
            let results = self.run_one(inputs, captured, args)?;
            collected.resize_with(results.len(), || Collected::new(&nameless, 0, false));
            collected.iter_mut().zip(results).try_for_each(|(collected, result)| collected.push(result))?;
        }
        finish(Vec::new(), collected, args.device)
    }
}

/// One position of an axis, without the axis.
pub(crate) fn row(x: &Value, axis: usize, at: usize, device: &DispatchDevice) -> Result<Value, OpError> {
    let mut dims = x.shape();
    dims.remove(axis);
    part(x.clone(), axis, at, 1, device)?.shaped(dims, device)
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use crate::author::Attribute::{Body, Int, Ints};
    use crate::author::Author;

    const BOOL: i32 = 9;

    fn ints(list: &[i64]) -> TensorData {
        TensorData::new(list.to_vec(), [list.len()])
    }

    fn floats(list: &[f32]) -> TensorData {
        TensorData::new(list.to_vec(), [list.len()])
    }

    fn flag(flag: bool) -> TensorData {
        TensorData::new(vec![flag], [1])
    }

    /// A body that takes iteration, condition and a sum; adds `x`, which it does not compute, and gives the sum twice.
    fn summing() -> Author {
        let body = Author::new(17).int_input("i", &[]).input_of(BOOL, "go", &[]).input("sum", &[2]);
        let body = body.output_of(BOOL, "go_on", &[]).output("next", &[2]).output("seen", &[2]);
        let body = body.node("Identity", &["go"], &["go_on"], &[]).node("Add", &["sum", "x"], &["next"], &[]);
        body.node("Identity", &["next"], &["seen"], &[])
    }

    fn looping(body: Author) -> Author {
        let author = Author::new(17).int_input("trips", &[1]).input_of(BOOL, "go", &[1]).input("x", &[2]);
        let author = author.output("total", &[2]).output("all", &[-1, 2]).floats("zero", &[2], &[0.0, 0.0]);
        author.node("Loop", &["trips", "go", "zero"], &["total", "all"], &[("body", Body(body.body()))])
    }

    #[test]
    fn a_loop_carries_values_collects_results_and_sees_what_is_around_it() {
        let found = looping(summing()).answer(vec![ints(&[3]), flag(true), floats(&[1.0, 2.0])]).unwrap();
        assert_eq!(found[0], floats(&[3.0, 6.0]));
        assert_eq!(found[1], TensorData::new(vec![1f32, 2.0, 2.0, 4.0, 3.0, 6.0], [3, 2]));
    }

    #[test]
    fn a_loop_that_never_runs_gives_empty_results_of_the_declared_shape() {
        let found = looping(summing()).answer(vec![ints(&[3]), flag(false), floats(&[1.0, 2.0])]).unwrap();
        assert_eq!(found[0], floats(&[0.0, 0.0]));
        assert_eq!(found[1], TensorData::new(Vec::<f32>::new(), [0, 2]));
        assert_eq!(looping(summing()).answer(vec![ints(&[-5]), flag(true), floats(&[1.0, 2.0])]).unwrap(), found);
    }

    #[test]
    fn a_trip_count_beyond_reason_fails_the_run() {
        let text = looping(summing()).answer(vec![ints(&[i64::MAX]), flag(true), floats(&[1.0, 2.0])]).unwrap_err();
        assert!(text.contains("'Loop' (node 'make_total')") && text.contains("more than 131072 iterations"), "{text}");
    }

    #[test]
    fn loops_within_loops_share_the_bound() {
        // 1,000 times 1,000 iterations, each loop by itself within the bound.
        let inner = Author::new(17).int_input("j", &[]).input_of(BOOL, "inner_go", &[]).input("part", &[2]);
        let inner = inner.output_of(BOOL, "inner_on", &[]).output("part_next", &[2]);
        let inner = inner.node("Identity", &["inner_go"], &["inner_on"], &[]);
        let inner = inner.node("Add", &["part", "x"], &["part_next"], &[]);
        let outer = Author::new(17).int_input("i", &[]).input_of(BOOL, "outer_go", &[]).input("sum", &[2]);
        let outer = outer.output_of(BOOL, "go_on", &[]).output("next", &[2]).output("seen", &[2]);
        let outer = outer.node("Identity", &["outer_go"], &["go_on"], &[]);
        let outer = outer.node("Loop", &["trips", "", "sum"], &["next"], &[("body", Body(inner.body()))]);
        let outer = outer.node("Identity", &["next"], &["seen"], &[]);
        let run = |trips| looping(outer.clone()).answer(vec![ints(&[trips]), flag(true), floats(&[1.0, 2.0])]);
        assert_eq!(run(10).unwrap()[0], floats(&[100.0, 200.0]));
        assert!(run(1000).unwrap_err().contains("more than 131072 iterations"));
    }

    #[test]
    fn results_of_a_loop_that_differ_in_shape_are_refused() {
        let body = Author::new(17).int_input("i", &[]).input_of(BOOL, "go", &[]).input("sum", &[2]);
        let body = body.output_of(BOOL, "go_on", &[]).output("next", &[2]).output("seen", &[-1]);
        let body = body.node("Identity", &["go"], &["go_on"], &[]).node("Add", &["sum", "x"], &["next"], &[]);
        let body = body.ints("front", &[1], &[0]).node("Unsqueeze", &["i", "front"], &["length"], &[]);
        let body = body.node("ConstantOfShape", &["length"], &["seen"], &[]);
        let text = looping(body).answer(vec![ints(&[3]), flag(true), floats(&[1.0, 2.0])]).unwrap_err();
        assert!(text.contains("'seen' has the shape [0] in one iteration and [1] in another"), "{text}");
    }

    #[test]
    fn branches_see_what_is_around_them_and_a_condition_of_several_is_refused() {
        let branch = |operator| Author::new(17).output("z", &[2]).node(operator, &["x"], &["z"], &[]).body();
        let author = || {
            let author = Author::new(17).input_of(BOOL, "c", &[-1]).input("x", &[2]).output("y", &[2]);
            let branches = [("then_branch", Body(branch("Neg"))), ("else_branch", Body(branch("Exp")))];
            author.node("If", &["c"], &["y"], &branches)
        };
        assert_eq!(author().answer(vec![flag(true), floats(&[1.0, 2.0])]).unwrap()[0], floats(&[-1.0, -2.0]));
        assert_eq!(author().answer(vec![flag(false), floats(&[0.0, 0.0])]).unwrap()[0], floats(&[1.0, 1.0]));
        let several = TensorData::new(vec![true, false], [2]);
        let text = author().answer(vec![several, floats(&[1.0, 2.0])]).unwrap_err();
        assert!(text.contains("expects one boolean and gets a tensor of shape [2]"), "{text}");
    }

    #[test]
    fn a_constant_may_be_read_within_bodies_and_around_them_as_often_as_they_like() {
        let branch = || Author::new(17).output("z", &[2]).node("Add", &["w", "w"], &["z"], &[]).body();
        let branches = [("then_branch", Body(branch())), ("else_branch", Body(branch()))];
        let author = Author::new(17).input_of(BOOL, "c", &[]).input("x", &[2]).output("y", &[2]).output("w", &[2]);
        let author = author.floats("w", &[2], &[1.0, 2.0]).node("Add", &["x", "w"], &["a"], &[]);
        let author = author.node("If", &["c"], &["b"], &branches).node("Sub", &["w", "w"], &["none"], &[]);
        let author = author.node("Add", &["a", "b"], &["d"], &[]).node("Add", &["d", "none"], &["y"], &[]);
        let found = author.answer(vec![flag(true), floats(&[10.0, 20.0])]).unwrap();
        assert_eq!(found, [floats(&[13.0, 26.0]), floats(&[1.0, 2.0])]);
    }

    #[test]
    fn a_scan_goes_backwards_and_along_other_axes() {
        let body = Author::new(17).input("sum", &[2]).input("column", &[2]);
        let body = body.output("next", &[2]).output("seen", &[2]);
        let body = body.node("Add", &["sum", "column"], &["next"], &[]).node("Identity", &["next"], &["seen"], &[]);
        let author = Author::new(17).input("x", &[2, 3]).output("total", &[2]).output("all", &[2, 3]);
        let author = author.floats("zero", &[2], &[0.0, 0.0]).node(
            "Scan",
            &["zero", "x"],
            &["total", "all"],
            &[
                ("body", Body(body.body())),
                ("num_scan_inputs", Int(1)),
                ("scan_input_axes", Ints(&[-1])),
                ("scan_input_directions", Ints(&[1])),
                ("scan_output_axes", Ints(&[1])),
                ("scan_output_directions", Ints(&[1])),
            ],
        );
        let x = TensorData::new(vec![1f32, 2.0, 3.0, 10.0, 20.0, 30.0], [2, 3]);
        let found = author.answer(vec![x]).unwrap();
        assert_eq!(found[0], floats(&[6.0, 60.0]));
        // Sums from the right, the last one in front.
        assert_eq!(found[1], TensorData::new(vec![6f32, 5.0, 3.0, 60.0, 50.0, 30.0], [2, 3]));
    }
}
