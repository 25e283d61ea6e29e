//! The geometry of a window that slides over an image: kernel, stride, dilation and padding.
//!
//! Convolutions and pools share it. One-dimensional ones are images of height 1.

use super::Build;
use crate::runner::onnx::value::OpError;

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

/// Padding before and behind, for height and width.
pub(super) type Pads = [(usize, usize); 2];

#[derive(Debug, Clone)]
pub(super) struct Window {
    pub(super) kernel: [usize; 2],
    pub(super) stride: [usize; 2],
    pub(super) dilation: [usize; 2],
    pads: Pads,
    auto: AutoPad,
    /// The input is [N, C, L], taken as [N, C, 1, L].
    pub(super) flat: bool,
}

impl Window {
    /// The geometry that a node's attributes describe; the kernel may be left to the weight, whose shape is then given.
    pub(super) fn of(build: &Build<'_>, weight: Option<&[usize]>) -> Result<Window, OpError> {
        let attributes = &build.attributes;
        let list = |name: &str| -> Result<Option<Vec<usize>>, OpError> {
            let ints = attributes.ints(name)?;
            ints.map(|ints| ints.iter().map(|&i| usize::try_from(i)).collect())
                .transpose()
                .map_err(|_| OpError(format!("{name} below zero are not supported")))
        };
        let kernel = match list("kernel_shape")? {
            Some(kernel) => kernel,
            None => weight.and_then(|dims| dims.get(2..)).map(<[usize]>::to_vec).unwrap_or_default(),
        };
        let rank = kernel.len();
        let flat = match rank {
            1 => true,
            2 => false,
            _ => return Err(OpError(format!("a window of {rank} dimensions is not supported"))),
        };
        let each = |name: &str| -> Result<[usize; 2], OpError> {
            match list(name)?.as_deref() {
                None => Ok([1, 1]),
                Some(&[w]) if flat => Ok([1, w]),
                Some(&[h, w]) if !flat => Ok([h, w]),
                Some(other) => Err(OpError(format!("{name} of {other:?} do not fit a kernel of {rank} dimensions"))),
            }
        };
        let pads = match list("pads")?.as_deref() {
            None => [(0, 0), (0, 0)],
            Some(&[left, right]) if flat => [(0, 0), (left, right)],
            Some(&[top, left, bottom, right]) if !flat => [(top, bottom), (left, right)],
            Some(other) => return Err(OpError(format!("pads of {other:?} do not fit a kernel of {rank} dimensions"))),
        };
        let auto = match attributes.text("auto_pad", "NOTSET")?.as_str() {
            "NOTSET" | "" => AutoPad::NotSet,
            "VALID" => AutoPad::Valid,
            "SAME_UPPER" => AutoPad::SameUpper,
            "SAME_LOWER" => AutoPad::SameLower,
            other => return Err(OpError(format!("auto_pad='{other}'"))),
        };
        let (stride, dilation) = (each("strides")?, each("dilations")?);
        let kernel = if flat { [1, kernel[0]] } else { [kernel[0], kernel[1]] };
        Window { kernel, stride, dilation, pads, auto, flat }.checked()
    }

    fn checked(self) -> Result<Window, OpError> {
        let lengths = [self.kernel, self.stride, self.dilation].concat();
        let pads = self.pads.iter().flat_map(|&(a, b)| [a, b]);
        if lengths.contains(&0) || lengths.iter().copied().chain(pads).any(|n| n > LONGEST) {
            return Err(OpError(format!(
                "kernel {:?}, stride {:?}, dilation {:?} and padding {:?} must be positive and at most {LONGEST}",
                self.kernel, self.stride, self.dilation, self.pads
            )));
        }
        Ok(self)
    }

    /// The input as an image: its dimensions with height and width last.
    pub(super) fn image(&self, dims: &[usize]) -> Result<[usize; 4], OpError> {
        match (dims, self.flat) {
            (&[n, c, l], true) => Ok([n, c, 1, l]),
            (&[n, c, h, w], false) => Ok([n, c, h, w]),
            _ => Err(OpError(format!(
                "a window of {} dimensions does not fit the shape {dims:?}",
                2 - usize::from(self.flat)
            ))),
        }
    }

    /// The result's dimensions in the form of the input.
    pub(super) fn result(&self, [n, c, h, w]: [usize; 4]) -> Vec<usize> {
        if self.flat { vec![n, c, w] } else { vec![n, c, h, w] }
    }

    /// The padding for an input of this height and width.
    pub(super) fn pads(&self, input: [usize; 2]) -> Pads {
        let same = |i: usize| {
            let covered = (input[i].div_ceil(self.stride[i]).max(1) - 1) * self.stride[i] + self.reach(i);
            covered.saturating_sub(input[i])
        };
        match self.auto {
            AutoPad::NotSet => self.pads,
            AutoPad::Valid => [(0, 0), (0, 0)],
            AutoPad::SameUpper => [same(0), same(1)].map(|total| (total / 2, total - total / 2)),
            AutoPad::SameLower => [same(0), same(1)].map(|total| (total - total / 2, total / 2)),
        }
    }

    /// Checks that at least one window fits, and gives height and width of the result (without `ceil_mode`).
    pub(super) fn output(&self, input: [usize; 2], pads: Pads) -> Result<[usize; 2], OpError> {
        let mut out = [0; 2];
        for i in 0..2 {
            let padded = input[i] + pads[i].0 + pads[i].1;
            let Some(free) = padded.checked_sub(self.reach(i)) else {
                return Err(OpError(format!("a window of {:?} is larger than the input of {input:?}", self.kernel)));
            };
            out[i] = free / self.stride[i] + 1;
        }
        Ok(out)
    }

    /// Length that the dilated kernel covers.
    fn reach(&self, i: usize) -> usize {
        self.dilation[i] * (self.kernel[i] - 1) + 1
    }
}
