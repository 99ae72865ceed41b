//! Runs again what brings the peak down part of the way, and moves the rest of the way.
//!
//! Source: ours; that both are needed, and that free transfers come first, is Capuchin's (Peng et al., "Capuchin",
//! ASPLOS 2020). Every schedule that recomputation finds for any budget, also for larger ones, is a start: what is still
//! too much in it is moved, as offloading alone would, and the clock says what all of it takes.

use memfit_ir::Bytes;

use super::{Chooser, Front, Infeasible, Moved, Scheduler, Task, climb};
use crate::liveness::Profile;
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct Best;

/// Schedules from which transfers start, at most.
const STARTS: usize = 24;

impl Scheduler for Best {
    fn info(&self) -> Info {
        Info {
            name: "best",
            summary: "runs again and moves, whichever is cheaper for each value, timed by the clock",
            source: "memfit; after Capuchin, ASPLOS 2020",
            year: 2026,
        }
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Moved, Infeasible> {
        let why = |why: &str| Infeasible { why: Some(why.to_owned()), ..Infeasible::new(task, budget, None) };
        let Some(link) = context.device.link else {
            return Err(why("the device has no link to host memory"));
        };
        let front = climb(task, Bytes::MAX, context);
        let mut best: Option<Moved> = None;
        let mut lowest = None;
        for point in starts(&front, budget) {
            if best.as_ref().is_some_and(|best| best.time <= point.cost.time) {
                break;
            }
            if point.cost.peak <= budget {
                best = point.schedule.program(task).map(|program| Moved {
                    peak: Profile::of(&program, context.device.align).peak().0,
                    program,
                    time: point.cost.time,
                });
                break;
            }
            let Some(mut chooser) = Chooser::new(task, &point.schedule, link, budget, context) else {
                continue;
            };
            let Some((_, moved)) = chooser.best() else {
                lowest = [lowest, chooser.lowest()].into_iter().flatten().min();
                continue;
            };
            if std::env::var("HY").is_ok() {
                eprintln!("peak {} time {} moved {}", point.cost.peak.0, point.cost.time.0, moved.time.0);
            }
            if best.as_ref().is_none_or(|best| moved.time < best.time) {
                best = Some(moved);
            }
        }
        best.ok_or_else(|| Infeasible::new(task, budget, lowest))
    }
}

/// What `front` has that is too large for `budget`, fastest first, not more than [`STARTS`] of them; and the fastest that fits.
fn starts(front: &Front, budget: Bytes) -> impl Iterator<Item = &super::super::Point> {
    let fits = front.points.partition_point(|point| point.cost.peak > budget);
    let count = fits.min(STARTS);
    let large = (0..count).map(move |at| &front.points[at * fits / count]);
    large.chain(front.points.get(fits))
}
