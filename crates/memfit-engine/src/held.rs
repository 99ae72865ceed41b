//! What a program holds until its step is over although no op reads it any more: a loss in a variable, say.
//!
//! Before a source is overwritten for good the engine sees to it that what is held and stands on that source is there, and it
//! stays. A plan that lets it go after its last reader would have the whole way to it computed again, in the middle of the
//! optimizer's update. So whoever plans a recorded step counts it among the results.

use std::collections::BTreeSet;

use memfit_ir::{Graph, OpId, ValueId};

use crate::call::Output;
use crate::log::Recorded;
use crate::trace::Event;

impl Recorded {
    /// Values that the program gave up after the last op, and which can't be computed again by then. Ascending. Time O(events +
    /// operands).
    #[must_use]
    pub fn held_to_the_end(&self) -> Vec<ValueId> {
        let events = &self.trace.events;
        let is_call = |event: &Event| matches!(event, Event::Call { .. });
        let end = events.iter().rposition(is_call).map_or(events.len(), |last| last + 1);
        let released = events[end..].iter().filter_map(|event| match event {
            Event::Release(value) => Some(*value),
            _ => None,
        });
        let released: BTreeSet<u32> = released.collect();
        if released.is_empty() {
            return Vec::new();
        }
        let (viewed, stands) = (self.viewed(), stands(&self.graph));
        let released = released.into_iter().filter_map(|value| viewed.get(value as usize).copied());
        let released: BTreeSet<u32> = released.collect();
        let is_lost = |&value: &ValueId| {
            let this = self.graph.value(value);
            this.size.0 > 0
                && this.mutator.is_none()
                && !this.role.is_persistent()
                && !stands[value.index()]
                && !self.graph.is_result(value)
        };
        released.into_iter().map(ValueId).filter(is_lost).collect()
    }

    /// By value: what it is a view of, or itself.
    fn viewed(&self) -> Vec<u32> {
        let mut viewed: Vec<u32> = Vec::with_capacity(self.graph.value_count());
        for event in &self.trace.events {
            let next = u32::try_from(viewed.len()).unwrap_or_default();
            match event {
                Event::Put { .. } => viewed.push(next),
                Event::Call { reads, outputs, .. } => {
                    for (value, output) in (next..).zip(outputs) {
                        let of = match output {
                            Output::View(at) => reads.get(*at).and_then(|&of| viewed.get(of as usize)),
                            _ => None,
                        };
                        viewed.push(of.copied().unwrap_or(value));
                    }
                }
                Event::Share(_) | Event::Release(_) => {}
            }
        }
        viewed
    }
}

/// By value: whether all that it was computed from is there at the end of the step, or can be computed. What an op makes that
/// overwrites an operand can't be computed again in any case, and counts as standing: it never goes.
fn stands(graph: &Graph) -> Vec<bool> {
    let mut stands = vec![true; graph.value_count()];
    for id in graph.op_ids() {
        let op = graph.op(id);
        if op.reuses.iter().any(|pair| pair.must) {
            continue;
        }
        let later = |by: Option<OpId>| by.is_some_and(|by| by > id);
        let is_lost = |&read: &ValueId| later(graph.value(read).mutator) || !stands[read.index()];
        if op.reads.iter().any(is_lost) {
            op.writes.iter().for_each(|value| stands[value.index()] = false);
        }
    }
    stands
}
