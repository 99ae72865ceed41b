//! Input maps of layers go once the forward pass has used them, and come back one ahead in the backward pass.
//!
//! Source: Rhu, Gimelshein, Clemons, Zulfiqar and Keckler, "vDNN: Virtualized Deep Neural Networks for Scalable,
//! Memory-Efficient Neural Network Design", MICRO 2016: a map goes beside its last forward reader, and the next op waits
//! for the copy; in the backward pass the next map is fetched while the layer above it runs. `all` moves every map, `conv` those that
//! convolutions read, `dyn` the first of nothing, `conv`, `all` that fits. Without the wait: Shriram, Garg and Kulkarni,
//! "Dynamic Memory Management for GPU-based Training of Deep Neural Networks" (vDNN++), IPDPS 2019, here the faster of both maps
//! with and without the wait. We differ: a map is whatever is used before forward turns to backward and after, and a fetch is
//! waited for where its map is used, not at the end of the layer above. What moves does not depend on the budget. Time O(maps
//! × log maps), and a run of the clock for each policy that is tried. Wrong choice where memory is not that short.

use memfit_ir::Bytes;

use super::{
    Chooser, Front, Infeasible, Moved, RunList, Scheduler, Task, Window, leave_when_copied, return_one_ahead,
    turn,
};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Vdnn {
    info: Info,
    /// What is tried, in this order.
    policies: &'static [Policy],
    /// Whether the fastest is taken, not the first that fits.
    fastest: bool,
}

#[derive(Clone, Copy, Debug)]
struct Policy {
    maps: Maps,
    /// Whether ops wait for the copy of a map that they have used.
    waits: bool,
}

#[derive(Clone, Copy, Debug)]
enum Maps {
    None,
    Convolutions,
    All,
}

const NONE: Policy = Policy { maps: Maps::None, waits: true };
const CONV: Policy = Policy { maps: Maps::Convolutions, waits: true };
const ALL: Policy = Policy { maps: Maps::All, waits: true };

const fn info(name: &'static str, summary: &'static str) -> Info {
    Info { name, summary, source: "Rhu et al., vDNN, MICRO 2016", year: 2016 }
}

impl Vdnn {
    /// Every map.
    pub const ALL: Vdnn = Vdnn {
        info: info("vdnn-all", "every input map of a layer, one copy to a layer"),
        policies: &[ALL],
        fastest: false,
    };

    /// What convolutions read.
    pub const CONV: Vdnn = Vdnn {
        info: info("vdnn-conv", "the input maps of convolutions, one copy to a layer"),
        policies: &[CONV],
        fastest: false,
    };

    /// The first that fits.
    pub const DYN: Vdnn = Vdnn {
        info: info("vdnn-dyn", "nothing, the maps of convolutions, or all: the first that fits"),
        policies: &[NONE, CONV, ALL],
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
        policies: &[
            CONV,
            ALL,
            Policy { maps: Maps::Convolutions, waits: false },
            Policy { maps: Maps::All, waits: false },
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
        for policy in self.policies {
            let windows = windows(task, &chooser, *policy);
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

/// The maps that `policy` moves, and when they are away.
fn windows(task: &Task<'_>, chooser: &Chooser<'_>, policy: Policy) -> Vec<Window> {
    let (step, turn) = (chooser.step(), turn(task));
    let chosen = step.gaps.iter().filter(|gap| {
        gap.crosses(turn)
            && match policy.maps {
                Maps::None => false,
                Maps::Convolutions => task.is_map_of_convolution(gap.value, turn),
                Maps::All => true,
            }
    });
    let mut windows: Vec<Window> = chosen.map(|&gap| Window::beside(gap)).collect();
    if !policy.waits {
        leave_when_copied(step, &mut windows);
    }
    return_one_ahead(&mut windows, turn);
    windows
}
