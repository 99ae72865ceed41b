//! Each map waits for its backward use in what makes it smallest: its signs, where no more is read; else without its zeros; and where
//! that is allowed in fewer bits.
//!
//! Source: Jain, Phanishayee, Mars, Tang and Pekhimenko, "Gist: Efficient Data Encoding for Deep Neural Network Training", ISCA 2018:
//! Binarize for what a ReLU gives to a pool, sparse storage for what it gives to a convolution, and reduced precision for all else,
//! delayed until the last forward use. We differ: who reads what is the graph's to say, not a table of layers; sparse values are held by
//! zero-value compression or in rows, whichever is smaller; and reduced precision is that of the codecs that are allowed. Maps are
//! decoded before their first backward use and stay. Time O(gaps × codecs). Wrong choice where less would do: the budget changes nothing.

use memfit_ir::Bytes;

use super::{Codecs, Front, Infeasible, Scheduler, Task, maps};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Gist {
    info: Info,
    /// Whether codecs that lose something are used where they are allowed.
    reduces: bool,
}

impl Gist {
    /// What loses nothing that is read.
    pub const LOSSLESS: Gist = Gist {
        info: Info {
            name: "gist-lossless",
            summary: "every map waits for its backward use as signs, or without its zeros",
            source: "Jain et al., Gist, ISCA 2018",
            year: 2018,
        },
        reduces: false,
    };

    /// All of it.
    pub const WHOLE: Gist = Gist {
        info: Info {
            name: "gist",
            summary: "the same, and all else in the fewest bits that are allowed",
            source: "Jain et al., Gist, ISCA 2018",
            year: 2018,
        },
        reduces: true,
    };
}

impl Scheduler for Gist {
    fn info(&self) -> Info {
        self.info
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let lossy = Codecs::allowed(context);
        if self.reduces && lossy.is_empty() {
            return Err(Infeasible::because(task, budget, "no lossy codec is allowed"));
        }
        let codecs = if self.reduces { Codecs::LOSSLESS.and(lossy) } else { Codecs::LOSSLESS };
        maps(task, codecs, budget, context)
    }
}
