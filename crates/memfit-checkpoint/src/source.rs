//! Where tensors come from, piece by piece.

use std::io::{Read, Seek, SeekFrom};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::chunk::CHUNK;
use crate::{Error, Header};

/// A BLAKE3 digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sum(
    /// Its bytes.
    pub [u8; 32],
);

impl Sum {
    /// That of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Sum {
        Sum(*blake3::hash(bytes).as_bytes())
    }
}

impl std::fmt::Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        blake3::Hash::from_bytes(self.0).to_hex().fmt(f)
    }
}

impl Serialize for Sum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sum, D::Error> {
        let text = String::deserialize(deserializer)?;
        let hash = blake3::Hash::from_hex(&text).map_err(serde::de::Error::custom)?;
        // One digest, one text.
        if hash.to_hex().as_str() != text {
            return Err(serde::de::Error::custom("a digest in capital letters"));
        }
        Ok(Sum(*hash.as_bytes()))
    }
}

/// Something that has tensors.
pub trait Source: Send {
    /// Which.
    fn header(&self) -> &Header;

    /// BLAKE3 of each tensor's bytes.
    ///
    /// # Errors
    ///
    /// If they can't be read.
    fn sums(&mut self) -> Result<Vec<Sum>, Error>;

    /// Goes to the beginning of a tensor.
    ///
    /// # Errors
    ///
    /// If it can't be read.
    fn start(&mut self, tensor: usize) -> Result<(), Error>;

    /// The next piece of it: [`CHUNK`] bytes, less at the end, none after it.
    ///
    /// # Errors
    ///
    /// If it can't be read, or is damaged.
    fn next(&mut self) -> Result<Vec<u8>, Error>;
}

/// The digest by which a base is known: of names, types, shapes and bytes of all tensors, whatever their order, and of nothing else.
///
/// # Errors
///
/// If the tensors can't be read.
pub fn digest(source: &mut dyn Source) -> Result<Sum, Error> {
    let sums = source.sums()?;
    Ok(digest_of(source.header(), sums))
}

/// The same, of a header and what its tensors have.
pub(crate) fn digest_of(header: &Header, sums: impl IntoIterator<Item = Sum>) -> Sum {
    let mut rows: Vec<_> = header.tensors().iter().zip(sums).collect();
    rows.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"memfit checkpoint");
    for (tensor, sum) in rows {
        let shape: Vec<u64> = tensor.shape.iter().map(|&size| size as u64).collect();
        let text = format!("{:?} {shape:?}", tensor.dtype);
        for part in [tensor.name.as_bytes(), text.as_bytes(), &sum.0] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
    }
    Sum(*hasher.finalize().as_bytes())
}

/// A safetensors file.
#[derive(Debug)]
pub struct Safetensors<R> {
    file: R,
    header: Header,
    /// Where each tensor begins.
    starts: Vec<u64>,
    left: u64,
    sums: Option<Vec<Sum>>,
}

impl<R: Read + Seek + Send> Safetensors<R> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] if this is no safetensors file; [`Error::Read`].
    pub fn open(mut file: R) -> Result<Safetensors<R>, Error> {
        let size = file.seek(SeekFrom::End(0)).map_err(Error::Read)?;
        file.seek(SeekFrom::Start(0)).map_err(Error::Read)?;
        let unknown = |why: &str| Error::Unknown(format!("no safetensors file: {why}"));
        let mut length = [0; 8];
        if size < 8 {
            return Err(unknown("it has less than eight bytes"));
        }
        file.read_exact(&mut length).map_err(Error::Read)?;
        let length = u64::from_le_bytes(length);
        if length > size - 8 {
            return Err(unknown("its header is longer than the file"));
        }
        let mut text = Vec::new();
        (&mut file).take(length).read_to_end(&mut text).map_err(Error::Read)?;
        let text = String::from_utf8(text).map_err(|_| unknown("its header is no text"))?;
        let header = Header::parse(text)?;
        let starts = starts(&header, 8 + length);
        if 8 + length + header.bytes() != size {
            return Err(unknown("it has not as many bytes as its header says"));
        }
        Ok(Safetensors { file, header, starts, left: 0, sums: None })
    }
}

/// Where each tensor begins, the first one at `at`.
fn starts(header: &Header, mut at: u64) -> Vec<u64> {
    let each = header.tensors().iter().map(|tensor| {
        at += tensor.bytes;
        at - tensor.bytes
    });
    each.collect()
}

impl<R: Read + Seek + Send> Source for Safetensors<R> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn sums(&mut self) -> Result<Vec<Sum>, Error> {
        if self.sums.is_none() {
            let made: Result<_, _> = (0..self.starts.len()).map(|tensor| sum_of(self, tensor)).collect();
            self.sums = Some(made?);
        }
        Ok(self.sums.clone().unwrap_or_default())
    }

    fn start(&mut self, tensor: usize) -> Result<(), Error> {
        self.left = self.header.tensors().get(tensor).map_or(0, |tensor| tensor.bytes);
        let at = self.starts.get(tensor).copied().unwrap_or_default();
        self.file.seek(SeekFrom::Start(at)).map_err(Error::Read).map(drop)
    }

    fn next(&mut self) -> Result<Vec<u8>, Error> {
        let mut chunk = vec![0; usize::try_from(self.left).unwrap_or(CHUNK).min(CHUNK)];
        self.file.read_exact(&mut chunk).map_err(Error::Read)?;
        self.left -= chunk.len() as u64;
        Ok(chunk)
    }
}

/// BLAKE3 of a tensor's bytes.
pub(crate) fn sum_of(source: &mut dyn Source, tensor: usize) -> Result<Sum, Error> {
    source.start(tensor)?;
    let mut hasher = blake3::Hasher::new();
    loop {
        let chunk = source.next()?;
        if chunk.is_empty() {
            return Ok(Sum(*hasher.finalize().as_bytes()));
        }
        hasher.update(&chunk);
    }
}
