//! AutoTM's integer programme: each value is a unit of flow from a source to a sink, past a column for each op at which it may
//! move.
//!
//! At a column a value is *fresh* (in device memory, never copied), *copied* (there, and in host memory too) or *away*. Edges
//! between columns keep it, copy it out, let it go where a copy exists, or leave it away; an edge within a column brings it
//! back. What an edge moves is waited for, or is beside the op of its column. Of edges that only make a step slower none is
//! here: a copy that is waited for is made right after a use, or read right before one.

use good_lp::{
    Constraint, Expression, ProblemVariables, ResolutionError, Solution, Variable, constraint, variable,
};

use super::solver::{minimise, too_large};
use super::{Gap, Gaps, Window};

/// When values may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Decided once, where the value is made.
    Static,
    /// Before and after the ops that use it, which wait.
    Synchronous,
    /// Also beside an op, up to so many away from one that uses it.
    Asynchronous(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Fresh,
    Copied,
    Away,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// It stays where it is.
    Rest,
    /// It is copied and goes, or comes back, in so many ns: beside the op of this column, or waited for.
    Out {
        ns: u64,
        beside: Option<usize>,
    },
    Back {
        ns: u64,
        beside: Option<usize>,
    },
    /// It goes, for its copy is there.
    Leave,
}

/// From one node of a flow to a later one.
#[derive(Clone, Copy, Debug)]
struct Edge {
    from: usize,
    to: usize,
    act: Act,
    /// The ops, half-open, during which the value is away.
    away: (usize, usize),
}

/// An op at which a value may move.
#[derive(Clone, Copy, Debug)]
struct Column {
    at: usize,
    /// Whether the op uses it, so that it must be there; and whether it makes it.
    is_use: bool,
    made: bool,
}

/// What may become of a value.
struct Flow {
    size: i64,
    /// The times between its uses in which it can be away.
    gaps: Vec<Gap>,
    columns: Vec<Column>,
    /// In the order in which a unit of flow meets them.
    edges: Vec<Edge>,
}

const SOURCE: usize = 0;
const SINK: usize = 1;

fn node(column: usize, place: Place) -> usize {
    2 + 3 * column + place as usize
}

impl Flow {
    /// Of the value of `gaps`, which are in order.
    fn of(gaps: &[Gap], mode: Mode) -> Option<Flow> {
        let first = gaps.first()?;
        let mut flow = Flow { size: first.size, gaps: gaps.to_vec(), columns: Vec::new(), edges: Vec::new() };
        match mode {
            Mode::Static => flow.decide_once(first),
            Mode::Synchronous => flow.build(0),
            Mode::Asynchronous(near) => flow.build(near),
        }
        Some(flow)
    }

    /// It stays, or is away whenever no op uses it.
    fn decide_once(&mut self, first: &Gap) {
        let column = Column { at: first.from, is_use: true, made: first.made };
        self.columns.push(column);
        self.edge(SOURCE, node(0, Place::Fresh), Act::Rest, (0, 0));
        let back: u64 = self.gaps.iter().fold(0, |sum, gap| sum.saturating_add(gap.back));
        let ns = first.out.saturating_add(back);
        self.edge(SOURCE, node(0, Place::Away), Act::Out { ns, beside: None }, (0, 0));
        self.edge(node(0, Place::Fresh), SINK, Act::Rest, (0, 0));
        self.edge(node(0, Place::Away), SINK, Act::Rest, (0, 0));
    }

    fn edge(&mut self, from: usize, to: usize, act: Act, away: (usize, usize)) {
        self.edges.push(Edge { from, to, act, away });
    }

    fn build(&mut self, near: usize) {
        let is_use = |gaps: &[Gap], at: usize| gaps.iter().any(|gap| gap.from == at || gap.to == at);
        let mut at: Vec<usize> = Vec::new();
        for gap in &self.gaps {
            let inside = gap.from + 1..gap.to;
            at.extend([gap.from, gap.to]);
            at.extend(inside.clone().take(near));
            at.extend(inside.rev().take(near));
        }
        at.sort_unstable();
        at.dedup();
        let made = |at: usize| self.gaps.iter().any(|gap| gap.from == at && gap.made);
        let columns: Vec<Column> =
            at.iter().map(|&at| Column { at, is_use: is_use(&self.gaps, at), made: made(at) }).collect();
        self.columns = columns;
        self.edge(SOURCE, node(0, Place::Fresh), Act::Rest, (0, 0));
        for index in 0..self.columns.len() {
            self.within(index);
            if index + 1 < self.columns.len() {
                self.onwards(index);
            }
        }
        let last = self.columns.len() - 1;
        self.edge(node(last, Place::Fresh), SINK, Act::Rest, (0, 0));
        self.edge(node(last, Place::Copied), SINK, Act::Rest, (0, 0));
    }

    /// The edge that brings it back at a column.
    fn within(&mut self, index: usize) {
        let Column { at, is_use, .. } = self.columns[index];
        let before = |gap: &&Gap| gap.from < at && at <= gap.to;
        let Some(&Gap { back, .. }) = self.gaps.iter().find(before) else { return };
        let beside = (!is_use).then_some(at);
        self.edge(
            node(index, Place::Away),
            node(index, Place::Copied),
            Act::Back { ns: back, beside },
            (0, 0),
        );
    }

