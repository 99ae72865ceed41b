//! Optimizer state waits in eight bits a word from one update to the next.
//!
//! Source: Dettmers, Lewis, Shleifer and Zettlemoyer, "8-bit Optimizers via Block-wise Quantization", ICLR 2022: state is decoded for its
//! update alone, and encoded again after it, by a dynamic tree scaled by the largest of each 2048 words. We differ: all that the
//! update phase alone uses is state, also squares, for which a code without signs would be finer, since a graph doesn't say which those
//! are; what is small is encoded too if that saves a page's worth. Maps that are sparse or for which a codec is allowed wait encoded
//! where state alone does not fit, those that free most for least time. What is encoded of the state does not depend on the
//! budget. Guarantee: live bytes within the budget, no op runs twice. Time that of a choice among gaps. Wrong choice where state is small
//! beside maps, and whenever a plan fits that loses nothing.

use memfit_ir::{Bytes, Codec};

use super::{
    Algorithms, Chooser, Codecs, Front, Infeasible, RunList, Scheduler, Task, Waits, encoding, timed,
};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct QuantisedState;

impl Scheduler for QuantisedState {
    fn info(&self) -> Info {
        Info {
            name: "quantised-state",
            summary: "optimizer state in eight bits between its updates; then maps, as few as will do",
            source: "Dettmers et al., 8-bit Optimizers, ICLR 2022",
            year: 2022,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let because = |why| Infeasible::because(task, budget, why);
        if Codecs::allowed(context).among(Codecs::of(&[Codec::State8])).is_empty() {
            return Err(because("the lossy codec `state8` is not allowed"));
        }
        if task.issued {
            return Err(because("hosts quantise state themselves: `fit(lossy=\"quantised-state\")`"));
        }
        let quantised = task.encoded(Codec::State8, context.device);
        if !quantised.is_parked() {
            return Err(because("there is no optimizer state"));
        }
        let runs = RunList::plain(&quantised);
        let all = timed(&quantised, (&runs, &[], &Algorithms::default()), budget, context.device);
        if let Some(Ok(moved)) = all {
            return Ok(moved.front(&quantised, &runs));
        }
        let waits = Waits::Encoded(encoding(context));
        let mut chooser = Chooser::waiting(&quantised, &runs, waits, budget, context)?;
        let chosen = chooser.settled(Chooser::fastest).map(|(_, moved)| moved);
        chooser.found(chosen)
    }
}
