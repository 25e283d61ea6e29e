//! Pools: the maximum or the mean of a sliding window, or of each whole channel.

use burn_backend::ops::{FloatTensorOps, ModuleOps, PadMode};
use burn_backend::{FloatDType, TensorMetadata};
use burn_dispatch::DispatchDevice;

use super::arrange::zeros;
use super::pool_general::Pool;
use super::window::{Divisor, Form, Pads, Window};
use super::{Build, Kernel, Operator};
use crate::fast::pool::{self, Kind};
use crate::floats::{self, Floats};
use crate::memory;
use crate::value::{Backend as B, Handle, OpError, Value, elements};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("AveragePool", average),
    Operator::new("GlobalAveragePool", |_| global(B::float_mean_dim)),
    Operator::new("GlobalMaxPool", |_| global(B::float_max_dim)),
    Operator::new("MaxPool", max),
    Operator::new("uncork::WholeAveragePool", |build| {
        let pool = Pool::of(build)?;
        Ok(Kernel::one(move |mut args| pool.sums(args.take(0)?, Divisor::Whole, args.device)))
    }),
];

/// The padding as burn's pools take it, the same on both sides.
fn symmetric(pads: Pads) -> Option<[usize; 2]> {
    pads.iter().all(|(before, behind)| before == behind).then(|| pads.map(|(before, _)| before))
}

/// Takes the input as an image and gives the result in the input's form.
fn pool(
    window: Window,
    f: impl Fn(&Window, Handle, Pads, &DispatchDevice) -> Handle + Send + Sync + 'static,
) -> impl Fn(Value, &DispatchDevice) -> Result<Value, OpError> + Send + Sync + 'static {
    move |x, device| {
        let dims = window.image(&x.shape())?;
        let pads = window.pads([dims[2], dims[3]]);
        let [h, w] = window.output([dims[2], dims[3]], pads)?;
        elements(&[dims[0], dims[1], h, w])?;
        let y = f(&window, x.reshape(dims.to_vec())?.float()?, pads, device);
        let out = y.shape().dims::<4>();
        Value::Float(y).reshape(window.result(out))
    }
}

/// Whether a whole window fits: the device's pools know no other, though `ceil_mode` may.
fn fits(window: &Window, x: &Value) -> bool {
    window.image(&x.shape()).is_ok_and(|[_, _, h, w]| window.output([h, w], window.pads([h, w])).is_ok())
}

/// Whether the device's pools do not cover this form.
fn rare(build: &Build<'_>, ceil: bool) -> Result<bool, OpError> {
    let form = Form::of(build)?;
    // The device pads both sides alike. More on one side is added before the pool, which then would round up from
    // another length.
    Ok(form.rank().is_none_or(|rank| rank > 2) || ceil && !form.symmetric())
}

fn max(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let ceil = build.attributes.flag("ceil_mode", false)?;
    let columns = build.attributes.flag("storage_order", false)?;
    let (general, fast) = (Pool::of(build)?, Fast::of(build, Kind::Max, ceil)?);
    if build.gives(1) {
        return Ok(Kernel::many(move |mut args| general.maxima(args.take(0)?, true, columns, args.device)));
    }
    let only = move |x, device: &DispatchDevice| {
        general.maxima(x, false, false, device)?.pop().ok_or_else(|| OpError::new("no maxima"))
    };
    if rare(build, ceil)? {
        return Ok(either(fast, only));
    }
    let (window, own) = (Window::of(build, None)?, Window::of(build, None)?);
    let floats = pool(window, move |window, x, pads, _| {
        let (x, pads) = match symmetric(pads) {
            Some(pads) => (x, pads),
            None => (B::float_pad(x, &whole(pads), PadMode::Constant(f32::NEG_INFINITY)), [0, 0]),
        };
        B::max_pool2d(x, window.kernel, window.stride, pads, window.dilation, ceil)
    });
    Ok(either(fast, move |x, device| match x {
        Value::Float(_) if fits(&own, &x) => floats(x, device),
        x => only(x, device),
    }))
}

/// Our own kernel where it can be, and the other one elsewhere.
fn either(
    fast: Option<Fast>,
    other: impl Fn(Value, &DispatchDevice) -> Result<Value, OpError> + Send + Sync + 'static,
) -> Kernel {
    Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let Some(y) = fast.as_ref().map_or(Ok(None), |fast| fast.run(&x, args.device))? else {
            return other(x, args.device);
        };
        if let Value::Float(x) = x {
            floats::used_up(x);
        }
        Ok(y)
    })
}

/// A pool over images or rows by our own kernel.
struct Fast {
    window: Window,
    kind: Kind,
    ceil: bool,
}

impl Fast {
    /// `None` for volumes.
    fn of(build: &Build<'_>, kind: Kind, ceil: bool) -> Result<Option<Fast>, OpError> {
        if Form::of(build)?.rank().is_none_or(|rank| rank > 2) {
            return Ok(None);
        }
        Ok(Some(Fast { window: Window::of(build, None)?, kind, ceil }))
    }

    /// The result, of a tensor whose elements are at hand.
    fn run(&self, x: &Value, device: &DispatchDevice) -> Result<Option<Value>, OpError> {
        let Value::Float(handle) = x else { return Ok(None) };
        let Some(floats) = Floats::of(handle) else { return Ok(None) };
        let [n, c, h, w] = self.window.image(&x.shape())?;
        if h * w == 0 {
            return Err(OpError(format!("there is nothing to pool in the shape {:?}", x.shape().to_vec())));
        }
        let pads = self.window.pads([h, w]);
        let output = self.window.outputs([h, w], pads, self.ceil)?;
        let out = [n, c, output[0], output[1]];
        let mut y = memory::take(elements(&out)?);
        let Window { kernel, stride, dilation, .. } = self.window;
        let pool = pool::Pool { kind: self.kind, kernel, stride, dilation, pads, input: [h, w], output };
        pool.run(floats.as_slice(), &mut y);
        floats::tensor(y, self.window.result(out), device).map(Some)
    }
}

