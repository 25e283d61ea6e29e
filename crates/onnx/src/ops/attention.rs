//! Attention as one operator, with its masks, caches and grouped heads.

use burn_backend::ops::{ActivationOps, BoolTensorOps, FloatTensorOps, PadMode};
use burn_backend::{DType, FloatDType, Shape, TensorMetadata};
use burn_dispatch::DispatchDevice;

use super::along::value_of;
use super::norm_layers::cast;
use super::{Args, Build, Kernel, Operator};
use crate::tensors::dtype;
use crate::value::{Backend as B, Handle, OpError, Value, bool_type_beside, broadcast, elements, lift};

pub(super) const OPERATORS: &[Operator] = &[Operator::new("Attention", |build| {
    let attention = Attention::of(build)?;
    Ok(Kernel::many(move |mut args| attention.run(&mut args)))
})];

/// The attributes of a node.
pub(super) struct Attention {
    pub(super) causal: bool,
    /// Whether the last query looks at all keys though it is causal.
    pub(super) last_sees_all: bool,
    /// Heads of the queries, and of keys and values; needed where these come with their heads side by side.
    pub(super) heads: [Option<usize>; 2],
    pub(super) scale: Option<f32>,
    pub(super) softcap: f32,
    pub(super) precision: Option<DType>,
    /// Which scores are the fourth output, if it is read.
    pub(super) scores: Option<i64>,
    /// How far a query looks back and ahead; below zero without end.
    pub(super) window: [i64; 2],
}

/// Queries, keys or values as [rows, heads, steps, numbers].
fn by_heads(value: Value, heads: Option<usize>) -> Result<Handle, OpError> {
    let dims = value.shape();
    match (&dims[..], heads) {
        (&[_, _, _, _], _) => value.float(),
        (&[rows, steps, all], Some(heads)) if heads > 0 && all.is_multiple_of(heads) => {
            let split = value.reshape(vec![rows, steps, heads, all / heads])?.float()?;
            Ok(B::float_permute(split, &[0, 2, 1, 3]))
        }
        _ => Err(OpError(format!("the shape {dims:?} does not split into {heads:?} heads"))),
    }
}

impl Attention {
    fn of(build: &Build<'_>) -> Result<Attention, OpError> {
        let attributes = &build.attributes;
        let heads = |name: &str| -> Result<Option<usize>, OpError> {
            Ok(usize::try_from(attributes.int(name, 0)?).ok().filter(|&heads| heads > 0))
        };
        let scale = attributes.has("scale").then(|| attributes.float("scale", 1.0)).transpose()?;
        let precision = match attributes.int("softmax_precision", 0)? {
            0 => None,
            element => match dtype(element).filter(DType::is_float) {
                Some(dtype) => Some(dtype),
                None => return Err(OpError(format!("softmax_precision={element}"))),
            },
        };
        let mode = attributes.int("qk_matmul_output_mode", 0)?;
        Ok(Attention {
            causal: attributes.flag("is_causal", false)?,
            last_sees_all: false,
            heads: [heads("q_num_heads")?, heads("kv_num_heads")?],
            scale,
            softcap: attributes.float("softcap", 0.0)?,
            precision,
            scores: build.gives(3).then_some(mode),
            window: [attributes.int("left_window_size", -1)?, attributes.int("right_window_size", -1)?],
        })
    }

