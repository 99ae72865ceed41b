//! Groups of words at a time, on processors of the x86 family.

#![allow(unsafe_code, reason = "vector instructions read and write through pointers")]

use std::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_castsi256_ps, _mm256_cmpeq_epi32, _mm256_loadu_si256,
    _mm256_movemask_ps, _mm256_permutevar8x32_epi32, _mm256_setzero_si256, _mm256_storeu_si256,
    _mm512_loadu_si512, _mm512_maskz_compress_epi32, _mm512_maskz_expand_epi32, _mm512_storeu_si512,
    _mm512_test_epi32_mask,
};

use super::{GROUP, WORD};

/// Bytes of a group.
const BYTES: usize = GROUP * WORD;

/// By mask: where the words that it names are taken from when they move to the front, in order.
static TO_FRONT: [[u32; GROUP]; 256] = tables().0;

/// By mask: where each word that it names is taken from when those at the front move back; and all bits of those words.
static FROM_FRONT: [[u32; GROUP]; 256] = tables().1;
static NAMED: [[u32; GROUP]; 256] = tables().2;

type Table = [[u32; GROUP]; 256];

const fn tables() -> (Table, Table, Table) {
    let (mut to, mut from, mut named) = ([[0; GROUP]; 256], [[0; GROUP]; 256], [[0; GROUP]; 256]);
    let mut mask = 0;
    while mask < 256 {
        let (mut word, mut number) = (0, 0u32);
        let (mut front, mut place) = (0, 0u32);
        while word < GROUP {
            if mask >> word & 1 == 1 {
                to[mask][front] = number;
                from[mask][word] = place;
                named[mask][word] = u32::MAX;
                (front, place) = (front + 1, place + 1);
            }
            (word, number) = (word + 1, number + 1);
        }
        mask += 1;
    }
    (to, from, named)
}

/// See [`super::pack_groups`].
pub(super) fn pack_avx2(data: &[u8], mask: &mut [u8], out: &mut [u8]) -> (usize, usize) {
    // SAFETY: only called where the processor has AVX2.
    unsafe { pack_8(data, mask, out) }
}

/// See [`super::unpack_groups`].
pub(super) fn unpack_avx2(mask: &[u8], rest: &[u8], data: &mut [u8]) -> (usize, usize) {
    // SAFETY: only called where the processor has AVX2.
    unsafe { unpack_8(mask, rest, data) }
}

/// See [`super::pack_groups`].
pub(super) fn pack_avx512(data: &[u8], mask: &mut [u8], out: &mut [u8]) -> (usize, usize) {
    // SAFETY: only called where the processor has AVX-512F.
    unsafe { pack_16(data, mask, out) }
}

/// See [`super::unpack_groups`].
pub(super) fn unpack_avx512(mask: &[u8], rest: &[u8], data: &mut [u8]) -> (usize, usize) {
    // SAFETY: only called where the processor has AVX-512F.
    unsafe { unpack_16(mask, rest, data) }
}

/// The words at `at` of a table.
#[target_feature(enable = "avx2")]
fn row(table: &Table, at: u8) -> __m256i {
    let row = &table[usize::from(at)];
    // SAFETY: a row is 32 bytes.
    unsafe { _mm256_loadu_si256(row.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
fn filled(words: __m256i) -> u8 {
    let zero = _mm256_cmpeq_epi32(words, _mm256_setzero_si256());
    !_mm256_movemask_ps(_mm256_castsi256_ps(zero)).to_le_bytes()[0]
}

#[target_feature(enable = "avx2,popcnt")]
fn pack_8(data: &[u8], mask: &mut [u8], out: &mut [u8]) -> (usize, usize) {
    let (mut groups, mut taken) = (0, 0);
    for (group, mask) in data.chunks_exact(BYTES).zip(mask) {
        let Some(to) = out.get_mut(taken..taken + BYTES) else { break };
        // SAFETY: the group has 32 bytes.
        let words = unsafe { _mm256_loadu_si256(group.as_ptr().cast()) };
        *mask = filled(words);
        let packed = _mm256_permutevar8x32_epi32(words, row(&TO_FRONT, *mask));
        // SAFETY: there is room for 32 bytes.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), packed) };
        taken += WORD * mask.count_ones() as usize;
        groups += 1;
    }
    (groups, taken)
}

#[target_feature(enable = "avx2,popcnt")]
fn unpack_8(mask: &[u8], rest: &[u8], data: &mut [u8]) -> (usize, usize) {
    let (mut groups, mut taken) = (0, 0);
    for (group, &mask) in data.chunks_exact_mut(BYTES).zip(mask) {
        let Some(from) = rest.get(taken..taken + BYTES) else { break };
        // SAFETY: there are 32 bytes.
        let packed = unsafe { _mm256_loadu_si256(from.as_ptr().cast()) };
        let words = _mm256_permutevar8x32_epi32(packed, row(&FROM_FRONT, mask));
        let words = _mm256_and_si256(words, row(&NAMED, mask));
        if filled(words) != mask {
            break;
        }
        // SAFETY: the group has 32 bytes.
        unsafe { _mm256_storeu_si256(group.as_mut_ptr().cast(), words) };
        taken += WORD * mask.count_ones() as usize;
        groups += 1;
    }
    (groups, taken)
}

#[target_feature(enable = "avx512f,popcnt")]
fn pack_16(data: &[u8], mask: &mut [u8], out: &mut [u8]) -> (usize, usize) {
    let (mut groups, mut taken) = (0, 0);
    let (masks, _) = mask.as_chunks_mut::<2>();
    for (group, mask) in data.chunks_exact(2 * BYTES).zip(masks) {
        let Some(to) = out.get_mut(taken..taken + 2 * BYTES) else { break };
        // SAFETY: the group has 64 bytes.
        let words = unsafe { _mm512_loadu_si512(group.as_ptr().cast()) };
        let filled = _mm512_test_epi32_mask(words, words);
        // A full store of what a register holds: storing under a mask is slow on some processors.
        let packed = _mm512_maskz_compress_epi32(filled, words);
        // SAFETY: there is room for 64 bytes.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), packed) };
        *mask = filled.to_le_bytes();
        taken += WORD * filled.count_ones() as usize;
        groups += 2;
    }
    (groups, taken)
}

#[target_feature(enable = "avx512f,popcnt")]
fn unpack_16(mask: &[u8], rest: &[u8], data: &mut [u8]) -> (usize, usize) {
    let (mut groups, mut taken) = (0, 0);
    let (masks, _) = mask.as_chunks::<2>();
    for (group, mask) in data.chunks_exact_mut(2 * BYTES).zip(masks) {
        let Some(from) = rest.get(taken..taken + 2 * BYTES) else { break };
        let mask = u16::from_le_bytes(*mask);
        // SAFETY: there are 64 bytes.
        let packed = unsafe { _mm512_loadu_si512(from.as_ptr().cast()) };
        let words = _mm512_maskz_expand_epi32(mask, packed);
        if _mm512_test_epi32_mask(words, words) != mask {
            break;
        }
        // SAFETY: the group has 64 bytes.
        unsafe { _mm512_storeu_si512(group.as_mut_ptr().cast(), words) };
        taken += WORD * mask.count_ones() as usize;
        groups += 2;
    }
    (groups, taken)
}
