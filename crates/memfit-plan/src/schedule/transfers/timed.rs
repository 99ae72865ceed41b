//! A step with values away, as a program with its peak and its time.

use memfit_ir::{Bytes, Device, Program, Step, Tier};
use memfit_sim::simulate;

use super::windows::{Leave, program};
use super::{Algorithms, HomeStay, Moved, RunList, Task, ahead, beside, signed};
use crate::liveness::Profile;

/// The step that runs what a list says, with values away; its peak, if that is beyond `budget` or its copies are beyond what a
/// tier holds. `None` if it is no step at all. Storages that are at home in another tier are loaded ahead and stored behind
/// where that is faster and fits.
pub(in crate::schedule) fn timed(
    task: &Task<'_>,
    ways: (&RunList, &[Leave], &Algorithms),
    budget: Bytes,
    device: &Device,
) -> Option<Result<Moved, Bytes>> {
    let runs = ways.0;
    let stays = beside(task, runs.each(task));
    let program = program(task, ways, &stays)?;
    let first = told(task, program, budget, device);
    let (true, Ok(moved)) = (task.homes.are_elsewhere(), &first) else { return Some(first) };
    let live = live(&moved.program, runs.len(), device.align);
    let wider = hidden(task, ways, stays, (live, budget), device);
    let better = wider.filter(|wider| wider.time < moved.time);
    Some(better.map_or(first, Ok))
}

/// The same step with loads ahead of uses and stores behind them, if it fits.
fn hidden(
    task: &Task<'_>,
    ways: (&RunList, &[Leave], &Algorithms),
    stays: Vec<HomeStay>,
    (live, budget): (Vec<i64>, Bytes),
    device: &Device,
) -> Option<Moved> {
    let time = |(node, first): (super::NodeId, bool)| {
        let times = if first { &task.cost } else { &task.later_cost };
        times[node.index()]
    };
    let runs = ways.0;
    let times: Vec<u64> = runs.each(task).map(time).collect();
    let stays = ahead(stays, &times, live, signed(budget), device);
    let program = program(task, ways, &stays)?;
    told(task, program, budget, device).ok()
}

/// What `program` takes, if that is within `budget` and what tiers hold; else its peak.
fn told(task: &Task<'_>, program: Program, budget: Bytes, device: &Device) -> Result<Moved, Bytes> {
    let peak = Profile::of(&program, device.align).peak().0;
    let timeline = simulate(task.graph, &program, None, device);
    let limits = device.limits();
    let over = Tier::ALL.iter().any(|&(tier, _)| timeline.tier_peaks[tier.index()] > limits.tier(tier));
    let time = timeline.time;
    if peak > budget || over { Err(peak) } else { Ok(Moved { program, peak, time }) }
}

/// The most that is live when something comes, from after each run to the end of the next one: so many and one more, for the
/// end of the step.
fn live(program: &Program, runs: usize, align: Bytes) -> Vec<i64> {
    let profile = Profile::of(program, align);
    let mut most = vec![0; runs + 1];
    let mut run = 0;
    for (step, &live) in program.steps.iter().zip(&profile.live) {
        match step {
            Step::Compute(_) | Step::Fetch { .. } | Step::Encode { .. } | Step::Decode { .. } => {
                if let Some(most) = most.get_mut(run) {
                    *most = signed(live).max(*most);
                }
            }
            Step::Free(_) | Step::Offload { .. } | Step::Discard(_) | Step::Await(_) => {}
        }
        run += usize::from(matches!(step, Step::Compute(_)));
    }
    most
}
