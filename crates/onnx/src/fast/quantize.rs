//! Between floats and the small integers of quantised networks: each in one visit of the numbers.

use pulp::bytemuck::Pod;
use pulp::{Simd, WithSimd};

use super::vectorized;

/// A type of small integers.
pub(crate) trait Small: Pod + Default + Send + Sync {
    const LEAST: i32;
    const GREATEST: i32;
    /// The integer in the lowest bits.
    fn narrow(wide: i32) -> Self;
    fn widen(self) -> i32;
}

macro_rules! small {
    ($($element:ty)*) => {$(
        impl Small for $element {
            const LEAST: i32 = <$element>::MIN as i32;
            const GREATEST: i32 = <$element>::MAX as i32;
            #[inline(always)]
            fn narrow(wide: i32) -> $element {
                wide as $element
            }
            #[inline(always)]
            fn widen(self) -> i32 {
                i32::from(self)
            }
        }
    )*};
}

small! { u8 i8 u16 i16 }

/// Scales and zero points, as many of each; the next ones belong to the next `inner` numbers, in turns.
#[derive(Clone, Copy)]
pub(crate) struct Scales<'a> {
    pub(crate) scales: &'a [f32],
    pub(crate) zeros: &'a [i32],
    pub(crate) inner: usize,
}

/// saturate(round(x / scale) + zero), rounded half to even; what is no number becomes the zero point.
pub(crate) fn quantize<E: Small>(x: &[f32], by: Scales<'_>, y: &mut [E]) {
    vectorized(Quantize { x, by, y });
}

/// saturate(round(sum · scale) + zero), rounded half to even, of rows whose columns have a scale each.
pub(crate) fn requantize_columns<E: Small>(sums: &[i32], scales: &[f32], zero: i32, y: &mut [E]) {
    vectorized(RequantizeColumns { sums, scales, zero, y });
}

/// (x - zero) · scale
pub(crate) fn dequantize<E: Small>(x: &[E], by: Scales<'_>, y: &mut [f32]) {
    vectorized(Dequantize { x, by, y });
}

struct Quantize<'a, E> {
    x: &'a [f32],
    by: Scales<'a>,
    y: &'a mut [E],
}

/// Adding this number leaves the nearest integer in the lowest bits of the mantissa, and is quicker than a conversion.
const ROUND: f32 = 12_582_912.0;

impl<E: Small> WithSimd for Quantize<'_, E> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Quantize { x, by, y } = self;
        let inner = by.inner.max(1);
        let columns = by.scales.iter().zip(by.zeros).cycle();
        for ((x, y), (&scale, &zero)) in x.chunks(inner).zip(y.chunks_mut(inner)).zip(columns) {
            let counter = Counter::of::<E>(zero);
            for (x, y) in x.iter().zip(y) {
                let x = x / scale;
                *y = counter.count(if x.is_nan() { 0.0 } else { x });
            }
        }
    }
}

/// Counts numbers from a zero point on.
#[derive(Clone, Copy)]
pub(crate) struct Counter {
    least: f32,
    greatest: f32,
    zero: i32,
}

impl Counter {
    #[inline(always)]
    pub(crate) fn of<E: Small>(zero: i32) -> Counter {
        Counter { least: (E::LEAST - zero) as f32, greatest: (E::GREATEST - zero) as f32, zero }
    }

    /// saturate(round(x) + zero) of what is a number.
    #[inline(always)]
    pub(crate) fn count<E: Small>(&self, x: f32) -> E {
        let x = if x < self.least { self.least } else { x };
        let x = if x > self.greatest { self.greatest } else { x };
        let whole = (x + ROUND).to_bits().wrapping_sub(ROUND.to_bits()) as i32;
        E::narrow(whole.wrapping_add(self.zero))
    }
}

struct RequantizeColumns<'a, E> {
    sums: &'a [i32],
    scales: &'a [f32],
    zero: i32,
    y: &'a mut [E],
}

impl<E: Small> WithSimd for RequantizeColumns<'_, E> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let RequantizeColumns { sums, scales, zero, y } = self;
        let (counter, width) = (Counter::of::<E>(zero), scales.len().max(1));
        for (sums, y) in sums.chunks(width).zip(y.chunks_mut(width)) {
            for ((sum, y), scale) in sums.iter().zip(y).zip(scales) {
                *y = counter.count(*sum as f32 * scale);
            }
        }
    }
}

