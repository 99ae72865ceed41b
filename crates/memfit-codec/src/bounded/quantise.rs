//! From values to whole numbers of steps and back, with what can't be written so kept apart.

use super::{BLOCK, BadBound, WORD, folded, loaded, mask_of, narrowed, unfolded};
use crate::Damaged;

/// Adding this rounds a number below 2²² to a whole one, ties to even, and puts it into the lowest bits.
pub(super) const ROUND: f32 = 12_582_912.0;

/// Twice the bound, and its inverse.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) bound: f32,
    pub(super) step: f32,
    pub(super) inverse: f32,
}

impl Step {
    pub(super) fn new(bound: f32) -> Step {
        Step { bound, step: bound * 2.0, inverse: 0.5 / bound }
    }
}

/// The value that `code` stands for.
#[inline(always)]
fn value_of(code: i32, base: f32, step: Step) -> f32 {
    // Codes are below 2²³ but where they don't hold, so this is exact where it counts.
    #[expect(clippy::cast_precision_loss, reason = "the encoder looks at what comes out")]
    let steps = code as f32;
    base + steps * step.step
}

/// Whether `x` is zero or a normal number.
#[inline(always)]
fn is_plain(x: f32) -> bool {
    let bits = x.to_bits() & 0x7fff_ffff;
    bits == 0 || (0x0080_0000..0x7f80_0000).contains(&bits)
}

/// The codes of `N` values, and for each whether its code holds the bound.
#[inline(always)]
pub(super) fn codes_of<const N: usize>(
    values: &[f32; N],
    base: &[f32; N],
    step: Step,
    codes: &mut [i32; N],
    holds: &mut [u32; N],
) {
    for at in 0..N {
        let rounded = (values[at] - base[at]) * step.inverse + ROUND;
        codes[at] = rounded.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
        let error = values[at] - value_of(codes[at], base[at], step);
        // Rounding is monotone: a difference above the bound is not rounded to one below it. So this is never too kind.
        holds[at] = u32::from(error.abs() < step.bound) & u32::from(is_plain(values[at]));
    }
}

/// A bit for each value of a block whose code would break the bound: those have zero for a code from now on.
#[inline(always)]
pub(super) fn escapes_of(
    values: &[f32; BLOCK],
    base: &[f32; BLOCK],
    step: Step,
    holds: &[u32; BLOCK],
    codes: &mut [i32; BLOCK],
) -> u32 {
    let all = holds.iter().fold(1, |all, &one| all & one);
    if all == 1 { 0 } else { second_look(values, base, step, holds, codes) }
}

/// As [`escapes_of`], of a block of which not all hold.
#[cold]
#[inline(never)]
pub(super) fn second_look(
    values: &[f32; BLOCK],
    base: &[f32; BLOCK],
    step: Step,
    holds: &[u32; BLOCK],
    codes: &mut [i32; BLOCK],
) -> u32 {
    let mut escapes = 0;
    for at in 0..BLOCK {
        // A difference that is the bound, to the last bit, is told from one above it in twice the digits.
        let error = f64::from(values[at]) - f64::from(value_of(codes[at], base[at], step));
        if holds[at] == 0 && !(is_plain(values[at]) && error.abs() <= f64::from(step.bound)) {
            escapes |= 1 << at;
            codes[at] = 0;
        }
    }
    escapes
}

/// The values that `codes` stand for.
#[inline(always)]
pub(super) fn values_of(codes: &[i32; BLOCK], base: &[f32; BLOCK], step: Step) -> [f32; BLOCK] {
    let mut values = [0.0; BLOCK];
    for at in 0..BLOCK {
        values[at] = value_of(codes[at], base[at], step);
    }
    values
}

/// Values as whole numbers of steps: for files, where codes are entropy coded by somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantised {
    /// Steps from the base, zigzag: 0, −1, 1, −2 … as 0, 1, 2, 3 …
    pub codes: Vec<u32>,
    /// Where the bound would break, in ascending order.
    pub at: Vec<u32>,
    /// The bits of the values there.
    pub bits: Vec<u32>,
}

/// Quantises the `f32` in `data`, with `base` for what is expected: as many bytes, or none for zeros.
///
/// # Errors
///
/// [`BadBound`].
///
/// # Panics
///
/// Never: a base that is too short is zero after its end.
pub fn quantise(data: &[u8], base: &[u8], bound: f64) -> Result<Quantised, BadBound> {
    let step = Step::new(narrowed(bound)?);
    let (words, bases) = (data.as_chunks::<WORD>().0, base.as_chunks::<WORD>().0);
    let mut bases = bases.chunks(BLOCK);
    let mut made = Quantised { codes: Vec::with_capacity(words.len()), at: Vec::new(), bits: Vec::new() };
    for (number, block) in words.chunks(BLOCK).enumerate() {
        let (values, base): ([f32; BLOCK], _) = (loaded(block), loaded(bases.next().unwrap_or_default()));
        let (mut codes, mut holds) = ([0; BLOCK], [0; BLOCK]);
        codes_of(&values, &base, step, &mut codes, &mut holds);
        let escapes = escapes_of(&values, &base, step, &holds, &mut codes);
        made.codes.extend(codes[..block.len()].iter().map(|&code| folded(code)));
        let escapes = escapes & mask_of(block.len());
        for (at, word) in block.iter().enumerate().filter(|(at, _)| escapes >> at & 1 == 1) {
            made.at.push(u32::try_from(number * BLOCK + at).unwrap_or(u32::MAX));
            made.bits.push(u32::from_le_bytes(*word));
        }
    }
    Ok(made)
}

/// The bytes of the values that were quantised.
///
/// # Errors
///
/// [`Damaged`] if the escapes are not in ascending order within the codes, or `bound` is none.
pub fn dequantise(made: &Quantised, base: &[u8], bound: f64) -> Result<Vec<u8>, Damaged> {
    let damaged = Damaged { encoded: made.codes.len(), size: made.codes.len().saturating_mul(WORD) };
    let step = Step::new(narrowed(bound).map_err(|_| damaged)?);
    let ordered = made.at.windows(2).all(|pair| pair[0] < pair[1]);
    if made.at.len() != made.bits.len() || !ordered {
        return Err(damaged);
    }
    let mut data = Vec::with_capacity(damaged.size);
    let mut bases = base.as_chunks::<WORD>().0.chunks(BLOCK);
    for block in made.codes.chunks(BLOCK) {
        let mut codes = [0; BLOCK];
        codes.iter_mut().zip(block).for_each(|(code, &folded)| *code = unfolded(folded));
        let values = values_of(&codes, &loaded(bases.next().unwrap_or_default()), step);
        values[..block.len()].iter().for_each(|value| data.extend_from_slice(&value.to_bits().to_le_bytes()));
    }
    for (&at, &bits) in made.at.iter().zip(&made.bits) {
        let at = (at as usize).checked_mul(WORD).ok_or(damaged)?;
        data.get_mut(at..at + WORD).ok_or(damaged)?.copy_from_slice(&bits.to_le_bytes());
    }
    Ok(data)
}
