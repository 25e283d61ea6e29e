//! What a file says of itself, before anything of it is compiled: all that can be told of a model, even of one that cannot
//! be served.

use std::collections::HashMap;
use std::path::Path;

use super::opened::Opened;
use super::outline::{Declared, Dim, Outline};
use super::proto::{self, GraphProto, TensorProto};
use super::small::Small;
use super::tensors::{datatype, dtype};
use super::{OnnxError, apart, expand, files};

/// A file's own account of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// The program that wrote it, with its version where that is said; empty where nothing is.
    pub producer: String,
    /// The version of ONNX's standard operators.
    pub opset: i64,
    /// Other sets of operators, with their versions, in the file's order.
    pub domains: Vec<(String, i64)>,
    /// The operators of its nodes, the most frequent first; those of functions that it defines in their place.
    pub operators: Vec<Used>,
    /// What a caller gives.
    pub inputs: Vec<Described>,
    /// What a caller gets.
    pub outputs: Vec<Described>,
    /// How many constant tensors it has.
    pub weights: usize,
    /// Bytes that they take, in the types in which the file has them.
    pub weight_bytes: u64,
}

/// One operator of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Used {
    /// Its name, with the domain where that is not ONNX's own.
    pub name: String,
    /// How many nodes use it.
    pub count: usize,
    /// Whether it can be run.
    pub known: bool,
    /// The first node that uses it.
    pub node: String,
}

/// An input or output as the file declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// The type of its elements; `None` where it is none that can be served, or no tensor.
    pub datatype: Option<uncork_model::tensor::DataType>,
    /// Its dimensions: a length, or the name of a free one, which may be empty. `None` where no shape is declared.
    pub dims: Option<Vec<Result<u64, String>>>,
}

impl Survey {
    /// Reads a model's own file. Weights in other files are counted, but not read.
    pub fn open(path: &Path) -> Result<Survey, OnnxError> {
        let (bytes, _) = files::open(path)?;
        Survey::of(&bytes)
    }

    /// The same of a model's bytes.
    pub fn of(bytes: &[u8]) -> Result<Survey, OnnxError> {
        let Opened { mut graph, opset, sets, producer } = Opened::of(bytes)?;
        let others = sets.into_iter().filter(|set| !proto::is_standard(&set.domain));
        let mut count = Count::default();
        count.graph(&graph);
        apart::take_apart(&mut graph);
        let outline = Outline::of(&graph);
        Ok(Survey {
            producer,
            opset,
            domains: others.map(|set| (set.domain, set.version)).collect(),
            operators: count.operators(),
            inputs: outline.inputs.into_iter().map(described).collect(),
            outputs: outline.outputs.into_iter().map(described).collect(),
            weights: count.weights,
            weight_bytes: count.bytes,
        })
    }

    /// How many nodes there are, with those of bodies and functions.
    pub fn nodes(&self) -> usize {
        self.operators.iter().map(|used| used.count).sum()
    }

    /// The operators that cannot be run.
    pub fn missing(&self) -> impl Iterator<Item = &Used> {
        self.operators.iter().filter(|used| !used.known)
    }
}

fn described(declared: Declared) -> Described {
    let dims = declared.dims.map(|dims| {
        let dims = dims.into_iter().map(|dim| match dim {
            Dim::Fixed(length) => Ok(length),
            Dim::Free(name) => Err(name),
        });
        dims.collect()
    });
    Described { name: declared.name, datatype: datatype(declared.element), dims }
}

#[derive(Default)]
struct Count {
    /// For each operator how many nodes use it, and the first of them.
    used: HashMap<String, (usize, String)>,
    weights: usize,
    bytes: u64,
}

impl Count {
    fn graph(&mut self, graph: &GraphProto) {
        graph.initializer.iter().for_each(|weight| self.weight(weight));
        for node in &graph.node {
            let (count, _) = self.used.entry(node.qualified()).or_insert_with(|| (0, node.label().to_owned()));
            *count += 1;
            for attribute in &node.attribute {
                attribute.t.iter().for_each(|tensor| self.weight(tensor));
                attribute.g.iter().for_each(|body| self.graph(body));
            }
        }
    }