    /// Those from a column to the next.
    fn onwards(&mut self, index: usize) {
        let (here, next) = (self.columns[index], self.columns[index + 1]);
        let to = |place| node(index + 1, place);
        let (fresh, copied) = (node(index, Place::Fresh), node(index, Place::Copied));
        self.edge(fresh, to(Place::Fresh), Act::Rest, (0, 0));
        self.edge(copied, to(Place::Copied), Act::Rest, (0, 0));
        let within = |gap: &&Gap| gap.from <= here.at && next.at <= gap.to;
        let Some(&Gap { out, .. }) = self.gaps.iter().find(within) else { return };
        let away = (here.at + 1, next.at);
        if here.is_use {
            self.edge(fresh, to(Place::Away), Act::Out { ns: out, beside: None }, away);
        }
        if !here.made && self.has_columns_beside() {
            self.edge(fresh, to(Place::Away), Act::Out { ns: out, beside: Some(here.at) }, away);
        }
        self.edge(copied, to(Place::Away), Act::Leave, away);
        if !here.is_use {
            self.edge(node(index, Place::Away), to(Place::Away), Act::Rest, (here.at, next.at));
        }
    }

    /// Whether something may move beside an op: else there are no columns but those of its uses.
    fn has_columns_beside(&self) -> bool {
        self.columns.iter().any(|column| !column.is_use)
    }

    /// The ops during which it is away by `edge`.
    fn away(&self, edge: &Edge, ops: usize) -> Vec<(usize, usize)> {
        let once = self.columns.len() == 1 && edge.from == SOURCE && matches!(edge.act, Act::Out { .. });
        match once {
            true => self.gaps.iter().map(|gap| (gap.from + 1, gap.to.min(ops))).collect(),
            false => vec![(edge.away.0, edge.away.1.min(ops))],
        }
    }

    /// When it is away, if it goes by these of its edges, which are in order.
    fn windows(&self, path: &[Edge]) -> Vec<Window> {
        if self.columns.len() == 1 {
            let away = path.iter().any(|edge| matches!(edge.act, Act::Out { .. }));
            let windows = self.gaps.iter().enumerate().filter(|_| away);
            return windows.map(|(at, &gap)| Window { kept: at > 0, ..Window::whole(gap) }).collect();
        }
        let mut windows = Vec::new();
        let mut open: Option<Window> = None;
        for edge in path {
            let column = edge.from.checked_sub(2).and_then(|at| self.columns.get(at / 3));
            let Some(&Column { at, .. }) = column else { continue };
            let gap = self.gaps.iter().find(|gap| gap.from <= at && at < gap.to);
            match edge.act {
                Act::Rest => {}
                Act::Out { beside, .. } => {
                    let store = at + usize::from(beside.is_none());
                    open = gap.map(|&gap| Window { store, gone: at, ..Window::whole(gap) });
                }
                Act::Leave => {
                    open =
                        gap.map(|&gap| Window { store: at + 1, gone: at, kept: true, ..Window::whole(gap) });
                }
                Act::Back { .. } => windows.extend(open.take().map(|window| Window { back: at, ..window })),
            }
        }
        windows
    }
}

/// The programme of a step.
pub(super) struct Programme<'a> {
    step: &'a Gaps,
    limit: i64,
    flows: Vec<Flow>,
}

/// What came of a programme.
pub(super) enum Answer {
    /// The optimum: when values are away.
    Solved(Vec<Window>),
    /// No assignment at all.
    None,
    /// The solver gave up, or was not asked.
    Failed(String),
}