fn average(build: &mut Build<'_>) -> Result<Kernel, OpError> {
    let ceil = build.attributes.flag("ceil_mode", false)?;
    let count_padding = build.attributes.flag("count_include_pad", false)?;
    let general = Pool::of(build)?;
    let fast = Fast::of(build, Kind::Mean { padding: count_padding }, ceil)?;
    let divisor = if count_padding { Divisor::Padded } else { Divisor::Inside };
    if rare(build, ceil)? || general.dilated() {
        return Ok(either(fast, move |x, device| general.sums(x, divisor, device)));
    }
    let (window, own) = (Window::of(build, None)?, Window::of(build, None)?);
    let mean = pool(window, move |window, x, pads, device| {
        let mean = |x, pads, count| B::avg_pool2d(x, window.kernel, window.stride, pads, count, ceil);
        if let Some(pads) = symmetric(pads) {
            return mean(x, pads, count_padding);
        }
        let [_, _, h, w] = x.shape().dims::<4>();
        let dtype = FloatDType::from(x.dtype());
        let sums = mean(B::float_pad(x, &whole(pads), PadMode::Constant(0.0)), [0, 0], true);
        if count_padding {
            return sums;
        }
        // The mean of the padded input, divided by the part of each window that is not padding.
        let ones = B::float_ones([1, 1, h, w].into(), device, dtype);
        let part = mean(B::float_pad(ones, &whole(pads), PadMode::Constant(0.0)), [0, 0], true);
        B::float_div(sums, part)
    });
    Ok(either(fast, move |x, device| match fits(&own, &x) {
        true => mean(x, device),
        false => general.sums(x, divisor, device),
    }))
}

/// The padding for every dimension of an image.
fn whole([height, width]: Pads) -> [(usize, usize); 4] {
    [(0, 0), (0, 0), height, width]
}

/// Reduces all that is behind the channels to one number.
pub(super) fn global(f: impl Fn(Handle, usize) -> Handle + Send + Sync + 'static) -> Result<Kernel, OpError> {
    Ok(Kernel::one(move |mut args| {
        let x = args.take(0)?;
        let mut dims = x.shape();
        if dims.len() < 3 || dims[2..].contains(&0) {
            return Err(OpError(format!("the shape {dims:?} has no room behind the channels")));
        }
        if elements(&dims)? == 0 {
            dims[2..].fill(1);
            return zeros(dims, x.dtype(), args.device);
        }
        let flat = vec![dims[0], dims[1], elements(&dims[2..])?];
        let y = f(x.reshape(flat)?.float()?, 2);
        dims[2..].fill(1);
        Value::Float(y).reshape(dims)
    }))
}

#[cfg(test)]
mod tests {
    use burn_backend::TensorData;

    use super::super::alone::alone;
    use crate::author::Attribute::{Int, Ints};

    #[test]
    fn a_window_larger_than_the_input_is_one_where_lengths_are_rounded_up() {
        for (name, attributes, whole) in [
            ("MaxPool", vec![], 4.0f32),
            ("AveragePool", vec![], 2.5),
            ("AveragePool", vec![("count_include_pad", Int(1))], 2.5),
            ("LpPool", vec![("p", Int(1))], 10.0),
        ] {
            let pooled = |x: TensorData, stride: i64, ceil| {
                let strides = [stride, stride];
                let size = [("kernel_shape", Ints(&[3, 3])), ("strides", Ints(&strides)), ("ceil_mode", Int(ceil))];
                alone(18, name, &[&size[..], &attributes].concat(), [("x", x)])
            };
            let x = || TensorData::new(vec![1f32, 2.0, 3.0, 4.0], [1, 1, 2, 2]);
            assert_eq!(pooled(x(), 2, 1), Ok(TensorData::new(vec![whole], [1, 1, 1, 1])), "{name}");
            // One that is not there even so: a whole stride is missing, or lengths are rounded down.
            assert!(pooled(x(), 1, 1).is_err() && pooled(x(), 2, 0).is_err(), "{name}");
        }
    }

    #[test]
    fn a_window_of_integers_that_juts_out_counts_as_whole_where_padding_counts() {
        let attributes = |counts| {
            let size = |name| (name, Ints(&[2, 2]));
            [size("kernel_shape"), size("strides"), ("ceil_mode", Int(1)), ("count_include_pad", Int(counts))]
        };
        let pooled = |counts| {
            let x = TensorData::new(vec![8u8, 8, 8, 8, 8, 8, 8, 8, 8], [1, 1, 3, 3]);
            let scale = || TensorData::new(vec![1f32], [0usize; 0]);
            let zero = || TensorData::new(vec![0u8], [0usize; 0]);
            let inputs = [("x", x), ("s", scale()), ("z", zero()), ("t", scale()), ("n", zero())];
            alone(17, "com.microsoft::QLinearAveragePool", &attributes(counts), inputs)
        };
        let of = |numbers: [u8; 4]| Ok(TensorData::new(numbers.to_vec(), [1, 1, 2, 2]));
        assert_eq!(pooled(1), of([8, 4, 4, 2]));
        assert_eq!(pooled(0), of([8, 8, 8, 8]));
    }
}
