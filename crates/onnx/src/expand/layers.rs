//! Activations with what comes before them, normalisations with a sum before them, embeddings, and other names of
//! standard operators.

use super::{Recipe, Sheet, float, int, ints, text};
use crate::value::OpError;
use uncork_model::quote::Quoted;

pub(super) const RECIPES: &[Recipe] = &[
    Recipe::new("com.microsoft::BiasAdd", |sheet| {
        let sum = sheet.value("Add", &[sheet.need(0)?, sheet.need(1)?], vec![]);
        sheet.give(0, "Add", &[&sum, sheet.need(2)?], vec![]);
        Ok(())
    }),
    Recipe::new("com.microsoft::BiasGelu", |sheet| {
        let sum = sheet.value("Add", &[sheet.need(0)?, sheet.need(1)?], vec![]);
        sheet.give(0, "Gelu", &[&sum], vec![]);
        Ok(())
    }),
    Recipe::new("com.microsoft::BiasSplitGelu", |sheet| {
        let sum = sheet.value("Add", &[sheet.need(0)?, sheet.need(1)?], vec![]);
        let [left, right] = sheet.values("Split", &[&sum], vec![int("axis", -1)]);
        let right = sheet.value("Gelu", &[&right], vec![]);
        sheet.give(0, "Mul", &[&left, &right], vec![]);
        Ok(())
    }),
    Recipe::new("com.microsoft::CDist", distances),
    Recipe::new("com.microsoft::EmbedLayerNormalization", embedding),
    Recipe::new("com.microsoft::ExpandDims", |sheet| {
        let (one, x) = (sheet.ints(&[1]), sheet.need(0)?);
        let axis = sheet.value("Reshape", &[sheet.need(1)?, &one], vec![]);
        let axis = sheet.value("Cast", &[&axis], vec![int("to", 7)]);
        sheet.give(0, "Unsqueeze", &[x, &axis], vec![]);
        Ok(())
    }),
    Recipe::new("com.microsoft::FastGelu", |sheet| {
        let x = sheet.need(0)?;
        let sum = sheet.optional(1).map(|bias| sheet.value("Add", &[x, bias], vec![]));
        sheet.give(0, "Gelu", &[sum.as_deref().unwrap_or(x)], vec![text("approximate", "tanh")]);
        Ok(())
    }),
    Recipe::new("com.microsoft::GatherND", |sheet| same(sheet, "GatherND")),
    Recipe::new("com.microsoft::Gelu", |sheet| same(sheet, "Gelu")),
    Recipe::new("com.microsoft::GridSample", |sheet| same(sheet, "GridSample")),
    Recipe::new("com.microsoft::Pad", |sheet| same(sheet, "Pad")),
    Recipe::new("com.microsoft::QuickGelu", |sheet| {
        let (x, alpha) = (sheet.need(0)?, sheet.attributes.float("alpha", 1.702)?);
        let inner = if alpha == 1.0 { x.to_owned() } else { scaled(sheet, x, alpha) };
        let gate = sheet.value("Sigmoid", &[&inner], vec![]);
        sheet.give(0, "Mul", &[x, &gate], vec![]);
        Ok(())
    }),
    Recipe::new("com.microsoft::Range", |sheet| {
        let (start, limit) = (sheet.need(0)?, sheet.need(1)?);
        let one = if sheet.optional(2).is_none() { sheet.number_like(1.0, start) } else { String::new() };
        sheet.give(0, "Range", &[start, limit, sheet.optional(2).unwrap_or(&one)], vec![]);
        Ok(())
    }),
    Recipe::new("SimplifiedLayerNormalization", |sheet| simplified(sheet, None))
        .except("inv_std_var, its second output"),
    Recipe::new("com.microsoft::SkipLayerNormalization", |sheet| {
        let sum = skipped(sheet, 4)?;
        let mut outputs = vec![sheet.output(0).unwrap_or_default().to_owned()];
        outputs.extend((1..3).map(|i| sheet.output(i).unwrap_or_default().to_owned()));
        outputs.truncate(if sheet.output(1).or(sheet.output(2)).is_some() { 3 } else { 1 });
        let epsilon = sheet.attributes.float("epsilon", 1e-12)?;
        let (scale, shift) = (sheet.need(2)?, sheet.or_none(3));
        sheet.write("LayerNormalization", &[&sum, scale, shift], outputs, vec![float("epsilon", epsilon)]);
        Ok(())
    }),
    Recipe::new("com.microsoft::SkipSimplifiedLayerNormalization", |sheet| {
        let sum = skipped(sheet, 3)?;
        simplified(sheet, Some((&sum, 2)))
    })
    .except("inv_std_var, its third output"),
    Recipe::new("SwiGLU", |sheet| {
        let alpha = sheet.rest(&[]);
        let gate = sheet.value("Swish", &[sheet.need(0)?], alpha);
        sheet.give(0, "Mul", &[&gate, sheet.need(1)?], vec![]);
        Ok(())
    }),
    Recipe::new("com.microsoft::Trilu", |sheet| same(sheet, "Trilu")),
    Recipe::new("com.microsoft::Unique", |sheet| {
        let [values, _, inverse, counts] = sheet.values("Unique", &[sheet.need(0)?], vec![int("sorted", 0)]);
        for (i, found) in [values, inverse, counts].iter().enumerate() {
            sheet.give(i, "Identity", &[found], vec![]);
        }
        Ok(())
    }),
];

