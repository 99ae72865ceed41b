//! `memfit checkpoint`: safetensors files in fewer bytes, or as differences, and back to the byte.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek};
use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, Subcommand, ValueEnum, ValueHint};
use memfit::checkpoint::{
    self, How, MAGIC, Reader, Row, Rules, Safetensors, Source, Summary, digest, unpack,
};
use memfit::{Bytes, objects};
use serde_json::{Value, json};

use crate::error::Error;
use crate::files;
use crate::output::{Output, table};

#[derive(Debug, ClapArgs)]
pub(super) struct CheckpointArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Pack a safetensors file: to the last bit, unless `--codec` names something that loses some
    Pack(PackArgs),
    /// Write a safetensors file again from what was packed
    Unpack(UnpackArgs),
    /// Pack what a file has that another one has not: to the last bit, unless `--codec` says otherwise
    Diff(DiffArgs),
    /// Read all of a packed file and compare it with its checksums
    Verify(VerifyArgs),
}

#[derive(Debug, ClapArgs)]
struct PackArgs {
    /// A safetensors file, or a packed one to be packed anew
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
    #[command(flatten)]
    how: HowArgs,
    #[command(flatten)]
    base: BaseArgs,
    /// The packed file; `-` for standard output
    #[arg(long, short, value_name = "OUT", value_hint = ValueHint::FilePath)]
    output: PathBuf,
}

#[derive(Debug, ClapArgs)]
struct UnpackArgs {
    /// A packed file
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
    #[command(flatten)]
    base: BaseArgs,
    /// The safetensors file; `-` for standard output
    #[arg(long, short, value_name = "OUT", value_hint = ValueHint::FilePath)]
    output: PathBuf,
}

#[derive(Debug, ClapArgs)]
struct DiffArgs {
    /// The base: a safetensors file or a packed one. After a lossy codec, what was read back
    #[arg(value_hint = ValueHint::FilePath)]
    old: PathBuf,
    /// The file that differs from it
    #[arg(value_hint = ValueHint::FilePath)]
    new: PathBuf,
    #[command(flatten)]
    how: HowArgs,
    #[command(flatten)]
    base: BaseArgs,
    /// The packed file; `-` for standard output
    #[arg(long, short, value_name = "OUT", value_hint = ValueHint::FilePath)]
    output: PathBuf,
}

#[derive(Debug, ClapArgs)]
struct VerifyArgs {
    /// A packed file. Without its base, the checksums of what is packed are compared
    #[arg(value_hint = ValueHint::FilePath)]
    file: PathBuf,
    #[command(flatten)]
    base: BaseArgs,
}

/// What a file that is a difference is one to
#[derive(Debug, ClapArgs)]
struct BaseArgs {
    /// What a file that holds differences was made from; if that is a difference too, all of them, the oldest first
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    base: Vec<PathBuf>,
}

