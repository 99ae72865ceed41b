//! The hammer: every strategy and every way to spoil a plan, before the judge and on real bytes.
//!
//! One strike makes a good plan with steps of every kind and mutants of it, a random schedule with stores, loads and
//! encodings, and a graph on which a few pairs of an order and a placer work, with mutants of all their plans; some
//! strikes ask a scheduler as well. Strategies are those of all families. Two things must never happen: the judge refuses a good plan, or it accepts a plan
//! that leaves wrong bytes. Each is shown with a text that reproduces it.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use memfit_ir::{Bytes, Device, Graph, InPlace, Limits, Link, Nanos, OpId, Plan, Program, Store, Tier};
use memfit_plan::families::Strategy;
use memfit_plan::order::Order;
use memfit_plan::place::{Placer, Problem};
use memfit_plan::schedule::{RunList, Scheduler, Task};
use memfit_plan::{Context, FAMILIES};
use memfit_testkit::bytes::Truth;
use memfit_testkit::{
    Case, Layered, MUTATORS, Rng, Verdict, case, device, graph, layered, mutant, peak_of_copies, schedule,
    shrink, trained, try_plan,
};
use memfit_verify::Rule;
use rayon::prelude::*;

/// Mutants of each own program, and of each strategy's plan.
const MUTANTS: (usize, usize) = (8, 2);
/// Pairs of an order and a placer in each strike.
const PAIRS: usize = 3;
/// One strike in so many asks a scheduler: some search for as long as it takes to judge a thousand plans.
const SCHEDULED: u64 = 16;
/// One in so many asks one that moves values: those search for longer.
const MOVED: u64 = 64;
/// The most memory that a plan is run in; one for a graph from a file may ask for more than there is.
const LARGEST: Bytes = Bytes(1 << 24);
/// Strikes between two looks at the count.
const BATCH: u64 = 2048;
/// Failures kept with their texts.
const SHOWN: usize = 5;

/// Strategies of one trait, each with its row in [`Report::strategies`].
type Rows<S> = Vec<(usize, &'static S)>;

/// What plans are made by.
#[derive(Default)]
struct Strategies {
    /// By row.
    names: Vec<String>,
    orders: Rows<dyn Order>,
    placers: Rows<dyn Placer>,
    /// Schedulers that only run ops again, and those that move values.
    runs: Rows<dyn Scheduler>,
    moves: Rows<dyn Scheduler>,
}

/// All that the families have.
static STRATEGIES: LazyLock<Strategies> = LazyLock::new(|| {
    let mut all = Strategies::default();
    for family in FAMILIES {
        for strategy in family.each() {
            let row = all.names.len();
            match strategy {
                Strategy::Order(order) => all.orders.push((row, order)),
                Strategy::Placer(placer) => all.placers.push((row, placer)),
                Strategy::Scheduler(one) if family.means.moves() => all.moves.push((row, one)),
                Strategy::Scheduler(one) => all.runs.push((row, one)),
                Strategy::Evictor(_) | Strategy::Allocator(_) => continue, // Of which no plan is made.
            }
            all.names.push(format!("{}:{}", family.name, strategy.info().name));
        }
    }
    all
});

/// One of `rows`.
fn any<S: ?Sized>(rows: &Rows<S>, rng: &mut Rng) -> (usize, &'static S) {
    rows[rng.below(rows.len())]
}

/// Verdicts counted: rejected and wrong, rejected though right, accepted and right, accepted though wrong.
type Row = [u64; 4];

/// Adds counts.
fn add(sum: &mut Row, row: &Row) {
    sum.iter_mut().zip(row).for_each(|(sum, count)| *sum += count);
}

/// A failure and how to see it again.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was tried.
    what: String,
    /// Seed of the strike.
    seed: u64,
    /// The plan, with its graph and limits, as `.mfp`; a mutant without the steps that don't matter.
    replay: String,
}

