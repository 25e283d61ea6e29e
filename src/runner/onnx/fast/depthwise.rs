//! Convolutions of each channel by itself: one plane is padded and convolved while it is in the nearest cache.

use pulp::{Simd, WithSimd};

use super::activation::Activation;
use super::conv::Conv;
use super::planes::Layout;

/// Some channels of a batch, from the one with this number on.
pub(super) struct Work<'a> {
    pub(super) conv: &'a Conv,
    pub(super) layout: &'a Layout,
    pub(super) x: &'a [f32],
    pub(super) first: usize,
    pub(super) added: Option<&'a [f32]>,
    pub(super) activation: Activation,
    pub(super) y: &'a mut [f32],
}

impl WithSimd for Work<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Work { conv, layout, x, first, added, activation, y } = self;
        let ([h, w], [out_h, out_w]) = (layout.input, layout.output);
        let (pitch, lanes, size) = (layout.plane[1], S::F32_LANES, out_h * out_w);
        // A vector of a narrow row reaches beyond the plane.
        let mut room = vec![0.0; layout.room(1) + lanes];
        for (i, (x, y)) in x.chunks_exact(h * w).zip(y.chunks_exact_mut(size)).enumerate() {
            layout.fill(x, &mut room);
            let channel = (first + i) % conv.groups;
            let (bias, taps) = (conv.bias[channel], Taps::of(conv, layout, channel));
            for (line, y) in y.chunks_exact_mut(out_w).enumerate() {
                let plane = &room[line * pitch..];
                let mut at = 0;
                while at + 4 * lanes <= out_w {
                    store::<S, 4>(&mut y[at..], taps.sums(simd, plane, at, bias));
                    at += 4 * lanes;
                }
                while at + lanes <= out_w {
                    store::<S, 1>(&mut y[at..], taps.sums(simd, plane, at, bias));
                    at += lanes;
                }
                if at == out_w {
                    continue;
                }
                if out_w >= lanes {
                    // Some pixels are computed twice.
                    let at = out_w - lanes;
                    store::<S, 1>(&mut y[at..], taps.sums(simd, plane, at, bias));
                } else {
                    let [sums] = taps.sums(simd, plane, 0, bias);
                    simd.partial_store_f32s(y, sums);
                }
            }
            if let Some(added) = added {
                let added = &added[i * size..][..size];
                y.iter_mut().zip(added).for_each(|(y, a)| *y += a);
            }
            activation.apply(y);
        }
    }
}

/// A channel's weights, and where their pixels are.
struct Taps<'a> {
    weights: &'a [[f32; super::tile::ROWS]],
    offsets: &'a [usize],
}

impl<'a> Taps<'a> {
    fn of(conv: &'a Conv, layout: &'a Layout, channel: usize) -> Taps<'a> {
        let terms = layout.offsets.len();
        Taps { weights: &conv.weights[channel * terms..][..terms], offsets: &layout.offsets }
    }

    /// The sums of `V` vectors of pixels beginning with `at`.
    #[inline(always)]
    fn sums<S: Simd, const V: usize>(&self, simd: S, plane: &[f32], at: usize, bias: f32) -> [S::f32s; V] {
        let mut sums = [simd.splat_f32s(bias); V];
        for (weight, offset) in self.weights.iter().zip(self.offsets) {
            let (pixels, _) = S::as_simd_f32s(&plane[at + offset..][..V * S::F32_LANES]);
            let weight = simd.splat_f32s(weight[0]);
            for v in 0..V {
                sums[v] = simd.mul_add_e_f32s(weight, pixels[v], sums[v]);
            }
        }
        sums
    }
}

#[inline(always)]
fn store<S: Simd, const V: usize>(y: &mut [f32], sums: [S::f32s; V]) {
    S::as_mut_simd_f32s(y).0[..V].copy_from_slice(&sums);
}
