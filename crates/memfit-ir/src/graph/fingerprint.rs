//! A graph's digest.

use super::{Graph, Price};
use crate::Digest;

impl Graph {
    /// A fingerprint of everything that a plan depends on: ops, operands, sizes, roles, effects, costs.
    /// Names are left out, except each op's kind; so is what the host can do, which a plan says of itself, and what ops
    /// were told beside their operands, on which no plan depends.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut hash = Digest::hasher("memfit-graph/1");
        hash.number(self.ops.len() as u64);
        for id in self.op_ids() {
            let op = self.op(id);
            hash.text(op.kind);
            hash.number(op.phase as u64).number(op.effect as u64).number(op.dtype as u64);
            hash.number(op.flops.to_bits()).number(op.moved.0).number(op.workspace.0);
            hash.number(op.time.map_or(u64::MAX, |time| time.0));
            hash.list(op.reads.iter().map(|v| u64::from(v.0)));
            hash.list(op.writes.iter().map(|v| u64::from(v.0)));
            hash.list(
                op.reuses.iter().flat_map(|pair| {
                    [u64::from(pair.input.0), u64::from(pair.output.0), u64::from(pair.must)]
                }),
            );
            hash.list(op.algorithms.iter().flat_map(|algorithm| {
                let (first, second) = match algorithm.price {
                    Price::Time(time) => (time.0, None),
                    Price::Work { flops, moved } => (flops, Some(moved.0)),
                };
                [Some(algorithm.workspace.0), Some(first), second].into_iter().flatten()
            }));
            // Lists of times alone have the hash that they had before there was anything else.
            for (at, algorithm) in op.algorithms.iter().enumerate() {
                if let Price::Work { .. } = algorithm.price {
                    hash.number(at as u64);
                }
            }
        }
        hash.number(self.values.len() as u64);
        for id in self.value_ids() {
            let value = self.value(id);
            hash.number(value.size.0).number(value.dtype as u64).number(value.role as u64);
            hash.number(value.density.map_or(u64::MAX, |d| u64::from(d.to_bits())));
            hash.list(
                value
                    .pin
                    .iter()
                    .flat_map(|pin| [u64::from(pin.bank), pin.offset.map_or(u64::MAX, |offset| offset.0)]),
            );
        }
        hash.list(self.results.iter().map(|v| u64::from(v.0)));
        // What says nothing of needs has the hash that it had before there were any.
        for id in self.op_ids().filter(|id| !self.op(*id).needs.is_empty()) {
            hash.number(u64::from(id.0)).list(self.op(id).needs.iter().map(|need| *need as u64));
        }
        // Likewise what says nothing of sensitivities.
        for (id, sensitivity) in self.value_ids().filter_map(|id| Some((id, self.value(id).sensitivity?))) {
            hash.number(u64::from(id.0)).number(u64::from(sensitivity.to_bits()));
        }
        hash.finish()
    }
}
