//! Floats of 32 bits as JSON numbers: the fewest decimal digits that read back as the same float, and of those the nearest.
//!
//! Libraries write one number after another, and choose their way by it. Which way that is cannot be guessed for a model's numbers, and a
//! wrong guess takes as long as the rest. Here sixteen numbers take each step together, and no step has a choice. Floats that need an
//! exponent go to `serde_json`, whose text all others have as well.
//!
//! A float stands for all numbers that are nearer to it than to its neighbours (Steele and White, "How to print floating-point numbers
//! accurately", 1990). Of the decimals that are at most as far apart as two floats, one is among them for certain; of those that are ten
//! times as far apart, at most one (Giulietti, "The Schubfach way to render doubles", 2020). If there is one, it is the shortest as soon as
//! its last zeros are left away. Else the nearest of the others is. In the range of [`LEAST`] and [`RANGE`] all of it fits into 64 bits,
//! and nothing is rounded on the way.

use std::hint::select_unpredictable;

use pulp::{Arch, Simd, WithSimd};

use super::v2::response::{Float, json, separate};

/// Numbers that are written together.
const GROUP: usize = 16;

/// So many are written one by one, which is quicker than a group that is not full.
const FEW: usize = 3;

/// Most bytes of a number and a comma, and of what is written behind it and overwritten.
const ROOM: usize = 40;

/// Bytes that are written before they are handed on.
const BUFFER: usize = 2 * GROUP * ROOM;

/// Exponents, with the bias of their format, of floats that are written here: from 2^-19 up to 2^24.
const LEAST: u32 = 127 - 19;
const RANGE: u32 = 19 + 23;

/// The number 1, as which others take part that are not written here.
const ONE: u32 = 127 << 23;

/// What floats of one exponent have in common.
#[derive(Clone, Copy)]
struct Scale {
    /// Digits behind the point: the last is worth at most as much as the distance of two floats.
    behind: u32,
    /// 5 to that power.
    factor: u32,
}

/// By how much the exponent is below the largest.
const SCALES: [Scale; RANGE as usize + 1] = {
    let mut scales = [Scale { behind: 0, factor: 1 }; RANGE as usize + 1];
    let mut below = 0;
    while below < scales.len() {
        let mut behind = 0;
        while 10u64.pow(behind) < 1 << below {
            behind += 1;
        }
        scales[below] = Scale { behind, factor: 5u32.pow(behind) };
        below += 1;
    }
    scales
};

/// Writes the numbers, separated by commas. What is no number is written by name.
pub(super) fn write(numbers: impl ExactSizeIterator<Item = f32>, to: &mut Vec<u8>) {
    if numbers.len() > FEW {
        return Arch::new().dispatch(Writing { numbers, to });
    }
    for (i, number) in numbers.enumerate() {
        separate(i, to);
        json(&Float(number), to);
    }
}

struct Writing<'a, I> {
    numbers: I,
    to: &'a mut Vec<u8>,
}

impl<I: ExactSizeIterator<Item = f32>> WithSimd for Writing<'_, I> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Writing { mut numbers, to } = self;
        let (mut buffer, mut len) = ([0; BUFFER], 0);
        while numbers.len() > 0 {
            if len > BUFFER - GROUP * ROOM {
                to.extend_from_slice(&buffer[..len]);
                len = 0;
            }
            let count = numbers.len().min(GROUP);
            let mut group = [0.0; GROUP];
            for (place, number) in group.iter_mut().zip(&mut numbers) {
                *place = number;
            }
            let decimals = decimals(&group);
            for (i, &number) in group.iter().enumerate().take(count) {
                if is_written_here(number) {
                    len += decimals.place(i, number.is_sign_negative(), &mut buffer[len..]);
                } else {
                    to.extend_from_slice(&buffer[..len]);
                    len = 0;
                    json(&Float(number), to);
                }
                buffer[len] = b',';
                len += 1;
            }
        }
        to.extend_from_slice(&buffer[..len.saturating_sub(1)]);
    }
}

#[inline(always)]
fn is_written_here(number: f32) -> bool {
    number == 0.0 || (number.to_bits() << 1 >> 24).wrapping_sub(LEAST) <= RANGE
}

/// The digits of some numbers.
struct Decimals {
    /// All digits of each, nine at most, as one number.
    digits: [u32; GROUP],
    /// How many of them stand behind the point.
    behind: [u32; GROUP],
    /// The first of the nine.
    first: [u32; GROUP],
    /// The others as bytes, the next in the lowest.
    others: [u64; GROUP],
}

/// One loop for each step, which the compiler turns into vectors.
#[inline(always)]
fn decimals(numbers: &[f32; GROUP]) -> Decimals {
    let (mut mantissa, mut below, mut scales) = ([0; GROUP], [0; GROUP], [SCALES[0]; GROUP]);
    for i in 0..GROUP {
        let bits = numbers[i].to_bits() & 0x7fff_ffff;
        let is_in_range = (bits >> 23).wrapping_sub(LEAST) <= RANGE;
        let bits = select_unpredictable(is_in_range, bits, ONE);
        mantissa[i] = bits & 0x7f_ffff;
        below[i] = LEAST + RANGE - (bits >> 23);
    }
    for i in 0..GROUP {
        scales[i] = SCALES[below[i] as usize];
    }
    let mut decimals = Decimals { digits: [0; GROUP], behind: [0; GROUP], first: [0; GROUP], others: [0; GROUP] };
    for i in 0..GROUP {
        let digits = shortest(mantissa[i], below[i], scales[i]);
        decimals.digits[i] = if numbers[i] == 0.0 { 0 } else { digits };
        decimals.behind[i] = scales[i].behind;
    }
    for i in 0..GROUP {
        let digits = u64::from(decimals.digits[i]);
        let first = (digits * FIRST) >> 57;
        decimals.first[i] = first as u32;
        decimals.others[i] = bytes(digits - 100_000_000 * first);
    }
    decimals
}