/// What a run of the hammer has found.
#[derive(Clone, Debug)]
pub struct Report {
    /// Good plans of the testkit's own generator.
    own: Row,
    /// Random schedules.
    schedules: Row,
    /// Plans that each strategy has a part in, in the order of the families.
    strategies: Vec<Row>,
    /// Good plans that the judge refused, or that were wrong.
    refused: u64,
    /// A placer returned nothing, as pins or banks permit it to.
    unplaced: u64,
    mutants: Vec<Row>,
    /// Mutants that were rejected by one rule alone.
    rules: Vec<Row>,
    plans: u64,
    seed: u64,
    took: Duration,
    /// The first failures.
    failures: Vec<Failure>,
}

impl Report {
    fn new(seed: u64) -> Report {
        Report {
            own: Row::default(),
            schedules: Row::default(),
            strategies: vec![Row::default(); STRATEGIES.names.len()],
            refused: 0,
            unplaced: 0,
            mutants: vec![Row::default(); MUTATORS.len()],
            rules: vec![Row::default(); Rule::ALL.len()],
            plans: 0,
            seed,
            took: Duration::ZERO,
            failures: Vec::new(),
        }
    }

    /// Whether the judge is right.
    ///
    /// # Errors
    ///
    /// If a good plan was refused or a wrong one accepted.
    pub fn verdict(&self) -> anyhow::Result<()> {
        let (refused, holes) = (self.refused, self.holes());
        anyhow::ensure!(
            refused == 0 && holes == 0,
            "{refused} good plans refused, {holes} wrong plans accepted"
        );
        Ok(())
    }

    /// Verdicts by whose plans they are of, as a Markdown table.
    #[must_use]
    pub fn sums(&self) -> String {
        let mut rows =
            vec![("the testkit's own".to_owned(), self.own), ("random schedules".to_owned(), self.schedules)];
        for (name, row) in STRATEGIES.names.iter().zip(&self.strategies) {
            let family = name.split(':').next().unwrap_or_default();
            match rows.last_mut().filter(|(last, _)| last == family) {
                Some((_, sum)) => add(sum, row),
                None => rows.push((family.to_owned(), *row)),
            }
        }
        let mut mutants = Row::default();
        self.mutants.iter().for_each(|row| add(&mut mutants, row));
        rows.push(("mutants".to_owned(), mutants));
        let head = "| plans of | accepted, right | accepted, wrong | rejected, wrong | rejected, right |\n|---|--:|--:|--:|--:|\n";
        let line = |(name, [wrong, right, good, holes]): &(String, Row)| {
            format!("| {name} | {good} | {holes} | {wrong} | {right} |\n")
        };
        rows.iter().map(line).fold(head.to_owned(), |text, line| text + &line)
    }

    /// Wrong plans that the judge accepted.
    fn holes(&self) -> u64 {
        self.mutants.iter().map(|row| row[Verdict::AcceptedWrong as usize]).sum()
    }

