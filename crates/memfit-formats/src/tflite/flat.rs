//! FlatBuffers, read with every offset checked.
//!
//! A table is a list of fields that may be absent; where each one lies is in a vtable, which tables share. Offsets to tables,
//! vectors and strings count forwards from where they stand. Nothing is copied, and nothing is believed: what lies outside of
//! the file is refused by name.
//!
//! Source: the FlatBuffers internals document ("Format of the binary").

use crate::FormatError;

/// A table of the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'a> {
    bytes: &'a [u8],
    /// What it is, for messages.
    what: &'static str,
    /// Where it starts.
    at: usize,
    /// Where its vtable starts, and how many bytes that has.
    vtable: (usize, usize),
}

/// A vector of the file: elements lie within it, whatever they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vector<'a> {
    bytes: &'a [u8],
    what: &'static str,
    /// Where its first element lies.
    start: usize,
    len: usize,
}

/// Four bytes at `at`.
fn word(bytes: &[u8], at: usize) -> Option<[u8; 4]> {
    bytes.get(at..)?.first_chunk::<4>().copied()
}

fn short(bytes: &[u8], at: usize) -> Option<usize> {
    bytes.get(at..)?.first_chunk::<2>().map(|two| usize::from(u16::from_le_bytes(*two)))
}

/// What the offset at `at` points to.
fn target(bytes: &[u8], at: usize) -> Option<usize> {
    let offset = usize::try_from(u32::from_le_bytes(word(bytes, at)?)).ok()?;
    at.checked_add(offset).filter(|&end| offset > 0 && end < bytes.len())
}

fn outside(what: &str) -> FormatError {
    FormatError::new("", format!("damaged: {what} lies outside of the file"))
        .hint("convert the model again, or fetch it again")
}

impl<'a> Table<'a> {
    /// The table that the offset at the start of the file points to.
    pub(super) fn root(bytes: &'a [u8], what: &'static str) -> Result<Table<'a>, FormatError> {
        target(bytes, 0).and_then(|at| Table::at(bytes, at, what)).ok_or_else(|| outside(what))
    }

    fn at(bytes: &'a [u8], at: usize, what: &'static str) -> Option<Table<'a>> {
        let back = i64::from(i32::from_le_bytes(word(bytes, at)?));
        let vtable = usize::try_from(i64::try_from(at).ok()?.checked_sub(back)?).ok()?;
        let size = short(bytes, vtable)?;
        (size >= 4 && vtable.checked_add(size)? <= bytes.len()).then_some(Table {
            bytes,
            what,
            at,
            vtable: (vtable, size),
        })
    }

    /// How many fields its vtable has a place for.
    pub(super) fn fields(&self) -> usize {
        self.vtable.1 / 2 - 2
    }

    /// Where field `id` lies, if it is there.
    pub(super) fn field(&self, id: usize) -> Option<usize> {
        let entry = 4 + 2 * id;
        if entry + 2 > self.vtable.1 {
            return None;
        }
        let offset = short(self.bytes, self.vtable.0 + entry)?;
        if offset == 0 { None } else { self.at.checked_add(offset) }
    }

    /// `N` bytes of field `id`; zeros where it is absent.
    fn scalar<const N: usize>(&self, id: usize) -> Result<[u8; N], FormatError> {
        let Some(at) = self.field(id) else { return Ok([0; N]) };
        let bytes = self.bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
        bytes.copied().ok_or_else(|| outside(self.what))
    }

    pub(super) fn byte(&self, id: usize) -> Result<u8, FormatError> {
        Ok(self.scalar::<1>(id)?[0])
    }

    pub(super) fn int(&self, id: usize) -> Result<i32, FormatError> {
        Ok(i32::from_le_bytes(self.scalar(id)?))
    }

    pub(super) fn unsigned(&self, id: usize) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.scalar(id)?))
    }

    pub(super) fn long(&self, id: usize) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.scalar(id)?))
    }

    /// Where what field `id` points to starts, if the field is there.
    pub(super) fn pointed(&self, id: usize) -> Result<Option<usize>, FormatError> {
        let Some(at) = self.field(id) else { return Ok(None) };
        target(self.bytes, at).map(Some).ok_or_else(|| outside(self.what))
    }

    /// The vector of elements of `size` bytes in field `id`; an absent one is empty.
    pub(super) fn vector(
        &self,
        id: usize,
        size: usize,
        what: &'static str,
    ) -> Result<Vector<'a>, FormatError> {
        let Some(at) = self.pointed(id)? else {
            return Ok(Vector { bytes: self.bytes, what, start: 0, len: 0 });
        };
        let checked = || {
            let len = usize::try_from(u32::from_le_bytes(word(self.bytes, at)?)).ok()?;
            let end = at.checked_add(4)?.checked_add(len.checked_mul(size)?)?;
            (end <= self.bytes.len()).then_some(Vector { bytes: self.bytes, what, start: at + 4, len })
        };
        checked().ok_or_else(|| outside(what))
    }

    /// The bytes of the string in field `id`; an absent one is empty.
    pub(super) fn text(&self, id: usize, what: &'static str) -> Result<&'a [u8], FormatError> {
        Ok(self.vector(id, 1, what)?.raw(1))
    }
}

impl<'a> Vector<'a> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Its bytes, of elements of `size` bytes: what it was read with.
    pub(super) fn raw(&self, size: usize) -> &'a [u8] {
        self.bytes.get(self.start..self.start + self.len * size).unwrap_or_default()
    }

    /// Its elements as numbers.
    pub(super) fn ints(self) -> impl ExactSizeIterator<Item = i32> + 'a {
        (0..self.len).map(move |at| word(self.bytes, self.start + 4 * at).map_or(0, i32::from_le_bytes))
    }

    /// Where the table that element `index` points to starts.
    pub(super) fn pointed(&self, index: usize) -> Result<usize, FormatError> {
        let at = if index < self.len { target(self.bytes, self.start + 4 * index) } else { None };
        at.ok_or_else(|| outside(self.what))
    }

    /// The table that element `index` points to.
    pub(super) fn table(&self, index: usize) -> Result<Table<'a>, FormatError> {
        Table::at(self.bytes, self.pointed(index)?, self.what).ok_or_else(|| outside(self.what))
    }
}
