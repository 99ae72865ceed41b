//! Byte shuffle and zstd: the first bytes of all words, then the second ones …, each a stream of its own kind, then compressed.
//!
//! Source: the shuffle filter of HDF5 and Blosc; zstd (RFC 8878) is the library's. Lossless, deterministic for a version of the library.
//! Decoding takes no more memory than what comes out. About 1 GB/s a core, so for files, not for links.
//! Wrong choice for random bytes, which grow by a few.

use std::io::{Read as _, Write as _};

use zstd::zstd_safe::CParameter;

use crate::Damaged;

/// The least effort, and the fastest: what weights have in common is in single bytes, which no effort changes.
const LEVEL: i32 = 1;

/// Parameters by which zstd sees next to no repetitions, so that bytes are coded by how often they are (Huffman). Of bytes that are
/// independent of each other, as exponents are, repetitions are met by chance, and take more than they save.
const FREQUENCIES: [CParameter; 2] = [CParameter::MinMatch(7), CParameter::HashLog(6)];

/// The bytes of `data`, those at the same place of each word of `width` bytes together; a rest stays at the end.
#[must_use]
pub fn shuffled(data: &[u8], width: usize) -> Vec<u8> {
    match width {
        2 => apart::<2>(data),
        4 => apart::<4>(data),
        8 => apart::<8>(data),
        _ => data.to_vec(),
    }
}

/// The inverse of [`shuffled`].
#[must_use]
pub fn unshuffled(data: &[u8], width: usize) -> Vec<u8> {
    match width {
        2 => together::<2>(data),
        4 => together::<4>(data),
        8 => together::<8>(data),
        _ => data.to_vec(),
    }
}

fn apart<const WIDTH: usize>(data: &[u8]) -> Vec<u8> {
    let (words, rest) = data.as_chunks::<WIDTH>();
    let mut made = vec![0; data.len()];
    for (plane, out) in made.chunks_exact_mut(words.len().max(1)).take(WIDTH).enumerate() {
        out.iter_mut().zip(words).for_each(|(out, word)| *out = word[plane]);
    }
    let tail = data.len() - rest.len();
    made[tail..].copy_from_slice(rest);
    made
}

fn together<const WIDTH: usize>(data: &[u8]) -> Vec<u8> {
    let count = data.len() / WIDTH;
    let mut made = data.to_vec();
    let (words, _) = made.as_chunks_mut::<WIDTH>();
    let planes: [&[u8]; WIDTH] = std::array::from_fn(|plane| &data[plane * count..(plane + 1) * count]);
    for (at, word) in words.iter_mut().enumerate() {
        *word = std::array::from_fn(|plane| planes[plane][at]);
    }
    made
}

/// Shuffles `data` as words of `width` bytes (1, 2, 4 or 8; others as 1) and compresses it.
#[must_use]
pub fn encode(data: &[u8], width: usize) -> Vec<u8> {
    let shuffled = shuffled(data, width);
    let (one, other) = (compressed(&shuffled, &[]), compressed(&shuffled, &FREQUENCIES));
    if other.len() < one.len() { other } else { one }
}

/// The `size` bytes that were packed.
///
/// # Errors
///
/// [`Damaged`] if `packed` is not the compressed form of that many bytes.
pub fn decode(packed: &[u8], size: usize, width: usize) -> Result<Vec<u8>, Damaged> {
    decompressed(packed, size).map(|data| unshuffled(&data, width))
}

/// `data` as a zstd frame, coded by how often bytes are.
pub(crate) fn by_frequencies(data: &[u8]) -> Vec<u8> {
    compressed(data, &FREQUENCIES)
}

/// `data` as a zstd frame.
fn compressed(data: &[u8], parameters: &[CParameter]) -> Vec<u8> {
    let encode = || -> std::io::Result<Vec<u8>> {
        let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL)?;
        parameters.iter().try_for_each(|&parameter| encoder.set_parameter(parameter))?;
        encoder.set_pledged_src_size(Some(data.len() as u64))?;
        encoder.write_all(data)?;
        encoder.finish()
    };
    // Only a lack of memory can fail here, which ends the process elsewhere too. Nothing is refused by whoever reads it.
    encode().unwrap_or_default()
}

/// The `size` bytes of a zstd frame. Memory is taken as it's filled, not as it's promised.
pub(crate) fn decompressed(packed: &[u8], size: usize) -> Result<Vec<u8>, Damaged> {
    let damaged = Damaged { encoded: packed.len(), size };
    // No frame says more than this with a byte.
    let most = (packed.len() as u64).saturating_mul(1 << 17);
    if size as u64 > most {
        return Err(damaged);
    }
    let mut decoder = zstd::Decoder::with_buffer(packed).map_err(|_| damaged)?.single_frame();
    decoder.window_log_max(WINDOW).map_err(|_| damaged)?;
    let mut data = Vec::new();
    let read = decoder.by_ref().take(size as u64 + 1).read_to_end(&mut data);
    let rest = decoder.finish();
    if read.is_err() || data.len() != size || !rest.is_empty() { Err(damaged) } else { Ok(data) }
}

/// The largest window that a frame may ask for, as a power of two: 8 MiB, which is more than this module makes.
const WINDOW: u32 = 23;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn bytes_of_a_place_stand_together() {
        let data = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        assert_eq!(shuffled(&data, 4), [1, 5, 2, 6, 3, 7, 4, 8, 9]);
        assert_eq!(shuffled(&data, 2), [1, 3, 5, 7, 2, 4, 6, 8, 9]);
        assert_eq!(shuffled(&data[..3], 8), data[..3]);
    }

    #[test]
    fn every_size_comes_back() {
        for size in (0..70).chain([65_536, 300_001]) {
            let data: Vec<u8> = (0..size).map(|at: usize| (at * at / 7 % 251).to_le_bytes()[0]).collect();
            for width in [0, 1, 2, 3, 4, 8, 16] {
                assert_eq!(unshuffled(&shuffled(&data, width), width), data);
                let packed = encode(&data, width);
                assert_eq!(decode(&packed, size, width).unwrap(), data, "{size} of {width}");
                for other in [size + 1, size.wrapping_sub(1), usize::MAX] {
                    assert!(decode(&packed, other, width).is_err());
                }
                assert!(decode(&[&packed[..], &[0]].concat(), size, width).is_err());
            }
        }
    }

    #[test]
    fn zeros_take_nothing_and_a_promise_takes_no_memory() {
        let packed = encode(&vec![0; 1 << 20], 4);
        assert!(packed.len() < 100, "{}", packed.len());
        assert!(decode(&packed, 1 << 40, 4).is_err());
    }
}
