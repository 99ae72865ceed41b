//! Every map waits for its backward use in few bits.
//!
//! Source: Chen, Zheng, Yao, Wang, Stoica, Mahoney and Gonzalez, "ActNN: Reducing Training Memory Footprint via 2-Bit Activation
//! Compressed Training", ICML 2021: groups of 256 between their least and most, rounded at random. We differ: the bits are those of the
//! codecs that are allowed, the fewest of them for all maps; and what a ReLU makes has an exact mask beside, if one with a mask is allowed,
//! or is held by its signs where no more is read. `gact`: Liu, Zheng, Wang, Cen, Chen, Han, Chen, Liu, Tang, Gonzalez, Mahoney and Cheung,
//! "GACT: Activation Compressed Training for Generic Network Architectures", ICML 2022, has no more error than the budget forces. We
//! differ: a graph doesn't say how sensitive gradients are to which map, so that all have as many bits, the most with which the step fits.
//! Time O(gaps × codecs), for each number of bits. Wrong choice where less would do: all maps are quantised.

use memfit_ir::{Bytes, Codec};

use super::{Codecs, Front, Infeasible, Scheduler, Task, maps};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct ActNn {
    info: Info,
    /// Whether no fewer bits are taken than the budget forces.
    enough: bool,
}

impl ActNn {
    /// As few bits as are allowed.
    pub const ALL: ActNn = ActNn {
        info: Info {
            name: "actnn",
            summary: "every map waits for its backward use in the fewest bits that are allowed, rounded at random",
            source: "Chen et al., ActNN, ICML 2021",
            year: 2021,
        },
        enough: false,
    };

    /// As many bits as there is room for.
    pub const ENOUGH: ActNn = ActNn {
        info: Info {
            name: "gact",
            summary: "the same in the most bits that are allowed and with which the step fits",
            source: "after Liu et al., GACT, ICML 2022",
            year: 2022,
        },
        enough: true,
    };
}

/// Codecs of few bits, from the most to the fewest, without a mask and with one.
const QUANTISED: [Codecs; 3] = [
    Codecs::of(&[Codec::Int8, Codec::Int8Mask]),
    Codecs::of(&[Codec::Int4, Codec::Int4Mask]),
    Codecs::of(&[Codec::Int2, Codec::Int2Mask]),
];

impl Scheduler for ActNn {
    fn info(&self) -> Info {
        self.info
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let allowed = Codecs::allowed(context);
        let each = QUANTISED.map(|codecs| codecs.among(allowed));
        let all = each.into_iter().fold(Codecs::of(&[]), Codecs::and);
        let trials = if self.enough { each.to_vec() } else { vec![all] };
        // With fewer bits there is more room.
        let mut missed = Infeasible::because(task, budget, "no codec of few bits is allowed");
        for codecs in trials.into_iter().filter(|codecs| !codecs.is_empty()) {
            match maps(task, codecs.and(Codecs::of(&[Codec::Binarize])), budget, context) {
                Ok(front) => return Ok(front),
                Err(why) => missed = why,
            }
        }
        Err(missed)
    }
}
