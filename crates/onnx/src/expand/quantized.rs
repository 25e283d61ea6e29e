//! Layers on small integers. Each becomes the layer on the numbers that the integers stand for, between nodes that change
//! one into the other; only where sums of products of integers are asked for, they are computed so.

use super::conv::{channels_first, channels_last, give_channels_last};
use super::layers::scaled;
use super::{Recipe, Sheet, int, ints};
use crate::small::Small;
use crate::value::OpError;

pub(super) const RECIPES: &[Recipe] = &[
    Recipe::new("com.microsoft::DequantizeLinear", |sheet| same(sheet, "DequantizeLinear")),
    Recipe::new("com.microsoft::DynamicQuantizeLSTM", lstm),
    Recipe::new("com.microsoft::DynamicQuantizeMatMul", |sheet| {
        let (b, b_scale, b_zero, bias) = (sheet.need(1)?, sheet.need(2)?, sheet.or_none(3), sheet.or_none(4));
        let [a, scale, zero] = sheet.values("DynamicQuantizeLinear", &[sheet.need(0)?], vec![]);
        let inputs = [a.as_str(), b, &scale, b_scale, &zero, b_zero, bias];
        sheet.give(0, "com.microsoft::MatMulIntegerToFloat", &inputs, vec![]);
        Ok(())
    }),
    Recipe::new("com.microsoft::GatherBlockQuantized", gather)
        .except("tables that are packed and not matrices; indices beyond the table"),
    Recipe::new("com.microsoft::MatMulIntegerToFloat", |sheet| {
        let sums =
            sheet.value("MatMulInteger", &[sheet.need(0)?, sheet.need(1)?, sheet.or_none(4), sheet.or_none(5)], vec![]);
        let y = sheet.value("Cast", &[&sums], vec![int("to", 1)]);
        let scale = sheet.value("Mul", &[sheet.need(2)?, sheet.need(3)?], vec![]);
        let y = sheet.value("Mul", &[&y, &scale], vec![]);
        match sheet.optional(6) {
            Some(bias) => sheet.give(0, "Add", &[&y, bias], vec![]),
            None => sheet.give(0, "Identity", &[&y], vec![]),
        }
        Ok(())
    }),
    Recipe::new("com.microsoft::MatMulNBits", |sheet| {
        sheet.attributes.int("accuracy_level", 0)?; // how roughly it may be computed
        if sheet.attributes.flag("weight_prepacked", false)? {
            return Err(OpError::new("weights that are packed for one device"));
        }
        let packed = [sheet.need(1)?, sheet.need(2)?, sheet.or_none(3), sheet.or_none(4)];
        let attributes = sheet.rest(&["accuracy_level", "weight_prepacked", "N"]);
        sheet.attributes.int("N", 0)?; // as many as there are rows
        let weight = sheet.value("uncork::Unpack", &packed, attributes);
        let weight = sheet.value("Transpose", &[&weight], vec![ints("perm", &[1, 0])]);
        match sheet.optional(5) {
            Some(bias) => {
                let y = sheet.value("MatMul", &[sheet.need(0)?, &weight], vec![]);
                sheet.give(0, "Add", &[&y, bias], vec![]);
            }
            None => sheet.give(0, "MatMul", &[sheet.need(0)?, &weight], vec![]),
        }
        Ok(())
    })
    .except("integers: it computes in the type of its input, from unpacked weights"),
    Recipe::new("com.microsoft::MulInteger", |sheet| {
        let factors = [(0, 1), (2, 3)].map(|(x, zero)| -> Result<String, OpError> {
            let wide = sheet.value("Cast", &[sheet.need(x)?], vec![int("to", 6)]);
            Ok(match sheet.optional(zero) {
                Some(zero) => {
                    let zero = sheet.value("Cast", &[zero], vec![int("to", 6)]);
                    sheet.value("Sub", &[&wide, &zero], vec![])
                }
                None => wide,
            })
        });
        let [a, b] = factors;
        sheet.give(0, "Mul", &[&a?, &b?], vec![]);
        Ok(())
    }),
    Recipe::new("com.microsoft::QGemm", gemm),
    Recipe::new("com.microsoft::QLinearAdd", |sheet| binary(sheet, "Add")),
    Recipe::new("com.microsoft::QLinearAveragePool", |sheet| pool(sheet, "AveragePool")),
    Recipe::new("com.microsoft::QLinearConcat", |sheet| {
        if sheet.count() % 3 != 2 {
            return Err(OpError::new("its arguments are not a scale and a zero point, and threes of values"));
        }
        let parts: Vec<String> = (2..sheet.count()).step_by(3).map(|i| real(sheet, i)).collect::<Result<_, _>>()?;
        let (parts, axis) = (parts.iter().map(String::as_str).collect::<Vec<_>>(), sheet.rest(&[]));
        let y = sheet.value("Concat", &parts, axis);
        give(sheet, &y, 0)
    }),
    Recipe::new("com.microsoft::QLinearConv", |sheet| {
        let last = sheet.attributes.flag("channels_last", false)?;
        let attributes = sheet.rest(&["channels_last"]);
        let x = if last { channels_first(sheet, sheet.need(0)?) } else { sheet.need(0)?.to_owned() };
        let others = (1..sheet.count()).map(|i| sheet.or_none(i));
        let inputs: Vec<&str> = std::iter::once(x.as_str()).chain(others).collect();
        if last {
            let y = sheet.value("QLinearConv", &inputs, attributes);
            give_channels_last(sheet, &y);
        } else {
            sheet.give(0, "QLinearConv", &inputs, attributes);
        }
        Ok(())
    }),
    Recipe::new("com.microsoft::QLinearGlobalAveragePool", |sheet| pool(sheet, "GlobalAveragePool")),
    Recipe::new("com.microsoft::QLinearLeakyRelu", |sheet| unary(sheet, "LeakyRelu")),
    Recipe::new("com.microsoft::QLinearMul", |sheet| binary(sheet, "Mul")),
    Recipe::new("com.microsoft::QLinearReduceMean", |sheet| unary(sheet, "ReduceMean")),
    Recipe::new("com.microsoft::QLinearSigmoid", |sheet| unary(sheet, "Sigmoid")),
    Recipe::new("com.microsoft::QLinearSoftmax", softmax),
    Recipe::new("com.microsoft::QLinearWhere", |sheet| {
        let (condition, x, y) = (sheet.need(0)?, real(sheet, 1)?, real(sheet, 4)?);
        let z = sheet.value("Where", &[condition, &x, &y], vec![]);
        give(sheet, &z, 7)
    }),
    Recipe::new("com.microsoft::QuantizeLinear", |sheet| same(sheet, "QuantizeLinear")),
    Recipe::new("com.microsoft::ReduceSumInteger", |sheet| {
        let wide = sheet.value("Cast", &[sheet.need(0)?], vec![int("to", 6)]);
        let attributes = sheet.rest(&[]);
        sheet.give(0, "ReduceSum", &[&wide], attributes);
        Ok(())
    }),
];

