//! Which value goes, and the prices that decide it.
//!
//! The price of a chain is the sum over what is out around a value. It is known until something around the value comes or
//! goes; and since a score grows with the price, a walk ends where the part that it has seen is more than the best
//! score so far. What is out can only grow while values go: then a price that was known is one that is not gone below.

use super::super::task::NONE;
use super::score::{Age, Price, score};
use super::{Sim, State};

impl Sim<'_, '_> {
    /// What goes first: the one of the least score.
    pub(super) fn choose(&mut self) -> Option<u32> {
        let mut best: Option<(f64, u32)> = None;
        self.work += self.pool.len() as u64;
        for at in 0..self.pool.len() {
            let value = self.pool[at];
            let weight = self.weight(value);
            // A score grows with the price: what is beaten at a part of it is beaten.
            let beaten = |price: u64| best.is_some_and(|(least, _)| score(price, weight) >= least);
            if beaten(self.known_price(value).unwrap_or(self.least[value as usize])) || !self.may_go(value) {
                continue;
            }
            let Some(price) = self.price_of(value, beaten) else { continue };
            if !beaten(price) {
                best = Some((score(price, weight), value));
            }
        }
        best.map(|(_, value)| value)
    }

    /// Whether `value` could be made again whenever it's needed.
    fn may_go(&self, value: u32) -> bool {
        let task = self.task;
        let producer = task.producer[value as usize] as usize;
        let deadline = self.deadline[producer];
        let last = match task.readers.row(value as usize).last() {
            _ if task.live_out[value as usize] => NONE,
            Some(&last) => last,
            None => 0,
        };
        (deadline == NONE || last < deadline) && self.can_make(value)
    }

    pub(super) fn can_make(&self, value: u32) -> bool {
        let reads = self.task.reads_of(self.task.producer[value as usize], false);
        reads.iter().all(|&read| self.state[read as usize] != State::Gone)
    }

    fn known_price(&self, value: u32) -> Option<u64> {
        match self.score.price {
            Price::One => Some(1),
            Price::Local => Some(self.task.cost[self.task.producer[value as usize] as usize]),
            Price::Ancestors | Price::Neighbours => self.price[value as usize],
        }
    }

    /// The price of `value`, unless it is `beaten`.
    fn price_of(&mut self, value: u32, beaten: impl Fn(u64) -> bool) -> Option<u64> {
        if let Some(price) = self.known_price(value) {
            return Some(price);
        }
        match self.closure(value, beaten) {
            Ok(price) => {
                self.price[value as usize] = Some(price);
                Some(price)
            }
            Err(least) => {
                self.least[value as usize] = least;
                None
            }
        }
    }

    /// What the price of `value` is divided by.
    fn weight(&self, value: u32) -> f64 {
        let at = value as usize;
        let age = match self.score.age {
            Age::None => 1,
            Age::Last => self.clock - self.seen[at],
            Age::Next => {
                let (now, end) =
                    (self.start[(self.now as usize + 1).min(self.start.len() - 1)], self.start.len());
                let next = self.task.readers.row(at).get(self.read[at] as usize);
                let total = self.start[end - 1];
                match next {
                    Some(&node) => self.start[node as usize].saturating_sub(now) + 1,
                    None if self.task.live_out[at] => total.saturating_sub(now) + 1,
                    None => total.saturating_sub(now) + total,
                }
            }
        };
        let size = if self.score.sized { self.task.size[at] as f64 } else { 1.0 };
        size * age as f64
    }

    /// The run time of `value`'s op and of what is out around it; a part of it where that is `beaten`.
    fn closure(&mut self, value: u32, beaten: impl Fn(u64) -> bool) -> Result<u64, u64> {
        self.round += 1;
        let round = self.round;
        let task = self.task;
        let mut sum = task.cost[task.producer[value as usize] as usize];
        let mut stack = vec![value];
        self.mark[value as usize] = round;
        while let Some(at) = stack.pop() {
            if beaten(sum) {
                return Err(sum);
            }
            let producer = task.producer[at as usize];
            if producer == NONE {
                continue;
            }
            let reads = task.reads_of(producer, false);
            self.work += 1 + reads.len() as u64;
            for &read in reads {
                if self.state[read as usize] == State::Out && self.mark[read as usize] != round {
                    self.mark[read as usize] = round;
                    sum = sum.saturating_add(task.cost[task.producer[read as usize] as usize]);
                    stack.push(read);
                }
            }
        }
        if self.score.price == Price::Neighbours {
            stack.push(value);
            while let Some(at) = stack.pop() {
                self.work += 1 + task.readers.row(at as usize).len() as u64;
                if beaten(sum) {
                    return Err(sum);
                }
                for &reader in task.readers.row(at as usize) {
                    for &child in task.writes.row(reader as usize) {
                        if self.state[child as usize] == State::Out && self.mark[child as usize] != round {
                            self.mark[child as usize] = round;
                            sum = sum.saturating_add(task.cost[reader as usize]);
                            stack.push(child);
                        }
                    }
                }
            }
        }
        Ok(sum)
    }

    /// Forgets the prices that hang on whether `value` is out, which it has come to be or not: what prices are not below
    /// is known still while they only rise.
    pub(super) fn stale(&mut self, value: u32, rise: bool) {
        if matches!(self.score.price, Price::One | Price::Local) {
            return;
        }
        self.round += 1;
        let round = self.round;
        let task = self.task;
        let mut stack = vec![value];
        self.mark[value as usize] = round;
        while let Some(at) = stack.pop() {
            self.work += 1 + task.readers.row(at as usize).len() as u64;
            let mut touch = |near: u32, stack: &mut Vec<u32>| {
                if std::mem::replace(&mut self.mark[near as usize], round) != round {
                    match self.state[near as usize] {
                        State::Out => stack.push(near),
                        _ => {
                            let price = self.price[near as usize].take();
                            let least = price.unwrap_or(self.least[near as usize]);
                            self.least[near as usize] = if rise && !self.fallen { least } else { 0 };
                        }
                    }
                }
            };
            let producer = task.producer[at as usize];
            if producer != NONE {
                let reads = task.reads.row(producer as usize);
                for &read in reads {
                    touch(read, &mut stack);
                }
            }
            for &reader in task.readers.row(at as usize) {
                for &child in task.writes.row(reader as usize) {
                    touch(child, &mut stack);
                }
            }
        }
    }
}
