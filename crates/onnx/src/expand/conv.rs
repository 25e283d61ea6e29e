//! Convolutions and products with an activation behind them, and layers whose channels come last.

use super::layers::scaled;
use super::{Recipe, Sheet, float, int, ints};
use crate::value::OpError;
use uncork_model::quote::Quoted;

pub(super) const RECIPES: &[Recipe] = &[
    Recipe::new("com.microsoft::FusedConv", |sheet| {
        let x = sheet.need(0)?.to_owned();
        let y = convolution(sheet, &x)?;
        activate(sheet, y, 0)
    }),
    Recipe::new("com.microsoft::FusedGemm", |sheet| {
        let inputs = [sheet.need(0)?, sheet.need(1)?, sheet.or_none(2)];
        let attributes = sheet.rest(&ACTIVATION);
        let y = sheet.value("Gemm", &inputs, attributes);
        activate(sheet, y, 0)
    }),
    Recipe::new("com.microsoft::FusedMatMul", |sheet| {
        let y = product(sheet)?;
        sheet.give(0, "Identity", &[&y], vec![]);
        Ok(())
    }),
    Recipe::new("com.microsoft::FusedMatMulActivation", |sheet| {
        let y = product(sheet)?;
        activate(sheet, y, 0)
    }),
    Recipe::new("com.microsoft::NhwcConv", channels_last_convolution),
    Recipe::new("com.microsoft::NhwcFusedConv", channels_last_convolution),
    Recipe::new("com.microsoft::NhwcMaxPool", |sheet| {
        let (x, attributes) = (sheet.need(0)?, sheet.rest(&[]));
        let x = channels_first(sheet, x);
        let y = sheet.value("MaxPool", &[&x], attributes);
        give_channels_last(sheet, &y);
        Ok(())
    }),
    Recipe::new("com.microsoft::TransposeMatMul", |sheet| {
        let y = product(sheet)?;
        sheet.give(0, "Identity", &[&y], vec![]);
        Ok(())
    }),
];

/// The attributes that say what follows.
const ACTIVATION: [&str; 6] =
    ["activation", "activation_params", "activation_alpha", "activation_beta", "activation_gamma", "activation_axis"];

/// The convolution, and the sum behind it.
fn convolution(sheet: &mut Sheet<'_>, x: &str) -> Result<String, OpError> {
    let attributes = sheet.rest(&ACTIVATION);
    let y = sheet.value("Conv", &[x, sheet.need(1)?, sheet.or_none(2)], attributes);
    Ok(y)
}

fn channels_last_convolution(sheet: &mut Sheet<'_>) -> Result<(), OpError> {
    let x = sheet.need(0)?;
    let x = channels_first(sheet, x);
    let y = convolution(sheet, &x)?;
    let y = channels_last(sheet, &y);
    activate(sheet, y, 0)
}

/// Adds the residual where there is one, applies the activation that the attributes name, and gives output `i`.
fn activate(sheet: &mut Sheet<'_>, y: String, i: usize) -> Result<(), OpError> {
    let residual = sheet.node.op_type.ends_with("Conv").then(|| sheet.optional(3)).flatten();
    let y = match residual {
        Some(z) => sheet.value("Add", &[&y, z], vec![]),
        None => y,
    };
    let name = sheet.attributes.text("activation", "")?;
    let list = sheet.attributes.floats("activation_params")?.unwrap_or_default();
    let mut given = [None; 3];
    for (at, name) in ["activation_alpha", "activation_beta", "activation_gamma"].into_iter().enumerate() {
        let single = if sheet.attributes.has(name) { Some(sheet.attributes.float(name, 0.0)?) } else { None };
        given[at] = single.or(list.get(at).copied());
    }
    let named = |names: &[&str]| -> Vec<_> {
        names.iter().zip(given).filter_map(|(name, number)| Some(float(name, number?))).collect()
    };
    let attributes = match name.as_str() {
        "" => {
            sheet.give(i, "Identity", &[&y], vec![]);
            return Ok(());
        }
        "Clip" => {
            let bounds = [given[0], given[1]].map(|bound| bound.map(|bound| sheet.float(bound)).unwrap_or_default());
            let [least, greatest] = &bounds;
            sheet.give(i, "Clip", &[&y, least, greatest], vec![]);
            return Ok(());
        }
        "Softmax" | "LogSoftmax" => vec![int("axis", sheet.attributes.int("activation_axis", -1)?)],
        "Relu" | "Tanh" | "Sigmoid" | "Softplus" | "Softsign" | "HardSwish" | "Gelu" => vec![],
        "LeakyRelu" | "Elu" | "ThresholdedRelu" | "Celu" => named(&["alpha"]),
        "HardSigmoid" => named(&["alpha", "beta"]),
        "Selu" => named(&["alpha", "gamma"]),
        other => return Err(OpError(format!("activation={}", Quoted(other)))),
    };
    sheet.give(i, &name, &[&y], attributes);
    Ok(())
}

