//! Every map waits for its backward use in few bits.
//!
//! Source: Chen, Zheng, Yao, Wang, Stoica, Mahoney and Gonzalez, "ActNN: Reducing Training Memory Footprint via 2-Bit Activation
//! Compressed Training", ICML 2021: groups of 256 between their least and most, rounded at random. We differ: the bits are those of the
//! codecs that are allowed, the fewest of them for all maps; and what a ReLU makes has an exact mask beside, if one with a mask is allowed,
//! or is held by its signs where no more is read. `gact`: Liu, Zheng, Wang, Cen, Chen, Han, Chen, Liu, Tang, Gonzalez, Mahoney and Cheung,
//! "GACT: Activation Compressed Training for Generic Network Architectures", ICML 2022: bits b of maps l that minimize Σ C·2^(−2b), where
//! C says how sensitive gradients are to a map (`Value::sensitivity`). Greedy, as there: the step down in bits that adds least of that for
//! each byte comes first; the fewest steps with which the program fits are taken, by bisection. We differ: C is the graph's, once for all
//! steps; bits are those of the codecs that are allowed; live bytes are bounded, not the sum of maps. A map of which nothing is said counts as
//! the most sensitive. Where nothing is said at all, all have as many bits, the most with which the step fits.
//! Time O(gaps × codecs), for each number of bits; with sensitivities O(gaps · log gaps), and O(log gaps) programs. Ties go to the earlier map. Wrong choice where less would do: all maps are quantised.

use std::collections::BTreeMap;

use memfit_ir::{Bytes, Codec};

use super::{Chooser, Codecs, Front, Gap, Infeasible, RunList, Scheduler, Task, Waits, Window, maps, turn};
use crate::{Context, Info};

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub struct ActNn {
    info: Info,
    /// Whether no fewer bits are taken than the budget forces.
    enough: bool,
}

impl ActNn {
    /// As few bits as are allowed.
    pub const ALL: ActNn = ActNn {
        info: Info {
            name: "actnn",
            summary: "every map waits for its backward use in the fewest bits that are allowed, rounded at random",
            source: "Chen et al., ActNN, ICML 2021",
            year: 2021,
        },
        enough: false,
    };

    /// As many bits as there is room for.
    pub const ENOUGH: ActNn = ActNn {
        info: Info {
            name: "gact",
            summary: "the same in the most bits that are allowed and with which the step fits",
            source: "after Liu et al., GACT, ICML 2022",
            year: 2022,
        },
        enough: true,
    };
}

/// Codecs of few bits, from the most to the fewest, without a mask and with one.
const QUANTISED: [Codecs; 3] = [
    Codecs::of(&[Codec::Int8, Codec::Int8Mask]),
    Codecs::of(&[Codec::Int4, Codec::Int4Mask]),
    Codecs::of(&[Codec::Int2, Codec::Int2Mask]),
];

impl Scheduler for ActNn {
    fn info(&self) -> Info {
        self.info
    }

    fn plan(&self, task: &Task<'_>, budget: Bytes, context: &Context<'_>) -> Result<Front, Infeasible> {
        let allowed = Codecs::allowed(context);
        let each = QUANTISED.map(|codecs| codecs.among(allowed));
        let all = each.into_iter().fold(Codecs::of(&[]), Codecs::and);
        let trials = if self.enough { each.to_vec() } else { vec![all] };
        if self.enough && task.value_ids().any(|value| task.graph.value(value).sensitivity.is_some()) {
            return allotted(task, &each, budget, context);
        }
        // With fewer bits there is more room.
        let mut missed = Infeasible::because(task, budget, "no codec of few bits is allowed");
        for codecs in trials.into_iter().filter(|codecs| !codecs.is_empty()) {
            match maps(task, codecs.and(Codecs::of(&[Codec::Binarize])), budget, context) {
                Ok(front) => return Ok(front),
                Err(why) => missed = why,
            }
        }
        Err(missed)
    }
}

