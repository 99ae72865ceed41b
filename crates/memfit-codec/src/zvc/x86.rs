//! Groups of words at a time, on processors of the x86 family.

#![allow(unsafe_code, reason = "vector instructions read and write through pointers")]

use std::arch::x86_64::{
    __m256i, _MM_HINT_T0, _mm_prefetch, _mm256_and_si256, _mm256_castsi256_ps, _mm256_cmpeq_epi32,
    _mm256_loadu_si256, _mm256_movemask_ps, _mm256_permutevar8x32_epi32, _mm256_setzero_si256,
    _mm256_storeu_si256, _mm512_loadu_si512, _mm512_maskz_compress_epi32, _mm512_maskz_expand_epi32,
    _mm512_storeu_si512, _mm512_test_epi32_mask,
};

use super::{GROUP, WORD};

/// Bytes of a group.
const BYTES: usize = GROUP * WORD;

/// Bytes of a line of the cache.
const LINE: usize = 64;

/// Bytes whose words are looked at in one go.
const BLOCK: usize = 64 * LINE;

/// How far ahead of what is read the caches are told.
const AHEAD: usize = 2048;

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
    let (masks, _) = mask.as_chunks::<{ BLOCK / BYTES }>();
    let (blocks, _) = data.as_chunks_mut::<BLOCK>();
    for (block, masks) in blocks.iter_mut().zip(masks) {
        let Some(rest) = rest.get(taken..).and_then(|rest| rest.first_chunk()) else { break };
        let Some(more) = unpack_block_8(masks, rest, block) else { break };
        (groups, taken) = (groups + masks.len(), taken + more);
    }
    for (group, &named) in data[groups * BYTES..].as_chunks_mut().0.iter_mut().zip(&mask[groups..]) {
        let Some(from) = rest.get(taken..).and_then(|rest| rest.first_chunk()) else { break };
        if unpack_group(named, from, group) != 0 {
            break;
        }
        (groups, taken) = (groups + 1, taken + WORD * named.count_ones() as usize);
    }
    (groups, taken)
}

/// A whole block. The bytes of `rest` that it took, if all words were what they should be.
#[target_feature(enable = "avx2,popcnt")]
fn unpack_block_8(
    masks: &[u8; BLOCK / BYTES],
    rest: &[u8; BLOCK + LINE],
    block: &mut [u8; BLOCK],
) -> Option<usize> {
    let (mut taken, mut wrong) = (0, 0);
    for (group, &named) in block.as_chunks_mut().0.iter_mut().zip(masks) {
        // SAFETY: at most 32 bytes have been taken for each group before, and there are 64 more.
        let from: &[u8; LINE] = unsafe { &*rest.as_ptr().add(taken).cast() };
        wrong |= unpack_group(named, from, group);
        taken += WORD * named.count_ones() as usize;
    }
    (wrong == 0).then_some(taken)
}

/// The words that `named` names and that are zero. Half of `from` is read.
#[target_feature(enable = "avx2")]
fn unpack_group(named: u8, from: &[u8; LINE], group: &mut [u8; BYTES]) -> u8 {
    // SAFETY: there are 32 bytes.
    let packed = unsafe { _mm256_loadu_si256(from.as_ptr().cast()) };
    ahead(from);
    let words = _mm256_permutevar8x32_epi32(packed, row(&FROM_FRONT, named));
    let words = _mm256_and_si256(words, row(&NAMED, named));
    // SAFETY: the group has 32 bytes.
    unsafe { _mm256_storeu_si256(group.as_mut_ptr().cast(), words) };
    filled(words) ^ named
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
    let (groups, mut taken) = unpack_blocks(mask, rest, data);
    let mut groups = groups;
    let (masks, _) = mask[groups..].as_chunks::<2>();
    for (line, named) in data[groups * BYTES..].as_chunks_mut::<LINE>().0.iter_mut().zip(masks) {
        let Some(from) = rest.get(taken..).and_then(|rest| rest.first_chunk()) else { break };
        let named = u16::from_le_bytes(*named);
        if unpack_line(named, from, line) != 0 {
            break;
        }
        (groups, taken) = (groups + 2, taken + WORD * named.count_ones() as usize);
    }
    (groups, taken)
}

