//! `memfit explain`: what holds the memory at the peak, and what would help.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueHint};
use memfit::explain::{Remedy, Share};
use memfit::{Budget, Bytes, Explanation, Graph, explain, input, objects};
use owo_colors::OwoColorize as _;

use super::{goal, moved, snapshot};
use crate::args::{MeansArgs, dim};
use crate::error::Error;
use crate::files;
use crate::output::{Output, clean, grouped, table};

#[derive(Debug, ClapArgs)]
pub(super) struct ExplainArgs {
    /// A graph, or a pickle of `torch.cuda.memory._dump_snapshot`; `-` for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub(super) file: PathBuf,
    /// Size of a symbolic dimension of an ONNX model, as `batch=8`
    #[arg(long, value_name = "NAME=SIZE", value_parser = dim)]
    pub(super) dim: Vec<(String, u64)>,
    /// Index of the device of a snapshot to explain [default: the one that holds most]
    #[arg(long, value_name = "N")]
    pub(super) index: Option<u64>,
    #[command(flatten)]
    pub(super) means: MeansArgs,
    /// List this many of the largest buffers, modules, ops and frames
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(super) top: usize,
    /// Cut module paths to this many components
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(super) depth: usize,
}

pub(super) fn run(args: &ExplainArgs, seed: u64, output: &Output) -> Result<(), Error> {
    let bytes = files::read(&args.file)?;
    if input::is_snapshot(&bytes) {
        return snapshot::run(args, &bytes, output);
    }
    let options = files::options(&args.dim);
    let graph = input::graph(&bytes, &options).map_err(|failure| files::about(&args.file, failure))?;
    let goal = goal(&args.means, Budget::Device, seed, output)?;
    let found = output.with_tools(|tools| explain(&graph, &goal, args.depth, args.top, tools))?;
    output.passes();
    if output.json {
        return output.object(&objects::explanation(&graph, &found));
    }
    output.print(&report(&graph, &found, args.top))
}

fn report(graph: &Graph, found: &Explanation, top: usize) -> String {
    let mut text = format!(
        "{} · {} ops · {} values · {:.2} TFLOP · about {}\n\n",
        clean(&found.graph).bold(),
        grouped(found.ops),
        grouped(found.values),
        found.flops / 1e12,
        found.time
    );
    let dynamic = found.live_peak.saturating_sub(found.fixed_bytes);
    let mut rows =
        vec![vec!["peak".to_owned(), found.live_peak.to_string(), "100 %".to_owned(), String::new()]];
    let share = |bytes: Bytes| format!("{:.0} %", bytes.ratio(found.live_peak) * 100.0);
    rows.push(vec![
        "  static".into(),
        found.fixed_bytes.to_string(),
        share(found.fixed_bytes),
        "stays for the whole step".into(),
    ]);
    for fixed in &found.fixed {
        let buffers = format!("{} buffers", grouped(fixed.count));
        rows.push(vec![format!("    {}", fixed.name), fixed.bytes.to_string(), share(fixed.bytes), buffers]);
    }
    rows.push(vec!["  dynamic".into(), dynamic.to_string(), share(dynamic), "comes and goes".into()]);
    text += &table(&[], &[3], rows);
    text += "\nlive bytes over the step\n";
    text += &chart(&found.live, found.live_peak, 72, 12);
    if let Some(op) = found.peak_op {
        let op = graph.op(op);
        let module = if op.module.is_empty() { String::new() } else { format!(" in `{}`", clean(op.module)) };
        text +=
            &format!("peak at {} op `{}` ({}){module}\n", op.phase.name(), clean(op.name), clean(op.kind));
    }
    if let Some(by) = &found.held_by {
        text += &format!("{}\n", clean(&memfit::held(by)));
    }
    for (title, shares) in [("role", &found.by_role), ("module", &found.by_module), ("op", &found.by_kind)] {
        text += &peak_by(title, shares, found.live_peak, top);
    }
    text += "\nlargest buffers at the peak\n";
    let rows = found.top.iter().map(|holder| {
        let until = if holder.last_read_by.is_empty() { "the end" } else { &holder.last_read_by };
        let from = if holder.made_by.is_empty() { "the start" } else { &holder.made_by };
        vec![
            format!("  {}", holder.name),
            holder.bytes.to_string(),
            holder.role.name().to_owned(),
            holder.shape.clone(),
            format!("{from} → {until}"),
        ]
    });
    text += &table(&[], &[2, 3, 4], rows.collect());
    text += "\nwhat each remedy would give\n";
    text += &remedies(&found.remedies);
    for summary in found.remedies.iter().filter_map(|remedy| remedy.moved.as_ref()) {
        text += &format!("  {}\n", moved(summary));
        let held = summary.held_by.as_ref().map(|by| format!("  {}\n", clean(&memfit::held(by))));
        text += &held.unwrap_or_default();
    }
    let step = found.floor.op.map_or("what must be there at the end", |op| graph.op(op).name);
    text += &format!(
        "\nfloor {} = persistent {} + largest working set {} (`{}`)\n",
        found.floor.bytes,
        found.floor.persistent,
        found.floor.bytes.saturating_sub(found.floor.persistent),
        clean(step)
    );
    text
}

