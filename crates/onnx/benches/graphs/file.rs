//! A generated graph, and its ONNX file.

use std::collections::BTreeMap;
use std::fmt;

use prost::Message;

/// A graph whose values are float32, with the batch axis first.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    pub(super) opset: i64,
    pub(super) inputs: Vec<String>,
    pub(super) weights: Vec<Weight>,
    pub(super) nodes: Vec<Node>,
    pub(super) outputs: Vec<String>,
    /// The dimensions of each value that rows have, without the batch axis.
    pub(super) dims: BTreeMap<String, Vec<usize>>,
}

#[derive(Clone, Debug)]
pub(super) struct Weight {
    pub(super) name: String,
    pub(super) dims: Vec<usize>,
    pub(super) data: Numbers,
}

#[derive(Clone, Debug)]
pub(super) enum Numbers {
    Floats(Vec<f32>),
    Ints(Vec<i64>),
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) operator: &'static str,
    pub(super) domain: &'static str,
    pub(super) inputs: Vec<String>,
    pub(super) outputs: Vec<String>,
    pub(super) attributes: Vec<(&'static str, Attribute)>,
}

#[derive(Clone, Debug)]
pub(super) enum Attribute {
    Float(f32),
    Int(i64),
    Ints(Vec<i64>),
    Text(&'static str),
    Tensor(Weight),
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: &[String]| {
            let name = |name: &String| match self.dims.get(name) {
                Some(dims) => format!("{name} {dims:?}"),
                None => name.clone(),
            };
            names.iter().map(name).collect::<Vec<_>>().join(", ")
        };
        writeln!(f, "opset {}, inputs {}", self.opset, list(&self.inputs))?;
        for node in &self.nodes {
            let domain = if node.domain.is_empty() { String::new() } else { format!("{}::", node.domain) };
            writeln!(f, "  {} = {domain}{}({})", list(&node.outputs), node.operator, node.inputs.join(", "))?;
            node.attributes.iter().try_for_each(|(name, value)| writeln!(f, "      {name} = {value}"))?;
        }
        for weight in self.weights.iter().filter(|w| self.nodes.iter().any(|n| n.inputs.contains(&w.name))) {
            writeln!(f, "  weight {} = {weight}", weight.name)?;
        }
        writeln!(f, "outputs {}", self.outputs.join(", "))
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attribute::Float(x) => write!(f, "{x}"),
            Attribute::Int(i) => write!(f, "{i}"),
            Attribute::Ints(ints) => write!(f, "{ints:?}"),
            Attribute::Text(text) => write!(f, "'{text}'"),
            Attribute::Tensor(weight) => write!(f, "{weight}"),
        }
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match &self.data {
            Numbers::Floats(v) => format!("{v:?}"),
            Numbers::Ints(v) => format!("{v:?}"),
        };
        let text = if text.len() > 100 { "random" } else { &text };
        write!(f, "{text} of shape {:?}", self.dims)
    }
}

impl Graph {
    /// The graph as a file.
    pub(super) fn file(&self) -> Vec<u8> {
        let value = |name: &String| {
            let batch = DimProto { value: None, param: Some("batch".into()) };
            let dims = self.dims[name].iter().map(|&d| DimProto { value: Some(d as i64), param: None });
            let shape = ShapeProto { dims: std::iter::once(batch).chain(dims).collect() };
            let tensor = TensorType { element: 1, shape: Some(shape) };
            ValueInfo { name: name.clone(), kind: Some(TypeProto { tensor: Some(tensor) }) }
        };
        let graph = GraphProto {
            nodes: self.nodes.iter().map(Node::message).collect(),
            name: "generated".into(),
            initializers: self.weights.iter().map(Weight::message).collect(),
            inputs: self.inputs.iter().map(value).collect(),
            outputs: self.outputs.iter().map(value).collect(),
        };
        let opsets = vec![OperatorSet { domain: String::new(), version: self.opset }];
        ModelProto { ir_version: 8, graph: Some(graph), opsets }.encode_to_vec()
    }
}

