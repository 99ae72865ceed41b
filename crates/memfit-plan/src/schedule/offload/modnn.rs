//! Walks the step once: makes room where it is needed for the least delay, and spends what is left on faster algorithms.
//!
//! Source: Chen, Chen and Hu, "moDNN: Memory Optimal Deep Neural Network Training on Graphics Processing Units", TPDS 30(3),
//! 2019 (DATE 2018), §4: ops in order; where one does not fit, that goes which delays least, counting the copy out and the fetch; a
//! second time for free, since its copy is kept; a convolution runs by the algorithm that saves most, less the delay of making room for
//! its scratch memory and of fetches that can't begin beside it; what goes is fetched as late as hides it. We differ: no sub-batches, which are no
//! means of ours; whatever has several algorithms is a convolution; blocks need not lie side by side, for offsets are the placer's business; room is counted as if transfers
//! took none; and what the walk has found is held against the maps of vDNN with the fastest algorithms that fit, the clock telling
//! which is fastest. Guarantee: never slower than `vdnn-all`, `-conv`, `-dyn` and `vdnn++` within the same live budget. Time O(moved × idle values +
//! ops × algorithms × idle values). Ties go to what is used last, then to the gap that begins first. Wrong choice where what
//! delays least now delays more later: `best`.

use memfit_ir::{Bytes, ValueId};

use super::maps::{Policy, fitting};
use super::{Algorithms, Chooser, Front, Gaps, Infeasible, Moved, RunList, Scheduler, Task};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct MoDnn;

impl Scheduler for MoDnn {
    fn info(&self) -> Info {
        Info {
            name: "modnn",
            summary: "what delays least goes, and algorithms take the memory that is left",
            source: "Chen et al., moDNN, TPDS 30(3), 2019",
            year: 2019,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let runs = RunList::plain(task);
        let mut chooser = Chooser::of(task, &runs, budget, context)?;
        let walked = chooser.settled(|chooser| {
            chooser.set_algorithms(Algorithms::smallest(task));
            let (chosen, algorithms) = Walk::new(task, chooser).walk()?;
            chooser.set_algorithms(algorithms);
            let kept = chooser.run_keeping_copies(&chosen);
            [kept, chooser.run(&chosen)].into_iter().flatten().min_by_key(|moved| moved.time)
        });
        let mut best = walked;
        for policy in [Policy::NONE, Policy::CONV, Policy::ALL] {
            for policy in [policy, policy.without_waiting()] {
                let moved = maps(task, &mut chooser, policy);
                best = [best, moved].into_iter().flatten().min_by_key(|moved| moved.time);
            }
        }
        chooser.found(best)
    }
}

/// The fastest step of vDNN's in which maps move as `policy` says.
fn maps(task: &Task<'_>, chooser: &mut Chooser<'_>, policy: Policy) -> Option<Moved> {
    let mut best: Option<Moved> = None;
    let mut tried: Vec<Algorithms> = Vec::new();
    chooser.set_algorithms(Algorithms::smallest(task));
    let left = fitting(task, chooser, &policy.windows(task, chooser));
    for algorithms in [Algorithms::fastest(task), left, Algorithms::smallest(task)] {
        if tried.contains(&algorithms) {
            continue;
        }
        tried.push(algorithms.clone());
        chooser.set_algorithms(algorithms);
        let moved = chooser.run_at(&policy.windows(task, chooser));
        best = [best, moved].into_iter().flatten().min_by_key(|moved| moved.time);
    }
    best
}

/// A step that is simulated while it is planned.
struct Walk<'a> {
    task: &'a Task<'a>,
    step: &'a Gaps,
    limit: i64,
    /// By run: what is live by now.
    live: Vec<i64>,
    algorithms: Algorithms,
    /// Ns at which the run begins, and those at which the copies so far are there.
    now: u64,
    copied: u64,
    /// Gaps whose values are there, and those in which they are away.
    idle: Vec<usize>,
    chosen: Vec<usize>,
    /// By value: whether a copy of it exists.
    stored: Vec<bool>,
}

/// What it takes to make room: the gaps that values leave in, ns of delay, and when the copies are there.
struct Room {
    leave: Vec<usize>,
    delay: u64,
    copied: u64,
}

