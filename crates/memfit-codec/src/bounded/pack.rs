//! Codes of a block with as many bits each as the widest takes: whole low bytes side by side, and the bits above them eight to a
//! word of 64, so that a compiler makes vectors of all loops.

use super::BLOCK;

/// Words that the bits above whole bytes go into; code `k` is in word `k % LANES`.
const LANES: usize = 4;
/// Codes of a word.
const DEPTH: usize = BLOCK / LANES;

/// Bytes of a block of codes of `width` bits.
#[inline(always)]
pub(super) fn bytes(width: usize) -> usize {
    BLOCK * width / 8
}

/// Bytes beyond those of a block that [`write`] may overwrite with anything.
pub(super) const SLACK: usize = 8;

/// Writes the lowest `width` bits of each code to `out`: [`bytes`] of `width`, and up to [`SLACK`] more. Nothing if there's no room.
#[inline(always)]
pub(super) fn write(codes: &[u32; BLOCK], width: usize, out: &mut [u8]) {
    let (whole, bits) = (width / 8, width % 8);
    let Some((planes, rest)) = out.split_at_mut_checked(BLOCK * whole) else { return };
    for (plane, bytes) in planes.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
        for at in 0..BLOCK {
            bytes[at] = lowest(codes[at] >> (8 * plane));
        }
    }
    let Some(rest) = rest.first_chunk_mut::<{ 7 * LANES + SLACK }>() else { return };
    let shift = 8 * whole;
    match bits {
        1 => write_bits::<1>(codes, shift, rest),
        2 => write_bits::<2>(codes, shift, rest),
        3 => write_bits::<3>(codes, shift, rest),
        4 => write_bits::<4>(codes, shift, rest),
        5 => write_bits::<5>(codes, shift, rest),
        6 => write_bits::<6>(codes, shift, rest),
        7 => write_bits::<7>(codes, shift, rest),
        _ => {}
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the lowest bits are what is asked for")]
#[inline(always)]
fn lowest(code: u32) -> u8 {
    code as u8
}

#[inline(always)]
fn write_bits<const BITS: usize>(codes: &[u32; BLOCK], shift: usize, out: &mut [u8; 7 * LANES + SLACK]) {
    let mut lanes = [0u64; LANES];
    for depth in 0..DEPTH {
        for lane in 0..LANES {
            lanes[lane] |= u64::from(codes[depth * LANES + lane] >> shift) << (depth * BITS);
        }
    }
    for (at, lane) in lanes.into_iter().enumerate() {
        out[at * BITS..at * BITS + 8].copy_from_slice(&lane.to_le_bytes());
    }
}

/// The most bytes that [`write`] needs room for.
pub(super) const ROOM: usize = BLOCK * 4 + 7 * LANES + SLACK;

/// The codes in `bytes`, which must be as many as [`bytes`] says.
#[inline(always)]
pub(super) fn read(bytes: &[u8], width: usize) -> [u32; BLOCK] {
    let (whole, bits) = (width / 8, width % 8);
    let mut codes = [0u32; BLOCK];
    let (planes, above) = bytes.split_at(BLOCK * whole);
    match bits {
        1 => read_bits::<1>(above, &mut codes),
        2 => read_bits::<2>(above, &mut codes),
        3 => read_bits::<3>(above, &mut codes),
        4 => read_bits::<4>(above, &mut codes),
        5 => read_bits::<5>(above, &mut codes),
        6 => read_bits::<6>(above, &mut codes),
        7 => read_bits::<7>(above, &mut codes),
        _ => {}
    }
    for (plane, bytes) in planes.as_chunks::<BLOCK>().0.iter().enumerate().rev() {
        // The first to be read of several planes has only its own bits, or those above it.
        let shift = if plane + 1 == whole && bits == 0 { 0 } else { 8 };
        for (code, &byte) in codes.iter_mut().zip(bytes) {
            *code = *code << shift | u32::from(byte);
        }
    }
    codes
}

#[inline(always)]
fn read_bits<const BITS: usize>(bytes: &[u8], codes: &mut [u32; BLOCK]) {
    let mut lanes = [0u64; LANES];
    for (lane, bytes) in lanes.iter_mut().zip(bytes.as_chunks::<BITS>().0) {
        let mut word = [0; 8];
        word[..BITS].copy_from_slice(bytes);
        *lane = u64::from_le_bytes(word);
    }
    for depth in 0..DEPTH {
        for lane in 0..LANES {
            let code = lanes[lane] >> (depth * BITS) & ((1 << BITS) - 1);
            codes[depth * LANES + lane] = low(code);
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "codes have up to seven bits here")]
#[inline(always)]
fn low(code: u64) -> u32 {
    code as u32
}
