//! ONNX's protobuf messages, as far as a graph of tensors uses them (onnx/onnx.proto of ONNX 1.17, fields by number).
//!
//! prost takes them apart: it checks lengths before it allocates, refuses nesting beyond a hundred levels, and a weight's
//! bytes stay a slice of the file. Fields that are not named here are skipped.

use bytes::Bytes;

/// A file.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ModelProto {
    #[prost(int64, optional, tag = "1")]
    pub(super) ir_version: Option<i64>,
    #[prost(string, tag = "2")]
    pub(super) producer_name: String,
    #[prost(string, tag = "3")]
    pub(super) producer_version: String,
    #[prost(message, optional, tag = "7")]
    pub(super) graph: Option<GraphProto>,
    #[prost(message, repeated, tag = "8")]
    pub(super) opset_import: Vec<OperatorSet>,
    #[prost(message, repeated, tag = "25")]
    pub(super) functions: Vec<FunctionProto>,
}

/// A version of a set of operators.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct OperatorSet {
    #[prost(string, tag = "1")]
    pub(super) domain: String,
    #[prost(int64, tag = "2")]
    pub(super) version: i64,
}

/// Nodes in an order in which they can run, with weights, inputs and outputs by name.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct GraphProto {
    #[prost(message, repeated, tag = "1")]
    pub(super) node: Vec<NodeProto>,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "5")]
    pub(super) initializer: Vec<TensorProto>,
    #[prost(message, repeated, tag = "11")]
    pub(super) input: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "12")]
    pub(super) output: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "15")]
    pub(super) sparse_initializer: Vec<SparseTensor>,
}

/// A sparse tensor: known only so that it can be refused.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SparseTensor {}

/// One application of an operator. An empty name among the inputs or outputs is one left out.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NodeProto {
    #[prost(string, repeated, tag = "1")]
    pub(super) input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(super) output: Vec<String>,
    #[prost(string, tag = "3")]
    pub(super) name: String,
    #[prost(string, tag = "4")]
    pub(super) op_type: String,
    #[prost(message, repeated, tag = "5")]
    pub(super) attribute: Vec<AttributeProto>,
    #[prost(string, tag = "7")]
    pub(super) domain: String,
    /// Which of several functions of one name is meant.
    #[prost(string, tag = "8")]
    pub(super) overload: String,
}

/// A named constant of a node. `kind` says which of the other fields counts.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AttributeProto {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(float, tag = "2")]
    pub(super) f: f32,
    #[prost(int64, tag = "3")]
    pub(super) i: i64,
    #[prost(bytes = "vec", tag = "4")]
    pub(super) s: Vec<u8>,
    #[prost(message, optional, tag = "5")]
    pub(super) t: Option<TensorProto>,
    #[prost(message, optional, tag = "6")]
    pub(super) g: Option<GraphProto>,
    #[prost(float, repeated, tag = "7")]
    pub(super) floats: Vec<f32>,
    #[prost(int64, repeated, tag = "8")]
    pub(super) ints: Vec<i64>,
    #[prost(bytes = "vec", repeated, tag = "9")]
    pub(super) strings: Vec<Vec<u8>>,
    /// `AttributeProto.AttributeType`; 0 in files of the first versions, which do not say.
    #[prost(int32, tag = "20")]
    pub(super) kind: i32,
    /// Inside a function: the name of the function's attribute whose value is meant.
    #[prost(string, tag = "21")]
    pub(super) ref_attr_name: String,
}

/// A tensor's type, shape and elements; the latter in one of several fields, or in another file.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TensorProto {
    #[prost(int64, repeated, tag = "1")]
    pub(super) dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub(super) data_type: i32,
    #[prost(float, repeated, tag = "4")]
    pub(super) float_data: Vec<f32>,
    #[prost(int32, repeated, tag = "5")]
    pub(super) int32_data: Vec<i32>,
    /// Texts; they are in no other field and in no other file.
    #[prost(bytes = "vec", repeated, tag = "6")]
    pub(super) string_data: Vec<Vec<u8>>,
    #[prost(int64, repeated, tag = "7")]
    pub(super) int64_data: Vec<i64>,
    #[prost(string, tag = "8")]
    pub(super) name: String,
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub(super) raw_data: Option<Bytes>,
    #[prost(double, repeated, tag = "10")]
    pub(super) double_data: Vec<f64>,
    #[prost(uint64, repeated, tag = "11")]
    pub(super) uint64_data: Vec<u64>,
    #[prost(message, repeated, tag = "13")]
    pub(super) external_data: Vec<KeyValue>,
    /// 1 where the elements are in another file, [`HERE`] where they were left in the model's own.
    #[prost(int32, tag = "14")]
    pub(super) data_location: i32,
}

