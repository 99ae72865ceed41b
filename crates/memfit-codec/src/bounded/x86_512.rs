//! As `x86.rs`, on processors with AVX-512 and BMI2: a block is two vectors, and is written where it goes.
//!
//! The same operations in the same order, so the same bytes. Blocks that take the long way (a code that does not hold, or nothing
//! gained) are rare; they go by `second_look` and `finished`.

#![allow(unsafe_code, reason = "vector instructions read and write through pointers")]

use std::arch::x86_64::{
    __m512, __m512i, _CMP_LT_OQ, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_storeu_si128, _mm512_abs_ps,
    _mm512_add_ps, _mm512_alignr_epi32, _mm512_castps_si512, _mm512_cvtepi32_epi8, _mm512_cvtepi32_ps,
    _mm512_fpclass_ps_mask, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_cmp_ps_mask, _mm512_mul_ps,
    _mm512_or_si512, _mm512_reduce_or_epi32, _mm512_set1_ps, _mm512_setzero_si512, _mm512_slli_epi32,
    _mm512_srai_epi32, _mm512_srli_epi32, _mm512_storeu_si512, _mm512_sub_epi32, _mm512_sub_ps,
    _mm512_xor_si512, _pext_u64,
};

use super::pack::{self, ROOM};
use super::quantise::{ROUND, Step, second_look};
use super::{BLOCK, WORD, finished, loaded};

/// Values of a vector.
const LANES: usize = 16;

/// A block's codes, or what is written for them.
type Vectors = [__m512i; 2];

/// `fpclass`: subnormal.
const SUBNORMAL: i32 = 0x20;

/// The lowest bit of each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Appends whole blocks while there is room for any, and writes their bytes to `widths`: the blocks that were, and the last code.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,lzcnt,bmi2")]
pub(super) fn encode_blocks(
    words: &[[u8; WORD]],
    step: Step,
    chained: bool,
    widths: usize,
    packed: &mut Vec<u8>,
) -> (usize, i32) {
    let mut before = _mm512_setzero_si512();
    let (mut blocks, mut filled, capacity) = (0, packed.len(), packed.capacity());
    let (start, wide) = (packed.as_mut_ptr(), Wide::of(step));
    for block in words.as_chunks::<BLOCK>().0 {
        if capacity - filled < ROOM || widths + blocks >= packed.len() {
            break;
        }
        let (mut codes, mut escapes) = ([before; 2], 0);
        let mut holds = 0;
        for (at, half) in block.as_chunks::<LANES>().0.iter().enumerate() {
            let held;
            (codes[at], held) = codes_of(half, wide);
            holds |= held << (LANES * at);
        }
        if holds != u32::MAX {
            let mut there = words_of(codes).map(u32::cast_signed);
            escapes = looked_at_again(block, step, &mut there, holds);
            for (lanes, codes) in there.as_chunks::<LANES>().0.iter().zip(&mut codes) {
                // SAFETY: these are sixteen words.
                *codes = unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) };
            }
        }
        let folds = folded(if chained { differences(codes, before) } else { codes });
        before = codes[1];
        let any = _mm512_reduce_or_epi32(_mm512_or_si512(folds[0], folds[1]));
        let width = u32::BITS - any.leading_zeros();
        // SAFETY: there is room for the most that a block takes beyond what is filled, and bytes of widths are among those.
        unsafe {
            let out = start.add(filled);
            let (size, byte) = match u8::try_from(width) {
                Ok(byte @ 0..32) if escapes == 0 => {
                    write(folds, usize::from(byte), out);
                    (pack::bytes(usize::from(byte)), byte)
                }
                _ => written_apart(block, folds, (width as usize, escapes), out),
            };
            start.add(widths + blocks).write(byte);
            filled += size;
        }
        blocks += 1;
    }
    // SAFETY: all of it has been written, and is within what the vector has.
    unsafe { packed.set_len(filled) };
    let mut lanes = [0i32; LANES];
    // SAFETY: there is room for sixteen words.
    unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), before) };
    (blocks, lanes[LANES - 1])
}

/// What all vectors of a step have in common.
#[derive(Clone, Copy)]
struct Wide {
    inverse: __m512,
    step: __m512,
    bound: __m512,
    round: __m512,
}

impl Wide {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn of(step: Step) -> Wide {
        let (inverse, bound) = (_mm512_set1_ps(step.inverse), _mm512_set1_ps(step.bound));
        Wide { inverse, step: _mm512_set1_ps(step.step), bound, round: _mm512_set1_ps(ROUND) }
    }
}

