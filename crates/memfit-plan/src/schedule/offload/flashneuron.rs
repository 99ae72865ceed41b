//! What the forward pass makes, in that order, until the rest fits; fetched in the order of use, as soon as there is room.
//!
//! Source: Bae et al., "FlashNeuron: SSD-Enabled Large-Batch Training of Very Deep Neural Networks", FAST 2021, §4.2, as the
//! artifact of "G10" (Zhang et al., MICRO 2023) simulates it. Of all that forward uses and backward uses again, the first to be
//! used go, until the rest is less than what the storages that last and the largest op leave of memory. Each is copied after its
//! last forward use; the backward pass begins when all copies are made. From then on, after each op, what is needed next is
//! fetched as long as one piece of free memory has room for it beside the largest op; what moves lies at one end of memory, all else
//! at the other. We differ: copies go to host memory where the device has no
//! disk; nothing is compressed, so the second phase, which prefers what compresses well, is left out, and a choice that takes
//! longer on the link than the forward pass is a slow step instead of none. Time O(maps × log maps + runs × maps). Ties go to the
//! larger value. Wrong choice where the first values are cheap to keep.

use std::cmp::Reverse;

use memfit_ir::{Bytes, ValueId};

use super::{Chooser, Front, Infeasible, RunList, Scheduler, Task, Window, leave_in_time, turn};
use crate::schedule::ids::NodeId;
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct FlashNeuron;

impl Scheduler for FlashNeuron {
    fn info(&self) -> Info {
        Info {
            name: "flashneuron",
            summary: "what the forward pass makes, in that order, until the rest fits",
            source: "Bae et al., FlashNeuron, FAST 2021",
            year: 2021,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let runs = RunList::plain(task);
        let mut chooser = Chooser::of(task, &runs, budget, context)?;
        let (step, turn, limit) = (chooser.step(), turn(task), chooser.limit());
        let largest = largest(task);
        let mut windows = chosen(task, &chooser, limit - task.constant - largest);
        chooser.on_disk(&mut windows);
        windows.sort_by_key(|window| (window.gap.from, window.gap.to, window.gap.value));
        let mut live = leave_in_time(step, &mut windows, limit);
        for window in &mut windows {
            // The backward pass waits for what is still being copied.
            let gone = window.gone.min(turn.max(window.gap.from + 1) - 1);
            live[gone + 1..=window.gone].iter_mut().for_each(|live| *live -= window.gap.flight);
            window.gone = gone;
        }
        fetch(task, &mut windows, &mut live, (turn, limit, largest));
        let moved = chooser.run_as(&windows);
        chooser.found(moved)
    }
}

/// Bytes of all operands and of the scratch memory of the op that has most, without what is always there.
fn largest(task: &Task<'_>) -> i64 {
    let operands = |node: usize| {
        let mut values: Vec<ValueId> =
            task.reads.row(node).iter().chain(task.writes.row(node)).copied().collect();
        values.sort_unstable();
        values.dedup();
        task.workspace[node] + values.iter().map(|value| task.size[value.index()]).sum::<i64>()
    };
    (0..task.nodes()).map(operands).max().unwrap_or(0)
}

/// Of the values that forward and backward use those that are used first, until the others take less than `room`.
fn chosen(task: &Task<'_>, chooser: &Chooser<'_>, room: i64) -> Vec<Window> {
    let (step, turn) = (chooser.step(), turn(task));
    let mut maps: Vec<_> = step.gaps.iter().filter(|gap| gap.crosses(turn)).copied().collect();
    let first = |value: ValueId| {
        let reader = task.readers.row(value.index()).first().copied();
        task.producer[value.index()].or(reader)
    };
    maps.sort_by_key(|gap| (first(gap.value), Reverse(gap.size), gap.value));
    let mut rest: i64 = maps.iter().map(|gap| gap.size).sum();
    let goes = maps.into_iter().take_while(|gap| {
        let goes = rest >= room;
        rest -= gap.size;
        goes
    });
    goes.map(Window::whole).collect()
}

/// Has `windows` come back in the order of use, each before the first run after `turn` at which one piece of free memory takes it
/// beside the `largest` op, and there is room for all that is live until it is used.
fn fetch(
    task: &Task<'_>,
    windows: &mut [Window],
    live: &mut [i64],
    (turn, limit, largest): (usize, i64, i64),
) {
    let mut order: Vec<usize> = (0..windows.len()).collect();
    order.sort_by_key(|&at| (windows[at].gap.to, at));
    let mut memory = Memory::new(task, windows, limit);
    let mut next = order.into_iter().peekable();
    for run in 0..live.len() {
        let mut rest = memory.largest() - largest;
        while let Some(&at) = next.peek().filter(|_| run > turn) {
            let window = &mut windows[at];
            let until = window.gap.to.min(live.len());
            if until > run {
                let fits = live[run..until].iter().all(|live| live + window.gap.flight <= limit);
                if window.gap.size >= rest || !fits || window.gone + 2 > run {
                    break;
                }
                rest -= window.gap.size;
                memory.place(window.gap.value);
                live[run..until].iter_mut().for_each(|live| *live += window.gap.flight);
                window.back = run;
            }
            next.next();
        }
        memory.run(run);
        windows.iter().filter(|window| window.gone == run).for_each(|window| memory.free(window.gap.value));
    }
}

/// Memory with two ends, first fit from each: what moves lies at the far one. Only tells how large the pieces are that are free:
/// what finds no room lies nowhere.
struct Memory<'a> {
    task: &'a Task<'a>,
    /// Start and end of each free piece, ascending, none beside another.
    pieces: Vec<(i64, i64)>,
    /// By value: where it lies.
    place: Vec<Option<(i64, i64)>>,
    /// By value: whether it moves.
    moves: Vec<bool>,
}

