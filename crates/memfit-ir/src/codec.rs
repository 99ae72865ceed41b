//! Byte codecs that a plan may name. What they do is `memfit-codec`'s; here is what a judge must know.

use crate::{Bytes, Value};

/// A way to hold a value in fewer bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Codec {
    /// Zero-value compression of 32-bit words: a bit mask, then the words that are not zero. Lossless.
    /// Source: Rhu et al., "Compressing DMA Engine", HPCA 2018.
    Zvc,
    /// Singles to IEEE halves. Lossy.
    CastF16,
    /// Singles to bfloat16. Lossy.
    CastBf16,
}

impl Codec {
    /// Every codec with its name in files.
    pub const ALL: [(Codec, &str); 3] =
        [(Codec::Zvc, "zvc"), (Codec::CastF16, "cast-f16"), (Codec::CastBf16, "cast-bf16")];

    /// Name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        Codec::ALL.iter().find(|(codec, _)| *codec == self).map_or("unknown", |(_, name)| name)
    }

    /// The codec called `name` in files.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Codec> {
        Codec::ALL.iter().find(|(_, known)| *known == name).map(|(codec, _)| *codec)
    }

    /// Whether decoding may give other bytes than were encoded.
    #[must_use]
    pub fn is_lossy(self) -> bool {
        !matches!(self, Codec::Zvc)
    }

    /// The most bytes that `size` bytes of data can encode to.
    #[must_use]
    pub fn bound(self, size: Bytes) -> Bytes {
        match self {
            Codec::Zvc => size + Bytes(size.0.div_ceil(4).div_ceil(8)),
            Codec::CastF16 | Codec::CastBf16 => Bytes(size.0.div_ceil(2)),
        }
    }

    /// What a buffer for `value` must hold: the bound, or less where the graph says how dense the value is. Whoever runs the
    /// plan must see that what he encodes is no larger; a value that is denser than that can't wait encoded.
    #[must_use]
    pub fn room(self, value: &Value<'_>) -> Bytes {
        match (self, value.density) {
            (Codec::Zvc, Some(density)) => Codec::packed(value.size, density),
            (Codec::Zvc, None) | (Codec::CastF16 | Codec::CastBf16, _) => self.bound(value.size),
        }
    }

    /// Bytes that zero-value compression makes of `size` bytes, of whose words at most the share `density` is not zero.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a density is between 0 and 1"
    )]
    fn packed(size: Bytes, density: f32) -> Bytes {
        let words = size.0.div_ceil(4);
        let filled = (f64::from(density) * words as f64).ceil() as u64;
        Bytes(words.div_ceil(8) + size.0.min(filled.saturating_mul(4)))
    }
}