/// The standard operator of this name does the same.
fn same(sheet: &mut Sheet<'_>, operator: &str) -> Result<(), OpError> {
    let inputs = [sheet.need(0)?, sheet.need(1)?, sheet.or_none(2)];
    let attributes = sheet.rest(&[]);
    sheet.give(0, operator, &inputs, attributes);
    Ok(())
}

/// The numbers that argument `i` stands for by its scale and zero point, which are behind it.
fn real(sheet: &mut Sheet<'_>, i: usize) -> Result<String, OpError> {
    Ok(sheet.value("DequantizeLinear", &[sheet.need(i)?, sheet.need(i + 1)?, sheet.or_none(i + 2)], vec![]))
}

/// Output 0 as the integers that stand for numbers by the scale at `i` and the zero point behind it.
fn give(sheet: &mut Sheet<'_>, y: &str, i: usize) -> Result<(), OpError> {
    let scale = sheet.need(i)?;
    let zero = match sheet.optional(i + 1) {
        Some(zero) => zero.to_owned(),
        // Zero in the type of the first argument, which is that of the result.
        None => sheet.number_like(0.0, sheet.need(0)?),
    };
    sheet.give(0, "QuantizeLinear", &[y, scale, &zero], vec![]);
    Ok(())
}

/// An operator on one argument, whose scale and zero point follow it.
fn unary(sheet: &mut Sheet<'_>, operator: &str) -> Result<(), OpError> {
    let (x, attributes) = (real(sheet, 0)?, sheet.rest(&[]));
    let y = sheet.value(operator, &[&x], attributes);
    give(sheet, &y, 3)
}

/// The same on two arguments.
fn binary(sheet: &mut Sheet<'_>, operator: &str) -> Result<(), OpError> {
    let (a, b) = (real(sheet, 0)?, real(sheet, 3)?);
    let y = sheet.value(operator, &[&a, &b], vec![]);
    give(sheet, &y, 6)
}

/// A pool, of channels that may come last.
fn pool(sheet: &mut Sheet<'_>, operator: &str) -> Result<(), OpError> {
    let last = sheet.attributes.flag("channels_last", false)?;
    // Windows jut out of the padding where their number is rounded up.
    let (counts, juts) =
        (sheet.attributes.flag("count_include_pad", false)?, sheet.attributes.flag("ceil_mode", false)?);
    // Of integers onnxruntime counts a window that juts out as whole, where that of floats ends with the padding.
    let (operator, except): (_, &[&str]) = match operator {
        "AveragePool" if counts && juts => ("uncork::WholeAveragePool", &["channels_last", "count_include_pad"]),
        operator => (operator, &["channels_last"]),
    };
    let (x, attributes) = (real(sheet, 0)?, sheet.rest(except));
    let x = if last { channels_first(sheet, &x) } else { x };
    let y = sheet.value(operator, &[&x], attributes);
    let y = if last { channels_last(sheet, &y) } else { y };
    give(sheet, &y, 3)
}

