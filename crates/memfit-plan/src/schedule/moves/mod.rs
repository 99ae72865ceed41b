//! Moves: the small changes of which local search tries one after another. One file each, and a row of [`MOVES`].

mod drop;
mod exchange;
mod keep;
mod make;
mod pick;
mod reform;
mod send;
mod shift;
mod stretch;
mod trade;

use memfit_ir::{Device, Form, ValueId};

use super::Task;
use super::editor::{Away, Editor};
use super::ids::{NodeId, RunId};
use super::random::Random;
use super::transfers::{LEAST, is_masked};
use crate::problem::signed;

use drop::Drop;
use exchange::Exchange;
use keep::Keep;
use make::Make;
use pick::Pick;
use reform::Reform;
use send::Send;
use shift::Shift;
use stretch::Stretch;
use trade::Trade;

/// A small change of a schedule.
pub(super) trait Move: Sync {
    /// Whether there is anything to change in this way.
    fn applies(&self, editor: &Editor<'_, '_>, choices: &Choices) -> bool;

    /// Makes one, drawn at random. Whether what comes out is a schedule: else it is to be taken back.
    fn propose(&self, editor: &mut Editor<'_, '_>, choices: &Choices, random: &mut Random) -> bool;
}

/// Every move, and how often it is tried, for each time that others that apply are tried.
pub(super) const MOVES: &[(usize, &dyn Move)] = &[
    (4, &Make),
    (3, &Drop),
    (2, &Exchange),
    (1, &Shift),
    (4, &Send),
    (2, &Keep),
    (3, &Trade),
    (3, &Stretch),
    (1, &Reform),
    (3, &Pick),
];

/// What moves may choose from.
#[derive(Clone, Debug, Default)]
pub(super) struct Choices {
    /// Values that can be made again and take bytes.
    made: Vec<ValueId>,
    /// Values that may wait elsewhere, with each form in which they may.
    sent: Vec<Wait>,
    /// Nodes that have several algorithms.
    picked: Vec<NodeId>,
}

/// A way for a value to wait.
#[derive(Clone, Copy, Debug)]
struct Wait {
    value: ValueId,
    form: Form,
    /// Ns that its transfers take: out, and back. Its codec is no transfer.
    out: u64,
    back: u64,
}

impl Wait {
    fn of(task: &Task<'_>, value: ValueId, form: Form, device: &Device) -> Option<Wait> {
        let this = task.graph.value(value);
        let (out, back) = match form {
            Form::Tier(tier) => {
                let link = device.link_to(tier)?;
                (link.out_time(this.size).0, link.in_time(this.size).0)
            }
            Form::Encoded(codec) => {
                let room = signed(codec.room(&this).round_up(device.align));
                let suits = codec.suits(this.dtype) && (!is_masked(codec) || task.is_rectified(value));
                (suits && room < task.size[value.index()]).then_some((0, 0))?
            }
            Form::EncodedOn(..) => return None,
        };
        Some(Wait { value, form, out, back })
    }
}

impl Choices {
    /// Ops may run again.
    pub(super) fn runs(task: &Task<'_>) -> Choices {
        let made = task.value_ids();
        let made = made.filter(|&value| task.is_recomputable(value) && task.size[value.index()] > 0);
        Choices { made: made.collect(), ..Choices::default() }
    }

    /// Values may wait in each of these forms, where the device has it and it takes less.
    pub(super) fn and_waits(mut self, task: &Task<'_>, forms: &[Form], device: &Device) -> Choices {
        let may = |value: &ValueId| task.size[value.index()] >= LEAST && task.may_move(*value);
        for value in task.value_ids().filter(may) {
            let ways = forms.iter().filter_map(|&form| Wait::of(task, value, form, device));
            self.sent.extend(ways);
        }
        self
    }

    /// Ops may run by any of their algorithms.
    pub(super) fn and_algorithms(mut self, task: &Task<'_>) -> Choices {
        self.picked = task.choices().collect();
        self
    }

    /// Whether there is nothing to choose from.
    pub(super) fn is_empty(&self) -> bool {
        self.made.is_empty() && self.sent.is_empty() && self.picked.is_empty()
    }

    /// The largest value there is among them.
    pub(super) fn largest(&self, task: &Task<'_>) -> i64 {
        let values = self.made.iter().copied().chain(self.sent.iter().map(|wait| wait.value));
        values.map(|value| task.size[value.index()]).max().unwrap_or(1)
    }

    /// Whether a value may wait in more than one form.
    fn has_forms(&self) -> bool {
        self.sent.windows(2).any(|pair| pair[0].value == pair[1].value)
    }

    /// Values that can be made again and take bytes.
    pub(super) fn made(&self) -> &[ValueId] {
        &self.made
    }

    /// The ways for `value` to wait. Sorted by value, so this is a search.
    fn ways(&self, value: ValueId) -> &[Wait] {
        let from = self.sent.partition_point(|wait| wait.value < value);
        let to = self.sent.partition_point(|wait| wait.value <= value);
        &self.sent[from..to]
    }
}

/// A gap between two events of a value, of which the later one reads it, with a run in between; drawn at random. While there
/// is too much in memory, one that covers a position at which that is so is preferred. With the events before and after.
fn gap(editor: &Editor<'_, '_>, value: ValueId, random: &mut Random) -> Option<(RunId, RunId)> {
    let events = editor.events(value);
    if events.len() < 2 {
        return None;
    }
    let index = 1 + random.below(events.len() - 1);
    let (before, at) = (events[index - 1], events[index]);
    let (from, to) = (editor.runs.position(before), editor.runs.position(at));
    if editor.defines(at, value) || to - from < 2 {
        return None;
    }
    if editor.over() > 0 {
        let probe = from + 1 + random.below(to - from - 1);
        if !editor.is_over(probe) && random.below(4) > 0 {
            return None;
        }
    }
    Some((before, at))
}

/// How many values a move tries before it gives up.
fn tries(editor: &Editor<'_, '_>) -> usize {
    if editor.over() > 0 { 8 } else { 3 }
}

/// First runs between two positions, both included, as the ends of what is away are told: the earliest and the latest, which
/// may be the end. `None` unless something runs between the two.
fn ends(editor: &Editor<'_, '_>, from: usize, to: usize) -> Option<(NodeId, NodeId)> {
    let runs = &editor.runs;
    let first = |at: &usize| !runs.is_extra(runs.at(*at));
    let gone = (from..=to).find(first)?;
    let back = (from..=to).rev().find(first)?;
    (back > gone + 1).then(|| (runs.node(runs.at(gone)), runs.node(runs.at(back))))
}

/// `away` with its ends where they may be, between `ends` and with a run between them; `None` if there is none.
fn within(editor: &Editor<'_, '_>, away: Away, ends: (NodeId, NodeId)) -> Option<Away> {
    let gone = away.gone.clamp(ends.0, ends.1);
    let back = away.back.clamp(ends.0, ends.1);
    let position = |node: NodeId| editor.runs.position(RunId::first(node));
    (position(back) > position(gone) + 1).then_some(Away { gone, back, ..away })
}
