//! Byte codecs: how a value waits in fewer bytes than it has. Whoever runs a plan with `encode` and `decode` steps calls
//! these; nothing here knows what the bytes mean.
//!
//! ```
//! let data: Vec<u8> = [0.0f32, -0.0, 1.5, 0.0, f32::NAN].iter().flat_map(|x| x.to_le_bytes()).collect();
//! let packed = memfit_codec::zvc::encode(&data);
//! assert_eq!(packed.len(), 1 + 3 * 4); // a bit for each word, and the words that are not zero
//! assert_eq!(memfit_codec::zvc::decode(&packed, data.len())?, data);
//! # Ok::<(), memfit_codec::Damaged>(())
//! ```

pub mod bounded;
pub mod delta;
pub mod kmeans;
#[cfg(feature = "zstd")]
pub mod shuffle;
#[cfg(feature = "zstd")]
pub mod split;
pub mod zvc;

/// Bytes that are no encoded form of anything of the size asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{encoded}` bytes are no encoded form of `{size}` bytes")]
pub struct Damaged {
    /// Bytes there are.
    pub encoded: usize,
    /// Bytes that were expected to come out.
    pub size: usize,
}
