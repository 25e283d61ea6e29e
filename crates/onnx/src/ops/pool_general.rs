//! Pools in the rarer forms: three dimensions, integers, places of the maxima, powers, and back again.
//!
//! A window's maximum or sum is that of its rows' maxima or sums, so each dimension is reduced by itself.

use burn_backend::ops::FloatTensorOps;
use burn_backend::{DType, TensorMetadata};
use burn_dispatch::DispatchDevice;
use half::{bf16, f16};

use super::along::{Placed, Real, Taps, elements_of, largest, value_of, weighted};
use super::pool::global;
use super::window::{Divisor, Form, Window};
use super::{Args, Build, Kernel, Operator};
use crate::value::{Backend as B, Handle, OpError, Value, elements, integers};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("GlobalLpPool", |build| {
        let norm = Norm::of(build)?;
        global(move |x, axis| norm.after(B::float_sum_dim(norm.before(x), axis)))
    }),
    Operator::new("LpPool", |build| {
        let (norm, pool) = (Norm::of(build)?, Pool::of(build)?);
        Ok(Kernel::one(move |mut args| {
            let powers = Value::Float(norm.before(args.float(0)?));
            let sums = pool.sums(powers, Divisor::One, args.device)?.float()?;
            Ok(Value::Float(norm.after(sums)))
        }))
    }),
    Operator::new("MaxUnpool", |build| {
        let pool = Pool::of(build)?;
        Ok(Kernel::one(move |mut args| pool.unpooled(&mut args)))
    }),
];

/// (Σ |x|^p)^(1/p)
#[derive(Clone, Copy)]
struct Norm(f32);

impl Norm {
    fn of(build: &Build<'_>) -> Result<Norm, OpError> {
        match build.attributes.int("p", 2)? {
            p if p > 0 => Ok(Norm(p as f32)),
            p => Err(OpError(format!("a norm with p={p}"))),
        }
    }

    fn before(self, x: Handle) -> Handle {
        match self.0 {
            1.0 => B::float_abs(x),
            2.0 => B::float_mul(x.clone(), x),
            p => B::float_powf_scalar(B::float_abs(x), p.into()),
        }
    }

    fn after(self, x: Handle) -> Handle {
        match self.0 {
            1.0 => x,
            2.0 => B::float_sqrt(x),
            p => B::float_powf_scalar(x, (1.0 / p).into()),
        }
    }
}

/// A pool over one, two or three dimensions.
pub(super) struct Pool {
    form: Form,
    ceil: bool,
}

impl Pool {
    pub(super) fn of(build: &Build<'_>) -> Result<Pool, OpError> {
        let form = Form::of(build)?;
        if form.rank().is_none() {
            return Err(OpError::new("its attribute 'kernel_shape' is missing"));
        }
        Ok(Pool { form, ceil: build.attributes.flag("ceil_mode", false)? })
    }

    /// Whether the window has gaps.
    pub(super) fn dilated(&self) -> bool {
        self.form.dilated()
    }

    /// The window's elements along each dimension behind the channels.
    fn taps(&self, dims: &[usize], divisor: Divisor) -> Result<Vec<Taps>, OpError> {
        fn each<const D: usize>(
            window: &Window<D>,
            dims: &[usize],
            ceil: bool,
            divisor: Divisor,
        ) -> Result<Vec<Taps>, OpError> {
            let (_, _, space) = window.split(dims)?;
            (usize::from(window.flat)..D).map(|i| window.taps(space, i, ceil, divisor)).collect()
        }
        match self.form.rank() {
            Some(3) => each(&self.form.window::<3>(None)?, dims, self.ceil, divisor),
            _ => each(&self.form.window::<2>(None)?, dims, self.ceil, divisor),
        }
    }

    /// The sum of each window, divided.
    pub(super) fn sums(&self, x: Value, divisor: Divisor, device: &DispatchDevice) -> Result<Value, OpError> {
        fn run<T: Real>(x: Handle, taps: &[Taps], device: &DispatchDevice) -> Result<Value, OpError> {
            let (mut dims, dtype) = (x.shape().to_vec(), x.dtype());
            let mut data = elements_of::<T>(Value::Float(x))?;
            for (i, taps) in taps.iter().enumerate().rev() {
                data = weighted(&data, &mut dims, i + 2, taps)?;
            }
            value_of(data, dims, dtype, device)
        }
        let (x, taps) = (x.clone().float()?, self.taps(&x.shape(), divisor)?);
        if x.dtype() == DType::F64 { run::<f64>(x, &taps, device) } else { run::<f32>(x, &taps, device) }
    }

