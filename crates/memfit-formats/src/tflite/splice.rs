//! Puts offsets into a model as `OfflineMemoryAllocation`, and reads them back.
//!
//! All that was there stays as it is, byte for byte; it moves back by a multiple of 64, which keeps every alignment. What is put
//! before it: a new root table, the lists of buffers and of metadata with an entry more, and that entry. So no offset within
//! the old part changes, and no part of the schema has to be known but these three lists.
//!
//! Source: TensorFlow Lite Micro, "Memory Management", section "Offline planned tensor allocations": 32-bit integers, which are a
//! version, a subgraph, the number of tensors, and an offset each, -1 where the runtime decides.

use super::flat::Table;
use super::schema::{field, model};
use crate::FormatError;

/// The name of the entry.
pub const METADATA: &str = "OfflineMemoryAllocation";

/// The version of its format.
const VERSION: i32 = 1;

/// Fields of the root table, of which all but the first are offsets.
const KNOWN: usize = 10;

/// How far the old part moves is a multiple of this: no part of a file has a larger alignment.
const SHIFT: usize = 64;

/// The offsets that a model has for its tensors, those of the first subgraph first, if it has any.
///
/// # Errors
///
/// If the file is no model or a damaged one, or the entry is not of this form.
pub fn offsets_in(bytes: &[u8]) -> Result<Option<Vec<i32>>, FormatError> {
    let model = model(bytes)?;
    let Some((_, entry)) = entry(&model)? else { return Ok(None) };
    let index = usize::try_from(entry.unsigned(field::BUFFER)?).unwrap_or(usize::MAX);
    let buffer = model.vector(field::BUFFERS, 4, "the list of buffers")?.table(index)?;
    let data = buffer.vector(field::DATA, 1, "the data of a buffer")?.raw(1);
    let words: Vec<i32> =
        data.chunks_exact(4).map(|four| i32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect();
    let refuse = |message: String| Err(FormatError::new(format!("metadata `{METADATA}`"), message));
    match words.as_slice() {
        &[version, ..] if version != VERSION => refuse(format!("version `{version}` is not supported")),
        [_, 0, count, rest @ ..] if usize::try_from(*count) == Ok(rest.len()) => Ok(Some(rest.to_vec())),
        _ => refuse("it is no list of offsets for the first subgraph".into()),
    }
}

/// Where the entry stands among the metadata, and the entry.
fn entry<'a>(model: &Table<'a>) -> Result<Option<(usize, Table<'a>)>, FormatError> {
    let list = model.vector(field::METADATA, 4, "the metadata")?;
    for index in 0..list.len() {
        let table = list.table(index)?;
        if table.text(field::NAME, "the name of metadata")? == METADATA.as_bytes() {
            return Ok(Some((index, table)));
        }
    }
    Ok(None)
}

/// The model in `bytes` with an offset for each of its tensors; earlier ones are replaced.
///
/// # Errors
///
/// If the file is no model or a damaged one, has fields that are not known, has data behind its tables (as those of over 2 GiB
/// do), or would have more than 2 GiB.
pub fn with_offsets(bytes: &[u8], offsets: &[i32]) -> Result<Vec<u8>, FormatError> {
    let model = model(bytes)?;
    let refuse = |message: &str| FormatError::new("", message);
    if (KNOWN..model.fields()).any(|id| model.field(id).is_some()) {
        return Err(refuse("the model has fields of a later schema, which might be lost"));
    }
    let buffers = model.vector(field::BUFFERS, 4, "the list of buffers")?;
    for index in 0..buffers.len() {
        if buffers.table(index)?.long(field::BEHIND)? > 1 {
            return Err(refuse("the model has data behind its tables, as those of over 2 GiB have"));
        }
    }
    let metadata = model.vector(field::METADATA, 4, "the metadata")?;
    let replaced = entry(&model)?.map(|(index, _)| index);
    let mut front = Front { bytes: vec![0; 4], to_old: Vec::new() };
    front.bytes.extend(b"TFL3");
    let root = front.table(&(0..KNOWN).filter(|&id| id == 0 || is_kept(&model, id)).collect::<Vec<_>>());
    front.point(0, root);
    front.put(front.slot(root, 0), model.unsigned(0)?);
    for id in 1..KNOWN {
        if let Some(at) = model.pointed(id)?
            && id != field::BUFFERS
            && id != field::METADATA
        {
            front.to_old.push((front.slot(root, id), at));
        }
    }
    let old_buffers =
        (0..buffers.len()).map(|index| buffers.pointed(index)).collect::<Result<Vec<_>, _>>()?;
    let new_buffer = front.list(front.slot(root, field::BUFFERS), &old_buffers);
    let kept = (0..metadata.len()).filter(|&index| Some(index) != replaced);
    let kept = kept.map(|index| metadata.pointed(index)).collect::<Result<Vec<_>, _>>()?;
    let new_entry = front.list(front.slot(root, field::METADATA), &kept);

    let buffer = front.table(&[field::DATA]);
    front.point(new_buffer, buffer);
    // After the length the data is aligned to 16, as the schema demands.
    front.pad(16, 4);
    let count = i32::try_from(offsets.len()).map_err(|_| refuse("the model has too many tensors"))?;
    let words = [VERSION, 0, count].into_iter().chain(offsets.iter().copied());
    let data: Vec<u8> = words.flat_map(i32::to_le_bytes).collect();
    front.point(front.slot(buffer, field::DATA), front.bytes.len());
    front.counted(&data);

    let table = front.table(&[field::NAME, field::BUFFER]);
    front.point(new_entry, table);
    front.put(front.slot(table, field::BUFFER), u32::try_from(buffers.len()).unwrap_or(u32::MAX));
    front.point(front.slot(table, field::NAME), front.bytes.len());
    front.counted(METADATA.as_bytes());
    front.bytes.push(0);
    front.finish(bytes).ok_or_else(|| refuse("with offsets the model would have more than 2 GiB"))
}