/// The codes of sixteen values, and a bit for each that its code is nearer to than the bound, and that is no subnormal number.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn codes_of(values: &[[u8; WORD]; LANES], wide: Wide) -> (__m512i, u32) {
    // SAFETY: these are sixteen words.
    let values = unsafe { _mm512_loadu_ps(values.as_ptr().cast()) };
    let rounded = _mm512_add_ps(_mm512_mul_ps(values, wide.inverse), wide.round);
    let codes = _mm512_sub_epi32(_mm512_castps_si512(rounded), _mm512_castps_si512(wide.round));
    let made = _mm512_mul_ps(_mm512_cvtepi32_ps(codes), wide.step);
    let error = _mm512_abs_ps(_mm512_sub_ps(values, made));
    let normal = !_mm512_fpclass_ps_mask::<SUBNORMAL>(values);
    // Not so for an infinity or NaN, whose error is none or infinite.
    let held = _mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(normal, error, wide.bound);
    (codes, u32::from(held))
}

/// See [`second_look`].
#[cold]
#[inline(never)]
fn looked_at_again(block: &[[u8; WORD]; BLOCK], step: Step, codes: &mut [i32; BLOCK], holds: u32) -> u32 {
    let holds = std::array::from_fn(|at| holds >> at & 1);
    second_look(&loaded(block), &[0.0; BLOCK], step, &holds, codes)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn words_of(vectors: Vectors) -> [u32; BLOCK] {
    let mut words = [0u32; BLOCK];
    for (lanes, vector) in words.as_chunks_mut::<LANES>().0.iter_mut().zip(vectors) {
        // SAFETY: there is room for sixteen words.
        unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), vector) };
    }
    words
}

/// What each code is more than the one before it.
#[inline]
#[target_feature(enable = "avx512f")]
fn differences(codes: Vectors, before: __m512i) -> Vectors {
    let last = [_mm512_alignr_epi32::<15>(codes[0], before), _mm512_alignr_epi32::<15>(codes[1], codes[0])];
    [_mm512_sub_epi32(codes[0], last[0]), _mm512_sub_epi32(codes[1], last[1])]
}

/// See [`super::folded`].
#[inline]
#[target_feature(enable = "avx512f")]
fn folded(mut codes: Vectors) -> Vectors {
    for codes in &mut codes {
        *codes = _mm512_xor_si512(_mm512_slli_epi32::<1>(*codes), _mm512_srai_epi32::<31>(*codes));
    }
    codes
}

/// Writes the lowest `width` bits of each, at most 31: see [`pack::write()`].
///
/// # Safety
///
/// `out` has room for [`ROOM`] bytes.
#[inline]
#[target_feature(enable = "avx512f,bmi2")]
unsafe fn write(mut folds: Vectors, width: usize, out: *mut u8) {
    let (whole, bits) = (width / 8, width % 8);
    for plane in 0..whole {
        for (at, folds) in folds.iter_mut().enumerate() {
            // SAFETY: three planes of 32 bytes at most.
            unsafe {
                _mm_storeu_si128(out.add(BLOCK * plane + LANES * at).cast(), _mm512_cvtepi32_epi8(*folds))
            };
            *folds = _mm512_srli_epi32::<8>(*folds);
        }
    }
    if bits == 0 {
        return;
    }
    let lowest = ONES * ((1 << bits) - 1);
    let above = [_mm512_cvtepi32_epi8(folds[0]), _mm512_cvtepi32_epi8(folds[1])];
    let words = [
        _mm_cvtsi128_si64(above[0]),
        _mm_extract_epi64::<1>(above[0]),
        _mm_cvtsi128_si64(above[1]),
        _mm_extract_epi64::<1>(above[1]),
    ];
    for (at, word) in words.into_iter().enumerate() {
        let word = _pext_u64(word.cast_unsigned(), lowest).to_le_bytes();
        // SAFETY: what is behind whole planes has room for four words, each a few bytes behind the one before.
        unsafe { out.add(BLOCK * whole + bits * at).cast::<[u8; 8]>().write_unaligned(word) };
    }
}

/// As [`super::pack_block`], for what is rare: the size and the byte of the block.
///
/// # Safety
///
/// `out` has room for [`ROOM`] bytes.
#[cold]
#[inline(never)]
#[target_feature(enable = "avx512f")]
unsafe fn written_apart(
    block: &[[u8; WORD]; BLOCK],
    folds: Vectors,
    (width, escapes): (usize, u32),
    out: *mut u8,
) -> (usize, u8) {
    let mut planes = [[0; BLOCK]; 4];
    pack::planes_of(&words_of(folds), &mut planes);
    let mut bytes = [0u8; ROOM];
    pack::write(planes.each_ref(), width, &mut bytes);
    let (size, byte) = finished(block, width, escapes, &mut bytes);
    // SAFETY: no block takes more.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), out, size.min(ROOM)) };
    (size, byte)
}
