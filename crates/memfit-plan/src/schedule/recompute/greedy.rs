//! The online eviction policies, run ahead of time on a known step: whenever memory runs out, evict the value
//! with the least score; make it again when it's read.
//!
//! Source: Kirisame et al., "Dynamic Tensor Rematerialization" (ICLR 2021, arXiv:2006.09616), scores `dtr`,
//! `local`, `msps`, `lru`. We differ: the step is known, so values that the program never reads again are
//! freed at once, the score may divide by the true time to the next use, costs and bytes are those of
//! whole ops with several outputs, and values that can't be made again are kept for as long as something
//! evicted hangs on them. No guarantee: it may find nothing where a schedule exists. Time O(evictions ×
//! pool), space O(graph). Ties go to the value that has been in the pool for longest. Wrong choice for
//! wide graphs at tight budgets, where nested re-runs pin too much.

mod score;
mod victim;

use memfit_ir::ValueId;

use super::ids::{NodeId, Place, earlier};
use super::{RunList, Task};
pub(super) use score::{Age, Price, Score};

/// The rules that `best` and `dtr` try, in this order.
pub(super) const SCORES: [Score; 8] = [
    Score::new(Price::Neighbours, Age::Last),
    Score::new(Price::Neighbours, Age::Next),
    Score::new(Price::Ancestors, Age::None),
    Score::new(Price::Local, Age::Last),
    Score::new(Price::Local, Age::Next),
    Score::new(Price::Ancestors, Age::Next),
    Score { price: Price::One, age: Age::Last, sized: false },
    Score::new(Price::One, Age::Next),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unborn,
    Here,
    /// Not here, and can be made again.
    Out,
    /// Not here for good.
    Gone,
}

/// The work that runs which find nothing may take together, in values looked at and operands walked over. A rule for
/// chains may walk over the whole of a wide graph for each eviction, and find nothing in the end.
#[derive(Debug)]
pub(super) struct Purse {
    left: u64,
    /// What each run may take when nothing is left: enough for rules that look at each value alone.
    least: u64,
}

impl Purse {
    /// A walk takes as many steps as there are nodes at most, and each node has its evictions. No graph of the corpus with
    /// less than 5,000 ops uses up half of it.
    pub(super) fn of(task: &Task<'_>) -> Purse {
        let nodes = task.nodes() as u64;
        Purse { left: 100 * nodes * nodes.max(1000), least: 100 * nodes }
    }

    /// Whether all is taken: runs may have been cut off.
    pub(super) fn is_empty(&self) -> bool {
        self.left == 0
    }
}

/// A schedule whose live bytes stay within `limit` (the constant not counted), by evicting as `score` says;
/// `None` where this rule finds none, or none below `most` times the plain run time, or none with the work that `purse`
/// has left. `stop` is asked for each run: below a tight limit one op may bring many with it.
pub(super) fn run(
    task: &Task<'_>,
    limit: i64,
    score: Score,
    most: u64,
    purse: &mut Purse,
    stop: &(dyn Fn() -> bool + Sync),
) -> Option<RunList> {
    let mut sim = Sim::new(task, limit, score, most, stop);
    sim.most_work = purse.left.max(purse.least);
    let mut all = || {
        for node in task.node_ids() {
            sim.step(node)?;
        }
        sim.finish()
    };
    if all().is_none() {
        purse.left = purse.left.saturating_sub(sim.work);
        return None;
    }
    Some(RunList { runs: sim.runs })
}

struct Sim<'t, 'g> {
    task: &'t Task<'g>,
    limit: i64,
    score: Score,
    most: u64,
    state: Vec<State>,
    seen: Vec<u64>,
    locks: Vec<u32>,
    /// By value: how many of its readers' first runs are done.
    read: Vec<u32>,
    /// By node: the deadline of its whole closure of ops that may run again.
    deadline: Vec<Option<NodeId>>,
    /// By node: when its first run begins if nothing runs twice.
    start: Vec<u64>,
    pool: Vec<ValueId>,
    /// By value: its place in the pool.
    place: Vec<Option<Place>>,
    zombies: Vec<ValueId>,
    price: Vec<Option<u64>>,
    /// By value: what its price is not below, where it is not known.
    least: Vec<u64>,
    /// Whether something was out and is gone: known prices may be above the true ones.
    fallen: bool,
    mark: Vec<u32>,
    round: u32,
    now: NodeId,
    clock: u64,
    mem: i64,
    runs: Vec<NodeId>,
    /// Values that were looked at, operands that were walked over.
    work: u64,
    most_work: u64,
    stop: &'t (dyn Fn() -> bool + Sync),
}

/// An op that waits for its inputs.
struct Frame {
    node: NodeId,
    /// Inputs before this one are there.
    next: usize,
    /// Inputs that this frame has locked.
    held: Vec<ValueId>,
}

