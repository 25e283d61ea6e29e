//! What a graph takes and gives, in types that anybody can make and read.

use std::sync::Arc;

use burn_backend::TensorData;
use burn_dispatch::DispatchDevice;

use super::texts::Texts;
use super::value::{OpError, Value};

/// A value that a [`Graph`](super::Graph) takes or gives.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// Numbers.
    Tensor(TensorData),
    /// Strings.
    Texts {
        /// The dimensions.
        shape: Vec<usize>,
        /// The strings, in row-major order.
        texts: Vec<String>,
    },
    /// Values one behind the other.
    Sequence(Vec<Item>),
}

impl Item {
    pub(super) fn into_value(self, device: &DispatchDevice) -> Result<Value, OpError> {
        Ok(match self {
            Item::Tensor(data) => Value::from_data(data, device)?,
            Item::Texts { shape, texts } => {
                Value::Texts(Texts::new(shape, texts.into_iter().map(Arc::from).collect())?)
            }
            Item::Sequence(items) => {
                Value::Sequence(items.into_iter().map(|item| item.into_value(device)).collect::<Result<_, _>>()?)
            }
        })
    }

    pub(super) fn of(value: Value) -> Result<Item, OpError> {
        Ok(match value {
            Value::Texts(texts) => {
                let (shape, texts) = texts.into_parts();
                Item::Texts { shape, texts: texts.iter().map(|text| text.to_string()).collect() }
            }
            Value::Sequence(values) => Item::Sequence(values.into_iter().map(Item::of).collect::<Result<_, _>>()?),
            numbers => Item::Tensor(numbers.into_data()?),
        })
    }
}