impl<'a> Walk<'a> {
    fn new(task: &'a Task<'a>, chooser: &'a Chooser<'_>) -> Walk<'a> {
        let step = chooser.step();
        Walk {
            task,
            step,
            limit: chooser.limit(),
            live: step.live.clone(),
            algorithms: chooser.algorithms().clone(),
            now: 0,
            copied: 0,
            idle: Vec::new(),
            chosen: Vec::new(),
            stored: vec![false; task.size.len()],
        }
    }

    /// The gaps in which values are away, and the algorithms. `None` if nothing is left to go.
    fn walk(mut self) -> Option<(Vec<usize>, Algorithms)> {
        let mut gaps = self.step.gaps.iter().enumerate().peekable();
        for run in 0..self.live.len() {
            while let Some((at, _)) = gaps.next_if(|(_, gap)| gap.from < run) {
                self.idle.push(at);
            }
            self.idle.retain(|&at| self.step.gaps[at].to > run);
            let room = self.room(run, self.live[run] - self.limit)?;
            self.take(room);
            self.choose(run);
            self.now += self.time(run).saturating_add_signed(self.algorithms.more(self.task, run).1);
        }
        Some((self.chosen, self.algorithms))
    }

    /// Ns of `run` by its own algorithm.
    fn time(&self, run: usize) -> u64 {
        self.task.cost[run]
    }

    /// Ns by which all is late if the value of gap `at` leaves before `run`, with copies there by `copied`; and when its is.
    fn delay(&self, at: usize, run: usize, (now, copied): (u64, u64)) -> (u64, u64) {
        let gap = &self.step.gaps[at];
        let since = |at: usize| self.step.begins[at].abs_diff(self.step.begins[run]);
        let stored = self.stored[gap.value.index()];
        let used = now.saturating_sub(since(gap.from + 1));
        let there = if stored { used } else { copied.max(used) + gap.out };
        let waited = there.saturating_sub(now);
        let needed = now + since(gap.to);
        let late = (there.max(now) + gap.back).saturating_sub(needed);
        (waited.max(late), if stored { copied } else { there })
    }

    /// What leaves so that `bytes` more are free during `run`; `None` if that is more than there is.
    fn room(&self, run: usize, mut bytes: i64) -> Option<Room> {
        let mut room = Room { leave: Vec::new(), delay: 0, copied: self.copied };
        while bytes > 0 {
            let left = self.idle.iter().filter(|&at| !room.leave.contains(at));
            let rated = left.map(|&at| {
                let gap = &self.step.gaps[at];
                let (delay, copied) = self.delay(at, run, (self.now + room.delay, room.copied));
                let freed = gap.size.min(bytes) as f64;
                (delay as f64 / freed, std::cmp::Reverse(gap.to), at, (delay, copied))
            });
            let (_, _, at, (delay, copied)) = rated.min_by(|one, other| {
                one.0.total_cmp(&other.0).then((one.1, one.2).cmp(&(other.1, other.2)))
            })?;
            room.leave.push(at);
            room.delay += delay;
            room.copied = copied;
            bytes -= self.step.gaps[at].size;
        }
        Some(room)
    }

    fn take(&mut self, room: Room) {
        for at in room.leave {
            let gap = &self.step.gaps[at];
            let away = gap.away(self.live.len());
            self.live[away].iter_mut().for_each(|live| *live -= gap.size);
            let ValueId(value) = gap.value;
            self.stored[value as usize] = true;
            self.idle.retain(|&other| other != at);
            self.chosen.push(at);
        }
        self.now += room.delay;
        self.copied = room.copied;
    }

    /// Has `run` go by the algorithm that saves most, with what making room for it delays.
    fn choose(&mut self, run: usize) {
        let ways = self.task.ways.row(run);
        let Some(own) = ways.get(self.algorithms.of(run)).copied() else { return };
        let mut best: Option<(u64, usize, Room)> = None;
        for (at, way) in ways.iter().enumerate() {
            let (more, saved) = (way.workspace - own.workspace, own.time.saturating_sub(way.time));
            let Some(room) = self.room(run, self.live[run] + more - self.limit) else { continue };
            let held = self.live[run] + more;
            let saved = saved.saturating_sub(room.delay).saturating_sub(self.hindered(run, held, way.time));
            if saved > best.as_ref().map_or(0, |best| best.0) {
                best = Some((saved, at, room));
            }
        }
        if let Some((_, at, room)) = best {
            self.live[run] += ways[at].workspace - own.workspace;
            self.algorithms.set(self.task, run, at);
            self.take(room);
        }
    }

    /// Ns by which the nearest fetch is late if `run` leaves no room for it: with so many bytes held for so long.
    fn hindered(&self, run: usize, held: i64, time: u64) -> u64 {
        let after = self.chosen.iter().map(|&at| &self.step.gaps[at]).filter(|gap| gap.to > run + 1);
        let Some(gap) = after.min_by_key(|gap| (gap.to, gap.value)) else { return 0 };
        if held + gap.size <= self.limit {
            return 0;
        }
        let needed = self.step.begins[gap.to] - self.step.begins[run + 1];
        gap.back.saturating_sub(needed).min(time)
    }
}