impl Weight {
    fn message(&self) -> TensorProto {
        let (kind, raw) = match &self.data {
            Numbers::Floats(v) => (1, v.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Numbers::Ints(v) => (7, v.iter().flat_map(|x| x.to_le_bytes()).collect()),
        };
        let dims = self.dims.iter().map(|&d| d as i64).collect();
        TensorProto { dims, kind, name: self.name.clone(), raw }
    }
}

impl Node {
    fn message(&self) -> NodeProto {
        NodeProto {
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
            name: format!("make_{}", self.outputs[0]),
            operator: self.operator.into(),
            attributes: self.attributes.iter().map(|(name, value)| value.message(name)).collect(),
            domain: self.domain.into(),
        }
    }
}

impl Attribute {
    fn message(&self, name: &str) -> AttributeProto {
        let mut message = AttributeProto { name: name.into(), ..AttributeProto::default() };
        message.kind = match self {
            Attribute::Float(x) => {
                message.float = *x;
                1
            }
            Attribute::Int(i) => {
                message.int = *i;
                2
            }
            Attribute::Text(text) => {
                message.text = text.as_bytes().to_vec();
                3
            }
            Attribute::Tensor(weight) => {
                message.tensor = Some(weight.message());
                4
            }
            Attribute::Ints(ints) => {
                message.ints.clone_from(ints);
                7
            }
        };
        message
    }
}

#[derive(Clone, PartialEq, Message)]
struct ModelProto {
    #[prost(int64, tag = "1")]
    ir_version: i64,
    #[prost(message, optional, tag = "7")]
    graph: Option<GraphProto>,
    #[prost(message, repeated, tag = "8")]
    opsets: Vec<OperatorSet>,
}

#[derive(Clone, PartialEq, Message)]
struct OperatorSet {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(int64, tag = "2")]
    version: i64,
}

#[derive(Clone, PartialEq, Message)]
struct GraphProto {
    #[prost(message, repeated, tag = "1")]
    nodes: Vec<NodeProto>,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, repeated, tag = "5")]
    initializers: Vec<TensorProto>,
    #[prost(message, repeated, tag = "11")]
    inputs: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "12")]
    outputs: Vec<ValueInfo>,
}

#[derive(Clone, PartialEq, Message)]
struct NodeProto {
    #[prost(string, repeated, tag = "1")]
    inputs: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    outputs: Vec<String>,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    operator: String,
    #[prost(message, repeated, tag = "5")]
    attributes: Vec<AttributeProto>,
    #[prost(string, tag = "7")]
    domain: String,
}

#[derive(Clone, PartialEq, Message)]
struct AttributeProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(float, tag = "2")]
    float: f32,
    #[prost(int64, tag = "3")]
    int: i64,
    #[prost(bytes = "vec", tag = "4")]
    text: Vec<u8>,
    #[prost(message, optional, tag = "5")]
    tensor: Option<TensorProto>,
    #[prost(int64, repeated, tag = "8")]
    ints: Vec<i64>,
    #[prost(int32, tag = "20")]
    kind: i32,
}

#[derive(Clone, PartialEq, Message)]
struct TensorProto {
    #[prost(int64, repeated, tag = "1")]
    dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    kind: i32,
    #[prost(string, tag = "8")]
    name: String,
    #[prost(bytes = "vec", tag = "9")]
    raw: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct ValueInfo {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    kind: Option<TypeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct TypeProto {
    #[prost(message, optional, tag = "1")]
    tensor: Option<TensorType>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorType {
    #[prost(int32, tag = "1")]
    element: i32,
    #[prost(message, optional, tag = "2")]
    shape: Option<ShapeProto>,
}

#[derive(Clone, PartialEq, Message)]
struct ShapeProto {
    #[prost(message, repeated, tag = "1")]
    dims: Vec<DimProto>,
}

#[derive(Clone, PartialEq, Message)]
struct DimProto {
    #[prost(int64, optional, tag = "1")]
    value: Option<i64>,
    #[prost(string, optional, tag = "2")]
    param: Option<String>,
}
