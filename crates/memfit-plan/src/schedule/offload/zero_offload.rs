//! Optimizer state is at home in host memory, gradients go there as they are made, and both are back for the update.
//!
//! Source: Ren, Rajbhandari, Aminabadi, Ruwase, Yang, Zhang, Li and He, "ZeRO-Offload: Democratizing Billion-Scale Model Training",
//! USENIX ATC 2021, §3 and §4.1: parameters stay, gradients are copied to host memory as soon as the backward pass has made them, and the
//! optimizer with its state never leaves the host. We differ in the last point: our graphs say which op updates, not how a CPU
//! would, so state and gradient come back for the update, which runs on the device, and what it has made of the state goes home. Half
//! of the paper's traffic each way is parameters, here it is state. The paper leaves activations to checkpoints; here they are
//! moved, by relief for time on the link, where the rest is still too much. Time O(chosen × (gaps + runs)). Ties go to the gap
//! that begins first. Wrong choice where updates run right after their gradients: then those need not leave.

use std::collections::BTreeSet;

use memfit_ir::{Bytes, Phase, Role, ValueId};

use super::{Chooser, Front, Gap, Infeasible, Pressure, RunList, Scheduler, Task, without_optimizer_state};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct ZeroOffload;

impl Scheduler for ZeroOffload {
    fn info(&self) -> Info {
        Info {
            name: "zero-offload",
            summary: "optimizer state and gradients wait in host memory; the update is on the device",
            source: "Ren et al., ZeRO-Offload, USENIX ATC 2021",
            year: 2021,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let parked = without_optimizer_state(task, budget, context.device)?;
        let runs = RunList::plain(&parked);
        let mut chooser = Chooser::of(&parked, &runs, budget, context)?;
        let updated = updated(&parked);
        let gaps = chooser.step().gaps.iter().enumerate();
        let gradients: Vec<usize> =
            gaps.filter(|(_, gap)| updated.contains(&(gap.value, gap.to))).map(|(at, _)| at).collect();
        let rate = |_: usize, gap: &Gap, pressure: &Pressure| {
            let link = gap.out.saturating_add(gap.back).max(1) as f64;
            Some(pressure.relief(gap) / link)
        };
        let chosen = chooser.completed(gradients, rate);
        let moved = chosen.and_then(|chosen| chooser.run(&chosen));
        chooser.found(moved)
    }
}

/// Gradients, and the runs of the plain step that update something by them.
fn updated(task: &Task<'_>) -> BTreeSet<(ValueId, usize)> {
    let of = |(at, node)| task.reads_of(node, true).iter().map(move |&value| (value, at));
    let is_update = |&(at, _): &(usize, _)| task.graph.op(task.order[at]).phase == Phase::Update;
    let reads = task.node_ids().enumerate().filter(is_update).flat_map(of);
    reads.filter(|&(value, _)| task.graph.value(value).role == Role::Gradient).collect()
}
