//! Compressed checkpoints: a safetensors file in fewer bytes, or only in what it differs from another one.
//!
//! Bytes in, bytes out: whoever calls opens files, and replaces them whole. A file is read and written in pieces of at most
//! [`CHUNK`] bytes, so memory does not grow with tensors. Lossless unless a codec that loses something is named, tensor by tensor.
//! What is read has been checked to the last bit before the last piece of a tensor is handed out; a damaged tensor is named.
//!
//! ```
//! use std::io::Cursor;
//! use memfit_checkpoint::{Reader, Rules, Safetensors, unpack, write};
//!
//! let head = br#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  "#;
//! let mut file = (head.len() as u64).to_le_bytes().to_vec();
//! file.extend_from_slice(head);
//! file.extend_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
//!
//! let mut packed = Vec::new();
//! write(&mut Safetensors::open(Cursor::new(&file))?, None, &Rules::default(), &mut packed, &mut |_| ())?;
//! let mut back = Vec::new();
//! unpack(&mut Reader::open(Cursor::new(&packed), None)?, &mut back, &mut |_| ())?;
//! assert_eq!(back, file);
//! # Ok::<(), memfit_checkpoint::Error>(())
//! ```

#![forbid(unsafe_code)]

mod chunk;
mod error;
mod format;
mod header;
mod read;
mod rules;
mod source;
mod write;

pub use chunk::CHUNK;
pub use error::Error;
pub use format::{MAGIC, Row, VERSION};
pub use header::{Header, Tensor};
pub use memfit_codec::kmeans;
pub use read::{Reader, unpack};
pub use rules::{How, Rules};
pub use source::{Safetensors, Source, Sum, digest};
pub use write::{Summary, write};

/// How many bytes the values of `data` (`f32`) take within `bound` of themselves, and what they become.
///
/// # Errors
///
/// [`Error::Usage`] if `bound` is none.
pub fn within(data: &[u8], bound: f64) -> Result<(usize, Vec<u8>), Error> {
    let how = How::Bounded { bound };
    how.check()?;
    let mut size = 0;
    let mut values = Vec::with_capacity(data.len());
    for chunk in data.chunks(CHUNK) {
        let made = chunk::lossy(&how, chunk, None);
        size += made.bytes.len();
        values.extend_from_slice(&made.plain);
    }
    Ok((size, values))
}
