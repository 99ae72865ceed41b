//! Codes of a block with as many bits each as the widest takes: whole low bytes side by side, then the bits above them, those of eight
//! codes in a word, which is put together from bytes in three steps.

use super::BLOCK;

/// Words that the bits above whole bytes go into.
const WORDS: usize = BLOCK / 8;

/// Bytes of a block of codes of `width` bits.
#[inline(always)]
pub(super) fn bytes(width: usize) -> usize {
    BLOCK * width / 8
}

/// Bytes beyond those of a block that [`write()`] may overwrite with anything.
pub(super) const SLACK: usize = 8;

/// The most bytes that [`write()`] needs room for.
pub(super) const ROOM: usize = BLOCK * 4 + REST;

/// Room for the bits above whole bytes.
const REST: usize = 7 * WORDS + SLACK;

/// The bytes of each code, the lowest of all codes first.
#[inline(always)]
pub(super) fn planes_of<const N: usize>(codes: &[u32; N], planes: &mut [[u8; N]; 4]) {
    for (shift, plane) in planes.iter_mut().enumerate() {
        for at in 0..N {
            #[expect(clippy::cast_possible_truncation, reason = "the lowest bits are what is asked for")]
            let byte = (codes[at] >> (8 * shift)) as u8;
            plane[at] = byte;
        }
    }
}

/// Writes the lowest `width` bits of each code of a block, of which these are the bytes, to `out`: [`bytes`] of `width`, and up to
/// [`SLACK`] more. Nothing if there's no room.
#[inline(always)]
pub(super) fn write(planes: [&[u8; BLOCK]; 4], width: usize, out: &mut [u8]) {
    let (whole, bits) = (width / 8, width % 8);
    let Some((full, rest)) = out.split_at_mut_checked(BLOCK * whole) else { return };
    full.as_chunks_mut::<BLOCK>().0.iter_mut().zip(planes).for_each(|(bytes, plane)| *bytes = *plane);
    let Some(rest) = rest.first_chunk_mut::<REST>() else { return };
    let above = planes[whole.min(3)];
    match bits {
        1 => write_bits::<1>(above, rest),
        2 => write_bits::<2>(above, rest),
        3 => write_bits::<3>(above, rest),
        4 => write_bits::<4>(above, rest),
        5 => write_bits::<5>(above, rest),
        6 => write_bits::<6>(above, rest),
        7 => write_bits::<7>(above, rest),
        _ => {}
    }
}

#[inline(always)]
fn write_bits<const BITS: usize>(above: &[u8; BLOCK], out: &mut [u8; REST]) {
    for (at, bytes) in above.as_chunks::<8>().0.iter().enumerate() {
        let word = squeezed::<BITS>(u64::from_le_bytes(*bytes));
        out[at * BITS..at * BITS + 8].copy_from_slice(&word.to_le_bytes());
    }
}

/// Every second byte, of two, of four.
pub(super) const BYTES: u64 = 0x00ff_00ff_00ff_00ff;
pub(super) const PAIRS: u64 = 0x0000_ffff_0000_ffff;
pub(super) const FOURS: u64 = 0x0000_0000_ffff_ffff;

/// The lowest `BITS` of each byte side by side; the others are zero.
#[inline(always)]
fn squeezed<const BITS: usize>(word: u64) -> u64 {
    let word = word & BYTES | (word & !BYTES) >> (8 - BITS);
    let word = word & PAIRS | (word & !PAIRS) >> (16 - 2 * BITS);
    word & FOURS | (word & !FOURS) >> (32 - 4 * BITS)
}

/// The inverse of [`squeezed`].
#[inline(always)]
fn stretched<const BITS: usize>(word: u64) -> u64 {
    let (byte, pair, four) = ((1 << BITS) - 1, (1 << (2 * BITS)) - 1, (1u64 << (4 * BITS)) - 1);
    let word = word & four | (word & !four) << (32 - 4 * BITS);
    let pairs = pair * 0x0000_0001_0000_0001;
    let word = word & pairs | (word & !pairs) << (16 - 2 * BITS);
    let bytes = byte * 0x0001_0001_0001_0001;
    word & bytes | (word & !bytes) << (8 - BITS)
}

/// The codes in `bytes`, which must be as many as [`bytes`] says.
#[inline(always)]
pub(super) fn read(bytes: &[u8], width: usize) -> [u32; BLOCK] {
    let (whole, bits) = (width / 8, width % 8);
    let (planes, above) = bytes.split_at(BLOCK * whole);
    let mut plane = [0; BLOCK];
    match bits {
        1 => read_bits::<1>(above, &mut plane),
        2 => read_bits::<2>(above, &mut plane),
        3 => read_bits::<3>(above, &mut plane),
        4 => read_bits::<4>(above, &mut plane),
        5 => read_bits::<5>(above, &mut plane),
        6 => read_bits::<6>(above, &mut plane),
        7 => read_bits::<7>(above, &mut plane),
        _ => {}
    }
    let mut codes = [0u32; BLOCK];
    for at in 0..BLOCK {
        codes[at] = u32::from(plane[at]);
    }
    for bytes in planes.as_chunks::<BLOCK>().0.iter().rev() {
        for at in 0..BLOCK {
            // Nothing is lost: a code has at most 32 bits, and what is above whole bytes less than eight.
            codes[at] = codes[at] << 8 | u32::from(bytes[at]);
        }
    }
    codes
}

#[inline(always)]
fn read_bits<const BITS: usize>(bytes: &[u8], plane: &mut [u8; BLOCK]) {
    for (out, bytes) in plane.as_chunks_mut::<8>().0.iter_mut().zip(bytes.as_chunks::<BITS>().0) {
        let mut word = [0; 8];
        word[..BITS].copy_from_slice(bytes);
        *out = stretched::<BITS>(u64::from_le_bytes(word)).to_le_bytes();
    }
}
