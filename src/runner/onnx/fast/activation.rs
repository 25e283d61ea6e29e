//! Activations, element by element.

/// A function of one number, applied where the number is made.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(in crate::runner::onnx) enum Activation {
    #[default]
    None,
    Relu,
    /// Between two bounds.
    Clip(f32, f32),
    /// x · Φ(x), with the exact distribution function.
    Gelu,
    Tanh,
    Sigmoid,
    /// x · sigmoid(x)
    Silu,
}

/// Largest argument at which `erf` in single precision is still below 1.
const ERF_END: f32 = 4.0;

/// The error function, to 5e-7: the rational approximation of Eigen (`generic_fast_erf_float`), odd over even.
#[inline(always)]
pub(super) fn erf(x: f32) -> f32 {
    let x = x.clamp(-ERF_END, ERF_END);
    let s = x * x;
    let mut p = -2.726_142_3e-10;
    for c in [2.770_681_4e-8, -2.101_024e-6, -5.692_506_4e-5, -7.349_906_3e-4, -2.954_599_8e-3, -1.609_603_3e-2] {
        p = p * s + c;
    }
    let mut q = -1.456_607_2e-5;
    for c in [-2.133_740_5e-4, -1.682_827e-3, -7.373_329e-3, -1.426_473_9e-2] {
        q = q * s + c;
    }
    x * p / q
}

/// e^x to 2e-7 of itself: 2^n · e^r with |r| ≤ ln 2 / 2 and a polynomial for the latter (Cephes, `expf`).
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    // Adding this number leaves the nearest integer in the lowest bits of the mantissa.
    const ROUND: f32 = 12_582_912.0;
    let x = x.clamp(-87.3, 88.7);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * 0.693_359_4 - n * -2.121_944_4e-4;
    let mut p = 1.987_569_1e-4;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p * r + c;
    }
    let p = p * r * r + r + 1.0;
    p * f32::from_bits(shifted.to_bits().wrapping_add(127) << 23)
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The hyperbolic tangent, to 2e-7.
#[inline(always)]
fn tanh(x: f32) -> f32 {
    // Near 0 the quotient would cancel; a short series is exact there.
    let e = exp(2.0 * x.clamp(-10.0, 10.0));
    let far = (e - 1.0) / (e + 1.0);
    let s = x * x;
    let near = x * (1.0 + s * (-1.0 / 3.0 + s * (2.0 / 15.0 + s * (-17.0 / 315.0))));
    if x.abs() < 0.25 { near } else { far }
}

impl Activation {
    /// Applies the function to each number. Within vectorised code only: it is compiled for the caller's processor.
    #[inline(always)]
    pub(super) fn apply(self, numbers: &mut [f32]) {
        match self {
            Activation::None => {}
            Activation::Relu => each(numbers, |x| if x < 0.0 { 0.0 } else { x }),
            Activation::Clip(low, high) => each(numbers, |x| {
                let x = if x < low { low } else { x };
                if x > high { high } else { x }
            }),
            Activation::Gelu => each(numbers, |x| 0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))),
            Activation::Tanh => each(numbers, tanh),
            Activation::Sigmoid => each(numbers, sigmoid),
            Activation::Silu => each(numbers, |x| x * sigmoid(x)),
        }
    }
}

#[inline(always)]
fn each(numbers: &mut [f32], f: impl Fn(f32) -> f32) {
    numbers.iter_mut().for_each(|x| *x = f(*x));
}