impl<'a> Memory<'a> {
    /// Of so many bytes, without what is always there; with all sources.
    fn new(task: &'a Task<'a>, windows: &[Window], limit: i64) -> Memory<'a> {
        let values = task.size.len();
        let mut memory = Memory {
            task,
            pieces: vec![(0, limit - task.constant)],
            place: vec![None; values],
            moves: vec![false; values],
        };
        windows.iter().for_each(|window| memory.moves[window.gap.value.index()] = true);
        task.graph
            .value_ids()
            .filter(|value| task.producer[value.index()].is_none())
            .for_each(|value| memory.place(value));
        memory
    }

    fn largest(&self) -> i64 {
        self.pieces.iter().map(|(start, end)| end - start).max().unwrap_or(0)
    }

    fn place(&mut self, value: ValueId) {
        let size = self.task.size[value.index()];
        if size == 0 || self.place[value.index()].is_some() {
            return;
        }
        let fits = |(start, end): &(i64, i64)| end - start >= size;
        let far = self.moves[value.index()];
        let piece = if far { self.pieces.iter().rposition(fits) } else { self.pieces.iter().position(fits) };
        let Some(piece) = piece else { return };
        let (start, end) = &mut self.pieces[piece];
        let taken = if far { (*end - size, *end) } else { (*start, *start + size) };
        if far {
            *end -= size
        } else {
            *start += size
        }
        if start == end {
            self.pieces.remove(piece);
        }
        self.place[value.index()] = Some(taken);
    }

    fn free(&mut self, value: ValueId) {
        let Some((start, end)) = self.place[value.index()].take() else { return };
        let at = self.pieces.partition_point(|piece| piece.0 < start);
        self.pieces.insert(at, (start, end));
        if self.pieces.get(at + 1).is_some_and(|next| next.0 == end) {
            self.pieces[at].1 = self.pieces.remove(at + 1).1;
        }
        if at > 0 && self.pieces[at - 1].1 == start {
            self.pieces[at - 1].1 = self.pieces.remove(at).1;
        }
    }

    /// What `run` uses is there, and what nothing uses afterwards is not.
    fn run(&mut self, run: usize) {
        let task = self.task;
        for &value in task.reads.row(run) {
            self.place(value);
        }
        for &value in task.writes.row(run) {
            let over = task.reuses.row(run).iter().find(|pair| {
                pair.output == value && task.mutator[pair.input.index()] == Some(NodeId::at(run))
            });
            match over {
                Some(pair) => {
                    self.place[value.index()] = self.place[pair.input.index()].take();
                }
                None => self.place(value),
            }
        }
        for &value in task.reads.row(run).iter().chain(task.writes.row(run)) {
            let last = task.readers.row(value.index()).last().copied().max(task.producer[value.index()]);
            if last == Some(NodeId::at(run)) && !task.live_out[value.index()] {
                self.free(value);
            }
        }
    }
}