impl<'t, 'g> Sim<'t, 'g> {
    fn new(
        task: &'t Task<'g>,
        limit: i64,
        score: Score,
        most: u64,
        stop: &'t (dyn Fn() -> bool + Sync),
    ) -> Self {
        let values = task.size.len();
        let mut state = vec![State::Unborn; values];
        let mut mem = 0;
        for value in (0..values).filter(|&value| task.producer[value].is_none()) {
            let used = task.live_out[value] || !task.readers.row(value).is_empty();
            state[value] = if used { State::Here } else { State::Gone };
            mem += if used { task.size[value] } else { 0 };
        }
        let mut deadline = task.deadline.clone();
        for node in 0..task.nodes() {
            for &value in task.reads.row(node) {
                let producer = task.producer[value.index()];
                if let Some(producer) = producer.filter(|producer| task.recomputable[producer.index()]) {
                    deadline[node] = earlier(deadline[node], deadline[producer.index()]);
                }
            }
        }
        let mut start = vec![0];
        let mut total = 0u64;
        for &cost in &task.cost {
            total = total.saturating_add(cost);
            start.push(total);
        }
        Sim {
            task,
            limit: limit - task.snapshots,
            score,
            most: total.saturating_mul(most),
            state,
            seen: vec![1; values],
            locks: vec![0; values],
            read: vec![0; values],
            deadline,
            start,
            pool: Vec::new(),
            place: vec![None; values],
            zombies: Vec::new(),
            price: vec![None; values],
            least: vec![0; values],
            fallen: false,
            mark: vec![0; values],
            round: 0,
            now: NodeId::at(0),
            clock: 1,
            mem,
            runs: Vec::new(),
            work: 0,
            most_work: u64::MAX,
            stop,
        }
    }

    fn step(&mut self, node: NodeId) -> Option<()> {
        self.now = node;
        self.make(node)?;
        for &value in self.task.reads.row(node.index()) {
            self.read[value.index()] += 1;
        }
        let operands = self.task.reads.row(node.index()).iter().chain(self.task.writes.row(node.index()));
        for &value in operands {
            self.release(value);
        }
        Some(())
    }

    /// Brings back every result.
    fn finish(&mut self) -> Option<()> {
        self.now = self.task.end();
        for value in self.task.value_ids().filter(|value| self.task.live_out[value.index()]) {
            if self.state[value.index()] != State::Here {
                self.make(self.task.producer[value.index()]?)?;
            }
            self.lock(value);
        }
        Some(())
    }

    /// Whether a first run, or the end, will read `value`.
    fn due(&self, value: ValueId) -> bool {
        let readers = self.task.readers.row(value.index()).len();
        self.task.live_out[value.index()] || (self.read[value.index()] as usize) < readers
    }

    /// Runs `node` after whatever must be made again for it. Never recursive.
    fn make(&mut self, node: NodeId) -> Option<()> {
        let task = self.task;
        let mut stack = vec![self.open(node)];
        while let Some(frame) = stack.last_mut() {
            let Some(&value) = task.reads_of(frame.node, frame.node == self.now).get(frame.next) else {
                if (self.stop)() {
                    return None;
                }
                self.run(frame.node)?;
                for value in std::mem::take(&mut frame.held) {
                    self.unlock(value);
                }
                stack.pop();
                continue;
            };
            match self.state[value.index()] {
                State::Here => {
                    frame.next += 1;
                    if !frame.held.contains(&value) {
                        frame.held.push(value);
                        self.lock(value);
                    }
                }
                State::Out if stack.len() <= task.nodes() => {
                    let frame = self.open(task.producer[value.index()]?);
                    stack.push(frame);
                }
                State::Out | State::Unborn | State::Gone => return None,
            }
        }
        Some(())
    }

    /// A frame for `node`, with what is there of its inputs locked.
    fn open(&mut self, node: NodeId) -> Frame {
        let mut held = Vec::new();
        for &value in self.task.reads_of(node, node == self.now) {
            self.seen[value.index()] = self.clock;
            if self.state[value.index()] == State::Here {
                self.lock(value);
                held.push(value);
            }
        }
        Frame { node, next: 0, held }
    }

    fn lock(&mut self, value: ValueId) {
        self.locks[value.index()] += 1;
        self.leave_pool(value);
    }

    fn unlock(&mut self, value: ValueId) {
        let locks = &mut self.locks[value.index()];
        *locks = locks.saturating_sub(1);
        if *locks == 0 && self.state[value.index()] == State::Here {
            self.enter_pool(value);
        }
    }

    fn enter_pool(&mut self, value: ValueId) {
        if self.task.is_recomputable(value)
            && self.task.size[value.index()] > 0
            && self.place[value.index()].is_none()
        {
            self.place[value.index()] = Some(Place::at(self.pool.len()));
            self.pool.push(value);
        }
    }

    /// Takes `value` out of the pool, if it is there.
    fn leave_pool(&mut self, value: ValueId) {
        let Some(place) = self.place[value.index()].take() else { return };
        self.pool.swap_remove(place.index());
        if let Some(&moved) = self.pool.get(place.index()) {
            self.place[moved.index()] = Some(place);
        }
    }

