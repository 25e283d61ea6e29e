//! A convolution and the batch normalisation that alone reads it: scale and shift go into the weights.

use super::net::Net;
use super::node::{Followed, Joined, Node, Normalization};
use crate::proto::NodeProto;

/// Weights and statistics must be constant. The joined node has the convolution's inputs, with the bias's place kept, then
/// the normalisation's four.
pub(super) fn into_convolutions(net: &mut Net<'_>) {
    for at in net.places() {
        let Some(conv) = net.node(at).filter(|node| node.file.op_type == "Conv" && node.joined == Joined::Nothing)
        else {
            continue;
        };
        let Some(reader) = net.only_reader(at) else { continue };
        let Some(after) = net.node(reader).filter(|node| is_plain(node)) else { continue };
        let standard = conv.file.is_standard();
        let weights = conv.file.input.iter().skip(1).chain(after.file.input.iter().skip(1));
        let are_constant = weights.clone().all(|name| name.is_empty() || net.is_weight(name));
        if !standard || !are_constant || conv.file.input.len() > 3 || after.file.input[0] != conv.file.output[0] {
            continue;
        }
        let epsilon = after.file.attribute.iter().find(|a| a.name == "epsilon").map_or(1e-5, |a| a.f);
        let mut input = conv.file.input.clone();
        input.resize(3, String::new());
        input.extend(after.file.input.iter().skip(1).cloned());
        let followed = Followed { normalization: Some(Normalization { first: 3, epsilon }), ..Followed::default() };
        let file = NodeProto { input, output: after.file.output.clone(), ..conv.file.clone() };
        net.join(&[at, reader], Node { file, joined: Joined::Followed(followed) });
    }
}

/// A normalisation by constant statistics, for each channel.
fn is_plain(node: &Node) -> bool {
    let set = |name: &str, default: i64| node.file.attribute.iter().find(|a| a.name == name).map_or(default, |a| a.i);
    let known = ["epsilon", "momentum", "training_mode", "spatial"];
    let plain = set("training_mode", 0) == 0 && set("spatial", 1) == 1;
    node.is("BatchNormalization", &known) && node.file.input.len() == 5 && plain
}
