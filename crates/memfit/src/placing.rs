//! Offsets for a bare list of buffers, verified as everything else is.

use std::collections::BTreeMap;

use memfit_formats::FormatError;
use memfit_formats::csv::CsvBuffer;
use memfit_ir::{
    Bank, BufferId, Bytes, Content, Device, Graph, GraphBuilder, Limits, OpSpec, Pin, Plan, Program, Role,
    Step, ValueId, ValueSpec, text,
};
use memfit_plan::Context;
use memfit_plan::families;
use memfit_plan::place::{Item, Placement, Problem};
use memfit_verify::verify;

use crate::failure::Infeasible;
use crate::planner::place_with;
use crate::{Failure, Tools};

/// What to place, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceGoal {
    /// Memory capacity, if there is a limit. A layout that fits is good enough.
    pub capacity: Option<Bytes>,
    /// Every offset is a multiple of this, and of every alignment that a row asks for.
    pub align: Bytes,
    /// Name of the placer.
    pub placer: String,
    /// Random seed.
    pub seed: u64,
    /// How much work searches do, in multiples of their default.
    pub effort: u32,
}

/// Verified offsets.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// One for each buffer, in the order they were given.
    pub offsets: Vec<Bytes>,
    /// Bytes they need.
    pub peak: Bytes,
    /// Largest sum of live sizes.
    pub live_peak: Bytes,
    /// No layout needs less.
    pub lower_bound: Bytes,
    /// What it takes without sharing.
    pub naive: Bytes,
    /// Seconds of planning, the verifier included.
    pub seconds: f64,
}

/// Gives each buffer an offset such that buffers live at the same time don't overlap.
///
/// # Errors
///
/// [`Failure::Infeasible`] if the best layout found exceeds the capacity; [`Failure::Usage`] for an unknown
/// placer; [`Failure::Input`] for sizes whose sum is beyond measure.
pub fn place(buffers: &[CsvBuffer], goal: &PlaceGoal, tools: &Tools<'_>) -> Result<Placed, Failure> {
    let started = (tools.now)();
    let placer = families::placer(&goal.placer)?;
    let align = alignment(buffers, goal.align)?;
    let bank = Bank { name: "memory".into(), capacity: goal.capacity.unwrap_or(Bytes::MAX), align };
    let problem = problem(buffers, bank);
    let lower_bound = problem.lower_bound();
    let device = Device { align, ..crate::input::device("CPU")? };
    let context = Context {
        seed: goal.seed,
        stop: tools.stop,
        effort: goal.effort,
        enough: goal.capacity.unwrap_or_default(),
        ..Context::new(&device)
    };
    (tools.progress)(placer.info().name);
    let placement = place_with(placer, &problem, &context)?;
    if let Some(capacity) = goal.capacity
        && placement.height > capacity
    {
        let (needed, floor) = (placement.height, placement.bound.max(lower_bound));
        let infeasible = Infeasible {
            proved: capacity < floor,
            ..Infeasible::new(capacity, needed, floor, "layout of these buffers")
        };
        return Err(Failure::Infeasible(Box::new(infeasible)));
    }
    (tools.progress)("verify");
    judge(&problem, &placement, placer.info().name)?;
    Ok(Placed {
        offsets: placement.places.iter().map(|place| place.offset).collect(),
        peak: placement.height,
        live_peak: lower_bound,
        lower_bound: placement.bound.max(lower_bound),
        naive: problem.total(),
        seconds: (tools.now)() - started,
    })
}

/// The largest alignment: rounded up to it, no sum of sizes that are allowed is beyond measure.
const MOST_ALIGN: u64 = 1 << 40;

/// One alignment that serves all rows: the least common multiple of theirs and the one asked for.
fn alignment(buffers: &[CsvBuffer], asked: Bytes) -> Result<Bytes, Failure> {
    let (mut all, mut last) = (asked.0.max(1), 1);
    for align in buffers.iter().filter_map(|buffer| buffer.align.map(|align| align.0.max(1))) {
        if align == last {
            continue;
        }
        last = align;
        let (mut a, mut b) = (all, align);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        let too_much = || FormatError::new("", "the alignments have no common multiple below 2^64");
        all = (all / a).checked_mul(align).ok_or_else(too_much)?;
    }
    if all > MOST_ALIGN {
        return Err(Failure::usage(
            format!("an alignment of {all} bytes is beyond all memory"),
            format!("at most {MOST_ALIGN}"),
        ));
    }
    Ok(Bytes(all))
}

