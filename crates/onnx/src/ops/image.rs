//! Sampling images and volumes at places that are computed: grids and regions. On the host.

use burn_backend::ops::FloatTensorOps;
use burn_backend::{DType, TensorMetadata};
use burn_dispatch::DispatchDevice;
use rayon::prelude::*;

use super::along::{Real, elements_of, value_of};
use super::arrange::zeros;
use super::linear::matmul;
use super::{Build, Kernel, Operator};
use crate::value::{Backend as B, HostInts, OpError, Value, elements};
use uncork_model::quote::Quoted;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("AffineGrid", |build| {
        let corners = build.attributes.flag("align_corners", false)?;
        Ok(Kernel::one(move |mut args| affine_grid(args.take(0)?, &args.ints(1)?, corners, args.device)))
    }),
    Operator::new("GridSample", |build| {
        let sampling = Sampling::of(build)?;
        Ok(Kernel::one(move |mut args| {
            let (x, grid) = (args.take(0)?, args.take(1)?);
            match x.clone().float()?.dtype() {
                DType::F64 => sampling.sampled::<f64>(x, grid, args.device),
                _ => sampling.sampled::<f32>(x, grid, args.device),
            }
        }))
    }),
    Operator::new("RoiAlign", |build| {
        let regions = Regions::of(build)?;
        Ok(Kernel::one(move |mut args| {
            let (x, places) = (args.take(0)?, args.take(1)?);
            regions.aligned(x, places, &args.ints(2)?, args.device)
        }))
    }),
];

/// The places of an image or a volume under an affine map, from -1 to 1 on each axis.
fn affine_grid(theta: Value, size: &HostInts, corners: bool, device: &DispatchDevice) -> Result<Value, OpError> {
    let size: Option<Vec<usize>> = size.ints.iter().map(|&d| usize::try_from(d).ok()).collect();
    let (size, shape) = (size.unwrap_or_default(), theta.shape());
    let space = size.get(2..).unwrap_or_default().to_vec();
    let axes = space.len();
    if !(2..=3).contains(&axes) || shape != [size[0], axes, axes + 1] {
        return Err(OpError(format!("maps of the shape {shape:?} do not fit the size {size:?}")));
    }
    let points = elements(&space)?;
    let out = [&size[..1], &space, &[axes]].concat();
    elements(&out)?;
    elements(&[points, axes + 1])?;
    let theta = theta.float()?;
    let kind = theta.dtype();
    let mut base = Vec::with_capacity(points * (axes + 1));
    for point in 0..points {
        let mut rest = point;
        // The last axis comes first.
        for &length in space.iter().rev() {
            let at = (rest % length) as f64;
            rest /= length;
            base.push(match corners {
                true => -1.0 + 2.0 * at / (length as f64 - 1.0).max(1.0),
                false => (2.0 * at + 1.0) / length as f64 - 1.0,
            });
        }
        base.push(1.0);
    }
    let base = value_of(base, vec![1, points, axes + 1], kind, device)?.float()?;
    Value::Float(matmul(base, B::float_swap_dims(theta, 1, 2))?).reshape(out)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interpolation {
    Nearest,
    Linear,
    Cubic,
}

/// What is beyond the border.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beyond {
    Zeros,
    Border,
    Reflection,
}

/// How an image is sampled at the points of a grid.
struct Sampling {
    interpolation: Interpolation,
    beyond: Beyond,
    corners: bool,
}

/// The most neighbours along one axis.
const MOST: usize = 4;

impl Sampling {
    fn of(build: &Build<'_>) -> Result<Sampling, OpError> {
        let attributes = &build.attributes;
        let interpolation = match attributes.text("mode", "linear")?.as_str() {
            "nearest" => Interpolation::Nearest,
            "linear" | "bilinear" => Interpolation::Linear,
            "cubic" | "bicubic" => Interpolation::Cubic,
            other => return Err(OpError(format!("mode={}", Quoted(other)))),
        };
        let beyond = match attributes.text("padding_mode", "zeros")?.as_str() {
            "zeros" => Beyond::Zeros,
            "border" => Beyond::Border,
            "reflection" => Beyond::Reflection,
            other => return Err(OpError(format!("padding_mode={}", Quoted(other)))),
        };
        Ok(Sampling { interpolation, beyond, corners: attributes.flag("align_corners", false)? })
    }

