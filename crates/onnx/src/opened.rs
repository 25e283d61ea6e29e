//! A file's bytes as a graph of operators, in an order in which they can run.

use bytes::Buf;
use prost::Message;

use super::proto::{self, GraphProto, ModelProto, OperatorSet};
use super::{Cause, inline, order};

/// What is read of a file before it is known whether it can be run.
pub(super) struct Opened {
    /// The nodes of functions are in the place of those that use them.
    pub(super) graph: GraphProto,
    /// The version of the standard operators.
    pub(super) opset: i64,
    /// All sets of operators that it names.
    pub(super) sets: Vec<OperatorSet>,
    /// The program that wrote it, with its version, as far as they are said.
    pub(super) producer: String,
}

impl Opened {
    pub(super) fn of(bytes: impl Buf) -> Result<Opened, Cause> {
        let unreadable = |reason: String| Cause::Unreadable(reason);
        let model = ModelProto::decode(bytes);
        let model = model.map_err(|e| unreadable(format!("its protobuf encoding is cut short or damaged ({e})")))?;
        let mut graph = model.graph.ok_or_else(|| unreadable("there is no graph in it".into()))?;
        let opset = proto::standard_version(&model.opset_import).unwrap_or(1);
        inline::inline(&mut graph, model.functions, opset)?;
        order::order(&mut graph)?;
        let producer = format!("{} {}", model.producer_name, model.producer_version).trim().to_owned();
        Ok(Opened { graph, opset, sets: model.opset_import, producer })
    }
}
