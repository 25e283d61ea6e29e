//! Floats of 64 bits to those of 16, rounded once. The conversions of `half` round to 32 bits on the way, or leave out the lowest
//! bits: a number just beside the middle of two others goes to the wrong one.

use half::{bf16, f16};

/// The nearest float16, of two the even one; infinite from 65,520 on.
pub fn f16_from_f64(x: f64) -> f16 {
    f16::from_f32(sticky(x))
}

/// The nearest bfloat16, of two the even one.
pub fn bf16_from_f64(x: f64) -> bf16 {
    bf16::from_f32(sticky(x))
}

/// The number cut to 32 bits, where the last of these says whether anything was cut off ("round to odd"). Float32 has more than
/// two bits beyond either half, so whoever rounds it further sees on which side of a middle the number was.
fn sticky(x: f64) -> f32 {
    let near = x as f32;
    if near.is_nan() || f64::from(near) == x {
        return near;
    }
    // One less in its bits is the next number towards zero, and before infinity the largest.
    let is_beyond = f64::from(near).abs() > x.abs();
    f32::from_bits((near.to_bits() - u32::from(is_beyond)) | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds a conversion against exact arithmetic: the middle of two neighbours and the numbers next to it are floats of 64 bits.
    fn hold(name: &str, largest: u16, value: impl Fn(u16) -> f64, convert: impl Fn(f64) -> u16) {
        for low in 0..=largest {
            // Behind the largest number there would be one that is as far away as the one before it.
            let high = if low == largest { 2.0 * value(low) - value(low - 1) } else { value(low + 1) };
            let middle = value(low).midpoint(high);
            let even = low + low % 2;
            for (x, expected) in [
                (value(low), low),
                (value(low).next_up(), low),
                (middle.next_down(), low),
                (middle, even),
                (middle.next_up(), low + 1),
                (high.next_down(), low + 1),
            ] {
                assert_eq!(convert(x), expected, "{x:e} as {name}");
                assert_eq!(convert(-x), expected | 0x8000, "-{x:e} as {name}");
            }
        }
        assert_eq!(convert(f64::INFINITY), largest + 1);
        assert_eq!(convert(f64::MAX), largest + 1);
        assert_eq!(convert(f64::MIN_POSITIVE), 0);
        assert_eq!(convert(-f64::from_bits(1)), 0x8000);
    }

    #[test]
    fn every_number_goes_to_the_nearest_half() {
        hold("float16", 0x7bff, |bits| f16::from_bits(bits).to_f64(), |x| f16_from_f64(x).to_bits());
        hold("bfloat16", 0x7f7f, |bits| bf16::from_bits(bits).to_f64(), |x| bf16_from_f64(x).to_bits());
        assert!(f16_from_f64(f64::NAN).is_nan() && bf16_from_f64(f64::NAN).is_nan());
    }
}
