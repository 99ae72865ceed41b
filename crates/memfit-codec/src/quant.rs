//! A few bits for each word, by groups of 256, rounded at random; with or without an exact mask of what is above zero.
//!
//! Source: Chen et al., "ActNN: Reducing Training Memory Footprint via 2-Bit Activation Compressed Training" (ICML 2021); the noise is
//! [`noise`](crate::noise)'s. Each group has `[scale f32][least f32][mask, a bit a word][codes]`, the mask only in the forms that have
//! one. The code of *x* is floor((*x* - least) / scale + *u*), *u* even in [0, 1): the mean over all keys is *x* but for less than a
//! 130,000th of a step. Codes of a group lie in 8 / bits planes: the first one in the lowest bits.
//!
//! With a mask, scale and least are of the words above zero: those stay above zero, and all others become +0.0. That is made for what a
//! ReLU makes: a backward pass that asks only for the sign reads the same as ever.
//!
//! NaN and infinities stay what and where they are, and finite words stay finite: a group with any of them, or whose range an `f32`
//! can't hold, has three codes less for the others, in `int2` one alone. Such a group has a negative sign on its scale. `f32` for both
//! numbers costs an eighth of a bit a word more than bf16, and where the words of a group are far from zero, bf16 would cost bits of
//! each. Time O(size).

#![allow(clippy::cast_possible_truncation, reason = "codes are cut to their bits")]

mod odd;

use crate::binarize::is_positive;
use crate::coder::{Coder, Damaged, whole};
use crate::noise::noise;
use crate::variant::{Variant, widened};
use crate::words::{INFINITY, MAGNITUDE, WORD, array, copy, put};

/// Words of a group.
const GROUP: usize = 256;

/// Bytes of the two numbers of a group.
const NUMBERS: usize = 8;

/// A codec of so many bits a word, 8, 4 or 2.
pub(crate) struct Quantised {
    pub(crate) bits: u8,
    pub(crate) has_mask: bool,
}

/// The two numbers of a group.
#[derive(Clone, Copy)]
struct Range {
    scale: f32,
    least: f32,
}

impl Range {
    fn bytes(self) -> [u8; NUMBERS] {
        let mut bytes = [0; NUMBERS];
        bytes[..4].copy_from_slice(&self.scale.to_le_bytes());
        bytes[4..].copy_from_slice(&self.least.to_le_bytes());
        bytes
    }

    fn of(bytes: [u8; NUMBERS]) -> Range {
        let [a, b, c, d, e, f, g, h] = bytes;
        Range { scale: f32::from_le_bytes([a, b, c, d]), least: f32::from_le_bytes([e, f, g, h]) }
    }
}

/// Bytes of a group of `words`.
const fn group_bytes(bits: usize, has_mask: bool, words: usize) -> usize {
    NUMBERS + if has_mask { words.div_ceil(8) } else { 0 } + (words * bits).div_ceil(8)
}

/// Encodes one group into exactly its bytes.
#[inline(always)]
fn encode<const BITS: usize, const MASK: bool>(words: &[[u8; WORD]], out: &mut [u8], key: u64, group: u64) {
    let first = words.first().map_or(0, |word| u32::from_ne_bytes(*word));
    let all: [u32; GROUP] = array(words, if MASK { 0 } else { first });
    let Some((numbers, out)) = out.split_first_chunk_mut::<NUMBERS>() else { return };
    let (mask, out) = out.split_at_mut(if MASK { words.len().div_ceil(8) } else { 0 });
    if MASK {
        copy(mask, &bits(&all));
    }
    let top = u8::MAX >> (8 - BITS);
    let noise = noise(key, group);
    let mut codes = [0; GROUP];
    let range = match range::<MASK>(&all, f32::from(top)) {
        Some((range, inverse)) => {
            quantise::<MASK>(&all, range.least, inverse, f32::from(top), &noise, &mut codes);
            range
        }
        None => odd::encode(&all, MASK, top, &noise, &mut codes),
    };
    *numbers = range.bytes();
    pack::<BITS>(&codes, out);
}