/// What may be lost
#[derive(Debug, ClapArgs)]
struct HowArgs {
    /// Codec for `f32` tensors that loses something
    #[arg(long, value_enum)]
    codec: Option<Lossy>,
    /// Largest error of any number, absolute; for all codecs but `kmeans`
    #[arg(long, value_name = "E", requires = "codec")]
    bound: Option<f64>,
    /// Numbers that are left of each MiB of a tensor, up to 256, for `kmeans`
    #[arg(long, value_name = "N", requires = "codec")]
    clusters: Option<usize>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Lossy {
    /// Numbers rounded to steps of twice the bound
    Bounded,
    /// The same for differences, where there's a base (Delta-DNN)
    DeltaDnn,
    /// The same for numbers that are not zero, beside a mask of those that are (DeepSZ)
    Deepsz,
    /// Each number the nearest of a few
    Kmeans,
}

impl HowArgs {
    fn rules(&self) -> Result<Rules, Error> {
        let usage = |text: &str, hint: &str| Err(memfit::Failure::usage(text, hint).into());
        let how = match (self.codec, self.bound, self.clusters) {
            (None, ..) => How::Lossless,
            (Some(Lossy::Bounded), Some(bound), None) => How::Bounded { bound },
            (Some(Lossy::DeltaDnn), Some(bound), None) => How::DeltaDnn { bound },
            (Some(Lossy::Deepsz), Some(bound), None) => How::Deepsz { bound },
            (Some(Lossy::Kmeans), None, Some(clusters)) => How::Kmeans { clusters },
            (Some(Lossy::Kmeans), ..) => {
                return usage("`kmeans` is told by `--clusters` alone what may be lost", "`--clusters 16`");
            }
            _ => return usage("this codec is told by `--bound` alone what may be lost", "`--bound 1e-4`"),
        };
        Ok(Rules::all(how))
    }
}

pub(super) fn run(args: &CheckpointArgs, output: &Output) -> Result<(), Error> {
    match &args.action {
        Action::Pack(pack) => {
            let mut source = open(&pack.file, chain(&pack.base.base)?)?;
            written(&pack.file, &mut *source, None, &pack.how, &pack.output, output)
        }
        Action::Diff(diff) => {
            // Both may be differences, and to the same.
            let mut old = open(&diff.old, chain(&diff.base.base)?)?;
            let mut new = open(&diff.new, chain(&diff.base.base)?)?;
            written(&diff.new, &mut *new, Some(&mut *old), &diff.how, &diff.output, output)
        }
        Action::Unpack(unpack) => unpacked(unpack, output),
        Action::Verify(verify) => verified(verify, output),
    }
}

/// What can be read at any place.
trait Bytewise: Read + Seek + Send {}
impl<T: Read + Seek + Send> Bytewise for T {}

fn opened(path: &Path) -> Result<(Box<dyn Bytewise>, bool), Error> {
    let mut file: Box<dyn Bytewise> = if path == Path::new("-") {
        Box::new(Cursor::new(files::read(path)?))
    } else {
        Box::new(File::open(path).map_err(|error| unread(path, error))?)
    };
    let mut start = Vec::new();
    (&mut file).take(8).read_to_end(&mut start).map_err(|error| unread(path, error))?;
    Ok((file, start == MAGIC))
}

fn unread(path: &Path, error: io::Error) -> Error {
    Error::Read(anyhow::Error::new(error).context(format!("can't read `{}`", path.display())))
}

fn about(path: &Path) -> impl Fn(checkpoint::Error) -> Error {
    let file = path.display().to_string();
    move |error| Error::Checkpoint { file: file.clone(), error, judged: false }
}

fn open(path: &Path, base: Option<Box<dyn Source>>) -> Result<Box<dyn Source>, Error> {
    let (file, is_packed) = opened(path)?;
    Ok(match is_packed {
        true => Box::new(Reader::open(file, base).map_err(about(path))?),
        false => Box::new(Safetensors::open(file).map_err(about(path))?),
    })
}

/// The last of `paths`, each read by those before it.
fn chain(paths: &[PathBuf]) -> Result<Option<Box<dyn Source>>, Error> {
    let mut base = None;
    for path in paths {
        base = Some(open(path, base)?);
    }
    Ok(base)
}

fn written(
    path: &Path,
    source: &mut dyn Source,
    base: Option<&mut (dyn Source + '_)>,
    how: &HowArgs,
    to: &Path,
    output: &Output,
) -> Result<(), Error> {
    let rules = how.rules()?;
    let is_difference = base.is_some();
    let summary = files::write_with(to, |mut out| {
        let each = &mut |row: &Row| output.show(&row.name);
        let made = checkpoint::write(source, base, &rules, &mut out, each);
        made.map_err(|error| match error {
            checkpoint::Error::Write(error) => files::unwritten(to, error),
            error => about(path)(error),
        })
    })?;
    if to == Path::new("-") {
        return Ok(());
    }
    let plain: Vec<u64> = source.header().tensors().iter().map(|tensor| tensor.bytes).collect();
    let rows: Vec<(&Row, u64)> = summary.rows.iter().zip(plain).collect();
    let action = if is_difference { "diff" } else { "pack" };
    if output.json {
        return output.object(&object(action, &summary, &rows));
    }
    let mut text = if output.verbose { listed(&rows) } else { String::new() };
    let (bytes, before) = (Bytes(summary.bytes), Bytes(summary.plain_bytes));
    let ratio = summary.plain_bytes as f64 / summary.bytes as f64;
    text += &format!("packed: {bytes} for {before}, {ratio:.2} to 1\n");
    if !output.quiet {
        text += &format!("digest: {}\n", summary.digest);
        text += &summary.base.map_or_else(String::new, |base| format!("base:   {base}\n"));
    }
    output.print(&text)
}

/// A line for each tensor.
fn listed(rows: &[(&Row, u64)]) -> String {
    let lines = rows.iter().map(|(row, plain)| {
        let bound = row.bound.map_or_else(String::new, |bound| format!("± {bound:e}"));
        vec![
            row.name.clone(),
            row.codec.clone(),
            Bytes(*plain).to_string(),
            Bytes(row.bytes).to_string(),
            ratio(row, *plain),
            bound,
        ]
    });
    table(&["tensor", "codec", "plain", "packed", "ratio", "error"], &[1], lines.collect())
}

fn ratio(row: &Row, plain: u64) -> String {
    if row.bytes == 0 { String::new() } else { format!("{:.2}", plain as f64 / row.bytes as f64) }
}

fn object(action: &str, summary: &Summary, rows: &[(&Row, u64)]) -> Value {
    json!({
        "schema": objects::SCHEMA,
        "status": "done",
        "action": action,
        "bytes": summary.bytes,
        "plain_bytes": summary.plain_bytes,
        "digest": summary.digest.to_string(),
        "base": summary.base.map(|base| base.to_string()),
        "tensors": tensors(rows),
    })
}

fn tensors(rows: &[(&Row, u64)]) -> Vec<Value> {
    let each = rows.iter().map(|(row, plain)| {
        json!({ "name": row.name, "codec": row.codec, "bytes": row.bytes, "plain_bytes": plain, "bound": row.bound })
    });
    each.collect()
}

fn unpacked(args: &UnpackArgs, output: &Output) -> Result<(), Error> {
    let mut source = open(&args.file, chain(&args.base.base)?)?;
    files::write_with(&args.output, |mut out| {
        let made = unpack(&mut *source, &mut out, &mut |name| output.show(name));
        made.map_err(|error| match error {
            checkpoint::Error::Write(error) => files::unwritten(&args.output, error),
            error => about(&args.file)(error),
        })
    })?;
    if args.output == Path::new("-") {
        return Ok(());
    }
    let digest = digest(&mut *source).map_err(about(&args.file))?;
    let (count, bytes) = (source.header().tensors().len(), source.header().bytes());
    if output.json {
        return output.object(&json!({
            "schema": objects::SCHEMA, "status": "done", "action": "unpack",
            "plain_bytes": bytes, "digest": digest.to_string(), "tensors": count,
        }));
    }
    output.print(&format!("unpacked: {count} tensors, {}\n", Bytes(bytes)))
}

fn verified(args: &VerifyArgs, output: &Output) -> Result<(), Error> {
    let judged = |error| Error::Checkpoint { file: args.file.display().to_string(), error, judged: true };
    let base = chain(&args.base.base)?;
    let is_whole = base.is_some();
    let (file, _) = opened(&args.file)?;
    let mut reader = Reader::open(file, base).map_err(judged)?;
    reader.verify(&mut |row| output.show(&row.name)).map_err(judged)?;
    let plain: Vec<u64> = reader.header().tensors().iter().map(|tensor| tensor.bytes).collect();
    let rows: Vec<(&Row, u64)> = reader.rows().iter().zip(plain).collect();
    let needs = reader.base().filter(|_| !is_whole);
    if output.json {
        return output.object(&json!({
            "schema": objects::SCHEMA,
            "status": "done",
            "action": "verify",
            "verified": true,
            "file_digest": reader.file_digest().to_string(),
            "base": reader.base().map(|base| base.to_string()),
            "unpacked": needs.is_none(),
            "tensors": tensors(&rows),
        }));
    }
    let mut text = if output.verbose { listed(&rows) } else { String::new() };
    text += &match needs {
        None => format!("verified: {} tensors\n", rows.len()),
        Some(base) => format!("verified: {} tensors, packed; the base is `{base}`\n", rows.len()),
    };
    output.print(&text)
}
