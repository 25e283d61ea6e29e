//! The geometry of a window that slides over an image: kernel, stride, dilation and padding.
//!
//! Convolutions and pools share it. One-dimensional ones are images of height 1.

use onnx_ir::node::padding::{AutoPad, PaddingConfig1d, PaddingConfig2d};

use super::Refusal;
use crate::runner::onnx::value::OpError;

/// Longest kernel, stride, dilation or padding. Far above any real model; a damaged number is refused, not allocated.
const LONGEST: usize = 1 << 12;

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
    pub(super) fn two(
        kernel: [usize; 2],
        stride: [usize; 2],
        dilation: [usize; 2],
        padding: &PaddingConfig2d,
        auto: &AutoPad,
    ) -> Result<Window, Refusal> {
        let pads = match *padding {
            PaddingConfig2d::Valid => [(0, 0), (0, 0)],
            PaddingConfig2d::Explicit(top, left, bottom, right) => [(top, bottom), (left, right)],
        };
        Window { kernel, stride, dilation, pads, auto: auto.clone(), flat: false }.checked()
    }

    pub(super) fn one(
        kernel: usize,
        stride: usize,
        dilation: usize,
        padding: &PaddingConfig1d,
        auto: &AutoPad,
    ) -> Result<Window, Refusal> {
        let pads = match *padding {
            PaddingConfig1d::Valid => [(0, 0), (0, 0)],
            PaddingConfig1d::Explicit(left, right) => [(0, 0), (left, right)],
        };
        let (kernel, stride, dilation) = ([1, kernel], [1, stride], [1, dilation]);
        Window { kernel, stride, dilation, pads, auto: auto.clone(), flat: true }.checked()
    }

    fn checked(self) -> Result<Window, Refusal> {
        let lengths = [self.kernel, self.stride, self.dilation].concat();
        let pads = self.pads.iter().flat_map(|&(a, b)| [a, b]);
        if lengths.contains(&0) || lengths.iter().copied().chain(pads).any(|n| n > LONGEST) {
            return Err(Refusal::form(format!(
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
