//! `memfit doctor`: does memfit work here, and what does it take to move values?

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueHint};
use memfit::ir::Bytes;
use memfit::tiers::links::{self, Measured, MeasuredDisk};
use memfit::{Budget, Goal, Tools, check, input, objects, plan};
use serde_json::{Value, json};

use crate::error::Error;
use crate::output::{Output, table};

/// A small training step with everything in it that a plan is about.
const GRAPH: &str = include_str!("doctor.json");

/// Bytes of a copy in memory: more than caches hold.
const COPY: usize = 128 << 20;

/// The least that is worth writing to a disk to measure it, and the most.
const LEAST: u64 = 16 << 20;
const MOST: u64 = 256 << 20;

#[derive(Debug, ClapArgs)]
pub(super) struct DoctorArgs {
    /// Measure the disk that this directory is on, too: a file of 256 MiB at most, which nobody else sees
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) spill: Option<PathBuf>,
}

/// Whether the verifier does its work.
#[derive(Clone, Copy)]
struct Judge {
    accepts: bool,
    refuses: bool,
}

pub(super) fn run(args: &DoctorArgs, output: &Output) -> Result<(), Error> {
    let judge = judge()?;
    let memory = links::memory(COPY);
    let disk = args.spill.as_ref().map(|dir| {
        let failed = |error| anyhow::anyhow!("can't measure the disk of `{}`: {error}", dir.display());
        links::disk(dir, LEAST..=MOST).map_err(failed).map_err(Error::Write)
    });
    let disk = disk.transpose()?;
    if output.json {
        output.object(&object(judge, memory, disk))?;
    } else {
        output.print(&report(judge, memory, disk))?;
    }
    if judge.accepts && judge.refuses {
        return Ok(());
    }
    let rejected = memfit::Rejected { violations: Vec::new() };
    Err(memfit::Failure::Bug { pass: "doctor".into(), rejected, replay: String::new() }.into())
}

fn judge() -> Result<Judge, Error> {
    let graph = input::graph(GRAPH.as_bytes(), &input::Options::default())?;
    let goal = Goal::new(input::device("CPU")?, Budget::OfPeak(1.0));
    let planned = plan(&graph, &goal, &Tools::none())?;
    let file = planned.file(&graph, &goal);
    let accepts = check(&memfit::formats::plan_json::write(&file), &graph, None, &[]).is_ok();
    let mut broken = file;
    for place in &mut broken.plan.layout.places {
        place.offset = Bytes::ZERO;
    }
    let refuses = check(&memfit::formats::plan_json::write(&broken), &graph, None, &[]).is_err();
    Ok(Judge { accepts, refuses })
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn object(judge: Judge, memory: Measured, disk: Option<MeasuredDisk>) -> Value {
    let link = |link: Measured| {
        let [out, back] = link.rates;
        json!({"out_bytes_per_second": out, "in_bytes_per_second": back, "latency_ns": nanos(link)})
    };
    json!({
        "schema": objects::SCHEMA,
        "command": "doctor",
        "status": if judge.accepts && judge.refuses { "ok" } else { "broken" },
        "version": env!("CARGO_PKG_VERSION"),
        "cores": cores(),
        "judge_accepts_good_plan": judge.accepts,
        "judge_refuses_bad_plan": judge.refuses,
        "memory_link": link(memory),
        "disk": disk.map(|disk| json!({
            "link": link(disk.link),
            "written_bytes": disk.size,
            "free_bytes": disk.free,
            "direct": disk.is_direct,
        })),
        "device_lines": lines(memory, disk),
    })
}

fn nanos(link: Measured) -> u64 {
    u64::try_from(link.latency.as_nanos()).unwrap_or(u64::MAX)
}

/// What a device file says of links like these.
fn lines(memory: Measured, disk: Option<MeasuredDisk>) -> Vec<String> {
    let link = format!("link = {{ {} }}", memory.toml());
    let disk = disk.map(|disk| {
        let capacity = disk.free.unwrap_or(disk.size);
        format!("disk = {{ capacity = \"{capacity} B\", link = {{ {} }} }}", disk.link.toml())
    });
    [link].into_iter().chain(disk).collect()
}

fn report(judge: Judge, memory: Measured, disk: Option<MeasuredDisk>) -> String {
    let tick = |ok: bool| if ok { "ok" } else { "BROKEN" }.to_owned();
    let link = |link: Measured| {
        let [out, back] = link.rates.map(|rate| rate / 1e9);
        format!("{out:.2} GB/s out, {back:.2} GB/s in, {} ns at least", nanos(link))
    };
    let system = format!("{} {}, {} cores", std::env::consts::OS, std::env::consts::ARCH, cores());
    let mut rows = vec![
        vec!["memfit".to_owned(), env!("CARGO_PKG_VERSION").to_owned()],
        vec!["system".into(), system],
        vec!["plans a training step".into(), tick(true)],
        vec!["verifier accepts a good plan".into(), tick(judge.accepts)],
        vec!["verifier refuses a broken plan".into(), tick(judge.refuses)],
        vec!["capture from PyTorch".into(), "`python -m memfit.torch.export --help`".into()],
        vec!["copies in memory".into(), link(memory)],
    ];
    if let Some(disk) = disk {
        let free = disk.free.map_or(String::new(), |free| format!(", {} free", Bytes(free)));
        let way = if disk.is_direct { "io_uring" } else { "through the page cache" };
        rows.push(vec!["disk".into(), format!("{} ({}, {way}{free})", link(disk.link), Bytes(disk.size))]);
    }
    let mut text = table(&[], &[1], rows);
    text += "\nfor a device file (docs/devices.md), where these are the links\n";
    lines(memory, disk).iter().for_each(|line| text += &format!("  {line}\n"));
    text
}
