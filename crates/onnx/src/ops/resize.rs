//! Resizing: each axis by itself, each new place from its neighbours in the old ones.

use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
use burn_backend::{DType, TensorData, TensorMetadata};
use burn_dispatch::DispatchDevice;
use uncork_model::quote::Quoted;

use super::along::{Real, Taps, elements_of, value_of, weighted};
use super::arrange::zeros;
use super::{Args, Build, Kernel, Operator};
use crate::fast::resize::{Picks, pick};
use crate::floats::{self, Floats};
use crate::memory;
use crate::value::{Backend as B, OpError, Value, axis, elements};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Resize", |build| {
        // Opset 10 has no regions: its scales come second.
        let first = build.opset <= 10;
        let mode = Mode::of(build)?;
        let [roi, scales, sizes] = if first { [None, Some(1), None] } else { [Some(1), Some(2), Some(3)] };
        Ok(Kernel::one(move |mut args| {
            let x = args.take(0)?;
            let mut get = |i: Option<usize>| i.and_then(|i| args.optional(i)).filter(|v| v.shape() != [0]);
            let wanted = Wanted {
                roi: get(roi).map(elements_of::<f64>).transpose()?,
                scales: get(scales).map(elements_of::<f32>).transpose()?,
                sizes: get(sizes).map(Value::ints).transpose()?.map(|sizes| sizes.ints),
            };
            mode.resized(x, &wanted, args.device)
        }))
    }),
    Operator::new("Upsample", |build| {
        let given = build.attributes.floats("scales")?;
        let mode = Mode::of(build)?;
        Ok(Kernel::one(move |mut args: Args<'_>| {
            let x = args.take(0)?;
            let scales = match &given {
                Some(scales) => scales.clone(),
                None => elements_of::<f32>(args.take(1)?)?,
            };
            mode.resized(x, &Wanted { roi: None, scales: Some(scales), sizes: None }, args.device)
        }))
    }),
];

/// How much larger the result is to be; one of scales and sizes is given.
struct Wanted {
    /// Where the part to be resized begins on each axis, then where it ends, in parts of the whole.
    roi: Option<Vec<f64>>,
    scales: Option<Vec<f32>>,
    sizes: Option<Vec<i64>>,
}

/// What the neighbours of a place make of it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Nearest(Nearest),
    Linear,
    /// With the coefficient that the spline has.
    Cubic(f64),
}

/// Which neighbour is the nearest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nearest {
    Floor,
    Ceil,
    PreferFloor,
    PreferCeil,
    /// Before opset 11: the one before when growing, the one behind when shrinking.
    Old,
}

/// Where a new place is among the old ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coordinates {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    HalfPixelForNearest,
    AlignCorners,
    Asymmetric,
    Crop,
}

/// What to do with sizes of another proportion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proportion {
    Stretch,
    NotLarger,
    NotSmaller,
}

/// The attributes of a node that resizes.
struct Mode {
    kind: Kind,
    coordinates: Coordinates,
    antialias: bool,
    exclude_outside: bool,
    extrapolation: f64,
    axes: Option<Vec<i64>>,
    proportion: Proportion,
}

impl Mode {
    fn of(build: &Build<'_>) -> Result<Mode, OpError> {
        let attributes = &build.attributes;
        let old = build.opset <= 10;
        let a = f64::from(attributes.float("cubic_coeff_a", -0.75)?);
        let nearest = match attributes.text("nearest_mode", "round_prefer_floor")?.as_str() {
            _ if old => Nearest::Old,
            "round_prefer_floor" => Nearest::PreferFloor,
            "round_prefer_ceil" => Nearest::PreferCeil,
            "floor" => Nearest::Floor,
            "ceil" => Nearest::Ceil,
            other => return Err(OpError(format!("nearest_mode={}", Quoted(other)))),
        };
        let kind = match attributes.text("mode", "nearest")?.as_str() {
            "nearest" => Kind::Nearest(nearest),
            "linear" | "bilinear" => Kind::Linear,
            "cubic" => Kind::Cubic(a),
            other => return Err(OpError(format!("mode={}", Quoted(other)))),
        };
        let default = if old { "asymmetric" } else { "half_pixel" };
        let coordinates = match attributes.text("coordinate_transformation_mode", default)?.as_str() {
            "half_pixel" => Coordinates::HalfPixel,
            "half_pixel_symmetric" => Coordinates::HalfPixelSymmetric,
            "pytorch_half_pixel" => Coordinates::PytorchHalfPixel,
            "tf_half_pixel_for_nn" => Coordinates::HalfPixelForNearest,
            "align_corners" => Coordinates::AlignCorners,
            "asymmetric" => Coordinates::Asymmetric,
            "tf_crop_and_resize" => Coordinates::Crop,
            other => return Err(OpError(format!("coordinate_transformation_mode={}", Quoted(other)))),
        };
        let proportion = match attributes.text("keep_aspect_ratio_policy", "stretch")?.as_str() {
            "stretch" => Proportion::Stretch,
            "not_larger" => Proportion::NotLarger,
            "not_smaller" => Proportion::NotSmaller,
            other => return Err(OpError(format!("keep_aspect_ratio_policy={}", Quoted(other)))),
        };
        Ok(Mode {
            kind,
            coordinates,
            antialias: attributes.flag("antialias", false)?,
            exclude_outside: attributes.flag("exclude_outside", false)?,
            extrapolation: f64::from(attributes.float("extrapolation_value", 0.0)?),
            axes: attributes.ints("axes")?,
            proportion,
        })
    }

