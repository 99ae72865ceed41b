//! Zero-value compression: a bit for each word of four bytes, and the words that are not zero.
//!
//! Source: Rhu et al., "Compressing DMA Engine: Leveraging Activation Sparsity for Training Deep Neural Networks" (HPCA 2018,
//! arXiv:1705.01626), without its windows. A word is zero if all its bits are: `-0.0` and every NaN come out as they went
//! in. What is left at the end, one to three bytes, is a word of its own length. Time and space O(size). Wrong choice for
//! data without zeros, which grow by a 32nd.

use crate::Damaged;

/// Bytes of a word.
const WORD: usize = 4;

/// The most bytes that `size` bytes become.
#[must_use]
pub fn bound(size: usize) -> usize {
    size.saturating_add(mask_bytes(size))
}

fn mask_bytes(size: usize) -> usize {
    size.div_ceil(WORD).div_ceil(8)
}

/// Packs `data`: at most [`bound`] bytes.
#[must_use]
pub fn encode(data: &[u8]) -> Vec<u8> {
    let mut packed = vec![0; mask_bytes(data.len())];
    for (at, word) in data.chunks(WORD).enumerate() {
        if word.iter().any(|&byte| byte != 0) {
            packed[at / 8] |= 1 << (at % 8);
            packed.extend_from_slice(word);
        }
    }
    packed
}

/// The `size` bytes that were packed.
///
/// # Errors
///
/// [`Damaged`] if `packed` is not what [`encode`] makes of that many bytes.
pub fn decode(packed: &[u8], size: usize) -> Result<Vec<u8>, Damaged> {
    let damaged = Damaged { encoded: packed.len(), size };
    let mask_bytes = mask_bytes(size);
    if packed.len() < mask_bytes || packed.len() > bound(size) {
        return Err(damaged);
    }
    let (mask, mut rest) = packed.split_at(mask_bytes);
    let mut data = vec![0; size];
    for (at, word) in data.chunks_mut(WORD).enumerate() {
        if mask[at / 8] >> (at % 8) & 1 == 1 {
            let (bytes, others) = rest.split_at_checked(word.len()).ok_or(damaged)?;
            // A word of zeros is never written down.
            if bytes.iter().all(|&byte| byte == 0) {
                return Err(damaged);
            }
            word.copy_from_slice(bytes);
            rest = others;
        }
    }
    let words = size.div_ceil(WORD);
    let beyond = mask.last().is_some_and(|last| !words.is_multiple_of(8) && last >> (words % 8) != 0);
    if rest.is_empty() && !beyond { Ok(data) } else { Err(damaged) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    /// xorshift64*.
    fn draw(state: &mut u64) -> u64 {
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    #[test]
    fn what_is_packed_comes_out_bit_by_bit() {
        let mut state = 7;
        for size in (0..200).chain([4096, 4097, 65_535]) {
            for sparse in [0, 1, 2, 9] {
                let word = |state: &mut u64| {
                    if sparse == 0 || !draw(state).is_multiple_of(sparse + 1) { 0 } else { draw(state) }
                };
                let words: Vec<u8> =
                    (0..=size / 4).flat_map(|_| word(&mut state).to_le_bytes()[..4].to_vec()).collect();
                let data = &words[..size];
                let packed = encode(data);
                assert!(packed.len() <= bound(size));
                assert_eq!(decode(&packed, size).unwrap(), data);
            }
        }
    }

    #[test]
    fn signs_of_zero_and_payloads_of_nan_stay() {
        let words = [0x8000_0000u32, 0, 0x7fc0_0001, 0xffc0_dead, 0x7f80_0000, 1, 0];
        let data: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let packed = encode(&data);
        assert_eq!(packed.len(), 1 + 5 * 4);
        assert_eq!(decode(&packed, data.len()).unwrap(), data);
    }

    #[test]
    fn what_is_damaged_is_refused() {
        let data = [0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 9];
        let packed = encode(&data);
        for cut in 0..packed.len() {
            assert!(decode(&packed[..cut], data.len()).is_err(), "{cut} bytes");
        }
        for (size, longer) in [(12, packed.clone()), (13, [&packed[..], &[1]].concat()), (64, packed.clone())]
        {
            assert!(decode(&longer, size).is_err(), "{size}");
        }
        let mut flipped = packed.clone();
        flipped[0] |= 0x80;
        assert!(decode(&flipped, data.len()).is_err());
        assert_eq!(decode(&[], 0).unwrap(), Vec::<u8>::new());
    }
}
