//! GELU written out, as exporters do before opset 20: with the error function, x · (1 + erf(x / √2)) / 2, or with the hyperbolic
//! tangent, x · (1 + tanh(√(2 / π) · (x + 0.044715 x³))) / 2.

use std::f32::consts::{FRAC_1_PI, FRAC_1_SQRT_2, SQRT_2};

use super::pattern::Pattern;
use crate::fast::activation::Activation;

/// The scale as a quotient or a product, the cube as a power or a product; the half last, or of x, or of the sum.
pub(super) fn patterns() -> Vec<(Activation, Pattern)> {
    let x = || Pattern::Value("x");
    let (mul, half) = (|a, b| Pattern::binary("Mul", a, b), || Pattern::Constant(0.5));
    let plus_one = |function, of| Pattern::binary("Add", Pattern::unary(function, of), Pattern::Constant(1.0));
    let scaled = [Pattern::binary("Div", x(), Pattern::Constant(SQRT_2)), mul(x(), Pattern::Constant(FRAC_1_SQRT_2))];
    let cubes = [Pattern::binary("Pow", x(), Pattern::Constant(3.0)), mul(mul(x(), x()), x())];
    let bent = |cube| {
        let sum = Pattern::binary("Add", x(), mul(cube, Pattern::Constant(0.044_715)));
        mul(sum, Pattern::Constant((2.0 * FRAC_1_PI).sqrt()))
    };
    let by_erf = scaled.map(|scaled| (Activation::Gelu, plus_one("Erf", scaled)));
    let by_tanh = cubes.map(|cube| (Activation::GeluTanh, plus_one("Tanh", bent(cube))));
    let orders = |(activation, sum): (Activation, Pattern)| {
        let orders =
            [mul(mul(x(), sum.clone()), half()), mul(mul(x(), half()), sum.clone()), mul(x(), mul(sum, half()))];
        orders.map(|order| (activation, order))
    };
    by_erf.into_iter().chain(by_tanh).flat_map(orders).collect()
}
