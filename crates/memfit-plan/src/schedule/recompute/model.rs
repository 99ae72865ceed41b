//! Checkmate's integer programme over stages: which node runs again in which stage, what is kept between.

use good_lp::{
    Constraint, Expression, ProblemVariables, ResolutionError, Solution, Variable, constraint, variable,
};

use super::ids::NodeId;
use super::solver::minimise;
use super::{RunList, Task};

/// Something that is decided, or known.
#[derive(Clone, Copy, Debug)]
enum Term {
    Known(f64),
    Var(Variable),
}

impl Term {
    fn expression(self) -> Expression {
        match self {
            Term::Known(number) => Expression::from(number),
            Term::Var(var) => Expression::from(var),
        }
    }

    fn value(self, solution: &impl Solution) -> f64 {
        match self {
            Term::Known(number) => number,
            Term::Var(var) => solution.value(var),
        }
    }
}

/// What came of a programme.
pub(super) enum Answer {
    /// The optimum of the programme: for the relaxation, how much of each value each stage keeps.
    Solved { runs: Vec<Vec<f64>>, keeps: Vec<Vec<f64>>, time: f64 },
    /// No assignment at all.
    None,
    /// The solver gave up.
    Failed(String),
}

/// How many variables the programme of `task` has: what decides whether a solver is asked at all.
pub(super) fn variables(task: &Task<'_>) -> usize {
    let operands: usize =
        (0..task.nodes()).map(|node| task.reads.row(node).len() + task.writes.row(node).len()).sum();
    let n = task.nodes();
    // Runs and bytes of each pair of stage and node, kept values of each stage, frees of each operand.
    n.saturating_mul(n).saturating_add(n.saturating_mul(task.size.len()) / 2).saturating_add(n * operands / 2)
}

/// Whether the programme can say what `task` is: it knows no value that is mutated and made again.
pub(super) fn can_say(task: &Task<'_>) -> bool {
    (0..task.size.len()).all(|value| task.size[value] == 0 || task.mutator[value].is_none())
}

/// By node before `stage`: whether running it again in that stage or later can serve anything.
fn useful(task: &Task<'_>, stage: usize) -> Vec<bool> {
    let mut useful = vec![false; stage];
    for node in (0..stage).rev() {
        useful[node] = task.recomputable[node]
            && task.writes.row(node).iter().any(|&value| wanted(task, stage, value.index(), &useful));
    }
    useful
}

/// Whether somebody may read `value` in `stage` or later.
fn wanted(task: &Task<'_>, stage: usize, value: usize, useful: &[bool]) -> bool {
    let mut readers = task.readers.row(value).iter().map(|reader| reader.index());
    task.live_out[value] || readers.any(|reader| reader >= stage || useful[reader])
}

struct Model<'t, 'g> {
    task: &'t Task<'g>,
    vars: ProblemVariables,
    rows: Vec<Constraint>,
    relaxed: bool,
    /// By stage and node: whether it runs.
    runs: Vec<Vec<Term>>,
    /// By stage and value: whether it is kept from the stage before.
    keeps: Vec<Vec<Term>>,
}

/// What all times of later runs are multiples of.
fn grain(task: &Task<'_>) -> u64 {
    let divide = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let again = (0..task.nodes()).filter(|&node| task.recomputable[node]).map(|node| task.later_cost[node]);
    again.fold(0, divide).max(1)
}

/// Solves the programme of `task` with `limit` bytes beside the constant; with `known`, for less time in later
/// runs than that. `relaxed`: its linear relaxation. A solver that has the choice stops after `seconds`.
pub(super) fn solve(task: &Task<'_>, limit: i64, known: Option<u64>, relaxed: bool, seconds: u32) -> Answer {
    let mut model = Model {
        task,
        vars: ProblemVariables::new(),
        rows: Vec::new(),
        relaxed,
        runs: Vec::new(),
        keeps: Vec::new(),
    };
    model.build();
    let unit = task.size.iter().chain(&task.workspace).copied().max().unwrap_or(1).max(1) as f64;
    model.memory(limit as f64 / unit, unit);
    let scale = task.base_time().0.max(1) as f64 / task.nodes().max(1) as f64;
    let mut time = Expression::from(0.0);
    for (stage, row) in model.runs.iter().enumerate() {
        for (node, &term) in row.iter().enumerate().take(stage) {
            if let Term::Var(var) = term {
                time.add_mul(task.later_cost[node] as f64 / scale, var);
            }
        }
    }
    let Model { vars, mut rows, runs, keeps, .. } = model;
    if let Some(known) = known {
        // Half a grain is far from both what is known and what is better, whatever the solver's tolerance.
        rows.push(constraint!(time.clone() <= (known as f64 - grain(task) as f64 / 2.0) / scale));
    }
    let objective = time.clone();
    match minimise(vars, time, rows, seconds) {
        Ok(solution) => {
            let read = |table: &Vec<Vec<Term>>| {
                table.iter().map(|row| row.iter().map(|term| term.value(&solution)).collect()).collect()
            };
            Answer::Solved { runs: read(&runs), keeps: read(&keeps), time: solution.eval(objective) * scale }
        }
        Err(ResolutionError::Infeasible) => Answer::None,
        Err(error) => Answer::Failed(error.to_string()),
    }
}

