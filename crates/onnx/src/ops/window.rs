//! The geometry of a window that slides over an image or a volume: kernel, stride, dilation and padding.
//!
//! Convolutions and pools share it. One-dimensional ones are images of height 1.

use super::Build;
use super::along::Taps;
use crate::value::{OpError, elements};
use uncork_model::quote::Quoted;

/// Longest kernel, stride, dilation or padding. Far above any real model; a damaged number is refused, not allocated.
const LONGEST: usize = 1 << 12;

/// How padding is found where it is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AutoPad {
    NotSet,
    Valid,
    SameUpper,
    SameLower,
}

/// Padding before and behind, for each dimension.
pub(super) type Pads<const D: usize = 2> = [(usize, usize); D];

/// A window of `D` dimensions, height and width last.
#[derive(Debug, Clone)]
pub(super) struct Window<const D: usize = 2> {
    pub(super) kernel: [usize; D],
    pub(super) stride: [usize; D],
    pub(super) dilation: [usize; D],
    pads: Pads<D>,
    auto: AutoPad,
    /// The input is [N, C, L], taken as [N, C, 1, L].
    pub(super) flat: bool,
}

/// What a node's attributes say of its window; how many dimensions it has may be left to the weight.
#[derive(Debug)]
pub(super) struct Form {
    kernel: Option<Vec<usize>>,
    strides: Option<Vec<usize>>,
    dilations: Option<Vec<usize>>,
    pads: Option<Vec<usize>>,
    auto: AutoPad,
}

impl Form {
    pub(super) fn of(build: &Build<'_>) -> Result<Form, OpError> {
        let attributes = &build.attributes;
        let list = |name: &str| -> Result<Option<Vec<usize>>, OpError> {
            let ints = attributes.ints(name)?;
            ints.map(|ints| ints.iter().map(|&i| usize::try_from(i)).collect())
                .transpose()
                .map_err(|_| OpError(format!("{name} below zero are not supported")))
        };
        let auto = match attributes.text("auto_pad", "NOTSET")?.as_str() {
            "NOTSET" | "" => AutoPad::NotSet,
            "VALID" => AutoPad::Valid,
            "SAME_UPPER" => AutoPad::SameUpper,
            "SAME_LOWER" => AutoPad::SameLower,
            other => return Err(OpError(format!("auto_pad={}", Quoted(other)))),
        };
        Ok(Form {
            kernel: list("kernel_shape")?,
            strides: list("strides")?,
            dilations: list("dilations")?,
            pads: list("pads")?,
            auto,
        })
    }

    /// The number of the kernel's dimensions, where the attributes tell it.
    pub(super) fn rank(&self) -> Option<usize> {
        self.kernel.as_ref().map(Vec::len)
    }

    /// Whether the padding is the same on both sides, whatever the input's lengths are.
    pub(super) fn symmetric(&self) -> bool {
        let same = |pads: &Vec<usize>| pads[..pads.len() / 2] == pads[pads.len().div_ceil(2)..];
        match self.auto {
            AutoPad::NotSet => self.pads.as_ref().is_none_or(same),
            AutoPad::Valid => true,
            AutoPad::SameUpper | AutoPad::SameLower => false,
        }
    }

    /// Whether the window has gaps.
    pub(super) fn dilated(&self) -> bool {
        self.dilations.as_ref().is_some_and(|dilations| dilations.iter().any(|&d| d != 1))
    }

    /// The window; the kernel may be left to the weight, whose shape is then given.
    pub(super) fn window<const D: usize>(&self, weight: Option<&[usize]>) -> Result<Window<D>, OpError> {
        let of_weight = weight.and_then(|dims| dims.get(2..)).unwrap_or_default();
        let sizes = self.kernel.as_deref().unwrap_or(of_weight);
        let rank = sizes.len();
        let flat = D == 2 && rank == 1;
        if rank != D && !flat {
            return Err(OpError(format!("a window of {rank} dimensions is not supported")));
        }
        // A missing first dimension has length 1.
        let first = D - rank;
        let each = |name: &str, list: Option<&[usize]>| -> Result<[usize; D], OpError> {
            let mut all = [1; D];
            match list {
                None => {}
                Some(list) if list.len() == rank => all[first..].copy_from_slice(list),
                Some(list) => {
                    return Err(OpError(format!("{name} of {list:?} do not fit a kernel of {rank} dimensions")));
                }
            }
            Ok(all)
        };
        let mut pads = [(0, 0); D];
        match self.pads.as_deref() {
            None => {}
            Some(list) if list.len() == 2 * rank => {
                let (before, behind) = list.split_at(rank);
                for (i, pair) in before.iter().zip(behind).enumerate() {
                    pads[first + i] = (*pair.0, *pair.1);
                }
            }
            Some(list) => return Err(OpError(format!("pads of {list:?} do not fit a kernel of {rank} dimensions"))),
        }
        let kernel = each("kernels", Some(sizes))?;
        let stride = each("strides", self.strides.as_deref())?;
        let dilation = each("dilations", self.dilations.as_deref())?;
        Window { kernel, stride, dilation, pads, auto: self.auto, flat }.checked()
    }
}

impl Window<2> {
    /// The geometry that a node's attributes describe; the kernel may be left to the weight, whose shape is then given.
    pub(super) fn of(build: &Build<'_>, weight: Option<&[usize]>) -> Result<Window, OpError> {
        Form::of(build)?.window(weight)
    }

    /// The input as an image: its dimensions with height and width last.
    pub(super) fn image(&self, dims: &[usize]) -> Result<[usize; 4], OpError> {
        let (n, c, [h, w]) = self.split(dims)?;
        Ok([n, c, h, w])
    }

