//! One piece of a tensor, packed and unpacked by each codec.

use memfit_codec::bounded::{self, Quantised};
use memfit_codec::delta::{self, Number};
use memfit_codec::split::{self, Float};
use memfit_codec::{kmeans, shuffle};
use safetensors::Dtype;

use crate::How;

/// Plain bytes of a piece; the last one of a tensor may be shorter.
pub const CHUNK: usize = 1 << 20;

/// Bytes of the numbers that codecs for `f32` see.
const WORD: usize = 4;

/// What a tensor is packed by. Each piece is that, or as it was where that is not smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    /// As it is.
    Raw,
    /// Exponents by themselves.
    Split,
    /// Shuffled bytes, compressed.
    Shuffle,
    /// At most 256 numbers, and which of them.
    Codebook,
    /// The difference to a base.
    Delta,
    /// Whole numbers of steps, to zero or to a base.
    Bounded,
    /// The same, for files to say which.
    DeltaDnn,
    /// Zeros as a mask, the others in whole numbers of steps.
    Deepsz,
}

impl Codec {
    pub(crate) const ALL: [Codec; 8] = [
        Codec::Raw,
        Codec::Split,
        Codec::Shuffle,
        Codec::Codebook,
        Codec::Delta,
        Codec::Bounded,
        Codec::DeltaDnn,
        Codec::Deepsz,
    ];

    /// Those that lose nothing, the first of two that are equally small first.
    pub(crate) const LOSSLESS: [Codec; 5] =
        [Codec::Raw, Codec::Split, Codec::Shuffle, Codec::Codebook, Codec::Delta];

    /// Its name in files.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Codec::Raw => "raw",
            Codec::Split => "split",
            Codec::Shuffle => "shuffle",
            Codec::Codebook => "codebook",
            Codec::Delta => "delta",
            Codec::Bounded => "bounded",
            Codec::DeltaDnn => "delta-dnn",
            Codec::Deepsz => "deepsz",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Codec> {
        Codec::ALL.into_iter().find(|codec| codec.name() == name)
    }

    /// Whether it can't be read without a base.
    pub(crate) const fn needs_base(self) -> bool {
        matches!(self, Codec::Delta | Codec::DeltaDnn)
    }

    /// Packs a piece; `None` where this codec can't. Those that lose something are in [`lossy`].
    pub(crate) fn pack(self, plain: &[u8], base: Option<&[u8]>, dtype: Dtype) -> Option<Vec<u8>> {
        match self {
            Codec::Split => split::encode(plain, float(dtype)?),
            Codec::Shuffle => Some(shuffle::encode(plain, number(dtype).bytes())),
            Codec::Codebook => codebook(plain, number(dtype).bytes()),
            Codec::Delta => {
                let delta = delta::encode(plain, base?, number(dtype)).ok()?;
                Some(shuffle::encode(&delta, number(dtype).bytes()))
            }
            Codec::Raw | Codec::Bounded | Codec::DeltaDnn | Codec::Deepsz => None,
        }
    }

    /// The `size` bytes of a piece, at most [`CHUNK`]; `None` for what is none.
    pub(crate) fn unpack(
        self,
        packed: &[u8],
        size: usize,
        base: Option<&[u8]>,
        dtype: Dtype,
    ) -> Option<Vec<u8>> {
        match self {
            Codec::Raw => None,
            Codec::Split => split::decode(packed, size, float(dtype)?).ok(),
            Codec::Shuffle => shuffle::decode(packed, size, number(dtype).bytes()).ok(),
            Codec::Codebook => from_codebook(packed, size, number(dtype).bytes()),
            Codec::Delta => {
                let delta = shuffle::decode(packed, size, number(dtype).bytes()).ok()?;
                delta::decode(&delta, base?, number(dtype)).ok()
            }
            Codec::Bounded => from_steps(packed, size, &[]),
            Codec::DeltaDnn => from_steps(packed, size, base?),
            Codec::Deepsz => from_masked(packed, size),
        }
    }
}

