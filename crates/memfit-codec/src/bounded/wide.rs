//! The same loops, compiled for any processor, for those with AVX2 and for those with AVX-512: rounding is the same, so are the bytes.

#![allow(unsafe_code, reason = "a function made for some processors is called on those")]

use super::quantise::Step;
use super::{WORD, decode_blocks, encode_blocks};

/// See [`encode_blocks`].
pub(super) fn encode(words: &[[u8; WORD]], step: Step, chained: bool, packed: &mut Vec<u8>) {
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the processor has AVX-512.
        return unsafe { encode_avx512(words, step, chained, packed) };
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { encode_avx2(words, step, chained, packed) };
    }
    encode_blocks(words, step, chained, packed);
}

/// See [`decode_blocks`].
pub(super) fn decode<'a>(
    widths: &[u8],
    rest: &'a [u8],
    step: Step,
    chained: bool,
    words: &mut [[u8; WORD]],
) -> Option<&'a [u8]> {
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the processor has AVX-512.
        return unsafe { decode_avx512(widths, rest, step, chained, words) };
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { decode_avx2(widths, rest, step, chained, words) };
    }
    decode_blocks(widths, rest, step, chained, words)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn encode_avx2(words: &[[u8; WORD]], step: Step, chained: bool, packed: &mut Vec<u8>) {
    encode_blocks(words, step, chained, packed);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn decode_avx2<'a>(
    widths: &[u8],
    rest: &'a [u8],
    step: Step,
    chained: bool,
    words: &mut [[u8; WORD]],
) -> Option<&'a [u8]> {
    decode_blocks(widths, rest, step, chained, words)
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn encode_avx512(words: &[[u8; WORD]], step: Step, chained: bool, packed: &mut Vec<u8>) {
    encode_blocks(words, step, chained, packed);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn decode_avx512<'a>(
    widths: &[u8],
    rest: &'a [u8],
    step: Step,
    chained: bool,
    words: &mut [[u8; WORD]],
) -> Option<&'a [u8]> {
    decode_blocks(widths, rest, step, chained, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_make_the_same_bytes() {
        let mut state = 1u64;
        let words: Vec<[u8; WORD]> = (0..100_003)
            .map(|at| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let [.., a, b, c, d] = state.to_le_bytes();
                if at % 50 == 0 { [a, b, c, d] } else { [a, b, c, 0x3f | d & 0x80] }
            })
            .collect();
        for (bound, chained) in [(1e-3, false), (1e-3, true), (1e-30, false), (1e30, true)] {
            let (step, head) = (Step::new(bound), vec![0; super::super::HEAD + words.len().div_ceil(32)]);
            let (mut one, mut other) = (head.clone(), head.clone());
            encode(&words, step, chained, &mut one);
            encode_blocks(&words, step, chained, &mut other);
            assert!(one == other);
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                let mut third = head.clone();
                // SAFETY: the processor has AVX2.
                unsafe { encode_avx2(&words, step, chained, &mut third) };
                assert!(one == third);
            }
            let (widths, rest) = one[super::super::HEAD..].split_at(words.len().div_ceil(32));
            let (mut one, mut other) = (vec![[0; WORD]; words.len()], vec![[1; WORD]; words.len()]);
            assert_eq!(decode(widths, rest, step, chained, &mut one), Some(&[][..]));
            assert_eq!(decode_blocks(widths, rest, step, chained, &mut other), Some(&[][..]));
            assert!(one == other);
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                other.fill([2; WORD]);
                // SAFETY: the processor has AVX2.
                let rest = unsafe { decode_avx2(widths, rest, step, chained, &mut other) };
                assert_eq!(rest, Some(&[][..]));
                assert!(one == other);
            }
        }
    }
}
