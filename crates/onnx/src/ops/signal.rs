//! Windows, spectra and mel scales, with which models of sound begin.

use std::f64::consts::PI;

use burn_backend::DType;
use burn_dispatch::DispatchDevice;

use super::along::{elements_of, value_of};
use super::cast::target;
use super::{Args, Build, Kernel, Operator, host};
use crate::value::{OpError, Value, axis, elements};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("BlackmanWindow", |build| window(build, [0.42, 0.5, 0.08])),
    Operator::new("DFT", |build| {
        let inverse = build.attributes.flag("inverse", false)?;
        let onesided = build.attributes.flag("onesided", false)?;
        // An attribute before opset 20, an argument since.
        let given = build.attributes.has("axis").then(|| build.attributes.int("axis", 1)).transpose()?;
        let default = if build.opset < 20 { 1 } else { -2 };
        Ok(Kernel::one(move |mut args| {
            let (x, length, at) = (args.take(0)?, args.optional(1), args.optional(2));
            let at = at.map(|at| at.ints().map(|at| at.ints.first().copied().unwrap_or(default))).transpose()?;
            spectrum(x, length, at.or(given).unwrap_or(default), inverse, onesided, args.device)
        }))
    }),
    Operator::new("HammingWindow", |build| window(build, [25.0 / 46.0, 21.0 / 46.0, 0.0])),
    Operator::new("HannWindow", |build| window(build, [0.5, 0.5, 0.0])),
    Operator::new("MelWeightMatrix", |build| {
        let to = target(build.attributes.int("output_datatype", 1)?)?;
        Ok(Kernel::one(move |mut args| mel(&mut args, to)))
    }),
    Operator::new("STFT", |build| {
        let onesided = build.attributes.flag("onesided", true)?;
        Ok(Kernel::one(move |mut args| frames(&mut args, onesided)))
    }),
];

/// Longest window, spectrum or frame: some minutes of sound.
const LONGEST: usize = 1 << 24;

/// A sum of cosines: `a - b · cos(2πi/n) + c · cos(4πi/n)`.
fn window(build: &mut Build<'_>, [a, b, c]: [f64; 3]) -> Result<Kernel, OpError> {
    let to = target(build.attributes.int("output_datatype", 1)?)?;
    let periodic = build.attributes.flag("periodic", true)?;
    Ok(Kernel::one(move |mut args| {
        let size = length(args.take(0)?)?;
        let turn = if periodic { size } else { size.max(2) - 1 };
        let angle = |i: usize| 2.0 * PI * i as f64 / turn as f64;
        let number = |i: usize| a - b * angle(i).cos() + c * (2.0 * angle(i)).cos();
        value_of((0..size).map(number).collect(), vec![size], to, args.device)
    }))
}

/// A length that is the only number of a tensor.
fn length(value: Value) -> Result<usize, OpError> {
    let length = host::int(value)?;
    let found = usize::try_from(length).ok().filter(|length| (1..=LONGEST).contains(length));
    found.ok_or_else(|| OpError(format!("a length of {length}; it may be 1 to {LONGEST}")))
}

/// The parts of complex numbers.
type Complex = (f64, f64);

