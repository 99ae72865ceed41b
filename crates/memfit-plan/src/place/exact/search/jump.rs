//! What a failure says: where it was, and how far back that is decided.

use std::ops::Range;

use super::{NOBODY, NONE, Search};

impl Search<'_> {
    /// Adds the latest failure to those of the top frame.
    pub(super) fn note(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            for (sum, why) in frame.failed.iter_mut().zip(&self.why) {
                *sum |= why;
            }
        }
    }

    /// What is left of `section` does not fit.
    pub(super) fn because(&mut self, section: usize) {
        if self.habits.jumps {
            self.why.fill(0);
            self.why[section / 64] |= 1 << (section % 64);
        }
    }

    /// `piece` fits nowhere.
    pub(super) fn because_of(&mut self, piece: u32) {
        if self.habits.jumps {
            self.why.fill(0);
            for section in self.inst.lo[piece as usize] as usize..self.inst.hi[piece as usize] as usize {
                self.why[section / 64] |= 1 << (section % 64);
            }
        }
    }

    /// None of the candidates `pool[candidates]` lies where it rests: each will lie on a piece yet to come. Nothing will be
    /// placed below `level`. False if the capacity cannot be kept then.
    pub(super) fn nobody(&mut self, candidates: Range<usize>, level: u64) -> bool {
        let mut fits = true;
        for at in candidates {
            let piece = self.pool[at].0;
            if fits && !self.defer(piece, level) {
                self.because_of(piece);
                fits = false;
            }
        }
        fits = self.settle(fits);
        if !fits {
            self.note();
        }
        fits
    }

    /// The frame to take back where `top` has failed: those below it go as well that have placed nothing in a section that failed,
    /// since what they would place instead is not likely to help there. So not everything is tried: see `jumped`.
    pub(super) fn jump(&mut self, mut top: usize) -> usize {
        let why = self.frames.last_mut().map(|frame| std::mem::take(&mut frame.failed)).unwrap_or_default();
        if why.is_empty() {
            return top;
        }
        while let Some(below) = top.checked_sub(1) {
            let frame = &self.frames[below];
            let piece = self.pool[frame.next - 1].0;
            if piece == NOBODY {
                break;
            }
            let (lo, hi) = (self.inst.lo[piece as usize] as usize, self.inst.hi[piece as usize] as usize);
            if (lo..hi).any(|section| why[section / 64] >> (section % 64) & 1 == 1) {
                break;
            }
            self.jumped |= frame.next < frame.end;
            top = below;
            while self.frames[top].root && self.frames[top].split != NONE {
                top = self.frames[top].split;
            }
        }
        if let Some(below) = top.checked_sub(1) {
            for (sum, why) in self.frames[below].failed.iter_mut().zip(&why) {
                *sum |= why;
            }
        }
        top
    }
}