    fn sampled<T: Real>(&self, x: Value, grid: Value, device: &DispatchDevice) -> Result<Value, OpError> {
        let (dims, kind) = (x.shape(), x.clone().float()?.dtype());
        let shape = grid.shape();
        let axes = dims.len().saturating_sub(2);
        let fits = shape.len() == dims.len() && shape.first() == dims.first() && shape.last() == Some(&axes);
        if !(1..=3).contains(&axes) || !fits || dims[2..].contains(&0) {
            return Err(OpError(format!("a grid of shape {shape:?} does not fit the shape {dims:?}")));
        }
        let (channels, space) = (dims[1], &dims[2..]);
        let (points, pixels) = (elements(&shape[1..=axes])?, elements(space)?);
        let out = [&dims[..2], &shape[1..=axes]].concat();
        if elements(&out)? == 0 {
            return zeros(out, kind, device);
        }
        let each = match self.interpolation {
            Interpolation::Nearest => 1,
            Interpolation::Linear => 1 << axes,
            Interpolation::Cubic => MOST.pow(axes as u32),
        };
        elements(&[points, each])?;
        let mut sums = vec![T::default(); elements(&out)?];
        let (x, grid) = (elements_of::<T>(x)?, elements_of::<f64>(grid)?);
        let rows = sums.chunks_mut(channels * points).zip(x.chunks(channels * pixels)).zip(grid.chunks(points * axes));
        for ((sums, x), grid) in rows {
            // The neighbours of a point are the same in all channels.
            let mut neighbours: Vec<(usize, T)> = Vec::with_capacity(points * each);
            for point in grid.chunks(axes) {
                self.neighbours(point, space, &mut neighbours);
            }
            sums.par_chunks_mut(points).zip(x.par_chunks(pixels)).for_each(|(sums, x)| {
                for (sum, neighbours) in sums.iter_mut().zip(neighbours.chunks(each)) {
                    for &(at, weight) in neighbours {
                        *sum += x[at] * weight;
                    }
                }
            });
        }
        value_of(sums, out, kind, device)
    }

    /// Adds the pixels around a point, with their weights. The point has the last axis first.
    fn neighbours<T: Real>(&self, point: &[f64], space: &[usize], all: &mut Vec<(usize, T)>) {
        let mut found: Vec<(usize, f64)> = vec![(0, 1.0)];
        for (&at, &length) in point.iter().rev().zip(space) {
            let axis = self.axis(at, length);
            found = found
                .iter()
                .flat_map(|&(to, weight)| axis.iter().map(move |&(at, part)| (to * length + at, weight * part)))
                .collect();
        }
        // Those beyond the border have weight 0, which keeps the number the same everywhere.
        all.extend(found.into_iter().map(|(at, weight)| (at, T::of(weight))));
    }