/// Whether the new root has field `id`.
fn is_kept(model: &Table<'_>, id: usize) -> bool {
    model.field(id).is_some() || id == field::BUFFERS || id == field::METADATA
}

/// What is put before the old part. Everything in it is 4-aligned.
struct Front {
    bytes: Vec<u8>,
    /// Places of offsets to places in the old part.
    to_old: Vec<(usize, usize)>,
}

impl Front {
    fn put(&mut self, at: usize, word: u32) {
        self.bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }

    /// Makes the offset at `at` point to `to`, which comes after it.
    fn point(&mut self, at: usize, to: usize) {
        self.put(at, u32::try_from(to - at).unwrap_or(u32::MAX));
    }

    /// Zeros, until what follows `more` bytes is a multiple of `align`.
    fn pad(&mut self, align: usize, more: usize) {
        let end = (self.bytes.len() + more).next_multiple_of(align) - more;
        self.bytes.resize(end, 0);
    }

    /// A table of `fields` of four bytes each, after its vtable.
    fn table(&mut self, fields: &[usize]) -> usize {
        self.pad(4, 0);
        let start = self.bytes.len();
        let places = fields.iter().max().map_or(0, |last| last + 1);
        let mut words = vec![0u16; 2 + places];
        let short = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
        words[0] = short(2 * words.len());
        words[1] = short(4 + 4 * fields.len());
        for (at, &id) in fields.iter().enumerate() {
            words[2 + id] = short(4 + 4 * at);
        }
        self.bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        self.pad(4, 0);
        let table = self.bytes.len();
        self.bytes.resize(table + 4 + 4 * fields.len(), 0);
        self.put(table, u32::try_from(table - start).unwrap_or(u32::MAX));
        table
    }

    /// Where field `id` of `table` lies, which has it.
    fn slot(&self, table: usize, id: usize) -> usize {
        let word = |at: usize| usize::from(u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]));
        let back = u32::from_le_bytes([
            self.bytes[table],
            self.bytes[table + 1],
            self.bytes[table + 2],
            self.bytes[table + 3],
        ]);
        let vtable = table - usize::try_from(back).unwrap_or(0);
        table + word(vtable + 4 + 2 * id)
    }

    /// A list of offsets to `old` and of one more, to which the offset at `at` then points; the place of the last.
    fn list(&mut self, at: usize, old: &[usize]) -> usize {
        self.pad(4, 0);
        self.point(at, self.bytes.len());
        self.bytes.extend(u32::try_from(old.len() + 1).unwrap_or(u32::MAX).to_le_bytes());
        for &target in old {
            self.to_old.push((self.bytes.len(), target));
            self.bytes.extend([0; 4]);
        }
        self.bytes.extend([0; 4]);
        self.bytes.len() - 4
    }

    /// Bytes after their number.
    fn counted(&mut self, data: &[u8]) {
        self.bytes.extend(u32::try_from(data.len()).unwrap_or(u32::MAX).to_le_bytes());
        self.bytes.extend(data);
    }

    /// The whole file.
    fn finish(mut self, old: &[u8]) -> Option<Vec<u8>> {
        self.pad(SHIFT, 0);
        let shift = self.bytes.len();
        i32::try_from(shift.checked_add(old.len())?).ok()?;
        for (at, target) in std::mem::take(&mut self.to_old) {
            self.point(at, shift + target);
        }
        self.bytes.extend(old);
        Some(self.bytes)
    }
}
