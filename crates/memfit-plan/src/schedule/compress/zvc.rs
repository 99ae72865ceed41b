//! All that is sparse waits without its zeros, whatever the budget.
//!
//! Source: between forward and backward, Jain, Phanishayee, Mars, Tang and Pekhimenko, "Gist: Efficient Data Encoding for Deep
//! Neural Network Training", ISCA 2018, its sparse storage of maps, with zero-value compression in place of narrow columns, which
//! is smaller for all but the emptiest maps. Between any two uses, Akin, Chishti and Alameldeen, "ZCOMP: Reducing DNN
//! Cross-Layer Memory Footprint Using Vector Extensions", MICRO 2019, here in software. We differ: a map is whatever the graph says is
//! sparse. Time O(gaps). Wrong choice where less would do: the budget changes nothing.

use memfit_ir::{Bytes, Codec};

use super::{Codecs, Front, Infeasible, Scheduler, Task, every, maps};
use crate::{Context, Info};

/// Nothing else, whatever is allowed.
const ZVC: Codecs = Codecs::of(&[Codec::Zvc]);

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Zvc {
    info: Info,
    /// Whether only what waits for the backward pass is encoded.
    maps: bool,
}

impl Zvc {
    /// What waits for the backward pass.
    pub const MAPS: Zvc = Zvc {
        info: Info {
            name: "zvc",
            summary: "every sparse map waits for its backward use without its zeros",
            source: "Jain et al., Gist, ISCA 2018",
            year: 2018,
        },
        maps: true,
    };

    /// Also what goes from layer to layer.
    pub const ALL: Zvc = Zvc {
        info: Info {
            name: "zcomp",
            summary: "every sparse value waits without its zeros between any two uses",
            source: "Akin et al., ZCOMP, MICRO 2019",
            year: 2019,
        },
        maps: false,
    };
}

impl Scheduler for Zvc {
    fn info(&self) -> Info {
        self.info
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        if self.maps { maps(task, ZVC, budget, context) } else { every(task, ZVC, |_| true, budget, context) }
    }
}