fn times(a: Complex, b: Complex) -> Complex {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

fn turned(angle: f64) -> Complex {
    (angle.cos(), angle.sin())
}

/// The discrete Fourier transform, with the sign of its exponent: -1 forwards, 1 backwards. Not divided by the length.
fn transformed(x: &[Complex], sign: f64) -> Vec<Complex> {
    let n = x.len();
    if n.is_power_of_two() {
        let mut x = x.to_vec();
        by_halves(&mut x, sign);
        return x;
    }
    // Bluestein: any length as a convolution whose length is a power of two. i² is taken modulo 2n to keep its digits.
    let chirp = |i: usize| turned(sign * PI * ((i as u128 * i as u128) % (2 * n as u128)) as f64 / n as f64);
    let size = (2 * n - 1).next_power_of_two();
    let (mut a, mut b) = (vec![(0.0, 0.0); size], vec![(0.0, 0.0); size]);
    for (i, &x) in x.iter().enumerate() {
        let (re, im) = chirp(i);
        a[i] = times(x, (re, im));
        b[i] = (re, -im);
        b[(size - i) % size] = (re, -im);
    }
    by_halves(&mut a, -1.0);
    by_halves(&mut b, -1.0);
    a.iter_mut().zip(&b).for_each(|(a, &b)| *a = times(*a, b));
    by_halves(&mut a, 1.0);
    let scale = 1.0 / size as f64;
    (0..n).map(|i| times((a[i].0 * scale, a[i].1 * scale), chirp(i))).collect()
}

/// Cooley and Tukey's, in place, for powers of two.
fn by_halves(x: &mut [Complex], sign: f64) {
    let n = x.len();
    let mut j = 0;
    for i in 1..n {
        let mut bit = n >> 1;
        while j & bit != 0 {
            j ^= bit;
            bit >>= 1;
        }
        j |= bit;
        if i < j {
            x.swap(i, j);
        }
    }
    let mut width = 2;
    while width <= n {
        let factors: Vec<Complex> = (0..width / 2).map(|k| turned(sign * 2.0 * PI * k as f64 / width as f64)).collect();
        for block in x.chunks_mut(width) {
            let (low, high) = block.split_at_mut(width / 2);
            for ((low, high), &factor) in low.iter_mut().zip(high).zip(&factors) {
                let part = times(*high, factor);
                (*low, *high) = ((low.0 + part.0, low.1 + part.1), (low.0 - part.0, low.1 - part.1));
            }
        }
        width *= 2;
    }
}

/// How many numbers of a spectrum of this length there are to give.
fn bins(length: usize, onesided: bool) -> usize {
    if onesided { length / 2 + 1 } else { length }
}

/// Spectra along an axis, or what has these spectra. The last axis holds real numbers, or pairs.
fn spectrum(
    x: Value,
    given: Option<Value>,
    at: i64,
    inverse: bool,
    onesided: bool,
    device: &DispatchDevice,
) -> Result<Value, OpError> {
    let (mut dims, kind) = (x.shape(), x.dtype());
    let at = axis(at, dims.len())?;
    let parts = dims.last().copied().unwrap_or(0);
    if dims.len() < 2 || at + 1 == dims.len() || !(1..=2).contains(&parts) || !kind.is_float() {
        return Err(OpError(format!("numbers of the shape {dims:?} along axis {at}")));
    }
    let have = dims[at];
    // Of one side of a spectrum all of it is known.
    let mirrored = inverse && onesided;
    let n = match given {
        Some(given) => length(given)?,
        None if mirrored => 2 * have.saturating_sub(1),
        None => have,
    };
    if !(1..=LONGEST).contains(&n) {
        return Err(OpError(format!("a spectrum of the length {n}")));
    }
    let data = elements_of::<f64>(x)?;
    let gives = if mirrored { n } else { bins(n, onesided) };
    let inner: usize = dims[at + 1..dims.len() - 1].iter().product();
    let outer: usize = dims[..at].iter().product();
    dims[at] = gives;
    let pair = if mirrored { 1 } else { 2 };
    if let Some(last) = dims.last_mut() {
        *last = pair;
    }
    let mut found = vec![0.0; elements(&dims)?];
    let (sign, scale) = if inverse { (1.0, 1.0 / n as f64) } else { (-1.0, 1.0) };
    for line in 0..outer * inner {
        let (block, place) = (line / inner, line % inner);
        let number = |i: usize| {
            let from = ((block * have + i) * inner + place) * parts;
            (data[from], if parts == 2 { data[from + 1] } else { 0.0 })
        };
        let side = |i: usize| if i < have { number(i) } else { (0.0, 0.0) };
        let whole = |i: usize| match mirrored && i > n / 2 {
            true => (side(n - i).0, -side(n - i).1),
            false => side(i),
        };
        let line: Vec<Complex> = (0..n).map(whole).collect();
        for (i, (re, im)) in transformed(&line, sign).into_iter().take(gives).enumerate() {
            let to = ((block * gives + i) * inner + place) * pair;
            found[to] = re * scale;
            if pair == 2 {
                found[to + 1] = im * scale;
            }
        }
    }
    value_of(found, dims, kind, device)
}

/// Spectra of parts of a signal that overlap: [rows, frames, bins, 2].
fn frames(args: &mut Args<'_>, onesided: bool) -> Result<Value, OpError> {
    let (x, step) = (args.take(0)?, length(args.take(1)?)?);
    let (window, size) = (args.optional(2), args.optional(3).map(length).transpose()?);
    let (dims, kind) = (x.shape(), x.dtype());
    let (rows, long, parts) = match dims[..] {
        [rows, long] => (rows, long, 1),
        [rows, long, parts @ 1..=2] => (rows, long, parts),
        _ => return Err(OpError(format!("a signal of the shape {dims:?}"))),
    };
    let window = window.map(elements_of::<f64>).transpose()?;
    let size = size.or(window.as_ref().map(Vec::len)).ok_or_else(|| OpError::new("frames of no length"))?;
    if size > long || size == 0 || window.as_ref().is_some_and(|window| window.len() != size) {
        return Err(OpError(format!("frames of {size} numbers in a signal of {long}, or another window")));
    }
    let (count, bins) = ((long - size) / step + 1, bins(size, onesided));
    let shape = vec![rows, count, bins, 2];
    let mut found = Vec::with_capacity(elements(&shape)?);
    let data = elements_of::<f64>(x)?;
    for frame in 0..rows * count {
        let from = frame / count * long + frame % count * step;
        let number = |i: usize| {
            let weight = window.as_ref().map_or(1.0, |window| window[i]);
            let at = (from + i) * parts;
            (data[at] * weight, if parts == 2 { data[at + 1] * weight } else { 0.0 })
        };
        let line: Vec<Complex> = (0..size).map(number).collect();
        found.extend(transformed(&line, -1.0).into_iter().take(bins).flat_map(|(re, im)| [re, im]));
    }
    value_of(found, shape, kind, args.device)
}

/// Triangles on the mel scale: [bins of a spectrum, mel bins].
fn mel(args: &mut Args<'_>, to: DType) -> Result<Value, OpError> {
    let (count, size, rate) = (length(args.take(0)?)?, length(args.take(1)?)?, length(args.take(2)?)?);
    let (low, high) = (host::float(args.take(3)?)?, host::float(args.take(4)?)?);
    let rows = size / 2 + 1;
    let mut weights = vec![0.0; elements(&[rows, count])?];
    let scale = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
    let step = (scale(high) - scale(low)) / (count + 2) as f64;
    let edge = |i: usize| {
        let hertz = 700.0 * (10f64.powf((i as f64 * step + scale(low)) / 2595.0) - 1.0);
        ((size + 1) as f64 * hertz / rate as f64).floor()
    };
    for i in 0..count {
        let edges = [edge(i), edge(i + 1), edge(i + 2)];
        if edges.iter().any(|&edge| !(0.0..rows as f64 + 1.0).contains(&edge)) {
            return Err(OpError(format!("edges of {low} and {high} Hz do not fit a spectrum of {rows} numbers")));
        }
        let [lower, center, upper] = edges.map(|edge| edge as usize);
        let mut set = |row: usize, weight: f64| {
            if let Some(place) = weights.get_mut(row * count + i) {
                *place = weight;
            }
        };
        match center - lower {
            0 => set(center, 1.0),
            rise => (lower..=center).for_each(|row| set(row, (row - lower) as f64 / rise as f64)),
        }
        (center..upper).for_each(|row| set(row, (upper - row) as f64 / (upper - center) as f64));
    }
    value_of(weights, vec![rows, count], to, args.device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transform_of_any_length_is_its_sum() {
        for n in [1usize, 2, 3, 5, 8, 12, 16, 17, 100] {
            let x: Vec<Complex> = (0..n).map(|i| ((i * i % 7) as f64, (i % 3) as f64 - 1.0)).collect();
            let found = transformed(&x, -1.0);
            for (k, found) in found.iter().enumerate() {
                let sum = x.iter().enumerate().fold((0.0, 0.0), |sum, (i, &x)| {
                    let part = times(x, turned(-2.0 * PI * (i * k) as f64 / n as f64));
                    (sum.0 + part.0, sum.1 + part.1)
                });
                assert!((found.0 - sum.0).abs() < 1e-9 && (found.1 - sum.1).abs() < 1e-9, "{n}: {k}");
            }
        }
    }
}
