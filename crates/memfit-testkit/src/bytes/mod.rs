//! Plans on real bytes: the truth that the judge is measured against.
//!
//! Every op writes a hash of its inputs' bytes, of which op and output it is, and of the position in each
//! output. [`Truth`] says from the graph alone what must come out, over two training steps. [`check`] runs a
//! plan in real memory, in several ways that the machine is free to choose: transfers as early and as late as
//! their awaits permit, lanes in different interleavings, kernels from the first element to the last and
//! back. A plan is right if every way gives the right bytes.
//!
//! Nothing here looks at what buffers claim, beyond how many bytes a transfer or a free is about, which codec
//! is meant, and which buffer the caller reads a result from. Nothing is shared with the judge.

mod codebook;
mod kernel;
mod machine;
mod results;
mod schedule;

pub use kernel::Truth;
pub use results::evaluate;

use memfit_ir::{Bytes, Graph, Limits, Plan};

use schedule::{Pace, Run};

/// Why a plan is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Index of the step at which it showed; `None` for what shows at the end.
    pub step: Option<usize>,
    /// What happened.
    pub what: &'static str,
}

/// Runs `plan` and compares what it leaves with `truth`, which must be of the same graph. Returns the highest
/// end of a filled buffer in each bank.
///
/// # Errors
///
/// The first fault: something that cannot be executed at all, or wrong bytes at the end.
pub fn check(truth: &Truth, graph: &Graph, limits: &Limits, plan: &Plan) -> Result<Vec<Bytes>, Fault> {
    let lanes = plan.program.lanes.iter().any(|&lane| lane != 0);
    let mut paces = vec![
        Pace { early: true, backwards: false, low_lane_first: true, seed: None },
        Pace { early: false, backwards: true, low_lane_first: false, seed: None },
    ];
    if lanes {
        paces.push(Pace { early: false, backwards: false, low_lane_first: true, seed: None });
        for seed in 1..4 {
            paces.push(Pace {
                early: seed == 1,
                backwards: seed == 2,
                low_lane_first: true,
                seed: Some(seed),
            });
        }
    }
    let mut peaks = Vec::new();
    for pace in paces {
        peaks = Run::new(truth, graph, limits, plan, pace).two_steps()?;
    }
    Ok(peaks)
}
