//! Byte codecs that a plan may name. What they do is `memfit-codec`'s; here is what planners and judges must know of them.

use crate::{Bytes, Dtype, Need, Value};

/// Bytes of what codecs take for a word.
const WORD: u64 = 4;

macro_rules! codecs {
    ($($(#[$doc:meta])* $codec:ident = $name:literal),+ $(,)?) => {
        /// A way to hold a value in fewer bytes. Names and sizes are those of `memfit_codec::CODERS`; a test of the testkit says so.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Codec { $($(#[$doc])* $codec),+ }

        impl Codec {
            /// Every codec with its name in files.
            pub const ALL: &[(Codec, &str)] = &[$((Codec::$codec, $name)),+];

            /// Name in files.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Codec::$codec => $name),+ }
            }
        }
    };
}
codecs! {
    /// Zero-value compression: a bit for each word, then the words that are not zero. Lossless.
    /// Source: Rhu et al., "Compressing DMA Engine", HPCA 2018.
    Zvc = "zvc",
    /// Rows of 256 words, of which those that are not zero are kept with their columns. Lossless.
    /// Source: Jain et al., "Gist", ISCA 2018, "SSDC".
    Csr = "csr",
    /// As [`Codec::Zvc`], words that are not zero as bfloat16. Lossy.
    ZvcBf16 = "zvc+bf16",
    /// As [`Codec::Zvc`], words that are not zero as IEEE halves. Lossy.
    ZvcF16 = "zvc+f16",
    /// As [`Codec::Zvc`], words that are not zero as e4m3 with a scale for each 256. Lossy.
    ZvcFp8 = "zvc+fp8",
    /// A bit for each word: whether it is above zero. Loses nothing where that is all that is read afterwards, and can't be read
    /// otherwise. Source: Jain et al., "Gist", ISCA 2018.
    Binarize = "binarize",
    /// Singles to bfloat16. Lossy.
    CastBf16 = "cast-bf16",
    /// Singles to IEEE halves. Lossy.
    CastF16 = "cast-f16",
    /// Singles to e4m3 with a scale for each 256. Lossy.
    CastFp8 = "cast-fp8",
    /// 8 bits a word between the least and the most of each 256. Lossy. Source: Chen et al., "ActNN", ICML 2021.
    Int8 = "int8",
    /// The same in 4 bits. Lossy.
    Int4 = "int4",
    /// The same in 2 bits. Lossy.
    Int2 = "int2",
    /// As [`Codec::Int8`] with an exact bit for what is above zero; all else becomes zero. Lossy.
    Int8Mask = "int8+mask",
    /// The same in 4 bits. Lossy.
    Int4Mask = "int4+mask",
    /// The same in 2 bits. Lossy.
    Int2Mask = "int2+mask",
    /// 8 bits a word of a dynamic tree, scaled by the largest of each 2048. Lossy.
    /// Source: Dettmers et al., "8-bit Optimizers via Block-wise Quantization", ICLR 2022.
    State8 = "state8",
    /// The same without signs: for squares. Lossy.
    State8Unsigned = "state8-unsigned",
}

impl Codec {
    /// The codec called `name` in files.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Codec> {
        Codec::ALL.iter().find(|(_, known)| *known == name).map(|(codec, _)| *codec)
    }

    /// Whether whoever reads what was decoded may find something else than what it asks for, so that only those may use it who were
    /// allowed to. What `binarize` keeps is exact: who reads more than that is wrong, whoever allowed it.
    #[must_use]
    pub fn is_lossy(self) -> bool {
        !matches!(self, Codec::Zvc | Codec::Csr | Codec::Binarize)
    }

    /// What of a value is left after decoding.
    #[must_use]
    pub fn keeps(self) -> Need {
        if self == Codec::Binarize { Need::Sign } else { Need::Value }
    }

    /// Whether the encoded size depends on how many words are zero.
    #[must_use]
    pub fn is_variable(self) -> bool {
        matches!(self, Codec::Zvc | Codec::Csr | Codec::ZvcBf16 | Codec::ZvcF16 | Codec::ZvcFp8)
    }

    /// Whether it may encode values whose elements are of type `dtype`: those that know numbers know `f32`.
    #[must_use]
    pub fn suits(self, dtype: Dtype) -> bool {
        matches!(self, Codec::Zvc | Codec::Csr) || dtype == Dtype::F32
    }

    /// The most bytes that `size` bytes of data can encode to; all that they encode to unless that is [variable](Codec::is_variable).
    #[must_use]
    pub fn bound(self, size: Bytes) -> Bytes {
        self.packed(size, size.0.div_ceil(WORD))
    }

    /// What a buffer for `value` must hold: the bound, or less where the graph says how dense the value is. Whoever runs the
    /// plan must see that what he encodes is no larger; a value that is denser than that can't wait encoded.
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a density is between 0 and 1"
    )]
    pub fn room(self, value: &Value<'_>) -> Bytes {
        let words = value.size.0.div_ceil(WORD);
        let share = f64::from(value.density.unwrap_or(1.0));
        self.packed(value.size, (share * words as f64).ceil() as u64)
    }

    /// Bytes that it makes of `size` bytes, of whose words, the last one perhaps not whole, at most `filled` are not zero.
    fn packed(self, size: Bytes, filled: u64) -> Bytes {
        let (words, tail) = (size.0 / WORD, size.0 % WORD);
        let (mask, kept) = (words.div_ceil(8), filled.min(words));
        let scaled = |words: u64, block: u64| words.saturating_add(words.div_ceil(block).saturating_mul(4));
        let bytes = match self {
            // The only one for which the last word counts as one.
            Codec::Zvc => {
                let mask = size.0.div_ceil(WORD).div_ceil(8);
                return Bytes(mask.saturating_add(size.0.min(filled.saturating_mul(WORD))));
            }
            Codec::Csr => kept.saturating_mul(1 + WORD).saturating_add(2 * words.div_ceil(256)),
            Codec::ZvcBf16 | Codec::ZvcF16 => mask + 2 * kept,
            Codec::ZvcFp8 => mask + scaled(kept, 256),
            Codec::Binarize => mask,
            Codec::CastBf16 | Codec::CastF16 => 2 * words,
            Codec::CastFp8 => scaled(words, 256),
            Codec::Int8 => grouped(words, 8, false),
            Codec::Int4 => grouped(words, 4, false),
            Codec::Int2 => grouped(words, 2, false),
            Codec::Int8Mask => grouped(words, 8, true),
            Codec::Int4Mask => grouped(words, 4, true),
            Codec::Int2Mask => grouped(words, 2, true),
            Codec::State8 | Codec::State8Unsigned => scaled(words, 2048),
        };
        Bytes(bytes.saturating_add(tail))
    }
}

/// Bytes of `words` words in groups of 256: two numbers for each, so many bits a word, and one more if there is a mask.
fn grouped(words: u64, bits: u64, has_mask: bool) -> u64 {
    const GROUP: u64 = 256;
    let bytes = |words: u64| 8 + (words * bits).div_ceil(8) + if has_mask { words.div_ceil(8) } else { 0 };
    let rest = words % GROUP;
    (words / GROUP) * bytes(GROUP) + if rest == 0 { 0 } else { bytes(rest) }
}