/// `onnx.TensorProto.DataType`: float32.
pub(super) const FLOAT: i32 = 1;
/// `onnx.TensorProto.DataType`: float16.
pub(super) const FLOAT16: i32 = 10;
/// A type of no file: float16 in the file and float32 in the graph.
pub(super) const WIDENED: i32 = -10;

/// The `data_location` of elements that `skeleton` has left in the model's own file. A file that says so itself gets bytes of
/// its own.
pub(super) const HERE: i32 = -1;

/// `StringStringEntryProto`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

/// A graph's input or output: name and type.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ValueInfo {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    pub(super) kind: Option<TypeProto>,
}

/// A type; only tensors are of interest here.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TypeProto {
    #[prost(message, optional, tag = "1")]
    pub(super) tensor: Option<TensorType>,
}

/// Element type and shape of a tensor.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TensorType {
    #[prost(int32, tag = "1")]
    pub(super) elem_type: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) shape: Option<ShapeProto>,
}

/// A shape.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ShapeProto {
    #[prost(message, repeated, tag = "1")]
    pub(super) dim: Vec<DimProto>,
}

/// A dimension: a number, a name, or neither.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DimProto {
    #[prost(int64, optional, tag = "1")]
    pub(super) dim_value: Option<i64>,
    #[prost(string, optional, tag = "2")]
    pub(super) dim_param: Option<String>,
}

/// An operator that the file itself defines.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct FunctionProto {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, repeated, tag = "4")]
    pub(super) input: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    pub(super) output: Vec<String>,
    #[prost(message, repeated, tag = "7")]
    pub(super) node: Vec<NodeProto>,
    #[prost(message, repeated, tag = "9")]
    pub(super) opset_import: Vec<OperatorSet>,
    #[prost(string, tag = "10")]
    pub(super) domain: String,
    /// Attributes with their defaults.
    #[prost(message, repeated, tag = "11")]
    pub(super) attribute_proto: Vec<AttributeProto>,
    #[prost(string, tag = "13")]
    pub(super) overload: String,
}

/// Whether a domain is the one of ONNX's own operators, which has two names.
pub(super) fn is_standard(domain: &str) -> bool {
    ["", "ai.onnx"].contains(&domain)
}

/// The version of the standard operators among some sets.
pub(super) fn standard_version(sets: &[OperatorSet]) -> Option<i64> {
    sets.iter().filter(|set| is_standard(&set.domain)).map(|set| set.version).max()
}

impl NodeProto {
    /// Whether the operator is one of ONNX's own.
    pub(super) fn is_standard(&self) -> bool {
        is_standard(&self.domain)
    }

    /// The operator with its domain, the latter only where it is not the standard one.
    pub(super) fn qualified(&self) -> String {
        match self.is_standard() {
            true => self.op_type.clone(),
            false => format!("{}::{}", self.domain, self.op_type),
        }
    }

    /// The bodies of a loop or branch.
    pub(super) fn bodies(&self) -> impl Iterator<Item = &GraphProto> {
        self.attribute.iter().filter_map(|attribute| attribute.g.as_ref())
    }

    /// The same, to be changed.
    pub(super) fn bodies_mut(&mut self) -> impl Iterator<Item = &mut GraphProto> {
        self.attribute.iter_mut().filter_map(|attribute| attribute.g.as_mut())
    }

    /// The node's name, or that of its first output where it has none.
    pub(super) fn label(&self) -> &str {
        match self.output.first() {
            Some(output) if self.name.is_empty() => output,
            _ => &self.name,
        }
    }
}
