//! The dynamic programme of POFO: of a chain of blocks, which keep their insides, which are computed again from what enters them, and
//! what of that waits behind a link.
//!
//! The model is the paper's. Forward, the link carries out what was given to it, in order and at its rate, while blocks run; what
//! is not out yet still takes memory. Told backwards in time the backward pass is the same: what has to be back for a block takes
//! memory from when it comes, and the link carries it while blocks run that come earlier. Where memory does not do, ops wait
//! until the link has carried enough. A stretch that is computed again is solved by rotor's programme with the memory that is
//! left then. States are told apart by what stays, what is still to leave, and what has to come back; a state that has
//! no less of any of them and is no earlier than another goes.

/// A block: times in ns, sizes in units of memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stage {
    pub(super) forward: u64,
    pub(super) backward: u64,
    /// What enters it, and what it makes that its backward pass reads.
    pub(super) enters: usize,
    pub(super) saves: usize,
}

/// What happens to the blocks from one up to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) from: usize,
    pub(super) until: usize,
    /// Units of memory with which it is computed again from what enters it; nothing where a single block keeps its insides.
    pub(super) room: Option<usize>,
    /// Whether what is kept of it waits behind the link.
    pub(super) moved: bool,
}

/// What the programme found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) segments: Vec<Segment>,
    /// Ns of runs and waits beyond every block once.
    pub(super) time: f64,
}

/// States with as much that stays that are kept before each block, at most.
const STATES: usize = 16;

/// What is known before a block.
#[derive(Clone, Copy, Debug)]
struct State {
    stays: usize,
    leaving: f64,
    coming: f64,
    time: f64,
    /// The segment that ends here, and the state before it.
    last: Option<(Segment, usize)>,
}

/// rotor's programme: by first block, last block and memory the least time of runs beyond one forward pass.
pub(super) struct Rotor {
    best: Vec<Option<(u64, Option<usize>)>>,
    stages: usize,
    most: usize,
}

impl Rotor {
    /// That of `stages`, with up to `most` units of memory.
    pub(super) fn of(stages: &[Stage], most: usize) -> Rotor {
        let count = stages.len();
        let mut rotor = Rotor { best: vec![None; count * count * (most + 1)], stages: count, most };
        for length in 0..count {
            for first in 0..count - length {
                for room in 0..=most {
                    let at = rotor.at(first, first + length, room);
                    rotor.best[at] = rotor.solve(stages, first, first + length, room);
                }
            }
        }
        rotor
    }

    fn at(&self, first: usize, last: usize, room: usize) -> usize {
        (first * self.stages + last) * (self.most + 1) + room
    }

    /// The least time, and the split: nothing where the first block keeps its insides.
    pub(super) fn get(&self, first: usize, last: usize, room: usize) -> Option<(u64, Option<usize>)> {
        self.best[self.at(first, last, room.min(self.most))]
    }

    fn solve(
        &self,
        stages: &[Stage],
        first: usize,
        last: usize,
        room: usize,
    ) -> Option<(u64, Option<usize>)> {
        let kept = room.checked_sub(stages[first].saves).and_then(|left| match first == last {
            true => Some(0),
            false => self.get(first + 1, last, left).map(|(time, _)| time),
        });
        let mut best = kept.map(|time| (time, None));
        let mut ahead = 0u64;
        for split in first + 1..=last {
            ahead = ahead.saturating_add(stages[split - 1].forward);
            let right = room.checked_sub(stages[split].enters).and_then(|left| self.get(split, last, left));
            if let (Some((right, _)), Some((left, _))) = (right, self.get(first, split - 1, room)) {
                let time = right.saturating_add(left).saturating_add(ahead);
                if best.is_none_or(|(least, _)| time < least) {
                    best = Some((time, Some(split)));
                }
            }
        }
        best
    }