/// The standard operator of this name does the same.
fn same(sheet: &mut Sheet<'_>, operator: &str) -> Result<(), OpError> {
    let inputs: Vec<&str> = (0..sheet.count()).map(|i| sheet.or_none(i)).collect();
    let outputs = sheet.node.output.clone();
    let attributes = sheet.rest(&[]);
    sheet.write(operator, &inputs, outputs, attributes);
    Ok(())
}

/// A number times a constant, in the number's type.
pub(super) fn scaled(sheet: &mut Sheet<'_>, x: &str, factor: f32) -> String {
    let factor = sheet.number_like(factor, x);
    sheet.value("Mul", &[x, &factor], vec![])
}

/// The sum of input and skip, and of the bias where there is one; also the fourth output.
fn skipped(sheet: &mut Sheet<'_>, bias: usize) -> Result<String, OpError> {
    let sum = sheet.value("Add", &[sheet.need(0)?, sheet.need(1)?], vec![]);
    let sum = match sheet.optional(bias) {
        Some(bias) => sheet.value("Add", &[&sum, bias], vec![]),
        None => sum,
    };
    sheet.give(3, "Identity", &[&sum], vec![]);
    Ok(sum)
}

/// Root mean square normalisation: of the first argument, or of a sum with the place of its scale.
fn simplified(sheet: &mut Sheet<'_>, sum: Option<(&str, usize)>) -> Result<(), OpError> {
    if sheet.output(1).is_some() || (sum.is_some() && sheet.output(2).is_some()) {
        return Err(OpError::new("somebody reads its mean or deviation, which only training needs"));
    }
    let (x, scale) = match sum {
        Some((sum, scale)) => (sum, sheet.need(scale)?),
        None => (sheet.need(0)?, sheet.need(1)?),
    };
    let mut attributes = sheet.rest(&["epsilon"]);
    // The default of these operators differs from the standard one's.
    attributes.push(float("epsilon", sheet.attributes.float("epsilon", if sum.is_some() { 1e-12 } else { 1e-5 })?));
    sheet.give(0, "RMSNormalization", &[x, scale], attributes);
    Ok(())
}

/// BERT's first layer: embeddings of words, positions and segments, added and normalised.
fn embedding(sheet: &mut Sheet<'_>) -> Result<(), OpError> {
    let (ids, words, table) = (sheet.need(0)?, sheet.need(2)?, sheet.need(3)?);
    sheet.attributes.int("mask_index_type", 0)?; // for the inference of shapes alone
    let words = sheet.value("Gather", &[words, ids], vec![]);
    let positions = match sheet.optional(8) {
        Some(positions) => sheet.value("Gather", &[table, positions], vec![]),
        None => {
            let shape = sheet.value("Shape", &[ids], vec![]);
            let length = sheet.part(&shape, 1, 2);
            let (from, axis) = (sheet.ints(&[0]), sheet.ints(&[0]));
            sheet.value("Slice", &[table, &from, &length, &axis], vec![])
        }
    };
    let mut sum = sheet.value("Add", &[&words, &positions], vec![]);
    if let (Some(segments), Some(table)) = (sheet.optional(1), sheet.optional(4)) {
        let segments = sheet.value("Gather", &[table, segments], vec![]);
        sum = sheet.value("Add", &[&sum, &segments], vec![]);
    }
    let epsilon = float("epsilon", sheet.attributes.float("epsilon", 1e-12)?);
    sheet.give(0, "LayerNormalization", &[&sum, sheet.need(5)?, sheet.need(6)?], vec![epsilon]);
    if sheet.output(1).is_some() {
        // How many words of each row are no padding.
        let counted = match sheet.optional(7) {
            Some(mask) => sheet.value("Cast", &[mask], vec![int("to", 6)]),
            None => {
                let ids = sheet.value("Cast", &[ids], vec![int("to", 6)]);
                sheet.value("Sub", &[&ids, &ids], vec![])
            }
        };
        sheet.give(1, "ReduceSum", &[&counted], vec![ints("axes", &[1]), int("keepdims", 0)]);
    }
    sheet.give(2, "Identity", &[&sum], vec![]);
    Ok(())
}

/// Distances of each row of one matrix from each row of another: |a|² + |b|² - 2·a·b, and the root of it.
fn distances(sheet: &mut Sheet<'_>) -> Result<(), OpError> {
    let (a, b) = (sheet.need(0)?, sheet.need(1)?);
    let squared = match sheet.attributes.text("metric", "sqeuclidean")?.as_str() {
        "sqeuclidean" => true,
        "euclidean" => false,
        other => return Err(OpError(format!("metric={}", Quoted(other)))),
    };
    let sums = |keep: i64| vec![ints("axes", &[1]), int("keepdims", keep)];
    let (left, right) = (sheet.value("ReduceSumSquare", &[a], sums(1)), sheet.value("ReduceSumSquare", &[b], sums(0)));
    let turned = sheet.value("Transpose", &[b], vec![ints("perm", &[1, 0])]);
    let product = sheet.value("MatMul", &[a, &turned], vec![]);
    let product = scaled(sheet, &product, -2.0);
    let sum = sheet.value("Add", &[&left, &right], vec![]);
    let sum = sheet.value("Add", &[&sum, &product], vec![]);
    // Rounding makes the distance of equal rows a little less than nothing.
    if squared {
        sheet.give(0, "Relu", &[&sum], vec![]);
    } else {
        let square = sheet.value("Relu", &[&sum], vec![]);
        sheet.give(0, "Sqrt", &[&square], vec![]);
    }
    Ok(())
}
