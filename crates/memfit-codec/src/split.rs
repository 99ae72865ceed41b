//! Exponent split: the exponents of floats by themselves, entropy coded; signs and mantissas as they are.
//!
//! Source: ZipNN (Hershcovitch et al., arXiv:2411.05239): of weights only the exponents are predictable, about 2.6 bits of their 8.
//! A byte for each exponent goes through zstd (Huffman), so `bf16` weights get to two thirds of their size and `f32` ones to 83 %.
//! What is left is copied: it is noise. Lossless for any bits, deterministic for a version of zstd. Wrong choice for what is mostly zero
//! or repeats itself, where [`crate::shuffle`] sees more.
//!
//! Form: the length of the packed exponents (`u32`), those, then the other bytes: low ones of all numbers first.

use crate::Damaged;
use crate::shuffle::{by_frequencies, decompressed};

/// Floats that have eight bits of exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Float {
    /// Two bytes.
    Bf16,
    /// Four bytes.
    F32,
}

impl Float {
    /// Bytes of one.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Float::Bf16 => 2,
            Float::F32 => 4,
        }
    }
}

/// Packs `data`; `None` if it is no whole number of floats, or too large to say so.
#[must_use]
pub fn encode(data: &[u8], float: Float) -> Option<Vec<u8>> {
    if !data.len().is_multiple_of(float.bytes()) {
        return None;
    }
    let count = data.len() / float.bytes();
    let (mut exponents, mut others) = (vec![0u8; count], vec![0u8; data.len() - count]);
    match float {
        Float::Bf16 => {
            for ((word, exponent), other) in
                data.as_chunks::<2>().0.iter().zip(&mut exponents).zip(&mut others)
            {
                [*other, *exponent] = u16::from_le_bytes(*word).rotate_left(1).to_le_bytes();
            }
        }
        Float::F32 => {
            let (low, high) = others.split_at_mut(2 * count);
            let low = low.as_chunks_mut::<2>().0.iter_mut().zip(high);
            for ((word, exponent), (low, high)) in data.as_chunks::<4>().0.iter().zip(&mut exponents).zip(low)
            {
                [low[0], low[1], *high, *exponent] = u32::from_le_bytes(*word).rotate_left(1).to_le_bytes();
            }
        }
    }
    let packed = by_frequencies(&exponents);
    let length = u32::try_from(packed.len()).ok()?;
    Some([&length.to_le_bytes()[..], &packed, &others].concat())
}

/// The `size` bytes that were packed.
///
/// # Errors
///
/// [`Damaged`] if `packed` is not what [`encode`] makes of that many bytes.
pub fn decode(packed: &[u8], size: usize, float: Float) -> Result<Vec<u8>, Damaged> {
    let damaged = Damaged { encoded: packed.len(), size };
    if !size.is_multiple_of(float.bytes()) {
        return Err(damaged);
    }
    let count = size / float.bytes();
    let (length, rest) = packed.split_first_chunk::<4>().ok_or(damaged)?;
    let (packed, others) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(damaged)?;
    // From here on the input is worth half of what comes out.
    if others.len() != size - count {
        return Err(damaged);
    }
    let exponents = decompressed(packed, count)?;
    let mut data = vec![0; size];
    match float {
        Float::Bf16 => {
            for ((word, &exponent), &other) in
                data.as_chunks_mut::<2>().0.iter_mut().zip(&exponents).zip(others)
            {
                *word = u16::from_le_bytes([other, exponent]).rotate_right(1).to_le_bytes();
            }
        }
        Float::F32 => {
            let (low, high) = others.split_at(2 * count);
            let low = low.as_chunks::<2>().0.iter().zip(high);
            for ((word, &exponent), (low, &high)) in
                data.as_chunks_mut::<4>().0.iter_mut().zip(&exponents).zip(low)
            {
                *word = u32::from_le_bytes([low[0], low[1], high, exponent]).rotate_right(1).to_le_bytes();
            }
        }
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    /// Numbers as weights have them: normally distributed, by the sum of many draws.
    fn weights(count: usize) -> Vec<f32> {
        let mut state = 3u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f32::from(u16::try_from(state >> 48).unwrap()) / 65_536.0 - 0.5
        };
        (0..count).map(|_| (0..12).map(|_| draw()).sum::<f32>() * 0.02).collect()
    }

    #[test]
    fn bits_come_back() {
        for size in (0..64).step_by(4).chain([70_000]) {
            let data: Vec<u8> = (0..size).map(|at: usize| (at * at * 31 % 255).to_le_bytes()[0]).collect();
            for float in [Float::Bf16, Float::F32] {
                let packed = encode(&data, float).unwrap();
                assert_eq!(decode(&packed, size, float).unwrap(), data);
                assert!(decode(&packed, size + 4, float).is_err());
                assert!(decode(&packed[..packed.len() - 1], size, float).is_err());
            }
        }
        assert!(encode(&[0; 3], Float::Bf16).is_none());
        assert!(decode(&[0; 9], 3, Float::Bf16).is_err());
    }

    /// Goal Z8 and ZipNN's 1.51.
    #[test]
    fn weights_get_to_two_thirds_in_bf16() {
        let values = weights(200_000);
        let full: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let half: Vec<u8> =
            values.iter().flat_map(|value| [value.to_le_bytes()[2], value.to_le_bytes()[3]]).collect();
        let [half, full] = [(&half, Float::Bf16), (&full, Float::F32)]
            .map(|(data, float)| data.len() as f64 / encode(data, float).unwrap().len() as f64);
        assert!(half >= 1.5 && full >= 1.17, "{half:.3}, {full:.3}");
    }
}
