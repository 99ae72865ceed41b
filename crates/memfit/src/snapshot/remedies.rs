//! What each remedy would give. Each figure says how far it can be trusted.

use memfit_formats::csv::CsvBuffer;
use memfit_ir::{Bank, Bytes, Device};
use memfit_plan::place::{Item, Problem};
use memfit_plan::{Context, families};

use super::timeline::{Buffer, Timeline, UNIT};
use super::{Held, SnapshotRole};
use crate::planner::place_with;
use crate::{Failure, PlaceGoal, Tools, input, place};

/// How far a figure can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// Read from the snapshot.
    Recorded,
    /// Computed and verified for these allocations: the same ones give the same figure.
    Exact,
    /// A model of an allocator.
    Estimate,
    /// It can't get lower by this means; how near it gets depends on what the snapshot doesn't tell.
    Bound,
}

impl Certainty {
    /// As reports name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Certainty::Recorded => "recorded",
            Certainty::Exact => "exact",
            Certainty::Estimate => "estimate",
            Certainty::Bound => "bound",
        }
    }
}

/// Something that makes the step smaller, or a figure to compare with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRemedy {
    /// Short name.
    pub name: &'static str,
    /// What it is.
    pub what: String,
    /// Bytes of device memory that PyTorch takes with it.
    pub peak: Bytes,
    /// How far that can be trusted.
    pub certainty: Certainty,
}

/// Requests up to this many bytes have a pool of their own.
const SMALL: Bytes = Bytes(1 << 20);
/// What growing segments grow by: in the pool of small requests, and in that of large ones.
const PAGES: [Bytes; 2] = [Bytes(2 << 20), Bytes(20 << 20)];
/// Searching offsets for more buffers than this takes longer than anyone waits.
const SEARCHED: usize = 200_000;

/// The rows, from nothing at all to what would cost time.
pub(super) fn remedies(
    timeline: &Timeline,
    roles: &[SnapshotRole],
    held: &Held,
    tools: &Tools<'_>,
) -> Result<Vec<SnapshotRemedy>, Failure> {
    let row =
        |name, what: &str, peak, certainty| SnapshotRemedy { name, what: what.to_owned(), peak, certainty };
    let what = match timeline.failed {
        None => "what PyTorch held from the driver at most",
        Some(_) => "what PyTorch held from the driver, and what it could not get",
    };
    let mut rows = vec![row("none", what, timeline.needed, Certainty::Recorded)];
    if timeline.until > 1 {
        let (placer, what) = if timeline.buffers.len() <= SEARCHED {
            ("best", "one arena with planned offsets for these very allocations, verified")
        } else {
            (
                "best-fit",
                "one arena for these allocations, too many to search: best fit in their order, verified",
            )
        };
        if !held.expandable {
            rows.push(row(
                "expandable",
                "`PYTORCH_ALLOC_CONF=expandable_segments:True`: best fit in segments that grow",
                expandable(timeline, tools)?,
                Certainty::Estimate,
            ));
        }
        rows.push(row("place", what, planned(timeline, placer, tools)?, Certainty::Exact));
    }
    rows.push(row("live", "live bytes, with no fragmentation at all", timeline.peak, Certainty::Exact));
    let without = |gone: SnapshotRole| {
        let keeps = |index: usize| roles[index] != gone;
        let largest =
            (0..roles.len()).filter(|&index| !keeps(index)).map(|index| timeline.buffers[index].size).max();
        largest.map(|largest| (timeline.peak_of(keeps).0 + largest).min(timeline.peak))
    };
    for (name, what, role) in [
        (
            "recompute",
            "activations made again instead of kept: all but the largest one gone",
            SnapshotRole::Activation,
        ),
        (
            "offload-state",
            "optimizer state in host memory: all but the largest buffer gone",
            SnapshotRole::State,
        ),
        (
            "offload-weights",
            "parameters in host memory: all but the largest one gone",
            SnapshotRole::Parameter,
        ),
    ] {
        if let Some(peak) = without(role) {
            rows.push(row(name, what, peak, Certainty::Bound));
        }
    }
    Ok(rows)
}

/// What one arena with planned offsets takes.
fn planned(timeline: &Timeline, placer: &str, tools: &Tools<'_>) -> Result<Bytes, Failure> {
    let buffers: Vec<CsvBuffer> = timeline
        .buffers
        .iter()
        .enumerate()
        .map(|(index, buffer)| CsvBuffer {
            id: index.to_string(),
            lower: buffer.from as u64,
            upper: buffer.until as u64,
            size: buffer.size,
            ..CsvBuffer::default()
        })
        .collect();
    let goal = PlaceGoal { capacity: None, align: UNIT, placer: placer.to_owned(), seed: 0, effort: 1 };
    Ok(place(&buffers, &goal, tools)?.peak)
}

/// What segments that grow would take: in each pool best fit in one range of addresses, whole pages of it.
fn expandable(timeline: &Timeline, tools: &Tools<'_>) -> Result<Bytes, Failure> {
    let device = Device { align: UNIT, ..input::device("CPU")? };
    let context = Context { stop: tools.stop, ..Context::new(&device) };
    let time = |time: usize| u32::try_from(time).unwrap_or(u32::MAX);
    let mut sum = Bytes::ZERO;
    for (large, page) in [false, true].into_iter().zip(PAGES) {
        let pool = timeline.buffers.iter().filter(|buffer| (buffer.size > SMALL) == large);
        let item = |buffer: &Buffer| Item {
            from: time(buffer.from),
            until: time(buffer.until),
            size: buffer.size,
            pin: None,
        };
        let bank = Bank { name: "segment".into(), capacity: Bytes::MAX, align: UNIT };
        let problem = Problem::new(pool.map(item).collect(), vec![bank]);
        if !problem.items.is_empty() {
            sum += place_with(families::placer("best-fit")?, &problem, &context)?.height.round_up(page);
        }
    }
    Ok(sum)
}