    /// The result's dimensions in the form of the input.
    pub(super) fn result(&self, [n, c, h, w]: [usize; 4]) -> Vec<usize> {
        self.joined(n, c, [h, w])
    }
}

/// By what a window's sum is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Divisor {
    One,
    /// The elements of the input in the window.
    Inside,
    /// The same and the padding in it.
    Padded,
    /// All that the window could hold, also what is beyond the padding.
    Whole,
}

impl<const D: usize> Window<D> {
    fn checked(self) -> Result<Window<D>, OpError> {
        let lengths = self.kernel.iter().chain(&self.stride).chain(&self.dilation).copied();
        let pads = self.pads.iter().flat_map(|&(a, b)| [a, b]);
        if lengths.clone().any(|n| n == 0) || lengths.chain(pads).any(|n| n > LONGEST) {
            return Err(OpError(format!(
                "kernel {:?}, stride {:?}, dilation {:?} and padding {:?} must be positive and at most {LONGEST}",
                self.kernel, self.stride, self.dilation, self.pads
            )));
        }
        Ok(self)
    }

    /// The two leading dimensions and those that the window slides over.
    pub(super) fn split(&self, dims: &[usize]) -> Result<(usize, usize, [usize; D]), OpError> {
        let first = usize::from(self.flat);
        match dims {
            &[n, c, ref space @ ..] if space.len() + first == D => {
                let mut all = [1; D];
                all[first..].copy_from_slice(space);
                Ok((n, c, all))
            }
            _ => Err(OpError(format!("a window of {} dimensions does not fit the shape {dims:?}", D - first))),
        }
    }

    /// The reverse of [`Window::split`].
    pub(super) fn joined(&self, n: usize, c: usize, space: [usize; D]) -> Vec<usize> {
        [&[n, c], &space[usize::from(self.flat)..]].concat()
    }

    /// The padding for an input of these lengths.
    pub(super) fn pads(&self, input: [usize; D]) -> Pads<D> {
        self.pads_to(|i| {
            let covered = (input[i].div_ceil(self.stride[i]).max(1) - 1) * self.stride[i] + self.reach(i);
            covered.saturating_sub(input[i])
        })
    }

    /// The padding, where `same` says how much both sides of a dimension get if the lengths are to stay.
    pub(super) fn pads_to(&self, same: impl Fn(usize) -> usize) -> Pads<D> {
        let all = std::array::from_fn(same);
        match self.auto {
            AutoPad::NotSet => self.pads,
            AutoPad::Valid => [(0, 0); D],
            AutoPad::SameUpper => all.map(|total| (total / 2, total - total / 2)),
            AutoPad::SameLower => all.map(|total| (total - total / 2, total / 2)),
        }
    }

    /// Whether the padding keeps the lengths, whatever the input's are.
    pub(super) fn keeps_lengths(&self) -> bool {
        matches!(self.auto, AutoPad::SameUpper | AutoPad::SameLower)
    }

    /// Whether the smaller half of an uneven padding comes before the input.
    pub(super) fn pads_behind(&self) -> bool {
        self.auto == AutoPad::SameUpper
    }

    /// Checks that at least one window fits, and gives the lengths of the result (without `ceil_mode`).
    pub(super) fn output(&self, input: [usize; D], pads: Pads<D>) -> Result<[usize; D], OpError> {
        self.outputs(input, pads, false)
    }

    /// The same, with `ceil_mode` or without.
    pub(super) fn outputs(&self, input: [usize; D], pads: Pads<D>, ceil: bool) -> Result<[usize; D], OpError> {
        let mut out = [0; D];
        for i in 0..D {
            out[i] = self.places(i, input[i], pads[i], ceil).ok_or_else(|| {
                OpError(format!("a window of {:?} is larger than the input of {input:?}", self.kernel))
            })?;
        }
        Ok(out)
    }

    /// How many windows there are along dimension `i`, if any is.
    fn places(&self, i: usize, input: usize, (before, behind): (usize, usize), ceil: bool) -> Option<usize> {
        let (padded, reach, stride) = (input + before + behind, self.reach(i), self.stride[i]);
        // A window that would begin in the padding behind is left out.
        let begins = |place: usize| ceil && place * stride < input + before;
        let Some(free) = padded.checked_sub(reach) else {
            // Rounded up, less than a stride that is missing is no window less.
            return (reach - padded < stride && begins(0)).then_some(1);
        };
        let whole = free / stride + 1;
        Some(whole + usize::from(!free.is_multiple_of(stride) && begins(whole)))
    }

    /// For each place of the window along dimension `i`, the elements of the input in it.
    pub(super) fn taps(&self, input: [usize; D], i: usize, ceil: bool, divisor: Divisor) -> Result<Taps, OpError> {
        let pads = self.pads(input);
        let count = self.outputs(input, pads, ceil)?[i];
        let (length, (before, behind), stride) = (input[i], pads[i], self.stride[i]);
        elements(&[count, self.kernel[i].min(length)])?;
        let mut taps = Taps::default();
        for place in 0..count {
            let all = (0..self.kernel[i]).map(|k| place * stride + k * self.dilation[i]);
            let inside = all.clone().filter_map(|at| at.checked_sub(before).filter(|&at| at < length));
            let parts = match divisor {
                Divisor::One => 1,
                Divisor::Whole => self.kernel[i],
                Divisor::Inside => inside.clone().count(),
                Divisor::Padded => all.filter(|&at| at < length + before + behind).count(),
            };
            taps.push(inside.map(|at| (at, 1.0 / parts as f64)));
        }
        Ok(taps)
    }

    /// Length that the dilated kernel covers.
    pub(super) fn reach(&self, i: usize) -> usize {
        self.dilation[i] * (self.kernel[i] - 1) + 1
    }
}
