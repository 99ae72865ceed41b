//! `cargo xtask bench tight`: `best` on tight problems like MiniMalloc's challenging ones: a square of 1,024 moments and 1 MiB is
//! cut into 300 to 500 buffers, and 2 to 10 % of them are left out, but for those of one moment: the bound is the capacity.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use memfit::input;
use memfit_plan::Context;
use memfit_plan::place::{PLACERS, Problem};

use crate::markdown;
use crate::placement::{Random, TIGHT, cut_out, pieces, timed};

/// Moments, and steps of sizes.
const SIDE: u32 = 1024;

/// Seconds for each seed.
const LIMIT: f64 = 10.0;

pub(crate) fn run() -> Result<String> {
    let device = input::device("A100-80")?;
    let best = PLACERS.last().context("no placer")?;
    let (mut rows, mut logs, mut worst, mut reached) = (Vec::new(), 0.0, 0f64, 0);
    for seed in 0..10 {
        let (problem, percent) = tight(seed);
        ensure!(problem.lower_bound() == TIGHT, "the bound of seed {seed} is not its capacity");
        let start = Instant::now();
        let stop = || start.elapsed().as_secs_f64() > LIMIT;
        let context = Context { effort: u32::MAX, enough: TIGHT, stop: &stop, ..Context::new(&device) };
        let (placed, seconds, _) = timed(*best, &problem, &context)?;
        logs += seconds.max(0.001).ln();
        worst = worst.max(seconds);
        reached += usize::from(placed.height <= TIGHT);
        rows.push(vec![
            seed.to_string(),
            problem.items.len().to_string(),
            percent.to_string(),
            format!("{:.4}", placed.height.ratio(TIGHT)),
            format!("{seconds:.3}"),
        ]);
    }
    let mean = (logs / 10.0).exp();
    let table = markdown(&["seed", "buffers", "left out, %", "height ÷ capacity", "CPU s"], &rows);
    Ok(format!(
        "{table}\nreached: {reached} of 10; geometric mean {mean:.3} CPU s, worst {worst:.3}; {LIMIT} s a seed\n"
    ))
}

/// The problem of `seed`, and how many percent were left out.
fn tight(seed: u64) -> (Problem, u32) {
    let mut random = Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..20 {
        random.next();
    }
    let (wanted, percent) = (300 + random.below(201), 2 + random.below(9));
    let mut pieces = pieces(&mut random, (SIDE, SIDE), (wanted * 100 / (100 - percent)) as usize);
    let full = random.below(SIDE);
    pieces.retain(|&[left, right, ..]| {
        let dropped = random.below(100) < percent;
        !dropped || (left..right).contains(&full)
    });
    (cut_out(&pieces, TIGHT.0 / u64::from(SIDE)), percent)
}