    /// Adds by block those that run again right before its backward pass, for a forward pass over blocks `first` to `last`.
    pub(super) fn again(
        &self,
        stages: &[Stage],
        pass: (usize, usize),
        room: usize,
        again: &mut [Vec<usize>],
    ) {
        let mut todo = vec![(pass, room)];
        while let Some(((first, last), room)) = todo.pop() {
            match self.get(first, last, room) {
                Some((_, Some(split))) => {
                    again[split - 1].extend(first..split);
                    todo.push(((first, split - 1), room));
                    todo.push(((split, last), room.saturating_sub(stages[split].enters)));
                }
                Some((_, None)) if first < last => {
                    todo.push(((first + 1, last), room.saturating_sub(stages[first].saves)));
                }
                _ => {}
            }
        }
    }

    /// The memories at which the time of a stretch falls, ascending.
    fn rooms(&self, first: usize, last: usize) -> Vec<usize> {
        let mut rooms = Vec::new();
        let mut least = u64::MAX;
        for room in 0..=self.most {
            if let Some((time, _)) = self.get(first, last, room).filter(|(time, _)| *time < least) {
                least = time;
                rooms.push(room);
            }
        }
        rooms
    }
}

/// What has to be known of a chain.
pub(super) struct Chain<'a> {
    pub(super) stages: &'a [Stage],
    pub(super) rotor: &'a Rotor,
    /// Units of memory.
    pub(super) memory: usize,
    /// Units that the link carries in a ns; 0 where there is none.
    pub(super) rate: f64,
}

impl Chain<'_> {
    /// The least time, by so many states before each block; `None` if there is none.
    pub(super) fn solve(&self) -> Option<Found> {
        self.solved(STATES)
    }

    fn solved(&self, most: usize) -> Option<Found> {
        let count = self.stages.len();
        let start = State { stays: 0, leaving: 0.0, coming: 0.0, time: 0.0, last: None };
        let mut states: Vec<Vec<State>> = vec![Vec::new(); count + 1];
        states[0].push(start);
        for from in 0..count {
            let here = std::mem::take(&mut states[from]);
            let here = undominated(here, most);
            for (until, then) in states.iter_mut().enumerate().skip(from + 1) {
                let mut ways = vec![];
                if until == from + 1 {
                    ways.push(None);
                }
                ways.extend(self.rotor.rooms(from, until - 1).into_iter().map(Some));
                for room in ways {
                    for moved in [false, true] {
                        let segment = Segment { from, until, room, moved };
                        for (at, state) in here.iter().enumerate() {
                            let next = self.after(state, &segment);
                            then.extend(next.map(|next| State { last: Some((segment, at)), ..next }));
                        }
                    }
                }
            }
            states[from] = here;
        }
        let end = undominated(std::mem::take(&mut states[count]), most);
        let best = end.iter().min_by(|one, other| one.time.total_cmp(&other.time))?;
        let (time, mut last) = (best.time, best.last);
        let mut segments = Vec::new();
        while let Some((segment, at)) = last {
            segments.push(segment);
            last = states[segment.from][at].last;
        }
        segments.reverse();
        Some(Found { segments, time })
    }

    /// What is known after `segment`; `None` if memory does not do.
    fn after(&self, state: &State, segment: &Segment) -> Option<State> {
        let Segment { from, until, room, moved } = *segment;
        if moved && self.rate <= 0.0 {
            return None;
        }
        let stages = &self.stages[from..until];
        let forward: u64 = stages.iter().map(|stage| stage.forward).sum();
        let backward: u64 = stages.iter().map(|stage| stage.backward).sum();
        let kept = if room.is_some() { stages[0].enters } else { stages[0].saves };
        let again = match room {
            Some(room) => self.rotor.get(from, until - 1, room)?.0.saturating_add(forward),
            None => 0,
        };
        let memory = self.memory as f64;
        let stays = if moved { state.stays } else { state.stays + kept };
        let mut time = state.time + again as f64;
        // Forward: the link carries while the segment runs, then there is more.
        let mut leaving = (state.leaving - self.rate * forward as f64).max(0.0);
        leaving += if moved { kept as f64 } else { 0.0 };
        time += self.wait(&mut leaving, memory - stays as f64)?;
        // Backward, told from its end: what has come for those before is there beside all that the segment needs.
        let mut coming = state.coming;
        let needs = state.stays + kept + room.unwrap_or(0);
        time += self.wait(&mut coming, memory - needs as f64)?;
        coming = (coming - self.rate * (backward as f64 + again as f64)).max(0.0);
        coming += if moved { kept as f64 } else { 0.0 };
        Some(State { stays, leaving, coming, time, last: None })
    }

    /// Ns until no more than `room` of `amount` is left, which it is then.
    fn wait(&self, amount: &mut f64, room: f64) -> Option<f64> {
        if room < 0.0 {
            return None;
        }
        let over = (*amount - room).max(0.0);
        *amount -= over;
        Some(if over > 0.0 { over / self.rate } else { 0.0 })
    }
}

