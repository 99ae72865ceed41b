//! Input maps of layers go once the forward pass has used them, and come back one ahead in the backward pass.
//!
//! Source: Rhu, Gimelshein, Clemons, Zulfiqar and Keckler, "vDNN: Virtualized Deep Neural Networks for Scalable,
//! Memory-Efficient Neural Network Design", MICRO 2016: a map goes beside its last forward reader, and the next op waits
//! for the copy; in the backward pass the next map is fetched while the layer above it runs. `all` moves every map, `conv` those that
//! convolutions read, both with the algorithms of least scratch memory, its (m). `dyn` is the first that fits of nothing, `conv`, `all` with the
//! fastest algorithms, its (p); `conv`, `all` with the fastest for which there is room beside what is live, its greedy ones; `conv`, `all` (m). Without the wait: Shriram, Garg and Kulkarni,
//! "Dynamic Memory Management for GPU-based Training of Deep Neural Networks" (vDNN++), IPDPS 2019, here the faster of both maps
//! with and without the wait, and with the fastest algorithms that there is room for. We differ: greedy ones see only their own op; that `all` (m)
//! fits is not asked first; a map is whatever is used before forward turns to backward and after, and a fetch is
//! waited for where its map is used, not at the end of the layer above. What moves does not depend on the budget. Time O(maps
//! × log maps), and a run of the clock for each policy that is tried. Wrong choice where memory is not that short.

use memfit_ir::Bytes;

use super::maps::{Policy, fitting};
use super::{Algorithms, Chooser, Front, Infeasible, Moved, RunList, Scheduler, Task};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Vdnn {
    info: Info,
    /// What is tried, in this order.
    trials: &'static [Trial],
    /// Whether the fastest is taken, not the first that fits.
    fastest: bool,
}

/// Maps that move, and the scratch memory that ops take beside.
#[derive(Clone, Copy, Debug)]
struct Trial(Policy, Scratch);

/// By which algorithms ops run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scratch {
    /// Those that take least, (m) in the paper.
    Least,
    /// The fastest, (p).
    Any,
    /// The fastest for which there is room beside what is live.
    Left,
}

const CONV: Policy = Policy::CONV;
const ALL: Policy = Policy::ALL;

const fn info(name: &'static str, summary: &'static str) -> Info {
    Info { name, summary, source: "Rhu et al., vDNN, MICRO 2016", year: 2016 }
}

impl Vdnn {
    /// Every map.
    pub const ALL: Vdnn = Vdnn {
        info: info("vdnn-all", "every input map of a layer, one copy to a layer"),
        trials: &[Trial(ALL, Scratch::Least)],
        fastest: false,
    };

    /// What convolutions read.
    pub const CONV: Vdnn = Vdnn {
        info: info("vdnn-conv", "the input maps of convolutions, one copy to a layer"),
        trials: &[Trial(CONV, Scratch::Least)],
        fastest: false,
    };

    /// The first that fits.
    pub const DYN: Vdnn = Vdnn {
        info: info("vdnn-dyn", "nothing, the maps of convolutions, or all: the first that fits"),
        trials: &[
            Trial(Policy::NONE, Scratch::Any),
            Trial(CONV, Scratch::Any),
            Trial(ALL, Scratch::Any),
            Trial(CONV, Scratch::Left),
            Trial(ALL, Scratch::Left),
            Trial(CONV, Scratch::Least),
            Trial(ALL, Scratch::Least),
        ],
        fastest: false,
    };

    /// Without waiting for copies.
    pub const PLUS_PLUS: Vdnn = Vdnn {
        info: Info {
            name: "vdnn++",
            summary: "the maps of vdnn, which go when they are copied while ops run on",
            source: "Shriram et al., vDNN++, IPDPS 2019",
            year: 2019,
        },
        trials: &[
            Trial(CONV, Scratch::Left),
            Trial(ALL, Scratch::Left),
            Trial(CONV.without_waiting(), Scratch::Left),
            Trial(ALL.without_waiting(), Scratch::Left),
            Trial(CONV, Scratch::Least),
            Trial(ALL, Scratch::Least),
            Trial(CONV.without_waiting(), Scratch::Least),
            Trial(ALL.without_waiting(), Scratch::Least),
        ],
        fastest: true,
    };
}

impl Scheduler for Vdnn {
    fn info(&self) -> Info {
        self.info
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let runs = RunList::plain(task);
        let mut chooser = Chooser::of(task, &runs, budget, context)?;
        let mut best: Option<Moved> = None;
        let choices = task.has_choices();
        for (at, &Trial(policy, scratch)) in self.trials.iter().enumerate() {
            // What differs from one before in its algorithms alone is the same where there are none to choose.
            let before = |trial: &Trial| (trial.0.maps, trial.0.waits) == (policy.maps, policy.waits);
            if !choices && self.trials[..at].iter().any(before) {
                continue;
            }
            chooser.set_algorithms(match scratch {
                Scratch::Any => Algorithms::fastest(task),
                Scratch::Least | Scratch::Left => Algorithms::smallest(task),
            });
            let mut windows = policy.windows(task, &chooser);
            if scratch == Scratch::Left && choices {
                let fitting = fitting(task, &chooser, &windows);
                chooser.set_algorithms(fitting);
                windows = policy.windows(task, &chooser);
            }
            let Some(moved) = chooser.run_at(&windows) else { continue };
            if best.as_ref().is_none_or(|best| moved.time < best.time) {
                best = Some(moved);
            }
            if !self.fastest {
                break;
            }
        }
        chooser.found(best)
    }
}