/// The mask of a group.
#[inline(always)]
fn bits(all: &[u32; GROUP]) -> [u8; GROUP / 8] {
    let mut mask = [0; GROUP / 8];
    let (rows, _) = all.as_chunks::<8>();
    for (byte, row) in mask.iter_mut().zip(rows) {
        let row = row.iter().enumerate();
        *byte = row.fold(0, |byte, (at, bits)| byte | u8::from(is_positive(*bits)) << at);
    }
    mask
}

/// The bits of an `f32`, so that integers are in the order of the numbers; and back.
#[inline(always)]
fn ordered(bits: u32) -> i32 {
    bits.cast_signed() ^ (bits.cast_signed() >> 31 & i32::MAX)
}

#[inline(always)]
fn number(ordered: i32) -> f32 {
    f32::from_bits((ordered ^ (ordered >> 31 & i32::MAX)).cast_unsigned())
}

/// The range of a group and what its words are multiplied by, so that they go from 0 to `top`; `None` if that's none for everyday
/// arithmetic.
#[inline(always)]
fn range<const MASK: bool>(all: &[u32; GROUP], top: f32) -> Option<(Range, f32)> {
    // Whole numbers, since a compiler turns their order into vectors, and a thread may take denormals for zero.
    let largest = all.iter().map(|bits| bits & MAGNITUDE).fold(0, u32::max);
    if largest >= INFINITY {
        return None;
    }
    let (least, most) = if MASK {
        // One less, what is not above zero is the largest there is.
        let least = all.iter().map(|bits| bits.wrapping_sub(1)).fold(u32::MAX, u32::min);
        let most = all.iter().map(|bits| bits.cast_signed()).fold(0, i32::max);
        if most == 0 {
            return Some((Range { scale: 0.0, least: 0.0 }, 0.0));
        }
        (f32::from_bits(least + 1), f32::from_bits(most.cast_unsigned()))
    } else {
        let least = all.iter().map(|bits| ordered(*bits)).fold(i32::MAX, i32::min);
        let most = all.iter().map(|bits| ordered(*bits)).fold(i32::MIN, i32::max);
        (number(least), number(most))
    };
    // No `-0.0`; and what is above zero stays so, also where a thread takes denormals for zero.
    let least = if MASK { least.max(f32::MIN_POSITIVE) } else { least + 0.0 };
    let most = if MASK { most.max(least) } else { most };
    let width = most - least;
    if width == 0.0 {
        return Some((Range { scale: 0.0, least }, 0.0));
    }
    let (scale, inverse) = (width / top, top / width);
    let everyday = scale >= f32::MIN_POSITIVE && inverse >= f32::MIN_POSITIVE && width.is_finite();
    everyday.then_some((Range { scale, least }, inverse))
}

/// The noise of the place `at` of a group, from 0 to 65535.
fn noise_at(noise: &[u32; 128], at: usize) -> u32 {
    let (row, part, lane) = (at / 32, at % 32 / 8, at % 8);
    noise[row * 16 + part / 2 * 8 + lane] >> (part % 2 * 16) & 0xffff
}

/// Noise by place, from 0 to 65535.
#[inline(always)]
fn draws(noise: &[u32; 128]) -> [u32; GROUP] {
    let mut draws = [0; GROUP];
    for (draws, words) in draws.as_chunks_mut::<16>().0.iter_mut().zip(noise.as_chunks::<8>().0) {
        for (draw, word) in draws[..8].iter_mut().zip(words) {
            *draw = word & 0xffff;
        }
        for (draw, word) in draws[8..].iter_mut().zip(words) {
            *draw = word >> 16;
        }
    }
    draws
}

#[inline(always)]
fn quantise<const MASK: bool>(
    all: &[u32; GROUP],
    least: f32,
    inverse: f32,
    top: f32,
    noise: &[u32; 128],
    codes: &mut [u8; GROUP],
) {
    const UNIT: f32 = 1.0 / 65536.0;
    let mut wide = draws(noise);
    for (code, &bits) in wide.iter_mut().zip(all) {
        let place = (f32::from_bits(bits) - least) * inverse + code.cast_signed() as f32 * UNIT;
        let place = if place < top { place } else { top };
        // What is not in the mask may lie below, and so may denormals.
        let place = if MASK && (place <= 0.0 || !is_positive(bits)) { 0.0 } else { place };
        *code = whole_part(place);
    }
    for (code, wide) in codes.iter_mut().zip(&wide) {
        *code = *wide as u8;
    }
}

