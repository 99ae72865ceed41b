//! `memfit explain SNAPSHOT.pickle`: what ate the memory of a GPU, and what would help.

use memfit::snapshot::{SnapshotExplanation, SnapshotRemedy};
use memfit::{Bytes, explain_snapshot, objects};
use owo_colors::OwoColorize as _;

use super::explain::{ExplainArgs, peak_by};
use crate::error::Error;
use crate::files;
use crate::output::{Output, grouped, table};

pub(super) fn run(args: &ExplainArgs, bytes: &[u8], output: &Output) -> Result<(), Error> {
    let found = output.with_tools(|tools| explain_snapshot(bytes, args.index, args.top, tools));
    let found = found.map_err(|failure| files::about(&args.file, failure))?;
    output.passes();
    if output.json {
        return output.object(&objects::snapshot(&found));
    }
    output.print(&report(&found, args.top))
}

fn report(found: &SnapshotExplanation, top: usize) -> String {
    let of = match found.devices.len() {
        1 => String::new(),
        count => format!(" of {count}, `--index` for the others"),
    };
    let history = match found.events {
        0 => "no history was recorded: all is about the moment of the snapshot".to_owned(),
        events => format!("{} events, {} allocations", grouped(events), grouped(found.allocations)),
    };
    let mut text = format!("{}{of} · {history}\n\n", format!("device {}", found.device).bold());
    text += &summary(found);
    if let Some((requested, left)) = found.failed {
        let left = left.map_or(String::new(), |left| format!(" with {left} left on the device"));
        text += &format!("\nout of memory: {requested} were asked for{left}; they count as live\n");
    }
    for (title, shares) in [("role", &found.by_role), ("frame", &found.by_frame)] {
        text += &peak_by(title, shares, found.live_peak, top);
    }
    text += "\nlargest buffers at the peak\n";
    let rows = found.top.iter().map(|holder| {
        let note = match (holder.failed, holder.from_before) {
            (true, _) => "could not be had",
            (false, true) => "from before the first event",
            (false, false) => "",
        };
        vec![
            format!("  {}", holder.bytes),
            holder.role.name().to_owned(),
            holder.frame.clone(),
            note.to_owned(),
        ]
    });
    text += &table(&[], &[1, 2, 3], rows.collect());
    text += "\nwhat each remedy would give\n";
    text += &remedies(&found.remedies);
    text
}

fn summary(found: &SnapshotExplanation) -> String {
    let held = &found.held;
    let row = |name: &str, bytes: Bytes, note: String| vec![name.to_owned(), bytes.to_string(), note];
    let mut rows = Vec::new();
    if found.events > 0 {
        let note = format!("at event {} of {}", grouped(found.peak_event), grouped(found.events));
        rows.push(row("live bytes at the peak", found.live_peak, note));
        let over = found.peak_reserved.saturating_sub(found.live_peak).ratio(found.peak_reserved) * 100.0;
        let note = format!("{over:.0} % of it beyond what was ever live: fragmentation and cache");
        rows.push(row("reserved at most", found.peak_reserved, note));
    }
    let kind = if held.expandable { "growing segments" } else { "segments" };
    let segments = format!("{} {kind}", grouped(held.segments));
    rows.push(row("reserved at the snapshot", held.reserved, segments));
    let rounding = held.allocated.saturating_sub(held.requested);
    rows.push(row("  allocated", held.allocated, format!("of that {rounding} by rounding up")));
    if held.awaiting > Bytes::ZERO {
        rows.push(row("  awaiting", held.awaiting, "given back, another stream may still use it".into()));
    }
    let largest = format!("{} blocks, the largest {}", grouped(held.free_blocks), held.largest_free);
    rows.push(row("  free", held.free, largest));
    if held.private > Bytes::ZERO {
        rows.push(row("  in private pools", held.private, "as CUDA graphs have".into()));
    }
    table(&[], &[2], rows)
}

fn remedies(remedies: &[SnapshotRemedy]) -> String {
    let first = remedies.first().map_or(Bytes::ZERO, |remedy| remedy.peak);
    let rows = remedies.iter().map(|remedy| {
        let change = format!("{:+.0} %", (remedy.peak.ratio(first) - 1.0) * 100.0);
        vec![
            format!("  {}", remedy.name),
            remedy.peak.to_string(),
            change,
            remedy.certainty.name().to_owned(),
            remedy.what.clone(),
        ]
    });
    table(&[], &[3, 4], rows.collect())
}
