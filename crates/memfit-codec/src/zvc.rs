//! Zero-value compression: a bit for each word of four bytes, and the words that are not zero.
//!
//! Source: Rhu et al., "Compressing DMA Engine: Leveraging Activation Sparsity for Training Deep Neural Networks" (HPCA 2018,
//! arXiv:1705.01626), without its windows: all masks stand before all words. A word is zero if all its bits are: `-0.0` and every
//! NaN come out as they went in. What is left at the end, one to three bytes, is a word of its own length. Time and space
//! O(size); about as fast as a copy where a processor has AVX2 or AVX-512. Wrong choice for data without zeros, which grow by a
//! 32nd.

use crate::coder::{Coder, Damaged};
pub use crate::variant::Variant;

#[cfg(target_arch = "x86_64")]
mod x86;

use crate::words::WORD;

/// Words that share a byte of the mask.
const GROUP: usize = 8;

/// Packs whole groups of `data` as long as there is room for any group in `out`: the groups that were, and the bytes of `out` that
/// they took.
fn pack_groups(variant: Variant, data: &[u8], mask: &mut [u8], out: &mut [u8]) -> (usize, usize) {
    match variant.checked() {
        #[cfg(target_arch = "x86_64")]
        Variant::Avx2 => x86::pack_avx2(data, mask, out),
        #[cfg(target_arch = "x86_64")]
        Variant::Avx512 => x86::pack_avx512(data, mask, out),
        _ => (0, 0),
    }
}

/// Unpacks whole groups as long as `rest` has the bytes of any group and all is well: the groups that were, and the bytes of `rest`
/// that they took.
fn unpack_groups(variant: Variant, mask: &[u8], rest: &[u8], data: &mut [u8]) -> (usize, usize) {
    match variant.checked() {
        #[cfg(target_arch = "x86_64")]
        Variant::Avx2 => x86::unpack_avx2(mask, rest, data),
        #[cfg(target_arch = "x86_64")]
        Variant::Avx512 => x86::unpack_avx512(mask, rest, data),
        _ => (0, 0),
    }
}

/// The codec.
pub(crate) struct Zvc;

impl Coder for Zvc {
    fn name(&self) -> &'static str {
        "zvc"
    }

    fn summary(&self) -> &'static str {
        "a bit for each word, and the words that are not zero"
    }

    fn is_lossy(&self) -> bool {
        false
    }

    fn fixed_size(&self, _: usize) -> Option<usize> {
        None
    }

    fn bound(&self, bytes: usize) -> usize {
        bound(bytes)
    }

    fn least(&self, bytes: usize) -> usize {
        mask_bytes(bytes)
    }

    fn encode_by(&self, variant: Variant, data: &[u8], out: &mut [u8], _: u64) -> Option<usize> {
        let (mask, out) = out.split_at_mut_checked(mask_bytes(data.len()))?;
        Some(mask.len() + pack(variant, data, mask, out)?)
    }

    fn decode_by(&self, variant: Variant, packed: &[u8], data: &mut [u8]) -> Result<(), Damaged> {
        let damaged = Damaged { encoded: packed.len(), size: data.len() };
        let (mask, rest) = packed.split_at_checked(mask_bytes(data.len())).ok_or(damaged)?;
        if unpack(variant, mask, rest, data) == Some(rest.len()) { Ok(()) } else { Err(damaged) }
    }
}

/// The most bytes that `size` bytes become.
#[must_use]
pub fn bound(size: usize) -> usize {
    size.saturating_add(mask_bytes(size))
}

fn mask_bytes(size: usize) -> usize {
    size.div_ceil(WORD).div_ceil(GROUP)
}

/// Words of `data` that are not zero.
#[must_use]
pub fn filled_words(data: &[u8]) -> usize {
    let (words, rest) = data.as_chunks::<WORD>();
    let filled = words.iter().filter(|word| u32::from_ne_bytes(**word) != 0).count();
    filled + usize::from(rest.iter().any(|&byte| byte != 0))
}

/// Packs `data`: at most [`bound`] bytes.
#[must_use]
pub fn encode(data: &[u8]) -> Vec<u8> {
    encode_within(data, bound(data.len())).unwrap_or_default()
}

/// Packs `data` into at most `room` bytes; `None` if it takes more.
#[must_use]
pub fn encode_within(data: &[u8], room: usize) -> Option<Vec<u8>> {
    encode_by(Variant::fastest(), data, room)
}

/// As [`encode_within`], by `variant`. One that is not available here does what [`Variant::Scalar`] does.
#[must_use]
pub fn encode_by(variant: Variant, data: &[u8], room: usize) -> Option<Vec<u8>> {
    let mut packed = vec![0; bound(data.len()).min(room)];
    let size = Zvc.encode_by(variant, data, &mut packed, 0)?;
    packed.truncate(size);
    Some(packed)
}

/// The words of `data` that are not zero into the beginning of `out`: how many bytes that took.
pub(crate) fn pack(variant: Variant, data: &[u8], mask: &mut [u8], out: &mut [u8]) -> Option<usize> {
    let (groups, mut filled) = pack_groups(variant, data, mask, out);
    mask[groups..].fill(0);
    for (at, word) in data.chunks(WORD).enumerate().skip(groups * GROUP) {
        if word.iter().any(|&byte| byte != 0) {
            mask[at / GROUP] |= 1 << (at % GROUP);
            out.get_mut(filled..filled + word.len())?.copy_from_slice(word);
            filled += word.len();
        }
    }
    Some(filled)
}

