//! A report as JSON for its page: columns instead of rows, only the names that are used, and no more stays than asked for.
//! Indices (names, instants) are differences to the row before.

use std::collections::BTreeMap;

use memfit_ir::{Bytes, Nanos};
use serde_json::{Value, json};

use super::model::{Curve, Figure, NameId, Report, Slice, SliceKind, Table};

/// How much of a report is handed on: the largest stays and the longest slices. The rest of the memory is handed on as a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Detail {
    pub(super) stays: usize,
    pub(super) slices: usize,
}

/// Instants at which the sum of what is left out is sampled.
const SAMPLES: usize = 4096;

/// The report as one object.
pub(super) fn object(report: &Report, detail: Detail) -> Value {
    let mut used = Used::default();
    let (kept, left) = largest(report, detail.stays);
    let instants = instants(report, &kept, left);
    let stays = stays(report, &kept, &instants, &mut used);
    let slices = slices(report, detail.slices, &mut used);
    json!({
        "kind": report.kind.name(),
        "title": super::model::shown_name(&report.title),
        "cards": report.cards.iter().map(|(name, figure, note)| json!([name, cell(figure), shown(note)])).collect::<Vec<_>>(),
        "facts": report.facts.iter().map(|(name, text)| json!([name, shown(text)])).collect::<Vec<_>>(),
        "notes": report.notes.iter().map(|text| shown(text)).collect::<Vec<_>>(),
        "levels": report.levels.iter().map(|(name, bytes)| json!([name, bytes.0])).collect::<Vec<_>>(),
        "axis": report.axis.name(),
        "instants": report.instants,
        "at": if left { instants.clone() } else { Vec::new() },
        "times": times(report, &instants),
        "stays": stays,
        "left": report.stays.len() - kept.len(),
        "rest": if left { rest(report, &kept, &instants) } else { Vec::new() },
        "lanes": report.lanes.iter().map(|lane| shown(&lane.name)).collect::<Vec<_>>(),
        "kinds": SliceKind::ALL.map(|(_, name)| name),
        "slices": slices,
        "slicesLeft": report.slices.len().saturating_sub(detail.slices),
        "before": report.before.as_ref().map(curve),
        "compared": table(&report.compared),
        "whatIf": table(&report.what_if),
        "front": report.front.iter().map(curve).collect::<Vec<_>>(),
        "losses": report.losses.iter().map(curve).collect::<Vec<_>>(),
        "names": used.names(report),
    })
}

fn shown(text: &str) -> String {
    super::model::shown_name(text)
}

/// Names that are used, numbered in the order of their use.
#[derive(Default)]
struct Used {
    numbers: BTreeMap<NameId, usize>,
    order: Vec<NameId>,
}

impl Used {
    fn number(&mut self, name: NameId) -> usize {
        *self.numbers.entry(name).or_insert_with(|| {
            self.order.push(name);
            self.order.len() - 1
        })
    }

    fn names<'a>(&self, report: &'a Report) -> Vec<&'a str> {
        self.order.iter().map(|&name| report.names.get(name)).collect()
    }
}

/// Indices of the `most` largest stays, in their order, and whether any are left out.
fn largest(report: &Report, most: usize) -> (Vec<usize>, bool) {
    let mut kept: Vec<usize> = (0..report.stays.len()).collect();
    let left = kept.len() > most;
    if left {
        // Large ones first; of equal ones those that stay longer.
        kept.sort_by_key(|&index| {
            let stay = &report.stays[index];
            std::cmp::Reverse((stay.size, stay.until.saturating_sub(stay.from), std::cmp::Reverse(index)))
        });
        kept.truncate(most);
        kept.sort_unstable();
    }
    (kept, left)
}

/// The instants that are handed on: all of them, or those that kept stays need and samples between them. The last is the end.
fn instants(report: &Report, kept: &[usize], left: bool) -> Vec<usize> {
    if !left {
        return (0..=report.instants).collect();
    }
    let ends = kept.iter().flat_map(|&index| [report.stays[index].from, report.stays[index].until]);
    let every = report.instants.div_ceil(SAMPLES).max(1);
    let samples = (0..report.instants).step_by(every);
    let mut all: Vec<usize> = ends.map(|at| at.min(report.instants)).chain(samples).collect();
    all.push(report.instants);
    all.sort_unstable();
    all.dedup();
    all
}

/// When those instants begin, as differences.
fn times(report: &Report, instants: &[usize]) -> Vec<u64> {
    if report.times.is_empty() {
        return Vec::new();
    }
    deltas(instants.iter().map(|&at| report.time_of(at).0))
}

fn deltas(numbers: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut before = 0;
    numbers.map(|number| number.saturating_sub(std::mem::replace(&mut before, number))).collect()
}

/// Indices as differences, which may be below zero: most follow on one another, and deflate to little.
fn steps(indices: impl IntoIterator<Item = usize>) -> Vec<i64> {
    let mut before = 0;
    let narrow = |index: usize| i64::try_from(index).unwrap_or(i64::MAX);
    indices.into_iter().map(narrow).map(|index| index - std::mem::replace(&mut before, index)).collect()
}