/// The whole part of a number from 0 to 255 in one instruction.
#[inline(always)]
#[allow(unsafe_code, reason = "a conversion that looks at its range takes thrice the time")]
fn whole_part(place: f32) -> u32 {
    debug_assert!((0.0..256.0).contains(&place), "{place} is no code");
    // SAFETY: from 0 to 255, as `quantise` and the range of a group see to.
    let whole: i32 = unsafe { place.to_int_unchecked() };
    whole.cast_unsigned()
}

/// Puts codes of `BITS` bits into planes.
#[inline(always)]
fn pack<const BITS: usize>(codes: &[u8; GROUP], out: &mut [u8]) {
    for (number, codes) in codes.chunks(out.len().max(1)).enumerate().take(8 / BITS) {
        for (byte, code) in out.iter_mut().zip(codes) {
            *byte = if number == 0 { *code } else { *byte | code << (number * BITS) };
        }
    }
}

/// What [`pack`] put there.
#[inline(always)]
fn unpack<const BITS: usize>(packed: &[u8], codes: &mut [u8; GROUP]) {
    let low = u8::MAX >> (8 - BITS);
    for (number, codes) in codes.chunks_mut(packed.len().max(1)).enumerate().take(8 / BITS) {
        for (code, byte) in codes.iter_mut().zip(packed) {
            *code = byte >> (number * BITS) & low;
        }
    }
}

/// Decodes one group. Whether it can be one.
#[inline(always)]
fn decode<const BITS: usize, const MASK: bool>(packed: &[u8], words: &mut [[u8; WORD]]) -> bool {
    let Some((numbers, packed)) = packed.split_first_chunk::<NUMBERS>() else { return false };
    let (mask, packed) = packed.split_at(if MASK { words.len().div_ceil(8) } else { 0 });
    let range = Range::of(*numbers);
    if !(range.scale.is_finite() && range.least.is_finite()) {
        return false;
    }
    let mut codes = [0; GROUP];
    unpack::<BITS>(packed, &mut codes);
    let mut filled = [u8::MAX; GROUP / 8];
    if MASK {
        filled = [0; GROUP / 8];
        copy(&mut filled, mask);
        let used = words.len() % 8;
        if used > 0 && mask.last().is_some_and(|last| last >> used != 0) {
            return false;
        }
    }
    if range.scale.is_sign_negative() {
        put(words, &odd::decode(range, MASK, u8::MAX >> (8 - BITS), &codes, &filled));
        return true;
    }
    let mut all = [0; GROUP];
    for (bits, code) in all.iter_mut().zip(&codes) {
        *bits = (f32::from(*code) * range.scale + range.least).to_bits();
    }
    if MASK {
        let mut kept = [0; GROUP];
        for (row, byte) in kept.as_chunks_mut::<8>().0.iter_mut().zip(filled) {
            *row =
                [0, 1, 2, 3, 4, 5, 6, 7].map(|at| if u32::from(byte) & 1 << at == 0 { 0 } else { u32::MAX });
        }
        all.iter_mut().zip(&kept).for_each(|(bits, kept)| *bits &= kept);
    }
    put(words, &all);
    true
}

