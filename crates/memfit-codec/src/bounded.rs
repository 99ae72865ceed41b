//! Error-bounded codec for `f32`: what comes out is nearer than a bound to what went in, and bit for bit where it can't be.
//!
//! Source: the fixed-length form of cuSZp (Huang et al., SC 2023): prequantise by twice the bound, predict each number as the one
//! before it (Lorenzo, optional), write the residuals of 32 values with as many bits as the largest takes. With a base, the
//! difference to it is quantised, as in Delta-DNN (Hu et al., ICPP 2020), by an absolute bound.
//!
//! Guarantee: `|x − x'| ≤ bound` for every finite value, in exact arithmetic. Each value is decoded while it's encoded; where rounding
//! breaks the bound, and for what is infinite, no number or subnormal, its bits are written instead. Neither depends on the
//! machine. Time and space O(size). The predictor helps where neighbours are alike (convolutions), and hurts elsewhere (weights,
//! transformers). Wrong choice for bounds below a 2²²nd of the values: they are written as they are.
//!
//! Form: the bound (`f32`), a byte for the predictor, a byte for each block; then each block: low bytes of all codes, their high bits,
//! a mask of escapes if there are any, and those. Values are little-endian.

use crate::Damaged;

mod pack;
mod quantise;
mod wide;
#[cfg(target_arch = "x86_64")]
mod x86;
#[cfg(target_arch = "x86_64")]
mod x86_512;

pub use quantise::{Quantised, dequantise, quantise};
use quantise::{Step, codes_of, escapes_of, values_of};

/// Values of a block.
const BLOCK: usize = 32;
/// Values that are quantised at a time.
const BATCH: usize = 16 * BLOCK;
/// Bytes of a value.
const WORD: usize = 4;
/// Bytes before those of the blocks: the bound and the predictor.
const HEAD: usize = 5;
/// A block that is written as it is.
const PLAIN: u8 = 0x7f;
/// Set where a block has escapes.
const ESCAPES: u8 = 0x80;

/// What a value is guessed to be before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predictor {
    /// Zero, or the base.
    None,
    /// The value before it.
    Lorenzo,
}

/// A bound that is not a finite number above zero, or that `f32` can't hold.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("`{0}` is no bound: it must be a finite number above zero that `f32` can hold")]
pub struct BadBound(
    /// The number.
    pub f64,
);

/// The largest `f32` that is at most `bound`.
fn narrowed(bound: f64) -> Result<f32, BadBound> {
    #[expect(clippy::cast_possible_truncation, reason = "rounded, and put right below")]
    let near = bound as f32;
    let narrow = if f64::from(near) > bound { near.next_down() } else { near };
    // Its double, the step, must be finite too.
    if narrow > 0.0 && (narrow * 2.0).is_finite() { Ok(narrow) } else { Err(BadBound(bound)) }
}

/// The most bytes that `size` bytes become.
#[must_use]
pub fn bound(size: usize) -> usize {
    let blocks = (size / WORD).div_ceil(BLOCK);
    HEAD.saturating_add(blocks).saturating_add(size)
}

/// Packs the `f32` in `data`; bytes after the last whole value are kept as they are. At most [`bound`] bytes.
///
/// # Errors
///
/// [`BadBound`].
pub fn encode(data: &[u8], bound: f64, predictor: Predictor) -> Result<Vec<u8>, BadBound> {
    let mut packed = Vec::new();
    encode_into(data, bound, predictor, &mut packed)?;
    Ok(packed)
}

/// As [`encode`], into memory that is there: `packed`, whose bytes are replaced.
///
/// # Errors
///
/// [`BadBound`]: then nothing is changed.
pub fn encode_into(
    data: &[u8],
    bound: f64,
    predictor: Predictor,
    packed: &mut Vec<u8>,
) -> Result<(), BadBound> {
    let step = Step::new(narrowed(bound)?);
    let (words, tail) = data.as_chunks::<WORD>();
    packed.clear();
    packed.reserve(self::bound(data.len()));
    packed.extend_from_slice(&step.bound.to_le_bytes());
    packed.push(u8::from(predictor == Predictor::Lorenzo));
    packed.resize(HEAD + words.len().div_ceil(BLOCK), 0);
    wide::encode(words, step, predictor == Predictor::Lorenzo, packed);
    packed.extend_from_slice(tail);
    Ok(())
}

