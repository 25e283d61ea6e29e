//! The operators: each node becomes a kernel, a closure over constants prepared once.
//!
//! A family of operators is one file with a table of names, each with the function that compiles a node of it. To add an
//! operator, add a line to the table of its family.

mod activation;
mod after;
#[cfg(test)]
mod alone;
mod along;
mod arithmetic;
mod arrange;
mod attention;
mod boxes;
mod cast;
mod compare;
mod control;
mod conv;
mod conv_general;
mod conv_quantized;
mod conv_transpose;
mod cumulative;
mod einsum;
mod foreign;
mod gather;
mod generate;
mod host;
mod image;
mod linear;
mod loss;
mod math;
mod microsoft;
mod ml;
mod multi_head;
mod norm;
mod norm_layers;
mod pad;
mod pool;
mod pool_general;
mod quantize;
mod recurrent;
mod recurrent_fast;
mod reduce;
mod resize;
mod rotary;
mod scatter;
mod select;
mod sequence;
mod shape;
mod signal;
mod sort;
mod text;
mod window;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::LazyLock;

use burn_dispatch::DispatchDevice;

pub(super) use self::control::{Control, Loop, Scan, row};
pub(super) use self::foreign::Foreign;
use super::attributes::Attributes;
use super::expand;
use super::fast::product::Panels;
use super::files::Files;
use super::fuse::{Followed, Joined, Node};
use super::limits::Budget;
use super::plan::Plan;
use super::value::{Handle, HostInts, OpError, Value};
use uncork_model::quote::{Quoted, QuotedPlace};

/// An operator that can be run.
pub(super) struct Operator {
    /// Its name in ONNX, with the domain where that is not the standard one.
    pub(super) name: &'static str,
    /// What of it is not supported, for the table in the documents; empty where nothing is missing.
    pub(super) limits: &'static str,
    /// What it does with texts and sequences.
    foreign: Foreign,
    /// Makes a node ready to run. The error says what of it is not supported.
    compile: fn(&mut Build<'_>) -> Result<Kernel, OpError>,
}

impl Operator {
    /// An operator that is supported in every form.
    const fn new(name: &'static str, compile: fn(&mut Build<'_>) -> Result<Kernel, OpError>) -> Operator {
        Operator { name, limits: "", foreign: Foreign::Refused, compile }
    }

    /// An operator that moves whole elements, texts as well as numbers.
    const fn moving(name: &'static str, compile: fn(&mut Build<'_>) -> Result<Kernel, OpError>) -> Operator {
        Operator { foreign: Foreign::Moved, ..Operator::new(name, compile) }
    }

    /// An operator that asks which elements are equal, of texts as well as of numbers.
    const fn comparing(name: &'static str, compile: fn(&mut Build<'_>) -> Result<Kernel, OpError>) -> Operator {
        Operator { foreign: Foreign::Compared, ..Operator::new(name, compile) }
    }

    /// An operator that asks which elements come first, of texts as well as of numbers, and moves them.
    const fn ordering(name: &'static str, compile: fn(&mut Build<'_>) -> Result<Kernel, OpError>) -> Operator {
        Operator { foreign: Foreign::Ordered, ..Operator::new(name, compile) }
    }

    /// An operator that knows itself what to do with texts and sequences.
    const fn of_any(name: &'static str, compile: fn(&mut Build<'_>) -> Result<Kernel, OpError>) -> Operator {
        Operator { foreign: Foreign::Taken, ..Operator::new(name, compile) }
    }

    /// What of it is not supported.
    const fn except(self, limits: &'static str) -> Operator {
        Operator { limits, ..self }
    }
}

const FAMILIES: &[&[Operator]] = &[
    activation::OPERATORS,
    arithmetic::OPERATORS,
    attention::OPERATORS,
    boxes::OPERATORS,
    cast::OPERATORS,
    compare::OPERATORS,
    control::OPERATORS,
    conv::OPERATORS,
    conv_general::OPERATORS,
    conv_quantized::OPERATORS,
    conv_transpose::OPERATORS,
    cumulative::OPERATORS,
    einsum::OPERATORS,
    gather::OPERATORS,
    generate::OPERATORS,
    image::OPERATORS,
    linear::OPERATORS,
    loss::OPERATORS,
    math::OPERATORS,
    microsoft::OPERATORS,
    multi_head::OPERATORS,
    ml::columns::OPERATORS,
    ml::encode::OPERATORS,
    ml::linear::OPERATORS,
    ml::svm::OPERATORS,
    ml::trees::OPERATORS,
    norm::OPERATORS,
    norm_layers::OPERATORS,
    pad::OPERATORS,
    pool::OPERATORS,
    pool_general::OPERATORS,
    quantize::OPERATORS,
    recurrent::OPERATORS,
    reduce::OPERATORS,
    resize::OPERATORS,
    rotary::OPERATORS,
    scatter::OPERATORS,
    select::OPERATORS,
    sequence::OPERATORS,
    shape::OPERATORS,
    signal::OPERATORS,
    sort::OPERATORS,
    text::ngrams::OPERATORS,
    text::strings::OPERATORS,
    text::tokens::OPERATORS,
];

