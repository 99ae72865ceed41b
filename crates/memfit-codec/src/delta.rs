//! Differences of two versions of the same numbers, as whole numbers that are small where the versions are alike.
//!
//! The bits of a float become a whole number in the order of the values (negative ones mirrored), so the difference of two counts the
//! floats between them; its sign goes into the lowest bit (zigzag). All of it wraps around, so it is lossless for any bits: signs of
//! zero, payloads of NaN. As many bytes come out as went in, most of them zero: somebody else packs them ([`crate::shuffle`],
//! [`crate::split`]). Always smaller than XOR where it was measured. Time O(size). Wrong choice for numbers that have nothing to do
//! with each other.

use crate::Damaged;

/// What the numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// Floats of two bytes: `f16`, `bf16`.
    Float16,
    /// `f32`.
    Float32,
    /// `f64`.
    Float64,
    /// Bytes.
    Int8,
    /// Whole numbers of two bytes.
    Int16,
    /// Of four bytes.
    Int32,
    /// Of eight bytes.
    Int64,
}

impl Number {
    /// Every kind.
    pub const ALL: [Number; 7] = [
        Number::Float16,
        Number::Float32,
        Number::Float64,
        Number::Int8,
        Number::Int16,
        Number::Int32,
        Number::Int64,
    ];

    /// Bytes of one.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Number::Int8 => 1,
            Number::Float16 | Number::Int16 => 2,
            Number::Float32 | Number::Int32 => 4,
            Number::Float64 | Number::Int64 => 8,
        }
    }
}

/// Bytes side by side: `from` as numbers of `$word`, each put together with the one of `base` by `$with`.
macro_rules! each {
    ($word:ty, $from:expr, $base:expr, $with:expr) => {{
        const BYTES: usize = size_of::<$word>();
        let (numbers, rest) = $from.as_chunks::<BYTES>();
        let (bases, beyond) = $base.as_chunks::<BYTES>();
        let mut made = vec![0; $from.len()];
        let (out, tail) = made.as_chunks_mut::<BYTES>();
        for ((out, number), base) in out.iter_mut().zip(numbers).zip(bases) {
            *out = $with(<$word>::from_le_bytes(*number), <$word>::from_le_bytes(*base)).to_le_bytes();
        }
        // What is left of a number.
        tail.iter_mut().zip(rest).zip(beyond).for_each(|((out, byte), base)| *out = byte ^ base);
        made
    }};
}

/// The difference of two whole numbers and its inverse, for one size of number.
macro_rules! whole {
    ($name:ident, $word:ty) => {
        mod $name {
            const TOP: u32 = <$word>::BITS - 1;

            #[inline(always)]
            pub(super) fn less(number: $word, base: $word) -> $word {
                let by = number.wrapping_sub(base);
                by << 1 ^ (by >> TOP).wrapping_neg()
            }

            #[inline(always)]
            pub(super) fn more(folded: $word, base: $word) -> $word {
                base.wrapping_add(folded >> 1 ^ (folded & 1).wrapping_neg())
            }
        }
    };
}

/// The map of a float's bits to whole numbers and its inverse, for one size.
macro_rules! float {
    ($name:ident, $word:ty) => {
        mod $name {
            const TOP: u32 = <$word>::BITS - 1;

            /// In the order of the values.
            #[inline(always)]
            pub(super) fn ordered(bits: $word) -> $word {
                let negative = (bits >> TOP).wrapping_neg();
                bits ^ (negative | 1 << TOP)
            }

            #[inline(always)]
            pub(super) fn unordered(number: $word) -> $word {
                let negative = ((number >> TOP) ^ 1).wrapping_neg();
                number ^ (negative | 1 << TOP)
            }
        }
    };
}

whole!(of8, u8);
whole!(of16, u16);
whole!(of32, u32);
whole!(of64, u64);
float!(float16, u16);
float!(float32, u32);
float!(float64, u64);

