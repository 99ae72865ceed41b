//! `cargo xtask bench auto`: what is planned where nothing is named, beside every named scheduler that is quick, for graphs of the
//! corpus in several budgets, without a link and with links of several rates. `cargo xtask bench peers`: the same beside what
//! plans by blocks of a transformer, for networks of its kind.
//!
//! Each plan is made by `memfit plan`, judged, in a process of its own with a limit of time and of address space. A scheduler that
//! passes a limit on a graph is not quick there, and is not asked again on it. Progress goes to standard error.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use memfit::Graph;
use memfit_plan::families::{Named, default_of};
use serde_json::Value;

use crate::{graphs_of, markdown};

/// What of the bench is run.
#[derive(Clone, Debug, Args)]
pub(crate) struct Filter {
    /// Of `auto` and `peers`: only graphs whose names hold one of these
    #[arg(long, value_name = "TEXT,…", value_delimiter = ',')]
    graphs: Vec<String>,
    /// Of `auto` and `peers`: parts of what lies between floor and peak, in percent [default: 70 50 30 15 5, of `peers` 100 too]
    #[arg(long, value_name = "PERCENT,…", value_delimiter = ',')]
    budgets: Vec<u32>,
    /// Of `auto` and `peers`: rates of the link in GB/s, 0 for none [default: 0 12 25 55, of `peers` 25 55]
    #[arg(long, value_name = "RATE,…", value_delimiter = ',')]
    links: Vec<u32>,
    /// Of `auto`: only graphs of up to 600 ops, two budgets, and one link or none
    #[arg(long)]
    quick: bool,
    /// Of `auto` and `peers`: seconds that a named scheduler may take for a plan; six times as many where nothing is named
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    limit: f64,
    /// Of `auto` and `peers`: address space of a plan's process
    #[arg(long, value_name = "GIB", default_value_t = 8)]
    space: u64,
    /// Of `auto` and `peers`: take plans that this file knows, and add those that it does not know
    #[arg(long, value_name = "FILE")]
    known: Option<PathBuf>,
}

/// Ops of a graph that `--quick` takes, at most.
const FEW: usize = 600;

/// What plans.
const PROGRAM: &str = "target/bench-auto/memfit";

/// What stands for a plan by nobody in particular.
const AUTO: &str = "auto";

/// Graphs, a device, and who plans beside `auto`.
#[derive(Clone, Copy, Debug)]
struct Set {
    folder: &'static str,
    budgets: &'static [u32],
    links: &'static [u32],
    /// The first lines of the device's file.
    device: &'static str,
    /// Schedulers by name; all that have what they need where there is none.
    named: &'static [&'static str],
}

/// The corpus, and everybody.
const CORPUS: Set = Set {
    folder: "corpus/graphs",
    budgets: &[70, 50, 30, 15, 5],
    links: &[0, 12, 25, 55],
    device: "name = \"A100-80\"\nmemory = \"80GiB\"\nalign = 512\n\
        flops = { f64 = \"9.7TFLOP/s\", f32 = \"19.5TFLOP/s\", f16 = \"312TFLOP/s\", bf16 = \"312TFLOP/s\", i8 = \"624TFLOP/s\" }\n\
        bandwidth = \"2039GB/s\"\n",
    named: &[],
};

/// Networks of blocks, and what plans by blocks: torchtitan's planner and memory policies, and stock PyTorch's knapsack.
const PEERS: Set = Set {
    folder: "bench/peers",
    budgets: &[100, 70, 50, 30, 15, 5],
    links: &[25, 55],
    device: "name = \"H100\"\nmemory = \"80GiB\"\nalign = 512\n\
        flops = { f64 = \"34TFLOP/s\", f32 = \"67TFLOP/s\", f16 = \"989TFLOP/s\", bf16 = \"989TFLOP/s\", i8 = \"1979TFLOP/s\" }\n\
        bandwidth = \"3350GB/s\"\n",
    named: &[
        "hybrid:titan",
        "hybrid:titan-greedy",
        "hybrid:uniform-blocks",
        "hybrid:full-blocks",
        "hybrid:selective-blocks",
        "hybrid:selective-offload-blocks",
        "hybrid:offload-blocks",
        "hybrid:knapsack",
    ],
};

/// What `memfit plan` says of a plan.
#[derive(Clone, Debug, PartialEq)]
struct Told {
    time: u64,
    base: u64,
    bound: u64,
    seconds: f64,
    strategy: String,
}

/// What came of asking for a plan.
#[derive(Clone, Debug, PartialEq)]
enum Answer {
    Fits(Told),
    /// It says that nothing fits, or that it can't.
    None,
    /// It passed a limit.
    Late,
}