/// What the numbers of a type are to those who subtract and shuffle.
fn number(dtype: Dtype) -> Number {
    match dtype {
        Dtype::F16 | Dtype::BF16 => Number::Float16,
        Dtype::F32 | Dtype::C64 => Number::Float32,
        Dtype::F64 => Number::Float64,
        Dtype::I16 | Dtype::U16 => Number::Int16,
        Dtype::I32 | Dtype::U32 => Number::Int32,
        Dtype::I64 | Dtype::U64 => Number::Int64,
        _ => Number::Int8,
    }
}

fn float(dtype: Dtype) -> Option<Float> {
    match dtype {
        Dtype::BF16 => Some(Float::Bf16),
        Dtype::F32 | Dtype::C64 => Some(Float::F32),
        _ => None,
    }
}

/// A piece that was packed with loss, and what will come out of it.
pub(crate) struct Lossy {
    pub(crate) codec: Codec,
    pub(crate) bytes: Vec<u8>,
    pub(crate) plain: Vec<u8>,
}

/// Packs a piece of `f32` as `how` allows. What can't be packed is returned as [`Codec::Raw`] and as it was.
pub(crate) fn lossy(how: &How, plain: &[u8], base: Option<&[u8]>) -> Lossy {
    let made = match *how {
        How::Lossless => None,
        How::Bounded { bound } => to_steps(plain, &[], bound).map(|bytes| (Codec::Bounded, bytes)),
        How::DeltaDnn { bound } => match base {
            Some(base) => to_steps(plain, base, bound).map(|bytes| (Codec::DeltaDnn, bytes)),
            None => to_steps(plain, &[], bound).map(|bytes| (Codec::Bounded, bytes)),
        },
        How::Deepsz { bound } => masked(plain, bound).map(|bytes| (Codec::Deepsz, bytes)),
        How::Kmeans { clusters } => {
            codebook(&clustered(plain, clusters), WORD).map(|bytes| (Codec::Codebook, bytes))
        }
    };
    let read = made.filter(|(_, bytes)| bytes.len() < plain.len()).and_then(|(codec, bytes)| {
        let back = codec.unpack(&bytes, plain.len(), base, Dtype::F32)?;
        Some(Lossy { codec, bytes, plain: back })
    });
    read.unwrap_or_else(|| Lossy { codec: Codec::Raw, bytes: plain.to_vec(), plain: plain.to_vec() })
}

/// The numbers of a piece, each as the nearest of a few.
fn clustered(plain: &[u8], clusters: usize) -> Vec<u8> {
    let mut values: Vec<f32> =
        plain.as_chunks::<WORD>().0.iter().map(|word| f32::from_le_bytes(*word)).collect();
    let centres = kmeans::centres(&values, clusters);
    kmeans::nearest(&mut values, &centres);
    values.iter().flat_map(|value| value.to_bits().to_le_bytes()).collect()
}

/// The number of different words less one, those in ascending order, and for each word which it is, compressed.
fn codebook(plain: &[u8], width: usize) -> Option<Vec<u8>> {
    if !matches!(width, 2 | 4 | 8) || !plain.len().is_multiple_of(width) {
        return None;
    }
    let mut words: Vec<&[u8]> = Vec::with_capacity(257);
    for word in plain.chunks_exact(width) {
        if let Err(at) = words.binary_search(&word) {
            words.insert(at, word);
            if words.len() > 256 {
                return None;
            }
        }
    }
    let last = u8::try_from(words.len().checked_sub(1)?).ok()?;
    let which = plain.chunks_exact(width).filter_map(|word| words.binary_search(&word).ok());
    let which: Vec<u8> = which.filter_map(|at| u8::try_from(at).ok()).collect();
    Some([&[last][..], &words.concat(), &shuffle::encode(&which, 1)].concat())
}