    fn run(&mut self, node: NodeId) -> Option<()> {
        let task = self.task;
        let at = node.index();
        let first = node == self.now;
        let dies = |value: ValueId| {
            let readers = task.readers.row(value.index()).len();
            let last = self.read[value.index()] as usize + 1 >= readers && !task.live_out[value.index()];
            first && last && self.locks[value.index()] <= 1
        };
        let mut taken = 0;
        let mut mutated = Vec::new();
        task.each_reuse(at, dies, |pair| {
            taken += task.size[pair.output.index()];
            if pair.must && (first || !task.snapped.row(at).contains(&(pair.input, pair.output))) {
                mutated.push(pair.input);
            }
        });
        let writes = task.writes_of(node, first);
        let new = writes.iter().filter(|&&value| self.state[value.index()] != State::Here);
        let new: i64 = new.map(|&value| task.size[value.index()]).sum();
        self.room(new + task.workspace_of(node, first) - taken)?;
        let cost = if first { task.cost[at] } else { task.later_cost[at] };
        self.clock = self.clock.saturating_add(cost);
        if self.clock > self.most {
            return None;
        }
        self.runs.push(node);
        for value in mutated {
            if self.locks[value.index()] > 1 {
                return None;
            }
            self.drop_value(value);
        }
        for &value in writes {
            self.seen[value.index()] = self.clock;
            if self.state[value.index()] != State::Here {
                let again = self.state[value.index()] == State::Out;
                self.state[value.index()] = State::Here;
                self.mem += task.size[value.index()];
                self.price[value.index()] = None;
                self.least[value.index()] = 0;
                if again {
                    self.stale(value, false);
                }
                if self.locks[value.index()] == 0 {
                    self.enter_pool(value);
                }
            }
        }
        Some(())
    }

    /// Evicts until `need` more bytes fit.
    fn room(&mut self, need: i64) -> Option<()> {
        let mut swept = false;
        while self.mem + need > self.limit {
            if !swept {
                swept = true;
                self.sweep();
                continue;
            }
            if self.work > self.most_work {
                return None;
            }
            let victim = self.choose()?;
            self.evict(victim);
        }
        Some(())
    }

    fn evict(&mut self, value: ValueId) {
        self.leave_pool(value);
        self.state[value.index()] = State::Out;
        self.mem -= self.task.size[value.index()];
        self.stale(value, true);
    }

    /// Ends `value`'s stay after its bytes were taken, or at its last use.
    fn drop_value(&mut self, value: ValueId) {
        if self.task.is_recomputable(value) && self.can_make(value) {
            self.evict(value);
        } else {
            self.leave_pool(value);
            self.state[value.index()] = State::Gone;
            self.mem -= self.task.size[value.index()];
            self.mark_gone(value);
        }
    }

    /// What is out and hangs on `value`, which is gone, is gone too.
    fn mark_gone(&mut self, value: ValueId) {
        let (mut stack, mut gone) = (vec![value], false);
        while let Some(at) = stack.pop() {
            for &reader in self.task.readers.row(at.index()) {
                if !self.task.reads_of(reader, false).contains(&at) {
                    continue; // It reads a snapshot.
                }
                for &child in self.task.writes.row(reader.index()) {
                    if self.state[child.index()] == State::Out {
                        self.state[child.index()] = State::Gone;
                        gone = true;
                        stack.push(child);
                    }
                }
            }
        }
        if gone {
            // Prices may have fallen.
            self.least.fill(0);
            self.fallen = true;
        }
    }

    /// Frees `value` if no first run reads it any more and nothing that is out hangs on it.
    fn release(&mut self, value: ValueId) {
        if self.state[value.index()] != State::Here || self.due(value) || self.locks[value.index()] > 0 {
            return;
        }
        if (self.task.is_recomputable(value) && self.can_make(value)) || !self.wanted(value) {
            self.drop_value(value);
        } else if !self.zombies.contains(&value) {
            self.zombies.push(value);
        }
    }

    fn sweep(&mut self) {
        for value in std::mem::take(&mut self.zombies) {
            self.release(value);
        }
    }

    /// Whether something that is out and due needs `value` to be made again.
    fn wanted(&mut self, value: ValueId) -> bool {
        self.round += 1;
        let round = self.round;
        let task = self.task;
        let mut stack = vec![value];
        while let Some(at) = stack.pop() {
            for &reader in task.readers.row(at.index()) {
                if !task.reads_of(reader, false).contains(&at) {
                    continue;
                }
                for &child in task.writes.row(reader.index()) {
                    let out = self.state[child.index()] == State::Out;
                    if out && std::mem::replace(&mut self.mark[child.index()], round) != round {
                        if self.due(child) || self.locks[child.index()] > 0 {
                            return true;
                        }
                        stack.push(child);
                    }
                }
            }
        }
        false
    }
}
