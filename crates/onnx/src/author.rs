//! Writes small ONNX files for tests.

use burn_backend::TensorData;
use prost::Message;

use super::Graph;
use super::proto::{
    AttributeProto, DimProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSet, ShapeProto, TensorProto,
    TensorType, TypeProto, ValueInfo,
};

/// An ONNX model under construction.
#[derive(Clone)]
pub(super) struct Author {
    opset: i64,
    graph: GraphProto,
    functions: Vec<FunctionProto>,
}

/// The value of an attribute.
#[derive(Clone)]
pub(super) enum Attribute<'a> {
    Float(f32),
    Int(i64),
    Ints(&'a [i64]),
    Text(&'a str),
    /// Inside a function: what the user gives under this name.
    Given(&'a str),
    /// A body of a loop or branch, of which only the graph counts.
    Body(GraphProto),
}

/// A dimension that is free, under the name `batch`.
pub(super) const FREE: i64 = -1;
/// One under the name `steps`.
pub(super) const LONG: i64 = -2;
/// One under the name `others`.
pub(super) const OTHER: i64 = -3;

impl Author {
    pub(super) fn new(opset: i64) -> Author {
        Author { opset, graph: GraphProto::default(), functions: Vec::new() }
    }

    pub(super) fn input(mut self, name: &str, dims: &[i64]) -> Author {
        self.graph.input.push(value_info(name, 1, dims));
        self
    }

    /// An input of 64-bit integers.
    pub(super) fn int_input(mut self, name: &str, dims: &[i64]) -> Author {
        self.graph.input.push(value_info(name, 7, dims));
        self
    }

    pub(super) fn output(mut self, name: &str, dims: &[i64]) -> Author {
        self.graph.output.push(value_info(name, 1, dims));
        self
    }

    pub(super) fn floats(self, name: &str, dims: &[i64], data: &[f32]) -> Author {
        let raw: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.weight(tensor(name, 1, dims, raw))
    }

    pub(super) fn ints(self, name: &str, dims: &[i64], data: &[i64]) -> Author {
        let raw: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.weight(tensor(name, 7, dims, raw))
    }

    /// A weight of any type, by its bytes.
    pub(super) fn weight_of(self, element: i32, name: &str, dims: &[i64], raw: &[u8]) -> Author {
        self.weight(tensor(name, element, dims, raw.to_vec()))
    }

    /// A weight that is said to be in another file.
    pub(super) fn external(self, name: &str) -> Author {
        self.weight(TensorProto { data_location: 1, raw_data: None, ..tensor(name, 1, &[1], Vec::new()) })
    }

    fn weight(mut self, weight: TensorProto) -> Author {
        self.graph.initializer.push(weight);
        self
    }

    /// A node called after its first output.
    pub(super) fn node(
        mut self,
        operator: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: &[(&str, Attribute<'_>)],
    ) -> Author {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        self.graph.node.push(NodeProto {
            input: names(inputs),
            output: names(outputs),
            name: format!("make_{}", outputs[0]),
            op_type: operator.to_owned(),
            attribute: attributes.iter().map(|(name, value)| attribute(name, value.clone())).collect(),
            ..NodeProto::default()
        });
        self
    }

    /// Makes the last node use an operator of another domain.
    pub(super) fn of(mut self, domain: &str) -> Author {
        if let Some(node) = self.graph.node.last_mut() {
            node.domain = domain.to_owned();
        }
        self
    }

    /// Defines an operator by nodes like those of `body`, whose inputs and outputs are the operator's.
    pub(super) fn function(
        mut self,
        domain: &str,
        name: &str,
        body: Author,
        defaults: &[(&str, Attribute<'_>)],
    ) -> Author {
        let names = |infos: Vec<ValueInfo>| infos.into_iter().map(|info| info.name).collect();
        self.functions.push(FunctionProto {
            name: name.to_owned(),
            domain: domain.to_owned(),
            input: names(body.graph.input),
            output: names(body.graph.output),
            node: body.graph.node,
            opset_import: vec![OperatorSet { domain: String::new(), version: body.opset }],
            attribute_proto: defaults.iter().map(|(name, value)| attribute(name, value.clone())).collect(),
            ..FunctionProto::default()
        });
        self
    }

    /// Calls all free dimensions of inputs and outputs `name`, which are called `batch` otherwise.
    pub(super) fn calling_free(mut self, name: &str) -> Author {
        for info in self.graph.input.iter_mut().chain(&mut self.graph.output) {
            let shape =
                info.kind.as_mut().and_then(|kind| kind.tensor.as_mut()).and_then(|tensor| tensor.shape.as_mut());
            for dim in shape.into_iter().flat_map(|shape| &mut shape.dim).filter(|dim| dim.dim_param.is_some()) {
                dim.dim_param = Some(name.into());
            }
        }
        self
    }

    /// An input of any type.
    pub(super) fn input_of(mut self, element: i32, name: &str, dims: &[i64]) -> Author {
        self.graph.input.push(value_info(name, element, dims));
        self
    }

    /// An output of any type.
    pub(super) fn output_of(mut self, element: i32, name: &str, dims: &[i64]) -> Author {
        self.graph.output.push(value_info(name, element, dims));
        self
    }

    /// What the graph gives for some inputs, or why it does not.
    pub(super) fn answer(self, inputs: Vec<TensorData>) -> Result<Vec<TensorData>, String> {
        let graph = Graph::load(&self.finish()).map_err(|e| e.to_string())?;
        graph.run(inputs).map_err(|e| e.to_string())
    }

    /// The graph alone, for a body.
    pub(super) fn body(self) -> GraphProto {
        self.graph
    }

    /// The file.
    pub(super) fn finish(self) -> Vec<u8> {
        let opset_import = vec![OperatorSet { domain: String::new(), version: self.opset }];
        let (graph, functions) = (Some(self.graph), self.functions);
        let model = ModelProto { ir_version: Some(8), graph, opset_import, functions, ..ModelProto::default() };
        model.encode_to_vec()
    }
}

fn attribute(name: &str, value: Attribute<'_>) -> AttributeProto {
    let mut attribute = AttributeProto { name: name.to_owned(), ..AttributeProto::default() };
    attribute.kind = match value {
        Attribute::Float(x) => {
            attribute.f = x;
            1
        }
        Attribute::Int(i) => {
            attribute.i = i;
            2
        }
        Attribute::Text(text) => {
            attribute.s = text.as_bytes().to_vec();
            3
        }
        Attribute::Given(name) => {
            attribute.ref_attr_name = name.to_owned();
            2
        }
        Attribute::Body(graph) => {
            attribute.g = Some(graph);
            5
        }
        Attribute::Ints(ints) => {
            attribute.ints = ints.to_vec();
            7
        }
    };
    attribute
}

fn value_info(name: &str, element: i32, dims: &[i64]) -> ValueInfo {
    let dim = dims.iter().map(|&d| match d {
        FREE => DimProto { dim_value: None, dim_param: Some("batch".into()) },
        LONG => DimProto { dim_value: None, dim_param: Some("steps".into()) },
        OTHER => DimProto { dim_value: None, dim_param: Some("others".into()) },
        d => DimProto { dim_value: Some(d), dim_param: None },
    });
    let tensor = TensorType { elem_type: element, shape: Some(ShapeProto { dim: dim.collect() }) };
    ValueInfo { name: name.to_owned(), kind: Some(TypeProto { tensor: Some(tensor) }) }
}

fn tensor(name: &str, element: i32, dims: &[i64], raw: Vec<u8>) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        data_type: element,
        dims: dims.to_vec(),
        raw_data: Some(raw.into()),
        ..TensorProto::default()
    }
}
