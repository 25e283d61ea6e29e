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

/// Writes saturate(round(x / scale) + zero), rounded half to even, and returns whether `x` has a NaN, which no integer stands for.
/// A NaN is written as the zero point.
pub(crate) fn quantize<E: Small>(x: &[f32], by: Scales<'_>, y: &mut [E]) -> bool {
    vectorized(Quantize { x, by, y })
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
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> bool {
        let Quantize { x, by, y } = self;
        let inner = by.inner.max(1);
        let columns = by.scales.iter().zip(by.zeros).cycle();
        // As wide as a float, so that it is kept in the lanes of a vector.
        let mut has_nan = 0u32;
        for ((x, y), (&scale, &zero)) in x.chunks(inner).zip(y.chunks_mut(inner)).zip(columns) {
            let counter = Counter::of::<E>(zero);
            for (x, y) in x.iter().zip(y) {
                has_nan |= u32::from(x.is_nan());
                let x = x / scale;
                *y = counter.count(if x.is_nan() { 0.0 } else { x });
            }
        }
        has_nan != 0
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

/// The interval that covers zero and the numbers of a tensor; its ends are NaN if one of the numbers is, since no scale covers that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Extent {
    least: f32,
    greatest: f32,
}

impl Extent {
    /// Covers zero alone.
    pub(crate) const ZERO: Extent = Extent { least: 0.0, greatest: 0.0 };
    const NAN: Extent = Extent { least: f32::NAN, greatest: f32::NAN };

    /// Covers zero and these numbers.
    pub(crate) fn of(x: &[f32]) -> Extent {
        vectorized(Span(x))
    }

    /// Covers `x` as well.
    pub(crate) fn with(self, x: f32) -> Extent {
        self.and(if x.is_nan() { Extent::NAN } else { Extent { least: x.min(0.0), greatest: x.max(0.0) } })
    }

    /// Covers what either of the two covers.
    pub(crate) fn and(self, other: Extent) -> Extent {
        if self.least.is_nan() || other.least.is_nan() {
            return Extent::NAN;
        }
        Extent { least: self.least.min(other.least), greatest: self.greatest.max(other.greatest) }
    }

    /// Returns the scale and the zero point of bytes that stand for the interval. The scale of NaN is NaN, as in ONNX's reference
    /// implementation, so every number that the bytes stand for is NaN.
    pub(crate) fn scale(self) -> (f32, u8) {
        let Extent { least, greatest } = self;
        let scale = if greatest == least { 1.0 } else { (greatest - least) / 255.0 };
        // A NaN becomes 0.
        (scale, (-least / scale).round_ties_even() as u8)
    }
}

struct Span<'a>(&'a [f32]);

impl WithSimd for Span<'_> {
    type Output = Extent;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Extent {
        const LANES: usize = 32;
        let (mut least, mut greatest, mut has_nan) = ([0f32; LANES], [0f32; LANES], [0u32; LANES]);
        let (chunks, rest) = self.0.as_chunks::<LANES>();
        let mut visit = |chunk: &[f32]| {
            let lanes = least.iter_mut().zip(&mut greatest).zip(&mut has_nan);
            for (x, ((least, greatest), has_nan)) in chunk.iter().zip(lanes) {
                *least = if *x < *least { *x } else { *least };
                *greatest = if *x > *greatest { *x } else { *greatest };
                *has_nan |= u32::from(x.is_nan());
            }
        };
        for chunk in chunks.iter() {
            visit(chunk);
        }
        visit(rest);
        if has_nan.into_iter().any(|lane| lane != 0) {
            return Extent::NAN;
        }
        let (least, greatest) = (least.into_iter().fold(0.0, f32::min), greatest.into_iter().fold(0.0, f32::max));
        Extent { least, greatest }
    }
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
                assert!(quantize(&x, by, &mut y), "there is a NaN");
                assert!(!quantize(&x[4..], by, &mut vec![E::default(); count - 4]), "infinities are numbers");
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
    fn an_extent_covers_all_numbers_and_zero() {
        for count in [0, 1, 31, 32, 100] {
            let x: Vec<f32> = numbers(count, 1).iter().map(|x| x + 0.5).collect();
            let (least, greatest) = x.iter().fold((0f32, 0f32), |(a, b), &x| (a.min(x), b.max(x)));
            assert_eq!(Extent::of(&x), Extent { least, greatest }, "{count}");
            assert_eq!(x.iter().fold(Extent::ZERO, |extent, &x| extent.with(x)), Extent { least, greatest }, "{count}");
            let (scale, zero) = Extent::of(&x).scale();
            assert!(count == 0 || (scale * 255.0 - (greatest - least)).abs() < 1e-6, "{count}");
            assert_eq!(zero, (-least / scale).round_ties_even() as u8);
        }
        assert_eq!(Extent::ZERO.scale(), (1.0, 0));
    }

    #[test]
    fn a_nan_anywhere_has_a_scale_of_nan() {
        for count in [1, 31, 32, 100] {
            for at in [0, count / 2, count - 1] {
                let mut x = numbers(count, 1);
                x[at] = f32::NAN;
                let (scale, zero) = Extent::of(&x).scale();
                assert!(scale.is_nan(), "{at} of {count}");
                assert_eq!(zero, 0);
                let one_by_one = x.iter().fold(Extent::ZERO, |extent, &x| extent.with(x));
                assert!(one_by_one.and(Extent::ZERO).scale().0.is_nan(), "{at} of {count}");
                assert!(Extent::ZERO.and(one_by_one).scale().0.is_nan(), "{at} of {count}");
            }
        }
    }
}