    /// The maximum of each window and, if `places`, where in the whole input it was.
    ///
    /// Places count along rows or, if `columns`, along columns first, within each channel.
    pub(super) fn maxima(
        &self,
        x: Value,
        places: bool,
        columns: bool,
        device: &DispatchDevice,
    ) -> Result<Vec<Value>, OpError> {
        let taps = self.taps(&x.shape(), Divisor::One)?;
        let (old, mut dims, data) = (x.shape(), x.shape(), x.into_data()?);
        let dtype = data.dtype();
        macro_rules! run {
            ($element:ty, $lowest:expr) => {{
                let elements = data.try_into_vec::<$element>().map_err(|e| OpError(e.to_string()))?;
                let mut best = Placed { places: (0..elements.len() as i64).collect(), elements };
                for (i, taps) in taps.iter().enumerate().rev() {
                    best = largest(&best, &mut dims, i + 2, taps, $lowest)?;
                }
                (value_of(best.elements, dims.clone(), dtype, device)?, best.places)
            }};
        }
        let (maxima, mut at) = match dtype {
            DType::F64 => run!(f64, f64::NEG_INFINITY),
            DType::F32 => run!(f32, f32::NEG_INFINITY),
            DType::F16 => run!(f16, f16::NEG_INFINITY),
            DType::BF16 => run!(bf16, bf16::NEG_INFINITY),
            DType::I64 => run!(i64, i64::MIN),
            DType::I32 => run!(i32, i32::MIN),
            DType::I8 => run!(i8, i8::MIN),
            DType::U8 => run!(u8, u8::MIN),
            other => return Err(OpError(format!("maxima of {other:?} are not supported"))),
        };
        if !places {
            return Ok(vec![maxima]);
        }
        if columns {
            at.iter_mut().for_each(|at| *at = by_columns(*at, &old[2..]));
        }
        Ok(vec![maxima, value_of(at, dims, DType::I64, device)?])
    }

    /// The reverse of the maxima with their places: zeros but for the elements, which go to their places.
    fn unpooled(&self, args: &mut Args<'_>) -> Result<Value, OpError> {
        let (x, places) = (args.take(0)?, args.take(1)?);
        let wanted = args.optional(2).map(Value::ints).transpose()?;
        if x.shape() != places.shape() {
            return Err(OpError(format!(
                "elements of shape {:?} with places of {:?}",
                x.shape().to_vec(),
                places.shape().to_vec()
            )));
        }
        let (dims, kind) = (self.unpooled_shape(&x.shape())?, x.clone().float()?.dtype());
        let places = integers(places.into_data()?)?;
        let (x, count) = (elements_of::<f64>(x)?, elements(&dims)?);
        let outer = match &wanted {
            None => dims.clone(),
            Some(wanted) => wanted.ints.iter().map(|&d| usize::try_from(d).unwrap_or(0)).collect(),
        };
        if outer.len() != dims.len() || outer.iter().zip(&dims).any(|(outer, inner)| outer < inner) {
            return Err(OpError(format!("the wanted shape {outer:?} is smaller than {dims:?}")));
        }
        let mut data = vec![0f64; elements(&outer)?];
        for (x, place) in x.into_iter().zip(places) {
            let mut rest = usize::try_from(place)
                .ok()
                .filter(|&place| place < count)
                .ok_or_else(|| OpError(format!("place {place} is out of range for the shape {dims:?}")))?;
            let (mut to, mut stride) = (0, 1);
            for (inner, outer) in dims.iter().zip(&outer).rev() {
                to += rest % inner * stride;
                rest /= inner;
                stride *= outer;
            }
            data[to] = x;
        }
        value_of(data, outer, kind, args.device)
    }

    /// The shape that this pool makes the given one of.
    fn unpooled_shape(&self, dims: &[usize]) -> Result<Vec<usize>, OpError> {
        fn grown<const D: usize>(window: &Window<D>, dims: &[usize]) -> Result<Vec<usize>, OpError> {
            let (n, c, space) = window.split(dims)?;
            let pads = window.pads_to(|_| 0);
            let mut out = [0; D];
            for i in 0..D {
                let full = space[i].saturating_sub(1) * window.stride[i] + window.reach(i);
                out[i] = full.saturating_sub(pads[i].0 + pads[i].1);
            }
            Ok(window.joined(n, c, out))
        }
        let dims = match self.form.rank() {
            Some(3) => grown(&self.form.window::<3>(None)?, dims),
            _ => grown(&self.form.window::<2>(None)?, dims),
        }?;
        elements(&dims)?;
        Ok(dims)
    }
}

/// A place in an array of channels, counted along the first of these dimensions first within its channel.
fn by_columns(place: i64, space: &[usize]) -> i64 {
    let channel: usize = space.iter().product();
    let mut rest = place as usize % channel.max(1);
    let (mut to, mut stride) = (place as usize - rest, channel);
    for &length in space.iter().rev() {
        stride /= length.max(1);
        to += rest % length * stride;
        rest /= length;
    }
    to as i64
}