    pub(super) fn run(&self, args: &mut Args<'_>) -> Result<Vec<Value>, OpError> {
        let (q, k, v) = (args.take(0)?, args.take(1)?, args.take(2)?);
        let flat = q.rank() == 3;
        let (q, k, v) = (by_heads(q, self.heads[0])?, by_heads(k, self.heads[1])?, by_heads(v, self.heads[1])?);
        let mask = args.optional(3);
        let (past_k, past_v) = (args.optional(4), args.optional(5));
        let before = past_k.as_ref().and_then(|past| past.shape().get(2).copied()).unwrap_or(0);
        let (k, v) = (extended(past_k, k)?, extended(past_v, v)?);
        let [rows, heads, steps, size] = q.shape().dims::<4>();
        let [k_rows, groups, keys, k_size] = k.shape().dims::<4>();
        let [v_rows, v_groups, v_keys, v_size] = v.shape().dims::<4>();
        let kind = q.dtype();
        let fits = k_rows == rows && v_rows == rows && k_size == size && v_keys == keys && v_groups == groups;
        let empty = [rows, heads, steps, size, groups, keys, v_size].contains(&0);
        if !fits || empty || !heads.is_multiple_of(groups) || [k.dtype(), v.dtype()] != [kind; 2] {
            return Err(OpError(format!(
                "queries {:?}, keys {:?} and values {:?} do not fit together",
                q.shape(),
                k.shape(),
                v.shape()
            )));
        }
        let full = [rows, heads, steps, keys];
        elements(&full)?;
        let filled = args.optional(6).map(|filled| lengths(filled, rows, keys)).transpose()?;
        let bias = self.bias(full, before, mask, filled.as_deref(), kind, args.device)?;

        // The root of the scale on both sides, so that half types do not overflow between.
        let scale = self.scale.unwrap_or_else(|| 1.0 / (size as f32).sqrt()).sqrt();
        let (wide_k, wide_v) = (repeated(k.clone(), heads)?, repeated(v.clone(), heads)?);
        let turned = B::float_swap_dims(B::float_mul_scalar(wide_k, scale.into()), 2, 3);
        let mut scores = B::float_matmul(B::float_mul_scalar(q, scale.into()), turned);
        let mut shown = (self.scores == Some(0)).then(|| scores.clone());
        if self.softcap > 0.0 {
            let bounded = B::float_tanh(B::float_div_scalar(scores, self.softcap.into()));
            scores = B::float_mul_scalar(bounded, self.softcap.into());
        }
        shown = shown.or_else(|| (self.scores == Some(1)).then(|| scores.clone()));
        if let Some(bias) = &bias {
            scores = B::float_add(scores, bias.clone());
        }
        shown = shown.or_else(|| (self.scores == Some(2)).then(|| scores.clone()));
        let mut weights = softmax(cast(scores, self.precision.unwrap_or(kind)));
        if let Some(bias) = bias {
            // A query that may look at nothing gets nothing, not what is not a number.
            let kept = bool_type_beside(&bias);
            let blind = B::float_equal_elem(B::float_max_dim(bias, 3), f32::NEG_INFINITY.into(), kept);
            let blind = B::bool_expand(blind, Shape::from(full.to_vec()));
            weights = B::float_mask_fill(weights, blind, 0.0.into());
        }
        let weights = cast(weights, kind);
        let shown = shown.unwrap_or_else(|| weights.clone());
        let mut y = B::float_matmul(weights, wide_v);
        if flat {
            y = B::float_permute(y, &[0, 2, 1, 3]);
            y = B::float_reshape(y, Shape::from(vec![rows, steps, heads * v_size]));
        }
        Ok(vec![Value::Float(y), Value::Float(k), Value::Float(v), Value::Float(shown)])
    }

    /// What is added to the scores: 0 where a query may look at a key, minus infinity where not, or as the mask says.
    fn bias(
        &self,
        full: [usize; 4],
        before: usize,
        mask: Option<Value>,
        filled: Option<&[i64]>,
        kind: DType,
        device: &DispatchDevice,
    ) -> Result<Option<Handle>, OpError> {
        let mask = mask.map(|mask| given(mask, full, kind, device)).transpose()?;
        let [left, right] = self.window;
        if !self.causal && left < 0 && right < 0 && filled.is_none() {
            return Ok(mask);
        }
        let [_, _, steps, keys] = full;
        let rows: Vec<Option<i64>> = filled.map_or(vec![None], |filled| filled.iter().map(|&n| Some(n)).collect());
        let mut numbers = Vec::with_capacity(elements(&[rows.len(), steps, keys])?);
        for &filled in &rows {
            let offset = filled.map_or(before as i64, |filled| filled - steps as i64);
            for step in 0..steps as i64 {
                let at = step + offset;
                let causal = self.causal && !(self.last_sees_all && step + 1 == steps as i64);
                numbers.extend((0..keys as i64).map(|key| {
                    let sees = (!causal || key <= at)
                        && (left < 0 || at - key <= left)
                        && (right < 0 || key - at <= right)
                        && filled.is_none_or(|filled| key < filled);
                    if sees { 0.0 } else { f32::NEG_INFINITY }
                }));
            }
        }
        let own = value_of(numbers, vec![rows.len(), 1, steps, keys], kind, device)?.float()?;
        Ok(Some(match mask {
            Some(mask) => B::float_add(own, mask),
            None => own,
        }))
    }
}

