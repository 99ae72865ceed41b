//! How much of each block is made again and how much is moved: a linear programme.

use good_lp::{Constraint, Expression, ProblemVariables, Solution, Variable, constraint, variable};
use memfit_ir::{Bytes, Device};

use super::cells::Cells;
use super::solver::minimise;
use super::{RunList, Task, link, signed};

/// Whether blocks may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outer {
    /// Each block has its shares.
    Blocks,
    /// All have the same.
    Uniform,
}

/// Rounds in which rows are added that were violated, at most, and rows that a round adds, at most.
const ROUNDS: usize = 60;
const ROWS: usize = 32;

/// Seconds that a solver with a clock may take.
const SECONDS: u32 = 60;

/// What of a block is made again, and what is moved: shares of its candidates' bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Shares {
    pub(super) again: f64,
    pub(super) moved: f64,
}

/// What the programme knows of a block.
#[derive(Clone, Debug, Default)]
struct Part {
    time: f64,
    temporaries: f64,
    backward: (usize, usize),
    /// The most that may be made again, moved, and both: shares.
    most: (f64, f64, f64),
    /// Bytes that may move.
    moves: f64,
}

/// The programme, without its cap.
pub(super) struct Programme {
    /// By node of the plain step.
    live: Vec<i64>,
    parts: Vec<Part>,
    /// By block and node: bytes that are free if all that may run again does, and if all that may move does.
    freed: Vec<(Vec<i64>, Vec<i64>)>,
    /// Bytes that the mean block's forward pass has time to move, and what other memory holds.
    window: f64,
    host: f64,
}

impl Programme {
    pub(super) fn of(task: &Task<'_>, plain: &RunList, cells: &Cells, device: &Device) -> Programme {
        let profile = plain.profile(task).unwrap_or_default();
        let live: Vec<i64> = profile.iter().map(|&bytes| signed(bytes)).collect();
        let mean = cells.all.iter().map(|cell| cell.time as f64).sum::<f64>() / cells.all.len().max(1) as f64;
        let rate = link(device).map_or(0.0, |link| link.out_bandwidth.min(link.in_bandwidth));
        let mut parts = Vec::new();
        let mut freed = Vec::new();
        for cell in &cells.all {
            let mut free = (vec![0; live.len() + 1], vec![0; live.len() + 1]);
            let (mut all, mut sums) = (0, (0, 0, 0));
            for candidate in &cell.candidates {
                let size = candidate.size;
                all += size;
                sums.0 += if candidate.may_run { size } else { 0 };
                sums.1 += if candidate.may_move { size } else { 0 };
                sums.2 += if candidate.may_run || candidate.may_move { size } else { 0 };
                let (from, to) = candidate.idle;
                for (may, free) in [(candidate.may_run, &mut free.0), (candidate.may_move, &mut free.1)] {
                    if may && from < to {
                        free[from] += size;
                        free[to] -= size;
                    }
                }
            }
            for free in [&mut free.0, &mut free.1] {
                let mut sum = 0;
                for free in free {
                    sum += *free;
                    *free = sum;
                }
            }
            let share = |sum: i64| if all > 0 { sum as f64 / all as f64 } else { 0.0 };
            parts.push(Part {
                time: cell.time as f64,
                temporaries: cell.temporaries as f64,
                backward: cell.backward,
                most: (share(sums.0), share(sums.1), share(sums.2)),
                moves: sums.1 as f64,
            });
            freed.push(free);
        }
        let host = link(device).map_or(Bytes::ZERO, |_| task.spare(device).host_memory);
        Programme { live, parts, freed, window: rate * mean / 1e9, host: host.0 as f64 }
    }

    /// The shares of least time with which the programme holds at most `cap` bytes; `None` if there are none.
    pub(super) fn solve(&self, outer: Outer, cap: i64) -> Option<Vec<Shares>> {
        let mut nodes: Vec<usize> = Vec::new();
        let mut shares = vec![Shares::default(); self.parts.len()];
        for _ in 0..ROUNDS {
            let worse = self.violated(&shares, cap, &nodes);
            if worse.is_empty() {
                return Some(shares);
            }
            nodes.extend(worse);
            shares = self.solved(outer, cap, &nodes)?;
        }
        None
    }

