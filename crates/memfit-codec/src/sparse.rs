//! Zero-value compression whose words are cast: a bit for each word, and those that are not zero in fewer bits.
//!
//! Sources: those of [`zvc`] and [`cast`](crate::cast). `[mask][words that are not zero, cast][what is left at the end]`. The mask is
//! kept: zero words are exact, and those that are not zero do not become zero but the least there is, so what a ReLU lets through is
//! the same as ever. Bytes for *n* words of which *k* are not zero: ceil(n / 8) + 2 k, or with e4m3 ceil(n / 8) + k + 4 ceil(k / 256):
//! its blocks are of words that are not zero.

use crate::cast::{BLOCK, Kind};
use crate::coder::{Coder, Damaged};
use crate::variant::Variant;
use crate::words::WORD;
use crate::zvc;

/// Words that are looked at at a time.
const PIECE: usize = 2048;

/// Words that wait between packing and casting: those of a block that is not full, of a piece, and what a vector writes beyond.
const WAITING: usize = BLOCK + PIECE + 16;

/// A mask and what is not zero, cast.
pub(crate) struct Sparse(pub(crate) Kind);

fn mask_bytes(words: usize) -> usize {
    words.div_ceil(8)
}

fn ones(mask: &[u8]) -> usize {
    mask.iter().map(|byte| byte.count_ones() as usize).sum()
}

impl Coder for Sparse {
    fn name(&self) -> &'static str {
        match self.0 {
            Kind::Bf16 => "zvc+bf16",
            Kind::F16 => "zvc+f16",
            Kind::Fp8 => "zvc+fp8",
        }
    }

    fn summary(&self) -> &'static str {
        match self.0 {
            Kind::Bf16 => "a bit for each word, and those that are not zero as bf16",
            Kind::F16 => "a bit for each word, and those that are not zero as IEEE half",
            Kind::Fp8 => "a bit for each word, and those that are not zero as e4m3 with scales",
        }
    }

    fn is_lossy(&self) -> bool {
        true
    }

    fn fixed_size(&self, _: usize) -> Option<usize> {
        None
    }

    fn bound(&self, bytes: usize) -> usize {
        self.least(bytes).saturating_add(self.0.size(bytes / WORD))
    }

    fn least(&self, bytes: usize) -> usize {
        mask_bytes(bytes / WORD) + bytes % WORD
    }

    fn encode_by(&self, variant: Variant, data: &[u8], out: &mut [u8], _: u64) -> Option<usize> {
        let kind = self.0;
        let (words, tail) = data.as_chunks::<WORD>();
        let (mask, out) = out.split_at_mut_checked(mask_bytes(words.len()))?;
        let mut waiting = [[0; WORD]; WAITING];
        let (mut held, mut done) = (0, 0);
        for (piece, mask) in words.chunks(PIECE).zip(mask.chunks_mut(PIECE / 8)) {
            let room = waiting[held..].as_flattened_mut();
            held += zvc::pack(variant, piece.as_flattened(), mask, room)? / WORD;
            let full = held / BLOCK * BLOCK;
            let to = out.get_mut(done..)?.get_mut(..kind.size(full))?;
            kind.encode(variant, &waiting[..full], to, true);
            waiting.copy_within(full..held, 0);
            (held, done) = (held - full, done + kind.size(full));
        }
        let to = out.get_mut(done..)?.get_mut(..kind.size(held))?;
        kind.encode(variant, &waiting[..held], to, true);
        done += kind.size(held);
        out.get_mut(done..)?.get_mut(..tail.len())?.copy_from_slice(tail);
        Some(mask.len() + done + tail.len())
    }

    fn decode_by(&self, variant: Variant, packed: &[u8], data: &mut [u8]) -> Result<(), Damaged> {
        let kind = self.0;
        let damaged = Damaged { encoded: packed.len(), size: data.len() };
        let (words, tail) = data.as_chunks_mut::<WORD>();
        let (mask, rest) = packed.split_at_checked(mask_bytes(words.len())).ok_or(damaged)?;
        let filled = ones(mask);
        let (mut cast, rest) = rest.split_at_checked(kind.size(filled)).ok_or(damaged)?;
        if rest.len() != tail.len() {
            return Err(damaged);
        }
        tail.copy_from_slice(rest);
        let mut waiting = [[0; WORD]; WAITING];
        let (mut held, mut left) = (0, filled);
        for (piece, mask) in words.chunks_mut(PIECE).zip(mask.chunks(PIECE / 8)) {
            let wanted = ones(mask);
            if wanted > held {
                // Whole blocks, or all that is left.
                let more = (wanted - held).next_multiple_of(BLOCK).min(left);
                let (now, later) = cast.split_at_checked(kind.size(more)).ok_or(damaged)?;
                kind.decode(variant, now, &mut waiting[held..held + more]);
                (held, left, cast) = (held + more, left - more, later);
            }
            let taken = zvc::unpack(variant, mask, waiting.as_flattened(), piece.as_flattened_mut());
            if taken != Some(wanted * WORD) {
                return Err(damaged);
            }
            waiting.copy_within(wanted..held, 0);
            held -= wanted;
        }
        Ok(())
    }
}
