//! The largest batch that fits a budget, from one step captured with two batches.
//!
//! What grows with the batch grows in proportion: sizes and work lie on a line, so two captures tell those of every other batch.

use memfit_ir::{
    Algorithm, Bytes, Graph, GraphBuilder, GraphError, Nanos, OpSpec, Price, Program, Role, ValueSpec,
};
use memfit_plan::liveness::Profile;

use crate::{Budget, Failure, Goal, Summary, Tools, pipeline};

/// The search ends when the largest batch is known to one part in so many.
const CLOSE: u64 = 50;

/// No larger batch is looked for.
const MOST: u64 = 1 << 24;

/// One step for every batch.
#[derive(Clone, Debug)]
pub struct Batches<'g> {
    one: &'g Graph,
    two: &'g Graph,
    rows: [u64; 2],
}

/// A batch with its plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// Rows of the batch.
    pub rows: u64,
    /// Largest sum of live bytes without a plan: every op once, in the given order.
    pub without: Bytes,
    /// The plan's figures; `None` where none was found.
    pub plan: Option<Summary>,
}

/// The largest batches that fit, and what was tried on the way.
#[derive(Clone, Debug, PartialEq)]
pub struct Largest {
    /// Device bytes that plans may use.
    pub budget: Bytes,
    /// Rows of the step as given.
    pub rows: u64,
    /// The largest batch whose live bytes fit without a plan; 0 for none.
    pub without: u64,
    /// The largest batch for which a plan was found that takes at most `overhead` more time; 0 for none.
    pub within: u64,
    /// The most that a plan may add to the step, as a share.
    pub overhead: f64,
    /// By rows, ascending.
    pub tried: Vec<Tried>,
    /// Whether the time was over before the search was: a larger batch may fit.
    pub cut: bool,
}

impl<'g> Batches<'g> {
    /// The steps `one` and `two`, which differ in their batch alone.
    ///
    /// `rows` are those of the two, or what their shapes say: the first dimension of the first input in which that differs.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] if the two are not the same ops over the same values, or nobody knows their rows.
    pub fn of(one: &'g Graph, two: &'g Graph, rows: Option<[u64; 2]>) -> Result<Batches<'g>, Failure> {
        if let Some(what) = difference(one, two) {
            return Err(Failure::usage(
                format!("the two graphs are not one step with two batches: {what}"),
                "capture the same model twice, with the same options but for the batch",
            ));
        }
        let rows = rows.or_else(|| told(one, two)).filter(|[one, two]| *one > 0 && *two > 0 && one != two);
        let Some(rows) = rows else {
            return Err(Failure::usage(
                "the shapes of the two graphs don't say which batch each has",
                "their inputs need shapes whose first dimensions differ",
            ));
        };
        Ok(Batches { one, two, rows })
    }

    /// Rows of the first step.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows[0]
    }

    /// The step with a batch of `rows`.
    ///
    /// # Errors
    ///
    /// If its sizes are beyond what a graph may have.
    pub fn graph(&self, rows: u64) -> Result<Graph, GraphError> {
        let (one, two) = (self.one, self.two);
        let line = Line { from: self.rows, rows };
        let mut builder = GraphBuilder::new(one.name());
        builder.replays_random(one.replays_random());
        for id in one.value_ids() {
            builder.value(line.value(one.value(id).to_spec(), &two.value(id).to_spec()))?;
        }
        for id in one.op_ids() {
            builder.op(line.op(one.op(id).to_spec(), &two.op(id).to_spec()))?;
        }
        for &result in one.results() {
            builder.result(result)?;
        }
        builder.finish()
    }
}

/// A line through two batches, at a third.
#[derive(Clone, Copy)]
struct Line {
    from: [u64; 2],
    rows: u64,
}

impl Line {
    /// Rounded up, and not below zero.
    fn at(self, one: u64, two: u64) -> u64 {
        let [old, new] = self.from.map(i128::from);
        let (rise, run) = (i128::from(two) - i128::from(one), new - old);
        let (rise, run) = if run < 0 { (-rise, -run) } else { (rise, run) };
        // Both factors are below 2^65: what is beyond saturates.
        let part = rise.saturating_mul(i128::from(self.rows) - old);
        let up = part.div_euclid(run) + i128::from(part.rem_euclid(run) != 0);
        u64::try_from(i128::from(one).saturating_add(up).max(0)).unwrap_or(u64::MAX)
    }

    fn bytes(self, one: Bytes, two: Bytes) -> Bytes {
        Bytes(self.at(one.0, two.0))
    }

