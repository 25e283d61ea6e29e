//! Boxes in images: of those that overlap, the best.

use burn_backend::{DType, Shape, TensorData};

use super::arrange::integer;
use super::{Kernel, Operator};
use crate::value::{OpError, Value};

pub(super) const OPERATORS: &[Operator] = &[Operator::new("NonMaxSuppression", |build| {
    let from_centre = build.attributes.flag("center_point_box", false)?;
    Ok(Kernel::one(move |mut args| {
        let (boxes, scores) = (args.take(0)?, args.take(1)?);
        let wanted = args.optional(2).map_or(Ok(0), |k| integer(k, "number of boxes"))?;
        let mut threshold = |i| -> Result<Option<f32>, OpError> {
            Ok(args.optional(i).map(numbers).transpose()?.and_then(|x| x.first().copied()))
        };
        let (overlap, score) = (threshold(3)?.unwrap_or(0.0), threshold(4)?);
        let (have, of) = (boxes.shape(), scores.shape());
        let ([images, count, 4], [_, classes, _]) = (&have[..], &of[..]) else {
            return Err(OpError(format!("boxes of shape {have:?} and scores of shape {of:?}")));
        };
        let (images, count, classes) = (*images, *count, *classes);
        if of != [images, classes, count] {
            return Err(OpError(format!("boxes of shape {have:?} and scores of shape {of:?}")));
        }
        let boxes: Vec<Corners> = numbers(boxes)?.chunks_exact(4).map(|b| Corners::of(b, from_centre)).collect();
        let scores = numbers(scores)?;
        let wanted = usize::try_from(wanted).unwrap_or(0).min(count);
        let mut found: Vec<i64> = Vec::new();
        for image in 0..images {
            let boxes = &boxes[image * count..][..count];
            for class in 0..classes {
                let scores = &scores[(image * classes + class) * count..][..count];
                let kept = best(boxes, scores, wanted, overlap, score);
                found.extend(kept.into_iter().flat_map(|i| [image as i64, class as i64, i as i64]));
            }
        }
        let rows = found.len() / 3;
        Value::from_data(TensorData::new(found, Shape::from(vec![rows, 3])), args.device)
    }))
})];

fn numbers(x: Value) -> Result<Vec<f32>, OpError> {
    let data = x.into_data()?.try_cast(DType::F32).and_then(|data| data.try_into_vec());
    data.map_err(|e| OpError::new(e.to_string()))
}

/// The best boxes of one class, best first: none overlaps a better one by more than `overlap`.
fn best(boxes: &[Corners], scores: &[f32], wanted: usize, overlap: f32, least: Option<f32>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..boxes.len()).filter(|&i| least.is_none_or(|least| scores[i] > least)).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let mut kept: Vec<usize> = Vec::new();
    for i in order {
        if kept.len() == wanted {
            break;
        }
        if kept.iter().all(|&k| boxes[k].overlap(&boxes[i]) <= overlap) {
            kept.push(i);
        }
    }
    kept
}

/// A box by its lower and upper ends along the two axes of an image.
struct Corners {
    low: [f32; 2],
    high: [f32; 2],
}

impl Corners {
    /// From four numbers: two opposite corners, or a centre with width and height.
    fn of(numbers: &[f32], from_centre: bool) -> Corners {
        let [a, b, c, d] = [numbers[0], numbers[1], numbers[2], numbers[3]];
        if from_centre {
            return Corners { low: [a - c / 2.0, b - d / 2.0], high: [a + c / 2.0, b + d / 2.0] };
        }
        Corners { low: [a.min(c), b.min(d)], high: [a.max(c), b.max(d)] }
    }

    fn area(&self) -> f32 {
        (self.high[0] - self.low[0]) * (self.high[1] - self.low[1])
    }

    /// The area in both boxes as a part of the area in any of the two; 0 where a box has none.
    fn overlap(&self, other: &Corners) -> f32 {
        let side = |i: usize| (self.high[i].min(other.high[i]) - self.low[i].max(other.low[i])).max(0.0);
        let both = side(0) * side(1);
        let any = self.area() + other.area() - both;
        if any > 0.0 { both / any } else { 0.0 }
    }
}