/// Appends all blocks, and writes their bytes from `widths` on; `before` is the code before them. By batches, of which compilers make
/// vectors.
#[inline(always)]
fn encode_blocks(
    words: &[[u8; WORD]],
    step: Step,
    chained: bool,
    (widths, mut before): (usize, i32),
    packed: &mut Vec<u8>,
) {
    let (mut codes, mut holds, mut folds) = ([0; BATCH], [0; BATCH], [0; BATCH]);
    let mut planes = [[0; BATCH]; 4];
    let mut bytes = [0; BATCH * WORD + pack::ROOM];
    for (batch, words) in words.chunks(BATCH).enumerate() {
        let mut filled = 0;
        let values: [f32; BATCH] = loaded(words);
        codes_of(&values, &[0.0; BATCH], step, &mut codes, &mut holds);
        let (blocks, holds) = (codes.as_chunks_mut::<BLOCK>().0, holds.as_chunks::<BLOCK>().0);
        let values = values.as_chunks::<BLOCK>().0;
        let mut escapes = [0; BATCH / BLOCK];
        for (at, block) in words.chunks(BLOCK).enumerate() {
            escapes[at] = escapes_of(&values[at], &[0.0; BLOCK], step, &holds[at], &mut blocks[at]);
            if block.len() < BLOCK {
                // What stands after the end is read back by nobody.
                escapes[at] &= mask_of(block.len());
                let last = blocks[at][block.len() - 1];
                blocks[at][block.len()..].fill(last);
            }
        }
        fold_batch(&codes, chained, before, &mut folds);
        before = codes[BATCH - 1];
        pack::planes_of(&folds, &mut planes);
        for (at, (block, folds)) in words.chunks(BLOCK).zip(folds.as_chunks::<BLOCK>().0).enumerate() {
            let planes = planes.each_ref().map(|plane| &plane.as_chunks::<BLOCK>().0[at]);
            let (size, width) = pack_block(block, width_of(folds), planes, escapes[at], &mut bytes[filled..]);
            filled += size;
            packed[widths + batch * (BATCH / BLOCK) + at] = width;
        }
        packed.extend_from_slice(&bytes[..filled]);
    }
}

/// What is written for each code: itself, or what it's more than the one before it; `before` is the last of the batch before.
#[inline(always)]
fn fold_batch(codes: &[i32; BATCH], chained: bool, before: i32, folds: &mut [u32; BATCH]) {
    if chained {
        folds[0] = folded(codes[0].wrapping_sub(before));
        for at in 1..BATCH {
            folds[at] = folded(codes[at].wrapping_sub(codes[at - 1]));
        }
    } else {
        for at in 0..BATCH {
            folds[at] = folded(codes[at]);
        }
    }
}

/// Writes a block to `out`, which has room for any: its bytes, and the byte that says how many.
#[inline(always)]
fn pack_block(
    block: &[[u8; WORD]],
    width: usize,
    planes: [&[u8; BLOCK]; 4],
    escapes: u32,
    out: &mut [u8],
) -> (usize, u8) {
    pack::write(planes, width, out);
    finished(block, width, escapes, out)
}

/// Adds the escapes of a block to its codes, which have been written to `out`, or writes it as it is where that takes no more.
#[inline(always)]
fn finished(block: &[[u8; WORD]], width: usize, escapes: u32, out: &mut [u8]) -> (usize, u8) {
    let bytes = pack::bytes(width);
    let escaped = if escapes == 0 { 0 } else { 4 + WORD * escapes.count_ones() as usize };
    if bytes + escaped >= WORD * block.len() {
        let plain = block.as_flattened();
        out[..plain.len()].copy_from_slice(plain);
        return (plain.len(), PLAIN);
    }
    let width = u8::try_from(width).unwrap_or(u8::MAX);
    if escapes == 0 {
        return (bytes, width);
    }
    let [mask, words @ ..] = out[bytes..bytes + escaped].as_chunks_mut::<WORD>().0 else {
        return (bytes, width);
    };
    *mask = escapes.to_le_bytes();
    let escaped_words = block.iter().enumerate().filter(|(at, _)| escapes >> at & 1 == 1);
    words.iter_mut().zip(escaped_words).for_each(|(out, (_, word))| *out = *word);
    (bytes + escaped, width | ESCAPES)
}

/// The `size` bytes that were packed, each value nearer than the bound to what it was.
///
/// # Errors
///
/// [`Damaged`] if [`encode`] does not make `packed` of that many bytes.
pub fn decode(packed: &[u8], size: usize) -> Result<Vec<u8>, Damaged> {
    // A block of zeros is one byte, so nothing is reserved that the input is not worth.
    if packed.len() < HEAD + (size / WORD).div_ceil(BLOCK) {
        return Err(Damaged { encoded: packed.len(), size });
    }
    let mut data = vec![0; size];
    decode_into(packed, &mut data)?;
    Ok(data)
}

/// As [`decode`], into memory that is there: `data`, which is filled. What is in it after an error is not said.
///
/// # Errors
///
/// As [`decode`].
pub fn decode_into(packed: &[u8], data: &mut [u8]) -> Result<(), Damaged> {
    let damaged = Damaged { encoded: packed.len(), size: data.len() };
    let (words, tail) = data.as_chunks_mut::<WORD>();
    let (head, rest) = packed.split_at_checked(HEAD + words.len().div_ceil(BLOCK)).ok_or(damaged)?;
    let ([a, b, c, d, predictor], widths) = head.split_first_chunk::<HEAD>().ok_or(damaged)?;
    let bound = f32::from_le_bytes([*a, *b, *c, *d]);
    if *predictor > 1 || narrowed(f64::from(bound)) != Ok(bound) {
        return Err(damaged);
    }
    let rest = wide::decode(widths, rest, Step::new(bound), *predictor == 1, words).ok_or(damaged)?;
    if rest.len() != tail.len() {
        return Err(damaged);
    }
    tail.copy_from_slice(rest);
    Ok(())
}

