//! Input maps of layers go to host memory without their zeros.
//!
//! Source: Rhu, O'Connor, Chatterjee, Pool, Kwon and Keckler, "Compressing DMA Engine: Leveraging Activation Sparsity for Training
//! Deep Neural Networks", HPCA 2018 (arXiv:1705.01626): maps move as vDNN moves all of them, compressed on the way. We
//! differ: no engine on the way does that for nothing, so what encoding and decoding take is counted where ops run; a map goes
//! when its copy is there, without a wait of the next op, or with one where that is faster or nothing else fits; and what the graph does
//! not say to be sparse moves as it is. On a link that is faster than the codec their engine would still compress all: here a map moves
//! as it is where that takes less time there and back, and of all sparse maps encoded, those, and none, the fastest by the clock is taken.
//! Guarantee: never slower than vDNN with the same maps, which is one of the ways. What moves does not depend on the budget. Time
//! O(maps × log maps), and six runs of the clock. Wrong choice where nothing need leave the device.

use memfit_ir::{Bytes, Codec, Device, Link, Nanos};

use super::{
    Chooser, Codecs, Front, Gap, Infeasible, Moved, RunList, Scheduler, Task, Waits, Window,
    leave_when_copied, link, return_one_ahead, turn,
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
        let turn = turn(task);
        let maps = chooser.step().gaps.iter().copied().filter(|gap| gap.crosses(turn));
        let encoded: Vec<Gap> = maps.collect();
        let plain = |gap: &Gap| gap.plain(task.graph.value(gap.value).size, link);
        let faster: Vec<Gap> = encoded
            .iter()
            .map(|gap| if pays(gap, task, (context.device, link)) { *gap } else { plain(gap) })
            .collect();
        let none: Vec<Gap> = encoded.iter().map(plain).collect();
        let mut ways = vec![encoded, faster, none];
        ways.dedup();
        let mut best: Option<Moved> = None;
        for (gaps, waits) in ways.iter().flat_map(|gaps| [(gaps, false), (gaps, true)]) {
            let mut windows: Vec<Window> = gaps.iter().copied().map(Window::beside).collect();
            if !waits {
                leave_when_copied(chooser.step(), &mut windows);
            }
            return_one_ahead(&mut windows, turn);
            let moved = chooser.run_at(&windows);
            let is_faster = |moved: &Moved| best.as_ref().is_none_or(|best| moved.time < best.time);
            if let Some(moved) = moved.filter(is_faster) {
                best = Some(moved);
            }
        }
        chooser.found(best)
    }
}

/// Whether a value is out and back sooner encoded than as it is.
fn pays(gap: &Gap, task: &Task<'_>, (device, link): (&Device, Link)) -> bool {
    let Some(codec) = gap.form.codec() else { return false };
    let size = task.graph.value(gap.value).size;
    let (encode, decode) = device.codec_times(codec, size);
    let plain = link.out_time(size) + link.in_time(size);
    encode + decode + Nanos(gap.out) + Nanos(gap.back) < plain
}
