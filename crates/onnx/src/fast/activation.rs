//! Activations, element by element.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::vectorized;

/// Numbers that a thread takes at a time.
const PIECE: usize = 1 << 15;

/// A function of one number, applied where the number is made.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) enum Activation {
    #[default]
    None,
    Relu,
    /// Between two bounds.
    Clip(f32, f32),
    /// Times a factor below 0.
    LeakyRelu(f32),
    /// x · Φ(x), with the exact distribution function.
    Gelu,
    /// The same with an approximation by the hyperbolic tangent.
    GeluTanh,
    Exp,
    Erf,
    /// What is below 0 becomes a factor times e^x - 1.
    Elu(f32),
    Tanh,
    Sigmoid,
    /// x · sigmoid(x)
    Silu,
    /// x · clip(x / 6 + 1 / 2, 0, 1)
    HardSwish,
}

/// Largest argument at which `erf` in single precision is still below 1.
const ERF_END: f32 = 4.0;

/// The error function, to 5e-7: the rational approximation of Eigen (`generic_fast_erf_float`), odd over even.
#[inline(always)]
pub(super) fn erf(x: f32) -> f32 {
    let end = x.abs() >= ERF_END;
    let (x, one) = (x.clamp(-ERF_END, ERF_END), 1f32.copysign(x));
    let s = x * x;
    let mut p = -2.726_142_3e-10;
    for c in [2.770_681_4e-8, -2.101_024e-6, -5.692_506_4e-5, -7.349_906_3e-4, -2.954_6e-3, -1.609_603_3e-2] {
        p = p * s + c;
    }
    let mut q = -1.456_607_2e-5;
    for c in [-2.133_740_5e-4, -1.682_827e-3, -7.373_329e-3, -1.426_473_9e-2] {
        q = q * s + c;
    }
    // The last bit of the quotient would be missing there.
    if end { one } else { x * p / q }
}

/// Adding this number leaves the nearest integer in the lowest bits of the mantissa.
const ROUND: f32 = 12_582_912.0;

/// The two factors of e^x, which is 2^n · e^r with |r| ≤ ln 2 / 2: `ROUND` + n, and a polynomial for e^r (Cephes, `expf`).
#[inline(always)]
fn factors(x: f32) -> (f32, f32) {
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * 0.693_359_4 - n * -2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p * r + c;
    }
    (shifted, p * r * r + r + 1.0)
}

/// e^x to 2e-7 of itself.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Below it the result is so small that its precision drops.
    const LOWEST: f32 = -87.3;
    let given = x;
    let (shifted, p) = factors(x.clamp(LOWEST, 88.7));
    let power = p * f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    if given < LOWEST { 0.0 } else { power }
}

/// The same for every argument: e^x where that is below the least normal number or near the greatest, too.
#[inline(always)]
fn whole_exp(x: f32) -> f32 {
    let given = x;
    let (shifted, p) = factors(x.clamp(-104.0, 89.0));
    // The power in two halves, each of which is a normal number.
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
    let half = n >> 1;
    let y = p * power(half) * power(n.wrapping_sub(half));
    if given.is_nan() { given } else { y }
}

/// x / 2 · (1 + erf(x / √2))
#[inline(always)]
fn gelu(x: f32) -> f32 {
    // Below it the result is nearer to 0 than `erf` to -1, of which x would make something large.
    const LOWEST: f32 = -5.6;
    let y = 0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2));
    // That of minus infinity is NaN, as where the function is written out.
    if x < LOWEST { x * 0.0 } else { y }
}

/// x / 2 · (1 + tanh(√(2 / π) · (x + 0.044715 x³)))
#[inline(always)]
fn gelu_by_tanh(x: f32) -> f32 {
    let inner = 0.797_884_6 * (x + 0.044_715 * x * x * x);
    0.5 * x * (1.0 + tanh(inner))
}

#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The hyperbolic tangent, to 2e-7.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    // Near 0 the quotient would cancel; a short series is exact there.
    let e = exp(2.0 * x.clamp(-10.0, 10.0));
    let far = (e - 1.0) / (e + 1.0);
    let s = x * x;
    let near = x * (1.0 + s * (-1.0 / 3.0 + s * (2.0 / 15.0 + s * (-17.0 / 315.0))));
    if x.abs() < 0.25 { near } else { far }
}

/// ln(1 + e^x), to 3e-7 of itself.
#[inline(always)]
pub(crate) fn softplus(x: f32) -> f32 {
    let e = exp(-x.abs());
    // ln(1 + e) is 2 · artanh(s), and s is a third at most.
    let s = e / (2.0 + e);
    let mut p = 1.0 / 15.0;
    for c in [1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 0.2, 1.0 / 3.0, 1.0] {
        p = p * s * s + c;
    }
    2.0 * p * s + if x > 0.0 { x } else { 0.0 }
}

/// x · tanh(ln(1 + e^x)), which is x · w / (w + 2) with w = e^x · (e^x + 2).
#[inline(always)]
pub(crate) fn mish(x: f32) -> f32 {
    // From here on the quotient is 1.
    let e = exp(if x > 20.0 { 20.0 } else { x });
    let w = e * (e + 2.0);
    x * (w / (w + 2.0))
}