/// How far each number of `data` is from that of `base`: as many bytes as `data` has.
///
/// # Errors
///
/// [`Damaged`] if `base` has another size.
pub fn encode(data: &[u8], base: &[u8], number: Number) -> Result<Vec<u8>, Damaged> {
    if data.len() != base.len() {
        return Err(Damaged { encoded: base.len(), size: data.len() });
    }
    Ok(match number {
        Number::Int8 => each!(u8, data, base, of8::less),
        Number::Int16 => each!(u16, data, base, of16::less),
        Number::Int32 => each!(u32, data, base, of32::less),
        Number::Int64 => each!(u64, data, base, of64::less),
        Number::Float16 => {
            each!(u16, data, base, |x, y| of16::less(float16::ordered(x), float16::ordered(y)))
        }
        Number::Float32 => {
            each!(u32, data, base, |x, y| of32::less(float32::ordered(x), float32::ordered(y)))
        }
        Number::Float64 => {
            each!(u64, data, base, |x, y| of64::less(float64::ordered(x), float64::ordered(y)))
        }
    })
}

/// What [`encode`] was given as `data`, of what it made and `base`.
///
/// # Errors
///
/// [`Damaged`] if `base` has another size.
pub fn decode(delta: &[u8], base: &[u8], number: Number) -> Result<Vec<u8>, Damaged> {
    if delta.len() != base.len() {
        return Err(Damaged { encoded: delta.len(), size: base.len() });
    }
    Ok(match number {
        Number::Int8 => each!(u8, delta, base, of8::more),
        Number::Int16 => each!(u16, delta, base, of16::more),
        Number::Int32 => each!(u32, delta, base, of32::more),
        Number::Int64 => each!(u64, delta, base, of64::more),
        Number::Float16 => {
            each!(u16, delta, base, |x, y| float16::unordered(of16::more(x, float16::ordered(y))))
        }
        Number::Float32 => {
            each!(u32, delta, base, |x, y| float32::unordered(of32::more(x, float32::ordered(y))))
        }
        Number::Float64 => {
            each!(u64, delta, base, |x, y| float64::unordered(of64::more(x, float64::ordered(y))))
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn floats_are_ordered_as_their_values() {
        let values =
            [f32::NEG_INFINITY, f32::MIN, -1.0, -1e-40, -0.0, 0.0, 1e-40, 1.0, f32::MAX, f32::INFINITY];
        let ordered = values.map(|value| float32::ordered(value.to_bits()));
        assert!(ordered.windows(2).all(|pair| pair[0] < pair[1]), "{ordered:x?}");
        assert_eq!(float32::ordered(0.0f32.to_bits()) - float32::ordered((-0.0f32).to_bits()), 1);
        for bits in (0..=u16::MAX).step_by(if cfg!(miri) { 997 } else { 1 }) {
            assert_eq!(float16::unordered(float16::ordered(bits)), bits);
        }
    }

    #[test]
    fn the_next_float_is_one_step_away() {
        for x in [1.0f32, -3.5, 1e-42, -0.0] {
            let delta = encode(&x.next_up().to_le_bytes(), &x.to_le_bytes(), Number::Float32).unwrap();
            assert!([[2, 0, 0, 0], [4, 0, 0, 0]].contains(&delta[..].try_into().unwrap()), "{x}: {delta:?}");
        }
    }

    /// Also for bits that are no numbers, and for bytes after the last number.
    #[test]
    fn any_bits_come_back() {
        let mut state = 1u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_le_bytes()[5]
        };
        for number in Number::ALL {
            let long = if cfg!(miri) { [50, 67] } else { [4096, 4097] };
            for size in (0..40).step_by(if cfg!(miri) { 11 } else { 1 }).chain(long) {
                let (data, base): (Vec<u8>, Vec<u8>) = (0..size).map(|_| (draw(), draw())).unzip();
                let delta = encode(&data, &base, number).unwrap();
                assert_eq!(delta.len(), size);
                assert_eq!(decode(&delta, &base, number).unwrap(), data, "{number:?}");
                let same = encode(&data, &data, number).unwrap();
                assert!(same.iter().all(|&byte| byte == 0), "{number:?}");
                assert!(encode(&data, &vec![0; size + 1], number).is_err());
                assert!(decode(&data, &vec![0; size + 1], number).is_err());
            }
        }
    }

    /// Any bytes are a difference: nothing is refused but another size, and nothing is lost.
    #[test]
    fn any_bytes_are_a_difference() {
        for bits in (0..=u16::MAX).step_by(if cfg!(miri) { 3989 } else { 1 }) {
            for base in [0, 1, 0x7f80, 0x8000, 0xffff, 0x3c00] {
                let (bits, base) = (bits.to_le_bytes(), u16::to_le_bytes(base));
                let data = decode(&bits, &base, Number::Float16).unwrap();
                assert_eq!(encode(&data, &base, Number::Float16).unwrap(), bits);
            }
        }
    }
}