/// Whole blocks, from the first line of the caches that `data` has all of: a store to two lines takes twice as long. As
/// [`super::unpack_groups`].
#[target_feature(enable = "avx512f,popcnt")]
fn unpack_blocks(mask: &[u8], rest: &[u8], data: &mut [u8]) -> (usize, usize) {
    let ahead = data.as_ptr().align_offset(LINE);
    let ahead = if ahead.is_multiple_of(WORD) { ahead / WORD } else { 0 };
    let Some((first, others)) = data.split_at_mut_checked(ahead * WORD) else { return (0, 0) };
    let Some(mut taken) = super::unpack_words(mask, rest, first) else { return (0, 0) };
    let mut done = ahead;
    for block in others.as_chunks_mut::<BLOCK>().0 {
        let Some(masks) = mask.get(done / GROUP..).and_then(|mask| mask.first_chunk()) else { break };
        let Some(rest) = rest.get(taken..).and_then(|rest| rest.first_chunk()) else { break };
        let Some(more) = unpack_block_16(masks, done % GROUP, rest, block) else { break };
        (done, taken) = (done + BLOCK / WORD, taken + more);
    }
    // Back to where a group begins: those words are there already, and are unpacked once more.
    let (groups, again) = (done / GROUP, done % GROUP);
    let named = mask.get(groups).map_or(0, |mask| mask & ((1u16 << again) - 1).to_le_bytes()[0]);
    (groups, taken - WORD * named.count_ones() as usize)
}

/// Bytes of the mask that are read for a block whose first bit may be any of a byte.
const MASKS: usize = BLOCK / BYTES + 2;

/// A whole block, whose first word is that of the bit `shift` of `masks`. The bytes of `rest` that it took, if all words were what they
/// should be.
#[target_feature(enable = "avx512f,popcnt")]
fn unpack_block_16(
    masks: &[u8; MASKS],
    shift: usize,
    rest: &[u8; BLOCK + LINE],
    block: &mut [u8; BLOCK],
) -> Option<usize> {
    let (mut taken, mut wrong) = (0, 0);
    for (line, at) in block.as_chunks_mut().0.iter_mut().zip((0..).step_by(2)) {
        // SAFETY: two bytes for each line, and there are two more.
        let bits = unsafe { masks.as_ptr().add(at).cast::<u32>().read_unaligned() };
        let [low, high, ..] = (bits >> shift).to_le_bytes();
        let named = u16::from_le_bytes([low, high]);
        // SAFETY: at most 64 bytes have been taken for each line before, and there are 64 more.
        let from = unsafe { &*rest.as_ptr().add(taken).cast() };
        wrong |= unpack_line(named, from, line);
        taken += WORD * named.count_ones() as usize;
    }
    (wrong == 0).then_some(taken)
}

/// Tells the caches what will be read soon.
#[target_feature(enable = "sse")]
fn ahead(from: &[u8; LINE]) {
    // It need not be memory of ours, or of anybody's.
    _mm_prefetch::<_MM_HINT_T0>(from.as_ptr().wrapping_add(AHEAD).cast());
}

/// The words that `named` names and that are zero.
#[target_feature(enable = "avx512f")]
fn unpack_line(named: u16, from: &[u8; LINE], line: &mut [u8; LINE]) -> u16 {
    // SAFETY: there are 64 bytes.
    let packed = unsafe { _mm512_loadu_si512(from.as_ptr().cast()) };
    // Between the two, so that they stay two instructions: expanding from memory is slow.
    ahead(from);
    let words = _mm512_maskz_expand_epi32(named, packed);
    // SAFETY: a line has 64 bytes.
    unsafe { _mm512_storeu_si512(line.as_mut_ptr().cast(), words) };
    _mm512_test_epi32_mask(words, words) ^ named
}
