//! Every map waits for its backward use in few bits, whatever the budget.
//!
//! Source: Chen, Zheng, Yao, Wang, Stoica, Mahoney and Gonzalez, "ActNN: Reducing Training Memory Footprint via 2-Bit Activation
//! Compressed Training", ICML 2021: groups of 256 between their least and most, rounded at random. We differ: the bits are those of the
//! codecs that are allowed, the fewest of them for all maps; and what a ReLU makes has an exact mask beside, if one with a mask is allowed,
//! or is held by its signs where no more is read. Time O(gaps × codecs). Wrong choice where less would do: the budget changes nothing.

use memfit_ir::{Bytes, Codec};

use super::{Codecs, Front, Infeasible, Scheduler, Task, maps};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct ActNn;

/// Codecs of few bits, with those that keep signs for nothing.
const QUANTISED: Codecs =
    Codecs::of(&[Codec::Int8, Codec::Int4, Codec::Int2, Codec::Int8Mask, Codec::Int4Mask, Codec::Int2Mask]);

impl Scheduler for ActNn {
    fn info(&self) -> Info {
        Info {
            name: "actnn",
            summary: "every map waits for its backward use in the fewest bits that are allowed, rounded at random",
            source: "Chen et al., ActNN, ICML 2021",
            year: 2021,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let lossy = Codecs::allowed(context).among(QUANTISED);
        if lossy.is_empty() {
            return Err(Infeasible::because(task, budget, "no codec of few bits is allowed"));
        }
        maps(task, lossy.and(Codecs::of(&[Codec::Binarize])), budget, context)
    }
}
