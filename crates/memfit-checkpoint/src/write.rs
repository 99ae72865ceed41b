//! From a source of tensors to a file, in one go.

use std::io::Write;

use safetensors::Dtype;

use crate::chunk::{CHUNK, Codec, lossy};
use crate::format::{HEAD, List, Row, end, head};
use crate::source::{digest, digest_of};
use crate::{Error, How, Rules, Source, Sum, Tensor};

/// What a file came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Its tensors.
    pub rows: Vec<Row>,
    /// Bytes of it.
    pub bytes: u64,
    /// Bytes of the tensors as they were.
    pub plain_bytes: u64,
    /// The digest by which it's known as a base: of what comes out of it.
    pub digest: Sum,
    /// That of its base.
    pub base: Option<Sum>,
}

/// Writes the tensors of `source` to `out`: those that `base` has too as differences, where that is smaller or asked for. `each` sees
/// every tensor when it's written.
///
/// # Errors
///
/// [`Error::Usage`] for bad `rules`; what source and base say; [`Error::Write`]. What was written then is of no use.
pub fn write(
    source: &mut dyn Source,
    mut base: Option<&mut (dyn Source + '_)>,
    rules: &Rules,
    out: &mut dyn Write,
    each: &mut dyn FnMut(&Row),
) -> Result<Summary, Error> {
    rules.check()?;
    let header = source.header().clone();
    let known = base.as_mut().map_or(Ok(None), |base| {
        let digest = digest(*base).map_err(Error::of_base)?;
        Ok(Some((digest, base.sums().map_err(Error::of_base)?, base.header().clone())))
    })?;
    out.write_all(&head()).map_err(Error::Write)?;
    let (mut rows, mut bytes) = (Vec::with_capacity(header.tensors().len()), HEAD);
    for (at, tensor) in header.tensors().iter().enumerate() {
        source.start(at)?;
        let how = if tensor.dtype == Dtype::F32 { rules.of(&tensor.name) } else { &How::Lossless };
        let twin = known.as_ref().and_then(|(_, sums, header)| {
            let like = |other: &Tensor| other.name == tensor.name && is_like(tensor, other);
            let twin = header.tensors().iter().position(like)?;
            Some((twin, sums[twin]))
        });
        let row = match (twin, &mut base) {
            (Some((twin, sum)), Some(base)) => {
                base.start(twin).map_err(Error::of_base)?;
                packed(source, Some((*base, sum)), tensor, how, out)?
            }
            _ => packed(source, None, tensor, how, out)?,
        };
        bytes += row.bytes;
        each(&row);
        rows.push(row);
    }
    let base = known.map(|(digest, ..)| digest).filter(|_| rows.iter().any(|row| row.base.is_some()));
    let list = List { header: header.text().to_owned(), base, tensors: rows };
    let end = end(&list)?;
    out.write_all(&end).map_err(Error::Write)?;
    let rows = list.tensors;
    let digest = digest_of(&header, rows.iter().map(|row| row.plain));
    Ok(Summary { bytes: bytes + end.len() as u64, plain_bytes: header.bytes(), digest, base, rows })
}

/// Whether one can be a difference to the other.
pub(crate) fn is_like(one: &Tensor, other: &Tensor) -> bool {
    one.dtype == other.dtype && one.shape == other.shape && one.bytes == other.bytes
}

/// Packs the tensor at which `source` and `base` stand.
fn packed(
    source: &mut dyn Source,
    mut base: Option<(&mut (dyn Source + '_), Sum)>,
    tensor: &Tensor,
    how: &How,
    out: &mut dyn Write,
) -> Result<Row, Error> {
    let (mut encoded, mut plain, mut bytes) = (blake3::Hasher::new(), blake3::Hasher::new(), 0);
    let mut codec = None;
    for _ in 0..tensor.bytes.div_ceil(CHUNK as u64) {
        let chunk = source.next()?;
        let beside =
            base.as_mut().map_or(Ok(None), |(base, _)| base.next().map(Some).map_err(Error::of_base))?;
        let (packed, back) = match how {
            How::Lossless => (lossless(&mut codec, &chunk, beside.as_deref(), tensor.dtype), chunk),
            how => {
                let made = lossy(how, &chunk, beside.as_deref());
                let is_packed = made.codec != Codec::Raw;
                // What could not be packed says nothing of the others.
                codec = codec.filter(|codec| *codec != Codec::Raw).or(Some(made.codec));
                (is_packed.then_some(made.bytes), made.plain)
            }
        };
        let flag = [u8::from(packed.is_some())];
        let body = packed.as_deref().unwrap_or(&back);
        let length = u32::try_from(body.len()).map_err(|_| Error::Usage("a piece of 4 GiB".into()))?;
        for part in [&flag[..], &length.to_le_bytes(), body] {
            encoded.update(part);
            out.write_all(part).map_err(Error::Write)?;
            bytes += part.len() as u64;
        }
        plain.update(&back);
    }
    let codec = codec.unwrap_or(Codec::Raw);
    Ok(Row {
        name: tensor.name.clone(),
        codec: codec.name().into(),
        bytes,
        packed: Sum(*encoded.finalize().as_bytes()),
        plain: Sum(*plain.finalize().as_bytes()),
        base: base.map(|(_, sum)| sum).filter(|_| codec.needs_base()),
        bound: how.bound().filter(|_| codec != Codec::Raw),
    })
}

/// The packed form of a piece, by the codec that the first one was smallest with; `None` where that is not smaller.
fn lossless(codec: &mut Option<Codec>, chunk: &[u8], base: Option<&[u8]>, dtype: Dtype) -> Option<Vec<u8>> {
    let pack = |codec: Codec| {
        let packed = codec.pack(chunk, base, dtype).filter(|packed| packed.len() < chunk.len())?;
        // A claim until it has been read back.
        let back = codec.unpack(&packed, chunk.len(), base, dtype)?;
        (back == chunk).then_some(packed)
    };
    if let Some(codec) = *codec {
        return pack(codec);
    }
    let tried = Codec::LOSSLESS.into_iter().filter_map(|codec| Some((codec, pack(codec)?)));
    let best = tried.min_by_key(|(_, packed)| packed.len());
    let (best, packed) = best.map_or((Codec::Raw, None), |(best, packed)| (best, Some(packed)));
    *codec = Some(best);
    packed
}
