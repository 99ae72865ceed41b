//! Input maps of layers go to host memory without their zeros.
//!
//! Source: Rhu, O'Connor, Chatterjee, Pool, Kwon and Keckler, "Compressing DMA Engine: Leveraging Activation Sparsity for Training
//! Deep Neural Networks", HPCA 2018 (arXiv:1705.01626): maps move as vDNN moves all of them, compressed on the way. We
//! differ: no engine on the way does that for nothing, so what encoding and decoding take is counted where ops run; a map goes
//! when its copy is there, without a wait of the next op; and what the graph does not say to be sparse moves as it is. What
//! moves does not depend on the budget. Time O(maps × log maps), and a run of the clock. Wrong choice on a link that is
//! faster than the codec.

use memfit_ir::{Bytes, Codec};

use super::{
    Chooser, Codecs, Front, Infeasible, RunList, Scheduler, Task, Waits, Window, leave_when_copied, link,
    return_one_ahead, turn,
};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Cdma;

impl Scheduler for Cdma {
    fn info(&self) -> Info {
        Info {
            name: "cdma",
            summary: "every input map of a layer goes to the host, sparse ones without their zeros",
            source: "Rhu et al., cDMA, HPCA 2018",
            year: 2018,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let runs = RunList::plain(task);
        let link = link(context.device)
            .ok_or_else(|| Infeasible::because(task, budget, "the device has no link to host memory"))?;
        let waits = Waits::EncodedBehind(link, Codecs::of(&[Codec::Zvc]));
        let mut chooser = Chooser::waiting(task, &runs, waits, budget, context)?;
        let (step, turn) = (chooser.step(), turn(task));
        let gaps = step.gaps.iter().filter(|gap| gap.crosses(turn));
        let mut windows: Vec<Window> = gaps.map(|&gap| Window::beside(gap)).collect();
        leave_when_copied(step, &mut windows);
        return_one_ahead(&mut windows, turn);
        let moved = chooser.run_at(&windows);
        chooser.found(moved)
    }
}