    fn value(self, one: ValueSpec, two: &ValueSpec) -> ValueSpec {
        let shape = one.shape.iter().zip(&two.shape).map(|(&one, &two)| self.at(one, two)).collect();
        ValueSpec { size: self.bytes(one.size, two.size), shape, ..one }
    }

    fn op(self, one: OpSpec, two: &OpSpec) -> OpSpec {
        let share = (self.rows as f64 - self.from[0] as f64) / (self.from[1] as f64 - self.from[0] as f64);
        let time = one.time.zip(two.time).map(|(one, two)| Nanos(self.at(one.0, two.0)));
        // Which ways there are may depend on the batch.
        let alike = one.algorithms.len() == two.algorithms.len();
        let algorithms = one.algorithms.iter().zip(&two.algorithms);
        let algorithms = algorithms.map(|(one, two)| self.algorithm(*one, *two)).collect::<Option<Vec<_>>>();
        OpSpec {
            flops: (one.flops + (two.flops - one.flops) * share).max(0.0),
            moved: self.bytes(one.moved, two.moved),
            workspace: self.bytes(one.workspace, two.workspace),
            time,
            algorithms: algorithms.filter(|_| alike).unwrap_or_default(),
            ..one
        }
    }

    fn algorithm(self, one: Algorithm, two: Algorithm) -> Option<Algorithm> {
        let price = match (one.price, two.price) {
            (Price::Time(one), Price::Time(two)) => Price::Time(Nanos(self.at(one.0, two.0))),
            (Price::Work { flops, moved }, Price::Work { flops: more, moved: further }) => {
                Price::Work { flops: self.at(flops, more), moved: self.bytes(moved, further) }
            }
            _ => return None,
        };
        Some(Algorithm { workspace: self.bytes(one.workspace, two.workspace), price })
    }
}

/// What keeps the two from being one step with two batches.
fn difference(one: &Graph, two: &Graph) -> Option<String> {
    if (one.op_count(), one.value_count()) != (two.op_count(), two.value_count()) {
        let count = |graph: &Graph| format!("{} ops over {} values", graph.op_count(), graph.value_count());
        return Some(format!("{}, and {}", count(one), count(two)));
    }
    let values = one.value_ids().find(|&id| {
        let (a, b) = (one.value(id), two.value(id));
        (a.role, a.dtype, a.shape.len(), a.pin) != (b.role, b.dtype, b.shape.len(), b.pin)
    });
    if let Some(id) = values {
        return Some(format!("they differ in value `{}`", one.value(id).name));
    }
    let ops = one.op_ids().find(|&id| {
        let (a, b) = (one.op(id), two.op(id));
        (a.kind, a.phase, a.effect, a.reads, a.writes, a.reuses)
            != (b.kind, b.phase, b.effect, b.reads, b.writes, b.reuses)
    });
    if let Some(id) = ops {
        return Some(format!("they differ in op `{}`", one.op(id).name));
    }
    (one.results() != two.results()).then(|| "they have other results".to_owned())
}

/// Rows of both, by their shapes.
fn told(one: &Graph, two: &Graph) -> Option<[u64; 2]> {
    let inputs = one.value_ids().filter(|&id| one.value(id).role == Role::Input);
    let first = |graph: &Graph, id| graph.value(id).shape.first().copied();
    let mut rows = inputs.filter_map(|id| Some([first(one, id)?, first(two, id)?]));
    rows.find(|[one, two]| one != two)
}

/// Looks for the largest batch that fits the goal's budget, by the live bytes of the step as given, and with plans that take at
/// most `overhead` more time.
///
/// A budget that is a share is one of the step as given. A larger batch is taken not to fit where a smaller one does not; the
/// search doubles the batch, then halves the interval down to one part in 50. Deterministic without a time limit.
///
/// # Errors
///
/// Those of [`plan`](crate::plan()) but [`Failure::Infeasible`] and [`Failure::Timeout`], which only say that a batch is too large.
pub fn largest(
    batches: &Batches<'_>,
    goal: &Goal,
    overhead: f64,
    tools: &Tools<'_>,
) -> Result<Largest, Failure> {
    let given =
        pipeline::plan(batches.one, &Goal { budget: Budget::Bytes(Bytes::MAX), ..goal.clone() }, tools)?;
    let Summary { floor, unconstrained_peak, .. } = given.summary;
    let budget = goal.budget.resolve(&goal.device, floor, unconstrained_peak);
    let goal = Goal { budget: Budget::Bytes(budget), ..goal.clone() };
    let peak = |rows: u64| {
        // What is too large to be a graph is too large to fit.
        let graph = batches.graph(rows).ok()?;
        let peak = Profile::of(&Program::eager(&graph), goal.device.align).peak().0;
        Some((graph, peak))
    };
    let fits_plainly = |rows| Ok::<_, Failure>(peak(rows).is_some_and(|(_, peak)| peak <= budget));
    let without = largest_that(batches.rows(), (MOST, CLOSE), fits_plainly)?;
    let mut tried: Vec<Tried> = Vec::new();
    let mut cut = false;
    let fits = |rows: u64| -> Result<bool, Failure> {
        let Some((graph, without)) = peak(rows) else { return Ok(false) };
        cut |= (tools.stop)();
        if cut {
            return Ok(false);
        }
        let plan = match pipeline::fits(&graph, &goal, tools) {
            Ok(planned) => Some(planned.summary),
            Err(Failure::Infeasible(_) | Failure::Timeout(_)) => None,
            Err(failure) => return Err(failure),
        };
        let good = plan.as_ref().is_some_and(|plan| plan.overhead() <= overhead);
        tried.push(Tried { rows, without, plan });
        Ok(good)
    };
    let within = largest_that(without.max(1), (MOST, CLOSE), fits)?;
    tried.sort_by_key(|tried| tried.rows);
    Ok(Largest { budget, rows: batches.rows(), without, within, overhead, tried, cut })
}

