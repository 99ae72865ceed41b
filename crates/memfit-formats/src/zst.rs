//! Zstandard around the JSON formats, recognised by its magic number; both directions are bounded.

use std::borrow::Cow;
use std::io::{Read, Write};

use crate::FormatError;

/// The most bytes of JSON that a reader takes, compressed or not: 1 GiB.
pub const MAX_BYTES: u64 = 1 << 30;

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Compresses a file for storage, with a checksum. Every JSON reader of this crate takes the result as it takes
/// the original. The same bytes give the same result.
#[must_use]
pub fn compress(bytes: &[u8]) -> Vec<u8> {
    let encode = || -> std::io::Result<Vec<u8>> {
        let mut encoder = zstd::Encoder::new(Vec::new(), 9)?;
        encoder.include_checksum(true)?;
        encoder.write_all(bytes)?;
        encoder.finish()
    };
    // Only a lack of memory can fail here. The uncompressed file means the same.
    encode().unwrap_or_else(|_| bytes.to_vec())
}

/// Whether a file is compressed with Zstandard.
#[must_use]
pub fn is_packed(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// The bytes of a file, decompressed where it is compressed.
///
/// # Errors
///
/// If the compressed form is damaged, or the file holds more than [`MAX_BYTES`].
pub fn unpack(bytes: &[u8]) -> Result<Cow<'_, [u8]>, FormatError> {
    unpack_within(bytes, MAX_BYTES)
}

/// The text of a file, decompressed where it is compressed.
pub(crate) fn text(bytes: &[u8]) -> Result<Cow<'_, str>, FormatError> {
    match unpack(bytes)? {
        Cow::Owned(bytes) => {
            String::from_utf8(bytes).map(Cow::Owned).map_err(|error| not_text(error.utf8_error()))
        }
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(not_text),
    }
}

fn unpack_within(bytes: &[u8], cap: u64) -> Result<Cow<'_, [u8]>, FormatError> {
    let too_long = || FormatError::new("", format!("the file holds more than {cap} bytes"));
    if !is_packed(bytes) {
        return if bytes.len() as u64 > cap { Err(too_long()) } else { Ok(Cow::Borrowed(bytes)) };
    }
    let damaged = |error: std::io::Error| {
        FormatError::new("", format!("the compressed file is damaged: `{error}`"))
            .hint("make or fetch it again")
    };
    let mut out = Vec::new();
    // The window a file may ask for is bounded by the decoder's default, 128 MiB.
    zstd::Decoder::with_buffer(bytes)
        .and_then(|decoder| decoder.take(cap + 1).read_to_end(&mut out))
        .map_err(damaged)?;
    if out.len() as u64 > cap { Err(too_long()) } else { Ok(Cow::Owned(out)) }
}

pub(crate) fn not_text(error: std::str::Utf8Error) -> FormatError {
    FormatError::new(format!("byte {}", error.valid_up_to()), "the file is not UTF-8 text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_text_comes_back_and_a_bomb_does_not() {
        let long = "memfit ".repeat(10_000);
        let small = compress(long.as_bytes());
        assert!(small.len() < 200, "{}", small.len());
        assert_eq!(text(&small).unwrap(), long);
        assert_eq!(text(long.as_bytes()).unwrap(), long);
        let message = |bytes: &[u8]| unpack_within(bytes, 1000).unwrap_err().to_string();
        assert_eq!(message(&small), "the file holds more than 1000 bytes");
        assert_eq!(message(long.as_bytes()), "the file holds more than 1000 bytes");
        assert_eq!(text(b"ab\xff").unwrap_err().to_string(), "byte 2: the file is not UTF-8 text");
    }

    #[test]
    fn every_cut_is_noticed() {
        let small = compress(b"a text that is long enough to be cut");
        for end in 4..small.len() {
            assert!(text(&small[..end]).is_err(), "{end}");
        }
    }
}