/// The `size` bytes that were packed.
///
/// # Errors
///
/// [`Damaged`] if `packed` is not what [`encode`] makes of that many bytes.
pub fn decode(packed: &[u8], size: usize) -> Result<Vec<u8>, Damaged> {
    decode_by(Variant::fastest(), packed, size)
}

/// As [`decode`], into memory that is there: `data`, which is filled. What is in it after an error is not said.
///
/// # Errors
///
/// As [`decode`].
pub fn decode_into(packed: &[u8], data: &mut [u8]) -> Result<(), Damaged> {
    Zvc.decode_by(Variant::fastest(), packed, data)
}

/// As [`decode`], by `variant`. One that is not available here does what [`Variant::Scalar`] does.
///
/// # Errors
///
/// As [`decode`].
pub fn decode_by(variant: Variant, packed: &[u8], size: usize) -> Result<Vec<u8>, Damaged> {
    if packed.len() < mask_bytes(size) || packed.len() > bound(size) {
        return Err(Damaged { encoded: packed.len(), size });
    }
    let mut data = vec![0; size];
    Zvc.decode_by(variant, packed, &mut data)?;
    Ok(data)
}

/// Fills `data` with the words that [`pack`] packed: how many bytes of `rest` those are, `None` if it is not what was packed.
pub(crate) fn unpack(variant: Variant, mask: &[u8], rest: &[u8], data: &mut [u8]) -> Option<usize> {
    let (groups, taken) = unpack_groups(variant, mask, rest, data);
    let words = data.len().div_ceil(WORD);
    let more = unpack_words(&mask[groups..], &rest[taken..], &mut data[groups * GROUP * WORD..])?;
    let beyond = mask.last().is_some_and(|last| !words.is_multiple_of(GROUP) && last >> (words % GROUP) != 0);
    if beyond { None } else { Some(taken + more) }
}

/// As [`unpack`], word by word; what `mask` has beyond `data` is not looked at.
fn unpack_words(mask: &[u8], rest: &[u8], data: &mut [u8]) -> Option<usize> {
    let mut taken = 0;
    for (at, word) in data.chunks_mut(WORD).enumerate() {
        if mask[at / GROUP] >> (at % GROUP) & 1 == 1 {
            let bytes = rest.get(taken..taken + word.len())?;
            // A word of zeros is never written down.
            if bytes.iter().all(|&byte| byte == 0) {
                return None;
            }
            word.copy_from_slice(bytes);
            taken += word.len();
        } else {
            word.fill(0);
        }
    }
    Some(taken)
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
        let long = if cfg!(miri) { [257, 259, 300] } else { [4096, 4097, 65_535] };
        for size in (0..200).step_by(if cfg!(miri) { 41 } else { 1 }).chain(long) {
            for sparse in [0, 1, 2, 9] {
                let word = |state: &mut u64| {
                    if sparse == 0 || !draw(state).is_multiple_of(sparse + 1) { 0 } else { draw(state) }
                };
                let words: Vec<u8> =
                    (0..=size / 4).flat_map(|_| word(&mut state).to_le_bytes()[..4].to_vec()).collect();
                let data = &words[..size];
                let packed = encode_by(Variant::Scalar, data, usize::MAX).unwrap();
                assert!(packed.len() <= bound(size));
                let filled = filled_words(data);
                let rest = size % WORD;
                let short = if rest > 0 && data[size - rest..].iter().any(|&byte| byte != 0) {
                    WORD - rest
                } else {
                    0
                };
                assert_eq!(packed.len(), WORD * filled - short + mask_bytes(size));
                for variant in Variant::ALL {
                    assert_eq!(encode_by(variant, data, packed.len()).as_ref(), Some(&packed), "{variant:?}");
                    assert_eq!(decode_by(variant, &packed, size).unwrap(), data, "{variant:?}");
                    let less = packed.len().checked_sub(1);
                    assert!(less.is_none_or(|less| encode_by(variant, data, less).is_none()), "{variant:?}");
                }
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

    /// Each variant refuses what the others refuse.
    #[test]
    fn damage_is_the_same_to_every_variant() {
        let mut state = 11;
        let word = |bits: u64| [bits, bits >> 8, bits >> 16, bits >> 24].map(|bits| bits.to_le_bytes()[0]);
        let data: Vec<u8> = (0..400)
            .flat_map(|_| if draw(&mut state).is_multiple_of(2) { [0; 4] } else { word(draw(&mut state)) })
            .collect();
        let packed = encode(&data);
        let (mut refused, mut taken) = (0, 0);
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        for _ in 0..rounds {
            let mut broken = packed.clone();
            let at = usize::try_from(draw(&mut state)).unwrap() % broken.len();
            match draw(&mut state) % 4 {
                0 => broken[at] ^= 1 << (draw(&mut state) % 8),
                1 => broken.truncate(at),
                2 => broken.insert(at, 0),
                _ => broken[at..(at + 4).min(packed.len())].fill(0),
            }
            let [scalar, others @ ..] = Variant::ALL.map(|variant| decode_by(variant, &broken, data.len()));
            assert!(others.iter().all(|other| *other == scalar));
            *(if scalar.is_ok() { &mut taken } else { &mut refused }) += 1;
        }
        assert!(refused > rounds / 4 && taken > rounds / 20, "{refused} refused, {taken} taken");
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
