//! `f32` in fewer bits, one by one: bf16, IEEE half precision, and e4m3 of the OCP 8-bit formats. All round to the nearest, ties to
//! even, and none has a branch, so that a compiler makes eight or sixteen at a time of them.

#![allow(clippy::cast_possible_truncation, reason = "what is cut off is zero, or is meant to go")]

use crate::words::{INFINITY, MAGNITUDE};

/// bf16 of an `f32`, as bits. NaN stays NaN (quiet, with what fits of its payload); finite values of 3.3961776e38 and more become
/// infinite.
#[inline(always)]
pub(crate) fn bf16(bits: u32) -> u16 {
    let even = bits >> 16 & 1;
    let rounded = bits.wrapping_add(0x7fff + even) >> 16;
    let quiet = bits >> 16 | 0x40;
    (if bits & MAGNITUDE > INFINITY { quiet } else { rounded }) as u16
}

/// The `f32` of a bf16.
#[inline(always)]
pub(crate) fn from_bf16(half: u16) -> u32 {
    u32::from(half) << 16
}

/// IEEE half of an `f32`, as bits. NaN stays NaN (quiet, with what fits of its payload); magnitudes of 65520 and more become
/// infinite.
#[inline(always)]
pub(crate) fn f16(bits: u32) -> u16 {
    /// The least magnitude that is a normal half, 2^-14, and that whose units are the least half, 2^-24.
    const NORMAL: u32 = (127 - 14) << 23;
    const UNIT: u32 = (127 - 24 + 23) << 23;
    /// 65536.
    const BEYOND: u32 = (127 + 16) << 23;
    let magnitude = bits & MAGNITUDE;
    let even = magnitude >> 13 & 1;
    let normal = magnitude.wrapping_add(0xfff + even).wrapping_sub((127 - 15) << 23) >> 13;
    let small = (f32::from_bits(magnitude) + f32::from_bits(UNIT)).to_bits().wrapping_sub(UNIT);
    let special = if magnitude > INFINITY { 0x7e00 | magnitude >> 13 & 0x3ff } else { 0x7c00 };
    let finite = if magnitude < NORMAL { small } else { normal };
    let half = if magnitude >= BEYOND { special } else { finite };
    (bits >> 16 & 0x8000 | half) as u16
}

/// The `f32` of an IEEE half.
#[inline(always)]
pub(crate) fn from_f16(half: u16) -> u32 {
    let magnitude = u32::from(half) & 0x7fff;
    let small = (magnitude as f32 * f32::from_bits((127 - 24) << 23)).to_bits();
    let normal = (magnitude << 13) + ((127 - 15) << 23);
    let special = magnitude << 13 | INFINITY;
    let finite = if magnitude < 0x400 { small } else { normal };
    let bits = if magnitude >= 0x7c00 { special } else { finite };
    (u32::from(half) & 0x8000) << 16 | bits
}

/// The code of NaN without its sign.
const NAN8: u32 = 0x7f;

/// e4m3 of an `f32`, as bits. Magnitudes above 448 become 448; NaN stays NaN, and so does infinity become: there is none.
#[inline(always)]
pub(crate) fn fp8(bits: u32) -> u8 {
    /// The least magnitude that is normal, 2^-6, and that whose units are the least code, 2^-9.
    const NORMAL: u32 = (127 - 6) << 23;
    const UNIT: u32 = (127 - 9 + 23) << 23;
    let magnitude = bits & MAGNITUDE;
    let even = magnitude >> 20 & 1;
    let normal = magnitude.wrapping_add(0x7_ffff + even).wrapping_sub((127 - 7) << 23) >> 20;
    let small = (f32::from_bits(magnitude) + f32::from_bits(UNIT)).to_bits().wrapping_sub(UNIT);
    let finite = if magnitude < NORMAL { small } else { normal.min(NAN8 - 1) };
    let code = if magnitude >= INFINITY { NAN8 } else { finite };
    (bits >> 24 & 0x80 | code) as u8
}

/// The `f32` of an e4m3.
#[inline(always)]
pub(crate) fn from_fp8(code: u8) -> u32 {
    let magnitude = u32::from(code) & 0x7f;
    let small = (magnitude as f32 * f32::from_bits((127 - 9) << 23)).to_bits();
    let normal = (magnitude << 20) + ((127 - 7) << 23);
    let finite = if magnitude < 8 { small } else { normal };
    let bits = if magnitude == NAN8 { 0x7fc0_0000 } else { finite };
    (u32::from(code) & 0x80) << 24 | bits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Around every value of a narrow format, and the middle between it and the next: where rounding turns.
    fn edges(of: impl Fn(u16) -> u32, count: u32) -> impl Iterator<Item = u32> {
        (0..count).flat_map(move |code| {
            let bits = of(code as u16);
            let next = of((code + 1).min(count - 1) as u16);
            let middle = bits / 2 + next / 2;
            [bits, middle]
                .into_iter()
                .flat_map(|at| (0..5).map(move |more| at.wrapping_add(more).wrapping_sub(2)))
        })
    }

    #[test]
    #[cfg_attr(miri, ignore = "arithmetic alone, of very many values")]
    fn halves_are_those_of_the_crate_half() {
        let some = (0..200_000u32).map(|at| at.wrapping_mul(0x9E37_79B9));
        for bits in edges(from_bf16, 1 << 16).chain(edges(from_f16, 1 << 16)).chain(some) {
            let value = f32::from_bits(bits);
            assert_eq!(bf16(bits), half::bf16::from_f32(value).to_bits(), "{bits:#x}");
            assert_eq!(f16(bits), half::f16::from_f32_const(value).to_bits(), "{bits:#x}");
        }
        for code in 0..=u16::MAX {
            let there = |bits: u32| f32::from_bits(bits);
            let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            assert!(same(there(from_bf16(code)), half::bf16::from_bits(code).to_f32()), "{code:#x}");
            assert!(same(there(from_f16(code)), half::f16::from_bits(code).to_f32_const()), "{code:#x}");
        }
    }

    /// The value of an e4m3 by the definition of the format.
    fn value8(code: u8) -> f64 {
        let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7));
        let magnitude = match exponent {
            0 => mantissa / 8.0 * f64::powi(2.0, -6),
            _ => (1.0 + mantissa / 8.0) * f64::powi(2.0, exponent - 7),
        };
        if code & 0x80 == 0 { magnitude } else { -magnitude }
    }

    #[test]
    #[cfg_attr(miri, ignore = "arithmetic alone, of very many values")]
    fn e4m3_is_the_nearest_there_is() {
        for code in (0..=u8::MAX).filter(|code| code & 0x7f != 0x7f) {
            assert_eq!(f64::from(f32::from_bits(from_fp8(code))), value8(code));
            assert_eq!(fp8(from_fp8(code)), code);
        }
        assert!(f32::from_bits(from_fp8(0x7f)).is_nan() && f32::from_bits(from_fp8(0xff)).is_nan());
        for bits in edges(|code| from_fp8((code % 127) as u8), 127).chain((0..1 << 16).map(|at| at * 0x7eff))
        {
            let value = f64::from(f32::from_bits(bits));
            if !value.is_finite() {
                assert_eq!(fp8(bits) & 0x7f, 0x7f);
                continue;
            }
            let code = fp8(bits);
            let error = (value8(code) - value).abs();
            for other in 0..127 {
                let there = (value8(other) - value.abs()).abs();
                let tie = there == error && other != code & 0x7f;
                assert!(
                    error < there || other == code & 0x7f || tie && code & 1 == 0,
                    "{value} {code} {other}"
                );
            }
        }
    }
}