/// Unpacks all blocks; what stands after them.
#[inline(always)]
fn decode_blocks<'a>(
    widths: &[u8],
    mut rest: &'a [u8],
    step: Step,
    chained: bool,
    words: &mut [[u8; WORD]],
) -> Option<&'a [u8]> {
    let mut before = 0;
    for (&width, block) in widths.iter().zip(words.chunks_mut(BLOCK)) {
        if width == PLAIN {
            let (plain, others) = rest.split_at_checked(WORD * block.len())?;
            block.as_flattened_mut().copy_from_slice(plain);
            rest = others;
            before = if chained { last_code(block, step) } else { 0 };
            continue;
        }
        let bits = usize::from(width & !ESCAPES);
        if bits > 32 {
            return None;
        }
        let (bytes, others) = rest.split_at_checked(pack::bytes(bits))?;
        rest = others;
        let folds = pack::read(bytes, bits);
        let mut codes = [0; BLOCK];
        for at in 0..BLOCK {
            codes[at] = unfolded(folds[at]);
        }
        if chained {
            before = sums(&mut codes, before);
        }
        let values = values_of(&codes, &[0.0; BLOCK], step);
        match block.first_chunk_mut::<BLOCK>() {
            Some(block) => block.iter_mut().zip(values).for_each(|(word, value)| *word = value.to_le_bytes()),
            None => block.iter_mut().zip(values).for_each(|(word, value)| *word = value.to_le_bytes()),
        }
        if width & ESCAPES != 0 {
            rest = escapes_into(block, rest)?;
        }
    }
    Some(rest)
}

/// The last code of a block that was written as it is: the one that the encoder had.
fn last_code(block: &[[u8; WORD]], step: Step) -> i32 {
    let values: [f32; BLOCK] = loaded(block);
    let (mut codes, mut holds) = ([0; BLOCK], [0; BLOCK]);
    codes_of(&values, &[0.0; BLOCK], step, &mut codes, &mut holds);
    escapes_of(&values, &[0.0; BLOCK], step, &holds, &mut codes);
    codes[BLOCK - 1]
}

/// Puts the escapes of a block in their places; what follows them.
fn escapes_into<'a>(block: &mut [[u8; WORD]], from: &'a [u8]) -> Option<&'a [u8]> {
    let (mask, mut rest) = from.split_first_chunk::<4>()?;
    let mask = u32::from_le_bytes(*mask);
    if mask == 0 || mask & !mask_of(block.len()) != 0 {
        return None;
    }
    for (_, word) in block.iter_mut().enumerate().filter(|(at, _)| mask >> at & 1 == 1) {
        let (bits, others) = rest.split_first_chunk::<WORD>()?;
        *word = *bits;
        rest = others;
    }
    Some(rest)
}

/// A bit for each of the first `count` of a block.
#[inline(always)]
fn mask_of(count: usize) -> u32 {
    u32::try_from((1u64 << count.min(BLOCK)) - 1).unwrap_or(u32::MAX)
}

/// Up to `N` values; zeros after them.
#[inline(always)]
fn loaded<const N: usize>(block: &[[u8; WORD]]) -> [f32; N] {
    let mut values = [0.0; N];
    match block.first_chunk::<N>() {
        Some(block) => {
            values.iter_mut().zip(block).for_each(|(value, word)| *value = f32::from_le_bytes(*word))
        }
        None => values.iter_mut().zip(block).for_each(|(value, word)| *value = f32::from_le_bytes(*word)),
    }
    values
}

/// Each code and all before it, from `before` on; the last one.
#[inline(always)]
fn sums(codes: &mut [i32; BLOCK], before: i32) -> i32 {
    let mut sum = before;
    for code in codes.iter_mut() {
        sum = sum.wrapping_add(*code);
        *code = sum;
    }
    sum
}

/// 0, −1, 1, −2 … as 0, 1, 2, 3 …
#[inline(always)]
pub(crate) fn folded(code: i32) -> u32 {
    (code.wrapping_shl(1) ^ (code >> 31)).cast_unsigned()
}

/// The inverse of [`folded`].
#[inline(always)]
pub(crate) fn unfolded(code: u32) -> i32 {
    (code >> 1).cast_signed() ^ -((code & 1).cast_signed())
}

/// Bits of the widest.
#[inline(always)]
fn width_of(folds: &[u32; BLOCK]) -> usize {
    // In as many parts as a vector has, and those by halves: a chain of 32 takes as long as all else.
    let mut any = [0u32; 8];
    for part in folds.as_chunks::<8>().0 {
        for lane in 0..8 {
            any[lane] |= part[lane];
        }
    }
    let any = [any[0] | any[4], any[1] | any[5], any[2] | any[6], any[3] | any[7]];
    let any = any[0] | any[1] | (any[2] | any[3]);
    (u32::BITS - any.leading_zeros()) as usize
}

#[cfg(test)]
mod tests;