    fn resized(&self, x: Value, wanted: &Wanted, device: &DispatchDevice) -> Result<Value, OpError> {
        let dims = x.shape();
        let sides = self.sides(&dims, wanted)?;
        let mut out = dims.clone();
        sides.iter().for_each(|side| out[side.axis] = side.new);
        if elements(&out)? == 0 || dims.contains(&0) {
            return zeros(out, x.dtype(), device);
        }
        // onnxruntime looks no further, though a scale or a region may say something else.
        if out == dims {
            return Ok(x);
        }
        match (self.kind, self.coordinates) {
            (Kind::Nearest(_), Coordinates::Crop) => self.interpolated(x, &sides, device),
            (Kind::Nearest(nearest), _) => self.picked(x, &sides, nearest, device),
            _ => self.interpolated(x, &sides, device),
        }
    }

    /// Picks the nearest neighbours, which needs no arithmetic on the elements.
    fn picked(
        &self,
        mut x: Value,
        sides: &[Side],
        nearest: Nearest,
        device: &DispatchDevice,
    ) -> Result<Value, OpError> {
        let at = |side: &Side| -> Vec<usize> {
            (0..side.new).map(|place| side.nearest(self.coordinates, place, nearest)).collect()
        };
        if let Some(y) = picked_fast(&x, sides, at, device)? {
            return Ok(y);
        }
        // The last axis first, while there is little to pick in short runs.
        for side in sides.iter().rev() {
            let at: Vec<i64> = at(side).into_iter().map(|at| at as i64).collect();
            let at = B::int_from_data(TensorData::new(at, [side.new]), device);
            x = match x {
                Value::Float(t) => Value::Float(B::float_select(t, side.axis, at)),
                Value::Bool(t) => Value::Bool(B::bool_select(t, side.axis, at)),
                x => Value::Int(B::int_select(x.int_tensor(device)?, side.axis, at)),
            };
        }
        Ok(x)
    }

    /// Weighs the neighbours on the host. Integers become fractions, and are cut off to integers again. Where neighbours are smoothed they are rounded, after
    /// each axis: as in onnxruntime.
    fn interpolated(&self, x: Value, sides: &[Side], device: &DispatchDevice) -> Result<Value, OpError> {
        fn run<T: Real>(
            mode: &Mode,
            x: Value,
            sides: &[Side],
            rounded: impl Fn(T) -> T,
        ) -> Result<(Vec<T>, Vec<usize>), OpError> {
            let mut dims = x.shape();
            let mut data = elements_of::<T>(x)?;
            for side in sides.iter().rev() {
                data = weighted(&data, &mut dims, side.axis, &side.taps(mode))?;
                if mode.antialias {
                    data.iter_mut().for_each(|x| *x = rounded(*x));
                }
            }
            // Whole lines that are outside on one axis.
            for side in sides.iter().filter(|_| mode.coordinates == Coordinates::Crop) {
                let inner: usize = dims[side.axis + 1..].iter().product();
                for (line, elements) in data.chunks_mut(inner.max(1)).enumerate() {
                    if side.outside(line % side.new) {
                        elements.fill(T::of(mode.extrapolation));
                    }
                }
            }
            Ok((data, dims))
        }
        let kind = match &x {
            Value::Float(t) | Value::Int(t) => t.dtype(),
            Value::Host(_) => DType::I64,
            Value::Bool(_) => return Err(OpError::new("truth values can only be resized with mode='nearest'")),
            other => return Err(OpError(format!("expects numbers and gets {}", other.kind()))),
        };
        if kind == DType::F64 {
            let (data, dims) = run::<f64>(self, x, sides, |x| x)?;
            return value_of(data, dims, kind, device);
        }
        let range = match kind {
            DType::U8 => Some((0.0, 255.0)),
            DType::I8 => Some((-128.0, 127.0)),
            _ => None,
        };
        let clamped = |x: f32| range.map_or(x, |(low, high)| x.clamp(low, high));
        let rounded = |x| if range.is_some() { (clamped(x) + 0.5).floor() } else { x };
        let (mut data, dims) = run::<f32>(self, x, sides, rounded)?;
        if range.is_some() {
            data.iter_mut().for_each(|x| *x = clamped(*x).trunc());
        }
        value_of(data, dims, kind, device)
    }

