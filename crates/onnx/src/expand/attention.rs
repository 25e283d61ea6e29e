//! Attention with the product that makes queries, keys and values out of one input.

use super::{Recipe, Sheet, int, ints};
use crate::value::OpError;

const LIMITS: &str = "rotary embedding inside, and caches that share a buffer";

pub(super) const RECIPES: &[Recipe] = &[
    Recipe::new("com.microsoft::Attention", |sheet| {
        let x = sheet.value("MatMul", &[sheet.need(0)?, sheet.need(1)?], vec![]);
        let x = match sheet.optional(2) {
            Some(bias) => sheet.value("Add", &[&x, bias], vec![]),
            None => x,
        };
        if sheet.optional(6).is_some() {
            return Err(OpError::new("a cache that shares a buffer"));
        }
        attend(sheet, &x, Places { mask: 3, past: 4, bias: Some(5) })
    })
    .except(LIMITS),
    Recipe::new("com.microsoft::QAttention", |sheet| {
        let inputs = [0, 1, 3, 4, 6, 7, 2].map(|i| sheet.or_none(i));
        let x = sheet.value("com.microsoft::MatMulIntegerToFloat", &inputs, vec![]);
        attend(sheet, &x, Places { mask: 5, past: 8, bias: None })
    })
    .except(LIMITS),
];

/// Which arguments are which.
struct Places {
    mask: usize,
    past: usize,
    bias: Option<usize>,
}

/// Attention of `x`, which holds queries, keys and values side by side.
fn attend(sheet: &mut Sheet<'_>, x: &str, places: Places) -> Result<(), OpError> {
    let attributes = &sheet.attributes;
    if attributes.flag("do_rotary", false)? || attributes.flag("past_present_share_buffer", false)? {
        return Err(OpError::new("rotary embedding inside, or a cache that shares a buffer"));
    }
    attributes.int("rotary_embedding_dim", 0)?;
    let mut parts = vec![int("axis", -1)];
    parts.extend(attributes.ints("qkv_hidden_sizes")?.map(|sizes| ints("split", &sizes)));
    let rest = sheet.rest(&["do_rotary", "past_present_share_buffer", "rotary_embedding_dim", "qkv_hidden_sizes"]);
    let [q, k, v] = sheet.values("Split", &[x], parts);
    let mut past = [String::new(), String::new()];
    if let Some(cache) = sheet.optional(places.past) {
        // Keys and values one behind the other.
        let halves: [String; 2] = sheet.values("Split", &[cache], vec![int("axis", 0)]);
        past = halves.map(|half| sheet.value("Squeeze", &[&half], vec![ints("axes", &[0])]));
    }
    let (mask, bias) = (sheet.or_none(places.mask), places.bias.map_or("", |i| sheet.or_none(i)));
    let name = sheet.name("present");
    let present = [format!("{name}.k"), format!("{name}.v")];
    let mut outputs = vec![sheet.output(0).unwrap_or_default().to_owned()];
    if sheet.output(1).is_some() {
        outputs.extend(present.clone());
    }
    let inputs = [q.as_str(), &k, &v, "", mask, bias, &past[0], &past[1]];
    sheet.write("com.microsoft::MultiHeadAttention", &inputs, outputs, rest);
    if sheet.output(1).is_some() {
        let present = present.map(|half| sheet.value("Unsqueeze", &[&half], vec![ints("axes", &[0])]));
        sheet.give(1, "Concat", &[&present[0], &present[1]], vec![int("axis", 0)]);
    }
    Ok(())
}