/// Names of the operators that files may use, and what of each is not supported.
pub(super) fn list() -> Vec<(&'static str, &'static str)> {
    let all = FAMILIES.iter().copied().flatten().map(|operator| (operator.name, operator.limits));
    let mut list: Vec<_> = all.chain(expand::list()).filter(|(name, _)| !name.starts_with(expand::OWN)).collect();
    list.sort_unstable();
    list
}

/// The operator of this name, if it is implemented.
pub(super) fn find(name: &str) -> Option<&'static Operator> {
    static ALL: LazyLock<HashMap<&str, &Operator>> =
        LazyLock::new(|| FAMILIES.iter().copied().flatten().map(|operator| (operator.name, operator)).collect());
    ALL.get(name).copied()
}

/// Compiles a node: by its operator, or by what was joined to it.
pub(super) fn compile(build: &mut Build<'_>, operator: &Operator) -> Result<Kernel, OpError> {
    let kernel = match build.node.joined {
        Joined::Nothing | Joined::Followed(_) => (operator.compile)(build)?,
        Joined::Activation(activation) => activation::known(activation)?,
        Joined::LayerNormalization { epsilon } => norm::joined(build, epsilon)?,
    };
    // Whoever compiles a node that something follows must ask for it: forgotten, it would be left out of the answer.
    match build.node.joined {
        Joined::Followed(_) if !build.asked => Err(OpError::new("what was joined to it got lost")),
        _ => Ok(foreign::guarded(kernel, operator.foreign)),
    }
}

/// A node by its own names, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) operator: String,
    pub(super) node: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operator {} (node {})", Quoted(&self.operator), QuotedPlace(&self.node))
    }
}

/// A closure that computes a node's outputs from its arguments.
type Run<T> = Box<dyn Fn(Args<'_>) -> Result<T, OpError> + Send + Sync>;

/// A node made ready to run.
pub(super) enum Kernel {
    /// A node with one output that matters.
    One(Run<Value>),
    /// A node with several outputs.
    Many(Run<Vec<Value>>),
    /// A node with bodies.
    Control(Box<Control>),
}

impl Kernel {
    fn one(run: impl Fn(Args<'_>) -> Result<Value, OpError> + Send + Sync + 'static) -> Kernel {
        Kernel::One(Box::new(run))
    }

    fn many(run: impl Fn(Args<'_>) -> Result<Vec<Value>, OpError> + Send + Sync + 'static) -> Kernel {
        Kernel::Many(Box::new(run))
    }

    /// The node's outputs.
    pub(super) fn run(&self, args: Args<'_>) -> Result<Vec<Value>, OpError> {
        match self {
            Kernel::One(run) => Ok(vec![run(args)?]),
            Kernel::Many(run) => run(args),
            Kernel::Control(control) => control.run(args),
        }
    }
}

/// What an argument of a node is when the node is compiled.
#[derive(Clone)]
pub(super) enum Source {
    Absent,
    Constant(Value),
    /// Computed by an earlier step, or a graph input.
    Slot(usize),
}

/// A body of a loop or branch.
pub(super) struct Subgraph {
    /// Takes its own inputs and, behind them, what it reads of the graph around it.
    pub(super) plan: Plan,
    /// Arguments of the node that hold what it reads of the graph around it.
    pub(super) captures: Range<usize>,
}

/// Weights of one graph that are laid out for products, by the name of the constant and whether it is transposed: the steps
/// of a recurrent layer that is written out node by node share one layout, which then stays in the cache.
#[derive(Default)]
pub(super) struct LaidOut(RefCell<HashMap<(String, bool), Panels>>);

/// What all nodes of a graph are compiled with.
pub(super) struct Setting<'a> {
    pub(super) files: &'a Files,
    pub(super) laid_out: &'a LaidOut,
    pub(super) device: &'a DispatchDevice,
    /// Version of the standard operators.
    pub(super) opset: i64,
}

/// A node while it is compiled. What a kernel takes out and prepares is not passed to it again.
pub(super) struct Build<'a> {
    node: &'a Node,
    /// Attributes by name; all must be read.
    pub(super) attributes: Attributes<'a>,
    sources: Vec<Source>,
    graphs: HashMap<&'a str, Subgraph>,
    files: &'a Files,
    laid_out: &'a LaidOut,
    device: &'a DispatchDevice,
    /// Version of the standard operators.
    opset: i64,
    /// Whether [`followed`](Build::followed) was called.
    asked: bool,
}

impl<'a> Build<'a> {
    pub(super) fn new(
        node: &'a Node,
        attributes: Attributes<'a>,
        sources: Vec<Source>,
        graphs: HashMap<&'a str, Subgraph>,
        of: Setting<'a>,
    ) -> Build<'a> {
        let Setting { files, laid_out, device, opset } = of;
        Build { node, attributes, sources, graphs, files, laid_out, device, opset, asked: false }
    }

    pub(super) fn into_sources(self) -> Vec<Source> {
        self.sources
    }

    /// Whether the node is the file's own, with nothing joined to it.
    fn is_plain(&self) -> bool {
        self.node.joined == Joined::Nothing
    }

    /// What follows the node's own operator; nothing, if it is as in the file.
    fn followed(&mut self) -> Followed {
        self.asked = true;
        match self.node.joined {
            Joined::Followed(followed) => followed,
            Joined::Nothing | Joined::Activation(_) | Joined::LayerNormalization { .. } => Followed::default(),
        }
    }

    /// Takes argument `i` out if it is a constant; the kernel then finds nothing in its place.
    fn constant(&mut self, i: usize) -> Option<Value> {
        match self.sources.get_mut(i) {
            Some(source @ Source::Constant(_)) => match std::mem::replace(source, Source::Absent) {
                Source::Constant(value) => Some(value),
                Source::Absent | Source::Slot(_) => None,
            },
            _ => None,
        }
    }

    /// Argument `i`, if it is a constant; the kernel still gets it.
    fn peek(&self, i: usize) -> Option<&Value> {
        match self.sources.get(i) {
            Some(Source::Constant(value)) => Some(value),
            _ => None,
        }
    }

    /// Whether the node has an argument `i`.
    fn has(&self, i: usize) -> bool {
        self.sources.get(i).is_some_and(|s| !matches!(s, Source::Absent))
    }

    /// Whether somebody may read output `i`.
    fn gives(&self, i: usize) -> bool {
        self.node.file.output.get(i).is_some_and(|name| !name.is_empty())
    }

    /// The body under this attribute's name.
    fn graph(&mut self, name: &str) -> Result<Subgraph, OpError> {
        self.graphs.remove(name).ok_or_else(|| OpError(format!("attribute '{name}' is missing")))
    }

    /// A list of integers that is an attribute in old opsets and an argument in newer ones.
    fn ints(&mut self, name: &str, i: usize) -> Result<Ints, OpError> {
        if let Some(known) = self.attributes.ints(name)? {
            return Ok(Ints::Known(known));
        }
        if !self.has(i) {
            return Ok(Ints::Absent);
        }
        Ok(match self.constant(i) {
            Some(value) => Ints::Known(value.ints()?.ints),
            None => Ints::Argument(i),
        })
    }
}