    /// The axes whose elements change.
    fn sides(&self, dims: &[usize], wanted: &Wanted) -> Result<Vec<Side>, OpError> {
        let axes = match &self.axes {
            Some(axes) => axes.iter().map(|&a| axis(a, dims.len())).collect::<Result<Vec<_>, _>>()?,
            None => (0..dims.len()).collect(),
        };
        let count = wanted.sizes.as_ref().map(Vec::len).or(wanted.scales.as_ref().map(Vec::len));
        let roi = wanted.roi.as_deref().filter(|_| self.coordinates == Coordinates::Crop);
        if count != Some(axes.len()) || roi.is_some_and(|roi| roi.len() != 2 * axes.len()) {
            return Err(OpError(format!("sizes, scales or region do not fit the axes {axes:?}")));
        }
        let mut sides = Vec::new();
        for (i, &axis) in axes.iter().enumerate() {
            let old = dims[axis];
            let (new, scale, resized) = match (&wanted.sizes, &wanted.scales) {
                (Some(sizes), _) => {
                    let new = usize::try_from(sizes[i]).map_err(|_| OpError(format!("a size of {}", sizes[i])))?;
                    (new, new as f64 / old as f64, new as f64)
                }
                (None, Some(scales)) if scales[i].is_finite() && scales[i] > 0.0 => {
                    let scale = f64::from(scales[i]);
                    ((scales[i] * old as f32) as usize, scale, scale * old as f64)
                }
                (None, scales) => return Err(OpError(format!("scales of {scales:?}"))),
            };
            if old == 0 && new > 0 {
                return Err(OpError(format!("an empty axis cannot be resized to {new}")));
            }
            sides.push(Side {
                axis,
                old,
                new,
                scale,
                resized,
                by_size: wanted.sizes.is_some() && self.proportion == Proportion::Stretch,
                roi: roi.map_or((0.0, 1.0), |roi| (roi[i], roi[axes.len() + i])),
            });
        }
        if wanted.sizes.is_some() && self.proportion != Proportion::Stretch {
            let scales = sides.iter().map(|side| side.scale);
            let scale = match self.proportion {
                Proportion::NotLarger => scales.fold(f64::INFINITY, f64::min),
                _ => scales.fold(0.0, f64::max),
            };
            for side in &mut sides {
                side.resized = scale * side.old as f64;
                (side.scale, side.new) = (scale, (side.resized + 0.5) as usize);
            }
        }
        sides.retain(|side| side.new != side.old || side.scale != 1.0 || side.roi != (0.0, 1.0));
        sides.sort_by_key(|side| side.axis);
        if sides.windows(2).any(|pair| pair[0].axis == pair[1].axis) {
            return Err(OpError(format!("an axis comes twice in {axes:?}")));
        }
        Ok(sides)
    }
}

/// Picks lines and columns of images whose elements are at hand.
fn picked_fast(
    x: &Value,
    sides: &[Side],
    picks: impl Fn(&Side) -> Vec<usize>,
    device: &DispatchDevice,
) -> Result<Option<Value>, OpError> {
    let dims = x.shape();
    let (Value::Float(handle), Some(lines)) = (x, dims.len().checked_sub(2)) else { return Ok(None) };
    let Some(floats) = Floats::of(handle).filter(|_| sides.iter().all(|side| side.axis >= lines)) else {
        return Ok(None);
    };
    let along = |axis: usize| {
        let side = sides.iter().find(|side| side.axis == axis);
        side.map_or_else(|| (0..dims[axis]).collect(), &picks)
    };
    let (rows, columns) = (along(lines), along(lines + 1));
    let mut out = dims.clone();
    (out[lines], out[lines + 1]) = (rows.len(), columns.len());
    let mut y = memory::take(elements(&out)?);
    pick(floats.as_slice(), [dims[lines], dims[lines + 1]], Picks { lines: &rows, columns: &columns }, &mut y);
    floats::tensor(y, out, device).map(Some)
}

