//! Rows of 256 words, of which those that are not zero are kept with their columns.
//!
//! Source: Jain et al., "Gist" (ISCA 2018), "SSDC": compressed sparse rows whose columns fit a byte. `[2 bytes a row: how many][columns]
//! [words]`. Lossless: a word is zero if all its bits are. Five bytes for each word that is not zero, two a row. Time O(size). Where
//! more than 12 % of the words are not zero, `zvc` makes less of them.

use crate::coder::{Coder, Damaged, whole};
use crate::variant::Variant;
use crate::words::WORD;

/// Words of a row.
const ROW: usize = 256;

/// Bytes of the number of words that a row keeps.
const COUNT: usize = 2;

/// Compressed sparse rows.
pub(crate) struct Csr;

fn row(words: &[[u8; WORD]], columns: &mut [u8; ROW], kept: &mut [[u8; WORD]; ROW]) -> usize {
    let mut count = 0;
    for (column, word) in (0..=u8::MAX).zip(words) {
        // Without a branch: what is zero is written over. There is always a place: none is taken by it.
        columns[count] = column;
        kept[count] = *word;
        count = (count + usize::from(*word != [0; WORD])).min(ROW);
        if count == ROW {
            break;
        }
    }
    count
}

impl Coder for Csr {
    fn name(&self) -> &'static str {
        "csr"
    }

    fn summary(&self) -> &'static str {
        "compressed sparse rows of 256 words: those that are not zero, with their columns"
    }

    fn is_lossy(&self) -> bool {
        false
    }

    fn fixed_size(&self, _: usize) -> Option<usize> {
        None
    }

    fn bound(&self, bytes: usize) -> usize {
        self.least(bytes).saturating_add((bytes / WORD).saturating_mul(1 + WORD))
    }

    fn least(&self, bytes: usize) -> usize {
        (bytes / WORD).div_ceil(ROW).saturating_mul(COUNT).saturating_add(bytes % WORD)
    }

    fn encode_by(&self, _: Variant, data: &[u8], out: &mut [u8], _: u64) -> Option<usize> {
        let (words, tail) = data.as_chunks::<WORD>();
        let (counts, rest) = out.split_at_mut_checked(words.len().div_ceil(ROW) * COUNT)?;
        let filled = words.iter().filter(|word| **word != [0; WORD]).count();
        let (columns, rest) = rest.split_at_mut_checked(filled)?;
        let (kept, rest) = rest.split_at_mut_checked(filled * WORD)?;
        rest.get_mut(..tail.len())?.copy_from_slice(tail);
        let (mut row_columns, mut row_words) = ([0; ROW], [[0; WORD]; ROW]);
        let mut done = 0;
        for (words, slot) in words.chunks(ROW).zip(counts.as_chunks_mut::<COUNT>().0) {
            let count = row(words, &mut row_columns, &mut row_words);
            *slot = u16::try_from(count).ok()?.to_le_bytes();
            columns[done..done + count].copy_from_slice(&row_columns[..count]);
            kept[done * WORD..][..count * WORD].copy_from_slice(row_words[..count].as_flattened());
            done += count;
        }
        Some(counts.len() + filled * (1 + WORD) + tail.len())
    }

    fn decode_by(&self, _: Variant, packed: &[u8], data: &mut [u8]) -> Result<(), Damaged> {
        let (size, words) = (data.len(), data.len() / WORD);
        let damaged = Damaged { encoded: packed.len(), size };
        let counts = words.div_ceil(ROW) * COUNT;
        let filled = packed.len().checked_sub(self.least(size)).ok_or(damaged)?;
        whole(filled.is_multiple_of(1 + WORD), packed, data)?;
        let filled = filled / (1 + WORD);
        let (counts, rest) = packed.split_at(counts);
        let (mut columns, rest) = rest.split_at(filled);
        let (kept, rest) = rest.split_at(filled * WORD);
        let (words, tail) = data.as_chunks_mut::<WORD>();
        tail.copy_from_slice(rest);
        let (mut kept, _) = kept.as_chunks::<WORD>();
        for (words, count) in words.chunks_mut(ROW).zip(counts.as_chunks::<COUNT>().0) {
            let count = usize::from(u16::from_le_bytes(*count));
            let (mine, others) = columns.split_at_checked(count).ok_or(damaged)?;
            let (my_words, other_words) = kept.split_at_checked(count).ok_or(damaged)?;
            (columns, kept) = (others, other_words);
            if mine.windows(2).any(|pair| pair[0] >= pair[1]) || my_words.contains(&[0; WORD]) {
                return Err(damaged);
            }
            words.fill([0; WORD]);
            for (column, word) in mine.iter().zip(my_words) {
                *words.get_mut(usize::from(*column)).ok_or(damaged)? = *word;
            }
        }
        if columns.is_empty() { Ok(()) } else { Err(damaged) }
    }
}
