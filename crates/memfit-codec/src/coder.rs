//! What all codecs have in common.

use crate::variant::Variant;

/// Bytes that are no encoded form of anything of the size asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{encoded}` bytes are no encoded form of `{size}` bytes")]
pub struct Damaged {
    /// Bytes there are.
    pub encoded: usize,
    /// Bytes that were expected to come out.
    pub size: usize,
}

/// A codec: bytes of a tensor to fewer bytes and back.
///
/// The bytes are taken as `f32` words in the order of this machine. What is left at their end, one to three bytes, is kept as it is.
/// The same bytes, `key` and name make the same encoded form on every processor.
pub trait Coder: Send + Sync {
    /// Name, as options and plans have it.
    fn name(&self) -> &'static str;

    /// What it does, in a few words.
    fn summary(&self) -> &'static str;

    /// Whether what comes out may differ from what went in.
    fn is_lossy(&self) -> bool;

    /// Bytes that `bytes` bytes become, where that does not depend on what they are.
    fn fixed_size(&self, bytes: usize) -> Option<usize>;

    /// The most bytes that `bytes` bytes become.
    fn bound(&self, bytes: usize) -> usize;

    /// Encodes `data` by `variant` into the beginning of `out`: how many bytes that took, `None` if there are too few. `key` is the
    /// start of the noise of a codec that rounds at random; others take no notice. What else is in `out` afterwards is not said.
    fn encode_by(&self, variant: Variant, data: &[u8], out: &mut [u8], key: u64) -> Option<usize>;

    /// Decodes `packed` by `variant` into `data`, which it fills.
    ///
    /// # Errors
    ///
    /// [`Damaged`] if it is no encoded form of so many bytes: then what is in `data` is not said. Not every change is found.
    fn decode_by(&self, variant: Variant, packed: &[u8], data: &mut [u8]) -> Result<(), Damaged>;

    /// As [`Coder::encode_by`], by what is fastest here.
    fn encode_into(&self, data: &[u8], out: &mut [u8], key: u64) -> Option<usize> {
        self.encode_by(Variant::fastest(), data, out, key)
    }

    /// Encodes `data` into at most `room` bytes; `None` if it takes more.
    fn encode(&self, data: &[u8], room: usize, key: u64) -> Option<Vec<u8>> {
        if self.fixed_size(data.len()).is_some_and(|size| size > room) {
            return None;
        }
        let mut packed = vec![0; self.bound(data.len()).min(room)];
        let size = self.encode_into(data, &mut packed, key)?;
        packed.truncate(size);
        Some(packed)
    }

    /// As [`Coder::decode_by`], by what is fastest here.
    ///
    /// # Errors
    ///
    /// As [`Coder::decode_by`].
    fn decode_into(&self, packed: &[u8], data: &mut [u8]) -> Result<(), Damaged> {
        self.decode_by(Variant::fastest(), packed, data)
    }

    /// The `size` bytes that were encoded. Takes no memory for them where `packed` can't be so many.
    ///
    /// # Errors
    ///
    /// As [`Coder::decode_by`].
    fn decode(&self, packed: &[u8], size: usize) -> Result<Vec<u8>, Damaged> {
        let fits = match self.fixed_size(size) {
            Some(fixed) => fixed == packed.len(),
            None => packed.len() <= self.bound(size) && packed.len() >= self.least(size),
        };
        if !fits {
            return Err(Damaged { encoded: packed.len(), size });
        }
        let mut data = vec![0; size];
        self.decode_into(packed, &mut data)?;
        Ok(data)
    }

    /// The least bytes that `bytes` bytes become.
    fn least(&self, bytes: usize) -> usize {
        self.fixed_size(bytes).unwrap_or_default()
    }
}

/// `Ok` if `fine`.
pub(crate) fn whole(fine: bool, packed: &[u8], data: &[u8]) -> Result<(), Damaged> {
    if fine { Ok(()) } else { Err(Damaged { encoded: packed.len(), size: data.len() }) }
}