/// Changes all numbers, some of them on each thread.
fn by_pieces(numbers: &mut [f32], change: impl Fn(&mut [f32]) + Copy + Sync) {
    struct Work<'a, F>(F, &'a mut [f32]);
    impl<F: Fn(&mut [f32])> WithSimd for Work<'_, F> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) {
            (self.0)(self.1);
        }
    }
    if rayon::current_num_threads() == 1 {
        vectorized(Work(change, numbers));
    } else {
        numbers.par_chunks_mut(PIECE).for_each(|piece| vectorized(Work(change, piece)));
    }
}

/// Applies a function to each number. It is compiled for each kind of processor where it is `#[inline(always)]`, or a closure.
pub(crate) fn on_each(numbers: &mut [f32], f: impl Fn(f32) -> f32 + Copy + Sync) {
    by_pieces(
        numbers,
        #[inline(always)]
        |numbers| each(numbers, f),
    );
}

/// Combines each number with another.
pub(crate) fn on_pairs(numbers: &mut [f32], others: &[f32], f: impl Fn(f32, f32) -> f32 + Copy + Sync) {
    struct Work<'a, F>(F, &'a mut [f32], &'a [f32]);
    impl<F: Fn(f32, f32) -> f32> WithSimd for Work<'_, F> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) {
            for (x, other) in self.1.iter_mut().zip(self.2) {
                *x = (self.0)(*x, *other);
            }
        }
    }
    if rayon::current_num_threads() == 1 {
        return vectorized(Work(f, numbers, others));
    }
    let pieces = numbers.par_chunks_mut(PIECE).zip(others.par_chunks(PIECE));
    pieces.for_each(|(numbers, others)| vectorized(Work(f, numbers, others)));
}

/// Multiplies the numbers of each channel by its scale and adds its shift: `[images][channels][size]`.
pub(crate) fn scaled(numbers: &mut [f32], size: usize, scale: &[f32], shift: &[f32]) {
    struct Work<'a> {
        numbers: &'a mut [f32],
        size: usize,
        scale: &'a [f32],
        shift: &'a [f32],
    }
    impl WithSimd for Work<'_> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) {
            let Work { numbers, size, scale, shift } = self;
            for image in numbers.chunks_mut(size * scale.len()) {
                for (channel, (scale, shift)) in image.chunks_mut(size).zip(scale.iter().zip(shift)) {
                    each(channel, |x| x * scale + shift);
                }
            }
        }
    }
    if numbers.is_empty() {
        return;
    }
    let some = PIECE.div_ceil(size);
    if rayon::current_num_threads() == 1 || numbers.len() <= PIECE || some >= scale.len() {
        return vectorized(Work { numbers, size, scale, shift });
    }
    numbers.par_chunks_mut(size * scale.len()).for_each(|image| {
        let pieces = image.par_chunks_mut(some * size).zip(scale.par_chunks(some)).zip(shift.par_chunks(some));
        pieces.for_each(|((numbers, scale), shift)| vectorized(Work { numbers, size, scale, shift }));
    });
}

/// What sums without terms come to, in stretches of `size` numbers: the bias of each stretch in turn, what is added, and then the
/// activation.
pub(super) fn of_no_terms(
    bias: Option<&[f32]>,
    size: usize,
    added: Option<&[f32]>,
    activation: Activation,
    y: &mut [f32],
) {
    for (i, stretch) in y.chunks_mut(size.max(1)).enumerate() {
        stretch.fill(bias.filter(|bias| !bias.is_empty()).map_or(0.0, |bias| bias[i % bias.len()]));
    }
    for (y, added) in y.iter_mut().zip(added.unwrap_or_default()) {
        *y += added;
    }
    activation.run(y);
}

impl Activation {
    /// Applies the function to each number.
    pub(crate) fn run(self, numbers: &mut [f32]) {
        by_pieces(
            numbers,
            #[inline(always)]
            |numbers| self.apply(numbers),
        );
    }

    /// The least and the largest number that the function lets through, if that is all that it does.
    pub(super) fn bounds(self) -> Option<(f32, f32)> {
        match self {
            Activation::None => Some((f32::NEG_INFINITY, f32::INFINITY)),
            Activation::Relu => Some((0.0, f32::INFINITY)),
            Activation::Clip(low, high) => Some((low, high)),
            _ => None,
        }
    }