/// One axis that is resized.
struct Side {
    axis: usize,
    old: usize,
    new: usize,
    scale: f64,
    /// The new length, with the fraction of a place that a scale leaves.
    resized: f64,
    /// Whether the file gives the length, and no scale.
    by_size: bool,
    roi: (f64, f64),
}

impl Side {
    /// Where new place `place` is among the old ones.
    fn coordinate(&self, coordinates: Coordinates, place: usize) -> f64 {
        let (place, last, new) = (place as f64, self.old as f64 - 1.0, self.new as f64);
        // Exact, where sizes say it; else by the precision of the file's scales: 3 / 0.6 is 5, where the nearest double to a float of 0.6 makes 4.9999998 of it.
        let by_scale = |place: f64| match self.by_size {
            true => place * self.old as f64 / self.new as f64,
            false => f64::from(place as f32 / self.scale as f32),
        };
        let half = by_scale(place + 0.5) - 0.5;
        match coordinates {
            Coordinates::HalfPixel => half,
            Coordinates::HalfPixelSymmetric => self.old as f64 / 2.0 * (1.0 - new / self.resized) + half,
            Coordinates::PytorchHalfPixel if self.new <= 1 => 0.0,
            Coordinates::PytorchHalfPixel => half,
            Coordinates::HalfPixelForNearest => by_scale(place + 0.5),
            // The corners are those of whole places, as in PyTorch and onnxruntime, also where a scale leaves a part of one. ONNX's own tests
            // count the part.
            Coordinates::AlignCorners if self.new == 1 => 0.0,
            Coordinates::AlignCorners => place * last / (new - 1.0),
            Coordinates::Asymmetric => by_scale(place),
            // By the precision of the file's regions, in which half of 0.2 and 0.8 is a half.
            Coordinates::Crop => {
                let [start, end, last, new, place] = [self.roi.0, self.roi.1, last, new, place].map(|x| x as f32);
                f64::from(match new {
                    1.0 => 0.5 * (start + end) * last,
                    _ => start * last + place * (end - start) * last / (new - 1.0),
                })
            }
        }
    }

    /// Whether a new place of a region is outside of the old ones.
    fn outside(&self, place: usize) -> bool {
        let x = self.coordinate(Coordinates::Crop, place);
        !(0.0..=self.old as f64 - 1.0).contains(&x)
    }

    fn clamped(&self, at: f64) -> usize {
        // Casts of what is not a number give 0.
        at.clamp(0.0, self.old as f64 - 1.0) as usize
    }

    fn nearest(&self, coordinates: Coordinates, place: usize, nearest: Nearest) -> usize {
        let x = self.coordinate(coordinates, place);
        self.clamped(match nearest {
            Nearest::Floor => x.floor(),
            Nearest::Ceil => x.ceil(),
            Nearest::PreferFloor => (x - 0.5).ceil(),
            Nearest::PreferCeil => (x + 0.5).floor(),
            Nearest::Old if self.scale < 1.0 => x.ceil(),
            Nearest::Old => x.floor(),
        })
    }

    /// The neighbours of each new place, with their weights. Places beyond the border count for the border.
    fn taps(&self, mode: &Mode) -> Taps {
        let shrunk = if mode.antialias { self.scale.min(1.0) } else { 1.0 };
        let (reach, weight): (f64, fn(f64, f64) -> f64) = match mode.kind {
            Kind::Nearest(_) => (0.0, linear),
            Kind::Linear => (1.0, linear),
            Kind::Cubic(_) => (2.0, cubic),
        };
        let a = if let Kind::Cubic(a) = mode.kind { a } else { 0.0 };
        let mut taps = Taps::default();
        for place in 0..self.new {
            if let Kind::Nearest(nearest) = mode.kind {
                taps.push([(self.nearest(mode.coordinates, place, nearest), 1.0)].into_iter());
                continue;
            }
            let x = self.coordinate(mode.coordinates, place);
            // Far beyond the border all is border.
            let x = x.clamp(-(self.old as f64) - 4.0, 2.0 * self.old as f64 + 4.0);
            let (first, last) = ((x - reach / shrunk).floor() as i64, (x + reach / shrunk).ceil() as i64);
            let inside = |at: i64| at >= 0 && at < self.old as i64;
            let parts = (first..=last).filter(|&at| !mode.exclude_outside || inside(at));
            let parts = parts.map(|at| (self.clamped(at as f64), weight((at as f64 - x).abs() * shrunk, a)));
            let sum: f64 = parts.clone().map(|(_, weight)| weight).sum();
            let sum = if sum == 0.0 { 1.0 } else { sum };
            taps.push(parts.filter(|(_, weight)| *weight != 0.0).map(|(at, weight)| (at, weight / sum)));
        }
        taps
    }
}