impl Told {
    fn overhead(&self, time: u64) -> f64 {
        (time as f64 / self.base.max(1) as f64 - 1.0) * 100.0
    }
}

/// `auto` on the corpus.
pub(crate) fn run(filter: &Filter) -> Result<String> {
    beside(&CORPUS, filter)
}

/// `auto` on networks of blocks.
pub(crate) fn peers(filter: &Filter) -> Result<String> {
    beside(&PEERS, filter)
}

fn beside(set: &'static Set, filter: &Filter) -> Result<String> {
    let mut filter = filter.clone();
    if filter.quick {
        (filter.budgets, filter.links) = (vec![50, 15], vec![0, 12]);
    }
    for (asked, known) in [(&mut filter.budgets, set.budgets), (&mut filter.links, set.links)] {
        if asked.is_empty() {
            asked.extend(known);
        }
    }
    let build = ["build", "--release", "--package", "memfit-cli", "--no-default-features"];
    ensure!(Command::new("cargo").args(build).status()?.success(), "the command line does not build");
    let mut asker = Asker::new(set, filter)?;
    let mut table = Table::default();
    let mut graphs = graphs_of(set.folder)?;
    graphs.retain(|(name, graph)| asker.filter.takes(name, graph));
    graphs.sort_by_key(|(_, graph)| graph.op_count());
    for (name, graph) in &graphs {
        let mut late: Vec<String> = Vec::new();
        for link in asker.filter.links.clone() {
            for budget in asker.filter.budgets.clone() {
                let cell = Cell { graph: name, budget, link };
                table.add(&cell, &mut asker, &named(set, graph, link), &mut late)?;
            }
        }
        table.late.extend(late.iter().map(|one| format!("`{one}` on {name}")));
    }
    Ok(table.text())
}

/// Every named scheduler of the set that has what it needs, without those that are asked where nothing is named.
fn named(set: &Set, graph: &Graph, link: u32) -> Vec<String> {
    if !set.named.is_empty() {
        return set.named.iter().map(|&name| name.to_owned()).collect();
    }
    let has = |one: &Named| match one.family.name {
        "offload" => link > 0,
        "compress" => graph.is_sparse(),
        _ => true,
    };
    let others = Named::each().filter(|one| one.scheduler.info().name != default_of(one.family.name));
    others.filter(has).map(Named::name).collect()
}

impl Filter {
    fn takes(&self, name: &str, graph: &Graph) -> bool {
        let is_named = self.graphs.is_empty() || self.graphs.iter().any(|text| name.contains(text.as_str()));
        is_named && (!self.quick || graph.op_count() <= FEW)
    }
}

/// What a plan is asked for.
#[derive(Clone, Copy, Debug)]
struct Cell<'a> {
    graph: &'a str,
    budget: u32,
    link: u32,
}

impl Cell<'_> {
    fn key(&self, strategy: &str) -> String {
        format!("{}\t{}\t{}\t{strategy}", self.graph, self.budget, self.link)
    }
}

/// Asks `memfit plan`, in processes of their own.
struct Asker {
    set: &'static Set,
    filter: Filter,
    known: BTreeMap<String, Answer>,
    file: Option<File>,
}

impl Asker {
    fn new(set: &'static Set, filter: Filter) -> Result<Asker> {
        // A copy, so that nothing that is built meanwhile gets in.
        fs::create_dir_all("target/bench-auto")?;
        fs::copy("target/release/memfit", PROGRAM).context("can't copy `memfit`")?;
        for &link in &filter.links {
            fs::write(device_path(link), device(set, link)).context("can't write a device file")?;
        }
        let mut asker = Asker { set, known: BTreeMap::new(), file: None, filter };
        if let Some(path) = &asker.filter.known {
            for line in fs::read_to_string(path).unwrap_or_default().lines() {
                let (key, answer) = read(line).with_context(|| format!("`{line}` is no answer"))?;
                asker.known.insert(key, answer);
            }
            let file = OpenOptions::new().append(true).create(true).open(path);
            asker.file = Some(file.with_context(|| format!("can't open `{}`", path.display()))?);
        }
        Ok(asker)
    }

    /// The plan for `cell` by `strategy`.
    fn ask(&mut self, cell: &Cell<'_>, strategy: &str) -> Result<Answer> {
        let key = cell.key(strategy);
        if let Some(answer) = self.known.get(&key) {
            return Ok(answer.clone());
        }
        let seconds = self.filter.limit * if strategy == AUTO { 6.0 } else { 1.0 };
        let start = Instant::now();
        let answer = self.answer(cell, strategy, seconds)?;
        let short = match &answer {
            Answer::Fits(told) => format!("{:+.2} %", told.overhead(told.time)),
            Answer::None => "none".to_owned(),
            Answer::Late => "late".to_owned(),
        };
        let Cell { graph, budget, link } = cell;
        let took = start.elapsed().as_secs_f64();
        progress(&format!("{graph} floor+{budget}% {link} GB/s {strategy}: {short} ({took:.1} s)"));
        if let Some(file) = &mut self.file {
            writeln!(file, "{key}\t{}", write(&answer))?;
        }
        self.known.insert(key, answer.clone());
        Ok(answer)
    }

