//! `memfit export`: the offsets of a plan, for those who run it themselves.

use clap::ValueEnum;
use memfit::formats::offsets::Offsets;
use memfit::formats::plan_json;
use memfit::{Failure, check};

use crate::args::ExportArgs;
use crate::error::Error;
use crate::files;
use crate::output::Output;

/// The forms that offsets can be written in.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Form {
    /// A C99 header with a size-query function
    CHeader,
    /// One JSON object, `memfit-offsets/1`
    Json,
    /// Rows `id,name,bank,lower,upper,size,offset`
    Csv,
}

pub(super) fn run(args: &ExportArgs, output: &Output) -> Result<(), Error> {
    let bytes = files::read(&args.plan)?;
    let graph = args.graph.as_ref().map(|path| files::graph(path, &args.dim)).transpose()?;
    let file = match &graph {
        Some(graph) => check(&bytes, graph, None).map(|(file, _)| file),
        None => plan_json::read(&bytes).map_err(Failure::from).and_then(|file| {
            output.note(
                "note: the plan is not verified: name its graph after it, then the judge reads it first\n",
            );
            let complete = file.plan.program.is_well_formed()
                && file.plan.layout.places.len() == file.plan.program.buffers.len();
            let wrong = || {
                Failure::usage("the plan names what does not exist", "name its graph after it to see where")
            };
            complete.then_some(file).ok_or_else(wrong)
        }),
    };
    let file = file.map_err(|failure| files::about(&args.plan, failure))?;
    let offsets = Offsets::of(&file, graph.as_ref());
    let text = match args.to {
        Form::CHeader => offsets.c_header(&args.prefix),
        Form::Json => format!("{:#}\n", offsets.json()),
        Form::Csv => offsets.csv(),
    };
    match &args.output {
        Some(path) => files::write(path, text.as_bytes()),
        None => output.print(&text),
    }
}
