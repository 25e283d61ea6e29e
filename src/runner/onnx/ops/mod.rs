//! The operators: each parsed node becomes a kernel, a closure over constants prepared once.
//!
//! A family of operators is one file with a list of names and a `compile` that takes the nodes it knows. To add an
//! operator, add its ONNX name to the list and an arm to the `match` of its family.

mod activation;
mod arithmetic;
mod conv;
mod linear;
pub(super) mod norm;
mod pool;
mod reduce;
mod select;
mod shape;
mod window;

use burn_dispatch::DispatchDevice;
use onnx_ir::Node;

use super::value::{Handle, HostInts, OpError, Value};

/// A node by its own names, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) operator: String,
    pub(super) node: String,
}

/// A closure that computes a node's outputs from its arguments.
type Run<T> = Box<dyn Fn(Args<'_>) -> Result<T, OpError> + Send + Sync>;

/// A node made ready to run.
pub(super) enum Kernel {
    /// A node with one output that matters.
    One(Run<Value>),
    /// A node with several outputs.
    Many(Run<Vec<Value>>),
}

impl Kernel {
    fn one(run: impl Fn(Args<'_>) -> Result<Value, OpError> + Send + Sync + 'static) -> Kernel {
        Kernel::One(Box::new(run))
    }

    fn many(run: impl Fn(Args<'_>) -> Result<Vec<Value>, OpError> + Send + Sync + 'static) -> Kernel {
        Kernel::Many(Box::new(run))
    }
}

/// Why a node cannot be compiled.
#[derive(Debug)]
pub(super) enum Refusal {
    /// No family knows the operator.
    Operator,
    /// The operator is known, but not like this.
    Form(String),
}

impl From<OpError> for Refusal {
    fn from(error: OpError) -> Refusal {
        Refusal::Form(error.0)
    }
}

impl Refusal {
    pub(super) fn form(reason: impl Into<String>) -> Refusal {
        Refusal::Form(reason.into())
    }
}

/// What a family's `compile` gives: `None` where the node is not of that family.
type Compiled = Result<Option<Kernel>, Refusal>;

struct Family {
    operators: &'static [&'static str],
    compile: fn(&Node, &mut Build<'_>) -> Compiled,
}

const FAMILIES: &[Family] = &[
    Family { operators: activation::OPERATORS, compile: activation::compile },
    Family { operators: arithmetic::OPERATORS, compile: arithmetic::compile },
    Family { operators: conv::OPERATORS, compile: conv::compile },
    Family { operators: linear::OPERATORS, compile: linear::compile },
    Family { operators: norm::OPERATORS, compile: norm::compile },
    Family { operators: pool::OPERATORS, compile: pool::compile },
    Family { operators: reduce::OPERATORS, compile: reduce::compile },
    Family { operators: select::OPERATORS, compile: select::compile },
    Family { operators: shape::OPERATORS, compile: shape::compile },
];

/// Operators that the parser or the plan resolves, so that no kernel is needed.
const RESOLVED: &[&str] = &["Constant", "Identity"];

/// Whether an operator of the standard domain is implemented.
pub(super) fn supports(operator: &str) -> bool {
    RESOLVED.contains(&operator) || FAMILIES.iter().any(|family| family.operators.contains(&operator))
}

/// Makes a node ready to run.
pub(super) fn compile(node: &Node, build: &mut Build<'_>) -> Result<Kernel, Refusal> {
    for family in FAMILIES {
        if let Some(kernel) = (family.compile)(node, build)? {
            return Ok(kernel);
        }
    }
    Err(Refusal::Operator)
}

/// What an argument of a node is when the node is compiled.
#[derive(Clone)]
pub(super) enum Source {
    Absent,
    Constant(Value),
    /// Computed by an earlier step, or a graph input.
    Slot(usize),
}

/// A node's arguments while it is compiled. What a kernel takes out and prepares is not passed to it again.
pub(super) struct Build<'a> {
    sources: Vec<Source>,
    device: &'a DispatchDevice,
    opset: u64,
    fold: Option<&'a norm::Fold>,
}

impl<'a> Build<'a> {
    pub(super) fn new(
        sources: Vec<Source>,
        device: &'a DispatchDevice,
        opset: u64,
        fold: Option<&'a norm::Fold>,
    ) -> Build<'a> {
        Build { sources, device, opset, fold }
    }

    pub(super) fn into_sources(self) -> Vec<Source> {
        self.sources
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

    /// Takes argument `i` out as integers known now. `None` where it is computed only when the model runs.
    fn constant_ints(&mut self, i: usize) -> Result<Option<Vec<i64>>, OpError> {
        self.constant(i).map(|v| v.ints().map(|h| h.ints)).transpose()
    }
}

/// A node's arguments while it runs, in the node's order.
pub(super) struct Args<'a> {
    values: &'a mut [Option<Value>],
    device: &'a DispatchDevice,
}

impl<'a> Args<'a> {
    pub(super) fn new(values: &'a mut [Option<Value>], device: &'a DispatchDevice) -> Args<'a> {
        Args { values, device }
    }

    /// Argument `i`, moved out so that its buffer can be reused.
    fn take(&mut self, i: usize) -> Result<Value, OpError> {
        self.optional(i).ok_or_else(|| OpError(format!("argument {i} is missing")))
    }

    /// Argument `i`, if there is one.
    fn optional(&mut self, i: usize) -> Option<Value> {
        self.values.get_mut(i).and_then(Option::take)
    }

    fn float(&mut self, i: usize) -> Result<Handle, OpError> {
        self.take(i)?.float()
    }

    fn ints(&mut self, i: usize) -> Result<HostInts, OpError> {
        self.take(i)?.ints()
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
        let mut names: Vec<&str> = FAMILIES.iter().flat_map(|f| f.operators).chain(RESOLVED).copied().collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