    fn answer(&self, cell: &Cell<'_>, strategy: &str, seconds: f64) -> Result<Answer> {
        let graph = format!("{}/{}.json.zst", self.set.folder, cell.graph);
        let (budget, device) = (format!("floor+{}%", cell.budget), device_path(cell.link));
        let limit = (self.filter.space << 20).to_string();
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v \"$1\"; shift; exec \"$@\"", "sh", &limit, PROGRAM]);
        command.args(["plan", &graph, "--budget", &budget, "--device", &device, "--json"]);
        // Beside a recomputation that is named, host memory would bring in another scheduler.
        let alone = ["recompute:", "compress:"].iter().any(|family| strategy.starts_with(family));
        match cell.link == 0 || alone {
            true => command.arg("--no-offload"),
            false => command.args(["--host-budget", "256GiB"]),
        };
        if strategy != AUTO {
            command.args(["--strategy", strategy]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = command.spawn().context("can't start `memfit`")?;
        let Some(output) = within(child, seconds)? else { return Ok(Answer::Late) };
        match output.status.code() {
            Some(0) => {}
            // It does not fit, or the strategy does not do what is asked for.
            Some(1 | 2) => return Ok(Answer::None),
            None | Some(101 | 134) => return Ok(Answer::Late), // Killed, or out of address space.
            Some(code) => bail!("`{strategy}` for {cell:?} ended with {code}"),
        }
        let told: Value = serde_json::from_slice(&output.stdout).context("no JSON")?;
        let number = |key: &str| told[key].as_u64().with_context(|| format!("no `{key}`"));
        let fits = number("peak_bytes")? <= number("budget_bytes")? && told["verified"] == true;
        ensure!(fits, "`{strategy}` for {cell:?} is above its budget");
        let strategy = told["strategy"].as_str().unwrap_or_default();
        // What someone else did counts for him.
        if !told["instead"].is_null() {
            return Ok(Answer::None);
        }
        Ok(Answer::Fits(Told {
            time: number("time_ns")?,
            base: number("base_time_ns")?,
            bound: number("time_bound_ns")?,
            seconds: told["planning_seconds"].as_f64().unwrap_or_default(),
            strategy: strategy.to_owned(),
        }))
    }
}

