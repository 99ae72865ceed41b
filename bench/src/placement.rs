//! `cargo xtask bench placement`: every placer on published and generated instances, against the bound.

use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, ensure};
use memfit::input;
use memfit_ir::{Bytes, Limits};
use memfit_plan::Context;
use memfit_plan::place::{Item, PLACERS, Placement, Placer, Problem};

use crate::markdown;

/// Where the published instances are; they stay out of the repository.
const DATA: &str = "../shared/data/placement";
/// Capacity of tight instances.
pub(crate) const TIGHT: Bytes = Bytes(1 << 20);
/// Height of the rectangle that is cut.
const CUT: Bytes = Bytes(1 << 36);
/// Placers of quadratic time are left out above this number of items.
const QUADRATIC: usize = 30_000;

pub(crate) fn run() -> Result<String> {
    let published = published()?;
    let mut rows = Vec::new();
    for (name, problem) in &published {
        rows.push(row(name, problem)?);
    }
    for (name, problem) in [
        ("synth 10,000", synth(10_000)),
        ("synth 100,000", synth(100_000)),
        ("cut 1,000", cut(1000, 7, 0)),
        ("cut 1,000, 10 % dropped", cut(1000, 7, 10)),
        ("cut 10,000, 10 % dropped", cut(10_000, 7, 10)),
        ("cut 100,000, 10 % dropped", cut(100_000, 7, 10)),
    ] {
        rows.push(row(name, &problem)?);
    }
    let mut head = vec!["instance", "items", "bound"];
    head.extend(PLACERS.iter().map(|placer| placer.info().name));
    head.push("CPU s of dive");
    head.push("CPU s of best");
    let all = markdown(&head, &rows);
    let goals = markdown(&["instance", "items", "wanted", "reached", "CPU s", "wall s"], &goals(&published)?);
    Ok(format!(
        "Heights divided by the lower bound (what is reserved, for replayed allocators), each placer at its default \
         effort; –: not tried, quadratic.\n\n{all}\n`best` with a height that is enough, or ten seconds:\n\n{goals}"
    ))
}

/// One line for all placers.
fn row(name: &str, problem: &Problem) -> Result<Vec<String>> {
    let device = input::device("A100-80")?;
    let context = Context::new(&device);
    let bound = problem.lower_bound();
    let mut row = vec![name.to_owned(), problem.items.len().to_string(), bound.0.to_string()];
    let (mut dive, mut best) = (0.0, 0.0);
    for placer in PLACERS {
        let placer_name = placer.info().name;
        let linear = ["naive", "refcount", "caching", "bfc", "best-fit", "push-down", "dive", "best"];
        if problem.items.len() > QUADRATIC && !linear.contains(&placer_name)
            || above_pairs(problem, placer_name)
        {
            row.push("–".to_owned());
            continue;
        }
        let (placement, seconds, _) = timed(*placer, problem, &context)?;
        match placer_name {
            "dive" => dive = seconds,
            "best" => best = seconds,
            _ => {}
        }
        let ratio = placement.reserved.ratio(bound);
        row.push(if placement.reserved == bound { "1".to_owned() } else { format!("{ratio:.4}") });
    }
    row.extend([format!("{dive:.3}"), format!("{best:.3}")]);
    Ok(row)
}

/// `exact` keeps all pairs that meet.
fn above_pairs(problem: &Problem, placer: &str) -> bool {
    placer == "exact" && problem.items.len() > 3000
}

/// What `best` is to reach.
fn goals(published: &[(String, Problem)]) -> Result<Vec<Vec<String>>> {
    let mut rows = Vec::new();
    for (name, problem) in published {
        let wanted = if name.contains("1048576") { TIGHT } else { problem.lower_bound() };
        rows.push(goal(name, problem, wanted, 1)?);
        if name.starts_with("C.") {
            rows.push(goal(&format!("{name} at its bound"), problem, problem.lower_bound(), 1)?);
        }
    }
    for seed in 1..=10 {
        rows.push(goal(&format!("cut 300, seed {seed}"), &cut(300, seed, 0), CUT, u32::MAX)?);
    }
    for seed in 1..=10 {
        let name = format!("cut 300, 10 % dropped, seed {seed}");
        rows.push(goal(&name, &cut(300, seed, 10), CUT, u32::MAX)?);
    }
    let million = synth(1_000_000);
    rows.push(goal("synth 1,000,000", &million, Bytes(million.lower_bound().0 / 100 * 101), 1)?);
    Ok(rows)
}

fn goal(name: &str, problem: &Problem, wanted: Bytes, effort: u32) -> Result<Vec<String>> {
    let device = input::device("A100-80")?;
    let start = Instant::now();
    let stop = || start.elapsed().as_secs_f64() > 10.0;
    let context = Context { effort, enough: wanted, stop: &stop, ..Context::new(&device) };
    let best = PLACERS.last().context("no placer")?;
    let (placement, cpu, wall) = timed(*best, problem, &context)?;
    Ok(vec![
        name.to_owned(),
        problem.items.len().to_string(),
        wanted.0.to_string(),
        format!("{:.4}", placement.height.ratio(wanted)),
        format!("{cpu:.3}"),
        format!("{wall:.3}"),
    ])
}