fn from_codebook(packed: &[u8], size: usize, width: usize) -> Option<Vec<u8>> {
    let (&last, rest) = packed.split_first()?;
    let (words, which) = rest.split_at_checked((usize::from(last) + 1) * width)?;
    if !size.is_multiple_of(width) {
        return None;
    }
    let which = shuffle::decode(which, size / width, 1).ok()?;
    let mut plain = Vec::with_capacity(size);
    for at in which {
        let at = usize::from(at) * width;
        plain.extend_from_slice(words.get(at..at + width)?);
    }
    Some(plain)
}

/// The bound, the number of escapes, their places, their bits, then the codes, shuffled and compressed.
fn to_steps(plain: &[u8], base: &[u8], bound: f64) -> Option<Vec<u8>> {
    if !plain.len().is_multiple_of(WORD) {
        return None;
    }
    let made = bounded::quantise(plain, base, bound).ok()?;
    let mut packed = bound.to_le_bytes().to_vec();
    packed.extend_from_slice(&u32::try_from(made.at.len()).ok()?.to_le_bytes());
    made.at.iter().chain(&made.bits).for_each(|word| packed.extend_from_slice(&word.to_le_bytes()));
    let codes: Vec<u8> = made.codes.iter().flat_map(|code| code.to_le_bytes()).collect();
    packed.extend_from_slice(&shuffle::encode(&codes, WORD));
    Some(packed)
}

fn from_steps(packed: &[u8], size: usize, base: &[u8]) -> Option<Vec<u8>> {
    let (bound, rest) = packed.split_first_chunk::<8>()?;
    let (count, rest) = rest.split_first_chunk::<4>()?;
    let (escapes, codes) =
        rest.split_at_checked((u32::from_le_bytes(*count) as usize).checked_mul(2 * WORD)?)?;
    let codes = shuffle::decode(codes, size, WORD).ok().filter(|_| size.is_multiple_of(WORD))?;
    let words = |bytes: &[u8]| -> Vec<u32> {
        bytes.as_chunks::<WORD>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
    };
    let (at, bits) = escapes.split_at(escapes.len() / 2);
    let made = Quantised { codes: words(&codes), at: words(at), bits: words(bits) };
    bounded::dequantise(&made, base, f64::from_le_bytes(*bound)).ok()
}

/// The length of the mask, that (a bit for each word that is not zero), and the words it names in steps.
fn masked(plain: &[u8], bound: f64) -> Option<Vec<u8>> {
    let (words, []) = plain.as_chunks::<WORD>() else { return None };
    let is_filled = |word: &[u8; WORD]| u32::from_le_bytes(*word) << 1 != 0;
    let mut mask = vec![0u8; words.len().div_ceil(8)];
    let mut filled = Vec::new();
    for (at, word) in words.iter().enumerate().filter(|(_, word)| is_filled(word)) {
        mask[at / 8] |= 1 << (at % 8);
        filled.extend_from_slice(word);
    }
    let mask = shuffle::encode(&mask, 1);
    let length = u32::try_from(mask.len()).ok()?;
    Some([&length.to_le_bytes()[..], &mask, &to_steps(&filled, &[], bound)?].concat())
}

fn from_masked(packed: &[u8], size: usize) -> Option<Vec<u8>> {
    let (length, rest) = packed.split_first_chunk::<4>()?;
    let (mask, filled) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let count = (size / WORD).div_ceil(8);
    let mask = shuffle::decode(mask, count, 1).ok().filter(|_| size.is_multiple_of(WORD))?;
    let mut plain = vec![0; size];
    let words = plain.as_chunks_mut::<WORD>().0;
    let filled_words = mask.iter().map(|byte| byte.count_ones() as usize).sum::<usize>();
    // No bit beyond the last word.
    let beyond = words.len() % 8 != 0 && mask.last().is_some_and(|last| last >> (words.len() % 8) != 0);
    if beyond {
        return None;
    }
    let filled = from_steps(filled, filled_words * WORD, &[])?;
    let named = words.iter_mut().enumerate().filter(|(at, _)| mask[at / 8] >> (at % 8) & 1 == 1);
    named.zip(filled.as_chunks::<WORD>().0).for_each(|((_, word), from)| *word = *from);
    Some(plain)
}
