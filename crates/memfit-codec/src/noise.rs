//! Noise by number: what a place draws depends on a key and that place alone, so what is done again draws the same.
//!
//! Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011): Philox 4x32, with the 7 rounds that pass every test
//! there.

#![allow(clippy::cast_possible_truncation, reason = "halves of products are meant")]

/// Rounds.
const ROUNDS: usize = 7;

/// The low half of a word of 64 bits.
const LOW: u64 = 0xffff_ffff;

/// Blocks of four words that are made side by side.
const LANES: usize = 4;

/// Sixteen bits of noise for each of 256 places; a word has two, the low one first. Word 16 j + 8 h + 2 b + w is the word 2 h + w of
/// the block 4 j + b, whose counter is (`group` low, `group` high, the block's number, 0).
#[inline(always)]
pub(crate) fn noise(key: u64, group: u64) -> [u32; 128] {
    let mut pairs = [[0; 8]; 64];
    for (pairs, first) in pairs.as_chunks_mut::<8>().0.iter_mut().zip((0..).step_by(LANES)) {
        let numbers = [first, first + 1, first + 2, first + 3];
        let halves = [group & LOW, group >> 32];
        let block = philox::<ROUNDS>(key, [[halves[0]; LANES], [halves[1]; LANES], numbers, [0; LANES]]);
        for lane in 0..LANES {
            pairs[lane] = (block[0][lane] & LOW | block[1][lane] << 32).to_le_bytes();
            pairs[LANES + lane] = (block[2][lane] & LOW | block[3][lane] << 32).to_le_bytes();
        }
    }
    let mut words = [0; 128];
    for (word, bytes) in words.iter_mut().zip(pairs.as_flattened().as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}

/// Some blocks side by side: words of 32 bits in the low halves; what comes out in the high ones means nothing.
#[inline(always)]
fn philox<const ROUNDS: usize>(key: u64, mut counter: [[u64; LANES]; 4]) -> [[u64; LANES]; 4] {
    let mut keys = [key as u32, (key >> 32) as u32];
    for _ in 0..ROUNDS {
        let [a, b, c, d] = counter;
        let mut next = [[0; LANES]; 4];
        for lane in 0..LANES {
            let one = (a[lane] & LOW) * 0xD251_1F53;
            let two = (c[lane] & LOW) * 0xCD9E_8D57;
            next[0][lane] = two >> 32 ^ b[lane] ^ u64::from(keys[0]);
            next[1][lane] = two;
            next[2][lane] = one >> 32 ^ d[lane] ^ u64::from(keys[1]);
            next[3][lane] = one;
        }
        counter = next;
        keys = [keys[0].wrapping_add(0x9E37_79B9), keys[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one<const ROUNDS: usize>(key: u64, counter: [u32; 4]) -> [u32; 4] {
        philox::<ROUNDS>(key, counter.map(|word| [u64::from(word); LANES])).map(|lanes| lanes[1] as u32)
    }

    /// The known answers of the authors' library.
    #[test]
    fn answers_are_those_of_the_paper() {
        assert_eq!(one::<7>(0, [0; 4]), [0x5f6f_b709, 0x0d89_3f64, 0x4f12_1f81, 0x4f73_0a48]);
        assert_eq!(one::<10>(0, [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = one::<10>(u64::MAX, [u32::MAX; 4]);
        assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let key = 0x299f_31d0_a409_3822;
        assert_eq!(one::<10>(key, pi), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    #[test]
    fn every_key_and_group_has_its_own() {
        let places = [(1, 1), (1, 2), (2, 1), (1 << 40, 1), (1, 1 << 40), (0, 0)];
        for (at, (key, group)) in places.into_iter().enumerate() {
            for (other_key, other_group) in &places[..at] {
                let (one, other) = (noise(key, group), noise(*other_key, *other_group));
                let same = one.iter().zip(&other).filter(|(one, other)| one == other).count();
                assert_eq!(same, 0);
            }
        }
        let words = noise(3, 4);
        assert_eq!([words[17], words[24]], [one::<7>(3, [4, 0, 4, 0])[1], one::<7>(3, [4, 0, 4, 0])[2]]);
    }

    /// The halves are even: their mean and their variance are as they should be within five standard deviations.
    #[test]
    #[cfg_attr(miri, ignore = "arithmetic alone, of very many values")]
    fn halves_are_even() {
        let (mut sum, mut squares, count) = (0.0, 0.0, 400.0 * 256.0);
        for group in 0..400 {
            for word in noise(11, group) {
                for half in [word & 0xffff, word >> 16] {
                    let unit = (f64::from(half) + 0.5) / 65536.0 - 0.5;
                    sum += unit;
                    squares += unit * unit;
                }
            }
        }
        assert!((sum / count).abs() < 5.0 / (12.0 * count).sqrt(), "{sum}");
        let variance: f64 = squares / count;
        assert!((variance - 1.0 / 12.0).abs() < 5.0 / (180.0 * count).sqrt(), "{variance}");
    }
}
