//! What a step takes at least with storages at home in other tiers, whatever memory there is.
//!
//! Each is loaded before the first run that uses it and stored after the last one that mutates it, and the link of a tier does one
//! after the other: where little runs before the first uses, or after the last, ops or the end wait for it.

use memfit_ir::{Device, Nanos, Tier};

use super::ahead::takes;
use super::{HomeStay, beside};
use crate::schedule::Task;

/// No step of `task` with its first runs in this order takes less over the links of `device`. Time O(ops + uses of such storages).
pub(super) fn least_time(task: &Task<'_>, device: &Device) -> Nanos {
    const TIERS: usize = Tier::ALL.len();
    // By run and tier: ns of what has to be there by then, and of what can't leave before it ends.
    let mut loaded = vec![[0u64; TIERS]; task.nodes()];
    let mut stored = vec![[0u64; TIERS]; task.nodes()];
    let mut left = [0u64; TIERS];
    // A slow link takes longer than can be counted.
    let add = |sum: &mut u64, ns: u64| *sum = sum.saturating_add(ns);
    let stays = beside(task, task.node_ids().map(|node| (node, true)));
    for uses in stays.chunk_by(HomeStay::is_before) {
        let Some(tier) = uses[0].tier().map(Tier::index) else { continue };
        let [out, back] = takes(&uses[0], device);
        add(&mut loaded[uses[0].first][tier], back);
        if let Some(last) = uses.iter().rfind(|stay| stay.is_dirty()) {
            add(&mut stored[last.last][tier], out);
            add(&mut left[tier], out);
        }
    }
    let (mut now, mut end, mut link) = (0u64, 0u64, [0u64; TIERS]);
    for (node, (loaded, stored)) in loaded.iter().zip(&stored).enumerate() {
        for tier in 0..TIERS {
            add(&mut link[tier], loaded[tier]);
            now = now.max(link[tier]);
        }
        now = now.saturating_add(task.least_cost(node));
        end = end.max(now);
        for tier in (0..TIERS).filter(|&tier| stored[tier] > 0) {
            end = end.max(now.saturating_add(left[tier]));
            left[tier] = left[tier].saturating_sub(stored[tier]);
        }
    }
    Nanos(end)
}

#[cfg(test)]
mod tests {
    use memfit_ir::{Bytes, Device, InPlace, OpId};
    use memfit_testkit::{cases, device, link, trained};

    use super::super::rungs;
    use super::*;
    use crate::Context;
    use crate::schedule::transfers::timed;
    use crate::schedule::{Algorithms, RunList};

    /// Whatever memory there is, and somewhere no less is possible.
    #[test]
    fn no_step_takes_less() {
        let (mut met, mut longer) = (0, 0);
        for seed in 0..cases(60) {
            let layers = [2, 3, 4, 5][usize::try_from(seed % 4).unwrap_or_default()];
            let graph = trained(layers, 1 << 16, seed);
            let device = Device { link: Some(link(seed)), host_memory: Bytes(1 << 40), ..device() };
            let order: Vec<OpId> = graph.op_ids().collect();
            let task = Task::new(&graph, &order, InPlace::May, false, &Context::new(&device));
            let plain = RunList::plain(&task);
            for parked in rungs(&task, task.reference(), &device) {
                let least = least_time(&parked, &device);
                assert!(least >= task.least_time(), "seed {seed}");
                longer += u32::from(least > task.least_time());
                for budget in [Bytes::MAX, task.reference(), parked.floor().0] {
                    let way = (&plain, &[][..], &Algorithms::default());
                    let Some(Ok(moved)) = timed(&parked, way, budget, &device) else { continue };
                    assert!(moved.time >= least, "seed {seed}: {:?} {least:?}", moved.time);
                    met += u32::from(moved.time == least);
                }
            }
        }
        assert!(met > 10 && longer > 10, "{met} {longer}");
    }

    #[test]
    fn a_link_may_take_longer_than_can_be_counted() {
        let graph = trained(3, 1 << 16, 1);
        let slow = memfit_ir::Link { out_bandwidth: 1e-9, in_bandwidth: 1e-9, ..link(0) };
        let device = Device { link: Some(slow), host_memory: Bytes(1 << 40), ..device() };
        let order: Vec<OpId> = graph.op_ids().collect();
        let task = Task::new(&graph, &order, InPlace::May, false, &Context::new(&device));
        let parked = rungs(&task, task.reference(), &device);
        assert!(!parked.is_empty());
        for parked in parked {
            assert_eq!(least_time(&parked, &device), Nanos(u64::MAX));
        }
    }
}
