//! Bytes as words of four.

/// Bytes of a word.
pub(crate) const WORD: usize = 4;

/// Bits of the magnitude of an `f32`.
pub(crate) const MAGNITUDE: u32 = 0x7fff_ffff;

/// Bits of infinity: what is above is NaN.
pub(crate) const INFINITY: u32 = 0x7f80_0000;

/// `words` in an array whose last places, if they are fewer, hold `pad`.
#[inline(always)]
pub(crate) fn array<const N: usize>(words: &[[u8; WORD]], pad: u32) -> [u32; N] {
    match words.as_array::<N>() {
        Some(words) => words.map(u32::from_ne_bytes),
        None => {
            let mut all = [pad; N];
            all.iter_mut().zip(words).for_each(|(to, word)| *to = u32::from_ne_bytes(*word));
            all
        }
    }
}

/// Writes as many of `bits` as there are `words`.
#[inline(always)]
pub(crate) fn put<const N: usize>(words: &mut [[u8; WORD]], bits: &[u32; N]) {
    match words.as_mut_array::<N>() {
        Some(words) => words.iter_mut().zip(bits).for_each(|(word, bits)| *word = bits.to_ne_bytes()),
        None => words.iter_mut().zip(bits).for_each(|(word, bits)| *word = bits.to_ne_bytes()),
    }
}

/// Writes as many of `bytes` as there is room for.
#[inline(always)]
pub(crate) fn copy(to: &mut [u8], bytes: &[u8]) {
    let size = to.len().min(bytes.len());
    to[..size].copy_from_slice(&bytes[..size]);
}
