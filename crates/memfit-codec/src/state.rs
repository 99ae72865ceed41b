//! Optimizer state in eight bits, by blocks of 2048 words.
//!
//! Source: Dettmers et al., "8-bit Optimizers via Block-wise Quantization" (ICLR 2022). A block has `[scale f32][codes]`: its scale is the
//! largest magnitude in it, and a word becomes the nearest code of the dynamic tree, times the scale. The codes: 0, 1, and for each
//! decade 10^-6 .. 1 the middles of 2^i equal parts of [0.1, 1] of it, i = 0 .. 6, of either sign; without signs 2^(i+1) parts. So
//! the largest keep two digits, and what is a millionth of them is not lost. Of two codes as near, the one nearer to zero.
//!
//! For `m` of Adam the signed form, for `v` the unsigned one, which makes zero of what is below it. NaN and infinities stay what they
//! are: in a block with any, whose scale has a negative sign, NaN has code 254, infinity 255, and that below zero 0 (unsigned: NaN).
//! Time O(size).

#![allow(clippy::cast_possible_truncation, reason = "an `f64` is rounded to the nearest `f32`")]

use std::sync::LazyLock;

use crate::coder::{Coder, Damaged, whole};
use crate::variant::{Variant, widened};
use crate::words::{INFINITY, MAGNITUDE, WORD, array, copy};

/// Words of a block.
const BLOCK: usize = 2048;

/// Bytes of a scale.
const SCALE: usize = 4;

/// Decades below one.
const DECADES: u8 = 7;

/// Where zero is among the signed codes.
const ZERO: u8 = 127;

/// Codes that blocks with NaN or infinities give other meanings.
const NAN: u8 = 254;
const ABOVE: u8 = 255;
const BELOW: u8 = 0;

/// What a code may be in such a block.
const FINITE: std::ops::RangeInclusive<u8> = 1..=253;

/// A codec for state.
pub(crate) struct State {
    pub(crate) is_signed: bool,
}

/// Parts of a magnitude's scale: by exponent and the first seven bits of the fraction, each has at most one border in it.
const PART: u32 = 23 - 7;

/// The part in which 2^-23 lies: what is below it is nearest to zero.
const FIRST: u32 = (127 - 23) << 7;

/// The part of 1, the last one.
const LAST: u32 = 127 << 7;

/// Rank of the nearest magnitude: in each part that of its beginning, and from where in it the next one is nearer.
struct Tree {
    parts: Vec<(u32, u32)>,
    /// By code.
    codes: [f32; 256],
}

static WITH_SIGNS: LazyLock<Tree> = LazyLock::new(|| Tree::new(true));
static WITHOUT: LazyLock<Tree> = LazyLock::new(|| Tree::new(false));

impl Tree {
    fn new(is_signed: bool) -> Tree {
        let values = magnitudes(is_signed);
        let mut codes = [0.0; 256];
        for (code, value) in (0..=u8::MAX).zip(&mut codes) {
            let rank = usize::from(if is_signed { code.abs_diff(ZERO) } else { code });
            *value = if is_signed && code < ZERO { -values[rank] } else { values[rank] };
        }
        // The least bits of a magnitude that is nearer to the next value than to this one.
        let border = |rank: usize| {
            let next = values.get(rank + 1)?;
            let middle = (f64::from(values[rank]) + f64::from(*next)) / 2.0;
            let near = middle as f32;
            Some(if f64::from(near) > middle { near.to_bits() } else { near.next_up().to_bits() })
        };
        let borders: Vec<u32> = (0..values.len()).filter_map(border).collect();
        let parts = (FIRST..=LAST).map(|part| {
            let start = part << PART;
            let rank = borders.partition_point(|border| *border <= start);
            (u32::try_from(rank).unwrap_or_default(), borders.get(rank).copied().unwrap_or(u32::MAX))
        });
        Tree { parts: parts.collect(), codes }
    }

    /// The rank of the value that is nearest to a magnitude; those above 1 count as 1.
    #[inline(always)]
    fn rank(&self, magnitude: u32) -> u32 {
        let magnitude = magnitude.min(1.0f32.to_bits());
        let part = (magnitude >> PART).saturating_sub(FIRST);
        let (rank, border) = self.parts.get(part as usize).copied().unwrap_or_default();
        rank + u32::from(magnitude >= border)
    }

    /// The code of what is `bits` of the scale.
    #[inline(always)]
    fn code<const SIGNED: bool>(&self, bits: u32) -> u8 {
        let rank = self.rank(bits & MAGNITUDE);
        let is_below = bits >> 31 != 0;
        let code = match (SIGNED, is_below) {
            (true, true) => u32::from(ZERO) - rank.min(u32::from(ZERO)),
            (true, false) => u32::from(ZERO) + rank,
            (false, true) => 0,
            (false, false) => rank,
        };
        code.to_le_bytes()[0]
    }
}