    /// What the programme holds during `node`, beside what is fixed: by how many bytes each share changes it.
    fn row(&self, node: usize) -> impl Iterator<Item = (usize, f64, f64)> + '_ {
        let each = self.parts.iter().zip(&self.freed).enumerate();
        each.filter_map(move |(at, (part, (again, moved)))| {
            let scratch =
                if (part.backward.0..part.backward.1).contains(&node) { part.temporaries } else { 0.0 };
            let (again, moved) = (scratch - again[node] as f64, -(moved[node] as f64));
            (again != 0.0 || moved != 0.0).then_some((at, again, moved))
        })
    }

    /// Of each of [`ROWS`] stretches of the step the node that is farthest above `cap`, if one is that is not in `known`.
    fn violated(&self, shares: &[Shares], cap: i64, known: &[usize]) -> Vec<usize> {
        let stretch = self.live.len().div_ceil(ROWS).max(1);
        let slack = (cap.max(1) as f64) * 1e-6;
        let over = |node: usize| {
            let held = self.row(node).map(|(at, again, moved)| {
                let (runs, moves, _) = self.parts[at].most;
                again * of(shares[at].again, runs) + moved * of(shares[at].moved, moves)
            });
            let held: f64 = held.sum();
            self.live[node] as f64 + held - cap as f64
        };
        let mut found = Vec::new();
        for from in (0..self.live.len()).step_by(stretch) {
            let nodes = (from..(from + stretch).min(self.live.len())).filter(|node| !known.contains(node));
            let worst = nodes
                .map(|node| (over(node), node))
                .max_by(|one, other| one.0.total_cmp(&other.0).then(other.1.cmp(&one.1)));
            found.extend(worst.filter(|(over, _)| *over > slack).map(|(_, node)| node));
        }
        found
    }

    fn solved(&self, outer: Outer, cap: i64, nodes: &[usize]) -> Option<Vec<Shares>> {
        let mut vars = ProblemVariables::new();
        let count = self.parts.len();
        let pairs: Vec<(Variable, Variable)> = match outer {
            Outer::Blocks => (0..count).map(|_| (share(&mut vars), share(&mut vars))).collect(),
            Outer::Uniform => vec![(share(&mut vars), share(&mut vars)); count],
        };
        let total = self.parts.iter().map(|part| part.time).sum::<f64>().max(1.0);
        let mut time = Expression::from(0.0);
        let mut copies = Expression::from(0.0);
        let mut rows: Vec<Constraint> = Vec::new();
        for (at, (part, &(again, moved))) in self.parts.iter().zip(&pairs).enumerate() {
            // Late blocks are kept where nothing else decides.
            let late = 1e-4 * (at + 1) as f64 / count.max(1) as f64 / count.max(1) as f64;
            time.add_mul(part.time / total + late, again);
            time.add_mul(late, moved);
            copies.add_mul(part.moves / 1e6, moved);
            // Shares of what may run again and of what may move; together no more than what is free.
            let (runs, moves, both) = part.most;
            rows.push(constraint!(runs * again + moves * moved <= both));
            if self.window < part.moves {
                rows.push(constraint!((part.moves / 1e6) * moved <= self.window / 1e6));
            }
        }
        rows.push(constraint!(copies <= self.host.min(1e18) / 1e6));
        let unit = (cap.max(1)) as f64;
        for &node in nodes {
            let mut held = Expression::from(0.0);
            for (at, r, o) in self.row(node) {
                held.add_mul(r / unit, pairs[at].0);
                held.add_mul(o / unit, pairs[at].1);
            }
            rows.push(constraint!(held <= (cap - self.live[node]) as f64 / unit));
        }
        let solution = minimise(vars, time, rows, SECONDS).ok()?;
        let value = |var: Variable, most: f64| solution.value(var).clamp(0.0, 1.0) * most;
        let each = self.parts.iter().zip(&pairs).map(|(part, &(again, moved))| Shares {
            again: value(again, part.most.0),
            moved: value(moved, part.most.1),
        });
        Some(each.collect())
    }
}

/// The share of `most` that a share of all bytes is.
fn of(share: f64, most: f64) -> f64 {
    if most > 0.0 { share / most } else { 0.0 }
}