widened! { fn to_8(words: &[[u8; WORD]], out: &mut [u8], key: u64, group: u64) = encode::<8, false>; }
widened! { fn to_4(words: &[[u8; WORD]], out: &mut [u8], key: u64, group: u64) = encode::<4, false>; }
widened! { fn to_2(words: &[[u8; WORD]], out: &mut [u8], key: u64, group: u64) = encode::<2, false>; }
widened! { fn to_masked_8(words: &[[u8; WORD]], out: &mut [u8], key: u64, group: u64) = encode::<8, true>; }
widened! { fn to_masked_4(words: &[[u8; WORD]], out: &mut [u8], key: u64, group: u64) = encode::<4, true>; }
widened! { fn to_masked_2(words: &[[u8; WORD]], out: &mut [u8], key: u64, group: u64) = encode::<2, true>; }
widened! { fn of_8(packed: &[u8], words: &mut [[u8; WORD]]) -> bool = decode::<8, false>; }
widened! { fn of_4(packed: &[u8], words: &mut [[u8; WORD]]) -> bool = decode::<4, false>; }
widened! { fn of_2(packed: &[u8], words: &mut [[u8; WORD]]) -> bool = decode::<2, false>; }
widened! { fn of_masked_8(packed: &[u8], words: &mut [[u8; WORD]]) -> bool = decode::<8, true>; }
widened! { fn of_masked_4(packed: &[u8], words: &mut [[u8; WORD]]) -> bool = decode::<4, true>; }
widened! { fn of_masked_2(packed: &[u8], words: &mut [[u8; WORD]]) -> bool = decode::<2, true>; }

impl Quantised {
    fn group(&self, words: usize) -> usize {
        group_bytes(usize::from(self.bits), self.has_mask, words)
    }
}

impl Coder for Quantised {
    fn name(&self) -> &'static str {
        match (self.bits, self.has_mask) {
            (8, false) => "int8",
            (4, false) => "int4",
            (_, false) => "int2",
            (8, true) => "int8+mask",
            (4, true) => "int4+mask",
            (_, true) => "int2+mask",
        }
    }

    fn summary(&self) -> &'static str {
        match (self.bits, self.has_mask) {
            (8, false) => "8 bits a word between the least and the most of each 256, rounded at random",
            (4, false) => "4 bits a word between the least and the most of each 256, rounded at random",
            (_, false) => "2 bits a word between the least and the most of each 256, rounded at random",
            (8, true) => "as int8, with an exact mask of what is above zero; all else becomes zero",
            (4, true) => "as int4, with an exact mask of what is above zero; all else becomes zero",
            (_, true) => "as int2, with an exact mask of what is above zero; all else becomes zero",
        }
    }

    fn is_lossy(&self) -> bool {
        true
    }

    fn fixed_size(&self, bytes: usize) -> Option<usize> {
        Some(self.bound(bytes))
    }

    fn bound(&self, bytes: usize) -> usize {
        let (words, tail) = (bytes / WORD, bytes % WORD);
        let rest = if words.is_multiple_of(GROUP) { 0 } else { self.group(words % GROUP) };
        (words / GROUP).saturating_mul(self.group(GROUP)).saturating_add(rest + tail)
    }

    fn encode_by(&self, variant: Variant, data: &[u8], out: &mut [u8], key: u64) -> Option<usize> {
        let size = self.bound(data.len());
        let (words, tail) = data.as_chunks::<WORD>();
        let (packed, rest) = out.get_mut(..size)?.split_at_mut(size - tail.len());
        rest.copy_from_slice(tail);
        let encode = match (self.bits, self.has_mask) {
            (8, false) => to_8,
            (4, false) => to_4,
            (_, false) => to_2,
            (8, true) => to_masked_8,
            (4, true) => to_masked_4,
            (_, true) => to_masked_2,
        };
        let groups = words.chunks(GROUP).zip(packed.chunks_mut(self.group(GROUP)));
        groups.zip(0..).for_each(|((words, out), group)| encode(variant, words, out, key, group));
        Some(size)
    }

    fn decode_by(&self, variant: Variant, packed: &[u8], data: &mut [u8]) -> Result<(), Damaged> {
        whole(packed.len() == self.bound(data.len()), packed, data)?;
        let decode = match (self.bits, self.has_mask) {
            (8, false) => of_8,
            (4, false) => of_4,
            (_, false) => of_2,
            (8, true) => of_masked_8,
            (4, true) => of_masked_4,
            (_, true) => of_masked_2,
        };
        let (words, tail) = data.as_chunks_mut::<WORD>();
        let (groups, rest) = packed.split_at(packed.len() - tail.len());
        tail.copy_from_slice(rest);
        let mut groups = words.chunks_mut(GROUP).zip(groups.chunks(self.group(GROUP)));
        let fine = groups.all(|(words, packed)| decode(variant, packed, words));
        whole(fine, packed, data)
    }
}
