//! Evicted neighbourhoods as a union–find with a running cost: DTR's "equivalence classes".
//!
//! Source: Kirisame et al., ICLR 2021, §4.1. Links never split: when a storage comes back its cost leaves the sum
//! but what it joined stays joined ("phantom" links). O(α(n)) for each operation.

use crate::state::State;
use crate::table::next_index;

#[derive(Clone, Debug, Default)]
pub(crate) struct Classes {
    /// The node of each storage.
    node: Vec<u32>,
    up: Vec<u32>,
    rank: Vec<u8>,
    sum: Vec<i128>,
}

impl Classes {
    pub(crate) fn created(&mut self, storage: u32) {
        if self.node.len() <= storage as usize {
            self.node.resize(storage as usize + 1, 0);
        }
        self.node[storage as usize] = self.push(0);
    }

    fn push(&mut self, sum: i128) -> u32 {
        let node = next_index(self.up.len());
        self.up.push(node);
        self.rank.push(0);
        self.sum.push(sum);
        node
    }

    fn root(&mut self, mut node: u32) -> u32 {
        while self.up[node as usize] != node {
            let up = self.up[node as usize];
            self.up[node as usize] = self.up[up as usize];
            node = up;
        }
        node
    }

    /// The class of `storage`, which is not resident.
    pub(crate) fn class(&mut self, storage: u32) -> u32 {
        self.root(self.node[storage as usize])
    }

    /// Cost of a class.
    pub(crate) fn sum(&self, class: u32) -> i128 {
        self.sum[class as usize]
    }

    pub(crate) fn computed(&mut self, state: &State, storage: u32) {
        let root = self.class(storage);
        self.sum[root as usize] -= i128::from(state.storage(storage).cost);
    }

    pub(crate) fn evicted(&mut self, state: &State, storage: u32) {
        let mut root = self.push(i128::from(state.storage(storage).cost));
        self.node[storage as usize] = root;
        for other in state.parents(storage).chain(state.children(storage)) {
            if !state.storage(other).resident {
                let other = self.class(other);
                root = self.unite(root, other);
            }
        }
    }

    fn unite(&mut self, one: u32, other: u32) -> u32 {
        let (one, other) = (self.root(one), self.root(other));
        if one == other {
            return one;
        }
        let (low, high) =
            if self.rank[one as usize] < self.rank[other as usize] { (one, other) } else { (other, one) };
        self.up[low as usize] = high;
        if self.rank[low as usize] == self.rank[high as usize] {
            self.rank[high as usize] += 1;
        }
        self.sum[high as usize] += self.sum[low as usize];
        high
    }
}