    fn merge(mut self, other: Report) -> Report {
        add(&mut self.own, &other.own);
        add(&mut self.schedules, &other.schedules);
        for (mine, theirs) in [
            (&mut self.strategies, &other.strategies),
            (&mut self.mutants, &other.mutants),
            (&mut self.rules, &other.rules),
        ] {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| add(mine, theirs));
        }
        self.refused += other.refused;
        self.unplaced += other.unplaced;
        self.plans += other.plans;
        self.failures.extend(other.failures);
        self.failures.sort_by_key(|failure| failure.seed);
        self.failures.truncate(SHOWN);
        self
    }

    fn good(&mut self, truth: &Truth, case: &Case, seed: u64, what: impl Fn() -> String) -> Verdict {
        let (verdict, _) = try_plan(truth, case);
        self.plans += 1;
        if verdict != Verdict::AcceptedRight {
            // Not made smaller: without one of its steps it may be refused with good reason.
            self.refuse(format!("GOOD REFUSED ({verdict:?}): {}", what()), seed, case.replay());
        }
        verdict
    }

    fn refuse(&mut self, what: String, seed: u64, replay: String) {
        self.refused += 1;
        self.failures.push(Failure { what, seed, replay });
    }

    fn spoil(&mut self, truth: &Truth, case: &Case, seed: u64, rng: &mut Rng, count: usize) {
        for _ in 0..count {
            let Some((which, mutant)) = mutant(case, rng) else { continue };
            let (verdict, rule) = try_plan(truth, &mutant);
            if let Some(at) = Rule::ALL.iter().position(|(known, _)| Some(*known) == rule) {
                self.rules[at][verdict as usize] += 1;
            }
            self.plans += 1;
            self.mutants[which][verdict as usize] += 1;
            if verdict == Verdict::AcceptedWrong {
                let what = format!("ACCEPTED WRONG: {}", MUTATORS[which].0);
                let small = shrink(&mutant, |case| try_plan(truth, case).0 == Verdict::AcceptedWrong);
                self.failures.push(Failure { what, seed, replay: small.replay() });
            }
        }
    }
}

/// Tries at least `plans` plans, the same ones for the same `seed`, on all cores. What is found stands in the report.
#[must_use]
pub fn run(plans: u64, seed: u64) -> Report {
    let started = Instant::now();
    let mut report = Report::new(seed);
    let mut first = seed.wrapping_mul(1 << 32);
    while report.plans < plans {
        let seeds = first..first.saturating_add(BATCH);
        let batch = seeds.into_par_iter().map(strike).reduce(|| Report::new(seed), Report::merge);
        report = report.merge(batch);
        first = first.wrapping_add(BATCH);
    }
    report.took = started.elapsed();
    report
}

fn strike(seed: u64) -> Report {
    let mut report = Report::new(seed);
    let mut rng = Rng::new(!seed);
    let own = case(seed);
    let truth = Truth::of(&own.graph);
    let verdict = report.good(&truth, &own, seed, || "own program".to_owned());
    report.own[verdict as usize] += 1;
    report.spoil(&truth, &own, seed, &mut rng, MUTANTS.0);

    let graph = Arc::new(graph(rng.bits()));
    strike_graph(&mut report, &graph, seed, &mut rng, seed.is_multiple_of(SCHEDULED));
    if seed.is_multiple_of(MOVED) {
        let (graph, device) = spacious(&mut rng);
        let (truth, context) = (Truth::of(&graph), Context { seed, ..Context::new(&device) });
        strike_scheduler(&mut report, &STRATEGIES.moves, (&graph, &truth), seed, &mut rng, &context);
    }
    report
}

/// What a strike does to a graph that is given: a few orders, placers, and schedulers that only run ops again.
#[must_use]
pub fn on_graph(graph: &Arc<Graph>, seed: u64) -> Report {
    let mut report = Report::new(seed);
    strike_graph(&mut report, graph, seed, &mut Rng::new(!seed), true);
    report
}

fn strike_graph(report: &mut Report, graph: &Arc<Graph>, seed: u64, rng: &mut Rng, is_scheduled: bool) {
    let (truth, device) = (Truth::of(graph), device());
    let context = Context { seed, ..Context::new(&device) };
    for _ in 0..PAIRS {
        let (order, placer) = (any(&STRATEGIES.orders, rng), any(&STRATEGIES.placers, rng));
        let in_place = if rng.chance(50) { InPlace::May } else { InPlace::Must };
        let align = Bytes([1, 16, 64][rng.below(3)]);
        let program = Program::in_order(graph, &order.1.order(graph, &context), in_place);
        let Some(case) = placed(graph, program, placer.1, align, &context) else {
            report.unplaced += 1;
            continue;
        };
        let name = || format!("{} × {}, {in_place:?}", STRATEGIES.names[order.0], STRATEGIES.names[placer.0]);
        let verdict = report.good(&truth, &case, seed, name);
        report.strategies[order.0][verdict as usize] += 1;
        report.strategies[placer.0][verdict as usize] += 1;
        report.spoil(&truth, &case, seed, rng, MUTANTS.1);
    }
    strike_schedule(report, graph, &truth, seed, rng, &context);
    if is_scheduled {
        strike_scheduler(report, &STRATEGIES.runs, (graph, &truth), seed, rng, &context);
    }
}