    /// The places along one axis around a coordinate from -1 to 1.
    fn axis(&self, at: f64, length: usize) -> Vec<(usize, f64)> {
        let size = length as f64;
        let (low, high) = if self.corners { (0.0, size - 1.0) } else { (-0.5, size - 0.5) };
        let x = if self.corners { (at + 1.0) / 2.0 * (size - 1.0) } else { ((at + 1.0) * size - 1.0) / 2.0 };
        // Far enough outside that nothing changes, near enough to count on.
        let mut x = x.clamp(-1e9, 1e9);
        if self.interpolation == Interpolation::Nearest {
            x = x.round_ties_even();
        }
        // The cubic one looks at neighbours far outside as they are; so does PyTorch.
        if self.interpolation != Interpolation::Cubic && (x < low || x > high) {
            x = match self.beyond {
                Beyond::Zeros => x,
                Beyond::Border => x.clamp(0.0, size - 1.0),
                Beyond::Reflection => reflected(x, low, high),
            };
        }
        let pixel = |at: f64, weight: f64| {
            let inside = match self.beyond {
                Beyond::Zeros if at < 0.0 || at >= size => return (0, 0.0),
                Beyond::Zeros | Beyond::Border => at,
                Beyond::Reflection => reflected(at, low, high),
            };
            (inside.clamp(0.0, size - 1.0) as usize, weight)
        };
        let first = x.floor();
        let part = x - first;
        match self.interpolation {
            Interpolation::Nearest => vec![pixel(x.trunc(), 1.0)],
            Interpolation::Linear => vec![pixel(first, 1.0 - part), pixel(first + 1.0, part)],
            Interpolation::Cubic => {
                let near = |x: f64| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
                let far = |x: f64| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
                let weights = [far(part + 1.0), near(part), near(1.0 - part), far(2.0 - part)];
                (0..).zip(weights).map(|(i, weight)| pixel(first - 1.0 + f64::from(i), weight)).collect()
            }
        }
    }
}

/// The coefficient of the cubic convolution.
const A: f64 = -0.75;

/// A coordinate thrown back at the borders until it is between them.
fn reflected(x: f64, low: f64, high: f64) -> f64 {
    let range = high - low;
    if range <= 0.0 || (low..=high).contains(&x) {
        return x.clamp(low, low.max(high));
    }
    let beyond = if x < low { low - x } else { x - high };
    let turns = (beyond / range).floor();
    let rest = beyond - turns * range;
    let even = turns % 2.0 == 0.0;
    if (x < low) == even { low + rest } else { high - rest }
}

/// How regions of images are brought to one size.
struct Regions {
    maximum: bool,
    height: usize,
    width: usize,
    /// Samples along each axis of a cell; 0 for as many as it has pixels.
    samples: usize,
    scale: f64,
    offset: f64,
}

/// Most samples along each axis of a cell. A region comes with a request and may be of any size.
const MOST_SAMPLES: usize = 1 << 10;

impl Regions {
    fn of(build: &Build<'_>) -> Result<Regions, OpError> {
        let attributes = &build.attributes;
        let length = |name: &str, default: i64, least: usize| {
            let length = attributes.int(name, default)?;
            let length = usize::try_from(length).ok().filter(|l| (least..=MOST_SAMPLES).contains(l));
            length.ok_or_else(|| OpError(format!("attribute '{name}' must be {least} to {MOST_SAMPLES}")))
        };
        let maximum = match attributes.text("mode", "avg")?.as_str() {
            "avg" => false,
            "max" => true,
            other => return Err(OpError(format!("mode={}", Quoted(other)))),
        };
        let default = if build.opset < 16 { "output_half_pixel" } else { "half_pixel" };
        let offset = match attributes.text("coordinate_transformation_mode", default)?.as_str() {
            "half_pixel" => 0.5,
            "output_half_pixel" => 0.0,
            other => return Err(OpError(format!("coordinate_transformation_mode={}", Quoted(other)))),
        };
        Ok(Regions {
            maximum,
            height: length("output_height", 1, 1)?,
            width: length("output_width", 1, 1)?,
            samples: length("sampling_ratio", 0, 0)?,
            scale: f64::from(attributes.float("spatial_scale", 1.0)?),
            offset,
        })
    }