/// A checked placement, and the seconds of all threads and of the clock that it took.
pub(crate) fn timed(
    placer: &dyn Placer,
    problem: &Problem,
    context: &Context<'_>,
) -> Result<(Placement, f64, f64)> {
    let (cpu, wall) = (cpu_seconds(), Instant::now());
    let placement =
        placer.place(problem, context).map_err(|error| anyhow!("`{}`: {error:?}", placer.info().name))?;
    let (cpu, wall) = (cpu_seconds() - cpu, wall.elapsed().as_secs_f64());
    ensure!(is_valid(problem, &placement), "`{}` overlaps itself", placer.info().name);
    Ok((placement, cpu, wall))
}

/// Sweeps over time; what is born is compared with its neighbours in the address space.
fn is_valid(problem: &Problem, placement: &Placement) -> bool {
    let mut events = Vec::new();
    for (index, item) in problem.items.iter().enumerate().filter(|(_, item)| item.from < item.until) {
        events.extend([(item.until, false, index), (item.from, true, index)]);
    }
    events.sort_unstable();
    let mut live = std::collections::BTreeMap::new();
    events.into_iter().filter(|&(.., index)| problem.items[index].size > Bytes::ZERO).all(
        |(_, born, index)| {
            let start = placement.places[index].offset;
            let end = start + problem.items[index].size;
            if !born {
                live.remove(&start);
                return true;
            }
            let free = live.range(..end).next_back().is_none_or(|(_, &other)| other <= start);
            live.insert(start, end);
            free
        },
    )
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

fn published() -> Result<Vec<(String, Problem)>> {
    let mut problems = Vec::new();
    let Ok(folder) = std::fs::read_dir(DATA) else {
        eprintln!("SKIPPED: `{DATA}` is absent");
        return Ok(problems);
    };
    let mut paths: Vec<_> = folder.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "csv"));
    paths.sort();
    for path in paths {
        let text = std::fs::read_to_string(&path)?;
        let items = text.lines().skip(1).filter(|line| !line.is_empty()).map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            let [_, from, until, size] = cells[..] else { return Err(anyhow!("not four columns: {line}")) };
            Ok(Item { from: from.parse()?, until: until.parse()?, size: Bytes(size.parse()?), pin: None })
        });
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if name != "input.12" {
            problems.push((name, problem(items.collect::<Result<_>>()?)));
        }
    }
    Ok(problems)
}

fn problem(items: Vec<Item>) -> Problem {
    Problem::new(items, Limits::arena(Bytes::MAX, Bytes(1)).banks)
}

/// xorshift64 (13, 7, 17).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        u32::try_from(self.next() % u64::from(limit)).unwrap_or(0)
    }
}

/// Training-like: items that are freed in the reverse order of their birth, among short-lived ones.
fn synth(n: u32) -> Problem {
    let mut random = Random(42);
    let mut item = |i: u32| {
        let (r, e) = (random.below(100), random.below(16));
        let base = 1u64 << (9 + e);
        let size = Bytes((base + random.next() % base).next_multiple_of(512));
        let until = if r < 6 && i < n / 2 { n - i } else { (i + 1 + random.below(8)).min(n + 8) };
        Item { from: i, until: until.max(i + 1), size, pin: None }
    };
    problem((0..n).map(&mut item).collect())
}

/// Random guillotine cuts of `4n` steps × 2^36 bytes; each piece is dropped with `drop` percent.
fn cut(n: u32, seed: u64, drop: u32) -> Problem {
    const UNIT: u64 = 512;
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let height = u32::try_from(CUT.0 / UNIT).unwrap_or(u32::MAX);
    let mut pieces = pieces(&mut random, (4 * n, height), n as usize);
    pieces.retain(|_| random.below(100) >= drop);
    cut_out(&pieces, UNIT)
}

/// A rectangle of so many moments and so high, cut into `count` pieces: first and last moment, lowest and highest, half-open.
pub(crate) fn pieces(random: &mut Random, (moments, height): (u32, u32), count: usize) -> Vec<[u32; 4]> {
    let mut pieces: Vec<[u32; 4]> = vec![[0, moments, 0, height]];
    let area = |piece: &[u32; 4]| u64::from(piece[1] - piece[0]) * u64::from(piece[3] - piece[2]);
    while pieces.len() < count {
        let count = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
        let (one, other) = (random.below(count) as usize, random.below(count) as usize);
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
    pieces
}

/// Buffers as long as the pieces and as large as they are high, in units of `unit` bytes.
pub(crate) fn cut_out(pieces: &[[u32; 4]], unit: u64) -> Problem {
    let item = |&[from, until, low, high]: &[u32; 4]| Item {
        from,
        until,
        size: Bytes(u64::from(high - low) * unit),
        pin: None,
    };
    problem(pieces.iter().map(item).collect())
}
