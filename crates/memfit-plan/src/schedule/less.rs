//! Small tasks are also planned for less memory than there is, so that more of it is seldom slower.
//!
//! A search that starts from the budgets at hand may find less in larger ones than in smaller ones. So there is a ladder: parts of
//! what lies above the floor, and halves, quarters and so on of the bytes of all values in host memory, whatever those at hand
//! are. All that is found on the rungs below is there for the one who places it. Ties go to what was found first.

use memfit_ir::{Bytes, Device, Nanos};

use super::known::once;
use super::{Front, Infeasible, Point, Task};
use crate::{Context, Info};

/// Ops of a small task, at most.
const SMALL: usize = 32;

/// Parts in 32 of what lies above the floor, for budgets: where there is little, little more does much.
const RUNGS: [u64; 10] = [0, 1, 2, 4, 8, 12, 16, 20, 24, 28];

/// How often what all values take is halved, for amounts of host memory.
const HALVINGS: u32 = 5;

/// What `find` finds for `budget` and the host memory of `context`, and on the rungs below where the task is small. `who` finds it.
///
/// # Errors
///
/// What `find` says of `budget` itself.
pub(super) fn or_less(
    task: &Task<'_>,
    budget: Bytes,
    who: Info,
    context: &Context<'_>,
    find: impl Fn(Bytes, &Context<'_>) -> Result<Front, Infeasible>,
) -> Result<Front, Infeasible> {
    let mut found = find(budget, context);
    for (budget, host) in rungs(task, budget, context.device.host_memory) {
        let time = found.as_ref().ok().and_then(Front::time);
        if time.is_some_and(|time| time <= task.least_time()) || (context.stop)() {
            break;
        }
        let device = Device { host_memory: host, ..context.device.clone() };
        let context = Context { device: &device, ..*context };
        let rung = (Info { name: "rung", ..who }, budget);
        let Ok(lower) = once(task, rung, &context, || find(budget, &context)) else { continue };
        found = match found {
            Ok(front) => Ok(and(task, front, lower)),
            Err(_) => Ok(lower),
        };
    }
    found
}

/// `front` with what `lower` has beside it; also other steps of the same cost, which may be placed lower. What lasts does not move for a
/// lower peak alone.
fn and(task: &Task<'_>, front: Front, lower: Front) -> Front {
    let parks = |point: &Point| point.moved.as_ref().is_some_and(|program| !program.parked.is_empty());
    let stays: Vec<Nanos> =
        front.points.iter().filter(|point| !parks(point)).map(|point| point.cost.time).collect();
    let points = lower.points.into_iter().filter(|point| !parks(point) || !stays.contains(&point.cost.time));
    let points: Vec<Point> = front.points.into_iter().chain(points).collect();
    let mut front = Front::of_points(task, points.iter().cloned());
    for point in points {
        let end = front.points.partition_point(|other| other.cost.time <= point.cost.time);
        let is_as_good = |other: &Point| other.cost == point.cost;
        let mut equals = front.points[..end].iter().rev().take_while(|other| is_as_good(other)).peekable();
        if equals.peek().is_some() && equals.all(|other| *other != point) {
            front.points.insert(end, point);
        }
    }
    front
}

/// Pairs of a budget and an amount of host memory beside `budget` and `host`, neither of them more.
fn rungs(task: &Task<'_>, budget: Bytes, host: Bytes) -> Vec<(Bytes, Bytes)> {
    if task.nodes() > SMALL {
        return Vec::new();
    }
    let (floor, peak) = (task.floor().0, task.reference());
    let rung = |part: &u64| floor + Bytes(peak.0.saturating_sub(floor.0) / 32 * part);
    let all: Bytes = task.graph.value_ids().map(|id| task.graph.value(id).size).sum();
    let budgets = RUNGS.iter().map(rung).filter(|&rung| rung < budget).chain([budget]);
    let hosts: Vec<Bytes> =
        (1..=HALVINGS).map(|part| Bytes(all.0 >> part)).filter(|&part| part < host).collect();
    let pairs = budgets
        .flat_map(|rung| [host].into_iter().chain(hosts.iter().copied()).map(move |host| (rung, host)));
    pairs.filter(|&pair| pair != (budget, host)).collect()
}
