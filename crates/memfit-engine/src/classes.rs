//! What records have in common: a step does the same on the same sizes many times, so what says that is written down once.

use std::sync::Arc;

use memfit_ir::{Effect, Need};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::call::Output;
use crate::kit::map_bytes;
use crate::table::{next_index, spilled};

/// What a record does, whatever it does it to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Class {
    pub(crate) kind: u32,
    pub(crate) effect: Effect,
    pub(crate) outputs: SmallVec<[Output; 2]>,
    /// What it needs of each of its reads; empty if that is everything.
    pub(crate) needs: SmallVec<[Need; 8]>,
}

impl Class {
    fn bytes(&self) -> usize {
        size_of::<Class>() + spilled(&self.outputs) + spilled(&self.needs)
    }
}

/// A class in use.
#[derive(Clone, Debug, Default)]
struct Row {
    class: Arc<Class>,
    /// Records of this class.
    records: u32,
}

/// Fewest classes that are looked through for those that no record is of any more.
const FEW: usize = 256;

/// The classes of all records, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classes {
    rows: Vec<Row>,
    known: FxHashMap<Arc<Class>, u32>,
    free: Vec<u32>,
    /// Classes that there were in use when they were last looked through.
    used: usize,
}

impl Classes {
    pub(crate) fn get(&self, number: u32) -> &Class {
        &self.rows[number as usize].class
    }

    /// The number of `class`, for one more record.
    pub(crate) fn take(&mut self, class: &Class) -> u32 {
        let number = self.known.get(class).copied().unwrap_or_else(|| self.add(class));
        self.rows[number as usize].records += 1;
        number
    }

    /// A record of class `number` is no more.
    pub(crate) fn give_back(&mut self, number: u32) {
        self.rows[number as usize].records -= 1;
    }

    fn add(&mut self, class: &Class) -> u32 {
        if self.known.len() >= FEW.max(2 * self.used) {
            self.sweep();
        }
        let row = Row { class: Arc::new(class.clone()), records: 0 };
        let known = row.class.clone();
        let number = match self.free.pop() {
            Some(number) => {
                self.rows[number as usize] = row;
                number
            }
            None => {
                self.rows.push(row);
                next_index(self.rows.len() - 1)
            }
        };
        self.known.insert(known, number);
        number
    }

    /// Forgets the classes that no record is of: sizes that change at each step would otherwise add up.
    fn sweep(&mut self) {
        let (rows, free) = (&self.rows, &mut self.free);
        self.known.retain(|_, number| {
            let used = rows[*number as usize].records > 0;
            if !used {
                free.push(*number);
            }
            used
        });
        self.used = self.known.len();
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> usize {
        let classes: usize = self.known.keys().map(|class| class.bytes()).sum();
        classes
            + self.rows.capacity() * size_of::<Row>()
            + map_bytes::<Arc<Class>, u32>(self.known.capacity())
            + self.free.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use memfit_ir::Bytes;

    use super::*;

    fn class(bytes: u64) -> Class {
        let outputs = SmallVec::from_slice(&[Output::Fresh(Bytes(bytes))]);
        Class { outputs, ..Class::default() }
    }

    #[test]
    fn a_class_has_one_number_and_is_forgotten_once_unused() {
        let mut classes = Classes::default();
        let lasting = classes.take(&class(1));
        assert_eq!(classes.take(&class(1)), lasting);
        for bytes in 2..100_000 {
            let number = classes.take(&class(bytes));
            assert_eq!(classes.get(number), &class(bytes));
            classes.give_back(number);
        }
        assert!(classes.bytes() < 200 * FEW, "{}", classes.bytes());
        classes.give_back(lasting);
        assert_eq!((classes.take(&class(1)), classes.get(lasting)), (lasting, &class(1)));
    }
}
