//! From a file back to tensors. Nothing is believed: sizes are compared before memory is taken, digests before the last piece of a
//! tensor is handed out.

use std::io::{Read, Seek, SeekFrom, Write};

use crate::chunk::{CHUNK, Codec};
use crate::format::{HEAD, Row, TAIL, check_head, list, place};
use crate::source::{Source, Sum, sum_of};
use crate::write::is_like;
use crate::{Error, Header};

/// A checkpoint that is open.
pub struct Reader<'a, R> {
    file: R,
    header: Header,
    rows: Vec<Row>,
    codecs: Vec<Codec>,
    /// Where each tensor begins.
    starts: Vec<u64>,
    base: Option<Box<dyn Source + 'a>>,
    /// For each tensor where it is in the base, if it's needed from there.
    twins: Vec<Option<usize>>,
    wanted: Option<Sum>,
    digest: Sum,
    at: Place,
}

/// How far a tensor has been read.
struct Place {
    tensor: usize,
    /// Plain bytes that are still to come.
    plain: u64,
    /// Packed bytes.
    packed: u64,
    /// What there was of both.
    sums: [blake3::Hasher; 2],
}

impl<'a, R: Read + Seek + Send> Reader<'a, R> {
    /// Reads the list of tensors. Without a `base`, those that are differences can't be read.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`], [`Error::Version`], [`Error::Index`]; [`Error::OtherBase`] if it's another base; [`Error::Read`].
    pub fn open(mut file: R, base: Option<Box<dyn Source + 'a>>) -> Result<Reader<'a, R>, Error> {
        let size = file.seek(SeekFrom::End(0)).map_err(Error::Read)?;
        if size < HEAD + TAIL {
            return Err(Error::Unknown("it is too short".into()));
        }
        let (mut head, mut tail) = ([0; 16], [0; 48]);
        file.seek(SeekFrom::Start(0)).map_err(Error::Read)?;
        file.read_exact(&mut head).map_err(Error::Read)?;
        check_head(&head)?;
        file.seek(SeekFrom::Start(size - TAIL)).map_err(Error::Read)?;
        file.read_exact(&mut tail).map_err(Error::Read)?;
        let (start, length) = place(&tail, size)?;
        file.seek(SeekFrom::Start(start)).map_err(Error::Read)?;
        let mut text = Vec::new();
        (&mut file).take(length as u64).read_to_end(&mut text).map_err(Error::Read)?;
        let list = list(&text, &tail)?;
        let header = Header::parse(list.header).map_err(|error| Error::Index(error.to_string()))?;
        let (codecs, starts) = checked(&header, &list.tensors, start)?;
        let mut reader = Reader {
            file,
            twins: vec![None; codecs.len()],
            header,
            rows: list.tensors,
            codecs,
            starts,
            base: None,
            wanted: list.base,
            digest: Sum(*tail.first_chunk().unwrap_or(&[0; 32])),
            at: Place { tensor: 0, plain: 0, packed: 0, sums: Default::default() },
        };
        if let Some(base) = base {
            reader.bind(base)?;
        }
        Ok(reader)
    }

    /// Finds in `base` what the differences are to.
    fn bind(&mut self, mut base: Box<dyn Source + 'a>) -> Result<(), Error> {
        let needed = self.rows.iter().any(|row| row.base.is_some());
        let sums = if needed { base.sums().map_err(Error::of_base)? } else { Vec::new() };
        for (at, row) in self.rows.iter().enumerate() {
            let Some(sum) = row.base else { continue };
            let tensor = &self.header.tensors()[at];
            let twin = base.header().tensors().iter().position(|other| other.name == row.name);
            let twin =
                twin.filter(|&twin| sums[twin] == sum && is_like(tensor, &base.header().tensors()[twin]));
            let other = || Error::OtherBase { tensor: row.name.clone(), digest: self.wanted() };
            self.twins[at] = Some(twin.ok_or_else(other)?);
        }
        self.base = Some(base);
        Ok(())
    }

    /// The digest of the base, as people read it.
    fn wanted(&self) -> String {
        self.wanted.map_or_else(|| "unknown".into(), |wanted| wanted.to_string())
    }

    /// The lines of the list.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Digest of the base that is needed, if one is.
    #[must_use]
    pub fn base(&self) -> Option<Sum> {
        self.wanted
    }

    /// Digest of the file.
    #[must_use]
    pub fn file_digest(&self) -> Sum {
        self.digest
    }

    /// Reads everything: packed bytes where a base is needed and not here, plain ones elsewhere. `each` sees every tensor that is
    /// whole.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`], [`Error::Read`].
    pub fn verify(&mut self, each: &mut dyn FnMut(&Row)) -> Result<(), Error> {
        for at in 0..self.rows.len() {
            if self.rows[at].base.is_some() && self.base.is_none() {
                self.verify_packed(at)?;
            } else {
                // Compared where the last piece is read.
                sum_of(self, at)?;
            }
            each(&self.rows[at]);
        }
        Ok(())
    }

    fn verify_packed(&mut self, at: usize) -> Result<(), Error> {
        self.file.seek(SeekFrom::Start(self.starts[at])).map_err(Error::Read)?;
        let (mut left, mut hasher) = (self.rows[at].bytes, blake3::Hasher::new());
        while left > 0 {
            let mut bytes = Vec::new();
            let size = left.min(CHUNK as u64);
            (&mut self.file).take(size).read_to_end(&mut bytes).map_err(Error::Read)?;
            if bytes.len() as u64 != size {
                return Err(self.damaged(at, "it is cut off"));
            }
            hasher.update(&bytes);
            left -= size;
        }
        if Sum(*hasher.finalize().as_bytes()) == self.rows[at].packed {
            Ok(())
        } else {
            Err(self.damaged(at, "its checksum is another"))
        }
    }

    fn damaged(&self, at: usize, why: &str) -> Error {
        let tensor = self.rows.get(at).map_or_else(String::new, |row| row.name.clone());
        Error::Damaged { tensor, why: why.into() }
    }

    /// The packed bytes of the next piece, and whether they are packed.
    fn packed(&mut self, size: usize) -> Result<(bool, Vec<u8>), Error> {
        let at = self.at.tensor;
        let mut head = [0; 5];
        let left = self.at.packed.checked_sub(5).ok_or_else(|| self.damaged(at, "it is cut off"))?;
        self.file.read_exact(&mut head).map_err(Error::Read)?;
        let [flag, length @ ..] = head;
        let length = u32::from_le_bytes(length);
        // A piece that is packed is smaller than plain.
        let fits = u64::from(length) <= left && length as usize <= size && flag <= 1;
        if !fits || flag == 0 && length as usize != size {
            return Err(self.damaged(at, "a piece has no right length"));
        }
        let mut bytes = vec![0; length as usize];
        self.file.read_exact(&mut bytes).map_err(Error::Read)?;
        self.at.packed = left - u64::from(length);
        self.at.sums[0].update(&head);
        self.at.sums[0].update(&bytes);
        Ok((flag == 1, bytes))
    }
}

/// What the rows say, as far as it can be compared with the header and the size of the file.
fn checked(header: &Header, rows: &[Row], end: u64) -> Result<(Vec<Codec>, Vec<u64>), Error> {
    let bad = |why: String| Error::Index(why);
    if rows.len() != header.tensors().len() {
        return Err(bad(format!("{} tensors, the header has {}", rows.len(), header.tensors().len())));
    }
    let (mut codecs, mut starts, mut at) = (Vec::new(), Vec::new(), HEAD);
    for (row, tensor) in rows.iter().zip(header.tensors()) {
        let name = &row.name;
        let codec = Codec::named(&row.codec);
        let codec = codec
            .ok_or_else(|| bad(format!("tensor `{name}` has the codec `{}`, unknown here", row.codec)))?;
        // A piece has five bytes before it, and is never more than it was.
        let pieces = tensor.bytes.div_ceil(CHUNK as u64);
        let room = 5 * pieces..=5 * pieces + tensor.bytes;
        if *name != tensor.name || !room.contains(&row.bytes) || codec.needs_base() != row.base.is_some() {
            return Err(bad(format!("what it says of tensor `{name}` can't be right")));
        }
        codecs.push(codec);
        starts.push(at);
        at = at.checked_add(row.bytes).filter(|&at| at <= end).ok_or_else(|| bad("it ends early".into()))?;
    }
    if at == end { Ok((codecs, starts)) } else { Err(bad("there are bytes that belong to no tensor".into())) }
}

impl<R: Read + Seek + Send> Source for Reader<'_, R> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn sums(&mut self) -> Result<Vec<Sum>, Error> {
        Ok(self.rows.iter().map(|row| row.plain).collect())
    }

    fn start(&mut self, tensor: usize) -> Result<(), Error> {
        let row =
            self.rows.get(tensor).ok_or_else(|| Error::Usage(format!("there is no tensor {tensor}")))?;
        if row.base.is_some() {
            let no_base =
                Error::NoBase { digest: self.wanted.map_or_else(String::new, |sum| sum.to_string()) };
            match (&mut self.base, self.twins[tensor]) {
                (Some(base), Some(twin)) => base.start(twin).map_err(Error::of_base)?,
                _ => return Err(no_base),
            }
        }
        let plain = self.header.tensors()[tensor].bytes;
        self.at = Place { tensor, plain, packed: row.bytes, sums: Default::default() };
        self.file.seek(SeekFrom::Start(self.starts[tensor])).map_err(Error::Read).map(drop)
    }

    fn next(&mut self) -> Result<Vec<u8>, Error> {
        if self.at.plain == 0 {
            return Ok(Vec::new());
        }
        let at = self.at.tensor;
        let size = usize::try_from(self.at.plain).unwrap_or(CHUNK).min(CHUNK);
        let (is_packed, bytes) = self.packed(size)?;
        let base = match (&mut self.base, self.twins[at]) {
            (Some(base), Some(_)) => Some(base.next().map_err(Error::of_base)?),
            _ => None,
        };
        let chunk = if is_packed {
            let dtype = self.header.tensors()[at].dtype;
            let unpacked = self.codecs[at].unpack(&bytes, size, base.as_deref(), dtype);
            let unpacked = unpacked.filter(|chunk| chunk.len() == size);
            unpacked.ok_or_else(|| self.damaged(at, "a piece can't be unpacked"))?
        } else {
            bytes
        };
        self.at.sums[1].update(&chunk);
        self.at.plain -= size as u64;
        if self.at.plain == 0 {
            let [packed, plain] = &self.at.sums;
            let [packed, plain] = [packed, plain].map(|sum| Sum(*sum.finalize().as_bytes()));
            if self.at.packed != 0 || packed != self.rows[at].packed || plain != self.rows[at].plain {
                return Err(self.damaged(at, "its checksum is another"));
            }
        }
        Ok(chunk)
    }
}

/// Writes the tensors of `source` to `out` as a safetensors file: to the byte the one that was packed, if nothing was lost. `each`
/// sees every tensor that is whole.
///
/// # Errors
///
/// What the source says; [`Error::Write`]. What was written then is of no use.
pub fn unpack(source: &mut dyn Source, out: &mut dyn Write, each: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let header = source.header().clone();
    let length = header.text().len() as u64;
    out.write_all(&length.to_le_bytes()).map_err(Error::Write)?;
    out.write_all(header.text().as_bytes()).map_err(Error::Write)?;
    for (at, tensor) in header.tensors().iter().enumerate() {
        source.start(at)?;
        loop {
            let chunk = source.next()?;
            if chunk.is_empty() {
                break;
            }
            out.write_all(&chunk).map_err(Error::Write)?;
        }
        each(&tensor.name);
    }
    Ok(())
}
