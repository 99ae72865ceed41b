//! What a host keeps for each storage: where its bytes are, who owns them.

use crate::ids::StorageId;

/// A list with an element for each storage. What nobody has written to is as it is by default.
#[derive(Clone, Debug)]
pub struct Slots<T> {
    rows: Vec<T>,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots { rows: Vec::new() }
    }
}

impl<T: Default> Slots<T> {
    /// That of `storage`, which is made if there is none. Where the list must grow it grows by an eighth, not to twice what it
    /// is: rows are many, and both lists are there while they move.
    pub fn at(&mut self, storage: StorageId) -> &mut T {
        let index = storage.index();
        if self.rows.len() <= index {
            if self.rows.capacity() <= index {
                self.rows.reserve_exact((index + 1 - self.rows.len()).max(self.rows.len() / 8));
            }
            self.rows.resize_with(index + 1, T::default);
        }
        &mut self.rows[index]
    }

    /// That of `storage`, which is as new from now on.
    pub fn take(&mut self, storage: StorageId) -> T {
        std::mem::take(self.at(storage))
    }

    /// That of `storage`, if there is one.
    #[must_use]
    pub fn get(&self, storage: StorageId) -> Option<&T> {
        self.rows.get(storage.index())
    }

    /// See [`Slots::get`].
    pub fn get_mut(&mut self, storage: StorageId) -> Option<&mut T> {
        self.rows.get_mut(storage.index())
    }

    /// Bytes of the list, and those that `more` counts of each row.
    pub fn bytes(&self, more: impl Fn(&T) -> usize) -> usize {
        self.rows.capacity() * size_of::<T>() + self.rows.iter().map(more).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_grows_by_an_eighth_and_is_read_as_it_was_written() {
        let mut slots = Slots::<u64>::default();
        for storage in 0..1000 {
            *slots.at(StorageId(storage)) = u64::from(storage) + 1;
        }
        assert!(slots.bytes(|_| 0) <= 8 * (1000 + 1000 / 8), "{}", slots.bytes(|_| 0));
        assert_eq!(slots.get(StorageId(999)), Some(&1000));
        assert_eq!(slots.take(StorageId(7)), 8);
        assert_eq!((slots.get(StorageId(7)), slots.get(StorageId(5000))), (Some(&0), None));
        *slots.at(StorageId(1200)) = 3;
        assert_eq!(slots.get(StorageId(1100)), Some(&0));
        assert_eq!(slots.get_mut(StorageId(1200)), Some(&mut 3));
        assert_eq!(slots.bytes(|_| 1) - slots.bytes(|_| 0), 1201);
    }
}