fn share(vars: &mut ProblemVariables) -> Variable {
    vars.add(variable().min(0.0).max(1.0))
}

#[cfg(test)]
mod tests {
    use memfit_testkit::Rng;

    use super::*;

    /// Two blocks, shares by hundredths: nothing on the grid is better than what the solver says, which keeps to every row.
    #[test]
    fn no_shares_of_a_grid_are_better() {
        let (mut solved, mut none, mut moved) = (0, 0, 0);
        for seed in 0..80 {
            let mut rng = Rng::new(seed);
            let mut number = |most: usize| i64::try_from(rng.below(most)).unwrap();
            let nodes = 8;
            let live: Vec<i64> = (0..nodes).map(|_| 40 + number(60)).collect();
            let part = |time: i64, temporaries: i64, moves: i64, backward| Part {
                time: time as f64,
                temporaries: temporaries as f64,
                backward,
                most: (1.0, 1.0, 1.0),
                moves: moves as f64,
            };
            let parts = vec![
                part(1 + number(9), number(6), 1 + number(30), (6, 8)),
                part(1 + number(9), number(6), 1 + number(30), (4, 6)),
            ];
            let mut bytes = |until: usize| -> Vec<i64> {
                let size = 10 + number(30);
                (0..=nodes).map(|node| if (2..until).contains(&node) { size } else { 0 }).collect()
            };
            let freed = vec![(bytes(6), bytes(6)), (bytes(4), bytes(4))];
            let programme =
                Programme { live, parts, freed, window: number(25) as f64, host: 20.0 + number(30) as f64 };
            let cap = 70 + number(40);
            let value = |shares: &[Shares]| {
                programme.parts.iter().zip(shares).map(|(part, share)| part.time * share.again).sum::<f64>()
            };
            let fits = |shares: &[Shares], slack: f64| {
                let copies: Vec<f64> = programme
                    .parts
                    .iter()
                    .zip(shares)
                    .map(|(part, share)| part.moves * share.moved)
                    .collect();
                let each = shares.iter().all(|share| share.again + share.moved <= 1.0 + slack);
                let windows = copies.iter().all(|&copy| copy <= programme.window + 50.0 * slack);
                let rows = (0..nodes).all(|node| {
                    let held: f64 = programme
                        .row(node)
                        .map(|(at, r, o)| r * shares[at].again + o * shares[at].moved)
                        .sum();
                    programme.live[node] as f64 + held <= cap as f64 * (1.0 + 2e-6) + 100.0 * slack
                });
                each && windows && rows && copies.iter().sum::<f64>() <= programme.host + 50.0 * slack
            };
            let steps = 12;
            let mut grid = f64::INFINITY;
            for code in 0..(steps + 1i32).pow(4) {
                let digit =
                    |place: u32| f64::from(code / (steps + 1).pow(place) % (steps + 1)) / f64::from(steps);
                let shares = [
                    Shares { again: digit(0), moved: digit(1) },
                    Shares { again: digit(2), moved: digit(3) },
                ];
                if fits(&shares, 0.0) {
                    grid = grid.min(value(&shares));
                }
            }
            match programme.solve(Outer::Blocks, cap) {
                Some(shares) => {
                    assert!(fits(&shares, 1e-6), "seed {seed}: {shares:?}");
                    // What keeps late blocks may cost 1/10000 of the time.
                    let total: f64 = programme.parts.iter().map(|part| part.time).sum();
                    assert!(value(&shares) <= grid + total * 2e-4, "seed {seed}: {} {grid}", value(&shares));
                    solved += 1;
                    moved += usize::from(shares.iter().any(|share| share.moved > 0.0));
                    // The same shares for all are never better.
                    if let Some(same) = programme.solve(Outer::Uniform, cap) {
                        assert!(value(&same) >= value(&shares) - total * 2e-4, "seed {seed}");
                        assert!((same[0].again - same[1].again).abs() < 1e-9, "seed {seed}");
                    }
                }
                None => {
                    assert!(grid.is_infinite(), "seed {seed}: {grid}");
                    none += 1;
                }
            }
        }
        assert!(solved > 15 && none > 2 && moved > 5, "{solved} {none} {moved}");
    }
}
