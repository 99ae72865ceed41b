//! Ways to spoil a plan, each small. Some of what comes out is still right.

mod homes;
mod limits;
mod places;
mod steps;
mod waits;

use memfit_ir::{BufferId, CopyId, Graph, Limits, Place, ValueId};

use crate::{Act, Draft, Rng};

/// What a mutator works on.
#[derive(Debug)]
pub struct Patient<'a> {
    /// The graph, which stays as it is.
    pub graph: &'a Graph,
    /// The plan.
    pub draft: &'a mut Draft,
    /// What the plan must keep to.
    pub limits: &'a mut Limits,
    /// Where chance comes from.
    pub rng: &'a mut Rng,
}

/// Changes something; `None` if there was nothing of the kind.
pub type Mutator = fn(&mut Patient<'_>) -> Option<()>;

/// Every mutator with its name, in the order of the hammer's table.
pub const MUTATORS: &[(&str, Mutator)] = &[
    ("move buffer", places::move_buffer),
    ("nudge buffer", places::nudge_buffer),
    ("alias buffers", places::alias_buffers),
    ("swap places", places::swap_places),
    ("change bank", places::change_bank),
    ("far place", places::far_place),
    ("short layout", places::short_layout),
    ("resize buffer", places::resize_buffer),
    ("resize copy", places::resize_copy),
    ("claim of buffer", places::claim_of_buffer),
    ("claim of copy", places::claim_of_copy),
    ("codec", places::codec),
    ("drop over", steps::drop_over),
    ("set over", steps::set_over),
    ("drop step", steps::drop_step),
    ("duplicate step", steps::duplicate_step),
    ("move step", steps::move_step),
    ("swap steps", steps::swap_steps),
    ("drop free", steps::drop_free),
    ("early free", steps::early_free),
    ("drop compute", steps::drop_compute),
    ("repeat compute", steps::repeat_compute),
    ("change op", steps::change_op),
    ("retarget read", steps::retarget_read),
    ("swap reads", steps::swap_reads),
    ("retarget write", steps::retarget_write),
    ("swap writes", steps::swap_writes),
    ("drop operand", steps::drop_operand),
    ("add operand", steps::add_operand),
    ("drop workspace", steps::drop_workspace),
    ("borrow workspace", steps::borrow_workspace),
    ("algorithm", steps::algorithm),
    ("retarget transfer", waits::retarget_transfer),
    ("drop transfer", waits::drop_transfer),
    ("late transfer", waits::late_transfer),
    ("drop await", waits::drop_await),
    ("retarget await", waits::retarget_await),
    ("late await", waits::late_await),
    ("lane", waits::lane),
    ("await on lane", waits::await_on_lane),
    ("resident", limits::resident),
    ("parked", limits::parked),
    ("park source", homes::park_source),
    ("stale home", homes::stale_home),
    ("wrong home", homes::wrong_home),
    ("wild id", limits::wild_id),
    ("shrink bank", limits::shrink_bank),
    ("shrink tier", limits::shrink_tier),
    ("another tier", limits::another_tier),
    ("no lossy", limits::no_lossy),
    ("no replay", limits::no_replay),
    ("align", limits::align),
    ("fewer lanes", limits::fewer_lanes),
];

impl Patient<'_> {
    fn line(&mut self, wanted: impl Fn(&Act) -> bool) -> Option<usize> {
        let lines = self.draft.lines.iter().enumerate();
        let found: Vec<usize> = lines.filter(|(_, line)| wanted(&line.act)).map(|(at, _)| at).collect();
        self.rng.pick(&found)
    }

    fn any_buffer(&mut self) -> Option<BufferId> {
        let count = self.draft.buffers.len();
        (count > 0).then(|| BufferId::at(self.rng.below(count)))
    }

    fn any_copy(&mut self) -> Option<CopyId> {
        let count = self.draft.copies.len();
        (count > 0).then(|| CopyId::at(self.rng.below(count)))
    }

    fn any_value(&mut self) -> ValueId {
        ValueId::at(self.rng.below(self.graph.value_count()))
    }

    /// Another buffer that claims the same as `buffer`, in half of the cases, or any.
    fn like(&mut self, buffer: BufferId) -> Option<BufferId> {
        let content = self.draft.buffers.get(buffer.index())?.content;
        let all = self.draft.buffers.iter().enumerate();
        let same: Vec<BufferId> = all
            .filter(|(at, other)| other.content == content && *at != buffer.index())
            .map(|(at, _)| BufferId::at(at))
            .collect();
        if self.rng.chance(50) && !same.is_empty() { self.rng.pick(&same) } else { self.any_buffer() }
    }

    fn place(&mut self) -> Option<&mut Place> {
        let count = self.draft.places.len();
        let at = self.rng.below(count);
        self.draft.places.get_mut(at)
    }

    fn align(&self, place: Place) -> u64 {
        self.limits.banks.get(usize::from(place.bank)).map_or(1, |bank| bank.align.0.max(1))
    }
}

fn is_compute(act: &Act) -> bool {
    matches!(act, Act::Compute { .. })
}

fn is_transfer(act: &Act) -> bool {
    matches!(act, Act::Offload { .. } | Act::Fetch { .. } | Act::Encode { .. } | Act::Decode { .. })
}
