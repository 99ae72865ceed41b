//! Which value goes, and the prices that decide it.
//!
//! The price of a chain is the sum over what is out around a value. It is known until something around the value comes or
//! goes; and since a score grows with the price, a walk ends where the part that it has seen is more than the best
//! score so far. What is out can only grow while values go: then a price that was known is one that is not gone below.

use memfit_ir::ValueId;

use super::score::{Age, Price, score};
use super::{Sim, State};

impl Sim<'_, '_> {
    /// What goes first: the one of the least score.
    pub(super) fn choose(&mut self) -> Option<ValueId> {
        let mut best: Option<(f64, ValueId)> = None;
        self.work += self.pool.len() as u64;
        for at in 0..self.pool.len() {
            let value = self.pool[at];
            let weight = self.weight(value);
            // A score grows with the price: what is beaten at a part of it is beaten.
            let beaten = |price: u64| best.is_some_and(|(least, _)| score(price, weight) >= least);
            if beaten(self.known_price(value).unwrap_or(self.least[value.index()])) || !self.may_go(value) {
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
    fn may_go(&self, value: ValueId) -> bool {
        let task = self.task;
        let at = value.index();
        let deadline = task.producer[at].and_then(|producer| self.deadline[producer.index()]);
        let in_time = deadline.is_none_or(|deadline| {
            !task.live_out[at] && task.readers.row(at).last().is_none_or(|&last| last < deadline)
        });
        in_time && self.can_make(value)
    }

    pub(super) fn can_make(&self, value: ValueId) -> bool {
        let Some(producer) = self.task.producer[value.index()] else { return true };
        let reads = self.task.reads_of(producer, false);
        reads.iter().all(|read| self.state[read.index()] != State::Gone)
    }

    fn known_price(&self, value: ValueId) -> Option<u64> {
        match self.score.price {
            Price::One => Some(1),
            Price::Local => Some(self.cost_of(value)),
            Price::Ancestors | Price::Neighbours => self.price[value.index()],
        }
    }

    /// The run time of the op that makes `value`.
    fn cost_of(&self, value: ValueId) -> u64 {
        self.task.producer[value.index()].map_or(0, |producer| self.task.cost[producer.index()])
    }

    /// The price of `value`, unless it is `beaten`.
    fn price_of(&mut self, value: ValueId, beaten: impl Fn(u64) -> bool) -> Option<u64> {
        if let Some(price) = self.known_price(value) {
            return Some(price);
        }
        match self.closure(value, beaten) {
            Ok(price) => {
                self.price[value.index()] = Some(price);
                Some(price)
            }
            Err(least) => {
                self.least[value.index()] = least;
                None
            }
        }
    }

    /// What the price of `value` is divided by.
    fn weight(&self, value: ValueId) -> f64 {
        let at = value.index();
        let age = match self.score.age {
            Age::None => 1,
            Age::Last => self.clock - self.seen[at],
            Age::Next => {
                let (now, end) =
                    (self.start[(self.now.index() + 1).min(self.start.len() - 1)], self.start.len());
                let next = self.task.readers.row(at).get(self.read[at] as usize);
                let total = self.start[end - 1];
                match next {
                    Some(node) => self.start[node.index()].saturating_sub(now) + 1,
                    None if self.task.live_out[at] => total.saturating_sub(now) + 1,
                    None => total.saturating_sub(now) + total,
                }
            }
        };
        let size = if self.score.sized { self.task.size[at] as f64 } else { 1.0 };
        size * age as f64
    }

    /// The run time of `value`'s op and of what is out around it; a part of it where that is `beaten`: twice of what is, if there is
    /// as much, so that a long chain is not walked over anew each time that a little more would do.
    fn closure(&mut self, value: ValueId, beaten: impl Fn(u64) -> bool) -> Result<u64, u64> {
        self.round += 1;
        let round = self.round;
        let task = self.task;
        let mut sum = self.cost_of(value);
        let mut stack = vec![value];
        let mut enough = u64::MAX;
        let mut is_enough = |sum: u64| {
            if enough == u64::MAX && beaten(sum) {
                enough = sum.saturating_mul(2);
            }
            sum >= enough
        };
        self.mark[value.index()] = round;
        while let Some(at) = stack.pop() {
            if is_enough(sum) {
                return Err(sum);
            }
            let Some(producer) = task.producer[at.index()] else { continue };
            let reads = task.reads_of(producer, false);
            self.work += 1 + reads.len() as u64;
            for &read in reads {
                if self.state[read.index()] == State::Out && self.mark[read.index()] != round {
                    self.mark[read.index()] = round;
                    sum = sum.saturating_add(self.cost_of(read));
                    stack.push(read);
                }
            }
        }
        if self.score.price == Price::Neighbours {
            stack.push(value);
            while let Some(at) = stack.pop() {
                self.work += 1 + task.readers.row(at.index()).len() as u64;
                if is_enough(sum) {
                    return Err(sum);
                }
                for &reader in task.readers.row(at.index()) {
                    for &child in task.writes.row(reader.index()) {
                        if self.state[child.index()] == State::Out && self.mark[child.index()] != round {
                            self.mark[child.index()] = round;
                            sum = sum.saturating_add(task.cost[reader.index()]);
                            stack.push(child);
                        }
                    }
                }
            }
        }
        Ok(sum)
    }

    /// Forgets the prices that hang on whether `value` is out, which it has come to be or not: what prices are not below
    /// is known still while they only rise. A walk up, through what is out, never turns down, and the other way round: so
    /// these are the prices of what is below `value` through what is out, and, with neighbours, of what is above it.
    pub(super) fn stale(&mut self, value: ValueId, rise: bool) {
        let task = self.task;
        let below = |sim: &mut Self, at: ValueId, touch: &mut dyn FnMut(&mut Self, ValueId)| {
            for &reader in task.readers.row(at.index()) {
                task.writes.row(reader.index()).iter().for_each(|&child| touch(sim, child));
            }
        };
        let above = |sim: &mut Self, at: ValueId, touch: &mut dyn FnMut(&mut Self, ValueId)| {
            if let Some(producer) = task.producer[at.index()] {
                task.reads.row(producer.index()).iter().for_each(|&read| touch(sim, read));
            }
        };
        match self.score.price {
            Price::One | Price::Local => {}
            Price::Ancestors => self.forget(value, rise, below),
            Price::Neighbours => {
                self.forget(value, rise, below);
                self.forget(value, rise, above);
            }
        }
    }

    /// Forgets the prices of what `near` leads to from `value`, through what is out.
    fn forget(
        &mut self,
        value: ValueId,
        rise: bool,
        near: impl Fn(&mut Self, ValueId, &mut dyn FnMut(&mut Self, ValueId)),
    ) {
        self.round += 1;
        let round = self.round;
        let mut stack = vec![value];
        self.mark[value.index()] = round;
        while let Some(at) = stack.pop() {
            self.work += 1 + self.task.readers.row(at.index()).len() as u64;
            near(self, at, &mut |sim, near| {
                if std::mem::replace(&mut sim.mark[near.index()], round) == round {
                    return;
                }
                match sim.state[near.index()] {
                    State::Out => stack.push(near),
                    _ => {
                        let price = sim.price[near.index()].take();
                        let least = price.unwrap_or(sim.least[near.index()]);
                        sim.least[near.index()] = if rise && !sim.fallen { least } else { 0 };
                    }
                }
            });
        }
    }
}
