//! The file: sixteen bytes of head, the packed tensors side by side, the list of tensors, a tail.
//!
//! ```text
//! head   8 MAGIC · u32 version · u32 zero
//! data   each tensor as chunks of CHUNK plain bytes (the last may be shorter): u8 packed? · u32 length · bytes
//! list   JSON: `header` (of the safetensors file), `base`, `tensors` in the order of their bytes
//! tail   32 BLAKE3 of head and list · u64 length of the list · 8 END
//! ```
//! Numbers are little-endian. The list holds a digest of each tensor's packed bytes, so the digest in the tail is one of the whole
//! file. The list stands at the end, so a file is written in one go.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::source::Sum;

/// How a file begins.
pub const MAGIC: [u8; 8] = *b"memfitck";
/// How it ends.
pub(crate) const END: [u8; 8] = *b"memfitce";
/// The version that is written and read.
pub const VERSION: u32 = 1;
/// Bytes before the first tensor.
pub(crate) const HEAD: u64 = 16;
/// Bytes after the list.
pub(crate) const TAIL: u64 = 48;
/// The longest list.
const LONGEST: u64 = 512 << 20;

/// A line of the list: a tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// How it's packed.
    pub codec: String,
    /// Bytes that takes.
    pub bytes: u64,
    /// BLAKE3 of those.
    pub packed: Sum,
    /// BLAKE3 of what comes out.
    pub plain: Sum,
    /// BLAKE3 of the base's tensor of that name, if that is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Sum>,
    /// The absolute error that was allowed; none for what is lossless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
}

/// The list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {
    pub(crate) header: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base: Option<Sum>,
    pub(crate) tensors: Vec<Row>,
}

/// The first bytes of a file.
pub(crate) fn head() -> [u8; 16] {
    let mut head = [0; 16];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head
}

/// Whether these are the first bytes of a file that can be read.
pub(crate) fn check_head(head: &[u8; 16]) -> Result<(), Error> {
    if head[..8] != MAGIC {
        return Err(Error::Unknown("it begins like nothing that memfit writes".into()));
    }
    let version = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
    match version {
        VERSION if head[12..] == [0; 4] => Ok(()),
        VERSION => Err(Error::Index("reserved bytes are in use".into())),
        found => Err(Error::Version { found }),
    }
}

/// List and tail for a file that begins with `head`.
pub(crate) fn end(list: &List) -> Result<Vec<u8>, Error> {
    let text = serde_json::to_vec(list).map_err(|error| Error::Usage(error.to_string()))?;
    if text.len() as u64 > LONGEST {
        return Err(Error::Usage(format!("the list of tensors has {} bytes", text.len())));
    }
    let digest = sum(&[&head(), &text]);
    Ok([&text[..], &digest.0, &(text.len() as u64).to_le_bytes(), &END].concat())
}

/// Where the list of a file of `size` bytes begins, and how long it is, by the last bytes.
pub(crate) fn place(tail: &[u8; 48], size: u64) -> Result<(u64, usize), Error> {
    let bad = |why: &str| Error::Index(why.into());
    let [.., length, end] = *tail.as_chunks::<8>().0 else { return Err(bad("there is no end")) };
    if end != END {
        return Err(bad("the end is missing"));
    }
    let length = u64::from_le_bytes(length);
    let start = size.checked_sub(TAIL).and_then(|end| end.checked_sub(length));
    let start = start.filter(|&start| start >= HEAD && length <= LONGEST);
    let start = start.ok_or_else(|| bad("its length can't be right"))?;
    Ok((start, usize::try_from(length).map_err(|_| bad("its length can't be right"))?))
}

/// Reads a list, which must have the digest of the tail.
pub(crate) fn list(text: &[u8], tail: &[u8; 48]) -> Result<List, Error> {
    if sum(&[&head(), text]).0 != tail[..32] {
        return Err(Error::Index("its checksum is another".into()));
    }
    serde_json::from_slice(text).map_err(|error| Error::Index(error.to_string()))
}

/// BLAKE3 of `parts`, one after the other.
pub(crate) fn sum(parts: &[&[u8]]) -> Sum {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    Sum(*hasher.finalize().as_bytes())
}