/// 2^57 / 10^8, rounded up.
const FIRST: u64 = 1_441_151_881;

/// The digits of a float that has this mantissa in units of 2^-`below`.
#[inline(always)]
fn shortest(mantissa: u32, below: u32, scale: Scale) -> u32 {
    let (factor, shift) = (u64::from(scale.factor), below - scale.behind + 2);
    // In units of the last digit, times 2^shift. The two neighbours are taken to be equally far: below a power of two one is not, but the
    // powers in this range have the same digits so.
    let float = u64::from((mantissa | 1 << 23) * 4) * factor;
    let reach = 2 * factor;
    let tens = ((float >> shift) * 0xcccc_cccd) >> 35;
    let over = float - ((tens * 10) << shift);
    // No decimal is just half the way to a neighbour, which has more digits behind the point.
    let (is_under, is_above) = (over < reach, (10 << shift) - over < reach);
    let half = 1 << (shift - 1);
    let nearest = (float + half) >> shift;
    let is_tie = (nearest << shift).wrapping_sub(float) == half;
    let nearest = nearest - (nearest & u64::from(is_tie));
    let short = tens * 10 + if is_above { 10 } else { 0 };
    (if is_under | is_above { short } else { nearest }) as u32
}

/// Eight decimal digits as bytes, the first in the lowest one.
#[inline(always)]
fn bytes(x: u64) -> u64 {
    let high = (x * 109_951_163) >> 40;
    let x = high | (x - 10_000 * high) << 32;
    let hundreds = ((x * 10_486) >> 20) & 0x7f_0000_007f;
    let x = hundreds | (x - 100 * hundreds) << 16;
    let tens = ((x * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | (x - 10 * tens) << 8
}

impl Decimals {
    /// Writes a number to the begin of `to`. How many bytes it takes.
    #[inline(always)]
    fn place(&self, i: usize, is_negative: bool, to: &mut [u8]) -> usize {
        let to: &mut [u8; ROOM] = to.first_chunk_mut().expect("there is room for a group");
        // With five zeros before them, of which some may stand behind the point.
        let digits = u128::from(self.first[i]) << 40 | u128::from(self.others[i]) << 48;
        let leading = u32::from(self.digits[i] < 100_000_000) + u32::from(self.digits[i] < 10_000_000);
        // At least one digit stands before the point, and one behind it.
        let before = 9u32.saturating_sub(self.behind[i] + leading).max(1);
        let digits = digits >> (8 * (14 - before - self.behind[i]));
        let used = (16 - digits.leading_zeros() / 8).max(before + 1) as usize;
        let text = digits | u128::from_ne_bytes([b'0'; 16]);
        let (sign, before) = (usize::from(is_negative), before as usize);
        to[0] = b'-';
        to[sign..sign + 16].copy_from_slice(&text.to_le_bytes());
        to[sign + before] = b'.';
        to[sign + before + 1..sign + before + 17].copy_from_slice(&(text >> (8 * before)).to_le_bytes());
        sign + used + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(numbers: &[f32]) -> String {
        let mut to = b"[".to_vec();
        write(numbers.iter().copied(), &mut to);
        to.push(b']');
        String::from_utf8(to).unwrap()
    }

    #[test]
    fn numbers_have_the_text_that_serde_json_gives_them() {
        // A seventh of the floats of every exponent, and those beside each power of two.
        let of_exponent = |exponent: u32| {
            (0..1 << 23).step_by(7).chain(0..99).chain((1 << 23) - 99..1 << 23).map(move |m| exponent << 23 | m)
        };
        let mut count = 0;
        for exponent in LEAST - 1..=LEAST + RANGE + 1 {
            let numbers: Vec<f32> = of_exponent(exponent).map(f32::from_bits).collect();
            for numbers in numbers.chunks(1000) {
                let negative: Vec<f32> = numbers.iter().map(|x| -x).collect();
                assert_eq!(written(numbers), serde_json::to_string(numbers).unwrap());
                assert_eq!(written(&negative), serde_json::to_string(&negative).unwrap());
            }
            count += numbers.len();
        }
        assert!(count > 50_000_000);
    }

    #[test]
    fn zeros_extremes_and_what_is_no_number_stand_beside_others() {
        assert_eq!(written(&[]), "[]");
        assert_eq!(written(&[0.0]), "[0.0]");
        let odd = [
            -0.0,
            1.0,
            f32::NAN,
            f32::INFINITY,
            -0.5,
            f32::NEG_INFINITY,
            f32::MIN_POSITIVE,
            1e-45,
            f32::MAX,
            16_777_216.0,
        ];
        let text = r#"-0.0,1.0,"NaN","Infinity",-0.5,"-Infinity",1.1754944e-38,1e-45,3.4028235e+38,16777216.0"#;
        assert_eq!(written(&odd), format!("[{text}]"));
        let four = [odd; 4].concat();
        assert_eq!(written(&four), format!("[{text},{text},{text},{text}]"));
        let plain: Vec<f32> = (0..50).map(|i| i as f32 / 7.0).collect();
        for count in 0..plain.len() {
            assert_eq!(written(&plain[..count]), serde_json::to_string(&plain[..count]).unwrap());
        }
    }
}
