//! Activations that are a number times a bent line of it, as exporters write them out: SiLU, x · sigmoid(x), for which ONNX has no
//! operator before opset 24, and the hard swish, x · clip(x + 3, 0, 6) / 6.

use super::pattern::Pattern;
use crate::fast::activation::Activation;

/// x · sigmoid(x)
pub(super) fn silu() -> Vec<(Activation, Pattern)> {
    let x = || Pattern::Value("x");
    vec![(Activation::Silu, Pattern::binary("Mul", x(), Pattern::unary("Sigmoid", x())))]
}

/// The sixth as a quotient or a product, last or of the bent line.
pub(super) fn hard() -> Vec<(Activation, Pattern)> {
    let (x, number) = (|| Pattern::Value("x"), Pattern::Constant);
    let mul = |a, b| Pattern::binary("Mul", a, b);
    let sum = Pattern::binary("Add", x(), number(3.0));
    let bent = Pattern::Result("Clip", vec![sum, number(0.0), number(6.0)]);
    let sixth = |of: Pattern| [Pattern::binary("Div", of.clone(), number(6.0)), mul(of, number(1.0 / 6.0))];
    let last = sixth(mul(x(), bent.clone()));
    let first = sixth(bent).map(|line| mul(x(), line));
    last.into_iter().chain(first).map(|pattern| (Activation::HardSwish, pattern)).collect()
}
