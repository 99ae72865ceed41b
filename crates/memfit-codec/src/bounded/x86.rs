//! Whole blocks at a time, on processors of the x86 family with AVX2: a block stays in registers from its values to its bytes.
//!
//! The same operations in the same order as the loops in `quantise.rs`, so the same codes. Only where the error's check by `f32` fails
//! for one of a block is that block looked at as it is there.

#![allow(unsafe_code, reason = "vector instructions read and write through pointers")]

use std::arch::x86_64::{
    __m256, __m256i, _CMP_LT_OQ, _mm_cvtsi64_si128, _mm_cvtsi128_si32, _mm_or_si128, _mm_shuffle_epi32,
    _mm_storeu_si128, _mm256_add_ps, _mm256_and_ps, _mm256_and_si256, _mm256_andnot_si256,
    _mm256_blend_epi32, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_castsi256_si128, _mm256_cmp_ps,
    _mm256_cmpeq_epi32, _mm256_cvtepi32_ps, _mm256_extracti128_si256, _mm256_loadu_ps, _mm256_loadu_si256,
    _mm256_max_epu32, _mm256_movemask_ps, _mm256_mul_ps, _mm256_or_si256, _mm256_packus_epi16,
    _mm256_packus_epi32, _mm256_permutevar8x32_epi32, _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_set1_ps,
    _mm256_setr_epi32, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_slli_epi32, _mm256_srai_epi32,
    _mm256_srl_epi64, _mm256_srli_epi32, _mm256_storeu_si256, _mm256_sub_epi32, _mm256_sub_ps,
    _mm256_xor_si256,
};

use super::pack::{BYTES, FOURS, PAIRS, ROOM};
use super::quantise::{ROUND, Step, second_look};
use super::{BATCH, BLOCK, WORD, finished, loaded};

/// Values of a vector, and vectors of a block.
const LANES: usize = 8;
const PARTS: usize = BLOCK / LANES;

/// A block's values, codes, or what is written for them.
type Vectors = [__m256i; PARTS];

/// Bytes of a pair of words of which each has as many as there are bits above whole bytes, by that number: side by side.
static SIDE_BY_SIDE: [[u8; 32]; 8] = side_by_side();

const fn side_by_side() -> [[u8; 32]; 8] {
    let mut table = [[0x80; 32]; 8];
    let mut bits = 0;
    while bits < 8 {
        let mut at = 0;
        let mut from = 0u8;
        while at < 2 * bits {
            if at == bits {
                from = 8;
            }
            table[bits][at] = from;
            table[bits][at + 16] = from;
            (at, from) = (at + 1, from + 1);
        }
        bits += 1;
    }
    table
}

/// Appends whole batches, and writes the bytes of their blocks to `widths`: the blocks that were, and the last code.
#[inline]
#[target_feature(enable = "avx2,popcnt,lzcnt")]
pub(super) fn encode_batches(
    words: &[[u8; WORD]],
    step: Step,
    chained: bool,
    widths: usize,
    packed: &mut Vec<u8>,
) -> (usize, i32) {
    let mut bytes = [0; BATCH * WORD + ROOM];
    let mut before = _mm256_setzero_si256();
    let mut blocks = 0;
    for batch in words.as_chunks::<BATCH>().0 {
        let mut filled = 0;
        for block in batch.as_chunks::<BLOCK>().0 {
            let Some(out) = bytes.get_mut(filled..) else { break };
            let (codes, escapes) = codes_of(block, step);
            let folds = if chained { differences(&codes, before) } else { codes };
            before = codes[PARTS - 1];
            let (size, width) = write(block, folded(folds), escapes, out);
            filled += size;
            packed[widths + blocks] = width;
            blocks += 1;
        }
        packed.extend_from_slice(&bytes[..filled]);
    }
    (blocks, last(before))
}

