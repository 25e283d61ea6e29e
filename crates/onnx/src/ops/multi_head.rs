//! onnxruntime's own forms of attention and rotary embedding: with their masks, and with heads side by side.

use burn_backend::ops::FloatTensorOps;
use burn_backend::{DType, TensorData, TensorMetadata};
use burn_dispatch::DispatchDevice;

use super::along::value_of;
use super::arithmetic::on_tensors;
use super::attention::Attention;
use super::rotary::Turn;
use super::select::split;
use super::{Args, Build, Kernel, Operator};
use crate::value::{Backend as B, OpError, Value, elements, integers};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("com.microsoft::MultiHeadAttention", |build| {
        let heads = MultiHead::of(build)?;
        Ok(Kernel::many(move |mut args| heads.run(&mut args)))
    })
    .except("packed sequences, and caches that share a buffer"),
    Operator::new("com.microsoft::RotaryEmbedding", rotary).except("packed batches"),
];

/// The attributes of a node.
struct MultiHead {
    /// What is added to the score of a key that the mask hides: a large negative number, not minus infinity.
    hidden: f32,
    attention: Attention,
}

impl MultiHead {
    fn of(build: &Build<'_>) -> Result<MultiHead, OpError> {
        let attributes = &build.attributes;
        let heads = usize::try_from(attributes.int("num_heads", 0)?).ok().filter(|&heads| heads > 0);
        let heads = heads.ok_or_else(|| OpError::new("its num_heads are missing"))?;
        let scale = Some(attributes.float("scale", 0.0)?).filter(|&scale| scale != 0.0);
        if build.has(8) || build.has(9) {
            return Err(OpError::new("a cache that shares a buffer"));
        }
        Ok(MultiHead {
            hidden: attributes.float("mask_filter_value", -10000.0)?,
            attention: Attention {
                causal: attributes.flag("unidirectional", false)?,
                // Whoever joins old keys and new ones himself gives one query for all of them.
                last_sees_all: true,
                heads: [Some(heads); 2],
                scale,
                softcap: 0.0,
                precision: None,
                scores: build.gives(3).then_some(3),
                window: [-1, -1],
            },
        })
    }

    fn run(&self, args: &mut Args<'_>) -> Result<Vec<Value>, OpError> {
        let device = args.device;
        let (query, key, value) = (args.take(0)?, args.optional(1), args.optional(2));
        let [q, k, v] = unpacked(query, key, value, device)?;
        let [q, k, v] = match args.optional(3) {
            Some(bias) => biased([q, k, v], bias, device)?,
            None => [q, k, v],
        };
        let (mask, bias) = (args.optional(4), args.optional(5));
        let (past_k, past_v) = (args.optional(6), args.optional(7));
        let before = past_k.as_ref().and_then(|past| past.shape().get(2).copied()).unwrap_or(0);
        let long = |value: &Value| match value.shape()[..] {
            [_, steps, _] | [_, _, steps, _] => Ok(steps),
            ref dims => Err(OpError(format!("keys of the shape {dims:?}"))),
        };
        let (rows, steps, keys) = (q.shape()[0], long(&q)?, before.saturating_add(long(&k)?));
        let kind = q.dtype();
        let mask = mask.map(|mask| self.added(mask, [rows, steps, keys], kind, device)).transpose()?;
        let mask = match (mask, bias) {
            (Some(mask), Some(bias)) => Some(Value::Float(on_tensors(B::float_add, mask.float()?, bias.float()?)?)),
            (mask, bias) => mask.or(bias),
        };
        let mut values = [Some(q), Some(k), Some(v), mask, past_k, past_v];
        self.attention.run(&mut Args::new(&mut values, device, args.budget))
    }

