//! Fast kernels for float32 on the processor: pure functions on slices, with no notion of a graph.
//!
//! The crate is built for the oldest processor of its architecture. What is here is compiled once more for newer ones and
//! chosen when it runs ([`vectorized`]), by `pulp`, or by `fearless_simd` for an instruction that `pulp` does not have, without unsafe
//! code of ours. What is called there must be part of the caller: functions are `#[inline(always)]`, and loops are `for`, since the
//! closure of a `for_each` may become a function for the oldest processor. Matrix products and convolutions share one inner loop, in
//! `tile`.

pub(crate) mod activation;
mod bytes;
pub(crate) mod conv;
pub(crate) mod conv_integers;
mod depthwise;
pub(crate) mod forest;
mod gathered;
pub(crate) mod integers;
mod planes;
pub(crate) mod pool;
pub(crate) mod product;
mod quads;
pub(crate) mod quantize;
pub(crate) mod recurrent;
pub(crate) mod resize;
pub(crate) mod rounded;
pub(crate) mod rows;
pub(crate) mod share;
pub(crate) mod spread;
pub(crate) mod strided;
mod tile;
mod winograd;
mod woven;

#[cfg(target_arch = "x86_64")]
use pulp::Simd;
use pulp::WithSimd;

/// Runs `work` with the widest vectors that this processor has.
pub(super) fn vectorized<W: WithSimd>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(simd) = pulp::x86::V4::try_new() {
            return Simd::vectorize(simd, work);
        }
        if let Some(simd) = pulp::x86::V3::try_new() {
            return Simd::vectorize(simd, work);
        }
        Simd::vectorize(pulp::Scalar256b, work)
    }
    #[cfg(not(target_arch = "x86_64"))]
    pulp::Arch::new().dispatch(work)
}

/// Numbers between -1 and 1 that look like chance.
#[cfg(test)]
pub(crate) fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect()
}
