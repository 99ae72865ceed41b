//! Encodes values until the live bytes fit: those that free most for least time in the codec.
//!
//! Source: ours; the codec is that of Rhu et al., "Compressing DMA Engine", HPCA 2018, in place as Jain et al., "Gist", ISCA
//! 2018, would have it. Gaps are chosen by the scores and the searches with which values are moved, and timed by the clock.
//! Guarantee: live bytes within the budget, no op runs twice. Time O(gaps × (gaps + ops)) for a choice, and a run of the clock for
//! each change. Ties go to what was found first. Wrong choice where little is sparse, or ops are cheaper to run again.

use memfit_ir::{Bytes, Form};

use super::{Choices, Chooser, Front, Infeasible, RunList, Scheduler, Task, Waits, encoding, refine};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Best;

impl Scheduler for Best {
    fn info(&self) -> Info {
        Info {
            name: "best",
            summary: "encodes what covers the peak for least time in the codec, timed by the clock",
            source: "memfit; codec after cDMA, HPCA 2018",
            year: 2026,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let runs = RunList::plain(task);
        let codecs = encoding(context);
        let mut chooser = Chooser::waiting(task, &runs, Waits::Encoded(codecs), budget, context)?;
        let Some((chosen, moved)) = chooser.settled(Chooser::fastest) else { return chooser.found(None) };
        let away = chooser.away(&chosen);
        let encoded: Vec<Form> = codecs.each().map(Form::Encoded).collect();
        let choices = Choices::default().and_waits(task, &encoded, context.device);
        Ok(refine(task, (&runs, &away), &choices, (moved, budget), context))
    }
}