#[inline]
#[target_feature(enable = "avx2")]
fn last(codes: __m256i) -> i32 {
    let mut lanes = [0i32; LANES];
    // SAFETY: there is room for eight words.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), codes) };
    lanes[LANES - 1]
}

/// The codes of a block, and a bit for each that would break the bound and is zero therefore.
#[inline]
#[target_feature(enable = "avx2")]
fn codes_of(block: &[[u8; WORD]; BLOCK], step: Step) -> (Vectors, u32) {
    let mut codes = [_mm256_setzero_si256(); PARTS];
    let mut holds = 0;
    for (at, part) in block.as_chunks::<LANES>().0.iter().enumerate() {
        // SAFETY: a part has eight words.
        let values = unsafe { _mm256_loadu_ps(part.as_ptr().cast()) };
        let round = _mm256_set1_ps(ROUND);
        let rounded = _mm256_add_ps(_mm256_mul_ps(values, _mm256_set1_ps(step.inverse)), round);
        codes[at] = _mm256_sub_epi32(_mm256_castps_si256(rounded), _mm256_castps_si256(round));
        holds |= held(values, codes[at], step) << (LANES * at);
    }
    if holds == u32::MAX { (codes, 0) } else { looked_at_again(block, step, codes, holds) }
}

/// A bit for each value that its code is nearer to than the bound, and that is no subnormal number.
#[inline]
#[target_feature(enable = "avx2")]
fn held(values: __m256, codes: __m256i, step: Step) -> u32 {
    let magnitude = _mm256_set1_epi32(0x7fff_ffff);
    let made = _mm256_mul_ps(_mm256_cvtepi32_ps(codes), _mm256_set1_ps(step.step));
    let error = _mm256_and_ps(_mm256_sub_ps(values, made), _mm256_castsi256_ps(magnitude));
    // Not so for an infinity or NaN, whose error is none or infinite.
    let near = _mm256_cmp_ps::<_CMP_LT_OQ>(error, _mm256_set1_ps(step.bound));
    // One less than the bits of zero is more than those of any number.
    let below =
        _mm256_sub_epi32(_mm256_and_si256(_mm256_castps_si256(values), magnitude), _mm256_set1_epi32(1));
    let normal = _mm256_cmpeq_epi32(_mm256_max_epu32(below, _mm256_set1_epi32(0x007f_ffff)), below);
    _mm256_movemask_ps(_mm256_and_ps(near, _mm256_castsi256_ps(normal))).cast_unsigned()
}

#[cold]
#[inline(never)]
#[target_feature(enable = "avx2")]
fn looked_at_again(block: &[[u8; WORD]; BLOCK], step: Step, codes: Vectors, holds: u32) -> (Vectors, u32) {
    let mut there = [0i32; BLOCK];
    for (lanes, codes) in there.as_chunks_mut::<LANES>().0.iter_mut().zip(codes) {
        // SAFETY: there is room for eight words.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), codes) };
    }
    let holds = std::array::from_fn(|at| holds >> at & 1);
    let escapes = second_look(&loaded(block), &[0.0; BLOCK], step, &holds, &mut there);
    let mut codes = codes;
    for (lanes, codes) in there.as_chunks::<LANES>().0.iter().zip(&mut codes) {
        // SAFETY: these are eight words.
        *codes = unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) };
    }
    (codes, escapes)
}

/// What each code is more than the one before it.
#[inline]
#[target_feature(enable = "avx2")]
fn differences(codes: &Vectors, before: __m256i) -> Vectors {
    let by_one = _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6);
    let mut before = _mm256_permutevar8x32_epi32(before, by_one);
    let mut made = [_mm256_setzero_si256(); PARTS];
    for at in 0..PARTS {
        let moved = _mm256_permutevar8x32_epi32(codes[at], by_one);
        made[at] = _mm256_sub_epi32(codes[at], _mm256_blend_epi32::<1>(moved, before));
        before = moved;
    }
    made
}

