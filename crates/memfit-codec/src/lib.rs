//! Byte codecs: how a value waits in fewer bytes than it has. Whoever runs a plan with `encode` and `decode` steps calls
//! these; nothing here knows what the bytes mean, but that those of the lossy ones are `f32`.
//!
//! ```
//! let data: Vec<u8> = [0.0f32, -0.0, 1.5, 0.0, f32::NAN].iter().flat_map(|x| x.to_ne_bytes()).collect();
//! let packed = memfit_codec::zvc::encode(&data);
//! assert_eq!(packed.len(), 1 + 3 * 4); // a bit for each word, and the words that are not zero
//! assert_eq!(memfit_codec::zvc::decode(&packed, data.len())?, data);
//!
//! let coder = memfit_codec::by_name("cast-bf16").expect("one of the table");
//! let packed = coder.encode(&data, 10, 0).expect("two bytes a word");
//! assert_eq!(coder.decode(&packed, data.len())?, data); // these five are exact in bf16
//! # Ok::<(), memfit_codec::Damaged>(())
//! ```

mod binarize;
pub mod bounded;
mod cast;
mod coder;
mod csr;
pub mod delta;
pub mod kmeans;
mod narrow;
mod noise;
mod quant;
#[cfg(feature = "zstd")]
pub mod shuffle;
mod sparse;
#[cfg(feature = "zstd")]
pub mod split;
mod state;
mod variant;
mod words;
pub mod zvc;

pub use coder::{Coder, Damaged};
pub use variant::Variant;

use cast::Kind;
use quant::Quantised;

/// Every codec, in the order that people read.
pub static CODERS: [&dyn Coder; 17] = [
    &zvc::Zvc,
    &csr::Csr,
    &sparse::Sparse(Kind::Bf16),
    &sparse::Sparse(Kind::F16),
    &sparse::Sparse(Kind::Fp8),
    &binarize::Binarize,
    &cast::Cast(Kind::Bf16),
    &cast::Cast(Kind::F16),
    &cast::Cast(Kind::Fp8),
    &Quantised { bits: 8, has_mask: false },
    &Quantised { bits: 4, has_mask: false },
    &Quantised { bits: 2, has_mask: false },
    &Quantised { bits: 8, has_mask: true },
    &Quantised { bits: 4, has_mask: true },
    &Quantised { bits: 2, has_mask: true },
    &state::State { is_signed: true },
    &state::State { is_signed: false },
];

/// The codec of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static dyn Coder> {
    CODERS.iter().copied().find(|coder| coder.name() == name)
}
