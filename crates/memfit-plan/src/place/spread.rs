//! Spreads a placed program over lanes: which lane each op runs on, and what it must wait for.
//!
//! Ops go to the lanes that [`super::lanes::schedule`] gives them. An op waits for what it depends on in the graph and for
//! everyone who touched bytes it takes over; a wait that follows from an earlier one is left out. Frees move to the
//! op that needs the bytes, which has waited already; what nobody needs stays to the end. No guarantee beyond those
//! of the list schedule; O(steps · lanes + operands log buffers). Ties go to the lower lane.
//!
//! Transfers and codecs stay on lane 0 with all that touches them: no strategy emits both yet, so a program that has
//! any is refused.

use std::collections::BTreeMap;

use memfit_ir::{BufferId, Compute, Csr, Device, Graph, Layout, OpId, Program, Step, StepId};

use super::lanes;
use crate::dependencies::Dependencies;

/// The program on `count` lanes; the layout and the buffers stay. `None` if an op runs twice, or a step is neither
/// compute nor free. `added` are dependencies beside the graph's, as [`super::lanes::added`] returns them.
#[must_use]
pub fn spread(
    graph: &Graph,
    program: &Program,
    layout: &Layout,
    added: &[(OpId, OpId)],
    count: u16,
    device: &Device,
) -> Option<Program> {
    let mut runs = vec![false; graph.op_count()];
    for step in &program.steps {
        match step {
            Step::Compute(compute) => {
                if std::mem::replace(&mut runs[compute.op.index()], true) {
                    return None;
                }
            }
            Step::Free(_) => {}
            _ => return None,
        }
    }
    let lanes_in_use = usize::from(count.max(1));
    let mut out = program.clone();
    (out.steps, out.lanes) = (Vec::new(), Vec::new());
    let mut spreading = Spreading {
        program,
        layout,
        out,
        at: vec![(0, 0); graph.op_count()],
        clocks: vec![vec![0; lanes_in_use]; lanes_in_use],
        done: Vec::new(),
        occupied: vec![BTreeMap::new(); 1 + layout.places.iter().map(|p| usize::from(p.bank)).max()?],
        touched: vec![Vec::new(); program.buffers.len()],
    };
    for &buffer in &program.resident {
        spreading.occupy(buffer);
    }
    let dependencies = Dependencies::of(graph);
    let after = Csr::from_pairs(graph.op_count(), added.iter().map(|&(first, then)| (then.index(), first)));
    let schedule = lanes::schedule(graph, program, added, count, device);
    for step in &program.steps {
        let Step::Compute(compute) = step else { continue };
        let before = dependencies.preds(compute.op).iter().chain(after.row(compute.op.index()));
        let lane = usize::from(schedule.lane[compute.op.index()]);
        before.for_each(|&op| spreading.wait(lane, op));
        spreading.run(*compute, lane);
    }
    Some(spreading.out)
}

struct Spreading<'a> {
    program: &'a Program,
    layout: &'a Layout,
    out: Program,
    /// For each op that has run: its step in `out`, and its lane.
    at: Vec<(usize, usize)>,
    /// `clocks[l][m]`: steps of `out` up to this one, on lane m, are over when lane l goes on.
    clocks: Vec<Vec<usize>>,
    /// The clock of a step when it was over, for compute steps; indexed by step of `out`.
    done: Vec<Option<Vec<usize>>>,
    /// For each bank: what lies where, by offset. Dead buffers stay until somebody needs their bytes.
    occupied: Vec<BTreeMap<u64, BufferId>>,
    /// For each buffer: the ops that touch it, so far.
    touched: Vec<Vec<OpId>>,
}

impl Spreading<'_> {
    fn push(&mut self, step: Step, lane: usize) {
        self.out.steps.push(step);
        self.out.lanes.push(u16::try_from(lane).unwrap_or(u16::MAX));
        self.done.push(None);
        self.clocks[lane][lane] = self.out.steps.len();
    }

    /// Makes `lane` wait for `op`, unless it has.
    fn wait(&mut self, lane: usize, op: OpId) {
        let (step, other) = self.at[op.index()];
        if other == lane || self.clocks[lane][other] > step {
            return;
        }
        self.push(Step::Await(StepId::at(step)), lane);
        if let Some(clock) = &self.done[step] {
            for (mine, theirs) in self.clocks[lane].iter_mut().zip(clock) {
                *mine = (*mine).max(*theirs);
            }
        }
    }

    fn run(&mut self, compute: Compute, lane: usize) {
        let written: Vec<BufferId> =
            self.program.writes(&compute).iter().chain(&compute.workspace).copied().collect();
        for &buffer in &written {
            match self.program.buffers[buffer.index()].over {
                Some(before) => {
                    self.touched[before.index()].clone().iter().for_each(|&op| self.wait(lane, op));
                    let place = self.layout.places[before.index()];
                    // A buffer without bytes is not there, and another one may lie at its offset.
                    let occupied = &mut self.occupied[usize::from(place.bank)];
                    if occupied.get(&place.offset.0) == Some(&before) {
                        occupied.remove(&place.offset.0);
                    }
                }
                None => self.clear(buffer, lane),
            }
        }
        self.push(Step::Compute(compute), lane);
        let step = self.out.steps.len() - 1;
        self.at[compute.op.index()] = (step, lane);
        self.done[step] = Some(self.clocks[lane].clone());
        for &buffer in self.program.reads(&compute).iter().chain(&written) {
            self.touched[buffer.index()].push(compute.op);
        }
        for &buffer in &written {
            if Some(buffer) != compute.workspace {
                self.occupy(buffer);
            }
        }
    }

    fn occupy(&mut self, buffer: BufferId) {
        let place = self.layout.places[buffer.index()];
        if self.program.buffers[buffer.index()].size.0 > 0 {
            self.occupied[usize::from(place.bank)].insert(place.offset.0, buffer);
        }
    }

    /// Frees the dead buffers in whose bytes `buffer` will lie, once all who touched them are over.
    fn clear(&mut self, buffer: BufferId, lane: usize) {
        let place = self.layout.places[buffer.index()];
        let (start, end) = (place.offset.0, place.offset.0 + self.program.buffers[buffer.index()].size.0);
        let bank = usize::from(place.bank);
        while let Some((&at, &dead)) = self.occupied[bank].range(..end).next_back() {
            if start == end || at + self.program.buffers[dead.index()].size.0 <= start {
                break;
            }
            self.touched[dead.index()].clone().iter().for_each(|&op| self.wait(lane, op));
            self.push(Step::Free(dead), lane);
            self.occupied[bank].remove(&at);
        }
    }
}