/// The largest batch that `fits`, up to `most` and to one part in `close`: doubling a first guess, then halving the interval. 0 if none does.
///
/// # Errors
///
/// That of `fits`.
pub fn largest_that<E>(
    guess: u64,
    (most, close): (u64, u64),
    mut fits: impl FnMut(u64) -> Result<bool, E>,
) -> Result<u64, E> {
    let (mut good, mut bad) = (0, guess.max(1));
    while bad <= most && fits(bad)? {
        (good, bad) = (bad, 2 * bad);
    }
    while bad > good + 1 && bad - good > good / close {
        let middle = good + (bad - good) / 2;
        if fits(middle)? {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Ok(good)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input;

    fn corpus(name: &str) -> Graph {
        let path = format!("{}/../../corpus/graphs/{name}.json.zst", env!("CARGO_MANIFEST_DIR"));
        input::graph(&std::fs::read(path).unwrap(), &input::Options::default()).unwrap()
    }

    #[test]
    fn a_line_goes_through_both_steps_and_on() {
        let (small, large) = (corpus("resnet50-train-b32"), corpus("resnet50-train-b256"));
        let batches = Batches::of(&small, &large, None).unwrap();
        assert_eq!(batches.rows, [32, 256]);
        let digests = [32, 256].map(|rows| batches.graph(rows).unwrap().digest());
        assert_eq!(digests, [small.digest(), large.digest()]);
        // From the other end it is the same line.
        let back = Batches::of(&large, &small, None).unwrap();
        for rows in [1, 64, 100, 1000] {
            let (one, other) = (batches.graph(rows).unwrap(), back.graph(rows).unwrap());
            let sizes =
                |graph: &Graph| -> Vec<Bytes> { graph.value_ids().map(|id| graph.value(id).size).collect() };
            assert_eq!(sizes(&one), sizes(&other), "{rows}");
        }
    }

    #[test]
    fn lines_are_rounded_up_and_end_at_zero() {
        let at = |from, rows, one, two| Line { from, rows }.at(one, two);
        assert_eq!(at([8, 16], 12, 100, 201), 151);
        assert_eq!(at([16, 8], 12, 201, 100), 151);
        assert_eq!(at([8, 16], 1, 0, 800), 0);
        assert_eq!(at([1, 2], u64::MAX, 0, u64::MAX), u64::MAX);
        assert_eq!(at([8, 16], 1 << 20, 100, 50), 0);
    }

    #[test]
    fn other_steps_are_refused() {
        let (small, large) = (corpus("resnet50-train-b32"), corpus("resnet50-infer-b32"));
        let refused = |one, two| Batches::of(one, two, None).unwrap_err().to_string();
        assert!(refused(&small, &large).contains("569 ops"), "{}", refused(&small, &large));
        assert!(refused(&small, &small).contains("which batch"), "{}", refused(&small, &small));
        assert!(Batches::of(&small, &small, Some([32, 64])).is_ok());
        assert!(Batches::of(&small, &small, Some([0, 64])).is_err());
    }

    #[test]
    fn the_search_finds_the_last_that_fits() {
        for most in [0, 1, 7, 50, 1000, 5000] {
            for guess in [1, 8, 100] {
                let found =
                    largest_that(guess, (MOST, CLOSE), |rows| Ok::<_, Failure>(rows <= most)).unwrap();
                assert!(found <= most && most - found <= most / CLOSE, "{most} from {guess}: {found}");
            }
        }
    }
}