impl Model<'_, '_> {
    fn unit(&mut self, whole: bool) -> Term {
        let definition = variable().min(0.0).max(1.0);
        Term::Var(self.vars.add(if whole && !self.relaxed { definition.integer() } else { definition }))
    }

    /// Rows 1b, 1c and 8 of the paper.
    fn build(&mut self) {
        let task = self.task;
        let nodes = task.nodes();
        for stage in 0..nodes {
            let useful = useful(task, stage);
            let runs = (0..=stage).map(|node| match node {
                _ if node == stage => Term::Known(1.0),
                _ if useful[node] => self.unit(true),
                _ => Term::Known(0.0),
            });
            let runs = runs.collect();
            self.runs.push(runs);
            let keeps = (0..task.size.len()).map(|value| {
                let producer = task.producer[value];
                if producer.is_none() && (stage == 0 || task.size[value] == 0) {
                    return Term::Known(1.0);
                }
                let made = producer.is_none_or(|producer| producer.index() < stage);
                if made && wanted(task, stage, value, &useful) { self.unit(true) } else { Term::Known(0.0) }
            });
            let keeps = keeps.collect();
            self.keeps.push(keeps);
        }
        let last = (0..task.size.len()).map(|value| {
            let there = task.live_out[value] || (task.producer[value].is_none() && task.size[value] == 0);
            Term::Known(if there { 1.0 } else { 0.0 })
        });
        self.keeps.push(last.collect());
        for stage in 1..=nodes {
            for value in 0..task.size.len() {
                let producer = task.producer[value];
                let mut before = self.keeps[stage - 1][value].expression();
                if let Some(producer) = producer.filter(|producer| producer.index() < stage) {
                    before += self.runs[stage - 1][producer.index()].expression();
                }
                let now = self.keeps[stage][value].expression();
                self.rows.push(constraint!(now <= before));
            }
        }
        for stage in 0..nodes {
            for node in 0..=stage {
                for &value in task.reads_of(NodeId::at(node), node == stage) {
                    let mut there = self.keeps[stage][value.index()].expression();
                    if let Some(producer) = task.producer[value.index()] {
                        there += self.runs[stage][producer.index()].expression();
                    }
                    let runs = self.runs[stage][node].expression();
                    self.rows.push(constraint!(runs <= there));
                }
            }
        }
    }

    /// Rows 2 to 5, with the tight upper sides of a free: freeing only helps, so no lower side is needed.
    fn memory(&mut self, limit: f64, unit: f64) {
        let task = self.task;
        let bytes = |value: usize| task.size[value] as f64 / unit;
        for stage in 0..task.nodes() {
            let mut live = Expression::from(0.0);
            for value in 0..task.size.len() {
                live += self.keeps[stage][value].expression() * bytes(value);
            }
            for node in 0..=stage {
                let runs = self.runs[stage][node];
                if matches!(runs, Term::Known(none) if none == 0.0) {
                    continue;
                }
                let writes = task.writes_of(NodeId::at(node), node == stage);
                let reads = task.reads_of(NodeId::at(node), node == stage);
                let made: f64 = writes.iter().map(|value| bytes(value.index())).sum();
                let scratch = task.workspace_of(NodeId::at(node), node == stage) as f64 / unit;
                let meanwhile = live.clone() + runs.expression() * (made + scratch);
                self.rows.push(constraint!(meanwhile <= limit));
                live += runs.expression() * made;
                for &value in reads.iter().chain(writes).filter(|&&value| task.size[value.index()] > 0) {
                    let free = self.unit(false).expression();
                    let next = self.keeps[stage + 1][value.index()].expression();
                    self.rows.push(constraint!(free.clone() <= runs.expression()));
                    self.rows.push(constraint!(free.clone() <= 1.0 - next));
                    let later = task.readers.row(value.index()).iter().map(|reader| reader.index());
                    for reader in later.filter(|&reader| reader > node && reader <= stage) {
                        let again = self.runs[stage][reader].expression();
                        self.rows.push(constraint!(free.clone() <= 1.0 - again));
                    }
                    live -= free * bytes(value.index());
                }
                // A name for what is live keeps the rows short.
                let after = self.vars.add(variable().min(0.0));
                self.rows.push(constraint!(live <= after));
                live = Expression::from(after);
            }
        }
    }
}

/// The schedule of the least runs that keep what `keeps` says: Checkmate's repair. By stage and value.
pub(super) fn repair(task: &Task<'_>, keeps: &dyn Fn(usize, usize) -> bool) -> RunList {
    let nodes = task.nodes();
    let mut runs = Vec::new();
    for stage in 0..nodes {
        let mut here = vec![false; stage + 1];
        here[stage] = true;
        for value in 0..task.size.len() {
            let producer = task.producer[value];
            let wanted = if stage + 1 == nodes { task.live_out[value] } else { keeps(stage + 1, value) };
            let before = producer.filter(|producer| producer.index() < stage);
            if let Some(producer) = before.filter(|_| wanted && !keeps(stage, value)) {
                here[producer.index()] = true;
            }
        }
        for node in (0..=stage).rev() {
            if here[node] {
                for &value in task.reads_of(NodeId::at(node), node == stage) {
                    let producer = task.producer[value.index()];
                    if let Some(producer) = producer.filter(|_| !keeps(stage, value.index())) {
                        here[producer.index()] = true;
                    }
                }
            }
        }
        runs.extend((0..=stage).filter(|&node| here[node]).map(NodeId::at));
    }
    RunList { runs }
}
