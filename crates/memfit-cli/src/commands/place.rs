//! `memfit place`: offsets for a list of buffers.

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, ValueHint};
use memfit::formats::csv;
use memfit::strategies::families::default_of;
use memfit::{Bytes, PlaceGoal, input, objects, place};

use crate::args::dim;
use crate::error::Error;
use crate::files;
use crate::output::{Output, grouped, table};

#[derive(Debug, ClapArgs)]
pub(super) struct PlaceArgs {
    /// Buffers as CSV with the columns `id,lower,upper,size`, live on the half-open range [lower, upper); a buffer assignment that
    /// XLA dumped; or a TensorFlow Lite model, whose tensors are placed as TensorFlow Lite Micro places them, without sharing in
    /// place
    #[arg(value_hint = ValueHint::FilePath)]
    pub(super) file: PathBuf,
    /// Live ranges that XLA dumped beside the buffer assignment
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) live_ranges: Option<PathBuf>,
    /// Size of an open dimension of a model's inputs, as `x[0]=1`
    #[arg(long, value_name = "NAME=SIZE", value_parser = dim)]
    pub(super) dim: Vec<(String, u64)>,
    /// Memory capacity; if omitted, minimize the peak
    #[arg(long, short, value_name = "SIZE")]
    pub(super) capacity: Option<Bytes>,
    /// Placer that chooses the offsets
    #[arg(long, default_value = default_of("place"), value_name = "NAME")]
    pub(super) placer: String,
    /// Every offset is a multiple of this many bytes
    #[arg(long, default_value = "1", value_name = "SIZE")]
    pub(super) align: Bytes,
    /// Write the rows with a column `offset` to this file; `-` for standard output
    #[arg(long, short, value_name = "OUT.csv", value_hint = ValueHint::FilePath)]
    pub(super) output: Option<PathBuf>,
}

pub(super) fn run(args: &PlaceArgs, seed: u64, output: &Output) -> Result<(), Error> {
    let bytes = files::read(&args.file)?;
    let ranges = args.live_ranges.as_deref().map(files::read).transpose()?;
    let options = files::options(&args.dim);
    let read = input::buffers(&bytes, &options, ranges.as_deref());
    let (buffers, assigned) = read.map_err(|failure| files::about(&args.file, failure))?;
    let goal = PlaceGoal {
        capacity: args.capacity,
        align: args.align.max(memfit::Bytes(1)),
        placer: args.placer.clone(),
        seed,
        effort: output.effort(),
    };
    let placed = output.with_tools(|tools| place(&buffers, &goal, tools));
    let placed = placed.map_err(|failure| files::about(&args.file, failure))?;
    let to_stdout = args.output.as_deref() == Some(Path::new("-"));
    if let Some(path) = &args.output {
        files::write(path, &csv::write(&buffers, &placed.offsets))?;
    }
    output.passes();
    if output.json {
        let object = objects::placed(buffers.len(), &goal, &placed);
        // With the rows on standard output there's no room for an object.
        return if to_stdout { Ok(()) } else { output.object(&object) };
    }
    if to_stdout {
        return Ok(());
    }
    let over = placed.peak.ratio(placed.lower_bound);
    let mut text = String::new();
    if !output.quiet {
        let mut rows = vec![
            vec!["buffers".into(), grouped(buffers.len()), String::new()],
            vec!["without sharing".into(), placed.naive.to_string(), format!("{} B", placed.naive.0)],
            vec!["lower bound".into(), placed.lower_bound.to_string(), format!("{} B", placed.lower_bound.0)],
            vec![format!("place:{}", goal.placer), placed.peak.to_string(), format!("{} B", placed.peak.0)],
        ];
        if let Some(assigned) = assigned {
            rows.insert(2, vec!["assigned by XLA".into(), assigned.to_string(), format!("{} B", assigned.0)]);
        }
        text += &table(&[], &[], rows);
    }
    text += &format!("verified: {} B, {over:.4} × the lower bound, {:.3} s\n", placed.peak.0, placed.seconds);
    output.print(&text)
}
