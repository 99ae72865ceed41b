//! Casts: every word in fewer bits.
//!
//! Source of `cast-fp8`'s scales: Dettmers et al., "8-bit Optimizers via Block-wise Quantization" (ICLR 2022); of the formats: IEEE 754,
//! bfloat16, and "FP8 Formats for Deep Learning" (arXiv:2209.05433). bf16 and half are two bytes a word. e4m3 is one, and four for
//! the scale of each [`BLOCK`] words: `[scale f32][codes]`. The scale is the least power of two by which no finite word of the
//! block is above 448, so dividing and multiplying by it round nothing. All round to the nearest, ties to even.
//!
//! NaN stays NaN. Infinity stays in bf16 and half, where what is too large becomes infinite (65520 in half); e4m3 has none, and makes it
//! NaN, while finite words stay finite there. Time O(size). Wrong choice for half: gradients, which it makes zero below 3e-8.

use crate::coder::{Coder, Damaged, whole};
use crate::narrow;
use crate::variant::{Variant, widened};
use crate::words::{INFINITY, MAGNITUDE, WORD, array, copy, put};

/// Words that have a scale in common.
pub(crate) const BLOCK: usize = 256;

/// Bytes of a scale.
const SCALE: usize = 4;

/// What words are cast to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bf16,
    F16,
    Fp8,
}

/// A codec that casts every word.
pub(crate) struct Cast(pub(crate) Kind);

impl Kind {
    /// Bytes of `words` words in blocks.
    pub(crate) fn size(self, words: usize) -> usize {
        match self {
            Kind::Bf16 | Kind::F16 => words.saturating_mul(2),
            Kind::Fp8 => words.saturating_add(words.div_ceil(BLOCK).saturating_mul(SCALE)),
        }
    }

    /// Casts `words`, from the first one of a block on, into as many bytes as [`Kind::size`] says. If `filled`, what is not zero does
    /// not become zero but the least there is.
    pub(crate) fn encode(self, variant: Variant, words: &[[u8; WORD]], out: &mut [u8], filled: bool) {
        for (words, out) in words.chunks(BLOCK).zip(out.chunks_mut(self.size(BLOCK))) {
            match (self, filled) {
                (Kind::Bf16, false) => to_bf16(variant, words, out),
                (Kind::Bf16, true) => to_bf16_filled(variant, words, out),
                (Kind::F16, false) => to_f16(variant, words, out),
                (Kind::F16, true) => to_f16_filled(variant, words, out),
                (Kind::Fp8, false) => to_fp8(variant, words, out),
                (Kind::Fp8, true) => to_fp8_filled(variant, words, out),
            }
        }
    }

    /// What [`Kind::encode`] made.
    pub(crate) fn decode(self, variant: Variant, packed: &[u8], words: &mut [[u8; WORD]]) {
        for (packed, words) in packed.chunks(self.size(BLOCK)).zip(words.chunks_mut(BLOCK)) {
            match self {
                Kind::Bf16 => of_bf16(variant, packed, words),
                Kind::F16 => of_f16(variant, packed, words),
                Kind::Fp8 => of_fp8(variant, packed, words),
            }
        }
    }
}

widened! { fn to_bf16(words: &[[u8; WORD]], out: &mut [u8]) = halves::<false, true>; }
widened! { fn to_bf16_filled(words: &[[u8; WORD]], out: &mut [u8]) = halves::<true, true>; }
widened! { fn to_f16(words: &[[u8; WORD]], out: &mut [u8]) = halves::<false, false>; }
widened! { fn to_f16_filled(words: &[[u8; WORD]], out: &mut [u8]) = halves::<true, false>; }
widened! { fn to_fp8(words: &[[u8; WORD]], out: &mut [u8]) = eighths::<false>; }
widened! { fn to_fp8_filled(words: &[[u8; WORD]], out: &mut [u8]) = eighths::<true>; }
widened! { fn of_bf16(packed: &[u8], words: &mut [[u8; WORD]]) = from_halves::<true>; }
widened! { fn of_f16(packed: &[u8], words: &mut [[u8; WORD]]) = from_halves::<false>; }
widened! { fn of_fp8(packed: &[u8], words: &mut [[u8; WORD]]) = from_eighths; }

#[inline(always)]
fn halves<const FILLED: bool, const B: bool>(words: &[[u8; WORD]], out: &mut [u8]) {
    let (out, _) = out.as_chunks_mut::<2>();
    for (out, word) in out.iter_mut().zip(words) {
        let bits = u32::from_ne_bytes(*word);
        let half = if B { narrow::bf16(bits) } else { narrow::f16(bits) };
        let lost = FILLED && half & 0x7fff == 0 && bits & MAGNITUDE != 0;
        *out = (half | u16::from(lost)).to_ne_bytes();
    }
}