    /// The same, for the processor that the caller is compiled for.
    #[inline(always)]
    pub(super) fn apply(self, numbers: &mut [f32]) {
        match self {
            Activation::None => {}
            Activation::Relu => each(numbers, |x| if x < 0.0 { 0.0 } else { x }),
            Activation::Clip(low, high) => each(numbers, |x| {
                let x = if x < low { low } else { x };
                if x > high { high } else { x }
            }),
            Activation::Gelu => each(numbers, gelu),
            Activation::GeluTanh => each(numbers, gelu_by_tanh),
            Activation::Exp => each(numbers, whole_exp),
            Activation::Erf => each(numbers, |x| if x.is_nan() { x } else { erf(x) }),
            Activation::Elu(factor) => each(numbers, |x| {
                let below = factor * (exp(if x < 0.0 { x } else { 0.0 }) - 1.0);
                if x < 0.0 { below } else { x }
            }),
            Activation::Tanh => each(numbers, tanh),
            Activation::Sigmoid => each(numbers, sigmoid),
            Activation::Silu => each(numbers, |x| x * sigmoid(x)),
            Activation::LeakyRelu(slope) => each(numbers, |x| if x < 0.0 { x * slope } else { x }),
            Activation::HardSwish => each(numbers, |x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0)),
        }
    }
}

#[inline(always)]
fn each(numbers: &mut [f32], f: impl Fn(f32) -> f32) {
    for x in numbers.iter_mut() {
        *x = f(*x);
    }
}

#[cfg(test)]
mod tests {
    use super::super::numbers;
    use super::*;

    /// The error function by its series, in double precision.
    fn series(x: f64) -> f64 {
        let mut term = x;
        let mut sum = x;
        for n in 1..200 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    }

    fn worst(f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64, relative: bool, range: f32) -> f64 {
        let points = (-20_000..=20_000).map(|i| i as f32 / 20_000.0 * range);
        let errors = points.map(|x| {
            let exact = exact(f64::from(x));
            (f64::from(f(x)) - exact).abs() / if relative { exact.abs() } else { 1.0 }
        });
        errors.fold(0.0, f64::max)
    }

    #[test]
    fn each_channel_has_its_own_scale_and_shift() {
        for threads in [1, 2] {
            let (size, channels) = (PIECE / 3 + 5, 7);
            let mut y = numbers(2 * channels * size, 1);
            let x = y.clone();
            let (scale, shift) = (numbers(channels, 2), numbers(channels, 3));
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| scaled(&mut y, size, &scale, &shift));
            for (i, (y, x)) in y.iter().zip(&x).enumerate() {
                let channel = i / size % channels;
                assert!((y - (x * scale[channel] + shift[channel])).abs() < 1e-6, "{i}");
            }
        }
        scaled(&mut [], 0, &[1.0], &[0.0]);
    }

    #[test]
    fn the_approximations_are_as_close_as_they_say() {
        let found = worst(erf, series, false, 4.5);
        assert!(found < 5e-7, "erf {found}");
        let found = worst(exp, f64::exp, true, 87.0);
        assert!(found < 2e-7, "exp {found}");
        let found = worst(whole_exp, f64::exp, true, 87.0);
        assert!(found < 2e-7, "whole_exp {found}");
        let found = worst(
            |x| gelu_by_tanh(x) - x.max(0.0),
            |x| x / 2.0 * (1.0 + (0.797_884_560_8 * (x + 0.044_715 * x.powi(3))).tanh()) - x.max(0.0),
            false,
            12.0,
        );
        assert!(found < 1e-6, "gelu_by_tanh {found}");
        let found =
            worst(|x| gelu(x) - x.max(0.0), |x| x / 2.0 * (1.0 + series(x / 2f64.sqrt())) - x.max(0.0), false, 6.0);
        assert!(found < 2e-6, "gelu {found}");
        assert_eq!([-1e4, -2.1e9, -1e30].map(gelu), [0.0; 3]);
        assert!(gelu(f32::NEG_INFINITY).is_nan());
        for (x, y) in [
            (88.5f32, 2.723_088_6e38),
            (89.0, f32::INFINITY),
            (f32::INFINITY, f32::INFINITY),
            (-100.0, 3.8e-44),
            (-200.0, 0.0),
            (f32::NEG_INFINITY, 0.0),
            (0.0, 1.0),
        ] {
            let found = whole_exp(x);
            assert!(found == y || (found / y - 1.0).abs() < 1e-2, "{x}: {found} {y}");
        }
        let found = worst(tanh, f64::tanh, false, 12.0);
        assert!(found < 2e-7, "tanh {found}");
        let found = worst(sigmoid, |x| 1.0 / (1.0 + (-x).exp()), false, 90.0);
        assert!(found < 2e-7, "sigmoid {found}");
        let found = worst(softplus, |x| x.max(0.0) + (-x.abs()).exp().ln_1p(), true, 87.0);
        assert!(found < 3e-7, "softplus {found}");
        let found = worst(mish, |x| x * x.exp().ln_1p().tanh(), false, 80.0);
        assert!(found < 1e-6, "mish {found}");
    }

    #[test]
    fn what_is_no_number_stays_none() {
        for activation in [
            Activation::Relu,
            Activation::Clip(0.0, 6.0),
            Activation::Gelu,
            Activation::GeluTanh,
            Activation::Exp,
            Activation::Erf,
            Activation::Elu(1.0),
            Activation::Tanh,
            Activation::Sigmoid,
            Activation::Silu,
            Activation::LeakyRelu(0.1),
            Activation::HardSwish,
        ] {
            let mut x = [f32::NAN];
            activation.apply(&mut x);
            assert!(x[0].is_nan(), "{activation:?}");
        }
    }
}
