//! `memfit export`: the offsets of a plan for those who run it themselves, and traces of it for viewers.

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, ValueEnum, ValueHint};
use memfit::formats::offsets::Offsets;
use memfit::formats::plan_json::{self, PlanFile};
use memfit::formats::report;
use memfit::report::{Report, Whose, complete, of_file};
use memfit::{Failure, Graph, check, input};

use crate::args::dim;
use crate::error::Error;
use crate::files;
use crate::output::Output;

/// The forms that a plan can be written in.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Form {
    /// A C99 header with a size-query function
    CHeader,
    /// One JSON object, `memfit-offsets/1`
    Json,
    /// Rows `id,name,bank,lower,upper,size,offset`
    Csv,
    /// A trace for `ui.perfetto.dev`: lanes, links, and counters of live bytes
    Perfetto,
    /// The same as Chrome's trace events
    ChromeTrace,
    /// A snapshot as PyTorch's CUDA allocator writes it, for `pytorch.org/memory_viz`
    MemoryViz,
    /// The TensorFlow Lite model that the plan is for, with its offsets as `OfflineMemoryAllocation` for TensorFlow Lite Micro
    Tflite,
}

#[derive(Debug, ClapArgs)]
pub(super) struct ExportArgs {
    /// The plan, as `memfit plan -o` wrote it
    #[arg(value_hint = ValueHint::FilePath)]
    pub(super) plan: PathBuf,
    /// The graph it was made for: then the plan is verified first, and buffers have names
    #[arg(value_hint = ValueHint::FilePath)]
    pub(super) graph: Option<PathBuf>,
    /// Size of a symbolic dimension of an ONNX model, as `batch=8`
    #[arg(long, value_name = "NAME=SIZE", value_parser = dim)]
    pub(super) dim: Vec<(String, u64)>,
    /// The form to write
    #[arg(long, value_enum)]
    pub(super) to: Form,
    /// What every name in a C header starts with
    #[arg(long, default_value = "memfit", value_name = "NAME")]
    pub(super) prefix: String,
    /// Device whose times a trace has: a preset or a TOML file [default: the plan's]
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub(super) device: Option<String>,
    /// Write to this file [default: standard output]
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) output: Option<PathBuf>,
}

pub(super) fn run(args: &ExportArgs, output: &Output) -> Result<(), Error> {
    let bytes = files::read(&args.plan)?;
    let graph = args.graph.as_ref().map(|path| files::graph(path, &args.dim)).transpose()?;
    let file = match &graph {
        // What it loses is of no account here.
        Some(graph) => plan_json::read(&bytes)
            .map_err(Failure::from)
            .and_then(|file| check(&bytes, graph, None, &file.header.lossy))
            .map(|(file, _)| file),
        None => plan_json::read(&bytes).map_err(Failure::from).and_then(|file| {
            output
                .note("note: the plan is not verified: name its graph after it to have it verified first\n");
            complete(&file).map(|()| file)
        }),
    };
    let file = file.map_err(|failure| files::about(&args.plan, failure))?;
    let offsets = || Offsets::of(&file, graph.as_ref());
    let viewed = || viewed(args, &file, graph.as_ref());
    let bytes = match args.to {
        Form::CHeader => offsets().c_header(&args.prefix).into_bytes(),
        Form::Json => format!("{:#}\n", offsets().json()).into_bytes(),
        Form::Csv => offsets().csv().into_bytes(),
        Form::Perfetto => report::perfetto(&viewed()?),
        Form::ChromeTrace => format!("{}\n", report::chrome_trace(&viewed()?)).into_bytes(),
        Form::MemoryViz => report::memory_viz(&viewed()?),
        Form::Tflite => with_offsets(args, &file)?,
    };
    match (&args.output, std::str::from_utf8(&bytes)) {
        (Some(path), _) => files::write(path, &bytes),
        (None, Ok(text)) => output.print(text),
        (None, Err(_)) => files::write(Path::new("-"), &bytes),
    }
}

/// The model that the plan was made for, with the plan's offsets in it.
fn with_offsets(args: &ExportArgs, file: &PlanFile) -> Result<Vec<u8>, Error> {
    let Some(path) = &args.graph else {
        let hint = "name it after the plan: `memfit export PLAN MODEL.tflite --to tflite -o OUT.tflite`";
        return Err(Failure::usage("offsets are written into the model, which is not named", hint).into());
    };
    let bytes = files::read(path)?;
    let options = files::options(&args.dim);
    input::with_offsets(&bytes, &options, file).map_err(|failure| files::about(path, failure))
}

/// The plan as reports and traces show it: times are those of the device it was made for, or of the one that is named.
fn viewed(args: &ExportArgs, file: &PlanFile, graph: Option<&Graph>) -> Result<Report, Error> {
    let device = match &args.device {
        Some(name) => files::device(name)?,
        None => match input::device(&file.header.device) {
            Ok(device) => device,
            Err(_) => files::device(super::DEVICE)?,
        },
    };
    Ok(of_file(file, Whose { graph, device: &device }))
}
