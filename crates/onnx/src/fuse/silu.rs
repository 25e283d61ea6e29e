//! SiLU, which ONNX has no operator for before opset 24: x · sigmoid(x).

use super::net::Net;
use super::node::{Joined, Node};
use super::pattern::Pattern;
use crate::fast::activation::Activation;
use crate::proto::NodeProto;

/// Replaces each by one activation.
pub(super) fn join(net: &mut Net<'_>) {
    let x = || Pattern::Value("x");
    let pattern = Pattern::binary("Mul", x(), Pattern::unary("Sigmoid", x()));
    for at in net.places() {
        let Some(found) = pattern.find(net, at) else { continue };
        let Some(node) = net.node(at) else { continue };
        let file = NodeProto { input: vec![found.value("x")], ..node.file.clone() };
        net.join(&found.nodes, Node { file, joined: Joined::Activation(Activation::Silu) });
    }
}
