//! Products of bytes, four at a time: AVX-512's VNNI multiplies four bytes without a sign with four that have one and adds the
//! products to a sum of 32 bits, in one instruction. Nothing can be too large on the way.
//!
//! Other processors do better with pairs (`integers`, `bytes`); what is here is right on them, and slow.

#[cfg(target_arch = "x86_64")]
use fearless_simd::Level;

use super::integers::{COLUMNS, ROWS};

/// Four terms of a strip's rows: four bytes in each number.
pub(super) type Strip = [i32; ROWS];
/// Four terms of a panel's columns.
pub(super) type Panel = [[i8; 4]; COLUMNS];
/// Sums of a strip and a panel.
pub(super) type Tile = [[i32; COLUMNS]; ROWS];

/// Whether this processor has it.
pub(super) fn is_here() -> bool {
    #[cfg(target_arch = "x86_64")]
    return Level::new().as_avx512().is_some();
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Multiplies `high` rows of a strip with the first `wide` columns of a panel. The bytes of one side have no sign: those of the panel, or else those of the rows.
pub(super) fn tile<const SIGNED_ROWS: bool>(
    strip: &[Strip],
    panel: &[Panel],
    [high, wide]: [usize; 2],
    tile: &mut Tile,
) {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = Level::new().as_avx512() {
        return match SIGNED_ROWS {
            true => vnni::signed_rows(simd, strip, panel, [high, wide], tile),
            false => vnni::signed_panel(simd, strip, panel, [high, wide], tile),
        };
    }
    part::<SIGNED_ROWS>(strip, panel, [high, wide], tile);
}

/// Multiplies a single row, whose bytes have no sign, with panels.
pub(super) fn row(left: &[i32], panels: &[Panel], y: &mut [i32]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = Level::new().as_avx512() {
        return vnni::row(simd, left, panels, y);
    }
    let strip: Vec<Strip> = left.iter().map(|&left| [left; ROWS]).collect();
    let mut tile = [[0; COLUMNS]; ROWS];
    for (panel, y) in panels.chunks_exact(left.len()).zip(y.chunks_mut(COLUMNS)) {
        part::<false>(&strip, panel, [1, y.len()], &mut tile);
        y.copy_from_slice(&tile[0][..y.len()]);
    }
}

/// The same by the definition.
fn part<const SIGNED_ROWS: bool>(strip: &[Strip], panel: &[Panel], [high, wide]: [usize; 2], tile: &mut Tile) {
    for (row, sums) in tile.iter_mut().enumerate().take(high) {
        sums[..wide].fill(0);
        for (left, right) in strip.iter().zip(panel) {
            let left = left[row].to_le_bytes();
            for (sum, right) in sums[..wide].iter_mut().zip(right) {
                let products = left.iter().zip(right).map(|(&left, &right)| match SIGNED_ROWS {
                    true => i32::from(left as i8) * i32::from(right as u8),
                    false => i32::from(left) * i32::from(right),
                });
                *sum = sum.wrapping_add(products.sum());
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod vnni {
    use std::arch::x86_64::{__m512i, _mm512_dpbusd_epi32, _mm512_set1_epi32, _mm512_setzero_si512};

    use fearless_simd::kernel;

    use super::{COLUMNS, Panel, Strip, Tile};

    const LANES: usize = 16;
    /// Vectors of a panel.
    const VECTORS: usize = COLUMNS / LANES;

    kernel!(
        pub(in super::super) fn signed_rows(
            simd: Avx512,
            strip: &[Strip],
            panel: &[Panel],
            size: [usize; 2],
            tile: &mut Tile,
        ) {
            of_size::<true>(strip, panel, size, tile);
        }
    );

    kernel!(
        pub(in super::super) fn signed_panel(
            simd: Avx512,
            strip: &[Strip],
            panel: &[Panel],
            size: [usize; 2],
            tile: &mut Tile,
        ) {
            of_size::<false>(strip, panel, size, tile);
        }
    );

    kernel!(
        pub(in super::super) fn row(simd: Avx512, left: &[i32], panels: &[Panel], y: &mut [i32]) {
            row_of::<2>(left, panels, y);
        }
    );

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    fn of_size<const SIGNED_ROWS: bool>(strip: &[Strip], panel: &[Panel], [high, wide]: [usize; 2], tile: &mut Tile) {
        match wide.div_ceil(LANES) {
            0 | 1 => of_width::<SIGNED_ROWS, 1>(strip, panel, high, tile),
            2 => of_width::<SIGNED_ROWS, 2>(strip, panel, high, tile),
            _ => of_width::<SIGNED_ROWS, 3>(strip, panel, high, tile),
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    fn of_width<const SIGNED_ROWS: bool, const V: usize>(
        strip: &[Strip],
        panel: &[Panel],
        high: usize,
        tile: &mut Tile,
    ) {
        match high {
            1 => part::<SIGNED_ROWS, 1, V>(strip, panel, tile),
            2 => part::<SIGNED_ROWS, 2, V>(strip, panel, tile),
            3 | 4 => part::<SIGNED_ROWS, 4, V>(strip, panel, tile),
            5 | 6 => part::<SIGNED_ROWS, 6, V>(strip, panel, tile),
            _ => part::<SIGNED_ROWS, 8, V>(strip, panel, tile),
        }
    }

    /// `R` rows of a strip and the first `V` vectors of a panel.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    fn part<const SIGNED_ROWS: bool, const R: usize, const V: usize>(
        strip: &[Strip],
        panel: &[Panel],
        tile: &mut Tile,
    ) {
        let mut sums = [[_mm512_setzero_si512(); V]; R];
        for (left, right) in strip.iter().zip(panel) {
            let right: [__m512i; V] = vectors(right);
            for i in 0..R {
                let left = _mm512_set1_epi32(left[i]);
                for v in 0..V {
                    sums[i][v] = match SIGNED_ROWS {
                        true => _mm512_dpbusd_epi32(sums[i][v], right[v], left),
                        false => _mm512_dpbusd_epi32(sums[i][v], left, right[v]),
                    };
                }
            }
        }
        for (sums, to) in sums.into_iter().zip(tile) {
            store(sums, to);
        }
    }

    /// A single row: `N` panels at a time.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    #[inline]
    fn row_of<const N: usize>(left: &[i32], panels: &[Panel], y: &mut [i32]) {
        let mut panels = panels.chunks_exact(left.len());
        for y in y.chunks_mut(N * COLUMNS) {
            // One that is not there is another one again.
            let first = panels.next().unwrap_or_default();
            let side: [_; N] = std::array::from_fn(|n| if n == 0 { first } else { panels.next().unwrap_or(first) });
            let side = side.map(|panel| &panel[..left.len()]);
            let mut sums = [[_mm512_setzero_si512(); VECTORS]; N];
            for (k, &left) in left.iter().enumerate() {
                let left = _mm512_set1_epi32(left);
                for n in 0..N {
                    let right: [__m512i; VECTORS] = vectors(&side[n][k]);
                    for v in 0..VECTORS {
                        sums[n][v] = _mm512_dpbusd_epi32(sums[n][v], left, right[v]);
                    }
                }
            }
            let mut all = [[0; COLUMNS]; N];
            for (sums, to) in sums.into_iter().zip(&mut all) {
                store(sums, to);
            }
            y.copy_from_slice(&all.as_flattened()[..y.len()]);
        }
    }

    #[inline(always)]
    fn vectors<const V: usize>(quads: &Panel) -> [__m512i; V] {
        let (parts, _) = quads.as_chunks::<LANES>();
        std::array::from_fn(|v| pulp::cast(parts[v]))
    }

    #[inline(always)]
    fn store<const V: usize>(sums: [__m512i; V], to: &mut [i32; COLUMNS]) {
        for (to, sums) in to.as_chunks_mut::<LANES>().0.iter_mut().zip(sums) {
            *to = pulp::cast(sums);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_s_own_instruction_multiplies_as_the_definition_says() {
        // Every byte, the least and greatest among them.
        let byte = |i: usize, seed: usize| ((i * 7919 + seed * 104_729) % 2003) as u8;
        for terms in [1, 2, 63] {
            let strip: Vec<Strip> = (0..terms)
                .map(|k| {
                    std::array::from_fn(|i| {
                        i32::from_le_bytes(std::array::from_fn(|t| byte((k * ROWS + i) * 4 + t, 1)))
                    })
                })
                .collect();
            let panel = |seed: usize| -> Vec<Panel> {
                let quad = |i: usize| std::array::from_fn(|t| byte(i * 4 + t, seed) as i8);
                (0..terms).map(|k| std::array::from_fn(|j| quad(k * COLUMNS + j))).collect()
            };
            for (high, wide) in (1..=ROWS).flat_map(|high| [1, 16, 17, 33, COLUMNS].map(|wide| (high, wide))) {
                let (mut found, mut expected) = ([[1; COLUMNS]; ROWS], [[2; COLUMNS]; ROWS]);
                let agree = |found: &Tile, expected: &Tile| {
                    let rows = found[..high].iter().zip(expected);
                    rows.for_each(|(found, expected)| assert_eq!(found[..wide], expected[..wide]));
                };
                tile::<true>(&strip, &panel(2), [high, wide], &mut found);
                part::<true>(&strip, &panel(2), [high, wide], &mut expected);
                agree(&found, &expected);
                tile::<false>(&strip, &panel(2), [high, wide], &mut found);
                part::<false>(&strip, &panel(2), [high, wide], &mut expected);
                agree(&found, &expected);
            }
            let left: Vec<i32> = strip.iter().map(|rows| rows[0]).collect();
            let panels = [panel(2), panel(3), panel(4)].concat();
            let mut y = [0; 2 * COLUMNS + 7];
            row(&left, &panels, &mut y);
            for (panel, y) in panels.chunks_exact(terms).zip(y.chunks(COLUMNS)) {
                let mut expected = [[0; COLUMNS]; ROWS];
                part::<false>(&strip, panel, [1, COLUMNS], &mut expected);
                assert_eq!(y, &expected[0][..y.len()]);
            }
        }
    }
}
