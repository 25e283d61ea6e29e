//! Outputs as their likeliest classes: `score:column`, and `:label` where columns have one.
//!
//! Source: the extension of the Open Inference Protocol v2 for classification
//! (<https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_classification.md>).

use std::cmp::Reverse;

use crate::tensor::{Data, DataType, Tensor};

/// The `count` greatest elements of each row along axis 0, or all where there are fewer, the greatest first: a tensor of byte strings,
/// `[rows, count]`, or `[count]` where the output has no rows. `None` where the elements have no order.
pub(super) fn of(tensor: &Tensor, has_rows: bool, count: usize, labels: &[String]) -> Option<Tensor> {
    let rows = if has_rows { tensor.rows() } else { 1 };
    let width = tensor.data().len().checked_div(rows).unwrap_or(0);
    let count = count.min(width);
    let texts = match tensor.data() {
        Data::Uint8(v) => best(v, width, count, |x| x, |x| x.to_string(), labels),
        Data::Uint16(v) => best(v, width, count, |x| x, |x| x.to_string(), labels),
        Data::Uint32(v) => best(v, width, count, |x| x, |x| x.to_string(), labels),
        Data::Uint64(v) => best(v, width, count, |x| x, |x| x.to_string(), labels),
        Data::Int8(v) => best(v, width, count, |x| x, |x| x.to_string(), labels),
        Data::Int16(v) => best(v, width, count, |x| x, |x| x.to_string(), labels),
        Data::Int32(v) => best(v, width, count, |x| x, |x| x.to_string(), labels),
        Data::Int64(v) => best(v, width, count, |x| x, |x| x.to_string(), labels),
        Data::Fp16(v) => best(v, width, count, |x| ordered(x.to_f64()), |x| format!("{:.6}", x.to_f64()), labels),
        Data::Bf16(v) => best(v, width, count, |x| ordered(x.to_f64()), |x| format!("{:.6}", x.to_f64()), labels),
        Data::Fp32(v) => best(v, width, count, |x| ordered(x.into()), |x| format!("{x:.6}"), labels),
        Data::Fp64(v) => best(v, width, count, ordered, |x| format!("{x:.6}"), labels),
        Data::Bool(_) | Data::Bytes(_) => return None,
    };
    let shape = if has_rows { vec![rows, count] } else { vec![count] };
    Tensor::new(shape, texts).ok()
}

/// Most bytes of memory that the classes of a tensor with so many rows take, and what it takes to choose them.
pub(super) fn most_bytes(tensor: &Tensor, rows: usize, count: usize, labels: &[String]) -> usize {
    let width = tensor.data().len().checked_div(rows).unwrap_or(0);
    // All digits before the point, and six behind it.
    let digits = if tensor.data().datatype() == DataType::Fp64 { 320 } else { 48 };
    let label = labels.iter().map(String::len).max().unwrap_or(0);
    let each = size_of::<Vec<u8>>() + digits + label + 24;
    rows.saturating_mul(count.min(width)).saturating_mul(each).saturating_add(width.saturating_mul(size_of::<usize>()))
}

/// Fewest bytes that they can be written in: a digit, a point with six more, a column and quotes for each.
pub(super) fn least_bytes(tensor: &Tensor, rows: usize, count: usize) -> usize {
    let width = tensor.data().len().checked_div(rows).unwrap_or(0);
    rows.saturating_mul(count.min(width)).saturating_mul("\"0:0\",".len())
}

/// A key in the order of numbers; NaN is least.
fn ordered(x: f64) -> (bool, i64) {
    let bits = x.to_bits() as i64;
    (!x.is_nan(), bits ^ (((bits >> 63) as u64) >> 1) as i64)
}

fn best<T: Copy, K: Ord>(
    elements: &[T],
    width: usize,
    count: usize,
    key: impl Fn(T) -> K,
    text: impl Fn(T) -> String,
    labels: &[String],
) -> Vec<Vec<u8>> {
    let mut columns: Vec<usize> = Vec::with_capacity(width);
    let mut texts = Vec::new();
    for row in elements.chunks_exact(width.max(1)) {
        columns.clear();
        columns.extend(0..row.len());
        // Among equals the first.
        let order = |&column: &usize| (Reverse(key(row[column])), column);
        if (1..columns.len()).contains(&count) {
            columns.select_nth_unstable_by_key(count - 1, order);
            columns.truncate(count);
        }
        columns.sort_unstable_by_key(order);
        texts.extend(columns.iter().take(count).map(|&column| {
            let label = labels.get(column).map(|label| format!(":{label}")).unwrap_or_default();
            format!("{}:{column}{label}", text(row[column])).into_bytes()
        }));
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(tensor: &Tensor) -> Vec<String> {
        let Data::Bytes(texts) = tensor.data() else { panic!("{tensor:?}") };
        texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect()
    }

    #[test]
    fn each_row_has_its_greatest_first_with_column_and_label() {
        let scores = Tensor::new(vec![2, 3], vec![0.25f32, 4.0, -1.0, f32::NAN, -0.5, -0.25]).unwrap();
        let top = of(&scores, true, 2, &["cat".into(), "dog".into()]).unwrap();
        assert_eq!(top.shape(), [2, 2]);
        assert_eq!(texts(&top), ["4.000000:1:dog", "0.250000:0:cat", "-0.250000:2", "-0.500000:1:dog"]);
        let all = of(&scores, true, 9, &[]).unwrap();
        assert_eq!((all.shape(), texts(&all)[5].as_str()), (&[2, 3][..], "NaN:0"));
    }

    #[test]
    fn equals_come_in_their_own_order_and_an_output_without_rows_is_one() {
        let votes = Tensor::new(vec![4], vec![3i32, 7, 7, 1]).unwrap();
        let top = of(&votes, false, 3, &[]).unwrap();
        assert_eq!((top.shape(), texts(&top)), (&[3][..], vec!["7:1".to_owned(), "7:2".into(), "3:0".into()]));
        assert_eq!(of(&votes, true, 1, &[]).unwrap().shape(), [4, 1]);
        assert!(of(&Tensor::new(vec![1], vec![true]).unwrap(), true, 1, &[]).is_none());
        let wide = Tensor::new(vec![2, 3], vec![f64::MIN, f64::MAX, -1e-300, 0.0, f64::NAN, 1.5]).unwrap();
        let labels = ["a".repeat(99)];
        let taken = texts(&of(&wide, true, 9, &labels).unwrap()).iter().map(|text| 24 + text.len()).sum::<usize>();
        assert!(taken <= most_bytes(&wide, wide.rows(), 9, &labels), "{taken}");
        let none = Tensor::new(vec![0, 3], Vec::<f32>::new()).unwrap();
        assert_eq!(of(&none, true, 1, &[]).unwrap().shape(), [0, 0]);
    }
}