    fn weight(&mut self, tensor: &TensorProto) {
        let count = tensor.dims.iter().fold(1u64, |n, &d| n.saturating_mul(u64::try_from(d).unwrap_or(0)));
        let bytes = match Small::of(tensor.data_type) {
            Some(small) => small.bytes(usize::try_from(count).unwrap_or(usize::MAX)) as u64,
            None => count.saturating_mul(dtype(i64::from(tensor.data_type)).map_or(1, |dtype| dtype.size()) as u64),
        };
        self.weights += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn operators(&mut self) -> Vec<Used> {
        let used = std::mem::take(&mut self.used).into_iter().map(|(name, (count, node))| Used {
            known: expand::is_known(&name),
            name,
            count,
            node,
        });
        let mut used: Vec<Used> = used.collect();
        used.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
        used
    }
}

#[cfg(test)]
mod tests {
    use super::super::OnnxErrorKind;
    use super::*;
    use crate::author::Attribute::Body;
    use crate::author::{Author, FREE};

    #[test]
    fn everything_is_told_of_a_file_that_cannot_be_served() {
        let branch = |operator| Author::new(17).output("z", &[]).node(operator, &["x"], &["z"], &[]).body();
        let branches = [("then_branch", Body(branch("Neg"))), ("else_branch", Body(branch("Exp")))];
        let author = Author::new(17).input_of(9, "c", &[]).input("x", &[FREE, 2]).output("y", &[FREE, 3]);
        let author = author.floats("w", &[2, 3], &[0.0; 6]).node("Neg", &["x"], &["a"], &[]);
        let author = author.node("If", &["c"], &["b"], &branches).node("Whiten", &["b"], &["d"], &[]).of("mine");
        let author = author.node("Bottle", &["d"], &["e"], &[]).of("mine").node("MatMul", &["e", "w"], &["y"], &[]);
        let survey = Survey::of(&author.finish()).unwrap();
        let operators: Vec<(&str, usize)> = survey.operators.iter().map(|u| (u.name.as_str(), u.count)).collect();
        assert_eq!(
            operators,
            [("Neg", 2), ("Exp", 1), ("If", 1), ("MatMul", 1), ("mine::Bottle", 1), ("mine::Whiten", 1)]
        );
        let missing: Vec<(&str, &str)> = survey.missing().map(|u| (u.name.as_str(), u.node.as_str())).collect();
        assert_eq!(missing, [("mine::Bottle", "make_e"), ("mine::Whiten", "make_d")]);
        assert_eq!((survey.nodes(), survey.weights, survey.weight_bytes, survey.opset), (7, 1, 24, 17));
        assert_eq!(survey.inputs[1].dims, Some(vec![Err("batch".to_owned()), Ok(2)]));
        assert!(Survey::of(b"no model").is_err_and(|e| e.kind() == OnnxErrorKind::Unreadable));
    }

    #[test]
    fn an_operator_that_only_recipes_write_is_missing_in_a_file() {
        let author = Author::new(17).input("x", &[FREE, 2]).output("y", &[FREE, 2]);
        let author = author.node("TransposeMatrix", &["x"], &["y"], &[]).of("uncork");
        assert_eq!(Survey::of(&author.finish()).unwrap().missing().count(), 1);
    }

    #[test]
    fn values_that_are_made_of_each_other_are_told_and_not_followed_for_ever() {
        let author = Author::new(17).int_input("x", &[FREE]).output("y", &[FREE, 2]).floats("w", &[1, 2], &[0.0; 2]);
        let author = author.node("Identity", &["b"], &["a"], &[]).node("Identity", &["a"], &["b"], &[]);
        assert!(Survey::of(&author.node("Gather", &["w", "a"], &["y"], &[]).finish()).is_err());
    }
}