    /// What a mask adds to the scores: nothing for a key that is seen. A mask has a number for each key, or for each query
    /// and key; or says how many keys of each row there are, and perhaps behind that from which on.
    fn added(
        &self,
        mask: Value,
        [rows, steps, keys]: [usize; 3],
        kind: DType,
        device: &DispatchDevice,
    ) -> Result<Value, OpError> {
        let dims = mask.shape();
        let numbers = integers(mask.into_data()?)?;
        let score = |seen: bool| if seen { 0.0 } else { self.hidden };
        let (scores, queries): (Vec<f32>, usize) = match dims[..] {
            [count] if count == rows || count == 2 * rows => {
                elements(&[rows, keys])?;
                let (ends, starts) = numbers.split_at(rows);
                let row = |row: usize| {
                    let (end, start) = (ends[row], starts.get(row).copied().unwrap_or(0));
                    (0..keys as i64).map(move |key| key < end && key >= start)
                };
                ((0..rows).flat_map(row).map(score).collect(), 1)
            }
            [r, k] if [r, k] == [rows, keys] => (numbers.into_iter().map(|n| score(n > 0)).collect(), 1),
            [r, s, k] if [r, s, k] == [rows, steps, keys] => {
                (numbers.into_iter().map(|n| score(n > 0)).collect(), steps)
            }
            _ => {
                return Err(OpError(format!(
                    "a mask of shape {dims:?} does not fit {rows} rows of {steps} queries and {keys} keys"
                )));
            }
        };
        value_of(scores, vec![rows, 1, queries, keys], kind, device)
    }
}

/// Queries, keys and values, which may come packed: [rows, steps, heads, 3, numbers], or keys and values with 2 for 3.
fn unpacked(q: Value, k: Option<Value>, v: Option<Value>, device: &DispatchDevice) -> Result<[Value; 3], OpError> {
    let parts = |packed: Value, count: usize| -> Result<Vec<Value>, OpError> {
        let dims = packed.shape();
        match dims[..] {
            [rows, steps, heads, parts, size] if parts == count => {
                let parts = split(packed, 3, None, count, device)?.into_iter();
                parts.map(|part| part.reshape(vec![rows, steps, heads * size])).collect()
            }
            _ => Err(OpError(format!("the shape {dims:?} is not {count} packed together"))),
        }
    };
    let wrong = || OpError::new("keys or values are missing");
    match (k, v) {
        (None, None) => parts(q, 3)?.try_into().map_err(|_| wrong()),
        (Some(packed), None) => {
            let [k, v]: [Value; 2] = parts(packed, 2)?.try_into().map_err(|_| wrong())?;
            Ok([q, k, v])
        }
        (Some(k), Some(v)) => Ok([q, k, v]),
        (None, Some(_)) => Err(wrong()),
    }
}

/// Each with its part of the bias.
fn biased(values: [Value; 3], bias: Value, device: &DispatchDevice) -> Result<[Value; 3], OpError> {
    let widths = values.iter().map(|value| match value.shape()[..] {
        [_, _, width] => i64::try_from(width).ok(),
        _ => None,
    });
    let widths: Option<Vec<i64>> = widths.collect();
    let widths = widths.ok_or_else(|| OpError::new("a bias for keys that come with their heads apart"))?;
    let biases = split(bias, 0, Some(widths), 3, device)?;
    let sums = values
        .into_iter()
        .zip(biases)
        .map(|(value, bias)| Ok(Value::Float(on_tensors(B::float_add, value.float()?, bias.float()?)?)));
    let sums: Vec<Value> = sums.collect::<Result<_, OpError>>()?;
    sums.try_into().map_err(|_| OpError::new("keys or values are missing"))
}

