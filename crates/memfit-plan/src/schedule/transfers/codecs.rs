//! Which codec a value waits in: of those that may be used, the one that makes it smallest.

use memfit_ir::{Bytes, Codec, Device, Need, Value};

use crate::Context;

/// Codecs that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::schedule) struct Codecs(u32);

/// Those that keep what is above zero, and all other words no more than that: for what a ReLU makes, whose backward pass asks for just
/// that.
const KEEP_SIGNS: Codecs = Codecs::of(&[
    Codec::Zvc,
    Codec::Csr,
    Codec::ZvcBf16,
    Codec::ZvcF16,
    Codec::ZvcFp8,
    Codec::Binarize,
    Codec::Int8Mask,
    Codec::Int4Mask,
    Codec::Int2Mask,
]);

/// Those that make zero of all that is below: only what a ReLU makes waits in them.
const MASKED: Codecs = Codecs::of(&[Codec::Int8Mask, Codec::Int4Mask, Codec::Int2Mask]);

/// Whether `codec` makes zero of what is below.
pub(in crate::schedule) fn is_masked(codec: Codec) -> bool {
    !MASKED.among(Codecs::of(&[codec])).is_empty()
}

impl Codecs {
    /// Those that lose nothing that is asked for.
    pub(in crate::schedule) const LOSSLESS: Codecs = Codecs::of(&[Codec::Zvc, Codec::Csr, Codec::Binarize]);

    /// These.
    pub(in crate::schedule) const fn of(codecs: &[Codec]) -> Codecs {
        let (mut bits, mut at) = (0, 0);
        while at < codecs.len() {
            bits |= 1 << codecs[at] as u32;
            at += 1;
        }
        Codecs(bits)
    }

    /// Those that lose something and are allowed.
    pub(in crate::schedule) fn allowed(context: &Context<'_>) -> Codecs {
        Codecs::of(context.lossy)
    }

    /// These and those.
    pub(in crate::schedule) fn and(self, other: Codecs) -> Codecs {
        Codecs(self.0 | other.0)
    }

    /// What these have in common with those.
    pub(in crate::schedule) fn among(self, other: Codecs) -> Codecs {
        Codecs(self.0 & other.0)
    }

    pub(in crate::schedule) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// In the order of [`Codec::ALL`].
    pub(in crate::schedule) fn each(self) -> impl Iterator<Item = Codec> {
        Codec::ALL.iter().map(|row| row.0).filter(move |&codec| self.0 & 1 << codec as u32 != 0)
    }

    /// The one that makes `value`, which has nothing below zero if it is `rectified`, smallest, of those that keep what is asked of it afterwards and make it smaller; of equals the
    /// fastest, then the first. `asked`: the least and the most. Where somebody asks for signs alone, what keeps those comes before
    /// what does not. With what it takes.
    pub(in crate::schedule) fn smallest(
        self,
        (value, rectified): (&Value<'_>, bool),
        (least, most): (Need, Need),
        device: &Device,
    ) -> Option<(Codec, Bytes)> {
        let best = |codecs: Codecs| {
            let may = |&codec: &Codec| {
                codec.suits(value.dtype) && codec.keeps() >= most && (rectified || !is_masked(codec))
            };
            let sized = codecs.each().filter(may).map(|codec| (codec, codec.room(value)));
            let smaller =
                |&(_, room): &(Codec, Bytes)| room.round_up(device.align) < value.size.round_up(device.align);
            let time = |codec| {
                let (encode, decode) = device.codec_times(codec, value.size);
                encode + decode
            };
            sized.filter(smaller).min_by_key(|&(codec, room)| (room, time(codec)))
        };
        let keeping = if least == Need::Sign { best(self.among(KEEP_SIGNS)) } else { None };
        keeping.or_else(|| best(self))
    }
}