fn stays(report: &Report, kept: &[usize], instants: &[usize], used: &mut Used) -> Value {
    let stays = || kept.iter().map(|&index| &report.stays[index]);
    let index = |at: usize| instants.binary_search(&at.min(report.instants)).unwrap_or_else(|place| place);
    let mut names = |of: fn(&super::model::Stay) -> NameId| -> Vec<i64> {
        steps(stays().map(|stay| used.number(of(stay))))
    };
    let (name, role, module) = (names(|stay| stay.name), names(|stay| stay.role), names(|stay| stay.module));
    let (shape, made_by) = (names(|stay| stay.shape), names(|stay| stay.made_by));
    let is_placed = stays().all(|stay| stay.place.is_some()) && !kept.is_empty();
    let place = |of: fn(memfit_ir::Place) -> u64| -> Vec<u64> {
        let placed = stays().map(|stay| stay.place.map_or(0, of));
        if is_placed { placed.collect() } else { Vec::new() }
    };
    let banks = place(|place| place.bank.into());
    json!({
        "name": name,
        "role": role,
        "module": module,
        "shape": shape,
        "madeBy": made_by,
        "bytes": stays().map(|stay| stay.bytes.0).collect::<Vec<_>>(),
        // What rounding up adds.
        "pad": stays().map(|stay| stay.size.saturating_sub(stay.bytes).0).collect::<Vec<_>>(),
        "bank": if banks.iter().all(|&bank| bank == 0) { Vec::new() } else { banks },
        "offset": place(|place| place.offset.0),
        "from": steps(stays().map(|stay| index(stay.from))),
        // How long.
        "for": stays().map(|stay| index(stay.until).saturating_sub(index(stay.from))).collect::<Vec<_>>(),
    })
}

/// Bytes of what is not kept: the most in each span between two instants that are handed on.
fn rest(report: &Report, kept: &[usize], instants: &[usize]) -> Vec<u64> {
    let mut is_kept = vec![false; report.stays.len()];
    kept.iter().for_each(|&index| is_kept[index] = true);
    let mut change = vec![(Bytes::ZERO, Bytes::ZERO); report.instants + 1];
    for (_, stay) in
        report.stays.iter().enumerate().filter(|&(index, stay)| !is_kept[index] && stay.from < stay.until)
    {
        change[stay.from.min(report.instants)].0 += stay.size;
        change[stay.until.min(report.instants)].1 += stay.size;
    }
    let mut now = Bytes::ZERO;
    let spans = instants.windows(2).map(|span| {
        let mut most = Bytes::ZERO;
        for (born, gone) in &change[span[0]..span[1]] {
            now = now.saturating_sub(*gone) + *born;
            most = most.max(now);
        }
        most.0
    });
    spans.collect()
}

/// Half as many slices as asked for as they are, the longest ones; of those between them, neighbours of one kind as one without a
/// name, and of those again the longest.
fn joined(report: &Report, most: usize) -> Vec<Slice> {
    let mut order: Vec<usize> = (0..report.slices.len()).collect();
    order.sort_by_key(|&index| (std::cmp::Reverse(report.slices[index].time), index));
    let mut is_kept = vec![false; order.len()];
    order.iter().take(most / 2).for_each(|&index| is_kept[index] = true);
    order.sort_by_key(|&index| (report.slices[index].lane, report.slices[index].start, index));
    let end = |slice: &Slice| slice.start.0.saturating_add(slice.time.0);
    let near = report.times.last().copied().unwrap_or_default().0 / SAMPLES as u64;
    let mut joined: Vec<(Slice, bool)> = Vec::new();
    for index in order {
        let slice = report.slices[index];
        match joined.last_mut() {
            Some((last, false))
                if !is_kept[index]
                    && (last.lane, last.kind) == (slice.lane, slice.kind)
                    && slice.start.0.saturating_sub(end(last)) <= near =>
            {
                last.time = Nanos(end(&slice).saturating_sub(last.start.0));
                last.bytes += slice.bytes;
                last.name = 0;
            }
            _ => joined.push((slice, is_kept[index])),
        }
    }
    joined.sort_by_key(|(slice, _)| (std::cmp::Reverse(slice.time), slice.lane, slice.start));
    joined.truncate(most);
    joined.into_iter().map(|(slice, _)| slice).collect()
}

fn slices(report: &Report, most: usize, used: &mut Used) -> Value {
    let mut kept = if report.slices.len() > most { joined(report, most) } else { report.slices.clone() };
    kept.sort_by_key(|slice| (slice.start, slice.lane));
    let slices = || kept.iter();
    let nanos = |time: Nanos| time.0;
    json!({
        "lane": slices().map(|slice| slice.lane).collect::<Vec<_>>(),
        "kind": slices().map(|slice| slice.kind.index()).collect::<Vec<_>>(),
        "name": steps(slices().map(|slice| used.number(slice.name))),
        "start": deltas(slices().map(|slice| nanos(slice.start))),
        "time": slices().map(|slice| nanos(slice.time)).collect::<Vec<_>>(),
        "bytes": slices().map(|slice| slice.bytes.0).collect::<Vec<_>>(),
    })
}

fn curve(curve: &Curve) -> Value {
    let finite = || curve.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
    json!({
        "name": shown(&curve.name),
        "x": finite().map(|point| point.0).collect::<Vec<_>>(),
        "y": finite().map(|point| point.1).collect::<Vec<_>>(),
    })
}

fn table(table: &Table) -> Value {
    let rows = table.rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>());
    json!({
        "head": table.head.iter().map(|text| shown(text)).collect::<Vec<_>>(),
        "rows": rows.collect::<Vec<_>>(),
    })
}

/// A number with its unit, or a text.
fn cell(figure: &Figure) -> Value {
    match figure {
        Figure::Number(number, unit) => json!([number, unit.name()]),
        Figure::Text(text) => shown(text).into(),
    }
}