/// `states` without those that are no better in anything than another; the earliest of them, if too many have as much that stays.
fn undominated(mut states: Vec<State>, most: usize) -> Vec<State> {
    states.sort_by(|one, other| {
        let by_time = one.time.total_cmp(&other.time).then(one.stays.cmp(&other.stays));
        by_time.then(one.leaving.total_cmp(&other.leaving)).then(one.coming.total_cmp(&other.coming))
    });
    let mut kept: Vec<State> = Vec::new();
    let largest = states.iter().map(|state| state.stays).max().unwrap_or(0);
    // By what stays: how many have been kept.
    let mut alike = vec![0usize; largest + 1];
    for state in states {
        // Of too many with as much the earliest stay.
        if alike[state.stays] >= most {
            continue;
        }
        let beaten = kept.iter().any(|other| {
            other.stays <= state.stays && other.leaving <= state.leaving && other.coming <= state.coming
        });
        if !beaten {
            alike[state.stays] += 1;
            kept.push(state);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use memfit_testkit::Rng;

    use super::*;

    /// The time of `segments`, told by walking the step: the forward pass, then the backward pass from its end.
    fn walked(stages: &[Stage], segments: &[(Segment, u64)], memory: f64, rate: f64) -> Option<f64> {
        let kept = |segment: &Segment| match segment.room {
            Some(_) => stages[segment.from].enters as f64,
            None => stages[segment.from].saves as f64,
        };
        let mut waited = 0.0;
        let (mut stays, mut queue) = (0.0, 0.0f64);
        for (segment, _) in segments {
            for stage in &stages[segment.from..segment.until] {
                queue = (queue - rate * stage.forward as f64).max(0.0);
            }
            *(if segment.moved { &mut queue } else { &mut stays }) += kept(segment);
            if stays > memory || segment.moved && rate == 0.0 {
                return None;
            }
            let over = (stays + queue - memory).max(0.0);
            waited += if over > 0.0 { over / rate } else { 0.0 };
            queue -= over;
        }
        let mut queue = 0.0f64;
        let mut before = 0.0;
        for (segment, again) in segments {
            let needs = before + kept(segment) + segment.room.unwrap_or(0) as f64;
            if needs > memory {
                return None;
            }
            let over = (needs + queue - memory).max(0.0);
            waited += if over > 0.0 { over / rate } else { 0.0 };
            queue -= over;
            let backward: u64 = stages[segment.from..segment.until].iter().map(|stage| stage.backward).sum();
            queue = (queue - rate * (backward + again) as f64).max(0.0);
            *(if segment.moved { &mut queue } else { &mut before }) += kept(segment);
            waited += *again as f64;
        }
        Some(waited)
    }

    /// The least time to go over blocks `first` to `last` again and back, by trying every way, without a table.
    fn recomputed(stages: &[Stage], first: usize, last: usize, room: usize) -> Option<u64> {
        let kept = room
            .checked_sub(stages[first].saves)
            .and_then(|left| if first == last { Some(0) } else { recomputed(stages, first + 1, last, left) });
        let splits = (first + 1..=last).filter_map(|split| {
            let right = recomputed(stages, split, last, room.checked_sub(stages[split].enters)?)?;
            let left = recomputed(stages, first, split - 1, room)?;
            Some(right + left + stages[first..split].iter().map(|stage| stage.forward).sum::<u64>())
        });
        splits.chain(kept).min()
    }

    struct Brute<'a> {
        stages: &'a [Stage],
        /// By first and last block: time and least memory, of every time that is met.
        again: Vec<Vec<Vec<(usize, u64)>>>,
        memory: usize,
        rate: f64,
    }

    impl Brute<'_> {
        fn best(&self, from: usize, chosen: &mut Vec<(Segment, u64)>) -> Option<f64> {
            if from == self.stages.len() {
                return walked(self.stages, chosen, self.memory as f64, self.rate);
            }
            let mut best: Option<f64> = None;
            for until in from + 1..=self.stages.len() {
                let forward: u64 = self.stages[from..until].iter().map(|stage| stage.forward).sum();
                let rooms = &self.again[from][until - 1];
                let ways = rooms.iter().map(|&(room, time)| (Some(room), time + forward));
                for (room, time) in ways.chain((until == from + 1).then_some((None, 0))) {
                    for moved in [false, true] {
                        chosen.push((Segment { from, until, room, moved }, time));
                        best = [best, self.best(until, chosen)].into_iter().flatten().reduce(f64::min);
                        chosen.pop();
                    }
                }
            }
            best
        }
    }

    /// On chains of up to 8 blocks the programme is as good as trying all that there is.
    #[test]
    fn chains_are_solved_as_well_as_by_trying_everything() {
        let (mut solved, mut none, mut moved, mut again, mut both) = (0, 0, 0, 0, 0);
        for seed in 0..120u64 {
            let mut rng = Rng::new(seed);
            let count = if seed % 12 == 0 { 8 } else { 2 + rng.below(5) };
            let stages: Vec<Stage> = (0..count)
                .map(|_| Stage {
                    forward: 1 + rng.below(9) as u64,
                    backward: 1 + rng.below(15) as u64,
                    enters: 1 + rng.below(3),
                    saves: 1 + rng.below(6),
                })
                .collect();
            let all: usize = stages.iter().map(|stage| stage.saves).sum();
            let memory = (all * (25 + rng.below(60)) / 100).max(1);
            let rate = [0.0, 0.05, 0.2, 0.5, 1.0][rng.below(5)];
            let rotor = Rotor::of(&stages, memory);
            let found = Chain { stages: &stages, rotor: &rotor, memory, rate }.solved(usize::MAX);
            let rooms = |first: usize, last: usize| {
                let each =
                    (0..=memory).filter_map(|room| Some((room, recomputed(&stages, first, last, room)?)));
                let mut rooms: Vec<(usize, u64)> = each.collect();
                // More memory for the same time is no other way.
                rooms.dedup_by_key(|(_, time)| *time);
                rooms
            };
            let row = |first: usize| -> Vec<Vec<(usize, u64)>> {
                (0..count).map(|last| if last < first { Vec::new() } else { rooms(first, last) }).collect()
            };
            let brute = Brute { stages: &stages, again: (0..count).map(row).collect(), memory, rate };
            let least = brute.best(0, &mut Vec::new());
            assert_eq!(found.is_some(), least.is_some(), "seed {seed}");
            let Some((found, least)) = found.zip(least) else {
                none += 1;
                continue;
            };
            assert!((found.time - least).abs() < 1e-6 * (1.0 + least), "seed {seed}: {} {least}", found.time);
            let (moves, runs) = (
                found.segments.iter().any(|one| one.moved),
                found.segments.iter().any(|one| one.room.is_some()),
            );
            solved += 1;
            moved += usize::from(moves);
            again += usize::from(runs);
            both += usize::from(moves && runs);
        }
        assert!(
            solved > 80 && none > 2 && moved > 30 && again > 30 && both > 10,
            "{solved} {none} {moved} {again} {both}"
        );
    }
}