fn linear(distance: f64, _: f64) -> f64 {
    (1.0 - distance).max(0.0)
}

/// The cubic convolution of Keys (1981), with the coefficient `a`.
fn cubic(distance: f64, a: f64) -> f64 {
    let x = distance;
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use crate::author::Attribute::{Int, Text};
    use crate::ops::alone::alone;

    #[test]
    fn what_keeps_its_shape_keeps_its_elements_as_in_onnxruntime() {
        let x = TensorData::new(vec![1f32, 2.0, 5.0], [1, 1, 1, 3]);
        // Three times 1.3 are three, of which the old opset would pick the first place twice.
        let scales = || TensorData::from([1f32, 1.0, 1.0, 1.3]);
        assert_eq!(alone(10, "Resize", &[], [("x", x.clone()), ("s", scales())]), Ok(x.clone()));
        let linear = [("mode", Text("linear"))];
        assert_eq!(alone(13, "Resize", &linear, [("x", x.clone()), ("", x.clone()), ("s", scales())]), Ok(x.clone()));
        let crop = [("coordinate_transformation_mode", Text("tf_crop_and_resize"))];
        let roi = TensorData::from([0f32, 0.0, 0.0, 0.5, 1.0, 1.0, 1.0, 1.0]);
        let sizes = ("z", TensorData::from([1i64, 1, 1, 3]));
        assert_eq!(alone(13, "Resize", &crop, [("x", x.clone()), ("r", roi), ("", x.clone()), sizes]), Ok(x));
    }

    #[test]
    fn bytes_that_are_smoothed_are_rounded_after_each_axis_and_others_are_cut_off() {
        // From onnxruntime.
        let x = TensorData::new(
            vec![107u8, 222, 246, 73, 29, 154, 170, 199, 164, 183, 234, 234, 237, 220, 184, 235],
            [1, 1, 4, 4],
        );
        let resized = |mode, smoothed| {
            let inputs = [("x", x.clone()), ("", x.clone()), ("s", TensorData::from([1f32, 1.0, 0.5, 0.5]))];
            alone(18, "Resize", &[("mode", Text(mode)), ("antialias", Int(smoothed))], inputs)
        };
        let of = |bytes: [u8; 4]| Ok(TensorData::new(bytes.to_vec(), [1, 1, 2, 2]));
        assert_eq!(resized("linear", 1), of([142, 176, 191, 215]));
        assert_eq!(resized("cubic", 1), of([136, 183, 189, 220]));
        assert_eq!(resized("linear", 0), of([128, 172, 201, 221]));
    }

    #[test]
    fn corners_are_those_of_whole_places_where_a_scale_leaves_a_part_of_one() {
        let x = TensorData::new(vec![0f32, 1.0, 2.0, 3.0, 4.0], [1, 5]);
        let resized = |way: &str, roi: [f32; 4]| {
            let attributes = [("mode", Text("linear")), ("coordinate_transformation_mode", Text(way))];
            let inputs = [("x", x.clone()), ("r", TensorData::from(roi)), ("s", TensorData::from([1f32, 1.3]))];
            alone(13, "Resize", &attributes, inputs).unwrap().iter::<f32>().collect::<Vec<_>>()
        };
        // Of 6.5 places there are 6.
        assert_eq!(resized("align_corners", [0.0; 4]), [0.0, 0.8, 1.6, 2.4, 3.2, 4.0]);
        assert_eq!(resized("tf_crop_and_resize", [0.0, 0.0, 1.0, 0.5]), [0.0, 0.4, 0.8, 1.2, 1.6, 2.0]);
    }
}