/// A map that has fewer bits than before.
struct StepDown {
    gap: usize,
    to: Gap,
    /// What that adds to the error, for each byte that it frees.
    price: f64,
}

/// Bits by sensitivity: see the head of this file.
fn allotted(
    task: &Task<'_>,
    each: &[Codecs],
    budget: Bytes,
    context: &Context<'_>,
) -> Result<Front, Infeasible> {
    let (runs, turn) = (RunList::plain(task), turn(task));
    let (mut levels, mut missed) = (Vec::new(), None);
    for codecs in each.iter().filter(|codecs| !codecs.is_empty()) {
        let waits = Waits::Encoded(codecs.and(Codecs::of(&[Codec::Binarize])));
        match Chooser::waiting(task, &runs, waits, budget, context) {
            Ok(chooser) => levels.push(chooser),
            Err(why) => missed = Some(why),
        }
    }
    let gaps = |chooser: &Chooser<'_>| -> Vec<Gap> {
        chooser.step().gaps.iter().filter(|gap| gap.crosses(turn)).copied().collect()
    };
    let all: Vec<Vec<Gap>> = levels.iter().map(gaps).collect();
    let (Some(chooser), Some(first)) = (levels.first_mut(), all.first()) else {
        return Err(
            missed.unwrap_or_else(|| Infeasible::because(task, budget, "no codec of few bits is allowed"))
        );
    };
    let mut steps = steps_down(task, first, &all[1..]);
    steps.sort_by(|one, other| one.price.total_cmp(&other.price));
    let mut after = |count: usize| {
        let mut gaps = first.clone();
        steps[..count].iter().for_each(|step| gaps[step.gap] = step.to);
        let windows: Vec<Window> = gaps.into_iter().map(Window::whole).collect();
        chooser.run_at(&windows)
    };
    // With all of them there is most room.
    let (mut fits, mut found) = (steps.len(), after(steps.len()));
    let mut least = 0;
    while found.is_some() && least < fits {
        let middle = least + (fits - least) / 2;
        match after(middle) {
            Some(moved) => (fits, found) = (middle, Some(moved)),
            None => least = middle + 1,
        }
    }
    chooser.found(found)
}

/// From the bits that `first` has to those of `fewer`, gap by gap. Each step of a map has a higher price than the one before.
fn steps_down(task: &Task<'_>, first: &[Gap], fewer: &[Vec<Gap>]) -> Vec<StepDown> {
    let said = |gap: &Gap| task.graph.value(gap.value).sensitivity.map(f64::from);
    let most = first.iter().filter_map(said).fold(0.0, f64::max);
    let key = |gap: &Gap| (gap.value, gap.from, gap.to);
    let fewer: Vec<BTreeMap<_, &Gap>> =
        fewer.iter().map(|level| level.iter().map(|gap| (key(gap), gap)).collect()).collect();
    let mut steps = Vec::new();
    for (at, gap) in first.iter().enumerate() {
        let sensitivity = said(gap).unwrap_or(most);
        let (mut now, mut last) = (*gap, f64::NEG_INFINITY);
        for level in &fewer {
            let Some(&&to) = level.get(&key(gap)).filter(|to| to.size > now.size) else { continue };
            let price = sensitivity * (error(&to) - error(&now)) / (to.size - now.size) as f64;
            last = last.max(price);
            steps.push(StepDown { gap: at, to, price: last });
            now = to;
        }
    }
    steps
}

/// 2^(−2b) for *b* bits.
fn error(gap: &Gap) -> f64 {
    match gap.form.codec() {
        Some(Codec::Int8 | Codec::Int8Mask) => 2f64.powi(-16),
        Some(Codec::Int4 | Codec::Int4Mask) => 2f64.powi(-8),
        Some(Codec::Int2 | Codec::Int2Mask) => 2f64.powi(-4),
        _ => 0.0,
    }
}
