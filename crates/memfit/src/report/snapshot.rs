//! A snapshot of PyTorch's CUDA allocator as a report: event by event, at the addresses it used.

use memfit_formats::report::{Axis, Figure, Kind, Report, Stay, Table, Unit};
use memfit_formats::snapshot::{self, Snapshot};
use memfit_ir::{Bytes, Place};

use crate::snapshot::{Chosen, Timeline, chosen, label, own_frame, roles};
use crate::{Failure, SnapshotExplanation, Tools, explain_snapshot};

/// Regions of addresses that are further apart than this are drawn side by side.
const GAP: u64 = 2 << 20;

/// The report of the device that holds most, or `device`.
///
/// # Errors
///
/// As [`explain_snapshot`].
pub fn of_snapshot(file: &[u8], device: Option<u64>, tools: &Tools<'_>) -> Result<Report, Failure> {
    let snapshot = snapshot::read(file)?;
    let Chosen { device, timeline, .. } = chosen(&snapshot, device)?;
    let found = explain_snapshot(file, Some(device), 0, tools)?;
    let mut report = Report {
        kind: Kind::Snapshot,
        title: format!("CUDA memory of device {device}"),
        axis: Axis::Events,
        instants: timeline.until,
        levels: vec![("reserved at most".to_owned(), found.peak_reserved)],
        ..Report::default()
    };
    stays(&mut report, &snapshot, &timeline);
    cards(&mut report, &found);
    report.what_if = what_if(&found);
    if found.events == 0 {
        let hint = "No events were recorded: this is one moment. Record some with `torch.cuda.memory._record_memory_history()`.";
        report.notes.push(hint.to_owned());
    }
    report.notes.push("What a buffer is for is guessed from the names in its stack.".to_owned());
    Ok(report)
}

fn cards(report: &mut Report, found: &SnapshotExplanation) {
    let note = format!("after event {} of {}", found.peak_event, found.events);
    report.cards.push(("live at the peak".into(), Figure::bytes(found.live_peak), note));
    let share = found.live_peak.ratio(found.peak_reserved) * 100.0;
    let note = match found.failed {
        Some(_) => "from the driver at most".to_owned(),
        None => format!("from the driver at most; {share:.0} % of that live at the peak"),
    };
    report.cards.push(("reserved".into(), Figure::bytes(found.peak_reserved), note));
    let held = &found.held;
    let note = format!("in {} blocks now, the largest {}", held.free_blocks, held.largest_free);
    report.cards.push(("free in blocks".into(), Figure::bytes(held.free), note));
    if let Some((asked, left)) = found.failed {
        let left = left.map_or(String::new(), |left| format!("; the device had {left} left"));
        report.cards.push(("could not be had".into(), Figure::bytes(asked), format!("out of memory{left}")));
    }
    report.facts.push(("device".into(), found.device.to_string()));
    report.facts.push(("events".into(), found.events.to_string()));
    report.facts.push(("allocations".into(), found.allocations.to_string()));
    report.facts.push(("segments".into(), held.segments.to_string()));
    let expandable = if held.expandable { "yes" } else { "no" };
    report.facts.push(("expandable segments".into(), expandable.to_owned()));
}

fn stays(report: &mut Report, snapshot: &Snapshot, timeline: &Timeline) {
    let regions = Regions::of(timeline);
    for (buffer, role) in timeline.buffers.iter().zip(roles(snapshot, timeline)) {
        let own = own_frame(snapshot.frames_of(buffer.stack));
        let module = own.map_or("", |frame| frame.file.rsplit(['/', '\\']).next().unwrap_or_default());
        let made_by: Vec<String> =
            snapshot.frames_of(buffer.stack).take(8).map(|frame| label(Some(frame))).collect();
        let names = &mut report.names;
        report.stays.push(Stay {
            name: names.id(&label(own)),
            role: names.id(if buffer.failed { "out of memory" } else { role.name() }),
            module: names.id(module),
            shape: 0,
            made_by: names.id(&made_by.join(" ← ")),
            bytes: buffer.size,
            size: buffer.size,
            place: Some(regions.place(buffer.address, buffer.failed)),
            from: buffer.from,
            until: buffer.until,
        });
    }
}

/// Ranges of addresses that were ever used, moved together.
struct Regions {
    /// First address, and where that is drawn.
    starts: Vec<(u64, u64)>,
    height: u64,
}

impl Regions {
    fn of(timeline: &Timeline) -> Regions {
        let placed = timeline.buffers.iter().filter(|buffer| !buffer.failed);
        let mut ranges: Vec<(u64, u64)> =
            placed.map(|buffer| (buffer.address, buffer.address.saturating_add(buffer.size.0))).collect();
        ranges.sort_unstable();
        let mut regions = Regions { starts: Vec::new(), height: 0 };
        let mut end = None;
        for (from, until) in ranges {
            match end {
                Some(last) if from <= u64::saturating_add(last, GAP) => {}
                last => {
                    let (start, drawn) = regions.starts.last().copied().unwrap_or_default();
                    let next = last.map_or(0, |last: u64| drawn.saturating_add(last - start));
                    regions.starts.push((from, next));
                }
            }
            end = Some(end.unwrap_or_default().max(until));
        }
        let (start, drawn) = regions.starts.last().copied().unwrap_or_default();
        regions.height = drawn.saturating_add(end.unwrap_or_default().saturating_sub(start));
        regions
    }

    /// What could not be had is drawn above all else.
    fn place(&self, address: u64, failed: bool) -> Place {
        if failed {
            return Place { bank: 0, offset: Bytes(self.height) };
        }
        let at = self.starts.partition_point(|(start, _)| *start <= address).saturating_sub(1);
        let (start, drawn) = self.starts.get(at).copied().unwrap_or_default();
        Place { bank: 0, offset: Bytes(drawn.saturating_add(address.saturating_sub(start))) }
    }
}

fn what_if(found: &SnapshotExplanation) -> Table {
    let head = ["means", "device memory", "change", "certainty", "what it is"].map(str::to_owned).to_vec();
    let first = found.remedies.first().map(|remedy| remedy.peak).unwrap_or_default();
    let rows = found.remedies.iter().map(|remedy| {
        let change = if first == Bytes::ZERO {
            Figure::text("")
        } else {
            Figure::Number(remedy.peak.ratio(first) - 1.0, Unit::Change)
        };
        vec![
            Figure::text(remedy.name),
            Figure::bytes(remedy.peak),
            change,
            Figure::text(remedy.certainty.name()),
            Figure::text(remedy.what.clone()),
        ]
    });
    Table { head, rows: rows.collect() }
}