/// alpha · A' · B', where the attributes say which of the factors are transposed.
fn product(sheet: &mut Sheet<'_>) -> Result<String, OpError> {
    let factors = [(0, "transA", "transBatchA"), (1, "transB", "transBatchB")];
    let mut names = [String::new(), String::new()];
    for (i, turned, turned_batch) in factors {
        let x = sheet.need(i)?;
        let (turned, batch) = (sheet.attributes.flag(turned, false)?, sheet.attributes.flag(turned_batch, false)?);
        names[i] = match (turned, batch) {
            (false, false) => x.to_owned(),
            // A weight stays a matrix, whose transpose is computed once.
            (true, false) if sheet.weights.get(x).is_some_and(|weight| weight.rank == 2) => {
                sheet.value("Transpose", &[x], vec![ints("perm", &[1, 0])])
            }
            _ => sheet.value(
                "uncork::TransposeMatrix",
                &[x],
                vec![int("turned", turned.into()), int("batch", batch.into())],
            ),
        };
    }
    let [a, b] = &names;
    let y = sheet.value("MatMul", &[a, b], vec![]);
    Ok(match sheet.attributes.float("alpha", 1.0)? {
        1.0 => y,
        alpha => scaled(sheet, &y, alpha),
    })
}

/// An image or volume [N, …, C] as [N, C, …].
pub(super) fn channels_first(sheet: &mut Sheet<'_>, x: &str) -> String {
    let shape = sheet.value("Shape", &[x], vec![]);
    let (rows, size, channels) =
        (sheet.part(&shape, 0, 1), sheet.part(&shape, 1, -1), sheet.part(&shape, -1, i64::MAX));
    let any = sheet.ints(&[-1]);
    let flat = sheet.value("Concat", &[&rows, &any, &channels], vec![int("axis", 0)]);
    let full = sheet.value("Concat", &[&rows, &channels, &size], vec![int("axis", 0)]);
    turned(sheet, x, &flat, &full)
}

/// An image or volume [N, C, …] as [N, …, C].
pub(super) fn channels_last(sheet: &mut Sheet<'_>, x: &str) -> String {
    let (flat, full) = shapes_last(sheet, x);
    turned(sheet, x, &flat, &full)
}

/// The same as the node's output.
pub(super) fn give_channels_last(sheet: &mut Sheet<'_>, x: &str) {
    let y = channels_last(sheet, x);
    sheet.give(0, "Identity", &[&y], vec![]);
}

fn shapes_last(sheet: &mut Sheet<'_>, x: &str) -> (String, String) {
    let shape = sheet.value("Shape", &[x], vec![]);
    let (rows, channels, size) = (sheet.part(&shape, 0, 1), sheet.part(&shape, 1, 2), sheet.part(&shape, 2, i64::MAX));
    let any = sheet.ints(&[-1]);
    let flat = sheet.value("Concat", &[&rows, &channels, &any], vec![int("axis", 0)]);
    let full = sheet.value("Concat", &[&rows, &size, &channels], vec![int("axis", 0)]);
    (flat, full)
}

/// The last two of three axes change places; before and after it the tensor has the shapes given.
fn turned(sheet: &mut Sheet<'_>, x: &str, flat: &str, full: &str) -> String {
    let x = sheet.value("Reshape", &[x, flat], vec![]);
    let x = sheet.value("Transpose", &[&x], vec![ints("perm", &[0, 2, 1])]);
    sheet.value("Reshape", &[&x, full], vec![])
}