/// What holds the bytes at the peak, largest first: a heading and a table.
pub(super) fn peak_by(title: &str, shares: &[Share], peak: Bytes, top: usize) -> String {
    let rows = shares.iter().take(top).map(|s| {
        let share = format!("{:.0} %", s.bytes.ratio(peak) * 100.0);
        vec![format!("  {}", s.name), s.bytes.to_string(), share, format!("{} buffers", grouped(s.count))]
    });
    let mut text = format!("\nat the peak, by {title}\n{}", table(&[], &[], rows.collect()));
    if shares.len() > top {
        text += &format!("  … {} more: `--top {}`\n", shares.len() - top, shares.len());
    }
    text
}

fn remedies(remedies: &[Remedy]) -> String {
    let first = remedies.first().map_or(Bytes::ZERO, |remedy| remedy.peak);
    let rows = remedies.iter().map(|remedy| {
        let change = format!("{:+.0} %", (remedy.peak.ratio(first) - 1.0) * 100.0);
        vec![format!("  {}", remedy.name), remedy.peak.to_string(), change, remedy.what.clone()]
    });
    table(&[], &[3], rows.collect())
}

/// Columns of live bytes, `width` wide and `height` high; each column is the most of its part of the step.
fn chart(live: &[Bytes], peak: Bytes, width: usize, height: usize) -> String {
    const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    if live.is_empty() || peak == Bytes::ZERO {
        return "  (nothing)\n".to_owned();
    }
    let width = width.min(live.len());
    let columns: Vec<u64> = (0..width)
        .map(|column| {
            let part = column * live.len() / width
                ..((column + 1) * live.len() / width).max(column * live.len() / width + 1);
            let most = live[part].iter().max().map_or(0, |bytes| bytes.0);
            // Eighths of a row, rounded up, so that nothing that is there is drawn as nothing.
            u64::try_from((u128::from(most) * 8 * height as u128).div_ceil(u128::from(peak.0))).unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in (0..height).rev() {
        let label = if row + 1 == height {
            peak.to_string()
        } else if row == 0 {
            "0".to_owned()
        } else {
            String::new()
        };
        let line: String = columns
            .iter()
            .map(|&eighths| {
                let above = usize::try_from(eighths).unwrap_or(0).saturating_sub(row * 8);
                EIGHTHS[above.min(8)]
            })
            .collect();
        text += &format!("{label:>10} │{}\n", line.trim_end());
    }
    text + &format!("{:>10} └{}\n", "", "─".repeat(width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_shows_the_peak_and_rounds_up() {
        let live = [1, 50, 100, 25].map(Bytes);
        assert_eq!(chart(&live, Bytes(100), 72, 2), "     100 B │  █\n         0 │▁██▄\n           └────\n");
        assert_eq!(chart(&[], Bytes(0), 72, 2), "  (nothing)\n");
    }
}