/// The problem that the rows state, with times replaced by their rank.
fn problem(buffers: &[CsvBuffer], bank: Bank) -> Problem {
    let mut times: Vec<u64> = buffers.iter().flat_map(|buffer| [buffer.lower, buffer.upper]).collect();
    times.sort_unstable();
    times.dedup();
    let rank = |time: u64| u32::try_from(times.partition_point(|&other| other < time)).unwrap_or(u32::MAX);
    let items = buffers.iter().map(|buffer| Item {
        from: rank(buffer.lower),
        until: rank(buffer.upper),
        size: buffer.size,
        pin: buffer.pin.map(|offset| Pin { bank: 0, offset: Some(offset) }),
    });
    Problem::new(items.collect(), vec![bank])
}

/// Has the verifier run the list as a program: at each time one op reads everything that ends there, and one op
/// writes everything that begins there. So each buffer must hold its value up to its very end.
fn judge(problem: &Problem, placement: &Placement, placer: &str) -> Result<(), Failure> {
    let claim = || {
        let (graph, program, item_of) =
            build(problem).map_err(|error| FormatError::new("", error.to_string()))?;
        let layout = Problem::layout(&placement.places, &item_of);
        let plan = Plan { graph: graph.digest(), program, layout };
        Ok::<_, FormatError>((graph, plan))
    };
    let mut banks = problem.banks.clone();
    banks[0].capacity = banks[0].capacity.min(placement.height);
    let limits = Limits { banks, ..Limits::arena(Bytes::ZERO, Bytes(1)) };
    let (graph, plan) = claim()?;
    let Err(rejected) = verify(&graph, &limits, plan) else { return Ok(()) };
    // The judge keeps what it read; a report is rare enough to make the claim again.
    let (graph, plan) = claim()?;
    let replay = text::print(Some(&limits), Some(&graph), Some(&plan));
    Err(Failure::Bug { pass: format!("place:{placer}"), rejected, replay })
}

fn build(problem: &Problem) -> Result<(Graph, Program, Vec<usize>), memfit_ir::GraphError> {
    let mut begins: BTreeMap<u32, (Vec<usize>, Vec<usize>)> = BTreeMap::new(); // time → (ends, begins)
    let live = |item: &Item| item.from < item.until;
    for (index, item) in problem.items.iter().enumerate().filter(|(_, item)| live(item)) {
        begins.entry(item.from).or_default().1.push(index);
        begins.entry(item.until).or_default().0.push(index);
    }
    let mut builder = GraphBuilder::new("buffers");
    let mut program = Program::default();
    let mut item_of: Vec<usize> = Vec::new();
    let mut made: Vec<Option<(ValueId, BufferId)>> = vec![None; problem.items.len()];
    for (ends, begins) in begins.into_values() {
        let gone: Vec<(ValueId, BufferId)> = ends.iter().filter_map(|&index| made[index]).collect();
        if !gone.is_empty() {
            let reads = gone.iter().map(|(value, _)| *value).collect();
            let op = builder.op(OpSpec { kind: "end".into(), reads, ..OpSpec::default() })?;
            let step = program.compute(op, 0, gone.iter().map(|(_, buffer)| *buffer), [], None);
            program.steps.push(step);
            program.steps.extend(gone.iter().map(|(_, buffer)| Step::Free(*buffer)));
        }
        let mut writes = Vec::with_capacity(begins.len());
        let mut buffers = Vec::with_capacity(begins.len());
        for index in begins {
            let Item { size, pin, .. } = problem.items[index];
            let value =
                builder.value(ValueSpec { size, pin, role: Role::Activation, ..ValueSpec::default() })?;
            let buffer = program.buffer(Content::Value(value), size, None);
            item_of.push(index);
            made[index] = Some((value, buffer));
            writes.push(value);
            buffers.push(buffer);
        }
        if !writes.is_empty() {
            let op = builder.op(OpSpec { kind: "begin".into(), writes, ..OpSpec::default() })?;
            let step = program.compute(op, 0, [], buffers, None);
            program.steps.push(step);
        }
    }
    Ok((builder.finish()?, program, item_of))
}
