//! Layer normalisation written out, as exporters do before opset 17:
//! (x − mean) / √(mean of (x − mean)² + ε) · scale + shift, over the last axis.

use super::net::Net;
use super::node::{Joined, Node};
use super::pattern::Pattern;
use crate::proto::{AttributeProto, NodeProto};

/// Replaces each by one node.
pub(super) fn join(net: &mut Net<'_>) {
    let patterns = patterns();
    for at in net.places() {
        for pattern in &patterns {
            let Some(found) = pattern.find(net, at) else { continue };
            let (Some(node), Some(epsilon)) = (net.node(at), found.number("epsilon")) else { continue };
            let (scale, shift) = (found.value("scale"), found.value("shift"));
            let columns = [&scale, &shift].map(|name| net.float_dims(name));
            if !matches!(columns, [Some([a]), Some([b])] if a == b) {
                continue;
            }
            let input = vec![found.value("x"), scale, shift];
            let file = NodeProto { input, attribute: Vec::<AttributeProto>::new(), ..node.file.clone() };
            net.join(&found.nodes, Node { file, joined: Joined::LayerNormalization { epsilon } });
            break;
        }
    }
}

/// The square as a power and as a product.
fn patterns() -> [Pattern; 2] {
    let x = || Pattern::Value("x");
    let centred = || Pattern::binary("Sub", x(), Pattern::Mean(Box::new(x())));
    let power = Pattern::binary("Pow", centred(), Pattern::Constant(2.0));
    let product = Pattern::binary("Mul", centred(), centred());
    [power, product].map(|square| {
        let variance = Pattern::Mean(Box::new(square));
        let root = Pattern::unary("Sqrt", Pattern::binary("Add", variance, Pattern::Number("epsilon")));
        let scaled = Pattern::binary("Mul", Pattern::binary("Div", centred(), root), Pattern::Value("scale"));
        Pattern::binary("Add", scaled, Pattern::Value("shift"))
    })
}
