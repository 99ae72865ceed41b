//! A short list in sixteen bytes: up to three numbers in place, more of them elsewhere. Rows of tables have several such lists.

use std::ops::{Deref, DerefMut};

use smallvec::SmallVec;

/// A list of `T`s, which are as large as a `u32`.
#[derive(Clone, Debug, Default)]
pub(crate) enum Few<T> {
    #[default]
    None,
    One([T; 1]),
    Two([T; 2]),
    Three([T; 3]),
    #[allow(clippy::box_collection, reason = "a vector takes three words, and this is to take one")]
    Many(Box<Vec<T>>),
}

impl<T: Copy> Few<T> {
    pub(crate) fn push(&mut self, element: T) {
        *self = match std::mem::replace(self, Few::None) {
            Few::None => Few::One([element]),
            Few::One([a]) => Few::Two([a, element]),
            Few::Two([a, b]) => Few::Three([a, b, element]),
            Few::Three([a, b, c]) => Few::Many(Box::new(vec![a, b, c, element])),
            Few::Many(mut list) => {
                list.push(element);
                Few::Many(list)
            }
        };
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        match self {
            Few::Many(list) => list.retain(keep),
            _ => *self = self.iter().copied().filter(keep).collect(),
        }
    }

    /// Bytes that it has elsewhere.
    pub(crate) fn spilled(&self) -> usize {
        match self {
            Few::Many(list) => size_of::<Vec<T>>() + list.capacity() * size_of::<T>(),
            _ => 0,
        }
    }
}

impl<T: Copy> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Few<T> {
        let elements: SmallVec<[T; 8]> = elements.into_iter().collect();
        match *elements.as_slice() {
            [] => Few::None,
            [a] => Few::One([a]),
            [a, b] => Few::Two([a, b]),
            [a, b, c] => Few::Three([a, b, c]),
            _ => Few::Many(Box::new(elements.as_slice().to_vec())),
        }
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Few::None => &[],
            Few::One(list) => list,
            Few::Two(list) => list,
            Few::Three(list) => list,
            Few::Many(list) => list,
        }
    }
}

impl<T> DerefMut for Few<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Few::None => &mut [],
            Few::One(list) => list,
            Few::Two(list) => list,
            Few::Three(list) => list,
            Few::Many(list) => list,
        }
    }
}

impl<'a, T> IntoIterator for &'a Few<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maybe::Maybe;

    #[test]
    fn a_list_of_any_length_is_as_it_was_written_in_sixteen_bytes() {
        assert_eq!((size_of::<Few<u32>>(), size_of::<Few<Maybe<u32>>>()), (16, 16));
        for count in 0..9_u32 {
            let mut pushed = Few::default();
            (0..count).for_each(|number| pushed.push(number));
            let mut collected: Few<u32> = (0..count).collect();
            assert_eq!((pushed.to_vec(), &*pushed), ((0..count).collect::<Vec<u32>>(), &*collected));
            assert_eq!(pushed.spilled() > 0, count > 3);
            collected.iter_mut().for_each(|number| *number *= 2);
            collected.retain(|number| number % 4 == 0);
            assert!(collected.into_iter().copied().eq((0..count.div_ceil(2)).map(|number| number * 4)));
        }
    }
}
