//! The same loops, compiled for any processor, for those with AVX2 and for those with AVX-512: rounding is the same, so are the bytes.
//! What is encoded by hand where there is AVX2 or AVX-512 is in `x86.rs` and `x86_512.rs`.

#![allow(unsafe_code, reason = "a function made for some processors is called on those")]

use super::quantise::Step;
use super::{BLOCK, HEAD, WORD, decode_blocks, encode_blocks};
#[cfg(target_arch = "x86_64")]
use super::{x86, x86_512};

/// See [`encode_blocks`].
pub(super) fn encode(words: &[[u8; WORD]], step: Step, chained: bool, packed: &mut Vec<u8>) {
    #[cfg(target_arch = "x86_64")]
    if has_avx512() {
        // SAFETY: the processor has AVX-512.
        return unsafe { encode_avx512(words, step, chained, packed) };
    }
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the processor has AVX2.
        return unsafe { encode_avx2(words, step, chained, packed) };
    }
    encode_blocks(words, step, chained, (HEAD, 0), packed);
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
    if has_avx2() {
        // SAFETY: the processor has AVX2.
        return unsafe { decode_avx2(widths, rest, step, chained, words) };
    }
    decode_blocks(widths, rest, step, chained, words)
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("popcnt")
        && is_x86_feature_detected!("lzcnt")
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt,lzcnt")]
fn encode_avx2(words: &[[u8; WORD]], step: Step, chained: bool, packed: &mut Vec<u8>) {
    let (blocks, before) = x86::encode_batches(words, step, chained, HEAD, packed);
    encode_blocks(&words[blocks * BLOCK..], step, chained, (HEAD + blocks, before), packed);
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
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("bmi2")
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt,lzcnt,bmi2,avx512f,avx512bw,avx512dq,avx512vl")]
fn encode_avx512(words: &[[u8; WORD]], step: Step, chained: bool, packed: &mut Vec<u8>) {
    let (blocks, before) = x86_512::encode_blocks(words, step, chained, HEAD, packed);
    encode_blocks(&words[blocks * BLOCK..], step, chained, (HEAD + blocks, before), packed);
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

    /// Numbers of many magnitudes, and now and then a batch of any bits at all: infinities, NaN, subnormal numbers, zeros.
    fn words(count: u32) -> Vec<[u8; WORD]> {
        let mut state = 1u64;
        let word = |at: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let [.., a, b, c, d] = state.to_le_bytes();
            match at / 700 % 6 {
                0 => [a, b, c, 0x3f | d & 0x80],
                1 if at.is_multiple_of(50) => [a, b, c, d],
                1 | 2 => (f32::from(a) * 1e-3).to_le_bytes(),
                3 => [a, b, c & 0x7f, d & 0x80],
                4 => [[0; 4], [0, 0, 0, 0x80], [0, 0, 0xc0, 0x7f], [0, 0, 0x80, 0xff]][usize::from(a % 4)],
                _ => [a, b, c, d],
            }
        };
        (0..count).map(word).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "there is one way alone")]
    fn all_ways_make_the_same_bytes() {
        let all = words(100_003);
        let sizes = [0, 1, 31, 511, 512, 513, 1024 + 33, all.len()];
        let bounds =
            [(1e-3, false), (1e-3, true), (1e-30, false), (1e30, true), (2e-7, true), (1e-39, false)];
        for (words, (bound, chained)) in
            sizes.iter().flat_map(|&size| bounds.map(|bound| (&all[..size], bound)))
        {
            let (step, head) = (Step::new(bound), vec![0; HEAD + words.len().div_ceil(32)]);
            let (mut one, mut other) = (head.clone(), head.clone());
            encode(words, step, chained, &mut one);
            encode_blocks(words, step, chained, (HEAD, 0), &mut other);
            assert!(one == other);
            #[cfg(target_arch = "x86_64")]
            if has_avx2() {
                let mut third = head.clone();
                // SAFETY: the processor has AVX2.
                unsafe { encode_avx2(words, step, chained, &mut third) };
                assert!(one == third);
            }
            let (widths, rest) = one[HEAD..].split_at(words.len().div_ceil(32));
            let (mut one, mut other) = (vec![[0; WORD]; words.len()], vec![[1; WORD]; words.len()]);
            assert_eq!(decode(widths, rest, step, chained, &mut one), Some(&[][..]));
            assert_eq!(decode_blocks(widths, rest, step, chained, &mut other), Some(&[][..]));
            assert!(one == other);
            #[cfg(target_arch = "x86_64")]
            if has_avx2() {
                other.fill([2; WORD]);
                // SAFETY: the processor has AVX2.
                let rest = unsafe { decode_avx2(widths, rest, step, chained, &mut other) };
                assert_eq!(rest, Some(&[][..]));
                assert!(one == other);
            }
        }
    }
}