/// Integers that are known when a node is compiled, or come with its arguments.
enum Ints {
    Absent,
    Known(Vec<i64>),
    Argument(usize),
}

impl Ints {
    /// The integers of this run.
    fn get(&self, args: &mut Args<'_>) -> Result<Option<Vec<i64>>, OpError> {
        match self {
            Ints::Absent => Ok(None),
            Ints::Known(ints) => Ok(Some(ints.clone())),
            Ints::Argument(i) => Ok(Some(args.ints(*i)?.ints)),
        }
    }

    /// The integers of this run, which must be there.
    fn need(&self, what: &str, args: &mut Args<'_>) -> Result<Vec<i64>, OpError> {
        self.get(args)?.ok_or_else(|| OpError(format!("its {what} are missing")))
    }
}

/// A node's arguments while it runs, in the node's order.
pub(super) struct Args<'a> {
    values: &'a mut [Option<Value>],
    device: &'a DispatchDevice,
    /// Iterations that loops may still take.
    budget: &'a Budget,
}

impl<'a> Args<'a> {
    pub(super) fn new(values: &'a mut [Option<Value>], device: &'a DispatchDevice, budget: &'a Budget) -> Args<'a> {
        Args { values, device, budget }
    }

    /// Argument `i`, moved out so that its buffer can be reused.
    fn take(&mut self, i: usize) -> Result<Value, OpError> {
        self.optional(i).ok_or_else(|| OpError(format!("argument {i} is missing")))
    }

    /// Argument `i`, if there is one.
    fn optional(&mut self, i: usize) -> Option<Value> {
        self.values.get_mut(i).and_then(Option::take)
    }

    /// Whether argument `i` is there and has not been taken.
    fn has(&self, i: usize) -> bool {
        self.values.get(i).is_some_and(Option::is_some)
    }

    /// Gives an argument back that was taken in vain.
    fn put(&mut self, i: usize, value: Value) {
        if let Some(place) = self.values.get_mut(i) {
            *place = Some(value);
        }
    }

    fn float(&mut self, i: usize) -> Result<Handle, OpError> {
        self.take(i)?.float()
    }

    fn ints(&mut self, i: usize) -> Result<HostInts, OpError> {
        self.take(i)?.ints()
    }

    /// The arguments of a range, all of which must be there.
    fn range(&mut self, range: Range<usize>) -> Result<Vec<Value>, OpError> {
        range.map(|i| self.take(i)).collect()
    }

    /// All arguments that there are, in order.
    fn all(&mut self) -> Vec<Value> {
        self.values.iter_mut().filter_map(Option::take).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_has_one_family() {
        let own = FAMILIES.iter().copied().flatten().map(|operator| operator.name);
        let mut names: Vec<&str> = own.chain(expand::list().map(|(name, _)| name)).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
