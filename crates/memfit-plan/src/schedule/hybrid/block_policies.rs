//! One rule for all blocks, whatever the budget: everything runs again, all but products, or everything waits elsewhere.
//!
//! Source: the memory policies of pytorch/torchtitan's graph trainer (package 0.3.0, 2026), which ask for no budget: `full`, `default`
//! (selective activation checkpointing, as Korthikanti et al., arXiv:2205.05198, introduced it) and `sac_and_offload`. Blocks and lowering
//! are those of `two_level/mod.rs`; what a block hands to another stays. We differ: all products and attention are kept, not every
//! second product, and host memory has room for all. Time O(operands). No choice, so no ties. Wrong choice for every budget but one.

use memfit_ir::Bytes;

use super::two_level::{Candidate, Fate, ruled};
use super::{Front, Infeasible, Layer, Scheduler, Task};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct BlockPolicy {
    name: &'static str,
    summary: &'static str,
    rule: Rule,
}

/// What becomes of a block's values.
#[derive(Clone, Copy, Debug)]
enum Rule {
    Full,
    Selective,
    SelectiveOffload,
    Offload,
}

impl BlockPolicy {
    /// `full`: checkpointing of every block.
    pub const FULL: BlockPolicy = BlockPolicy {
        name: "full-blocks",
        summary: "every block is checkpointed: all that it does not hand on runs again",
        rule: Rule::Full,
    };

    /// `default`: selective checkpointing.
    pub const SELECTIVE: BlockPolicy = BlockPolicy {
        name: "selective-blocks",
        summary: "of every block, all runs again but products, convolutions and attention",
        rule: Rule::Selective,
    };

    /// `sac_and_offload`.
    pub const SELECTIVE_OFFLOAD: BlockPolicy = BlockPolicy {
        name: "selective-offload-blocks",
        summary: "the same, and what it keeps waits in host memory, but for the last block",
        rule: Rule::SelectiveOffload,
    };

    /// All waits in host memory.
    pub const OFFLOAD: BlockPolicy = BlockPolicy {
        name: "offload-blocks",
        summary: "all that every block keeps waits in host memory",
        rule: Rule::Offload,
    };

    fn fate(self, task: &Task<'_>, candidate: &Candidate, is_last: bool) -> Fate {
        let producer = task.producer[candidate.value.index()];
        let is_dear = producer.is_none_or(|node| task.layer(node) != Layer::Cheap);
        let moved = if candidate.may_move { Fate::Moved } else { Fate::Kept };
        let again = if candidate.may_run { Fate::Again } else { Fate::Kept };
        match self.rule {
            Rule::Full => again,
            Rule::Selective if is_dear => Fate::Kept,
            Rule::SelectiveOffload if is_dear && !is_last => moved,
            Rule::SelectiveOffload if is_dear => Fate::Kept,
            Rule::Selective | Rule::SelectiveOffload => again,
            Rule::Offload => moved,
        }
    }
}

impl Scheduler for BlockPolicy {
    fn info(&self) -> Info {
        let source = "PyTorch, torchtitan graph_trainer 0.3.0, memory policies";
        Info { name: self.name, summary: self.summary, source, year: 2026 }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        ruled(task, budget, context, |candidate, is_last| self.fate(task, candidate, is_last))
    }
}