/// The plan of `program` that a placer makes of it; seeded ops may run again, and copies fit exactly.
fn placed(
    graph: &Arc<Graph>,
    program: Program,
    placer: &dyn Placer,
    align: Bytes,
    context: &Context<'_>,
) -> Option<Case> {
    let (problem, item_of) = Problem::of(graph, &program, &Limits::arena(Bytes::MAX, align));
    let placement = placer.place(&problem, context).ok().filter(|found| found.height <= LARGEST)?;
    let layout = Problem::layout(&placement.places, &item_of);
    let plan = Plan { graph: graph.digest(), program, layout };
    let mut limits = Limits::arena(placement.height, align);
    (limits.host, limits.disk) = (peak_of_copies(&plan, Tier::Host), peak_of_copies(&plan, Tier::Disk));
    limits.replays_random = true;
    Some(Case { graph: Arc::clone(graph), limits, plan })
}

/// A random schedule with stores, loads and encodings.
fn strike_schedule(
    report: &mut Report,
    graph: &Arc<Graph>,
    truth: &Truth,
    seed: u64,
    rng: &mut Rng,
    context: &Context<'_>,
) {
    let schedule = schedule(graph, true, rng);
    let in_place = [InPlace::Must, InPlace::SoleReader, InPlace::May][rng.below(3)];
    let (placer, align) = (any(&STRATEGIES.placers, rng).1, Bytes([1, 16, 64][rng.below(3)]));
    let program = match schedule.program(graph, in_place) {
        Ok(program) => program,
        Err(fault) => {
            report.schedules[Verdict::RejectedRight as usize] += 1;
            report.refuse(format!("NO PROGRAM: {fault} in {schedule:?}"), seed, String::new());
            return;
        }
    };
    let Some(case) = placed(graph, program, placer, align, context) else {
        report.unplaced += 1;
        return;
    };
    let verdict = report.good(truth, &case, seed, || format!("{in_place:?}, {schedule:?}"));
    report.schedules[verdict as usize] += 1;
    report.spoil(truth, &case, seed, rng, MUTANTS.0);
}

/// A graph whose values are large enough to be moved, and a device with a link that is fast or slow.
fn spacious(rng: &mut Rng) -> (Arc<Graph>, Device) {
    let ops = 4 + rng.below(24);
    let shape = Layered { ops, edges: ops * 2, layers: ops / 2, skips: 60, unit: 64, sparse: ops % 4 };
    // Half of them with parameters and state.
    let lasts = rng.chance(50);
    let graph = if lasts { trained(1 + ops / 6, 64, rng.bits()) } else { layered(shape, rng.bits()) };
    let graph = Arc::new(graph);
    let bandwidth = [4e9, 4e8][rng.below(2)];
    let link = Link {
        out_bandwidth: bandwidth,
        in_bandwidth: bandwidth,
        duplex_cap: f64::INFINITY,
        latency: Nanos(100),
        asynchronous: rng.chance(70),
    };
    let host_memory = Bytes([1 << 30, 64 << 10][rng.below(2)]);
    let slow = Link { out_bandwidth: bandwidth / 5.0, in_bandwidth: bandwidth / 5.0, ..link };
    let disk = rng.chance(30).then_some(Store { capacity: Bytes(1 << 20), link: slow });
    (graph, Device { link: Some(link), host_memory, disk, ..device() })
}