#[inline(always)]
fn from_halves<const B: bool>(packed: &[u8], words: &mut [[u8; WORD]]) {
    let (packed, _) = packed.as_chunks::<2>();
    for (word, half) in words.iter_mut().zip(packed) {
        let half = u16::from_ne_bytes(*half);
        *word = (if B { narrow::from_bf16(half) } else { narrow::from_f16(half) }).to_ne_bytes();
    }
}

#[inline(always)]
fn eighths<const FILLED: bool>(words: &[[u8; WORD]], out: &mut [u8]) {
    let Some((scale, out)) = out.split_first_chunk_mut::<SCALE>() else { return };
    let all = array::<BLOCK>(words, 0);
    let power = power(&all);
    *scale = f32::from_bits(power << 23).to_ne_bytes();
    // 2^-power.
    let inverse = f32::from_bits((254 - power) << 23);
    let codes = all.map(|bits| {
        let code = narrow::fp8((f32::from_bits(bits) * inverse).to_bits());
        let lost = FILLED && code & 0x7f == 0 && bits & MAGNITUDE != 0;
        code | u8::from(lost)
    });
    copy(out, &codes);
}

/// The least power of two by which no finite word is above 448, as an `f32` has it in its exponent: from 1 to 246, so that it and its
/// inverse are normal, and its 448-fold is finite.
#[inline(always)]
fn power(words: &[u32; BLOCK]) -> u32 {
    let mut most = [0; 16];
    for row in words.as_chunks::<16>().0 {
        for (most, bits) in most.iter_mut().zip(row) {
            let magnitude = bits & MAGNITUDE;
            *most = (if magnitude < INFINITY { magnitude } else { 0 }).max(*most);
        }
    }
    let most = most.into_iter().fold(0, u32::max);
    // 448 is 1.75 · 2^8.
    let above = u32::from(most & 0x7f_ffff > 0x60_0000);
    (most >> 23).saturating_sub(8).saturating_add(above).clamp(1, 246)
}

#[inline(always)]
fn from_eighths(packed: &[u8], words: &mut [[u8; WORD]]) {
    let Some((scale, packed)) = packed.split_first_chunk::<SCALE>() else { return };
    // Whatever the bytes are, a scale that `power` could have found: of two NaN that are multiplied, processors keep either.
    let power = (u32::from_ne_bytes(*scale) >> 23 & 0xff).clamp(1, 246);
    let scale = f32::from_bits(power << 23);
    let mut codes = [0; BLOCK];
    copy(&mut codes, packed);
    let all = codes.map(|code| (f32::from_bits(narrow::from_fp8(code)) * scale).to_bits());
    put(words, &all);
}

impl Coder for Cast {
    fn name(&self) -> &'static str {
        match self.0 {
            Kind::Bf16 => "cast-bf16",
            Kind::F16 => "cast-f16",
            Kind::Fp8 => "cast-fp8",
        }
    }

    fn summary(&self) -> &'static str {
        match self.0 {
            Kind::Bf16 => "every word as bf16",
            Kind::F16 => "every word as IEEE half",
            Kind::Fp8 => "every word as e4m3, with a scale for each 256",
        }
    }

    fn is_lossy(&self) -> bool {
        true
    }

    fn fixed_size(&self, bytes: usize) -> Option<usize> {
        Some(self.0.size(bytes / WORD).saturating_add(bytes % WORD))
    }

    fn bound(&self, bytes: usize) -> usize {
        self.0.size(bytes / WORD).saturating_add(bytes % WORD)
    }

    fn encode_by(&self, variant: Variant, data: &[u8], out: &mut [u8], _: u64) -> Option<usize> {
        let (words, tail) = data.as_chunks();
        let (packed, rest) = out.split_at_mut_checked(self.0.size(words.len()))?;
        rest.get_mut(..tail.len())?.copy_from_slice(tail);
        self.0.encode(variant, words, packed, false);
        Some(packed.len() + tail.len())
    }

    fn decode_by(&self, variant: Variant, packed: &[u8], data: &mut [u8]) -> Result<(), Damaged> {
        whole(packed.len() == self.bound(data.len()), packed, data)?;
        let (words, tail) = data.as_chunks_mut();
        let (packed, rest) = packed.split_at(self.0.size(words.len()));
        self.0.decode(variant, packed, words);
        tail.copy_from_slice(rest);
        Ok(())
    }
}
