//! One bit for each word: whether it is above zero.
//!
//! Source: Jain et al., "Gist: Efficient Data Encoding for Deep Neural Network Training" (ISCA 2018), "Binarize": all that the backward
//! pass of a ReLU reads of what it made. Decodes to 1 and 0. NaN, zeros of either sign and what is below are 0. Size exactly
//! ceil(words / 8), and what is left at the end. Time O(size). Wrong choice for whatever reads more than signs.

use crate::coder::{Coder, Damaged, whole};
use crate::variant::{Variant, widened};
use crate::words::{INFINITY, WORD};

/// Words that share a byte.
const GROUP: usize = 8;

/// One bit a word.
pub(crate) struct Binarize;

/// Whether an `f32` is above zero. An integer comparison, since a thread may take denormals for zero.
#[inline(always)]
pub(crate) fn is_positive(bits: u32) -> bool {
    bits.wrapping_sub(1) < INFINITY
}

/// The bits of `words`, the first one the lowest of the first byte.
#[inline(always)]
fn bits(words: &[[u8; WORD]], out: &mut [u8]) {
    let (groups, rest) = words.as_chunks::<GROUP>();
    for (group, out) in groups.iter().zip(&mut *out) {
        *out = byte(group);
    }
    if let Some(out) = out.get_mut(groups.len())
        && !rest.is_empty()
    {
        let mut group = [[0; WORD]; GROUP];
        group[..rest.len()].copy_from_slice(rest);
        *out = byte(&group);
    }
}

#[inline(always)]
fn byte(group: &[[u8; WORD]; GROUP]) -> u8 {
    let bits = group.iter().enumerate();
    bits.fold(0, |byte, (at, word)| byte | u8::from(is_positive(u32::from_ne_bytes(*word))) << at)
}

#[inline(always)]
fn ones(bits: &[u8], words: &mut [[u8; WORD]]) {
    let (groups, rest) = words.as_chunks_mut::<GROUP>();
    for (group, byte) in groups.iter_mut().zip(bits) {
        *group = spread(*byte);
    }
    if let Some(byte) = bits.get(groups.len()) {
        rest.copy_from_slice(&spread(*byte)[..rest.len()]);
    }
}

#[inline(always)]
fn spread(byte: u8) -> [[u8; WORD]; GROUP] {
    let one = 1.0f32.to_bits();
    [0, 1, 2, 3, 4, 5, 6, 7].map(|at| (if u32::from(byte) & 1 << at == 0 { 0 } else { one }).to_ne_bytes())
}

widened! { fn bits_by(words: &[[u8; WORD]], out: &mut [u8]) = bits; }
widened! { fn ones_by(bits: &[u8], words: &mut [[u8; WORD]]) = ones; }

impl Coder for Binarize {
    fn name(&self) -> &'static str {
        "binarize"
    }

    fn summary(&self) -> &'static str {
        "one bit a word: whether it is above zero"
    }

    fn is_lossy(&self) -> bool {
        true
    }

    fn fixed_size(&self, bytes: usize) -> Option<usize> {
        Some(self.bound(bytes))
    }

    fn bound(&self, bytes: usize) -> usize {
        (bytes / WORD).div_ceil(GROUP) + bytes % WORD
    }

    fn encode_by(&self, variant: Variant, data: &[u8], out: &mut [u8], _: u64) -> Option<usize> {
        let (words, tail) = data.as_chunks();
        let (packed, rest) = out.split_at_mut_checked(words.len().div_ceil(GROUP))?;
        rest.get_mut(..tail.len())?.copy_from_slice(tail);
        bits_by(variant, words, packed);
        Some(packed.len() + tail.len())
    }

    fn decode_by(&self, variant: Variant, packed: &[u8], data: &mut [u8]) -> Result<(), Damaged> {
        whole(packed.len() == self.bound(data.len()), packed, data)?;
        let words = data.len() / WORD;
        let (packed_bits, rest) = packed.split_at(words.div_ceil(GROUP));
        let used = words % GROUP;
        let beyond = packed_bits.last().is_some_and(|last| used > 0 && last >> used != 0);
        whole(!beyond, packed, data)?;
        let (words, tail) = data.as_chunks_mut();
        ones_by(variant, packed_bits, words);
        tail.copy_from_slice(rest);
        Ok(())
    }
}