/// The magnitudes that codes have, in order.
fn magnitudes(is_signed: bool) -> Vec<f32> {
    let mut values = vec![0.0];
    for decade in 0..DECADES {
        let parts = 1u32 << (decade + u8::from(!is_signed));
        let unit = f64::powi(10.0, i32::from(decade) - i32::from(DECADES - 1));
        let middle = |part: u32| 0.1 + 0.9 * (f64::from(part) + 0.5) / f64::from(parts);
        values.extend((0..parts).map(|part| (unit * middle(part)) as f32));
    }
    values.push(1.0);
    values
}

#[inline(always)]
fn encode<const SIGNED: bool>(words: &[[u8; WORD]], out: &mut [u8], tree: &Tree) {
    let Some((scale, out)) = out.split_first_chunk_mut::<SCALE>() else { return };
    let all = array::<BLOCK>(words, 0);
    let (most, is_odd) = largest(&all);
    *scale = (if is_odd { -most } else { most }).to_le_bytes();
    let mut codes = [0; BLOCK];
    // Where neither it nor its inverse is a denormal.
    let is_everyday = !is_odd && (f32::MIN_POSITIVE..=1.0 / f32::MIN_POSITIVE).contains(&most);
    if is_everyday {
        let inverse = 1.0 / most;
        for (code, bits) in codes.iter_mut().zip(&all) {
            *code = tree.code::<SIGNED>((f32::from_bits(*bits) * inverse).to_bits());
        }
    } else {
        for (code, bits) in codes.iter_mut().zip(&all) {
            *code = odd::<SIGNED>(f32::from_bits(*bits), most, is_odd, tree);
        }
    }
    copy(out, &codes);
}

/// The largest magnitude that is finite, and whether any is not.
#[inline(always)]
fn largest(all: &[u32; BLOCK]) -> (f32, bool) {
    let magnitudes = || all.iter().map(|bits| bits & MAGNITUDE);
    let most = magnitudes().map(|bits| if bits < INFINITY { bits } else { 0 }).fold(0, u32::max);
    (f32::from_bits(most), magnitudes().fold(0, u32::max) >= INFINITY)
}

/// The code of a word of a block that everyday arithmetic does not do for.
fn odd<const SIGNED: bool>(value: f32, most: f32, is_odd: bool, tree: &Tree) -> u8 {
    if value.is_nan() || !SIGNED && value == f32::NEG_INFINITY {
        return NAN;
    }
    if value.is_infinite() {
        return if value > 0.0 { ABOVE } else { BELOW };
    }
    let share = if most == 0.0 { 0.0 } else { (f64::from(value) / f64::from(most)) as f32 };
    let code = tree.code::<SIGNED>(share.to_bits());
    let lowest = if SIGNED { *FINITE.start() } else { 0 };
    if is_odd { code.clamp(lowest, *FINITE.end()) } else { code }
}

#[inline(always)]
fn decode(packed: &[u8], words: &mut [[u8; WORD]], codes: &[f32; 256], is_signed: bool) {
    let Some((scale, packed)) = packed.split_first_chunk::<SCALE>() else { return };
    let scale = f32::from_le_bytes(*scale);
    if scale.is_sign_positive() {
        for (word, code) in words.iter_mut().zip(packed) {
            *word = (codes[usize::from(*code)] * scale).to_ne_bytes();
        }
        return;
    }
    for (word, code) in words.iter_mut().zip(packed) {
        let value = match *code {
            NAN => f32::NAN,
            ABOVE => f32::INFINITY,
            BELOW if is_signed => f32::NEG_INFINITY,
            code => codes[usize::from(code)] * -scale,
        };
        *word = value.to_ne_bytes();
    }
}

widened! { fn to_signed(words: &[[u8; WORD]], out: &mut [u8], tree: &Tree) = encode::<true>; }
widened! { fn to_unsigned(words: &[[u8; WORD]], out: &mut [u8], tree: &Tree) = encode::<false>; }
widened! { fn from(packed: &[u8], words: &mut [[u8; WORD]], codes: &[f32; 256], is_signed: bool) = decode; }

impl State {
    fn tree(&self) -> &'static Tree {
        if self.is_signed { &WITH_SIGNS } else { &WITHOUT }
    }
}