impl<'a> Programme<'a> {
    /// Of `step`, with `limit` bytes. Values that are there meanwhile are left out if it is never short of memory without them.
    pub(super) fn of(step: &'a Gaps, limit: i64, mode: Mode) -> Programme<'a> {
        let short = |gap: &Gap| step.live[gap.away(step.live.len())].iter().any(|&live| live > limit);
        let mut order: Vec<&Gap> = step.gaps.iter().collect();
        order.sort_by_key(|gap| (gap.value, gap.from));
        let of_one = order.chunk_by(|one, other| one.value == other.value);
        let useful = of_one.filter(|gaps| gaps.iter().any(|gap| short(gap)));
        let flows =
            useful.filter_map(|gaps| Flow::of(&gaps.iter().map(|&&gap| gap).collect::<Vec<_>>(), mode));
        Programme { step, limit, flows: flows.collect() }
    }

    fn edges(&self) -> impl Iterator<Item = (&Flow, &Edge)> {
        self.flows.iter().flat_map(|flow| flow.edges.iter().map(move |edge| (flow, edge)))
    }

    /// Ns of op `at`, nothing waited for.
    fn time(&self, at: usize) -> u64 {
        self.step.begins[at + 1] - self.step.begins[at]
    }

    /// The ops beside which something may move, with those edges that do.
    fn beside(&self) -> Vec<Vec<(usize, u64)>> {
        let mut beside = vec![Vec::new(); self.step.live.len()];
        for (index, (_, edge)) in self.edges().enumerate() {
            if let Act::Out { ns, beside: Some(at) } | Act::Back { ns, beside: Some(at) } = edge.act {
                beside[at].push((index, ns));
            }
        }
        beside
    }

    /// Why it is not given to the solver at hand, if it is not.
    pub(super) fn too_large(&self) -> Option<String> {
        let beside = self.beside().iter().filter(|edges| !edges.is_empty()).count();
        too_large(self.step.live.len(), self.edges().count() + beside)
    }

    /// The least time. A solver that has the choice stops after `seconds`.
    pub(super) fn solve(&self, seconds: u32) -> Answer {
        if self.flows.is_empty() {
            let fits = self.step.live.iter().all(|&live| live <= self.limit);
            return if fits { Answer::Solved(Vec::new()) } else { Answer::None };
        }
        let mut vars = ProblemVariables::new();
        let taken: Vec<Variable> = self.edges().map(|_| vars.add(variable().binary())).collect();
        let mut rows = self.conserved(&taken);
        rows.extend(self.memory(&taken));
        let ops = self.step.live.len();
        let scale = (self.step.begins[ops] as f64 / ops.max(1) as f64).max(1.0);
        let mut time = Expression::from(0.0);
        for (&var, (_, edge)) in taken.iter().zip(self.edges()) {
            if let Act::Out { ns, beside: None } | Act::Back { ns, beside: None } = edge.act {
                time.add_mul(ns as f64 / scale, var);
            }
        }
        for (at, edges) in self.beside().into_iter().enumerate().filter(|(_, edges)| !edges.is_empty()) {
            let own = self.time(at) as f64 / scale;
            let most = vars.add(variable().min(own));
            let moves: Expression =
                edges.iter().map(|&(edge, ns)| Expression::from(taken[edge]) * (ns as f64 / scale)).sum();
            rows.push(constraint!(moves <= most));
            time += most - own;
        }
        match minimise(vars, time, rows, seconds) {
            Ok(solution) => {
                let is_taken: Vec<bool> = taken.iter().map(|&var| solution.value(var) > 0.5).collect();
                Answer::Solved(self.windows(&is_taken))
            }
            Err(ResolutionError::Infeasible) => Answer::None,
            Err(error) => Answer::Failed(error.to_string()),
        }
    }

    /// What flows into a node flows out of it, and one unit does in all.
    fn conserved(&self, taken: &[Variable]) -> Vec<Constraint> {
        let mut rows = Vec::new();
        let mut first = 0;
        for flow in &self.flows {
            let vars = &taken[first..first + flow.edges.len()];
            first += flow.edges.len();
            let sum = |which: &dyn Fn(&Edge) -> bool| -> Expression {
                let edges = flow.edges.iter().zip(vars).filter(|(edge, _)| which(edge));
                edges.map(|(_, &var)| var).sum()
            };
            rows.push(constraint!(sum(&|edge| edge.from == SOURCE) == 1.0));
            rows.push(constraint!(sum(&|edge| edge.to == SINK) == 1.0));
            for node in 2..2 + 3 * flow.columns.len() {
                let (into, out) = (sum(&|edge| edge.to == node), sum(&|edge| edge.from == node));
                rows.push(constraint!(into == out));
            }
        }
        rows
    }

    /// What is live during each op is within the limit.
    fn memory(&self, taken: &[Variable]) -> Vec<Constraint> {
        let ops = self.step.live.len();
        let unit = self.flows.iter().map(|flow| flow.size).max().unwrap_or(1).max(1) as f64;
        let mut away: Vec<Vec<(Variable, i64)>> = vec![Vec::new(); ops];
        for (&var, (flow, edge)) in taken.iter().zip(self.edges()) {
            for (from, to) in flow.away(edge, ops) {
                (from..to).for_each(|at| away[at].push((var, flow.size)));
            }
        }
        let short = away.into_iter().enumerate().filter(|(at, _)| self.step.live[*at] > self.limit);
        let rows = short.map(|(at, away)| {
            let gone: Expression =
                away.into_iter().map(|(var, size)| Expression::from(var) * (size as f64 / unit)).sum();
            constraint!(gone >= (self.step.live[at] - self.limit) as f64 / unit)
        });
        rows.collect()
    }

    /// When values are away, if these of all edges are taken.
    fn windows(&self, is_taken: &[bool]) -> Vec<Window> {
        let mut first = 0;
        let mut windows: Vec<Window> = Vec::new();
        for flow in &self.flows {
            let taken = &is_taken[first..first + flow.edges.len()];
            first += flow.edges.len();
            let path = flow.edges.iter().zip(taken).filter(|&(_, &taken)| taken).map(|(&edge, _)| edge);
            windows.extend(flow.windows(&path.collect::<Vec<_>>()));
        }
        windows.sort_by_key(|window| (window.store, window.gap.to, window.gap.value));
        windows
    }
}

#[cfg(test)]
mod tests;
