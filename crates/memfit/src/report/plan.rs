//! A plan as a report: its own memory and time, beside the step without memfit.

use memfit_formats::plan_json::PlanFile;
use memfit_formats::report::{Curve, Figure, Kind, Report, SliceKind, Table, Unit};
use memfit_ir::{Bytes, Device, Graph, Nanos, Program, Tier};
use memfit_sim::{Timeline, simulate};

use super::program::of_program;
use crate::{Floor, Goal, Planned};

/// Most points of a curve.
const POINTS: usize = 2000;

/// Where a plan file comes from.
#[derive(Clone, Copy, Debug)]
pub struct Whose<'a> {
    /// The graph it was made for; then the verifier has checked the plan.
    pub graph: Option<&'a Graph>,
    /// The device that its times are those of.
    pub device: &'a Device,
}

/// A plan that has just been made.
#[must_use]
pub fn of_planned(graph: &Graph, goal: &Goal, planned: &Planned) -> Report {
    let file = planned.file(graph, goal);
    let mut report = of_file(&file, Whose { graph: Some(graph), device: &goal.device });
    if let Some(instead) = &planned.summary.instead {
        let text = format!(
            "`{}` did not do its work: {}; `{}` was used",
            instead.strategy, instead.why, instead.used
        );
        report.notes.push(text);
    }
    report
}

/// A plan from a file. Its program must be well-formed, as every one that the verifier has accepted is.
#[must_use]
pub fn of_file(file: &PlanFile, whose: Whose<'_>) -> Report {
    let header = &file.header;
    let (program, layout) = (&file.plan.program, &file.plan.layout);
    let align = header.align.max(Bytes(1));
    let (mut report, timeline) = of_program(whose.graph, program, Some(layout), whose.device, align);
    report.kind = Kind::Plan;
    report.title.clone_from(&header.graph_name);
    report.levels = levels(header.budget, whose.graph.map(|graph| Floor::of(graph, align).bytes));
    let live = report.live().into_iter().max().unwrap_or_default();
    facts(&mut report, file, whose);
    let used = format!("of {}, fragmentation included", header.budget);
    report.cards.push(("memory".into(), Figure::bytes(header.peak), used));
    if let (Some(graph), Some(timeline)) = (whose.graph, &timeline) {
        let eager = Program::eager(graph);
        let base = simulate(graph, &eager, None, whose.device);
        let saved = (1.0 - header.peak.ratio(base.live_peak)) * 100.0;
        let note = format!("{saved:.0} % less than the {} of the step without memfit", base.live_peak);
        if saved >= 1.0 {
            report.cards.push((
                "saved".into(),
                Figure::bytes(base.live_peak.saturating_sub(header.peak)),
                note,
            ));
        }
        let change = ratio(timeline.time, base.time);
        let slower = format!("{:+.1} % on {}", change * 100.0, whose.device.name);
        report.cards.push(("step".into(), Figure::nanos(timeline.time), slower));
        if timeline.recomputes > 0 {
            let note = format!("{} ops run again", timeline.recomputes);
            report.cards.push(("run again".into(), Figure::nanos(timeline.recompute_time), note));
        }
        if timeline.offloaded > Bytes::ZERO {
            let note =
                format!("at most {} in other memory", timeline.tier_peaks.iter().copied().sum::<Bytes>());
            report.cards.push(("moved".into(), Figure::bytes(timeline.offloaded), note));
        }
        report.before = Some(live_curve(&base, "without memfit"));
        report.compared = compared((&base, base.live_peak), (timeline, header.peak), &report, live);
    }
    report
}

fn levels(budget: Bytes, floor: Option<Bytes>) -> Vec<(String, Bytes)> {
    let mut levels = vec![("budget".to_owned(), budget)];
    levels.extend(floor.map(|floor| ("floor".to_owned(), floor)));
    levels
}

