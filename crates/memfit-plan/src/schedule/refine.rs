//! Improves a step by local search over all that may change in it at once: what runs again, what is away and for how long, and
//! in which form.
//!
//! The clock of the [`editor`](super::editor) says what each change takes; the program that comes out is timed by the simulator,
//! and counts only if that is faster. Work is counted, never timed.

use memfit_ir::{Bytes, Codec, Device, Form, Nanos, Tier};

use super::editor::Away;
use super::moves::Choices;
use super::search::{Effort, MILD, Search, WARM, usual_changes};
use super::transfers::{Codecs, Leave, timed};
use super::{Algorithms, Front, Moved, RunList, Task};
use crate::Context;
use crate::problem::signed;

/// The part of the usual changes that each round tries.
const PART: usize = 3;

/// Values wait in other tiers: in each that `device` has.
pub(super) fn tiers(device: &Device) -> Vec<Form> {
    let tiers = Tier::ALL.into_iter().map(|(tier, _)| tier).filter(|&tier| device.link_to(tier).is_some());
    tiers.map(Form::Tier).collect()
}

/// Codecs by which values wait of which somebody asks for more than signs: without their zeros, or as it is allowed.
pub(super) fn encoding(context: &Context<'_>) -> Codecs {
    Codecs::of(&[Codec::Zvc]).and(Codecs::allowed(context))
}

/// The same, or encoded in device memory.
pub(super) fn forms(context: &Context<'_>) -> Vec<Form> {
    let mut forms = tiers(context.device);
    forms.extend(encoding(context).each().map(Form::Encoded));
    forms
}

/// `best`, which `runs` with the values of `away` away is about, and what is faster and within `budget`.
pub(super) fn refine(
    task: &Task<'_>,
    (runs, away): (&RunList, &[Away]),
    choices: &Choices,
    (best, budget): (Moved, Bytes),
    context: &Context<'_>,
) -> Front {
    let choices = choices.clone().and_algorithms(task);
    let (mut fastest, mut from) = (best.time, (runs.clone(), away.to_vec(), Algorithms::default()));
    let mut points = vec![best.point(runs)];
    let spare = task.spare(context.device);
    let changes = usual_changes(task) * context.effort.max(1) as usize / PART;
    for (round, heat) in [(0u64, MILD), (1, WARM)] {
        if fastest <= task.least_time() || (context.stop)() {
            break;
        }
        let search = |(runs, away, algorithms): &(RunList, Vec<Away>, Algorithms)| {
            let choices = (choices.clone(), context.seed.wrapping_add(round));
            let limit = signed(budget) - task.constant;
            let mut search = Search::with_away(task, runs, limit, (away, &spare), choices)?;
            for node in task.choices() {
                search.editor.choose(node, algorithms.of(node.index()));
            }
            search.editor.keep();
            Some(search)
        };
        let Some(mut here) = search(&from) else { break };
        // The editor's clock knows no transfers of what is at home elsewhere: it is held to its own word.
        let least = if task.is_parked() { fastest.min(Nanos(here.told())) } else { fastest };
        let mut found: Option<(RunList, Vec<Away>, Algorithms)> = None;
        let effort = Effort { changes, heat, stop: context.stop };
        here.anneal(effort, least.0, |editor| {
            found = Some((editor.runs.schedule(), editor.all_away(), editor.algorithms().clone()));
        });
        let Some(found) = found else { continue };
        let Some(mut here) = search(&found) else { break };
        here.prune(context.stop);
        here.prune_away(context.stop);
        let (runs, leaves): (RunList, Vec<Leave>) = here.editor.schedule();
        let algorithms = here.editor.algorithms().clone();
        if let Some(Ok(moved)) = timed(task, (&runs, &leaves, &algorithms), budget, context.device)
            && moved.time < fastest
        {
            (fastest, from) = (moved.time, (runs.clone(), here.editor.all_away(), algorithms));
            points.push(moved.point(&runs));
        }
    }
    Front::of_points(task, points)
}