/// alpha · A' · B' + C of integers, as floats or as integers again.
fn gemm(sheet: &mut Sheet<'_>) -> Result<(), OpError> {
    let mut factors = [String::new(), String::new()];
    for (at, (i, turned)) in [(0, "transA"), (3, "transB")].into_iter().enumerate() {
        let x = sheet.need(i)?;
        let turned = sheet.attributes.flag(turned, false)?;
        factors[at] = if turned { sheet.value("Transpose", &[x], vec![ints("perm", &[1, 0])]) } else { x.to_owned() };
    }
    let [a, b] = &factors;
    let mut sums = sheet.value("MatMulInteger", &[a, b, sheet.or_none(2), sheet.or_none(5)], vec![]);
    if let Some(c) = sheet.optional(6) {
        sums = sheet.value("Add", &[&sums, c], vec![]);
    }
    let y = sheet.value("Cast", &[&sums], vec![int("to", 1)]);
    let scale = sheet.value("Mul", &[sheet.need(1)?, sheet.need(4)?], vec![]);
    let scale = match sheet.attributes.float("alpha", 1.0)? {
        1.0 => scale,
        alpha => scaled(sheet, &scale, alpha),
    };
    if sheet.optional(7).is_none() {
        sheet.give(0, "Mul", &[&y, &scale], vec![]);
        return Ok(());
    }
    let y = sheet.value("Mul", &[&y, &scale], vec![]);
    give(sheet, &y, 7)
}

/// A gather from a table in few bits: of a type of its own, or packed into bytes.
fn gather(sheet: &mut Sheet<'_>) -> Result<(), OpError> {
    let attributes = &sheet.attributes;
    let (axis, gathered) = (attributes.int("quantize_axis", 1)?, attributes.int("gather_axis", 0)?);
    let (bits, block) = (attributes.int("bits", 4)?, attributes.int("block_size", 128)?);
    let inputs = [sheet.need(0)?, sheet.need(2)?, sheet.or_none(3)];
    let table = if sheet.weights.get(inputs[0]).is_some_and(|weight| Small::of(weight.element).is_some()) {
        sheet.value("DequantizeLinear", &inputs, vec![int("axis", axis), int("block_size", block)])
    } else if gathered == 0 && [1, -1].contains(&axis) {
        sheet.value("uncork::Unpack", &inputs, vec![int("bits", bits), int("block_size", block)])
    } else {
        return Err(OpError(format!("quantize_axis={axis} and gather_axis={gathered}; they are 1 and 0")));
    };
    sheet.give(0, "Gather", &[&table, sheet.need(1)?], vec![int("axis", gathered)]);
    Ok(())
}

fn softmax(sheet: &mut Sheet<'_>) -> Result<(), OpError> {
    /// Since this version of the standard operators a softmax is over one axis; before it, over all from one on.
    const BY_AXIS: i64 = 13;
    let (version, axis) = (sheet.attributes.int("opset", BY_AXIS)?, sheet.attributes.int("axis", -1)?);
    if axis != -1 && (version < BY_AXIS) != (sheet.opset < BY_AXIS) {
        return Err(OpError(format!("a softmax of opset {version} in a file of opset {}", sheet.opset)));
    }
    let x = real(sheet, 0)?;
    let y = sheet.value("Softmax", &[&x], vec![int("axis", axis)]);
    give(sheet, &y, 3)
}

/// An LSTM whose weights are [directions, inputs, 4 · hidden] integers.
fn lstm(sheet: &mut Sheet<'_>) -> Result<(), OpError> {
    let mut weights = [String::new(), String::new()];
    for (at, (weight, scale)) in [(1, 8), (2, 10)].into_iter().enumerate() {
        // Scales belong to the directions, or to the gates of each.
        let numbers = sheet.value("Cast", &[sheet.need(weight)?], vec![int("to", 1)]);
        let zero = sheet.value("Cast", &[sheet.need(scale + 1)?], vec![int("to", 1)]);
        let (directions, gates) = (sheet.ints(&[0, 1, -1]), sheet.need(scale)?);
        let [zero, gates] = [zero.as_str(), gates].map(|by| sheet.value("Reshape", &[by, &directions], vec![]));
        let numbers = sheet.value("Sub", &[&numbers, &zero], vec![]);
        let numbers = sheet.value("Mul", &[&numbers, &gates], vec![]);
        weights[at] = sheet.value("Transpose", &[&numbers], vec![ints("perm", &[0, 2, 1])]);
    }
    let [w, r] = &weights;
    let mut inputs = vec![sheet.need(0)?, w, r];
    inputs.extend((3..8).map(|i| sheet.or_none(i)));
    // The integers as they are, for a kernel that multiplies them.
    for (weight, scale) in [(1, 8), (2, 10)] {
        inputs.extend([sheet.need(weight)?, sheet.need(scale)?, sheet.need(scale + 1)?]);
    }
    let (outputs, attributes) = (sheet.node.output.clone(), sheet.rest(&[]));
    sheet.write("uncork::RoundedLstm", &inputs, outputs, attributes);
    Ok(())
}