fn facts(report: &mut Report, file: &PlanFile, whose: Whose<'_>) {
    let header = &file.header;
    let mut fact = |name: &str, text: String| report.facts.push((name.to_owned(), text));
    fact("strategy", header.strategy.clone());
    fact("device", header.device.clone());
    if let Some(graph) = whose.graph {
        fact("graph", format!("{} ops, {} values", graph.op_count(), graph.value_count()));
    }
    let program = &file.plan.program;
    fact("program", format!("{} steps, {} buffers", program.steps.len(), program.buffers.len()));
    fact("digest", file.plan.graph.to_string());
    fact("made by", header.generator.clone());
    match whose.graph {
        Some(_) => fact("verifier", "accepted this plan".to_owned()),
        None => report.notes.push(
            "The verifier has not read this plan, and times are not known: name the plan's graph after it."
                .to_owned(),
        ),
    }
    let lossy: Vec<&str> = program.lossy().iter().map(|codec| codec.name()).collect();
    if !lossy.is_empty() {
        report.notes.push(format!("Values wait in lossy codecs, as was asked for: {}.", lossy.join(", ")));
    }
}

fn ratio(time: Nanos, base: Nanos) -> f64 {
    if base == Nanos::ZERO { 0.0 } else { time.0 as f64 / base.0 as f64 - 1.0 }
}

/// Live bytes over time: the most of each of a number of spans.
pub(super) fn live_curve(timeline: &Timeline, name: &str) -> Curve {
    let steps = &timeline.steps;
    let every = steps.len().div_ceil(POINTS).max(1);
    let mut now = 0;
    let mut points: Vec<(f64, f64)> = steps
        .chunks(every)
        .map(|chunk| {
            now = chunk.first().map_or(now, |span| span.start.0.max(now));
            let live = chunk.iter().map(|span| span.live).max().unwrap_or_default();
            (now as f64, live.0 as f64)
        })
        .collect();
    if let Some(&(_, live)) = points.last() {
        points.push((timeline.time.0 as f64, live));
    }
    Curve { name: name.to_owned(), points }
}

/// The step without memfit and with the plan.
fn compared(
    (base, base_peak): (&Timeline, Bytes),
    (timeline, peak): (&Timeline, Bytes),
    report: &Report,
    live: Bytes,
) -> Table {
    let spent = |kinds: &[SliceKind]| {
        let of_kind = report.slices.iter().filter(|slice| kinds.contains(&slice.kind));
        of_kind.map(|slice| slice.time).sum::<Nanos>()
    };
    let change = |before: f64, after: f64| match before {
        0.0 => Figure::text(if after > 0.0 { "new" } else { "–" }),
        _ => Figure::Number(after / before - 1.0, Unit::Change),
    };
    let bytes = |name: &str, before: Bytes, after: Bytes| {
        vec![
            Figure::text(name),
            Figure::bytes(before),
            Figure::bytes(after),
            change(before.0 as f64, after.0 as f64),
        ]
    };
    let times = |name: &str, before: Nanos, after: Nanos| {
        vec![
            Figure::text(name),
            Figure::nanos(before),
            Figure::nanos(after),
            change(before.0 as f64, after.0 as f64),
        ]
    };
    let tier = |timeline: &Timeline, tier: Tier| timeline.tier_peaks[tier.index()];
    let mut rows = vec![
        bytes("device memory, with all that lies between buffers", base_peak, peak),
        bytes("largest sum of live bytes", base.live_peak, live),
        times("time of a step", base.time, timeline.time),
        times("ops that run again", Nanos::ZERO, timeline.recompute_time),
        bytes("carried to other memory", Bytes::ZERO, timeline.offloaded),
        bytes("carried back", Bytes::ZERO, timeline.fetched),
        times("waiting for copies", Nanos::ZERO, spent(&[SliceKind::Stall])),
        times("codecs", Nanos::ZERO, spent(&[SliceKind::Encode, SliceKind::Decode])),
        bytes("most in host memory", tier(base, Tier::Host), tier(timeline, Tier::Host)),
        bytes("most on the disk", tier(base, Tier::Disk), tier(timeline, Tier::Disk)),
    ];
    // What neither has says nothing.
    rows.retain(|row| !matches!(row[1..3], [Figure::Number(0.0, _), Figure::Number(0.0, _)]));
    let head = ["", "without memfit", "this plan", "change"].map(str::to_owned).to_vec();
    Table { head, rows }
}
