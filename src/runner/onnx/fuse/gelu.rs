//! GELU written out with the error function, as exporters do before opset 20: x · (1 + erf(x / √2)) / 2.

use std::f32::consts::{FRAC_1_SQRT_2, SQRT_2};

use super::net::Net;
use super::node::{Joined, Node};
use super::pattern::Pattern;
use crate::runner::onnx::fast::activation::Activation;
use crate::runner::onnx::proto::NodeProto;

/// Replaces each by one activation.
pub(super) fn join(net: &mut Net<'_>) {
    let patterns = patterns();
    for at in net.places() {
        for pattern in &patterns {
            let Some(found) = pattern.find(net, at) else { continue };
            let Some(node) = net.node(at) else { continue };
            let file = NodeProto { input: vec![found.value("x")], ..node.file.clone() };
            net.join(&found.nodes, Node { file, joined: Joined::Activation(Activation::Gelu) });
            break;
        }
    }
}

/// The scale as a quotient or a product; the half last, or of x, or of the sum.
fn patterns() -> Vec<Pattern> {
    let x = || Pattern::Value("x");
    let (mul, half) = (|a, b| Pattern::binary("Mul", a, b), || Pattern::Constant(0.5));
    let divided = || Pattern::binary("Div", x(), Pattern::Constant(SQRT_2));
    let multiplied = || mul(x(), Pattern::Constant(FRAC_1_SQRT_2));
    let scaled = [divided(), multiplied()];
    let sums = scaled.map(|scaled| Pattern::binary("Add", Pattern::unary("Erf", scaled), Pattern::Constant(1.0)));
    let orders = |sum: Pattern| {
        [mul(mul(x(), sum.clone()), half()), mul(mul(x(), half()), sum.clone()), mul(x(), mul(sum, half()))]
    };
    sums.into_iter().flat_map(orders).collect()
}
