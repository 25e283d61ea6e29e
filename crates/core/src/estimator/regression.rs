//! Weighted least squares of batch time over batch size, by linfa, with the guards that it needs.
//!
//! `linfa_linear::LinearRegression` answers `Ok` with garbage where the sizes do not differ, where a value is NaN and
//! where there is one sample, and it ignores the weights of a dataset. So sizes are checked before, coefficients after,
//! and weights are applied by scaling the rows of the problem, the column of ones among them.

use linfa::Dataset;
use linfa::traits::Fit as _;
use linfa_linear::LinearRegression;
use ndarray::{Array1, Array2};

/// One timed batch as the regression sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub(super) rows: f64,
    pub(super) seconds: f64,
    pub(super) weight: f64,
}

/// What the points say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Regression {
    /// Nothing usable was given.
    Nothing,
    /// The sizes do not differ enough for a slope: the weighted mean of sizes and of times.
    Mean { rows: f64, seconds: f64 },
    /// Intercept and slope, both ≥ 0 and finite.
    Line { base: f64, per_row: f64 },
}

/// Sizes whose standard deviation is below this share of their mean do not tell a slope from noise.
const THIN_SPREAD: f64 = 0.1;

/// Fits a line. Points that are not finite, not positive or without weight are passed over.
///
/// Errors are minimised relative to the time taken (each row is also divided by `seconds`): execution noise is
/// multiplicative, and a straggler of five times its due counts a twenty-fifth.
pub(super) fn fit(points: &[Point]) -> Regression {
    let usable = |p: &&Point| p.rows.is_finite() && usable(p.seconds) && usable(p.weight);
    let points: Vec<&Point> = points.iter().filter(usable).collect();
    let total: f64 = points.iter().map(|p| relative(p)).sum();
    if points.is_empty() || !usable_sum(total) {
        return Regression::Nothing;
    }
    let mean = |f: fn(&Point) -> f64| points.iter().map(|p| relative(p) * f(p)).sum::<f64>() / total;
    let (rows, seconds) = (mean(|p| p.rows), mean(|p| p.seconds));
    if is_thin(&points) {
        return Regression::Mean { rows, seconds };
    }
    let scale = |p: &Point| (relative(p) / total).sqrt();
    let problem = Array2::from_shape_fn((points.len(), 2), |(i, column)| {
        scale(points[i]) * if column == 0 { 1.0 } else { points[i].rows }
    });
    let target = Array1::from_shape_fn(points.len(), |i| scale(points[i]) * points[i].seconds);
    let fitted = LinearRegression::new().with_intercept(false).fit(&Dataset::new(problem, target));
    let Ok(fitted) = fitted else { return Regression::Mean { rows, seconds } };
    let (base, per_row) = (fitted.params()[0], fitted.params()[1]);
    if !(base.is_finite() && per_row.is_finite()) {
        Regression::Mean { rows, seconds }
    } else if per_row < 0.0 {
        // More rows never take less time: the best line without a slope is the mean.
        Regression::Line { base: seconds, per_row: 0.0 }
    } else if base < 0.0 {
        // The best line through the origin.
        let square = points.iter().map(|p| relative(p) * p.rows * p.rows).sum::<f64>();
        let product = points.iter().map(|p| relative(p) * p.rows * p.seconds).sum::<f64>();
        Regression::Line { base: 0.0, per_row: product / square }
    } else {
        Regression::Line { base, per_row }
    }
}

/// Whether the sizes differ too little for a slope.
fn is_thin(points: &[&Point]) -> bool {
    let total: f64 = points.iter().map(|p| p.weight).sum();
    let mean = points.iter().map(|p| p.weight * p.rows).sum::<f64>() / total;
    let variance = points.iter().map(|p| p.weight * (p.rows - mean).powi(2)).sum::<f64>() / total;
    points.len() < 2 || variance.sqrt() < THIN_SPREAD * mean.max(1.0)
}

fn relative(p: &Point) -> f64 {
    p.weight / (p.seconds * p.seconds)
}

fn usable(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

fn usable_sum(value: f64) -> bool {
    value.is_normal() && value > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(rows: f64, seconds: f64) -> Point {
        Point { rows, seconds, weight: 1.0 }
    }

    #[test]
    fn an_exact_line_is_found_exactly() {
        let points: Vec<_> = [1.0, 3.0, 17.0, 64.0, 128.0].map(|n| point(n, 0.002 + 0.00005 * n)).to_vec();
        let Regression::Line { base, per_row } = fit(&points) else { panic!("no line") };
        assert!((base - 0.002).abs() < 1e-9 && (per_row - 0.00005).abs() < 1e-9, "{base} {per_row}");
    }

    #[test]
    fn one_size_gives_a_mean_and_no_line_however_many_batches_had_it() {
        let points: Vec<_> = (0..50).map(|i| point(4.0, 0.002 + 1e-5 * f64::from(i % 3))).collect();
        assert!(matches!(fit(&points), Regression::Mean { rows, .. } if rows == 4.0), "{:?}", fit(&points));
        assert!(matches!(fit(&points[..1]), Regression::Mean { .. }));
    }

    #[test]
    fn what_is_not_a_number_is_passed_over() {
        let mut points = vec![point(1.0, 0.001), point(10.0, 0.010)];
        let clean = fit(&points);
        for bad in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            points.push(point(5.0, bad));
            points.push(Point { weight: bad, ..point(5.0, 1.0) });
        }
        points.push(point(f64::NAN, 1.0));
        assert_eq!(fit(&points), clean);
        assert_eq!(fit(&[]), Regression::Nothing);
        assert_eq!(fit(&[point(1.0, f64::NAN)]), Regression::Nothing);
    }

    #[test]
    fn neither_coefficient_is_ever_negative() {
        let falling = [point(1.0, 0.010), point(100.0, 0.001)];
        assert!(matches!(fit(&falling), Regression::Line { base, per_row } if base > 0.0 && per_row == 0.0));
        let convex = [point(10.0, 0.001), point(20.0, 0.010)];
        assert!(matches!(fit(&convex), Regression::Line { base, per_row } if base == 0.0 && per_row > 0.0));
    }

    #[test]
    fn weights_count() {
        for seconds in [0.100, 0.0001] {
            let old = Point { weight: 1e-6, ..point(1.0, seconds) };
            let points = [old, point(1.0, 0.001), point(2.0, 0.001), point(100.0, 0.010)];
            let Regression::Line { base, .. } = fit(&points) else { panic!("no line") };
            assert!((0.0008..0.001).contains(&base), "{base} with {seconds}");
        }
    }

    #[test]
    fn a_straggler_of_five_times_its_due_counts_a_twenty_fifth() {
        let points = [point(1.0, 0.001), point(1.0, 0.001), point(100.0, 0.010), point(100.0, 0.050)];
        let Regression::Line { base, per_row } = fit(&points) else { panic!("no line") };
        assert!((0.011..0.012).contains(&(base + 100.0 * per_row)), "{base} {per_row}");
    }
}
