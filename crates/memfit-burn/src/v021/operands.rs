//! How an op is to run: what of its operands it makes a view of, or writes over, and what of them ends with it.

use std::collections::BTreeMap;

use burn_ir::{OperationIr, TensorId as BurnId, TensorIr};
use memfit::Bytes;
use memfit::engine::{Block, Fate, Fault, Output, StorageId};
use memfit::ir::Effect;

use super::backend::Backend;
use super::core::{Core, Dying, Known, Lists, Operand, Shape};
use super::ops;
use super::recipe::Made;

impl<B: Backend> Core<B> {
    /// What is made of `op`'s inputs and outputs.
    pub(super) fn shape(
        &mut self,
        op: &OperationIr,
        made_of: &[TensorIr],
        lists: &mut Lists,
    ) -> Result<Shape, Fault> {
        let Lists { operands, outputs, dying, .. } = lists;
        let mut effect = ops::effect(op);
        dying.clear();
        let ending = operands.iter().filter(|operand| operand.ends);
        dying.extend(ending.map(|operand| Dying {
            id: operand.id,
            tensor: operand.known.tensor,
            free: false,
        }));
        let view = operands.first().is_some_and(|input| {
            self.tensors.get(&input.id).is_some_and(|entry| B::shares(op, &entry.layout))
        });
        let mut update = None;
        if !view && ops::overwrites(op) {
            update = self.updates(op, operands)?;
        }
        let made = match (view, update) {
            (true, _) => Made::View,
            (false, Some(_)) => Made::Over,
            (false, None) => Made::Fresh,
        };
        let takes = made == Made::Fresh && self.takes(op, operands);
        outputs.clear();
        outputs.extend(made_of.iter().map(|output| {
            let bytes = Bytes(ops::bytes(output).max(1));
            match made {
                Made::View => Output::View(0),
                Made::Over => Output::InPlace(0),
                Made::Fresh if takes => Output::Takes(bytes, 0),
                Made::Fresh => Output::Fresh(bytes),
            }
        }));
        let size: u64 = made_of.iter().map(ops::bytes).sum();
        let lost = self.lost(operands)?;
        // A source that ends here would have to stay for the sake of what is made of it, which is no larger: then the
        // latter stays, and the source goes.
        if update.is_some() || (!view && lost > 0 && lost >= size) {
            effect = Effect::Once;
        }
        if !view {
            let taken = operands.first().filter(|_| takes).map(|first| first.id);
            for Dying { id, tensor, free } in dying {
                *free = match self.engine.fate(*tensor)? {
                    _ if update == Some(*id) => true,
                    // The engine takes what the plan does not read again, and what is kept online, too.
                    Fate::Repeatable if taken == Some(*id) => !self.engine.is_read_again(*tensor),
                    Fate::Repeatable => !self.engine.is_kept(*tensor),
                    // Nothing needs it, but the op itself if it may run again.
                    Fate::Free => effect == Effect::Once,
                    Fate::Held | Fate::Needed => false,
                };
            }
        }
        Ok(Shape { made, effect, update })
    }

    /// Whether the backend will certainly write the output of `op` over its first operand, once that may go: it ends here, and is all
    /// of its storage. By what the program does alone, so that steps are alike; whether it may go the engine knows.
    fn takes(&self, op: &OperationIr, operands: &[Operand]) -> bool {
        let entry = |at: usize| operands.get(at).and_then(|operand| self.tensors.get(&operand.id));
        let (Some(first), Some(lhs)) = (operands.first().filter(|first| first.ends), entry(0)) else {
            return false;
        };
        B::overwrites(op, &lhs.layout, entry(1).map(|rhs| &rhs.layout))
            && self.engine.block_of(first.known.tensor).is_some_and(|block| block.size.0 == first.bytes)
    }

    /// Bytes of sources that end with an op, and that nothing else needs.
    fn lost(&self, operands: &[Operand]) -> Result<u64, Fault> {
        let mut lost = 0;
        for operand in operands.iter().filter(|operand| operand.ends && operand.known.root) {
            if self.engine.fate(operand.known.tensor)? == Fate::Free {
                lost += operand.bytes;
            }
        }
        Ok(lost)
    }

    /// Whether `op` writes its first operand over: one that ends here, and that nothing needs, or that is a parameter.
    fn updates(&mut self, op: &OperationIr, operands: &[Operand]) -> Result<Option<BurnId>, Fault> {
        let Some(input) = operands.first().filter(|input| input.ends) else { return Ok(None) };
        let known = input.known;
        let fate = self.engine.fate(known.tensor)?;
        // What has been made since the past was cut is no parameter: targets and noise are subtracted from too.
        let parameter = ops::is_update(op) && known.old && (self.old.cut || self.holds_little(operands));
        let writes = match fate {
            Fate::Held => false,
            Fate::Free => known.root || parameter,
            Fate::Needed | Fate::Repeatable => parameter,
        };
        // The first parameter that an optimizer writes: what led to the gradients is history. What the program holds
        // stays, and the rest goes. In planned mode that happens at the end of the step.
        if writes && fate != Fate::Free && !self.plans() {
            self.cut()?;
            // An optimizer that shows itself needs no other sign; of what is held here, much goes in mid-step.
            self.old.expect_none();
        }
        if writes && self.engine.is_evictable(known.tensor) {
            // From now on it's what it is: nobody should have to train from the start to have it back.
            self.engine.ground(known.tensor)?;
        }
        Ok(writes.then_some(input.id))
    }

    /// Whether gradients and an optimizer's state are all that the program can hold, beside what is old and `operands`: no more than two
    /// times as much as that. Before the past was ever cut, noise that has been read looks like a parameter, but the activations that wait
    /// for the backward pass are there as well then. Parameters that no op has read yet, of a path that was not taken, say, count for neither.
    fn holds_little(&self, operands: &[Operand]) -> bool {
        let mut bytes: BTreeMap<StorageId, (bool, u64)> = BTreeMap::new();
        for Known { tensor, old, begun, .. } in self.tensors.values().map(|entry| entry.known) {
            let Some(Block { storage: Some(storage), size, .. }) = self.engine.block_of(tensor) else {
                continue;
            };
            let is_operand = operands.iter().any(|operand| operand.known.tensor == tensor);
            let (is_old, size_of) = bytes.entry(storage).or_insert((false, size.0));
            *is_old |= old;
            *size_of = if (is_operand || begun) && !old { 0 } else { *size_of };
        }
        let sum = |of: bool| bytes.values().filter(|(old, _)| *old == of).map(|(_, size)| size).sum::<u64>();
        sum(false) <= 2 * sum(true)
    }
}
