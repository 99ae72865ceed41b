//! `cargo xtask bench tight`: `best` on tight problems like MiniMalloc's challenging ones: a square of 1,024 moments and 1 MiB is
//! cut into 300 to 500 buffers, and 2 to 10 % of them are left out, but for those of one moment: the bound is the capacity.
//!
//! `cargo run --release -p memfit-plan --example tight_bench -- 30` gives each seed 30 seconds in place of ten.

#![allow(clippy::print_stdout, reason = "a bench")]

use std::time::Instant;

use memfit_ir::{Bytes, Device, Limits, Nanos};
use memfit_plan::Context;
use memfit_plan::place::{Item, PLACERS, Problem};

/// Capacity, and the bound.
const HEIGHT: Bytes = Bytes(1 << 20);
/// Moments, and steps of sizes.
const SIDE: u32 = 1024;

/// xorshift64 (13, 7, 17).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u32) -> u32 {
        u32::try_from(self.next() % u64::from(limit)).unwrap_or(0)
    }

    fn index(&mut self, len: usize) -> usize {
        self.below(u32::try_from(len).unwrap_or(u32::MAX)) as usize
    }
}

/// The problem of `seed`, and how many percent were left out.
fn tight(seed: u64) -> (Problem, u32) {
    let mut random = Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..20 {
        random.next();
    }
    let (wanted, percent) = (300 + random.below(201), 2 + random.below(9));
    let mut pieces: Vec<[u32; 4]> = vec![[0, SIDE, 0, SIDE]];
    let area = |piece: &[u32; 4]| u64::from(piece[1] - piece[0]) * u64::from(piece[3] - piece[2]);
    while pieces.len() < (wanted * 100 / (100 - percent)) as usize {
        let (one, other) = (random.index(pieces.len()), random.index(pieces.len()));
        let at = if area(&pieces[one]) >= area(&pieces[other]) { one } else { other };
        let [left, right, low, high] = pieces[at];
        let upright = random.below(2) == 0;
        if right - left > 1 && (upright || high - low == 1) {
            let middle = left + 1 + random.below(right - left - 1);
            pieces[at] = [left, middle, low, high];
            pieces.push([middle, right, low, high]);
        } else if high - low > 1 {
            let middle = low + 1 + random.below(high - low - 1);
            pieces[at] = [left, right, low, middle];
            pieces.push([left, right, middle, high]);
        }
    }
    let full = random.below(SIDE);
    pieces.retain(|&[left, right, ..]| {
        let dropped = random.below(100) < percent;
        !dropped || (left..right).contains(&full)
    });
    let size = |low: u32, high: u32| Bytes(u64::from(high - low) * HEIGHT.0 / u64::from(SIDE));
    let item = |&[from, until, low, high]: &[u32; 4]| Item { from, until, size: size(low, high), pin: None };
    (Problem::new(pieces.iter().map(item).collect(), Limits::arena(Bytes::MAX, Bytes(1)).banks), percent)
}

/// Seconds that the threads of this process have run.
fn cpu_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let run = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    };
    tasks.filter_map(run).sum::<f64>() / 1e9
}

fn device() -> Device {
    Device {
        name: "bench".into(),
        memory: Bytes(u64::MAX),
        align: Bytes(1),
        flops: Vec::new(),
        bandwidth: 3.35e12,
        efficiency: (0.6, 0.8),
        launch: Nanos(2000),
        copy: None,
        codecs: Vec::new(),
        link: None,
        host_memory: Bytes::ZERO,
        disk: None,
    }
}

fn main() {
    let limit = std::env::args().nth(1).and_then(|limit| limit.parse().ok()).unwrap_or(10.0);
    let device = device();
    let (mut logs, mut worst, mut reached) = (0.0, 0f64, 0);
    println!("| seed | buffers | left out, % | height ÷ capacity | CPU s |\n|---|---|---|---|---|");
    for seed in 0..10 {
        let (problem, percent) = tight(seed);
        assert_eq!(problem.lower_bound(), HEIGHT);
        let start = Instant::now();
        let stop = || start.elapsed().as_secs_f64() > limit;
        let context = Context { effort: u32::MAX, enough: HEIGHT, stop: &stop, ..Context::new(&device) };
        let before = cpu_seconds();
        let Some(Ok(placed)) = PLACERS.last().map(|best| best.place(&problem, &context)) else {
            println!("| {seed} | refused |");
            continue;
        };
        let seconds = cpu_seconds() - before;
        logs += seconds.max(0.001).ln();
        worst = worst.max(seconds);
        reached += usize::from(placed.height <= HEIGHT);
        let ratio = placed.height.ratio(HEIGHT);
        println!("| {seed} | {} | {percent} | {ratio:.4} | {seconds:.3} |", problem.items.len());
    }
    let mean = (logs / 10.0).exp();
    println!(
        "\nreached: {reached} of 10; geometric mean {mean:.3} CPU s, worst {worst:.3}; {limit} s a seed"
    );
}