impl Coder for State {
    fn name(&self) -> &'static str {
        if self.is_signed { "state8" } else { "state8-unsigned" }
    }

    fn summary(&self) -> &'static str {
        if self.is_signed {
            "8 bits a word of a dynamic tree, scaled by the largest of each 2048"
        } else {
            "the same without signs: for squares"
        }
    }

    fn is_lossy(&self) -> bool {
        true
    }

    fn fixed_size(&self, bytes: usize) -> Option<usize> {
        Some(self.bound(bytes))
    }

    fn bound(&self, bytes: usize) -> usize {
        let words = bytes / WORD;
        words.saturating_add(words.div_ceil(BLOCK).saturating_mul(SCALE)).saturating_add(bytes % WORD)
    }

    fn encode_by(&self, variant: Variant, data: &[u8], out: &mut [u8], _: u64) -> Option<usize> {
        let size = self.bound(data.len());
        let (words, tail) = data.as_chunks::<WORD>();
        let (packed, rest) = out.get_mut(..size)?.split_at_mut(size - tail.len());
        rest.copy_from_slice(tail);
        let (tree, encode) = (self.tree(), if self.is_signed { to_signed } else { to_unsigned });
        for (words, out) in words.chunks(BLOCK).zip(packed.chunks_mut(SCALE + BLOCK)) {
            encode(variant, words, out, tree);
        }
        Some(size)
    }

    fn decode_by(&self, variant: Variant, packed: &[u8], data: &mut [u8]) -> Result<(), Damaged> {
        whole(packed.len() == self.bound(data.len()), packed, data)?;
        let (words, tail) = data.as_chunks_mut::<WORD>();
        let (blocks, rest) = packed.split_at(packed.len() - tail.len());
        tail.copy_from_slice(rest);
        let codes = &self.tree().codes;
        for (words, packed) in words.chunks_mut(BLOCK).zip(blocks.chunks(SCALE + BLOCK)) {
            from(variant, packed, words, codes, self.is_signed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition: all codes, the nearest of them, of two as near that nearer to zero.
    #[test]
    #[cfg_attr(miri, ignore = "arithmetic alone, of very many values")]
    fn a_magnitude_gets_the_nearest_code() {
        for (is_signed, tree) in [(true, &*WITH_SIGNS), (false, &*WITHOUT)] {
            let values = magnitudes(is_signed);
            assert_eq!(values.len(), if is_signed { 129 } else { 256 });
            assert!(values.is_sorted_by(|one, other| one < other));
            // Each place where the nearest may change, and some in between.
            let places =
                values.iter().flat_map(|value| (0..4).map(move |more| value.to_bits().wrapping_add(more)));
            let middles = values.windows(2).flat_map(|pair| {
                let middle = (pair[0] + (pair[1] - pair[0]) / 2.0).to_bits();
                (0..9).map(move |more| (middle + more).saturating_sub(4))
            });
            let spread = (0..50_000).map(|at| at * (1.0f32.to_bits() / 50_000));
            for bits in places.chain(middles).chain(spread).filter(|bits| *bits <= 1.0f32.to_bits()) {
                let value = f64::from(f32::from_bits(bits));
                let distance = |rank: usize| (f64::from(values[rank]) - value).abs();
                let mut nearest = 0;
                for rank in 1..values.len() {
                    nearest = if distance(rank) < distance(nearest) { rank } else { nearest };
                }
                assert_eq!(tree.rank(bits) as usize, nearest, "{value} {is_signed}");
            }
        }
    }

    #[test]
    fn codes_go_up_and_are_those_of_the_paper() {
        for tree in [&*WITH_SIGNS, &*WITHOUT] {
            assert!(tree.codes.is_sorted_by(|one, other| one < other));
            assert_eq!(tree.codes[255].to_bits(), 1.0f32.to_bits());
            for code in 0..=u8::MAX {
                let bits = tree.codes[usize::from(code)].to_bits();
                let back =
                    if tree.codes[0] < 0.0 { tree.code::<true>(bits) } else { tree.code::<false>(bits) };
                assert_eq!(back, code);
            }
        }
        // The middles of 64 and of 128 parts of [0.1, 1]; and the least there is, that of [0.1, 1] of a millionth.
        let near = |one: f32, other: f64| (f64::from(one) / other - 1.0).abs() < 1e-6;
        assert!(near(WITH_SIGNS.codes[254], 1.0 - 0.9 / 128.0));
        assert!(near(WITH_SIGNS.codes[0], -1.0 + 0.9 / 128.0));
        assert!(near(WITH_SIGNS.codes[128], 0.55e-6));
        assert!(near(WITHOUT.codes[254], 1.0 - 0.9 / 256.0));
        assert!(near(WITHOUT.codes[1], 0.325e-6));
    }
}