    fn aligned(&self, x: Value, places: Value, images: &HostInts, device: &DispatchDevice) -> Result<Value, OpError> {
        let (dims, shape, kind) = (x.shape(), places.shape(), x.clone().float()?.dtype());
        let (&[n, channels, h, w], &[count, 4]) = (&dims[..], &shape[..]) else {
            return Err(OpError(format!("regions of shape {shape:?} do not fit the shape {dims:?}")));
        };
        if images.ints.len() != count || dims.contains(&0) {
            return Err(OpError(format!("{} images for {count} regions of {dims:?}", images.ints.len())));
        }
        let out = vec![count, channels, self.height, self.width];
        let mut all = Vec::with_capacity(elements(&out)?);
        let (x, places) = (elements_of::<f64>(x)?, elements_of::<f64>(places)?);
        for (place, &image) in places.chunks(4).zip(&images.ints) {
            let image = usize::try_from(image).ok().filter(|&image| image < n);
            let image = image.ok_or_else(|| OpError(format!("a region of an image beyond the {n} that there are")))?;
            let (cells, samples) = self.cells([h, w], place)?;
            for channel in 0..channels {
                let from = (image * channels + channel) * h * w;
                let pixels = &x[from..from + h * w];
                all.extend(cells.iter().map(|cell| self.value(cell, samples, pixels)));
            }
        }
        value_of(all, out, kind, device)
    }

    /// The samples of each cell of a region: each four pixels with their weights. And how many a cell should have.
    fn cells(&self, space: [usize; 2], place: &[f64]) -> Result<(Vec<Vec<Neighbours>>, usize), OpError> {
        let corner = |i: usize| place[i] * self.scale - self.offset;
        // Height first; places come with the width first.
        let start = [corner(1), corner(0)];
        let mut size = [corner(3) - corner(1), corner(2) - corner(0)];
        if self.offset == 0.0 {
            size = size.map(|length| length.max(1.0));
        }
        let cells = [self.height, self.width];
        let cell = [size[0] / self.height as f64, size[1] / self.width as f64];
        let counts = cell.map(|length| if self.samples > 0 { self.samples } else { length.ceil() as usize });
        if counts.iter().any(|&count| count > MOST_SAMPLES) {
            return Err(OpError(format!("a region of {size:?} pixels is too large")));
        }
        elements(&[cells[0], cells[1], counts[0], counts[1]])?;
        let along = |i: usize, place: usize, sample: usize| {
            start[i] + cell[i] * (place as f64 + (sample as f64 + 0.5) / counts[i] as f64)
        };
        let mut all = Vec::with_capacity(cells[0] * cells[1]);
        for y in 0..cells[0] {
            for x in 0..cells[1] {
                let samples = (0..counts[0]).flat_map(|i| (0..counts[1]).map(move |j| (i, j)));
                let samples = samples.map(|(i, j)| bilinear(space, [along(0, y, i), along(1, x, j)]));
                all.push(samples.collect());
            }
        }
        Ok((all, (counts[0] * counts[1]).max(1)))
    }

    fn value(&self, cell: &[Neighbours], samples: usize, pixels: &[f64]) -> f64 {
        let parts = cell.iter().map(|sample| sample.map(|(at, weight)| pixels[at] * weight));
        if self.maximum {
            // ONNX takes the largest of the weighted pixels.
            return parts.flatten().reduce(f64::max).unwrap_or(0.0);
        }
        parts.map(|four| four.iter().sum::<f64>()).sum::<f64>() / samples as f64
    }
}

/// Four pixels with their weights.
type Neighbours = [(usize, f64); 4];

/// The four pixels around a place; none counts where it is more than one pixel outside.
fn bilinear([h, w]: [usize; 2], [y, x]: [f64; 2]) -> Neighbours {
    let near = |at: f64, length: usize| (-1.0..=length as f64).contains(&at);
    if !near(y, h) || !near(x, w) {
        return [(0, 0.0); 4];
    }
    let along = |at: f64, length: usize| {
        let at = at.clamp(0.0, length as f64 - 1.0);
        let low = at as usize;
        (low, (low + 1).min(length - 1), at - low as f64)
    };
    let ((top, bottom, down), (left, right, over)) = (along(y, h), along(x, w));
    [
        (top * w + left, (1.0 - down) * (1.0 - over)),
        (top * w + right, (1.0 - down) * over),
        (bottom * w + left, down * (1.0 - over)),
        (bottom * w + right, down * over),
    ]
}