/// A mask as what is added to the scores, with four dimensions. Keys that it does not reach are hidden.
fn given(mask: Value, full: [usize; 4], kind: DType, device: &DispatchDevice) -> Result<Handle, OpError> {
    let shape = mask.shape();
    let wide = lift(&shape, 4);
    let mut dims = wide.clone();
    let keys = full[3];
    let short = keys.saturating_sub(wide[3]);
    dims[3] += short;
    if dims.len() != 4 || shape.is_empty() || broadcast(&dims, &full)? != full {
        return Err(OpError(format!("a mask of shape {shape:?} does not fit the scores' {full:?}")));
    }
    let bias = match mask.reshape(wide)? {
        Value::Bool(mask) => {
            let zeros = B::float_zeros(mask.shape(), device, FloatDType::from(kind));
            B::float_mask_fill(zeros, B::bool_not(mask), f32::NEG_INFINITY.into())
        }
        mask => mask.float()?,
    };
    if bias.dtype() != kind {
        return Err(OpError(format!("a mask of {:?} for scores of {kind:?}", bias.dtype())));
    }
    if short == 0 {
        return Ok(bias);
    }
    let pads = [(0, 0), (0, 0), (0, 0), (0, short)];
    Ok(B::float_pad(bias, &pads, PadMode::Constant(f32::NEG_INFINITY)))
}

/// How many keys of each row are filled.
fn lengths(filled: Value, rows: usize, keys: usize) -> Result<Vec<i64>, OpError> {
    let filled = filled.ints()?.ints;
    if filled.len() != rows || filled.iter().any(|&n| usize::try_from(n).is_ok_and(|n| n > keys) || n < 0) {
        return Err(OpError(format!("lengths {filled:?} do not fit {rows} rows of {keys} keys")));
    }
    Ok(filled)
}

/// The softmax over the keys. Where it is to be computed in a half type, ONNX rounds each of its steps.
fn softmax(scores: Handle) -> Handle {
    if matches!(scores.dtype(), DType::F32 | DType::F64) {
        return B::softmax(scores, 3);
    }
    let powers = B::float_exp(B::float_sub(scores.clone(), B::float_max_dim(scores, 3)));
    B::float_div(powers.clone(), B::float_sum_dim(powers, 3))
}

/// What is cached, and what is new behind it.
fn extended(past: Option<Value>, new: Handle) -> Result<Handle, OpError> {
    let Some(past) = past else { return Ok(new) };
    let past = past.float()?;
    let (old, now) = (past.shape().to_vec(), new.shape().to_vec());
    if old.len() != 4 || [old[0], old[1], old[3]] != [now[0], now[1], now[3]] || past.dtype() != new.dtype() {
        return Err(OpError(format!("a cache of shape {old:?} does not fit {now:?}")));
    }
    elements(&[now[0], now[1], old[2] + now[2], now[3]])?;
    if old[2] == 0 {
        return Ok(new);
    }
    Ok(B::float_cat(vec![past, new], 2))
}

/// Keys or values with each head as often as queries share it.
fn repeated(t: Handle, heads: usize) -> Result<Handle, OpError> {
    let [rows, groups, keys, size] = t.shape().dims::<4>();
    if groups == heads {
        return Ok(t);
    }
    elements(&[rows, heads, keys, size])?;
    let t = B::float_reshape(t, Shape::from(vec![rows, groups, 1, keys, size]));
    let t = B::float_expand(t, Shape::from(vec![rows, groups, heads / groups, keys, size]));
    Ok(B::float_reshape(t, Shape::from(vec![rows, heads, keys, size])))
}