/// See [`super::folded`].
#[inline]
#[target_feature(enable = "avx2")]
fn folded(mut codes: Vectors) -> Vectors {
    for codes in &mut codes {
        *codes = _mm256_xor_si256(_mm256_slli_epi32::<1>(*codes), _mm256_srai_epi32::<31>(*codes));
    }
    codes
}

/// See [`super::width_of`].
#[inline]
#[target_feature(enable = "avx2,lzcnt")]
fn width_of(folds: &Vectors) -> usize {
    let any = _mm256_or_si256(_mm256_or_si256(folds[0], folds[1]), _mm256_or_si256(folds[2], folds[3]));
    let any = _mm_or_si128(_mm256_castsi256_si128(any), _mm256_extracti128_si256::<1>(any));
    let any = _mm_or_si128(any, _mm_shuffle_epi32::<0b01_00_11_10>(any));
    let any = _mm_or_si128(any, _mm_shuffle_epi32::<0b10_11_00_01>(any));
    (u32::BITS - _mm_cvtsi128_si32(any).leading_zeros()) as usize
}

/// Writes a block to `out`: its bytes, and the byte that says how many. See [`super::pack_block`].
#[inline]
#[target_feature(enable = "avx2,popcnt,lzcnt")]
fn write(block: &[[u8; WORD]; BLOCK], mut folds: Vectors, escapes: u32, out: &mut [u8]) -> (usize, u8) {
    let width = width_of(&folds);
    if let Some(out) = out.first_chunk_mut::<ROOM>() {
        let (whole, bits) = (width / 8, width % 8);
        for plane in out.as_chunks_mut::<BLOCK>().0.iter_mut().take(whole) {
            // SAFETY: there is room for 32 bytes.
            unsafe { _mm256_storeu_si256(plane.as_mut_ptr().cast(), lowest(&folds)) };
            for folds in &mut folds {
                *folds = _mm256_srli_epi32::<8>(*folds);
            }
        }
        let above = squeezed(lowest(&folds), bits);
        // A block of 32 bits has nothing above whole bytes, and is written as it is below.
        for (at, half) in
            [_mm256_castsi256_si128(above), _mm256_extracti128_si256::<1>(above)].into_iter().enumerate()
        {
            let start = BLOCK * whole + 2 * bits * at;
            if let Some(out) = out.get_mut(start..start + 16) {
                // SAFETY: there is room for 16 bytes.
                unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), half) };
            }
        }
    }
    finished(block, width, escapes, out)
}

/// The lowest byte of each.
#[inline]
#[target_feature(enable = "avx2")]
fn lowest(folds: &Vectors) -> __m256i {
    let mut bytes = *folds;
    for bytes in &mut bytes {
        *bytes = _mm256_and_si256(*bytes, _mm256_set1_epi32(0xff));
    }
    let low = _mm256_packus_epi32(bytes[0], bytes[1]);
    let high = _mm256_packus_epi32(bytes[2], bytes[3]);
    // Packing goes by halves: four of each vector, then the other four.
    _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
}

/// The lowest `bits` of each byte, those of eight side by side, and those of sixteen: see `squeezed` in `pack.rs`.
#[inline]
#[target_feature(enable = "avx2")]
fn squeezed(words: __m256i, bits: usize) -> __m256i {
    let mut words = words;
    for (step, low) in [BYTES, PAIRS, FOURS].into_iter().enumerate() {
        let by = _mm_cvtsi64_si128(i64::try_from((8 - bits) << step).unwrap_or_default());
        let low = _mm256_set1_epi64x(low.cast_signed());
        let high = _mm256_srl_epi64(_mm256_andnot_si256(low, words), by);
        words = _mm256_or_si256(_mm256_and_si256(words, low), high);
    }
    // SAFETY: a row is 32 bytes.
    let order = unsafe { _mm256_loadu_si256(SIDE_BY_SIDE[bits % 8].as_ptr().cast()) };
    _mm256_shuffle_epi8(words, order)
}