struct Dequantize<'a, E> {
    x: &'a [E],
    by: Scales<'a>,
    y: &'a mut [f32],
}

impl<E: Small> WithSimd for Dequantize<'_, E> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Dequantize { x, by, y } = self;
        let inner = by.inner.max(1);
        let columns = by.scales.iter().zip(by.zeros).cycle();
        for ((x, y), (&scale, &zero)) in x.chunks(inner).zip(y.chunks_mut(inner)).zip(columns) {
            for (x, y) in x.iter().zip(y) {
                *y = x.widen().wrapping_sub(zero) as f32 * scale;
            }
        }
    }
}

/// The least and the greatest of some numbers and zero.
pub(crate) fn range(x: &[f32]) -> (f32, f32) {
    struct Range<'a>(&'a [f32]);
    impl WithSimd for Range<'_> {
        type Output = (f32, f32);

        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> (f32, f32) {
            let (mut least, mut greatest) = ([0f32; 32], [0f32; 32]);
            let (chunks, rest) = self.0.as_chunks::<32>();
            let mut visit = |chunk: &[f32]| {
                for ((x, least), greatest) in chunk.iter().zip(&mut least).zip(&mut greatest) {
                    *least = if *x < *least { *x } else { *least };
                    *greatest = if *x > *greatest { *x } else { *greatest };
                }
            };
            for chunk in chunks.iter() {
                visit(chunk);
            }
            visit(rest);
            (least.into_iter().fold(0.0, f32::min), greatest.into_iter().fold(0.0, f32::max))
        }
    }
    vectorized(Range(x))
}

#[cfg(test)]
mod tests {
    use super::super::numbers;
    use super::*;

    fn check<E: Small + PartialEq + std::fmt::Debug>(zeros: &[i32]) {
        for (inner, count) in [(1, 7), (3, 60), (64, 128), (37, 200)] {
            let mut x: Vec<f32> = numbers(count, 1).iter().map(|x| x * 300.0).collect();
            // Halves, which go to the even neighbour, and what has no neighbours.
            x[..7].copy_from_slice(&[0.5, 1.5, -2.5, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30]);
            for scales in [&[1.0][..], &[0.5, 2.0], &[0.1, 0.03, 7.0]] {
                let zeros = &zeros[..scales.len()];
                let by = Scales { scales, zeros, inner };
                let mut y = vec![E::default(); count];
                quantize(&x, by, &mut y);
                let mut back = vec![f32::NAN; count];
                dequantize(&y, by, &mut back);
                for i in 0..count {
                    let (scale, zero) = (scales[i / inner % scales.len()], zeros[i / inner % scales.len()]);
                    let whole = ((x[i] / scale).round_ties_even() as i64).saturating_add(zero.into());
                    let expected = whole.clamp(E::LEAST.into(), E::GREATEST.into());
                    assert_eq!(i64::from(y[i].widen()), expected, "{} by {scale} and {zero}", x[i]);
                    assert_eq!(back[i], (y[i].widen() - zero) as f32 * scale);
                }
            }
        }
    }

    #[test]
    fn numbers_are_rounded_half_to_even_and_saturate() {
        check::<u8>(&[0, 128, 255]);
        check::<i8>(&[0, -128, 127]);
        check::<u16>(&[0, 32_768, 65_535]);
        check::<i16>(&[0, -32_768, 5]);
    }

    #[test]
    fn sums_are_counted_in_steps_of_the_result() {
        let count = |sum: i32| Counter::of::<i8>(3).count::<i8>(sum as f32 * 0.1);
        assert_eq!([10, -10, 5, 15, 1000, -1000, i32::MAX].map(count), [4, 2, 3, 5, 103, -97, 127]);
        assert_eq!([-1.0, 255.0, 256.0].map(|x| Counter::of::<u8>(0).count::<u8>(x)), [0, 255, 255]);
        let mut y = [0u8; 6];
        requantize_columns(&[1, 2, 3, 40, 50, 60], &[1.0, 0.5, 10.0], 7, &mut y);
        assert_eq!(y, [8, 8, 37, 47, 32, 255]);
    }

    #[test]
    fn a_range_covers_all_numbers_and_zero() {
        for count in [0, 1, 31, 32, 100] {
            let x: Vec<f32> = numbers(count, 1).iter().map(|x| x + 0.5).collect();
            let expected = x.iter().fold((0f32, 0f32), |(a, b), &x| (a.min(x), b.max(x)));
            assert_eq!(range(&x), expected, "{count}");
        }
    }
}