/// What one of `schedulers` finds between what can be done with at all and the plain schedule's peak.
fn strike_scheduler(
    report: &mut Report,
    schedulers: &Rows<dyn Scheduler>,
    (graph, truth): (&Arc<Graph>, &Truth),
    seed: u64,
    rng: &mut Rng,
    context: &Context<'_>,
) {
    let order: Vec<OpId> = graph.op_ids().collect();
    let in_place = if rng.chance(50) { InPlace::May } else { InPlace::Must };
    let task = Task::new(graph, &order, in_place, true, context);
    let Some(plain) = RunList::plain(&task).cost(&task) else { return };
    let (least, floor) = (task.least(), task.floor().0);
    let part = rng.below(5) as u64;
    let budget = match rng.chance(40) {
        true => Bytes(least.0 + (floor.0 - least.0) * part / 4),
        false => Bytes(floor.0 + (plain.peak.0 - floor.0) * part / 4),
    };
    let (row, scheduler) = any(schedulers, rng);
    let Ok(front) = scheduler.plan(&task, budget, context) else { return };
    for point in &front.points {
        let name = || format!("{} within {budget}", STRATEGIES.names[row]);
        let Some(program) = point.program(&task) else {
            report.strategies[row][Verdict::RejectedRight as usize] += 1;
            report.refuse(name(), seed, String::new());
            continue;
        };
        let placer = any(&STRATEGIES.placers, rng).1;
        let Some(case) = placed(graph, program, placer, context.device.align, context) else { continue };
        let verdict = report.good(truth, &case, seed, name);
        report.strategies[row][verdict as usize] += 1;
        report.spoil(truth, &case, seed, rng, if point.moved.is_some() { MUTANTS.0 } else { MUTANTS.1 });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:26} {:>10} {:>10} {:>10} {:>10}", "", "rejected", "rejected", "accepted", "ACCEPTED")?;
        writeln!(f, "{:26} {:>10} {:>10} {:>10} {:>10}", "", "wrong", "right", "right", "WRONG")?;
        let mut rows = vec![("own programs", self.own), ("schedules", self.schedules)];
        rows.extend(STRATEGIES.names.iter().map(String::as_str).zip(self.strategies.iter().copied()));
        let good = rows.len();
        rows.extend(MUTATORS.iter().zip(&self.mutants).map(|((name, _), row)| (*name, *row)));
        let mut sum = Row::default();
        for (at, (name, row)) in rows.iter().enumerate() {
            match at {
                0 => writeln!(f, "good plans")?,
                at if at == good => writeln!(f, "mutants")?,
                _ => {}
            }
            if at >= good {
                add(&mut sum, row);
            }
            writeln!(f, "  {name:24} {:>10} {:>10} {:>10} {:>10}", row[0], row[1], row[2], row[3])?;
        }
        writeln!(f, "  {:24} {:>10} {:>10} {:>10} {:>10}", "all mutants", sum[0], sum[1], sum[2], sum[3])?;
        writeln!(f, "mutants that one rule alone rejects")?;
        for ((rule, name), row) in Rule::ALL.iter().zip(&self.rules) {
            let name = format!("{rule} {name}");
            writeln!(f, "  {name:24} {:>10} {:>10}", row[0], row[1])?;
        }
        let seconds = self.took.as_secs_f64();
        let rate = self.plans as f64 / seconds.max(1e-9);
        writeln!(
            f,
            "{} plans in {seconds:.1} s, {rate:.0} plans/s, seed {}; {} without a placement",
            self.plans, self.seed, self.unplaced
        )?;
        writeln!(f, "GOOD REFUSED: {}", self.refused)?;
        writeln!(f, "ACCEPTED WRONG: {}", self.holes())?;
        for Failure { what, seed, replay } in &self.failures {
            writeln!(f, "\n; {what}, strike {seed}\n{replay}")?;
        }
        Ok(())
    }
}