/// What `child` prints if it ends in time; it is killed if not.
fn within(mut child: Child, seconds: f64) -> Result<Option<std::process::Output>> {
    let start = Instant::now();
    while child.try_wait()?.is_none() {
        if start.elapsed().as_secs_f64() > seconds {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        sleep(Duration::from_millis(10));
    }
    Ok(Some(child.wait_with_output()?))
}

#[allow(clippy::print_stderr, reason = "this is a command-line tool")]
fn progress(text: &str) {
    eprintln!("{text}");
}

fn device_path(link: u32) -> String {
    format!("target/bench-auto/link-{link}.toml")
}

/// The set's device, with a link of so many GB/s, or none.
fn device(set: &Set, link: u32) -> String {
    let mut text = format!(
        "{}efficiency = {{ compute = 0.6, memory = 0.8 }}\nlaunch = \"5us\"\nsource = \"a bench\"\n",
        set.device
    );
    if link > 0 {
        text += &format!("link = {{ out = \"{link}GB/s\", in = \"{link}GB/s\", latency = \"10us\" }}\n");
        text += "host_memory = \"256GiB\"\n";
    }
    text
}

/// An answer as the rest of a line, and back.
fn write(answer: &Answer) -> String {
    match answer {
        Answer::Fits(Told { time, base, bound, seconds, strategy }) => {
            format!("{time}\t{base}\t{bound}\t{seconds}\t{strategy}")
        }
        Answer::None => "none".to_owned(),
        Answer::Late => "late".to_owned(),
    }
}

fn read(line: &str) -> Option<(String, Answer)> {
    let parts: Vec<&str> = line.split('\t').collect();
    let (key, rest) = parts.split_at_checked(4)?;
    let answer = match *rest {
        ["none"] => Answer::None,
        ["late"] => Answer::Late,
        [time, base, bound, seconds, strategy] => Answer::Fits(Told {
            time: time.parse().ok()?,
            base: base.parse().ok()?,
            bound: bound.parse().ok()?,
            seconds: seconds.parse().ok()?,
            strategy: strategy.to_owned(),
        }),
        _ => return None,
    };
    Some((key.join("\t"), answer))
}

/// What is printed.
#[derive(Default)]
struct Table {
    rows: Vec<Vec<String>>,
    /// Cells in which a named scheduler is faster, or finds a plan where nobody named finds none.
    behind: Vec<String>,
    /// By budget: cells, and sums of the logarithms of overheads, found and proved.
    means: BTreeMap<u32, (u32, f64, f64)>,
    late: Vec<String>,
}

impl Table {
    fn add(
        &mut self,
        cell: &Cell<'_>,
        asker: &mut Asker,
        named: &[String],
        late: &mut Vec<String>,
    ) -> Result<()> {
        let auto = asker.ask(cell, AUTO)?;
        let mut best: Option<(u64, u64, String)> = None;
        for name in named {
            if late.contains(name) {
                continue;
            }
            match asker.ask(cell, name)? {
                Answer::Fits(told) if best.as_ref().is_none_or(|best| told.time < best.0) => {
                    best = Some((told.time, told.base, name.clone()));
                }
                Answer::Fits(_) | Answer::None => {}
                Answer::Late => late.push(name.clone()),
            }
        }
        let link = if cell.link == 0 { "none".to_owned() } else { cell.link.to_string() };
        let mut row = vec![cell.graph.to_owned(), format!("{} %", cell.budget), link];
        let told = if let Answer::Fits(told) = &auto { Some(told) } else { None };
        let percent =
            |time: u64, base: u64| format!("{:+.2} %", (time as f64 / base.max(1) as f64 - 1.0) * 100.0);
        row.push(told.map_or("none".to_owned(), |told| percent(told.time, told.base)));
        row.push(told.map_or(String::new(), |told| by(&told.strategy)));
        row.push(best.as_ref().map_or("none".to_owned(), |(time, base, _)| percent(*time, *base)));
        row.push(best.as_ref().map_or(String::new(), |best| format!("`{}`", best.2)));
        row.push(told.map_or(String::new(), |told| percent(told.bound, told.base)));
        row.push(told.map_or(String::new(), |told| format!("{:.1} s", told.seconds)));
        if best.as_ref().is_some_and(|best| told.is_none_or(|told| best.0 < told.time)) {
            self.behind.push(row.join(", "));
        }
        if let Some(told) = told {
            let part = |time: u64| (time as f64 / told.base.max(1) as f64).ln();
            let (count, found, bound) = self.means.entry(cell.budget).or_default();
            *count += 1;
            *found += part(told.time);
            *bound += part(told.bound);
        }
        self.rows.push(row);
        Ok(())
    }

    fn text(&self) -> String {
        let head =
            ["graph", "floor +", "link, GB/s", "`auto`", "by", "best named", "which", "at least", "planning"];
        let mut text = markdown(&head, &self.rows);
        text +=
            &format!("\n{} cells; a named scheduler is faster in {}\n", self.rows.len(), self.behind.len());
        for row in &self.behind {
            text += &format!("- {row}\n");
        }
        text += "\nGeometric means of step times:\n\n";
        let mean =
            |sum: f64, count: u32| format!("{:+.2} %", ((sum / f64::from(count.max(1))).exp() - 1.0) * 100.0);
        let rows: Vec<Vec<String>> = self
            .means
            .iter()
            .rev()
            .map(|(budget, &(count, found, bound))| {
                vec![format!("{budget} %"), count.to_string(), mean(found, count), mean(bound, count)]
            })
            .collect();
        text += &markdown(&["floor +", "cells", "`auto`", "at least"], &rows);
        if !self.late.is_empty() {
            text += &format!("\nNot quick: {}\n", self.late.join(", "));
        }
        text
    }
}

/// Of the names of strategies that made a plan, that of the scheduler.
fn by(strategy: &str) -> String {
    let scheduler =
        strategy.split('+').find(|name| !name.starts_with("order:") && !name.starts_with("place:"));
    scheduler.map_or("every op once".to_owned(), |name| format!("`{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_read_as_they_are_written() {
        let told =
            Told { time: 3, base: 2, bound: 1, seconds: 0.5, strategy: "order:best+place:best".into() };
        for answer in [Answer::None, Answer::Late, Answer::Fits(told)] {
            let key = Cell { graph: "g", budget: 5, link: 0 }.key(AUTO);
            assert_eq!(read(&format!("{key}\t{}", write(&answer))), Some((key, answer)));
        }
        assert_eq!(read("g\t5\t0\tauto\twhat"), None);
    }
}
