//! A node as the compiler gets it: the file's own, or one that computes what several of the file's did.

use crate::fast::activation::Activation;
use crate::proto::NodeProto;

/// One node. Its arguments and outputs are those of `file`; so are its attributes and, where `joined` says nothing else,
/// what it computes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) file: NodeProto,
    pub(crate) joined: Joined,
}

/// What a node computes beside, or in place of, the file's operator. Only this room makes these: no file can name them.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) enum Joined {
    /// The file's operator and nothing else.
    #[default]
    Nothing,
    /// A convolution, or a product with a constant matrix, and then what follows it.
    Followed(Followed),
    /// An activation of its first argument.
    Activation(Activation),
    /// A layer normalisation of its first argument over the last axis, with constant scale and shift behind it.
    LayerNormalization {
        /// Added to the variance.
        epsilon: f32,
    },
}

/// What follows a convolution or a product, in this order: a normalisation, the sum with a tensor, an activation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Followed {
    pub(crate) normalization: Option<Normalization>,
    /// Which argument is added.
    pub(crate) added: Option<usize>,
    pub(crate) activation: Activation,
}

/// A batch normalisation by constant statistics.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Normalization {
    /// The first of four arguments in a row: scale, shift, mean and variance.
    pub(crate) first: usize,
    /// Added to the variance.
    pub(crate) epsilon: f32,
}

impl Node {
    /// The node of the file as it is.
    pub(crate) fn plain(file: NodeProto) -> Node {
        Node { file, joined: Joined::Nothing }
    }

    /// What follows the operator, if the node is the file's or one that something follows.
    pub(super) fn followed(&self) -> Option<Followed> {
        match self.joined {
            Joined::Nothing => Some(Followed::default()),
            Joined::Followed(followed) => Some(followed),
            Joined::Activation(_) | Joined::LayerNormalization { .. } => None,
        }
    }

    /// Whether the node is the file's own, of this standard operator, with one output and a first input, and sets none but
    /// these attributes: one that is not known here could change what the operator means.
    pub(super) fn is(&self, operator: &str, attributes: &[&str]) -> bool {
        let file = &self.file;
        self.joined == Joined::Nothing
            && file.is_standard()
            && file.op_type == operator
            && file.output.len() == 1
            && file.input.first().is_some_and(|name| !name.is_empty())
            && file.attribute.iter().all(|a| attributes.contains(&a.name.as_str()))
    }
}
