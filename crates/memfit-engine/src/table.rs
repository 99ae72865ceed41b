//! Rows that never move. A vector doubles when it is full, and while its rows move both halves are there: for tables that
//! are to be small beside what they describe, that is half of them too much.

use std::ops::{Index, IndexMut};

use smallvec::{Array, SmallVec};

/// The index of the next element of a list.
pub(crate) fn next_index(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Rows in a piece.
const ROWS: usize = 256;

/// A list in pieces.
#[derive(Clone, Debug)]
pub(crate) struct Table<T> {
    pieces: Vec<Vec<T>>,
    len: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table { pieces: Vec::new(), len: 0 }
    }
}

impl<T> Table<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, row: T) {
        match self.pieces.last_mut() {
            Some(last) if last.len() < ROWS => last.push(row),
            _ => {
                let mut piece = Vec::with_capacity(ROWS);
                piece.push(row);
                self.pieces.push(piece);
            }
        }
        self.len += 1;
    }

    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        self.pieces.get(at / ROWS)?.get(at % ROWS)
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.pieces.get_mut(at / ROWS)?.get_mut(at % ROWS)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flatten()
    }

    /// Bytes of the rows, without what they point to.
    pub(crate) fn bytes(&self) -> usize {
        self.pieces.len() * ROWS * size_of::<T>()
    }
}

impl<T: Default> Table<T> {
    /// Adds rows up to `len`, if there are fewer.
    pub(crate) fn grow(&mut self, len: usize) {
        while self.len < len {
            self.push(T::default());
        }
    }
}

impl<T> Index<usize> for Table<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.pieces[at / ROWS][at % ROWS]
    }
}

impl<T> IndexMut<usize> for Table<T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.pieces[at / ROWS][at % ROWS]
    }
}

/// Appends to a list that is to stay short: where it must grow, it grows by half.
pub(crate) fn push<A: Array>(list: &mut SmallVec<A>, element: A::Item) {
    if list.len() == list.capacity() {
        list.reserve_exact((list.len() / 2).max(1));
    }
    list.push(element);
}

/// Bytes that `list` has on the heap.
pub(crate) fn spilled<A: Array>(list: &SmallVec<A>) -> usize {
    if list.spilled() { list.capacity() * size_of::<A::Item>() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_again_across_pieces() {
        let mut table = Table::default();
        for row in 0..3 * ROWS + 1 {
            table.push(row);
        }
        table[ROWS] += 1;
        table[2 * ROWS] += 1;
        assert_eq!(
            (table.len(), table[ROWS], table[2 * ROWS], table[3 * ROWS]),
            (3 * ROWS + 1, ROWS + 1, 2 * ROWS + 1, 3 * ROWS)
        );
        assert_eq!(table.get(3 * ROWS + 1), None);
        assert!(
            table
                .iter()
                .copied()
                .enumerate()
                .all(|(at, row)| row == at + usize::from(at == ROWS || at == 2 * ROWS))
        );
        table.grow(3);
        assert_eq!((table.len(), table.bytes()), (3 * ROWS + 1, 4 * ROWS * size_of::<usize>()));
        table.grow(4 * ROWS + 1);
        assert_eq!(table[4 * ROWS], 0);
    }
}
