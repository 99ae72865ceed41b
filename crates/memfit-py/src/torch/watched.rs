//! What the ops of a step touch, and the floor that follows from it.

use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use super::dispatch::Inner;
use super::host::distinct_storages;
use super::storages::Token;

/// What the ops of a step touch, from which its floor follows.
#[derive(Default)]
pub(super) struct Watched {
    bytes: FxHashMap<Token, u64>,
    ops: Vec<(String, Vec<Token>, u64)>,
}

/// The least bytes a step can do with: what outlives it, and the largest working set of one op beside that.
pub(super) struct Floor {
    pub(super) persistent: u64,
    pub(super) largest: u64,
    pub(super) op: String,
    /// The same where what outlives the step may be in the other memory that there is, but for what the op at hand touches.
    pub(super) below: u64,
}

impl Inner {
    pub(super) fn watch_op(
        &mut self,
        name: &str,
        operands: &[usize],
        result: &Bound<'_, PyAny>,
        workspace: u64,
    ) -> PyResult<()> {
        let mut storages = Vec::new();
        distinct_storages(result, &self.engine.host.glue, &|_| false, &mut storages)?;
        let addresses =
            operands.iter().copied().chain(storages.iter().map(|made| made.storage.as_ptr().addr()));
        let mut tokens = Vec::new();
        let Some(watched) = &mut self.watched else { return Ok(()) };
        for entry in addresses.filter_map(|address| self.entries.get(&address)) {
            watched.bytes.insert(entry.token, entry.bytes);
            tokens.push(entry.token);
        }
        tokens.sort_unstable();
        tokens.dedup();
        watched.ops.push((name.to_owned(), tokens, workspace));
        Ok(())
    }

    /// Ends the watch: what is alive now outlives the step.
    pub(super) fn floor(&mut self, py: Python<'_>) -> PyResult<Floor> {
        self.look_at_all(py)?;
        let watched = self.watched.take().unwrap_or_default();
        let mut alive: Vec<Token> = self.entries.values().map(|entry| entry.token).collect();
        alive.sort_unstable();
        let persistent: u64 = self.entries.values().map(|entry| entry.bytes).sum();
        let tiers = self.engine.settings().tiers.into_iter().flatten();
        let elsewhere = tiers.fold(0, |sum: u64, tier| sum.saturating_add(tier.capacity.0));
        let beside = |touched: u64| persistent.saturating_sub(touched).saturating_sub(elsewhere);
        let mut floor = Floor { persistent, largest: 0, op: String::new(), below: beside(0) };
        for (op, tokens, workspace) in watched.ops {
            let (mut set, mut touched) = (workspace, 0);
            for token in tokens {
                let lasts = alive.binary_search(&token).is_ok();
                *(if lasts { &mut touched } else { &mut set }) +=
                    watched.bytes.get(&token).copied().unwrap_or(0);
            }
            floor.below = floor.below.max(set + touched + beside(touched));
            if set > floor.largest {
                (floor.largest, floor.op) = (set, op);
            }
        }
        Ok(floor)
    }
}