/// Rotary embedding whose positions come second, and may be one number: that of each row's first step.
fn rotary(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let attributes = &build.attributes;
    let number = |name: &str| Ok::<usize, OpError>(usize::try_from(attributes.int(name, 0)?).unwrap_or(0));
    let (heads, turned) = (number("num_heads")?, number("rotary_embedding_dim")?);
    let interleaved = attributes.flag("interleaved", false)?;
    let scale = attributes.float("scale", 1.0)?;
    if attributes.flag("is_packed_batching", false)? || (scale != 1.0 && scale != 0.0) {
        return Err(OpError(format!("packed batches, or a scale of {scale}")));
    }
    Ok(Kernel::one(move |mut args| {
        let (x, positions) = (args.take(0)?, args.take(1)?);
        let tables = [args.float(2)?, args.float(3)?];
        let dims = x.shape();
        let (rows, steps, all) = match dims[..] {
            [rows, steps, all] => (rows, steps, all),
            [rows, _, steps, all] => (rows, steps, all),
            _ => return Err(OpError(format!("the shape {dims:?}"))),
        };
        let heads = match (heads, &tables[0].shape()[..]) {
            (0, &[_, half]) if turned == 0 && half > 0 => all / (2 * half),
            _ => heads,
        };
        let positions = if elements(&positions.shape())? == 1 && steps.saturating_mul(rows) != 1 {
            let first = integers(positions.into_data()?)?[0];
            let count = elements(&[rows, steps])?;
            let each = (0..count).map(|i| first.saturating_add((i % steps) as i64));
            Value::from_data(TensorData::new(each.collect::<Vec<_>>(), [rows, steps]), args.device)?
        } else {
            positions.shaped(vec![rows, steps], args.device)?
        };
        Turn { heads, turned, interleaved }.of(x, tables, Some(positions), args.device)
    }))
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use super::super::alone::alone;
    use crate::author::Attribute::Int;

    /// One head of one number: queries and keys of zero look at all keys alike.
    fn mean_of_seen(mask: TensorData) -> Result<TensorData, String> {
        let zeros = || TensorData::from([[[0f32], [0.0], [0.0]], [[0.0], [0.0], [0.0]]]);
        let values = TensorData::from([[[1f32], [2.0], [6.0]], [[1.0], [2.0], [6.0]]]);
        let none = || TensorData::from([0f32]);
        let inputs = [("q", zeros()), ("k", zeros()), ("v", values), ("", none()), ("mask", mask)];
        alone(17, "com.microsoft::MultiHeadAttention", &[("num_heads", Int(1))], inputs)
    }

    #[test]
    fn masks_hide_keys_in_each_of_their_forms() {
        let seen = |first: f32, second: f32| Ok(TensorData::from([[[first]; 3], [[second]; 3]]));
        assert_eq!(mean_of_seen(TensorData::from([[1i32, 1, 0], [1, 0, 0]])), seen(1.5, 1.0));
        assert_eq!(mean_of_seen(TensorData::from([2i32, 1])), seen(1.5, 1.0), "how many there are");
        assert_eq!(mean_of_seen(TensorData::from([3i32, 2, 1, 1])), seen(4.0, 2.0), "ends, then beginnings");
        let each = TensorData::from([[[1i32, 1, 0]; 3], [[1, 0, 0]; 3]]);
        assert_eq!(mean_of_seen(each), seen(1.5, 1.0));
        assert!(mean_of_seen(TensorData::from([[1i32, 1], [1, 0]])).unwrap_err().contains("a mask of shape [2, 2]"));
    }

    #[test]
    fn the_last_query_of_one_direction_looks_at_all_keys_also_where_there_are_fewer_queries() {
        let values = || TensorData::from([[[1f32], [2.0], [3.0], [10.0]]]);
        let answer = |queries: usize| {
            let zeros = |count: usize| TensorData::new(vec![0f32; count], [1, count, 1]);
            let attributes = [("num_heads", Int(1)), ("unidirectional", Int(1))];
            let inputs = [("q", zeros(queries)), ("k", zeros(4)), ("v", values())];
            alone(17, "com.microsoft::MultiHeadAttention", &attributes, inputs)
        };
        assert_eq!(answer(1), Ok(TensorData::from([[[4f32]]])));
        assert_eq!(answer(3), Ok(TensorData::from([[[1f32], [1.5], [4.0]]])));
    }
}
